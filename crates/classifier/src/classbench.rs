//! Rule sets with the make-up of real ones, after ClassBench (Taylor and Turner, "ClassBench: A Packet Classification Benchmark",
//! 2007): access lists, firewalls and IP chains differ in how long their prefixes are, in their classes of ports, and in how often a
//! field is left open. The shares below are of that paper's kind; they are not its seed files, and sets are not comparable with
//! published ones rule by rule.

use crate::field::Field;
use crate::key::Key;
use crate::program::{Action, Chain, Condition, Program, Rule, Test, Verdict};
use crate::random::Random;

/// Kind of rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Access list: long prefixes on both sides, single destination ports.
    Acl,
    /// Firewall: many fields left open, ranges of ports on both sides.
    Fw,
    /// IP chain: a mixture.
    Ipc,
}

/// IP version of a rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Shares in a thousand.
struct Shares {
    /// Sources and destinations that are left open.
    source_open: usize,
    destination_open: usize,
    /// Of the others: single hosts.
    source_host: usize,
    destination_host: usize,
    /// Ports left open, single ports; of the rest: high ports (1024 to 65535), else some range.
    source_port: [usize; 2],
    destination_port: [usize; 2],
    /// TCP, UDP, ICMP; the rest is any protocol.
    protocol: [usize; 3],
}

impl Family {
    fn shares(self) -> Shares {
        match self {
            Self::Acl => Shares {
                source_open: 60,
                destination_open: 10,
                source_host: 350,
                destination_host: 550,
                source_port: [1000, 0],
                destination_port: [120, 730],
                protocol: [700, 200, 40],
            },
            Self::Fw => Shares {
                source_open: 380,
                destination_open: 280,
                source_host: 450,
                destination_host: 600,
                source_port: [570, 120],
                destination_port: [230, 560],
                protocol: [620, 230, 60],
            },
            Self::Ipc => Shares {
                source_open: 110,
                destination_open: 130,
                source_host: 520,
                destination_host: 540,
                source_port: [760, 110],
                destination_port: [470, 380],
                protocol: [480, 280, 60],
            },
        }
    }
}

/// Single ports that rules name most.
const PORTS: [u16; 24] =
    [20, 21, 22, 23, 25, 53, 67, 69, 80, 110, 111, 123, 135, 137, 139, 143, 161, 389, 443, 445, 993, 1433, 1521, 8080];

/// A rule set with one chain, `FORWARD`, that drops what no rule accepts.
pub fn generate(family: Family, version: Version, rules: usize, seed: u64) -> Program {
    let mut random = Random::new(seed);
    let shares = family.shares();
    let sites = Sites::new(&mut random, version, rules);
    let mut list: Vec<Rule> = Vec::with_capacity(rules);
    let mut seen = std::collections::HashSet::new();
    let mut tries = 0;
    while list.len() < rules {
        tries += 1;
        let mut conditions = Vec::new();
        let protocol = pick_protocol(&mut random, version, &shares);
        sites.side(&mut random, true, shares.source_open, shares.source_host, &mut conditions);
        sites.side(&mut random, false, shares.destination_open, shares.destination_host, &mut conditions);
        if let Some(protocol) = protocol {
            conditions.push(equal(Field::Protocol, protocol.into()));
        }
        if matches!(protocol, Some(6 | 17)) {
            port(&mut random, Field::SourcePort, shares.source_port, &mut conditions);
            port(&mut random, Field::DestinationPort, shares.destination_port, &mut conditions);
        }
        // Real sets hold few rules twice. A generator that runs out of different ones may repeat itself.
        if !seen.insert(format!("{conditions:?}")) && tries < 20 * rules {
            continue;
        }
        let action = if random.per_mille(700) { Action::Accept } else { Action::Drop };
        list.push(rule(conditions, action, list.len()));
    }
    // As people write them: the more specific rules come first, though not strictly.
    list.sort_by_cached_key(|rule| openness(rule) + random.below(3));
    for (index, rule) in list.iter_mut().enumerate() {
        rule.line = Some(index as u32 + 1);
    }
    program(list)
}

