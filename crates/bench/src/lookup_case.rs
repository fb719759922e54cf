//! The rows `lookup` of the scenario `cost`: what finding a rule costs, what compiling takes, and how large the result is.

use std::fs;
use std::time::{Duration, Instant};

use segue_classifier::classbench::{Family, Version, generate, one_shape, packet, port_ranges};
use segue_classifier::compile::compile;
use segue_classifier::execute::Memory;
use segue_classifier::random::Random;
use segue_classifier::{Key, Program};

use crate::contest::target_at_most;
use crate::cpu::{self, Pinned};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::lookup::{BASE, Classifier, QUERIES, ROUNDS};
use crate::report::Report;
use crate::stats::Summary;

/// Seeds, so that every run measures the same rules and packets.
const RULES_SEED: u64 = 10_001;
const PACKETS_SEED: u64 = 6;

/// A rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Source and destination hosts.
    Hosts(usize),
    /// Ranges of ports, all different.
    PortRanges(usize),
    /// Like ClassBench's seeds of a family.
    ClassBench(Family, usize),
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is compiled.
    pub rules: Rules,
    /// IPv4 or IPv6.
    pub version: Version,
}

impl Case {
    /// All rows.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let families = [Family::Acl, Family::Fw, Family::Ipc].map(|family| Rules::ClassBench(family, 10_000));
        let rules = [Rules::Hosts(1), Rules::Hosts(512), Rules::PortRanges(512)].into_iter().chain(families);
        rules.flat_map(|rules| [Version::V4, Version::V6].map(|version| Self { rules, version })).collect()
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        let rules = match self.rules {
            Rules::Hosts(1) => "1 rule".to_owned(),
            Rules::Hosts(count) => format!("{count} of one shape"),
            Rules::PortRanges(count) => format!("{count} port ranges"),
            Rules::ClassBench(family, count) => format!("{count} {}", format!("{family:?}").to_uppercase()),
        };
        format!("lookup, {rules}, {}", if self.version == Version::V4 { "IPv4" } else { "IPv6" })
    }

    fn program(&self) -> Program {
        match self.rules {
            Rules::Hosts(count) => one_shape(self.version, count, 3),
            Rules::PortRanges(count) => port_ranges(self.version, count, 4),
            Rules::ClassBench(family, count) => generate(family, self.version, count, RULES_SEED),
        }
    }

    /// TSC cycles that the project has set itself as a limit.
    fn limit(&self) -> Option<f64> {
        match self.rules {
            Rules::Hosts(1) => None,
            Rules::Hosts(_) => Some(120.0),
            Rules::PortRanges(_) | Rules::ClassBench(..) => Some(250.0),
        }
    }
}

/// Measures the rows whose names contain `only`. `done` is told of each report as soon as it is there.
///
/// # Errors
/// If the kernel refuses the walk.
pub fn run(only: &str, rounds: usize, pinned: &Pinned, mut done: impl FnMut(&Report)) -> Result<Vec<Report>> {
    let (frequency, source) = cpu::tsc_frequency(pinned.cpu)?;
    let mut reports = Vec::new();
    for case in Case::all().into_iter().filter(|case| case.name().contains(only)) {
        interrupt::check()?;
        let mut report = measure(&case, rounds, frequency / 1e9)?;
        report.notes.push(format!("TSC {:.3} GHz ({source})", frequency / 1e9));
        done(&report);
        reports.push(report);
    }
    Ok(reports)
}

