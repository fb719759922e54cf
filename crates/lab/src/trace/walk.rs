//! A packet's way by simulation: each node is asked what it would do, and who is at the other end of the link by which the packet leaves.
//!
//! What a function does is not known: it is taken to give the packet back as it got it, and the result says so.

use segue_api::client::Client;
use segue_api::simulation::{
    LabelEntry, SimulatedEgress, SimulatedVisit, SimulationReport, SimulationRequest, hexadecimal, label_stack, octets,
};
use segue_wire::packet::parse_as_far_as_possible;
use segue_wire::summary;

use super::event::{Lost, SimulatedHop, Simulation, Verdict};

/// Stations that a packet may come by: more are a circle, whose end is that of the hop limit.
const STATIONS_MAX: usize = 128;

/// A port of a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Node, host or function.
    pub station: String,
    /// Its interface.
    pub port: String,
}

/// What is at the other end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beyond {
    /// A station.
    At(Place),
    /// Nobody gets it.
    Lost(Lost),
    /// Nobody knows.
    Unknown(String),
}

/// What a station without an agent does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Other {
    /// It is for it.
    Arrived,
    /// It sends it on.
    Sends(SimulatedEgress),
    /// It does not: reason and text.
    Lost(String, String),
    /// That is not known.
    Unknown(String),
}

/// A packet on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// From its IP header on, or from its label stack on.
    pub octets: Vec<u8>,
    /// It begins with a label stack.
    pub labelled: bool,
}

impl Carried {
    /// An IP packet.
    #[must_use]
    pub fn ip(octets: Vec<u8>) -> Self {
        Self { octets, labelled: false }
    }

    /// The packet behind its labels.
    #[must_use]
    pub fn inside(&self) -> &[u8] {
        self.octets.get(4 * self.labels().len()..).unwrap_or_default()
    }

    /// A frame around it, for those who read frames.
    fn framed(&self) -> Vec<u8> {
        let ethertype: [u8; 2] = match self.octets.first() {
            _ if self.labelled => [0x88, 0x47],
            Some(octet) if octet >> 4 == 4 => [8, 0],
            _ => [0x86, 0xdd],
        };
        [&[0; 12][..], &ethertype, &self.octets].concat()
    }

    fn headers(&self) -> String {
        summary(&self.framed()).to_string()
    }

    /// The labels that it has.
    fn labels(&self) -> Vec<LabelEntry> {
        if self.labelled { label_stack(&self.octets) } else { Vec::new() }
    }

    /// Whether it has a steering header.
    fn is_steered(&self) -> bool {
        let frame = self.framed();
        let (layers, _) = parse_as_far_as_possible(&frame);
        self.labelled || layers.srh().is_some() || layers.outer_ip() != layers.inner_ip()
    }
}

/// Nodes, and how they are connected.
pub trait Network {
    /// The agent of a station; none if it has none.
    fn agent(&self, station: &str) -> Option<Client>;
    /// Who is at the other end.
    fn beyond(&self, station: &str, way: &SimulatedEgress) -> Beyond;
    /// What a station without an agent does with a packet.
    fn other(&self, place: &Place, packet: &Carried) -> Other;
    /// Why a node's kernel did not send a packet on, where the network knows better than the node.
    fn kept(&self, station: &str, packet: &Carried) -> Option<Lost>;
    /// What is taken for granted of the link by which a packet leaves.
    fn assumed(&self, station: &str, way: &SimulatedEgress) -> Option<String>;
}

/// Simulates a packet's way from a place on.
pub fn walk(network: &dyn Network, start: Place, packet: Carried) -> Simulation {
    let mut walk = Walk { network, hops: Vec::new(), assumed: Vec::new() };
    let (verdict, lost) = walk.follow(start, packet);
    let Walk { hops, assumed, .. } = walk;
    let Lost { station, reason, text } = lost;
    let certain = assumed.is_empty() && verdict != Verdict::NotKnown;
    Simulation { verdict, station, reason, text, certain, assumed, hops }
}

struct Walk<'a> {
    network: &'a dyn Network,
    hops: Vec<SimulatedHop>,
    assumed: Vec<String>,
}

type Finish = (Verdict, Lost);

fn lost(station: &str, reason: &str, text: String) -> Lost {
    Lost { station: station.to_owned(), reason: reason.to_owned(), text }
}

