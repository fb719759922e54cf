//! What the compiler has to know about the machine: interfaces, the kernel's abilities, sizes of tables.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use segue_model::node::{Behaviour, Memory, NodeState, Sid};
use serde::{Deserialize, Serialize};

/// Where on an interface the data plane meets its packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// XDP: frames, before there are socket buffers. Segmentation and receive offload end here.
    #[default]
    Xdp,
    /// The ingress of TC: socket buffers, which may be many segments that stay together.
    Skb,
}

/// A network interface as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's number of it, not 0.
    pub ifindex: u32,
    /// Layer 3 MTU, octets.
    pub mtu: u32,
    /// Link-layer address.
    pub mac: [u8; 6],
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
    /// Administratively up with a carrier.
    pub up: bool,
    /// One end of a veth pair whose other end is in another network namespace.
    #[serde(default)]
    pub peer_elsewhere: bool,
    /// ifindex of the VRF device that it is in.
    #[serde(default)]
    pub vrf: Option<u32>,
    /// Some routing rule is about packets that come in by it (`ip rule add iif NAME`).
    #[serde(default)]
    pub ruled: bool,
    /// Where its packets are met if it is a port. [`Interfaces::query`] says XDP of all: who asks chooses.
    #[serde(default)]
    pub hook: Hook,
    /// It takes frames that XDP redirects into it; by others the TC program sends. [`Interfaces::query`] says so of all: who asks
    /// knows better.
    #[serde(default = "yes")]
    pub takes_frames: bool,
}

fn yes() -> bool {
    true
}

/// Interfaces of one network namespace by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces(pub BTreeMap<String, Interface>);

impl Interfaces {
    /// Whether nothing else differs but which of them are up, and which take frames: what is at their far ends has its way with that.
    pub fn same_but_far_ends(&self, other: &Self) -> bool {
        let same =
            |(a, b): (&Interface, &Interface)| *a == Interface { up: a.up, takes_frames: a.takes_frames, ..b.clone() };
        self.0.keys().eq(other.0.keys()) && self.0.values().zip(other.0.values()).all(same)
    }

    /// The interface of this name.
    pub fn get(&self, name: &str) -> Option<&Interface> {
        self.0.get(name)
    }

    /// The name of the interface with this number.
    pub fn name(&self, ifindex: u32) -> Option<&str> {
        self.0.iter().find(|(_, interface)| interface.ifindex == ifindex).map(|(name, _)| name.as_str())
    }
}

/// What this kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// BPF_FIB_LOOKUP_TBID: XDP looks up a given routing table (6.5 and newer). Without it such packets go to the kernel.
    pub fib_table: bool,
    /// Multi-buffer frames can be redirected (6.3 and newer).
    pub redirect_multi_buffer: bool,
    /// Jiffies per second (CONFIG_HZ).
    pub hz: u32,
}

/// Sizes of the tables, in objects of one configuration. The maps are made twice as large where two generations live side
/// by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Capacity {
    /// Local SIDs, binding SIDs included.
    pub sids: u32,
    /// SR policies, one more for each End.AS.
    pub policies: u32,
    /// Segment lists of all policies.
    pub segment_lists: u32,
    /// Steering rules.
    pub steering_rules: u32,
    /// Octets of the structure that steering rules are looked up in, of both generations; a power of two.
    pub steering: u32,
    /// Ports.
    pub ports: u32,
    /// Flows that proxies remember; 1 while none does so.
    pub proxy_flows: u32,
    /// Flows whose instance of a function is remembered; 1 while no function has several.
    pub instance_flows: u32,
    /// Steering headers that proxies remember: [`Capacity::STASH_UNUSED`] or [`Capacity::STASH`].
    pub stash: u32,
    /// Firewalls.
    pub firewalls: u32,
    /// Rules of all firewalls, members of sets included.
    pub firewall_rules: u32,
    /// Octets of the structure that rules are looked up in, of both generations; a power of two.
    pub classifier: u32,
    /// Addresses in all lists of `-m recent`: [`Capacity::LISTED`], or what all firewalls with lists may note together if that is more;
    /// 1 while no rule has one.
    pub listed: u32,
}

