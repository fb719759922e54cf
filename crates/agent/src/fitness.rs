//! Whether a desired state fits what the node has: checks that cost no packet. Pure: the facts are brought along. `segue doctor` tells all
//! of it, and every apply what is wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use segue_api::doctor::{Check, Finding};
use segue_dataplane::Interfaces;
use segue_model::node::{Behaviour, HeadendMode, NodeState, Policy, PortRole, SegmentList};

/// What every IPv6 link must carry (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;
/// What hosts send, unless somebody has told them otherwise.
const USUAL_MTU: u32 = 1500;
/// Routing tables that are always there: unspecified, `default`, `main`, `local`.
const USUAL_TABLES: [u32; 4] = [0, 253, 254, 255];

/// Warnings of one apply.
const WARNINGS_MAX: usize = 20;

/// What an operator should know about a state that is applied: what is wrong, as far as that costs no packet. `tables`: those that are
/// there, of [`named_tables`].
pub fn warnings(wanted: &NodeState, links: &Interfaces, tables: &BTreeSet<u32>) -> Vec<String> {
    let checks = [self::tables(wanted, tables), addresses(wanted, links), sids(wanted)];
    let wrong: Vec<Check> = checks.into_iter().flatten().filter(|check| check.result == Finding::Wrong).collect();
    let told =
        wrong.iter().take(WARNINGS_MAX).map(|check| format!("{}: {}; {}", check.about, check.reason, check.remedy));
    let more = wrong.len().checked_sub(WARNINGS_MAX).filter(|more| *more > 0);
    told.chain(more.map(|more| format!("{more} more of this kind; `segue doctor` lists all"))).collect()
}

/// The tables that SIDs name, beside the usual ones.
pub fn named_tables(state: &NodeState) -> BTreeSet<u32> {
    state.sids.iter().filter_map(|sid| sid.table).filter(|table| !USUAL_TABLES.contains(table)).collect()
}

/// Tables that SIDs name: an empty one drops all that is decapsulated into it. `known`: those with a route, a rule or a VRF.
pub fn tables(state: &NodeState, known: &BTreeSet<u32>) -> Vec<Check> {
    let named = state.sids.iter().enumerate().filter_map(|(position, sid)| Some((position, sid, sid.table?)));
    let named = named.filter(|(.., table)| !USUAL_TABLES.contains(table));
    let check = |(position, sid, table): (usize, &segue_model::node::Sid, u32)| {
        let about = format!("sids[{position}].table");
        let name = sid.behaviour.name();
        if known.contains(&table) {
            return Check::ok(
                "table",
                about,
                format!("{name} {} looks in table {table}, which is there", sid.sid.addr()),
            );
        }
        let reason = format!(
            "{name} {} looks in routing table {table}, which has no route, no rule and no VRF: its packets find no way",
            sid.sid.addr()
        );
        let remedy = format!(
            "`ip -6 route add PREFIX via GATEWAY table {table}` (and `ip route` for IPv4), or correct the number"
        );
        Check::wrong("table", about, reason, remedy)
    };
    named.map(check).collect()
}

/// Addresses that the node puts into packets as their source: answers and errors must find their way back.
pub fn addresses(state: &NodeState, links: &Interfaces) -> Vec<Check> {
    let mut named = vec![("source_address".to_owned(), IpAddr::V6(state.source_address))];
    named.extend(state.source_address_ipv4.map(|address| ("source_address_ipv4".to_owned(), IpAddr::V4(address))));
    for (position, policy) in state.policies.iter().enumerate() {
        let address = policy.source_address.filter(|address| *address != state.source_address);
        named.extend(address.map(|address| (format!("policies[{position}].source_address"), IpAddr::V6(address))));
    }
    for (position, sid) in state.sids.iter().enumerate() {
        let address = sid.proxy.as_ref().and_then(|proxy| proxy.source_address);
        let address = address.filter(|address| *address != state.source_address);
        named.extend(address.map(|address| (format!("sids[{position}].proxy.source_address"), IpAddr::V6(address))));
    }
    let owned: BTreeMap<IpAddr, &str> = links
        .0
        .iter()
        .flat_map(|(name, link)| link.addresses.iter().map(move |address| (address.addr(), name.as_str())))
        .collect();
    let check = |(key, address): (String, IpAddr)| match (owned.get(&address), address) {
        (Some(name), _) => Check::ok("address", key, format!("{address} is an address of {name}")),
        // 192.0.0.0/24 (RFC 6890) is for just that.
        (None, IpAddr::V4(special)) if special.octets()[..3] == [192, 0, 0] => {
            Check::ok("address", key, format!("{address} is nobody's, on purpose"))
        }
        (None, _) => {
            let length = if address.is_ipv6() { 128 } else { 32 };
            let reason = format!(
                "no interface has {address}: errors about what the node sends with it, and answers to it, get lost"
            );
            Check::wrong(
                "address",
                key,
                reason,
                format!("`ip address add {address}/{length} dev lo`, or correct the address"),
            )
        }
    };
    named.into_iter().map(check).collect()
}

