//! The probe: one marked packet, sent by the kernel of a host.

use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};
use segue_wire::packet::parse_as_far_as_possible;
use segue_wire::tcp::control::SYN;
use segue_wire::{
    Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, LayerKind, PacketBuilder, SrhRepr, TcpRepr, UdpRepr, protocol, summary,
};

use super::event::{Flow, What};
use crate::error::{LabError, Result};
use crate::random::Random;

/// Octets that no other packet has in its payload.
pub type Mark = [u8; 16];

/// A mark for one trace.
#[must_use]
pub fn mark() -> Mark {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    #[allow(clippy::cast_possible_truncation)] // the lower half changes fastest
    let mut random = Random::new(time.as_nanos() as u64 ^ u64::from(std::process::id()));
    let mut mark = *b"segue-trace-....";
    mark[8..].copy_from_slice(&random.number().to_be_bytes());
    mark
}

/// The packet, from its IP header on.
///
/// # Errors
/// If the flow cannot be a packet: addresses of two families, a protocol that is none of TCP, UDP and ICMP, a length that does not fit.
pub fn packet(flow: &Flow, mark: &Mark) -> Result<Vec<u8>> {
    let wrong =
        |what: String, remedy: &str| LabError::Exchange { place: "the probe".into(), what, remedy: remedy.to_owned() };
    let (traffic_class, hop_limit) = (flow.dscp << 2, flow.hop_limit);
    let packet = match (flow.source, flow.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let first = flow.segments.first().copied().unwrap_or(destination);
            let flow_label = flow.flow_label;
            let header = Ipv6Repr { traffic_class, flow_label, hop_limit, ..Ipv6Repr::new(source, first) };
            let packet = PacketBuilder::new().ipv6(header);
            if flow.segments.is_empty() {
                packet
            } else {
                let path: Vec<_> = flow.segments.iter().copied().chain([destination]).collect();
                if path.len() > 127 {
                    return Err(wrong("an SRH has no room for so many segments".into(), "give at most 126"));
                }
                packet.srh(SrhRepr::new(&path))
            }
        }
        (IpAddr::V4(_), _) if !flow.segments.is_empty() => {
            return Err(wrong("an IPv4 packet has no SRH".into(), "give IPv6 addresses, or no segments"));
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => PacketBuilder::new().ipv4(Ipv4Repr {
            type_of_service: traffic_class,
            time_to_live: hop_limit,
            // So that a link that is too narrow says so.
            dont_fragment: true,
            source,
            destination,
            ..Ipv4Repr::default()
        }),
        (source, destination) => {
            let what = format!("{source} and {destination} are of two address families");
            return Err(wrong(what, "give a source and a destination of one family"));
        }
    };
    let (source_port, destination_port) = (flow.source_port, flow.destination_port);
    let packet = match (flow.protocol, flow.destination.is_ipv6()) {
        (protocol::UDP, _) => packet.udp(UdpRepr::new(source_port, destination_port)),
        (protocol::TCP, _) => packet.tcp(TcpRepr::new(source_port, destination_port, SYN)),
        (protocol::ICMPV6, true) => {
            packet.icmpv6(Icmpv6Repr::EchoRequest { identifier: source_port, sequence_number: 1, data: Vec::new() })
        }
        (protocol::ICMPV4, false) => {
            packet.icmpv4(Icmpv4Repr::EchoRequest { identifier: source_port, sequence_number: 1, data: Vec::new() })
        }
        (other, _) => {
            return Err(wrong(format!("a probe of protocol {other} is not possible"), "choose tcp, udp or icmp"));
        }
    };
    let shortest = packet.clone().payload(mark).try_build().map_or(0, |bytes| bytes.len());
    let mut payload = mark.to_vec();
    payload.resize(payload.len() + flow.length.saturating_sub(shortest), b'.');
    packet.payload(&payload).try_build().map_err(|error| wrong(error.to_string(), "choose a shorter one"))
}

/// Sends it from the namespace that the calling thread is in; the kernel routes it as any packet of its own.
///
/// # Errors
/// What the kernel says, such as that there is no route or that it is too long for the link.
pub fn send(packet: &[u8], destination: IpAddr) -> nix::Result<()> {
    let make = |family| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
    let sent = match destination {
        // IPPROTO_RAW: the packet has its own header.
        IpAddr::V6(address) => {
            let socket = make(AddressFamily::Inet6)?;
            let to = SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, 0));
            sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty())
        }
        IpAddr::V4(address) => {
            let socket = make(AddressFamily::Inet)?;
            let to = SockaddrIn::from(SocketAddrV4::new(address, 0));
            sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty())
        }
    };
    sent.map(|_| ())
}

