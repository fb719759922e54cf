//! What devices leave to others, in labs where ports of nodes are on XDP, which passes packets on as they come: checksums that nobody has
//! made yet are lost there. What gets labels has its own by then (docs/design/labels.md).

use segue_host::device::{DeviceSocket, OffloadSocket};
use segue_host::namespace;
use segue_model::topology::Topology;
use segue_wiring::{LabPlan, LinkKind};

use crate::error::Result;
use crate::names::LabPaths;

const CHECKSUMS: &str = "tx-checksum-ip-generic";

/// Who makes checksums itself: hosts and functions where all frames of a port go into a policy of SIDs, which takes XDP; and nodes by the
/// links between them where these are on XDP and packets without labels go by them, of SIDs.
pub(crate) fn checksums(paths: &LabPaths, topology: &Topology, plan: &LabPlan) -> Result<()> {
    let has_sids = topology.nodes.values().any(|node| topology.domain.of_node(node).has_sids());
    let carries_frames = topology.chains.values().any(|chain| chain.ethernet.is_some());
    if carries_frames && has_sids {
        ends(paths, plan)?;
    }
    if topology.uses_labels() || carries_frames {
        let is_on_xdp = |kind| kind == LinkKind::Hairpin || (kind == LinkKind::Core && has_sids);
        nodes(paths, plan, is_on_xdp)?;
    }
    Ok(())
}

/// Hosts and functions.
fn ends(paths: &LabPaths, plan: &LabPlan) -> Result<()> {
    let functions = plan.functions.iter().filter(|(_, function)| function.has_namespace());
    let functions = functions.map(|(name, function)| (name, function.interfaces.as_slice()));
    let hosts = plan.hosts.iter().map(|(name, host)| (name, std::slice::from_ref(&host.interface)));
    for (name, interfaces) in hosts.chain(functions).filter(|(_, interfaces)| !interfaces.is_empty()) {
        make_checksums(paths, name, |device| interfaces.iter().any(|interface| interface.name == device))?;
    }
    Ok(())
}

/// Nodes, by links of these kinds.
fn nodes(paths: &LabPaths, plan: &LabPlan, which: impl Fn(LinkKind) -> bool) -> Result<()> {
    for (name, node) in &plan.nodes {
        let chosen = node.interfaces.iter().filter(|interface| which(interface.link));
        let chosen: Vec<&str> = chosen.map(|interface| interface.name.as_str()).collect();
        if !chosen.is_empty() {
            make_checksums(paths, name, |device| chosen.contains(&device))?;
        }
    }
    Ok(())
}

fn make_checksums(paths: &LabPaths, space: &str, wanted: impl Fn(&str) -> bool + Sync) -> Result<()> {
    let work = || -> segue_host::Result<()> {
        let devices = DeviceSocket::open()?.all()?;
        let mut offloads = OffloadSocket::open()?;
        for (_, device) in devices.iter().filter(|(name, _)| wanted(name)) {
            offloads.set(device.index, CHECKSUMS, false)?;
        }
        Ok(())
    };
    Ok(namespace::inside(&paths.namespace(space), work).and_then(|done| done)?)
}
