//! What the agent remembers over a restart, in one file of its state directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::Arc,
};

use indexmap::IndexMap;
use segue_model::node::{Instance, NodeState};
use serde::{Deserialize, Serialize};

/// Raised when the file's meaning changes.
const VERSION: u32 = 1;
const NAME: &str = "applied.json";

/// What was applied last, and what it takes to undo it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    version: u32,
    /// The desired state.
    #[serde(with = "shared")]
    pub state: Arc<NodeState>,
    /// Sysctls that Segue set, with the values that they had before it came.
    pub sysctls_before: BTreeMap<String, String>,
    /// IDs of the HMAC keys that Segue set.
    pub hmac_keys: BTreeSet<u32>,
    /// Instances of functions that the state does not have any more, and that still have flows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: Leaving,
}

/// Instances by function and name.
pub type Leaving = BTreeMap<String, IndexMap<String, Instance>>;

impl Applied {
    /// A record of what was applied.
    pub fn new(state: NodeState, sysctls_before: BTreeMap<String, String>, hmac_keys: BTreeSet<u32>) -> Self {
        Self { version: VERSION, state: Arc::new(state), sysctls_before, hmac_keys, leaving: Leaving::new() }
    }
}

/// The state is as large as an operator makes it, and others than the node's thread read it too.
mod shared {
    use std::sync::Arc;

    use segue_model::node::NodeState;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(state: &Arc<NodeState>, serializer: S) -> Result<S::Ok, S::Error> {
        state.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<NodeState>, D::Error> {
        NodeState::deserialize(deserializer).map(Arc::new)
    }
}

/// Where the record lies.
pub trait Store: Send {
    /// The record; `None` if nothing was ever applied.
    fn load(&mut self) -> io::Result<Option<Applied>>;
    /// Replaces the record in one step; `None` removes it.
    fn save(&mut self, applied: Option<&Applied>) -> io::Result<()>;
    /// Name of the place, for errors.
    fn place(&self) -> String;
}

/// A record in a directory.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory if it is not there.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    fn path(&self) -> PathBuf {
        self.0.join(NAME)
    }
}

impl Store for Directory {
    fn load(&mut self) -> io::Result<Option<Applied>> {
        let text = match fs::read_to_string(self.path()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let applied: Applied = serde_json::from_str(&text)?;
        if applied.version != VERSION {
            let message = format!("written by a version with format {}, this one reads {VERSION}", applied.version);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Some(applied))
    }

    fn save(&mut self, applied: Option<&Applied>) -> io::Result<()> {
        let Some(applied) = applied else {
            return match fs::remove_file(self.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let fresh = self.0.join(format!("{NAME}.new"));
        // Addresses and policies are nobody else's business.
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        // It is written word by word.
        let mut file = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut file, applied)?;
        file.write_all(b"\n")?;
        file.into_inner()?.sync_all()?;
        fs::rename(fresh, self.path())
    }

    fn place(&self) -> String {
        self.path().display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Directory::open(directory.path().join("deep/er")).unwrap();
        assert_eq!(store.load().unwrap(), None);
        let state = serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1"})).unwrap();
        let applied = Applied::new(state, BTreeMap::from([("a".into(), "0".into())]), BTreeSet::from([7]));
        store.save(Some(&applied)).unwrap();
        assert_eq!(store.load().unwrap(), Some(applied));
        store.save(None).unwrap();
        store.save(None).unwrap();
        assert_eq!(store.load().unwrap(), None);
    }

    #[test]
    fn a_broken_record_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Directory::open(directory.path().to_owned()).unwrap();
        fs::write(directory.path().join(NAME), "{").unwrap();
        assert!(store.load().is_err());
    }
}
