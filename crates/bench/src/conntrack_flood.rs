//! `conntrack-flood`: whether connections and handshakes survive a flood of SYNs, in the firewall that is flooded and in its neighbour.
//!
//! One processor sends SYNs from ever new sources through the data plane, as fast as it can, into one of two firewalls that look at
//! connection states, and in a flood of the other kind behind each SYN the server's answer. Between portions of that, honest clients of both firewalls shake hands with a round trip of 200 ms, of which all,
//! half or nothing is on the server's side, and connections that were agreed upon before go on. Every honest packet has to pass; a rule
//! that would let them in anew is not there. There is a rate in the report, but only the numbers count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use serde::Serialize;
use serde_json::json;

use crate::cost::OBJECT;
use crate::cost_case::PASS;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::object::{map, program, update};
use crate::segue::Node;
use crate::topology::{GENERATOR_MAC, IN_MAC, OUT_ADDRESS, Topology};

/// Segments between two looks at the clock: many, because the kernel takes some 20 ms to begin a run of more than one packet.
const PORTION: u32 = 65_536;
/// From an honest SYN to the last packet of its handshake.
const ROUND_TRIP: Duration = Duration::from_millis(200);
/// Between two honest SYNs, each in both firewalls.
const EVERY: Duration = Duration::from_millis(5);
/// Connections of each firewall from before the flood.
const BEFORE: u16 = 1000;
/// How much of the handshakes must survive, in percent.
const ENOUGH: u64 = 99;

const RULES: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
    -A FORWARD -p tcp -m tcp --syn -m conntrack --ctstate NEW -j ACCEPT\nCOMMIT\n";
const FIREWALLS: [&str; 2] = ["flooded", "beside"];
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// What the flood is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SYNs that nobody answers.
    Syns,
    /// SYNs, each with its SYN/ACK: half-agreed connections.
    AnsweredSyns,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Syns, Self::AnsweredSyns];

    /// The program in bpf/bench/cost.bpf.c that sends it, and how many segments there are to a SYN.
    const fn program(self) -> (&'static str, u32) {
        match self {
            Self::Syns => ("flood", 1),
            Self::AnsweredSyns => ("flood_answered", 2),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syns => "SYNs",
            Self::AnsweredSyns => "answered SYNs",
        })
    }
}

/// What became of one firewall's honest clients.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Honest {
    /// Handshakes that were begun.
    pub begun: u64,
    /// Handshakes whose every packet passed.
    pub agreed: u64,
    /// Connections from before the flood.
    pub connections: u64,
    /// Those whose packets still pass after it.
    pub survived: u64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// `conntrack-flood`.
    pub scenario: &'static str,
    /// What the flood was.
    pub kind: Kind,
    /// SYNs of the flood.
    pub flood: u64,
    /// Seconds.
    pub seconds: f64,
    /// The flooded firewall's clients and its neighbour's.
    pub honest: [Honest; 2],
}

impl Found {
    /// Whether it is what must be.
    ///
    /// # Errors
    /// If a connection is lost, or more handshakes than may be.
    pub fn verdict(&self) -> Result<()> {
        for (name, honest) in FIREWALLS.iter().zip(&self.honest) {
            let enough = honest.begun > 0 && honest.agreed * 100 >= honest.begun * ENOUGH;
            if !enough || honest.survived < honest.connections {
                return Err(Error::NotDone { what: self.scenario.into(), reason: format!("{name}: {honest:?}") });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {} in {:.1} s", self.scenario, self.flood, self.kind, self.seconds)?;
        write!(f, ", {:.2} million a second", self.flood as f64 / self.seconds / 1e6)?;
        for (name, honest) in FIREWALLS.iter().zip(&self.honest) {
            let Honest { begun, agreed, connections, survived } = honest;
            write!(f, "\n  {name:<8} handshakes {agreed} of {begun}, connections {survived} of {connections}")?;
        }
        Ok(())
    }
}

/// Floods for so long, and with so many SYNs at least.
///
/// # Errors
/// If the node cannot be set up, or a program does not run.
pub fn run(kind: Kind, length: Duration, least: u64) -> Result<Found> {
    let topology = Topology::build("flood")?;
    for (index, port) in FIREWALLS.iter().enumerate() {
        let sink = topology.sink.name();
        let mac = IN_MAC.map(|octet| format!("{octet:02x}")).join(":");
        topology.node.ip(&format!("link add {port} address {mac} type veth peer name p{index} netns {sink}"))?;
        topology.node.ip(&format!("link set {port} up"))?;
    }
    let firewalls = FIREWALLS.map(|name| json!({"name": name, "ipv6": {"file": "rules.v6", "text": RULES}}));
    let ports = FIREWALLS.map(|name| json!({"name": name, "role": "access", "firewall": name}));
    let state = json!({"node": "flood", "source_address": OUT_ADDRESS, "ports": ports, "firewalls": firewalls});
    let mut node = Node::start(&topology.node, state)?;
    let mut object = ObjectBuilder::default().open_memory(OBJECT).map_err(Error::bpf("open cost.bpf.o"))?;
    let object = {
        for mut program in object.progs_mut() {
            let wanted = program.name() == kind.program().0;
            program.set_autoload(wanted);
        }
        object.load().map_err(Error::bpf("load cost.bpf.o"))?
    };
    update(&map(&object, "target")?, "target", &node.program()?.as_raw_fd().to_ne_bytes())?;
    let ingress = [topology.node.ifindex(FIREWALLS[0])?, topology.node.ifindex(FIREWALLS[1])?];
    let _inside = topology.node.enter()?;
    Flood { object: &object, kind, node, ingress, honest: [Honest::default(); 2], flood: 0 }.run(length, least)
}

/// One honest connection: its client's port and address tell it from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    firewall: usize,
    number: u32,
    /// How much of the round trip is before the server's answer.
    answered: Duration,
}

/// A packet of a client's handshake that is due: its answer, or its end.
type Due = Reverse<(Instant, bool, Client)>;

struct Flood<'a> {
    object: &'a Object,
    kind: Kind,
    node: Node,
    ingress: [u32; 2],
    honest: [Honest; 2],
    flood: u64,
}

