//! Random datagrams in fragments through netfilter's connection tracking, which puts them together, and through a firewall of Segue,
//! which does not: the same datagrams are all there behind both. The first fragment comes first (`fragment-early`).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use segue_classifier::random::Random;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::netns::{End, Netns, parse_mac};
use segue_testkit::node::{Node, Verdict};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

const DATAGRAMS: u16 = 600;
const NEAR: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
const FAR: [&str; 2] = ["02:00:00:00:02:01", "02:00:00:00:02:02"];
const RULES: [&str; 2] = [
    "-A FORWARD -m conntrack --ctstate INVALID -j DROP",
    "-A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT",
];

/// What is wrong with a datagram's fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Some come twice.
    Duplicate,
    /// One lies across others.
    Overlap,
    /// One is missing.
    Missing,
    /// One ends the datagram elsewhere.
    OtherEnd,
}

/// A fragment: octets from, to, and whether more follow.
type Part = (usize, usize, bool);

/// A router with connection tracking between two links.
struct Kernel {
    _router: Netns,
    _world: Netns,
    near: PacketSocket,
    far: PacketSocket,
}

impl Kernel {
    fn new() -> Self {
        let (router, world) = (Netns::new(), Netns::new());
        world.script("sysctl -q net.ipv6.conf.default.disable_ipv6=1\nsysctl -q net.ipv6.conf.all.disable_ipv6=1");
        for (name, macs) in [("near", NEAR), ("far", FAR)] {
            let far = format!("{name}-far");
            veth(End { netns: &router, name, mac: macs[0] }, End { netns: &world, name: &far, mac: macs[1] }, 1500);
        }
        router.script(&format!(
            "ip -6 address add fd00:0:a0::ff/64 dev near nodad
             ip -6 address add fd00:0:a1::ff/64 dev far nodad
             ip -4 address add 10.1.0.254/16 dev near
             ip -4 address add 10.2.0.254/16 dev far
             ip neigh add {SERVER} lladdr {} nud permanent dev far
             ip neigh add {SERVER4} lladdr {} nud permanent dev far
             sysctl -q net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1",
            FAR[1], FAR[1]
        ));
        for tool in ["iptables", "ip6tables"] {
            for rule in ["-P FORWARD DROP"].into_iter().chain(RULES) {
                router.sh(&format!("{tool} {rule}"));
            }
        }
        let (near, far) = (PacketSocket::open(&world, "near-far"), PacketSocket::open(&world, "far-far"));
        Self { _router: router, _world: world, near, far }
    }

    /// Source ports of the datagrams that have come out, until all of `wanted` have and half a second after.
    fn arrived(&self, wanted: &BTreeSet<u16>) -> BTreeSet<u16> {
        let mut found = BTreeSet::new();
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let limit = if wanted.is_subset(&found) { Duration::from_millis(500) } else { Duration::from_secs(5) };
            let Some(frame) = self.far.receive(limit) else { break };
            found.extend(source_port(&frame));
        }
        found
    }
}

/// Of a datagram or its first fragment.
fn source_port(frame: &[u8]) -> Option<u16> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    match (word(12), frame[14 + 6], frame[14 + 9]) {
        (0x0800, _, 17) if word(14 + 6) & 0x1fff == 0 => Some(word(14 + 20)),
        (0x86dd, 17, _) => Some(word(14 + 40)),
        (0x86dd, 44, _) if frame[54] == 17 && word(56) & 0xfff8 == 0 => Some(word(14 + 48)),
        _ => None,
    }
}

/// UDP with this source port and so many octets of data, without its IP header.
fn datagram(family: u8, port: u16, length: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
    let (client, server): (Ipv4Addr, Ipv4Addr) = (CLIENT4, SERVER4);
    let (client6, server6): (Ipv6Addr, Ipv6Addr) = (CLIENT, SERVER);
    if family == 4 {
        let packet = PacketBuilder::new().ipv4(Ipv4Repr::new(client, server));
        return packet.udp(UdpRepr::new(port, 53)).payload(&data).build()[20..].to_vec();
    }
    let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(client6, server6));
    packet.udp(UdpRepr::new(port, 53)).payload(&data).build()[40..].to_vec()
}

fn fragment(front: PacketBuilder, family: u8, number: u16, octets: &[u8], part: Part) -> Vec<u8> {
    let (from, to, more_fragments) = part;
    let payload: Vec<u8> = (from..to).map(|at| octets.get(at).copied().unwrap_or_default()).collect();
    let fragment_offset = from as u16;
    if family == 4 {
        let ip = Ipv4Repr {
            protocol: 17,
            identification: number,
            fragment_offset,
            more_fragments,
            ..Ipv4Repr::new(CLIENT4, SERVER4)
        };
        return front.ipv4(ip).payload(&payload).build();
    }
    let header = FragmentRepr { next_header: 17, identification: number.into(), fragment_offset, more_fragments };
    front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).fragment(header).payload(&payload).build()
}

