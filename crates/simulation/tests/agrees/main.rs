//! The simulation against the data plane: packets of every kind, whole and broken, go through both. Where the simulation says that it is
//! certain, outcome, octets and counters are the same.

mod label_kinds;
mod labels;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use segue_abi::{FunctionMetadata, Outcome, OutcomeKind};
use segue_dataplane::{Dataplane, Fib, FibAnswer, FibQuestion, Interfaces};
use segue_simulation::{Arrival, Kernel, Simulated, View, simulate};
use segue_testkit::fixture::address::NODE;
use segue_testkit::fixture::{self, Network};
use segue_testkit::is_long;
use segue_testkit::mutation::{Random, Seed, mutate, seeds};
use segue_testkit::node::{Node, Verdict};

struct Asked(Fib);

impl Kernel for Asked {
    fn fib(&mut self, question: &FibQuestion) -> FibAnswer {
        self.0.ask(question).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// What the simulation says of each packet.
fn simulated(node: &Node<'_>, packets: &[Seed]) -> Vec<Simulated> {
    node.inside(|dataplane: &mut Dataplane| {
        let mut kernel = Asked(dataplane.fib().unwrap_or_else(|error| panic!("{error}")));
        let interfaces = Interfaces::query().unwrap_or_else(|error| panic!("{error}"));
        let down = dataplane.life().down();
        let (compiled, state) = (dataplane.applied().unwrap(), dataplane.applied_state().unwrap());
        let path_mtus = dataplane.path_mtus(Instant::now());
        let view = View { compiled, state, interfaces: &interfaces, down: &down, path_mtus: &path_mtus };
        let one = |packet: &Seed| {
            let arrival = Arrival { frame: packet.frame.clone(), remembered: None };
            simulate(view, &mut kernel, packet.port, &arrival).unwrap_or_else(|error| panic!("{error}"))
        };
        packets.iter().map(one).collect()
    })
}

/// The names of the counters that the simulation says would count.
fn counters(node: &Node<'_>, simulated: &Simulated) -> BTreeSet<String> {
    let names = node.counter_names();
    simulated.steps.iter().flat_map(|step| &step.counters).filter_map(|row| names.get(row).cloned()).collect()
}

fn hexadecimal(frame: &[u8]) -> String {
    frame.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// What differs, if anything.
fn compare(node: &Node<'_>, packet: &Seed, simulated: &Simulated) -> Result<(), String> {
    let processed = node.send(packet.port, &packet.frame);
    let outcome = |name: &String| {
        let rest = name.strip_prefix(&format!("{} ", packet.port))?;
        Outcome::from_name(rest)
    };
    let outcomes: Vec<Outcome> = processed.moved.keys().filter_map(outcome).collect();
    let told =
        |what: String| Err(format!("{what}\n  in by {}: {}\n  {simulated:?}", packet.port, hexadecimal(&packet.frame)));
    if !simulated.end.certain {
        return Ok(());
    }
    if outcomes != [simulated.end.outcome] {
        return told(format!("the data plane: {outcomes:?}, the simulation: {:?}", simulated.end.outcome));
    }
    if simulated.end.outcome.kind() == OutcomeKind::Dropped {
        return Ok(());
    }
    // What goes to its function through the kernel has metadata in front.
    let through_kernel = simulated.end.outcome == Outcome::ToFunction && processed.verdict == Verdict::Pass;
    let frame = &processed.frame[if through_kernel { size_of::<FunctionMetadata>() } else { 0 }..];
    if frame != simulated.frame {
        let frame = hexadecimal(frame);
        return told(format!("the data plane leaves {frame}, the simulation {}", hexadecimal(&simulated.frame)));
    }
    if simulated.end.outcome.kind() == OutcomeKind::Forwarded {
        let is_object = |name: &&String| {
            ["sid ", "label ", "returned ", "list ", "rule "].iter().any(|kind| name.starts_with(kind))
        };
        let moved: BTreeSet<String> = processed.moved.keys().filter(is_object).cloned().collect();
        let said = counters(node, simulated);
        if moved != said {
            return told(format!("the data plane counts {moved:?}, the simulation {said:?}"));
        }
    }
    Ok(())
}

/// Compares all; returns how many of each outcome the simulation was certain of.
fn agree(node: &Node<'_>, packets: &[Seed]) -> BTreeMap<&'static str, usize> {
    let all = simulated(node, packets);
    let mut certain: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for (packet, simulated) in packets.iter().zip(&all) {
        differences.extend(compare(node, packet, simulated).err());
        if simulated.end.certain {
            *certain.entry(simulated.end.outcome.name()).or_default() += 1;
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        packets.len(),
        differences[..differences.len().min(12)].join("\n")
    );
    certain
}

/// Flows that steering rules take, with ports, DSCPs and flow labels of all kinds.
fn flows(random: &mut Random, count: usize) -> Vec<Seed> {
    use segue_wire::{Ipv4Repr, Ipv6Repr, TcpRepr, UdpRepr};
    let mut found = Vec::new();
    for _ in 0..count {
        let port = *random.pick(&["acc0", "acc1"]);
        let (source, destination) = (random.number() as u16, *random.pick(&[80, 443, 8000, 8080, 22]));
        let tcp = random.below(2) == 0;
        let frame = if random.below(3) == 0 {
            let network = *random.pick(&[[20, 0], [20, 1], [20, 2], [20, 6], [21, 1], [22, 0], [22, 1], [99, 1]]);
            let to = [10, network[0], network[1], random.below(250) as u8 + 1].into();
            let from = [10, 1, 0, random.below(250) as u8 + 2].into();
            let header = Ipv4Repr { time_to_live: random.below(4) as u8, ..Ipv4Repr::new(from, to) };
            fixture::arriving(port).ipv4(header)
        } else {
            let network = 0xe0 + random.below(16) as u16;
            let to = [0xfd00, 0, network, 0, 0, 0, 0, random.below(60_000) as u16 + 1].into();
            let from = [0xfd00, 0, 0xa0, 0, 0, 0, 0, random.below(60_000) as u16 + 2].into();
            let header = Ipv6Repr {
                traffic_class: random.number() as u8,
                flow_label: random.number() as u32 & 0xf_ffff,
                hop_limit: random.below(4) as u8,
                ..Ipv6Repr::new(from, to)
            };
            fixture::arriving(port).ipv6(header)
        };
        let frame = match tcp {
            true => frame.tcp(TcpRepr::new(source, destination, 2)),
            false => frame.udp(UdpRepr::new(source, destination)),
        };
        let length = *random.pick(&[0, 40, 1300, 1420]);
        found.push(Seed { port, frame: frame.payload(&vec![7; length]).build() });
    }
    found
}

/// Nodes further on say of what these packets become that 1400 octets fit.
fn narrowed(node: &Node<'_>, packets: &[Seed]) {
    use segue_wire::{Icmpv6Repr, Ipv6Repr};
    for packet in packets {
        let frame = node.send(packet.port, &packet.frame).frame;
        if frame.len() < 54 || frame[12..14] != [0x86, 0xdd] || frame[22..38] != NODE.octets() {
            continue;
        }
        let message = Icmpv6Repr::PacketTooBig { mtu: 1400, packet: Icmpv6Repr::quote(&frame[14..]).to_vec() };
        let router = Ipv6Repr::new("fd00:0:77::1".parse().expect("an address"), NODE);
        node.send("core1", &fixture::arriving("core1").ipv6(router).icmpv6(message).build());
    }
    node.follow_path_mtus(Instant::now());
}

#[test]
#[ignore = "needs root"]
fn it_says_what_the_data_plane_does() {
    let network = Network::new();
    let node = Node::load(&network.node, &fixture::configuration(fixture::DOMAIN));
    let whole = seeds();
    let certain = agree(&node, &whole);
    assert!(certain["forwarded"] > 90 && certain["to_function"] > 5, "{certain:?}");
    let mut random = Random::new(12);
    let (in_flows, broken) = if is_long() { (600, 2400) } else { (250, 1000) };
    let mut packets = flows(&mut random, in_flows);
    for _ in 0..broken {
        let mut packet = random.pick(&whole).clone();
        mutate(&mut random, &mut packet.frame);
        packets.push(packet);
    }
    let certain = agree(&node, &packets);
    let sum: usize = certain.values().sum();
    assert!(sum > packets.len() * 5 / 6, "of {} it was certain of {sum}: {certain:?}", packets.len());
    assert!(certain.len() > 20, "{certain:?}");
    // Paths have turned out to be narrow.
    let wide = flows(&mut random, in_flows);
    let fitted = agree(&node, &wide).get("drop_too_big").copied().unwrap_or_default();
    narrowed(&node, &packets[..in_flows]);
    let known = node.inside(|dataplane: &mut Dataplane| dataplane.path_mtus(Instant::now()).len());
    assert!(known > 3, "{known} paths");
    let fitting = agree(&node, &wide)["drop_too_big"];
    assert!(fitting > fitted + 10, "{fitted} do not fit, with {known} narrow paths {fitting}");
}

const RULES: &str = "-A FORWARD -p tcp -m tcp --dport 80 -j DROP\\n-A FORWARD -p tcp -m tcp --dport 443 -j REJECT\\n\
    -A FORWARD -p udp -m udp --dport 8000:8080 -m dscp --dscp 9 -j DROP\\n";
const SRH_RULES: &str = "-A FORWARD -p udp -m udp --dport 80 -j SEG6 --seg6-action seg6-go-last\\n\
    -A FORWARD -p udp -m udp --dport 443 -j SEG6 --seg6-action seg6-skip-next\\n\
    -A FORWARD -p udp -m udp --dport 22 -j SEG6 --seg6-action seg6-eval-args\\n\
    -A FORWARD -o core1 -p tcp -m tcp --dport 22 -j DROP\\n";

/// The node with firewalls: on ports, and at SIDs.
fn with_firewalls() -> String {
    let file = |name: &str, rules: &str| {
        format!("{{file: {name}, text: \"*filter\\n:FORWARD ACCEPT [0:0]\\n{rules}COMMIT\\n\"}}")
    };
    let plain = fixture::configuration(fixture::DOMAIN);
    let text = plain
        .replace("{name: acc0, role: access}", "{name: acc0, role: access, firewall: wall}")
        .replace("{name: core2, role: core}", "{name: core2, role: core, firewall: wall}")
        .replace(
            "sids:\n  - {sid: 'fc00:0:1:1::/64'",
            "sids:\n  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: wall}\n  \
             - {sid: 'fc00:0:1:a2::/64', behaviour: End.AN, firewall: srh}\n  - {sid: 'fc00:0:1:1::/64'",
        );
    assert!(text.matches("firewall: ").count() == 4, "{text}");
    format!(
        "{text}firewalls:\n  - {{name: wall, ipv6: {}, ipv4: {}}}\n  - {{name: srh, mode: advanced, argument_length: 16, ipv6: {}}}\n",
        file("wall.v6", RULES),
        file("wall.v4", RULES),
        file("srh.v6", SRH_RULES)
    )
}

/// Steered packets to the firewalls' SIDs.
fn steered(random: &mut Random, count: usize) -> Vec<Seed> {
    use segue_testkit::fixture::address::{CLIENT, HEADEND, SERVER, behind_core1, local_with_argument};
    use segue_wire::{Ipv6Repr, SrhRepr, TcpRepr, UdpRepr};
    let mut found = Vec::new();
    for _ in 0..count {
        let sid = local_with_argument(*random.pick(&[0xa1, 0xa2]), random.below(5) as u16);
        let path = [sid, behind_core1(1), behind_core1(2), behind_core1(3)];
        let port = *random.pick(&["core0", "core2"]);
        let length = 2 + random.below(3);
        let dscp = *random.pick(&[0, 36, 9 << 2]);
        let inner = Ipv6Repr { traffic_class: dscp, ..Ipv6Repr::new(CLIENT, SERVER) };
        let srh = SrhRepr::new(&path[..length]);
        let packet = fixture::arriving(port).ipv6(Ipv6Repr::new(HEADEND, sid)).srh(srh).inner_ipv6(inner);
        let destination = *random.pick(&[80, 443, 8000, 8080, 22, 53]);
        let packet = match random.below(2) {
            0 => packet.tcp(TcpRepr::new(7, destination, 2)),
            _ => packet.udp(UdpRepr::new(7, destination)),
        };
        found.push(Seed { port, frame: packet.payload(&[7; 20]).build() });
    }
    found
}

#[test]
#[ignore = "needs root"]
fn firewalls_and_dead_functions_too() {
    let network = Network::new();
    let node = Node::load(&network.node, &with_firewalls());
    let mut random = Random::new(21);
    let mut packets = flows(&mut random, 200);
    packets.extend(steered(&mut random, 200));
    for _ in 0..300 {
        let mut packet = random.pick(&packets).clone();
        mutate(&mut random, &mut packet.frame);
        packets.push(packet);
    }
    let certain = agree(&node, &packets);
    for outcome in
        ["forwarded", "drop_firewall", "drop_firewall_rejected", "drop_segments_left", "passed_not_for_segue"]
    {
        assert!(certain.get(outcome).copied().unwrap_or_default() > 3, "{outcome}: {certain:?}");
    }
    let down = ["fc00:0:1:61::/64", "fc00:0:1:63::/64", "fc00:0:1:71::/64"].map(|sid| sid.parse().unwrap());
    node.inside(|dataplane: &mut Dataplane| dataplane.life().set(down, true).unwrap());
    let certain = agree(&node, &seeds());
    assert!(certain.get("drop_function_down").copied().unwrap_or_default() > 3, "{certain:?}");
    node.inside(|dataplane: &mut Dataplane| dataplane.life().set(down, false).unwrap());
}

#[test]
#[ignore = "needs root"]
fn routes_and_links_that_change_are_followed() {
    let network = Network::new();
    let node = Node::load(&network.node, &fixture::configuration(fixture::DOMAIN));
    let seeds = seeds();
    let before = agree(&node, &seeds);
    for line in [
        "ip -6 route replace fc00:0:2::/48 via fd00:0:c0::2 mtu 1300",
        "ip -6 route del table 100 fd00:0:b9::/48",
        "ip link set core2 down",
        "ip neigh del 10.2.0.2 dev acc1",
    ] {
        network.node.sh(line);
    }
    node.forget_routes();
    let after = agree(&node, &seeds);
    assert_ne!(before, after, "the changes matter to some of the packets");
}
