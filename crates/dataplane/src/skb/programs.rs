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
use crate::facts::{Capacity, Hook};
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

/// For the far end of the pair by which buffers are made single packets before they get labels.
pub const CUT: &str = "segue_cut";

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

/// Sections of the constants that say whether packets may meet functions, and come in by access ports (bpf/lib/base/config.h).
const FUNCTIONS_HERE: &str = ".rodata.functions";
const ACCESS_HERE: &str = ".rodata.access";

const PROGRAMS: &str = "functions-";
const LOADING: &str = "functions-loading";

/// What packets on the ports of this hook may meet besides the node's own SIDs. What they cannot meet is not in a load of the programs:
/// the verifier takes most of its time for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Functions behind this node.
    pub functions: bool,
    /// Access ports, where packets come in from outside the SR domain.
    pub access: bool,
}

impl Reach {
    /// Everything.
    pub const WHOLE: Self = Self { functions: true, access: true };

    /// Those that hold nothing twice and lack nothing, wider ones behind narrower ones.
    const ALL: [Self; 4] = [
        Self { functions: false, access: false },
        Self { functions: false, access: true },
        Self { functions: true, access: false },
        Self::WHOLE,
    ];

    fn of(compiled: &Compiled) -> Self {
        // A firewall's SID has a proxy's behaviour.
        Self { functions: compiled.has_proxies(), access: compiled.has_access_ports() }
    }

    fn with(self, other: Self) -> Self {
        Self { functions: self.functions || other.functions, access: self.access || other.access }
    }

    fn covers(self, other: Self) -> bool {
        self.with(other) == self
    }

    /// The widest that `set` has pinned. Each one loaded after another covers it: see [`open_or_load`].
    fn loaded(set: &Path) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|reach| set.join(Part::Port(*reach).directory()).is_dir())
    }
}

/// Programs that are loaded together, when the first port needs one of them: the kernel's verifier takes seconds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What every port with the XDP program has: [`IN`].
    Usual,
    /// What every port on socket buffers has: [`PORT`], and the stages that every node needs. What was loaded for a wider reach stands
    /// for a narrower one.
    Port(Reach),
    /// Further stages of [`Part::Port`].
    Stages(StageGroup),
    /// What takes packets that come out of functions on the kernel's path: [`OUT`], [`EGRESS`], and their stages.
    Functions,
    /// What takes back single packets of buffers that were to get labels: [`CUT`].
    Cut,
    /// What is run when somebody asks, and needed by no packet: [`INJECT`].
    Asked,
}

impl Part {
    const ALL: [Self; 23] = [
        Self::Usual,
        Self::Port(Reach::ALL[0]),
        Self::Port(Reach::ALL[1]),
        Self::Port(Reach::ALL[2]),
        Self::Port(Reach::ALL[3]),
        Self::Stages(StageGroup::Access),
        Self::Stages(StageGroup::Firewall),
        Self::Stages(StageGroup::Function),
        Self::Stages(StageGroup::Instance),
        Self::Stages(StageGroup::Inserted),
        Self::Stages(StageGroup::Labels),
        Self::Stages(StageGroup::LabelFunction),
        Self::Stages(StageGroup::LabelFirewall),
        Self::Stages(StageGroup::LabelBinding),
        Self::Stages(StageGroup::LabelInstance),
        Self::Stages(StageGroup::LabelAware),
        Self::Stages(StageGroup::Pseudowire),
        Self::Stages(StageGroup::LabelUdp),
        Self::Stages(StageGroup::LabelUdpIn),
        Self::Stages(StageGroup::LabelEcn),
        Self::Functions,
        Self::Cut,
        Self::Asked,
    ];

    /// Those that a generation needs, in the order in which they are loaded.
    pub fn needed(compiled: &Compiled) -> Vec<Self> {
        let is_needed = |part: &Self| match part {
            Self::Usual => compiled.ports.iter().any(|port| port.xdp),
            Self::Port(_) => compiled.has_skb_ports() && *part == Self::port(compiled),
            Self::Stages(group) => compiled.has_skb_ports() && group.is_needed(compiled, Hook::Skb),
            Self::Functions => compiled.has_kernel_path(),
            Self::Cut => compiled.has_skb_ports() && compiled.cut_ifindex != 0,
            Self::Asked => false,
        };
        Self::ALL.into_iter().filter(is_needed).collect()
    }

    /// What a generation needs on its ports.
    pub fn port(compiled: &Compiled) -> Self {
        Self::Port(Reach::of(compiled))
    }