/// The fragments of a datagram of so many octets, in the order in which they come.
fn parts(random: &mut Random, length: usize, fault: Fault) -> Vec<Part> {
    let mut edges = BTreeSet::from([0, length]);
    for _ in 0..1 + random.below(6) {
        edges.insert(8 * (1 + random.below((length - 1) / 8)));
    }
    let edges: Vec<usize> = edges.into_iter().collect();
    let mut parts: Vec<Part> = edges.windows(2).map(|pair| (pair[0], pair[1], pair[1] < length)).collect();
    for at in (2..parts.len()).rev() {
        parts.swap(at, 1 + random.below(at));
    }
    let place = |random: &mut Random, parts: &[Part]| 1 + random.below(parts.len());
    match fault {
        Fault::Nothing => {}
        Fault::Duplicate => {
            for _ in 0..1 + random.below(3) {
                let (again, at) = (parts[random.below(parts.len())], place(random, &parts));
                parts.insert(at, again);
            }
        }
        Fault::Overlap => {
            // From 8 on: it is no second first one. In front of the end: it does not contradict the last one.
            let most = (length - 1) / 8;
            let from = 1 + random.below(most - 1);
            let to = from + 1 + random.below(most - from);
            let at = place(random, &parts);
            parts.insert(at, (8 * from, 8 * to, true));
        }
        Fault::Missing => {
            if parts.len() > 1 {
                parts.remove(1 + random.below(parts.len() - 1));
            }
        }
        Fault::OtherEnd => {
            let from = 8 * (1 + random.below(length / 8 - 1));
            let at = place(random, &parts);
            parts.insert(at, (from, from + 1 + random.below(24), false));
        }
    }
    parts
}

/// All octets of the datagram are there, and its end.
fn complete(parts: &[Part], length: usize) -> bool {
    let covered: BTreeSet<usize> = parts.iter().flat_map(|(from, to, _)| *from..*to).collect();
    covered.len() == length && parts.iter().any(|(_, to, more)| !more && *to == length)
}

fn document() -> String {
    let text = format!("*filter\\n:FORWARD DROP [0:0]\\n{}\\nCOMMIT\\n", RULES.join("\\n"));
    let file = |name: &str| format!("{{file: {name}, text: \"{text}\"}}");
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {}, ipv4: {}}}\n", file("v6"), file("v4"));
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1)
}

#[test]
#[ignore = "needs root"]
fn the_same_datagrams_go_through() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let node = Node::load(&network.node, &document());
    let mut random = Random::new(5722);
    let kinds = [Fault::Nothing, Fault::Duplicate, Fault::Overlap, Fault::Missing, Fault::OtherEnd];
    for family in [4, 6] {
        let (mut segue, mut sent) = (BTreeSet::new(), Vec::new());
        for number in 1..=DATAGRAMS {
            let (port, fault) = (1000 + number, kinds[random.below(kinds.len())]);
            let octets = datagram(family, port, 60 + random.below(400));
            let parts = parts(&mut random, octets.len(), fault);
            let srh = || SrhRepr::new(&[local(0xa1), behind_core1(0xa), behind_core1(0xb)]);
            let through: Vec<Part> = node.run_many(|runner| {
                let mut through = Vec::new();
                for part in &parts {
                    let front = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0xa1))).srh(srh());
                    if runner.run("core0", &fragment(front, family, number, &octets, *part)).0 == Verdict::Redirect {
                        through.push(*part);
                    }
                }
                through
            });
            if complete(&through, octets.len()) {
                segue.insert(port);
            }
            for part in &parts {
                let front = PacketBuilder::ethernet(parse_mac(NEAR[1]), parse_mac(NEAR[0]));
                kernel.near.send(&fragment(front, family, number, &octets, *part));
            }
            sent.push((port, fault, parts, through));
        }
        let netfilter = kernel.arrived(&segue);
        let count = |kind, ports: &BTreeSet<u16>| {
            sent.iter().filter(|(port, fault, ..)| *fault == kind && ports.contains(port)).count()
        };
        for (port, fault, parts, through) in &sent {
            let excepted = match fault {
                // `fragment-overlap`: netfilter drops the second end alone, and the rest may be there.
                Fault::OtherEnd => !segue.contains(port),
                // `fragment-duplicate`: it lay across some that had gone through, and did not go through again.
                Fault::Overlap => segue.contains(port) && through.len() < parts.len(),
                _ => false,
            };
            assert!(
                excepted || segue.contains(port) == netfilter.contains(port),
                "IPv{family}, {fault:?}: {parts:?}; through Segue: {through:?}, complete: {}; through netfilter: {}",
                segue.contains(port),
                netfilter.contains(port)
            );
        }
        for kind in [Fault::Nothing, Fault::Duplicate] {
            assert!(count(kind, &segue) > 50, "IPv{family}: {kind:?}");
        }
    }
}
