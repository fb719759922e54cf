//! What a firewall's rules cannot be asked about: layer-4 headers that are cut short, tags around what they look at, fragments that
//! must not be answered, and packets that belong to no connection.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr, VlanRepr};

const FIREWALL: u16 = 0xa1;
const SID: &str = "sid fc00:0:1:a1::/64";
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A firewall at a SID and on `port`; the rules, of both families, stand behind `:FORWARD ACCEPT`.
fn with_rules(ipv6: &[&str], ipv4: &[&str], port: &str) -> String {
    let file = |name: &str, rules: &[&str]| {
        let text = format!("*filter\\n:FORWARD ACCEPT [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
        format!("{{file: {name}, text: \"{text}\"}}")
    };
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {}, ipv4: {}}}\n", file("v6", ipv6), file("v4", ipv4));
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1).replacen(
        &format!("{{name: {port}, role: access"),
        &format!("{{name: {port}, firewall: fw, role: access"),
        1,
    )
}

/// A part of a datagram: of what it consists behind the IP header, at an offset of so many octets.
#[derive(Clone, Copy)]
struct Part<'a> {
    family: u8,
    protocol: u8,
    offset: u16,
    more: bool,
    octets: &'a [u8],
}

impl Part<'_> {
    /// Behind `front`; a fragment only if it has to be one.
    fn of(self, front: PacketBuilder) -> PacketBuilder {
        let Part { protocol, offset, more, octets, .. } = self;
        // Of another datagram where the octets are others.
        let identification = octets.get(5).map_or(7, |octet| 7 + u16::from(*octet));
        if self.family == 4 {
            let ip = Ipv4Repr {
                protocol,
                fragment_offset: offset,
                more_fragments: more,
                identification,
                ..Ipv4Repr::new(CLIENT4, SERVER4)
            };
            return front.ipv4(ip).payload(octets);
        }
        if offset == 0 && !more {
            return front.ipv6(Ipv6Repr { next_header: protocol, ..Ipv6Repr::new(CLIENT, SERVER) }).payload(octets);
        }
        let fragment = FragmentRepr {
            next_header: protocol,
            fragment_offset: offset,
            more_fragments: more,
            identification: identification.into(),
        };
        front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).fragment(fragment).payload(octets)
    }
}

fn steered() -> PacketBuilder {
    let srh = SrhRepr::new(&[local(FIREWALL), behind_core1(0xa), behind_core1(0xb)]);
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(FIREWALL))).srh(srh)
}

fn advanced() -> PacketBuilder {
    let srh = SrhRepr::new(&[local(FIREWALL), behind_core1(0xa), behind_core1(0xb)]).with_segments_left(1);
    leaving("core1").ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) }).srh(srh)
}

/// A TCP header with these flags that says it has `words` words, and octets behind it.
fn segment(flags: u8, words: u8, length: usize) -> Vec<u8> {
    let mut octets = vec![0x03, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, words << 4, flags, 4, 0, 0, 0, 0, 0];
    octets.resize(length.max(20), 1);
    octets.truncate(length);
    octets
}

