//! Waiting until the kernel has freed eBPF programs.

use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

/// About as long as a grace period of RCU takes, after which the kernel queues the freeing of programs that nobody holds any more.
const GRACE: Duration = Duration::from_millis(20);

/// Waits until the kernel has freed most of the eBPF programs that were let go before. To be called between portions of some hundred:
/// each program is freed by a work of its own in one queue of the processor, which takes 1024 at once; when all of those wait for the
/// memory of programs, whose holder waits for another work behind them in the same queue, no program can be loaded or freed on that
/// machine any more (seen on Linux 6.18; docs/results/agent.md, "Many programs at once").
///
/// A filter is made for a socket that is closed again: that takes the same lock, behind those that wait for it already.
pub fn programs_freed() {
    std::thread::sleep(GRACE);
    // Where it is refused there is the pause above.
    let _ = attach_filter();
}

/// Makes a filter and lets it go.
fn attach_filter() -> nix::Result<()> {
    /// `BPF_RET | BPF_K`, of 0.
    const NOTHING: libc::sock_filter = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
    let socket = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    let mut filter = [NOTHING];
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    setsockopt(&socket, sockopt::AttachReusePortCbpf, &program)
}

#[cfg(test)]
mod tests {
    /// A filter that the kernel refuses would wait for nothing.
    #[test]
    fn the_kernel_takes_the_filter() {
        super::attach_filter().expect("a filter");
    }
}
