//! The scenario `classify`: H.Encaps behind 10 to 100,000 flow descriptors, with flows that the flow cache holds and with more than it
//! holds while there are few rules, so that nearly every packet asks the classifier.

use serde_json::{Value, json};

use crate::contest::{self, Effort, conditions, target};
use crate::cpu::Pinned;
use crate::error::Result;
use crate::frame::ETHERNET;
use crate::interrupt;
use crate::lane::Lane;
use crate::plot_rules::Curve;
use crate::report::{Peer, Report};
use crate::scenario::{Arrival, Engine, Scenario};
use crate::segue::Node;
use crate::topology::{LAST_SID, NEXT_SID, OUT_ADDRESS, Topology};
use crate::traffic::{FLOWS_MAX, Settings, Traffic};

/// Numbers of descriptors.
pub const DESCRIPTORS: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
/// The rate with the most descriptors, by that with the fewest.
const REQUIRED: f64 = 0.8;
const POLICIES: usize = 16;
/// Where the inner destination has the number of the flow: its last 32 bits.
const NUMBER: usize = 36;
/// What H.Encaps with two segments puts in front.
const PUSHED: usize = 40 + 8 + 32;

/// Reports, and what is drawn of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// One for each number of descriptors and of flows.
    pub reports: Vec<Report>,
    /// One for each number of flows.
    pub curves: Vec<Curve>,
}

/// Measures with `effort.flows` flows, and with as many as the generator has. `done` is told of each report as soon as it is there.
///
/// # Errors
/// If a lane cannot be set up, or delivers a wrong frame.
pub fn run(octets: usize, effort: &Effort, pinned: &Pinned, mut done: impl FnMut(&Report)) -> Result<Found> {
    let mut found = Found::default();
    for flows in [effort.flows, FLOWS_MAX] {
        let effort = Effort { flows, ..*effort };
        let mut lanes = Vec::new();
        for count in DESCRIPTORS {
            interrupt::check()?;
            let mut lane = open(octets, count, flows)?;
            lane.verify(effort.first.verified)?;
            lanes.push(lane);
        }
        let tallies = contest::alternate(&mut lanes, &effort)?;
        let name = format!("{flows} flows");
        let mut curve = Curve { name: name.clone(), points: Vec::new() };
        let Some(least) = tallies.first().map(|tally| tally.rate) else { continue };
        for (count, tally) in DESCRIPTORS.into_iter().zip(&tallies) {
            let ratio = tally.rate.median / least.median;
            let mut notes = vec![format!(
                "{} of {} frames lost when saturated; {} of {} lost at {:.3} Mpps, every octet of the rest verified{}",
                tally.lost,
                tally.sent,
                tally.paced.lost(),
                tally.paced.sent,
                tally.paced.rate / 1e6,
                tally.drops
            )];
            if Some(&count) == DESCRIPTORS.last() {
                notes.push(target("share of the rate with 10 descriptors", ratio, REQUIRED));
            }
            notes.push(conditions(&effort, pinned));
            let report = Report {
                scenario: format!("classify/{count} descriptors, {name}"),
                unit: "packets/s".into(),
                ours: tally.rate,
                peer: Some(Peer { name: "10 descriptors".into(), rate: least }),
                ratio: Some(ratio),
                packets_lost: tally.lost + tally.paced.lost(),
                notes,
                size: octets,
                limit: None,
            };
            done(&report);
            curve.points.push((count, tally.rate));
            found.reports.push(report);
        }
        found.curves.push(curve);
    }
    Ok(found)
}

fn open(octets: usize, count: usize, flows: u32) -> Result<Lane> {
    let topology = Topology::build(&format!("classify{count}"))?;
    let settings = Settings { flows, chain: Some(NUMBER), ..Settings::default() };
    let packet = Scenario::HEncaps.sent(octets)?;
    let traffic = Traffic::start(&topology, &packet, &arrival(octets)?, settings)?;
    let node = Node::start(&topology.node, node_state(count))?;
    Ok(Lane::alone(Some(node), traffic, topology, format!("classify with {count} descriptors")))
}

/// As of H.Encaps, with the flow's number in the inner destination.
fn arrival(octets: usize) -> Result<Arrival> {
    let mut arrival = Scenario::HEncaps.arrival(octets, Engine::Segue)?;
    let at = ETHERNET + PUSHED + NUMBER;
    arrival.mask[at..at + 4].fill(0);
    arrival.chains = [at, 0];
    Ok(arrival)
}

fn node_state(count: usize) -> Value {
    let policy = |number: usize| json!({"name": format!("p{number}"), "mode": "H.Encaps", "segment_lists": [{"segments": [NEXT_SID, LAST_SID]}]});
    json!({
        "node": "bench",
        "source_address": OUT_ADDRESS,
        "ports": [{"name": "in", "role": "access"}, {"name": "out", "role": "core"}],
        "policies": (0..POLICIES).map(policy).collect::<Vec<_>>(),
        "steering": descriptors(count),
    })
}

/// Hosts and prefixes with and without source, protocol and ranges of ports, in no order; the last one takes all the rest.
fn descriptors(count: usize) -> Vec<Value> {
    let one = |number: usize| {
        // Each number below 2^17 once: those of the generator's flows are spread over all of them.
        let host = (number * 40_503) & 0x1ffff;
        let prefix = |host: usize, length: usize| {
            let host = host >> (128 - length) << (128 - length);
            json!(format!("2001:db8:b::{:x}:{:x}/{length}", host >> 16, host & 0xffff))
        };
        let mut rule = json!({"destination": prefix(host, 128), "policy": format!("p{}", number % POLICIES)});
        match number % 5 {
            1 => {
                rule["protocol"] = json!("udp");
                rule["source_ports"] = json!([format!("{}-{}", 0x4000 + number % 64, 0x7fff + number % 64)]);
            }
            2 => {
                rule["source"] = json!(format!("2001:db8:{:x}::/48", if number.is_multiple_of(2) { 0xa } else { 0xc }))
            }
            3 => {
                rule["destination"] = prefix(host, 120 + number % 8);
                rule["protocol"] = json!("udp");
            }
            4 => rule["dscp"] = json!([if number.is_multiple_of(2) { 0 } else { 46 }]),
            _ => {}
        }
        rule
    };
    let mut rules: Vec<Value> = (0..count - 1).map(one).collect();
    rules.push(json!({"destination": "2001:db8:b::/64", "policy": "p0"}));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_differ_and_are_as_many_as_asked_for() {
        let rules = descriptors(1000);
        assert_eq!(rules.len(), 1000);
        let hosts: std::collections::HashSet<String> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(hosts.len(), 1000);
        assert!(rules.iter().all(|rule| rule["destination"].is_string()));
    }
}
