//! Packets that are odd and not wrong in any header that Segue forwards by: octets behind them, addresses that do not leave a link,
//! options that must not be skipped, jumbograms (RFC 8200, RFC 4291, RFC 2675).

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, port_ipv6};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::icmpv6::parameter_problem::UNRECOGNIZED_OPTION;
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr};
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const SID: &str = "sid fc00:0:1:1::/64";

fn outer(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, ..Ipv6Repr::new(source, destination) }
}

fn srh() -> SrhRepr {
    SrhRepr::new(&[local(END), behind_core1(0xa), behind_core1(0xb)])
}

fn inner(packet: PacketBuilder) -> PacketBuilder {
    packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, 40_001)).payload(b"an odd packet")
}

fn quoted(frame: &PacketBuilder) -> Vec<u8> {
    Icmpv6Repr::quote(&frame.build().split_off(14)).to_vec()
}

/// Ethernet fills short frames up, and what is behind the packet may be anything: it stays here.
#[test]
#[ignore = "needs root"]
fn octets_behind_the_packet_do_not_leave() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let at_end = inner(arriving("core0").ipv6(outer(HEADEND, local(END), 64)).srh(srh()));
    let from_end = inner(leaving("core1").ipv6(outer(HEADEND, behind_core1(0xa), 63)).srh(srh().with_segments_left(1)));
    let through = inner(arriving("core0").ipv6(outer(HEADEND, behind_core1(1), 64)));
    let onwards = inner(leaving("core1").ipv6(outer(HEADEND, behind_core1(1), 63)));
    let steered: Ipv6Addr = "fd00:0:e2::7".parse().expect("an address");
    let data = b"to a SID".to_vec();
    let request = Icmpv6Repr::EchoRequest { identifier: 7, sequence_number: 9, data: data.clone() };
    let reply = Icmpv6Repr::EchoReply { identifier: 7, sequence_number: 9, data };
    for octets in [1, 6, 46, 700] {
        let padding = vec![0xee; octets];
        let case = |of: &str| format!("{octets} octets behind {of}");
        node.forwards(&case("End"), "core0", &at_end.clone().trailer(&padding), &from_end, &[SID]);
        node.forwards(&case("a packet to another node"), "core0", &through.clone().trailer(&padding), &onwards, &[]);
        // The acknowledgement of TCP is the packet that Ethernet fills up.
        let four = |packet: PacketBuilder, time_to_live| {
            let repr = Ipv4Repr { time_to_live, ..Ipv4Repr::new(CLIENT4, [10, 20, 2, 7].into()) };
            packet.inner_ipv4(repr).tcp(TcpRepr::new(40_000, 80, 0x10))
        };
        let six = |packet: PacketBuilder, hop_limit| {
            packet.inner_ipv6(outer(CLIENT, steered, hop_limit)).tcp(TcpRepr::new(40_000, 80, 0x10))
        };
        for (frame, expected, rule) in [
            (four(arriving("acc0"), 64), four(PacketBuilder::new(), 63), "rule one4"),
            (six(arriving("acc0"), 64), six(PacketBuilder::new(), 63), "rule one6"),
        ] {
            let frame = frame.trailer(&padding).build();
            let found = node.node().send("acc0", &frame);
            assert_eq!(found.verdict, Verdict::Redirect, "{rule}: {:?}", found.moved);
            assert!(found.moved.contains_key(rule), "{rule}: {:?}", found.moved);
            assert_eq!(found.frame[14 + 40..], expected.build(), "{}", case(rule));
        }
        let frame = arriving("core0").ipv6(outer(HEADEND, local(END), 64)).icmpv6(request.clone()).trailer(&padding);
        let expected = leaving("core0").ipv6(Ipv6Repr::new(local(END), HEADEND)).icmpv6(reply.clone());
        let counters = ["echo_answered", SID];
        node.answers_counted(&case("an echo request"), "core0", &frame.build(), &expected, &counters, "echo_reply");
    }
    // What goes to the kernel goes as it came.
    let own = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, NODE)).udp(UdpRepr::new(1, 2)).trailer(&[0xee; 9]);
    node.passes("to the node itself", "core0", &own, &own, "passed_not_for_segue", &[]);
    node.finish();
}

