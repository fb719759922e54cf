//! A whole packet, layer by layer: Ethernet, tags, labels, IP headers and their extensions, to the innermost transport.
//!
//! The walk checks structure only. It does not look at checksums, and an SRH may hold any Last Entry and Segments Left.

use crate::aggfrag::{self, Aggfrag};
use crate::error::{Error, Result, require};
use crate::ethernet::{self, EthernetFrame};
use crate::field::range;
use crate::icmpv6;
use crate::ipcomp::{self, IpComp};
use crate::ipv4::Ipv4Packet;
use crate::ipv6::{self, Ipv6Packet};
use crate::ipv6_extension::HeaderChain;
use crate::layer::{LayerKind, ethertype, protocol};
use crate::mpls::{LabelStack, label};
use crate::srh::Srh;
use crate::tcp::{self, TcpSegment};
use crate::udp::{self, UdpDatagram};
use crate::vlan::{self, VlanTag};
use core::net::IpAddr;

/// Most layers of one packet; a label stack counts as one.
pub const MAX_LAYERS: usize = 32;
/// Most tags in a row.
pub const MAX_VLAN_TAGS: usize = 2;
/// Most IP headers inside one another.
pub const MAX_IP_HEADERS: usize = 4;

/// One layer of a packet. Offsets count octets from the start of the packet that was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it is.
    pub kind: LayerKind,
    /// Offset of its first octet.
    pub offset: usize,
    /// Octets of its header; of all of it for [`LayerKind::Payload`].
    pub length: usize,
    /// Offset behind the last octet that belongs to what it encloses.
    pub end: usize,
}

impl Layer {
    const NONE: Self = Self { kind: LayerKind::Payload, offset: 0, length: 0, end: 0 };

    /// Its header, out of the packet that was parsed.
    pub fn header<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        range(packet, self.offset, self.offset.saturating_add(self.length))
    }

    /// Its header and what it encloses, out of the packet that was parsed.
    pub fn bytes<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        range(packet, self.offset, self.end)
    }
}

/// Addresses, protocol and ports of the innermost IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; with an SRH that has segments left, its last segment.
    pub destination: IpAddr,
    /// Protocol number of the upper layer, behind all extension headers.
    pub protocol: u8,
    /// Source and destination port of TCP or UDP. `None` for other protocols and for fragments but the first.
    pub ports: Option<(u16, u16)>,
}

/// The layers of a packet from the outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    layers: [Layer; MAX_LAYERS],
    count: usize,
    five_tuple: Option<FiveTuple>,
}

impl Layers {
    const fn empty() -> Self {
        Self { layers: [Layer::NONE; MAX_LAYERS], count: 0, five_tuple: None }
    }

    fn push(&mut self, layer: Layer) -> Result<()> {
        let Some(place) = self.layers.get_mut(self.count) else {
            return Err(Error::TooManyHeaders { layer: layer.kind, offset: layer.offset, expected: MAX_LAYERS });
        };
        *place = layer;
        self.count += 1;
        Ok(())
    }

    /// The layers in order.
    pub fn as_slice(&self) -> &[Layer] {
        self.layers.get(..self.count).unwrap_or(&[])
    }

    /// The outermost layer of this kind.
    pub fn first(&self, kind: LayerKind) -> Option<&Layer> {
        self.as_slice().iter().find(|layer| layer.kind == kind)
    }

    /// The innermost layer of this kind.
    pub fn last(&self, kind: LayerKind) -> Option<&Layer> {
        self.as_slice().iter().rev().find(|layer| layer.kind == kind)
    }

    fn ip_headers(&self) -> impl DoubleEndedIterator<Item = &Layer> {
        self.as_slice().iter().filter(|layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6))
    }

    /// The outermost IP header.
    pub fn outer_ip(&self) -> Option<&Layer> {
        self.ip_headers().next()
    }

    /// The innermost IP header; the same as the outermost when there is only one.
    pub fn inner_ip(&self) -> Option<&Layer> {
        self.ip_headers().next_back()
    }

    /// The outermost SRH.
    pub fn srh(&self) -> Option<&Layer> {
        self.first(LayerKind::Srh)
    }

    /// What stands behind the last header that is understood, if anything does.
    pub fn payload(&self) -> Option<&Layer> {
        self.last(LayerKind::Payload)
    }

    /// Addresses, protocol and ports of the innermost IP packet.
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        self.five_tuple
    }
}

