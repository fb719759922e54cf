//! The desired state of one node: what `segue apply` sends to the agent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::attached::{
    Instance, NodeFunction, NodeService, ServiceLimits, TellFlowsBy, VirtualFunction, VirtualFunctions, Vm, VmLink,
};
use crate::firewall::Firewall;
pub use crate::label::{Label, LabelBehaviour, LabelPath, Mpls, Pseudowire, TtlModel};
pub use crate::learn::Learn;
pub use crate::owner::{AddressFamily, Direction, Owner};
pub use crate::proxy::{
    InnerType, MayChange, MayRewrite, Memory, Netfilter, OnFailure, OtherTypes, OwnTraffic, Probe, ProbeKind, Proxy,
    UnknownFlow, Watch,
};
use crate::range::{AddressRange, NumberRange};
pub use crate::udp::{UdpEndpoint, UdpTunnel};
use crate::value::{MacAddress, PortRange, Protocol, sid_prefix};

/// Everything that a node should be. Applying it is idempotent and all-or-nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeState {
    /// The node's name, for displays and metrics.
    pub node: String,
    /// The node's IPv6 address inside the SR domain: source of encapsulations (unless a policy names another) and of
    /// ICMPv6 errors.
    pub source_address: Ipv6Addr,
    /// Source of ICMPv4 errors on ports without an IPv4 address; if not given, an address of another port or of the node, else 192.0.0.8
    /// (RFC 7600).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address_ipv4: Option<Ipv4Addr>,
    /// The locator (RFC 8986 section 3.1) in which this node's SIDs lie, for displays and for the checks of `sids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub locator: Option<Ipv6Net>,
    /// The SR domain and its boundary.
    #[serde(default)]
    pub domain: Domain,
    /// Keys for SRHs with HMAC that come from outside; the kernel verifies them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hmac_keys: Vec<HmacKey>,
    /// Network interfaces that Segue forwards on.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Firewalls, which SIDs and ports name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firewalls: Vec<Firewall>,
    /// Functions that are attached to this node, by name; proxies name them.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub functions: IndexMap<String, NodeFunction>,
    /// Local SIDs.
    #[serde(default)]
    pub sids: Vec<Sid>,
    /// Label blocks, and how TTLs of labels are treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpls: Option<Mpls>,
    /// Labels that this node knows (RFC 8660).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// SR policies (RFC 9256).
    #[serde(default)]
    pub policies: Vec<Policy>,
    /// Which traffic of access ports goes into which policy.
    #[serde(default)]
    pub steering: Vec<SteeringRule>,
    /// Settings that rarely need a change.
    #[serde(default)]
    pub settings: Settings,
}

/// The SR domain's prefixes (RFC 8754 section 5.1).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// S/s: blocks that all SIDs of the domain come from, at most 3 (5f00::/16 of RFC 9602 is always added). Packets from
    /// outside to these are dropped.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub sid_blocks: Vec<Ipv6Net>,
    /// A/a: when given, packets to local SIDs are dropped unless their source lies in one of these (at most 4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub source_prefixes: Vec<Ipv6Net>,
    /// Addresses of the domain's nodes and links that nobody outside shall reach: packets to these from access ports and
    /// from interfaces that are no ports are dropped, as those to SIDs are (at most 4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub infrastructure_prefixes: Vec<Ipv6Net>,
    /// Interfaces that are no ports, and from which SIDs and infrastructure may be reached all the same, through the
    /// kernel. All others that are no ports are outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_interfaces: Vec<String>,
}

/// A key for SRH HMAC TLVs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HmacKey {
    /// HMAC Key ID (RFC 8754 section 2.1.2), not 0.
    pub id: u32,
    /// The digest.
    pub algorithm: HmacAlgorithm,
    /// File that holds the secret, at most 64 octets; a trailing newline is cut.
    pub secret_file: String,
}

/// Digest of an HMAC key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HmacAlgorithm {
    /// HMAC-SHA-1.
    Sha1,
    /// HMAC-SHA-256.
    Sha256,
}

/// A network interface that Segue forwards on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Name of the interface.
    pub name: String,
    /// Where it leads.
    pub role: PortRole,
    /// The interface is a VLAN, which the agent makes on another interface, and removes with the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Where the data plane meets the interface's packets.
    #[serde(default, skip_serializing_if = "PortMode::is_auto")]
    pub mode: PortMode,
    /// Access only: packets with an SRH that carries an HMAC go to the kernel, which verifies it. Otherwise they are
    /// dropped like every SRH from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_hmac: bool,
    /// Access only: every frame is put into this policy, whose mode must be H.Encaps.L2 or H.Encaps.L2.Red, or PUSH with
    /// `pseudowire`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_policy: Option<String>,
    /// Everything that comes in by this port meets this firewall first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<String>,
}

