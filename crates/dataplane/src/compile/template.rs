//! Segment lists as the octets that a headend puts in front of a packet (RFC 8986 section 5, RFC 8754 section 4.1).

use std::net::Ipv6Addr;

use segue_abi as abi;
use segue_model::node::{HeadendMode, TrafficClass};
use zerocopy::FromZeros;

use super::CompileError;

const IPV6_HEADER: usize = 40;
const SRH_FIXED: usize = 8;
const SEGMENT: usize = 16;
const NEXT_HEADER_ROUTING: u8 = 43;
const ROUTING_TYPE_SRH: u8 = 4;
/// An L2 encapsulation needs a new Ethernet header as well, because the old one belongs to the inner frame.
const ETHERNET_HEADER: usize = 14;

/// What a policy says about all of its lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encapsulation {
    pub mode: HeadendMode,
    pub source: Ipv6Addr,
    pub hop_limit: u8,
    pub traffic_class: TrafficClass,
}

/// The map entry of a list, without its indices and counter. `place` names the list in errors.
pub(super) fn segment_list(
    how: &Encapsulation,
    segments: &[Ipv6Addr],
    place: &str,
) -> Result<abi::SegmentList, CompileError> {
    let max = segments_max(how.mode);
    let (Some(&first), true) = (segments.first(), segments.len() <= max) else {
        return Err(CompileError::Segments { place: place.to_owned(), count: segments.len(), max });
    };
    let mut list = abi::SegmentList::new_zeroed();
    list.mode = mode_number(how.mode) as u8;
    list.kind = abi::SEGUE_HEADER_SRV6 as u8;
    list.segments = segments.len() as u8;
    list.first = first.octets();
    let mut flags = 0;
    match how.traffic_class {
        TrafficClass::Copy => flags |= abi::SEGUE_LIST_TRAFFIC_CLASS_COPY,
        TrafficClass::Dscp(dscp) if dscp < 64 => list.traffic_class = dscp << 2,
        TrafficClass::Dscp(dscp) => {
            return Err(CompileError::invalid(place, format!("DSCP {dscp} is above 63; give one from 0 to 63")));
        }
    }
    if matches!(how.mode, HeadendMode::HEncaps | HeadendMode::HEncapsRed) {
        flags |= abi::SEGUE_LIST_FLOW_LABEL_COPY;
    }
    let srh = srh(how.mode, segments);
    if srh.is_some() {
        flags |= abi::SEGUE_LIST_HAS_SRH;
    }
    list.flags = flags as u8;
    let srh = srh.unwrap_or_default();
    let header = match how.mode {
        HeadendMode::HInsert => srh,
        _ => [ipv6_header(how, first, !srh.is_empty()).as_slice(), &srh].concat(),
    };
    list.header[..header.len()].copy_from_slice(&header);
    list.header_length = header.len() as u16;
    Ok(list)
}

/// Segments that fit: SEGUE_SEGMENTS_MAX, or fewer where the frame's headroom ends before.
fn segments_max(mode: HeadendMode) -> usize {
    let room = abi::SEGUE_HEADROOM_MAX as usize;
    let fits = match mode {
        HeadendMode::HEncaps => (room - IPV6_HEADER - SRH_FIXED) / SEGMENT,
        HeadendMode::HEncapsRed => (room - IPV6_HEADER - SRH_FIXED) / SEGMENT + 1,
        HeadendMode::HEncapsL2 => (room - ETHERNET_HEADER - IPV6_HEADER - SRH_FIXED) / SEGMENT,
        HeadendMode::HEncapsL2Red => (room - ETHERNET_HEADER - IPV6_HEADER - SRH_FIXED) / SEGMENT + 1,
        HeadendMode::HInsert => (room - SRH_FIXED) / SEGMENT - 1,
        HeadendMode::Push => 0,
    };
    fits.min(abi::SEGUE_SEGMENTS_MAX as usize)
}

