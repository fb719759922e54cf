//! `segue ping` and `segue traceroute`: of SIDs and addresses, also by way of a segment list (RFC 9259 sections 4.1 and 4.2).
//!
//! An echo request is sent by the kernel of the node, host or machine that asks, with an SRH if segments are given. Whatever answers need not
//! know of Segue: the kernel's own `seg6` does.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use clap::Args;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, protocol};
use segue_wiring::Labels;
use serde::Serialize;

use super::echo::{Answer, Kind, Sockets, identifier};
use super::observe::{Observers, Probe};
use super::probe::{Mark, mark};
use super::source::{Inside, Source, of_lab};
use super::{event, load, wrong};
use crate::error::Result;
use crate::names::Roots;

/// RFC 9259 section 2.1.1: bit 2 of the SRH's flags.
const O_FLAG: u8 = 0x20;

/// What is pinged.
#[derive(Debug, Clone, Args)]
pub struct PingArguments {
    /// A SID, an address, or in a lab a label such as '$nfv1.firewall' or a node's name
    pub target: String,
    /// By way of these segments, in order of traversal: SIDs, or labels in a lab ('$chain.web' is a whole list)
    #[arg(long, value_name = "SID,...", value_delimiter = ',')]
    pub segments: Vec<String>,
    /// In a lab: the node or host that asks [default: the one that --node names]
    #[arg(long, value_name = "NODE")]
    pub from: Option<String>,
    /// Source address; what the kernel chooses if not given
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<Ipv6Addr>,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub timeout: f64,
    /// Set the O-flag in the SRH, and show when and where the data planes on the way have seen it
    #[arg(long, requires = "segments")]
    pub oam: bool,
}

/// `segue ping`.
#[derive(Debug, Clone, Args)]
pub struct EchoArguments {
    /// What is pinged
    #[command(flatten)]
    pub ping: PingArguments,
    /// How many echo requests
    #[arg(short, long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
    /// Hop limit of the requests
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    pub hop_limit: u8,
}

/// `segue traceroute`.
#[derive(Debug, Clone, Args)]
pub struct RouteArguments {
    /// What is looked for
    #[command(flatten)]
    pub ping: PingArguments,
    /// The largest hop limit
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..))]
    pub max_hops: u8,
    /// Requests with each hop limit, until one is answered
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub tries: u8,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.01 to 60".to_owned()),
    }
}

/// A copy that a data plane has taken, because of the O-flag.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Copy {
    /// The node.
    pub node: String,
    /// Its port.
    pub port: String,
    /// `in` or `out`.
    pub direction: event::Direction,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Headers in one line.
    pub headers: String,
}

/// All that came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Echoes {
    /// Where the requests go.
    pub target: Ipv6Addr,
    /// Segments in front of it.
    pub segments: Vec<Ipv6Addr>,
    /// Source address.
    pub source: Ipv6Addr,
    /// How many were sent.
    pub sent: u16,
    /// Whether the target has answered.
    pub reached: bool,
    /// Answers in the order of requests.
    pub answers: Vec<Answer>,
    /// Hop limits that nobody has answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<u8>,
    /// With the O-flag: copies by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<Copy>,
    /// What could not be observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blind: Vec<String>,
}

/// Who asks, and what it knows.
struct Asker {
    inside: Inside,
    target: Ipv6Addr,
    segments: Vec<Ipv6Addr>,
    source: Option<Ipv6Addr>,
    timeout: Duration,
    oam: bool,
    sources: Vec<Source>,
    labels: Labels,
}

/// Pings; in a lab, or on this machine (`lab` is none) with these agents to watch for the O-flag.
///
/// # Errors
/// Labels and addresses that are none; a kernel that does not send.
pub fn ping(roots: &Roots, lab: Option<&str>, agents: Vec<Source>, arguments: &EchoArguments) -> Result<Echoes> {
    let asker = Asker::new(roots, lab, agents, &arguments.ping)?;
    let requests = (1..=arguments.count).map(|sequence| (sequence, arguments.hop_limit));
    asker.run(requests.collect(), |_| false)
}

