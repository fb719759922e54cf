//! The outcomes of packets, generated from `bpf/include/abi/outcomes.def`.

use std::fmt;

include!(concat!(env!("OUT_DIR"), "/outcome.rs"));

/// What an outcome means for the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutcomeKind {
    /// Left by a port.
    Forwarded,
    /// Given to the kernel.
    Passed,
    /// Dropped.
    Dropped,
}

impl OutcomeKind {
    /// `forwarded`, `passed` or `dropped`, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Passed => "passed",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Outcome {
    /// The outcome with this number; none if the number is not in the list.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| u16::from(outcome.number()) == number)
    }

    /// The outcome with this name, such as `drop_no_route`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Column in [`crate::Outcomes`]; stable for ever.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Name for metrics and displays: snake_case, such as `drop_no_route`.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Forwarded, passed or dropped.
    pub const fn kind(self) -> OutcomeKind {
        self.row().1
    }

    /// One line for people: what happened, and what Segue sent.
    pub const fn text(self) -> &'static str {
        self.row().2
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The table of docs/using/outcomes.md. A test compares the file with it.
pub fn markdown_table() -> String {
    let rows = Outcome::ALL.into_iter().map(|outcome| {
        format!("| {} | `{}` | {} | {} |\n", outcome.number(), outcome.name(), outcome.kind(), outcome.text())
    });
    ["| number | name | kind | meaning |\n|---|---|---|---|\n".to_owned()].into_iter().chain(rows).collect()
}
