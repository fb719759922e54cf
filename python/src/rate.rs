//! How fast a service is: its engine with nothing around it.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use segue_service::{Counters, Engine, Mode, Packet, Prepared, Reason, Sink, SteeringKind, Time, Way, Worker, driver};

use crate::octets::Octets;

/// Packets of a batch: as many as a worker of the program takes at most.
const BATCH: usize = 64;
/// Octets of a frame, and where a packet begins in it: as the program has it, with an Ethernet header behind XDP's 256 octets.
const FRAME: usize = 4096;
const HEADROOM: usize = 270;

/// Where packets go that nobody counts.
struct Nowhere;

impl Sink for Nowhere {
    fn received(&mut self, _: usize, _: &mut Packet<'_>, _: Way) -> Result<(), Reason> {
        Ok(())
    }

    fn own(&mut self, _: &Packet<'_>, _: Way) -> Result<(), Reason> {
        Ok(())
    }
}

/// Seconds that the engine takes for so many packets like `packet`, in batches of 64, in a thread of its own as a worker has one. A packet is
/// copied into its frame first, which is counted too.
#[pyfunction]
#[pyo3(signature = (service, packet, packets, configuration = None))]
pub(crate) fn seconds(
    py: Python<'_>,
    service: &Bound<'_, PyAny>,
    packet: Octets,
    packets: usize,
    configuration: Option<&Bound<'_, PyAny>>,
) -> PyResult<f64> {
    let prepared = crate::driver::prepared(service, configuration)?;
    let packet = packet.0;
    if packet.len() > FRAME - HEADROOM || Packet::from_octets(SteeringKind::Srv6, &packet, Time::START).is_err() {
        return Err(PyValueError::new_err("a steered packet that fits into a frame is wanted"));
    }
    let run = || std::thread::scope(|scope| scope.spawn(|| measured(prepared.as_ref(), &packet, packets)).join());
    match py.detach(run) {
        Ok(result) => result.map_err(PyRuntimeError::new_err),
        Err(_) => Err(PyRuntimeError::new_err("the service has panicked")),
    }
}

fn measured(prepared: &dyn Prepared, template: &[u8], packets: usize) -> Result<f64, String> {
    let service = prepared.build(Worker::ONLY).map_err(|error| error.to_string())?;
    let counters = Arc::new(Counters::new(prepared.metrics()));
    let mut engine = Engine::new(service, prepared.mode(), Worker::ONLY, driver::MTU, Arc::clone(&counters));
    let mut frames = vec![vec![0; FRAME]; BATCH];
    let begun = Instant::now();
    let mut left = packets;
    while left > 0 {
        let now = Time::START + begun.elapsed();
        let count = left.min(BATCH);
        let mut batch = Vec::with_capacity(count);
        for frame in &mut frames[..count] {
            let range = HEADROOM..HEADROOM + template.len();
            let given = if prepared.mode() == Mode::Synchronous {
                frame[range.clone()].copy_from_slice(template);
                Packet::in_frame(SteeringKind::Srv6, frame, range, template.len(), now)
            } else {
                Packet::from_cut(SteeringKind::Srv6, template.to_vec(), template.len(), now)
            };
            batch.push(given.map_err(|reason| reason.name().to_owned())?);
        }
        engine.batch(now, &mut batch, &mut Nowhere);
        if engine.wake().is_some_and(|wake| wake <= now) {
            engine.timer(now, &mut Nowhere);
        }
        left -= count;
    }
    let taken = begun.elapsed().as_secs_f64();
    engine.stop(Time::START + begun.elapsed(), &mut Nowhere);
    counters.check()?;
    if counters.snapshot().dropped(Reason::ServiceFailed) > 0 {
        return Err("the service has failed on packets: the log says why".to_owned());
    }
    Ok(taken)
}
