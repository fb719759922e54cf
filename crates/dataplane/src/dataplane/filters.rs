//! The programs of the TC hook on the ports, beside the XDP program or in its place: see [`crate::skb`].

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use segue_model::node::NodeState;

use super::Dataplane;
use crate::Error;
use crate::object::build_id;
use crate::skb::{self, Side};

impl Dataplane {
    /// All ports of the active generation get their program. Each changes over at once.
    pub(super) fn attach_filters(&self) -> Result<(), Error> {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        if ports.is_empty() {
            return Ok(());
        }
        let wirings = self.applied_state().map(NodeState::wirings).unwrap_or_default();
        let east: BTreeSet<String> = wirings.into_iter().map(|wiring| wiring.node_east).collect();
        let build = self.set.join(format!("programs-{}", build_id()));
        let programs = skb::open_or_load(&self.set, &self.maps, &build)?;
        for port in ports {
            let program = if port.xdp { &programs.into } else { &programs.out };
            let ifindex = port.entry.ifindex;
            skb::attach(&self.pin_dir, ifindex, &port.name, Side::Ingress, program.as_fd())?;
            if east.contains(&port.name) {
                skb::attach(&self.pin_dir, ifindex, &port.name, Side::Egress, programs.egress.as_fd())?;
            }
        }
        programs.keep_only(&self.set)
    }

    /// Takes the programs off all interfaces that are no port of the active generation.
    pub(super) fn detach_filters(&self) -> Result<(), Error> {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        let needed: BTreeSet<u32> = ports.iter().map(|port| port.entry.ifindex).collect();
        let mut attached = skb::attached(&self.pin_dir).into_iter().filter(|ifindex| !needed.contains(ifindex));
        attached.try_for_each(|ifindex| skb::detach(&self.pin_dir, ifindex))
    }

    /// Takes the programs off all interfaces.
    pub(super) fn remove_filters(&self) -> Result<(), Error> {
        skb::attached(&self.pin_dir).into_iter().try_for_each(|ifindex| skb::detach(&self.pin_dir, ifindex))
    }
}
