//! Functions behind TAP devices of their node: programs in user space, or a virtual machine that somebody else starts.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use segue_host::{HostError, Run, namespace, network, process};

use crate::function::mac;
use crate::runtime::{links, remove_ends};
use crate::{Function, FunctionError, Program, Result, Runtime, Status};

/// How long a program may take to open its devices; generous, since it may be an interpreter on a busy machine.
const OPEN_WITHIN: Duration = Duration::from_secs(60);
/// How long a program may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Variable by which a function's processes are known again.
const MARK: &str = "SEGUE_FUNCTION";

/// What a program is told about its devices, as variables of its environment. NAME is the function's own name for an interface
/// in capital letters: `WEST`, `EAST`, `PORT`, ...
///
/// - `SEGUE_TAP_NAME`: the device to open
/// - `SEGUE_MAC_NAME`: the link-layer address that the node sends to
/// - `SEGUE_NODE_MAC_NAME`: the node's
#[must_use]
pub fn environment(function: &Function) -> Vec<(String, String)> {
    let of_link = |link: &crate::Link| {
        let name = link.name.to_uppercase();
        [
            (format!("SEGUE_TAP_{name}"), link.node.name.clone()),
            (format!("SEGUE_MAC_{name}"), mac(link.mac)),
            (format!("SEGUE_NODE_MAC_{name}"), mac(link.node.mac)),
        ]
    };
    function.links.iter().flat_map(of_link).collect()
}

pub(crate) struct Tap;

impl Runtime for Tap {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn needs(&self, _: &Function) -> Vec<&'static str> {
        vec!["ip"]
    }

    /// There is nothing to live in: it has the devices of its node, and a process.
    fn prepare(&self, _: &Function) -> Result<()> {
        Ok(())
    }

    fn attach(&self, function: &Function) -> Result<()> {
        for link in &function.links {
            let name = &link.node.name;
            let lines = format!(
                "tuntap add name {name} mode tap\nlink set dev {name} address {} mtu {}\nlink set dev {name} up\n",
                mac(link.node.mac),
                link.mtu
            );
            network::batch(&link.node.namespace, &[], &lines)?;
        }
        Ok(())
    }

    fn start(&self, function: &Function) -> Result<()> {
        let Some(Program { command, directory }) = &function.program else { return Ok(()) };
        let mark = (MARK.to_owned(), function.mark.clone());
        let run = Run::new("sh", ["-c", command]).environment(environment(function)).environment([mark]);
        let mut run = run.inside(&function.namespace);
        if let Some(directory) = directory {
            run = run.directory(directory);
        }
        let mut child = run.daemon(&function.log).map_err(|error| match error {
            HostError::Start { .. } => error.remedied("fix the command of the function's program"),
            other => other,
        })?;
        wait_open(function, &mut child)
    }

    fn status(&self, function: &Function) -> Result<Status> {
        let there = links(&function.namespace)?;
        let device = |link: &crate::Link| there.iter().find(|device| device.name == link.node.name);
        let devices: Vec<_> = function.links.iter().filter_map(device).collect();
        Ok(match devices.len() {
            0 if processes(function).is_empty() => Status::Absent,
            count if count < function.links.len() => Status::Partial,
            _ if devices.iter().all(|device| device.carrier) => Status::Running,
            _ => Status::Attached,
        })
    }

    fn stop(&self, function: &Function) -> Result<()> {
        process::end_while(|| processes(function), PATIENCE);
        remove_ends(function)
    }

    fn execute(&self, function: &Function, command: &str) -> Result<String> {
        let run = Run::new("sh", ["-c", command]).environment(environment(function)).inside(&function.namespace);
        Ok(run.remedy("fix this command of the function").text()?)
    }
}

/// The program with all that it has started.
fn processes(function: &Function) -> Vec<process::Pid> {
    let node = namespace::identity(&function.namespace);
    process::with_variable(&node.into_iter().collect(), MARK, &function.mark)
}

fn wait_open(function: &Function, child: &mut Child) -> Result<()> {
    let begun = Instant::now();
    loop {
        let there = links(&function.namespace)?;
        let is_open = |name: &str| there.iter().any(|link| link.name == name && link.carrier);
        let closed = function.links.iter().map(|link| &link.node.name).find(|name| !is_open(name));
        let Some(device) = closed else { return Ok(()) };
        let fail = |what: String| {
            let log = fs::read_to_string(&function.log).unwrap_or_default();
            let said = log.trim_end().lines().map(|line| format!("\n    {line}")).collect::<String>();
            Err(FunctionError::Program { function: function.name.clone(), what: format!("{what}; it said:{said}") })
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
