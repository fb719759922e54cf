//! Local SIDs (RFC 8986 section 3.3), binding SIDs among them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_model::node::{Behaviour, Flavour, HeadendMode, InnerType, OtherTypes, Policy, Sid, TellFlowsBy};
use segue_model::wiring::Wiring;
use zerocopy::FromZeros;

use super::allocate::Indices;
use super::error::{host, sid_place};
use super::policy::{Policies, endpoint_policy, instances_policy, proxy_policy};
use super::{CompileError, Compiler, FirewallsByName, counter_name, label, memory, udp};
use crate::compiled::{self, CompiledLabel, CompiledSid};
use crate::facts::{Interface, Table};

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    firewalls: &FirewallsByName<'_>,
) -> Result<(Vec<CompiledSid>, Vec<CompiledLabel>), CompileError> {
    let input = compiler.input;
    let services = input.state.services();
    let count = input.state.sids.len() + services.len() + input.state.udp_endpoints().len();
    // Before each takes its counters, of which there are as many as all tables need.
    compiler.check_room(Table::Sids, count, input.capacity.sids, "sids")?;
    let mut entries: BTreeMap<Ipv6Net, (Option<String>, abi::Sid)> = BTreeMap::new();
    for sid in &input.state.sids {
        let Some(mut entry) = local(compiler, policies, sid)? else { continue };
        entry.firewall = super::firewall_index(firewalls, sid.firewall.as_deref(), &sid_place(&sid.sid))?;
        insert(&mut entries, sid.sid.trunc(), None, entry)?;
    }
    for service in &services {
        let Some(mut entry) = local(compiler, policies, service)? else { continue };
        entry.firewall = super::firewall_index(firewalls, service.firewall.as_deref(), &sid_place(&service.sid))?;
        label::behind_label(&mut entry);
        insert(&mut entries, service.sid, None, entry)?;
    }
    for policy in &input.state.policies {
        let Some(address) = policy.binding_sid else { continue };
        let entry = binding(compiler, policies, policy, &host(address))?;
        insert(&mut entries, host(address), Some(policy.name.clone()), entry)?;
    }
    for endpoint in input.state.udp_endpoints() {
        let (key, entry) = udp::endpoint(compiler, endpoint)?;
        insert(&mut entries, key, None, entry)?;
    }
    let labels = label::entries(compiler, policies)?;
    compiler.check_room(Table::Sids, entries.len() + labels.len(), input.capacity.sids, "sids")?;
    let previous = input.previous.map(|previous| previous.sids.as_slice()).unwrap_or_default();
    let known = input.previous.map(|previous| previous.labels.as_slice()).unwrap_or_default();
    let used = previous.iter().map(|sid| sid.index).chain(known.iter().map(|label| label.index));
    let mut indices = Indices::new(0, 2 * input.capacity.sids, used, Table::Sids, input.capacity.sids);
    let mut compiled = Vec::new();
    for (prefix, (binding_of, entry)) in entries {
        // They lie in the order of their prefixes.
        let same = previous.binary_search_by_key(&prefix, |sid| sid.prefix).ok().map(|at| &previous[at]);
        let same = same.filter(|sid| sid.entry == entry);
        let index = match same {
            Some(same) => same.index,
            None => indices.take(&sid_place(&prefix))?,
        };
        compiled.push(CompiledSid { prefix, binding_of, index, entry });
    }
    let mut labels = label::indexed(labels, known, &mut indices)?;
    label::add_services(&mut labels, &compiled)?;
    Ok((compiled, labels))
}

fn insert(
    entries: &mut BTreeMap<Ipv6Net, (Option<String>, abi::Sid)>,
    prefix: Ipv6Net,
    binding_of: Option<String>,
    entry: abi::Sid,
) -> Result<(), CompileError> {
    match entries.insert(prefix, (binding_of, entry)) {
        Some(_) => Err(CompileError::Duplicate { place: sid_place(&prefix) }),
        None => Ok(()),
    }
}

