//! `segue trace`: what happens to one packet. It is simulated from what nodes have; a marked probe is really sent, and observed wherever it comes by.

mod around;
mod asked;
mod blame;
mod counters;
pub mod echo;
pub mod event;
mod judge;
pub mod nodes;
mod observe;
mod packet;
mod passages;
pub mod ping;
mod probe;
mod source;
pub mod text;
pub mod walk;

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use segue_host::link::LinkSocket;
use segue_model::topology::Topology;
use segue_model::value::Protocol;
use segue_wiring::LabPlan;

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::state::LabRecord;
use crate::{netns, up};
use around::Around;
use asked::{Asked, Traced};
use event::{Event, Flow, Simulation, Trace};
use judge::Evidence;
use observe::{Observers, Probe};
pub use source::Source;
use walk::{Carried, Place};

/// How long nothing has to be seen until all is over, beside what links delay.
const QUIET: Duration = Duration::from_millis(250);
/// How long a probe may take at most, beside what links delay.
const AT_MOST: Duration = Duration::from_secs(5);
/// Ephemeral ports that nobody is likely to have.
const SOURCE_PORT: u16 = 41_953;
/// Where `traceroute` begins.
const DESTINATION_PORT: u16 = 33_434;

/// Which packet.
#[derive(Debug, Clone, Args)]
pub struct TraceArguments {
    /// A chain: a packet that it should take, from one of its ends to the other
    #[arg(required_unless_present_any = ["from", "ingress", "pcap"])]
    pub chain: Option<String>,
    /// The chain in its other direction
    #[arg(long, requires = "chain")]
    pub reverse: bool,
    /// The host that sends it; that of the chain if not given
    #[arg(long, value_name = "HOST")]
    pub from: Option<String>,
    /// Where it goes: an address, a host or a label such as '$nfv1.firewall'
    #[arg(long, visible_alias = "destination", value_name = "ADDRESS")]
    pub to: Option<String>,
    /// Its source address, instead of the host's
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// It is put in at this port of a node, as if it had come by it, rather than sent by a host
    #[arg(long, value_name = "[NODE:]PORT", conflicts_with = "from")]
    pub ingress: Option<String>,
    /// A packet of this capture file, pcap or pcapng: octet by octet in the simulation, as a flow in what is really sent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["chain", "to", "source", "protocol"])]
    pub pcap: Option<PathBuf>,
    /// Which packet of the file, counted from 1
    #[arg(long, value_name = "NUMBER", requires = "pcap", default_value_t = 1)]
    pub number: usize,
    /// Only say what would happen, from configurations and routing tables; nothing is sent
    #[arg(long, conflicts_with = "live")]
    pub simulate: bool,
    /// Only send it and watch; nothing is simulated
    #[arg(long)]
    pub live: bool,
    /// IPv4 rather than IPv6, where both ends have both
    #[arg(short = '4', long)]
    pub ipv4: bool,
    /// udp, tcp or icmp; what the chain matches if not given
    #[arg(long)]
    pub protocol: Option<Protocol>,
    /// Source port
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// Destination port
    #[arg(long, value_name = "PORT")]
    pub destination_port: Option<u16>,
    /// DSCP, 0 to 63
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..64))]
    pub dscp: Option<u8>,
    /// IPv6 flow label
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..0x10_0000))]
    pub flow_label: Option<u32>,
    /// Hop limit or time to live
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub hop_limit: u8,
    /// It has an SRH with these segments in front of its destination, in order of traversal
    #[arg(long, value_name = "SID,...", value_delimiter = ',', conflicts_with = "pcap")]
    pub segments: Vec<Ipv6Addr>,
    /// Octets of the packet; as few as possible if not given
    #[arg(long, value_name = "OCTETS", default_value_t = 0)]
    pub length: usize,
    /// Not in a lab: the nodes of this file, and how their agents are reached (`segue schema nodes`)
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
}

impl TraceArguments {
    /// A probe of this chain.
    #[must_use]
    pub fn of_chain(chain: &str) -> Self {
        Self {
            chain: Some(chain.to_owned()),
            reverse: false,
            from: None,
            to: None,
            source: None,
            ingress: None,
            pcap: None,
            number: 1,
            simulate: false,
            live: false,
            nodes: None,
            ipv4: false,
            protocol: None,
            source_port: None,
            destination_port: None,
            dscp: None,
            flow_label: None,
            hop_limit: 64,
            segments: Vec::new(),
            length: 0,
        }
    }

    /// A probe from a host to somewhere.
    #[must_use]
    pub fn between(from: &str, to: &str) -> Self {
        Self { chain: None, from: Some(from.to_owned()), to: Some(to.to_owned()), ..Self::of_chain("") }
    }
}

/// What a trace works on.
struct Loaded {
    record: LabRecord,
    topology: Topology,
    plan: LabPlan,
}

fn load(roots: &Roots, lab: &str) -> Result<Loaded> {
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    let (topology, plan) = up::loaded_of(&paths, &record)?;
    Ok(Loaded { record, topology, plan })
}

