//! What is pinned: found and adopted, brought up to date, or replaced.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libbpf_rs::{MapCore, Object, OpenObject, Program, ProgramInput};
use segue_abi as abi;
use segue_host::bpffs::is_bpffs;
use zerocopy::FromZeros;

use super::idle;
use super::path_mtus::PathMtus;
use super::pins::{LOADING, MAPS, PORT, PROGRAMS, lost, names, numbered, own_maps, pin_error};
use super::sid_copies::SidCopies;
use super::{Dataplane, Life, Options, Origin, remove_tree};
use crate::Error;
use crate::bpf_link;
use crate::compiled::Compiled;
use crate::facts::Hook;
use crate::grace::Grace;
use crate::map_table::{self, CONNECTIONS};
use crate::maps::MapSet;
use crate::object::{self, Selection, StageGroup, build_id};
use crate::records::{Records, STATE};
use crate::skb::{self, Part};

pub(super) fn open_or_load(pin_dir: &Path, options: Options) -> Result<Dataplane, Error> {
    let existed = pin_dir.exists();
    fs::create_dir_all(pin_dir).map_err(pin_error(pin_dir, "make the directory"))?;
    if !is_bpffs(pin_dir) {
        if !existed {
            // Best effort: the error below is what matters.
            let _ = fs::remove_dir(pin_dir);
        }
        return Err(Error::NotBpffs { path: pin_dir.to_owned() });
    }
    remove_tree(&pin_dir.join(LOADING))?;
    let sets = numbered(pin_dir)?;
    let mut open = object::open(&options.capacity)?;
    if let Some((_, set)) = sets.last() {
        let older: Vec<PathBuf> = sets[..sets.len() - 1].iter().map(|(_, set)| set.clone()).collect();
        if let Some(mut dataplane) = adopt(&mut open, pin_dir, set, options)? {
            dataplane.bring_up_to_date(open, &older)?;
            dataplane.life_forgets();
            return Ok(dataplane);
        }
    }
    let dataplane = load_beside(open, pin_dir, options, None)?;
    dataplane.life_forgets();
    Ok(dataplane)
}

/// Loads new maps and programs, or takes idle ones. What is there already stays active until the next apply. With `goes_on` only the
/// maps that are to be larger are new: all others are those of that data plane.
pub(super) fn load_beside(
    mut open: OpenObject,
    pin_dir: &Path,
    options: Options,
    goes_on: Option<&Dataplane>,
) -> Result<Dataplane, Error> {
    let sets = numbered(pin_dir)?;
    let number = sets.last().map_or(1, |(number, _)| number + 1);
    let origin = if sets.is_empty() { Origin::Loaded } else { Origin::Replacing };
    let set = pin_dir.join(format!("{MAPS}{number}"));
    if goes_on.is_none() && idle::take(&set, &open)? {
        if let Some(taken) = adopt(&mut open, pin_dir, &set, options)? {
            return Ok(Dataplane { origin, ..taken });
        }
        remove_tree(&set)?;
    }
    load_new(open, pin_dir, &set, (options, origin), goes_on)
}

/// The maps of `set` with what is known about them. `None` if this build cannot use them.
fn adopt(open: &mut OpenObject, pin_dir: &Path, set: &Path, options: Options) -> Result<Option<Dataplane>, Error> {
    let (Some(maps), Some(store)) = (MapSet::open(set, map_table::shared()), Records::open(&set.join(STATE))) else {
        return Ok(None);
    };
    if !object::fits(open, &maps)? {
        return Ok(None);
    }
    let control: abi::Control = maps.read_array("control", 0)?;
    if control.abi_version != abi::SEGUE_ABI_VERSION {
        return Ok(None);
    }
    let active = match control.generation {
        0 => None,
        generation => match store.read(generation) {
            None => return Ok(None),
            record => record.map(Arc::new),
        },
    };
    let store_carried = store.read_carried(control.generation).unwrap_or_default();
    let capacity = map_table::capacity_of(&maps)?.max(&options.capacity);
    let mut dataplane = Dataplane {
        pin_dir: pin_dir.to_owned(),
        set: set.to_owned(),
        maps: Arc::new(maps),
        store,
        port: None,
        options: Options { capacity, ..options },
        origin: Origin::Adopted,
        carried: Arc::new(store_carried),
        active,
        captured: BTreeSet::new(),
        down: BTreeSet::new(),
        unclean: true,
        life: Life::default(),
        path_mtus: PathMtus::default(),
        grace: Grace::new()?,
    };
    dataplane.clean()?;
    dataplane.life.adopt(&dataplane.set, &dataplane.maps, dataplane.applied())?;
    dataplane.captured = dataplane.read_captured()?;
    dataplane.down = dataplane.read_down()?;
    Ok(Some(dataplane))
}

