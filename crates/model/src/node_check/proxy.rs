//! Functions behind SIDs: what each kind of proxy needs and does not take, which of them may share a return interface, how
//! their life is watched.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::check;
use crate::error::KeyPath;
use crate::limits::SEGMENTS_MAX;
use crate::node::{
    Behaviour, HeadendMode, InnerType, MayRewrite, Memory, Netfilter, NodeState, OnFailure, OtherTypes, OwnTraffic,
    PortRole, Probe, ProbeKind, Proxy, Sid, Watch,
};
use crate::wiring::Wiring;

use super::Check;

/// Most bits of an argument: a packet's mark has no more.
const ARGUMENT_MAX: u8 = 32;
const FLOW_TIMEOUT: RangeInclusive<u32> = 1..=86_400;
const HOLD_MS: RangeInclusive<u32> = 0..=3_600_000;
const INTERVAL_MS: RangeInclusive<u32> = 50..=60_000;
const TIMEOUT_MS: RangeInclusive<u32> = 10..=60_000;
const PROBES: RangeInclusive<u32> = 1..=100;

/// Whether a function takes Ethernet frames, which no next hop is resolved for.
fn takes_frames(sid: &Sid) -> bool {
    sid.proxy.as_ref().is_some_and(|proxy| proxy.inner.contains(&InnerType::Ethernet))
}

