//! Steering rules (RFC 9256 section 8.8) in the order in which they are tried, as one chain of the classifier.
//!
//! The structure follows from what rules match alone. Policies and counters are put into its lines when it is written, so
//! that it is compiled anew only when the matches have changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use segue_classifier::image::{Image, LINE};
use segue_classifier::program::{Action, Chain, Condition, Program, Rule, Test};
use segue_classifier::{Field, compile as classifier};
use segue_model::node::{NodeState, SteeringRule, SteeringVerdict};
use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;

use super::allocate::full_for;
use super::policy::Policies;
use super::{CompileError, Compiler, counter_name};
use crate::compiled::{CompiledSteering, SteeringImage};
use crate::facts::{Interfaces, Table};

/// Structures that may be needed again soon, the latest last: they may have been compiled in advance, a check is followed by an
/// apply, and either may be repeated for larger tables.
static RECENT: Mutex<Vec<(String, Arc<Image>)>> = Mutex::new(Vec::new());
/// They may be large.
const RECENT_MAX: usize = 2;

/// The rules in the order in which they are tried.
#[derive(Default)]
struct Ordered {
    rules: Vec<Rule>,
    /// Policy and row in `counters` of each.
    results: Vec<[u32; 2]>,
    counters: BTreeMap<String, u32>,
}

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
) -> Result<(CompiledSteering, BTreeMap<String, u32>), CompileError> {
    let input = compiler.input;
    compiler.check_room(Table::SteeringRules, input.state.steering.len(), input.capacity.steering_rules, "steering")?;
    let ordered = order(compiler, policies)?;
    if ordered.rules.is_empty() {
        return Ok((CompiledSteering::default(), ordered.counters));
    }
    let matches = hash_matches(&ordered.rules);
    let source = hex(Sha256::new().chain_update(&matches).chain_update(ordered.results.as_bytes()));
    let previous = input.previous.map(|previous| &previous.steering);
    if let Some(same) = previous.filter(|previous| previous.source == source) {
        return Ok((same.clone(), ordered.counters));
    }
    let image = recent(&matches, ordered.rules).map_err(|problem| CompileError::invalid("steering", problem))?;
    let lines = u32::try_from(image.lines()).unwrap_or(u32::MAX);
    let half_lines = input.capacity.steering / 2 / LINE as u32;
    if lines > half_lines {
        let needed = lines.saturating_mul(2).saturating_mul(LINE as u32);
        return Err(full_for("steering", Table::SteeringLines, input.capacity.steering, needed));
    }
    // The other half than that which packets walk: after the map has grown, that is in the first one.
    let half = u32::from(previous.is_some_and(|previous| previous.chain != 0 && previous.first_line < half_lines));
    let first_line = half * half_lines;
    let chain = image.chain_line(0, first_line);
    let image = Some(Arc::new(SteeringImage { image, results: ordered.results }));
    Ok((CompiledSteering { source, half, first_line, chain, image }, ordered.counters))
}

/// The name of a rule without one is its position, counted from 1.
pub fn rule_name(rule: &SteeringRule, position: usize) -> String {
    rule.name.clone().unwrap_or_else(|| format!("rule {}", position + 1))
}

/// Whether some rule looks at what does not tell flows apart.
pub(super) fn looks_at_marks(rules: &[SteeringRule]) -> bool {
    rules.iter().any(|rule| !rule.dscp.is_empty() || !rule.flow_labels.is_empty())
}

/// Order of rules: the longer destination prefix, then the longer source prefix, then a protocol, then ports, then an
/// ingress port, then flow label and DSCP.
fn specificity(rule: &SteeringRule) -> (u8, u8, bool, usize, bool, usize) {
    let source = rule.source.map_or(0, |source| source.prefix_len());
    let given = |lists: [bool; 2]| lists.into_iter().filter(|empty| !empty).count();
    let ports = given([rule.source_ports.is_empty(), rule.destination_ports.is_empty()]);
    let marks = given([rule.flow_labels.is_empty(), rule.dscp.is_empty()]);
    (rule.destination.prefix_len(), source, rule.protocol.is_some(), ports, rule.ingress.is_some(), marks)
}

