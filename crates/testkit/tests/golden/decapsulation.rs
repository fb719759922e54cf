//! End.DX2, End.DX4, End.DX6, End.DT4, End.DT6, End.DT46 (RFC 8986 sections 4.4 to 4.9): the inner packet that leaves, and inner
//! packets that must not.

use std::net::{Ipv4Addr, Ipv6Addr};

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, port_ipv4, port_ipv6,
};
use segue_testkit::golden::Golden;
use segue_testkit::node::in_buffer;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::srh::TlvRepr;
use segue_wire::{
    EthernetRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr, VlanRepr,
};

fn sid(function: u16) -> String {
    format!("sid fc00:0:1:{function:x}::/64")
}

fn outer(function: u16) -> Ipv6Repr {
    Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(HEADEND, local(function)) }
}

fn ipv6(packet: PacketBuilder, destination: Ipv6Addr, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0x12345, ..Ipv6Repr::new(CLIENT, destination) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"six and seven")
}

fn ipv4(packet: PacketBuilder, destination: Ipv4Addr, time_to_live: u8) -> PacketBuilder {
    let repr =
        Ipv4Repr { time_to_live, type_of_service: 0x28, identification: 0x4321, ..Ipv4Repr::new(CLIENT4, destination) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"four")
}

fn exhausted(function: u16) -> SrhRepr {
    SrhRepr::new(&[behind_core1(9), behind_core1(8), local(function)]).with_segments_left(0)
}