/// What a node of an ordinary network needs; tables grow with what is applied. Rows that nobody uses are not free: the kernel makes the
/// memory of each row that CPUs count in by itself, which took a quarter of an agent's start when there were 60,000 of them.
impl Default for Capacity {
    fn default() -> Self {
        Self {
            sids: 512,
            policies: 256,
            segment_lists: 512,
            steering_rules: 1024,
            steering: 1 << 16,
            ports: 64,
            proxy_flows: 1,
            instance_flows: 1,
            stash: Self::STASH_UNUSED,
            firewalls: 8,
            firewall_rules: 256,
            classifier: 1 << 16,
            listed: 1,
        }
    }
}

impl Capacity {
    /// The most flows that each CPU remembers the steering rule of.
    const FLOW_CACHE_MAX: u32 = 1 << 16;
    /// Steering rules up to which CPUs remember no more flows than `SEGUE_FLOW_CACHE`.
    const FEW_STEERING_RULES: u32 = 1 << 14;
    /// Addresses in lists of `-m recent` as soon as there is one; each takes some 400 octets.
    pub const LISTED: u32 = 1 << 14;
    /// Steering headers while no SID remembers any.
    pub const STASH_UNUSED: u32 = 64;
    /// Steering headers as soon as one does: as many as references can tell apart.
    pub const STASH: u32 = segue_abi::SEGUE_STASH_SLOTS;

    /// Flows that each CPU remembers the steering rule of, a power of two: many rules are seldom for few flows, and the more of
    /// them there are, the more it costs to find one.
    fn flow_cache(&self) -> u32 {
        if self.steering_rules <= Self::FEW_STEERING_RULES {
            return segue_abi::SEGUE_FLOW_CACHE;
        }
        self.steering_rules.min(Self::FLOW_CACHE_MAX).next_power_of_two()
    }

    /// The rows of that memory, a power of two.
    pub(crate) fn flow_rows(&self) -> u32 {
        self.flow_cache() / segue_abi::SEGUE_FLOW_ROW
    }

    /// Flows of proxies that each CPU remembers, a power of two.
    pub(crate) fn proxy_flow_cache(&self) -> u32 {
        if self.proxy_flows <= 1 { 1 } else { segue_abi::SEGUE_PROXY_FLOW_CACHE }
    }

    /// Whether only what proxies remember has other sizes.
    pub(crate) fn same_but_memories(self, other: Self) -> bool {
        let (proxy_flows, instance_flows, stash) = (other.proxy_flows, other.instance_flows, other.stash);
        Self { proxy_flows, instance_flows, stash, listed: other.listed, ..self } == other
    }

    /// Large enough for what the SIDs of `state` remember.
    pub fn for_memories_of(self, state: &NodeState) -> Self {
        let remembers = |sid: &Sid| {
            matches!(sid.behaviour, Behaviour::EndAd | Behaviour::EndAm | Behaviour::EndAn | Behaviour::EndAnNf)
                && sid.firewall.is_none()
        };
        let services = state.services();
        let functions = || state.sids.iter().chain(&services);
        let stash = if functions().any(remembers) { Self::STASH } else { 0 };
        let by_flow = functions().any(|sid| sid.memory() == Some(Memory::Flow));
        let proxy_flows = if by_flow { state.settings.proxy_flows } else { 0 };
        let several = state.functions.values().any(|function| !function.instances.is_empty());
        let instance_flows = if several { state.settings.proxy_flows } else { 0 };
        let with_lists = state.firewalls.iter().filter(|firewall| firewall.has_lists()).count();
        let each = u32::try_from(with_lists).unwrap_or(u32::MAX).saturating_mul(segue_abi::SEGUE_RECENT_EACH);
        let listed = if each == 0 { 0 } else { each.clamp(Self::LISTED, 1 << 24).next_power_of_two() };
        Self {
            listed: self.listed.max(listed),
            proxy_flows: self.proxy_flows.max(proxy_flows),
            instance_flows: self.instance_flows.max(instance_flows),
            stash: self.stash.max(stash),
            ..self
        }
    }

    /// Rows in the map `firewall_counters`: row 0 is never used, each firewall has two policies, and there are two generations.
    pub fn firewall_counters(&self) -> u32 {
        1 + 2 * (self.firewall_rules + 2 * self.firewalls)
    }

