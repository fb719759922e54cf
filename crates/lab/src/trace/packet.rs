//! Packets from capture files, and what they are.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use segue_api::simulation::label_stack;
use segue_wire::packet::{Layers, parse_as_far_as_possible};
use segue_wire::protocol;

use super::event::Flow;
use super::walk::Carried;
use super::wrong;
use crate::error::{LabError, Result};

/// Captures that are larger are not read.
const LONGEST_FILE: u64 = 256 << 20;

/// The packet with this number of a capture file (pcap or pcapng, Ethernet), counted from 1.
///
/// # Errors
/// What is wrong with the file, the number or the packet.
pub fn of_capture(path: &Path, number: usize) -> Result<Carried> {
    let refused = |what: String, remedy: &str| LabError::Exchange {
        place: path.display().to_string(),
        what,
        remedy: remedy.to_owned(),
    };
    let remedy = "give a file that can be read";
    let file = File::open(path).map_err(LabError::io("open", path, remedy))?;
    let mut octets = Vec::new();
    // One more, to see that there is more: the file may be a pipe.
    let read = file.take(LONGEST_FILE + 1).read_to_end(&mut octets);
    read.map_err(LabError::io("read", path, remedy))?;
    if octets.len() as u64 > LONGEST_FILE {
        let what = format!("it is larger than {} MiB", LONGEST_FILE >> 20);
        return Err(refused(what, "cut the packet out: `editcap -r FILE ONE.pcapng NUMBER`"));
    }
    let frames = segue_api::pcap::frames(&octets);
    let mut frames = frames.map_err(|reason| refused(reason, "give a capture of Ethernet frames, pcap or pcapng"))?;
    let count = frames.len();
    if !(1..=count).contains(&number) {
        let what = format!("there is no packet {number}; the file has {count}");
        return Err(refused(what, "give --number with one of them, counted from 1"));
    }
    let frame = frames.swap_remove(number - 1);
    packet_of(&frame).map_err(|what| refused(format!("packet {number} {what}"), "choose another packet"))
}

/// The IP packet in a frame, with its labels if it has any, behind VLAN tags if there are any.
fn packet_of(frame: &[u8]) -> std::result::Result<Carried, String> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = 12;
    while matches!(half(at), Some(0x8100 | 0x88a8)) {
        at += 4;
    }
    let packet = frame.get(at + 2..).unwrap_or_default();
    let labelled = half(at) == Some(0x8847);
    let inside = at + 2 + if labelled { 4 * label_stack(packet).len() } else { 0 };
    let version = frame.get(inside).map(|octet| octet >> 4).filter(|_| labelled);
    let length = match (half(at), version) {
        (Some(0x0800), _) | (_, Some(4)) => half(inside + 2).map(usize::from),
        (Some(0x86dd), _) | (_, Some(6)) => half(inside + 4).map(|length| 40 + usize::from(length)),
        _ => return Err("is no IP packet".to_owned()),
    };
    let length = inside - at - 2 + length.ok_or("is cut off in its IP header")?;
    packet.get(..length).map(|octets| Carried { octets: octets.to_vec(), labelled }).ok_or_else(|| {
        format!(
            "was cut off when it was captured: {} of {length} octets are there (`-s 0` of tcpdump keeps all)",
            packet.len()
        )
    })
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if packet.first().is_some_and(|octet| octet >> 4 == 4) { [8, 0] } else { [0x86, 0xdd] };
    [&[0; 12][..], &ethertype, packet].concat()
}

/// The flow that a packet is of, and whether a probe can look like it: not if it is steered already, or of another protocol than TCP, UDP
/// and ICMP. `from`: who sends it.
///
/// # Errors
/// A packet without two addresses.
pub fn flow_of(captured: &Carried, from: &str) -> Result<(Flow, bool)> {
    let packet = captured.inside();
    let frame = framed(packet);
    let (layers, _) = parse_as_far_as_possible(&frame);
    let tuple = layers
        .five_tuple()
        .ok_or_else(|| wrong("the packet's headers cannot be read".to_owned(), "choose a whole IP packet"))?;
    let octet = |at: usize| packet.get(at).copied().unwrap_or_default();
    let is_ipv6 = octet(0) >> 4 == 6;
    let traffic_class = if is_ipv6 { octet(0) << 4 | octet(1) >> 4 } else { octet(1) };
    let label = u32::from_be_bytes([0, octet(1) & 15, octet(2), octet(3)]);
    let (source_port, destination_port) = tuple.ports.unwrap_or_else(|| (identifier(&layers, &frame), 0));
    let flow = Flow {
        from: from.to_owned(),
        source: tuple.source,
        destination: tuple.destination,
        protocol: tuple.protocol,
        source_port,
        destination_port,
        dscp: traffic_class >> 2,
        flow_label: if is_ipv6 { label } else { 0 },
        hop_limit: octet(if is_ipv6 { 7 } else { 8 }),
        segments: Vec::new(),
        length: packet.len(),
    };
    let plain = !captured.labelled && layers.srh().is_none() && layers.outer_ip() == layers.inner_ip();
    let known = matches!(tuple.protocol, protocol::UDP | protocol::TCP | protocol::ICMPV4 | protocol::ICMPV6);
    Ok((flow, plain && known))
}

