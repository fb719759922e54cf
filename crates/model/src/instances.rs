//! Several instances of one function, and virtual machines: what the agent makes of a state that has them.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::direction::Direction;
use crate::node::{NodeFunction, NodeState, OnFailure, Sid};
use crate::wiring::{Wiring, fnv1a};

/// Bits of a SID that number the instances of its function.
pub const INSTANCE_BITS: u8 = 32;

/// The name that an instance has as a function of its own.
pub fn instance_name(function: &str, instance: &str) -> String {
    format!("{function}.{instance}")
}

/// The number of an instance, not 0. It follows from the name alone, so that flows stay where they are whatever else changes.
pub fn instance_number(instance: &str) -> u32 {
    let hash = fnv1a(instance.as_bytes());
    ((hash ^ (hash >> 32)) as u32).max(1)
}

/// The SID of one instance.
pub fn instance_sid(sid: Ipv6Net, instance: &str) -> Ipv6Addr {
    let all = sid.trunc().addr().to_bits() >> INSTANCE_BITS << INSTANCE_BITS;
    Ipv6Addr::from_bits(all | u128::from(instance_number(instance)))
}

impl NodeState {
    /// The state with what the agent makes of it: each instance of a function is a function of its own, with SIDs of its own; SIDs of
    /// virtual machines name ports and link-layer addresses. What is written out already stays as it is.
    pub fn written_out(&self) -> Self {
        let mut state = self.clone();
        if self.functions.is_empty() {
            return state;
        }
        for (name, function) in &self.functions {
            for (instance, place) in &function.instances {
                state.functions.insert(instance_name(name, instance), function.instance(place));
            }
        }
        let several: Vec<Sid> = self.sids.iter().flat_map(|sid| self.members(sid)).collect();
        let known: std::collections::HashSet<Ipv6Net> = self.sids.iter().map(|sid| sid.sid.trunc()).collect();
        state.sids.iter_mut().for_each(|sid| self.lead_to_members(sid));
        state.sids.extend(several.into_iter().filter(|sid| !known.contains(&sid.sid)));
        for sid in &mut state.sids {
            let found = sid.function().and_then(|name| Some((name.to_owned(), state.functions.get(name)?)));
            if let Some((name, function)) = found {
                sid.reach(&name, function);
            }
        }
        state
    }

    /// Names in a SID those of the instances behind it that take new flows.
    pub(crate) fn lead_to_members(&self, sid: &mut Sid) {
        let Some(function) = sid.function().and_then(|name| self.functions.get(name)) else { return };
        let takes = function.instances.iter().filter(|(_, instance)| !instance.drain);
        let members = takes.map(|(name, _)| sid.member(name)).collect();
        if let Some(proxy) = sid.proxy.as_mut().filter(|_| !function.instances.is_empty()) {
            proxy.instances = Some(members);
        }
    }

    /// The SIDs of the instances behind a SID.
    pub(crate) fn members(&self, sid: &Sid) -> Vec<Sid> {
        let Some((name, function)) = sid.function().and_then(|name| self.functions.get_key_value(name)) else {
            return Vec::new();
        };
        let member = |instance: &String| {
            let mut member = sid.clone();
            member.sid = sid.member(instance).into();
            // Whoever names it is told by the SID of all.
            member.answer_echo = false;
            member.comment = Some(format!("instance {instance} of {name}"));
            if let Some(proxy) = &mut member.proxy {
                proxy.function = Some(instance_name(name, instance));
                proxy.instances = None;
                // What happens while all are down is for the SID of all to do; it lets packets pass by way of one.
                if proxy.on_failure != OnFailure::Bypass {
                    proxy.on_failure = OnFailure::Drop;
                    proxy.backup = None;
                    proxy.backup_label = None;
                }
            }
            member
        };
        function.instances.keys().map(member).collect()
    }
}

impl Sid {
    /// The SIDs of the instances that take new flows, if there are several instances behind it.
    pub fn instances(&self) -> Option<&[Ipv6Addr]> {
        self.proxy.as_ref()?.instances.as_deref()
    }

