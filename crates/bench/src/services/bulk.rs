//! The scenarios `bulk` and `tcp-bulk`: TCP through them, and how many packets they spare; the forms of the thesis's figures 49 to 52.

use serde_json::json;

use super::chain::{Chain, Found, Service};
use super::{Extent, Tell};
use crate::error::Result;
use crate::figure::{Figure, exactly};
use crate::hosts::Load;

/// Octets of a segment in the thesis's runs.
const SEGMENT: u32 = 1340;
/// Of these, options: timestamps.
const OPTIONS: u32 = 12;
/// Octets in front of the payload in a packet through one service: IPv6, SRH with two segments, IPv6, TCP with timestamps.
const HEADERS: u32 = 40 + 8 + 2 * 16 + 40 + 20 + OPTIONS;
/// Octets of the largest packet, unless it is what varies: the thesis's buffer.
const BUFFER: u32 = 8000;
/// Milliseconds, unless they are what varies.
const DELAY: u32 = 20;

fn load(extent: &Extent<'_>, segment: u32, connections: usize) -> Load {
    Load { segment: Some(segment), connections, warm_up: extent.warm_up, ..Load::default() }
}

fn names<T: ToString>(places: &[T]) -> Vec<String> {
    places.iter().map(T::to_string).collect()
}

/// Both figures of one thing: goodput, and packets that are gone.
struct Both(Figure, Figure);

impl Both {
    fn new<T: ToString>(name: &str, title: &str, over: &str, places: &[T]) -> Self {
        let names = names(places);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        Self(
            Figure::new(&format!("{name}-rate"), title, over, &names, "Mbit/s"),
            Figure::new(&format!("{name}-gone"), title, over, &names, "% of packets that are gone"),
        )
    }

    fn add(&mut self, series: &str, found: &[Found]) {
        let Self(rate, gone) = self;
        rate.measured(series, found.iter().map(|found| Some(found.goodput)).collect());
        rate.measured(&format!("{series}, no service"), found.iter().map(|found| Some(found.without)).collect());
        gone.measured(series, found.iter().map(|found| found.gone.map(exactly)).collect());
    }

    fn note(&mut self, text: &str) {
        self.0.notes.push(text.into());
        self.1.notes.push(text.into());
    }

    fn tell(mut self, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
        self.note(&extent.conditions());
        tell(self.0)?;
        tell(self.1)
    }
}

/// Measures `bulk` with `debulk` behind it, by path MTU and by delay; on small segments, which gain most.
///
/// # Errors
/// As [`Chain::measure`].
pub fn bulk(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    let measure = |config: serde_json::Value, load: &Load| {
        chain.measure(&[Service::new("bulk", config), Service::new("debulk", json!({}))], load, extent)
    };
    let segments: [u32; 2] = [100, SEGMENT];
    if extent.wants("bulk/path-mtu") {
        let places = extent.some(&[1500_u32, 3000, 6000, 9000]);
        let mut both = Both::new("bulk/path-mtu", "TCP through bulk and debulk", "path MTU", places);
        for segment in extent.some(&segments) {
            let found: Result<Vec<_>> =
                places.iter().map(|mtu| measure(json!({ "path_mtu": mtu }), &load(extent, *segment, 8))).collect();
            both.add(&format!("segments of {segment}, 8 connections"), &found?);
        }
        both.note("the thesis has no figure of its packet bulk");
        both.tell(extent, tell)?;
    }
    if extent.wants("bulk/delay") {
        let places = extent.some(&[1_u32, 5, 20]);
        let mut both = Both::new("bulk/delay", "TCP through bulk and debulk", "longest delay, ms", places);
        let found: Result<Vec<_>> = places
            .iter()
            .map(|delay| measure(json!({ "longest_delay_ms": delay }), &load(extent, SEGMENT, 1)))
            .collect();
        both.add("1 connection", &found?);
        both.tell(extent, tell)?;
    }
    Ok(())
}

fn tcp_bulk_with(mode: &str, buffer: u32, delay: u32, workers: u32) -> Service {
    let config = json!({"mode": mode, "largest": buffer, "longest_delay_ms": delay});
    Service { workers, ..Service::new("tcp-bulk", config) }
}

/// What can be gone at most: whole segments in a packet of so many octets.
fn bound(buffer: u32) -> f64 {
    let payload = SEGMENT - OPTIONS;
    let segments = (buffer.saturating_sub(HEADERS) / payload).max(1);
    100.0 * (1.0 - 1.0 / f64::from(segments))
}

/// The thesis's formula (section 7.3.2), which it calls close to what it measured.
fn formula(buffer: u32) -> f64 {
    100.0 * (1.0 - f64::from(SEGMENT) / f64::from(buffer))
}

