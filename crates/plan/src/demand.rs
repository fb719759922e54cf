//! What functions need before anything can be planned: interfaces between them and their nodes.

use indexmap::IndexMap;
use ipnet::IpNet;

use segue_model::owner::{AddressFamily, Direction, Owner};
use segue_model::topology::Interfaces;

use crate::approach::{self, Approach};
use crate::chain::{Course, Stop};
use crate::function;
use crate::inventory::{Function, Inventory};
use crate::leads;

/// Interfaces that a function needs, a pair or one. Whoever makes the inventory answers it with an
/// [`crate::inventory::Attachment`] of the function, with the same owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// The function.
    pub function: String,
    /// The node that it is connected to.
    pub node: String,
    /// Who has the interfaces for itself: a chain, one of its address families where these go apart, one of its directions where
    /// the function has one interface. None: all chains share them.
    pub owner: Option<Owner>,
    /// How the node gives packets to the function.
    pub approach: Approach,
    /// Whether labels lead to it, rather than SIDs.
    pub by_labels: bool,
    /// A pair of interfaces, or one.
    pub interfaces: Interfaces,
    /// Address families of the packets on them.
    pub families: Vec<AddressFamily>,
    /// The steering header stays on: packets are as large as those between nodes.
    pub outer: bool,
    /// Largest packet that customers at the ends of the (first) chain send, octets; none if none is known there.
    pub mtu: Option<u32>,
    /// What goes through, per direction, where one chain has them for itself.
    pub ways: Vec<Way>,
}

/// One direction of a chain through a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Which.
    pub direction: Direction,
    /// Where packets come from.
    pub sources: Vec<IpNet>,
    /// Where they go to.
    pub destinations: Vec<IpNet>,
}

/// In the order of chains; each once.
pub(crate) fn of_courses(inventory: &Inventory, courses: &[Course<'_>]) -> Vec<Demand> {
    let mut found = Found { inventory, approaches: approach::all(inventory), demands: Vec::new(), shared: Vec::new() };
    for course in courses {
        found.course(course);
    }
    found.demands
}

struct Found<'a> {
    inventory: &'a Inventory,
    approaches: IndexMap<&'a str, (Approach, String)>,
    demands: Vec<Demand>,
    /// Names of functions that chains share.
    shared: Vec<&'a str>,
}

impl<'a> Found<'a> {
    fn course(&mut self, course: &Course<'_>) {
        let inventory = self.inventory;
        let function = |stop: &Stop| match stop {
            Stop::Function { name, .. } => inventory.functions.get_key_value(name.as_str()),
            Stop::Waypoint { .. } => None,
        };
        for (name, function) in course.stops.iter().filter_map(function) {
            if !self.approach(name).is_shared() {
                self.of_course(course, name, function);
            }
        }
        // Backups are behind what they stand in for, those of proxies for one chain last.
        for direction in course.directions() {
            let stops: Vec<_> = course.stops(*direction).into_iter().filter_map(function).collect();
            let (shared, own): (Vec<_>, Vec<_>) =
                stops.into_iter().partition(|(name, _)| self.approach(name).is_shared());
            for (name, function) in shared {
                self.of_all(course, name, function);
            }
            for backup in own.into_iter().filter_map(|(_, function)| function.backup.as_deref()) {
                self.backup(course, backup);
            }
        }
    }

    fn approach(&self, name: &str) -> Approach {
        // All functions of the inventory are there.
        self.approaches.get(name).map_or(Approach::Static, |(approach, _)| *approach)
    }

    /// What one course has for itself: a pair, or an interface for each direction.
    fn of_course(&mut self, course: &Course<'_>, name: &str, function: &Function) {
        let way = |direction: Direction| {
            let (from, to) = course.ends(direction);
            let prefixes = |end| course.prefixes(end).copied().collect();
            Way { direction, sources: prefixes(from), destinations: prefixes(to) }
        };
        let ways: Vec<Way> = course.directions().iter().map(|direction| way(*direction)).collect();
        let parts = match function.interfaces {
            Interfaces::Two => vec![ways],
            Interfaces::One => ways.into_iter().map(|way| vec![way]).collect(),
        };
        for ways in parts {
            let Some(direction) = ways.first().map(|way| way.direction) else { continue };
            let owner = course.owner_of_attachment(function.interfaces, direction);
            let families = course.families.clone();
            self.demands.push(Demand { ways, ..self.demand(course, name, function, Some(owner), families) });
        }
    }

    fn of_all(&mut self, course: &Course<'_>, name: &'a str, function: &'a Function) {
        if self.shared.contains(&name) {
            return;
        }
        self.shared.push(name);
        let approach = self.approach(name);
        if !function::without_links(approach) {
            let takes = |family: &AddressFamily| function.inner.contains(&family.inner());
            let families = if function::keeps_header(approach) {
                vec![AddressFamily::Ipv6]
            } else {
                [AddressFamily::Ipv4, AddressFamily::Ipv6].into_iter().filter(takes).collect()
            };
            self.demands.push(self.demand(course, name, function, None, families));
        }
        if let Some(backup) = &function.backup {
            self.backup(course, backup);
        }
    }

    fn backup(&mut self, course: &Course<'_>, name: &str) {
        if let Some((name, function)) = self.inventory.functions.get_key_value(name) {
            self.of_all(course, name, function);
        }
    }

    fn demand(
        &self,
        course: &Course<'_>,
        name: &str,
        function: &Function,
        owner: Option<Owner>,
        families: Vec<AddressFamily>,
    ) -> Demand {
        let index = |name: &String| self.inventory.nodes.get_index_of(name);
        let at_ends = self.inventory.customers.values().filter(|customer| {
            let node = index(&customer.node);
            [course.from.node, course.to.node].iter().any(|end| node == Some(*end))
        });
        Demand {
            function: name.to_owned(),
            node: function.node.clone(),
            owner,
            approach: self.approach(name),
            by_labels: leads::is_by_labels(self.inventory, function, self.approach(name)),
            interfaces: function.interfaces,
            families,
            outer: function::keeps_header(self.approach(name)),
            mtu: at_ends.map(|customer| customer.mtu).max(),
            ways: Vec::new(),
        }
    }
}
