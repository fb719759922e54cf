//! The usual way to and from a function and out of a steering header (bpf/lib/proxy/fast.h), with what each processor remembers of flows,
//! against the general one (bpf/lib/proxy/take_off.h, bpf/lib/proxy/masquerade.h, bpf/lib/core/decapsulation.h): the same packets once through the
//! program of the ports, which takes the usual way where it can, and once through the stages that know only the general one.
//! Verdicts, octets, outcomes and all counters are the same.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use segue_abi::{self as abi, FunctionMetadata, Outcome};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, macs};
use segue_testkit::is_long;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Moved, Node, Runner, Verdict, make_runnable};
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr};
use segue_wire::{
    Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, TlvRepr, UdpRepr,
};
use zerocopy::FromBytes;

/// In a long run; a third of them else.
const PACKETS: usize = 120_000;
const SEED: u64 = 0x5e9e_0002;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
/// SIDs at which the steering header ends.
const DECAPSULATING: [u16; 8] = [END_DX4, END_DX6, END_DT4, END_DT6, END_DT46, END_DT6_NESTED, END_USD, END_X_USD];

/// A packet for the node. One that comes back from a function may be what the node has sent to it last.
#[derive(Clone)]
pub struct Step {
    pub port: &'static str,
    pub frame: Vec<u8>,
    /// The function of End.AM returns the packet of the step before, with its faults put into it by this seed.
    pub echo: Option<u64>,
}

/// How many packets, and of how many bits and lengths of a packet in turn one is tried.
fn effort() -> (usize, usize) {
    if is_long() { (PACKETS, 1) } else { (PACKETS / 3, 3) }
}

/// What a packet came to.
type Found = (Verdict, Vec<u8>, Vec<u64>);

pub fn inner(random: &mut Random, front: PacketBuilder) -> PacketBuilder {
    let hop_limit = *random.pick(&[64, 64, 64, 255, 2, 1, 0]);
    let traffic_class = *random.pick(&[0, 0, 0, 1, 2, 3, 0x29, 0xb8]);
    let octets = vec![7; if random.below(8) == 0 { 1100 + random.below(400) } else { random.below(600) }];
    let ports = (random.number() as u16, random.number() as u16);
    let six = |(source, destination)| Ipv6Repr {
        hop_limit,
        traffic_class,
        flow_label: u32::from(ports.0),
        ..Ipv6Repr::new(source, destination)
    };
    let to = *random.pick(&[SERVER4, SERVER4, SERVER4, IN_TABLE4]);
    let four = Ipv4Repr { time_to_live: hop_limit, type_of_service: traffic_class, ..Ipv4Repr::new(CLIENT4, to) };
    let addresses = *random.pick(&[
        (CLIENT, SERVER),
        (SERVER, CLIENT),
        (CLIENT, SERVER),
        (CLIENT, behind_core1(7)),
        (CLIENT, IN_TABLE),
        (LINK_LOCAL, SERVER),
        (CLIENT, NODE),
    ]);
    match random.below(12) {
        0..=3 => front.inner_ipv6(six(addresses)).udp(UdpRepr::new(ports.0, ports.1)).payload(&octets),
        4 => front.inner_ipv6(six(addresses)).tcp(TcpRepr::new(ports.0, ports.1, 1)).payload(&octets),
        5 => front.inner_ipv6(six(addresses)).icmpv6(Icmpv6Repr::EchoRequest {
            identifier: ports.0,
            sequence_number: ports.1,
            data: octets,
        }),
        6 => front
            .inner_ipv6(six(addresses))
            .destination_options(OptionsRepr::default())
            .udp(UdpRepr::new(ports.0, ports.1)),
        7 => front.inner_ipv6(six(addresses)).fragment(FragmentRepr::default()).udp(UdpRepr::new(ports.0, ports.1)),
        8 => front.inner_ipv4(four).icmpv4(Icmpv4Repr::EchoRequest {
            identifier: ports.0,
            sequence_number: ports.1,
            data: octets,
        }),
        9 => front.inner_ipv4(four).tcp(TcpRepr::new(ports.0, ports.1, 1)).payload(&octets),
        _ => front.inner_ipv4(four).udp(UdpRepr::new(ports.0, ports.1)).payload(&octets),
    }
}

