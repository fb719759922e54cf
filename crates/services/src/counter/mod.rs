//! `counter`: packets and octets for each SID, segment list and flow; behind a label, for each stack of labels and flow.
//!
//! It is asynchronous: it gets copies, and no packet waits for it. SIDs are counted exactly, up to a bound; of segment lists and flows, those with
//! the most octets are remembered by sketches, each with how much of its count may be another's.

pub mod ipfix;
pub mod sketch;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{
    BuildError, Context, Kind, Metric, Mode, Packet, Sampling, Service, Srv6, Steering, Time, Verdict, Worker,
};
use segue_wire::FiveTuple;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ipfix::{Delta, Encoder, Exporter, Interval, Record};
use sketch::{Entry, Sketch};

/// The kind.
pub struct Counter;

/// What an operator writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// Octets of each packet that are copied, from the outer header on, 128 to 65,575. Flows are told apart by headers; what is
    /// counted is the length on the wire.
    pub snap_length: u32,
    /// One packet in so many is copied, 1 to 1,000,000. Counts are of the packets that were copied.
    pub one_in: u32,
    /// Flows that are remembered, 1 to 1,000,000.
    pub flows: u32,
    /// Segment lists that are remembered, or stacks of labels, 1 to 100,000.
    pub segment_lists: u32,
    /// SIDs that are counted, 1 to 100,000; packets to more are counted together.
    pub sids: u32,
    /// Flows and segment lists that are reported, at most those that are remembered.
    pub top: u32,
    /// Where counts are sent as IPFIX; nowhere if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipfix: Option<Ipfix>,
}

/// IPFIX by UDP (RFC 7011).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ipfix {
    /// Address and port of the collector, such as `[2001:db8::1]:4739`. It must be reachable from the service's network namespace.
    pub collector: SocketAddr,
    /// Seconds between two exports, 1 to 3600.
    #[serde(default = "interval")]
    pub interval_s: u32,
    /// Observation domain: tells exporters of one host apart.
    #[serde(default)]
    pub domain: u32,
    /// Octets of a message at most, 512 to 65,507: with headers no more than the path to the collector takes.
    #[serde(default = "largest_message")]
    pub largest_message: u32,
}

fn interval() -> u32 {
    60
}

/// What any path takes (RFC 7011 section 10.3.3).
fn largest_message() -> u32 {
    512
}

impl Default for Configuration {
    fn default() -> Self {
        Self { snap_length: 256, one_in: 1, flows: 4096, segment_lists: 256, sids: 1024, top: 20, ipfix: None }
    }
}

const UNKNOWN_SIDS: usize = 0;
const FORGOTTEN_FLOWS: usize = 1;
const NO_FLOW: usize = 2;
const EXPORTED: usize = 3;
const NOT_EXPORTED: usize = 4;

impl Kind for Counter {
    const NAME: &'static str = "counter";
    const ABOUT: &'static str = "counts packets and octets for each SID, segment list and flow, on copies";
    const METRICS: &'static [Metric] = &[
        Metric::counter("uncounted_sid_packets", "packets to SIDs above the bound `sids`"),
        Metric::gauge("forgotten_flows", "flows whose place was given to another one"),
        Metric::counter("without_flow_packets", "packets with no IP packet behind the steering header"),
        Metric::counter("ipfix_messages", "IPFIX messages that were sent"),
        Metric::counter(
            "ipfix_failed_messages",
            "IPFIX messages that could not be sent: their counts come with no other",
        ),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let bounds = [
            ("snap_length", configuration.snap_length, 128, 65_575),
            ("one_in", configuration.one_in, 1, 1_000_000),
            ("flows", configuration.flows, 1, 1_000_000),
            ("segment_lists", configuration.segment_lists, 1, 100_000),
            ("sids", configuration.sids, 1, 100_000),
            ("top", configuration.top, 1, 1_000_000),
        ];
        let of_ipfix = configuration.ipfix.iter().flat_map(|ipfix| {
            [("interval_s", ipfix.interval_s, 1, 3600), ("largest_message", ipfix.largest_message, 512, 65_507)]
        });
        let root = KeyPath::root();
        let all = bounds.into_iter().map(|bound| (root.clone(), bound));
        for (place, (key, value, least, most)) in all.chain(of_ipfix.map(|bound| (root.at("ipfix"), bound))) {
            if !(least..=most).contains(&value) {
                let key = place.at(key);
                report.error(
                    &key,
                    format!("{value} is not possible"),
                    format!("write a number from {least} to {most}"),
                );
            }
        }
    }

    fn mode(_: &Configuration) -> Mode {
        Mode::Asynchronous
    }

    fn sampling(configuration: &Configuration) -> Sampling {
        Sampling { snap_length: Some(configuration.snap_length), one_in: configuration.one_in }
    }

    fn many_workers(_: &Configuration) -> bool {
        false
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Counts {
            sids: HashMap::new(),
            lists: Sketch::new(configuration.segment_lists as usize),
            flows: Sketch::new(configuration.flows as usize),
            export: configuration.ipfix.as_ref().map(|ipfix| Export::new(ipfix, configuration.one_in)),
            configuration: configuration.clone(),
        }))
    }
}

