//! Chains, resolved: which nodes they begin and end at, which prefixes they carry, which functions they visit.

use indexmap::IndexMap;
use ipnet::IpNet;

use crate::Direction;
use crate::address::HostAddress;
use segue_model::error::{KeyPath, Report};
use segue_model::node::InnerType;
use segue_model::owner::{AddressFamily, Owner};
use segue_model::topology::{Chain, Dataplane, Endpoint, Match, Topology, WAYPOINT};

/// An address family that a lane carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    pub(super) fn inner(self) -> InnerType {
        match self {
            Self::V4 => InnerType::IPv4,
            Self::V6 => InnerType::IPv6,
        }
    }

    fn address_family(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Ipv4,
            Self::V6 => AddressFamily::Ipv6,
        }
    }

    pub(super) fn suffix(self) -> &'static str {
        self.address_family().name()
    }
}

/// One end of a chain: a node and what lies behind it.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) prefixes: Vec<IpNet>,
    /// For explanations: the host's name, or the node's.
    pub(super) label: String,
}

/// Where a chain's traffic is to go between its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    Function { name: String, node: usize },
    Waypoint { node: usize },
}

impl Stop {
    pub(super) fn node(&self) -> usize {
        match self {
            Self::Function { node, .. } | Self::Waypoint { node } => *node,
        }
    }
}

/// A chain for some families: all that it carries, or one family where the egress needs a SID for each.
#[derive(Debug, Clone)]
pub(super) struct Lane<'a> {
    pub(super) chain: &'a str,
    pub(super) definition: &'a Chain,
    pub(super) key: KeyPath,
    pub(super) families: Vec<Family>,
    /// Whether there is another lane for the other family.
    pub(super) split: bool,
    pub(super) from: End,
    pub(super) to: End,
    pub(super) stops: Vec<Stop>,
}

impl Lane<'_> {
    pub(super) fn directions(&self) -> &'static [Direction] {
        if self.definition.reverse { &[Direction::Forward, Direction::Reverse] } else { &[Direction::Forward] }
    }

    pub(super) fn ends(&self, direction: Direction) -> (&End, &End) {
        match direction {
            Direction::Forward => (&self.from, &self.to),
            Direction::Reverse => (&self.to, &self.from),
        }
    }

    pub(super) fn stops(&self, direction: Direction) -> Vec<&Stop> {
        match direction {
            Direction::Forward => self.stops.iter().collect(),
            Direction::Reverse => self.stops.iter().rev().collect(),
        }
    }

    pub(super) fn matching(&self, direction: Direction) -> Match {
        let mut matching = self.definition.matching.clone();
        if direction == Direction::Reverse {
            std::mem::swap(&mut matching.source_ports, &mut matching.destination_ports);
        }
        matching
    }

    /// Name of the SR policy: the chain and the direction, and the family where there are two lanes.
    pub(super) fn policy(&self, direction: Direction) -> String {
        match (self.split, self.families.first()) {
            (true, Some(family)) => format!("{}-{direction}-{}", self.chain, family.suffix()),
            _ => format!("{}-{direction}", self.chain),
        }
    }

    /// What SIDs and policies of one direction are made for.
    pub(super) fn owner(&self, direction: Direction) -> Owner {
        let family = self.families.first().filter(|_| self.split).map(|family| family.address_family());
        Owner { chain: self.chain.to_owned(), direction: Some(direction), family }
    }

    pub(super) fn carries(&self, prefix: &IpNet) -> bool {
        self.families.contains(&Family::of(prefix))
    }

    /// Prefixes of an end in the families that the lane carries.
    pub(super) fn prefixes<'b>(&'b self, end: &'b End) -> impl Iterator<Item = &'b IpNet> {
        end.prefixes.iter().filter(|prefix| self.carries(prefix))
    }
}

/// All lanes of all chains.
pub(super) fn lanes<'a>(
    topology: &'a Topology,
    hosts: &IndexMap<String, Vec<HostAddress>>,
    report: &mut Report,
) -> Vec<Lane<'a>> {
    let mut lanes = Vec::new();
    for (name, chain) in &topology.chains {
        let key = KeyPath::root().at("chains").at(name);
        let resolver = Resolver { topology, hosts };
        let from = resolver.end(&chain.from, &key.at("from"), report);
        let to = resolver.end(&chain.to, &key.at("to"), report);
        if let (Some(from), Some(to)) = (from, to) {
            resolver.lanes(name, chain, key, (from, to), report, &mut lanes);
        }
    }
    lanes
}

struct Resolver<'a, 'b> {
    topology: &'a Topology,
    hosts: &'b IndexMap<String, Vec<HostAddress>>,
}

