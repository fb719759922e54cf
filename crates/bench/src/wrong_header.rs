//! `wrong-header`: whether a packet ever comes back from a function with another chain's steering header.
//!
//! Two generators on two processors send packets of all chains at once, as fast as they can, through one function. Links have a
//! queue for each processor, so that both work in the proxy at the same time. Every inner packet carries the number of its
//! chain, and so does the segment behind the function; the sink compares every octet, and the two numbers. Loss at full rings is
//! counted and is no mistake; a wrong header is. Meanwhile the data plane is changed again and again: programs of another build take
//! over, tables grow, a configuration is applied.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::function::Vnf;
use crate::interrupt;
use crate::lane::Lane;
use crate::netns::Namespace;
use crate::proxy::{self, Course, Proxy, Side};
use crate::scenario::DEFAULT_SIZE;
use crate::segue::{Node, SMALL};
use crate::topology::{Shape, Topology};
use crate::traffic::{Sent, Traffic};

/// Chains unless the user says otherwise.
pub const CHAINS: u32 = 10_000;
/// The memories that serve many chains by one function.
pub const MEMORIES: [Proxy; 3] = [Proxy::ProxyAdFlow, Proxy::ProxyExact, Proxy::ProxyAm];
/// Packets of one processor between two looks at the user's wish to stop.
const PORTION: u64 = 4_000_000;
const PROCESSORS: usize = 2;
/// How long frames may be under way after the last one was sent.
const DRAIN: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// `wrong-header/<memory>`.
    pub scenario: String,
    /// Chains through the one function.
    pub chains: u32,
    /// Packets sent.
    pub sent: u64,
    /// Packets that came back with a steering header, each compared.
    pub seen: u64,
    /// Packets with a wrong octet anywhere: another chain's header, or another mistake.
    pub wrong: u64,
    /// Packets that did not come back.
    pub lost: u64,
    /// Frames of another length at the sink.
    pub other: u64,
    /// Packets that each processor sent.
    pub by_processor: Vec<u64>,
    /// Packets that each processor brought to the sink.
    pub seen_by_processor: Vec<u64>,
    /// Seconds.
    pub seconds: f64,
    /// What was done to the data plane meanwhile.
    pub changes: Changes,
    /// Where losses were counted, and how packets ended.
    pub notes: String,
}

/// What is done to the data plane while it forwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Programs of another build took over.
    pub upgrades: u32,
    /// A table grew.
    pub growths: u32,
    /// A configuration was applied.
    pub applies: u32,
}

impl Found {
    /// Whether it is what must be.
    ///
    /// # Errors
    /// If a packet was wrong, or none was seen.
    pub fn verdict(&self) -> Result<()> {
        let reason = match (self.wrong, self.other, self.seen) {
            (0, 0, 1..) => return Ok(()),
            (0, 0, 0) => "no packet came back".to_owned(),
            _ => format!("{} packets wrong, {} of another length", self.wrong, self.other),
        };
        Err(Error::NotDone { what: self.scenario.clone(), reason: format!("{reason}{}", self.notes) })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} chains", self.scenario, self.chains)?;
        writeln!(f, "  wrong {:>12}", self.wrong)?;
        writeln!(f, "  lost  {:>12}", self.lost)?;
        writeln!(f, "  seen  {:>12} by processor {:?}", self.seen, self.seen_by_processor)?;
        writeln!(f, "  sent  {:>12} by processor {:?} in {:.1} s", self.sent, self.by_processor, self.seconds)?;
        let Changes { upgrades, growths, applies } = self.changes;
        write!(f, "  {upgrades} upgrades, {growths} growths of a table, {applies} applies meanwhile")?;
        write!(f, "{}", self.notes)
    }
}

