//! All maps of the data plane: what each is called, whether it survives a change of the programs, how large it is, and what becomes of
//! its content when a larger one takes its place.
//!
//! A map is declared in `bpf/` and has one row here; what is in it is its subject's. [`crate::object`] sizes the object's maps by these
//! rows, `dataplane::adopt` pins and opens them, `dataplane::grow` moves what is in them.

use libbpf_rs::MapCore;
use segue_abi as abi;

use crate::Error;
use crate::facts::Capacity;
use crate::maps::MapSet;

/// A map of the data plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Map {
    /// As in the C code, and as it is pinned.
    pub name: &'static str,
    /// Its layout and meaning are covered by `SEGUE_ABI_VERSION`: it survives a change of the programs. Others (caches, stages, scratch
    /// memory) belong to one build.
    pub shared: bool,
    /// How large it is.
    pub size: Size,
    /// The object's section with a constant of 32 bits that says the size to the programs.
    pub constant: Option<&'static str>,
    /// What becomes of its content when a larger one takes its place.
    pub growth: Growth,
}

/// How large a map is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    /// As the C code says.
    Fixed,
    /// Entries, for a capacity; and the other way round where the capacity of maps that are there is to be known.
    Entries(fn(&Capacity) -> u32, Option<fn(u32, &mut Capacity)>),
    /// One value of so many octets, a power of two: lines that rules are looked up in.
    Octets(fn(&Capacity) -> u32, fn(u32, &mut Capacity)),
}

/// What becomes of a map's content when a larger one takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// It fills itself again, or does not grow.
    Anew,
    /// What the active generation needs is written before packets meet the larger map, as `dataplane::grow` says.
    Copied,
    /// It counts from 0, and what was counted is added, in the rows that `carried` says.
    Counted,
}

impl Map {
    const fn shared(name: &'static str) -> Self {
        Self { name, shared: true, size: Size::Fixed, constant: None, growth: Growth::Anew }
    }

    const fn of_build(name: &'static str) -> Self {
        Self { shared: false, ..Self::shared(name) }
    }

    const fn entries(self, of: fn(&Capacity) -> u32) -> Self {
        Self { size: Size::Entries(of, None), ..self }
    }

    /// `measured`: from the number of entries back to the capacity.
    const fn tells(self, measured: fn(u32, &mut Capacity)) -> Self {
        match self.size {
            Size::Entries(of, _) => Self { size: Size::Entries(of, Some(measured)), ..self },
            _ => panic!("a map that says nothing of a capacity tells none"),
        }
    }

    const fn octets(self, of: fn(&Capacity) -> u32, measured: fn(u32, &mut Capacity)) -> Self {
        Self { size: Size::Octets(of, measured), ..self }
    }

    const fn constant(self, section: &'static str) -> Self {
        Self { constant: Some(section), ..self }
    }

    const fn copied(self) -> Self {
        Self { growth: Growth::Copied, ..self }
    }

    const fn counted(self) -> Self {
        Self { growth: Growth::Counted, ..self }
    }
}

/// Section of the constant with the size of [`STEERING`], which the programs on TC have too.
pub(crate) const STEERING_SIZE: &str = ".rodata.steering";

/// Section of the only constant that has no section of its own.
const RODATA: &str = ".rodata";

pub(crate) const CONNECTIONS: &str = "connections";
pub(crate) const SID_ENTRIES: &str = "sid_entries";
pub(crate) const STEERING: &str = "steering";

