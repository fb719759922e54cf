//! Small values with a text form of their own: link-layer addresses, upper-layer protocols, port ranges, SIDs as prefixes,
//! names.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnet::Ipv6Net;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that does not denote the value that is wanted there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}")]
pub struct ValueError {
    /// What is wanted, with an example.
    pub expected: &'static str,
    /// What was there.
    pub found: String,
}

impl ValueError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        Self { expected, found: found.to_owned() }
    }
}

/// An EUI-48 link-layer address, octets in the order of transmission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    const EXPECTED: &'static str = "a link-layer address such as 02:00:00:00:00:01";

    /// The octets in the order of transmission.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether one station can have it: neither a group address nor all zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for MacAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            *octet = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| ValueError::new(Self::EXPECTED, text))?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(ValueError::new(Self::EXPECTED, text)),
        }
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for MacAddress {
    fn schema_name() -> Cow<'static, str> {
        "MacAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A link-layer address.",
            "type": "string",
            "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$",
        })
    }
}

/// An upper-layer protocol: its number in the Next Header or Protocol field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    const EXPECTED: &'static str = "a protocol: tcp, udp, sctp, icmp, icmpv6 or a number from 0 to 255";
    const NAMES: [(&'static str, Self); 5] =
        [("tcp", Self::TCP), ("udp", Self::UDP), ("sctp", Self::SCTP), ("icmp", Self::ICMP), ("icmpv6", Self::ICMPV6)];

    /// Whether its header begins with a source and a destination port.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }

    fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(_, protocol)| *protocol == self).map(|(name, _)| *name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "{}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Self::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, protocol)| *protocol)
            .or_else(|| text.parse().ok().map(Self))
            .ok_or_else(|| ValueError::new(Self::EXPECTED, text))
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_u8(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText(Self::EXPECTED, |text| text.parse()))
    }
}

impl JsonSchema for Protocol {
    fn schema_name() -> Cow<'static, str> {
        "Protocol".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An upper-layer protocol, by name or number.",
            "anyOf": [
                { "enum": ["tcp", "udp", "sctp", "icmp", "icmpv6"] },
                { "type": "integer", "minimum": 0, "maximum": 255 },
            ],
        })
    }
}

/// A range of ports, both ends included. The low end is never above the high end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    const EXPECTED: &'static str = "a port such as 80 or a range such as \"8000-8080\", from 0 to 65535, low end first";

    /// The ports from `low` to `high`; `None` if `low` is above `high`.
    pub fn new(low: u16, high: u16) -> Option<Self> {
        (low <= high).then_some(Self { low, high })
    }

    /// Lowest port.
    pub fn low(self) -> u16 {
        self.low
    }

    /// Highest port.
    pub fn high(self) -> u16 {
        self.high
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(formatter, "{}", self.low)
        } else {
            write!(formatter, "{}-{}", self.low, self.high)
        }
    }
}

impl FromStr for PortRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let parse = |end: &str| end.trim().parse::<u16>().ok();
        parse(low)
            .zip(parse(high))
            .and_then(|(low, high)| Self::new(low, high))
            .ok_or_else(|| ValueError::new(Self::EXPECTED, text))
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.low == self.high { serializer.serialize_u16(self.low) } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText(Self::EXPECTED, |text| text.parse()))
    }
}

impl JsonSchema for PortRange {
    fn schema_name() -> Cow<'static, str> {
        "PortRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A port, or a range of ports such as \"8000-8080\", both ends included.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": 65535 },
                { "type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$" },
            ],
        })
    }
}

/// Takes an integer or a string, and hands its text to a parser.
pub(crate) struct NumberOrText<T>(pub &'static str, pub fn(&str) -> Result<T, ValueError>);

impl<T> de::Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.1(&number.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.1(&number.to_string()).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.1(text).map_err(E::custom)
    }
}

/// SIDs as LOC:FUNCT prefixes; a plain address means /128.
pub(crate) mod sid_prefix {
    use super::*;

    const EXPECTED: &str = "a SID such as fc00:5e9:1:100:: or fc00:5e9:1:100::/64";

    pub(crate) fn parse(text: &str) -> Result<Ipv6Net, ValueError> {
        match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Ipv6Net::from(address)),
            Err(_) => text.parse().map_err(|_| ValueError::new(EXPECTED, text)),
        }
    }

    pub(crate) fn serialize<S: Serializer>(sid: &Ipv6Net, serializer: S) -> Result<S::Ok, S::Error> {
        if sid.prefix_len() == 128 { serializer.collect_str(&sid.addr()) } else { serializer.collect_str(sid) }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ipv6Net, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses() {
        let mac: MacAddress = "02:00:5e:AB:cd:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:ab:cd:01");
        assert!(mac.is_unicast());
        assert!(!MacAddress([0; 6]).is_unicast());
        assert!(!MacAddress([0xff; 6]).is_unicast());
        for text in
            ["", "02:00:5e:ab:cd", "02:00:5e:ab:cd:01:02", "2:0:5e:ab:cd:1", "0g:00:00:00:00:00", "+2:00:00:00:00:00"]
        {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn protocols_by_name_and_number() {
        let read = |json: &str| serde_json::from_str::<Protocol>(json);
        assert_eq!(read("\"tcp\"").unwrap(), Protocol::TCP);
        assert_eq!(read("17").unwrap(), Protocol::UDP);
        assert_eq!(read("\"47\"").unwrap(), Protocol(47));
        assert!(read("256").unwrap_err().to_string().contains("a number from 0 to 255"));
        assert!(read("-1").is_err());
        assert!(read("\"TCP\"").is_err());
        assert_eq!(serde_json::to_string(&Protocol::SCTP).unwrap(), "\"sctp\"");
        assert_eq!(serde_json::to_string(&Protocol(47)).unwrap(), "47");
    }

    #[test]
    fn port_ranges() {
        let read = |json: &str| serde_json::from_str::<PortRange>(json);
        assert_eq!(read("80").unwrap(), PortRange { low: 80, high: 80 });
        assert_eq!(read("\"8000-8080\"").unwrap(), PortRange { low: 8000, high: 8080 });
        assert!(read("\"8080-8000\"").unwrap_err().to_string().contains("low end first"));
        assert!(read("65536").is_err());
        assert!(read("\"1-2-3\"").is_err());
        assert_eq!(serde_json::to_string(&PortRange { low: 1, high: 2 }).unwrap(), "\"1-2\"");
        assert_eq!(serde_json::to_string(&PortRange { low: 7, high: 7 }).unwrap(), "7");
    }

    #[test]
    fn sids_with_and_without_length() {
        assert_eq!(sid_prefix::parse("fc00::1").unwrap().prefix_len(), 128);
        assert_eq!(sid_prefix::parse("fc00:1::/64").unwrap().prefix_len(), 64);
        assert!(sid_prefix::parse("fc00:1::/129").unwrap_err().to_string().contains("is not a SID"));
        assert!(sid_prefix::parse("10.0.0.1").is_err());
    }
}
