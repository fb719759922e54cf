//! From a node's desired state to what the kernel should hold. Pure: no kernel is asked.
//!
//! A SID gets the kernel's `seg6local` route where that does the same as the behaviour, or less (it drops what it does
//! not know); never where it would do something else with a packet. All others get a blackhole route.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::Ipv6Net;
use segue_dataplane::Interfaces;
use segue_model::node::{Behaviour, Flavour, HeadendMode, NodeState, OnFailure, Policy, PortRole, Sid};

use super::{LocalAction, RouteTarget, SidRoute};

/// Table `main`.
const TABLE_MAIN: u32 = 254;

/// The routes of all SIDs and binding SIDs, each once.
pub fn routes(state: &NodeState, links: &Interfaces) -> Vec<SidRoute> {
    let device = device(state, links);
    let mut routes = BTreeMap::<Ipv6Net, RouteTarget>::new();
    let policies = policies(state);
    for sid in &state.sids {
        routes.insert(sid.sid.trunc(), target(sid_action(sid, &policies, links), device));
    }
    for policy in &state.policies {
        let Some(sid) = policy.binding_sid else { continue };
        routes.entry(Ipv6Net::from(sid)).or_insert_with(|| target(binding_action(policy), device));
    }
    routes.into_iter().map(|(prefix, target)| SidRoute { prefix, target }).collect()
}

/// As [`routes`], of these SIDs only.
pub fn routes_of(state: &NodeState, links: &Interfaces, sids: &BTreeSet<Ipv6Net>) -> Vec<SidRoute> {
    if sids.is_empty() {
        return Vec::new();
    }
    let policies = policies(state);
    let device = device(state, links);
    let wanted = state.sids.iter().filter(|sid| sids.contains(&sid.sid.trunc()));
    wanted
        .map(|sid| SidRoute { prefix: sid.sid.trunc(), target: target(sid_action(sid, &policies, links), device) })
        .collect()
}

fn target(action: Option<LocalAction>, device: Option<u32>) -> RouteTarget {
    match (action, device) {
        (Some(action), Some(device)) => RouteTarget::Seg6Local { action, device },
        _ => RouteTarget::Blackhole,
    }
}

fn policies(state: &NodeState) -> HashMap<&str, &Policy> {
    state.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect()
}

/// SIDs whose routes are not to be there: their functions are down, and the operator chose `on_failure: withdraw`.
pub fn withdrawn(state: &NodeState, down: &BTreeSet<Ipv6Net>) -> BTreeSet<Ipv6Net> {
    let withdraws = state.sids.iter().filter(|sid| sid.on_failure() == OnFailure::Withdraw);
    withdraws.map(|sid| sid.sid.trunc()).filter(|sid| down.contains(sid)).collect()
}

/// As [`routes`], without those of failed functions that [`withdrawn`] names. `down` are the SIDs whose functions are down.
pub fn routes_while_down(state: &NodeState, links: &Interfaces, down: &BTreeSet<Ipv6Net>) -> Vec<SidRoute> {
    let gone = withdrawn(state, down);
    routes(state, links).into_iter().filter(|route| !gone.contains(&route.prefix)).collect()
}

/// The device that seg6local routes name: the kernel drops the route with it, so one that is up, towards the domain if
/// there is one.
pub fn device(state: &NodeState, links: &Interfaces) -> Option<u32> {
    let rank = |role| match role {
        PortRole::Core => 0,
        PortRole::Access => 1,
        PortRole::Service => 2,
    };
    let up = state.ports.iter().filter_map(|port| Some((rank(port.role), links.get(&port.name)?)));
    up.filter(|(_, link)| link.up).min_by_key(|(rank, _)| *rank).map(|(_, link)| link.ifindex)
}

fn sid_action(sid: &Sid, policies: &HashMap<&str, &Policy>, links: &Interfaces) -> Option<LocalAction> {
    let has = |flavour| sid.flavours.contains(&flavour);
    let table = sid.table.unwrap_or(TABLE_MAIN);
    match sid.behaviour {
        // The kernel's End drops at Segments Left 0, where USP and USD would go on: less, but nothing else.
        Behaviour::End => Some(LocalAction::End { psp: has(Flavour::Psp) }),
        // The kernel has no PSP for these two: it would leave the SRH on.
        Behaviour::EndX if !has(Flavour::Psp) => Some(LocalAction::EndX { next_hop: global(sid.next_hop)? }),
        Behaviour::EndT if !has(Flavour::Psp) => Some(LocalAction::EndT { table }),
        Behaviour::EndDx2 => Some(LocalAction::EndDx2 { oif: links.get(sid.port.as_deref()?)?.ifindex }),
        Behaviour::EndDx4 => Some(LocalAction::EndDx4 {
            next_hop: match sid.next_hop {
                None => Ipv4Addr::UNSPECIFIED,
                Some(IpAddr::V4(next_hop)) => next_hop,
                Some(IpAddr::V6(_)) => return None,
            },
        }),
        Behaviour::EndDx6 => Some(LocalAction::EndDx6 {
            next_hop: match sid.next_hop {
                None => Ipv6Addr::UNSPECIFIED,
                next_hop => global(next_hop)?,
            },
        }),
        Behaviour::EndDt6 => Some(LocalAction::EndDt6 { table }),
        Behaviour::EndB6Encaps => encapsulation(policies.get(sid.policy.as_deref()?)?),
        // End.DT4 and End.DT46 need a VRF device; the rest the kernel does not have.
        Behaviour::EndX
        | Behaviour::EndT
        | Behaviour::EndDt4
        | Behaviour::EndDt46
        | Behaviour::EndB6EncapsRed
        | Behaviour::EndBm
        | Behaviour::EndDtm
        | Behaviour::EndAs
        | Behaviour::EndAd
        | Behaviour::EndAm
        | Behaviour::EndAn
        | Behaviour::EndAnNf => None,
    }
}