/// The identifier of an echo request.
fn identifier(layers: &Layers, frame: &[u8]) -> u16 {
    use segue_wire::LayerKind;
    let icmp = layers.first(LayerKind::Icmpv6).or_else(|| layers.first(LayerKind::Icmpv4));
    let header = icmp.map(|layer| layer.bytes(frame)).unwrap_or_default();
    header.get(4..6).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests {
    use segue_wire::mpls::MplsEntry;
    use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

    use super::*;

    fn captured(frames: &[Vec<u8>], number: usize) -> std::result::Result<Carried, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pcap");
        std::fs::write(&path, segue_api::pcap::classic(frames)).unwrap();
        of_capture(&path, number).map_err(|error| error.to_string())
    }

    #[test]
    fn a_packet_of_a_capture_is_what_it_was() {
        let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (a, b) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let header = Ipv6Repr { traffic_class: 46 << 2, flow_label: 0x12345, hop_limit: 9, ..Ipv6Repr::new(a, b) };
        let mut six = ethernet().ipv6(header).udp(UdpRepr::new(7, 53)).payload(&[1; 20]).build();
        six.extend([0; 5]); // Ethernet's padding
        let four = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let plain = ethernet().ipv4(four).tcp(TcpRepr::new(1, 80, 2)).build();
        let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
        let steered = ethernet()
            .ipv6(Ipv6Repr::new(a, b))
            .srh(SrhRepr::new(&[b, a]))
            .inner_ipv6(Ipv6Repr::new(a, b))
            .udp(UdpRepr::new(1, 2))
            .build();
        let entry = |label| MplsEntry { label, time_to_live: 9, ..MplsEntry::default() };
        let labelled = ethernet().mpls(&[entry(16_001), entry(500_000)]).ipv6(header).udp(UdpRepr::new(7, 53)).build();
        let frames = [six.clone(), tagged, steered, vec![0; 14], six[..40].to_vec(), labelled];
        let packet = captured(&frames, 1).unwrap();
        let (flow, is_plain) = flow_of(&packet, "x").unwrap();
        assert!(is_plain && packet.octets.len() == 68, "{flow:?}");
        let fields = (flow.source_port, flow.destination_port, flow.dscp, flow.flow_label, flow.hop_limit);
        assert_eq!(fields, (7, 53, 46, 0x12345, 9));
        let (flow, _) = flow_of(&captured(&frames, 2).unwrap(), "x").unwrap();
        assert_eq!((flow.protocol, flow.destination_port, flow.length), (protocol::TCP, 80, 40));
        let (_, is_plain) = flow_of(&captured(&frames, 3).unwrap(), "x").unwrap();
        assert!(!is_plain, "no probe looks like a steered packet");
        let packet = captured(&frames, 6).unwrap();
        assert_eq!((packet.labelled, packet.octets.len(), packet.inside().len()), (true, 56, 48));
        let (flow, is_plain) = flow_of(&packet, "x").unwrap();
        assert!(!is_plain && flow.destination_port == 53, "{flow:?}");
        for (number, words) in
            [(0, "there is no packet 0"), (7, "the file has 6"), (4, "no IP packet"), (5, "cut off when")]
        {
            let error = captured(&frames, number).unwrap_err();
            assert!(error.contains(words), "{number}: {error}");
        }
    }

    #[test]
    fn what_is_no_capture_is_refused_and_never_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        assert!(of_capture(&path, 1).is_err(), "no file");
        let whole = segue_api::pcap::classic(&[vec![7; 60], vec![9; 20]]);
        let mut random = crate::random::Random::new(5);
        for length in 0..whole.len() {
            let mut octets = whole[..length].to_vec();
            if length > 24 {
                let at = random.number() as usize % length;
                octets[at] ^= random.number() as u8;
            }
            std::fs::write(&path, octets).unwrap();
            assert!(of_capture(&path, 1).is_err(), "no IP packet in it");
        }
    }
}
