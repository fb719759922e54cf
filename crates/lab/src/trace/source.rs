//! From whom a trace hears: agents, and network namespaces of this machine.

use segue_api::client::Client;

use crate::error::Result;
use crate::netns;
use crate::state::{Kind, LabRecord};

/// Where packet sockets and the kernel's counters of a station are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inside {
    /// On another machine, or those of another station.
    Nowhere,
    /// In the namespace of this process.
    Here,
    /// In a namespace of this machine.
    Namespace(String),
}

impl Inside {
    /// Runs something there; none if there is no such place.
    ///
    /// # Errors
    /// A namespace that has gone.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> Result<Option<T>> {
        Ok(match self {
            Self::Nowhere => None,
            Self::Here => Some(what()),
            Self::Namespace(name) => Some(netns::inside(name, what)?),
        })
    }
}

/// One station.
#[derive(Debug, Clone)]
pub struct Source {
    /// Node, host or function.
    pub station: String,
    /// Its agent.
    pub agent: Option<Client>,
    /// Its namespace.
    pub inside: Inside,
    /// Whether it is a function, whose rules of nftables are read.
    pub is_function: bool,
}

/// All stations of a lab.
#[must_use]
pub fn of_lab(record: &LabRecord) -> Vec<Source> {
    let one = |node: &crate::state::NodeRecord| Source {
        station: node.name.clone(),
        agent: node.socket.as_ref().map(|socket| Client::new(socket).named(&node.name)),
        // A function inside its node is seen as the node.
        inside: if node.has_namespace() { Inside::Namespace(node.namespace.clone()) } else { Inside::Nowhere },
        is_function: node.kind == Kind::Function,
    };
    record.nodes.iter().map(one).collect()
}
