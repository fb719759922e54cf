//! Functions as objects of the node: what the agent makes for a function that somebody else starts in a network namespace or a container.
//!
//! ```text
//!  node                               namespace of the function, or of its container
//!    fnw-NAME  <---- veth ---->  west    iif west: everything leaves by east
//!    fne-NAME  <---- veth ---->  east    iif east: everything leaves by west
//! ```
//!
//! Nothing is remembered here: the alias of the node's links says which function they are for and where that is, that of `west` what
//! the namespace's own settings were before. So making and removing are idempotent, and what an agent that died has begun is finished
//! by the next. While the function is not there, the far ends wait in the node, down: its ports are there and have no carrier.
//! docs/design/functions.md says why. Of virtual machines there are only the node's ends: `machine.rs`. Virtual functions of network cards
//! take the place of the far ends: `virtual_function.rs`.

mod card;
pub mod learn;
mod machine;
mod place;
pub mod report;
mod service;
mod virtual_function;
pub mod virtual_report;
pub mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_dataplane::Interfaces;
use segue_host::link::{Kind, LinkSocket, New};
use segue_host::{Namespace, sysctl};
use segue_model::node::{NodeFunction, NodeState};
use segue_model::wiring::Wiring;

use self::place::Place;
use crate::kernel::{KernelError, ROUTE_PROTOCOL};
use crate::netfilter::{self, PROBE_FROM, PROBE_TO, core_mtu, quiet, set};

/// Alias of the node's links, in front of the function's name and its place.
const ALIAS: &str = "segue function ";
/// Alias of `west` in the namespace, in front of the value that `ipv6.conf.all.forwarding` had there before.
const BEFORE: &str = "segue function; ipv6 forwarding was ";
/// In the function's namespace.
const FORWARDING: &str = "net/ipv6/conf/all/forwarding";

/// Tables and rules of the function's namespace: by which link a packet came, and where it goes.
const WAYS: [Leads; 2] = [
    Leads { from: Wiring::WEST, to: Wiring::EAST, table: 8301, priority: 101 },
    Leads { from: Wiring::EAST, to: Wiring::WEST, table: 8302, priority: 102 },
];
/// What the function sends of its own leaves by east, unless it has a default route of its own.
const LAST_METRIC: u32 = 0x7fff_ffff;
/// Gateways in the namespace: static neighbours, never asked for.
const GATEWAYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1))];
/// Source of ICMPv6 errors that the function makes, if it has no other: from the dummy prefix of RFC 9780.
const DUMMY: IpAddr = IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 8));

struct Leads {
    from: &'static str,
    to: &'static str,
    table: u32,
    priority: u32,
}

/// Attaches the functions of `state`: those that are there get their links, of others the far ends wait. Returns whether the node has got
/// new interfaces, or other ones.
///
/// # Errors
/// What the kernel refused. What has been made until then stays; [`remove`] knows it.
pub fn make(state: &NodeState, interfaces: &Interfaces) -> Result<bool, KernelError> {
    let mut changed = false;
    if state.functions.is_empty() {
        return Ok(changed);
    }
    let mut links = LinkSocket::open()?;
    let mtu = core_mtu(state, interfaces);
    changed |= virtual_function::clear(&mut links, state)?;
    for (wiring, function) in state.attached() {
        if function.vf.is_some() {
            changed |= virtual_function::make(&mut links, &wiring, function, state, mtu)?;
            continue;
        }
        if let Some(vm) = &function.vm {
            changed |= machine::make(&mut links, &wiring, vm, mtu)?;
            continue;
        }
        if let Some(service) = &function.service {
            changed |= service::make(&mut links, &wiring, service, service::is_behind_label(state, &wiring)?, mtu)?;
            continue;
        }
        let place = Place::of(function);
        let alias = alias(&wiring, &place);
        changed |= clear(&mut links, &wiring, &alias)?;
        let namespace = place.find()?;
        changed |= match &namespace {
            Some(namespace) => attach(&mut links, &wiring, namespace, &alias, mtu)?,
            None => park(&mut links, &wiring, &alias, mtu)?,
        };
        for name in [&wiring.node_west, &wiring.node_east] {
            quiet(name)?;
            links.settle(name, Some(&alias), mtu)?;
        }
        if function.watch.probe.is_some_and(|probe| probe.through) {
            for (name, addresses) in [(&wiring.node_west, PROBE_FROM), (&wiring.node_east, PROBE_TO)] {
                addresses.into_iter().try_for_each(|address| links.quiet_address(name, address))?;
            }
        }
        if let Some(namespace) = namespace {
            namespace.inside(|| lead_through(&wiring, mtu))??;
        }
    }
    Ok(changed)
}

