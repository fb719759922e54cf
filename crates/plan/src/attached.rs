//! Whether all that chains need is attached, once, and nothing serves two.

use std::collections::HashMap;

use segue_model::error::{KeyPath, Report};
use segue_model::topology::Interfaces;

use crate::crossing::Crossing;
use crate::demand::Demand;
use crate::inventory::{Function, Hairpin, Inventory};

pub(crate) fn check(inventory: &Inventory, demands: &[Demand], report: &mut Report) {
    for demand in demands {
        let Some(function) = inventory.functions.get(&demand.function) else { continue };
        answered(demand, function, report);
    }
    let mut taken = HashMap::new();
    for (name, function) in &inventory.functions {
        let key = KeyPath::root().at("functions").at(name).at("attachments");
        for (position, attachment) in function.attachments.iter().enumerate() {
            let key = key.at(position);
            if function.attachments[..position].iter().any(|other| other.owner == attachment.owner) {
                report.error(&key, "it has the owner of one before it", "keep one attachment for each demand");
            }
            for side in [Some(&attachment.west), attachment.east.as_ref()].into_iter().flatten() {
                if let Some(other) = taken.insert((&function.node, &side.interface), name) {
                    let message =
                        format!("the interface {:?} of {} leads to {other:?} already", side.interface, function.node);
                    report.error(&key, message, "attach it by another interface: packets come back by it for one only");
                }
            }
        }
    }
}

/// Whether packets find their way back into each node where labels lead on from SIDs.
pub(crate) fn check_crossings(inventory: &Inventory, crossings: &[Crossing], report: &mut Report) {
    for Crossing { node, policy, .. } in crossings {
        let hairpins = inventory.nodes.get(node).map_or(&[][..], |node| node.hairpins.as_slice());
        let key = KeyPath::root().at("nodes").at(node).at("hairpins");
        if hairpins.iter().all(|hairpin| hairpin.policy != *policy) {
            let message =
                format!("nothing leads back into {node:?} for the policy {policy}, where labels lead on from SIDs");
            report.error(
                &key,
                message,
                "add a hairpin for this policy: two interfaces of the node that lead to each other",
            );
        }
    }
    for (name, node) in &inventory.nodes {
        for (position, hairpin) in node.hairpins.iter().enumerate() {
            let same = |other: &Hairpin| {
                other.policy == hairpin.policy || other.table == hairpin.table || other.port == hairpin.port
            };
            if node.hairpins[..position].iter().any(same) {
                let key = KeyPath::root().at("nodes").at(name).at("hairpins").at(position);
                let message = "it has the policy, the table or the port of one before it";
                report.error(&key, message, "give each crossing a table and a port of its own");
            }
        }
    }
}

fn answered(demand: &Demand, function: &Function, report: &mut Report) {
    let key = KeyPath::root().at("functions").at(&demand.function).at("attachments");
    let whose = demand.owner.as_ref().map_or("all chains, which share it".to_owned(), ToString::to_string);
    let wanted = match demand.interfaces {
        Interfaces::Two => "a pair of interfaces, west and east",
        Interfaces::One => "one interface, west",
    };
    let Some(attachment) = function.attachment(demand.owner.as_ref()) else {
        let message = format!("nothing leads to {:?} for {whose}", demand.function);
        let remedy = format!("add an attachment with this owner: {wanted}, of {}", demand.node);
        return report.error(&key, message, remedy);
    };
    if attachment.east.is_some() != (demand.interfaces == Interfaces::Two) {
        let message = format!("the attachment of {:?} for {whose} does not fit its interfaces", demand.function);
        report.error(&key, message, format!("give it {wanted}"));
    }
}
