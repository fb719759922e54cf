//! What the data plane itself says - ICMP errors, echo replies, TCP resets - over real links: to neighbours that the kernel does
//! not know yet, and into veths whose far end has neither XDP nor GRO, which take no frame from XDP.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::told::{ICMP, ICMPV6, Message, TIME_EXCEEDED, TOO_BIG, message};
use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

/// Long enough for a busy machine; nothing waits for it that arrives.
const PATIENCE: Duration = Duration::from_secs(30);
/// A host behind acc0, on the link.
const NEAR: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 1, 0, 2), address("a0", 2));
/// A host behind the router at acc1; in table 100 another one, behind the router at acc2.
const BEHIND: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 7, 0, 9), address("b7", 9));
const STEERED: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 20, 0, 1), address("e0", 1));
const REFUSED: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 21, 0, 1), address("e1", 1));
const HEADEND: Ipv6Addr = address("9", 1);
const END: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 1, 1, 0, 0, 0, 0);
const END_DT46: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 1, 0x43, 0, 0, 0, 0);

/// `fd00:0:NETWORK::HOST`.
const fn address(network: &str, host: u16) -> Ipv6Addr {
    let network = match u16::from_str_radix(network, 16) {
        Ok(number) => number,
        Err(_) => panic!("a hexadecimal number"),
    };
    Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, host)
}

/// A node with its neighbours, whose kernels answer ARP and neighbour discovery. No neighbour is known to the node but the one
/// that steered packets go to.
struct Links {
    node: Netns,
    world: Netns,
}

const LINKS: [(&str, &str, &str); 4] =
    [("acc0", "a0", "10.1.0"), ("acc1", "a1", "10.2.0"), ("acc2", "a2", "10.3.0"), ("core0", "c0", "10.4.0")];

impl Links {
    fn new() -> Self {
        let links = Self { node: Netns::new(), world: Netns::new() };
        for (name, ipv6, ipv4) in LINKS {
            let (near, far) = (format!("02:00:00:00:{ipv6}:01"), format!("02:00:00:00:{ipv6}:02"));
            veth(
                End { netns: &links.node, name, mac: &near },
                End { netns: &links.world, name: &format!("{name}-far"), mac: &far },
                1500,
            );
            for (netns, name, host) in [(&links.node, name, 1), (&links.world, &*format!("{name}-far"), 2)] {
                netns.script(&format!(
                    "ip -6 address add fd00:0:{ipv6}::{host}/64 dev {name} nodad
                     ip -4 address add {ipv4}.{host}/24 dev {name}"
                ));
            }
        }
        links.node.script(
            "ip -6 address add fd00:0:1::1/128 dev lo
             ip -6 route add fc00:0:2::/48 via fd00:0:c0::99
             ip -6 neigh add fd00:0:c0::99 lladdr 02:00:00:00:c0:02 nud permanent dev core0
             ip -6 route add fd00:0:9::/48 via fd00:0:c0::2
             ip -6 route add fd00:0:b7::/48 via fd00:0:a1::2
             ip -4 route add 10.7.0.0/16 via 10.2.0.2
             ip -6 route add table 100 fd00:0:b7::/48 via fd00:0:a2::2
             ip -4 route add table 100 10.7.0.0/16 via 10.3.0.2
             ip -6 route add table 100 fd00:0:e0::/64 via fd00:0:a2::2
             ip -4 route add table 100 10.20.0.0/16 via 10.3.0.2",
        );
        links
    }

