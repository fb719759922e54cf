//! Functions behind a SID: proxies (draft-ietf-spring-sr-service-programming section 6), SR-aware functions, netfilter.

use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::direction::Direction;

/// Differences in the outer hop limit that are less than this do not make another header: what End.AD starts from.
pub const HOP_LIMIT_MARGIN: u8 = 8;
/// Seconds after which an unused flow is forgotten, if the operator does not say.
pub const FLOW_TIMEOUT: u32 = 300;

/// The veth pair by which TC programs give packets to the next segment of the same node: what is sent to [`LOOP_IN`] comes out of
/// [`LOOP_OUT`], which is a core port. The agent makes it where [`NodeState::needs_loop`] says so.
pub const LOOP_IN: &str = "segue-loop0";
/// See [`LOOP_IN`].
pub const LOOP_OUT: &str = "segue-loop1";

/// The veth pair by which the kernel makes single, complete packets of socket buffers that are to get labels, or go into IPv6 as whole frames: what
/// TC programs send to [`CUT_IN`] comes out of [`CUT_OUT`]. The agent makes it where ports may need it: [`NodeState::cut_ports`].
///
/// [`NodeState::cut_ports`]: crate::node::NodeState::cut_ports
pub const CUT_IN: &str = "segue-cut0";
/// See [`CUT_IN`].
pub const CUT_OUT: &str = "segue-cut1";

/// Type of an inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum InnerType {
    IPv4,
    IPv6,
    Ethernet,
}

/// The function behind a proxy SID, and how packets from it get their steering header back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// End.AS, End.AD: what the function takes. IP types may be mixed; Ethernet stands alone, and not with `memory: packet` or
    /// `flow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerType>,
    /// A function of this node (`functions`), instead of `to_function` and `from_function`: it says by which links packets go and come,
    /// and how it is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// With `function`: packets go in by its west link and come back by its east link (`forward`, the default), or the other way round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Never written: in what the agent makes of a state, the SIDs of the function's instances that take new flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub instances: Option<Vec<Ipv6Addr>>,
    /// IFACE-OUT: the port towards the function.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to_function: String,
    /// IFACE-IN: the port on which packets come back. It serves one SID of End.AS or of End.AD with `memory: interface`;
    /// otherwise any number of SIDs that agree in what they remember by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from_function: String,
    /// End.AD: what the steering header is remembered by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// End.AS: CACHE.LIST, the segments that are still to visit, in order of traversal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Ipv6Addr>,
    /// static_proxy: the labels that are still to visit, in order of traversal, at most 32. The first is one of this node's. If there are
    /// none, packets go on by their destination.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u32>,
    /// End.AS: CACHE.SA; the node's source address if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address: Option<Ipv6Addr>,
    /// End.AS: without the first segment in the SRH (and without an SRH for a single segment).
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub reduced: bool,
    /// End.AS, End.AD: inner packets of another type are sent on to the next segment as the draft says (`bypass`), or dropped.
    #[serde(default)]
    pub other_types: OtherTypes,
    /// End.AD: headers whose hop limits differ by less than this are the same, 1 to 255; 8 if not given, and with
    /// `memory: packet` 1: every packet gets its own hop limit back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_limit_margin: Option<u8>,
    /// `memory: flow`, and End.AN: seconds after which an unused flow is forgotten, 1 to 86400; 300 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_timeout: Option<u32>,
    /// `memory: flow`: what becomes of packets of flows that never went to the function, or that it rewrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_flow: Option<UnknownFlow>,
    /// `memory: packet`: what becomes of packets that the function makes itself, such as its ICMP errors. End.AM, End.AN: what
    /// becomes of packets without SRH, `route` or `drop` (the default there).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_traffic: Option<OwnTraffic>,
    /// End.AN: what the function may do to the segment list. Packets that come back with more changed are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_change: Option<MayChange>,
    /// End.AN, `sr_aware`: what the function may rewrite beside the segment list, or behind the labels. Without it, all else comes back as it was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_rewrite: Vec<MayRewrite>,
    /// What becomes of packets to the SID while the function is down; needs `watch`.
    #[serde(default, skip_serializing_if = "OnFailure::is_drop")]
    pub on_failure: OnFailure,
    /// `on_failure: reroute`: the SID that packets go to instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Ipv6Addr>,
    /// The same for a label: the label of this node in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_label: Option<u32>,
    /// How to see that the function is down; not watched if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// End.AN.NF: netfilter in a network namespace of its own works on the inner packet. The agent makes the namespace if it is
/// not there, and the two links to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Netfilter {
    /// Name of the namespace, as `ip netns` shows it. SIDs with the same one share its rules and connection table.
    pub namespace: String,
    /// What becomes of packets that netfilter makes itself, such as those of REJECT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_traffic: Option<OwnTraffic>,
    /// What becomes of packets to the SID while the namespace is down; needs `watch`.
    #[serde(default, skip_serializing_if = "OnFailure::is_drop")]
    pub on_failure: OnFailure,
    /// `on_failure: reroute`: the SID that packets go to instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Ipv6Addr>,
    /// The same for a label: the label of this node in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_label: Option<u32>,
    /// How to see that it is down; not watched if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// What a dynamic proxy (End.AD) remembers the steering header by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// The last header seen for the return interface, as the draft says: one chain and direction at a time.
    #[default]
    Interface,
    /// By inner flow: addresses, protocol, ports.
    Flow,
    /// By packet: the exact proxy, for functions on the kernel's own forwarding path.
    Packet,
}

