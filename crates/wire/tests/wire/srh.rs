//! Meaning of the SRH: every fault, its place, and the ICMPv6 error it asks for.

use crate::{ethernet, ip6};
use segue_wire::srh::{Tlv, TlvLimits};
use segue_wire::{
    HeaderChain, Icmpv6Error, Ipv6Packet, Ipv6Repr, OptionsRepr, Srh, SrhContext, SrhError, SrhRepr, TlvRepr, UdpRepr,
};

const CONTEXT: SrhContext = SrhContext { srh_offset: 40, payload_end: 2000 };

/// An SRH with these first octets and room for `entries` segments.
fn srh(hdr_ext_len: u8, segments_left: u8, last_entry: u8) -> Srh<Vec<u8>> {
    let mut bytes = vec![0; (usize::from(hdr_ext_len) + 1) * 8];
    bytes[..5].copy_from_slice(&[17, hdr_ext_len, 4, segments_left, last_entry]);
    Srh::new_checked(bytes).unwrap()
}

fn pointer(error: SrhError) -> Option<(u8, u8, u32)> {
    error.icmpv6_error().map(|icmp| (icmp.message_type, icmp.code, icmp.pointer))
}

#[test]
fn bounds_as_in_the_pseudocode() {
    // Hdr Ext Len, Segments Left, Last Entry, and the fault.
    let last_entry = |expected, found| Some(SrhError::LastEntryTooLarge { srh_offset: 40, expected, found });
    let segments_left = |expected, found| Some(SrhError::SegmentsLeftTooLarge { srh_offset: 40, expected, found });
    let cases = [
        (4, 0, 1, None),
        (4, 1, 1, None),
        (4, 2, 1, None),
        (4, 3, 1, segments_left(2, 3)),
        (4, 255, 1, segments_left(2, 255)),
        (4, 1, 2, last_entry(1, 2)),
        (0, 1, 0, last_entry(-1, 0)),
        (1, 1, 0, last_entry(-1, 0)),
        (2, 1, 0, None),
        (3, 1, 0, None),
        (5, 1, 2, last_entry(1, 2)),
        (255, 127, 126, None),
        (255, 0, 255, last_entry(126, 255)),
    ];
    for (hdr_ext_len, sl, le, fault) in cases {
        let result = srh(hdr_ext_len, sl, le).check_bounds(CONTEXT);
        assert_eq!(result.err(), fault, "HEL {hdr_ext_len} SL {sl} LE {le}");
        if let Some(fault) = fault {
            assert_eq!(pointer(fault), Some((4, 0, 43)));
        }
    }
}

#[test]
fn no_segment_is_read_outside_the_header() {
    let header = srh(1, 0, 255);
    assert_eq!(header.segment_list().count(), 0);
    assert_eq!((header.segment(0), header.active_segment(), header.final_segment()), (None, None, None));
    assert!(header.tlv_bytes().is_empty());
    assert!(header.tlvs().next().is_none());
    assert_eq!(srh(4, 0, 255).segment_list().count(), 2);
}

#[test]
fn header_longer_than_the_payload() {
    let context = SrhContext::behind_ipv6(39);
    let error = srh(4, 1, 1).check_meaning(context).unwrap_err();
    assert_eq!(error, SrhError::ExceedsPayload { srh_offset: 40, expected: 39, found: 40 });
    assert_eq!(error.icmpv6_error(), None);
    assert_eq!(srh(4, 1, 1).check_meaning(SrhContext::behind_ipv6(40)), Ok(()));
}

