//! A word of a rule or set file.

use std::borrow::Cow;

use super::position::Position;

/// A word and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub text: Cow<'a, str>,
    pub position: Position,
    /// It had quotes: `"!"` is no negation.
    pub quoted: bool,
}

impl Word<'_> {
    /// Whether it is this word, without quotes.
    pub fn is(&self, text: &str) -> bool {
        !self.quoted && self.text == text
    }

    /// Whether it reads as an option, such as `-s` or `--dport`.
    pub fn is_option(&self) -> bool {
        !self.quoted
            && self.text.len() > 1
            && self.text.starts_with('-')
            && !self.text[1..].starts_with(char::is_numeric)
    }

    /// A part of the word's text, for errors about it.
    pub fn part<'b>(&'b self, part: &'b str) -> Word<'b> {
        // Behind a quote or a backslash the text is no longer the line's.
        let before = (part.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize).filter(|_| !self.quoted);
        let skipped = before.and_then(|octets| self.text.get(..octets)).map_or(0, |before| before.chars().count());
        let column = self.position.column.saturating_add(u32::try_from(skipped).unwrap_or(0));
        Word { text: Cow::Borrowed(part), position: Position { line: self.position.line, column }, quoted: self.quoted }
    }
}
