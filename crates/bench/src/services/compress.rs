//! The scenario `compress`: what each algorithm saves of XML, of HTTP and of encrypted payloads, and how fast it is; the forms of the thesis's figures 36 to 41.

use std::sync::Arc;
use std::time::Duration;

use segue_service::{Prepared, Registered};
use segue_services::compression::Dictionary;
use segue_services::corpus::{self, Random, Sender};
use serde_json::json;

use super::chain::{Chain, Service};
use super::pass::{Manner, Passed, pass};
use super::{Extent, Tell};
use crate::contest::target;
use crate::error::{Error, Result};
use crate::figure::{Figure, Form, exactly};
use crate::hosts::Load;
use crate::stats::Summary;

/// Packets of 1,500 octets before they are steered, as the thesis had them.
const FULL: Sender = Sender { segment: 1448, ..Sender::IPV4 };
/// What is compared, as `algorithm` of `compress` has it; the last one with a dictionary.
const ALGORITHMS: [&str; 5] = ["lz4", "lzo", "deflate", "zstd", "zstd with a dictionary"];
/// Octets of the dictionary, and how many times as much it is trained on.
const DICTIONARY: usize = 64 << 10;
const TRAINING: usize = 64;
/// Flows that rates are measured with.
const FLOWS: u16 = 16;

/// Megabytes of the thesis's figure 37: encapsulated, then by lz4, lzo and gz; of TCP to port 80, and to port 443.
const HTTP: [f64; 4] = [209.75, 203.49, 204.33, 203.30];
const HTTPS: [f64; 4] = [87.30, 87.60, 87.92, 88.19];
/// Per cent that it saved of XML by lz4, lzo and gz (section 6.4.2).
const XML: [f64; 3] = [55.57, 55.53, 62.05];

fn service(name: &str) -> Result<&'static dyn Registered> {
    segue_services::find(name).ok_or_else(|| Error::Usage(format!("there is no service {name}")))
}

fn prepared(name: &str, configuration: &serde_json::Value) -> Result<Arc<dyn Prepared>> {
    service(name)?.prepare(&configuration.to_string(), name).map_err(|errors| Error::Usage(errors.to_string()))
}

/// `compress` and `decompress` of one algorithm.
struct Pair {
    name: &'static str,
    there: Arc<dyn Prepared>,
    back: Arc<dyn Prepared>,
}

/// All of them, with a dictionary trained on other XML.
fn pairs(dictionary: &std::path::Path, volume: usize) -> Result<Vec<Pair>> {
    let samples = FULL.inner(&corpus::xml((TRAINING * DICTIONARY).min(4 * volume), 77));
    let failed = |error: String| Error::Usage(format!("a dictionary cannot be trained: {error}"));
    let size = DICTIONARY.min(volume / 4);
    let trained = Dictionary::train(&samples, size).map_err(|error| failed(error.to_string()))?;
    std::fs::write(dictionary, trained.octets()).map_err(Error::file(&dictionary.display().to_string()))?;
    let pair = |name: &'static str| {
        let configuration = match name.split_once(' ') {
            Some((algorithm, _)) => json!({"algorithm": algorithm, "dictionary": dictionary}),
            None => json!({"algorithm": name}),
        };
        let there = prepared("compress", &configuration)?;
        Ok(Pair { name, there, back: prepared("decompress", &json!({"dictionaries": [dictionary]}))? })
    };
    ALGORITHMS.into_iter().map(pair).collect()
}

