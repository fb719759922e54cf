//! `counter`: packets and octets for each SID, segment list and flow.
//!
//! It is asynchronous: it gets copies, and no packet waits for it. SIDs are counted exactly, up to a bound; of segment lists and flows, those with
//! the most octets are remembered by sketches, each with how much of its count may be another's.

pub mod sketch;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{
    BuildError, Context, Kind, Metric, Mode, Packet, Sampling, Service, Steering, Verdict, Worker, five_tuple,
};
use segue_wire::FiveTuple;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use sketch::Sketch;

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
    /// Segment lists that are remembered, 1 to 100,000.
    pub segment_lists: u32,
    /// SIDs that are counted, 1 to 100,000; packets to more are counted together.
    pub sids: u32,
    /// Flows and segment lists that are reported, at most those that are remembered.
    pub top: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { snap_length: 256, one_in: 1, flows: 4096, segment_lists: 256, sids: 1024, top: 20 }
    }
}

const UNKNOWN_SIDS: usize = 0;
const FORGOTTEN_FLOWS: usize = 1;
const NO_FLOW: usize = 2;

impl Kind for Counter {
    const NAME: &'static str = "counter";
    const ABOUT: &'static str = "counts packets and octets for each SID, segment list and flow, on copies";
    const METRICS: &'static [Metric] = &[
        Metric::counter("uncounted_sid_packets", "packets to SIDs above the bound `sids`"),
        Metric::gauge("forgotten_flows", "flows whose place was given to another one"),
        Metric::counter("without_flow_packets", "packets with no IP packet behind the steering header"),
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
        for (key, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                let key = KeyPath::root().at(key);
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
            configuration: configuration.clone(),
        }))
    }
}

/// Segments of a list that are told apart: as many as the data plane takes.
const SEGMENTS: usize = 10;

/// A segment list in the order of visits; unspecified addresses behind its end.
type List = [Ipv6Addr; SEGMENTS];

#[derive(Default)]
struct Sum {
    packets: u64,
    octets: u64,
}

struct Counts {
    configuration: Configuration,
    sids: HashMap<Ipv6Addr, Sum>,
    lists: Sketch<List>,
    flows: Sketch<FiveTuple>,
}

impl Service for Counts {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let octets = packet.wire_length() as u64;
        let steering = packet.steering();
        let known = self.sids.len();
        match self.sids.get_mut(&steering.active()) {
            Some(sum) => sum.add(octets),
            None if known < self.configuration.sids as usize => {
                self.sids.entry(steering.active()).or_default().add(octets);
            }
            None => context.count(UNKNOWN_SIDS, 1),
        }
        self.lists.add(segments(&steering), octets);
        // By what is inside only: addresses of the outer header are SIDs.
        match five_tuple(packet.octets()).filter(|tuple| tuple.source != outer(&steering)) {
            Some(tuple) => self.flows.add(tuple, octets),
            None => context.count(NO_FLOW, 1),
        }
        context.set(FORGOTTEN_FLOWS, self.flows.forgotten());
        Verdict::Onward
    }

    fn report(&self) -> Value {
        let mut sids: Vec<_> = self.sids.iter().collect();
        sids.sort_by_key(|(sid, sum)| (std::cmp::Reverse(sum.octets), **sid));
        let sids = sids.iter().map(|(sid, sum)| json!({ "sid": sid, "packets": sum.packets, "octets": sum.octets }));
        let top = self.configuration.top as usize;
        let lists = self.lists.top(top).into_iter().map(|entry| {
            let segments: Vec<_> = entry.key.iter().take_while(|segment| !segment.is_unspecified()).collect();
            json!({ "segments": segments, "packets": entry.seen, "octets": entry.weight, "error_octets": entry.error })
        });
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

fn outer(steering: &Steering<'_>) -> IpAddr {
    match steering {
        Steering::Srv6(header) => header.source().into(),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

fn segments(steering: &Steering<'_>) -> List {
    let mut list = [Ipv6Addr::UNSPECIFIED; SEGMENTS];
    if let Steering::Srv6(header) = steering {
        let of_srh = header.srh();
        let visited = of_srh.iter().flat_map(|srh| srh.segments_in_traversal_order());
        // A reduced list lacks the active segment.
        let reduced = of_srh.as_ref().is_none_or(|srh| srh.is_reduced_at_first_segment());
        let first = reduced.then(|| header.destination());
        for (place, segment) in list.iter_mut().zip(first.into_iter().chain(visited)) {
            *place = segment;
        }
    }
    list
}
