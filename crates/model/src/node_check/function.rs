//! Functions as objects of a node.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::attached::ServiceLimits;
use crate::check;
use crate::error::KeyPath;
use crate::instances::{INSTANCE_BITS, instance_name, instance_number};
use crate::limits::LISTS_MAX;
use crate::node::{Behaviour, Instance, NodeFunction, OnFailure, Sid, TellFlowsBy, Vm};
use crate::proxy::{InnerType, Proxy};
use crate::wiring::Wiring;

use super::Check;

const FLOW_TIMEOUT: RangeInclusive<u32> = 1..=86_400;
const DRAIN_TIMEOUT: RangeInclusive<u32> = 0..=86_400;

/// Where a function runs, as it is written.
struct Place<'a> {
    netns: &'a Option<String>,
    container: &'a Option<String>,
    vm: &'a Option<Vm>,
    service: bool,
}

impl Check<'_> {
    pub(super) fn functions(&mut self) {
        let functions = KeyPath::root().at("functions");
        self.virtual_functions();
        let mut links: HashMap<String, String> = HashMap::new();
        for (name, function) in &self.state.functions {
            let key = functions.at(name);
            self.function_name(name, &key);
            self.watch(None, &function.watch, &key.at("watch"));
            if function.instances.is_empty() {
                let NodeFunction { netns, container, vm, .. } = function;
                let place = Place { netns, container, vm, service: function.service.is_some() };
                self.function_place(&place, ", `service:`, or `instances:` with several of them", &key);
                self.service(function, &key);
                self.function_alone(function, &key);
                self.function_links(name, Wiring::of_attached(name, function), &mut links, &key);
            } else {
                self.instances(name, function, &mut links, &key);
            }
        }
    }

    fn function_name(&mut self, name: &str, key: &KeyPath) {
        if !check::is_namespace_name(name) {
            let remedy = "use 1 to 63 letters, digits, dots, hyphens and underscores, not beginning with a dot";
            self.error(key, format!("{name:?} cannot be the name of a function"), remedy);
        }
    }

    fn function_place(&mut self, place: &Place<'_>, or: &str, key: &KeyPath) {
        let given = [
            ("netns", place.netns.is_some()),
            ("container", place.container.is_some()),
            ("vm", place.vm.is_some()),
            ("service", place.service),
        ];
        let mut given = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
        match (given.next(), given.next()) {
            (None, _) => {
                let remedy = format!("add `netns:` with the name of a namespace, `container:`, `vm:`{or}");
                self.error(key, "it is not said where the function runs", remedy);
            }
            (Some(first), Some(second)) => {
                let message = format!("a function runs in one place, and `{first}` says another");
                self.error(&key.at(second), message, format!("keep one of `{first}` and `{second}`"));
            }
            (Some(_), None) => {}
        }
        for (place, named) in [("netns", place.netns), ("container", place.container)] {
            // Both go into commands and paths.
            if let Some(named) = named.as_ref().filter(|named| !check::is_namespace_name(named)) {
                let remedy = "use letters, digits, dots, hyphens and underscores, not beginning with a dot";
                self.error(&key.at(place), format!("{named:?} cannot be its name"), remedy);
            }
        }
        let Some(vm) = place.vm else { return };
        for (side, link) in [("west", &vm.west), ("east", &vm.east)] {
            let key = key.at("vm").at(side);
            if let Some(interface) = link.interface.as_ref().filter(|name| !check::is_interface_name(name)) {
                let remedy = "write the name of the node's end, such as vnet3";
                self.error(&key.at("interface"), format!("{interface:?} cannot be an interface's name"), remedy);
            }
            if let Some(mac) = link.mac.filter(|mac| !mac.is_unicast()) {
                let message = format!("{mac} is no address of a machine");
                self.error(&key.at("mac"), message, "write the machine's own, or remove the key: it is learnt");
            }
        }
    }

    /// What is a service's own to say is told when it is applied: only it knows its configuration.
    fn service(&mut self, function: &NodeFunction, key: &KeyPath) {
        let Some(service) = &function.service else { return };
        let key = key.at("service");
        if let Some(workers) = service.workers.filter(|workers| !(1..=64).contains(workers)) {
            self.error(
                &key.at("workers"),
                format!("{workers} workers are not possible"),
                "write a number from 1 to 64",
            );
        }
        if !service.cpus.is_empty() && service.cpus.len() != service.workers.unwrap_or(1) as usize {
            let message = format!("{} processors for {} workers", service.cpus.len(), service.workers.unwrap_or(1));
            self.error(&key.at("cpus"), message, "name one for each worker, or remove the key");
        }
        for (name, message, remedy) in service.limits.iter().flat_map(ServiceLimits::faults) {
            self.error(&key.at("limits").at(name), message, remedy);
        }
    }

    /// Keys that are for several instances only.
    fn function_alone(&mut self, function: &NodeFunction, key: &KeyPath) {
        let given = [
            ("tell_flows_by", function.tell_flows_by != TellFlowsBy::default()),
            ("flow_timeout", function.flow_timeout.is_some()),
            ("drain_timeout", function.drain_timeout.is_some()),
        ];
        for (name, _) in given.into_iter().filter(|(_, given)| *given) {
            self.error(&key.at(name), "it is for several `instances`", "remove the key");
        }
    }

    /// Links that the agent makes or uses must not meet those of the operator, or each other.
    fn function_links(&mut self, name: &str, wiring: Wiring, links: &mut HashMap<String, String>, key: &KeyPath) {
        // That of a service is one for both directions.
        let mut names = vec![wiring.node_west, wiring.node_east];
        names.dedup();
        for link in names {
            if self.ports.contains_key(link.as_str()) {
                let message = format!("{link:?} leads to this function, but it is among `ports`");
                self.error(key, message, "remove the port: it needs no entry");
            }
            if let Some(other) = links.insert(link.clone(), name.to_owned()) {
                let message = format!("{other:?} gets the link {link:?} too");
                self.error(key, message, "rename one of the two functions");
            }
        }
    }

    fn instances(&mut self, name: &str, function: &NodeFunction, links: &mut HashMap<String, String>, key: &KeyPath) {
        for (given, place) in [
            (function.netns.is_some(), "netns"),
            (function.container.is_some(), "container"),
            (function.vm.is_some(), "vm"),
            (function.service.is_some(), "service"),
            (function.vf.is_some(), "vf"),
        ] {
            if given {
                self.error(&key.at(place), "each instance says where it runs", "move the key into `instances`");
            }
        }
        let count = function.instances.len();
        let instances = key.at("instances");
        if count > LISTS_MAX {
            let message = format!("{count} instances; a SID has room for {LISTS_MAX}");
            self.error(&instances, message, "make two functions of them, with a SID each");
        }
        for (given, range, key) in [
            (function.flow_timeout, FLOW_TIMEOUT, key.at("flow_timeout")),
            (function.drain_timeout, DRAIN_TIMEOUT, key.at("drain_timeout")),
        ] {
            if let Some(given) = given.filter(|given| !range.contains(given)) {
                let remedy = format!("choose {} to {}", range.start(), range.end());
                self.error(&key, format!("{given} seconds cannot be meant"), remedy);
            }
        }
        let mut numbers: HashMap<u32, &str> = HashMap::new();
        for (instance, place) in &function.instances {
            let key = instances.at(instance);
            let whole = instance_name(name, instance);
            self.function_name(&whole, &key);
            let Instance { netns, container, vm, .. } = place;
            self.function_place(&Place { netns, container, vm, service: false }, ", or take the instance out", &key);
            let alone = NodeFunction { vm: vm.clone(), ..NodeFunction::default() };
            self.function_links(&whole, Wiring::of_attached(&whole, &alone), links, &key);
            if let Some(other) = numbers.insert(instance_number(instance), instance) {
                let message = format!("{instance:?} has the number of {other:?}, which follows from the name");
                self.error(&key, message, "rename one of the two");
            }
        }
    }

    /// What a SID must be behind which there are several instances of a function.
    pub(super) fn several(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        if proxy.instances.is_some() {
            self.error(&key.at("instances"), "the agent says that itself", "remove the key");
        }
        let Some(function) = sid.function().and_then(|name| self.state.functions.get(name)) else { return };
        if sid.label().is_some() {
            if sid.behaviour == Behaviour::EndAn && !function.instances.is_empty() {
                let message = "a function that sees the stack cannot have several instances here";
                let remedy = "give each instance a label, and spread flows by a policy with several segment lists";
                self.error(&key.at("function"), message, remedy);
            }
            return;
        }
        if function.service.is_some() && sid.behaviour != Behaviour::EndAn {
            let message = "a packet service gets packets with their steering header";
            self.error(&key.at("function"), message, "write `behaviour: End.AN` for its SIDs");
        }
        if function.instances.is_empty() {
            return;
        }
        let at = key.at("function");
        if sid.behaviour == Behaviour::EndAn {
            let message = "an SR-aware function is reached by its own SID: it cannot have several instances here";
            self.error(
                &at,
                message,
                "give each instance a SID, and spread flows by a policy with several segment lists",
            );
        }
        let below = u128::MAX >> (128 - u32::from(INSTANCE_BITS));
        if sid.sid.prefix_len() != 128 || sid.sid.addr().to_bits() & below != 0 {
            let message = format!("the last {INSTANCE_BITS} bits of the SID number the instances");
            self.error(&at, message, "write a whole SID that ends with zeros, such as fc00:0:1:f1::");
        }
        if proxy.inner.contains(&InnerType::Ethernet) {
            let message = "frames belong to no flow by which an instance could be chosen";
            self.error(&key.at("inner"), message, "take IPv4 and IPv6, or one instance");
        }
        if proxy.on_failure == OnFailure::Withdraw {
            let message = "a SID with several instances is not withdrawn";
            self.error(&key.at("on_failure"), message, "write `reroute` with a `backup`, or drop");
        }
    }
}
