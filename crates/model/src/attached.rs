//! Functions as objects of a node: attached to something that is there, with both directions and one health.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proxy::{FLOW_TIMEOUT, Watch};
use crate::value::MacAddress;

/// A function that somebody else starts, in a network namespace, a container or a virtual machine. The agent makes its two links, `west`
/// and `east`, and what leads packets from one to the other in both directions, whenever it comes; and undoes it when the function is
/// taken out. Or several instances of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFunction {
    /// Name of its network namespace, as `ip netns` shows it. Either this, `container`, `vm`, `service` or `instances`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Name of its container, which podman or docker runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its virtual machine, or whatever else is at the other end of two network devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Vm>,
    /// `netns` or `container`: its two links are virtual functions of a network card, in place of links that the agent makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf: Option<VirtualFunctions>,
    /// A packet service, which the agent starts itself, in a network namespace of its own; its SIDs are End.AN, its labels `sr_aware`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<NodeService>,
    /// Several of them behind each SID, by name, at most 16: each flow goes to one, in both directions.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub instances: IndexMap<String, Instance>,
    /// `instances`: what tells flows apart.
    #[serde(default, skip_serializing_if = "TellFlowsBy::is_ports")]
    pub tell_flows_by: TellFlowsBy,
    /// `instances`: seconds for which the instance of an unused flow is remembered, 1 to 86400; 300 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_timeout: Option<u32>,
    /// `instances`: seconds that the flows of an instance which is taken out have to end, 0 to 86400; 300 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<u32>,
    /// How to see that it is down, for all SIDs that lead to it; only the link if not given. A probe with `through` goes through it in
    /// both directions. Each instance is watched by itself.
    #[serde(default)]
    pub watch: Watch,
}

/// A packet service: a program in user space that gets packets with their steering header (docs/using/services.md).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeService {
    /// Which service: `segue service kinds` lists them.
    pub name: String,
    /// Its configuration; all defaults if not given. `segue service schema NAME` says what belongs here.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub config: serde_json::Value,
    /// Threads, from 1 to 64; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Processors that its threads are bound to, one for each; not bound if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Packets that segmentation offload has merged come and go whole, up to 64 KiB (packet sockets in place of AF_XDP): for TCP between hosts that
    /// have it, many times as fast; for small packets, slower. Only for services that let what is behind the steering header be as it is, as
    /// `forward` does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
    /// What it may use; as much as there is if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ServiceLimits>,
}

/// What a packet service may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceLimits {
    /// MiB of memory, 16 to 1,048,576; one that needs more is ended by the kernel, and started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Processors' time, in hundredths of one: 150 is one and a half. 1 to 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_percent: Option<u32>,
}

impl ServiceLimits {
    /// What is not possible: key, message and remedy of each.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String, String)> {
        let given =
            [("memory_mib", self.memory_mib, 16..=1 << 20), ("processor_percent", self.processor_percent, 1..=100_000)];
        let fault = |(key, value, range): (&'static str, Option<u32>, RangeInclusive<u32>)| {
            let value = value.filter(|value| !range.contains(value))?;
            let remedy = format!("write a number from {} to {}", range.start(), range.end());
            Some((key, format!("{value} is not possible"), remedy))
        };
        given.into_iter().filter_map(fault).collect()
    }
}

/// One of several instances of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Name of its network namespace. Either this, `container` or `vm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Name of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Vm>,
    /// `netns` or `container`: virtual functions of a network card for links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf: Option<VirtualFunctions>,
    /// New flows go elsewhere; those that it has stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A virtual machine, by the node's ends of its two links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Where packets of the forward direction go in.
    #[serde(default)]
    pub west: VmLink,
    /// Where they come back.
    #[serde(default)]
    pub east: VmLink,
}

/// One link of a virtual machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmLink {
    /// The node's end, which whoever runs the machine makes, such as `vnet3`. If not given, the agent makes a TAP device for it,
    /// `fnw-NAME` or `fne-NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The machine's link-layer address there; learnt if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
}

/// Virtual functions of a network card (SR-IOV), one for each side of a function. The card has each in a VLAN, by which this node reaches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualFunctions {
    /// The card's own interface, its physical function, such as `enp1s0f0`.
    pub device: String,
    /// The interface by which this node reaches the card's VLANs, if it is not the card's own: a port of the same switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How many virtual functions the agent has the card make if it has none; without it, it makes none. They stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub make: Option<u32>,
    /// Where packets of the forward direction go in.
    #[serde(default)]
    pub west: VirtualFunction,
    /// Where they come back.
    #[serde(default)]
    pub east: VirtualFunction,
}

impl VirtualFunctions {
    /// The interface that carries the VLANs on this node.
    pub fn carrier(&self) -> &str {
        self.by.as_deref().unwrap_or(&self.device)
    }
}

/// One virtual function, and what the card enforces on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualFunction {
    /// Its number at the card; the first one that is free if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// VLAN of IEEE 802.1Q, 1 to 4094: the card takes its tag off what is for the function, and puts it on what comes from it.
    #[serde(default)]
    pub vlan: u16,
    /// Its link-layer address; one that follows from the function's name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Whether frames from other link-layer addresses are dropped; as the card has it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// Whether it may change its link-layer address, and see what is for others; as the card has it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// Mbit/s that it is sure to get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<u32>,
    /// Mbit/s that it may send; without limit if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<u32>,
}

/// What tells flows apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TellFlowsBy {
    /// Addresses, protocol and ports: the flows of two hosts are spread too. Fragments have no ports.
    #[default]
    Ports,
    /// Addresses alone: all between two hosts goes to one instance, as functions need that relate connections, such as those of FTP.
    Addresses,
}

impl TellFlowsBy {
    fn is_ports(&self) -> bool {
        *self == Self::Ports
    }
}

impl NodeFunction {
    /// Seconds for which the instance of an unused flow is remembered.
    pub fn flow_timeout(&self) -> u32 {
        self.flow_timeout.unwrap_or(FLOW_TIMEOUT)
    }

    /// Seconds that the flows of an instance which is taken out have to end.
    pub fn drain_timeout(&self) -> u32 {
        self.drain_timeout.unwrap_or(FLOW_TIMEOUT)
    }

    /// One of its instances as a function of its own.
    pub(crate) fn instance(&self, instance: &Instance) -> Self {
        let Instance { netns, container, vm, vf, drain: _ } = instance.clone();
        Self { netns, container, vm, vf, watch: self.watch, ..Self::default() }
    }
}