const THREADS: [u32; 2] = [1, 2];

/// Measures `tcp-bulk` by threads and mode, buffer size, delay, and parallel clients.
///
/// # Errors
/// As [`Chain::measure`].
pub fn tcp_bulk(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if extent.wants("tcp-bulk/threads") {
        threads(chain, extent, tell)?;
    }
    if extent.wants("tcp-bulk/buffer") {
        buffers(chain, extent, tell)?;
    }
    if extent.wants("tcp-bulk/delay") {
        let places = extent.some(&[1_u32, 5, 20, 100, 500]);
        let mut both = Both::new("tcp-bulk/delay", "tcp-bulk, buffer mode (figure 51)", "longest delay, ms", places);
        let measure = |delay: &u32| {
            chain.measure(&[tcp_bulk_with("buffer", BUFFER, *delay, 1)], &load(extent, SEGMENT, 1), extent)
        };
        let found: Result<Vec<_>> = places.iter().map(measure).collect();
        both.add("tcp-bulk", &found?);
        both.note("the thesis prints its figure without numbers, and concludes that the delay changes nothing");
        both.tell(extent, tell)?;
    }
    if extent.wants("tcp-bulk/clients") {
        clients(chain, extent, tell)?;
    }
    Ok(())
}

fn threads(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    let places = extent.some(&THREADS);
    let mut both = Both::new("tcp-bulk/threads", "tcp-bulk by threads (figure 49)", "threads", places);
    for mode in ["buffer", "queue"] {
        let measure = |workers: &u32| {
            chain.measure(&[tcp_bulk_with(mode, BUFFER, DELAY, *workers)], &load(extent, SEGMENT, 8), extent)
        };
        let found: Result<Vec<_>> = places.iter().map(measure).collect();
        both.add(mode, &found?);
    }
    both.1.measured("bound", places.iter().map(|_| Some(exactly(bound(BUFFER)))).collect());
    both.note("the thesis prints its figure without numbers: its buffer mode lost packets that could be merged with each thread, its queue mode was slow");
    both.tell(extent, tell)
}

fn buffers(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    let places = extent.some(&[3000_u32, 4000, 5000, 6000, 7000, 8000, 9000]);
    let title = "tcp-bulk by size of its largest packet (figure 50)";
    let mut both = Both::new("tcp-bulk/buffer", title, "octets of the largest packet", places);
    let measure =
        |buffer: &u32| chain.measure(&[tcp_bulk_with("buffer", *buffer, DELAY, 1)], &load(extent, SEGMENT, 1), extent);
    let found: Vec<_> = places.iter().map(measure).collect::<Result<_>>()?;
    both.add("tcp-bulk", &found);
    let Both(_, gone) = &mut both;
    gone.measured("bound 1 - 1/n of whole segments", places.iter().map(|size| Some(exactly(bound(*size)))).collect());
    gone.thesis("1 - MSS/buffer", &places.iter().map(|size| Some(formula(*size))).collect::<Vec<_>>());
    for (buffer, found) in places.iter().zip(&found) {
        let Some(percent) = found.gone else { continue };
        gone.notes.push(format!("share of the bound, packets of {buffer}: {:.3}", percent / bound(*buffer)));
    }
    both.note(
        "of a real connection: a packet with PSH, which ends what Linux gives to the device at once, ends an aggregate too (tcp-bulk/ordered-gone is without). A packet's size counts its \
         steering header here, so it holds one segment less than the thesis's formula has at some sizes",
    );
    both.tell(extent, tell)
}

fn clients(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    let places = extent.some(&[1_usize, 2, 4, 8]);
    let mut both = Both::new("tcp-bulk/clients", "tcp-bulk by parallel clients (figure 52)", "connections", places);
    for workers in extent.some(&THREADS) {
        let measure = |connections: &usize| {
            chain.measure(
                &[tcp_bulk_with("buffer", BUFFER, DELAY, *workers)],
                &load(extent, SEGMENT, *connections),
                extent,
            )
        };
        let found: Result<Vec<_>> = places.iter().map(measure).collect();
        both.add(&format!("{workers} {}", if *workers == 1 { "thread" } else { "threads" }), &found?);
    }
    both.note("the thesis prints its figure without numbers: more clients, more throughput");
    both.tell(extent, tell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_whole_segments() {
        // 9,000 less 152 octets of headers hold six segments of 1,328.
        assert!((bound(9000) - 100.0 * (1.0 - 1.0 / 6.0)).abs() < 1e-9);
        assert!((bound(1500)).abs() < 1e-9);
        // The thesis's example: 1 - 1340/9000.
        assert!((formula(9000) - 85.11).abs() < 0.01);
    }
}
