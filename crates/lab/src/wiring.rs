//! From a plan to the network of each namespace, and to the links between nodes and hosts. Everything here is pure.

use std::fmt::Write;
use std::net::IpAddr;

use indexmap::IndexMap;
use segue_host::Network;
use segue_host::network::{self, Line};
use segue_model::node::NodeState;
use segue_model::topology::Dataplane;
use segue_wiring::{Interface, LabFunction, LabPlan, Neighbour, Route, Rule};

use crate::names::LabPaths;
use crate::state::Kind;

/// One namespace of a plan, whatever it is.
#[derive(Debug, Clone)]
pub struct Space<'a> {
    /// Its name in the topology.
    pub name: &'a str,
    /// What it is.
    pub kind: Kind,
    /// Interfaces besides `lo`.
    pub interfaces: &'a [Interface],
    /// What the kernel is told of them.
    pub network: Network,
    /// Desired state for its agent.
    pub state: Option<&'a NodeState>,
}

/// All namespaces of a plan: nodes, hosts, functions.
#[must_use]
pub fn spaces(plan: &LabPlan) -> Vec<Space<'_>> {
    let nodes = plan.nodes.iter().map(|(name, node)| {
        let mut network = network(&node.interfaces, &node.routes, &node.sysctls);
        network.lines.extend(node.neighbours.iter().map(neighbour));
        network.loopback.push(node.loopback.into());
        network.settings.extend(node.tunnel_source.map(|source| format!("sr tunsrc set {source}")));
        let kind = match node.dataplane {
            Dataplane::Segue => Kind::Segue,
            Dataplane::Kernel => Kind::Kernel,
            Dataplane::Plain => Kind::Plain,
        };
        Space { name, kind, interfaces: &node.interfaces, network, state: node.state.as_ref() }
    });
    let hosts = plan.hosts.iter().map(|(name, host)| {
        let interfaces = std::slice::from_ref(&host.interface);
        let network = network(interfaces, &host.routes, &host.sysctls);
        Space { name, kind: Kind::Host, interfaces, network, state: None }
    });
    // Those inside a node are a part of it, those on TAP are behind its devices.
    let functions = plan.functions.iter().filter(|(_, function)| function.has_namespace());
    let functions = functions.map(|(name, function)| {
        let (interfaces, network) = (function.interfaces.as_slice(), function_network(function));
        Space { name, kind: Kind::Function, interfaces, network, state: None }
    });
    nodes.chain(hosts).chain(functions).collect()
}

/// The network of a function that has a namespace.
#[must_use]
pub fn function_network(function: &LabFunction) -> Network {
    let mut network = network(&function.interfaces, &function.routes, &function.sysctls);
    let rule = |rule: &Rule| Line { families: &["-4", "-6"], words: rule.ip_arguments().join(" ") };
    network.lines.extend(function.neighbours.iter().map(neighbour));
    network.lines.extend(function.rules.iter().map(rule));
    network
}

