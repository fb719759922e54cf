//! End.AN.NF with a real agent: netfilter in a namespace of its own works on the inner packet, and the steering header comes
//! back as it was but for what End does to it.
//!
//! Longer than 500 lines: all tests share one node, its namespace with rules and the packets through it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use crate::support::{Agent, Network};
use segue_testkit::command::sh;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr};
use segue_wire::{Icmpv4Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, TlvRepr, UdpRepr};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a packet that should not come.
const SILENCE: Duration = Duration::from_millis(300);

const STATE: &str = "
node: nf
source_address: 'fc00:0:1::1'
locator: 'fc00:0:1::/48'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: west, role: core}
  - {name: east, role: core}
";

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn client() -> Ipv6Addr {
    address("2001:db8:a::2")
}
fn server() -> Ipv6Addr {
    address("2001:db8:b::2")
}
const CLIENT4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER4: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// The SID with an argument of 16 bits, then `chain`, then the egress.
fn path(argument: u16, chain: u16) -> [Ipv6Addr; 3] {
    let sid = Ipv6Addr::new(0xfc00, 0, 1, 1, argument, 0, 0, 0);
    [sid, Ipv6Addr::new(0xfc00, 0, 2, chain, 0, 0, 0, 0), address("fc00:0:2:ffff::")]
}

/// A steered packet on its way to the node.
struct Steered {
    path: [Ipv6Addr; 3],
    outer: Ipv6Repr,
    srh: SrhRepr,
    options: bool,
}

fn steered(argument: u16, chain: u16) -> Steered {
    let path = path(argument, chain);
    let outer = Ipv6Repr {
        flow_label: 0x12345 ^ u32::from(chain),
        hop_limit: 57,
        ..Ipv6Repr::new(address("2001:db8:1::2"), path[0])
    };
    Steered { path, outer, srh: SrhRepr::new(&path), options: false }
}

impl Steered {
    fn sent(&self) -> PacketBuilder {
        let packet = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
        self.headers(packet, self.outer, self.srh.clone())
    }

    /// What End makes of it.
    fn advanced(&self) -> PacketBuilder {
        let packet = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]));
        let left = self.srh.segments_left - 1;
        let outer = Ipv6Repr {
            destination: self.path[2 - usize::from(left)],
            hop_limit: self.outer.hop_limit - 1,
            ..self.outer
        };
        self.headers(packet, outer, self.srh.clone().with_segments_left(left))
    }

    fn headers(&self, packet: PacketBuilder, outer: Ipv6Repr, srh: SrhRepr) -> PacketBuilder {
        let packet = packet.ipv6(outer);
        let packet = if self.options { packet.destination_options(OptionsRepr::default()) } else { packet };
        packet.srh(srh)
    }
}

/// The node between its neighbours, an agent, and a namespace for netfilter.
struct Lab<'a> {
    agent: Agent<'a>,
    namespace: String,
    left: PacketSocket,
    right: PacketSocket,
}

impl<'a> Lab<'a> {
    fn new(network: &'a Network, name: &str, extra: &str) -> Self {
        Self::new_in(network, name, extra, &[])
    }

    /// The same with an agent that has these variables in its environment.
    fn new_in(network: &'a Network, name: &str, extra: &str, environment: &[(&'static str, &'static str)]) -> Self {
        network.node.script(
            "ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east
             ip neigh replace 2001:db8:1::2 lladdr 02:00:00:00:01:02 nud permanent dev west
             ip address add 192.168.1.1/24 dev west
             ip neigh replace 192.168.1.2 lladdr 02:00:00:00:01:02 nud permanent dev west
             ip route add 10.1.0.0/16 via 192.168.1.2
             ip -6 route add 2001:db8:a::/48 via 2001:db8:1::2",
        );
        let namespace = format!("sgnf{name}{}", std::process::id());
        let agent = Agent::start_in(network, environment);
        let lab = Self {
            agent,
            namespace,
            left: PacketSocket::open(&network.left, "n"),
            right: PacketSocket::open(&network.right, "n"),
        };
        lab.agent.apply(&lab.state(extra));
        lab.right.drain();
        lab
    }

    fn state(&self, extra: &str) -> String {
        format!(
            "{STATE}sids:\n  - {{sid: 'fc00:0:1:1::/64', behaviour: End.AN.NF, argument_length: 16, netfilter: {{namespace: {}{extra}}}}}\n",
            self.namespace
        )
    }

    /// Runs a line in the function's namespace.
    fn sh(&self, line: &str) -> String {
        sh(&format!("ip netns exec {} {line}", self.namespace))
    }

