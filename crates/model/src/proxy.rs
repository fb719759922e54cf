//! Functions behind a SID: proxies (draft-ietf-spring-sr-service-programming section 6), SR-aware functions, netfilter.

use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::{Behaviour, Flavour, InnerType, NodeState, Port, PortRole, Sid};
use crate::value::MacAddress;

/// Differences in the outer hop limit that are less than this do not make another header: what End.AD starts from.
pub const HOP_LIMIT_MARGIN: u8 = 8;
/// Seconds after which an unused flow is forgotten, if the operator does not say.
pub const FLOW_TIMEOUT: u32 = 300;

/// The veth pair by which TC programs give packets to the next segment of the same node: what is sent to [`LOOP_IN`] comes out of
/// [`LOOP_OUT`], which is a core port. The agent makes it where [`NodeState::needs_loop`] says so.
pub const LOOP_IN: &str = "segue-loop0";
/// See [`LOOP_IN`].
pub const LOOP_OUT: &str = "segue-loop1";

/// The function behind a proxy SID, and how packets from it get their steering header back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// End.AS, End.AD: what the function takes. IP types may be mixed; Ethernet stands alone, and not with `memory: packet` or
    /// `flow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerType>,
    /// IFACE-OUT: the port towards the function.
    pub to_function: String,
    /// IFACE-IN: the port on which packets come back. It serves one SID of End.AS or of End.AD with `memory: interface`;
    /// otherwise any number of SIDs that agree in what they remember by.
    pub from_function: String,
    /// End.AD: what the steering header is remembered by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// End.AS: CACHE.LIST, the segments that are still to visit, in order of traversal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Ipv6Addr>,
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
    /// End.AN: what the function may rewrite beside the segment list. Without it, all else comes back as it was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_rewrite: Vec<MayRewrite>,
    /// What becomes of packets to the SID while the function is down; needs `watch`.
    #[serde(default, skip_serializing_if = "OnFailure::is_drop")]
    pub on_failure: OnFailure,
    /// `on_failure: reroute`: the SID that packets go to instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Ipv6Addr>,
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
    /// SRH was inserted. Such a packet must keep its segment list, and none of its addresses may become a SID.
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

/// The two links between a node and the namespace of an End.AN.NF SID. Packets go in by `west` and come back by `east`; the
/// agent makes both under names that follow from the namespace's, and the data plane knows them by these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// The namespace.
    pub namespace: String,
    /// The node's end of the link by which packets go in: IFACE-OUT.
    pub node_west: String,
    /// The node's end of the link by which packets come back: IFACE-IN.
    pub node_east: String,
    /// Link-layer address of `node_west`.
    pub node_west_mac: MacAddress,
    /// Link-layer address of `node_east`.
    pub node_east_mac: MacAddress,
    /// Link-layer address of [`Wiring::WEST`] in the namespace.
    pub west_mac: MacAddress,
    /// Link-layer address of [`Wiring::EAST`] in the namespace.
    pub east_mac: MacAddress,
}

impl Wiring {
    /// Name of the link to `node_west` in the namespace.
    pub const WEST: &'static str = "west";
    /// Name of the link to `node_east` in the namespace.
    pub const EAST: &'static str = "east";

    /// The wiring of a namespace.
    pub fn of(namespace: &str) -> Self {
        let hash = fnv1a(namespace.as_bytes());
        // 4 + 11 = 15 octets, the most that an interface's name may have.
        let short = if namespace.len() <= 11 {
            namespace.to_owned()
        } else {
            let start: String = namespace.chars().filter(char::is_ascii).take(5).collect();
            format!("{start}{:06x}", hash & 0xff_ffff)
        };
        let mac = |side: u8| {
            let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
            // Locally administered, one station.
            MacAddress([0x02 | (side << 2), a, b, c, d, e])
        };
        Self {
            namespace: namespace.to_owned(),
            node_west: format!("nfw-{short}"),
            node_east: format!("nfe-{short}"),
            node_west_mac: mac(0),
            node_east_mac: mac(1),
            west_mac: mac(2),
            east_mac: mac(3),
        }
    }

    /// The node's ends as ports.
    pub fn ports(&self) -> [Port; 2] {
        [&self.node_west, &self.node_east].map(|name| port(name, PortRole::Service))
    }
}

fn port(name: &str, role: PortRole) -> Port {
    Port { name: name.to_owned(), role, accept_hmac: false, l2_policy: None, firewall: None }
}

/// FNV-1a, 64 bits: stable for ever, as names of interfaces follow from it.
fn fnv1a(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3))
}

impl Proxy {
    /// A proxy with these ports and nothing else given.
    pub fn new(to_function: impl Into<String>, from_function: impl Into<String>) -> Self {
        Self {
            inner: Vec::new(),
            to_function: to_function.into(),
            from_function: from_function.into(),
            memory: None,
            segments: Vec::new(),
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
            watch: None,
        }
    }
}

