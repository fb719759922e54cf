//! Whether it is worth trying to compress the next packet of a flow (RFC 3173 section 2.2).

use segue_wire::layer::protocol;
use std::ops::Range;

/// What is remembered of one flow, or of several whose keys fall together: a wrong guess costs an attempt, nothing else.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Which flow it is, by bits of the key that did not choose the slot.
    tag: u32,
    /// Packets that are not tried before the next one is.
    skip: u16,
    /// Attempts without success since the last that had any.
    failures: u8,
}

/// Remembers, in a table that does not grow, which flows did not shrink lately.
///
/// After the first packet that does not shrink one packet is not tried, after the second three, and so on up to `longest`; then the next
/// is a probe. One that shrinks ends this.
pub struct Effort {
    slots: Vec<Slot>,
    longest: u16,
}

/// A number for the flow of a payload with this protocol number: of its addresses, protocol, and the octets where TCP and UDP have
/// ports. Cheaper than a walk over all headers, and good enough: two flows with one number only share a guess.
#[must_use]
pub fn flow_of(number: u8, payload: &[u8]) -> u64 {
    let header_length = match number {
        protocol::IPV4 => payload.first().map_or(0, |first| usize::from(first & 15) * 4),
        protocol::IPV6 => 40,
        _ => 14,
    };
    let (addresses, upper_layer) = match number {
        protocol::IPV4 => (12..20, 9),
        protocol::IPV6 => (8..40, 6),
        _ => (0..14, 13),
    };
    let octets = |range: Range<usize>| payload.get(range).unwrap_or_default();
    let mix = |hash: u64, chunk: &[u8]| {
        let word = chunk.iter().fold(0, |word, octet| word << 8 | u64::from(*octet));
        (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    let hash = octets(addresses).chunks(8).fold(u64::from(number), mix);
    let hash = mix(hash, octets(upper_layer..upper_layer + 1));
    let hash = mix(hash, octets(header_length..header_length + 4));
    // The slot is chosen by the lower bits: all others have a part in them.
    hash ^ hash >> 32
}

/// Slots of the table: 32 KiB.
const SLOTS: usize = 4096;

impl Effort {
    /// Nothing is known yet. `longest`: most packets of a flow that are not tried between two attempts; 0 tries each.
    #[must_use]
    pub fn new(longest: u16) -> Self {
        Self { slots: vec![Slot::default(); SLOTS], longest }
    }

    fn slot(&mut self, flow: u64) -> (&mut Slot, u32) {
        let index = (flow % SLOTS as u64) as usize;
        (&mut self.slots[index], (flow >> 32) as u32)
    }

    /// Whether the next packet of this flow is to be tried.
    pub fn is_worth(&mut self, flow: u64) -> bool {
        let (slot, tag) = self.slot(flow);
        if slot.tag != tag || slot.skip == 0 {
            return true;
        }
        slot.skip -= 1;
        false
    }

    /// Notes how an attempt ended.
    pub fn note(&mut self, flow: u64, shrank: bool) {
        let longest = self.longest;
        let (slot, tag) = self.slot(flow);
        if slot.tag != tag {
            // A flow that shrinks needs no memory, and takes none from one that does not.
            if shrank {
                return;
            }
            *slot = Slot { tag, ..Slot::default() };
        }
        slot.failures = if shrank { 0 } else { slot.failures.saturating_add(1).min(15) };
        slot.skip = ((1_u32 << slot.failures) - 1).min(longest.into()) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(effort: &mut Effort, flow: u64, packets: usize, shrinks: bool) -> usize {
        (0..packets)
            .filter(|_| {
                let tried = effort.is_worth(flow);
                if tried {
                    effort.note(flow, shrinks);
                }
                tried
            })
            .count()
    }

    #[test]
    fn attempts_become_rare_and_do_not_end() {
        let mut effort = Effort::new(63);
        let flow = 0x1234_5678_0000_0001;
        // Attempts at packets 1, 3, 7, 15, 31, 63 and then each 64th.
        assert_eq!(attempts(&mut effort, flow, 63, false), 6);
        assert_eq!(attempts(&mut effort, flow, 640, false), 10);
        // Another flow in the same slot is tried at once.
        assert!(effort.is_worth(0x9999_0000_0000_0001));
    }

    #[test]
    fn one_success_ends_it() {
        let mut effort = Effort::new(63);
        attempts(&mut effort, 7, 1000, false);
        while !effort.is_worth(7) {}
        effort.note(7, true);
        assert_eq!(attempts(&mut effort, 7, 100, true), 100);
    }

    #[test]
    fn flows_have_different_numbers_and_packets_of_one_the_same() {
        use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};
        let packet = |ipv6: bool, port: u16, length: usize| {
            let builder = PacketBuilder::new();
            let builder = if ipv6 { builder.ipv6(Ipv6Repr::default()) } else { builder.ipv4(Ipv4Repr::default()) };
            builder.udp(UdpRepr::new(port, 53)).payload(&vec![7; length]).build()
        };
        for (ipv6, number) in [(false, protocol::IPV4), (true, protocol::IPV6)] {
            let slots: std::collections::BTreeSet<_> =
                (0..1000).map(|port| flow_of(number, &packet(ipv6, port, 9)) % SLOTS as u64).collect();
            // 1,000 numbers at random fall on 887 of 4,096 slots.
            assert!(slots.len() > 800, "{} slots for 1,000 flows", slots.len());
            assert_eq!(flow_of(number, &packet(ipv6, 5, 9)), flow_of(number, &packet(ipv6, 5, 900)));
        }
        assert_eq!(flow_of(protocol::IPV4, &[]), flow_of(protocol::IPV4, &[]));
    }

    #[test]
    fn zero_tries_each() {
        assert_eq!(attempts(&mut Effort::new(0), 7, 100, false), 100);
    }
}
