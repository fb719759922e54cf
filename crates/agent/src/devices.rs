//! Interfaces that change so that packets are lost: somebody turns GRO off at the far end of a veth, or takes XDP off there. It is said in the
//! log at once, and again when it is over; `segue get ports` says it as long as it lasts.

use std::{collections::BTreeMap, io, time::Duration};

use segue_host::device::FeatureChanges;

use crate::{actor::Handle, node::Node, observe, problem::Failure};

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
    let ports = node.call_blocking(observe::snapshot)?.devices()?;
    Ok(ports
        .into_iter()
        .flat_map(|port| port.problems)
        .map(|problem| (format!("{}: {}", problem.key, problem.message), problem.remedy))
        .collect())
}

fn tell(before: &Wrong, now: &Wrong) {
    for (what, remedy) in now.iter().filter(|(what, _)| !before.contains_key(*what)) {
        tracing::warn!("{what}; {remedy}");
    }
    for what in before.keys().filter(|what| !now.contains_key(*what)) {
        tracing::info!("no longer so: {what}");
    }
}