/// Raises the hop limit until the target answers.
///
/// # Errors
/// As [`ping`].
pub fn traceroute(roots: &Roots, lab: Option<&str>, agents: Vec<Source>, arguments: &RouteArguments) -> Result<Echoes> {
    let asker = Asker::new(roots, lab, agents, &arguments.ping)?;
    let tries = arguments.tries;
    let hops = (1..=arguments.max_hops).flat_map(|hop_limit| (0..tries).map(move |_| hop_limit));
    asker.run((1..).zip(hops).collect(), |answer| answer.kind != Kind::TimeExceeded)
}

/// Agents of this machine or of others, to be watched for copies.
#[must_use]
pub fn watched(agents: Vec<(String, segue_api::client::Client)>) -> Vec<Source> {
    let one = |(station, agent)| Source { station, agent: Some(agent), inside: Inside::Nowhere, is_function: false };
    agents.into_iter().map(one).collect()
}

impl Asker {
    fn new(roots: &Roots, lab: Option<&str>, agents: Vec<Source>, arguments: &PingArguments) -> Result<Self> {
        let (labels, inside, sources) = match lab {
            None => (Labels::default(), Inside::Here, agents),
            Some(lab) => {
                let loaded = load(roots, lab)?;
                let from = arguments.from.as_deref().ok_or_else(|| {
                    wrong("it is not said who asks".into(), "give --node or --from with a node or host of the lab")
                })?;
                let node = loaded.record.node(from.trim_start_matches('$'))?;
                let inside = Inside::Namespace(node.namespace.clone());
                (Labels::of(&loaded.plan), inside, of_lab(&loaded.record))
            }
        };
        let mut asker = Self {
            inside,
            target: Ipv6Addr::UNSPECIFIED,
            segments: Vec::new(),
            source: arguments.source,
            timeout: Duration::from_secs_f64(arguments.timeout),
            oam: arguments.oam,
            sources,
            labels,
        };
        for segment in &arguments.segments {
            let more = asker.addresses(segment)?;
            asker.segments.extend(more);
        }
        let mut target = asker.addresses(&arguments.target)?;
        let last = target.pop().ok_or_else(|| wrong(format!("{} is no address", arguments.target), "give one"))?;
        asker.segments.extend(target);
        asker.target = last;
        if asker.segments.len() > 126 {
            return Err(wrong("an SRH has no room for so many segments".into(), "give at most 126"));
        }
        Ok(asker)
    }

    /// The addresses that a word stands for; more than one for a chain's segment list.
    fn addresses(&self, word: &str) -> Result<Vec<Ipv6Addr>> {
        if let Ok(address) = word.parse() {
            return Ok(vec![address]);
        }
        let label = if word.starts_with('$') { word.to_owned() } else { format!("${word}") };
        let value = match self.labels.find(&label) {
            Ok(found) => found.value.clone(),
            Err(_) if !word.starts_with('$') && word.parse::<IpAddr>().is_ok() => {
                return Err(wrong(format!("{word} is no IPv6 address"), "give a SID or an IPv6 address"));
            }
            Err(error) => return Err(error.into()),
        };
        let addresses: std::result::Result<Vec<Ipv6Addr>, _> =
            value.split(',').map(|part| part.split('/').next().unwrap_or_default().trim().parse()).collect();
        addresses.map_err(|_| wrong(format!("{word} is {value}, and no IPv6 address"), "give a SID or an IPv6 address"))
    }

    /// The name of an address, where it has one.
    fn name(&self, address: Ipv6Addr) -> Option<String> {
        self.labels.name_of(address.into())
    }

