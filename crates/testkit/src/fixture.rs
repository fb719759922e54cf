//! The node that golden tests send packets through: its links, neighbours and routes, and a configuration with every
//! behaviour. Addresses are in [`address`], frames start with [`arriving`] and [`leaving`].

use std::net::{Ipv4Addr, Ipv6Addr};

use segue_wire::checksum::Checksum;
use segue_wire::{MacAddress, PacketBuilder};

use crate::netns::{End, Netns};
use crate::wiring::Wiring;

/// A link of the node to its one neighbour there.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Name of the node's interface.
    pub name: &'static str,
    /// `core`, `access` or `service`.
    pub role: &'static str,
    /// Last octet of the MAC addresses: the node has this one, the neighbour the next.
    pub number: u8,
    /// MTU of both ends.
    pub mtu: u32,
    /// The node's IPv6 address and prefix length; the neighbour's has 2 in place of the last 1. Empty: none.
    pub ipv6: &'static str,
    /// The same for IPv4.
    pub ipv4: &'static str,
}

/// All links. core2 is narrow, so that packets do not fit it; core3 has no resolved neighbour.
pub const LINKS: [Link; 17] = [
    Link { name: "core0", role: "core", number: 0x10, mtu: 3000, ipv6: "fd00:0:c0::1/64", ipv4: "" },
    Link { name: "core1", role: "core", number: 0x20, mtu: 3000, ipv6: "fd00:0:c1::1/64", ipv4: "" },
    Link { name: "core2", role: "core", number: 0x30, mtu: 1400, ipv6: "fd00:0:c2::1/64", ipv4: "" },
    Link { name: "acc0", role: "access", number: 0x40, mtu: 1500, ipv6: "fd00:0:a0::1/64", ipv4: "10.1.0.1/24" },
    Link { name: "acc1", role: "access", number: 0x50, mtu: 1500, ipv6: "fd00:0:a1::1/64", ipv4: "10.2.0.1/24" },
    Link { name: "wire0", role: "access", number: 0x60, mtu: 1500, ipv6: "", ipv4: "" },
    Link { name: "fun0", role: "service", number: 0x70, mtu: 1500, ipv6: "fd00:0:f0::1/64", ipv4: "10.3.0.1/24" },
    Link { name: "fun1", role: "service", number: 0x80, mtu: 1500, ipv6: "fd00:0:f1::1/64", ipv4: "10.4.0.1/24" },
    Link { name: "fun2", role: "service", number: 0x90, mtu: 1500, ipv6: "", ipv4: "" },
    Link { name: "fun3", role: "service", number: 0xa0, mtu: 1500, ipv6: "", ipv4: "" },
    Link { name: "dyn0", role: "service", number: 0xa8, mtu: 1500, ipv6: "fd00:0:d0::1/64", ipv4: "" },
    Link { name: "dyn1", role: "service", number: 0xb0, mtu: 1500, ipv6: "fd00:0:d1::1/64", ipv4: "10.5.0.1/24" },
    Link { name: "flow0", role: "service", number: 0xb8, mtu: 1500, ipv6: "", ipv4: "" },
    Link { name: "frames0", role: "service", number: 0xc0, mtu: 1600, ipv6: "", ipv4: "" },
    Link { name: "mask0", role: "service", number: 0xc8, mtu: 1700, ipv6: "fd00:0:d2::1/64", ipv4: "" },
    Link { name: "mask1", role: "service", number: 0xd0, mtu: 1700, ipv6: "", ipv4: "" },
    Link { name: "aware0", role: "service", number: 0xd8, mtu: 1700, ipv6: "fd00:0:d3::1/64", ipv4: "" },
];

/// Addresses that tests use again and again.
pub mod address {
    use std::net::{Ipv4Addr, Ipv6Addr};

