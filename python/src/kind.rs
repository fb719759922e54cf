//! A class of Python as a kind of service.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use segue_model::error::{Errors, KeyPath, ModelError, Report};
use segue_service::{BuildError, Metric, MetricKind, Mode, Prepared, Registered, Sampling, Spread, Worker};
use serde_json::{Map, Value};

use crate::{configuration, failure, service, values};

/// A class, and what it says of itself.
pub(crate) struct Kind(Arc<Class>);

struct Class {
    class: Py<PyType>,
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    defaults: Map<String, Value>,
}

/// Names live as long as the process: each is kept once.
fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.iter().find(|there| **there == text) {
        return found;
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    all.push(text);
    text
}

/// The same for lists of metrics.
fn kept_metrics(metrics: Vec<Metric>) -> &'static [Metric] {
    static KEPT: Mutex<Vec<&'static [Metric]>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.iter().find(|there| **there == metrics.as_slice()) {
        return found;
    }
    let metrics: &'static [Metric] = Box::leak(metrics.into_boxed_slice());
    all.push(metrics);
    metrics
}

/// `TcpBulk` is `tcp-bulk`.
fn hyphenated(class: &str) -> String {
    let mut name = String::new();
    for letter in class.trim_matches('_').chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

impl Kind {
    /// Of a subclass of `segue_service.Service`.
    ///
    /// # Errors
    /// What is wrong with the class.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = class.py();
        let base = py.import("segue_service")?.getattr("Service")?;
        let wrong = PyTypeError::new_err::<String>;
        let Ok(class) = class.cast::<PyType>() else {
            return Err(wrong(format!("{} is no class: give a subclass of segue_service.Service", class.repr()?)));
        };
        if !class.is_subclass(&base)? || class.is(&base) {
            return Err(wrong(format!("{} is no subclass of segue_service.Service", class.name()?)));
        }
        let written: String = class.getattr("NAME")?.extract()?;
        let name = if written.is_empty() { hyphenated(&class.name()?.to_string()) } else { written };
        if !segue_model::check::is_namespace_name(&name) {
            let remedy = "write letters, digits, `.`, `-` and `_` in NAME, at most 63";
            return Err(PyValueError::new_err(format!("{name:?} cannot name a service: {remedy}")));
        }
        let about: String = class.getattr("ABOUT")?.extract()?;
        let doc: Option<String> = class.getattr("__doc__")?.extract()?;
        let first = doc.as_deref().unwrap_or_default().trim().lines().next().unwrap_or_default().to_owned();
        let about = if about.is_empty() { first } else { about };
        let metrics: Vec<values::Metric> = class.getattr("METRICS")?.extract()?;
        for (index, metric) in metrics.iter().enumerate() {
            if metrics[..index].iter().any(|before| before.name == metric.name) {
                return Err(PyValueError::new_err(format!("METRICS has {:?} twice", metric.name)));
            }
        }
        let metric = |metric: &values::Metric| {
            let (name, about) = (kept(&metric.name), kept(&metric.about));
            if metric.kind == MetricKind::Counter { Metric::counter(name, about) } else { Metric::gauge(name, about) }
        };
        let defaults = to_json(&class.getattr("CONFIGURATION")?)?;
        let Value::Object(defaults) = defaults else {
            return Err(wrong(format!("CONFIGURATION of {name} is no dictionary")));
        };
        Ok(Self(Arc::new(Class {
            class: class.clone().unbind(),
            name: kept(&name),
            about: kept(&about),
            metrics: kept_metrics(metrics.iter().map(metric).collect()),
            defaults,
        })))
    }
}

/// What Python's `json` can write.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text: String = value.py().import("json")?.call_method1("dumps", (value,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub(crate) fn from_json<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}

