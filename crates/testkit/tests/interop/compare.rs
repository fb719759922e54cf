//! The same packets through the kernel's implementation and through Segue's, in two networks that are alike down to the MAC
//! addresses: where the RFCs leave no freedom, the same octets leave by the same link.
//!
//! Where the kernel does something else than the RFCs say, Segue does what they say; the tests in `divergence.rs` hold
//! those cases.

use std::net::Ipv6Addr;

use crate::receivers::{Receivers, four, same, six};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, macs};
use segue_testkit::node::Node;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::srh::TlvRepr;
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr};

/// The kernel's counterparts of the fixture's configuration.
const KERNEL: &str = "
    ip sr tunsrc set fd00:0:1::1
    ip -6 route add fc00:0:1:1::/64 encap seg6local action End dev core1
    ip -6 route add fc00:0:1:2::/64 encap seg6local action End flavors psp dev core1
    ip -6 route add fc00:0:1:11::/64 encap seg6local action End.X nh6 fd00:0:c0::2 dev core0
    ip -6 route add fc00:0:1:21::/64 encap seg6local action End.T table 100 dev core1
    ip -6 route add fc00:0:1:31::/64 encap seg6local action End.DX2 oif wire0 dev core1
    ip -6 route add fc00:0:1:32::/64 encap seg6local action End.DX4 nh4 10.2.0.2 dev core1
    ip -6 route add fc00:0:1:33::/64 encap seg6local action End.DX6 nh6 fd00:0:a1::2 dev core1
    ip -6 route add fc00:0:1:42::/64 encap seg6local action End.DT6 table 100 dev core1
    ip -6 route add fc00:0:1:51::/64 encap seg6local action End.B6.Encaps srh segs fc00:0:2:a::,fc00:0:2:b::,fc00:0:2:c:: dev core1
    ip -6 route add fd00:0:e0::/64 encap seg6 mode encap segs fc00:0:2:a::,fc00:0:2:b::,fc00:0:2:c:: dev core1
    ip -4 route add 10.20.0.0/24 encap seg6 mode encap segs fc00:0:2:a::,fc00:0:2:b::,fc00:0:2:c:: dev core1
    ip -6 route add fd00:0:e1::/64 encap seg6 mode encap.red segs fc00:0:2:a::,fc00:0:2:b::,fc00:0:2:c:: dev core1
    ip -4 route add 10.20.1.0/24 encap seg6 mode encap.red segs fc00:0:2:a::,fc00:0:2:b::,fc00:0:2:c:: dev core1
    ip -6 route add fd00:0:e2::/64 encap seg6 mode encap.red segs fc00:0:2:a:: dev core1
    ip -6 route add fd00:0:e3::/64 encap seg6 mode encap segs fc00:0:2:a:: dev core1
    ip -6 route add fd00:0:e4::/64 encap seg6 mode inline segs fc00:0:2:a::,fc00:0:2:b:: dev core1
    ip -6 route add fd00:0:ef::/64 encap seg6 mode l2encap segs fc00:0:2:a::,fc00:0:2:b:: dev core1";

/// Octets that the RFCs leave to the implementation, from the start of the frame.
#[derive(Clone, Copy)]
enum Free {
    /// None.
    Nothing,
    /// Outer flow label and hop limit; and the hop limit of an inner IPv6 header at this offset: RFC 8986 section 5.1 S05
    /// lowers it, and Linux lowers the outer one instead.
    Headend6 { inner: usize },
    /// The same with an inner IPv4 header: TTL and checksum.
    Headend4 { inner: usize },
    /// Outer flow label and hop limit only.
    HeadendL2,
}

impl Free {
    fn mask(self, frame: &mut [u8]) {
        let mut clear =
            |from: usize, octets: usize| frame.iter_mut().skip(from).take(octets).for_each(|octet| *octet = 0);
        if !matches!(self, Self::Nothing) {
            clear(14 + 2, 2);
            clear(14 + 7, 1);
        }
        match self {
            Self::Headend6 { inner } => clear(inner + 7, 1),
            Self::Headend4 { inner } => {
                clear(inner + 8, 1);
                clear(inner + 10, 2);
            }
            Self::Nothing | Self::HeadendL2 => {}
        }
        if !matches!(self, Self::Nothing)
            && let Some(octet) = frame.get_mut(15)
        {
            *octet &= 0xf0; // the flow label's first four bits
        }
    }
}

struct Twins<'a> {
    segue: Receivers,
    kernel: Receivers,
    _node: Node<'a>,
}

