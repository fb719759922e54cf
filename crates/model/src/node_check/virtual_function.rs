//! Virtual functions of network cards as links of functions.

use std::collections::HashMap;

use crate::check;
use crate::error::KeyPath;
use crate::instances::instance_name;
use crate::node::{NodeFunction, VirtualFunction, VirtualFunctions};
use crate::value::MacAddress;
use crate::wiring::Wiring;

use super::{Check, VLAN_MAX};

/// What must not be used twice, with who uses it.
#[derive(Default)]
struct Used<'a> {
    /// By the interface that carries it.
    vlans: HashMap<(&'a str, u16), String>,
    /// By card.
    numbers: HashMap<(&'a str, u32), String>,
    /// By card: it tells its virtual functions apart by them.
    macs: HashMap<(&'a str, MacAddress), String>,
}

impl Check<'_> {
    pub(super) fn virtual_functions(&mut self) {
        let state = self.state;
        let mut used = Used::default();
        for (port, vlan) in state.ports.iter().filter_map(|port| Some((port, port.vlan.as_ref()?))) {
            used.vlans.insert((&vlan.on, vlan.id), format!("the port {:?}", port.name));
        }
        for (name, function) in &state.functions {
            let key = KeyPath::root().at("functions").at(name);
            if let Some(vf) = &function.vf {
                self.has_its_own(function.vm.is_some(), function.service.is_some(), &key.at("vf"));
                self.card(name, vf, &mut used, &key.at("vf"));
            }
            for (instance, place) in &function.instances {
                let Some(vf) = &place.vf else { continue };
                let key = key.at("instances").at(instance).at("vf");
                self.has_its_own(place.vm.is_some(), false, &key);
                self.card(&instance_name(name, instance), vf, &mut used, &key);
            }
        }
    }

    fn has_its_own(&mut self, vm: bool, service: bool, key: &KeyPath) {
        if service {
            self.error(key, "a packet service has a link of its own", "remove the key");
        }
        if vm {
            let message = "whoever runs the machine gives it its virtual functions";
            let remedy =
                "name the VLANs by which it is reached as `interface:` of the machine's links, and remove the key";
            self.error(key, message, remedy);
        }
    }

    fn card<'a>(&mut self, name: &str, vf: &'a VirtualFunctions, used: &mut Used<'a>, key: &KeyPath) {
        for (at, interface) in [("device", Some(&vf.device)), ("by", vf.by.as_ref())] {
            let Some(interface) = interface else { continue };
            if !check::is_interface_name(interface) {
                let message = format!("{interface:?} cannot be an interface's name");
                self.error(&key.at(at), message, "write the name that `ip link` shows, at most 15 characters");
            } else if self.ports.get(interface.as_str()).is_some_and(|port| port.vlan.is_some()) {
                let message =
                    format!("{interface:?} is a VLAN, which has no virtual functions and carries no VLANs here");
                self.error(&key.at(at), message, "name the network card");
            }
        }
        if vf.make == Some(0) {
            self.error(&key.at("make"), "a function needs two", "write 2 or more, or remove the key");
        }
        let function = NodeFunction { vf: Some(vf.clone()), ..NodeFunction::default() };
        let wiring = Wiring::of_attached(name, &function);
        for (side, one, mac) in [("west", &vf.west, wiring.west_mac), ("east", &vf.east, wiring.east_mac)] {
            let user = format!("`{side}` of {name:?}");
            let key = key.at(side);
            self.virtual_function(one, &key);
            let mut twice = Vec::new();
            // Another message has said what is wrong with it.
            if (1..=VLAN_MAX).contains(&one.vlan)
                && let Some(other) = used.vlans.insert((vf.carrier(), one.vlan), user.clone())
            {
                let message = format!("VLAN {} on {:?} is that of {other} already", one.vlan, vf.carrier());
                twice.push(("vlan", message, "give each side of each function a VLAN of its own"));
            }
            if let Some(number) = one.number
                && let Some(other) = used.numbers.insert((&vf.device, number), user.clone())
            {
                let message = format!("virtual function {number} of {:?} is that of {other} already", vf.device);
                twice.push(("number", message, "choose another number, or remove the key: a free one is taken"));
            }
            if let Some(other) = used.macs.insert((&vf.device, mac), user) {
                let message = format!("{mac} is the address of {other} already");
                twice.push(("mac", message, "choose another address, or remove the key"));
            }
            for (at, message, remedy) in twice {
                self.error(&key.at(at), message, remedy);
            }
        }
    }

    fn virtual_function(&mut self, one: &VirtualFunction, key: &KeyPath) {
        if !(1..=VLAN_MAX).contains(&one.vlan) {
            let message = match one.vlan {
                0 => "it is not said in which VLAN the card has it".to_owned(),
                other => format!("{other} is no number of a VLAN"),
            };
            self.error(&key.at("vlan"), message, format!("choose one from 1 to {VLAN_MAX}"));
        }
        if let Some(mac) = one.mac.filter(|mac| !mac.is_unicast()) {
            let message = format!("{mac} is no address of an interface");
            self.error(
                &key.at("mac"),
                message,
                "choose another, or remove the key: one follows from the function's name",
            );
        }
        if let (Some(min), Some(max)) = (one.min_rate, one.max_rate)
            && max != 0
            && min > max
        {
            let message = format!("it is to get {min} Mbit/s at least, and {max} at most");
            self.error(&key.at("min_rate"), message, "correct one of the two");
        }
    }
}
