//! The programs: loaded on the maps of the XDP data plane, pinned, opened again.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, OpenObject, Program};
use segue_abi as abi;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::compiled::Compiled;
use crate::facts::Capacity;
use crate::maps::{MapSet, find_map, map_error};
use crate::object::{self, StageGroup};

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

/// On no port: puts a frame in.
pub const INJECT: &str = "segue_inject";

/// For ports on socket buffers: the same data plane as on XDP.
pub const PORT: &str = object::PROGRAM;

/// Stage behind [`OUT`]: what a function sends of its own.
const OWN: &str = "segue_own";

/// Stage behind [`OUT`]: what comes out of a function behind a label.
const LABELS_OUT: &str = "segue_function_labels";

/// The map of stages behind tail calls.
const STAGES: &str = "skb_stages";

/// Section of the constant that says whether packets may meet functions (bpf/lib/base/config.h).
const FUNCTIONS_HERE: &str = ".rodata.functions";

const PROGRAMS: &str = "functions-";
const LOADING: &str = "functions-loading";

/// What packets on the ports of this hook may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing behind this node: a load that has no function's ways in it, which are most of what the verifier has to follow.
    Node,
    /// Functions behind this node.
    Functions,
}

/// Programs that are loaded together, when the first port needs one of them: the kernel's verifier takes seconds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What every port with the XDP program has: [`IN`].
    Usual,
    /// What every port on socket buffers has: [`PORT`], and the stages that every node needs. Once there has been a function, what is
    /// loaded for [`Reach::Functions`] stands for both.
    Port(Reach),
    /// Further stages of [`Part::Port`].
    Stages(StageGroup),
    /// What takes packets that come out of functions on the kernel's path: [`OUT`], [`EGRESS`], and their stages.
    Functions,
    /// What is run when somebody asks, and needed by no packet: [`INJECT`].
    Asked,
}

impl Part {
    const ALL: [Self; 10] = [
        Self::Usual,
        Self::Port(Reach::Node),
        Self::Port(Reach::Functions),
        Self::Stages(StageGroup::Firewall),
        Self::Stages(StageGroup::Function),
        Self::Stages(StageGroup::Labels),
        Self::Stages(StageGroup::LabelFunction),
        Self::Stages(StageGroup::LabelFirewall),
        Self::Functions,
        Self::Asked,
    ];

    /// Those that a generation needs, in the order in which they are loaded.
    pub fn needed(compiled: &Compiled) -> Vec<Self> {
        let is_needed = |part: &Self| match part {
            Self::Usual => compiled.ports.iter().any(|port| port.xdp),
            Self::Port(_) => compiled.has_skb_ports() && *part == Self::port(compiled),
            Self::Stages(group) => compiled.has_skb_ports() && group.is_needed(compiled),
            Self::Functions => compiled.has_kernel_path(),
            Self::Asked => false,
        };
        Self::ALL.into_iter().filter(is_needed).collect()
    }

    /// What a generation needs on its ports.
    pub fn port(compiled: &Compiled) -> Self {
        // A firewall's SID has a proxy's behaviour.
        Self::Port(if compiled.has_proxies() { Reach::Functions } else { Reach::Node })
    }

