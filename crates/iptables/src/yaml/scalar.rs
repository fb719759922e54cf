//! Values of a YAML document as words: where they are written, whatever type they seem to have.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};

use super::super::error::Position;
use super::super::lexer::Word;

/// A place of the YAML parser as one of ours.
pub(super) fn position(location: Location) -> Position {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Position { line: number(location.line()), column: number(location.column()) }
}

/// One value: a text or a number.
#[derive(Debug, Clone)]
pub struct Scalar {
    text: String,
    position: Position,
}

impl Scalar {
    /// As a word that is a value, whatever it looks like.
    pub(super) fn word(&self) -> Word<'_> {
        Word { text: Cow::Borrowed(&self.text), position: self.position, quoted: true }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Text>::deserialize(deserializer)?;
        Ok(Self { text: spanned.value.0, position: position(spanned.referenced) })
    }
}

impl JsonSchema for Scalar {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "description": "A value as iptables takes it." })
    }
}

struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or a number")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }
}

/// One value or a list of them.
#[derive(Debug, Clone)]
pub struct Scalars {
    items: Vec<Scalar>,
    position: Position,
}

impl Scalars {
    /// All of them as one word with commas, as iptables takes lists; of ranges, `-` becomes `:` if `colons`.
    pub(super) fn word(&self, colons: bool) -> Word<'static> {
        let texts = self.items.iter().map(|item| match colons {
            true => item.text.replace('-', ":"),
            false => item.text.clone(),
        });
        let text = texts.collect::<Vec<_>>().join(",");
        Word { text: Cow::Owned(text), position: self.position, quoted: true }
    }
}

impl<'de> Deserialize<'de> for Scalars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<OneOrMore>::deserialize(deserializer)?;
        let position = position(spanned.referenced);
        let items = match spanned.value {
            OneOrMore::One(text) => vec![Scalar { text, position }],
            OneOrMore::More(items) => items,
        };
        // The first item says more about the place than the bracket in front of it, or the line's dash.
        let position = items.first().map_or(position, |item| item.position);
        Ok(Self { items, position })
    }
}

impl JsonSchema for Scalars {
    fn schema_name() -> Cow<'static, str> {
        "Values".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Scalar>();
        json_schema!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
    }
}

enum OneOrMore {
    One(String),
    More(Vec<Scalar>),
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor)
    }
}

struct OneOrMoreVisitor;

impl<'de> Visitor<'de> for OneOrMoreVisitor {
    type Value = OneOrMore;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value or a list of values")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(value.to_owned()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<OneOrMore, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        if items.is_empty() {
            return Err(de::Error::invalid_length(0, &"at least one value"));
        }
        Ok(OneOrMore::More(items))
    }
}