/// All maps. Two generations live side by side, so that most have twice the entries of one. `counters` comes behind the maps that its
/// size adds up.
pub(crate) static MAPS: [Map; 54] = [
    // What an operator wants, compiled.
    Map::shared("control"),
    Map::shared("config"),
    Map::shared("ports"),
    Map::shared("sids").entries(|c| 2 * c.sids).copied(),
    Map::shared(SID_ENTRIES).entries(|c| 2 * c.sids).tells(|n, c| c.sids = n / 2).copied(),
    Map::shared("labels").entries(|c| 2 * c.sids).copied(),
    Map::shared("policies").entries(|c| 2 * c.policies).tells(|n, c| c.policies = n / 2).copied(),
    Map::shared("segment_lists").entries(|c| 2 * c.segment_lists).tells(|n, c| c.segment_lists = n / 2).copied(),
    Map::shared(STEERING).octets(|c| c.steering, |n, c| c.steering = n).constant(STEERING_SIZE).copied(),
    Map::shared("takes_frames"),
    Map::shared("returns").entries(|c| 2 * c.segment_lists).copied(),
    Map::shared("path_mtus"),
    Map::shared("unresolved"),
    // What is counted and told.
    Map::shared("outcomes").entries(|c| 1 + 2 * c.ports).tells(|n, c| c.ports = n.saturating_sub(1) / 2).counted(),
    Map::shared("counters")
        .entries(Capacity::counters)
        // They have no table but their counters'.
        .tells(|n, c| c.steering_rules = n.saturating_sub(Capacity { steering_rules: 0, ..*c }.counters()) / 2)
        .counted(),
    Map::shared("icmp_sent"),
    Map::shared("last_drops"),
    Map::shared("captures"),
    // What proxies remember.
    Map::shared("stash").entries(|c| c.stash).tells(|n, c| c.stash = n),
    Map::shared("stash_cursor"),
    Map::shared("stash_index").entries(|c| c.stash),
    Map::shared("memories").entries(Capacity::memories).copied(),
    Map::shared("memory_counters").entries(Capacity::memories).counted(),
    Map::shared("proxy_flows").entries(|c| lru_entries(c.proxy_flows)).tells(|n, c| c.proxy_flows = lru_wanted(n)),
    Map::shared("instance_flows")
        .entries(|c| lru_entries(c.instance_flows))
        .tells(|n, c| c.instance_flows = lru_wanted(n)),
    // Firewalls. Row 0 names nothing.
    Map::shared("firewalls")
        .entries(|c| 1 + 2 * c.firewalls)
        .tells(|n, c| c.firewalls = n.saturating_sub(1) / 2)
        .copied(),
    Map::shared("classifier").octets(|c| c.classifier, |n, c| c.classifier = n).constant(RODATA).copied(),
    Map::shared("firewall_rules")
        .entries(|c| 1 + 2 * c.firewall_rules)
        .tells(|n, c| c.firewall_rules = n.saturating_sub(1) / 2)
        .copied(),
    Map::shared("firewall_counters").entries(Capacity::firewall_counters).counted(),
    Map::shared("firewall_extensions").entries(|c| 1 + 2 * c.firewall_rules).copied(),
    Map::shared("firewall_limits").entries(|c| 1 + 2 * c.firewall_rules).copied(),
    Map::shared("firewall_hashlimits").entries(|c| 1 + 2 * c.firewall_rules).copied(),
    Map::shared("firewall_recents").entries(|c| lru_entries(c.listed)).tells(|n, c| c.listed = lru_wanted(n)),
    // A ring and its cursor for each firewall, of two generations.
    Map::shared("firewall_recent_places").entries(|c| 2 * c.listed + 2 * c.listed.div_ceil(abi::SEGUE_RECENT_EACH)),
    Map::shared("firewall_logs"),
    Map::shared("firewall_fragments"),
    Map::shared(CONNECTIONS).entries(Capacity::connection_tables).copied(),
    Map::shared("connection_changes"),
    // Programs behind tail calls.
    Map::of_build("stages"),
    // Caches.
    Map::of_build("sids_cached"),
    Map::of_build("adjacencies"),
    Map::of_build("labels_cached"),
    Map::of_build("flows").entries(Capacity::flow_rows).constant(".rodata.flows"),
    Map::of_build("proxy_flows_cached").entries(Capacity::proxy_flow_cache).constant(".rodata.proxy_flows"),
    Map::of_build("firewall_verdicts"),
    // Scratch memory.
    Map::of_build("icmp_budgets").entries(|c| 1 + 2 * c.ports),
    Map::of_build("scratches"),
    Map::of_build("flow_scratches"),
    Map::of_build("sum_scratches"),
    Map::of_build("steering_keys"),
    Map::of_build("firewall_works"),
    Map::of_build("firewall_recent_fresh"),
    Map::of_build("fragment_fresh"),
    Map::of_build("connection_moves"),
];

/// Entries of an LRU table that may lie unused while it already evicts others: the kernel hands free ones to each CPU in batches
/// of so many, and makes as many at once when there are no more (LOCAL_FREE_TARGET in kernel/bpf/bpf_lru_list.c).
const LRU_BATCH: u32 = 128;

