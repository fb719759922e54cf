//! The lab's wiring: from a topology to what every namespace must be.
//!
//! It is one source of inventories for the planner (crate `segue-plan`), and makes what a lab has besides: ids and addresses of what the topology
//! leaves open, links with their interfaces, shortest-path routes, functions' own routes. What the planner says of a node goes into its desired
//! state, or into routes of its kernel.
//!
//! Pure: the same topology always gives the same plan, and nothing here touches the kernel. Each planned item says why it is
//! there.
#![forbid(unsafe_code)]

use segue_model::error::Errors;
use segue_model::load;
use segue_model::topology::{Dataplane, Topology};
use segue_plan::approach::{self, Approach, Nature, Visits};

use build::Builder;
use service::Services;

pub use label::{LABEL, Label, LabelError, LabelKind, Labels};
pub use plan::{Interface, LabFunction, LabHost, LabNode, LabPlan, LinkKind, Peer};
pub use route::{Neighbour, NextHop, Route, Rule};

mod address;
mod build;
mod hairpin;
mod inventory;
mod label;
mod mpls;
mod plan;
mod route;
mod service;
mod shared;
mod state;

/// Plans a topology.
///
/// # Errors
/// All that is wrong with the topology, with key paths; [`segue_model::load::locate`] adds the lines. Nothing is planned then.
pub fn plan(topology: &Topology) -> Result<LabPlan, Errors> {
    topology.validate()?;
    let mut builder = Builder::new(topology);
    if builder.hosts.len() < topology.hosts.len() {
        // The planner would miss customers.
        builder.report.check()?;
    }
    let mut inventory = inventory::of_topology(&builder);
    let demands = builder.report.take(segue_plan::demands(&inventory)).unwrap_or_default();
    // What follows relies on addresses and ends that exist.
    builder.report.check()?;
    let mut services = Services::default();
    for demand in &demands {
        let attachment = services.attach(&mut builder, demand);
        if let Some(function) = inventory.functions.get_mut(&demand.function) {
            function.attachments.push(attachment);
        }
    }
    for crossing in builder.report.take(segue_plan::crossings(&inventory)).unwrap_or_default() {
        let hairpin = builder.hairpin(&crossing);
        if let Some(node) = inventory.nodes.get_mut(&crossing.node) {
            node.hairpins.push(hairpin);
        }
    }
    let mut planned = builder.report.take(segue_plan::plan(&inventory)).unwrap_or_default();
    let functions = services.plans(&mut builder, &planned);
    builder.report.check()?;
    builder.links_of_labels(&mut planned);
    let mut nodes = builder.node_plans(&planned);
    let hosts = builder.host_plans();
    for ((name, node), planned) in nodes.iter_mut().zip(planned.nodes.into_values()) {
        if node.dataplane == Dataplane::Segue {
            node.state = Some(state::node_state(name, node, topology, planned, &mut builder.report));
        }
    }
    builder.report.check()?;
    Ok(LabPlan { name: topology.name.clone(), nodes, hosts, functions, explanations: planned.explanations })
}

/// How packets get to a function of a topology and back, and what decided it. None if there is no such function.
pub fn approach(topology: &Topology, name: &str) -> Option<(Approach, String)> {
    let function = inventory::function(topology.functions.get(name)?);
    let backups = topology.functions.values().filter_map(|other| other.backup.as_ref());
    Some(approach::choose(&Nature::of(&function), &Visits::of(name, &topology.chains, backups)))
}

/// Reads, checks and plans a topology. `file` is only for the errors.
///
/// # Errors
/// As with [`load::load_topology`]; the planner's errors have their lines too.
pub fn load_plan(source: &str, file: &str) -> Result<(Topology, LabPlan), Errors> {
    let topology = load::load_topology(source, file)?;
    let plan = plan(&topology).map_err(|errors| load::locate(errors, source, file))?;
    Ok((topology, plan))
}
