//! Ports: interfaces with their role.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use segue_abi as abi;
use segue_model::node::{Behaviour, Memory, NodeState, Port, PortRole, Sid};
use segue_model::proxy::{CUT_IN, CUT_OUT};
use zerocopy::FromZeros;

use super::allocate::Rows;
use super::error::sid_place;
use super::policy::{Policies, PoliciesByName};
use super::{CompileError, Compiler, FLOW_BUCKETS_MASK, FirewallsByName, config_flags, sid_block_hints};
use crate::compiled::{CompiledPort, CompiledSid};
use crate::facts::{Hook, Interface, Interfaces, Table};

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    sids: &[CompiledSid],
    firewalls: &FirewallsByName<'_>,
) -> Result<Vec<CompiledPort>, CompileError> {
    let input = compiler.input;
    let all = compiler.ports.clone();
    compiler.check_room(Table::Ports, all.len(), input.capacity.ports, "ports")?;
    let returns = returns(input.state, sids)?;
    let services = input.state.services();
    let functions = input.state.sids.iter().chain(&services);
    let remembered = functions.filter(|sid| sid.memory() == Some(Memory::Packet));
    let of_packets: BTreeSet<String> = remembered.filter_map(Sid::function_ports).map(|(_, from)| from).collect();
    let previous = input.previous.map(|previous| {
        previous.ports.iter().map(|port| (port.name.clone(), u32::from(port.entry.index))).collect::<BTreeMap<_, _>>()
    });
    let mut rows =
        Rows::new(previous.unwrap_or_default(), 1 + 2 * input.capacity.ports, Table::Ports, input.capacity.ports);
    let mut ports: Vec<CompiledPort> = Vec::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let domains = domains(&all, input.interfaces);
    let of_frames: BTreeSet<String> = input.state.frame_ports().collect();
    for port in &all {
        let place = format!("port {}", port.name);
        if !names.insert(&port.name) {
            return Err(CompileError::Duplicate { place });
        }
        let Some(interface) = compiler.interface(&place, &port.name)? else { continue };
        let mut entry = entry(&compiler.policies, port, interface, policies)?;
        entry.firewall = super::firewall_index(firewalls, port.firewall.as_deref(), &place)?;
        entry.config_flags = config_flags(input);
        entry.sid_block_hints = sid_block_hints(input).unwrap_or_default();
        entry.domain = domains.get(&domain(interface)).copied().unwrap_or_default();
        entry.proxy = returns.get(port.name.as_str()).copied().unwrap_or(abi::SEGUE_NONE);
        if of_frames.contains(&port.name) {
            entry.flags |= abi::SEGUE_PORT_L2 as u8;
        }
        let row = rows.take(port.name.clone(), &place)?;
        entry.index = u16::try_from(row).map_err(|_| {
            CompileError::invalid(&place, "the table of ports must not exceed 32,767; use a smaller capacity")
        })?;
        let returned = of_packets.contains(&port.name);
        let skb = !returned && interface.hook == Hook::Skb;
        let xdp = !returned && !skb;
        ports.push(CompiledPort { name: port.name.clone(), xdp, skb, place: 0, entry });
    }
    place(&mut ports)?;
    Ok(ports)
}

/// Why a port loses less on XDP than on socket buffers: of a buffer with segments that comes with labels nothing can be told.
/// Those that get labels here, and frames that are carried whole, are made single packets before ([`needs_cut`]).
pub fn prefers_xdp(state: &NodeState, port: &Port) -> Option<&'static str> {
    let carries = port.role == PortRole::Core && (state.knows_labels() || super::policy::pushes(state));
    carries.then_some(
        "packets with labels cannot stay together in one buffer, which the kernel cuts up only if it has NET_MPLS_GSO",
    )
}

/// Whether socket buffers come by ports that may get labels or are carried as frames, and so the pair [`CUT_IN`], [`CUT_OUT`] is needed.
pub fn needs_cut(state: &NodeState, interfaces: &Interfaces) -> bool {
    state.cut_ports().any(|port| interfaces.get(&port.name).is_some_and(|interface| interface.hook == Hook::Skb))
}

/// Numbers of the pair's ends, if it is needed and there.
pub(super) fn cut(state: &NodeState, interfaces: &Interfaces) -> (u32, u32) {
    let numbers = || Some((interfaces.get(CUT_IN)?.ifindex, interfaces.get(CUT_OUT)?.ifindex));
    if needs_cut(state, interfaces) { numbers().unwrap_or_default() } else { (0, 0) }
}

/// What the kernel's routes depend on, of the interface that a packet comes in by: its VRF, and itself if a rule names it.
fn domain(interface: &Interface) -> (Option<u32>, Option<u32>) {
    (interface.vrf, interface.ruled.then_some(interface.ifindex))
}

/// Numbers of the routing domains of all ports. 0: neither a VRF nor a rule.
fn domains(ports: &[Port], interfaces: &Interfaces) -> BTreeMap<(Option<u32>, Option<u32>), u16> {
    let all = ports.iter().filter_map(|port| interfaces.get(&port.name)).map(domain);
    let all: BTreeSet<_> = all.chain([(None, None)]).collect();
    // There are at most as many as ports, which are numbered in 16 bits too. None comes first.
    all.into_iter().zip(0..).collect()
}

