//! Segue and a peer on the same work, alternating, with a bare redirect beside them.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::frame::ETHERNET;
use crate::interrupt;
use crate::lane::{Lane, Run};
use crate::report::{Peer, Report};
use crate::scenario::{Engine, Napi, Redirect, Scenario};
use crate::stats::Summary;

/// Paced runs offer this share of the engine's own median rate.
const PACED_SHARE: f64 = 0.4;

/// What goes before each measurement, in frames.
#[derive(Debug, Clone, Copy)]
pub struct First {
    /// Those that each engine must deliver without a wrong octet before anything is timed.
    pub verified: u32,
    /// Those of the run that finds out how fast an engine is, and warms it up.
    pub warm_up: u32,
    /// Least time in which latencies are measured.
    pub latency: Duration,
}

impl First {
    /// Of a measurement that is to be relied upon.
    pub const WHOLE: Self = Self { verified: 100_000, warm_up: 200_000, latency: Duration::from_millis(500) };
}

/// How long and how often to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds; each runs every engine once.
    pub rounds: usize,
    /// Length of one run.
    pub run: Duration,
    /// Length of the paced run of each engine.
    pub paced: Duration,
    /// Different inner source ports.
    pub flows: u32,
    /// What goes before it.
    pub first: First,
}

/// Rates of one engine.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) engine: Engine,
    pub(crate) rate: Summary,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) paced: Run,
    pub(crate) drops: String,
}

/// Measures `scenario` with an inner packet of `octets`, ours, which is Segue, beside a peer.
///
/// # Errors
/// If an engine cannot be set up, or delivers a wrong frame: then there is nothing to compare.
pub fn run(
    scenario: Scenario,
    octets: usize,
    [ours, peer]: [Engine; 2],
    effort: &Effort,
    pinned: &Pinned,
) -> Result<Report> {
    let bare = faster_bare(scenario, octets, effort)?;
    let peer = if matches!(peer, Engine::Bare(_)) { bare } else { peer };
    let mut lanes = Vec::new();
    for engine in [ours, peer].into_iter().chain((peer != bare).then_some(bare)) {
        let mut lane = Lane::open(scenario, octets, engine, effort.flows)?;
        lane.verify(effort.first.verified)?;
        lanes.push(lane);
    }
    let tallies = alternate(&mut lanes, effort)?;
    let find = |engine| tallies.iter().find(|tally| tally.engine == engine);
    match (find(ours), find(peer), find(bare)) {
        (Some(ours), Some(theirs), Some(limit)) => report(scenario, octets, [ours, theirs, limit], effort, pinned),
        _ => Err(Error::Usage("an engine was not measured".into())),
    }
}

/// The bare redirect by interface index or through a DEVMAP, whichever is faster here.
fn faster_bare(scenario: Scenario, octets: usize, effort: &Effort) -> Result<Engine> {
    let mut best = (0.0, Engine::Bare(Redirect::Ifindex));
    for redirect in [Redirect::Ifindex, Redirect::Map] {
        let engine = Engine::Bare(redirect);
        let lane = Lane::open(scenario, octets, engine, effort.flows)?;
        lane.saturate(effort.first.warm_up)?;
        let rate = lane.saturate(effort.first.warm_up)?.rate;
        if rate > best.0 {
            best = (rate, engine);
        }
    }
    Ok(best.1)
}

/// Runs the lanes in turns.
pub(crate) fn alternate(lanes: &mut [Lane], effort: &Effort) -> Result<Vec<Tally>> {
    let mut packets = Vec::new();
    for lane in lanes.iter() {
        lane.saturate(effort.first.warm_up)?;
        let wanted = lane.saturate(effort.first.warm_up)?.rate * effort.run.as_secs_f64();
        packets.push((wanted as u32).max(10_000));
    }
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); lanes.len()];
    for round in 0..effort.rounds {
        // Every other round backwards, so that no engine always runs behind the same other one.
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            interrupt::check()?;
            runs[index].push(lanes[index].saturate(packets[index])?);
        }
    }
    lanes.iter_mut().zip(runs).map(|(lane, runs)| tally(lane, &runs, effort)).collect()
}

