//! One worker's part of a service in Python.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use segue_service::{Context, Packet, Reason};

use crate::failure::{self, Log};
use crate::{context, packet, values};

/// An object of the service's class, with its methods looked up once.
pub(crate) struct Service {
    name: &'static str,
    worker: usize,
    packet: Py<PyAny>,
    timer: Py<PyAny>,
    stop: Py<PyAny>,
    report: Py<PyAny>,
    context: Py<context::Context>,
    log: Log,
}

impl Service {
    /// Calls the class.
    ///
    /// # Errors
    /// What the class raises.
    pub(crate) fn new(
        class: &Bound<'_, PyAny>,
        name: &'static str,
        metrics: &'static [segue_service::Metric],
        configuration: Bound<'_, PyAny>,
        worker: segue_service::Worker,
    ) -> PyResult<Self> {
        let py = class.py();
        // Now: once the service is confined, what this imports in turn may not be found any more.
        py.import("traceback")?;
        let object = class.call1((configuration, context::Worker::from(worker)))?;
        let method = |name| object.getattr(name).map(Bound::unbind);
        Ok(Self {
            name,
            worker: worker.index,
            packet: method("packet")?,
            timer: method("timer")?,
            stop: method("stop")?,
            report: method("report")?,
            context: Py::new(py, context::Context::new(worker, metrics))?,
            log: Log::default(),
        })
    }

    fn failed(&mut self, py: Python<'_>, context: &Context, what: &str, error: &PyErr) {
        let head = format!("{}, worker {}: {what}", self.name, self.worker);
        self.log.failed(context.now(), &head, || failure::text(py, error));
    }

    /// One packet and its verdict, with what the service asked for meanwhile done.
    fn one(&mut self, py: Python<'_>, packet: &mut Packet<'_>, context: &mut Context) -> segue_service::Verdict {
        let decided = self.decide(py, packet, context);
        let took = matches!(decided, Ok(segue_service::Verdict::Taken));
        let wrong = self.context.borrow_mut(py).finish(context, took);
        let decided = match wrong {
            0 => decided,
            packets => decided.and(Err(PyRuntimeError::new_err(format!(
                "{packets} packets were accounted for that the service has not taken: return Verdict.TAKEN"
            )))),
        };
        decided.unwrap_or_else(|error| {
            self.failed(py, context, "packet() has failed; the packet is dropped as service_failed", &error);
            segue_service::Verdict::Drop(Reason::ServiceFailed)
        })
    }

    fn decide(&self, py: Python<'_>, packet: &mut Packet<'_>, context: &Context) -> PyResult<segue_service::Verdict> {
        self.context.borrow_mut(py).begin(context, true);
        let copy = Bound::new(py, packet::Packet::of(packet))?;
        let answer = self.packet.bind(py).call1((&copy, &self.context))?;
        let Ok(verdict) = answer.cast::<values::Verdict>() else {
            let kind = answer.get_type().name()?;
            return Err(PyTypeError::new_err(format!("packet() has returned {kind}, not a Verdict")));
        };
        let verdict = verdict.get().0;
        if matches!(verdict, segue_service::Verdict::Drop(_) | segue_service::Verdict::Taken) {
            return Ok(verdict);
        }
        // The engine drops it if it has become longer than a packet can be.
        Ok(copy.borrow().write_back(packet).map_or_else(segue_service::Verdict::Drop, |()| verdict))
    }

    /// A method that is called without a packet.
    fn call(&mut self, context: &mut Context, method: fn(&Self) -> &Py<PyAny>, name: &str) {
        Python::attach(|py| {
            self.context.borrow_mut(py).begin(context, false);
            let result = method(self).bind(py).call1((&self.context,)).map(drop);
            // None too many: without a packet, what cannot be is refused where it is asked for.
            self.context.borrow_mut(py).finish(context, false);
            if let Err(error) = result {
                self.failed(py, context, &format!("{name}() has failed"), &error);
            }
        });
    }

    fn reported(&self, py: Python<'_>) -> PyResult<serde_json::Value> {
        let report = self.report.bind(py).call0()?;
        if report.is_none() {
            return Ok(serde_json::Value::Null);
        }
        let text: String = py.import("json")?.call_method1("dumps", (report,))?.extract()?;
        serde_json::from_str(&text).map_err(|error| PyTypeError::new_err(format!("report() is no JSON: {error}")))
    }
}

impl segue_service::Service for Service {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> segue_service::Verdict {
        Python::attach(|py| self.one(py, packet, context))
    }

    fn batch(&mut self, packets: &mut [Packet<'_>], context: &mut Context) {
        // One GIL for all of them.
        Python::attach(|py| {
            for (index, packet) in packets.iter_mut().enumerate() {
                context.at(index);
                let verdict = self.one(py, packet, context);
                packet.decide(verdict);
            }
        });
    }

    fn timer(&mut self, context: &mut Context) {
        self.call(context, |service| &service.timer, "timer");
    }

    fn stop(&mut self, context: &mut Context) {
        self.call(context, |service| &service.stop, "stop");
        let head = format!("{}, worker {}", self.name, self.worker);
        self.log.finish(&head);
    }

    fn report(&self) -> serde_json::Value {
        Python::attach(|py| {
            // Whoever asks sees it; the log of the worker cannot be written to by who only looks.
            self.reported(py).unwrap_or_else(|error| serde_json::json!({ "error": failure::line(py, &error) }))
        })
    }
}
