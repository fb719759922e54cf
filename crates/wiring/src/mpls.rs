//! The links of labels: the planner names neighbours, and the lab knows how they are reached.

use segue_plan::Plan;

use crate::build::Builder;
use crate::route::NextHop;

impl Builder<'_> {
    /// Puts in next hops and interfaces.
    pub(crate) fn links_of_labels(&self, planned: &mut Plan) {
        for (node, planned) in planned.nodes.values_mut().enumerate() {
            for entry in &mut planned.labels {
                let Some(hop) = entry.towards.as_ref().and_then(|there| self.hop(node, there)) else { continue };
                (entry.label.next_hop, entry.label.port) = (hop.gateway, Some(hop.interface));
            }
            for policy in &mut planned.policies {
                let Some(hop) = planned.towards.get(&policy.name).and_then(|there| self.hop(node, there)) else {
                    continue;
                };
                for list in &mut policy.segment_lists {
                    (list.next_hop, list.port) = (hop.gateway, Some(hop.interface.clone()));
                }
            }
        }
    }

    /// The shortest link to a neighbour: where a path over others is as short, that is none of its links.
    fn hop(&self, node: usize, neighbour: &str) -> Option<NextHop> {
        let there = self.topology.nodes.get_index_of(neighbour)?;
        let leads = |hop: &NextHop| {
            let mut interfaces = self.interfaces[node].iter();
            interfaces.any(|interface| interface.name == hop.interface && interface.peer.namespace == neighbour)
        };
        self.next_hops(node, there).into_iter().find(leads)
    }
}
