//! What the agent remembers about functions over a restart, also over one with new maps: a file in its state directory.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

const NAME: &str = "functions.json";

/// What is remembered about the function behind one SID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whether it is down.
    #[serde(alias = "dead")] // as agents up to 0.1 wrote it
    pub down: bool,
    /// When it became so or up: milliseconds since 1970.
    pub since_ms: u64,
    /// How often it changed.
    pub changes: u64,
}

/// By SID.
pub type Entries = BTreeMap<Ipv6Net, Entry>;

/// The file.
#[derive(Debug, Clone)]
pub struct Journal(PathBuf);

impl Journal {
    /// In this directory, which exists.
    pub fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// What it holds. One that cannot be read is worth a warning, no more: functions prove what they are.
    pub fn load(&self) -> Entries {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Entries::new(),
            Err(error) => {
                tracing::warn!("{}: {error}; what was known about functions is lost", self.0.display());
                return Entries::new();
            }
        };
        serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!("{}: {error}; what was known about functions is lost", self.0.display());
            Entries::new()
        })
    }

    /// Replaces it in one step; without entries it goes.
    pub fn save(&self, entries: &Entries) -> io::Result<()> {
        if entries.is_empty() {
            return match fs::remove_file(&self.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let fresh = self.0.with_extension("json.new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        serde_json::to_writer(&mut file, entries)?;
        file.write_all(b"\n")?;
        // Not synced: after a crash of the machine no function is as it was.
        fs::rename(fresh, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path());
        assert_eq!(journal.load(), Entries::new());
        let entry = Entry { down: true, since_ms: 5, changes: 7 };
        let entries = Entries::from([("fc00:1::/64".parse().unwrap(), entry)]);
        journal.save(&entries).unwrap();
        assert_eq!(journal.load(), entries);
        journal.save(&Entries::new()).unwrap();
        journal.save(&Entries::new()).unwrap();
        assert_eq!(journal.load(), Entries::new());
    }

    #[test]
    fn a_broken_file_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(NAME), "{").unwrap();
        assert_eq!(Journal::new(directory.path()).load(), Entries::new());
    }
}
