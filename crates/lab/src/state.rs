//! The lab's own record on disk: what was made, for `list`, `exec` and `capture`. `down` works without it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::names::{self, LabPaths, Roots};

/// What a namespace of a lab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A node with Segue's data plane and agent.
    Segue,
    /// A node with the kernel's `seg6` and `seg6local`.
    Kernel,
    /// A node that routes plain IPv6.
    Plain,
    /// A host.
    Host,
    /// A network function.
    Function,
    /// A firewall in the data plane of its node: the namespace is the node's.
    Firewall,
    /// A function behind TAP devices of its node: the namespace is the node's.
    Tap,
}

impl Kind {
    /// Whether it is a network function, wherever that runs.
    #[must_use]
    pub fn is_function(self) -> bool {
        matches!(self, Self::Function | Self::Firewall | Self::Tap)
    }

    /// As in the record and in displays.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Segue => "segue",
            Self::Kernel => "kernel",
            Self::Plain => "plain",
            Self::Host => "host",
            Self::Function => "function",
            Self::Firewall => "firewall",
            Self::Tap => "tap",
        }
    }
}

/// How far `lab up` came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// `up` has begun and has not finished.
    Starting,
    /// Everything is up.
    Up,
}

/// One namespace of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name in the topology.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its network namespace; of a firewall, that of its node.
    pub namespace: String,
    /// Its interfaces, without `lo`.
    pub ports: Vec<String>,
    /// Socket of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Process number of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<i32>,
}

impl NodeRecord {
    /// Whether it has a network namespace of its own.
    #[must_use]
    pub fn has_namespace(&self) -> bool {
        !matches!(self.kind, Kind::Firewall | Kind::Tap)
    }
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabRecord {
    /// Its name.
    pub lab: String,
    /// The file that it was made from.
    pub file: PathBuf,
    /// How far `up` came.
    pub progress: Progress,
    /// Its namespaces in the order of the file, then functions that have none.
    pub nodes: Vec<NodeRecord>,
}

impl LabRecord {
    /// Reads the record of a lab; `None` if there is none or it is broken.
    #[must_use]
    pub fn read(paths: &LabPaths) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(paths.record()).ok()?).ok()
    }

    /// Writes the record; a reader sees the old or the new one.
    ///
    /// # Errors
    /// If the file system does not let it.
    pub fn write(&self, paths: &LabPaths) -> Result<()> {
        write_file(&paths.record(), &json(self))
    }

    /// How many namespaces the lab has.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.nodes.iter().filter(|node| !matches!(node.kind, Kind::Firewall | Kind::Tap)).count()
    }

    /// A node of the lab.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`] with the names that exist.
    pub fn node(&self, name: &str) -> Result<&NodeRecord> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| LabError::NoSuchNode {
            lab: self.lab.clone(),
            node: name.to_owned(),
            known: self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Pretty JSON of a value that cannot fail to be JSON.
#[must_use]
pub fn json<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    text.push('\n');
    text
}

/// Writes a file so that a reader sees the old or the new content.
///
/// # Errors
/// If the file system does not let it.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    let remedy = "check that the file system has space and that you are root";
    fs::write(&beside, text).map_err(LabError::io("write", &beside, remedy))?;
    fs::rename(&beside, path).map_err(LabError::io("write", path, remedy))
}

/// Names of labs that have a directory.
#[must_use]
pub fn recorded_labs(roots: &Roots) -> Vec<String> {
    labs_in(&roots.state)
}

fn labs_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut labs: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| names::check("lab", name).is_ok())
        .collect();
    labs.sort();
    labs
}

/// Names of labs that left pins, whatever became of the rest.
#[must_use]
pub fn pinned_labs(roots: &Roots) -> Vec<String> {
    labs_in(&roots.bpf)
}

/// The lock of a lab, held until dropped (or until the process ends, however it does).
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: Flock<fs::File>,
}

impl Lock {
    /// Takes the lab's lock.
    ///
    /// # Errors
    /// [`LabError::Busy`] if another process holds it.
    pub fn take(roots: &Roots, paths: &LabPaths) -> Result<Self> {
        let remedy = "check that you are root";
        let path = &paths.lock;
        fs::create_dir_all(&roots.state).map_err(LabError::io("make directory", &roots.state, remedy))?;
        loop {
            let opened = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
            let file = opened.map_err(LabError::io("open", path, remedy))?;
            let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
                return Err(LabError::Busy { lab: paths.lab.clone(), lock: path.clone() });
            };
            let locked = file.metadata().map_err(LabError::io("look at", path, remedy))?;
            // Its last holder may have removed the file between our opening and locking it.
            if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
                return Ok(Self { path: path.clone(), _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked here, so nobody else's lock goes away.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(directory: &Path) -> Roots {
        Roots { state: directory.join("lab"), bpf: directory.join("bpf/lab"), bpf_mount: directory.join("bpf") }
    }

    #[test]
    fn record_survives_a_round_trip_and_names_unknown_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let roots = roots(directory.path());
        let paths = LabPaths::new(&roots, "x").unwrap();
        fs::create_dir_all(&paths.directory).unwrap();
        assert!(LabRecord::read(&paths).is_none());
        let record = LabRecord {
            lab: "x".into(),
            file: "x.yaml".into(),
            progress: Progress::Up,
            nodes: vec![NodeRecord {
                name: "a".into(),
                kind: Kind::Segue,
                namespace: "sg-x-a".into(),
                ports: vec!["p".into()],
                socket: Some(paths.socket("a")),
                agent: Some(7),
            }],
        };
        record.write(&paths).unwrap();
        assert_eq!(LabRecord::read(&paths), Some(record.clone()));
        assert_eq!(recorded_labs(&roots), ["x"]);
        let error = record.node("b").unwrap_err().to_string();
        assert!(error.contains('b') && error.contains("choose one of: a"), "{error}");
    }

    #[test]
    fn only_one_process_works_on_a_lab() {
        let directory = tempfile::tempdir().unwrap();
        let roots = roots(directory.path());
        let paths = LabPaths::new(&roots, "x").unwrap();
        let held = Lock::take(&roots, &paths).unwrap();
        assert!(matches!(Lock::take(&roots, &paths), Err(LabError::Busy { .. })));
        drop(held);
        Lock::take(&roots, &paths).unwrap();
    }
}