    /// Those that are attached somewhere, or run, and pinned.
    fn attached(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &[IN],
            Self::Port(_) => &[PORT],
            Self::Stages(_) => &[],
            Self::Functions => &[OUT, EGRESS],
            Self::Asked => &[INJECT],
        }
    }

    /// Those behind tail calls, by their slots in the map [`STAGES`].
    fn stages(self) -> Vec<(abi::Stage, &'static str)> {
        let of =
            |group: StageGroup| object::STAGES.into_iter().filter(|(_, name)| group.stages().contains(name)).collect();
        match self {
            Self::Usual | Self::Asked => Vec::new(),
            Self::Port(_) => of(StageGroup::Common),
            Self::Stages(group) => of(group),
            Self::Functions => vec![(abi::SEGUE_STAGE_OWN, OWN), (abi::SEGUE_STAGE_LABELS_OUT, LABELS_OUT)],
        }
    }

    fn has(self, program: &OsStr) -> bool {
        let stages = self.stages();
        self.attached().iter().chain(stages.iter().map(|(_, name)| name)).any(|name| program == *name)
    }

    /// The directory's name tells the part, this build of the programs, and that of the XDP programs whose maps they share.
    fn directory(self) -> String {
        let part = match self {
            Self::Usual => "usual",
            Self::Port(Reach::Node) => "port-node",
            Self::Port(Reach::Functions) | Self::Stages(StageGroup::Common) => "port",
            Self::Stages(StageGroup::Firewall) => "port-firewall",
            Self::Stages(StageGroup::Function) => "port-function",
            Self::Stages(StageGroup::Labels) => "port-labels",
            Self::Stages(StageGroup::LabelFunction) => "port-label-functions",
            Self::Stages(StageGroup::LabelFirewall) => "port-label-firewall",
            Self::Functions => "functions",
            Self::Asked => "asked",
        };
        format!("{PROGRAMS}{}-{part}", build())
    }
}

/// The programs of one part.
#[derive(Debug)]
pub struct Programs(Vec<(&'static str, OwnedFd)>);

/// The programs that `set` has pinned, or loads and pins them. `build`: the maps of the XDP programs' build beside the
/// shared ones. What other builds have pinned in `set` is removed by [`keep_only_needed`].
pub fn open_or_load(
    set: &Path,
    shared: &MapSet,
    build: &Path,
    capacity: &Capacity,
    part: Part,
) -> Result<Programs, Error> {
    let wider = (part == Part::Port(Reach::Node)).then_some(Part::Port(Reach::Functions));
    if let Some(programs) = wider.and_then(|wider| Programs::open(&set.join(wider.directory()), wider)) {
        return Ok(programs);
    }
    let directory = set.join(part.directory());
    if let Some(programs) = Programs::open(&directory, part) {
        return Ok(programs);
    }
    let own = MapSet::open_all(build).ok_or_else(|| lost(build))?;
    let mut reused: Vec<(String, &MapHandle)> = shared.iter().chain(own.iter()).collect();
    let stages = match part {
        Part::Stages(_) => Some(port_stages(set)?),
        // Where ports have the load without functions' ways, it goes on with these stages until all have changed over.
        Part::Port(Reach::Functions) => port_stages(set).ok(),
        _ => None,
    };
    reused.extend(stages.iter().map(|stages| (STAGES.to_owned(), stages)));
    let loading = set.join(LOADING);
    remove(&loading)?;
    fs::create_dir(&loading).map_err(failed(&loading, "make the directory"))?;
    load(&reused, &loading, capacity, part)?;
    remove(&directory)?;
    fs::rename(&loading, &directory).map_err(failed(&directory, "rename the directory of new programs to it"))?;
    Programs::open(&directory, part).ok_or_else(|| lost(&directory))
}

impl Programs {
    fn open(directory: &Path, part: Part) -> Option<Self> {
        if !directory.is_dir() {
            return None;
        }
        let open = |name: &&'static str| Some((*name, Program::fd_from_pinned_path(directory.join(name)).ok()?));
        part.attached().iter().map(open).collect::<Option<_>>().map(Self)
    }

    /// The program of this name; None: it is of another part.
    pub fn get(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, program)| program.as_fd())
    }
}

/// The stages of ports on socket buffers that `set` has pinned.
pub fn port_stages(set: &Path) -> Result<MapHandle, Error> {
    let paths = [Reach::Functions, Reach::Node].map(|reach| set.join(Part::Port(reach).directory()).join(STAGES));
    let path = paths.iter().find(|path| path.exists()).unwrap_or(&paths[0]);
    MapHandle::from_pinned_path(path).map_err(map_error(STAGES, "open its pin"))
}

