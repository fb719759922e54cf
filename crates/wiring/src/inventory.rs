//! From a topology to an inventory for the planner, but for the attachments, which follow from what the planner asks for.

use ipnet::IpNet;

use segue_plan::inventory::{Customer, Function, Inventory, Link, Node, Reachability};

use crate::address::{HostAddress, NodeAddress};
use crate::build::Builder;

/// The inventory of a topology whose addresses are known.
pub(crate) fn of_topology(builder: &Builder<'_>) -> Inventory {
    let topology = builder.topology;
    let nodes = topology.nodes.iter().zip(&builder.nodes).map(|((name, node), address)| {
        let NodeAddress { locator, loopback, labels, .. } = *address;
        let sids = topology.domain.of_node(node).has_sids();
        (name.clone(), Node { dataplane: node.dataplane, locator, loopback, sids, labels, hairpins: Vec::new() })
    });
    let links = topology.links.iter().map(|link| Link {
        between: link.between.clone(),
        weight: link.weight,
        mtu: link.mtu.unwrap_or(topology.domain.core_mtu),
    });
    let customers = topology.hosts.iter().filter_map(|(name, host)| {
        let addresses: &[HostAddress] = builder.hosts.get(name)?;
        let customer = Customer {
            node: host.node.clone(),
            prefixes: addresses.iter().map(|address| IpNet::from(address.host.addr())).collect(),
            // What is on one link with another host lies behind no node alone.
            networks: addresses.iter().filter(|one| one.node.is_some()).map(|one| one.host.trunc()).collect(),
            mtu: host.mtu.unwrap_or(topology.domain.access_mtu),
            port: builder.port_of_host(name),
        };
        Some((name.clone(), customer))
    });
    Inventory {
        nodes: nodes.collect(),
        reachability: Reachability::Links(links.collect()),
        tunnels: topology.udp_tunnels.clone(),
        functions: topology.functions.iter().map(|(name, definition)| (name.clone(), function(definition))).collect(),
        customers: customers.collect(),
        chains: topology.chains.clone(),
        dataplane: topology.domain.dataplane,
    }
}

/// A function without attachments.
pub(crate) fn function(function: &segue_model::topology::Function) -> Function {
    Function {
        node: function.node.clone(),
        kind: function.runs_in.kind(),
        aware: function.is_aware(),
        capabilities: function.capabilities,
        proxy: function.proxy,
        interfaces: function.interfaces(),
        inner: function.inner.clone(),
        argument_length: function.firewall().map_or(0, |firewall| firewall.argument_length),
        may_change: function.may_change,
        may_rewrite: function.may_rewrite.clone(),
        on_failure: function.on_failure.unwrap_or_default(),
        backup: function.backup.clone(),
        watch: function.watch,
        attachments: Vec::new(),
    }
}
