//! `tcp-bulk`: fewer, larger packets. Segments of a TCP connection that follow each other become one.
//!
//! Only what can be taken apart again without a difference is merged, by the rules of the kernel's receive offload (GRO), so no service undoes
//! it: a merged packet is a TCP segment like any other. Connections are told apart by all addresses of all headers, the segment
//! lists between them, and the ports.

mod aggregate;
mod connection;
mod segment;

pub use aggregate::{Aggregate, Identification, split};
pub use connection::{Connection, Offered};
pub use segment::{Class, IpHeader, Places, Segment};

use crate::deadline::Deadlines;
use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{BuildError, Context, Kind, Metric, Mode as KindMode, Packet, Service, Time, Verdict, Worker};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// The kind.
pub struct TcpBulk;

/// What happens to segments that come in another order than that of their sequence numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One aggregate is held for each connection; what does not follow it takes its place. The order stays as it was.
    #[default]
    Buffer,
    /// Segments wait in the order of their sequence numbers, so that gaps can close. They leave in that order.
    Queue,
}

/// What `tcp-bulk` can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// `buffer`, or `queue` that also puts segments in order.
    pub mode: Mode,
    /// Octets of the largest packet that is made, outer header included: up to 65575; more than the MTU of the way out is not used. If
    /// it is not given: that MTU.
    pub largest: Option<u32>,
    /// Milliseconds that a segment is held at most, 1 to 1000.
    pub longest_delay_ms: u16,
    /// Connections that are remembered at a time, 1 to 1000000.
    pub most_connections: u32,
    /// Octets of all segments that are held at a time, for each worker.
    pub memory: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { mode: Mode::Buffer, largest: None, longest_delay_ms: 5, most_connections: 4096, memory: 64 << 20 }
    }
}

const MERGED: usize = 0;
const AGGREGATES: usize = 1;
const ALONE: usize = 2;
const LATE: usize = 3;
const EVICTED: usize = 4;
const CONNECTIONS: usize = 5;
const HELD: usize = 6;

impl Kind for TcpBulk {
    const NAME: &'static str = "tcp-bulk";
    const ABOUT: &'static str = "merges TCP segments that follow each other";
    const METRICS: &'static [Metric] = &[
        Metric::counter("merged_packets", "Segments that left inside another packet"),
        Metric::counter("aggregate_packets", "Packets made of two segments or more"),
        Metric::counter(
            "alone_packets",
            "Segments that cannot be merged: without payload, SYN, RST, URG, wrong checksums",
        ),
        Metric::counter("late_packets", "queue: segments in front of what had left already; they went on at once"),
        Metric::counter("evicted_connections", "Connections whose segments left early because a limit was reached"),
        Metric::gauge("remembered_connections", "Connections that are remembered now"),
        Metric::gauge("held_octets", "Octets of segments that are held now"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let at = |key: &str| KeyPath::root().at(key);
        if let Some(largest) = configuration.largest.filter(|largest| !(1280..=65_575).contains(largest)) {
            report.error(&at("largest"), format!("{largest} octets"), "use 1280 to 65575, or remove the key");
        }
        let delay = configuration.longest_delay_ms;
        if !(1..=1000).contains(&delay) {
            report.error(&at("longest_delay_ms"), format!("{delay} ms"), "use 1 to 1000");
        }
        let connections = configuration.most_connections;
        if !(1..=1_000_000).contains(&connections) {
            report.error(&at("most_connections"), format!("{connections} connections"), "use 1 to 1000000");
        }
        if configuration.memory < 1 << 17 {
            let message = format!("{} octets hold not even two large packets", configuration.memory);
            report.error(&at("memory"), message, "use 131072 or more");
        }
    }

    fn mode(_: &Configuration) -> KindMode {
        KindMode::Synchronous
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Bulk::new(configuration)))
    }
}

struct Bulk {
    mode: Mode,
    largest: usize,
    longest_delay: Duration,
    most_connections: usize,
    memory: usize,
    numbers: HashMap<Vec<u8>, u64>,
    connections: HashMap<u64, (Vec<u8>, Connection)>,
    deadlines: Deadlines,
    next_number: u64,
    held: usize,
    key: Vec<u8>,
}

impl Bulk {
    fn new(configuration: &Configuration) -> Self {
        Self {
            mode: configuration.mode,
            largest: configuration.largest.map_or(usize::MAX, |octets| octets as usize),
            longest_delay: Duration::from_millis(configuration.longest_delay_ms.into()),
            most_connections: configuration.most_connections as usize,
            memory: configuration.memory as usize,
            numbers: HashMap::new(),
            connections: HashMap::new(),
            deadlines: Deadlines::default(),
            next_number: 0,
            held: 0,
            key: Vec::new(),
        }
    }

