//! What there is to plan with: nodes, how they reach each other, functions and how they are attached, customers, chains.
//!
//! Nothing here says where an inventory comes from: the lab makes one of a topology (crate `segue-wiring`), others may ask real nodes.

use std::net::Ipv6Addr;

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};
use serde::Serialize;

use segue_model::node::InnerType;
use segue_model::owner::Owner;
use segue_model::proxy::{MayChange, MayRewrite, OnFailure, Watch};
use segue_model::range::NumberRange;
use segue_model::topology::{
    Capabilities, Chain, Dataplane, FunctionKind, Interfaces, LabelTunnel, ProxyChoice, SrDataplane,
};
use segue_model::value::MacAddress;

/// All that the planner knows. The order of each list is that of the plan: the same inventory always gives the same numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    /// Routers of the SR domain, by name.
    pub nodes: IndexMap<String, Node>,
    /// How they reach each other.
    pub reachability: Reachability,
    /// Ways of labels through networks that know none; over the links of [`Inventory::reachability`].
    pub tunnels: Vec<LabelTunnel>,
    /// Network functions, by name.
    pub functions: IndexMap<String, Function>,
    /// What lies at the edges of the domain, by name.
    pub customers: IndexMap<String, Customer>,
    /// Service chains, by name. A [`segue_model::topology::Endpoint::Host`] names a customer.
    pub chains: IndexMap<String, Chain>,
    /// What leads where both SIDs and labels could.
    pub dataplane: SrDataplane,
}

/// A router.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What forwards on it.
    pub dataplane: Dataplane,
    /// Its locator (RFC 8986 section 3.1): no other node's overlaps with it, and it is at most /96.
    pub locator: Ipv6Net,
    /// Its loopback address: the endpoint of SR policies that lead to it.
    pub loopback: Ipv6Addr,
    /// Whether SIDs lead to it.
    pub sids: bool,
    /// Its labels, if such lead to it. A node that both lead to is one where chains cross from one kind to the other.
    pub labels: Option<NodeLabels>,
    /// Ways back into it: one for each [`crate::Crossing`] here. What no chain needs is ignored.
    pub hairpins: Vec<Hairpin>,
}

impl Node {
    /// Whether both SIDs and labels lead to it.
    #[must_use]
    pub fn is_border(&self) -> bool {
        self.sids && self.labels.is_some()
    }
}

/// Two interfaces of a node that lead to each other, for one [`crate::Crossing`]: what a routing table of its own sends out by one comes in by
/// the other, an access port, without any header of Segment Routing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hairpin {
    /// The crossing's: the policy that packets go on by.
    pub policy: String,
    /// The table; all that it has is a default route of each family.
    pub table: u32,
    /// Name of the port that packets come in by.
    pub port: String,
}

/// The labels of a node (RFC 8660). No label means two things anywhere in the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodeLabels {
    /// Its node segment, the same on all nodes.
    pub node: u32,
    /// Its SR local block: for its table, and the functions behind it.
    pub block: NumberRange,
    /// Whether chains that end at it have an entropy label (RFC 6790), which it takes off.
    pub entropy: bool,
}

/// How nodes reach each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Reachability {
    /// By shortest paths over these links, all that there are: so that paths can be explained, and their MTU be checked.
    Links(Vec<Link>),
    /// A routing protocol sees to it that each node reaches each other; by which path is not known.
    Routing,
}

/// A link between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The two nodes.
    pub between: [String; 2],
    /// What shortest paths add up, in both directions; not 0.
    pub weight: u32,
    /// MTU, octets.
    pub mtu: u32,
}

/// A network function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The node that it is connected to.
    pub node: String,
    /// What it runs in.
    pub kind: FunctionKind,
    /// Whether it understands Segment Routing itself.
    pub aware: bool,
    /// What is known of what it does to packets.
    pub capabilities: Capabilities,
    /// The proxy that is wanted, or none in particular.
    pub proxy: ProxyChoice,
    /// One interface that packets enter and leave by, or two.
    pub interfaces: Interfaces,
    /// What it takes.
    pub inner: Vec<InnerType>,
    /// Bits of the argument of its SID, where it is a firewall in the node's data plane; else 0.
    pub argument_length: u8,
    /// SR-aware: what it may do to the segment list beside going on.
    pub may_change: Option<MayChange>,
    /// SR-aware: what it may rewrite beside the segment list.
    pub may_rewrite: Vec<MayRewrite>,
    /// What becomes of packets while it is down.
    pub on_failure: OnFailure,
    /// [`OnFailure::Reroute`]: the function that packets go to instead, one that any number of chains can share.
    pub backup: Option<String>,
    /// How to see that it is down; not watched if not given.
    pub watch: Option<Watch>,
    /// The interfaces that lead to it: one attachment for each [`crate::Demand`]. What no chain needs is ignored.
    pub attachments: Vec<Attachment>,
}

impl Inventory {
    /// Whether labels lead to some node.
    #[must_use]
    pub fn uses_labels(&self) -> bool {
        self.nodes.values().any(|node| node.labels.is_some())
    }

    /// Whether SIDs lead to some nodes, and labels to some.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.uses_labels() && self.nodes.values().any(|node| node.sids)
    }
}

impl Function {
    /// SR-aware: what it may rewrite beside the segment list, because it was allowed or because packet services of Segue that change flows
    /// cannot work without: the node compares what comes back with what was sent.
    #[must_use]
    pub fn may_rewrite(&self) -> Vec<MayRewrite> {
        let mut all = self.may_rewrite.clone();
        let Capabilities { rewrites_flows, makes_packets, .. } = self.capabilities;
        if self.kind == FunctionKind::Service
            && (rewrites_flows || makes_packets)
            && !all.contains(&MayRewrite::Addresses)
        {
            all.push(MayRewrite::Addresses);
        }
        all
    }
}

/// Interfaces of a node that lead to a function, for one demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The demand's: which chain has it for itself; none: all chains share it.
    pub owner: Option<Owner>,
    /// Where forward traffic goes in and reverse traffic comes back; the only one of a function with one interface.
    pub west: Side,
    /// Where forward traffic comes back and reverse traffic goes in; none of a function with one interface.
    pub east: Option<Side>,
}

/// One interface that leads to a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Name of the node's interface. It belongs to one attachment only.
    pub interface: String,
    /// Link-layer address of the function behind it.
    pub function: MacAddress,
}

/// What lies at the edge of the domain: a host, a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// The node that it is connected to.
    pub node: String,
    /// What a chain carries that begins or ends at it.
    pub prefixes: Vec<IpNet>,
    /// The networks that it lies in: prefixes of a chain that are inside lie behind its node.
    pub networks: Vec<IpNet>,
    /// Largest packet that it sends, octets.
    pub mtu: u32,
    /// Name of the node's port that leads to it and to nothing else. Chains of Ethernet frames need it.
    pub port: Option<String>,
}

impl Function {
    /// What answers the demand with this owner.
    pub fn attachment(&self, owner: Option<&Owner>) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| attachment.owner.as_ref() == owner)
    }
}
