//! Whole packets from layers.
//!
//! [`PacketBuilder`] takes layers from the outside in and computes what follows from their order: ethertypes, next
//! headers and protocols, lengths, checksums. Everything else stays as given. A packet with a fault is made with
//! [`PacketBuilder::with_bytes`], which changes octets of the finished packet.
//!
//! ```
//! use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
//!
//! let path = ["fc00:0:1::".parse().unwrap(), "fc00:0:2::".parse().unwrap()];
//! let packet = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
//!     .ipv6(Ipv6Repr::new("fd00::1".parse().unwrap(), path[0]))
//!     .srh(SrhRepr::new(&path))
//!     .inner_ipv4(Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()))
//!     .udp(UdpRepr::new(40_000, 53))
//!     .payload(b"query")
//!     .build();
//! assert_eq!(packet.len(), 14 + 40 + 40 + 20 + 8 + 5);
//! ```

use crate::aggfrag::AggfragRepr;
use crate::checksum::PseudoHeader;
use crate::error::{Error, Result, fits};
use crate::ethernet::{EthernetRepr, MacAddress};
use crate::icmpv4::Icmpv4Repr;
use crate::icmpv6::Icmpv6Repr;
use crate::ipcomp::IpCompRepr;
use crate::ipv4::Ipv4Repr;
use crate::ipv6::Ipv6Repr;
use crate::ipv6_extension::{FragmentRepr, OptionsRepr, RoutingRepr};
use crate::layer::{LayerKind, ethertype, protocol};
use crate::mpls::MplsEntry;
use crate::srh::SrhRepr;
use crate::tcp::TcpRepr;
use crate::udp::UdpRepr;
use crate::vlan::VlanRepr;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

#[derive(Clone, Debug)]
enum Layer {
    Ethernet(EthernetRepr),
    Vlan(VlanRepr),
    Mpls(MplsEntry),
    Ipv4(Ipv4Repr),
    Ipv6(Ipv6Repr),
    HopByHop(OptionsRepr),
    DestinationOptions(OptionsRepr),
    Routing(RoutingRepr),
    Srh(SrhRepr),
    Fragment(FragmentRepr),
    IpComp(IpCompRepr),
    Aggfrag(AggfragRepr),
    Udp(UdpRepr),
    Tcp(TcpRepr),
    Icmpv4(Icmpv4Repr),
    Icmpv6(Icmpv6Repr),
}

impl Layer {
    /// The ethertype that announces this layer.
    fn ethertype(&self) -> Option<u16> {
        match self {
            Self::Vlan(_) => Some(ethertype::VLAN),
            Self::Mpls(_) => Some(ethertype::MPLS),
            Self::Ipv4(_) => Some(ethertype::IPV4),
            Self::Ipv6(_) => Some(ethertype::IPV6),
            _ => None,
        }
    }

    /// The protocol number that announces this layer.
    fn protocol(&self) -> Option<u8> {
        match self {
            Self::Ethernet(_) => Some(protocol::ETHERNET),
            Self::Vlan(_) => None,
            Self::Mpls(_) => Some(protocol::MPLS),
            Self::Ipv4(_) => Some(protocol::IPV4),
            Self::Ipv6(_) => Some(protocol::IPV6),
            Self::HopByHop(_) => Some(protocol::HOP_BY_HOP),
            Self::DestinationOptions(_) => Some(protocol::DESTINATION_OPTIONS),
            Self::Routing(_) | Self::Srh(_) => Some(protocol::ROUTING),
            Self::Fragment(_) => Some(protocol::FRAGMENT),
            Self::IpComp(_) => Some(protocol::IPCOMP),
            Self::Aggfrag(_) => Some(protocol::AGGFRAG),
            Self::Udp(_) => Some(protocol::UDP),
            Self::Tcp(_) => Some(protocol::TCP),
            Self::Icmpv4(_) => Some(protocol::ICMPV4),
            Self::Icmpv6(_) => Some(protocol::ICMPV6),
        }
    }
}

/// Builds a packet from layers, given from the outside in. See the [module documentation](self).
#[derive(Clone, Debug, Default)]
pub struct PacketBuilder {
    layers: Vec<Layer>,
    payload: Vec<u8>,
    trailer: Vec<u8>,
    patches: Vec<(usize, Vec<u8>)>,
}

impl PacketBuilder {
    /// A packet without a link layer: the first layer added is the outermost one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet that begins with an Ethernet header. Note the order of addresses: source, then destination.
    pub fn ethernet(source: impl Into<MacAddress>, destination: impl Into<MacAddress>) -> Self {
        Self::new().inner_ethernet(source, destination)
    }

    fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds an Ethernet header with [`ethertype::IPV6`] unless a layer follows that says otherwise.
    #[must_use]
    pub fn inner_ethernet(self, source: impl Into<MacAddress>, destination: impl Into<MacAddress>) -> Self {
        self.ethernet_repr(EthernetRepr {
            destination: destination.into(),
            source: source.into(),
            ethertype: ethertype::IPV6,
        })
    }

    /// Adds an Ethernet header; its ethertype is kept when only a payload follows.
    #[must_use]
    pub fn ethernet_repr(self, repr: EthernetRepr) -> Self {
        self.layer(Layer::Ethernet(repr))
    }

    /// Adds an 802.1Q tag. The outer of two stacked tags is announced as a service tag (0x88a8).
    #[must_use]
    pub fn vlan(self, vlan_id: u16) -> Self {
        self.vlan_repr(VlanRepr { vlan_id, ethertype: ethertype::IPV6, ..VlanRepr::default() })
    }

    /// Adds an 802.1Q tag; its ethertype is kept when only a payload follows.
    #[must_use]
    pub fn vlan_repr(self, repr: VlanRepr) -> Self {
        self.layer(Layer::Vlan(repr))
    }

    /// Adds a label stack, top first. The S bits are set by position.
    #[must_use]
    pub fn mpls(mut self, entries: &[MplsEntry]) -> Self {
        for (index, entry) in entries.iter().enumerate() {
            let bottom_of_stack = index + 1 == entries.len();
            self = self.layer(Layer::Mpls(MplsEntry { bottom_of_stack, ..*entry }));
        }
        self
    }

    /// Adds an IPv4 header.
    #[must_use]
    pub fn ipv4(self, repr: Ipv4Repr) -> Self {
        self.layer(Layer::Ipv4(repr))
    }

    /// Adds an IPv6 header.
    #[must_use]
    pub fn ipv6(self, repr: Ipv6Repr) -> Self {
        self.layer(Layer::Ipv6(repr))
    }

    /// The same as [`PacketBuilder::ipv4`], to say that it is an inner header.
    #[must_use]
    pub fn inner_ipv4(self, repr: Ipv4Repr) -> Self {
        self.ipv4(repr)
    }

    /// The same as [`PacketBuilder::ipv6`], to say that it is an inner header.
    #[must_use]
    pub fn inner_ipv6(self, repr: Ipv6Repr) -> Self {
        self.ipv6(repr)
    }

    /// Adds a hop-by-hop options header.
    #[must_use]
    pub fn hop_by_hop(self, repr: OptionsRepr) -> Self {
        self.layer(Layer::HopByHop(repr))
    }

    /// Adds a destination options header.
    #[must_use]
    pub fn destination_options(self, repr: OptionsRepr) -> Self {
        self.layer(Layer::DestinationOptions(repr))
    }

    /// Adds a routing header of any type.
    #[must_use]
    pub fn routing(self, repr: RoutingRepr) -> Self {
        self.layer(Layer::Routing(repr))
    }

    /// Adds a segment routing header.
    #[must_use]
    pub fn srh(self, repr: SrhRepr) -> Self {
        self.layer(Layer::Srh(repr))
    }

    /// Adds a fragment header. Layers behind it are built as if the packet were whole.
    #[must_use]
    pub fn fragment(self, repr: FragmentRepr) -> Self {
        self.layer(Layer::Fragment(repr))
    }

    /// Adds an IPComp header. What is behind it is not compressed: give it compressed, as payload.
    #[must_use]
    pub fn ipcomp(self, repr: IpCompRepr) -> Self {
        self.layer(Layer::IpComp(repr))
    }

    /// Adds an AGGFRAG header. Blocks are given as payload, or one as layers behind it.
    #[must_use]
    pub fn aggfrag(self, repr: AggfragRepr) -> Self {
        self.layer(Layer::Aggfrag(repr))
    }

    /// Adds a UDP header.
    #[must_use]
    pub fn udp(self, repr: UdpRepr) -> Self {
        self.layer(Layer::Udp(repr))
    }

    /// Adds a TCP header.
    #[must_use]
    pub fn tcp(self, repr: TcpRepr) -> Self {
        self.layer(Layer::Tcp(repr))
    }

    /// Adds an ICMP message for IPv4. Its data come in front of the payload.
    #[must_use]
    pub fn icmpv4(self, repr: Icmpv4Repr) -> Self {
        self.layer(Layer::Icmpv4(repr))
    }

