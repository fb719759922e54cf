//! Buffers that the kernel makes single packets of before they get labels, or are carried as frames in IPv6: octet for octet, with what lies beside them, and counted once.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use segue_dataplane::Hook;
use segue_testkit::netns::{End, Netns, parse_mac};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::Wiring;
use segue_wire::checksum::PseudoHeader;
use segue_wire::mpls::MplsEntry;
use segue_wire::tcp::control;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

const ARRIVES_WITHIN: Duration = Duration::from_secs(5);
const SILENT_FOR: Duration = Duration::from_millis(30);
const MARK: u32 = 0x5e6;
const SIZE: usize = 1000;
/// Of three packets, the last one shorter than the others.
const OCTETS: usize = 2345;

const HOST: &str = "02:00:00:00:01:01";
const PORT: &str = "02:00:00:00:01:02";
const CORE: &str = "02:00:00:00:03:01";
const NEXT: &str = "02:00:00:00:03:02";
/// Who a frame is for that is carried: nobody here.
const FAR: &str = "02:00:00:00:09:09";

/// `enum` of linux/virtio_net.h.
const TCP_IPV4: u8 = 1;
const TCP_IPV6: u8 = 4;
const UDP_SEGMENTS: u8 = 5;

const STATE: &str = "
node: cut
source_address: 'fd00:ee::1'
source_address_ipv4: 192.0.2.1
ports: [{name: wire, role: access, l2_policy: wire}, {name: acc, role: access}, {name: core, role: core}]
labels: [{label: 15100, behaviour: table}]
policies:
  - {name: wire, mode: PUSH, pseudowire: {}, segment_lists: [{labels: [16002, 99], next_hop: 'fd00:9::2'}]}
  - {name: far, mode: PUSH, segment_lists: [{labels: [16002, 98], next_hop: 'fd00:9::2'}]}
  - {name: around, mode: PUSH, segment_lists: [{labels: [15100]}]}
steering:
  - {name: six, destination: 'fd00:2::/64', policy: far}
  - {name: four, destination: 10.2.0.0/24, policy: far}
  - {name: around, destination: 'fd00:3::/64', policy: around}
";

/// A node without labels: frames go into IPv6 as they are, those of a link and those that come back from a function.
const FRAMES: &str = "
node: cut
source_address: 'fd00:ee::1'
domain: {sid_blocks: ['fd00:4::/31']}
ports: [{name: wire, role: access, l2_policy: wire}, {name: acc, role: service}, {name: core, role: core}]
sids:
  - sid: 'fd00:5::5'
    behaviour: End.AS
    proxy: {inner: [Ethernet], to_function: acc, from_function: acc, segments: ['fd00:4::99']}
policies: [{name: wire, mode: H.Encaps.L2.Red, segment_lists: [{segments: ['fd00:4::99']}]}]
";

/// Hosts, node and the next node in one namespace: marks stay on packets all the way.
fn world() -> Netns {
    let world = Netns::new();
    let mut wiring = Wiring::default();
    for (left, left_mac, right, right_mac, mtu) in [
        ("host", HOST, "acc", PORT, 1500),
        ("frames", "02:00:00:00:02:01", "wire", "02:00:00:00:02:02", 1500),
        ("core", CORE, "next", NEXT, 2000),
        ("segue-cut0", "02:5e:65:67:00:03", "segue-cut1", "02:5e:65:67:00:04", 65535),
    ] {
        let end = |name, mac| End { netns: &world, name, mac };
        wiring.veth(end(left, left_mac), end(right, right_mac), mtu);
    }
    wiring.ip(&world, "address add fd00:9::1/64 dev core nodad\naddress add 10.9.0.1/24 dev core");
    wiring.ip(&world, &format!("neigh add fd00:9::2 lladdr {NEXT} nud permanent dev core"));
    wiring.ip(&world, "route add fd00:3::/64 via fd00:9::3\nroute add fd00:4::/64 via fd00:9::2");
    wiring.lay();
    for offloads in
        ["host tx on sg on tso on", "frames tx on sg on tso on", "segue-cut0 tx off sg off", "segue-cut1 gro off"]
    {
        world.sh(&format!("ethtool -K {offloads}"));
    }
    world.sysctl("ipv6.conf.all.forwarding=1");
    // They say nothing of their own.
    for end in ["host", "frames", "next", "segue-cut0", "segue-cut1"] {
        world.sysctl(&format!("ipv6.conf.{end}.disable_ipv6=1"));
    }
    world
}