impl Check<'_> {
    /// A function that packets are sent to needs an address, one that frames are handed to must not have one.
    pub(super) fn function_address(&mut self, sid: &Sid, key: &KeyPath) {
        let name = sid.behaviour_name();
        if !matches!(sid.behaviour, Behaviour::EndAs | Behaviour::EndAd | Behaviour::EndAm | Behaviour::EndAn) {
            return;
        }
        if sid.function().is_some() {
            for (parameter, given) in
                [("next_hop", sid.next_hop.is_some()), ("next_hop_mac", sid.next_hop_mac.is_some())]
            {
                if given {
                    self.error(&key.at(parameter), "the function's own address is known", "remove the key");
                }
            }
            return;
        }
        match (sid.next_hop, sid.next_hop_mac) {
            (None, None) if takes_frames(sid) => {}
            (next_hop, _) if takes_frames(sid) => {
                let parameter = if next_hop.is_some() { "next_hop" } else { "next_hop_mac" };
                let message = "Ethernet frames go to the function as they are, with the destination that they have";
                self.error(&key.at(parameter), message, "remove the key");
            }
            (None, None) => {
                let remedy =
                    "add `next_hop_mac:` with the function's link-layer address, or `next_hop:` with its address";
                self.error(key, format!("{name} needs to know its function's address"), remedy);
            }
            (Some(_), Some(_)) => {
                let message = "both a next hop and its link-layer address are given";
                self.error(&key.at("next_hop"), message, "keep one of `next_hop` and `next_hop_mac`");
            }
            _ => {}
        }
    }

    pub(super) fn proxy(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        if !matches!(sid.behaviour, Behaviour::EndAs | Behaviour::EndAd | Behaviour::EndAm | Behaviour::EndAn) {
            // That the behaviour does not take `proxy` has been said.
            return;
        }
        let watch = match &proxy.function {
            Some(name) => self.attached(name, proxy, key),
            None => proxy.watch.as_ref(),
        };
        self.several(sid, proxy, key);
        if let (Some(direction), None) = (proxy.direction, &proxy.function) {
            let message = format!("{direction} is a direction of a function, and none is named");
            self.error(&key.at("direction"), message, "remove the key, or name a `function`");
        }
        for (name, port) in [("to_function", &proxy.to_function), ("from_function", &proxy.from_function)] {
            if proxy.function.is_some() {
                continue;
            }
            if port.is_empty() {
                let message = format!("the key {name:?} is missing");
                self.error(key, message, format!("add `{name}:` with a port, or `function:` with one of `functions`"));
                continue;
            }
            let key = key.at(name);
            if let Some(port) = self.port(port, &key)
                && port.role != PortRole::Service
            {
                let message = format!("the port {:?} does not lead to a function", port.name);
                self.error(&key, message, "give the port `role: service`, or name another");
            }
        }
        self.proxy_parameters(sid, proxy, key);
        self.proxy_inner(sid, proxy, &key.at("inner"));
        self.proxy_memory(proxy, key);
        if sid.behaviour == Behaviour::EndAs {
            if let Some(address) = proxy.source_address {
                self.ipv6_address(address, &key.at("source_address"));
            }
            if sid.label().is_none() {
                self.proxy_segments(sid, proxy, &key.at("segments"));
            }
        }
        self.failure(sid, proxy.on_failure, proxy.backup, watch, key);
    }

    /// A proxy of a function of this node; how that is watched.
    fn attached(&mut self, name: &str, proxy: &Proxy, key: &KeyPath) -> Option<&'static Watch> {
        if !self.state.functions.contains_key(name) {
            let message = format!("there is no function {name:?}");
            self.error(&key.at("function"), message, "add it to `functions`, or correct the name");
        }
        let given = [
            ("to_function", !proxy.to_function.is_empty()),
            ("from_function", !proxy.from_function.is_empty()),
            ("watch", proxy.watch.is_some()),
        ];
        for (parameter, _) in given.into_iter().filter(|(_, given)| *given) {
            let message = "the function says that itself";
            self.error(&key.at(parameter), message, format!("remove it here: it follows from functions.{name}"));
        }
        // Whatever it says: it has been checked where it stands.
        static WATCHED: Watch = Watch { link: true, probe: None, hold_ms: 0 };
        Some(&WATCHED)
    }

    /// Keys that another kind of proxy takes.
    fn proxy_parameters(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        let is = |behaviour| sid.behaviour == behaviour;
        let (name, is_sid) = (sid.behaviour_name(), sid.label().is_none());
        let dynamic = is(Behaviour::EndAd);
        let remembers = |memory| dynamic && sid.memory() == Some(memory);
        let takes_off = dynamic || is(Behaviour::EndAs);
        let keeps_srh = (is(Behaviour::EndAm) || is(Behaviour::EndAn)) && is_sid;
        let by_flow = remembers(Memory::Flow) || is(Behaviour::EndAn);
        let tells_own = remembers(Memory::Packet) || keeps_srh;
        let given = [
            ("inner", !proxy.inner.is_empty(), takes_off, "End.AS and End.AD"),
            ("other_types", proxy.other_types != OtherTypes::Drop, takes_off, "End.AS and End.AD"),
            ("segments", !proxy.segments.is_empty(), is(Behaviour::EndAs) && is_sid, "End.AS"),
            ("source_address", proxy.source_address.is_some(), is(Behaviour::EndAs) && is_sid, "End.AS"),
            ("reduced", !proxy.reduced, is(Behaviour::EndAs) && is_sid, "End.AS"),
            ("labels", !proxy.labels.is_empty(), is(Behaviour::EndAs) || is_sid, "static_proxy"),
            ("memory", proxy.memory.is_some(), dynamic, "End.AD"),
            ("hop_limit_margin", proxy.hop_limit_margin.is_some(), dynamic, "End.AD"),
            ("flow_timeout", proxy.flow_timeout.is_some(), by_flow, "End.AN, and End.AD with `memory: flow`"),
            ("unknown_flow", proxy.unknown_flow.is_some(), remembers(Memory::Flow), "End.AD with `memory: flow`"),
            ("own_traffic", proxy.own_traffic.is_some(), tells_own, "End.AM, End.AN, and End.AD with `memory: packet`"),
            ("may_change", proxy.may_change.is_some(), is(Behaviour::EndAn) && is_sid, "End.AN"),
            ("may_rewrite", !proxy.may_rewrite.is_empty(), is(Behaviour::EndAn), "End.AN"),
        ];
        for (parameter, is_given, taken, who) in given {
            if is_given && !taken {
                let message = format!("{name} does not take the key {parameter:?} here");
                self.error(&key.at(parameter), message, format!("remove it: it is for {who}"));
            }
        }
        for (position, what) in proxy.may_rewrite.iter().enumerate() {
            if proxy.may_rewrite[..position].contains(what) {
                self.error(&key.at("may_rewrite").at(position), "this is there twice", "remove one");
            } else if !is_sid && *what != MayRewrite::Addresses {
                let message = "a function behind a label gives the stack back as it is";
                self.error(&key.at("may_rewrite").at(position), message, "remove it; `addresses` may be there");
            }
        }
        if keeps_srh && proxy.own_traffic == Some(OwnTraffic::Steer) {
            let message = format!("{name} does not steer what its function made itself");
            self.error(&key.at("own_traffic"), message, "write route or drop");
        }
        if takes_off && proxy.inner.is_empty() {
            self.error(
                &key.at("inner"),
                "the function takes nothing",
                "write [IPv4, IPv6], or one of the two, or [Ethernet]",
            );
        }
    }

    fn proxy_inner(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        for (position, inner) in proxy.inner.iter().enumerate() {
            if proxy.inner[..position].contains(inner) {
                self.error(&key.at(position), format!("{inner:?} is there twice"), "remove one");
            }
        }
        if !takes_frames(sid) || !matches!(sid.behaviour, Behaviour::EndAs | Behaviour::EndAd) {
            return;
        }
        if proxy.inner.iter().any(|inner| *inner != InnerType::Ethernet) {
            let message = "Ethernet frames and IP packets cannot be told apart when they come back";
            self.error(key, message, "write [Ethernet] alone, or IP types only, and make a SID for the other");
        }
        if let Some(memory @ (Memory::Flow | Memory::Packet)) = sid.memory() {
            let (name, why) = match memory {
                Memory::Flow => ("flow", "flows are those of IP packets"),
                _ => ("packet", "the kernel forwards IP packets only"),
            };
            let message = format!("`memory: {name}` does not work with Ethernet frames: {why}");
            self.error(key, message, "write `memory: interface`, or IP types only");
        }
    }

    fn proxy_memory(&mut self, proxy: &Proxy, key: &KeyPath) {
        if proxy.hop_limit_margin == Some(0) {
            let message = "with a margin of 0 no header is ever the same as the last one";
            self.error(&key.at("hop_limit_margin"), message, "choose 1 to 255; 1 takes every difference seriously");
        }
        if let Some(timeout) = proxy.flow_timeout {
            self.range(timeout, FLOW_TIMEOUT, "seconds", &key.at("flow_timeout"));
        }
    }

    fn range(&mut self, value: u32, range: RangeInclusive<u32>, unit: &str, key: &KeyPath) {
        if !range.contains(&value) {
            let message = format!("{value} {unit} is out of range");
            self.error(key, message, format!("choose {} to {} {unit}", range.start(), range.end()));
        }
    }

    fn proxy_segments(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        if proxy.segments.is_empty() {
            let remedy = "write the segments that are still to visit, the egress last";
            self.error(key, "what comes back from the function has nowhere to go", remedy);
        }
        let mode = match (takes_frames(sid), proxy.reduced) {
            (false, _) => None,
            (true, true) => Some(HeadendMode::HEncapsL2Red),
            (true, false) => Some(HeadendMode::HEncapsL2),
        };
        let max = mode.map_or(SEGMENTS_MAX, HeadendMode::segments_max);
        if proxy.segments.len() > max {
            self.too_many_segments(proxy.segments.len(), max, key);
        }
        for (position, segment) in proxy.segments.iter().enumerate() {
            self.ipv6_address(*segment, &key.at(position));
        }
        if proxy.segments.first().is_some_and(|first| sid.sid.contains(first)) {
            let message = "the first segment is this SID: packets would visit the function again and again";
            self.error(&key.at(0), message, "begin with the segment that follows this one");
        }
    }

    pub(super) fn netfilter(&mut self, sid: &Sid, netfilter: &Netfilter, key: &KeyPath) {
        if sid.behaviour != Behaviour::EndAnNf {
            return;
        }
        if !check::is_namespace_name(&netfilter.namespace) {
            let message = format!("{:?} cannot be the name of a namespace", netfilter.namespace);
            let remedy = "use 1 to 63 letters, digits, dots, hyphens and underscores, not beginning with a dot";
            self.error(&key.at("namespace"), message, remedy);
        }
        self.failure(sid, netfilter.on_failure, netfilter.backup, netfilter.watch.as_ref(), key);
    }

    fn failure(
        &mut self,
        sid: &Sid,
        on_failure: OnFailure,
        backup: Option<Ipv6Addr>,
        watch: Option<&Watch>,
        key: &KeyPath,
    ) {
        if on_failure != OnFailure::Drop && watch.is_none() {
            let message = "nothing tells whether the function is down";
            self.error(&key.at("on_failure"), message, "add `watch: {}` beside it, or remove the key");
        }
        match (on_failure, backup) {
            (_, Some(_)) if sid.label().is_some() => {
                self.error(&key.at("backup"), "a label's backup is a label", "write `backup_label:`");
            }
            (OnFailure::Reroute, None) if sid.label().is_some() => self.backup_label(sid, key),
            (_, None) if sid.label().is_some() && sid.backup_label().is_some() => {
                let message = "a backup is for `on_failure: reroute` only";
                self.error(&key.at("backup_label"), message, "write that, or remove the key");
            }
            (OnFailure::Reroute, None) => {
                let message = "packets of a failed function have nowhere to go";
                self.error(&key.at("on_failure"), message, "add `backup:` with the SID of another instance");
            }
            (OnFailure::Reroute, Some(backup)) => {
                let key = key.at("backup");
                if self.ipv6_address(backup, &key) && sid.sid.contains(&backup) {
                    self.error(&key, "the backup is this SID itself", "write the SID of another instance");
                }
            }
            (_, Some(_)) => {
                let message = "a backup is for `on_failure: reroute` only";
                self.error(&key.at("backup"), message, "write that, or remove the key");
            }
            (_, None) => {}
        }
        if let Some(watch) = watch {
            self.watch(sid.next_hop, watch, &key.at("watch"));
        }
    }

    pub(super) fn watch(&mut self, next_hop: Option<IpAddr>, watch: &Watch, key: &KeyPath) {
        self.range(watch.hold_ms, HOLD_MS, "ms", &key.at("hold_ms"));
        if !watch.link && watch.probe.is_none() {
            self.error(&key.at("link"), "nothing is watched", "write `link: true`, or add `probe:`, or remove `watch`");
        }
        let Some(probe) = &watch.probe else { return };
        let key = key.at("probe");
        self.range(probe.interval_ms, INTERVAL_MS, "ms", &key.at("interval_ms"));
        self.range(probe.timeout_ms, TIMEOUT_MS, "ms", &key.at("timeout_ms"));
        for (name, value) in [("fall", probe.fall), ("rise", probe.rise)] {
            self.range(u32::from(value), PROBES, "probes", &key.at(name));
        }
        self.probe(next_hop, probe, &key);
    }

    fn probe(&mut self, next_hop: Option<IpAddr>, probe: &Probe, key: &KeyPath) {
        match probe.target {
            None if next_hop.is_none() && !(probe.through && probe.kind != ProbeKind::Neighbour) => {
                let message = "it is not known who should answer";
                self.error(key, message, "add `target:` with an address; the SID has no `next_hop` that would serve");
            }
            Some(target) if !check::is_link_local(target) => {
                if let Some(problem) = check::ip_problem(target) {
                    self.error(&key.at("target"), format!("{target} {problem}"), "write a unicast address");
                }
            }
            _ => {}
        }
        match (probe.kind, probe.port) {
            (ProbeKind::Tcp, None | Some(0)) => {
                self.error(key, "a connection needs a destination port", "add `port:` from 1 to 65535");
            }
            (ProbeKind::Neighbour | ProbeKind::Icmp, Some(_)) => {
                self.error(&key.at("port"), "only `kind: tcp` has ports", "remove the key");
            }
            _ => {}
        }
        if probe.through && probe.kind == ProbeKind::Neighbour {
            let message = "neighbours answer on the link: such a probe does not go through the function";
            self.error(&key.at("through"), message, "write `kind: icmp` or tcp, or remove the key");
        }
    }

    /// Which SIDs may have packets back by the same interface.
    pub(super) fn returns(&mut self) {
        let mut returns: HashMap<String, (String, &Sid)> = HashMap::new();
        let services = self.state.services();
        for (key, sid) in functions_of(self.state, &services) {
            let (Some(proxy), Some((_, from))) = (&sid.proxy, sid.function_ports()) else { continue };
            let Some((other, first)) = returns.get(&from).map(|(other, first)| (other.clone(), *first)) else {
                returns.insert(from, (key.to_string(), sid));
                continue;
            };
            let named = if proxy.function.is_some() { "function" } else { "from_function" };
            let key = key.at("proxy").at(named);
            if sid.label().is_some() != first.label().is_some() {
                let message = format!(
                    "packets that return on {from:?} belong to {other} already: SIDs and labels do not share it"
                );
                self.error(&key, message, "give each an interface of its own");
            } else if !shares(sid) || !shares(first) {
                let message = format!(
                    "packets that return on {from:?} belong to {other} already: one interface serves one proxy SID of this kind"
                );
                let remedy = "give each direction and each chain an interface of its own, or let both be End.AD with `memory: flow` or packet";
                self.error(&key, message, remedy);
            } else if let Some(what) = difference(first, sid) {
                let message = format!("{other} shares the interface {from:?}, but differs in {what}");
                self.error(&key, message, "make both equal in it, or give this one an interface of its own");
            }
        }
    }

    /// Links that the agent makes must not meet those of the operator, or each other.
    pub(super) fn wirings(&mut self) {
        let mut names: HashMap<String, String> = HashMap::new();
        let mut first: HashMap<&str, (String, &Sid)> = HashMap::new();
        let services = self.state.services();
        for (place, sid) in functions_of(self.state, &services) {
            let (Behaviour::EndAnNf, Some(netfilter)) = (sid.behaviour, &sid.netfilter) else { continue };
            let key = place.at("netfilter");
            if let Some((other, first)) = first.get(netfilter.namespace.as_str()) {
                if first.own_traffic() != sid.own_traffic() {
                    let message = format!("{other} has the same namespace, but differs in own_traffic");
                    self.error(&key, message, "make both equal in it, or give this one another namespace");
                } else if first.label().is_some() != sid.label().is_some() {
                    let message = format!("{other} has the same namespace, but SIDs and labels do not share one");
                    self.error(&key, message, "give each a namespace of its own");
                }
                continue;
            }
            first.insert(&netfilter.namespace, (place.to_string(), sid));
            let wiring = Wiring::of(&netfilter.namespace);
            for name in [wiring.node_west, wiring.node_east] {
                if self.ports.contains_key(name.as_str()) {
                    let message = format!("the agent makes {name:?} for this namespace, but it is among `ports`");
                    self.error(&key.at("namespace"), message, "remove the port: it needs no entry");
                }
                if let Some(other) = names.insert(name.clone(), netfilter.namespace.clone()) {
                    let message =
                        format!("the namespaces {other:?} and {:?} both get a link {name:?}", netfilter.namespace);
                    self.error(&key.at("namespace"), message, "rename one of them");
                }
            }
        }
    }
}