/// Says what would become of a packet in a lab that is up, from its nodes' configurations and kernels. Nothing is sent.
///
/// # Errors
/// Those of [`trace`].
pub fn simulate(roots: &Roots, lab: &str, arguments: &TraceArguments) -> Result<Trace> {
    let loaded = load(roots, lab)?;
    let traced = Asked { topology: &loaded.topology, plan: &loaded.plan, arguments }.packet()?;
    let packet = match &traced.captured {
        Some(captured) => captured.clone(),
        None => Carried::ip(probe::packet(&traced.flow, &probe::mark())?),
    };
    let simulation = simulated(&loaded, &traced, packet.clone());
    let flow = Flow { length: packet.octets.len(), ..traced.flow };
    Ok(Trace::simulated(flow, traced.chain.map(|(name, _)| name), simulation))
}

fn simulated(loaded: &Loaded, traced: &Traced, packet: Carried) -> Simulation {
    let down = down(&loaded.record);
    let around = Around {
        record: &loaded.record,
        plan: &loaded.plan,
        down: &down,
        chain: traced.chain.as_ref(),
        destination: traced.flow.first_destination(),
    };
    around.simulate(&traced.flow, traced.start.clone(), packet)
}

/// Sends a probe in a lab that is up, and says what became of it; beside it, unless that is not wanted, what the simulation says.
///
/// # Errors
/// If there is no such lab, chain, host or label, or the packet is not possible. That it does not arrive is no error.
pub fn trace(roots: &Roots, lab: &str, arguments: &TraceArguments) -> Result<Trace> {
    if arguments.simulate {
        return simulate(roots, lab, arguments);
    }
    let loaded = load(roots, lab)?;
    let traced = Asked { topology: &loaded.topology, plan: &loaded.plan, arguments }.packet()?;
    if !traced.can_be_sent {
        let what =
            "no probe can look like that packet: it is steered already, or of another protocol than TCP, UDP and ICMP";
        return Err(wrong(what.into(), "give --simulate; `segue ping --segments` sends steered packets"));
    }
    let mark = probe::mark();
    let packet = probe::packet(&traced.flow, &mark)?;
    // Before the probe: what it makes known (neighbours, connections) is not known yet.
    let carried = || traced.captured.clone().unwrap_or_else(|| Carried::ip(packet.clone()));
    let simulation = (!arguments.live).then(|| simulated(&loaded, &traced, carried()));
    let Traced { flow, chain, start, .. } = traced;
    let flow = Flow { length: packet.len(), ..flow };
    let sources = source::of_lab(&loaded.record);
    let before = counters::read(&sources);
    let observers = Observers::start(&sources, &Probe { mark, flow: flow.clone() })?;
    let unsent = send(&loaded.record, &flow, start.as_ref(), &packet)?;
    let events = if unsent.is_some() { Vec::new() } else { collect(&observers, slack(&loaded.topology)) };
    let blind = observers.blind.clone();
    drop(observers);
    let (after, down) = (counters::read(&sources), down(&loaded.record));
    let plan = &loaded.plan;
    let mut trace = judge::judge(Evidence { plan, chain, flow, mark, events, before, after, down, unsent, blind });
    if let Some(simulation) = simulation {
        trace.compare(simulation);
    }
    Ok(trace)
}

/// Has the host send it, or puts it in. Why that was not possible, if it was not.
fn send(record: &LabRecord, flow: &Flow, start: Option<&Place>, packet: &[u8]) -> Result<Option<String>> {
    let Some(place) = start else {
        let namespace = &record.node(&flow.from)?.namespace;
        let sent = netns::inside(namespace, || probe::send(packet, flow.first_destination()))?;
        return Ok(sent.err().map(|error| error.desc().to_owned()));
    };
    let node = record.node(&place.station)?;
    let socket = node.socket.as_ref().ok_or_else(|| {
        let what = format!("{} has no agent that could put a packet in", place.station);
        wrong(what, "choose a Segue node, or --from a host")
    })?;
    nodes::inject(&segue_api::client::Client::new(socket).named(&place.station), place, packet)?;
    Ok(None)
}

/// What is seen until all is quiet.
fn collect(observers: &Observers, slack: Duration) -> Vec<Event> {
    let begun = Instant::now();
    let mut events = Vec::new();
    while begun.elapsed() < AT_MOST + slack {
        match observers.events.recv_timeout(QUIET + slack) {
            Ok(event) => events.push(event),
            Err(_) => break,
        }
    }
    events
}

/// What links delay at most, all of them one after the other.
fn slack(topology: &Topology) -> Duration {
    let delays = topology.links.iter().filter_map(|link| link.impaired.as_ref());
    let total: f64 = delays.map(|impaired| impaired.delay_ms + impaired.jitter_ms + 20.0).sum();
    Duration::from_secs_f64((2.0 * total / 1000.0).min(30.0))
}

/// Interfaces that are down or have no carrier, as `station:interface`.
fn down(record: &LabRecord) -> Vec<String> {
    let mut down = Vec::new();
    for node in record.nodes.iter().filter(|node| node.has_namespace()) {
        let links = netns::inside(&node.namespace, || LinkSocket::open()?.all());
        let links = links.and_then(|links| links).unwrap_or_default();
        down.extend(links.iter().filter(|link| !link.carrier).map(|link| format!("{}:{}", node.name, link.name)));
    }
    down
}

fn wrong(what: String, remedy: impl Into<String>) -> LabError {
    LabError::Exchange { place: "segue trace".into(), what, remedy: remedy.into() }
}