/// Segments of a list that are told apart: as many as the data plane takes.
const SEGMENTS: usize = 10;
/// The same of labels.
const LABELS: usize = 32;
/// No label.
const NONE: u32 = u32::MAX;

/// What leads packets, in the order of visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum List {
    /// A segment list; unspecified addresses behind its end.
    Segments([Ipv6Addr; SEGMENTS]),
    /// A stack of labels without those of entropy; [`NONE`] behind its end.
    Labels([u32; LABELS]),
}

impl List {
    fn of(steering: &Steering<'_>) -> Self {
        match steering {
            Steering::Srv6(header) => Self::Segments(segments(header)),
            Steering::SrMpls(labels) => {
                let mut list = [NONE; LABELS];
                for (place, entry) in list.iter_mut().zip(labels.path()) {
                    *place = entry.label;
                }
                Self::Labels(list)
            }
            _ => Self::Labels([NONE; LABELS]),
        }
    }

    fn record(&self, delta: Delta) -> Record {
        match self {
            Self::Segments(list) => Record::List(visited(list), delta),
            Self::Labels(list) => Record::Stack(stack(list), delta),
        }
    }

    fn report(&self, of: &Entry<Self>) -> Value {
        let (packets, octets, error) = (of.seen, of.weight, of.error);
        match self {
            Self::Segments(list) => {
                json!({ "segments": visited(list), "packets": packets, "octets": octets, "error_octets": error })
            }
            Self::Labels(list) => {
                json!({ "labels": stack(list), "packets": packets, "octets": octets, "error_octets": error })
            }
        }
    }
}

#[derive(Default)]
struct Sum {
    packets: u64,
    octets: u64,
    /// Of these, what was exported.
    told: Delta,
}

/// What was exported of the keys of a sketch: since when they are remembered, and how much.
type Told<K> = HashMap<K, (u64, Delta)>;

/// What has to be remembered between two exports.
struct Export {
    exporter: Exporter,
    interval: Duration,
    /// When the interval began, milliseconds since 1970.
    begun: u64,
    /// When it ends.
    due: Option<Time>,
    flows: Told<FiveTuple>,
    lists: Told<List>,
}

impl Export {
    fn new(ipfix: &Ipfix, one_in: u32) -> Self {
        let encoder = Encoder::new(ipfix.domain, ipfix.largest_message as usize, one_in);
        Self {
            exporter: Exporter::new(encoder, ipfix.collector),
            interval: Duration::from_secs(ipfix.interval_s.into()),
            begun: milliseconds(),
            due: None,
            flows: HashMap::new(),
            lists: HashMap::new(),
        }
    }
}

/// Since 1970, by the clock on the wall: collectors compare it with that of others.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What has come since the last export of each key.
fn fresh<K: Copy + Eq + Hash>(sketch: &Sketch<K>, told: &mut Told<K>) -> Vec<(K, Delta)> {
    let (mut found, mut now) = (Vec::new(), HashMap::new());
    for entry in sketch.entries() {
        // What may be another's is exported with that one.
        let whole = Delta { octets: entry.weight - entry.error, packets: entry.seen };
        let before = told.get(&entry.key).filter(|(since, _)| *since == entry.since).map(|(_, delta)| *delta);
        let delta = whole.minus(before.unwrap_or_default());
        if delta.packets > 0 {
            found.push((entry.key, delta));
        }
        now.insert(entry.key, (entry.since, whole));
    }
    *told = now;
    found
}

struct Counts {
    configuration: Configuration,
    sids: HashMap<Ipv6Addr, Sum>,
    lists: Sketch<List>,
    flows: Sketch<FiveTuple>,
    export: Option<Export>,
}

