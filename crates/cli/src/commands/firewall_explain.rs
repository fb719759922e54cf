//! `firewall explain`: a packet's way through the rules that the node has.

use std::net::IpAddr;

use anyhow::{Result, anyhow};
use segue_classifier::{
    Extension, Field, Key, Program,
    explain::{FieldValue, StepResult, explain},
    interpreter::End,
    iptables::{Family, Mode, SetFile, Surroundings, parse_rules, parse_sets, parse_yaml},
    program::{Set, SetValue, Side},
};
use segue_model::firewall::{Firewall, FirewallMode, RuleFile};

use crate::args::{PacketArgs, StateArg};

/// The way of a packet through the rules of a firewall, as text.
pub fn run(firewall: &Firewall, packet: &PacketArgs) -> Result<String> {
    let key = key(packet)?;
    let family = if packet.source.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    let Some(program) = program(firewall, family)? else {
        return Ok(format!("firewall {} has no rules for {family}: the packet passes\n", firewall.name));
    };
    let hook = program.chain(&firewall.hook).ok_or_else(|| anyhow!("there is no chain {}", firewall.hook))?;
    let way = explain(&program, hook, &key, |_, _, extension, key| holds(&program, extension, key));
    let mut text = String::new();
    for step in &way.steps {
        let chain = &program.chains[step.chain];
        let rule = &chain.rules[step.rule];
        let line = rule.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let result = match &step.result {
            StepResult::Hit => "hit".to_owned(),
            StepResult::Extension(index) => {
                format!("not hit: {} does not hold", describe(&program, &rule.extensions[*index]))
            }
            StepResult::Condition { index, value } => {
                let condition = &rule.conditions[*index];
                match value {
                    Some(value) => format!("not hit: {condition}, but it is {}", FieldValue(condition.field, *value)),
                    None => format!("not hit: {condition}, but the packet has no such field"),
                }
            }
        };
        text.push_str(&format!("{} {}{line}: {}\n    {result}\n", chain.name, step.rule + 1, rule.text));
    }
    let end = match way.walk.end {
        End::Accept => "the packet passes".to_owned(),
        End::Drop => "the packet is dropped".to_owned(),
        End::Reject(kind) => format!("the packet is rejected: {kind:?}"),
        End::Seg6(action) => format!("SEG6 {action:?}"),
        End::Steps => "the packet is dropped: it hits too many rules".to_owned(),
        other => format!("{other:?}"),
    };
    let policy = matches!(way.steps.last(), Some(step) if step.result == StepResult::Hit);
    let by = if policy { "" } else { ", by the policy" };
    text.push_str(&format!("{end}{by}\n"));
    Ok(text)
}

fn text(file: &RuleFile) -> Result<&str> {
    file.text().ok_or_else(|| anyhow!("{}: the agent has no text of it; apply the document again", file.name()))
}

fn program(firewall: &Firewall, family: Family) -> Result<Option<Program>> {
    let mut sets = SetFile::default();
    for file in &firewall.sets {
        sets.sets.extend(parse_sets(text(file)?, file.name()).map_err(|errors| anyhow!("{errors}"))?.sets);
    }
    let own = if family == Family::Ipv4 { &firewall.ipv4 } else { &firewall.ipv6 };
    let (rules, file) = match (own, &firewall.yaml) {
        (Some(file), _) => (parse_rules(text(file)?, file.name(), family), file),
        (None, Some(file)) => (parse_yaml(text(file)?, file.name()), file),
        (None, None) => return Ok(None),
    };
    let rules = rules.map_err(|errors| anyhow!("{errors}"))?;
    if rules.family != family {
        return Ok(None);
    }
    let mode = if firewall.mode == FirewallMode::Advanced { Mode::Advanced } else { Mode::Basic };
    // Interfaces are the node's: rules that name one match no packet here.
    let lowered = rules.lower(&sets, &Surroundings::default(), mode, file.name());
    Ok(Some(lowered.map_err(|errors| anyhow!("{errors}"))?.program))
}

