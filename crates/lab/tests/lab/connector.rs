//! The SR/VNF connector's scenarios (AbdelSalam et al. 2017) end to end, with real packets through a real agent: docs/using/connector.md.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::agent::Agent;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::site::{
    EAST_HEADEND, EAST_HOST, Site, WEST_HEADEND, WEST_HOST, east, east_macs, from_core, local, to_core, west, west_macs,
};
use segue_testkit::tap::Tap;
use segue_testkit::vnf::{Steered, Vnf, Wire, addressed, is_chatter, turned};
use segue_testkit::wait::wait_for;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

/// A frame's way through takes microseconds, unless the machine is very busy.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);
/// How long to look for what must not come: forwarding happens within the sender's own system call, but for threads.
const QUIET_FOR: Duration = Duration::from_millis(50);

fn outer(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, flow_label: 0xabcde, ..Ipv6Repr::new(source, destination) }
}

/// The packet that functions are there for, from the west to the east.
fn inner(packet: PacketBuilder, number: u16, hop_limit: u8) -> PacketBuilder {
    let header = Ipv6Repr { hop_limit, flow_label: 0x54321, ..Ipv6Repr::new(WEST_HOST, EAST_HOST) };
    packet.inner_ipv6(header).udp(UdpRepr::new(number, 40_001)).payload(b"for the functions")
}

/// A steered frame from the west, for this list.
fn sent(list: &[Ipv6Addr], number: u16) -> Vec<u8> {
    inner(from_core(0).ipv6(outer(WEST_HEADEND, list[0], 64)).srh(SrhRepr::new(list)), number, 61).build()
}

/// A proxy's SID: `fc00:0:1:FUNCTION::/64`, behaviour, and what its `proxy` says besides the links of a function of the site, in
/// by west and out by east.
fn proxied(sid: u16, behaviour: &str, function: u8, rest: &str) -> String {
    let mac = west_macs(function).1;
    format!(
        "  - sid: 'fc00:0:1:{sid:x}::/64'\n    behaviour: {behaviour}\n    next_hop_mac: '{mac}'\n    \
         proxy: {{to_function: f{function}-w, from_function: f{function}-e{rest}}}\n"
    )
}

fn prefix(sid: u16) -> String {
    format!("fc00:0:1:{sid:x}::/64")
}

/// Takes what comes in by a function's west link through `program`, and what that returns out by its east link.
fn user_space(site: &Site, function: u8, mut program: impl FnMut(Vec<u8>) -> Vec<Vec<u8>> + Send + 'static) -> Vnf {
    let (input, output) = (Arc::new(site.socket(function, "west")), Arc::new(site.socket(function, "east")));
    let (node, own) = east_macs(function);
    let to_node = move |frame| addressed(frame, own.0, node.0);
    Vnf::start(input, output, move |frame| program(frame.to_vec()).into_iter().map(to_node).collect())
}

fn next(socket: &PacketSocket) -> Option<Vec<u8>> {
    socket.receive_where(ARRIVES_WITHIN, |frame| !is_chatter(frame))
}

/// Asserts that nothing more comes.
fn quiet(case: &str, sockets: &[&PacketSocket]) {
    for socket in sockets {
        let found = socket.receive_where(QUIET_FOR, |frame| !is_chatter(frame));
        assert_eq!(found, None, "{case}");
    }
}

/// The inner packet of a frame whose outer headers are these two.
fn inner_of(frame: &[u8]) -> Vec<u8> {
    Steered::parse(frame).unwrap_or_else(|| panic!("not steered: {frame:02x?}")).rest
}