pub(super) fn mode_number(mode: HeadendMode) -> abi::Mode {
    match mode {
        HeadendMode::HEncaps => abi::SEGUE_H_ENCAPS,
        HeadendMode::HEncapsRed => abi::SEGUE_H_ENCAPS_RED,
        HeadendMode::HEncapsL2 => abi::SEGUE_H_ENCAPS_L2,
        HeadendMode::HEncapsL2Red => abi::SEGUE_H_ENCAPS_L2_RED,
        HeadendMode::HInsert => abi::SEGUE_H_INSERT,
        HeadendMode::Push => abi::SEGUE_PUSH,
    }
}

/// Version, Next Header, hop limit, source and destination; the data plane fills the rest for each packet.
fn ipv6_header(how: &Encapsulation, first: Ipv6Addr, routing: bool) -> [u8; IPV6_HEADER] {
    let mut header = [0; IPV6_HEADER];
    header[0] = 6 << 4;
    header[6] = if routing { NEXT_HEADER_ROUTING } else { 0 };
    header[7] = how.hop_limit;
    header[8..24].copy_from_slice(&how.source.octets());
    header[24..40].copy_from_slice(&first.octets());
    header
}

/// The SRH (RFC 8754 section 2) with its Next Header left 0. None for a single segment in the reduced modes.
fn srh(mode: HeadendMode, segments: &[Ipv6Addr]) -> Option<Vec<u8>> {
    let count = segments.len();
    // In the order of the header: the last segment of the path first.
    let mut entries: Vec<[u8; SEGMENT]> = segments.iter().rev().map(Ipv6Addr::octets).collect();
    let segments_left = match mode {
        HeadendMode::HEncaps | HeadendMode::HEncapsL2 => count - 1,
        // Labels have no SRH.
        HeadendMode::Push => return None,
        HeadendMode::HEncapsRed | HeadendMode::HEncapsL2Red => {
            // The first segment is in the destination address only (RFC 8754 section 4.1.1).
            entries.pop();
            count - 1
        }
        HeadendMode::HInsert => {
            // Segment List[0] is the original destination, which the data plane fills.
            entries.insert(0, [0; SEGMENT]);
            count
        }
    };
    if entries.is_empty() {
        return None;
    }
    let fixed =
        [0, (2 * entries.len()) as u8, ROUTING_TYPE_SRH, segments_left as u8, (entries.len() - 1) as u8, 0, 0, 0];
    Some([fixed.as_slice(), entries.concat().as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    const S1: &str = "fc00 0001 0000 0000 0000 0000 0000 0001";
    const S2: &str = "fc00 0002 0000 0000 0000 0000 0000 0002";
    const S3: &str = "fc00 0003 0000 0000 0000 0000 0000 0003";
    const SOURCE: &str = "fc00 00aa 0000 0000 0000 0000 0000 0001";

    fn segments(count: usize) -> Vec<Ipv6Addr> {
        (1..=count as u16).map(|n| Ipv6Addr::new(0xfc00, n, 0, 0, 0, 0, 0, n)).collect()
    }

    fn made(mode: HeadendMode, count: usize) -> abi::SegmentList {
        let how = Encapsulation {
            mode,
            source: "fc00:aa::1".parse().expect("an address"),
            hop_limit: 64,
            traffic_class: TrafficClass::Copy,
        };
        segment_list(&how, &segments(count), "here").expect("a list that fits")
    }

    /// Every octet of `header`, the unused ones included.
    fn assert_header(list: &abi::SegmentList, expected: &str) {
        let expected = hex(expected);
        assert_eq!(usize::from(list.header_length), expected.len());
        assert_eq!(list.header[..expected.len()], expected[..]);
        assert!(list.header[expected.len()..].iter().all(|octet| *octet == 0));
    }

    /// RFC 8754 section 4.1: a full list of three (docs/developing/acceptance.md, A30).
    #[test]
    fn h_encaps_of_three_segments() {
        let list = made(HeadendMode::HEncaps, 3);
        assert_header(&list, &format!("60000000 0000 2b 40 {SOURCE} {S1} 00 06 04 02 02 00 00 00 {S3} {S2} {S1}"));
        assert_eq!((list.mode, list.segments), (1, 3));
        assert_eq!(list.first[..], hex(S1)[..]);
        assert_eq!(u32::from(list.flags), 1 | 2 | 4);
    }

    #[test]
    fn h_encaps_red_of_three_segments() {
        let list = made(HeadendMode::HEncapsRed, 3);
        assert_header(&list, &format!("60000000 0000 2b 40 {SOURCE} {S1} 00 04 04 02 01 00 00 00 {S3} {S2}"));
        assert_eq!((list.mode, list.segments), (2, 3));
    }

    #[test]
    fn single_segment_has_an_srh_only_when_not_reduced() {
        let full = made(HeadendMode::HEncaps, 1);
        assert_header(&full, &format!("60000000 0000 2b 40 {SOURCE} {S1} 00 02 04 00 00 00 00 00 {S1}"));
        let reduced = made(HeadendMode::HEncapsRed, 1);
        assert_header(&reduced, &format!("60000000 0000 00 40 {SOURCE} {S1}"));
        assert_eq!(u32::from(reduced.flags) & abi::SEGUE_LIST_HAS_SRH, 0);
        assert_eq!(reduced.first[..], hex(S1)[..]);
    }

    #[test]
    fn l2_modes_have_the_same_headers_and_no_flow_label_to_copy() {
        let full = made(HeadendMode::HEncapsL2, 2);
        assert_header(&full, &format!("60000000 0000 2b 40 {SOURCE} {S1} 00 04 04 01 01 00 00 00 {S2} {S1}"));
        assert_eq!((full.mode, u32::from(full.flags)), (3, 1 | 2));
        let reduced = made(HeadendMode::HEncapsL2Red, 2);
        assert_header(&reduced, &format!("60000000 0000 2b 40 {SOURCE} {S1} 00 02 04 01 00 00 00 00 {S2}"));
        assert_eq!(reduced.mode, 4);
    }

    #[test]
    fn h_insert_leaves_the_place_of_the_destination() {
        let list = made(HeadendMode::HInsert, 2);
        assert_header(&list, &format!("00 06 04 02 02 00 00 00 {} {S2} {S1}", "00".repeat(16)));
        assert_eq!((list.mode, list.segments, u32::from(list.flags)), (5, 2, 1 | 2));
        assert_eq!(list.first[..], hex(S1)[..]);
    }

    #[test]
    fn fixed_dscp_stands_above_ecn() {
        let how = Encapsulation {
            mode: HeadendMode::HEncaps,
            source: Ipv6Addr::LOCALHOST,
            hop_limit: 1,
            traffic_class: TrafficClass::Dscp(46),
        };
        let list = segment_list(&how, &segments(1), "here").expect("a list that fits");
        assert_eq!(list.traffic_class, 0xb8);
        assert_eq!(u32::from(list.flags) & abi::SEGUE_LIST_TRAFFIC_CLASS_COPY, 0);
        assert_eq!(list.header[7], 1);
        let wrong = Encapsulation { traffic_class: TrafficClass::Dscp(64), ..how };
        assert!(matches!(segment_list(&wrong, &segments(1), "here"), Err(CompileError::Invalid { .. })));
    }

    #[test]
    fn lists_that_fit_the_headroom() {
        for (mode, max) in [
            (HeadendMode::HEncaps, 10),
            (HeadendMode::HEncapsRed, 10),
            (HeadendMode::HEncapsL2, 9),
            (HeadendMode::HEncapsL2Red, 10),
            (HeadendMode::HInsert, 10),
        ] {
            let list = made(mode, max);
            let ethernet = if matches!(mode, HeadendMode::HEncapsL2 | HeadendMode::HEncapsL2Red) { 14 } else { 0 };
            assert!(u32::from(list.header_length) + ethernet <= abi::SEGUE_HEADROOM_MAX, "{mode:?}");
            let how =
                Encapsulation { mode, source: Ipv6Addr::LOCALHOST, hop_limit: 64, traffic_class: TrafficClass::Copy };
            for count in [0, max + 1] {
                assert_eq!(
                    segment_list(&how, &segments(count), "here"),
                    Err(CompileError::Segments { place: "here".into(), count, max }),
                    "{mode:?}"
                );
            }
        }
    }
}