#[test]
#[ignore = "needs root"]
fn a21_a25_the_inner_packet_leaves_alone() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let start = |function| arriving("core0").ipv6(outer(function));
    for (function, to6, to4) in [
        (END_DX6, Some(SERVER), None),
        (END_DX6, Some(IN_TABLE), None),
        (END_DX4, None, Some(SERVER4)),
        (END_DX4, None, Some(IN_TABLE4)),
        (END_DT6, Some(IN_TABLE), None),
        (END_DT4, None, Some(IN_TABLE4)),
        (END_DT46, Some(SERVER), Some(SERVER4)),
    ] {
        let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![7; 14] };
        for (case, front) in [
            ("no SRH", start(function)),
            ("an SRH", start(function).srh(exhausted(function))),
            ("an SRH with a TLV", start(function).srh(exhausted(function).with_tlv(tlv))),
            ("destination options", start(function).destination_options(OptionsRepr::default())),
            (
                "hop-by-hop options, SRH, destination options",
                start(function)
                    .hop_by_hop(OptionsRepr::default())
                    .srh(exhausted(function))
                    .destination_options(OptionsRepr::default()),
            ),
            ("two SRHs", start(function).srh(exhausted(function)).srh(exhausted(function))),
        ] {
            let case = format!("{case} at function {function:#x}");
            if let Some(to) = to6 {
                let (before, after) = (ipv6(front.clone(), to, 64), ipv6(leaving("acc1"), to, 63));
                node.forwards(&case, "core0", &before, &after, &[&sid(function)]);
            }
            if let Some(to) = to4 {
                let (before, after) = (ipv4(front.clone(), to, 64), ipv4(leaving("acc1"), to, 63));
                node.forwards(&case, "core0", &before, &after, &[&sid(function)]);
            }
        }
    }
    let (before, after) = (ipv6(start(END_DX6), SERVER, 2), ipv6(leaving("acc1"), SERVER, 1));
    node.forwards("inner hop limit 2", "core0", &before, &after, &[&sid(END_DX6)]);
    let with_options = |packet: PacketBuilder, time_to_live| {
        let options = vec![1, 1, 1, 0];
        packet.ipv4(Ipv4Repr { time_to_live, options, ..Ipv4Repr::new(CLIENT4, SERVER4) }).udp(UdpRepr::new(1, 2))
    };
    let (before, after) = (with_options(start(END_DX4), 9), with_options(leaving("acc1"), 8));
    node.forwards("inner IPv4 options", "core0", &before, &after, &[&sid(END_DX4)]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a23_octets_behind_the_inner_packet_are_cut() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let six = |packet| ipv6(packet, SERVER, 64);
    let four = |packet| ipv4(packet, SERVER4, 64);
    let start = |function| arriving("core0").ipv6(outer(function));
    let frame = six(start(END_DX6)).trailer(&[0xee; 30]);
    node.forwards(
        "behind the outer packet, IPv6",
        "core0",
        &frame,
        &ipv6(leaving("acc1"), SERVER, 63),
        &[&sid(END_DX6)],
    );
    let frame = four(start(END_DX4)).trailer(&[0xee; 1]);
    node.forwards(
        "behind the outer packet, IPv4",
        "core0",
        &frame,
        &ipv4(leaving("acc1"), SERVER4, 63),
        &[&sid(END_DX4)],
    );
    // Inside the outer payload: the inner packet is a payload like any other, with octets behind it.
    let mut packet = six(PacketBuilder::new()).build();
    packet.extend_from_slice(&[0xdd; 9]);
    let frame = arriving("core0").ipv6(Ipv6Repr { next_header: 41, ..outer(END_DX6) }).payload(&packet);
    node.forwards(
        "inside the outer packet, IPv6",
        "core0",
        &frame,
        &ipv6(leaving("acc1"), SERVER, 63),
        &[&sid(END_DX6)],
    );
    let mut packet = four(PacketBuilder::new()).build();
    packet.extend_from_slice(&[0xdd; 700]);
    let frame = arriving("core0").ipv6(Ipv6Repr { next_header: 4, ..outer(END_DX4) }).payload(&packet);
    node.forwards(
        "inside the outer packet, IPv4",
        "core0",
        &frame,
        &ipv4(leaving("acc1"), SERVER4, 63),
        &[&sid(END_DX4)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a23_broken_inner_packets_are_dropped() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let six = || ipv6(arriving("core0").ipv6(outer(END_DX6)), SERVER, 64);
    let four = || ipv4(arriving("core0").ipv6(outer(END_DX4)), SERVER4, 64);
    const INNER: usize = 14 + 40;
    for (case, frame, outcome) in [
        ("IPv6: version 4", six().with_bytes(INNER, &[0x45]), "drop_bad_version"),
        ("IPv4: version 6", four().with_bytes(INNER, &[0x65]), "drop_bad_version"),
        ("IPv6: one octet less than it says", six().with_bytes(INNER + 4, &[0, 22]), "drop_bad_length"),
        ("IPv6: much less than it says", six().with_bytes(INNER + 4, &[0xff, 0xff]), "drop_bad_length"),
        ("IPv4: one octet less than it says", four().with_bytes(INNER + 2, &[0, 33]), "drop_bad_length"),
        ("IPv4: shorter than its header", four().with_bytes(INNER + 2, &[0, 19]), "drop_bad_length"),
        ("IPv4: header of 16 octets", four().with_bytes(INNER, &[0x44]), "drop_bad_length"),
        ("IPv4: header longer than the packet", four().with_bytes(INNER, &[0x4f]), "drop_bad_length"),
        ("IPv4: wrong checksum", four().with_bytes(INNER + 10, &[0, 0]), "drop_bad_checksum"),
    ] {
        node.drops(case, "core0", &frame, outcome);
    }
    let short = |next_header, octets: usize| {
        let function = if next_header == 4 { END_DX4 } else { END_DX6 };
        let first = if next_header == 4 { 0x45 } else { 0x60 };
        let mut packet = vec![0; octets];
        if let Some(octet) = packet.first_mut() {
            *octet = first;
        }
        arriving("core0").ipv6(Ipv6Repr { next_header, ..outer(function) }).payload(&packet)
    };
    for (next_header, octets) in [(41, 0), (41, 1), (41, 39), (4, 0), (4, 19)] {
        let case = format!("Next Header {next_header} with {octets} octets");
        node.drops(&case, "core0", &short(next_header, octets), "drop_truncated");
    }
    for source in ["ff0e::1", "::", "::1"] {
        let repr = Ipv6Repr::new(source.parse().expect("an address"), SERVER);
        let frame = arriving("core0").ipv6(outer(END_DX6)).inner_ipv6(repr).udp(UdpRepr::new(1, 2));
        node.drops(&format!("inner source {source}"), "core0", &frame, "drop_bad_inner");
    }
    for source in ["224.0.0.1", "0.0.0.0", "127.0.0.1", "255.255.255.255"] {
        let repr = Ipv4Repr::new(source.parse().expect("an address"), SERVER4);
        let frame = arriving("core0").ipv6(outer(END_DX4)).inner_ipv4(repr).udp(UdpRepr::new(1, 2));
        node.drops(&format!("inner source {source}"), "core0", &frame, "drop_bad_inner");
    }
    for destination in ["ff0e::1", "fe80::1", "::1", "::"] {
        let repr = Ipv6Repr::new(CLIENT, destination.parse().expect("an address"));
        let frame = arriving("core0").ipv6(outer(END_DT46)).inner_ipv6(repr).udp(UdpRepr::new(1, 2));
        node.drops(&format!("inner destination {destination}"), "core0", &frame, "drop_bad_inner");
    }
    node.finish();
}

/// RFC 6040 section 4.2, figure 4: rows are the inner field, columns the outer one; Not-ECT 0, ECT(1) 1, ECT(0) 2, CE 3.
const AFTER_TUNNEL: [[Option<u8>; 4]; 4] = [
    [Some(0), Some(0), Some(0), None],
    [Some(1), Some(1), Some(1), Some(3)],
    [Some(2), Some(1), Some(2), Some(3)],
    [Some(3), Some(3), Some(3), Some(3)],
];

#[test]
#[ignore = "needs root"]
fn a24_explicit_congestion_notification() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let dscp = 0b1011_1000;
    for (inner, row) in (0_u8..).zip(AFTER_TUNNEL) {
        for (outer_field, after) in (0_u8..).zip(row) {
            let case = format!("inner {inner}, outer {outer_field}");
            let start = |function| arriving("core0").ipv6(Ipv6Repr { traffic_class: outer_field, ..outer(function) });
            let six = |packet: PacketBuilder, ecn, hop_limit| {
                let repr = Ipv6Repr { traffic_class: dscp | ecn, hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
                packet.inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(b"ecn")
            };
            let four = |packet: PacketBuilder, ecn, time_to_live| {
                let repr = Ipv4Repr { type_of_service: dscp | ecn, time_to_live, ..Ipv4Repr::new(CLIENT4, SERVER4) };
                packet.inner_ipv4(repr).udp(UdpRepr::new(1, 2)).payload(b"ecn")
            };
            let (frame6, frame4) = (six(start(END_DX6), inner, 64), four(start(END_DT46), inner, 64));
            if let Some(after) = after {
                node.forwards(&case, "core0", &frame6, &six(leaving("acc1"), after, 63), &[&sid(END_DX6)]);
                node.forwards(&case, "core0", &frame4, &four(leaving("acc1"), after, 63), &[&sid(END_DT46)]);
            } else {
                node.drops(&case, "core0", &frame6, "drop_ecn_not_capable");
                node.drops(&case, "core0", &frame4, "drop_ecn_not_capable");
            }
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a26_no_second_entry_into_the_domain() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for destination in [local(END), behind_core1(1), "5f00::1".parse().expect("an address")] {
        let frame = ipv6(arriving("core0").ipv6(outer(END_DT46)), destination, 64);
        node.drops(&format!("inner destination {destination}"), "core0", &frame, "drop_inner_to_sid");
        let frame = ipv6(arriving("core0").ipv6(outer(END_DX6)), destination, 64);
        node.drops(&format!("inner destination {destination}"), "core0", &frame, "drop_inner_to_sid");
    }
    let allowed = |destination| ipv6(arriving("core0").ipv6(outer(END_DT6_NESTED)), destination, 64);
    let after = ipv6(leaving("core1"), behind_core1(1), 63);
    node.forwards("allowed by the SID", "core0", &allowed(behind_core1(1)), &after, &[&sid(END_DT6_NESTED)]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a25_inner_hop_limit_exceeded() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for hop_limit in [0, 1] {
        let frame = ipv6(arriving("core0").ipv6(outer(END_DX6)).srh(exhausted(END_DX6)), SERVER, hop_limit);
        let packet = ipv6(PacketBuilder::new(), SERVER, hop_limit).build();
        let reply =
            leaving("acc0").ipv6(Ipv6Repr::new(NODE, CLIENT)).icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet });
        node.answers("IPv6", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
        let frame = ipv4(arriving("core0").ipv6(outer(END_DX4)), SERVER4, hop_limit);
        let packet = ipv4(PacketBuilder::new(), SERVER4, hop_limit).build();
        let reply = icmpv4_to_client(Icmpv4Repr::TimeExceeded { code: 0, packet });
        node.answers("IPv4", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    }
    node.finish();
}

/// An ICMP error of the node, which has no IPv4 address on the core port, to the client behind acc0.
fn icmpv4_to_client(message: Icmpv4Repr) -> PacketBuilder {
    let repr = Ipv4Repr {
        type_of_service: 0xc0,
        dont_fragment: true,
        time_to_live: 64,
        ..Ipv4Repr::new(Ipv4Addr::new(192, 0, 2, 1), CLIENT4)
    };
    leaving("acc0").ipv4(repr).icmpv4(message)
}

#[test]
#[ignore = "needs root"]
fn inner_packets_that_do_not_fit_the_exit() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let six = |packet: PacketBuilder, octets: usize, hop_limit| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 48])
    };
    let four = |packet: PacketBuilder, octets: usize, time_to_live, dont_fragment| {
        let repr = Ipv4Repr { time_to_live, dont_fragment, ..Ipv4Repr::new(CLIENT4, SERVER4) };
        packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 28])
    };
    let start = |function| arriving("core0").ipv6(outer(function));
    node.forwards(
        "IPv6 fits",
        "core0",
        &six(start(END_DX6), 1500, 64),
        &six(leaving("acc1"), 1500, 63),
        &[&sid(END_DX6)],
    );
    let quote = Icmpv6Repr::quote(&six(PacketBuilder::new(), 1501, 64).build()).to_vec();
    let reply =
        leaving("acc0").ipv6(Ipv6Repr::new(NODE, CLIENT)).icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1500, packet: quote });
    node.answers("IPv6 one octet more", "core0", &six(start(END_DX6), 1501, 64), "drop_too_big", "too_big", &reply);
    let frame = four(start(END_DX4), 1500, 64, true);
    node.forwards("IPv4 fits", "core0", &frame, &four(leaving("acc1"), 1500, 63, true), &[&sid(END_DX4)]);
    let mut packet = four(PacketBuilder::new(), 1501, 64, true).build();
    packet.truncate(548);
    let reply = icmpv4_to_client(Icmpv4Repr::DestinationUnreachable { code: 4, next_hop_mtu: 1500, packet });
    node.answers(
        "IPv4 one octet more",
        "core0",
        &four(start(END_DX4), 1501, 64, true),
        "drop_too_big",
        "too_big",
        &reply,
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn dx2_sends_the_inner_frame_as_it_is() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let inner = |packet: PacketBuilder| {
        packet
            .inner_ethernet([0x0a, 0, 0, 0, 0, 1], [0x0a, 0, 0, 0, 0, 2])
            .vlan_repr(VlanRepr { priority: 5, vlan_id: 77, ..VlanRepr::default() })
            .ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
            .udp(UdpRepr::new(40_000, 40_001))
            .payload(b"tagged")
    };
    let arp = |packet: PacketBuilder| {
        let header = EthernetRepr {
            destination: MacAddress::BROADCAST,
            source: MacAddress([0x0a, 0, 0, 0, 0, 1]),
            ethertype: 0x88b5,
        };
        packet.ethernet_repr(header).payload(&[0x11; 46])
    };
    for front in [
        arriving("core0").ipv6(outer(END_DX2)),
        arriving("core0").ipv6(outer(END_DX2)).srh(exhausted(END_DX2)),
        arriving("core0").ipv6(outer(END_DX2)).destination_options(OptionsRepr::default()).srh(exhausted(END_DX2)),
    ] {
        let (frame, expected) = (inner(front.clone()).build(), in_buffer(&inner(PacketBuilder::new()).build()));
        node.leaves("with a VLAN tag", "core0", &frame, &expected, "forwarded", &[&sid(END_DX2)]);
        node.forwards("broadcast", "core0", &arp(front.clone()), &arp(PacketBuilder::new()), &[&sid(END_DX2)]);
        let padded = inner(front).trailer(&[0xee; 6]).build();
        node.leaves("octets behind it are cut", "core0", &padded, &expected, "forwarded", &[&sid(END_DX2)]);
    }
    let short = arriving("core0").ipv6(Ipv6Repr { next_header: 143, ..outer(END_DX2) }).payload(&[2; 13]);
    node.drops("shorter than an Ethernet header", "core0", &short, "drop_truncated");
    let long = arriving("core0")
        .ipv6(outer(END_DX2))
        .inner_ethernet([0x0a, 0, 0, 0, 0, 1], [0x0a, 0, 0, 0, 0, 2])
        .ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
        .payload(&[0; 1490]);
    node.drops("larger than the link", "core0", &long, "drop_too_big");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_fib_miss_gives_the_kernel_a_whole_packet() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let nowhere: Ipv6Addr = "2001:db8::1".parse().expect("an address");
    let frame = ipv6(arriving("core0").ipv6(outer(END_DT46)).srh(exhausted(END_DT46)), nowhere, 64);
    let up = ipv6(PacketBuilder::ethernet([0; 6], [2, 0, 0, 0, 0, 0x10]), nowhere, 64);
    node.passes("no route for the inner packet", "core0", &frame, &up, "passed_route", &[&sid(END_DT46)]);
    node.finish();
}