    /// Says by which ports a virtual machine, a service or virtual functions of a card are reached, and at which address.
    pub(crate) fn reach(&mut self, name: &str, function: &NodeFunction) {
        let differs = function.vm.is_some() || function.service.is_some() || function.vf.is_some();
        let Some(proxy) = self.proxy.as_mut().filter(|_| differs) else {
            return;
        };
        let wiring = Wiring::of_attached(name, function);
        let sides = [(wiring.node_west, wiring.west_mac), (wiring.node_east, wiring.east_mac)];
        let [(into, mac), (from, _)] = match proxy.direction {
            Some(Direction::Reverse) => {
                let [west, east] = sides;
                [east, west]
            }
            _ => sides,
        };
        proxy.to_function = into;
        proxy.from_function = from;
        self.next_hop_mac = Some(mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> NodeState {
        serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "functions": {
                "fw": {"instances": {"a": {"netns": "fw-a"}, "b": {"container": "fw-b", "drain": true}}, "watch": {"hold_ms": 7}},
                "vm": {"vm": {"west": {"interface": "vnet0", "mac": "52:54:00:00:00:01"}, "east": {}}},
            },
            "sids": [
                {"sid": "fc00:1::", "behaviour": "End.AM", "proxy": {"function": "fw", "on_failure": "reroute", "backup": "fc00:9::"}},
                {"sid": "fc00:2::", "behaviour": "End.AM", "proxy": {"function": "fw", "direction": "reverse", "on_failure": "bypass"}},
                {"sid": "fc00:3::", "behaviour": "End.AM", "proxy": {"function": "vm"}},
                {"sid": "fc00:4::", "behaviour": "End.AM", "proxy": {"function": "vm", "direction": "reverse"}},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn instances_are_functions_with_sids_of_their_own() {
        let state = state().written_out();
        let names: Vec<&str> = state.functions.keys().map(String::as_str).collect();
        assert_eq!(names, ["fw", "vm", "fw.a", "fw.b"]);
        assert_eq!(state.functions["fw.b"].container.as_deref(), Some("fw-b"));
        assert_eq!(state.functions["fw.a"].watch.hold_ms, 7);
        let a = instance_sid("fc00:1::/128".parse().unwrap(), "a");
        assert_eq!(state.sids[0].instances(), Some(&[a][..]), "b takes no new flows");
        assert_eq!(state.sids[0].function_ports(), None);
        assert_eq!(state.sids[0].on_failure(), OnFailure::Reroute);
        assert_eq!(state.sids.len(), 8);
        let member = state.sids.iter().find(|sid| sid.sid.addr() == a).unwrap();
        assert_eq!(member.function_ports(), Some(("fnw-fw.a".to_owned(), "fne-fw.a".to_owned())));
        assert_eq!((member.on_failure(), member.backup()), (OnFailure::Drop, None));
        let other = instance_sid("fc00:2::/128".parse().unwrap(), "b");
        let member = state.sids.iter().find(|sid| sid.sid.addr() == other).unwrap();
        assert_eq!(member.function_ports(), Some(("fne-fw.b".to_owned(), "fnw-fw.b".to_owned())));
        assert_eq!(member.on_failure(), OnFailure::Bypass);
        // Both directions know an instance by one number.
        assert_eq!(other.to_bits() as u32, instance_number("b"));
        let ports: Vec<String> = state.all_ports().into_iter().map(|port| port.name).collect();
        assert_eq!(ports, ["vnet0", "fne-vm", "fnw-fw.a", "fne-fw.a", "fnw-fw.b", "fne-fw.b"]);
    }

    #[test]
    fn what_is_written_out_stays_so() {
        let once = state().written_out();
        assert_eq!(once.written_out(), once);
        let text = serde_json::to_string(&once).unwrap();
        assert_eq!(serde_json::from_str::<NodeState>(&text).unwrap(), once);
    }

    #[test]
    fn machines_are_reached_by_their_devices() {
        let state = state().written_out();
        let (forward, reverse) = (&state.sids[2], &state.sids[3]);
        assert_eq!(forward.function_ports(), Some(("vnet0".to_owned(), "fne-vm".to_owned())));
        assert_eq!(reverse.function_ports(), Some(("fne-vm".to_owned(), "vnet0".to_owned())));
        assert_eq!(forward.function_mac().unwrap().to_string(), "52:54:00:00:00:01");
        // Not known yet: the address that the machine would have to have.
        assert_eq!(reverse.function_mac(), Some(Wiring::of_function("vm").east_mac));
    }
}
