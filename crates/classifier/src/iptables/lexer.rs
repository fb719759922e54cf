//! Lines into words, as `iptables-restore` splits them: blanks separate, double quotes keep together, a backslash inside quotes
//! takes the next character as it is.

use std::borrow::Cow;

use super::error::{ErrorKind, Position, RuleError};

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

/// Splits one line of a rule file. `number`: of the line, from 1.
pub(super) fn words(line: &str, number: u32) -> Result<Vec<Word<'_>>, RuleError> {
    split(line, number, true)
}

/// Splits a line; `escapes`: a backslash inside quotes is no character of its own. ipset has no such thing.
pub(super) fn split(line: &str, number: u32, escapes: bool) -> Result<Vec<Word<'_>>, RuleError> {
    let mut words = Vec::with_capacity(16);
    let mut column = 0;
    let mut characters = line.char_indices().peekable();
    while let Some((start, first)) = characters.next() {
        column += 1;
        if is_blank(first) {
            continue;
        }
        let position = Position { line: number, column };
        let mut end = start + first.len_utf8();
        let mut owned = String::new();
        let mut open = first == '"';
        let mut quoted = open;
        while open || characters.peek().is_some_and(|(_, c)| !is_blank(*c)) {
            let Some((at, mut c)) = characters.next() else {
                let reason = "this quote has no end";
                return Err(RuleError::about(position, &line[start..], ErrorKind::Syntax, reason, "close it with \""));
            };
            column += 1;
            if c == '"' {
                if !quoted {
                    owned.push_str(&line[start..at]);
                    quoted = true;
                }
                open = !open;
                continue;
            }
            if escapes && open && c == '\\' {
                // A backslash at the end of the line is found by the next turn.
                let Some((_, escaped)) = characters.next() else { continue };
                column += 1;
                c = escaped;
            }
            if quoted {
                owned.push(c);
            }
            end = at + c.len_utf8();
        }
        let text = if quoted { Cow::Owned(owned) } else { Cow::Borrowed(&line[start..end]) };
        words.push(Word { text, position, quoted });
    }
    Ok(words)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

/// A text as iptables-save writes it: quoted unless it consists of letters, digits, `_` and `-`.
pub(super) fn quote(text: &str, out: &mut String) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(plain) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '\'') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// A name as iptables-save writes it; in quotes only if it could not be read back otherwise.
pub(super) fn quote_blank(text: &str, out: &mut String) {
    if text.is_empty() || text.contains(|c: char| is_blank(c) || c == '"') {
        quote(text, out);
    } else {
        out.push_str(text);
    }
}