/// What a frame with the mark is, whether it has a steering header, and its headers in one line. None without the mark.
#[must_use]
pub fn recognise(frame: &[u8], mark: &Mark, flow: &Flow) -> Option<(What, bool, String)> {
    if !frame.windows(mark.len()).any(|window| window == mark) {
        return None;
    }
    let (layers, _) = parse_as_far_as_possible(frame);
    let kind = |kind: LayerKind| layers.first(kind).and_then(|layer| layer.header(frame).first().copied());
    // What the destination itself says of it, a port that nobody listens on included, is an answer.
    let back =
        layers.five_tuple().is_some_and(|found| found.source == flow.destination && found.destination == flow.source);
    let what = match (kind(LayerKind::Icmpv6), kind(LayerKind::Icmpv4)) {
        _ if back => What::Reply,
        (Some(kind), _) if kind < 128 => What::Error,
        (_, Some(3 | 4 | 5 | 11 | 12)) => What::Error,
        _ => What::Probe,
    };
    let labelled = layers.first(LayerKind::Mpls).is_some();
    let steered = labelled || layers.srh().is_some() || layers.outer_ip() != layers.inner_ip();
    Some((what, steered, summary(frame).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow {
            from: "client".into(),
            source: "2001:db8:1::2".parse().unwrap(),
            destination: "2001:db8:2::2".parse().unwrap(),
            protocol: protocol::UDP,
            source_port: 40_000,
            destination_port: 80,
            dscp: 46,
            flow_label: 0x12345,
            hop_limit: 64,
            segments: Vec::new(),
            length: 0,
        }
    }

    #[test]
    fn a_probe_is_what_was_asked_for() {
        let mark = mark();
        for (protocol, length) in [(protocol::UDP, 0), (protocol::TCP, 1400), (protocol::ICMPV6, 100)] {
            let flow = Flow { protocol, length, ..flow() };
            let packet = packet(&flow, &mark).unwrap();
            assert_eq!(packet[0..4], [0x6b, 0x81, 0x23, 0x45], "version, DSCP, flow label");
            assert!(packet.len() >= length && (length == 0 || packet.len() == length));
            let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd][..], &packet].concat();
            let (what, steered, headers) = recognise(&frame, &mark, &flow).unwrap();
            assert_eq!((what, steered), (What::Probe, false), "{headers}");
            assert_eq!(recognise(&frame, &super::mark(), &flow), None, "another trace's");
        }
        let two = Flow { destination: "10.0.0.1".parse().unwrap(), ..flow() };
        assert!(packet(&two, &mark).unwrap_err().to_string().contains("two address families"));
        let odd = Flow { protocol: 132, ..flow() };
        assert!(packet(&odd, &mark).unwrap_err().to_string().contains("choose tcp, udp or icmp"));
    }

    #[test]
    fn steered_probes_errors_and_answers_are_told_apart() {
        let mark = mark();
        let flow = flow();
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (flow.source, flow.destination) else { panic!() };
        let node = "fc00::1".parse().unwrap();
        let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let steered = ethernet()
            .ipv6(Ipv6Repr::new(node, node))
            .srh(SrhRepr::reduced(&[node, node]))
            .inner_ipv6(Ipv6Repr::new(source, destination))
            .udp(UdpRepr::new(40_000, 80))
            .payload(&mark)
            .build();
        let (what, with, _) = recognise(&steered, &mark, &flow).unwrap();
        assert_eq!((what, with), (What::Probe, true));
        let quoted = packet(&flow, &mark).unwrap();
        let error = ethernet()
            .ipv6(Ipv6Repr::new(node, source))
            .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1400, packet: quoted })
            .build();
        assert_eq!(recognise(&error, &mark, &flow).unwrap().0, What::Error);
        let reply = ethernet()
            .ipv6(Ipv6Repr::new(destination, source))
            .icmpv6(Icmpv6Repr::EchoReply { identifier: 1, sequence_number: 1, data: mark.to_vec() })
            .build();
        assert_eq!(recognise(&reply, &mark, &flow).unwrap().0, What::Reply);
        let closed = ethernet()
            .ipv6(Ipv6Repr::new(destination, source))
            .icmpv6(Icmpv6Repr::DestinationUnreachable { code: 4, packet: packet(&flow, &mark).unwrap() })
            .build();
        assert_eq!(recognise(&closed, &mark, &flow).unwrap().0, What::Reply);
    }
}
