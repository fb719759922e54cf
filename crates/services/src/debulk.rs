//! `debulk`: takes apart what `bulk` has put together.
//!
//! Each whole block leaves behind a copy of the aggregate's steering header. What is no whole block is counted; the others are delivered all
//! the same (RFC 9347 section 2.2).

use crate::bulk::{label_of_flow, set_flow_label};
use schemars::JsonSchema;
use segue_service::{BuildError, Context, Kind, Metric, Mode, Packet, Reason, Service, Spread, Verdict, Worker};
use segue_wire::Aggfrag;
use segue_wire::aggfrag::Block;
use segue_wire::layer::protocol;
use serde::{Deserialize, Serialize};

/// The kind.
pub struct Debulk;

/// `debulk` has no options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {}

const AGGREGATES: usize = 0;
const BLOCKS: usize = 1;
const CUT: usize = 2;
const MALFORMED: usize = 3;
const NOT_AGGREGATED: usize = 4;

impl Kind for Debulk {
    const NAME: &'static str = "debulk";
    const ABOUT: &'static str = "takes apart the aggregates that bulk has made (AGGFRAG)";
    const METRICS: &'static [Metric] = &[
        Metric::counter("aggregate_packets", "Aggregates that were taken apart"),
        Metric::counter("delivered_packets", "Whole packets that left out of aggregates"),
        Metric::counter("cut_blocks", "Blocks of which the beginning or the end was not in the aggregate"),
        Metric::counter(
            "malformed_blocks",
            "What begins like no packet; nothing behind it in its aggregate can be found",
        ),
        Metric::counter("not_aggregated_packets", "Packets that were no aggregates and went on"),
    ];

    type Configuration = Configuration;

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    /// Aggregates and packets that travelled alone: `bulk` gives all of a way one flow label.
    fn spread(_: &Configuration) -> Spread {
        Spread::Way
    }

    /// What was in an aggregate has flows of its own.
    fn rewrites_flows(_: &Configuration) -> bool {
        true
    }

    fn refuses_labels(_: &Configuration) -> Option<&'static str> {
        Some("needs a header that says that several packets are behind it (AGGFRAG), and labels say nothing")
    }

    fn build(_: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Debulker))
    }
}

struct Debulker;

impl Service for Debulker {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        match packet.inner_protocol() {
            protocol::AGGFRAG => take_apart(packet, context),
            number => {
                context.count(NOT_AGGREGATED, 1);
                // As those out of aggregates get: flows keep their order.
                if matches!(number, protocol::IPV4 | protocol::IPV6) {
                    let label = label_of_flow(packet.inner());
                    set_flow_label(packet, label);
                }
                Verdict::Onward
            }
        }
    }
}

fn take_apart(packet: &Packet<'_>, context: &mut Context) -> Verdict {
    let Ok(aggregate) = Aggfrag::new_checked(packet.inner()) else {
        return Verdict::Drop(Reason::CorruptAggregate);
    };
    let (mut delivered, mut faults) = (0, 0);
    for block in aggregate.blocks() {
        let (number, octets) = match block {
            Block::Ipv4(octets) => (protocol::IPV4, octets),
            Block::Ipv6(octets) => (protocol::IPV6, octets),
            Block::Pad(_) => continue,
            Block::Continuation(_) | Block::Cut(_) => {
                faults += 1;
                context.count(CUT, 1);
                continue;
            }
            Block::Malformed(_) => {
                faults += 1;
                context.count(MALFORMED, 1);
                continue;
            }
        };
        // Smaller than the aggregate, so it fits.
        if let Ok(mut own) = packet.behind_the_same(number, &[octets]) {
            set_flow_label(&mut own, label_of_flow(octets));
            context.send(own);
            delivered += 1;
        }
    }
    if delivered == 0 && faults > 0 {
        return Verdict::Drop(Reason::CorruptAggregate);
    }
    context.count(AGGREGATES, 1);
    context.count(BLOCKS, delivered);
    // All that it was has left; an aggregate of nothing but padding was nothing else.
    context.account_sent(1);
    Verdict::Taken
}
