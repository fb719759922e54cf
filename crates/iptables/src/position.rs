//! Places in rule and set files.

use serde::Serialize;

/// A place in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Where a part of the syntax tree was written. It is no part of what was said: all origins are equal.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Origin(pub Position);

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}
