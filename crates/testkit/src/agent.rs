//! Where an agent under test has its files.

use std::path::{Path, PathBuf};

use segue_host::idle;

/// Where it pins: on a file system of its own, or beside the data planes that others have left ([`idle`]).
///
/// # Panics
/// If the directory has no name.
pub fn pins(directory: &Path) -> PathBuf {
    let own = directory.file_name().and_then(|name| name.to_str()).expect("the directory's name");
    match idle::directory() {
        // That file system allows no points in names.
        Some(idle) => idle.with_file_name(own.replace('.', "agent-")),
        None => directory.join("bpf/node"),
    }
}

/// Options of `segued` and its `clean` for files in a directory of its own.
pub fn files(directory: &Path) -> Vec<String> {
    let options = [
        ("--socket", directory.join("socket")),
        ("--pin-dir", pins(directory)),
        ("--state-dir", directory.join("state")),
    ];
    options.iter().flat_map(|(option, path)| [(*option).to_owned(), path.display().to_string()]).collect()
}
