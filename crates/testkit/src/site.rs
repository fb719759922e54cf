//! A node that hosts functions: two core links, and for each function a namespace of its own with a west and an east link.

use std::net::Ipv6Addr;

use segue_wire::{MacAddress, PacketBuilder};

use crate::netns::{End, Netns};
use crate::packet_socket::PacketSocket;
use crate::wiring::Wiring;

/// The node between its neighbours. Interfaces of the node: `core0` (to the west), `core1` (to the east), and for function N,
/// counted from 0, `fN-w` and `fN-e`. Routes: fc00:0:9::/48, fd00:0:9::/48 and 2001:db8:a::/48 lie behind core0; fc00:0:2::/48,
/// fd00:0:2::/48 and 2001:db8:b::/48 behind core1. All neighbours are known.
#[derive(Debug)]
pub struct Site {
    /// The node.
    pub node: Netns,
    /// The far ends of the core links, `core0-far` and `core1-far`. It only receives: it has no IPv6.
    pub world: Netns,
    /// Namespaces of the functions; their interfaces are `west` and `east`.
    pub functions: Vec<Netns>,
}

/// MTU of all links.
const MTU: u32 = 2000;

fn mac(kind: u8, number: u8, side: u8) -> MacAddress {
    MacAddress([2, 0, 0, kind, number, side])
}

/// Link-layer addresses of a core link, 0 or 1: the node's, its neighbour's.
pub fn core_macs(number: u8) -> (MacAddress, MacAddress) {
    (mac(0xc0, number, 1), mac(0xc0, number, 2))
}

/// Link-layer addresses of a function's west link: the node's, the function's.
pub fn west_macs(function: u8) -> (MacAddress, MacAddress) {
    (mac(0xf0, function, 1), mac(0xf0, function, 2))
}

/// Link-layer addresses of a function's east link: the node's, the function's.
pub fn east_macs(function: u8) -> (MacAddress, MacAddress) {
    (mac(0xf0, function, 3), mac(0xf0, function, 4))
}

/// The start of a frame that comes in from a core link's neighbour.
pub fn from_core(number: u8) -> PacketBuilder {
    let (node, far) = core_macs(number);
    PacketBuilder::ethernet(far, node)
}

/// The start of a frame that leaves to a core link's neighbour.
pub fn to_core(number: u8) -> PacketBuilder {
    let (node, far) = core_macs(number);
    PacketBuilder::ethernet(node, far)
}

/// `fc00:0:1:FUNCTION::`, a SID of the node.
pub const fn local(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, 0, 1, function, 0, 0, 0, 0)
}

/// `fc00:0:2:FUNCTION::`, a SID in the east.
pub const fn east(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, 0, 2, function, 0, 0, 0, 0)
}

/// `fc00:0:9:FUNCTION::`, a SID in the west.
pub const fn west(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, 0, 9, function, 0, 0, 0, 0)
}

/// A headend in the west, and a host there.
pub const WEST_HEADEND: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 9, 0, 0, 0, 0, 1);
/// A headend in the east.
pub const EAST_HEADEND: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 2, 0, 0, 0, 0, 1);
/// A host in the west.
pub const WEST_HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
/// A host in the east.
pub const EAST_HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1);

