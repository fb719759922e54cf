//! Ranges of numbers and of addresses, both ends included, as steering rules name them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{NumberOrText, ValueError};

/// A range of numbers of up to 32 bits. The low end is never above the high end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NumberRange {
    low: u32,
    high: u32,
}

impl NumberRange {
    /// The SR global block of labs that name none: a label for each id that a node can have.
    pub(crate) const SRGB: Self = Self { low: 16_000, high: 25_999 };
    /// The same for the SR local blocks of all nodes: 100 labels for each.
    pub(crate) const SRLB: Self = Self { low: 30_000, high: 1_029_999 };

    const EXPECTED: &'static str = "a number such as 46 or 0x2e, or a range such as \"8-15\", low end first";

    /// From one number to another, both included; None if there is none between them.
    pub fn new(low: u32, high: u32) -> Option<Self> {
        (low <= high).then_some(Self { low, high })
    }

    /// Whether it has this number.
    pub fn contains(self, number: u32) -> bool {
        (self.low..=self.high).contains(&number)
    }

    /// Whether some number is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Lowest number.
    pub fn low(self) -> u32 {
        self.low
    }

    /// Highest number.
    pub fn high(self) -> u32 {
        self.high
    }
}

impl fmt::Display for NumberRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(formatter, "{}", self.low)
        } else {
            write!(formatter, "{}-{}", self.low, self.high)
        }
    }
}

impl FromStr for NumberRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |end: &str| match end.trim().strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => end.trim().parse().ok(),
        };
        number(low)
            .zip(number(high))
            .filter(|(low, high)| low <= high)
            .map(|(low, high)| Self { low, high })
            .ok_or_else(|| ValueError::new(Self::EXPECTED, text))
    }
}

impl Serialize for NumberRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.low == self.high { serializer.serialize_u32(self.low) } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for NumberRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText(Self::EXPECTED, |text| text.parse()))
    }
}

impl JsonSchema for NumberRange {
    fn schema_name() -> Cow<'static, str> {
        "NumberRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a range of numbers such as \"8-15\", both ends included.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                { "type": "string", "pattern": "^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})(-(0x[0-9a-fA-F]{1,8}|[0-9]{1,10}))?$" },
            ],
        })
    }
}

/// A range of addresses of one family. The first is never above the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    const EXPECTED: &'static str = "a range of addresses such as 10.0.0.5-10.0.0.9, the lower one first";

    /// The lowest address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// The highest address; of the same family.
    pub fn last(self) -> IpAddr {
        self.last
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl FromStr for AddressRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let ends = text.split_once('-').and_then(|(first, last)| {
            Some((first.trim().parse::<IpAddr>().ok()?, last.trim().parse::<IpAddr>().ok()?))
        });
        ends.filter(|(first, last)| first.is_ipv4() == last.is_ipv4() && first <= last)
            .map(|(first, last)| Self { first, last })
            .ok_or_else(|| ValueError::new(Self::EXPECTED, text))
    }
}

impl Serialize for AddressRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AddressRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for AddressRange {
    fn schema_name() -> Cow<'static, str> {
        "AddressRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A range of addresses such as 10.0.0.5-10.0.0.9, both ends included.",
            "type": "string",
            "pattern": "^[0-9a-fA-F.:]+ *- *[0-9a-fA-F.:]+$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let read = |json: &str| serde_json::from_str::<NumberRange>(json);
        assert_eq!(read("46").unwrap(), NumberRange { low: 46, high: 46 });
        assert_eq!(read("\"0x10-0xfffff\"").unwrap(), NumberRange { low: 16, high: 0xfffff });
        assert_eq!(serde_json::to_string(&read("\"8-15\"").unwrap()).unwrap(), "\"8-15\"");
        assert_eq!(serde_json::to_string(&read("\"7\"").unwrap()).unwrap(), "7");
        for bad in ["-1", "\"15-8\"", "4294967296", "\"1-2-3\"", "\"\"", "\"0x\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        let range: AddressRange = "10.0.0.5 - 10.0.0.9".parse().unwrap();
        assert_eq!(range.to_string(), "10.0.0.5-10.0.0.9");
        for bad in ["10.0.0.9-10.0.0.5", "10.0.0.1-::1", "10.0.0.1", "-", "10.0.0.0/8"] {
            assert!(bad.parse::<AddressRange>().unwrap_err().to_string().contains("range of addresses"), "{bad}");
        }
    }
}
