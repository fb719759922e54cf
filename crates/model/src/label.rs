//! Labels of a node (RFC 8660): the blocks that they come from, and what the node does with each.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::label_ecn::EcnPair;
use crate::learn::Learn;
use crate::owner::Owner;
use crate::proxy::{Netfilter, Proxy};
use crate::range::NumberRange;
use crate::udp::{UdpEndpoint, UdpTunnel};
use crate::value::MacAddress;

/// Lower labels are special-purpose ones (RFC 7274).
pub const FIRST_LABEL: u32 = 16;
/// The highest label: 20 bits.
pub const LAST_LABEL: u32 = (1 << 20) - 1;
/// Most labels in one list.
pub const LABELS_MAX: usize = 32;
/// Most equal paths of one label.
pub const PATHS_MAX: usize = 16;
/// In place of a label: none (RFC 3032 section 2.1).
pub const IMPLICIT_NULL: u32 = 3;
/// Entropy label indicator (RFC 6790 section 3).
pub const ENTROPY_INDICATOR: u32 = 7;
/// Label stack entries of an entropy label: its indicator, and itself.
pub const ENTROPY_ENTRIES: usize = 2;
/// Octets of a label stack entry (RFC 3032 section 2.1).
pub const ENTRY_OCTETS: usize = 4;

/// The label blocks of a node, and its TTL model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mpls {
    /// SR global block (RFC 8402 section 2): ranges for labels of nodes, such as `["16000-23999"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub srgb: Vec<NumberRange>,
    /// SR local block (RFC 8402 section 2): ranges for labels that are this node's alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub srlb: Vec<NumberRange>,
    /// What becomes of the TTL of a label that comes off.
    #[serde(default, skip_serializing_if = "TtlModel::is_pipe")]
    pub ttl: TtlModel,
    /// Values of TC that are congestion marks (RFC 5129), the same on all nodes of the domain. None: labels carry no ECN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ecn: Vec<EcnPair>,
    /// Packets behind labels may be addressed to SIDs: chains cross between SRv6 and labels (End.BM). Else such packets are dropped where
    /// their last label comes off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_inner_sid: bool,
    /// Addresses of the node at which it takes labels in UDP (RFC 7510). To none else, and by core ports alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_endpoints: Vec<UdpEndpoint>,
    /// Labels are learned from a routing protocol, beside those in `labels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<Learn>,
}

/// How TTLs of labels and of what is behind them go together (RFC 3443).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TtlModel {
    /// The path of labels is one hop for what is behind them: their TTL is their own (short pipe on the last hop but one).
    #[default]
    Pipe,
    /// One TTL: labels begin with the packet's, which is theirs once they come off.
    Uniform,
}

impl TtlModel {
    /// Whether it is the usual one.
    pub fn is_pipe(&self) -> bool {
        *self == Self::Pipe
    }
}

/// What a node does with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabelBehaviour {
    /// The node's own: it comes off, and the next label, or the packet's destination, says where it goes (NEXT).
    Node,
    /// Another node's: `out` in its place, to `next_hop` (CONTINUE).
    Swap,
    /// Another node's, which is the next hop: it comes off here (penultimate hop popping).
    Pop,
    /// The same, but explicit null (RFC 3032 section 2.1) goes on in its place, so that TC and TTL reach that node.
    ExplicitNull,
    /// Over one link: it comes off, and the packet goes to `next_hop`.
    Adjacency,
    /// The end of the stack: the packet is forwarded by `table` (as End.DT46).
    Table,
    /// The end of the stack: the packet goes to `next_hop`, whose family it must have (as End.DX4, End.DX6).
    NextHop,
    /// The packet behind the stack goes to a function, and comes back to a stack that is configured (as End.AS).
    StaticProxy,
    /// The packet behind the stack goes to a function, and comes back to the rest of its own stack (as End.AD).
    DynamicProxy,
    /// The packet goes to a function with the rest of the stack, which sees it and gives the packet back with it (as End.AN).
    SrAware,
    /// Netfilter in a network namespace works on the packet behind the stack (as End.AN.NF).
    Netfilter,
    /// A firewall of this node works on the packet behind the stack (as End.AN with `firewall`).
    Firewall,
    /// Of a policy (RFC 8402 section 5): a list of `policy` in its place. One of SIDs goes in front of the rest of the stack (H.Encaps.M of
    /// draft-ietf-spring-srv6-mpls-interworking), or of the packet.
    Binding,
    /// The end of a pseudowire (RFC 4448): the Ethernet frame behind the stack goes out of `port` as it is (as End.DX2).
    Pseudowire,
}

