//! Labels in UDP (RFC 7510), and next hops behind networks without labels (RFC 8663): out of policies, out of labels, and in again.

use std::net::{Ipv4Addr, Ipv6Addr};

use segue_testkit::fixture::{Network, address::*, arriving, leaving, macs};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{FragmentRepr, Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::labels::{OWN, labelled};
use crate::mutation;

/// RFC 7510 section 3.
const PORT: u16 = 6635;
const SWAP: u32 = 16_020;
const POP: u32 = 16_021;
const SWAP4: u32 = 16_022;
const NULL4: u32 = 16_023;
const NARROW: u32 = 16_024;
const SHORT: u32 = 16_025;
const UNRESOLVED_HOP: u32 = 16_026;
const OUTSIDE: u32 = 16_027;
const UNSUMMED: u32 = 16_028;
const ADJACENCY: u32 = 15_020;
const BINDING: u32 = 15_021;
const BINDING4: u32 = 15_022;
const MAIN_TABLE: u32 = 15_100;

const LABELS: &str = "
  - {label: 16020, behaviour: swap, out: 17020, udp: {destination: 'fd00:0:c1::2'}}
  - {label: 16021, behaviour: pop, udp: {destination: 'fd00:0:c1::2'}}
  - {label: 16028, behaviour: pop, udp: {destination: 'fd00:0:c1::2', zero_checksum: true}}
  - {label: 16022, behaviour: swap, udp: {destination: 10.78.0.2}}
  - {label: 16023, behaviour: explicit_null, udp: {destination: 10.78.0.2}}
  - {label: 16024, behaviour: swap, udp: {destination: 'fd00:0:c2::2'}}
  - {label: 16025, behaviour: swap, udp: {destination: 10.78.0.2, mtu: 1300}}
  - {label: 16026, behaviour: swap, udp: {destination: 'fd00:0:c1::99'}}
  - {label: 16027, behaviour: swap, udp: {destination: 10.2.0.2}}
  - {label: 15020, behaviour: adjacency, udp: {destination: 10.78.0.2}}
  - {label: 15021, behaviour: binding, policy: udp6}
  - {label: 15022, behaviour: binding, policy: udp4}
";
const POLICIES: &str = "policies:
  - {name: udp6, mode: PUSH, hop_limit: 40, segment_lists: [{labels: [16002, 16003], udp: {destination: 'fd00:0:c1::2', mtu: 2000}}]}
  - {name: udp4, mode: PUSH, entropy_label: true, traffic_class: {dscp: 46}, binding_sid: 'fc00:0:1:505::', segment_lists: [{labels: [99], udp: {destination: 10.78.0.2}}]}
";
const STEERING: &str = "steering:
  - {name: udp6-6, destination: 'fd00:0:f20::/48', policy: udp6}
  - {name: udp6-4, destination: 10.50.0.0/16, policy: udp6}
  - {name: udp4-6, destination: 'fd00:0:f21::/48', policy: udp4}
  - {name: udp4-4, destination: 10.51.0.0/16, policy: udp4}
";
const ENDPOINTS: &str =
    "udp_endpoints: [{address: 'fd00:0:1::1', zero_checksum_from: 'fd00:0:9:5::/64'}, {address: 192.0.2.1}]";
/// The node's own addresses, and the other ends of its tunnels behind core1.
const SELF4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xc1, 0, 0, 0, 0, 2);
const FAR4: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// A node behind core0, and one that need not send checksums.
const HEADEND4: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const UNCHECKED: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 9, 5, 0, 0, 0, 1);

/// The second time that a policy's neighbours are named they are there already.
fn network() -> Network {
    let network = Network::new();
    network.node.sh("ip address add 10.78.0.1/24 dev core1");
    network.node.sh(&format!("ip neigh add {FAR4} lladdr {} nud permanent dev core1", macs("core1").1));
    network
}

fn configured(ttl: &str) -> String {
    let text = labelled(ttl).replacen("policies:\n", POLICIES, 1).replacen("steering:\n", STEERING, 1);
    let text = text.replacen(&format!("ttl: {ttl}}}"), &format!("ttl: {ttl}, {ENDPOINTS}}}"), 1);
    text + LABELS.trim_start_matches('\n')
}

/// Entries of TC 5 with their TTLs.
fn stack(labels: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 5,
        ..MplsEntry::default()
    };
    labels.iter().map(entry).collect()
}

