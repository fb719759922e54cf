//! The planner: from an inventory with its chains to each node's SIDs, SR policies and steering.
//!
//! Two calls, because functions must be attached before SIDs can name interfaces: [`demands`] says which interfaces functions need; whoever
//! makes the inventory makes them, or looks them up, and adds them as [`inventory::Attachment`]s; then [`plan`] plans. Where chains come from SIDs
//! to labels, [`crossings`] asks for interfaces of nodes in the same way. docs/design/planner.md
//! has the promise.
//!
//! Pure: the same inventory always gives the same plan, and nothing here touches the kernel. Each planned item says why it is
//! there.
#![forbid(unsafe_code)]

use segue_model::error::{Errors, Report};

use chain::Course;
use planner::Planner;

pub use approach::Approach;
pub use crossing::Crossing;
pub use demand::{Demand, Way};
pub use function::words as in_words;
pub use inventory::{Inventory, NodeLabels};
pub use plan::{
    Encap, Explanation, FunctionPlan, KernelEntry, LabelEntry, NodePlan, Plan, Seg6LocalAction, StepAction,
};
pub use segue_model::owner::Direction;

pub mod address;
pub mod approach;
mod attached;
mod chain;
mod check;
mod course;
mod crossing;
mod demand;
mod explain;
mod explain_labels;
mod frames;
mod function;
pub mod graph;
pub mod inventory;
mod label_function;
mod labels;
mod leads;
mod part;
mod plan;
mod planner;
mod reach;
mod segment;
mod sid;
mod steer;
mod tunnel;

/// The interfaces that functions need, in the order of chains. Attachments that the inventory has already make no difference.
///
/// # Errors
/// All that is wrong with the inventory itself, with key paths.
pub fn demands(inventory: &Inventory) -> Result<Vec<Demand>, Errors> {
    Ok(demand::of_courses(inventory, &courses(inventory)?))
}

/// Where chains come from SIDs to labels: for each, whoever makes the inventory makes an [`inventory::Hairpin`] of the node.
///
/// # Errors
/// As of [`demands`].
pub fn crossings(inventory: &Inventory) -> Result<Vec<Crossing>, Errors> {
    Ok(crossing::of_courses(inventory, &courses(inventory)?))
}

/// Plans an inventory.
///
/// # Errors
/// All that is wrong with the inventory, demands without attachment too, with key paths. Nothing is planned then.
pub fn plan(inventory: &Inventory) -> Result<Plan, Errors> {
    let courses = courses(inventory)?;
    let mut planner = Planner::new(inventory);
    attached::check(inventory, &demand::of_courses(inventory, &courses), &mut planner.report);
    attached::check_crossings(inventory, &crossing::of_courses(inventory, &courses), &mut planner.report);
    planner.report.check()?;
    for node in 0..inventory.nodes.len() {
        planner.node_labels(node);
        planner.end_sid(node);
        planner.udp_endpoint(node);
    }
    for course in &courses {
        planner.course(course);
    }
    planner.finish()
}

fn courses(inventory: &Inventory) -> Result<Vec<Course<'_>>, Errors> {
    let mut report = Report::default();
    check::check(inventory, &mut report);
    let mut courses = chain::courses(inventory, &mut report);
    report.check()?;
    part::divide(inventory, &mut courses, &mut report);
    report.finish()?;
    Ok(courses)
}
