//! `lab up`: from a topology file to namespaces, links, addresses, routes, functions and agents.

use std::fs;
use std::io;
use std::path::Path;

use segue_function::{Function, FunctionError, Runtime};
use segue_host::{HostError, Namespace, bpffs, command, network};
use segue_model::load::locate;
use segue_wiring::Labels;

use crate::error::{LabError, Result};
pub use crate::loaded::Loaded;
use crate::names::{self, LabPaths, Roots};
use crate::progress::Progress;
pub use crate::read::of_lab as loaded_of;
use crate::state::{self, Kind, LabRecord, NodeRecord};
use crate::wiring::{self, Space};
use crate::{
    agent, down, firewall, functions, labels, netns, offloads, parallel, read, recorder, relay, service, traffic,
};

const AS_ROOT: &str = "check that you are root and that the file system has space";
const REPORT: &str = "the topology was accepted but the kernel was not: report it together with the topology file";

/// Reads, checks and plans a topology file, or with `-` what comes on standard input; files that it names lie in the working directory
/// then. Needs no root.
///
/// # Errors
/// If it cannot be read, or says something impossible; with line, key and remedy.
pub fn load(file: &Path) -> Result<Loaded> {
    let (text, shown) = match file == Path::new("-") {
        true => (io::read_to_string(io::stdin()), "stdin".to_owned()),
        false => (fs::read_to_string(file), file.display().to_string()),
    };
    let text = text.map_err(LabError::io("read", file, "give the path of a topology file, or - for standard input"))?;
    let mut topology = read::topology(&text, &shown)?;
    firewall::read(&mut topology, file)?;
    let plan = read::plan(&topology, &text, &shown)?;
    let checked = traffic::check(&topology, &plan).and_then(|()| recorder::check(&topology, &plan));
    checked.map_err(|errors| LabError::Topology(locate(errors, &text, &shown).to_string()))?;
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
    let functions = functions::all(&paths, loaded)?;
    check_before(loaded, &functions)?;
    let result = Building { roots, paths: &paths, loaded, functions: &functions, progress }.build();
    progress.finish();
    if result.is_err() {
        // What failed is the news; what cannot be removed shows up in `lab list`, and `lab down` says why.
        let _ = down::remove(roots, &paths);
    }
    drop(lock);
    result
}

/// Everything that can be known to fail before anything is made.
fn check_before(loaded: &Loaded, functions: &[Function]) -> Result<()> {
    let spaces = wiring::spaces(&loaded.plan);
    let names = spaces.iter().map(|space| space.name).chain(functions.iter().map(|function| function.name.as_str()));
    names.into_iter().try_for_each(|name| names::check("node", name))?;
    let mut programs = vec!["ip"];
    programs.extend(functions.iter().flat_map(|function| function.runtime().needs(function)));
    Ok(command::need(&programs)?)
}

struct Building<'a> {
    roots: &'a Roots,
    paths: &'a LabPaths,
    loaded: &'a Loaded,
    functions: &'a [Function],
    progress: &'a Progress,
}

