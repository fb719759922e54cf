//! What is seen of a probe, and what is said about it.

use std::net::{IpAddr, Ipv6Addr};

use segue_api::simulation::{LabelEntry, SimulatedStep};
use serde::Serialize;

/// What a probe's packet looks like, before anybody puts a steering header on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The host that sends it.
    pub from: String,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// TCP and UDP: source port.
    pub source_port: u16,
    /// TCP and UDP: destination port.
    pub destination_port: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// IPv6: flow label.
    pub flow_label: u32,
    /// Hop limit or time to live.
    pub hop_limit: u8,
    /// Segments of an SRH that it has, in order of traversal; `destination` comes behind them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Ipv6Addr>,
    /// Octets of the whole packet.
    pub length: usize,
}

impl Flow {
    /// Where it goes first.
    #[must_use]
    pub fn first_destination(&self) -> IpAddr {
        self.segments.first().map_or(self.destination, |segment| IpAddr::from(*segment))
    }
}

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// In by an interface.
    In,
    /// Out by an interface.
    Out,
}

/// What a packet with the probe's mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The probe, with or without a steering header.
    Probe,
    /// An ICMP error about it.
    Error,
    /// An answer to it.
    Reply,
}

/// A packet with the probe's mark, at one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Node, host or function.
    pub station: String,
    /// Interface.
    pub port: String,
    /// Which way.
    pub direction: Direction,
    /// What it is.
    pub what: What,
    /// Whether it has a steering header: an outer IPv6 header, or an SRH.
    pub steered: bool,
    /// Whether the kernel told it rather than the data plane.
    pub by_kernel: bool,
    /// Its headers in one line.
    pub headers: String,
}

/// One station on the probe's way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    /// Node, host or function.
    pub station: String,
    /// The interface that it came in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub came_in: Option<String>,
    /// The interface that it left by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_by: Option<String>,
    /// Microseconds since it was first seen at the station before.
    pub delay_us: f64,
    /// Whether the kernel of a Segue node forwarded it, rather than the data plane.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_kernel: bool,
    /// Headers as it left the station, or as it arrived if it did not.
    pub headers: String,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It arrived, by the chain if one was asked for.
    Delivered,
    /// It arrived, but not by way of the chain.
    NotByTheChain,
    /// It arrived with a steering header that nobody took off.
    Leaked,
    /// It vanished.
    Vanished,
    /// The host's kernel did not send it.
    NotSent,
    /// It left the nodes that are known; whether it arrives is not.
    Left,
    /// Simulation: it comes to somebody of whom nobody knows what he does.
    NotKnown,
}

/// Where and why a packet is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// A station, or `A - B`.
    pub station: String,
    /// As in a live trace.
    pub reason: String,
    /// For people.
    pub text: String,
}

/// One station on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SimulatedHop {
    /// Node, host or function.
    pub station: String,
    /// The interface that it comes in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub came_in: Option<String>,
    /// The interface that it leaves by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_by: Option<String>,
    /// The outcome that the data plane would count it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What is looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<SimulatedStep>,
    /// Headers as it leaves the station, or as it arrives if it does not.
    pub headers: String,
    /// Its labels then, from the top of the stack on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<LabelEntry>,
}

/// What would become of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Simulation {
    /// How it would end.
    pub verdict: Verdict,
    /// Where.
    pub station: String,
    /// Why: as in a live trace.
    pub reason: String,
    /// The same for people.
    pub text: String,
    /// Nothing was taken for granted.
    pub certain: bool,
    /// What was, if not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// The way.
    pub hops: Vec<SimulatedHop>,
}

impl Simulation {
    /// One that ends before it has begun.
    #[must_use]
    pub fn ended(verdict: Verdict, lost: Lost) -> Self {
        let Lost { station, reason, text } = lost;
        Self { verdict, station, reason, text, certain: true, assumed: Vec::new(), hops: Vec::new() }
    }
}

/// What became of a probe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// The chain that it should take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The probe.
    pub flow: Flow,
    /// How it ended.
    pub verdict: Verdict,
    /// Where: a station, or `A - B` for the link between two.
    pub station: String,
    /// Why: an outcome of the data plane, or one of `arrived`, `leaked`, `not_steered`, `not_visited`, `not_sent`, `no_sid`, `kernel`, `function`,
    /// `link_down`, `link_impaired`, `lost_on_link`.
    pub reason: String,
    /// The same for people.
    pub text: String,
    /// What to look at.
    pub look_at: Vec<String>,
    /// The way, as far as it went.
    pub hops: Vec<Hop>,
    /// ICMP errors about it, and where each was seen first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What could not be observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blind: Vec<String>,
    /// What configurations and routing tables say of such a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
    /// How the simulation, which was certain, differs from what was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

impl Trace {
    /// What a simulation alone says.
    #[must_use]
    pub fn simulated(flow: Flow, chain: Option<String>, simulation: Simulation) -> Self {
        let Simulation { verdict, station, reason, text, .. } = simulation.clone();
        Self {
            chain,
            flow,
            verdict,
            station,
            reason,
            text,
            look_at: Vec::new(),
            hops: Vec::new(),
            errors: Vec::new(),
            blind: Vec::new(),
            simulation: Some(simulation),
            differs: None,
        }
    }

    /// Puts beside it what a simulation says, and whether that is another thing.
    pub fn compare(&mut self, simulation: Simulation) {
        let same = (simulation.verdict, &simulation.station, &simulation.reason)
            == (self.verdict, &self.station, &self.reason);
        // Deployed nodes: what a kernel does with it was not seen; who it left them for has answered.
        let unseen = (self.verdict == Verdict::Left && self.reason != "left")
            || (self.verdict == Verdict::Delivered && simulation.verdict == Verdict::Left);
        if simulation.certain && !same && !unseen {
            self.differs = Some(format!(
                "the simulation was certain of another end: {} ({}, {})",
                simulation.text, simulation.station, simulation.reason
            ));
        }
        self.simulation = Some(simulation);
    }
}
