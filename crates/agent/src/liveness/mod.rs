//! Liveness of functions: whether what stands behind a proxy SID works, and what its SIDs do when it does not.
//!
//! ```text
//! kernel: links ──┐                                  ┌─> Life: a flag in the SIDs' map entries (at once)
//! probes <────────┼─ monitor (one thread) ─ machines ┤
//! clock ──────────┘                                  └─> the agent: kernel routes, the journal (when it has time)
//! ```
//!
//! [`machine`] decides and knows nothing else; [`links`] and [`probe`] are its senses; [`monitor`] joins them. docs/liveness.md
//! says it in the operator's words.

pub mod config;
pub mod function;
pub mod journal;
pub mod links;
pub mod machine;
pub mod monitor;
pub mod probe;
pub mod report;

use std::{io, sync::mpsc};

use segue_dataplane::{Interfaces, Life};
use segue_model::node::NodeState;
use tokio::sync::oneshot;

pub use report::{FunctionReport, LinkReport, ProbeReport};

use self::{
    journal::Entries,
    monitor::{Change, Command, Monitor, Notice},
};

/// Reaches the thread that watches.
#[derive(Clone)]
pub struct Handle(monitor::Handle);

impl Handle {
    /// Watches what this state wants, on these interfaces, from now on. Does not wait.
    pub fn configure(&self, state: &NodeState, interfaces: &Interfaces) {
        self.0.send(Command::Configure(config::watched(state, interfaces)));
    }

    /// What is known about all functions, by SID.
    pub async fn report(&self) -> Vec<FunctionReport> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Command::Report(sender));
        // A monitor that has ended knows nothing.
        let mut reports = answer.await.unwrap_or_default();
        reports.sort_by(|a, b| a.sid.cmp(&b.sid));
        reports
    }
}

/// Starts the thread, in the calling thread's network namespace, and another one that logs changes and calls `notify`, so
/// that neither a log that takes its time nor `notify` holds up the first.
///
/// # Errors
/// What can not be opened.
pub fn spawn(life: Life, earlier: Entries, mut notify: impl FnMut(Notice) + Send + 'static) -> io::Result<Handle> {
    raise_file_limit();
    let (sender, notices) = mpsc::channel::<Notice>();
    let (monitor, handle) = Monitor::open(life, earlier, move |notice| {
        // The other thread ends with the process.
        let _ = sender.send(notice);
    })?;
    std::thread::Builder::new().name("liveness".to_owned()).spawn(move || monitor.run())?;
    std::thread::Builder::new().name("liveness-notes".to_owned()).spawn(move || {
        for notice in notices {
            notice.changes.iter().for_each(log);
            notify(notice);
        }
    })?;
    Ok(Handle(handle))
}

fn log(change: &Change) {
    let Change { function, sid, sids, reason, on_failure, .. } = change;
    if change.dead {
        tracing::warn!(function, sid, sids, on_failure, "function dead: {reason}");
    } else {
        tracing::info!(function, sid, sids, "function alive: {reason}");
    }
}

/// Probes through functions and connections take a socket each.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::debug!(%error, "limit of open files");
    }
}