    /// Slots in the map `connections`: slot 0 is never used, a firewall has one table or, after its size has changed, two, and there
    /// are two generations.
    pub fn connection_tables(&self) -> u32 {
        1 + 4 * self.firewalls
    }

    /// Rows in the map `counters`: row 0 is never used, a SID has two, and an object that goes keeps its row until the next
    /// apply, so that there is room for two generations.
    pub fn counters(&self) -> u32 {
        1 + 2 * (2 * self.sids + self.policies + self.segment_lists + self.steering_rules)
    }

    /// Doubles a table until it holds `needed`. False if it has reached the largest size that makes sense.
    pub(crate) fn grow(&mut self, table: Table, needed: u32) -> bool {
        const PORTS_MAX: u32 = segue_abi::SEGUE_PORT_SLOTS;
        const MAX: u32 = 1 << 20;
        const CLASSIFIER_MAX: u32 = 1 << 28;
        let (size, max) = match table {
            Table::Sids => (&mut self.sids, MAX),
            Table::Policies => (&mut self.policies, MAX),
            Table::SegmentLists => (&mut self.segment_lists, MAX),
            Table::SteeringRules => (&mut self.steering_rules, MAX),
            Table::SteeringLines => (&mut self.steering, CLASSIFIER_MAX),
            Table::Ports => (&mut self.ports, PORTS_MAX),
            Table::Firewalls => (&mut self.firewalls, MAX),
            Table::FirewallRules => (&mut self.firewall_rules, MAX),
            Table::FirewallLines => (&mut self.classifier, CLASSIFIER_MAX),
            // Instances of functions have SIDs of their own, which are met one by one.
            Table::Counters => (&mut self.sids, MAX),
        };
        let needed = if table == Table::Counters { 0 } else { needed };
        let mut grown = size.saturating_mul(2).clamp(1, max);
        while grown < needed.min(max) {
            grown = grown.saturating_mul(2).min(max);
        }
        let changed = grown > *size;
        *size = grown;
        changed
    }

    /// The larger size of each table.
    pub(crate) fn max(&self, other: &Self) -> Self {
        Self {
            sids: self.sids.max(other.sids),
            policies: self.policies.max(other.policies),
            segment_lists: self.segment_lists.max(other.segment_lists),
            steering_rules: self.steering_rules.max(other.steering_rules),
            steering: self.steering.max(other.steering),
            ports: self.ports.max(other.ports),
            proxy_flows: self.proxy_flows.max(other.proxy_flows),
            instance_flows: self.instance_flows.max(other.instance_flows),
            stash: self.stash.max(other.stash),
            firewalls: self.firewalls.max(other.firewalls),
            firewall_rules: self.firewall_rules.max(other.firewall_rules),
            classifier: self.classifier.max(other.classifier),
            listed: self.listed.max(other.listed),
        }
    }
}

/// A table of the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// `sids`, `sid_entries`.
    Sids,
    /// `policies`.
    Policies,
    /// `segment_lists`.
    SegmentLists,
    /// Their counters.
    SteeringRules,
    /// `steering`.
    SteeringLines,
    /// `outcomes`: one row for each port.
    Ports,
    /// `firewalls`.
    Firewalls,
    /// `firewall_rules`, `firewall_extensions`, `firewall_counters`.
    FirewallRules,
    /// `classifier`.
    FirewallLines,
    /// `counters`, whose size follows from the others.
    Counters,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sids => "SIDs",
            Self::Policies => "SR policies",
            Self::SegmentLists => "segment lists",
            Self::SteeringRules => "steering rules",
            Self::SteeringLines => "octets of the steering rules' lookup structure",
            Self::Ports => "ports",
            Self::Firewalls => "firewalls",
            Self::FirewallRules => "firewall rules",
            Self::FirewallLines => "lines of the firewalls' lookup structure",
            Self::Counters => "counters",
        })
    }
}

/// What to do with a configured port whose interface does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingInterface {
    /// Refuse the configuration: right for what an operator applies.
    #[default]
    Refuse,
    /// Leave out the port and what needs it, with a warning: right when the agent applies again because a link has gone.
    LeaveOut,
}
