//! Segue's data plane as the engine under test, in the node's namespace.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;

use segue_dataplane::shared::Loaded;
use segue_dataplane::{Capacity, Dataplane, Hook, Interfaces, MissingInterface, Options, Origin, TestRun, build_id};
use segue_model::node::{NodeState, PortMode};

use crate::error::{Error, Result};
use crate::netns::Namespace;

/// Entries of small tables.
pub const SMALL: u32 = 16;

/// The data plane of one node; left to the next one when dropped, so that not each scenario waits for the verifier. Its pins are seen by
/// this process alone, and go with it.
#[derive(Debug)]
pub struct Node {
    /// None only while it is dropped.
    loaded: Option<Loaded>,
    /// Of the namespace that it was started in.
    namespace: String,
    capacity: Capacity,
    /// Its programs, or its pins, are no longer those that it began with.
    changed: bool,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Dataplane(error.to_string())
}

impl Node {
    /// Loads the data plane, fills it from `state` and attaches it to all ports, in the namespace.
    ///
    /// # Errors
    /// [`Error::Dataplane`] with what the data plane says.
    pub fn start(namespace: &Namespace, state: serde_json::Value) -> Result<Self> {
        let state: NodeState = serde_json::from_value(state).map_err(failed)?;
        // Large enough at once, so that the programs are loaded once.
        let capacity = Capacity::default().for_memories_of(&state);
        Self::start_with(namespace, state, capacity)
    }

    /// The same with tables of few entries, which grow again and again as more is applied.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_small(namespace: &Namespace, state: serde_json::Value) -> Result<Self> {
        let capacity = Capacity { sids: SMALL, policies: SMALL, steering_rules: SMALL, ..Capacity::default() };
        let state = serde_json::from_value(state).map_err(failed)?;
        Self::start_with(namespace, state, capacity)
    }

    fn start_with(namespace: &Namespace, state: NodeState, capacity: Capacity) -> Result<Self> {
        let inside = namespace.enter()?;
        let loaded = Loaded::take_or_load(capacity).map_err(failed)?;
        drop(inside);
        // From here on a failure takes off what was attached.
        let mut node = Self { loaded: Some(loaded), namespace: namespace.name().to_owned(), capacity, changed: false };
        node.apply_state(namespace, &state)?;
        Ok(node)
    }

    /// Replaces the configuration; `namespace` is the one that it was started in.
    ///
    /// # Errors
    /// [`Error::Dataplane`] with what the data plane says; the old configuration stays.
    pub fn apply(&mut self, namespace: &Namespace, state: serde_json::Value) -> Result<()> {
        self.apply_state(namespace, &serde_json::from_value(state).map_err(failed)?)
    }

    fn apply_state(&mut self, namespace: &Namespace, state: &NodeState) -> Result<()> {
        let _inside = namespace.enter()?;
        let mut interfaces = Interfaces::query().map_err(failed)?;
        // What the agent chooses in operation; here a port is on XDP unless its state says otherwise.
        for port in state.ports.iter().filter(|port| port.mode == PortMode::Skb) {
            if let Some(interface) = interfaces.0.get_mut(&port.name) {
                interface.hook = Hook::Skb;
            }
        }
        self.inner()?.apply(state, &interfaces, MissingInterface::Refuse).map(drop).map_err(failed)
    }

    /// Replaces the programs while they forward, as an agent of another build does when it starts.
    ///
    /// # Errors
    /// [`Error::Dataplane`] with what the data plane says, or if the programs were not replaced.
    pub fn upgrade(&mut self, namespace: &Namespace) -> Result<()> {
        self.changed = true;
        let pins = self.inner()?.pin_dir().to_owned();
        let sets = fs::read_dir(&pins).map_err(failed)?.flatten().map(|entry| entry.path());
        let programs = format!("programs-{}", build_id());
        let set = sets.filter(|set| set.join(&programs).exists()).max();
        let set = set.ok_or_else(|| Error::Dataplane("no programs are pinned".into()))?;
        fs::rename(set.join(&programs), set.join("programs-0123456789abcdef")).map_err(failed)?;
        let _inside = namespace.enter()?;
        let options = Options { capacity: self.capacity, ..Options::default() };
        let dataplane = self.inner()?;
        *dataplane = Dataplane::open_or_load(&pins, options).map_err(failed)?;
        match dataplane.origin() {
            Origin::ProgramReplaced => Ok(()),
            other => Err(Error::Dataplane(format!("the programs were not replaced: {other:?}"))),
        }
    }

    /// Packets that the last rule of the first firewall has counted.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn last_rule(&mut self) -> Result<u64> {
        let firewalls = self.inner()?.firewall_counters().map_err(failed)?;
        let rule = firewalls.first().and_then(|firewall| firewall.rules.last());
        rule.map(|rule| rule.counter.packets).ok_or_else(|| Error::Dataplane("it has no firewall rule".into()))
    }

    fn inner(&mut self) -> Result<&mut Dataplane> {
        let loaded = self.loaded.as_mut().ok_or_else(|| Error::Dataplane("it is removed already".into()))?;
        Ok(&mut loaded.dataplane)
    }

    /// The program on every port.
    ///
    /// # Errors
    /// If the kernel does not give a descriptor.
    pub fn program(&mut self) -> Result<OwnedFd> {
        self.inner()?.program_fd().map_err(failed)
    }

    /// The verdict on one frame that comes in by `ingress`, an interface of this thread's namespace.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn verdict(&mut self, frame: &[u8], ingress: u32) -> Result<u32> {
        self.inner()?.test_run(&TestRun::once(frame, ingress)).map(|output| output.verdict).map_err(failed)
    }

    /// What became of packets since the start, of all ports together, by name of the outcome.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn outcomes(&self) -> Result<BTreeMap<&'static str, u64>> {
        let mut sum = BTreeMap::new();
        let Some(loaded) = &self.loaded else { return Ok(sum) };
        let counters = loaded.dataplane.counters().map_err(failed)?;
        for (name, counter) in counters.ports.iter().flat_map(|port| &port.outcomes) {
            *sum.entry(*name).or_default() += counter.packets;
        }
        Ok(sum)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(loaded) = self.loaded.take() else { return };
        let odd = self.changed || std::thread::panicking();
        let end = || if odd { loaded.remove() } else { loaded.give_back() };
        let ended = segue_host::namespace::inside(&self.namespace, end).map_err(failed);
        if let Err(error) = ended.and_then(|ended| ended.map_err(failed)) {
            eprintln!("{}: the data plane goes with what is left in it: {error}", self.namespace);
        }
    }
}
