//! How a function is written: what it runs in is one key, with the keys that belong to it inside. A document that names two, or gives one
//! a key of another, is not read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::function::{
    Capabilities, Function, InNamespace, InNetfilter, InService, OnTap, ProxyChoice, RunsIn, ip_both,
};
use crate::firewall::Firewall;
use crate::guard::{Refusal, guarded};
use crate::node::InnerType;
use crate::proxy::{MayChange, MayRewrite, OnFailure, Watch};

/// A network function. Its kind, what it runs in, is one of the keys `namespace`, `netfilter`, `tap`, `firewall` and `service`; `namespace: {}` if
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
    /// It is a packet service of Segue in user space, in a namespace of its own.
    #[serde(default, deserialize_with = "in_service", skip_serializing_if = "Option::is_none")]
    service: Option<InService>,
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
    /// What is known of what it does to packets, for the choice of the proxy. Not for `firewall`.
    #[serde(default, skip_serializing_if = "Capabilities::is_unknown")]
    capabilities: Capabilities,
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
const KINDS: [&str; 5] = ["namespace", "netfilter", "tap", "firewall", "service"];
/// Keys of a function whatever it runs in.
const COMMON: [&str; 10] =
    ["node", "aware", "may_change", "may_rewrite", "capabilities", "proxy", "on_failure", "backup", "watch", "inner"];

impl Serialize for Function {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Function {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kind = None;
        let written: Written = guarded(deserializer, |key| refuse(&mut kind, key))?;
        let kinds = [
            written.namespace.map(RunsIn::Namespace),
            written.netfilter.map(RunsIn::Netfilter),
            written.tap.map(RunsIn::Tap),
            written.firewall.map(RunsIn::Firewall),
            written.service.map(RunsIn::Service),
        ];
        Ok(Self {
            node: written.node,
            // More than one was refused.
            runs_in: kinds.into_iter().flatten().next().unwrap_or_default(),
            aware: written.aware,
            may_change: written.may_change,
            may_rewrite: written.may_rewrite,
            capabilities: written.capabilities,
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
        let (mut namespace, mut netfilter, mut tap, mut firewall, mut service) = (None, None, None, None, None);
        match function.runs_in {
            RunsIn::Namespace(place) => namespace = Some(place).filter(|place| *place != InNamespace::default()),
            RunsIn::Netfilter(place) => netfilter = Some(place),
            RunsIn::Tap(place) => tap = Some(place),
            RunsIn::Firewall(rules) => firewall = Some(rules),
            RunsIn::Service(place) => service = Some(place),
        }
        Self {
            node: function.node,
            namespace,
            netfilter,
            tap,
            firewall,
            service,
            aware: function.aware,
            may_change: function.may_change,
            may_rewrite: function.may_rewrite,
            capabilities: function.capabilities,
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

fn in_service<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InService>, D::Error> {
    let refuse = |key: &str| match key {
        "nftables" | "sysctls" | "commands" | "interfaces" => {
            let message = format!("a service is a program with one interface: it has nothing for the key {key:?}");
            Some(Refusal::new(
                message,
                format!("write `namespace: {{{key}: ..}}` instead of `service`, or remove the key"),
            ))
        }
        _ => beside("service", key),
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
