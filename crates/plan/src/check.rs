//! Whether what an inventory says can be. What a topology says is checked before the lab makes an inventory of it; other sources have only
//! this.

mod backup;
mod ethernet;
mod labels;
mod tunnels;

use indexmap::IndexMap;

use segue_model::check;
use segue_model::error::{KeyPath, Report};
use segue_model::node::{HeadendMode, InnerType};
use segue_model::proxy::OnFailure;
use segue_model::topology::{Chain, Dataplane, Endpoint, WAYPOINT};

use crate::approach::{self, Approach, Nature};
use crate::inventory::{Function, Inventory, Link, Reachability};
use crate::leads;

/// Longest locator: a function number and an argument of 16 bits are behind it.
const LOCATOR_MAX: u8 = 96;

pub(crate) fn check(inventory: &Inventory, report: &mut Report) {
    let mut check = Check { inventory, approaches: approach::all(inventory), report };
    check.nodes();
    check.labels();
    check.tunnels();
    if let Reachability::Links(links) = &inventory.reachability {
        check.links(links);
    }
    let root = KeyPath::root();
    for (name, function) in &inventory.functions {
        check.function(name, function, &root.at("functions").at(name));
    }
    for (name, customer) in &inventory.customers {
        check.node_exists(&customer.node, &root.at("customers").at(name).at("node"));
    }
    for (name, chain) in &inventory.chains {
        let key = root.at("chains").at(name);
        check.chain(chain, &key);
        if chain.ethernet.is_some() {
            check.frames(name, chain, &key);
        }
    }
}

struct Check<'a, 'b> {
    inventory: &'a Inventory,
    approaches: IndexMap<&'a str, (Approach, String)>,
    report: &'b mut Report,
}

impl Check<'_, '_> {
    fn nodes(&mut self) {
        let nodes = KeyPath::root().at("nodes");
        for (position, (name, node)) in self.inventory.nodes.iter().enumerate() {
            let (key, locator) = (nodes.at(name), node.locator);
            for (other_name, other) in self.inventory.nodes.iter().take(position) {
                if check::overlap_ipv6(&other.locator, &locator) {
                    let message =
                        format!("the locator {locator} overlaps with {} of node {other_name:?}", other.locator);
                    self.report.error(&key, message, "give one of them another `locator`");
                }
                if other.loopback == node.loopback {
                    let message = format!("node {other_name:?} has the loopback address {} too", node.loopback);
                    self.report.error(&key, message, "give one of them another `loopback`");
                }
            }
            if locator.prefix_len() > LOCATOR_MAX || locator.trunc() != locator {
                let remedy = format!("choose a prefix of at most {LOCATOR_MAX} bits, with no bits set behind them");
                self.report.error(&key, format!("the locator {locator} does not fit"), remedy);
            }
        }
    }

    fn node_exists(&mut self, name: &str, key: &KeyPath) {
        if !self.inventory.nodes.contains_key(name) {
            self.report.error(key, format!("there is no node {name:?}"), "add it to `nodes`, or correct the name");
        }
    }

    fn links(&mut self, links: &[Link]) {
        let key = KeyPath::root().at("links");
        for (position, link) in links.iter().enumerate() {
            let key = key.at(position);
            for (end, name) in link.between.iter().enumerate() {
                self.node_exists(name, &key.at("between").at(end));
            }
            if link.weight == 0 {
                self.report.error(&key.at("weight"), "a weight of 0 is not possible", "choose 1 or more");
            }
        }
    }

    fn function(&mut self, name: &str, function: &Function, key: &KeyPath) {
        Nature::of(function).check(self.is_by_labels(name), key, self.report);
        self.node_exists(&function.node, &key.at("node"));
        if self.inventory.nodes.get(&function.node).is_some_and(|node| node.dataplane != Dataplane::Segue) {
            let message =
                format!("the node {:?} cannot host a function: only Segue's data plane has proxies", function.node);
            self.report.error(&key.at("node"), message, "move the function, or set the node's `dataplane: segue`");
        }
        if function.inner.is_empty() || function.inner.contains(&InnerType::Ethernet) {
            let message = "functions of chains get IP packets: this one takes none, or Ethernet frames";
            self.report.error(&key.at("inner"), message, "write IPv4, IPv6 or both");
        }
        match (function.on_failure, &function.backup) {
            (OnFailure::Reroute, None) => {
                let message = "packets of a failed function have nowhere to go";
                self.report.error(&key.at("on_failure"), message, "add `backup:` with the name of another function");
            }
            (_, Some(backup)) => self.backup(name, function, backup, &key.at("backup")),
            (_, None) => {}
        }
    }

    fn approach(&self, name: &str) -> Option<Approach> {
        self.approaches.get(name).map(|(approach, _)| *approach)
    }

    /// Whether labels lead to a function.
    fn is_by_labels(&self, name: &str) -> bool {
        let function = self.inventory.functions.get(name).zip(self.approach(name));
        function.is_some_and(|(function, approach)| leads::is_by_labels(self.inventory, function, approach))
    }

    fn chain(&mut self, chain: &Chain, key: &KeyPath) {
        self.endpoint(&chain.from, &key.at("from"));
        self.endpoint(&chain.to, &key.at("to"));
        for (position, name) in chain.via.iter().enumerate() {
            let key = key.at("via").at(position);
            if let Some(node) = name.strip_prefix(WAYPOINT) {
                self.node_exists(node, &key);
                continue;
            }
            let Some(function) = self.inventory.functions.get(name) else {
                let remedy = "add it to `functions`, or correct the name";
                self.report.error(&key, format!("there is no function {name:?}"), remedy);
                continue;
            };
            let by_labels = self.is_by_labels(name);
            let allows_two = self.approach(name).is_some_and(|approach| approach.allows_two_visits(by_labels));
            if chain.via[..position].contains(name) && !allows_two {
                let message =
                    format!("the chain visits {name:?} twice, and its proxy could not tell the two visits apart");
                self.report.error(&key, message, Nature::of(function).remedy_for_visits(by_labels));
            }
        }
        self.backups_of(chain, &key.at("mode"));
        if !matches!(chain.mode, HeadendMode::HEncaps | HeadendMode::HEncapsRed) {
            let message = "this mode does not suit a chain, whose egress takes the outer header off";
            self.report.error(&key.at("mode"), message, "write H.Encaps or H.Encaps.Red");
        }
    }

    fn endpoint(&mut self, endpoint: &Endpoint, key: &KeyPath) {
        match endpoint {
            Endpoint::Host(name) if !self.inventory.customers.contains_key(name) => {
                let message = format!("there is no customer {name:?}");
                self.report.error(key, message, "add it to `customers`, or correct the name");
            }
            Endpoint::Behind(behind) => self.node_exists(&behind.node, &key.at("node")),
            Endpoint::Host(_) | Endpoint::Prefixes(_) => {}
        }
    }
}
