//! Labels: pushed, swapped, popped, at the end of the stack, and with functions behind them.

use std::net::Ipv6Addr;

use segue_dataplane::Dataplane;
use segue_model::service_label::label_key;
use segue_testkit::fixture::{self, Network, address::*, arriving};
use segue_testkit::mutation::{Random, Seed, mutate};
use segue_testkit::node::{Node, make_runnable};
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

use crate::agree;

const LABELS: &str = "
labels:
  - {label: 16001, behaviour: node}
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 16003, behaviour: pop, next_hop: 'fd00:0:c1::2', port: core1}
  - {label: 16004, behaviour: explicit_null, next_hop: 'fd00:0:c1::2'}
  - {label: 16005, behaviour: swap, next_hop: 'fd00:0:c2::2'}
  - {label: 16006, behaviour: swap, next_hop: 'fd00:0:c1::99'}
  - {label: 16007, behaviour: swap, next_hop: 10.2.0.2}
  - {label: 16008, behaviour: node, table: 100}
  - label: 16010
    behaviour: swap
    paths: [{next_hop: 'fd00:0:c1::2', out: 17010}, {next_hop: 'fd00:0:c2::2', out: 3}]
  - label: 16011
    behaviour: explicit_null
    paths: [{next_hop: 'fd00:0:c1::2'}, {next_hop: 'fd00:0:c2::2'}, {next_hop: 'fd00:0:c0::2'}]
  - {label: 15001, behaviour: adjacency, next_hop: 'fd00:0:c1::2', port: core1}
  - {label: 15002, behaviour: adjacency, next_hop: 10.2.0.2}
  - {label: 15003, behaviour: adjacency, paths: [{next_hop: 'fd00:0:c1::2'}, {next_hop: 'fd00:0:c2::2'}]}
  - {label: 15100, behaviour: table}
  - {label: 15101, behaviour: table, table: 100}
  - {label: 15200, behaviour: next_hop, next_hop: 10.2.0.2}
  - {label: 15201, behaviour: next_hop, next_hop: 'fd00:0:a1::2'}
  - label: 15010
    behaviour: static_proxy
    next_hop_mac: '02:00:00:00:00:71'
    proxy: {inner: [IPv4, IPv6], to_function: fun0, from_function: fun1, labels: [16002, 70000], on_failure: bypass, watch: {}}
  - label: 15011
    behaviour: static_proxy
    table: 100
    next_hop_mac: '02:00:00:00:00:91'
    proxy: {inner: [IPv6], to_function: fun2, from_function: fun2}
  - label: 15012
    behaviour: static_proxy
    next_hop: 10.3.0.2
    proxy: {inner: [IPv4], to_function: fun0, from_function: fun3, other_types: bypass, labels: [16010]}
  - label: 15020
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:a9'
    proxy: {inner: [IPv4, IPv6], to_function: dyn0, from_function: dyn1, watch: {}}
  - label: 15021
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:b9'
    proxy: {inner: [IPv4, IPv6], to_function: flow0, from_function: flow0, memory: flow}
  - label: 15030
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:c9'
    proxy: {inner: [IPv6], to_function: mask0, from_function: mask0, on_failure: reroute, backup_label: 15020, watch: {}}
  - label: 15031
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:d9'
    proxy: {inner: [IPv4, IPv6], to_function: aware0, from_function: aware0, memory: packet}
  - label: 15070
    behaviour: sr_aware
    next_hop_mac: '02:00:00:00:00:d1'
    proxy: {to_function: mask1, from_function: mask1, on_failure: bypass, watch: {}}
  - {label: 15032, behaviour: netfilter, netfilter: {namespace: nf}}
  - {label: 15040, behaviour: firewall, firewall: plain}
  - {label: 15050, behaviour: binding, policy: labels-push2}
  - {label: 15051, behaviour: binding, policy: reduced}
  - {label: 15052, behaviour: binding, policy: labels-here}
  - {label: 15053, behaviour: binding, policy: labels-entropy}
  - {label: 15054, behaviour: binding, policy: narrow}
  - {label: 15060, behaviour: pseudowire, port: wire0}
  - {label: 15061, behaviour: pseudowire, port: acc1, control_word: false}
  - {label: 15055, behaviour: binding, policy: labels-udp}
  - {label: 15080, behaviour: adjacency, udp: {destination: 10.78.0.2, mtu: 1300}}
  - {label: 16020, behaviour: swap, out: 17020, udp: {destination: 'fd00:0:c1::2'}}
  - {label: 16021, behaviour: pop, udp: {destination: 'fd00:0:c2::2', zero_checksum: true}}
  - {label: 16022, behaviour: explicit_null, udp: {destination: 10.78.0.2}}
