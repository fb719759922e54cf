//! Following the kernel: when links, addresses, routes or neighbours change, ports and caches are reconciled; and the
//! neighbours that the data plane needs are kept fresh, because packets that XDP forwards do not tell the kernel that a
//! neighbour is in use.
//!
//! Others than the operator can make neighbours and links change as often as they like. So a neighbour costs only the ways by
//! it, without the node's thread; interfaces that nothing here is about cost nothing; and ports are reconciled at most once a
//! second.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use segue_dataplane::Life;

use crate::{
    actor::Handle,
    apply::LinksFollowed,
    background,
    kernel::{
        Kernel as _, KernelError, LinuxKernel,
        events::{Changes, Events, Neighbour},
        plan,
    },
    node::Node,
    problem::Failure,
};

/// Notifications that follow each other closer than this are worked off together.
const QUIET: Duration = Duration::from_millis(20);
/// From one time that ports are reconciled to the next.
const PACE: Duration = Duration::from_secs(1);
/// Between two rounds of asking the kernel to confirm neighbours. It believes a confirmation 15 to 45 s.
const NEIGHBOUR_INTERVAL: Duration = Duration::from_secs(15);
/// Between two looks at which neighbours packets would have needed. Where the kernel gets those packets it asks at once.
const UNRESOLVED_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at what nodes have said of paths. A sender waits longer before it sends again what is lost.
const PATH_MTU_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure, and to notice that nothing notified us of.
const RETRY: Duration = Duration::from_secs(1);
/// Nothing is due.
const LONG: Duration = Duration::from_secs(3600);

/// Starts the thread. Must be called in the node's network namespace. It ends with the process. `own`: see [`Events::open`].
pub fn spawn(node: Handle<Node>, life: Life, neighbours: Neighbours, own: u32) -> io::Result<()> {
    let mut events = Events::open(own)?;
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        // Nobody knows what happened before.
        let mut pending = Changes { routes: true, ..Changes::default() };
        let mut next = Instant::now();
        let mut failed = None;
        loop {
            forget(&life, &neighbours, &mut pending);
            if (pending.structural() || failed.is_some()) && next <= Instant::now() {
                let changes = std::mem::take(&mut pending);
                let changes = if failed.is_some() { Changes::everything() } else { changes };
                let result = react(&node, &changes);
                if let Err(failure) = &result
                    && failed.as_ref() != Some(failure)
                {
                    tracing::warn!("following the kernel: {failure}; tried again every second");
                }
                if !matches!(result, Ok(false)) {
                    next = Instant::now() + PACE;
                }
                failed = result.err();
            }
            let waits = pending.structural() || failed.is_some();
            let timeout = if waits { next.saturating_duration_since(Instant::now()) } else { LONG };
            let changes = events.wait(timeout, QUIET).unwrap_or_else(|error| {
                tracing::error!(%error, "kernel notifications");
                std::thread::sleep(RETRY);
                Changes::everything()
            });
            pending.add(changes);
        }
    })?;
    Ok(())
}

/// Has the data plane ask the kernel anew for what has changed, and the kernel for neighbours that it has lost. Not by the node's thread,
/// which may be at something long.
fn forget(life: &Life, asker: &Neighbours, changes: &mut Changes) {
    let neighbours: Vec<_> = std::mem::take(&mut changes.neighbours).into_iter().collect();
    let turned: Vec<u32> = std::mem::take(&mut changes.turned).into_iter().collect();
    let (ways, all) = (std::mem::take(&mut changes.routes), std::mem::take(&mut changes.all_neighbours));
    let result = match (ways, all) {
        (true, _) => life.forget_ways(),
        (false, true) => life.forget_all_neighbours(),
        (false, false) => life.forget_neighbours(&neighbours).and_then(|()| life.forget_links(&turned)),
    };
    if let Err(error) = result {
        tracing::error!("routes and neighbours: {error}");
    }
    if all {
        asker.ask();
    } else if !neighbours.is_empty() {
        asker.lost(neighbours);
    }
}

