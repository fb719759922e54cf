//! The scenario `cost`: what the data plane's program costs by itself, in nanoseconds and TSC cycles for each packet.
//!
//! bpf/bench/cost.bpf.c and docs/developing/benchmarks.md explain the method.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::contest::target_at_most;
use crate::cost_case::{self, Case, PAIRS, Pair, Program};
use crate::cpu::{self, Pinned, RealTime};
use crate::error::{Error, Result};
use crate::frame::ETHERNET;
use crate::interrupt;
use crate::object::{map, per_cpu, program, update, update_per_cpu};
use crate::report::Report;
use crate::segue::Node;
use crate::stats::Summary;
use crate::topology::Topology;

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cost.bpf.o"));
const WORDS: usize = 24;
/// `COST_STAMP` of bpf/bench/cost.h.
const STAMP: u64 = 1 << 13;

/// `struct cost_config`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Config {
    header: [[u8; 8]; WORDS],
    ethernet: [u8; 16],
    length: u32,
    words: u32,
    verdict: u32,
    metadata: u32,
    connections: u32,
    port: u32,
}

/// `struct cost_clock`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Clock {
    runs: u64,
    last: u64,
    least: u64,
    failed: u64,
}

/// How long and how often to measure each behaviour.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Pairs of a run with the data plane and one without.
    pub rounds: usize,
    /// Packets in one run; at least two times 8,192.
    pub packets: u32,
}

/// Measures all behaviours whose names contain `only`. `done` is told of each report as soon as it is there.
///
/// # Errors
/// If the node cannot be set up, or a program did not do its work on every packet.
pub fn run(only: &str, effort: Effort, pinned: &Pinned, mut done: impl FnMut(&Report)) -> Result<Vec<Report>> {
    if u64::from(effort.packets) < 2 * STAMP || effort.rounds == 0 {
        return Err(Error::Usage(format!("cost needs at least {} packets in a run and one round", 2 * STAMP)));
    }
    let pairs: Vec<&Pair> = PAIRS.iter().filter(|pair| pair.name.contains(only)).collect();
    let wanted = |case: &Case| case.name.contains(only) || pairs.iter().any(|pair| pair.cases.contains(&case.name));
    let cases: Vec<Case> = cost_case::all().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        return Err(Error::Usage(format!("no behaviour of the scenario cost has `{only}` in its name")));
    }
    let (frequency, source) = cpu::tsc_frequency(pinned.cpu)?;
    let topology = Topology::build("cost")?;
    cost_case::add_ports(&topology)?;
    let mut node = Node::start(&topology.node, cost_case::node_state())?;
    let mut reports = Vec::new();
    let mut alone: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for case in cases {
        interrupt::check()?;
        let costs = measure(&topology, &mut node, &case, effort)?;
        let report = report(&case, &costs, frequency, source, effort)?;
        done(&report);
        reports.push(report);
        alone.insert(case.name, costs.alone());
    }
    for pair in pairs {
        let [Some(out), Some(back)] = pair.cases.map(|name| alone.get(name)) else { continue };
        let both: Vec<f64> = out.iter().zip(back).map(|(out, back)| out + back).collect();
        let report = report_of_pair(pair, &both, frequency)?;
        done(&report);
        reports.push(report);
    }
    Ok(reports)
}

/// Whether some behaviour has this text in its name.
#[must_use]
pub fn has(only: &str) -> bool {
    PAIRS.iter().any(|pair| pair.name.contains(only)) || cost_case::all().iter().any(|case| case.name.contains(only))
}

/// Nanoseconds for each packet.
#[derive(Debug)]
struct Costs {
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Costs {
    /// Of the program without the harness, by rounds.
    fn alone(&self) -> Vec<f64> {
        self.with.iter().zip(&self.without).map(|(with, without)| with - without).collect()
    }
}

type Outcomes = BTreeMap<&'static str, u64>;

struct Bench<'a> {
    topology: &'a Topology,
    case: &'a Case,
    object: Object,
    ingress: u32,
}

fn measure(topology: &Topology, node: &mut Node, case: &Case, effort: Effort) -> Result<Costs> {
    let bench = Bench { topology, case, object: load(case)?, ingress: topology.node.ifindex(case.ingress)? };
    let segue = node.program()?;
    let own = |name| program(&bench.object, name).map(|program| program.as_fd().as_raw_fd());
    let measured = match case.program {
        Program::Segue(_) => segue.as_raw_fd(),
        Program::Reference(name) => own(name)?,
    };
    let baseline = own("nothing")?;
    if let Some(before) = &case.before {
        let ingress = topology.node.ifindex(before.ingress)?;
        Bench { topology, case: before, object: load(before)?, ingress }.once(measured)?;
    }
    // Fills the caches of the data plane and of the processor.
    bench.run(measured, effort.packets)?;
    let mut costs = Costs { with: Vec::new(), without: Vec::new() };
    for _ in 0..effort.rounds {
        interrupt::check()?;
        let before = node.outcomes()?;
        costs.with.push(bench.run(measured, effort.packets)?);
        bench.expect_outcome(&before, &node.outcomes()?, effort.packets)?;
        costs.without.push(bench.run(baseline, effort.packets)?);
    }
    Ok(costs)
}

