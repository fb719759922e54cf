//! Traces on deployed nodes: no topology, but agents that can be asked, and who is at the other end of a link by its link-layer address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use segue_api::client::Client;
use segue_api::report::{PortReport, Version};
use segue_api::simulation::{SimulatedEgress, SimulationRequest, hexadecimal};
use segue_model::node::{NodeState, SteeringRule};
use segue_model::owner::Direction as ChainDirection;
use segue_model::range::NumberRange;
use segue_wire::protocol;

use super::counters::{self, Counters, dropped, passed};
use super::event::{Direction, Event, Flow, Hop, Lost, Simulation, Trace, Verdict, What};
use super::observe::{Observers, Probe};
use super::passages::{agree, hops};
use super::source::{Inside, Source};
use super::walk::{Beyond, Carried, Network, Other, Place, walk};
use super::{DESTINATION_PORT, SOURCE_PORT, TraceArguments, collect, packet, probe, wrong};
use crate::error::{LabError, Result};

/// How long an agent may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node that can be asked.
struct Known {
    name: String,
    agent: Client,
    ports: Vec<PortReport>,
    /// Its interfaces are those of this process's namespace.
    is_here: bool,
}

/// Nodes that can be asked, and those that cannot.
struct Domain {
    nodes: Vec<Known>,
    unreachable: Vec<String>,
}

/// Traces a packet on these nodes; names are for displays, and an empty one is what the node calls itself.
///
/// # Errors
/// If no node answers, or the packet is not possible. That it does not arrive is no error.
pub fn trace(agents: Vec<(String, Client)>, arguments: &TraceArguments) -> Result<Trace> {
    let domain = Domain::open(agents)?;
    let asked = domain.asked(arguments)?;
    let mark = probe::mark();
    let sendable = asked.can_be_sent.then(|| probe::packet(&asked.flow, &mark)).transpose()?;
    let packet = asked.captured.unwrap_or_else(|| Carried::ip(sendable.clone().unwrap_or_default()));
    let flow = Flow { length: sendable.as_ref().map_or(packet.octets.len(), Vec::len), ..asked.flow };
    let simulation = (!arguments.live).then(|| walk(&domain, asked.start.clone(), packet));
    if let (true, Some(simulation)) = (arguments.simulate, &simulation) {
        let mut trace = Trace::simulated(flow, arguments.chain.clone(), simulation.clone());
        trace.blind = domain.unreachable;
        return Ok(trace);
    }
    let packet = sendable.ok_or_else(|| {
        let what =
            "no probe can look like that packet: it is steered already, or of another protocol than TCP, UDP and ICMP";
        wrong(what.into(), "give --simulate; `segue ping --segments` sends steered packets")
    })?;
    let sources = domain.sources();
    let before = counters::read(&sources);
    let observers = Observers::start(&sources, &Probe { mark, flow: flow.clone() })?;
    inject(domain.agent_of(&asked.start)?, &asked.start, &packet)?;
    let mut events = collect(&observers, Duration::ZERO);
    let mut blind = observers.blind.clone();
    blind.extend(domain.unreachable);
    drop(observers);
    events.sort_by_key(|event| event.time);
    agree(&mut events);
    let seen = Seen { flow, mark, start: asked.start, events, before, after: counters::read(&sources), simulation };
    Ok(seen.judge(arguments.chain.clone(), blind))
}

/// Has an agent put a packet in, as if it had come by a port.
///
/// # Errors
/// What the agent says, such as that the port is not on XDP.
pub fn inject(agent: &Client, place: &Place, packet: &[u8]) -> Result<()> {
    let request = SimulationRequest {
        port: place.port.clone(),
        packet: Some(hexadecimal(packet)),
        ..SimulationRequest::default()
    };
    match agent.inject(&request) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(error.to_string(), "give --simulate, or in a lab --from a host")),
    }
}

/// What is asked for.
struct Asked {
    flow: Flow,
    start: Place,
    captured: Option<Carried>,
    can_be_sent: bool,
}

impl Domain {
    fn open(agents: Vec<(String, Client)>) -> Result<Self> {
        let mut domain = Self { nodes: Vec::new(), unreachable: Vec::new() };
        for (name, agent) in agents {
            let agent = agent.with_patience(PATIENCE);
            let asked = agent.get::<Version>("/v1/version").and_then(|version| {
                let name = if name.is_empty() { version.node } else { name.clone() };
                Ok((name, agent.get::<Vec<PortReport>>("/v1/ports")?))
            });
            match asked {
                Ok((name, ports)) => {
                    let is_here = ports.iter().any(|port| port.ifindex != 0) && ports.iter().all(is_mine);
                    let agent = agent.named(&name);
                    domain.nodes.push(Known { name, agent, ports, is_here });
                }
                Err(error) => domain.unreachable.push(format!("{name}: {error}")),
            }
        }
        if domain.nodes.is_empty() {
            let what = domain.unreachable.join("; ");
            return Err(wrong(format!("no node answers: {what}"), "start segued there, or correct how it is reached"));
        }
        Ok(domain)
    }