impl LabelBehaviour {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Swap => "swap",
            Self::Pop => "pop",
            Self::ExplicitNull => "explicit_null",
            Self::Adjacency => "adjacency",
            Self::Table => "table",
            Self::NextHop => "next_hop",
            Self::StaticProxy => "static_proxy",
            Self::DynamicProxy => "dynamic_proxy",
            Self::SrAware => "sr_aware",
            Self::Netfilter => "netfilter",
            Self::Firewall => "firewall",
            Self::Binding => "binding",
            Self::Pseudowire => "pseudowire",
        }
    }

    /// Whether it needs a next hop.
    pub fn has_next_hop(self) -> bool {
        matches!(self, Self::Swap | Self::Pop | Self::ExplicitNull | Self::Adjacency | Self::NextHop)
    }

    /// Whether there may be several equal paths to the end of its segment.
    pub fn has_paths(self) -> bool {
        self.has_next_hop() && self != Self::NextHop
    }

    /// Whether such a label means the same on all nodes, and so comes from the SRGB.
    pub fn is_global(self) -> bool {
        matches!(self, Self::Node | Self::Swap | Self::Pop | Self::ExplicitNull)
    }
}

/// A label of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The label with which packets come, 16 to 1048575.
    pub label: u32,
    /// What becomes of them.
    pub behaviour: LabelBehaviour,
    /// swap: the label that the next hop knows it by; the same if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<u32>,
    /// swap, pop, explicit_null, adjacency, next_hop: where they go. static_proxy, dynamic_proxy, sr_aware: the function's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// static_proxy, dynamic_proxy, sr_aware: the function's link-layer address, instead of `next_hop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<MacAddress>,
    /// The interface to `next_hop`; by route if not given. pseudowire: the access port that frames go out of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// pseudowire: whether a control word (RFC 4385) is in front of each frame, as the other end must say too; true if not given (RFC 8469).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_word: Option<bool>,
    /// swap, pop, explicit_null, adjacency: equal paths, 2 to 16, in place of `next_hop` and `port`. All packets of a flow take the same: the flow
    /// is told by an entropy label (RFC 6790), else by addresses, protocol and ports of the packet behind the stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<LabelPath>,
    /// swap, pop, explicit_null, adjacency: in place of `next_hop`, a node that is reached through a network without labels. Where no label
    /// would be left, explicit null goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpTunnel>,
    /// node, table: number of the routing table; the main one if not given. Where a function is behind the label: that of packets of
    /// whose stack nothing is left behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// static_proxy, dynamic_proxy, sr_aware: the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// netfilter: where it works on the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netfilter: Option<Netfilter>,
    /// binding: name of the policy, of mode PUSH, H.Encaps or H.Encaps.Red.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// firewall: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<String>,
    /// Free text for displays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The chain that the label was made for; none for a label that chains share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The agent has learned it ([`Learn`]). No operator writes this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    pub learned: bool,
}

/// What a policy puts between its labels and Ethernet frames (RFC 4448).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pseudowire {
    /// A control word (RFC 4385) in front of each frame, as the other end must say too. Without it routers on the way may take a frame for an
    /// IP packet, and divide what belongs together over equal paths (RFC 4928, RFC 8469).
    #[serde(default = "has_control_word")]
    pub control_word: bool,
}

fn has_control_word() -> bool {
    true
}

impl Pseudowire {
    /// Octets of a control word.
    pub const CONTROL_WORD: usize = 4;

    /// Octets between the labels and the frame.
    pub fn octets(self) -> usize {
        if self.control_word { Self::CONTROL_WORD } else { 0 }
    }
}

/// One of several equal paths of a label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelPath {
    /// The neighbour.
    pub next_hop: IpAddr,
    /// The interface to it; by route if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// swap: the label that this neighbour knows it by; that of the others if not given. 3, implicit null: it is the label's own node, and
    /// gets the packet without it (penultimate hop popping).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<u32>,
}
