//! What can go wrong with a function: each error says what, where, and what to do.

use std::borrow::Cow;

use segue_host::HostError;

/// Result of a runtime.
pub type Result<T, E = FunctionError> = std::result::Result<T, E>;

/// Why a function does not live.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The host did not do what it was asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The function's program does not do its work.
    #[error(
        "function {function}: {what}.\n  do: fix the program: it must open the devices that its environment names, or answer on its control socket"
    )]
    Program {
        /// The function.
        function: String,
        /// What happened, with what it said.
        what: String,
    },
    /// The namespace is somebody else's.
    #[error(
        "function {function}: the network namespace {namespace} is marked as {mark:?}, not as this function's.\n  do: remove or rename what it belongs to (`ip -n {namespace} link show lo`)"
    )]
    NotOurs {
        /// The function.
        function: String,
        /// The namespace.
        namespace: String,
        /// Whose it is.
        mark: String,
    },
}

impl FunctionError {
    /// The same with another thing to do about it, where the host refused something: what the caller knows better.
    #[must_use]
    pub fn remedied(self, better: impl Into<Cow<'static, str>>) -> Self {
        match self {
            Self::Host(error) => Self::Host(error.remedied(better)),
            other => other,
        }
    }
}
