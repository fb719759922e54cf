//! Interfaces that change: only that they go down and come up, which others than the operator can bring about, or more than that.

use std::collections::BTreeSet;

use ipnet::Ipv6Net;
use segue_api::report::PathMtuReport;
use segue_dataplane::{Interfaces, PathMtu, PathMtuOf};
use segue_model::{
    node::{NodeState, Port},
    proxy::{CUT_IN, CUT_OUT, LOOP_IN, LOOP_OUT},
    service_label::sid_or_label,
};

use super::{Agent, kernel_failure, refused};
use crate::{
    kernel::{Kernel, plan},
    mode,
    plane::DataPlane,
    problem::Failure,
    store::Store,
};

/// What came of changes of interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinksFollowed {
    /// Nothing is about them.
    Strange,
    /// All is as it should be.
    Followed,
    /// It takes [`Agent::reconcile`].
    Changed,
}

/// Whether these names are of VLANs of ports, or of interfaces that carry them.
fn has_vlans(state: &NodeState, names: &BTreeSet<String>) -> bool {
    let carried = |port: &Port| port.vlan.as_ref().is_some_and(|vlan| names.contains(&vlan.on));
    state.ports.iter().any(|port| carried(port) || (port.vlan.is_some() && names.contains(&port.name)))
}

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// The interfaces, with what the data plane has to know of the devices: where it is to meet the packets of the ports of `state`.
    pub(super) fn links_for(&mut self, state: &NodeState) -> Result<Interfaces, Failure> {
        let failed = |error| kernel_failure("interfaces", &error);
        let mut links = self.kernel.links().map_err(failed)?;
        let devices = self.kernel.devices().map_err(failed)?;
        mode::describe(state, &devices, &mut links);
        Ok(links)
    }

    /// Whether something of what is applied is about interfaces of these names.
    pub fn concerned(&self, names: &BTreeSet<String>) -> bool {
        let Some(state) = self.made() else { return false };
        // Rules may be about the addresses of any interface.
        !state.firewalls.is_empty()
            || [LOOP_IN, CUT_IN, CUT_OUT].iter().any(|own| names.contains(*own))
            || state.all_ports().iter().any(|port| names.contains(&port.name))
            || has_vlans(&state, names)
    }

    /// All is as it should be on these interfaces.
    pub(super) fn settled(&mut self, state: &NodeState, links: Interfaces) {
        self.device = plan::device(state, &links);
        self.links = Some(links);
    }

    /// After interfaces of these names changed. Who is at the far end of a port may take its link down as often as he likes: where that is
    /// all that has changed, it costs what leads there, and no configuration is made or compared.
    pub fn follow_links(&mut self, names: &BTreeSet<String>) -> Result<LinksFollowed, Failure> {
        if !self.concerned(names) {
            return Ok(LinksFollowed::Strange);
        }
        let Some(state) = self.made() else { return Ok(LinksFollowed::Strange) };
        let links = self.links_for(&state)?;
        if self.make_behind(&state, &links, names)? {
            return Ok(LinksFollowed::Changed);
        }
        if has_vlans(&state, names) && self.make_vlans(&state)?.is_some() {
            return Ok(LinksFollowed::Changed);
        }
        if !self.links.as_ref().is_some_and(|before| before.same_but_far_ends(&links))
            || self.routes_need_another(&links)
        {
            return Ok(LinksFollowed::Changed);
        }
        if self.links.as_ref() == Some(&links) {
            return Ok(LinksFollowed::Followed);
        }
        // Unless it succeeds.
        self.links = None;
        if !self.plane.follow_links(&links).map_err(|problems| refused("data plane", problems))? {
            return Ok(LinksFollowed::Changed);
        }
        self.tell(&links);
        self.links = Some(links);
        Ok(LinksFollowed::Followed)
    }

    /// Follows what the data plane is told of paths that packets do not fit.
    pub fn follow_path_mtus(&mut self) -> Result<(), Failure> {
        let Some(links) = &self.links else { return Ok(()) };
        self.plane.follow_path_mtus(links).map_err(|problems| refused("data plane", problems))
    }

    /// Limits of paths, for those who ask.
    pub fn path_mtus(&self) -> Vec<PathMtuReport> {
        let report = |limit: PathMtu| {
            let (policy, list, sid) = match limit.of {
                PathMtuOf::List(policy, position) => (Some(policy), Some(position), None),
                PathMtuOf::Function(sid) => (None, None, Some(sid_or_label(&sid))),
            };
            PathMtuReport { policy, list, sid, mtu: limit.mtu, seconds_left: limit.lasts.as_secs() }
        };
        self.plane.path_mtus().into_iter().map(report).collect()
    }

    /// What is in a function's namespace is repaired by whatever happens to the links that lead there. Whether the node has got other
    /// interfaces by that.
    fn make_behind(
        &mut self,
        state: &NodeState,
        links: &Interfaces,
        names: &BTreeSet<String>,
    ) -> Result<bool, Failure> {
        let behind = state
            .wirings()
            .into_iter()
            .filter(|wiring| names.contains(&wiring.node_west) || names.contains(&wiring.node_east));
        let behind: BTreeSet<String> = behind.map(|wiring| wiring.namespace).collect();
        let mut attached = state.attached().flat_map(|(wiring, _)| [wiring.node_west, wiring.node_east]);
        let is_attached = attached.any(|name| names.contains(&name));
        let is_own = [LOOP_IN, LOOP_OUT, CUT_IN, CUT_OUT].iter().any(|own| names.contains(*own));
        if behind.is_empty() && !is_attached && !is_own {
            return Ok(false);
        }
        let made = self.kernel.make_functions(state, links, Some(&behind));
        made.map_err(|error| kernel_failure("functions", &error))
    }

    /// After these functions failed: the namespaces that the agent made for them are repaired, for what somebody did there may be why. What
    /// that does to links is followed as any change of them is.
    pub fn repair_functions(&mut self, failed: &BTreeSet<Ipv6Net>) -> Result<(), Failure> {
        let Some(state) = self.made() else { return Ok(()) };
        let services = state.services();
        let namespaces = state.sids.iter().chain(&services).filter_map(|sid| {
            let netfilter = sid.netfilter.as_ref().filter(|_| failed.contains(&sid.sid.trunc()))?;
            Some(netfilter.namespace.clone())
        });
        let namespaces: BTreeSet<String> = namespaces.collect();
        if namespaces.is_empty() {
            return Ok(());
        }
        let links = self.links_for(&state)?;
        let made = self.kernel.make_functions(&state, &links, Some(&namespaces));
        made.map(drop).map_err(|error| kernel_failure("functions", &error))
    }

    /// Whether the kernel takes the device that SID routes name for none while it has no carrier. By itself it keeps such routes.
    fn routes_need_another(&mut self, links: &Interfaces) -> bool {
        let Some(state) = self.made() else { return false };
        if self.device == plan::device(&state, links) {
            return false;
        }
        let Some(name) = self.device.and_then(|device| links.name(device)) else { return true };
        let ignores = self.kernel.sysctl(&format!("net/ipv6/conf/{name}/ignore_routes_with_linkdown"));
        !ignores.is_ok_and(|value| value.is_some_and(|value| value == "0"))
    }
}