/// The entry of a configured SID. `None` if a port that it needs is left out.
fn local(compiler: &mut Compiler<'_>, policies: &Policies, sid: &Sid) -> Result<Option<abi::Sid>, CompileError> {
    let place = sid_place(&sid.sid);
    let mut entry = abi::Sid::new_zeroed();
    entry.behaviour = behaviour_number(sid.behaviour) as u8;
    entry.kind = abi::SEGUE_HEADER_SRV6 as u8;
    entry.flavours = sid.flavours.iter().fold(0, |flavours, flavour| flavours | flavour_bit(*flavour)) as u16;
    entry.table = compiler.table(sid.table, &place)?;
    entry.policy = abi::SEGUE_NONE;
    let mut flags = 0;
    if sid.answer_echo {
        flags |= abi::SEGUE_SID_ALLOW_ICMPV6;
    }
    if sid.allow_inner_sid {
        flags |= abi::SEGUE_SID_ALLOW_INNER_SID;
    }
    if sid.instances().is_some() {
        return instances(compiler, policies, sid, flags, entry).map(Some);
    }
    match sid.next_hop {
        Some(IpAddr::V6(address)) => entry.next_hop = address.octets(),
        Some(IpAddr::V4(address)) => entry.next_hop_ipv4 = u32::from_ne_bytes(address.octets()),
        None => {}
    }
    if let Some(mac) = sid.function_mac() {
        flags |= abi::SEGUE_SID_NEXT_HOP_MAC;
        entry.mac = mac.octets();
    }
    if let Some(port) = &sid.port {
        let Some(interface) = compiler.interface(&place, port)? else { return Ok(None) };
        entry.oif = interface.ifindex;
        flags |= oif_flag(interface);
    }
    match sid.behaviour {
        // Where the argument begins.
        Behaviour::EndAn if sid.firewall.is_some() => entry.prefix_length = sid.sid.prefix_len(),
        Behaviour::EndAs | Behaviour::EndAd | Behaviour::EndAm | Behaviour::EndAn | Behaviour::EndAnNf => {
            let Some(with) = function(compiler, sid, &place, &mut entry)? else { return Ok(None) };
            flags |= with;
            if sid.behaviour == Behaviour::EndAs && has_list(sid) {
                entry.policy = policies.index(&proxy_policy(sid), &place)?;
            }
            entry.counter_return = compiler.counters.take(counter_name::returned(&sid.sid.trunc()), &place)?;
        }
        Behaviour::EndB6Encaps | Behaviour::EndB6EncapsRed | Behaviour::EndBm => {
            entry.policy = policies.index(&endpoint_policy(&compiler.policies, sid)?, &place)?;
        }
        _ => {}
    }
    entry.flags = flags as u8;
    entry.counter = compiler.counters.take(counter_name::sid(&sid.sid.trunc()), &place)?;
    Ok(Some(entry))
}

/// Whether a static proxy puts a list back: nothing may be left of a stack of labels.
fn has_list(sid: &Sid) -> bool {
    sid.label().is_none() || sid.proxy.as_ref().is_some_and(|proxy| !proxy.labels.is_empty())
}

/// The entry of a SID behind which are several instances of a function: each has a SID of its own.
fn instances(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    sid: &Sid,
    flags: abi::SidFlags,
    mut entry: abi::Sid,
) -> Result<abi::Sid, CompileError> {
    let place = sid_place(&sid.sid);
    let name = sid.function().unwrap_or_default();
    memory::fill_failure(sid, &mut entry)?;
    entry.behaviour = abi::SEGUE_END_INSTANCES as u8;
    entry.policy = policies.index(&instances_policy(sid), &place)?;
    // A flow is at the same instance in both directions.
    let (whose, _) = entry.next_hop.split_at_mut(8);
    whose.copy_from_slice(&compiled::function_number(name).to_ne_bytes());
    if let Some(function) = compiler.input.state.functions.get(name) {
        entry.flow_timeout = memory::jiffies(compiler, function.flow_timeout());
        if function.tell_flows_by == TellFlowsBy::Addresses {
            entry.proxy_flags |= abi::SEGUE_PROXY_BY_ADDRESSES as u8;
        }
    }
    entry.flags = flags as u8;
    entry.counter = compiler.counters.take(counter_name::sid(&sid.sid.trunc()), &place)?;
    Ok(entry)
}

/// What an entry says of the interface towards its function.
pub(crate) fn function_mtu(to: &Interface) -> u16 {
    if to.up { u16::try_from(to.mtu).unwrap_or(u16::MAX) } else { 0 }
}

/// Whether XDP can redirect into IFACE-OUT.
fn oif_flag(to: &Interface) -> abi::SidFlags {
    if to.takes_frames { 0 } else { abi::SEGUE_SID_OIF_BY_KERNEL }
}

