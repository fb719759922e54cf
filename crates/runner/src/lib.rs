//! `segue-service`: runs a packet service on an interface, and lists those that run.
//!
//! # Promise
//!
//! [`run`] reads a [`Running`], makes the service's workers, gives each a queue of the interface, and answers on a socket until it is told to
//! stop. It stops after what had come in was worked off; another configuration takes over between two batches, and no packet is lost
//! by either.
//!
//! # Threads
//!
//! One for each worker, pinned if that is wanted, with a socket ([`segue_xsk::Socket`]) and an engine of its own: no packet goes from one to
//! another, so a flow stays in order as long as the kernel puts it into one queue. The main thread has signals and the control socket
//! ([`control`]), and talks to workers by channels.
//!
//! With `--restart` all this is a process of its own, whose parent starts it again when it dies, and takes the interface down meanwhile: the node's
//! agent sees that, and the SID follows its `on_failure`.
//!
//! # What it is not
//!
//! No data plane: the node decides who gets packets.
#![forbid(unsafe_code)]

pub mod cli;
pub mod control;
mod error;
mod ports;
mod run;
mod running;
mod status;
mod supervise;
mod worker;

pub use error::{Error, Result};
pub use run::run;
pub use running::Running;
pub use status::{Status, WorkerStatus};