/// Each was accepted by the policy: no rule matched what was not there.
#[test]
#[ignore = "needs root"]
fn layer_4_headers_cut_short() {
    let network = Network::new();
    let ipv6 = [
        "-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
        "-A FORWARD -p tcp -m tcp --tcp-option 9 -j DROP",
        "-A FORWARD -p udp -m udp --dport 53 -j DROP",
        "-A FORWARD -p icmpv6 -m icmp6 --icmpv6-type 128 -j DROP",
        "-A FORWARD -p sctp -m sctp --dport 80 -j DROP",
    ];
    let icmp = "-A FORWARD -p icmp -m icmp --icmp-type 8 -j DROP";
    let ipv4 = [&ipv6[..3], &[icmp], &ipv6[4..]].concat();
    let node = Golden::load(&network, &with_rules(&ipv6, &ipv4, "acc0"));
    for family in [4, 6] {
        let icmp = if family == 4 { (1, 8) } else { (58, 128) };
        let ports = [0x03, 0xe8, 0, 53, 0, 8, 0, 0, 0, 0, 0];
        let whole = |protocol, octets: &[u8]| (protocol, 0, false, octets.to_vec());
        let first = |protocol, octets: &[u8]| (protocol, 0, true, octets.to_vec());
        let dropped = [
            ("TCP, 19 octets", whole(6, &segment(SYN, 5, 19))),
            ("TCP, 8 octets", whole(6, &segment(SYN, 5, 8))),
            ("TCP, 3 octets", whole(6, &segment(SYN, 5, 3))),
            ("the first 8 octets of a SYN", first(6, &segment(SYN, 5, 8))),
            ("the rest of it", (6, 8, false, segment(SYN, 5, 40)[8..].to_vec())),
            ("the first 16 octets of a SYN", first(6, &segment(SYN, 5, 16))),
            ("an option in the second fragment", first(6, &segment(ACK, 7, 24))),
            ("an option that is not there", whole(6, &segment(ACK, 7, 24))),
            ("a header of 16 octets", whole(6, &segment(ACK, 4, 24))),
            ("UDP, 7 octets", whole(17, &ports[..7])),
            ("UDP-Lite, 7 octets", whole(136, &ports[..7])),
            ("ICMP, 7 octets", whole(icmp.0, &[icmp.1, 0, 0, 0, 0, 0, 0])),
            ("SCTP, 11 octets", whole(132, &ports)),
            ("the first 8 octets of SCTP", first(132, &ports[..8])),
            ("DCCP, 8 octets", whole(33, &ports[..8])),
        ];
        for (case, (protocol, offset, more, octets)) in dropped {
            let part = Part { family, protocol, offset, more, octets: &octets };
            node.drops(case, "acc0", &part.of(arriving("acc0")), "drop_layer4_header");
            node.drops(case, "core0", &part.of(steered()), "drop_layer4_header");
        }
        let passing = [
            ("TCP, 20 octets", whole(6, &segment(ACK, 5, 20))),
            ("TCP, 24 octets", whole(6, &segment(ACK, 6, 24))),
            ("a fragment of it that overwrites nothing", (6, 24, false, segment(SYN, 5, 16))),
            ("a first fragment with all options", first(6, &segment(ACK, 6, 24))),
            ("UDP at offset 1", (17, 8, false, ports[..8].to_vec())),
            ("another protocol", whole(253, &[1])),
        ];
        for (case, (protocol, offset, more, octets)) in passing {
            let part = Part { family, protocol, offset, more, octets: &octets };
            node.forwards(case, "core0", &part.of(steered()), &part.of(advanced()), &[SID]);
        }
    }
    // tshark warns of SYNs without a MSS and of parts of what it calls malformed.
    node.finish_with_faults();
}

/// A firewall at a SID judges the inner packet; of what is in an outer fragment it knows nothing.
#[test]
#[ignore = "needs root"]
fn outer_fragments_at_a_sid() {
    let network = Network::new();
    let rules = ["-A FORWARD -p udp -m udp --dport 53 -j DROP"];
    let node = Golden::load(&network, &with_rules(&rules, &rules, "acc0"));
    let steered = |offset, more, port| {
        let srh = SrhRepr::new(&[local(FIREWALL), behind_core1(0xa), behind_core1(0xb)]);
        let fragment = FragmentRepr { fragment_offset: offset, more_fragments: more, ..FragmentRepr::default() };
        let outer = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(FIREWALL))).srh(srh).fragment(fragment);
        outer.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, port)).payload(&[0; 8])
    };
    node.drops("a first one", "core0", &steered(0, true, 54), "drop_fragment_at_decapsulation");
    node.drops("a later one", "core0", &steered(64, false, 54), "drop_fragment_at_decapsulation");
    node.drops("an atomic one is none", "core0", &steered(0, false, 53), "drop_firewall");
    let passed = node.send("core0", &steered(0, false, 54));
    assert_eq!(passed.verdict, Verdict::Redirect, "{:?}", passed.moved);
    node.finish();
}