    /// The data plane on it, in front of far ends with neither XDP nor GRO.
    fn load(&self, settings: &str) -> Node<'_> {
        let file = |name: &str, refused: &str| {
            format!(
                "{{file: {name}, text: \"*filter\\n:FORWARD ACCEPT [0:0]\\n\
                 -A FORWARD -d {refused} -p tcp -j REJECT --reject-with tcp-reset\\n\
                 -A FORWARD -d {refused} -j REJECT\\nCOMMIT\\n\"}}"
            )
        };
        let node = Node::load(
            &self.node,
            &format!(
                "node: answers\nsource_address: 'fd00:0:1::1'\nsource_address_ipv4: 192.0.2.1\nlocator: 'fc00:0:1::/48'\n\
                 domain: {{sid_blocks: ['fc00::/16']}}\nsettings: {settings}\n\
                 ports:\n  - {{name: acc0, role: access, firewall: fw}}\n  - {{name: acc1, role: access}}\n  \
                 - {{name: acc2, role: access}}\n  - {{name: core0, role: core}}\n\
                 firewalls:\n  - {{name: fw, ipv6: {}, ipv4: {}}}\n\
                 sids:\n  - {{sid: 'fc00:0:1:1::/64', behaviour: End}}\n  \
                 - {{sid: 'fc00:0:1:43::/64', behaviour: End.DT46, table: 100}}\n\
                 policies:\n  - {{name: path, segment_lists: [{{segments: ['fc00:0:2:a::', 'fc00:0:2:b::']}}]}}\n\
                 steering:\n  - {{destination: 'fd00:0:e0::/64', policy: path}}\n  \
                 - {{destination: 10.20.0.0/16, policy: path}}\n",
                file("v6", "fd00:0:e1::/64"),
                file("v4", "10.21.0.0/16"),
            ),
        );
        for (name, ..) in LINKS {
            // The last user of the far end's NAPI: from now on it takes no frame that XDP redirects.
            self.world.sh(&format!("ethtool -K {name}-far gro off"));
        }
        node
    }

    fn socket(&self, name: &str) -> PacketSocket {
        PacketSocket::open(&self.world, &format!("{name}-far"))
    }

    /// Nobody's link-layer address is known.
    fn forget(&self) {
        self.node.sh("ip neigh flush all");
        for line in ["ip -4 neigh show", "ip -6 neigh show"] {
            let left = self.node.sh(line);
            let known: Vec<_> = left.lines().filter(|line| line.contains("lladdr") && !line.contains("PERM")).collect();
            assert!(known.is_empty(), "{known:?}");
        }
    }
}

/// Link-layer addresses of the node and of its neighbour on a link.
fn macs(port: &str) -> ([u8; 6], [u8; 6]) {
    let (_, number, _) = LINKS.iter().find(|(name, ..)| *name == port).expect("a link");
    let last = u8::from_str_radix(number, 16).expect("a hexadecimal number");
    ([2, 0, 0, 0, last, 1], [2, 0, 0, 0, last, 2])
}

/// From the neighbour to the node.
fn frame(port: &str) -> PacketBuilder {
    let (node, neighbour) = macs(port);
    PacketBuilder::ethernet(neighbour, node)
}

/// The packets of one flow in both families: of so many octets, that many hops from their end.
fn both(
    front: &dyn Fn() -> PacketBuilder,
    from: (Ipv4Addr, Ipv6Addr),
    to: (Ipv4Addr, Ipv6Addr),
    octets: usize,
    hops: u8,
) -> [(u8, PacketBuilder); 2] {
    let udp = |packet: PacketBuilder, header| packet.udp(UdpRepr::new(40_000, 53)).payload(&vec![7; octets - header]);
    let four = Ipv4Repr { time_to_live: hops, dont_fragment: true, ..Ipv4Repr::new(from.0, to.0) };
    let six = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(from.1, to.1) };
    [(4, udp(front().inner_ipv4(four), 28)), (6, udp(front().inner_ipv6(six), 48))]
}

