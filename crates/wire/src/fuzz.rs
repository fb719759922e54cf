//! Bodies of the fuzz targets, and a driver that runs them over pseudo-random inputs in a plain test.
//!
//! A body takes any octets and panics when a promise of this crate is broken; it must return normally for everything
//! else. `fuzz/fuzz_targets` hands each of them to libFuzzer.

use crate::aggfrag::{Aggfrag, AggfragRepr, Block};
use crate::builder::PacketBuilder;
use crate::checksum::{PseudoHeader, update_bytes};
use crate::classify::{OuterStatus, classify_outer};
use crate::icmpv4::{Icmpv4Message, Icmpv4Repr};
use crate::icmpv6::{Icmpv6Message, Icmpv6Repr};
use crate::ipcomp::{IpComp, IpCompRepr};
use crate::ipv4::{Ipv4Packet, Ipv4Repr};
use crate::ipv6::{Ipv6Packet, Ipv6Repr};
use crate::ipv6_extension::{FragmentRepr, HeaderChain, OptionIter, OptionsRepr, RoutingRepr};
use crate::layer::LayerKind;
use crate::mpls::{LabelStack, MplsEntry};
use crate::packet::{Layers, parse_as_far_as_possible, parse_ip_packet, parse_packet as parse};
use crate::srh::{HmacVariant, Srh, SrhContext, SrhRepr, TlvLimits, TlvRepr};
use crate::summary::summary;
use crate::tcp::{TcpRepr, TcpSegment};
use crate::udp::{UdpDatagram, UdpRepr};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

/// A target with its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 6] = [
    ("parse_packet", parse_packet),
    ("srh_roundtrip", srh_roundtrip),
    ("icmp", icmp),
    ("mpls", mpls),
    ("builder", builder),
    ("aggregates", aggregates),
];

const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PSEUDO_HEADER: PseudoHeader = PseudoHeader::V6 { source: ADDRESS, destination: ADDRESS, next_header: 58 };

/// Layers lie inside one another, errors lie inside the packet, and both walks over extension headers agree.
pub fn parse_packet(data: &[u8]) {
    let (layers, error) = parse_as_far_as_possible(data);
    check_nesting(&layers, data);
    assert!(summary(data).to_string().lines().count() <= 1);
    if let Some(error) = error {
        let _ = (error.to_string(), error.icmpv6_error_from(14));
    }
    let _ = parse_ip_packet(data);
    let class = classify_outer(data);
    assert!(class.upper_layer_offset <= data.len());
    if class.status == OuterStatus::Ok {
        let packet = data.get(class.network_offset..).unwrap_or(&[]);
        let packet = Ipv6Packet::new_checked(packet).expect("classify_outer accepted the IPv6 header");
        compare_with_chain(&class, &packet);
    }
    let _ = OptionIter::new(data).count();
    views(data);
}

fn compare_with_chain(class: &crate::classify::OuterClass, packet: &Ipv6Packet<&[u8]>) {
    let (chain, _) = HeaderChain::walk(packet.packet());
    let srh = chain.srh().map(|header| header.offset + class.network_offset);
    assert_eq!(class.srh.map(|srh| srh.offset), srh);
    if class.srh.is_none() {
        assert_eq!(class.upper_layer_offset, chain.upper_layer_offset() + class.network_offset);
        assert_eq!(class.upper_layer, chain.upper_layer());
    }
}

fn check_nesting(layers: &Layers, data: &[u8]) {
    let mut offset = 0;
    for layer in layers.as_slice() {
        assert_eq!(layer.offset, offset, "layers follow one another without gaps");
        assert!(layer.end <= data.len() && layer.offset + layer.length <= layer.end);
        offset += layer.length;
    }
}

