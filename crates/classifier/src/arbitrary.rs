//! Programs and packets at random, over all fields, tests and actions: for the tests of whatever executes programs.

use crate::classbench::Version;
use crate::field::{Depth, Entry, Field};
use crate::key::Key;
use crate::program::{
    Action, Chain, Condition, Extension, Limit, Log, Mpls, Program, Reject, Rule, Seg6, Test, Verdict,
};
use crate::random::Random;

/// Every field.
pub const FIELDS: [Field; 56] = [
    Field::Family,
    Field::SourceIpv4,
    Field::DestinationIpv4,
    Field::SourceIpv6,
    Field::DestinationIpv6,
    Field::Protocol,
    Field::SourcePort,
    Field::DestinationPort,
    Field::TcpFlags,
    Field::TcpOptions,
    Field::IcmpType,
    Field::IcmpCode,
    Field::FragmentOffset,
    Field::FragmentMore,
    Field::FragmentDont,
    Field::FragmentReserved,
    Field::FragmentIdentification,
    Field::TrafficClass,
    Field::Dscp,
    Field::Ecn,
    Field::HopLimit,
    Field::FlowLabel,
    Field::Length,
    Field::Ingress,
    Field::Egress,
    Field::Mark,
    Field::ConnectionState,
    Field::ConnectionDirection,
    Field::SourceMac,
    Field::SrhPresent,
    Field::SrhNextHeader,
    Field::SrhLength,
    Field::SrhSegmentsLeft,
    Field::SrhLastEntry,
    Field::SrhTag,
    Field::PreviousSid,
    Field::NextSid,
    Field::LastSid,
    Field::ActiveSid,
    Field::RoutingType,
    Field::RoutingSegmentsLeft,
    Field::RoutingLength,
    Field::OuterSource,
    Field::OuterDestination,
    Field::LabelEntries,
    Field::Label(Entry::Own),
    Field::Label(Entry::At(FIRST)),
    Field::Label(Entry::At(Depth::MAX)),
    Field::Label(Entry::Last),
    Field::Label(Entry::Any),
    Field::LabelClass(Entry::At(FIRST)),
    Field::LabelClass(Entry::Any),
    Field::LabelBottom(Entry::At(FIRST)),
    Field::LabelTtl(Entry::Own),
    Field::LabelTtl(Entry::Last),
    Field::LabelTtl(Entry::Any),
];

const FIRST: Depth = Depth::new(1).unwrap();

/// A value of a field: often one of few, so that rules and packets meet.
fn value(field: Field, random: &mut Random) -> u128 {
    let max = field.max();
    if field == Field::ConnectionState {
        return *random.pick(&[1, 2, 4, 8, 64]); // one state at a time
    }
    if field == Field::Family {
        return *random.pick(&[4, 6, 4, 6, 0]);
    }
    match random.below(8) {
        0 => 0,
        1 => max,
        2 => random.wide() & max,
        // Few values in the upper part, then few in the lower: prefixes and halves of addresses.
        3 | 4 if field.width() > 16 => {
            let half = field.width() / 2;
            (random.below(3) as u128) << half | random.below(3) as u128
        }
        _ => random.below(4) as u128 & max,
    }
}

fn test(field: Field, random: &mut Random) -> Test {
    let max = field.max();
    match random.below(8) {
        0 | 1 => Test::equal(field, value(field, random)),
        2 => {
            let length = random.below(field.width() as usize + 1) as u32;
            Test::prefix(field, value(field, random), length)
        }
        3 => {
            let mask = random.wide() & random.wide() & max;
            // Rarely a value that cannot be: it never matches.
            let value = if random.below(20) == 0 { value(field, random) } else { value(field, random) & mask };
            Test::Masked { value, mask }
        }
        4 => Test::AnyBit(value(field, random) | 1 << random.below(field.width() as usize)),
        5 => {
            let (a, b) = (value(field, random), value(field, random));
            Test::range(a.min(b), a.max(b))
        }
        _ => {
            let range = |random: &mut Random| (value(field, random), value(field, random));
            Test::Ranges((0..random.below(7)).map(|_| range(random)).collect())
        }
    }
}