/// Sends `packets` through a function behind `proxy`, whose memory tells `chains` chains apart. `every`: the time between two
/// rounds of changes to the data plane, each an upgrade, a growth and an apply; zero: it is left alone.
///
/// # Errors
/// If the lane cannot be set up, or this machine has one processor only.
pub fn run(proxy: Proxy, chains: u32, packets: u64, function: Option<Vnf>, every: Duration) -> Result<Found> {
    let processors = processors()?;
    // The fastest function that the proxy can serve, so that both processors are in the proxy most of the time.
    let vnf = function.or(proxy.functions().last().copied()).unwrap_or(Vnf::Forward);
    let shape = Shape { queues: PROCESSORS, mtu: 1500 };
    // By packet, all chains carry the same inner flow: nothing but the packet's own memory can tell them apart.
    let same_flow = proxy == Proxy::ProxyExact;
    let small_tables = !every.is_zero();
    let course = Course { vnf, octets: DEFAULT_SIZE, chains, flows: chains, same_flow, small_tables, shape };
    let mut lane = proxy::open(Side::Segue(proxy), &course, "wrong")?;
    lane.compare(true)?;
    lane.traffic().reset(Duration::ZERO)?;
    let begun = Instant::now();
    let mut by_processor = vec![0; PROCESSORS];
    let mut refused = 0;
    let mut left = packets / PROCESSORS as u64;
    let mut first = 0;
    let over = AtomicBool::new(false);
    let (node, traffic, topology) = lane.parts();
    let changes = std::thread::scope(|scope| {
        let changer = node.filter(|_| !every.is_zero()).map(|node| {
            let (over, namespace) = (&over, &topology.node);
            scope.spawn(move || change(node, namespace, &proxy::node_state(proxy), every, over))
        });
        let mut send = || -> Result<()> {
            while left > 0 {
                interrupt::check()?;
                let portion = left.min(PORTION);
                let sent = transmit((traffic, topology), &processors, portion as u32, first, chains)?;
                for (total, sent) in by_processor.iter_mut().zip(sent) {
                    *total += sent.packets;
                    refused += sent.refused;
                }
                left -= portion;
                first = (u64::from(first) + portion).rem_euclid(u64::from(chains)) as u32;
            }
            Ok(())
        };
        let sent = send();
        over.store(true, Ordering::Relaxed);
        let changes = changer.map_or(Ok(Ok(Changes::default())), std::thread::ScopedJoinHandle::join);
        sent?;
        changes.unwrap_or_else(|_| Err(Error::Usage("the thread that changes the data plane panicked".into())))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let sent: u64 = by_processor.iter().sum();
    let received = drained(&lane, sent)?;
    let mut notes = format!("\n  - {}, every octet compared{}", vnf.name(), lane.drops());
    if received.wrong > 0 {
        notes += &format!(
            "; first difference at octet {}: {:#x} instead of {:#x}",
            received.wrong_offset, received.wrong_found, received.wrong_wanted
        );
    }
    if refused > 0 {
        notes += &format!("; {refused} frames could not be restored by the generator");
    }
    Ok(Found {
        scenario: format!("wrong-header/{}", proxy.name()),
        chains,
        sent,
        seen: received.packets,
        wrong: received.wrong,
        lost: sent.saturating_sub(received.packets),
        other: received.other,
        by_processor,
        seen_by_processor: lane.traffic().received_by_processor()?,
        seconds,
        changes,
        notes,
    })
}

/// What is applied beside the chains: so many SIDs, policies and steering rules, each of which has a table.
type More = [u32; 3];
/// A table doubles each time that it grows: it does not do so for ever.
const GROWTHS_MAX: u32 = 30;

/// The `number`th growth: one table after the other gets more than it holds.
fn more_than_there_is_room_for(number: u32) -> More {
    let mut more = [1; 3];
    more[(number % 3) as usize] = (SMALL << (number / 3)) + 1;
    more
}

/// The node's state and more.
fn with_more(state: &Value, [sids, policies, rules]: More) -> Value {
    let mut state = state.clone();
    let mut extend = |key: &str, entries: Vec<Value>| {
        let list = state.as_object_mut().map(|state| state.entry(key).or_insert_with(|| json!([])));
        list.and_then(Value::as_array_mut).into_iter().for_each(|list| list.extend(entries.clone()));
    };
    let sid = |n| format!("fd5e:{:x}:{:x}::/64", n >> 16, n & 0xffff);
    extend("sids", (0..sids).map(|n| json!({"sid": sid(n), "behaviour": "End"})).collect());
    let list = json!([{"segments": ["fd5f::1"]}]);
    extend("policies", (0..policies).map(|n| json!({"name": format!("more-{n}"), "segment_lists": list})).collect());
    let rule = |n| json!({"destination": format!("fd60:0:{n:x}::/48"), "policy": "more-0"});
    extend("steering", (0..rules).map(rule).collect());
    state
}

/// Changes the data plane in every way that replaces programs or tables, round after round, until it is `over`.
fn change(
    node: &mut Node,
    namespace: &Namespace,
    state: &Value,
    every: Duration,
    over: &AtomicBool,
) -> Result<Changes> {
    let mut changes = Changes::default();
    loop {
        let begun = Instant::now();
        node.upgrade(namespace)?;
        changes.upgrades += 1;
        if changes.growths < GROWTHS_MAX {
            node.apply(namespace, with_more(state, more_than_there_is_room_for(changes.growths)))?;
            changes.growths += 1;
        }
        node.apply(namespace, with_more(state, [1 + changes.applies % 2; 3]))?;
        changes.applies += 1;
        while begun.elapsed() < every || over.load(Ordering::Relaxed) {
            if over.load(Ordering::Relaxed) {
                return Ok(changes);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What has arrived once nothing more does.
fn drained(lane: &Lane, sent: u64) -> Result<crate::traffic::Received> {
    let end = Instant::now() + DRAIN;
    let mut received = lane.traffic().counts()?.1;
    while received.packets < sent && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        received = lane.traffic().counts()?.1;
    }
    Ok(received)
}

/// The first two processors.
fn processors() -> Result<[usize; PROCESSORS]> {
    let there = |cpu: &usize| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let all: Vec<usize> = (0..CpuSet::count()).filter(there).take(PROCESSORS).collect();
    all.try_into().map_err(|_| Error::Usage("wrong-header needs two processors".into()))
}

/// Each processor sends `packets` at the same time, the second one half of all chains ahead.
fn transmit(
    (traffic, topology): (&Traffic, &Topology),
    processors: &[usize],
    packets: u32,
    first: u32,
    chains: u32,
) -> Result<Vec<Sent>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = processors
            .iter()
            .enumerate()
            .map(|(index, cpu)| {
                let generator = traffic.generator();
                let namespace = &topology.generator;
                let first = (first + index as u32 * (chains / 2)) % chains;
                scope.spawn(move || {
                    let mut one = CpuSet::new();
                    one.set(*cpu).map_err(Error::system("choose a CPU"))?;
                    sched_setaffinity(Pid::from_raw(0), &one).map_err(Error::system("pin a generator to a CPU"))?;
                    let _inside = namespace.enter()?;
                    generator.transmit(packets, first)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Sent>>| {
            thread.join().unwrap_or_else(|_| Err(Error::Usage("a generator's thread panicked".into())))
        };
        threads.into_iter().map(join).collect()
    })
}
