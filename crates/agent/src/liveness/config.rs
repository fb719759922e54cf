//! From a node's desired state and its interfaces to what is watched. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ipnet::{IpNet, Ipv6Net};
use segue_dataplane::{Interface, Interfaces};
use segue_model::node::{InnerType, NodeState, OnFailure, Owner, Probe, ProbeKind, Sid, Watch};
use segue_model::value::MacAddress;
use segue_model::wiring::Wiring;

use super::{
    machine::Settings,
    probe::{Leg, Next, Side, socket_address},
};

/// A function that is watched: all SIDs that lead to it in the same way share what is found.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// Tells it from others, over configurations.
    pub key: String,
    /// IFACE-OUT and IFACE-IN.
    pub ports: [String; 2],
    /// What makes it down or up.
    pub settings: Settings,
    /// How it is probed.
    pub probe: Option<ProbePlan>,
    /// The SIDs that lead to it, at least one.
    pub sids: Vec<WatchedSid>,
}

/// A SID that leads to a function.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedSid {
    /// LOC:FUNCT, or the key of a label ([`segue_model::service_label::label_key`]).
    pub sid: Ipv6Net,
    /// Endpoint behaviour.
    pub behaviour: &'static str,
    /// What it does while the function is down.
    pub on_failure: OnFailure,
    /// Where it sends packets then, if it reroutes.
    pub backup: Option<String>,
    /// The operator's or the planner's comment.
    pub comment: Option<String>,
    /// The chain that it was made for.
    pub owner: Option<Owner>,
}

/// How a function is probed.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbePlan {
    /// `neighbour`, `icmp` or `tcp`, with ` through`.
    pub kind: String,
    /// From one probe to the next.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The packets of one probe, all of which must be answered; or why there can be none.
    pub legs: Result<Vec<Leg>, String>,
}

/// All functions that a state wants watched.
pub fn watched(state: &NodeState, interfaces: &Interfaces) -> Vec<Watched> {
    let mut all: BTreeMap<String, Watched> = BTreeMap::new();
    let services = state.services();
    for sid in state.sids.iter().chain(&services) {
        let (Some(watch), Some((out, into))) = (state.watch_of(sid), sid.function_ports()) else { continue };
        if let Some(name) = sid.function() {
            // Both directions live and die together.
            all.entry(format!("function {name}"))
                .or_insert_with_key(|key| attached(state, interfaces, sid, key, watch, name))
                .sids
                .push(member(sid));
            continue;
        }
        let inner = sid.proxy.as_ref().map(|proxy| proxy.inner.as_slice()).unwrap_or_default();
        let key = format!("{out} {into} {watch:?} {:?} {:?} {inner:?}", sid.next_hop, sid.next_hop_mac);
        let function = all.entry(key).or_insert_with_key(|key| Watched {
            key: key.clone(),
            settings: settings(watch),
            probe: watch.probe.map(|probe| {
                plan(
                    &probe,
                    Planner { state, interfaces, sid, out: &out, into: &into, inner, mac: sid.next_hop_mac }
                        .legs(&probe),
                )
            }),
            ports: [out, into],
            sids: Vec::new(),
        });
        function.sids.push(member(sid));
    }
    all.into_values().collect()
}

fn member(sid: &Sid) -> WatchedSid {
    WatchedSid {
        sid: sid.sid.trunc(),
        behaviour: sid.behaviour_name(),
        on_failure: sid.on_failure(),
        backup: match sid.backup_label() {
            Some(label) => Some(format!("label {label}")),
            None => sid.backup().map(|backup| backup.to_string()),
        },
        comment: sid.comment.clone(),
        owner: sid.owner.clone(),
    }
}

fn settings(watch: &Watch) -> Settings {
    Settings {
        link: watch.link,
        probe: watch.probe.is_some(),
        fall: watch.probe.map_or(1, |probe| u32::from(probe.fall)),
        rise: watch.probe.map_or(1, |probe| u32::from(probe.rise)),
        hold: Duration::from_millis(watch.hold_ms.into()),
    }
}

fn plan(probe: &Probe, legs: Result<Vec<Leg>, String>) -> ProbePlan {
    ProbePlan {
        kind: kind(probe).to_owned(),
        interval: Duration::from_millis(probe.interval_ms.into()),
        timeout: Duration::from_millis(probe.timeout_ms.into()),
        legs,
    }
}

