//! Namespaces, interfaces and plain routes.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use segue_model::error::{KeyPath, Report};
use segue_model::topology::{Dataplane, LabelTunnel, Topology};
use segue_model::value::MacAddress;
use segue_plan::address::group;
use segue_plan::graph::{Graph, GraphLink, LabelGraph, UdpWay};
use segue_plan::{KernelEntry, Plan};

use crate::address::{self, HostAddress, NodeAddress};
use crate::plan::{Interface, LabHost, LabNode, LinkKind, Peer};
use crate::route::{NextHop, Route};

/// Longest name of an interface, octets.
const INTERFACE_NAME_MAX: usize = 15;

/// What the steps of planning share.
pub(crate) struct Builder<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) report: Report,
    pub(crate) nodes: Vec<NodeAddress>,
    pub(crate) hosts: IndexMap<String, Vec<HostAddress>>,
    pub(crate) graph: Graph,
    /// Where labels lead.
    label_graph: LabelGraph,
    /// Per link of the topology: the interface names at both ends.
    link_names: Vec<[String; 2]>,
    /// Per node.
    pub(crate) interfaces: Vec<Vec<Interface>>,
    host_interfaces: IndexMap<String, Interface>,
    pub(crate) hairpins: Vec<HairpinLink>,
    names: Vec<HashSet<String>>,
    links: u32,
}

/// One end of a link that is to be made.
pub(crate) struct NewEnd {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpNet>,
    pub(crate) port: bool,
}

/// A way back into a node (`hairpin.rs`).
pub(crate) struct HairpinLink {
    pub(crate) node: usize,
    pub(crate) table: u32,
    /// What the table sends out by.
    pub(crate) out: String,
    /// The link-layer address of the other end.
    pub(crate) back: MacAddress,
    pub(crate) reason: String,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(topology: &'a Topology) -> Self {
        let mut report = Report::default();
        let nodes = address::nodes(topology, &mut report);
        let hosts = address::hosts(topology, &mut report);
        let index = |name: &String| topology.nodes.get_index_of(name).unwrap_or_default();
        let graph_links = topology.links.iter().map(|link| GraphLink {
            ends: [index(&link.between[0]), index(&link.between[1])],
            weight: link.weight,
            mtu: link.mtu.unwrap_or(topology.domain.core_mtu),
        });
        let graph = Graph::new(nodes.len(), graph_links.collect());
        let udp_way = |tunnel: &LabelTunnel| UdpWay {
            ends: [index(&tunnel.between[0]), index(&tunnel.between[1])],
            weight: tunnel.weight,
        };
        let has_labels = |node: usize| nodes.get(node).is_some_and(|node| node.labels.is_some());
        let udp_ways: Vec<UdpWay> = topology.udp_tunnels.iter().map(udp_way).collect();
        let label_graph = LabelGraph::new(&graph, has_labels, &udp_ways);
        let mut builder = Self {
            topology,
            report,
            interfaces: vec![Vec::new(); nodes.len()],
            names: vec![HashSet::new(); nodes.len()],
            nodes,
            hosts,
            graph,
            label_graph,
            link_names: Vec::new(),
            host_interfaces: IndexMap::new(),
            hairpins: Vec::new(),
            links: 0,
        };
        builder.core_links();
        builder.access_links();
        builder
    }

