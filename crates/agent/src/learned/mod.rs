//! Labels that a routing protocol has handed out, learned from where FRR's zebra puts them.
//!
//! # Promise
//!
//! What is configured holds, whatever is learned. All that is learned from a source at one instant is applied at once, or nothing of it.
//! What cannot be applied is told, label by label, with the reason; a source that cannot be read, makes no sense or has too much changes
//! nothing until its hold time is over.
//!
//! # Data structures
//!
//! A [`Table`] is what a source says ([`frr`]: FRR's own words; the kernel's come from `kernel/mpls.rs`). [`resolve`] makes of it the
//! [`segue_model::node::Label`]s that an operator would write for this node, and what it refuses. [`watch`] reads the source again.
//!
//! # What it is not
//!
//! It speaks no routing protocol, and tells no one what labels this node has.

mod frr;
mod resolve;
pub mod watch;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::{fs, io};

use segue_model::node::{Label, Learn, NodeState};

pub use self::resolve::{Refused, Resolved, resolve};
use crate::problem::Problem;

/// Ways that labels have at most, on average: each is an entry of the data plane.
const WAYS_PER_LABEL: usize = 4;
/// Characters of what is said of a file.
const MESSAGE_MAX: usize = 200;
/// Octets of the largest file that is read.
const FILE_MAX: u64 = 64 << 20;

/// One way that packets with a label may go.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// What stands in the label's place, the first one first; none of them, or 3, is nothing.
    pub out: Vec<u32>,
    /// The neighbour.
    pub next_hop: Option<IpAddr>,
    /// Name of the interface.
    pub interface: Option<String>,
}

/// What is said of one label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Who handed it out, in the source's words.
    pub by: String,
    /// Equal ways.
    pub ways: Vec<Way>,
}

/// What a source says, by label.
pub type Table = BTreeMap<u32, Row>;

/// What is known from a source.
#[derive(Debug, Clone)]
pub struct Learned {
    /// The source.
    pub from: Learn,
    /// What it said when it could be read last.
    pub table: Arc<Table>,
    /// What that means to the node.
    pub labels: Arc<[Label]>,
    /// What of it is not done.
    pub refused: Arc<[Refused]>,
    /// Why it cannot be followed now.
    pub problem: Option<Problem>,
}

impl Learned {
    /// From what reading it has come to, for the first time.
    pub fn new(from: &Learn, read: Result<Table, Problem>) -> Self {
        let (table, problem) = match read {
            Ok(table) => (table, None),
            Err(problem) => (Table::new(), Some(problem)),
        };
        let (labels, refused) = (Arc::default(), Arc::default());
        Self { from: from.clone(), table: Arc::new(table), labels, refused, problem }
    }

    /// The same for a node that says otherwise how much is learned, and how long that holds.
    pub fn with_limits(&self, from: &Learn) -> Self {
        let mut learned = Self { from: from.clone(), ..self.clone() };
        if let Err(problem) = is_bounded(from, &self.table) {
            (learned.table, learned.problem) = (Arc::default(), Some(problem));
        }
        learned
    }

    /// The same as what it means to the node that is to be as `state` says.
    pub fn resolved(self, state: &NodeState) -> Self {
        let Resolved { labels, refused } = resolve(state, &self.table);
        Self { labels: labels.into(), refused: refused.into(), ..self }
    }

    /// Has the log say what differs from `before`.
    pub fn tell(&self, before: &Self) {
        match (&self.problem, &before.problem) {
            (Some(problem), known) if known.as_ref() != Some(problem) => {
                tracing::warn!("{problem}; what was learned before holds for {} s", self.from.hold_time());
            }
            (None, Some(_)) => tracing::info!("{}: labels are learned again", self.from.key()),
            _ => {}
        }
        if self.table.is_empty() && !before.table.is_empty() {
            tracing::warn!("{}: no labels are learned any more", self.from.key());
        }
    }
}

