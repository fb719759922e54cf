//! Whether labels can go in UDP between the nodes that are named.

use segue_model::error::KeyPath;
use segue_model::topology::LabelTunnel;

use super::Check;
use crate::reach::Reach;

impl Check<'_, '_> {
    pub(super) fn tunnels(&mut self) {
        let inventory = self.inventory;
        let key = KeyPath::root().at("udp_tunnels");
        let whole = match inventory.tunnels.is_empty() {
            true => return,
            false => Reach::new(inventory),
        };
        for (position, tunnel) in inventory.tunnels.iter().enumerate() {
            let key = key.at(position);
            self.tunnel(tunnel, &key, &whole);
            let [a, b] = &tunnel.between;
            let same = |other: &LabelTunnel| {
                other.between == [a.clone(), b.clone()] || other.between == [b.clone(), a.clone()]
            };
            if let Some(other) = inventory.tunnels[..position].iter().position(same) {
                let message = format!("udp_tunnels[{other}] is between {a} and {b} too");
                self.report.error(&key, message, "remove one of the two: labels take the same way in both");
            }
        }
    }

    fn tunnel(&mut self, tunnel: &LabelTunnel, key: &KeyPath, whole: &Reach) {
        let inventory = self.inventory;
        for (end, name) in tunnel.between.iter().enumerate() {
            let key = key.at("between").at(end);
            self.node_exists(name, &key);
            if inventory.nodes.get(name).is_some_and(|node| node.labels.is_none()) {
                let message = format!("no labels lead to {name:?}, which could go there in UDP");
                self.report.error(&key, message, "give it `sr_dataplane: sr-mpls` or `both`, or name another node");
            }
        }
        let [a, b] = &tunnel.between;
        if a == b {
            let message = format!("labels in UDP lead from {a:?} to itself");
            self.report.error(&key.at("between"), message, "name two different nodes");
        } else if let [Some(from), Some(to)] = [a, b].map(|name| inventory.nodes.get_index_of(name))
            && !whole.reaches(from, to)
        {
            let message = format!("no links lead from {a} to {b}, over which UDP could go");
            self.report.error(key, message, "add the missing link to `links`");
        }
        if tunnel.weight == Some(0) {
            self.report.error(
                &key.at("weight"),
                "a weight of 0 is not possible",
                "choose 1 or more, or remove the key",
            );
        }
    }
}