/// RFC 4291 section 2.5.6: routers must not forward packets with link-local source or destination addresses.
#[test]
#[ignore = "needs root"]
fn link_local_addresses_stay_on_their_link() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let near: Ipv6Addr = "fe80::2".parse().expect("an address");
    for function in [END_DX6, END_DT46, END_USD, END_X_USD, END_AS_IPV6] {
        for (case, source, destination) in [("source", near, SERVER), ("destination", CLIENT, near)] {
            let frame = arriving("core0")
                .ipv6(outer(HEADEND, local(function), 64))
                .inner_ipv6(Ipv6Repr::new(source, destination))
                .udp(UdpRepr::new(1, 2));
            node.drops(&format!("inner {case}, function {function:#x}"), "core0", &frame, "drop_bad_inner");
        }
    }
    let beyond = |packet| Icmpv6Repr::DestinationUnreachable { code: 2, packet };
    let steered: Ipv6Addr = "fd00:0:e2::7".parse().expect("an address");
    for (case, port, from, frame) in [
        ("at End", "core0", NODE, inner(arriving("core0").ipv6(outer(near, local(END), 64)).srh(srh()))),
        ("through", "core0", NODE, inner(arriving("core0").ipv6(outer(near, behind_core1(1), 64)))),
        (
            "steered",
            "acc0",
            port_ipv6("acc0"),
            arriving("acc0").ipv6(outer(near, steered, 64)).udp(UdpRepr::new(40_000, 2)).payload(b"off the link"),
        ),
    ] {
        // Back to who is on the link: no route leads there.
        let reply = leaving(port).ipv6(Ipv6Repr::new(from, near)).icmpv6(beyond(quoted(&frame)));
        node.answers(&format!("source {case}"), port, &frame, "drop_bad_source", "unreachable", &reply);
    }
    node.finish();
}

/// An option of this type with four octets of data, behind some padding.
fn option(of_type: u8) -> OptionsRepr {
    OptionsRepr { options: vec![0, 1, 1, 0, of_type, 4, 0, 1, 0, 0], ..OptionsRepr::default() }
}

/// RFC 8200 section 4.2: what to do about an option that a node does not know is in the highest bits of its type.
#[test]
#[ignore = "needs root"]
fn options_that_must_not_be_skipped() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let problem = |frame: &PacketBuilder, pointer| {
        let message = Icmpv6Repr::ParameterProblem { code: UNRECOGNIZED_OPTION, pointer, packet: quoted(frame) };
        leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message)
    };
    let start = || arriving("core0").ipv6(outer(HEADEND, local(END), 64));
    let out = || leaving("core1").ipv6(outer(HEADEND, behind_core1(0xa), 63));
    // Six octets in front of the option: the header's own two, and the padding.
    let at = 40 + 6;
    for (case, of_type) in [("skip", 0x3e), ("discard", 0x7e), ("tell", 0xbe), ("tell unless multicast", 0xfe)] {
        let hop = inner(start().hop_by_hop(option(of_type)).srh(srh()));
        let destination = inner(start().destination_options(option(of_type)).srh(srh()));
        let behind = inner(start().srh(srh()).destination_options(option(of_type)));
        let left = srh().with_segments_left(1);
        let after = inner(out().srh(left.clone()).destination_options(option(of_type)));
        node.forwards(
            &format!("{case}: behind an SRH with segments left, which is not looked at"),
            "core0",
            &behind,
            &after,
            &[SID],
        );
        match of_type >> 6 {
            0 => {
                let after = inner(out().hop_by_hop(option(of_type)).srh(left.clone()));
                node.forwards(&format!("{case}: hop by hop"), "core0", &hop, &after, &[SID]);
                let after = inner(out().destination_options(option(of_type)).srh(left));
                node.forwards(&format!("{case}: destination"), "core0", &destination, &after, &[SID]);
            }
            1 => {
                node.drops(&format!("{case}: hop by hop"), "core0", &hop, "drop_option");
                node.drops(&format!("{case}: destination"), "core0", &destination, "drop_option");
            }
            _ => {
                for (place, frame) in [("hop by hop", &hop), ("destination", &destination)] {
                    let reply = problem(frame, at);
                    let case = format!("{case}: {place}");
                    node.answers(&case, "core0", frame, "drop_option", "parameter_problem", &reply);
                }
            }
        }
    }
    // Also where the packet ends, and where it is taken out.
    let last = SrhRepr::new(&[behind_core1(9), local(END_DT46)]).with_segments_left(0);
    let frame =
        inner(arriving("core0").ipv6(outer(HEADEND, local(END_DT46), 64)).srh(last).destination_options(option(0xbe)));
    let reply = problem(&frame, at + 40);
    node.answers("at the last segment", "core0", &frame, "drop_option", "parameter_problem", &reply);
    let cut = OptionsRepr { options: vec![0x3e, 5, 0, 0, 0, 0], ..OptionsRepr::default() };
    node.drops(
        "an option longer than its header",
        "core0",
        &inner(start().hop_by_hop(cut).srh(srh())),
        "drop_bad_length",
    );
    let many = OptionsRepr { options: vec![0; 62], ..OptionsRepr::default() };
    let frame = inner(start().hop_by_hop(many).srh(srh()));
    node.drops("more options than anybody needs", "core0", &frame, "drop_too_many_headers");
    node.finish_with_faults();
}

