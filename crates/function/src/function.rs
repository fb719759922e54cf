//! What a planner says about a function.

use std::path::PathBuf;

use segue_host::Network;

/// What a function runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The kernel of a network namespace of its own.
    Namespace,
    /// A program in user space, or a virtual machine that somebody else starts, behind TAP devices of its node.
    Tap,
    /// A program on the interface of a network namespace of its own, which answers on a control socket.
    Service,
}

/// A function, as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, for messages.
    pub name: String,
    /// What it runs in.
    pub kind: Kind,
    /// The network namespace that its runtime makes for it; that of its node for kinds that have none.
    pub namespace: String,
    /// Whose it is: one line that no other function on this host has.
    pub mark: String,
    /// Links to its node.
    pub links: Vec<Link>,
    /// What its own side is to be: the ends of its links with their addresses, routes, sysctls.
    pub network: Network,
    /// Ruleset for `nft -f` on its side.
    pub ruleset: Option<String>,
    /// What works in it; without one it is its kernel, or the devices are left to the operator.
    pub program: Option<Program>,
    /// Socket on which its program answers once it takes packets: for [`Kind::Service`].
    pub control: Option<PathBuf>,
    /// Its program takes packets as segmentation offload has merged them, with checksums that are left to the link: for [`Kind::Service`].
    pub merged: bool,
    /// File for what its program says.
    pub log: PathBuf,
}

/// A link between a function and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The node's end.
    pub node: NodeEnd,
    /// Name of the function's end.
    pub name: String,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// MTU of both ends, octets.
    pub mtu: u32,
}

/// The node's end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEnd {
    /// The node's network namespace.
    pub namespace: String,
    /// The interface's name there.
    pub name: String,
    /// Its link-layer address.
    pub mac: [u8; 6],
}

/// A program of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Shell command.
    pub command: String,
    /// Directory that it is run in; the caller's if none.
    pub directory: Option<PathBuf>,
}

/// As people write it.
pub(crate) fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}
