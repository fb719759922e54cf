//! Programs behind TAP devices: functions in user space.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use segue_host::{HostError, Run};
use segue_model::plan::{Interface, Plan};

use crate::error::{LabError, Result};
use crate::names::LabPaths;
use crate::up::Loaded;

/// How long a program may take to open its devices; generous, since it may be an interpreter on a busy machine.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// What a program is told about its devices, as variables of its environment. NAME is the function's own name for an interface
/// in capital letters: `WEST`, `EAST`, `PORT`, ...
///
/// - `SEGUE_TAP_NAME`: the device to open
/// - `SEGUE_MAC_NAME`: the link-layer address that the node sends to
/// - `SEGUE_NODE_MAC_NAME`: the node's
#[must_use]
pub fn environment(plan: &Plan, function: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for [(_, near), (there, far)] in plan.links() {
        if there == function {
            let name = far.name.to_uppercase();
            variables.push((format!("SEGUE_TAP_{name}"), near.name.clone()));
            variables.push((format!("SEGUE_MAC_{name}"), far.mac.to_string()));
            variables.push((format!("SEGUE_NODE_MAC_{name}"), near.mac.to_string()));
        }
    }
    variables
}

/// Starts a function's program in its node's namespace, and waits until it has opened all of its devices.
///
/// # Errors
/// If it cannot be started, ends, or leaves a device alone.
pub fn start(paths: &LabPaths, loaded: &Loaded, function: &str, command: &str) -> Result<()> {
    let Some(plan) = loaded.plan.functions.get(function) else { return Ok(()) };
    let namespace = paths.namespace(&plan.node);
    let mut run = Run::new("sh", ["-c", command]).environment(environment(&loaded.plan, function)).inside(&namespace);
    if let Some(directory) = loaded.file.parent().filter(|directory| *directory != Path::new("")) {
        run = run.directory(directory);
    }
    let mut child = run.daemon(&paths.file(function, "log")).map_err(|error| match error {
        HostError::Start { .. } => error.remedied("fix `program` of this function in the topology"),
        other => other,
    })?;
    let devices = loaded.plan.links().into_iter().filter(|[_, (there, _)]| *there == function);
    let devices: Vec<&Interface> = devices.map(|[(_, near), _]| near).collect();
    wait_open(paths, function, &namespace, &devices, &mut child)
}

fn wait_open(
    paths: &LabPaths,
    function: &str,
    namespace: &str,
    devices: &[&Interface],
    child: &mut Child,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        let Some(device) = first_closed(namespace, devices)? else { return Ok(()) };
        let fail = |what: String| {
            let log = fs::read_to_string(paths.file(function, "log")).unwrap_or_default();
            let said = log.trim_end().lines().map(|line| format!("\n    {line}")).collect::<String>();
            Err(LabError::Program { function: function.to_owned(), what: format!("{what}; it said:{said}") })
        };
        if let Ok(Some(status)) = child.try_wait() {
            return fail(format!("it ended ({status}) before it opened the TAP device {device}"));
        }
        if begun.elapsed() > OPEN_WITHIN {
            return fail(format!("it has not opened the TAP device {device} in {} s", OPEN_WITHIN.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first TAP device that nobody has opened: it has no carrier.
fn first_closed<'a>(namespace: &str, devices: &[&'a Interface]) -> Result<Option<&'a str>> {
    for device in devices {
        let text = Run::new("ip", ["-n", namespace, "link", "show", "dev", &device.name]).text()?;
        if !text.contains("LOWER_UP") {
            return Ok(Some(&device.name));
        }
    }
    Ok(None)
}
