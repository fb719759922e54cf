//! Packet services of a lab: whether what the topology says of them can be, and the files that they are started with.

use std::path::PathBuf;

use segue_model::error::{Errors, KeyPath, Report};
use segue_model::topology::Topology;
use serde_json::json;

use crate::error::Result;
use crate::loaded::Loaded;
use crate::names::LabPaths;
use crate::{agent, state};

/// Checks the services of a topology, and writes down what each does to packets, by which the planner decides.
///
/// # Errors
/// All that is wrong, by key; the caller knows the lines.
pub fn complete(topology: &mut Topology) -> std::result::Result<(), Errors> {
    let mut report = Report::default();
    for (name, function) in &mut topology.functions {
        let Some(written) = function.service() else { continue };
        let key = KeyPath::root().at("functions").at(name).at("service");
        let Some(service) = segue_services::find(&written.name) else {
            let known: Vec<_> = segue_services::ALL.iter().map(|service| service.name()).collect();
            let message = format!("there is no service {:?}", written.name);
            report.error(&key.at("name"), message, format!("write one of them: {}", known.join(", ")));
            continue;
        };
        let prepared = report.take(service.prepare_value(&written.config, &key.at("config")));
        let workers = written.workers.unwrap_or(1);
        if prepared.as_ref().is_some_and(|prepared| workers > 1 && !prepared.many_workers()) {
            let message = format!("the service {} has one thread as it is configured", written.name);
            report.error(&key.at("workers"), message, "remove the key");
        }
        function.capabilities.rewrites_flows |= prepared.is_some_and(|prepared| prepared.rewrites_flows());
    }
    report.finish()
}

/// Writes the files of the services.
///
/// # Errors
/// If they cannot be written.
pub fn write(paths: &LabPaths, loaded: &Loaded) -> Result<()> {
    for (name, function) in &loaded.topology.functions {
        let Some(service) = function.service() else { continue };
        let Some(interface) = loaded.plan.functions.get(name).and_then(|plan| plan.interfaces.first()) else {
            continue;
        };
        let node = &interface.peer;
        let node = loaded
            .plan
            .nodes
            .get(&node.namespace)
            .and_then(|there| there.interfaces.iter().find(|interface| interface.name == node.interface));
        let text = json!({
            "name": format!("{}-{name}", paths.lab),
            "service": service.name,
            "config": service.config,
            "interface": interface.name,
            "workers": service.workers.unwrap_or(1),
            "cpus": service.cpus,
            "node_mac": node.map(|node| node.mac.to_string()),
        });
        state::write_file(&file(paths, name), &format!("{text:#}\n"))?;
    }
    Ok(())
}

fn file(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "service.json")
}

/// Where it answers.
#[must_use]
pub fn control(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "socket")
}

/// What starts it: a program that starts it again when it dies.
///
/// # Errors
/// If the program is not there.
pub fn command(paths: &LabPaths, name: &str) -> Result<String> {
    let program = agent::segue_service()?;
    let words = [program, "run".into(), file(paths, name), "--restart".into(), "--socket".into(), control(paths, name)];
    let quoted = words.map(|word| format!("'{}'", word.display().to_string().replace('\'', r"'\''")));
    Ok(format!("exec {}", quoted.join(" ")))
}
