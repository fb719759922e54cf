//! A lane: one engine doing one scenario's work in a topology of its own, with generator and sink.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::Link;

use crate::error::{Error, Result};
use crate::function::Function;
use crate::interrupt;
use crate::netns::Namespace;
use crate::scenario::{Arrival, Engine, Napi, Redirect, Scenario};
use crate::segue::Node;
use crate::topology::Topology;
use crate::traffic::{self, Latency, Settings, Traffic};

/// Runs of the generator in one call of a paced run; most of them find that no frame is due.
const PACED_TIMES: u32 = 1 << 20;
/// How long frames may be under way after the last one was sent.
const DRAIN: Duration = Duration::from_millis(500);

/// What keeps an engine at work; dropped with the lane.
#[derive(Debug)]
#[expect(dead_code, reason = "held for what dropping them undoes")]
enum Work {
    Kernel(Option<Link>),
    Bare(Link),
    Segue(Box<Node>),
    /// Through a function, by Segue or (without a node) by the kernel.
    Function(Box<Function>, Option<Box<Node>>),
}

/// One engine at work.
#[derive(Debug)]
pub struct Lane {
    // In the order in which they must go.
    work: Work,
    traffic: Traffic,
    topology: Topology,
    engine: Engine,
    what: String,
}

/// Frames of one run, and how fast they arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Frames that the generator gave to the first link.
    pub sent: u64,
    /// Frames of the right length that arrived.
    pub received: u64,
    /// Frames per second that arrived, by the clock on the wall.
    pub rate: f64,
}

impl Run {
    /// Frames that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

impl Lane {
    /// Sets up topology, engine, generator and sink.
    ///
    /// # Errors
    /// If any of it cannot be set up; nothing stays behind.
    pub fn open(scenario: Scenario, octets: usize, engine: Engine, flows: u32) -> Result<Self> {
        Self::open_expecting(scenario, octets, engine, flows, &scenario.arrival(octets, engine)?)
    }

    /// As [`Lane::open`], with `arrival` as the frame that must arrive.
    ///
    /// # Errors
    /// As [`Lane::open`].
    pub fn open_expecting(
        scenario: Scenario,
        octets: usize,
        engine: Engine,
        flows: u32,
        arrival: &Arrival,
    ) -> Result<Self> {
        interrupt::check()?;
        let what = format!("{} with {octets} inner octets, {}", scenario.name(), engine.name());
        let topology = Topology::build(&format!("{}{octets}{}", engine.name(), scenario.name()))?;
        let slack = if matches!(engine, Engine::Kernel(_) | Engine::SegueSkb) { scenario.kernel_slack() } else { 8 };
        let packet = scenario.sent(octets)?;
        let traffic = Traffic::start(&topology, &packet, arrival, Settings { flows, slack, ..Settings::default() })?;
        let work = match engine {
            Engine::Kernel(napi) => {
                topology.node.ip_all(scenario.kernel_commands())?;
                match napi {
                    Napi::Gro => topology.enable_gro().map(|()| Work::Kernel(None))?,
                    Napi::Xdp => Work::Kernel(Some(traffic.attach_to_node(&topology, "pass")?)),
                }
            }
            Engine::Bare(Redirect::Ifindex) => Work::Bare(traffic.attach_to_node(&topology, "bare")?),
            Engine::Bare(Redirect::Map) => Work::Bare(traffic.attach_to_node(&topology, "bare_map")?),
            Engine::Segue => Work::Segue(Box::new(Node::start(&topology.node, scenario.node_state(engine))?)),
            Engine::SegueSkb => {
                let node = Node::start(&topology.node, scenario.node_state(engine))?;
                topology.enable_gro()?;
                Work::Segue(Box::new(node))
            }
        };
        Ok(Self { work, traffic, topology, engine, what })
    }

    /// A lane through a function that is already set up; `node` if Segue does the work.
    #[must_use]
    pub fn through(function: Function, node: Option<Node>, traffic: Traffic, topology: Topology, what: String) -> Self {
        let engine = if node.is_some() { Engine::Segue } else { Engine::Kernel(Napi::Gro) };
        Self { work: Work::Function(Box::new(function), node.map(Box::new)), traffic, topology, engine, what }
    }

    /// A lane whose node is already at work: Segue if there is a `node`, else the kernel.
    #[must_use]
    pub fn alone(node: Option<Node>, traffic: Traffic, topology: Topology, what: String) -> Self {
        let engine = if node.is_some() { Engine::Segue } else { Engine::Kernel(Napi::Gro) };
        let work = node.map_or(Work::Kernel(None), |node| Work::Segue(Box::new(node)));
        Self { work, traffic, topology, engine, what }
    }

    /// Segue's data plane, if it does the work, and the namespace that it is in.
    pub fn node(&mut self) -> Option<(&mut Node, &Namespace)> {
        match &mut self.work {
            Work::Segue(node) | Work::Function(_, Some(node)) => Some((node, &self.topology.node)),
            _ => None,
        }
    }

    /// The data plane, if Segue does the work, beside what sends the traffic: to change the one while the other runs.
    pub fn parts(&mut self) -> (Option<&mut Node>, &Traffic, &Topology) {
        let node = match &mut self.work {
            Work::Segue(node) | Work::Function(_, Some(node)) => Some(node.as_mut()),
            _ => None,
        };
        (node, &self.traffic, &self.topology)
    }

