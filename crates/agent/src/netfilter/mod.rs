//! What the agent makes for functions on the kernel's path: the network namespaces of End.AN.NF SIDs with the links into
//! them, and the veth pair by which the TC programs give packets to the next segment of the same node.
//!
//! ```text
//!  node                                  namespace of the function
//!    nfw-NAME  <---- veth ---->  west      packets go in: TC puts them straight into west
//!    nfe-NAME  <-- macvlan ----  east      packets come out: TC on nfe-NAME's egress meets them, without another queue
//!              <---- veth ---->  east0     nfe-NAME needs a link to be up; nothing is said over it
//!    segue-loop0 <- veth -> segue-loop1    in the node itself
//! ```
//!
//! And beside them the pair for buffers that are to get labels or go on as whole frames: [`cut`].
//!
//! Everything in the namespace leads from west to east: there is one default route for each family, static neighbours and
//! no address but a dummy one that is not local, so that no inner destination is a local one. What was made is known again by the alias of
//! the node's link (`ip link show`), so that nothing has to be remembered: making and removing are idempotent, and what an
//! agent that died has begun is finished by the next.

mod cut;

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_dataplane::{Hook, Interface, Interfaces, needs_cut};
use segue_host::device::DeviceSocket;
use segue_host::link::{Kind, LinkSocket, New};
use segue_host::{Namespace, sysctl};
use segue_model::node::{NodeState, PortRole};
use segue_model::proxy::{LOOP_IN, LOOP_OUT};
use segue_model::value::MacAddress;
use segue_model::wiring::Wiring;

use crate::kernel::{KernelError, ROUTE_PROTOCOL};
use crate::mode;

/// Alias of what was made for a namespace, in front of its name.
const ALIAS: &str = "segue netfilter ";
/// Alias of the loop.
const ALIAS_LOOP: &str = "segue loop";
/// Alias of the loopback device in a namespace that the agent made.
const ALIAS_NAMESPACE: &str = "segue namespace";

/// The address that the namespace had once as the source of ICMP errors. The kernel takes it by itself where there is none (RFC
/// 7600), and packets to it are not the namespace's.
const DUMMY_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// Source of ICMPv6 errors that the namespace makes: from the dummy prefix of RFC 9780.
const DUMMY_IPV6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 8);
/// Gateways in the namespace: static neighbours, never asked for.
const GATEWAY_IPV4: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);
const GATEWAY_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The far end of the link that only keeps `nfe-NAME` up.
const IDLE: &str = "east0";

/// Link-layer address of [`LOOP_OUT`]: `LOOP_MAC_HIGH` and `LOOP_MAC_LOW` of bpf/lib/kernel/leave.h.
const LOOP_OUT_MAC: MacAddress = MacAddress([0x02, 0x5e, 0x65, 0x67, 0x00, 0x01]);
const LOOP_IN_MAC: MacAddress = MacAddress([0x02, 0x5e, 0x65, 0x67, 0x00, 0x02]);

/// MTU if no core port has one.
const MTU: u32 = 1500;

/// Makes what `state` needs and what is not there, or only what these namespaces need and the loop. Returns whether the node has got
/// new interfaces, or other ones.
///
/// # Errors
/// What the kernel refused. What has been made until then stays; [`remove`] knows it.
pub fn make(state: &NodeState, interfaces: &Interfaces, only: Option<&BTreeSet<String>>) -> Result<bool, KernelError> {
    let mut wirings = state.wirings();
    wirings.retain(|wiring| only.is_none_or(|only| only.contains(&wiring.namespace)));
    let needs_cut = needs_cut(state, interfaces);
    if wirings.is_empty() && !state.needs_loop() && !needs_cut {
        return Ok(false);
    }
    let mut links = LinkSocket::open()?;
    let mtu = core_mtu(state, interfaces);
    let mut changed = needs_cut && cut::make(&mut links)?;
    if state.needs_loop() {
        changed |= make_loop(&mut links, mtu)?;
    }
    let probed = probed_through(state);
    for wiring in &wirings {
        changed |= wire(&mut links, wiring, mtu)?;
        if probed.contains(wiring.namespace.as_str()) {
            for (name, addresses) in [(&wiring.node_west, PROBE_FROM), (&wiring.node_east, PROBE_TO)] {
                for address in addresses {
                    links.quiet_address(name, address)?;
                }
            }
        }
    }
    Ok(changed)
}

