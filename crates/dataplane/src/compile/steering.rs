//! Steering rules (RFC 9256 section 8.8): a trie of destination prefixes, and for each the rules that are tried in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use segue_abi as abi;
use segue_model::node::{SteeringRule, SteeringVerdict};
use segue_model::value::PortRange;
use zerocopy::FromZeros;

use super::allocate::Runs;
use super::policy::Policies;
use super::{CompileError, Compiler, counter_name};
use crate::compiled::CompiledSteering;
use crate::facts::Table;

/// A rule of the configuration after expansion of its port ranges.
struct Expanded {
    name: String,
    entries: Vec<abi::SteeringRule>,
    /// No condition but the destination: what stands behind it is never tried.
    unconditional: bool,
}

type Tries = Vec<CompiledSteering>;

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
) -> Result<(Tries, BTreeMap<String, u32>), CompileError> {
    let input = compiler.input;
    let mut counters = BTreeMap::new();
    let mut by_destination: BTreeMap<IpNet, Vec<Expanded>> = BTreeMap::new();
    let mut rules: Vec<(usize, &SteeringRule)> = input.state.steering.iter().enumerate().collect();
    rules.sort_by_key(|(position, rule)| (Reverse(specificity(rule)), *position));
    let mut names = BTreeSet::new();
    for (position, rule) in rules {
        let name = rule_name(rule, position);
        let place = format!("steering rule {name}");
        if !names.insert(name.clone()) {
            return Err(CompileError::Duplicate { place });
        }
        let Some(expanded) = expand(compiler, policies, rule, &name, &place, &mut counters)? else { continue };
        by_destination.entry(rule.destination.trunc()).or_default().push(expanded);
    }
    compiler.check_room(Table::SteeringPrefixes, by_destination.len(), input.capacity.steering_prefixes, "steering")?;
    let runs = lay_out(compiler, &by_destination)?;
    Ok((runs, counters))
}

/// The name of a rule without one is its position, counted from 1.
pub fn rule_name(rule: &SteeringRule, position: usize) -> String {
    rule.name.clone().unwrap_or_else(|| format!("rule {}", position + 1))
}

/// Order among rules for the same destination: the longer source prefix, then a protocol, then ports, then an ingress port.
fn specificity(rule: &SteeringRule) -> (u8, bool, usize, bool) {
    let source = rule.source.map_or(0, |source| source.prefix_len());
    let ports = usize::from(!rule.source_ports.is_empty()) + usize::from(!rule.destination_ports.is_empty());
    (source, rule.protocol.is_some(), ports, rule.ingress.is_some())
}

fn expand(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    rule: &SteeringRule,
    name: &str,
    place: &str,
    counters: &mut BTreeMap<String, u32>,
) -> Result<Option<Expanded>, CompileError> {
    let mut entry = abi::SteeringRule::new_zeroed();
    (entry.action, entry.policy) = match (&rule.policy, rule.action) {
        (Some(policy), None) => (abi::SEGUE_STEER_POLICY as u8, policies.index(policy, place)?),
        (None, Some(SteeringVerdict::Pass)) => (abi::SEGUE_STEER_PASS as u8, abi::SEGUE_NONE),
        (None, Some(SteeringVerdict::Drop)) => (abi::SEGUE_STEER_DROP as u8, abi::SEGUE_NONE),
        _ => return Err(CompileError::invalid(place, "give either `policy` or `action`")),
    };
    let source = rule.source.filter(|source| source.prefix_len() != 0);
    match (rule.destination, source) {
        (IpNet::V4(_), Some(IpNet::V4(source))) => {
            entry.source[..4].copy_from_slice(&source.network().octets());
            entry.source_mask[..4].copy_from_slice(&source.netmask().octets());
        }
        (IpNet::V6(_), Some(IpNet::V6(source))) => {
            entry.source = source.network().octets();
            entry.source_mask = source.netmask().octets();
        }
        (_, None) => {}
        _ => return Err(CompileError::invalid(place, "`source` and `destination` must be of one address family")),
    }
    if let Some(protocol) = rule.protocol {
        entry.protocol = protocol.0;
        entry.flags |= abi::SEGUE_STEER_PROTOCOL as u8;
    }
    if let Some(ingress) = &rule.ingress {
        let Some(interface) = compiler.interface(place, ingress)? else { return Ok(None) };
        entry.ingress = interface.ifindex;
    }
    let ports = !rule.source_ports.is_empty() || !rule.destination_ports.is_empty();
    if ports {
        entry.flags |= abi::SEGUE_STEER_PORTS as u8;
    }
    entry.counter = compiler.counters.take(counter_name::steering(name), place)?;
    counters.insert(name.to_owned(), entry.counter);
    let unconditional = source.is_none() && rule.protocol.is_none() && !ports && rule.ingress.is_none();
    Ok(Some(Expanded { name: name.to_owned(), entries: with_ports(&entry, rule, ports), unconditional }))
}

