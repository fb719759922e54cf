//! Runs a service in a test: no root, no device, a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use segue_wire::layer::protocol;
use segue_wire::{Ipv6Repr, MplsEntry, PacketBuilder, SrhRepr};

use crate::context::Worker;
use crate::counters::{Counters, Snapshot};
use crate::engine::{Engine, Sink};
use crate::flow::FlowKey;
use crate::kind::{Mode, Prepared, Spread};
use crate::metric::Metric;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::service::Service;
use crate::steering::SteeringKind;
use crate::time::Time;
use crate::verdict::Way;

/// A packet that has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Octets from the steering header on.
    pub octets: Vec<u8>,
    /// Which way.
    pub way: Way,
    /// The worker that sent it.
    pub worker: usize,
    /// When.
    pub at: Time,
    /// Segment size, if it is several segments merged.
    pub segment_size: Option<u16>,
}

/// Packets in, packets out, with the same engine as the program has. After every step it asserts that each packet is accounted
/// for.
pub struct Driver {
    engines: Vec<Engine>,
    mode: Mode,
    spread: Spread,
    steering: SteeringKind,
    now: Time,
    sent: Vec<Sent>,
    frame_length: usize,
    stopped: bool,
}

struct Collect<'a> {
    sent: &'a mut Vec<Sent>,
    worker: usize,
    now: Time,
}

impl Collect<'_> {
    fn take(&mut self, packet: &Packet<'_>, way: Way) {
        self.sent.push(Sent {
            octets: packet.octets().to_vec(),
            way,
            worker: self.worker,
            at: self.now,
            segment_size: packet.segment_size().map(std::num::NonZeroU16::get),
        });
    }
}

impl Sink for Collect<'_> {
    fn received(&mut self, _: usize, packet: &mut Packet<'_>, way: Way) -> Result<(), Reason> {
        self.take(packet, way);
        Ok(())
    }

    fn own(&mut self, packet: &Packet<'_>, way: Way) -> Result<(), Reason> {
        self.take(packet, way);
        Ok(())
    }
}

/// MTU of a driver's way out, octets.
pub const MTU: usize = 9000;

impl Driver {
    /// Synchronous, with these workers and without metrics.
    #[must_use]
    pub fn new(workers: Vec<Box<dyn Service>>) -> Self {
        Self::with(workers, Mode::Synchronous, MTU, &[])
    }

    /// As a configuration says, with so many workers.
    ///
    /// # Panics
    /// If a worker cannot be made.
    #[must_use]
    pub fn prepared(prepared: &dyn Prepared, workers: usize) -> Self {
        let build = |index| {
            let built = prepared.build(Worker { index, count: workers });
            built.unwrap_or_else(|error| panic!("cannot make the service {}: {error}", prepared.name()))
        };
        let driver = Self::with((0..workers).map(build).collect(), prepared.mode(), MTU, prepared.metrics());
        driver.spread_by(prepared.spread())
    }

    /// With another choice of which packets go to one worker; that of the flow at first.
    #[must_use]
    pub fn spread_by(self, spread: Spread) -> Self {
        Self { spread, ..self }
    }

    /// Behind a label, or a SID: packets come with such steering headers. Those of SRv6 at first.
    #[must_use]
    pub fn steered_by(self, steering: SteeringKind) -> Self {
        Self { steering, ..self }
    }

    /// With everything said.
    #[must_use]
    pub fn with(workers: Vec<Box<dyn Service>>, mode: Mode, mtu: usize, metrics: &'static [Metric]) -> Self {
        let count = workers.len();
        let engine = |(index, service)| {
            Engine::new(service, mode, Worker { index, count }, mtu, Arc::new(Counters::new(metrics)))
        };
        let engines = workers.into_iter().enumerate().map(engine).collect();
        Self {
            engines,
            mode,
            spread: Spread::Flow,
            steering: SteeringKind::default(),
            now: Time::START,
            sent: Vec::new(),
            frame_length: 4096,
            stopped: false,
        }
    }

