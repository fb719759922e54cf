//! `lab exec`: a command inside a node, host or function.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use segue_host::Run;

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::state::LabRecord;
use crate::{labels, netns};

/// Runs a command in the namespace of a lab's node with the caller's standard input and outputs, and returns its exit
/// status as a shell would: 128 and the signal's number if a signal ended it. Only the network namespace changes. Labels in the command
/// and for the node are put in place.
///
/// # Errors
/// If the lab or node does not exist, or the command cannot be started.
pub fn exec(roots: &Roots, lab: &str, node: &str, command: &[String]) -> Result<u8> {
    let namespace = namespace_of(roots, lab, node)?;
    let command = labels::resolve(&LabPaths::new(roots, lab)?, command)?;
    let Some((program, arguments)) = command.split_first() else { return Ok(0) };
    Ok(shell_status(Run::new(program, arguments).inside(&namespace).status()?))
}

/// Namespace of a lab's node, by the record or, without one, by the names on the system.
///
/// # Errors
/// If the lab or the node does not exist.
pub fn namespace_of(roots: &Roots, lab: &str, node: &str) -> Result<String> {
    let paths = LabPaths::new(roots, lab)?;
    if let Some(record) = LabRecord::read(&paths) {
        return Ok(labels::namespace(&paths, &record, node)?.namespace.clone());
    }
    let namespaces = netns::of_lab(roots, lab);
    if namespaces.is_empty() {
        return Err(LabError::NoSuchLab { lab: lab.to_owned() });
    }
    let known = namespaces.values().cloned().collect::<Vec<_>>().join(", ");
    namespaces
        .into_iter()
        .find_map(|(namespace, name)| (name == node).then_some(namespace))
        .ok_or_else(|| LabError::NoSuchNode { lab: lab.to_owned(), node: node.to_owned(), known })
}

fn shell_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(number & 0xff).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_as_a_shell_tells_it() {
        assert_eq!(shell_status(ExitStatus::from_raw(0)), 0);
        assert_eq!(shell_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
    }
}
