//! From a plan to what `ip`, `ethtool` and `/proc/sys` are told, per namespace. Everything here is pure.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

use indexmap::IndexMap;
use segue_host::sysctl;
use segue_model::node::NodeState;
use segue_model::plan::{Interface, Neighbour, Plan, Route, Rule};
use segue_model::topology::Dataplane;

use crate::names::{self, LabPaths};
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
    /// Routes besides connected ones.
    pub routes: &'a [Route],
    /// Which tables routes are looked up in, by incoming interface.
    pub rules: &'a [Rule],
    /// Neighbours that need not be asked for.
    pub neighbours: &'a [Neighbour],
    /// Address of `lo`.
    pub loopback: Option<Ipv6Addr>,
    /// Source of the kernel's own encapsulations.
    pub tunnel_source: Option<Ipv6Addr>,
    /// Desired state for its agent.
    pub state: Option<&'a NodeState>,
    sysctls: &'a IndexMap<String, String>,
}

/// All namespaces of a plan: nodes, hosts, functions.
#[must_use]
pub fn spaces(plan: &Plan) -> Vec<Space<'_>> {
    let nodes = plan.nodes.iter().map(|(name, node)| Space {
        name,
        kind: match node.dataplane {
            Dataplane::Segue => Kind::Segue,
            Dataplane::Kernel => Kind::Kernel,
            Dataplane::Plain => Kind::Plain,
        },
        interfaces: &node.interfaces,
        routes: &node.routes,
        rules: &[],
        neighbours: &[],
        loopback: Some(node.loopback),
        tunnel_source: node.tunnel_source,
        state: node.state.as_ref(),
        sysctls: &node.sysctls,
    });
    let hosts = plan.hosts.iter().map(|(name, host)| Space {
        name,
        kind: Kind::Host,
        interfaces: std::slice::from_ref(&host.interface),
        routes: &host.routes,
        rules: &[],
        neighbours: &[],
        loopback: None,
        tunnel_source: None,
        state: None,
        sysctls: &host.sysctls,
    });
    // Those inside a node are a part of it, those on TAP are behind its devices.
    let functions =
        plan.functions.iter().filter(|(_, function)| function.has_namespace()).map(|(name, function)| Space {
            name,
            kind: Kind::Function,
            interfaces: &function.interfaces,
            routes: &function.routes,
            rules: &function.rules,
            neighbours: &function.neighbours,
            loopback: None,
            tunnel_source: None,
            state: None,
            sysctls: &function.sysctls,
        });
    nodes.chain(hosts).chain(functions).collect()
}

/// `ip -batch` inside a new namespace: whose it is, and `lo`.
#[must_use]
pub fn mark_batch(paths: &LabPaths, space: &Space<'_>) -> String {
    // One word for `ip -batch`, hence the quotes.
    format!("link set dev lo alias \"{}\" up\n", names::mark(&paths.lab, space.name))
}

/// `ip -batch` inside a namespace: the veth pairs whose first end lies there, and its TAP devices. Both ends of a pair are made
/// where they belong, so that their interface numbers count from 2 in each namespace.
#[must_use]
pub fn links_batch(paths: &LabPaths, plan: &Plan, space: &Space<'_>) -> String {
    let mut batch = String::new();
    for [(here, near), (there, far)] in plan.links() {
        if here != space.name {
            continue;
        }
        if plan.functions.get(there).is_some_and(|function| function.tap) {
            let _ = writeln!(batch, "tuntap add name {} mode tap", near.name);
            let _ = writeln!(batch, "link set dev {} address {} mtu {}", near.name, near.mac, near.mtu);
        } else {
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
    }
    batch
}

/// `ip -batch` inside a namespace: interfaces up. Every interface must exist by then.
#[must_use]
pub fn up_batch(space: &Space<'_>) -> String {
    space.interfaces.iter().map(|interface| format!("link set dev {} up\n", interface.name)).collect()
}

/// `ip -batch` inside a namespace: addresses. Every link must be up at both ends by then, so that the kernel puts connected
/// routes in at once.
#[must_use]
pub fn addresses_batch(space: &Space<'_>) -> String {
    let mut batch = String::new();
    if let Some(address) = space.loopback {
        let _ = writeln!(batch, "addr add {address}/128 dev lo nodad");
    }
    for interface in space.interfaces {
        for address in &interface.addresses {
            let dad = if address.addr().is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(batch, "addr add {address} dev {}{dad}", interface.name);
        }
    }
    if let Some(source) = space.tunnel_source {
        let _ = writeln!(batch, "sr tunsrc set {source}");
    }
    batch
}

/// `ip -4 -batch` and `ip -6 -batch` inside a namespace: routes, neighbours, and which table is for what. A batch has one family for all of its lines.
#[must_use]
pub fn routes_batches(space: &Space<'_>) -> [(&'static str, String); 2] {
    ["-4", "-6"].map(|family| {
        let routes = space.routes.iter().filter(|route| route.ip_family() == family);
        let routes = routes.map(|route| route.ip_arguments()[1..].to_vec());
        let neighbours = space.neighbours.iter().filter(|neighbour| neighbour.address.is_ipv6() == (family == "-6"));
        let rules = space.rules.iter().map(Rule::ip_arguments);
        let all = routes.chain(neighbours.map(Neighbour::ip_arguments)).chain(rules);
        (family, all.map(|arguments| arguments.join(" ") + "\n").collect())
    })
}

