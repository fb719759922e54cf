//! The relay: what carries the packets of impaired links.
//!
//! An impaired link is a TAP device at each of its ends, and one process of the lab, the relay, holds the other sides of all of them: two threads for
//! a link, one for each direction. netem would not do: a packet that XDP redirects never meets the queueing discipline of its port, so netem would
//! impair nothing that Segue forwards, and what it loses differs from run to run. The relay treats all data planes alike, on any kernel.

pub mod decide;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_host::{HostError, Namespace, Run, tap::Tap};
use segue_model::topology::Impairment;
use segue_wiring::LabPlan;
use serde::{Deserialize, Serialize};

use crate::daemon;
use crate::error::{LabError, Result};
use crate::names::LabPaths;
use crate::state;
use decide::{Fate, Fates, is_of_the_link_itself};

/// How long a packet waits at most for the next one, to arrive behind it.
const BEHIND_WAIT: Duration = Duration::from_millis(20);
/// How long a thread waits for a packet before it looks whether its devices are still there.
const IDLE: Duration = Duration::from_secs(1);
/// How long the relay may take to open its devices.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// Packets of one direction that are on the way at most; more are lost, as in a router's queue.
const ON_THE_WAY_MAX: usize = 100_000;

/// One end of an impaired link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The network namespace.
    pub namespace: String,
    /// The TAP device in it.
    pub device: String,
}

/// An impaired link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayedLink {
    /// Its number among the lab's links.
    pub number: u64,
    /// Both ends.
    pub ends: [End; 2],
    /// What it does to packets.
    pub impairment: Impairment,
}

/// The impaired links of a plan.
#[must_use]
pub fn links(paths: &LabPaths, plan: &LabPlan) -> Vec<RelayedLink> {
    let impaired = plan.links().into_iter().filter_map(|ends| Some((ends[0].1.impaired.clone()?, ends)));
    (0..)
        .zip(impaired)
        .map(|(number, (impairment, ends))| RelayedLink {
            number,
            ends: ends
                .map(|(node, interface)| End { namespace: paths.namespace(node), device: interface.name.clone() }),
            impairment,
        })
        .collect()
}

fn file(paths: &LabPaths) -> PathBuf {
    paths.directory.join("relay.json")
}

/// Says that all devices are open.
fn ready(paths: &LabPaths) -> PathBuf {
    paths.directory.join("relay.ready")
}

/// Starts the lab's relay in the namespace of its first link, so that whoever clears the lab's namespaces ends it, and waits until it carries.
///
/// # Errors
/// If it does not come up, with what it said.
pub fn start(program: &Path, paths: &LabPaths, links: &[RelayedLink]) -> Result<()> {
    let Some(first) = links.first() else { return Ok(()) };
    state::write_file(&file(paths), &state::json(&links))?;
    let log = paths.directory.join("relay.log");
    let arguments = ["lab", "relay", &paths.lab];
    let mut child = Run::new(program, arguments).inside(&first.ends[0].namespace).daemon(&log)?;
    daemon::wait_ready(&ready(paths), "it", &mut child, &log, OPEN_WITHIN)
        .map_err(|(what, said)| LabError::Relay { what, said })
}

/// The relay itself: carries packets until it is ended, or its devices are gone.
///
/// # Errors
/// If the lab has no impaired links, or a device cannot be opened.
pub fn run(paths: &LabPaths) -> Result<()> {
    let path = file(paths);
    let remedy = "bring the lab up: `segue lab up` starts its relay";
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path, remedy))?;
    let links: Vec<RelayedLink> =
        serde_json::from_str(&text).map_err(|error| LabError::io("read", &path, remedy)(error.into()))?;
    let mut threads = Vec::new();
    for link in &links {
        let [near, far] = open(link)?.map(Arc::new);
        for (direction, (from, to)) in (0..).zip([(near.clone(), far.clone()), (far, near)]) {
            let fates = Fates::new(&link.impairment, link.number, direction);
            threads.push(std::thread::spawn(move || carry(&from, &to, Direction::new(fates))));
        }
    }
    state::write_file(&ready(paths), "")?;
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

fn open(link: &RelayedLink) -> Result<[Tap; 2]> {
    let one = |end: &End| -> std::result::Result<Tap, HostError> {
        Namespace::open(&end.namespace)?.inside(|| Tap::open(&end.device))?
    };
    Ok([one(&link.ends[0])?, one(&link.ends[1])?])
}

