//! Links between nodes and functions, and the functions' own routes.

use std::net::Ipv4Addr;

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use segue_model::check;
use segue_model::error::KeyPath;
use segue_model::owner::{AddressFamily, Direction};
use segue_model::topology::Interfaces;
use segue_model::value::MacAddress;
use segue_plan::address::group;
use segue_plan::approach::{Approach, Nature};
use segue_plan::inventory::{Attachment, Side};
use segue_plan::{Demand, FunctionPlan, Plan};

use crate::address;
use crate::build::{Builder, NewEnd, function_sysctls};
use crate::inventory;
use crate::plan::{Interface, LabFunction, LinkKind};
use crate::route::{Neighbour, NextHop, Route, Rule};

/// A service link: both interfaces, and the node's addresses as next hops for the function.
pub(crate) struct ServiceLink {
    pub(crate) node_interface: String,
    pub(crate) node_mac: MacAddress,
    pub(crate) function_interface: Interface,
    pub(crate) gateways: Vec<IpNet>,
}

/// A service link that is to be made.
struct NewServiceLink<'a> {
    function: &'a str,
    node: usize,
    /// The node's suffix and the function's name for it.
    suffix: [&'a str; 2],
    families: &'a [AddressFamily],
    mtu: u32,
    reason: String,
}

/// What a function's namespace gets from the chains that visit it.
#[derive(Default)]
pub(crate) struct Visits {
    pub(crate) interfaces: Vec<Interface>,
    /// Of functions that several chains share: routes, rules and neighbours that serve all of them.
    pub(crate) shared_routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) neighbours: Vec<Neighbour>,
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
pub(crate) struct Services {
    pub(crate) visits: IndexMap<String, Visits>,
    /// Per node: service links made so far.
    per_node: IndexMap<usize, u16>,
    ipv4_links: u32,
}

impl Services {
    /// Makes what is asked for.
    pub(crate) fn attach(&mut self, builder: &mut Builder<'_>, demand: &Demand) -> Attachment {
        // Checked with the topology.
        let node = builder.topology.nodes.get_index_of(&demand.node).unwrap_or_default();
        let mtu = mtu(builder, demand);
        let link = |suffix: &[&str; 2]| {
            let reason = reason(demand, suffix[1]);
            let (function, suffix) = (demand.function.as_str(), *suffix);
            self.new_link(builder, NewServiceLink { function, node, suffix, families: &demand.families, mtu, reason })
        };
        let links: Vec<ServiceLink> = sides(demand).iter().map(link).collect();
        match &demand.owner {
            Some(owner) => self.pass(builder, demand, &owner.chain, &links),
            None => self.share(&demand.function, &links),
        }
        let side =
            |link: &ServiceLink| Side { interface: link.node_interface.clone(), function: link.function_interface.mac };
        Attachment { owner: demand.owner.clone(), west: side(&links[0]), east: links.get(1).map(side) }
    }

    /// Both ends of a new service link.
    fn new_link(&mut self, builder: &mut Builder<'_>, new: NewServiceLink<'_>) -> ServiceLink {
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
        if families.contains(&AddressFamily::Ipv4) {
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
            port: true,
        };
        let function_end = NewEnd {
            namespace: function.to_owned(),
            name: function_name.unwrap_or_default(),
            addresses: function_addresses,
            port: false,
        };
        let [node_interface, function_interface] =
            builder.link(LinkKind::Service, mtu, &reason, [node_end, function_end]);
        let (name, mac) = (node_interface.name.clone(), node_interface.mac);
        builder.interfaces[node].push(node_interface);
        visits.interfaces.push(function_interface.clone());
        ServiceLink { node_interface: name, node_mac: mac, function_interface, gateways: node_addresses }
    }

