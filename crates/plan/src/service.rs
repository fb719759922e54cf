//! Links between nodes and functions, and the functions' own routes.

use std::net::Ipv4Addr;

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::address;
use crate::build::{Builder, NewEnd, forwarding_sysctls};
use crate::chain::{Family, Lane, Stop};
use crate::shared::{self, Shared};
use crate::{Direction, FunctionPlan, Interface, LinkKind, Neighbour, NextHop, Route, Rule};
use segue_model::check;
use segue_model::error::KeyPath;
use segue_model::topology::{Function, Interfaces};
use segue_model::value::MacAddress;

/// How one direction of a chain goes through a function.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    /// IFACE-OUT: the node's interface towards the function.
    pub(super) out: String,
    /// IFACE-IN: the node's interface on which packets come back.
    pub(super) back: String,
    /// The function's link-layer address behind IFACE-OUT.
    pub(super) mac: MacAddress,
}

/// A service link: both interfaces, and the node's addresses as next hops for the function.
pub(super) struct ServiceLink {
    pub(super) node_interface: String,
    pub(super) node_mac: MacAddress,
    pub(super) function_interface: Interface,
    pub(super) gateways: Vec<IpNet>,
}

/// A service link that is to be made.
pub(super) struct NewServiceLink<'a> {
    pub(super) function: &'a str,
    pub(super) node: usize,
    /// The node's suffix and the function's name for it.
    pub(super) suffix: [&'a str; 2],
    pub(super) families: &'a [Family],
    pub(super) mtu: u32,
    pub(super) reason: String,
}

/// What a function's namespace gets from the chains that visit it.
#[derive(Default)]
pub(super) struct Visits {
    interfaces: Vec<Interface>,
    /// Of functions that several chains share: routes, rules and neighbours that serve all of them.
    pub(super) shared_routes: Vec<Route>,
    pub(super) rules: Vec<Rule>,
    pub(super) neighbours: Vec<Neighbour>,
    /// Destinations that visiting traffic has, each with the way out of the function.
    routes: Vec<Destination>,
    /// Ways for what the function itself sends to the sources of a chain without reverse direction.
    answers: Vec<Destination>,
}

struct Destination {
    chain: String,
    key: KeyPath,
    prefix: IpNet,
    next_hop: NextHop,
}

/// Makes service links and remembers what functions need.
#[derive(Default)]
pub(super) struct Services {
    pub(super) visits: IndexMap<String, Visits>,
    pub(super) shared: IndexMap<String, Shared>,
    /// Per node: service links made so far.
    per_node: IndexMap<usize, u16>,
    ipv4_links: u32,
}

impl Services {
    /// The ways of a lane through one of its functions, per direction.
    pub(super) fn passages(
        &mut self,
        builder: &mut Builder<'_>,
        lane: &Lane<'_>,
        stop: &Stop,
    ) -> IndexMap<Direction, Passage> {
        let Stop::Function { name, node } = stop else { return IndexMap::new() };
        if builder.topology.approach(name).is_some_and(|(approach, _)| approach.is_shared()) {
            return IndexMap::new();
        }
        let interfaces = builder.topology.functions.get(name).map(Function::interfaces).unwrap_or_default();
        let mut passages = IndexMap::new();
        match interfaces {
            Interfaces::Two => {
                let west = self.link(builder, lane, name, *node, ["w", "west"]);
                let east = self.link(builder, lane, name, *node, ["e", "east"]);
                for direction in lane.directions() {
                    let (out, back) = match direction {
                        Direction::Forward => (&west, &east),
                        Direction::Reverse => (&east, &west),
                    };
                    passages.insert(*direction, self.pass(lane, name, *direction, out, back));
                }
            }
            Interfaces::One => {
                for direction in lane.directions() {
                    let suffix = if *direction == Direction::Forward { ["f", "forward"] } else { ["r", "reverse"] };
                    let link = self.link(builder, lane, name, *node, suffix);
                    passages.insert(*direction, self.pass(lane, name, *direction, &link, &link));
                }
            }
        }
        passages
    }

