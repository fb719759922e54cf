//! When the kernel looks for packets on an interface: it can wait for more before it raises the next interrupt, or before it looks again by itself,
//! which costs time at low rates and saves it at high ones (`napi_defer_hard_irqs`, `gro_flush_timeout`; Documentation/networking/napi.rst).

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::{HostError, Result};

const REMEDY: &str = "be root, and see that sysfs can be mounted (a container needs CAP_SYS_ADMIN for that)";

/// How long the kernel waits between two looks, and how often it looks in vain before it waits for an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    /// Looks in a row that find nothing.
    pub times: u32,
    /// Nanoseconds between two looks. 0: interrupts bring packets at once.
    pub nanoseconds: u64,
}

/// For the node's end of a packet service's link. A veth polls for each packet that a service sends, on the service's own processor, and the node's
/// data plane then runs once for each; with a wait of 50 microseconds it runs for all that came meanwhile. A packet waits that long at most, and
/// only behind others: after the first looks in vain the next one is looked for at once (docs/results/services.md has the rates).
pub const OF_SERVICES: Deferral = Deferral { times: 2, nanoseconds: 50_000 };

/// Sets it for an interface of the calling thread's network namespace. It stays until somebody sets it again, or the interface goes.
///
/// # Errors
/// If the interface is not there, or the kernel refuses it.
pub fn defer(interface: &str, deferral: Deferral) -> Result<()> {
    with_sysfs(|| {
        let Deferral { times, nanoseconds } = deferral;
        for (key, value) in [("napi_defer_hard_irqs", u64::from(times)), ("gro_flush_timeout", nanoseconds)] {
            let file = file(interface, key);
            fs::write(&file, value.to_string()).map_err(HostError::io("set", &file, REMEDY))?;
        }
        Ok(())
    })
}

/// What is set for an interface of the calling thread's network namespace.
///
/// # Errors
/// If the interface is not there.
pub fn deferral(interface: &str) -> Result<Deferral> {
    with_sysfs(|| {
        let read = |key: &str| -> Result<u64> {
            let file = file(interface, key);
            let text = fs::read_to_string(&file).map_err(HostError::io("read", &file, REMEDY))?;
            Ok(text.trim().parse().unwrap_or_default())
        };
        let times = u32::try_from(read("napi_defer_hard_irqs")?).unwrap_or(u32::MAX);
        Ok(Deferral { times, nanoseconds: read("gro_flush_timeout")? })
    })
}

fn file(interface: &str, key: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join(key)
}

/// /sys shows the network namespace in which it was mounted: this has a mount of its own, which goes with its thread.
fn with_sysfs<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let with_mount = || {
        let failed = |error: nix::Error| HostError::io("mount", "/sys", REMEDY)(error.into());
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(failed)?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).map_err(failed)?;
        work()
    };
    std::thread::scope(|scope| match scope.spawn(with_mount).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