/// The interfaces that there will be once [`make`] has made what `state` needs: for checks that change nothing.
pub fn pretend(state: &NodeState, interfaces: &Interfaces) -> Interfaces {
    let mut all = interfaces.clone();
    let loop_in = state.needs_loop().then(|| LOOP_IN.to_owned());
    let names: Vec<String> = state.all_ports().into_iter().map(|port| port.name).chain(loop_in).collect();
    let mut ifindex = all.0.values().map(|interface| interface.ifindex).max().unwrap_or(0);
    let made: HashSet<String> = (state.wirings().into_iter().chain(state.attached().map(|(wiring, _)| wiring)))
        .flat_map(|wiring| [wiring.node_west, wiring.node_east])
        .collect();
    let (mtu, mac) = (core_mtu(state, interfaces), LOOP_OUT_MAC.octets());
    for name in names {
        if all.get(&name).is_none() && (made.contains(&name) || [LOOP_IN, LOOP_OUT].contains(&name.as_str())) {
            ifindex += 1;
            let peer_elsewhere = made.contains(&name);
            all.0.insert(
                name,
                Interface {
                    ifindex,
                    mtu,
                    mac,
                    addresses: Vec::new(),
                    up: true,
                    peer_elsewhere,
                    vrf: None,
                    ruled: false,
                    hook: Hook::default(),
                    takes_frames: true,
                },
            );
        }
    }
    all
}

