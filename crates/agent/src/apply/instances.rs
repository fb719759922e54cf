//! What is made of a state where that is more than it says: several instances of one function, those that are taken out and still have
//! flows among them, virtual machines whose addresses were learnt, and labels that are learned.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_model::instances::instance_number;
use segue_model::node::NodeState;
use segue_model::value::MacAddress;
use segue_model::wiring::Wiring;

use super::Agent;
use crate::{
    kernel::Kernel,
    learned::Learned,
    plane::DataPlane,
    problem::{Failure, Fault, Problem},
    store::{Leaving, Store},
};

/// Link-layer addresses by the node's end of the link.
pub type Learnt = BTreeMap<String, MacAddress>;

/// An instance that was taken out, or is being drained, and may still have flows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draining {
    /// The function.
    pub function: String,
    /// The instance.
    pub instance: String,
    /// Its number, in the data plane.
    pub number: u32,
    /// Seconds that its flows have to end.
    pub timeout: u32,
    /// Seconds for which the instance of an unused flow is remembered.
    pub flow_timeout: u32,
}

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// What is made of the state that was applied last: each instance of a function has SIDs of its own there, those that leave too, and
    /// virtual machines have addresses, and learned labels are among the others. Where there is none of that, the state itself.
    pub fn made(&self) -> Option<Arc<NodeState>> {
        self.written.clone().or_else(|| self.shared_state())
    }

    /// After something that [`Self::made`] follows from has changed.
    pub(super) fn write_out(&mut self) {
        let learned = self.learned.as_ref();
        let written = self.applied.as_ref().map(|applied| self.written_for(&applied.state, &applied.leaving, learned));
        self.written = written.flatten();
    }

    /// What is made of a state; none if it is what it says.
    pub(super) fn written_for(
        &self,
        state: &NodeState,
        leaving: &Leaving,
        learned: Option<&Learned>,
    ) -> Option<Arc<NodeState>> {
        let learned = learned.map(|learned| &*learned.labels).unwrap_or_default();
        if state.functions.is_empty() && learned.is_empty() {
            return None;
        }
        let mut state = state.clone();
        state.labels.extend_from_slice(learned);
        if state.functions.is_empty() {
            return Some(Arc::new(state));
        }
        for (name, function) in &mut state.functions {
            for (instance, place) in leaving.get(name).into_iter().flatten() {
                let mut place = place.clone();
                place.drain = true;
                function.instances.entry(instance.clone()).or_insert(place);
            }
        }
        let mut state = state.written_out();
        for (name, function) in &mut state.functions {
            let wiring = Wiring::of_attached(name, function);
            if let Some(vm) = &mut function.vm {
                for (link, interface) in [(&mut vm.west, &wiring.node_west), (&mut vm.east, &wiring.node_east)] {
                    link.mac = link.mac.or(self.learnt.get(interface).copied());
                }
            }
        }
        // With the addresses.
        Some(Arc::new(state.written_out()))
    }

    /// The instances that leave when this state is applied: those of functions that it has, too, and which have others in it.
    pub(super) fn leaving_for(&self, wanted: &NodeState) -> Leaving {
        let Some(applied) = &self.applied else { return Leaving::new() };
        let mut leaving = applied.leaving.clone();
        for (name, function) in &applied.state.functions {
            for (instance, place) in &function.instances {
                leaving.entry(name.clone()).or_default().insert(instance.clone(), place.clone());
            }
        }
        let several = |name: &String| wanted.functions.get(name).filter(|function| !function.instances.is_empty());
        leaving.retain(|name, instances| {
            let Some(function) = several(name) else { return false };
            instances.retain(|instance, _| !function.instances.contains_key(instance) && function.drain_timeout() > 0);
            !instances.is_empty()
        });
        leaving
    }

    /// The instances that leave.
    pub fn leaving(&self) -> Vec<Draining> {
        let Some(applied) = &self.applied else { return Vec::new() };
        let of = |(name, instances): (&String, &indexmap::IndexMap<String, _>)| -> Vec<Draining> {
            let Some(function) = applied.state.functions.get(name) else { return Vec::new() };
            let (timeout, flow_timeout) = (function.drain_timeout(), function.flow_timeout());
            let draining = |instance: &String| Draining {
                function: name.clone(),
                instance: instance.clone(),
                number: instance_number(instance),
                timeout,
                flow_timeout,
            };
            instances.keys().map(draining).collect()
        };
        applied.leaving.iter().flat_map(of).collect()
    }

    /// These have no flows any more, or no time: what was made for them goes.
    ///
    /// # Errors
    /// A record that cannot be written, and what [`Agent::reconcile`] says.
    pub fn let_go(&mut self, gone: &[Draining]) -> Result<(), Failure> {
        let Some(applied) = &mut self.applied else { return Ok(()) };
        for Draining { function, instance, .. } in gone {
            tracing::info!(function, instance, "has no flows any more, or no time left: it goes");
            if let Some(instances) = applied.leaving.get_mut(function) {
                instances.shift_remove(instance);
            }
        }
        applied.leaving.retain(|_, instances| !instances.is_empty());
        let saved = self.store.save(Some(applied));
        saved.map_err(|error| {
            Failure::one(Fault::Agent, Problem::new(self.store.place(), error.to_string(), "make room there"))
        })?;
        self.write_out();
        self.reconcile()?;
        let made = self.made();
        self.kernel.remove_functions(made.as_deref()).map_err(|error| super::kernel_failure("functions", &error))
    }

    /// Virtual machines have these link-layer addresses now; nothing is known of others.
    ///
    /// # Errors
    /// Those of [`Agent::reconcile`].
    pub fn learn(&mut self, learnt: Learnt) -> Result<(), Failure> {
        if self.learnt == learnt {
            return Ok(());
        }
        for (interface, mac) in learnt.iter().filter(|(name, mac)| self.learnt.get(*name) != Some(*mac)) {
            tracing::info!(interface, %mac, "the machine behind it has this address");
        }
        self.learnt = learnt;
        self.write_out();
        self.reconcile()
    }
}
