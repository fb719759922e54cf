//! Datagrams that are being put together, within bounds.

use super::datagram::{Added, Datagram, Whole};
use super::fragment::{Fragment, Identity};
use crate::deadline::Deadlines;
use segue_service::{Reason, Time};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// Octets that a datagram costs besides its fragments, and a fragment besides its data: estimates from above, so that many small ones
/// cost what they take.
const DATAGRAM_COST: usize = 512;
const FRAGMENT_COST: usize = 160;

/// What may be held, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Octets of all.
    pub memory: usize,
    /// Octets of one source: one address, behind the same steering.
    pub memory_of_source: usize,
    /// From the first fragment that arrives, IPv6.
    pub timeout_ipv6: Duration,
    /// The same, IPv4.
    pub timeout_ipv4: Duration,
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<C> {
    /// It is held.
    Held,
    /// It was the last one missing. The carrier is that of the fragment with offset 0; whether any carrier was marked.
    Complete(Whole, C, bool),
    /// It is dropped.
    Dropped(Reason),
}

/// Fragments that were held and are no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Why.
    pub reason: Reason,
    /// How many.
    pub packets: u64,
}

struct Entry<C> {
    source: u64,
    identity: Identity,
    datagram: Datagram,
    carrier: Option<C>,
    is_marked: bool,
    /// A fragment of it overlapped: whatever comes until its time is up is dropped (RFC 5722 section 4).
    is_lost: bool,
    charged: usize,
}

struct Source {
    key: (Vec<u8>, IpAddr),
    octets: usize,
    /// Oldest first: numbers grow.
    datagrams: BTreeSet<u64>,
}

/// All datagrams of which something is missing. `C` is what carries a fragment: what the result is sent behind.
pub struct Reassembler<C> {
    limits: Limits,
    source_numbers: HashMap<(Vec<u8>, IpAddr), u64>,
    sources: HashMap<u64, Source>,
    /// Sources by what they hold, the heaviest last.
    weights: BTreeSet<(usize, u64)>,
    numbers: HashMap<(u64, Identity), u64>,
    entries: HashMap<u64, Entry<C>>,
    deadlines: Deadlines,
    next_number: u64,
    octets: usize,
    lost: Vec<Lost>,
}

