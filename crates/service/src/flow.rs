//! Which packets belong together.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use segue_wire::layer::protocol;
use segue_wire::{FiveTuple, HeaderChain, Ipv4Packet, Ipv6Packet, Srh, ethernet};

/// IP headers inside one another that are looked at.
const DEPTH: usize = 4;
/// SCTP's protocol number: its ports are where those of TCP and UDP are.
const SCTP: u8 = 132;

/// A number for a flow: addresses, protocol and ports of the innermost IP packet, in this direction. Packets of one flow have the same one;
/// two flows may. The fragments of a datagram have that of their addresses and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub u64);

impl FlowKey {
    /// Of the innermost packet of `octets`, which begin with an IP header and may be cut. Of the octets themselves if there is none.
    #[must_use]
    pub fn of(octets: &[u8]) -> Self {
        match five_tuple(octets) {
            Some(tuple) => Self::of_tuple(&tuple),
            None => hashed(octets.get(..40).unwrap_or(octets)),
        }
    }

    /// Of a five-tuple.
    #[must_use]
    pub fn of_tuple(tuple: &FiveTuple) -> Self {
        hashed(tuple)
    }

    /// Of the way that a steered packet takes: source and flow label of the outer header.
    #[must_use]
    pub fn of_way(octets: &[u8]) -> Self {
        let source = octets.get(8..24);
        let label = octets.get(1..4).map(|octets| [octets[0] & 0x0f, octets[1], octets[2]]);
        hashed(&(source, label))
    }

    /// Which of `count` workers has this flow.
    #[must_use]
    pub fn worker(self, count: usize) -> usize {
        // The upper bits of the product: all bits of the key have a part in it.
        usize::try_from((u128::from(self.0) * count as u128) >> 64).unwrap_or(0)
    }
}

/// Addresses, protocol and ports of the innermost IP packet of `octets`, which begin with an IP header and may be cut behind the last header
/// that is looked at. No ports: no protocol with ports, a fragment (whose rest has none), or they were cut off. None: no IP packet.
#[must_use]
pub fn five_tuple(octets: &[u8]) -> Option<FiveTuple> {
    let mut tuple = None;
    let mut rest = octets;
    for _ in 0..DEPTH {
        let Some((found, inner)) = ip(rest) else { break };
        tuple = Some(found);
        let Some(inner) = inner else { break };
        rest = inner;
    }
    tuple
}

/// One IP header, and the IP packet inside if there is one.
fn ip(octets: &[u8]) -> Option<(FiveTuple, Option<&[u8]>)> {
    let (source, destination, protocol, at, is_fragment): (IpAddr, IpAddr, u8, usize, bool) = match octets.first()? >> 4
    {
        4 => {
            let packet = Ipv4Packet::new_quoted(octets).ok()?;
            let addresses = (packet.source().into(), packet.destination().into());
            (addresses.0, addresses.1, packet.protocol(), packet.header_length(), packet.is_fragment())
        }
        _ => {
            let packet = Ipv6Packet::new_quoted(octets).ok()?;
            let (source, destination) = (packet.source().into(), packet.destination());
            let Ok(chain) = HeaderChain::parse(&packet) else {
                let protocol = packet.next_header();
                let destination = destination.into();
                return Some((FiveTuple { source, destination, protocol, ports: None }, None));
            };
            let srh = chain.srh().and_then(|header| Srh::new_checked(octets.get(header.offset..header.end())?).ok());
            let last = srh.filter(|srh| srh.segments_left() > 0).and_then(|srh| srh.final_segment());
            let is_fragment = chain.fragment().is_some_and(|fragment| !fragment.is_atomic());
            let destination = last.unwrap_or(destination).into();
            (source, destination, chain.upper_layer(), chain.upper_layer_offset(), is_fragment)
        }
    };
    let upper = octets.get(at..).unwrap_or_default();
    let mut tuple = FiveTuple { source, destination, protocol, ports: None };
    if is_fragment {
        return Some((tuple, None));
    }
    let inner = match protocol {
        protocol::IPV4 | protocol::IPV6 => Some(upper),
        protocol::ETHERNET => upper.get(ethernet::HEADER_LENGTH..),
        protocol::TCP | protocol::UDP | SCTP => {
            tuple.ports = upper
                .first_chunk::<4>()
                .map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
            None
        }
        _ => None,
    };
    Some((tuple, inner.filter(|inner| !inner.is_empty())))
}

fn hashed<T: Hash + ?Sized>(value: &T) -> FlowKey {
    let mut hasher = Mix(0x9e37_79b9_7f4a_7c15);
    value.hash(&mut hasher);
    FlowKey(hasher.finish())
}

/// The same in every process, unlike the standard library's, and cheaper; it need not withstand who chooses keys: flows are only spread by it.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        let mut word = self.0;
        word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        word ^ (word >> 33)
    }
}