impl Counts {
    fn export(&mut self, context: &mut Context) {
        let Some(export) = &mut self.export else { return };
        let mut records = Vec::new();
        for (sid, sum) in &mut self.sids {
            let whole = Delta { octets: sum.octets, packets: sum.packets };
            let delta = whole.minus(std::mem::replace(&mut sum.told, whole));
            if delta.packets > 0 {
                records.push(Record::Sid(*sid, delta));
            }
        }
        let lists = fresh(&self.lists, &mut export.lists);
        records.extend(lists.into_iter().map(|(list, delta)| list.record(delta)));
        let flows = fresh(&self.flows, &mut export.flows);
        records.extend(flows.into_iter().map(|(tuple, delta)| Record::Flow(tuple, delta)));
        let interval = Interval { start: export.begun, end: milliseconds() };
        let (sent, failed) = export.exporter.export(&records, interval);
        context.count(EXPORTED, sent);
        context.count(NOT_EXPORTED, failed);
        export.begun = interval.end;
    }
}

fn visited(list: &[Ipv6Addr; SEGMENTS]) -> Vec<Ipv6Addr> {
    list.iter().copied().take_while(|segment| !segment.is_unspecified()).collect()
}

fn stack(list: &[u32; LABELS]) -> Vec<u32> {
    list.iter().copied().take_while(|label| *label != NONE).collect()
}

impl Service for Counts {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let octets = packet.wire_length() as u64;
        let steering = packet.steering();
        if let Some(sid) = steering.active() {
            let known = self.sids.len();
            match self.sids.get_mut(&sid) {
                Some(sum) => sum.add(octets),
                None if known < self.configuration.sids as usize => self.sids.entry(sid).or_default().add(octets),
                None => context.count(UNKNOWN_SIDS, 1),
            }
        }
        self.lists.add(List::of(&steering), octets);
        // By what is inside only: addresses of the outer header are SIDs.
        match packet.inner_five_tuple() {
            Some(tuple) => self.flows.add(tuple, octets),
            None => context.count(NO_FLOW, 1),
        }
        context.set(FORGOTTEN_FLOWS, self.flows.forgotten());
        // From the first packet on.
        if let Some(export) = self.export.as_mut().filter(|export| export.due.is_none()) {
            let due = context.now() + export.interval;
            export.due = Some(due);
            context.wake_at(due);
        }
        Verdict::Onward
    }

    fn timer(&mut self, context: &mut Context) {
        self.export(context);
        if let Some(export) = &mut self.export {
            let due = context.now() + export.interval;
            export.due = Some(due);
            context.wake_at(due);
        }
    }

    /// What is counted goes; it is told first.
    fn stop(&mut self, context: &mut Context) {
        self.export(context);
    }

    fn report(&self) -> Value {
        let mut sids: Vec<_> = self.sids.iter().collect();
        sids.sort_by_key(|(sid, sum)| (std::cmp::Reverse(sum.octets), **sid));
        let sids = sids.iter().map(|(sid, sum)| json!({ "sid": sid, "packets": sum.packets, "octets": sum.octets }));
        let top = self.configuration.top as usize;
        let lists = self.lists.top(top).into_iter().map(|entry| entry.key.report(&entry));
        let flows = self.flows.top(top).into_iter().map(|entry| {
            let FiveTuple { source, destination, protocol, ports } = entry.key;
            json!({
                "source": source, "destination": destination, "protocol": protocol,
                "source_port": ports.map(|ports| ports.0), "destination_port": ports.map(|ports| ports.1),
                "packets": entry.seen, "octets": entry.weight, "error_octets": entry.error,
            })
        });
        json!({
            "one_in": self.configuration.one_in,
            "sids": sids.collect::<Vec<_>>(),
            "segment_lists": lists.collect::<Vec<_>>(),
            "flows": flows.collect::<Vec<_>>(),
        })
    }
}

impl Sum {
    fn add(&mut self, octets: u64) {
        self.packets += 1;
        self.octets += octets;
    }
}

fn segments(header: &Srv6<'_>) -> [Ipv6Addr; SEGMENTS] {
    let mut list = [Ipv6Addr::UNSPECIFIED; SEGMENTS];
    let of_srh = header.srh();
    let visited = of_srh.iter().flat_map(|srh| srh.segments_in_traversal_order());
    // A reduced list lacks the active segment.
    let reduced = of_srh.as_ref().is_none_or(|srh| srh.is_reduced_at_first_segment());
    let first = reduced.then(|| header.destination());
    for (place, segment) in list.iter_mut().zip(first.into_iter().chain(visited)) {
        *place = segment;
    }
    list
}
