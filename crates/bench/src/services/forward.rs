//! The scenario `service-tcp`: TCP through `forward` and `counter`, by segment size, processor, threads and ring size; the forms of the thesis's figures 28 to 31.

use serde_json::json;

use super::chain::{Chain, Found, Service};
use super::{Extent, Tell};
use crate::contest::target;
use crate::error::Result;
use crate::figure::Figure;
use crate::hosts::Load;
use crate::stats::Summary;

/// Tables 4 to 6 of the thesis, Mbit/s with segments of 100 and of 1,340 octets; no place for "as large as they come".
const NO_SERVICE: [Option<f64>; 3] = [Some(190.3), Some(2589.0), None];
const COUNTER: [Option<f64>; 3] = [Some(105.0), Some(1389.0), None];
const FORWARD: [Option<f64>; 3] = [Some(105.3), Some(1434.0), None];
/// Table 7: one thread, by the processor that it is bound to.
const BOUND: [f64; 8] = [1439.0, 1436.0, 964.8, 1111.0, 1426.0, 1442.0, 794.7, 1027.0];
/// One thread (table 7), and the best of one producer and one consumer on processors of their own (table 8): with the lock-free queue, with the mutex.
const THREADS_LOCK_FREE: [f64; 2] = [1442.0, 1390.0];
const THREADS_MUTEX: [f64; 2] = [1442.0, 1380.0];

const SEGMENTS: [(&str, Option<u32>); 3] = [("100", Some(100)), ("1340", Some(1340)), ("as large as they come", None)];

/// What `forward` shall reach of the chain without it.
const WANTED: f64 = 0.55;

/// The last places, of a list of the thesis's.
fn tail<T: Copy>(extent: &Extent<'_>, all: &[T]) -> Vec<T> {
    extent.some(all).to_vec()
}

fn forward() -> Service {
    Service::new("forward", json!({}))
}

/// With packets as hosts send them whole.
fn merged() -> Service {
    Service { merged: true, ..forward() }
}

fn load(extent: &Extent<'_>) -> Load {
    Load { warm_up: extent.warm_up, ..Load::default() }
}

/// Measures all of it.
///
/// # Errors
/// As [`Chain::measure`].
pub fn run(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if extent.wants("service-tcp/services") {
        tell(services(chain, extent)?)?;
    }
    if extent.wants("service-tcp/processor") {
        tell(processor(chain, extent)?)?;
    }
    if extent.wants("service-tcp/threads") {
        tell(threads(chain, extent)?)?;
    }
    if extent.wants("service-tcp/rings") {
        tell(rings(chain, extent)?)?;
    }
    Ok(())
}