/// SIDs that are hidden in part by others, or that nothing guards or leads to.
pub fn sids(state: &NodeState) -> Vec<Check> {
    let local = state.sids.iter().enumerate().map(|(position, sid)| (format!("sids[{position}].sid"), sid.sid.trunc()));
    let binding = state.policies.iter().enumerate().filter_map(|(position, policy)| {
        Some((format!("policies[{position}].binding_sid"), Ipv6Net::from(policy.binding_sid?)))
    });
    let all: Vec<(String, Ipv6Net)> = local.chain(binding).collect();
    let by_prefix: HashMap<Ipv6Net, &str> = all.iter().map(|(key, sid)| (*sid, key.as_str())).collect();
    // There may be 100,000 SIDs, and few lengths.
    let lengths: BTreeSet<u8> = all.iter().map(|(_, sid)| sid.prefix_len()).collect();
    let mut checks = Vec::new();
    for (key, sid) in &all {
        let around = lengths.range(..sid.prefix_len()).rev().find_map(|length| {
            let wider = Ipv6Net::new(sid.addr(), *length).ok()?.trunc();
            by_prefix.get(&wider).map(|key| (wider, *key))
        });
        if let Some((wider, other)) = around {
            let reason =
                format!("{sid} lies inside {wider} ({other}): what it names never reaches that one as an argument");
            let remedy = format!("choose a SID outside of {wider}, or give {other} a longer prefix");
            checks.push(Check::wrong("sid", key.clone(), reason, remedy));
        }
        if let Some(locator) = state.locator.filter(|locator| !locator.contains(sid)) {
            let reason =
                format!("{sid} lies outside of the locator {locator}: other nodes reach it behind another SID only");
            checks.push(Check::note(
                "sid",
                key.clone(),
                reason,
                "advertise a route to it, or choose a SID in the locator",
            ));
        }
        let blocks = &state.domain.sid_blocks;
        let in_block = sid.addr().segments()[0] == 0x5f00 || blocks.iter().any(|block| block.contains(sid));
        if !in_block {
            let reason = format!("{sid} lies in no SID block: boundaries of the domain do not guard it");
            checks.push(Check::note("sid", key.clone(), reason, "add its block to `domain.sid_blocks` on all nodes"));
        }
    }
    if checks.is_empty() && !all.is_empty() {
        let reason = format!("{} SIDs, none inside another, all guarded", all.len());
        checks.push(Check::ok("sid", "sids", reason));
    }
    checks
}

/// Octets that a policy puts in front of a packet (RFC 8986 section 5): outer IPv6 header, SRH, and the frame's header where it
/// carries frames.
pub fn overhead(mode: HeadendMode, list: &SegmentList) -> u32 {
    let segments = u32::try_from(list.segments.len()).unwrap_or(u32::MAX);
    let srh = |segments: u32| if segments == 0 { 0 } else { 8 + 16 * segments };
    match mode {
        HeadendMode::HEncaps => 40 + srh(segments),
        HeadendMode::HEncapsRed => 40 + srh(segments.saturating_sub(1)),
        HeadendMode::HEncapsL2 => 40 + srh(segments) + 14,
        HeadendMode::HEncapsL2Red => 40 + srh(segments.saturating_sub(1)) + 14,
        // The packet's own destination is one segment more.
        HeadendMode::HInsert => srh(segments.saturating_add(1)),
        HeadendMode::Push => u32::try_from(mode.overhead(list.labels.len())).unwrap_or(u32::MAX),
    }
}

/// The link by which packets of a policy leave: its name and MTU.
pub type Egress = BTreeMap<Ipv6Addr, (String, u32)>;

