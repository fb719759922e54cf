//! Which agents to talk to.

use std::{fmt, path::PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use segue_api::client::Client;
use segue_lab::{
    names::{LabPaths, Roots},
    state::{LabRecord, recorded_labs},
};

use crate::args::{DEFAULT_SOCKET, Global};

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in the lab.
    pub node: Option<String>,
    /// Its socket.
    pub socket: PathBuf,
}

impl Target {
    /// To ask it.
    pub fn client(&self) -> Client {
        Client::new(&self.socket).named(self.to_string())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "node {node}"),
            None => write!(f, "{}", self.socket.display()),
        }
    }
}

/// Options that do not fit the command: exit status 2, as for those that clap refuses.
#[derive(Debug)]
pub struct WrongUsage(pub String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// All agents that the options name; at least one.
pub fn all(global: &Global) -> Result<Vec<Target>> {
    all_below(global, &Roots::default())
}

/// The one agent that the options name.
pub fn one(global: &Global) -> Result<Target> {
    let mut targets = all(global)?;
    if targets.len() > 1 {
        let names: Vec<_> = targets.iter().filter_map(|target| target.node.as_deref()).collect();
        bail!(WrongUsage(format!("this takes one node: give --node, one of {}", names.join(", "))));
    }
    targets.pop().context("no node")
}

/// The lab that the options name, or the only one.
pub fn lab(global: &Global) -> Result<String> {
    global.lab.clone().map_or_else(|| only_lab(&Roots::default()), Ok)
}

fn all_below(global: &Global, roots: &Roots) -> Result<Vec<Target>> {
    if let Some(socket) = &global.socket {
        return Ok(vec![Target { node: None, socket: socket.clone() }]);
    }
    let lab = match (&global.lab, &global.node) {
        (None, None) => return Ok(vec![Target { node: None, socket: DEFAULT_SOCKET.into() }]),
        (Some(lab), _) => lab.clone(),
        (None, Some(_)) => only_lab(roots)?,
    };
    let paths = LabPaths::new(roots, &lab)?;
    let record = LabRecord::read(&paths)
        .ok_or_else(|| anyhow!("there is no lab `{lab}`; `segue lab list` shows which there are"))?;
    let agents = record.nodes.iter().filter_map(|node| Some((node.name.clone(), node.socket.clone()?)));
    let targets: Vec<_> = agents
        .filter(|(name, _)| global.node.as_ref().is_none_or(|wanted| wanted == name))
        .map(|(name, socket)| Target { node: Some(name), socket })
        .collect();
    if targets.is_empty() {
        let known: Vec<_> =
            record.nodes.iter().filter(|node| node.socket.is_some()).map(|node| node.name.as_str()).collect();
        let wanted = global.node.as_deref().unwrap_or_default();
        bail!("lab `{lab}` has no node `{wanted}` with an agent; it has {}", known.join(", "));
    }
    Ok(targets)
}

fn only_lab(roots: &Roots) -> Result<String> {
    let mut labs = recorded_labs(roots);
    match labs.len() {
        0 => bail!("no lab is up, whose nodes could be asked; see `segue lab list`"),
        1 => labs.pop().context("no lab"),
        _ => bail!(WrongUsage(format!("several labs are up: give --lab, one of {}", labs.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Output;

    fn global(socket: Option<&str>, lab: Option<&str>, node: Option<&str>) -> Global {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Global { socket: socket.map(PathBuf::from), lab: owned(lab), node: owned(node), output: Output::Table }
    }

    fn empty() -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().unwrap();
        let roots = Roots { state: directory.path().join("lab"), ..Roots::default() };
        (directory, roots)
    }

    #[test]
    fn a_socket_is_taken_as_it_is() {
        let (_directory, roots) = empty();
        let targets = all_below(&global(Some("/x"), None, None), &roots).unwrap();
        assert_eq!(targets, [Target { node: None, socket: "/x".into() }]);
        let targets = all_below(&global(None, None, None), &roots).unwrap();
        assert_eq!(targets[0].socket, PathBuf::from(DEFAULT_SOCKET));
    }

    #[test]
    fn a_lab_that_is_not_there_says_so() {
        let (_directory, roots) = empty();
        let error = all_below(&global(None, Some("x"), None), &roots).unwrap_err().to_string();
        assert!(error.contains("segue lab list"), "{error}");
        let error = all_below(&global(None, None, Some("n")), &roots).unwrap_err().to_string();
        assert!(error.contains("no lab is up"), "{error}");
    }
}
