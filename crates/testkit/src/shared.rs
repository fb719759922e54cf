//! Data planes that one test leaves to the next. The kernel's verifier takes seconds for the programs, which is far more than most
//! tests take, so a test program loads them once.
//!
//! What a test gets is as if it had just been loaded: nothing is applied, attached, counted, remembered or cached. Only `control`
//! keeps what must never come again: numbers of generations, and the word that metadata begin with. Namespaces and links are each
//! test's own. Tables have the sizes that the test's configuration asks for, and what has grown is not used again; nor is what
//! a test has panicked with, or has given to others by its pins.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use segue_dataplane::{Capacity, Dataplane, Error, Interfaces, MissingInterface, Options};

/// Those that no test has now.
static IDLE: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// What is applied in between.
const NOTHING: &str = "{node: idle, source_address: 'fd00::1', domain: {sid_blocks: ['fc00::/16']}, ports: []}";

/// Rows in one call.
const BATCH: u32 = 4096;

/// A table's name, rows and octets of a row.
type Size = (OsString, u32, u32);

/// A data plane and its pins.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub dataplane: Dataplane,
    pub pins: Pins,
    capacity: Capacity,
    sizes: BTreeSet<Size>,
}

impl Loaded {
    /// One that is idle, or a new one.
    pub fn take_or_load(capacity: Capacity) -> Result<Self, Error> {
        let found = {
            let mut idle = idle();
            let position = idle.iter().position(|loaded| loaded.capacity == capacity);
            position.map(|position| idle.swap_remove(position))
        };
        found.map_or_else(|| Self::load(capacity), Ok)
    }

    fn load(capacity: Capacity) -> Result<Self, Error> {
        let pins = Pins::new();
        let dataplane = Dataplane::open_or_load(&pins.directory(), Options { capacity, ..Options::default() })?;
        let sizes = sizes(&dataplane)?;
        Ok(Self { dataplane, pins, capacity, sizes })
    }

    /// Leaves it to the next test, if it is as it was; else it goes. To be called in the namespace of its ports.
    pub fn give_back(mut self) -> Result<(), Box<dyn std::error::Error>> {
        // A table that has grown has no longer the size that it had; stages that were loaded meanwhile have tables of their own.
        if !sizes(&self.dataplane)?.is_superset(&self.sizes) {
            return self.remove();
        }
        self.reset()?;
        idle().push(self);
        Ok(())
    }

    /// Ends it. To be called in the namespace of its ports.
    pub fn remove(self) -> Result<(), Box<dyn std::error::Error>> {
        Ok(self.dataplane.remove()?)
    }

    fn reset(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let state = segue_model::load::load_node_state(NOTHING, "nothing.yaml")?;
        self.dataplane.apply(&state, &Interfaces::query()?, MissingInterface::LeaveOut)?;
        for map in maps(&self.dataplane)? {
            clear(&map)?;
        }
        self.dataplane.bump_caches()?;
        Ok(())
    }
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
fn clear(map: &MapHandle) -> Result<(), libbpf_rs::Error> {
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
            let zeros = vec![vec![0; size]; libbpf_rs::num_possible_cpus()?];
            for row in 0..map.max_entries() {
                map.update_percpu(&row.to_ne_bytes(), &zeros, MapFlags::ANY)?;
            }
        }
        MapType::Hash | MapType::LruHash | MapType::LpmTrie => {
            for key in map.keys().collect::<Vec<_>>() {
                match map.delete(&key) {
                    Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        // Programs and events are no test's; tables of connections have gone with their firewalls.
        _ => {}
    }
    Ok(())
}

/// A BPF file system that only this process sees, by a descriptor: it goes with it, however it ends.
#[derive(Debug)]
pub(crate) struct Pins(File);

impl Pins {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("segue-testkit-").tempdir().expect("a directory");
        mount(Some("bpf"), directory.path(), Some("bpf"), MsFlags::empty(), None::<&str>).expect("a BPF file system");
        let root = File::open(directory.path()).expect("its root");
        umount2(directory.path(), MntFlags::MNT_DETACH).expect("it is mounted");
        Self(root)
    }

    /// The data plane's directory in it.
    pub fn directory(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join("node")
    }
}
