//! The data plane of one network namespace: loaded or adopted, applied to, looked at.

mod adopt;
mod apply;
mod ask;
mod capture;
mod counters;
mod filters;
mod follow;
mod frames;
mod grow;
mod idle;
mod life;
mod links;
mod memories;
mod path_mtus;
mod pins;
mod sid_copies;
mod test_run;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libbpf_rs::MapHandle;
use segue_abi as abi;
use segue_host::bpffs::is_bpffs;
use segue_model::node::NodeState;

pub use self::apply::Applied;
pub use self::ask::{Fib, FibAnswer, FibQuestion, FibVerdict};
pub use self::capture::{CaptureReader, CaptureSource, CapturedPacket, Direction};
pub use self::counters::{
    Counter, Counters, IcmpSent, Identity, LastDrop, ListCounters, PolicyCounters, PortCounters, Reader, SidCounters,
    SteeringCounters,
};
pub use self::life::Life;
pub use self::links::{AttachMode, Attachment};
pub use self::memories::MemoryCounters;
pub use self::path_mtus::{PathMtu, PathMtuOf};
pub use self::test_run::{TestOutput, TestProgram, TestRun};
use crate::Error;
pub(crate) use crate::carried::Carried;
use crate::compiled::Compiled;
use crate::facts::{Capabilities, Capacity};
use crate::grace::Grace;
use crate::maps::MapSet;
use crate::records::{Record, Records};

/// How to load.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Sizes of the tables to begin with: they grow when a configuration needs more. Pinned tables that are larger stay;
    /// smaller ones are replaced at the next apply.
    pub capacity: Capacity,
    /// The kernel's abilities.
    pub capabilities: Capabilities,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity: Capacity::default(), capabilities: Capabilities::detect() }
    }
}

/// What [`Dataplane::open_or_load`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was there.
    Loaded,
    /// Maps and programs of this very build were there, and run on.
    Adopted,
    /// The maps were there; programs of another build gave way to this one's, without losing a packet.
    ProgramReplaced,
    /// Maps that this build cannot use are there. They and their programs stay active until the next apply.
    Replacing,
}

/// The data plane of one network namespace.
///
/// Interfaces are those of the calling thread's namespace: a program that serves another one enters it before anything
/// else. What it loads is pinned, outlives it, and is adopted by the next [`Dataplane::open_or_load`].
#[derive(Debug)]
pub struct Dataplane {
    pin_dir: PathBuf,
    /// `pin_dir/maps-N`: the maps, and below it one directory of programs.
    set: PathBuf,
    maps: Arc<MapSet>,
    store: Records,
    /// The program on XDP, once somebody needed it.
    port: Option<OwnedFd>,
    options: Options,
    origin: Origin,
    active: Option<Arc<Record>>,
    /// What its objects had counted before their tables grew.
    carried: Arc<Carried>,
    /// Names of the ports whose packets are captured.
    captured: BTreeSet<String>,
    /// Numbers of the ports that are down in the maps: links go down and come up within a generation.
    down: BTreeSet<u32>,
    /// Something of another generation may have been left in the maps.
    unclean: bool,
    /// Which functions are down; watched by others while this applies.
    life: Life,
    /// Limits of paths.
    path_mtus: path_mtus::PathMtus,
    grace: Grace,
}

impl Dataplane {
    /// Adopts what is pinned in `pin_dir`, a directory on a BPF file system (see [`segue_host::bpffs::ensure`]), or loads anew.
    /// The directory belongs to Segue alone.
    ///
    /// # Errors
    /// [`Error::NotBpffs`]; [`Error::Load`] with the verifier's log; errors of single maps. What was active stays active.
    pub fn open_or_load(pin_dir: &Path, options: Options) -> Result<Self, Error> {
        adopt::open_or_load(pin_dir, options)
    }

    /// Whether there is something in `pin_dir` that [`Dataplane::open_or_load`] may adopt.
    pub fn is_pinned(pin_dir: &Path) -> bool {
        pins::is_pinned(pin_dir)
    }