    fn nft(&self, rules: &str) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        // nft wants every statement and brace to end its line.
        let lines = rules.replace('}', "\n}\n");
        std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
        self.sh(&format!("nft -f {}", file.path().display()));
    }

    /// Packets that the nft counter has seen.
    fn counter(&self, name: &str) -> u64 {
        self.counter_of("inet", name)
    }

    /// The same of a table of this family.
    fn counter_of(&self, family: &str, name: &str) -> u64 {
        let text = self.sh(&format!("nft list counter {family} t {name}"));
        let words: Vec<_> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").unwrap_or_else(|| panic!("{text}"));
        words[at + 1].parse().unwrap()
    }

    /// Sends a frame from the left, and returns the first steered one that comes out on the right.
    fn pass(&self, frame: &PacketBuilder) -> Option<Vec<u8>> {
        self.right.drain();
        self.left.send(&frame.build());
        self.right.receive_where(PATIENCE, is_steered)
    }

    fn passes(&self, case: &str, sent: &PacketBuilder, expected: &PacketBuilder) {
        let (found, expected) = (self.pass(sent), expected.build());
        let Some(found) = found else { panic!("{case}: nothing comes out\n{}", self.counters()) };
        let at = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(found, expected, "{case}: they part at {at:?}");
    }

    fn swallows(&self, case: &str, sent: &PacketBuilder) {
        self.right.drain();
        self.left.send(&sent.build());
        let found = self.right.receive_where(SILENCE, is_steered);
        assert_eq!(found, None, "{case}");
    }

    /// All outcomes of all ports.
    fn counters(&self) -> String {
        let outcomes = self.agent.get("/v1/outcomes");
        let rows = outcomes.as_array().unwrap().iter();
        rows.map(|row| format!("{} {} {}\n", row["port"], row["outcome"], row["counter"]["packets"])).collect()
    }

    fn counted(&self, outcome: &str) -> u64 {
        let outcomes = self.agent.get("/v1/outcomes");
        let rows = outcomes.as_array().unwrap().iter().filter(|row| row["outcome"] == outcome);
        rows.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum()
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // Dead first: it would make again what is removed.
        self.agent.kill();
        let _ = self.agent.clean();
        // If the test made it itself, or the agent could not.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// Not the kernel's own, which tells its groups for seconds after a link has come up.
fn is_steered(frame: &[u8]) -> bool {
    let is_to_one = frame.first().is_some_and(|octet| octet & 1 == 0);
    is_to_one && frame.get(12..15) == Some(&[0x86, 0xdd, 0x60])
        || frame.get(12..14) == Some(&[0x86, 0xdd])
            && frame.get(20) == Some(&43)
            && frame.get(38..40) == Some(&[0xfc, 0])
}

fn six(packet: PacketBuilder, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0x54321, ..Ipv6Repr::new(client(), server()) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for netfilter")
}

fn four(packet: PacketBuilder, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, identification: 0x1234, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for netfilter")
}

fn tcp4(packet: PacketBuilder, source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), tcp: TcpRepr) -> PacketBuilder {
    let tcp = TcpRepr { source_port: source.1, destination_port: destination.1, ..tcp };
    packet.inner_ipv4(Ipv4Repr::new(source.0, destination.0)).tcp(tcp)
}

#[test]
#[ignore = "needs root"]
fn what_netfilter_leaves_alone_comes_out_octet_by_octet() {
    let network = Network::new();
    let lab = Lab::new(&network, "same", "");
    for hop_limit in [1, 2, 64, 254, 255] {
        let path = steered(0, 1);
        lab.passes(&format!("IPv6, {hop_limit}"), &six(path.sent(), hop_limit), &six(path.advanced(), hop_limit));
        lab.passes(&format!("IPv4, {hop_limit}"), &four(path.sent(), hop_limit), &four(path.advanced(), hop_limit));
    }
    let plain = || steered(7, 2);
    let with = |change: fn(&mut Steered)| {
        let mut path = plain();
        change(&mut path);
        path
    };
    for (case, path) in [
        ("options in front of the SRH", with(|path| path.options = true)),
        (
            "SRH with a TLV",
            with(|path| {
                let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![3; 6] };
                path.srh = path.srh.clone().with_tlv(tlv);
            }),
        ),
        ("reduced SRH", with(|path| path.srh = SrhRepr::reduced(&path.path))),
        (
            "last segment",
            with(|path| {
                path.srh = SrhRepr::new(&[address("fc00:0:2:9::"), path.path[0], path.path[2]]).with_segments_left(1);
            }),
        ),
        ("DSCP of its own", with(|path| path.outer.traffic_class = 0xb8 | 1)),
        ("no flow label", with(|path| path.outer.flow_label = 0)),
        ("hop limit 255", with(|path| path.outer.hop_limit = 255)),
        ("hop limit 2", with(|path| path.outer.hop_limit = 2)),
    ] {
        for (family, inner) in [("IPv6", six as fn(PacketBuilder, u8) -> PacketBuilder), ("IPv4", four)] {
            let found = lab.pass(&inner(path.sent(), 64)).unwrap_or_else(|| panic!("{case}: {}", lab.counters()));
            let mut expected = inner(path.advanced(), 64).build();
            // The outer ECN field is made anew from the inner one (RFC 6040 section 4.1).
            expected[15] &= 0xcf;
            assert_eq!(found, expected, "{case}, {family}");
        }
    }
    // Inner packets of other kinds.
    let path = plain();
    let fragment = |packet: PacketBuilder| {
        packet
            .inner_ipv6(Ipv6Repr::new(client(), server()))
            .fragment(FragmentRepr {
                fragment_offset: 0,
                more_fragments: true,
                identification: 77,
                ..FragmentRepr::default()
            })
            .udp(UdpRepr::new(1, 2))
            .payload(&[7; 64])
    };
    lab.passes("an inner fragment", &fragment(path.sent()), &fragment(path.advanced()));
    let echo = |packet: PacketBuilder| {
        packet.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).icmpv4(Icmpv4Repr::EchoRequest {
            identifier: 1,
            sequence_number: 2,
            data: vec![1; 33],
        })
    };
    lab.passes("ICMP of odd length", &echo(path.sent()), &echo(path.advanced()));
    let large = |packet: PacketBuilder| {
        packet.inner_ipv6(Ipv6Repr::new(client(), server())).udp(UdpRepr::new(1, 2)).payload(&[9; 1312])
    };
    lab.passes("as large as the link", &large(path.sent()), &large(path.advanced()));
    lab.passes(
        "octets behind the packet are cut",
        &four(path.sent(), 9).trailer(&[0xee; 9]),
        &four(path.advanced(), 9),
    );
    // The SID is a route that a routing daemon sees.
    assert_eq!(network.routes(), ["blackhole fc00:0:1:1::/64"]);
}