fn order(compiler: &mut Compiler<'_>, policies: &Policies) -> Result<Ordered, CompileError> {
    let mut ordered = Ordered::default();
    let mut names = BTreeSet::new();
    for (position, rule) in tried(&compiler.input.state.steering) {
        let name = rule_name(rule, position);
        let place = format!("steering rule {name}");
        if !names.insert(name.clone()) {
            return Err(CompileError::Duplicate { place });
        }
        let index = |policy| policies.index(policy, &place);
        let policy = rule.policy.as_deref().map(index).transpose()?.unwrap_or(0);
        let ingress = rule.ingress.as_deref().map(|name| compiler.interface(&place, name)).transpose()?;
        let classified = classified(rule, ingress.map(|found| found.map(|interface| interface.ifindex)));
        let Some(classified) = classified.map_err(|problem| CompileError::invalid(&place, problem))? else { continue };
        let counter = compiler.counters.take(counter_name::steering(&name), &place)?;
        ordered.rules.push(classified);
        ordered.results.push([policy, counter]);
        ordered.counters.insert(name, counter);
    }
    Ok(ordered)
}

/// The rules with their positions, in the order in which they are tried.
fn tried(rules: &[SteeringRule]) -> Vec<(usize, &SteeringRule)> {
    let mut rules: Vec<(usize, &SteeringRule)> = rules.iter().enumerate().collect();
    rules.sort_by_cached_key(|(position, rule)| (Reverse(rule.priority), Reverse(specificity(rule)), *position));
    rules
}

/// Compiles the structure for the rules of `state` where nobody waits for it, so that a check or an apply soon after does not have to
/// while this is kept. What is wrong with the rules is for these to say.
pub(super) fn prepare(state: &NodeState, interfaces: &Interfaces) -> Option<Arc<Image>> {
    let ifindex = |name| interfaces.get(name).map(|interface| interface.ifindex);
    let mut rules = Vec::new();
    for (_, rule) in tried(&state.steering) {
        rules.extend(classified(rule, rule.ingress.as_deref().map(ifindex)).ok()?);
    }
    if rules.is_empty() {
        return None;
    }
    recent(&hash_matches(&rules), rules).ok()
}

/// Steering rules as the classifier has them, before they become a structure.
#[derive(Debug, Clone, Default)]
pub struct SteeringRules {
    /// One chain, in the order in which the rules are tried.
    pub program: Program,
    /// Where in the configuration each of them stands.
    pub positions: Vec<usize>,
}

/// The rules that [`super::compile`] makes the structure of.
///
/// # Errors
/// A rule that is not possible.
pub fn steering_rules(state: &NodeState, interfaces: &Interfaces) -> Result<SteeringRules, String> {
    let ifindex = |name| interfaces.get(name).map(|interface| interface.ifindex);
    let (mut rules, mut positions) = (Vec::new(), Vec::new());
    for (position, rule) in tried(&state.steering) {
        if let Some(classified) = classified(rule, rule.ingress.as_deref().map(ifindex))? {
            rules.push(classified);
            positions.push(position);
        }
    }
    let chain = Chain { name: "steering".to_owned(), rules, policy: None };
    Ok(SteeringRules { program: Program { chains: vec![chain], sets: Vec::new() }, positions })
}

/// The rule as the classifier has it. `ingress`: the interface that it names. `None`: it is left out, because there is no such
/// interface.
fn classified(rule: &SteeringRule, ingress: Option<Option<u32>>) -> Result<Option<Rule>, String> {
    let action = match (&rule.policy, rule.action) {
        // Which policy it is stands beside the structure.
        (Some(_), None) => Action::Policy(0),
        (None, Some(SteeringVerdict::Pass)) => Action::Accept,
        (None, Some(SteeringVerdict::Drop)) => Action::Drop,
        _ => return Err("give either `policy` or `action`".to_owned()),
    };
    let conditions = conditions(rule, ingress)?;
    Ok(conditions.map(|conditions| Rule {
        conditions,
        extensions: Vec::new(),
        action,
        line: None,
        text: String::new(),
    }))
}