/// The entries that an LRU table needs beyond those that it must hold.
fn lru_spare() -> u32 {
    // Where the number of CPUs is not to be known, loading fails anyhow.
    let cpus = libbpf_rs::num_possible_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(1));
    cpus.saturating_mul(LRU_BATCH)
}

/// The size of an LRU table that holds `wanted` entries whatever CPUs made them; 1 is that of a table that is not used.
fn lru_entries(wanted: u32) -> u32 {
    if wanted <= 1 { wanted } else { wanted.saturating_add(lru_spare()) }
}

/// What a table of this size holds: the inverse of [`lru_entries`].
fn lru_wanted(entries: u32) -> u32 {
    entries.saturating_sub(lru_spare()).max(1)
}

/// The row of a map of this name.
pub(crate) fn find(name: &str) -> Option<&'static Map> {
    MAPS.iter().find(|map| map.name == name)
}

/// The value of the constant in a section of the object, if it says the size of a map.
pub(crate) fn constant(section: &str, capacity: &Capacity) -> Option<u32> {
    // libbpf puts the object's name in front of `.rodata`.
    let says = |map: &&Map| {
        map.constant.is_some_and(|constant| section == constant || constant == RODATA && section.ends_with(RODATA))
    };
    match MAPS.iter().find(says)?.size {
        Size::Entries(of, _) | Size::Octets(of, _) => Some(of(capacity)),
        Size::Fixed => None,
    }
}

/// The names of the maps that survive a change of the programs.
pub(crate) fn shared() -> impl Iterator<Item = &'static str> {
    MAPS.iter().filter(|map| map.shared).map(|map| map.name)
}

/// Whether a map survives a change of the programs.
pub(crate) fn is_shared(name: &str) -> bool {
    find(name).is_some_and(|map| map.shared)
}

/// The capacity of maps that are there: what their rows turned into their sizes.
pub(crate) fn capacity_of(maps: &MapSet) -> Result<Capacity, Error> {
    let mut capacity = Capacity::default();
    for map in MAPS.iter().filter(|map| map.shared) {
        match map.size {
            Size::Entries(_, Some(measured)) => measured(maps.get(map.name)?.max_entries(), &mut capacity),
            Size::Octets(_, measured) => measured(maps.get(map.name)?.value_size(), &mut capacity),
            Size::Entries(_, None) | Size::Fixed => {}
        }
    }
    Ok(capacity)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::object;

    #[test]
    fn every_map_of_the_object_has_a_row_and_every_row_a_map() {
        let object = object::open(&Capacity::default()).expect("the embedded object opens");
        let there: BTreeSet<String> = object.maps().filter_map(|map| object::pin_name(map.name())).collect();
        let rows: BTreeSet<String> = MAPS.iter().map(|map| map.name.to_owned()).collect();
        assert_eq!(rows.len(), MAPS.len(), "a name is there twice");
        assert_eq!(there, rows, "maps of the object, and rows of the table");
    }

    /// Tables that are there say what capacity they were made for.
    #[test]
    fn sizes_tell_the_capacity() {
        let sizes = |capacity: &Capacity| -> Vec<(&Map, u32)> {
            let size = |map: &'static Map| match map.size {
                Size::Entries(of, _) | Size::Octets(of, _) => Some((map, of(capacity))),
                Size::Fixed => None,
            };
            MAPS.iter().filter_map(size).collect()
        };
        let capacity = Capacity {
            sids: 1 << 13,
            policies: 1 << 12,
            segment_lists: 1 << 14,
            steering_rules: 1 << 15,
            steering: 1 << 17,
            ports: 1 << 10,
            proxy_flows: 1 << 9,
            instance_flows: 1 << 10,
            stash: 1 << 8,
            firewalls: 1 << 4,
            firewall_rules: 1 << 11,
            classifier: 1 << 18,
            listed: 1 << 14,
        };
        let mut measured = Capacity::default();
        for (map, size) in sizes(&capacity) {
            match map.size {
                Size::Entries(_, Some(tell)) | Size::Octets(_, tell) => tell(size, &mut measured),
                _ => {}
            }
        }
        assert_eq!(measured, capacity);
    }
}
