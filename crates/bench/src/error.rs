//! What can go wrong in a measurement, in words for the person who started it.

use std::io;

use segue_host::HostError;

/// A failed measurement. Nothing of it stays behind: the namespaces of a run are removed with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program such as `ip` or `ethtool` failed, or a namespace could not be made or entered.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A program's answer could not be understood.
    #[error("`{command}`: {message}")]
    Answer {
        /// The program.
        command: String,
        /// What is odd about it.
        message: String,
    },
    /// A file of the kernel could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The system's reason.
        source: nix::Error,
    },
    /// A program or map of the harness could not be loaded or used.
    #[error("eBPF, {what}: {source}")]
    Bpf {
        /// What was attempted.
        what: String,
        /// libbpf's reason.
        source: libbpf_rs::Error,
    },
    /// Segue's data plane could not be loaded or configured.
    #[error("Segue's data plane: {0}")]
    Dataplane(String),
    /// The work that was to be measured was not done, so there is no figure.
    #[error("{what}: the measured work was not done: {reason}")]
    NotDone {
        /// Scenario and engine.
        what: String,
        /// What was found instead.
        reason: String,
    },
    /// The plot could not be drawn.
    #[error("plot {path}: {message}")]
    Plot {
        /// The SVG file.
        path: String,
        /// The reason.
        message: String,
    },
    /// A size, number of rounds or the like that cannot be measured.
    #[error("{0}")]
    Usage(String),
    /// The user ended the run.
    #[error("interrupted; everything that the run had set up is removed")]
    Interrupted,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Bpf { what: what.into(), source }
    }

    pub(crate) fn file(path: &str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
