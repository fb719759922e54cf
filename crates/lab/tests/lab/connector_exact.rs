//! The connector's scenarios that only the exact proxy can do: End.AN.NF, and End.AD with `memory: packet`. The function is a kernel
//! that forwards; several chains, the same function more than once, the same flow in two chains, rewriting.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::common::agent::Agent;
use segue_testkit::netns::Netns;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::site::{
    EAST_HEADEND, EAST_HOST, Site, WEST_HEADEND, WEST_HOST, east, east_macs, from_core, local, to_core, west, west_macs,
};
use segue_testkit::vnf::{Steered, is_chatter};
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

/// A frame's way through takes microseconds, unless the machine is very busy.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);
const QUIET_FOR: Duration = Duration::from_millis(50);

fn outer(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, flow_label: 0xabcde, ..Ipv6Repr::new(source, destination) }
}

fn inner(packet: PacketBuilder, number: u16, hop_limit: u8) -> PacketBuilder {
    let header = Ipv6Repr { hop_limit, flow_label: 0x54321, ..Ipv6Repr::new(WEST_HOST, EAST_HOST) };
    packet.inner_ipv6(header).udp(UdpRepr::new(number, 40_001)).payload(b"for the functions")
}

fn sent(list: &[Ipv6Addr], number: u16) -> Vec<u8> {
    inner(from_core(0).ipv6(outer(WEST_HEADEND, list[0], 64)).srh(SrhRepr::new(list)), number, 61).build()
}

fn netfilter(sid: u16, namespace: &Netns) -> String {
    format!(
        "  - {{sid: 'fc00:0:1:{sid:x}::/64', behaviour: End.AN.NF, argument_length: 16, netfilter: {{namespace: {}}}}}\n",
        namespace.name()
    )
}

fn exact(sid: u16, function: u8, direction: (&str, &str), mac: impl std::fmt::Display) -> String {
    let (to, from) = direction;
    format!(
        "  - sid: 'fc00:0:1:{sid:x}::/64'\n    behaviour: End.AD\n    next_hop_mac: '{mac}'\n    proxy: {{inner: [IPv4, IPv6], \
         memory: packet, to_function: f{function}-{to}, from_function: f{function}-{from}}}\n"
    )
}

fn prefix(sid: u16) -> String {
    format!("fc00:0:1:{sid:x}::/64")
}

fn next(socket: &PacketSocket) -> Option<Vec<u8>> {
    socket.receive_where(ARRIVES_WITHIN, |frame| !is_chatter(frame))
}

fn quiet(sockets: &[&PacketSocket]) {
    for socket in sockets {
        assert_eq!(socket.receive_where(QUIET_FOR, |frame| !is_chatter(frame)), None);
    }
}

/// A namespace that counts, in its forward hook, packets of each of these marks.
fn counting(marks: &[u32]) -> Netns {
    let namespace = Netns::new();
    namespace.script(
        "nft add table inet t
         nft add chain inet t forward { type filter hook forward priority 0 ; }",
    );
    for mark in marks {
        namespace.script(&format!(
            "nft add counter inet t m{mark}
             nft add rule inet t forward meta mark {mark} counter name m{mark}"
        ));
    }
    namespace
}

