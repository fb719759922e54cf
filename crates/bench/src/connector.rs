//! The scenario `connector`: success ratio S and CPU use U over the offered rate R, by the method of "SR/VNF connector" (Abdelsalam and others, 2017),
//! section IV.B: U(R) = m R + k where nothing is lost.
//!
//! One processor does all. The generator asks again and again whether a packet is due; a run in which none is takes a time that is measured
//! beforehand, with no packets at all. So the number of these runs tells how long the processor had nothing to do: U is the
//! rest. It has sending and receiving in it; the line of a bare redirect tells how much that is.
//! A packet that was due and could not be sent in time, because the processor was busy, counts as lost.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contest::{Effort, target_at_most};
use crate::cpu::Pinned;
use crate::error::Result;
use crate::function::Vnf;
use crate::interrupt;
use crate::lane::Lane;
use crate::proxy::{self, Course, Proxy, Side};
use crate::regression::{self, Line};
use crate::scenario::{Engine, Redirect, Scenario};
use crate::stats::Summary;
use crate::topology::Shape;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Sending, receiving and the cheapest forwarder: what of U is not the function's or the proxy's.
    Bare,
    Proxy(Proxy),
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare redirect",
            Self::Proxy(proxy) => proxy.name(),
        }
    }
}

/// Who is compared.
const WHAT: [What; 7] = [
    What::Bare,
    What::Proxy(Proxy::Aware),
    What::Proxy(Proxy::ProxyAs),
    What::Proxy(Proxy::ProxyAd),
    What::Proxy(Proxy::ProxyAdFlow),
    What::Proxy(Proxy::ProxyAm),
    What::Proxy(Proxy::ProxyExact),
];
/// Offered rates, as shares of what the slowest one can do.
const SHARES: [f64; 13] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5];
/// Fewer losses are none: what interrupts and other hosts of the machine take from the processor makes packets late.
const NO_LOSS: f64 = 0.99;
/// From here on the processor has nothing left.
const SATURATED: f64 = 0.95;
/// m of the dynamic proxy, by that of the SR-aware case, in per cent.
const TARGET: f64 = 102.0;

/// One run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// R: packets per second that were due.
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
        for point in medians(&self.points) {
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

/// Runs of the same offered rate: their medians, so that what disturbs one run does not count.
fn medians(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let median = |group: &[Point], pick: fn(&Point) -> f64| {
        let values: Vec<f64> = group.iter().map(pick).collect();
        Summary::of(&values).map_or(f64::NAN, |summary| summary.median)
    };
    let groups = sorted.chunk_by(|a, b| a.rate == b.rate);
    groups
        .map(|group| Point {
            rate: group[0].rate,
            success: median(group, |point| point.success),
            cpu: median(group, |point| point.cpu),
        })
        .collect()
}

/// The first rate at which something was lost or the processor was full: there the region without loss ends.
fn end_without_loss(points: &[Point]) -> f64 {
    let medians = medians(points);
    let end = medians.iter().find(|point| point.success < NO_LOSS || point.cpu > SATURATED);
    end.map_or(f64::MAX, |point| point.rate)
}

/// The line through all runs below `end`.
fn line(points: &[Point], end: f64) -> Option<Line> {
    let below: Vec<(f64, f64)> =
        points.iter().filter(|point| point.rate < end).map(|point| (point.rate, point.cpu)).collect();
    regression::fit(&below)
}

struct Subject {
    what: What,
    lane: Lane,
    capacity: f64,
    points: Vec<Point>,
}

impl Subject {
    fn open(what: What, octets: usize, effort: &Effort) -> Result<Self> {
        let flows = effort.flows;
        let course = Course {
            vnf: Vnf::Forward,
            octets,
            chains: 1,
            flows,
            same_flow: false,
            small_tables: false,
            shape: Shape::default(),
        };
        let mut lane = match what {
            What::Bare => Lane::open(Scenario::End, octets, Engine::Bare(Redirect::Ifindex), flows)?,
            What::Proxy(proxy) => proxy::open(Side::Segue(proxy), &course, proxy.name())?,
        };
        lane.verify(effort.first.verified)?;
        let capacity = lane.saturate(effort.first.verified)?.rate;
        Ok(Self { what, lane, capacity, points: Vec::new() })
    }

    /// Nanoseconds of a run of the generator in which no packet is due.
    fn idle_run(&self, duration: Duration) -> Result<f64> {
        let offered = self.lane.traffic().offer(self.lane.topology(), 1.0, duration)?;
        Ok(offered.time.as_nanos() as f64 / offered.idle as f64)
    }

    /// One run at `rate` packets per second.
    fn offer(&self, rate: f64, duration: Duration, idle_run: f64) -> Result<Point> {
        let offered = self.lane.traffic().offer(self.lane.topology(), rate, duration)?;
        let run = self.lane.finish()?;
        let time = offered.time.as_nanos() as f64;
        Ok(Point {
            rate,
            success: (run.received as f64 / (rate * offered.time.as_secs_f64())).min(1.0),
            cpu: 1.0 - offered.idle as f64 * idle_run / time,
        })
    }
}

/// Measures all of them, in turns; `effort.run` at each rate.
///
/// # Errors
/// If a lane cannot be set up or delivers a wrong frame.
pub fn run(octets: usize, effort: &Effort, pinned: &Pinned) -> Result<Vec<Found>> {
    let Effort { rounds, run: each, .. } = *effort;
    let mut subjects = Vec::new();
    for what in WHAT {
        subjects.push(Subject::open(what, octets, effort)?);
    }
    let slowest = subjects.iter().map(|subject| subject.capacity).fold(f64::MAX, f64::min);
    for round in 0..rounds {
        // The least disturbed one: with another the whole round would seem to use less than nothing.
        let mut idle_run = f64::MAX;
        for subject in &subjects {
            idle_run = idle_run.min(subject.idle_run(each)?);
        }
        for share in SHARES {
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                interrupt::check()?;
                let point = subjects[index].offer(share * slowest, each, idle_run)?;
                subjects[index].points.push(point);
            }
        }
    }
    Ok(found(&subjects, octets, rounds, each, pinned))
}