/// Undoes what was made for functions that `state` does not have; for all without a state.
///
/// # Errors
/// What the kernel refused.
pub fn remove(state: Option<&NodeState>) -> Result<(), KernelError> {
    let mut links = LinkSocket::open()?;
    let mut wanted: Vec<(String, String)> = Vec::new();
    // Whatever virtual function they have.
    let mut begin: Vec<(String, String)> = Vec::new();
    for (wiring, function) in state.into_iter().flat_map(NodeState::attached) {
        if function.vf.is_some() {
            let begins = card::begins(&wiring, function);
            begin.extend([wiring.node_west, wiring.node_east].map(|name| (name, begins.clone())));
            continue;
        }
        match &function.vm {
            Some(vm) => wanted.extend(machine::links(&wiring, vm)),
            None if function.service.is_some() => wanted.push(service::link(&wiring)),
            None => {
                let alias = alias(&wiring, &Place::of(function));
                wanted.extend([&wiring.node_west, &wiring.node_east].map(|name| (name.clone(), alias.clone())));
            }
        }
    }
    for link in links.all()?.into_iter().filter(|link| link.alias.starts_with(ALIAS)) {
        let key = (link.name, link.alias);
        if wanted.contains(&key) {
            continue;
        }
        let (name, alias) = key;
        if begin.iter().any(|(wanted, begins)| *wanted == name && alias.starts_with(begins)) {
            continue;
        }
        if machine::is_device(&alias) {
            machine::release(&mut links, &name)?;
            continue;
        }
        undo(&alias)?;
        links.delete(&name)?;
    }
    Ok(())
}

/// Whether a function is there that has not got its links: it has come since, or come again.
pub fn has_come(state: &NodeState) -> bool {
    let is_waiting = |(wiring, function): (Wiring, &NodeFunction)| {
        if function.vf.is_some() {
            return virtual_function::has_come(&wiring, function, state).unwrap_or(false);
        }
        if let Some(vm) = &function.vm {
            return machine::has_come(&wiring, vm).unwrap_or(false);
        }
        if function.service.is_some() {
            return service::is_gone(&wiring);
        }
        let Ok(Some(namespace)) = Place::of(function).find() else { return false };
        let west = namespace.inside(|| LinkSocket::open()?.find(Wiring::WEST));
        !matches!(west, Ok(Ok(Some(link))) if link.alias.starts_with(BEFORE))
    };
    state.attached().any(is_waiting)
}

fn alias(wiring: &Wiring, place: &Place) -> String {
    format!("{ALIAS}{} {place}", wiring.namespace)
}

fn of_machine(wiring: &Wiring, how: &str) -> String {
    format!("{} {how}", alias(wiring, &Place::Machine))
}

/// Links of the function's names that lead elsewhere: those of the agent go, with what they brought; others are somebody's.
fn clear(links: &mut LinkSocket, wiring: &Wiring, alias: &str) -> Result<bool, KernelError> {
    let mut changed = false;
    for name in [&wiring.node_west, &wiring.node_east] {
        match links.find(name)? {
            Some(link) if link.alias == alias => {}
            Some(link) if link.alias.starts_with(ALIAS) => {
                undo(&link.alias)?;
                links.delete(name)?;
                changed = true;
            }
            Some(_) => return Err(netfilter::taken(name, "give the function another name")),
            None => {}
        }
    }
    Ok(changed)
}

/// Names of the far ends while they wait.
fn waiting(wiring: &Wiring) -> [String; 2] {
    [&wiring.node_west, &wiring.node_east].map(|name| name.replacen("fn", "fp", 1))
}

fn park(links: &mut LinkSocket, wiring: &Wiring, alias: &str, mtu: u32) -> Result<bool, KernelError> {
    let [west, east] = waiting(wiring);
    let there = |links: &mut LinkSocket, near: &str, far: &str| -> Result<bool, KernelError> {
        Ok(links.find(near)?.is_some() && links.find(far)?.is_some())
    };
    if there(links, &wiring.node_west, &west)? && there(links, &wiring.node_east, &east)? {
        return Ok(false);
    }
    tracing::info!(function = wiring.namespace, "is not there: its links wait for it");
    pairs(links, wiring, [&west, &east], None, alias, mtu)?;
    Ok(true)
}