#[test]
#[ignore = "needs root"]
fn all_hooks_see_the_inner_packet_with_its_mark() {
    let network = Network::new();
    let lab = Lab::new(&network, "hooks", "");
    lab.nft(
        "table inet t {
           counter pre4 { } counter fwd4 { } counter post4 { } counter pre6 { } counter fwd6 { } counter post6 { }
           counter other { } counter marked { }
           chain pre { type filter hook prerouting priority 0;
             ip saddr 10.1.0.2 ip daddr 10.2.0.2 iifname west counter name pre4
             ip6 saddr 2001:db8:a::2 iifname west udp dport 40001 counter name pre6
             meta mark 0xbeef counter name marked
             ip6 nexthdr 43 counter name other }
           chain through { type filter hook forward priority 0;
             ip protocol udp iifname west oifname east udp sport 40000 counter name fwd4
             meta nfproto ipv6 iifname west oifname east ip6 hoplimit 63 counter name fwd6
             meta mark 0xdead drop }
           chain post { type filter hook postrouting priority 0;
             ip saddr 10.1.0.2 oifname east counter name post4
             ip6 saddr 2001:db8:a::2 oifname east counter name post6 }
         }",
    );
    lab.sh("iptables -A FORWARD -i west -o east -m mark --mark 0xbeef -j ACCEPT");
    lab.sh(
        "ip6tables -A FORWARD -i west -o east -s 2001:db8:a::2 -p udp --dport 40001 -m mark --mark 0xbeef -j ACCEPT",
    );
    lab.sh("iptables -A FORWARD -m mark --mark 0xbad -j DROP");
    lab.sh("ip6tables -A FORWARD -m mark --mark 0xbad -j DROP");
    for argument in [0xbeef, 1] {
        let path = steered(argument, 3);
        // The forward hook sees the hop limit as on every router: the kernel has lowered it. It leaves as it came.
        lab.passes("IPv6", &six(path.sent(), 64), &six(path.advanced(), 64));
        lab.passes("IPv4", &four(path.sent(), 64), &four(path.advanced(), 64));
    }
    for name in ["pre4", "fwd4", "post4", "pre6", "fwd6", "post6", "marked"] {
        assert_eq!(lab.counter(name), 2, "{name}\n{}", lab.sh("nft list ruleset"));
    }
    assert_eq!(lab.counter("other"), 0, "no hook sees the steering header");
    for program in ["iptables", "ip6tables"] {
        let listed = lab.sh(&format!("{program} -L FORWARD -v -x -n"));
        let rule = listed.lines().find(|line| line.contains("0xbeef")).unwrap_or_else(|| panic!("{listed}"));
        assert_eq!(rule.split_whitespace().next(), Some("1"), "{listed}");
    }
    for argument in [0xdead, 0xbad] {
        lab.swallows("dropped by its mark", &six(steered(argument, 3).sent(), 64));
        lab.swallows("dropped by its mark", &four(steered(argument, 3).sent(), 64));
    }
}

#[test]
#[ignore = "needs root"]
fn mangle_and_connection_tracking() {
    let network = Network::new();
    let lab = Lab::new(&network, "mangle", "");
    lab.nft(
        "table inet t {
           counter new { } counter known { } counter invalid { }
           chain pre { type filter hook prerouting priority -150;
             meta mark 5 ip ttl set 33
             meta mark 5 ip6 hoplimit set 33
             meta mark 6 ip dscp set ef
             meta mark 6 ip6 dscp set ef }
           chain through { type filter hook forward priority 0;
             ct state new counter name new
             ct state established counter name known
             ct state invalid counter name invalid drop }
         }",
    );
    let path = steered(5, 1);
    // Set to 33 in front of routing, which lowers it as on every router: 32.
    lab.passes("hop limit", &six(path.sent(), 64), &six(path.advanced(), 32));
    lab.passes("TTL", &four(path.sent(), 64), &four(path.advanced(), 32));
    let path = steered(6, 1);
    let found = lab.pass(&six(path.sent(), 64)).expect("a packet");
    let inner = 14 + 40 + 8 + 48;
    assert_eq!(u16::from_be_bytes([found[inner], found[inner + 1]]) >> 4 & 0xff, 46 << 2, "DSCP");
    assert_eq!(found[15] >> 4 & 3, 0, "outer ECN");
    let found = lab.pass(&four(path.sent(), 64)).expect("a packet");
    assert_eq!(found[inner + 1], 46 << 2);
    // A connection: both directions come through the same SID.
    let path = steered(0, 4);
    let (here, there) = ((CLIENT4, 1000), (SERVER4, 80));
    let send = |from, to, tcp: TcpRepr| lab.pass(&tcp4(path.sent(), from, to, tcp));
    let flags = |flags, sequence, acknowledgment| TcpRepr {
        sequence_number: sequence,
        acknowledgment_number: acknowledgment,
        ..TcpRepr::new(0, 0, flags)
    };
    assert!(send(here, there, flags(0x02, 100, 0)).is_some(), "SYN");
    assert!(send(there, here, flags(0x12, 500, 101)).is_some(), "SYN, ACK");
    assert!(send(here, there, flags(0x10, 101, 501)).is_some(), "ACK");
    let before = lab.counter("invalid");
    lab.swallows("out of nowhere", &tcp4(path.sent(), (SERVER4, 81), here, flags(0x12, 500, 101)));
    assert_eq!(lab.counter("invalid"), before + 1);
    assert!(lab.counter("known") >= 2, "{}", lab.sh("nft list ruleset"));
}

