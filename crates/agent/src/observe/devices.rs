//! What ports' interfaces are and can do, and what about that loses packets.

use std::collections::BTreeMap;

use segue_api::report::{DeviceReport, OffloadReport, PortReport};
use segue_host::HostError;
use segue_host::device::{Device, DeviceSocket, OffloadSocket, Offloads};
use segue_model::node::{NodeState, Port, PortMode};

use super::name;
use crate::{
    kernel::KernelError,
    mode::{self, Choice},
    problem::{Failure, Problem},
};

/// Puts into the reports of ports what their interfaces are.
///
/// # Errors
/// A kernel that does not tell.
pub fn complete(state: &NodeState, ports: &mut [PortReport]) -> Result<(), Failure> {
    let devices = DeviceSocket::open().and_then(|mut socket| socket.all()).map_err(failed)?;
    // Kernels may have been built without it.
    let mut offloads = OffloadSocket::open().ok();
    // The operator's: what the agent has made beside them is wired as it is meant.
    let configured: BTreeMap<&str, &Port> = state.ports.iter().map(|port| (port.name.as_str(), port)).collect();
    for port in ports {
        let device = devices.get(&port.name);
        let configured = configured.get(port.name.as_str());
        let choice = match configured {
            Some(configured) => mode::choose(state, configured, device),
            None => Choice { mode: PortMode::Skb, reason: "made by the agent".to_owned() },
        };
        port.mode = name(&choice.mode);
        port.mode_reason = choice.reason;
        let Some(device) = device else { continue };
        // One that has gone meanwhile has none.
        let found = offloads.as_mut().and_then(|socket| socket.of(device.index).ok());
        if configured.is_some() {
            port.problems = problems(&port.name, choice.mode, device, found.as_ref());
        }
        port.device = Some(report(device, found.as_ref()));
    }
    Ok(())
}

fn report(device: &Device, offloads: Option<&Offloads>) -> DeviceReport {
    let other = if device.on_bus { "nic" } else { "other" };
    DeviceReport {
        kind: device.kind.clone().unwrap_or_else(|| other.to_owned()),
        driver: device.driver.clone(),
        peer: device.lower.map(|lower| lower.index),
        peer_elsewhere: device.lower.is_some_and(|lower| lower.elsewhere),
        xdp_features: device.xdp.map(|xdp| xdp.names().into_iter().map(str::to_owned).collect()),
        takes_redirected: device.xdp.map(|xdp| xdp.takes_redirected()),
        dropped_received: device.dropped.received,
        dropped_sent: device.dropped.sent,
        offloads: offloads.map(|offloads| OffloadReport {
            gro: offloads.gro(),
            tx_checksum: offloads.tx_checksum(),
            tcp_segmentation: offloads.tcp_segmentation(),
            vlan_stripping: offloads.vlan_stripping(),
        }),
    }
}

/// What loses packets on a port, or may.
fn problems(name: &str, mode: PortMode, device: &Device, offloads: Option<&Offloads>) -> Vec<Problem> {
    let key = format!("port {name}");
    let mut problems = Vec::new();
    if mode == PortMode::Xdp && device.on_bus && offloads.is_some_and(Offloads::vlan_stripping) {
        let message =
            "the NIC takes VLAN tags off before XDP sees the frame, so tagged frames are taken for untagged ones";
        problems.push(Problem::new(&key, message, format!("`ethtool -K {name} rxvlan off`")));
    }
    problems
}

fn failed(error: HostError) -> Failure {
    crate::apply::kernel_failure("interfaces", &KernelError::from(error))
}

#[cfg(test)]
mod tests {
    use segue_host::device::XdpFeatures;

    use super::*;

    fn found_with(device: &Device, mode: PortMode, offloads: &Offloads) -> Vec<String> {
        problems("p", mode, device, Some(offloads)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_nic_that_takes_tags_off_is_a_problem_for_xdp_alone() {
        let nic = Device { index: 2, on_bus: true, xdp: Some(XdpFeatures(0b111)), ..Device::default() };
        let strips: Offloads = ["rx-vlan-hw-parse".to_owned()].into_iter().collect();
        let problems = found_with(&nic, PortMode::Xdp, &strips);
        assert!(problems.len() == 1 && problems[0].ends_with("; `ethtool -K p rxvlan off`"), "{problems:?}");
        assert!(found_with(&nic, PortMode::Skb, &strips).is_empty(), "a socket buffer has the tag");
        assert!(found_with(&nic, PortMode::Xdp, &Offloads::default()).is_empty());
        // A veth says so too, whatever its far end sends, which cannot be seen from here.
        let veth = Device { index: 2, kind: Some("veth".to_owned()), ..Device::default() };
        assert!(found_with(&veth, PortMode::Xdp, &strips).is_empty());
    }
}
