//! What probes send, and what is read from their answers. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_wire::{Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, TcpRepr, tcp::control};

use super::{Token, filter::MAGIC};

/// Octets behind the echo header: magic, the agent's nonce, the token.
const DATA_LENGTH: usize = 16;
/// Hop limit of probes that go through a function.
const HOP_LIMIT: u8 = 64;

/// A link-layer address.
pub type Mac = [u8; 6];

/// ARP request (RFC 826); with the source 0.0.0.0 an ARP probe (RFC 5227).
pub fn arp_request(mac: Mac, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    // Ethertype; Ethernet, IPv4, 6 and 4 octets, request.
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(source.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

/// Who answers an ARP request, from the whole frame.
pub fn arp_reply(frame: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let body = frame.get(14..42)?;
    if frame[12..14] != [0x08, 0x06] || body[..8] != [0, 1, 0x08, 0, 6, 4, 0, 2] {
        return None;
    }
    let address: [u8; 4] = body[14..18].try_into().ok()?;
    Some((address.into(), body[8..14].try_into().ok()?))
}

/// Neighbour solicitation (RFC 4861 section 4.3) without its checksum, which the kernel fills in.
pub fn neighbour_solicitation(mac: Mac, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]);
    message.extend(mac);
    message
}

/// Who answers a neighbour solicitation, from the message; the link-layer address if it is told.
pub fn neighbour_advertisement(message: &[u8]) -> Option<(Ipv6Addr, Option<Mac>)> {
    if *message.first()? != 136 {
        return None;
    }
    let target: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let mut rest = &message[24..];
    let mut mac = None;
    while let [kind, length, ..] = *rest {
        let octets = usize::from(length) * 8;
        let Some(option) = rest.get(..octets).filter(|_| octets > 0) else { break };
        if kind == 2 && length == 1 {
            mac = option[2..8].try_into().ok();
        }
        rest = &rest[octets..];
    }
    Some((target.into(), mac))
}

/// The group on which a neighbour hears solicitations (RFC 4291 section 2.7.1).
pub fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

fn data(nonce: u32, token: Token) -> Vec<u8> {
    let mut data = MAGIC.to_be_bytes().to_vec();
    data.extend(nonce.to_be_bytes());
    data.extend(token.0.to_be_bytes());
    data
}

fn token_of(data: &[u8], nonce: u32) -> Option<Token> {
    let data = data.get(..DATA_LENGTH)?;
    let word = |at: usize| data[at..at + 4].try_into().map(u32::from_be_bytes).ok();
    if word(0)? != MAGIC || word(4)? != nonce {
        return None;
    }
    data[8..].try_into().map(u64::from_be_bytes).ok().map(Token)
}

/// Echo request for a raw ICMP socket.
pub fn echo_request_ipv4(nonce: u32, token: Token) -> Vec<u8> {
    PacketBuilder::new().icmpv4(echo_ipv4(nonce, token)).build()
}

fn echo_ipv4(nonce: u32, token: Token) -> Icmpv4Repr {
    let (identifier, sequence_number) = (identifier(nonce), token.0 as u16);
    Icmpv4Repr::EchoRequest { identifier, sequence_number, data: data(nonce, token) }
}

/// Echo request for a raw ICMPv6 socket, whose checksum the kernel fills in.
pub fn echo_request_ipv6(nonce: u32, token: Token) -> Vec<u8> {
    let mut message = vec![128, 0, 0, 0];
    message.extend(identifier(nonce).to_be_bytes());
    message.extend((token.0 as u16).to_be_bytes());
    message.extend(data(nonce, token));
    message
}

/// The identifier of all echo requests of one agent.
pub fn identifier(nonce: u32) -> u16 {
    (nonce >> 16) as u16
}

/// Which probe an echo reply answers; IPv4: from the IP header on, IPv6: from the ICMPv6 header on.
pub fn echo_reply(bytes: &[u8], ipv4: bool, nonce: u32) -> Option<Token> {
    let message = if ipv4 { bytes.get(usize::from(*bytes.first()? & 15) * 4..)? } else { bytes };
    token_of(message.get(8..)?, nonce)
}

/// A packet that goes through a function: how it looks on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Through {
    /// Own link-layer address.
    pub source_mac: Mac,
    /// The function's.
    pub destination_mac: Mac,
    /// Own address on the side where it goes out.
    pub source: IpAddr,
    /// Own address on the side where it comes back.
    pub destination: IpAddr,
    /// TCP destination port; an echo request without.
    pub port: Option<u16>,
}