/// A VLAN of IEEE 802.1Q.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// Name of the interface that carries it.
    pub on: String,
    /// Its number in the tags (VID), 1 to 4094.
    pub id: u16,
}

/// Where a port leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortRole {
    /// To other nodes of the SR domain.
    Core,
    /// Outside: hosts, customers.
    Access,
    /// To a function behind a proxy.
    Service,
}

/// Where the data plane meets the packets of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// As the interface is: XDP on a NIC whose driver has it, socket buffers on virtual devices.
    #[default]
    Auto,
    /// XDP, before the kernel makes a socket buffer: fastest for small packets. On a veth or a TAP device it takes
    /// segmentation and checksum offload away. A device that has no XDP is on socket buffers.
    Xdp,
    /// Socket buffers, at the TC hook: large TCP packets stay whole, and checksums may be left to a NIC.
    Skb,
}

impl PortMode {
    /// Whether the operator left the choice to the agent.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Endpoint behaviour of a SID (RFC 8986 section 4, draft-ietf-spring-sr-service-programming).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)] // the names are the standards'
pub enum Behaviour {
    End,
    #[serde(rename = "End.X")]
    EndX,
    #[serde(rename = "End.T")]
    EndT,
    #[serde(rename = "End.DX2")]
    EndDx2,
    #[serde(rename = "End.DX4")]
    EndDx4,
    #[serde(rename = "End.DX6")]
    EndDx6,
    #[serde(rename = "End.DT4")]
    EndDt4,
    #[serde(rename = "End.DT6")]
    EndDt6,
    #[serde(rename = "End.DT46")]
    EndDt46,
    #[serde(rename = "End.B6.Encaps")]
    EndB6Encaps,
    #[serde(rename = "End.B6.Encaps.Red")]
    EndB6EncapsRed,
    #[serde(rename = "End.BM")]
    EndBm,
    /// What is in it is a packet with labels (draft-ietf-spring-srv6-mpls-interworking).
    #[serde(rename = "End.DTM")]
    EndDtm,
    #[serde(rename = "End.AS")]
    EndAs,
    #[serde(rename = "End.AD")]
    EndAd,
    #[serde(rename = "End.AM")]
    EndAm,
    #[serde(rename = "End.AN")]
    EndAn,
    #[serde(rename = "End.AN.NF")]
    EndAnNf,
}

/// Flavour of End, End.X and End.T (RFC 8986 section 4.16), or of End.AM
/// (draft-ietf-spring-sr-service-programming section 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Flavour {
    #[serde(rename = "PSP")]
    Psp,
    #[serde(rename = "USP")]
    Usp,
    #[serde(rename = "USD")]
    Usd,
    /// The function may change the destination address.
    #[serde(rename = "NAT")]
    Nat,
    /// Packets that come back without an SRH get the one last seen.
    Caching,
}