/// Of two Fragment headers rules see the first; if either has an offset, there is no layer 4.
#[test]
#[ignore = "needs root"]
fn two_fragment_headers() {
    let network = Network::new();
    let rules = [
        "-A FORWARD -m frag --fragid 8 -j DROP",
        "-A FORWARD -m frag --fragid 7 --fragmore",
        "-A FORWARD -m frag --fragid 7 --fragfirst",
        "-A FORWARD -m frag --fragid 7 --fraglast",
        "-A FORWARD -p udp -m udp --dport 53",
    ];
    let node = Golden::load(&network, &with_rules(&rules, &[], "acc0"));
    let count =
        || -> Vec<u64> { node.node().firewall_counters()[0].rules.iter().map(|rule| rule.counter.packets).collect() };
    let header = |identification, (offset, more): (u16, bool)| FragmentRepr {
        fragment_offset: offset,
        more_fragments: more,
        identification,
        ..FragmentRepr::default()
    };
    // What ip6tables (legacy and nft) counts on Linux 6.18 for the same packets.
    for (first, second, wanted) in [
        ((0, false), (0, false), [0, 0, 1, 1, 1]),
        ((0, true), (0, false), [0, 1, 1, 0, 1]),
        ((0, false), (0, true), [0, 0, 1, 1, 1]),
        ((0, false), (24, false), [0, 0, 1, 1, 0]),
        ((0, true), (24, true), [0, 1, 1, 0, 0]),
        ((24, false), (0, false), [0, 0, 0, 1, 0]),
        ((24, true), (0, true), [0, 1, 0, 0, 0]),
    ] {
        let before = count();
        let packet = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, SERVER));
        let packet = packet.fragment(header(7, first)).fragment(header(8, second));
        let found = node.send("acc0", &packet.udp(UdpRepr::new(1, 53)).payload(b"12345678"));
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.moved);
        let moved: Vec<u64> = before.iter().zip(count()).map(|(before, after)| after - before).collect();
        assert_eq!(moved, wanted, "{first:?} {second:?}");
    }
    node.finish();
}

/// Frames of a layer-2 port go on with their tags; what is in them is filtered.
#[test]
#[ignore = "needs root"]
fn tags_on_a_layer_2_port() {
    let network = Network::new();
    let rules = [
        "-A FORWARD -p udp -m udp --dport 53 -j DROP",
        "-A FORWARD -p udp -m udp --dport 54 -j REJECT",
        "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset",
    ];
    let six = |front: PacketBuilder, port| {
        front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(9, port)).payload(b"in tags")
    };
    let four = |front: PacketBuilder, port| {
        front.ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(9, port)).payload(b"in tags")
    };
    type Front = fn() -> PacketBuilder;
    let fronts: [(&str, Front); 5] = [
        ("no tag", || arriving("wire0")),
        ("a tag", || arriving("wire0").vlan_repr(VlanRepr { vlan_id: 7, priority: 5, ..VlanRepr::default() })),
        ("a priority tag", || arriving("wire0").vlan(0)),
        ("two tags", || arriving("wire0").vlan(3).vlan(4000)),
        ("two tags without an ID", || arriving("wire0").vlan(0).vlan(0)),
    ];
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let mut wanted = Vec::new();
    for (_, front) in fronts {
        wanted.extend([node.send("wire0", &six(front(), 80)), node.send("wire0", &four(front(), 80))]);
    }
    let arp = |front: PacketBuilder| front.payload(&[0; 46]).with_bytes(16, &[8, 6]);
    let arp = arp(arriving("wire0").vlan(7));
    let other = node.send("wire0", &arp);
    node.apply(&with_rules(&rules, &rules, "wire0"));
    let mut wanted = wanted.into_iter();
    for (case, front) in fronts {
        for packet in [six(front(), 80), four(front(), 80)] {
            let (found, wanted) = (node.send("wire0", &packet), wanted.next().expect("one of each"));
            assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
            assert_eq!((found.frame, found.moved), (wanted.frame, wanted.moved), "{case}: as without a firewall");
        }
        for packet in [six(front(), 53), four(front(), 53)] {
            let found = node.send("wire0", &packet);
            assert_eq!(found.verdict, Verdict::Drop, "{case}: {:?}", found.moved);
            assert_eq!(found.moved.get("wire0 drop_firewall").map(|moved| moved.0), Some(1), "{:?}", found.moved);
        }
        if case != "no tag" {
            // An answer would leave without the tags.
            let segment = front().ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(9, 80, SYN));
            for packet in [six(front(), 54), four(front(), 54), segment] {
                let found = node.send("wire0", &packet);
                assert_eq!(found.verdict, Verdict::Drop, "{case}: {:?}", found.moved);
                assert_eq!(found.moved.len(), 1, "{case}: no answer: {:?}", found.moved);
            }
        }
    }
    for packet in
        [six(arriving("wire0").vlan(1).vlan(2).vlan(3), 80), four(arriving("wire0").vlan(0).vlan(0).vlan(0), 80)]
    {
        let found = node.send("wire0", &packet);
        assert_eq!(found.moved.get("wire0 drop_firewall_tags").map(|moved| moved.0), Some(1), "{:?}", found.moved);
    }
    assert_eq!(node.send("wire0", &arp).frame, other.frame, "no IP packet");
    node.finish_with_faults();
}