/// Whether what hosts send still fits the link that leads to the first segment, with what the policy puts in front of it.
pub fn mtu(state: &NodeState, links: &Interfaces, egress: &Egress) -> Vec<Check> {
    let access = state.ports.iter().filter(|port| port.role == PortRole::Access);
    let sent = access.filter_map(|port| Some(links.get(&port.name)?.mtu)).max().unwrap_or(USUAL_MTU);
    let of_policy = |(position, policy): (usize, &Policy)| {
        let lists = policy.segment_lists.iter().enumerate();
        let worst = lists.filter_map(|(list, segments)| {
            let (name, mtu) = egress.get(segments.segments.first()?)?;
            let overhead = overhead(policy.mode, segments);
            Some((mtu.saturating_sub(overhead), list, name, mtu, overhead))
        });
        let (room, list, name, mtu, overhead) = worst.min()?;
        let about = format!("policies[{position}].segment_lists[{list}]");
        let reason =
            format!("{name} carries {mtu} octets and {} puts {overhead} in front: {room} are left", policy.name);
        let wanted = sent + overhead;
        Some(if room < LEAST_MTU {
            let reason = format!("{reason}, and IPv6 wants {LEAST_MTU}");
            Check::wrong(
                "mtu",
                about,
                reason,
                format!("`ip link set {name} mtu {wanted}` at both ends, or use fewer segments"),
            )
        } else if room < sent {
            let reason =
                format!("{reason}, of {sent} that come in: larger packets are answered with the MTU that fits");
            Check::note(
                "mtu",
                about,
                reason,
                format!("`ip link set {name} mtu {wanted}` at both ends of the domain's links"),
            )
        } else {
            Check::ok("mtu", about, reason)
        })
    };
    state.policies.iter().enumerate().filter_map(of_policy).collect()
}

/// Ports that are not there, are down, or are not what proxies need.
pub fn ports(state: &NodeState, links: &Interfaces) -> Vec<Check> {
    let check = |(position, port): (usize, &segue_model::node::Port)| {
        let about = format!("ports[{position}]");
        match links.get(&port.name) {
            None => {
                let reason = format!("there is no interface {}", port.name);
                Check::wrong("port", about, reason, "make it, or take the port out; it is taken up when it comes")
            }
            Some(link) if !link.up => {
                let reason = format!("{} is down, or has no carrier", port.name);
                Check::wrong("port", about, reason, format!("`ip link set {} up`, and look at its far end", port.name))
            }
            Some(link) => Check::ok("port", about, format!("{} is up, MTU {}", port.name, link.mtu)),
        }
    };
    state.ports.iter().enumerate().map(check).collect()
}