/// A local SID.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sid {
    /// LOC:FUNCT as a prefix; the bits behind it are the argument, carried through. A plain address means /128.
    #[schemars(with = "String")]
    #[serde(with = "sid_prefix")]
    pub sid: Ipv6Net,
    /// What the node does with a packet addressed to it.
    pub behaviour: Behaviour,
    /// End, End.X and End.T: PSP, USP, USD. End.AM: NAT, Caching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavours: Vec<Flavour>,
    /// End.X, End.DX4, End.DX6, proxies and End.AN: the next hop. Not for Ethernet frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Proxies and End.AN: the function's link-layer address, instead of `next_hop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<MacAddress>,
    /// End.X (needed for link-local next hops), End.DX2: the outgoing interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// End.T, End.DT4, End.DT6, End.DT46: the routing table's number; 254 (main) if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// End.B6.Encaps, End.B6.Encaps.Red, End.BM: name of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// End.AS, End.AD, End.AM, End.AN: the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// End.AN: a firewall of this node is the SR-aware function, instead of `proxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<String>,
    /// End.AN.NF: where netfilter works on the inner packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netfilter: Option<Netfilter>,
    /// End.AN.NF: bits of the argument right behind LOC:FUNCT, 0 to 32. The argument becomes the packet's mark.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub argument_length: u8,
    /// An echo request to the SID is answered (RFC 8986 section 4.1.1 leaves it to the operator).
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub answer_echo: bool,
    /// Decapsulating behaviours: the inner destination may lie in a SID block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_inner_sid: bool,
    /// The SID may lie outside `locator`: other nodes then reach it only behind another SID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_locator: bool,
    /// Free text for displays, such as `function fw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The chain that the SID was made for; none for a SID that chains share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// An SR policy with its segment lists (RFC 9256).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Unique on the node.
    pub name: String,
    /// Color (RFC 9256 section 2.1), not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<u32>,
    /// Endpoint (RFC 9256 section 2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<IpAddr>,
    /// Binding SID: packets to it go by this policy (End.B6.Encaps, End.B6.Encaps.Red or End.BM, by `mode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_sid: Option<Ipv6Addr>,
    /// How the segments are put on.
    #[serde(default)]
    pub mode: HeadendMode,
    /// Outer source address; the node's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address: Option<Ipv6Addr>,
    /// Flows are spread over these by weight. Empty: matching packets are dropped (RFC 9256 section 8.2).
    pub segment_lists: Vec<SegmentList>,
    /// DSCP of the outer header.
    #[serde(default)]
    pub traffic_class: TrafficClass,
    /// Hop limit of the outer header, 1 to 255. PUSH with `ttl: pipe`: TTL of the labels.
    #[serde(default = "default_hop_limit")]
    pub hop_limit: u8,
    /// PUSH: whether labels begin with `hop_limit` or with the packet's own.
    #[serde(default, skip_serializing_if = "TtlModel::is_pipe")]
    pub ttl: TtlModel,
    /// PUSH: an entropy label (RFC 6790) behind the last label, by which nodes on the way divide flows over equal paths. The node of the last
    /// label takes it off, and must know of such labels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub entropy_label: bool,
    /// PUSH: what goes into the policy are Ethernet frames (RFC 4448), of ports that name it as `l2_policy`. The last label is the pseudowire's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pseudowire: Option<Pseudowire>,
    /// TCP connections that go into the policy are opened for packets of at most so many octets, 576 to 65535: the MSS option is
    /// lowered. For paths that do not tell what fits them. IP packets only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss_clamp: Option<u16>,
    /// The chain that the policy was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// One weighted segment list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SegmentList {
    /// Share of the flows, relative to the other lists' weights; not 0.
    #[serde(default = "one")]
    pub weight: u32,
    /// SIDs in order of traversal, 1 to 10. Not with PUSH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Ipv6Addr>,
    /// PUSH: labels in order of traversal, 1 to 32; with an entropy label behind them 30.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u32>,
    /// PUSH: the neighbour that knows the first label. Without it that is one of the node's own labels, where packets begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// PUSH: the interface to `next_hop`; by route if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// PUSH: in place of `next_hop`, the node that knows the first label and is reached through a network without labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpTunnel>,
}

impl NodeState {
    /// Addresses at which the node takes labels in UDP.
    pub fn udp_endpoints(&self) -> &[UdpEndpoint] {
        self.mpls.as_ref().map_or(&[], |mpls| &mpls.udp_endpoints)
    }

    /// Where labels are learned from.
    pub fn learn(&self) -> Option<&Learn> {
        self.mpls.as_ref()?.learn.as_ref()
    }

    /// Whether labels mean something to the node, be it that none has been learned yet.
    pub fn knows_labels(&self) -> bool {
        !self.labels.is_empty() || self.learn().is_some()
    }
}

impl SegmentList {
    /// A list of SIDs.
    pub fn of_sids(weight: u32, segments: Vec<Ipv6Addr>) -> Self {
        Self { weight, segments, labels: Vec::new(), next_hop: None, port: None, udp: None }
    }
}

/// Headend behaviour (RFC 8986 section 5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum HeadendMode {
    #[serde(rename = "H.Encaps")]
    HEncaps,
    #[default]
    #[serde(rename = "H.Encaps.Red")]
    HEncapsRed,
    #[serde(rename = "H.Encaps.L2")]
    HEncapsL2,
    #[serde(rename = "H.Encaps.L2.Red")]
    HEncapsL2Red,
    #[serde(rename = "H.Insert")]
    HInsert,
    /// A stack of labels (RFC 8660 section 2.7).
    #[serde(rename = "PUSH")]
    Push,
}

/// DSCP of the outer header. ECN is always copied (RFC 6040 normal mode). Of labels, whose TC has three bits, the highest of
/// the DSCP's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrafficClass {
    /// As in the inner packet (0 for Ethernet).
    #[default]
    Copy,
    /// A fixed DSCP, 0 to 63.
    Dscp(u8),
}