/// The layers of an Ethernet frame.
///
/// # Errors
/// The first fault in structure; its offset counts from the start of the frame. Those of the views'
/// `new_checked` and of [`HeaderChain::parse`]; [`Error::TooManyHeaders`] above one of the limits of this module.
pub fn parse_packet(frame: &[u8]) -> Result<Layers> {
    match parse_as_far_as_possible(frame) {
        (layers, None) => Ok(layers),
        (_, Some(error)) => Err(error),
    }
}

/// The layers of a packet that begins with an IPv4 or IPv6 header.
///
/// # Errors
/// As [`parse_packet`].
pub fn parse_ip_packet(packet: &[u8]) -> Result<Layers> {
    match Walk::run(packet, Next::Ip) {
        (layers, None) => Ok(layers),
        (_, Some(error)) => Err(error),
    }
}

/// The layers of an Ethernet frame in front of its first fault, and that fault.
pub fn parse_as_far_as_possible(frame: &[u8]) -> (Layers, Option<Error>) {
    Walk::run(frame, Next::Ethernet)
}

/// What the octets at the cursor are.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    Ethertype(u16),
    /// IPv4 or IPv6 by its version.
    Ip,
    Ipv4,
    Ipv6,
    Protocol {
        number: u8,
        in_ipv6: bool,
    },
    Payload,
}

struct Walk<'a> {
    packet: &'a [u8],
    layers: Layers,
    offset: usize,
    end: usize,
    tags: usize,
    ip_headers: usize,
    /// The chain of the IPv6 packet at hand, if that is a fragment.
    fragment: Option<HeaderChain>,
    /// Set in a first fragment of several, whose upper layer ends early.
    is_first_fragment: bool,
}

impl<'a> Walk<'a> {
    fn run(packet: &'a [u8], start: Next) -> (Layers, Option<Error>) {
        let mut walk = Walk {
            packet,
            layers: Layers::empty(),
            offset: 0,
            end: packet.len(),
            tags: 0,
            ip_headers: 0,
            fragment: None,
            is_first_fragment: false,
        };
        let mut next = start;
        loop {
            match walk.step(next) {
                Ok(Some(following)) => next = following,
                Ok(None) => return (walk.layers, None),
                Err(error) => return (walk.layers, Some(error)),
            }
        }
    }