";

const POLICIES: &str = "
  - {name: labels-push2, mode: PUSH, segment_lists: [{labels: [16002, 16003], next_hop: 'fd00:0:c1::2'}]}
  - {name: labels-other, mode: PUSH, ttl: OTHER, traffic_class: {dscp: 46}, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2', port: core1}]}
  - {name: labels-narrow, mode: PUSH, ttl: TTL, hop_limit: 33, segment_lists: [{labels: [1048575], next_hop: 'fd00:0:c2::2'}]}
  - {name: labels-unresolved, mode: PUSH, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::99'}]}
  - {name: labels-outside, mode: PUSH, segment_lists: [{labels: [99], next_hop: 10.2.0.2}]}
  - {name: labels-weighted, mode: PUSH, segment_lists: [{labels: [100], weight: 1, next_hop: 'fd00:0:c1::2'}, {labels: [101], weight: 3, next_hop: 'fd00:0:c2::2'}]}
  - {name: labels-here, mode: PUSH, ttl: TTL, segment_lists: [{labels: [16001, 15010, 16002, 70000]}]}
  - {name: labels-here-paths, mode: PUSH, ttl: TTL, segment_lists: [{labels: [16010, 70000]}, {labels: [16011]}]}
  - {name: labels-here-end, mode: PUSH, segment_lists: [{labels: [15040, 15100]}]}
  - {name: labels-wire, mode: PUSH, pseudowire: {}, segment_lists: [{labels: [16002, 99], next_hop: 'fd00:0:c1::2'}, {labels: [16001, 15060]}, {labels: [99], next_hop: 'fd00:0:c2::2'}]}
  - {name: labels-entropy, mode: PUSH, entropy_label: true, ttl: TTL, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2'}, {labels: [16001, 16010]}]}
  - {name: labels-udp, mode: PUSH, entropy_label: true, ttl: TTL, segment_lists: [{labels: [99], udp: {destination: 'fd00:0:c1::2'}}, {labels: [16001], udp: {destination: 10.78.0.2}}]}
";

/// Where chains cross between SRv6 and labels.
const SIDS: &str = "
  - {sid: 'fc00:0:1:1::/64', behaviour: End}
  - {sid: 'fc00:0:1:501::/64', behaviour: End.BM, policy: labels-push2}
  - {sid: 'fc00:0:1:502::/64', behaviour: End.BM, policy: labels-entropy}
  - {sid: 'fc00:0:1:503::/64', behaviour: End.BM, policy: labels-here}
  - {sid: 'fc00:0:1:504::/64', behaviour: End.DTM}
";

const FIREWALL: &str = "*filter\\n:INPUT ACCEPT\\n:FORWARD ACCEPT\\n:OUTPUT ACCEPT\\n-A FORWARD -p udp --dport 2 -j DROP\\n\
    -A FORWARD -p udp --dport 3 -j REJECT\\n-A FORWARD -m mpls --mpls-label 16001 -j MPLS --mpls-action skip-next\\n\
    -A FORWARD -m mpls --mpls-label 16010:16011 -j MPLS --mpls-action go-last\\n\
    -A FORWARD -m mpls --mpls-depth any --mpls-label 16003 -j DROP\\nCOMMIT\\n";

/// The node with labels of every kind, and few SIDs.
pub fn configuration(ttl: &str) -> String {
    let text = fixture::configuration(fixture::DOMAIN);
    let text = text
        .replace("{name: acc1, role: access,", "{name: acc1, role: access, firewall: plain,")
        .replace("l2_policy: l2}", "l2_policy: labels-wire}")
        .replace("{name: core2, role: core}", "{name: core2, role: core, firewall: plain}");
    let (before, after) = text.split_once("sids:").expect("SIDs");
    let (_, after) = after.split_once("policies:\n").expect("policies");
    let names = [
        "push2",
        "other",
        "narrow",
        "unresolved",
        "outside",
        "weighted",
        "here",
        "here-paths",
        "here-end",
        "entropy",
        "udp",
    ];
    let rules = |(number, name): (usize, &&str)| {
        format!(
            "  - {{name: labels-{name}-6, destination: 'fd00:0:f{number:02x}::/48', policy: labels-{name}}}\n  \
             - {{name: labels-{name}-4, destination: 10.{}.0.0/16, policy: labels-{name}}}\n",
            30 + number
        )
    };
    let steering: String = names.iter().enumerate().map(rules).collect();
    let after = after.replacen("steering:\n", &format!("steering:\n{steering}"), 1);
    // In one of the two models what is behind labels may be addressed to SIDs, and labels have congestion marks.
    let inner = ttl == "uniform";
    let ecn = if inner { "[{class: 0, marked: 1}, {class: 2, marked: 3}]" } else { "[]" };
    let policies = POLICIES.replace("OTHER", if ttl == "pipe" { "uniform" } else { "pipe" }).replace("TTL", ttl);
    format!(
        "{before}firewalls:\n  - {{name: plain, ipv6: {{file: v6, text: \"{FIREWALL}\"}}, ipv4: {{file: v4, text: \"{FIREWALL}\"}}}}\n\
         sids:{SIDS}policies:{policies}{after}mpls: {{srgb: ['16000-23999'], srlb: ['15000-15999'], ttl: {ttl}, \
         allow_inner_sid: {inner}, ecn: {ecn}, udp_endpoints: [{{address: 'fd00:0:1::1', zero_checksum_from: 'fd00:0:9:5::/64'}}, {{address: 10.77.0.1}}]}}{LABELS}"
    )
}

/// Labels that this node knows, special ones, and some that nobody knows.
const KNOWN: [u32; 48] = [
    16_001, 16_001, 16_002, 16_002, 16_003, 16_003, 16_004, 16_005, 16_006, 16_007, 16_008, 16_010, 16_010, 16_011,
    15_001, 15_002, 15_003, 15_100, 15_101, 15_200, 15_201, 15_010, 15_011, 15_012, 15_020, 15_021, 15_030, 15_031,
    15_032, 15_040, 15_050, 15_050, 15_051, 15_052, 15_053, 15_054, 15_060, 15_060, 15_061, 15_061, 15_070, 15_070,
    15_055, 15_080, 16_020, 16_020, 16_021, 16_022,
];
const OTHERS: [u32; 8] = [0, 1, 2, 3, 7, 13, 70_000, 1_048_575];

fn stack(random: &mut Random) -> Vec<MplsEntry> {
    let count = match random.below(40) {
        0 => 30 + random.below(40),
        _ => 1 + random.below(4),
    };
    let (class, other) = (random.below(8) as u8, random.below(8) as u8);
    let is_mixed = random.below(4) == 0;
    let entry = |number| MplsEntry {
        label: if random.below(6) == 0 { *random.pick(&OTHERS) } else { *random.pick(&KNOWN) },
        time_to_live: *random.pick(&[64, 64, 64, 64, 64, 255, 3, 2, 1, 0]),
        traffic_class: if is_mixed && number == 1 { other } else { class },
        ..MplsEntry::default()
    };
    let mut entries: Vec<MplsEntry> = (0..count).map(entry).collect();
    // With an entropy label, or half of one.
    if random.below(3) == 0 {
        let at = random.below(entries.len() + 1);
        let label = if random.below(8) == 0 { 7 } else { random.number() as u32 & 0xf_ffff };
        let indicator = MplsEntry { label: 7, traffic_class: class, time_to_live: 64, ..MplsEntry::default() };
        let pair = [indicator, MplsEntry { label, time_to_live: 0, ..indicator }];
        entries.splice(at..at, pair[random.below(12) / 11..].iter().copied());
    }
    entries
}

/// A packet of some flow, to somebody whom the node knows or not.
fn packet(random: &mut Random, front: PacketBuilder) -> PacketBuilder {
    let hops = *random.pick(&[64, 64, 64, 3, 2, 1, 0]);
    let (source, to) = (random.number() as u16, *random.pick(&[1, 2, 3, 80]));
    let octets = vec![7; *random.pick(&[0, 20, 20, 40, 1300, 1420, 2900])];
    let traffic_class = random.number() as u8;
    let front = if random.below(3) == 0 {
        let to = *random.pick(&[
            SERVER4,
            CLIENT4,
            IN_TABLE4,
            [10, 2, 0, 1].into(),
            [10, 77, 0, 1].into(),
            [224, 0, 0, 5].into(),
        ]);
        front.inner_ipv4(Ipv4Repr { time_to_live: hops, type_of_service: traffic_class, ..Ipv4Repr::new(CLIENT4, to) })
    } else {
        let unknown = Ipv6Addr::new(0xfd00, 0, 0xbad, 0, 0, 0, 0, 1);
        let known = [SERVER, SERVER, CLIENT, HEADEND, NODE, IN_TABLE, local(1), behind_core1(1), unknown];
        let from = *random.pick(&[CLIENT, CLIENT, CLIENT, HEADEND, Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9)]);
        let repr = Ipv6Repr { hop_limit: hops, traffic_class, ..Ipv6Repr::new(from, *random.pick(&known)) };
        let front = front.inner_ipv6(repr);
        match random.below(12) {
            0 => front.fragment(FragmentRepr::default()),
            1 => front.srh(SrhRepr::new(&[SERVER, CLIENT])),
            2 => {
                let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(CLIENT, local(1))).udp(UdpRepr::new(1, 2)).build();
                return front.icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1300, packet });
            }
            _ => front,
        }
    };
    match random.below(2) {
        0 => front.tcp(TcpRepr::new(source, to, 2)).payload(&octets),
        _ => front.udp(UdpRepr::new(source, to)).payload(&octets),
    }
}

