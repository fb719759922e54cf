//! Ctrl-C and SIGTERM: what has been made must go away again before the program ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a second signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// It ends the program.
    Ends,
    /// No more than the first, and neither does the end of the terminal (SIGHUP): what is set up takes the whole machine, and must go.
    Waits,
}

/// Whether the user asked the program to end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on the first Ctrl-C or SIGTERM is remembered rather than deadly. Whoever watches first in a process says what the second
    /// one does.
    #[must_use]
    pub fn watch(second: Second) -> Self {
        static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let requested = REQUESTED.get_or_init(|| {
            let requested = Arc::new(AtomicBool::new(false));
            let signals: &[_] = match second {
                Second::Ends => &[SIGINT, SIGTERM],
                Second::Waits => &[SIGINT, SIGTERM, SIGHUP],
            };
            for signal in signals {
                // In this order: the first signal finds the flag unset, and sets it. Registering fails only for signals
                // that cannot be caught.
                if second == Second::Ends {
                    let _ = signal_hook::flag::register_conditional_shutdown(*signal, 1, requested.clone());
                }
                let _ = signal_hook::flag::register(*signal, requested.clone());
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
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[test]
    fn signals_are_remembered() {
        let interrupt = Interrupt::watch(Second::Waits);
        assert!(!interrupt.requested());
        for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
            raise(signal).unwrap();
            assert!(interrupt.clone().requested());
        }
    }
}