/// docs/using/connector.md: what each hook sees of the hop limit, and what becomes of one that a rule sets there.
#[test]
#[ignore = "needs root"]
fn the_hop_limit_in_each_hook() {
    let network = Network::new();
    let lab = Lab::new(&network, "hops", "");
    let limits = [2_u8, 3, 64, 254, 255];
    let mut rules = [String::new(), String::new(), String::new()];
    let mut counters = String::new();
    for limit in limits {
        for (hook, (rules, name)) in rules.iter_mut().zip(["pre", "fwd", "post"]).enumerate() {
            let seen = if hook == 0 { limit } else { limit - 1 };
            counters += &format!("counter {name}4_{limit} {{ }} counter {name}6_{limit} {{ }}\n");
            // The namespace itself sends reports of multicast listeners with a hop limit of 1.
            *rules += &format!("meta l4proto udp ip ttl {seen} counter name {name}4_{limit}\n");
            *rules += &format!("meta l4proto udp ip6 hoplimit {seen} counter name {name}6_{limit}\n");
        }
    }
    let [pre, forward, post] = rules;
    lab.nft(&format!(
        "table inet t {{
           {counters}
           chain pre {{ type filter hook prerouting priority -150;
             {pre}
             meta mark 1 ip ttl set 33
             meta mark 1 ip6 hoplimit set 33
             meta mark 4 ip ttl lt 255 drop
             meta mark 4 ip6 hoplimit lt 255 drop }}
           chain through {{ type filter hook forward priority 0;
             {forward}
             meta mark 2 ip ttl set 33
             meta mark 2 ip6 hoplimit set 33 }}
           chain post {{ type filter hook postrouting priority 0;
             {post}
             meta mark 3 ip ttl set 33
             meta mark 3 ip6 hoplimit set 33
             meta mark 5 ip ttl set 255
             meta mark 5 ip6 hoplimit set 255 }}
         }}",
    ));
    let path = steered(0, 1);
    for limit in limits {
        lab.passes(&format!("IPv6, {limit}"), &six(path.sent(), limit), &six(path.advanced(), limit));
        lab.passes(&format!("IPv4, {limit}"), &four(path.sent(), limit), &four(path.advanced(), limit));
    }
    for limit in limits {
        for (hook, name) in ["pre", "fwd", "post"].iter().enumerate() {
            for family in [4, 6] {
                let counted = lab.counter(&format!("{name}{family}_{limit}"));
                assert_eq!(counted, 1, "IPv{family} with {limit}, hook {hook}: {}", lab.sh("nft list ruleset"));
            }
        }
    }
    for limit in [1, 2, 64, 254, 255] {
        for (mark, leaves) in [(1, 32), (2, 33), (3, 33), (5, 255)] {
            let path = steered(mark, 1);
            let case = |family: u8| format!("IPv{family} with {limit}, mark {mark}");
            lab.passes(&case(6), &six(path.sent(), limit), &six(path.advanced(), leaves));
            lab.passes(&case(4), &four(path.sent(), limit), &four(path.advanced(), leaves));
        }
    }
    // Who lets only neighbours speak (RFC 5082) can tell 254 from 255.
    let path = steered(4, 1);
    lab.swallows("IPv4, 254", &four(path.sent(), 254));
    lab.swallows("IPv6, 254", &six(path.sent(), 254));
    lab.passes("IPv4, 255", &four(path.sent(), 255), &four(path.advanced(), 255));
    lab.passes("IPv6, 255", &six(path.sent(), 255), &six(path.advanced(), 255));
}