/// Refuses a table with more labels than are wanted.
///
/// # Errors
/// How many there are.
pub fn bounded(from: &Learn, table: Table) -> Result<Table, Problem> {
    is_bounded(from, &table).map(|()| table)
}

fn is_bounded(from: &Learn, table: &Table) -> Result<(), Problem> {
    let ways: usize = table.values().map(|row| row.ways.len()).sum();
    let (labels_max, ways_max) = (from.max_labels(), WAYS_PER_LABEL * from.max_labels());
    let message = if table.len() > labels_max {
        format!("there are {} labels, and {labels_max} are taken at most", table.len())
    } else if ways > ways_max {
        format!("the labels have {ways} ways, and {ways_max} are taken at most")
    } else {
        return Ok(());
    };
    Err(Problem::new(from.key(), message, "raise `mpls.learn.max_labels`, or look who hands out so many"))
}

/// Reads a file of FRR's words.
///
/// # Errors
/// A file that cannot be read, or says something else, with the line.
pub fn read_file(from: &Learn, path: &str) -> Result<Table, Problem> {
    let text = text_of(path).map_err(|error| {
        let remedy = "write there what `vtysh -c 'show mpls table json'` prints, so that segued can read it";
        Problem { file: Some(path.to_owned()), ..Problem::new(from.key(), error.to_string(), remedy) }
    })?;
    let table = frr::parse(&text).map_err(|error| {
        let remedy =
            "let FRR write it (`vtysh -c 'show mpls table json'`), whole: into another file that is renamed then";
        let line = u64::try_from(error.line()).ok().filter(|line| *line > 0);
        // It may quote what it found.
        let message: String = error.to_string().chars().take(MESSAGE_MAX).collect();
        Problem { file: Some(path.to_owned()), line, ..Problem::new(from.key(), message, remedy) }
    })?;
    bounded(from, table)
}

fn text_of(path: &str) -> io::Result<String> {
    // Whoever may write there might put something there that never ends, or never begins.
    let file = fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    if file.take(FILE_MAX + 1).read_to_string(&mut text)? as u64 > FILE_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_MAX} octets")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(path: &str) -> Learn {
        Learn { kernel: false, file: Some(path.to_owned()), max_labels: Some(2), hold_time: None }
    }

    fn read(text: &str) -> Result<Table, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("labels.json").display().to_string();
        fs::write(&path, text).unwrap();
        read_file(&from(&path), &path)
    }

    #[test]
    fn a_bad_file_is_told_with_its_line() {
        let row = |label: u32| format!("\"{label}\":{{\"inLabel\":{label},\"nexthops\":[]}}");
        assert_eq!(read("{}\n").unwrap(), Table::new());
        let problem = read("{\n").unwrap_err();
        assert_eq!((problem.key.as_str(), problem.line), ("mpls.learn.file", Some(2)), "{problem}");
        assert!(problem.file.is_some(), "{problem}");
        let problem = read(&format!("{{{},{},{}}}", row(16), row(17), row(18))).unwrap_err();
        assert!(problem.message.contains("3 labels"), "{problem}");
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe").display().to_string();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in ["/", &pipe] {
            let problem = read_file(&from(path), path).unwrap_err();
            assert!(problem.message.contains("no regular file"), "{problem}");
        }
        let hops: String = (1..10).map(|last| format!("{{\"nexthop\":\"10.0.0.{last}\"}},")).collect();
        let ways = format!("{{\"16\":{{\"inLabel\":16,\"nexthops\":[{}]}}}}", hops.trim_end_matches(','));
        let problem = read(&ways).unwrap_err();
        assert!(problem.message.contains("9 ways, and 8"), "{problem}");
        let problem = read(&format!("{{\"16\":\"{}\"}}", "a".repeat(1000))).unwrap_err();
        assert!(problem.message.len() <= MESSAGE_MAX, "{problem}");
        let problem = read_file(&from("/x"), "/there/is/none").unwrap_err();
        assert!(problem.message.contains("No such file"), "{problem}");
    }
}
