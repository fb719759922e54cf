//! Lab topologies: nodes, hosts, links, functions and chains in one short YAML file.
//!
//! What is not written is derived by the planner, so that the common file says only what matters.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::label_ecn::EcnPair;
use crate::node::HeadendMode;
use crate::range::NumberRange;
use crate::value::{PortRange, Protocol};

pub use ethernet::Ethernet;
pub use function::{
    Capabilities, Function, FunctionKind, InNamespace, InNetfilter, InService, Interfaces, OnTap, ProxyChoice, Ruleset,
    RunsIn,
};
pub use impairment::{DELAY_MAX_MS, Impairment};
pub use label::LABEL;
pub use traffic::{Capture, Family, RATE_MAX, SIZE_MAX, SIZE_MIN, SNAP_MIN, Traffic, TrafficProtocol};
pub use tunnel::LabelTunnel;

mod ethernet;
mod function;
mod impairment;
mod label;
mod traffic;
mod tunnel;
mod written;

/// How `via` names a waypoint.
pub const WAYPOINT: &str = "node:";
/// Largest id of a node: four decimal digits.
pub const NODE_ID_MAX: u16 = 9999;

/// A topology: what `segue lab up` builds. Names of nodes, hosts and functions are one name space; each becomes a network
/// namespace, but for functions that are in a node's data plane (`firewall`). Names are 1 to 15 characters: a lower-case letter, then lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name of the lab.
    pub name: String,
    /// Addressing and MTU of the SR domain.
    #[serde(default)]
    pub domain: LabDomain,
    /// Routers, by name.
    pub nodes: IndexMap<String, Node>,
    /// End systems that know nothing of Segment Routing, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub hosts: IndexMap<String, Host>,
    /// Links between nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// sr-mpls: where labels go in UDP, because the network between two nodes knows none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_tunnels: Vec<LabelTunnel>,
    /// Network functions, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub functions: IndexMap<String, Function>,
    /// Service chains, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub chains: IndexMap<String, Chain>,
    /// What hosts send once the lab is up, by name (`segue lab traffic`).
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub traffic: IndexMap<String, Traffic>,
    /// What is captured while the lab is up, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub captures: IndexMap<String, Capture>,
}

impl Topology {
    /// Whether labels lead to packet services of this node, rather than SIDs: where both lead there, what the domain has.
    #[must_use]
    pub fn leads_to_services_by_labels(&self, node: &str) -> bool {
        let there = self.nodes.get(node).map(|node| self.domain.of_node(node));
        there.is_some_and(|there| {
            there.has_labels() && (!there.has_sids() || self.domain.dataplane == SrDataplane::SrMpls)
        })
    }

    /// Whether labels lead to some node.
    #[must_use]
    pub fn uses_labels(&self) -> bool {
        self.nodes.values().any(|node| self.domain.of_node(node).has_labels())
    }
}

/// Addressing and MTU of the SR domain. Every key has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LabDomain {
    /// What steers packets between nodes, but for those that say otherwise (`sr_dataplane`).
    #[serde(skip_serializing_if = "SrDataplane::is_srv6")]
    pub dataplane: SrDataplane,
    /// sr-mpls: SR global block (RFC 8402 section 2), the same on all nodes; the label of node 12 is its first one and 12.
    /// 16000-25999 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srgb: Option<NumberRange>,
    /// sr-mpls: where SR local blocks of nodes lie, 100 labels each; that of node 12 begins 1200 behind its first one.
    /// 30000-1029999 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srlb: Option<NumberRange>,
    /// sr-mpls: headends put an entropy label (RFC 6790) behind the last label of chains, by which routers on the way divide flows over equal
    /// paths.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub entropy_labels: bool,
    /// sr-mpls: values of TC that are congestion marks (RFC 5129), on all nodes. None: labels carry no ECN.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub label_ecn: Vec<EcnPair>,
    /// Block of the SIDs. A node's locator is this and its id in the next 16 bits, decimal digits read as written: with
    /// fc00:5e9::/32, node 12 has fc00:5e9:12::/48. The length is 16, 32, 48 or 64.
    #[schemars(with = "String")]
    pub sid_block: Ipv6Net,
    /// Loopback addresses of nodes, by the same rule: node 12 has fc00:5ea:12::1. The length is 16, 32, 48 or 64.
    #[schemars(with = "String")]
    pub loopback_prefix: Ipv6Net,
    /// Links between nodes, a /127 each. The length is at most 64.
    #[schemars(with = "String")]
    pub link_prefix: Ipv6Net,
    /// Links between nodes and functions, IPv6, a /127 each. The length is at most 64.
    #[schemars(with = "String")]
    pub service_prefix: Ipv6Net,
    /// Links between nodes and functions, IPv4, a /31 each.
    #[schemars(with = "String")]
    pub service_prefix_ipv4: Ipv4Net,
    /// Hosts without addresses of their own: IPv6, a /64 each. The length is at most 48.
    #[schemars(with = "String")]
    pub host_prefix: Ipv6Net,
    /// Hosts without addresses of their own: IPv4, a /24 each. The length is at most 16.
    #[schemars(with = "String")]
    pub host_prefix_ipv4: Ipv4Net,
    /// MTU of links between nodes, octets.
    pub core_mtu: u32,
    /// MTU of links to hosts and to functions, octets.
    pub access_mtu: u32,
}