    fn run(&self, requests: Vec<(u16, u8)>, is_end: impl Fn(&Answer) -> bool) -> Result<Echoes> {
        let mark = mark();
        let first = self.segments.first().copied().unwrap_or(self.target);
        let opened = self.inside.run(|| Sockets::open(first, self.source))?;
        let refused = |error: std::io::Error| {
            let remedy = "check that you are root, and that there is a route (`ip -6 route get`)";
            wrong(format!("the kernel does not send to {first}: {error}"), remedy)
        };
        let sockets = opened.ok_or_else(|| wrong("there is nobody to ask".into(), "choose another node"))?;
        let sockets = sockets.map_err(refused)?;
        let observers = if self.oam { Some(self.observe(mark)?) } else { None };
        let mut found = Echoes {
            target: self.target,
            segments: self.segments.clone(),
            source: sockets.source,
            sent: 0,
            reached: false,
            answers: Vec::new(),
            silent: Vec::new(),
            copies: Vec::new(),
            blind: Vec::new(),
        };
        for (sequence, hop_limit) in requests {
            // Another request with a hop limit that was answered would say the same.
            let is_route =
                found.answers.iter().any(|answer| answer.kind == Kind::TimeExceeded && answer.hop_limit == hop_limit);
            if is_route && found.sent < sequence {
                continue;
            }
            let packet = self.packet(sockets.source, sequence, hop_limit, mark)?;
            let begun = Instant::now();
            sockets.send(first, &packet).map_err(refused)?;
            found.sent += 1;
            match sockets.answer(mark, sequence, begun, self.timeout) {
                Some(answer) => {
                    let answer = Answer { sequence, hop_limit, name: self.name(answer.from), ..answer };
                    found.silent.retain(|hops| *hops != hop_limit);
                    found.reached |= answer.kind == Kind::EchoReply;
                    let ends = is_end(&answer);
                    found.answers.push(answer);
                    if ends {
                        break;
                    }
                }
                None if !found.silent.contains(&hop_limit) => found.silent.push(hop_limit),
                None => {}
            }
        }
        if let Some(observers) = observers {
            found.blind.clone_from(&observers.blind);
            found.copies = copies(&observers);
        }
        Ok(found)
    }

    fn packet(&self, source: Ipv6Addr, sequence: u16, hop_limit: u8, mark: Mark) -> Result<Vec<u8>> {
        let first = self.segments.first().copied().unwrap_or(self.target);
        let header = Ipv6Repr { hop_limit, ..Ipv6Repr::new(source, first) };
        let mut packet = PacketBuilder::new().ipv6(header);
        if !self.segments.is_empty() {
            let path: Vec<Ipv6Addr> = self.segments.iter().copied().chain([self.target]).collect();
            let flags = if self.oam { O_FLAG } else { 0 };
            packet = packet.srh(SrhRepr::new(&path).with_flags(flags));
        }
        let request =
            Icmpv6Repr::EchoRequest { identifier: identifier(mark), sequence_number: sequence, data: mark.to_vec() };
        packet.icmpv6(request).try_build().map_err(|error| wrong(error.to_string(), "give fewer segments"))
    }

    fn observe(&self, mark: Mark) -> Result<Observers> {
        let agents: Vec<Source> = self
            .sources
            .iter()
            .filter(|source| source.agent.is_some())
            .map(|source| Source { inside: Inside::Nowhere, ..source.clone() })
            .collect();
        let flow = event::Flow {
            from: String::new(),
            source: self.source.unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
            destination: self.target.into(),
            protocol: protocol::ICMPV6,
            source_port: identifier(mark),
            destination_port: 0,
            dscp: 0,
            flow_label: 0,
            hop_limit: 64,
            segments: Vec::new(),
            length: 0,
        };
        Observers::start(&agents, &Probe { mark, flow })
    }
}

/// What the data planes have seen of the requests, by time.
fn copies(observers: &Observers) -> Vec<Copy> {
    let mut copies = Vec::new();
    while let Ok(event) = observers.events.recv_timeout(super::QUIET) {
        if event.what == event::What::Probe && event.headers.contains("SRH") {
            copies.push(Copy {
                node: event.station,
                port: event.port,
                direction: event.direction,
                time: event.time,
                headers: event.headers,
            });
        }
    }
    copies.sort_by_key(|copy| copy.time);
    copies
}
