//! What proxies remember, in numbers.

use std::collections::BTreeMap;

use segue_abi as abi;
use serde::Serialize;

use super::{Dataplane, Reader};
use crate::Error;
use crate::facts::Capabilities;
use crate::kernel;
use crate::maps::MapSet;

/// A flow of TCP that has ended in both directions counts for so many jiffies (`INSTANCE_ENDED` in bpf/lib/proxy/instances.h).
const INSTANCE_ENDED: u32 = 1000;

/// What the SIDs that share a return interface remember, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCounters {
    /// The return interface and the kind: `fw-e flow`. SIDs with the same name share these numbers.
    pub shared: String,
    /// Headers that were written, because they differed from the last one in what matters.
    pub renewed: u64,
    /// `memory: flow`: flows that were new.
    pub created: u64,
    /// `memory: flow`: flows that were forgotten after their timeout.
    pub removed: u64,
    /// `memory: flow`: flows that are remembered now.
    pub present: u64,
    /// `memory: flow`: flows that gave way to new ones.
    pub evicted: u64,
    /// Packets that came back and belong to no flow that is known.
    pub unknown: u64,
    /// Flows whose header became that of another path within their life.
    pub conflicts: u64,
    /// Packets that came back after their header had been overwritten.
    pub overwritten: u64,
}

impl Reader {
    /// What proxies remember, by [`crate::CompiledSid::scope`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn memories(&self) -> Result<BTreeMap<u32, MemoryCounters>, Error> {
        let Some(active) = self.applied().filter(|active| !active.scopes.is_empty()) else {
            return Ok(BTreeMap::new());
        };
        let mut present: BTreeMap<u32, u64> = BTreeMap::new();
        for (flow, _) in flows(&self.maps)? {
            *present.entry(flow.scope).or_default() += 1;
        }
        let mut memories = BTreeMap::new();
        for (name, row) in &active.scopes {
            let mut sum = MemoryCounters { shared: name.clone(), ..MemoryCounters::default() };
            for counters in {
                let mut values = self.maps.read_percpu::<abi::MemoryCounters>("memory_counters", *row)?;
                values.extend(self.carried.value::<abi::MemoryCounters>("memory_counters", *row));
                values
            } {
                sum.renewed += counters.renewed;
                sum.created += counters.created;
                sum.removed += counters.removed;
                sum.unknown += counters.unknown;
                sum.conflicts += counters.conflicts;
                sum.overwritten += counters.overwritten;
            }
            sum.present = present.get(row).copied().unwrap_or_default();
            // Not read at one instant: a flow may be among the present ones and not among the created ones yet.
            sum.evicted = sum.created.saturating_sub(sum.removed).saturating_sub(sum.present);
            memories.insert(*row, sum);
        }
        Ok(memories)
    }
}

impl Reader {
    /// How many flows each instance of a function has: by [`crate::function_number`] and the instance's number. `timeouts`: of which
    /// functions, and the seconds after which an unused flow of theirs is forgotten.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn instance_flows(&self, timeouts: &BTreeMap<u64, u32>) -> Result<BTreeMap<(u64, u32), u64>, Error> {
        let hz = Capabilities::detect().hz;
        // Where the kernel does not tell, none is too old.
        let now = kernel::jiffies().map(|now| now as u32);
        let mut counts = BTreeMap::new();
        for (key, flow) in self.maps.entries::<abi::InstanceKey, abi::InstanceFlow>("instance_flows")? {
            let Some(seconds) = timeouts.get(&key.function) else { continue };
            let lives = if flow.ended == 3 { INSTANCE_ENDED } else { seconds.saturating_mul(hz) };
            let age = now.map_or(0, |now| now.wrapping_sub(flow.used) as i32);
            if age <= i32::try_from(lives).unwrap_or(i32::MAX) {
                *counts.entry((key.function, u32::from_be(flow.instance))).or_default() += 1;
            }
        }
        Ok(counts)
    }
}

impl Dataplane {
    /// The flows that proxies remember.
    pub(super) fn flows(&self) -> Result<Vec<(abi::ProxyFlowKey, abi::ProxyFlow)>, Error> {
        flows(&self.maps)
    }
}

fn flows(maps: &MapSet) -> Result<Vec<(abi::ProxyFlowKey, abi::ProxyFlow)>, Error> {
    maps.entries("proxy_flows")
}
