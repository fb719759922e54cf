//! Network functions of a topology: where each is, what it runs in, and how packets get to it and back.
//!
//! How it is written: `written.rs`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attached::ServiceLimits;
use crate::firewall::Firewall;
use crate::node::InnerType;
use crate::proxy::{MayChange, MayRewrite, OnFailure, Watch};

/// A network function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The node that it is connected to.
    pub node: String,
    /// What it runs in.
    pub runs_in: RunsIn,
    /// Whether it understands Segment Routing itself.
    pub aware: bool,
    /// [`Function::aware`]: what it may do to the segment list beside going on.
    pub may_change: Option<MayChange>,
    /// [`Function::aware`]: what it may rewrite beside the segment list.
    pub may_rewrite: Vec<MayRewrite>,
    /// What is known of what it does to packets.
    pub capabilities: Capabilities,
    /// What stands in for a function that knows nothing of Segment Routing.
    pub proxy: ProxyChoice,
    /// What becomes of packets while it is down.
    pub on_failure: Option<OnFailure>,
    /// [`OnFailure::Reroute`]: the function that packets go to instead.
    pub backup: Option<String>,
    /// How to see that it is down; not watched if none.
    pub watch: Option<Watch>,
    /// What it takes.
    pub inner: Vec<InnerType>,
}

impl Function {
    /// A function as if only these two were written.
    pub fn new(node: &str, runs_in: RunsIn) -> Self {
        Self {
            node: node.to_owned(),
            runs_in,
            aware: false,
            may_change: None,
            may_rewrite: Vec::new(),
            capabilities: Capabilities::default(),
            proxy: ProxyChoice::Auto,
            on_failure: None,
            backup: None,
            watch: None,
            inner: ip_both(),
        }
    }

    /// Its nftables ruleset, as the topology has it.
    pub fn nftables(&self) -> Option<&str> {
        match &self.runs_in {
            RunsIn::Namespace(InNamespace { nftables, .. }) | RunsIn::Netfilter(InNetfilter { nftables, .. }) => {
                nftables.as_deref()
            }
            RunsIn::Tap(_) | RunsIn::Firewall(_) | RunsIn::Service(_) => None,
        }
    }

    /// The ruleset as what it is: a text or a path.
    pub fn ruleset(&self) -> Option<Ruleset<'_>> {
        self.nftables().map(|text| if text.contains(['\n', '{']) { Ruleset::Inline(text) } else { Ruleset::File(text) })
    }

    /// sysctls of its namespace, besides forwarding; none if it has no namespace.
    pub fn sysctls(&self) -> impl Iterator<Item = (&String, &String)> {
        let sysctls = match &self.runs_in {
            RunsIn::Namespace(InNamespace { sysctls, .. }) | RunsIn::Netfilter(InNetfilter { sysctls, .. }) => {
                Some(sysctls)
            }
            RunsIn::Tap(_) | RunsIn::Firewall(_) | RunsIn::Service(_) => None,
        };
        sysctls.into_iter().flatten()
    }

    /// Shell commands for its namespace once all is up; none if it has no namespace.
    pub fn commands(&self) -> &[String] {
        match &self.runs_in {
            RunsIn::Namespace(InNamespace { commands, .. }) | RunsIn::Netfilter(InNetfilter { commands, .. }) => {
                commands
            }
            RunsIn::Tap(_) | RunsIn::Firewall(_) | RunsIn::Service(_) => &[],
        }
    }

    /// One interface or two. The links of netfilter's namespace are always two; a firewall of its node has none, and answers two as well.
    pub fn interfaces(&self) -> Interfaces {
        match &self.runs_in {
            RunsIn::Namespace(InNamespace { interfaces, .. }) | RunsIn::Tap(OnTap { interfaces, .. }) => *interfaces,
            RunsIn::Netfilter(_) | RunsIn::Firewall(_) => Interfaces::Two,
            // Packets leave where they entered, in both directions: they know their way.
            RunsIn::Service(_) => Interfaces::One,
        }
    }

    /// The program at the other end of its TAP devices.
    pub fn program(&self) -> Option<&str> {
        match &self.runs_in {
            RunsIn::Tap(tap) => tap.program.as_deref(),
            _ => None,
        }
    }

    /// Its rules, if it is a firewall of its node.
    pub fn firewall(&self) -> Option<&Firewall> {
        match &self.runs_in {
            RunsIn::Firewall(firewall) => Some(firewall),
            _ => None,
        }
    }

    /// The same, to replace paths by texts.
    pub fn firewall_mut(&mut self) -> Option<&mut Firewall> {
        match &mut self.runs_in {
            RunsIn::Firewall(firewall) => Some(firewall),
            _ => None,
        }
    }

    /// The packet service that it is.
    pub fn service(&self) -> Option<&InService> {
        match &self.runs_in {
            RunsIn::Service(service) => Some(service),
            _ => None,
        }
    }

    /// Whether it understands Segment Routing: because it says so, or because all of its kind do.
    pub fn is_aware(&self) -> bool {
        self.aware || self.service().is_some()
    }

    /// Whether it runs in netfilter.
    pub fn is_netfilter(&self) -> bool {
        self.runs_in.kind() == FunctionKind::Netfilter
    }

    /// Whether it is on TAP devices.
    pub fn is_tap(&self) -> bool {
        self.runs_in.kind() == FunctionKind::Tap
    }
}

