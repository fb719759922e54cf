//! What a service counts of its own.

use serde::Serialize;

/// Whether a metric only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It is a state.
    Gauge,
}

/// A metric of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Its name: small letters and underscores, with the unit at its end.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// What it says.
    pub about: &'static str,
}

impl Metric {
    /// A counter.
    #[must_use]
    pub const fn counter(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, about }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, about }
    }
}
