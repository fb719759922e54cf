//! Why a program has no image.

use thiserror::Error;

use crate::program::ProgramError;

/// Why a program has no image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// It is not valid.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Tests of one rule that are too many ranges in all.
    #[error("{}chain {chain}: the rule's tests are more than {max} comparisons; divide it into several rules", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Checks {
        /// The chain.
        chain: String,
        /// The rule's line.
        line: Option<u32>,
        /// The most there may be.
        max: usize,
    },
    /// The image would be larger than line numbers reach.
    #[error(
        "the rules need {lines} lines of 64 octets; at most {max} can be addressed: use fewer or less overlapping rules"
    )]
    Size {
        /// Lines.
        lines: usize,
        /// The most there may be.
        max: usize,
    },
}
