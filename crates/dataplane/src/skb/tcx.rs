//! Links to the TC hook without a filter (TCX, Linux 6.6): cheaper for each packet than a filter of `clsact`, and
//! pinned as XDP links are.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::Link;
use libbpf_sys as bpf;

use super::side::{Side, number_of};
use crate::bpf_link;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linked {
    /// The interface has the program.
    Yes,
    /// This kernel has no such hook.
    NotHere,
}

/// Gives the interface the program by a link that is pinned at `pin`, in front of all others, or puts it in the place of
/// another in that link without a packet passing in between.
///
/// # Errors
/// Whatever the kernel says but that it lacks the hook.
pub(super) fn attach(pin: &Path, ifindex: u32, side: Side, program: BorrowedFd<'_>) -> io::Result<Linked> {
    if let Ok(link) = Link::open(pin) {
        // The interface is gone if the link has lost its own; its number may be another's by now.
        if number_of(link.as_fd(), "ifindex:") == Some(ifindex) {
            if number_of(link.as_fd(), "prog_id:") == number_of(program, "prog_id:") {
                return Ok(Linked::Yes);
            }
            return bpf_link::update(&link, program).map(|()| Linked::Yes);
        }
        drop(link);
        fs::remove_file(pin)?;
    }
    let kind = if side == Side::Ingress { bpf::BPF_TCX_INGRESS } else { bpf::BPF_TCX_EGRESS };
    let link = match bpf_link::create(program, ifindex, kind, bpf::BPF_F_BEFORE) {
        // Kernels before 6.6 do not know the kind.
        Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => return Ok(Linked::NotHere),
        other => other?,
    };
    bpf_link::pin(link.as_fd(), pin).map(|()| Linked::Yes)
}

/// By what packets meet a program on TC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// A link.
    Link,
    /// A filter of `clsact`.
    Filter,
}

/// Whether the link at `pin` is there, on this interface.
pub(super) fn is_attached(pin: &Path, ifindex: u32) -> bool {
    Link::open(pin).is_ok_and(|link| number_of(link.as_fd(), "ifindex:") == Some(ifindex))
}

/// Takes the link at `pin` off its interface, if there is one. Without a pin the kernel does so too, but when it gets to it: the
/// program cannot be linked there again until then.
pub(super) fn detach(pin: &Path) {
    // It may have lost its interface already.
    if let Ok(link) = Link::open(pin)
        && let Err(error) = link.detach()
    {
        tracing::debug!("{}: {error}", pin.display());
    }
}
