//! What stations count, before and after the probe: outcomes and last drops of data planes, errors of kernels, rules of functions.

use std::collections::BTreeMap;
use std::fs;

use ipnet::Ipv6Net;
use segue_api::report::{DropReport, OutcomeReport, SidReport};
use segue_host::Run;

use super::probe::Mark;
use super::source::{Inside, Source};

/// Counters of one station.
#[derive(Debug, Clone, Default)]
pub struct Station {
    /// Of the data plane.
    pub outcomes: Vec<OutcomeReport>,
    /// Of the data plane, with the last packet of each.
    pub drops: Vec<DropReport>,
    /// Errors that the kernel counts, such as `Ip6InNoRoutes`.
    pub kernel: BTreeMap<String, u64>,
    /// Its SIDs; in labs only, as there may be many.
    pub sids: Vec<Ipv6Net>,
    /// Packets that rules of nftables with a counter have hit, by what the rule does.
    pub rules: BTreeMap<String, u64>,
}

/// All stations by name.
pub type Counters = BTreeMap<String, Station>;

/// Reads those of all stations. What does not answer has none.
#[must_use]
pub fn read(sources: &[Source]) -> Counters {
    let one = |source: &Source| {
        let mut station = Station::default();
        if let Some(agent) = &source.agent {
            let client = agent.clone().with_patience(crate::agent::ANSWER_WITHIN);
            station.outcomes = client.get("/v1/outcomes").unwrap_or_default();
            station.drops = client.get("/v1/drops").unwrap_or_default();
            if matches!(source.inside, Inside::Namespace(_)) {
                let sids: Vec<SidReport> = client.get("/v1/sids").unwrap_or_default();
                station.sids = sids.iter().filter_map(|sid| prefix(&sid.sid)).collect();
            }
        }
        station.kernel = source.inside.run(kernel).ok().flatten().unwrap_or_default();
        if let (true, Inside::Namespace(namespace)) = (source.is_function, &source.inside) {
            let rules = Run::new("nft", ["--json", "list", "ruleset"]).inside(namespace).text();
            station.rules = rules.map(|text| rule_counters(&text)).unwrap_or_default();
        }
        (source.station.clone(), station)
    };
    sources.iter().map(one).collect()
}

/// A SID as reports have it: an address is one of 128 bits.
fn prefix(text: &str) -> Option<Ipv6Net> {
    text.parse().ok().or_else(|| Some(Ipv6Net::from(text.parse::<std::net::Ipv6Addr>().ok()?)))
}

/// Error counters of the calling thread's namespace.
fn kernel() -> BTreeMap<String, u64> {
    const ERRORS: [&str; 9] = [
        "NoRoutes",
        "HdrErrors",
        "AddrErrors",
        "TooBig",
        "Discards",
        "UnknownProtos",
        "Truncated",
        "FragFails",
        "ReasmFails",
    ];
    let mut counters = BTreeMap::new();
    let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    let pairs = v6.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    });
    counters.extend(pairs);
    let v4 = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let mut lines = v4.lines().filter(|line| line.starts_with("Ip:"));
    if let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let pairs = names.split_whitespace().zip(values.split_whitespace()).skip(1);
        counters.extend(pairs.filter_map(|(name, value)| Some((format!("Ip{name}"), value.parse().ok()?))));
    }
    counters.retain(|name, _| name.starts_with("Ip") && ERRORS.iter().any(|error| name.ends_with(error)));
    counters
}

fn rule_counters(text: &str) -> BTreeMap<String, u64> {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let mut counters = BTreeMap::new();
    for object in value.get("nftables").and_then(serde_json::Value::as_array).into_iter().flatten() {
        if let Some(counter) = object.get("counter") {
            let name = counter.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
            let packets = counter.get("packets").and_then(serde_json::Value::as_u64).unwrap_or_default();
            counters.insert(format!("counter {name}"), packets);
        }
        let Some(rule) = object.get("rule") else { continue };
        let parts = rule.get("expr").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let packets = parts.iter().find_map(|part| part.get("counter")?.get("packets")?.as_u64());
        let verdict =
            parts.iter().find_map(|part| ["drop", "reject"].into_iter().find(|verdict| part.get(*verdict).is_some()));
        let word = |key: &str| rule.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let handle = rule.get("handle").and_then(serde_json::Value::as_u64).unwrap_or_default();
        if let Some(packets) = packets {
            let does = verdict.unwrap_or("counts");
            counters.insert(format!("{} {} handle {handle} ({does})", word("table"), word("chain")), packets);
        }
    }
    counters
}

