//! Links of programs that are known by their descriptors: libbpf-rs makes links only of programs in objects that it has loaded.
// Three calls of libbpf.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::Link;
use libbpf_sys as bpf;

/// Gives an interface the program, by a link of this kind (`BPF_XDP`, `BPF_TCX_INGRESS`, ...) with these flags.
pub(crate) fn create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    kind: bpf::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, flags, ..Default::default() };
    // SAFETY: an open descriptor, a number, and options that outlive the call and say how long they are.
    let link = succeeded(unsafe {
        bpf::bpf_link_create(program.as_raw_fd(), ifindex.cast_signed(), kind, &raw const options)
    })?;
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Puts the program in the place of the link's, without a packet passing in between.
pub(crate) fn update(link: &Link, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two descriptors that are open during the call, and no options.
    succeeded(unsafe { bpf::bpf_link_update(link.as_fd().as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
        .map(drop)
}

/// Pins a link, a program or a map.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an open descriptor, and a string that ends with a zero.
    succeeded(unsafe { bpf::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// libbpf returns what is negative for an error: its number.
fn succeeded(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
