//! The desired state of a node's agent.

use std::net::{IpAddr, Ipv4Addr};

use segue_model::error::{KeyPath, Report};
use segue_model::firewall::Firewall;
use segue_model::label::Mpls;
use segue_model::node::{Domain, NodeState, Port, PortMode, PortRole, Settings};
use segue_model::topology::Topology;
use segue_plan::NodePlan;

use crate::plan::{Interface, LabNode, LinkKind};

/// RFC 7600 section 4.8: what an IPv6-only node sends ICMPv4 errors from.
const IPV4_DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// A node's desired state, from its interfaces and from what chains add.
pub(crate) fn node_state(
    name: &str,
    node: &LabNode,
    topology: &Topology,
    planned: NodePlan,
    report: &mut Report,
) -> NodeState {
    let role = |kind| match kind {
        LinkKind::Core => PortRole::Core,
        // What comes in by the one end has left the domain by the other.
        LinkKind::Access | LinkKind::Hairpin => PortRole::Access,
        LinkKind::Service => PortRole::Service,
    };
    let domain = &topology.domain;
    // A host's firewall is that of the port that it is connected to.
    let firewall = |interface: &Interface| match interface.link {
        LinkKind::Access => topology.hosts.get(&interface.peer.namespace)?.firewall.clone(),
        LinkKind::Core | LinkKind::Service | LinkKind::Hairpin => None,
    };
    let firewalls = topology.functions.iter().filter(|(_, function)| function.node == name);
    let firewalls = firewalls.filter_map(|(name, function)| {
        let rules = function.firewall()?.clone();
        Some(Firewall { name: name.clone(), ..rules })
    });
    let port = |interface: &Interface| Port {
        name: interface.name.clone(),
        role: role(interface.link),
        mode: PortMode::default(),
        accept_hmac: false,
        l2_policy: planned.frames.get(&interface.name).cloned(),
        vlan: None,
        firewall: firewall(interface),
    };
    let ports = node.interfaces.iter().map(port).collect();
    let ipv4 =
        node.interfaces.iter().flat_map(|interface| &interface.addresses).find_map(|address| match address.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
    let block = node.labels.map(|labels| labels.block);
    // No host may send labels in UDP to a node that takes some, be it another one than its own.
    let infrastructure_prefixes = match topology.udp_tunnels.is_empty() {
        true => Vec::new(),
        false => vec![domain.loopback_prefix, domain.link_prefix],
    };
    let udp_endpoints = planned.udp_endpoints;
    let mpls = block.map(|block| Mpls {
        srgb: vec![domain.srgb()],
        srlb: vec![block],
        ecn: domain.label_ecn.clone(),
        udp_endpoints,
        ..Mpls::default()
    });
    let state = NodeState {
        node: name.to_owned(),
        source_address: node.loopback,
        source_address_ipv4: Some(ipv4.unwrap_or(IPV4_DUMMY)),
        locator: Some(node.locator),
        domain: Domain {
            sid_blocks: vec![domain.sid_block],
            source_prefixes: vec![domain.loopback_prefix],
            infrastructure_prefixes,
            ..Domain::default()
        },
        hmac_keys: Vec::new(),
        firewalls: firewalls.collect(),
        ports,
        functions: Default::default(),
        sids: planned.sids,
        mpls,
        labels: planned.labels.into_iter().map(|entry| entry.label).collect(),
        policies: planned.policies,
        steering: planned.steering,
        settings: Settings::default(),
    };
    if let Err(errors) = state.validate() {
        let key = KeyPath::root().at("nodes").at(name);
        for error in &errors {
            let message = format!("its desired state would not be accepted: {}: {}", error.key, error.message);
            report.error(&key, message, error.remedy.clone());
        }
    }
    state
}
