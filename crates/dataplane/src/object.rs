//! The embedded eBPF object: opened, sized, joined with pinned maps, loaded.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::{Once, OnceLock};

use libbpf_rs::{MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel};
use segue_abi as abi;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::compiled::{Compiled, CompiledLabel};
use crate::facts::{Capacity, Hook};
use crate::map_table::{self, MAPS, Size};
use crate::maps::{MapSet, find_map, map_error};

/// libelf reads the object's headers in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/segue.bpf.o")));

/// `bpf/segue.bpf.c`, compiled.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// The program on every port.
pub(crate) const PROGRAM: &str = "segue_port";

/// Programs behind tail calls, by their slot in the map `stages`. The object need not have all of them: a stage may be part
/// of the port's program.
pub(crate) const STAGES: [(abi::Stage, &str); 27] = [
    (abi::SEGUE_STAGE_AGAIN, "segue_again"),
    (abi::SEGUE_STAGE_ICMP, "segue_icmp"),
    (abi::SEGUE_STAGE_SERVICE, "segue_service"),
    (abi::SEGUE_STAGE_RELAY, "segue_relay"),
    (abi::SEGUE_STAGE_ACCESS, "segue_access"),
    (abi::SEGUE_STAGE_PROXY, "segue_proxy"),
    (abi::SEGUE_STAGE_FIREWALL, "segue_firewall"),
    (abi::SEGUE_STAGE_FILTER, "segue_filter"),
    (abi::SEGUE_STAGE_FILTERED, "segue_filtered"),
    (abi::SEGUE_STAGE_RESET, "segue_reset"),
    (abi::SEGUE_STAGE_INSERTED, "segue_inserted"),
    (abi::SEGUE_STAGE_INSTANCE, "segue_instance"),
    (abi::SEGUE_STAGE_LABELS, "segue_labels"),
    (abi::SEGUE_STAGE_LABELS_PUSH, "segue_labels_push"),
    (abi::SEGUE_STAGE_LABELS_BACK, "segue_labels_back"),
    (abi::SEGUE_STAGE_LABELS_FIREWALL, "segue_labels_firewall"),
    (abi::SEGUE_STAGE_LABELS_PASSED, "segue_labels_passed"),
    (abi::SEGUE_STAGE_LABELS_BINDING, "segue_labels_binding"),
    (abi::SEGUE_STAGE_LABELS_INSTANCE, "segue_labels_instance"),
    (abi::SEGUE_STAGE_LABELS_AWARE, "segue_labels_aware"),
    (abi::SEGUE_STAGE_LABELS_AWARE_BACK, "segue_labels_aware_back"),
    (abi::SEGUE_STAGE_LABELS_FRAME, "segue_labels_frame"),
    (abi::SEGUE_STAGE_LABELS_WIRE, "segue_labels_wire"),
    (abi::SEGUE_STAGE_LABELS_UDP, "segue_labels_udp"),
    (abi::SEGUE_STAGE_LABELS_UDP_PUSH, "segue_labels_udp_push"),
    (abi::SEGUE_STAGE_LABELS_UDP_IN, "segue_labels_udp_in"),
    (abi::SEGUE_STAGE_LABELS_ECN, "segue_labels_ecn"),
];

/// Stages of [`STAGES`] that are loaded together. The kernel's verifier takes seconds for them, so they are loaded with the first
/// configuration that has what they are for; until then their slots are empty, and a packet that is to go there is dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageGroup {
    /// What any packet may need.
    Common,
    /// Of access ports: what goes on once its priority tag is off, a firewall has let it pass, or it has become a single packet.
    Access,
    /// Of firewalls, on a port or in a chain.
    Firewall,
    /// Of functions behind the node: proxies, and what comes back.
    Function,
    /// Of functions with several instances.
    Instance,
    /// Of functions that see what SRHs are inserted into.
    Inserted,
    /// Of labels: received ones, and those of policies.
    Labels,
    /// Of functions behind labels.
    LabelFunction,
    /// Of firewalls behind labels.
    LabelFirewall,
    /// Of binding labels.
    LabelBinding,
    /// Of labels with several instances of a function.
    LabelInstance,
    /// Of functions behind labels that see the stack.
    LabelAware,
    /// Of pseudowires: frames behind labels.
    Pseudowire,
    /// Of labels that leave in UDP.
    LabelUdp,
    /// Of labels that come in UDP.
    LabelUdpIn,
    /// Of congestion marks on labels.
    LabelEcn,
}

