//! ICMPv6 errors of endpoint behaviours (RFC 8754 section 4.3, RFC 8986 section 4, RFC 4443): code, pointer, the quoted octets,
//! and when there must be none.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::icmpv6::parameter_problem;
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr, RoutingRepr};
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

/// Octets from the start of the IPv6 header, when the SRH follows it.
const ROUTING_TYPE: u32 = 42;
const SEGMENTS_LEFT: u32 = 43;

fn outer(destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, destination) }
}

fn path(first: u16) -> [Ipv6Addr; 3] {
    [local(first), behind_core1(0xa), behind_core1(0xb)]
}

fn inner(packet: PacketBuilder) -> PacketBuilder {
    packet
        .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(b"a payload of odd length")
}

/// The answer to the headend behind core0 about `frame`.
fn answer(frame: &PacketBuilder, message: impl FnOnce(Vec<u8>) -> Icmpv6Repr) -> PacketBuilder {
    let packet = frame.build().split_off(14);
    leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message(Icmpv6Repr::quote(&packet).to_vec()))
}

fn problem(code: u8, pointer: u32) -> impl FnOnce(Vec<u8>) -> Icmpv6Repr {
    move |packet| Icmpv6Repr::ParameterProblem { code, pointer, packet }
}

fn time_exceeded(packet: Vec<u8>) -> Icmpv6Repr {
    Icmpv6Repr::TimeExceeded { code: 0, packet }
}

/// A builder whose SRH, directly behind the IPv6 header, has these octets in place of Hdr Ext Len, Segments Left, Last Entry.
fn faulty(function: u16, hdr_ext_len: Option<u8>, segments_left: u8, last_entry: Option<u8>) -> PacketBuilder {
    let srh = SrhRepr::new(&path(function));
    let mut frame =
        inner(arriving("core0").ipv6(outer(local(function), 64)).srh(srh)).with_bytes(14 + 43, &[segments_left]);
    if let Some(length) = hdr_ext_len {
        frame = frame.with_bytes(14 + 41, &[length]);
    }
    if let Some(last_entry) = last_entry {
        frame = frame.with_bytes(14 + 44, &[last_entry]);
    }
    frame
}

