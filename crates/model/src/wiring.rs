//! What proxies and namespaces of functions ask of their node: links, ports, what is remembered and watched.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use crate::direction::Direction;
use crate::node::{Behaviour, Flavour, HeadendMode, NodeFunction, NodeState, Port, PortMode, PortRole, Sid};
use crate::proxy::{FLOW_TIMEOUT, HOP_LIMIT_MARGIN, InnerType, LOOP_OUT, Memory, OnFailure, OwnTraffic, Watch};
use crate::value::MacAddress;

/// The two links between a node and the namespace of an End.AN.NF SID. Packets go in by `west` and come back by `east`; the
/// agent makes both under names that follow from the namespace's, and the data plane knows them by these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// The namespace.
    pub namespace: String,
    /// The node's end of the link by which packets go in: IFACE-OUT.
    pub node_west: String,
    /// The node's end of the link by which packets come back: IFACE-IN.
    pub node_east: String,
    /// Link-layer address of `node_west`.
    pub node_west_mac: MacAddress,
    /// Link-layer address of `node_east`.
    pub node_east_mac: MacAddress,
    /// Link-layer address of [`Wiring::WEST`] in the namespace.
    pub west_mac: MacAddress,
    /// Link-layer address of [`Wiring::EAST`] in the namespace.
    pub east_mac: MacAddress,
}

impl Wiring {
    /// Name of the link to `node_west` in the namespace.
    pub const WEST: &'static str = "west";
    /// Name of the link to `node_east` in the namespace.
    pub const EAST: &'static str = "east";

    /// The wiring of a namespace.
    pub fn of(namespace: &str) -> Self {
        let hash = fnv1a(namespace.as_bytes());
        // 4 + 11 = 15 octets, the most that an interface's name may have.
        let short = if namespace.len() <= 11 {
            namespace.to_owned()
        } else {
            let start: String = namespace.chars().filter(char::is_ascii).take(5).collect();
            format!("{start}{:06x}", hash & 0xff_ffff)
        };
        let mac = |side: u8| {
            let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
            // Locally administered, one station.
            MacAddress([0x02 | (side << 2), a, b, c, d, e])
        };
        Self {
            namespace: namespace.to_owned(),
            node_west: format!("nfw-{short}"),
            node_east: format!("nfe-{short}"),
            node_west_mac: mac(0),
            node_east_mac: mac(1),
            west_mac: mac(2),
            east_mac: mac(3),
        }
    }

    /// The node's ends as ports.
    pub fn ports(&self) -> [Port; 2] {
        [&self.node_west, &self.node_east].map(|name| port(name, PortRole::Service))
    }
}

fn port(name: &str, role: PortRole) -> Port {
    Port {
        name: name.to_owned(),
        role,
        vlan: None,
        mode: PortMode::default(),
        accept_hmac: false,
        l2_policy: None,
        firewall: None,
    }
}

/// FNV-1a, 64 bits: stable for ever, as names of interfaces follow from it.
pub(crate) fn fnv1a(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3))
}

impl Sid {
    /// What it remembers steering headers by. None for End.AS, and for End.AM without Caching.
    pub fn memory(&self) -> Option<Memory> {
        match self.behaviour {
            Behaviour::EndAd => Some(self.proxy.as_ref().and_then(|proxy| proxy.memory).unwrap_or_default()),
            Behaviour::EndAm if self.flavours.contains(&Flavour::Caching) => Some(Memory::Interface),
            Behaviour::EndAn if self.firewall.is_some() => None,
            Behaviour::EndAn => Some(Memory::Flow),
            Behaviour::EndAnNf => Some(Memory::Packet),
            _ => None,
        }
    }