/// Packets with labels, in by any port but mostly those of the core.
fn labelled(random: &mut Random, count: usize) -> Vec<Seed> {
    let one = |_| {
        let port = *random.pick(&["core0", "core0", "core0", "core1", "core2", "core2", "acc0", "fun1"]);
        let mut labels = stack(random);
        if random.below(10) == 0
            && let Some(last) = labels.last_mut()
        {
            last.label = 15_060;
        }
        let mut frame = packet(random, arriving(port).mpls(&labels)).build();
        if labels.last().is_some_and(|last| last.label == 15_060) && random.below(8) != 0 {
            let control = [*random.pick(&[0, 0, 0, 9, 0x10, 0x10, 0x40]), 0, 0, 0];
            let end = 14 + 4 * labels.len();
            frame.splice(end..end, control);
        }
        match random.below(12) {
            0 => frame.extend([0; 6]),
            1 => frame[0..6].copy_from_slice(if random.below(2) == 0 { &[2, 9, 9, 9, 9, 9] } else { &[0x33; 6] }),
            _ => {}
        }
        Seed { port, frame }
    };
    (0..count).map(one).collect()
}

/// Packets that come by SRv6 and go on by labels.
fn crossing(random: &mut Random, count: usize) -> Vec<Seed> {
    let one = |_| {
        let function = *random.pick(&[0x501, 0x502, 0x503, 0x504, 0x504]);
        let hops = *random.pick(&[64, 64, 64, 2, 1]);
        let path = [local(1), local(function), *random.pick(&[behind_core1(1), local(1), local(0x501)])];
        let left = random.below(3) as u8;
        let traffic_class = random.number() as u8;
        let to = path[2 - usize::from(left)];
        let front = arriving("core0").ipv6(Ipv6Repr { hop_limit: hops, traffic_class, ..Ipv6Repr::new(HEADEND, to) });
        let front = match random.below(4) {
            0 if function == 0x504 => arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0x504))),
            _ => front.srh(SrhRepr::new(&path).with_segments_left(left)),
        };
        let front = if random.below(2) == 0 { front.mpls(&stack(random)) } else { front };
        Seed { port: "core0", frame: packet(random, front).build() }
    };
    (0..count).map(one).collect()
}

