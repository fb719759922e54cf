//! Liveness of functions: whether what stands behind a proxy SID works, and what its SIDs do when it does not.
//!
//! ```text
//! kernel: links ──┐                                  ┌─> Life: a flag in the SIDs' map entries (at once)
//! probes <────────┼─ monitor (one thread) ─ machines ┤
//! clock ──────────┘                                  └─> the agent: kernel routes, the journal (when it has time)
//! ```
//!
//! [`machine`] decides and knows nothing else; [`links`] and [`probe`] are its senses; [`monitor`] joins them.
//! docs/using/liveness.md says it in the operator's words.

pub mod config;
pub mod function;
pub mod journal;
pub mod links;
pub mod machine;
pub mod monitor;
pub mod probe;

use std::{io, sync::mpsc};

use segue_api::function::FunctionReport;
use segue_dataplane::{Interfaces, Life};
use segue_model::node::NodeState;
use tokio::sync::oneshot;

use self::{
    function::Glance,
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
        let glances = answer.await.unwrap_or_default();
        let mut reports: Vec<_> = glances.iter().flat_map(Glance::reports).collect();
        reports.sort_by(|a, b| a.sid.cmp(&b.sid));
        reports
    }
}

/// Starts the thread, in the calling thread's network namespace, and another one that logs changes and calls `notify`, so
/// that neither a log that takes its time nor `notify` holds up the first. What happens while `notify` is at work is told together.
///
/// # Errors
/// What cannot be opened.
pub fn spawn(life: Life, earlier: Entries, mut notify: impl FnMut(Notice) + Send + 'static) -> io::Result<Handle> {
    raise_file_limit();
    let (sender, notices) = mpsc::channel::<Notice>();
    let (monitor, handle) = Monitor::open(life, earlier, move |notice| {
        // The other thread ends with the process.
        let _ = sender.send(notice);
    })?;
    std::thread::Builder::new().name("liveness".to_owned()).spawn(move || monitor.run())?;
    std::thread::Builder::new().name("liveness-notes".to_owned()).spawn(move || {
        tell(&notices, |notice| {
            notice.changes.iter().for_each(log);
            notify(notice);
        });
    })?;
    Ok(Handle(handle))
}

/// Tells all that has come as one, until nobody is left who would send more.
fn tell(notices: &mpsc::Receiver<Notice>, mut notify: impl FnMut(Notice)) {
    while let Ok(mut notice) = notices.recv() {
        notices.try_iter().for_each(|later| notice.add(later));
        notify(notice);
    }
}

fn log(change: &Change) {
    let Change { function, sid, sids, reason, on_failure, .. } = change;
    if change.down {
        tracing::warn!(function, sid, sids, on_failure, "function down: {reason}");
    } else {
        tracing::info!(function, sid, sids, "function up: {reason}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use monitor::{News, Routes};

    #[test]
    fn what_happens_while_something_is_done_about_the_rest_is_one_thing() {
        let (sender, notices) = mpsc::channel();
        sender.send(numbered(0)).unwrap();
        let mut sender = Some(sender);
        let mut told = Vec::new();
        tell(&notices, |notice| {
            let Routes::Of(sids) = notice.routes else { panic!("these only") };
            told.push(sids.len());
            // A thousand go down one after the other meanwhile.
            if let Some(sender) = sender.take() {
                (1..=1000).for_each(|number| sender.send(numbered(number)).unwrap());
            }
        });
        assert_eq!(told, [1, 1000]);
    }

    fn numbered(number: u16) -> Notice {
        Notice {
            changes: Vec::new(),
            went_down: Default::default(),
            routes: Routes::Of([format!("fc00:{number:x}::/64").parse().unwrap()].into()),
            entries: News::default(),
        }
    }
}
