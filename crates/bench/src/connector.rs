//! The scenario `connector`: success ratio S and CPU use U over the offered rate R, by the method of "SR/VNF connector" (Abdelsalam and others, 2017),
//! section IV.B: U(R) = m R + k where nothing is lost.
//!
//! One processor sends and receives, another one is the system under test: its NAPI runs in kernel threads that are pinned
//! there, and their run time, which the scheduler counts in nanoseconds, is the CPU use.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::command;
use crate::contest::{VERIFIED, target_at_most};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::function::{FROM_FUNCTION, Vnf};
use crate::interrupt;
use crate::lane::Lane;
use crate::proxy::{self, Course, Proxy, Side};
use crate::regression::{self, Line};
use crate::topology::Shape;

/// Who is compared. The first one is what the others are measured by.
const PROXIES: [Proxy; 6] =
    [Proxy::Aware, Proxy::ProxyAs, Proxy::ProxyAd, Proxy::ProxyAdFlow, Proxy::ProxyAm, Proxy::ProxyExact];
/// Offered rates, as shares of what the slowest one can do.
const SHARES: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3];
/// Fewer losses are none: one packet in 10,000.
const NO_LOSS: f64 = 0.9999;
/// From here on the processor has nothing left.
const SATURATED: f64 = 0.95;
/// Runs of the generator in one call.
const TIMES: u32 = 1 << 18;
/// m of the dynamic proxy, by that of the SR-aware case.
const TARGET: f64 = 1.02;

/// One run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// R: packets per second that were sent.
    pub rate: f64,
    /// S: the share of them that arrived.
    pub success: f64,
    /// U: the share of the processor that was used.
    pub cpu: f64,
}

/// What was found of one proxy.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// `connector/<proxy>`.
    pub scenario: String,
    /// All runs.
    pub points: Vec<Point>,
    /// U over R in the region without loss, U as a share and R in packets per second; null if it has too few runs.
    pub line: Option<Line>,
    /// m by that of the SR-aware case.
    pub slope_ratio: Option<f64>,
    /// Packets per second that arrived when more was sent than could be handled.
    pub capacity: f64,
    /// How it was measured, targets reached and missed.
    pub notes: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario)?;
        writeln!(f, "  {:>10} {:>9} {:>9}", "R [kpps]", "S [%]", "U [%]")?;
        for point in averages(&self.points) {
            let Point { rate, success, cpu } = point;
            writeln!(f, "  {:>10.1} {:>9.3} {:>9.2}", rate / 1e3, 100.0 * success, 100.0 * cpu)?;
        }
        if let Some(Line { slope, intercept, r_squared, points }) = &self.line {
            let m = |value: f64| value * 1e5;
            writeln!(f, "  m {:.4} +- {:.4} CPU %/kpps", m(slope.value), m(slope.half_width))?;
            writeln!(f, "  k {:.3} +- {:.3} CPU %", 100.0 * intercept.value, 100.0 * intercept.half_width)?;
            writeln!(f, "  R^2 {r_squared:.5} of {points} runs without loss")?;
        }
        for note in &self.notes {
            writeln!(f, "  - {note}")?;
        }
        Ok(())
    }
}

/// Runs of the same offered rate, averaged.
fn averages(points: &[Point]) -> Vec<Point> {
    let mut groups: Vec<Vec<Point>> = Vec::new();
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    for point in sorted {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| point.rate < 1.05 * first.rate) => group.push(point),
            _ => groups.push(vec![point]),
        }
    }
    let mean = |group: &[Point], pick: fn(&Point) -> f64| group.iter().map(pick).sum::<f64>() / group.len() as f64;
    groups
        .iter()
        .map(|group| Point {
            rate: mean(group, |point| point.rate),
            success: mean(group, |point| point.success),
            cpu: mean(group, |point| point.cpu),
        })
        .collect()
}

/// The runs below the first rate at which something was lost or the processor was full.
fn without_loss(points: &[Point]) -> Vec<(f64, f64)> {
    let limit = averages(points)
        .iter()
        .find(|point| point.success < NO_LOSS || point.cpu > SATURATED)
        .map_or(f64::MAX, |point| 0.98 * point.rate);
    points.iter().filter(|point| point.rate < limit).map(|point| (point.rate, point.cpu)).collect()
}

/// The kernel threads of a lane's system under test.
#[derive(Debug)]
struct Threads(Vec<u32>);

fn napi_threads() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_napi =
        |process: &u32| fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("napi/"));
    processes.filter(is_napi).collect()
}

impl Threads {
    /// Moves NAPI of the lane's node and function into threads on `cpu`.
    fn start(lane: &Lane, cpu: usize) -> Result<Self> {
        let before = napi_threads();
        let node = lane.topology().node.name();
        let mut interfaces = vec![(node, "in"), (node, FROM_FUNCTION)];
        interfaces.extend(lane.function().map(|function| (function.namespace.name(), "west")));
        for (namespace, interface) in interfaces {
            let set = format!("echo 1 > /sys/class/net/{interface}/threaded");
            command::run("ip", &["netns", "exec", namespace, "sh", "-c", &set])?;
        }
        let threads: Vec<u32> = napi_threads().difference(&before).copied().collect();
        if threads.is_empty() {
            return Err(Error::Usage("the kernel made no threads for NAPI (/sys/class/net/*/threaded)".into()));
        }
        for thread in &threads {
            let thread = thread.to_string();
            command::run("taskset", &["--pid", "--cpu-list", &cpu.to_string(), &thread])?;
            // Else other programs on that processor make losses that are not the system's.
            command::run("chrt", &["--fifo", "--pid", "1", &thread])?;
        }
        Ok(Self(threads))
    }

