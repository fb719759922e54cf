//! Chains, resolved: which nodes they begin and end at, which prefixes they carry, which functions they visit.

use std::ops::Range;

use ipnet::IpNet;

use segue_model::check::MTU_MIN;
use segue_model::error::{KeyPath, Report};
use segue_model::node::HeadendMode;
use segue_model::owner::{AddressFamily, Direction, Owner};
use segue_model::topology::{Chain, Dataplane, Endpoint, Interfaces, Match, WAYPOINT};

use crate::inventory::Inventory;

/// Octets of an Ethernet header: both addresses and the ethertype.
const ETHERNET_HEADER: u32 = 14;

/// One end of a chain: a node and what lies behind it.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) node: usize,
    pub(crate) prefixes: Vec<IpNet>,
    /// For explanations: the customer's name, or the node's.
    pub(crate) label: String,
    /// A customer: the port that leads to it, if that is known, and the largest packet that it sends.
    pub(crate) port: Option<String>,
    pub(crate) mtu: u32,
}

/// Where a chain's traffic is to go between its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Function { name: String, node: usize },
    Waypoint { node: usize },
}

impl Stop {
    pub(crate) fn node(&self) -> usize {
        match self {
            Self::Function { node, .. } | Self::Waypoint { node } => *node,
        }
    }
}

/// What one list leads over: from the headend, or the node where the part before it ends, to the egress, or the node where the next one
/// begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) by_labels: bool,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Of the direction's stops.
    pub(crate) stops: Range<usize>,
    /// Counted from 0.
    pub(crate) number: usize,
    pub(crate) is_last: bool,
}

impl Part {
    pub(crate) fn stops<'c>(&self, course: &'c Course<'_>, direction: Direction) -> Vec<&'c Stop> {
        course.stops(direction).get(self.stops.clone()).unwrap_or_default().to_vec()
    }
}

/// A chain for some families: all that it carries, or one family where the egress needs a SID for each.
#[derive(Debug, Clone)]
pub(crate) struct Course<'a> {
    pub(crate) chain: &'a str,
    pub(crate) definition: &'a Chain,
    pub(crate) key: KeyPath,
    pub(crate) families: Vec<AddressFamily>,
    /// Whether there is another course for the other family.
    pub(crate) split: bool,
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) stops: Vec<Stop>,
    /// Its parts, of one kind of steering each, forward and reverse.
    pub(crate) parts: [Vec<Part>; 2],
}

impl Course<'_> {
    pub(crate) fn directions(&self) -> &'static [Direction] {
        if self.definition.reverse { &[Direction::Forward, Direction::Reverse] } else { &[Direction::Forward] }
    }

    pub(crate) fn ends(&self, direction: Direction) -> (&End, &End) {
        match direction {
            Direction::Forward => (&self.from, &self.to),
            Direction::Reverse => (&self.to, &self.from),
        }
    }

    pub(crate) fn stops(&self, direction: Direction) -> Vec<&Stop> {
        match direction {
            Direction::Forward => self.stops.iter().collect(),
            Direction::Reverse => self.stops.iter().rev().collect(),
        }
    }

    pub(crate) fn matching(&self, direction: Direction) -> Match {
        let mut matching = self.definition.matching.clone();
        if direction == Direction::Reverse {
            std::mem::swap(&mut matching.source_ports, &mut matching.destination_ports);
        }
        matching
    }

    /// Name of the SR policy of a part, counted from 0: the chain and the direction, the family where there are two courses, and behind a
    /// crossing the part's number.
    pub(crate) fn policy(&self, direction: Direction, part: usize) -> String {
        let number = if part == 0 { String::new() } else { format!("-part{}", part + 1) };
        match self.family() {
            Some(family) => format!("{}-{direction}-{}{number}", self.chain, family.name()),
            None => format!("{}-{direction}{number}", self.chain),
        }
    }

    /// The family that it is for, if there is another course for the other one.
    pub(crate) fn family(&self) -> Option<AddressFamily> {
        self.families.first().filter(|_| self.split).copied()
    }

    pub(crate) fn parts(&self, direction: Direction) -> &[Part] {
        &self.parts[usize::from(direction == Direction::Reverse)]
    }

    /// What SIDs and policies of one direction are made for.
    pub(crate) fn owner(&self, direction: Direction) -> Owner {
        Owner { chain: self.chain.to_owned(), direction: Some(direction), family: self.family() }
    }

    /// What an attachment is for that serves this course alone: with one interface each direction has its own.
    pub(crate) fn owner_of_attachment(&self, interfaces: Interfaces, direction: Direction) -> Owner {
        Owner { direction: (interfaces == Interfaces::One).then_some(direction), ..self.owner(direction) }
    }

    fn carries(&self, prefix: &IpNet) -> bool {
        self.families.contains(&AddressFamily::of(prefix))
    }

    /// Whether what it carries are Ethernet frames.
    pub(crate) fn has_frames(&self) -> bool {
        self.definition.ethernet.is_some()
    }

    /// Headend behaviour where SIDs lead.
    pub(crate) fn mode(&self) -> HeadendMode {
        match (self.definition.mode, self.has_frames()) {
            (HeadendMode::HEncaps, true) => HeadendMode::HEncapsL2,
            (HeadendMode::HEncapsRed, true) => HeadendMode::HEncapsL2Red,
            (mode, _) => mode,
        }
    }

    /// Octets that must pass every link beside what is put in front: the least packet of IPv6, whose sender is told if a larger one does not fit; or
    /// the largest frame of its customer, whom nobody tells.
    pub(crate) fn least(&self, direction: Direction) -> (u32, String) {
        if !self.has_frames() {
            return (MTU_MIN, format!("a packet of {MTU_MIN} octets, the least for IPv6,"));
        }
        let (from, _) = self.ends(direction);
        let octets = from.mtu.saturating_add(ETHERNET_HEADER);
        (octets, format!("a frame of {octets} octets, the largest that {} sends without a VLAN tag,", from.label))
    }

    /// Prefixes of an end in the families that the course carries.
    pub(crate) fn prefixes<'b>(&'b self, end: &'b End) -> impl Iterator<Item = &'b IpNet> {
        end.prefixes.iter().filter(|prefix| self.carries(prefix))
    }
}