    /// A pair of interfaces, or one of it, for one chain.
    fn link(
        &mut self,
        builder: &mut Builder<'_>,
        lane: &Lane<'_>,
        function: &str,
        node: usize,
        suffix: [&str; 2],
    ) -> ServiceLink {
        let family = if lane.split { format!(" ({})", lane.families[0].suffix()) } else { String::new() };
        let reason = format!(
            "{} side of function {function} for chain {}{family}: one interface in serves one proxy SID",
            suffix[1], lane.chain
        );
        let mtu = service_mtu(builder, lane);
        self.new_link(builder, NewServiceLink { function, node, suffix, families: &lane.families, mtu, reason })
    }

    /// Both ends of a new service link.
    pub(super) fn new_link(&mut self, builder: &mut Builder<'_>, new: NewServiceLink<'_>) -> ServiceLink {
        let NewServiceLink { function, node, suffix, families, mtu, reason } = new;
        let count = self.per_node.entry(node).or_default();
        *count += 1;
        let count = *count;
        let (mut node_addresses, mut function_addresses) = (Vec::new(), Vec::new());
        for family in families {
            for (end, addresses) in [(0, &mut node_addresses), (1, &mut function_addresses)] {
                addresses.extend(self.address(builder, *family, node, count, end));
            }
        }
        if families.contains(&Family::V4) {
            self.ipv4_links += 1;
        }
        let node_name = builder.node_name(node).to_owned();
        let visits = self.visits.entry(function.to_owned()).or_default();
        let taken = |name: &str| visits.interfaces.iter().any(|interface| interface.name == name);
        let numbered = (2..).map(|number| format!("{}{number}", suffix[1]));
        let function_name = std::iter::once(suffix[1].to_owned()).chain(numbered).find(|name| !taken(name));
        let node_end = NewEnd {
            namespace: node_name.clone(),
            name: builder.unique_name(node, function, &format!("-{}", suffix[0])),
            addresses: node_addresses.clone(),
            xdp: true,
        };
        let function_end = NewEnd {
            namespace: function.to_owned(),
            name: function_name.unwrap_or_default(),
            addresses: function_addresses,
            xdp: false,
        };
        let [node_interface, function_interface] =
            builder.link(LinkKind::Service, mtu, &reason, [node_end, function_end]);
        let (name, mac) = (node_interface.name.clone(), node_interface.mac);
        builder.interfaces[node].push(node_interface);
        visits.interfaces.push(function_interface.clone());
        ServiceLink { node_interface: name, node_mac: mac, function_interface, gateways: node_addresses }
    }

    fn address(&self, builder: &mut Builder<'_>, family: Family, node: usize, count: u16, end: u16) -> Option<IpNet> {
        let domain = &builder.topology.domain;
        match family {
            Family::V6 => {
                let id = address::group(builder.nodes[node].id);
                let address = address::tail(domain.service_prefix, [id, count, 0, end]);
                Some(Ipv6Net::new_assert(address, 127).into())
            }
            Family::V4 => {
                let prefix = domain.service_prefix_ipv4;
                let offset = self.ipv4_links.checked_mul(2)?.checked_add(u32::from(end))?;
                let address = Ipv4Addr::from_bits(prefix.network().to_bits().checked_add(offset)?);
                if prefix.contains(&address) {
                    return Some(Ipv4Net::new_assert(address, 31).into());
                }
                let key = KeyPath::root().at("domain").at("service_prefix_ipv4");
                builder.error(
                    &key,
                    format!("{prefix} has no addresses left for links to functions"),
                    "choose a shorter prefix",
                );
                None
            }
        }
    }

    /// Routes of one direction, and its passage.
    fn pass(
        &mut self,
        lane: &Lane<'_>,
        function: &str,
        direction: Direction,
        out: &ServiceLink,
        back: &ServiceLink,
    ) -> Passage {
        let (from, to) = lane.ends(direction);
        let visits = self.visits.entry(function.to_owned()).or_default();
        let destination = |prefix: &IpNet| {
            let gateway = back.gateways.iter().find(|gateway| Family::of(gateway) == Family::of(prefix))?;
            Some(Destination {
                chain: lane.chain.to_owned(),
                key: lane.key.clone(),
                prefix: *prefix,
                next_hop: NextHop { gateway: Some(gateway.addr()), interface: back.function_interface.name.clone() },
            })
        };
        visits.routes.extend(lane.prefixes(to).filter_map(destination));
        if !lane.definition.reverse {
            visits.answers.extend(lane.prefixes(from).filter_map(destination));
        }
        Passage { out: out.node_interface.clone(), back: back.node_interface.clone(), mac: out.function_interface.mac }
    }

