//! Larger tables take over: those that are to grow are new, all others are those that there are. The active generation is in the new
//! ones at the places where it was before packets meet them, and what has been counted in the old ones is added to what they count.

use std::sync::Arc;

use libbpf_rs::MapCore;
use segue_abi as abi;
use segue_host::idle;

use super::adopt::load_beside;
use super::apply::{label_key, labels_alone, sid_key};
use super::{Dataplane, Options, Origin, remove_tree};
use crate::Error;
use crate::carried::COUNTED;
use crate::compiled::{Compiled, CompiledSid};
use crate::facts::Capacity;
use crate::firewall::connections;
use crate::map_table::{CONNECTIONS, Growth, MAPS, SID_ENTRIES, STEERING};
use crate::maps::{MapSet, ascending};
use crate::object;

/// Writes what a generation needs of a map (its name) of the first data plane into that of the second.
type Copy = fn(&Dataplane, &Dataplane, &Compiled, &str) -> Result<(), Error>;

/// How the maps are copied whose rows in [`MAPS`] say [`Growth::Copied`].
const COPIED: [(&str, Copy); 15] = [
    ("sids", sids),
    (SID_ENTRIES, sid_entries),
    ("labels", labels),
    ("policies", policies),
    ("segment_lists", segment_lists),
    (STEERING, lines),
    ("returns", returns),
    ("memories", memories),
    ("firewalls", firewalls),
    ("classifier", lines),
    ("firewall_rules", firewall_rules),
    ("firewall_extensions", firewall_extensions),
    ("firewall_limits", firewall_limits),
    ("firewall_hashlimits", firewall_hashlimits),
    (CONNECTIONS, connections),
];

impl Dataplane {
    /// Gives the tables these sizes. No packet, counter or connection is lost; what proxies remember is, where its tables grow.
    ///
    /// # Errors
    /// All is as it was, unless neither the new programs nor the old ones could be put on all links ([`Error::Link`]): then both
    /// forward, until the next apply.
    pub(super) fn grow(&mut self, capacity: Capacity) -> Result<(), Error> {
        let options = Options { capacity, ..self.options };
        // Nothing has to go on, and both sets can be taken by others later.
        let is_apart = self.active.is_none() && idle::directory().is_some();
        let goes_on = (!is_apart).then_some(&*self);
        let mut larger = load_beside(object::open(&capacity)?, &self.pin_dir, options, goes_on)?;
        larger.life = self.life.clone();
        larger.captured.clone_from(&self.captured);
        larger.down.clone_from(&self.down);
        if let Err(error) = self.move_to(&mut larger) {
            return self.move_back(larger, error);
        }
        let is_active = self.active.is_some();
        let old = std::mem::replace(self, larger);
        if !is_active {
            // Whatever forwards is of another layout, and stays until something is applied.
            self.origin = old.origin;
            let set = old.set.clone();
            self.life.keep_sets(|other| *other != set);
            drop(old);
            return if is_apart && idle::leave_set(&set) { Ok(()) } else { remove_tree(&set) };
        }
        self.origin = Origin::Loaded;
        // Packets that the old programs are at.
        if let Err(error) = self.grace.wait().and_then(|()| self.take_from(&old)) {
            tracing::warn!("some of what the smaller tables had counted is lost: {error}");
        }
        self.remove_other_sets()
    }

    /// Puts what the active generation needs into larger tables, then their programs on all links.
    fn move_to(&self, larger: &mut Self) -> Result<(), Error> {
        larger.life.adopt(&larger.set, &larger.maps, larger.applied())?;
        larger.life_forgets();
        let Some(active) = self.applied() else { return Ok(()) };
        for map in MAPS.iter().filter(|map| map.growth == Growth::Copied && differs(&self.maps, &larger.maps, map.name))
        {
            if let Some((_, copy)) = COPIED.iter().find(|(name, _)| *name == map.name) {
                copy(self, larger, active, map.name)?;
            }
        }
        larger.load_stages(active)?;
        larger.update_links()?;
        larger.attach_filters()
    }

    /// The old programs and tables go on.
    fn move_back(&mut self, larger: Self, error: Error) -> Result<(), Error> {
        if self.active.is_some()
            && let Err(refused) = self.update_links().and_then(|()| self.attach_filters())
        {
            // The new tables must stay: there are links that use them.
            tracing::warn!("the old programs cannot be put back: {refused}");
            *self = larger;
            return Err(error);
        }
        let set = larger.set.clone();
        drop(larger);
        self.life.keep_sets(|other| *other != set);
        if let Err(error) = remove_tree(&set) {
            tracing::warn!("tables that were not needed stay behind: {error}");
        }
        Err(error)
    }

