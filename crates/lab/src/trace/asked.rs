//! Which packet is meant: from the arguments of a trace and what the lab is.

use std::net::IpAddr;

use segue_model::owner::Direction;
use segue_model::topology::{Chain, Endpoint, Topology};
use segue_plan::StepAction;
use segue_wire::protocol;
use segue_wiring::{LabPlan, Labels};

use super::event::Flow;
use super::walk::{Carried, Place};
use super::{DESTINATION_PORT, SOURCE_PORT, TraceArguments, judge, packet, wrong};
use crate::error::Result;

/// A packet to trace in a lab.
pub(super) struct Traced {
    pub flow: Flow,
    pub chain: Option<judge::WayOfChain>,
    /// Where it is put in; else the flow's host sends it.
    pub start: Option<Place>,
    /// As the simulation takes it; none: as the probe is.
    pub captured: Option<Carried>,
    /// Whether a probe can look like it.
    pub can_be_sent: bool,
}

/// What was asked for, beside what the lab is.
pub(super) struct Asked<'a> {
    pub topology: &'a Topology,
    pub plan: &'a LabPlan,
    pub arguments: &'a TraceArguments,
}

impl Asked<'_> {
    /// The packet; and the chain with the stations that it should come by.
    pub fn packet(&self) -> Result<Traced> {
        let start = self.start()?;
        if let Some(path) = &self.arguments.pcap {
            return self.captured(path, start);
        }
        let arguments = self.arguments;
        let (chain, from, to) = match &arguments.chain {
            Some(name) => {
                let chain = self.topology.chains.get(name).ok_or_else(|| {
                    let known: Vec<&str> = self.topology.chains.keys().map(String::as_str).collect();
                    wrong(format!("there is no chain {name:?}"), format!("choose one of: {}", known.join(", ")))
                })?;
                let [from, to] = self.ends(name, chain, start.is_some())?;
                (Some((name, chain)), from, to)
            }
            None => {
                let to = arguments.to.clone().ok_or_else(|| {
                    wrong("it is not said where the packet goes".into(), "give --to with an address, a host or a label")
                })?;
                (None, arguments.from.clone().unwrap_or_default(), to)
            }
        };
        let destination = self.destination(&to)?;
        let (from, source) = match (&start, arguments.source) {
            (Some(place), Some(source)) => (format!("{}:{}", place.station, place.port), source),
            (Some(place), None) if from.is_empty() => {
                let what = format!("it is not said from whom the packet comes that is put in at {}", place.station);
                return Err(wrong(what, "give --source with its address"));
            }
            (start, source) => {
                let host = self.host(&from)?;
                let source = source.map_or_else(|| self.source(&from, destination), Ok)?;
                let at = start.as_ref().map(|place| format!("{}:{}", place.station, place.port));
                (at.unwrap_or(host), source)
            }
        };
        let flow = self.fields(chain.map(|(_, chain)| chain), from, source, destination);
        let chain = chain.map(|(name, _)| (name.clone(), self.stations(name)));
        Ok(Traced { flow, chain, start, captured: None, can_be_sent: true })
    }

    /// A packet of a capture file.
    fn captured(&self, path: &std::path::Path, start: Option<Place>) -> Result<Traced> {
        let captured = packet::of_capture(path, self.arguments.number)?;
        let (flow, can_be_sent) = packet::flow_of(&captured, "")?;
        let has =
            |host: &segue_wiring::LabHost| host.interface.addresses.iter().any(|address| address.addr() == flow.source);
        let from = match (&start, &self.arguments.from) {
            (Some(place), _) => format!("{}:{}", place.station, place.port),
            (None, Some(from)) => self.host(from)?,
            (None, None) => {
                let host = self.plan.hosts.iter().find(|(_, host)| has(host));
                let unknown = || {
                    let what = format!("{}, the packet's source, is no host of the lab", flow.source);
                    wrong(
                        what,
                        "give --from with the host that sends it, or --ingress with the port that it comes in by",
                    )
                };
                host.ok_or_else(unknown)?.0.clone()
            }
        };
        Ok(Traced { flow: Flow { from, ..flow }, chain: None, start, captured: Some(captured), can_be_sent })
    }

    /// Where the packet is put in, if that is asked for.
    fn start(&self) -> Result<Option<Place>> {
        let Some(ingress) = &self.arguments.ingress else { return Ok(None) };
        let known: Vec<&str> = self.plan.nodes.keys().map(String::as_str).collect();
        let (node, port) = ingress.split_once(':').ok_or_else(|| {
            wrong(format!("{ingress:?} names no node"), "give --ingress NODE:PORT, such as edge1:client")
        })?;
        let node = node.trim_start_matches('$');
        let there = self.plan.nodes.get(node).ok_or_else(|| {
            wrong(format!("there is no node {node:?}"), format!("choose one of: {}", known.join(", ")))
        })?;
        if !there.interfaces.iter().any(|interface| interface.name == port) {
            let known: Vec<&str> = there.interfaces.iter().map(|interface| interface.name.as_str()).collect();
            return Err(wrong(format!("{node} has no port {port:?}"), format!("choose one of: {}", known.join(", "))));
        }
        Ok(Some(Place { station: node.to_owned(), port: port.to_owned() }))
    }

    fn host(&self, from: &str) -> Result<String> {
        let from = from.trim_start_matches('$');
        if self.plan.hosts.contains_key(from) {
            return Ok(from.to_owned());
        }
        let known: Vec<&str> = self.plan.hosts.keys().map(String::as_str).collect();
        Err(wrong(format!("there is no host {from:?}"), format!("choose one of: {}", known.join(", "))))
    }

    fn source(&self, from: &str, destination: IpAddr) -> Result<IpAddr> {
        let from = self.host(from)?;
        let host = &self.plan.hosts[&from];
        let source = match destination {
            IpAddr::V6(_) => host.ipv6().map(IpAddr::from),
            IpAddr::V4(_) => host.ipv4().map(IpAddr::from),
        };
        source.ok_or_else(|| {
            wrong(format!("host {from} has no address of the family of {destination}"), "choose another destination")
        })
    }

    /// Both ends of a chain in the direction that was asked for.
    fn ends(&self, name: &str, chain: &Chain, put_in: bool) -> Result<[String; 2]> {
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
                (None, _) if put_in && option == "--from" && self.arguments.source.is_some() => String::new(),
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
            segments: arguments.segments.clone(),
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
        for step in steps().filter(|step| step.is_of_same_way(first)) {
            stations.push(step.node.clone());
            if let StepAction::Segment { function: Some(function), .. }
            | StepAction::Label { function: Some(function), .. } = &step.action
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