/// To the function by End.AD. Most packets have a header that differs in nothing from the one before.
fn to_dynamic(random: &mut Random) -> PacketBuilder {
    let rare = random.below(8) == 0;
    let lists = [
        vec![local(END_AD), behind_core1(0xa), behind_core1(0xb)],
        vec![local(END_AD), behind_core1(0xa)],
        vec![local(END_AD), behind_core1(0xa), behind_core1(0xc), behind_core1(0xd)],
    ];
    let mut srh = SrhRepr::new(&lists[if rare { random.below(3) } else { 1 }]);
    let mut outer = Ipv6Repr { hop_limit: 60, flow_label: 5, ..Ipv6Repr::new(HEADEND, local(END_AD)) };
    if random.below(3) == 0 {
        outer.hop_limit = *random.pick(&[61, 59, 58, 62, 50, 2, 1, 255]);
        outer.traffic_class = *random.pick(&[0, 1, 2, 3, 0x29, 0xb8]);
        outer.flow_label = random.below(1 << 20) as u32;
        outer.destination = local_with_argument(END_AD, random.below(3) as u16);
    }
    if rare {
        srh.tag = random.below(2) as u16;
        if random.below(2) == 0 {
            srh = srh.with_tlv(TlvRepr::Unknown { tlv_type: 0x7d, value: vec![1; random.below(20)] });
        }
    }
    let front = arriving("core0").ipv6(outer);
    let front = if rare && random.below(4) == 0 { front.hop_by_hop(OptionsRepr::default()) } else { front };
    inner(random, front.srh(srh))
}

/// At the end of its list: mostly one of two segments.
fn to_decapsulate(random: &mut Random) -> PacketBuilder {
    let last = local(*random.pick(&DECAPSULATING));
    let mut list = vec![behind_core1(0xa), last];
    match random.below(16) {
        0 => list.insert(0, behind_core1(0xb)),
        1 => list.truncate(1),
        _ => {}
    }
    let mut outer = Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, last) };
    if random.below(3) == 0 {
        outer.hop_limit = *random.pick(&[1, 0, 255]);
        outer.traffic_class = *random.pick(&[0, 1, 2, 3]);
    }
    let left = if random.below(16) == 0 { 1 } else { 0 };
    let srh = SrhRepr::new(&list).with_segments_left(left);
    let front = arriving("core0").ipv6(outer);
    let front = if random.below(16) == 0 { front } else { front.srh(srh) };
    inner(random, front)
}

/// One of few inner flows, so that each is met again and again.
fn of_flow(random: &mut Random, front: PacketBuilder) -> PacketBuilder {
    let (source, octets) = (random.below(6) as u16, vec![4; random.below(60)]);
    match random.below(4) {
        0 => front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(source, 7)).payload(&octets),
        1 => front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(source, 7, 1)).payload(&octets),
        2 if source == 0 => inner(random, front),
        _ => front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(source, 7)).payload(&octets),
    }
}

/// To the function by End.AD with a memory by flow. A flow's header changes now and then, in what matters or not.
fn to_flow(random: &mut Random) -> PacketBuilder {
    let function = *random.pick(&[END_AD_FLOW, END_AD_FLOW, END_AD_FLOW_OTHER]);
    let mut srh = SrhRepr::new(&[local(function), behind_core1(0xa)]);
    let mut outer = Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, local(function)) };
    match random.below(12) {
        0 => srh.tag = random.below(3) as u16,
        1 => outer.hop_limit = *random.pick(&[61, 53, 50, 255, 2, 1]),
        2 => outer.traffic_class = *random.pick(&[1, 2, 3, 0xb8]),
        3 => srh = SrhRepr::new(&[local(function), behind_core1(0xc), behind_core1(0xd)]),
        _ => {}
    }
    of_flow(random, arriving("core0").ipv6(outer).srh(srh))
}