impl StageGroup {
    pub const ALL: [Self; 16] = [
        Self::Common,
        Self::Access,
        Self::Firewall,
        Self::Function,
        Self::Instance,
        Self::Inserted,
        Self::Labels,
        Self::LabelFunction,
        Self::LabelFirewall,
        Self::LabelBinding,
        Self::LabelInstance,
        Self::LabelAware,
        Self::Pseudowire,
        Self::LabelUdp,
        Self::LabelUdpIn,
        Self::LabelEcn,
    ];

    pub fn stages(self) -> &'static [&'static str] {
        match self {
            Self::Common => &["segue_again", "segue_icmp", "segue_relay"],
            Self::Access => &["segue_access"],
            Self::Firewall => &["segue_firewall", "segue_filter", "segue_filtered", "segue_reset"],
            Self::Function => &["segue_service", "segue_proxy"],
            Self::Instance => &["segue_instance"],
            Self::Inserted => &["segue_inserted"],
            Self::Labels => &["segue_labels", "segue_labels_push"],
            Self::LabelFunction => &["segue_labels_back"],
            Self::LabelFirewall => &["segue_labels_firewall", "segue_labels_passed"],
            Self::LabelBinding => &["segue_labels_binding"],
            Self::LabelInstance => &["segue_labels_instance"],
            Self::LabelAware => &["segue_labels_aware", "segue_labels_aware_back"],
            Self::Pseudowire => &["segue_labels_frame", "segue_labels_wire"],
            Self::LabelUdp => &["segue_labels_udp", "segue_labels_udp_push"],
            Self::LabelUdpIn => &["segue_labels_udp_in"],
            Self::LabelEcn => &["segue_labels_ecn"],
        }
    }

    fn has(self, program: &OsStr) -> bool {
        self.stages().iter().any(|stage| program == *stage)
    }

    /// Whether packets of this generation may need them on ports of that kind, where there are any.
    pub fn is_needed(self, compiled: &Compiled, hook: Hook) -> bool {
        match self {
            Self::Common => true,
            // Socket buffers come without tags, but as packets of larger ones.
            Self::Access => {
                let comes_again = || !compiled.firewalls.is_empty() || compiled.cut_ifindex != 0;
                compiled.has_access_ports() && (hook == Hook::Xdp || comes_again())
            }
            Self::Firewall => !compiled.firewalls.is_empty(),
            Self::Function => compiled.has_functions(),
            Self::Instance => compiled.has_behaviour(abi::SEGUE_END_INSTANCES),
            Self::Inserted => compiled.has_behaviour(abi::SEGUE_END_AN_NF),
            Self::Labels => compiled.has_labels(),
            Self::LabelFunction => compiled.labels.iter().any(|label| label.is_among_sids() && !label.has_firewall()),
            Self::LabelFirewall => compiled.labels.iter().any(CompiledLabel::has_firewall),
            Self::LabelBinding => compiled.labels.iter().any(CompiledLabel::is_binding),
            Self::LabelInstance => compiled.labels.iter().any(|label| label.is(abi::SEGUE_LABEL_INSTANCES)),
            Self::LabelAware => compiled.labels.iter().any(|label| label.is(abi::SEGUE_LABEL_AWARE)),
            Self::Pseudowire => compiled.has_pseudowires(),
            Self::LabelUdp => compiled.has_udp_tunnels(),
            Self::LabelUdpIn => compiled.has_behaviour(abi::SEGUE_UDP_ENDPOINT),
            Self::LabelEcn => compiled.has_label_ecn(),
        }
    }
}

/// Moves connections to a table of another size; on no port.
pub(crate) const MOVE: &str = "segue_move";

/// Has CPUs forget copies of SIDs' entries; on no port.
pub(crate) const FORGET: &str = "segue_forget";

/// Asks the kernel's FIB a question of somebody else's; on no port.
pub(crate) const ASK: &str = "segue_ask";

/// Which programs of the object are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// None: the maps alone.
    Maps,
    /// Only the program on the ports.
    Port,
    /// Only these stages, for the map `stages` that the others use.
    Stages(StageGroup),
    /// Only [`MOVE`].
    Move,
    /// Only [`FORGET`].
    Forget,
    /// Only [`ASK`].
    Ask,
}

impl Selection {
    fn has(self, name: &OsStr) -> bool {
        match self {
            Self::Maps => false,
            Self::Port => name == PROGRAM,
            Self::Stages(group) => group.has(name),
            Self::Move => name == MOVE,
            Self::Forget => name == FORGET,
            Self::Ask => name == ASK,
        }
    }
}

/// The object's name of the map that is pinned and shown as `control`: libbpf makes it from a data section.
const CONTROL_SECTION: &str = ".data.control";