/// Which traffic of access ports goes where. The first rule that holds wins. Rules are tried by `priority`; among equals
/// the longer `destination` comes first, then the more specific rule, then the earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteeringRule {
    /// For displays and counters; made from the position if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Prefix of the inner destination.
    #[schemars(with = "String")]
    pub destination: IpNet,
    /// Prefix of the inner source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub source: Option<IpNet>,
    /// Upper-layer protocol: `tcp`, `udp`, `icmp`, `icmpv6`, `sctp` or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Source ports, such as `[80, "8000-8080"]`; needs protocol tcp, udp or sctp. Fragments never match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<PortRange>,
    /// Destination ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<PortRange>,
    /// Only packets that came in by this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<String>,
    /// Source addresses that are no prefix, such as `10.0.0.5-10.0.0.9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_range: Option<AddressRange>,
    /// Addresses within `destination`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_range: Option<AddressRange>,
    /// Values of the DSCP, 0 to 63, such as `[46, "8-15"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<NumberRange>,
    /// Values of the IPv6 flow label, 0 to 0xfffff.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow_labels: Vec<NumberRange>,
    /// Rules of higher priority are tried before all others, whatever their destinations are.
    #[serde(default, skip_serializing_if = "is_zero_priority")]
    pub priority: i32,
    /// Into the policy of this name. Either this or `action`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What to do without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<SteeringVerdict>,
}

/// A steering rule's verdict without a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SteeringVerdict {
    /// To the kernel, unsteered.
    Pass,
    /// Dropped and counted.
    Drop,
}

/// Settings that rarely need a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// ICMP errors of one kind about packets that come in by one port, per second and CPU (RFC 4443 section 2.4(f)). Kinds are
    /// unreachable, too big, time exceeded, parameter problem, and those relayed from inside the domain. 0: none.
    pub icmp_errors_per_second: u32,
    /// ICMP errors in a burst.
    pub icmp_error_burst: u32,
    /// Answers to echo requests to SIDs that come in by one port, per second and CPU. 0: none.
    pub echo_replies_per_second: u32,
    /// Echo replies in a burst.
    pub echo_reply_burst: u32,
    /// TCP resets of firewalls (`REJECT --reject-with tcp-reset`) for segments that come in by one port, per second and CPU. 0: none.
    pub tcp_resets_per_second: u32,
    /// TCP resets in a burst.
    pub tcp_reset_burst: u32,
    /// Milliseconds that a resolved adjacency is believed without asking the kernel's FIB again.
    pub adjacency_lifetime_ms: u32,
    /// Flows that proxies with `memory: flow` and End.AN remember, 1 to 10000000. The longest unused one gives way to a new one.
    pub proxy_flows: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            icmp_errors_per_second: 1000,
            icmp_error_burst: 100,
            echo_replies_per_second: 1000,
            echo_reply_burst: 100,
            tcp_resets_per_second: 1000,
            tcp_reset_burst: 100,
            adjacency_lifetime_ms: 1000,
            proxy_flows: 100_000,
        }
    }
}

fn yes() -> bool {
    true
}
fn is_true(value: &bool) -> bool {
    *value
}
fn is_zero_priority(value: &i32) -> bool {
    *value == 0
}
fn is_zero(value: &u8) -> bool {
    *value == 0
}
fn one() -> u32 {
    1
}
fn default_hop_limit() -> u8 {
    64
}

impl Behaviour {
    /// Its name in the standards, such as `End.DT46`.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "End",
            Self::EndX => "End.X",
            Self::EndT => "End.T",
            Self::EndDx2 => "End.DX2",
            Self::EndDx4 => "End.DX4",
            Self::EndDx6 => "End.DX6",
            Self::EndDt4 => "End.DT4",
            Self::EndDt6 => "End.DT6",
            Self::EndDt46 => "End.DT46",
            Self::EndB6Encaps => "End.B6.Encaps",
            Self::EndB6EncapsRed => "End.B6.Encaps.Red",
            Self::EndBm => "End.BM",
            Self::EndDtm => "End.DTM",
            Self::EndAs => "End.AS",
            Self::EndAd => "End.AD",
            Self::EndAm => "End.AM",
            Self::EndAn => "End.AN",
            Self::EndAnNf => "End.AN.NF",
        }
    }
}

impl Flavour {
    /// Its name in the standards, such as `PSP`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Psp => "PSP",
            Self::Usp => "USP",
            Self::Usd => "USD",
            Self::Nat => "NAT",
            Self::Caching => "Caching",
        }
    }
}

impl HeadendMode {
    /// Its name in the standards, such as `H.Encaps.Red`.
    pub fn name(self) -> &'static str {
        match self {
            Self::HEncaps => "H.Encaps",
            Self::HEncapsRed => "H.Encaps.Red",
            Self::HEncapsL2 => "H.Encaps.L2",
            Self::HEncapsL2Red => "H.Encaps.L2.Red",
            Self::HInsert => "H.Insert",
            Self::Push => "PUSH",
        }
    }
}