/// `struct virtio_net_hdr`: the checksum of layer 4 is to be made; and segments, if it is of that kind.
fn left_to_link(kind: u8, headers: usize, start: usize, field: usize) -> [u8; 10] {
    let number = |number: usize| u16::try_from(number).unwrap().to_ne_bytes();
    let size = if kind == 0 { 0 } else { SIZE };
    let [[a, b], [c, d], [e, f], [g, h]] = [headers, size, start, field].map(number);
    [1, kind, a, b, c, d, e, f, g, h]
}

/// What hosts hand to their links: the frame with the sum of the pseudo header in the place of its checksum.
fn unfinished(mut frame: Vec<u8>, pseudo: &PseudoHeader, start: usize, field: usize) -> Vec<u8> {
    let sum = !pseudo.sum(frame.len() - start).finish();
    frame[start + field..][..2].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Tcp6,
    Tcp4,
    Udp6,
    Udp4,
}

const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1);
const CLIENT4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SERVER4: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

impl Kind {
    const ALL: [Self; 4] = [Self::Tcp6, Self::Tcp4, Self::Udp6, Self::Udp4];

    fn segmentation(self) -> u8 {
        match self {
            Self::Tcp6 => TCP_IPV6,
            Self::Tcp4 => TCP_IPV4,
            Self::Udp6 | Self::Udp4 => UDP_SEGMENTS,
        }
    }

    fn ip_length(self) -> usize {
        if matches!(self, Self::Tcp6 | Self::Udp6) { 40 } else { 20 }
    }

    /// Octets of the layer 4 header, and where its checksum lies.
    fn upper(self) -> (usize, usize) {
        if matches!(self, Self::Tcp6 | Self::Tcp4) { (20, 16) } else { (8, 6) }
    }

    fn pseudo(self, destination: Ipv6Addr) -> PseudoHeader {
        let next_header = if self.upper().0 == 20 { 6 } else { 17 };
        match self {
            Self::Tcp6 | Self::Udp6 => PseudoHeader::V6 { source: CLIENT6, destination, next_header },
            Self::Tcp4 | Self::Udp4 => {
                PseudoHeader::V4 { source: CLIENT4, destination: SERVER4, protocol: next_header }
            }
        }
    }

    /// The packet with octets of a stream from `at` on, behind `front`.
    fn packet(self, front: PacketBuilder, destination: Ipv6Addr, hops: u8, at: usize, payload: &[u8]) -> Vec<u8> {
        let number = u16::try_from(at / SIZE).unwrap();
        let front = match self {
            Self::Tcp6 | Self::Udp6 => {
                front.inner_ipv6(Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT6, destination) })
            }
            Self::Tcp4 | Self::Udp4 => {
                let ip = Ipv4Repr::new(CLIENT4, SERVER4);
                front.inner_ipv4(Ipv4Repr {
                    time_to_live: hops,
                    identification: 7 + number,
                    dont_fragment: false,
                    ..ip
                })
            }
        };
        let front = match self {
            Self::Tcp6 | Self::Tcp4 => {
                let last = at + payload.len() == OCTETS;
                let bits = if last { control::ACK | control::PSH } else { control::ACK };
                let sequence_number = 5000 + u32::try_from(at).unwrap();
                front.tcp(TcpRepr { sequence_number, window: 9, ..TcpRepr::new(1000, 80, bits) })
            }
            Self::Udp6 | Self::Udp4 => front.udp(UdpRepr::new(1000, 80)),
        };
        front.payload(payload).build()
    }

    /// What the host sends, with all octets in one buffer and PSH where the last one is, and with tags of VLANs if it has some.
    fn buffer(self, to: &str, destination: Ipv6Addr, payload: &[u8], tags: &[u16]) -> Vec<u8> {
        let front = tagged(to, tags);
        let frame = self.packet(front, destination, 64, OCTETS - payload.len(), payload);
        let start = 14 + tags.len() * 4 + self.ip_length();
        let (length, field) = self.upper();
        let pseudo = self.pseudo(destination);
        let kind = if payload.len() > SIZE { self.segmentation() } else { 0 };
        [&left_to_link(kind, start + length, start, field)[..], &unfinished(frame, &pseudo, start, field)].concat()
    }
}