fn attach(
    links: &mut LinkSocket,
    wiring: &Wiring,
    namespace: &Namespace,
    alias: &str,
    mtu: u32,
) -> Result<bool, KernelError> {
    let inside = namespace.inside(|| -> Result<bool, KernelError> {
        let mut links = LinkSocket::open()?;
        let [west, east] = [links.find(Wiring::WEST)?, links.find(Wiring::EAST)?];
        Ok(west.is_some_and(|link| link.alias.starts_with(BEFORE)) && east.is_some())
    })??;
    if inside && links.find(&wiring.node_west)?.is_some() && links.find(&wiring.node_east)?.is_some() {
        return Ok(false);
    }
    tracing::info!(function = wiring.namespace, "is there: it gets its links");
    pairs(links, wiring, [Wiring::WEST, Wiring::EAST], Some(namespace), alias, mtu)?;
    let before = namespace.inside(|| -> Result<(), KernelError> {
        let was = sysctl::get(FORWARDING)?.unwrap_or_default();
        Ok(LinkSocket::open()?.alias(Wiring::WEST, &format!("{BEFORE}{was}"))?)
    });
    before??;
    Ok(true)
}

/// Makes both pairs anew.
fn pairs(
    links: &mut LinkSocket,
    wiring: &Wiring,
    [west, east]: [&str; 2],
    namespace: Option<&Namespace>,
    alias: &str,
    mtu: u32,
) -> Result<(), KernelError> {
    for (name, mac, far, far_mac) in [
        (&wiring.node_west, wiring.node_west_mac, west, wiring.west_mac),
        (&wiring.node_east, wiring.node_east_mac, east, wiring.east_mac),
    ] {
        // What waits goes with it.
        links.delete(name)?;
        let (near, far) = (New::named(name, mac.octets(), mtu), New::named(far, far_mac.octets(), mtu));
        links.add(&near, alias, Kind::Veth { peer: &far, namespace })?;
    }
    Ok(())
}

/// Inside the function's namespace: from west to east, and back.
fn lead_through(wiring: &Wiring, mtu: u32) -> Result<(), KernelError> {
    let mut links = LinkSocket::open()?;
    // Without an address the kernel has no table of its own ones, and takes no gateway: one for broadcasts, it thinks.
    links.settle("lo", None, 0)?;
    set("ipv6/conf/all/forwarding", "1")?;
    let loose = sysctl::get("net/ipv4/conf/all/rp_filter")?.is_some_and(|value| value != "0");
    for interface in [Wiring::WEST, Wiring::EAST] {
        for (name, value) in [
            ("ipv4/conf/{}/forwarding", "1"),
            ("ipv4/conf/{}/rp_filter", if loose { "2" } else { "0" }),
            // What it masqueraded comes again when a chain visits it twice.
            ("ipv4/conf/{}/accept_local", "1"),
            ("ipv4/conf/{}/send_redirects", "0"),
            ("ipv6/conf/{}/accept_ra", "0"),
            ("ipv6/conf/{}/accept_dad", "0"),
            ("ipv6/conf/{}/addr_gen_mode", "1"),
        ] {
            set(&name.replace("{}", interface), value)?;
        }
        links.settle(interface, None, mtu)?;
    }
    links.quiet_address(Wiring::EAST, DUMMY)?;
    for Leads { from, to, table, priority } in WAYS {
        let mac = if to == Wiring::EAST { wiring.node_east_mac } else { wiring.node_west_mac };
        for gateway in GATEWAYS {
            links.neighbour(to, gateway, mac.octets())?;
            links.default_route_in(to, gateway, ROUTE_PROTOCOL, table, 0)?;
            links.rule(from, gateway.is_ipv6(), table, priority, ROUTE_PROTOCOL)?;
        }
    }
    for gateway in GATEWAYS {
        links.default_route_in(Wiring::EAST, gateway, ROUTE_PROTOCOL, MAIN, LAST_METRIC)?;
    }
    Ok(())
}

/// Table `main`.
const MAIN: u32 = 254;

/// Puts a function's namespace back to what it was; its links go with the node's ends, or, if they are virtual functions of a card, home.
fn undo(alias: &str) -> Result<(), KernelError> {
    service::remove(alias)?;
    let place =
        alias.strip_prefix(ALIAS).and_then(|rest| rest.split_once(' ')).and_then(|(_, place)| Place::read(place));
    if let Some(namespace) = place.as_ref().map(Place::find).transpose()?.flatten() {
        namespace.inside(lead_no_more)??;
    }
    virtual_function::give_back(alias, place.as_ref())
}

/// Undoes what [`lead_through`] has made that does not go with the links.
fn lead_no_more() -> Result<(), KernelError> {
    let mut links = LinkSocket::open()?;
    let Some(west) = links.find(Wiring::WEST)? else { return Ok(()) };
    let Some(was) = west.alias.strip_prefix(BEFORE) else { return Ok(()) };
    if was == "0" {
        sysctl::set(FORWARDING, "0")?;
    }
    for Leads { from, table, priority, .. } in WAYS {
        for ipv6 in [false, true] {
            links.without_rule(from, ipv6, table, priority, ROUTE_PROTOCOL)?;
        }
    }
    Ok(())
}
