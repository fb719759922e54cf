//! Where SIDs lead a chain's packets, and where labels do: a chain is cut into parts of one kind each, which meet at nodes that both lead to.
//!
//! Of all ways over the stops, in their order, that are possible, the one with the fewest crossings is taken; of these the shortest; of these
//! the one with most stops of the inventory's own kind.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use segue_model::error::Report;
use segue_model::owner::Direction;
use segue_model::topology::SrDataplane;

use crate::approach;
use crate::chain::{Course, Part, Stop};
use crate::inventory::Inventory;
use crate::leads::is_by_labels;
use crate::reach::Reach;

/// Cuts each course into its parts.
pub(crate) fn divide(inventory: &Inventory, courses: &mut [Course<'_>], report: &mut Report) {
    let reaches = inventory.is_mixed().then(|| [Reach::new(inventory), Reach::of_labels(inventory)]);
    let functions: HashMap<&str, bool> = approach::all(inventory)
        .into_iter()
        .filter_map(|(name, (approach, _))| {
            Some((name, is_by_labels(inventory, inventory.functions.get(name)?, approach)))
        })
        .collect();
    for course in courses {
        for direction in course.directions() {
            let parts = match &reaches {
                None => vec![whole(inventory, course, *direction)],
                Some(reaches) => {
                    let search = Search::new(inventory, reaches, &functions, course, *direction);
                    search.parts().unwrap_or_else(|served| {
                        search.refuse(served, course, *direction, report);
                        Vec::new()
                    })
                }
            };
            if let [first, _, ..] = &parts[..]
                && course.has_frames()
            {
                refuse_frames(inventory, course, *direction, first.to, report);
            }
            course.parts[usize::from(*direction == Direction::Reverse)] = parts;
        }
        let with_word = course.definition.ethernet.is_some_and(|ethernet| ethernet.control_word.is_some());
        if with_word && course.parts.iter().flatten().any(|part| !part.by_labels) {
            let key = course.key.at("ethernet").at("control_word");
            let message = "SIDs lead this chain, and no control word is in front of frames in IPv6";
            report.error(&key, message, "remove the key, or let labels lead (`sr_dataplane: sr-mpls`)");
        }
    }
}

/// Frames cannot go on from SIDs to labels, nor the other way round.
fn refuse_frames(inventory: &Inventory, course: &Course<'_>, direction: Direction, node: usize, report: &mut Report) {
    let name = inventory.nodes.get_index(node).map_or("", |(name, _)| name);
    let message = format!(
        "the chain would cross between SIDs and labels at {name} ({direction}), where only IP packets are steered anew"
    );
    let remedy = "let one kind lead the whole way (`sr_dataplane`), or remove `ethernet`";
    report.error(&course.key.at("ethernet"), message, remedy);
}

/// The only part, where there is one kind of steering only.
fn whole(inventory: &Inventory, course: &Course<'_>, direction: Direction) -> Part {
    let (from, to) = course.ends(direction);
    Part {
        by_labels: inventory.uses_labels(),
        from: from.node,
        to: to.node,
        stops: 0..course.stops.len(),
        number: 0,
        is_last: true,
    }
}

/// Where a packet is: how many of the points are behind it, the node, and whether labels lead it on.
type Place = (usize, usize, bool);
/// Crossings, distance, points that are led to by what is not the inventory's own kind.
type Cost = (usize, u64, usize);

struct Search<'a> {
    inventory: &'a Inventory,
    reaches: &'a [Reach; 2],
    /// Where packets begin.
    from: usize,
    /// The stops and the end: the node, and whether SIDs and labels may lead there.
    points: Vec<(usize, [bool; 2])>,
}

impl<'a> Search<'a> {
    fn new(
        inventory: &'a Inventory,
        reaches: &'a [Reach; 2],
        functions: &HashMap<&str, bool>,
        course: &Course<'_>,
        direction: Direction,
    ) -> Self {
        let (from, to) = course.ends(direction);
        let of_stop = |stop: &Stop| match stop {
            Stop::Waypoint { node } => (*node, kinds(inventory, *node)),
            Stop::Function { name, node } => {
                let by_labels = functions.get(name.as_str()).copied().unwrap_or_default();
                (*node, [!by_labels, by_labels])
            }
        };
        let mut points: Vec<_> = course.stops(direction).into_iter().map(of_stop).collect();
        points.push((to.node, kinds(inventory, to.node)));
        Self { inventory, reaches, from: from.node, points }
    }

    fn distance(&self, by_labels: bool, from: usize, to: usize) -> Option<u64> {
        self.reaches[usize::from(by_labels)].distance(from, to)
    }