impl Through {
    /// The frame; `None` if the addresses are not of one family.
    pub fn frame(&self, nonce: u32, token: Token) -> Option<Vec<u8>> {
        let builder = PacketBuilder::ethernet(MacAddress(self.source_mac), MacAddress(self.destination_mac));
        let tcp = self.port.map(|port| {
            let mut tcp = TcpRepr::new(source_port(token), port, control::SYN);
            tcp.sequence_number = sequence_number(nonce, token);
            tcp
        });
        let builder = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = Ipv4Repr::new(source, destination);
                ip.time_to_live = HOP_LIMIT;
                let builder = builder.ipv4(ip);
                match tcp {
                    Some(tcp) => builder.tcp(tcp),
                    None => builder.icmpv4(echo_ipv4(nonce, token)),
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut ip = Ipv6Repr::new(source, destination);
                ip.hop_limit = HOP_LIMIT;
                let builder = builder.ipv6(ip);
                match tcp {
                    Some(tcp) => builder.tcp(tcp),
                    None => builder.icmpv6(Icmpv6Repr::EchoRequest {
                        identifier: identifier(nonce),
                        sequence_number: token.0 as u16,
                        data: data(nonce, token),
                    }),
                }
            }
            _ => return None,
        };
        Some(builder.build())
    }

    /// Which probe came back, from the IP header on. A function may have changed addresses and ports.
    pub fn returned(packet: &[u8], nonce: u32) -> Option<Came> {
        let (protocol, upper) = match packet.first()? >> 4 {
            4 => (*packet.get(9)?, packet.get(usize::from(packet[0] & 15) * 4..)?),
            6 => (*packet.get(6)?, packet.get(40..)?),
            _ => return None,
        };
        if protocol == 6 {
            let number: [u8; 4] = upper.get(4..8)?.try_into().ok()?;
            return Some(Came::Short(u32::from_be_bytes(number) ^ nonce));
        }
        token_of(upper.get(8..)?, nonce).map(Came::Whole)
    }
}

/// How much of its token a probe brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// All.
    Whole(Token),
    /// [`Token::short`].
    Short(u32),
}

fn sequence_number(nonce: u32, token: Token) -> u32 {
    token.short() ^ nonce
}

/// Another one for each probe, so that a function that keeps state sees new connections.
fn source_port(token: Token) -> u16 {
    0x8000 | (token.short() & 0x7fff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: u32 = 0xdead_beef;
    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    #[test]
    fn arp() {
        let request = arp_request(MAC, "192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_eq!(request.len(), 42);
        assert_eq!(arp_reply(&request), None, "a request is no reply");
        let mut reply = request;
        reply[21] = 2;
        reply[28..32].copy_from_slice(&[192, 0, 2, 2]);
        assert_eq!(arp_reply(&reply), Some(("192.0.2.2".parse().unwrap(), MAC)));
        assert_eq!(arp_reply(&reply[..41]), None);
        assert_eq!(arp_reply(&[]), None);
    }

    #[test]
    fn neighbour_discovery() {
        let target: Ipv6Addr = "2001:db8::12:3456".parse().unwrap();
        assert_eq!(solicited_node(target), "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
        let mut message = neighbour_solicitation(MAC, target);
        assert_eq!(neighbour_advertisement(&message), None);
        message[0] = 136;
        message[24] = 2;
        assert_eq!(neighbour_advertisement(&message), Some((target, Some(MAC))));
        assert_eq!(neighbour_advertisement(&message[..24]), Some((target, None)));
        assert_eq!(neighbour_advertisement(&message[..23]), None);
        message[25] = 0;
        assert_eq!(neighbour_advertisement(&message), Some((target, None)), "an option without a length ends it");
        message[25] = 9;
        assert_eq!(neighbour_advertisement(&message), Some((target, None)), "so does one that is too long");
    }

    #[test]
    fn echo_replies_are_known_by_nonce_and_token() {
        let token = Token::new(7, 1, 0x1234_5678);
        let message = echo_request_ipv6(NONCE, token);
        assert_eq!(echo_reply(&message, false, NONCE), Some(token));
        assert_eq!(echo_reply(&message, false, NONCE + 1), None, "another agent's");
        assert_eq!(echo_reply(&message[..23], false, NONCE), None);
        let mut packet = vec![0x46; 24];
        packet.extend(echo_request_ipv4(NONCE, token));
        assert_eq!(echo_reply(&packet, true, NONCE), Some(token));
        assert_eq!(echo_reply(&[], true, NONCE), None);
    }

    #[test]
    fn what_went_through_is_known_again() {
        let token = Token::new(7, 1, 0x1234_5678);
        for (source, destination) in [("192.0.2.1", "198.51.100.1"), ("2001:db8:1::1", "2001:db8:2::1")] {
            for port in [None, Some(443)] {
                let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
                let through = Through { source_mac: MAC, destination_mac: MAC, source, destination, port };
                let frame = through.frame(NONCE, token).unwrap();
                let came = Through::returned(&frame[14..], NONCE);
                let expected = if port.is_some() { Came::Short(token.short()) } else { Came::Whole(token) };
                assert_eq!(came, Some(expected));
                for length in 0..24 {
                    let _ = Through::returned(&frame[14..14 + length], NONCE);
                }
            }
        }
    }
}
