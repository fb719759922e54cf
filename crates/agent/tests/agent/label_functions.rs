//! Functions behind labels with a real agent: netfilter in a namespace, an exact proxy, and a function that dies.

use std::time::{Duration, Instant};

use segue_testkit::command::sh;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, UdpRepr};
use serde_json::Value;

use crate::support::{Agent, Network};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a packet that should not come.
const SILENCE: Duration = Duration::from_millis(300);

const NETFILTER: u32 = 15_050;
const NEXT: u32 = 16_009;

const STATE: &str = "
node: lf
source_address: 'fc00:0:1::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: west, role: core}
  - {name: east, role: core}
mpls: {srgb: ['16000-16999'], srlb: ['15000-15999'], ecn: [{class: 2, marked: 3}]}
labels:
  - {label: 16009, behaviour: swap, out: 16010, next_hop: '2001:db8:2::2', port: east}
  - {label: 15050, behaviour: netfilter, netfilter: {namespace: NAMESPACE, watch: {hold_ms: 0, probe: {kind: icmp, through: true}}}}
";

fn labelled(entries: &[(u32, u8)], packet: PacketBuilder) -> PacketBuilder {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 2,
        ..MplsEntry::default()
    };
    if entries.is_empty() { packet } else { packet.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

fn six(entries: &[(u32, u8)], packet: PacketBuilder, port: u16, hop_limit: u8) -> PacketBuilder {
    let (client, server) = ("2001:db8:a::2".parse().unwrap(), "2001:db8:b::2".parse().unwrap());
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(client, server) };
    labelled(entries, packet).inner_ipv6(repr).udp(UdpRepr::new(40_000, port)).payload(b"behind labels")
}

fn four(entries: &[(u32, u8)], packet: PacketBuilder, port: u16, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hop_limit, ..Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()) };
    labelled(entries, packet).inner_ipv4(repr).udp(UdpRepr::new(40_000, port)).payload(b"behind labels")
}

fn sent() -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
}

fn received() -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]))
}

/// One of the test's packets, with labels or without.
fn is_ours(frame: &[u8]) -> bool {
    frame.ends_with(b"behind labels")
}

struct Lab<'a> {
    agent: Agent<'a>,
    namespace: String,
    left: PacketSocket,
    right: PacketSocket,
}

impl<'a> Lab<'a> {
    fn new(network: &'a Network) -> Self {
        network.node.script(
            "ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east
             ip -6 route add 2001:db8:b::/48 via 2001:db8:2::2
             ip address add 192.168.2.1/24 dev east
             ip neigh replace 192.168.2.2 lladdr 02:00:00:00:02:02 nud permanent dev east
             ip route add 10.2.0.0/16 via 192.168.2.2",
        );
        let namespace = format!("sglf{}", std::process::id());
        let agent = Agent::start(network);
        agent.apply(&STATE.replace("NAMESPACE", &namespace));
        let (left, right) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
        Self { agent, namespace, left, right }
    }