/// A function of this node: probed from west to east, and back.
fn attached(state: &NodeState, interfaces: &Interfaces, sid: &Sid, key: &str, watch: &Watch, name: &str) -> Watched {
    let function = state.functions.get(name);
    let wiring = function.map_or_else(|| Wiring::of_function(name), |function| Wiring::of_attached(name, function));
    let (west, east) = (&wiring.node_west, &wiring.node_east);
    let legs = |probe: &Probe| -> Result<Vec<Leg>, String> {
        let planner = |out, into, mac| Planner { state, interfaces, sid, out, into, inner: &[], mac: Some(mac) };
        let mut legs = planner(west, east, wiring.west_mac).legs(probe)?;
        if probe.through {
            legs.extend(planner(east, west, wiring.east_mac).legs(probe)?);
        }
        Ok(legs)
    };
    Watched {
        key: key.to_owned(),
        ports: [west.clone(), east.clone()],
        settings: settings(watch),
        probe: watch.probe.map(|probe| plan(&probe, legs(&probe))),
        sids: Vec::new(),
    }
}

fn kind(probe: &Probe) -> &'static str {
    match (probe.kind, probe.through) {
        (ProbeKind::Neighbour, _) => "neighbour",
        (ProbeKind::Icmp, false) => "icmp",
        (ProbeKind::Icmp, true) => "icmp through",
        (ProbeKind::Tcp, false) => "tcp",
        (ProbeKind::Tcp, true) => "tcp through",
    }
}

struct Planner<'a> {
    state: &'a NodeState,
    interfaces: &'a Interfaces,
    sid: &'a Sid,
    out: &'a str,
    into: &'a str,
    inner: &'a [InnerType],
    /// The function's link-layer address on the side where packets go in, if it is known by itself.
    mac: Option<MacAddress>,
}

impl Planner<'_> {
    fn legs(&self, probe: &Probe) -> Result<Vec<Leg>, String> {
        let out = self.interface(self.out)?;
        if probe.through {
            return self.through(probe, out);
        }
        let target = probe.target.or(self.sid.next_hop).ok_or("neither `target` nor `next_hop` says who is asked")?;
        let port = probe.port.unwrap_or(0);
        Ok(vec![match probe.kind {
            ProbeKind::Neighbour => Leg::Neighbour { side: side(out, target), target },
            ProbeKind::Icmp => Leg::Echo(socket_address(target, 0, out.ifindex)),
            ProbeKind::Tcp => Leg::Connect(socket_address(target, port, out.ifindex)),
        }])
    }

    fn interface(&self, name: &str) -> Result<&Interface, String> {
        self.interfaces.get(name).ok_or_else(|| format!("there is no interface {name}"))
    }

    /// From the node's own address on one side of the function to the one on its other side, in each family that the function
    /// takes.
    fn through(&self, probe: &Probe, out: &Interface) -> Result<Vec<Leg>, String> {
        let into = self.interface(self.into)?;
        let takes = |family| self.inner.is_empty() || self.inner.contains(&family) || self.takes_frames();
        let ipv4 = first_ipv4(into).filter(|_| takes(InnerType::IPv4)).map(IpAddr::V4);
        let ipv6 = first_ipv6(into).filter(|_| takes(InnerType::IPv6)).map(IpAddr::V6);
        let mut destinations: Vec<IpAddr> = ipv4.into_iter().chain(ipv6).collect();
        if let Some(target) = probe.target {
            if !destinations.contains(&target) {
                let have: Vec<_> = destinations.iter().map(ToString::to_string).collect();
                let have = if have.is_empty() { "it has none that fits".to_owned() } else { have.join(", ") };
                return Err(format!("`target` {target} is not the first address of {}: {have}", self.into));
            }
            destinations = vec![target];
        }
        if destinations.is_empty() {
            return Err(format!("{} has no address to which a probe could go through the function", self.into));
        }
        destinations.into_iter().map(|destination| self.through_to(probe, out, into, destination)).collect()
    }

    fn through_to(&self, probe: &Probe, out: &Interface, into: &Interface, destination: IpAddr) -> Result<Leg, String> {
        let of_node: Option<IpAddr> = match destination {
            IpAddr::V4(_) => self.state.source_address_ipv4.map(Into::into),
            IpAddr::V6(_) => Some(self.state.source_address.into()),
        };
        let of_port: Option<IpAddr> = match destination {
            IpAddr::V4(_) => first_ipv4(out).map(Into::into),
            IpAddr::V6(_) => first_ipv6(out).map(Into::into),
        };
        // With one interface for both ways the port's own address is the destination already.
        let source = [of_port, of_node].into_iter().flatten().find(|source| *source != destination);
        let source = source.ok_or_else(|| {
            let family = if destination.is_ipv4() { "IPv4" } else { "IPv6" };
            format!("{} has no {family} address from which a probe could start", self.out)
        })?;
        let next = match (&self.mac, &self.sid.netfilter, self.sid.next_hop) {
            (Some(mac), _, _) => Next::Mac(mac.octets()),
            (None, Some(netfilter), _) => Next::Mac(Wiring::of(&netfilter.namespace).west_mac.octets()),
            (None, None, Some(next_hop)) => Next::Ask(next_hop),
            // It forwards frames: to the node's own other end.
            (None, None, None) if self.takes_frames() => Next::Mac(into.mac),
            (None, None, None) => return Err("neither `next_hop` nor `next_hop_mac` says where the function is".into()),
        };
        let asked = match next {
            Next::Ask(neighbour) => neighbour,
            Next::Mac(_) => destination,
        };
        let (side, port) = (side(out, asked), probe.port);
        Ok(Leg::Through { side, into: into.ifindex, next, source, destination, port })
    }

    fn takes_frames(&self) -> bool {
        self.inner.contains(&InnerType::Ethernet)
    }
}

