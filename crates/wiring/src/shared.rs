//! The namespace of a function that any number of chains share: what comes in by one interface leaves by the other whatever its
//! destination is, because the steering header tells where it goes on to.

use ipnet::{IpNet, Ipv6Net};

use segue_model::owner::Direction;
use segue_model::topology::Interfaces;
use segue_plan::{Approach, Encap, Plan, Seg6LocalAction};

use crate::build::default_route;
use crate::route::{Neighbour, NextHop, Route, Rule};
use crate::service::{ServiceLink, Services};

/// Tables of a function: what comes in by its west interface, and by its east one.
const FROM_WEST: u32 = 100;
const FROM_EAST: u32 = 101;

impl Services {
    /// Routes, rules and neighbours of a function whose links all chains share.
    pub(crate) fn share(&mut self, name: &str, links: &[ServiceLink]) {
        let visits = self.visits.entry(name.to_owned()).or_default();
        for link in links {
            visits.neighbours.extend(link.gateways.iter().map(|gateway| Neighbour {
                address: gateway.addr(),
                mac: link.node_mac,
                interface: link.function_interface.name.clone(),
            }));
        }
        // What the function makes itself leaves by the last link too.
        if let Some(out) = links.last() {
            visits.shared_routes.extend(ways_out(out, None, "all that the function sends"));
        }
        if let [west, east] = links {
            for (table, from, to) in [(FROM_WEST, west, east), (FROM_EAST, east, west)] {
                let reason = format!(
                    "what came in by {} leaves by {}, wherever it goes",
                    from.function_interface.name, to.function_interface.name
                );
                visits.shared_routes.extend(ways_out(to, Some(table), &reason));
                visits.rules.push(Rule { incoming: from.function_interface.name.clone(), table, reason });
            }
        }
    }

    /// The kernel of an SR-aware function does its own End processing, whatever table it looks into.
    pub(crate) fn own_ends(&mut self, name: &str, interfaces: Interfaces, planned: &Plan) {
        let Some(plan) = planned.functions.get(name).filter(|plan| plan.approach == Approach::Aware) else { return };
        let Some(visits) = self.visits.get_mut(name) else { return };
        for (way, sid) in &plan.sids {
            let incoming = match way {
                Direction::Forward => visits.interfaces.first(),
                Direction::Reverse => visits.interfaces.last(),
            };
            let Some(incoming) = incoming else { continue };
            let table = match (interfaces, way) {
                (Interfaces::One, _) => None,
                (Interfaces::Two, Direction::Forward) => Some(FROM_WEST),
                (Interfaces::Two, Direction::Reverse) => Some(FROM_EAST),
            };
            visits.shared_routes.push(Route {
                table,
                destination: IpNet::from(Ipv6Net::from(*sid)),
                next_hops: vec![NextHop { gateway: None, interface: incoming.name.clone() }],
                source: None,
                encap: Some(Encap::Seg6Local(Seg6LocalAction::End)),
                reason: "the function goes on to the next segment by itself".to_owned(),
            });
        }
    }
}

/// Default routes by the node at the other end of a link.
fn ways_out(link: &ServiceLink, table: Option<u32>, reason: &str) -> Vec<Route> {
    let route = |gateway: &IpNet| Route {
        table,
        destination: default_route(gateway),
        next_hops: vec![NextHop { gateway: Some(gateway.addr()), interface: link.function_interface.name.clone() }],
        source: None,
        encap: None,
        reason: reason.to_owned(),
    };
    link.gateways.iter().map(route).collect()
}