    /// IFACE-OUT and IFACE-IN of a proxy, of an SR-aware function or of End.AN.NF. None if it has several instances behind it.
    pub fn function_ports(&self) -> Option<(String, String)> {
        if self.instances().is_some() {
            return None;
        }
        if let Some(netfilter) = &self.netfilter {
            let wiring = Wiring::of(&netfilter.namespace);
            return Some((wiring.node_west, wiring.node_east));
        }
        let of_proxy = || self.proxy.as_ref().map(|proxy| (proxy.to_function.clone(), proxy.from_function.clone()));
        self.attached_ports().or_else(of_proxy)
    }

    /// Hop limits that differ by less are the same header.
    pub fn hop_limit_margin(&self) -> u8 {
        let default = if self.memory() == Some(Memory::Packet) { 1 } else { HOP_LIMIT_MARGIN };
        self.proxy.as_ref().and_then(|proxy| proxy.hop_limit_margin).unwrap_or(default)
    }

    /// Seconds after which an unused flow is forgotten.
    pub fn flow_timeout(&self) -> u32 {
        self.proxy.as_ref().and_then(|proxy| proxy.flow_timeout).unwrap_or(FLOW_TIMEOUT)
    }

    /// What becomes of packets that the function made itself, where they can be told apart. What comes without SRH from a
    /// function that gets it with one is dropped, unless the operator says otherwise.
    pub fn own_traffic(&self) -> OwnTraffic {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.own_traffic);
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.own_traffic)).unwrap_or(
            match self.behaviour {
                Behaviour::EndAm | Behaviour::EndAn => OwnTraffic::Drop,
                _ => OwnTraffic::Route,
            },
        )
    }

    /// What it does while its function is down.
    pub fn on_failure(&self) -> OnFailure {
        let of_proxy = self.proxy.as_ref().map(|proxy| proxy.on_failure);
        of_proxy.or(self.netfilter.as_ref().map(|netfilter| netfilter.on_failure)).unwrap_or_default()
    }

    /// Where packets go while its function is down, if it reroutes them.
    pub fn backup(&self) -> Option<Ipv6Addr> {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.backup);
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.backup))
    }

    /// How its function is watched.
    pub fn watch(&self) -> Option<&Watch> {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.watch.as_ref());
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.watch.as_ref()))
    }
}

impl NodeState {
    /// The wiring of each namespace that an End.AN.NF SID uses, once, by name of the namespace.
    pub fn wirings(&self) -> Vec<Wiring> {
        let of_labels = self.labels.iter().filter_map(|label| label.netfilter.as_ref());
        let all = self.sids.iter().filter_map(|sid| sid.netfilter.as_ref()).chain(of_labels);
        let mut names: Vec<&str> = all.map(|netfilter| netfilter.namespace.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Wiring::of).collect()
    }

    /// Whether a SID remembers packets one by one: TC programs are needed then, and the pair [`LOOP_IN`], [`LOOP_OUT`].
    pub fn needs_loop(&self) -> bool {
        let is_exact = |sid: &Sid| sid.memory() == Some(Memory::Packet);
        self.sids.iter().any(is_exact) || self.services().iter().any(is_exact)
    }

    /// The ports by which socket buffers may come that get labels, and so the pair [`CUT_IN`], [`CUT_OUT`]: those of hosts and functions,
    /// and by End.BM those of the core. And those whose frames are carried whole. Not only those that are to be on socket buffers: a port
    /// with `mode: xdp` is, too, if its device has no XDP.
    ///
    /// [`CUT_IN`]: crate::proxy::CUT_IN
    /// [`CUT_OUT`]: crate::proxy::CUT_OUT
    pub fn cut_ports(&self) -> impl Iterator<Item = Port> {
        let has_labels = self.knows_labels() || self.policies.iter().any(|policy| policy.mode == HeadendMode::Push);
        let binds = self.sids.iter().any(|sid| sid.behaviour == Behaviour::EndBm);
        let of_frames: BTreeSet<String> = self.frame_ports().collect();
        self.all_ports().into_iter().filter(move |port| {
            let is_whole = port.l2_policy.is_some() || of_frames.contains(&port.name);
            is_whole || has_labels && (binds || port.role != PortRole::Core)
        })
    }

