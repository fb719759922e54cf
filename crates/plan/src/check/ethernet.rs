//! Chains of Ethernet frames: what they need, and what they do not go together with.

use segue_model::error::KeyPath;
use segue_model::topology::{Chain, Dataplane, Endpoint, WAYPOINT};

use super::Check;
use crate::inventory::Customer;

impl Check<'_, '_> {
    pub(super) fn frames(&mut self, name: &str, chain: &Chain, key: &KeyPath) {
        let ends = [("from", &chain.from), ("to", &chain.to)].map(|(side, end)| self.end_of_frames(end, &key.at(side)));
        if let [Some(from), Some(to)] = ends {
            self.largest_frames(chain, [from, to], key);
        }
        for (position, stop) in chain.via.iter().enumerate().filter(|(_, stop)| !stop.starts_with(WAYPOINT)) {
            let message = format!("the chain carries Ethernet frames, and {stop:?} would get IP packets");
            let remedy = "remove it (waypoints may stay), or remove `ethernet`, so that the chain carries IP packets";
            self.report.error(&key.at("via").at(position), message, remedy);
        }
        if !chain.matching.is_any() {
            let message = "nothing in frames is matched: all that come in by the port go into the chain";
            self.report.error(&key.at("match"), message, "remove the key, or `ethernet`");
        }
        self.nothing_else(name, chain, key);
    }

    /// The customer at an end, with a port of Segue's data plane in front.
    fn end_of_frames(&mut self, end: &Endpoint, key: &KeyPath) -> Option<(String, Customer)> {
        let Endpoint::Host(name) = end else {
            let message = "frames come from the port of a host, and prefixes say none";
            self.report.error(key, message, "name a host, or remove `ethernet`");
            return None;
        };
        // That there is none is said elsewhere.
        let customer = self.inventory.customers.get(name)?;
        let node = self.inventory.nodes.get(&customer.node)?;
        if node.dataplane == Dataplane::Kernel {
            let message = format!("the kernel's data plane on {:?} gets no frames from ports here", customer.node);
            self.report.error(key, message, "give the node `dataplane: segue`, or connect the host to another node");
        } else if node.dataplane == Dataplane::Segue && customer.port.is_none() {
            let message = format!("nothing says which port of {:?} leads to {name:?}", customer.node);
            let key = KeyPath::root().at("customers").at(name).at("port");
            self.report.error(&key, message, "add the port's name: all its frames go into the chain");
        }
        Some((name.clone(), customer.clone()))
    }

    /// Nobody is told of a frame that is too large for the port that it should go out of.
    fn largest_frames(&mut self, chain: &Chain, [from, to]: [(String, Customer); 2], key: &KeyPath) {
        let mut ways = vec![(&from, &to)];
        if chain.reverse {
            ways.push((&to, &from));
        }
        for ((from, sends), (to, takes)) in ways {
            if sends.mtu > takes.mtu {
                let message = format!(
                    "{from} sends packets of up to {} octets, and the link to {to} takes {}",
                    sends.mtu, takes.mtu
                );
                self.report.error(key, message, "give both hosts the same `mtu`: they are on one link");
            }
        }
    }

    /// The port of an end has nothing for other chains.
    fn nothing_else(&mut self, name: &str, chain: &Chain, key: &KeyPath) {
        let inventory = self.inventory;
        for (side, end) in [("from", &chain.from), ("to", &chain.to)] {
            let Endpoint::Host(host) = end else { continue };
            let ends_there = |(other, chain): &(&String, &Chain)| {
                *other != name
                    && [&chain.from, &chain.to]
                        .into_iter()
                        .any(|end| matches!(end, Endpoint::Host(found) if found == host))
            };
            if let Some((other, _)) = inventory.chains.iter().find(ends_there) {
                let message =
                    format!("all frames of {host:?} go into this chain, and the chain {other:?} ends at it too");
                self.report.error(&key.at(side), message, "connect another host for one of the two");
            }
        }
    }
}
