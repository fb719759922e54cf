//! Values without a state: verdicts, ways, reasons, and what a service says of itself before it runs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What becomes of a packet.
#[pyclass(frozen, eq, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict(pub(crate) segue_service::Verdict);

#[pymethods]
impl Verdict {
    #[classattr]
    const ONWARD: Self = Self(segue_service::Verdict::Onward);
    #[classattr]
    const BACK: Self = Self(segue_service::Verdict::Back);
    #[classattr]
    const KERNEL: Self = Self(segue_service::Verdict::Kernel);
    #[classattr]
    const TAKEN: Self = Self(segue_service::Verdict::Taken);

    #[staticmethod]
    fn drop(reason: &Bound<'_, Reason>) -> Self {
        Self(segue_service::Verdict::Drop(reason.get().0))
    }

    fn __repr__(&self) -> String {
        match self.0 {
            segue_service::Verdict::Drop(reason) => format!("Verdict.drop(Reason.{})", reason.name().to_uppercase()),
            other => format!("Verdict.{}", format!("{other:?}").to_uppercase()),
        }
    }
}

/// Why a packet is dropped: one of the closed list.
#[pyclass(frozen, eq, hash, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Reason(pub(crate) segue_service::Reason);

impl Reason {
    /// Puts each of the list into the class, under its name in capitals. The list is of Rust: it is not written down a second time.
    pub(crate) fn name_all(py: Python<'_>) -> PyResult<()> {
        let class = py.get_type::<Self>();
        for reason in segue_service::Reason::ALL {
            class.setattr(reason.name().to_uppercase(), Py::new(py, Self(*reason))?)?;
        }
        Ok(())
    }
}

#[pymethods]
impl Reason {
    /// All of the list.
    #[staticmethod]
    fn all() -> Vec<Self> {
        segue_service::Reason::ALL.iter().copied().map(Self).collect()
    }

    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[getter]
    fn about(&self) -> &'static str {
        self.0.about()
    }

    fn __repr__(&self) -> String {
        format!("Reason.{}", self.0.name().to_uppercase())
    }
}

/// Where a packet of a service's own goes.
#[pyclass(frozen, eq, hash, rename_all = "UPPERCASE", from_py_object, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Onward,
    Back,
    Kernel,
}

impl From<Way> for segue_service::Way {
    fn from(way: Way) -> Self {
        match way {
            Way::Onward => Self::Onward,
            Way::Back => Self::Back,
            Way::Kernel => Self::Kernel,
        }
    }
}

impl From<segue_service::Way> for Way {
    fn from(way: segue_service::Way) -> Self {
        match way {
            segue_service::Way::Onward => Self::Onward,
            segue_service::Way::Back => Self::Back,
            segue_service::Way::Kernel => Self::Kernel,
        }
    }
}

/// Whether packets wait for the service.
#[pyclass(frozen, eq, hash, rename_all = "UPPERCASE", from_py_object, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Synchronous,
    Asynchronous,
}

impl From<Mode> for segue_service::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Synchronous => Self::Synchronous,
            Mode::Asynchronous => Self::Asynchronous,
        }
    }
}

/// What packets have in common that must go to one worker.
#[pyclass(frozen, eq, hash, rename_all = "UPPERCASE", from_py_object, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spread {
    Flow,
    Way,
}

impl From<Spread> for segue_service::Spread {
    fn from(spread: Spread) -> Self {
        match spread {
            Spread::Flow => Self::Flow,
            Spread::Way => Self::Way,
        }
    }
}

/// Which copies an asynchronous service gets.
#[pyclass(frozen, eq, from_py_object, module = "segue_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampling(pub(crate) segue_service::Sampling);

#[pymethods]
impl Sampling {
    #[new]
    #[pyo3(signature = (snap_length = None, one_in = 1))]
    fn new(snap_length: Option<u32>, one_in: u32) -> PyResult<Self> {
        if one_in == 0 {
            return Err(PyValueError::new_err("one_in is 0: one packet in so many is copied, at least 1"));
        }
        Ok(Self(segue_service::Sampling { snap_length, one_in }))
    }

    #[getter]
    fn snap_length(&self) -> Option<u32> {
        self.0.snap_length
    }

    #[getter]
    fn one_in(&self) -> u32 {
        self.0.one_in
    }

    fn __repr__(&self) -> String {
        let snap_length = self.0.snap_length.map_or_else(|| "None".to_owned(), |octets| octets.to_string());
        format!("Sampling(snap_length={snap_length}, one_in={})", self.0.one_in)
    }
}

/// A metric of a service.
#[pyclass(frozen, eq, from_py_object, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    #[pyo3(get)]
    pub(crate) name: String,
    #[pyo3(get)]
    pub(crate) about: String,
    pub(crate) kind: segue_service::MetricKind,
}

impl Metric {
    fn new(name: String, about: String, kind: segue_service::MetricKind) -> PyResult<Self> {
        let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
        if is_name {
            return Ok(Self { name, about, kind });
        }
        let message = "cannot name a metric: write small letters, digits and underscores, with the unit at its end";
        Err(PyValueError::new_err(format!("{name:?} {message}")))
    }
}

#[pymethods]
impl Metric {
    #[staticmethod]
    fn counter(name: String, about: String) -> PyResult<Self> {
        Self::new(name, about, segue_service::MetricKind::Counter)
    }

    #[staticmethod]
    fn gauge(name: String, about: String) -> PyResult<Self> {
        Self::new(name, about, segue_service::MetricKind::Gauge)
    }

    fn __repr__(&self) -> String {
        let kind = if self.kind == segue_service::MetricKind::Counter { "counter" } else { "gauge" };
        format!("Metric.{kind}({:?}, {:?})", self.name, self.about)
    }
}