fn condition(random: &mut Random) -> Condition {
    // Half of the tests are of the fields that real rules are full of.
    let few = [
        Field::SourceIpv4,
        Field::DestinationIpv4,
        Field::SourceIpv6,
        Field::DestinationIpv6,
        Field::Protocol,
        Field::SourcePort,
        Field::DestinationPort,
        Field::ConnectionState,
    ];
    let field = if random.per_mille(500) { *random.pick(&few) } else { *random.pick(&FIELDS) };
    Condition { field, negated: random.per_mille(250), test: test(field, random) }
}

fn rule(random: &mut Random, chain: usize, chains: usize, line: u32) -> Rule {
    let target = chain + 1 + random.below(chains - chain);
    let action = match random.below(16) {
        0..=2 => Action::Accept,
        3 | 4 => Action::Drop,
        5 => Action::Reject(Reject::TcpReset),
        6 => Action::Log(Log::default()),
        7 => Action::Mark { value: random.below(4) as u32, mask: *random.pick(&[u32::MAX, 1, 3, 0]) },
        8 if random.per_mille(500) => Action::Seg6(Seg6::GoNext),
        8 => Action::Mpls(Mpls::SkipNext(1)),
        9 => Action::Policy(random.below(9) as u32),
        10 => Action::Return,
        11 | 12 if target < chains => Action::Jump(target),
        13 if target < chains => Action::Goto(target),
        _ => Action::Continue,
    };
    // Sometimes no condition at all.
    let conditions = (0..random.below(5)).map(|_| condition(random)).collect();
    let extensions = if random.per_mille(100) {
        vec![Extension::Limit(Limit { interval: 1, burst: 1 }); 1 + random.below(2)]
    } else {
        Vec::new()
    };
    Rule { conditions, extensions, action, line: Some(line), text: format!("line {line}") }
}

/// A valid program of some chains, the first a base chain, with about so many rules.
pub fn program(random: &mut Random, rules: usize) -> Program {
    let chains = 1 + random.below(5);
    let mut line = 0;
    let mut chain = |index: usize| {
        let mut count = random.below(2 * rules / chains + 1);
        if index == 0 {
            count = count.max(1);
        }
        let mut list: Vec<Rule> = Vec::with_capacity(count);
        for _ in 0..count {
            line += 1;
            let again = list.get(random.below(20)).filter(|_| random.per_mille(100)).cloned();
            list.push(again.unwrap_or_else(|| rule(random, index, chains, line)));
        }
        let policy = (index == 0).then(|| if random.per_mille(500) { Verdict::Accept } else { Verdict::Drop });
        Chain { name: format!("chain{index}"), rules: list, policy }
    };
    Program { chains: (0..chains).map(&mut chain).collect(), sets: Vec::new() }
}

/// A packet with some fields: made for a rule of the program, or at random.
pub fn packet(program: &Program, random: &mut Random) -> Key {
    let version = if random.per_mille(500) { Version::V4 } else { Version::V6 };
    let mut key = match program.chains.get(random.below(program.chains.len())) {
        Some(chain) if !chain.rules.is_empty() && random.per_mille(700) => {
            crate::classbench::packet(random.pick(&chain.rules), version, random)
        }
        _ if random.per_mille(500) => crate::classbench::any_packet(version, random),
        _ => Key::new(),
    };
    for _ in 0..random.below(12) {
        let field = *random.pick(&FIELDS);
        // An address of the other family would make the packet one of that family.
        let other = match field {
            Field::SourceIpv4 | Field::DestinationIpv4 => key.get(Field::Family) == Some(6),
            Field::SourceIpv6 | Field::DestinationIpv6 => key.get(Field::Family) == Some(4),
            Field::Family => true,
            _ => false,
        };
        if !other {
            key.set(field, value(field, random));
        }
    }
    if random.per_mille(300) {
        let entry = |random: &mut Random| {
            let fields = [Field::Label(Entry::Own), Field::LabelClass(Entry::Own), Field::LabelTtl(Entry::Own)];
            let [label, class, ttl] = fields.map(|field| value(field, random) as u32);
            label << 12 | class << 9 | ttl
        };
        let mut stack: Vec<u32> = (0..1 + random.below(20)).map(|_| entry(random)).collect();
        *stack.last_mut().expect("one at least") |= 0x100;
        key.set_labels(&stack);
    }
    if key.get(Field::ConnectionState).is_some_and(|state| state.count_ones() != 1) {
        key.set(Field::ConnectionState, value(Field::ConnectionState, random));
    }
    key
}