/// Every accessor of every view over the same octets.
fn views(data: &[u8]) {
    if let Ok(packet) = Ipv4Packet::new_checked(data) {
        let _ = (packet.options(), packet.payload(), packet.packet());
        if let Ok(repr) = Ipv4Repr::parse(&packet) {
            let mut bytes = vec![0xff; repr.header_length()];
            repr.emit(&mut bytes).expect("a parsed header can be written");
            let again = Ipv4Packet::new_quoted(&bytes).expect("a written header can be read");
            assert_eq!(Ipv4Repr::parse(&again), Ok(repr));
        }
    }
    if let Ok(packet) = Ipv6Packet::new_checked(data) {
        let repr = Ipv6Repr::parse(&packet);
        let mut bytes = vec![0xff; repr.header_length()];
        repr.emit(&mut bytes).expect("a parsed header can be written");
        assert_eq!(bytes, data[..40]);
    }
    if let Ok(datagram) = UdpDatagram::new_checked(data) {
        let _ = (UdpRepr::parse(&datagram, &PSEUDO_HEADER), datagram.payload());
    }
    if let Ok(segment) = TcpSegment::new_checked(data) {
        let _ = (TcpRepr::parse(&segment, &PSEUDO_HEADER), segment.payload(), segment.options());
    }
}

/// What can be parsed is written back as it was, and every check ends.
pub fn srh_roundtrip(data: &[u8]) {
    let Ok(srh) = Srh::new_checked(data) else { return };
    let context = SrhContext { srh_offset: 40, payload_end: 40 + data.len() };
    let checked = srh.check_meaning(context);
    if let Err(error) = checked
        && let Some(icmp) = error.icmpv6_error()
    {
        assert!(icmp.pointer >= 40, "the pointer lies in the SRH");
    }
    let _ = srh.check_tlv_limits(context, TlvLimits::default());
    let _ = (srh.active_segment(), srh.next_segment(), srh.first_entry_visited(), srh.final_segment());
    for variant in [HmacVariant::Rfc8754, HmacVariant::Linux] {
        let _ = srh.verify_hmac(variant, context, ADDRESS, ADDRESS, |_| Some(b"key"));
    }
    let forwards: Vec<_> = srh.segments_in_traversal_order().collect();
    let mut backwards: Vec<_> = srh.segment_list().collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    let Ok(repr) = SrhRepr::parse(&srh) else {
        assert!(checked.is_err());
        return;
    };
    let mut bytes = vec![0xff; repr.header_length()];
    repr.emit(&mut bytes).expect("a parsed SRH can be written");
    assert_eq!(bytes.len(), srh.header_length());
    let again = Srh::new_checked(&bytes).expect("a written SRH can be read");
    assert_eq!(SrhRepr::parse(&again), Ok(repr));
    assert_eq!(bytes.get(..srh.tlv_offset()), data.get(..srh.tlv_offset()));
}

/// Messages with a right checksum survive parsing and writing.
pub fn icmp(data: &[u8]) {
    let mut data = data.to_vec();
    if let Ok(message) = Icmpv6Message::new_checked(&data) {
        let _ = (message.is_error(), message.payload());
        let _ = Icmpv6Repr::parse(&message, &PSEUDO_HEADER);
    }
    if data.len() < 8 {
        assert!(Icmpv4Message::new_checked(&data).is_err() && Icmpv6Message::new_checked(&data).is_err());
        return;
    }
    let old = [data[0], data[1], 0, 0];
    data[2..4].fill(0);
    let sum = PSEUDO_HEADER.checksum(&data);
    data[2..4].copy_from_slice(&sum.to_be_bytes());
    let message = Icmpv6Message::new_checked(&data).expect("eight octets are enough");
    let repr = Icmpv6Repr::parse(&message, &PSEUDO_HEADER).expect("the checksum is right");
    let mut bytes = vec![0xff; repr.length()];
    repr.emit(&mut bytes, &PSEUDO_HEADER).expect("a parsed message can be written");
    assert_eq!(bytes, data);

    data[2..4].fill(0);
    let sum = crate::checksum::checksum(&data);
    data[2..4].copy_from_slice(&sum.to_be_bytes());
    let message = Icmpv4Message::new_checked(&data).expect("eight octets are enough");
    let repr = Icmpv4Repr::parse(&message).expect("the checksum is right");
    let mut bytes = vec![0xff; repr.length()];
    repr.emit(&mut bytes).expect("a parsed message can be written");
    assert_eq!(bytes, data);

    let new = [old[0] ^ 0x5a, old[1], 0, 0];
    data[0] = new[0];
    data[2..4].fill(0);
    if data.iter().all(|octet| *octet == 0) {
        // No checksum of octets that are all zero can be reached by an update, see `update_u16`.
        return;
    }
    let updated = update_bytes(sum, &old, &new);
    data[2..4].copy_from_slice(&updated.to_be_bytes());
    assert_eq!(crate::checksum::checksum(&data), 0, "the incremental update is right");
}