impl Dataplane {
    /// Finishes what an agent that died has begun, and replaces programs of another build.
    fn bring_up_to_date(&mut self, open: OpenObject, older_sets: &[PathBuf]) -> Result<(), Error> {
        let own = format!("{PROGRAMS}{}", build_id());
        let present: Vec<String> = names(&self.set)?.into_iter().filter(|name| name.starts_with(PROGRAMS)).collect();
        if !present.contains(&own) {
            let reused: Vec<_> = self.maps.iter().collect();
            // Sized as the maps are: a constant of the programs says how large one of them is.
            drop(open);
            let object = object::load(object::open(&self.options.capacity)?, &reused, Selection::Maps)?;
            pin_own_maps(&object, &self.set)?;
            if let Some(active) = self.applied() {
                self.load_stages(active)?;
            }
            self.origin = Origin::ProgramReplaced;
        }
        if self.active.is_none() && !older_sets.is_empty() {
            self.origin = Origin::Replacing;
            return Ok(());
        }
        if present.iter().any(|name| *name != own) || !older_sets.is_empty() {
            self.update_links()?;
        }
        self.attach_filters()?;
        for name in present.iter().filter(|name| **name != own) {
            remove_tree(&self.set.join(name))?;
        }
        older_sets.iter().try_for_each(|set| remove_tree(set))
    }

    /// Loads the stages that a generation needs, unless they are there: to be called before the first packet may need them, since the
    /// verifier takes a second or more.
    pub(super) fn load_stages(&self, compiled: &Compiled) -> Result<(), Error> {
        let wider = compiled.has_skb_ports() && !skb::reaches(&self.set, compiled);
        for part in Part::needed(compiled) {
            self.filter_programs(part)?;
        }
        if wider {
            // Before a packet may meet the first function or come in by the first access port: what the ports have knows none.
            self.attach_filters()?;
        }
        if !compiled.has_xdp_ports() {
            return Ok(());
        }
        for group in StageGroup::ALL.into_iter().filter(|group| group.is_needed(compiled, Hook::Xdp)) {
            let own = own_maps(&self.set)?;
            if !object::has_stages(own.get("stages")?, group)? {
                let reused: Vec<_> = self.maps.iter().chain(own.iter()).collect();
                // The slots keep the programs.
                object::load(object::open(&self.options.capacity)?, &reused, Selection::Stages(group))?;
            }
        }
        Ok(())
    }

    /// What these programs remember of SIDs is forgotten when it changes. Without that all caches are dropped then.
    pub(super) fn life_forgets(&self) {
        let copies = || {
            let own = own_maps(&self.set)?;
            let reused: Vec<_> = self.maps.iter().chain(own.iter()).collect();
            let object = object::load(object::open(&self.options.capacity)?, &reused, Selection::Forget)?;
            self.life.forget_by(&self.set, &self.maps, SidCopies::new(object)?)
        };
        if let Err(error) = copies() {
            tracing::warn!("a function's death will drop all caches: {error}");
        }
    }

    /// Moves connections from tables that others have taken over from, and removes those.
    pub(super) fn move_connections(&self) -> Result<(), Error> {
        /// Buckets in one run: some milliseconds.
        const PORTION: u32 = 1 << 14;
        let mut old = Vec::new();
        for firewall in self.applied().into_iter().flat_map(|active| &active.firewalls) {
            if firewall.entry.previous != 0 && self.connection_table(firewall.entry.previous)?.is_some() {
                old.push(firewall);
            }
        }
        if old.is_empty() {
            return Ok(());
        }
        let own = own_maps(&self.set)?;
        let reused: Vec<_> = self.maps.iter().chain(own.iter()).collect();
        let object = object::load(object::open(&self.options.capacity)?, &reused, Selection::Move)?;
        let program = object::program(&object, object::MOVE)?;
        for firewall in old {
            for first in (0..firewall.entry.previous_buckets).step_by(PORTION as usize) {
                // struct connection_order of lib/conntrack/move.h, behind an Ethernet header.
                let mut order = vec![0; 14];
                order.extend([firewall.index, first, PORTION].into_iter().flat_map(u32::to_ne_bytes));
                let input = ProgramInput { data_in: Some(&order), ..ProgramInput::default() };
                let run = program.test_run(input);
                run.map_err(crate::maps::map_error(CONNECTIONS, "move what is in a table"))?;
            }
            self.maps.delete(CONNECTIONS, &firewall.entry.previous)?;
        }
        Ok(())
    }

