//! What FRR prints for `show mpls table json`: the labels that its zebra would have the kernel know. Keys that this does not know are
//! passed over, since each version of FRR adds some.

use std::fmt;
use std::net::IpAddr;

use segue_model::label::LAST_LABEL;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Row, Table, Way};

/// A label, be it a special one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
struct Number(u32);

impl TryFrom<u32> for Number {
    type Error = String;

    fn try_from(label: u32) -> Result<Self, String> {
        if label > LAST_LABEL { Err(format!("{label} is no label: they have 20 bits")) } else { Ok(Self(label)) }
    }
}

/// Words that are shown, and logged: of FRR, not of whoever else writes a file.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct Word(String);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        /// More than any that FRR has, and than an interface's name.
        const OCTETS: usize = 40;
        if word.len() > OCTETS || word.chars().any(char::is_control) {
            return Err("a word that cannot be shown".to_owned());
        }
        Ok(Self(word))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lsp {
    in_label: Number,
    #[serde(default)]
    nexthops: Vec<Nexthop>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Nexthop {
    #[serde(default, rename = "type")]
    by: Word,
    out_label: Option<Number>,
    /// FRR 7 and before have `outLabel` alone.
    out_label_stack: Option<Vec<Number>>,
    /// Of who handed it out: the lowest wins.
    #[serde(default)]
    distance: u8,
    /// The kernel has it.
    #[serde(default)]
    installed: bool,
    nexthop: Option<IpAddr>,
    interface: Option<Word>,
}

impl Lsp {
    /// What zebra chose: what the kernel has, or would have if it could.
    fn row(self) -> Row {
        let is_installed = self.nexthops.iter().any(|hop| hop.installed);
        let lowest = self.nexthops.iter().map(|hop| hop.distance).min();
        let chosen = |hop: &Nexthop| if is_installed { hop.installed } else { Some(hop.distance) == lowest };
        let mut row = Row::default();
        for hop in self.nexthops.into_iter().filter(chosen) {
            if row.by.is_empty() {
                row.by = hop.by.0;
            }
            let out = hop.out_label_stack.unwrap_or_else(|| hop.out_label.into_iter().collect());
            row.ways.push(Way {
                out: out.into_iter().map(|number| number.0).collect(),
                next_hop: hop.nexthop,
                interface: hop.interface.map(|name| name.0),
            });
        }
        // In FRR's order, which differs from one time to the next.
        row.ways.sort();
        row.ways.dedup();
        row
    }
}

struct Labels(Table);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;

        impl<'de> Visitor<'de> for Rows {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("FRR's labels, each under itself")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut table = Table::new();
                while let Some(key) = map.next_key::<String>()? {
                    let Ok(label) = key.parse::<u32>() else {
                        // Such as what FRR says beside them in a version to come.
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let lsp: Lsp = map.next_value()?;
                    if lsp.in_label.0 != label {
                        return Err(A::Error::custom(format!("the label {} stands under {label}", lsp.in_label.0)));
                    }
                    if table.insert(label, lsp.row()).is_some() {
                        return Err(A::Error::custom(format!("the label {label} is there twice")));
                    }
                }
                Ok(Labels(table))
            }
        }

        deserializer.deserialize_map(Rows)
    }
}