#[test]
fn tlv_outside_the_header() {
    // One segment and an area of 8 octets at offset 24.
    let mut bytes = srh(3, 1, 0).into_inner();
    let mut check = |area: [u8; 8]| {
        bytes[24..].copy_from_slice(&area);
        Srh::new_checked(&bytes[..]).unwrap().check_tlvs_inside(CONTEXT)
    };
    assert_eq!(check([124, 6, 0, 0, 0, 0, 0, 0]), Ok(()));
    assert_eq!(check([124, 5, 0, 0, 0, 0, 0, 0]), Ok(()), "a last Pad1 is one octet");
    assert_eq!(check([0; 8]), Ok(()));
    let overrun =
        |offset, expected, found| SrhError::TlvOverrun { srh_offset: 40, offset, tlv_type: 124, expected, found };
    let long = check([124, 7, 0, 0, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(long, overrun(24, 8, 9));
    assert_eq!(pointer(long), Some((4, 0, 41)));
    assert_eq!(check([0, 0, 0, 0, 0, 0, 0, 124]), Err(overrun(31, 1, 2)), "a type without its Length octet");
}

#[test]
fn tlvs_are_found_with_their_places() {
    let mut bytes = srh(4, 1, 0).into_inner();
    bytes[24..].copy_from_slice(&[0, 4, 1, 0, 130, 3, 7, 8, 9, 5, 2, 1, 1, 0, 4, 0]);
    let srh = Srh::new_checked(&bytes[..]).unwrap();
    let found: Vec<_> =
        srh.tlvs().map(Result::unwrap).map(|placed| (placed.offset, placed.length, placed.tlv)).collect();
    let expected = [
        (24, 1, Tlv::Pad1),
        (25, 3, Tlv::PadN(1)),
        (28, 5, Tlv::Unknown { tlv_type: 130, value: &[7, 8, 9] }),
        (33, 4, Tlv::Unknown { tlv_type: 5, value: &[1, 1] }),
        (37, 1, Tlv::Pad1),
        (38, 2, Tlv::PadN(0)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn local_limits_on_tlvs() {
    let path = [ip6("fc00::1")];
    let check = |tlvs: &[TlvRepr], limits| {
        let repr = SrhRepr { tlvs: tlvs.to_vec(), ..SrhRepr::new(&path) };
        let mut bytes = vec![0xff; repr.header_length()];
        repr.emit(&mut bytes).unwrap();
        Srh::new_checked(bytes).unwrap().check_tlv_limits(CONTEXT, limits)
    };
    let limits = TlvLimits::default();
    let tlv = || TlvRepr::Unknown { tlv_type: 124, value: vec![0; 6] };
    let srh_offset = 40;
    assert_eq!(check(&[TlvRepr::PadN(5), TlvRepr::Pad1], limits), Ok(()));
    let faults = [
        (check(&[TlvRepr::Pad1, TlvRepr::Pad1], limits), SrhError::TooManyPad1 { srh_offset, offset: 25, expected: 1 }),
        (check(&[TlvRepr::PadN(6)], limits), SrhError::PadNTooLong { srh_offset, offset: 24, expected: 5, found: 6 }),
        (
            check(&[tlv(), tlv()], TlvLimits { count: 1, ..limits }),
            SrhError::TooManyTlvs { srh_offset, offset: 32, expected: 1 },
        ),
        (
            check(&[tlv(), tlv()], TlvLimits { total_length: 8, ..limits }),
            SrhError::TlvsTooLong { srh_offset, expected: 8, found: 16 },
        ),
    ];
    for (result, expected) in faults {
        assert_eq!(result, Err(expected));
        assert_eq!(expected.icmpv6_error(), None);
    }
}

#[test]
fn last_segment_and_active_segment() {
    let path = [ip6("fc00::1"), ip6("fc00::2")];
    let mut bytes = [0; 40];
    SrhRepr::new(&path).emit(&mut bytes).unwrap();
    let mut srh = Srh::new_checked(&mut bytes[..]).unwrap();
    let error = srh.check_last_segment(CONTEXT).unwrap_err();
    assert_eq!(error, SrhError::SegmentsLeftNotZero { srh_offset: 40, found: 1 });
    assert_eq!(pointer(error), Some((4, 0, 43)));
    assert_eq!(srh.check_active_segment(CONTEXT, path[0]), Ok(()));
    let error = srh.check_active_segment(CONTEXT, path[1]).unwrap_err();
    assert_eq!(error, SrhError::NotActiveSegment { srh_offset: 40, expected: path[0], found: path[1] });
    assert_eq!(error.icmpv6_error(), None);
    srh.set_segments_left(2);
    assert_eq!(srh.check_active_segment(CONTEXT, path[1]), Ok(()), "reduced: the list does not say");
    srh.set_segments_left(0);
    assert_eq!(srh.check_last_segment(CONTEXT), Ok(()));
}

#[test]
fn pointers_behind_a_hop_by_hop_header() {
    let frame = ethernet()
        .ipv6(Ipv6Repr::new(ip6("fd00::1"), ip6("fc00::1")))
        .hop_by_hop(OptionsRepr::default())
        .srh(SrhRepr::new(&[ip6("fc00::1"), ip6("fc00::2")]).with_segments_left(9))
        .udp(UdpRepr::new(1, 2))
        .build();
    let packet = Ipv6Packet::new_checked(&frame[14..]).unwrap();
    let chain = HeaderChain::parse(&packet).unwrap();
    let header = *chain.srh().unwrap();
    assert_eq!((header.offset, header.length, header.announced_at), (48, 40, 40));
    assert_eq!((chain.upper_layer(), chain.upper_layer_offset()), (17, 88));
    let srh = Srh::new_checked(&packet.packet()[header.offset..]).unwrap();
    let context = SrhContext { srh_offset: header.offset, payload_end: packet.total_length() };
    let error = srh.check_meaning(context).unwrap_err();
    let expected = Icmpv6Error { message_type: 4, code: 0, pointer: 51 };
    assert_eq!(error.icmpv6_error(), Some(expected));
    let wrapped = segue_wire::Error::from(error);
    assert_eq!(wrapped.icmpv6_error(), Some(expected));
    assert_eq!(wrapped.shifted(14).icmpv6_error_from(14), Some(expected));
    assert_eq!(error.to_string(), "SRH at offset 48: Segments Left is 9, at most Last Entry + 1 = 2 expected");
}
