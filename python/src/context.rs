//! What a service in Python is given besides the packet.
//!
//! What Python code asks for is remembered and done when the call has ended: the engine's context is borrowed for one call, and Python objects
//! are not. What cannot be is refused at once, where the traceback says.

use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use segue_service::{Reason as Cause, Time};

use crate::packet::Packet;
use crate::values::{Reason, Way};

/// Which worker of how many.
#[pyclass(frozen, eq, get_all, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worker {
    index: usize,
    count: usize,
}

impl From<segue_service::Worker> for Worker {
    fn from(worker: segue_service::Worker) -> Self {
        Self { index: worker.index, count: worker.count }
    }
}

#[pymethods]
impl Worker {
    fn __repr__(&self) -> String {
        format!("<Worker {} of {}>", self.index, self.count)
    }
}

/// What Python code has asked for.
enum Action {
    Send(segue_service::Way, segue_service::Packet<'static>),
    Wake(Time),
    Count(usize, u64),
    Set(usize, u64),
}

/// Time, counters, and the ways out. One for each worker.
#[pyclass(module = "segue_service")]
pub(crate) struct Context {
    now: Time,
    mtu: usize,
    worker: Worker,
    metrics: &'static [segue_service::Metric],
    actions: Vec<Action>,
    /// Packets that the service has taken and not accounted for.
    held: u64,
    /// Whether a packet is looked at, which may be taken yet.
    has_packet: bool,
    accounted_sent: u64,
    accounted_dropped: Vec<(Cause, u64)>,
}

impl Context {
    pub(crate) fn new(worker: segue_service::Worker, metrics: &'static [segue_service::Metric]) -> Self {
        Self {
            now: Time::START,
            mtu: 0,
            worker: worker.into(),
            metrics,
            actions: Vec::new(),
            held: 0,
            has_packet: false,
            accounted_sent: 0,
            accounted_dropped: Vec::new(),
        }
    }

    /// Before a call.
    pub(crate) fn begin(&mut self, context: &segue_service::Context, has_packet: bool) {
        self.now = context.now();
        self.mtu = context.mtu();
        self.has_packet = has_packet;
    }

    /// After a call: does what it asked for. `took`: the packet that it looked at is taken. Returns for how many packets it has accounted that
    /// it does not have, for which nothing was counted.
    pub(crate) fn finish(&mut self, context: &mut segue_service::Context, took: bool) -> u64 {
        for action in self.actions.drain(..) {
            match action {
                Action::Send(way, packet) => context.send_by(way, packet),
                Action::Wake(time) => context.wake_at(time),
                Action::Count(metric, amount) => context.count(metric, amount),
                Action::Set(metric, value) => context.set(metric, value),
            }
        }
        self.has_packet = false;
        self.held += u64::from(took);
        if self.accounted_sent == 0 && self.accounted_dropped.is_empty() {
            return 0;
        }
        let mut wrong = 0;
        let mut settle = |asked: u64| {
            let settled = asked.min(self.held);
            self.held -= settled;
            wrong += asked - settled;
            settled
        };
        context.account_sent(settle(std::mem::take(&mut self.accounted_sent)));
        for (cause, packets) in self.accounted_dropped.drain(..) {
            context.account_dropped(cause, settle(packets));
        }
        wrong
    }

    /// Whether it can account for so many packets more.
    fn owes(&self, packets: u64) -> PyResult<()> {
        let dropped: u64 = self.accounted_dropped.iter().map(|(_, packets)| packets).sum();
        let owed = (self.held + u64::from(self.has_packet)).saturating_sub(self.accounted_sent + dropped);
        if packets <= owed {
            return Ok(());
        }
        let message =
            format!("{packets} packets are accounted for, but the service has taken only {owed}: return Verdict.TAKEN");
        Err(PyValueError::new_err(message))
    }

    fn metric(&self, name: &str, kind: segue_service::MetricKind) -> PyResult<usize> {
        let found = self.metrics.iter().position(|metric| metric.name == name && metric.kind == kind);
        found.ok_or_else(|| {
            let known: Vec<_> = self.metrics.iter().filter(|metric| metric.kind == kind).collect();
            let names: Vec<_> = known.iter().map(|metric| metric.name).collect();
            let kind = if kind == segue_service::MetricKind::Counter { "counter" } else { "gauge" };
            PyKeyError::new_err(format!("METRICS has no {kind} {name:?}; it has: {}", names.join(", ")))
        })
    }
}

#[pymethods]
impl Context {
    /// Nanoseconds: the time at which the batch was received, or at which the timer runs.
    #[getter]
    fn now(&self) -> u64 {
        self.now.nanos()
    }

    #[getter]
    fn worker(&self) -> Worker {
        self.worker
    }

    #[getter]
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, packet: &Packet) {
        self.send_by(Way::Onward, packet);
    }

    fn send_by(&mut self, way: Way, packet: &Packet) {
        self.actions.push(Action::Send(way.into(), packet.packet.to_owned()));
    }

    fn account_sent(&mut self, packets: u64) -> PyResult<()> {
        self.owes(packets)?;
        self.accounted_sent += packets;
        Ok(())
    }

    fn account_dropped(&mut self, reason: &Bound<'_, Reason>, packets: u64) -> PyResult<()> {
        self.owes(packets)?;
        self.accounted_dropped.push((reason.get().0, packets));
        Ok(())
    }

    fn wake_at(&mut self, time: u64) {
        self.actions.push(Action::Wake(Time::START + Duration::from_nanos(time)));
    }

    #[pyo3(signature = (metric, amount = 1))]
    fn count(&mut self, metric: &str, amount: u64) -> PyResult<()> {
        let index = self.metric(metric, segue_service::MetricKind::Counter)?;
        self.actions.push(Action::Count(index, amount));
        Ok(())
    }

    fn set(&mut self, metric: &str, value: u64) -> PyResult<()> {
        let index = self.metric(metric, segue_service::MetricKind::Gauge)?;
        self.actions.push(Action::Set(index, value));
        Ok(())
    }
}
