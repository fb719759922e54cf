//! Names of what a lab makes on the system. Everything here is pure.

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};

/// Where the lab's files and the agents' pins lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// One directory per lab.
    pub state: PathBuf,
    /// Mount point of the BPF file system.
    pub bpf_mount: PathBuf,
    /// One directory of pins per lab, apart from what agents outside labs pin.
    pub bpf: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        let bpf_mount = PathBuf::from("/run/segue/bpf");
        Self { state: PathBuf::from("/run/segue/lab"), bpf: bpf_mount.join("lab"), bpf_mount }
    }
}

/// Names of one lab's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabPaths {
    /// The lab's name.
    pub lab: String,
    /// The lab's files.
    pub directory: PathBuf,
    /// Pins of its agents.
    pub pins: PathBuf,
    /// Held while the lab is brought up or taken down.
    pub lock: PathBuf,
}

impl LabPaths {
    /// The names of lab `lab`.
    ///
    /// # Errors
    /// [`LabError::Name`] if the name cannot be part of a path.
    pub fn new(roots: &Roots, lab: &str) -> Result<Self> {
        check("lab", lab)?;
        Ok(Self {
            lab: lab.to_owned(),
            directory: roots.state.join(lab),
            pins: roots.bpf.join(lab),
            lock: roots.state.join(format!(".{lab}.lock")),
        })
    }

    /// Network namespace of a node.
    #[must_use]
    pub fn namespace(&self, node: &str) -> String {
        format!("{}{node}", namespace_prefix(&self.lab))
    }

    /// Socket of a node's agent.
    #[must_use]
    pub fn socket(&self, node: &str) -> PathBuf {
        self.directory.join(format!("{node}.sock"))
    }

    /// A file that belongs to a node, such as its agent's log.
    #[must_use]
    pub fn file(&self, node: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{node}.{extension}"))
    }

    /// Directory of the lab's records.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.directory.join("lab.json")
    }

    /// Where a node's agent pins its programs and maps.
    #[must_use]
    pub fn pin_directory(&self, node: &str) -> PathBuf {
        self.pins.join(node)
    }
}

/// What the namespaces of a lab start with.
#[must_use]
pub fn namespace_prefix(lab: &str) -> String {
    format!("sg-{lab}-")
}

/// Alias of the `lo` interface in a node's namespace: says whose it is, since `sg-a-b-c` could be node `b-c` of lab `a`
/// or node `c` of lab `a-b`.
#[must_use]
pub fn mark(lab: &str, node: &str) -> String {
    format!("segue lab={lab} node={node}")
}

/// Lab and node of a [`mark`].
#[must_use]
pub fn parse_mark(mark: &str) -> Option<(&str, &str)> {
    let rest = mark.strip_prefix("segue lab=")?;
    rest.split_once(" node=")
}

/// Checks that a lab's or node's name can be part of a namespace's name and of a path.
///
/// # Errors
/// [`LabError::Name`].
pub fn check(kind: &'static str, name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > 64 {
        "it has more than 64 characters"
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it does not start with a letter or digit"
    } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        "it contains other characters"
    } else {
        return Ok(());
    };
    Err(LabError::Name { kind, name: name.to_owned(), reason })
}

/// Whether an argument of `lab down` and the like means a file rather than a lab's name.
#[must_use]
pub fn is_file_argument(argument: &str) -> bool {
    argument.contains('/') || Path::new(argument).extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let paths = LabPaths::new(&Roots::default(), "main-job").unwrap();
        assert_eq!(paths.namespace("edge1"), "sg-main-job-edge1");
        assert_eq!(paths.socket("edge1"), Path::new("/run/segue/lab/main-job/edge1.sock"));
        assert_eq!(paths.pin_directory("edge1"), Path::new("/run/segue/bpf/lab/main-job/edge1"));
    }

    #[test]
    fn names_that_leave_their_directory_are_refused() {
        for bad in ["", "..", "a/b", "-a", "a b", ".hidden", "ä", &"x".repeat(65)] {
            assert!(LabPaths::new(&Roots::default(), bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["a", "main-job", "x_1.y", "1"] {
            assert!(LabPaths::new(&Roots::default(), good).is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn mark_round_trip() {
        assert_eq!(parse_mark(&mark("a-b", "c")), Some(("a-b", "c")));
        assert_eq!(parse_mark("something else"), None);
    }

    #[test]
    fn files_and_names_are_told_apart() {
        assert!(is_file_argument("main.yaml"));
        assert!(is_file_argument("./main"));
        assert!(!is_file_argument("main-job"));
        assert!(!is_file_argument("v1.2"));
    }
}
