//! Links to the TC hook without a filter (TCX, Linux 6.6): cheaper for each packet than a filter of `clsact`, and
//! pinned as XDP links are.
//!
//! libbpf-rs has no call for this hook, so these three of libbpf are made here.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::Link;
use libbpf_sys as bpf;

use super::side::{Side, number_of};

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
            // SAFETY: two descriptors that are open during the call, and no options.
            return succeeded(unsafe {
                bpf::bpf_link_update(link.as_fd().as_raw_fd(), program.as_raw_fd(), std::ptr::null())
            })
            .map(|_| Linked::Yes);
        }
        drop(link);
        fs::remove_file(pin)?;
    }
    let kind = if side == Side::Ingress { bpf::BPF_TCX_INGRESS } else { bpf::BPF_TCX_EGRESS };
    let options = bpf::bpf_link_create_opts {
        sz: size_of::<bpf::bpf_link_create_opts>() as u64,
        flags: bpf::BPF_F_BEFORE,
        ..Default::default()
    };
    // SAFETY: an open descriptor, a number, and options that outlive the call and say how long they are.
    let link = succeeded(unsafe {
        bpf::bpf_link_create(program.as_raw_fd(), ifindex.cast_signed(), kind, &raw const options)
    });
    let link = match link {
        // Kernels before 6.6 do not know the kind.
        Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => return Ok(Linked::NotHere),
        other => other?,
    };
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    let path = CString::new(pin.as_os_str().as_bytes())?;
    // SAFETY: an open descriptor, and a string that ends with a zero.
    succeeded(unsafe { bpf::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) }).map(|_| Linked::Yes)
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

/// libbpf returns what is negative for an error: its number.
fn succeeded(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
