//! How the agents of deployed nodes are reached: what `segue trace --nodes FILE` takes.

use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Errors, KeyPath, ModelError};
use crate::load;

/// Nodes by name, with how their agents are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Nodes, by the names that displays use.
    pub nodes: IndexMap<String, Reach>,
}

/// How an agent is reached: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Its socket on this machine, perhaps one that `ssh -L` forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// A program whose standard input and output are a connection to the socket, such as `[ssh, root@nfv1, segue, stdio]`. It is
    /// started for each request, without a shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<String>,
}

/// Reads and checks a file of nodes. `file` is only for the errors.
///
/// # Errors
/// All that is wrong.
pub fn load_nodes(source: &str, file: &str) -> Result<Nodes, Errors> {
    let nodes: Nodes = load::document(source, file)?;
    let mut wrong = Vec::new();
    let at = |name: Option<&str>| {
        let nodes = KeyPath::root().at("nodes");
        name.map_or(nodes.clone(), |name| nodes.at(name))
    };
    let mut add = |key: KeyPath, message: &str, remedy: &str| {
        let (message, remedy) = (message.to_owned(), remedy.to_owned());
        wrong.push(ModelError { file: None, position: None, key, message, remedy });
    };
    if nodes.nodes.is_empty() {
        add(at(None), "there are no nodes", "name at least one, with its socket");
    }
    for (name, reach) in &nodes.nodes {
        if name.is_empty() || name.contains(':') {
            add(at(Some(name)), "a node's name is not empty and has no colon", "choose another name");
        }
        if reach.socket.is_some() != reach.connect.is_empty() {
            let remedy = "give the path of a socket on this machine, or a command that connects to one elsewhere";
            add(at(Some(name)), "give either `socket` or `connect`", remedy);
        }
    }
    if wrong.is_empty() { Ok(nodes) } else { Err(load::locate(wrong.into_iter().collect(), source, file)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_reached_in_one_way_each() {
        let nodes = load_nodes("nodes:\n  a: {socket: /run/a}\n  b: {connect: [ssh, b, segue, stdio]}\n", "x").unwrap();
        assert_eq!(nodes.nodes["b"].connect.len(), 4);
        for (text, line, words) in [
            ("nodes: {}", 1, "no nodes"),
            ("nodes:\n  a: {socket: /x, connect: [y]}", 2, "either `socket` or `connect`"),
            ("nodes:\n  a: {socket: /x}\n  b: {}", 3, "either `socket` or `connect`"),
            ("nodes:\n  'a:b': {socket: /x}", 2, "no colon"),
            ("nodes:\n  a: {sockets: /x}", 2, "is not known here"),
        ] {
            let error = load_nodes(text, "x.yaml").unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(&format!("x.yaml:{line}")), "{text}: {error}");
        }
    }
}
