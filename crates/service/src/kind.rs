//! What a service is before it runs: its name, its configuration, and how a worker's part of it is made.

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use segue_model::error::{Errors, KeyPath, Report};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Worker;
use crate::metric::Metric;
use crate::service::Service;

/// Whether packets wait for the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They wait for its verdict.
    Synchronous,
    /// They go on, and the service gets copies.
    Asynchronous,
}

/// Which copies an asynchronous service gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sampling {
    /// Octets of each packet that are copied at most, from the outer IP header on. None: all.
    pub snap_length: Option<u32>,
    /// One packet in so many is copied, at least 1.
    pub one_in: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { snap_length: None, one_in: 1 }
    }
}

/// What packets have in common that must go to one worker, so that they leave in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Addresses, protocol and ports of the inner packet; source and flow label of the outer header where that is no IP packet.
    Flow,
    /// Source and flow label of the outer header: for services to which packets of one flow come in more than one form.
    Way,
}

/// Why a worker cannot be made although its configuration is right: a file or a device is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n  do: {remedy}")]
pub struct BuildError {
    /// What failed, and where.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// A kind of service.
pub trait Kind: Send + Sync + 'static {
    /// Its name in configurations and on the command line.
    const NAME: &'static str;
    /// What it does, in one sentence.
    const ABOUT: &'static str;
    /// Its own metrics; [`crate::Context::count`] takes a place in this list.
    const METRICS: &'static [Metric] = &[];

    /// What an operator writes: `#[serde(deny_unknown_fields, default)]`, a doc comment with unit and range for every key.
    type Configuration: DeserializeOwned + Serialize + JsonSchema + Default + Clone + Send + Sync;

    /// Says what is wrong with the meaning of a configuration, with a remedy for each.
    fn check(configuration: &Self::Configuration, report: &mut Report) {
        let _ = (configuration, report);
    }

    /// Whether packets wait for it.
    fn mode(configuration: &Self::Configuration) -> Mode;

    /// Asynchronous: which copies it gets.
    fn sampling(configuration: &Self::Configuration) -> Sampling {
        let _ = configuration;
        Sampling::default()
    }

    /// Whether more than one worker may run. Not, if its state is one for all packets.
    fn many_workers(configuration: &Self::Configuration) -> bool {
        let _ = configuration;
        true
    }

    /// Which packets must go to one worker.
    fn spread(configuration: &Self::Configuration) -> Spread {
        let _ = configuration;
        Spread::Flow
    }

    /// Whether it gives packets to the kernel of its namespace ([`crate::Verdict::Kernel`]): a device is made for them then.
    fn uses_kernel(configuration: &Self::Configuration) -> bool {
        let _ = configuration;
        false
    }

    /// Whether [`Kind::build`] makes network devices: the service keeps the right to (CAP_NET_ADMIN).
    fn makes_devices(configuration: &Self::Configuration) -> bool {
        let _ = configuration;
        false
    }

    /// Whether what it sends may be another flow than what it got: other addresses, ports or protocol behind the steering header, fragments
    /// put together, packets made of several. The node compares what comes back with what was sent, and has to be told.
    fn rewrites_flows(configuration: &Self::Configuration) -> bool {
        let _ = configuration;
        false
    }

    /// Why it cannot be behind a label ([`crate::SteeringKind::SrMpls`]), where each packet that comes in must leave as an IP packet of the same version:
    /// a word or more behind its name. None: it can.
    fn refuses_labels(configuration: &Self::Configuration) -> Option<&'static str> {
        let _ = configuration;
        None
    }

    /// Whether it can be given packets merged by segmentation offload ([`crate::Packet::segment_size`]), of up to 64 KiB, with checksums that are left to the
    /// kernel ([`crate::Packet::offload`]). For services that let what is behind the steering header be as it is.
    fn takes_merged(configuration: &Self::Configuration) -> bool {
        let _ = configuration;
        false
    }

    /// Makes a worker's part. Called in the service's own namespace, before packets come.
    ///
    /// # Errors
    /// If something outside is missing.
    fn build(configuration: &Self::Configuration, worker: Worker) -> Result<Box<dyn Service>, BuildError>;
}

