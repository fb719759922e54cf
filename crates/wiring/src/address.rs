//! Ids and addresses of nodes and hosts: those given, and those derived.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use segue_model::check;
use segue_model::error::{KeyPath, Report};
use segue_model::range::NumberRange;
use segue_model::topology::{Host, LabDomain, NODE_ID_MAX, Node, Topology};
use segue_plan::NodeLabels;
use segue_plan::address::{behind, group};

/// Labels of a node's SR local block.
const BLOCK: u32 = 100;

/// The address whose last four groups are given.
pub(crate) fn tail(prefix: Ipv6Net, groups: [u16; 4]) -> Ipv6Addr {
    let tail = groups.iter().fold(0u128, |bits, group| (bits << 16) | u128::from(*group));
    Ipv6Addr::from_bits(prefix.network().to_bits() | tail)
}

/// What a node is called by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeAddress {
    pub(crate) id: u16,
    pub(crate) locator: Ipv6Net,
    pub(crate) loopback: Ipv6Addr,
    pub(crate) labels: Option<NodeLabels>,
}

/// A host's address in one family, and the node's on the same link; none where another host is on it (a chain of Ethernet frames).
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostAddress {
    pub(crate) host: IpNet,
    pub(crate) node: Option<IpNet>,
}

/// Addresses of all nodes, in the order of the topology.
pub(crate) fn nodes(topology: &Topology, report: &mut Report) -> Vec<NodeAddress> {
    let domain = &topology.domain;
    let taken: HashSet<u16> = topology.nodes.values().filter_map(|node| node.id).collect();
    let mut free = (1..=NODE_ID_MAX).filter(|id| !taken.contains(id));
    let key = KeyPath::root().at("nodes");
    let mut addresses: Vec<NodeAddress> = Vec::new();
    for (name, node) in &topology.nodes {
        // Checked before: there are not more nodes than ids.
        let id = node.id.or_else(|| free.next()).unwrap_or(NODE_ID_MAX);
        let locator = node.locator.unwrap_or_else(|| behind(domain.sid_block, group(id)));
        let derived = Ipv6Addr::from_bits(behind(domain.loopback_prefix, group(id)).addr().to_bits() | 1);
        let loopback = node.loopback.unwrap_or(derived);
        for ((other_name, _), other) in topology.nodes.iter().zip(&addresses) {
            if check::overlap_ipv6(&other.locator, &locator) {
                let message = format!("the locator {locator} overlaps with {} of node {other_name:?}", other.locator);
                report.error(&key.at(name), message, "give one of them another `locator` or `id`");
            }
            if other.loopback == loopback {
                let message = format!("node {other_name:?} has the loopback address {loopback} too");
                report.error(&key.at(name), message, "give one of them another `loopback` or `id`");
            }
        }
        let labels = match domain.of_node(node).has_labels() {
            true => labels(domain, node, id, &key.at(name), report),
            false => None,
        };
        addresses.push(NodeAddress { id, locator, loopback, labels });
    }
    addresses
}

/// A node's labels: those of its number in the domain's blocks, unless it names a block of its own.
fn labels(domain: &LabDomain, node: &Node, id: u16, key: &KeyPath, report: &mut Report) -> Option<NodeLabels> {
    let (srgb, srlb, number) = (domain.srgb(), domain.srlb(), u32::from(id));
    let label = srgb.low().checked_add(number).filter(|label| *label <= srgb.high());
    if label.is_none() {
        let message = format!("the SRGB {srgb} has no label for the id {id}");
        report.error(key, message, "give it a lower `id`, or extend `domain.srgb`");
    }
    let derived = || {
        let first = srlb.low().checked_add(number * BLOCK)?;
        NumberRange::new(first, first.checked_add(BLOCK - 1)?).filter(|block| block.high() <= srlb.high())
    };
    let block = node.srlb.or_else(derived);
    if block.is_none() {
        let message = format!("the domain's SRLB {srlb} has no {BLOCK} labels for the id {id}");
        report.error(key, message, "give it a lower `id` or its own `srlb`, or extend `domain.srlb`");
    }
    let entropy = node.entropy_labels.unwrap_or(domain.entropy_labels);
    Some(NodeLabels { node: label?, block: block?, entropy })
}

