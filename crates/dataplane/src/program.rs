//! Programs that are known by their numbers alone, in slots of maps, and runs of them on a single packet (BPF_PROG_TEST_RUN).
// Calls for programs that libbpf-rs knows only as parts of an object. Sound: the descriptors are open, and the buffers live across
// the call and are as large as the kernel is told.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys::{bpf_prog_get_fd_by_id, bpf_prog_test_run_opts, bpf_test_run_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// As the program's hook has it.
    pub verdict: u32,
    /// The frame.
    pub frame: Vec<u8>,
    /// Mean duration of one run.
    pub duration: Duration,
}

/// Runs a program on a frame, with this context of its hook.
///
/// # Errors
/// What the kernel says.
pub fn run(program: BorrowedFd<'_>, frame: &[u8], context: &mut [u32], repeat: u32, room: usize) -> io::Result<Run> {
    let mut out = vec![0_u8; room];
    let size = |octets: usize| u32::try_from(octets).map_err(io::Error::other);
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: size(frame.len())?,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: size(out.len())?,
        ctx_in: context.as_mut_ptr().cast(),
        ctx_size_in: size(size_of_val(context))?,
        repeat: i32::try_from(repeat.max(1)).map_err(io::Error::other)?,
        ..Default::default()
    };
    // SAFETY: see the head of this file.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    out.truncate(options.data_size_out as usize);
    Ok(Run { verdict: options.retval, frame: out, duration: Duration::from_nanos(options.duration.into()) })
}

/// Runs a program on a frame that really goes on: what it redirects is sent, and what it passes is received by the interface of the context.
///
/// # Errors
/// What the kernel says: EINVAL for an interface without XDP, or before Linux 5.18.
pub fn run_live(program: BorrowedFd<'_>, frame: &[u8], context: &mut [u32]) -> io::Result<()> {
    /// `BPF_F_TEST_XDP_LIVE_FRAMES`.
    const LIVE_FRAMES: u32 = 1 << 1;
    let size = |octets: usize| u32::try_from(octets).map_err(io::Error::other);
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: size(frame.len())?,
        ctx_in: context.as_mut_ptr().cast(),
        ctx_size_in: size(size_of_val(context))?,
        repeat: 1,
        flags: LIVE_FRAMES,
        batch_size: 1,
        ..Default::default()
    };
    // SAFETY: see the head of this file.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The program in a slot of a map of programs; None if it is empty.
///
/// # Errors
/// What the kernel says.
pub fn in_slot(map: &MapHandle, slot: u32) -> io::Result<Option<OwnedFd>> {
    let found = map.lookup(&slot.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
    let Some(id) = found.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes) else { return Ok(None) };
    // SAFETY: a number is all that it takes.
    let descriptor = unsafe { bpf_prog_get_fd_by_id(id) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}