    /// How long they have run.
    fn run_time(&self) -> Result<Duration> {
        let mut sum = 0;
        for thread in &self.0 {
            let path = format!("/proc/{thread}/schedstat");
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            sum += text.split_whitespace().next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(sum))
    }
}

struct Subject {
    proxy: Proxy,
    lane: Lane,
    threads: Threads,
    capacity: f64,
    points: Vec<Point>,
}

impl Subject {
    fn open(proxy: Proxy, octets: usize, flows: u32, cpu: usize) -> Result<Self> {
        let shape = Shape::default();
        let course = Course { vnf: Vnf::Forward, octets, chains: 1, flows, same_flow: false, shape };
        let mut lane = proxy::open(Side::Segue(proxy), &course, proxy.name())?;
        lane.verify(VERIFIED)?;
        let threads = Threads::start(&lane, cpu)?;
        let mut subject = Self { proxy, lane, threads, capacity: 0.0, points: Vec::new() };
        subject.offer(3e6, Duration::from_millis(200))?;
        let flood = subject.offer(3e6, Duration::from_millis(500))?;
        subject.capacity = flood.rate * flood.success;
        Ok(subject)
    }

    /// One run at `rate` packets per second.
    fn offer(&self, rate: f64, duration: Duration) -> Result<Point> {
        let traffic = self.lane.traffic();
        traffic.reset(Duration::from_secs_f64(1.0 / rate))?;
        let before = self.threads.run_time()?;
        let begun = Instant::now();
        while begun.elapsed() < duration {
            interrupt::check()?;
            traffic.transmit(self.lane.topology(), TIMES)?;
        }
        let elapsed = begun.elapsed();
        // Also the last packets' time is theirs.
        let run = self.lane.finish()?;
        let used = self.threads.run_time()?.saturating_sub(before);
        Ok(Point {
            rate: run.sent as f64 / elapsed.as_secs_f64(),
            success: run.received as f64 / run.sent as f64,
            cpu: used.as_secs_f64() / elapsed.as_secs_f64(),
        })
    }
}

/// Measures all of them, in turns.
///
/// # Errors
/// If a lane can not be set up, delivers a wrong frame, or there is no second processor.
pub fn run(octets: usize, flows: u32, rounds: usize, each: Duration, pinned: &Pinned) -> Result<Vec<Found>> {
    let cpu = usize::from(pinned.cpu == 0);
    if !fs::exists(format!("/sys/devices/system/cpu/cpu{cpu}")).unwrap_or(false) {
        return Err(Error::Usage("connector needs two processors: one sends, the other one is measured".into()));
    }
    let mut subjects = Vec::new();
    for proxy in PROXIES {
        subjects.push(Subject::open(proxy, octets, flows, cpu)?);
    }
    let slowest = subjects.iter().map(|subject| subject.capacity).fold(f64::MAX, f64::min);
    for round in 0..rounds {
        for share in SHARES {
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                interrupt::check()?;
                let point = subjects[index].offer(share * slowest, each)?;
                subjects[index].points.push(point);
            }
        }
    }
    Ok(found(&subjects, octets, rounds, each, (pinned.cpu, cpu)))
}

fn found(subjects: &[Subject], octets: usize, rounds: usize, each: Duration, cpus: (usize, usize)) -> Vec<Found> {
    let lines: Vec<Option<Line>> =
        subjects.iter().map(|subject| regression::fit(&without_loss(&subject.points))).collect();
    let aware = lines.first().copied().flatten();
    let mut all = Vec::new();
    for (subject, line) in subjects.iter().zip(lines) {
        let slope_ratio = line.zip(aware).map(|(line, aware)| line.slope.value / aware.slope.value);
        let mut notes = Vec::new();
        if let (Proxy::ProxyAd, Some(ratio)) = (subject.proxy, slope_ratio) {
            notes.push(target_at_most("m of End.AD by that of the SR-aware function", ratio, TARGET));
        }
        if let Some(ratio) = slope_ratio {
            notes.push(format!("m is {ratio:.4} times that of the SR-aware function"));
        }
        notes.push(format!("{:.3} Mpps arrived at most", subject.capacity / 1e6));
        notes.push(format!(
            "inner packet {octets} octets, forwarding function; {rounds} rounds of {:.2} s at each rate, alternating; CPU {} sends, CPU {} is measured: the run time of its NAPI threads, receiving at the sink included",
            each.as_secs_f64(),
            cpus.0,
            cpus.1
        ));
        all.push(Found {
            scenario: format!("connector/{}", subject.proxy.name()),
            points: subject.points.clone(),
            line,
            slope_ratio,
            capacity: subject.capacity,
            notes,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: f64, success: f64, cpu: f64) -> Point {
        Point { rate, success, cpu }
    }

    #[test]
    fn the_region_without_loss_ends_below_the_first_rate_with_one() {
        let points = [
            point(1e5, 1.0, 0.1),
            point(1.001e5, 1.0, 0.12),
            point(2e5, 1.0, 0.2),
            point(3e5, 0.99, 0.3),
            point(4e5, 1.0, 0.4),
        ];
        assert_eq!(without_loss(&points), [(1e5, 0.1), (1.001e5, 0.12), (2e5, 0.2)]);
        assert_eq!(averages(&points).len(), 4);
    }

    #[test]
    fn a_full_processor_is_not_in_the_region() {
        assert_eq!(without_loss(&[point(1e5, 1.0, 0.5), point(2e5, 1.0, 0.97)]), [(1e5, 0.5)]);
    }
}
