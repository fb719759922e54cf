//! Interfaces that go down and come up again, take frames from XDP or no more. Who is at the far end of a link may change that as often
//! as he likes, so it costs what leads there and nothing else: no generation, which takes seconds where there are 100,000 SIDs.

use std::collections::{BTreeMap, BTreeSet};

use segue_abi as abi;

use super::{Dataplane, Origin};
use crate::Error;
use crate::compile::function_mtu;
use crate::compiled::Compiled;
use crate::facts::{Interface, Interfaces};

impl Dataplane {
    /// Makes the active configuration agree with which of its ports are up, and which interfaces take frames, in place. Nothing else may have changed about them since
    /// the last apply. False if it cannot be done so: an apply does it.
    ///
    /// # Errors
    /// [`Error::Map`]: the next call, or an apply, does the rest.
    pub fn follow_links(&mut self, interfaces: &Interfaces) -> Result<bool, Error> {
        if self.origin == Origin::Replacing || self.unclean {
            return Ok(false);
        }
        let Some(active) = self.active.clone() else { return Ok(true) };
        let compiled = &active.compiled;
        let known: BTreeMap<u32, &Interface> = interfaces.0.values().map(|link| (link.ifindex, link)).collect();
        let up = |ifindex: u32| known.get(&ifindex).is_some_and(|link| link.up);
        let differs = |ifindex: u32| up(ifindex) == self.down.contains(&ifindex);
        let changed: Vec<_> = compiled.ports.iter().filter(|port| differs(port.entry.ifindex)).collect();
        let numbers: BTreeSet<u32> = changed.iter().map(|port| port.entry.ifindex).collect();
        let of_frames = self.follow_frames(interfaces)?;
        if numbers.is_empty() && of_frames.is_empty() {
            return Ok(true);
        }
        let concerned = |ifindex| numbers.contains(ifindex) || of_frames.contains(ifindex);
        let behind = compiled.sids.iter().filter(|sid| concerned(&sid.entry.oif));
        let entries: Vec<_> = behind
            .map(|sid| {
                let link = known.get(&sid.entry.oif);
                let by_kernel = link.is_some_and(|link| !link.takes_frames);
                let mut entry = abi::Sid { flags: with_oif_by_kernel(sid.entry.flags, by_kernel), ..sid.entry };
                if sid.returned().is_some() {
                    entry.function_mtu = link.map_or(0, |link| function_mtu(link));
                }
                (sid.prefix, sid.index, entry)
            })
            .collect();
        self.life.rewrite(&self.set, &self.maps, &entries)?;
        for port in &changed {
            let slot = port.slot(compiled.generation);
            // It may be captured.
            let mut entry: abi::Port = self.maps.read_array("ports", slot)?;
            let flag = abi::SEGUE_PORT_UP as u8;
            entry.flags = if up(port.entry.ifindex) { entry.flags | flag } else { entry.flags & !flag };
            self.maps.write("ports", &slot, &entry)?;
        }
        for ifindex in numbers {
            if !self.down.remove(&ifindex) {
                self.down.insert(ifindex);
            }
        }
        Ok(true)
    }

    /// The ports that are down as packets see it: their entries in the maps.
    pub(super) fn read_down(&self) -> Result<BTreeSet<u32>, Error> {
        let mut down = BTreeSet::new();
        let Some(active) = self.applied() else { return Ok(down) };
        for port in &active.ports {
            let entry: abi::Port = self.maps.read_array("ports", port.slot(active.generation))?;
            if u32::from(entry.flags) & abi::SEGUE_PORT_UP == 0 {
                down.insert(port.entry.ifindex);
            }
        }
        Ok(down)
    }
}

/// An entry's flags as they are where IFACE-OUT is left to the TC program, or is not.
pub(super) fn with_oif_by_kernel(flags: u8, by_kernel: bool) -> u8 {
    let flag = abi::SEGUE_SID_OIF_BY_KERNEL as u8;
    if by_kernel { flags | flag } else { flags & !flag }
}

/// The ports that are down in a configuration that has just been written.
pub(super) fn down(compiled: &Compiled) -> BTreeSet<u32> {
    let down = compiled.ports.iter().filter(|port| u32::from(port.entry.flags) & abi::SEGUE_PORT_UP == 0);
    down.map(|port| port.entry.ifindex).collect()
}
