//! The lab as a network to walk through: who is at the other end of a link, and what stations without an agent do.

use std::net::IpAddr;

use segue_api::client::Client;
use segue_api::simulation::SimulatedEgress;
use segue_host::Run;
use segue_wiring::{Interface, LabPlan};

use super::event::{Flow, Lost, Simulation, Verdict};
use super::judge::{WayOfChain, way_is_down};
use super::walk::{Beyond, Carried, Network, Other, Place, walk};
use crate::state::{Kind, LabRecord};

/// A lab that is up.
pub struct Around<'a> {
    /// What was made.
    pub record: &'a LabRecord,
    /// What should be.
    pub plan: &'a LabPlan,
    /// Interfaces that are down, as `station:interface`.
    pub down: &'a [String],
    /// The chain that the packet should take.
    pub chain: Option<&'a WayOfChain>,
    /// Where it goes in the end.
    pub destination: IpAddr,
}

impl Around<'_> {
    fn peer(&self, station: &str, port: &str) -> Option<(String, Interface, Interface)> {
        self.plan.links().into_iter().find_map(|ends| {
            let at = ends.iter().position(|(name, interface)| *name == station && interface.name == port)?;
            let ((_, near), (name, far)) = (ends[at], ends[1 - at]);
            Some((name.to_owned(), near.clone(), far.clone()))
        })
    }

    fn is_down(&self, station: &str, port: &str) -> bool {
        self.down.contains(&format!("{station}:{port}"))
    }

    fn namespace(&self, station: &str) -> Option<&str> {
        self.record.nodes.iter().find(|node| node.name == station).map(|node| node.namespace.as_str())
    }

    /// What the kernel of a station says of the way to an address: its interface and next hop, or why there is none.
    fn route(&self, station: &str, destination: IpAddr, from: Option<(IpAddr, &str)>) -> Result<Way, String> {
        let namespace = self.namespace(station).ok_or_else(|| format!("there is no {station}"))?;
        let mut words = vec!["-json".to_owned(), "route".into(), "get".into(), destination.to_string()];
        if let Some((source, interface)) = from {
            words.extend(["from".into(), source.to_string(), "iif".into(), interface.to_owned()]);
        }
        let text = Run::new("ip", words).inside(namespace).text().map_err(|error| error.to_string())?;
        let routes: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let route = routes.get(0).cloned().unwrap_or_default();
        let word = |key: &str| route.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        if let Some(kind) = word("type").filter(|kind| kind != "unicast" && kind != "local") {
            return Err(format!("its route says {kind}"));
        }
        Ok(Way {
            interface: word("dev").unwrap_or_default(),
            next_hop: word("gateway"),
            encapsulation: word("encap"),
            is_local: word("type").is_some_and(|kind| kind == "local") || word("dev").is_some_and(|dev| dev == "lo"),
        })
    }

    /// Simulates a packet that a host sends, or one that comes in at a place.
    pub fn simulate(&self, flow: &Flow, start: Option<Place>, packet: Carried) -> Simulation {
        let start = match start {
            Some(place) => Ok(place),
            None => self.first_place(&flow.from, packet.octets.len()),
        };
        let mut simulation = match start {
            Ok(place) => walk(self, place, packet),
            Err(ended) => return *ended,
        };
        let (Verdict::Delivered, Some((chain, stations))) = (simulation.verdict, self.chain) else { return simulation };
        let visited: Vec<&String> = simulation.hops.iter().map(|hop| &hop.station).collect();
        let mut left = visited.iter();
        let missed = stations.iter().find(|wanted| !left.any(|station| station == wanted)).cloned();
        if let Some(missed) = missed {
            let steered = simulation.hops.iter().flat_map(|hop| &hop.steps).any(|step| step.what == "policy");
            let headend =
                visited.iter().find(|station| self.plan.nodes.contains_key(**station)).map(|name| (**name).clone());
            let (station, reason, text) = match (steered, headend) {
                (false, Some(headend)) => {
                    let text = format!(
                        "it arrives, but {headend} puts no steering header on: no rule takes it into chain {chain}"
                    );
                    (headend, "not_steered", text)
                }
                _ => {
                    let text = format!("it arrives, but not by way of {missed} as chain {chain} wants");
                    (missed, "not_visited", text)
                }
            };
            simulation.verdict = Verdict::NotByTheChain;
            (simulation.station, simulation.reason, simulation.text) = (station, reason.to_owned(), text);
        }
        simulation
    }

    /// Where a packet that a host sends comes in first.
    fn first_place(&self, from: &str, length: usize) -> Result<Place, Box<Simulation>> {
        let unsent = |text: String| {
            let lost = Lost { station: from.to_owned(), reason: "not_sent".to_owned(), text };
            Box::new(Simulation::ended(Verdict::NotSent, lost))
        };
        let way = self.route(from, self.destination, None);
        let way = way.map_err(|why| unsent(format!("the kernel of {from} does not send it: {why}")))?;
        let namespace = self.namespace(from).unwrap_or_default();
        let text = Run::new("ip", ["-json", "link", "show", "dev", &way.interface]).inside(namespace).text();
        let links: serde_json::Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
        let mtu = links.get(0).and_then(|link| link.get("mtu")).and_then(serde_json::Value::as_u64);
        if let Some(mtu) = mtu.filter(|mtu| length as u64 > *mtu) {
            return Err(unsent(format!("the kernel of {from} does not send it: {length} octets where {mtu} fit")));
        }
        match self.beyond(from, &SimulatedEgress { port: way.interface, next_hop: way.next_hop, mac: None }) {
            Beyond::At(place) => Ok(place),
            Beyond::Lost(lost) => Err(Box::new(Simulation::ended(Verdict::Vanished, lost))),
            Beyond::Unknown(why) => Err(unsent(why)),
        }
    }
}