impl Netfilter {
    /// This namespace and nothing else given.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), own_traffic: None, on_failure: OnFailure::Drop, backup: None, watch: None }
    }
}

impl Sid {
    /// What it remembers steering headers by. None for End.AS, and for End.AM without Caching.
    pub fn memory(&self) -> Option<Memory> {
        match self.behaviour {
            Behaviour::EndAd => Some(self.proxy.as_ref().and_then(|proxy| proxy.memory).unwrap_or_default()),
            Behaviour::EndAm if self.flavours.contains(&Flavour::Caching) => Some(Memory::Interface),
            Behaviour::EndAn if self.firewall.is_some() => None,
            Behaviour::EndAn => Some(Memory::Flow),
            Behaviour::EndAnNf => Some(Memory::Packet),
            _ => None,
        }
    }

    /// IFACE-OUT and IFACE-IN of a proxy, of an SR-aware function or of End.AN.NF.
    pub fn function_ports(&self) -> Option<(String, String)> {
        if let Some(netfilter) = &self.netfilter {
            let wiring = Wiring::of(&netfilter.namespace);
            return Some((wiring.node_west, wiring.node_east));
        }
        self.proxy.as_ref().map(|proxy| (proxy.to_function.clone(), proxy.from_function.clone()))
    }

    /// Hop limits that differ by less are the same header.
    pub fn hop_limit_margin(&self) -> u8 {
        let default = if self.memory() == Some(Memory::Packet) { 1 } else { HOP_LIMIT_MARGIN };
        self.proxy.as_ref().and_then(|proxy| proxy.hop_limit_margin).unwrap_or(default)
    }

    /// Seconds after which an unused flow is forgotten.
    pub fn flow_timeout(&self) -> u32 {
        self.proxy.as_ref().and_then(|proxy| proxy.flow_timeout).unwrap_or(FLOW_TIMEOUT)
    }

    /// What becomes of packets that the function made itself, where they can be told apart. What comes without SRH from a
    /// function that gets it with one is dropped, unless the operator says otherwise.
    pub fn own_traffic(&self) -> OwnTraffic {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.own_traffic);
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.own_traffic)).unwrap_or(
            match self.behaviour {
                Behaviour::EndAm | Behaviour::EndAn => OwnTraffic::Drop,
                _ => OwnTraffic::Route,
            },
        )
    }

    /// What it does while its function is down.
    pub fn on_failure(&self) -> OnFailure {
        let of_proxy = self.proxy.as_ref().map(|proxy| proxy.on_failure);
        of_proxy.or(self.netfilter.as_ref().map(|netfilter| netfilter.on_failure)).unwrap_or_default()
    }

    /// Where packets go while its function is down, if it reroutes them.
    pub fn backup(&self) -> Option<Ipv6Addr> {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.backup);
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.backup))
    }

    /// How its function is watched.
    pub fn watch(&self) -> Option<&Watch> {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.watch.as_ref());
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.watch.as_ref()))
    }
}

impl NodeState {
    /// The wiring of each namespace that an End.AN.NF SID uses, once, by name of the namespace.
    pub fn wirings(&self) -> Vec<Wiring> {
        let mut names: Vec<&str> =
            self.sids.iter().filter_map(|sid| Some(sid.netfilter.as_ref()?.namespace.as_str())).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Wiring::of).collect()
    }

    /// Whether a SID remembers packets one by one: TC programs are needed then, and the pair [`LOOP_IN`], [`LOOP_OUT`].
    pub fn needs_loop(&self) -> bool {
        self.sids.iter().any(|sid| sid.memory() == Some(Memory::Packet))
    }

    /// The configured ports, then those that the agent makes: of [`NodeState::wirings`], and [`LOOP_OUT`].
    pub fn all_ports(&self) -> Vec<Port> {
        let wired = self.wirings();
        let again = self.needs_loop().then(|| port(LOOP_OUT, PortRole::Core));
        self.ports.iter().cloned().chain(wired.iter().flat_map(Wiring::ports)).chain(again).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn names_of_wirings_are_names_of_interfaces() {
        for namespace in ["fw", "elevenchars", "twelve-chars", "a-much-longer-name-of-a-namespace", "ümläute-überall"]
        {
            let wiring = Wiring::of(namespace);
            for name in [&wiring.node_west, &wiring.node_east] {
                assert!(check::is_interface_name(name), "{name}");
            }
            let macs = [wiring.node_west_mac, wiring.node_east_mac, wiring.west_mac, wiring.east_mac];
            for (position, mac) in macs.iter().enumerate() {
                assert!(mac.is_unicast() && mac.octets()[0] & 2 != 0, "{mac}");
                assert!(!macs[..position].contains(mac));
            }
        }
        assert_eq!(Wiring::of("fw").node_west, "nfw-fw");
        assert_eq!(Wiring::of("firewall-of-customer-1").node_east, "nfe-firewcde0c2");
        assert_ne!(Wiring::of("firewall-of-customer-1").node_west, Wiring::of("firewall-of-customer-2").node_west);
    }
}
