//! The tables of connections: one for each firewall whose rules look at their states, in a slot of the map `connections`.
//!
//! A table goes on from generation to generation and from one set of maps to a larger one as it is. A firewall whose table gets another
//! size has a new one, and names the old one as `previous`: its connections move when packets ask for them, and then all of them.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{BPF_F_INNER_MAP, BPF_F_NO_PREALLOC, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use segue_abi as abi;

use crate::Error;
use crate::compiled::{Compiled, CompiledFirewall};
use crate::dataplane::Dataplane;
use crate::map_table::CONNECTIONS;
use crate::maps::{MapSet, map_error};

const HASHLIMITS: &str = "firewall_hashlimits";

fn options(map_flags: u32) -> bpf_map_create_opts {
    bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, map_flags, ..bpf_map_create_opts::default() }
}

/// The slots of `connections` that these firewalls use.
pub(crate) fn slots(firewalls: &[CompiledFirewall]) -> BTreeSet<u32> {
    let of = |firewall: &CompiledFirewall| [firewall.entry.table, firewall.entry.previous];
    firewalls.iter().flat_map(of).filter(|slot| *slot != 0).collect()
}

/// The tables of hashlimits of these firewalls: slots and sizes.
pub(crate) fn limits(firewalls: &[CompiledFirewall]) -> BTreeSet<(u32, u32)> {
    firewalls.iter().flat_map(|firewall| &firewall.hashlimits).map(|(slot, most)| (*slot, *most)).collect()
}

impl Dataplane {
    /// Makes the table of a firewall, unless an active one goes on: its slot is among `active`.
    pub(crate) fn make_table(&self, firewall: &CompiledFirewall, active: &BTreeSet<u32>) -> Result<(), Error> {
        let entry = &firewall.entry;
        if entry.table == 0 || active.contains(&entry.table) {
            return Ok(());
        }
        let options = options(BPF_F_INNER_MAP);
        let value = size_of::<abi::ConnectionBucket>() as u32;
        let buckets = entry.buckets.saturating_add(entry.beginnings);
        let table = MapHandle::create(MapType::Array, Some("segue_conns"), 4, value, buckets, &options);
        let table = table.map_err(map_error(CONNECTIONS, "make the table of a firewall"))?;
        put(self.maps(), CONNECTIONS, entry.table, &table)
    }

    /// Removes the tables that no firewall of `kept` uses.
    pub(crate) fn remove_tables(&self, kept: Option<&Compiled>) -> Result<(), Error> {
        let kept = slots(kept.map(|kept| kept.firewalls.as_slice()).unwrap_or_default());
        let end = self.maps().get(CONNECTIONS)?.max_entries();
        (1..end).filter(|slot| !kept.contains(slot)).try_for_each(|slot| self.maps().delete(CONNECTIONS, &slot))
    }

    /// Makes the tables of a firewall's hashlimits, unless an active one of that size goes on: it is among `active`.
    pub(crate) fn make_hashlimits(
        &self,
        firewall: &CompiledFirewall,
        active: &BTreeSet<(u32, u32)>,
    ) -> Result<(), Error> {
        for (slot, most) in firewall.hashlimits.iter().filter(|(slot, most)| !active.contains(&(**slot, **most))) {
            let (key, value) = (size_of::<abi::FirewallBucket>() as u32, size_of::<abi::Hashlimit>() as u32);
            let options = options(BPF_F_NO_PREALLOC);
            let table = MapHandle::create(MapType::Hash, Some("segue_limits"), key, value, *most, &options);
            let table = table.map_err(map_error(HASHLIMITS, "make the table of a hashlimit"))?;
            put(self.maps(), HASHLIMITS, *slot, &table)?;
        }
        Ok(())
    }

    /// Removes the tables of hashlimits that only `old` has.
    pub(crate) fn remove_hashlimits(&self, old: &Compiled, kept: Option<&Compiled>) -> Result<(), Error> {
        let of = |compiled: &Compiled| -> BTreeSet<u32> {
            compiled.firewalls.iter().flat_map(|firewall| firewall.hashlimits.keys().copied()).collect()
        };
        let kept = kept.map(of).unwrap_or_default();
        of(old).difference(&kept).try_for_each(|slot| self.maps().delete(HASHLIMITS, slot))
    }

    /// The table in a slot; None if there is none.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn connection_table(&self, slot: u32) -> Result<Option<MapHandle>, Error> {
        table(self.maps(), CONNECTIONS, slot)
    }
}

/// Tables of connections go on in a larger map of tables.
pub(crate) fn carry_over(old: &MapSet, new: &MapSet, firewalls: &[CompiledFirewall]) -> Result<(), Error> {
    carry(old, new, CONNECTIONS, slots(firewalls))
}

/// Likewise those of hashlimits.
pub(crate) fn carry_hashlimits(old: &MapSet, new: &MapSet, firewall: &CompiledFirewall) -> Result<(), Error> {
    carry(old, new, HASHLIMITS, firewall.hashlimits.keys().copied())
}

fn carry(old: &MapSet, new: &MapSet, name: &str, slots: impl IntoIterator<Item = u32>) -> Result<(), Error> {
    for slot in slots {
        if let Some(table) = table(old, name, slot)? {
            put(new, name, slot, &table)?;
        }
    }
    Ok(())
}

fn put(maps: &MapSet, name: &str, slot: u32, table: &MapHandle) -> Result<(), Error> {
    let fd = table.as_fd().as_raw_fd().to_ne_bytes();
    let map = maps.get(name)?;
    map.update(&slot.to_ne_bytes(), &fd, MapFlags::ANY).map_err(map_error(name, "add the table of a firewall"))
}

fn table(maps: &MapSet, name: &str, slot: u32) -> Result<Option<MapHandle>, Error> {
    // The kernel tells the table's number.
    let Some(id) = maps.read::<u32, u32>(name, &slot)?.filter(|id| *id != 0) else { return Ok(None) };
    MapHandle::from_map_id(id).map(Some).map_err(map_error(name, "open the table of a firewall"))
}
