//! Where the data plane meets the packets of a port: what its `mode` says or, if that is left to the agent, what the interface is.

use segue_dataplane::{Hook, Interfaces, prefers_xdp};
use segue_host::device::{Device, Devices};
use segue_model::node::{NodeState, Port, PortMode, VirtualFunctions};

/// A choice, with the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Never [`PortMode::Auto`].
    pub mode: PortMode,
    /// Why.
    pub reason: String,
}

/// Chooses for a port of a state. Without a device the interface is not there.
pub fn choose(state: &NodeState, port: &Port, device: Option<&Device>) -> Choice {
    if !port.mode.is_auto() {
        return as_configured(port, device);
    }
    let Some(device) = device else {
        return Choice { mode: PortMode::Xdp, reason: "the interface is missing".to_owned() };
    };
    let has_vlans = carries_vlans(state, port);
    let (mode, reason) = match suited(device) {
        // XDP would take them for untagged where the NIC takes tags off the frame.
        (PortMode::Xdp, _) if has_vlans => {
            (PortMode::Skb, "VLANs of ports are on it, whose tags XDP may not see".to_owned())
        }
        suited => suited,
    };
    let prefers = || prefers_xdp(state, port).filter(|_| !has_vlans && !lacks_xdp(device));
    let instead = |but: &str| Choice { mode: PortMode::Xdp, reason: format!("{reason}; but {but}") };
    match mode {
        PortMode::Skb => match prefers() {
            Some(why) => instead(why),
            None => Choice { mode, reason },
        },
        _ => Choice { mode, reason },
    }
}

/// What the configuration says; but not XDP on a device that has none. There the network stack would run the
/// program, on packets that it has copied, which is slower than a program on socket buffers. And since Linux 6.9 such a copy has lost its
/// `mac_len`: the TC program that sends what XDP cannot redirect sees packets without their Ethernet header, and cannot send them.
fn as_configured(port: &Port, device: Option<&Device>) -> Choice {
    match device.filter(|device| port.mode == PortMode::Xdp && lacks_xdp(device)) {
        None => Choice { mode: port.mode, reason: "as configured".to_owned() },
        Some(device) => {
            let what = device.kind.as_deref().or(device.driver.as_deref()).unwrap_or("this device");
            Choice { mode: PortMode::Skb, reason: format!("`mode: xdp`, but {what} has no XDP") }
        }
    }
}

/// Whether socket buffers may be what is met on a port, now or when its device changes.
pub fn can_be_on_skb(port: &Port, devices: &Devices) -> bool {
    port.mode != PortMode::Xdp || devices.get(&port.name).is_some_and(lacks_xdp)
}

/// Whether the kernel says that its driver runs no XDP programs.
fn lacks_xdp(device: &Device) -> bool {
    device.xdp.is_some_and(|xdp| !xdp.native())
}

/// Whether VLANs are on it that are ports.
fn carries_vlans(state: &NodeState, port: &Port) -> bool {
    let is_of_function = |vf: &VirtualFunctions| vf.carrier() == port.name;
    state.ports.iter().any(|other| other.vlan.as_ref().is_some_and(|vlan| vlan.on == port.name))
        || state.attached().any(|(_, function)| function.vf.as_ref().is_some_and(is_of_function))
}

/// Says of all interfaces which take frames from XDP, and of those of ports where their packets are met. What the agent makes are veths,
/// and so on socket buffers.
pub fn describe(state: &NodeState, devices: &Devices, links: &mut Interfaces) {
    for (name, link) in &mut links.0 {
        let port = state.ports.iter().find(|port| port.name == *name);
        link.takes_frames = devices.get(name).is_some_and(|device| takes_frames(device, port.is_some()));
        link.hook = Hook::Skb;
    }
    for port in &state.ports {
        let Some(link) = links.0.get_mut(&port.name) else { continue };
        link.hook = match choose(state, port, devices.get(&port.name)).mode {
            PortMode::Skb => Hook::Skb,
            PortMode::Xdp | PortMode::Auto => Hook::Xdp,
        };
    }
}

/// Drivers of NICs that take frames from XDP in Linux 6.1 (`ndo_xdp_xmit`), once they have a program themselves. Others may too: by them the
/// TC program sends, which is slower and always right.
const TAKE_FRAMES: [&str; 9] = ["bnxt_en", "ena", "i40e", "ice", "igb", "igc", "ixgbe", "mlx5_core", "virtio_net"];

