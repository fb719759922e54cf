//! From one generation to the next, all or nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use libbpf_rs::MapCore;
use segue_abi as abi;
use segue_model::node::NodeState;
use serde::Serialize;
use zerocopy::FromZeros;

use ipnet::Ipv6Net;

use super::follow::down;
use super::pins::series_of;
use super::{AttachMode, Carried, Dataplane, Origin};
use crate::Error;
use crate::compile::{self, CompileError, Input};
use crate::compiled::{Compiled, CompiledLabel};
use crate::facts::{Capacity, Interfaces, MissingInterface};
use crate::map_table::{SID_ENTRIES, STEERING};
use crate::records::Record;

/// What an apply did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The active generation.
    pub generation: u32,
    /// Whether anything had to change.
    pub changed: bool,
    /// What the operator should know, such as a port without native XDP.
    pub warnings: Vec<String>,
}

impl Dataplane {
    /// Whether `state` fits this machine and this data plane. Nothing is touched.
    ///
    /// # Errors
    /// [`Error::Compile`].
    pub fn check(&self, state: &NodeState, interfaces: &Interfaces, missing: MissingInterface) -> Result<(), Error> {
        Ok(self.compile(state, interfaces, missing).map(drop)?)
    }

    /// Makes `state` the active configuration: compiles it, writes the next generation beside the active one, changes over
    /// with one write, attaches new ports and detaches those that are no longer configured. Idempotent; if nothing
    /// differs, only missing attachments are made good. If a table is too small, a larger one takes over, with what the old one has
    /// counted and with its connections; what proxies remember is lost where its tables grow. They stay large.
    ///
    /// # Errors
    /// [`Error::Compile`] before anything is touched. After any other error the old generation is active again, and ports
    /// that were attached for the new one are detached; save that, when larger tables or those of another layout take over
    /// and the kernel refuses a new program on one link ([`Error::Link`]), both forward, each on its ports, until the next
    /// apply.
    pub fn apply(
        &mut self,
        state: &NodeState,
        interfaces: &Interfaces,
        missing: MissingInterface,
    ) -> Result<Applied, Error> {
        if self.unclean {
            self.clean()?;
        }
        let (mut compiled, capacity) = self.compile(state, interfaces, missing)?;
        if capacity != self.options.capacity {
            let only_memories = capacity.same_but_memories(self.options.capacity);
            self.grow(capacity)?;
            let mut applied = self.apply(state, interfaces, missing)?;
            if !only_memories {
                applied.warnings.push("larger tables have taken over; counters and connections go on".to_owned());
            }
            return Ok(applied);
        }
        let warnings = compiled.warnings.clone();
        let same =
            self.applied().is_some_and(|active| active.same_as(&compiled)) && self.applied_state() == Some(state);
        if same {
            return self.make_good(interfaces, warnings);
        }
        for port in &mut compiled.ports {
            if self.captured.contains(&port.name) {
                port.entry.flags |= abi::SEGUE_PORT_CAPTURE as u8;
            }
        }
        self.load_stages(&compiled)?;
        // Unless an agent died before it was done.
        self.move_connections()?;
        self.follow_frames(interfaces)?;
        let record = Record { state: state.clone(), compiled };
        if let Err(error) = self.write_generation(&record) {
            self.give_up(&record.compiled);
            return Err(error);
        }
        self.change_over(record, warnings)
    }

    /// The next generation, with the capacity that it needs beside the active one: the present one, or a larger one.
    fn compile(
        &self,
        state: &NodeState,
        interfaces: &Interfaces,
        missing: MissingInterface,
    ) -> Result<(Compiled, Capacity), CompileError> {
        let active = self.generation();
        let generation = next_generation(active, self.store.last_used().unwrap_or(active));
        let mut capacity = self.options.capacity.for_memories_of(state);
        loop {
            let compiled = compile::compile(&Input {
                state,
                interfaces,
                missing,
                capabilities: &self.options.capabilities,
                capacity: &capacity,
                previous: self.applied(),
                generation,
            });
            match compiled {
                Err(CompileError::TableFull { table, needed, .. }) if capacity.grow(table, needed) => {}
                compiled => return Ok((compiled?, capacity)),
            }
        }
    }