/// All courses of all chains.
pub(crate) fn courses<'a>(inventory: &'a Inventory, report: &mut Report) -> Vec<Course<'a>> {
    let mut courses = Vec::new();
    let resolver = Resolver { inventory };
    for (name, chain) in &inventory.chains {
        let key = KeyPath::root().at("chains").at(name);
        let from = resolver.end(&chain.from, &key.at("from"), report);
        let to = resolver.end(&chain.to, &key.at("to"), report);
        if let (Some(from), Some(to)) = (from, to) {
            resolver.courses(name, chain, key, (from, to), report, &mut courses);
        }
    }
    courses
}

struct Resolver<'a> {
    inventory: &'a Inventory,
}

impl<'a> Resolver<'a> {
    fn node(&self, name: &str) -> Option<usize> {
        self.inventory.nodes.get_index_of(name)
    }

    fn dataplane(&self, node: usize) -> Dataplane {
        self.inventory.nodes[node].dataplane
    }

    fn end(&self, endpoint: &Endpoint, key: &KeyPath, report: &mut Report) -> Option<End> {
        let end = match endpoint {
            Endpoint::Host(name) => {
                let customer = self.inventory.customers.get(name)?;
                End {
                    node: self.node(&customer.node)?,
                    prefixes: customer.prefixes.clone(),
                    label: name.clone(),
                    port: customer.port.clone(),
                    mtu: customer.mtu,
                }
            }
            Endpoint::Behind(behind) => End {
                node: self.node(&behind.node)?,
                prefixes: behind.prefixes.clone(),
                label: format!("what lies behind {}", behind.node),
                port: None,
                mtu: MTU_MIN,
            },
            Endpoint::Prefixes(prefixes) => self.end_of_prefixes(prefixes, key, report)?,
        };
        if self.dataplane(end.node) == Dataplane::Plain {
            let (name, _) = self.inventory.nodes.get_index(end.node)?;
            let message =
                format!("the node {name:?} knows nothing of Segment Routing, so that no chain begins or ends there");
            report.error(key, message, "give the node `dataplane: segue`, or connect the host to another node");
        }
        Some(end)
    }

    fn end_of_prefixes(&self, prefixes: &[IpNet], key: &KeyPath, report: &mut Report) -> Option<End> {
        let mut found: Option<usize> = None;
        for (position, prefix) in prefixes.iter().enumerate() {
            let contain = |networks: &[IpNet]| networks.iter().any(|network| network.contains(prefix));
            let customer = self.inventory.customers.values().find(|customer| contain(&customer.networks));
            let node = customer.and_then(|customer| self.node(&customer.node));
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
        let (name, _) = self.inventory.nodes.get_index(found?)?;
        let label = format!("what lies behind {name}");
        Some(End { node: found?, prefixes: prefixes.to_vec(), label, port: None, mtu: MTU_MIN })
    }

    fn courses(
        &self,
        name: &'a str,
        chain: &'a Chain,
        key: KeyPath,
        (from, to): (End, End),
        report: &mut Report,
        courses: &mut Vec<Course<'a>>,
    ) {
        if chain.ethernet.is_some() {
            let stops = self.stops(chain, &[], &key, report);
            let (families, parts) = (Vec::new(), Default::default());
            courses.push(Course {
                chain: name,
                definition: chain,
                key,
                families,
                split: false,
                from,
                to,
                stops,
                parts,
            });
            return;
        }
        let has = |end: &End, family| end.prefixes.iter().any(|prefix| AddressFamily::of(prefix) == family);
        let mut families: Vec<AddressFamily> = [AddressFamily::Ipv4, AddressFamily::Ipv6]
            .into_iter()
            .filter(|family| has(&from, *family) && has(&to, *family))
            .collect();
        if !chain.matching.flow_labels.is_empty() && families == [AddressFamily::Ipv4] {
            let message = "the two ends have only IPv4 in common, whose packets have no flow label";
            report.error(
                &key.at("match").at("flow_labels"),
                message,
                "remove the key, or give both ends IPv6 addresses",
            );
            return;
        }
        families.retain(|family| *family == AddressFamily::Ipv6 || chain.matching.flow_labels.is_empty());
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
            let parts = Default::default();
            courses.push(Course { chain: name, definition: chain, key, families, split, from, to, stops, parts });
        }
    }

    fn stops(&self, chain: &Chain, families: &[AddressFamily], key: &KeyPath, report: &mut Report) -> Vec<Stop> {
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
            let Some(function) = self.inventory.functions.get(name) else { continue };
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