    fn sources(&self) -> Vec<Source> {
        let one = |node: &Known| Source {
            station: node.name.clone(),
            agent: Some(node.agent.clone()),
            inside: if node.is_here { Inside::Here } else { Inside::Nowhere },
            is_function: false,
        };
        self.nodes.iter().map(one).collect()
    }

    fn agent_of(&self, place: &Place) -> Result<&Client> {
        let node = self.nodes.iter().find(|node| node.name == place.station);
        Ok(&node.ok_or_else(|| wrong(format!("there is no node {}", place.station), "choose another"))?.agent)
    }

    /// `[NODE:]PORT`.
    fn place(&self, text: &str) -> Result<Place> {
        let names = || self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let (node, port) = match text.split_once(':') {
            Some((node, port)) => (self.nodes.iter().find(|known| known.name == node), port),
            None if self.nodes.len() == 1 => (self.nodes.first(), text),
            None => {
                return Err(wrong(
                    format!("{text:?} names no node"),
                    format!("give --ingress NODE:PORT, of {}", names()),
                ));
            }
        };
        let node =
            node.ok_or_else(|| wrong(format!("there is no node of {text:?}"), format!("choose one of: {}", names())))?;
        if !node.ports.iter().any(|known| known.name == port) {
            let ports: Vec<&str> = node.ports.iter().map(|port| port.name.as_str()).collect();
            return Err(wrong(
                format!("{} has no port {port:?}", node.name),
                format!("choose one of: {}", ports.join(", ")),
            ));
        }
        Ok(Place { station: node.name.clone(), port: port.to_owned() })
    }

    fn asked(&self, arguments: &TraceArguments) -> Result<Asked> {
        if arguments.from.is_some() {
            return Err(wrong(
                "hosts are known to labs only".into(),
                "give --ingress with the port that the packet comes in by",
            ));
        }
        let start = arguments.ingress.as_ref().map(|ingress| self.place(ingress)).transpose()?;
        let by_port = || wrong("it is not said where the packet comes in".into(), "give --ingress [NODE:]PORT");
        if let Some(path) = &arguments.pcap {
            let start = start.ok_or_else(by_port)?;
            let captured = packet::of_capture(path, arguments.number)?;
            let (flow, can_be_sent) = packet::flow_of(&captured, &format!("{}:{}", start.station, start.port))?;
            return Ok(Asked { flow, start, captured: Some(captured), can_be_sent });
        }
        let rule = arguments.chain.as_ref().map(|chain| self.rule(chain, arguments, start.as_ref())).transpose()?;
        let start = match (start, &rule) {
            (Some(start), _) => start,
            (None, Some((node, rule))) => {
                let ingress = rule.ingress.as_ref().ok_or_else(by_port)?;
                Place { station: node.clone(), port: ingress.clone() }
            }
            (None, None) => return Err(by_port()),
        };
        let rule = rule.map(|(_, rule)| rule);
        let destination = match (&arguments.to, &rule) {
            (Some(to), _) => {
                to.parse().map_err(|_| wrong(format!("{to:?} is no address"), "give --to with an address"))?
            }
            (None, Some(rule)) => host_of(rule.destination),
            (None, None) => {
                return Err(wrong("it is not said where the packet goes".into(), "give --to with an address"));
            }
        };
        let source = match (arguments.source, rule.as_ref().and_then(|rule| rule.source)) {
            (Some(source), _) => source,
            (None, Some(prefix)) => host_of(prefix),
            (None, None) => {
                return Err(wrong(
                    "it is not said from whom the packet comes".into(),
                    "give --source with its address",
                ));
            }
        };
        let flow = fields(arguments, rule.as_ref(), &start, source, destination);
        Ok(Asked { flow, start, captured: None, can_be_sent: true })
    }

    /// A steering rule that leads into a chain, and the node that has it.
    fn rule(&self, chain: &str, arguments: &TraceArguments, start: Option<&Place>) -> Result<(String, SteeringRule)> {
        let direction = if arguments.reverse { ChainDirection::Reverse } else { ChainDirection::Forward };
        for node in self.nodes.iter().filter(|node| start.is_none_or(|start| start.station == node.name)) {
            let (state, _): (NodeState, _) = node
                .agent
                .state()
                .map_err(|error| wrong(error.to_string(), "give --to, --source and --ingress instead of a chain"))?;
            let leads = |rule: &&SteeringRule| {
                let policy = state.policies.iter().find(|policy| Some(&policy.name) == rule.policy.as_ref());
                let owner = policy.and_then(|policy| policy.owner.as_ref());
                owner.is_some_and(|owner| owner.chain == chain && owner.direction == Some(direction))
                    && rule.destination.addr().is_ipv4() == arguments.ipv4
                    && start.is_none_or(|start| rule.ingress.as_ref().is_none_or(|ingress| *ingress == start.port))
            };
            if let Some(rule) = state.steering.iter().find(leads) {
                return Ok((node.name.clone(), rule.clone()));
            }
        }
        let what = format!("no steering rule of these nodes leads into a chain {chain:?}");
        Err(wrong(what, "see `segue get chains`; or give --to, --source and --ingress"))
    }
}

