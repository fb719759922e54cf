//! Segue and a peer, alternating.

use std::time::Duration;

use super::row::{Engine, Row};
use super::through::Through;
use super::transfer::{Kind, SEGMENT, Transfer};
use crate::contest::target;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::report::{Peer, Report};
use crate::stats::Summary;
use segue_model::node::PortMode;

/// Octets that each engine must transfer without a wrong one before anything is timed.
const VERIFIED: u64 = 8 << 20;
/// Time for that.
const VERIFYING: Duration = Duration::from_millis(300);

/// What is compared, how long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// What is transferred.
    pub kind: Kind,
    /// Segue.
    pub ours: Engine,
    /// With whom.
    pub peer: Engine,
    /// Through a function at the middle node.
    pub through: Option<Through>,
    /// Rounds; each runs both once.
    pub rounds: usize,
    /// Length of one run.
    pub run: Duration,
}

/// What an engine did in all its runs.
#[derive(Debug)]
struct Tally {
    rate: Summary,
    sent: u64,
    received: u64,
}

/// Measures.
///
/// # Errors
/// If an engine cannot be set up, or transfers nothing or a wrong octet: then there is nothing to compare.
pub fn run(course: &Course) -> Result<Report> {
    compare(course, &[Row::open("ours", course.ours, course.through)?, Row::open("peer", course.peer, course.through)?])
}

/// As [`run`], in rows that are there: ours and the peer's.
///
/// # Errors
/// As [`run`].
pub fn compare(course: &Course, rows: &[Row; 2]) -> Result<Report> {
    for row in rows {
        verify(row, course.kind)?;
    }
    let mut runs: [Vec<Transfer>; 2] = Default::default();
    for round in 0..course.rounds {
        // Every other round backwards, so that neither always runs behind the other.
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            interrupt::check()?;
            runs[at].push(rows[at].transfer(course.kind, course.run, false)?);
        }
    }
    let [ours, theirs] = [tally(&runs[0])?, tally(&runs[1])?];
    let mut notes = Vec::new();
    for row in rows {
        notes.extend(offloads(row, course)?);
    }
    report(course, &rows[0], &ours, &theirs, notes)
}

/// A transfer of which every octet is looked at.
fn verify(row: &Row, kind: Kind) -> Result<()> {
    let failed = |reason: String| Error::NotDone { what: format!("{}, {}", kind.name(), row.engine().name()), reason };
    row.reach()?;
    let before = row.forwarded()?;
    let found = row.transfer(kind, VERIFYING, true)?;
    if found.received < VERIFIED {
        return Err(failed(format!("{} octets arrived{}", found.received, row.drops()?)));
    }
    if found.wrong > 0 {
        return Err(failed(format!("{} of {} octets are not those that were sent", found.wrong, found.received)));
    }
    if let (Some(before), Some(after)) = (before, row.forwarded()?)
        && after == before
    {
        return Err(failed("the middle node's data plane has forwarded nothing of it".to_owned()));
    }
    Ok(())
}

fn tally(runs: &[Transfer]) -> Result<Tally> {
    let rates: Vec<f64> = runs.iter().map(|run| run.arrived.bits()).collect();
    let rate = Summary::of(&rates).ok_or_else(|| Error::Usage("--rounds must be at least 1".into()))?;
    let sum = |pick: fn(&Transfer) -> u64| runs.iter().map(pick).sum();
    Ok(Tally { rate, sent: sum(|run| run.sent), received: sum(|run| run.received) })
}

/// Of a row in XDP mode: what becomes of its transfers with the checksum offload that hosts have by themselves.
fn offloads(row: &Row, course: &Course) -> Result<Vec<String>> {
    if row.engine() != Engine::Segue(PortMode::Xdp) {
        return Ok(Vec::new());
    }
    let dropped: u64 = row.dropped()?.values().sum();
    row.checksum_offload(true)?;
    let found = row.transfer(course.kind, course.run, false)?;
    row.checksum_offload(false)?;
    let counted = row.dropped()?.values().sum::<u64>() - dropped;
    Ok(vec![
        "xdp: the hosts' checksum offload is off, and their GRO on, since XDP needs both".to_owned(),
        format!(
            "xdp with the hosts' checksum offload on, as it is by itself: {:.3} Gbit/s, {counted} packets counted as dropped",
            found.arrived.bits() * 1e-9
        ),
    ])
}

fn report(course: &Course, row: &Row, ours: &Tally, theirs: &Tally, offloads: Vec<String>) -> Result<Report> {
    let ratio = ours.rate.median / theirs.rate.median;
    let mut notes = Vec::new();
    let required = match (course.ours, course.peer) {
        // Of UDP nobody has asked for one.
        _ if course.kind != Kind::Tcp => None,
        (Engine::Segue(PortMode::Skb), Engine::Kernel) if course.through.is_some() => {
            Some(("ratio to the kernel's End.DX6 and seg6 route through the same function", 1.1))
        }
        (Engine::Segue(PortMode::Skb), Engine::Kernel) => Some(("ratio to the kernel's seg6", 1.25)),
        (Engine::Segue(PortMode::Skb), Engine::Plain) => Some(("ratio to plain forwarding", 1.0)),
        _ => None,
    };
    notes.extend(required.map(|(what, required)| target(what, ratio, required)));
    notes.extend(offloads);
    // What TCP retransmits is no loss for who uses it; what Segue has dropped of it is told.
    let (lost, tells) = match course.kind {
        Kind::Tcp => (row.dropped()?.values().sum(), format!("ours{}", row.drops()?)),
        Kind::UdpGso => {
            let share = |tally: &Tally| 100.0 * (1.0 - tally.received as f64 / tally.sent as f64);
            let tells = format!(
                "the sender does not wait for the receiver: {:.1} % lost of ours, {:.1} % of the peer's{}",
                share(ours),
                share(theirs),
                row.drops()?
            );
            (ours.sent.saturating_sub(ours.received) / SEGMENT as u64, tells)
        }
    };
    if tells != "ours" {
        notes.push(tells);
    }
    let middle = match course.through {
        Some(through) => format!("a function with nftables rules behind the {}", through.name()),
        None => "End".to_owned(),
    };
    notes.push(format!(
        "three nodes between hosts, {} on Segue's nodes; H.Encaps with two segments, {middle}, End.DT46; MTU 1500 at the hosts, 9000 between nodes; {} rounds of \
         {:.2} s, alternating, one connection, all processors",
        course.ours.name(),
        course.rounds,
        course.run.as_secs_f64()
    ));
    Ok(Report {
        scenario: course.kind.name().into(),
        unit: "bit/s".into(),
        ours: ours.rate,
        peer: Some(Peer { name: course.peer.name().into(), rate: theirs.rate }),
        ratio: Some(ratio),
        packets_lost: lost,
        notes,
        size: SEGMENT,
        limit: None,
    })
}
