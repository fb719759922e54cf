//! What the agent tells about its node: configuration beside live counters.

use segue_model::owner::Owner;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Packets and octets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Layer 3 octets, as received.
    pub bytes: u64,
}

impl std::ops::Add for Counter {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets.wrapping_add(other.packets), bytes: self.bytes.wrapping_add(other.bytes) }
    }
}

impl std::iter::Sum for Counter {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

/// A local SID, or the binding SID of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SidReport {
    /// LOC:FUNCT as a prefix.
    pub sid: String,
    /// Endpoint behaviour.
    pub behaviour: String,
    /// Flavours of the behaviour.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavours: Vec<String>,
    /// Next hop, table, interface, policy or function, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// What the kernel's route for the SID says; `missing` if there is none. Only where SIDs are asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel_route: String,
    /// Packets that arrived for the SID.
    pub counter: Counter,
    /// Proxies: packets that came back from the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Counter>,
    /// Proxies that remember steering headers: what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// The operator's or the planner's comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The chain that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::owner_schema))]
    pub owner: Option<Owner>,
}

/// What SIDs that share a return interface remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryReport {
    /// The return interface and the kind, such as `fw-e flow`: SIDs with the same name share these numbers.
    pub shared: String,
    /// Headers that were written, because they differed from the last one in what matters.
    pub renewed: u64,
    /// By flow: flows that were new.
    pub created: u64,
    /// By flow: flows that were forgotten after their timeout.
    pub removed: u64,
    /// By flow: flows that are remembered now.
    pub present: u64,
    /// By flow: flows that gave way to new ones.
    pub evicted: u64,
    /// Packets that came back and belong to no flow that is known.
    pub unknown: u64,
    /// Flows whose header became that of another path within their life.
    pub conflicts: u64,
    /// Packets that came back after their header had been overwritten.
    pub overwritten: u64,
}

/// A segment list of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SegmentListReport {
    /// Share of the flows, relative to the other lists.
    pub weight: u32,
    /// SIDs, or labels, in order of traversal.
    pub segments: Vec<String>,
    /// Packets that this list was put on.
    pub counter: Counter,
}

/// An SR policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyReport {
    /// Unique on the node.
    pub name: String,
    /// Color.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<u32>,
    /// Endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Binding SID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_sid: Option<String>,
    /// Headend behaviour.
    pub mode: String,
    /// Packets that were put into the policy.
    pub counter: Counter,
    /// Its lists.
    pub segment_lists: Vec<SegmentListReport>,
    /// The chain that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::owner_schema))]
    pub owner: Option<Owner>,
}

/// A steering rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SteeringReport {
    /// Its name.
    pub name: String,
    /// What it matches, in words.
    #[serde(rename = "match")]
    pub matches: String,
    /// The policy, `pass` or `drop`.
    pub action: String,
    /// Packets that matched.
    pub counter: Counter,
}

/// A path that packets do not fit, as nodes of it have told, or the link behind a function: larger packets are refused where their
/// sender knows them (RFC 2473 section 7.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathMtuReport {
    /// The policy that leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The position of its segment list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<usize>,
    /// The SID, or label, of the function in front of the path; there is no `policy` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Octets: of a policy's packets with their headers, of a function's as they go into it.
    pub mtu: u16,
    /// How long it holds unless it is told again, seconds.
    pub seconds_left: u64,
}

/// What became of packets that came in by a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeReport {
    /// The port by which they came in.
    pub port: String,
    /// Name in the closed list of outcomes.
    pub outcome: String,
    /// `forwarded`, `passed` or `dropped`.
    pub kind: String,
    /// What the outcome means.
    pub text: String,
    /// How many.
    pub counter: Counter,
}

/// What a port's interface is, and what it can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceReport {
    /// Kind of a virtual device as the kernel names it, such as `veth`, `tun` (a TAP device too), `bridge`; `nic` for devices on a bus;
    /// `other`.
    pub kind: String,
    /// Driver of a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Number of the other end of a veth, or of the interface below, in its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// The peer is in another network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub peer_elsewhere: bool,
    /// What XDP can do with the interface, in the kernel's words; none before Linux 6.3, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_features: Option<Vec<String>>,
    /// Whether it takes frames that XDP redirects into it; what leaves by others goes through the network stack. None where the kernel
    /// does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_redirected: Option<bool>,
    /// Packets that the interface dropped as they came in, since it was made: among them are those that XDP redirected and the
    /// interface on the way out refused, which are counted as forwarded too.
    pub dropped_received: u64,
    /// Packets that the interface dropped as they were to leave by it, since it was made.
    pub dropped_sent: u64,
    /// What the kernel leaves to the interface; none where it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloads: Option<OffloadReport>,
}

