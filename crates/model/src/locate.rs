//! A document as a tree of places, to find the line of a key path.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{Location, Spanned};

use crate::error::{KeyPath, Position, Step};

/// A value of the document and where it begins.
pub(crate) struct Located {
    at: Location,
    content: Content,
}

enum Content {
    Scalar,
    List(Vec<Located>),
    Map(Vec<(String, Location, Located)>),
}

impl Located {
    /// Where the value of a key path is: a scalar itself, the key in front of a list or a mapping. If the path leads to
    /// something that is not written, the nearest that is.
    pub(crate) fn position(&self, path: &KeyPath) -> Option<Position> {
        let mut here = self;
        let mut at = self.at;
        for step in path.steps() {
            match (&here.content, step) {
                (Content::List(items), Step::Index(index)) => {
                    let Some(item) = items.get(*index) else { break };
                    (here, at) = (item, item.at);
                }
                (Content::Map(entries), Step::Key(key)) => {
                    let Some((_, key_at, value)) = entries.iter().find(|(name, _, _)| name == key) else { break };
                    here = value;
                    at = if matches!(value.content, Content::Scalar) { value.at } else { *key_at };
                }
                _ => break,
            }
        }
        (at.line() > 0).then(|| Position { line: at.line(), column: at.column() })
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { at: spanned.referenced, content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> de::Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            entries.push((key.value, key.referenced, access.next_value()?));
        }
        Ok(Content::Map(entries))
    }
}
