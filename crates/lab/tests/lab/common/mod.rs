//! What the lab's tests with root share: labs that take themselves down, and topologies with names of their own.

pub mod agent;
pub mod group;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use segue_host::Run;
use segue_lab::names::{LabPaths, Roots};
use segue_lab::progress::Progress;
use segue_lab::state::LabRecord;
use segue_lab::{down, exec, netns, up};
use tempfile::TempDir;

/// A lab name that no other test and no other run uses.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}{:x}{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Root and the agent's program are what these tests are about; without them they fail rather than pass for nothing.
pub fn need_root() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root (./x test)");
}

/// A topology file in a directory of its own.
pub struct File {
    pub path: PathBuf,
    _directory: TempDir,
}

pub fn topology_file(text: &str) -> File {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("topology.yaml");
    std::fs::write(&path, text).unwrap();
    File { path, _directory: directory }
}

/// A lab that is up, and that goes down with the test however it ends.
pub struct TestLab {
    pub name: String,
    pub record: LabRecord,
    pub loaded: up::Loaded,
    pub roots: Roots,
    /// Its topology's, which other files lie beside.
    _file: File,
}

impl TestLab {
    /// Brings up a topology of which `text` is everything but the name.
    pub fn up(stem: &str, text: &str) -> Self {
        Self::up_beside(stem, text, &[])
    }

    /// As [`TestLab::up`], with files of these names and texts beside the topology's.
    pub fn up_with(stem: &str, text: &str, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let written = files.iter().map(|(name, text)| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        Self::up_beside(stem, text, &written.collect::<Vec<_>>())
    }

    /// Brings an example up under a name of its own; files beside it that are called like it go along.
    pub fn example(name: &str) -> Self {
        let text = std::fs::read_to_string(repository(&format!("examples/{name}.yaml"))).unwrap();
        let line = format!("name: {name}\n");
        assert!(text.contains(&line), "{name} has its name on a line of its own");
        let beside = std::fs::read_dir(repository("examples")).unwrap().map(|entry| entry.unwrap().path());
        let beside: Vec<_> = beside.filter(|path| path.file_stem().is_some_and(|stem| stem == name)).collect();
        Self::up_beside(&name[..3], &text.replace(&line, ""), &beside)
    }

    /// As [`TestLab::up`], with copies of these files beside the topology's.
    fn up_beside(stem: &str, text: &str, files: &[PathBuf]) -> Self {
        need_root();
        let name = unique(stem);
        let file = topology_file(&format!("name: {name}\n{text}"));
        for path in files {
            std::fs::copy(path, file.path.parent().unwrap().join(path.file_name().unwrap())).unwrap();
        }
        let loaded = up::load(&file.path).unwrap_or_else(|error| panic!("{error}"));
        let roots = Roots::default();
        let record = up::up(&roots, &loaded, &Progress::silent()).unwrap_or_else(|error| panic!("{error}"));
        Self { name, record, loaded, roots, _file: file }
    }

    pub fn paths(&self) -> LabPaths {
        LabPaths::new(&self.roots, &self.name).unwrap()
    }

    pub fn namespace(&self, node: &str) -> String {
        self.paths().namespace(node)
    }

    /// Runs a shell line inside a node and returns what it printed.
    pub fn sh(&self, node: &str, line: &str) -> String {
        Run::new("sh", ["-c", line]).inside(&self.namespace(node)).text().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a shell line inside a node and returns whether it succeeded.
    pub fn try_sh(&self, node: &str, line: &str) -> bool {
        exec::exec(&self.roots, &self.name, node, &["sh".into(), "-c".into(), format!("{{ {line}; }} >/dev/null 2>&1")])
            .unwrap()
            == 0
    }

    /// The IPv4 and IPv6 address of a host.
    pub fn addresses(&self, host: &str) -> [String; 2] {
        let host = &self.loaded.plan.hosts[host];
        [host.ipv4().unwrap().to_string(), host.ipv6().unwrap().to_string()]
    }

    /// Takes it down, and checks that nothing is left.
    pub fn down(self) {
        let (name, roots) = (self.name.clone(), self.roots.clone());
        drop(self);
        assert_nothing_left(&roots, &name);
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in &self.record.nodes {
                let log = std::fs::read_to_string(self.paths().file(&node.name, "log")).unwrap_or_default();
                if !log.is_empty() {
                    eprintln!("--- log of {}:\n{log}", node.name);
                }
                let namespace = self.namespace(&node.name);
                for line in ["ip neigh", "ip -s link", "nstat -as"] {
                    let run = Run::new("sh", ["-c", line]).inside(&namespace);
                    eprintln!("--- {}: {line}:\n{}", node.name, run.text().unwrap_or_else(|error| error.to_string()));
                }
                let socket = self.paths().socket(&node.name);
                if let Ok(report) = segue_lab::agent::get(&socket, &node.name, segue_lab::agent::REPORT) {
                    eprintln!("--- {}: {report}", node.name);
                }
            }
        }
        if let Err(error) = down::down(&self.roots, &self.name) {
            eprintln!("{error}");
        }
    }
}

/// No namespace, no pin, no file of that lab.
pub fn assert_nothing_left(roots: &Roots, lab: &str) {
    let paths = LabPaths::new(roots, lab).unwrap();
    let prefix = format!("sg-{lab}-");
    let namespaces: Vec<String> = netns::all().into_iter().filter(|name| name.starts_with(&prefix)).collect();
    assert!(namespaces.is_empty(), "left: {namespaces:?}");
    for path in [&paths.directory, &paths.pins, &paths.lock] {
        assert!(!path.exists(), "left: {}", path.display());
    }
}

/// Path of a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