    /// Places that follow, with what it costs to get there.
    fn onward(&self, (served, node, by_labels): Place) -> Vec<(Place, Cost)> {
        let mut found = Vec::new();
        if let Some((there, kinds)) = self.points.get(served)
            && kinds[usize::from(by_labels)]
            && let Some(distance) = self.distance(by_labels, node, *there)
        {
            let foreign = by_labels != (self.inventory.dataplane == SrDataplane::SrMpls);
            found.push(((served + 1, *there, by_labels), (0, distance, usize::from(foreign))));
        }
        if kinds(self.inventory, node) == [true, true] {
            found.push(((served, node, !by_labels), (1, 0, 0)));
        }
        for border in (0..self.inventory.nodes.len()).filter(|there| *there != node) {
            if kinds(self.inventory, border) == [true, true]
                && let Some(distance) = self.distance(by_labels, node, border)
            {
                found.push(((served, border, by_labels), (0, distance, 0)));
            }
        }
        found
    }

    /// The parts of the best way. Error: how many points it comes to at most.
    fn parts(&self) -> Result<Vec<Part>, usize> {
        let mut before: HashMap<Place, (Cost, Option<Place>)> = HashMap::new();
        let mut heap = BinaryHeap::new();
        for by_labels in [false, true].into_iter().filter(|kind| kinds(self.inventory, self.from)[usize::from(*kind)]) {
            let place = (0, self.from, by_labels);
            before.insert(place, ((0, 0, 0), None));
            heap.push(Reverse(((0, 0, 0), place)));
        }
        let (mut settled, mut farthest) = (HashSet::new(), 0);
        while let Some(Reverse((cost, place))) = heap.pop() {
            if !settled.insert(place) {
                continue;
            }
            farthest = farthest.max(place.0);
            if place.0 == self.points.len() {
                return Ok(self.cut(place, &before));
            }
            for (there, more) in self.onward(place) {
                let cost = (cost.0 + more.0, cost.1 + more.1, cost.2 + more.2);
                if before.get(&there).is_none_or(|(known, _)| cost < *known) {
                    before.insert(there, (cost, Some(place)));
                    heap.push(Reverse((cost, there)));
                }
            }
        }
        Err(farthest)
    }

    /// The parts of the way that ends at a place.
    fn cut(&self, end: Place, before: &HashMap<Place, (Cost, Option<Place>)>) -> Vec<Part> {
        let mut places = vec![end];
        while let Some((_, Some(place))) = places.last().and_then(|place| before.get(place)) {
            places.push(*place);
        }
        places.reverse();
        let mut parts: Vec<Part> = Vec::new();
        for (position, (served, node, by_labels)) in places.into_iter().enumerate() {
            // The end is a point, and no stop.
            let stops = served.min(self.points.len() - 1);
            match parts.last_mut().filter(|part| position > 0 && part.by_labels == by_labels) {
                Some(part) => (part.to, part.stops.end) = (node, stops),
                None => {
                    let number = parts.len();
                    parts.push(Part { by_labels, from: node, to: node, stops: stops..stops, number, is_last: false });
                }
            }
        }
        if let Some(last) = parts.last_mut() {
            last.is_last = true;
        }
        parts
    }

    fn refuse(&self, served: usize, course: &Course<'_>, direction: Direction, report: &mut Report) {
        let here = served.checked_sub(1).map_or((self.from, kinds(self.inventory, self.from)), |at| self.points[at]);
        let Some(there) = self.points.get(served).copied() else { return };
        let name = |node: usize| self.inventory.nodes.get_index(node).map_or("", |(name, _)| name);
        let [a, b] = [name(here.0), name(there.0)];
        let meet = (0..2).any(|kind| here.1[kind] && there.1[kind]);
        let (message, remedy) = match meet {
            true => (
                format!("no links lead from {a} to {b} ({direction}), over which {} lead", words(there.1)),
                match here.1[1] && there.1[1] {
                    true => {
                        "add the missing link to `links`, or give a node between them `sr_dataplane: both`, or let labels cross what is between in \
                         UDP (`udp_tunnels`)"
                    }
                    false => "add the missing link to `links`, or give a node between them `sr_dataplane: both`",
                },
            ),
            false => (
                format!(
                    "no way leads from {a}, by {}, to {b}, by {} ({direction}): no node that both lead to joins them",
                    words(here.1),
                    words(there.1)
                ),
                "give a node between them `sr_dataplane: both`, or add the missing link to `links`",
            ),
        };
        report.error(&course.key.at("via"), message, remedy);
    }
}

/// Whether SIDs lead to a node, and whether labels do.
fn kinds(inventory: &Inventory, node: usize) -> [bool; 2] {
    let node = &inventory.nodes[node];
    [node.sids, node.labels.is_some()]
}

fn words(kinds: [bool; 2]) -> &'static str {
    match kinds {
        [true, true] => "SIDs or labels",
        [_, true] => "labels",
        _ => "SIDs",
    }
}
