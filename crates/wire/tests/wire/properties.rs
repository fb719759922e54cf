//! Properties over generated values: what is written can be read, and no octets make a parser panic.

use proptest::collection::vec;
use proptest::prelude::*;
use segue_wire::aggfrag::Block;
use segue_wire::checksum::{Checksum, checksum, update_bytes};
use segue_wire::{
    Aggfrag, AggfragRepr, EthernetFrame, EthernetRepr, FragmentRepr, Icmpv4Message, Icmpv4Repr, Icmpv6Message,
    Icmpv6Repr, IpComp, IpCompRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, LabelStack, LayerKind, MacAddress,
    MplsEntry, OptionsRepr, PacketBuilder, PseudoHeader, RoutingRepr, Srh, SrhRepr, TcpRepr, TcpSegment, TlvRepr,
    UdpDatagram, UdpRepr, VlanRepr, VlanTag,
};
use std::net::{Ipv4Addr, Ipv6Addr};

fn bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..limit)
}

fn fours() -> impl Strategy<Value = Vec<u8>> {
    (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), words * 4))
}

fn pseudo_header() -> impl Strategy<Value = PseudoHeader> {
    let v4 = any::<(Ipv4Addr, Ipv4Addr, u8)>().prop_map(|(source, destination, protocol)| PseudoHeader::V4 {
        source,
        destination,
        protocol,
    });
    let v6 = any::<(Ipv6Addr, Ipv6Addr, u8)>().prop_map(|(source, destination, next_header)| PseudoHeader::V6 {
        source,
        destination,
        next_header,
    });
    prop_oneof![v4, v6]
}

fn ipv4() -> impl Strategy<Value = Ipv4Repr> {
    let fields = (any::<(u8, u16, bool, bool)>(), 0..8192_u16, any::<(u8, u8, Ipv4Addr, Ipv4Addr)>(), fours());
    fields.prop_map(|((tos, identification, df, mf), eights, (ttl, protocol, source, destination), options)| Ipv4Repr {
        type_of_service: tos,
        payload_length: 0,
        identification,
        dont_fragment: df,
        more_fragments: mf,
        fragment_offset: eights * 8,
        time_to_live: ttl,
        protocol,
        source,
        destination,
        options,
    })
}

fn tlv() -> impl Strategy<Value = TlvRepr> {
    let hmac = (any::<(u16, u32)>(), 1..=4_usize).prop_flat_map(|((d_and_reserved, key_id), eights)| {
        vec(any::<u8>(), eights * 8).prop_map(move |hmac| TlvRepr::Hmac { d_and_reserved, key_id, hmac })
    });
    let unknown = (6..=255_u8, bytes(40)).prop_map(|(tlv_type, value)| TlvRepr::Unknown { tlv_type, value });
    prop_oneof![Just(TlvRepr::Pad1), any::<u8>().prop_map(TlvRepr::PadN), hmac, unknown]
}

/// An SRH whose TLVs fill whole units, so that writing adds none.
fn srh() -> impl Strategy<Value = SrhRepr> {
    let fields =
        (any::<(u8, u8, u16)>(), vec(any::<Ipv6Addr>(), 1..20), vec(tlv(), 0..4), any::<prop::sample::Index>());
    fields.prop_map(|((next_header, flags, tag), segments, mut tlvs, index)| {
        let length: usize = tlvs.iter().map(TlvRepr::length).sum();
        tlvs.extend(TlvRepr::padding(length.next_multiple_of(8) - length));
        // 0 to the number of segments: Last Entry + 1 is a reduced SRH.
        let segments_left = index.index(segments.len() + 1) as u8;
        SrhRepr { next_header, segments_left, flags, tag, segments, tlvs }
    })
}