/// No inner address is the namespace's own, and what the kernel would drop without a word is counted.
#[test]
#[ignore = "needs root"]
fn inner_addresses_that_are_special_elsewhere() {
    let network = Network::new();
    let lab = Lab::new(&network, "addr", "");
    let path = steered(0, 1);
    let four = |packet: PacketBuilder, source, destination| {
        packet.inner_ipv4(Ipv4Repr::new(source, destination)).udp(UdpRepr::new(7, 8)).payload(b"special")
    };
    let six = |packet: PacketBuilder, source, destination| {
        packet.inner_ipv6(Ipv6Repr::new(source, destination)).udp(UdpRepr::new(7, 8)).payload(b"special")
    };
    for special in [Ipv4Addr::new(192, 0, 0, 8), Ipv4Addr::new(169, 254, 0, 1), Ipv4Addr::new(192, 168, 1, 1)] {
        for (source, destination) in [(CLIENT4, special), (special, SERVER4)] {
            let case = format!("{source} to {destination}");
            lab.passes(&case, &four(path.sent(), source, destination), &four(path.advanced(), source, destination));
        }
    }
    for special in [address("100:0:0:1::8"), address("100:0:0:1::9"), address("2001:db8:1::1")] {
        for (source, destination) in [(client(), special), (special, server())] {
            let case = format!("{source} to {destination}");
            lab.passes(&case, &six(path.sent(), source, destination), &six(path.advanced(), source, destination));
        }
    }
    assert_eq!(lab.counted("drop_bad_inner"), 0);
    lab.swallows("a link-local source", &six(path.sent(), address("fe80::1"), server()));
    assert_eq!(lab.counted("drop_bad_inner"), 1, "{}", lab.counters());
}

/// A rule that translates a destination into a SID does not bring the packet there.
#[test]
#[ignore = "needs root"]
fn no_rule_leads_to_a_sid() {
    let network = Network::new();
    let lab = Lab::new(&network, "tosid", "");
    lab.nft(
        "table ip6 t { chain pre { type nat hook prerouting priority dstnat;
           udp dport 1 dnat to fc00:0:2:43::
           udp dport 2 dnat to fc00:0:1:1:5::
           udp dport 3 dnat to 2001:db8:b::3 } }",
    );
    let path = steered(0, 1);
    let to = |packet: PacketBuilder, destination, port| {
        packet.inner_ipv6(Ipv6Repr::new(client(), destination)).udp(UdpRepr::new(9, port)).payload(b"to a SID")
    };
    for (case, port) in [("another node's", 1), ("this node's", 2)] {
        let before = lab.counted("drop_from_function");
        lab.swallows(case, &to(path.sent(), server(), port));
        assert_eq!(lab.counted("drop_from_function"), before + 1, "{case}: {}", lab.counters());
    }
    lab.passes("elsewhere", &to(path.sent(), server(), 3), &to(path.advanced(), address("2001:db8:b::3"), 3));
    // Inner packets to a SID do not get in, either.
    let before = lab.counted("drop_inner_to_sid");
    lab.swallows("to a SID at once", &to(path.sent(), address("fc00:0:2:43::"), 4));
    assert_eq!(lab.counted("drop_inner_to_sid"), before + 1, "{}", lab.counters());
}

/// An SRH that was inserted into a user's packet (H.Insert): netfilter sees the packet as its source made it.
#[test]
#[ignore = "needs root"]
fn inserted_srhs_come_off_and_go_in_again() {
    let network = Network::new();
    let lab = Lab::new(&network, "insert", "");
    lab.nft(
        "table ip6 t {
           counter seen { }
           chain pre { type filter hook prerouting priority -150;
             ip6 daddr 2001:db8:b::2 ip6 hoplimit 63 meta mark 0x50 ip6 nexthdr udp counter name seen }
           chain nat { type nat hook prerouting priority dstnat;
             udp dport 1 dnat to fc00:0:2:43::
             udp dport 2 dnat to 2001:db8:b::3 }
         }",
    );
    let packet = |front: PacketBuilder, hop_limit: u8, to: Ipv6Addr, srh: SrhRepr, port| {
        let header = Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0x54321, ..Ipv6Repr::new(client(), to) };
        front.ipv6(header).srh(srh).udp(UdpRepr::new(9, port)).payload(b"a user's own packet")
    };
    let west = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
    let east = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]));
    let [sid, chain, _] = path(0x50, 3);
    let last = address("fc00:0:2:9::");
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![3; 6] };
    for (case, srh) in [
        ("two segments left", SrhRepr::new(&[sid, chain, server()])),
        ("three, with a tag and a TLV", SrhRepr::new(&[sid, chain, last, server()]).with_tag(7).with_tlv(tlv)),
        ("reduced", SrhRepr::reduced(&[sid, chain, server()])),
    ] {
        let left = srh.segments_left;
        let advanced = srh.clone().with_segments_left(left - 1);
        for hop_limit in [64, 2, 255] {
            let sent = packet(west(), hop_limit, sid, srh.clone(), 5);
            let expected = packet(east(), hop_limit - 1, chain, advanced.clone(), 5);
            let found = lab.pass(&sent).unwrap_or_else(|| panic!("{case}, {hop_limit}: {}", lab.counters()));
            assert_eq!(found, expected.build(), "{case}, {hop_limit}");
        }
        let mut translated = advanced.clone();
        translated.segments[0] = address("2001:db8:b::3");
        let found = lab.pass(&packet(west(), 64, sid, srh.clone(), 2)).unwrap_or_else(|| panic!("{}", lab.counters()));
        assert_eq!(found, packet(east(), 63, chain, translated, 2).build(), "{case}: NAT");
        let before = lab.counted("drop_from_function");
        lab.swallows("to a SID", &packet(west(), 64, sid, srh.clone(), 1));
        assert_eq!(lab.counted("drop_from_function"), before + 1, "{case}: {}", lab.counters());
    }
    assert_eq!(lab.counter_of("ip6", "seen"), 9, "{}", lab.sh("nft list ruleset"));
    // What netfilter could not put back is refused in front of it, each with its reason.
    let before = lab.counted("drop_inner_to_sid");
    lab.swallows("to a SID at its end", &packet(west(), 64, sid, SrhRepr::new(&[sid, chain, last]), 5));
    assert_eq!(lab.counted("drop_inner_to_sid"), before + 1, "{}", lab.counters());
}

