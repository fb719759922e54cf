//! Functions that stand in for failed ones.

use segue_model::error::KeyPath;
use segue_model::node::HeadendMode;
use segue_model::topology::{Chain, WAYPOINT};

use super::Check;
use crate::approach::{Approach, Nature};
use crate::inventory::Function;

impl Check<'_, '_> {
    /// Whether a backup can take what comes for its function: from any chain, on with the same segment list.
    pub(super) fn backup(&mut self, name: &str, function: &Function, backup: &str, key: &KeyPath) {
        let Some(other) = self.inventory.functions.get(backup) else {
            let message = format!("there is no function {backup:?}");
            return self.report.error(key, message, "add it to `functions`, or correct the name");
        };
        if backup == name {
            return self.report.error(key, "the backup is this function itself", "name another function");
        }
        match self.approach(backup) {
            Some(Approach::Static | Approach::Dynamic) => {
                let message = format!("{backup:?} has a proxy for one chain, and cannot take what comes for {name:?}");
                self.report.error(key, message, Nature::of(other).remedy_for_backup());
            }
            // Behind a label they have none.
            Some(Approach::Netfilter | Approach::Firewall) if !self.is_by_labels(name) => {
                let message =
                    format!("{backup:?} has marks of its own, which the segment lists of {name:?} do not have");
                self.report.error(key, message, "name a function with `proxy: exact`, or another that has no mark");
            }
            _ => {}
        }
        if let Some(inner) = function.inner.iter().find(|inner| !other.inner.contains(inner)) {
            let message = format!("{backup:?} does not take {inner:?} packets, which come for {name:?}");
            self.report.error(key, message, "add the type to `inner` of the backup, or name another function");
        }
        let [own, others] = [name, backup].map(|one| self.is_by_labels(one));
        if own != others && (!own || function.node == other.node) {
            let [own, others] = [own, others].map(|by_labels| if by_labels { "labels" } else { "SIDs" });
            let message =
                format!("{own} lead to {name:?}, and {others} to {backup:?}, which cannot come in their place");
            self.report.error(key, message, format!("name a function that {own} lead to"));
        }
        if own {
            self.backup_label((name, function), (backup, other), key);
        }
    }

    /// In place of a label whose function is down comes one other label, of the same node.
    fn backup_label(&mut self, (name, function): (&str, &Function), (backup, other): (&str, &Function), key: &KeyPath) {
        if function.node != other.node {
            let message = format!(
                "{backup:?} is on node {:?}, and one label in place of that of {name:?} leads to functions of node {:?} only",
                other.node, function.node
            );
            let remedy =
                format!("name a function of node {:?}, or let SIDs lead (`sr_dataplane: srv6`)", function.node);
            self.report.error(key, message, remedy);
        }
        if self.leads_round(name) {
            let message = format!(
                "the backups of {name:?} lead round in a circle: while all of them are down, packets would go round in their node"
            );
            self.report.error(key, message, "let the last of them drop packets, or let them pass");
        }
    }

    /// A packet that went from a failed function to its backup shows it by its list, whose active segment is another than its
    /// destination: if that is down too, the packet is dropped. The first segment of a reduced list is not in it. So it must not be
    /// one whose backups lead round in a circle.
    pub(super) fn backups_of(&mut self, chain: &Chain, key: &KeyPath) {
        if chain.mode != HeadendMode::HEncapsRed {
            return;
        }
        let mut ways = vec![chain.via.iter().collect::<Vec<_>>()];
        if chain.reverse {
            ways.push(chain.via.iter().rev().collect());
        }
        let mut circles = Vec::new();
        for way in ways {
            // What a static proxy puts back is a list of its own.
            let is_static = |name: &str| self.approach(name) == Some(Approach::Static);
            // Where a chain crosses, a list begins somewhere on its way.
            let begins = |position: usize| position == 0 || self.inventory.is_mixed() || is_static(way[position - 1]);
            let first = way.iter().enumerate().filter(|(position, _)| begins(*position)).map(|(_, name)| name);
            // Stacks of labels have no mode, and circles of theirs are refused whatever it is.
            for name in first.filter(|name| !name.starts_with(WAYPOINT) && !self.is_by_labels(name)) {
                if self.leads_round(name) && !circles.contains(name) {
                    circles.push(name);
                }
            }
        }
        for name in circles {
            let message = format!(
                "the backups of {name:?} lead round in a circle, and it is the first segment of a list, which a reduced list does not \
                 contain: while all of them are down, packets would go to and fro until their hop limit ends them"
            );
            self.report.error(key, message, "write `mode: H.Encaps`, or break the circle");
        }
    }

    /// Whether the backups of a function, one after the other, come to one that was there before.
    fn leads_round(&self, name: &str) -> bool {
        let mut seen = vec![name];
        let mut now = name;
        while let Some(backup) = self.inventory.functions.get(now).and_then(|function| function.backup.as_deref()) {
            if seen.contains(&backup) {
                return true;
            }
            seen.push(backup);
            now = backup;
        }
        false
    }
}
