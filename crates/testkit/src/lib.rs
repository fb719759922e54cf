//! What Segue's tests stand on: network namespaces that remove themselves, a harness over `BPF_PROG_TEST_RUN`, raw sockets,
//! and virtual machines with other kernels.
//!
//! Everything here serves tests, so helpers panic with a full sentence instead of returning errors wherever the only thing
//! that a test could do is to fail.

#![deny(unsafe_code)] // the module that talks to packet sockets says why

pub mod agent;
pub mod command;
pub mod dissector;
pub mod fixture;
pub mod frr;
pub mod golden;
pub mod initramfs;
pub mod mutation;
pub mod netns;
pub mod node;
pub mod object;
mod offloads;
pub mod packet_socket;
pub mod site;
pub mod tables;
pub mod tap;
pub mod vm;
pub mod vnf;
pub mod wait;
pub mod wiring;

/// Whether a run is a long one (`./x test --long`): what takes seconds each time is done less often else, and asserts the same. The table in
/// docs/developing/testing.md has all that asks.
pub fn is_long() -> bool {
    std::env::var_os("SEGUE_LONG").is_some()
}
