//! The file that says what runs: which service, with which configuration, on which interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_model::load;
use segue_service::{Prepared, Registered, SteeringKind};
use serde::{Deserialize, Serialize};

use crate::cgroup::Limits;
use crate::error::{Error, Result};

/// Services that can be run: those of [`segue_services::ALL`], or those of a program of somebody else's.
pub type Kinds = &'static [&'static dyn Registered];

/// A service that is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// Its name in lists; that of the service if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which service: `segue service kinds` lists them.
    pub service: String,
    /// Its configuration; all defaults if not given. `segue service schema NAME` says what belongs here.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub config: serde_json::Value,
    /// The interface that packets come in and leave by.
    #[serde(default = "port")]
    pub interface: String,
    /// `srv6`: packets come with an SRH, from a SID (End.AN). `sr-mpls`: with labels, from a label (`sr_aware`).
    #[serde(default, skip_serializing_if = "is_srv6")]
    pub steering: SteeringKind,
    /// Threads, from 1 to 64; packets of one flow always go to the same. An asynchronous service has one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// Processors that workers are bound to, in order; not bound if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Packets that each ring of a worker holds: a power of two from 64 to 32768.
    #[serde(default = "ring_size")]
    pub ring_size: u32,
    /// Packets that segmentation offload has merged come and go whole, up to 64 KiB, by packet sockets in place of AF_XDP: for TCP between hosts
    /// that have it, many times as fast; for small packets, slower. Only for a service that lets what is behind the steering header be as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
    /// Microseconds that a call polls the interface by itself (SO_BUSY_POLL), 0 to 1000. 0: interrupts bring packets.
    #[serde(default)]
    pub busy_poll: u32,
    /// Microseconds that a worker looks for packets before it sleeps, 0 to 1,000,000.
    #[serde(default)]
    pub spin: u32,
    /// How often the kernel looks for packets by itself before it waits for an interrupt, 0 to 1000; it waits `defer_time` each time.
    #[serde(default = "defer_times")]
    pub defer_times: u32,
    /// Microseconds between two such looks, 0 to 10,000. 0: interrupts bring packets at once.
    #[serde(default = "defer_time")]
    pub defer_time: u32,
    /// What it may use; as much as there is if not given.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// Link-layer address of the node, for packets that the service sends before it has received any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_mac: Option<segue_model::value::MacAddress>,
}

