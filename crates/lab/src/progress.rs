//! Progress on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use segue_host::interrupt::{Interrupt, Second};

use crate::error::{LabError, Result};

/// Shows how far a long work is: a bar on a terminal, nothing elsewhere.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Progress {
    /// A bar on stderr if that is a terminal.
    #[must_use]
    pub fn on_terminal() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::silent();
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg:32} {wide_bar} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, interrupt: Interrupt::watch(Second::Ends) }
    }

    /// Shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), interrupt: Interrupt::watch(Second::Ends) }
    }

    /// Begins a part of the work with so many steps.
    pub fn begin(&self, what: &'static str, steps: usize) {
        self.bar.set_message(what);
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
    }

    /// One step is done.
    ///
    /// # Errors
    /// [`LabError::Interrupted`] if the user does not want the next one.
    pub fn step(&self) -> Result<()> {
        self.bar.inc(1);
        if self.interrupt.requested() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// All is done: the bar goes away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
