//! What is held of one connection.

use super::{Aggregate, Mode};
use segue_service::Time;

/// Most aggregates that wait for a gap to close; with more, all leave.
const MOST_WAITING: usize = 64;

/// Sequence numbers further apart than this are not those of one window (RFC 7323 section 2.2: 1 GiB).
const WINDOW: u32 = 1 << 30;

/// What became of a segment that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It is held, or is in what is ready.
    Kept,
    /// It is not held: it goes on behind what is ready.
    Refused,
    /// It is in front of what has left already, and goes on at once.
    Late,
}

/// Aggregates of one connection, in order.
#[derive(Debug)]
pub struct Connection {
    mode: Mode,
    held: Vec<Aggregate>,
    /// Sequence number behind the last octet that has left, as far as that is known.
    expected: Option<u32>,
}

fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

fn is_far(one: u32, other: u32) -> bool {
    let distance = other.wrapping_sub(one);
    distance.min(distance.wrapping_neg()) > WINDOW
}

impl Connection {
    /// Nothing is held.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { mode, held: Vec::new(), expected: None }
    }

    /// Octets of the packets that are held.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.held.iter().map(Aggregate::octets).sum()
    }

    /// When the oldest segment that is held arrived.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.held.iter().map(Aggregate::arrived).min()
    }

    /// Offers a segment; what is ready to leave now, in order.
    pub fn offer(&mut self, new: Aggregate, largest: usize) -> (Offered, Vec<Aggregate>) {
        match self.mode {
            Mode::Buffer => self.offer_to_buffer(new, largest),
            Mode::Queue => self.offer_to_queue(new, largest),
        }
    }

    fn offer_to_buffer(&mut self, new: Aggregate, largest: usize) -> (Offered, Vec<Aggregate>) {
        if let Some(held) = self.held.last_mut()
            && held.append(&new, largest)
        {
            let is_full = held.is_full(largest);
            return (Offered::Kept, if is_full { self.take_all() } else { Vec::new() });
        }
        let ready = self.take_all();
        if new.is_full(largest) {
            return (Offered::Refused, ready);
        }
        self.held.push(new);
        (Offered::Kept, ready)
    }

    fn offer_to_queue(&mut self, new: Aggregate, largest: usize) -> (Offered, Vec<Aggregate>) {
        let (start, end) = (new.sequence_number(), new.end());
        let mut ready = Vec::new();
        if self.held.first().map(Aggregate::sequence_number).or(self.expected).is_some_and(|other| is_far(start, other))
        {
            ready = self.take_all();
            self.expected = None;
        }
        if self.expected.is_some_and(|expected| is_before(start, expected)) {
            return (Offered::Late, ready);
        }
        let index = self.held.partition_point(|held| is_before(held.sequence_number(), start));
        let overlaps_left = index > 0 && self.held.get(index - 1).is_some_and(|held| is_before(start, held.end()));
        let overlaps_right = self.held.get(index).is_some_and(|held| is_before(held.sequence_number(), end));
        if overlaps_left || overlaps_right {
            ready.extend(self.take_all());
            if self.expected.is_none_or(|expected| is_before(expected, end)) {
                self.expected = Some(end);
            }
            return (Offered::Refused, ready);
        }
        self.held.insert(index, new);
        self.join(index, largest);
        if let Some(left) = index.checked_sub(1) {
            self.join(left, largest);
        }
        ready.extend(self.take_ready(largest));
        if self.held.len() > MOST_WAITING {
            ready.extend(self.take_all());
        }
        (Offered::Kept, ready)
    }

    /// Puts the aggregate behind this one into it, if it follows.
    fn join(&mut self, index: usize, largest: usize) {
        if let [one, other, ..] = self.held.get_mut(index..).unwrap_or_default()
            && one.append(other, largest)
        {
            self.held.remove(index + 1);
        }
    }

    /// Those at the front that nothing is missing before, and that cannot grow.
    fn take_ready(&mut self, largest: usize) -> Vec<Aggregate> {
        let mut count = 0;
        let mut expected = self.expected;
        for (index, aggregate) in self.held.iter().enumerate() {
            let follows = expected.is_none_or(|expected| expected == aggregate.sequence_number());
            let next_follows = self.held.get(index + 1).is_some_and(|next| next.sequence_number() == aggregate.end());
            if !follows || !(aggregate.is_full(largest) || next_follows) {
                break;
            }
            expected = Some(aggregate.end());
            count = index + 1;
        }
        self.take(count)
    }

    fn take(&mut self, count: usize) -> Vec<Aggregate> {
        let ready: Vec<_> = self.held.drain(..count).collect();
        if let Some(last) = ready.last() {
            self.expected = Some(last.end());
        }
        ready
    }

    /// Those that are due, and all in front of them: what leaves later would seem lost otherwise.
    pub fn take_due(&mut self, is_due: impl Fn(Time) -> bool) -> Vec<Aggregate> {
        let count = self.held.iter().rposition(|aggregate| is_due(aggregate.arrived())).map_or(0, |index| index + 1);
        self.take(count)
    }

    /// All of them.
    pub fn take_all(&mut self) -> Vec<Aggregate> {
        self.take(self.held.len())
    }
}
