//! The kernel's `seg6` as headend, Segue as endpoint: what the kernel wraps crosses Segue's behaviours and comes out at plain
//! receivers, octet for octet.
//!
//! ```text
//! world (client0) --- ingress: Linux, seg6 --- (core0) node: Segue --- world (core1, acc1, wire0, fun0, fun1)
//! ```
//!
//! Linux leaves the inner hop limit alone when it encapsulates; its own forwarding lowers the outer one, which it copied from
//! the inner header (IPv6) or took from its default (IPv4, Ethernet: 64).

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::receivers::{Receivers, four, link, link_macs, six, take};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::netns::Netns;
use segue_testkit::node::Node;
use segue_testkit::wait::wait_for;
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr};

/// Number of the link between the client and the ingress.
const CLIENT_LINK: u8 = 0xd0;
const END_DT46_TABLE: u16 = 0x45;

/// Everything but Segue's program, which borrows its node's namespace.
struct Domain {
    network: Network,
    ingress: Netns,
}

impl Domain {
    fn new() -> Self {
        let (network, ingress) = (Network::new(), Netns::new());
        take(&network, "core0", &ingress);
        link((&network.world, "client0"), (&ingress, "host0"), CLIENT_LINK, 1500);
        ingress.script(
            "ip sr tunsrc set fd00:0:9::1
             ip -6 route add fc00:0:1::/48 via fd00:0:c0::1",
        );
        Self { network, ingress }
    }

    fn segue(&self) -> Node<'_> {
        // One more SID: End.DT46 into another table than the main one.
        let sid =
            format!("  - {{sid: 'fc00:0:1:{END_DT46_TABLE:x}::/64', behaviour: End.DT46, table: 100}}\npolicies:");
        Node::load(&self.network.node, &configuration(DOMAIN).replacen("policies:", &sid, 1))
    }

    fn receivers(&self) -> Receivers {
        let world = |name| (name, &self.network.world, format!("{name}-far"));
        Receivers::at(&[
            ("client", &self.network.world, "client0".to_owned()),
            ("core0", &self.ingress, "core0-far".to_owned()),
            world("core1"),
            world("acc0"),
            world("acc1"),
            world("wire0"),
            world("fun0"),
            world("fun1"),
        ])
    }

    /// Makes the ingress wrap packets to a destination.
    fn wrap(&self, destination: &str, mode: &str, segments: &[Ipv6Addr]) {
        let family = if destination.contains(':') { "-6" } else { "-4" };
        let segments: Vec<_> = segments.iter().map(Ipv6Addr::to_string).collect();
        let segments = segments.join(",");
        self.ingress.sh(&format!(
            "ip {family} route replace {destination} encap seg6 mode {mode} segs {segments} dev core0-far"
        ));
    }
}

fn from_client() -> PacketBuilder {
    let (client, ingress) = link_macs(CLIENT_LINK);
    PacketBuilder::ethernet(client, ingress)
}

/// The kernel's outer header after `hops`, around [`six`]: it copies hop limit, traffic class and flow label.
fn outer(destination: Ipv6Addr, hops: u8) -> Ipv6Repr {
    let hop_limit = 64 - hops;
    Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0x5_4321, ..Ipv6Repr::new(HEADEND, destination) }
}

