//! What can go wrong: each error says what, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a service does not run, or is not found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What an operator wrote is wrong; all of it, a line each.
    #[error("{0}")]
    Configuration(#[from] segue_model::error::Errors),
    /// A file.
    #[error("cannot {what} {path}: {cause}.\n  do: {remedy}")]
    File {
        /// What was tried.
        what: &'static str,
        /// On which.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The interface.
    #[error(transparent)]
    Interface(#[from] segue_xsk::Error),
    /// The device by which packets go to the kernel.
    #[error(transparent)]
    Host(#[from] segue_host::HostError),
    /// A worker could not be made.
    #[error("the service {service} cannot start: {cause}")]
    Build {
        /// The service.
        service: String,
        /// Why.
        cause: segue_service::BuildError,
    },
    /// A worker has ended by itself.
    #[error("worker {index} of {service} has ended: {why}.\n  do: start it again; report it if that does not help")]
    Worker {
        /// The service.
        service: String,
        /// Which.
        index: usize,
        /// Why.
        why: String,
    },
    /// No service of this name runs.
    #[error("no service {name:?} runs here.\n  do: see with `segue service list`")]
    NotRunning {
        /// The name.
        name: String,
    },
    /// A service refused what it was asked.
    #[error("{name}: {said}")]
    Refused {
        /// The service.
        name: String,
        /// What it said.
        said: String,
    },
    /// The call itself is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    pub(crate) fn file(
        what: &'static str,
        path: &Path,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |cause| Self::File { what, path, cause, remedy }
    }
}