fn found(subjects: &[Subject], octets: usize, rounds: usize, each: Duration, pinned: &Pinned) -> Vec<Found> {
    // U bends: the fuller the queues, the cheaper a packet. So all lines are drawn over the same rates, at which none loses.
    let end = subjects.iter().map(|subject| end_without_loss(&subject.points)).fold(f64::MAX, f64::min);
    let lines: Vec<Option<Line>> = subjects.iter().map(|subject| line(&subject.points, end)).collect();
    let slope_of = |wanted: What| {
        let of = subjects.iter().zip(&lines).find(|(subject, _)| subject.what == wanted);
        of.and_then(|(_, line)| line.map(|line| line.slope.value))
    };
    let (bare, aware) = (slope_of(What::Bare), slope_of(What::Proxy(Proxy::Aware)));
    let mut all = Vec::new();
    for (subject, line) in subjects.iter().zip(&lines) {
        let slope = line.map(|line| line.slope.value);
        let slope_ratio = slope.zip(aware).map(|(slope, aware)| slope / aware);
        let mut notes = Vec::new();
        if let (What::Proxy(Proxy::ProxyAd), Some(ratio)) = (subject.what, slope_ratio) {
            notes.push(target_at_most(
                "m of End.AD by that of the SR-aware function, in per cent",
                100.0 * ratio,
                TARGET,
            ));
        }
        if let (Some(ratio), Some(slope), Some(aware), Some(bare)) = (slope_ratio, slope, aware, bare) {
            notes.push(format!(
                "m is {ratio:.4} times that of the SR-aware function; {:.4} times without what the bare redirect costs",
                (slope - bare) / (aware - bare)
            ));
        }
        notes.push(format!(
            "saturated: {:.3} Mpps; inner packet {octets} octets, {rounds} rounds of {:.2} s at each rate, alternating; CPU {}{}",
            subject.capacity / 1e6,
            each.as_secs_f64(),
            pinned.cpu,
            if pinned.real_time { ", real-time priority" } else { ", no real-time priority: other programs count as use" }
        ));
        all.push(Found {
            scenario: format!("connector/{}", subject.what.name()),
            points: subject.points.clone(),
            line: *line,
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
    fn the_region_without_loss_ends_at_the_first_rate_with_one() {
        let points = [
            point(1e5, 1.0, 0.1),
            point(1e5, 0.9, 0.12),
            point(1e5, 1.0, 0.12),
            point(2e5, 1.0, 0.2),
            point(3e5, 0.98, 0.3),
            point(4e5, 1.0, 0.4),
        ];
        assert_eq!(end_without_loss(&points), 3e5, "one run of three that was disturbed is no loss");
        assert_eq!(medians(&points).len(), 4);
        assert_eq!(line(&points, 3e5).unwrap().points, 4);
    }

    #[test]
    fn a_full_processor_ends_the_region() {
        assert_eq!(end_without_loss(&[point(1e5, 1.0, 0.5), point(2e5, 1.0, 0.97)]), 2e5);
    }
}
