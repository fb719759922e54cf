//! What can go wrong on a host: each error says what, where, and what to do.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::netlink::NetlinkError;

/// Result of this crate's functions.
pub type Result<T, E = HostError> = std::result::Result<T, E>;

/// Why the host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A program is missing or could not be started.
    #[error("cannot run `{program}`: {cause}.\n  do: {remedy}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        cause: io::Error,
        /// What helps.
        remedy: Cow<'static, str>,
    },
    /// A program failed.
    #[error("{place}: `{command}` failed ({status}): {output}\n  do: {remedy}")]
    Command {
        /// Namespace or `host`.
        place: String,
        /// The command line.
        command: String,
        /// How it ended.
        status: Box<str>,
        /// What it said.
        output: String,
        /// What helps.
        remedy: Cow<'static, str>,
    },
    /// A file, directory or namespace could not be read, written or entered.
    #[error("cannot {what} {}: {cause}.\n  do: {remedy}", path.display())]
    Io {
        /// Such as `read`.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
        /// What helps.
        remedy: Cow<'static, str>,
    },
    /// The kernel refused a request over netlink.
    #[error("cannot {what}: {cause}.\n  do: {remedy}", remedy = remedy(cause))]
    Netlink {
        /// Such as `add interface x`.
        what: String,
        /// Why.
        cause: NetlinkError,
    },
    /// There is no network namespace of this name.
    #[error("network namespace {}: there is none.\n  do: `ip netns list` shows all", .0.display())]
    NoNamespace(PathBuf),
    /// There is a network namespace of this name.
    #[error("network namespace {}: there is one of this name already.\n  do: choose another name; `ip netns` shows what is in the way", .0.display())]
    NamespaceExists(PathBuf),
    /// Threads that run already would stay in the old namespace.
    #[error(
        "this process has {0} threads already, which would stay in the network namespace that they are in.\n  do: enter a network namespace first"
    )]
    Threads(usize),
}

impl HostError {
    /// An I/O error together with what was tried.
    pub fn io(
        what: &'static str,
        path: impl AsRef<Path>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> impl FnOnce(io::Error) -> Self {
        let (path, remedy) = (path.as_ref().to_path_buf(), remedy.into());
        move |cause| Self::Io { what, path, cause, remedy }
    }

    /// The same with another thing to do about it: what the caller knows better.
    #[must_use]
    pub fn remedied(mut self, better: impl Into<Cow<'static, str>>) -> Self {
        match &mut self {
            Self::Start { remedy, .. } | Self::Command { remedy, .. } | Self::Io { remedy, .. } => {
                *remedy = better.into()
            }
            Self::Netlink { .. } | Self::NoNamespace(_) | Self::NamespaceExists(_) | Self::Threads(_) => {}
        }
        self
    }

    /// The kernel's number of the error, where it was the kernel that refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Start { cause, .. } | Self::Io { cause, .. } => cause.raw_os_error(),
            Self::Netlink { cause, .. } => cause.errno(),
            _ => None,
        }
    }

    /// What was tried and on what, why it failed, and what to do: for those who show errors in their own way.
    #[must_use]
    pub fn parts(&self) -> (String, String, String) {
        let text = self.to_string();
        let (rest, remedy) = text.split_once("\n  do: ").unwrap_or((&text, ""));
        let rest = rest.trim_end_matches('.');
        let (what, cause) = match self {
            // Programs say things over several lines, with colons.
            Self::Command { place, command, status, output, .. } => {
                (format!("run `{command}` in {place}"), format!("{status}: {output}"))
            }
            Self::Netlink { what, cause } => (what.clone(), cause.to_string()),
            _ => {
                let (what, cause) = rest.rsplit_once(": ").unwrap_or((rest, ""));
                (what.strip_prefix("cannot ").unwrap_or(what).to_owned(), cause.to_owned())
            }
        };
        (what, cause, remedy.to_owned())
    }
}

fn remedy(error: &NetlinkError) -> &'static str {
    match error.errno() {
        Some(libc::EPERM | libc::EACCES) => "run it as root (CAP_NET_ADMIN) in this network namespace",
        Some(libc::EEXIST) => "see with `ip link`, `ip address`, `ip route` what is there already",
        Some(libc::EOPNOTSUPP) => "this kernel lacks the feature",
        Some(libc::ENODEV | libc::ENXIO) => "the interface vanished meanwhile: try again once it is back",
        _ => "see `ip link` and the kernel's log for what stands in the way, then try again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told_once() {
        let error = HostError::io("read", "/x/y", "give another file")(io::ErrorKind::NotFound.into());
        let text = error.to_string();
        assert!(
            text.contains("read /x/y") && text.contains("not found") && text.contains("do: give another"),
            "{text}"
        );
        // Programs print the whole chain of causes.
        assert!(std::error::Error::source(&error).is_none());
    }

    #[test]
    fn an_error_can_be_taken_apart() {
        let error = HostError::io("enter", "/run/netns/x", "run as root")(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(error.errno(), Some(libc::EPERM));
        let (what, cause, remedy) = error.remedied("be root").parts();
        assert_eq!((what.as_str(), remedy.as_str()), ("enter /run/netns/x", "be root"));
        assert!(cause.starts_with("Operation not permitted"), "{cause}");
        let (what, cause, _) = HostError::NoNamespace("/run/netns/x".into()).parts();
        assert_eq!((what.as_str(), cause.as_str()), ("network namespace /run/netns/x", "there is none"));
    }
}