    pub(crate) fn node_name(&self, node: usize) -> &'a str {
        self.topology.nodes.get_index(node).map_or("", |(name, _)| name)
    }

    pub(crate) fn dataplane(&self, node: usize) -> Dataplane {
        self.topology.nodes[node].dataplane
    }

    /// A name that no other interface of the node has: the wanted one, cut to size, with a number if it is taken.
    pub(crate) fn unique_name(&mut self, node: usize, wanted: &str, suffix: &str) -> String {
        let mut number = 1;
        loop {
            let end = if number == 1 { suffix.to_owned() } else { format!("{suffix}-{number}") };
            // Names are ASCII; `get` only makes sure.
            let name =
                format!("{}{end}", wanted.get(..wanted.len().min(INTERFACE_NAME_MAX - end.len())).unwrap_or("if"));
            if name != "lo" && self.names[node].insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }

    /// Both ends of a new link, with link-layer addresses that say which link it is.
    pub(crate) fn link(&mut self, kind: LinkKind, mtu: u32, reason: &str, ends: [NewEnd; 2]) -> [Interface; 2] {
        self.links += 1;
        let [_, a, b, c] = self.links.to_be_bytes();
        // 02: locally administered; 5e: Segue.
        let mac = |end: u8| MacAddress([0x02, 0x5e, a, b, c, end]);
        let peers = [1, 0]
            .map(|other: usize| Peer { namespace: ends[other].namespace.clone(), interface: ends[other].name.clone() });
        let [first, second] = ends;
        let [first_peer, second_peer] = peers;
        let make = |end: NewEnd, peer: Peer, number: u8| Interface {
            name: end.name,
            peer,
            link: kind,
            mtu,
            mac: mac(number),
            addresses: end.addresses,
            port: end.port,
            impaired: None,
            reason: reason.to_owned(),
        };
        [make(first, first_peer, 1), make(second, second_peer, 2)]
    }

    fn core_links(&mut self) {
        let mut parallel: IndexMap<(u16, u16), u16> = IndexMap::new();
        for link in &self.topology.links {
            let ends =
                [0, 1].map(|end: usize| self.topology.nodes.get_index_of(&link.between[end]).unwrap_or_default());
            let ids = ends.map(|node| self.nodes[node].id);
            let count = parallel.entry((ids[0].min(ids[1]), ids[0].max(ids[1]))).or_default();
            let (low, high, number) = (group(ids[0].min(ids[1])), group(ids[0].max(ids[1])), *count);
            *count += 1;
            let mut new_ends = Vec::new();
            for (end, node) in ends.iter().enumerate() {
                let is_high = u16::from(ids[end] > ids[1 - end]);
                let prefix = self.topology.domain.link_prefix;
                let address = address::tail(prefix, [low, high, number, is_high]);
                new_ends.push(NewEnd {
                    namespace: link.between[end].clone(),
                    name: self.unique_name(*node, &link.between[1 - end], ""),
                    addresses: vec![Ipv6Net::new_assert(address, 127).into()],
                    port: self.dataplane(*node) == Dataplane::Segue,
                });
            }
            let mtu = link.mtu.unwrap_or(self.topology.domain.core_mtu);
            let reason = format!("link between {} and {}, weight {}", link.between[0], link.between[1], link.weight);
            let Ok(new_ends) = <[NewEnd; 2]>::try_from(new_ends) else { continue };
            let mut interfaces = self.link(LinkKind::Core, mtu, &reason, new_ends);
            if let Some(impaired) = &link.impaired {
                for interface in &mut interfaces {
                    interface.impaired = Some(impaired.clone());
                }
            }
            self.link_names.push([interfaces[0].name.clone(), interfaces[1].name.clone()]);
            for (node, interface) in ends.into_iter().zip(interfaces) {
                self.interfaces[node].push(interface);
            }
        }
    }

    fn access_links(&mut self) {
        for (name, host) in &self.topology.hosts {
            let Some(addresses) = self.hosts.get(name).cloned() else { continue };
            let Some(node) = self.topology.nodes.get_index_of(&host.node) else { continue };
            let node_end = NewEnd {
                namespace: host.node.clone(),
                name: self.unique_name(node, name, ""),
                addresses: addresses.iter().filter_map(|address| address.node).collect(),
                port: self.dataplane(node) == Dataplane::Segue,
            };
            let host_end = NewEnd {
                namespace: name.clone(),
                name: host.node.clone(),
                addresses: addresses.iter().map(|address| address.host).collect(),
                port: false,
            };
            let mtu = host.mtu.unwrap_or(self.topology.domain.access_mtu);
            let reason = format!("host {name} is connected to node {}", host.node);
            let [node_side, host_side] = self.link(LinkKind::Access, mtu, &reason, [node_end, host_end]);
            self.interfaces[node].push(node_side);
            self.host_interfaces.insert(name.clone(), host_side);
        }
    }

    /// The ways from one node to another: interface and neighbour of each equal-cost link.
    pub(crate) fn next_hops(&self, from: usize, to: usize) -> Vec<NextHop> {
        self.hops(from, self.graph.first_links(from, to))
    }

    /// The same over nodes that labels lead to; none if they go in UDP.
    pub(crate) fn label_hops(&self, from: usize, to: usize) -> Vec<NextHop> {
        self.hops(from, self.label_graph.first_links(from, to))
    }

    fn hops(&self, from: usize, links: impl IntoIterator<Item = usize>) -> Vec<NextHop> {
        let hop = |link: usize| {
            let ends = &self.topology.links[link].between;
            let far = usize::from(ends[0] == self.node_name(from));
            let name = &self.link_names[link][1 - far];
            let peer = self.topology.nodes.get_index_of(&ends[far])?;
            let far_name = &self.link_names[link][far];
            let gateway = self.interfaces[peer].iter().find(|interface| interface.name == *far_name)?;
            Some(NextHop { gateway: gateway.addresses.first().map(IpNet::addr), interface: name.clone() })
        };
        links.into_iter().filter_map(hop).collect()
    }

    fn plain_routes(&self, from: usize) -> Vec<Route> {
        let mut routes = Vec::new();
        for to in (0..self.nodes.len()).filter(|to| *to != from) {
            let next_hops = self.next_hops(from, to);
            let Some(distance) = self.graph.distance(from, to).filter(|_| !next_hops.is_empty()) else { continue };
            let name = self.node_name(to);
            let ways = if next_hops.len() > 1 { format!(", {} equal ways", next_hops.len()) } else { String::new() };
            let mut destinations: Vec<(IpNet, String)> =
                vec![(IpNet::from(IpAddr::from(self.nodes[to].loopback)), format!("loopback of {name}"))];
            if self.dataplane(to) != Dataplane::Plain {
                destinations.push((self.nodes[to].locator.into(), format!("locator of {name}")));
            }
            for (host_name, host) in &self.topology.hosts {
                if host.node == name {
                    let list = self.hosts.get(host_name).into_iter().flatten().filter(|address| address.node.is_some());
                    destinations
                        .extend(list.map(|address| (address.host.trunc(), format!("host {host_name} at {name}"))));
                }
            }
            for (destination, what) in destinations {
                let source = matches!(destination, IpNet::V6(_)).then(|| self.nodes[from].loopback.into());
                let reason = format!("{what}: shortest path, distance {distance}{ways}");
                let next_hops = next_hops.clone();
                routes.push(Route { table: None, destination, next_hops, source, encap: None, reason });
            }
        }
        routes
    }

    /// All nodes, but for the desired states of agents; takes the interfaces.
    pub(crate) fn node_plans(&mut self, planned: &Plan) -> IndexMap<String, LabNode> {
        let plans = self.topology.nodes.iter().enumerate().map(|(index, (name, node))| {
            let NodeAddress { id, locator, loopback, labels } = self.nodes[index];
            let mut routes = self.plain_routes(index);
            routes.extend(planned.nodes.get(name).into_iter().flat_map(|plan| self.kernel_routes(index, &plan.kernel)));
            let (hairpin_routes, neighbours) = self.hairpin_routes(index);
            routes.extend(hairpin_routes);
            let plan = LabNode {
                id,
                dataplane: node.dataplane,
                loopback,
                locator,
                sids: self.topology.domain.of_node(node).has_sids(),
                labels,
                state: None,
                tunnel_source: (node.dataplane == Dataplane::Kernel).then_some(loopback),
                interfaces: Vec::new(),
                routes,
                neighbours,
                sysctls: router_sysctls(node.dataplane),
            };
            (name.clone(), plan)
        });
        let mut plans: IndexMap<String, LabNode> = plans.collect();
        for (plan, interfaces) in plans.values_mut().zip(std::mem::take(&mut self.interfaces)) {
            plan.interfaces = interfaces;
        }
        plans
    }

    /// All hosts; takes their interfaces.
    pub(crate) fn host_plans(&mut self) -> IndexMap<String, LabHost> {
        let mut interfaces = std::mem::take(&mut self.host_interfaces);
        let plan = |(name, host): (&String, &segue_model::topology::Host)| {
            let interface = interfaces.swap_remove(name)?;
            let routers = self.hosts.get(name)?.iter().filter_map(|address| address.node);
            let routes = routers.map(|router| Route {
                table: None,
                destination: default_route(&router),
                next_hops: vec![NextHop { gateway: Some(router.addr()), interface: interface.name.clone() }],
                source: None,
                encap: None,
                reason: format!("{} is the default router", host.node),
            });
            let routes = routes.collect();
            Some((name.clone(), LabHost { node: host.node.clone(), interface, routes, sysctls: host_sysctls() }))
        };
        self.topology.hosts.iter().filter_map(plan).collect()
    }

    /// The port of a node that a host is connected to.
    pub(crate) fn port_of_host(&self, host: &str) -> Option<String> {
        let node = self.topology.nodes.get_index_of(&self.topology.hosts.get(host)?.node)?;
        let leads = |one: &&Interface| one.port && one.link == LinkKind::Access && one.peer.namespace == host;
        self.interfaces[node].iter().find(leads).map(|interface| interface.name.clone())
    }

    /// What the planner wants of the node's own kernel, as routes.
    fn kernel_routes(&self, node: usize, entries: &[KernelEntry]) -> Vec<Route> {
        let route = |entry: &KernelEntry| {
            let interface = match &entry.towards {
                Some(there) => {
                    let there = self.topology.nodes.get_index_of(there)?;
                    self.next_hops(node, there).first()?.interface.clone()
                }
                None => self.interfaces[node].first()?.name.clone(),
            };
            Some(Route {
                table: None,
                destination: entry.destination,
                next_hops: vec![NextHop { gateway: None, interface }],
                source: None,
                encap: Some(entry.encap.clone()),
                reason: entry.reason.clone(),
            })
        };
        entries.iter().filter_map(route).collect()
    }

    pub(crate) fn error(&mut self, key: &KeyPath, message: impl Into<String>, remedy: impl Into<String>) {
        self.report.error(key, message, remedy);
    }
}