/// Removes what was made and `state` does not need; all of it without a state. Returns whether something was removed.
///
/// # Errors
/// What the kernel refused.
pub fn remove(state: Option<&NodeState>) -> Result<bool, KernelError> {
    let wanted: HashSet<String> =
        state.map(NodeState::wirings).unwrap_or_default().into_iter().map(|w| w.namespace).collect();
    let keep_loop = state.is_some_and(NodeState::needs_loop);
    // Which ports are on socket buffers may change; it is no harm while none is.
    let keep_cut = match state {
        Some(state) => {
            let devices = DeviceSocket::open()?.all()?;
            state.cut_ports().any(|port| mode::can_be_on_skb(&port, &devices))
        }
        None => false,
    };
    let mut links = LinkSocket::open()?;
    let mut removed = false;
    let mut namespaces = Vec::new();
    for link in links.all()? {
        let namespace = link.alias.strip_prefix(ALIAS);
        let go = match namespace {
            Some(namespace) => !wanted.contains(namespace),
            None => (link.alias == ALIAS_LOOP && !keep_loop) || (link.alias == cut::ALIAS && !keep_cut),
        };
        if go {
            links.delete(&link.name)?;
            removed = true;
            namespaces.extend(namespace.map(str::to_owned));
        }
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    for name in namespaces {
        let Some(namespace) = Namespace::find(&name)? else { continue };
        let lo = namespace.inside(|| LinkSocket::open()?.find("lo"))??;
        let ours = lo.is_some_and(|lo| lo.alias == ALIAS_NAMESPACE);
        if ours {
            namespace.remove()?;
        }
    }
    Ok(removed)
}

/// The namespaces that probes go through: they need addresses, and their links are the agent's.
fn probed_through(state: &NodeState) -> HashSet<&str> {
    let of_labels = state.labels.iter().filter_map(|label| label.netfilter.as_ref());
    let all = state.sids.iter().filter_map(|sid| sid.netfilter.as_ref()).chain(of_labels);
    let probes = all.filter_map(|netfilter| Some((netfilter, netfilter.watch.as_ref()?.probe.as_ref()?)));
    probes.filter(|(_, probe)| probe.through).map(|(netfilter, _)| netfilter.namespace.as_str()).collect()
}

/// Functions must let through all that the domain can bring.
pub(crate) fn core_mtu(state: &NodeState, interfaces: &Interfaces) -> u32 {
    let core = state.ports.iter().filter(|port| port.role == PortRole::Core);
    core.filter_map(|port| Some(interfaces.get(&port.name)?.mtu)).max().unwrap_or(MTU)
}

fn make_loop(links: &mut LinkSocket, mtu: u32) -> Result<bool, KernelError> {
    let changed = match links.find(LOOP_IN)? {
        Some(_) => false,
        None => {
            let (near, far) =
                (New::named(LOOP_IN, LOOP_IN_MAC.octets(), mtu), New::named(LOOP_OUT, LOOP_OUT_MAC.octets(), mtu));
            links.add(&near, ALIAS_LOOP, Kind::Veth { peer: &far, namespace: None })?;
            true
        }
    };
    for name in [LOOP_IN, LOOP_OUT] {
        quiet(name)?;
        links.settle(name, Some(ALIAS_LOOP), mtu)?;
    }
    Ok(changed)
}

fn wire(links: &mut LinkSocket, wiring: &Wiring, mtu: u32) -> Result<bool, KernelError> {
    let alias = format!("{ALIAS}{}", wiring.namespace);
    let (namespace, made) = Namespace::find_or_make(&wiring.namespace)?;
    if made {
        namespace.inside(|| LinkSocket::open()?.alias("lo", ALIAS_NAMESPACE))??;
    }
    let here = |links: &mut LinkSocket, name: &str| -> Result<bool, KernelError> {
        match links.find(name)? {
            Some(link) if link.alias == alias => Ok(true),
            Some(_) => Err(taken(name, "give the namespace of the End.AN.NF SID another name")),
            None => Ok(false),
        }
    };
    let inside = namespace.inside(|| {
        let mut links = LinkSocket::open()?;
        Ok::<_, KernelError>([Wiring::WEST, Wiring::EAST].map(|name| links.find(name).is_ok_and(|link| link.is_some())))
    })??;
    let mut changed = false;
    if !(here(links, &wiring.node_west)? && inside[0]) {
        links.delete(&wiring.node_west)?;
        let near = New::named(&wiring.node_west, wiring.node_west_mac.octets(), mtu);
        let far = New::named(Wiring::WEST, wiring.west_mac.octets(), mtu);
        links.add(&near, &alias, Kind::Veth { peer: &far, namespace: Some(&namespace) })?;
        changed = true;
    }
    if !(here(links, &wiring.node_east)? && inside[1]) {
        links.delete(&wiring.node_east)?;
        make_east(links, wiring, &namespace, &alias, mtu)?;
        changed = true;
    }
    for name in [&wiring.node_west, &wiring.node_east] {
        quiet(name)?;
        links.settle(name, Some(&alias), mtu)?;
    }
    namespace.inside(|| lead_through(wiring, mtu))??;
    Ok(changed)
}

/// Of the node, towards every namespace that is probed: where probes start, and where they are to arrive. Nothing else is sent
/// from them (RFC 3927, RFC 9780).
pub(crate) const PROBE_FROM: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 0, 2)), IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 9))];
pub(crate) const PROBE_TO: [IpAddr; 2] =
    [IpAddr::V4(GATEWAY_IPV4), IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 10))];

/// Variable of the environment: take no macvlan, as on a kernel that has none.
const WITHOUT_MACVLAN: &str = "SEGUE_WITHOUT_MACVLAN";

/// East is a macvlan: what is sent by it is on the node's side at once. Where the kernel has none, it is a veth.
fn make_east(
    links: &mut LinkSocket,
    wiring: &Wiring,
    namespace: &Namespace,
    alias: &str,
    mtu: u32,
) -> Result<(), KernelError> {
    let near = New::named(&wiring.node_east, wiring.node_east_mac.octets(), mtu);
    let east = New::named(Wiring::EAST, wiring.east_mac.octets(), mtu);
    let [a, b, c, d, e, f] = wiring.east_mac.0;
    let idle = New::named(IDLE, [a, b, c, d, e, f ^ 1], mtu);
    links.add(&near, alias, Kind::Veth { peer: &idle, namespace: Some(namespace) })?;
    let macvlan = match std::env::var_os(WITHOUT_MACVLAN) {
        Some(_) => Err(KernelError {
            action: format!("macvlan {}", Wiring::EAST),
            errno: Some(nix::libc::EOPNOTSUPP),
            cause: format!("{WITHOUT_MACVLAN} is set"),
            remedy: "unset it".into(),
        }),
        None => links.add(&east, "", Kind::MacVlan { lower: &wiring.node_east, namespace }).map_err(KernelError::from),
    };
    match macvlan {
        Err(error) if error.errno == Some(nix::libc::EOPNOTSUPP) => {
            tracing::warn!("no macvlan ({}): {} costs one more queue", error.cause, wiring.namespace);
            links.delete(&wiring.node_east)?;
            Ok(links.add(&near, alias, Kind::Veth { peer: &east, namespace: Some(namespace) })?)
        }
        other => other,
    }
}

