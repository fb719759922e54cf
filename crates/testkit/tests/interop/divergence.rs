//! Where Linux's `seg6local` does something else than the RFCs: Segue does what they say, with real packets. What the kernel
//! does (measured with 6.18) stands beside each case; `docs/using/interoperation.md` has the list for users.

use std::net::Ipv6Addr;

use crate::receivers::{Receivers, four, same, six};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::node::Node;
use segue_wire::icmpv6::parameter_problem;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::srh::TlvRepr;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

/// Pointer to Segments Left of an SRH that follows the IPv6 header.
const SEGMENTS_LEFT: u32 = 40 + 3;

fn outer(destination: Ipv6Addr) -> Ipv6Repr {
    Ipv6Repr::new(HEADEND, destination)
}

fn path(function: u16) -> [Ipv6Addr; 3] {
    [local(function), behind_core1(0xa), behind_core1(0xb)]
}

fn udp(packet: PacketBuilder) -> PacketBuilder {
    packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"an upper layer")
}

/// Sends a packet by core0, and expects one error about it to its source.
fn answered(receivers: &Receivers, case: &str, frame: &PacketBuilder, code: u8, pointer: u32) {
    let octets = frame.build();
    let packet = Icmpv6Repr::quote(&octets[14..]).to_vec();
    let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND));
    let reply = reply.icmpv6(Icmpv6Repr::ParameterProblem { code, pointer, packet });
    receivers.arrives(case, "core0", frame, "core0", &reply);
}

#[test]
#[ignore = "needs root"]
fn errors_that_linux_does_not_send() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    let to = |function| arriving("core0").ipv6(outer(local(function)));
    let problem = |case, frame: PacketBuilder, code, pointer| answered(&receivers, case, &frame, code, pointer);
    // Linux: all of these are dropped in silence.
    let srh = || SrhRepr::new(&path(END));
    let case = "Segments Left beyond Last Entry + 1";
    problem(case, six(to(END).srh(srh().with_segments_left(4)), SERVER, 64), 0, SEGMENTS_LEFT);
    let frame = six(to(END).srh(srh()), SERVER, 64).with_bytes(14 + 40 + 4, &[3]);
    problem("Last Entry beyond the header", frame, 0, SEGMENTS_LEFT);
    let upper = parameter_problem::SR_UPPER_LAYER_HEADER;
    problem("UDP to a SID without SRH", udp(to(END)), upper, 40);
    problem("UDP behind an SRH at its end", udp(to(END).srh(srh().with_segments_left(0))), upper, 40 + 56);
    problem("UDP to End.DT6", udp(to(END_DT6)), upper, 40);
    problem(
        "Segments Left not 0 at End.DT6",
        six(to(END_DT6).srh(SrhRepr::new(&path(END_DT6))), SERVER, 64),
        0,
        SEGMENTS_LEFT,
    );
    problem(
        "Segments Left not 0 at End.DX6",
        six(to(END_DX6).srh(SrhRepr::new(&path(END_DX6))), SERVER, 64),
        0,
        SEGMENTS_LEFT,
    );
    // Linux: dropped in silence, too.
    let message = |reply: bool| {
        let (identifier, sequence_number, data) = (1, 2, b"echo".to_vec());
        if reply {
            Icmpv6Repr::EchoReply { identifier, sequence_number, data }
        } else {
            Icmpv6Repr::EchoRequest { identifier, sequence_number, data }
        }
    };
    let reply = leaving("core0").ipv6(Ipv6Repr::new(local(END), HEADEND)).icmpv6(message(true));
    receivers.arrives("echo request to a SID", "core0", &to(END).icmpv6(message(false)), "core0", &reply);
}

#[test]
#[ignore = "needs root"]
fn valid_packets_that_linux_drops() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    // Linux: dropped, because it takes the one octet of a Pad1 for a TLV of two.
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0x5a; 5] };
    let srh = SrhRepr::new(&path(END)).with_tlv(tlv).with_tlv(TlvRepr::Pad1);
    let frame = six(arriving("core0").ipv6(outer(local(END))).srh(srh.clone()), SERVER, 64);
    let after = Ipv6Repr { hop_limit: 63, ..outer(behind_core1(0xa)) };
    let expected = six(leaving("core1").ipv6(after).srh(srh.with_segments_left(1)), SERVER, 64);
    receivers.arrives("a TLV of seven octets and a Pad1", "core0", &frame, "core1", &expected);
    // Linux: USP and USD are not implemented; a SID of it drops this.
    let exhausted = SrhRepr::new(&[behind_core1(9), local(END_USD)]).with_segments_left(0);
    let frame = six(arriving("core0").ipv6(outer(local(END_USD))).srh(exhausted), SERVER, 64);
    receivers.arrives("USD", "core0", &frame, "acc1", &six(leaving("acc1"), SERVER, 63));
}

