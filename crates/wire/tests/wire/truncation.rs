//! Packets cut at every length: an error that says so, and never a wrong success.

use crate::{ethernet, ip6, steered};
use segue_wire::{
    Error, FragmentRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, LayerKind, MplsEntry, OptionsRepr, OuterStatus,
    PacketBuilder, SrhRepr, TlvRepr, UdpRepr, classify_outer, parse_as_far_as_possible, parse_packet,
};

fn packets() -> Vec<PacketBuilder> {
    let outer = || ethernet().ipv6(Ipv6Repr::new(ip6("fd00::1"), ip6("fc00::1")));
    let srh = SrhRepr::new(&[ip6("fc00::1"), ip6("fc00::2")]);
    let tlv = TlvRepr::Unknown { tlv_type: 124, value: vec![1; 5] };
    let entry = MplsEntry { label: 16_000, time_to_live: 9, ..MplsEntry::default() };
    let inner = Ipv4Repr { options: vec![1; 8], ..Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()) };
    let echo = |data| Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data };
    let echo4 = Icmpv4Repr::EchoReply { identifier: 1, sequence_number: 1, data: vec![7; 3] };
    vec![
        steered(),
        outer()
            .hop_by_hop(OptionsRepr::default())
            .srh(srh.clone().with_tlv(tlv))
            .inner_ipv6(Ipv6Repr::default())
            .icmpv6(echo(vec![1])),
        outer().srh(srh).inner_ethernet([1; 6], [3; 6]).vlan(1).vlan(2).ipv4(inner.clone()).udp(UdpRepr::new(1, 2)),
        outer().fragment(FragmentRepr::default()).destination_options(OptionsRepr::default()).icmpv6(echo(vec![])),
        ethernet().vlan(1).vlan(2).mpls(&[entry, entry]).ipv4(inner).icmpv4(echo4),
    ]
}

#[test]
fn every_shorter_frame_is_refused_by_name() {
    for builder in packets() {
        let packet = builder.build();
        let whole = parse_packet(&packet).unwrap();
        for length in 0..packet.len() {
            let cut = &packet[..length];
            let (layers, error) = parse_as_far_as_possible(cut);
            // Cut right behind the label stack there is no nibble to tell what it encloses.
            let behind_labels = whole.first(LayerKind::Mpls).is_some_and(|mpls| mpls.offset + mpls.length == length);
            if behind_labels {
                assert_eq!(error, None);
                continue;
            }
            let error = error.unwrap_or_else(|| panic!("{length} of {} octets accepted", packet.len()));
            assert!(matches!(error, Error::Truncated { .. } | Error::LengthTooLarge { .. }), "{length}: {error:?}");
            assert!(whole.as_slice().len() > layers.as_slice().len());
            assert_eq!(parse_packet(cut), Err(error));
        }
    }
}

#[test]
fn classify_outer_refuses_every_shorter_frame() {
    for builder in packets() {
        let packet = builder.build();
        let whole = classify_outer(&packet);
        for length in 0..packet.len() {
            let status = classify_outer(&packet[..length]).status;
            match whole.status {
                OuterStatus::NotIpv6 => assert!(matches!(status, OuterStatus::NotIpv6 | OuterStatus::Truncated)),
                _ => assert!(matches!(status, OuterStatus::Truncated | OuterStatus::BadLength), "{length}: {status:?}"),
            }
        }
    }
}

#[test]
fn padding_behind_the_packet_is_no_payload() {
    for builder in packets() {
        let (bare, padded) = (builder.build(), builder.trailer(&[0xee; 9]).build());
        let (bare, padded) = (parse_packet(&bare).unwrap(), parse_packet(&padded).unwrap());
        let shape = |layers: &segue_wire::Layers| {
            layers.as_slice().iter().map(|layer| (layer.kind, layer.offset, layer.length)).collect::<Vec<_>>()
        };
        assert_eq!(shape(&bare), shape(&padded));
    }
}