    /// Octets of the frames that packets come in; 4096 at first. A packet that is larger comes in a buffer of its own, as on the
    /// wire one of several frames does.
    pub fn set_frame_length(&mut self, octets: usize) {
        self.frame_length = octets;
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    fn worker_of(&self, octets: &[u8]) -> usize {
        let key = match self.spread {
            Spread::Flow => FlowKey::of(self.steering.of_flow(octets)),
            Spread::Way => FlowKey::of_way(octets),
        };
        key.worker(self.engines.len())
    }

    /// Receives packets as one batch, each by the worker of its flow.
    pub fn receive(&mut self, packets: &[Vec<u8>]) {
        self.receive_cut(packets, usize::MAX);
    }

    /// The same, with copies cut to `snap_length` octets.
    pub fn receive_cut(&mut self, packets: &[Vec<u8>], snap_length: usize) {
        assert!(!self.stopped, "the service is stopped");
        let count = self.engines.len();
        for worker in 0..count {
            let own: Vec<_> = packets.iter().filter(|octets| self.worker_of(octets) == worker).collect();
            let mut frames: Vec<(Vec<u8>, usize, usize)> = own
                .into_iter()
                .map(|octets| {
                    let kept = octets.len().min(snap_length);
                    // As in a frame of XDP: 256 octets in front, of which the Ethernet header takes 14.
                    let mut frame = vec![0xff; self.frame_length.max(270 + kept)];
                    frame[270..270 + kept].copy_from_slice(&octets[..kept]);
                    (frame, kept, octets.len())
                })
                .collect();
            let engine = &mut self.engines[worker];
            let mut batch = Vec::new();
            for (frame, kept, length) in &mut frames {
                match Packet::in_frame(self.steering, frame, 270..270 + *kept, *length, self.now) {
                    Ok(packet) => batch.push(packet),
                    Err(reason) => engine.refuse(reason, *length),
                }
            }
            let mut sink = Collect { sent: &mut self.sent, worker, now: self.now };
            engine.batch(self.now, &mut batch, &mut sink);
        }
        self.check();
    }

    /// Lets time pass. Timers run when they are due, in order, each at its time.
    pub fn advance(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some((at, worker)) = self.next_timer().filter(|(at, _)| *at <= until) {
            // One that is due at once again and again would never end: time goes on by a nanosecond.
            self.now = at.max(self.now + Duration::from_nanos(1)).min(until.max(self.now));
            let mut sink = Collect { sent: &mut self.sent, worker, now: self.now };
            self.engines[worker].timer(self.now, &mut sink);
            self.check();
            if self.now >= until {
                break;
            }
        }
        self.now = self.now.max(until);
        for (worker, engine) in self.engines.iter_mut().enumerate() {
            engine.timer(self.now, &mut Collect { sent: &mut self.sent, worker, now: self.now });
        }
        self.check();
    }

    fn next_timer(&self) -> Option<(Time, usize)> {
        self.engines.iter().enumerate().filter_map(|(worker, engine)| Some((engine.wake()?, worker))).min()
    }

    /// Gives the service something to read from its descriptor.
    pub fn readable(&mut self, worker: usize) {
        let mut sink = Collect { sent: &mut self.sent, worker, now: self.now };
        self.engines[worker].readable(self.now, &mut sink);
        self.check();
    }

    /// Stops the service, and asserts that it holds nothing any more.
    ///
    /// # Panics
    /// If it does.
    pub fn stop(&mut self) {
        if let Err(text) = self.try_stop() {
            panic!("{text}");
        }
    }

    /// The same for a caller who has another way to fail than a panic.
    ///
    /// # Errors
    /// What it holds still.
    pub fn try_stop(&mut self) -> Result<(), String> {
        let mut held = Vec::new();
        for (worker, engine) in self.engines.iter_mut().enumerate() {
            let mut sink = Collect { sent: &mut self.sent, worker, now: self.now };
            let lost = engine.stop(self.now, &mut sink);
            if lost > 0 {
                held.push(format!("worker {worker} took packets that it neither sent nor dropped: {lost}"));
            }
        }
        self.stopped = true;
        self.check();
        if held.is_empty() { Ok(()) } else { Err(held.join("; ")) }
    }

    /// Packets that have left since the last call, in order.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Counters of all workers together.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        let mut all = Snapshot::default();
        for engine in &self.engines {
            all.merge(&engine.counters().snapshot());
        }
        all
    }

    /// What a worker's service says of itself.
    #[must_use]
    pub fn report(&self, worker: usize) -> serde_json::Value {
        self.engines[worker].service().report()
    }

    /// Whether packets wait for the service.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Asserts that each packet is accounted for.
    fn check(&self) {
        for (worker, engine) in self.engines.iter().enumerate() {
            if let Err(text) = engine.counters().check() {
                panic!("worker {worker}: {text}");
            }
        }
    }
}

/// The labels in [`labels`].
pub const LABELS: [u32; 2] = [16_003, 16_046];

/// What a service behind a label gets: the stack <[`LABELS`]> with TTL 64 in front of `inner`, an IPv4 or IPv6 packet.
#[must_use]
pub fn labels(inner: &[u8]) -> Vec<u8> {
    labels_around(&LABELS.map(|label| MplsEntry { label, time_to_live: 64, ..MplsEntry::default() }), inner)
}

/// The same with a stack; only its last entry has the S bit.
#[must_use]
pub fn labels_around(stack: &[MplsEntry], inner: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    for (index, entry) in stack.iter().enumerate() {
        let entry = MplsEntry { bottom_of_stack: index + 1 == stack.len(), ..*entry };
        octets.extend(entry.to_bytes().unwrap_or_default());
    }
    octets.extend_from_slice(inner);
    octets
}

/// SID of the service in [`srv6`].
pub const SID: &str = "fc00:5e9:2:100::";
/// The segment behind it.
pub const NEXT: &str = "fc00:5e9:3:46::";

/// A steering header with the segment list <[`SID`], [`NEXT`]> in front of `inner`, an IPv4 or IPv6 packet (by its version; anything else is
/// announced as Ethernet).
///
/// # Panics
/// If `inner` is longer than a packet can be.
#[must_use]
pub fn srv6(inner: &[u8]) -> Vec<u8> {
    let next_header = match inner.first().map(|octet| octet >> 4) {
        Some(4) => protocol::IPV4,
        Some(6) => protocol::IPV6,
        _ => protocol::ETHERNET,
    };
    srv6_around(next_header, inner)
}

/// The same with a protocol number.
///
/// # Panics
/// If `inner` is longer than a packet can be.
#[must_use]
pub fn srv6_around(next_header: u8, inner: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse().unwrap_or(std::net::Ipv6Addr::LOCALHOST);
    let srh = SrhRepr { next_header, ..SrhRepr::new(&[address(SID), address(NEXT)]) };
    let outer = Ipv6Repr {
        source: address("fc00:5e9:1::1"),
        destination: address(SID),
        hop_limit: 64,
        next_header: protocol::ROUTING,
        ..Ipv6Repr::default()
    };
    PacketBuilder::new().ipv6(outer).srh(srh).payload(inner).build()
}