/// Octets of payload, by their sort.
fn sorts(volume: usize) -> [(&'static str, Vec<u8>); 3] {
    [
        ("XML", corpus::xml(volume, 5)),
        ("HTTP", corpus::answers(volume / 30_000 + 1, 6).concat()),
        ("encrypted", Random::new(8).bytes(volume)),
    ]
}

/// Measures the service by itself: what is saved, how fast, and how packets of HTTP shrink.
///
/// # Errors
/// If a service cannot be made, or what was compressed does not become what it was.
pub fn run(extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    let place = tempfile::tempdir().map_err(Error::file("a directory for a dictionary"))?;
    let pairs = pairs(&place.path().join("xml.dictionary"), extent.volume)?;
    if extent.wants("compress/saved") {
        tell(saved(&pairs, extent)?)?;
    }
    if extent.wants("compress/ratios") {
        tell(ratios(extent)?)?;
    }
    for (name, sort) in [("compress/rate", "XML"), ("compress/rate-encrypted", "encrypted")] {
        if extent.wants(name) {
            tell(rate(name, sort, &pairs, extent)?)?;
        }
    }
    Ok(())
}

const ONE: Manner = Manner { workers: 1, keep: true, gap: Duration::from_micros(1) };

fn saved_of(passed: &Passed) -> f64 {
    100.0 * (1.0 - passed.counters.out_octets as f64 / passed.counters.received_octets as f64)
}

/// What is behind a steering header of two segments, which the test driver makes.
const STEERING: usize = 80;

/// Packets as they come to the second service: as if it had been on the list before.
fn again(packets: &[Vec<u8>], originals: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let restored = packets.iter().zip(originals).map(|(packet, original)| {
        let mut packet = packet.clone();
        for place in [7..8, 24..40, 43..44] {
            packet[place.clone()].copy_from_slice(&original[place]);
        }
        packet
    });
    restored.collect()
}

fn saved(pairs: &[Pair], extent: &Extent<'_>) -> Result<Figure> {
    let all = sorts(extent.volume);
    let places: Vec<_> = all.iter().map(|(sort, _)| *sort).collect();
    let mut figure = Figure::new(
        "compress/saved",
        "Octets saved of whole packets, steering header included (figures 36 to 38)",
        "payload",
        &places,
        "%",
    );
    for pair in pairs {
        let mut values = Vec::new();
        for (sort, stream) in &all {
            let packets = FULL.steered(stream);
            let compressed = pass(&*pair.there, &packets, ONE)?;
            let restored = pass(&*pair.back, &again(&compressed.left, &packets), ONE)?;
            let same = restored.left.len() == packets.len()
                && restored.left.iter().zip(&packets).all(|(a, b)| a[STEERING..] == b[STEERING..]);
            if !same {
                let reason = format!("{sort} did not come back as it was: {:?}", restored.counters);
                return Err(Error::NotDone { what: format!("compress, {}", pair.name), reason });
            }
            values.push(Some(exactly(saved_of(&compressed))));
        }
        figure.measured(pair.name, values);
    }
    for (index, name) in ["lz4", "lzo", "gz"].into_iter().enumerate() {
        let of = |flows: [f64; 4]| Some(100.0 * (1.0 - flows[1 + index] / flows[0]));
        figure.thesis(name, &[Some(XML[index]), of(HTTP), of(HTTPS)]);
    }
    let goals = [("lz4", "XML", 55.0), ("deflate", "XML", 62.0), ("zstd with a dictionary", "XML", 70.0)];
    let none = ALGORITHMS.map(|name| (name, "encrypted", 0.0));
    for (name, sort, least) in goals.into_iter().chain(none) {
        if let Some(found) = figure.at(name, sort) {
            figure.notes.push(target(&format!("per cent that {name} saves of {sort}"), found, least));
        }
    }
    figure.notes.push(format!(
        "{} octets of each, TCP segments of {} octets, a steering header of two segments (the thesis: three); HTTP: 86 of 100 answers have compressed bodies; the \
         thesis's HTTP is what it captured to TCP port 80, its encrypted to port 443; the dictionary is for XML",
        extent.volume, FULL.segment
    ));
    Ok(figure)
}

/// Ratios of the distribution's axis: octets before by octets after.
const STEPS: [&str; 10] = ["0.9", "1.0", "1.05", "1.1", "1.2", "1.5", "2", "3", "5", "10"];

/// How many packets have at most which ratio, by their size: figures 39 and 40.
fn ratios(extent: &Extent<'_>) -> Result<Figure> {
    let service = prepared("compress", &json!({"algorithm": "lz4", "longest_pause": 0}))?;
    let answers = corpus::answers(extent.volume / 30_000 + 20, 16);
    let http: Vec<_> = answers.iter().flat_map(|answer| FULL.steered(answer)).collect();
    let encrypted = FULL.steered(&Random::new(9).bytes(extent.volume));
    let mut figure = Figure::new(
        "compress/ratios",
        "Packets with at most this ratio, lz4 (figures 39 and 40)",
        "octets before by octets after",
        &STEPS,
        "% of packets",
    );
    figure.form = Form::Lines;
    let sizes = [("HTTP, up to 500 octets", 0..=500), ("501 to 1,400", 501..=1400), ("above", 1401..=usize::MAX)];
    let of = |packets: &[Vec<u8>]| -> Result<Vec<(usize, f64)>> {
        let left = pass(&*service, packets, ONE)?.left;
        Ok(packets.iter().zip(&left).map(|(a, b)| (a.len(), a.len() as f64 / b.len() as f64)).collect())
    };
    let http = of(&http)?;
    let share = |ratios: &[f64]| -> Vec<Option<Summary>> {
        let step = |step: &&str| {
            let limit = step.parse().unwrap_or(0.0);
            let within = ratios.iter().filter(|ratio| **ratio <= limit).count();
            (!ratios.is_empty()).then(|| exactly(100.0 * within as f64 / ratios.len() as f64))
        };
        STEPS.iter().map(step).collect()
    };
    for (name, size) in sizes {
        let own: Vec<_> = http.iter().filter(|(octets, _)| size.contains(octets)).map(|(_, ratio)| *ratio).collect();
        figure.measured(name, share(&own));
    }
    let all: Vec<_> = http.iter().map(|(_, ratio)| *ratio).collect();
    figure.measured("HTTP, all", share(&all));
    figure.measured("encrypted", share(&of(&encrypted)?.into_iter().map(|(_, ratio)| ratio).collect::<Vec<_>>()));
    // Of the curves the thesis says this much in words (section 6.4.3.2).
    let of_thesis = STEPS.map(|step| (step == "1.0").then_some(87.0));
    figure.thesis("HTTP, all", &of_thesis);
    figure.notes.push(
        "every packet is tried; none grows, where the thesis's did: no ratio is below 1. Its curves are printed without numbers".into(),
    );
    Ok(figure)
}

/// Packets of many flows.
fn flows(stream: &[u8]) -> Vec<Vec<u8>> {
    let parts = stream.chunks(stream.len().div_ceil(FLOWS.into()).max(1)).zip(1..);
    let each: Vec<_> = parts.map(|(part, port)| Sender { port, ..FULL }.steered(part)).collect();
    let longest = each.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| each.iter().filter_map(move |flow| flow.get(at).cloned())).collect()
}

