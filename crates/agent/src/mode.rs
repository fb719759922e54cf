//! Where the data plane meets the packets of a port: what its `mode` says or, if that is left to the agent, what the interface is.

use segue_host::device::Device;
use segue_model::node::{NodeState, PortMode};

use crate::problem::Problem;

/// Whether this version's data plane can work on socket buffers.
pub const ON_SOCKET_BUFFERS: bool = false;

/// A choice, with the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Never [`PortMode::Auto`].
    pub mode: PortMode,
    /// Why.
    pub reason: String,
}

/// Chooses for a port whose `mode` is this. Without a device the interface is not there.
pub fn choose(wanted: PortMode, device: Option<&Device>) -> Choice {
    if !wanted.is_auto() {
        return Choice { mode: wanted, reason: "as configured".to_owned() };
    }
    let Some(device) = device else {
        return Choice { mode: PortMode::Xdp, reason: "the interface is missing".to_owned() };
    };
    let (mode, reason) = suited(device);
    if mode == PortMode::Skb && !ON_SOCKET_BUFFERS {
        let reason = format!("{reason}; but this version works on socket buffers nowhere");
        return Choice { mode: PortMode::Xdp, reason };
    }
    Choice { mode, reason }
}

/// What suits a device.
fn suited(device: &Device) -> (PortMode, String) {
    let native = device.xdp.map(|xdp| xdp.native());
    let driver = device.driver.as_deref().unwrap_or("unknown");
    match (device.kind.as_deref(), native) {
        // The NICs below run the program.
        (Some("bond"), Some(true)) => (PortMode::Xdp, "bond of NICs with XDP".to_owned()),
        (Some(kind), _) => (PortMode::Skb, format!("{kind} is a virtual device: offloads stay")),
        (None, _) if !device.on_bus => (PortMode::Skb, "no NIC".to_owned()),
        (None, Some(true)) => (PortMode::Xdp, format!("NIC whose driver {driver} has XDP")),
        (None, Some(false)) => (PortMode::Skb, format!("NIC whose driver {driver} has no XDP")),
        (None, None) => (PortMode::Xdp, format!("NIC, driver {driver}; this kernel does not tell whether it has XDP")),
    }
}

/// What this version cannot do.
pub fn problems(state: &NodeState) -> Vec<Problem> {
    if ON_SOCKET_BUFFERS {
        return Vec::new();
    }
    let ports = state.ports.iter().enumerate().filter(|(_, port)| port.mode == PortMode::Skb);
    let problem = |position| {
        let message = "this version of segued has no data plane on socket buffers";
        Problem::new(
            format!("ports[{position}].mode"),
            message,
            "write `mode: xdp` or auto, or install a version that has it",
        )
    };
    ports.map(|(position, _)| problem(position)).collect()
}

#[cfg(test)]
mod tests {
    use segue_host::device::XdpFeatures;

    use super::*;

    fn nic(driver: &str, features: Option<u64>) -> Device {
        Device {
            index: 2,
            driver: Some(driver.to_owned()),
            on_bus: true,
            xdp: features.map(XdpFeatures),
            ..Device::default()
        }
    }

    #[test]
    fn virtual_devices_are_for_socket_buffers_and_nics_with_xdp_for_xdp() {
        let virtual_device = |kind: &str, features| Device {
            index: 2,
            kind: Some(kind.to_owned()),
            xdp: Some(XdpFeatures(features)),
            ..Device::default()
        };
        for kind in ["veth", "tun", "bridge", "vlan", "macvlan", "gre", "wireguard", "vxlan", "bond"] {
            let (mode, reason) = suited(&virtual_device(kind, 0));
            assert_eq!((mode, reason), (PortMode::Skb, format!("{kind} is a virtual device: offloads stay")));
        }
        assert_eq!(suited(&virtual_device("veth", 0x27)).0, PortMode::Skb, "although it has XDP");
        assert_eq!(suited(&virtual_device("bond", 1)).0, PortMode::Xdp);
        let expected = (PortMode::Xdp, "NIC whose driver virtio_net has XDP".to_owned());
        assert_eq!(suited(&nic("virtio_net", Some(1))), expected);
        let expected = (PortMode::Skb, "NIC whose driver e1000e has no XDP".to_owned());
        assert_eq!(suited(&nic("e1000e", Some(0))), expected);
        assert_eq!(suited(&nic("e1000e", None)).0, PortMode::Xdp, "attaching says");
        assert_eq!(suited(&Device::default()).0, PortMode::Skb);
    }

    #[test]
    fn what_is_configured_holds_whatever_the_device_is() {
        for mode in [PortMode::Xdp, PortMode::Skb] {
            let choice = choose(mode, Some(&nic("e1000e", Some(0))));
            assert_eq!(choice, Choice { mode, reason: "as configured".to_owned() });
        }
        assert_eq!(choose(PortMode::Auto, None).reason, "the interface is missing");
    }
}
