//! Octets that were worked out by hand from the standards.

use crate::{hex, ip6};
use segue_wire::checksum::{checksum, update_u16};
use segue_wire::fuzz;
use segue_wire::{Error, LabelStack, LayerKind, MplsEntry, Srh, SrhRepr, TlvRepr, protocol};

fn emitted(repr: &SrhRepr) -> Vec<u8> {
    let mut bytes = vec![0xff; repr.header_length()];
    repr.emit(&mut bytes).unwrap();
    bytes
}

#[test]
fn full_srh_of_three_segments() {
    let [s1, s2, s3] = [ip6("fc00::1"), ip6("fc00::2"), ip6("fc00::3")];
    let repr = SrhRepr { next_header: protocol::IPV6, ..SrhRepr::new(&[s1, s2, s3]) };
    let bytes = emitted(&repr);
    assert_eq!(bytes[..8], hex("29 06 04 02 02 00 00 00"));
    assert_eq!(bytes[8..], [s3.octets(), s2.octets(), s1.octets()].concat());
    assert_eq!(bytes.len(), 56);
}

#[test]
fn reduced_srh_of_three_segments() {
    let [s1, s2, s3] = [ip6("fc00::1"), ip6("fc00::2"), ip6("fc00::3")];
    let repr = SrhRepr { next_header: protocol::IPV6, ..SrhRepr::reduced(&[s1, s2, s3]) };
    let bytes = emitted(&repr);
    assert_eq!(bytes[..8], hex("29 04 04 02 01 00 00 00"));
    assert_eq!(bytes[8..], [s3.octets(), s2.octets()].concat());
    let srh = Srh::new_checked(&bytes).unwrap();
    assert!(srh.is_reduced_at_first_segment());
    assert_eq!(srh.active_segment(), None);
    assert_eq!(srh.next_segment(), Some(s2));
    assert_eq!(srh.segments_in_traversal_order().collect::<Vec<_>>(), [s2, s3]);
}

#[test]
fn full_srh_of_one_segment() {
    let repr = SrhRepr { next_header: protocol::IPV6, ..SrhRepr::new(&[ip6("fc00::1")]) };
    let bytes = emitted(&repr);
    assert_eq!(bytes[..8], hex("29 02 04 00 00 00 00 00"));
    assert_eq!(bytes.len(), 24);
}

#[test]
fn hdr_ext_len_counts_tlvs() {
    let path = [ip6("fc00::1"), ip6("fc00::2")];
    let hmac = TlvRepr::Hmac { d_and_reserved: 0, key_id: 1, hmac: vec![0; 32] };
    assert_eq!(emitted(&SrhRepr::new(&path).with_tlv(hmac))[1], 9);
    let opaque = TlvRepr::Unknown { tlv_type: 124, value: vec![0; 14] };
    assert_eq!(emitted(&SrhRepr::new(&path).with_tlv(opaque))[1], 6);
}

#[test]
fn tlv_area_is_padded_with_the_right_tlv() {
    // Octets of value and what must follow up to the next multiple of 8.
    for (value, padding) in [(6, ""), (5, "00"), (4, "04 00"), (3, "04 01 00"), (0, "04 04 00000000")] {
        let tlv = TlvRepr::Unknown { tlv_type: 124, value: vec![0xaa; value] };
        let bytes = emitted(&SrhRepr::new(&[ip6("fc00::1")]).with_tlv(tlv));
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[24 + 2 + value..], hex(padding), "{value} octets of value");
    }
}