/// Reads it.
///
/// # Errors
/// What it says else, with the line.
pub(super) fn parse(text: &str) -> Result<Table, serde_json::Error> {
    serde_json::from_str::<Labels>(text).map(|labels| labels.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of FRR 8.4.4, IS-IS: a node between two others, to one of which there are two links, in IPv4 and IPv6.
    const ISIS: &str = include_str!("isis.json");
    /// The same of OSPF, in IPv4.
    const OSPF: &str = include_str!("ospf.json");

    fn way(out: &[u32], next_hop: &str, interface: Option<&str>) -> Way {
        let next_hop = (!next_hop.is_empty()).then(|| next_hop.parse().unwrap());
        Way { out: out.to_vec(), next_hop, interface: interface.map(str::to_owned) }
    }

    #[test]
    fn what_frr_says_of_is_is() {
        let table = parse(ISIS).unwrap();
        assert_eq!(table.len(), 11);
        assert!(table.values().all(|row| row.by == "SR (IS-IS)"), "{table:?}");
        let two_ways = [way(&[16010], "10.0.12.1", None), way(&[16010], "10.1.12.1", None)];
        assert_eq!(table[&16010].ways, two_ways);
        assert_eq!(table[&16030].ways, [way(&[16030], "10.0.23.3", None)]);
        assert_eq!(table[&16020].ways, [way(&[3], "", Some("lo"))], "the node itself");
        let links =
            ["eth21", "eth21b"].map(|link| table[&16011].ways.iter().any(|way| way.interface.as_deref() == Some(link)));
        assert_eq!(links, [true, true], "link-local neighbours: {:?}", table[&16011]);
        assert_eq!(table[&15000].ways, [way(&[3], "10.0.23.3", None)], "an adjacency");
    }

    #[test]
    fn what_frr_says_of_ospf() {
        let table = parse(OSPF).unwrap();
        assert!(table.values().all(|row| row.by == "SR (OSPF)"), "{table:?}");
        assert_eq!(table[&16030].ways, [way(&[16030], "10.0.23.3", None)]);
    }

    #[test]
    fn of_several_protocols_the_one_that_zebra_chose() {
        let hop = |by: &str, out: u32, distance: u8, installed: bool| {
            format!(
                "{{\"type\":\"{by}\",\"outLabel\":{out},\"distance\":{distance},\"installed\":{installed},\"nexthop\":\"10.0.0.1\"}}"
            )
        };
        let row = |hops: &[String]| {
            let text =
                format!("{{\"16\":{{\"inLabel\":16,\"new\":[1],\"nexthops\":[{}]}},\"count\":1}}", hops.join(","));
            let table = parse(&text).unwrap();
            assert_eq!(table.len(), 1);
            table[&16].clone()
        };
        let chosen = row(&[hop("LDP", 20, 150, false), hop("Static", 21, 1, false)]);
        assert_eq!((chosen.by.as_str(), &chosen.ways[..]), ("Static", &[way(&[21], "10.0.0.1", None)][..]));
        let chosen = row(&[hop("LDP", 20, 150, true), hop("Static", 21, 1, false)]);
        assert_eq!((chosen.by.as_str(), &chosen.ways[..]), ("LDP", &[way(&[20], "10.0.0.1", None)][..]));
        assert_eq!(row(&[hop("a", 3, 1, true), hop("a", 3, 1, true)]).ways.len(), 1, "the same twice is one way");
        assert_eq!(row(&[]).ways, []);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        let bad = [
            ("", "EOF"),
            ("[]", "FRR's labels"),
            ("% Unknown command: show mpls table json", "expected value"),
            ("{\n\"16\": {\"inLabel\": 17}\n}", "the label 17 stands under 16"),
            ("{\n\"16\": {\"inLabel\": 16},\n\"16\": {\"inLabel\": 16}}", "is there twice"),
            ("{\"1048576\": {\"inLabel\": 1048576}}", "1048576 is no label"),
            ("{\"16\": {\"inLabel\": 16, \"nexthops\": [{\"outLabelStack\": [-1]}]}}", "invalid value"),
            ("{\"16\": {\"inLabel\": 16, \"nexthops\": [{\"nexthop\": \"10.0.0\"}]}}", "invalid IP address"),
            ("{\"16\": {\"inLabel\": 16, \"nexthops\": [{\"type\": \"\\u001b[2J\"}]}}", "cannot be shown"),
            ("{\"16\": {\"nexthops\": []}}", "missing field `inLabel`"),
            ("{} {}", "trailing characters"),
        ];
        for (text, message) in bad {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(message), "{text}: {error}");
            assert!(text.is_empty() || error.line() > 0, "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(&format!("{{\"a\": {deep}")).is_err(), "no stack runs over");
    }
}