/// The octets that an error about an inner packet quotes.
fn quoted(inner: &PacketBuilder) -> Vec<u8> {
    Icmpv6Repr::quote(&inner.build()).to_vec()
}

/// Two tenants may have the same addresses: what is said about an inner packet stays in the table of its SID.
#[test]
#[ignore = "needs root"]
fn errors_about_inner_packets_follow_the_table_of_the_sid() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let six = |packet: PacketBuilder, to, octets: usize, hop_limit| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, to) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 48])
    };
    let four = |packet: PacketBuilder, to, octets: usize, time_to_live| {
        let repr = Ipv4Repr { time_to_live, dont_fragment: true, ..Ipv4Repr::new(CLIENT4, to) };
        packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 28])
    };
    let start = |function| arriving("core0").ipv6(outer(function));
    // The client is the main table's, behind acc0; this table does not know it. The node that wrapped the packet does: it is told of
    // the whole of it, and relays that.
    let relayed = |frame: &PacketBuilder, message: &dyn Fn(Vec<u8>) -> Icmpv6Repr| {
        let packet = Icmpv6Repr::quote(&frame.build()[14..]).to_vec();
        leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message(packet))
    };
    let expired = |packet| Icmpv6Repr::TimeExceeded { code: 0, packet };
    let no_route = |packet| Icmpv6Repr::DestinationUnreachable { code: 0, packet };
    let too_big = |packet| Icmpv6Repr::PacketTooBig { mtu: 1540, packet };
    for function in [END_DT6, END_T_USD] {
        let case = |what: &str| format!("no way back in the table of {function:#x}, {what}");
        let frame = six(start(function), IN_TABLE, 100, 1);
        let reply = relayed(&frame, &expired);
        node.answers(&case("hop limit"), "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
        let frame = six(start(function), SERVER, 100, 64);
        let reply = relayed(&frame, &no_route);
        node.answers(&case("no route"), "core0", &frame, "drop_no_route", "unreachable", &reply);
        let frame = six(start(function), IN_TABLE, 1501, 64);
        let reply = relayed(&frame, &too_big);
        node.answers(&case("too big"), "core0", &frame, "drop_too_big", "too_big", &reply);
    }
    let frame = four(start(END_DT4), IN_TABLE4, 100, 1);
    let reply = relayed(&frame, &expired);
    node.answers("no way back, IPv4", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let frame = four(start(END_DT4), IN_TABLE4, 1501, 64);
    let reply = relayed(&frame, &too_big);
    node.answers("no way back, IPv4, too big", "core0", &frame, "drop_too_big", "too_big", &reply);

    // Another tenant with the client's addresses, behind acc1.
    network.node.script(
        "ip -6 route add table 100 fd00:0:a0::/64 via fd00:0:a1::2
         ip -4 route add table 100 10.1.0.0/24 via 10.2.0.2",
    );
    let reply6 = |message| leaving("acc1").ipv6(Ipv6Repr::new(port_ipv6("acc1"), CLIENT)).icmpv6(message);
    let header4 = Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4("acc1"), CLIENT4) };
    let reply4 = |message| leaving("acc1").ipv4(header4.clone()).icmpv4(message);
    for function in [END_DT6, END_T_USD] {
        let case = format!("hop limit at function {function:#x}");
        let reply =
            reply6(Icmpv6Repr::TimeExceeded { code: 0, packet: quoted(&six(PacketBuilder::new(), IN_TABLE, 100, 1)) });
        let frame = six(start(function), IN_TABLE, 100, 1);
        node.answers(&case, "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
        let case = format!("too big at function {function:#x}");
        let reply = reply6(Icmpv6Repr::PacketTooBig {
            mtu: 1500,
            packet: quoted(&six(PacketBuilder::new(), IN_TABLE, 1501, 64)),
        });
        let frame = six(start(function), IN_TABLE, 1501, 64);
        node.answers(&case, "core0", &frame, "drop_too_big", "too_big", &reply);
        let case = format!("no route at function {function:#x}");
        let reply = reply6(Icmpv6Repr::DestinationUnreachable {
            code: 0,
            packet: quoted(&six(PacketBuilder::new(), SERVER, 100, 64)),
        });
        let frame = six(start(function), SERVER, 100, 64);
        node.answers(&case, "core0", &frame, "drop_no_route", "unreachable", &reply);
    }
    let packet = four(PacketBuilder::new(), IN_TABLE4, 100, 1).build();
    let reply = reply4(Icmpv4Repr::TimeExceeded { code: 0, packet });
    let frame = four(start(END_DT4), IN_TABLE4, 100, 1);
    node.answers("hop limit, IPv4", "core0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let mut packet = four(PacketBuilder::new(), IN_TABLE4, 1501, 64).build();
    packet.truncate(548);
    let reply = reply4(Icmpv4Repr::DestinationUnreachable { code: 4, next_hop_mtu: 1500, packet });
    let frame = four(start(END_DT4), IN_TABLE4, 1501, 64);
    node.answers("too big, IPv4", "core0", &frame, "drop_too_big", "too_big", &reply);
    node.finish();
}
