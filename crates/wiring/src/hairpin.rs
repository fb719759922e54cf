//! Ways back into a node: where labels lead on from SIDs, what comes out of the outer header leaves by one port of the node and comes in by
//! another one, an access port, where it is steered again.

use std::net::{IpAddr, Ipv6Addr};

use segue_model::owner::AddressFamily;
use segue_plan::Crossing;
use segue_plan::inventory::Hairpin;

use crate::build::{Builder, HairpinLink, NewEnd};
use crate::plan::LinkKind;
use crate::route::{Neighbour, NextHop, Route};

/// Number of the first such table of a node.
const FIRST_TABLE: u32 = 1000;
/// The neighbour that the default routes name: nobody's address, so that the kernel takes it for that of another. Its link-layer address is
/// known.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

impl Builder<'_> {
    /// Makes what is asked for.
    pub(crate) fn hairpin(&mut self, crossing: &Crossing) -> Hairpin {
        // The planner has it from the topology.
        let node = self.topology.nodes.get_index_of(&crossing.node).unwrap_or_default();
        let count = self.hairpins.iter().filter(|hairpin| hairpin.node == node).count();
        let table = FIRST_TABLE.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let reason = format!("chain {} goes on by labels: into the policy {}", crossing.chain, crossing.policy);
        let ends = ["-out", "-in"].map(|suffix| NewEnd {
            namespace: crossing.node.clone(),
            name: self.unique_name(node, &crossing.chain, suffix),
            addresses: Vec::new(),
            port: true,
        });
        let mtu = self.topology.domain.core_mtu;
        let [out, back] = self.link(LinkKind::Hairpin, mtu, &reason, ends);
        let hairpin = Hairpin { policy: crossing.policy.clone(), table, port: back.name.clone() };
        self.hairpins.push(HairpinLink { node, table, out: out.name.clone(), back: back.mac, reason });
        self.interfaces[node].extend([out, back]);
        hairpin
    }

    /// What the tables of a node's hairpins have.
    pub(crate) fn hairpin_routes(&self, node: usize) -> (Vec<Route>, Vec<Neighbour>) {
        let (mut routes, mut neighbours) = (Vec::new(), Vec::new());
        for hairpin in self.hairpins.iter().filter(|hairpin| hairpin.node == node) {
            let gateway = IpAddr::V6(GATEWAY);
            neighbours.push(Neighbour { address: gateway, mac: hairpin.back, interface: hairpin.out.clone() });
            routes.extend([AddressFamily::Ipv4, AddressFamily::Ipv6].map(|family| Route {
                table: Some(hairpin.table),
                destination: family.all_addresses(),
                next_hops: vec![NextHop { gateway: Some(gateway), interface: hairpin.out.clone() }],
                source: None,
                encap: None,
                reason: hairpin.reason.clone(),
            }));
        }
        (routes, neighbours)
    }
}