/// An IP packet of `octets` in all behind labels, or behind nothing.
fn packet(front: PacketBuilder, family: u8, to: u16, hops: u8, octets: usize) -> PacketBuilder {
    let (front, header) = match family {
        6 => {
            let to = if to == 0 { SERVER } else { Ipv6Addr::new(0xfd00, 0, 0xf20 + to - 50, 0, 0, 0, 0, 7) };
            (front.inner_ipv6(Ipv6Repr { hop_limit: hops, traffic_class: 0xba, ..Ipv6Repr::new(CLIENT, to) }), 48)
        }
        _ => {
            let to = if to == 0 { SERVER4 } else { Ipv4Addr::new(10, to as u8, 0, 7) };
            (front.inner_ipv4(Ipv4Repr { time_to_live: hops, type_of_service: 0xba, ..Ipv4Repr::new(CLIENT4, to) }), 28)
        }
    };
    let payload: Vec<u8> = (0..octets - header).map(|place| place as u8).collect();
    front.udp(UdpRepr::new(40_000, 40_001)).payload(&payload)
}

/// What UDP carries: labels and an IP packet.
fn carried(labels: &[MplsEntry], family: u8, hops: u8, octets: usize) -> Vec<u8> {
    packet(PacketBuilder::new().mpls(labels), family, 0, hops, octets).build()
}

/// The same as it leaves by core1 to the other end of the tunnel, with the flow of the frame that was found.
fn in_udp6(found: &[u8], class: u8, hop_limit: u8, carried: &[u8]) -> PacketBuilder {
    let flow_label = u32::from_be_bytes([0, found[15] & 15, found[16], found[17]]);
    let port = u16::from_be_bytes([found[54], found[55]]);
    assert!(port >= 0xc000 && flow_label != 0, "port {port}, flow label {flow_label}");
    let outer = Ipv6Repr { hop_limit, traffic_class: class, flow_label, ..Ipv6Repr::new(NODE, FAR) };
    leaving("core1").ipv6(outer).udp(UdpRepr::new(port, PORT)).payload(carried)
}

fn in_udp4(found: &[u8], class: u8, carried: &[u8]) -> PacketBuilder {
    let port = u16::from_be_bytes([found[34], found[35]]);
    assert!(port >= 0xc000, "port {port}");
    let outer = Ipv4Repr { type_of_service: class, dont_fragment: true, ..Ipv4Repr::new(SELF4, FAR4) };
    leaving("core1").ipv4(outer).udp(UdpRepr::new(port, PORT)).payload(carried).with_bytes(40, &[0, 0])
}

/// Both families of what is carried, and lengths on both sides of what is summed up at once.
const CARRIED: [(u8, usize); 9] =
    [(6, 60), (4, 60), (6, 61), (6, 496), (6, 500), (4, 501), (6, 1012), (4, 1499), (6, 1337)];

/// A headend's list of labels in UDP: over IPv6 with a checksum, over IPv4 without.
#[test]
#[ignore = "needs root"]
fn a85_a_policy_puts_its_labels_into_udp() {
    let network = network();
    let node = Golden::load(&network, &configured("pipe"));
    for (family, octets) in CARRIED {
        let frame = packet(arriving("acc0"), family, 50, 9, octets);
        let found = node.send("acc0", &frame).frame;
        let inner = packet(PacketBuilder::new().mpls(&stack(&[(16_002, 40), (16_003, 40)])), family, 50, 8, octets);
        let expected = in_udp6(&found, 0xb8, 40, &inner.build());
        let rule = format!("rule udp6-{family}");
        node.forwards("over IPv6", "acc0", &frame, &expected, &["list udp6/0", &rule]);
        let frame = packet(arriving("acc0"), family, 51, 9, octets);
        let found = node.send("acc0", &frame).frame;
        let entropy = MplsEntry::from_bytes(found[50..54].try_into().expect("an entry"));
        assert!(entropy.label >= 16, "{entropy:?}");
        let labels = stack(&[(99, 64), (7, 64), (entropy.label, 0)]);
        let inner = packet(PacketBuilder::new().mpls(&labels), family, 51, 8, octets);
        let expected = in_udp4(&found, 0xb8, &inner.build());
        let rule = format!("rule udp4-{family}");
        node.forwards("over IPv4", "acc0", &frame, &expected, &["list udp4/0", &rule]);
    }
    // Flows have ports and flow labels of their own.
    let ports: std::collections::BTreeSet<[u8; 2]> = (0..64)
        .map(|flow| {
            let to = Ipv6Addr::new(0xfd00, 0, 0xf20, 0, 0, 0, 0, 7);
            let frame = arriving("acc0")
                .ipv6(Ipv6Repr::new(CLIENT, to))
                .udp(UdpRepr::new(40_000 + flow, 40_001))
                .payload(b"flow");
            let found = node.send("acc0", &frame).frame;
            [found[54], found[55]]
        })
        .collect();
    assert!(ports.len() > 60, "{} ports for 64 flows", ports.len());
    // Of 2000 octets that the path takes, the outer headers take 48 and the labels 8: access links have 1500.
    let srh = segue_wire::SrhRepr::new(&[local(0x505), behind_core1(1)]);
    let outer = Ipv6Repr { traffic_class: 0xb8, ..Ipv6Repr::new(HEADEND, local(0x505)) };
    let found = node.send("core0", &packet(arriving("core0").ipv6(outer).srh(srh), 6, 0, 9, 100));
    assert_eq!((found.verdict, found.frame[23]), (Verdict::Redirect, 17), "End.BM: {:?}", found.moved);
    assert_eq!(found.frame[42..46], [0, 6, 0x3a, 64], "label 99 of TC 5, more behind it");
    node.finish();
}

