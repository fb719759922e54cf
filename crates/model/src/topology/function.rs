//! Network functions of a topology: where each is, what it runs in, and how packets get to it and back.
//!
//! What a function runs in is one key, with the keys that belong to it; a document that names two, or gives one a key of another, is
//! not read.

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::firewall::Firewall;
use crate::guard::{Refusal, guarded};
use crate::node::InnerType;
use crate::proxy::{MayChange, MayRewrite, OnFailure, Watch};

/// A network function.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(into = "Written")]
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
            RunsIn::Tap(_) | RunsIn::Firewall(_) => None,
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
            RunsIn::Tap(_) | RunsIn::Firewall(_) => None,
        };
        sysctls.into_iter().flatten()
    }

    /// Shell commands for its namespace once all is up; none if it has no namespace.
    pub fn commands(&self) -> &[String] {
        match &self.runs_in {
            RunsIn::Namespace(InNamespace { commands, .. }) | RunsIn::Netfilter(InNetfilter { commands, .. }) => {
                commands
            }
            RunsIn::Tap(_) | RunsIn::Firewall(_) => &[],
        }
    }

    /// One interface or two. The links of netfilter's namespace are always two; a firewall of its node has none, and answers two as well.
    pub fn interfaces(&self) -> Interfaces {
        match &self.runs_in {
            RunsIn::Namespace(InNamespace { interfaces, .. }) | RunsIn::Tap(OnTap { interfaces, .. }) => *interfaces,
            RunsIn::Netfilter(_) | RunsIn::Firewall(_) => Interfaces::Two,
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

    /// Whether it runs in netfilter.
    pub fn is_netfilter(&self) -> bool {
        matches!(self.runs_in, RunsIn::Netfilter(_))
    }

    /// Whether it is on TAP devices.
    pub fn is_tap(&self) -> bool {
        matches!(self.runs_in, RunsIn::Tap(_))
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
}

impl RunsIn {
    /// The key that says so.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Netfilter(_) => "netfilter",
            Self::Tap(_) => "tap",
            Self::Firewall(_) => "firewall",
        }
    }
}

impl Default for RunsIn {
    fn default() -> Self {
        Self::Namespace(InNamespace::default())
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

/// What stands in for a function that knows nothing of Segment Routing. docs/using/proxies.md says what each can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyChoice {
    /// `static` for one chain that visits it once, else `exact`, or `dynamic-flow` on TAP.
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
    fn is_auto(&self) -> bool {
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

/// A network function. Its kind, what it runs in, is one of the keys `namespace`, `netfilter`, `tap` and `firewall`; `namespace: {}` if
/// there is none of them.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The node that it is connected to.
    node: String,
    /// It is a network namespace whose kernel forwards.
    #[serde(default, deserialize_with = "in_namespace", skip_serializing_if = "Option::is_none")]
    namespace: Option<InNamespace>,
    /// It is netfilter in a namespace, on the inner packet, without leaving the SR path (End.AN.NF).
    #[serde(default, deserialize_with = "in_netfilter", skip_serializing_if = "Option::is_none")]
    netfilter: Option<InNetfilter>,
    /// It is behind TAP devices of the node: a program in user space, or a virtual machine.
    #[serde(default, deserialize_with = "on_tap", skip_serializing_if = "Option::is_none")]
    tap: Option<OnTap>,
    /// It is a firewall in the node's own data plane (End.AN): these are its rules, for the inner packet. Paths are relative to the
    /// topology's file.
    #[serde(default, deserialize_with = "in_the_node", skip_serializing_if = "Option::is_none")]
    firewall: Option<Firewall>,
    /// Whether it understands Segment Routing itself: it gets packets as they are (End.AN), and goes on to the next segment by
    /// itself. In the lab its kernel does that (End), unless `commands` set up something else. For `namespace` and `tap`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aware: bool,
    /// `aware: true`: what it may do to the segment list beside going on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    may_change: Option<MayChange>,
    /// `aware: true`: what it may rewrite beside the segment list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    may_rewrite: Vec<MayRewrite>,
    /// What stands in for a function that knows nothing of Segment Routing. For `namespace` and `tap`.
    #[serde(default, skip_serializing_if = "ProxyChoice::is_auto")]
    proxy: ProxyChoice,
    /// What becomes of packets while it is down; needs `watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_failure: Option<OnFailure>,
    /// `on_failure: reroute`: the function that packets go to instead, one that any number of chains can share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backup: Option<String>,
    /// How to see that it is down; not watched if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watch: Option<Watch>,
    /// What it takes.
    #[serde(default = "ip_both")]
    inner: Vec<InnerType>,
}

/// The keys that say what a function runs in: its kind.
const KINDS: [&str; 4] = ["namespace", "netfilter", "tap", "firewall"];
/// Keys of a function whatever it runs in.
const COMMON: [&str; 9] =
    ["node", "aware", "may_change", "may_rewrite", "proxy", "on_failure", "backup", "watch", "inner"];

impl<'de> Deserialize<'de> for Function {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kind = None;
        let written: Written = guarded(deserializer, |key| refuse(&mut kind, key))?;
        let kinds = [
            written.namespace.map(RunsIn::Namespace),
            written.netfilter.map(RunsIn::Netfilter),
            written.tap.map(RunsIn::Tap),
            written.firewall.map(RunsIn::Firewall),
        ];
        Ok(Self {
            node: written.node,
            // More than one was refused.
            runs_in: kinds.into_iter().flatten().next().unwrap_or_default(),
            aware: written.aware,
            may_change: written.may_change,
            may_rewrite: written.may_rewrite,
            proxy: written.proxy,
            on_failure: written.on_failure,
            backup: written.backup,
            watch: written.watch,
            inner: written.inner,
        })
    }
}

impl From<Function> for Written {
    fn from(function: Function) -> Self {
        let (mut namespace, mut netfilter, mut tap, mut firewall) = (None, None, None, None);
        match function.runs_in {
            RunsIn::Namespace(place) => namespace = Some(place).filter(|place| *place != InNamespace::default()),
            RunsIn::Netfilter(place) => netfilter = Some(place),
            RunsIn::Tap(place) => tap = Some(place),
            RunsIn::Firewall(rules) => firewall = Some(rules),
        }
        Self {
            node: function.node,
            namespace,
            netfilter,
            tap,
            firewall,
            aware: function.aware,
            may_change: function.may_change,
            may_rewrite: function.may_rewrite,
            proxy: function.proxy,
            on_failure: function.on_failure,
            backup: function.backup,
            watch: function.watch,
            inner: function.inner,
        }
    }
}

impl JsonSchema for Function {
    fn schema_name() -> Cow<'static, str> {
        "Function".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Written::json_schema(generator);
        let with = KINDS.map(|kind| json_schema!({ "required": [kind] }));
        let none = json_schema!({ "not": { "anyOf": with.clone() } });
        schema.insert("oneOf".to_owned(), with.into_iter().chain([none]).map(Schema::to_value).collect());
        schema
    }
}

