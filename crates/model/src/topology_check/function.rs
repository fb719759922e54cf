//! Functions: what goes with their kinds, and what becomes of packets while they are down.

use indexmap::IndexMap;

use super::Check;
use crate::attached::ServiceLimits;
use crate::error::KeyPath;
use crate::node::InnerType;
use crate::proxy::OnFailure;
use crate::topology::{Dataplane, Function, InNamespace, InNetfilter, InService, OnTap, ProxyChoice, RunsIn};

impl Check<'_> {
    pub(super) fn function(&mut self, function: &Function, key: &KeyPath) {
        if self.node_exists(&function.node, &key.at("node"))
            && self.topology.nodes[&function.node].dataplane != Dataplane::Segue
        {
            let message =
                format!("the node {:?} cannot host a function: only Segue's data plane has proxies", function.node);
            self.report.error(&key.at("node"), message, "move the function, or set the node's `dataplane: segue`");
        }
        let inside = key.at(function.runs_in.kind().key());
        match &function.runs_in {
            RunsIn::Namespace(InNamespace { nftables, sysctls, .. })
            | RunsIn::Netfilter(InNetfilter { nftables, sysctls, .. }) => {
                self.ruleset(nftables.as_deref(), &inside.at("nftables"));
                self.sysctls(sysctls, &inside.at("sysctls"));
            }
            RunsIn::Tap(tap) => self.program(tap, &inside.at("program")),
            RunsIn::Service(service) => self.service(service, &inside),
            RunsIn::Firewall(_) => {}
        }
        // What a firewall of the node has no use for is refused with it.
        if function.firewall().is_none() {
            self.steering(function, key);
            self.failure(function, key);
        }
        if function.inner.is_empty() {
            self.report.error(&key.at("inner"), "the function takes nothing", "write [IPv4, IPv6], or one of the two");
        }
        for (position, inner) in function.inner.iter().enumerate() {
            if *inner == InnerType::Ethernet {
                let key = key.at("inner").at(position);
                self.report.error(
                    &key,
                    "functions of chains get IP packets, not Ethernet frames",
                    "write IPv4, IPv6 or both",
                );
            }
            if function.inner[..position].contains(inner) {
                self.report.error(&key.at("inner").at(position), format!("{inner:?} is there twice"), "remove one");
            }
        }
    }

    fn ruleset(&mut self, nftables: Option<&str>, key: &KeyPath) {
        if nftables.is_some_and(|text| text.trim().is_empty()) {
            self.report.error(key, "the ruleset is empty", "write the rules or a file's path, or remove the key");
        }
    }

    fn sysctls(&mut self, sysctls: &IndexMap<String, String>, key: &KeyPath) {
        for name in sysctls.keys() {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
            if !name.starts_with("net.") || name.contains("..") || !name.bytes().all(allowed) {
                let message = format!("{name:?} is not a sysctl of a network namespace");
                self.report.error(&key.at(name), message, "write one that begins with `net.`, with dots");
            }
        }
    }

    /// A function on TAP is a program in user space or a virtual machine: the lab knows nothing of what is inside.
    fn program(&mut self, tap: &OnTap, key: &KeyPath) {
        if tap.program.as_ref().is_some_and(|program| program.trim().is_empty()) {
            self.report.error(key, "the program is empty", "write a shell command, or remove the key");
        }
    }

    /// What it is called and how it is configured is for who knows the services.
    fn service(&mut self, service: &InService, key: &KeyPath) {
        if service.workers.is_some_and(|workers| !(1..=64).contains(&workers)) {
            self.report.error(&key.at("workers"), "that many threads are not possible", "write a number from 1 to 64");
        }
        if !service.cpus.is_empty() && service.cpus.len() != service.workers.unwrap_or(1) as usize {
            let message = "there is not one processor for each thread";
            self.report.error(&key.at("cpus"), message, "name as many as `workers` says, or remove the key");
        }
        for (name, message, remedy) in service.limits.iter().flat_map(ServiceLimits::faults) {
            self.report.error(&key.at("limits").at(name), message, remedy);
        }
    }

    /// What stands between a function and Segment Routing, and whether it can be.
    fn steering(&mut self, function: &Function, key: &KeyPath) {
        let netfilter = function.is_netfilter();
        if netfilter && function.aware {
            let message = "netfilter works on the inner packet, and knows nothing of Segment Routing";
            self.report.error(&key.at("aware"), message, "remove the key, or write `namespace` instead of `netfilter`");
        }
        if (netfilter || function.is_aware()) && function.proxy != ProxyChoice::Auto {
            let message = "no proxy stands in for such a function";
            let remedy = "remove the key: End.AN.NF serves `netfilter`, End.AN serves `service` and `aware: true`";
            self.report.error(&key.at("proxy"), message, remedy);
        }
        if function.may_change.is_some() && !function.is_aware() {
            let message = "only a function that understands Segment Routing changes segment lists";
            self.report.error(&key.at("may_change"), message, "remove the key, or add `aware: true`");
        }
        if !function.may_rewrite.is_empty() && !function.is_aware() {
            let message = "only what a function that understands Segment Routing rewrites is compared";
            self.report.error(&key.at("may_rewrite"), message, "remove the key, or add `aware: true`");
        }
    }

    fn failure(&mut self, function: &Function, key: &KeyPath) {
        if function.on_failure.is_some_and(|action| action != OnFailure::Drop) && function.watch.is_none() {
            let message = "nothing tells whether the function is down";
            self.report.error(&key.at("on_failure"), message, "add `watch: {}` beside it, or remove the key");
        }
        match (&function.backup, function.on_failure) {
            (None, Some(OnFailure::Reroute)) => {
                let message = "packets of a failed function have nowhere to go";
                self.report.error(&key.at("on_failure"), message, "add `backup:` with the name of another function");
            }
            (Some(_), Some(OnFailure::Reroute)) | (None, _) => {}
            (Some(_), _) => {
                let message = "a backup is for `on_failure: reroute` only";
                self.report.error(&key.at("backup"), message, "write that, or remove the key");
            }
        }
    }
}