/// To the function by End.AM: the users' own packet with an SRH inserted.
fn to_masquerading(random: &mut Random) -> PacketBuilder {
    let function = *random.pick(&[END_AM, END_AM_NAT]);
    let list = [local(function), behind_core1(*random.pick(&[0xa, 0xc])), SERVER];
    // Two segments: none is left when the function has it.
    let list = if random.below(3) == 0 { vec![list[0], list[2]] } else { list.to_vec() };
    let repr = Ipv6Repr { hop_limit: *random.pick(&[64, 9, 2, 1]), ..Ipv6Repr::new(CLIENT, local(function)) };
    let octets = vec![1; random.below(300)];
    arriving("core0").ipv6(repr).srh(SrhRepr::new(&list)).udp(UdpRepr::new(1, 2)).payload(&octets)
}

/// Each bit of a packet's headers, and each length that it may be cut to; after each the packet itself, so that its header is
/// remembered again. One in `each`, another one for each packet.
pub fn faults(steps: &mut Vec<Step>, whole: &Step) {
    let (_, each) = effort();
    let first = steps.len() / 2 % each;
    for bit in (first..8 * whole.frame.len().min(180)).step_by(each) {
        let mut flipped = whole.clone();
        flipped.frame[bit / 8] ^= 1 << (bit % 8);
        steps.extend([flipped, whole.clone()]);
    }
    for length in (14 + first..whole.frame.len()).step_by(each) {
        let mut cut = whole.clone();
        cut.frame.truncate(length);
        steps.extend([cut, whole.clone()]);
    }
}

fn steps() -> Vec<Step> {
    let mut random = Random::new(SEED);
    let mut steps: Vec<Step> = Vec::new();
    let valid = |port, frame: PacketBuilder| Step { port, frame: frame.build(), echo: None };
    // Three packets, both ways, and back by End.AS.
    for number in 0..6 {
        let (function, back) = if number < 3 { (END_AD, "dyn1") } else { (END_AD_FLOW, "flow0") };
        let front = arriving("core0")
            .ipv6(Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, local(function)) })
            .srh(SrhRepr::new(&[local(function), behind_core1(0xa)]));
        let packet = |front: PacketBuilder| match number % 3 {
            0 => front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&[1; 9]),
            1 => front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(1, 2)).payload(&[1; 9]),
            _ => front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(1, 2, 3)),
        };
        for (port, whole) in
            [("core0", packet(front)), (back, packet(arriving(back))), ("fun1", packet(arriving("fun1")))]
        {
            faults(&mut steps, &valid(port, whole));
        }
    }
    for function in [END_DX6, END_DT46] {
        let front = arriving("core0")
            .ipv6(Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, local(function)) })
            .srh(SrhRepr::new(&[behind_core1(0xa), local(function)]).with_segments_left(0));
        let whole = if function == END_DX6 {
            front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&[1; 9])
        } else {
            front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(1, 2)).payload(&[1; 9])
        };
        faults(&mut steps, &valid("core0", whole));
    }
    while steps.len() < effort().0 {
        let mut step = match random.below(20) {
            16..=19 => valid("core0", to_decapsulate(&mut random)),
            14..=15 => {
                let port = *random.pick(&["fun1", "fun1", "fun1", "fun0", "fun2"]);
                valid(port, inner(&mut random, arriving(port)))
            }
            9..=11 => valid("core0", to_flow(&mut random)),
            12..=13 => valid("flow0", of_flow(&mut random, arriving("flow0"))),
            0..=3 => valid("core0", to_dynamic(&mut random)),
            4..=6 => valid("dyn1", inner(&mut random, arriving("dyn1"))),
            _ => {
                let out = valid("core0", to_masquerading(&mut random));
                steps.push(out);
                Step { port: "mask0", frame: Vec::new(), echo: Some(random.number()) }
            }
        };
        if step.echo.is_none() && random.below(3) == 0 {
            mutate(&mut random, &mut step.frame);
        }
        steps.push(step);
    }
    steps.iter_mut().filter(|step| step.echo.is_none()).for_each(|step| make_runnable(&mut step.frame));
    steps
}