/// Fills what is behind a proxy, an SR-aware function or netfilter, and returns its flags. `None` if one of its ports is left
/// out.
fn function(
    compiler: &mut Compiler<'_>,
    sid: &Sid,
    place: &str,
    entry: &mut abi::Sid,
) -> Result<Option<abi::SidFlags>, CompileError> {
    let Some((to, from)) = sid.function_ports() else {
        let needed = if sid.behaviour == Behaviour::EndAnNf { "netfilter" } else { "proxy" };
        return Err(CompileError::invalid(place, format!("{} needs `{needed}`", sid.behaviour.name())));
    };
    let to = compiler.interface(place, &to)?;
    // One warning is enough.
    let from = if to.is_some() { compiler.interface(place, &from)? } else { None };
    let peer_elsewhere = to.is_some_and(|to| to.peer_elsewhere);
    let mut flags = to.map_or(0, oif_flag);
    match (to, from) {
        (Some(to), Some(_)) => {
            entry.oif = to.ifindex;
            entry.source_mac = to.mac;
            entry.function_mtu = function_mtu(to);
        }
        // It leads nowhere now, but it says what becomes of packets while the function is down.
        _ if sid.watch().is_some() || sid.function().is_some() => {}
        _ => return Ok(None),
    }
    match &sid.netfilter {
        Some(netfilter) => {
            entry.inner = (abi::SEGUE_INNER_IPV4 | abi::SEGUE_INNER_IPV6) as u8;
            entry.mac = Wiring::of(&netfilter.namespace).west_mac.octets();
            flags |= abi::SEGUE_SID_NEXT_HOP_MAC;
        }
        None => {
            let inner = sid.proxy.iter().flat_map(|proxy| &proxy.inner);
            entry.inner = inner.fold(0, |inner, kind| inner | inner_bit(*kind)) as u8;
        }
    }
    if sid.behaviour == Behaviour::EndAm || sid.behaviour == Behaviour::EndAn {
        entry.inner = abi::SEGUE_INNER_IPV6 as u8;
    }
    if sid.proxy.as_ref().is_some_and(|proxy| proxy.other_types == OtherTypes::Bypass) {
        flags |= abi::SEGUE_SID_BYPASS_OTHER_TYPE;
    }
    memory::fill(compiler, sid, peer_elsewhere, entry)?;
    Ok(Some(flags))
}

fn binding(
    compiler: &mut Compiler<'_>,
    policies: &Policies,
    policy: &Policy,
    prefix: &Ipv6Net,
) -> Result<abi::Sid, CompileError> {
    let place = format!("policy {}, binding SID", policy.name);
    let behaviour = match policy.mode {
        HeadendMode::HEncaps => abi::SEGUE_END_B6_ENCAPS,
        HeadendMode::HEncapsRed => abi::SEGUE_END_B6_ENCAPS_RED,
        HeadendMode::Push => abi::SEGUE_END_BM,
        _ => {
            let problem =
                "a binding SID needs the mode H.Encaps, H.Encaps.Red or PUSH; change `mode` or take `binding_sid` out";
            return Err(CompileError::invalid(place, problem));
        }
    };
    let mut entry = abi::Sid::new_zeroed();
    entry.behaviour = behaviour as u8;
    entry.kind = abi::SEGUE_HEADER_SRV6 as u8;
    entry.flags = abi::SEGUE_SID_ALLOW_ICMPV6 as u8;
    entry.policy = policies.index(&policy.name, &place)?;
    entry.counter = compiler.counters.take(counter_name::sid(prefix), &place)?;
    Ok(entry)
}

fn behaviour_number(behaviour: Behaviour) -> abi::Behaviour {
    match behaviour {
        Behaviour::End => abi::SEGUE_END,
        Behaviour::EndX => abi::SEGUE_END_X,
        Behaviour::EndT => abi::SEGUE_END_T,
        Behaviour::EndDx2 => abi::SEGUE_END_DX2,
        Behaviour::EndDx4 => abi::SEGUE_END_DX4,
        Behaviour::EndDx6 => abi::SEGUE_END_DX6,
        Behaviour::EndDt4 => abi::SEGUE_END_DT4,
        Behaviour::EndDt6 => abi::SEGUE_END_DT6,
        Behaviour::EndDt46 => abi::SEGUE_END_DT46,
        Behaviour::EndB6Encaps => abi::SEGUE_END_B6_ENCAPS,
        Behaviour::EndB6EncapsRed => abi::SEGUE_END_B6_ENCAPS_RED,
        Behaviour::EndBm => abi::SEGUE_END_BM,
        Behaviour::EndDtm => abi::SEGUE_END_DTM,
        Behaviour::EndAs => abi::SEGUE_END_AS,
        Behaviour::EndAd => abi::SEGUE_END_AD,
        Behaviour::EndAm => abi::SEGUE_END_AM,
        Behaviour::EndAn => abi::SEGUE_END_AN,
        Behaviour::EndAnNf => abi::SEGUE_END_AN_NF,
    }
}

fn flavour_bit(flavour: Flavour) -> abi::Flavour {
    match flavour {
        Flavour::Psp => abi::SEGUE_PSP,
        Flavour::Usp => abi::SEGUE_USP,
        Flavour::Usd => abi::SEGUE_USD,
        Flavour::Nat => abi::SEGUE_NAT,
        Flavour::Caching => abi::SEGUE_CACHING,
    }
}

fn inner_bit(inner: InnerType) -> abi::Inner {
    match inner {
        InnerType::IPv4 => abi::SEGUE_INNER_IPV4,
        InnerType::IPv6 => abi::SEGUE_INNER_IPV6,
        InnerType::Ethernet => abi::SEGUE_INNER_ETHERNET,
    }
}