#[test]
#[ignore = "needs root"]
fn four_functions_of_all_kinds_in_one_node_without_leaving_it() {
    crate::common::need_root();
    let site = Site::new(4);
    // A static proxy in front of a kernel that forwards, then user space: a dynamic proxy, a masquerading one, and one that knows.
    site.forwards(0);
    let dynamic = user_space(&site, 1, |frame| vec![frame]);
    let masquerading = user_space(&site, 2, |frame| vec![frame]);
    let aware = user_space(&site, 3, |frame| {
        let mut steered = Steered::parse(&frame).expect("with its SRH");
        steered.advance();
        vec![steered.frame()]
    });
    let rest = [local(0xb), local(0xc), local(0xd), east(1), east(2)];
    let list: Vec<String> = rest.iter().map(|segment| format!("'{segment}'")).collect();
    let sids = [
        proxied(0xa, "End.AS", 0, &format!(", inner: [IPv6], reduced: false, segments: [{}]", list.join(", "))),
        proxied(0xb, "End.AD", 1, ", inner: [IPv6]"),
        proxied(0xc, "End.AM", 2, ""),
        proxied(0xd, "End.AN", 3, ""),
    ]
    .concat();
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{sids}")));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let path = [&[local(0xa)], rest.as_slice()].concat();
    west_side.send(&sent(&path, 1000));
    let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/drops")));

    // What each saw. The forwarding kernel and the proxies that put a header back on each took an inner hop.
    let (node, own) = west_macs(1);
    assert_eq!(dynamic.seen(), [inner(PacketBuilder::ethernet(node, own), 1000, 59).build()], "the bare inner packet");
    let [masked] = masquerading.seen().try_into().unwrap();
    let masked = Steered::parse(&masked).unwrap();
    assert_eq!(masked.ipv6[24..], east(2).octets(), "addressed to the last segment");
    let next = masked.srh.segments[usize::from(masked.srh.segments_left)];
    assert_eq!((next, masked.remaining()), (local(0xd), vec![east(1), east(2)]), "with its SRH, advanced");
    let [whole] = aware.seen().try_into().unwrap();
    let whole = Steered::parse(&whole).unwrap();
    assert_eq!((&whole.ipv6[24..], whole.remaining()), (local(0xd).octets().as_slice(), vec![east(1), east(2)]));

    // And what left: one frame, on its way to the first segment behind the node.
    let left = Steered::parse(&found).unwrap();
    let srh = SrhRepr { next_header: 41, ..SrhRepr::new(&rest).with_segments_left(1) };
    assert_eq!(left.srh, srh);
    let node_address: Ipv6Addr = "fd00:0:1::1".parse().unwrap();
    assert_eq!(left.ipv6[8..24], node_address.octets(), "the static proxy's own header");
    assert_eq!(left.ipv6[24..], east(1).octets());
    assert_eq!(left.rest, inner(PacketBuilder::new(), 1000, 58).build());
    quiet("in between and afterwards", &[&west_side, &east_side]);
    for sid in [0xa, 0xb, 0xc, 0xd] {
        assert_eq!(agent.packets(&prefix(sid)), (1, 1), "{sid:x}: there and back");
    }
    assert_eq!(agent.get("/v1/drops").as_array().map(Vec::len), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_function_twice_in_a_chain_by_masquerading() {
    crate::common::need_root();
    let site = Site::new(2);
    let twice = user_space(&site, 0, |frame| vec![frame]);
    let between = user_space(&site, 1, |frame| vec![frame]);
    let sids = proxied(0xa, "End.AM", 0, "") + &proxied(0xb, "End.AM", 1, "");
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{sids}")));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let list = [local(0xa), local(0xb), local(0xa), east(1)];
    for number in 0..100 {
        west_side.send(&sent(&list, number));
    }
    for number in 0..100 {
        let found = next(&east_side).unwrap_or_else(|| panic!("packet {number}: {}", agent.get("/v1/drops")));
        let expected = to_core(1).ipv6(outer(WEST_HEADEND, east(1), Steered::parse(&found).unwrap().ipv6[7]));
        let expected = inner(expected.srh(SrhRepr::new(&list).with_segments_left(0)), number, 61).build();
        assert_eq!(found, expected, "packet {number}");
    }
    quiet("afterwards", &[&west_side, &east_side]);
    let segments_left: Vec<u8> =
        twice.seen().iter().map(|frame| Steered::parse(frame).unwrap().srh.segments_left).collect();
    assert_eq!(segments_left.iter().filter(|left| **left == 2).count(), 100, "first visits: {segments_left:?}");
    assert_eq!(segments_left.iter().filter(|left| **left == 0).count(), 100, "second visits: {segments_left:?}");
    assert_eq!(between.seen().len(), 100);
    assert_eq!((agent.packets(&prefix(0xa)), agent.packets(&prefix(0xb))), ((200, 200), (100, 100)));
}

/// West to east by one SID, east to west by another, through the same two links of one function.
fn both_directions(site: &Site, memory: &str) -> String {
    let forward = proxied(0xa, "End.AD", 0, &format!(", inner: [IPv4, IPv6], memory: {memory}"));
    let backward = forward
        .replace("fc00:0:1:a::", "fc00:0:1:b::")
        .replace("to_function: f0-w, from_function: f0-e", "to_function: f0-e, from_function: f0-w")
        .replace(&west_macs(0).1.to_string(), &east_macs(0).1.to_string());
    site.state(&format!("sids:\n{forward}{backward}"))
}

/// The answer to [`inner`], hop limit apart.
fn answer(packet: PacketBuilder, number: u16, hop_limit: u8) -> PacketBuilder {
    let header = Ipv6Repr { hop_limit, flow_label: 0x11111, ..Ipv6Repr::new(EAST_HOST, WEST_HOST) };
    packet.inner_ipv6(header).udp(UdpRepr::new(40_001, number)).payload(b"the answer")
}

fn bidirectional(memory: &str, hops: u8) {
    crate::common::need_root();
    let site = Site::new(1);
    site.forwards(0);
    let agent = Agent::start(&site.node, &both_directions(&site, memory));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let (eastbound, westbound) = ([local(0xa), east(1), east(2)], [local(0xb), west(1), west(2)]);
    for number in 0..50 {
        west_side.send(&sent(&eastbound, number));
        let front = from_core(1).ipv6(outer(EAST_HEADEND, westbound[0], 64)).srh(SrhRepr::new(&westbound));
        east_side.send(&answer(front, number, 61).build());
    }
    for number in 0..50 {
        for (side, list, headend, core) in
            [(&east_side, eastbound, WEST_HEADEND, 1), (&west_side, westbound, EAST_HEADEND, 0)]
        {
            let found = next(side).unwrap_or_else(|| panic!("{memory}, packet {number}: {}", agent.get("/v1/drops")));
            let label = u32::from_be_bytes([0, found[15] & 15, found[16], found[17]]);
            let header = Ipv6Repr { flow_label: label, ..outer(headend, list[1], 63) };
            let front = to_core(core).ipv6(header).srh(SrhRepr::new(&list).with_segments_left(1));
            let expected = match core {
                1 => inner(front, number, 61 - hops),
                _ => answer(front, number, 61 - hops),
            };
            assert_eq!(found, expected.build(), "{memory}, packet {number} to core{core}");
        }
    }
    quiet(memory, &[&west_side, &east_side]);
    assert_eq!((agent.packets(&prefix(0xa)), agent.packets(&prefix(0xb))), ((50, 50), (50, 50)));
}

#[test]
#[ignore = "needs root"]
fn a_bidirectional_chain_by_return_interface() {
    // The function's kernel takes a hop, and so does the proxy on the way back.
    bidirectional("interface", 2);
}

#[test]
#[ignore = "needs root"]
fn a_bidirectional_chain_by_flow() {
    bidirectional("flow", 2);
}

#[test]
#[ignore = "needs root"]
fn two_chains_through_one_function_by_flow_whatever_the_order() {
    crate::common::need_root();
    let site = Site::new(1);
    // Holds packets back until it has four, and gives them back in reverse.
    let mut held = Vec::new();
    let _reversing = user_space(&site, 0, move |frame| {
        held.push(frame);
        if held.len() == 4 { held.drain(..).rev().collect() } else { Vec::new() }
    });
    let sids = proxied(0xa, "End.AD", 0, ", inner: [IPv6], memory: flow");
    let agent = Agent::start(&site.node, &site.state(&format!("sids:\n{sids}")));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let chains = [[local(0xa), east(1), east(2)], [local(0xa), east(3), east(4)]];
    for round in 0..10 {
        for number in 0..4_u16 {
            west_side.send(&sent(&chains[usize::from(number % 2)], 4 * round + number));
        }
        for number in (0..4_u16).rev() {
            let found = next(&east_side).unwrap_or_else(|| panic!("{}", agent.get("/v1/drops")));
            assert_eq!(inner_of(&found), inner(PacketBuilder::new(), 4 * round + number, 60).build());
            let steered = Steered::parse(&found).unwrap();
            let chain = chains[usize::from(number % 2)];
            assert_eq!(steered.ipv6[24..], chain[1].octets(), "round {round}, packet {number}");
            assert_eq!(steered.remaining(), chain[2..], "round {round}, packet {number}");
        }
    }
    quiet("afterwards", &[&east_side]);
}

#[test]
#[ignore = "needs root"]
fn what_a_function_never_got_is_dropped_or_takes_the_operators_way() {
    crate::common::need_root();
    let site = Site::new(1);
    let strange = |packet: PacketBuilder, hop_limit| {
        let header = Ipv6Repr { hop_limit, ..Ipv6Repr::new("2001:db8:a::77".parse().unwrap(), EAST_HOST) };
        packet.inner_ipv6(header).udp(UdpRepr::new(53, 53)).payload(b"nobody sent this").build()
    };
    let _function =
        user_space(&site, 0, move |frame| vec![strange(PacketBuilder::ethernet([0; 6], [0; 6]), 61), frame]);
    let state = |rule: &str| {
        let sids = proxied(0xa, "End.AD", 0, &format!(", inner: [IPv6], memory: flow, unknown_flow: {rule}"));
        site.state(&format!("sids:\n{sids}"))
    };
    let agent = Agent::start(&site.node, &state("drop"));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let list = [local(0xa), east(1), east(2)];
    west_side.send(&sent(&list, 1));
    let found = next(&east_side).unwrap();
    assert_eq!(inner_of(&found), inner(PacketBuilder::new(), 1, 60).build(), "the flow that it got");
    quiet("and nothing else", &[&west_side, &east_side]);
    assert_eq!(agent.outcome("drop_unknown_flow"), 1);

    agent.apply(&state("interface"));
    west_side.send(&sent(&list, 1));
    let found = next(&east_side).unwrap();
    assert_eq!(inner_of(&found), strange(PacketBuilder::new(), 60), "with the header last seen on the interface");
    assert_eq!(Steered::parse(&found).unwrap().remaining(), [east(2)]);
    assert_eq!(inner_of(&next(&east_side).unwrap()), inner(PacketBuilder::new(), 1, 60).build());
}

/// A proxy's behaviour with what `proxy` needs beside the links.
const UNAWARE: [(&str, &str); 4] = [
    ("End.AS", ", inner: [IPv4, IPv6], segments: ['fc00:0:2:1::']"),
    ("End.AD", ", inner: [IPv4, IPv6]"),
    ("End.AD", ", inner: [IPv4, IPv6], memory: flow, unknown_flow: interface"),
    ("End.AM", ""),
];

#[test]
#[ignore = "needs root"]
fn garbage_from_a_function_is_dropped_and_the_next_packet_goes_its_way() {
    crate::common::need_root();
    let site = Site::new(1);
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    fn patched(mut frame: Vec<u8>, at: usize, octets: &[u8]) -> Vec<u8> {
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    }
    let cases: [(&str, Damage); 8] = [
        ("cut inside the IP header", |frame| frame[..14 + 19].to_vec()),
        ("cut inside the payload", |frame| frame[..frame.len() - 5].to_vec()),
        ("length larger than the frame", |frame| patched(frame, 18, &[0x07, 0xff])),
        ("length 0xffff", |frame| patched(frame, 18, &[0xff, 0xff])),
        ("version 0", |frame| patched(frame, 14, &[0])),
        ("IPv6 in a frame that says IPv4", |frame| patched(frame, 12, &[8, 0])),
        ("all ones", |frame| patched(frame.clone(), 14, &vec![0xff; frame.len() - 14])),
        ("zeros", |frame| patched(frame.clone(), 14, &vec![0; frame.len() - 14])),
    ];
    let damage: Arc<std::sync::Mutex<Option<Damage>>> = Arc::default();
    let now = damage.clone();
    let function = user_space(&site, 0, move |frame| match *now.lock().unwrap() {
        Some(damage) => vec![damage(frame)],
        None => vec![frame],
    });
    let state = |(behaviour, rest): (&str, &str)| site.state(&format!("sids:\n{}", proxied(0xa, behaviour, 0, rest)));
    let agent = Agent::start(&site.node, &state(UNAWARE[0]));
    let (west_side, east_side) = (site.core(0), site.core(1));
    let dropped = || {
        let drops = agent.get("/v1/drops");
        let of_function = drops.as_array().unwrap().iter().filter(|row| row["port"] == "f0-e");
        of_function.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum::<u64>()
    };
    for proxy in UNAWARE {
        agent.apply(&state(proxy));
        for (number, (case, fault)) in (0..).zip(cases) {
            let case = format!("{proxy:?}: {case}");
            *damage.lock().unwrap() = Some(fault);
            let before = dropped();
            west_side.send(&sent(&[local(0xa), east(1)], number));
            wait_for(&case, ARRIVES_WITHIN, || (dropped() > before).then_some(()));
            assert_eq!(dropped(), before + 1, "{case}");
            *damage.lock().unwrap() = None;
            west_side.send(&sent(&[local(0xa), east(1)], number));
            let found = next(&east_side).unwrap_or_else(|| panic!("{case}: {}", agent.get("/v1/drops")));
            assert!(found.windows(17).any(|octets| octets == b"for the functions"), "{case}: {found:02x?}");
            assert_eq!(found[14 + 24..14 + 40], east(1).octets(), "{case}");
        }
        assert_eq!(function.seen().len(), 2 * cases.len());
        quiet(&format!("{proxy:?}"), &[&west_side, &east_side]);
    }
}

#[test]
#[ignore = "needs root"]
fn functions_on_tap_devices() {
    crate::common::need_root();
    let site = Site::new(0);
    let (node, user) = ([2, 0, 0, 0, 0xaa, 1], [2, 0, 0, 0, 0xaa, 2]);
    let tap: Arc<dyn Wire> = Arc::new(Tap::new(&site.node, "tap0", "02:00:00:00:aa:01", 2000));
    let state = |behaviour: &str, rest: &str| {
        let sids = format!(
            "sids:\n  - sid: 'fc00:0:1:a::/64'\n    behaviour: {behaviour}\n    next_hop_mac: '02:00:00:00:aa:02'\n    \
             proxy: {{to_function: tap0, from_function: tap0{rest}}}\n"
        );
        site.state(&sids).replace("role: core}\nsids", "role: core}\n  - {name: tap0, role: service}\nsids")
    };
    let agent = Agent::start(&site.node, &state("End.AM", ""));
    // Reads and writes whole frames, as a virtual machine does. It advances the list where it is told to.
    let advances = Arc::new(AtomicBool::new(false));
    let now = advances.clone();
    let function = Vnf::start(tap.clone(), tap, move |frame| {
        let steered = Steered::parse(frame).filter(|_| now.load(Ordering::Relaxed));
        let Some(mut steered) = steered else { return vec![turned(frame.to_vec())] };
        steered.advance();
        vec![turned(steered.frame())]
    });
    let (west_side, east_side) = (site.core(0), site.core(1));
    let list = [local(0xa), east(1), east(2)];
    let four = |packet: PacketBuilder| {
        let header = Ipv4Repr::new([10, 1, 0, 1].into(), [10, 2, 0, 1].into());
        packet.inner_ipv4(header).udp(UdpRepr::new(1, 2)).payload(&[7; 1400])
    };
    let long = four(from_core(0).ipv6(outer(WEST_HEADEND, list[0], 64)).srh(SrhRepr::new(&list))).build();
    for (behaviour, rest, sees_srh) in [
        ("End.AS", ", inner: [IPv4, IPv6], reduced: false, segments: ['fc00:0:2:1::', 'fc00:0:2:2::']", false),
        ("End.AD", ", inner: [IPv4, IPv6]", false),
        ("End.AD", ", inner: [IPv4, IPv6], memory: flow", false),
        ("End.AM", "", true),
        ("End.AN", ", may_change: nothing", true),
    ] {
        agent.apply(&state(behaviour, rest));
        advances.store(behaviour == "End.AN", Ordering::Relaxed);
        let before = agent.packets(&prefix(0xa));
        for (case, frame) in [("IPv6", &sent(&list, 9)), ("1,400 octets in IPv4", &long)] {
            let case = format!("{behaviour}{rest}: {case}");
            west_side.send(frame);
            let found = next(&east_side).unwrap_or_else(|| panic!("{case}: {}", agent.get("/v1/drops")));
            let steered = Steered::parse(&found).unwrap();
            assert_eq!(
                (&steered.ipv6[24..], steered.remaining()),
                (east(1).octets().as_slice(), vec![east(2)]),
                "{case}"
            );
            // All but the inner hop limit and the checksum over it.
            let expected = inner_of(frame);
            assert_eq!((steered.rest.len(), &steered.rest[12..]), (expected.len(), &expected[12..]), "{case}");
            let [seen] = function.seen().try_into().unwrap();
            assert_eq!((&seen[..6], &seen[6..12]), (user.as_slice(), node.as_slice()), "{case}");
            assert_eq!(Steered::parse(&seen).is_some(), sees_srh, "{case}: the SRH");
        }
        let after = agent.packets(&prefix(0xa));
        assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2), "{behaviour}{rest}");
    }
    quiet("afterwards", &[&west_side, &east_side]);
}