#[test]
fn segments_in_every_position() {
    let [s1, s2, s3] = [ip6("fc00::1"), ip6("fc00::2"), ip6("fc00::3")];
    for (segments_left, active, next) in [(2, Some(s1), Some(s2)), (1, Some(s2), Some(s3)), (0, Some(s3), None)] {
        let bytes = emitted(&SrhRepr::new(&[s1, s2, s3]).with_segments_left(segments_left));
        let srh = Srh::new_checked(&bytes).unwrap();
        assert_eq!(srh.active_segment(), active);
        assert_eq!(srh.next_segment(), next);
        assert_eq!(srh.first_entry_visited(), Some(s1));
        assert_eq!(srh.final_segment(), Some(s3));
        assert_eq!(srh.segment_list().collect::<Vec<_>>(), [s3, s2, s1]);
        assert_eq!(srh.segments_in_traversal_order().collect::<Vec<_>>(), [s1, s2, s3]);
        assert!(!srh.is_reduced_at_first_segment());
    }
}

#[test]
fn fields_can_be_changed_in_place() {
    let path = [ip6("fc00::1"), ip6("fc00::2")];
    let mut srh = Srh::new_checked(emitted(&SrhRepr::new(&path))).unwrap();
    srh.set_segments_left(0);
    srh.set_tag(0xbeef);
    srh.set_flags(segue_wire::srh::O_FLAG);
    srh.set_next_header(protocol::UDP);
    assert!(srh.set_segment(1, ip6("fc00::9")));
    assert!(!srh.set_segment(2, ip6("fc00::a")));
    assert!(srh.o_flag());
    let expected = SrhRepr {
        next_header: protocol::UDP,
        segments_left: 0,
        flags: 0x20,
        tag: 0xbeef,
        segments: vec![ip6("fc00::2"), ip6("fc00::9")],
        tlvs: vec![],
    };
    assert_eq!(SrhRepr::parse(&srh), Ok(expected));
}

const ENTRIES: [(u32, u8, bool, u8, &str); 6] = [
    (16_000, 0, false, 64, "03e80040"),
    (16_001, 5, true, 63, "03e81b3f"),
    (0, 0, true, 64, "00000140"),
    (2, 0, true, 64, "00002140"),
    (15, 0, false, 1, "0000f001"),
    (1_048_575, 7, true, 255, "ffffffff"),
];

#[test]
fn label_stack_entries() {
    for (label, traffic_class, bottom_of_stack, time_to_live, text) in ENTRIES {
        let entry = MplsEntry { label, traffic_class, bottom_of_stack, time_to_live };
        assert_eq!(entry.to_bytes().unwrap().to_vec(), hex(text));
        assert_eq!(MplsEntry::from_bytes(hex(text).try_into().unwrap()), entry);
        let mut buffer = [0xff; 4];
        entry.emit(&mut buffer).unwrap();
        assert_eq!(buffer.to_vec(), hex(text));
    }
}

#[test]
fn label_stack_ends_at_the_s_bit() {
    let bytes = hex("03e80040 03e81b3f 45");
    let stack = LabelStack::new_checked(&bytes).unwrap();
    assert_eq!((stack.entry_count(), stack.length()), (2, 8));
    assert_eq!(stack.payload(), [0x45]);
    assert_eq!(stack.check_meaning(), Ok(()));
    let (layer, offset) = (LayerKind::Mpls, 4);
    let error = LabelStack::new_checked(&bytes[..7]).unwrap_err();
    assert_eq!(error, Error::Truncated { layer, offset, expected: 4, found: 3 });
}

#[test]
fn checksum_of_rfc_1071_and_update_of_rfc_1624() {
    // The example sum of RFC 1071 section 3 is ddf2.
    assert_eq!(checksum(&hex("0001 f203 f4f5 f6f7")), !0xddf2);
    // The example of RFC 1624 section 4: HC = dd2f, m = 5555, m' = 3285 gives 0000.
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn update_to_octets_that_are_all_zero_gives_the_other_zero() {
    // Found by the fuzz target `icmp`.
    assert_eq!(update_u16(checksum(&[0x5a, 0]), 0x5a00, 0), 0);
    assert_eq!(checksum(&[0, 0]), 0xffff);
    fuzz::icmp(&hex("5a00000000000000 00"));
}