/// A later fragment has no port: it takes no token from any.
#[test]
#[ignore = "needs root"]
fn later_fragments_and_hashlimits() {
    let network = Network::new();
    let rules =
        ["-A FORWARD -p udp -m hashlimit --hashlimit-above 1/hour --hashlimit-burst 1 --hashlimit-mode srcip,dstport \
         --hashlimit-name h -j DROP"];
    let node = Golden::load(&network, &with_rules(&rules, &rules, "acc0"));
    for family in [4, 6] {
        let ports = [0x03, 0xe8, 0xff, 0xff, 0, 8, 0, 0];
        let part = |offset| Part { family, protocol: 17, offset, more: false, octets: &ports };
        node.forwards("a later fragment", "core0", &part(64).of(steered()), &part(64).of(advanced()), &[SID]);
        node.forwards("port 65535", "core0", &part(0).of(steered()), &part(0).of(advanced()), &[SID]);
        node.drops("a later fragment again", "core0", &part(64).of(steered()), "drop_firewall");
        node.drops("port 65535 again", "core0", &part(0).of(steered()), "drop_firewall");
    }
    node.finish_with_faults();
}

/// RFC 4443 section 2.4(e.1), RFC 1122 section 3.2.2.
#[test]
#[ignore = "needs root"]
fn what_is_rejected_without_an_answer() {
    let network = Network::new();
    let rules = ["-A FORWARD -p tcp -j REJECT --reject-with tcp-reset", "-A FORWARD -j REJECT"];
    let node = Golden::load(&network, &with_rules(&rules, &rules, "acc0"));
    let ports = [0x03, 0xe8, 0, 53, 0, 40, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    for family in [4, 6] {
        let (icmp, error, query) = if family == 4 { (1, 3, 8) } else { (58, 1, 128) };
        let error = [&[error, 0, 0, 0, 0, 0, 0, 0], &ports[..]].concat();
        let query = [&[query, 0, 0, 0, 0, 0, 0, 0], &ports[..]].concat();
        let segment = segment(ACK, 5, 24);
        for (case, protocol, offset, more, octets) in [
            ("an error", icmp, 0, false, &error[..]),
            ("a first fragment of an error", icmp, 0, true, &error),
            ("a later fragment of an error", icmp, 64, false, &error),
            ("a later fragment of a query", icmp, 64, true, &query),
            ("a later fragment of a datagram", 17, 64, false, &ports),
            ("a later fragment of a segment", 6, 64, false, &segment),
        ] {
            let part = Part { family, protocol, offset, more, octets };
            let found = node.send("acc0", &part.of(arriving("acc0")));
            assert_eq!(found.verdict, Verdict::Drop, "IPv{family}, {case}: {:?}", found.moved);
            let rows =
                ["acc0 drop_firewall_rejected", "icmp not_sent"].map(|row| found.moved.get(row).map(|row| row.0));
            assert_eq!(rows, [Some(1); 2], "IPv{family}, {case}: {:?}", found.moved);
        }
        for (case, protocol, octets, row) in [
            ("a first fragment of a query", icmp, &query[..], "icmp unreachable"),
            ("a first fragment of a datagram", 17, &ports, "icmp unreachable"),
            ("a first fragment of a segment", 6, &segment, "icmp tcp_reset"),
        ] {
            let part = Part { family, protocol, offset: 0, more: true, octets };
            let found = node.send("acc0", &part.of(arriving("acc0")));
            assert_eq!(found.moved.get(row).map(|row| row.0), Some(1), "IPv{family}, {case}: {:?}", found.moved);
        }
    }
    for protocol in [59, 253] {
        let part = Part { family: 6, protocol, offset: 0, more: false, octets: &[] };
        let found = node.send("acc0", &part.of(arriving("acc0")));
        let row = found.moved.get("icmp not_sent").map(|row| row.0);
        assert_eq!(row, Some(1), "nothing behind the header: {:?}", found.moved);
    }
    // What may be an error is treated as one, as the kernel does.
    for kind in 0..=255 {
        let octets = [&[kind, 0, 0, 0, 0, 0, 0, 0], &ports[..]].concat();
        let part = Part { family: 4, protocol: 1, offset: 0, more: false, octets: &octets };
        let found = node.send("acc0", &part.of(arriving("acc0")));
        let row = if [0, 8, 13, 14, 15, 16, 17, 18].contains(&kind) { "icmp unreachable" } else { "icmp not_sent" };
        assert_eq!(found.moved.get(row).map(|row| row.0), Some(1), "ICMP type {kind}: {:?}", found.moved);
    }
    node.finish_with_faults();
}

/// As nf_conntrack says; the header of a first fragment is held against nothing that is not known of it.
#[test]
#[ignore = "needs root"]
fn packets_of_no_connection() {
    let network = Network::new();
    let rules = ["-A FORWARD -m conntrack --ctstate INVALID -j DROP"];
    let node = Golden::load(&network, &with_rules(&rules, &rules, "acc0"));
    let datagram = |length: u8| [0x03, 0xe8, 0, 53, 0, length, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    for family in [4, 6] {
        for (case, protocol, more, octets, valid) in [
            ("all of it", 17, false, datagram(16), true),
            ("less than there is", 17, false, datagram(8), true),
            ("a Length of 7", 17, false, datagram(7), false),
            ("a Length of 0", 17, false, datagram(0), false),
            ("more than there is", 17, false, datagram(17), false),
            ("more than there is in a first fragment", 17, true, datagram(99), true),
            ("a Length of 7 in a first fragment", 17, true, datagram(7), false),
            ("UDP-Lite, all of it", 136, false, datagram(0), true),
            ("UDP-Lite, the header", 136, false, datagram(8), true),
            ("UDP-Lite, less", 136, false, datagram(7), false),
            ("UDP-Lite, more than there is", 136, false, datagram(17), false),
            ("No Next Header", 59, false, datagram(0), family == 4),
            ("an unknown protocol", 253, false, datagram(0), true),
        ] {
            let part = Part { family, protocol, offset: 0, more, octets: &octets };
            if valid {
                node.forwards(case, "core0", &part.of(steered()), &part.of(advanced()), &[SID]);
            } else {
                node.drops(case, "core0", &part.of(steered()), "drop_firewall");
            }
        }
    }
    // Neighbour discovery, multicast listeners and routers are UNTRACKED; a redirect and a router's termination are INVALID.
    for kind in 128..=255 {
        let message = [kind, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let part = Part { family: 6, protocol: 58, offset: 0, more: false, octets: &message };
        let case = format!("ICMPv6 type {kind}");
        if [128, 139, 143, 151, 152].contains(&kind) || (130..137).contains(&kind) {
            node.forwards(&case, "core0", &part.of(steered()), &part.of(advanced()), &[SID]);
        } else {
            node.drops(&case, "core0", &part.of(steered()), "drop_firewall");
        }
    }
    // What answers to nothing is INVALID whatever it says.
    let reply = Icmpv6Repr::EchoReply { identifier: 1, sequence_number: 1, data: Vec::new() };
    let reply = steered().inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).icmpv6(reply);
    node.drops("an answer to nothing", "core0", &reply, "drop_firewall");
    node.finish_with_faults();
}