/// All addresses of a family.
pub(crate) fn default_route(like: &IpNet) -> IpNet {
    match like {
        IpNet::V4(_) => Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
        IpNet::V6(_) => Ipv6Net::new_assert(std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn sysctls(list: &[(&str, &str)]) -> IndexMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Addresses work at once, without duplicate address detection; routes come from the plan only.
const COMMON: [(&str, &str); 4] = [
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.all.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

/// Forwarding without the reverse path filter: what comes back from a function has a source that lies elsewhere.
pub(crate) const FORWARDING: [(&str, &str); 6] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    // A function with one interface sends out where it received.
    ("net.ipv4.conf.all.send_redirects", "0"),
    ("net.ipv4.conf.default.send_redirects", "0"),
];

fn host_sysctls() -> IndexMap<String, String> {
    sysctls(&COMMON)
}

/// sysctls of every forwarding namespace.
pub(crate) fn forwarding_sysctls() -> IndexMap<String, String> {
    sysctls(&[COMMON.as_slice(), FORWARDING.as_slice()].concat())
}

/// sysctls of a function's namespace. A function that puts its own address in front of packets (masquerading, SNAT) gets them back with
/// it when the chain visits it a second time: without `accept_local` its kernel takes them for forged.
pub(crate) fn function_sysctls() -> IndexMap<String, String> {
    let mut sysctls = forwarding_sysctls();
    sysctls.insert("net.ipv4.conf.all.accept_local".into(), "1".into());
    sysctls
}

fn router_sysctls(dataplane: Dataplane) -> IndexMap<String, String> {
    let mut sysctls = forwarding_sysctls();
    if dataplane == Dataplane::Kernel {
        // A flow label from the inner flow, so that equal-cost paths are used.
        sysctls.insert("net.ipv6.seg6_flowlabel".into(), "1".into());
    }
    sysctls
}
