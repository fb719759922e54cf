//! Order, inheritance and expansion of steering rules.

use serde_json::{Value, json};

use super::{Case, flags, octets, run};
use crate::compile::{CompileError, abi};
use crate::compiled::Compiled;

fn steering(rules: Value) -> Compiled {
    Case::with(json!({ "steering": rules })).compiled()
}

#[test]
fn longer_prefix_inherits_the_rules_of_shorter_ones() {
    let compiled = steering(json!([
        { "name": "all", "destination": "0.0.0.0/0", "action": "drop" },
        { "name": "net", "destination": "10.0.0.0/8", "protocol": "udp", "policy": "a" },
        { "name": "host", "destination": "10.1.1.1/32", "protocol": "tcp", "action": "pass" },
        { "name": "six", "destination": "::/0", "policy": "a" }
    ]));
    assert_eq!(run(&compiled, "10.1.1.1/32").names, ["host", "net", "all"]);
    assert_eq!(run(&compiled, "10.0.0.0/8").names, ["net", "all"]);
    assert_eq!(run(&compiled, "0.0.0.0/0").names, ["all"]);
    assert_eq!(run(&compiled, "::/0").names, ["six"]);
    let mut taken: Vec<u32> =
        compiled.steering.iter().flat_map(|run| run.first..run.first + run.rules.len() as u32).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..7).collect::<Vec<_>>(), "runs do not overlap");
    let host = run(&compiled, "10.1.1.1/32");
    assert_eq!((flags(host.rules[0].action), host.rules[0].policy), (abi::SEGUE_STEER_PASS, abi::SEGUE_NONE));
    assert_eq!((host.rules[0].protocol, flags(host.rules[0].flags)), (6, abi::SEGUE_STEER_PROTOCOL));
    assert_eq!(
        (flags(host.rules[1].action), host.rules[1].policy),
        (abi::SEGUE_STEER_POLICY, compiled.policies[0].index)
    );
    assert_eq!(flags(host.rules[2].action), abi::SEGUE_STEER_DROP);
    assert_eq!(
        host.rules[1].counter,
        run(&compiled, "10.0.0.0/8").rules[0].counter,
        "inherited rules share their counter"
    );
}

#[test]
fn more_specific_rule_comes_first_and_an_unconditional_one_last() {
    let compiled = steering(json!([
        { "destination": "10.0.0.0/8", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "tcp", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "tcp", "destination_ports": [80], "policy": "a" },
        { "destination": "10.0.0.0/8", "source": "192.0.2.0/24", "policy": "a" },
        { "destination": "10.0.0.0/8", "ingress": "access0", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "udp", "policy": "a" },
        { "destination": "0.0.0.0/0", "protocol": "tcp", "policy": "a" },
        { "destination": "10.0.0.0/8", "policy": "a" }
    ]));
    let names = &run(&compiled, "10.0.0.0/8").names;
    assert_eq!(names, &["rule 4", "rule 3", "rule 2", "rule 6", "rule 5", "rule 1"], "nothing is tried behind rule 1");
    let rules = &run(&compiled, "10.0.0.0/8").rules;
    assert_eq!(rules[0].source[..4], [192, 0, 2, 0]);
    assert_eq!(rules[0].source_mask[..5], [255, 255, 255, 0, 0]);
    assert_eq!(rules[4].ingress, 3);
    assert_eq!(compiled.steering_counters.len(), 8, "rules that are never tried show with 0 packets");
}

#[test]
fn port_ranges_are_merged_and_paired() {
    let compiled = steering(json!([
        { "destination": "2001:db8::/32", "source": "2001:db8:1::/48", "protocol": "udp", "policy": "a",
          "source_ports": ["1000-2000", "2001-3000", "1500-1600"], "destination_ports": [53, "5353-5353", 443] },
        { "destination": "2001:db9::/32", "protocol": "udp", "policy": "a", "destination_ports": ["0-65535"] }
    ]));
    let rules = &run(&compiled, "2001:db8::/32").rules;
    let ports: Vec<(u16, u16, u16, u16)> = rules
        .iter()
        .map(|r| (r.source_port_low, r.source_port_high, r.destination_port_low, r.destination_port_high))
        .collect();
    assert_eq!(ports, [(1000, 3000, 53, 53), (1000, 3000, 443, 443), (1000, 3000, 5353, 5353)]);
    assert_eq!(flags(rules[0].flags), abi::SEGUE_STEER_PROTOCOL | abi::SEGUE_STEER_PORTS);
    assert_eq!(rules[0].source, octets("2001:db8:1::"));
    let all = run(&compiled, "2001:db9::/32").rules[0];
    assert_eq!((all.source_port_low, all.source_port_high), (0, 65535));
    assert_eq!(
        flags(all.flags) & abi::SEGUE_STEER_PORTS,
        abi::SEGUE_STEER_PORTS,
        "fragments have no ports, so still compared"
    );
}

#[test]
fn too_many_rules_for_one_prefix_are_refused() {
    let ports: Vec<u32> = (0..33).map(|n| 2 * n).collect();
    let error = Case::with(json!({ "steering": [
        { "destination": "10.0.0.0/8", "protocol": "tcp", "destination_ports": ports, "policy": "a" }
    ] }))
    .error();
    assert_eq!(error, CompileError::Rules { destination: "10.0.0.0/8".parse().expect("a prefix"), count: 33, max: 32 });
}
