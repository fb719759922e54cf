//! `lab gdb`: a debugger on the process of a function, in its namespace.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;

use segue_host::{Run, command};

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::netns;
use crate::state::{Kind, LabRecord, NodeRecord};
use crate::{labels, service};

/// What gdb does if it is to do something and end: the stacks of all threads.
const STACKS: [&str; 3] = ["-batch", "-ex", "thread apply all backtrace"];

/// Runs gdb on a function's process, with the caller's terminal, in the function's namespace; and returns gdb's exit status. `batch`: shows where
/// all threads are, and ends. `arguments` are more of gdb's.
///
/// # Errors
/// If there is no such lab or function, no gdb, or not one process to look at.
pub fn gdb(roots: &Roots, lab: &str, function: &str, batch: bool, arguments: &[String]) -> Result<u8> {
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    let node = labels::namespace(&paths, &record, function)?;
    command::need(&["gdb"])?;
    let process = process(&paths, &record, node)?.to_string();
    // What it runs, also if its file was built again since.
    let program = format!("/proc/{process}/exe");
    let fixed = ["-quiet", "-p", &process, &program].into_iter().chain(batch.then_some(STACKS).into_iter().flatten());
    let all = fixed.map(str::to_owned).chain(arguments.iter().cloned());
    let status = Run::new("gdb", all).inside(&node.namespace).status()?;
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(number & 0xff).unwrap_or(1))
}

/// The process of a function: of a packet service what it says itself (beside it there is what starts it again), else the only one in its
/// namespace.
fn process(paths: &LabPaths, record: &LabRecord, node: &NodeRecord) -> Result<i32> {
    let fail =
        |what: String, remedy: &str| LabError::Process { function: node.name.clone(), what, remedy: remedy.to_owned() };
    if let Some(status) = service::ask(paths, &node.name, "status")? {
        let number = status["pid"].as_i64().and_then(|number| i32::try_from(number).ok());
        return number.ok_or_else(|| fail("it does not say which process it is".into(), "look at its log"));
    }
    let Some(identity) = netns::identity(&node.namespace) else {
        return Err(fail("its namespace is gone".into(), "bring the lab up again"));
    };
    let agents: HashSet<i32> = record.nodes.iter().filter_map(|one| one.agent).collect();
    let wanted = |pid: i32| match node.kind {
        // It shares the namespace with its node, and is told by the devices that it was started for.
        Kind::Tap => has_devices(pid, &node.name),
        _ => !agents.contains(&pid),
    };
    let all = netns::processes(&HashSet::from([identity]));
    let found: Vec<i32> = all.iter().map(|(pid, _)| pid.as_raw()).filter(|pid| wanted(*pid)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(fail(
            "no process of it runs".into(),
            "start one, or name a function with a program or a packet service",
        )),
        several => {
            let numbers: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(fail(
                format!("several processes run: {}", numbers.join(", ")),
                "choose one: `segue lab exec LAB FUNCTION -- gdb -p NUMBER`",
            ))
        }
    }
}

/// Whether a process was started for the TAP devices of a function, whose names begin with the function's.
fn has_devices(pid: i32, function: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let of_device = |variable: &[u8]| {
        let text = String::from_utf8_lossy(variable);
        text.split_once('=').is_some_and(|(name, device)| {
            let side = device.strip_prefix(function).is_some_and(|rest| rest.starts_with('-'));
            name.starts_with("SEGUE_TAP_") && side
        })
    };
    environment.split(|octet| *octet == 0).any(of_device)
}