/// Functions that nobody watches: if one dies, packets to it vanish.
pub fn unwatched(state: &NodeState) -> Vec<Check> {
    let functions = state.sids.iter().enumerate().filter(|(_, sid)| {
        let has_function = sid.proxy.is_some() || sid.netfilter.is_some();
        has_function && sid.behaviour != Behaviour::End && state.watch_of(sid).is_none()
    });
    let check = |(position, sid): (usize, &segue_model::node::Sid)| {
        let reason = format!("the function behind {} is not watched: nobody sees when it is dead", sid.sid.addr());
        Check::note(
            "function",
            format!("sids[{position}]"),
            reason,
            "add `watch: {probe: {kind: icmp, through: true}}`",
        )
    };
    let labels = state.labels.iter().enumerate().filter_map(|(position, label)| {
        let service = label.service().filter(|service| service.firewall.is_none())?;
        state.watch_of(&service).is_none().then(|| {
            let reason =
                format!("the function behind the label {} is not watched: nobody sees when it is dead", label.label);
            let remedy = "add `watch: {probe: {kind: icmp, through: true}}`";
            Check::note("function", format!("labels[{position}]"), reason, remedy)
        })
    });
    functions.map(check).chain(labels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(more: &str) -> NodeState {
        let text = format!("{{node: n, source_address: 'fc00:0:1::1', domain: {{sid_blocks: ['fc00::/32']}}, {more}}}");
        segue_model::load::load_node_state(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn found(checks: &[Check]) -> Vec<(Finding, &str)> {
        checks.iter().map(|check| (check.result, check.about.as_str())).collect()
    }

    fn links(addresses: &[&str], mtu: u32) -> Interfaces {
        let mut interface = crate::apply::fake::interface(2);
        interface.addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        interface.mtu = mtu;
        Interfaces([("eth0".to_owned(), interface)].into())
    }

    #[test]
    fn a_table_that_is_not_there_is_wrong() {
        let state = state(
            "sids: [{sid: 'fc00:0:1:a::', behaviour: End.DT4, table: 100}, {sid: 'fc00:0:1:b::', behaviour: End.DT6}, \
             {sid: 'fc00:0:1:c::', behaviour: End.DT46, table: 200}, {sid: 'fc00:0:1:d::', behaviour: End.T, table: 254}]",
        );
        assert_eq!(named_tables(&state), [100, 200].into());
        let checks = tables(&state, &[200].into());
        assert_eq!(found(&checks), [(Finding::Wrong, "sids[0].table"), (Finding::Ok, "sids[2].table")]);
        assert!(checks[0].reason.contains("table 100") && checks[0].remedy.contains("table 100"));
    }

    #[test]
    fn an_address_that_nobody_has_is_wrong() {
        let state = state(
            "source_address_ipv4: 192.0.2.1, policies: [{name: p, source_address: 'fc00:0:1::2', segment_lists: []}]",
        );
        let checks = addresses(&state, &links(&["fc00:0:1::1/128", "192.0.2.9/24"], 1500));
        let wanted = [
            (Finding::Ok, "source_address"),
            (Finding::Wrong, "source_address_ipv4"),
            (Finding::Wrong, "policies[0].source_address"),
        ];
        assert_eq!(found(&checks), wanted);
        assert_eq!(checks[2].remedy, "`ip address add fc00:0:1::2/128 dev lo`, or correct the address");
    }

    #[test]
    fn a_sid_inside_another_is_wrong_and_one_outside_of_all_is_noted() {
        let inside =
            state("sids: [{sid: 'fc00:0:1:a::/64', behaviour: End}, {sid: 'fc00:0:1:a::1', behaviour: End.DT46}]");
        assert_eq!(found(&sids(&inside)), [(Finding::Wrong, "sids[1].sid")]);
        let outside =
            state("locator: 'fc00:0:1::/48', sids: [{sid: 'fc01:0:1:a::', behaviour: End, outside_locator: true}]");
        assert_eq!(found(&sids(&outside)), [(Finding::Note, "sids[0].sid"), (Finding::Note, "sids[0].sid")]);
        let fine = state("sids: [{sid: 'fc00:0:1:a::/64', behaviour: End}, {sid: 'fc00:0:1:b::', behaviour: End}]");
        assert_eq!(found(&sids(&fine)), [(Finding::Ok, "sids")]);
    }

    #[test]
    fn overheads_are_those_of_the_standard() {
        let list = |count: u16| {
            let segments = (0..count).map(|number| Ipv6Addr::new(0xfc00, number, 0, 0, 0, 0, 0, 0)).collect();
            SegmentList { labels: (16..16 + u32::from(count)).collect(), ..SegmentList::of_sids(1, segments) }
        };
        let of = |mode| [1, 2, 3].map(|count| overhead(mode, &list(count)));
        assert_eq!(of(HeadendMode::HEncaps), [64, 80, 96]);
        assert_eq!(of(HeadendMode::HEncapsRed), [40, 64, 80]);
        assert_eq!(of(HeadendMode::HEncapsL2), [78, 94, 110]);
        assert_eq!(of(HeadendMode::HEncapsL2Red), [54, 78, 94]);
        assert_eq!(of(HeadendMode::HInsert), [40, 56, 72]);
        assert_eq!(of(HeadendMode::Push), [4, 8, 12]);
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_mtu_that_would() {
        let state =
            state("policies: [{name: p, mode: H.Encaps, segment_lists: [{segments: ['fc00:0:2::1', 'fc00:0:3::1']}]}]");
        let with = |mtu: u32| {
            let egress = [("fc00:0:2::1".parse().unwrap(), ("eth0".to_owned(), mtu))].into();
            super::mtu(&state, &links(&[], mtu), &egress)
        };
        assert_eq!(found(&with(9000)), [(Finding::Ok, "policies[0].segment_lists[0]")]);
        let tight = with(1500);
        assert_eq!(tight[0].result, Finding::Note);
        assert!(tight[0].reason.contains("1420 are left") && tight[0].remedy.contains("mtu 1580"), "{tight:?}");
        assert_eq!(with(1580)[0].result, Finding::Ok);
        assert_eq!(with(1359)[0].result, Finding::Wrong, "1279 are left");
        assert_eq!(with(1360)[0].result, Finding::Note, "1280 are left");
        assert_eq!(super::mtu(&state, &links(&[], 1500), &Egress::new()), [], "no way there: told as that");
    }
}
