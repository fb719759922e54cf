//! What ports' interfaces are and can do, and what about that loses packets.

use std::collections::BTreeMap;

use segue_api::report::{DeviceReport, OffloadReport, PortReport};
use segue_host::HostError;
use segue_host::device::{Device, DeviceSocket, Devices, OffloadSocket, Offloads, VETH};
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
            None => Choice { mode: PortMode::Xdp, reason: "made by the agent".to_owned() },
        };
        port.mode = name(&choice.mode);
        port.mode_reason = choice.reason;
        let Some(device) = device else { continue };
        // One that has gone meanwhile has none.
        let found = offloads.as_mut().and_then(|socket| socket.of(device.index).ok());
        if configured.is_some() {
            port.problems = problems(port, choice.mode, device, found.as_ref(), &devices);
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
fn problems(
    port: &PortReport,
    mode: PortMode,
    device: &Device,
    offloads: Option<&Offloads>,
    devices: &Devices,
) -> Vec<Problem> {
    let key = format!("port {}", port.name);
    let mut problems = Vec::new();
    // What the network stack's XDP redirects is sent like any packet.
    if device.xdp.is_some_and(|xdp| !xdp.takes_redirected()) && mode == PortMode::Xdp && port.xdp == "native" {
        problems.push(Problem::new(&key, not_taken(device), remedy_not_taken(device, devices)));
    }
    if mode == PortMode::Xdp && device.on_bus && offloads.is_some_and(Offloads::vlan_stripping) {
        let message =
            "the NIC takes VLAN tags off before XDP sees the frame, so tagged frames are taken for untagged ones";
        problems.push(Problem::new(&key, message, format!("`ethtool -K {} rxvlan off`", port.name)));
    }
    problems
}

fn not_taken(device: &Device) -> String {
    let why = match device.kind.as_deref() {
        Some(VETH) => "its far end has neither XDP nor GRO",
        Some(_) => "a device of its kind takes none",
        None => "its driver takes none, or has too few queues",
    };
    format!("frames that XDP redirects into it are lost ({why}), though they are counted as forwarded")
}

fn remedy_not_taken(device: &Device, devices: &Devices) -> String {
    match (device.kind.as_deref(), device.lower) {
        (Some(VETH), Some(lower)) if lower.elsewhere => {
            format!("in the namespace of its far end, interface number {}: `ethtool -K FAR-END gro on`", lower.index)
        }
        (Some(VETH), Some(lower)) => {
            let far = devices.iter().find(|(_, device)| device.index == lower.index);
            format!("`ethtool -K {} gro on`", far.map_or("FAR-END", |(name, _)| name.as_str()))
        }
        (Some(_), _) => "use another kind of interface for this port".to_owned(),
        (None, _) => "give the NIC as many queues as there are CPUs (`ethtool -L`), or use another driver".to_owned(),
    }
}

fn failed(error: HostError) -> Failure {
    crate::apply::kernel_failure("interfaces", &KernelError::from(error))
}

#[cfg(test)]
mod tests {
    use segue_host::device::{Lower, XdpFeatures};

    use super::*;

    fn veth(features: u64, elsewhere: bool) -> Device {
        Device {
            index: 2,
            kind: Some(VETH.to_owned()),
            lower: Some(Lower { index: 3, elsewhere }),
            xdp: Some(XdpFeatures(features)),
            ..Device::default()
        }
    }

    fn found(device: &Device, mode: PortMode, xdp: &str) -> Vec<String> {
        found_with(device, mode, xdp, None)
    }

    fn found_with(device: &Device, mode: PortMode, xdp: &str, offloads: Option<&Offloads>) -> Vec<String> {
        let port = PortReport {
            name: "p".to_owned(),
            role: "core".to_owned(),
            ifindex: 2,
            up: true,
            mtu: 1500,
            mac: String::new(),
            xdp: xdp.to_owned(),
            mode: String::new(),
            mode_reason: String::new(),
            device: None,
            problems: Vec::new(),
            forwarded: Default::default(),
            passed: Default::default(),
            dropped: Default::default(),
        };
        let devices = Devices::from([("far".to_owned(), Device { index: 3, ..Device::default() })]);
        problems(&port, mode, device, offloads, &devices).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_veth_whose_far_end_polls_nothing_is_a_problem_with_its_remedy() {
        let expected = "port p: frames that XDP redirects into it are lost (its far end has neither XDP nor GRO), though they are \
                        counted as forwarded; `ethtool -K far gro on`";
        assert_eq!(found(&veth(0b011, false), PortMode::Xdp, "native"), [expected]);
        let elsewhere = found(&veth(0b011, true), PortMode::Xdp, "native");
        assert!(elsewhere[0].ends_with("interface number 3: `ethtool -K FAR-END gro on`"), "{elsewhere:?}");
        assert!(found(&veth(0b111, true), PortMode::Xdp, "native").is_empty(), "it takes them");
        assert!(found(&veth(0b011, true), PortMode::Xdp, "generic").is_empty(), "sent like any packet");
        assert!(found(&veth(0b011, true), PortMode::Skb, "none").is_empty(), "nothing is redirected by XDP");
    }

    #[test]
    fn a_nic_that_takes_tags_off_is_a_problem_for_xdp_alone() {
        let nic = Device { index: 2, on_bus: true, xdp: Some(XdpFeatures(0b111)), ..Device::default() };
        let strips: Offloads = ["rx-vlan-hw-parse".to_owned()].into_iter().collect();
        let problems = found_with(&nic, PortMode::Xdp, "native", Some(&strips));
        assert!(problems.len() == 1 && problems[0].ends_with("; `ethtool -K p rxvlan off`"), "{problems:?}");
        assert!(found_with(&nic, PortMode::Skb, "none", Some(&strips)).is_empty(), "a socket buffer has the tag");
        assert!(found_with(&nic, PortMode::Xdp, "native", Some(&Offloads::default())).is_empty());
        // A veth says so too, whatever its far end sends, which cannot be seen from here.
        assert!(found_with(&veth(0b111, true), PortMode::Xdp, "native", Some(&strips)).is_empty());
    }
}
