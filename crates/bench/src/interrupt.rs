//! Ctrl-C during a run: the run ends at the next step, so that everything is taken down in order.

use std::sync::OnceLock;

use segue_host::interrupt::{Interrupt, Second};

use crate::error::{Error, Result};

static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP only make [`check`] fail.
pub fn watch() {
    INTERRUPT.get_or_init(|| Interrupt::watch(Second::Waits));
}

/// Fails once the user has asked the run to end.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn check() -> Result<()> {
    if INTERRUPT.get().is_some_and(Interrupt::requested) { Err(Error::Interrupted) } else { Ok(()) }
}
