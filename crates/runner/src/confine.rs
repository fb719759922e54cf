//! What a service may do once it runs: it has all that it needs open by then, and whoever takes it over through a packet gets no more than that.
//!
//! - No capability of the kernel, in no thread; CAP_NET_ADMIN is left to a service that makes devices ([`segue_service::Kind::makes_devices`]).
//! - No new privileges: what it starts, if it could, gains none.
//! - Only the system calls of [`ALLOWED`]: no program can be started, no process made, looked into or signalled, nothing mounted, no
//!   namespace entered, no eBPF loaded. Others fail as if not permitted (EPERM).

use std::collections::BTreeMap;

use caps::{CapSet, Capability, CapsHashSet};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde::Serialize;

/// How a service is held.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Confinement {
    /// Capabilities that it has kept.
    pub capabilities: Vec<String>,
    /// Whether other system calls than those that it needs are refused.
    pub system_calls: bool,
    /// The control group that holds memory and processor time; none if no limit is set, or none could be made.
    pub control_group: Option<String>,
    /// What is not as it should be, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// System calls that a running service makes: packets, time, threads' locks, memory, its files, its control socket, a reload.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_unlinkat,
    libc::SYS_getdents64,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ioctl,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The same where the architecture has older calls as well.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_unlink, libc::SYS_stat, libc::SYS_rmdir];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[libc::c_long] = &[];

/// `bpf()` reads counters: BPF_MAP_LOOKUP_ELEM, BPF_OBJ_GET_INFO_BY_FD.
const BPF_COMMANDS: [u64; 2] = [1, 15];
/// `tgkill()` raises SIGABRT: a process that ends itself.
const ABORT: u64 = libc::SIGABRT as u64;
/// `prctl()` gives a thread its name, which one does that has just been started, perhaps behind the filter.
const NAME: u64 = libc::PR_SET_NAME as u64;

/// Takes all capabilities from the calling thread, but for that to make devices if `devices`.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn give_up_capabilities(devices: bool) -> Result<(), String> {
    let kept: CapsHashSet = devices.then_some(Capability::CAP_NET_ADMIN).into_iter().collect();
    let none = CapsHashSet::new();
    let failed = |error: caps::errors::CapsError| format!("capabilities cannot be given up: {error}");
    caps::set(None, CapSet::Ambient, &none).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, &none).map_err(failed)?;
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(failed)? {
        for capability in caps::read(None, CapSet::Bounding).map_err(failed)? {
            caps::drop(None, CapSet::Bounding, capability).map_err(failed)?;
        }
    }
    // Who does not run as root has fewer to begin with.
    let had = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let kept: CapsHashSet = kept.intersection(&had).copied().collect();
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)
}

/// Refuses all other system calls to all threads of the process from now on.
///
/// # Errors
/// If the kernel has no filters of system calls, or the architecture is not known.
pub(crate) fn refuse_system_calls() -> Result<(), String> {
    let failed = |error: String| format!("system calls cannot be refused: {error}");
    let filter = filter().map_err(|error| failed(error.to_string()))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| failed(error.to_string()))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|number| (*number, Vec::new())).collect();
    let only = |argument: u8, values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let rule = |value: &u64| {
            let is = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)?;
            SeccompRule::new(vec![is])
        };
        values.iter().map(rule).collect()
    };
    rules.insert(libc::SYS_bpf, only(0, &BPF_COMMANDS)?);
    rules.insert(libc::SYS_tgkill, only(2, &[ABORT])?);
    rules.insert(libc::SYS_prctl, only(0, &[NAME])?);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_can_be_made() {
        assert!(filter().unwrap().len() > ALLOWED.len());
    }

    /// In a process of its own: a filter cannot be taken off again.
    #[test]
    fn calls_that_no_service_makes_are_refused() {
        const INSIDE: &str = "SEGUE_TEST_CONFINED";
        let name = "confine::tests::calls_that_no_service_makes_are_refused";
        if std::env::var_os(INSIDE).is_none() {
            let own = std::env::current_exe().unwrap();
            let output = std::process::Command::new(own).args(["--exact", name]).env(INSIDE, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        nix::sys::prctl::set_no_new_privs().unwrap();
        refuse_system_calls().unwrap();
        let started = std::process::Command::new("true").status();
        assert_eq!(started.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        // What it needs goes on.
        assert!(std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2"));
        // What no service needs is refused to root as well.
        assert_eq!(nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS), Err(nix::Error::EPERM));
    }
}
