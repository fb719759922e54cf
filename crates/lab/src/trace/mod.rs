//! `segue trace`: what happens to one packet. A marked probe is really sent, and observed wherever it comes by.

mod counters;
pub mod event;
mod judge;
mod observe;
mod probe;
pub mod text;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use clap::Args;
use segue_model::owner::Direction;
use segue_model::topology::{Chain, Endpoint, Topology};
use segue_model::value::Protocol;
use segue_plan::StepAction;
use segue_wire::protocol;
use segue_wiring::{LabPlan, Labels};

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::state::LabRecord;
use crate::{netns, up};
use event::{Event, Flow, Trace};
use judge::Evidence;
use observe::{Observers, Probe};

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
    #[arg(required_unless_present = "from")]
    pub chain: Option<String>,
    /// The chain in its other direction
    #[arg(long, requires = "chain")]
    pub reverse: bool,
    /// The host that sends it; that of the chain if not given
    #[arg(long, value_name = "HOST", requires = "to")]
    pub from: Option<String>,
    /// Where it goes: an address, a host or a label such as '$nfv1.firewall'
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
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
    /// Octets of the packet; as few as possible if not given
    #[arg(long, value_name = "OCTETS", default_value_t = 0)]
    pub length: usize,
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
            ipv4: false,
            protocol: None,
            source_port: None,
            destination_port: None,
            dscp: None,
            flow_label: None,
            hop_limit: 64,
            length: 0,
        }
    }

    /// A probe from a host to somewhere.
    #[must_use]
    pub fn between(from: &str, to: &str) -> Self {
        Self { chain: None, from: Some(from.to_owned()), to: Some(to.to_owned()), ..Self::of_chain("") }
    }
}

/// Sends a probe in a lab that is up, and says what became of it.
///
/// # Errors
/// If there is no such lab, chain, host or label, or the packet is not possible. That it does not arrive is no error.
pub fn trace(roots: &Roots, lab: &str, arguments: &TraceArguments) -> Result<Trace> {
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    let (topology, plan) = up::loaded_of(&paths, &record)?;
    let (flow, chain) = Asked { topology: &topology, plan: &plan, arguments }.flow()?;
    let mark = probe::mark();
    let packet = probe::packet(&flow, &mark)?;
    let flow = Flow { length: packet.len(), ..flow };
    let before = counters::read(&record);
    let observers = Observers::start(&record, &Probe { mark, flow: flow.clone() })?;
    let namespace = &record.node(&flow.from)?.namespace;
    let sent = netns::inside(namespace, || probe::send(&packet, flow.destination))?;
    let unsent = sent.err().map(|error| error.desc().to_owned());
    let events = if unsent.is_some() { Vec::new() } else { collect(&observers, slack(&topology)) };
    let blind = observers.blind.clone();
    drop(observers);
    let (after, down) = (counters::read(&record), down(&record));
    Ok(judge::judge(Evidence { plan: &plan, chain, flow, mark, events, before, after, down, unsent, blind }))
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
        let text = segue_host::Run::new("ip", ["-json", "link"]).inside(&node.namespace).text().unwrap_or_default();
        let links: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        for link in links.as_array().into_iter().flatten() {
            let word = |key: &str| link.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
            if matches!(word("operstate"), "DOWN" | "LOWERLAYERDOWN") {
                down.push(format!("{}:{}", node.name, word("ifname")));
            }
        }
    }
    down
}

/// What was asked for, beside what the lab is.
struct Asked<'a> {
    topology: &'a Topology,
    plan: &'a LabPlan,
    arguments: &'a TraceArguments,
}