/// What a proxy does with inner packets that its function does not take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtherTypes {
    /// Dropped: a function that must see all traffic is not bypassed.
    #[default]
    Drop,
    /// Sent on to the next segment without visiting the function.
    Bypass,
}

/// What a proxy that remembers flows does with packets of flows that it does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFlow {
    /// Dropped and counted.
    #[default]
    Drop,
    /// They get the header last seen for the interface: right for one chain whose function rewrites addresses.
    Interface,
}

/// What becomes of packets that a function made itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnTraffic {
    /// To the node's kernel, which routes them.
    #[default]
    Route,
    /// Through the node's steering rules as from an access port; to the kernel where none holds.
    Steer,
    /// Dropped and counted.
    Drop,
}

/// What an SR-aware function may do to the segment list beside its own End processing. Each includes those above it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MayChange {
    /// Nothing.
    #[default]
    Nothing,
    /// New segments right behind its own.
    InsertNext,
    /// New segments anywhere behind its own.
    Insert,
    /// The rest of the list, but for the last segment.
    Replace,
    /// The rest of the list, the last segment included.
    ReplaceAll,
}

/// What an SR-aware function may rewrite beside the segment list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MayRewrite {
    /// Addresses and ports of the packet that it serves, as a NAT does: of the inner packet, or of the packet itself where the
    /// SRH was inserted. Such a packet must keep its segment list, and none of its addresses may become a SID. Behind a label: any flow may come back,
    /// with a stack that was sent to the function.
    Addresses,
    /// The DSCP of the outer header.
    TrafficClass,
    /// What follows the segment list in the SRH.
    Tlvs,
}

/// What a SID does while its function is down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Packets are dropped and counted.
    #[default]
    Drop,
    /// Packets go on to the next segment without visiting the function.
    Bypass,
    /// As `drop`, and the SID's kernel route goes, so that routing finds another instance.
    Withdraw,
    /// Packets go to the SID in `backup` in place of this one.
    Reroute,
}

impl OnFailure {
    fn is_drop(&self) -> bool {
        *self == Self::Drop
    }
}

/// How a function's life is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The function is down while one of its interfaces is down, has no carrier or is gone.
    #[serde(default = "yes")]
    pub link: bool,
    /// Probes, beside the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// A function that went down stays down for at least so many milliseconds, 0 to 3600000.
    #[serde(default = "default_hold_ms")]
    pub hold_ms: u32,
}

impl Default for Watch {
    fn default() -> Self {
        Self { link: true, probe: None, hold_ms: default_hold_ms() }
    }
}

/// Probes of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// What is asked.
    pub kind: ProbeKind,
    /// Who is asked: the SID's `next_hop` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<IpAddr>,
    /// `kind: tcp`: the destination port, not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Milliseconds from one probe to the next, 50 to 60000.
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u32,
    /// Milliseconds to wait for an answer, 10 to 60000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u32,
    /// Probes without an answer in a row that make the function down, 1 to 100.
    #[serde(default = "default_fall")]
    pub fall: u8,
    /// Answers in a row that make it up again, 1 to 100.
    #[serde(default = "default_rise")]
    pub rise: u8,
    /// `kind: icmp` and `tcp`: a packet that the function must forward goes out by `to_function`, from the node's address there,
    /// to the node's address on `from_function`, where it must come back. `target` chooses one of these, if there are several.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub through: bool,
}

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// ARP or neighbour solicitation.
    Neighbour,
    /// Echo request.
    Icmp,
    /// Connection set-up.
    Tcp,
}

impl Proxy {
    /// A proxy with these ports and nothing else given.
    pub fn new(to_function: impl Into<String>, from_function: impl Into<String>) -> Self {
        Self {
            inner: Vec::new(),
            function: None,
            direction: None,
            instances: None,
            to_function: to_function.into(),
            from_function: from_function.into(),
            memory: None,
            segments: Vec::new(),
            labels: Vec::new(),
            source_address: None,
            reduced: true,
            other_types: OtherTypes::Drop,
            hop_limit_margin: None,
            flow_timeout: None,
            unknown_flow: None,
            own_traffic: None,
            may_change: None,
            may_rewrite: Vec::new(),
            on_failure: OnFailure::Drop,
            backup: None,
            backup_label: None,
            watch: None,
        }
    }
}

impl Netfilter {
    /// This namespace and nothing else given.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            own_traffic: None,
            on_failure: OnFailure::Drop,
            backup: None,
            backup_label: None,
            watch: None,
        }
    }
}

fn yes() -> bool {
    true
}
fn is_true(value: &bool) -> bool {
    *value
}
fn default_hold_ms() -> u32 {
    1000
}
fn default_interval_ms() -> u32 {
    200
}
fn default_timeout_ms() -> u32 {
    200
}
fn default_fall() -> u8 {
    3
}
fn default_rise() -> u8 {
    3
}