/// A service with a checked configuration.
pub trait Prepared: Send + Sync {
    /// [`Kind::NAME`].
    fn name(&self) -> &'static str;
    /// [`Kind::METRICS`].
    fn metrics(&self) -> &'static [Metric];
    /// [`Kind::mode`].
    fn mode(&self) -> Mode;
    /// [`Kind::sampling`].
    fn sampling(&self) -> Sampling;
    /// [`Kind::many_workers`].
    fn many_workers(&self) -> bool;
    /// [`Kind::spread`].
    fn spread(&self) -> Spread;
    /// [`Kind::uses_kernel`].
    fn uses_kernel(&self) -> bool;
    /// [`Kind::makes_devices`].
    fn makes_devices(&self) -> bool;
    /// [`Kind::rewrites_flows`].
    fn rewrites_flows(&self) -> bool;
    /// [`Kind::refuses_labels`].
    fn refuses_labels(&self) -> Option<&'static str> {
        None
    }
    /// [`Kind::takes_merged`].
    fn takes_merged(&self) -> bool {
        false
    }
    /// [`Kind::build`].
    ///
    /// # Errors
    /// As [`Kind::build`].
    fn build(&self, worker: Worker) -> Result<Box<dyn Service>, BuildError>;
    /// The configuration with all its defaults.
    fn configuration(&self) -> serde_json::Value;
}

/// A kind of service without its type.
pub trait Registered: Send + Sync {
    /// [`Kind::NAME`].
    fn name(&self) -> &'static str;
    /// [`Kind::ABOUT`].
    fn about(&self) -> &'static str;
    /// [`Kind::METRICS`].
    fn metrics(&self) -> &'static [Metric];
    /// JSON Schema (draft 2020-12) of its configuration.
    fn schema(&self) -> serde_json::Value;
    /// Reads and checks a configuration from YAML or JSON. `file` is only for the errors. An empty document is all defaults.
    ///
    /// # Errors
    /// All that is wrong, with line, key and remedy.
    fn prepare(&self, source: &str, file: &str) -> Result<Arc<dyn Prepared>, Errors>;
    /// The same from a value inside another document, at `key` there.
    ///
    /// # Errors
    /// All that is wrong, with key and remedy; the caller knows the lines ([`segue_model::load::locate`]).
    fn prepare_value(&self, value: &serde_json::Value, key: &KeyPath) -> Result<Arc<dyn Prepared>, Errors>;
}

struct Of<K>(PhantomData<K>);

/// A kind, for a list of kinds: `pub static ALL: &[&dyn Registered] = &[kind::<Forward>(), ..]`.
#[must_use]
pub const fn kind<K: Kind>() -> &'static dyn Registered {
    &Of::<K>(PhantomData)
}

struct With<K: Kind>(K::Configuration);

impl<K: Kind> Prepared for With<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn metrics(&self) -> &'static [Metric] {
        K::METRICS
    }

    fn mode(&self) -> Mode {
        K::mode(&self.0)
    }

    fn sampling(&self) -> Sampling {
        K::sampling(&self.0)
    }

    fn many_workers(&self) -> bool {
        K::many_workers(&self.0)
    }

    fn spread(&self) -> Spread {
        K::spread(&self.0)
    }

    fn uses_kernel(&self) -> bool {
        K::uses_kernel(&self.0)
    }

    fn makes_devices(&self) -> bool {
        K::makes_devices(&self.0)
    }

    fn rewrites_flows(&self) -> bool {
        K::rewrites_flows(&self.0)
    }

    fn refuses_labels(&self) -> Option<&'static str> {
        K::refuses_labels(&self.0)
    }

    fn takes_merged(&self) -> bool {
        K::takes_merged(&self.0)
    }

    fn build(&self, worker: Worker) -> Result<Box<dyn Service>, BuildError> {
        K::build(&self.0, worker)
    }

    fn configuration(&self) -> serde_json::Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}

impl<K: Kind> Registered for Of<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn about(&self) -> &'static str {
        K::ABOUT
    }

    fn metrics(&self) -> &'static [Metric] {
        K::METRICS
    }

    fn schema(&self) -> serde_json::Value {
        let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<K::Configuration>();
        schema.insert("title".to_owned(), format!("Configuration of the service {}", K::NAME).into());
        schema.to_value()
    }

    fn prepare(&self, source: &str, file: &str) -> Result<Arc<dyn Prepared>, Errors> {
        // Only comments, or nothing: YAML's null.
        let is_empty = source.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let configuration =
            if is_empty { K::Configuration::default() } else { segue_model::load::document(source, file)? };
        let mut report = Report::default();
        K::check(&configuration, &mut report);
        report.finish().map_err(|errors| segue_model::load::locate(errors, source, file))?;
        Ok(Arc::new(With::<K>(configuration)))
    }

    fn prepare_value(&self, value: &serde_json::Value, key: &KeyPath) -> Result<Arc<dyn Prepared>, Errors> {
        let configuration =
            if value.is_null() { K::Configuration::default() } else { segue_model::load::value(value, key)? };
        let mut report = Report::below(key);
        K::check(&configuration, &mut report);
        report.finish()?;
        Ok(Arc::new(With::<K>(configuration)))
    }
}
