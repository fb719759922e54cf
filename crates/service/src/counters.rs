//! What is counted of a worker, readable by other threads while it works.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::metric::Metric;
use crate::reason::Reason;

/// Which packets were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Those that came in, at once.
    Received,
    /// Those that the service had taken.
    Taken,
    /// Those that the service made.
    Own,
}

const ORIGINS: usize = 3;

/// Counters of one worker. One thread writes.
pub struct Counters {
    received: AtomicU64,
    received_octets: AtomicU64,
    onward: AtomicU64,
    back: AtomicU64,
    kernel: AtomicU64,
    taken: AtomicU64,
    taken_sent: AtomicU64,
    own: AtomicU64,
    own_out: AtomicU64,
    out_octets: AtomicU64,
    dropped: [[AtomicU64; Reason::COUNT]; ORIGINS],
    metrics: Vec<AtomicU64>,
    described: &'static [Metric],
}

fn add(counter: &AtomicU64, amount: u64) {
    // There is one writer: no locked instruction is needed.
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

impl Counters {
    /// All zero, with those of the service.
    #[must_use]
    pub fn new(metrics: &'static [Metric]) -> Self {
        let zero = AtomicU64::default;
        Self {
            received: zero(),
            received_octets: zero(),
            onward: zero(),
            back: zero(),
            kernel: zero(),
            taken: zero(),
            taken_sent: zero(),
            own: zero(),
            own_out: zero(),
            out_octets: zero(),
            dropped: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            metrics: metrics.iter().map(|_| zero()).collect(),
            described: metrics,
        }
    }

    pub(crate) fn receive(&self, packets: u64, octets: u64) {
        add(&self.received, packets);
        add(&self.received_octets, octets);
    }

    pub(crate) fn onward(&self, octets: u64) {
        add(&self.onward, 1);
        add(&self.out_octets, octets);
    }

    pub(crate) fn back(&self, octets: u64) {
        add(&self.back, 1);
        add(&self.out_octets, octets);
    }

    pub(crate) fn kernel(&self) {
        add(&self.kernel, 1);
    }

    pub(crate) fn taken(&self) {
        add(&self.taken, 1);
    }

    pub(crate) fn taken_sent(&self, packets: u64) {
        add(&self.taken_sent, packets);
    }

    pub(crate) fn sending(&self) {
        add(&self.own, 1);
    }

    pub(crate) fn own_out(&self, octets: u64) {
        add(&self.own_out, 1);
        add(&self.out_octets, octets);
    }

    pub(crate) fn count_drop(&self, origin: Origin, reason: Reason, packets: u64) {
        add(&self.dropped[origin as usize][reason.index()], packets);
    }

    pub(crate) fn metric_add(&self, metric: usize, amount: u64) {
        if let Some(counter) = self.metrics.get(metric) {
            add(counter, amount);
        }
    }

    pub(crate) fn metric_set(&self, metric: usize, value: u64) {
        if let Some(counter) = self.metrics.get(metric) {
            counter.store(value, Relaxed);
        }
    }

    /// What they are now. While the worker works, they may be of moments that lie a packet apart.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let dropped = |origin: Origin| {
            let row = &self.dropped[origin as usize];
            Reason::ALL
                .iter()
                .zip(row)
                .map(|(reason, counter)| (*reason, counter.load(Relaxed)))
                .filter(|(_, n)| *n > 0)
        };
        Snapshot {
            received: self.received.load(Relaxed),
            received_octets: self.received_octets.load(Relaxed),
            onward: self.onward.load(Relaxed),
            back: self.back.load(Relaxed),
            kernel: self.kernel.load(Relaxed),
            taken: self.taken.load(Relaxed),
            taken_sent: self.taken_sent.load(Relaxed),
            own: self.own.load(Relaxed),
            own_out: self.own_out.load(Relaxed),
            out_octets: self.out_octets.load(Relaxed),
            dropped_received: dropped(Origin::Received).collect(),
            dropped_taken: dropped(Origin::Taken).collect(),
            dropped_own: dropped(Origin::Own).collect(),
            metrics: self
                .described
                .iter()
                .zip(&self.metrics)
                .map(|(metric, value)| (metric.name.to_owned(), value.load(Relaxed)))
                .collect(),
        }
    }

    /// As [`Snapshot::check`], of now.
    ///
    /// # Errors
    /// What does not add up.
    pub fn check(&self) -> Result<(), String> {
        self.snapshot().check()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(formatter)
    }
}

/// Counters at one moment. Packets, or octets where the name says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Packets that came in.
    pub received: u64,
    /// Their octets on the wire, from the outer IP header on.
    pub received_octets: u64,
    /// Went on in their chain.
    pub onward: u64,
    /// Went back where they came from.
    pub back: u64,
    /// Went to the kernel.
    pub kernel: u64,
    /// Were taken by the service.
    pub taken: u64,
    /// Of these, have left since, in packets of the service's own.
    pub taken_sent: u64,
    /// Packets that the service made.
    pub own: u64,
    /// Of these, those that left.
    pub own_out: u64,
    /// Octets of all packets that left, from the outer IP header on.
    pub out_octets: u64,
    /// Dropped when they came in, by reason; only those above zero.
    pub dropped_received: BTreeMap<Reason, u64>,
    /// Dropped after they had been taken.
    pub dropped_taken: BTreeMap<Reason, u64>,
    /// Dropped of the service's own.
    pub dropped_own: BTreeMap<Reason, u64>,
    /// The service's own metrics.
    pub metrics: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Packets that the service holds: taken, and neither sent nor dropped.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.taken.saturating_sub(self.taken_sent + total(&self.dropped_taken))
    }

    /// Dropped for this reason, wherever they came from.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        [&self.dropped_received, &self.dropped_taken, &self.dropped_own].iter().filter_map(|row| row.get(&reason)).sum()
    }

    /// Whether every packet is accounted for once.
    ///
    /// # Errors
    /// What does not add up.
    pub fn check(&self) -> Result<(), String> {
        let ended = self.onward + self.back + self.kernel + self.taken + total(&self.dropped_received);
        if self.received != ended {
            return Err(format!("{} packets came in, {ended} have an end: {self:?}", self.received));
        }
        let accounted = self.taken_sent + total(&self.dropped_taken);
        if accounted > self.taken {
            return Err(format!("{} packets were taken, {accounted} accounted for: {self:?}", self.taken));
        }
        let own = self.own_out + total(&self.dropped_own);
        if self.own != own {
            return Err(format!("{} packets were made, {own} have an end: {self:?}", self.own));
        }
        Ok(())
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.received, other.received),
            (&mut self.received_octets, other.received_octets),
            (&mut self.onward, other.onward),
            (&mut self.back, other.back),
            (&mut self.kernel, other.kernel),
            (&mut self.taken, other.taken),
            (&mut self.taken_sent, other.taken_sent),
            (&mut self.own, other.own),
            (&mut self.own_out, other.own_out),
            (&mut self.out_octets, other.out_octets),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
        let rows = [
            (&mut self.dropped_received, &other.dropped_received),
            (&mut self.dropped_taken, &other.dropped_taken),
            (&mut self.dropped_own, &other.dropped_own),
        ];
        for (mine, theirs) in rows {
            for (reason, count) in theirs {
                *mine.entry(*reason).or_default() += count;
            }
        }
        for (name, value) in &other.metrics {
            *self.metrics.entry(name.clone()).or_default() += value;
        }
    }
}

fn total(row: &BTreeMap<Reason, u64>) -> u64 {
    row.values().sum()
}