/// Gives each port its slot: the one that its interface's number says, or a free one behind the port that has that. Interfaces'
/// numbers grow without bound where containers come and go, so two ports may well have the same one.
fn place(ports: &mut [CompiledPort]) -> Result<(), CompileError> {
    let home = |port: &CompiledPort| port.entry.ifindex % abi::SEGUE_PORT_SLOTS;
    let mut last: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    let mut rest = Vec::new();
    for (position, port) in ports.iter_mut().enumerate() {
        let slot = home(port);
        match last.entry(slot) {
            Entry::Occupied(_) => rest.push(position),
            Entry::Vacant(free) => {
                port.place = slot;
                free.insert((position, 1));
            }
        }
    }
    // The slots that no port has by its number: a chain has only ports of one number modulo the slots.
    let homes: BTreeSet<u32> = last.keys().copied().collect();
    let mut free = (0..abi::SEGUE_PORT_SLOTS).filter(|slot| !homes.contains(slot));
    for position in rest {
        let slot = home(&ports[position]);
        let (before, length) = last.get(&slot).copied().unwrap_or((position, 0));
        let too_many = || CompileError::PortCollision {
            first: ports[before].name.clone(),
            first_index: ports[before].entry.ifindex,
            second: ports[position].name.clone(),
            second_index: ports[position].entry.ifindex,
            slots: abi::SEGUE_PORT_SLOTS,
            most: abi::SEGUE_PORT_CHAIN,
        };
        let found = free.next().filter(|_| length < abi::SEGUE_PORT_CHAIN).ok_or_else(too_many)?;
        ports[position].place = found;
        ports[before].entry.next = (found + 1) as u16;
        last.insert(slot, (position, length + 1));
    }
    Ok(())
}

/// For each IFACE-IN the index of the proxy SID that packets from it go back to, the first of several that share what is
/// remembered.
fn returns(state: &NodeState, sids: &[CompiledSid]) -> Result<BTreeMap<String, u32>, CompileError> {
    let mut returns: BTreeMap<String, &CompiledSid> = BTreeMap::new();
    let services = state.services();
    for sid in state.sids.iter().chain(&services) {
        let Some((_, from)) = sid.function_ports() else { continue };
        // A proxy that was left out for a missing port returns nowhere.
        let Ok(at) = sids.binary_search_by_key(&sid.sid.trunc(), |compiled| compiled.prefix) else { continue };
        let compiled = &sids[at];
        let Some(first) = returns.get(&from) else {
            returns.insert(from, compiled);
            continue;
        };
        // Scopes are those of an interface and a kind; End.AS has none, and one interface memory belongs to one SID.
        let alone = compiled.entry.scope == 0 || u32::from(compiled.entry.memory) == abi::SEGUE_MEMORY_INTERFACE;
        if (alone && sid.behaviour != Behaviour::EndAm) || compiled.entry.scope != first.entry.scope {
            let problem = format!(
                "{} returns by port {from} too; a port serves one proxy SID, because packets that come back do not tell them \
                 apart, unless both remember flows or packets in the same way",
                sid_place(&first.prefix)
            );
            return Err(CompileError::invalid(sid_place(&sid.sid), problem));
        }
    }
    Ok(returns.into_iter().map(|(from, sid)| (from, sid.index)).collect())
}

fn entry(
    configured: &PoliciesByName<'_>,
    port: &Port,
    interface: &Interface,
    policies: &Policies,
) -> Result<abi::Port, CompileError> {
    let mut entry = abi::Port::new_zeroed();
    entry.ifindex = interface.ifindex;
    entry.role = role_number(port.role) as u8;
    entry.mtu = interface.mtu;
    entry.mac = interface.mac;
    entry.policy = abi::SEGUE_NONE;
    entry.proxy = abi::SEGUE_NONE;
    entry.ipv4 = u32::from_ne_bytes(address_ipv4(&interface.addresses).octets());
    entry.ipv6 = address_ipv6(&interface.addresses).octets();
    entry.flow_buckets_mask = FLOW_BUCKETS_MASK;
    let mut flags = 0;
    if interface.up {
        flags |= abi::SEGUE_PORT_UP;
    }
    if port.accept_hmac {
        flags |= abi::SEGUE_PORT_HMAC;
    }
    if let Some(name) = &port.l2_policy {
        let place = format!("port {}, l2_policy", port.name);
        entry.policy = policies.index(name, &place)?;
        if !configured.get(name.as_str()).is_some_and(|policy| policy.carries_frames()) {
            let problem =
                format!("policy {name} must have the mode H.Encaps.L2 or H.Encaps.L2.Red, or PUSH with `pseudowire`");
            return Err(CompileError::invalid(place, problem));
        }
        flags |= abi::SEGUE_PORT_L2;
    }
    entry.flags = flags as u8;
    Ok(entry)
}

fn role_number(role: PortRole) -> abi::Role {
    match role {
        PortRole::Core => abi::SEGUE_ROLE_CORE,
        PortRole::Access => abi::SEGUE_ROLE_ACCESS,
        PortRole::Service => abi::SEGUE_ROLE_SERVICE,
    }
}

/// The first IPv4 address; 0.0.0.0 if there is none.
fn address_ipv4(addresses: &[IpNet]) -> Ipv4Addr {
    let mut found = addresses.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some(net.addr()),
        IpNet::V6(_) => None,
    });
    found.next().unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// The first address of more than link-local scope, because ICMPv6 errors cross routers; else the link-local one; else ::.
fn address_ipv6(addresses: &[IpNet]) -> Ipv6Addr {
    let all = || {
        addresses.iter().filter_map(|net| match net {
            IpNet::V6(net) => Some(net.addr()),
            IpNet::V4(_) => None,
        })
    };
    all().find(|address| !address.is_unicast_link_local()).or_else(|| all().next()).unwrap_or(Ipv6Addr::UNSPECIFIED)
}