/// The paper's rules: all of one shape, a source and a destination host. A packet that [`packet`] makes for the last rule matches no
/// other.
pub fn one_shape(version: Version, rules: usize, seed: u64) -> Program {
    let mut random = Random::new(seed);
    let list = (0..rules).map(|index| {
        let fields = address_fields(version);
        let width = fields.0.width();
        let (source, destination) = match version {
            Version::V4 => (0x0a00_0000 + random.below(1 << 16) as u128, 0x0a01_0000 + index as u128),
            Version::V6 => {
                ((0x2001_0db8_u128 << 96) + u128::from(random.number()), (0x2001_0db9_u128 << 96) + index as u128)
            }
        };
        let conditions = vec![
            Condition { field: fields.0, negated: false, test: Test::prefix(fields.0, source, width) },
            equal(fields.1, destination),
        ];
        rule(conditions, Action::Drop, index)
    });
    program(list.collect())
}

/// Rules that differ in their ranges of ports, which overlap, and leave the addresses open but for a prefix.
pub fn port_ranges(version: Version, rules: usize, seed: u64) -> Program {
    let mut random = Random::new(seed);
    let list = (0..rules).map(|index| {
        let fields = address_fields(version);
        let prefix = match version {
            Version::V4 => Test::prefix(fields.1, 0x0a01_0000, 16),
            Version::V6 => Test::prefix(fields.1, 0x2001_0db9_u128 << 96, 32),
        };
        let mut range = |most: usize| {
            let first = random.below(65_536) as u128;
            (first, (first + 1 + random.below(most) as u128).min(65_535))
        };
        let (source, destination) = (range(16_384), range(256));
        let conditions = vec![
            Condition { field: fields.1, negated: false, test: prefix },
            equal(Field::Protocol, 6),
            Condition { field: Field::SourcePort, negated: false, test: Test::Ranges(vec![source]) },
            Condition { field: Field::DestinationPort, negated: false, test: Test::Ranges(vec![destination]) },
        ];
        rule(conditions, Action::Drop, index)
    });
    program(list.collect())
}

/// A packet that fits all conditions of a rule as far as that is possible by setting one field after another, the rest at random.
pub fn packet(rule: &Rule, version: Version, random: &mut Random) -> Key {
    let mut key = any_packet(version, random);
    for condition in &rule.conditions {
        if crate::interpreter::condition_holds(condition, &key) {
            continue;
        }
        let max = condition.field.max();
        for _ in 0..16 {
            let value = match &condition.test {
                _ if condition.negated => random.between(0, max),
                Test::Masked { value, mask } => random.wide() & max & !mask | value,
                Test::Ranges(ranges) if ranges.is_empty() => 0,
                Test::Ranges(ranges) => {
                    let (first, last) = *random.pick(ranges);
                    random.between(first, last)
                }
                Test::AnyBit(mask) => {
                    let bits = (0..128).filter(|bit| mask >> bit & 1 != 0).collect::<Vec<_>>();
                    if bits.is_empty() { 0 } else { 1 << random.pick(&bits) }
                }
            };
            if condition.test.holds(value) != condition.negated {
                key.set(condition.field, value);
                break;
            }
        }
    }
    key
}

/// A packet at random.
pub fn any_packet(version: Version, random: &mut Random) -> Key {
    let fields = address_fields(version);
    let key = Key::new()
        .with(fields.0, random.wide())
        .with(fields.1, random.wide())
        .with(Field::TrafficClass, 0)
        .with(Field::HopLimit, 64)
        .with(Field::Length, 40 + random.below(1400) as u128);
    let port = |random: &mut Random| {
        if random.per_mille(300) { (*random.pick(&PORTS)).into() } else { random.below(65_536) as u128 }
    };
    match random.below(10) {
        0 => key.with(Field::Protocol, if version == Version::V4 { 1 } else { 58 }).with(Field::IcmpType, 8),
        1 => key.with(Field::Protocol, 47),
        kind => {
            let key = key.with(Field::Protocol, if kind < 7 { 6 } else { 17 });
            key.with(Field::SourcePort, port(random)).with(Field::DestinationPort, port(random))
        }
    }
}

fn program(rules: Vec<Rule>) -> Program {
    Program { chains: vec![Chain { name: "FORWARD".into(), rules, policy: Some(Verdict::Drop) }], sets: Vec::new() }
}

fn rule(conditions: Vec<Condition>, action: Action, index: usize) -> Rule {
    Rule {
        conditions,
        extensions: Vec::new(),
        action,
        line: Some(index as u32 + 1),
        text: format!("rule {}", index + 1),
    }
}