    /// What was found when it was opened.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Directory of the pins.
    pub fn pin_dir(&self) -> &Path {
        &self.pin_dir
    }

    /// The active generation, also when another process applied it. None before the first apply.
    pub fn applied(&self) -> Option<&Compiled> {
        self.active.as_ref().map(|record| &record.compiled)
    }

    /// The active desired state, also when another process applied it.
    pub fn applied_state(&self) -> Option<&NodeState> {
        self.active.as_ref().map(|record| &record.state)
    }

    /// Makes the data plane forget what it has cached about routes, neighbours and links. Cheap: to be called whenever one
    /// of these changes.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn bump_caches(&mut self) -> Result<(), Error> {
        self.life.control(&self.maps, |control| control.cache_generation = control.cache_generation.wrapping_add(1))
    }

    /// Which functions are down, for those who watch them.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Goes on with a [`Life`] that outlives this data plane. What this one knows is added to it.
    pub fn share_life(&mut self, life: &Life) {
        self.life.move_to(life);
        self.life = life.clone();
    }

    /// A map of the data plane by its name in `bpf/lib/base/maps.h`: one of those that the ABI covers.
    ///
    /// # Errors
    /// [`Error::NotInObject`].
    pub fn map(&self, name: &str) -> Result<&MapHandle, Error> {
        self.maps.get(name)
    }

    /// The program on the ports.
    ///
    /// # Errors
    /// [`Error::Load`] if the programs of an adopted data plane cannot be loaded again.
    pub fn program_fd(&mut self) -> Result<OwnedFd, Error> {
        let program = self.port()?.try_clone_to_owned();
        program.map_err(|source| Error::Load { source: source.into(), log: String::new() })
    }

    /// Detaches all ports and removes all pins, the directory included.
    ///
    /// # Errors
    /// [`Error::Pin`] with what is left.
    pub fn remove(mut self) -> Result<(), Error> {
        for ifindex in self.attached() {
            self.detach(ifindex)?;
        }
        self.remove_filters()?;
        // Its maps are closed before others may have them.
        let pin_dir = self.pin_dir.clone();
        drop(self);
        if segue_host::idle::leave(&pin_dir) { Ok(()) } else { remove_tree(&pin_dir) }
    }

    /// As [`Dataplane::remove`] where nothing can be adopted: what an agent left that died while it loaded.
    ///
    /// # Errors
    /// [`Error::Pin`] with what is left.
    pub fn remove_leftovers(pin_dir: &Path) -> Result<(), Error> {
        if !is_bpffs(pin_dir) {
            return Ok(());
        }
        let names = pins::names(pin_dir)?;
        let own = names.iter().filter(|name| *name == pins::LOADING || links::is_link(name));
        own.map(|name| pin_dir.join(name)).try_for_each(|path| {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|source| Error::Pin { path, action: "remove it", source })
        })?;
        // Not empty: it is not Segue's alone, and stays.
        let _ = fs::remove_dir(pin_dir);
        Ok(())
    }

    pub(crate) fn maps(&self) -> &MapSet {
        &self.maps
    }

    fn control(&self) -> Result<abi::Control, Error> {
        self.maps.read_array("control", 0)
    }

    fn generation(&self) -> u32 {
        self.active.as_ref().map_or(0, |record| record.compiled.generation)
    }

    /// The program on the ports: as it is pinned, or loaded and pinned, with the first port that needs it.
    fn port(&mut self) -> Result<BorrowedFd<'_>, Error> {
        let program = match self.port.take() {
            Some(program) => program,
            None => adopt::port(&self.set, &self.maps, &self.options)?,
        };
        let program: &OwnedFd = self.port.insert(program);
        Ok(program.as_fd())
    }
}

/// Removes a directory with all pins below it; no error if there is none.
fn remove_tree(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Pin { path: directory.to_owned(), action: "remove it", source })
        }
        _ => Ok(()),
    }
}
