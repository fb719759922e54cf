//! Where things are in a packet that holds a TCP segment, however many headers are in front of it.

use segue_service::SteeringKind;
use segue_wire::{
    FiveTuple, Ipv4Packet, LayerKind, Layers, PseudoHeader, TcpSegment, mpls::ENTRY_LENGTH, parse_ip_packet,
    tcp::control,
};

/// Octets of an entry of a stack that have its label, its TC and the S bit.
const LABEL_OCTETS: usize = 3;
/// Most IP headers inside one another.
const MOST_HEADERS: usize = segue_wire::packet::MAX_IP_HEADERS;

/// An IP header on the way to the segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpHeader {
    /// Octets from the start of the packet.
    pub offset: usize,
    /// Whether it is one of IPv6.
    pub ipv6: bool,
}

/// Where a packet's headers are. Two packets with the same places can be compared octet by octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// What kind of steering header the packet begins with.
    kind: SteeringKind,
    headers: [IpHeader; MOST_HEADERS],
    count: usize,
    /// The TCP header.
    pub tcp: usize,
    /// What is behind the TCP header.
    pub payload: usize,
}

impl Places {
    /// What kind of steering header the packet begins with.
    #[must_use]
    pub fn kind(&self) -> SteeringKind {
        self.kind
    }

    /// The IP headers from the outside in.
    #[must_use]
    pub fn headers(&self) -> &[IpHeader] {
        &self.headers[..self.count]
    }
}

/// A TCP segment that may be merged with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where its headers are.
    pub places: Places,
    /// Sequence number of its first octet.
    pub sequence_number: u32,
    /// Control bits.
    pub control_bits: u8,
    /// Octets of payload, at least 1.
    pub length: u32,
}

/// What a packet is to `tcp-bulk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// No TCP segment that could be told the connection of: it concerns none that is held.
    Other,
    /// A segment of a connection that cannot be merged, but must not overtake those that are held.
    Alone,
    /// A segment that may be merged.
    Mergeable(Segment),
}

impl Class {
    /// Of a packet from its steering header on; writes the key of its connection to `key`, unless it is [`Class::Other`].
    pub fn of(kind: SteeringKind, packet: &[u8], key: &mut Vec<u8>) -> Self {
        key.clear();
        let ip = kind.of_flow(packet);
        let parsed = parse_ip_packet(ip).ok().and_then(|layers| Some((layers, layers.five_tuple()?)));
        let Some((layers, tuple)) = parsed else { return Self::Other };
        let Some(places) = places(&layers, kind, packet.len(), ip.len()) else { return Self::Other };
        write_key(&layers, &places, packet, key);
        segment(places, packet, &tuple).map_or(Self::Alone, Self::Mergeable)
    }
}

/// None for what is no TCP segment behind IP headers that end where the packet does.
fn places(layers: &Layers, kind: SteeringKind, length: usize, of_ip: usize) -> Option<Places> {
    // Labels are in front of the first of these headers.
    let before = length - of_ip;
    let mut places = Places { kind, headers: [IpHeader::default(); MOST_HEADERS], count: 0, tcp: 0, payload: 0 };
    for layer in layers.as_slice() {
        match layer.kind {
            LayerKind::Ipv4 | LayerKind::Ipv6 => {
                let header = IpHeader { offset: before + layer.offset, ipv6: layer.kind == LayerKind::Ipv6 };
                *places.headers.get_mut(places.count)? = header;
                places.count += 1;
            }
            LayerKind::Tcp => {
                places.tcp = before + layer.offset;
                places.payload = places.tcp + layer.length;
            }
            // What protects or splits what is behind it, and what has a length of its own.
            LayerKind::Fragment | LayerKind::Authentication | LayerKind::Udp => return None,
            _ => {}
        }
        if layer.end != of_ip {
            return None;
        }
    }
    Some(places).filter(|places| places.tcp != 0)
}

/// Labels in front, addresses of all IP headers, the segment lists between them, and the ports: two connections with the same inner addresses in different
/// tunnels, or on different ways, are two.
fn write_key(layers: &Layers, places: &Places, packet: &[u8], key: &mut Vec<u8>) {
    let ip = places.kind.of_flow(packet);
    for entry in packet.get(..packet.len() - ip.len()).unwrap_or_default().chunks_exact(ENTRY_LENGTH) {
        key.extend_from_slice(entry.get(..LABEL_OCTETS).unwrap_or_default());
    }
    for layer in layers.as_slice() {
        let addresses = match layer.kind {
            LayerKind::Ipv4 => 12..20,
            LayerKind::Ipv6 => 8..40,
            LayerKind::Srh => 0..layer.length,
            _ => continue,
        };
        key.extend_from_slice(layer.header(ip).get(addresses).unwrap_or(&[]));
    }
    key.extend_from_slice(packet.get(places.tcp..places.tcp + 4).unwrap_or(&[]));
}

/// None for a segment that is not merged: without payload, with SYN, RST or URG, with a wrong checksum anywhere, with IPv4 options or
/// IPv4 fragments around it.
fn segment(places: Places, packet: &[u8], tuple: &FiveTuple) -> Option<Segment> {
    for header in places.headers().iter().filter(|header| !header.ipv6) {
        let view = Ipv4Packet::new_checked(packet.get(header.offset..)?).ok()?;
        if view.header_length() != 20 || view.is_fragment() || !view.verify_checksum() {
            return None;
        }
    }
    let view = TcpSegment::new_checked(packet.get(places.tcp..)?).ok()?;
    let length = u32::try_from(view.payload().len()).ok().filter(|length| *length > 0)?;
    let control_bits = view.control_bits();
    if control_bits & (control::SYN | control::RST | control::URG) != 0 || control_bits & control::ACK == 0 {
        return None;
    }
    let pseudo_header = PseudoHeader::new(tuple.source, tuple.destination, tuple.protocol)?;
    if !view.verify_checksum(&pseudo_header) {
        return None;
    }
    Some(Segment { places, sequence_number: view.sequence_number(), control_bits, length })
}

/// The pseudo header of the segment in a packet.
pub(super) fn pseudo_header(packet: &[u8], places: &Places) -> Option<PseudoHeader> {
    let tuple = parse_ip_packet(places.kind.of_flow(packet)).ok()?.five_tuple()?;
    PseudoHeader::new(tuple.source, tuple.destination, tuple.protocol)
}