impl Default for LabDomain {
    fn default() -> Self {
        let v6 = |second: u16, length: u8| Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, second, 0, 0, 0, 0, 0, 0), length);
        Self {
            dataplane: SrDataplane::default(),
            srgb: None,
            srlb: None,
            entropy_labels: false,
            label_ecn: Vec::new(),
            sid_block: v6(0x5e9, 32),
            loopback_prefix: v6(0x5ea, 32),
            link_prefix: v6(0x5eb, 32),
            service_prefix: v6(0x5ec, 32),
            service_prefix_ipv4: Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10),
            host_prefix: Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
            host_prefix_ipv4: Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
            core_mtu: 9000,
            access_mtu: 1500,
        }
    }
}

impl LabDomain {
    /// The SR global block.
    #[must_use]
    pub fn srgb(&self) -> NumberRange {
        self.srgb.unwrap_or(NumberRange::SRGB)
    }

    /// What leads packets to one of its nodes.
    #[must_use]
    pub fn of_node(&self, node: &Node) -> NodeSrDataplane {
        node.sr_dataplane.unwrap_or(match self.dataplane {
            SrDataplane::Srv6 => NodeSrDataplane::Srv6,
            SrDataplane::SrMpls => NodeSrDataplane::SrMpls,
        })
    }

    /// Where SR local blocks of nodes lie.
    #[must_use]
    pub fn srlb(&self) -> NumberRange {
        self.srlb.unwrap_or(NumberRange::SRLB)
    }
}

/// What steers packets through an SR domain (RFC 8402).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SrDataplane {
    /// IPv6 headers with SIDs.
    #[default]
    Srv6,
    /// Stacks of labels; nodes that these lead to have `dataplane: segue`.
    SrMpls,
}

impl SrDataplane {
    /// Whether it is the usual one.
    pub fn is_srv6(&self) -> bool {
        *self == Self::Srv6
    }
}

/// A router.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// 1 to 9999; the lowest free one if not given, in the order of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// Locator (RFC 8986 section 3.1); derived from the SID block and the id if not given. At most /96.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub locator: Option<Ipv6Net>,
    /// Loopback address; derived from the id if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loopback: Option<Ipv6Addr>,
    /// sr-mpls: its SR local block, for labels that are its own; derived from the domain's and the id if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srlb: Option<NumberRange>,
    /// sr-mpls: whether it can take entropy labels off (RFC 6790 section 4.3), which chains that end at it have then. As the domain says if not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy_labels: Option<bool>,
    /// What leads packets to it and to its functions, if it is not what the domain says. A node with `both` joins the parts of the network
    /// where SIDs lead to those where labels do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sr_dataplane: Option<NodeSrDataplane>,
    /// What forwards on it.
    pub dataplane: Dataplane,
}

/// What leads packets to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeSrDataplane {
    /// SIDs.
    Srv6,
    /// Labels; the node has `dataplane: segue`.
    SrMpls,
    /// SIDs and labels: chains may cross from one kind to the other here.
    Both,
}

impl NodeSrDataplane {
    /// Whether SIDs lead there.
    #[must_use]
    pub fn has_sids(self) -> bool {
        self != Self::SrMpls
    }

    /// Whether labels lead there.
    #[must_use]
    pub fn has_labels(self) -> bool {
        self != Self::Srv6
    }
}

