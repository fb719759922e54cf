//! Rule files of functions that are firewalls: read, and checked before anything is made.

use std::path::Path;

use segue_firewall::{Error, Source, files};
use segue_iptables::Surroundings;
use segue_model::topology::Topology;

use crate::error::{LabError, Result};

/// Replaces the paths of rule files, which are relative to the topology's file, by what the files hold. What the agent would
/// refuse is refused here, but for what depends on the node's interfaces.
///
/// # Errors
/// A file that cannot be read; all that is wrong with a file, with line and column.
pub(crate) fn read(topology: &mut Topology, document: &Path) -> Result<()> {
    for (name, function) in &mut topology.functions {
        let Some(firewall) = function.firewall_mut() else { continue };
        files::read(firewall, name, document).map_err(|error| match error {
            Error::File { path, source, .. } => {
                let remedy = "fix `firewall` of the function in the topology: a path relative to the topology's file";
                LabError::io("read", &path, remedy)(source)
            }
            other => LabError::Rules { function: name.clone(), what: other.to_string() },
        })?;
        let lowered = Source::parse(firewall).and_then(|source| source.lower(&Surroundings::default()));
        lowered.map_err(|error| LabError::Rules { function: name.clone(), what: error.to_string() })?;
    }
    Ok(())
}