/// Inner addresses and ports of a frame whose SRH has three segments, inner IPv4.
fn inner4(frame: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let at = 14 + 40 + 8 + 48;
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    ((address(at + 12), port(at + 20)), (address(at + 16), port(at + 22)))
}

fn udp4(packet: PacketBuilder, source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), text: &[u8]) -> PacketBuilder {
    packet.inner_ipv4(Ipv4Repr::new(source.0, destination.0)).udp(UdpRepr::new(source.1, destination.1)).payload(text)
}

#[test]
#[ignore = "needs root"]
fn addresses_are_translated_both_ways_in_any_number_of_chains() {
    let network = Network::new();
    let lab = Lab::new(&network, "nat", "");
    let outside: Ipv4Addr = "198.51.100.7".parse().unwrap();
    lab.nft(
        "table ip t {
           chain pre { type nat hook prerouting priority dstnat; ip daddr 203.0.113.9 dnat to 10.2.0.2 }
           chain post { type nat hook postrouting priority srcnat; ip saddr 10.1.0.0/16 snat to 198.51.100.7 }
         }",
    );
    let published: Ipv4Addr = "203.0.113.9".parse().unwrap();
    // The same inner packet in many chains at once: one translation, but to each its own header.
    let chains: Vec<u16> = (1..=50).collect();
    lab.right.drain();
    for chain in &chains {
        lab.left.send(&udp4(steered(0, *chain).sent(), (CLIENT4, 4000), (published, 53), &chain.to_be_bytes()).build());
    }
    let mut seen = Vec::new();
    while seen.len() < chains.len() {
        let frame = lab.right.receive_where(PATIENCE, is_steered).unwrap_or_else(|| panic!("{}", lab.counters()));
        let chain = u16::from_be_bytes([frame[frame.len() - 2], frame[frame.len() - 1]]);
        assert_eq!(inner4(&frame), ((outside, 4000), (SERVER4, 53)));
        let expected = udp4(steered(0, chain).advanced(), (outside, 4000), (SERVER4, 53), &chain.to_be_bytes());
        // TTL and all the rest is as it was; the checksums are right.
        assert_eq!(frame, expected.build(), "chain {chain}");
        seen.push(chain);
    }
    seen.sort_unstable();
    assert_eq!(seen, chains);
    // And back.
    for chain in [60, 61] {
        let path = steered(0, chain);
        lab.passes(
            "the answer",
            &udp4(path.sent(), (SERVER4, 53), (outside, 4000), b"answer"),
            &udp4(path.advanced(), (published, 53), (CLIENT4, 4000), b"answer"),
        );
    }
}

#[test]
#[ignore = "needs root"]
fn refusals_reach_the_inner_source() {
    let network = Network::new();
    let lab = Lab::new(&network, "reject", "");
    lab.nft(
        "table inet t { chain through { type filter hook forward priority 0;
           meta mark 1 reject
           meta mark 2 meta l4proto tcp reject with tcp reset } }",
    );
    let refused = |packet: PacketBuilder, wanted: &dyn Fn(&[u8]) -> bool| {
        lab.left.drain();
        lab.right.drain();
        lab.left.send(&packet.build());
        let found = lab.left.receive_where(PATIENCE, wanted);
        assert_eq!(lab.right.receive_where(Duration::from_millis(50), is_steered), None);
        found.unwrap_or_else(|| panic!("nothing reaches the client:\n{}", lab.counters()))
    };
    let path = steered(1, 1);
    let found = refused(four(path.sent(), 64), &|frame| frame[12..14] == [8, 0] && frame[23] == 1);
    assert_eq!(found[26..30], [192, 0, 0, 8], "from the dummy address that the kernel takes of itself");
    assert_eq!((found[30..34].to_vec(), found[34], found[35]), (CLIENT4.octets().to_vec(), 3, 3));
    assert_eq!(
        found[42 + 12..42 + 20].to_vec(),
        [CLIENT4.octets(), SERVER4.octets()].concat(),
        "it quotes the inner packet"
    );
    let found =
        refused(six(path.sent(), 64), &|frame| frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == 1);
    assert_eq!(found[38..54], client().octets());
    assert_eq!(found[54 + 8 + 8..54 + 8 + 24], client().octets(), "it quotes the inner packet");
    let path = steered(2, 1);
    let syn = TcpRepr { sequence_number: 41, ..TcpRepr::new(0, 0, 2) };
    let packet = tcp4(path.sent(), (CLIENT4, 1000), (SERVER4, 80), syn);
    let found = refused(packet, &|frame| frame[12..14] == [8, 0] && frame[23] == 6);
    assert_eq!(found[26..34].to_vec(), [SERVER4.octets(), CLIENT4.octets()].concat(), "in the server's name");
    assert_eq!((found[34 + 13] & 0x3f, found[42..46].to_vec()), (0x14, 42_u32.to_be_bytes().to_vec()), "RST, ACK 42");
    assert_eq!(tcp_checksum(&found), 0, "the checksum is there");
    // The operator may forbid it.
    lab.agent.apply(&lab.state(", own_traffic: drop"));
    lab.left.drain();
    lab.left.send(&four(steered(1, 1).sent(), 64).build());
    let heard = lab.left.receive_where(SILENCE, |frame| frame[12..14] == [8, 0] && frame[23] == 1);
    assert_eq!(heard, None);
    assert_eq!(lab.counted("drop_from_function"), 1, "{}", lab.counters());
}

