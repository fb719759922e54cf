//! Which packets belong together.

use std::hash::{Hash, Hasher};

use segue_wire::layer::LayerKind;
use segue_wire::{FiveTuple, Ipv4Packet, Layers, parse_ip_packet};

/// A number for a flow: addresses, protocol and ports of the innermost IP packet, in this direction. Packets of one flow have the same one;
/// two flows may. The fragments of a datagram have that of their addresses and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub u64);

impl FlowKey {
    /// Of the innermost packet of `octets`, which begin with an IP header. Of the octets themselves if there is none.
    #[must_use]
    pub fn of(octets: &[u8]) -> Self {
        let Ok(layers) = parse_ip_packet(octets) else { return hashed(octets.get(..40).unwrap_or(octets)) };
        match layers.five_tuple() {
            // Only the first fragment has ports.
            Some(tuple) if is_fragment(octets, &layers) => Self::of_tuple(&FiveTuple { ports: None, ..tuple }),
            Some(tuple) => Self::of_tuple(&tuple),
            None => hashed(octets.get(..40).unwrap_or(octets)),
        }
    }

    /// Of a five-tuple.
    #[must_use]
    pub fn of_tuple(tuple: &FiveTuple) -> Self {
        hashed(tuple)
    }

    /// Which of `count` workers has this flow.
    #[must_use]
    pub fn worker(self, count: usize) -> usize {
        // The upper bits of the product: all bits of the key have a part in it.
        usize::try_from((u128::from(self.0) * count as u128) >> 64).unwrap_or(0)
    }
}

fn is_fragment(octets: &[u8], layers: &Layers) -> bool {
    let Some(inner) = layers.inner_ip() else { return false };
    match inner.kind {
        LayerKind::Ipv4 => Ipv4Packet::new_checked(inner.bytes(octets)).is_ok_and(|packet| packet.is_fragment()),
        _ => layers.last(LayerKind::Fragment).is_some_and(|fragment| fragment.offset > inner.offset),
    }
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