    /// All functions; those that no chain visits have no interface.
    pub(super) fn plans(mut self, builder: &mut Builder<'_>) -> IndexMap<String, FunctionPlan> {
        let mut plans = IndexMap::new();
        for (name, function) in &builder.topology.functions {
            let visits = self.visits.swap_remove(name).unwrap_or_default();
            let tap = function.is_tap();
            // Who reads TAP devices knows which one a packet came by.
            if !tap {
                refuse_ambiguity(builder, name, &visits.routes);
            }
            let mut sysctls = if tap { IndexMap::new() } else { forwarding_sysctls() };
            sysctls.extend(function.sysctls().map(|(name, value)| (name.clone(), value.clone())));
            let mut routes = routes(&visits);
            routes.extend(visits.shared_routes);
            let approach = builder.topology.approach(name);
            let approach = approach.map(|(approach, why)| format!("{}: {why}", shared::words(approach)));
            let plan = FunctionPlan {
                node: function.node.clone(),
                approach: approach.unwrap_or_default(),
                interfaces: visits.interfaces,
                routes,
                rules: visits.rules,
                neighbours: visits.neighbours,
                sysctls,
                inside: function.firewall().is_some(),
                tap,
            };
            plans.insert(name.clone(), plan);
        }
        plans
    }
}

/// Functions see inner packets, which are never larger than what hosts send.
pub(super) fn service_mtu(builder: &Builder<'_>, lane: &Lane<'_>) -> u32 {
    let ends = [lane.from.node, lane.to.node];
    let at_ends = ends.iter().flat_map(|node| &builder.interfaces[*node]);
    let hosts = at_ends.filter(|interface| interface.link == LinkKind::Access).map(|interface| interface.mtu);
    hosts.max().unwrap_or_default().max(builder.topology.domain.access_mtu)
}

/// A function that routes sends a packet out by its destination alone: it cannot know which chain the packet belongs to.
fn refuse_ambiguity(builder: &mut Builder<'_>, function: &str, routes: &[Destination]) {
    for (position, route) in routes.iter().enumerate() {
        let clash = routes[..position].iter().find(|other| {
            if other.chain == route.chain {
                other.prefix == route.prefix && other.next_hop != route.next_hop
            } else {
                check::overlap(&other.prefix, &route.prefix)
            }
        });
        let Some(clash) = clash else { continue };
        let message = if clash.chain == route.chain {
            format!(
                "both directions have the destination {}, so that the function {function:?} could not tell them apart",
                route.prefix
            )
        } else {
            format!(
                "it shares the function {function:?} with chain {:?}, and their destinations {} and {} overlap: the function \
                 could not tell by which way a packet leaves",
                clash.chain, route.prefix, clash.prefix
            )
        };
        let remedy = "give the function `proxy: exact`, give one chain a function of its own, or choose ends that do not overlap";
        builder.error(&route.key.at("via"), message, remedy);
        return;
    }
}

fn routes(visits: &Visits) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let answers = visits.answers.iter().map(|answer| (answer, true));
    for (destination, is_answer) in visits.routes.iter().map(|route| (route, false)).chain(answers) {
        if is_answer && routes.iter().any(|route| check::overlap(&route.destination, &destination.prefix)) {
            continue;
        }
        let reason = if is_answer {
            format!("what the function itself sends to sources of chain {}", destination.chain)
        } else {
            format!("chain {} goes on to here", destination.chain)
        };
        let next_hops = vec![destination.next_hop.clone()];
        routes.push(Route {
            table: None,
            destination: destination.prefix,
            next_hops,
            source: None,
            encap: None,
            reason,
        });
    }
    routes
}
