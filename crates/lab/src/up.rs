//! `lab up`: from a topology file to namespaces, links, addresses, routes, functions and agents.

use std::fs;
use std::path::{Path, PathBuf};

use segue_host::{HostError, Namespace, Run, bpffs, command, sysctl};
use segue_model::load::{load_topology, locate};
use segue_model::plan::Plan;
use segue_model::topology::{Ruleset, Topology};

use crate::error::{LabError, Result};
use crate::names::{self, LabPaths, Roots};
use crate::progress::Progress;
use crate::state::{self, Kind, LabRecord, NodeRecord};
use crate::wiring::{self, Space};
use crate::{agent, down, firewall, netns, parallel, program};

const AS_ROOT: &str = "check that you are root and that the file system has space";
const REPORT: &str = "the topology was accepted but the kernel was not: report it together with the topology file";

/// A topology file, read, checked and planned.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// What it says.
    pub topology: Topology,
    /// What follows from it.
    pub plan: Plan,
}

/// Reads, checks and plans a topology file. Needs no root.
///
/// # Errors
/// If it cannot be read, or says something impossible; with line, key and remedy.
pub fn load(file: &Path) -> Result<Loaded> {
    let text = fs::read_to_string(file).map_err(LabError::io("read", file, "give the path of a topology file"))?;
    let shown = file.display().to_string();
    let wrong = |errors: segue_model::error::Errors| LabError::Topology(errors.to_string());
    let mut topology = load_topology(&text, &shown).map_err(wrong)?;
    firewall::read(&mut topology, file)?;
    let plan = segue_model::plan::plan(&topology).map_err(|errors| wrong(locate(errors, &text, &shown)))?;
    Ok(Loaded { file: file.to_path_buf(), text, topology, plan })
}

/// Brings a topology up.
///
/// # Errors
/// Whatever did not work; then everything that was made is gone again.
pub fn up(roots: &Roots, loaded: &Loaded, progress: &Progress) -> Result<LabRecord> {
    let paths = LabPaths::new(roots, &loaded.plan.name)?;
    let lock = state::Lock::take(roots, &paths)?;
    if paths.directory.exists() || paths.pins.exists() || !netns::of_lab(roots, &paths.lab).is_empty() {
        return Err(LabError::AlreadyUp { lab: paths.lab });
    }
    let rulesets = check_before(loaded)?;
    let result = Building { roots, paths: &paths, loaded, progress }.build(&rulesets);
    progress.finish();
    if result.is_err() {
        // What failed is the news; what cannot be removed shows up in `lab list`, and `lab down` says why.
        let _ = down::remove(roots, &paths);
    }
    drop(lock);
    result
}

/// Everything that can be known to fail before anything is made. Returns the functions' rulesets by name.
fn check_before(loaded: &Loaded) -> Result<Vec<(String, String)>> {
    let spaces = wiring::spaces(&loaded.plan);
    for space in &spaces {
        names::check("node", space.name)?;
    }
    let mut rulesets = Vec::new();
    for (name, function) in &loaded.topology.functions {
        match function.ruleset() {
            Some(Ruleset::Inline(text)) => rulesets.push((name.clone(), text.to_owned())),
            Some(Ruleset::File(path)) => {
                let path = loaded.file.parent().unwrap_or(Path::new("")).join(path);
                let remedy = "fix `nftables` of the function in the topology: a path relative to the topology's file";
                rulesets.push((name.clone(), fs::read_to_string(&path).map_err(LabError::io("read", &path, remedy))?));
            }
            None => {}
        }
    }
    let mut programs = vec!["ip"];
    programs.extend((!rulesets.is_empty()).then_some("nft"));
    programs.extend(spaces.iter().any(|space| !wiring::offloads(space).is_empty()).then_some("ethtool"));
    command::need(&programs)?;
    Ok(rulesets)
}

struct Building<'a> {
    roots: &'a Roots,
    paths: &'a LabPaths,
    loaded: &'a Loaded,
    progress: &'a Progress,
}

