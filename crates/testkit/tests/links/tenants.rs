//! Two tenants with the same addresses, each at both ends of a chain of its own: what the nodes say about the packets of one
//! reaches that one, and never the other.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::told::{ICMP, ICMPV6, Message, TIME_EXCEEDED, TOO_BIG, message};
use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

const PATIENCE: Duration = Duration::from_secs(30);
const CORE_MTU: u32 = 1560;
/// Of the tenants' links in the east; in the west they are wider.
const EAST_MTU: u32 = 1400;
/// IPv6 header, and an SRH with one segment.
const ENVELOPE: u32 = 40 + 8 + 16;
/// A host of either tenant, in the west.
const WEST: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 1, 0, 2), Ipv6Addr::new(0xfd00, 0, 0xa1, 0, 0, 0, 0, 2));
/// In the east.
const EAST: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 2, 0, 2), Ipv6Addr::new(0xfd00, 0, 0xa2, 0, 0, 0, 0, 2));
/// The tenants' chains lead to the east for it, whose tables do not know it.
const NOWHERE: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 3, 0, 2), Ipv6Addr::new(0xfd00, 0, 0xa3, 0, 0, 0, 0, 2));
const UNREACHABLE: [Message; 2] = [(4, ICMP, [3, 1]), (6, ICMPV6, [1, 3])];

/// Headends 1 (west) and 2 (east), which are each other's neighbours, with a port for each tenant: `red` and `blue`. A port's
/// routes are in a table of its own, and so are those of its tenant's End.DT46. No table has a route to a tenant's other end: its
/// hosts reach each other by steering alone.
struct Domain {
    edges: [Netns; 2],
    world: Netns,
}

const TENANTS: [(&str, u8, u8); 2] = [("red", 101, 0xa), ("blue", 102, 0xb)];

fn mac(edge: u8, link: u8, side: u8) -> [u8; 6] {
    [2, 0, 0, edge, link, side]
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

impl Domain {
    fn new() -> Self {
        let domain = Self { edges: [Netns::new(), Netns::new()], world: Netns::new() };
        domain
            .world
            .script("sysctl -q net.ipv6.conf.default.disable_ipv6=1\nsysctl -q net.ipv6.conf.all.disable_ipv6=1");
        let (west, east) = (text(mac(1, 0, 1)), text(mac(2, 0, 1)));
        veth(
            End { netns: &domain.edges[0], name: "core", mac: &west },
            End { netns: &domain.edges[1], name: "core", mac: &east },
            CORE_MTU,
        );
        for (edge, other, far, mtu) in [(1, 2, &east, 1500), (2, 1, &west, EAST_MTU)] {
            let netns = &domain.edges[usize::from(edge) - 1];
            netns.script(&format!(
                "ip -6 address add fd00:0:{edge}::1/128 dev lo
                 ip -6 address add fd00:0:c0::{edge}/64 dev core nodad
                 ip -6 neigh add fd00:0:c0::{other} lladdr {far} nud permanent dev core
                 ip -6 route add fc00:0:{other}::/48 via fd00:0:c0::{other}
                 ip -6 route add fd00:0:{other}::/48 via fd00:0:c0::{other}"
            ));
            for (tenant, table, number) in TENANTS {
                let (near, far) = (text(mac(edge, number, 1)), text(mac(edge, number, 2)));
                veth(
                    End { netns, name: tenant, mac: &near },
                    End { netns: &domain.world, name: &format!("{tenant}{edge}"), mac: &far },
                    mtu,
                );
                netns.script(&format!(
                    "ip -6 address add fd00:0:a{edge}::1/64 dev {tenant} nodad noprefixroute
                     ip -4 address add 10.{edge}.0.1/24 dev {tenant} noprefixroute
                     ip -6 neigh add fd00:0:a{edge}::2 lladdr {far} nud permanent dev {tenant}
                     ip -4 neigh add 10.{edge}.0.2 lladdr {far} nud permanent dev {tenant}
                     ip -6 route add table {table} fd00:0:a{edge}::/64 dev {tenant}
                     ip -4 route add table {table} 10.{edge}.0.0/24 dev {tenant}
                     ip -6 rule add iif {tenant} table {table}
                     ip -4 rule add iif {tenant} table {table}"
                ));
            }
        }
        domain
    }

    fn load(&self, edge: u8) -> Node<'_> {
        let other = 3 - edge;
        let each = |line: &dyn Fn(&str, u8, u8) -> String| {
            TENANTS.map(|(tenant, table, number)| line(tenant, table, number)).concat()
        };
        let ports = each(&|tenant, _, _| format!("  - {{name: {tenant}, role: access}}\n"));
        let sids = each(&|_, table, number| {
            format!("  - {{sid: 'fc00:0:{edge}:{number:x}::/64', behaviour: End.DT46, table: {table}}}\n")
        });
        let policies = each(&|tenant, _, number| {
            format!(
                "  - {{name: {tenant}, mode: H.Encaps, segment_lists: [{{segments: ['fc00:0:{other}:{number:x}::']}}]}}\n"
            )
        });
        let steering = each(&|tenant, _, _| {
            let rule = |to: String| format!("  - {{destination: '{to}', ingress: {tenant}, policy: {tenant}}}\n");
            [other, 3].map(|to| rule(format!("fd00:0:a{to}::/64")) + &rule(format!("10.{to}.0.0/16"))).concat()
        });
        Node::load(
            &self.edges[usize::from(edge) - 1],
            &format!(
                "node: edge{edge}\nsource_address: 'fd00:0:{edge}::1'\nsource_address_ipv4: 192.0.2.{edge}\n\
                 locator: 'fc00:0:{edge}::/48'\ndomain: {{sid_blocks: ['fc00::/16']}}\n\
                 ports:\n  - {{name: core, role: core}}\n{ports}sids:\n{sids}policies:\n{policies}steering:\n{steering}"
            ),
        )
    }

    fn socket(&self, tenant: &str, edge: u8) -> PacketSocket {
        PacketSocket::open(&self.world, &format!("{tenant}{edge}"))
    }
}

