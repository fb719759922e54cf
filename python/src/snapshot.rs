//! Counters at one moment.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::values::Reason;

/// Counters of all workers together.
#[pyclass(frozen, eq, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(crate) segue_service::Snapshot);

type Row = BTreeMap<segue_service::Reason, u64>;

fn row(row: &Row) -> BTreeMap<&'static str, u64> {
    row.iter().map(|(reason, packets)| (reason.name(), *packets)).collect()
}

#[pymethods]
impl Snapshot {
    #[getter]
    fn received(&self) -> u64 {
        self.0.received
    }

    #[getter]
    fn received_octets(&self) -> u64 {
        self.0.received_octets
    }

    #[getter]
    fn onward(&self) -> u64 {
        self.0.onward
    }

    #[getter]
    fn back(&self) -> u64 {
        self.0.back
    }

    #[getter]
    fn kernel(&self) -> u64 {
        self.0.kernel
    }

    #[getter]
    fn taken(&self) -> u64 {
        self.0.taken
    }

    #[getter]
    fn taken_sent(&self) -> u64 {
        self.0.taken_sent
    }

    #[getter]
    fn own(&self) -> u64 {
        self.0.own
    }

    #[getter]
    fn own_out(&self) -> u64 {
        self.0.own_out
    }

    #[getter]
    fn out_octets(&self) -> u64 {
        self.0.out_octets
    }

    #[getter]
    fn dropped_received(&self) -> BTreeMap<&'static str, u64> {
        row(&self.0.dropped_received)
    }

    #[getter]
    fn dropped_taken(&self) -> BTreeMap<&'static str, u64> {
        row(&self.0.dropped_taken)
    }

    #[getter]
    fn dropped_own(&self) -> BTreeMap<&'static str, u64> {
        row(&self.0.dropped_own)
    }

    #[getter]
    fn metrics(&self) -> BTreeMap<String, u64> {
        self.0.metrics.clone()
    }

    /// Packets that the service holds: taken, and neither sent nor dropped.
    #[getter]
    fn held(&self) -> u64 {
        self.0.held()
    }

    /// Dropped for this reason, wherever they came from.
    fn dropped(&self, reason: &Bound<'_, Reason>) -> u64 {
        self.0.dropped(reason.get().0)
    }

    fn __repr__(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}