struct Way {
    interface: String,
    next_hop: Option<String>,
    encapsulation: Option<String>,
    is_local: bool,
}

/// Source and destination of a packet.
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let address = |at: usize, length: usize| -> Option<IpAddr> {
        let octets = packet.get(at..at + length)?;
        match length {
            4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        }
    };
    match packet.first()? >> 4 {
        4 => Some((address(12, 4)?, address(16, 4)?)),
        6 => Some((address(8, 16)?, address(24, 16)?)),
        _ => None,
    }
}

impl Network for Around<'_> {
    fn agent(&self, station: &str) -> Option<Client> {
        let node = self.record.nodes.iter().find(|node| node.name == station && node.kind == Kind::Segue)?;
        Some(Client::new(node.socket.as_ref()?).named(station).with_patience(crate::agent::ANSWER_WITHIN))
    }

    fn beyond(&self, station: &str, way: &SimulatedEgress) -> Beyond {
        let Some((there, near, far)) = self.peer(station, &way.port) else {
            return Beyond::Unknown("nobody knows where that leads".to_owned());
        };
        let is_down = [(station, near.name.as_str()), (&there, far.name.as_str())]
            .into_iter()
            .find(|(name, port)| self.is_down(name, port));
        if let Some((name, port)) = is_down {
            let text = format!(
                "{station} does not send it on: its way leads by {}, and that link is down ({name}:{port})",
                way.port
            );
            return Beyond::Lost(Lost { station: station.to_owned(), reason: "link_down".to_owned(), text });
        }
        if near.impaired.as_ref().is_some_and(|impaired| impaired.loss_percent >= 100.0) {
            let text = format!("the link from {station} to {there} loses every packet, as `impaired` says");
            let station = format!("{station} - {there}");
            return Beyond::Lost(Lost { station, reason: "link_impaired".to_owned(), text });
        }
        Beyond::At(Place { station: there, port: far.name })
    }

    fn other(&self, place: &Place, packet: &Carried) -> Other {
        let station = &place.station;
        if packet.labelled {
            // No kernel of a host takes labels: whoever got it there has let them out of the domain.
            let is_host = self.plan.hosts.contains_key(station);
            return if is_host { Other::Arrived } else { Other::Unknown(format!("what {station} does with labels")) };
        }
        let Some((source, destination)) = addresses(&packet.octets) else {
            return Other::Unknown("it is no IP packet".into());
        };
        if let Some(host) = self.plan.hosts.get(station) {
            let own = host.interface.addresses.iter().any(|address| address.addr() == destination);
            if own {
                return Other::Arrived;
            }
            return Other::Lost("kernel".into(), format!("{station} is not {destination}"));
        }
        let Some(node) = self.plan.nodes.get(station) else {
            return Other::Unknown(format!("what {station} does is not known"));
        };
        let way = match self.route(station, destination, Some((source, &place.port))) {
            Ok(way) => way,
            Err(why) => {
                return Other::Lost("kernel".into(), format!("the kernel of {station} does not send it on: {why}"));
            }
        };
        if let Some(encapsulation) = way.encapsulation {
            return Other::Unknown(format!(
                "the kernel of {station} does it ({encapsulation}); a live trace shows what"
            ));
        }
        if way.is_local || node.loopback == destination {
            return Other::Arrived;
        }
        Other::Sends(SimulatedEgress { port: way.interface, next_hop: way.next_hop, mac: None })
    }

    fn kept(&self, station: &str, _packet: &Carried) -> Option<Lost> {
        let interface = way_is_down(self.plan, self.chain, self.destination, self.down, station)?;
        let text = format!("{station} does not send it on: its way leads by {interface}, and that link is down");
        Some(Lost { station: station.to_owned(), reason: "link_down".to_owned(), text })
    }

    fn assumed(&self, station: &str, way: &SimulatedEgress) -> Option<String> {
        let (there, near, _) = self.peer(station, &way.port)?;
        let loss =
            near.impaired.as_ref().map(|impaired| impaired.loss_percent).filter(|loss| *loss > 0.0 && *loss < 100.0)?;
        Some(format!("the link from {station} to {there}, which loses {loss} % of packets, does not lose this one"))
    }
}