/// Carries one direction until a device is gone.
fn carry(from: &Tap, to: &Tap, mut direction: Direction) {
    loop {
        let now = Instant::now();
        for frame in direction.due(now) {
            // A device that is down takes nothing, as a link that is down carries nothing.
            if to.send(&frame).is_err_and(|error| is_gone(&error)) {
                return;
            }
        }
        let wait = direction.next_arrival().map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
        match from.receive(wait) {
            Ok(Some(frame)) => direction.take(frame, Instant::now()),
            Ok(None) => {}
            // The near device is down: nothing comes until it is up again.
            Err(error) if !is_gone(&error) => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => return,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(code) if code == nix::errno::Errno::EBADFD as i32 || code == nix::errno::Errno::ENODEV as i32)
}

/// The packets of one direction that are on the way. Pure but for the time that it is told.
#[derive(Debug)]
pub struct Direction {
    fates: Fates,
    /// In order of arrival.
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    /// Waits for the next packet, to arrive behind it; not longer than until then.
    behind: Option<(Instant, Vec<u8>)>,
}

impl Direction {
    /// With nothing on the way.
    #[must_use]
    pub fn new(fates: Fates) -> Self {
        Self { fates, on_the_way: VecDeque::new(), behind: None }
    }

    /// A packet enters the link.
    pub fn take(&mut self, frame: Vec<u8>, now: Instant) {
        let itself = is_of_the_link_itself(&frame);
        let fate = if itself { self.fates.of_the_link_itself() } else { self.fates.next_fate() };
        let Fate { lost, twice, behind, delay } = fate;
        if lost || self.on_the_way.len() >= ON_THE_WAY_MAX {
            return;
        }
        let at = now + delay;
        if behind && self.behind.is_none() {
            self.behind = Some((at + BEHIND_WAIT, frame));
            return;
        }
        if twice {
            self.push(at, frame.clone());
        }
        self.push(at, frame);
        if !itself && let Some((_, frame)) = self.behind.take() {
            self.push(at, frame);
        }
    }

    /// Jitter does not change the order: that is what `reorder_percent` is for.
    fn push(&mut self, at: Instant, frame: Vec<u8>) {
        let at = self.on_the_way.back().map_or(at, |(last, _)| at.max(*last));
        self.on_the_way.push_back((at, frame));
    }

    /// When the next one arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        let first = self.on_the_way.front().map(|(at, _)| *at);
        let waiting = self.behind.as_ref().map(|(at, _)| *at);
        first.into_iter().chain(waiting).min()
    }

    /// Those that arrive by now, in order.
    pub fn due(&mut self, now: Instant) -> Vec<Vec<u8>> {
        if self.behind.as_ref().is_some_and(|(at, _)| *at <= now)
            && let Some((at, frame)) = self.behind.take()
        {
            self.push(at, frame);
        }
        let count = self.on_the_way.iter().take_while(|(at, _)| *at <= now).count();
        self.on_the_way.drain(..count).map(|(_, frame)| frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives of packets 0 to 99 that are sent a millisecond apart.
    fn arrivals(impairment: Impairment) -> Vec<(u64, u8)> {
        let mut direction = Direction::new(Fates::new(&impairment, 0, 0));
        let begun = Instant::now();
        let mut arrived = Vec::new();
        for time in 0..1000u64 {
            let now = begun + Duration::from_millis(time);
            if let Ok(number) = u8::try_from(time)
                && number < 100
            {
                direction.take(vec![number; 60], now);
            }
            arrived.extend(direction.due(now).into_iter().map(|frame| (time, frame[0])));
        }
        assert_eq!(direction.next_arrival(), None);
        arrived
    }

    #[test]
    fn delay_and_jitter_keep_the_order() {
        let arrived = arrivals(Impairment { delay_ms: 7.0, ..Impairment::default() });
        assert!(arrived.iter().all(|(time, number)| *time == u64::from(*number) + 7), "{arrived:?}");
        let arrived = arrivals(Impairment { delay_ms: 7.0, jitter_ms: 5.0, ..Impairment::default() });
        assert!(arrived.iter().map(|(_, number)| *number).eq(0..100), "{arrived:?}");
    }

    #[test]
    fn reordering_loses_nothing_and_moves_by_one_place() {
        let arrived = arrivals(Impairment { reorder_percent: 20.0, ..Impairment::default() });
        let order: Vec<u8> = arrived.iter().map(|(_, number)| *number).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100), "{order:?}");
        let moved = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((5..40).contains(&moved), "{order:?}");
    }

    #[test]
    fn duplicates_and_losses_are_counted() {
        let impairment = Impairment { loss_percent: 30.0, duplicate_percent: 30.0, seed: 5, ..Impairment::default() };
        let mut fates = Fates::new(&impairment, 0, 0);
        let expected: usize = (0..100)
            .map(|_| fates.next_fate())
            .map(|fate| match fate {
                Fate { lost: true, .. } => 0,
                Fate { twice: true, .. } => 2,
                _ => 1,
            })
            .sum();
        assert_eq!(arrivals(impairment).len(), expected);
    }
}