fn neighbour(neighbour: &Neighbour) -> Line {
    let families: &[&'static str] = if neighbour.address.is_ipv6() { &["-6"] } else { &["-4"] };
    Line { families, words: neighbour.ip_arguments().join(" ") }
}

fn network(interfaces: &[Interface], routes: &[Route], sysctls: &IndexMap<String, String>) -> Network {
    let interface = |interface: &Interface| network::Interface {
        name: interface.name.clone(),
        addresses: interface.addresses.clone(),
    };
    let route = |route: &Route| Line {
        families: if route.ip_family() == "-6" { &["-6"] } else { &["-4"] },
        words: route.ip_arguments()[1..].join(" "),
    };
    Network {
        interfaces: interfaces.iter().map(interface).collect(),
        lines: routes.iter().map(route).collect(),
        sysctls: sysctls.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        ..Network::default()
    }
}

/// `ip -batch` inside the namespace of a node or host: its TAP devices of impaired links, and the veth pairs to other nodes and hosts whose
/// first end lies there. Both ends of
/// a pair are made where they belong, so that their interface numbers count from 2 in each namespace.
#[must_use]
pub fn links_batch(paths: &LabPaths, plan: &LabPlan, space: &Space<'_>) -> String {
    let mut batch = String::new();
    for tap in space.interfaces.iter().filter(|interface| interface.impaired.is_some()) {
        let Interface { name, mac, mtu, .. } = tap;
        let _ = writeln!(batch, "tuntap add name {name} mode tap\nlink set dev {name} address {mac} mtu {mtu}");
    }
    let mine = plan.links().into_iter().filter(|[(here, _), _]| *here == space.name);
    // A function's runtime makes its links; the relay connects impaired ones.
    let mine = mine.filter(|[(_, near), (there, _)]| !plan.functions.contains_key(*there) && near.impaired.is_none());
    for [(_, near), (there, far)] in mine {
        let _ = writeln!(
            batch,
            "link add name {} address {} mtu {} type veth peer name {} netns {} address {} mtu {}",
            near.name,
            near.mac,
            near.mtu,
            far.name,
            paths.namespace(there),
            far.mac,
            far.mtu
        );
    }
    batch
}

/// A node's desired state with the names that namespaces of functions have in this lab.
#[must_use]
pub fn desired_state(paths: &LabPaths, state: &NodeState) -> NodeState {
    let mut state = state.clone();
    let of_labels = state.labels.iter_mut().filter_map(|label| label.netfilter.as_mut());
    for netfilter in state.sids.iter_mut().filter_map(|sid| sid.netfilter.as_mut()).chain(of_labels) {
        netfilter.namespace = paths.namespace(&netfilter.namespace);
    }
    state
}

/// The first IPv4 and IPv6 address of an interface.
#[must_use]
pub fn first_addresses(interface: &Interface) -> [Option<IpAddr>; 2] {
    let addresses = || interface.addresses.iter().map(ipnet::IpNet::addr);
    [addresses().find(IpAddr::is_ipv4), addresses().find(IpAddr::is_ipv6)]
}

#[cfg(test)]
mod tests {
    use segue_model::load::load_topology;

    use super::*;
    use crate::names::Roots;

    const TOPOLOGY: &str = "
name: w
nodes: { a: {}, t: { dataplane: kernel } }
hosts: { h: { node: a } }
links: [{ between: [a, t] }]
functions:
  f: { node: a, namespace: { sysctls: { net.ipv4.conf.west.rp_filter: '0', net.core.somaxconn: '9' } } }
chains:
  c: { from: h, to: { node: t, prefixes: [2001:db8:77::/64] }, via: [f], reverse: false }
";

    fn with_plan<T>(work: impl FnOnce(&LabPaths, &LabPlan) -> T) -> T {
        let topology = load_topology(TOPOLOGY, "test").unwrap_or_else(|error| panic!("{error}"));
        let plan = segue_wiring::plan(&topology).unwrap_or_else(|error| panic!("{error}"));
        work(&LabPaths::new(&Roots::default(), "w").unwrap(), &plan)
    }

    #[test]
    fn every_link_is_made_once_in_both_namespaces() {
        with_plan(|paths, plan| {
            let batches: String = spaces(plan).iter().map(|space| links_batch(paths, plan, space)).collect();
            // Two of them are the function's.
            assert_eq!(batches.lines().count() + 2, plan.links().len(), "{batches}");
            // A bare `t` would be read as an option's abbreviation.
            assert!(batches.lines().all(|line| line.starts_with("link add name ")), "{batches}");
            assert!(batches.contains("netns sg-w-t "), "{batches}");
        });
    }

    #[test]
    fn addresses_are_usable_at_once() {
        with_plan(|_, plan| {
            let batches: String = spaces(plan).iter().map(|space| space.network.addresses()).collect();
            assert!(
                batches
                    .lines()
                    .filter(|line| line.contains(':'))
                    .all(|line| line.ends_with("nodad") || line.starts_with("sr "))
            );
            assert!(batches.contains("/128 dev lo nodad"), "{batches}");
        });
    }

    #[test]
    fn routes_are_sorted_by_family() {
        with_plan(|_, plan| {
            for space in spaces(plan) {
                let [v4, v6] = ["-4", "-6"].map(|family| space.network.routes(family));
                assert_eq!(v4.lines().count() + v6.lines().count(), space.network.lines.len());
                assert!(v4.lines().chain(v6.lines()).all(|line| line.starts_with("route replace ")));
            }
        });
    }

    #[test]
    fn shared_functions_have_tables_and_neighbours_in_each_family() {
        let text = TOPOLOGY.replace("f: { node: a,", "f: { node: a, proxy: exact,").replace("via: [f]", "via: [f, g]");
        let text = text.replace("chains:", "  g: { node: a, netfilter: {} }\nchains:");
        let topology = load_topology(&text, "test").unwrap_or_else(|error| panic!("{error}"));
        let plan = segue_wiring::plan(&topology).unwrap_or_else(|error| panic!("{error}"));
        let all = spaces(&plan);
        let function = all.iter().find(|space| space.name == "f").unwrap();
        let [v4, v6] = ["-4", "-6"].map(|family| function.network.routes(family));
        for (batch, address) in [(v4, "100.64.0.0"), (v6, "fc00:5ec::1:1:0:0")] {
            assert!(batch.contains(&format!("neigh replace {address} lladdr ")), "{batch}");
            assert!(batch.contains("rule add pref 100 iif west lookup 100\n"), "{batch}");
            assert!(batch.contains("dev east table 100\n"), "{batch}");
        }
        let state = plan.nodes["a"].state.as_ref().unwrap();
        let paths = LabPaths::new(&Roots::default(), "w").unwrap();
        let state = desired_state(&paths, state);
        let names: Vec<_> =
            state.sids.iter().filter_map(|sid| Some(sid.netfilter.as_ref()?.namespace.as_str())).collect();
        assert_eq!(names, ["sg-w-g"]);
    }

    #[test]
    fn netfilter_behind_a_label_is_in_a_namespace_of_the_lab() {
        let text = "
name: w
domain: { dataplane: sr-mpls }
nodes: { a: {}, b: {}, c: {} }
hosts: { h: { node: a }, i: { node: c } }
links: [{ between: [a, b] }, { between: [b, c] }]
functions: { g: { node: b, netfilter: {} } }
chains: { c: { from: h, to: i, via: [g] } }
";
        let topology = load_topology(text, "test").unwrap_or_else(|error| panic!("{error}"));
        let plan = segue_wiring::plan(&topology).unwrap_or_else(|error| panic!("{error}"));
        let state =
            desired_state(&LabPaths::new(&Roots::default(), "w").unwrap(), plan.nodes["b"].state.as_ref().unwrap());
        let names = state.labels.iter().filter_map(|label| Some(label.netfilter.as_ref()?.namespace.as_str()));
        assert_eq!(names.collect::<Vec<_>>(), ["sg-w-g"]);
    }

    #[test]
    fn sysctls_of_interfaces_wait_for_them() {
        with_plan(|_, plan| {
            let spaces = spaces(plan);
            let function = spaces.iter().find(|space| space.name == "f").unwrap();
            let sysctls = &function.network.sysctls;
            let (late, early): (Vec<_>, Vec<_>) =
                sysctls.iter().partition(|(key, _)| function.network.names_interface(key));
            assert_eq!(late, [&("net.ipv4.conf.west.rp_filter".to_owned(), "0".to_owned())]);
            assert!(early.contains(&&("net.core.somaxconn".to_owned(), "9".to_owned())), "{early:?}");
        });
    }
}
