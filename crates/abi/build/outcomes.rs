//! Reads `bpf/include/abi/outcomes.def`, refuses what does not fit, and writes the Rust enum. Used by build.rs; its own
//! tests run as part of `tests/outcomes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Numbers lie below this (`SEGUE_OUTCOMES_MAX`): one row of counters per port has this many columns.
const NUMBERS: u16 = 128;

/// One `OUTCOME(number, name, kind, text)` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub number: u8,
    pub name: String,
    /// FORWARDED, PASSED or DROPPED.
    pub kind: String,
    pub text: String,
}

/// Every definition, by ascending number. The error names the line and says what must change.
pub fn parse(text: &str) -> Result<Vec<Definition>, String> {
    let mut found = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut comment = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let at = |what: &str| format!("line {}: {what}: {line}", index + 1);
        if comment || line.starts_with("/*") {
            comment = !line.ends_with("*/");
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let definition = parse_line(line).map_err(|what| at(&what))?;
        if !names.insert(definition.name.clone()) {
            return Err(at("this name was given before: choose another"));
        }
        if found.insert(definition.number, definition).is_some() {
            return Err(at("this number was given before: choose a free one, never a retired one"));
        }
    }
    if found.is_empty() {
        return Err("no OUTCOME line at all".to_owned());
    }
    Ok(found.into_values().collect())
}

fn parse_line(line: &str) -> Result<Definition, String> {
    let inner = line
        .strip_prefix("OUTCOME(")
        .and_then(|rest| rest.strip_suffix(')'))
        .ok_or("expected OUTCOME(number, name, kind, \"text\") on one line")?;
    let fields: Vec<&str> = inner.splitn(4, ',').map(str::trim).collect();
    let &[number, name, kind, text] = fields.as_slice() else {
        return Err("expected four fields".to_owned());
    };
    let number: u16 = number.parse().map_err(|_| "the number is not decimal")?;
    if number >= NUMBERS {
        return Err(format!("the number must be below {NUMBERS}"));
    }
    let snake = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with('_')
        && !name.contains("__");
    if !snake {
        return Err("the name must be snake_case".to_owned());
    }
    let prefix_fits = match kind {
        "FORWARDED" => !name.starts_with("drop_") && !name.starts_with("passed_"),
        "PASSED" => name.starts_with("passed_"),
        "DROPPED" => name.starts_with("drop_"),
        _ => return Err("the kind must be FORWARDED, PASSED or DROPPED".to_owned()),
    };
    if !prefix_fits {
        return Err("PASSED names start with passed_, DROPPED names with drop_, others with neither".to_owned());
    }
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or("the text must be in quotes")?;
    if text.is_empty() || text.contains(['"', '\\', '|']) {
        return Err("the text must not be empty, nor hold quotes, backslashes or bars".to_owned());
    }
    Ok(Definition { number: number as u8, name: name.to_owned(), kind: kind.to_owned(), text: text.to_owned() })
}

/// `drop_no_route` is `DropNoRoute`.
fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}

/// The Rust enum and its tables.
pub fn generate(definitions: &[Definition]) -> String {
    let mut out = String::from(
        "/// What became of a packet: the one closed list of `bpf/include/abi/outcomes.def`.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u8)]\npub enum Outcome {\n",
    );
    let mut all = String::new();
    let mut table = String::new();
    for Definition { number, name, kind, text } in definitions {
        let variant = camel(name);
        let kind = camel(&kind.to_ascii_lowercase());
        // Writing to a String cannot fail.
        let _ = writeln!(out, "    /// {}.\n    {variant} = {number},", capital(text));
        let _ = writeln!(all, "        Outcome::{variant},");
        let _ = writeln!(table, "            Outcome::{variant} => ({name:?}, OutcomeKind::{kind}, {text:?}),");
    }
    let _ = write!(
        out,
        "}}\n\nimpl Outcome {{\n    /// Every outcome, by ascending number.\n    pub const ALL: [Outcome; {count}] = [\n{all}    ];\n\n    \
         const fn row(self) -> (&'static str, OutcomeKind, &'static str) {{\n        match self {{\n{table}        }}\n    }}\n}}\n",
        count = definitions.len()
    );
    out
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