impl<'a> Twins<'a> {
    fn new(with_segue: &'a Network, with_kernel: &Network) -> Self {
        let node = Node::load(&with_segue.node, &configuration(DOMAIN));
        with_kernel.node.script(KERNEL);
        Self { segue: Receivers::around(with_segue), kernel: Receivers::around(with_kernel), _node: node }
    }

    /// The frame leaves both by `to`, with the same octets but for those that are `free`.
    fn agree(&self, case: &str, port: &str, frame: &PacketBuilder, to: &str, free: Free) {
        self.agree_from(case, (port, port), frame, to, free);
    }

    fn agree_from(&self, case: &str, (port, kernel_port): (&str, &str), frame: &PacketBuilder, to: &str, free: Free) {
        let frame = frame.build();
        let (kernel_at, mut kernel) = self.kernel.send(&format!("{case}, kernel"), kernel_port, &frame);
        let (segue_at, mut segue) = self.segue.send(&format!("{case}, Segue"), port, &frame);
        assert_eq!((kernel_at.as_str(), segue_at.as_str()), (to, to), "{case}: where kernel's and Segue's arrive");
        assert_ne!(kernel, frame, "{case}: the packet only went around");
        free.mask(&mut kernel);
        free.mask(&mut segue);
        same(case, &segue, &kernel);
    }

    /// Neither sends anything.
    fn both_silent(&self, case: &str, port: &str, frame: &PacketBuilder) {
        let frame = frame.build();
        self.kernel.swallowed(&format!("{case}, kernel"), port, &frame);
        self.segue.swallowed(&format!("{case}, Segue"), port, &frame);
    }
}

fn outer(destination: Ipv6Addr) -> Ipv6Repr {
    Ipv6Repr { traffic_class: 0x58, flow_label: 0xa_bcde, ..Ipv6Repr::new(HEADEND, destination) }
}

fn path(first: u16) -> [Ipv6Addr; 3] {
    [local(first), behind_core1(0xa), behind_core1(0xb)]
}

/// The customer's packet with a steering header around it, on its way to a SID of the node.
fn steered(function: u16, srh: SrhRepr) -> PacketBuilder {
    six(arriving("core0").ipv6(outer(local(function))).srh(srh), SERVER, 64)
}

fn opaque(octets: usize) -> TlvRepr {
    TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0x5a; octets] }
}

#[test]
#[ignore = "needs root"]
fn end() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let full = || SrhRepr::new(&path(END));
    for (case, srh) in [
        ("full SRH", full()),
        ("second of three segments", full().with_segments_left(1)),
        ("reduced SRH", SrhRepr::reduced(&path(END))),
        ("tag", full().with_tag(0xbeef)),
        ("all flags but that of the HMAC", full().with_flags(0xf7)),
        ("opaque TLV", full().with_tlv(opaque(14))),
        ("TLV and PadN", full().with_tlv(opaque(7)).with_tlv(TlvRepr::PadN(5))),
    ] {
        twins.agree(&format!("End, {case}"), "core0", &steered(END, srh), "core1", Free::Nothing);
    }
    let options = OptionsRepr::default;
    let start = || arriving("core0");
    let hop_by_hop = start().ipv6(outer(local(END))).hop_by_hop(options()).srh(full());
    twins.agree("End, hop-by-hop options in front", "core0", &six(hop_by_hop, SERVER, 64), "core1", Free::Nothing);
    let destination = start().ipv6(outer(local(END))).destination_options(options()).srh(full());
    twins.agree("End, destination options in front", "core0", &six(destination, SERVER, 64), "core1", Free::Nothing);
    let low = start().ipv6(Ipv6Repr { hop_limit: 2, ..outer(local(END)) }).srh(full());
    twins.agree("End, hop limit 2", "core0", &six(low, SERVER, 64), "core1", Free::Nothing);
    let argument = start().ipv6(outer(local_with_argument(END, 0x77))).srh(full());
    twins.agree("End, with an argument", "core0", &six(argument, SERVER, 64), "core1", Free::Nothing);
    let two = start().ipv6(outer(local(END))).srh(full().with_segments_left(0)).srh(full());
    twins.agree("End, two SRHs, the first at its end", "core0", &six(two, SERVER, 64), "core1", Free::Nothing);
    let ipv4 = four(start().ipv6(outer(local(END))).srh(full()), SERVER4, 64);
    twins.agree("End, IPv4 inside", "core0", &ipv4, "core1", Free::Nothing);
}

