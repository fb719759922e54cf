//! Mistakes that other implementations made, and that concern proxies: each is a test.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::{Node, Verdict};
use segue_testkit::site::{self, Site, from_core};
use segue_testkit::vnf::{Steered, is_chatter, turned};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, TlvRepr, UdpRepr};

const TO_FUNCTION: &str = "to_function";

/// Proxies that put a remembered header back: SID, the port to the function, the port back, and the counter's prefix there.
const REMEMBERING: [(u16, &str, &str); 2] = [(END_AD, "dyn0", "dyn1"), (END_AD_FLOW, "flow0", "flow0")];

fn outer(function: u16) -> Ipv6Repr {
    Ipv6Repr::new(HEADEND, local(function))
}

fn six(packet: PacketBuilder, port: u16, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(port, 40_001)).payload(b"inner")
}

fn four(packet: PacketBuilder, port: u16, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(port, 40_001)).payload(b"inner")
}

/// The frame with the outer flow label, which is made anew for what a proxy puts back, set to 0.
fn unlabelled(mut frame: Vec<u8>) -> Vec<u8> {
    frame[15] &= 0xf0;
    frame[16..18].fill(0);
    frame
}

/// Sends a packet to a function.
fn to_function(node: &Golden<'_>, case: &str, frame: &PacketBuilder) {
    let found = node.send("core0", frame);
    assert!(found.moved.contains_key(&format!("core0 {TO_FUNCTION}")), "{case}: {:?}", found.moved);
}

