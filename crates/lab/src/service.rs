//! Packet services of a lab: whether what the topology says of them can be, and the files that they are started with.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_host::Run;
use segue_model::error::{Errors, KeyPath, Report};
use segue_model::topology::Topology;
use serde_json::{Value, json};

use crate::error::{LabError, Result};
use crate::loaded::Loaded;
use crate::names::LabPaths;
use crate::{agent, state};

/// How long a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks the services of a topology, and writes down what each does to packets, by which the planner decides. One of a program of its own
/// is checked when that is to be started ([`write`]): what it does to packets the topology says.
///
/// # Errors
/// All that is wrong, by key; the caller knows the lines.
pub fn complete(topology: &mut Topology) -> std::result::Result<(), Errors> {
    let mut report = Report::default();
    let by_labels: BTreeSet<String> = topology
        .functions
        .iter()
        .filter(|(_, function)| topology.leads_to_services_by_labels(&function.node))
        .map(|(name, _)| name.clone())
        .collect();
    for (name, function) in &mut topology.functions {
        let Some(written) = function.service() else { continue };
        let key = KeyPath::root().at("functions").at(name).at("service");
        if let Some(program) = &written.program {
            if program.trim().is_empty() {
                report.error(&key.at("program"), "no program is named", "write what starts it, or remove the key");
            }
            continue;
        }
        let Some(service) = segue_services::find(&written.name) else {
            let known: Vec<_> = segue_services::ALL.iter().map(|service| service.name()).collect();
            let message = format!("there is no service {:?}", written.name);
            let remedy =
                format!("write one of them: {}; or name the program that has it (`program`)", known.join(", "));
            report.error(&key.at("name"), message, remedy);
            continue;
        };
        let prepared = report.take(service.prepare_value(&written.config, &key.at("config")));
        let workers = written.workers.unwrap_or(1);
        if prepared.as_ref().is_some_and(|prepared| workers > 1 && !prepared.many_workers()) {
            let message = format!("the service {} has one thread as it is configured", written.name);
            report.error(&key.at("workers"), message, "remove the key");
        }
        if by_labels.contains(name)
            && let Some(why) = prepared.as_ref().and_then(|prepared| prepared.refuses_labels())
        {
            let message = format!("the service {} cannot be behind a label: it {why}", written.name);
            report.error(&key.at("name"), message, "take it out, or put it on a node that SIDs lead to");
        }
        if written.merged && prepared.as_ref().is_some_and(|prepared| !prepared.takes_merged()) {
            let message = format!("the service {} takes each packet by itself as it is configured", written.name);
            report.error(&key.at("merged"), message, "remove the key");
        }
        function.capabilities.rewrites_flows |= prepared.is_some_and(|prepared| prepared.rewrites_flows());
    }
    report.finish()
}

/// Writes the files of the services.
///
/// # Errors
/// If they cannot be written, or a program of one's own does not take its file.
pub fn write(paths: &LabPaths, loaded: &Loaded) -> Result<()> {
    for (name, function) in &loaded.topology.functions {
        let Some(text) = document(paths, loaded, name) else { continue };
        state::write_file(&file(paths, name), &text)?;
        if let Some(program) = function.service().and_then(|service| service.program.as_deref()) {
            check(program, &file(paths, name), loaded.directory(), name)?;
        }
    }
    Ok(())
}

/// Asks a program of one's own whether it can be started with this file.
pub(crate) fn check(program: &str, file: &Path, directory: Option<&Path>, name: &str) -> Result<()> {
    let mut run = Run::new("sh", ["-c", &format!("{program} check {}", quoted(file))]);
    if let Some(directory) = directory {
        run = run.directory(directory);
    }
    let output = run.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).replace(&file.display().to_string(), "its file");
    Err(LabError::Process {
        function: name.to_owned(),
        what: format!("its program ({program}) cannot be started as the topology says: {}", said.trim()),
        remedy: format!("change functions.{name}.service, or the program"),
    })
}

/// What a service is started with; none if the function is no service, or no chain visits it.
#[must_use]
pub fn document(paths: &LabPaths, loaded: &Loaded, name: &str) -> Option<String> {
    let service = loaded.topology.functions.get(name)?.service()?;
    let interface = loaded.plan.functions.get(name)?.interfaces.first()?;
    let node = &interface.peer;
    let node = loaded
        .plan
        .nodes
        .get(&node.namespace)
        .and_then(|there| there.interfaces.iter().find(|interface| interface.name == node.interface));
    let mut text = json!({
        "name": format!("{}-{name}", paths.lab),
        "service": service.name,
        "config": service.config,
        "interface": interface.name,
        "workers": service.workers.unwrap_or(1),
        "cpus": service.cpus,
        "node_mac": node.map(|node| node.mac.to_string()),
    });
    if loaded.topology.leads_to_services_by_labels(&loaded.topology.functions.get(name)?.node) {
        text["steering"] = json!("sr-mpls");
    }
    if service.merged {
        text["merged"] = json!(true);
    }
    if let Some(limits) = &service.limits {
        text["limits"] = json!(limits);
    }
    Some(format!("{text:#}\n"))
}

/// Asks a service. None: the function is none, or it does not run.
///
/// # Errors
/// What it refused; or if its answer cannot be read.
pub fn ask(paths: &LabPaths, name: &str, word: &str) -> Result<Option<Value>> {
    let socket = control(paths, name);
    let Ok(mut stream) = UnixStream::connect(&socket) else { return Ok(None) };
    let failed = || LabError::io("ask", &socket, "see with `segue service list` whether it runs");
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    stream.write_all(word.as_bytes()).map_err(failed())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed())?;
    let answer: Value = serde_json::from_str(&text).map_err(|error| failed()(error.into()))?;
    match answer["error"].as_str() {
        Some(said) => Err(LabError::Process {
            function: name.to_owned(),
            what: said.trim_end_matches('.').to_owned(),
            remedy: "all is as it was; change what it names, and try again".to_owned(),
        }),
        None => Ok(Some(answer)),
    }
}

/// The file that it is started with.
#[must_use]
pub fn file(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "service.json")
}

/// Where it answers.
#[must_use]
pub fn control(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "socket")
}

/// What starts it: a program that starts it again when it dies. `own`: words of a program of one's own.
///
/// # Errors
/// If the program is not there.
pub fn command(paths: &LabPaths, name: &str, own: Option<&str>) -> Result<String> {
    let program =
        own.map_or_else(|| agent::segue_service().map(|program| quoted(&program)), |own| Ok(own.to_owned()))?;
    Ok(format!(
        "exec {program} run {} --restart --socket {}",
        quoted(&file(paths, name)),
        quoted(&control(paths, name))
    ))
}

/// A path as a word for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
