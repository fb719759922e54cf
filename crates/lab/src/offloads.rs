//! What devices leave to others, in labs that labels steer: ports of nodes are on XDP there, which passes packets on as they come
//! (docs/design/labels.md).

use segue_host::device::{DeviceSocket, OffloadSocket};
use segue_host::namespace;
use segue_model::proxy::LOOP_OUT;
use segue_wiring::{LabPlan, LinkKind};

use crate::error::Result;
use crate::names::LabPaths;

const CHECKSUMS: &str = "tx-checksum-ip-generic";
const RECEIVE: &str = "rx-gro";

/// Hosts and functions make their checksums themselves, and so do nodes whose ports lead to each other.
pub(crate) fn checksums(paths: &LabPaths, plan: &LabPlan) -> Result<()> {
    let functions = plan.functions.iter().filter(|(_, function)| function.has_namespace());
    let functions = functions.map(|(name, function)| (name, function.interfaces.as_slice()));
    let hosts = plan.hosts.iter().map(|(name, host)| (name, std::slice::from_ref(&host.interface)));
    for (name, interfaces) in hosts.chain(functions).filter(|(_, interfaces)| !interfaces.is_empty()) {
        switch_off(paths, name, CHECKSUMS, |device| interfaces.iter().any(|interface| interface.name == device))?;
    }
    for (name, node) in &plan.nodes {
        let hairpins = node.interfaces.iter().filter(|interface| interface.link == LinkKind::Hairpin);
        let hairpins: Vec<&str> = hairpins.map(|interface| interface.name.as_str()).collect();
        if !hairpins.is_empty() {
            switch_off(paths, name, CHECKSUMS, |device| hairpins.contains(&device))?;
        }
    }
    Ok(())
}

/// Nodes put no segments together: those that netfilter gets that way would not get their labels again (`drop_offload`). XDP switches
/// that on where it comes to a veth.
pub(crate) fn receive(paths: &LabPaths, plan: &LabPlan) -> Result<()> {
    plan.nodes.iter().try_for_each(|(name, node)| {
        let is_port = |device: &str| device == LOOP_OUT || node.interfaces.iter().any(|one| one.name == device);
        switch_off(paths, name, RECEIVE, is_port)
    })
}

fn switch_off(paths: &LabPaths, space: &str, offload: &str, wanted: impl Fn(&str) -> bool + Sync) -> Result<()> {
    let work = || -> segue_host::Result<()> {
        let devices = DeviceSocket::open()?.all()?;
        let mut offloads = OffloadSocket::open()?;
        for (_, device) in devices.iter().filter(|(name, _)| wanted(name)) {
            offloads.set(device.index, offload, false)?;
        }
        Ok(())
    };
    Ok(namespace::inside(&paths.namespace(space), work).and_then(|done| done)?)
}