/// A drop that was counted meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Port by which the packet came in.
    pub port: String,
    /// Outcome.
    pub reason: String,
    /// What it means.
    pub text: String,
    /// Whether the last packet of it has the mark.
    pub is_probe: bool,
}

/// The drops of a data plane that were counted meanwhile; the probe's own first.
#[must_use]
pub fn dropped(before: &Station, after: &Station, mark: &Mark) -> Vec<Dropped> {
    let mark: String = mark.iter().map(|octet| format!("{octet:02x}")).collect();
    let moved = after.drops.iter().filter(|drop| {
        let same = |other: &&DropReport| (&other.port, &other.reason) == (&drop.port, &drop.reason);
        drop.counter.packets > before.drops.iter().find(same).map_or(0, |other| other.counter.packets)
    });
    let mut all: Vec<Dropped> = moved
        .map(|drop| Dropped {
            port: drop.port.clone(),
            reason: drop.reason.clone(),
            text: drop.text.clone(),
            is_probe: drop.last.as_ref().is_some_and(|last| last.bytes.contains(&mark)),
        })
        .collect();
    all.sort_by_key(|drop| !drop.is_probe);
    all
}

/// Outcomes at a port by which packets were given to the kernel meanwhile.
#[must_use]
pub fn passed(before: &Station, after: &Station, port: &str) -> Vec<(String, String)> {
    let moved =
        after.outcomes.iter().filter(|outcome| outcome.kind == "passed" && outcome.port == port).filter(|outcome| {
            let same = |other: &&OutcomeReport| (&other.port, &other.outcome) == (&outcome.port, &outcome.outcome);
            outcome.counter.packets > before.outcomes.iter().find(same).map_or(0, |other| other.counter.packets)
        });
    // Neighbour discovery of the link is always there.
    let mut all: Vec<(String, String)> = moved.map(|outcome| (outcome.outcome.clone(), outcome.text.clone())).collect();
    all.sort_by_key(|(outcome, _)| outcome == "passed_not_for_segue");
    all
}

/// Names of counters that moved, with by how much.
#[must_use]
pub fn moved(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let difference = |(name, now): (&String, &u64)| {
        let more = now.saturating_sub(before.get(name).copied().unwrap_or_default());
        (more > 0).then(|| format!("{name} +{more}"))
    };
    after.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_with_counters_are_found_with_what_they_do() {
        let text = r#"{"nftables": [
            {"counter": {"family": "inet", "name": "seen", "table": "t", "packets": 3, "bytes": 9}},
            {"rule": {"family": "inet", "table": "t", "chain": "forward", "handle": 7, "expr": [
                {"match": {}}, {"counter": {"packets": 2, "bytes": 1}}, {"drop": null}]}},
            {"rule": {"family": "inet", "table": "t", "chain": "forward", "handle": 8, "expr": [{"accept": null}]}}]}"#;
        let counters = rule_counters(text);
        let expected = [("counter seen".to_owned(), 3), ("t forward handle 7 (drop)".to_owned(), 2)];
        assert_eq!(counters.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn sids_are_prefixes_however_they_are_written() {
        let sids = ["fc00:1::/64", "fc00:1::", "x"].map(prefix);
        assert_eq!(sids.map(|sid| sid.map(|sid| sid.prefix_len())), [Some(64), Some(128), None]);
    }

    #[test]
    fn only_what_moved_is_told() {
        let before = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let after = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 5), ("c".to_owned(), 1)]);
        assert_eq!(moved(&before, &after), ["b +3", "c +1"]);
    }
}