/// What a function runs in, with what only a function in such a place has.
#[derive(Debug, Clone, PartialEq)]
pub enum RunsIn {
    /// A network namespace whose kernel forwards.
    Namespace(InNamespace),
    /// netfilter in a namespace, on the inner packet, without leaving the SR path.
    Netfilter(InNetfilter),
    /// TAP devices of the node: a program in user space, or a virtual machine.
    Tap(OnTap),
    /// The node's own data plane, which filters.
    Firewall(Firewall),
    /// A packet service of Segue in user space, in a namespace of its own.
    Service(InService),
}

impl RunsIn {
    /// Which of them it is.
    pub fn kind(&self) -> FunctionKind {
        match self {
            Self::Namespace(_) => FunctionKind::Namespace,
            Self::Netfilter(_) => FunctionKind::Netfilter,
            Self::Tap(_) => FunctionKind::Tap,
            Self::Firewall(_) => FunctionKind::Firewall,
            Self::Service(_) => FunctionKind::Service,
        }
    }
}

impl Default for RunsIn {
    fn default() -> Self {
        Self::Namespace(InNamespace::default())
    }
}

/// [`RunsIn`] by name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// [`RunsIn::Namespace`].
    Namespace,
    /// [`RunsIn::Netfilter`].
    Netfilter,
    /// [`RunsIn::Tap`].
    Tap,
    /// [`RunsIn::Firewall`].
    Firewall,
    /// [`RunsIn::Service`].
    Service,
}

impl FunctionKind {
    /// The key of a function that says so.
    pub fn key(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Netfilter => "netfilter",
            Self::Tap => "tap",
            Self::Firewall => "firewall",
            Self::Service => "service",
        }
    }
}

/// What is known of what a function does to packets. The planner chooses the proxy by it, and refuses one that it contradicts
/// (docs/using/proxies.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capabilities {
    /// It changes addresses, ports or the protocol of packets (NAT, a load balancer): what it sends is another flow than what it got.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rewrites_flows: bool,
    /// It makes packets of its own that go on in the chain (a proxy that ends connections, a cache). What only answers a sender, such
    /// as ICMP errors and resets, does not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub makes_packets: bool,
    /// Whether it is on the kernel's path: netfilter, tc, IPVS or routing work on the kernel's own packets. `true`: it has to be, so it
    /// cannot be on TAP. `false`: a program in user space reads packets and writes others. If not given, it is in `namespace` and
    /// `netfilter`, and is not on `tap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<bool>,
}

impl Capabilities {
    pub(super) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A network namespace whose kernel forwards: by its routes, its netfilter, or what commands start there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InNamespace {
    /// One interface that packets enter and leave by, or two.
    #[serde(skip_serializing_if = "Interfaces::is_two")]
    pub interfaces: Interfaces,
    /// nftables ruleset: the text itself (anything with a line break or a brace), or the path of a file, relative to the
    /// topology's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nftables: Option<String>,
    /// sysctls set in its namespace, besides forwarding.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sysctls: IndexMap<String, String>,
    /// Shell commands run in its namespace once all is up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// netfilter in a namespace, on the inner packet, without leaving the SR path (End.AN.NF). One SID serves all chains; each chain has a
/// mark. The agent makes the links, always two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InNetfilter {
    /// nftables ruleset: the text itself (anything with a line break or a brace), or the path of a file, relative to the
    /// topology's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nftables: Option<String>,
    /// sysctls set in its namespace, besides forwarding.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sysctls: IndexMap<String, String>,
    /// Shell commands run in its namespace once all is up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// TAP devices of the node: a program in user space, or a virtual machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OnTap {
    /// One interface that packets enter and leave by, or two.
    #[serde(skip_serializing_if = "Interfaces::is_two")]
    pub interfaces: Interfaces,
    /// Shell command of the program that is at the other end of the devices, run in the node's namespace and in the topology's
    /// directory; its environment names the devices (docs/using/lab.md). Without it the lab makes the devices and leaves them to you, for a
    /// virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// A packet service in user space (docs/using/services.md). It knows Segment Routing, has one interface in a namespace of its own,
/// and serves any number of chains.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InService {
    /// Which service: `segue service kinds` lists those of Segue.
    pub name: String,
    /// Shell words that start a program with services of one's own (docs/developing/writing-a-service.md), such as `python3 gentle.py`, run
    /// in the topology's directory; `run FILE` is put behind them. Segue's own program if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
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

/// What stands in for a function that knows nothing of Segment Routing. docs/using/proxies.md says what each can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyChoice {
    /// The planner chooses: `static` for one chain that visits it once, else by its capabilities.
    #[default]
    Auto,
    /// End.AS: knows the rest of the list by configuration. A pair of interfaces for each chain.
    Static,
    /// End.AD: puts back the header last seen. A pair of interfaces for each chain.
    Dynamic,
    /// End.AD by flow: one pair of interfaces for all chains.
    DynamicFlow,
    /// End.AD by packet: one pair of interfaces for all chains, whatever the function does to packets.
    Exact,
    /// End.AM: the function sees the steering header, with the last segment as destination.
    Masquerading,
}

impl ProxyChoice {
    pub(super) fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Where a function's nftables ruleset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruleset<'a> {
    /// The text itself.
    Inline(&'a str),
    /// A path, relative to the topology's file.
    File(&'a str),
}

/// Interfaces of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Interfaces {
    /// Packets leave where they entered: serves one direction of one chain.
    One,
    /// West and east: forward traffic enters west and leaves east, reverse traffic the other way.
    #[default]
    Two,
}

impl Interfaces {
    fn is_two(&self) -> bool {
        *self == Self::Two
    }
}

pub(super) fn ip_both() -> Vec<InnerType> {
    vec![InnerType::IPv4, InnerType::IPv6]
}