/// A frame of the host's.
fn tagged(to: &str, tags: &[u16]) -> PacketBuilder {
    tags.iter().copied().fold(PacketBuilder::ethernet(parse_mac(HOST), parse_mac(to)), PacketBuilder::vlan)
}

fn stream() -> Vec<u8> {
    (0..OCTETS).map(|at| (at * 7 + at / 256) as u8).collect()
}

fn labelled(last: u32) -> PacketBuilder {
    let entry = |label| MplsEntry { label, time_to_live: 64, ..MplsEntry::default() };
    PacketBuilder::ethernet(parse_mac(CORE), parse_mac(NEXT)).mpls(&[entry(16002), entry(last)])
}

/// What arrives at the next node has labels, is whole, and has the mark.
fn arrive(next: &PacketSocket, expected: &[Vec<u8>], what: &str) {
    for (number, expected) in expected.iter().enumerate() {
        let (frame, mark) = received(next, ARRIVES_WITHIN).unwrap_or_else(|| panic!("{what}: no packet {number}"));
        assert_eq!(frame, *expected, "{what}, packet {number}");
        assert_eq!(mark, MARK, "{what}, packet {number}");
    }
    assert_eq!(received(next, SILENT_FOR), None, "{what}: one more");
}

/// The next frame with its mark, but for what the node's kernel says to all routers when it likes (MLD).
fn received(next: &PacketSocket, limit: Duration) -> Option<(Vec<u8>, u32)> {
    loop {
        let (frame, mark) = next.receive_marked(limit)?;
        if frame[..2] != [0x33, 0x33] {
            return Some((frame, mark));
        }
    }
}

fn moved(node: &Node<'_>, before: &segue_testkit::node::Moved) -> Vec<(String, u64)> {
    let now = node.counters();
    let change = |(name, (packets, _)): (&String, &(u64, u64))| {
        (name.clone(), packets - before.get(name).map_or(0, |(packets, _)| *packets))
    };
    now.iter().map(change).filter(|(_, packets)| *packets > 0).collect()
}

fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(name, packets)| ((*name).to_owned(), *packets)).collect()
}

#[test]
#[ignore = "needs root"]
fn buffers_become_packets_before_they_get_labels() {
    let world = world();
    let node = Node::load_on(&world, STATE, Hook::Skb);
    let open = |name| PacketSocket::open(&world, name).with_offloads().marking(MARK);
    let (host, frames) = (open("host"), open("frames"));
    let next = PacketSocket::open(&world, "next").telling_marks();
    next.drain();
    let stream = stream();
    let chunks = || (0..).step_by(SIZE).zip(stream.chunks(SIZE));
    for kind in Kind::ALL {
        let rule = if kind.ip_length() == 40 { "rule six" } else { "rule four" };
        // Segments; and one packet whose checksum alone is left.
        for (octets, packets) in [(OCTETS, 3), (345, 1)] {
            let before = node.counters();
            host.send(&kind.buffer(PORT, SERVER6, &stream[OCTETS - octets..], &[]));
            let parts = chunks().skip(3 - packets as usize);
            let expected: Vec<Vec<u8>> =
                parts.map(|(at, part)| kind.packet(labelled(98), SERVER6, 63, at, part)).collect();
            let what = format!("{kind:?}, {packets}");
            arrive(&next, &expected, &what);
            let rows = [("acc forwarded", packets), ("list far/0", packets), (rule, packets)];
            assert_eq!(moved(&node, &before), named(&rows), "{what}");
        }
        // Frames of a pseudowire, with the tag that lies beside the buffer.
        for tag in [None, Some(42)] {
            let before = node.counters();
            frames.send(&kind.buffer(FAR, SERVER6, &stream, tag.as_slice()));
            let expected = chunks().map(|(at, part)| {
                let inside = kind.packet(tagged(FAR, tag.as_slice()), SERVER6, 64, at, part);
                labelled(99).payload(&[0; 4]).payload(&inside).build()
            });
            arrive(&next, &expected.collect::<Vec<_>>(), &format!("{kind:?}, tag {tag:?}"));
            assert_eq!(moved(&node, &before), named(&[("list wire/0", 3), ("wire forwarded", 3)]), "{kind:?} {tag:?}");
        }
    }
}

