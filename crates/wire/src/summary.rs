//! One line of text per packet, for people who read packet traces.

use crate::error::Error;
use crate::ethernet::EthernetFrame;
use crate::field::u16_at;
use crate::icmpv4::{self, Icmpv4Message};
use crate::icmpv6::{self, Icmpv6Message};
use crate::ipcomp::IpComp;
use crate::ipv4::Ipv4Packet;
use crate::ipv6::Ipv6Packet;
use crate::ipv6_extension::FragmentRepr;
use crate::layer::LayerKind;
use crate::mpls::LabelStack;
use crate::packet::{Layer, Layers, parse_as_far_as_possible};
use crate::srh::Srh;
use crate::tcp::{TcpSegment, control};
use crate::vlan::VlanTag;
use alloc::vec::Vec;
use core::fmt;

/// A packet that displays as one line, for example
/// `fd00::1 > fcbb:0:2:e000::, SRH [fcbb:0:3:d::, fcbb:0:2:e000::] SL 1, IPv4 10.1.0.2 > 10.2.0.2 TCP 40000 > 80 [S]`.
///
/// Segments are listed as they stand in the SRH, the last one of the path first, so that entry number SL is the active
/// one. A packet with a fault shows what is in front of the fault, then the fault in brackets.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    packet: &'a [u8],
    layers: Layers,
    error: Option<Error>,
    /// Octets that are known; what lies behind them is not.
    known: usize,
}

/// The summary of an Ethernet frame.
pub fn summary(frame: &[u8]) -> Summary<'_> {
    Summary::of(frame, frame.len())
}

/// Longer than any frame: a length that somebody made up does not cost more memory than this.
const LONGEST: usize = 1 << 18;

/// The beginning of an Ethernet frame that was longer, for example the first 192 octets of one of 9000. What it displays is what
/// [`summary`] would say of the frame, as far as the headers are known; that the rest is missing is no fault of the packet.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The frame in its whole length, with zeros for what is not known.
    frame: Vec<u8>,
    known: usize,
}

impl Snapshot {
    /// The octets that were kept of a frame of `length` octets.
    pub fn new(kept: &[u8], length: usize) -> Self {
        let mut frame = kept.to_vec();
        frame.resize(length.clamp(kept.len(), LONGEST.max(kept.len())), 0);
        Self { frame, known: kept.len() }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Summary::of(&self.frame, self.known).fmt(f)
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut previous = None;
        let outer_ip = self.layers.outer_ip().map(|layer| layer.offset);
        let mut is_cut = false;
        for layer in self.layers.as_slice() {
            if !self.is_known(layer) {
                is_cut = true;
                break;
            }
            if !self.is_shown(layer, previous) {
                continue;
            }
            f.write_str(separator(previous, layer.kind))?;
            self.write_layer(f, layer, outer_ip == Some(layer.offset))?;
            previous = Some(layer.kind);
        }
        // A fault in octets that are not known is none.
        let is_cut = is_cut || self.error.and_then(|error| error.offset()).is_some_and(|offset| offset >= self.known);
        match self.error {
            _ if is_cut => {
                let space = if previous.is_some() { " " } else { "" };
                write!(f, "{space}[headers go on behind the first {} bytes]", self.known)
            }
            Some(error) if previous.is_some() => write!(f, " [{error}]"),
            Some(error) => write!(f, "[{error}]"),
            None => Ok(()),
        }
    }
}

/// Like tcpdump, a transport header continues the addresses in front of it.
fn separator(previous: Option<LayerKind>, kind: LayerKind) -> &'static str {
    use LayerKind::{Icmpv4, Icmpv6, Ipv4, Ipv6, Tcp, Udp};
    match (previous, kind) {
        (None, _) => "",
        (Some(Ipv4 | Ipv6), Udp | Tcp | Icmpv4 | Icmpv6) => " ",
        _ => ", ",
    }
}

impl<'a> Summary<'a> {
    fn of(packet: &'a [u8], known: usize) -> Self {
        let (layers, error) = parse_as_far_as_possible(packet);
        Self { packet, layers, error, known }
    }

    /// Whether all of a header is known; of a payload nothing but its length is shown.
    fn is_known(&self, layer: &Layer) -> bool {
        let needed = if layer.kind == LayerKind::Payload { 0 } else { layer.length };
        layer.offset.saturating_add(needed) <= self.known
    }

    /// Ethernet addresses say little about a routed packet, and a transport's payload nothing here.
    fn is_shown(&self, layer: &Layer, previous: Option<LayerKind>) -> bool {
        use LayerKind::{Ethernet, Icmpv4, Icmpv6, Payload, Tcp, Udp};
        match layer.kind {
            Ethernet => layer.offset != 0 || self.layers.outer_ip().is_none(),
            Payload => !matches!(previous, Some(Udp | Tcp | Icmpv4 | Icmpv6)),
            _ => true,
        }
    }