impl Flood<'_> {
    fn run(mut self, length: Duration, least: u64) -> Result<Found> {
        let before: Vec<Client> =
            (0..2).flat_map(|firewall| (0..BEFORE).map(move |number| old(firewall, number))).collect();
        for client in &before {
            let agreed = self.send(client, SYN, true)?
                && self.send(client, SYN | ACK, false)?
                && self.send(client, ACK, true)?;
            self.honest[client.firewall].connections += u64::from(agreed);
        }
        let begun = Instant::now();
        let (mut next, mut number) = (begun, 0);
        let mut due: BinaryHeap<Due> = BinaryHeap::new();
        let goes_on = |flood| begun.elapsed() < length || flood < least;
        while goes_on(self.flood) || !due.is_empty() {
            interrupt::check()?;
            self.portion()?;
            let now = Instant::now();
            while next <= now && goes_on(self.flood) {
                for firewall in 0..2 {
                    let client = Client { firewall, number, answered: ROUND_TRIP * (number % 3) / 2 };
                    self.honest[firewall].begun += 1;
                    if self.send(&client, SYN, true)? {
                        due.push(Reverse((now + client.answered, false, client)));
                    }
                }
                number += 1;
                next += EVERY;
            }
            while due.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
                let Some(Reverse((_, answered, client))) = due.pop() else { break };
                let flags = if answered { ACK } else { SYN | ACK };
                if !self.send(&client, flags, answered)? {
                    continue;
                }
                if answered {
                    self.honest[client.firewall].agreed += 1;
                } else {
                    due.push(Reverse((now + (ROUND_TRIP - client.answered), true, client)));
                }
            }
        }
        for client in &before {
            let alive = self.send(client, ACK, true)? && self.send(client, ACK, false)?;
            self.honest[client.firewall].survived += u64::from(alive);
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Found { scenario: "conntrack-flood", kind: self.kind, flood: self.flood, seconds, honest: self.honest })
    }

    /// Some segments from and to sources that have not been there before.
    fn portion(&mut self) -> Result<()> {
        let frame = segment(&old(0, 0), SYN, true);
        let mut context: Vec<u8> = [0, frame.len() as u32, 0, self.ingress[0], 0, 0]
            .iter()
            .flat_map(|word: &u32| word.to_ne_bytes())
            .collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&frame),
            repeat: PORTION,
            ..ProgramInput::default()
        };
        let (name, segments) = self.kind.program();
        program(self.object, name)?.test_run(input).map_err(Error::bpf("run BPF_PROG_TEST_RUN"))?;
        self.flood += u64::from(PORTION / segments);
        Ok(())
    }

    /// Whether a client's packet passes.
    fn send(&mut self, client: &Client, flags: u8, forward: bool) -> Result<bool> {
        let frame = segment(client, flags, forward);
        Ok(self.node.verdict(&frame, self.ingress[client.firewall])? == PASS)
    }
}

/// A client from before the flood: its network is another one than that of the later ones.
fn old(firewall: usize, number: u16) -> Client {
    Client { firewall, number: u32::from(number) | 1 << 31, answered: Duration::ZERO }
}

/// A segment of a client, or of the server to it. Numbers are those of a connection without data.
fn segment(client: &Client, flags: u8, forward: bool) -> Vec<u8> {
    const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 1);
    let number = client.number;
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, (number >> 16) as u16, number as u16);
    let ((source, from), (destination, to)) =
        if forward { ((address, 40_000_u16), (SERVER, 443_u16)) } else { ((SERVER, 443), (address, 40_000)) };
    let numbers = match (forward, flags & SYN != 0) {
        (true, true) => (1000, 0),
        (true, false) => (1001, 5001),
        (false, true) => (5000, 1001),
        (false, false) => (5001, 1001_u32),
    };
    let mut frame = Vec::with_capacity(74);
    frame.extend(IN_MAC.iter().chain(&GENERATOR_MAC));
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend(u32::to_be_bytes(numbers.0));
    frame.extend(u32::to_be_bytes(numbers.1));
    frame.extend([0x50, flags, 0xf0, 0, 0, 0, 0, 0]);
    frame
}
