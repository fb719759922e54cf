//! `service-soak`: whether a service that is flooded and runs at ease by turns keeps its memory, its frames and its accounts.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::service;

/// Frames each second in a turn at ease, in which every octet is compared and none may be lost.
const EASY: f64 = 50_000.0;
/// Length of a turn at ease.
const TURN: Duration = Duration::from_secs(4);
/// Frames of a flood: more than the rings hold, by far.
const FLOOD: u32 = 300_000;
/// The share of the time after which memory may not grow any more.
const SETTLED: f64 = 0.1;
/// KiB that it may grow then all the same: pages of the allocator.
const TOLERANCE: u64 = 256;

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Found {
    /// `service-soak`.
    pub scenario: &'static str,
    /// Seconds.
    pub seconds: f64,
    /// Frames that were sent in turns at ease.
    pub easy: u64,
    /// Those that did not come back.
    pub easy_lost: u64,
    /// Frames of floods.
    pub flooded: u64,
    /// Those that came back.
    pub flooded_received: u64,
    /// KiB of memory once it had settled, at most, and at the end.
    pub memory: [u64; 3],
    /// Frames of the service's memory, and those that are in one of its places at the end.
    pub frames: [u64; 2],
    /// Frames that were not where they should have been.
    pub faults: u64,
    /// Packets that the service has received, and those of them with a counted end.
    pub packets: [u64; 2],
}

impl Found {
    /// Whether it has held.
    ///
    /// # Errors
    /// What it has lost.
    pub fn verdict(&self) -> Result<()> {
        let [settled, most, _] = self.memory;
        let faults = [
            (self.easy_lost > 0, format!("{} frames were lost at ease", self.easy_lost)),
            (most > settled + TOLERANCE, format!("its memory grew from {settled} to {most} KiB")),
            (self.frames[0] != self.frames[1], format!("{} of {} frames are left", self.frames[1], self.frames[0])),
            (self.faults > 0, format!("{} frames were elsewhere", self.faults)),
            (self.packets[0] != self.packets[1], format!("of {} packets {} ended", self.packets[0], self.packets[1])),
        ];
        let found: Vec<_> = faults.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect();
        if found.is_empty() { Ok(()) } else { Err(Error::Usage(format!("service-soak: {}", found.join("; ")))) }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { easy, easy_lost, flooded, flooded_received, memory: [settled, most, end], .. } = self;
        writeln!(f, "{}: forward, {:.0} s", self.scenario, self.seconds)?;
        writeln!(f, "  at ease      {easy} frames, every octet compared, {easy_lost} lost")?;
        writeln!(f, "  floods       {flooded} frames, {flooded_received} came back")?;
        writeln!(f, "  memory       {settled} KiB when settled, {most} at most since, {end} at the end")?;
        writeln!(f, "  frames       {} of {} in their places, {} faults", self.frames[1], self.frames[0], self.faults)?;
        write!(f, "  packets      {} received, {} with a counted end", self.packets[0], self.packets[1])
    }
}

/// Runs `forward` for so long.
///
/// # Errors
/// If it cannot be set up, delivers a wrong octet, or ends.
pub fn run(octets: usize, flows: u32, length: Duration, pinned: &Pinned) -> Result<Found> {
    let (mut lane, service) = service::forwarding(octets, flows, pinned)?;
    let mut found = Found { scenario: "service-soak", ..Found::default() };
    let before = frames(&service.status()?).0;
    let begun = Instant::now();
    while begun.elapsed() < length {
        interrupt::check()?;
        let flood = lane.saturate(FLOOD)?;
        found.flooded += flood.sent;
        found.flooded_received += flood.received;
        let easy = lane.pace_verified(EASY, TURN.min(length))?;
        found.easy += easy.sent;
        found.easy_lost += easy.lost();
        let (memory, settled) = (service.memory()?, begun.elapsed() > length.mul_f64(SETTLED));
        let [first, most, end] = &mut found.memory;
        if !settled || *first == 0 {
            *first = memory;
        }
        *most = if settled { memory.max(*most) } else { memory };
        *end = memory;
    }
    let status = service.status()?;
    let (all, faults) = frames(&status);
    (found.frames, found.faults) = ([before, all], faults);
    let total = |key: &str| status["total"][key].as_u64().unwrap_or_default();
    let dropped = status["total"]["dropped_received"].as_object();
    let dropped: u64 = dropped.into_iter().flatten().filter_map(|(_, packets)| packets.as_u64()).sum();
    found.packets = [total("received"), total("onward") + total("back") + total("taken") + dropped];
    found.seconds = begun.elapsed().as_secs_f64();
    Ok(found)
}

/// Frames that are free, wait for packets or are leaving; and faults.
fn frames(status: &Value) -> (u64, u64) {
    let sockets = status["workers"][0]["sockets"].as_array();
    let sum = |keys: &[&str]| {
        let of = |socket: &Value| keys.iter().filter_map(|key| socket[*key].as_u64()).sum::<u64>();
        sockets.into_iter().flatten().map(of).sum()
    };
    (sum(&["frames_free", "frames_to_receive", "frames_to_transmit"]), sum(&["frame_faults"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_named() {
        let held = Found { memory: [9000, 9100, 9100], frames: [6144, 6144], packets: [5, 5], ..Found::default() };
        held.verdict().unwrap();
        for (lost, what) in [
            (Found { easy_lost: 1, ..held.clone() }, "1 frames were lost"),
            (Found { memory: [9000, 9300, 9000], ..held.clone() }, "grew from 9000 to 9300"),
            (Found { frames: [6144, 6143], ..held.clone() }, "6143 of 6144 frames"),
            (Found { faults: 2, ..held.clone() }, "2 frames were elsewhere"),
            (Found { packets: [5, 4], ..held.clone() }, "of 5 packets 4"),
        ] {
            let said = lost.verdict().unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