/// Labels that are swapped, popped or bound go on in UDP; the flow is that of the packet behind them.
#[test]
#[ignore = "needs root"]
fn a85_labels_go_on_in_udp() {
    for ttl in ["pipe", "uniform"] {
        let network = network();
        let node = Golden::load(&network, &configured(ttl));
        for (family, octets) in CARRIED {
            for behind in [&[][..], &[(70_000, 9)], &[(70_000, 9), (70_001, 8)]] {
                for own in 0..2 {
                    let frame = |label: u32| {
                        let own = std::iter::repeat_n((OWN, 21), own);
                        let labels: Vec<(u32, u8)> = own.chain([(label, 21)]).chain(behind.iter().copied()).collect();
                        packet(arriving("core0").mpls(&stack(&labels)), family, 0, 9, octets)
                    };
                    let after = |labels: &[(u32, u8)]| {
                        let labels: Vec<(u32, u8)> = labels.iter().chain(behind).copied().collect();
                        carried(&stack(&labels), family, 9, octets)
                    };
                    let popped = || match (behind, ttl) {
                        ([], _) => after(&[(if family == 6 { 2 } else { 0 }, 20)]),
                        ([_, rest @ ..], "uniform") => {
                            let labels: Vec<(u32, u8)> = [(70_000, 20)].iter().chain(rest).copied().collect();
                            carried(&stack(&labels), family, 9, octets)
                        }
                        _ => after(&[]),
                    };
                    let null = if behind.is_empty() && family == 6 { 2 } else { 0 };
                    let case = format!("{ttl}, IPv{family}, {octets}, {own} own, {} behind", behind.len());
                    for (label, carried, over_ipv6) in [
                        (SWAP, after(&[(17_020, 20)]), true),
                        (POP, popped(), true),
                        (SWAP4, after(&[(SWAP4, 20)]), false),
                        (NULL4, after(&[(null, 20)]), false),
                        (ADJACENCY, popped(), false),
                    ] {
                        let found = node.send("core0", &frame(label)).frame;
                        let expected = if over_ipv6 {
                            in_udp6(&found, 0xa0, 64, &carried)
                        } else {
                            in_udp4(&found, 0xa0, &carried)
                        };
                        node.forwards(&case, "core0", &frame(label), &expected, &[&format!("label {label}")]);
                    }
                    // Not shown to Wireshark, which takes it for a fault unless it is told otherwise.
                    let found = node.node().send("core0", &frame(UNSUMMED).build());
                    let expected = in_udp6(&found.frame, 0xa0, 64, &popped()).with_bytes(60, &[0, 0]);
                    assert_eq!(found.frame, expected.build(), "{case}: {:?}", found.moved);
                    let found = node.send("core0", &frame(BINDING)).frame;
                    let expected = in_udp6(&found, 0xa0, 64, &after(&[(16_002, 20), (16_003, 20)]));
                    let expected = expected.with_bytes(21, &[40]);
                    node.forwards(&case, "core0", &frame(BINDING), &expected, &["label 15021", "list udp6/0"]);
                }
            }
        }
        node.finish();
    }
}