/// A second kind, and keys that belong to a kind or are no more.
fn refuse(kind: &mut Option<&'static str>, key: &str) -> Option<Refusal> {
    if let Some(new) = KINDS.into_iter().find(|kind| *kind == key) {
        let first = *kind.get_or_insert(new);
        return (first != new).then(|| {
            let message = format!("a function is of one kind, and this one has both {first:?} and {new:?}");
            Refusal::new(message, "keep one of the two keys")
        });
    }
    let remedy = match key {
        "kind" => {
            let remedy =
                "write `netfilter: {}` or `tap: {}` in its place, with its keys inside; nothing for a namespace";
            return Some(Refusal::new("the kind of a function is a key itself", remedy));
        }
        "nftables" | "sysctls" | "commands" => {
            format!("write `namespace: {{{key}: ..}}`, or `netfilter: {{{key}: ..}}`")
        }
        "interfaces" => "write `namespace: {interfaces: ..}`, or `tap: {interfaces: ..}`".to_owned(),
        "program" => "write `tap: {program: ..}`".to_owned(),
        _ => return None,
    };
    Some(Refusal::new(format!("the key {key:?} belongs inside the kind of the function"), remedy))
}

fn in_namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InNamespace>, D::Error> {
    let refuse = |key: &str| match key {
        "program" => {
            let remedy = "write `tap: {program: ..}` instead of `namespace`, or use `commands`";
            Some(Refusal::new("only a function on TAP devices is a program", remedy))
        }
        _ => beside("namespace", key),
    };
    guarded(deserializer, refuse).map(Some)
}

fn in_netfilter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InNetfilter>, D::Error> {
    let refuse = |key: &str| match key {
        "interfaces" => {
            let message = "the agent makes the links of netfilter's namespace: always west and east";
            Some(Refusal::new(message, "remove the key, or write `namespace: {interfaces: ..}` instead of `netfilter`"))
        }
        "program" => {
            let message = "only a function on TAP devices is a program";
            Some(Refusal::new(message, "write `tap: {program: ..}` instead of `netfilter`, or use `commands`"))
        }
        _ => beside("netfilter", key),
    };
    guarded(deserializer, refuse).map(Some)
}

fn on_tap<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OnTap>, D::Error> {
    let refuse = |key: &str| match key {
        "nftables" | "sysctls" | "commands" => {
            let message = format!("a function on TAP has no namespace: it has nothing for the key {key:?}");
            let remedy =
                format!("write `namespace: {{{key}: ..}}` instead of `tap`, or remove the key; `program` is what runs");
            Some(Refusal::new(message, remedy))
        }
        _ => beside("tap", key),
    };
    guarded(deserializer, refuse).map(Some)
}

fn in_the_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Firewall>, D::Error> {
    let refuse = |key: &str| match key {
        "nftables" | "sysctls" | "commands" | "interfaces" | "program" => {
            let place = if key == "program" { "tap" } else { "namespace" };
            let message = format!("a firewall is in the data plane of its node: it has nothing for the key {key:?}");
            Some(Refusal::new(
                message,
                format!("write `{place}: {{{key}: ..}}` instead of `firewall`, or remove the key"),
            ))
        }
        _ => beside("firewall", key),
    };
    guarded(deserializer, refuse).map(Some)
}

/// Keys that functions of all kinds have do not belong to one.
fn beside(kind: &str, key: &str) -> Option<Refusal> {
    COMMON.contains(&key).then(|| {
        let message = format!("the key {key:?} is that of a function, whatever its kind");
        Refusal::new(message, format!("write it beside `{kind}`, not inside"))
    })
}

fn ip_both() -> Vec<InnerType> {
    vec![InnerType::IPv4, InnerType::IPv6]
}