    /// Nothing has changed; but a port may have lost its program.
    fn make_good(&mut self, interfaces: &Interfaces, mut warnings: Vec<String>) -> Result<Applied, Error> {
        // What is compiled says what was up then.
        self.follow_links(interfaces)?;
        let ports = self.port_numbers(self.applied());
        let attached: BTreeSet<u32> = self.attached().into_iter().collect();
        let missing: Vec<(String, u32)> =
            ports.into_iter().filter(|(_, ifindex)| !attached.contains(ifindex)).collect();
        for (name, ifindex) in &missing {
            warn_generic(name, self.attach(*ifindex)?, &mut warnings);
        }
        self.warn_without_redirect(&mut warnings)?;
        self.attach_filters()?;
        let replacing = self.origin == Origin::Replacing;
        if replacing {
            self.update_links()?;
            self.remove_other_sets()?;
            self.origin = Origin::Loaded;
        }
        Ok(Applied { generation: self.generation(), changed: replacing || !missing.is_empty(), warnings })
    }

    /// Where the XDP program belongs.
    fn port_numbers(&self, compiled: Option<&Compiled>) -> Vec<(String, u32)> {
        let ports = compiled.map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        ports.iter().filter(|port| port.xdp).map(|port| (port.name.clone(), port.entry.ifindex)).collect()
    }

    /// Everything of a generation, where no packet looks yet.
    fn write_generation(&self, record: &Record) -> Result<(), Error> {
        let compiled = &record.compiled;
        self.life.know(&self.set, &self.maps)?;
        self.clear_counters(compiled)?;
        self.write_firewalls(compiled)?;
        // What is there already has the same index and content as before.
        let known = self.applied();
        let policies: HashSet<u32> =
            known.into_iter().flat_map(|known| &known.policies).map(|policy| policy.index).collect();
        let new = || compiled.policies.iter().filter(|policy| !policies.contains(&policy.index));
        let lists = new().flat_map(|policy| &policy.lists);
        self.maps.write_all("segment_lists", lists.map(|list| (list.index, list.entry)))?;
        self.maps.write_all("policies", new().map(|policy| (policy.index, policy.entry)))?;
        self.life.write_all(&self.set, &self.maps, &compiled.sids)?;
        let sids = compiled.sids.iter().filter(|sid| sid.is_found_by_prefix());
        let keys = sids.map(|sid| (sid_key(&sid.prefix, compiled.generation), sid.index));
        self.maps.write_all("sids", keys)?;
        self.maps.write_all(SID_ENTRIES, labels_alone(compiled))?;
        let keys = compiled.labels.iter().map(|label| (label_key(label, compiled.generation), label.index));
        self.maps.write_all("labels", keys)?;
        for found in &compiled.returns {
            self.maps.write("returns", &sid_key(&found.segment.into(), compiled.generation), &found.entry)?;
        }
        self.write_steering(compiled)?;
        let carried = self.carried_to(compiled);
        if !carried.is_empty() {
            self.store.write_carried(compiled.generation, &carried)?;
        }
        for port in &compiled.ports {
            self.maps.write("ports", &port.slot(compiled.generation), &port.entry)?;
        }
        self.maps.write("config", &(compiled.generation & 1), &compiled.config)?;
        self.store.write(record)
    }

    /// What the counters of the next generation had before their tables grew.
    fn carried_to(&self, next: &Compiled) -> Carried {
        self.applied().map(|active| self.carried.kept(active, next)).unwrap_or_default()
    }

