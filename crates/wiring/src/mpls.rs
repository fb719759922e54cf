//! The links of labels: the planner names neighbours, and the lab knows how they are reached.

use std::collections::HashMap;

use segue_model::label::{IMPLICIT_NULL, LabelBehaviour, LabelPath, PATHS_MAX};
use segue_model::node::SegmentList;
use segue_plan::{LabelEntry, Plan};

use crate::build::Builder;
use crate::route::NextHop;

impl Builder<'_> {
    /// Puts in next hops and interfaces.
    pub(crate) fn links_of_labels(&self, planned: &mut Plan) {
        let owners = owners(planned);
        for (node, planned) in planned.nodes.values_mut().enumerate() {
            for entry in &mut planned.labels {
                self.links_of_label(node, entry, &owners);
            }
            for policy in &mut planned.policies {
                let Some(towards) = planned.towards.get(&policy.name) else { continue };
                let lists = std::mem::take(&mut policy.segment_lists);
                policy.segment_lists =
                    lists.iter().flat_map(|list| self.by_link(node, towards, list, &owners)).collect();
            }
        }
    }

    /// A headend's list, once for each equally short way to the node of its first label: flows are spread over lists.
    fn by_link(
        &self,
        node: usize,
        towards: &str,
        list: &SegmentList,
        owners: &HashMap<u32, usize>,
    ) -> Vec<SegmentList> {
        let hops = match list.labels.first().and_then(|first| owners.get(first)) {
            Some(owner) => self.label_hops(node, *owner),
            None => self.hop(node, towards).into_iter().collect(),
        };
        let by = |hop: NextHop| SegmentList { next_hop: hop.gateway, port: Some(hop.interface), ..list.clone() };
        hops.into_iter().map(by).take(PATHS_MAX).collect()
    }

    /// A node's label takes all equally short ways to it, or the one in UDP, which needs no link.
    fn links_of_label(&self, node: usize, entry: &mut LabelEntry, owners: &HashMap<u32, usize>) {
        let Some(towards) = &entry.towards else { return };
        let hops = match owners.get(&entry.label.label) {
            Some(owner) => self.label_hops(node, *owner),
            None => self.hop(node, towards).into_iter().collect(),
        };
        if let [hop] = &hops[..] {
            (entry.label.next_hop, entry.label.port) = (hop.gateway, Some(hop.interface.clone()));
            return;
        }
        let swaps = entry.label.behaviour == LabelBehaviour::Swap;
        let path = |hop: NextHop| {
            let ends_there = owners.get(&entry.label.label).is_some_and(|owner| self.leads_to(node, &hop, *owner));
            let out = (swaps && ends_there).then_some(IMPLICIT_NULL);
            Some(LabelPath { next_hop: hop.gateway?, port: Some(hop.interface), out })
        };
        entry.label.paths = hops.into_iter().filter_map(path).take(PATHS_MAX).collect();
    }

    /// The shortest link to a neighbour: where a path over others is as short, that is none of its links.
    fn hop(&self, node: usize, neighbour: &str) -> Option<NextHop> {
        let there = self.topology.nodes.get_index_of(neighbour)?;
        self.label_hops(node, there).into_iter().find(|hop| self.leads_to(node, hop, there))
    }

    /// Whether a node is at the other end of a hop's link.
    fn leads_to(&self, node: usize, hop: &NextHop, there: usize) -> bool {
        let name = self.node_name(there);
        let mut interfaces = self.interfaces[node].iter();
        interfaces.any(|interface| interface.name == hop.interface && interface.peer.namespace == name)
    }
}

/// Whose own each node label is.
fn owners(planned: &Plan) -> HashMap<u32, usize> {
    let own = |(node, planned): (usize, &segue_plan::NodePlan)| {
        let labels = planned.labels.iter().map(|entry| &entry.label);
        let of_node = labels.filter(|label| label.behaviour == LabelBehaviour::Node);
        of_node.map(|label| (label.label, node)).collect::<Vec<_>>()
    };
    planned.nodes.values().enumerate().flat_map(own).collect()
}