fn binding_action(policy: &Policy) -> Option<LocalAction> {
    (policy.mode == HeadendMode::HEncaps).then(|| encapsulation(policy)).flatten()
}

/// The kernel's End.B6.Encaps has one list only.
fn encapsulation(policy: &Policy) -> Option<LocalAction> {
    match policy.segment_lists.as_slice() {
        [list] if !list.segments.is_empty() => Some(LocalAction::EndB6Encaps { segments: list.segments.clone() }),
        _ => None,
    }
}

/// An IPv6 next hop that needs no interface beside it, which kernels before 7.2 cannot be told.
fn global(next_hop: Option<IpAddr>) -> Option<Ipv6Addr> {
    match next_hop {
        Some(IpAddr::V6(address)) if !address.is_unicast_link_local() => Some(address),
        _ => None,
    }
}

/// Sysctls that forwarding needs, with the value each should have.
pub fn sysctls(state: &NodeState) -> Vec<(String, &'static str)> {
    let mut wanted = vec![("net/ipv6/conf/all/forwarding".to_owned(), "1"), ("net/ipv4/ip_forward".to_owned(), "1")];
    let hmac: Vec<_> = state.ports.iter().filter(|port| port.accept_hmac).collect();
    if !hmac.is_empty() {
        // The effective value is that of `all` and of the interface together.
        wanted.push(("net/ipv6/conf/all/seg6_enabled".to_owned(), "1"));
    }
    for port in hmac {
        wanted.push((format!("net/ipv6/conf/{}/seg6_enabled", port.name), "1"));
        wanted.push((format!("net/ipv6/conf/{}/seg6_require_hmac", port.name), "1"));
    }
    wanted
}

/// Addresses whose neighbours the data plane needs: next hops of SIDs and labels, other ends of their tunnels, and first segments of policies and proxies.
pub fn next_hops(state: &NodeState) -> Vec<IpAddr> {
    let sids = state.sids.iter().filter_map(|sid| sid.next_hop);
    let lists = state.policies.iter().flat_map(|policy| &policy.segment_lists).filter_map(|list| list.segments.first());
    let proxies = state.sids.iter().filter_map(|sid| sid.proxy.as_ref()?.segments.first());
    let paths = state.labels.iter().flat_map(|label| label.paths.iter().map(|path| path.next_hop));
    let labels = state.labels.iter().filter_map(|label| label.next_hop).chain(paths);
    let pushes = state.policies.iter().flat_map(|policy| &policy.segment_lists).filter_map(|list| list.next_hop);
    let tunnels = state.labels.iter().filter_map(|label| label.udp.as_ref());
    let lists_udp = state.policies.iter().flat_map(|policy| &policy.segment_lists).filter_map(|list| list.udp.as_ref());
    let tunnels = tunnels.chain(lists_udp).map(|udp| udp.destination);
    let given = sids.chain(labels).chain(pushes).chain(tunnels);
    let mut all: Vec<IpAddr> = given.chain(lists.chain(proxies).map(|segment| IpAddr::V6(*segment))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_dead_functions_go_where_the_operator_says_so() {
        let sid = |sid: &str, on_failure: &str| {
            serde_json::json!({ "sid": sid, "behaviour": "End.AM", "next_hop_mac": "02:00:00:00:00:01", "proxy":
                { "to_function": "w", "from_function": "e", "on_failure": on_failure, "watch": {} } })
        };
        let state: NodeState = serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "sids": [sid("fc00:1:a::", "withdraw"), sid("fc00:1:b::", "drop"), sid("fc00:1:c::/64", "withdraw")],
        }))
        .unwrap();
        let shown = |down: &[&str]| -> Vec<String> {
            let down = down.iter().map(|sid| sid.parse().unwrap()).collect();
            let routes = routes_while_down(&state, &Interfaces::default(), &down);
            routes.iter().map(|route| route.prefix.to_string()).collect()
        };
        assert_eq!(shown(&[]), ["fc00:1:a::/128", "fc00:1:b::/128", "fc00:1:c::/64"]);
        assert_eq!(shown(&["fc00:1:b::/128", "fc00:1:c::/64"]), ["fc00:1:a::/128", "fc00:1:b::/128"]);
    }
}