    /// The image of the steering rules, beside that which packets walk.
    fn write_steering(&self, compiled: &Compiled) -> Result<(), Error> {
        let new = &compiled.steering;
        if new.chain == 0 || self.applied().is_some_and(|active| active.steering == *new) {
            return Ok(());
        }
        let Some(image) = &new.image else { return Err(Error::MapEntry { map: STEERING.to_owned() }) };
        self.maps.write_lines(STEERING, [(new.first_line, image.octets(new.first_line))].into_iter())
    }

    /// Rows of counters that no object of the active generation has.
    fn clear_counters(&self, compiled: &Compiled) -> Result<(), Error> {
        let old: HashSet<u32> = self.applied().into_iter().flat_map(Compiled::counter_rows).collect();
        let mut rows = compiled.all_counter_rows();
        rows.retain(|row| !old.contains(row));
        self.maps.clear_all("counters", &rows)?;
        let active = self.applied().map(|active| active.ports.as_slice()).unwrap_or_default();
        let active: BTreeSet<u16> = active.iter().map(|old| old.entry.index).collect();
        for port in &compiled.ports {
            if !active.contains(&port.entry.index) {
                self.maps.clear_percpu("outcomes", u32::from(port.entry.index))?;
            }
        }
        self.forget_scopes(compiled)
    }

    /// A row of `memories` that the active generation does not have may be left of another function: nothing that was
    /// remembered there may come back.
    fn forget_scopes(&self, compiled: &Compiled) -> Result<(), Error> {
        let active = self.applied().map(|active| &active.scopes);
        let rows =
            compiled.scopes.iter().filter(|(name, row)| active.and_then(|active| active.get(*name)) != Some(row));
        let rows: BTreeSet<u32> = rows.map(|(_, row)| *row).collect();
        for row in &rows {
            self.maps.write("memories", row, &abi::Memory::new_zeroed())?;
            self.maps.clear_percpu("memory_counters", *row)?;
        }
        if !rows.is_empty() {
            for (flow, _) in self.flows()?.into_iter().filter(|(flow, _)| rows.contains(&flow.scope)) {
                self.maps.delete("proxy_flows", &flow)?;
            }
        }
        Ok(())
    }

    fn change_over(&mut self, record: Record, mut warnings: Vec<String>) -> Result<Applied, Error> {
        let generation = record.compiled.generation;
        let before = self.control()?;
        let linked = self.linked();
        let loop_ifindex = record.compiled.loop_ifindex;
        let ready = self.store.use_number(generation).and_then(|()| self.attach_cut(&record.compiled));
        if let Err(error) = ready {
            self.give_up(&record.compiled);
            return Err(error);
        }
        self.write_control(generation, captures(&record.compiled), loop_ifindex)?;
        let carried = self.carried_to(&record.compiled);
        let now_down = down(&record.compiled);
        let old = self.active.replace(Arc::new(record));
        let result = self.attach_ports(&linked, &mut warnings);
        if let Err(error) = result {
            if self.origin == Origin::Replacing && matches!(error, Error::Link { .. }) {
                // Links that have the new programs already cannot be given the old ones back.
                return Err(error);
            }
            self.write_control(before.generation, before.captures, before.loop_)?;
            let new = std::mem::replace(&mut self.active, old);
            for ifindex in self.linked().into_iter().filter(|ifindex| !linked.contains(ifindex)) {
                self.detach(ifindex)?;
            }
            if self.active.is_some() {
                self.attach_filters()?;
                self.detach_filters()?;
            }
            if let Some(new) = new {
                // Packets under way may have met it.
                match self.grace.wait() {
                    Ok(()) => self.give_up(&new.compiled),
                    Err(error) => {
                        tracing::warn!("{error}");
                        self.unclean = true;
                    }
                }
            }
            return Err(error);
        }
        self.carried = Arc::new(carried);
        self.down = now_down;
        // From here on the new generation stays. What cannot be tidied up now is tidied up by the next apply.
        self.origin = if self.origin == Origin::Replacing { Origin::Loaded } else { self.origin };
        if let Err(error) = self.tidy(&linked, old.as_deref()) {
            self.unclean = true;
            warnings.push(format!("leftovers of the previous configuration will be removed later: {error}"));
        }
        Ok(Applied { generation, changed: true, warnings })
    }

