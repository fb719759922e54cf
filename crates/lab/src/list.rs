//! `lab list`: the labs of this machine.

use std::collections::HashSet;

use serde::Serialize;

use crate::names::{LabPaths, Roots};
use crate::state::{LabRecord, Progress};
use crate::{down, netns};

/// Condition of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// All namespaces and agents are there.
    Up,
    /// `lab up` has not finished; it runs still, or died.
    Starting,
    /// Some namespaces or agents are missing.
    Degraded,
    /// There is no record, only parts on the system: `lab down` removes them.
    Leftover,
}

impl Condition {
    /// For tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Starting => "starting",
            Self::Degraded => "degraded",
            Self::Leftover => "leftover",
        }
    }
}

/// A namespace of a lab, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Its name in the topology.
    pub name: String,
    /// What it is: `segue`, `kernel`, `plain`, `host`, `function`; `unknown` without a record.
    pub kind: &'static str,
    /// Its network namespace.
    pub namespace: String,
    /// Whether the namespace is there, and the agent alive if it has one.
    pub up: bool,
    /// Socket of its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Process number of its agent, if it lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<i32>,
}

/// A lab, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabStatus {
    /// Its name.
    pub lab: String,
    /// Its condition.
    pub condition: Condition,
    /// The file that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its namespaces.
    pub nodes: Vec<NodeStatus>,
}

/// All labs of this machine, also broken ones.
#[must_use]
pub fn list(roots: &Roots) -> Vec<LabStatus> {
    down::known_labs(roots).iter().filter_map(|lab| status(roots, lab)).collect()
}

/// One lab; `None` if its name cannot be one.
#[must_use]
pub fn status(roots: &Roots, lab: &str) -> Option<LabStatus> {
    let paths = LabPaths::new(roots, lab).ok()?;
    let Some(record) = LabRecord::read(&paths) else {
        let nodes = netns::of_lab(roots, lab)
            .into_iter()
            .map(|(namespace, name)| NodeStatus {
                name,
                kind: "unknown",
                namespace,
                up: true,
                socket: None,
                agent: None,
            })
            .collect();
        return Some(LabStatus { lab: lab.to_owned(), condition: Condition::Leftover, file: None, nodes });
    };
    let nodes: Vec<NodeStatus> = record
        .nodes
        .iter()
        .map(|node| {
            let identity = netns::identity(&node.namespace);
            let alive = node.agent.filter(|pid| lives_in(*pid, identity));
            NodeStatus {
                name: node.name.clone(),
                kind: node.kind.name(),
                namespace: node.namespace.clone(),
                up: identity.is_some() && (node.socket.is_none() || alive.is_some()),
                socket: node.socket.as_ref().map(|path| path.display().to_string()),
                agent: alive,
            }
        })
        .collect();
    let condition = match record.progress {
        Progress::Starting => Condition::Starting,
        Progress::Up if nodes.iter().all(|node| node.up) => Condition::Up,
        Progress::Up => Condition::Degraded,
    };
    Some(LabStatus { lab: record.lab, condition, file: Some(record.file.display().to_string()), nodes })
}

/// Whether a process number still means a process in that namespace.
fn lives_in(pid: i32, identity: Option<netns::Identity>) -> bool {
    let Some(identity) = identity else { return false };
    netns::processes(&HashSet::from([identity])).iter().any(|(process, _)| process.as_raw() == pid)
}

/// A table for people.
#[must_use]
pub fn table(labs: &[LabStatus]) -> String {
    let mut rows =
        vec![["LAB".to_owned(), "NODE".into(), "KIND".into(), "STATE".into(), "AGENT".into(), "SOCKET".into()]];
    for lab in labs {
        rows.push([
            lab.lab.clone(),
            String::new(),
            String::new(),
            lab.condition.name().into(),
            String::new(),
            String::new(),
        ]);
        for node in &lab.nodes {
            rows.push([
                String::new(),
                node.name.clone(),
                node.kind.to_owned(),
                if node.up { "up" } else { "down" }.to_owned(),
                node.agent.map(|pid| pid.to_string()).unwrap_or_default(),
                node.socket.clone().unwrap_or_default(),
            ]);
        }
    }
    columns(&rows)
}

/// Rows of cells as aligned columns.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a".to_owned(), "b".to_owned()], ["long".to_owned(), "ü".to_owned()]];
        assert_eq!(columns(&rows), "a     b\nlong  ü\n");
    }

    #[test]
    fn table_shows_each_node() {
        let node = NodeStatus {
            name: "n".into(),
            kind: "segue",
            namespace: "sg-x-n".into(),
            up: true,
            socket: Some("/s".into()),
            agent: Some(12),
        };
        let text = table(&[LabStatus { lab: "x".into(), condition: Condition::Up, file: None, nodes: vec![node] }]);
        assert!(text.lines().nth(2).unwrap().split_whitespace().eq(["n", "segue", "up", "12", "/s"]), "{text}");
    }
}