#[test]
#[ignore = "needs root"]
fn packets_that_linux_lets_through() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    let swallowed = |case, frame: PacketBuilder| receivers.swallowed(case, "core0", &frame.build());
    let to = |function| arriving("core0").ipv6(outer(local(function)));
    // Linux: all of these are forwarded or unwrapped.
    let from_itself = arriving("core0").ipv6(Ipv6Repr::new(local(END), local(END)));
    swallowed("source is the SID itself", six(from_itself.srh(SrhRepr::new(&path(END))), SERVER, 64));
    let fragment = FragmentRepr { more_fragments: true, ..FragmentRepr::default() };
    swallowed("first of two fragments at End.DX6", six(to(END_DX6).fragment(fragment), SERVER, 64));
    let loopback = Ipv6Repr::new(Ipv6Addr::LOCALHOST, SERVER);
    swallowed("inner source ::1", udp(to(END_DX6).inner_ipv6(loopback)));
    let multicast = Ipv6Repr::new("ff0e::1".parse().expect("an address"), SERVER);
    swallowed("inner source multicast", udp(to(END_DX6).inner_ipv6(multicast)));
    let inner = 14 + 40;
    swallowed("inner version 4 under Next Header 41", six(to(END_DX6), SERVER, 64).with_bytes(inner, &[0x45]));
    let longer = six(to(END_DX6), SERVER, 64).with_bytes(inner + 4, &[1, 0]);
    swallowed("inner Payload Length beyond the packet", longer);
    // RFC 6040: congestion was met, and the inner packet cannot say so. Linux: forwarded as if none had been.
    let congested = Ipv6Repr { traffic_class: 3, ..outer(local(END_DX6)) };
    let frame = six(arriving("core0").ipv6(congested), SERVER, 64);
    swallowed("outer CE, inner not ECN-capable", frame);
}

#[test]
#[ignore = "needs root"]
fn packets_that_linux_forwards_otherwise() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    // Linux: the inner packet keeps ECT(0).
    let congested = Ipv6Repr { traffic_class: 3, ..outer(local(END_DX6)) };
    let capable = |traffic_class, hop_limit| Ipv6Repr { traffic_class, hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
    let frame = udp(arriving("core0").ipv6(congested).inner_ipv6(capable(2, 64)));
    receivers.arrives("outer CE, inner ECT(0)", "core0", &frame, "acc1", &udp(leaving("acc1").ipv6(capable(3, 63))));

    // Linux: octets behind the inner packet, which no header of it counts, are forwarded with it.
    let mut octets = udp(arriving("core0").ipv6(outer(local(END_DX6))).inner_ipv6(capable(0, 64))).build();
    let length = u16::from_be_bytes([octets[18], octets[19]]) + 8;
    octets[18..20].copy_from_slice(&length.to_be_bytes());
    octets.extend([0xee; 8]);
    let (at, found) = receivers.send("octets behind the inner packet", "core0", &octets);
    assert_eq!(at, "acc1");
    same("octets behind the inner packet", &found, &udp(leaving("acc1").ipv6(capable(0, 63))).build());

    // RFC 8986 S12: End and End.X each lower the hop limit. Linux: once for both, by the forwarding behind them.
    let own = [local(END), local(END_X), behind_core1(0xa)];
    let frame = six(arriving("core0").ipv6(outer(local(END))).srh(SrhRepr::new(&own)), SERVER, 64);
    let after = Ipv6Repr { hop_limit: 62, ..outer(behind_core1(0xa)) };
    let expected = six(leaving("core0").ipv6(after).srh(SrhRepr::new(&own).with_segments_left(0)), SERVER, 64);
    receivers.arrives("two segments of one node", "core0", &frame, "core0", &expected);

    // RFC 8986 section 4.5: to the SID's next hop. Linux: asks on that link for the inner destination's address instead.
    let frame = four(arriving("core0").ipv6(outer(local(END_DX4))), CLIENT4, 64);
    receivers.arrives("End.DX4 to a neighbour", "core0", &frame, "acc1", &four(leaving("acc1"), CLIENT4, 63));

    // RFC 8986 section 5.1 S05 and RFC 2473: the inner hop limit is lowered, the outer one is the policy's. Linux: the inner one
    // stays, and the outer one is a copy of it, lowered.
    let to: Ipv6Addr = "fd00:0:e1::7".parse().expect("an address");
    let (_, found) = receivers.send("hop limits of H.Encaps.Red", "acc0", &six(arriving("acc0"), to, 9).build());
    assert_eq!((found[14 + 7], found[14 + 40 + 40 + 7]), (64, 8), "outer and inner hop limit");
    // The traffic class of IPv4, too. Linux: 0.
    let to = [10, 20, 1, 7].into();
    let marked = Ipv4Repr { type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, to) };
    let (_, found) = receivers.send("traffic class of IPv4", "acc0", &udp(arriving("acc0").ipv4(marked)).build());
    assert_eq!((found[14] << 4) | (found[15] >> 4), 0xb8, "outer traffic class");
}

/// RFC 2473 section 7: what does not fit once wrapped is told to its own source, with the MTU that would fit. Linux: the error
/// about the outer packet goes to the headend itself, and the source hears nothing.
#[test]
#[ignore = "needs root"]
fn packets_that_do_not_fit() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    let to: Ipv6Addr = "fd00:0:e6::7".parse().expect("an address");
    let frame = six(arriving("acc0"), to, 64).payload(&[7; 1300]);
    // The narrow link has 1400; the header of two reduced segments takes 40 + 24.
    let packet = Icmpv6Repr::quote(&frame.build()[14..]).to_vec();
    let source = segue_testkit::fixture::port_ipv6("acc0");
    let (at, found) = receivers.send("Packet Too Big", "acc0", &frame.build());
    assert_eq!(at, "acc0");
    let reply = |from| {
        leaving("acc0")
            .ipv6(Ipv6Repr::new(from, CLIENT))
            .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1400 - 64, packet: packet.clone() })
    };
    // Either address is the node's own.
    let expected = if found[22..38] == source.octets() { reply(source) } else { reply(NODE) };
    same("Packet Too Big", &found, &expected.build());
}