#[test]
#[ignore = "needs root"]
fn end_and_its_relatives() {
    let domain = Domain::new();
    let _segue = domain.segue();
    let receivers = domain.receivers();
    let to = SERVER;
    let customer = six(from_client(), to, 64);
    let wrap = |mode: &str, segments: &[Ipv6Addr]| domain.wrap(&to.to_string(), mode, segments);
    let next = behind_core1(0xa);
    let arrives =
        |case: &str, at: &str, expected: &PacketBuilder| receivers.arrives(case, "client", &customer, at, expected);

    let path = [local(END), next, behind_core1(0xb)];
    wrap("encap", &path);
    let header = |packet: PacketBuilder, srh: SrhRepr| packet.ipv6(outer(next, 2)).srh(srh);
    let full = SrhRepr::new(&path).with_segments_left(1);
    arrives("encap, End", "core1", &six(header(leaving("core1"), full), to, 64));
    wrap("encap.red", &path);
    let reduced = SrhRepr::reduced(&path).with_segments_left(1);
    arrives("encap.red, End", "core1", &six(header(leaving("core1"), reduced), to, 64));

    let path = [local(END_PSP), next];
    for mode in ["encap", "encap.red"] {
        wrap(mode, &path);
        arrives(&format!("{mode}, End with PSP"), "core1", &six(leaving("core1").ipv6(outer(next, 2)), to, 64));
    }
    let path = [local(END_X), next];
    wrap("encap", &path);
    let srh = SrhRepr::new(&path).with_segments_left(0);
    arrives("encap, End.X: back to where it came from", "core0", &six(header(leaving("core0"), srh), to, 64));
    let path = [local(END_T), next];
    wrap("encap.red", &path);
    let srh = SrhRepr::reduced(&path).with_segments_left(0);
    arrives("encap.red, End.T: a table with another way", "core0", &six(header(leaving("core0"), srh), to, 64));

    let path = [local(END_B6), next];
    wrap("encap", &path);
    let (at, found) = receivers.send("encap, End.B6.Encaps", "client", &customer.build());
    assert_eq!(at, "core1");
    let policy = [0xa, 0xb, 0xc].map(behind_core1);
    let outermost = Ipv6Repr { hop_limit: 64, source: NODE, ..outer(policy[0], 0) };
    let expected = leaving("core1").ipv6(outermost).srh(SrhRepr::new(&policy)).ipv6(outer(next, 2));
    let expected = six(expected.srh(SrhRepr::new(&path).with_segments_left(0)), to, 64);
    crate::receivers::same("encap, End.B6.Encaps", &found, &expected.build());
}

#[test]
#[ignore = "needs root"]
fn inserted_headers() {
    let domain = Domain::new();
    let _segue = domain.segue();
    let receivers = domain.receivers();
    let next = behind_core1(0xa);
    let customer = six(from_client(), SERVER, 64);
    // The kernel appends the original destination as the last segment.
    domain.wrap(&SERVER.to_string(), "inline", &[local(END), next]);
    let (at, found) = receivers.send("inline, End", "client", &customer.build());
    assert_eq!(at, "core1", "inline, End");
    let own = |destination, hop_limit| Ipv6Repr {
        hop_limit,
        traffic_class: 0x28,
        flow_label: 0x5_4321,
        ..Ipv6Repr::new(CLIENT, destination)
    };
    let srh = SrhRepr::new(&[local(END), next, SERVER]).with_segments_left(1);
    let mut expected = leaving("core1").ipv6(own(next, 62)).srh(srh).build();
    let upper = &customer.build()[14 + 40..];
    // The builder does not know what follows: UDP, as the customer wrote it.
    expected[18..20].copy_from_slice(&(56 + upper.len() as u16).to_be_bytes());
    expected[14 + 40] = 17;
    expected.extend(upper);
    crate::receivers::same("inline, End", &found, &expected);

    domain.wrap(&SERVER.to_string(), "inline", &[local(END_PSP)]);
    let plain = six(leaving("acc1"), SERVER, 62);
    receivers.arrives("inline, End with PSP: the customer's own packet", "client", &customer, "acc1", &plain);
    domain.wrap(&SERVER.to_string(), "inline", &[local(END), local(END_PSP)]);
    // RFC 8986: each of the two lowers the hop limit. Linux lowers it once for all segments of one node.
    let plain = six(leaving("acc1"), SERVER, 61);
    receivers.arrives("inline, two SIDs of one node", "client", &customer, "acc1", &plain);
}

