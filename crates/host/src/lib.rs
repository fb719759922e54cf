//! What Segue asks of a Linux host, each thing once: network namespaces, programs, links, TAP devices, netlink, sysctls, the BPF
//! file system, interrupts. Agent, lab, bench, data plane, runtimes of functions and testkit stand on it.
//!
//! # Promise
//!
//! - What is made is whole or gone: a namespace that could not be mounted leaves no name, a program that could not be started no
//!   thread, a namespace of [`Temporary`] goes with its value and with all that runs in it.
//! - No thread is ever left in a namespace that it does not know of: [`Namespace::inside`] works in a thread of its own, which ends;
//!   [`Entered`] takes its thread back or ends the process; [`Namespace::enter_for_good`] refuses to split a process in two.
//! - Only the network namespace changes. Mounts stay as they are (unlike with `ip netns exec`), so that the BPF file system and
//!   `/run` stay in sight.
//! - Every error is a [`HostError`]: what, where, why, what to do. Nothing panics.
//!
//! # Data structures
//!
//! A [`Namespace`] is an open file, so that the namespace that was found is the one that is entered, whatever becomes of its name. Names are
//! those of iproute2: files below `/run/netns`. Whose a namespace is, its owner says: by a prefix with the number of the process that
//! made it ([`namespace::orphans`]), or by the alias of its `lo` (the lab, the agent); this crate keeps no list. An [`Identity`] (device
//! and inode) tells whether two names, or a name and a process, mean the same namespace; a process belongs to the namespace that its first
//! thread is in.
//!
//! # What it is not
//!
//! It knows nothing of Segment Routing, topologies, the agent's desired state and of who owns what. It loads no eBPF. It is
//! blocking: an asynchronous caller gives it a thread, and waits for its signals by its own means (the agent does, with tokio).
#![deny(unsafe_code)] // tap.rs has it, and says why it is sound

pub mod bpffs;
pub mod command;
pub mod device;
mod error;
pub mod generic;
mod identity;
pub mod idle;
pub mod interrupt;
pub mod link;
pub mod namespace;
pub mod netlink;
pub mod network;
pub mod polling;
pub mod process;
pub mod ready;
pub mod settle;
pub mod sriov;
pub mod sysctl;
pub mod tap;
pub mod tun;

pub use command::Run;
pub use error::{HostError, Result};
pub use interrupt::Interrupt;
pub use namespace::{Entered, Identity, Namespace, Temporary};
pub use network::Network;
