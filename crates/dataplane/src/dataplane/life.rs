//! Which functions are down: a flag in the entries of their SIDs, set and cleared in place.
//!
//! Whoever watches functions must not wait until an apply is done, and an apply must not lose what was found meanwhile. So
//! both work on this, under a lock that is held for few writes only: an apply writes all SIDs through [`Life::write_all`],
//! which knows the failed ones, and from then on [`Life::set`] reaches that entry too, whether its generation is active yet
//! or not. The word that all this shares with everything else, `control`, is written under the same lock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::Ipv6Net;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_abi as abi;
use segue_model::node::NodeState;
use zerocopy::{FromBytes, IntoBytes};

use super::follow::with_oif_by_kernel;
use super::sid_copies::SidCopies;
use crate::Error;
use crate::compiled::{Compiled, CompiledSid};
use crate::map_table::SID_ENTRIES as ENTRIES;
use crate::maps::{BATCH, MapSet, map_error, write_batch};

const CONTROL: &str = "control";
const UNRESOLVED: &str = "unresolved";
const DOWN: u8 = abi::SEGUE_SID_DOWN as u8;

/// The failed functions of one data plane, by the SIDs in front of them. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Life(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    down: BTreeSet<Ipv6Net>,
    /// The link-layer source of what the data plane gives to the kernel.
    signature: [u8; 6],
    /// Two while larger tables take over.
    targets: Vec<Target>,
}

/// One set of maps.
#[derive(Debug)]
struct Target {
    set: PathBuf,
    entries: MapHandle,
    control: MapHandle,
    unresolved: MapHandle,
    /// How often each row of it had been written when it was looked at; `None`: never.
    unresolved_before: Option<Vec<u32>>,
    /// Where each SID stands, without the flag: in the active generation and in the one that is being written.
    sids: BTreeMap<Ipv6Net, BTreeMap<u32, abi::Sid>>,
    copies: Option<SidCopies>,
}

impl Life {
    /// SIDs whose functions are down.
    pub fn down(&self) -> BTreeSet<Ipv6Net> {
        self.lock().down.clone()
    }

    /// Declares the functions behind these SIDs down or up; packets are treated so when it returns. A SID that the data
    /// plane does not have is remembered until an apply of a configuration without it. Returns how many were not so already.
    ///
    /// # Errors
    /// [`Error::Map`]: the rest was done nevertheless, and what is remembered holds for the next apply.
    pub fn set(&self, sids: impl IntoIterator<Item = Ipv6Net>, down: bool) -> Result<usize, Error> {
        self.set_all(sids.into_iter().map(|sid| (sid, down))).map(|changed| changed.len())
    }

    /// As [`Life::set`] for many functions at once, of which some went down and some came up: one pass over their entries, and one over
    /// the copies of them that are cached. Returns the SIDs that were not so already.
    ///
    /// # Errors
    /// As [`Life::set`].
    pub fn set_all(&self, sids: impl IntoIterator<Item = (Ipv6Net, bool)>) -> Result<Vec<Ipv6Net>, Error> {
        let mut inner = self.lock();
        let Inner { down: all, targets, .. } = &mut *inner;
        let changed: Vec<(Ipv6Net, bool)> =
            sids.into_iter().filter(|(sid, down)| if *down { all.insert(*sid) } else { all.remove(sid) }).collect();
        let mut result = Ok(changed.iter().map(|(sid, _)| *sid).collect());
        for target in targets {
            let mut written = BTreeSet::new();
            for (sid, down) in &changed {
                for (index, entry) in target.sids.get(sid).into_iter().flatten() {
                    written.insert(*sid);
                    if let Err(error) = write_entry(&target.entries, *index, *entry, *down) {
                        result = Err(error);
                    }
                }
            }
            if let Err(error) = target.forget(&written) {
                result = Err(error);
            }
        }
        result
    }