/// Sends a packet from a function; it leaves by core1 as `expected`, whatever its outer flow label.
fn comes_back(node: &Golden<'_>, case: &str, port: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
    let found = node.send(port, frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
    let (found, expected) = (unlabelled(found.frame), unlabelled(expected.build()));
    assert!(found == expected, "{case}:\nfound    {found:02x?}\nexpected {expected:02x?}");
}

#[test]
#[ignore = "needs root"]
fn an_srh_that_is_no_multiple_of_16_octets_does_not_poison_the_memory() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, back) in REMEMBERING {
        let plain = SrhRepr::new(&[local(function), behind_core1(0xa), behind_core1(0xb)]);
        let tlv = |octets| TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0x5a; octets] };
        let short = SrhRepr::new(&[local(function), behind_core1(0xc)]);
        let headers = [
            ("no TLV", plain.clone()),
            ("a TLV of 8 octets", plain.clone().with_tlv(tlv(6))),
            ("a TLV of 7 octets and padding", plain.clone().with_tlv(tlv(5))),
            ("a TLV of 24 octets", plain.clone().with_tlv(tlv(22))),
            ("two TLVs", plain.clone().with_tlv(tlv(2)).with_tlv(tlv(10))),
            ("a shorter list", short),
        ];
        // In every order, and the plain one again after each.
        for (first, one) in &headers {
            for (second, other) in &headers {
                for srh in [one, other, &plain] {
                    let case = format!("{function:x}: {first}, then {second}: {} octets", srh.header_length());
                    to_function(&node, &case, &six(arriving("core0").ipv6(outer(function)).srh(srh.clone()), 1, 33));
                    let left = srh.segments_left - 1;
                    let header = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, srh.segments[usize::from(left)]) };
                    let expected = leaving("core1").ipv6(header).srh(srh.clone().with_segments_left(left));
                    comes_back(&node, &case, back, &six(arriving(back), 1, 32), &six(expected, 1, 31));
                }
            }
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn differing_dscp_flow_label_and_hop_limit_write_no_header_anew() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, _) in REMEMBERING {
        let sid = format!("{}/64", local(function));
        let srh = SrhRepr::new(&[local(function), behind_core1(0xa), behind_core1(0xb)]);
        let before = node.node().memory(&sid).renewed;
        for number in 0..200_u32 {
            let header = Ipv6Repr {
                traffic_class: ((number % 64) << 2) as u8,
                flow_label: number * 7919 % 0xfffff,
                hop_limit: 57 + (number % 8) as u8,
                ..outer(function)
            };
            // 57 first, and 64 differs by 7.
            to_function(&node, "out", &six(arriving("core0").ipv6(header).srh(srh.clone()), 1, 33));
        }
        assert_eq!(node.node().memory(&sid).renewed, before + 1, "{sid}");
        // What matters does: another hop limit by the margin, another tag, another list.
        let mut written = before + 1;
        for (case, header, srh) in [
            ("hop limit", Ipv6Repr { hop_limit: 40, ..outer(function) }, srh.clone()),
            ("tag", Ipv6Repr { hop_limit: 40, ..outer(function) }, srh.clone().with_tag(1)),
            ("list", outer(function), SrhRepr::new(&[local(function), behind_core1(0xa), behind_core1(0xc)])),
            ("source", Ipv6Repr { source: NODE, ..outer(function) }, srh.clone()),
        ] {
            to_function(&node, case, &six(arriving("core0").ipv6(header).srh(srh), 1, 33));
            written += 1;
            assert_eq!(node.node().memory(&sid).renewed, written, "{sid}: {case}");
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn the_protocol_is_part_of_a_flow_and_there_is_room_for_thousands() {
    const FLOWS: u16 = 3000;
    let network = Network::new();
    let node = Node::load(&network.node, &configuration(DOMAIN));
    let tcp = |packet: PacketBuilder, port: u16, hop_limit| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
        packet.inner_ipv6(repr).tcp(TcpRepr::new(port, 40_001, segue_wire::tcp::control::ACK)).payload(b"inner")
    };
    // UDP goes one way, TCP on the same ports and addresses another.
    let list = |last: u16| SrhRepr::new(&[local(END_AD_FLOW), behind_core1(0xa), behind_core1(last)]);
    let front = |last| arriving("core0").ipv6(outer(END_AD_FLOW)).srh(list(last));
    let before = node.memory("fc00:0:1:72::/64").created;
    let wrong = node.run_many(|runner| {
        for port in 1..=FLOWS {
            for frame in [six(front(0x100), port, 33), tcp(front(0x200), port, 33)] {
                assert_eq!(runner.run("core0", &frame.build()).0, Verdict::Redirect, "out, port {port}");
            }
        }
        let mut wrong = Vec::new();
        for port in (1..=FLOWS).rev() {
            for (frame, last) in [(six(arriving("flow0"), port, 32), 0x100), (tcp(arriving("flow0"), port, 32), 0x200)]
            {
                let (verdict, frame) = runner.run("flow0", &frame.build());
                let found = Steered::parse(&frame).map(|steered| steered.srh.segments[0]);
                if verdict != Verdict::Redirect || found != Some(behind_core1(last)) {
                    wrong.push((port, last, verdict, found));
                }
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), 2 * FLOWS, &wrong[..wrong.len().min(5)]);
    let memory = node.memory("fc00:0:1:72::/64");
    assert_eq!((memory.created - before, memory.evicted, memory.conflicts), (2 * u64::from(FLOWS), 0, 0), "{memory:?}");
}

#[test]
#[ignore = "needs root"]
fn a_masquerading_proxy_does_not_follow_a_list_that_the_function_changed() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [local(END_AM), behind_core1(0xa), behind_core1(0xb), SERVER];
    let srh = SrhRepr::new(&list);
    let packet = |start: PacketBuilder, destination, hop_limit, srh: SrhRepr| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, destination) };
        start.ipv6(repr).srh(srh).udp(UdpRepr::new(1, 2)).payload(b"masqueraded")
    };
    to_function(&node, "out", &packet(arriving("core0"), local(END_AM), 64, srh.clone()));
    let sent = srh.with_segments_left(2);
    type Change = fn(&mut SrhRepr);
    let changes: [(&str, Change); 8] = [
        ("the next segment", |srh| srh.segments[2] = behind_core1(0xdd)),
        ("a later segment", |srh| srh.segments[1] = behind_core1(0xdd)),
        ("a visited segment", |srh| srh.segments[3] = behind_core1(0xdd)),
        ("one less left", |srh| srh.segments_left = 1),
        ("none left", |srh| srh.segments_left = 0),
        ("one more left", |srh| srh.segments_left = 3),
        ("flags", |srh| srh.flags = 0x20),
        ("one segment more", |srh| srh.segments.insert(1, behind_core1(0xdd))),
    ];
    for (case, change) in changes {
        let mut changed = sent.clone();
        change(&mut changed);
        node.drops(case, "mask0", &packet(arriving("mask0"), SERVER, 60, changed), "drop_header_changed");
    }
    // In front of an inner packet the last segment is the chain's, too: a SID that decapsulates. The function cannot choose another
    // by changing destination and list alike, unless it is the packet's own destination.
    let egress = [local(END_AM), behind_core1(0xa), behind_core1(0x46)];
    let steered = |start: PacketBuilder, destination, hop_limit, list: &[Ipv6Addr], left| {
        let srh = SrhRepr::new(list).with_segments_left(left);
        six(start.ipv6(Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, destination) }).srh(srh), 1, 33)
    };
    to_function(&node, "encapsulated, out", &steered(arriving("core0"), egress[0], 64, &egress, 2));
    let counter = [format!("returned {}/64", local(END_AM))];
    let (frame, expected) =
        (steered(arriving("mask0"), egress[2], 60, &egress, 1), steered(leaving("core1"), egress[1], 59, &egress, 1));
    node.forwards("encapsulated, back", "mask0", &frame, &expected, &[&counter[0]]);
    for other in [behind_core1(0x47), SERVER] {
        let frame = steered(arriving("mask0"), other, 60, &[egress[0], egress[1], other], 1);
        node.drops("another last segment in list and destination", "mask0", &frame, "drop_header_changed");
    }
    node.forwards(
        "unchanged",
        "mask0",
        &packet(arriving("mask0"), SERVER, 60, sent.clone()),
        &packet(leaving("core1"), behind_core1(0xa), 59, sent),
        &[&format!("returned {}/64", local(END_AM))],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn the_length_of_what_a_function_returns_is_not_believed() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, back) in REMEMBERING {
        let srh = SrhRepr::new(&[local(function), behind_core1(0xa), behind_core1(0xb)]);
        let front = arriving("core0").ipv6(outer(function)).srh(srh.clone());
        to_function(&node, "IPv6 out", &six(front.clone(), 1, 33));
        to_function(&node, "IPv4 out", &four(front, 1, 33));
        // Offsets of the length fields: 18 in IPv6, 16 in IPv4.
        for more in [1_u16, 2, 1000, 0x7000] {
            let length = |frame: &PacketBuilder, at: usize| {
                let octets = frame.build();
                let said = u16::from_be_bytes([octets[at], octets[at + 1]]) + more;
                frame.clone().with_bytes(at, &said.to_be_bytes())
            };
            let frame = length(&six(arriving(back), 1, 32), 18);
            node.drops(&format!("IPv6, {more} octets more than there are"), back, &frame, "drop_bad_length");
            let mut frame = length(&four(arriving(back), 1, 32), 16);
            // With a checksum that fits, so that only the length is wrong.
            let octets = frame.build();
            let sum = |octets: &[u8]| {
                let words = octets.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
                let sum: u32 = words.sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                !((folded & 0xffff) + (folded >> 16)) as u16
            };
            let header = [&octets[14..24], &[0, 0], &octets[26..34]].concat();
            frame = frame.with_bytes(24, &sum(&header).to_be_bytes());
            node.drops(&format!("IPv4, {more} octets more than there are"), back, &frame, "drop_bad_length");
        }
        // Octets behind the packet are no part of it, and do not leave the node.
        let header = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) };
        let expected = leaving("core1").ipv6(header).srh(srh.with_segments_left(1));
        for padding in [1, 6, 40] {
            let (case, padding) = (format!("{padding} octets of padding"), vec![0xee; padding]);
            let frame = six(arriving(back), 1, 32).trailer(&padding);
            comes_back(&node, &case, back, &frame, &six(expected.clone(), 1, 31));
            let frame = four(arriving(back), 1, 32).trailer(&padding);
            comes_back(&node, &case, back, &frame, &four(expected.clone(), 1, 31));
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn nothing_half_assembled_reaches_the_kernel() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, back) in REMEMBERING {
        let remembered = |next: Ipv6Addr| {
            let srh = SrhRepr::new(&[local(function), next, behind_core1(0xb)]);
            to_function(&node, "out", &six(arriving("core0").ipv6(outer(function)).srh(srh.clone()), 1, 33));
            srh.with_segments_left(1)
        };
        let frame = six(arriving(back), 1, 32);
        for (case, next, outcome) in [
            ("a route that says unreachable", UNREACHABLE, "drop_no_route"),
            ("a blackhole", BLACKHOLE, "drop_route_blackhole"),
        ] {
            remembered(next);
            let found = node.send(back, &frame);
            // Dropped, or answered to the inner source: nothing goes up.
            assert!(found.verdict != Verdict::Pass, "{function:x}: {case}: {:?}", found.moved);
            assert!(found.moved.contains_key(&format!("{back} {outcome}")), "{function:x}: {case}: {:?}", found.moved);
        }
        // The kernel is to resolve the neighbour, or to say that there is no route: it gets the whole packet. The outer hop limit
        // is one more, for the hop that it takes.
        for (next, outcome) in [(UNRESOLVED, "passed_no_neighbour"), (NO_ROUTE, "passed_route")] {
            let srh = remembered(next);
            let found = node.send(back, &frame);
            assert_eq!(found.verdict, Verdict::Pass, "{function:x}: {outcome}: {:?}", found.moved);
            assert!(found.moved.contains_key(&format!("{back} {outcome}")), "{outcome}: {:?}", found.moved);
            let header = Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(HEADEND, next) };
            let expected = six(arriving(back).ipv6(header).srh(srh), 1, 31).build();
            assert_eq!(unlabelled(found.frame)[14..], expected[14..], "{function:x}: {outcome}");
        }
        // Too big for the next link: refused before anything is changed.
        remembered(behind_core2(1));
        let long = frame.clone().payload(&[0; 1300]);
        let found = node.send(back, &long);
        assert!(found.moved.contains_key(&format!("{back} drop_too_big")), "{function:x}: {:?}", found.moved);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn an_srh_longer_than_the_payload_does_not_underflow() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for function in [END_PSP, END_ALL, END_AS, END_AD, END_AD_FLOW, END_AM, END_AN] {
        let srh = SrhRepr::new(&[local(function), behind_core1(0xa)]);
        let frame = six(arriving("core0").ipv6(outer(function)).srh(srh), 1, 33);
        let whole = frame.build();
        for (case, payload_length) in [("no octet", 0_u16), ("one word", 8), ("all but one octet of the SRH", 39)] {
            let case = format!("{function:x}: Payload Length of {case}");
            let found = node.send("core0", &frame.clone().with_bytes(18, &payload_length.to_be_bytes()));
            assert_eq!(found.verdict, Verdict::Drop, "{case}: {:?}", found.moved);
        }
        for length in [5_u8, 11, 40, 255] {
            let case = format!("{function:x}: Hdr Ext Len {length}");
            let found = node.send("core0", &frame.clone().with_bytes(55, &[length]));
            let inside = 14 + 40 + 8 + 8 * usize::from(length) <= whole.len();
            let dropped = found.verdict == Verdict::Drop || found.moved.keys().any(|name| name.contains("drop_"));
            assert!(dropped || inside, "{case}: {:?}", found.moved);
            assert!(found.frame.len() <= whole.len() + 1280, "{case}");
        }
    }
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn lists_of_three_segments_and_more_go_back_on_without_stale_octets() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, back) in REMEMBERING {
        // Long and short by turns: what a longer header left behind must not show in a shorter one.
        for segments in [9_u16, 2, 8, 3, 7, 2, 4, 9, 3] {
            let list: Vec<Ipv6Addr> = std::iter::once(local(function))
                .chain((1..segments).map(|number| behind_core1(0x10 + number)))
                .collect();
            let srh = SrhRepr::new(&list).with_tag(segments);
            let case = format!("{function:x}: {segments} segments");
            to_function(&node, &case, &six(arriving("core0").ipv6(outer(function)).srh(srh.clone()), 1, 33));
            let header = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, list[1]) };
            let left = srh.segments_left - 1;
            let expected = leaving("core1").ipv6(header).srh(srh.with_segments_left(left));
            comes_back(&node, &case, back, &six(arriving(back), 1, 32), &six(expected, 1, 31));
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn each_proxy_lowers_the_inner_hop_limit_once_and_refuses_at_one() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, _, back) in REMEMBERING {
        let srh = SrhRepr::new(&[local(function), behind_core1(0xa)]);
        let front = arriving("core0").ipv6(outer(function)).srh(srh.clone());
        to_function(&node, "IPv6 out", &six(front.clone(), 1, 33));
        to_function(&node, "IPv4 out", &four(front, 1, 33));
        let header = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) };
        let expected = leaving("core1").ipv6(header).srh(srh.with_segments_left(0));
        for hop_limit in [255, 64, 2] {
            let case = format!("{function:x}: {hop_limit}");
            let frame = six(arriving(back), 1, hop_limit);
            comes_back(&node, &case, back, &frame, &six(expected.clone(), 1, hop_limit - 1));
            let frame = four(arriving(back), 1, hop_limit);
            comes_back(&node, &case, back, &frame, &four(expected.clone(), 1, hop_limit - 1));
        }
        for frame in [six(arriving(back), 1, 1), six(arriving(back), 1, 0), four(arriving(back), 1, 1)] {
            let found = node.send(back, &frame);
            let counter = format!("{back} drop_hop_limit_exceeded");
            assert!(found.moved.contains_key(&counter), "{function:x}: {:?}", found.moved);
        }
    }
    node.finish();
}