impl<C> Reassembler<C> {
    /// Nothing is held.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            source_numbers: HashMap::new(),
            sources: HashMap::new(),
            weights: BTreeSet::new(),
            numbers: HashMap::new(),
            entries: HashMap::new(),
            deadlines: Deadlines::default(),
            next_number: 0,
            octets: 0,
            lost: Vec::new(),
        }
    }

    /// Octets that are held, by estimate.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Datagrams that something is known of.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.entries.len()
    }

    /// Sources that hold something.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// When the next datagram's time is up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| time)
    }

    /// Fragments that were lost since the last call.
    pub fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// Takes a fragment that is not atomic. `way`: what fragments of one datagram have in common around them. `carrier` is asked for that of the
    /// fragment with offset 0. `carried` says of every fragment's carrier how many octets it costs, and whether it was marked (by CE).
    pub fn push(
        &mut self,
        now: Time,
        way: &[u8],
        fragment: &Fragment<'_>,
        carried: (usize, bool),
        carrier: impl FnOnce() -> C,
    ) -> Outcome<C> {
        let (carrier_octets, is_marked) = carried;
        let number = self.number(now, way, fragment.identity);
        let Some(entry) = self.entries.get_mut(&number) else { return Outcome::Dropped(Reason::MemoryLimit) };
        if entry.is_lost {
            return Outcome::Dropped(Reason::FragmentOverlap);
        }
        let added = entry.datagram.add(fragment);
        match added {
            Added::Duplicate => return Outcome::Dropped(Reason::Duplicate),
            Added::Overlap => {
                self.lose(number);
                return Outcome::Dropped(Reason::FragmentOverlap);
            }
            Added::Kept | Added::Complete => {}
        }
        entry.is_marked |= is_marked;
        let mut cost = fragment.data.len() + FRAGMENT_COST;
        if fragment.offset == 0 {
            entry.carrier = Some(carrier());
            cost += carrier_octets;
        }
        if added == Added::Complete {
            return self.complete(number);
        }
        self.charge(number, cost);
        match self.make_room(number) {
            Some(reason) => Outcome::Dropped(reason),
            None => Outcome::Held,
        }
    }

    /// The number of the datagram, which is remembered from now on.
    fn number(&mut self, now: Time, way: &[u8], identity: Identity) -> u64 {
        let key = (way.to_vec(), identity.source);
        let source = match self.source_numbers.get(&key) {
            Some(source) => *source,
            None => {
                let source = self.take_number();
                self.source_numbers.insert(key.clone(), source);
                self.sources.insert(source, Source { key, octets: 0, datagrams: BTreeSet::new() });
                self.weights.insert((0, source));
                source
            }
        };
        if let Some(number) = self.numbers.get(&(source, identity)) {
            return *number;
        }
        let number = self.take_number();
        self.numbers.insert((source, identity), number);
        let entry = Entry {
            source,
            identity,
            datagram: Datagram::default(),
            carrier: None,
            is_marked: false,
            is_lost: false,
            charged: 0,
        };
        self.entries.insert(number, entry);
        if let Some(source) = self.sources.get_mut(&source) {
            source.datagrams.insert(number);
        }
        let limits = self.limits;
        let timeout = if identity.source.is_ipv4() { limits.timeout_ipv4 } else { limits.timeout_ipv6 };
        self.deadlines.set(number, now + timeout);
        self.charge(number, DATAGRAM_COST);
        number
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn charge(&mut self, number: u64, octets: usize) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.charged += octets;
        let source = entry.source;
        self.octets += octets;
        self.weigh(source, |held| held + octets);
    }

    fn discharge(&mut self, source: u64, octets: usize) {
        self.octets = self.octets.saturating_sub(octets);
        self.weigh(source, |held| held.saturating_sub(octets));
    }

    fn weigh(&mut self, number: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(source) = self.sources.get_mut(&number) {
            self.weights.remove(&(source.octets, number));
            source.octets = change(source.octets);
            self.weights.insert((source.octets, number));
        }
    }

    /// An overlap: all fragments are dropped, and the datagram is remembered as lost.
    fn lose(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let packets = entry.datagram.len();
        entry.is_lost = true;
        entry.datagram = Datagram::default();
        entry.carrier = None;
        let freed = entry.charged - DATAGRAM_COST;
        entry.charged = DATAGRAM_COST;
        let source = entry.source;
        self.lost.push(Lost { reason: Reason::FragmentOverlap, packets });
        self.discharge(source, freed);
    }

    /// Forgets a datagram.
    fn remove(&mut self, number: u64) -> Option<Entry<C>> {
        self.deadlines.clear(number);
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&(entry.source, entry.identity));
        self.discharge(entry.source, entry.charged);
        let source = self.sources.get_mut(&entry.source)?;
        source.datagrams.remove(&number);
        if source.datagrams.is_empty() {
            self.weights.remove(&(source.octets, entry.source));
            self.source_numbers.remove(&source.key);
            self.sources.remove(&entry.source);
        }
        Some(entry)
    }

    fn complete(&mut self, number: u64) -> Outcome<C> {
        let Some(entry) = self.remove(number) else { return Outcome::Dropped(Reason::ServiceFailed) };
        let whole = entry.datagram.assemble(entry.identity.identification, entry.identity.source);
        match (whole, entry.carrier) {
            (Some(whole), Some(carrier)) => Outcome::Complete(whole, carrier, entry.is_marked),
            _ => {
                // The ECN fields contradict each other. The one that came now is not among those that were held.
                self.lost.push(Lost { reason: Reason::FragmentInvalid, packets: entry.datagram.len() - 1 });
                Outcome::Dropped(Reason::FragmentInvalid)
            }
        }
    }

    /// Drops datagrams until the limits hold: first the oldest of a source that holds too much, then the oldest of the source that holds the
    /// most. A reason if the datagram with `current`, which has just got a fragment, had to go itself.
    fn make_room(&mut self, current: u64) -> Option<Reason> {
        let source = self.entries.get(&current)?.source;
        loop {
            let of_source = self.sources.get(&source).map_or(0, |source| source.octets);
            let (victim, reason) = if of_source > self.limits.memory_of_source {
                (self.oldest_of(source, current), Reason::SourceLimit)
            } else if self.octets > self.limits.memory {
                let (_, heaviest) = *self.weights.last()?;
                (self.oldest_of(heaviest, current), Reason::MemoryLimit)
            } else {
                return None;
            };
            let packets = self.remove(victim).map_or(0, |entry| entry.datagram.len());
            if victim == current {
                self.lost.push(Lost { reason, packets: packets - 1 });
                return Some(reason);
            }
            self.lost.push(Lost { reason, packets });
        }
    }

    /// The oldest datagram of a source, `current` only if there is no other.
    fn oldest_of(&self, source: u64, current: u64) -> u64 {
        let datagrams = self.sources.get(&source).map(|source| &source.datagrams);
        let oldest = datagrams.and_then(|datagrams| datagrams.iter().find(|number| **number != current));
        oldest.copied().unwrap_or(current)
    }

    /// Drops what has waited too long.
    pub fn expire(&mut self, now: Time) {
        while let Some(number) = self.deadlines.take_due(now) {
            self.give_up(number, Reason::HeldTooLong);
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        while let Some((_, number)) = self.deadlines.first() {
            self.give_up(number, Reason::HeldTooLong);
        }
    }

    fn give_up(&mut self, number: u64, reason: Reason) {
        let packets = self.remove(number).map_or(0, |entry| entry.datagram.len());
        self.lost.push(Lost { reason, packets });
    }
}
