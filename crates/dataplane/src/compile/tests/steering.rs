//! Order and meaning of steering rules, by the structure that the data plane walks.

use segue_classifier::execute::Memory;
use segue_classifier::{Field, Key};
use serde_json::{Value, json};

use super::Case;
use crate::compile::CompileError;
use crate::compiled::Compiled;
use crate::facts::Table;

fn steering(rules: Value) -> Compiled {
    Case::with(json!({ "steering": rules })).compiled()
}

/// The rule that a packet is steered by, and the policy that its line names.
fn decided(compiled: &Compiled, key: &Key) -> Option<(String, u32)> {
    let steering = &compiled.steering;
    let found = steering.image.as_ref().expect("there are rules");
    let line = Memory::new(&found.image, steering.first_line).classify(steering.chain, key, 0);
    let number = line.checked_sub(found.image.rule_line(0, 0, steering.first_line))?;
    let [policy, counter] = found.results[number as usize];
    let name = compiled.steering_counters.iter().find(|(_, row)| **row == counter).expect("its counter").0;
    let octets = found.octets(steering.first_line);
    let at = (line - steering.first_line) as usize * 64 + 56;
    assert_eq!(octets[at..at + 8], [policy.to_le_bytes(), counter.to_le_bytes()].concat(), "what its line says");
    Some((name.clone(), policy))
}

fn name(compiled: &Compiled, key: &Key) -> String {
    decided(compiled, key).map_or_else(|| "none".to_owned(), |(name, _)| name)
}

fn four(source: &str, destination: &str) -> Key {
    let number = |address: &str| u32::from(address.parse::<std::net::Ipv4Addr>().expect("an address")).into();
    Key::new().with(Field::SourceIpv4, number(source)).with(Field::DestinationIpv4, number(destination))
}

fn six(source: &str, destination: &str) -> Key {
    let number = |address: &str| address.parse::<std::net::Ipv6Addr>().expect("an address").into();
    Key::new().with(Field::SourceIpv6, number(source)).with(Field::DestinationIpv6, number(destination))
}

fn ports(key: Key, protocol: u128, source: u128, destination: u128) -> Key {
    let key = key.with(Field::Protocol, protocol).with(Field::SourcePort, source);
    key.with(Field::DestinationPort, destination)
}

#[test]
fn longer_prefix_comes_first_and_gives_way_to_shorter_ones() {
    let compiled = steering(json!([
        { "name": "all", "destination": "0.0.0.0/0", "action": "drop" },
        { "name": "net", "destination": "10.0.0.0/8", "protocol": "udp", "policy": "a" },
        { "name": "host", "destination": "10.1.1.1/32", "protocol": "tcp", "action": "pass" },
        { "name": "six", "destination": "2001:db8::/32", "policy": "a" }
    ]));
    let host = four("192.0.2.1", "10.1.1.1");
    assert_eq!(name(&compiled, &ports(host, 6, 1, 2)), "host");
    assert_eq!(decided(&compiled, &ports(host, 17, 1, 2)), Some(("net".into(), compiled.policies[0].index)));
    assert_eq!(name(&compiled, &host.with(Field::Protocol, 1)), "all");
    assert_eq!(name(&compiled, &four("192.0.2.1", "11.0.0.1").with(Field::Protocol, 17)), "all");
    assert_eq!(name(&compiled, &six("2001:db8::1", "2001:db8::2")), "six");
    assert_eq!(name(&compiled, &six("2001:db8::1", "2001:db9::2")), "none");
    assert_eq!(compiled.config.steering, compiled.steering.chain);
}