/// Frames into IPv6, in which nobody cuts segments: they are cut before, with the tag that lies beside the buffer.
#[test]
#[ignore = "needs root"]
fn buffers_become_frames_before_they_go_into_ipv6() {
    let world = world();
    let node = Node::load_on(&world, FRAMES, Hook::Skb);
    let next = PacketSocket::open(&world, "next").telling_marks();
    next.drain();
    let stream = stream();
    for (end, port) in [("frames", "wire"), ("host", "acc")] {
        let socket = PacketSocket::open(&world, end).with_offloads().marking(MARK);
        for kind in Kind::ALL {
            for (octets, tag) in [(OCTETS, None), (345, None), (OCTETS, Some(42)), (345, Some(42))] {
                let what = format!("{port}, {kind:?}, {octets} octets, tag {tag:?}");
                let before = node.counters();
                socket.send(&kind.buffer(FAR, SERVER6, &stream[OCTETS - octets..], tag.as_slice()));
                let packets = octets.div_ceil(SIZE);
                let tags = tag.as_slice();
                let labels = all_carried(&next, kind, &stream[OCTETS - octets..], tags, &what);
                assert_eq!(received(&next, SILENT_FOR), None, "{what}: one more");
                assert_eq!(labels.len(), 1, "{what}: packets of a flow have one flow label, {labels:?}");
                let forwarded =
                    moved(&node, &before).into_iter().find(|(name, _)| *name == format!("{port} forwarded"));
                assert_eq!(forwarded, Some((format!("{port} forwarded"), packets as u64)), "{what}");
            }
        }
    }
}

/// A firewall on the port looks past tags, at what is not cut yet; what it lets through has them still, where they were.
#[test]
#[ignore = "needs root"]
fn a_firewall_looks_into_frames_that_are_carried() {
    let rules = |rule: &str| {
        let text = format!("*filter\\n:FORWARD ACCEPT [0:0]\\n{rule}\\nCOMMIT\\n");
        let file = |family| format!("{{file: {family}, text: \"{text}\"}}");
        let firewall = format!("firewalls: [{{name: fw, ipv4: {}, ipv6: {}}}]\n", file("v4"), file("v6"));
        FRAMES.replace("l2_policy: wire}", "l2_policy: wire, firewall: fw}") + &firewall
    };
    let world = world();
    let mut node = Node::load_on(&world, &rules("-A FORWARD -p udp -m udp --dport 80 -j DROP"), Hook::Skb);
    let next = PacketSocket::open(&world, "next").telling_marks();
    let frames = PacketSocket::open(&world, "frames").with_offloads().marking(MARK);
    next.drain();
    let stream = stream();
    let cases = || {
        let sizes = [OCTETS, 345].into_iter();
        sizes.flat_map(|octets| [&[][..], &[42], &[42, 7]].map(|tags| (octets, octets.div_ceil(SIZE) as u64, tags)))
    };
    for kind in Kind::ALL {
        for (octets, packets, tags) in cases() {
            let what = format!("{kind:?}, {octets} octets, tags {tags:?}");
            let before = node.counters();
            frames.send(&kind.buffer(FAR, SERVER6, &stream[OCTETS - octets..], tags));
            let outcome = if kind.upper().0 == 20 {
                all_carried(&next, kind, &stream[OCTETS - octets..], tags, &what);
                "wire forwarded"
            } else {
                "wire drop_firewall"
            };
            assert_eq!(received(&next, SILENT_FOR), None, "{what}: one more");
            let moved = moved(&node, &before);
            assert!(moved.contains(&(outcome.to_owned(), packets)), "{what}: {outcome}, but {moved:?}");
        }
    }
    // Who is refused behind tags gets no answer, which would have none.
    node.apply(&rules("-A FORWARD -j REJECT"));
    frames.drain();
    for (octets, packets, tags) in cases().filter(|(_, _, tags)| !tags.is_empty()) {
        let before = node.counters();
        frames.send(&Kind::Udp6.buffer(FAR, SERVER6, &stream[OCTETS - octets..], tags));
        assert_eq!(received(&next, SILENT_FOR), None, "{tags:?}");
        assert_eq!(received(&frames, SILENT_FOR), None, "{tags:?}: an answer");
        assert!(moved(&node, &before).contains(&("wire drop_firewall".to_owned(), packets)), "{tags:?}");
    }
    let before = node.counters();
    frames.send(&Kind::Udp6.buffer(FAR, SERVER6, &stream[OCTETS - 345..], &[42, 7, 8]));
    assert_eq!(received(&next, SILENT_FOR), None, "three tags");
    assert_eq!(moved(&node, &before), named(&[("wire drop_firewall_tags", 1)]));
}