#[test]
#[ignore = "needs root"]
fn penultimate_segment_pop() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let last = || SrhRepr::new(&path(END_PSP)).with_segments_left(1);
    twins.agree("PSP not yet", "core0", &steered(END_PSP, SrhRepr::new(&path(END_PSP))), "core1", Free::Nothing);
    twins.agree("PSP", "core0", &steered(END_PSP, last()), "core1", Free::Nothing);
    let reduced = SrhRepr::reduced(&path(END_PSP)[..2]);
    twins.agree("PSP, reduced SRH of one segment", "core0", &steered(END_PSP, reduced), "core1", Free::Nothing);
    twins.agree(
        "PSP takes TLVs along",
        "core0",
        &steered(END_PSP, last().with_tlv(opaque(14))),
        "core1",
        Free::Nothing,
    );
    let options = OptionsRepr::default;
    let start = || arriving("core0").ipv6(outer(local(END_PSP)));
    let frame = six(start().hop_by_hop(options()).srh(last()), SERVER, 64);
    twins.agree("PSP behind hop-by-hop options", "core0", &frame, "core1", Free::Nothing);
    let frame = six(start().destination_options(options()).srh(last()), SERVER, 64);
    twins.agree("PSP behind destination options", "core0", &frame, "core1", Free::Nothing);
    let frame = six(start().srh(last()).destination_options(options()), SERVER, 64);
    twins.agree("PSP, destination options behind the SRH", "core0", &frame, "core1", Free::Nothing);
    let inline = SrhRepr::new(&[local(END_PSP), SERVER]);
    let frame = arriving("core0").ipv6(outer(local(END_PSP))).srh(inline).payload(b"an upper layer that nobody knows");
    twins.agree("PSP, inserted SRH: to the true destination", "core0", &frame, "acc1", Free::Nothing);
}

#[test]
#[ignore = "needs root"]
fn other_ways_out() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let full = |function| SrhRepr::new(&path(function));
    twins.agree("End.X", "core1", &steered_from("core1", END_X, full(END_X)), "core0", Free::Nothing);
    let reduced = SrhRepr::reduced(&path(END_X));
    twins.agree("End.X, reduced SRH", "core1", &steered_from("core1", END_X, reduced), "core0", Free::Nothing);
    // The main table would send it to core1.
    twins.agree("End.T", "core1", &steered_from("core1", END_T, full(END_T)), "core0", Free::Nothing);
}

fn steered_from(port: &str, function: u16, srh: SrhRepr) -> PacketBuilder {
    six(arriving(port).ipv6(outer(local(function))).srh(srh), SERVER, 64)
}

#[test]
#[ignore = "needs root"]
fn decapsulation() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let at_end = |function| SrhRepr::new(&[behind_core1(9), local(function)]).with_segments_left(0);
    // Each in all the ways in which it can be wrapped.
    let wrapped = |function: u16, case: usize| {
        let start = arriving("core0").ipv6(outer(local(function)));
        let options = OptionsRepr::default;
        match case {
            0 => ("without SRH", start),
            1 => ("behind an SRH", start.srh(at_end(function))),
            2 => ("behind an SRH with a TLV", start.srh(at_end(function).with_tlv(opaque(14)))),
            3 => (
                "behind options and an SRH",
                start.hop_by_hop(options()).destination_options(options()).srh(at_end(function)),
            ),
            _ => ("behind an SRH and options", start.srh(at_end(function)).destination_options(options())),
        }
    };
    for case in 0..5 {
        let (how, start) = wrapped(END_DX6, case);
        // Not the destination's own neighbour: the SID's next hop decides.
        twins.agree(&format!("End.DX6 {how}"), "core0", &six(start, CLIENT, 64), "acc1", Free::Nothing);
        let (how, start) = wrapped(END_DX4, case);
        twins.agree(&format!("End.DX4 {how}"), "core0", &four(start, SERVER4, 64), "acc1", Free::Nothing);
        let (how, start) = wrapped(END_DT6, case);
        twins.agree(&format!("End.DT6 {how}"), "core0", &six(start, IN_TABLE, 64), "acc1", Free::Nothing);
        let (how, start) = wrapped(END_DX2, case);
        let frame = six(start.inner_ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]), SERVER, 1);
        twins.agree(&format!("End.DX2 {how}"), "core0", &frame, "wire0", Free::Nothing);
    }
    let low = arriving("core0").ipv6(Ipv6Repr { hop_limit: 1, ..outer(local(END_DX6)) });
    twins.agree(
        "End.DX6, outer hop limit 1: nobody looks at it",
        "core0",
        &six(low, SERVER, 64),
        "acc1",
        Free::Nothing,
    );
    let low = arriving("core0").ipv6(outer(local(END_DX6)));
    twins.agree("End.DX6, inner hop limit 2", "core0", &six(low, SERVER, 2), "acc1", Free::Nothing);
    let low = arriving("core0").ipv6(outer(local(END_DX4)));
    twins.agree("End.DX4, inner TTL 2", "core0", &four(low, SERVER4, 2), "acc1", Free::Nothing);
    let tagged =
        arriving("core0").ipv6(outer(local(END_DX2))).inner_ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]);
    twins.agree("End.DX2 with a VLAN tag", "core0", &six(tagged.vlan(7), SERVER, 1), "wire0", Free::Nothing);
}

