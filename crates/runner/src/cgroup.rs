//! Limits of memory and processor time, by a control group: of version 2 where it has the controllers, else of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a service may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// MiB of memory, 16 to 1,048,576; the kernel ends a service that needs more. Its rings need 4 KiB for each of `ring_size` times (workers +
    /// 2) packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Processors' time, in hundredths of one: 150 is one and a half. 1 to 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_percent: Option<u32>,
}

/// Microseconds in which processor time is counted.
const PERIOD: u64 = 100_000;
/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Below the root of a hierarchy: those of Segue.
const OURS: &str = "segue";

impl Limits {
    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// One or two directories, which hold this process; it leaves them when the value goes.
pub(crate) struct ControlGroup {
    directories: Vec<PathBuf>,
}

impl ControlGroup {
    /// Makes a group for a name, and enters it with all threads that are there.
    ///
    /// # Errors
    /// Why there is none: what the host lacks, and what to do.
    pub(crate) fn enter(name: &str, limits: Limits) -> Result<Self, String> {
        let mut group = Self { directories: Vec::new() };
        let root = Path::new(ROOT);
        let version2 =
            [root.to_owned(), root.join("unified")].into_iter().find(|root| has_controllers(root, &["cpu", "memory"]));
        match version2 {
            Some(root) => group.version2(&root, name, limits)?,
            None => group.version1(root, name, limits)?,
        }
        Ok(group)
    }

    fn version2(&mut self, root: &Path, name: &str, limits: Limits) -> Result<(), String> {
        let ours = root.join(OURS);
        for directory in [root, &ours] {
            make(directory)?;
            write(&directory.join("cgroup.subtree_control"), "+cpu +memory")?;
        }
        let group = ours.join(name);
        make(&group)?;
        self.directories.push(group.clone());
        if let Some(mib) = limits.memory_mib {
            write(&group.join("memory.max"), &octets(mib).to_string())?;
            // Swapping would only make it slow; not every host has it.
            let _ = fs::write(group.join("memory.swap.max"), "0");
        }
        if let Some(percent) = limits.processor_percent {
            write(&group.join("cpu.max"), &format!("{} {PERIOD}", quota(percent)))?;
        }
        write(&group.join("cgroup.procs"), "0")
    }

    fn version1(&mut self, root: &Path, name: &str, limits: Limits) -> Result<(), String> {
        let remedy =
            "the host has neither control groups of version 2 with the controllers cpu and memory, nor of version 1";
        if let Some(mib) = limits.memory_mib {
            let group = self.of_version1(&root.join("memory"), name).map_err(|why| format!("{why}: {remedy}"))?;
            write(&group.join("memory.limit_in_bytes"), &octets(mib).to_string())?;
            write(&group.join("cgroup.procs"), "0")?;
        }
        if let Some(percent) = limits.processor_percent {
            let group = self.of_version1(&root.join("cpu"), name).map_err(|why| format!("{why}: {remedy}"))?;
            write(&group.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
            write(&group.join("cpu.cfs_quota_us"), &quota(percent).to_string())?;
            write(&group.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    fn of_version1(&mut self, hierarchy: &Path, name: &str) -> Result<PathBuf, String> {
        if !hierarchy.join("cgroup.procs").exists() {
            return Err(format!("{} is no hierarchy of control groups", hierarchy.display()));
        }
        let ours = hierarchy.join(OURS);
        make(&ours)?;
        let group = ours.join(name);
        make(&group)?;
        self.directories.push(group.clone());
        Ok(group)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> Option<String> {
        self.directories.first().map(|directory| directory.display().to_string())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // Up to the root of the hierarchy: processes in `segue` itself would be in nobody's group.
            if let Some(root) = directory.ancestors().nth(2) {
                let _ = fs::write(root.join("cgroup.procs"), "0");
            }
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Removes what a service of this name has left that was killed. What is in use stays.
pub(crate) fn remove(name: &str) {
    for hierarchy in ["", "unified", "memory", "cpu"] {
        let _ = fs::remove_dir(Path::new(ROOT).join(hierarchy).join(OURS).join(name));
    }
}

fn has_controllers(root: &Path, wanted: &[&str]) -> bool {
    let there = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    wanted.iter().all(|wanted| there.split_whitespace().any(|there| there == *wanted))
}

fn octets(mib: u32) -> u64 {
    u64::from(mib) << 20
}

fn quota(percent: u32) -> u64 {
    // The kernel takes no less.
    (u64::from(percent) * PERIOD / 100).max(1000)
}

fn make(directory: &Path) -> Result<(), String> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot make {}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {text:?} to {}: {error}", file.display()))
}