/// The next packets carry frames with what a host sent in one buffer. The first words of their headers.
fn all_carried(next: &PacketSocket, kind: Kind, sent: &[u8], tags: &[u16], what: &str) -> BTreeSet<[u8; 4]> {
    let first = OCTETS - sent.len();
    let parts = (first..).step_by(SIZE).zip(sent.chunks(SIZE));
    parts.map(|(at, part)| carried(next, &kind.packet(tagged(FAR, tags), SERVER6, 64, at, part), what)).collect()
}

/// The next packet carries the frame `inside` behind an IPv6 header of its own, and has the mark. The first word of that header.
fn carried(next: &PacketSocket, inside: &[u8], what: &str) -> [u8; 4] {
    let (frame, mark) = received(next, ARRIVES_WITHIN).unwrap_or_else(|| panic!("{what}: a packet is missing"));
    let (outer, found) = frame.split_at(14 + 40);
    assert_eq!(found, inside, "{what}");
    assert_eq!(mark, MARK, "{what}");
    assert_eq!(outer[..14], [&parse_mac(NEXT)[..], &parse_mac(CORE), &[0x86, 0xdd]].concat(), "{what}");
    let length = u16::try_from(inside.len()).unwrap().to_be_bytes();
    assert_eq!(outer[18..22], [length[0], length[1], 143, 64], "{what}: length, Ethernet, hop limit");
    assert_eq!(outer[22..38], Ipv6Addr::new(0xfd00, 0xee, 0, 0, 0, 0, 0, 1).octets(), "{what}");
    assert_eq!(outer[38..54], Ipv6Addr::new(0xfd00, 4, 0, 0, 0, 0, 0, 0x99).octets(), "{what}");
    outer[14..18].try_into().unwrap()
}

/// What meets no neighbour behind a label of the node itself is the kernel's, as what has come in by the port, which it goes through without
/// being counted again: the kernel looks for the neighbour. And what nobody but this data plane sends there is nobody's.
#[test]
#[ignore = "needs root"]
fn nothing_goes_round_and_nobody_else_comes_in() {
    let world = world();
    let node = Node::load_on(&world, STATE, Hook::Skb);
    let host = PacketSocket::open(&world, "host").with_offloads();
    let next = PacketSocket::open(&world, "next");
    let stream = stream();
    next.drain();
    let before = node.counters();
    let unknown = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1);
    host.send(&Kind::Tcp6.buffer(PORT, unknown, &stream, &[]));
    let solicits = |frame: &[u8]| frame.get(12..14) == Some(&[0x86, 0xdd]) && frame.get(54) == Some(&135);
    next.receive_where(ARRIVES_WITHIN, solicits).expect("a neighbour solicitation");
    let rows = [("acc passed_no_neighbour", 3), ("label 15100", 3), ("list around/0", 3), ("rule around", 3)];
    assert_eq!(moved(&node, &before), named(&rows));

    // Frames that somebody sends into the pair, with or without a mark: nobody's.
    let port = world.ifindex("acc");
    for mark in [0, port, port | 4 << 24] {
        let before = node.counters();
        next.drain();
        let near = PacketSocket::open(&world, "segue-cut0").with_offloads().marking(mark);
        near.send(&Kind::Tcp6.buffer(PORT, SERVER6, &stream[OCTETS - 345..], &[]));
        let is_labelled = |frame: &[u8]| frame.get(12..14) == Some(&[0x88, 0x47]);
        assert_eq!(next.receive_where(SILENT_FOR, is_labelled), None, "mark {mark:#x}");
        assert_eq!(moved(&node, &before), named(&[("row0 drop_port_unknown", 1)]), "mark {mark:#x}");
    }

    // The pair leaves to its far end what it must not: packets are dropped, and do not go round.
    world.sh("ethtool -K segue-cut0 tx on sg on tso on");
    for (octets, packets) in [(OCTETS, 3), (345, 1)] {
        let before = node.counters();
        host.send(&Kind::Tcp6.buffer(PORT, SERVER6, &stream[OCTETS - octets..], &[]));
        let is_labelled = |frame: &[u8]| frame.get(12..14) == Some(&[0x88, 0x47]);
        assert_eq!(next.receive_where(SILENT_FOR, is_labelled), None);
        assert_eq!(moved(&node, &before), named(&[("acc drop_offload", packets)]));
    }
}