/// RFC 8986 section 4.13: advanced first, with its hop limit lowered there; then the policy's header. Linux lowers only the
/// outer hop limit, after having copied it from the inner one.
#[test]
#[ignore = "needs root"]
fn binding_sid() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let inner = 14 + 40 + 8 + 3 * 16;
    let free = Free::Headend6 { inner };
    twins.agree("End.B6.Encaps", "core0", &steered(END_B6, SrhRepr::new(&path(END_B6))), "core1", free);
    let reduced = SrhRepr::reduced(&path(END_B6));
    twins.agree("End.B6.Encaps, reduced SRH", "core0", &steered(END_B6, reduced), "core1", free);
}

#[test]
#[ignore = "needs root"]
fn headend() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let to = |network: u16| Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7);
    let to4 = |network: u8| std::net::Ipv4Addr::new(10, 20, network, 7);
    let customer = || arriving("acc0");
    for (case, network, header) in [
        ("H.Encaps, three segments", 0xe0, 40 + 8 + 48),
        ("H.Encaps.Red, three segments", 0xe1, 40 + 8 + 32),
        ("H.Encaps, one segment", 0xe3, 40 + 8 + 16),
    ] {
        let free = Free::Headend6 { inner: 14 + header };
        twins.agree(case, "acc0", &six(customer(), to(network), 64), "core1", free);
    }
    // The fixture gives this policy a source address of its own, and the kernel has one for all.
    with_kernel.node.sh("ip sr tunsrc set fd00:0:1::5");
    let free = Free::Headend6 { inner: 14 + 40 };
    twins.agree("H.Encaps.Red, one segment: no SRH", "acc0", &six(customer(), to(0xe2), 64), "core1", free);
    with_kernel.node.sh("ip sr tunsrc set fd00:0:1::1");
    for (case, network, header) in [("H.Encaps of IPv4", 0, 40 + 8 + 48), ("H.Encaps.Red of IPv4", 1, 40 + 8 + 32)] {
        let free = Free::Headend4 { inner: 14 + header };
        twins.agree(case, "acc0", &four(customer(), to4(network), 64), "core1", free);
    }
    // A draft says what it is like, but then there is no choice: the packet's own header is forwarded once.
    twins.agree("H.Insert", "acc0", &six(customer(), to(0xe4), 64), "core1", Free::Nothing);
    // The kernel wraps frames of packets that its routing table sends into a tunnel, Segue all frames of a port.
    // Of IPv6 in a frame the kernel copies the traffic class, too: here it is 0.
    let (node, neighbour) = macs("acc0");
    let frame = PacketBuilder::ethernet(neighbour, node).ipv6(Ipv6Repr::new(CLIENT, to(0xef))).payload(b"in a frame");
    twins.agree_from("H.Encaps.L2", ("wire0", "acc0"), &frame, "core1", Free::HeadendL2);
}

#[test]
#[ignore = "needs root"]
fn what_both_refuse_without_a_word() {
    let (with_segue, with_kernel) = (Network::new(), Network::new());
    let twins = Twins::new(&with_segue, &with_kernel);
    let multicast: Ipv6Addr = "ff0e::1".parse().expect("an address");
    let next = SrhRepr::new(&[local(END), multicast]);
    twins.both_silent("next segment multicast", "core0", &steered(END, next));
    let source = Ipv6Repr::new(multicast, local(END));
    let frame = six(arriving("core0").ipv6(source).srh(SrhRepr::new(&path(END))), SERVER, 64);
    twins.both_silent("source multicast", "core0", &frame);
    twins.both_silent(
        "next segment behind a blackhole",
        "core0",
        &steered(END, SrhRepr::new(&[local(END), BLACKHOLE])),
    );
}
