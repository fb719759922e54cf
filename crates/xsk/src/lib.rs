//! Packets of an interface in user space: AF_XDP sockets, copies through a BPF ring buffer, and packet sockets for packets merged by
//! segmentation offload.
//!
//! # Promise
//!
//! A [`Socket`] is one worker's part of a queue of an interface: frames with packets come out of it, in order, and packets go into it. Sockets of one
//! queue share its frames. A frame is in one place at a time ([`Frames`]), and none is lost, whatever the kernel or the caller does. [`Program`] is what XDP does on the interface:
//! which packets wait for a socket, or are copied.
//!
//! # Data structures
//!
//! | | |
//! |---|---|
//! | [`Frames`] | who has each frame of a UMEM: nobody, the fill ring, a batch, the transmit ring. Pure |
//! | `ring::Producer`, `ring::Consumer` | one end of a ring that is shared with the kernel (or, in tests, with a model of it) |
//! | `pool::Pool` | the frames of a queue with the rings by which they go to the kernel and come back; one user at a time |
//! | [`Socket`] | the rings of received packets and of those to send of one worker at one queue, with the queue's pool |
//! | [`merged::MergedSocket`] | a worker's packet socket: what segmentation offload has merged comes and goes whole |
//! | [`Program`] | the eBPF object of `bpf/service.bpf.c`, attached |
//!
//! # Where `unsafe` is
//!
//! `ring` reads and writes memory that the kernel shares: indices with acquire and release, entries only between them. `memory` maps it and
//! gives out frames: a socket has those that it received, each given out once in a batch, and [`Frames`] lets no two sockets receive the same. `socket`, `merged` and `interface` call the kernel.
//! Nothing that the kernel writes is believed: an address outside of the UMEM or of a frame that is elsewhere is counted as a fault.
//!
//! # What it is not
//!
//! No packet formats, no threads, no clock. Own rings over libc: libxdp would come with a loader and a dispatcher of its own, and a C
//! library more on every host; `xsk-rs` needs it.

mod error;
mod frames;
pub mod interface;
mod memory;
pub mod merged;
pub mod pass;
mod pool;
mod program;
mod ring;
mod socket;

pub use error::{Error, Result};
pub use frames::{Fault, Frames, Place};
pub use memory::FRAME_LENGTH;
pub use program::{COUNTERS, Copies, Mode, Program, Settings, Spread, Steering};
pub use socket::{Arrival, HEADROOM, LINK_LENGTH, OfQueue, Options, Part, Socket, Statistics, Transmitter};