fn equal(field: Field, value: u128) -> Condition {
    Condition { field, negated: false, test: Test::equal(field, value) }
}

fn address_fields(version: Version) -> (Field, Field) {
    match version {
        Version::V4 => (Field::SourceIpv4, Field::DestinationIpv4),
        Version::V6 => (Field::SourceIpv6, Field::DestinationIpv6),
    }
}

/// Fields that a rule leaves open, of source, destination, source port and destination port.
fn openness(rule: &Rule) -> usize {
    let tested = |fields: &[Field]| rule.conditions.iter().any(|condition| fields.contains(&condition.field));
    [
        tested(&[Field::SourceIpv4, Field::SourceIpv6]),
        tested(&[Field::DestinationIpv4, Field::DestinationIpv6]),
        tested(&[Field::SourcePort]),
        tested(&[Field::DestinationPort]),
    ]
    .iter()
    .filter(|tested| !**tested)
    .count()
}

fn pick_protocol(random: &mut Random, version: Version, shares: &Shares) -> Option<u8> {
    let place = random.below(1000);
    let [tcp, udp, icmp] = shares.protocol;
    match place {
        _ if place < tcp => Some(6),
        _ if place < tcp + udp => Some(17),
        _ if place < tcp + udp + icmp => Some(if version == Version::V4 { 1 } else { 58 }),
        _ => None,
    }
}

fn port(random: &mut Random, field: Field, [open, single]: [usize; 2], conditions: &mut Vec<Condition>) {
    let place = random.below(1000);
    if place < open {
        return;
    }
    let range = if place < open + single {
        let port = if random.per_mille(750) { *random.pick(&PORTS) } else { random.below(65_536) as u16 };
        (port.into(), port.into())
    } else if random.per_mille(550) {
        (1024, 65_535)
    } else {
        let first = 1024 + random.below(60_000) as u128;
        (first, (first + random.below(2_000) as u128).min(65_535))
    };
    conditions.push(Condition { field, negated: false, test: Test::Ranges(vec![range]) });
}

/// Networks that the rules are about: prefixes of organisations, with subnets, with hosts.
struct Sites {
    version: Version,
    prefixes: Vec<u128>,
}

impl Sites {
    fn new(random: &mut Random, version: Version, rules: usize) -> Self {
        let count = (rules / 40).clamp(4, 400);
        let prefix = |random: &mut Random| match version {
            // A /16, of a few /8.
            Version::V4 => {
                (*random.pick(&[10_u128, 62, 128, 147, 172, 192, 193, 212]) << 24) + ((random.below(256) as u128) << 16)
            }
            // A /48.
            Version::V6 => {
                (*random.pick(&[0x2001_u128, 0x2003, 0x2600, 0x2a00, 0x2a01]) << 112)
                    + ((random.below(1 << 12) as u128) << 100)
                    + ((random.below(1 << 8) as u128) << 80)
            }
        };
        Self { version, prefixes: (0..count).map(|_| prefix(random)).collect() }
    }

    fn side(&self, random: &mut Random, source: bool, open: usize, host: usize, conditions: &mut Vec<Condition>) {
        if random.per_mille(open) {
            return;
        }
        let fields = address_fields(self.version);
        let field = if source { fields.0 } else { fields.1 };
        // A few sites have most of the rules.
        let place = random.below(self.prefixes.len()) * random.below(1000) / 1000;
        let site = self.prefixes[place];
        let subnet = random.below(64) as u128;
        let (address, length) = match self.version {
            Version::V4 => {
                let address = site + (subnet << 8) + random.below(254) as u128 + 1;
                (
                    address,
                    if random.per_mille(host) {
                        32
                    } else {
                        *random.pick(&[16, 20, 22, 23, 24, 24, 24, 25, 26, 27, 28, 29])
                    },
                )
            }
            Version::V6 => {
                let address = site
                    + (subnet << 64)
                    + if random.per_mille(600) { random.below(4096) as u128 } else { random.number().into() };
                (
                    address,
                    if random.per_mille(host) {
                        128
                    } else {
                        *random.pick(&[32, 40, 44, 48, 48, 52, 56, 60, 64, 64, 64, 112])
                    },
                )
            }
        };
        conditions.push(Condition { field, negated: false, test: Test::prefix(field, address, length) });
    }
}