    const fn sid(node: u16, function: u16, argument: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfc00, 0, node, function, argument, 0, 0, 0)
    }

    /// `fc00:0:1:FUNCTION::`, a SID of the node under test.
    pub const fn local(function: u16) -> Ipv6Addr {
        sid(1, function, 0)
    }

    /// The same with an argument.
    pub const fn local_with_argument(function: u16, argument: u16) -> Ipv6Addr {
        sid(1, function, argument)
    }

    /// `fc00:0:2:FUNCTION::`, behind core1.
    pub const fn behind_core1(function: u16) -> Ipv6Addr {
        sid(2, function, 0)
    }

    /// `fc00:0:3:FUNCTION::`, behind core2.
    pub const fn behind_core2(function: u16) -> Ipv6Addr {
        sid(3, function, 0)
    }

    /// A SID to which the route is a blackhole.
    pub const BLACKHOLE: Ipv6Addr = sid(4, 1, 0);
    /// A SID to which the route says unreachable.
    pub const UNREACHABLE: Ipv6Addr = sid(5, 1, 0);
    /// A SID behind a neighbour that is not resolved.
    pub const UNRESOLVED: Ipv6Addr = sid(6, 1, 0);
    /// A SID without any route.
    pub const NO_ROUTE: Ipv6Addr = sid(7, 1, 0);

    /// The node's address in the domain.
    pub const NODE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 1, 0, 0, 0, 0, 1);
    /// Another node in the domain, a headend behind core0.
    pub const HEADEND: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 9, 0, 0, 0, 0, 1);
    /// A host behind acc0.
    pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xa0, 0, 0, 0, 0, 2);
    /// A host behind acc1.
    pub const SERVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xa1, 0, 0, 0, 0, 2);
    /// As [`CLIENT`].
    pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    /// As [`SERVER`].
    pub const SERVER4: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
    /// A network that only table 100 knows, behind the router at acc1.
    pub const IN_TABLE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xb9, 0, 0, 0, 0, 9);
    /// As [`IN_TABLE`].
    pub const IN_TABLE4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
}

/// Functions of the node's SIDs: `fc00:0:1:FUNCTION::/64`.
#[allow(missing_docs)]
pub mod function {
    pub const END: u16 = 0x1;
    pub const END_PSP: u16 = 0x2;
    pub const END_USP: u16 = 0x3;
    pub const END_USD: u16 = 0x4;
    pub const END_ALL: u16 = 0x5;
    pub const END_NO_ECHO: u16 = 0x6;
    pub const END_X: u16 = 0x11;
    pub const END_X_PSP: u16 = 0x12;
    pub const END_X_USD: u16 = 0x13;
    pub const END_X_UNRESOLVED: u16 = 0x14;
    pub const END_T: u16 = 0x21;
    pub const END_T_PSP: u16 = 0x22;
    pub const END_T_USD: u16 = 0x23;
    pub const END_DX2: u16 = 0x31;
    pub const END_DX4: u16 = 0x32;
    pub const END_DX6: u16 = 0x33;
    pub const END_DX6_ROUTED: u16 = 0x34;
    pub const END_DX4_ROUTED: u16 = 0x35;
    pub const END_DT4: u16 = 0x41;
    pub const END_DT6: u16 = 0x42;
    pub const END_DT46: u16 = 0x43;
    pub const END_DT6_NESTED: u16 = 0x44;
    pub const END_B6: u16 = 0x51;
    pub const END_B6_RED: u16 = 0x52;
    pub const END_AS: u16 = 0x61;
    pub const END_AS_IPV6: u16 = 0x62;
    pub const END_AS_BYPASS: u16 = 0x63;
    pub const END_AD: u16 = 0x71;
    pub const END_AD_FLOW: u16 = 0x72;
    pub const END_AD_FLOW_OTHER: u16 = 0x73;
    pub const END_AD_ETHERNET: u16 = 0x74;
    pub const END_AM: u16 = 0x81;
    pub const END_AM_NAT: u16 = 0x82;
    pub const END_AN: u16 = 0x91;
}

