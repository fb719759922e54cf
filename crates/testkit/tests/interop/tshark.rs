//! tshark as an independent reader of what Segue emits. The golden tests show it every packet whose contents are sound; here are
//! all headend modes and behaviours once more as they arrive at plain receivers, and the errors about faulty packets, which
//! the golden tests keep from it: tshark rightly remarks on the fault that they quote, so of these only the error itself (IPv6
//! and ICMPv6 header, checksum over all) is held to account.

use std::process::Command;

use crate::receivers::{Receivers, four, six};
use segue_testkit::command::run;
use segue_testkit::dissector::no_warnings;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*};
use segue_testkit::node::Node;
use segue_wire::ipv6_extension::RoutingRepr;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, TlvRepr, UdpRepr};

fn outer(function: u16) -> PacketBuilder {
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(function)))
}

fn srh(function: u16) -> SrhRepr {
    SrhRepr::new(&[local(function), behind_core1(0xa), behind_core1(0xb)])
}

#[test]
#[ignore = "needs root"]
fn all_modes_and_behaviours() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    let mut frames = Vec::new();
    let mut send =
        |case: &str, port: &str, frame: PacketBuilder| frames.push(receivers.send(case, port, &frame.build()).1);
    // H.Encaps, H.Encaps.Red, both with one segment, H.Insert, ten segments, and IPv4 in the first three.
    for destination in [0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xeb, 0xec] {
        let to = std::net::Ipv6Addr::new(0xfd00, 0, destination, 0, 0, 0, 0, 7);
        send(&format!("IPv6 to {to}"), "acc0", six(arriving("acc0"), to, 64));
    }
    for network in 0..3 {
        send("IPv4", "acc0", four(arriving("acc0"), [10, 20, network, 7].into(), 64));
    }
    let customer = || PacketBuilder::ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]);
    send("H.Encaps.L2", "wire0", six(customer(), SERVER, 64));
    send("H.Encaps.L2 of 802.1Q", "wire0", four(customer().vlan(7), SERVER4, 64));
    for function in [END, END_X, END_T, END_B6, END_B6_RED] {
        send(&format!("function {function:#x}"), "core0", six(outer(function).srh(srh(function)), SERVER, 64));
    }
    for function in [END_PSP, END_X_PSP, END_T_PSP] {
        let last = srh(function).with_segments_left(1);
        send(&format!("function {function:#x}"), "core0", six(outer(function).srh(last), SERVER, 64));
    }
    let hmac = srh(END).with_tlv(TlvRepr::Hmac { d_and_reserved: 0, key_id: 7, hmac: vec![0xc3; 32] });
    send("End with an HMAC TLV", "core0", six(outer(END).srh(hmac), SERVER, 64));
    for function in [END_DX6, END_DT46, END_USD] {
        send(&format!("function {function:#x}"), "core0", six(outer(function), SERVER, 64));
    }
    send("End.DT6", "core0", six(outer(END_DT6), IN_TABLE, 64));
    send("End.DX4", "core0", four(outer(END_DX4), SERVER4, 64));
    send("End.DT4", "core0", four(outer(END_DT4), IN_TABLE4, 64));
    send(
        "End.DX2",
        "core0",
        six(outer(END_DX2).inner_ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]), SERVER, 64),
    );
    send("End.AS", "core0", six(outer(END_AS).srh(srh(END_AS)), SERVER, 64));
    send("back from the function", "fun1", six(arriving("fun1"), SERVER, 63));
    let echo = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 2, data: b"echo".to_vec() };
    send("echo reply", "core0", outer(END).icmpv6(echo));
    // Errors about packets that are sound.
    let expired = arriving("core0").ipv6(Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(HEADEND, local(END)) }).srh(srh(END));
    send("Time Exceeded", "core0", six(expired, SERVER, 64));
    send("Time Exceeded to a customer", "core0", six(outer(END_DX6), SERVER, 1));
    send("Time Exceeded to an IPv4 customer", "core0", four(outer(END_DX4), SERVER4, 1));
    let unreachable = SrhRepr::new(&[local(END), UNREACHABLE]);
    send("Destination Unreachable", "core0", six(outer(END).srh(unreachable), SERVER, 64));
    send(
        "Packet Too Big",
        "acc0",
        six(arriving("acc0"), "fd00:0:e6::7".parse().expect("an address"), 64).payload(&[7; 1300]),
    );
    assert_eq!(frames.len(), 37, "every kind was sent");
    no_warnings(&frames);
}