/// RFC 2675: Payload Length 0 and the length in an option. No link of Segue's is wide enough for one.
#[test]
#[ignore = "needs root"]
fn jumbograms() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let jumbo = || OptionsRepr { options: vec![0xc2, 4, 0, 1, 0, 0], ..OptionsRepr::default() };
    let to =
        |destination| inner(arriving("core0").ipv6(outer(HEADEND, destination, 64)).hop_by_hop(jumbo()).srh(srh()));
    let problem = |frame: &PacketBuilder| {
        let message = Icmpv6Repr::ParameterProblem { code: UNRECOGNIZED_OPTION, pointer: 42, packet: quoted(frame) };
        leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message)
    };
    let frame = to(local(END)).with_bytes(18, &[0, 0]);
    node.answers("to a SID", "core0", &frame, "drop_option", "parameter_problem", &problem(&frame));
    let frame = to(local(END));
    node.answers("the option without need", "core0", &frame, "drop_option", "parameter_problem", &problem(&frame));
    let frame = to(behind_core1(1)).with_bytes(18, &[0, 0]);
    node.passes("through: the kernel's, and whole", "core0", &frame, &frame, "passed_route", &[]);
    let other = OptionsRepr { options: vec![1, 4, 0, 0, 0, 0], ..OptionsRepr::default() };
    let frame = inner(arriving("core0").ipv6(outer(HEADEND, local(END), 64)).hop_by_hop(other).srh(srh()));
    let frame = frame.with_bytes(18, &[0, 0]);
    node.drops("Payload Length 0 without the option", "core0", &frame, "drop_bad_length");
    let frame = inner(
        arriving("acc0").ipv6(outer(CLIENT, "fd00:0:e2::7".parse().expect("an address"), 64)).hop_by_hop(jumbo()),
    );
    node.drops("from outside", "acc0", &frame.with_bytes(18, &[0, 0]), "drop_bad_length");
    // What is inside another packet would leave without all that is behind its IPv6 header.
    let within = |front: PacketBuilder| front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).hop_by_hop(jumbo());
    for function in [END_DX6, END_DT46, END_USD, END_DT6_NESTED, END_AS_IPV6] {
        let frame = within(arriving("core0").ipv6(outer(HEADEND, local(function), 64))).udp(UdpRepr::new(1, 2));
        let case = format!("inside, function {function:#x}");
        node.drops(&case, "core0", &frame.with_bytes(14 + 40 + 4, &[0, 0]), "drop_bad_length");
    }
    let frame = within(arriving("fun1")).udp(UdpRepr::new(1, 2)).with_bytes(18, &[0, 0]);
    node.drops("from a function", "fun1", &frame, "drop_bad_length");
    node.finish_with_faults();
}

/// RFC 8200 section 4: a Next Header value of 0 anywhere but in the IPv6 header is one that is not recognized.
#[test]
#[ignore = "needs root"]
fn hop_by_hop_options_out_of_place() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let start = |function| arriving("core0").ipv6(outer(HEADEND, local(function), 64));
    let skip = || option(0x3e);
    for function in [END, END_DT46, END_AM, END_AD] {
        for (case, frame, pointer) in [
            ("twice", start(function).hop_by_hop(skip()).hop_by_hop(skip()), 40),
            ("behind destination options", start(function).destination_options(skip()).hop_by_hop(skip()), 40),
            ("behind both", start(function).hop_by_hop(skip()).destination_options(skip()).hop_by_hop(skip()), 40 + 16),
        ] {
            let frame = inner(frame.srh(srh()));
            let message = Icmpv6Repr::ParameterProblem { code: 1, pointer, packet: quoted(&frame) };
            let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message);
            let case = format!("{case}, function {function:#x}");
            node.answers(&case, "core0", &frame, "drop_too_many_headers", "parameter_problem", &reply);
        }
    }
    node.finish_with_faults();
}

/// RFC 4443 section 2.4(e): no error about an error, however many headers are in front of it.
#[test]
#[ignore = "needs root"]
fn errors_behind_many_headers_are_errors() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let start = || arriving("core0").ipv6(outer(HEADEND, local(END), 1)).srh(srh());
    let error = || Icmpv6Repr::DestinationUnreachable { code: 0, packet: vec![0x60; 60] };
    let used = SrhRepr::new(&[behind_core1(9), behind_core1(0xa)]).with_segments_left(1);
    let atomic = FragmentRepr { next_header: 0, fragment_offset: 0, more_fragments: false, identification: 7 };
    for (case, front) in [
        ("behind two lists", start().srh(used.clone())),
        ("behind three lists", start().srh(used.clone()).srh(used.clone())),
        ("behind options", start().destination_options(option(0x3e)).destination_options(option(0x3e))),
        ("behind an atomic fragment", start().fragment(atomic)),
        ("behind nine headers", (0..9).fold(start(), |front, _| front.destination_options(option(0x3e)))),
        ("behind hop-by-hop options out of place", start().hop_by_hop(option(0x3e))),
    ] {
        node.drops_unanswered(case, "core0", &front.icmpv6(error()), "drop_hop_limit_exceeded");
    }
    node.finish_with_faults();
}