/// A stack that is accepted can be written back octet by octet.
pub fn mpls(data: &[u8]) {
    let Ok(stack) = LabelStack::new_checked(data) else { return };
    let _ = stack.check_meaning();
    let mut bytes = Vec::new();
    for entry in stack.entries() {
        bytes.extend_from_slice(&entry.to_bytes().expect("a parsed entry can be written"));
    }
    assert_eq!(bytes.len() + stack.payload().len(), data.len());
    assert!(data.starts_with(&bytes));
}

/// Headers of services survive parsing and writing, and blocks lie behind one another without gaps.
pub fn aggregates(data: &[u8]) {
    if let Ok(packet) = IpComp::new_checked(data) {
        let repr = IpCompRepr::parse(&packet);
        let mut bytes = vec![0xff; repr.header_length()];
        repr.emit(&mut bytes).expect("a parsed header can be written");
        assert_eq!(IpComp::new_checked(&bytes).map(|again| IpCompRepr::parse(&again)), Ok(repr));
        assert_eq!(packet.payload().len() + repr.header_length(), data.len());
    }
    // As if it were of sub-type 0, so that most inputs reach the blocks.
    let mut data = data.to_vec();
    if let Some(sub_type) = data.first_mut() {
        *sub_type = 0;
    }
    let Ok(payload) = Aggfrag::new_checked(&data) else { return };
    let mut offset = 0;
    for block in payload.blocks() {
        let octets = match block {
            Block::Ipv4(octets) | Block::Ipv6(octets) => octets,
            Block::Pad(octets) | Block::Continuation(octets) | Block::Cut(octets) | Block::Malformed(octets) => octets,
        };
        assert!(!octets.is_empty());
        assert_eq!(payload.payload().get(offset..offset + octets.len()), Some(octets));
        offset += octets.len();
    }
    assert_eq!(offset, payload.payload().len());
}

/// Octets as a source of decisions.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.next(), self.next()])
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.next() % 32).map(|_| self.next()).collect()
    }

    fn ipv6(&mut self) -> Ipv6Addr {
        Ipv6Addr::new(0xfc00, self.word(), 0, 0, 0, 0, 0, self.word())
    }

    fn srh(&mut self) -> SrhRepr {
        let path: Vec<_> = (0..=self.next() % 5).map(|_| self.ipv6()).collect();
        let mut srh =
            if path.len() > 1 && self.next().is_multiple_of(2) { SrhRepr::reduced(&path) } else { SrhRepr::new(&path) };
        srh.flags = self.next();
        srh.tag = self.word();
        for _ in 0..self.next() % 3 {
            let tlv = match self.next() % 3 {
                0 => TlvRepr::Pad1,
                1 => TlvRepr::PadN(self.next() % 6),
                _ => TlvRepr::Unknown { tlv_type: 6 + self.next() % 200, value: self.bytes() },
            };
            srh = srh.with_tlv(tlv);
        }
        srh
    }
}

/// What the builder makes can be parsed, with the checksums right and the layers as asked for.
pub fn builder(data: &[u8]) {
    let mut choices = Choices(data);
    let mut builder = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut expected = vec![LayerKind::Ethernet];
    for _ in 0..choices.next() % 3 {
        builder = builder.vlan(choices.word() & 0xfff);
        expected.push(LayerKind::Vlan);
    }
    if choices.next().is_multiple_of(4) {
        let entry = MplsEntry { label: 16 + u32::from(choices.word()), time_to_live: 64, ..MplsEntry::default() };
        builder = builder.mpls(&[entry, entry]);
        expected.push(LayerKind::Mpls);
    }
    for _ in 0..choices.next() % 3 {
        builder = steering_header(builder, &mut choices, &mut expected);
    }
    builder = upper_layers(builder, &mut choices, &mut expected);
    let payload = choices.bytes();
    if !payload.is_empty() {
        builder = builder.payload(&payload);
        expected.push(LayerKind::Payload);
    }
    let packet = builder.trailer(&[0; 3]).try_build().expect("all values fit");
    let layers = parse(&packet).expect("a built packet can be parsed");
    let found: Vec<_> = layers.as_slice().iter().map(|layer| layer.kind).collect();
    assert_eq!(found, expected);
    check_nesting(&layers, &packet);
    check_checksums(&layers, &packet);
    assert!(!summary(&packet).to_string().is_empty());
}