    /// All ports of the now active generation get the program.
    fn attach_ports(&mut self, linked: &[u32], warnings: &mut Vec<String>) -> Result<(), Error> {
        let ports = self.port_numbers(self.applied());
        let linked: BTreeSet<u32> = linked.iter().copied().collect();
        for (name, ifindex) in ports.iter().filter(|(_, ifindex)| !linked.contains(ifindex)) {
            warn_generic(name, self.attach(*ifindex)?, warnings);
        }
        if self.origin == Origin::Replacing {
            self.update_links()?;
        }
        // A link may be left of an interface that had the same number.
        for (name, ifindex) in ports.iter().filter(|(_, ifindex)| linked.contains(ifindex)) {
            warn_generic(name, self.attach(*ifindex)?, warnings);
        }
        self.warn_without_redirect(warnings)?;
        self.attach_filters()
    }

    /// What XDP redirects into such a port is lost, and nobody counts it.
    fn warn_without_redirect(&self, warnings: &mut Vec<String>) -> Result<(), Error> {
        // The operator's: what the node itself has beside them is wired as it is meant.
        let own = self.applied_state().map(|state| state.ports.as_slice()).unwrap_or_default();
        let own: BTreeSet<&str> = own.iter().map(|port| port.name.as_str()).collect();
        let mut ports = self.port_numbers(self.applied());
        // By others the TC program sends.
        let taking: BTreeSet<u32> = self.taking_frames()?;
        ports.retain(|(name, ifindex)| own.contains(name.as_str()) && taking.contains(ifindex));
        warnings.extend(self.without_redirect(&ports)?.into_iter().map(|name| {
            format!(
                "port {name}: the kernel refuses frames that XDP redirects into it, so packets that are to leave by it are lost: a veth \
                 needs GRO or XDP at its far end (`ethtool -K FAR-END gro on`, when both ends are up); other interfaces need a driver \
                 that has it"
            )
        }));
        Ok(())
    }

    /// Removes what only the old generation needs.
    fn tidy(&mut self, linked: &[u32], old: Option<&Record>) -> Result<(), Error> {
        let ports: BTreeSet<u32> = self.port_numbers(self.applied()).into_iter().map(|(_, number)| number).collect();
        for ifindex in linked.iter().filter(|ifindex| !ports.contains(ifindex)) {
            self.detach(*ifindex)?;
        }
        self.detach_filters()?;
        self.grace.wait()?;
        self.remove_other_sets()?;
        self.life.keep(&self.set, self.applied(), self.applied_state());
        self.remove_tables(self.applied())?;
        self.move_connections()?;
        match old {
            Some(old) => {
                self.remove_hashlimits(&old.compiled, self.applied())?;
                self.remove_generation(&old.compiled)
            }
            None => Ok(()),
        }
    }

    /// Takes back what [`Dataplane::write_generation`] wrote. If even that fails, the next apply does it.
    fn give_up(&mut self, compiled: &Compiled) {
        self.life.keep(&self.set, self.applied(), self.applied_state());
        if let Err(error) = self.remove_generation(compiled) {
            tracing::warn!("leftovers of a configuration that was not applied will be removed later: {error}");
            self.unclean = true;
        }
    }

    fn remove_generation(&self, compiled: &Compiled) -> Result<(), Error> {
        for sid in &compiled.sids {
            self.maps.delete("sids", &sid_key(&sid.prefix, compiled.generation))?;
        }
        for label in &compiled.labels {
            self.maps.delete("labels", &label_key(label, compiled.generation))?;
        }
        for found in &compiled.returns {
            self.maps.delete("returns", &sid_key(&found.segment.into(), compiled.generation))?;
        }
        for port in &compiled.ports {
            self.maps.write("ports", &port.slot(compiled.generation), &abi::Port::new_zeroed())?;
        }
        self.store.keep_only(self.generation())
    }

