//! From YAML (or JSON, which is YAML) to checked values, with errors that name the line.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_saphyr::{DefaultMessageFormatter, Error as YamlError, MessageFormatter, Options};

use crate::error::{Errors, KeyPath, ModelError, Position};
use crate::guard::Refusal;
use crate::locate::Located;
use crate::near::distance;
use crate::node::NodeState;
use crate::topology::Topology;

/// Values, lists and maps of one document.
const NODES_MAX: usize = 8_000_000;

/// Reads and checks a node's desired state. `file` is only for the errors.
///
/// # Errors
/// All that is wrong, in the order of lines: syntax and types up to the first error, meaning completely.
pub fn load_node_state(source: &str, file: &str) -> Result<NodeState, Errors> {
    let state: NodeState = parse(source, file)?;
    state.validate().map_err(|errors| locate(errors, source, file))?;
    Ok(state)
}

/// Reads and checks a topology. `file` is only for the errors.
///
/// # Errors
/// As with [`load_node_state`].
pub fn load_topology(source: &str, file: &str) -> Result<Topology, Errors> {
    let mut topology: Topology = parse(source, file)?;
    topology.name_by_labels().map_err(|errors| locate(errors, source, file))?;
    topology.validate().map_err(|errors| locate(errors, source, file))?;
    Ok(topology)
}

/// Gives errors without a place, such as the planner's, their place in the source by their key paths.
pub fn locate(mut errors: Errors, source: &str, file: &str) -> Errors {
    let tree: Option<Located> = serde_saphyr::from_str_with_options(source, options()).ok();
    for error in errors.iter_mut() {
        error.file.get_or_insert_with(|| file.to_owned());
        if error.position.is_none() {
            error.position = tree.as_ref().and_then(|tree| tree.position(&error.key));
        }
    }
    errors.sort_by_position();
    errors
}

fn options() -> Options {
    serde_saphyr::options! {
        // `no` is a host's name, not a truth value.
        strict_booleans: true,
        // 100,000 steering rules are a million nodes, and there may be more. Documents are in memory already; what aliases
        // could make of them stays limited.
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_events: 3 * NODES_MAX,
        },
    }
}

/// Reads a document of any kind without checking its meaning. `file` is only for the errors.
///
/// # Errors
/// Syntax and types up to the first error.
pub fn document<T: DeserializeOwned>(source: &str, file: &str) -> Result<T, Errors> {
    parse(source, file)
}

/// Reads a value that another document has at `key`, without checking its meaning. [`locate`] finds the line.
///
/// # Errors
/// Types up to the first error.
pub fn value<T: DeserializeOwned>(value: &serde_json::Value, key: &KeyPath) -> Result<T, Errors> {
    // JSON is YAML: the same reader, so the same messages.
    parse(&value.to_string(), "").map_err(|errors| {
        let inside = |error: ModelError| ModelError {
            file: None,
            position: None,
            key: error.key.steps().iter().fold(key.clone(), |key, step| key.at(step.clone())),
            ..error
        };
        errors.into_iter().map(inside).collect()
    })
}

/// Reads a value without checking its meaning.
fn parse<T: DeserializeOwned>(source: &str, file: &str) -> Result<T, Errors> {
    let mut path = KeyPath::root();
    let result = serde_saphyr::with_deserializer_from_str_with_options(source, options(), |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            path = key_path(error.path());
            error.into_inner()
        })
    });
    result.map_err(|error| describe(error.without_snippet(), path, source, file).into())
}

fn key_path(path: &serde_path_to_error::Path) -> KeyPath {
    use serde_path_to_error::Segment;
    path.iter().fold(KeyPath::root(), |path, segment| match segment {
        Segment::Seq { index } => path.at(*index),
        Segment::Map { key } => path.at(key),
        // A variant's name is a key in the document.
        Segment::Enum { variant } => path.at(variant),
        Segment::Unknown => path,
    })
}

fn describe(error: &YamlError, key: KeyPath, source: &str, file: &str) -> ModelError {
    let position = error
        .location()
        .filter(|location| location.line() > 0)
        .map(|location| Position { line: location.line(), column: location.column() });
    let (mut message, mut remedy) = message_and_remedy(error);
    if let Some(length) = position.and_then(|position| prefix_length(word(source, position))) {
        (message, remedy) = length;
    }
    if position.is_some_and(|position| ends_with_colon(source, position)) {
        remedy = "put it into quotes: YAML takes a colon at the end of a word for a key".to_owned();
    }
    ModelError { file: Some(file.to_owned()), position, key, message, remedy }
}

/// The word at a place, up to what ends it in YAML, with its quotes.
fn word(source: &str, position: Position) -> &str {
    let place = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = source.lines().nth(place(position.line)).unwrap_or_default();
    let begin = line.char_indices().nth(place(position.column)).map_or(line.len(), |(begin, _)| begin);
    let rest = &line[begin..];
    rest.split(|c: char| c.is_whitespace() || ",]}#".contains(c)).next().unwrap_or_default()
}