/// Whether a port's interface is one of this process's namespace.
fn is_mine(port: &PortReport) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{}/{file}", port.name));
    let is = |file: &str, wanted: &str| read(file).is_ok_and(|text| text.trim() == wanted);
    port.ifindex == 0 || (is("address", &port.mac) && is("ifindex", &port.ifindex.to_string()))
}

/// An address of a prefix that a host may have.
fn host_of(prefix: ipnet::IpNet) -> IpAddr {
    prefix.hosts().nth(1).or_else(|| prefix.hosts().next()).unwrap_or_else(|| prefix.addr())
}

fn fields(
    arguments: &TraceArguments,
    rule: Option<&SteeringRule>,
    start: &Place,
    source: IpAddr,
    destination: IpAddr,
) -> Flow {
    let first = |ranges: Option<&Vec<segue_model::value::PortRange>>| {
        ranges.and_then(|all| all.first()).map(|range| range.low())
    };
    let number = |ranges: Option<&Vec<NumberRange>>| ranges.and_then(|all| all.first()).map(|range| range.low());
    let wanted =
        arguments.protocol.or(rule.and_then(|rule| rule.protocol)).map_or(protocol::UDP, |protocol| protocol.0);
    let protocol = match wanted {
        protocol::ICMPV4 | protocol::ICMPV6 if destination.is_ipv6() => protocol::ICMPV6,
        protocol::ICMPV6 => protocol::ICMPV4,
        other => other,
    };
    let ports = (first(rule.map(|rule| &rule.source_ports)), first(rule.map(|rule| &rule.destination_ports)));
    Flow {
        from: format!("{}:{}", start.station, start.port),
        source,
        destination,
        protocol,
        source_port: arguments.source_port.or(ports.0).unwrap_or(SOURCE_PORT),
        destination_port: arguments.destination_port.or(ports.1).unwrap_or(DESTINATION_PORT),
        dscp: arguments.dscp.unwrap_or_else(|| {
            number(rule.map(|rule| &rule.dscp)).and_then(|value| u8::try_from(value).ok()).unwrap_or_default()
        }),
        flow_label: arguments.flow_label.or_else(|| number(rule.map(|rule| &rule.flow_labels))).unwrap_or_default(),
        hop_limit: arguments.hop_limit,
        segments: arguments.segments.clone(),
        length: arguments.length,
    }
}

impl Network for Domain {
    fn agent(&self, station: &str) -> Option<Client> {
        self.nodes.iter().find(|node| node.name == station).map(|node| node.agent.clone())
    }

    fn beyond(&self, station: &str, way: &SimulatedEgress) -> Beyond {
        let Some(mac) = &way.mac else {
            return Beyond::Unknown("who is there is not known yet".to_owned());
        };
        let has = |port: &&PortReport| port.mac.eq_ignore_ascii_case(mac);
        let mut there = self.nodes.iter().filter(|node| node.name != station).filter_map(|node| {
            Some(Place { station: node.name.clone(), port: node.ports.iter().find(has)?.name.clone() })
        });
        match (there.next(), there.next()) {
            (Some(place), None) => Beyond::At(place),
            (None, _) => Beyond::Unknown(format!("no other node that was asked has {mac}")),
            (Some(one), Some(other)) => {
                Beyond::Unknown(format!("{} and {} both have {mac}", one.station, other.station))
            }
        }
    }

    fn other(&self, place: &Place, _packet: &Carried) -> Other {
        Other::Unknown(format!("{} has no agent that could be asked", place.station))
    }

    fn kept(&self, _station: &str, _packet: &Carried) -> Option<Lost> {
        None
    }

    fn assumed(&self, _station: &str, _way: &SimulatedEgress) -> Option<String> {
        None
    }
}

/// All that was seen.
struct Seen {
    flow: Flow,
    mark: probe::Mark,
    start: Place,
    events: Vec<Event>,
    before: Counters,
    after: Counters,
    simulation: Option<Simulation>,
}

