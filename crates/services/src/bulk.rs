//! `bulk`: several packets of the same way behind one steering header; `debulk` takes them apart again.
//!
//! Framing is AGGFRAG (RFC 9347) with whole packets as blocks. What belongs together: the same rest of the segment list, source, and traffic
//! class with ECN. No packet is held longer than the maximum delay, and no aggregate is larger than the path MTU.
//!
//! An aggregate is one packet to routers that spread load by flow labels. So all packets of one way leave with one flow label here, those
//! that travel alone too: they do not overtake the others. `debulk` gives each a label of its flow again.

use crate::deadline::Deadlines;
use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{BuildError, Context, FlowKey, Kind, Metric, Mode, Packet, Service, Steering, Verdict, Worker};
use segue_wire::aggfrag::HEADER_LENGTH;
use segue_wire::ipv6;
use segue_wire::layer::protocol;
use segue_wire::{AggfragRepr, Ipv4Packet, Ipv6Packet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Octets of the smallest packet that has something to say: an IPv4 header and eight octets. With less room an aggregate is full.
const SMALLEST: usize = 28;

/// The kind.
pub struct Bulk;

/// What `bulk` can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// Octets of the largest packet that the path to `debulk` takes, outer header included, 1280 to 65575. If it is not given: the MTU of the
    /// way out. More than that is not used.
    pub path_mtu: Option<u32>,
    /// Milliseconds that a packet is held at most, 1 to 1000.
    pub longest_delay_ms: u16,
    /// Aggregates that are open at a time, each for one way, 1 to 65536.
    pub most_open: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { path_mtu: None, longest_delay_ms: 5, most_open: 1024 }
    }
}

const AGGREGATED: usize = 0;
const AGGREGATES: usize = 1;
const ALONE: usize = 2;
const EVICTED: usize = 3;
const OPEN: usize = 4;

impl Kind for Bulk {
    const NAME: &'static str = "bulk";
    const ABOUT: &'static str = "puts several packets of the same way behind one steering header (AGGFRAG)";
    const METRICS: &'static [Metric] = &[
        Metric::counter("aggregated_packets", "Packets that left in an aggregate"),
        Metric::counter("aggregate_packets", "Aggregates that left"),
        Metric::counter(
            "alone_packets",
            "Inner IP packets that left without an aggregate: too large, or no other came in time",
        ),
        Metric::counter("evicted_aggregates", "Aggregates that left early because too many were open"),
        Metric::gauge("open_aggregates", "Aggregates that are open now"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let at = |key: &str| KeyPath::root().at(key);
        if let Some(mtu) = configuration.path_mtu.filter(|mtu| !(1280..=65_575).contains(mtu)) {
            report.error(&at("path_mtu"), format!("{mtu} octets"), "use 1280 to 65575, or remove the key");
        }
        let delay = configuration.longest_delay_ms;
        if !(1..=1000).contains(&delay) {
            report.error(&at("longest_delay_ms"), format!("{delay} ms"), "use 1 to 1000");
        }
        let open = configuration.most_open;
        if !(1..=65_536).contains(&open) {
            report.error(&at("most_open"), format!("{open} aggregates"), "use 1 to 65536");
        }
    }

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    /// An aggregate is no packet of any flow.
    fn rewrites_flows(_: &Configuration) -> bool {
        true
    }

    fn refuses_labels(_: &Configuration) -> Option<&'static str> {
        Some("needs a header that says that several packets are behind it (AGGFRAG), and labels say nothing")
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Bulker {
            path_mtu: configuration.path_mtu.map_or(usize::MAX, |octets| octets as usize),
            longest_delay: Duration::from_millis(configuration.longest_delay_ms.into()),
            most_open: configuration.most_open as usize,
            numbers: HashMap::new(),
            open: HashMap::new(),
            deadlines: Deadlines::default(),
            next_number: 0,
        }))
    }
}

/// An aggregate that is being filled.
struct Open {
    way: Vec<u8>,
    first: Packet<'static>,
    blocks: Vec<u8>,
    packets: u64,
    hop_limit: u8,
}

struct Bulker {
    path_mtu: usize,
    longest_delay: Duration,
    most_open: usize,
    numbers: HashMap<Vec<u8>, u64>,
    open: HashMap<u64, Open>,
    deadlines: Deadlines,
    next_number: u64,
}

impl Bulker {
    /// Sends an aggregate on; one packet goes on without a frame around it.
    fn close(&mut self, number: u64, context: &mut Context) {
        self.deadlines.clear(number);
        let Some(mut open) = self.open.remove(&number) else { return };
        self.numbers.remove(&open.way);
        set_hop_limit(&mut open.first, open.hop_limit);
        if open.packets == 1 {
            context.count(ALONE, 1);
        } else {
            let mut header = [0; HEADER_LENGTH];
            let framed = AggfragRepr::default().emit(&mut header).is_ok()
                && open.first.replace_inner(protocol::AGGFRAG, &[&header, &open.blocks]).is_ok();
            if !framed {
                // The size was looked at before each block was added.
                context.account_dropped(segue_service::Reason::TooBig, open.packets);
                return;
            }
            context.count(AGGREGATED, open.packets);
            context.count(AGGREGATES, 1);
        }
        context.send(open.first);
        context.account_sent(open.packets);
    }