/// Of an IPv4 frame without options: what remains when the checksum is right.
fn tcp_checksum(frame: &[u8]) -> u16 {
    let length = usize::from(u16::from_be_bytes([frame[16], frame[17]])) - 20;
    let mut sum = 6 + length as u32;
    let words = frame[26..34].chunks(2).chain(frame[34..34 + length].chunks(2));
    for word in words {
        sum += u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
#[ignore = "needs root"]
fn fragments_that_connection_tracking_puts_together_get_their_header_back() {
    let network = Network::new();
    let lab = Lab::new(&network, "frag", "");
    lab.nft("table inet t { counter whole { } chain through { type filter hook forward priority 0; ct state new udp dport 9 counter name whole } }");
    let path = steered(0, 5);
    let payload: Vec<u8> = (0..600).map(|n| n as u8).collect();
    // A datagram of 8 + 600 octets in two fragments; the first one with the UDP header.
    let datagram = PacketBuilder::new()
        .ipv4(Ipv4Repr { identification: 99, ..Ipv4Repr::new(CLIENT4, SERVER4) })
        .udp(UdpRepr::new(8, 9))
        .payload(&payload)
        .build();
    let part = |packet: PacketBuilder, octets: &[u8], offset: u16, more: bool| {
        let repr = Ipv4Repr {
            identification: 99,
            fragment_offset: offset,
            more_fragments: more,
            protocol: 17,
            dont_fragment: false,
            ..Ipv4Repr::new(CLIENT4, SERVER4)
        };
        packet.inner_ipv4(repr).payload(octets)
    };
    let (first, second) = datagram[20..].split_at(400);
    lab.right.drain();
    lab.left.send(&part(path.sent(), first, 0, true).build());
    lab.left.send(&part(path.sent(), second, 400, false).build());
    let mut frames = Vec::new();
    for _ in 0..2 {
        frames.push(lab.right.receive_where(PATIENCE, is_steered).unwrap_or_else(|| panic!("{}", lab.counters())));
    }
    assert_eq!(frames[0], part(path.advanced(), first, 0, true).build());
    assert_eq!(frames[1], part(path.advanced(), second, 400, false).build());
    assert_eq!(lab.counter("whole"), 1, "the hook saw the whole datagram, once");
}

#[test]
#[ignore = "needs root"]
fn making_and_removing() {
    let network = Network::new();
    let mut lab = Lab::new(&network, "life", "");
    let path = steered(0, 1);
    let works = |lab: &Lab<'_>, what: &str| lab.passes(what, &four(path.sent(), 64), &four(path.advanced(), 64));
    works(&lab, "at first");
    // What is there is not made again: rules survive an apply, and an agent that dies.
    lab.nft(
        "table inet t { counter seen { } chain through { type filter hook forward priority 0; counter name seen } }",
    );
    lab.agent.apply(&lab.state(", own_traffic: steer"));
    works(&lab, "after an apply");
    lab.agent.kill();
    works_without_agent(&lab, &path);
    lab.agent.restart(&[]);
    works(&lab, "after a restart");
    assert_eq!(lab.counter("seen"), 3);
    // A link that somebody removes comes again.
    network.node.sh(&format!("ip link del nfw-{}", short(&lab.namespace)));
    let gone = lab.namespace.clone();
    lab.agent.eventually("the link is made again", |_| {
        let listed = sh(&format!("ip netns exec {gone} ip -br link"));
        listed.contains("west")
    });
    lab.agent.eventually("packets pass again", |_| {
        lab.right.drain();
        lab.left.send(&four(path.sent(), 64).build());
        lab.right.receive_where(Duration::from_millis(200), is_steered).is_some()
    });
    // It all goes with the SID: links, filters, the namespace.
    lab.agent.apply(STATE);
    let links = network.node.sh("ip -br link");
    assert!(!links.contains("nfw-") && !links.contains("nfe-") && !links.contains("segue-loop"), "{links}");
    assert!(!sh("ip netns list").contains(&lab.namespace));
    assert_eq!(network.node.sh("tc qdisc show").matches("clsact").count(), 0, "{}", network.node.sh("tc qdisc show"));
    // A namespace that the operator made stays.
    sh(&format!("ip netns add {}", lab.namespace));
    lab.agent.apply(&lab.state(""));
    works(&lab, "in a namespace that was there");
    lab.agent.apply(STATE);
    assert!(sh("ip netns list").contains(&lab.namespace));
    assert_eq!(lab.sh("ip -br link").lines().count(), 1, "only lo is left: {}", lab.sh("ip -br link"));
}

/// As on a kernel without macvlan: the namespace's way out is a veth, and nothing else changes.
#[test]
#[ignore = "needs root"]
fn without_macvlan_a_veth_does_it() {
    let network = Network::new();
    let mut lab = Lab::new_in(&network, "veth", "", &[("SEGUE_WITHOUT_MACVLAN", "1")]);
    let links = lab.sh("ip -d link show dev east");
    assert!(links.contains("veth") && !links.contains("macvlan"), "{links}");
    assert!(lab.agent.log().contains("costs one more queue"), "{}", lab.agent.log());
    lab.nft(
        "table inet t { counter seen { } chain through { type filter hook forward priority 0; meta mark 0x50 counter name seen } }",
    );
    let mut packets = 0;
    let mut works = |lab: &Lab<'_>| {
        for chain in [1, 2] {
            let path = steered(0x50, chain);
            for hop_limit in [64, 1, 255] {
                lab.passes("IPv4", &four(path.sent(), hop_limit), &four(path.advanced(), hop_limit));
                lab.passes("IPv6", &six(path.sent(), hop_limit), &six(path.advanced(), hop_limit));
                packets += 2;
            }
        }
        assert_eq!(lab.counter("seen"), packets);
    };
    works(&lab);
    // The next agent takes what is there, and makes what is missing.
    lab.agent.kill();
    lab.agent.restart(&[]);
    works(&lab);
    // What netfilter makes itself finds its way.
    lab.nft("table inet r { chain through { type filter hook forward priority 1; udp dport 40001 reject } }");
    lab.left.drain();
    lab.left.send(&four(steered(0x51, 1).sent(), 64).build());
    let refusal = |frame: &[u8]| frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&1);
    let found = lab.left.receive_where(PATIENCE, refusal).unwrap_or_else(|| panic!("{}", lab.counters()));
    assert_eq!((found[34], &found[30..34]), (3, &CLIENT4.octets()[..]), "destination unreachable, to the client");
    lab.agent.apply(STATE);
    assert!(!network.node.sh("ip -br link").contains("nfe-"));
}