#[test]
#[ignore = "needs root"]
fn a03_a04_a05_segments_left_and_last_entry_out_of_range() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for function in [END, END_PSP, END_X, END_T, END_B6, END_AS] {
        for (case, frame) in [
            ("Segments Left is Last Entry + 2", faulty(function, None, 4, None)),
            ("Segments Left 255", faulty(function, None, 255, None)),
            ("Last Entry is the largest possible + 1", faulty(function, None, 1, Some(3))),
            ("Last Entry 255", faulty(function, None, 1, Some(255))),
            ("Hdr Ext Len 0", faulty(function, Some(0), 1, Some(0))),
            ("Hdr Ext Len 1", faulty(function, Some(1), 1, Some(0))),
        ] {
            let reply = answer(&frame, problem(parameter_problem::ERRONEOUS_FIELD, SEGMENTS_LEFT));
            let case = format!("{case} at function {function:#x}");
            node.answers(&case, "core0", &frame, "drop_segments_left", "parameter_problem", &reply);
        }
    }
    let frame = inner(
        arriving("core0")
            .ipv6(outer(local(END), 64))
            .destination_options(OptionsRepr::default())
            .srh(SrhRepr::new(&path(END)))
            .with_bytes(14 + 48 + 3, &[9]),
    );
    let reply = answer(&frame, problem(0, SEGMENTS_LEFT + 8));
    node.answers("behind destination options", "core0", &frame, "drop_segments_left", "parameter_problem", &reply);
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a06_a07_hop_limit_exceeded() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for function in [END, END_PSP, END_X, END_T, END_B6, END_B6_RED, END_AS] {
        for hop_limit in [0, 1] {
            let frame =
                inner(arriving("core0").ipv6(outer(local(function), hop_limit)).srh(SrhRepr::new(&path(function))));
            let reply = answer(&frame, time_exceeded);
            let case = format!("hop limit {hop_limit} at function {function:#x}");
            node.answers(&case, "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
        }
    }
    let frame = faulty(END, None, 200, None).with_bytes(14 + 7, &[1]);
    let reply = answer(&frame, time_exceeded);
    let case = "hop limit and Segments Left both wrong: RFC 8986 looks at the hop limit first";
    node.answers(case, "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a08_a18_upper_layer_not_allowed() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let udp = |packet: PacketBuilder| packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"not for a SID");
    let code = parameter_problem::SR_UPPER_LAYER_HEADER;
    let exhausted = |function| SrhRepr::new(&[behind_core1(9), local(function)]).with_segments_left(0);
    for function in [
        END, END_PSP, END_USP, END_USD, END_ALL, END_X, END_T, END_B6, END_DX2, END_DX4, END_DX6, END_DT4, END_DT6,
        END_DT46, END_AS,
    ] {
        let start = || arriving("core0").ipv6(outer(local(function), 64));
        for (case, frame, pointer) in [
            ("without SRH", udp(start()), 40),
            ("behind an SRH", udp(start().srh(exhausted(function))), 40 + 40),
            ("behind destination options", udp(start().destination_options(OptionsRepr::default())), 48),
            (
                "behind hop-by-hop options and an SRH",
                udp(start().hop_by_hop(OptionsRepr::default()).srh(exhausted(function))),
                88,
            ),
            ("TCP", start().tcp(TcpRepr::new(1, 2, 2)), 40),
            ("no next header", start().payload(b"nothing"), 40),
        ] {
            let reply = answer(&frame, problem(code, pointer));
            let case = format!("{case} at function {function:#x}");
            node.answers(&case, "core0", &frame, "drop_upper_layer", "parameter_problem", &reply);
        }
    }
    let ipv4 = |packet: PacketBuilder| packet.ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(1, 2));
    for (function, frame) in [
        (END, inner(arriving("core0").ipv6(outer(local(END), 64)))),
        (END_PSP, inner(arriving("core0").ipv6(outer(local(END_PSP), 64)))),
        (END_USP, inner(arriving("core0").ipv6(outer(local(END_USP), 64)))),
        (END, ipv4(arriving("core0").ipv6(outer(local(END), 64)))),
        (END_DX4, inner(arriving("core0").ipv6(outer(local(END_DX4), 64)))),
        (END_DT4, inner(arriving("core0").ipv6(outer(local(END_DT4), 64)))),
        (END_DX6, ipv4(arriving("core0").ipv6(outer(local(END_DX6), 64)))),
        (END_DT6, ipv4(arriving("core0").ipv6(outer(local(END_DT6), 64)))),
        (END_DX2, ipv4(arriving("core0").ipv6(outer(local(END_DX2), 64)))),
    ] {
        let reply = answer(&frame, problem(code, 40));
        let case = format!("an inner packet that function {function:#x} does not take");
        node.answers(&case, "core0", &frame, "drop_upper_layer", "parameter_problem", &reply);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a09_echo_request_to_a_sid() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let data = b"are you there?".to_vec();
    let request = || Icmpv6Repr::EchoRequest { identifier: 7, sequence_number: 9, data: data.clone() };
    let reply = |from| {
        let message = Icmpv6Repr::EchoReply { identifier: 7, sequence_number: 9, data: data.clone() };
        leaving("core0").ipv6(Ipv6Repr::new(from, HEADEND)).icmpv6(message)
    };
    let frame = arriving("core0").ipv6(outer(local(END), 64)).icmpv6(request());
    let counters = ["echo_answered", "sid fc00:0:1:1::/64"];
    node.answers_counted("without SRH", "core0", &frame.build(), &reply(local(END)), &counters, "echo_reply");
    let exhausted = SrhRepr::new(&[behind_core1(9), local(END)]).with_segments_left(0);
    let frame = arriving("core0").ipv6(outer(local(END), 1)).srh(exhausted).icmpv6(request());
    node.answers_counted("as the last segment", "core0", &frame.build(), &reply(local(END)), &counters, "echo_reply");
    let frame = arriving("core0").ipv6(outer(local(END_NO_ECHO), 64)).icmpv6(request());
    let reply = answer(&frame, problem(parameter_problem::SR_UPPER_LAYER_HEADER, 40));
    node.answers("not allowed", "core0", &frame, "drop_upper_layer", "parameter_problem", &reply);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a14_other_routing_types() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for routing_type in [0, 2, 3, 253] {
        let routing =
            |segments_left| RoutingRepr { routing_type, segments_left, data: vec![0; 20], ..RoutingRepr::default() };
        let frame = inner(arriving("core0").ipv6(outer(local(END), 64)).routing(routing(1)));
        let reply = answer(&frame, problem(0, ROUTING_TYPE));
        let case = format!("routing type {routing_type} with segments left");
        node.answers(&case, "core0", &frame, "drop_routing_type", "parameter_problem", &reply);
        let srh = SrhRepr::new(&path(END));
        node.forwards(
            &format!("routing type {routing_type} without segments left is skipped"),
            "core0",
            &inner(arriving("core0").ipv6(outer(local(END), 64)).routing(routing(0)).srh(srh.clone())),
            &inner(
                leaving("core1").ipv6(outer(behind_core1(0xa), 63)).routing(routing(0)).srh(srh.with_segments_left(1)),
            ),
            &["sid fc00:0:1:1::/64"],
        );
    }
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a15_errors_are_never_sent_about() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = || SrhRepr::new(&path(END));
    let expired = |source| Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(source, local(END)) };
    let quoted = vec![0x60; 60];
    for (case, message) in [
        ("destination unreachable", Icmpv6Repr::DestinationUnreachable { code: 0, packet: quoted.clone() }),
        ("packet too big", Icmpv6Repr::PacketTooBig { mtu: 1280, packet: quoted.clone() }),
        ("time exceeded", Icmpv6Repr::TimeExceeded { code: 0, packet: quoted.clone() }),
        ("parameter problem", Icmpv6Repr::ParameterProblem { code: 0, pointer: 1, packet: quoted.clone() }),
        ("redirect", Icmpv6Repr::Other { message_type: 137, code: 0, body: vec![0; 36] }),
        ("an unknown error", Icmpv6Repr::Other { message_type: 100, code: 0, body: vec![0; 36] }),
    ] {
        let frame = arriving("core0").ipv6(expired(HEADEND)).srh(srh()).icmpv6(message.clone());
        node.drops_unanswered(&format!("{case} behind an SRH"), "core0", &frame, "drop_hop_limit_exceeded");
        let frame = arriving("core0")
            .ipv6(expired(HEADEND))
            .destination_options(OptionsRepr::default())
            .srh(srh())
            .icmpv6(message);
        node.drops_unanswered(&format!("{case} behind more"), "core0", &frame, "drop_hop_limit_exceeded");
    }
    let informational = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data: vec![] };
    let frame = arriving("core0").ipv6(expired(HEADEND)).srh(srh()).icmpv6(informational);
    let reply = answer(&frame, time_exceeded);
    node.answers("an echo request is no error", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let group = PacketBuilder::ethernet([2, 0, 0, 0, 0, 0x11], [0x33, 0x33, 0, 0, 0, 1]);
    let frame = inner(group.ipv6(expired(HEADEND)).srh(srh()));
    node.drops("link-layer multicast", "core0", &frame, "drop_group_frame");
    for (case, source) in [("multicast", "ff0e::1"), ("unspecified", "::"), ("loopback", "::1")] {
        let source = source.parse().expect("an address");
        let frame = inner(arriving("core0").ipv6(Ipv6Repr::new(source, local(END))).srh(srh()));
        node.drops(&format!("source {case}"), "core0", &frame, "drop_bad_source");
    }
    let frame = inner(arriving("core0").ipv6(Ipv6Repr::new(local(END), local(END))).srh(srh()));
    node.drops("the SID itself as source", "core0", &frame, "drop_bad_source");
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a15_an_error_is_at_most_1280_octets() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for octets in [1160, 1191, 1192, 1193, 1400, 2800] {
        let start = arriving("core0").ipv6(outer(local(END), 64));
        let frame = start.udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0x5a; octets - 8]);
        let reply = answer(&frame, problem(parameter_problem::SR_UPPER_LAYER_HEADER, 40));
        assert_eq!(reply.build().len(), (40 + octets + 48).min(1280) + 14);
        let case = format!("a packet of {} octets", 40 + octets);
        node.answers(&case, "core0", &frame, "drop_upper_layer", "parameter_problem", &reply);
    }
    let frame = arriving("core0").ipv6(outer(local(END), 64)).udp(UdpRepr::new(1, 2)).trailer(&[0xee; 20]);
    let mut packet = frame.build().split_off(14);
    packet.truncate(48);
    let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(Icmpv6Repr::ParameterProblem {
        code: parameter_problem::SR_UPPER_LAYER_HEADER,
        pointer: 40,
        packet,
    });
    node.answers(
        "padding of the frame is not quoted",
        "core0",
        &frame,
        "drop_upper_layer",
        "parameter_problem",
        &reply,
    );
    node.finish();
}

