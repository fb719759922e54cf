//! What the data plane would do with one packet, said without sending it: from the map entries that it runs on, the rules that it was compiled
//! from, and the kernel's answers to the questions that it would ask.
//!
//! It is the twin of `bpf/lib`, function by function, for a packet by itself: which comparison comes first decides the outcome, so the order is
//! the same. `crates/simulation/tests/agrees` sends thousands of packets, whole and broken, through both and compares outcome,
//! octets and what was counted.
//!
//! What it cannot know it says: [`End::certain`] is false where the outcome depends on what packets before this one left behind (connections, limits,
//! what proxies remember) or on somebody else (a function).
#![forbid(unsafe_code)]

mod access;
mod binding;
mod core;
mod endpoint;
mod firewall;
mod flow;
mod function;
mod headers;
mod inner;
mod label;
mod label_ecn;
mod label_end;
mod label_function;
pub mod octets;
mod pseudowire;
mod push;
mod stack;
mod udp;
mod way;
mod wrap;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{Compiled, CompiledPort, CompiledSid, FibAnswer, FibQuestion, FibVerdict, Interfaces, PathMtu};
use segue_model::node::NodeState;

pub use function::Visit;

/// Stages that a packet may meet: the kernel's limit of tail calls (MAX_TAIL_CALL_CNT).
const STAGES_MAX: u32 = 33;

/// What is asked of the node's kernel.
pub trait Kernel {
    /// What `bpf_fib_lookup()` says on this node.
    fn fib(&mut self, question: &FibQuestion) -> FibAnswer;
}

/// The node as the data plane has it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Its map entries.
    pub compiled: &'a Compiled,
    /// What they were compiled from.
    pub state: &'a NodeState,
    /// The interfaces that they were compiled for.
    pub interfaces: &'a Interfaces,
    /// SIDs whose functions are down.
    pub down: &'a BTreeSet<Ipv6Net>,
    /// Paths that are known to be narrow.
    pub path_mtus: &'a [PathMtu],
}

/// A packet that comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The frame, from its Ethernet header on.
    pub frame: Vec<u8>,
    /// By a service port: the SID that gave it to the function, or the key of the label ([`segue_model::service_label`]), and which has its steering
    /// header by heart; the frame is then the packet with its steering header, as it came to that SID or label.
    pub remembered: Option<Ipv6Net>,
}

/// What was looked at on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `port`, `firewall`, `steering`, `policy`, `sid`, `label`, `function`, `route`.
    pub what: &'static str,
    /// Name of the port, firewall, rule, policy, or the SID or label.
    pub name: String,
    /// What was found, in words.
    pub detail: String,
    /// Rows of `counters` that would count.
    pub counters: Vec<u32>,
}

/// How a packet ends on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The outcome that it is counted in.
    pub outcome: Outcome,
    /// Why, where the outcome's own text does not say it.
    pub reason: String,
    /// Whether nothing else than this packet decides.
    pub certain: bool,
    /// The interface that it leaves by.
    pub egress: Option<Egress>,
    /// The function that it is given to.
    pub visit: Option<Visit>,
}

/// The way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// Number of the interface.
    pub ifindex: u32,
    /// The neighbour there, where a route led to it.
    pub next_hop: Option<IpAddr>,
}

/// A packet's whole way through the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulated {
    /// What was looked at, in order.
    pub steps: Vec<Step>,
    /// How it ended.
    pub end: End,
    /// The frame afterwards: as it leaves, or is given to the kernel; as it came if it is dropped.
    pub frame: Vec<u8>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
    /// The kernel got it: what it does with it.
    pub by_kernel: Option<ByKernel>,
}

/// What the kernel does with a packet that is given to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByKernel {
    /// It is for the node itself.
    Own,
    /// It forwards it there; the frame as it leaves, but for its Ethernet header.
    Forwards(Egress, Vec<u8>),
    /// It does not.
    No(String),
}

/// There is no such port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no port {0}; see `segue get ports`")]
pub struct NoPort(pub String);