/// Labels that come in UDP, or seem to.
fn in_udp(random: &mut Random, count: usize) -> Vec<Seed> {
    let one = |_| {
        let port = *random.pick(&["core0", "core0", "core0", "core2", "acc0"]);
        let udp = UdpRepr::new(random.number() as u16, *random.pick(&[6635, 6635, 6635, 6635, 6636]));
        let traffic_class = *random.pick(&[0, 0, 0, 1, 2, 3]);
        let labels = stack(random);
        let carried = packet(random, PacketBuilder::new().mpls(&labels)).build();
        let unchecked = random.below(3) == 0;
        let frame = if random.below(2) == 0 {
            let to = *random.pick(&[[10, 77, 0, 1], [10, 77, 0, 1], [10, 77, 0, 1], [10, 77, 0, 2]]);
            let repr = Ipv4Repr {
                type_of_service: traffic_class,
                more_fragments: random.below(20) == 0,
                ..Ipv4Repr::new([10, 79, 0, 1].into(), to.into())
            };
            let frame = arriving(port).ipv4(repr).udp(udp).payload(&carried);
            if unchecked { frame.with_bytes(40, &[0, 0]) } else { frame }
        } else {
            let sources =
                [HEADEND, Ipv6Addr::new(0xfd00, 0, 9, 5, 0, 0, 0, 1), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9)];
            let repr = Ipv6Repr::new(*random.pick(&sources), *random.pick(&[NODE, NODE, NODE, SERVER]));
            let frame = arriving(port).ipv6(Ipv6Repr { traffic_class, ..repr }).udp(udp).payload(&carried);
            if unchecked { frame.with_bytes(60, &[0, 0]) } else { frame }
        };
        let padding: &[u8] = if random.below(8) == 0 { &[0; 6] } else { &[] };
        Seed { port, frame: frame.trailer(padding).build() }
    };
    (0..count).map(one).collect()
}

