//! How commands print.

/// How lists are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}