/// On the node's side nothing is said over these links of the node's own accord; and what functions send of their own may
/// come from any address.
pub(crate) fn quiet(interface: &str) -> Result<(), KernelError> {
    let loose = sysctl::get("net/ipv4/conf/all/rp_filter")?.is_some_and(|value| value == "1");
    for (name, value) in [
        ("ipv6/conf/{}/addr_gen_mode", "1"),
        ("ipv6/conf/{}/accept_ra", "0"),
        ("ipv6/conf/{}/router_solicitations", "0"),
        ("ipv4/conf/{}/send_redirects", "0"),
        // The effective value is the larger one of `all` and the interface: 2 is the loose mode.
        ("ipv4/conf/{}/rp_filter", if loose { "2" } else { "0" }),
    ] {
        set(&name.replace("{}", interface), value)?;
    }
    Ok(())
}

/// Inside the namespace: from west to east.
fn lead_through(wiring: &Wiring, mtu: u32) -> Result<(), KernelError> {
    let mut links = LinkSocket::open()?;
    set("ipv4/ip_forward", "1")?;
    set("ipv6/conf/all/forwarding", "1")?;
    for interface in ["all", "default", Wiring::WEST, Wiring::EAST] {
        for (name, value) in [
            ("ipv4/conf/{}/rp_filter", "0"),
            // Errors of another namespace of this kind come from the same dummy address.
            ("ipv4/conf/{}/accept_local", "1"),
            ("ipv4/conf/{}/send_redirects", "0"),
            ("ipv4/conf/{}/accept_redirects", "0"),
            ("ipv6/conf/{}/accept_redirects", "0"),
            ("ipv6/conf/{}/accept_ra", "0"),
            ("ipv6/conf/{}/router_solicitations", "0"),
            ("ipv6/conf/{}/accept_dad", "0"),
        ] {
            set(&name.replace("{}", interface), value)?;
        }
    }
    for interface in [Wiring::WEST, Wiring::EAST] {
        set(&format!("ipv6/conf/{interface}/addr_gen_mode"), "1")?;
    }
    if links.find(IDLE)?.is_some() {
        set(&format!("ipv6/conf/{IDLE}/disable_ipv6"), "1")?;
        set(&format!("ipv4/conf/{IDLE}/forwarding"), "0")?;
        links.settle(IDLE, None, mtu)?;
    }
    links.settle("lo", None, 0)?;
    links.settle(Wiring::WEST, None, mtu)?;
    links.settle(Wiring::EAST, None, mtu)?;
    links.without_address("lo", IpAddr::V4(DUMMY_IPV4))?;
    // It has to be there to be a source; a packet to it goes through like any other.
    links.address_not_local("lo", DUMMY_IPV6)?;
    for gateway in [IpAddr::V4(GATEWAY_IPV4), IpAddr::V6(GATEWAY_IPV6)] {
        links.neighbour(Wiring::EAST, gateway, wiring.node_east_mac.octets())?;
        links.default_route(Wiring::EAST, gateway, ROUTE_PROTOCOL)?;
    }
    Ok(())
}

/// Sets a sysctl of the thread's namespace unless it is so already.
pub(crate) fn set(name: &str, value: &str) -> Result<(), KernelError> {
    let name = format!("net/{name}");
    match sysctl::get(&name)? {
        Some(now) if now != value => Ok(sysctl::set(&name, value)?),
        _ => Ok(()),
    }
}

pub(crate) fn taken(name: &str, otherwise: &str) -> KernelError {
    KernelError {
        action: format!("interface {name}"),
        errno: None,
        cause: "there is one of this name that Segue did not make".to_owned(),
        remedy: format!("rename or remove it, or {otherwise}"),
    }
}