impl Site {
    /// Makes the node, its neighbours and the links to so many functions.
    pub fn new(functions: u8) -> Self {
        let site =
            Self { node: Netns::new(), world: Netns::new(), functions: (0..functions).map(|_| Netns::new()).collect() };
        site.world.sysctl("ipv6.conf.all.disable_ipv6=1");
        site.world.sysctl("ipv6.conf.default.disable_ipv6=1");
        let mut wiring = Wiring::default();
        wiring.ip(&site.node, "address add fd00:0:1::1/128 dev lo");
        for number in [0, 1] {
            let (near, far) = core_macs(number);
            let name = format!("core{number}");
            let far_name = format!("{name}-far");
            site.link(&mut wiring, &site.world, (&name, near), (&far_name, far), &format!("fd00:0:c{number}"));
        }
        for (core, networks) in [
            (0, ["fc00:0:9::/48", "fd00:0:9::/48", "2001:db8:a::/48"]),
            (1, ["fc00:0:2::/48", "fd00:0:2::/48", "2001:db8:b::/48"]),
        ] {
            for network in networks {
                wiring.ip(&site.node, &format!("route add {network} via fd00:0:c{core}::2"));
            }
        }
        for (number, namespace) in (0..).zip(&site.functions) {
            for (side, far, (near_mac, far_mac)) in [("w", "west", west_macs(number)), ("e", "east", east_macs(number))]
            {
                let prefix = format!("fd00:0:f{number}{}", if side == "w" { 0 } else { 1 });
                site.link(&mut wiring, namespace, (&format!("f{number}-{side}"), near_mac), (far, far_mac), &prefix);
            }
        }
        wiring.lay();
        site
    }

    fn link(
        &self,
        wiring: &mut Wiring,
        namespace: &Netns,
        near: (&str, MacAddress),
        far: (&str, MacAddress),
        prefix: &str,
    ) {
        wiring.veth(
            End { netns: &self.node, name: near.0, mac: &near.1.to_string() },
            End { netns: namespace, name: far.0, mac: &far.1.to_string() },
            MTU,
        );
        wiring.ip(
            &self.node,
            &format!(
                "address add {prefix}::1/64 dev {near} nodad
                 neigh add {prefix}::2 lladdr {mac} nud permanent dev {near}",
                near = near.0,
                mac = far.1
            ),
        );
    }

    /// Makes a function's kernel forward: what goes to the east leaves by its east link, what goes to the west by its west
    /// link, IPv4 (10.1/16 in the west, 10.2/16 in the east) and IPv6.
    pub fn forwards(&self, function: u8) -> &Netns {
        let namespace = &self.functions[usize::from(function)];
        for (link, side, network, network4, (node, _)) in [
            ("west", 0, "2001:db8:a::/48", "10.1.0.0/16", west_macs(function)),
            ("east", 1, "2001:db8:b::/48", "10.2.0.0/16", east_macs(function)),
        ] {
            let prefix = format!("fd00:0:f{function}{side}");
            namespace.script(&format!(
                "ip -6 address add {prefix}::2/64 dev {link} nodad
                 ip -6 neigh add {prefix}::1 lladdr {node} nud permanent dev {link}
                 ip -6 route add {network} via {prefix}::1 dev {link}
                 ip -4 route add {network4} via inet6 {prefix}::1 dev {link}"
            ));
        }
        namespace
    }

    /// A function's socket on its `west` or `east` link. Its kernel stays out of it.
    pub fn socket(&self, function: u8, link: &str) -> PacketSocket {
        let namespace = &self.functions[usize::from(function)];
        namespace.sysctl(&format!("ipv6.conf.{link}.disable_ipv6=1"));
        namespace.sysctl("ipv4.ip_forward=0");
        PacketSocket::open(namespace, link)
    }

    /// A socket at the far end of a core link, 0 or 1.
    pub fn core(&self, number: u8) -> PacketSocket {
        PacketSocket::open(&self.world, &format!("core{number}-far"))
    }

    /// The node's configuration: its ports, and these SIDs, policies and the like.
    pub fn state(&self, rest: &str) -> String {
        let functions: String = (0..self.functions.len())
            .flat_map(|number| ["w", "e"].map(|side| format!("  - {{name: f{number}-{side}, role: service}}\n")))
            .collect();
        format!(
            "node: site\nsource_address: 'fd00:0:1::1'\nlocator: 'fc00:0:1::/48'\n\
             domain: {{sid_blocks: ['fc00::/16']}}\n\
             ports:\n  - {{name: core0, role: core}}\n  - {{name: core1, role: core}}\n{functions}{rest}"
        )
    }
}
