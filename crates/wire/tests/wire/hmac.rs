//! HMAC TLV: digests worked out by hand from RFC 8754, one of the kernel's, and every reason to refuse.

use crate::{hex, ip6};
use segue_wire::srh::{HmacTlv, Tlv};
use segue_wire::{HmacVariant, Srh, SrhContext, SrhError, SrhRepr, TlvRepr};
use std::net::Ipv6Addr;

const KEY: &[u8] = b"0123456789abcdef";
const CONTEXT: SrhContext = SrhContext { srh_offset: 40, payload_end: 2000 };

fn source() -> Ipv6Addr {
    ip6("2001:db8::1")
}

fn path() -> [Ipv6Addr; 3] {
    [ip6("2001:db8:f::1"), ip6("2001:db8:f::2"), ip6("2001:db8:f::3")]
}

fn emitted(repr: &SrhRepr) -> Srh<Vec<u8>> {
    let mut bytes = vec![0xff; repr.header_length()];
    repr.emit(&mut bytes).unwrap();
    Srh::new_checked(bytes).unwrap()
}

fn tlv_of(srh: &Srh<Vec<u8>>) -> HmacTlv<'_> {
    let tlvs = srh.tlvs().map(|placed| placed.unwrap().tlv);
    tlvs.filter_map(|tlv| if let Tlv::Hmac(tlv) = tlv { Some(tlv) } else { None }).next().unwrap()
}

fn verify(repr: &SrhRepr, variant: HmacVariant, destination: Ipv6Addr) -> Result<u32, SrhError> {
    emitted(repr).verify_hmac(variant, CONTEXT, source(), destination, |id| (id == 1).then_some(KEY))
}

#[test]
fn text_and_digest_of_rfc_8754() {
    let srh = emitted(&SrhRepr::new(&path()).with_hmac(HmacVariant::Rfc8754, source(), 1, KEY));
    let text = hex("20010db8000000000000000000000001 02 00 0000 00000001 20010db8000f00000000000000000003 \
         20010db8000f00000000000000000002 20010db8000f00000000000000000001");
    let tlv = tlv_of(&srh);
    assert_eq!(HmacVariant::Rfc8754.text(source(), &srh, &tlv), text);
    let digest = hex("85552ea8226dde301f94f211fa37729e09b08bac29353a51aa608080b2d6bb2f");
    assert_eq!(tlv.hmac(), digest);
    assert_eq!(HmacVariant::Rfc8754.compute(KEY, source(), &srh, &tlv).to_vec(), digest);
    let ids = srh.verify_hmac(HmacVariant::Rfc8754, CONTEXT, source(), path()[0], |_| Some(KEY));
    assert_eq!(ids, Ok(1));
}

#[test]
fn digest_of_a_reduced_srh_has_the_d_bit() {
    let repr = SrhRepr::reduced(&path()).with_hmac(HmacVariant::Rfc8754, source(), 1, KEY);
    let srh = emitted(&repr);
    assert_eq!(tlv_of(&srh).d_and_reserved(), 0x8000);
    let digest = hex("f60579e9999c159d94de70d2a977b63f2880bf9945880555bde4ee9d206760e6");
    assert_eq!(tlv_of(&srh).hmac(), digest);
    assert_eq!(HmacVariant::Rfc8754.text(source(), &srh, &tlv_of(&srh)).len(), 56);
    assert_eq!(verify(&repr, HmacVariant::Rfc8754, path()[0]), Ok(1));
    // Behind the first segment Segments Left is inside the list and the destination address must be the active one.
    let later = repr.with_segments_left(1);
    assert_eq!(verify(&later, HmacVariant::Rfc8754, path()[1]), Ok(1));
    let (srh_offset, offset, found) = (40, 40, path()[0]);
    let error = SrhError::HmacAddress { srh_offset, offset, found };
    assert_eq!(verify(&later, HmacVariant::Rfc8754, path()[0]), Err(error));
}

#[test]
fn digest_of_the_linux_text() {
    let srh = emitted(&SrhRepr::new(&path()).with_hmac(HmacVariant::Linux, source(), 1, KEY));
    assert_eq!(srh.flags(), 0x08);
    assert_eq!(HmacVariant::Linux.text(source(), &srh, &tlv_of(&srh)).len(), 70);
    let digest = hex("b0bd4035db56a3c83c8cc430cbe5c8490b59331f11257aa3afafa283a7255e7e");
    assert_eq!(tlv_of(&srh).hmac(), digest);
}

#[test]
fn srh_captured_from_the_kernel() {
    let bytes = [
        hex("2909040101080000"),
        ip6("fc02::b").octets().to_vec(),
        ip6("fc02::a").octets().to_vec(),
        hex("0526 0000 00000007 1b1f5da50713eb6429245c75b7be9b268d77ecdc76ffbc7dcedbf9b989a7723d"),
    ]
    .concat();
    let srh = Srh::new_checked(&bytes[..]).unwrap();
    assert_eq!(srh.check_meaning(SrhContext::behind_ipv6(80)), Ok(()));
    let verify =
        |variant| srh.verify_hmac(variant, CONTEXT, ip6("fc01::1"), ip6("fc02::a"), |_| Some(&b"secretkey"[..]));
    assert_eq!(verify(HmacVariant::Linux), Ok(7));
    let error = SrhError::HmacMismatch { srh_offset: 40, offset: 40, key_id: 7 };
    assert_eq!(verify(HmacVariant::Rfc8754), Err(error));
    // The representation makes the same octets again.
    let repr = SrhRepr::new(&[ip6("fc02::a"), ip6("fc02::b")]);
    let mut repr = repr.with_hmac(HmacVariant::Linux, ip6("fc01::1"), 7, b"secretkey");
    repr.next_header = 41;
    assert_eq!(emitted(&repr).into_inner(), bytes);
}