/// Packets into policies of labels, and back from functions behind labels.
fn pushed(random: &mut Random, count: usize) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for _ in 0..count {
        if random.below(4) == 0 {
            let port = *random.pick(&["fun1", "fun2", "fun3", "dyn1", "flow0"]);
            seeds.push(Seed { port, frame: packet(random, arriving(port)).build() });
            continue;
        }
        let port = *random.pick(&["acc0", "acc1", "acc0", "acc1", "wire0"]);
        let policy = random.below(11) as u8;
        let hops = *random.pick(&[64, 64, 64, 3, 2, 1]);
        let (source, to) = (random.number() as u16, *random.pick(&[1, 2, 3]));
        let traffic_class = random.number() as u8;
        let front = if random.below(2) == 0 {
            let to = [10, 30 + policy, 0, 7].into();
            arriving(port).ipv4(Ipv4Repr {
                time_to_live: hops,
                type_of_service: traffic_class,
                ..Ipv4Repr::new(CLIENT4, to)
            })
        } else {
            let to = Ipv6Addr::new(0xfd00, 0, 0xf00 + u16::from(policy), 0, 0, 0, 0, 7);
            arriving(port).ipv6(Ipv6Repr { hop_limit: hops, traffic_class, ..Ipv6Repr::new(CLIENT, to) })
        };
        let octets = vec![7; *random.pick(&[0, 20, 1300, 1340, 1420])];
        seeds.push(Seed { port, frame: front.udp(UdpRepr::new(source, to)).payload(&octets).build() });
    }
    seeds
}

/// Whole packets of all kinds, and broken ones.
fn by_chance(random: &mut Random) -> Vec<Seed> {
    let mut packets = labelled(random, 900);
    packets.extend(pushed(random, 450));
    packets.extend(crossing(random, 300));
    packets.extend(in_udp(random, 300));
    let whole = packets.len();
    for _ in 0..900 {
        let mut packet = packets[random.below(whole)].clone();
        mutate(random, &mut packet.frame);
        make_runnable(&mut packet.frame);
        packets.push(packet);
    }
    packets
}

fn labels_agree(ttl: &str, seed: u64) {
    let network = Network::new();
    network.links_to_netfilter();
    network.node.sh("ip address add 10.78.0.1/24 dev core1");
    network.node.sh(&format!("ip neigh add 10.78.0.2 lladdr {} nud permanent dev core1", fixture::macs("core1").1));
    let node = Node::load(&network.node, &configuration(ttl));
    let mut random = Random::new(seed);
    let packets = by_chance(&mut random);
    let certain = agree(&node, &packets);
    let sum: usize = certain.values().sum();
    assert!(sum * 10 > packets.len() * 8, "of {} it was certain of {sum}: {certain:?}", packets.len());
    for outcome in [
        "forwarded",
        "to_function",
        "passed_route",
        "drop_label_unknown",
        "drop_label_reserved",
        "drop_label_ttl",
        "drop_label_bottom",
        "drop_labels_from_outside",
        "drop_no_neighbour",
        "drop_sr_leaves",
        "drop_too_big",
        "drop_hop_limit_exceeded",
        "drop_from_function",
        "drop_firewall",
        "drop_firewall_rejected",
        "drop_inner_type",
        if ttl == "pipe" { "drop_inner_to_sid" } else { "drop_upper_layer" },
        "drop_group_frame",
        "drop_control_word",
        "drop_associated_channel",
        "drop_bad_checksum",
        "drop_ecn_not_capable",
    ] {
        assert!(certain.get(outcome).copied().unwrap_or_default() > 0, "{outcome}: {certain:?}");
    }
    let down = [15_010, 15_020, 15_030, 15_070].map(label_key);
    node.inside(|dataplane: &mut Dataplane| dataplane.life().set(down, true).unwrap());
    let certain = agree(&node, &labelled(&mut random, 300));
    assert!(certain.get("drop_function_down").copied().unwrap_or_default() > 3, "{certain:?}");
    node.inside(|dataplane: &mut Dataplane| dataplane.life().set(down, false).unwrap());
}

#[test]
#[ignore = "needs root"]
fn labels_that_end_with_their_own_ttl() {
    labels_agree("pipe", 31);
}

#[test]
#[ignore = "needs root"]
fn labels_whose_ttl_is_carried_on() {
    labels_agree("uniform", 32);
}
