//! Ctrl-C and SIGTERM: what has been made must go away again before the program ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{LabError, Result};

/// Whether the user asked the program to end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on the first Ctrl-C or SIGTERM is remembered rather than deadly; the second one ends the program.
    #[must_use]
    pub fn watch() -> Self {
        static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let requested = REQUESTED.get_or_init(|| {
            let requested = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                // In this order: the first signal finds the flag unset, and sets it. Registering fails only for signals
                // that cannot be caught.
                let _ = signal_hook::flag::register_conditional_shutdown(signal, 1, requested.clone());
                let _ = signal_hook::flag::register(signal, requested.clone());
            }
            requested
        });
        Self { requested: requested.clone() }
    }

    /// Whether it was asked.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// An error if it was asked.
    ///
    /// # Errors
    /// [`LabError::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.requested() { Err(LabError::Interrupted) } else { Ok(()) }
    }
}