fn measure(case: &Case, rounds: usize, cycles: f64) -> Result<Report> {
    let program = case.program();
    let (compiled, time, memory) = measured_compilation(&program)?;
    let classifier = Classifier::with(compiled)?;
    let mut random = Random::new(PACKETS_SEED);
    let rules = &program.chains[0].rules;
    let keys: Vec<Key> =
        (0..QUERIES).map(|_| packet(&rules[random.below(rules.len())], case.version, &mut random)).collect();
    let times = |keys: &[Key]| {
        // The first run fills the caches.
        classifier.nanoseconds(keys)?;
        let values = (0..rounds).map(|_| classifier.nanoseconds(keys)).collect::<Result<Vec<_>>>()?;
        let summary = Summary::of(&values).ok_or_else(|| Error::Usage("--rounds must be at least 1".into()))?;
        Ok::<Summary, Error>(summary.scaled(cycles))
    };
    let (varying, same) = (times(&keys)?, times(&keys[..1])?);
    let mut notes = Vec::new();
    if let Some(limit) = case.limit() {
        notes.push(target_at_most("cycles of a lookup", varying.median, limit));
    }
    if let Rules::ClassBench(..) = case.rules {
        notes.push(target_at_most("seconds to compile", time.as_secs_f64(), 2.0));
        notes.push(target_at_most("MiB of the process while compiling", memory, 256.0));
    }
    notes.push(format!(
        "compiled in {:.3} s, this process then at {memory:.1} MiB at most; image of {} KiB{}",
        time.as_secs_f64(),
        classifier.image().octets() / 1024,
        if cfg!(debug_assertions) { "; by a development build of segue" } else { "" }
    ));
    notes.push(effort(&classifier, &keys));
    notes.push(format!(
        "{QUERIES} packets in turn, each made for a rule drawn at random, {rounds} runs of {ROUNDS} lookups; one packet over and over: \
         {:.0} cycles ({:.0} to {:.0})",
        same.median, same.min, same.max
    ));
    Ok(Report {
        scenario: format!("cost/{}", case.name()),
        unit: "cycles/packet".into(),
        ours: varying,
        peer: None,
        ratio: None,
        packets_lost: 0,
        notes,
        size: 0,
        limit: None,
    })
}

/// What walks touch, on average.
fn effort(classifier: &Classifier, keys: &[Key]) -> String {
    let memory = Memory::new(classifier.image(), BASE);
    let chain = classifier.image().chain_line(0, BASE);
    let (mut nodes, mut compared, mut lines) = (0, 0, 0);
    for key in keys {
        let effort = memory.measure(chain, key, 0).1;
        nodes += effort.nodes;
        compared += effort.rules;
        lines += effort.lines;
    }
    let mean = |sum: usize| sum as f64 / keys.len() as f64;
    format!(
        "a walk: {:.1} nodes, {:.1} rules compared, {:.1} lines of 64 octets",
        mean(nodes),
        mean(compared),
        mean(lines)
    )
}

/// The image, how long it took, and the MiB that this process had at most meanwhile, all it holds included.
fn measured_compilation(program: &Program) -> Result<(segue_classifier::image::Image, Duration, f64)> {
    const PEAK: &str = "/proc/self/clear_refs";
    // Linux sets the peak back to what is used now.
    fs::write(PEAK, "5").map_err(Error::file(PEAK))?;
    let begin = Instant::now();
    let image = compile(program).map_err(|error| Error::Usage(format!("rules: {error}")))?;
    let time = begin.elapsed();
    Ok((image, time, resident("VmHWM:")?))
}

/// MiB, by a line of /proc/self/status.
fn resident(name: &str) -> Result<f64> {
    const STATUS: &str = "/proc/self/status";
    let text = fs::read_to_string(STATUS).map_err(Error::file(STATUS))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<f64>().ok());
    kibibytes.map(|number| number / 1024.0).ok_or_else(|| Error::Usage(format!("{STATUS} has no line {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = Case::all().iter().map(Case::name).collect();
        assert_eq!(names.len(), 12);
        assert!(names.contains("lookup, 10000 FW, IPv6"), "{names:?}");
    }

    #[test]
    fn memory_and_time_of_a_compilation_are_measured() {
        let case = Case { rules: Rules::ClassBench(Family::Fw, 2000), version: Version::V6 };
        let (image, time, memory) = measured_compilation(&case.program()).unwrap();
        assert!(time > Duration::ZERO && memory * 1048576.0 > image.octets() as f64 / 2.0, "{time:?}, {memory} MiB");
    }
}
