//! `lab demo`: a topology comes up, real traffic visits its chain, the counters and the packets prove it, and all of it
//! goes away again.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use segue_host::Run;
use segue_model::topology::Endpoint;
use segue_plan::{Direction, Explanation};
use segue_wiring::{LabFunction, LabPlan};

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::output::Output;
use crate::progress::Progress;
use crate::up::Loaded;
use crate::{down, netns, state, up};

mod checks;
pub mod hops;
pub mod proof;
pub mod report;
pub mod traffic;

use report::Report;
use traffic::End;

/// Runs the demo and returns the exit status: 1 if anything differed.
///
/// # Errors
/// If it could not be begun, such as for a topology without a chain between two hosts.
pub fn demo(roots: &Roots, file: &Path, keep: bool, output: Output) -> Result<u8> {
    let begun = Instant::now();
    let loaded = up::load(file)?;
    let paths = LabPaths::new(roots, &loaded.plan.name)?;
    let scene = Scene::of(&loaded, &paths)?;
    let mut report = Report::new(&paths.lab, output == Output::Table);
    report.say(&scene.introduction());
    let before = Host::now(&paths);
    report.heading("Bringing it up");
    let brought_up = up::up(roots, &loaded, &Progress::on_terminal())?;
    let agents = brought_up.nodes.iter().filter(|node| node.agent.is_some()).count();
    let figures =
        format!("{} namespaces, {agents} agents in {:.1} s", brought_up.namespaces(), begun.elapsed().as_secs_f64());
    report.check("topology is up", true, figures);
    checks::all(&scene, &mut report);
    if keep {
        report.say(&format!(
            "\n--keep: it stays up. `segue lab exec {} {} -- bash` goes inside; `segue lab down {}` ends it.\n",
            paths.lab, scene.client.name, paths.lab
        ));
    } else {
        take_down(roots, &paths, &before, &mut report);
    }
    match output {
        Output::Table => report.say(&report.verdict(begun.elapsed())),
        Output::Json => print!("{}", state::json(&report)),
    }
    Ok(u8::from(!report.passed()))
}

/// Who talks to whom, and through which chain.
#[derive(Debug)]
pub struct Scene<'a> {
    paths: &'a LabPaths,
    plan: &'a LabPlan,
    client: End,
    server: End,
    forward: Vec<Explanation>,
    reverse: Vec<Explanation>,
}

impl<'a> Scene<'a> {
    /// The first chain between two hosts.
    fn of(loaded: &'a Loaded, paths: &'a LabPaths) -> Result<Self> {
        let unfit = || {
            LabError::Topology(format!(
                "{}: the demo needs a chain between two hosts, in both directions, through at least one function.\n  do: see examples/main-job.yaml",
                loaded.file.display()
            ))
        };
        let plan = &loaded.plan;
        let between_hosts = loaded.topology.chains.iter().find_map(|(name, chain)| match (&chain.from, &chain.to) {
            (Endpoint::Host(from), Endpoint::Host(to)) if chain.reverse => Some((name, from, to)),
            _ => None,
        });
        let (chain, from, to) = between_hosts.ok_or_else(unfit)?;
        let steps = |direction: Direction| -> Vec<Explanation> {
            plan.explain().iter().filter(|step| step.chain == *chain && step.direction == direction).cloned().collect()
        };
        let end = |name: &str| -> Result<End> {
            let host = plan.hosts.get(name).ok_or_else(unfit)?;
            let addresses = [host.ipv4().map(IpAddr::V4), host.ipv6().map(IpAddr::V6)];
            let addresses = addresses.into_iter().flatten().collect();
            Ok(End { name: name.to_owned(), namespace: paths.namespace(name), addresses })
        };
        let (forward, reverse) = (steps(Direction::Forward), steps(Direction::Reverse));
        let scene = Self { paths, plan, client: end(from)?, server: end(to)?, forward, reverse };
        if scene.functions().is_empty() || scene.reverse.is_empty() { Err(unfit()) } else { Ok(scene) }
    }

    /// Functions that the chain visits, but for those without a namespace, where packets cannot be recorded.
    fn functions(&self) -> BTreeSet<String> {
        let apart = |name: &&str| self.plan.functions.get(*name).is_some_and(LabFunction::has_namespace);
        self.forward.iter().filter_map(function_of).filter(apart).map(str::to_owned).collect()
    }

    /// A file for what the demo records.
    fn file(&self, name: &str) -> PathBuf {
        self.paths.directory.join(format!("demo-{name}"))
    }

    fn introduction(&self) -> String {
        let stations: Vec<&str> = self.forward.iter().map(|step| function_of(step).unwrap_or(&step.node)).collect();
        format!(
            "Segue demo, lab {}: {} and {} know nothing of Segment Routing, and neither does {}.\nTraffic between them visits: {} - {} - {}\n",
            self.paths.lab,
            self.client.name,
            self.server.name,
            self.functions().into_iter().collect::<Vec<_>>().join(", "),
            self.client.name,
            stations.join(" - "),
            self.server.name
        )
    }
}

/// The function behind a step's SID.
fn function_of(step: &Explanation) -> Option<&str> {
    match &step.action {
        segue_plan::StepAction::Segment { function, .. } | segue_plan::StepAction::Label { function, .. } => {
            function.as_deref()
        }
        segue_plan::StepAction::Headend { .. } | segue_plan::StepAction::Push { .. } => None,
    }
}

/// What of this machine the lab must leave as it was.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    namespaces: BTreeSet<String>,
    links: BTreeSet<String>,
    pins: bool,
    files: bool,
}

impl Host {
    fn now(paths: &LabPaths) -> Self {
        let text = Run::new("ip", ["-brief", "link", "show"]).text().unwrap_or_default();
        let links = text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        let namespaces =
            netns::all().into_iter().filter(|name| name.starts_with(&crate::names::namespace_prefix(&paths.lab)));
        Self { namespaces: namespaces.collect(), links, pins: paths.pins.exists(), files: paths.directory.exists() }
    }
}

fn take_down(roots: &Roots, paths: &LabPaths, before: &Host, report: &mut Report) {
    report.heading("Taking it down");
    let identities: HashSet<_> =
        netns::of_lab(roots, &paths.lab).keys().filter_map(|name| netns::identity(name)).collect();
    report.result("everything is removed", down::down(roots, &paths.lab), |removed| {
        let figures =
            format!("{} namespaces, {} processes, {} pins", removed.namespaces, removed.processes, removed.pins);
        (!removed.nothing(), figures)
    });
    let after = Host::now(paths);
    let processes = netns::processes(&identities).len();
    let clean = after == *before && processes == 0;
    let figures = if clean {
        "no namespace, link, process, pin or file of it".to_owned()
    } else {
        format!("before {before:?}, after {after:?}, {processes} processes")
    };
    report.check("nothing is left", clean, figures);
}