    /// Makes the data plane forget what it has cached about routes, neighbours and links.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn forget_ways(&self) -> Result<(), Error> {
        self.change_all(|control| control.cache_generation = control.cache_generation.wrapping_add(1))
    }

    /// Makes the data plane forget the ways by these neighbours: pairs of the interface's number and the neighbour's address there,
    /// whose link-layer address has changed or has gone. Ways by other links are kept.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn forget_neighbours(&self, neighbours: &[(u32, IpAddr)]) -> Result<(), Error> {
        if neighbours.is_empty() {
            return Ok(());
        }
        let slots: BTreeSet<usize> = neighbours.iter().map(|neighbour| neighbour_slot(*neighbour)).collect();
        self.change_all(|control| {
            // It stands in front of the slots and is written first: whoever reads a new number of a slot finds it changed.
            control.narrow_changes = control.narrow_changes.wrapping_add(1);
            for slot in &slots {
                control.neighbours[*slot] = control.neighbours[*slot].wrapping_add(1);
            }
        })
    }

    /// The same for all neighbours on these links, by their numbers: they went down, or came up.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn forget_links(&self, links: &[u32]) -> Result<(), Error> {
        let every = |link: &u32| (0..4).map(|last| (*link, IpAddr::from([0, 0, 0, last]))).collect::<Vec<_>>();
        self.forget_neighbours(&links.iter().flat_map(every).collect::<Vec<_>>())
    }

    /// The same for all neighbours: nobody knows which have changed.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn forget_all_neighbours(&self) -> Result<(), Error> {
        self.change_all(|control| {
            control.narrow_changes = control.narrow_changes.wrapping_add(1);
            for slot in &mut control.neighbours {
                *slot = slot.wrapping_add(1);
            }
        })
    }

    /// Neighbours that packets needed since the last call and that the kernel has no link-layer address of: pairs of the interface's
    /// number and the neighbour's address there, some of them perhaps. What was noted before the first call is of another time.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn unresolved(&self) -> Result<BTreeSet<(u32, IpAddr)>, Error> {
        let mut found = BTreeSet::new();
        for target in &mut self.lock().targets {
            let rows = target.unresolved.lookup_batch(abi::SEGUE_UNRESOLVED, MapFlags::ANY, MapFlags::ANY);
            let rows = rows.map_err(map_error(UNRESOLVED, "read its entries"))?;
            let missing = || Error::MapEntry { map: UNRESOLVED.to_owned() };
            let rows = rows.map(|(_, octets)| abi::Unresolved::read_from_bytes(&octets).map_err(|_| missing()));
            let rows: Vec<abi::Unresolved> = rows.collect::<Result<_, _>>()?;
            let before = target.unresolved_before.replace(rows.iter().map(|row| row.count).collect());
            let new = rows.iter().zip(before.into_iter().flatten()).filter(|(row, count)| row.count != *count);
            found.extend(new.map(|(row, _)| (row.ifindex, Ipv6Addr::from(row.address).to_canonical())));
        }
        Ok(found)
    }

    /// From now on the data plane gives what it has judged to the kernel with this link-layer source, by which the kernel's rules
    /// can tell it from what has slipped past.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn sign(&self, signature: [u8; 6]) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.signature = signature;
        inner
            .targets
            .iter()
            .try_for_each(|target| change_control(&target.control, |control| write_signature(control, signature)))
    }

    fn change_all(&self, change: impl Fn(&mut abi::Control)) -> Result<(), Error> {
        self.lock().targets.iter().try_for_each(|target| change_control(&target.control, &change))
    }

    /// What the programs on these maps remember of SIDs is forgotten by this from now on.
    pub(crate) fn forget_by(&self, set: &Path, maps: &MapSet, copies: SidCopies) -> Result<(), Error> {
        self.lock().target(set, maps).map(|target| target.copies = Some(copies))
    }

    /// These maps are in use from now on.
    pub(crate) fn know(&self, set: &Path, maps: &MapSet) -> Result<(), Error> {
        self.lock().target(set, maps).map(drop)
    }

    /// Changes `control` in these maps. All writes of it go through here, because it is one map entry for several owners.
    pub(crate) fn control(&self, maps: &MapSet, change: impl FnOnce(&mut abi::Control)) -> Result<(), Error> {
        let inner = self.lock();
        change_control(maps.get(CONTROL)?, |control| {
            change(control);
            if inner.signature != [0; 6] {
                write_signature(control, inner.signature);
            }
        })
    }

    /// Writes the entries of SIDs, which packets may use already or not, with the flag as it should be.
    pub(crate) fn write_all(&self, set: &Path, maps: &MapSet, sids: &[CompiledSid]) -> Result<(), Error> {
        for sids in sids.chunks(BATCH as usize) {
            let mut inner = self.lock();
            let flagged = |sid: &CompiledSid| entry(sid.entry, inner.down.contains(&sid.prefix));
            let keys: Vec<u8> = sids.iter().flat_map(|sid| sid.index.to_ne_bytes()).collect();
            let mut values = Vec::with_capacity(size_of::<abi::Sid>() * sids.len());
            sids.iter().for_each(|sid| values.extend_from_slice(flagged(sid).as_bytes()));
            let target = inner.target(set, maps)?;
            write_batch(&target.entries, ENTRIES, &keys, &values, sids.len() as u32)?;
            for sid in sids {
                target.sids.entry(sid.prefix).or_default().insert(sid.index, sid.entry);
            }
        }
        Ok(())
    }

    /// Other entries for SIDs of the active generation, by their indices: the links to their functions went down or came up.
    pub(crate) fn rewrite(&self, set: &Path, maps: &MapSet, entries: &[(Ipv6Net, u32, abi::Sid)]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut inner = self.lock();
        let Inner { down, .. } = &*inner;
        let flags: Vec<bool> = entries.iter().map(|(sid, ..)| down.contains(sid)).collect();
        let target = inner.target(set, maps)?;
        for ((sid, index, entry), down) in entries.iter().zip(flags) {
            target.sids.entry(*sid).or_default().insert(*index, *entry);
            write_entry(&target.entries, *index, *entry, down)?;
        }
        target.forget(&entries.iter().map(|(sid, ..)| *sid).collect())
    }

    /// The entries of SIDs as they are in the maps by now.
    pub(crate) fn bring_up_to_date(&self, set: &Path, sids: &mut [CompiledSid]) {
        let inner = self.lock();
        let Some(target) = inner.targets.iter().find(|target| target.set == set) else { return };
        for sid in sids {
            let now = target.sids.get(&sid.prefix).and_then(|entries| entries.get(&sid.index));
            sid.entry = now.copied().unwrap_or(sid.entry);
        }
    }

    /// Takes up the maps of an agent that has ended: what is down in them is down.
    pub(crate) fn adopt(&self, set: &Path, maps: &MapSet, active: Option<&Compiled>) -> Result<(), Error> {
        let mut inner = self.lock();
        let mut down = Vec::new();
        let target = inner.target(set, maps)?;
        for sid in active.map(|active| active.sids.as_slice()).unwrap_or_default() {
            let entry: abi::Sid = maps.read_array(ENTRIES, sid.index)?;
            // The link to the function may have gone down, or come up, since, or take frames no more.
            let by_kernel = u32::from(entry.flags) & abi::SEGUE_SID_OIF_BY_KERNEL != 0;
            let flags = with_oif_by_kernel(sid.entry.flags, by_kernel);
            let known = abi::Sid { function_mtu: entry.function_mtu, flags, ..sid.entry };
            target.sids.entry(sid.prefix).or_default().insert(sid.index, known);
            down.extend((entry.flags & DOWN != 0).then_some(sid.prefix));
        }
        inner.down.extend(down);
        Ok(())
    }

    /// From now on only this generation counts, in these maps.
    pub(crate) fn keep(&self, set: &Path, compiled: Option<&Compiled>, state: Option<&NodeState>) {
        let mut inner = self.lock();
        if let Some(state) = state {
            // By the desired state: a SID may be left out of what is compiled while its port is missing.
            let services = state.services();
            let known: BTreeSet<Ipv6Net> = state.sids.iter().chain(&services).map(|sid| sid.sid.trunc()).collect();
            inner.down.retain(|sid| known.contains(sid));
        }
        if let Some(target) = inner.targets.iter_mut().find(|target| target.set == set) {
            target.sids.clear();
            for sid in compiled.map(|compiled| compiled.sids.as_slice()).unwrap_or_default() {
                target.sids.entry(sid.prefix).or_default().insert(sid.index, sid.entry);
            }
        }
    }

    /// The maps that are not wanted have gone or will go.
    pub(crate) fn keep_sets(&self, wanted: impl Fn(&Path) -> bool) {
        self.lock().targets.retain(|target| wanted(&target.set));
    }

    /// Gives all that it knows to `other`, which takes its place.
    pub(crate) fn move_to(&self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let mine = std::mem::take(&mut *self.lock());
        let mut inner = other.lock();
        inner.down.extend(mine.down);
        inner.targets = mine.targets;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What it guards is repaired entry by entry: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn target(&mut self, set: &Path, maps: &MapSet) -> Result<&mut Target, Error> {
        if let Some(position) = self.targets.iter().position(|target| target.set == set) {
            return Ok(&mut self.targets[position]);
        }
        let handle = |name| MapHandle::try_from(maps.get(name)?).map_err(map_error(name, "take another handle of it"));
        self.targets.push(Target {
            set: set.to_owned(),
            entries: handle(ENTRIES)?,
            control: handle(CONTROL)?,
            unresolved: handle(UNRESOLVED)?,
            unresolved_before: None,
            sids: BTreeMap::new(),
            copies: None,
        });
        let last = self.targets.len() - 1;
        Ok(&mut self.targets[last])
    }
}