/// How many of 100 are answered, and what the counters say of one that is not.
fn flood(node: &Golden<'_>, port: &str, frame: &[u8], outcome: &str) -> usize {
    let sent = (0..100).filter(|_| node.node().run(port, frame).0 == Verdict::Redirect).count();
    // Again for the case that a token came in between.
    let mut again = (0..5).map(|_| node.node().send(port, frame));
    let limited = again.find(|outcome| outcome.verdict == Verdict::Drop).expect("the limit is reached");
    assert_eq!(limited.moved.get("icmp rate_limited"), Some(&(1, 0)), "{:?}", limited.moved);
    assert_eq!(limited.moved.get(&format!("{port} {outcome}")).map(|moved| moved.0), Some(1), "{:?}", limited.moved);
    assert_eq!(limited.moved.len(), 2, "{:?}", limited.moved);
    sent
}

/// RFC 4443 section 2.4(f): each kind of message has a budget of its own at each port, so that a flood of one silences no other.
#[test]
#[ignore = "needs root"]
fn a15_errors_are_rate_limited() {
    let network = Network::new();
    let slow = configuration(DOMAIN).replace("_second: 1000000", "_second: 1").replace("_burst: 1000000", "_burst: 3");
    let node = Golden::load(&network, &slow);
    // Each CPU has its buckets: all packets go through those of one. One more token comes each second.
    let mut one = nix::sched::CpuSet::new();
    one.set(0).expect("a first CPU");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).expect("this thread stays on one CPU");
    let expired = |port| inner(arriving(port).ipv6(outer(local(END), 1)).srh(SrhRepr::new(&path(END)))).build();
    let request = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data: vec![] };
    let echo = arriving("core0").ipv6(outer(local(END), 64)).icmpv6(request).build();
    let problem = faulty(END, None, 4, None).build();
    for (case, port, frame, outcome) in [
        ("time exceeded", "core0", expired("core0"), "drop_hop_limit_exceeded"),
        ("an echo reply", "core0", echo, "drop_not_answered"),
        ("parameter problem", "core0", problem, "drop_segments_left"),
        ("time exceeded at another port", "core1", expired("core1"), "drop_hop_limit_exceeded"),
    ] {
        // Those before have used up theirs. How long it all takes is not known: a token may come in between.
        let sent = flood(&node, port, &frame, outcome);
        assert!(sent >= 3, "{case}: {sent} with a burst of 3");
        assert!(sent < 50, "{case}: {sent} with a burst of 3");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a20_segments_left_at_a_decapsulating_sid() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for function in [END_DX2, END_DX4, END_DX6, END_DT4, END_DT6, END_DT46] {
        for hop_limit in [64, 1] {
            let frame =
                inner(arriving("core0").ipv6(outer(local(function), hop_limit)).srh(SrhRepr::new(&path(function))));
            let reply = answer(&frame, problem(0, SEGMENTS_LEFT));
            let case = format!("function {function:#x}, hop limit {hop_limit}, which is not looked at there");
            node.answers(&case, "core0", &frame, "drop_segments_left", "parameter_problem", &reply);
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn errors_of_routing_and_mtu_inside_the_domain() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let to = |next, octets: usize| {
        let srh = SrhRepr::new(&[local(END), next]);
        arriving("core0")
            .ipv6(outer(local(END), 64))
            .srh(srh)
            .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
            .udp(UdpRepr::new(40_000, 40_001))
            .payload(&vec![0x5a; octets - 128])
    };
    let frame = to(UNREACHABLE, 200);
    let reply = answer(&frame, |packet| Icmpv6Repr::DestinationUnreachable { code: 0, packet });
    node.answers("a route that says unreachable", "core0", &frame, "drop_no_route", "unreachable", &reply);
    let frame = to(behind_core2(1), 1401);
    let reply = answer(&frame, |packet| Icmpv6Repr::PacketTooBig { mtu: 1400, packet });
    node.answers("one octet too big", "core0", &frame, "drop_too_big", "too_big", &reply);
    let srh = SrhRepr::new(&[local(END), behind_core2(1)]).with_segments_left(0);
    let expected = leaving("core2")
        .ipv6(outer(behind_core2(1), 63))
        .srh(srh)
        .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(&vec![0x5a; 1400 - 128]);
    node.forwards("just fits", "core0", &to(behind_core2(1), 1400), &expected, &["sid fc00:0:1:1::/64"]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a22_an_outer_fragment_is_not_decapsulated() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let fragment = |fragment_offset, more_fragments| FragmentRepr {
        fragment_offset,
        more_fragments,
        identification: 0x1234_5678,
        ..FragmentRepr::default()
    };
    for function in [END_DX6, END_DT6, END_DT46, END_USD, END_AS] {
        for (case, repr) in [("first", fragment(0, true)), ("middle", fragment(8, true)), ("last", fragment(16, false))]
        {
            let frame = inner(arriving("core0").ipv6(outer(local(function), 64)).fragment(repr));
            let case = format!("{case} fragment at function {function:#x}");
            node.drops(&case, "core0", &frame, "drop_fragment_at_decapsulation");
        }
    }
    let frame = inner(arriving("core0").ipv6(outer(local(END_DX6), 64)).fragment(fragment(0, false)));
    let expected = leaving("acc1")
        .ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(CLIENT, SERVER) })
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(b"a payload of odd length");
    node.forwards("an atomic fragment is whole", "core0", &frame, &expected, &["sid fc00:0:1:33::/64"]);
    node.finish();
}