/// Whether the word at a place ends with a colon, as addresses such as fc00:5e9:1:100:: do.
fn ends_with_colon(source: &str, position: Position) -> bool {
    word(source, position).ends_with("::")
}

/// What is wrong with a prefix whose address is right, and its length is not: the parser says that the address is wrong.
fn prefix_length(word: &str) -> Option<(String, String)> {
    let (address, length) = word.trim_matches(['"', '\'']).split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let (longest, family) = if address.is_ipv4() { (32, "IPv4") } else { (128, "IPv6") };
    let remedy = format!("write a length from 0 to {longest}, such as {address}/{longest}");
    match length.parse::<u32>() {
        Ok(length) if length <= longest => None,
        Ok(length) => Some((format!("the prefix length {length} is above {longest}, the most of {family}"), remedy)),
        Err(_) => Some((format!("{length:?} is no prefix length"), remedy)),
    }
}

fn message_and_remedy(error: &YamlError) -> (String, String) {
    match error {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            (format!("the key {field:?} is not known here"), closest(field, expected, "remove it; known here"))
        }
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("{variant:?} is not a value of this key"), closest(variant, expected, "write one of them"))
        }
        YamlError::SerdeMissingField { field, .. } => {
            (format!("the key {field:?} is missing"), format!("add `{field}:`"))
        }
        YamlError::DuplicateMappingKey { key, .. } => (
            format!("the key {:?} is there twice", key.as_deref().unwrap_or("?")),
            "remove or rename one of the two".to_owned(),
        ),
        YamlError::SerdeInvalidType { unexpected, expected, .. }
        | YamlError::SerdeInvalidValue { unexpected, expected, .. } => {
            (format!("{unexpected} is not what belongs here"), format!("write {expected}"))
        }
        YamlError::SerdeInvalidLength { len, expected, .. } => {
            // "an array of length 2", "a tuple of size 2"
            let wanted = expected.rsplit(' ').next().unwrap_or(expected);
            (format!("{len} items are not what belongs here"), format!("write exactly {wanted}"))
        }
        YamlError::InvalidBooleanStrict { .. } => {
            ("the value is neither true nor false".to_owned(), "write true or false".to_owned())
        }
        YamlError::Unexpected { expected, .. } if expected.contains("sequence") => {
            ("a list belongs here".to_owned(), "write [..], or one line with `- ` for each item".to_owned())
        }
        YamlError::Unexpected { expected, .. } if expected.contains("mapping") => {
            ("keys with values belong here".to_owned(), "write {key: value}, or one line for each key".to_owned())
        }
        YamlError::Unexpected { expected, .. } if expected.contains("scalar") => {
            ("a single value belongs here".to_owned(), "write one value, not a list or keys".to_owned())
        }
        YamlError::Eof { .. } => ("the document ends too early".to_owned(), "write what is missing".to_owned()),
        YamlError::MultipleDocuments { .. } => (
            "there is more than one YAML document".to_owned(),
            "keep only one: remove the line `---` and what follows, or put it into a file of its own".to_owned(),
        ),
        YamlError::Message { msg, .. } => {
            let (message, remedy) = Refusal::parts(msg).unwrap_or_else(|| (msg, remedy_of(msg)));
            (message.to_owned(), remedy.to_owned())
        }
        YamlError::InvalidScalar { ty, .. } => {
            (format!("the value is not {}", article(ty)), format!("write {}", article(ty)))
        }
        other => {
            let message = DefaultMessageFormatter.format_message(other);
            (message.into_owned(), "correct the YAML here or just above".to_owned())
        }
    }
}

/// The parsers of addresses and of small values say what is wrong, but not always what would be right.
fn remedy_of(message: &str) -> &'static str {
    if message.contains("IPv6 address syntax") {
        "write an IPv6 address such as fc00:5e9:1:100::"
    } else if message.contains("IPv4 address syntax") {
        "write an IPv4 address such as 192.0.2.1"
    } else if message.contains("IP address syntax") {
        "write an address, with a length if it is a prefix, such as fc00:5e9:1::/48 or 192.0.2.0/24"
    } else {
        "correct the value"
    }
}

/// Rust's names of integer types mean nothing to an operator.
fn article(ty: &str) -> String {
    match ty {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "bool" | "boolean" => "true or false".to_owned(),
        other => format!("of type {other}"),
    }
}

fn closest(found: &str, expected: &[&str], otherwise: &str) -> String {
    let known = expected.join(", ");
    let best = expected.iter().map(|name| (distance(&found.to_lowercase(), &name.to_lowercase()), name)).min();
    match best {
        Some((distance, name)) if distance <= 1 + found.len() / 4 => {
            format!("did you mean {name:?}? (known: {known})")
        }
        _ if expected.is_empty() => "remove it".to_owned(),
        _ => format!("{otherwise}: {known}"),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
