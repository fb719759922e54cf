//! From a topology's text to what it means and to its plan: when a lab is brought up, and again for one that is up.

use std::fs;

use segue_model::load::{load_topology, locate};
use segue_model::topology::Topology;
use segue_wiring::LabPlan;

use crate::error::{LabError, Result};
use crate::names::LabPaths;
use crate::service;
use crate::state::LabRecord;

/// A topology, with what its services say of themselves. `shown` is its file, for the errors.
///
/// # Errors
/// All that is wrong, with line, key and remedy.
pub(crate) fn topology(text: &str, shown: &str) -> Result<Topology> {
    let mut topology = load_topology(text, shown).map_err(|errors| LabError::Topology(errors.to_string()))?;
    let wrong = |errors| LabError::Topology(locate(errors, text, shown).to_string());
    service::complete(&mut topology).map_err(wrong)?;
    Ok(topology)
}

/// The plan of a topology.
///
/// # Errors
/// All that is wrong, with line, key and remedy.
pub(crate) fn plan(topology: &Topology, text: &str, shown: &str) -> Result<LabPlan> {
    segue_wiring::plan(topology).map_err(|errors| LabError::Topology(locate(errors, text, shown).to_string()))
}

/// The topology of a lab that is up, as it was when it came up, with its plan.
///
/// # Errors
/// If its records are lost.
pub fn of_lab(paths: &LabPaths, record: &LabRecord) -> Result<(Topology, LabPlan)> {
    let path = paths.directory.join("topology.yaml");
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path, "bring the lab up again"))?;
    let shown = record.file.display().to_string();
    let topology = topology(&text, &shown)?;
    let plan = plan(&topology, &text, &shown)?;
    Ok((topology, plan))
}