const SIDS: &str = "
  - {sid: 'fc00:0:1:1::/64', behaviour: End}
  - {sid: 'fc00:0:1:2::/64', behaviour: End, flavours: [PSP]}
  - {sid: 'fc00:0:1:3::/64', behaviour: End, flavours: [USP]}
  - {sid: 'fc00:0:1:4::/64', behaviour: End, flavours: [USD]}
  - {sid: 'fc00:0:1:5::/64', behaviour: End, flavours: [PSP, USP, USD]}
  - {sid: 'fc00:0:1:6::/64', behaviour: End, answer_echo: false}
  - {sid: 'fc00:0:1:11::/64', behaviour: End.X, next_hop: 'fd00:0:c0::2'}
  - {sid: 'fc00:0:1:12::/64', behaviour: End.X, next_hop: 'fd00:0:c0::2', flavours: [PSP]}
  - {sid: 'fc00:0:1:13::/64', behaviour: End.X, next_hop: 'fd00:0:a1::2', flavours: [USD]}
  - {sid: 'fc00:0:1:14::/64', behaviour: End.X, next_hop: 'fd00:0:c1::99'}
  - {sid: 'fc00:0:1:21::/64', behaviour: End.T, table: 100}
  - {sid: 'fc00:0:1:22::/64', behaviour: End.T, table: 100, flavours: [PSP]}
  - {sid: 'fc00:0:1:23::/64', behaviour: End.T, table: 100, flavours: [USD]}
  - {sid: 'fc00:0:1:31::/64', behaviour: End.DX2, port: wire0}
  - {sid: 'fc00:0:1:32::/64', behaviour: End.DX4, next_hop: 10.2.0.2}
  - {sid: 'fc00:0:1:33::/64', behaviour: End.DX6, next_hop: 'fd00:0:a1::2'}
  - {sid: 'fc00:0:1:41::/64', behaviour: End.DT4, table: 100}
  - {sid: 'fc00:0:1:42::/64', behaviour: End.DT6, table: 100}
  - {sid: 'fc00:0:1:43::/64', behaviour: End.DT46}
  - {sid: 'fc00:0:1:44::/64', behaviour: End.DT6, allow_inner_sid: true}
  - {sid: 'fc00:0:1:51::/64', behaviour: End.B6.Encaps, policy: full}
  - {sid: 'fc00:0:1:52::/64', behaviour: End.B6.Encaps.Red, policy: reduced}
  - sid: 'fc00:0:1:61::/64'
    behaviour: End.AS
    next_hop_mac: '02:00:00:00:00:71'
    proxy:
      inner: [IPv4, IPv6]
      to_function: fun0
      from_function: fun1
      segments: ['fc00:0:2:a::', 'fc00:0:2:b::']
      reduced: false
  - sid: 'fc00:0:1:62::/64'
    behaviour: End.AS
    next_hop_mac: '02:00:00:00:00:91'
    proxy: {inner: [IPv6], to_function: fun2, from_function: fun2, segments: ['fc00:0:2:a::']}
  - sid: 'fc00:0:1:63::/64'
    behaviour: End.AS
    next_hop: 10.3.0.2
    proxy: {inner: [IPv4], to_function: fun0, from_function: fun0, segments: ['fc00:0:2:a::'], other_types: bypass}
  - sid: 'fc00:0:1:71::/64'
    behaviour: End.AD
    next_hop_mac: '02:00:00:00:00:a9'
    proxy: {inner: [IPv4, IPv6], to_function: dyn0, from_function: dyn1}
  - sid: 'fc00:0:1:72::/64'
    behaviour: End.AD
    next_hop_mac: '02:00:00:00:00:b9'
    proxy: {inner: [IPv4, IPv6], to_function: flow0, from_function: flow0, memory: flow}
  - sid: 'fc00:0:1:73::/64'
    behaviour: End.AD
    next_hop_mac: '02:00:00:00:00:b9'
    proxy: {inner: [IPv4, IPv6], to_function: flow0, from_function: flow0, memory: flow}
  - sid: 'fc00:0:1:74::/64'
    behaviour: End.AD
    proxy: {inner: [Ethernet], to_function: frames0, from_function: frames0}
  - sid: 'fc00:0:1:81::/64'
    behaviour: End.AM
    next_hop_mac: '02:00:00:00:00:c9'
    proxy: {to_function: mask0, from_function: mask0}
  - sid: 'fc00:0:1:82::/64'
    behaviour: End.AM
    flavours: [NAT, Caching]
    next_hop_mac: '02:00:00:00:00:d1'
    proxy: {to_function: mask1, from_function: mask1}
  - sid: 'fc00:0:1:91::/64'
    behaviour: End.AN
    next_hop_mac: '02:00:00:00:00:d9'
    proxy: {to_function: aware0, from_function: aware0, may_change: insert_next}
";