/// Puts ports and routes right; false if the changes are about none of them.
fn react(node: &Handle<Node>, changes: &Changes) -> Result<bool, Failure> {
    if !changes.all_links && !changes.own_route_gone {
        let names = changes.links.clone();
        match node.call_blocking(move |node| node.follow_links(&names))? {
            LinksFollowed::Strange => return Ok(false),
            LinksFollowed::Followed => return Ok(true),
            LinksFollowed::Changed => {}
        }
    }
    // Kept until the end.
    let _prepared = background::prepare_again(node)?;
    node.call_blocking(|node| node.reconcile())?;
    Ok(true)
}

/// Starts the thread that makes limits of what the data plane is told of paths that packets do not fit.
pub fn spawn_path_mtus(node: Handle<Node>) -> io::Result<()> {
    std::thread::Builder::new().name("path-mtus".to_owned()).spawn(move || {
        let mut failed = None;
        loop {
            std::thread::sleep(PATH_MTU_INTERVAL);
            let failure = node.call_blocking(|node| node.follow_path_mtus()).err();
            if let Some(failure) = failure.as_ref().filter(|failure| failed.as_ref() != Some(*failure)) {
                tracing::warn!("path MTUs: {failure}; tried again every second");
            }
            failed = failure;
        }
    })?;
    Ok(())
}

/// What is asked of the thread that keeps neighbours fresh.
enum Asked {
    /// All that the data plane needs.
    All,
    /// Those of these that it needs: the kernel has just lost them.
    Lost(Vec<Neighbour>),
}

/// Asks for the neighbours that the data plane needs when it is told to.
#[derive(Clone)]
pub struct Neighbours(mpsc::Sender<Asked>);

impl Neighbours {
    /// Starts the thread, in the calling thread's network namespace: there may be as many neighbours as policies, and each is a question
    /// to the kernel.
    pub fn spawn(node: Handle<Node>, life: Life) -> io::Result<Self> {
        let mut kernel = LinuxKernel::open().map_err(io::Error::other)?;
        let (sender, asked) = mpsc::channel();
        std::thread::Builder::new().name("neighbours".to_owned()).spawn(move || {
            let (mut all, mut paced) = (Instant::now() + NEIGHBOUR_INTERVAL, Instant::now());
            loop {
                let wait = all.saturating_duration_since(Instant::now()).min(UNRESOLVED_INTERVAL);
                let mut next = match asked.recv_timeout(wait) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => None,
                    Ok(first) => Some(first),
                };
                let mut lost = Vec::new();
                // Once for all who asked meanwhile.
                while let Some(what) = next {
                    match what {
                        Asked::All => all = all.min(paced),
                        Asked::Lost(more) => lost.extend(more),
                    }
                    next = asked.try_recv().ok();
                }
                if all <= Instant::now() {
                    refresh(&node, &mut kernel);
                    paced = Instant::now() + PACE;
                    all = Instant::now() + NEIGHBOUR_INTERVAL;
                }
                told(kernel.ask_again(&lost));
                match life.unresolved() {
                    Ok(unresolved) => told(kernel.ask_for(unresolved)),
                    Err(error) => tracing::warn!("neighbours that packets need: {error}"),
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Packets to next hops that are new, or on a link that has come back, must not wait for the next round.
    pub fn ask(&self) {
        // A thread that has ended has said why.
        let _ = self.0.send(Asked::All);
    }

    /// Nor those to a neighbour that the kernel has forgotten: it does so with any that it has not used itself for some seconds, and
    /// packets of Segue's are no use to it, when all namespaces of the machine together have more than `gc_thresh2` of them (512).
    fn lost(&self, neighbours: Vec<Neighbour>) {
        let _ = self.0.send(Asked::Lost(neighbours));
    }
}

fn refresh(node: &Handle<Node>, kernel: &mut LinuxKernel) {
    match node.call_blocking(|node| Ok(node.made())) {
        Ok(Some(state)) => told(kernel.refresh_neighbours(&plan::next_hops(&state))),
        Ok(None) => {}
        Err(failure) => tracing::warn!("{failure}"),
    }
}

fn told(result: Result<usize, KernelError>) {
    match result {
        Ok(0) => {}
        Ok(count) => tracing::debug!(count, "asked the kernel to confirm neighbours"),
        Err(error) => tracing::warn!("{error}; {}", error.remedy),
    }
}