/// Threads that rates are measured with.
const THREADS: [usize; 2] = [1, 2];

fn rate(name: &str, sort: &str, pairs: &[Pair], extent: &Extent<'_>) -> Result<Figure> {
    let stream = sorts(extent.volume).into_iter().find(|(found, _)| *found == sort).map(|(_, stream)| stream);
    let packets = flows(&stream.unwrap_or_default());
    let octets: usize = packets.iter().map(Vec::len).sum();
    let threads = extent.some(&THREADS);
    let places: Vec<_> = threads.iter().map(usize::to_string).collect();
    let title = format!("The service by itself, {sort} (figure 41)");
    let mut figure =
        Figure::new(name, &title, "threads", &places.iter().map(String::as_str).collect::<Vec<_>>(), "Mbit/s");
    let mut all = vec![("forward".to_owned(), prepared("forward", &json!({}))?, packets.clone())];
    for pair in pairs {
        let compressed = pass(&*pair.there, &packets, ONE)?.left;
        all.push((pair.name.to_owned(), Arc::clone(&pair.there), packets.clone()));
        all.push((format!("{}, back", pair.name), Arc::clone(&pair.back), again(&compressed, &packets)));
    }
    let mut rates = vec![vec![Vec::new(); threads.len()]; all.len()];
    for _ in 0..extent.rounds {
        crate::interrupt::check()?;
        for ((_, service, packets), rates) in all.iter().zip(&mut rates) {
            for (workers, rates) in threads.iter().zip(rates) {
                let manner = Manner { workers: *workers, keep: false, ..ONE };
                // Octets of packets as they are where nothing is compressed, in both directions.
                let seconds = packets.len() as f64 / pass(&**service, packets, manner)?.rate;
                rates.push(8e-6 * octets as f64 / seconds);
            }
        }
    }
    for ((name, _, _), rates) in all.iter().zip(rates) {
        figure.measured(name, rates.iter().map(|rates| Summary::of(rates)).collect());
    }
    figure.notes.push(format!(
        "without packet I/O: the engine and the service; {} rounds; octets of packets before they are compressed, in both directions. The thesis prints its figure without \
         numbers: decompression is faster than compression, lz4 fastest, gz slowest",
        extent.rounds
    ));
    Ok(figure)
}

/// Measures TCP through `compress` and `decompress`.
///
/// # Errors
/// As [`Chain::measure`].
pub fn goodput(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if !extent.wants("compress/goodput") {
        return Ok(());
    }
    let algorithms = extent.some(&ALGORITHMS[..4]);
    let mut figure =
        Figure::new("compress/goodput", "TCP through compress and decompress", "algorithm", algorithms, "Mbit/s");
    let contents = [("XML", corpus::xml(1 << 20, 5)), ("encrypted", Random::new(8).bytes(1 << 20))];
    for (sort, content) in contents {
        let load = Load { content: content.into(), warm_up: extent.warm_up, ..Load::default() };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for algorithm in algorithms {
            let compress = Service::new("compress", json!({ "algorithm": algorithm }));
            let found = chain.measure(&[compress, Service::new("decompress", json!({}))], &load, extent)?;
            with.push(Some(found.goodput));
            without.push(Some(found.without));
        }
        figure.measured(sort, with);
        figure.measured(&format!("{sort}, no service"), without);
    }
    figure.notes.push(extent.conditions());
    tell(figure)
}
