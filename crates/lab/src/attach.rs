//! `lab attach`: tmux with a pane for each node, host and function.

use std::os::unix::process::CommandExt;
use std::process::Command;

use segue_host::{Run, command};

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::state::{Kind, LabRecord};

/// Panes of one window; more are too small to read.
const PANES: usize = 6;

/// A pane: where it is, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pane {
    title: String,
    namespace: String,
}

/// The tmux session's name, and its server's, which is the lab's own: the user's sessions and settings are another server's.
fn session(lab: &str) -> String {
    format!("segue-{lab}")
}

/// Attaches to the lab's tmux session, which is made if there is none: windows of six panes, nodes first, a shell inside each namespace. Takes the place of
/// this process; returns only if `detached`. `lab down` ends the shells, and with the last one the session.
///
/// # Errors
/// If there is no such lab, or no tmux.
pub fn attach(roots: &Roots, lab: &str, detached: bool) -> Result<u8> {
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    command::need(&["tmux"])?;
    let name = session(lab);
    let there = Run::new("tmux", ["-L", &name, "has-session", "-t", &name]).output()?.status.success();
    if !there {
        for line in commands(&name, &panes(&record)) {
            Run::new("tmux", ["-L".to_owned(), name.clone()].into_iter().chain(line))
                .remedy("see `tmux` by hand: is there a terminal for it?")
                .text()?;
        }
    }
    if detached {
        return Ok(0);
    }
    let error = Command::new("tmux").args(["-L", &name, "attach-session", "-t", &name]).exec();
    Err(LabError::io("run", "tmux", "run it on a terminal")(error))
}

/// Nodes, then functions, then hosts; what is inside a node has no pane of its own.
fn panes(record: &LabRecord) -> Vec<Pane> {
    let mut nodes: Vec<_> = record.nodes.iter().filter(|node| node.has_namespace()).collect();
    nodes.sort_by_key(|node| match node.kind {
        Kind::Segue | Kind::Kernel | Kind::Plain => 0,
        Kind::Function | Kind::Firewall | Kind::Tap => 1,
        Kind::Host => 2,
    });
    let pane = |node: &&crate::state::NodeRecord| Pane { title: node.name.clone(), namespace: node.namespace.clone() };
    nodes.iter().map(pane).collect()
}

/// What tmux is told, in order, without its name and the server's.
fn commands(session: &str, panes: &[Pane]) -> Vec<Vec<String>> {
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut lines = Vec::new();
    for (number, window) in panes.chunks(PANES).enumerate() {
        let target = format!("{session}:{number}");
        for (position, pane) in window.iter().enumerate() {
            // The prompt says where one is, whatever the shell's own files do.
            let shell = format!("exec ip netns exec {} env PS1='{}# ' \"${{SHELL:-sh}}\"", pane.namespace, pane.title);
            let begin = match (number, position) {
                (0, 0) => words(&["-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", "-s", session]),
                (_, 0) => words(&["new-window", "-d", "-t", &target]),
                _ => words(&["split-window", "-d", "-t", &target]),
            };
            lines.push(begin.into_iter().chain([shell]).collect());
            if (number, position) == (0, 0) {
                lines.push(words(&["set-option", "-g", "pane-border-status", "top"]));
                lines.push(words(&["set-option", "-g", "pane-border-format", " #{pane_title} "]));
                lines.push(words(&["set-option", "-g", "mouse", "on"]));
            }
            lines.push(words(&["select-layout", "-t", &target, "tiled"]));
        }
        for (position, pane) in window.iter().enumerate() {
            lines.push(words(&["select-pane", "-t", &format!("{target}.{position}"), "-T", &pane.title]));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_has_a_pane_and_windows_have_six() {
        let panes: Vec<Pane> =
            (0..8).map(|number| Pane { title: format!("n{number}"), namespace: format!("sg-x-n{number}") }).collect();
        let lines = commands("segue-x", &panes);
        let count = |word: &str| lines.iter().filter(|line| line.iter().any(|one| one == word)).count();
        assert_eq!((count("new-session"), count("new-window"), count("split-window")), (1, 1, 6));
        assert_eq!(count("-T"), 8);
        assert!(lines.iter().any(
            |line| line.ends_with(&["-T".to_owned(), "n7".to_owned()]) && line.contains(&"segue-x:1.1".to_owned())
        ));
    }
}