fn tally(lane: &mut Lane, runs: &[Run], effort: &Effort) -> Result<Tally> {
    let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
    let rate = Summary::of(&rates).ok_or_else(|| Error::Usage("--rounds must be at least 1".into()))?;
    let paced = lane.pace_verified(PACED_SHARE * rate.median, effort.paced)?;
    Ok(Tally {
        engine: lane.engine(),
        rate,
        sent: runs.iter().map(|run| run.sent).sum(),
        lost: runs.iter().map(Run::lost).sum(),
        paced,
        drops: lane.drops(),
    })
}

pub(crate) fn mpps(summary: &Summary) -> String {
    let Summary { median, min, max } = summary.scaled(1e-6);
    format!("{median:.3} Mpps ({min:.3} to {max:.3})")
}

/// How it was measured, for notes.
pub(crate) fn conditions(effort: &Effort, pinned: &Pinned) -> String {
    format!(
        "{} rounds of {:.2} s for each engine, alternating, {} flows, CPU {}{}",
        effort.rounds,
        effort.run.as_secs_f64(),
        effort.flows,
        pinned.cpu,
        if pinned.real_time {
            ", real-time priority"
        } else {
            "; no real-time priority: other programs disturb the figures"
        }
    )
}

fn report(scenario: Scenario, octets: usize, tallies: [&Tally; 3], effort: &Effort, pinned: &Pinned) -> Result<Report> {
    let [ours, theirs, limit] = tallies;
    let ratio = ours.rate.median / theirs.rate.median;
    let share = ours.rate.median / limit.rate.median;
    let sent = scenario.sent(octets)?.octets.len() + ETHERNET;
    let arrived = scenario.arrival(octets, Engine::Segue)?.frame.len();
    let mut notes = vec![
        format!(
            "inner packet {octets} octets; frames of {sent} octets sent, {arrived} received, Ethernet header included"
        ),
        format!("{} by {}: ours is {share:.3} of it", mpps(&limit.rate), limit.engine.name()),
    ];
    if let (Some(required), Engine::Kernel(_)) = (scenario.required_ratio(ours.engine), theirs.engine) {
        notes.push(target("ratio to the kernel", ratio, required));
    }
    if let Some(required) = scenario.required_share(ours.engine) {
        notes.push(target("share of the bare redirect", share, required));
    }
    for tally in tallies {
        let Tally { engine, sent, lost, paced, drops, .. } = tally;
        let mut note = format!(
            "{}: {lost} of {sent} frames lost when saturated; {} of {} lost at {:.3} Mpps, every octet of the rest verified",
            engine.name(),
            paced.lost(),
            paced.sent,
            paced.rate / 1e6
        );
        if *lost + paced.lost() > 0 {
            let _ = write!(note, "{drops}");
        }
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes.push(conditions(effort, pinned));
    if theirs.engine == Engine::Kernel(Napi::Gro) {
        notes.push("kernel: receives through NAPI that GRO turned on; no XDP on the node".into());
    }
    Ok(Report {
        scenario: scenario.name().into(),
        unit: "packets/s".into(),
        ours: ours.rate,
        peer: Some(Peer { name: theirs.engine.name().into(), rate: theirs.rate }),
        ratio: Some(ratio),
        packets_lost: ours.lost + ours.paced.lost(),
        notes,
        size: octets,
        limit: Some(limit.rate),
    })
}

pub(crate) fn target(what: &str, found: f64, required: f64) -> String {
    let verdict = if found >= required { "reached" } else { "MISSED" };
    format!("target {verdict}: {what} {found:.2}, at least {required}")
}

pub(crate) fn target_at_most(what: &str, found: f64, limit: f64) -> String {
    let verdict = if found <= limit { "reached" } else { "MISSED" };
    format!("target {verdict}: {what} {found:.1}, at most {limit}")
}
