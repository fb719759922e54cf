//! How many neighbours may be asked for. The kernel has one table of neighbours for each family, which all network namespaces of the machine
//! share: who fills it with neighbours that do not answer takes IPv4 or IPv6 from everybody ("neighbor table overflow").

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink_packet_route::neighbour::NeighbourState;
use segue_host::sysctl;

/// A neighbour: the interface's number and its address there.
pub(super) type Neighbour = (u32, IpAddr);

/// `gc_thresh3` where it cannot be read, as outside of the machine's first network namespace: the kernel's default.
const USUAL_ROOM: usize = 1024;
/// One node has at most this part of the table for neighbours that do not answer.
const PART: usize = 4;

/// Neighbours in the table that do not answer at most.
pub(super) fn silent_at_most(ipv4: bool) -> usize {
    let family = if ipv4 { "ipv4" } else { "ipv6" };
    let value = sysctl::get(&format!("net/{family}/neigh/default/gc_thresh3")).ok().flatten();
    value.and_then(|value| value.parse().ok()).unwrap_or(USUAL_ROOM) / PART
}

/// Of those wanted, which may be asked for: all that are in the table, and of others so many that those who do not answer stay fewer than
/// `room`. Who answers makes room for the next ones.
pub(super) fn askable(
    wanted: BTreeSet<Neighbour>,
    known: &[(Neighbour, NeighbourState)],
    room: impl Fn(bool) -> usize,
) -> Vec<Neighbour> {
    let known: BTreeMap<Neighbour, NeighbourState> = known.iter().copied().collect();
    let silent = |ipv4: bool| {
        let silent = |(neighbour, state): &(&Neighbour, &NeighbourState)| {
            neighbour.1.is_ipv4() == ipv4
                && matches!(state, NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None)
        };
        known.iter().filter(silent).count()
    };
    let mut left = [false, true].map(|ipv4| room(ipv4).saturating_sub(silent(ipv4)));
    let mut may = |neighbour: &Neighbour| {
        let left = &mut left[usize::from(neighbour.1.is_ipv4())];
        known.contains_key(neighbour) || left.checked_sub(1).map(|fewer| *left = fewer).is_some()
    };
    wanted.into_iter().filter(|neighbour| may(neighbour)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(number: u16) -> Neighbour {
        (3, IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, number]))
    }

    #[test]
    fn who_does_not_answer_has_a_part_of_the_table_only() {
        let wanted: BTreeSet<_> = (0..100).map(neighbour).collect();
        assert_eq!(askable(wanted.clone(), &[], |_| 30).len(), 30);
        // Those that have answered are asked again, and others in the place that they do not need.
        let known: Vec<_> = (0..30).map(|number| (neighbour(number), NeighbourState::Stale)).collect();
        assert_eq!(askable(wanted.clone(), &known, |_| 30).len(), 60);
        // Those that have not, too; no others are.
        let known: Vec<_> = (0..30).map(|number| (neighbour(number), NeighbourState::Failed)).collect();
        assert_eq!(askable(wanted.clone(), &known, |_| 30).len(), 30);
        // What there is of IPv4 has a table of its own.
        let known: Vec<_> =
            (0..30).map(|number| ((3, IpAddr::from([10, 0, 0, number])), NeighbourState::Failed)).collect();
        assert_eq!(askable(wanted, &known, |_| 30).len(), 30);
    }
}
