//! Lines into words, as `iptables-restore` splits them: blanks separate, double quotes keep together, a backslash inside quotes
//! takes the next character as it is.

use std::borrow::Cow;

use super::error::{ErrorKind, RuleError};
use super::position::Position;
pub(super) use super::word::Word;

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
