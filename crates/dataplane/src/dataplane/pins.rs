//! Where everything is pinned.
//!
//! ```text
//! PIN_DIR/
//!   link-IFINDEX           the XDP link of each port
//!   maps-N/                maps of one layout; the highest N counts
//!     control, config, ... the maps that the ABI covers
//!     state                what the agent must know about the active generation
//!     programs-BUILD/      maps of one build of the programs: stages, caches
//!       port/              and the program on XDP, once a port was on it
//! ```
//!
//! A directory is filled under another name and renamed when complete, so that an agent that dies half-way leaves nothing
//! that looks complete.

use std::fs;
use std::path::{Path, PathBuf};

use segue_abi as abi;

use crate::Error;
use crate::maps::MapSet;
use crate::object::build_id;

pub(super) const MAPS: &str = "maps-";
pub(super) const PROGRAMS: &str = "programs-";
/// In the directory of a build's maps.
pub(super) const PORT: &str = "port";
pub(super) const LOADING: &str = "loading";

/// Tells the references to steering headers of this set from those of sets that it takes over from or that take over from it:
/// its number, as far as there is room for it.
pub(super) fn series_of(set: &Path) -> u32 {
    let number = set.file_name().and_then(|name| name.to_str()?.strip_prefix(MAPS)?.parse::<u32>().ok());
    number.unwrap_or(0) % (1 << (u64::BITS - abi::SEGUE_STASH_SERIES_SHIFT))
}

/// Whether there is a map set.
pub(super) fn is_pinned(pin_dir: &Path) -> bool {
    numbered(pin_dir).is_ok_and(|sets| !sets.is_empty())
}

/// The map sets by ascending number.
pub(super) fn numbered(pin_dir: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let mut sets = Vec::new();
    for name in names(pin_dir)? {
        if let Some(number) = name.strip_prefix(MAPS).and_then(|number| number.parse().ok()) {
            sets.push((number, pin_dir.join(&name)));
        }
    }
    sets.sort_unstable();
    Ok(sets)
}

pub(super) fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let failed = pin_error(directory, "list it");
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(&failed)? {
        // Only Segue's own names matter, and they are UTF-8.
        names.extend(entry.map_err(&failed)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The maps of this build's programs.
pub(super) fn own_maps(set: &Path) -> Result<MapSet, Error> {
    let directory = set.join(format!("{PROGRAMS}{}", build_id()));
    MapSet::open_all(&directory).ok_or_else(|| lost(&directory))
}

pub(super) fn lost(directory: &Path) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::NotFound, "a pinned map is missing");
    Error::Pin { path: directory.to_owned(), action: "open the maps in it", source }
}

pub(super) fn pin_error(path: &Path, action: &'static str) -> impl Fn(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pin { path: path.clone(), action, source }
}
