//! Many rows of a per-CPU array in one call: libbpf-rs has batches for other maps only, and a call for each row is most of the
//! time where there are 100,000.
// Two calls that libbpf-rs lacks. Sound: the buffers are as large as the kernel is told and live across the call, and it fills
// them with plain words.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{bpf_map_batch_opts, bpf_map_lookup_batch, bpf_map_update_batch};
use libbpf_rs::{MapCore, MapHandle};

/// The words of rows `first` to below `first + count`, one CPU after the other for each row.
pub(crate) fn rows(map: &MapHandle, first: u32, count: u32) -> io::Result<Vec<u64>> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    // The kernel rounds each CPU's value up to words.
    let words = (map.value_size() as usize).div_ceil(size_of::<u64>()) * cpus;
    let mut keys = vec![0_u32; count as usize];
    let mut values = vec![0_u64; words * count as usize];
    let options = bpf_map_batch_opts { sz: size_of::<bpf_map_batch_opts>() as _, ..Default::default() };
    // The row before the first one; none: from the beginning.
    let mut before = first.wrapping_sub(1);
    let start = if first == 0 { std::ptr::null_mut() } else { (&raw mut before).cast() };
    let (mut last, mut read) = (0_u32, count);
    // SAFETY: see the head of this file; `keys` and `values` have room for `read` rows.
    let result = unsafe {
        bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            start,
            (&raw mut last).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &raw mut read,
            &options,
        )
    };
    match result {
        _ if read == count && (result == 0 || io::Error::last_os_error().kind() == io::ErrorKind::NotFound) => {
            Ok(values)
        }
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets these rows to 0 for all CPUs.
pub(crate) fn clear(map: &MapHandle, rows: &[u32]) -> io::Result<()> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let words = (map.value_size() as usize).div_ceil(size_of::<u64>()) * cpus;
    let values = vec![0_u64; words * rows.len()];
    let options = bpf_map_batch_opts { sz: size_of::<bpf_map_batch_opts>() as _, ..Default::default() };
    let mut count = u32::try_from(rows.len()).map_err(io::Error::other)?;
    // SAFETY: see the head of this file; `rows` and `values` have `count` rows, which the kernel only reads.
    let result = unsafe {
        bpf_map_update_batch(
            map.as_fd().as_raw_fd(),
            rows.as_ptr().cast(),
            values.as_ptr().cast(),
            &raw mut count,
            &options,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