impl Target {
    /// No packet meets what the entries of these SIDs were before any more.
    fn forget(&self, sids: &BTreeSet<Ipv6Net>) -> Result<(), Error> {
        if sids.is_empty() {
            return Ok(());
        }
        // Before those that are there are looked for: see `sid_resolve` in bpf/lib/forward/sid.h.
        change_control(&self.control, |control| control.narrow_changes = control.narrow_changes.wrapping_add(1))?;
        match self.copies.as_ref().map(|copies| copies.forget(sids)) {
            Some(Ok(count)) => tracing::debug!(count, "copies of SIDs' entries are forgotten"),
            other => {
                if let Some(Err(error)) = other {
                    tracing::warn!("all caches are dropped in place of some entries: {error}");
                }
                change_control(&self.control, |control| {
                    control.cache_generation = control.cache_generation.wrapping_add(1)
                })?;
            }
        }
        Ok(())
    }
}

/// Where `bpf/lib/forward/adjacency.h` looks whether a neighbour is what it was.
fn neighbour_slot((ifindex, address): (u32, IpAddr)) -> usize {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    (ifindex.wrapping_mul(4).wrapping_add(u32::from(last & 3)) % abi::SEGUE_NEIGHBOUR_SLOTS) as usize
}

/// The entry with the flag as it should be.
fn entry(mut entry: abi::Sid, down: bool) -> abi::Sid {
    if down {
        entry.flags |= DOWN;
    }
    entry
}

fn write_entry(map: &MapHandle, index: u32, without: abi::Sid, down: bool) -> Result<(), Error> {
    let entry = entry(without, down);
    map.update(&index.to_ne_bytes(), entry.as_bytes(), MapFlags::ANY).map_err(map_error(ENTRIES, "write an entry"))
}

fn write_signature(control: &mut abi::Control, signature: [u8; 6]) {
    for (half, octets) in control.signature.iter_mut().zip(signature.chunks_exact(2)) {
        *half = u16::from_ne_bytes([octets[0], octets[1]]);
    }
}

fn change_control(map: &MapHandle, change: impl FnOnce(&mut abi::Control)) -> Result<(), Error> {
    let key = 0_u32.to_ne_bytes();
    let lost = || Error::MapEntry { map: CONTROL.to_owned() };
    let bytes = map.lookup(&key, MapFlags::ANY).map_err(map_error(CONTROL, "read an entry"))?.ok_or_else(lost)?;
    let mut control = abi::Control::read_from_bytes(&bytes).map_err(|_| lost())?;
    change(&mut control);
    map.update(&key, control.as_bytes(), MapFlags::ANY).map_err(map_error(CONTROL, "write an entry"))
}
