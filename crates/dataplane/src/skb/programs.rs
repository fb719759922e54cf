//! The programs: loaded on the maps of the XDP data plane, pinned, opened again.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use libbpf_rs::{MapCore, MapHandle, ObjectBuilder, OpenObject, Program};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::map_table::{STEERING, STEERING_SIZE};
use crate::maps::{MapSet, map_error};
use crate::object;

/// libelf reads the object's headers in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/segue_skb.bpf.o")));

/// `bpf/segue_skb.bpf.c`, compiled.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// For ports that have the XDP program: hands to functions what it takes the steering header off.
pub const IN: &str = "segue_function_in";
/// For ports on which functions return packets.
pub const OUT: &str = "segue_function_out";
/// For the lower device of a function's macvlan: the same, on its egress.
pub const EGRESS: &str = "segue_function_egress";

const PROGRAMS: &str = "functions-";
const LOADING: &str = "functions-loading";

/// The programs for the kinds of port.
#[derive(Debug)]
pub struct Programs {
    /// [`IN`].
    pub into: OwnedFd,
    /// [`OUT`].
    pub out: OwnedFd,
    /// [`EGRESS`].
    pub egress: OwnedFd,
}

/// The programs that `set` has pinned, or loads and pins them. `build`: the maps of the XDP programs' build beside the
/// shared ones. What other builds have pinned in `set` is removed by [`Programs::keep_only`].
pub fn open_or_load(set: &Path, shared: &MapSet, build: &Path) -> Result<Programs, Error> {
    let directory = set.join(name());
    if let Some(programs) = Programs::open(&directory) {
        return Ok(programs);
    }
    let own = MapSet::open_all(build).ok_or_else(|| lost(build))?;
    let reused: Vec<(String, &MapHandle)> = shared.iter().chain(own.iter()).collect();
    let loading = set.join(LOADING);
    remove(&loading)?;
    fs::create_dir(&loading).map_err(failed(&loading, "make the directory"))?;
    load(&reused, &loading)?;
    remove(&directory)?;
    fs::rename(&loading, &directory).map_err(failed(&directory, "rename the directory of new programs to it"))?;
    Programs::open(&directory).ok_or_else(|| lost(&directory))
}

impl Programs {
    fn open(directory: &Path) -> Option<Self> {
        let open = |name: &str| Program::fd_from_pinned_path(directory.join(name)).ok();
        Some(Self { into: open(IN)?, out: open(OUT)?, egress: open(EGRESS)? })
    }

    /// Removes the pins of other builds.
    pub fn keep_only(&self, set: &Path) -> Result<(), Error> {
        let own = name();
        for entry in fs::read_dir(set).map_err(failed(set, "list it"))? {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(PROGRAMS) && name != own) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// The directory's name tells this build of the programs, and of the XDP programs whose maps they share.
fn name() -> String {
    static ID: OnceLock<String> = OnceLock::new();
    let id = ID.get_or_init(|| {
        let both = Sha256::new().chain_update(object::build_id()).chain_update(OBJECT).finalize();
        both.iter().take(8).map(|octet| format!("{octet:02x}")).collect()
    });
    format!("{PROGRAMS}{id}")
}

pub(super) fn open() -> Result<OpenObject, Error> {
    let (opened, log) =
        object::logged(|| ObjectBuilder::default().name("segue_skb").and_then(|builder| builder.open_memory(OBJECT)));
    opened.map_err(|source| Error::Load { source, log })
}

fn load(reused: &[(String, &MapHandle)], directory: &Path) -> Result<(), Error> {
    let mut open = open()?;
    for mut map in open.maps_mut() {
        if map.name() == STEERING_SIZE {
            let steering = reused.iter().find(|(name, _)| name == STEERING);
            let (name, steering) = steering.ok_or_else(|| Error::MapEntry { map: STEERING.to_owned() })?;
            object::set_constant(&mut map, name, steering.value_size())?;
        }
        let Some(name) = object::pin_name(map.name()) else { continue };
        if let Some((_, handle)) = reused.iter().find(|(reused, _)| *reused == name) {
            map.reuse_fd(handle.as_fd()).map_err(map_error(&name, "reuse the pinned map"))?;
        }
    }
    let (loaded, log) = object::logged(|| open.load());
    let object = loaded.map_err(|source| Error::Load { source, log })?;
    for name in [IN, OUT, EGRESS] {
        let mut program = object::program(&object, name)?;
        let path = directory.join(name);
        program.pin(&path).map_err(|source| Error::BpfPin { path, action: "pin the program", source })?;
    }
    // The stage behind the tail call lives as long as the map that holds it, which the programs hold. That map drops
    // its programs when the last user of it outside the kernel goes: so it is pinned.
    let stages = object.maps().find(|map| map.name() == "skb_stages");
    let stages = stages.ok_or_else(|| Error::NotInObject { kind: "map", name: "skb_stages".to_owned() })?;
    let path = directory.join("skb_stages");
    let mut handle = MapHandle::try_from(&stages).map_err(map_error("skb_stages", "take a handle of it"))?;
    handle.pin(&path).map_err(|source| Error::BpfPin { path, action: "pin the map", source })
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(failed(directory, "remove it")(source)),
        _ => Ok(()),
    }
}

fn lost(directory: &Path) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::NotFound, "something pinned is missing");
    failed(directory, "open what is pinned in it")(source)
}

fn failed(path: &Path, action: &'static str) -> impl Fn(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pin { path: path.clone(), action, source }
}
