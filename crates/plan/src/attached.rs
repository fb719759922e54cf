//! Whether all that chains need is attached, once, and nothing serves two.

use std::collections::HashMap;

use segue_model::error::{KeyPath, Report};
use segue_model::topology::Interfaces;

use crate::demand::Demand;
use crate::inventory::{Function, Inventory};

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