/// Says what becomes of a packet that comes in by a port.
///
/// # Errors
/// [`NoPort`].
pub fn simulate(view: View<'_>, kernel: &mut dyn Kernel, port: &str, arrival: &Arrival) -> Result<Simulated, NoPort> {
    let port = view.compiled.port(port).ok_or_else(|| NoPort(port.to_owned()))?;
    let mut packet = Packet {
        view,
        kernel,
        port,
        frame: arrival.frame.clone(),
        again: false,
        stages: 0,
        filtered: false,
        steps: Vec::new(),
        assumed: Vec::new(),
    };
    let mut end = *packet.arrive(arrival.remembered);
    end.certain &= packet.assumed.is_empty();
    let by_kernel = (end.outcome.kind() == abi::OutcomeKind::Passed).then(|| packet.kernel_does(end.outcome));
    let mut simulated = Simulated { steps: packet.steps, end, frame: packet.frame, assumed: packet.assumed, by_kernel };
    if simulated.end.outcome.kind() == abi::OutcomeKind::Dropped {
        simulated.frame.clone_from(&arrival.frame);
    }
    Ok(simulated)
}

/// A part of a packet's way: something is found, or the packet ends.
type Found<T> = Result<T, Box<End>>;

/// The packet in hand.
struct Packet<'a, 'k> {
    view: View<'a>,
    kernel: &'k mut dyn Kernel,
    port: &'a CompiledPort,
    frame: Vec<u8>,
    /// `packet_recirculated()`.
    again: bool,
    stages: u32,
    /// The port's firewall has let it pass.
    filtered: bool,
    steps: Vec<Step>,
    assumed: Vec<String>,
}

/// The packet ends with this outcome.
fn ended(outcome: Outcome) -> Box<End> {
    because(outcome, String::new())
}

/// The same, with more to say.
fn because(outcome: Outcome, reason: impl Into<String>) -> Box<End> {
    Box::new(End { outcome, reason: reason.into(), certain: true, egress: None, visit: None })
}