impl Asked<'_> {
    /// The packet; and the chain with the stations that it should come by.
    fn flow(&self) -> Result<(Flow, Option<judge::WayOfChain>)> {
        let arguments = self.arguments;
        let (chain, from, to) = match &arguments.chain {
            Some(name) => {
                let chain = self.topology.chains.get(name).ok_or_else(|| {
                    let known: Vec<&str> = self.topology.chains.keys().map(String::as_str).collect();
                    wrong(format!("there is no chain {name:?}"), format!("choose one of: {}", known.join(", ")))
                })?;
                let [from, to] = self.ends(name, chain)?;
                (Some((name, chain)), from, to)
            }
            None => {
                let from = arguments.from.clone().unwrap_or_default();
                (None, from, arguments.to.clone().unwrap_or_default())
            }
        };
        let from = from.trim_start_matches('$').to_owned();
        let host = self.plan.hosts.get(&from).ok_or_else(|| {
            let known: Vec<&str> = self.plan.hosts.keys().map(String::as_str).collect();
            wrong(format!("there is no host {from:?}"), format!("choose one of: {}", known.join(", ")))
        })?;
        let destination = self.destination(&to)?;
        let source = match destination {
            IpAddr::V6(_) => host.ipv6().map(IpAddr::from),
            IpAddr::V4(_) => host.ipv4().map(IpAddr::from),
        };
        let source = source.ok_or_else(|| {
            wrong(format!("host {from} has no address of the family of {destination}"), "choose another destination")
        })?;
        let flow = self.fields(chain.map(|(_, chain)| chain), from, source, destination);
        Ok((flow, chain.map(|(name, _)| (name.clone(), self.stations(name)))))
    }

    /// Both ends of a chain in the direction that was asked for.
    fn ends(&self, name: &str, chain: &Chain) -> Result<[String; 2]> {
        let mut ends = [chain.from.clone(), chain.to.clone()];
        if self.arguments.reverse {
            ends.reverse();
        }
        let asked = [&self.arguments.from, &self.arguments.to];
        let mut names = Vec::new();
        for ((end, asked), option) in ends.into_iter().zip(asked).zip(["--from", "--to"]) {
            names.push(match (asked, end) {
                (Some(asked), _) => asked.clone(),
                (None, Endpoint::Host(host)) => host,
                (None, _) => {
                    let what = format!("an end of chain {name} is no host, but prefixes");
                    return Err(wrong(what, format!("give {option} with a host or an address in them")));
                }
            });
        }
        <[String; 2]>::try_from(names).map_err(|_| wrong("a chain has two ends".into(), "report this"))
    }

    fn destination(&self, to: &str) -> Result<IpAddr> {
        if let Ok(address) = to.parse() {
            return Ok(address);
        }
        let labels = Labels::of(self.plan);
        let name = to.trim_start_matches('$');
        let label = if self.arguments.ipv4 && self.plan.hosts.contains_key(name) {
            format!("${name}.ipv4")
        } else {
            format!("${name}")
        };
        let value = &labels.find(&label)?.value;
        let address = value.parse().or_else(|_| value.split(['/', ',']).next().unwrap_or_default().parse());
        address.map_err(|_| {
            wrong(format!("{to} is {value}, and no address"), "give an address, a host or the label of one")
        })
    }

    /// The fields of the packet: as asked, or as the chain matches.
    fn fields(&self, chain: Option<&Chain>, from: String, source: IpAddr, destination: IpAddr) -> Flow {
        let arguments = self.arguments;
        let matching = chain.map(|chain| chain.matching.clone()).unwrap_or_default();
        let wanted = arguments.protocol.or(matching.protocol).map_or(protocol::UDP, |protocol| protocol.0);
        // `icmp` is that of the family.
        let protocol = match wanted {
            protocol::ICMPV4 | protocol::ICMPV6 if destination.is_ipv6() => protocol::ICMPV6,
            protocol::ICMPV6 => protocol::ICMPV4,
            other => other,
        };
        let first = |ranges: &[segue_model::value::PortRange]| ranges.first().map(|range| range.low());
        let (mut ports, mut there) = (first(&matching.source_ports), first(&matching.destination_ports));
        if arguments.reverse {
            std::mem::swap(&mut ports, &mut there);
        }
        let number = |ranges: &[segue_model::range::NumberRange]| ranges.first().map_or(0, |range| range.low());
        Flow {
            from,
            source,
            destination,
            protocol,
            source_port: arguments.source_port.or(ports).unwrap_or(SOURCE_PORT),
            destination_port: arguments.destination_port.or(there).unwrap_or(DESTINATION_PORT),
            dscp: arguments.dscp.unwrap_or_else(|| u8::try_from(number(&matching.dscp)).unwrap_or_default()),
            flow_label: arguments.flow_label.unwrap_or_else(|| number(&matching.flow_labels)),
            hop_limit: arguments.hop_limit,
            length: arguments.length,
        }
    }

    /// Nodes of the chain's segments, and functions with namespaces of their own, in order. What the agent makes (netfilter) and what is in the
    /// node is a part of the node.
    fn stations(&self, chain: &str) -> Vec<String> {
        let direction = if self.arguments.reverse { Direction::Reverse } else { Direction::Forward };
        let steps = || self.plan.explain().iter().filter(|step| step.chain == chain && step.direction == direction);
        let Some(first) = steps().next() else { return Vec::new() };
        let mut stations = Vec::new();
        for step in steps().filter(|step| step.policy == first.policy) {
            stations.push(step.node.clone());
            if let StepAction::Segment { function: Some(function), .. } = &step.action
                && self
                    .plan
                    .functions
                    .get(function)
                    .is_some_and(|plan| plan.has_namespace() && !plan.interfaces.is_empty())
            {
                stations.extend([function.clone(), step.node.clone()]);
            }
        }
        stations.dedup();
        stations
    }
}

fn wrong(what: String, remedy: impl Into<String>) -> LabError {
    LabError::Exchange { place: "segue trace".into(), what, remedy: remedy.into() }
}