    /// Adds an ICMP message for IPv6. Its data come in front of the payload.
    #[must_use]
    pub fn icmpv6(self, repr: Icmpv6Repr) -> Self {
        self.layer(Layer::Icmpv6(repr))
    }

    /// Adds to the payload behind the last layer. With it a header's own ethertype, Next Header or Protocol is kept.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload.extend_from_slice(bytes);
        self
    }

    /// Adds octets behind the packet that no header counts, like the padding of a short Ethernet frame.
    #[must_use]
    pub fn trailer(mut self, bytes: &[u8]) -> Self {
        self.trailer.extend_from_slice(bytes);
        self
    }

    /// Overwrites octets of the finished packet, from `offset` octets behind its start on. Checksums and lengths are
    /// not touched, so this makes every kind of fault. May be called more than once; later calls win.
    #[must_use]
    pub fn with_bytes(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.patches.push((offset, bytes.to_vec()));
        self
    }

    /// The packet.
    ///
    /// # Panics
    /// Where [`PacketBuilder::try_build`] fails: it is for tests and for layers that are known to be sound.
    pub fn build(&self) -> Vec<u8> {
        match self.try_build() {
            Ok(packet) => packet,
            Err(error) => panic!("cannot build the packet: {error}"),
        }
    }

    /// The packet.
    ///
    /// # Errors
    /// [`Error::ValueTooLarge`] and others of the layers' `emit` for values that do not fit, also for a payload of more
    /// than 65,535 octets; [`Error::BufferTooSmall`] for a [`PacketBuilder::with_bytes`] behind the end.
    pub fn try_build(&self) -> Result<Vec<u8>> {
        let mut packet = self.payload.clone();
        for (index, layer) in self.layers.iter().enumerate().rev() {
            packet = self.enclose(index, layer, packet)?;
        }
        packet.extend_from_slice(&self.trailer);
        for (offset, bytes) in &self.patches {
            let end = offset.saturating_add(bytes.len());
            let found = packet.len();
            let place = packet.get_mut(*offset..end);
            let layer = LayerKind::Payload;
            place.ok_or(Error::BufferTooSmall { layer, expected: end, found })?.copy_from_slice(bytes);
        }
        Ok(packet)
    }

    /// `inner` with the header of layer number `index` in front.
    fn enclose(&self, index: usize, layer: &Layer, inner: Vec<u8>) -> Result<Vec<u8>> {
        let following = self.layers.get(index + 1);
        let protocol_or = |own: u8| following.and_then(Layer::protocol).unwrap_or(own);
        match layer {
            Layer::Ethernet(repr) => {
                let ethertype = self.ethertype_behind(index).unwrap_or(repr.ethertype);
                prepend(repr.header_length(), inner, |at| EthernetRepr { ethertype, ..*repr }.emit(at))
            }
            Layer::Vlan(repr) => {
                let ethertype = self.ethertype_behind(index).unwrap_or(repr.ethertype);
                prepend(repr.header_length(), inner, |at| VlanRepr { ethertype, ..*repr }.emit(at))
            }
            Layer::Mpls(repr) => prepend(crate::mpls::ENTRY_LENGTH, inner, |at| repr.emit(at)),
            Layer::Ipv4(repr) => {
                let mut repr = repr.clone();
                repr.payload_length = length_field(LayerKind::Ipv4, inner.len())?;
                repr.protocol = protocol_or(repr.protocol);
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::Ipv6(repr) => {
                let payload_length = length_field(LayerKind::Ipv6, inner.len())?;
                let next_header = protocol_or(repr.next_header);
                let repr = Ipv6Repr { payload_length, next_header, ..*repr };
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::HopByHop(repr) => {
                let repr = OptionsRepr { next_header: protocol_or(repr.next_header), ..repr.clone() };
                prepend(repr.header_length(), inner, |at| repr.emit(LayerKind::HopByHopOptions, at))
            }
            Layer::DestinationOptions(repr) => {
                let repr = OptionsRepr { next_header: protocol_or(repr.next_header), ..repr.clone() };
                prepend(repr.header_length(), inner, |at| repr.emit(LayerKind::DestinationOptions, at))
            }
            Layer::Routing(repr) => {
                let repr = RoutingRepr { next_header: protocol_or(repr.next_header), ..repr.clone() };
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::Srh(repr) => {
                let repr = SrhRepr { next_header: protocol_or(repr.next_header), ..repr.clone() };
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::Fragment(repr) => {
                let repr = FragmentRepr { next_header: protocol_or(repr.next_header), ..*repr };
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::IpComp(repr) => {
                let repr = IpCompRepr { next_header: protocol_or(repr.next_header), ..*repr };
                prepend(repr.header_length(), inner, |at| repr.emit(at))
            }
            Layer::Aggfrag(repr) => prepend(repr.header_length(), inner, |at| repr.emit(at)),
            Layer::Udp(_) | Layer::Tcp(_) | Layer::Icmpv4(_) | Layer::Icmpv6(_) => {
                self.enclose_upper_layer(index, layer, inner)
            }
        }
    }

    fn enclose_upper_layer(&self, index: usize, layer: &Layer, inner: Vec<u8>) -> Result<Vec<u8>> {
        match layer {
            Layer::Udp(repr) => {
                let pseudo = self.pseudo_header(index, protocol::UDP);
                let mut packet = vec![0; repr.header_length() + inner.len()];
                repr.emit(&mut packet, &inner, &pseudo)?;
                Ok(packet)
            }
            Layer::Tcp(repr) => {
                let pseudo = self.pseudo_header(index, protocol::TCP);
                let mut packet = vec![0; repr.header_length() + inner.len()];
                repr.emit(&mut packet, &inner, &pseudo)?;
                Ok(packet)
            }
            Layer::Icmpv4(repr) => {
                let mut packet = vec![0; repr.length()];
                repr.emit(&mut packet)?;
                packet.extend_from_slice(&inner);
                fill_icmp_checksum(&mut packet, crate::checksum::checksum);
                Ok(packet)
            }
            Layer::Icmpv6(repr) => {
                let pseudo = self.pseudo_header(index, protocol::ICMPV6);
                let mut packet = vec![0; repr.length()];
                repr.emit(&mut packet, &pseudo)?;
                packet.extend_from_slice(&inner);
                fill_icmp_checksum(&mut packet, |bytes| pseudo.checksum(bytes));
                Ok(packet)
            }
            _ => Ok(inner),
        }
    }

    /// The ethertype of what follows layer number `index`, if that follows from its kind.
    fn ethertype_behind(&self, index: usize) -> Option<u16> {
        match (self.layers.get(index), self.layers.get(index + 1), self.layers.get(index + 2)) {
            (Some(Layer::Ethernet(_)), Some(Layer::Vlan(_)), Some(Layer::Vlan(_))) => Some(ethertype::SERVICE_VLAN),
            (_, following, _) => following.and_then(Layer::ethertype),
        }
    }

    /// The pseudo header for layer number `index`: addresses of the nearest IP header in front; with an SRH between
    /// that has segments left, the destination is its last segment (RFC 8200 section 8.1).
    fn pseudo_header(&self, index: usize, protocol: u8) -> PseudoHeader {
        let mut final_segment = None;
        for layer in self.layers.iter().take(index).rev() {
            let (source, destination): (IpAddr, IpAddr) = match layer {
                // Of several SRHs the one nearest to the upper layer is followed last.
                Layer::Srh(srh) if final_segment.is_none() && srh.segments_left > 0 => {
                    final_segment = srh.segments.first().copied();
                    continue;
                }
                Layer::Ipv4(repr) => (repr.source.into(), repr.destination.into()),
                Layer::Ipv6(repr) => (repr.source.into(), final_segment.unwrap_or(repr.destination).into()),
                _ => continue,
            };
            if let Some(pseudo_header) = PseudoHeader::new(source, destination, protocol) {
                return pseudo_header;
            }
        }
        // No IP header in front: a bare upper-layer packet, whose checksum then covers only itself.
        let unspecified = core::net::Ipv6Addr::UNSPECIFIED;
        PseudoHeader::V6 { source: unspecified, destination: unspecified, next_header: protocol }
    }
}

fn length_field(layer: LayerKind, length: usize) -> Result<u16> {
    fits(layer, "payload length", 0xffff, length as u64)?;
    Ok(length as u16)
}

/// `inner` behind `length` octets that `emit` writes.
fn prepend(length: usize, inner: Vec<u8>, emit: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<u8>> {
    let mut packet = vec![0; length];
    emit(&mut packet)?;
    packet.extend_from_slice(&inner);
    Ok(packet)
}

/// Both ICMPs have their checksum at the same place; it covers the payload that came behind the message too.
fn fill_icmp_checksum(message: &mut [u8], sum: impl FnOnce(&[u8]) -> u16) {
    crate::field::set(message, crate::icmpv6::CHECKSUM, &[0, 0]);
    let sum = sum(message).to_be_bytes();
    crate::field::set(message, crate::icmpv6::CHECKSUM, &sum);
}