impl Seen {
    fn judge(self, chain: Option<String>, blind: Vec<String>) -> Trace {
        let hops = hops(&self.events);
        let (verdict, Lost { station, reason, text }) = self.find(&hops);
        let look_at = match verdict {
            Verdict::Vanished => vec![format!("segue drops, and `segue get outcomes`, at {station}")],
            _ => Vec::new(),
        };
        let errors = self.events.iter().filter(|event| event.what == What::Error);
        let mut errors: Vec<String> =
            errors.map(|event| format!("{} (seen at {})", event.headers, event.station)).collect();
        errors.dedup();
        let Self { flow, simulation, .. } = self;
        let (none, differs) = (None, None);
        let mut trace = Trace {
            chain,
            flow,
            verdict,
            station,
            reason,
            text,
            look_at,
            hops,
            errors,
            blind,
            simulation: none,
            differs,
        };
        if let Some(simulation) = simulation {
            trace.compare(simulation);
        }
        trace
    }

    fn find(&self, hops: &[Hop]) -> (Verdict, Lost) {
        let lost = |station: &str, reason: &str, text: String| Lost {
            station: station.to_owned(),
            reason: reason.to_owned(),
            text,
        };
        if let Some(reply) = self.events.iter().rfind(|event| event.what == What::Reply) {
            let text = format!("it was answered: {} (seen at {})", reply.headers, reply.station);
            return (Verdict::Delivered, lost(&reply.station, "arrived", text));
        }
        let Some(last) = self.events.iter().rfind(|event| event.what == What::Probe) else {
            let Place { station, port } = &self.start;
            let drops = self.drops(station);
            return match drops.first() {
                Some((reason, text, _)) => (Verdict::Vanished, lost(station, reason, text.clone())),
                None => {
                    let text = format!("it was put in at {port} of {station}, and nobody has seen it");
                    (Verdict::Vanished, lost(station, "not_seen", text))
                }
            };
        };
        let station = &last.station;
        if last.direction == Direction::In {
            return self.kept(last);
        }
        let next = hops.last().and_then(|hop| hop.left_by.as_ref());
        let port = next.unwrap_or(&last.port);
        let simulated = self.simulation.as_ref();
        let known = simulated.is_some_and(|simulation| {
            let mut stations = simulation.hops.iter().map(|hop| &hop.station);
            stations.by_ref().any(|name| name == station) && stations.next().is_some()
        });
        if known
            && simulated.is_some_and(|simulation| simulation.verdict != Verdict::Left || simulation.station != *station)
        {
            let text = format!("it left {station} by {port}, and was seen nowhere else");
            return (Verdict::Vanished, lost(station, "lost_on_link", text));
        }
        let text = format!("it left {station} by {port}: {}", last.headers);
        (Verdict::Left, lost(station, "left", text))
    }

    /// Drops of a station that were counted meanwhile, the probe's own first: reason, text, whether it is the probe for sure.
    fn drops(&self, station: &str) -> Vec<(String, String, bool)> {
        let of = |counters: &Counters| counters.get(station).cloned().unwrap_or_default();
        let drops = dropped(&of(&self.before), &of(&self.after), &self.mark);
        let told = drops.into_iter().map(|drop| {
            let sure = if drop.is_probe { "" } else { " (by its counter)" };
            let text = format!("{station} dropped it as {}, in by {}: {}{sure}", drop.reason, drop.port, drop.text);
            (drop.reason, text, drop.is_probe)
        });
        told.collect()
    }

    fn kept(&self, last: &Event) -> (Verdict, Lost) {
        let station = last.station.clone();
        let of = |counters: &BTreeMap<String, counters::Station>| counters.get(&station).cloned().unwrap_or_default();
        let drops = self.drops(&station);
        if let Some((reason, text, _)) = drops.into_iter().next() {
            return (Verdict::Vanished, Lost { station, reason, text });
        }
        if let Some((reason, words)) = passed(&of(&self.before), &of(&self.after), &last.port).into_iter().next() {
            let text =
                format!("{station} gave it to its kernel ({reason}: {words}), and what that did with it was not seen");
            return (Verdict::Left, Lost { station, reason, text });
        }
        let text = format!("it came to {station} by {}, and was seen nowhere else", last.port);
        (Verdict::Vanished, Lost { station, reason: "not_seen".to_owned(), text })
    }
}

/// What is wrong with a file of nodes.
///
/// # Errors
/// A file that cannot be read, or says something else.
pub fn read(path: &std::path::Path) -> Result<Vec<(String, Client)>> {
    let text = std::fs::read_to_string(path).map_err(LabError::io("read", path, "give a file that can be read"))?;
    let nodes = segue_model::reach::load_nodes(&text, &path.display().to_string());
    let nodes = nodes.map_err(|errors| wrong(errors.to_string(), "see `segue schema nodes`"))?;
    let client = |reach: segue_model::reach::Reach| match reach.socket {
        Some(socket) => Client::new(socket),
        None => Client::through(reach.connect),
    };
    Ok(nodes.nodes.into_iter().map(|(name, reach)| (name, client(reach))).collect())
}