/// Tells builds of the data plane apart: a hash of [`OBJECT`] in hexadecimal.
pub fn build_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| Sha256::digest(OBJECT).iter().take(8).map(|octet| format!("{octet:02x}")).collect())
}

/// Refuses machines whose memory order the data plane is not written for: a wrong steering header could go back on a packet.
fn supported(architecture: &'static str) -> Result<(), Error> {
    if architecture == "x86_64" { Ok(()) } else { Err(Error::Architecture { architecture }) }
}

/// The object with its maps sized for `capacity`, not loaded yet.
pub(crate) fn open(capacity: &Capacity) -> Result<OpenObject, Error> {
    open_sized("segue", OBJECT, capacity)
}

/// The same for the object of this name.
pub(crate) fn open_sized(name: &str, octets: &[u8], capacity: &Capacity) -> Result<OpenObject, Error> {
    supported(std::env::consts::ARCH)?;
    let mut builder = ObjectBuilder::default();
    let (opened, log) = logged(|| builder.name(name).and_then(|builder| builder.open_memory(octets)));
    let mut object = opened.map_err(|source| Error::Load { source, log })?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match map_table::find(&name).map(|row| row.size) {
            Some(Size::Entries(of, _)) => {
                map.set_max_entries(of(capacity)).map_err(map_error(&name, "set its size"))?
            }
            Some(Size::Octets(of, _)) => map.set_value_size(of(capacity)).map_err(map_error(&name, "set its size"))?,
            Some(Size::Fixed) | None => {}
        }
        if let Some(size) = map_table::constant(&name, capacity) {
            set_constant(&mut map, &name, size)?;
        }
    }
    Ok(object)
}

/// Sets the only constant of a section.
pub(crate) fn set_constant(map: &mut OpenMapMut<'_>, name: &str, value: u32) -> Result<(), Error> {
    let constants = map.initial_value_mut().filter(|constants| constants.len() == size_of::<u32>());
    let constants = constants.ok_or_else(|| Error::MapEntry { map: name.to_owned() })?;
    constants.copy_from_slice(&value.to_ne_bytes());
    Ok(())
}

/// Whether pinned maps are what this build would create, and at least as large.
pub(crate) fn fits(object: &mut OpenObject, maps: &MapSet) -> Result<bool, Error> {
    for row in MAPS.iter().filter(|row| row.shared) {
        let own = find_open_map(object, row.name)?;
        let pinned = maps.get(row.name)?;
        let entries = match (own.map_type(), row.size) {
            // The kernel chooses the size: one entry for each CPU.
            (MapType::PerfEventArray, _) => true,
            (_, Size::Entries(..)) => pinned.max_entries() >= own.max_entries(),
            _ => pinned.max_entries() == own.max_entries(),
        };
        let value = match row.size {
            Size::Octets(..) => pinned.value_size() >= own.value_size() && pinned.value_size().is_power_of_two(),
            _ => pinned.value_size() == own.value_size(),
        };
        let layout = pinned.map_type() == own.map_type() && pinned.key_size() == own.key_size();
        if !(layout && value && entries) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a map can be used in place of the object's own.
pub(crate) fn is_large_enough(object: &mut OpenObject, name: &str, map: &MapHandle) -> Result<bool, Error> {
    let own = find_open_map(object, name)?;
    // The kernel chooses the size of those: one entry for each CPU.
    let entries = own.map_type() == MapType::PerfEventArray || map.max_entries() >= own.max_entries();
    Ok(entries && map.value_size() == own.value_size())
}

fn find_open_map<'a>(object: &'a mut OpenObject, name: &str) -> Result<OpenMapMut<'a>, Error> {
    object
        .maps_mut()
        .find(|map| pin_name(map.name()).as_deref() == Some(name))
        .ok_or_else(|| Error::NotInObject { kind: "map", name: name.to_owned() })
}

/// Loads programs with these maps in place of new ones.
pub(crate) fn load(
    mut object: OpenObject,
    reused: &[(String, &MapHandle)],
    programs: Selection,
) -> Result<Object, Error> {
    for (name, handle) in reused {
        let mut map = find_open_map(&mut object, name)?;
        map.reuse_fd(handle.as_fd()).map_err(map_error(name, "reuse the pinned map"))?;
    }
    for mut program in object.progs_mut() {
        if !programs.has(program.name()) {
            program.set_autoload(false);
        }
    }
    let (loaded, log) = logged(|| object.load());
    let object = loaded.map_err(|source| Error::Load { source, log })?;
    if matches!(programs, Selection::Stages(_)) {
        fill_stages(&object, programs)?;
    }
    Ok(object)
}

