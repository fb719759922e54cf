//! What the planner gives.

use std::net::{Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::IpNet;
use serde::Serialize;

use segue_model::label::{Label, LabelBehaviour};
use segue_model::node::{Behaviour, HeadendMode, Policy, Sid, SteeringRule};
use segue_model::owner::{AddressFamily, Direction};
use segue_model::udp::UdpEndpoint;

use crate::approach::Approach;

/// What an inventory's chains need of nodes and functions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// All nodes of the inventory, in its order.
    pub nodes: IndexMap<String, NodePlan>,
    /// All functions of the inventory, in its order.
    pub functions: IndexMap<String, FunctionPlan>,
    /// How each chain's traffic goes, step by step, and why.
    pub explanations: Vec<Explanation>,
}

/// What chains need of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodePlan {
    /// Local SIDs, if such lead to it. Only with [`segue_model::topology::Dataplane::Segue`], as are policies and steering.
    pub sids: Vec<Sid>,
    /// SR policies of the headend.
    pub policies: Vec<Policy>,
    /// Which traffic takes them.
    pub steering: Vec<SteeringRule>,
    /// Only with [`segue_model::topology::Dataplane::Kernel`].
    pub kernel: Vec<KernelEntry>,
    /// Only where labels lead to it.
    pub labels: Vec<LabelEntry>,
    /// Policies of labels, by name: the neighbour that each list goes to first. Who knows the link adds `next_hop` and `port`. None of a list
    /// that has `udp`.
    pub towards: IndexMap<String, String>,
    /// Access ports whose frames all go into a policy, by name: that policy.
    pub frames: IndexMap<String, String>,
    /// Where it takes labels in UDP.
    pub udp_endpoints: Vec<UdpEndpoint>,
}

/// What a node does with a label, but for the link, of which the planner knows nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelEntry {
    /// Without `next_hop` and `port` where it goes on to a neighbour.
    pub label: Label,
    /// The neighbour that it goes on to; of several, by equally short ways, the first. None if it goes to another node in UDP.
    pub towards: Option<String>,
}

/// What the kernel's own SRv6 data plane is to do with packets to a destination: a route, but for the interface, of which the
/// planner knows nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelEntry {
    /// Packets to here.
    pub destination: IpNet,
    /// What is done with them.
    pub encap: Encap,
    /// `seg6`: the node that the first segment is at: the route needs an interface that leads there. `seg6local`: none; the
    /// kernel wants any interface but `lo`, and does not use it.
    pub towards: Option<String>,
    /// Why it is there.
    pub reason: String,
}

/// What a route of the kernel's own SRv6 data plane does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Encap {
    /// `encap seg6`: the kernel is the headend.
    Seg6 {
        /// H.Encaps.Red rather than H.Encaps.
        reduced: bool,
        /// In the order of traversal.
        segments: Vec<Ipv6Addr>,
    },
    /// `encap seg6local`: the destination is a SID.
    Seg6Local(Seg6LocalAction),
}

/// A behaviour that the kernel has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "behaviour")]
pub enum Seg6LocalAction {
    /// End.
    End,
    /// End.DX4.
    #[serde(rename = "End.DX4")]
    EndDx4 {
        /// 0.0.0.0: by route on the inner destination.
        next_hop: Ipv4Addr,
    },
    /// End.DX6.
    #[serde(rename = "End.DX6")]
    EndDx6 {
        /// `::`: by route on the inner destination.
        next_hop: Ipv6Addr,
    },
    /// End.DT6.
    #[serde(rename = "End.DT6")]
    EndDt6 {
        /// Number of the routing table.
        table: u32,
    },
}

/// What was decided for a function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionPlan {
    /// How its node gives packets to it and gets them back.
    pub approach: Approach,
    /// Why so.
    pub why: String,
    /// Whether labels lead to it, rather than SIDs.
    pub by_labels: bool,
    /// SIDs of a function that chains share, by the way that packets go through it; [`Direction::Forward`] alone where one SID
    /// serves both ways. Empty if no chain visits it. An SR-aware function must take them for its own.
    pub sids: IndexMap<Direction, Ipv6Addr>,
    /// The same where labels steer packets.
    pub labels: IndexMap<Direction, u32>,
}

/// One step of a chain's traffic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The chain.
    pub chain: String,
    /// Which way.
    pub direction: Direction,
    /// Its address family, where those of the chain go apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<AddressFamily>,
    /// Name of the SR policy whose list leads here: the headend's, or behind a crossing that of the node where it is.
    pub policy: String,
    /// Counted from 0, the headend.
    pub step: usize,
    /// Where.
    pub node: String,
    /// What happens there.
    #[serde(flatten)]
    pub action: StepAction,
    /// Nodes that packets cross to get here from the step before, both ends included; one of the equally short paths. Only the two
    /// ends where the path is routing's.
    pub path: Vec<String>,
    /// Why this.
    pub why: String,
}

impl Explanation {
    /// Whether it is a step of the same packets: the same chain, direction and family.
    #[must_use]
    pub fn is_of_same_way(&self, other: &Self) -> bool {
        (&self.chain, self.direction, self.family) == (&other.chain, other.direction, other.family)
    }
}

/// What happens at one step of a chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum StepAction {
    /// Traffic is classified and encapsulated.
    Headend {
        /// How.
        mode: HeadendMode,
        /// The segment list, in the order of traversal.
        segments: Vec<Ipv6Addr>,
    },
    /// Traffic is classified, and labels are pushed.
    Push {
        /// In the order of traversal.
        labels: Vec<u32>,
        /// The neighbour that takes the first one, or those, of which each flow has one, or the node that it goes to in UDP; none if that is the
        /// node's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        towards: Option<String>,
    },
    /// Labels lead here, and are used up.
    Label {
        /// Those that lead here, then the one that says what happens; none if packets are here already, and nothing happens.
        labels: Vec<u32>,
        /// What the last one says.
        behaviour: LabelBehaviour,
        /// The function behind it.
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
    /// A segment is visited.
    Segment {
        /// Its SID.
        sid: Ipv6Addr,
        /// The SID's behaviour.
        behaviour: Behaviour,
        /// The function behind a proxy.
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
}
