//! Watching for what nothing tells of: functions that come (that one goes is seen by its links), the addresses of virtual machines, flows
//! of instances that leave, and what cards enforce on virtual functions.

use std::collections::BTreeMap;
use std::{
    io,
    time::{Duration, Instant},
};

use segue_dataplane::{Reader, function_number};
use segue_model::instances::instance_name;
use segue_model::node::NodeState;

use super::learn::Learner;
use super::virtual_report::Keeper;
use crate::{actor::Handle, apply::Draining, node::Node, plane::DataPlane as _, problem::Failure};

/// How long a function that has come waits for its links.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread. Must be called in the node's network namespace. It ends with the process.
pub fn spawn(node: Handle<Node>) -> io::Result<()> {
    std::thread::Builder::new().name("functions".to_owned()).spawn(move || {
        let (mut learner, mut departures, mut keeper) = (Learner::default(), Departures::default(), Keeper::default());
        loop {
            std::thread::sleep(INTERVAL);
            // A worker that has ended says so elsewhere.
            let Ok(Some(made)) = node.call_blocking(|node| Ok(node.made())) else { continue };
            if made.functions.is_empty() {
                continue;
            }
            // Beside the node's thread: asking for a container takes a program.
            if super::has_come(&made)
                && let Err(failure) = node.call_blocking(Node::reconcile)
            {
                tracing::warn!("a function that has come: {failure}; tried again every second");
            }
            keeper.keep(&made);
            if made.functions.values().any(|function| function.vm.is_some()) {
                match learner.look(&made) {
                    Ok(learnt) => {
                        if let Err(failure) = node.call_blocking(move |node| node.learn(learnt)) {
                            tracing::warn!("the address of a virtual machine: {failure}; tried again every second");
                        }
                    }
                    Err(error) => tracing::warn!("links of virtual machines: {error}"),
                }
            }
            if let Err(failure) = departures.look(&node, &made) {
                tracing::warn!("instances that leave: {failure}; tried again every second");
            }
        }
    })?;
    Ok(())
}

/// Instances that leave, and since when this agent knows.
#[derive(Debug, Default)]
struct Departures(BTreeMap<Draining, Instant>);

impl Departures {
    /// Those that have no flows any more, that are down, or that have had their time, go.
    fn look(&mut self, node: &Handle<Node>, made: &NodeState) -> Result<(), Failure> {
        let (leaving, reader, down) =
            node.call_blocking(|node| Ok((node.leaving(), node.plane.reader(), node.plane.down())))?;
        self.0.retain(|known, _| leaving.contains(known));
        if leaving.is_empty() {
            return Ok(());
        }
        let flows = reader.map_or_else(BTreeMap::new, |reader| flows(&reader, &leaving));
        let services = made.services();
        let is_down = |draining: &Draining| {
            let name = instance_name(&draining.function, &draining.instance);
            let mut sids = made.sids.iter().chain(&services).filter(|sid| sid.function() == Some(name.as_str()));
            sids.all(|sid| down.contains(&sid.sid.trunc()))
        };
        let is_over = |draining: &Draining, since: Instant| {
            let has_flows = flows.get(draining).is_none_or(|count| *count > 0);
            !has_flows || is_down(draining) || since.elapsed() >= Duration::from_secs(draining.timeout.into())
        };
        let mut gone = Vec::new();
        for draining in leaving {
            let since = *self.0.entry(draining.clone()).or_insert_with(Instant::now);
            if is_over(&draining, since) {
                gone.push(draining);
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        node.call_blocking(move |node| node.let_go(&gone))
    }
}

/// Flows of each of these; none of those that are not known, because the data plane cannot be read.
fn flows(reader: &Reader, leaving: &[Draining]) -> BTreeMap<Draining, u64> {
    let timeouts: BTreeMap<u64, u32> =
        leaving.iter().map(|draining| (function_number(&draining.function), draining.flow_timeout)).collect();
    let counts = match reader.instance_flows(&timeouts) {
        Ok(counts) => counts,
        Err(error) => {
            tracing::warn!("flows of instances: {error}");
            return BTreeMap::new();
        }
    };
    let of = |draining: &Draining| {
        counts.get(&(function_number(&draining.function), draining.number)).copied().unwrap_or_default()
    };
    leaving.iter().map(|draining| (draining.clone(), of(draining))).collect()
}
