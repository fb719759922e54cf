//! Following the kernel: when links, addresses, routes or neighbours change, ports and caches are put right; and the
//! neighbours that the data plane needs are kept fresh, because packets that XDP forwards do not tell the kernel that a
//! neighbour is in use.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    actor::Handle,
    background,
    kernel::{
        Kernel as _,
        events::{Changes, Events},
        plan,
    },
    node::Node,
    plane::DataPlane,
    problem::{Failure, Fault},
};

/// Notifications that follow each other closer than this are worked off together.
const QUIET: Duration = Duration::from_millis(20);
/// Between two rounds of asking the kernel to confirm neighbours. It believes a confirmation 15 to 45 s.
const NEIGHBOUR_INTERVAL: Duration = Duration::from_secs(15);
/// After a failure, and to notice that nothing notified us of.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread. Must be called in the node's network namespace. It ends with the process.
pub fn spawn(node: Handle<Node>) -> io::Result<()> {
    let mut events = Events::open()?;
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        let mut next_refresh = Instant::now();
        let mut failed = None;
        loop {
            let until = next_refresh.saturating_duration_since(Instant::now());
            let timeout = if failed.is_some() { until.min(RETRY) } else { until };
            let changes = events.wait(timeout, QUIET).unwrap_or_else(|error| {
                tracing::error!(%error, "kernel notifications");
                std::thread::sleep(RETRY);
                Changes::EVERYTHING
            });
            let changes = if failed.is_some() { Changes::EVERYTHING } else { changes };
            let result = react(&node, changes);
            if let Err(failure) = &result
                && failed.as_ref() != Some(failure)
            {
                tracing::warn!("following the kernel: {failure}; tried again every second");
            }
            failed = result.err();
            if next_refresh <= Instant::now() {
                refresh(&node);
                next_refresh = Instant::now() + NEIGHBOUR_INTERVAL;
            }
        }
    })?;
    Ok(())
}

fn react(node: &Handle<Node>, changes: Changes) -> Result<(), Failure> {
    // Kept until the end.
    let _prepared = if changes.links { background::prepare_again(node)? } else { None };
    if changes.links || changes.own_route_gone {
        return node.call_blocking(|node| node.reconcile());
    }
    if changes.routes {
        return node.call_blocking(|node| {
            node.plane.bump_caches().map_err(|problems| Failure { fault: Fault::Kernel, problems })
        });
    }
    Ok(())
}

fn refresh(node: &Handle<Node>) {
    let asked = node.call_blocking(|node| {
        confirm_neighbours(node);
        Ok(())
    });
    if let Err(failure) = asked {
        tracing::warn!("{failure}");
    }
}

/// Asks the kernel to confirm the neighbours that the data plane needs. It does not wait for them.
pub fn confirm_neighbours(node: &mut Node) {
    let Some(state) = node.state() else { return };
    let next_hops = plan::next_hops(state);
    match node.kernel.refresh_neighbours(&next_hops) {
        Ok(count) => tracing::debug!(count, "asked the kernel to confirm neighbours"),
        Err(error) => tracing::warn!("{error}; {}", error.remedy),
    }
}