const POLICIES: &str = "
  - {name: full, mode: H.Encaps, segment_lists: [{segments: ['fc00:0:2:a::', 'fc00:0:2:b::', 'fc00:0:2:c::']}]}
  - {name: reduced, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:2:a::', 'fc00:0:2:b::', 'fc00:0:2:c::']}]}
  - {name: one, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:2:a::']}], hop_limit: 33, source_address: 'fd00:0:1::5'}
  - {name: one-full, mode: H.Encaps, segment_lists: [{segments: ['fc00:0:2:a::']}]}
  - {name: insert, mode: H.Insert, segment_lists: [{segments: ['fc00:0:2:a::', 'fc00:0:2:b::']}]}
  - {name: dscp, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:2:a::', 'fc00:0:2:b::']}], traffic_class: {dscp: 46}}
  - {name: narrow, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:3:a::', 'fc00:0:3:b::']}]}
  - {name: empty, segment_lists: []}
  - {name: unreachable, segment_lists: [{segments: ['fc00:0:5:1::']}]}
  - {name: unresolved, segment_lists: [{segments: ['fc00:0:6:1::', 'fc00:0:2:b::']}]}
  - {name: local, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:1:1::', 'fc00:0:2:b::']}]}
  - name: ten
    mode: H.Encaps
    segment_lists:
      - segments: ['fc00:0:2:1::', 'fc00:0:2:2::', 'fc00:0:2:3::', 'fc00:0:2:4::', 'fc00:0:2:5::',
                   'fc00:0:2:6::', 'fc00:0:2:7::', 'fc00:0:2:8::', 'fc00:0:2:9::', 'fc00:0:2:a::']
  - name: weighted
    mode: H.Encaps.Red
    segment_lists: [{weight: 1, segments: ['fc00:0:2:a::', 'fc00:0:2:c::']}, {weight: 3, segments: ['fc00:0:2:b::', 'fc00:0:2:c::']}]
  - {name: l2, mode: H.Encaps.L2, segment_lists: [{segments: ['fc00:0:2:a::', 'fc00:0:2:b::']}]}
";

const STEERING: &str = "
  - {name: full6, destination: 'fd00:0:e0::/64', policy: full}
  - {name: full4, destination: 10.20.0.0/24, policy: full}
  - {name: reduced6, destination: 'fd00:0:e1::/64', policy: reduced}
  - {name: reduced4, destination: 10.20.1.0/24, policy: reduced}
  - {name: one6, destination: 'fd00:0:e2::/64', policy: one}
  - {name: one4, destination: 10.20.2.0/24, policy: one}
  - {name: onefull6, destination: 'fd00:0:e3::/64', policy: one-full}
  - {name: insert6, destination: 'fd00:0:e4::/64', policy: insert}
  - {name: dscp6, destination: 'fd00:0:e5::/64', policy: dscp}
  - {name: narrow6, destination: 'fd00:0:e6::/64', policy: narrow}
  - {name: narrow4, destination: 10.20.6.0/24, policy: narrow}
  - {name: empty6, destination: 'fd00:0:e7::/64', policy: empty}
  - {name: unreachable6, destination: 'fd00:0:e8::/64', policy: unreachable}
  - {name: unresolved6, destination: 'fd00:0:e9::/64', policy: unresolved}
  - {name: local6, destination: 'fd00:0:ea::/64', policy: local}
  - {name: ten6, destination: 'fd00:0:eb::/64', policy: ten}
  - {name: weighted6, destination: 'fd00:0:ec::/64', policy: weighted}
  - {name: web, destination: 10.21.0.0/16, protocol: tcp, destination_ports: [80, '8000-8080'], policy: full}
  - {name: web-from, destination: 10.21.0.0/16, source: 10.1.0.128/25, policy: reduced}
  - {name: from-acc1, destination: 10.21.0.0/16, ingress: acc1, policy: one}
  - {name: dropped, destination: 10.22.0.0/16, action: drop}
  - {name: passed, destination: 10.22.1.0/24, action: pass}
";

/// Configuration of the node in YAML. `domain` replaces the contents of the key `domain`.
pub fn configuration(domain: &str) -> String {
    let ports: String = LINKS
        .iter()
        .map(|link| match link.name {
            "wire0" => "  - {name: wire0, role: access, l2_policy: l2}\n".to_owned(),
            "acc1" => "  - {name: acc1, role: access, accept_hmac: true}\n".to_owned(),
            name => format!("  - {{name: {name}, role: {}}}\n", link.role),
        })
        .collect();
    format!(
        "node: golden\nsource_address: 'fd00:0:1::1'\nsource_address_ipv4: 192.0.2.1\nlocator: 'fc00:0:1::/48'\n\
         domain: {domain}\nsettings: {{icmp_errors_per_second: 1000000, icmp_error_burst: 1000000, \
         echo_replies_per_second: 1000000, echo_reply_burst: 1000000, tcp_resets_per_second: 1000000, tcp_reset_burst: 1000000}}\n\
         ports:\n{ports}sids:{SIDS}policies:{POLICIES}steering:{STEERING}"
    )
}

/// The domain that [`configuration`] has unless a test wants another.
pub const DOMAIN: &str = "{sid_blocks: ['fc00::/16']}";

/// The node's namespace, and one that holds all its neighbours.
#[derive(Debug)]
pub struct Network {
    /// The node.
    pub node: Netns,
    /// The far ends of all links; an interface is called as the node's with `-far`.
    pub world: Netns,
}

impl Network {
    /// Brings up all links, static neighbours and routes.
    #[allow(clippy::new_without_default)] // it changes the machine
    pub fn new() -> Self {
        let (node, world) = (Netns::new(), Netns::new());
        world.sysctl("ipv6.conf.default.disable_ipv6=1");
        world.sysctl("ipv6.conf.all.disable_ipv6=1");
        let mut wiring = Wiring::default();
        for link in LINKS {
            let (far, near_mac, far_mac) = (format!("{}-far", link.name), mac(link.number), mac(link.number + 1));
            wiring.veth(
                End { netns: &node, name: link.name, mac: &near_mac.to_string() },
                End { netns: &world, name: &far, mac: &far_mac.to_string() },
                link.mtu,
            );
            for address in [link.ipv6, link.ipv4].into_iter().filter(|address| !address.is_empty()) {
                let neighbour =
                    address.split('/').next().expect("an address").replace("::1", "::2").replace(".0.1", ".0.2");
                wiring.ip(&node, &format!("address add {address} dev {}", link.name));
                wiring.ip(&node, &format!("neigh add {neighbour} lladdr {far_mac} nud permanent dev {}", link.name));
            }
        }
        wiring.ip(
            &node,
            "address add fd00:0:1::1/128 dev lo
             route add fd00:0:9::/48 via fd00:0:c0::2
             route add fc00:0:2::/48 via fd00:0:c1::2
             route add fc00:0:3::/48 via fd00:0:c2::2
             route add blackhole fc00:0:4::/48
             route add unreachable fc00:0:5::/48
             route add fc00:0:6::/48 via fd00:0:c1::99
             route add blackhole fc00:0:1::/48
             route add table 100 fd00:0:b9::/48 via fd00:0:a1::2
             route add table 100 fc00:0:2::/48 via fd00:0:c0::2
             route add table 100 10.9.0.0/16 via 10.2.0.2",
        );
        wiring.lay();
        Self { node, world }
    }

    /// Links with the names that a namespace `nf` for End.AN.NF has, and those of the loop. Nothing is at their far ends.
    pub fn links_to_netfilter(&self) {
        let mut wiring = Wiring::default();
        for (at, name) in (0xe0_u8..).zip(["nfw-nf", "nfe-nf", "segue-loop0", "segue-loop1"]) {
            let (near, far) = (format!("02:00:00:00:01:{at:02x}"), format!("02:00:00:00:02:{at:02x}"));
            let near = End { netns: &self.node, name, mac: &near };
            wiring.veth(near, End { netns: &self.world, name: &format!("{name}-far"), mac: &far }, 3000);
        }
        wiring.lay();
    }
}

fn mac(last: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, last])
}

fn link(name: &str) -> Link {
    *LINKS.iter().find(|link| link.name == name).unwrap_or_else(|| panic!("no link {name}"))
}

/// MAC addresses of the node and its neighbour on a link.
pub fn macs(name: &str) -> (MacAddress, MacAddress) {
    let number = link(name).number;
    (mac(number), mac(number + 1))
}

/// The Ethernet header of a frame from the neighbour on this link to the node.
pub fn arriving(name: &str) -> PacketBuilder {
    let (node, neighbour) = macs(name);
    PacketBuilder::ethernet(neighbour, node)
}

/// The Ethernet header of a frame from the node to its neighbour on this link.
pub fn leaving(name: &str) -> PacketBuilder {
    let (node, neighbour) = macs(name);
    PacketBuilder::ethernet(node, neighbour)
}

/// What an ICMP error has behind its second word that tells of the label stack of `frame`, an Ethernet frame with one: 128 octets of the
/// packet behind the stack, filled up with zeros, and the stack in an extension (RFC 4884 section 7, RFC 4950).
pub fn quote_with_stack(frame: &[u8]) -> Vec<u8> {
    const ETHERNET: usize = 14;
    let entries = 1 + frame[ETHERNET..].chunks(4).position(|entry| entry[2] & 1 == 1).expect("the bottom of the stack");
    let (stack, packet) = frame[ETHERNET..].split_at(4 * entries);
    let mut quote = packet.to_vec();
    quote.resize(128, 0);
    let object = [&u16::try_from(4 + stack.len()).expect("a length").to_be_bytes()[..], &[1, 1], stack].concat();
    let checksum = Checksum::new().add_bytes(&[0x20, 0, 0, 0]).add_bytes(&object).finish();
    [&quote[..], &[0x20, 0], &checksum.to_be_bytes(), &object].concat()
}

/// The node's own IPv6 address on a link.
pub fn port_ipv6(name: &str) -> Ipv6Addr {
    link(name).ipv6.split('/').next().and_then(|text| text.parse().ok()).expect("a link with an IPv6 address")
}

/// The node's own IPv4 address on a link.
pub fn port_ipv4(name: &str) -> Ipv4Addr {
    link(name).ipv4.split('/').next().and_then(|text| text.parse().ok()).expect("a link with an IPv4 address")
}