fn steering_header(builder: PacketBuilder, choices: &mut Choices<'_>, expected: &mut Vec<LayerKind>) -> PacketBuilder {
    let mut builder = builder.ipv6(Ipv6Repr::new(choices.ipv6(), choices.ipv6()));
    expected.push(LayerKind::Ipv6);
    let selection = choices.next();
    if selection & 1 != 0 {
        builder = builder.hop_by_hop(OptionsRepr { next_header: 0, options: vec![] });
        expected.push(LayerKind::HopByHopOptions);
    }
    if selection & 2 != 0 {
        let repr = RoutingRepr { routing_type: 253, data: choices.bytes(), ..RoutingRepr::default() };
        builder = builder.routing(repr);
        expected.push(LayerKind::Routing);
    }
    if selection & 4 != 0 {
        builder = builder.srh(choices.srh());
        expected.push(LayerKind::Srh);
    }
    if selection & 8 != 0 {
        builder = builder.fragment(FragmentRepr { identification: 7, ..FragmentRepr::default() });
        expected.push(LayerKind::Fragment);
    }
    if selection & 16 != 0 {
        builder = builder.destination_options(OptionsRepr { next_header: 0, options: vec![0; 5] });
        expected.push(LayerKind::DestinationOptions);
    }
    builder
}

fn upper_layers(builder: PacketBuilder, choices: &mut Choices<'_>, expected: &mut Vec<LayerKind>) -> PacketBuilder {
    let (identifier, sequence_number, data) = (choices.word(), choices.word(), vec![]);
    let is_ipv4 = choices.next().is_multiple_of(2);
    let builder = if is_ipv4 {
        expected.push(LayerKind::Ipv4);
        let options = vec![1; usize::from(choices.next() % 11) * 4];
        builder.inner_ipv4(Ipv4Repr { options, ..Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()) })
    } else {
        expected.push(LayerKind::Ipv6);
        builder.inner_ipv6(Ipv6Repr::new(choices.ipv6(), choices.ipv6()))
    };
    match (choices.next() % 4, is_ipv4) {
        (0, _) => {
            expected.push(LayerKind::Udp);
            builder.udp(UdpRepr::new(choices.word(), choices.word()))
        }
        (1, _) => {
            expected.push(LayerKind::Tcp);
            builder.tcp(TcpRepr::new(choices.word(), choices.word(), choices.next()))
        }
        (2, true) => {
            expected.push(LayerKind::Icmpv4);
            builder.icmpv4(Icmpv4Repr::EchoRequest { identifier, sequence_number, data })
        }
        (2, false) => {
            expected.push(LayerKind::Icmpv6);
            builder.icmpv6(Icmpv6Repr::EchoRequest { identifier, sequence_number, data })
        }
        _ => builder,
    }
}

fn check_checksums(layers: &Layers, packet: &[u8]) {
    for layer in layers.as_slice().iter().filter(|layer| layer.kind == LayerKind::Ipv4) {
        let view = Ipv4Packet::new_checked(layer.bytes(packet)).expect("the walk has checked it");
        assert!(view.verify_checksum());
    }
    let Some(tuple) = layers.five_tuple() else { return };
    let pseudo = PseudoHeader::new(tuple.source, tuple.destination, tuple.protocol).expect("one family");
    for layer in layers.as_slice() {
        let bytes = layer.bytes(packet);
        match layer.kind {
            LayerKind::Udp => assert!(UdpDatagram::new_checked(bytes).is_ok_and(|udp| udp.verify_checksum(&pseudo))),
            LayerKind::Tcp => assert!(TcpSegment::new_checked(bytes).is_ok_and(|tcp| tcp.verify_checksum(&pseudo))),
            LayerKind::Icmpv4 => assert!(Icmpv4Message::new_checked(bytes).is_ok_and(|icmp| icmp.verify_checksum())),
            LayerKind::Icmpv6 => {
                assert!(Icmpv6Message::new_checked(bytes).is_ok_and(|icmp| icmp.verify_checksum(&pseudo)));
            }
            _ => {}
        }
    }
}

