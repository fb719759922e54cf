//! What can go wrong in a lab: each error says what, where, and what to do.

use std::path::{Path, PathBuf};

use segue_function::FunctionError;
use segue_host::HostError;

/// Result of the lab's functions.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The topology is wrong.
    #[error("{0}")]
    Topology(String),
    /// A label that cannot be put in place.
    #[error("{0}.\n  do: `segue lab labels` with the lab's name lists all of them")]
    Label(segue_wiring::LabelError),
    /// A rule file of a firewall is wrong.
    #[error("firewall {function}: {what}.\n  do: fix the rule file; `segue firewall check FILE` looks at one")]
    Rules {
        /// The function.
        function: String,
        /// What is wrong, with file, line and column.
        what: String,
    },
    /// A function does not come to life.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// Network namespaces need root.
    #[error("`segue lab {verb}` makes and enters network namespaces, which needs root.\n  do: run it with sudo")]
    NotRoot {
        /// The subcommand.
        verb: &'static str,
    },
    /// A name would not work as part of a namespace's or a file's name.
    #[error(
        "{kind} name `{name}` cannot be used: {reason}.\n  do: use letters, digits, `-`, `_` and `.`, starting with a letter or digit"
    )]
    Name {
        /// `lab` or `node`.
        kind: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The lab is there already.
    #[error(
        "lab `{lab}` is up already, or parts of an earlier run are left.\n  do: `segue lab down {lab}` first, then bring it up again"
    )]
    AlreadyUp {
        /// The lab.
        lab: String,
    },
    /// Another process brings the lab up or takes it down right now.
    #[error(
        "lab `{lab}` is being brought up or taken down by another process (it holds {lock}).\n  do: wait for it, or end it (`fuser {lock}` shows its number), then try again"
    )]
    Busy {
        /// The lab.
        lab: String,
        /// Lock file.
        lock: PathBuf,
    },
    /// No such lab.
    #[error("there is no lab `{lab}`.\n  do: `segue lab list` shows what is up; `segue lab up FILE` brings one up")]
    NoSuchLab {
        /// The lab.
        lab: String,
    },
    /// No such node in a lab.
    #[error("lab `{lab}` has no node `{node}`.\n  do: choose one of: {known}")]
    NoSuchNode {
        /// The lab.
        lab: String,
        /// What was asked for.
        node: String,
        /// The names that exist.
        known: String,
    },
    /// No such port on a node.
    #[error("{node} of lab `{lab}` has no port `{port}`.\n  do: choose one of: {known}")]
    NoSuchPort {
        /// The lab.
        lab: String,
        /// The node.
        node: String,
        /// What was asked for.
        port: String,
        /// The names that exist.
        known: String,
    },
    /// The host did not do what it was asked: a program, file, directory or namespace.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An agent did not come up or did not answer as expected.
    #[error("agent of {node}: {what}.\n  do: {remedy}")]
    Agent {
        /// The node.
        node: String,
        /// What happened.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// What carries impaired links did not come up.
    #[error(
        "the relay of impaired links: {what}; it said: {said}.\n  do: remove `impaired` from the topology's links to go on without, and report this with what it said"
    )]
    Relay {
        /// What happened.
        what: String,
        /// Its log.
        said: String,
    },
    /// A function's process is not there, or does not do what it is asked.
    #[error("function {function}: {what}.\n  do: {remedy}")]
    Process {
        /// The function.
        function: String,
        /// What happened.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// A traffic source did not come up.
    #[error(
        "traffic {source_name}: {what}; it said: {said}.\n  do: fix what it says in the topology, then bring the lab up again"
    )]
    Traffic {
        /// Its name.
        source_name: String,
        /// What happened.
        what: String,
        /// Its log.
        said: String,
    },
    /// What writes a lab's captures did not come up.
    #[error(
        "the captures: {what}; it said: {said}.\n  do: fix what it says in the topology, then bring the lab up again"
    )]
    Captures {
        /// What happened.
        what: String,
        /// Its log.
        said: String,
    },
    /// A topology in another format, or one that is to be made, cannot be.
    #[error("{place}: {what}.\n  do: {remedy}")]
    Exchange {
        /// The file, with line; or the command.
        place: String,
        /// What is wrong.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted.\n  do: nothing is left of it; start it again when you like")]
    Interrupted,
    /// Something is still there after `down`.
    #[error(
        "lab `{lab}`: still there after everything was removed: {left}.\n  do: `segue lab down {lab}` again; if it stays, look at these by hand"
    )]
    Leftover {
        /// The lab.
        lab: String,
        /// What.
        left: String,
    },
    /// A capture file could not be understood.
    #[error("capture {}: {reason}.\n  do: report it with the file attached", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

// By hand: with a source, programs that print the chain of causes would say it twice.
impl From<segue_wiring::LabelError> for LabError {
    fn from(error: segue_wiring::LabelError) -> Self {
        Self::Label(error)
    }
}

impl LabError {
    /// An I/O error together with what was tried.
    pub(crate) fn io(
        what: &'static str,
        path: impl AsRef<Path>,
        remedy: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let host = HostError::io(what, path, remedy);
        move |cause| Self::Host(host(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told_once() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = LabError::io("read", "/x/y", "give another file")(cause);
        let text = error.to_string();
        assert!(
            text.contains("read /x/y") && text.contains("not found") && text.contains("do: give another"),
            "{text}"
        );
        // Programs print the whole chain of causes.
        assert!(std::error::Error::source(&error).is_none());
    }
}
