//! Errors in what an operator wrote: what is wrong, where, and what to do.

use std::fmt;

use serde::{Serialize, Serializer};

/// One step of the way from a document's root to a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Into a mapping.
    Key(String),
    /// Into a list, counted from 0.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<&String> for Step {
    fn from(key: &String) -> Self {
        Self::Key(key.clone())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Where a value is in a document, such as `sids[2].proxy.to_function`. Empty: the document itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct KeyPath(Vec<Step>);

impl KeyPath {
    /// The document itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// One step further.
    #[must_use]
    pub fn at(&self, step: impl Into<Step>) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.into());
        Self(steps)
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(formatter, "[{index}]")?,
                Step::Key(key) => {
                    if position > 0 {
                        formatter.write_str(".")?;
                    }
                    // A key such as net.ipv4.ip_forward would read like three.
                    if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
                    {
                        formatter.write_str(key)?;
                    } else {
                        write!(formatter, "{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Serialize for KeyPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line, counted from 1.
    pub line: u64,
    /// Column in characters, counted from 1.
    pub column: u64,
}

/// One thing that is wrong in what an operator wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelError {
    /// The file, as the caller named it; none if the document did not come from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where in the file.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Which value.
    pub key: KeyPath,
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for ModelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(formatter, "{file}:")?;
            match self.position {
                Some(Position { line, column }) => write!(formatter, "{line}:{column}: ")?,
                None => formatter.write_str(" ")?,
            }
        }
        if !self.key.steps().is_empty() {
            write!(formatter, "{}: ", self.key)?;
        }
        write!(formatter, "{}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for ModelError {}

/// All that is wrong in a document; never empty. Displays one per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Errors(Vec<ModelError>);

impl Errors {
    /// The errors, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, ModelError> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, ModelError> {
        self.0.iter_mut()
    }

    pub(crate) fn sort_by_position(&mut self) {
        self.0.sort_by_key(|error| error.position);
    }
}

impl From<ModelError> for Errors {
    fn from(error: ModelError) -> Self {
        Self(vec![error])
    }
}

impl FromIterator<ModelError> for Errors {
    fn from_iter<I: IntoIterator<Item = ModelError>>(errors: I) -> Self {
        Self(errors.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a ModelError;
    type IntoIter = std::slice::Iter<'a, ModelError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Errors {
    type Item = ModelError;
    type IntoIter = std::vec::IntoIter<ModelError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            if position > 0 {
                formatter.write_str("\n")?;
            }
            error.fmt(formatter)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Collects errors, so that an operator sees all of them at once.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<ModelError>,
    /// In front of every key.
    below: KeyPath,
}

impl Report {
    /// Of a part of a document: keys count from `key`.
    pub fn below(key: &KeyPath) -> Self {
        Self { errors: Vec::new(), below: key.clone() }
    }

    /// Remembers an error.
    pub fn error(&mut self, key: &KeyPath, message: impl Into<String>, remedy: impl Into<String>) {
        let (message, remedy) = (message.into(), remedy.into());
        let key = key.steps().iter().fold(self.below.clone(), |key, step| key.at(step.clone()));
        self.errors.push(ModelError { file: None, position: None, key, message, remedy });
    }

    /// What came of another check; its errors are remembered.
    pub fn take<T>(&mut self, result: Result<T, Errors>) -> Option<T> {
        result.map_err(|Errors(errors)| self.errors.extend(errors)).ok()
    }

    /// Fails if anything was wrong so far.
    ///
    /// # Errors
    /// All that were remembered, which are forgotten.
    pub fn check(&mut self) -> Result<(), Errors> {
        let errors = std::mem::take(&mut self.errors);
        Self { errors, below: KeyPath::root() }.finish()
    }

    /// Fails if anything was wrong; each error once.
    ///
    /// # Errors
    /// All that were remembered.
    pub fn finish(mut self) -> Result<(), Errors> {
        // Both directions of a chain often have the same error.
        let mut seen = std::collections::HashSet::new();
        self.errors.retain(|error| seen.insert((error.key.clone(), error.message.clone())));
        if self.errors.is_empty() { Ok(()) } else { Err(Errors(self.errors)) }
    }
}