/// What the kernel leaves to an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OffloadReport {
    /// Packets of a flow are merged when they are received.
    pub gro: bool,
    /// Checksums of what is sent.
    pub tx_checksum: bool,
    /// Segmentation of TCP.
    pub tcp_segmentation: bool,
    /// VLAN tags are taken off before XDP sees the frame.
    pub vlan_stripping: bool,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortReport {
    /// Name of the interface.
    pub name: String,
    /// `core`, `access` or `service`.
    pub role: String,
    /// The interface's number; 0 if it is not there.
    pub ifindex: u32,
    /// Whether the interface is up.
    pub up: bool,
    /// Layer 3 MTU, octets.
    pub mtu: u32,
    /// Link-layer address.
    pub mac: String,
    /// By what its program is on it: `xdp-native`, `xdp-generic`, `xdp` where the kernel does not tell which, `tcx` (on socket buffers),
    /// `tc` (the same before Linux 6.6) or `none`.
    pub hook: String,
    /// Where the data plane meets its packets: `xdp` or `skb`; only where ports are asked for, as all that follows but the counters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Why there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode_reason: String,
    /// The interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReport>,
    /// What loses packets here, or may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// Packets that came in and left by some port.
    pub forwarded: Counter,
    /// Packets that came in and were given to the kernel.
    pub passed: Counter,
    /// Packets that came in and were dropped.
    pub dropped: Counter,
}

/// Drops of one port for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DropReport {
    /// The port by which the packets came in.
    pub port: String,
    /// Name in the closed list of outcomes.
    pub reason: String,
    /// What the reason means.
    pub text: String,
    /// How many.
    pub counter: Counter,
    /// The last such packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastDrop>,
}

/// The last packet that was dropped by one port for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastDrop {
    /// Seconds ago.
    pub seconds_ago: u64,
    /// Octets of the frame.
    pub length: u32,
    /// Its headers in one line.
    pub headers: String,
    /// The frame's first octets, hexadecimal.
    pub bytes: String,
}

/// A chain, as far as this node has to do with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainReport {
    /// Name of the chain.
    pub name: String,
    /// This node's part in it, in the chain's order as far as the node knows it.
    pub parts: Vec<ChainPart>,
}

/// What a node does for a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainPart {
    /// `policy` or the behaviour of the SID.
    pub what: String,
    /// Name of the policy, or the SID.
    pub name: String,
    /// The direction that it serves, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The address family that it serves, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Segment lists, or what a SID serves with its comment.
    pub detail: String,
    /// Packets.
    pub counter: Counter,
}

/// Everything that counts, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// The node's name.
    pub node: String,
    /// Nanoseconds of the monotonic clock when the counters were read.
    pub time: u64,
    /// Number of the data plane's configuration.
    pub generation: u32,
    /// Ports.
    pub ports: Vec<PortReport>,
    /// Local SIDs.
    pub sids: Vec<SidReport>,
    /// SR policies.
    pub policies: Vec<PolicyReport>,
    /// Steering rules.
    pub steering: Vec<SteeringReport>,
    /// What became of packets; only what happened at least once.
    pub outcomes: Vec<OutcomeReport>,
    /// ICMP messages that the data plane made.
    pub icmp: IcmpReport,
}

/// ICMP messages that the data plane made, beside the outcome of the packet that caused each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IcmpReport {
    /// Destination Unreachable.
    pub unreachable: u64,
    /// Packet Too Big and ICMPv4 fragmentation needed.
    pub too_big: u64,
    /// Time Exceeded.
    pub time_exceeded: u64,
    /// Parameter Problem.
    pub parameter_problem: u64,
    /// Answers to echo requests to SIDs.
    pub echo_reply: u64,
    /// Errors from inside the domain that were sent on to the inner source (RFC 2473 section 8).
    pub relayed: u64,
    /// TCP segments with RST of firewalls.
    pub tcp_reset: u64,
    /// Not sent: above the rate limit (RFC 4443 section 2.4(f)).
    pub rate_limited: u64,
    /// Not sent: RFC 4443 section 2.4(e) forbids it, or there is no way back.
    pub not_sent: u64,
}

impl IcmpReport {
    /// Names and values, as in metrics.
    pub fn rows(&self) -> [(&'static str, u64); 9] {
        [
            ("unreachable", self.unreachable),
            ("too_big", self.too_big),
            ("time_exceeded", self.time_exceeded),
            ("parameter_problem", self.parameter_problem),
            ("echo_reply", self.echo_reply),
            ("relayed", self.relayed),
            ("tcp_reset", self.tcp_reset),
            ("rate_limited", self.rate_limited),
            ("not_sent", self.not_sent),
        ]
    }
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    /// Version of the agent.
    pub version: String,
    /// Version of the structures shared with the data plane.
    pub abi: u32,
    /// Name of the node; empty before the first state.
    pub node: String,
}