/// What forwards on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dataplane {
    /// Segue's XDP program and its agent.
    #[default]
    Segue,
    /// The kernel's own `seg6` and `seg6local` routes: another implementation to interoperate with.
    Kernel,
    /// An IPv6 router that knows nothing of Segment Routing.
    Plain,
}

/// An end system on a link of its own to its node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The node that it is connected to.
    pub node: String,
    /// Addresses with prefix length, at most one IPv4 and one IPv6; one of each, derived, if empty. The node takes the
    /// first other address of each prefix and is the default router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// MTU of its link, octets; the domain's `access_mtu` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// A function of its node that is a firewall: filters all that the host sends, steered or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<String>,
}

/// A link between two nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The two nodes.
    pub between: [String; 2],
    /// MTU, octets; the domain's `core_mtu` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// What shortest paths add up, in both directions; not 0.
    #[serde(default = "one")]
    pub weight: u32,
    /// What it does to packets beside carrying them; nothing if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impaired: Option<Impairment>,
}

/// A service chain: which traffic visits which functions, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Where the traffic comes from.
    pub from: Endpoint,
    /// Where it goes.
    pub to: Endpoint,
    /// Which of it.
    #[serde(default, rename = "match", skip_serializing_if = "Match::is_any")]
    pub matching: Match,
    /// It carries all that its two hosts send, as Ethernet frames with their VLAN tags: they are on one link then, without a router, and in no
    /// other chain. Waypoints may be in `via`, and no functions.
    #[serde(default, deserialize_with = "ethernet::written", skip_serializing_if = "Option::is_none")]
    pub ethernet: Option<Ethernet>,
    /// Functions by name in the order of visiting; `node:NAME` is a waypoint without a function.
    pub via: Vec<String>,
    /// Traffic in the other direction visits the same functions in the opposite order.
    #[serde(default = "yes")]
    pub reverse: bool,
    /// Headend behaviour: H.Encaps or H.Encaps.Red; with `ethernet` H.Encaps.L2 or H.Encaps.L2.Red come of these. Labels are pushed whatever it is (`domain.dataplane: sr-mpls`).
    #[serde(default)]
    pub mode: HeadendMode,
    /// What packets are marked with in functions with `netfilter` (`meta mark`); its position, from 1, if not given. Also the argument
    /// of firewalls' SIDs, which `seg6-eval-args` reads; 0 if not given. Labels have no room for it (`domain.dataplane: sr-mpls`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u16>,
    /// Color of its SR policies (RFC 9256 section 2.1), not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<u32>,
}

/// One end of a chain.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Endpoint {
    /// A host by name: all of its addresses.
    Host(String),
    /// Prefixes; they lie behind the node whose hosts' networks contain them.
    Prefixes(#[schemars(with = "Vec<String>")] Vec<IpNet>),
    /// Prefixes behind a named node.
    Behind(Behind),
}

/// Prefixes behind a named node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Behind {
    /// The node.
    pub node: String,
    /// The prefixes.
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<IpNet>,
}

impl<'de> Deserialize<'de> for Endpoint {
    // By hand, because an untagged enum says no more than "no variant matched".
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Endpoint;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a host's name, a list of prefixes, or {node: NAME, prefixes: [..]}")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Endpoint, E> {
                Ok(Endpoint::Host(name.to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, access: A) -> Result<Endpoint, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(access)).map(Endpoint::Prefixes)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, access: A) -> Result<Endpoint, A::Error> {
                Behind::deserialize(de::value::MapAccessDeserializer::new(access)).map(Endpoint::Behind)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Which traffic between a chain's ends takes it. Everything if empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Upper-layer protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Destination ports (source ports in the reverse direction); needs protocol tcp, udp or sctp.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<PortRange>,
    /// Source ports (destination ports in the reverse direction).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<PortRange>,
    /// Values of the DSCP, 0 to 63, such as `[46, "8-15"]`; the same in both directions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<NumberRange>,
    /// Values of the IPv6 flow label, 0 to 0xfffff, the same in both directions: the other end must put the label on what it
    /// answers, too. Such a chain carries no IPv4, which has no flow label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow_labels: Vec<NumberRange>,
}

impl Match {
    /// Whether it matches all traffic.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> u32 {
    1
}
fn yes() -> bool {
    true
}
