//! From a plan to the functions that runtimes bring to life.

use std::fs;
use std::path::Path;

use segue_function::{Function, Kind, Link, NodeEnd, Program};
use segue_host::Network;
use segue_model::topology::Ruleset;
use segue_wiring::{Interface, LabPlan};

use crate::error::{LabError, Result};
use crate::loaded::Loaded;
use crate::names::{self, LabPaths};
use crate::{service, wiring};

/// All functions of a lab but those in the data plane of their node, which are a part of that.
///
/// # Errors
/// If a file cannot be read that the topology names.
pub fn all(paths: &LabPaths, loaded: &Loaded) -> Result<Vec<Function>> {
    let plans = loaded.plan.functions.iter().filter(|(_, plan)| !plan.inside);
    plans
        .map(|(name, plan)| {
            let topology = loaded.topology.functions.get(name);
            let service = topology.and_then(|function| function.service());
            let (kind, namespace, network) = if service.is_some() {
                (Kind::Service, paths.namespace(name), wiring::function_network(plan))
            } else if plan.tap {
                (Kind::Tap, paths.namespace(&plan.node), Network::default())
            } else {
                (Kind::Namespace, paths.namespace(name), wiring::function_network(plan))
            };
            let program = match service {
                // Without a chain that visits it there is no interface to serve.
                Some(_) if plan.interfaces.is_empty() => None,
                Some(service) => Some(service::command(paths, name, service.program.as_deref())?),
                None => topology.and_then(|function| function.program()).map(str::to_owned),
            };
            Ok(Function {
                name: name.clone(),
                kind,
                namespace,
                mark: names::mark(&paths.lab, name),
                links: links(paths, &loaded.plan, name),
                network,
                ruleset: ruleset(loaded, name)?,
                program: program.map(|command| Program { command, directory: loaded.directory().map(Path::to_owned) }),
                control: service.map(|_| service::control(paths, name)),
                merged: service.is_some_and(|service| service.merged),
                log: paths.file(name, "log"),
            })
        })
        .collect()
}

/// Rulesets of functions that have one, by the name of a file for each.
///
/// # Errors
/// If a file cannot be read that the topology names.
pub fn rulesets(loaded: &Loaded) -> Result<Vec<(String, String)>> {
    let names = loaded.topology.functions.keys();
    let found = names.map(|name| Ok(ruleset(loaded, name)?.map(|text| (format!("{name}.nft"), text))));
    found.filter_map(Result::transpose).collect()
}

fn links(paths: &LabPaths, plan: &LabPlan, function: &str) -> Vec<Link> {
    let of_function = plan.links().into_iter().filter(|[_, (there, _)]| *there == function);
    let link = |[(here, near), (_, far)]: [(&str, &Interface); 2]| Link {
        node: NodeEnd { namespace: paths.namespace(here), name: near.name.clone(), mac: near.mac.octets() },
        name: far.name.clone(),
        mac: far.mac.octets(),
        mtu: near.mtu,
    };
    of_function.map(link).collect()
}

fn ruleset(loaded: &Loaded, function: &str) -> Result<Option<String>> {
    match loaded.topology.functions.get(function).and_then(|function| function.ruleset()) {
        Some(Ruleset::Inline(text)) => Ok(Some(text.to_owned())),
        Some(Ruleset::File(path)) => {
            let path = loaded.file.parent().unwrap_or(Path::new("")).join(path);
            let remedy = "fix `nftables` of the function in the topology: a path relative to the topology's file";
            fs::read_to_string(&path).map(Some).map_err(LabError::io("read", &path, remedy))
        }
        None => Ok(None),
    }
}