fn port() -> String {
    "port".to_owned()
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

fn is_srv6(value: &SteeringKind) -> bool {
    *value == SteeringKind::Srv6
}

fn defer_times() -> u32 {
    0
}

fn defer_time() -> u32 {
    0
}

fn ring_size() -> u32 {
    2048
}

/// Workers at most.
pub const WORKERS_MAX: u32 = 64;

impl Running {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If it cannot be read; or all that is wrong in it, with line, key and remedy.
    pub fn read(file: &Path, kinds: Kinds) -> Result<(Self, Arc<dyn Prepared>)> {
        let source = std::fs::read_to_string(file).map_err(Error::file("read", file, "give a file's path"))?;
        Self::parse(&source, &file.display().to_string(), kinds)
    }

    /// Checks a document. `file` is only for the errors.
    ///
    /// # Errors
    /// All that is wrong in it, with line, key and remedy.
    pub fn parse(source: &str, file: &str, kinds: Kinds) -> Result<(Self, Arc<dyn Prepared>)> {
        let running: Self = load::document(source, file)?;
        let prepared = running.check(kinds).map_err(|errors| load::locate(errors, source, file))?;
        Ok((running, prepared))
    }

    fn check(&self, kinds: Kinds) -> std::result::Result<Arc<dyn Prepared>, segue_model::error::Errors> {
        let (mut report, root) = (Report::default(), KeyPath::root());
        let Some(service) = kinds.iter().find(|kind| kind.name() == self.service) else {
            let known: Vec<_> = kinds.iter().map(|service| service.name()).collect();
            let message = format!("there is no service {:?}", self.service);
            report.error(&root.at("service"), message, format!("write one of them: {}", known.join(", ")));
            return report.finish().and(Err(Vec::new().into_iter().collect()));
        };
        let prepared = report.take(service.prepare_value(&self.config, &root.at("config")));
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            let message = format!("{} workers are not possible", self.workers);
            report.error(&root.at("workers"), message, format!("write a number from 1 to {WORKERS_MAX}"));
        }
        if let Some(prepared) = &prepared
            && self.workers > 1
            && (!prepared.many_workers() || prepared.mode() == segue_service::Mode::Asynchronous)
        {
            let message = format!("the service {} has one worker as it is configured", self.service);
            report.error(&root.at("workers"), message, "remove the key");
        }
        if let Some(prepared) = &prepared
            && self.merged
            && (!prepared.takes_merged()
                || prepared.uses_kernel()
                || prepared.mode() == segue_service::Mode::Asynchronous)
        {
            let message = format!("the service {} takes each packet by itself as it is configured", self.service);
            report.error(&root.at("merged"), message, "remove the key");
        }
        if self.steering == SteeringKind::SrMpls
            && let Some(prepared) = &prepared
        {
            self.check_labels(prepared.as_ref(), &mut report);
        }
        for (key, given) in [("busy_poll", self.busy_poll > 0), ("ring_size", self.ring_size != ring_size())] {
            if self.merged && given {
                let message = "it is of AF_XDP sockets, which a service with `merged` has none of";
                report.error(&root.at(key), message, "remove one of the two keys");
            }
        }
        if !self.ring_size.is_power_of_two() || !(64..=32768).contains(&self.ring_size) {
            let message = format!("{} is no size of a ring", self.ring_size);
            report.error(&root.at("ring_size"), message, "write a power of two from 64 to 32768");
        }
        for (key, value, most) in [
            ("busy_poll", self.busy_poll, 1000),
            ("spin", self.spin, 1_000_000),
            ("defer_time", self.defer_time, 10_000),
        ] {
            if value > most {
                let message = format!("{value} microseconds are too many");
                report.error(&root.at(key), message, format!("write a number from 0 to {most}"));
            }
        }
        if self.defer_times > 1000 {
            let message = format!("{} looks are too many", self.defer_times);
            report.error(&root.at("defer_times"), message, "write a number from 0 to 1000");
        }
        for (key, value, least, most) in [
            ("memory_mib", self.limits.memory_mib, 16, 1 << 20),
            ("processor_percent", self.limits.processor_percent, 1, 100_000),
        ] {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                let message = format!("{value} is not possible");
                report.error(&root.at("limits").at(key), message, format!("write a number from {least} to {most}"));
            }
        }
        if !self.cpus.is_empty() && self.cpus.len() != self.workers as usize {
            let message = format!("{} processors for {} workers", self.cpus.len(), self.workers);
            report.error(&root.at("cpus"), message, "name one for each worker, or remove the key");
        }
        if !segue_model::check::is_interface_name(&self.interface) {
            let message = format!("{:?} is no interface's name", self.interface);
            report.error(&root.at("interface"), message, "write 1 to 15 octets without blank, slash and colon");
        }
        if !segue_model::check::is_namespace_name(self.name()) {
            let message = format!("{:?} cannot name a running service", self.name());
            report.error(&root.at("name"), message, "write letters, digits, `.`, `-` and `_`, at most 63");
        }
        report.finish()?;
        prepared.ok_or_else(|| Vec::new().into_iter().collect())
    }

    /// What cannot be behind a label.
    fn check_labels(&self, prepared: &dyn Prepared, report: &mut Report) {
        let root = KeyPath::root();
        if let Some(why) = prepared.refuses_labels() {
            let message = format!("the service {} cannot be behind a label: it {why}", self.service);
            report.error(
                &root.at("service"),
                message,
                "let a SID lead to it (SRv6, End.AN), or take it out of the chain",
            );
        } else if prepared.uses_kernel() {
            let message =
                format!("the service {} gives packets to the kernel, which gets none with labels", self.service);
            report.error(&root.at("service"), message, "let a SID lead to it (SRv6, End.AN)");
        }
        if self.merged {
            let message = "the kernel does not cut up merged packets behind labels";
            report.error(&root.at("merged"), message, "remove the key");
        }
    }

    /// Its name in lists.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.service)
    }

    /// Whether another one can take its place while it runs: all but the configuration is the same.
    ///
    /// # Errors
    /// The first key that is not.
    pub fn same_but_configuration(&self, other: &Self) -> std::result::Result<(), &'static str> {
        let differs = [
            ("service", self.service != other.service),
            ("name", self.name() != other.name()),
            ("interface", self.interface != other.interface),
            ("steering", self.steering != other.steering),
            ("workers", self.workers != other.workers),
            ("cpus", self.cpus != other.cpus),
            ("ring_size", self.ring_size != other.ring_size),
            ("merged", self.merged != other.merged),
            ("busy_poll", self.busy_poll != other.busy_poll),
            ("spin", self.spin != other.spin),
            ("defer_times", self.defer_times != other.defer_times),
            ("defer_time", self.defer_time != other.defer_time),
            ("limits", self.limits != other.limits),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map_or(Ok(()), |(key, _)| Err(key))
    }
}

/// Where services that run have their control sockets.
#[must_use]
pub fn directory() -> PathBuf {
    PathBuf::from("/run/segue/services")
}
