//! Waiting until no program runs that began before.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use crate::Error;
use crate::maps::map_error;

const NAME: &str = "segue_grace";

/// Waits until every eBPF program that is running now has ended.
///
/// The kernel does so for whoever replaces the inner map of a map in a map: bpf(BPF_MAP_UPDATE_ELEM) then returns after
/// synchronize_rcu(), since Linux 4.20 (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c), so that the old map is used by
/// nobody. The map need not be one that a program uses. All of Segue's programs are readers in RCU's eyes from their first
/// instruction to their last one, tail calls included: XDP runs with soft interrupts disabled (NAPI), TC below
/// rcu_read_lock() too, and since 5.0 a grace period waits for both.
#[derive(Debug)]
pub(crate) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    /// # Errors
    /// [`Error::Map`].
    pub fn new() -> Result<Self, Error> {
        let failed = || map_error(NAME, "make it");
        let word = size_of::<u32>() as u32;
        let mut options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let inner = MapHandle::create(MapType::Array, Some(NAME), word, word, 1, &options).map_err(failed())?;
        options.inner_map_fd = inner.as_fd().as_raw_fd() as u32;
        let outer = MapHandle::create(MapType::ArrayOfMaps, Some(NAME), word, word, 1, &options).map_err(failed())?;
        Ok(Self { outer, inner })
    }

    /// Some milliseconds, as long as the longest run of a program or of other readers takes.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn wait(&self) -> Result<(), Error> {
        let inner = self.inner.as_fd().as_raw_fd();
        self.outer
            .update(&0_u32.to_ne_bytes(), &inner.to_ne_bytes(), MapFlags::ANY)
            .map_err(map_error(NAME, "wait for the programs that run"))
    }
}