fn key(packet: &PacketArgs) -> Result<Key> {
    let mut key = Key::new();
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            key.set(Field::SourceIpv4, source.to_bits().into());
            key.set(Field::DestinationIpv4, destination.to_bits().into());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            key.set(Field::SourceIpv6, source.to_bits());
            key.set(Field::DestinationIpv6, destination.to_bits());
            key.set(Field::OuterSource, source.to_bits());
            key.set(Field::OuterDestination, destination.to_bits());
        }
        _ => return Err(anyhow!("source and destination must be of one family")),
    }
    key.set(Field::Protocol, packet.protocol.0.into());
    key.set(Field::Length, packet.length.into());
    key.set(Field::HopLimit, 64);
    for (field, port) in [(Field::SourcePort, packet.source_port), (Field::DestinationPort, packet.destination_port)] {
        if let Some(port) = port {
            key.set(field, port.into());
        }
    }
    match packet.protocol.0 {
        6 => key.set(Field::TcpFlags, packet.tcp_flags.into()),
        1 | 58 => {
            key.set(Field::IcmpType, packet.icmp_type.into());
            key.set(Field::IcmpCode, packet.icmp_code.into());
        }
        _ => {}
    }
    let state = match packet.state {
        StateArg::Invalid => 1,
        StateArg::Established => 2,
        StateArg::Related => 4,
        StateArg::New => 8,
        StateArg::Untracked => 64,
    };
    key.set(Field::ConnectionState, state);
    Ok(key)
}

/// Limits are taken to have a token.
fn holds(program: &Program, extension: &Extension, key: &Key) -> bool {
    match extension {
        Extension::Limit(_) => true,
        Extension::HashLimit(limit) => !limit.above,
        Extension::Set { set, sides, negated } => in_set(&program.sets[*set], sides, key) != *negated,
    }
}

fn describe(program: &Program, extension: &Extension) -> String {
    match extension {
        Extension::Limit(_) => "the limit".to_owned(),
        Extension::HashLimit(limit) => format!("hashlimit {}", limit.name),
        Extension::Set { set, negated, .. } => {
            format!("{}set {}", if *negated { "not in " } else { "in " }, program.sets[*set].name)
        }
    }
}

/// The most specific member that fits decides.
fn in_set(set: &Set, sides: &[Side], key: &Key) -> bool {
    let fits = |value: &SetValue, side: &Side| {
        let pick = |source, destination| if *side == Side::Source { source } else { destination };
        match *value {
            SetValue::Prefix { address, length } => {
                let (field, bits) = match set.family {
                    4 => (pick(Field::SourceIpv4, Field::DestinationIpv4), 32),
                    _ => (pick(Field::SourceIpv6, Field::DestinationIpv6), 128),
                };
                let free = bits - u32::from(length);
                let cut = |value: u128| value.checked_shr(free).unwrap_or(0);
                key.get(field).is_some_and(|value| cut(value) == cut(address))
            }
            SetValue::Ports { protocol, first, last } => {
                let same = protocol.is_none_or(|protocol| key.get(Field::Protocol) == Some(protocol.into()));
                let port = key.get(pick(Field::SourcePort, Field::DestinationPort));
                same && port.is_some_and(|port| (u128::from(first)..=u128::from(last)).contains(&port))
            }
            SetValue::Number(_) => false,
        }
    };
    let length = |entry: &segue_classifier::program::SetEntry| -> u32 {
        let of = |value: &SetValue| if let SetValue::Prefix { length, .. } = value { u32::from(*length) } else { 0 };
        entry.values.iter().map(of).sum()
    };
    let fitting =
        set.entries.iter().filter(|entry| entry.values.iter().zip(sides).all(|(value, side)| fits(value, side)));
    // Among equals the first.
    let best = fitting.rev().max_by_key(|entry| length(entry));
    best.is_some_and(|entry| !entry.no_match)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        packet: PacketArgs,
    }

    #[test]
    fn says_why_rules_are_not_hit() {
        let yaml = "node: n\nsource_address: fd00::1\nfirewalls:\n  - name: fw\n    ipv6: {file: rules.v6, text: \"*filter\\n:FORWARD DROP [0:0]\\n-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT\\n-A FORWARD -s fd00::/64 -j ACCEPT\\nCOMMIT\\n\"}\n";
        let state = segue_model::load::load_node_state(yaml, "node.yaml").unwrap();
        let explained = |words: &[&str]| {
            let line = Line::parse_from(["x", "--destination", "fd01::2"].iter().chain(words));
            run(&state.firewalls[0], &line.packet).unwrap()
        };
        let text = explained(&["--source", "fd00::1", "--protocol", "tcp", "--destination-port", "23"]);
        assert!(text.contains("FORWARD 1 (line 3)") && text.contains("but it is 23"), "{text}");
        assert!(text.contains("FORWARD 2 (line 4)") && text.ends_with("hit\nthe packet passes\n"), "{text}");
        let text = explained(&["--source", "fd05::1"]);
        assert!(text.ends_with("the packet is dropped, by the policy\n"), "{text}");
    }
}