#[test]
#[ignore = "needs root"]
fn decapsulation() {
    let domain = Domain::new();
    let segue = domain.segue();
    let receivers = domain.receivers();
    for (mode, case) in [("encap", "an SRH of one segment"), ("encap.red", "no SRH")] {
        for (behaviour, function, to) in [
            ("End.DX6", END_DX6, SERVER),
            ("End.DT6 with a table", END_DT6, IN_TABLE),
            ("End.DT46, main table", END_DT46, SERVER),
            ("End.DT46 with a table", END_DT46_TABLE, IN_TABLE),
        ] {
            domain.wrap(&to.to_string(), mode, &[local(function)]);
            let case = format!("{case}, {behaviour}, IPv6");
            receivers.arrives(&case, "client", &six(from_client(), to, 64), "acc1", &six(leaving("acc1"), to, 63));
        }
        for (behaviour, function, to) in [
            ("End.DX4", END_DX4, SERVER4),
            ("End.DT4 with a table", END_DT4, IN_TABLE4),
            ("End.DT46, main table", END_DT46, SERVER4),
            ("End.DT46 with a table", END_DT46_TABLE, IN_TABLE4),
        ] {
            domain.wrap(&to.to_string(), mode, &[local(function)]);
            let case = format!("{case}, {behaviour}, IPv4");
            receivers.arrives(&case, "client", &four(from_client(), to, 64), "acc1", &four(leaving("acc1"), to, 63));
        }
    }
    domain.wrap(&SERVER.to_string(), "encap.red", &[local(END), local(END_X_USD), local(END_DX6)]);
    // End.X with USD is not the last segment here: it would hand the packet, still wrapped, to a neighbour outside the domain.
    receivers.swallowed("three SIDs of one node", "client", &six(from_client(), SERVER, 64).build());
    wait_for("a counted drop", Duration::from_secs(20), || segue.counters().get("core0 drop_sr_leaves").copied());
    domain.wrap(&SERVER.to_string(), "encap", &[local(END), local(END_PSP), local(END_DX6)]);
    let case = "End, End with PSP and End.DX6 on one node";
    receivers.arrives(case, "client", &six(from_client(), SERVER, 64), "acc1", &six(leaving("acc1"), SERVER, 63));
}

#[test]
#[ignore = "needs root"]
fn frames() {
    let domain = Domain::new();
    let _segue = domain.segue();
    let receivers = domain.receivers();
    let customer = six(from_client(), SERVER, 64);
    for mode in ["l2encap", "l2encap.red"] {
        for segments in [&[local(END_DX2)][..], &[local(END), local(END_DX2)]] {
            domain.wrap(&SERVER.to_string(), mode, segments);
            let case = format!("{mode}, {} segments, End.DX2: the frame as the ingress received it", segments.len());
            receivers.arrives(&case, "client", &customer, "wire0", &customer);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn through_a_function() {
    let domain = Domain::new();
    let _segue = domain.segue();
    let receivers = domain.receivers();
    let cached = [behind_core1(0xa), behind_core1(0xb)];
    for mode in ["encap", "encap.red"] {
        domain.wrap(&SERVER.to_string(), mode, &[local(END_AS), cached[0], cached[1]]);
        domain.wrap(&SERVER4.to_string(), mode, &[local(END_AS), cached[0], cached[1]]);
        // The proxy leaves the inner hop limit alone on the way to the function, and lowers it on the way back.
        let function = segue_testkit::fixture::macs("fun0");
        let to_function = || PacketBuilder::ethernet(function.0, [2, 0, 0, 0, 0, 0x71]);
        let case = format!("{mode}, End.AS, to the function, IPv6");
        receivers.arrives(&case, "client", &six(from_client(), SERVER, 64), "fun0", &six(to_function(), SERVER, 64));
        let case = format!("{mode}, End.AS, to the function, IPv4");
        receivers.arrives(
            &case,
            "client",
            &four(from_client(), SERVER4, 64),
            "fun0",
            &four(to_function(), SERVER4, 64),
        );
    }
    let back = six(arriving("fun1"), SERVER, 63);
    let steering = Ipv6Repr { source: NODE, hop_limit: 64, ..outer(cached[0], 0) };
    let expected = six(leaving("core1").ipv6(steering).srh(SrhRepr::new(&cached)), SERVER, 62);
    receivers.arrives("End.AS, back from the function", "fun1", &back, "core1", &expected);
}