/// Sends it by one link, from neighbours that are not known; the message comes by another, to the right neighbour.
fn is_told(links: &Links, case: &str, by: &str, packet: &PacketBuilder, at: &str, wanted: Message) -> Vec<u8> {
    links.forget();
    let (from, to) = (links.socket(by), links.socket(at));
    let elsewhere: Vec<_> =
        LINKS.iter().filter(|(name, ..)| *name != at).map(|(name, ..)| (*name, links.socket(name))).collect();
    from.send(&packet.build());
    let found = to.receive_where(PATIENCE, |frame| message(frame) == Some(wanted));
    let found = found.unwrap_or_else(|| panic!("{case}: nothing like {wanted:?} arrives at {at}"));
    let (node, neighbour) = macs(at);
    assert_eq!(found[..6], neighbour, "{case}: to the neighbour");
    assert_eq!(found[6..12], node, "{case}: from the port that it leaves by");
    for (name, socket) in elsewhere {
        let strange = socket.receive_where(Duration::ZERO, |frame| message(frame) == Some(wanted));
        assert!(strange.is_none(), "{case}: at {name} too");
    }
    found
}

const PORT_UNREACHABLE: [Message; 2] = [(4, ICMP, [3, 3]), (6, ICMPV6, [1, 4])];

#[test]
#[ignore = "needs root"]
fn errors_reach_who_sent_the_packet() {
    let links = Links::new();
    let _node = links.load("{}");
    for ((of, packet), wanted) in both(&|| frame("acc0"), NEAR, STEERED, 100, 1).into_iter().zip(TIME_EXCEEDED) {
        is_told(&links, &format!("IPv{of}, hop limit"), "acc0", &packet, "acc0", wanted);
    }
    for ((of, packet), wanted) in both(&|| frame("acc0"), NEAR, STEERED, 1500, 64).into_iter().zip(TOO_BIG) {
        is_told(&links, &format!("IPv{of}, too big"), "acc0", &packet, "acc0", wanted);
    }
    for ((of, packet), wanted) in both(&|| frame("acc0"), NEAR, REFUSED, 100, 64).into_iter().zip(PORT_UNREACHABLE) {
        is_told(&links, &format!("IPv{of}, REJECT"), "acc0", &packet, "acc0", wanted);
    }
    let syn = TcpRepr::new(40_000, 22, 2);
    let four = frame("acc0").ipv4(Ipv4Repr::new(NEAR.0, REFUSED.0)).tcp(syn.clone());
    is_told(&links, "IPv4, TCP reset", "acc0", &four, "acc0", (4, 6, [0x14, 0]));
    let six = frame("acc0").ipv6(Ipv6Repr::new(NEAR.1, REFUSED.1)).tcp(syn);
    is_told(&links, "IPv6, TCP reset", "acc0", &six, "acc0", (6, 6, [0x14, 0]));
    let big = frame("core0").ipv6(Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(HEADEND, END) }).srh_to(END);
    is_told(&links, "an outer packet", "core0", &big, "core0", TIME_EXCEEDED[1]);
}

trait To {
    fn srh_to(self, sid: Ipv6Addr) -> PacketBuilder;
}

impl To for PacketBuilder {
    fn srh_to(self, sid: Ipv6Addr) -> PacketBuilder {
        let list = [sid, Ipv6Addr::new(0xfc00, 0, 2, 0xa, 0, 0, 0, 0)];
        self.srh(segue_wire::SrhRepr::new(&list)).inner_ipv6(Ipv6Repr::new(NEAR.1, STEERED.1)).udp(UdpRepr::new(1, 2))
    }
}

#[test]
#[ignore = "needs root"]
fn echo_replies_reach_who_asked() {
    let links = Links::new();
    let _node = links.load("{}");
    for from in [HEADEND, address("c0", 2), address("c0", 7)] {
        if from == address("c0", 7) {
            links.world.sh("ip -6 address add fd00:0:c0::7/64 dev core0-far nodad");
        }
        let request = Icmpv6Repr::EchoRequest { identifier: 5, sequence_number: 1, data: vec![9; 64] };
        let request = frame("core0").ipv6(Ipv6Repr::new(from, END)).icmpv6(request);
        is_told(&links, &format!("{from} asks"), "core0", &request, "core0", (6, ICMPV6, [129, 0]));
    }
}

