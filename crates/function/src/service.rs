//! Functions that are a program on the interface of a namespace of their own: packet services. The program answers on a control socket once it
//! takes packets; the kernel of the namespace forwards nothing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use segue_host::{HostError, Run, namespace, polling};

use crate::namespace::Namespace;
use crate::{Function, FunctionError, Program, Result, Runtime, Status};

/// How long a program may take until it answers; generous, since many may load their programs at a time.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Service;

impl Runtime for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn needs(&self, function: &Function) -> Vec<&'static str> {
        let mut programs = Namespace.needs(function);
        programs.push("ethtool");
        programs
    }

    fn prepare(&self, function: &Function) -> Result<()> {
        Namespace.prepare(function)
    }

    fn attach(&self, function: &Function) -> Result<()> {
        Namespace.attach(function)?;
        // XDP takes packets as they are: a checksum that the node left to the device would never be made. And what it sends back itself
        // the node's end takes only while it polls, which a port on socket buffers does not do by itself.
        let checksums = if function.merged { "on" } else { "off" };
        for link in &function.links {
            let line = ["-K", &link.node.name, "tx", checksums, "gro", "on"];
            Run::new("ethtool", line).inside(&link.node.namespace).text()?;
            let defer = || polling::defer(&link.node.name, polling::OF_SERVICES);
            namespace::inside(&link.node.namespace, defer)??;
        }
        Ok(())
    }

    fn start(&self, function: &Function) -> Result<()> {
        let Some(Program { command, directory }) = &function.program else { return Ok(()) };
        let mut run = Run::new("sh", ["-c", command]).inside(&function.namespace);
        if let Some(directory) = directory {
            run = run.directory(directory);
        }
        let mut child = run.daemon(&function.log).map_err(|error| match error {
            HostError::Start { .. } => error.remedied("build it (`./x build`), or set SEGUE_SERVICE to its path"),
            other => other,
        })?;
        wait_answer(function, &mut child)
    }

    fn status(&self, function: &Function) -> Result<Status> {
        Ok(match Namespace.status(function)? {
            Status::Running if !function.control.as_deref().is_some_and(answers) => Status::Attached,
            status => status,
        })
    }

    fn stop(&self, function: &Function) -> Result<()> {
        Namespace.stop(function)?;
        // What was killed has left it.
        if let Some(control) = &function.control {
            let _ = fs::remove_file(control);
        }
        Ok(())
    }

    fn execute(&self, function: &Function, command: &str) -> Result<String> {
        Namespace.execute(function, command)
    }
}

/// Whether somebody says how the service is.
fn answers(control: &Path) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"status")?;
        let mut octet = [0];
        Ok(stream.read(&mut octet)? == 1)
    };
    ask().unwrap_or(false)
}

fn wait_answer(function: &Function, child: &mut Child) -> Result<()> {
    let Some(control) = &function.control else { return Ok(()) };
    let begun = Instant::now();
    while !answers(control) {
        let fail = |what: String| {
            let log = fs::read_to_string(&function.log).unwrap_or_default();
            let said = log.trim_end().lines().map(|line| format!("\n    {line}")).collect::<String>();
            Err(FunctionError::Program { function: function.name.clone(), what: format!("{what}; it said:{said}") })
        };
        if let Ok(Some(status)) = child.try_wait() {
            return fail(format!("it ended ({status}) before it answered on {}", control.display()));
        }
        if begun.elapsed() > ANSWER_WITHIN {
            return fail(format!("it has not answered on {} in {} s", control.display(), ANSWER_WITHIN.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