#[test]
fn every_covered_octet_and_no_other_changes_the_result() {
    let signed = emitted(&SrhRepr::new(&path()).with_hmac(HmacVariant::Rfc8754, source(), 1, KEY)).into_inner();
    for offset in 0..signed.len() {
        let mut bytes = signed.clone();
        bytes[offset] ^= 0x01;
        let is_covered = match offset {
            // Hdr Ext Len, Routing Type, Segments Left and Last Entry break structure or bounds instead.
            1..=4 => continue,
            0 | 6 | 7 => false,
            // Type and Length of the TLV.
            56 | 57 => continue,
            _ => true,
        };
        let srh = Srh::new_checked(&bytes[..]).unwrap();
        let active = srh.active_segment().unwrap();
        let result = srh.verify_hmac(HmacVariant::Rfc8754, CONTEXT, source(), active, |_| Some(KEY));
        assert_eq!(result.is_err(), is_covered, "octet {offset}");
    }
}

#[test]
fn refusals() {
    let repr = SrhRepr::new(&path());
    let (srh_offset, offset, destination) = (40, 56, path()[0]);
    let rfc = HmacVariant::Rfc8754;
    let signed = || repr.clone().with_hmac(rfc, source(), 1, KEY);
    let linux = || repr.clone().with_hmac(HmacVariant::Linux, source(), 1, KEY);
    let short = TlvRepr::Hmac { d_and_reserved: 0, key_id: 1, hmac: vec![0; 16] };
    let odd = TlvRepr::Unknown { tlv_type: 5, value: vec![0; 6] };
    let bad_length = |found| SrhError::HmacBadLength { srh_offset, offset, expected: 38, found };
    let unknown_key = repr.clone().with_hmac(rfc, source(), 2, KEY);
    let wrong_key = repr.clone().with_hmac(rfc, source(), 1, b"other");
    let padded = linux().with_tlv(TlvRepr::PadN(6));
    let flagless = linux().with_flags(0);
    let other = path()[1];
    let cases = [
        (rfc, repr.clone(), destination, SrhError::HmacMissing { srh_offset, offset }),
        (
            rfc,
            signed().with_hmac(rfc, source(), 1, KEY),
            destination,
            SrhError::HmacRepeated { srh_offset, offset: 96 },
        ),
        (rfc, repr.clone().with_tlv(short), destination, bad_length(22)),
        (rfc, repr.clone().with_tlv(odd), destination, bad_length(6)),
        (HmacVariant::Linux, padded, destination, SrhError::HmacNotLast { srh_offset, offset }),
        (
            HmacVariant::Linux,
            flagless,
            destination,
            SrhError::HmacFlagClear { srh_offset, offset, expected: 8, found: 0 },
        ),
        (rfc, signed(), other, SrhError::HmacAddress { srh_offset, offset, found: other }),
        (rfc, unknown_key, destination, SrhError::HmacKeyUnknown { srh_offset, offset, found: 2 }),
        (rfc, wrong_key, destination, SrhError::HmacMismatch { srh_offset, offset, key_id: 1 }),
    ];
    for (variant, repr, destination, expected) in cases {
        assert_eq!(verify(&repr, variant, destination), Err(expected));
        let icmp = expected.icmpv6_error().unwrap();
        assert_eq!((icmp.message_type, icmp.code), (4, 0));
        assert!(icmp.pointer >= 40 + 56, "{expected} points at the TLV");
    }
}

#[test]
fn hmac_need_not_be_the_last_tlv_of_rfc_8754() {
    let repr = SrhRepr::new(&path()).with_hmac(HmacVariant::Rfc8754, source(), 1, KEY).with_tlv(TlvRepr::PadN(5));
    assert_eq!(verify(&repr, HmacVariant::Rfc8754, path()[0]), Ok(1));
}

#[test]
fn two_keys_are_valid_at_once() {
    for (id, key) in [(1, &b"old"[..]), (2, &b"new"[..])] {
        let srh = emitted(&SrhRepr::new(&path()).with_hmac(HmacVariant::Rfc8754, source(), id, key));
        let keys = |id| if id == 1 { Some(&b"old"[..]) } else { Some(&b"new"[..]) };
        assert_eq!(srh.verify_hmac(HmacVariant::Rfc8754, CONTEXT, source(), path()[0], keys), Ok(id));
    }
}

#[test]
fn active_segment_outside_the_list_needs_the_d_bit() {
    // Segments Left is not covered, so a full SRH can be made to look reduced on the way.
    let (variant, segments_left) = (HmacVariant::Rfc8754, 3);
    let forged = SrhRepr::new(&path()).with_hmac(variant, source(), 1, KEY).with_segments_left(segments_left);
    let (srh_offset, offset, found) = (40, 56, ip6("2001:db8::bad"));
    let error = SrhError::HmacAddress { srh_offset, offset, found };
    assert_eq!(verify(&forged, variant, found), Err(error));
}

#[test]
fn linux_has_no_d_bit() {
    let repr = SrhRepr::reduced(&path()).with_hmac(HmacVariant::Linux, source(), 1, KEY);
    assert_eq!(tlv_of(&emitted(&repr)).d_and_reserved(), 0);
    assert_eq!(verify(&repr, HmacVariant::Linux, path()[0]), Ok(1));
}
