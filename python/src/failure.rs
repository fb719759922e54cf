//! What is said of Python code that fails: the traceback, at a bounded rate.

use std::io::Write;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use segue_service::Time;

/// How often a traceback is written at most. A fault that every packet has would else fill the disk.
const PAUSE: Duration = Duration::from_secs(10);

/// The exception with its traceback, as Python writes it.
pub(crate) fn text(py: Python<'_>, error: &PyErr) -> String {
    let formatted = || -> PyResult<String> {
        // All three: before Python 3.12 an exception on its way has its traceback beside it.
        let lines = py
            .import("traceback")?
            .call_method1("format_exception", (error.get_type(py), error.value(py), error.traceback(py)))?;
        Ok(lines.cast::<PyList>()?.extract::<Vec<String>>()?.concat())
    };
    // An exception whose text cannot be had still has a type.
    formatted().unwrap_or_else(|_| format!("{}\n", error.get_type(py)))
}

/// The last line of that: what, without where.
pub(crate) fn line(py: Python<'_>, error: &PyErr) -> String {
    let text = text(py, error);
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

/// Says what has failed, but not each time.
#[derive(Debug, Default)]
pub(crate) struct Log {
    last: Option<Time>,
    unsaid: u64,
}

impl Log {
    /// Something failed at `now`. `text` is only asked for what is said.
    pub(crate) fn failed(&mut self, now: Time, head: &str, text: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| now - last < PAUSE) {
            self.unsaid += 1;
            return;
        }
        let unsaid = self.unsaid();
        self.last = Some(now);
        say(&format!("segue-service: {head}{unsaid}\n{}", text()));
    }

    /// Says how often it was silent; at the end.
    pub(crate) fn finish(&mut self, head: &str) {
        let unsaid = self.unsaid();
        if !unsaid.is_empty() {
            say(&format!("segue-service: {head}{unsaid}\n"));
        }
    }

    fn unsaid(&mut self) -> String {
        match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            times => format!(" ({times} more failures since the last one that was told)"),
        }
    }
}

/// To where a service's log is; who has closed that does not want it.
fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