/// `watch` with End.AN.NF: a link of the namespace that is down, and rules or routes that let no probe through.
#[test]
#[ignore = "needs root"]
fn a_dead_namespace_is_found_out() {
    let network = Network::new();
    let watch = ", on_failure: bypass, watch: {hold_ms: 0, probe: {kind: icmp, through: true}}";
    let lab = Lab::new(&network, "watch", watch);
    let path = steered(0x50, 1);
    let becomes = |what: &str, state: &str| {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let functions = lab.agent.get("/v1/functions");
            if functions[0]["state"] == state {
                return;
            }
            assert!(std::time::Instant::now() < end, "{what}: not {state}: {functions}\n{}", lab.counters());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    lab.nft("table inet t { counter seen { } chain through { type filter hook forward priority 0; udp dport 40001 counter name seen } }");
    let mut seen = 0;
    let mut works = |what: &str| {
        becomes(what, "up");
        lab.passes(what, &four(path.sent(), 64), &four(path.advanced(), 64));
        seen += 1;
        assert_eq!(lab.counter("seen"), seen, "{what}");
    };
    let bypassed = |what: &str| {
        becomes(what, "down");
        let before = lab.counter("seen");
        lab.passes(what, &four(path.sent(), 64), &four(path.advanced(), 64));
        assert_eq!(lab.counter("seen"), before, "{what}: the function was not bypassed");
    };
    let routes_are_there = || {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while lab.sh("ip route show default").is_empty() || lab.sh("ip -6 route show default").is_empty() {
            assert!(std::time::Instant::now() < end, "{}", lab.sh("ip link"));
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    works("at first");
    lab.nft("table inet deaf { chain through { type filter hook forward priority -1; policy drop; } }");
    bypassed("rules that drop the probe");
    lab.sh("nft delete table inet deaf");
    works("without these rules");
    // No link tells of it, but the function's failure does.
    lab.sh("ip route del default");
    lab.sh("ip -6 route del default");
    routes_are_there();
    works("routes");
    lab.sh("ip link set dev west down");
    bypassed("a link that is down");
    lab.sh("ip link set dev west up");
    works("the link is up again");
    // The other link has no carrier that the node could see. The agent repairs it, and the route that went with it.
    lab.sh("ip link set dev east down");
    routes_are_there();
    works("repaired");
    let drop = lab.state(&watch.replace("bypass", "drop"));
    lab.agent.apply(&drop);
    lab.sh("ip link set dev west down");
    becomes("dropped", "down");
    let before = lab.counted("drop_function_down");
    lab.swallows("dropped", &four(path.sent(), 64));
    assert_eq!(lab.counted("drop_function_down"), before + 1);
}

fn works_without_agent(lab: &Lab<'_>, path: &Steered) {
    let (found, expected) = (lab.pass(&four(path.sent(), 64)), four(path.advanced(), 64).build());
    assert_eq!(found, Some(expected), "without an agent");
}

fn short(namespace: &str) -> String {
    segue_model::wiring::Wiring::of(namespace).node_west.trim_start_matches("nfw-").to_owned()
}
