//! Ports: interfaces with their role.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use segue_abi as abi;
use segue_model::node::{HeadendMode, NodeState, Port, PortRole, Proxy};
use zerocopy::FromZeros;

use super::allocate::Rows;
use super::error::sid_place;
use super::policy::Policies;
use super::{CompileError, Compiler, FLOW_BUCKETS_MASK, config_flags};
use crate::compiled::{CompiledPort, CompiledSid};
use crate::facts::{Interface, Table};

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    sids: &[CompiledSid],
) -> Result<Vec<CompiledPort>, CompileError> {
    let input = compiler.input;
    compiler.check_room(Table::Ports, input.state.ports.len(), input.capacity.ports, "ports")?;
    let returns = returns(input.state, sids)?;
    let previous = input.previous.map(|previous| {
        previous.ports.iter().map(|port| (port.name.clone(), u32::from(port.entry.index))).collect::<BTreeMap<_, _>>()
    });
    let mut rows =
        Rows::new(previous.unwrap_or_default(), 1 + 2 * input.capacity.ports, Table::Ports, input.capacity.ports);
    let mut ports: Vec<CompiledPort> = Vec::new();
    let mut slots: BTreeMap<u32, &str> = BTreeMap::new();
    for port in &input.state.ports {
        let place = format!("port {}", port.name);
        if ports.iter().any(|other| other.name == port.name) {
            return Err(CompileError::Duplicate { place });
        }
        let Some(interface) = compiler.interface(&place, &port.name)? else { continue };
        let slot = interface.ifindex % abi::SEGUE_PORT_SLOTS;
        if let Some(first) = slots.insert(slot, &port.name) {
            return Err(CompileError::PortCollision {
                first: first.to_owned(),
                first_index: input.interfaces.get(first).map_or(0, |interface| interface.ifindex),
                second: port.name.clone(),
                second_index: interface.ifindex,
                slots: abi::SEGUE_PORT_SLOTS,
            });
        }
        let mut entry = entry(input.state, port, interface, policies)?;
        entry.config_flags = config_flags(input);
        entry.proxy = returns.get(port.name.as_str()).copied().unwrap_or(abi::SEGUE_NONE);
        let row = rows.take(port.name.clone(), &place)?;
        entry.index = u16::try_from(row).map_err(|_| {
            CompileError::invalid(place, "the table of ports must not exceed 32,767; use a smaller capacity")
        })?;
        ports.push(CompiledPort { name: port.name.clone(), entry });
    }
    Ok(ports)
}

/// For each IFACE-IN the index of the proxy SID that packets from it go back to.
fn returns<'a>(state: &'a NodeState, sids: &[CompiledSid]) -> Result<BTreeMap<&'a str, u32>, CompileError> {
    let mut returns = BTreeMap::new();
    let mut owners: BTreeMap<&str, &Ipv6Net> = BTreeMap::new();
    for sid in &state.sids {
        let Some(Proxy { from_function, .. }) = &sid.proxy else { continue };
        if let Some(other) = owners.insert(from_function, &sid.sid) {
            let problem = format!(
                "{} returns by port {from_function} too; a port serves one proxy SID, because packets that come back do not \
                 tell them apart",
                sid_place(other)
            );
            return Err(CompileError::invalid(sid_place(&sid.sid), problem));
        }
        // A proxy that was left out for a missing port returns nowhere.
        let compiled = sids.iter().find(|compiled| compiled.prefix == sid.sid.trunc());
        if let Some(compiled) = compiled {
            returns.insert(from_function.as_str(), compiled.index);
        }
    }
    Ok(returns)
}

fn entry(
    state: &NodeState,
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
        let mode = state.policies.iter().find(|policy| policy.name == *name).map(|policy| policy.mode);
        if !matches!(mode, Some(HeadendMode::HEncapsL2 | HeadendMode::HEncapsL2Red)) {
            let problem = format!("policy {name} must have the mode H.Encaps.L2 or H.Encaps.L2.Red");
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