/// A packet of a tenant's host at this edge, in both families: of so many octets, that many hops from their end.
fn both(edge: u8, number: u8, to: (Ipv4Addr, Ipv6Addr), octets: usize, hops: u8) -> [PacketBuilder; 2] {
    let front = || PacketBuilder::ethernet(mac(edge, number, 2), mac(edge, number, 1));
    let udp = |packet: PacketBuilder, header| packet.udp(UdpRepr::new(40_000, 53)).payload(&vec![7; octets - header]);
    let from = if edge == 1 { WEST } else { EAST };
    let four = Ipv4Repr { time_to_live: hops, dont_fragment: true, ..Ipv4Repr::new(from.0, to.0) };
    let six = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(from.1, to.1) };
    [udp(front().ipv4(four), 28), udp(front().ipv6(six), 48)]
}

/// The MTU that a message tells.
fn mtu(frame: &[u8]) -> u32 {
    let octets = if frame[12] == 8 { [0, 0, frame[40], frame[41]] } else { frame[58..62].try_into().expect("four") };
    u32::from_be_bytes(octets)
}

/// Destination of a message, and what it quotes of the packet that it is about but for its first octets: hop limit and IPv4 checksum
/// differ.
fn about(frame: &[u8]) -> (&[u8], &[u8]) {
    if frame[12] == 8 { (&frame[30..34], &frame[14 + 28 + 12..]) } else { (&frame[38..54], &frame[14 + 48 + 8..]) }
}

#[test]
#[ignore = "needs root"]
fn each_tenant_is_told_of_its_own_packets_and_no_other() {
    let domain = Domain::new();
    let (_west, _east) = (domain.load(1), domain.load(2));
    let fits = CORE_MTU - ENVELOPE;
    for (tenant, _, number) in TENANTS {
        let sender = domain.socket(tenant, 1);
        for (case, to, octets, hops, wanted, told_mtu) in [
            ("does not fit the core", EAST, 1499, 64, TOO_BIG, Some(fits)),
            ("expires at the first node", EAST, 100, 1, TIME_EXCEEDED, None),
            ("does not fit the link behind the chain", EAST, 1420, 64, TOO_BIG, Some(EAST_MTU)),
            ("expires where it leaves the chain", EAST, 100, 2, TIME_EXCEEDED, None),
            ("has no route behind the chain", NOWHERE, 100, 64, UNREACHABLE, None),
        ] {
            for (packet, wanted) in both(1, number, to, octets, hops).into_iter().zip(wanted) {
                let case = format!("a packet of {tenant}, IPv{}, {case}", wanted.0);
                let others: Vec<_> = [("red", 1), ("blue", 1), ("red", 2), ("blue", 2)]
                    .into_iter()
                    .filter(|other| *other != (tenant, 1))
                    .map(|(tenant, edge)| (tenant, edge, domain.socket(tenant, edge)))
                    .collect();
                let packet = packet.build();
                sender.send(&packet);
                let found = sender.receive_where(PATIENCE, |frame| message(frame) == Some(wanted));
                let found = found.unwrap_or_else(|| panic!("{case}: nothing like {wanted:?} comes back"));
                let (to, quoted) = about(&found);
                let octets =
                    if wanted.0 == 4 { (&packet[26..30], &packet[26..]) } else { (&packet[22..38], &packet[22..]) };
                assert_eq!(to, octets.0, "{case}: to the sender");
                assert_eq!(quoted, &octets.1[..quoted.len()], "{case}: about its packet");
                if let Some(wanted) = told_mtu {
                    assert_eq!(mtu(&found), wanted, "{case}");
                }
                for (tenant, edge, socket) in others {
                    // What nodes' kernels tell groups (MLD reports, some seconds after an interface is up) is about no packet.
                    let strange = socket.receive_where(Duration::ZERO, |frame| frame[0] & 1 == 0);
                    assert!(strange.is_none(), "{case}: {tenant} at edge {edge} gets {strange:?}");
                }
            }
        }
        // What fits arrives, so that all of this was about the tenant's own chain.
        let receiver = domain.socket(tenant, 2);
        for packet in both(1, number, EAST, 1400, 64) {
            sender.send(&packet.build());
            let arrived = receiver.receive_where(PATIENCE, |frame| frame.len() == 14 + 1400);
            assert!(arrived.is_some_and(|frame| frame[..6] == mac(2, number, 2)), "{tenant}");
        }
    }
}
