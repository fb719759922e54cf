//! Keys that are refused with a remedy of their own, before the derived code sees them and says no more than "unknown".

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Why a key has no place where it stands, and what to write instead.
pub(crate) struct Refusal {
    message: String,
    remedy: String,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }

    /// Message and remedy of what became the text of an error on the way through serde.
    pub(crate) fn parts(text: &str) -> Option<(&str, &str)> {
        text.split_once('\n')
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\n{}", self.message, self.remedy)
    }
}

/// Reads a mapping, each key of which is shown to `refuse` first.
pub(crate) fn guarded<'de, D, T, F>(deserializer: D, refuse: F) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    F: FnMut(&str) -> Option<Refusal>,
{
    deserializer.deserialize_map(Guard { refuse, value: PhantomData })
}

struct Guard<T, F> {
    refuse: F,
    value: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(&str) -> Option<Refusal>> Visitor<'de> for Guard<T, F> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("keys with values")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Entries { access, refuse: self.refuse }))
    }
}

/// The entries of a mapping, but for those whose keys are refused.
struct Entries<A, F> {
    access: A,
    refuse: F,
}

impl<'de, A: MapAccess<'de>, F: FnMut(&str) -> Option<Refusal>> MapAccess<'de> for Entries<A, F> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        // Inside a seed, an error gets the key's place.
        self.access.next_key_seed(Key { seed, refuse: &mut self.refuse })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.access.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.size_hint()
    }
}

struct Key<'a, K, F> {
    seed: K,
    refuse: &'a mut F,
}

impl<'de, K: DeserializeSeed<'de>, F: FnMut(&str) -> Option<Refusal>> DeserializeSeed<'de> for Key<'_, K, F> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        match (self.refuse)(&key) {
            Some(refusal) => Err(D::Error::custom(refusal)),
            None => self.seed.deserialize(key.into_deserializer()),
        }
    }
}