/// Nothing goes where it does not fit, nor out of the domain, nor to who is not there.
#[test]
#[ignore = "needs root"]
fn a85_labels_that_cannot_go_on_in_udp() {
    let network = network();
    let node = Golden::load(&network, &configured("pipe"));
    let frame = |labels: &[(u32, u8)], family: u8, octets: usize| {
        packet(arriving("core0").mpls(&stack(labels)), family, 0, 9, octets)
    };
    node.drops("an access port", "core0", &frame(&[(OUTSIDE, 9)], 6, 100), "drop_sr_leaves");
    node.drops("no neighbour", "core0", &frame(&[(UNRESOLVED_HOP, 9)], 6, 100), "drop_no_neighbour");
    for label in [SWAP, POP, BINDING, ADJACENCY] {
        let found = node.send("core0", &frame(&[(label, 1), (70_000, 9)], 6, 100));
        assert!(found.moved.contains_key("core0 drop_label_ttl"), "{:?}", found.moved);
        assert_eq!(found.frame[54..56], [3, 0], "Time Exceeded");
    }
    // The link has 1400 octets, of which the outer headers take 48 and labels 4 or 8; the IPv4 path has 1300.
    for (labels, family, fits) in [
        (&[(NARROW, 9)][..], 6, 1348_u32),
        (&[(OWN, 9), (NARROW, 9), (70_000, 9)], 6, 1344),
        (&[(NARROW, 9)], 4, 1348),
        (&[(SHORT, 9)], 4, 1268),
        (&[(SHORT, 9), (70_000, 9)], 4, 1264),
    ] {
        let case = format!("{labels:?}, IPv{family}");
        let found = node.send("core0", &frame(labels, family, fits as usize));
        assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
        let found = node.send("core0", &frame(labels, family, fits as usize + 1));
        assert!(found.moved.contains_key("core0 drop_too_big"), "{case}: {:?}", found.moved);
        let (kind, mtu) = match family {
            6 => (&found.frame[54..56], u32::from_be_bytes(found.frame[58..62].try_into().expect("four octets"))),
            _ => (&found.frame[34..36], u32::from(u16::from_be_bytes([found.frame[40], found.frame[41]]))),
        };
        assert_eq!((kind, mtu), (if family == 6 { &[2, 0][..] } else { &[3, 4] }, fits), "{case}");
    }
    node.finish();
}

/// The same octets as they come in by core0.
fn from6(source: Ipv6Addr, to: Ipv6Addr, port: u16, carried: &[u8]) -> PacketBuilder {
    arriving("core0").ipv6(Ipv6Repr::new(source, to)).udp(UdpRepr::new(0xc123, port)).payload(carried)
}

fn from4(to: Ipv4Addr, port: u16, carried: &[u8]) -> PacketBuilder {
    arriving("core0").ipv4(Ipv4Repr::new(HEADEND4, to)).udp(UdpRepr::new(0xc123, port)).payload(carried)
}

/// What comes in UDP goes on by its labels, as if it had come in with them alone.
#[test]
#[ignore = "needs root"]
fn a85_labels_come_in_udp() {
    let network = network();
    let node = Golden::load(&network, &configured("pipe"));
    let (six, four) = ("sid fd00:0:1::1/128", "sid ::ffff:192.0.2.1/128");
    for (family, octets) in CARRIED {
        let labels = carried(&stack(&[(OWN, 9), (16_002, 9), (70_000, 9)]), family, 9, octets);
        let swapped = packet(leaving("core1").mpls(&stack(&[(17_002, 8), (70_000, 9)])), family, 0, 9, octets).build();
        let (zero6, zero4) = (14 + 40 + 6, 14 + 20 + 6);
        for (case, frame, endpoint) in [
            ("IPv6", from6(HEADEND, NODE, PORT, &labels), six),
            ("IPv6 without a checksum", from6(UNCHECKED, NODE, PORT, &labels).with_bytes(zero6, &[0, 0]), six),
            ("IPv4", from4(SELF4, PORT, &labels), four),
            ("IPv4 without a checksum", from4(SELF4, PORT, &labels).with_bytes(zero4, &[0, 0]), four),
            ("padded", from4(SELF4, PORT, &labels).trailer(&[7; 6]), four),
            ("IPv6, padded", from6(HEADEND, NODE, PORT, &labels).trailer(&[7; 6]), six),
        ] {
            let found = node.send("core0", &frame);
            assert_eq!(found.frame, swapped, "{case}, IPv{family}, {octets}: {:?}", found.moved);
            assert_eq!(found.verdict, Verdict::Redirect, "{case}");
            let names: Vec<&str> = found.moved.keys().map(String::as_str).collect();
            assert_eq!(names, ["core0 forwarded", "label 16002", endpoint], "{case}");
        }
        // The end of the stack, and out again in UDP.
        let last = carried(&stack(&[(MAIN_TABLE, 9)]), family, 9, octets);
        let found = node.send("core0", &from6(HEADEND, NODE, PORT, &last));
        assert_eq!(found.frame, packet(leaving("acc1"), family, 0, 8, octets).build(), "{:?}", found.moved);
        let on = carried(&stack(&[(SWAP, 9)]), family, 9, octets);
        let found = node.send("core0", &from4(SELF4, PORT, &on));
        let expected = in_udp6(&found.frame, 0xa0, 64, &carried(&stack(&[(17_020, 8)]), family, 9, octets));
        assert_eq!(found.frame, expected.build(), "{:?}", found.moved);
    }
    node.finish();
}

