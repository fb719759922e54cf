//! What a lab must be: each of its namespaces, with interfaces, routes and the desired state of its agent.

use std::net::{IpAddr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};
use serde::Serialize;

use segue_model::node::NodeState;
use segue_model::topology::{Dataplane, Impairment};
use segue_model::value::MacAddress;
use segue_plan::{Explanation, NodeLabels};

use crate::route::{Neighbour, Route, Rule};

/// What every namespace of a lab must be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabPlan {
    /// The lab's name.
    pub name: String,
    /// Routers, by name.
    pub nodes: IndexMap<String, LabNode>,
    /// End systems, by name.
    pub hosts: IndexMap<String, LabHost>,
    /// Network functions, by name.
    pub functions: IndexMap<String, LabFunction>,
    /// How each chain's traffic goes, step by step, and why.
    pub explanations: Vec<Explanation>,
}

impl LabPlan {
    /// How each chain's traffic goes, step by step, and why.
    pub fn explain(&self) -> &[Explanation] {
        &self.explanations
    }

    /// Every link once, as the two interfaces of a veth pair, or of a TAP device and who is behind it; each with the namespace (the name of a node, host or function)
    /// that it lies in.
    pub fn links(&self) -> Vec<[(&str, &Interface); 2]> {
        let all = || {
            let nodes = self.nodes.iter().map(|(name, node)| (name.as_str(), node.interfaces.as_slice()));
            let hosts = self.hosts.iter().map(|(name, host)| (name.as_str(), std::slice::from_ref(&host.interface)));
            let functions =
                self.functions.iter().map(|(name, function)| (name.as_str(), function.interfaces.as_slice()));
            nodes
                .chain(hosts)
                .chain(functions)
                .flat_map(|(name, list)| list.iter().map(move |interface| (name, interface)))
        };
        let by_name: std::collections::HashMap<_, _> =
            all().map(|(namespace, interface)| ((namespace, interface.name.as_str()), interface)).collect();
        let mut links = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (namespace, interface) in all() {
            let peer_key = (interface.peer.namespace.as_str(), interface.peer.interface.as_str());
            if seen.contains(&peer_key) {
                continue;
            }
            if let Some(peer) = by_name.get(&peer_key) {
                seen.insert((namespace, interface.name.as_str()));
                links.push([(namespace, interface), (peer_key.0, *peer)]);
            }
        }
        links
    }
}

/// A router.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabNode {
    /// Its id, 1 to 9999.
    pub id: u16,
    /// What forwards on it.
    pub dataplane: Dataplane,
    /// Address for the interface `lo` (as /128): source of encapsulations.
    pub loopback: Ipv6Addr,
    /// Its locator; the other nodes have a route to it.
    pub locator: Ipv6Net,
    /// Whether SIDs lead to it.
    pub sids: bool,
    /// Its labels, where these steer packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<NodeLabels>,
    /// Desired state for its agent. Only with [`Dataplane::Segue`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Source address of the kernel's own encapsulations (`ip sr tunsrc set`). Only with [`Dataplane::Kernel`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_source: Option<Ipv6Addr>,
    /// Interfaces besides `lo`.
    pub interfaces: Vec<Interface>,
    /// Routes besides connected ones, of the main table and of those of hairpins; with [`Dataplane::Kernel`] also `seg6` and `seg6local` ones.
    pub routes: Vec<Route>,
    /// Neighbours whose link-layer addresses are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// sysctls, to set before interfaces get addresses.
    pub sysctls: IndexMap<String, String>,
}

/// An end system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabHost {
    /// The node that it is connected to.
    pub node: String,
    /// Its only interface besides `lo`.
    pub interface: Interface,
    /// Its routes.
    pub routes: Vec<Route>,
    /// sysctls, to set before interfaces get addresses.
    pub sysctls: IndexMap<String, String>,
}

impl LabHost {
    /// Its IPv4 address, if any.
    pub fn ipv4(&self) -> Option<std::net::Ipv4Addr> {
        self.interface.addresses.iter().find_map(|address| match address.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// Its IPv6 address, if any.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.interface.addresses.iter().find_map(|address| match address.addr() {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address),
        })
    }
}

/// A network function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabFunction {
    /// The node that it is connected to.
    pub node: String,
    /// How the node gives packets to it, and why: such as `End.AD by packet: 2 chains visit it`.
    pub approach: String,
    /// Interfaces besides `lo`; none if no chain visits it, or if the agent makes them (netfilter).
    pub interfaces: Vec<Interface>,
    /// Its routes.
    pub routes: Vec<Route>,
    /// Which tables they are looked up in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Neighbours that it need not ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// sysctls, to set before interfaces get addresses: what forwarding needs, then what the topology says.
    pub sysctls: IndexMap<String, String>,
    /// It is in the node's data plane: it has no namespace.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inside: bool,
    /// It is at the other end of TAP devices of the node: it has no namespace, and its interfaces are for whoever is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tap: bool,
}

impl LabFunction {
    /// Whether it has a network namespace of its own.
    pub fn has_namespace(&self) -> bool {
        !self.inside && !self.tap
    }
}

/// One end of a veth pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interface {
    /// Its name, at most 15 octets, unique in its namespace.
    pub name: String,
    /// The other end.
    pub peer: Peer,
    /// What kind of link it is on.
    pub link: LinkKind,
    /// MTU, octets; the same at both ends.
    pub mtu: u32,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Its addresses with prefix length, to add without duplicate address detection.
    pub addresses: Vec<IpNet>,
    /// It is a port of a Segue node.
    pub port: bool,
    /// What the link does to packets: it is then two TAP devices with the lab's relay between them, and no veth pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impaired: Option<Impairment>,
    /// Why it is there.
    pub reason: String,
}

/// The other end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Name of the node, host or function.
    pub namespace: String,
    /// Name of the interface there.
    pub interface: String,
}

/// What kind of link an interface is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Between two nodes.
    Core,
    /// Between a node and a host.
    Access,
    /// Between a node and a function.
    Service,
    /// Between a node and itself, where a chain goes on by labels.
    Hairpin,
}