    /// The ports by which functions return Ethernet frames.
    pub fn frame_ports(&self) -> impl Iterator<Item = String> {
        let takes_frames =
            |sid: &&Sid| sid.proxy.as_ref().is_some_and(|proxy| proxy.inner.contains(&InnerType::Ethernet));
        self.sids.iter().filter(takes_frames).filter_map(Sid::function_ports).map(|(_, from)| from)
    }

    /// The configured ports, then those that the agent makes: of [`NodeState::wirings`] and [`NodeState::attached`], and [`LOOP_OUT`].
    pub fn all_ports(&self) -> Vec<Port> {
        let wired = self.wirings();
        let again = self.needs_loop().then(|| port(LOOP_OUT, PortRole::Core));
        // A link for both directions is one port.
        let attached = self.attached().flat_map(|(wiring, _)| {
            let is_one = wiring.node_west == wiring.node_east;
            wiring.ports().into_iter().take(if is_one { 1 } else { 2 })
        });
        self.ports.iter().cloned().chain(wired.iter().flat_map(Wiring::ports)).chain(attached).chain(again).collect()
    }
}

impl Wiring {
    /// The wiring of a function that is attached.
    pub fn of_function(name: &str) -> Self {
        // Names of namespaces have no blanks.
        let hashed = Self::of(&format!("function {name}"));
        let [west, east] = [&hashed.node_west, &hashed.node_east].map(|other| match name.len() <= 11 {
            true => name.to_owned(),
            false => other.trim_start_matches("nfw-").trim_start_matches("nfe-").to_owned(),
        });
        Self {
            namespace: name.to_owned(),
            node_west: format!("fnw-{west}"),
            node_east: format!("fne-{east}"),
            ..hashed
        }
    }
}

impl Wiring {
    /// The wiring of this function: the devices of a virtual machine may have other names and addresses, virtual functions of a card other
    /// addresses, and a service has one link for both directions.
    pub fn of_attached(name: &str, function: &NodeFunction) -> Self {
        let mut wiring = Self::of_function(name);
        if function.service.is_some() {
            wiring.node_east.clone_from(&wiring.node_west);
            wiring.node_east_mac = wiring.node_west_mac;
            wiring.east_mac = wiring.west_mac;
        }
        if let Some(vm) = &function.vm {
            let links = [
                (&vm.west, &mut wiring.node_west, &mut wiring.west_mac),
                (&vm.east, &mut wiring.node_east, &mut wiring.east_mac),
            ];
            for (link, interface, mac) in links {
                if let Some(given) = &link.interface {
                    interface.clone_from(given);
                }
                *mac = link.mac.unwrap_or(*mac);
            }
        }
        if let Some(vf) = &function.vf {
            wiring.west_mac = vf.west.mac.unwrap_or(wiring.west_mac);
            wiring.east_mac = vf.east.mac.unwrap_or(wiring.east_mac);
        }
        wiring
    }
}

impl Sid {
    /// The name of the function of this node that it leads to.
    pub fn function(&self) -> Option<&str> {
        self.proxy.as_ref()?.function.as_deref()
    }

    /// Whether packets go in by west.
    fn is_forward(&self) -> bool {
        self.proxy.as_ref().is_none_or(|proxy| proxy.direction != Some(Direction::Reverse))
    }

    /// IFACE-OUT and IFACE-IN of a SID that leads to a function of this node.
    fn attached_ports(&self) -> Option<(String, String)> {
        let wiring = Wiring::of_function(self.function()?);
        // Where the agent has written it out.
        if self.proxy.as_ref().is_some_and(|proxy| !proxy.to_function.is_empty()) {
            return None;
        }
        let (west, east) = (wiring.node_west, wiring.node_east);
        Some(if self.is_forward() { (west, east) } else { (east, west) })
    }

