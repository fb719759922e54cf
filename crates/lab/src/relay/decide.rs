//! What becomes of each packet of one direction of a link: a function of seed, link, direction and the packet's number. Pure.

use std::time::Duration;

use segue_model::topology::Impairment;

use crate::random::Random;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// It does not arrive.
    pub lost: bool,
    /// It arrives twice.
    pub twice: bool,
    /// It arrives behind the next one.
    pub behind: bool,
    /// How long it is on the way.
    pub delay: Duration,
}

/// The fates of the packets of one direction, in order.
#[derive(Debug, Clone)]
pub struct Fates {
    impairment: Impairment,
    random: Random,
}

impl Fates {
    /// Of a link by its number in the topology, in the direction from its first (0) or second (1) end.
    #[must_use]
    pub fn new(impairment: &Impairment, link: u64, direction: u64) -> Self {
        // Links with one seed, and the two directions, do not lose the same packets.
        let mut seeds = Random::new(impairment.seed);
        let stream = seeds.number().wrapping_add((2 * link + direction).wrapping_mul(0xd134_2543_de82_ef95));
        Self { impairment: impairment.clone(), random: Random::new(stream) }
    }

    /// The next packet's. Each takes as many numbers as any other, so that a changed rate of one kind does not change who is hit by another.
    pub fn next_fate(&mut self) -> Fate {
        let mut hit = |percent: f64| self.random.fraction() * 100.0 < percent;
        let lost = hit(self.impairment.loss_percent);
        let twice = hit(self.impairment.duplicate_percent);
        let behind = hit(self.impairment.reorder_percent);
        let jitter = (2.0 * self.random.fraction() - 1.0) * self.impairment.jitter_ms;
        let delay = (self.impairment.delay_ms + jitter).max(0.0);
        Fate { lost, twice, behind, delay: Duration::from_secs_f64(delay / 1000.0) }
    }

    /// That of what a link needs for itself: it is on the way as long as others, and arrives.
    #[must_use]
    pub fn of_the_link_itself(&self) -> Fate {
        let delay = Duration::from_secs_f64(self.impairment.delay_ms / 1000.0);
        Fate { lost: false, twice: false, behind: false, delay }
    }
}

/// Whether a frame is one that a link needs for itself: ARP, neighbour discovery (RFC 4861), multicast listener discovery (RFC 2710, RFC 3810).
#[must_use]
pub fn is_of_the_link_itself(frame: &[u8]) -> bool {
    const ARP: [u8; 2] = [0x08, 0x06];
    const IPV6: [u8; 2] = [0x86, 0xdd];
    const HOP_BY_HOP: u8 = 0;
    const ICMPV6: u8 = 58;
    let octet = |at: usize| frame.get(at).copied().unwrap_or_default();
    match frame.get(12..14) {
        Some(kind) if kind == ARP => true,
        Some(kind) if kind == IPV6 => {
            // The router alert of listener reports is one unit of 8 octets.
            let (next, at) = if octet(20) == HOP_BY_HOP { (octet(54), 62) } else { (octet(20), 54) };
            next == ICMPV6 && matches!(octet(at), 130..=137 | 143)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(impairment: &Impairment, direction: u64) -> Vec<Fate> {
        let mut fates = Fates::new(impairment, 0, direction);
        (0..1000).map(|_| fates.next_fate()).collect()
    }

    fn lost(fates: &[Fate]) -> usize {
        fates.iter().filter(|fate| fate.lost).count()
    }

    #[test]
    fn a_seed_decides_for_ever() {
        let ten = Impairment { loss_percent: 10.0, seed: 7, ..Impairment::default() };
        // These numbers are what topologies of today rely on.
        assert_eq!((lost(&fates(&ten, 0)), lost(&fates(&ten, 1))), (81, 97));
        assert_eq!(fates(&ten, 0), fates(&ten, 0));
        assert_ne!(fates(&ten, 0), fates(&ten, 1));
        // Another rate of duplicates does not change which are lost.
        let both = Impairment { duplicate_percent: 50.0, ..ten.clone() };
        let which = |fates: Vec<Fate>| fates.into_iter().map(|fate| fate.lost).collect::<Vec<_>>();
        assert_eq!(which(fates(&both, 0)), which(fates(&ten, 0)));
    }

    #[test]
    fn all_and_nothing_and_jitter_in_its_bounds() {
        let all = Impairment { loss_percent: 100.0, ..Impairment::default() };
        assert_eq!(lost(&fates(&all, 0)), 1000);
        let jitter = Impairment { delay_ms: 5.0, jitter_ms: 2.0, ..Impairment::default() };
        let fates = fates(&jitter, 1);
        assert_eq!(lost(&fates), 0);
        let delays: Vec<f64> = fates.iter().map(|fate| fate.delay.as_secs_f64() * 1000.0).collect();
        assert!(delays.iter().all(|delay| (3.0..=7.0).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < 3.5) && delays.iter().any(|delay| *delay > 6.5));
    }

    #[test]
    fn what_a_link_needs_is_known() {
        let mut frame = vec![0; 80];
        assert!(!is_of_the_link_itself(&frame));
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(is_of_the_link_itself(&frame));
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        // A neighbour solicitation; an echo request; a listener report behind a router alert.
        (frame[20], frame[54]) = (58, 135);
        assert!(is_of_the_link_itself(&frame));
        frame[54] = 128;
        assert!(!is_of_the_link_itself(&frame));
        (frame[20], frame[54], frame[62]) = (0, 58, 143);
        assert!(is_of_the_link_itself(&frame));
        for cut in 0..frame.len() {
            let _ = is_of_the_link_itself(&frame[..cut]);
        }
    }
}
