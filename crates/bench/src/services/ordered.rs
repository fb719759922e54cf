//! `tcp-bulk` by itself, on flows whose segments come in order and without PSH: whether it merges all that can be. Of a connection of Linux that cannot be
//! seen: it sets PSH in the last segment of all that TCP gives to the device at once, and that ends an aggregate, as it does in GRO.

use std::time::Duration;

use segue_service::driver::srv6;
use segue_wire::layer::protocol;
use segue_wire::{Ipv6Repr, PacketBuilder, TcpRepr, tcp::control};
use serde_json::json;

use super::pass::{Manner, Passed, pass};
use super::{Extent, Tell};
use crate::contest::target;
use crate::error::{Error, Result};
use crate::figure::{Figure, exactly};
use crate::stats::Summary;
use crate::topology::{INNER_DESTINATION, INNER_SOURCE};

/// Octets of payload of a segment, as in the thesis's runs.
const PAYLOAD: usize = 1328;
/// Between two segments on the service's clock: 10 Gbit/s or so.
const GAP: Duration = Duration::from_micros(1);
/// Milliseconds that a segment is held at most.
const DELAY: u32 = 20;
const WANTED: f64 = 0.98;
const BUFFERS: [usize; 7] = [3000, 4000, 5000, 6000, 7000, 8000, 9000];
/// Flows and threads.
const SHAPES: [(&str, u16, usize); 4] =
    [("1 flow", 1, 1), ("8 flows", 8, 1), ("1 flow, 2 threads", 1, 2), ("8 flows, 2 threads", 8, 2)];

/// So many segments, those of `flows` connections in turn.
fn segments(flows: u16, count: usize) -> Vec<Vec<u8>> {
    let segment = |number: usize| {
        let flow = (number % usize::from(flows)) as u16;
        let sequence = (number / usize::from(flows) * PAYLOAD) as u32;
        let addresses = Ipv6Repr { next_header: protocol::TCP, ..Ipv6Repr::new(INNER_SOURCE, INNER_DESTINATION) };
        let header = TcpRepr {
            sequence_number: sequence,
            acknowledgment_number: 1,
            window: 512,
            ..TcpRepr::new(40_000 + flow, 80, control::ACK)
        };
        srv6(&PacketBuilder::new().ipv6(addresses).tcp(header).payload(&[0x5a; PAYLOAD]).build())
    };
    (0..count).map(segment).collect()
}

/// Of a hundred packets, how many can be gone: whole segments in a packet of so many octets.
fn bound(buffer: usize, packet: usize) -> f64 {
    let segments = (buffer.saturating_sub(packet - PAYLOAD) / PAYLOAD).max(1);
    100.0 * (1.0 - 1.0 / segments as f64)
}

/// Measures it.
///
/// # Errors
/// If the service does not account for all segments.
pub fn run(extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if !extent.wants("tcp-bulk/ordered-gone") && !extent.wants("tcp-bulk/ordered-rate") {
        return Ok(());
    }
    let kind = segue_services::find("tcp-bulk").ok_or_else(|| Error::Usage("there is no service tcp-bulk".into()))?;
    let buffers = extent.some(&BUFFERS);
    let names: Vec<_> = buffers.iter().map(usize::to_string).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let title = "tcp-bulk by itself, segments in order, without PSH";
    let over = "octets of the largest packet";
    let mut gone = Figure::new("tcp-bulk/ordered-gone", title, over, &names, "% of packets that are gone");
    let mut rate = Figure::new("tcp-bulk/ordered-rate", title, over, &names, "million segments/s");
    let mut least = f64::INFINITY;
    for (name, flows, workers) in SHAPES {
        let packets = segments(flows, (extent.volume / PAYLOAD).max(4000));
        let length = packets.first().map_or(0, Vec::len);
        let (mut shares, mut rates) = (Vec::new(), Vec::new());
        for buffer in buffers {
            let config = json!({"largest": buffer, "longest_delay_ms": DELAY}).to_string();
            let service = kind.prepare(&config, "tcp-bulk").map_err(|errors| Error::Usage(errors.to_string()))?;
            let manner = Manner { workers, keep: false, gap: GAP };
            let runs: Vec<Passed> =
                (0..extent.rounds).map(|_| pass(service.as_ref(), &packets, manner)).collect::<Result<_>>()?;
            let million: Vec<_> = runs.iter().map(|run| run.rate * 1e-6).collect();
            rates.push(Summary::of(&million));
            let left = runs.first().map_or(0, |run| run.counters.onward + run.counters.own_out);
            let percent = 100.0 * (1.0 - left as f64 / packets.len() as f64);
            shares.push(Some(exactly(percent)));
            least = least.min(percent / bound(*buffer, length));
        }
        gone.measured(name, shares);
        rate.measured(name, rates);
    }
    let packet = segments(1, 1).first().map_or(0, Vec::len);
    gone.measured(
        "bound 1 - 1/n of whole segments",
        buffers.iter().map(|size| Some(exactly(bound(*size, packet)))).collect(),
    );
    gone.notes.push(target("the least share of the bound", least, WANTED));
    rate.notes.push(format!("{} rounds; segments of {PAYLOAD} octets of payload", extent.rounds));
    for figure in [gone, rate] {
        if extent.wants(&figure.name) {
            tell(figure)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_whole_segments() {
        let packet = segments(1, 1)[0].len();
        assert_eq!(packet, 40 + 8 + 32 + 40 + 20 + PAYLOAD);
        assert!((bound(3000, packet) - 50.0).abs() < 1e-9);
        assert!(bound(1400, packet).abs() < 1e-9);
    }

    #[test]
    fn flows_come_in_turn_and_in_order() {
        let all = segments(2, 4);
        assert_eq!(all.len(), 4);
        assert_ne!(all[0], all[1]);
        assert_eq!(all[0].len(), all[2].len());
    }
}