/// Drivers of NICs that run XDP programs themselves in Linux 6.1. Kernels before 6.3 do not tell: by others packets are met on socket
/// buffers, since the network stack would run XDP on single packets, copied, and without their VLAN tags.
const NATIVE: [&str; 18] = [
    "atlantic",
    "bnxt_en",
    "ena",
    "hv_netvsc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "mana",
    "mlx4_core",
    "mlx5_core",
    "nfp",
    "qede",
    "sfc",
    "vif",
    "virtio_net",
];

/// Whether XDP can redirect into a device. Kernels before 6.3 do not tell: there it goes by the driver; of a veth its far end decides, which
/// cannot be seen from here.
fn takes_frames(device: &Device, is_port: bool) -> bool {
    match device.xdp {
        Some(xdp) => xdp.takes_redirected(),
        None => is_port && device.driver.as_deref().is_some_and(|driver| TAKE_FRAMES.contains(&driver)),
    }
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
        // Kernels before 6.3 do not tell.
        (None, None) if NATIVE.contains(&driver) => {
            (PortMode::Xdp, format!("NIC, driver {driver}, which is known to have XDP"))
        }
        (None, None) => {
            (PortMode::Skb, format!("NIC, driver {driver}, which is not known to have XDP (this kernel does not tell)"))
        }
    }
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
        assert_eq!(suited(&nic("e1000e", None)).0, PortMode::Skb, "a kernel that does not tell");
        assert_eq!(suited(&nic("virtio_net", None)).0, PortMode::Xdp);
        assert_eq!(suited(&Device::default()).0, PortMode::Skb);
    }

    #[test]
    fn where_the_kernel_does_not_tell_only_known_drivers_of_ports_take_frames() {
        assert!(takes_frames(&nic("virtio_net", None), true));
        assert!(!takes_frames(&nic("virtio_net", None), false), "it has no program");
        assert!(!takes_frames(&nic("nfp", None), true), "a driver with XDP that may take none");
        assert!(!takes_frames(&nic("virtio_net", Some(0b011)), true), "the kernel tells: too few queues");
        assert!(takes_frames(&nic("nfp", Some(0b111)), false), "the kernel tells");
    }

    #[test]
    fn what_is_configured_holds_where_the_device_can() {
        let state = |mode: &str| -> NodeState {
            let ports = serde_json::json!([{"name": "p", "role": "core", "mode": mode}]);
            serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1", "ports": ports}))
                .unwrap()
        };
        let nic = nic("e1000e", Some(0));
        let known = super::tests::nic("virtio_net", Some(1));
        for (word, mode, hook) in [("xdp", PortMode::Xdp, Hook::Xdp), ("skb", PortMode::Skb, Hook::Skb)] {
            let state = state(word);
            for device in [&known, &super::tests::nic("e1000e", None)] {
                let choice = choose(&state, &state.ports[0], Some(device));
                assert_eq!(choice, Choice { mode, reason: "as configured".to_owned() });
            }
            let choice = choose(&state, &state.ports[0], Some(&nic));
            assert_eq!((choice.mode, choice.reason.contains("e1000e has no XDP")), (PortMode::Skb, word == "xdp"));
            let mut links = Interfaces::default();
            for name in ["p", "other"] {
                links.0.insert(name.to_owned(), crate::apply::fake::interface(2));
            }
            describe(&state, &Devices::new(), &mut links);
            assert_eq!((links.0["p"].hook, links.0["other"].hook), (hook, Hook::Skb));
        }
        let mut state = state("auto");
        assert_eq!(choose(&state, &state.ports[0], None).reason, "the interface is missing");
        assert_eq!(choose(&state, &state.ports[0], Some(&nic)).mode, PortMode::Skb, "no XDP");
        let nic = super::tests::nic("virtio_net", Some(1));
        assert_eq!(choose(&state, &state.ports[0], Some(&nic)).mode, PortMode::Xdp);
        let vlan = segue_model::node::Vlan { on: "p".to_owned(), id: 7 };
        state.ports.push(Port { name: "p.7".to_owned(), vlan: Some(vlan), ..state.ports[0].clone() });
        let choice = choose(&state, &state.ports[0], Some(&nic));
        assert_eq!(
            (choice.mode, choice.reason.contains("VLANs")),
            (PortMode::Skb, true),
            "tags may be beside the frame"
        );
        let label =
            serde_json::from_value(serde_json::json!({"label": 15000, "behaviour": "pop", "next_hop": "fc00::2"}));
        state.labels.push(label.unwrap());
        assert_eq!(choose(&state, &state.ports[0], Some(&nic)).mode, PortMode::Skb, "nor are labels worth that");
        state.labels.clear();
        state.ports.pop();
        let vf = serde_json::from_value(
            serde_json::json!({"device": "x", "by": "p", "west": {"vlan": 1}, "east": {"vlan": 2}}),
        );
        let function = segue_model::node::NodeFunction { vf: Some(vf.unwrap()), ..Default::default() };
        state.functions.insert("f".to_owned(), function);
        assert_eq!(choose(&state, &state.ports[0], Some(&nic)).mode, PortMode::Skb, "VLANs of virtual functions too");
    }

    /// What comes with labels cannot stay together on socket buffers; what gets some is made single packets before.
    #[test]
    fn with_labels_only_virtual_devices_of_the_core_are_on_xdp() {
        let state: NodeState = serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "labels": [{"label": 15000, "behaviour": "pop", "next_hop": "fc00::2"}],
            "ports": [{"name": "a", "role": "access"}, {"name": "s", "role": "service"}, {"name": "c", "role": "core"}]
        }))
        .unwrap();
        let veth = Device { index: 2, kind: Some("veth".to_owned()), ..Device::default() };
        let modes = |device: &Device| -> Vec<PortMode> {
            state.ports.iter().map(|port| choose(&state, port, Some(device)).mode).collect()
        };
        assert_eq!(modes(&veth), [PortMode::Skb, PortMode::Skb, PortMode::Xdp]);
        let bridge =
            Device { index: 2, kind: Some("bridge".to_owned()), xdp: Some(XdpFeatures(0)), ..Device::default() };
        assert_eq!(modes(&bridge), [PortMode::Skb; 3], "it has no XDP");
        let mut links = Interfaces::default();
        for name in ["a", "s", "c"] {
            links.0.insert(name.to_owned(), crate::apply::fake::interface(2));
        }
        let needs = |state: &NodeState, links: &Interfaces| segue_dataplane::needs_cut(state, links);
        let devices: Devices = ["a", "s", "c"].map(|name| (name.to_owned(), veth.clone())).into();
        describe(&state, &devices, &mut links);
        assert!(needs(&state, &links));
        let changed = |change: &dyn Fn(&mut NodeState)| {
            let mut changed = state.clone();
            change(&mut changed);
            let mut links = links.clone();
            describe(&changed, &devices, &mut links);
            needs(&changed, &links)
        };
        assert!(!changed(&|state| state.labels.clear()), "no labels");
        assert!(!changed(&|state| state.ports.retain(|port| port.name == "c")), "a port of the core alone");
        assert!(!changed(&|state| state.ports.iter_mut().for_each(|port| port.mode = PortMode::Xdp)), "all on XDP");
    }

    /// Frames that are carried whole are single ones, with their checksums: XDP would take those of a host's veth without.
    #[test]
    fn ports_whose_frames_are_carried_are_on_the_hook_that_suits_their_device() {
        let state: NodeState = serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "policies": [{"name": "wire", "mode": "H.Encaps.L2", "segment_lists": [{"segments": ["fc00::2"]}]}],
            "ports": [{"name": "a", "role": "access", "l2_policy": "wire"}, {"name": "c", "role": "core"}]
        }))
        .unwrap();
        let veth = Device { index: 2, kind: Some("veth".to_owned()), ..Device::default() };
        let bridge =
            Device { index: 2, kind: Some("bridge".to_owned()), xdp: Some(XdpFeatures(0)), ..Device::default() };
        let nic = nic("virtio_net", Some(1));
        assert_eq!(choose(&state, &state.ports[0], Some(&veth)).mode, PortMode::Skb);
        assert_eq!(choose(&state, &state.ports[0], Some(&nic)).mode, PortMode::Xdp);
        for mode in [PortMode::Auto, PortMode::Xdp, PortMode::Skb] {
            let mut state = state.clone();
            state.ports[0].mode = mode;
            let chosen = choose(&state, &state.ports[0], Some(&bridge));
            assert_eq!(chosen.mode, PortMode::Skb, "{mode:?}: {}", chosen.reason);
            let mut links = Interfaces::default();
            for name in ["a", "c"] {
                links.0.insert(name.to_owned(), crate::apply::fake::interface(2));
            }
            describe(&state, &[("a".to_owned(), bridge.clone()), ("c".to_owned(), veth.clone())].into(), &mut links);
            assert!(segue_dataplane::needs_cut(&state, &links), "{mode:?}");
        }
    }
}
