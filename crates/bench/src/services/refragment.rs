//! The scenario `refragment`: how fast fragments are put together, and whether all are, by the order in which they come and by loss. The thesis did not measure it.

use std::time::Duration;

use segue_service::driver::srv6;
use segue_services::corpus::Random;
use segue_services::refragment::{split, unsplit};

use super::pass::{Manner, pass};
use super::{Extent, Tell};
use crate::error::{Error, Result};
use crate::figure::{Figure, exactly};
use crate::frame;
use crate::stats::Summary;
use crate::topology::{INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4};

/// Octets of a datagram, and of the largest fragment.
const DATAGRAM: usize = 4000;
const FRAGMENT: usize = 1280;
/// Between two fragments on the service's clock.
const GAP: Duration = Duration::from_micros(10);
/// Fragments among which the order is lost.
const WINDOW: usize = 64;

/// In which order, and how many of a hundred are missing.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    name: &'static str,
    order: Order,
    lost: usize,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Sent,
    Reversed,
    Shuffled,
}

const ARRIVALS: [Arrival; 5] = [
    Arrival { name: "in order", order: Order::Sent, lost: 0 },
    Arrival { name: "each reversed", order: Order::Reversed, lost: 0 },
    Arrival { name: "shuffled", order: Order::Shuffled, lost: 0 },
    Arrival { name: "shuffled, 1 % lost", order: Order::Shuffled, lost: 1 },
    Arrival { name: "shuffled, 5 % lost", order: Order::Shuffled, lost: 5 },
];

/// Datagram number so many, in fragments: of 64 sources in turn.
fn fragments(ipv6: bool, number: usize) -> Result<Vec<Vec<u8>>> {
    let source = (number % 64) as u8;
    let inner = if ipv6 {
        let mut address = INNER_SOURCE.octets();
        address[14] = source;
        frame::udp_over_ipv6(address.into(), INNER_DESTINATION, 64, DATAGRAM).octets
    } else {
        let mut address = INNER_SOURCE_IPV4.octets();
        address[2] = source;
        let mut packet = frame::udp_over_ipv4(address.into(), INNER_DESTINATION_IPV4, 64, DATAGRAM);
        packet.octets[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        // It may be fragmented.
        packet.octets[6] = 0;
        frame::with_ttl(packet, 64).octets
    };
    let failed = |reason: String| Error::NotDone { what: "refragment, making fragments".into(), reason };
    let whole = unsplit(&inner, number as u32).ok_or_else(|| failed("a datagram cannot be read".into()))?;
    let parts = split(&whole, FRAGMENT).map_err(|error| failed(error.to_string()))?;
    Ok(parts.iter().map(|part| srv6(part)).collect())
}

/// Fragments as they come, and how many datagrams have all of theirs among them.
fn arriving(ipv6: bool, arrival: Arrival, datagrams: usize) -> Result<(Vec<Vec<u8>>, usize)> {
    let mut random = Random::new(21);
    let (mut packets, mut whole) = (Vec::new(), 0);
    for number in 0..datagrams {
        let mut parts = fragments(ipv6, number)?;
        let count = parts.len();
        if matches!(arrival.order, Order::Reversed) {
            parts.reverse();
        }
        parts.retain(|_| random.below(100) >= arrival.lost);
        whole += usize::from(parts.len() == count);
        packets.extend(parts);
    }
    if matches!(arrival.order, Order::Shuffled) {
        for window in packets.chunks_mut(WINDOW) {
            for at in (1..window.len()).rev() {
                window.swap(at, random.below(at + 1));
            }
        }
    }
    Ok((packets, whole))
}

/// Measures it.
///
/// # Errors
/// If the service does not account for all fragments, or puts together what is not there.
pub fn run(extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if !extent.wants("refragment/rate") && !extent.wants("refragment/whole") {
        return Ok(());
    }
    let kind =
        segue_services::find("refragment").ok_or_else(|| Error::Usage("there is no service refragment".into()))?;
    let service = kind.prepare("", "refragment").map_err(|errors| Error::Usage(errors.to_string()))?;
    let arrivals = extent.some(&ARRIVALS);
    let names: Vec<_> = arrivals.iter().map(|arrival| arrival.name).collect();
    let mut rate = Figure::new(
        "refragment/rate",
        "refragment by itself, by order and loss",
        "how fragments come",
        &names,
        "million fragments/s",
    );
    let mut whole = Figure {
        name: "refragment/whole".into(),
        unit: "% of the datagrams that could be put together".into(),
        ..rate.clone()
    };
    let datagrams = extent.volume / DATAGRAM;
    for (family, ipv6) in [("IPv4", false), ("IPv6", true)] {
        let (mut rates, mut shares) = (Vec::new(), Vec::new());
        for arrival in arrivals {
            let (packets, possible) = arriving(ipv6, *arrival, datagrams)?;
            let mut found = Vec::new();
            let mut made = 0;
            for _ in 0..extent.rounds {
                crate::interrupt::check()?;
                let passed = pass(&*service, &packets, Manner { workers: 1, keep: false, gap: GAP })?;
                let counted = passed.counters.metrics.get("reassembled_datagrams").copied();
                made = counted.ok_or_else(|| Error::NotDone {
                    what: format!("refragment, {}", arrival.name),
                    reason: "the service does not count what it puts together".to_owned(),
                })? as usize;
                found.push(passed.rate * 1e-6);
            }
            if made > possible {
                let reason = format!("{made} datagrams of {possible} were put together");
                return Err(Error::NotDone { what: format!("refragment, {}", arrival.name), reason });
            }
            rates.push(Summary::of(&found));
            shares.push(Some(exactly(100.0 * made as f64 / possible.max(1) as f64)));
        }
        rate.measured(family, rates);
        whole.measured(family, shares);
    }
    let note = format!(
        "without packet I/O; {datagrams} datagrams of {DATAGRAM} octets in fragments of at most {FRAGMENT}, of 64 sources, one each {} us on the service's clock; shuffled within {WINDOW} fragments; memory as it \
         is by default. The thesis did not measure its service",
        GAP.as_micros()
    );
    for mut figure in [rate, whole] {
        figure.notes.push(note.clone());
        tell(figure)?;
    }
    Ok(())
}
