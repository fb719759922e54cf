//! What a service is given besides the packet.

use std::sync::Arc;

use crate::counters::{Counters, Origin};
use crate::packet::Packet;
use crate::reason::Reason;
use crate::time::Time;
use crate::verdict::Way;

/// Which worker of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// From 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Worker {
    /// The only one.
    pub const ONLY: Self = Self { index: 0, count: 1 };
}

/// A packet that the service sends, and in front of which packet of the batch.
pub(crate) struct Outgoing {
    pub(crate) before: usize,
    pub(crate) way: Way,
    pub(crate) packet: Packet<'static>,
}

/// Time, counters, and the ways out. One for each worker.
pub struct Context {
    now: Time,
    worker: Worker,
    mtu: usize,
    counters: Arc<Counters>,
    position: usize,
    wake: Option<Time>,
    pub(crate) outgoing: Vec<Outgoing>,
}

impl Context {
    /// Of one worker. `mtu`: octets of the largest packet that its interface sends.
    #[must_use]
    pub fn new(worker: Worker, mtu: usize, counters: Arc<Counters>) -> Self {
        Self { now: Time::START, worker, mtu, counters, position: 0, wake: None, outgoing: Vec::new() }
    }

    /// The time at which the batch was received, or at which the timer runs.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Which worker this is.
    #[must_use]
    pub fn worker(&self) -> Worker {
        self.worker
    }

    /// Octets of the largest packet, outer header included, that leaves.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The packet of the batch that is looked at now, by its index. [`crate::Service::batch`] says it by default.
    pub fn at(&mut self, index: usize) {
        self.position = index;
    }

    /// Sends a packet of the service's own on in the chain: in front of the packet that is looked at, behind all that were sent before.
    pub fn send(&mut self, packet: Packet<'static>) {
        self.send_by(Way::Onward, packet);
    }

    /// Sends a packet of the service's own.
    pub fn send_by(&mut self, way: Way, packet: Packet<'static>) {
        self.counters.sending();
        self.outgoing.push(Outgoing { before: self.position, way, packet });
    }

    /// Says that so many packets that were taken have left, in whatever packets.
    pub fn account_sent(&mut self, packets: u64) {
        self.counters.taken_sent(packets);
    }

    /// Says that so many packets that were taken are dropped.
    pub fn account_dropped(&mut self, reason: Reason, packets: u64) {
        self.counters.count_drop(Origin::Taken, reason, packets);
    }

    /// Calls the timer at this time, or earlier if that was asked for.
    pub fn wake_at(&mut self, time: Time) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }

    /// Adds to a counter of the service: its place in [`crate::Kind::METRICS`].
    pub fn count(&self, metric: usize, amount: u64) {
        self.counters.metric_add(metric, amount);
    }

    /// Sets a gauge of the service.
    pub fn set(&self, metric: usize, value: u64) {
        self.counters.metric_set(metric, value);
    }

    /// The worker's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.position = 0;
    }

    pub(crate) fn wake(&self) -> Option<Time> {
        self.wake
    }

    /// Forgets the wake-up if it is due.
    pub(crate) fn take_due(&mut self) -> bool {
        let due = self.wake.is_some_and(|wake| wake <= self.now);
        if due {
            self.wake = None;
        }
        due
    }
}