    /// Sends `packets` frames that shall not arrive, and returns how many were sent and in what time all of them were dealt with.
    ///
    /// # Errors
    /// If the generator cannot run.
    pub fn pour(&self, packets: u32) -> Result<(u64, Duration)> {
        interrupt::check()?;
        self.traffic.reset(Duration::ZERO)?;
        self.traffic.transmit(&self.topology, packets)?;
        // One processor does everything, so nothing is under way when the generator comes back.
        let end = traffic::now()?;
        let sent = self.traffic.counts()?.0;
        if sent.refused > 0 {
            return Err(self.not_done(format!("the generator could not restore {} frames", sent.refused)));
        }
        Ok((sent.packets, sent.until(end)))
    }

    /// What it does and who does it.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Its generator and sink.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Its links and namespaces.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its function, if it has one.
    #[must_use]
    pub fn function(&self) -> Option<&Function> {
        match &self.work {
            Work::Function(function, _) => Some(function),
            _ => None,
        }
    }

    /// Sends at `rate` frames per second for at least `duration`. Loss is no error here.
    ///
    /// # Errors
    /// If the generator cannot run, or nothing at all arrives.
    pub fn pace(&self, rate: f64, duration: Duration) -> Result<Run> {
        self.traffic.reset(Duration::from_secs_f64(1.0 / rate))?;
        let start = Instant::now();
        while start.elapsed() < duration {
            interrupt::check()?;
            self.traffic.transmit(&self.topology, PACED_TIMES)?;
        }
        self.finish()
    }

    /// How long packets are under way at `rate` frames per second.
    ///
    /// # Errors
    /// As [`Lane::pace`].
    pub fn latency(&mut self, rate: f64, duration: Duration) -> Result<Latency> {
        self.traffic.measure_latency(true)?;
        let run = self.pace(rate, duration);
        let latency = self.traffic.latency();
        self.traffic.verify(false)?;
        run?;
        latency?.ok_or_else(|| self.not_done("no packet arrived whose latency could be measured".into()))
    }

    /// Turns the comparison of every octet on or off for what is sent next.
    ///
    /// # Errors
    /// If the kernel does not exchange the program.
    pub fn compare(&mut self, on: bool) -> Result<()> {
        self.traffic.verify(on)
    }

    /// Who forwards.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Sends `packets` frames without a pause.
    ///
    /// # Errors
    /// If the generator cannot run, or nothing at all arrives.
    pub fn saturate(&self, packets: u32) -> Result<Run> {
        interrupt::check()?;
        self.traffic.reset(Duration::ZERO)?;
        self.traffic.transmit(&self.topology, packets)?;
        self.finish()
    }

    /// Sends at `rate` frames per second for at least `duration` while the sink compares every octet.
    ///
    /// # Errors
    /// If the generator cannot run, nothing at all arrives, or a frame differs. Loss is no error here.
    pub fn pace_verified(&mut self, rate: f64, duration: Duration) -> Result<Run> {
        self.traffic.verify(true)?;
        let run = self.pace(rate, duration);
        self.traffic.verify(false)?;
        let run = run?;
        self.expect_right_octets(&run)?;
        Ok(run)
    }

    /// Sends `packets` frames while the sink compares every octet.
    ///
    /// # Errors
    /// [`Error::NotDone`] with the first difference, or if a frame is lost.
    pub fn verify(&mut self, packets: u32) -> Result<Run> {
        self.traffic.verify(true)?;
        let run = self.saturate(packets);
        self.traffic.verify(false)?;
        let run = run?;
        self.expect_right_octets(&run)?;
        if run.lost() > 0 {
            return Err(self.not_done(format!("{} of {} frames were lost{}", run.lost(), run.sent, self.drops())));
        }
        Ok(run)
    }

    fn expect_right_octets(&self, run: &Run) -> Result<()> {
        let received = self.traffic.counts()?.1;
        if received.wrong == 0 {
            return Ok(());
        }
        Err(self.not_done(format!(
            "{} of {} frames differ from what must arrive, first at octet {} of the frame: {} instead of {}",
            received.wrong,
            run.received,
            received.wrong_offset,
            octets(received.wrong_found),
            octets(received.wrong_wanted)
        )))
    }

    /// Waits for the last frames and takes stock.
    pub(crate) fn finish(&self) -> Result<Run> {
        let end = Instant::now() + DRAIN;
        let (sent, mut received) = self.traffic.counts()?;
        while received.packets < sent.packets && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
            received = self.traffic.counts()?.1;
        }
        if sent.refused > 0 {
            return Err(self.not_done(format!("the generator could not restore {} frames", sent.refused)));
        }
        match traffic::rate(&sent, &received) {
            Some(rate) => Ok(Run { sent: sent.packets, received: received.packets, rate }),
            None => Err(self.not_done(format!(
                "of {} frames that were sent {} of the expected length arrived, and {} others{}",
                sent.packets,
                received.packets,
                received.other,
                self.drops()
            ))),
        }
    }

    /// Where drivers say that frames were lost, for messages; empty if nowhere.
    #[must_use]
    pub fn drops(&self) -> String {
        let mut text = String::new();
        for drop in self.topology.driver_drops().unwrap_or_default() {
            let _ = write!(text, "; {drop}");
        }
        if let Work::Segue(node) | Work::Function(_, Some(node)) = &self.work {
            for (name, packets) in node.outcomes().unwrap_or_default() {
                let _ = write!(text, "; {name} {packets}");
            }
        }
        text
    }

    pub(crate) fn not_done(&self, reason: String) -> Error {
        Error::NotDone { what: self.what.clone(), reason }
    }
}

fn octets(word: u64) -> String {
    word.to_le_bytes().map(|octet| format!("{octet:02x}")).join(" ")
}