impl Building<'_> {
    fn build(&self, rulesets: &[(String, String)]) -> Result<LabRecord> {
        let spaces = wiring::spaces(&self.loaded.plan);
        let program = if spaces.iter().any(|space| space.kind == Kind::Segue) { Some(agent::program()?) } else { None };
        let mut record = self.begin_record(&spaces)?;
        self.namespaces(&spaces)?;
        self.links(&spaces)?;
        self.addresses_and_routes(&spaces)?;
        self.rulesets(rulesets)?;
        self.programs()?;
        if let Some(program) = program {
            self.agents(&spaces, &program, &mut record)?;
        }
        self.commands()?;
        record.progress = state::Progress::Up;
        record.write(self.paths)?;
        Ok(record)
    }

    /// The lab's files, before anything else: from here on `lab list` knows about it.
    fn begin_record(&self, spaces: &[Space<'_>]) -> Result<LabRecord> {
        let directory = &self.paths.directory;
        fs::create_dir_all(directory).map_err(LabError::io("make directory", directory, AS_ROOT))?;
        state::write_file(&directory.join("topology.yaml"), &self.loaded.text)?;
        state::write_file(&directory.join("plan.json"), &state::json(&self.loaded.plan))?;
        let inside = self.loaded.plan.functions.iter().filter(|(_, function)| !function.has_namespace());
        let inside = inside.map(|(name, function)| NodeRecord {
            name: name.clone(),
            kind: if function.tap { Kind::Tap } else { Kind::Firewall },
            namespace: self.paths.namespace(&function.node),
            ports: Vec::new(),
            socket: None,
            agent: None,
        });
        let nodes = spaces.iter().map(|space| NodeRecord {
            name: space.name.to_owned(),
            kind: space.kind,
            namespace: self.paths.namespace(space.name),
            ports: space.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            socket: (space.kind == Kind::Segue).then(|| self.paths.socket(space.name)),
            agent: None,
        });
        let record = LabRecord {
            lab: self.paths.lab.clone(),
            file: fs::canonicalize(&self.loaded.file).unwrap_or_else(|_| self.loaded.file.clone()),
            progress: state::Progress::Starting,
            nodes: nodes.chain(inside).collect(),
        };
        record.write(self.paths)?;
        Ok(record)
    }

    fn namespaces(&self, spaces: &[Space<'_>]) -> Result<()> {
        self.progress.begin("namespaces", spaces.len());
        self.each(spaces, |space| {
            Namespace::make(&self.paths.namespace(space.name))?;
            self.ip(space, &["-batch", "-"], wiring::mark_batch(self.paths, space))?;
            self.write_sysctls(space, wiring::sysctls(space).before_links)
        })
    }

    fn links(&self, spaces: &[Space<'_>]) -> Result<()> {
        self.progress.begin("links", 3 * spaces.len());
        self.each(spaces, |space| {
            self.ip(space, &["-batch", "-"], wiring::links_batch(self.paths, &self.loaded.plan, space))
        })?;
        self.each(spaces, |space| {
            self.write_sysctls(space, wiring::sysctls(space).after_links)?;
            self.ip(space, &["-batch", "-"], wiring::up_batch(space))
        })?;
        // Only now: the kernel takes a veth for a target of XDP redirects when its far end polls, and looks at that when
        // it comes up itself or when GRO changes on a far end that is up.
        self.each(spaces, |space| {
            for arguments in wiring::offloads(space) {
                Run::new("ethtool", arguments).inside(&self.paths.namespace(space.name)).remedy(REPORT).text()?;
            }
            Ok(())
        })
    }

    fn addresses_and_routes(&self, spaces: &[Space<'_>]) -> Result<()> {
        self.progress.begin("addresses and routes", 2 * spaces.len());
        self.each(spaces, |space| self.ip(space, &["-batch", "-"], wiring::addresses_batch(space)))?;
        self.each(spaces, |space| {
            for (family, batch) in wiring::routes_batches(space) {
                self.ip(space, &[family, "-batch", "-"], batch)?;
            }
            Ok(())
        })
    }

    fn rulesets(&self, rulesets: &[(String, String)]) -> Result<()> {
        self.progress.begin("rulesets", rulesets.len());
        for (function, text) in rulesets {
            Run::new("nft", ["-f", "-"])
                .inside(&self.paths.namespace(function))
                .input(text.clone())
                .remedy("fix the ruleset of this function (`nft -c -f FILE` checks one)")
                .text()?;
            self.progress.step()?;
        }
        Ok(())
    }

    /// Programs on TAP devices: before the agents, which then find the devices with somebody behind them.
    fn programs(&self) -> Result<()> {
        self.progress.begin("programs", self.loaded.topology.functions.len());
        for (name, function) in &self.loaded.topology.functions {
            if let Some(command) = &function.program {
                program::start(self.paths, self.loaded, name, command)?;
            }
            self.progress.step()?;
        }
        Ok(())
    }

    fn agents(&self, spaces: &[Space<'_>], program: &Path, record: &mut LabRecord) -> Result<()> {
        let state = |state| state::json(&wiring::desired_state(self.paths, state));
        let with_agent: Vec<(&str, String)> =
            spaces.iter().filter_map(|space| Some((space.name, state(space.state?)))).collect();
        self.progress.begin("agents", with_agent.len());
        bpffs::ensure(&self.roots.bpf_mount)?;
        let pids = parallel::each(&with_agent, |(node, state)| {
            state::write_file(&self.paths.file(node, "yaml"), state)?;
            let mut child = agent::start(program, self.paths, node)?;
            agent::wait_ready(self.paths, node, &mut child)?;
            self.progress.step()?;
            Ok(child.id())
        })?;
        for ((node, _), pid) in with_agent.iter().zip(pids) {
            if let Some(entry) = record.nodes.iter_mut().find(|entry| entry.name == *node) {
                entry.agent = i32::try_from(pid).ok();
            }
        }
        Ok(())
    }

    fn commands(&self) -> Result<()> {
        self.progress.begin("commands", self.loaded.topology.functions.len());
        for (name, function) in &self.loaded.topology.functions {
            for line in &function.commands {
                Run::new("sh", ["-c", line])
                    .inside(&self.paths.namespace(name))
                    .remedy("fix `commands` of this function in the topology")
                    .text()?;
            }
            self.progress.step()?;
        }
        Ok(())
    }

    fn each(&self, spaces: &[Space<'_>], work: impl Fn(&Space<'_>) -> Result<()> + Sync) -> Result<()> {
        parallel::each(spaces, |space| {
            work(space)?;
            self.progress.step()?;
            Ok(())
        })?;
        Ok(())
    }

    fn ip(&self, space: &Space<'_>, arguments: &[&str], batch: String) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let namespace = self.paths.namespace(space.name);
        let arguments = ["-n", namespace.as_str()].into_iter().chain(arguments.iter().copied());
        let result = Run::new("ip", arguments).input(batch.clone()).remedy(REPORT).text();
        result.map(drop).map_err(|error| name_line(error, &namespace, &batch).into())
    }

    fn write_sysctls(&self, space: &Space<'_>, files: Vec<(String, String)>) -> Result<()> {
        netns::inside(&self.paths.namespace(space.name), || {
            let remedy = "fix `sysctls` in the topology: the kernel does not have this one, or not this value";
            let set = |(file, value): (String, String)| sysctl::set(&file, &value);
            files.into_iter().try_for_each(set).map_err(|error| error.remedied(remedy).into())
        })?
    }
}

/// `ip -batch` says which line it stopped at; its text tells more than its number.
fn name_line(error: HostError, namespace: &str, batch: &str) -> HostError {
    let HostError::Command { command, status, output, remedy, .. } = error else { return error };
    let number = output.rsplit_once("-:").and_then(|(_, number)| number.trim().parse::<usize>().ok());
    let line = number.and_then(|number| batch.lines().nth(number.saturating_sub(1)));
    let command = line.map_or(command, |line| format!("ip {line}"));
    HostError::Command { place: namespace.to_owned(), command, status, output, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_errors_name_the_line() {
        let error = HostError::Command {
            place: "host".into(),
            command: "ip -n x -batch -".into(),
            status: "exit status: 1".into(),
            output: "Error: bad.\nCommand failed -:2".into(),
            remedy: "".into(),
        };
        let text = name_line(error, "sg-x-y", "first\nsecond thing\n").to_string();
        assert!(text.contains("sg-x-y") && text.contains("`ip second thing`"), "{text}");
    }
}
