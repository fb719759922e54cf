//! What Segue's tests stand on: network namespaces that remove themselves, a harness over `BPF_PROG_TEST_RUN`, raw sockets,
//! and virtual machines with other kernels.
//!
//! Everything here serves tests, so helpers panic with a full sentence instead of returning errors wherever the only thing
//! that a test could do is to fail.

#![deny(unsafe_code)] // the module that talks to packet sockets says why

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
pub mod packet_socket;
mod shared;
pub mod site;
pub mod tap;
pub mod vm;
pub mod vnf;
pub mod wait;
pub mod wiring;
