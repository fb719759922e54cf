//! What is due when.

use segue_service::Time;
use std::collections::{BTreeSet, HashMap};

/// Deadlines of things that are known by a number; each has at most one.
#[derive(Default)]
pub(crate) struct Deadlines {
    order: BTreeSet<(Time, u64)>,
    of: HashMap<u64, Time>,
}

impl Deadlines {
    /// The thing is due then, and not at another time that was said before.
    pub(crate) fn set(&mut self, thing: u64, time: Time) {
        if let Some(before) = self.of.insert(thing, time) {
            self.order.remove(&(before, thing));
        }
        self.order.insert((time, thing));
    }

    /// The thing is not due any more.
    pub(crate) fn clear(&mut self, thing: u64) {
        if let Some(time) = self.of.remove(&thing) {
            self.order.remove(&(time, thing));
        }
    }

    /// The earliest, and when.
    pub(crate) fn first(&self) -> Option<(Time, u64)> {
        self.order.first().copied()
    }

    /// Takes the earliest, if it is due at `now`.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<u64> {
        let (_, thing) = self.first().filter(|(time, _)| *time <= now)?;
        self.clear(thing);
        Some(thing)
    }
}