    fn write_layer(&self, f: &mut fmt::Formatter<'_>, layer: &Layer, is_outer_ip: bool) -> fmt::Result {
        let bytes = layer.bytes(self.packet);
        match layer.kind {
            LayerKind::Ethernet => write_view(f, EthernetFrame::new_checked(bytes), |f, frame| {
                let ethertype = frame.ethertype();
                write!(f, "Ethernet {} > {} ethertype {ethertype:#06x}", frame.source(), frame.destination())
            }),
            LayerKind::Vlan => write_view(f, VlanTag::new_checked(bytes), |f, tag| write!(f, "vlan {}", tag.vlan_id())),
            LayerKind::Mpls => write_view(f, LabelStack::new_checked(bytes), write_labels),
            LayerKind::Ipv4 => write_view(f, Ipv4Packet::new_checked(bytes), |f, packet| {
                let prefix = if is_outer_ip { "" } else { "IPv4 " };
                write!(f, "{prefix}{} > {}", packet.source(), packet.destination())?;
                if packet.is_fragment() {
                    f.write_str(", ")?;
                    write_fragment(f, packet.fragment_offset(), packet.more_fragments())?;
                }
                Ok(())
            }),
            LayerKind::Ipv6 => write_view(f, Ipv6Packet::new_checked(bytes), |f, packet| {
                let prefix = if is_outer_ip { "" } else { "IPv6 " };
                write!(f, "{prefix}{} > {}", packet.source(), packet.destination())
            }),
            LayerKind::Srh => write_view(f, Srh::new_checked(bytes), write_srh),
            LayerKind::Fragment => write_view(f, FragmentRepr::parse(bytes), |f, fragment| {
                write_fragment(f, fragment.fragment_offset, fragment.more_fragments)
            }),
            LayerKind::IpComp => {
                write_view(f, IpComp::new_checked(bytes), |f, header| write!(f, "IPComp CPI {}", header.cpi()))
            }
            LayerKind::Udp => {
                // A first fragment ends in front of the datagram's Length; its ports are there all the same.
                write!(f, "UDP {} > {}", u16_at(bytes, 0), u16_at(bytes, 2))
            }
            LayerKind::Tcp => write_view(f, TcpSegment::new_checked(bytes), write_tcp),
            LayerKind::Icmpv4 => write_view(f, Icmpv4Message::new_checked(bytes), |f, message| {
                write_icmpv4(f, message.message_type(), message.code())
            }),
            LayerKind::Icmpv6 => write_view(f, Icmpv6Message::new_checked(bytes), write_icmpv6),
            LayerKind::Payload => match self.layers.five_tuple() {
                Some(tuple) => write!(f, "protocol {} {} bytes", tuple.protocol, layer.length),
                None => write!(f, "{} bytes", layer.length),
            },
            other => write!(f, "{other}"),
        }
    }
}

/// Writes a view with `write`; the walk has checked every layer, so there always is one.
fn write_view<V>(
    f: &mut fmt::Formatter<'_>,
    view: crate::error::Result<V>,
    write: impl FnOnce(&mut fmt::Formatter<'_>, V) -> fmt::Result,
) -> fmt::Result {
    match view {
        Ok(view) => write(f, view),
        Err(error) => write!(f, "[{error}]"),
    }
}

fn write_fragment(f: &mut fmt::Formatter<'_>, offset: u16, more: bool) -> fmt::Result {
    let sign = if more { "+" } else { "" };
    write!(f, "fragment at {offset}{sign}")
}

fn write_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{item}")?;
    }
    f.write_str("]")
}

fn write_labels(f: &mut fmt::Formatter<'_>, stack: LabelStack<&[u8]>) -> fmt::Result {
    f.write_str("MPLS ")?;
    write_list(f, stack.entries().map(|entry| entry.label))?;
    match stack.entries().next() {
        Some(top) => write!(f, " TTL {}", top.time_to_live),
        None => Ok(()),
    }
}

fn write_srh(f: &mut fmt::Formatter<'_>, srh: Srh<&[u8]>) -> fmt::Result {
    f.write_str("SRH ")?;
    write_list(f, srh.segment_list())?;
    write!(f, " SL {}", srh.segments_left())
}

fn write_tcp(f: &mut fmt::Formatter<'_>, segment: TcpSegment<&[u8]>) -> fmt::Result {
    write!(f, "TCP {} > {} [", segment.source_port(), segment.destination_port())?;
    let letters = [
        (control::FIN, "F"),
        (control::SYN, "S"),
        (control::RST, "R"),
        (control::PSH, "P"),
        (control::ACK, "."),
        (control::URG, "U"),
        (control::ECE, "E"),
        (control::CWR, "W"),
    ];
    let bits = segment.control_bits();
    if bits == 0 {
        f.write_str("none")?;
    }
    for (_, letter) in letters.iter().filter(|(bit, _)| bits & bit != 0) {
        f.write_str(letter)?;
    }
    f.write_str("]")
}

fn write_icmpv4(f: &mut fmt::Formatter<'_>, message_type: u8, code: u8) -> fmt::Result {
    use icmpv4::message_type as types;
    match message_type {
        types::ECHO_REQUEST => f.write_str("ICMP echo request"),
        types::ECHO_REPLY => f.write_str("ICMP echo reply"),
        types::DESTINATION_UNREACHABLE => write!(f, "ICMP destination unreachable code {code}"),
        types::TIME_EXCEEDED => write!(f, "ICMP time exceeded code {code}"),
        _ => write!(f, "ICMP type {message_type} code {code}"),
    }
}

fn write_icmpv6(f: &mut fmt::Formatter<'_>, message: Icmpv6Message<&[u8]>) -> fmt::Result {
    use icmpv6::message_type as types;
    let (code, word) = (message.code(), message.word());
    match message.message_type() {
        types::ECHO_REQUEST => f.write_str("ICMPv6 echo request"),
        types::ECHO_REPLY => f.write_str("ICMPv6 echo reply"),
        types::DESTINATION_UNREACHABLE => write!(f, "ICMPv6 destination unreachable code {code}"),
        types::PACKET_TOO_BIG => write!(f, "ICMPv6 packet too big MTU {word}"),
        types::TIME_EXCEEDED => write!(f, "ICMPv6 time exceeded code {code}"),
        types::PARAMETER_PROBLEM => write!(f, "ICMPv6 parameter problem code {code} pointer {word}"),
        other => write!(f, "ICMPv6 type {other} code {code}"),
    }
}
