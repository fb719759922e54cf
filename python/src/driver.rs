//! Runs a service in a test: no root, no device, a virtual clock.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use pyo3::exceptions::{PyAssertionError, PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use segue_model::error::KeyPath;
use segue_service::{Prepared, Registered, Worker};

use crate::kind::{self, Kind};
use crate::octets::Octets;
use crate::snapshot::Snapshot;
use crate::values::{Mode, Way};

/// Octets of the largest inner packet that [`srv6`] puts a steering header in front of.
const LARGEST_INNER: usize = 65_535 - 40;

/// A packet that has left.
#[pyclass(frozen, eq, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent(segue_service::driver::Sent);

#[pymethods]
impl Sent {
    /// From the outer IP header on.
    #[getter]
    fn octets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.octets)
    }

    #[getter]
    fn way(&self) -> Way {
        self.0.way.into()
    }

    /// The worker that sent it.
    #[getter]
    fn worker(&self) -> usize {
        self.0.worker
    }

    /// When, in nanoseconds.
    #[getter]
    fn at(&self) -> u64 {
        self.0.at.nanos()
    }

    #[getter]
    fn segment_size(&self) -> Option<u16> {
        self.0.segment_size
    }

    fn __repr__(&self) -> String {
        format!(
            "<Sent {} octets {:?} by worker {} at {} ns>",
            self.0.octets.len(),
            self.0.way,
            self.0.worker,
            self.at()
        )
    }
}

/// A service with a configuration: a class of Python's, or the name of one of Segue's own services.
///
/// # Errors
/// What is wrong with either.
pub(crate) fn prepared(
    service: &Bound<'_, PyAny>,
    configuration: Option<&Bound<'_, PyAny>>,
) -> PyResult<std::sync::Arc<dyn Prepared>> {
    let value = match configuration {
        Some(configuration) => kind::to_json(configuration)?,
        None => serde_json::Value::Null,
    };
    let prepared = if let Ok(name) = service.cast::<PyString>() {
        let name = name.to_string();
        let known = || segue_services::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
        let kind = segue_services::find(&name)
            .ok_or_else(|| PyValueError::new_err(format!("there is no service {name:?}; there are: {}", known())))?;
        kind.prepare_value(&value, &KeyPath::root())
    } else {
        Kind::of(service)?.prepare_value(&value, &KeyPath::root())
    };
    prepared.map_err(|errors| PyValueError::new_err(errors.to_string()))
}

/// Packets in, packets out, with the same engine as the program has.
#[pyclass(module = "segue_service")]
pub(crate) struct Driver(Mutex<State>);

struct State {
    driver: segue_service::Driver,
    workers: usize,
    stopped: bool,
}

impl Driver {
    /// Fails instead of waiting for itself: a service cannot use the driver that runs it.
    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        self.0.try_lock().map_err(|_| PyRuntimeError::new_err("the driver is at work, or has failed"))
    }

    /// The same, if the service is not stopped.
    fn at_work(&self) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state()?;
        if state.stopped { Err(PyRuntimeError::new_err("the service is stopped")) } else { Ok(state) }
    }
}

#[pymethods]
impl Driver {
    #[new]
    #[pyo3(signature = (service, configuration = None, *, workers = 1, mtu = segue_service::driver::MTU))]
    fn new(
        service: &Bound<'_, PyAny>,
        configuration: Option<&Bound<'_, PyAny>>,
        workers: usize,
        mtu: usize,
    ) -> PyResult<Self> {
        let prepared = prepared(service, configuration)?;
        let many = workers > 1 && (!prepared.many_workers() || prepared.mode() == segue_service::Mode::Asynchronous);
        if !(1..=64).contains(&workers) || many {
            let message = format!("{workers} workers are not possible for {}", prepared.name());
            return Err(PyValueError::new_err(message));
        }
        let build = |index| prepared.build(Worker { index, count: workers });
        let built: Result<Vec<_>, _> = (0..workers).map(build).collect();
        let built = built.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let driver = segue_service::Driver::with(built, prepared.mode(), mtu, prepared.metrics());
        let driver = driver.spread_by(prepared.spread());
        Ok(Self(Mutex::new(State { driver, workers, stopped: false })))
    }

    /// Nanoseconds.
    #[getter]
    fn now(&self) -> PyResult<u64> {
        Ok(self.state()?.driver.now().nanos())
    }

    #[getter]
    fn mode(&self) -> PyResult<Mode> {
        Ok(match self.state()?.driver.mode() {
            segue_service::Mode::Synchronous => Mode::Synchronous,
            segue_service::Mode::Asynchronous => Mode::Asynchronous,
        })
    }

    /// Receives packets as one batch, each by the worker of its flow.
    fn receive(&self, packets: Vec<Octets>) -> PyResult<()> {
        self.receive_cut(packets, usize::MAX)
    }

    /// The same, with copies cut to so many octets.
    fn receive_cut(&self, packets: Vec<Octets>, snap_length: usize) -> PyResult<()> {
        let mut state = self.at_work()?;
        if snap_length != usize::MAX && state.driver.mode() == segue_service::Mode::Synchronous {
            return Err(PyValueError::new_err("packets that wait for their service are not cut, only copies are"));
        }
        let packets: Vec<_> = packets.into_iter().map(|octets| octets.0).collect();
        state.driver.receive_cut(&packets, snap_length);
        Ok(())
    }

    fn set_frame_length(&self, octets: usize) -> PyResult<()> {
        self.state()?.driver.set_frame_length(octets.min(1 << 20));
        Ok(())
    }

    /// Lets nanoseconds pass. Timers run when they are due, in order, each at its time.
    fn advance(&self, nanoseconds: u64) -> PyResult<()> {
        self.at_work()?.driver.advance(Duration::from_nanos(nanoseconds));
        Ok(())
    }

    /// Packets that have left since the last call, in order.
    fn sent(&self) -> PyResult<Vec<Sent>> {
        Ok(self.state()?.driver.sent().into_iter().map(Sent).collect())
    }

    fn counters(&self) -> PyResult<Snapshot> {
        Ok(Snapshot(self.state()?.driver.counters()))
    }

    /// What a worker's service says of itself.
    #[pyo3(signature = (worker = 0))]
    fn report<'py>(&self, py: Python<'py>, worker: usize) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state()?;
        if worker >= state.workers {
            return Err(PyIndexError::new_err(format!("there are {} workers", state.workers)));
        }
        kind::from_json(py, &state.driver.report(worker))
    }

    /// Stops the service, and asserts that it holds nothing any more.
    fn stop(&self) -> PyResult<()> {
        let mut state = self.at_work()?;
        state.stopped = true;
        state.driver.try_stop().map_err(PyAssertionError::new_err)
    }
}

fn fitting(inner: Octets) -> PyResult<Vec<u8>> {
    if inner.0.len() <= LARGEST_INNER {
        return Ok(inner.0);
    }
    Err(PyValueError::new_err(format!("{} octets do not fit behind a steering header", inner.0.len())))
}

/// A steering header with the segment list <SID, NEXT> in front of an inner packet.
#[pyfunction]
pub(crate) fn srv6(py: Python<'_>, inner: Octets) -> PyResult<Bound<'_, PyBytes>> {
    Ok(PyBytes::new(py, &segue_service::driver::srv6(&fitting(inner)?)))
}

/// The same with a protocol number.
#[pyfunction]
pub(crate) fn srv6_around(py: Python<'_>, protocol: u8, inner: Octets) -> PyResult<Bound<'_, PyBytes>> {
    Ok(PyBytes::new(py, &segue_service::driver::srv6_around(protocol, &fitting(inner)?)))
}
