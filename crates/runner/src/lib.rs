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
//! One for each worker, pinned if that is wanted, with a socket ([`segue_xsk::Socket`]) at each queue of the interface and an engine of its own. XDP
//! gives a flow to the same worker whatever queue it comes by, so no packet goes from one to another; what a worker sends leaves by one queue. The main thread has signals and the control socket
//! ([`control`]), and talks to workers by channels.
//!
//! With `--restart` all this is a process of its own, whose parent starts it again when it dies, and takes the interface down meanwhile: the node's
//! agent sees that, and the SID follows its `on_failure`.
//!
//! A new program takes over from one that runs with `--take-over`: sockets and frames go over, packets wait in the rings meanwhile (`handover`).
//!
//! # What it may do
//!
//! Once it runs, it has given up what it needed to begin: capabilities, and system calls (`confine`). A control group holds its memory and processor
//! time if limits are set (`cgroup`).
//!
//! # What it is not
//!
//! No data plane: the node decides who gets packets.
#![forbid(unsafe_code)]

mod cgroup;
pub mod cli;
mod confine;
pub mod control;
mod error;
mod handover;
mod merged;
mod new;
mod ports;
mod run;
mod running;
mod status;
mod supervise;
mod worker;

use std::ffi::OsString;

pub use cgroup::Limits;
pub use confine::Confinement;
pub use error::{Error, Result};
pub use run::{run, take_over};
pub use running::{Kinds, Running};
pub use status::{Status, WorkerStatus};

/// The whole of a program that runs these services: `segue-service` does, and so does that of a service of one's own.
pub fn program(kinds: Kinds) -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    std::process::ExitCode::from(interpreted(kinds, &arguments, &[]))
}

/// The same where the process's own file is not the program, but an interpreter of it. `arguments`: those of the program, without its
/// name. `words`: what starts it again, to which arguments are added (for `--restart`); the process's own file if there are none.
///
/// Returns the exit status. It does not end the process: what the interpreter has to do at its end is still to be done.
pub fn interpreted(kinds: Kinds, arguments: &[OsString], words: &[OsString]) -> u8 {
    let called = [OsString::from("segue-service")].into_iter().chain(arguments.iter().cloned());
    let command = match <cli::Command as clap::Parser>::try_parse_from(called) {
        Ok(command) => command,
        Err(error) => {
            // Help and version are errors for it, too. Who does not read them has gone.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    match cli::main(&command, kinds, words) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("segue-service: {error}");
            if matches!(error, Error::Usage(_)) { 2 } else { 1 }
        }
    }
}