impl<'a> Packet<'a, '_> {
    fn config(&self) -> &'a abi::Config {
        &self.view.compiled.config
    }

    fn note(&mut self, what: &'static str, name: impl Into<String>, detail: impl Into<String>, counters: &[u32]) {
        let counters = counters.iter().copied().filter(|row| *row != 0 && *row != abi::SEGUE_NONE).collect();
        self.steps.push(Step { what, name: name.into(), detail: detail.into(), counters });
    }

    fn assume(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.assumed.contains(&what) {
            self.assumed.push(what);
        }
    }

    /// A tail call.
    fn stage(&mut self) -> Found<()> {
        self.stages += 1;
        if self.stages > STAGES_MAX { Err(ended(Outcome::DropRecirculation)) } else { Ok(()) }
    }

    /// The way of a packet from its port on.
    fn arrive(&mut self, remembered: Option<Ipv6Net>) -> Box<End> {
        match self.by_role(remembered) {
            Ok(end) | Err(end) => end,
        }
    }

    fn by_role(&mut self, remembered: Option<Ipv6Net>) -> Found<Box<End>> {
        let entry = &self.port.entry;
        let role = u32::from(entry.role);
        let name = match role {
            abi::SEGUE_ROLE_CORE => "core",
            abi::SEGUE_ROLE_ACCESS => "access",
            _ => "service",
        };
        let port = self.port.name.clone();
        self.note("port", port, format!("{name} port"), &[]);
        if entry.firewall != 0 && !self.filtered {
            self.firewall_port()?;
            self.filtered = true;
        }
        match role {
            abi::SEGUE_ROLE_CORE => Ok(self.core_port()),
            abi::SEGUE_ROLE_ACCESS => self.access_port(),
            _ => self.service_port(remembered),
        }
    }

    /// What the kernel does with what it got. Its netfilter rules are not looked at.
    fn kernel_does(&mut self, outcome: Outcome) -> ByKernel {
        use octets::{ETHERNET, half, ipv4, ipv6, lower_hops, number, octet};
        let is_ipv4 = half(&self.frame, 12) == number::TYPE_IPV4;
        let destination: IpAddr = match half(&self.frame, 12) {
            number::TYPE_IPV4 => ipv4(&self.frame, ETHERNET + 16).into(),
            number::TYPE_IPV6 => ipv6(&self.frame, ETHERNET + 24).into(),
            number::TYPE_MPLS => {
                self.assume("the kernel forwards no labels");
                return ByKernel::No("labels are the business of its own MPLS router".to_owned());
            }
            _ => return ByKernel::Own,
        };
        match outcome {
            Outcome::PassedUpperLayer => return ByKernel::Own,
            Outcome::PassedOtherHost => return ByKernel::No("it is for another link-layer address".to_owned()),
            Outcome::PassedHmac => return ByKernel::No("whether its HMAC is right is the kernel's to say".to_owned()),
            _ => {}
        }
        let mut own = self.view.interfaces.0.values().flat_map(|interface| &interface.addresses);
        if destination.is_multicast() || own.any(|address| address.addr() == destination) {
            return ByKernel::Own;
        }
        let hops = octet(&self.frame, if is_ipv4 { ETHERNET + 8 } else { ETHERNET + 7 });
        if hops <= 1 {
            return ByKernel::No("its hop limit is at its end".to_owned());
        }
        let source = if is_ipv4 { Ipv6Addr::UNSPECIFIED } else { ipv6(&self.frame, ETHERNET + 8) };
        let ifindex = self.port.entry.ifindex;
        let question = FibQuestion { source, destination, bucket: 0, ifindex, is_output: false, table: 0 };
        let answer = self.kernel.fib(&question);
        match answer.verdict {
            FibVerdict::Link | FibVerdict::NoNeighbour => {
                let length = self.frame.len() - ETHERNET;
                if answer.mtu != 0 && length > answer.mtu as usize {
                    return ByKernel::No(format!("{length} octets where {} fit", answer.mtu));
                }
                let mut frame = self.frame.clone();
                lower_hops(&mut frame, ETHERNET, is_ipv4);
                if answer.verdict == FibVerdict::NoNeighbour {
                    self.assume(format!("{} answers when the kernel asks for it", answer.next_hop));
                    octets::put(&mut frame, 0, &[0; 6]);
                } else {
                    octets::put(&mut frame, 0, &answer.destination_mac);
                }
                octets::put(&mut frame, 6, &answer.source_mac);
                ByKernel::Forwards(Egress { ifindex: answer.ifindex, next_hop: Some(answer.next_hop) }, frame)
            }
            FibVerdict::Blackhole => ByKernel::No("its route says blackhole or prohibit".to_owned()),
            FibVerdict::Unreachable => ByKernel::No("its route says unreachable".to_owned()),
            FibVerdict::Kernel(text) => ByKernel::No(text.to_owned()),
        }
    }

    /// The local SID that covers an address.
    fn sid(&self, address: Ipv6Addr) -> Option<&'a CompiledSid> {
        self.sids().filter(|sid| sid.prefix.contains(&address)).max_by_key(|sid| sid.prefix.prefix_len())
    }

    /// The SIDs that addresses lead to: those of labels with functions have keys that nobody looks up, and addresses that take labels in UDP
    /// are none.
    fn sids(&self) -> impl Iterator<Item = &'a CompiledSid> + use<'a> {
        self.view.compiled.sids.iter().filter(|sid| {
            let is_sid = u32::from(sid.entry.behaviour) != abi::SEGUE_UDP_ENDPOINT;
            is_sid && u32::from(sid.entry.kind) == abi::SEGUE_HEADER_SRV6
        })
    }

    fn in_sid_block(&self, address: Ipv6Addr) -> bool {
        let config = self.config();
        within(&config.sid_blocks, config.sid_blocks_count, address)
    }

    fn in_infrastructure(&self, address: Ipv6Addr) -> bool {
        let config = self.config();
        within(&config.infrastructure_prefixes, config.infrastructure_prefixes_count, address)
    }

    /// `frame_foreign()`.
    fn is_foreign(&self) -> bool {
        self.frame.get(..6) != Some(&self.port.entry.mac[..])
    }

    /// `frame_to_group()`.
    fn is_to_group(&self) -> bool {
        octets::octet(&self.frame, 0) & 1 != 0
    }

    /// `priority_tag_remove()`. True: one is off.
    fn remove_priority_tag(&mut self) -> bool {
        let is_tag = octets::number::TYPE_TAG.contains(&octets::half(&self.frame, 12));
        let there = self.frame.len() >= octets::ETHERNET + 4 && is_tag && octets::half(&self.frame, 14) & 0x0fff == 0;
        if there {
            self.frame.drain(12..16);
        }
        there
    }
}

/// `in_prefixes()`.
fn within(prefixes: &[abi::Prefix], count: u32, address: Ipv6Addr) -> bool {
    let octets = address.octets();
    let words = [octets::double(&octets, 0), octets::double(&octets, 8)];
    let prefixes = prefixes.iter().take(count as usize);
    prefixes.into_iter().any(|prefix| (0..2).all(|word| words[word] & prefix.mask[word] == prefix.address[word]))
}
