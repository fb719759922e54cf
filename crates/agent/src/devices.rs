//! Interfaces whose abilities change: somebody turns GRO off at the far end of a veth, or takes XDP off there. The data plane is told
//! at once. What loses packets is said in the log, and again when it is over; `segue get ports` says it as long as it lasts.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use segue_host::device::FeatureChanges;

use crate::{actor::Handle, apply::LinksFollowed, node::Node, observe, problem::Failure};

/// Changes that follow each other closer than this are looked at together.
const QUIET: Duration = Duration::from_millis(50);
/// From one look to the next: who is at the far end may change his end as often as he likes.
const PACE: Duration = Duration::from_secs(1);

/// What is wrong, by what is said of it.
type Wrong = BTreeMap<String, String>;

/// Starts the thread, in the calling thread's network namespace. It ends with the process. Kernels before 6.3 tell of no such changes: there
/// it ends at once.
pub fn spawn(node: Handle<Node>) -> io::Result<()> {
    let changes = FeatureChanges::open().map_err(io::Error::other)?;
    let Some(mut changes) = changes else { return Ok(()) };
    std::thread::Builder::new().name("devices".to_owned()).spawn(move || {
        let mut known = Wrong::new();
        loop {
            match look(&node) {
                Ok(now) => {
                    tell(&known, &now);
                    known = now;
                }
                Err(failure) => tracing::warn!("interfaces: {failure}"),
            }
            if let Err(error) = changes.wait(QUIET) {
                tracing::error!("changes of interfaces are not followed any more: {error}");
                return;
            }
            std::thread::sleep(PACE);
        }
    })?;
    Ok(())
}

fn look(node: &Handle<Node>) -> Result<Wrong, Failure> {
    node.call_blocking(follow)?;
    let ports = node.call_blocking(observe::snapshot)?.devices()?;
    Ok(ports
        .into_iter()
        .flat_map(|port| port.problems)
        .map(|problem| (format!("{}: {}", problem.key, problem.message), problem.remedy))
        .collect())
}

fn follow(node: &mut Node) -> Result<(), Failure> {
    let ports: BTreeSet<String> =
        node.state().into_iter().flat_map(|state| &state.ports).map(|port| port.name.clone()).collect();
    if !ports.is_empty() && node.follow_links(&ports)? == LinksFollowed::Changed {
        node.reconcile()?;
    }
    Ok(())
}

fn tell(before: &Wrong, now: &Wrong) {
    for (what, remedy) in now.iter().filter(|(what, _)| !before.contains_key(*what)) {
        tracing::warn!("{what}; {remedy}");
    }
    for what in before.keys().filter(|what| !now.contains_key(*what)) {
        tracing::info!("no longer so: {what}");
    }
}