/// Whether `set` has pinned this part.
pub fn is_loaded(set: &Path, part: Part) -> bool {
    set.join(part.directory()).is_dir()
}

/// Removes the pins of other builds, and those of the load without functions' ways where no port has it any more.
pub fn keep_only_needed(set: &Path) -> Result<(), Error> {
    let replaced = is_loaded(set, Part::Port(Reach::Functions)).then_some(Part::Port(Reach::Node));
    let own: Vec<String> = Part::ALL.into_iter().filter(|part| Some(*part) != replaced).map(Part::directory).collect();
    for entry in fs::read_dir(set).map_err(failed(set, "list it"))? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(PROGRAMS) && own.iter().all(|own| name != own)) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Tells this build of the programs, and of the XDP programs whose maps they share.
fn build() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let both = Sha256::new().chain_update(object::build_id()).chain_update(OBJECT).finalize();
        both.iter().take(8).map(|octet| format!("{octet:02x}")).collect()
    })
}

pub(super) fn open(capacity: &Capacity) -> Result<OpenObject, Error> {
    object::open_sized("segue_skb", OBJECT, capacity)
}

fn load(reused: &[(String, &MapHandle)], directory: &Path, capacity: &Capacity, part: Part) -> Result<(), Error> {
    let mut open = open(capacity)?;
    for mut map in open.maps_mut() {
        if part == Part::Port(Reach::Node) && map.name() == FUNCTIONS_HERE {
            object::set_constant(&mut map, FUNCTIONS_HERE, 0)?;
        }
        let Some(name) = object::pin_name(map.name()) else { continue };
        if let Some((_, handle)) = reused.iter().find(|(reused, _)| *reused == name) {
            map.reuse_fd(handle.as_fd()).map_err(map_error(&name, "reuse the pinned map"))?;
        }
    }
    for mut program in open.progs_mut() {
        if !part.has(program.name()) {
            program.set_autoload(false);
        }
    }
    let (loaded, log) = object::logged(|| open.load());
    let object = loaded.map_err(|source| Error::Load { source, log })?;
    for name in part.attached() {
        let mut program = object::program(&object, name)?;
        let path = directory.join(name);
        program.pin(&path).map_err(|source| Error::BpfPin { path, action: "pin the program", source })?;
    }
    if part.stages().is_empty() { Ok(()) } else { keep_stages(&object, directory, part) }
}

/// A stage behind a tail call lives as long as the map that holds it, which the programs hold. That map drops its programs when
/// the last user of it outside the kernel goes: so it is pinned.
fn keep_stages(object: &Object, directory: &Path, part: Part) -> Result<(), Error> {
    let stages = find_map(object, STAGES)?;
    for (slot, name) in part.stages() {
        let program = object::program(object, name)?.as_fd().as_raw_fd();
        let added = stages.update(&slot.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY);
        added.map_err(map_error(STAGES, "add a program"))?;
    }
    let path = directory.join(STAGES);
    let mut handle = MapHandle::try_from(&stages).map_err(map_error(STAGES, "take a handle of it"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_of_the_object_belongs_to_one_part() {
        for program in open(&Capacity::default()).expect("the embedded object opens").progs() {
            // What ports have is loaded in two ways.
            let parts = Part::ALL.iter().filter(|part| **part != Part::Port(Reach::Node) && part.has(program.name()));
            assert_eq!(parts.count(), 1, "{:?}", program.name());
        }
    }

    /// Else a node without functions would load their ways, and nobody would notice.
    #[test]
    fn the_object_says_by_a_constant_whether_there_are_functions() {
        let object = open(&Capacity::default()).expect("the embedded object opens");
        let constants = object.maps().find(|map| map.name() == FUNCTIONS_HERE).expect("the section");
        assert_eq!(constants.initial_value(), Some(&1_u32.to_ne_bytes()[..]));
    }
}
