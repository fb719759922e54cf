//! TCP between hosts through services at the middle of three nodes, in turn with the same chain without them.

use serde_json::{Value, json};

use super::Extent;
use crate::error::{Error, Result};
use crate::hosts::{Load, Rate, Row, Slots, Transfer};
use crate::interrupt;
use crate::service_process::{Process, Program};
use crate::stats::Summary;

/// A service of the chain, and how it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Which.
    pub name: String,
    /// As `segue service schema NAME` says.
    pub config: Value,
    /// Threads.
    pub workers: u32,
    /// Packets that each ring of a worker holds.
    pub ring_size: u32,
    /// Processors that workers are bound to, in order; not bound if empty.
    pub cpus: Vec<u32>,
    /// Packets that segmentation offload has merged come whole.
    pub merged: bool,
    /// The program that runs it; `segue-service` if not given.
    pub program: Option<Program>,
}

impl Service {
    /// With one worker, as agent and lab start it.
    #[must_use]
    pub fn new(name: &str, config: Value) -> Self {
        Self { name: name.into(), config, workers: 1, ring_size: 2048, cpus: Vec::new(), merged: false, program: None }
    }

    fn document(&self, name: &str) -> Value {
        json!({
            "service": self.name, "config": self.config, "name": name, "interface": "port", "workers": self.workers,
            "ring_size": self.ring_size, "cpus": self.cpus, "merged": self.merged,
        })
    }
}

/// What was found of a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Mbit/s of TCP payload.
    pub goodput: Summary,
    /// The same without services.
    pub without: Summary,
    /// Of all packets that came to the first service, per cent that are gone: inside others. None for an asynchronous one.
    pub gone: Option<f64>,
}

impl Found {
    /// Goodput by goodput without services.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.goodput.median / self.without.median
    }
}

/// Five namespaces with places for services.
#[derive(Debug)]
pub struct Chain {
    row: Row,
}

impl Chain {
    /// With places for so many services, which may change addresses if `rewrites`.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn open(services: usize, rewrites: bool) -> Result<Self> {
        let row = Row::open_with_slots(&format!("chain{services}"), services, rewrites)?;
        row.reach()?;
        Ok(Self { row })
    }

    /// What a command does in the namespace of the first service.
    pub(crate) fn in_service(&self) -> Option<&crate::netns::Namespace> {
        self.row.slots().and_then(|slots| slots.namespace(0))
    }

    /// Starts services, in order from the first place.
    ///
    /// # Errors
    /// If one does not start, or there are more than places.
    pub(crate) fn start(&self, services: &[Service]) -> Result<Vec<Process>> {
        let start = |(slot, service): (usize, &Service)| {
            let namespace = self.row.slots().and_then(|slots| slots.namespace(slot));
            let namespace = namespace.ok_or_else(|| Error::Usage(format!("there is no place {slot} for a service")))?;
            self.row.suit_slot(slot, service.merged)?;
            let program = service.program.clone().map_or_else(Program::own, Ok)?;
            let name = format!("chain-{slot}");
            Process::start(&program, namespace, &service.document(&name), None, &name)
        };
        services.iter().enumerate().map(start).collect()
    }

    /// Measures TCP through services, which it starts and ends.
    ///
    /// # Errors
    /// If one does not start, or nothing or a wrong octet arrives.
    pub fn measure(&self, services: &[Service], load: &Load, extent: &Extent<'_>) -> Result<Found> {
        let processes = self.start(services)?;
        self.measure_through(&processes, load, extent)
    }

    /// The same with hosts that send each segment by itself.
    ///
    /// # Errors
    /// As [`Chain::measure`]; if `ethtool` fails.
    pub fn measure_single(&self, services: &[Service], load: &Load, extent: &Extent<'_>) -> Result<Found> {
        self.row.segmentation_offload(false)?;
        let found = self.measure(services, load, extent);
        self.row.segmentation_offload(true)?;
        found
    }

    /// The same through services that are there.
    pub(crate) fn measure_through(&self, services: &[Process], load: &Load, extent: &Extent<'_>) -> Result<Found> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let (mut came, mut left) = (0, 0);
        for round in 0..extent.rounds {
            let mut through = |count: usize| -> Result<()> {
                interrupt::check()?;
                let rate = self.transfer(count, load, extent)?.bits() * 1e-6;
                if count == 0 {
                    without.push(rate)
                } else {
                    with.push(rate)
                }
                Ok(())
            };
            // Every other round backwards, so that neither always runs behind the other.
            if round % 2 == 1 {
                through(0)?;
            }
            let before = services.first().map(Process::status).transpose()?;
            through(services.len())?;
            if let (Some(first), Some(before)) = (services.first(), before) {
                let after = first.status()?;
                came += packets(&after, CAME) - packets(&before, CAME);
                left += packets(&after, LEFT) - packets(&before, LEFT);
            }
            if round % 2 == 0 {
                through(0)?;
            }
        }
        let asynchronous =
            services.first().is_some_and(|first| first.status().is_ok_and(|status| status["mode"] != "synchronous"));
        if !services.is_empty() && came == 0 {
            return Err(Error::NotDone { what: "TCP through a service".into(), reason: "no packet came to it".into() });
        }
        let gone = (!asynchronous && came > 0).then(|| 100.0 * (1.0 - left as f64 / came as f64));
        let summary =
            |rates: &[f64]| Summary::of(rates).ok_or_else(|| Error::Usage("--rounds must be at least 1".into()));
        Ok(Found { goodput: summary(&with)?, without: summary(&without)?, gone })
    }

    fn transfer(&self, services: usize, load: &Load, extent: &Extent<'_>) -> Result<Rate> {
        let load = Load { port: Slots::port(services), ..load.clone() };
        let Transfer { arrived, wrong, received, .. } = self.row.transfer_load(extent.run, &load)?;
        if wrong > 0 || arrived.octets == 0 {
            let reason = format!("{received} octets arrived, {wrong} of them wrong{}", self.row.drops()?);
            return Err(Error::NotDone { what: format!("TCP through {services} services"), reason });
        }
        Ok(arrived)
    }
}

const CAME: &[&str] = &["received"];
const LEFT: &[&str] = &["onward", "own_out"];

fn packets(status: &Value, keys: &[&str]) -> i64 {
    keys.iter().filter_map(|key| status["total"][*key].as_i64()).sum()
}