impl Walk<'_> {
    fn assume(&mut self, what: String) {
        if !self.assumed.contains(&what) {
            self.assumed.push(what);
        }
    }

    fn follow(&mut self, start: Place, packet: Carried) -> Finish {
        let (mut place, mut packet, mut remembered) = (start, packet, None);
        for _ in 0..STATIONS_MAX {
            let next = match self.network.agent(&place.station) {
                Some(agent) => self.at_node(&agent, &place, &packet, remembered.take()),
                None => self.at_other(&place, &packet),
            };
            match next {
                Ok(Onward { at, packet: next, by }) => (place, packet, remembered) = (at, next, by),
                Err(finish) => return *finish,
            }
        }
        let text = format!("it goes round in a circle: {STATIONS_MAX} stations, the last of them {}", place.station);
        (Verdict::NotKnown, lost(&place.station, "circle", text))
    }

    fn at_node(
        &mut self,
        agent: &Client,
        place: &Place,
        packet: &Carried,
        remembered: Option<String>,
    ) -> Result<Onward, Box<Finish>> {
        let station = &place.station;
        let request = SimulationRequest {
            port: place.port.clone(),
            packet: Some(hexadecimal(&packet.octets)),
            labelled: packet.labelled,
            frame: None,
            remembered,
        };
        let report = match agent.simulate(&request) {
            Ok(report) => report,
            Err(error) => {
                self.hop(place, packet);
                let text = format!("{station} could not be asked: {error}");
                return Err(Box::new((Verdict::NotKnown, lost(station, "not_asked", text))));
            }
        };
        for assumed in &report.assumed {
            self.assume(format!("{station}: {assumed}"));
        }
        let after = Carried { octets: octets(&report.packet).unwrap_or_default(), labelled: !report.labels.is_empty() };
        self.hops.push(SimulatedHop {
            station: station.clone(),
            came_in: Some(place.port.clone()),
            left_by: report.egress.as_ref().map(|way| way.port.clone()),
            outcome: Some(report.outcome.clone()),
            steps: report.steps.clone(),
            headers: (if report.kind == "dropped" { packet } else { &after }).headers(),
            labels: (if report.kind == "dropped" { packet } else { &after }).labels(),
        });
        match (&report.function, &report.egress) {
            (Some(visit), egress) => self.function(place, egress.as_ref(), visit, after),
            (None, Some(way)) => {
                let way = way.clone();
                self.leaves(station, &way, after, None)
            }
            (None, None) => Err(Box::new(self.stays(place, &report, packet))),
        }
    }

    /// It does not leave the node.
    fn stays(&self, place: &Place, report: &SimulationReport, packet: &Carried) -> Finish {
        let station = &place.station;
        if report.by_kernel || report.outcome == "echo_answered" {
            let text = format!("it is for {station} itself: {}", report.text);
            return (Verdict::Delivered, lost(station, "arrived", text));
        }
        if report.outcome == "icmp_relayed" {
            return (Verdict::Delivered, lost(station, "arrived", report.text.clone()));
        }
        let because = if report.reason.is_empty() { String::new() } else { format!(" ({})", report.reason) };
        if report.kind == "dropped" {
            let text =
                format!("{station} drops it as {}, in by {}: {}{because}", report.outcome, report.port, report.text);
            return (Verdict::Vanished, lost(station, &report.outcome, text));
        }
        let own = report.steps.iter().find(|step| step.what == "sid" && step.detail.starts_with("no SID of this node"));
        if let Some(step) = own {
            let text = format!("{station} has no SID {}, which lies in its own locator", step.name);
            return (Verdict::Vanished, lost(station, "no_sid", text));
        }
        if let Some(lost) = self.network.kept(station, packet) {
            return (Verdict::Vanished, lost);
        }
        let text = format!(
            "the kernel of {station} does not send it on, which the data plane gives it ({}){because}",
            report.outcome
        );
        (Verdict::Vanished, lost(station, &report.outcome, text))
    }

    /// It goes to a function, and, as far as one can know, comes back.
    fn function(
        &mut self,
        place: &Place,
        way: Option<&SimulatedEgress>,
        visit: &SimulatedVisit,
        packet: Carried,
    ) -> Result<Onward, Box<Finish>> {
        let there = way.map(|way| self.network.beyond(&place.station, way));
        let name = match there {
            Some(Beyond::At(place)) => place,
            Some(Beyond::Lost(lost)) => return Err(Box::new((Verdict::Vanished, lost))),
            _ => Place { station: format!("the function of {}", visit.sid), port: String::new() },
        };
        let port = Some(name.port.clone()).filter(|port| !port.is_empty());
        self.hops.push(SimulatedHop {
            station: name.station.clone(),
            came_in: port,
            left_by: None,
            outcome: None,
            steps: Vec::new(),
            headers: packet.headers(),
            labels: packet.labels(),
        });
        self.assume(format!("{} gives the packet back as it got it", name.station));
        let Some(back_by) = &visit.back_by else {
            let text = format!("{} has no port on which packets of {} come back", place.station, name.station);
            return Err(Box::new((Verdict::NotKnown, lost(&name.station, "function", text))));
        };
        let at = Place { station: place.station.clone(), port: back_by.clone() };
        match visit.steered.as_deref().map(octets) {
            Some(Ok(octets)) => {
                let packet = Carried { octets, labelled: visit.is_behind_label() };
                Ok(Onward { at, packet, by: Some(visit.sid.clone()) })
            }
            _ => Ok(Onward { at, packet, by: None }),
        }
    }

    fn leaves(
        &mut self,
        station: &str,
        way: &SimulatedEgress,
        packet: Carried,
        by: Option<String>,
    ) -> Result<Onward, Box<Finish>> {
        if let Some(assumed) = self.network.assumed(station, way) {
            self.assume(assumed);
        }
        match self.network.beyond(station, way) {
            Beyond::At(at) => Ok(Onward { at, packet, by }),
            Beyond::Lost(lost) => Err(Box::new((Verdict::Vanished, lost))),
            Beyond::Unknown(why) => {
                let hop = way.next_hop.as_deref().map(|hop| format!(" to {hop}")).unwrap_or_default();
                let text = format!("it leaves {station} by {}{hop}: {why}", way.port);
                Err(Box::new((Verdict::Left, lost(station, "left", text))))
            }
        }
    }

    fn hop(&mut self, place: &Place, packet: &Carried) {
        self.hops.push(SimulatedHop {
            station: place.station.clone(),
            came_in: Some(place.port.clone()),
            left_by: None,
            outcome: None,
            steps: Vec::new(),
            headers: packet.headers(),
            labels: packet.labels(),
        });
    }

    fn at_other(&mut self, place: &Place, packet: &Carried) -> Result<Onward, Box<Finish>> {
        self.hop(place, packet);
        let station = &place.station;
        let (verdict, lost) = match self.network.other(place, packet) {
            Other::Sends(way) => {
                if let Some(hop) = self.hops.last_mut() {
                    hop.left_by = Some(way.port.clone());
                }
                let mut packet = packet.clone();
                lower_hop_limit(&mut packet.octets);
                return self.leaves(station, &way, packet, None);
            }
            Other::Arrived if packet.is_steered() => {
                let text = format!("it arrives at {station} with a steering header: {}", packet.headers());
                (Verdict::Leaked, lost(station, "leaked", text))
            }
            Other::Arrived => (Verdict::Delivered, lost(station, "arrived", format!("it arrives at {station}"))),
            Other::Lost(reason, text) => (Verdict::Vanished, lost(station, &reason, text)),
            Other::Unknown(text) => (Verdict::NotKnown, lost(station, "not_known", text)),
        };
        Err(Box::new((verdict, lost)))
    }
}

/// Where the packet is next.
struct Onward {
    at: Place,
    packet: Carried,
    /// The SID or label that remembers its header.
    by: Option<String>,
}

/// As a router does; the checksum of IPv4 follows (RFC 1141).
fn lower_hop_limit(packet: &mut [u8]) {
    let is_ipv4 = packet.first().is_some_and(|octet| octet >> 4 == 4);
    let at = if is_ipv4 { 8 } else { 7 };
    if let Some(hops) = packet.get_mut(at) {
        *hops = hops.saturating_sub(1);
    }
    if let (true, Some([high, low])) = (is_ipv4, packet.get(10..12).map(|pair| [pair[0], pair[1]])) {
        let sum = u32::from(u16::from_be_bytes([high, low])) + 0x100;
        let folded = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(folded as u16).to_be_bytes());
    }
}
