//! The programs of the TC hook on the ports, beside the XDP program or in its place: see [`crate::skb`].

use std::collections::BTreeSet;

use nix::net::if_::if_indextoname;
use segue_model::node::NodeState;

use super::Dataplane;
use crate::Error;
use crate::compiled::Compiled;
use crate::object::build_id;
use crate::skb::{self, Part, Side};

impl Dataplane {
    /// All ports of the active generation get their program. Each changes over at once. A port whose interface has gone has nothing
    /// to get it; whoever makes it a port again brings the program.
    pub(super) fn attach_filters(&self) -> Result<(), Error> {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        if ports.is_empty() {
            return Ok(());
        }
        let wirings = self.applied_state().map(NodeState::wirings).unwrap_or_default();
        let east: BTreeSet<String> = wirings.into_iter().map(|wiring| wiring.node_east).collect();
        let build = self.set.join(format!("programs-{}", build_id()));
        let load = |part| skb::open_or_load(&self.set, &self.maps, &build, part);
        let usual = load(Part::Usual)?;
        let kernel_path = self.applied().is_some_and(Compiled::has_kernel_path) || !east.is_empty();
        let functions = if kernel_path { Some(load(Part::Functions)?) } else { None };
        let of_functions = |name| match &functions {
            Some(programs) => programs.get(name),
            None => usual.get(name),
        };
        for port in ports {
            let (ifindex, name) = (port.entry.ifindex, port.name.as_str());
            let attach = |side, program| skb::attach(&self.pin_dir, ifindex, name, side, program);
            let ingress = if port.xdp { usual.get(skb::IN)? } else { of_functions(skb::OUT)? };
            let mut attached = attach(Side::Ingress, ingress);
            if attached.is_ok() && east.contains(name) {
                attached = attach(Side::Egress, of_functions(skb::EGRESS)?);
            }
            match attached {
                Err(error) if gone(ifindex) => {
                    tracing::debug!(%error, "the interface has gone");
                    skb::detach(&self.pin_dir, ifindex)?;
                }
                attached => attached?,
            }
        }
        skb::keep_only_this_build(&self.set)
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

/// Whether there is no interface of this number.
fn gone(ifindex: u32) -> bool {
    // Nix 0.30 takes the null that an unknown number gives for success: the name is empty then.
    if_indextoname(ifindex).map_or(true, |name| name.is_empty())
}