/// The two headers of the test below differ in every octet that could be torn: source, list, tag.
fn torn_header(own: u16, letter: u16) -> (Ipv6Repr, SrhRepr) {
    let repeated = |last: u16| Ipv6Addr::new(0xfc00, 0, 2, letter, letter, letter, letter, last);
    let list = [site::local(own), repeated(1), repeated(2), repeated(3), repeated(4)];
    let source = Ipv6Addr::new(0xfd00, 0, 9, letter, letter, letter, letter, letter);
    (Ipv6Repr::new(source, list[0]), SrhRepr::new(&list).with_tag(letter))
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a CPU");
    sched_setaffinity(Pid::from_raw(0), &set).expect("a CPU of this machine");
}

/// Two cores write the memory of one return interface with different headers as fast as they can, while what comes back reads it.
#[test]
#[ignore = "needs root"]
fn two_cores_never_tear_a_header() {
    const PACKETS: usize = 20_000;
    let cpus = std::thread::available_parallelism().expect("the number of CPUs").get();
    assert!(cpus >= 2, "one core tears nothing: run this on a machine with two");
    let site = Site::new(1);
    let node = Node::load(
        &site.node,
        &site.state(&format!(
            "sids:\n  - sid: 'fc00:0:1:a::/64'\n    behaviour: End.AD\n    next_hop_mac: '{}'\n    \
             proxy: {{inner: [IPv6], to_function: f0-w, from_function: f0-w}}\n",
            site::west_macs(0).1
        )),
    );
    let function = site.socket(0, "west");
    let receiver = site.core(1);
    let senders = [0xaaaa_u16, 0x5555].map(|letter| (letter, site.core(0)));
    let stop = AtomicBool::new(false);
    let mut seen = [0_usize; 2];
    std::thread::scope(|scope| {
        for (cpu, (letter, socket)) in senders.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                pin(cpu);
                let (header, srh) = torn_header(0xa, *letter);
                let frame = six(from_core(0).ipv6(header).srh(srh), *letter, 33).build();
                while !stop.load(Ordering::Relaxed) {
                    (0..32).for_each(|_| socket.send(&frame));
                    // Else a queue of the links overflows before the function gets its share of the cores.
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
        }
        let (stopped, function) = (&stop, &function);
        scope.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Some(frame) = function.receive(Duration::from_millis(20)) else { continue };
                if !is_chatter(&frame) {
                    function.send(&turned(frame));
                }
            }
        });
        let expected = [0xaaaa, 0x5555].map(|letter| {
            let (header, srh) = torn_header(0xa, letter);
            let header = Ipv6Repr { hop_limit: 63, destination: srh.segments[3], ..header };
            let srh = srh.with_segments_left(3);
            unlabelled(site::to_core(1).ipv6(header).srh(srh).payload(&[]).build())[14..].to_vec()
        });
        let end = Instant::now() + Duration::from_secs(60);
        let mut problem = None;
        while seen.iter().sum::<usize>() < PACKETS && problem.is_none() {
            let Some(frame) = receiver.receive(Duration::from_millis(100)) else {
                if Instant::now() > end {
                    problem = Some(format!("only {seen:?} packets came back: {:?}", node.counters()));
                }
                continue;
            };
            if is_chatter(&frame) {
                continue;
            }
            let found = unlabelled(frame);
            // Payload Length and the SRH's Next Header belong to the inner packet.
            let same = |header: &Vec<u8>| {
                let rest = |octets: &[u8]| [&octets[6..40], &octets[41..]].concat();
                rest(&found[14..14 + header.len()]) == rest(header)
            };
            match expected.iter().position(same) {
                Some(which) => seen[which] += 1,
                None => problem = Some(format!("a header that nobody sent: {found:02x?}")),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(problem, None);
    });
    assert!(seen.iter().all(|count| *count > 0), "both headers were in use: {seen:?}");
    let renewed = node.memory("fc00:0:1:a::/64").renewed;
    assert!(renewed > 100, "the cores hardly wrote against each other: {renewed} times");
}
