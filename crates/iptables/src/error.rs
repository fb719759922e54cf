//! Errors in a rule or set file: where, which word, what is wrong with it and what to do.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

pub use super::position::{Origin, Position};
use super::word::Word;

/// What sort of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Not the form of such a file: a missing COMMIT, a quote without end, a word where none belongs.
    Syntax,
    /// An option that nobody knows, or not here.
    UnknownOption,
    /// A value out of range or not of its option's form.
    Value,
    /// Something else is needed too: a value, a protocol, an option.
    Missing,
    /// Options that exclude each other, or one given twice.
    Conflict,
    /// iptables would take it, Segue cannot honour it.
    NotHonoured,
    /// A chain that is not there, twice there, leads to itself or has a bad name.
    Chain,
    /// A table whose rules cannot be honoured, or that is not known.
    Table,
    /// A set that is not there or does not fit.
    Set,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[error("{}:{}: {}{reason}; {remedy}", position.line, position.column, quoted(word))]
pub struct RuleError {
    /// Where.
    #[serde(flatten)]
    pub position: Position,
    /// The word it is about; may be empty.
    pub word: String,
    /// What sort of thing is wrong.
    pub kind: ErrorKind,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub remedy: String,
}

fn quoted(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!("`{word}`: ") }
}

impl RuleError {
    /// An error about a word.
    pub(super) fn at(word: &Word<'_>, kind: ErrorKind, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            position: word.position,
            word: word.text.to_string(),
            kind,
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// A bad value.
    pub(super) fn value(word: &Word<'_>, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::at(word, ErrorKind::Value, reason, remedy)
    }

    /// An error about something that has a place but is no word of the file.
    pub(super) fn about(
        position: Position,
        word: impl Into<String>,
        kind: ErrorKind,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { position, word: word.into(), kind, reason: reason.into(), remedy: remedy.into() }
    }
}

/// All that is wrong with a file, in the order of its lines. Nothing of the file is used.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
pub struct RuleErrors {
    /// The file, as the caller named it.
    pub file: String,
    /// At least one.
    pub errors: Vec<RuleError>,
}

impl fmt::Display for RuleErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            write!(formatter, "{}:{error}", self.file)?;
        }
        Ok(())
    }
}

impl RuleErrors {
    /// Ok if there is nothing wrong, else all errors in the order of lines.
    pub(super) fn check(file: &str, mut errors: Vec<RuleError>) -> Result<(), Self> {
        if errors.is_empty() {
            return Ok(());
        }
        errors.sort_by_key(|error| error.position);
        Err(Self { file: file.to_owned(), errors })
    }
}