/// Addresses of all hosts, in the order of the topology.
pub(crate) fn hosts(topology: &Topology, report: &mut Report) -> IndexMap<String, Vec<HostAddress>> {
    let key = KeyPath::root().at("hosts");
    let reserved = reserved(&topology.domain);
    let mut all: IndexMap<String, Vec<HostAddress>> = IndexMap::new();
    for (position, (name, host)) in topology.hosts.iter().enumerate() {
        let key = key.at(name);
        let joined = topology.joined(name);
        let addresses = match joined {
            Some(ends) => joined_addresses(topology, host, ends, usize::from(ends[0] != name)),
            None => host_addresses(&topology.domain, host, position),
        };
        let Some(addresses) = addresses else {
            report.error(&key, "no addresses are left for it in the domain's prefixes", "give it `addresses`");
            continue;
        };
        for address in &addresses {
            let network = address.host.trunc();
            let others = all.iter().flat_map(|(name, list)| list.iter().map(move |other| (name, other.host)));
            for (other_name, other) in others {
                let on_one_link = joined.is_some_and(|ends| ends.contains(&other_name.as_str()));
                if on_one_link && other.addr() == address.host.addr() {
                    let message =
                        format!("host {other_name:?}, on the same link, has the address {} too", other.addr());
                    report.error(&key, message, "give each host an address of its own");
                }
                let other = other.trunc();
                if !on_one_link && check::overlap(&network, &other) {
                    let message = format!("its network {network} overlaps with {other} of host {other_name:?}");
                    report.error(&key, message, "give each host a network of its own: each has its own link");
                }
            }
            for (prefix_name, prefix) in &reserved {
                if check::overlap(&network, prefix) {
                    let message = format!("its network {network} overlaps with the domain's {prefix_name} ({prefix})");
                    report.error(&key, message, "choose other addresses: hosts are outside the SR domain");
                }
            }
        }
        all.insert(name.clone(), addresses);
    }
    for (name, chain) in &topology.chains {
        let ends = chain.joined_hosts().and_then(|[from, to]| Some((all.get(from)?, all.get(to)?)));
        let meet = |(from, to): (&Vec<HostAddress>, &Vec<HostAddress>)| {
            from.iter().any(|from| to.iter().any(|to| from.host.trunc() == to.host.trunc()))
        };
        if ends.is_some_and(|ends| !meet(ends)) {
            let message = "its two hosts are on one link, and have no network in common";
            let key = KeyPath::root().at("chains").at(name);
            report.error(&key, message, "give both hosts `addresses` of one network, or neither of them any");
        }
    }
    all
}

/// What no host may have addresses of.
fn reserved(domain: &LabDomain) -> Vec<(&'static str, IpNet)> {
    vec![
        ("sid_block", domain.sid_block.into()),
        ("loopback_prefix", domain.loopback_prefix.into()),
        ("link_prefix", domain.link_prefix.into()),
        ("service_prefix", domain.service_prefix.into()),
        ("service_prefix_ipv4", domain.service_prefix_ipv4.into()),
    ]
}

fn host_addresses(domain: &LabDomain, host: &Host, position: usize) -> Option<Vec<HostAddress>> {
    if !host.addresses.is_empty() {
        return Some(host.addresses.iter().map(|address| with_gateway(*address)).collect());
    }
    derived(domain, position, 2).map(|addresses| addresses.map(with_gateway).into())
}

/// Addresses of a host on one link with another, which has those of the other one's network; `end`: 0 for the one that the chain begins at.
fn joined_addresses(topology: &Topology, host: &Host, ends: [&str; 2], end: usize) -> Option<Vec<HostAddress>> {
    let addresses = match host.addresses.is_empty() {
        true => derived(&topology.domain, topology.hosts.get_index_of(ends[0])?, if end == 0 { 2 } else { 3 })?.into(),
        false => host.addresses.clone(),
    };
    Some(addresses.into_iter().map(|host| HostAddress { host, node: None }).collect())
}

/// The address with this last octet in the network of the host at this position, of each family.
fn derived(domain: &LabDomain, position: usize, last: u8) -> Option<[IpNet; 2]> {
    let number = u16::try_from(position + 1).ok().filter(|number| *number <= NODE_ID_MAX)?;
    let ipv6 = behind(domain.host_prefix, group(number));
    let ipv6 = Ipv6Net::new_assert(Ipv6Addr::from_bits(ipv6.addr().to_bits() | u128::from(last)), 64);
    // The next 16 bits count hosts; the length is at most 16, so that the last octet is free for the link.
    let ipv4 = domain.host_prefix_ipv4.network().to_bits() | (u32::from(number) << 8) | u32::from(last);
    let ipv4 = Ipv4Net::new_assert(Ipv4Addr::from_bits(ipv4), 24);
    domain.host_prefix_ipv4.contains(&ipv4).then(|| [ipv4.into(), ipv6.into()])
}

/// The node takes the first address of the network that the host does not have.
fn with_gateway(host: IpNet) -> HostAddress {
    let node: IpAddr = match host {
        IpNet::V4(network) => {
            let base = network.network().to_bits() + u32::from(network.prefix_len() < 31);
            Ipv4Addr::from_bits(if network.addr().to_bits() == base { base + 1 } else { base }).into()
        }
        IpNet::V6(network) => {
            let base = network.network().to_bits() + u128::from(network.prefix_len() < 127);
            Ipv6Addr::from_bits(if network.addr().to_bits() == base { base + 1 } else { base }).into()
        }
    };
    HostAddress { host, node: Some(IpNet::new_assert(node, host.prefix_len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_takes_the_first_other_address() {
        let node = |host: &str| with_gateway(host.parse().unwrap()).node.unwrap().to_string();
        assert_eq!(node("192.0.2.10/24"), "192.0.2.1/24");
        assert_eq!(node("192.0.2.1/24"), "192.0.2.2/24");
        assert_eq!(node("192.0.2.1/31"), "192.0.2.0/31");
        assert_eq!(node("192.0.2.0/31"), "192.0.2.1/31");
        assert_eq!(node("2001:db8::1/64"), "2001:db8::2/64");
        assert_eq!(node("2001:db8::/127"), "2001:db8::1/127");
        assert_eq!(node("255.255.255.254/31"), "255.255.255.255/31");
    }
}