impl Building<'_> {
    fn build(&self) -> Result<LabRecord> {
        let spaces = wiring::spaces(&self.loaded.plan);
        let program = if spaces.iter().any(|space| space.kind == Kind::Segue) { Some(agent::program()?) } else { None };
        let mut record = self.begin_record(&spaces)?;
        let all = spaces.clone();
        // Functions are their runtimes'.
        let spaces: Vec<_> = spaces.into_iter().filter(|space| space.kind != Kind::Function).collect();
        self.namespaces(&spaces)?;
        self.links(&spaces)?;
        self.addresses_and_routes(&spaces)?;
        // Before the agents, which then find devices with somebody behind them.
        self.functions("functions", |runtime, function| runtime.start(function))?;
        offloads::checksums(self.paths, &self.loaded.topology, &self.loaded.plan)?;
        if let Some(program) = program {
            self.agents(&spaces, &program, &mut record)?;
        }
        self.progress.begin("IPv6", all.len());
        self.each(&all, |space, namespace| space.network.wait_ready(namespace))?;
        self.commands()?;
        // Before the traffic: what is captured is whole.
        let captures = recorder::captures(self.loaded);
        if !captures.is_empty() {
            recorder::start(&agent::segue()?, self.paths, &captures)?;
        }
        record.progress = state::Progress::Up;
        record.write(self.paths)?;
        let sources = traffic::sources(self.paths, &self.loaded.topology, &self.loaded.plan);
        if !sources.is_empty() {
            traffic::start(&agent::segue()?, self.paths, &sources)?;
        }
        Ok(record)
    }

    /// The lab's files, before anything else: from here on `lab list` knows about it.
    fn begin_record(&self, spaces: &[Space<'_>]) -> Result<LabRecord> {
        let directory = &self.paths.directory;
        fs::create_dir_all(directory).map_err(LabError::io("make directory", directory, AS_ROOT))?;
        state::write_file(&directory.join("topology.yaml"), &self.loaded.text)?;
        state::write_file(&directory.join("plan.json"), &state::json(&self.loaded.plan))?;
        service::write(self.paths, self.loaded)?;
        state::write_file(&directory.join(labels::FILE), &state::json(&Labels::of(&self.loaded.plan)))?;
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
        self.each(spaces, |space, namespace| {
            Namespace::make(namespace)?;
            network::mark(namespace, &names::mark(&self.paths.lab, space.name))?;
            space.network.before_links(namespace)
        })?;
        self.functions("namespaces of functions", |runtime, function| runtime.prepare(function))
    }

    /// Each step everywhere before the next one: it needs the other ends.
    fn links(&self, spaces: &[Space<'_>]) -> Result<()> {
        self.progress.begin("links", spaces.len());
        self.each(spaces, |space, namespace| {
            network::batch(namespace, &[], &wiring::links_batch(self.paths, &self.loaded.plan, space))
        })?;
        let relayed = relay::links(self.paths, &self.loaded.plan);
        if !relayed.is_empty() {
            relay::start(&agent::segue()?, self.paths, &relayed)?;
        }
        self.functions("links to functions", |runtime, function| runtime.attach(function))?;
        self.progress.begin("links up", 2 * spaces.len());
        self.each(spaces, |space, namespace| space.network.bring_up(namespace))
    }

    fn addresses_and_routes(&self, spaces: &[Space<'_>]) -> Result<()> {
        self.progress.begin("addresses and routes", 2 * spaces.len());
        self.each(spaces, |space, namespace| space.network.assign(namespace))?;
        self.each(spaces, |space, namespace| space.network.route(namespace))
    }

    /// One step of the functions.
    fn functions(
        &self,
        what: &'static str,
        step: impl Fn(&dyn Runtime, &Function) -> segue_function::Result<()> + Sync,
    ) -> Result<()> {
        self.progress.begin(what, self.functions.len());
        parallel::each(self.functions, |function| {
            step(function.runtime(), function).map_err(of_topology)?;
            self.progress.step()
        })?;
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
        self.progress.begin("commands", self.functions.len());
        for function in self.functions {
            let commands = self.loaded.topology.functions.get(&function.name).map(|topology| topology.commands());
            for line in commands.into_iter().flatten() {
                function.runtime().execute(function, line)?;
            }
            self.progress.step()?;
        }
        Ok(())
    }

    fn each(
        &self,
        spaces: &[Space<'_>],
        work: impl Fn(&Space<'_>, &str) -> segue_host::Result<()> + Sync,
    ) -> Result<()> {
        parallel::each(spaces, |space| {
            work(space, &self.paths.namespace(space.name)).map_err(refused)?;
            self.progress.step()
        })?;
        Ok(())
    }
}

/// What the kernel refused of a node's or host's network, which nobody but the planner has written.
fn refused(error: HostError) -> LabError {
    match error {
        HostError::Command { .. } => error.remedied(REPORT).into(),
        other => other.into(),
    }
}

/// What can be done in the topology about a function's failure.
fn of_topology(error: FunctionError) -> LabError {
    match error {
        FunctionError::Host(HostError::Io { what: "set sysctl", .. }) => {
            let remedy = "fix `sysctls` in the topology: the kernel does not have this one, or not this value";
            error.remedied(remedy).into()
        }
        other => other.into(),
    }
}
