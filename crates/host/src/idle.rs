//! Data planes that nobody needs any more, left to whoever needs one next.
//!
//! For tests: the kernel's verifier takes most of a second of a processor for the programs of one, which is more than most tests
//! take. Where [`VARIABLE`] is set, what an agent or a lab would remove of its pins lies in that directory instead, and the next
//! agent that would load a data plane takes it, and makes it what a new one is (`segue_dataplane`, `dataplane/idle.rs`). Nothing
//! does so where it is not set.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// The variable of the environment with the directory. It must be on the BPF file system that the pins are on. Those who share it need not
/// see each other: they may have process numbers of their own.
pub const VARIABLE: &str = "SEGUE_IDLE_DATA_PLANES";

/// How many there may be: each keeps its tables.
const MOST: usize = 32;

/// Where idle data planes are, if they are to be kept.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Leaves what is pinned in a directory to the next one, if that is wanted and it is one data plane and whole: its ports lose their
/// programs. Whether the directory has gone; else it is for the caller to remove. Whoever used it must have ended.
#[must_use]
pub fn leave(pins: &Path) -> bool {
    // What could not be moved can hardly be removed either: that tells the cause.
    directory().is_some_and(|idle| move_into(pins, &idle).unwrap_or(false))
}

/// The same with one set of maps, which larger tables have taken over from, or could not.
#[must_use]
pub fn leave_set(set: &Path) -> bool {
    directory().is_some_and(|idle| {
        let moved = new_place(&idle).and_then(|place| {
            let Some(place) = place else { return Ok(false) };
            fs::create_dir(&place)?;
            fs::rename(set, place.join(set.file_name().unwrap_or_default()))?;
            Ok(true)
        });
        moved.unwrap_or(false)
    })
}

/// All that are idle now.
#[must_use]
pub fn all() -> Vec<PathBuf> {
    let entries = directory().and_then(|idle| fs::read_dir(idle).ok());
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn move_into(pins: &Path, idle: &Path) -> io::Result<bool> {
    let mut sets = 0;
    for entry in fs::read_dir(pins)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            // A link of a port: without its pin it goes, and the program is no longer on the port.
            fs::remove_file(entry.path())?;
        } else if entry.file_name().as_encoded_bytes().starts_with(b"maps-") {
            sets += 1;
        } else {
            fs::remove_dir_all(entry.path())?;
        }
    }
    if sets != 1 {
        return Ok(false);
    }
    let Some(place) = new_place(idle)? else { return Ok(false) };
    fs::rename(pins, place)?;
    Ok(true)
}

/// Where nothing is yet; None: there are enough.
fn new_place(idle: &Path) -> io::Result<Option<PathBuf>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(idle)?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let name = format!("{now:x}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    Ok((fs::read_dir(idle)?.count() < MOST).then(|| idle.join(name)))
}