    fn open_one(&mut self, way: Vec<u8>, packet: &Packet<'_>, context: &mut Context) {
        while self.open.len() >= self.most_open {
            let Some((_, number)) = self.deadlines.first() else { break };
            context.count(EVICTED, 1);
            self.close(number, context);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(way.clone(), number);
        self.deadlines.set(number, context.now() + self.longest_delay);
        let (first, blocks, hop_limit) = (packet.to_owned(), packet.inner().to_vec(), hop_limit(packet));
        self.open.insert(number, Open { way, first, blocks, packets: 1, hop_limit });
    }

    fn add(&mut self, way: Vec<u8>, packet: &Packet<'_>, context: &mut Context) -> Verdict {
        let largest = self.path_mtu.min(context.mtu());
        let header = packet.steering().octets().len() + HEADER_LENGTH;
        if let Some(number) = self.numbers.get(&way).copied()
            && let Some(open) = self.open.get_mut(&number)
        {
            // The first packet's steering header is the one that stays.
            let total = open.first.steering().octets().len() + HEADER_LENGTH + open.blocks.len() + packet.inner().len();
            if total <= largest {
                open.blocks.extend_from_slice(packet.inner());
                open.packets += 1;
                open.hop_limit = open.hop_limit.min(hop_limit(packet));
                if total + SMALLEST > largest {
                    self.close(number, context);
                }
                return Verdict::Taken;
            }
            self.close(number, context);
        }
        if header + packet.inner().len() + SMALLEST > largest {
            context.count(ALONE, 1);
            return Verdict::Onward;
        }
        self.open_one(way, packet, context);
        Verdict::Taken
    }

    fn show(&self, context: &mut Context) {
        context.set(OPEN, self.open.len() as u64);
        if let Some((time, _)) = self.deadlines.first() {
            context.wake_at(time);
        }
    }
}

impl Service for Bulker {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let way = way(packet);
        set_flow_label(packet, label_of(&way));
        let fits = packet.segment_size().is_none() && is_block(packet.inner_protocol(), packet.inner());
        let verdict = if fits {
            self.add(way, packet, context)
        } else {
            // It may be of a flow that has packets in the aggregate: compressed by a service in front, say.
            if let Some(number) = self.numbers.get(&way).copied() {
                self.close(number, context);
            }
            Verdict::Onward
        };
        self.show(context);
        verdict
    }

    fn timer(&mut self, context: &mut Context) {
        let now = context.now();
        while let Some(number) = self.deadlines.take_due(now) {
            self.close(number, context);
        }
        self.show(context);
    }

    fn stop(&mut self, context: &mut Context) {
        while let Some((_, number)) = self.deadlines.first() {
            self.close(number, context);
        }
        self.show(context);
    }
}

/// Whether these octets are a whole IP packet that says how long it is, so that the other side finds its end.
fn is_block(number: u8, inner: &[u8]) -> bool {
    match number {
        protocol::IPV4 => Ipv4Packet::new_checked(inner).is_ok_and(|packet| packet.total_length() == inner.len()),
        protocol::IPV6 => Ipv6Packet::new_checked(inner).is_ok_and(|packet| packet.total_length() == inner.len()),
        _ => false,
    }
}

/// What packets of one aggregate have in common.
fn way(packet: &Packet<'_>) -> Vec<u8> {
    let steering = packet.steering();
    let octets = steering.octets();
    let Steering::Srv6(header) = steering else { return octets.to_vec() };
    let mut way = steering.remaining();
    // Not to be mixed: congestion is told to all packets of an aggregate, and asked of each by its own ECN field.
    way.push(octets.get(1).map_or(0, |octet| octet >> 4 & 3));
    // The first packet's header stands for all: flags of the SRH must be the same, and other extension headers octet by octet.
    match header.srh() {
        Some(srh) if octets.len() == ipv6::HEADER_LENGTH + srh.header_length() => way.push(srh.flags()),
        _ => way.extend_from_slice(octets.get(ipv6::HEADER_LENGTH..).unwrap_or(&[])),
    }
    way
}

fn hop_limit(packet: &Packet<'_>) -> u8 {
    packet.octets().get(7).copied().unwrap_or(0)
}

fn set_hop_limit(packet: &mut Packet<'_>, hop_limit: u8) {
    if let Ok(mut view) = Ipv6Packet::new_checked(packet.octets_mut()) {
        view.set_hop_limit(hop_limit);
    }
}

/// A flow label that follows from `octets`, never 0 (RFC 6437 section 3).
fn label_of(octets: &[u8]) -> u32 {
    // FNV-1a: the same in every process and on every node, so that a restart does not move flows.
    let hash = octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3));
    fold_label(hash)
}

fn fold_label(hash: u64) -> u32 {
    let label = (hash ^ hash >> 20 ^ hash >> 40) as u32 & 0xf_ffff;
    label.max(1)
}

/// A flow label for the flow of an inner packet, never 0.
pub(crate) fn label_of_flow(inner: &[u8]) -> u32 {
    fold_label(FlowKey::of(inner).0)
}

pub(crate) fn set_flow_label(packet: &mut Packet<'_>, label: u32) {
    if let Ok(mut view) = Ipv6Packet::new_checked(packet.octets_mut()) {
        view.set_flow_label(label);
    }
}