    /// The link-layer address that packets to its function get, where it is known by itself.
    pub fn function_mac(&self) -> Option<MacAddress> {
        let attached = self.function().map(Wiring::of_function);
        let attached = attached.map(|wiring| if self.is_forward() { wiring.west_mac } else { wiring.east_mac });
        self.next_hop_mac.or(attached)
    }
}

impl NodeState {
    /// How the function of a SID is watched.
    pub fn watch_of<'a>(&'a self, sid: &'a Sid) -> Option<&'a Watch> {
        match sid.function() {
            Some(name) => self.functions.get(name).map(|function| &function.watch),
            None => sid.watch(),
        }
    }

    /// The wiring of each function; of those with several instances, that of each instance in a state that is written out.
    pub fn attached(&self) -> impl Iterator<Item = (Wiring, &NodeFunction)> {
        let alone = self.functions.iter().filter(|(_, function)| function.instances.is_empty());
        alone.map(|(name, function)| (Wiring::of_attached(name, function), function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn names_of_wirings_are_names_of_interfaces() {
        for namespace in ["fw", "elevenchars", "twelve-chars", "a-much-longer-name-of-a-namespace", "ümläute-überall"]
        {
            let wiring = Wiring::of(namespace);
            for name in [&wiring.node_west, &wiring.node_east] {
                assert!(check::is_interface_name(name), "{name}");
            }
            let macs = [wiring.node_west_mac, wiring.node_east_mac, wiring.west_mac, wiring.east_mac];
            for (position, mac) in macs.iter().enumerate() {
                assert!(mac.is_unicast() && mac.octets()[0] & 2 != 0, "{mac}");
                assert!(!macs[..position].contains(mac));
            }
        }
        assert_eq!(Wiring::of("fw").node_west, "nfw-fw");
        assert_eq!(Wiring::of("firewall-of-customer-1").node_east, "nfe-firewcde0c2");
        assert_ne!(Wiring::of("firewall-of-customer-1").node_west, Wiring::of("firewall-of-customer-2").node_west);
    }

    #[test]
    fn what_leads_to_a_function_follows_from_its_name_and_the_direction() {
        let state: NodeState = serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1", "functions": {"fw": {"netns": "a", "watch": {"hold_ms": 7}}},
            "sids": [
                {"sid": "fc00:1::", "behaviour": "End.AM", "proxy": {"function": "fw"}},
                {"sid": "fc00:2::", "behaviour": "End.AM", "proxy": {"function": "fw", "direction": "reverse"}},
            ],
        }))
        .unwrap();
        let wiring = Wiring::of_function("fw");
        let ports = |sid: usize| state.sids[sid].function_ports().unwrap();
        assert_eq!(ports(0), ("fnw-fw".to_owned(), "fne-fw".to_owned()));
        assert_eq!(ports(1), ("fne-fw".to_owned(), "fnw-fw".to_owned()));
        assert_eq!(state.sids[0].function_mac(), Some(wiring.west_mac));
        assert_eq!(state.sids[1].function_mac(), Some(wiring.east_mac));
        assert!(state.sids.iter().all(|sid| state.watch_of(sid).unwrap().hold_ms == 7));
        let all: Vec<_> = state.all_ports().into_iter().map(|port| port.name).collect();
        assert_eq!(all, ["fnw-fw", "fne-fw"]);
        // A namespace of the same name has others.
        assert_ne!(Wiring::of("fw").west_mac, wiring.west_mac);
        for name in ["elevenchars", "twelve-chars", "a-much-longer-name-of-a-function"] {
            let wiring = Wiring::of_function(name);
            assert!(
                [&wiring.node_west, &wiring.node_east].iter().all(|name| check::is_interface_name(name)),
                "{wiring:?}"
            );
            assert_ne!(wiring.node_west, wiring.node_east);
        }
        assert_ne!(
            Wiring::of_function("function-of-customer-1").node_west,
            Wiring::of_function("function-of-customer-2").node_west
        );
    }
}