fn icmpv6() -> impl Strategy<Value = Icmpv6Repr> {
    let ids = || (any::<(u16, u16)>(), bytes(40));
    prop_oneof![
        (any::<u8>(), bytes(40)).prop_map(|(code, packet)| Icmpv6Repr::DestinationUnreachable { code, packet }),
        (any::<u32>(), bytes(40)).prop_map(|(mtu, packet)| Icmpv6Repr::PacketTooBig { mtu, packet }),
        (any::<u8>(), bytes(40)).prop_map(|(code, packet)| Icmpv6Repr::TimeExceeded { code, packet }),
        (any::<(u8, u32)>(), bytes(40)).prop_map(|((code, pointer), packet)| Icmpv6Repr::ParameterProblem {
            code,
            pointer,
            packet
        }),
        ids().prop_map(|((identifier, sequence_number), data)| Icmpv6Repr::EchoRequest {
            identifier,
            sequence_number,
            data
        }),
        ids().prop_map(|((identifier, sequence_number), data)| Icmpv6Repr::EchoReply {
            identifier,
            sequence_number,
            data
        }),
        (133..=255_u8, any::<u8>(), vec(any::<u8>(), 4..40)).prop_map(|(message_type, code, body)| Icmpv6Repr::Other {
            message_type,
            code,
            body
        }),
    ]
}

fn icmpv4() -> impl Strategy<Value = Icmpv4Repr> {
    let ids = || (any::<(u16, u16)>(), bytes(40));
    prop_oneof![
        ids().prop_map(|((identifier, sequence_number), data)| Icmpv4Repr::EchoRequest {
            identifier,
            sequence_number,
            data
        }),
        ids().prop_map(|((identifier, sequence_number), data)| Icmpv4Repr::EchoReply {
            identifier,
            sequence_number,
            data
        }),
        (any::<u16>(), bytes(40)).prop_map(|(next_hop_mtu, packet)| Icmpv4Repr::DestinationUnreachable {
            code: 4,
            next_hop_mtu,
            packet
        }),
        (any::<u8>(), bytes(40)).prop_map(|(code, packet)| Icmpv4Repr::TimeExceeded { code, packet }),
        (12..=255_u8, any::<u8>(), vec(any::<u8>(), 4..40)).prop_map(|(message_type, code, body)| Icmpv4Repr::Other {
            message_type,
            code,
            body
        }),
    ]
}

/// `length` octets of which `emit` must write every one, whatever they held before.
fn emitted(length: usize, emit: impl Fn(&mut [u8])) -> Vec<u8> {
    let (mut ones, mut zeros) = (vec![0xff; length], vec![0; length]);
    emit(&mut ones);
    emit(&mut zeros);
    assert_eq!(ones, zeros, "an octet was left unwritten");
    ones
}

