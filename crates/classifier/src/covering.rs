//! Earlier rules of a chain by which parts of [`Fast`] they leave open, to find those that cover a later one without a look at each.

use std::collections::HashMap;

use crate::normal::Fast;

/// Which parts a rule tests: the prefix lengths of its halves, whether a protocol, whether a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    lengths: [u8; 4],
    protocol: bool,
    family: bool,
}

/// What a rule of a shape tests for. Ports are ranges, and compared one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    halves: [u64; 4],
    protocol: Option<u8>,
    family: Option<u8>,
}

/// Looks at a shape or at ports that take as long as to find a place.
const HASH_LOOKS: usize = 16;

/// Source and destination ports.
type Ports = [Option<(u16, u16)>; 2];

/// Rules in order, by their indices.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    by_shape: HashMap<Shape, HashMap<Place, Vec<(usize, Ports)>>>,
}

impl Shape {
    fn of(fast: &Fast) -> Self {
        let Fast { halves, protocol, family, .. } = fast;
        Self { lengths: halves.map(|(_, length)| length), protocol: protocol.is_some(), family: family.is_some() }
    }

    /// Where rules of this shape are that cover this one but for its ports. None: it leaves open what they test.
    fn place(&self, narrow: &Fast) -> Option<Place> {
        let mut halves = [0; 4];
        for ((half, length), (value, narrow)) in halves.iter_mut().zip(self.lengths).zip(narrow.halves) {
            if length > narrow {
                return None;
            }
            *half = if length == 0 { 0 } else { value >> (64 - length) };
        }
        if self.protocol && narrow.protocol.is_none() || self.family && narrow.family.is_none() {
            return None;
        }
        let protocol = narrow.protocol.filter(|_| self.protocol);
        Some(Place { halves, protocol, family: narrow.family.filter(|_| self.family) })
    }
}

impl Earlier {
    /// The next rule, with an index above all before it.
    pub fn push(&mut self, index: usize, fast: &Fast) {
        let shape = Shape::of(fast);
        if let Some(place) = shape.place(fast) {
            let there = self.by_shape.entry(shape).or_default().entry(place).or_default();
            there.push((index, [fast.source_ports, fast.destination_ports]));
        }
    }

    /// In order, rules that as far as `Fast` goes match every packet that `narrow` matches; and how many looks that took.
    pub fn covering(&self, narrow: &Fast) -> (Vec<usize>, usize) {
        let (mut found, mut looks) = (Vec::new(), self.by_shape.len());
        for (shape, places) in &self.by_shape {
            let Some(place) = shape.place(narrow) else { continue };
            looks += HASH_LOOKS;
            let Some(rules) = places.get(&place) else { continue };
            looks += rules.len();
            let covers = |ports: &Ports| {
                let pairs = ports.iter().zip([narrow.source_ports, narrow.destination_ports]);
                pairs.into_iter().all(|(wide, narrow)| ports_cover(*wide, narrow))
            };
            found.extend(rules.iter().filter(|(_, ports)| covers(ports)).map(|(index, _)| *index));
        }
        found.sort_unstable();
        (found, looks)
    }
}

fn ports_cover(wide: Option<(u16, u16)>, narrow: Option<(u16, u16)>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.0 <= narrow.0 && narrow.1 <= wide.1,
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Part by part, as the words say.
    fn covers(wide: &Fast, narrow: &Fast) -> bool {
        let half = |((value, length), (other, narrow)): (&(u64, u8), &(u64, u8))| {
            length <= narrow && (0..*length).all(|bit| (value ^ other) << bit >> 63 == 0)
        };
        let is_open_or_same = |wide: Option<u8>, narrow: Option<u8>| wide.is_none() || wide == narrow;
        let all_of = |ports: Option<(u16, u16)>| ports.unwrap_or((0, u16::MAX));
        let ports = |wide: Option<(u16, u16)>, narrow: Option<(u16, u16)>| {
            let (wide, narrow) = (wide.map(|wide| all_of(Some(wide))), all_of(narrow));
            wide.is_none_or(|wide| wide.0 <= narrow.0 && narrow.1 <= wide.1)
        };
        wide.halves.iter().zip(&narrow.halves).all(half)
            && is_open_or_same(wide.protocol, narrow.protocol)
            && is_open_or_same(wide.family, narrow.family)
            && ports(wide.source_ports, narrow.source_ports)
            && ports(wide.destination_ports, narrow.destination_ports)
    }

    #[test]
    fn what_covers_is_found_as_by_a_look_at_each() {
        let mut random = Random::new(0xc0ee);
        let (mut earlier, mut rules, mut hits) = (Earlier::default(), Vec::new(), 0);
        for index in 0..3000 {
            // Few values, so that many cover others.
            let mut half = || match random.below(3) {
                0 => (0, 0),
                _ => {
                    let length = *random.pick(&[1, 8, 63, 64]);
                    (u64::from(random.below(2) as u32) << 63 & u64::MAX << (64 - length), length as u8)
                }
            };
            let halves = [half(), half(), half(), half()];
            let mut range = || (random.below(2) == 0).then(|| (random.below(3) as u16, 3 + random.below(3) as u16));
            let (source_ports, destination_ports) = (range(), range());
            let protocol = *random.pick(&[None, Some(6), Some(17)]);
            let fast =
                Fast { halves, source_ports, destination_ports, protocol, family: *random.pick(&[None, Some(4)]) };
            let wanted: Vec<usize> =
                rules.iter().enumerate().filter(|(_, wide)| covers(wide, &fast)).map(|(index, _)| index).collect();
            assert_eq!(earlier.covering(&fast).0, wanted, "{fast:?}");
            hits += wanted.len();
            earlier.push(index, &fast);
            rules.push(fast);
        }
        assert!(hits > 1000, "{hits}");
    }
}
