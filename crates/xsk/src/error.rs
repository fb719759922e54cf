//! What can go wrong: each error says what, where, and what to do.

use std::io;

use nix::errno::Errno;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no packet I/O.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a call.
    #[error("{what}: {cause}.\n  do: {remedy}")]
    Call {
        /// What was tried, on what.
        what: String,
        /// Why.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// There is no such interface.
    #[error("there is no interface {0:?} in this network namespace.\n  do: see with `ip link`")]
    NoInterface(String),
    /// An option is wrong.
    #[error("{what}.\n  do: {remedy}")]
    Option {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// libbpf refused the program.
    #[error("{what}: {cause}.\n  do: {remedy}")]
    Bpf {
        /// What was tried.
        what: String,
        /// Why.
        cause: libbpf_rs::Error,
        /// What to do.
        remedy: &'static str,
    },
}

impl Error {
    pub(crate) fn last(what: impl Into<String>, remedy: &'static str) -> Self {
        Self::Call { what: what.into(), cause: io::Error::last_os_error(), remedy }
    }

    /// Whether somebody else has what was asked for.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Call { cause, .. } if cause.raw_os_error() == Some(Errno::EBUSY as i32))
    }

    pub(crate) fn bpf(what: impl Into<String>, remedy: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        move |cause| Self::Bpf { what, cause, remedy }
    }
}