    /// Sends aggregates on, and accounts for the segments in them.
    fn send(&mut self, aggregates: Vec<Aggregate>, context: &mut Context) {
        for aggregate in aggregates {
            let segments = u64::from(aggregate.segments());
            self.held = self.held.saturating_sub(aggregate.octets());
            let arrived = aggregate.arrived();
            match Packet::from_octets(aggregate.kind(), &aggregate.finish(), arrived) {
                Ok(packet) => {
                    context.send(packet);
                    context.account_sent(segments);
                    context.count(MERGED, segments - 1);
                    context.count(AGGREGATES, u64::from(segments > 1));
                }
                // It was one when it came, so it is one still.
                Err(reason) => context.account_dropped(reason, segments),
            }
        }
    }

    /// Sends all that is held of a connection, and forgets it.
    fn end(&mut self, number: u64, context: &mut Context) {
        self.deadlines.clear(number);
        if let Some((key, mut connection)) = self.connections.remove(&number) {
            self.numbers.remove(&key);
            let all = connection.take_all();
            self.send(all, context);
        }
    }

    /// The number of the connection whose key is at hand; a new one if it is not remembered.
    fn number(&mut self, context: &mut Context) -> u64 {
        if let Some(number) = self.numbers.get(&self.key) {
            return *number;
        }
        while self.connections.len() >= self.most_connections && self.evict(context) {}
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(self.key.clone(), number);
        self.connections.insert(number, (self.key.clone(), Connection::new(self.mode)));
        number
    }

    /// Ends the connection that would have to send first; false if there is none.
    fn evict(&mut self, context: &mut Context) -> bool {
        let Some((_, number)) = self.deadlines.first() else { return false };
        context.count(EVICTED, 1);
        self.end(number, context);
        true
    }

    fn offer(&mut self, packet: &Packet<'_>, segment: &Segment, context: &mut Context) -> Verdict {
        let largest = self.largest.min(context.mtu());
        let number = self.number(context);
        let Some((_, connection)) = self.connections.get_mut(&number) else { return Verdict::Onward };
        let before = connection.octets();
        let new = Aggregate::new(packet.octets(), segment, context.now());
        let (offered, ready) = connection.offer(new, largest);
        let ready_octets: usize = ready.iter().map(Aggregate::octets).sum();
        let (after, oldest) = (connection.octets(), connection.oldest());
        self.held = (self.held + after + ready_octets).saturating_sub(before);
        self.send(ready, context);
        match oldest {
            Some(arrived) => self.deadlines.set(number, arrived + self.longest_delay),
            None if self.mode == Mode::Queue => self.deadlines.set(number, context.now() + self.longest_delay),
            None => self.end(number, context),
        }
        while self.held > self.memory && self.evict(context) {}
        match offered {
            Offered::Kept => Verdict::Taken,
            Offered::Refused => Verdict::Onward,
            Offered::Late => {
                context.count(LATE, 1);
                Verdict::Onward
            }
        }
    }

    fn show(&self, context: &mut Context) {
        context.set(CONNECTIONS, self.connections.len() as u64);
        context.set(HELD, self.held as u64);
        if let Some((time, _)) = self.deadlines.first() {
            context.wake_at(time);
        }
    }

    /// A connection's deadline has come: what is due leaves, and with it all that is in front of it.
    fn due(&mut self, number: u64, now: Time, context: &mut Context) {
        let limit = self.longest_delay;
        let Some((_, connection)) = self.connections.get_mut(&number) else { return };
        let ready = connection.take_due(|arrived| arrived + limit <= now);
        let was_idle = ready.is_empty();
        let oldest = connection.oldest();
        self.send(ready, context);
        match oldest {
            Some(arrived) => self.deadlines.set(number, arrived + limit),
            // What comes next is compared with what has left, for as long again.
            None if self.mode == Mode::Queue && !was_idle => self.deadlines.set(number, now + limit),
            None => self.end(number, context),
        }
    }
}

impl Service for Bulk {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let mut key = std::mem::take(&mut self.key);
        let class = Class::of(packet.kind(), packet.octets(), &mut key);
        self.key = key;
        let verdict = match class {
            Class::Other => return Verdict::Onward,
            Class::Mergeable(segment) if packet.segment_size().is_none() => self.offer(packet, &segment, context),
            Class::Alone | Class::Mergeable(_) => {
                context.count(ALONE, 1);
                if let Some(number) = self.numbers.get(&self.key).copied() {
                    self.end(number, context);
                }
                Verdict::Onward
            }
        };
        self.show(context);
        verdict
    }

    fn timer(&mut self, context: &mut Context) {
        let now = context.now();
        while let Some(number) = self.deadlines.take_due(now) {
            self.due(number, now, context);
        }
        self.show(context);
    }

    fn stop(&mut self, context: &mut Context) {
        while let Some((_, number)) = self.deadlines.first() {
            self.end(number, context);
        }
        self.show(context);
    }
}
