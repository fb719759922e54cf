//! `lab down`: removes everything of a lab, from the names on the system alone if need be.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::{netns, state};

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The lab.
    pub lab: String,
    /// Network namespaces, and with them their links, addresses and routes.
    pub namespaces: usize,
    /// Processes ended.
    pub processes: usize,
    /// Pinned BPF objects.
    pub pins: usize,
}

impl Removed {
    /// Whether there was nothing to remove.
    #[must_use]
    pub fn nothing(&self) -> bool {
        self.namespaces == 0 && self.processes == 0 && self.pins == 0
    }
}

/// Names of all labs of which anything is there.
#[must_use]
pub fn known_labs(roots: &Roots) -> Vec<String> {
    let mut labs: BTreeSet<String> = state::recorded_labs(roots).into_iter().collect();
    labs.extend(state::pinned_labs(roots));
    labs.extend(netns::marked().into_keys());
    labs.into_iter().collect()
}

/// Removes everything of a lab. Does nothing, successfully, if there is nothing.
///
/// # Errors
/// [`LabError::Busy`] while another process works on the lab; [`LabError::Leftover`] if something could not be removed.
pub fn down(roots: &Roots, lab: &str) -> Result<Removed> {
    let paths = LabPaths::new(roots, lab)?;
    let lock = state::Lock::take(roots, &paths)?;
    let removed = remove(roots, &paths)?;
    drop(lock);
    Ok(removed)
}

/// Removes everything of a lab whose lock the caller holds.
///
/// # Errors
/// As [`down`].
pub fn remove(roots: &Roots, paths: &LabPaths) -> Result<Removed> {
    let namespaces = netns::of_lab(roots, &paths.lab);
    let identities: HashSet<_> = namespaces.keys().filter_map(|namespace| netns::identity(namespace)).collect();
    let mut removed = Removed { lab: paths.lab.clone(), ..Removed::default() };
    // Agents first: one that lives would pin again, or complain about its namespace.
    removed.processes = netns::end_processes(&identities, Duration::from_secs(2));
    removed.pins = count_files(&paths.pins);
    remove_pins(&paths.pins)?;
    removed.namespaces = namespaces.len();
    segue_host::namespace::remove_all(namespaces.keys().map(String::as_str))?;
    remove_tree(&paths.directory)?;
    let left = leftovers(roots, paths, &identities);
    if left.is_empty() {
        return Ok(removed);
    }
    Err(LabError::Leftover { lab: paths.lab.clone(), left: left.join(", ") })
}

/// What is still there of a lab, in words. `identities` are its former namespaces, for processes that still live in them.
#[must_use]
pub fn leftovers(roots: &Roots, paths: &LabPaths, identities: &HashSet<netns::Identity>) -> Vec<String> {
    let mut left: Vec<String> =
        netns::of_lab(roots, &paths.lab).keys().map(|name| format!("namespace {name}")).collect();
    left.extend(netns::processes(identities).iter().map(|(pid, _)| format!("process {pid}")));
    for path in [&paths.pins, &paths.directory] {
        if path.exists() {
            left.push(path.display().to_string());
        }
    }
    left
}

/// Nodes whose pins go at once: each has some fifteen programs.
const PORTION: usize = 16;

/// Removes what the agents have pinned, by portions: a kernel that is to free thousands of programs at once may never come back
/// ([`segue_host::settle`]).
fn remove_pins(pins: &Path) -> Result<()> {
    let nodes: Vec<_> = fs::read_dir(pins).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    for (number, portion) in nodes.chunks(PORTION).enumerate() {
        if number > 0 {
            segue_host::settle::programs_freed();
        }
        // None, but in tests.
        let mut removed = portion.iter().filter(|node| node.is_dir() && !segue_host::idle::leave(node));
        removed.try_for_each(|node| remove_tree(node))?;
    }
    remove_tree(pins)
}

fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(LabError::io("remove", path, "check that you are root and that no process uses it")(error))
        }
        _ => Ok(()),
    }
}

fn count_files(path: &Path) -> usize {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count_files(&entry.path()),
            _ => 1,
        })
        .sum()
}
