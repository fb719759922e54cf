//! What may be wrong with a firewall's rules.

use std::{io, path::PathBuf};

use segue_iptables::{Family, RuleErrors};
use thiserror::Error;

/// What is wrong, where, and what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// A rule file cannot be read.
    #[error("firewall {firewall}: {}: {source}; give a file that can be read", path.display())]
    File {
        /// The firewall that names it.
        firewall: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The document has the path of a rule file and not its text.
    #[error("{file}: the agent got the path but not the file; apply the document with `segue apply`")]
    NoText {
        /// The file.
        file: String,
    },
    /// Two files of one firewall have rules for the same family.
    #[error("{file} and {other} are both rules for {family}; keep one")]
    TwoFiles {
        /// The later one.
        file: String,
        /// The earlier one.
        other: String,
        /// The family.
        family: Family,
    },
    /// Two files of one firewall have a set of the same name.
    #[error("{file}: the set {set} is in another file too; keep one")]
    TwoSets {
        /// The later file.
        file: String,
        /// The set.
        set: String,
    },
    /// Packets have nowhere to enter.
    #[error("{file}: the table filter has no chain {hook}; add it, or change `hook`")]
    NoHook {
        /// The file.
        file: String,
        /// The built-in chain that the firewall names.
        hook: String,
    },
    /// All that is wrong with one file.
    #[error(transparent)]
    Rules(#[from] RuleErrors),
}