/// What a packet must be.
fn conditions(rule: &SteeringRule, ingress: Option<Option<u32>>) -> Result<Option<Vec<Condition>>, String> {
    let [source, destination] = match rule.destination {
        IpNet::V4(_) => [Field::SourceIpv4, Field::DestinationIpv4],
        IpNet::V6(_) => [Field::SourceIpv6, Field::DestinationIpv6],
    };
    let mut conditions = vec![prefix(destination, rule.destination)];
    if let Some(net) = rule.source.filter(|source| source.prefix_len() != 0) {
        if matches!(net, IpNet::V4(_)) != matches!(rule.destination, IpNet::V4(_)) {
            return Err("`source` and `destination` must be of one address family".to_owned());
        }
        conditions.push(prefix(source, net));
    }
    if let Some(protocol) = rule.protocol {
        conditions.push(condition(Field::Protocol, Test::equal(Field::Protocol, protocol.0.into())));
    }
    for (field, ports) in [(Field::SourcePort, &rule.source_ports), (Field::DestinationPort, &rule.destination_ports)] {
        if !ports.is_empty() {
            let ports = ports.iter().map(|range| (range.low().into(), range.high().into())).collect();
            conditions.push(condition(field, Test::Ranges(ports)));
        }
    }
    if let Some(ingress) = ingress {
        let Some(ifindex) = ingress else { return Ok(None) };
        conditions.push(condition(Field::Ingress, Test::equal(Field::Ingress, ifindex.into())));
    }
    for (field, range) in [(source, rule.source_range), (destination, rule.destination_range)] {
        conditions
            .extend(range.map(|range| condition(field, Test::range(number(range.first()), number(range.last())))));
    }
    for (field, values) in [(Field::FlowLabel, &rule.flow_labels), (Field::Dscp, &rule.dscp)] {
        if !values.is_empty() {
            let values = values.iter().map(|range| (range.low().into(), range.high().into())).collect();
            conditions.push(condition(field, Test::Ranges(values)));
        }
    }
    Ok(Some(conditions))
}

fn condition(field: Field, test: Test) -> Condition {
    Condition { field, negated: false, test }
}

fn prefix(field: Field, net: IpNet) -> Condition {
    condition(field, Test::prefix(field, number(net.network()), net.prefix_len().into()))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// What the structure follows from.
fn hash_matches(rules: &[Rule]) -> String {
    let mut hash = Sha256::new();
    let mut octets = Vec::new();
    for rule in rules {
        octets.clear();
        octets.push(match rule.action {
            Action::Policy(_) => 0,
            Action::Accept => 1,
            _ => 2,
        });
        for condition in &rule.conditions {
            octets.extend(condition.field.identity());
            let mut pair = |kind: u8, first: &u128, second: &u128| {
                octets.push(kind);
                octets.extend(first.to_ne_bytes());
                octets.extend(second.to_ne_bytes());
            };
            match &condition.test {
                Test::Masked { value, mask } => pair(0, value, mask),
                Test::AnyBit(mask) => pair(1, mask, mask),
                Test::Ranges(ranges) => ranges.iter().for_each(|(first, last)| pair(2, first, last)),
            }
        }
        octets.push(u8::MAX); // no field begins so
        hash.update(&octets);
    }
    hex(hash)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The structure for these rules.
fn recent(matches: &str, rules: Vec<Rule>) -> Result<Arc<Image>, String> {
    let known = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, image)) = known().iter().find(|(of, _)| of == matches) {
        return Ok(Arc::clone(image));
    }
    // Not under the lock: whoever needs another structure, or has it, does not wait for this one.
    let chain = Chain { name: "steering".to_owned(), rules, policy: None };
    let image = classifier::compile(&Program { chains: vec![chain], sets: Vec::new() });
    let image = Arc::new(image.map_err(|error| error.to_string())?);
    let mut known = known();
    while known.len() >= RECENT_MAX {
        // What somebody keeps is to be used yet.
        let idle = known.iter().position(|(_, image)| Arc::strong_count(image) == 1);
        known.remove(idle.unwrap_or(0));
    }
    known.push((matches.to_owned(), Arc::clone(&image)));
    Ok(image)
}