    /// Removes what another generation than the active one left in the maps.
    pub(super) fn clean(&mut self) -> Result<(), Error> {
        let active = self.generation();
        for map in ["sids", "returns"] {
            for key in self.maps.keys::<abi::SidKey>(map)?.into_iter().filter(|key| key.generation != active) {
                self.maps.delete(map, &key)?;
            }
        }
        let labels = self.maps.keys::<abi::LabelKey>("labels")?;
        for key in labels.into_iter().filter(|key| key.generation != active) {
            self.maps.delete("labels", &key)?;
        }
        let first = abi::SEGUE_PORT_SLOTS * (1 - (active & 1));
        for slot in first..first + abi::SEGUE_PORT_SLOTS {
            if self.maps.read_array::<abi::Port>("ports", slot)?.ifindex != 0 {
                self.maps.write("ports", &slot, &abi::Port::new_zeroed())?;
            }
        }
        self.remove_tables(self.applied())?;
        self.store.keep_only(active)?;
        self.unclean = false;
        Ok(())
    }

    /// After the first apply to a new map set: the older ones have no traffic any more.
    pub(super) fn remove_other_sets(&self) -> Result<(), Error> {
        self.life.keep_sets(|set| *set == self.set);
        let others = numbered(&self.pin_dir)?.into_iter().filter(|(_, set)| *set != self.set);
        others.into_iter().try_for_each(|(_, set)| remove_tree(&set))
    }
}

fn load_new(
    mut open: OpenObject,
    pin_dir: &Path,
    set: &Path,
    (options, origin): (Options, Origin),
    goes_on: Option<&Dataplane>,
) -> Result<Dataplane, Error> {
    let mut reused = Vec::new();
    for (name, map) in goes_on.iter().flat_map(|old| old.maps.iter()) {
        if object::is_large_enough(&mut open, &name, map)? {
            reused.push((name, map));
        }
    }
    let object = object::load(open, &reused, Selection::Maps)?;
    let loading = pin_dir.join(LOADING);
    fs::create_dir(&loading).map_err(pin_error(&loading, "make the directory"))?;
    pin_maps(&object, &loading, map_table::is_shared)?;
    match goes_on {
        Some(old) => old.store.pin(&loading.join(STATE))?,
        None => drop(Records::create(&loading.join(STATE))?),
    }
    pin_own_maps(&object, &loading)?;
    let maps = MapSet::open(&loading, map_table::shared()).ok_or_else(|| lost(&loading))?;
    fs::rename(&loading, set).map_err(pin_error(set, "rename the directory of new maps to it"))?;
    let store = Records::open(&set.join(STATE)).ok_or_else(|| lost(set))?;
    Ok(Dataplane {
        pin_dir: pin_dir.to_owned(),
        set: set.to_owned(),
        maps: Arc::new(maps),
        store,
        port: None,
        options,
        origin,
        active: goes_on.and_then(|old| old.active.clone()),
        carried: goes_on.map(|old| old.carried.clone()).unwrap_or_default(),
        captured: BTreeSet::new(),
        down: BTreeSet::new(),
        unclean: false,
        life: Life::default(),
        path_mtus: PathMtus::default(),
        grace: Grace::new()?,
    })
}

/// Pins the maps that belong to this build of the programs below `set`.
fn pin_own_maps(object: &Object, set: &Path) -> Result<(), Error> {
    let loading = set.join(LOADING);
    remove_tree(&loading)?;
    fs::create_dir(&loading).map_err(pin_error(&loading, "make the directory"))?;
    pin_maps(object, &loading, |name| !map_table::is_shared(name))?;
    let programs = set.join(format!("{PROGRAMS}{}", build_id()));
    fs::rename(&loading, &programs).map_err(pin_error(&programs, "rename the directory of new programs to it"))
}

fn pin_maps(object: &Object, directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), Error> {
    for map in object.maps() {
        let Some(name) = object::pin_name(map.name()).filter(|name| wanted(name)) else { continue };
        let path = directory.join(&name);
        let mut handle =
            libbpf_rs::MapHandle::try_from(&map).map_err(crate::maps::map_error(&name, "take a handle of it"))?;
        handle.pin(&path).map_err(|source| Error::BpfPin { path, action: "pin the map", source })?;
    }
    Ok(())
}

/// This build's program on XDP, which `set` has pinned, or which is loaded and pinned.
pub(super) fn port(set: &Path, shared: &MapSet, options: &Options) -> Result<OwnedFd, Error> {
    let directory = set.join(format!("{PROGRAMS}{}", build_id())).join(PORT);
    let path = directory.join(object::PROGRAM);
    if let Ok(program) = Program::fd_from_pinned_path(&path) {
        return Ok(program);
    }
    let own = own_maps(set)?;
    let reused: Vec<_> = shared.iter().chain(own.iter()).collect();
    let object = object::load(object::open(&options.capacity)?, &reused, Selection::Port)?;
    remove_tree(&directory)?;
    fs::create_dir(&directory).map_err(pin_error(&directory, "make the directory"))?;
    let program = object::program(&object, object::PROGRAM)?;
    bpf_link::pin(program.as_fd(), &path).map_err(pin_error(&path, "pin the program"))?;
    program.as_fd().try_clone_to_owned().map_err(pin_error(&path, "take another handle of it"))
}