/// Files below `/proc/sys` with their values, in order: first what interfaces inherit when they are made, then the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sysctls {
    /// To write before any interface but `lo` exists.
    pub before_links: Vec<(String, String)>,
    /// To write once the interfaces exist, before they are up.
    pub after_links: Vec<(String, String)>,
}

/// A namespace's sysctls as files.
#[must_use]
pub fn sysctls(space: &Space<'_>) -> Sysctls {
    let mut files = Sysctls::default();
    for (key, value) in space.sysctls {
        let path = sysctl::file(key);
        let of_interface = space.interfaces.iter().any(|interface| path.split('/').any(|part| part == interface.name));
        let list = if of_interface { &mut files.after_links } else { &mut files.before_links };
        list.push((path, value.clone()));
    }
    files
}

/// Arguments of `ethtool` for each interface whose peer runs XDP: an XDP redirect into a veth is dropped unless its far end
/// polls (GRO on), and loses checksums that the sender left to the hardware (so it must not: tx off).
#[must_use]
pub fn offloads<'a>(space: &Space<'a>) -> Vec<[&'a str; 6]> {
    space
        .interfaces
        .iter()
        .filter(|interface| interface.peer_xdp)
        .map(|interface| ["-K", interface.name.as_str(), "gro", "on", "tx", "off"])
        .collect()
}

/// A node's desired state with the names that namespaces of functions have in this lab.
#[must_use]
pub fn desired_state(paths: &LabPaths, state: &NodeState) -> NodeState {
    let mut state = state.clone();
    for netfilter in state.sids.iter_mut().filter_map(|sid| sid.netfilter.as_mut()) {
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
  f: { node: a, sysctls: { net.ipv4.conf.west.rp_filter: '0', net.core.somaxconn: '9' } }
chains:
  c: { from: h, to: { node: t, prefixes: [2001:db8:77::/64] }, via: [f], reverse: false }
";

    fn with_plan<T>(work: impl FnOnce(&LabPaths, &Plan) -> T) -> T {
        let topology = load_topology(TOPOLOGY, "test").unwrap_or_else(|error| panic!("{error}"));
        let plan = segue_model::plan::plan(&topology).unwrap_or_else(|error| panic!("{error}"));
        work(&LabPaths::new(&Roots::default(), "w").unwrap(), &plan)
    }

    #[test]
    fn every_link_is_made_once_in_both_namespaces() {
        with_plan(|paths, plan| {
            let batches: String = spaces(plan).iter().map(|space| links_batch(paths, plan, space)).collect();
            assert_eq!(batches.lines().count(), plan.links().len(), "{batches}");
            // A bare `t` would be read as an option's abbreviation.
            assert!(batches.lines().all(|line| line.starts_with("link add name ")), "{batches}");
            assert!(batches.contains("netns sg-w-t "), "{batches}");
        });
    }

    #[test]
    fn addresses_are_usable_at_once() {
        with_plan(|_, plan| {
            let batches: String = spaces(plan).iter().map(addresses_batch).collect();
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
                let [(_, v4), (_, v6)] = routes_batches(&space);
                assert_eq!(v4.lines().count() + v6.lines().count(), space.routes.len());
                assert!(v4.lines().chain(v6.lines()).all(|line| line.starts_with("route replace ")));
            }
        });
    }

    #[test]
    fn shared_functions_have_tables_and_neighbours_in_each_family() {
        let text = TOPOLOGY.replace("f: { node: a,", "f: { node: a, proxy: exact,").replace("via: [f]", "via: [f, g]");
        let text = text.replace("chains:", "  g: { node: a, kind: netfilter }\nchains:");
        let topology = load_topology(&text, "test").unwrap_or_else(|error| panic!("{error}"));
        let plan = segue_model::plan::plan(&topology).unwrap_or_else(|error| panic!("{error}"));
        let all = spaces(&plan);
        let function = all.iter().find(|space| space.name == "f").unwrap();
        let [(_, v4), (_, v6)] = routes_batches(function);
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
    fn sysctls_of_interfaces_wait_for_them() {
        with_plan(|_, plan| {
            let spaces = spaces(plan);
            let function = spaces.iter().find(|space| space.name == "f").unwrap();
            let files = sysctls(function);
            assert_eq!(files.after_links, [("net/ipv4/conf/west/rp_filter".to_owned(), "0".to_owned())]);
            assert!(files.before_links.contains(&("net/core/somaxconn".to_owned(), "9".to_owned())), "{files:?}");
        });
    }
}
