//! The usual way into a policy on XDP (bpf/lib/access/fast.h) against the general one (bpf/lib/access/port.h), as usual.rs does it for what is in
//! the domain: the same packets by both, and verdicts, octets, outcomes and all counters are the same.

use std::net::{Ipv4Addr, Ipv6Addr};

use segue_testkit::fixture::{address::*, arriving};
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{make_runnable, on_socket_buffers};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::labels::labelled;
use crate::usual::{Step, compare_ways, faults};

const SEED: u64 = 0x5e9e_acce;
/// Behind the faults of packets chosen by hand.
const PACKETS: usize = 20_000;

/// Networks that rules of the fixture and of labels.rs are about: most of policies that send packets on.
const NETWORKS: [u16; 20] = [
    0xe0, 0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xea, 0xeb, 0xec, 0xec, 0xf00, 0xf00, 0xf01, 0xf02, 0xf04,
    0xf06, 0xf06,
];
const NETWORKS_IPV4: [[u8; 2]; 11] =
    [[20, 0], [20, 0], [20, 1], [20, 2], [20, 6], [21, 1], [22, 0], [30, 0], [30, 0], [31, 0], [35, 0]];

/// A packet of one of a few flows, so that most are remembered.
fn of_flow(random: &mut Random, port: &'static str) -> PacketBuilder {
    let hops = if random.below(12) == 0 { *random.pick(&[0, 1, 2, 255]) } else { 64 };
    let class = *random.pick(&[0, 0, 0xb8, 0x03, 0x29]);
    let source = random.below(3) as u16;
    let front = arriving(port);
    let whole = if random.below(3) == 0 {
        let [second, third] = *random.pick(&NETWORKS_IPV4);
        let to = if random.below(30) == 0 { SERVER4 } else { Ipv4Addr::new(10, second, third, 7) };
        front.ipv4(Ipv4Repr { time_to_live: hops, type_of_service: class, ..Ipv4Repr::new(CLIENT4, to) })
    } else {
        let network = *random.pick(&NETWORKS);
        let to = if random.below(30) == 0 { local(1) } else { Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7) };
        let flow_label = *random.pick(&[0, 0, 0x12345]);
        front.ipv6(Ipv6Repr { hop_limit: hops, traffic_class: class, flow_label, ..Ipv6Repr::new(CLIENT, to) })
    };
    let octets = vec![7; if random.below(8) == 0 { 1200 + random.below(260) } else { random.below(300) }];
    if random.below(3) == 0 {
        whole.tcp(TcpRepr::new(source, 80, *random.pick(&[0x02, 0x10]))).payload(&octets)
    } else {
        whole.udp(UdpRepr::new(source, 80)).payload(&octets)
    }
}

fn steps() -> Vec<Step> {
    let mut random = Random::new(SEED);
    let mut steps = Vec::new();
    let valid = |port, frame: PacketBuilder| Step { port, frame: frame.build(), echo: None };
    let six = |network| Ipv6Repr::new(CLIENT, Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7));
    let four = |second| Ipv4Repr::new(CLIENT4, Ipv4Addr::new(10, second, 0, 7));
    let udp = |front: PacketBuilder| front.udp(UdpRepr::new(1, 7)).payload(&[1; 9]);
    let tcp = |front: PacketBuilder| front.tcp(TcpRepr::new(1, 80, 2));
    for chosen in [
        udp(arriving("acc0").ipv6(six(0xe0))),
        udp(arriving("acc0").ipv6(six(0xf00))),
        tcp(arriving("acc0").ipv4(four(20))),
        udp(arriving("acc0").ipv4(four(30))),
    ] {
        let whole = valid("acc0", chosen);
        steps.push(whole.clone());
        faults(&mut steps, &whole);
    }
    let end = steps.len() + PACKETS;
    while steps.len() < end {
        let port = *random.pick(&["acc0", "acc0", "acc0", "acc1"]);
        let mut step = valid(port, of_flow(&mut random, port));
        if random.below(4) == 0 {
            mutate(&mut random, &mut step.frame);
        }
        steps.push(step);
    }
    steps.iter_mut().for_each(|step| make_runnable(&mut step.frame));
    steps
}

fn compare(configuration: &str) {
    // Else it would pass without having compared anything: `x` leaves it out there.
    assert!(!on_socket_buffers(), "on socket buffers there is the general way alone");
    compare_ways(configuration, &steps(), |_, _| "segue_access");
}

/// With connections that are opened for smaller packets, and with lists of one segment, of ten, of 32 labels, and several of one policy.
#[test]
#[ignore = "needs root"]
fn the_usual_way_into_a_policy_does_what_the_general_one_does() {
    let known = labelled("pipe");
    let clamped = known.replace("{name: full,", "{name: full, mss_clamp: 1400,");
    assert_ne!(known, clamped);
    compare(&clamped);
}

/// What is part of a flow's key only where rules ask for it.
#[test]
#[ignore = "needs root"]
fn and_where_rules_look_at_dscp() {
    let known = labelled("uniform");
    let rule = "steering:\n  - {destination: '::/0', dscp: [0], policy: ten}\n";
    let marked = known.replacen("steering:\n", rule, 1);
    assert_ne!(known, marked);
    compare(&marked);
}
