//! Proxies that remember the steering header, and those that leave it in the packet: End.AD, End.AM
//! (draft-ietf-spring-sr-service-programming sections 6.2 and 6.4), and SR-aware functions.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TlvRepr, UdpRepr};

const TO_FUNCTION: &str = "to_function";

fn path(first: u16) -> [Ipv6Addr; 3] {
    [local(first), behind_core1(0xa), behind_core1(0xb)]
}

fn outer(function: u16, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, local(function)) }
}

/// The outer header as it goes back on: one hop further, to the next segment.
fn back(hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) }
}

fn six_from(packet: PacketBuilder, port: u16, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(port, 40_001)).payload(b"for the function")
}

fn six(packet: PacketBuilder, hop_limit: u8) -> PacketBuilder {
    six_from(packet, 40_000, hop_limit)
}

fn four(packet: PacketBuilder, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for the function")
}

/// The flow label that a proxy makes anew for a packet from this port.
fn label(node: &Golden<'_>, port: &str, packet: &PacketBuilder) -> u32 {
    let found = node.send(port, packet);
    assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
    let label = u32::from_be_bytes([0, found.frame[15] & 15, found.frame[16], found.frame[17]]);
    assert_ne!(label, 0, "RFC 6437: not 0");
    label
}

#[test]
#[ignore = "needs root"]
fn a50_a64_dynamic_out_and_back() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    node.drops("A54: nothing remembered yet", "dyn1", &six(arriving("dyn1"), 64), "drop_proxy_empty");
    let tlv = |octets: usize| TlvRepr::Unknown { tlv_type: 0x7d, value: vec![3; octets] };
    let full = SrhRepr::new(&path(END_AD));
    for (case, srh) in [
        ("full SRH", full.clone()),
        ("A64: TLV and tag survive; not a multiple of 16 octets", SrhRepr { tag: 77, ..full.clone() }.with_tlv(tlv(6))),
        ("a TLV of 16 octets", full.clone().with_tlv(tlv(14))),
        ("another list", SrhRepr::new(&[local(END_AD), behind_core1(0xa), behind_core1(0xc), behind_core1(0xd)])),
    ] {
        let (counter, returned) = ("sid fc00:0:1:71::/64", ["returned fc00:0:1:71::/64"]);
        let left = srh.segments_left;
        for hop_limit in [64, 9] {
            let front = arriving("core0").ipv6(outer(END_AD, hop_limit)).srh(srh.clone());
            let (frame, expected) = (six(front.clone(), 33).build(), six(leaving("dyn0"), 33).build());
            node.leaves(case, "core0", &frame, &expected, TO_FUNCTION, &[counter]);
            let flow_label = label(&node, "dyn1", &six(arriving("dyn1"), 32));
            let header = |flow_label| leaving("core1").ipv6(Ipv6Repr { flow_label, ..back(hop_limit - 1) });
            let advanced = srh.clone().with_segments_left(left - 1);
            let expected = six(header(flow_label).srh(advanced.clone()), 31);
            node.forwards(case, "dyn1", &six(arriving("dyn1"), 32), &expected, &returned);
            let (frame, expected) = (four(front, 33).build(), four(leaving("dyn0"), 33).build());
            node.leaves(case, "core0", &frame, &expected, TO_FUNCTION, &[counter]);
            let flow_label = label(&node, "dyn1", &four(arriving("dyn1"), 32));
            let expected = four(header(flow_label).srh(advanced), 31);
            node.forwards(case, "dyn1", &four(arriving("dyn1"), 32), &expected, &returned);
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a50_extension_headers_in_front_and_behind_come_back() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END_AD));
    type Shape = fn(PacketBuilder, SrhRepr) -> PacketBuilder;
    let before: Shape = |packet, srh| packet.destination_options(OptionsRepr::default()).srh(srh);
    let behind: Shape = |packet, srh| packet.srh(srh).destination_options(OptionsRepr::default());
    for (case, shape) in [("destination options before the SRH", before), ("behind it", behind)] {
        let frame = six(shape(arriving("core0").ipv6(outer(END_AD, 64)), srh.clone()), 33).build();
        let expected = six(leaving("dyn0"), 33).build();
        node.leaves(case, "core0", &frame, &expected, TO_FUNCTION, &["sid fc00:0:1:71::/64"]);
        let flow_label = label(&node, "dyn1", &six(arriving("dyn1"), 32));
        let header = leaving("core1").ipv6(Ipv6Repr { flow_label, ..back(63) });
        let expected = six(shape(header, srh.clone().with_segments_left(1)), 31);
        node.forwards(case, "dyn1", &six(arriving("dyn1"), 32), &expected, &["returned fc00:0:1:71::/64"]);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a55_the_header_is_renewed_only_when_it_matters() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END_AD));
    let to_function = |repr: Ipv6Repr| {
        let frame = six(arriving("core0").ipv6(repr).srh(srh.clone()), 33).build();
        let expected = six(leaving("dyn0"), 33).build();
        node.leaves("out", "core0", &frame, &expected, TO_FUNCTION, &["sid fc00:0:1:71::/64"]);
    };
    let comes_back = |case: &str, hop_limit: u8| {
        let packet = six(arriving("dyn1"), 32);
        let flow_label = label(&node, "dyn1", &packet);
        let header = leaving("core1").ipv6(Ipv6Repr { flow_label, ..back(hop_limit) });
        let expected = six(header.srh(srh.clone().with_segments_left(1)), 31);
        node.forwards(case, "dyn1", &packet, &expected, &["returned fc00:0:1:71::/64"]);
    };
    to_function(outer(END_AD, 64));
    comes_back("the first", 63);
    for repr in [
        Ipv6Repr { flow_label: 0x12345, ..outer(END_AD, 64) },
        Ipv6Repr { traffic_class: 46 << 2, ..outer(END_AD, 64) },
        outer(END_AD, 57),
        outer(END_AD, 71),
    ] {
        to_function(repr);
        comes_back("flow label, DSCP and hop limit within the margin make no other header", 63);
    }
    to_function(outer(END_AD, 56));
    comes_back("a hop limit that differs by the margin does", 55);
    let other = Ipv6Repr::new("fd00:0:9::2".parse().expect("an address"), local(END_AD));
    to_function(other);
    let packet = six(arriving("dyn1"), 32);
    let flow_label = label(&node, "dyn1", &packet);
    let repr = Ipv6Repr { flow_label, hop_limit: 63, ..Ipv6Repr::new(other.source, behind_core1(0xa)) };
    let expected = six(leaving("core1").ipv6(repr).srh(srh.clone().with_segments_left(1)), 31);
    node.forwards("another source", "dyn1", &packet, &expected, &["returned fc00:0:1:71::/64"]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a52_dynamic_is_never_the_last_segment() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for function in [END_AD, END_AD_FLOW, END_AM, END_AN] {
        for (case, packet) in [
            ("no SRH", six(arriving("core0").ipv6(outer(function, 64)), 33)),
            (
                "no segments left",
                six(
                    arriving("core0")
                        .ipv6(outer(function, 64))
                        .srh(SrhRepr::new(&path(function)).with_segments_left(0)),
                    33,
                ),
            ),
        ] {
            let found = node.send("core0", &packet);
            assert!(found.moved.contains_key("core0 drop_upper_layer"), "{case}: {:?}", found.moved);
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn flows_of_several_chains_through_one_interface() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    node.drops("a flow that never went there", "flow0", &six(arriving("flow0"), 64), "drop_unknown_flow");
    let chains = 40_u16;
    let srh = |chain: u16| {
        let first = local(if chain.is_multiple_of(2) { END_AD_FLOW } else { END_AD_FLOW_OTHER });
        SrhRepr { tag: chain, ..SrhRepr::new(&[first, behind_core1(0xa), behind_core1(0x100 + chain)]) }
    };
    let function = |chain: u16| if chain.is_multiple_of(2) { END_AD_FLOW } else { END_AD_FLOW_OTHER };
    for chain in 0..chains {
        let sid = format!("sid {}/64", local(function(chain)));
        let front = arriving("core0").ipv6(outer(function(chain), 64)).srh(srh(chain));
        let frame = six_from(front, 1000 + chain, 33).build();
        let expected = six_from(leaving("flow0"), 1000 + chain, 33).build();
        node.leaves("out", "core0", &frame, &expected, TO_FUNCTION, &[&sid]);
    }
    for chain in (0..chains).rev() {
        let packet = six_from(arriving("flow0"), 1000 + chain, 32);
        let flow_label = label(&node, "flow0", &packet);
        let header = leaving("core1").ipv6(Ipv6Repr { flow_label, ..back(63) });
        let expected = six_from(header.srh(srh(chain).with_segments_left(1)), 1000 + chain, 31);
        node.forwards("back", "flow0", &packet, &expected, &["returned fc00:0:1:72::/64"]);
    }
    // The protocol is part of the key: TCP on the same ports is another flow.
    let tcp =
        arriving("flow0").inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(segue_wire::TcpRepr::new(1000, 40_001, 2));
    node.drops("TCP and UDP on the same ports", "flow0", &tcp, "drop_unknown_flow");
    let reverse = arriving("flow0").inner_ipv6(Ipv6Repr::new(SERVER, CLIENT)).udp(UdpRepr::new(40_001, 1000));
    node.drops("the other direction is another flow", "flow0", &reverse, "drop_unknown_flow");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a50_dynamic_with_ethernet() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let (source, destination) = ([2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 8, 8]);
    let packet = four(PacketBuilder::ethernet(source, destination), 64);
    let srh = SrhRepr::new(&path(END_AD_ETHERNET));
    let frame = arriving("core0").ipv6(outer(END_AD_ETHERNET, 64)).srh(srh.clone());
    let frame = four(frame.inner_ethernet(source, destination), 64);
    node.leaves("out", "core0", &frame.build(), &packet.build(), TO_FUNCTION, &["sid fc00:0:1:74::/64"]);
    let flow_label = label(&node, "frames0", &packet);
    let header = leaving("core1").ipv6(Ipv6Repr { flow_label, ..back(63) });
    let expected = four(header.srh(srh.with_segments_left(1)).inner_ethernet(source, destination), 64);
    node.forwards("back, untouched", "frames0", &packet, &expected, &["returned fc00:0:1:74::/64"]);
    node.finish();
}

/// The user's own packet with an SRH inserted: from the client, to the active segment.
fn inserted(port: PacketBuilder, destination: Ipv6Addr, hop_limit: u8, srh: SrhRepr) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, destination) };
    port.ipv6(repr).srh(srh).udp(UdpRepr::new(1, 2)).payload(b"masqueraded")
}

