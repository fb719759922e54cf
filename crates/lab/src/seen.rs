//! What a captured frame is, seen through `segue-wire`: a bare packet, or one in an SRv6 envelope.

use std::net::{IpAddr, Ipv6Addr};

use segue_wire::{EthernetFrame, HeaderChain, Ipv4Packet, Ipv6Packet, LayerKind, Srh, SrhContext, ethertype, protocol};

/// A packet inside an envelope, or one that came without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of what the addresses exchange, behind all extension headers.
    pub protocol: u8,
    /// Hop limit or time to live.
    pub hop_limit: u8,
    /// Whether the packet has an IPv6 routing header of any type.
    pub routing_header: bool,
}

/// The outer IPv6 header and its SRH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address: the active segment.
    pub destination: Ipv6Addr,
    /// The SRH; `None` for a single segment, which needs none.
    pub srh: Option<SrhSeen>,
}

/// An SRH whose structure and meaning were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrhSeen {
    /// Segments Left.
    pub segments_left: u8,
    /// Segment List in the order of traversal. A reduced SRH does not hold the first segment.
    pub segments: Vec<Ipv6Addr>,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// An SRv6 packet.
    Enveloped(Envelope, Inner),
    /// An IP packet without another one inside.
    Bare(Inner),
    /// An IPv6 packet with an SRH, but something else than IP inside.
    SrhOnly(Envelope),
    /// ARP and the like.
    Other,
    /// A frame that breaks the rules of its format.
    Malformed(String),
}

/// Looks at an Ethernet frame. What follows the upper layer's start is not looked at, so it may be cut off there.
#[must_use]
pub fn dissect(frame: &[u8]) -> Seen {
    match EthernetFrame::new_checked(frame) {
        Ok(ethernet) => match ethernet.ethertype() {
            ethertype::IPV6 => outer_ipv6(ethernet.payload()),
            ethertype::IPV4 => ipv4(ethernet.payload()).map_or_else(Seen::Malformed, Seen::Bare),
            _ => Seen::Other,
        },
        Err(error) => Seen::Malformed(error.to_string()),
    }
}

fn outer_ipv6(bytes: &[u8]) -> Seen {
    let packet = match Ipv6Packet::new_checked(bytes) {
        Ok(packet) => packet,
        Err(error) => return Seen::Malformed(error.to_string()),
    };
    let chain = match HeaderChain::parse(&packet) {
        Ok(chain) => chain,
        Err(error) => return Seen::Malformed(error.to_string()),
    };
    let srh = match srh(&packet, &chain) {
        Ok(srh) => srh,
        Err(reason) => return Seen::Malformed(reason),
    };
    let envelope = Envelope { source: packet.source(), destination: packet.destination(), srh };
    let upper = packet.packet().get(chain.upper_layer_offset()..).unwrap_or_default();
    let inner = match chain.upper_layer() {
        protocol::IPV6 => ipv6(upper),
        protocol::IPV4 => ipv4(upper),
        _ if envelope.srh.is_some() => return Seen::SrhOnly(envelope),
        _ => return ipv6(bytes).map_or_else(Seen::Malformed, Seen::Bare),
    };
    inner.map_or_else(Seen::Malformed, |inner| Seen::Enveloped(envelope, inner))
}

fn srh<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>, chain: &HeaderChain) -> Result<Option<SrhSeen>, String> {
    let Some(place) = chain.srh() else { return Ok(None) };
    let bytes = packet.packet().get(place.offset..).unwrap_or_default();
    let srh = Srh::new_checked(bytes).map_err(|error| error.to_string())?;
    let context = SrhContext { srh_offset: place.offset, payload_end: packet.total_length() };
    srh.check_meaning(context).map_err(|error| error.to_string())?;
    Ok(Some(SrhSeen { segments_left: srh.segments_left(), segments: srh.segments_in_traversal_order().collect() }))
}

fn ipv6(bytes: &[u8]) -> Result<Inner, String> {
    let packet = Ipv6Packet::new_checked(bytes).map_err(|error| error.to_string())?;
    let chain = HeaderChain::parse(&packet).map_err(|error| error.to_string())?;
    Ok(Inner {
        source: packet.source().into(),
        destination: packet.destination().into(),
        protocol: chain.upper_layer(),
        hop_limit: packet.hop_limit(),
        routing_header: chain.headers().iter().any(|header| matches!(header.kind, LayerKind::Routing | LayerKind::Srh)),
    })
}

fn ipv4(bytes: &[u8]) -> Result<Inner, String> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|error| error.to_string())?;
    Ok(Inner {
        source: packet.source().into(),
        destination: packet.destination().into(),
        protocol: packet.protocol(),
        hop_limit: packet.time_to_live(),
        routing_header: false,
    })
}

#[cfg(test)]
mod tests {
    use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr};

    use super::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 2);
    const C: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 3);

    fn ethernet() -> PacketBuilder {
        PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
    }

    #[test]
    fn envelope_with_srh_and_what_is_inside() {
        let frame = ethernet()
            .ipv6(Ipv6Repr { source: A, destination: B, ..Ipv6Repr::default() })
            .srh(SrhRepr::reduced(&[B, C]))
            .inner_ipv4(Ipv4Repr {
                source: [10, 0, 1, 1].into(),
                destination: [10, 0, 2, 1].into(),
                ..Ipv4Repr::default()
            })
            .payload(&[0; 8])
            .build();
        let Seen::Enveloped(envelope, inner) = dissect(&frame) else { panic!("{:?}", dissect(&frame)) };
        assert_eq!(
            envelope,
            Envelope { source: A, destination: B, srh: Some(SrhSeen { segments_left: 1, segments: vec![C] }) }
        );
        assert_eq!((inner.source.to_string(), inner.destination.to_string()), ("10.0.1.1".into(), "10.0.2.1".into()));
        assert!(!inner.routing_header);
    }

    #[test]
    fn bare_packets_and_others() {
        let frame =
            ethernet().ipv6(Ipv6Repr { source: A, destination: B, ..Ipv6Repr::default() }).payload(&[0; 8]).build();
        assert!(matches!(dissect(&frame), Seen::Bare(Inner { routing_header: false, .. })), "{:?}", dissect(&frame));
        let mut arp = frame.clone();
        arp[12..14].copy_from_slice(&ethertype::ARP.to_be_bytes());
        assert_eq!(dissect(&arp), Seen::Other);
    }

    #[test]
    fn segments_left_beyond_the_list_is_told() {
        let frame = ethernet()
            .ipv6(Ipv6Repr { source: A, destination: B, ..Ipv6Repr::default() })
            .srh(SrhRepr::new(&[B, C]).with_segments_left(9))
            .inner_ipv6(Ipv6Repr { source: A, destination: C, ..Ipv6Repr::default() })
            .build();
        assert!(matches!(dissect(&frame), Seen::Malformed(_)), "{:?}", dissect(&frame));
    }

    #[test]
    fn no_cut_panics() {
        let frame = ethernet()
            .ipv6(Ipv6Repr { source: A, destination: B, ..Ipv6Repr::default() })
            .srh(SrhRepr::new(&[B, C]))
            .inner_ipv6(Ipv6Repr { source: A, destination: C, ..Ipv6Repr::default() })
            .payload(&[1; 20])
            .build();
        for cut in 0..frame.len() {
            let _ = dissect(&frame[..cut]);
        }
    }
}
