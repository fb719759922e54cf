//! Ctrl-C during a run: the run ends at the next step, so that everything is taken down in order.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Error, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WATCHING: OnceLock<()> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP only make [`check`] fail. Call it before other threads start.
///
/// # Errors
/// If the signal mask cannot be set.
pub fn watch() -> Result<()> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(Error::system("block signals"))?;
    WATCHING.get_or_init(|| {
        thread::spawn(move || {
            while signals.wait().is_ok() {
                INTERRUPTED.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(())
}

/// Fails once the user has asked the run to end.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