    fn nft(&self, rules: &str) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        // nft wants every statement and brace to end its line.
        std::io::Write::write_all(&mut file, rules.replace('}', "\n}\n").as_bytes()).unwrap();
        sh(&format!("ip netns exec {} nft -f {}", self.namespace, file.path().display()));
    }

    fn passes(&self, case: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
        self.right.drain();
        self.left.send(&frame.build());
        let found = self.right.receive_where(PATIENCE, is_ours);
        let found = found.unwrap_or_else(|| panic!("{case}: nothing comes out\n{}", self.agent.get("/v1/outcomes")));
        assert_eq!(found, expected.build(), "{case}");
    }

    fn swallows(&self, case: &str, frame: &PacketBuilder) {
        self.right.drain();
        self.left.send(&frame.build());
        assert_eq!(self.right.receive_where(SILENCE, is_ours), None, "{case}");
    }

    fn report(&self, of: &str) -> Value {
        let all = self.agent.get(of);
        let found = all.as_array().unwrap().iter().find(|row| row["sid"] == format!("label {NETFILTER}"));
        found.unwrap_or_else(|| panic!("the label is not there: {all}")).clone()
    }

    fn is(&self, state: &str) {
        let begun = Instant::now();
        while self.report("/v1/functions")["state"] != state {
            assert!(begun.elapsed() < PATIENCE, "{}", self.report("/v1/functions"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // Dead first: it would make again what is removed.
        self.agent.kill();
        let _ = self.agent.clean();
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// Netfilter sees packets without labels, and each gets the rest of its own stack back, with its own hop limit.
#[test]
#[ignore = "needs root"]
fn netfilter_behind_a_label() {
    let network = Network::new();
    let lab = Lab::new(&network);
    for rest in [vec![(NEXT, 40)], vec![(NEXT, 9), (70_000, 50), (70_001, 60)]] {
        let (stack, mut left) = ([&[(NETFILTER, 7)], &rest[..]].concat(), rest.clone());
        left[0] = (16_010, left[0].1 - 1);
        for hops in [64, 2, 1] {
            let case = format!("{rest:?}, hop limit {hops}");
            lab.passes(&case, &six(&stack, sent(), 1, hops), &six(&left, received(), 1, hops));
            lab.passes(&case, &four(&stack, sent(), 1, hops), &four(&left, received(), 1, hops));
        }
    }
    // Of congestion netfilter is told by the packet, and the labels that go on again tell of it; it is in no other packet's.
    let behind = |entries: &[(u32, u8)], front, class: u8, ecn: u8| {
        let ip = 14 + 4 * entries.len();
        let packet = six(entries, front, 1, 9).with_bytes(ip + 1, &[ecn << 4]);
        packet.with_bytes(16, &[(entries[0].0 as u8) << 4 | class << 1 | u8::from(entries.len() == 1)])
    };
    for (class, ecn, told) in [(3, 2, 3), (2, 2, 2), (3, 1, 3), (2, 3, 3)] {
        let left = behind(&[(16_010, 8)], received(), if told == 3 { 3 } else { 2 }, told);
        lab.passes("congestion", &behind(&[(NETFILTER, 7), (NEXT, 9)], sent(), class, ecn), &left);
    }
    // Nothing is left of the stack: by destination.
    lab.passes("last", &six(&[(NETFILTER, 7)], sent(), 1, 9), &six(&[], received(), 1, 8));
    lab.passes("last", &four(&[(NETFILTER, 7)], sent(), 1, 9), &four(&[], received(), 1, 8));
    // It is netfilter: rules hold, on packets without labels.
    lab.nft("table inet t { chain through { type filter hook forward priority 0; udp dport 2 drop } }");
    lab.swallows("dropped", &six(&[(NETFILTER, 7), (NEXT, 9)], sent(), 2, 9));
    lab.swallows("dropped", &four(&[(NETFILTER, 7), (NEXT, 9)], sent(), 2, 9));
    let report = lab.report("/v1/sids");
    assert_eq!(report["behaviour"], "netfilter", "{report}");
    assert_eq!((&report["counter"]["packets"], &report["returned"]["packets"]), (&20.into(), &18.into()), "{report}");
}

/// A function behind a label that dies, and lives again.
#[test]
#[ignore = "needs root"]
fn the_life_of_a_function_behind_a_label() {
    let network = Network::new();
    let lab = Lab::new(&network);
    let (frame, expected) = (six(&[(NETFILTER, 7), (NEXT, 9)], sent(), 1, 9), six(&[(16_010, 8)], received(), 1, 9));
    lab.passes("alive", &frame, &expected);
    let change = |on_failure: &str| {
        let text = STATE.replace("NAMESPACE", &lab.namespace);
        lab.agent.apply(&text.replace("watch: {hold_ms: 0", &format!("on_failure: {on_failure}, watch: {{hold_ms: 0")));
    };
    lab.is("up");
    lab.nft("table inet deaf { chain through { type filter hook forward priority -1; policy drop; } }");
    lab.is("down");
    lab.swallows("dropped", &frame);
    change("bypass");
    lab.passes("bypassed", &frame, &expected);
    change("withdraw");
    lab.swallows("withdrawn", &frame);
    change("reroute, backup_label: 16009");
    // The backup in its place, and the rest behind it.
    lab.passes("rerouted", &frame, &six(&[(16_010, 6), (NEXT, 9)], received(), 1, 9));
    lab.nft("delete table inet deaf");
    lab.is("up");
    lab.passes("alive again", &frame, &expected);
}
