//! One worker: runs the service, accounts for every packet, advances what goes on, and hands packets out in order.

use std::sync::Arc;

use crate::context::{Context, Outgoing, Worker};
use crate::counters::{Counters, Origin};
use crate::kind::Mode;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::service::Service;
use crate::time::Time;
use crate::verdict::{Verdict, Way};

/// Who puts packets on the wire. An error says why one cannot leave; it is dropped and counted then.
pub trait Sink {
    /// A packet of the batch, by its index there, leaves.
    ///
    /// # Errors
    /// Why it cannot.
    fn received(&mut self, index: usize, packet: &mut Packet<'_>, way: Way) -> Result<(), Reason>;

    /// A packet of the service's own leaves.
    ///
    /// # Errors
    /// Why it cannot.
    fn own(&mut self, packet: &Packet<'_>, way: Way) -> Result<(), Reason>;
}

/// A worker's service with its context.
pub struct Engine {
    service: Box<dyn Service>,
    context: Context,
    counters: Arc<Counters>,
    waits: bool,
}

impl Engine {
    /// A worker. `mtu`: octets of the largest packet that leaves.
    #[must_use]
    pub fn new(service: Box<dyn Service>, mode: Mode, worker: Worker, mtu: usize, counters: Arc<Counters>) -> Self {
        let context = Context::new(worker, mtu, Arc::clone(&counters));
        Self { service, context, counters, waits: mode == Mode::Synchronous }
    }

    /// Its counters, also for other threads.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &dyn Service {
        self.service.as_ref()
    }

    /// Counts a packet that came in and cannot be given to the service.
    pub fn refuse(&mut self, reason: Reason, octets: usize) {
        self.counters.receive(1, octets as u64);
        self.counters.count_drop(Origin::Received, reason, 1);
    }

    /// Runs packets that came in at `now`.
    pub fn batch(&mut self, now: Time, packets: &mut [Packet<'_>], sink: &mut dyn Sink) {
        self.context.begin(now);
        let octets = packets.iter().map(|packet| packet.wire_length() as u64).sum();
        self.counters.receive(packets.len() as u64, octets);
        self.service.batch(packets, &mut self.context);
        let outgoing = std::mem::take(&mut self.context.outgoing);
        let mut own = outgoing.into_iter().peekable();
        for (index, packet) in packets.iter_mut().enumerate() {
            while let Some(item) = own.next_if(|item| item.before <= index) {
                self.send(item, sink);
            }
            self.end(index, packet, sink);
        }
        for item in own {
            self.send(item, sink);
        }
    }

    fn end(&mut self, index: usize, packet: &mut Packet<'_>, sink: &mut dyn Sink) {
        let counters = &self.counters;
        let verdict = packet.verdict();
        let result = match verdict {
            Verdict::Taken => {
                counters.taken();
                return;
            }
            Verdict::Drop(reason) => Err(reason),
            // The packet itself has gone on long since.
            Verdict::Onward | Verdict::Back | Verdict::Kernel if !self.waits => {
                counters.onward(0);
                return;
            }
            Verdict::Onward => packet.advance().and_then(|()| sink.received(index, packet, Way::Onward)),
            Verdict::Back => sink.received(index, packet, Way::Back),
            Verdict::Kernel => sink.received(index, packet, Way::Kernel),
        };
        let octets = packet.len() as u64;
        match (result, verdict) {
            (Err(reason), _) => counters.count_drop(Origin::Received, reason, 1),
            (Ok(()), Verdict::Back) => counters.back(octets),
            (Ok(()), Verdict::Kernel) => counters.kernel(),
            (Ok(()), _) => counters.onward(octets),
        }
    }

    fn send(&self, item: Outgoing, sink: &mut dyn Sink) {
        let Outgoing { way, mut packet, .. } = item;
        let advanced = if way == Way::Onward { packet.advance() } else { Ok(()) };
        match advanced.and_then(|()| sink.own(&packet, way)) {
            Ok(()) => self.counters.own_out(packet.len() as u64),
            Err(reason) => self.counters.count_drop(Origin::Own, reason, 1),
        }
    }

    fn flush(&mut self, sink: &mut dyn Sink) {
        for item in std::mem::take(&mut self.context.outgoing) {
            self.send(item, sink);
        }
    }

    /// When [`Engine::timer`] is to be called next.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        self.context.wake()
    }

    /// Runs the service's timer if it is due.
    pub fn timer(&mut self, now: Time, sink: &mut dyn Sink) {
        self.context.begin(now);
        if self.context.take_due() {
            self.service.timer(&mut self.context);
            self.flush(sink);
        }
    }

    /// The service's descriptor can be read.
    pub fn readable(&mut self, now: Time, sink: &mut dyn Sink) {
        self.context.begin(now);
        self.service.readable(&mut self.context);
        self.flush(sink);
    }

    /// Makes the service give out all that it holds. What it does not account for is counted as dropped, so that the account is whole.
    ///
    /// Returns how many packets that were: a fault of the service.
    pub fn stop(&mut self, now: Time, sink: &mut dyn Sink) -> u64 {
        self.context.begin(now);
        self.service.stop(&mut self.context);
        self.flush(sink);
        let lost = self.counters.snapshot().held();
        self.counters.count_drop(Origin::Taken, Reason::ServiceFailed, lost);
        lost
    }

    /// Replaces the service by one with another configuration, after the old one has given out all that it holds.
    pub fn replace(&mut self, service: Box<dyn Service>, now: Time, sink: &mut dyn Sink) -> u64 {
        let lost = self.stop(now, sink);
        self.service = service;
        lost
    }
}