impl Registered for Kind {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn about(&self) -> &'static str {
        self.0.about
    }

    fn metrics(&self) -> &'static [Metric] {
        self.0.metrics
    }

    fn schema(&self) -> Value {
        configuration::schema(self.0.name, &self.0.defaults)
    }

    fn prepare(&self, source: &str, file: &str) -> Result<Arc<dyn Prepared>, Errors> {
        let is_empty = source.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let value = if is_empty { Value::Null } else { segue_model::load::document(source, file)? };
        let prepared = self.prepare_value(&value, &KeyPath::root());
        prepared.map_err(|errors| segue_model::load::locate(errors, source, file))
    }

    fn prepare_value(&self, value: &Value, key: &KeyPath) -> Result<Arc<dyn Prepared>, Errors> {
        let mut report = Report::below(key);
        let configuration = configuration::complete(&self.0.defaults, value, &mut report);
        report.finish()?;
        let mut report = Report::below(key);
        let with = Python::attach(|py| self.0.with(py, configuration, &mut report));
        report.finish()?;
        match with {
            Ok(with) => Ok(Arc::new(with)),
            Err(error) => {
                let text = Python::attach(|py| failure::text(py, &error));
                let message = format!("the service {} has failed: {}", self.0.name, text.trim_end());
                let remedy = "correct its class".to_owned();
                Err(ModelError { file: None, position: None, key: key.clone(), message, remedy }.into())
            }
        }
    }
}

impl Class {
    /// Has the class check a configuration, and asks what it is like with it.
    fn with(
        self: &Arc<Self>,
        py: Python<'_>,
        configuration: Map<String, Value>,
        report: &mut Report,
    ) -> PyResult<With> {
        let class = self.class.bind(py);
        let configuration = Value::Object(configuration);
        let written = from_json(py, &configuration)?;
        let said = Bound::new(py, configuration::Report::default())?;
        class.call_method1("check", (&written, &said))?;
        for (key, message, remedy) in &said.borrow().errors {
            let key = key.split('.').filter(|step| !step.is_empty()).fold(KeyPath::root(), |path, step| path.at(step));
            report.error(&key, message, remedy);
        }
        let ask = |method: &str| class.call_method1(method, (&written,));
        let yes = |method: &str| ask(method)?.is_truthy();
        Ok(With {
            class: Arc::clone(self),
            mode: ask("mode")?.extract::<values::Mode>()?.into(),
            sampling: ask("sampling")?.extract::<values::Sampling>()?.0,
            spread: ask("spread")?.extract::<values::Spread>()?.into(),
            many_workers: yes("many_workers")?,
            uses_kernel: yes("uses_kernel")?,
            rewrites_flows: yes("rewrites_flows")?,
            configuration,
        })
    }
}

/// A class with a checked configuration.
struct With {
    class: Arc<Class>,
    mode: Mode,
    sampling: Sampling,
    spread: Spread,
    many_workers: bool,
    uses_kernel: bool,
    rewrites_flows: bool,
    configuration: Value,
}

impl Prepared for With {
    fn name(&self) -> &'static str {
        self.class.name
    }

    fn metrics(&self) -> &'static [Metric] {
        self.class.metrics
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn sampling(&self) -> Sampling {
        self.sampling
    }

    fn many_workers(&self) -> bool {
        self.many_workers
    }

    fn spread(&self) -> Spread {
        self.spread
    }

    fn uses_kernel(&self) -> bool {
        self.uses_kernel
    }

    fn makes_devices(&self) -> bool {
        // It would need a descriptor to wait for, which the binding does not have.
        false
    }

    fn rewrites_flows(&self) -> bool {
        self.rewrites_flows
    }

    fn refuses_labels(&self) -> Option<&'static str> {
        Some("is written in Python, whose steering headers are those of SRv6")
    }

    fn build(&self, worker: Worker) -> Result<Box<dyn segue_service::Service>, BuildError> {
        Python::attach(|py| {
            let class = &self.class;
            let made = from_json(py, &self.configuration).and_then(|configuration| {
                service::Service::new(class.class.bind(py), class.name, class.metrics, configuration, worker)
            });
            let made = made.map_err(|error| BuildError {
                what: format!("an object of its class cannot be made: {}", failure::text(py, &error).trim_end()),
                remedy: "correct its __init__(), or what that needs".to_owned(),
            })?;
            Ok(Box::new(made) as Box<dyn segue_service::Service>)
        })
    }

    fn configuration(&self) -> Value {
        self.configuration.clone()
    }
}
