//! End, End.X and End.T with their flavours (RFC 8986 sections 4.1 to 4.3 and 4.16): what leaves, octet for octet, and which
//! counters move. Numbers in names: docs/developing/acceptance.md.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::golden::Golden;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::srh::TlvRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

fn outer(destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, traffic_class: 0x58, flow_label: 0xa_bcde, ..Ipv6Repr::new(HEADEND, destination) }
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

/// Sixteen octets with an option that is padding.
fn long_options() -> OptionsRepr {
    OptionsRepr { options: vec![1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..OptionsRepr::default() }
}

fn sid(function: u16) -> String {
    format!("sid fc00:0:1:{function:x}::/64")
}

#[test]
#[ignore = "needs root"]
fn a01_end_advances_and_changes_nothing_else() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END)).with_tag(0xbeef);
    node.forwards(
        "full SRH",
        "core0",
        &inner(arriving("core0").ipv6(outer(local(END), 64)).srh(srh.clone())),
        &inner(leaving("core1").ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
        &[&sid(END)],
    );
    let srh = SrhRepr::new(&path(END)).with_segments_left(1);
    node.forwards(
        "second of three segments",
        "core0",
        &inner(arriving("core0").ipv6(outer(local(END), 2)).srh(srh.clone())),
        &inner(leaving("core1").ipv6(outer(behind_core1(0xb), 1)).srh(srh.with_segments_left(0))),
        &[&sid(END)],
    );
    let srh = SrhRepr::new(&path(END));
    node.forwards(
        "the argument is carried through: it only chose the SID",
        "core1",
        &inner(arriving("core1").ipv6(outer(local_with_argument(END, 0x77), 64)).srh(srh.clone())),
        &inner(leaving("core1").ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
        &[&sid(END)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a02_reduced_srh_at_the_first_endpoint() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::reduced(&path(END));
    node.forwards(
        "Segments Left is Last Entry + 1",
        "core0",
        &inner(arriving("core0").ipv6(outer(local(END), 64)).srh(srh.clone())),
        &inner(leaving("core1").ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
        &[&sid(END)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a01_a12_a13_flags_tag_and_tlvs_stay() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let tlv = |tlv_type, octets: usize| TlvRepr::Unknown { tlv_type, value: vec![0x5a; octets] };
    let variants = [
        ("unknown flags", SrhRepr::new(&path(END)).with_flags(0xf7).with_tag(0x1234)),
        ("opaque TLV of 16 octets", SrhRepr::new(&path(END)).with_tlv(tlv(0x7d, 14))),
        ("TLV and a trailing Pad1", SrhRepr::new(&path(END)).with_tlv(tlv(0x7d, 5)).with_tlv(TlvRepr::Pad1)),
        ("PadN of no octets", SrhRepr::new(&path(END)).with_tlv(tlv(0x7d, 4)).with_tlv(TlvRepr::PadN(0))),
        ("PadN of five octets", SrhRepr::new(&path(END)).with_tlv(tlv(0xfd, 7)).with_tlv(TlvRepr::PadN(5))),
        (
            "HMAC TLV",
            SrhRepr::new(&path(END)).with_tlv(TlvRepr::Hmac { d_and_reserved: 0, key_id: 7, hmac: vec![0xc3; 32] }),
        ),
    ];
    for (case, srh) in variants {
        node.forwards(
            case,
            "core0",
            &inner(arriving("core0").ipv6(outer(local(END), 64)).srh(srh.clone())),
            &inner(leaving("core1").ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
            &[&sid(END)],
        );
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a01_other_extension_headers_in_front_of_the_srh() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END));
    let (before, after) = (outer(local(END), 64), outer(behind_core1(0xa), 63));
    node.forwards(
        "destination options",
        "core0",
        &inner(arriving("core0").ipv6(before).destination_options(OptionsRepr::default()).srh(srh.clone())),
        &inner(
            leaving("core1")
                .ipv6(after)
                .destination_options(OptionsRepr::default())
                .srh(srh.clone().with_segments_left(1)),
        ),
        &[&sid(END)],
    );
    node.forwards(
        "hop-by-hop options",
        "core0",
        &inner(arriving("core0").ipv6(before).hop_by_hop(long_options()).srh(srh.clone())),
        &inner(leaving("core1").ipv6(after).hop_by_hop(long_options()).srh(srh.clone().with_segments_left(1))),
        &[&sid(END)],
    );
    let exhausted = SrhRepr::new(&[behind_core1(9), local(END)]).with_segments_left(0);
    node.forwards(
        "an SRH with no segments left, then another",
        "core0",
        &inner(arriving("core0").ipv6(before).srh(exhausted.clone()).srh(srh.clone())),
        &inner(leaving("core1").ipv6(after).srh(exhausted).srh(srh.with_segments_left(1))),
        &[&sid(END)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a16_end_x_and_end_t_leave_another_way() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, port) in [(END_X, "core0"), (END_T, "core0")] {
        let srh = SrhRepr::new(&path(function));
        node.forwards(
            "the adjacency or table of the SID decides",
            "core1",
            &inner(arriving("core1").ipv6(outer(local(function), 64)).srh(srh.clone())),
            &inner(leaving(port).ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
            &[&sid(function)],
        );
    }
    let srh = SrhRepr::new(&path(END_X_UNRESOLVED));
    let frame = inner(arriving("core0").ipv6(outer(local(END_X_UNRESOLVED), 64)).srh(srh));
    node.passes(
        "an unresolved adjacency does not fall back to the FIB",
        "core0",
        &frame,
        &frame,
        "passed_no_neighbour",
        &[],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a17_psp_removes_the_srh_at_the_penultimate_endpoint_only() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (function, port) in [(END_PSP, "core1"), (END_ALL, "core1"), (END_X_PSP, "core0"), (END_T_PSP, "core0")] {
        let two = [local(function), behind_core1(0xb)];
        node.forwards(
            "Segments Left 1 to 0",
            "core0",
            &inner(arriving("core0").ipv6(outer(local(function), 64)).srh(SrhRepr::new(&two))),
            &inner(leaving(port).ipv6(outer(behind_core1(0xb), 63))),
            &[&sid(function)],
        );
        let srh = SrhRepr::new(&path(function));
        node.forwards(
            "Segments Left 2 to 1",
            "core0",
            &inner(arriving("core0").ipv6(outer(local(function), 64)).srh(srh.clone())),
            &inner(leaving(port).ipv6(outer(behind_core1(0xa), 63)).srh(srh.with_segments_left(1))),
            &[&sid(function)],
        );
    }
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![1; 14] };
    let two = [local(END_PSP), behind_core1(0xb)];
    let (before, after) = (outer(local(END_PSP), 64), outer(behind_core1(0xb), 63));
    node.forwards(
        "the TLVs go with it",
        "core0",
        &inner(arriving("core0").ipv6(before).srh(SrhRepr::new(&two).with_tlv(tlv))),
        &inner(leaving("core1").ipv6(after)),
        &[&sid(END_PSP)],
    );
    node.forwards(
        "the Next Header in front of it changes: destination options",
        "core0",
        &inner(arriving("core0").ipv6(before).destination_options(OptionsRepr::default()).srh(SrhRepr::new(&two))),
        &inner(leaving("core1").ipv6(after).destination_options(OptionsRepr::default())),
        &[&sid(END_PSP)],
    );
    node.forwards(
        "the Next Header in front of it changes: hop-by-hop options",
        "core0",
        &inner(arriving("core0").ipv6(before).hop_by_hop(OptionsRepr::default()).srh(SrhRepr::new(&two))),
        &inner(leaving("core1").ipv6(after).hop_by_hop(OptionsRepr::default())),
        &[&sid(END_PSP)],
    );
    node.forwards(
        "a reduced SRH of one segment",
        "core0",
        &inner(arriving("core0").ipv6(before).srh(SrhRepr::reduced(&two))),
        &inner(leaving("core1").ipv6(after)),
        &[&sid(END_PSP)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a18_usd_decapsulates() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let decremented = |packet: PacketBuilder| {
        packet
            .ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(CLIENT, SERVER) })
            .udp(UdpRepr::new(40_000, 40_001))
            .payload(b"a payload of odd length")
    };
    for function in [END_USD, END_ALL, END_X_USD] {
        let exhausted = SrhRepr::new(&[behind_core1(9), local(function)]).with_segments_left(0);
        node.forwards(
            "IPv6 behind an SRH with no segments left",
            "core0",
            &inner(arriving("core0").ipv6(outer(local(function), 64)).srh(exhausted)),
            &decremented(leaving("acc1")),
            &[&sid(function)],
        );
        node.forwards(
            "IPv6 without an SRH",
            "core0",
            &inner(arriving("core0").ipv6(outer(local(function), 64))),
            &decremented(leaving("acc1")),
            &[&sid(function)],
        );
    }
    let ipv4 = |packet: PacketBuilder, time_to_live| {
        packet
            .ipv4(Ipv4Repr { time_to_live, ..Ipv4Repr::new(CLIENT4, SERVER4) })
            .udp(UdpRepr::new(40_000, 40_001))
            .payload(b"four")
    };
    for function in [END_USD, END_ALL] {
        node.forwards(
            "IPv4",
            "core0",
            &ipv4(arriving("core0").ipv6(outer(local(function), 64)), 64),
            &ipv4(leaving("acc1"), 63),
            &[&sid(function)],
        );
    }
    let table = |packet: PacketBuilder, hop_limit| {
        packet.ipv6(Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, IN_TABLE) }).udp(UdpRepr::new(1, 2)).payload(b"table")
    };
    node.forwards(
        "End.T: in the SID's table",
        "core0",
        &table(arriving("core0").ipv6(outer(local(END_T_USD), 64)), 64),
        &table(leaving("acc1"), 63),
        &[&sid(END_T_USD)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_segment_that_is_local_too_is_processed_at_once() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let segments = [local(END), local(END_T), behind_core1(0xa)];
    let srh = SrhRepr::new(&segments);
    node.forwards(
        "two endpoint behaviours of one node, each takes one from the hop limit",
        "core1",
        &inner(arriving("core1").ipv6(outer(local(END), 64)).srh(srh.clone())),
        &inner(leaving("core0").ipv6(outer(behind_core1(0xa), 62)).srh(srh.with_segments_left(0))),
        &[&sid(END), &sid(END_T)],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn routes_that_say_no() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let to = |next| inner(arriving("core0").ipv6(outer(local(END), 64)).srh(SrhRepr::new(&[local(END), next])));
    node.drops("blackhole", "core0", &to(BLACKHOLE), "drop_route_blackhole");
    for (case, next) in
        [("multicast", "ff02::1"), ("unspecified", "::"), ("loopback", "::1"), ("link-local", "fe80::1")]
    {
        node.drops(case, "core0", &to(next.parse().expect("an address")), "drop_bad_next_segment");
    }
    let advanced = |hop_limit| {
        inner(
            PacketBuilder::ethernet([0; 6], [2, 0, 0, 0, 0, 0x10])
                .ipv6(outer(UNRESOLVED, hop_limit))
                .srh(SrhRepr::new(&[local(END), UNRESOLVED]).with_segments_left(0)),
        )
    };
    // The kernel takes one from the hop limit when it forwards, and asks who has the next hop.
    node.passes("an unresolved next hop", "core0", &to(UNRESOLVED), &advanced(64), "passed_no_neighbour", &[&sid(END)]);
    node.finish();
}