#[test]
#[ignore = "needs root"]
fn errors_about_faulty_packets() {
    let network = Network::new();
    let _node = Node::load(&network.node, &configuration(DOMAIN));
    let receivers = Receivers::around(&network);
    let steered = |srh: SrhRepr| six(outer(END).srh(srh), SERVER, 64);
    let routing = RoutingRepr { routing_type: 253, segments_left: 1, data: vec![0; 20], ..RoutingRepr::default() };
    let udp = |packet: PacketBuilder| packet.udp(UdpRepr::new(1, 2)).payload(b"upper");
    let mut frames = Vec::new();
    for (case, frame) in [
        ("Segments Left beyond Last Entry + 1", steered(srh(END).with_segments_left(4))),
        ("Segments Left 255", steered(srh(END).with_segments_left(255))),
        ("Last Entry beyond the header", steered(srh(END)).with_bytes(14 + 40 + 4, &[3])),
        ("no room for a segment", steered(srh(END)).with_bytes(14 + 40 + 1, &[1])),
        ("Segments Left not 0 at End.DX6", six(outer(END_DX6).srh(srh(END_DX6)), SERVER, 64)),
        ("unknown routing type", udp(outer(END).routing(routing))),
        ("upper layer not allowed", udp(outer(END))),
        ("a wrong checksum inside", udp(outer(END)).with_bytes(14 + 40 + 6, &[0xde, 0xad])),
        ("no next header", outer(END).payload(b"nothing")),
    ] {
        let (at, found) = receivers.send(case, "core0", &frame.build());
        assert_eq!((at.as_str(), found[54], &found[22..38]), ("core0", 4, &NODE.octets()[..]), "{case}");
        frames.push(found);
    }
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().expect("a file");
    std::fs::write(file.path(), segue_api::pcap::classic(&frames)).unwrap();
    let tshark = |arguments: &[&str]| run(Command::new("tshark").arg("-r").arg(file.path()).args(arguments));
    // Of each field the first occurrence is that of the error; 1: the checksum is good.
    let sums = tshark(&["-T", "fields", "-E", "occurrence=f", "-e", "icmpv6.checksum.status", "-e", "icmpv6.type"]);
    assert_eq!(sums.lines().collect::<Vec<_>>(), vec!["1\t4"; frames.len()], "checksums and types");
    let remarks = remarks_on_outermost(&tshark(&["-T", "pdml"]));
    assert!(remarks.is_empty(), "{remarks:#?}");
}

/// Remarks of severity "warning" or worse, and "malformed", that are not within the quoted packet: in PDML that is a protocol
/// inside the protocol ICMPv6.
fn remarks_on_outermost(pdml: &str) -> Vec<String> {
    let mut depth = 0;
    let (mut protocols, mut quoted, mut remarks) = (0, 0, Vec::new());
    for line in pdml.lines().map(str::trim) {
        if line.starts_with("<proto ") && !line.ends_with("/>") {
            depth += 1;
            protocols += 1;
            quoted += usize::from(depth > 1);
        }
        let severity = line
            .split_once("name=\"_ws.expert.severity\"")
            .and_then(|(_, rest)| rest.split_once("show=\"")?.1.split('"').next()?.parse::<u32>().ok());
        let malformed = line.contains("name=\"_ws.malformed\"");
        if depth <= 1 && (malformed || severity.is_some_and(|severity| severity >= 0x60_0000)) {
            remarks.push(line.to_owned());
        }
        if line.starts_with("</proto>") {
            depth -= 1;
        }
    }
    assert!(protocols > 0 && quoted > 0, "this is not what tshark prints: {pdml}");
    remarks
}