#[test]
#[ignore = "needs root"]
fn a60_masquerading_trace() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [local(END_AM), behind_core1(0xa), SERVER];
    let srh = SrhRepr::new(&list);
    let out = inserted(arriving("core0"), local(END_AM), 64, srh.clone());
    let expected = inserted(leaving("mask0"), SERVER, 63, srh.clone().with_segments_left(1));
    node.leaves("out", "core0", &out.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:81::/64"]);
    let returned = |srh: SrhRepr, destination, hop_limit| inserted(arriving("mask0"), destination, hop_limit, srh);
    let one = srh.clone().with_segments_left(1);
    let expected = inserted(leaving("core1"), behind_core1(0xa), 59, one.clone());
    let counter = ["returned fc00:0:1:81::/64"];
    node.forwards("back", "mask0", &returned(one.clone(), SERVER, 60), &expected, &counter);
    let mut other = one.clone();
    other.segments[1] = behind_core1(0xdd);
    for (case, packet) in [
        ("the next segment was changed", returned(other, SERVER, 60)),
        ("the tag was changed", returned(SrhRepr { tag: 9, ..one.clone() }, SERVER, 60)),
        ("the destination was changed, without the NAT flavour", returned(one.clone(), CLIENT, 60)),
        (
            "never sent there",
            returned(SrhRepr::new(&[local(1), behind_core1(0xa), SERVER]).with_segments_left(1), SERVER, 60),
        ),
    ] {
        node.drops(case, "mask0", &packet, "drop_header_changed");
    }
    let own = arriving("mask0").ipv6(Ipv6Repr::new(SERVER, CLIENT)).udp(UdpRepr::new(2, 1));
    node.drops("the function's own packet", "mask0", &own, "drop_from_function");
    // Two chains at the same time: what was sent first is still known.
    let second = SrhRepr::new(&[local(END_AM), behind_core1(0xe), behind_core1(0xf), SERVER]);
    let out = inserted(arriving("core0"), local(END_AM), 64, second.clone());
    let expected = inserted(leaving("mask0"), SERVER, 63, second.with_segments_left(2));
    node.leaves("a second chain", "core0", &out.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:81::/64"]);
    let expected = inserted(leaving("core1"), behind_core1(0xa), 59, one.clone());
    node.forwards("the first chain's, after it", "mask0", &returned(one, SERVER, 60), &expected, &counter);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a61_a62_masquerading_with_nat_and_caching() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&[local(END_AM_NAT), behind_core1(0xa), SERVER]);
    let out = inserted(arriving("core0"), local(END_AM_NAT), 64, srh.clone());
    let one = srh.with_segments_left(1);
    let expected = inserted(leaving("mask1"), SERVER, 63, one.clone());
    node.leaves("out", "core0", &out.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:82::/64"]);
    let translated: Ipv6Addr = "fd00:0:a1::77".parse().expect("an address");
    let packet = inserted(arriving("mask1"), translated, 60, one.clone());
    let mut list = one.clone();
    list.segments[0] = translated;
    // The NAT computed the transport checksum over the new destination, as the builder does for this list.
    let expected = inserted(leaving("core1"), behind_core1(0xa), 59, list);
    let checksum = 14 + 40 + 56 + 6;
    let packet = packet.with_bytes(checksum, &expected.build()[checksum..checksum + 2]);
    node.forwards(
        "A61: Segment List[0] is the new destination",
        "mask1",
        &packet,
        &expected,
        &["returned fc00:0:1:82::/64"],
    );
    let repr = Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(CLIENT, translated) };
    let bare = arriving("mask1").ipv6(repr).udp(UdpRepr::new(1, 2)).payload(b"masqueraded");
    node.forwards("A62: without SRH it gets the last one", "mask1", &bare, &expected, &["returned fc00:0:1:82::/64"]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn sr_aware_function_changes_what_it_may() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END_AN));
    let frame = six(arriving("core0").ipv6(outer(END_AN, 64)).srh(srh.clone()), 33);
    let expected = six(leaving("aware0").ipv6(outer(END_AN, 63)).srh(srh.clone()), 33);
    let from = |destination, srh: SrhRepr| {
        six(arriving("aware0").ipv6(Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, destination) }).srh(srh), 33)
    };
    let advanced = srh.with_segments_left(1);
    let unknown = from(behind_core1(0xa), advanced.clone());
    node.drops("a flow that never went there", "aware0", &unknown, "drop_unknown_flow");
    node.leaves("out, as it came", "core0", &frame.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:91::/64"]);
    let longer = |segments: &[Ipv6Addr]| SrhRepr::new(segments).with_segments_left(segments.len() as u8 - 2);
    let goes_on = |case: &str, destination, srh: SrhRepr| {
        let repr = Ipv6Repr { hop_limit: 59, ..Ipv6Repr::new(HEADEND, destination) };
        let expected = six(leaving("core1").ipv6(repr).srh(srh.clone()), 33);
        node.forwards(case, "aware0", &from(destination, srh), &expected, &["returned fc00:0:1:91::/64"]);
    };
    goes_on("its own End processing", behind_core1(0xa), advanced.clone());
    let next = behind_core1(0x77);
    let inserted = longer(&[local(END_AN), next, behind_core1(0xa), behind_core1(0xb)]);
    goes_on("inserted after the current", next, inserted.clone());
    let two = longer(&[local(END_AN), next, behind_core1(0x78), behind_core1(0xa), behind_core1(0xb)]);
    goes_on("two inserted", next, two);
    let elsewhere = longer(&[local(END_AN), behind_core1(0xa), next, behind_core1(0xb)]);
    let replaced = longer(&[local(END_AN), next, behind_core1(0xb)]);
    let outside = longer(&[local(END_AN), SERVER, behind_core1(0xa), behind_core1(0xb)]);
    let last = longer(&[local(END_AN), behind_core1(0xa), next]);
    for (case, packet) in [
        ("inserted further on: not permitted", from(behind_core1(0xa), elsewhere)),
        ("replaced: not permitted", from(next, replaced)),
        ("the last segment", from(behind_core1(0xa), last)),
        ("out of the domain", from(SERVER, outside)),
        ("destination and active segment differ", from(behind_core1(0xb), advanced.clone())),
        ("not advanced", from(local(END_AN), SrhRepr::new(&path(END_AN)))),
        ("the tag", from(behind_core1(0xa), SrhRepr { tag: 5, ..advanced })),
    ] {
        node.drops(case, "aware0", &packet, "drop_header_changed");
    }
    node.finish();
}
