//! Echo requests and what comes back: the sockets, and what a message says of a request.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, recvmsg, sendto, socket,
};
use segue_wire::packet::parse_as_far_as_possible;
use segue_wire::{LayerKind, Srh};
use serde::Serialize;

use super::probe::Mark;

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An echo reply.
    EchoReply,
    /// Time Exceeded: a hop on the way.
    TimeExceeded,
    /// Destination Unreachable.
    Unreachable,
    /// Packet Too Big.
    TooBig,
    /// Parameter Problem: code 4 says that the SID takes no echo request (RFC 8754 section 4.3.1.2).
    ParameterProblem,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Which request, from 1.
    pub sequence: u16,
    /// Its hop limit.
    pub hop_limit: u8,
    /// Who answered.
    pub from: Ipv6Addr,
    /// The same by name, where a lab has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it says.
    pub kind: Kind,
    /// Code of an error.
    pub code: u8,
    /// Microseconds from the request to the answer.
    pub time_us: f64,
    /// The active segment of the request where an error was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_segment: Option<Ipv6Addr>,
    /// Segments Left there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_left: Option<u8>,
}

/// What echo requests of a ping have in common.
pub(super) fn identifier(mark: Mark) -> u16 {
    u16::from_be_bytes([mark[8], mark[9]])
}

/// One that sends packets as they are, and one that hears ICMPv6.
pub(super) struct Sockets {
    out: OwnedFd,
    back: OwnedFd,
    /// The address that requests come from.
    pub source: Ipv6Addr,
}

impl Sockets {
    /// Opens them in the namespace of the calling thread.
    pub fn open(first: Ipv6Addr, source: Option<Ipv6Addr>) -> std::io::Result<Self> {
        let source = match source {
            Some(source) => source,
            None => {
                let asked = UdpSocket::bind("[::]:0")?;
                asked.connect((first, 9))?;
                match asked.local_addr()?.ip() {
                    IpAddr::V6(address) => address,
                    IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
                }
            }
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let out = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::Raw)?;
        let back = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        Ok(Self { out, back, source })
    }

    pub fn send(&self, first: Ipv6Addr, packet: &[u8]) -> std::io::Result<()> {
        let to = SockaddrIn6::from(SocketAddrV6::new(first, 0, 0, 0));
        sendto(self.out.as_raw_fd(), packet, &to, MsgFlags::empty())?;
        Ok(())
    }

    /// The answer to a request, if it comes in time.
    pub fn answer(&self, mark: Mark, sequence: u16, begun: Instant, patience: Duration) -> Option<Answer> {
        loop {
            let left = patience.checked_sub(begun.elapsed())?;
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.back.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout).unwrap_or_default() == 0 {
                return None;
            }
            let mut message = vec![0; 65_536];
            let (length, from) = {
                let mut parts = [IoSliceMut::new(&mut message)];
                let received =
                    recvmsg::<SockaddrIn6>(self.back.as_raw_fd(), &mut parts, None, MsgFlags::MSG_DONTWAIT).ok()?;
                (received.bytes, received.address.map(|address| address.ip())?)
            };
            message.truncate(length);
            if let Some(answer) = understood(&message, from, mark, sequence) {
                #[allow(clippy::cast_precision_loss)] // microseconds of a minute
                let time_us = begun.elapsed().as_nanos() as f64 / 1000.0;
                return Some(Answer { time_us, ..answer });
            }
        }
    }
}

/// What an ICMPv6 message says of the request with this mark and number; none if it is about something else.
fn understood(message: &[u8], from: Ipv6Addr, mark: Mark, sequence: u16) -> Option<Answer> {
    let [kind, code] = [*message.first()?, *message.get(1)?];
    let mut answer = Answer {
        sequence,
        hop_limit: 0,
        from,
        name: None,
        kind: Kind::EchoReply,
        code,
        time_us: 0.0,
        active_segment: None,
        segments_left: None,
    };
    // Identifier and sequence number stand in front of the mark in all of them.
    let wanted = [&identifier(mark).to_be_bytes()[..], &sequence.to_be_bytes(), &mark].concat();
    if kind == 129 {
        return (message.get(4..4 + wanted.len())? == wanted).then_some(answer);
    }
    answer.kind = match kind {
        1 => Kind::Unreachable,
        2 => Kind::TooBig,
        3 => Kind::TimeExceeded,
        4 => Kind::ParameterProblem,
        _ => return None,
    };
    let quote = message.get(8..)?;
    if !quote.windows(wanted.len()).any(|window| window == wanted) {
        return None;
    }
    let frame = [&[0; 12][..], &[0x86, 0xdd], quote].concat();
    let (layers, _) = parse_as_far_as_possible(&frame);
    answer.active_segment = quote.get(24..40).and_then(|octets| <[u8; 16]>::try_from(octets).ok()).map(Ipv6Addr::from);
    let srh = layers.first(LayerKind::Srh).and_then(|layer| Srh::new_checked(layer.bytes(&frame)).ok());
    answer.segments_left = srh.map(|srh| srh.segments_left());
    Some(answer)
}

#[cfg(test)]
mod tests {
    use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr};

    use super::*;
    use crate::trace::probe::mark;

    #[test]
    fn answers_are_known_by_their_mark() {
        let mark = mark();
        let (a, b): (Ipv6Addr, Ipv6Addr) = ("fc00:1::".parse().unwrap(), "fc00:2::".parse().unwrap());
        let request = |sequence_number| Icmpv6Repr::EchoRequest {
            identifier: identifier(mark),
            sequence_number,
            data: mark.to_vec(),
        };
        let packet = PacketBuilder::new()
            .ipv6(Ipv6Repr::new(b, a))
            .srh(SrhRepr::new(&[a, b]).with_flags(0x20))
            .icmpv6(request(7))
            .build();
        let wrapped = |repr| PacketBuilder::new().ipv6(Ipv6Repr::new(a, b)).icmpv6(repr).build()[40..].to_vec();
        let error = wrapped(Icmpv6Repr::TimeExceeded { code: 0, packet: packet.clone() });
        let answer = understood(&error, a, mark, 7).unwrap();
        assert_eq!((answer.kind, answer.active_segment, answer.segments_left), (Kind::TimeExceeded, Some(a), Some(1)));
        assert_eq!(understood(&error, a, mark, 8), None, "about another request");
        assert_eq!(understood(&error, a, crate::trace::probe::mark(), 7), None, "about another's");
        let reply = Icmpv6Repr::EchoReply { identifier: identifier(mark), sequence_number: 7, data: mark.to_vec() };
        let reply = wrapped(reply);
        assert_eq!(understood(&reply, b, mark, 7).unwrap().kind, Kind::EchoReply);
        for length in 0..error.len() {
            let _ = understood(&error[..length], a, mark, 7);
        }
        for length in 0..reply.len() {
            assert_eq!(understood(&reply[..length], a, mark, 7), None, "{length} octets");
        }
    }
}