/// What a function of End.AM sends back: the packet as it came, by the port that it came from, or with faults.
fn echoed(step: &Step, seed: u64, last: &[u8]) -> (&'static str, Vec<u8>) {
    let mut random = Random::new(seed);
    let mut frame = last.to_vec();
    frame.resize(frame.len().max(54), 0);
    let (_, function) = macs("mask1");
    let port = if frame[..6] == function.0 { "mask1" } else { step.port };
    let (node, far) = macs(port);
    let addresses = |to: MacAddress, from: MacAddress| [to.0, from.0].concat();
    frame[..12].copy_from_slice(&addresses(node, far));
    match random.below(6) {
        0 => mutate(&mut random, &mut frame),
        1 => {
            let at = random.below(frame.len().min(110));
            frame[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    (port, frame)
}

/// What is in front of a packet that the kernel takes to a function, in a form that is the same on every node: without the node's
/// secret, and with references numbered as they were met first.
fn comparable(octets: &mut [u8], references: &mut HashMap<(u32, u32), usize>) {
    let (metadata, _) = FunctionMetadata::mut_from_prefix(octets).expect("metadata");
    let of_reference = abi::SEGUE_METADATA_TIME | abi::SEGUE_METADATA_SERIES;
    let number = references.len();
    metadata.stash = *references.entry((metadata.stash, metadata.flags & of_reference)).or_insert(number) as u32;
    metadata.flags &= !of_reference;
    metadata.magic = 0;
}

/// Sends all packets, and says what became of each, and what all counters say in the end.
fn walk(
    node: &Node<'_>,
    steps: &[Step],
    send: impl Fn(&mut Runner<'_>, &str, &[u8]) -> (Verdict, Vec<u8>) + Send + Sync,
) -> (Vec<Found>, Moved) {
    let found = node.run_many(|runner| {
        // What is remembered lies with the processor.
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(0).expect("a processor");
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).expect("it can be chosen");
        let (mut last, mut given, mut references) = (Vec::new(), HashMap::new(), HashMap::new());
        let each = steps.iter().map(|step| {
            let (port, mut frame) = match step.echo {
                Some(seed) => echoed(step, seed, &last),
                None => (step.port, step.frame.clone()),
            };
            // Whose frame it is, is asked before either way begins.
            if port.starts_with("core") && frame.len() >= 6 {
                frame[..6].copy_from_slice(&macs(port).0.0);
            }
            let (verdict, mut octets) = send(runner, port, &frame);
            last.clone_from(&octets);
            // Nobody sees the octets of a packet that is dropped.
            if verdict == Verdict::Drop {
                octets.clear();
            }
            let outcomes = runner.outcomes(port);
            let to_function = outcomes[usize::from(Outcome::ToFunction.number())];
            let is_given = given.insert(port, to_function).unwrap_or(0) != to_function;
            if verdict == Verdict::Pass && is_given {
                comparable(&mut octets, &mut references);
            }
            (verdict, octets, outcomes)
        });
        each.collect()
    });
    (found, node.counters())
}

fn hexadecimal(frame: &[u8]) -> String {
    frame.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
#[ignore = "needs root"]
fn the_usual_way_does_what_the_general_one_does() {
    compare(&configuration(DOMAIN));
}

/// The list of End.AS has one segment in its SRH, as is usual; then three, which is not.
#[test]
#[ignore = "needs root"]
fn and_with_other_lists() {
    let whole = "      reduced: false\n";
    let both = configuration(DOMAIN);
    assert_eq!(both.matches(whole).count(), 1);
    compare(&both.replace(whole, ""));
    let list = both
        .lines()
        .find(|line| line.contains("segments: ['fc00:0:2:a::', 'fc00:0:2:b::']"))
        .expect("the list of End.AS");
    let longer = list.replace("'fc00:0:2:b::'", "'fc00:0:2:b::', 'fc00:0:2:c::'");
    compare(&both.replacen(list, &longer, 1));
}

/// With a memory by packet, and End.AN.NF, which hand packets to the kernel: with an argument, and without.
#[test]
#[ignore = "needs root"]
fn and_through_the_kernel() {
    let known = configuration(DOMAIN);
    let by_interface = "to_function: dyn0, from_function: dyn1}";
    assert_eq!(known.matches(by_interface).count(), 1);
    compare(&known.replace(by_interface, "to_function: dyn1, from_function: dyn1, memory: packet}"));
    let lines: Vec<&str> = known.lines().collect();
    let at = lines.iter().position(|line| line.contains(by_interface)).expect("the proxy");
    for argument in ["", "    argument_length: 16\n"] {
        let netfilter = format!("    behaviour: End.AN.NF\n{argument}    netfilter: {{namespace: nf}}");
        let changed = [&lines[..at - 2], &[netfilter.as_str()], &lines[at + 1..]].concat().join("\n");
        compare(&changed);
    }
}

fn compare(configuration: &str) {
    compare_ways(
        configuration,
        &steps(),
        |port, _| if port.starts_with("core") { "segue_again" } else { "segue_service" },
    );
}

/// Sends all packets by both ways: through the program of the ports, and through the stage that `general` says.
pub fn compare_ways(configuration: &str, steps: &[Step], general: impl Fn(&str, &[u8]) -> &'static str + Sync) {
    let networks = [Network::new(), Network::new()];
    networks.iter().for_each(Network::links_to_netfilter);
    let nodes = networks.each_ref().map(|network| Node::load(&network.node, configuration));
    let (usual, usual_counters) = walk(&nodes[0], steps, |runner, port, frame| runner.run(port, frame));
    let (general, general_counters) =
        walk(&nodes[1], steps, |runner, port, frame| runner.run_stage(general(port, frame), port, frame));
    let mut verdicts = [0_usize; 5];
    let mut differences = Vec::new();
    for (number, (usual, general)) in usual.iter().zip(&general).enumerate() {
        if usual != general {
            let what = |found: &Found| {
                let rows = usual.2.iter().zip(&general.2).zip(&found.2).enumerate();
                let differ = rows.filter(|(_, ((a, b), _))| a != b).map(|(row, (_, packets))| {
                    let name = Outcome::from_number(row as u16).map_or("unknown", Outcome::name);
                    format!(" {name} {packets}")
                });
                format!("{:?}{} {}", found.0, differ.collect::<String>(), hexadecimal(&found.1))
            };
            let Step { port, frame, .. } = &steps[number];
            differences.push(format!(
                "packet {number} to {port}: {}\n  usual {}\n  general {}",
                hexadecimal(frame),
                what(usual),
                what(general)
            ));
        }
        verdicts[usual.0 as usize] += 1;
    }
    // Counters that differ once differ from then on.
    assert!(
        differences.is_empty(),
        "{} differ, first:\n{}",
        differences.len(),
        differences[..differences.len().min(3)].join("\n")
    );
    assert_eq!(usual_counters, general_counters);
    println!("{} packets: [aborted, dropped, passed, sent back, redirected] {verdicts:?}", usual.len());
    assert_eq!(verdicts[0], 0, "no program aborts");
    let (dropped, on) = (verdicts[1], verdicts[2] + verdicts[4]);
    assert!(dropped > steps.len() / 24 && on > steps.len() / 3, "both ends of a packet are tried: {verdicts:?}");
}
