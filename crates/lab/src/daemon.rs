//! Processes of a lab that stay: the relay of impaired links, the recorder of captures.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Waits until a process, which errors call `who`, has made the file by which it says that it is ready.
///
/// # Errors
/// What it did instead, and what it said in its log.
pub(crate) fn wait_ready(
    ready: &Path,
    who: &str,
    child: &mut Child,
    log: &Path,
    within: Duration,
) -> Result<(), (String, String)> {
    let begun = Instant::now();
    while !ready.exists() {
        let ended = child.try_wait().ok().flatten().map(|status| format!("{who} ended ({status})"));
        let late = (begun.elapsed() > within).then(|| format!("not ready within {} s", within.as_secs()));
        if let Some(what) = ended.or(late) {
            return Err((what, fs::read_to_string(log).unwrap_or_default().trim().to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