/// Whether the stages of a group are loaded and in their slots.
pub(crate) fn has_stages(stages: &MapHandle, group: StageGroup) -> Result<bool, Error> {
    for (slot, _) in STAGES.iter().filter(|(_, name)| group.stages().contains(name)) {
        let found = stages.lookup(&slot.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
        if found.map_err(map_error("stages", "read an entry"))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill_stages(object: &Object, programs: Selection) -> Result<(), Error> {
    use std::os::fd::AsRawFd;

    let stages = find_map(object, "stages")?;
    let loaded = object.progs().filter(|program| program.name() != PROGRAM && programs.has(program.name()));
    for program in loaded {
        let stage = STAGES.iter().find(|(_, name)| program.name() == *name);
        let unknown = || Error::NotInObject { kind: "stage", name: program.name().to_string_lossy().into_owned() };
        let (slot, _) = stage.ok_or_else(unknown)?;
        let fd = program.as_fd().as_raw_fd();
        stages
            .update(&slot.to_ne_bytes(), &fd.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
            .map_err(map_error("stages", "add a program"))?;
    }
    Ok(())
}

/// A program of the loaded object.
pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::ProgramMut<'a>, Error> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| Error::NotInObject { kind: "program", name: name.to_owned() })
}

/// A handle of a map of the loaded object.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    MapHandle::try_from(&find_map(object, name)?).map_err(map_error(name, "take a handle of it"))
}

/// The name under which a map of the object is pinned. None for the maps that libbpf makes for constants and variables of
/// the C code, `control` apart: they go with each load of the programs.
pub(crate) fn pin_name(map: &OsStr) -> Option<String> {
    match map.to_str()? {
        CONTROL_SECTION => Some("control".to_owned()),
        name if name.contains('.') => None,
        name => Some(name.to_owned()),
    }
}

thread_local! {
    /// What libbpf says while [`logged`] runs on this thread.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Longer logs are cut at the front: the verifier's reason stands at the end.
const LOG_MAX: usize = 16 * 1024;

/// Runs `what` and returns what libbpf had to say: its warnings, and the verifier's log.
pub(crate) fn logged<T>(what: impl FnOnce() -> T) -> (T, String) {
    static PRINT: Once = Once::new();
    PRINT.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, print)));
    });
    LOG.set(Some(String::new()));
    let result = what();
    let log = LOG.take().unwrap_or_default();
    let cut = log.len().saturating_sub(LOG_MAX);
    let start = (cut..log.len()).find(|&at| log.is_char_boundary(at)).unwrap_or(0);
    (result, log[start..].trim_end().to_owned())
}

fn print(level: PrintLevel, message: String) {
    let collected = LOG.with_borrow_mut(|log| match log {
        Some(log) => {
            log.push_str(&message);
            true
        }
        None => false,
    });
    match level {
        PrintLevel::Warn if !collected => tracing::warn!(target: "libbpf", "{}", message.trim_end()),
        _ => tracing::debug!(target: "libbpf", "{}", message.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_has_all_programs() {
        let object = open(&Capacity::default()).expect("the embedded object opens");
        let no_stages = [PROGRAM, MOVE, FORGET, ASK];
        for name in no_stages {
            assert!(object.progs().any(|program| program.name() == name), "{name}");
        }
        for program in object.progs().filter(|program| no_stages.iter().all(|name| program.name() != *name)) {
            assert!(STAGES.iter().any(|(_, name)| program.name() == *name), "{:?} is no stage", program.name());
        }
        assert_eq!(build_id().len(), 16);
    }

    #[test]
    fn each_stage_is_of_one_group() {
        let named: Vec<&str> = StageGroup::ALL.iter().flat_map(|group| group.stages()).copied().collect();
        for name in &named {
            assert!(STAGES.iter().any(|(_, stage)| stage == name), "{name} is no stage");
            assert_eq!(named.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        assert_eq!(named.len(), STAGES.len(), "a stage of no group would never be loaded");
    }

    #[test]
    fn other_architectures_are_refused() {
        assert!(supported("x86_64").is_ok());
        for other in ["aarch64", "riscv64", "powerpc64", "x86"] {
            let error = supported(other).expect_err("not supported").to_string();
            assert!(error.contains(other) && error.contains("order of loads"), "{error}");
        }
    }

    #[test]
    fn failure_has_what_libbpf_said() {
        let (result, log) = logged(|| ObjectBuilder::default().open_memory(b"no object").map(drop));
        assert!(result.is_err());
        assert!(log.contains("libbpf"), "{log:?}");
        let error = Error::Load { source: result.expect_err("an error"), log: log.clone() }.to_string();
        assert!(error.ends_with(&log), "{error}");
    }
}