    /// What happened in the smaller tables until the last packet had left them.
    fn take_from(&mut self, old: &Self) -> Result<(), Error> {
        let Some(active) = old.applied() else { return Ok(()) };
        for (table, rows) in COUNTED.into_iter().filter(|(name, _)| differs(&old.maps, &self.maps, name)) {
            let rows = ascending(rows(active).into_iter());
            let sums = old.maps.read_sums(table, &rows)?;
            let carried = Arc::make_mut(&mut self.carried);
            for (row, words) in rows.into_iter().map(|row| (row, sums.row(row))) {
                if words.iter().any(|word| *word != 0) {
                    carried.add(table, row, words);
                }
            }
        }
        self.store.write_carried(active.generation, self.carried.as_ref())
    }
}

fn sids(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    let key = |sid: &CompiledSid| sid_key(&sid.prefix, active.generation);
    let sids = active.sids.iter().filter(|sid| sid.is_found_by_prefix());
    larger.maps.write_all(name, sids.map(|sid| (key(sid), sid.index)))
}

fn returns(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    active
        .returns
        .iter()
        .try_for_each(|found| larger.maps.write(name, &sid_key(&found.segment.into(), active.generation), &found.entry))
}

/// Which functions are down is known there, now and from now on.
fn sid_entries(old: &Dataplane, larger: &Dataplane, active: &Compiled, _: &str) -> Result<(), Error> {
    let mut sids = active.sids.clone();
    old.life.bring_up_to_date(&old.set, &mut sids);
    old.life.write_all(&larger.set, &larger.maps, &sids)?;
    larger.maps.write_all(SID_ENTRIES, labels_alone(active))
}

fn labels(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    larger.maps.write_all(name, active.labels.iter().map(|label| (label_key(label, active.generation), label.index)))
}

fn policies(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    larger.maps.write_all(name, active.policies.iter().map(|policy| (policy.index, policy.entry)))
}

fn segment_lists(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    let lists = active.policies.iter().flat_map(|policy| &policy.lists);
    larger.maps.write_all(name, lists.map(|list| (list.index, list.entry)))
}

/// A map of lines is one value.
fn lines(old: &Dataplane, larger: &Dataplane, _: &Compiled, name: &str) -> Result<(), Error> {
    let octets: Option<Vec<u8>> = old.maps.read_raw(name, &0_u32)?;
    let octets = octets.ok_or_else(|| Error::MapEntry { map: name.to_owned() })?;
    larger.maps.write_lines(name, [(0, octets)].into_iter())
}

fn memories(old: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    active.scopes.values().try_for_each(|row| {
        let memory: abi::Memory = old.maps.read_array(name, *row)?;
        larger.maps.write(name, row, &memory)
    })
}

fn connections(old: &Dataplane, larger: &Dataplane, active: &Compiled, _: &str) -> Result<(), Error> {
    connections::carry_over(&old.maps, &larger.maps, &active.firewalls)
}

fn firewalls(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    active.firewalls.iter().try_for_each(|firewall| larger.maps.write(name, &firewall.index, &firewall.entry))
}

fn firewall_rules(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    let mut rules = active.firewalls.iter().flat_map(|firewall| (firewall.entry.first_rule..).zip(&firewall.rules));
    rules.try_for_each(|(row, rule)| larger.maps.write(name, &row, &rule.entry))
}

fn firewall_extensions(_: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    let mut extensions =
        active.firewalls.iter().flat_map(|firewall| (firewall.first_extension..).zip(&firewall.extensions));
    extensions.try_for_each(|(row, extension)| larger.maps.write(name, &row, extension))
}

/// A hashlimit's row is the time of its last sweep.
fn firewall_limits(old: &Dataplane, larger: &Dataplane, active: &Compiled, name: &str) -> Result<(), Error> {
    active.firewalls.iter().flat_map(|firewall| firewall.limits.values()).try_for_each(|row| {
        let Some(tokens) = old.maps.read::<u32, u64>(name, row)? else { return Ok(()) };
        larger.maps.write(name, row, &tokens)
    })
}

fn firewall_hashlimits(old: &Dataplane, larger: &Dataplane, active: &Compiled, _: &str) -> Result<(), Error> {
    let mut firewalls = active.firewalls.iter();
    firewalls.try_for_each(|firewall| connections::carry_hashlimits(&old.maps, &larger.maps, firewall))
}

/// Whether a table of one set is not that of the other.
fn differs(old: &MapSet, new: &MapSet, name: &str) -> bool {
    let size = |maps: &MapSet| maps.get(name).ok().map(|map| (map.max_entries(), map.value_size()));
    size(old) != size(new)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whoever says of a map that its content goes on must say how.
    #[test]
    fn every_map_whose_content_goes_on_is_copied_or_counted_on() {
        let marked =
            |growth| MAPS.iter().filter(|map| map.growth == growth).map(|map| map.name).collect::<BTreeSet<_>>();
        assert_eq!(COPIED.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), marked(Growth::Copied));
        assert_eq!(COUNTED.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), marked(Growth::Counted));
    }
}