impl Bench<'_> {
    /// Nanoseconds for each packet through the wrapper and the program `target`, in the portion that was disturbed least.
    fn run(&self, target: RawFd, packets: u32) -> Result<f64> {
        update(&map(&self.object, "target")?, "target", &target.to_ne_bytes())?;
        let clock = map(&self.object, "clock")?;
        update_per_cpu(&clock, &Clock::default())?;
        let verdict = self.test_run(packets)?;
        let clocks = per_cpu::<Clock>(&clock)?;
        let clock = clocks.into_iter().max_by_key(|clock| clock.runs).unwrap_or_default();
        if clock.failed > 0 || clock.runs != u64::from(packets) {
            return Err(self.not_done(format!("{} of {packets} runs, {} failed", clock.runs, clock.failed)));
        }
        if verdict != self.case.verdict {
            return Err(self.not_done(format!("XDP verdict {verdict} instead of {}", self.case.verdict)));
        }
        Ok(clock.least as f64 / STAMP as f64)
    }

    /// One packet through `target`, for what it leaves behind.
    fn once(&self, target: RawFd) -> Result<()> {
        update(&map(&self.object, "target")?, "target", &target.to_ne_bytes())?;
        let verdict = self.test_run(1)?;
        if verdict == self.case.verdict {
            return Ok(());
        }
        Err(self.not_done(format!("XDP verdict {verdict} instead of {} for the packet before", self.case.verdict)))
    }

    /// Every packet must have been counted under the outcome of the case.
    fn expect_outcome(&self, before: &Outcomes, after: &Outcomes, packets: u32) -> Result<()> {
        let Program::Segue(outcome) = self.case.program else { return Ok(()) };
        let count = |outcomes: &Outcomes| outcomes.get(outcome).copied().unwrap_or(0);
        let counted = count(after) - count(before);
        if counted == u64::from(packets) {
            return Ok(());
        }
        Err(self.not_done(format!("{counted} of {packets} packets were counted as {outcome}; all outcomes: {after:?}")))
    }

    fn test_run(&self, packets: u32) -> Result<u32> {
        let _inside = self.topology.node.enter()?;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [0, self.case.frame.len() as u32, 0, self.ingress, 0, 0];
        let mut context: Vec<u8> = context.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&self.case.frame),
            repeat: packets,
            ..ProgramInput::default()
        };
        let wrap = program(&self.object, "wrap")?;
        let _undisturbed = RealTime::if_allowed();
        let output = wrap.test_run(input).map_err(Error::bpf("run BPF_PROG_TEST_RUN"))?;
        Ok(output.return_value)
    }

    fn not_done(&self, reason: String) -> Error {
        Error::NotDone { what: format!("cost of {}", self.case.name), reason }
    }
}

fn load(case: &Case) -> Result<Object> {
    let words = case.headers.div_ceil(8).max(case.connections.map_or(0, |(_, word)| word as usize + 1));
    if words > WORDS || ETHERNET + 8 * words > case.frame.len() {
        return Err(Error::Usage(format!("{}: {} octets of headers cannot be restored", case.name, case.headers)));
    }
    let mut config = Config {
        header: [[0; 8]; WORDS],
        ethernet: [0; 16],
        length: case.frame.len() as u32,
        words: words as u32,
        verdict: case.verdict,
        metadata: u32::from(case.metadata),
        connections: case.connections.map_or(0, |(count, _)| count),
        port: case.connections.map_or(0, |(_, word)| word),
    };
    let (ethernet, rest) = case.frame.split_at(ETHERNET);
    config.ethernet[..ETHERNET].copy_from_slice(ethernet);
    for (word, octets) in config.header.iter_mut().zip(rest.chunks_exact(8)).take(words) {
        word.copy_from_slice(octets);
    }
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(Error::bpf("open cost.bpf.o"))?;
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(config.as_bytes()).map_err(Error::bpf("set the configuration of cost.bpf.o"))?;
        }
    }
    open.load().map_err(Error::bpf("load cost.bpf.o"))
}

fn report(case: &Case, costs: &Costs, frequency: f64, source: &str, effort: Effort) -> Result<Report> {
    let (alone, with, without) = (summary(&costs.alone())?, summary(&costs.with)?, summary(&costs.without)?);
    let cycles = alone.scaled(frequency / 1e9);
    let mut notes = Vec::new();
    if let Some(limit) = case.limit {
        notes.push(target_at_most(&format!("cycles of {}", case.name), cycles.median, limit));
    }
    notes.extend([
        format!("{:.1} ns ({:.1} to {:.1})", alone.median, alone.min, alone.max),
        format!("{:.1} ns with the harness around it, {:.1} ns the harness alone", with.median, without.median),
        format!(
            "frame of {} octets; {} pairs of runs of {} packets{}; TSC {:.3} GHz ({source})",
            case.frame.len(),
            effort.rounds,
            effort.packets,
            match case.program {
                Program::Segue(outcome) => format!(", every one counted as {outcome}"),
                Program::Reference(_) => String::new(),
            },
            frequency / 1e9
        ),
    ]);
    Ok(of_cycles(case.name, cycles, notes, case.frame.len()))
}

fn report_of_pair(pair: &Pair, both: &[f64], frequency: f64) -> Result<Report> {
    let alone = summary(both)?;
    let cycles = alone.scaled(frequency / 1e9);
    let mut notes = Vec::new();
    if let Some(limit) = pair.limit {
        notes.push(target_at_most(&format!("cycles of {}", pair.name), cycles.median, limit));
    }
    notes.push(format!("the sum, round by round, of {} and {}", pair.cases[0], pair.cases[1]));
    Ok(of_cycles(pair.name, cycles, notes, 0))
}

fn summary(values: &[f64]) -> Result<Summary> {
    Summary::of(values).ok_or_else(|| Error::Usage("nothing was measured".into()))
}

fn of_cycles(name: &str, cycles: Summary, notes: Vec<String>, size: usize) -> Report {
    Report {
        scenario: format!("cost/{name}"),
        unit: "cycles/packet".into(),
        ours: cycles,
        peer: None,
        ratio: None,
        packets_lost: 0,
        notes,
        size,
        limit: None,
    }
}