/// SIDs with a function, and behind them `services`, those of labels, with their places.
fn functions_of<'a>(state: &'a NodeState, services: &'a [Sid]) -> Vec<(KeyPath, &'a Sid)> {
    let (sids, labels) = (KeyPath::root().at("sids"), KeyPath::root().at("labels"));
    let of_sids = state.sids.iter().enumerate().filter(|(_, sid)| sid.proxy.is_some() || sid.netfilter.is_some());
    let of_sids = of_sids.map(|(position, sid)| (sids.at(position), sid));
    let places = state.labels.iter().enumerate().filter(|(_, label)| label.behaviour.of_sid().is_some());
    of_sids.chain(places.map(|(position, _)| labels.at(position)).zip(services)).collect()
}

/// Whether packets that come back tell by themselves what they belong to.
fn shares(sid: &Sid) -> bool {
    match sid.behaviour {
        Behaviour::EndAd => sid.memory() != Some(Memory::Interface),
        Behaviour::EndAm | Behaviour::EndAn => true,
        _ => false,
    }
}

/// What keeps two SIDs from one return interface, as a key.
fn difference(a: &Sid, b: &Sid) -> Option<&'static str> {
    let (x, y) = (a.proxy.as_ref()?, b.proxy.as_ref()?);
    let same = |list: &[crate::node::Flavour], other: &[crate::node::Flavour]| {
        list.iter().all(|flavour| other.contains(flavour))
    };
    let same_inner = x.inner.iter().all(|inner| y.inner.contains(inner)) && x.inner.len() == y.inner.len();
    let same_rewrite = x.may_rewrite.iter().all(|what| y.may_rewrite.contains(what))
        && y.may_rewrite.iter().all(|what| x.may_rewrite.contains(what));
    [
        ("behaviour", a.behaviour == b.behaviour),
        ("flavours", same(&a.flavours, &b.flavours) && same(&b.flavours, &a.flavours)),
        ("memory", a.memory() == b.memory()),
        ("to_function", a.function_ports() == b.function_ports()),
        ("inner", same_inner),
        ("hop_limit_margin", a.hop_limit_margin() == b.hop_limit_margin()),
        ("flow_timeout", a.flow_timeout() == b.flow_timeout()),
        ("unknown_flow", x.unknown_flow.unwrap_or_default() == y.unknown_flow.unwrap_or_default()),
        ("own_traffic", a.own_traffic() == b.own_traffic()),
        ("may_change", x.may_change.unwrap_or_default() == y.may_change.unwrap_or_default()),
        ("may_rewrite", same_rewrite),
    ]
    .into_iter()
    .find_map(|(what, equal)| (!equal).then_some(what))
}

impl Check<'_> {
    /// The argument lies behind LOC:FUNCT, within the address.
    pub(super) fn argument(&mut self, sid: &Sid, key: &KeyPath) {
        if sid.argument_length == 0 || sid.behaviour != Behaviour::EndAnNf {
            return;
        }
        let key = key.at("argument_length");
        if sid.argument_length > ARGUMENT_MAX {
            let message = format!("{} bits are more than a packet's mark has", sid.argument_length);
            self.error(&key, message, format!("choose 1 to {ARGUMENT_MAX}"));
        } else if sid.sid.prefix_len() + sid.argument_length > 128 {
            let message = format!(
                "{} bits behind a SID of length {} go beyond an address",
                sid.argument_length,
                sid.sid.prefix_len()
            );
            self.error(&key, message, "write the SID with a shorter length, such as /64, or choose fewer bits");
        }
    }
}