    fn address(
        &self,
        builder: &mut Builder<'_>,
        family: AddressFamily,
        node: usize,
        count: u16,
        end: u16,
    ) -> Option<IpNet> {
        let domain = &builder.topology.domain;
        match family {
            AddressFamily::Ipv6 => {
                let id = group(builder.nodes[node].id);
                let address = address::tail(domain.service_prefix, [id, count, 0, end]);
                Some(Ipv6Net::new_assert(address, 127).into())
            }
            AddressFamily::Ipv4 => {
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

    /// Routes of the directions of a chain that has links for itself.
    fn pass(&mut self, builder: &Builder<'_>, demand: &Demand, chain: &str, links: &[ServiceLink]) {
        let visits = self.visits.entry(demand.function.clone()).or_default();
        let (Some(west), Some(east)) = (links.first(), links.last()) else { return };
        for way in &demand.ways {
            let back = if way.direction == Direction::Forward { east } else { west };
            let destination = |prefix: &IpNet| {
                let family = AddressFamily::of(prefix);
                let gateway = back.gateways.iter().find(|gateway| AddressFamily::of(gateway) == family)?;
                Some(Destination {
                    chain: chain.to_owned(),
                    key: KeyPath::root().at("chains").at(chain),
                    prefix: *prefix,
                    next_hop: NextHop {
                        gateway: Some(gateway.addr()),
                        interface: back.function_interface.name.clone(),
                    },
                })
            };
            visits.routes.extend(way.destinations.iter().filter_map(destination));
            if builder.topology.chains.get(chain).is_some_and(|chain| !chain.reverse) {
                visits.answers.extend(way.sources.iter().filter_map(destination));
            }
        }
    }

    /// All functions; those that no chain visits have no interface.
    pub(crate) fn plans(mut self, builder: &mut Builder<'_>, planned: &Plan) -> IndexMap<String, LabFunction> {
        let mut plans = IndexMap::new();
        for (name, function) in &builder.topology.functions {
            let (tap, service) = (function.is_tap(), function.service().is_some());
            // Neither the kernel of a service's namespace goes on by itself nor does it forward: nothing gets past a service that is down.
            if !service {
                self.own_ends(name, function.interfaces(), planned);
            }
            let visits = self.visits.swap_remove(name).unwrap_or_default();
            // Who reads TAP devices knows which one a packet came by.
            if !tap {
                refuse_ambiguity(builder, name, &visits.routes);
            }
            let mut sysctls = if tap || service { IndexMap::new() } else { function_sysctls() };
            sysctls.extend(function.sysctls().map(|(name, value)| (name.clone(), value.clone())));
            let mut routes = routes(&visits);
            routes.extend(visits.shared_routes);
            let approach = planned.functions.get(name);
            let in_words = |plan: &FunctionPlan| segue_plan::in_words(plan.approach, plan.by_labels);
            let approach = approach.map(|plan| format!("{}: {}", in_words(plan), plan.why));
            let plan = LabFunction {
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

/// The links that answer a demand: the node's suffix and the function's name for each.
fn sides(demand: &Demand) -> &'static [[&'static str; 2]] {
    match (demand.interfaces, demand.owner.as_ref().map(|owner| owner.direction)) {
        (Interfaces::Two, _) => &[["w", "west"], ["e", "east"]],
        (Interfaces::One, None) => &[["p", "port"]],
        (Interfaces::One, Some(Some(Direction::Reverse))) => &[["r", "reverse"]],
        (Interfaces::One, Some(_)) => &[["f", "forward"]],
    }
}

fn reason(demand: &Demand, side: &str) -> String {
    let function = &demand.function;
    match &demand.owner {
        Some(owner) => {
            let family = owner.family.map_or_else(String::new, |family| format!(" ({})", family.name()));
            format!(
                "{side} side of function {function} for chain {}{family}: one interface in serves one proxy {}",
                owner.chain,
                if demand.by_labels { "label" } else { "SID" }
            )
        }
        None => {
            let proxy = segue_plan::in_words(demand.approach, demand.by_labels);
            format!("{side} side of function {function}: all chains share it, by the {proxy}")
        }
    }
}

/// Where the steering header stays on, the link carries what the core carries. Else functions see inner packets, which are never larger
/// than what hosts send.
fn mtu(builder: &Builder<'_>, demand: &Demand) -> u32 {
    let domain = &builder.topology.domain;
    if demand.outer { domain.core_mtu } else { demand.mtu.unwrap_or_default().max(domain.access_mtu) }
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
        let apart = "give one chain a function of its own, or choose ends that do not overlap";
        let nature =
            builder.topology.functions.get(function).map(|function| Nature::of(&inventory::function(function)));
        let remedy = match nature.is_some_and(|nature| nature.fits(Approach::Exact)) {
            true => format!("give the function `proxy: exact`, {apart}"),
            false => apart.to_owned(),
        };
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