#[test]
#[ignore = "needs root"]
fn errors_go_where_the_source_is() {
    let links = Links::new();
    let _node = links.load("{}");
    for ((of, packet), wanted) in both(&|| frame("acc0"), BEHIND, STEERED, 100, 1).into_iter().zip(TIME_EXCEEDED) {
        let case = format!("IPv{of}, a source that is routed by another port");
        is_told(&links, &case, "acc0", &packet, "acc1", wanted);
    }
    let outer = || frame("core0").ipv6(Ipv6Repr::new(HEADEND, END_DT46));
    for ((of, packet), wanted) in both(&outer, BEHIND, STEERED, 100, 1).into_iter().zip(TIME_EXCEEDED) {
        let case = format!("IPv{of}, an inner packet: by the table of its SID, from the address of the port there");
        let found = is_told(&links, &case, "core0", &packet, "acc2", wanted);
        let source = if of == 4 { &found[26..30] } else { &found[22..38] };
        let own = (Ipv4Addr::new(10, 3, 0, 1).octets().to_vec(), address("a2", 1).octets().to_vec());
        assert_eq!(source, if of == 4 { own.0 } else { own.1 }, "{case}");
    }
}

/// Made-up sources do not fill the neighbour table: those of the link are answered where the packet came from, and others are
/// looked for at a rate of their own.
#[test]
#[ignore = "needs root"]
fn a_flood_of_sources_fills_no_neighbour_table() {
    const FLOOD: u16 = 600;
    let links = Links::new();
    let _node = links.load("{icmp_errors_per_second: 1000000, icmp_error_burst: 1000000}");
    let (socket, start) = (links.socket("acc0"), Instant::now());
    let entries = |port: &str| {
        let all = [4, 6].map(|family| links.node.sh(&format!("ip -{family} neigh show dev {port} nud all")));
        // Not the router itself, which asks for the node.
        let made_up = |line: &&str| {
            (line.starts_with("10.") || line.starts_with("fd00")) && !line.contains(".2 ") && !line.contains("::2 ")
        };
        let found: Vec<_> = all.iter().flat_map(|text| text.lines()).filter(made_up).map(str::to_owned).collect();
        found
    };
    links.forget();
    for (ipv4, ipv6, port) in [(1, "a0", "acc0"), (2, "a1", "acc1")] {
        assert_eq!(entries(port), [""; 0]);
        for host in 3..3 + FLOOD {
            let from = (Ipv4Addr::new(10, ipv4, 0, (host % 250 + 3) as u8), address(ipv6, host));
            for (_, packet) in both(&|| frame("acc0"), from, STEERED, 100, 1) {
                socket.send(&packet.build());
            }
        }
        // Whoever asks last has had all before him answered.
        for (_, packet) in both(&|| frame("acc0"), NEAR, STEERED, 100, 1) {
            socket.send(&packet.build());
        }
        for wanted in TIME_EXCEEDED {
            let to_near = |frame: &[u8]| {
                let to = if wanted.0 == 4 { frame.get(30..34) } else { frame.get(38..54) };
                let near = (NEAR.0.octets(), NEAR.1.octets());
                message(frame) == Some(wanted) && to == Some(if wanted.0 == 4 { &near.0[..] } else { &near.1[..] })
            };
            assert!(socket.receive_where(PATIENCE, to_near).is_some(), "{wanted:?}");
        }
        let made = entries(port);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let most = if port == "acc0" { 0 } else { 50 * (2 + start.elapsed().as_secs() as usize) * processors };
        assert!(made.len() <= most, "{} new neighbours at {port}, at most {most}: {made:?}", made.len());
        assert!(port == "acc0" || !made.is_empty(), "the kernel looks for neighbours at {port}");
    }
}