/// What is behind a packet is no part of it: no error quotes it.
#[test]
#[ignore = "needs root"]
fn errors_do_not_quote_octets_behind_the_packet() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let frame = inner(arriving("core0").ipv6(outer(HEADEND, local(END), 1)).srh(srh()));
    let message = Icmpv6Repr::TimeExceeded { code: 0, packet: quoted(&frame) };
    let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message);
    let padded = frame.clone().trailer(&[0xee; 33]);
    node.answers("at a SID", "core0", &padded, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let steered: Ipv6Addr = "fd00:0:e2::7".parse().expect("an address");
    let frame = arriving("acc0").ipv6(outer(CLIENT, steered, 1)).udp(UdpRepr::new(40_000, 2)).payload(b"odd");
    let message = Icmpv6Repr::TimeExceeded { code: 0, packet: quoted(&frame) };
    let reply = leaving("acc0").ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT)).icmpv6(message);
    let padded = frame.clone().trailer(&[0xee; 33]);
    node.answers("steered", "acc0", &padded, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let within = Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(CLIENT, SERVER) };
    let packet = PacketBuilder::new().ipv6(within).udp(UdpRepr::new(40_000, 2)).payload(b"odd").build();
    let padded = [packet.clone(), vec![0xee; 33]].concat();
    let message = Icmpv6Repr::TimeExceeded { code: 0, packet };
    let frame = arriving("core0")
        .ipv6(Ipv6Repr { next_header: 41, ..outer(HEADEND, local(END_DT46), 64) })
        .payload(&padded)
        .trailer(&[0xdd; 9]);
    let reply = leaving("acc0").ipv6(Ipv6Repr::new(NODE, CLIENT)).icmpv6(message);
    node.answers("inside", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    node.finish_with_faults();
}

/// The version nibble says what the Ethertype or Next Header does, or the packet goes nowhere.
#[test]
#[ignore = "needs root"]
fn versions_that_do_not_fit() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let steered: Ipv6Addr = "fd00:0:e2::7".parse().expect("an address");
    for version in [0x00, 0x40, 0x50, 0x70, 0xf0] {
        let six = |frame: PacketBuilder, at| frame.with_bytes(at, &[version]);
        for function in [END, END_PSP, END_X, END_T, END_B6, END_AS, END_AD, END_AM, END_AN] {
            let frame = inner(arriving("core0").ipv6(outer(HEADEND, local(function), 64)).srh(srh()));
            let case = format!("version {:x} to {function:#x}", version >> 4);
            node.drops(&case, "core0", &six(frame, 14), "drop_bad_version");
        }
        for function in [END_DX6, END_DT6, END_DT46, END_USD, END_X_USD, END_AS_IPV6] {
            let frame = inner(arriving("core0").ipv6(outer(HEADEND, local(function), 64)));
            let case = format!("version {:x} inside, {function:#x}", version >> 4);
            node.drops(&case, "core0", &six(frame, 14 + 40), "drop_bad_version");
        }
        let frame = arriving("acc0").ipv6(outer(CLIENT, steered, 64)).udp(UdpRepr::new(1, 2));
        node.drops("steered", "acc0", &six(frame, 14), "drop_bad_version");
        for port in ["fun1", "dyn1", "flow0", "mask0", "aware0"] {
            let frame = arriving(port).ipv6(outer(CLIENT, SERVER, 64)).udp(UdpRepr::new(1, 2));
            let found = node.send(port, &six(frame, 14));
            assert_eq!(found.verdict, Verdict::Drop, "version {:x} from {port}: {:?}", version >> 4, found.moved);
        }
    }
    for version in [0x05, 0x15, 0x55, 0x65, 0xf5] {
        let four = |front: PacketBuilder, to: std::net::Ipv4Addr, at| {
            front.inner_ipv4(Ipv4Repr::new(CLIENT4, to)).udp(UdpRepr::new(1, 2)).with_bytes(at, &[version])
        };
        for function in [END_DX4, END_DT4, END_DT46, END_USD, END_AS] {
            let frame = four(arriving("core0").ipv6(outer(HEADEND, local(function), 64)), SERVER4, 14 + 40);
            let case = format!("version {:x} inside, {function:#x}", version >> 4);
            node.drops(&case, "core0", &frame, "drop_bad_version");
        }
        node.drops("steered", "acc0", &four(arriving("acc0"), [10, 20, 2, 7].into(), 14), "drop_bad_version");
    }
    node.finish_with_faults();
}