proptest! {
    #[test]
    fn ethernet_and_tag(a in any::<[u8; 6]>(), b in any::<[u8; 6]>(), ethertype: u16, priority in 0..8_u8, drop_eligible: bool, vlan_id in 0..4096_u16) {
        let repr = EthernetRepr { destination: MacAddress(a), source: MacAddress(b), ethertype };
        let octets = emitted(14, |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(EthernetRepr::parse(&EthernetFrame::new_checked(octets).unwrap()), repr);
        let repr = VlanRepr { priority, drop_eligible, vlan_id, ethertype };
        let octets = emitted(4, |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(VlanRepr::parse(&VlanTag::new_checked(octets).unwrap()), repr);
    }

    #[test]
    fn ipv4_header(repr in ipv4()) {
        let octets = emitted(repr.header_length(), |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(Ipv4Repr::parse(&Ipv4Packet::new_checked(octets).unwrap()), Ok(repr));
    }

    #[test]
    fn ipv6_header(traffic_class: u8, flow_label in 0..0x10_0000_u32, next_header: u8, hop_limit: u8, source: Ipv6Addr, destination: Ipv6Addr) {
        let repr = Ipv6Repr { traffic_class, flow_label, payload_length: 0, next_header, hop_limit, source, destination };
        let octets = emitted(40, |buffer| repr.emit(buffer).unwrap());
        let mut packet = Ipv6Packet::new_checked(octets).unwrap();
        prop_assert_eq!(Ipv6Repr::parse(&packet), repr);
        packet.set_traffic_class(!traffic_class);
        packet.set_flow_label(!flow_label);
        let changed = Ipv6Repr { traffic_class: !traffic_class, flow_label: !flow_label & 0xf_ffff, ..repr };
        prop_assert_eq!(Ipv6Repr::parse(&packet), changed);
    }

    #[test]
    fn segment_routing_header(repr in srh()) {
        let octets = emitted(repr.header_length(), |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(octets.len(), repr.header_length());
        prop_assert_eq!(SrhRepr::parse(&Srh::new_checked(octets).unwrap()), Ok(repr));
    }

    #[test]
    fn extension_headers(next_header: u8, routing_type: u8, segments_left: u8, units in 1..20_usize, octet: u8, eights in 0..8192_u16, more_fragments: bool, identification: u32) {
        let repr = OptionsRepr { next_header, options: vec![octet; units * 8 - 2] };
        let octets = emitted(repr.header_length(), |buffer| repr.emit(LayerKind::HopByHopOptions, buffer).unwrap());
        prop_assert_eq!(OptionsRepr::parse(LayerKind::HopByHopOptions, &octets), Ok(repr));
        let repr = RoutingRepr { next_header, routing_type, segments_left, data: vec![octet; units * 8 - 4] };
        let octets = emitted(repr.header_length(), |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(RoutingRepr::parse(&octets), Ok(repr));
        let repr = FragmentRepr { next_header, fragment_offset: eights * 8, more_fragments, identification };
        let octets = emitted(8, |buffer| repr.emit(buffer).unwrap());
        prop_assert_eq!(FragmentRepr::parse(&octets), Ok(repr));
    }

    #[test]
    fn options_are_padded_with_padding(next_header: u8, length in 0..40_usize) {
        // One option of `length` octets of data.
        let options = [vec![0x1e, length as u8], vec![0xaa; length]].concat();
        let repr = OptionsRepr { next_header, options };
        let octets = emitted(repr.header_length(), |buffer| repr.emit(LayerKind::DestinationOptions, buffer).unwrap());
        let parsed = OptionsRepr::parse(LayerKind::DestinationOptions, &octets).unwrap();
        let options: Vec<_> = parsed.iter().map(Result::unwrap).collect();
        prop_assert_eq!(options[0].data.len(), length);
        prop_assert!(options.len() <= 2 && options[1..].iter().all(|option| option.is_padding()));
    }

    #[test]
    fn transports(ports: (u16, u16), numbers: (u32, u32), rest: (u8, u16, u16), reserved in 0..16_u8, options in fours(), payload in bytes(40), pseudo in pseudo_header()) {
        let repr = UdpRepr::new(ports.0, ports.1);
        let octets = emitted(8 + payload.len(), |buffer| repr.emit(buffer, &payload, &pseudo).unwrap());
        let datagram = UdpDatagram::new_checked(octets).unwrap();
        prop_assert_eq!(datagram.payload(), &payload[..]);
        prop_assert_ne!(datagram.checksum(), 0);
        prop_assert_eq!(UdpRepr::parse(&datagram, &pseudo), Ok(repr));
        let repr = TcpRepr {
            source_port: ports.0,
            destination_port: ports.1,
            sequence_number: numbers.0,
            acknowledgment_number: numbers.1,
            reserved,
            control_bits: rest.0,
            window: rest.1,
            urgent_pointer: rest.2,
            options,
        };
        let length = repr.header_length() + payload.len();
        let octets = emitted(length, |buffer| repr.emit(buffer, &payload, &pseudo).unwrap());
        let segment = TcpSegment::new_checked(octets).unwrap();
        prop_assert_eq!(segment.payload(), &payload[..]);
        prop_assert_eq!(TcpRepr::parse(&segment, &pseudo), Ok(repr));
    }

    #[test]
    fn icmp_messages(v4 in icmpv4(), v6 in icmpv6(), pseudo in pseudo_header()) {
        let octets = emitted(v4.length(), |buffer| v4.emit(buffer).unwrap());
        prop_assert_eq!(Icmpv4Repr::parse(&Icmpv4Message::new_checked(octets).unwrap()), Ok(v4));
        let octets = emitted(v6.length(), |buffer| v6.emit(buffer, &pseudo).unwrap());
        prop_assert_eq!(Icmpv6Repr::parse(&Icmpv6Message::new_checked(octets).unwrap(), &pseudo), Ok(v6));
    }

    #[test]
    fn label_stacks(labels in vec((0..0x10_0000_u32, 0..8_u8, any::<u8>()), 1..=16)) {
        let last = labels.len() - 1;
        let entries: Vec<_> = labels.iter().enumerate().map(|(index, &(label, traffic_class, time_to_live))| MplsEntry {
            label, traffic_class, bottom_of_stack: index == last, time_to_live,
        }).collect();
        let octets: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes().unwrap()).collect();
        prop_assert_eq!(LabelStack::new_checked(octets).unwrap().entries().collect::<Vec<_>>(), entries);
    }

    #[test]
    fn compression_headers(next_header: u8, cpi: u16, payload in bytes(40)) {
        let repr = IpCompRepr { next_header, cpi };
        let mut octets = emitted(repr.header_length(), |buffer| repr.emit(buffer).unwrap());
        octets.extend_from_slice(&payload);
        let view = IpComp::new_checked(&octets).unwrap();
        prop_assert_eq!((IpCompRepr::parse(&view), view.flags(), view.payload()), (repr, 0, &payload[..]));
    }

    #[test]
    fn aggregates(packets in vec((ipv4(), bytes(40), any::<bool>()), 0..6), pad in 0..20_usize, cut in 0..60_usize) {
        let whole: Vec<Vec<u8>> = packets.iter().map(|(v4, payload, is_v6)| {
            let builder = if *is_v6 { PacketBuilder::new().ipv6(Ipv6Repr::default()) } else { PacketBuilder::new().ipv4(v4.clone()) };
            builder.payload(payload).build()
        }).collect();
        let mut octets = PacketBuilder::new().aggfrag(AggfragRepr::default()).payload(&whole.concat()).build();
        let length = octets.len();
        octets.resize(length + pad, 0);
        let view = Aggfrag::new_checked(&octets).unwrap();
        let blocks: Vec<_> = view.blocks().filter_map(|block| match block {
            Block::Ipv4(packet) | Block::Ipv6(packet) => Some(packet.to_vec()),
            _ => None,
        }).collect();
        prop_assert_eq!(&blocks, &whole);
        prop_assert_eq!(view.blocks().filter(|block| matches!(block, Block::Pad(_))).count(), usize::from(pad > 0));
        // Without its end, and seen from the middle, the others are still found.
        octets.truncate((length - cut.min(length)).max(4));
        let view = Aggfrag::new_checked(&octets).unwrap();
        let found = view.blocks().filter(|block| matches!(block, Block::Ipv4(_) | Block::Ipv6(_))).count();
        let (mut end, mut expected) = (4, 0);
        for packet in &whole {
            end += packet.len();
            expected += usize::from(end <= octets.len());
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn checksum_of_pieces_is_that_of_the_whole(data in bytes(100), cuts in vec(any::<prop::sample::Index>(), 0..4)) {
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        places.extend([0, data.len()]);
        places.sort_unstable();
        let sum = places.windows(2).fold(Checksum::new(), |sum, pair| sum.add_bytes(&data[pair[0]..pair[1]]));
        prop_assert_eq!(sum.finish(), checksum(&data));
    }

    #[test]
    fn incremental_update_is_the_full_computation(mut data in bytes(60), new in bytes(20), place in any::<prop::sample::Index>()) {
        // Some covered octet must stay other than zero, so the first two are out of reach of the change.
        data.splice(0..0, [0x45, 0, 0, 0]);
        if data.len() % 2 == 1 {
            data.push(0);
        }
        let start = 2 + place.index(data.len() - 2) / 2 * 2;
        let end = (start + new.len()).min(data.len());
        let old_sum = checksum(&data);
        let old = data[start..end].to_vec();
        data[start..end].copy_from_slice(&new[..end - start]);
        let updated = update_bytes(old_sum, &old, &new[..end - start]);
        prop_assert_eq!(Checksum::new().add_bytes(&data).add_u16(updated).finish(), 0);
    }

    #[test]
    fn no_octets_make_a_parser_panic(data in bytes(300)) {
        for (_, target) in segue_wire::fuzz::TARGETS {
            target(&data);
        }
    }
}
