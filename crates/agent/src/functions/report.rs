//! What operators are told of several instances of one function.

use std::collections::{BTreeMap, HashMap};

use segue_api::function::{FunctionReport, InstanceReport};
use segue_dataplane::{Reader, function_number};
use segue_model::instances::{instance_name, instance_number};
use segue_model::node::{Instance, NodeState};
use segue_model::service_label::sid_or_label;

/// Adds to reports on SIDs of instances which these are, and what flows they have. A data plane that cannot be read has none, and says so in
/// the agent's log.
pub fn instances(made: &NodeState, reader: &Reader, reports: &mut [FunctionReport]) {
    let several = made.functions.iter().filter(|(_, function)| !function.instances.is_empty());
    let mut known: HashMap<String, (&str, &str, &Instance)> = HashMap::new();
    let mut timeouts: BTreeMap<u64, u32> = BTreeMap::new();
    for (name, function) in several {
        timeouts.insert(function_number(name), function.flow_timeout());
        for (instance, place) in &function.instances {
            known.insert(instance_name(name, instance), (name, instance, place));
        }
    }
    if known.is_empty() {
        return;
    }
    let flows = reader.instance_flows(&timeouts).unwrap_or_else(|error| {
        tracing::warn!("flows of instances: {error}");
        BTreeMap::new()
    });
    let services = made.services();
    let all = made.sids.iter().chain(&services);
    let of_sid: HashMap<String, &str> =
        all.filter_map(|sid| Some((sid_or_label(&sid.sid.trunc()), sid.function()?))).collect();
    for report in reports {
        let found = of_sid.get(&report.sid).and_then(|function| known.get(*function));
        report.instance = found.map(|(function, name, place)| InstanceReport {
            function: (*function).to_owned(),
            name: (*name).to_owned(),
            flows: flows.get(&(function_number(function), instance_number(name))).copied().unwrap_or_default(),
            takes_new_flows: !place.drain,
        });
    }
}
