//! A set as a chain of rules: a member's rule says ACCEPT, that of a member with `nomatch` DROP; the most specific comes first.

use std::collections::HashMap;

use segue_classifier::interpreter::classify;
use segue_classifier::program::{
    Action, Chain, Condition, Dimension, Extension, Rule, Set, SetEntry, SetValue, Side, Test,
};
use segue_classifier::{Field, Key, Program};

/// The chains that stand for the sets of a program: one for each set and the sides of the packet that it is compared with.
#[derive(Debug, Clone, Default)]
pub struct SetChains(HashMap<(usize, Vec<Side>), usize>);

impl SetChains {
    /// Appends the chains of all sets that rules of the program name to its chains.
    pub fn append(program: &mut Program) -> Self {
        let mut found = HashMap::new();
        let mut chains = Vec::new();
        let extensions = program.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.extensions);
        for extension in extensions {
            if let Extension::Set { set, sides, .. } = extension
                && !found.contains_key(&(*set, sides.clone()))
            {
                found.insert((*set, sides.clone()), program.chains.len() + chains.len());
                chains.push(chain(&program.sets[*set], sides));
            }
        }
        program.chains.extend(chains);
        Self(found)
    }

    /// The chain of a set (its index in [`Program::sets`]) that is compared with these sides.
    pub fn get(&self, set: usize, sides: &[Side]) -> Option<usize> {
        self.0.get(&(set, sides.to_vec())).copied()
    }

    /// Whether a packet is in the set: the member that its chain finds first says so. `program`: the one with these chains.
    pub fn contain(&self, program: &Program, set: usize, sides: &[Side], key: &Key) -> bool {
        let Some(chain) = self.get(set, sides) else { return false };
        let member = classify(program, chain, key, None).and_then(|rule| program.chains.get(chain)?.rules.get(rule));
        member.is_some_and(|member| member.action == Action::Accept)
    }
}

/// The chain of a set whose dimensions are compared with these sides of the packet.
fn chain(set: &Set, sides: &[Side]) -> Chain {
    let mut entries: Vec<&SetEntry> = set.entries.iter().collect();
    // Stable: among equals the file's order.
    entries.sort_by_key(|entry| {
        let lengths = entry.values.iter().map(|value| match value {
            SetValue::Prefix { length, .. } => u32::from(*length),
            _ => 0,
        });
        std::cmp::Reverse(lengths.sum::<u32>())
    });
    let rule = |entry: &SetEntry| Rule {
        conditions: entry
            .values
            .iter()
            .zip(&set.dimensions)
            .zip(sides)
            .flat_map(|((value, dimension), side)| conditions(set, *value, *dimension, *side))
            .collect(),
        extensions: Vec::new(),
        action: if entry.no_match { Action::Drop } else { Action::Accept },
        line: None,
        text: String::new(),
    };
    Chain { name: format!("{} {sides:?}", set.name), rules: entries.into_iter().map(rule).collect(), policy: None }
}

fn is(field: Field, test: Test) -> Condition {
    Condition { field, negated: false, test }
}

fn conditions(set: &Set, value: SetValue, dimension: Dimension, side: Side) -> Vec<Condition> {
    let source = side == Side::Source;
    match value {
        SetValue::Prefix { address, length } => {
            let field = match (set.family, source) {
                (4, true) => Field::SourceIpv4,
                (4, false) => Field::DestinationIpv4,
                (_, true) => Field::SourceIpv6,
                (_, false) => Field::DestinationIpv6,
            };
            vec![is(field, Test::prefix(field, address, u32::from(length)))]
        }
        SetValue::Ports { protocol, first, last } => {
            /// ICMP and ICMPv6 have type and code in place of ports.
            const ICMP: [u8; 2] = [1, 58];
            let mut made = Vec::new();
            if let Some(protocol) = protocol {
                made.push(is(Field::Protocol, Test::equal(Field::Protocol, u128::from(protocol))));
            }
            if protocol.is_some_and(|protocol| ICMP.contains(&protocol)) {
                made.push(is(Field::IcmpType, Test::equal(Field::IcmpType, u128::from(first >> 8))));
                made.push(is(Field::IcmpCode, Test::range(u128::from(first & 0xff), u128::from(last & 0xff))));
            } else {
                let field = if source { Field::SourcePort } else { Field::DestinationPort };
                made.push(is(field, Test::range(u128::from(first), u128::from(last))));
            }
            made
        }
        SetValue::Number(number) => {
            let field = match (dimension, source) {
                (Dimension::Mac, _) => Field::SourceMac,
                (Dimension::Mark, _) => Field::Mark,
                (_, true) => Field::Ingress,
                (_, false) => Field::Egress,
            };
            vec![is(field, Test::equal(field, u128::from(number)))]
        }
    }
}
