//! What the compiler has to know about the machine: interfaces, the kernel's abilities, sizes of tables.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

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
}

/// Interfaces of one network namespace by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces(pub BTreeMap<String, Interface>);

impl Interfaces {
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
    /// Steering rules after expansion: one for each pair of port ranges, once for each destination prefix that has them.
    pub steering_rules: u32,
    /// Destination prefixes of steering rules.
    pub steering_prefixes: u32,
    /// Ports.
    pub ports: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            sids: 4096,
            policies: 2048,
            segment_lists: 4096,
            steering_rules: 16384,
            steering_prefixes: 8192,
            ports: 512,
        }
    }
}

impl Capacity {
    /// Rows in the map `counters`: row 0 is never used, a SID has two, and an object that goes keeps its row until the next
    /// apply, so that there is room for two generations.
    pub fn counters(&self) -> u32 {
        1 + 2 * (2 * self.sids + self.policies + self.segment_lists + self.steering_rules)
    }

    /// Whether tables of this size hold everything that tables of size `wanted` hold.
    pub fn holds(&self, wanted: &Self) -> bool {
        self.sids >= wanted.sids
            && self.policies >= wanted.policies
            && self.segment_lists >= wanted.segment_lists
            && self.steering_rules >= wanted.steering_rules
            && self.steering_prefixes >= wanted.steering_prefixes
            && self.ports >= wanted.ports
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