impl<'a> Resolver<'a, '_> {
    fn node(&self, name: &str) -> Option<usize> {
        self.topology.nodes.get_index_of(name)
    }

    fn dataplane(&self, node: usize) -> Dataplane {
        self.topology.nodes[node].dataplane
    }

    fn end(&self, endpoint: &Endpoint, key: &KeyPath, report: &mut Report) -> Option<End> {
        let end = match endpoint {
            Endpoint::Host(name) => End {
                node: self.node(&self.topology.hosts.get(name)?.node)?,
                prefixes: self.hosts.get(name)?.iter().map(|address| address.host.addr().into()).collect(),
                label: name.clone(),
            },
            Endpoint::Behind(behind) => End {
                node: self.node(&behind.node)?,
                prefixes: behind.prefixes.clone(),
                label: format!("what lies behind {}", behind.node),
            },
            Endpoint::Prefixes(prefixes) => self.end_of_prefixes(prefixes, key, report)?,
        };
        if self.dataplane(end.node) == Dataplane::Plain {
            let (name, _) = self.topology.nodes.get_index(end.node)?;
            let message =
                format!("the node {name:?} knows nothing of Segment Routing, so that no chain begins or ends there");
            report.error(key, message, "give the node `dataplane: segue`, or connect the host to another node");
        }
        Some(end)
    }

    fn end_of_prefixes(&self, prefixes: &[IpNet], key: &KeyPath, report: &mut Report) -> Option<End> {
        let mut found: Option<usize> = None;
        for (position, prefix) in prefixes.iter().enumerate() {
            let host =
                self.hosts.iter().find(|(_, list)| list.iter().any(|address| address.host.trunc().contains(prefix)));
            let node = host.and_then(|(name, _)| self.node(&self.topology.hosts.get(name)?.node));
            let remedy = "write {node: NAME, prefixes: [..]} to say which node it lies behind";
            match (node, found) {
                (None, _) => {
                    report.error(&key.at(position), format!("no host's network contains {prefix}"), remedy);
                    return None;
                }
                (Some(node), Some(other)) if node != other => {
                    let message = format!("{prefix} lies behind another node than the prefixes before it");
                    report.error(&key.at(position), message, "make one chain for each node");
                    return None;
                }
                (Some(node), _) => found = Some(node),
            }
        }
        let (name, _) = self.topology.nodes.get_index(found?)?;
        Some(End { node: found?, prefixes: prefixes.to_vec(), label: format!("what lies behind {name}") })
    }

    fn lanes(
        &self,
        name: &'a str,
        chain: &'a Chain,
        key: KeyPath,
        (from, to): (End, End),
        report: &mut Report,
        lanes: &mut Vec<Lane<'a>>,
    ) {
        let has = |end: &End, family| end.prefixes.iter().any(|prefix| Family::of(prefix) == family);
        let mut families: Vec<Family> =
            [Family::V4, Family::V6].into_iter().filter(|family| has(&from, *family) && has(&to, *family)).collect();
        if !chain.matching.flow_labels.is_empty() && families == [Family::V4] {
            let message = "the two ends have only IPv4 in common, whose packets have no flow label";
            report.error(
                &key.at("match").at("flow_labels"),
                message,
                "remove the key, or give both ends IPv6 addresses",
            );
            return;
        }
        families.retain(|family| *family == Family::V6 || chain.matching.flow_labels.is_empty());
        if families.is_empty() {
            let message = "the two ends have no address family in common";
            report.error(&key, message, "give both ends IPv4 addresses, or both IPv6 addresses");
            return;
        }
        let stops = self.stops(chain, &families, &key, report);
        // The kernel here has no End.DT46 (it needs VRF devices), so that each family ends at a SID of its own there. Then
        // each needs its own segment list, hence its own proxy SIDs.
        let mut egresses = vec![to.node];
        if chain.reverse {
            egresses.push(from.node);
        }
        let split = families.len() > 1 && egresses.iter().any(|node| self.dataplane(*node) == Dataplane::Kernel);
        let groups = if split { families.iter().map(|family| vec![*family]).collect() } else { vec![families] };
        for families in groups {
            let (from, to, stops, key) = (from.clone(), to.clone(), stops.clone(), key.clone());
            lanes.push(Lane { chain: name, definition: chain, key, families, split, from, to, stops });
        }
    }

    fn stops(&self, chain: &Chain, families: &[Family], key: &KeyPath, report: &mut Report) -> Vec<Stop> {
        let mut stops = Vec::new();
        for (position, name) in chain.via.iter().enumerate() {
            let key = key.at("via").at(position);
            if let Some(node) = name.strip_prefix(WAYPOINT) {
                let Some(node_index) = self.node(node) else { continue };
                if self.dataplane(node_index) == Dataplane::Plain {
                    let message = format!("the node {node:?} knows nothing of Segment Routing and has no SID");
                    report.error(&key, message, "give it `dataplane: segue` or kernel, or remove the waypoint");
                }
                stops.push(Stop::Waypoint { node: node_index });
                continue;
            }
            let Some(function) = self.topology.functions.get(name) else { continue };
            let Some(node) = self.node(&function.node) else { continue };
            for family in families.iter().filter(|family| !function.inner.contains(&family.inner())) {
                let message =
                    format!("the chain carries {:?}, which the function {name:?} does not take", family.inner());
                let remedy =
                    "add it to the function's `inner`, or give the chain's ends as prefixes of the other family";
                report.error(&key, message, remedy);
            }
            stops.push(Stop::Function { name: name.clone(), node });
        }
        stops
    }
}