/// All else goes to the kernel as it came, or nowhere.
#[test]
#[ignore = "needs root"]
fn a85_what_is_no_good_in_udp() {
    let network = network();
    let node = Golden::load(&network, &configured("pipe"));
    let labels = carried(&stack(&[(16_002, 9)]), 6, 9, 100);
    let (six, four) = (from6(HEADEND, NODE, PORT, &labels), from4(SELF4, PORT, &labels));
    let inner = |repr: Ipv6Repr| arriving("core0").ipv6(repr).udp(UdpRepr::new(0xc123, PORT)).payload(&labels);
    let inner4 = |repr: Ipv4Repr| arriving("core0").ipv4(repr).udp(UdpRepr::new(0xc123, PORT)).payload(&labels);
    let of4 = Ipv4Repr::new(HEADEND4, SELF4);
    for (case, frame, outcome) in [
        ("checksum", six.clone().with_bytes(60, &[0xab, 0xcd]), "drop_bad_checksum"),
        ("an octet", six.clone().with_bytes(155, &[0xaa]), "drop_bad_checksum"),
        ("no checksum", six.clone().with_bytes(60, &[0, 0]), "drop_bad_checksum"),
        ("checksum over IPv4", four.clone().with_bytes(40, &[0xab, 0xcd]), "drop_bad_checksum"),
        ("IPv4 header checksum", four.clone().with_bytes(24, &[0xab, 0xcd]), "drop_bad_checksum"),
        ("UDP longer", six.clone().with_bytes(58, &[1, 0]), "drop_bad_length"),
        ("UDP shorter", six.clone().with_bytes(58, &[0, 20]), "drop_bad_length"),
        ("UDP over IPv4 shorter", four.clone().with_bytes(38, &[0, 20]), "drop_bad_length"),
        ("no label", from6(HEADEND, NODE, PORT, &[0, 0, 1]), "drop_bad_length"),
        ("nothing", from4(SELF4, PORT, &[]), "drop_bad_length"),
        ("congestion", inner(Ipv6Repr { traffic_class: 3, ..Ipv6Repr::new(HEADEND, NODE) }), "drop_ecn_not_capable"),
        ("congestion, IPv4", inner4(Ipv4Repr { type_of_service: 3, ..of4.clone() }), "drop_ecn_not_capable"),
        ("link-local", inner(Ipv6Repr::new("fe80::5".parse().expect("an address"), NODE)), "drop_bad_source"),
        ("multicast", inner(Ipv6Repr::new("ff02::5".parse().expect("an address"), NODE)), "drop_bad_source"),
        ("itself", inner(Ipv6Repr::new(NODE, NODE)), "drop_bad_source"),
        ("loopback", inner4(Ipv4Repr::new(Ipv4Addr::LOCALHOST, SELF4)), "drop_bad_source"),
        (
            "a first fragment",
            inner4(Ipv4Repr { more_fragments: true, ..of4.clone() }),
            "drop_fragment_at_decapsulation",
        ),
        ("an option", inner4(Ipv4Repr { options: vec![1; 4], ..of4.clone() }), "drop_option"),
    ] {
        let found = node.send("core0", &frame);
        assert_eq!(found.verdict, Verdict::Drop, "{case}: {:?}", found.moved);
        let names: Vec<String> = found.moved.keys().cloned().collect();
        assert_eq!(names, [format!("core0 {outcome}")], "{case}");
    }
    let later = FragmentRepr { fragment_offset: 8, ..FragmentRepr::default() };
    for (case, frame) in [
        ("another port", from6(HEADEND, NODE, 6636, &labels)),
        ("another port, IPv4", from4(SELF4, 6636, &labels)),
        ("another address", from6(HEADEND, FAR, PORT, &labels)),
        ("another address, IPv4", from4(FAR4, PORT, &labels)),
        ("a later fragment, IPv4", inner4(Ipv4Repr { fragment_offset: 8, ..of4.clone() })),
        ("a fragment", arriving("core0").ipv6(Ipv6Repr::new(HEADEND, NODE)).fragment(later).payload(&labels)),
        ("no port to be seen", arriving("core0").ipv4(Ipv4Repr { protocol: 17, ..of4.clone() }).payload(&[1, 2, 3])),
    ] {
        node.passes(case, "core0", &frame, &frame, "passed_not_for_segue", &[]);
    }
    // From outside, whatever it is; an address of the node may be reached otherwise.
    let outside6 =
        |port: u16| arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, NODE)).udp(UdpRepr::new(1, port)).payload(&labels);
    let outside4 =
        |port: u16| arriving("acc0").ipv4(Ipv4Repr::new(CLIENT4, SELF4)).udp(UdpRepr::new(1, port)).payload(&labels);
    node.drops("from outside", "acc0", &outside6(PORT), "drop_labels_from_outside");
    node.drops("from outside, IPv4", "acc0", &outside4(PORT), "drop_labels_from_outside");
    node.passes("from outside, IPv4", "acc0", &outside4(53), &outside4(53), "passed_not_for_segue", &[]);
    // Nor out of a steering header: what is in it came from outside.
    let outer = Ipv6Repr::new(HEADEND, local(segue_testkit::fixture::function::END_DT46));
    let inner = arriving("core0").ipv6(outer).inner_ipv6(Ipv6Repr::new(CLIENT, NODE));
    let found = node.send("core0", &inner.udp(UdpRepr::new(0xc123, PORT)).payload(&labels));
    assert!(!found.moved.contains_key("core0 forwarded"), "{:?}", found.moved);
    assert!(found.moved.keys().all(|name| !name.starts_with("label")), "{:?}", found.moved);
    node.finish();
}

