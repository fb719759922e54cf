//! The node's own firewall behind a label: its rules on the packet that is behind the stack.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const FIREWALL: u32 = 15_040;
const STATEFUL: u32 = 15_041;

const LABELS: &str = "
labels:
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 15040, behaviour: firewall, firewall: fw}
  - {label: 15041, behaviour: firewall, firewall: stateful}
";

fn configured(ttl: &str) -> String {
    let rules = |lines: &[&str]| {
        let rules: String = lines.iter().map(|line| format!("-A FORWARD {line}\\n")).collect();
        format!("\"*filter\\n:INPUT ACCEPT\\n:FORWARD ACCEPT\\n:OUTPUT ACCEPT\\n{rules}COMMIT\\n\"")
    };
    let plain = rules(&["-p udp --dport 2 -j DROP", "-p udp --dport 3 -j REJECT"]);
    let state = rules(&["-m conntrack --ctstate ESTABLISHED -j ACCEPT", "-p tcp --dport 80 -j ACCEPT", "-j DROP"]);
    let both = |name: &str, text: &str| {
        format!("  - {{name: {name}, ipv6: {{file: v6, text: {text}}}, ipv4: {{file: v4, text: {text}}}}}\n")
    };
    let firewalls = format!("firewalls:\n{}{}", both("fw", &plain), both("stateful", &state));
    let text = configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n"), 1);
    format!("{text}mpls: {{ttl: {ttl}}}{LABELS}")
}

fn stack(packet: PacketBuilder, entries: &[(u32, u8)]) -> PacketBuilder {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 3,
        ..MplsEntry::default()
    };
    if entries.is_empty() { packet } else { packet.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

fn six(packet: PacketBuilder, entries: &[(u32, u8)], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, SERVER) };
    stack(packet, entries).inner_ipv6(repr).udp(UdpRepr::new(40_000, port)).payload(b"through rules")
}

fn four(packet: PacketBuilder, entries: &[(u32, u8)], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    stack(packet, entries).inner_ipv4(repr).udp(UdpRepr::new(40_000, port)).payload(b"through rules")
}

fn passes(node: &Golden<'_>, case: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
    let found = node.send("core0", frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
    assert_eq!(found.frame, expected.build(), "{case}: {:?}", found.moved);
    assert_eq!(found.moved.get("core0 forwarded").map(|(packets, _)| *packets), Some(1), "{case}: {:?}", found.moved);
}

#[test]
#[ignore = "needs root"]
fn rules_hold_behind_a_label() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let sent = [(FIREWALL, 9), (SWAP, 20), (70_000, 30)];
    let left = [(SWAP_TO, 19), (70_000, 30)];
    passes(&node, "IPv6", &six(arriving("core0"), &sent, 1, 7), &six(leaving("core1"), &left, 1, 7));
    passes(&node, "IPv4", &four(arriving("core0"), &sent, 1, 7), &four(leaving("core1"), &left, 1, 7));
    let last = [(FIREWALL, 1)];
    passes(&node, "the last label", &six(arriving("core0"), &last, 1, 7), &six(leaving("acc1"), &[], 1, 6));
    passes(&node, "the last label", &four(arriving("core0"), &last, 1, 7), &four(leaving("acc1"), &[], 1, 6));
    for entries in [&sent[..], &last[..]] {
        for frame in [six(arriving("core0"), entries, 2, 7), four(arriving("core0"), entries, 2, 7)] {
            let found = node.send("core0", &frame);
            assert_eq!(found.verdict, Verdict::Drop, "{:?}", found.moved);
            assert!(found.moved.contains_key("core0 drop_firewall"), "{:?}", found.moved);
        }
        let frame = six(arriving("core0"), entries, 3, 7);
        let found = node.send("core0", &frame);
        assert!(found.moved.contains_key("core0 drop_firewall_rejected"), "{:?}", found.moved);
        assert_eq!(found.frame[54..56], [1, 4], "port unreachable, about the packet without labels");
        let without = six(PacketBuilder::new(), &[], 3, 7).build();
        assert_eq!(found.frame[62..], without[..], "as it came");
    }
    let both = [(FIREWALL, 9), (FIREWALL, 9), (SWAP, 20)];
    passes(&node, "twice", &six(arriving("core0"), &both, 1, 7), &six(leaving("core1"), &[(SWAP_TO, 19)], 1, 7));
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn connections_and_one_ttl_behind_a_label() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("uniform"));
    let frame = six(arriving("core0"), &[(FIREWALL, 40), (SWAP, 20)], 1, 7);
    passes(&node, "TTL", &frame, &six(leaving("core1"), &[(SWAP_TO, 39)], 1, 7));
    let last = six(arriving("core0"), &[(FIREWALL, 40)], 1, 7);
    passes(&node, "TTL, at the end", &last, &six(leaving("acc1"), &[], 1, 39));
    let tcp = |packet: PacketBuilder, entries: &[(u32, u8)], there: bool, flags: u8| {
        let repr = if there { Ipv6Repr::new(CLIENT, SERVER) } else { Ipv6Repr::new(SERVER, CLIENT) };
        let (from, to) = if there { (1000, 80) } else { (80, 1000) };
        stack(packet, entries).inner_ipv6(repr).tcp(TcpRepr::new(from, to, flags))
    };
    let (sent, left) = ([(STATEFUL, 9), (SWAP, 20)], [(SWAP_TO, 8)]);
    let answer = tcp(arriving("core0"), &sent, false, 0x12);
    assert!(node.send("core0", &answer).moved.contains_key("core0 drop_firewall"), "nobody has asked");
    passes(&node, "SYN", &tcp(arriving("core0"), &sent, true, 2), &tcp(leaving("core1"), &left, true, 2));
    passes(&node, "answer", &answer, &tcp(leaving("core1"), &left, false, 0x12));
    node.finish();
}
