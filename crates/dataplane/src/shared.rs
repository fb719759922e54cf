//! Data planes that one user of a process leaves to the next, be it a test or a measurement. The kernel's verifier takes seconds for
//! the programs, which is far more than most tests take, so a process loads them once.
//!
//! What a user gets is as if it had just been loaded: nothing is applied, attached, counted, remembered or cached. Only `control`
//! keeps what must never come again: numbers of generations, and the word that metadata begin with. Namespaces and links are each
//! user's own. Tables have the sizes that were asked for, and what has grown is not used again; nor should be what somebody has panicked
//! with, or has given to others by its pins.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use segue_model::node::NodeState;
use serde_json::json;

use crate::maps::map_error;
use crate::{Capacity, Dataplane, Error, Interfaces, MissingInterface, Options, batch};

/// Those that nobody has now.
static IDLE: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// Rows in one call.
const BATCH: u32 = 4096;

/// A table's name, rows and octets of a row.
type Size = (OsString, u32, u32);

/// A data plane and its pins.
#[derive(Debug)]
pub struct Loaded {
    /// The data plane.
    pub dataplane: Dataplane,
    pins: Pins,
    capacity: Capacity,
    sizes: BTreeSet<Size>,
}

impl Loaded {
    /// One that is idle, or a new one, whose tables are that large to begin with.
    ///
    /// # Errors
    /// As [`Dataplane::open_or_load`].
    pub fn take_or_load(capacity: Capacity) -> Result<Self, Error> {
        let found = {
            let mut idle = idle();
            let position = idle.iter().position(|loaded| loaded.capacity == capacity);
            position.map(|position| idle.swap_remove(position))
        };
        found.map_or_else(|| Self::load(capacity), Ok)
    }

    fn load(capacity: Capacity) -> Result<Self, Error> {
        let pins = Pins::new().map_err(|source| Error::Pin {
            path: std::env::temp_dir(),
            action: "mount a BPF file system of its own in it",
            source,
        })?;
        let dataplane = Dataplane::open_or_load(&pins.directory(), Options { capacity, ..Options::default() })?;
        let sizes = sizes(&dataplane)?;
        Ok(Self { dataplane, pins, capacity, sizes })
    }

    /// Its pins, by which another data plane of this process may take it over. Then it is not to be given back.
    pub fn pin_directory(&self) -> PathBuf {
        self.pins.directory()
    }

    /// Leaves it to the next one, if it is as it was; else it goes. To be called in the namespace of its ports.
    ///
    /// # Errors
    /// If it cannot be made as if it were new.
    pub fn give_back(mut self) -> Result<(), Error> {
        // A table that has grown has no longer the size that it had; stages that were loaded meanwhile have tables of their own.
        if !sizes(&self.dataplane)?.is_superset(&self.sizes) {
            return self.remove();
        }
        self.reset()?;
        idle().push(self);
        Ok(())
    }

    /// Ends it. To be called in the namespace of its ports.
    ///
    /// # Errors
    /// As [`Dataplane::remove`].
    pub fn remove(self) -> Result<(), Error> {
        self.dataplane.remove()
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.dataplane.apply(&nothing(), &Interfaces::query()?, MissingInterface::LeaveOut)?;
        for map in maps(&self.dataplane)? {
            clear(&map).map_err(map_error(&map.name().to_string_lossy(), "clear it"))?;
        }
        self.dataplane.forget_path_mtus();
        self.dataplane.bump_caches()
    }
}

/// What is applied in between.
fn nothing() -> NodeState {
    let state =
        json!({"node": "idle", "source_address": "fd00::1", "domain": {"sid_blocks": ["fc00::/16"]}, "ports": []});
    serde_json::from_value(state).expect("a state of a node")
}

fn idle() -> MutexGuard<'static, Vec<Loaded>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All maps that the programs use.
fn maps(dataplane: &Dataplane) -> Result<Vec<MapHandle>, Error> {
    let failed = |source| Error::Map { map: "all".to_owned(), action: "find them", source };
    let known = dataplane.map("outcomes")?.info().map_err(failed)?.info.id;
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let mine = ProgInfoIter::with_query_opts(options).filter(|program| program.map_ids.contains(&known));
    let ids: BTreeSet<u32> = mine.flat_map(|program| program.map_ids).collect();
    ids.into_iter().map(|id| MapHandle::from_map_id(id).map_err(failed)).collect()
}

fn sizes(dataplane: &Dataplane) -> Result<BTreeSet<Size>, Error> {
    let size = |map: MapHandle| (map.name().to_owned(), map.max_entries(), map.value_size());
    Ok(maps(dataplane)?.into_iter().map(size).collect())
}

/// Makes a map what it was when it was new.
pub(crate) fn clear(map: &MapHandle) -> Result<(), libbpf_rs::Error> {
    // Constants, and `control`.
    if [".rodata", ".data"].iter().any(|section| map.name().to_string_lossy().contains(section)) {
        return Ok(());
    }
    let size = map.value_size() as usize;
    match map.map_type() {
        MapType::Array => {
            for first in (0..map.max_entries()).step_by(BATCH as usize) {
                let count = BATCH.min(map.max_entries() - first);
                let keys: Vec<u8> = (first..first + count).flat_map(u32::to_ne_bytes).collect();
                let zeros = vec![0; count as usize * size];
                map.update_batch(&keys, &zeros, count, MapFlags::ANY, MapFlags::ANY)?;
            }
        }
        MapType::PercpuArray => {
            for first in (0..map.max_entries()).step_by(BATCH as usize) {
                let rows: Vec<u32> = (first..map.max_entries().min(first + BATCH)).collect();
                batch::clear(map, &rows)?;
            }
        }
        MapType::Hash | MapType::LruHash | MapType::LpmTrie | MapType::HashOfMaps => {
            for key in map.keys().collect::<Vec<_>>() {
                match map.delete(&key) {
                    Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        // Programs and events are nobody's; tables of connections have gone with their firewalls.
        _ => {}
    }
    Ok(())
}

/// A BPF file system that only this process sees, by a descriptor: it goes with it, however it ends.
#[derive(Debug)]
struct Pins(File);

impl Pins {
    fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("segue-pins-").tempdir()?;
        mount(Some("bpf"), directory.path(), Some("bpf"), MsFlags::empty(), None::<&str>)?;
        let root = File::open(directory.path());
        umount2(directory.path(), MntFlags::MNT_DETACH)?;
        Ok(Self(root?))
    }

    /// The data plane's directory in it.
    fn directory(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join("node")
    }
}