/// Packets into UDP and out of it that went wrong: one outcome each, which fits the verdict.
#[test]
#[ignore = "needs root"]
fn many_mutated_packets_in_udp() {
    let network = network();
    let node = Node::load(&network.node, &configured("uniform"));
    let packets = mutation::packets() / 3;
    let labels = [
        SWAP, POP, UNSUMMED, SWAP4, NULL4, NARROW, SHORT, OUTSIDE, ADJACENCY, BINDING, BINDING4, OWN, 7, MAIN_TABLE,
        70_000, 2,
    ];
    let mut random = Random::new(0x1abe_7510);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted = runner.outcomes("core0");
        for _ in 0..packets {
            let count = 1 + random.below(4);
            let entries: Vec<(u32, u8)> =
                (0..count).map(|_| (*random.pick(&labels), *random.pick(&[0_u8, 1, 2, 64, 255]))).collect();
            let (family, octets) = *random.pick(&CARRIED);
            let carried = carried(&stack(&entries), family, 7, octets);
            let mut frame = match random.below(3) {
                0 => from6(UNCHECKED, NODE, PORT, &carried).with_bytes(60, &[0, 0]).build(),
                1 => from4(SELF4, PORT, &carried).with_bytes(40, &[0, 0]).build(),
                _ => packet(arriving("core0").mpls(&stack(&entries)), family, 0, 7, octets).build(),
            };
            if random.below(3) != 0 {
                mutate(&mut random, &mut frame);
            }
            seen[mutation::send(runner, &mut counted, "core0", &frame, &mut faults) as usize] += 1;
        }
    });
    println!("{packets} packets: {seen:?}");
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, _, _, redirected] = seen;
    assert_eq!(aborted, 0);
    assert!(redirected > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}");
}