/// As the source of an ARP request the address in the target's own subnet, else the first.
fn side(interface: &Interface, target: IpAddr) -> Side {
    let own = interface.addresses.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some(*net),
        IpNet::V6(_) => None,
    });
    let near = own.clone().find(|net| matches!(target, IpAddr::V4(target) if net.contains(&target)));
    let ipv4 = near.or_else(|| own.clone().next()).map_or(Ipv4Addr::UNSPECIFIED, |net| net.addr());
    Side { ifindex: interface.ifindex, mac: interface.mac, ipv4 }
}

/// The address that the data plane lets through to the node, as it chooses it: the first one.
fn first_ipv4(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|net| match net {
        IpNet::V4(net) => Some(net.addr()),
        IpNet::V6(_) => None,
    })
}

/// The same: the first one that is not link-local. Link-local ones do not pass a function that routes.
fn first_ipv6(interface: &Interface) -> Option<Ipv6Addr> {
    interface.addresses.iter().find_map(|net| match net {
        IpNet::V6(net) if !net.addr().is_unicast_link_local() => Some(net.addr()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn interfaces() -> Interfaces {
        let interface = |ifindex: u32, addresses: &[&str]| Interface {
            mac: [2, 0, 0, 0, 0, ifindex as u8],
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..crate::apply::fake::interface(ifindex)
        };
        Interfaces(BTreeMap::from([
            ("out".to_owned(), interface(3, &["192.0.2.1/24", "fe80::3/64", "2001:db8:3::1/64"])),
            ("in".to_owned(), interface(4, &["198.51.100.1/24", "2001:db8:4::1/64"])),
        ]))
    }

    fn plan(sids: serde_json::Value) -> Vec<Watched> {
        let state = json!({"node": "n", "source_address": "fc00:0:1::1", "sids": sids});
        watched(&serde_json::from_value(state).unwrap(), &interfaces())
    }

    fn sid(number: u32, probe: serde_json::Value) -> serde_json::Value {
        json!({"sid": format!("fc00:0:1:{number:x}::"), "behaviour": "End.AS", "next_hop": "192.0.2.2",
            "proxy": {"inner": ["IPv4", "IPv6"], "to_function": "out", "from_function": "in",
                "segments": ["fc00:0:2::"], "watch": {"probe": probe}}})
    }

    #[test]
    fn sids_with_the_same_function_are_watched_once() {
        let probe = json!({"kind": "neighbour"});
        let other = json!({"kind": "neighbour", "fall": 5});
        let found = plan(json!([sid(1, probe.clone()), sid(2, probe), sid(3, other)]));
        let numbers: Vec<_> = found.iter().map(|function| function.sids.len()).collect();
        assert_eq!(numbers.iter().sum::<usize>(), 3);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_is_not_watched_is_left_out() {
        assert_eq!(plan(json!([{"sid": "fc00:0:1:1::", "behaviour": "End"}])), []);
    }

    #[test]
    fn targets_default_to_the_next_hop() {
        let legs = |probe| plan(json!([sid(1, probe)]))[0].probe.clone().unwrap().legs;
        let neighbour = legs(json!({"kind": "neighbour"})).unwrap();
        assert!(matches!(neighbour[..], [Leg::Neighbour { target, side: Side { ifindex: 3, ipv4, .. } }]
            if target.to_string() == "192.0.2.2" && ipv4.to_string() == "192.0.2.1"));
        let echo = legs(json!({"kind": "icmp", "target": "fe80::9"})).unwrap();
        assert_eq!(echo, [Leg::Echo("[fe80::9%3]:0".parse().unwrap())]);
        let tcp = legs(json!({"kind": "tcp", "port": 22})).unwrap();
        assert_eq!(tcp, [Leg::Connect("192.0.2.2:22".parse().unwrap())]);
    }

    #[test]
    fn through_goes_from_one_side_to_the_other_in_each_family() {
        let legs = |probe| plan(json!([sid(1, probe)]))[0].probe.clone().unwrap().legs;
        let ends: Vec<_> = legs(json!({"kind": "icmp", "through": true}))
            .unwrap()
            .into_iter()
            .map(|leg| match leg {
                Leg::Through { source, destination, into: 4, next: Next::Ask(_), .. } => (source, destination),
                other => panic!("{other:?}"),
            })
            .map(|(source, destination)| (source.to_string(), destination.to_string()))
            .collect();
        let expected = [("192.0.2.1", "198.51.100.1"), ("2001:db8:3::1", "2001:db8:4::1")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(ends, expected);
        let one = legs(json!({"kind": "icmp", "through": true, "target": "2001:db8:4::1"})).unwrap();
        assert_eq!(one.len(), 1);
        let wrong = legs(json!({"kind": "icmp", "through": true, "target": "2001:db8:4::2"})).unwrap_err();
        assert!(wrong.contains("198.51.100.1, 2001:db8:4::1"), "{wrong}");
    }

    #[test]
    fn a_function_of_the_node_is_one_with_both_directions_probed() {
        let sid = |sid: &str, direction: &str| {
            json!({"sid": sid, "behaviour": "End.AS", "proxy": {"function": "fw", "direction": direction, "inner": ["IPv4"],
                "segments": ["fc00:9::"], "on_failure": "bypass"}})
        };
        let watch = json!({"probe": {"kind": "icmp", "through": true}});
        let state: NodeState = serde_json::from_value(json!({
            "node": "n", "source_address": "fc00::1", "functions": {"fw": {"netns": "fw", "watch": watch}},
            "sids": [sid("fc00:2::", "reverse"), sid("fc00:1::", "forward")],
        }))
        .unwrap();
        let mut interfaces = interfaces();
        for (from, to) in [("out", "fnw-fw"), ("in", "fne-fw")] {
            let interface = interfaces.0[from].clone();
            interfaces.0.insert(to.to_owned(), interface);
        }
        let all = watched(&state, &interfaces);
        assert_eq!(all.len(), 1, "{all:#?}");
        assert_eq!(all[0].ports, ["fnw-fw", "fne-fw"]);
        assert_eq!(all[0].sids.len(), 2);
        let wiring = Wiring::of_function("fw");
        let legs = all[0].probe.as_ref().unwrap().legs.clone().unwrap();
        let ways: Vec<_> = legs
            .iter()
            .map(|leg| match leg {
                Leg::Through { side, into, next: Next::Mac(mac), destination, .. } => {
                    (side.ifindex, *into, *mac, destination.is_ipv4())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let (west, east) = (wiring.west_mac.octets(), wiring.east_mac.octets());
        assert_eq!(ways, [(3, 4, west, true), (3, 4, west, false), (4, 3, east, true), (4, 3, east, false)]);
    }
}