/// A small generator of pseudo-random numbers (xorshift64*), so that a failing input can be made again from its seed.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        // The remainder of a usize is below it, so it fits.
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(200)).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// One of `seeds` with some octets changed and perhaps its end cut off.
    fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let choice = self.below(seeds.len());
        let mut bytes = seeds.get(choice).cloned().unwrap_or_default();
        for _ in 0..self.below(4) {
            let (place, value) = (self.below(bytes.len()), self.next() >> 32);
            if let Some(byte) = bytes.get_mut(place) {
                *byte = if value & 0x100 == 0 { value as u8 } else { *byte ^ (1 << (value & 7)) };
            }
        }
        if self.below(4) == 0 {
            let length = self.below(bytes.len() + 1);
            bytes.truncate(length);
        }
        bytes
    }
}

/// Well-formed packets, and each of their layers, to start mutations from.
fn seeds() -> Vec<Vec<u8>> {
    let path = [ADDRESS, Ipv6Addr::LOCALHOST, ADDRESS];
    let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let outer = || ethernet().ipv6(Ipv6Repr::new(ADDRESS, ADDRESS));
    let inner = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
    let hmac = SrhRepr::new(&path).with_hmac(HmacVariant::Rfc8754, ADDRESS, 7, b"key");
    let padded = SrhRepr::reduced(&path).with_tlv(TlvRepr::Unknown { tlv_type: 124, value: vec![1; 5] });
    let entry = MplsEntry { label: 16_000, time_to_live: 64, ..MplsEntry::default() };
    let echo = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 2, data: vec![3; 9] };
    let packets = [
        outer().srh(hmac).inner_ipv4(inner.clone()).tcp(TcpRepr::new(40_000, 80, 2)),
        outer().hop_by_hop(OptionsRepr::default()).srh(padded).inner_ipv6(Ipv6Repr::new(ADDRESS, ADDRESS)).icmpv6(echo),
        outer()
            .srh(SrhRepr::new(&path))
            .inner_ethernet([2; 6], [4; 6])
            .vlan(7)
            .ipv4(inner.clone())
            .udp(UdpRepr::new(1, 2)),
        ethernet().vlan(5).vlan(6).mpls(&[entry; 3]).ipv4(inner).udp(UdpRepr::new(5, 6)),
        outer().fragment(FragmentRepr { more_fragments: true, ..FragmentRepr::default() }).udp(UdpRepr::new(1, 2)),
        outer().srh(SrhRepr::new(&path)).ipcomp(IpCompRepr::default()),
        outer().aggfrag(AggfragRepr::default()).inner_ipv4(Ipv4Repr::default()).udp(UdpRepr::new(7, 8)),
    ];
    let mut seeds = Vec::new();
    for packet in packets.map(|packet| packet.payload(&[0xa5; 20]).build()) {
        let layers = parse(&packet).expect("seeds are well-formed");
        seeds.extend(layers.as_slice().iter().map(|layer| layer.bytes(&packet).to_vec()));
    }
    seeds
}

/// Runs `target` over `count` inputs that follow from `seed` (not 0): some random, most of them packets with small faults.
pub fn run(target: fn(&[u8]), seed: u64, count: usize) {
    let mut generator = Generator(seed.max(1));
    let seeds = seeds();
    for index in 0..count {
        let input = if index % 4 == 0 { generator.bytes() } else { generator.mutated(&seeds) };
        target(&input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_fails_on_pseudo_random_inputs() {
        for (name, target) in TARGETS {
            std::println!("{name}");
            run(target, 0x5e60e, 20_000);
        }
    }
}