    fn write_control(&self, generation: u32, captures: u32, loop_ifindex: u32) -> Result<(), Error> {
        let stash_bits = self.maps.get("stash")?.max_entries().checked_ilog2().unwrap_or(0);
        let series = series_of(&self.set);
        self.life.control(&self.maps, |control| {
            control.generation = generation;
            control.captures = captures;
            control.stash_bits = stash_bits;
            control.loop_ = loop_ifindex;
            // Once: packets that carry it are on their way whenever an agent begins or applies.
            if control.metadata_magic == 0 {
                control.metadata_magic = random_magic();
                control.stash_series = series;
            }
        })
    }
}

/// A word that nobody can guess or try out, not 0.
fn random_magic() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // SipHash of nothing, with keys that the operating system draws.
    std::hash::RandomState::new().build_hasher().finish().max(1)
}

/// A number that no packet has met: caches may hold what they found under another one, be it of a generation that was given up.
/// The slots of the new generation are those that the active one does not use.
fn next_generation(active: u32, last_used: u32) -> u32 {
    let mut next = last_used.wrapping_add(1);
    while next == 0 || (active != 0 && next & 1 == active & 1) {
        next = next.wrapping_add(1);
    }
    next
}

fn captures(compiled: &Compiled) -> u32 {
    let capture = |flags: u8| u32::from(flags) & abi::SEGUE_PORT_CAPTURE != 0;
    compiled.ports.iter().filter(|port| capture(port.entry.flags)).count() as u32
}

fn warn_generic(name: &str, mode: AttachMode, warnings: &mut Vec<String>) {
    if mode == AttachMode::Generic {
        warnings.push(format!(
            "port {name}: its driver has no XDP, so the program runs in the network stack, which is slow; since Linux 6.9 what comes in here \
             and is to leave by a device that takes no frames from XDP, and errors about it, are lost"
        ));
    }
}

pub(super) fn sid_key(prefix: &Ipv6Net, generation: u32) -> abi::SidKey {
    abi::SidKey { prefixlen: 32 + u32::from(prefix.prefix_len()), generation, address: prefix.network().octets() }
}

/// Entries of the labels that stand in `sid_entries` by themselves.
pub(super) fn labels_alone(compiled: &Compiled) -> impl Iterator<Item = (u32, abi::Sid)> {
    compiled.labels.iter().filter(|label| !label.is_among_sids()).map(|label| (label.index, label.entry))
}

pub(super) fn label_key(label: &CompiledLabel, generation: u32) -> abi::LabelKey {
    abi::LabelKey { generation, label: label.label, instance: label.instance.to_be() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_used_again_and_the_slots_change() {
        assert_eq!(next_generation(0, 0), 1);
        assert_eq!(next_generation(4, 4), 5);
        assert_eq!(next_generation(4, 5), 7, "5 was given up, and 6 has the slots of 4");
        assert_eq!(next_generation(4, 7), 9);
        assert_eq!(next_generation(0, 1), 2, "the first one was given up");
        assert_eq!(next_generation(u32::MAX, u32::MAX), 2, "0 is none, and 1 has the slots of the greatest number");
        assert_eq!(next_generation(u32::MAX - 1, u32::MAX - 1), u32::MAX);
    }

    #[test]
    fn keys_have_the_generation_in_front() {
        let key = sid_key(&"fc00:1:2::/48".parse().expect("a prefix"), 7);
        assert_eq!((key.prefixlen, key.generation, key.address[..6].to_vec()), (80, 7, vec![0xfc, 0, 0, 1, 0, 2]));
    }
}