/// One entry for each pair of a source port range and a destination port range.
fn with_ports(entry: &abi::SteeringRule, rule: &SteeringRule, ports: bool) -> Vec<abi::SteeringRule> {
    if !ports {
        return vec![*entry];
    }
    let sources = merged(&rule.source_ports);
    let destinations = merged(&rule.destination_ports);
    let pairs = sources.iter().flat_map(|source| destinations.iter().map(move |destination| (*source, *destination)));
    pairs
        .map(|(source, destination)| abi::SteeringRule {
            source_port_low: source.0,
            source_port_high: source.1,
            destination_port_low: destination.0,
            destination_port_high: destination.1,
            ..*entry
        })
        .collect()
}

/// The ranges in order, those that touch or overlap as one; all ports if none is given.
fn merged(ranges: &[PortRange]) -> Vec<(u16, u16)> {
    let mut sorted: Vec<(u16, u16)> = ranges.iter().map(|range| (range.low(), range.high())).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (low, high) in sorted {
        match merged.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    if merged.is_empty() { vec![(0, u16::MAX)] } else { merged }
}

/// Writes the rules of each destination one behind the other, each followed by those of shorter prefixes that cover it.
fn lay_out(compiler: &Compiler<'_>, by_destination: &BTreeMap<IpNet, Vec<Expanded>>) -> Result<Tries, CompileError> {
    let capacity = compiler.input.capacity.steering_rules;
    let previous = compiler.input.previous.map(|previous| previous.steering.as_slice()).unwrap_or_default();
    let before: BTreeMap<IpNet, &CompiledSteering> = previous.iter().map(|run| (run.destination, run)).collect();
    let mut runs = Runs::new(2 * capacity, previous.iter().map(|run| (run.first, run.rules.len() as u32)), capacity);
    let mut laid_out = Vec::new();
    let mut total = 0;
    for &destination in by_destination.keys() {
        let (names, rules) = tried(by_destination, destination)?;
        let place = format!("steering to {destination}");
        total += rules.len();
        compiler.check_room(Table::SteeringRules, total, capacity, &place)?;
        let same = before.get(&destination).filter(|run| run.rules == rules);
        let first = match same {
            Some(same) => same.first,
            None => runs.take(rules.len() as u32, &place)?,
        };
        laid_out.push(CompiledSteering { destination, first, names, rules });
    }
    Ok(laid_out)
}

/// The rules for one destination, in the order in which they are tried, with their names.
fn tried(
    by_destination: &BTreeMap<IpNet, Vec<Expanded>>,
    destination: IpNet,
) -> Result<(Vec<String>, Vec<abi::SteeringRule>), CompileError> {
    let mut names = Vec::new();
    let mut rules = Vec::new();
    let mut covering = Some(destination);
    'prefixes: while let Some(prefix) = covering {
        for rule in by_destination.get(&prefix).into_iter().flatten() {
            names.extend(rule.entries.iter().map(|_| rule.name.clone()));
            rules.extend_from_slice(&rule.entries);
            if rule.unconditional {
                break 'prefixes;
            }
        }
        covering = prefix.supernet();
    }
    let max = abi::SEGUE_RULES_PER_PREFIX as usize;
    if rules.len() > max {
        return Err(CompileError::Rules { destination, count: rules.len(), max });
    }
    Ok((names, rules))
}