fn services(chain: &Chain, extent: &Extent<'_>) -> Result<Figure> {
    let places = extent.some(&SEGMENTS);
    let names: Vec<_> = places.iter().map(|(name, _)| *name).collect();
    let title = "TCP through no service, forward, counter (figure 28)";
    let mut figure = Figure::new("service-tcp/services", title, "octets of a segment", &names, "Mbit/s");
    let counter = Service::new("counter", json!({"snap_length": 65_575}));
    let (mut none, mut through, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    let (mut none_single, mut through_single, mut whole_segments) = (Vec::new(), Vec::new(), Vec::new());
    for (name, segment) in places {
        let load = Load { segment: *segment, ..load(extent) };
        let whole = chain.measure(&[merged()], &load, extent)?;
        let what = format!("forward with `merged` by the chain without it, segments of {name}");
        figure.notes.push(target(&what, whole.share(), WANTED));
        let found = chain.measure(&[forward()], &load, extent)?;
        let copies = chain.measure(std::slice::from_ref(&counter), &load, extent)?;
        figure.notes.push(format!(
            "forward, one segment at a time, by the chain without it, segments of {name}: {:.2}",
            found.share()
        ));
        figure.notes.push(format!("counter by the chain without it, segments of {name}: {:.2}", copies.share()));
        // As in the thesis: on both sides each segment goes by itself.
        let single = chain.measure_single(&[forward()], &load, extent)?;
        let what = format!("the same with the hosts' segmentation offload off, segments of {name}");
        figure.notes.push(target(&what, single.share(), WANTED));
        none_single.push(Some(single.without));
        through_single.push(Some(single.goodput));
        whole_segments.push(Some(whole.goodput));
        none.push(Some(whole.without));
        through.push(Some(found.goodput));
        counted.push(Some(copies.goodput));
    }
    figure.measured("no service", none);
    figure.measured("forward, merged", whole_segments);
    figure.measured("forward", through);
    figure.measured("counter", counted);
    figure.measured("no service, offload off", none_single);
    figure.measured("forward, offload off", through_single);
    figure.thesis("no service", &tail(extent, &NO_SERVICE));
    figure.thesis("MEMLINK_TEST (forward)", &tail(extent, &FORWARD));
    figure.thesis("COUNTER", &tail(extent, &COUNTER));
    figure.notes.push(
        "the thesis: three computers with 10 Gbit/s between them, all offloads off; here: namespaces of one machine, offloads as hosts have them if nothing else is said, \
         so that the chain without a service carries segments of up to 64 KiB, and so does the service with `merged`; else it takes each by itself"
            .into(),
    );
    figure.notes.push(extent.conditions());
    Ok(figure)
}

/// Processors of this machine, at most as many as the thesis had.
fn processors() -> u32 {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    (all.lines().filter(|line| line.starts_with("processor")).count() as u32).clamp(1, BOUND.len() as u32)
}

fn processor(chain: &Chain, extent: &Extent<'_>) -> Result<Figure> {
    let all: Vec<u32> = (0..processors()).collect();
    let places = extent.some(&all);
    let names: Vec<_> = places.iter().map(u32::to_string).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let title = "forward with one thread, bound to a processor (figure 29)";
    let mut figure = Figure::new("service-tcp/processor", title, "processor", &names, "Mbit/s");
    let mut through = Vec::new();
    for cpu in places {
        let service = Service { cpus: vec![*cpu], ..forward() };
        through.push(Some(chain.measure(&[service], &load(extent), extent)?.goodput));
    }
    figure.measured("forward", through);
    let thesis: Vec<_> = places.iter().map(|cpu| BOUND.get(*cpu as usize).copied()).collect();
    figure.thesis("MEMLINK_TEST", &thesis);
    figure.notes.push(
        "hosts and nodes use all processors; in the thesis 6 and 7 (of the cores of 2 and 3) had the network cards"
            .into(),
    );
    figure.notes.push(extent.conditions());
    Ok(figure)
}

const WORKERS: [u32; 2] = [1, 2];
/// Connections, so that each worker has some.
const CLIENTS: usize = 8;

fn threads(chain: &Chain, extent: &Extent<'_>) -> Result<Figure> {
    let places = extent.some(&WORKERS);
    let names: Vec<_> = places.iter().map(u32::to_string).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let title = format!("forward by threads, {CLIENTS} connections (figure 30)");
    let mut figure = Figure::new("service-tcp/threads", &title, "threads", &names, "Mbit/s");
    let load = Load { connections: CLIENTS, ..load(extent) };
    let mut found: Vec<Found> = Vec::new();
    for workers in places {
        found.push(chain.measure(&[Service { workers: *workers, ..forward() }], &load, extent)?);
    }
    figure.measured("forward", found.iter().map(|found| Some(found.goodput)).collect());
    figure.measured("no service", found.iter().map(|found| Some(found.without)).collect());
    figure.thesis("lock-free queue", &tail(extent, &THREADS_LOCK_FREE.map(Some)));
    figure.thesis("mutex", &tail(extent, &THREADS_MUTEX.map(Some)));
    if let [one, two] = &found[..] {
        figure.notes.push(target("two threads by one", two.goodput.median / one.goodput.median, 1.0));
    }
    figure.notes.push(
        "the thesis's 2 are a producer and a consumer, bound to the processors that were best (tables 7 and 8); it prints more threads without numbers: each made it slower"
            .into(),
    );
    figure.notes.push(extent.conditions());
    Ok(figure)
}

const RINGS: [u32; 5] = [64, 256, 1024, 4096, 16_384];

fn rings(chain: &Chain, extent: &Extent<'_>) -> Result<Figure> {
    let places = extent.some(&RINGS);
    let names: Vec<_> = places.iter().map(u32::to_string).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let title = format!("forward by size of its rings, {CLIENTS} connections (figure 31)");
    let mut figure = Figure::new("service-tcp/rings", &title, "packets that a ring holds", &names, "Mbit/s");
    let load = Load { connections: CLIENTS, ..load(extent) };
    for workers in extent.some(&WORKERS) {
        let mut through: Vec<Option<Summary>> = Vec::new();
        for ring_size in places {
            let service = Service { workers: *workers, ring_size: *ring_size, ..forward() };
            through.push(Some(chain.measure(&[service], &load, extent)?.goodput));
        }
        figure.measured(&format!("{workers} {}", if *workers == 1 { "thread" } else { "threads" }), through);
    }
    figure.notes.push(
        "the thesis varied 2 to 1,024 MiB with 1 to 4 threads; it prints the figure without numbers, and concludes that memory changes nothing".into(),
    );
    figure.notes.push(extent.conditions());
    Ok(figure)
}
