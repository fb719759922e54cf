//! Packets of an interface in user space: AF_XDP sockets, and copies through a BPF ring buffer.
//!
//! # Promise
//!
//! A [`Socket`] is one queue of an interface: frames with packets come out of it, in order, and packets go into it. A frame is in one place at a
//! time ([`Frames`]), and none is lost, whatever the kernel or the caller does. [`Program`] is what XDP does on the interface:
//! which packets wait for a socket, or are copied.
//!
//! # Data structures
//!
//! | | |
//! |---|---|
//! | [`Frames`] | who has each frame of a UMEM: nobody, the fill ring, a batch, the transmit ring. Pure |
//! | `ring::Producer`, `ring::Consumer` | one end of a ring that is shared with the kernel (or, in tests, with a model of it) |
//! | [`Socket`] | a UMEM of its own with its four rings, for one queue |
//! | [`Program`] | the eBPF object of `bpf/service.bpf.c`, attached |
//!
//! # Where `unsafe` is
//!
//! `ring` reads and writes memory that the kernel shares: indices with acquire and release, entries only between them. `memory` maps it and
//! gives out frames: those of one batch are different frames, because [`Frames`] lets none be in a batch twice. `socket` calls the kernel.
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
mod program;
mod ring;
mod socket;

pub use error::{Error, Result};
pub use frames::{Fault, Frames, Place};
pub use program::{COUNTERS, Copies, Mode, Program, Settings};
pub use socket::{Arrival, FRAME_LENGTH, HEADROOM, LINK_LENGTH, Options, Socket, Statistics, Transmitter};