    fn rest(&self) -> &'a [u8] {
        range(self.packet, self.offset, self.end)
    }

    /// Notes a header of `length` octets at the cursor and moves the cursor behind it.
    fn take(&mut self, kind: LayerKind, length: usize) -> Result<()> {
        self.layers.push(Layer { kind, offset: self.offset, length, end: self.end })?;
        self.offset += length;
        Ok(())
    }

    fn step(&mut self, next: Next) -> Result<Option<Next>> {
        match next {
            Next::Ethernet => {
                let frame = EthernetFrame::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
                self.tags = 0;
                self.take(LayerKind::Ethernet, ethernet::HEADER_LENGTH)?;
                Ok(Some(Next::Ethertype(frame.ethertype())))
            }
            Next::Ethertype(value) if vlan::is_tag(value) => self.vlan().map(Some),
            Next::Ethertype(ethertype::IPV4) => Ok(Some(Next::Ipv4)),
            Next::Ethertype(ethertype::IPV6) => Ok(Some(Next::Ipv6)),
            Next::Ethertype(ethertype::MPLS | ethertype::MPLS_UPSTREAM) => self.mpls().map(Some),
            Next::Ethertype(_) => Ok(Some(Next::Payload)),
            Next::Ip => match crate::field::u8_at(self.rest(), 0) >> 4 {
                4 => Ok(Some(Next::Ipv4)),
                _ => Ok(Some(Next::Ipv6)),
            },
            Next::Ipv4 => self.ipv4().map(Some),
            Next::Ipv6 => self.ipv6().map(Some),
            Next::Protocol { number, in_ipv6 } => {
                self.protocol(number, in_ipv6).map_err(|error| self.name_incomplete_chain(error))
            }
            Next::Payload => {
                let length = self.end.saturating_sub(self.offset);
                if length > 0 {
                    self.take(LayerKind::Payload, length)?;
                }
                Ok(None)
            }
        }
    }

    /// A first IPv6 fragment that lacks octets of its upper-layer header has an error of its own.
    fn name_incomplete_chain(&self, error: Error) -> Error {
        self.fragment.map_or(error, |chain| chain.in_first_fragment(error))
    }

    fn vlan(&mut self) -> Result<Next> {
        let (layer, offset) = (LayerKind::Vlan, self.offset);
        if self.tags == MAX_VLAN_TAGS {
            return Err(Error::TooManyHeaders { layer, offset, expected: MAX_VLAN_TAGS });
        }
        let tag = VlanTag::new_checked(self.rest()).map_err(|error| error.shifted(offset))?;
        self.tags += 1;
        self.take(layer, vlan::TAG_LENGTH)?;
        Ok(Next::Ethertype(tag.ethertype()))
    }

    /// A label stack says nothing about what it encloses, except by an explicit null; otherwise the version nibble
    /// decides, as in every router that hashes over what is below labels.
    fn mpls(&mut self) -> Result<Next> {
        let stack = LabelStack::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
        let bottom = stack.entries().last().map(|entry| entry.label);
        let nibble = crate::field::u8_at(stack.payload(), 0) >> 4;
        self.take(LayerKind::Mpls, stack.length())?;
        Ok(match (bottom, nibble) {
            (Some(label::IPV4_EXPLICIT_NULL), _) => Next::Ipv4,
            (Some(label::IPV6_EXPLICIT_NULL), _) => Next::Ipv6,
            (_, 4) => Next::Ipv4,
            (_, 6) => Next::Ipv6,
            _ => Next::Payload,
        })
    }

    fn count_ip_header(&mut self, layer: LayerKind) -> Result<()> {
        if self.ip_headers == MAX_IP_HEADERS {
            return Err(Error::TooManyHeaders { layer, offset: self.offset, expected: MAX_IP_HEADERS });
        }
        self.ip_headers += 1;
        self.fragment = None;
        self.is_first_fragment = false;
        Ok(())
    }

    fn ipv4(&mut self) -> Result<Next> {
        self.count_ip_header(LayerKind::Ipv4)?;
        let packet = Ipv4Packet::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
        self.end = self.offset + packet.total_length();
        self.is_first_fragment = packet.is_fragment();
        let number = packet.protocol();
        self.layers.five_tuple = Some(FiveTuple {
            source: packet.source().into(),
            destination: packet.destination().into(),
            protocol: number,
            ports: None,
        });
        self.take(LayerKind::Ipv4, packet.header_length())?;
        let is_readable = packet.fragment_offset() == 0;
        Ok(if is_readable { Next::Protocol { number, in_ipv6: false } } else { Next::Payload })
    }

    fn ipv6(&mut self) -> Result<Next> {
        self.count_ip_header(LayerKind::Ipv6)?;
        let start = self.offset;
        let packet = Ipv6Packet::new_checked(self.rest()).map_err(|error| error.shifted(start))?;
        self.end = start + packet.total_length();
        self.take(LayerKind::Ipv6, ipv6::HEADER_LENGTH)?;
        let (chain, error) = HeaderChain::walk(packet.packet());
        for header in chain.headers() {
            self.take(header.kind, header.length)?;
        }
        self.layers.five_tuple = Some(FiveTuple {
            source: packet.source().into(),
            destination: final_destination(&packet, &chain).into(),
            protocol: chain.upper_layer(),
            ports: None,
        });
        if let Some(error) = error {
            return Err(error.shifted(start));
        }
        self.is_first_fragment = chain.fragment().is_some_and(|fragment| !fragment.is_atomic());
        self.fragment = chain.fragment().map(|_| chain);
        let number = chain.upper_layer();
        Ok(if chain.is_non_first_fragment() { Next::Payload } else { Next::Protocol { number, in_ipv6: true } })
    }

    fn protocol(&mut self, number: u8, in_ipv6: bool) -> Result<Option<Next>> {
        match (number, in_ipv6) {
            (protocol::IPV4, _) => return self.encapsulated(Next::Ipv4),
            (protocol::IPV6, _) => return self.encapsulated(Next::Ipv6),
            (protocol::ETHERNET, _) => return self.encapsulated(Next::Ethernet),
            (protocol::MPLS, _) => return self.encapsulated(Next::Ethertype(ethertype::MPLS)),
            (protocol::IPCOMP, _) => {
                IpComp::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
                self.take(LayerKind::IpComp, ipcomp::HEADER_LENGTH)?;
            }
            (protocol::AGGFRAG, _) => {
                Aggfrag::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
                self.take(LayerKind::Aggfrag, aggfrag::HEADER_LENGTH)?;
            }
            (protocol::UDP, _) => return self.udp(),
            (protocol::TCP, _) => self.tcp()?,
            (protocol::ICMPV4, false) => self.icmp(LayerKind::Icmpv4)?,
            (protocol::ICMPV6, true) => self.icmp(LayerKind::Icmpv6)?,
            _ => {}
        }
        Ok(Some(Next::Payload))
    }

    /// A first fragment holds only the beginning of what it encloses, so lengths inside would not fit.
    fn encapsulated(&mut self, next: Next) -> Result<Option<Next>> {
        Ok(Some(if self.is_first_fragment { Next::Payload } else { next }))
    }

    fn udp(&mut self) -> Result<Option<Next>> {
        let (rest, offset) = (self.rest(), self.offset);
        let ports = if self.is_first_fragment {
            require(LayerKind::Udp, udp::HEADER_LENGTH, rest.len()).map_err(|error| error.shifted(offset))?;
            (crate::field::u16_at(rest, 0), crate::field::u16_at(rest, 2))
        } else {
            let datagram = UdpDatagram::new_checked(rest).map_err(|error| error.shifted(offset))?;
            self.end = offset + datagram.length();
            (datagram.source_port(), datagram.destination_port())
        };
        self.set_ports(ports);
        self.take(LayerKind::Udp, udp::HEADER_LENGTH)?;
        match ports.1 {
            udp::PORT_MPLS => self.encapsulated(Next::Ethertype(ethertype::MPLS)),
            _ => Ok(Some(Next::Payload)),
        }
    }

    fn tcp(&mut self) -> Result<()> {
        let segment = TcpSegment::new_checked(self.rest()).map_err(|error| error.shifted(self.offset))?;
        self.set_ports((segment.source_port(), segment.destination_port()));
        self.take(LayerKind::Tcp, segment.header_length().max(tcp::MIN_HEADER_LENGTH))
    }

    fn icmp(&mut self, kind: LayerKind) -> Result<()> {
        let length = icmpv6::HEADER_LENGTH;
        require(kind, length, self.rest().len()).map_err(|error| error.shifted(self.offset))?;
        self.take(kind, length)
    }

    fn set_ports(&mut self, ports: (u16, u16)) {
        if let Some(tuple) = &mut self.layers.five_tuple {
            tuple.ports = Some(ports);
        }
    }
}

/// Where the packet goes after all segments: Segment List\[0\] of the innermost SRH that has segments left.
fn final_destination(packet: &Ipv6Packet<&[u8]>, chain: &HeaderChain) -> core::net::Ipv6Addr {
    let bytes = packet.packet();
    let srhs = chain.headers().iter().rev().filter(|header| header.kind == LayerKind::Srh);
    srhs.filter_map(|header| Srh::new_checked(range(bytes, header.offset, header.end())).ok())
        .find(|srh| srh.segments_left() > 0)
        .and_then(|srh| srh.final_segment())
        .unwrap_or(packet.destination())
}