    /// Those that are attached somewhere, or run, and pinned.
    fn attached(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &[IN],
            Self::Port(_) => &[PORT],
            Self::Stages(_) => &[],
            Self::Functions => &[OUT, EGRESS],
            Self::Cut => &[CUT],
            Self::Asked => &[INJECT],
        }
    }

    /// Those behind tail calls, by their slots in the map [`STAGES`].
    fn stages(self) -> Vec<(abi::Stage, &'static str)> {
        let of =
            |group: StageGroup| object::STAGES.into_iter().filter(|(_, name)| group.stages().contains(name)).collect();
        match self {
            Self::Usual | Self::Cut | Self::Asked => Vec::new(),
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
            Self::Port(Reach { functions: false, access: false }) => "port-node",
            Self::Port(Reach { functions: false, access: true }) => "port-access",
            Self::Port(Reach { functions: true, access: false }) => "port-core",
            Self::Port(Reach::WHOLE) | Self::Stages(StageGroup::Common) => "port",
            Self::Stages(StageGroup::Access) => "port-access-stage",
            Self::Stages(StageGroup::Firewall) => "port-firewall",
            Self::Stages(StageGroup::Function) => "port-function",
            Self::Stages(StageGroup::Instance) => "port-instance",
            Self::Stages(StageGroup::Inserted) => "port-inserted",
            Self::Stages(StageGroup::Labels) => "port-labels",
            Self::Stages(StageGroup::LabelFunction) => "port-label-functions",
            Self::Stages(StageGroup::LabelFirewall) => "port-label-firewall",
            Self::Stages(StageGroup::LabelBinding) => "port-label-binding",
            Self::Stages(StageGroup::LabelInstance) => "port-label-instance",
            Self::Stages(StageGroup::LabelAware) => "port-label-aware",
            Self::Stages(StageGroup::Pseudowire) => "port-pseudowires",
            Self::Stages(StageGroup::LabelUdp) => "port-label-udp",
            Self::Stages(StageGroup::LabelUdpIn) => "port-label-udp-in",
            Self::Stages(StageGroup::LabelEcn) => "port-label-ecn",
            Self::Functions => "functions",
            Self::Cut => "cut",
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
    let part = match part {
        // So that what is loaded last covers all before: ports go from one to the next and back to none.
        Part::Port(reach) => Part::Port(Reach::loaded(set).map_or(reach, |loaded| loaded.with(reach))),
        part => part,
    };
    let directory = set.join(part.directory());
    if let Some(programs) = Programs::open(&directory, part) {
        return Ok(programs);
    }
    let own = MapSet::open_all(build).ok_or_else(|| lost(build))?;
    let mut reused: Vec<(String, &MapHandle)> = shared.iter().chain(own.iter()).collect();
    let stages = match part {
        Part::Stages(_) | Part::Cut => Some(port_stages(set)?),
        // Where ports have a load of narrower reach, it goes on with these stages until all have changed over.
        Part::Port(_) => port_stages(set).ok(),
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
    let path = set.join(Part::Port(Reach::loaded(set).unwrap_or(Reach::WHOLE)).directory()).join(STAGES);
    MapHandle::from_pinned_path(path).map_err(map_error(STAGES, "open its pin"))
}

/// Whether `set` has pinned the ports' programs with all that this generation's packets may meet.
pub fn reaches(set: &Path, compiled: &Compiled) -> bool {
    Reach::loaded(set).is_some_and(|loaded| loaded.covers(Reach::of(compiled)))
}

/// Removes the pins of other builds, and those of the ports' programs that others of wider reach have replaced.
pub fn keep_only_needed(set: &Path) -> Result<(), Error> {
    let widest = Reach::loaded(set);
    let is_replaced = |part: &Part| matches!(part, Part::Port(reach) if widest.is_some_and(|widest| widest != *reach));
    let own: Vec<String> = Part::ALL.into_iter().filter(|part| !is_replaced(part)).map(Part::directory).collect();
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
        if let Part::Port(reach) = part {
            for (section, here) in [(FUNCTIONS_HERE, reach.functions), (ACCESS_HERE, reach.access)] {
                if map.name() == section {
                    object::set_constant(&mut map, section, here.into())?;
                }
            }
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
            // What ports have is loaded in four ways.
            let is_narrow = |part: &Part| matches!(part, Part::Port(reach) if *reach != Reach::WHOLE);
            let parts = Part::ALL.iter().filter(|part| !is_narrow(part) && part.has(program.name()));
            assert_eq!(parts.count(), 1, "{:?}", program.name());
        }
    }

    /// Else a node without functions or access ports would load their ways, and nobody would notice.
    #[test]
    fn the_object_says_by_constants_what_packets_may_meet() {
        let object = open(&Capacity::default()).expect("the embedded object opens");
        for section in [FUNCTIONS_HERE, ACCESS_HERE] {
            let constants = object.maps().find(|map| map.name() == section).expect("the section");
            assert_eq!(constants.initial_value(), Some(&1_u32.to_ne_bytes()[..]), "{section}");
        }
    }

    /// Else a port could get programs that know less than those of the generation before.
    #[test]
    fn what_is_loaded_later_covers_what_was_loaded_before() {
        for first in Reach::ALL {
            for second in Reach::ALL {
                let both = first.with(second);
                assert!(both.covers(first) && both.covers(second), "{first:?} and {second:?}");
                let position = |reach| Reach::ALL.iter().position(|other| *other == reach);
                assert!(position(both) >= position(first).max(position(second)), "{first:?} and {second:?}");
            }
        }
    }
}
