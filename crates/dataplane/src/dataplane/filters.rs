//! The programs of the TC hook on the ports, beside the XDP program or in its place: see [`crate::skb`].

use std::collections::BTreeSet;

use nix::net::if_::if_indextoname;
use segue_model::node::NodeState;
use segue_model::proxy::CUT_OUT;

use super::Dataplane;
use crate::Error;
use crate::compiled::{Compiled, CompiledPort};
use crate::object::build_id;
use crate::skb::{self, Part, Programs, Side};

impl Dataplane {
    /// All ports of the active generation get their program. Each changes over at once. A port whose interface has gone has nothing
    /// to get it; whoever makes it a port again brings the program.
    pub(super) fn attach_filters(&self) -> Result<(), Error> {
        let Some(compiled) = self.applied().filter(|compiled| !compiled.ports.is_empty()) else { return Ok(()) };
        let wirings = self.applied_state().map(NodeState::wirings).unwrap_or_default();
        let east: BTreeSet<String> = wirings.into_iter().map(|wiring| wiring.node_east).collect();
        let mut parts = Part::needed(compiled);
        if !east.is_empty() && !parts.contains(&Part::Functions) {
            parts.push(Part::Functions);
        }
        let programs = parts.into_iter().map(|part| self.filter_programs(part)).collect::<Result<Vec<_>, _>>()?;
        let program = |name: &'static str| {
            let missing = || Error::NotInObject { kind: "program", name: name.to_owned() };
            programs.iter().find_map(|programs| programs.get(name)).ok_or_else(missing)
        };
        self.attach_cut(compiled)?;
        for port in &compiled.ports {
            let (ifindex, name) = (port.entry.ifindex, port.name.as_str());
            let attach = |side, program| skb::attach(&self.pin_dir, ifindex, name, side, program);
            let ingress = match port {
                CompiledPort { xdp: true, .. } => program(skb::IN)?,
                CompiledPort { skb: true, .. } => program(skb::PORT)?,
                _ => program(skb::OUT)?,
            };
            let mut attached = attach(Side::Ingress, ingress);
            if attached.is_ok() && east.contains(name) {
                attached = attach(Side::Egress, program(skb::EGRESS)?);
            }
            self.unless_gone(ifindex, attached)?;
        }
        skb::keep_only_needed(&self.set)
    }

    /// What comes back of buffers that are to get labels gets its program before ports of `compiled` send any there.
    pub(super) fn attach_cut(&self, compiled: &Compiled) -> Result<(), Error> {
        if compiled.cut_ifindex == 0 {
            return Ok(());
        }
        let programs = self.filter_programs(Part::Cut)?;
        let missing = || Error::NotInObject { kind: "program", name: skb::CUT.to_owned() };
        let program = programs.get(skb::CUT).ok_or_else(missing)?;
        let attached = skb::attach(&self.pin_dir, compiled.cut_ifindex, CUT_OUT, Side::Ingress, program);
        self.unless_gone(compiled.cut_ifindex, attached)
    }

    /// What came of attaching a program, unless the interface is not there any more.
    fn unless_gone(&self, ifindex: u32, attached: Result<(), Error>) -> Result<(), Error> {
        match attached {
            Err(error) if gone(ifindex) => {
                tracing::debug!(%error, "the interface has gone");
                skb::detach(&self.pin_dir, ifindex)
            }
            attached => attached,
        }
    }

    /// The programs of one part, which are loaded if they are not there.
    pub(super) fn filter_programs(&self, part: Part) -> Result<Programs, Error> {
        let build = self.set.join(format!("programs-{}", build_id()));
        skb::open_or_load(&self.set, &self.maps, &build, &self.options.capacity, part)
    }

    /// Takes the programs off all interfaces that are no port of the active generation.
    pub(super) fn detach_filters(&self) -> Result<(), Error> {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        let cut = self.applied().map(|compiled| compiled.cut_ifindex);
        let needed: BTreeSet<u32> = ports.iter().map(|port| port.entry.ifindex).chain(cut).collect();
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