fn counted(namespace: &Netns, mark: u32) -> u64 {
    let text = namespace.sh(&format!("nft list counter inet t m{mark}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// A SID with an argument.
fn argument(sid: u16, argument: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, 0, 1, sid, argument, 0, 0, 0)
}

#[test]
#[ignore = "needs root"]
fn three_visits_to_two_netfilters_in_one_node_with_many_packets_on_their_way() {
    const PACKETS: u16 = 400;
    crate::common::need_root();
    let site = Site::new(0);
    let (first, second) = (counting(&[1, 3]), counting(&[2]));
    let sids = netfilter(0xa, &first) + &netfilter(0xb, &second);
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{sids}")));
    let (west_side, east_side) = (site.core(0), site.core(1));
    // The first one twice in the chain, with another argument each time.
    let list = [argument(0xa, 1), argument(0xb, 2), argument(0xa, 3), east(1), east(2)];
    for number in 0..PACKETS {
        west_side.send(&sent(&list, number));
        if number % 50 == 49 {
            // Else a link's queue may overflow on a machine that is busy with other things.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let mut seen = BTreeMap::new();
    for _ in 0..PACKETS {
        let found = next(&east_side)
            .unwrap_or_else(|| panic!("{} of {PACKETS} arrive: {}", seen.len(), agent.get("/v1/counters")["outcomes"]));
        let steered = Steered::parse(&found).unwrap_or_else(|| panic!("{found:02x?}"));
        let number = u16::from_be_bytes([steered.rest[40], steered.rest[41]]);
        assert_eq!((steered.remaining(), steered.srh.segments_left), (vec![east(2)], 1), "packet {number}");
        assert_eq!(seen.insert(number, ()), None, "packet {number} arrives twice");
        // Nothing of the inner packet has changed, its hop limit included; each visit is a hop of the outer packet.
        let header = outer(WEST_HEADEND, east(1), 61);
        let expected = to_core(1).ipv6(header).srh(SrhRepr::new(&list).with_segments_left(1));
        assert_eq!(found, inner(expected, number, 61).build(), "packet {number}");
    }
    quiet(&[&west_side, &east_side]);
    let all = u64::from(PACKETS);
    assert_eq!([counted(&first, 1), counted(&second, 2), counted(&first, 3)], [all; 3], "each visit with its argument");
    assert_eq!((agent.packets(&prefix(0xa)), agent.packets(&prefix(0xb))), ((2 * all, 2 * all), (all, all)));
}

#[test]
#[ignore = "needs root"]
fn a_bidirectional_chain_by_packet() {
    crate::common::need_root();
    let site = Site::new(1);
    site.forwards(0);
    let sids = exact(0xa, 0, ("w", "e"), west_macs(0).1) + &exact(0xb, 0, ("e", "w"), east_macs(0).1);
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{sids}")));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let answer = |packet: PacketBuilder, number, hop_limit| {
        let header = Ipv6Repr { hop_limit, flow_label: 0x11111, ..Ipv6Repr::new(EAST_HOST, WEST_HOST) };
        packet.inner_ipv6(header).udp(UdpRepr::new(40_001, number)).payload(b"the answer")
    };
    // Two chains in each direction, with the same flows in both.
    for number in 0..60 {
        let (a, b) = (1 + 2 * (number % 2), 2 + 2 * (number % 2));
        west_side.send(&sent(&[local(0xa), east(a), east(b)], number / 2));
        let westbound = [local(0xb), west(a), west(b)];
        let front = from_core(1).ipv6(outer(EAST_HEADEND, westbound[0], 64)).srh(SrhRepr::new(&westbound));
        east_side.send(&answer(front, number / 2, 61).build());
    }
    let mut seen = BTreeMap::<(bool, u16, Ipv6Addr), u32>::new();
    for _ in 0..60 {
        for (side, eastwards) in [(&east_side, true), (&west_side, false)] {
            let found = next(side).unwrap_or_else(|| panic!("{seen:?} {}", agent.get("/v1/drops")));
            let steered = Steered::parse(&found).unwrap();
            let ports = if eastwards { &steered.rest[40..42] } else { &steered.rest[42..44] };
            let number = u16::from_be_bytes([ports[0], ports[1]]);
            let active = Ipv6Addr::from(<[u8; 16]>::try_from(&steered.ipv6[24..]).unwrap());
            *seen.entry((eastwards, number, active)).or_default() += 1;
            // The function is a router on the path and takes a hop of the inner packet, and so does the proxy.
            let packet = if eastwards {
                inner(PacketBuilder::new(), number, 59)
            } else {
                answer(PacketBuilder::new(), number, 59)
            };
            assert_eq!(steered.rest, packet.build(), "{number}");
        }
    }
    for number in 0..30 {
        for chain in [1, 3] {
            assert_eq!(seen.get(&(true, number, east(chain))), Some(&1), "east, flow {number}, chain {chain}");
            assert_eq!(seen.get(&(false, number, west(chain))), Some(&1), "west, flow {number}, chain {chain}");
        }
    }
    quiet(&[&west_side, &east_side]);
}

#[test]
#[ignore = "needs root"]
fn the_same_flow_in_many_chains_through_a_function_that_rewrites_it() {
    const CHAINS: u16 = 100;
    crate::common::need_root();
    let site = Site::new(1);
    let function = site.forwards(0);
    // Another destination, without conntrack: all packets are of one flow.
    function.script(
        "nft add table ip6 t
         nft add chain ip6 t prerouting { type filter hook prerouting priority 0 ; }
         nft add rule ip6 t prerouting ip6 daddr set 2001:db8:b::99",
    );
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{}", exact(0xa, 0, ("w", "e"), west_macs(0).1))));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let list = |chain: u16| [local(0xa), east(0x100 + chain), east(0x200 + chain), east(0x300 + chain)];
    for round in 0..3 {
        for chain in 0..CHAINS {
            west_side.send(&sent(&list(chain), 7));
        }
        let mut seen = vec![0; usize::from(CHAINS)];
        for _ in 0..CHAINS {
            let found = next(&east_side).unwrap_or_else(|| panic!("round {round}: {}", agent.get("/v1/drops")));
            let steered = Steered::parse(&found).unwrap();
            let chain = u16::from_be_bytes([steered.ipv6[30], steered.ipv6[31]]) - 0x100;
            let [_, active, rest @ ..] = list(chain);
            assert_eq!((&steered.ipv6[24..], steered.remaining()), (active.octets().as_slice(), rest.to_vec()));
            let rewritten: Ipv6Addr = "2001:db8:b::99".parse().unwrap();
            assert_eq!(steered.rest[24..40], rewritten.octets());
            seen[usize::from(chain)] += 1;
        }
        assert_eq!(seen, vec![1; usize::from(CHAINS)], "round {round}");
    }
    quiet(&[&west_side, &east_side]);
}

#[test]
#[ignore = "needs root"]
fn what_does_not_come_from_a_chain_takes_the_operators_way() {
    crate::common::need_root();
    let site = Site::new(1);
    let function = site.forwards(0);
    let state = |own: &str| {
        let sid = exact(0xa, 0, ("w", "e"), west_macs(0).1)
            .replace("memory: packet", &format!("memory: packet, own_traffic: {own}"));
        let policy = "policies:\n  - {name: p, segment_lists: [{segments: ['fc00:0:2:5::', 'fc00:0:2:6::']}]}\n\
                      steering:\n  - {name: s, destination: '2001:db8:b::/48', policy: p}\n";
        site.state(&format!("sids:\n{sid}{policy}"))
    };
    let agent = Agent::start(&site.node, &state("route"));
    let east_side = site.core(1);
    // The function talks to the east of its own accord.
    let talk = || {
        function.enter(|| {
            let socket = std::net::UdpSocket::bind("[fd00:0:f01::2]:53").unwrap();
            socket.send_to(b"its own", (EAST_HOST, 4000)).unwrap();
        });
    };
    talk();
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/counters")["outcomes"]));
    assert_eq!((found[14 + 6], &found[14 + 24..14 + 40]), (17, EAST_HOST.octets().as_slice()), "routed as it is");

    agent.apply(&state("steer"));
    talk();
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/counters")["outcomes"]));
    assert_eq!(found[14 + 24..14 + 40], east(5).octets(), "into the policy");
    assert!(found.ends_with(b"its own"));

    agent.apply(&state("drop"));
    let before = agent.outcome("drop_from_function");
    talk();
    segue_testkit::wait::wait_for("the drop", ARRIVES_WITHIN, || {
        (agent.outcome("drop_from_function") > before).then_some(())
    });
    quiet(&[&east_side]);
}

#[test]
#[ignore = "needs root"]
fn forged_and_broken_packets_get_no_header() {
    crate::common::need_root();
    let site = Site::new(1);
    let function = site.forwards(0);
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{}", exact(0xa, 0, ("w", "e"), west_macs(0).1))));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let own = PacketSocket::open(function, "east");
    let (node, far) = east_macs(0);
    let start = || PacketBuilder::ethernet(far, node);
    let list = [local(0xa), east(1), east(2)];
    // The chain is in use.
    west_side.send(&sent(&list, 7));
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/drops")));
    assert_eq!(Steered::parse(&found).unwrap().remaining(), [east(2)]);

    // The very packet that the chain carries, but made by the function: the kernel knows of no header for it.
    own.send(&inner(start(), 7, 60).build());
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/counters")["outcomes"]));
    assert_eq!(found, inner(to_core(1), 7, 59).build(), "routed as it is");

    let steered = |destination| start().ipv6(outer(WEST_HEADEND, destination, 60));
    let bare = inner(start(), 7, 60);
    for (case, frame) in [
        ("to its own SID, with an SRH", inner(steered(local(0xa)).srh(SrhRepr::new(&list)), 7, 60).build()),
        ("onwards, with an SRH", inner(steered(east(1)).srh(SrhRepr::new(&list).with_segments_left(1)), 7, 60).build()),
        ("to a SID, without an SRH", inner(steered(east(1)), 7, 60).build()),
        ("cut inside the header", bare.build()[..40].to_vec()),
        ("cut inside the payload", bare.build()[..70].to_vec()),
        ("length larger than the frame", bare.clone().with_bytes(18, &[0xff, 0xff]).build()),
        ("version 0", bare.clone().with_bytes(14, &[0]).build()),
    ] {
        let dropped = || {
            let drops = agent.get("/v1/drops");
            let rows = drops.as_array().unwrap().iter().filter(|row| row["port"] == "f0-e");
            rows.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum::<u64>()
        };
        let before = dropped();
        own.send(&frame);
        segue_testkit::wait::wait_for(case, ARRIVES_WITHIN, || (dropped() > before).then_some(()));
        quiet(&[&west_side, &east_side]);
    }
    west_side.send(&sent(&list, 8));
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/drops")));
    assert_eq!(Steered::parse(&found).unwrap().remaining(), [east(2)], "the chain goes on");
}
