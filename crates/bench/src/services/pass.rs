//! A service without its packet I/O: the engine that runs it, with a thread for each worker, and nothing else. What is left out costs as much as `forward` on
//! AF_XDP does.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use segue_service::{
    Counters, Engine, FlowKey, Packet, Prepared, Reason, Sink, Snapshot, Spread, SteeringKind, Time, Way, Worker,
};

use crate::error::{Error, Result};

/// Packets that come at a time, as on AF_XDP under load.
const BATCH: usize = 64;
/// Octets in front of a packet in its frame: XDP's headroom and the Ethernet header.
const HEADROOM: usize = 270;
/// MTU of the way out.
const MTU: usize = 9000;

/// What came of it.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Packets a second, by the worker that took longest.
    pub rate: f64,
    /// What the service has counted, all workers together.
    pub counters: Snapshot,
    /// Packets that left, if they were kept: in order, one worker's behind the other's.
    pub left: Vec<Vec<u8>>,
}

/// How packets are run through.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Threads.
    pub workers: usize,
    /// Whether what leaves is kept, which costs time.
    pub keep: bool,
    /// Between two packets on the service's own clock, which timers go by.
    pub gap: Duration,
}

struct Out(Option<Vec<Vec<u8>>>);

impl Out {
    fn take(&mut self, packet: &Packet<'_>) {
        if let Some(left) = &mut self.0 {
            left.push(packet.octets().to_vec());
        }
    }
}

impl Sink for Out {
    fn received(&mut self, _: usize, packet: &mut Packet<'_>, _: Way) -> std::result::Result<(), Reason> {
        self.take(packet);
        Ok(())
    }

    fn own(&mut self, packet: &Packet<'_>, _: Way) -> std::result::Result<(), Reason> {
        self.take(packet);
        Ok(())
    }
}

/// Runs steered packets through a service, each by the worker of its flow.
///
/// # Errors
/// If the service cannot be made, or does not account for all packets.
pub fn pass(prepared: &dyn Prepared, packets: &[Vec<u8>], manner: Manner) -> Result<Passed> {
    let key = |octets: &[u8]| match prepared.spread() {
        Spread::Flow => FlowKey::of(octets),
        Spread::Way => FlowKey::of_way(octets),
    };
    let count = manner.workers;
    let mut engines = Vec::new();
    for index in 0..count {
        let worker = Worker { index, count };
        let service = prepared.build(worker).map_err(|error| Error::Usage(error.to_string()))?;
        engines.push(Engine::new(service, prepared.mode(), worker, MTU, Arc::new(Counters::new(prepared.metrics()))));
    }
    let done: Vec<_> = thread::scope(|scope| {
        let run = |(index, engine): (usize, Engine)| {
            let own: Vec<_> = packets.iter().filter(|octets| key(octets).worker(count) == index).collect();
            scope.spawn(move || one_worker(engine, &own, manner))
        };
        let threads: Vec<_> = engines.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (mut counters, mut left, mut longest) = (Snapshot::default(), Vec::new(), Duration::ZERO);
    for (busy, own, packets) in done {
        counters.merge(&own?);
        left.extend(packets);
        longest = longest.max(busy);
    }
    Ok(Passed { rate: packets.len() as f64 / longest.as_secs_f64(), counters, left })
}

type Done = (Duration, Result<Snapshot>, Vec<Vec<u8>>);

fn one_worker(mut engine: Engine, packets: &[&Vec<u8>], manner: Manner) -> Done {
    let mut out = Out(manner.keep.then(Vec::new));
    let longest = packets.iter().map(|octets| octets.len()).max().unwrap_or(0);
    // As in the memory of AF_XDP: room behind the packet too.
    let mut frames = vec![vec![0; (HEADROOM + longest).max(4096)]; BATCH];
    let (mut busy, mut now) = (Duration::ZERO, Time::START);
    for chunk in packets.chunks(BATCH) {
        let mut batch = Vec::with_capacity(BATCH);
        for (frame, octets) in frames.iter_mut().zip(chunk) {
            let range = HEADROOM..HEADROOM + octets.len();
            frame[range.clone()].copy_from_slice(octets);
            match Packet::in_frame(SteeringKind::Srv6, frame, range, octets.len(), now) {
                Ok(packet) => batch.push(packet),
                Err(reason) => engine.refuse(reason, octets.len()),
            }
        }
        let begun = Instant::now();
        engine.batch(now, &mut batch, &mut out);
        engine.timer(now, &mut out);
        busy += begun.elapsed();
        now = now + manner.gap * chunk.len() as u32;
    }
    let begun = Instant::now();
    engine.stop(now, &mut out);
    busy += begun.elapsed();
    let counters = engine.counters();
    let accounted = counters
        .check()
        .map(|()| counters.snapshot())
        .map_err(|error| Error::NotDone { what: "a service by itself".into(), reason: error.to_string() });
    (busy, accounted, out.0.unwrap_or_default())
}