#[test]
fn more_specific_rule_comes_first_then_the_earlier_one() {
    let compiled = steering(json!([
        { "destination": "10.0.0.0/8", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "tcp", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "tcp", "destination_ports": [80], "policy": "a" },
        { "destination": "10.0.0.0/8", "source": "192.0.2.0/24", "policy": "a" },
        { "destination": "10.0.0.0/8", "ingress": "access0", "policy": "a" },
        { "destination": "10.0.0.0/8", "protocol": "udp", "policy": "a" },
        { "destination": "0.0.0.0/0", "protocol": "tcp", "policy": "a" },
        { "destination": "10.0.0.0/8", "policy": "a" },
        { "destination": "0.0.0.0/0", "protocol": "tcp", "destination_ports": [99], "priority": 1, "policy": "a" }
    ]));
    let packet = ports(four("198.51.100.1", "10.0.0.1"), 6, 5, 80);
    assert_eq!(name(&compiled, &ports(four("192.0.2.9", "10.0.0.1"), 6, 5, 80)), "rule 4");
    assert_eq!(name(&compiled, &packet), "rule 3");
    assert_eq!(name(&compiled, &packet.with(Field::DestinationPort, 81)), "rule 2");
    assert_eq!(name(&compiled, &packet.with(Field::DestinationPort, 99)), "rule 9", "by its priority");
    assert_eq!(name(&compiled, &packet.with(Field::Protocol, 17)), "rule 6");
    assert_eq!(name(&compiled, &packet.with(Field::Protocol, 1).with(Field::Ingress, 3)), "rule 5");
    assert_eq!(name(&compiled, &packet.with(Field::Protocol, 1)), "rule 1");
    assert_eq!(name(&compiled, &ports(four("198.51.100.1", "11.0.0.1"), 6, 5, 80)), "rule 7");
    assert_eq!(compiled.steering_counters.len(), 9, "rules that are never hit show with 0 packets");
}

#[test]
fn ports_marks_and_ranges() {
    let compiled = steering(json!([
        { "name": "ports", "destination": "2001:db8::/32", "source": "2001:db8:1::/48", "protocol": "udp", "policy": "a",
          "source_ports": ["1000-2000", "2001-3000", "1500-1600"], "destination_ports": [53, "5353-5353", 443] },
        { "name": "any port", "destination": "2001:db9::/32", "protocol": "udp", "policy": "a", "destination_ports": ["0-65535"] },
        { "name": "label", "destination": "2001:db8::/32", "flow_labels": ["0x10-0x1f"], "policy": "a" },
        { "name": "dscp", "destination": "2001:db8::/32", "dscp": [46, "8-9"], "policy": "a" },
        { "name": "range", "destination": "10.0.0.0/8", "policy": "a",
          "source_range": "192.0.2.5-192.0.2.9", "destination_range": "10.0.0.250-10.0.1.5" }
    ]));
    let udp = ports(six("2001:db8:1::1", "2001:db8::1"), 17, 2500, 443);
    assert_eq!(name(&compiled, &udp), "ports");
    assert_eq!(name(&compiled, &udp.with(Field::SourcePort, 3001)), "none");
    assert_eq!(name(&compiled, &udp.with(Field::DestinationPort, 54)), "none");
    assert_eq!(name(&compiled, &udp.with(Field::DestinationPort, 54).with(Field::FlowLabel, 0x1f)), "label");
    assert_eq!(name(&compiled, &udp.with(Field::DestinationPort, 54).with(Field::FlowLabel, 0x20)), "none");
    assert_eq!(name(&compiled, &udp.with(Field::DestinationPort, 54).with(Field::Dscp, 9)), "dscp");
    let fragment = six("2001:db8:1::1", "2001:db9::1").with(Field::Protocol, 17);
    assert_eq!(name(&compiled, &fragment), "none", "fragments have no ports");
    assert_eq!(name(&compiled, &ports(fragment, 17, 0, 65535)), "any port");
    for (source, destination, wanted) in [
        ("192.0.2.5", "10.0.0.250", "range"),
        ("192.0.2.9", "10.0.1.5", "range"),
        ("192.0.2.10", "10.0.1.5", "none"),
        ("192.0.2.9", "10.0.1.6", "none"),
    ] {
        assert_eq!(name(&compiled, &four(source, destination)), wanted, "{source} {destination}");
    }
}

#[test]
fn more_rules_or_a_larger_structure_than_there_is_room_for_are_refused() {
    let rules = |count: u32| -> Value {
        (0..count).map(|n| json!({ "destination": format!("10.{n}.0.0/16"), "policy": "a" })).collect()
    };
    let full = |case: &Case| match case.error() {
        CompileError::TableFull { table, capacity, needed, .. } => (table, capacity, needed),
        other => panic!("{other}"),
    };
    assert_eq!(full(&Case::with(json!({ "steering": rules(41) }))), (Table::SteeringRules, 40, 41));
    let mut case = Case::with(json!({ "steering": rules(40) }));
    case.capacity.steering = 1 << 12;
    let (table, capacity, needed) = full(&case);
    assert_eq!((table, capacity), (Table::SteeringLines, 1 << 12));
    case.capacity.steering = needed.next_power_of_two();
    case.compiled();
}
