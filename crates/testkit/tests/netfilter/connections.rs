//! UDP, ICMPv6 queries and errors at random, in the kernel's connection tracking and in Segue's: every packet has the same state and
//! direction in both.

use segue_classifier::random::Random;
use segue_testkit::fixture::Network;
use segue_testkit::node::clock;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::track::{FAR, Kernel, NEAR, STATES, Segue};

/// What both sides send, of one flow of UDP and one identifier.
#[derive(Debug, Clone)]
enum Message {
    Udp {
        near: bool,
    },
    /// Type and code of a message with an identifier.
    Query {
        near: bool,
        message_type: u8,
        code: u8,
    },
    /// Type and code of an error, and what it quotes.
    Error {
        near: bool,
        message_type: u8,
        code: u8,
        about: Box<Message>,
    },
}

impl Message {
    fn near(&self) -> bool {
        match self {
            Self::Udp { near } | Self::Query { near, .. } | Self::Error { near, .. } => *near,
        }
    }

    /// The packet; `mark` is at its end, unlike in any other.
    fn build(&self, packet: PacketBuilder, flow: u16, mark: &[u8]) -> Vec<u8> {
        let near = self.near();
        let packet = packet.ipv6(if near { Ipv6Repr::new(NEAR, FAR) } else { Ipv6Repr::new(FAR, NEAR) });
        match self {
            Self::Udp { .. } => {
                let (from, to) = if near { (flow, 53) } else { (53, flow) };
                packet.udp(UdpRepr::new(from, to)).payload(mark).build()
            }
            Self::Query { message_type, code, .. } => {
                let body = [&flow.to_be_bytes(), &[0, 1], mark].concat();
                packet.icmpv6(Icmpv6Repr::Other { message_type: *message_type, code: *code, body }).build()
            }
            Self::Error { message_type, code, about, .. } => {
                let quoted = about.build(PacketBuilder::new(), flow, b"quoted it");
                let body = [&[0; 4], quoted.as_slice(), mark].concat();
                packet.icmpv6(Icmpv6Repr::Other { message_type: *message_type, code: *code, body }).build()
            }
        }
    }

    fn random(random: &mut Random) -> Self {
        let near = random.below(2) == 0;
        match random.below(10) {
            0..=3 => Self::Udp { near },
            4..=6 => {
                let message_type = *random.pick(&[128, 128, 129, 129, 139, 140, 141, 144, 200]);
                Self::Query { near, message_type, code: *random.pick(&[0, 0, 0, 1]) }
            }
            _ => {
                let about = match random.below(2) {
                    0 => Self::Udp { near: random.below(2) == 0 },
                    _ => Self::Query {
                        near: random.below(2) == 0,
                        message_type: *random.pick(&[128, 128, 129, 139, 140, 200]),
                        code: 0,
                    },
                };
                let message_type = *random.pick(&[1, 2, 3, 4, 100]);
                Self::Error { near, message_type, code: *random.pick(&[0, 1]), about: Box::new(about) }
            }
        }
    }
}

#[test]
#[ignore = "needs root"]
fn random_datagrams_queries_and_errors_are_what_netfilter_takes_them_for() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut segue = Segue::new(&network, "entries: 8192");
    let (mut found, mut different, mut number) = ([0; STATES.len()], Vec::new(), 0_u64);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let flow = 1024 + seed as u16;
        let mut story = String::new();
        for _ in 0..12 {
            let message = Message::random(&mut random);
            number += 1;
            let mark = [b"mark".as_slice(), &number.to_be_bytes()].concat();
            let build = |packet| message.build(packet, flow, &mark);
            let theirs = kernel.judge(message.near(), build, |frame| frame.ends_with(&mark));
            let ours = segue.judge(build);
            story.push_str(&format!("{message:?}: {}\n", STATES[theirs]));
            if ours != theirs {
                different.push(format!("seed {seed}:\n{story}but for Segue {}\n", STATES[ours]));
                break;
            }
            found[theirs] += 1;
        }
    }
    println!("{:?}", STATES.iter().zip(found).collect::<Vec<_>>());
    let some = different.iter().take(3).map(String::as_str).collect::<String>();
    assert!(different.is_empty(), "{} of 300 differ:\n{some}", different.len());
    assert!(found[0] == 0 && found[1..].iter().all(|count| *count > 50), "each state is met: {found:?}");
}

/// A packet of this protocol, with nothing in it that anybody knows.
fn of_protocol(packet: PacketBuilder, protocol: u8, near: bool, payload: &[u8]) -> Vec<u8> {
    let ip = if near { Ipv6Repr::new(NEAR, FAR) } else { Ipv6Repr::new(FAR, NEAR) };
    let mut octets = packet.ipv6(ip).payload(payload).build();
    let header = octets.len() - payload.len() - 40;
    octets[header + 6] = protocol;
    octets
}

/// Seconds that are left, and whether it is assured, of the one connection of this protocol.
type Known = Option<(u64, bool)>;

impl Kernel {
    fn lifetime_of(&self, protocol: u8) -> Known {
        let table = self.connections();
        let protocol = protocol.to_string();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = table.lines().find(|line| words(line).get(3) == Some(&protocol))?;
        Some((words(line)[4].parse().expect("a lifetime in seconds"), line.contains("[ASSURED]")))
    }
}

impl Segue<'_> {
    fn lifetime_of(&self, protocol: u8) -> Known {
        let now = clock();
        let connections = self.node.connections();
        let (_, entry) = connections.iter().find(|(_, entry)| entry.key.protocol == protocol)?;
        let assured = u32::from(entry.connection.flags) & segue_abi::SEGUE_CONNECTION_ASSURED != 0;
        Some((entry.connection.expires.saturating_sub(now) / 1_000_000_000, assured))
    }
}

/// GRE and protocols of which only addresses are known live as long as in netfilter, and are assured when they are there.
#[test]
#[ignore = "needs root"]
fn other_protocols_live_as_long_as_in_netfilter() {
    /// How long a machine under load may take from one look to the other.
    const SLACK: u64 = 8;
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut segue = Segue::new(&network, "entries: 8192");
    let mut number = 0_u64;
    for protocol in [2, 47, 50, 112, 200] {
        for (step, near) in [true, true, false, false, true, true].into_iter().enumerate() {
            number += 1;
            // GRE of version 0 without a key, if it is GRE.
            let payload = [[0, 0, 0x86, 0xdd].as_slice(), b"mark", &number.to_be_bytes()].concat();
            let build = |packet| of_protocol(packet, protocol, near, &payload);
            let theirs = kernel.judge(near, build, |frame| frame.ends_with(&payload));
            let ours = segue.judge(build);
            assert_eq!(STATES[ours], STATES[theirs], "protocol {protocol}, packet {step}");
            let (theirs, ours) =
                (kernel.lifetime_of(protocol).expect("known"), segue.lifetime_of(protocol).expect("known"));
            assert!(
                ours.0.abs_diff(theirs.0) <= SLACK && ours.1 == theirs.1,
                "protocol {protocol}, packet {step}: (seconds left, assured) {theirs:?} in netfilter, {ours:?} in Segue"
            );
        }
    }
}
