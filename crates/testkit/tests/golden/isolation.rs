//! A hostile function behind End.AM or End.AN: whatever it makes of the packets that it gets, none reaches a SID that it was not
//! given. What comes back is compared with what was sent, field by field.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::golden::Golden;
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TlvRepr, UdpRepr};

const TO_FUNCTION: &str = "to_function";
const CHANGED: &str = "drop_header_changed";
const FROM_FUNCTION: &str = "drop_from_function";

/// Another tenant's End.DT46.
const STRANGER: Ipv6Addr = behind_core1(0x43);
/// What is used up by nobody, outside of the SID blocks.
const ELSEWHERE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xa1, 0, 0, 0, 0, 0x66);

type Tail = fn(PacketBuilder) -> PacketBuilder;

fn udp(packet: PacketBuilder) -> PacketBuilder {
    packet.udp(UdpRepr::new(1, 2)).payload(b"between users")
}

/// An inner packet to this destination.
fn inner(packet: PacketBuilder, destination: Ipv6Addr) -> PacketBuilder {
    udp(packet.inner_ipv6(Ipv6Repr { hop_limit: 33, ..Ipv6Repr::new(CLIENT, destination) }))
}

fn options(packet: PacketBuilder) -> PacketBuilder {
    packet.destination_options(OptionsRepr::default())
}

fn fragment(packet: PacketBuilder, offset: u16, more: bool) -> PacketBuilder {
    packet.fragment(FragmentRepr {
        fragment_offset: offset,
        more_fragments: more,
        identification: 7,
        ..FragmentRepr::default()
    })
}

/// A routing header of the function's own.
fn second(packet: PacketBuilder) -> PacketBuilder {
    packet.srh(SrhRepr::new(&[STRANGER, STRANGER]))
}

/// End.AM on one port: the packets that it sends to its function, and what comes back.
struct Masquerading<'a> {
    node: &'a Golden<'a>,
    sid: u16,
    port: &'static str,
}

impl Masquerading<'_> {
    fn headers(&self, front: PacketBuilder, destination: Ipv6Addr, hop_limit: u8, srh: SrhRepr) -> PacketBuilder {
        front.ipv6(Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, destination) }).srh(srh)
    }

    fn list(&self, last: Ipv6Addr) -> SrhRepr {
        SrhRepr::new(&[local(self.sid), behind_core1(0xa), last])
    }

    /// To the function.
    fn sends(&self, case: &str, last: Ipv6Addr, tail: &dyn Fn(PacketBuilder) -> PacketBuilder) {
        let srh = self.list(last);
        let frame = tail(self.headers(arriving("core0"), local(self.sid), 64, srh.clone()));
        let expected = tail(self.headers(leaving(self.port), last, 63, srh.with_segments_left(1)));
        let counter = format!("sid {}/64", local(self.sid));
        self.node.leaves(case, "core0", &frame.build(), &expected.build(), TO_FUNCTION, &[&counter]);
    }

    /// From the function: an SRH with this last segment, to that destination.
    fn returned(&self, destination: Ipv6Addr, last: Ipv6Addr) -> PacketBuilder {
        self.headers(arriving(self.port), destination, 60, self.list(last).with_segments_left(1))
    }

    fn goes_on(
        &self,
        case: &str,
        destination: Ipv6Addr,
        last: Ipv6Addr,
        tail: &dyn Fn(PacketBuilder) -> PacketBuilder,
    ) {
        let (frame, mut srh) = (tail(self.returned(destination, last)), self.list(last).with_segments_left(1));
        srh.segments[0] = destination;
        let expected = tail(self.headers(leaving("core1"), behind_core1(0xa), 59, srh));
        let counter = format!("returned {}/64", local(self.sid));
        self.node.forwards(case, self.port, &frame, &expected, &[&counter]);
    }

    fn drops(&self, case: &str, frame: &PacketBuilder, outcome: &str) {
        self.node.drops(case, self.port, frame, outcome);
    }
}

/// What may follow an SRH that was inserted into a user's packet.
const TAILS: [(&str, Tail); 5] = [
    ("UDP", udp),
    ("destination options", |packet| udp(options(packet))),
    ("an atomic fragment", |packet| udp(fragment(packet, 0, false))),
    ("a first fragment", |packet| udp(fragment(packet, 0, true))),
    ("a later fragment", |packet| fragment(packet, 64, false).payload(&[7; 64])),
];

#[test]
#[ignore = "needs root"]
fn a_masquerading_function_does_not_lead_an_inserted_srh_to_a_sid() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (sid, port) in [(END_AM, "mask0"), (END_AM_NAT, "mask1")] {
        let am = Masquerading { node: &node, sid, port };
        for (case, tail) in TAILS {
            am.sends(case, SERVER, &tail);
            am.goes_on(case, SERVER, SERVER, &tail);
            // Destination, Segment List[0] and all that follows are the function's: an inner packet of its own for a stranger.
            let attack = |front: PacketBuilder| match case {
                "UDP" => udp(front),
                "destination options" => inner(options(front), SERVER),
                "an atomic fragment" => inner(fragment(front, 0, false), SERVER),
                "a first fragment" => inner(fragment(front, 0, true), SERVER),
                _ => fragment(front, 64, false).payload(&[7; 64]),
            };
            for to in [STRANGER, local(END_DT46)] {
                let named = format!("{case}, to {to}");
                am.drops(&format!("{named}, by both"), &attack(am.returned(to, to)), CHANGED);
                am.drops(&format!("{named}, by the destination"), &attack(am.returned(to, SERVER)), CHANGED);
                am.drops(&format!("{named}, by the list"), &attack(am.returned(SERVER, to)), CHANGED);
            }
        }
        // A second routing header, wherever the first one's Next Header lets it hide.
        for (case, hidden) in [
            ("behind options", (|front| udp(second(options(front)))) as Tail),
            ("behind options twice", |front| udp(second(options(options(front))))),
            ("in an atomic fragment", |front| udp(second(fragment(front, 0, false)))),
            ("in a first fragment", |front| udp(second(fragment(front, 0, true)))),
            ("in a first fragment, behind options", |front| udp(second(options(fragment(front, 0, true))))),
            ("an inner packet to a stranger, behind options", |front| inner(options(front), STRANGER)),
            ("an inner packet to a stranger, in a first fragment", |front| inner(fragment(front, 0, true), STRANGER)),
            ("an inner packet with a list, behind options", |front| {
                udp(second(options(front).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))))
            }),
        ] {
            am.drops(case, &hidden(am.returned(SERVER, SERVER)), CHANGED);
        }
        // A header that says to be longer than the packet could hide anything from the next reader.
        let cut = options(am.returned(SERVER, SERVER)).with_bytes(14 + 40 + 56 + 1, &[9]);
        am.drops("options that go on behind the packet", &cut, CHANGED);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_masquerading_function_does_not_change_what_leads_an_encapsulated_packet() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (sid, port) in [(END_AM, "mask0"), (END_AM_NAT, "mask1")] {
        let am = Masquerading { node: &node, sid, port };
        let egress = behind_core1(0x46);
        let plain: Tail = |front| inner(front, SERVER);
        am.sends("encapsulated", egress, &plain);
        am.goes_on("as it was", egress, egress, &plain);
        am.goes_on("another inner packet", egress, egress, &|front| inner(front, ELSEWHERE));
        for (case, frame) in [
            ("another egress", inner(am.returned(STRANGER, STRANGER), SERVER)),
            ("another destination", inner(am.returned(STRANGER, egress), SERVER)),
            ("a destination outside", inner(am.returned(SERVER, egress), SERVER)),
            ("an inner packet to a SID", inner(am.returned(egress, egress), STRANGER)),
            (
                "a packet in the inner packet, to a SID",
                inner(am.returned(egress, egress).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)), STRANGER),
            ),
            (
                "an inner packet with a list",
                udp(second(am.returned(egress, egress).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))),
            ),
            (
                "the same behind options",
                udp(second(options(am.returned(egress, egress).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))))),
            ),
            ("another type behind the SRH", udp(am.returned(egress, egress))),
        ] {
            am.drops(case, &frame, CHANGED);
        }
        // Lists of the inner packet's user, to segments of another domain, are none of ours.
        let foreign: Ipv6Addr = "2001:db8:77::1".parse().expect("an address");
        am.goes_on("an inner packet with a user's list", egress, egress, &|front| {
            udp(front.inner_ipv6(Ipv6Repr::new(CLIENT, foreign)).srh(SrhRepr::new(&[foreign, SERVER])))
        });
        // What went in with such things comes out with them, and with no others.
        let nested = |to: Ipv6Addr| move |front: PacketBuilder| inner(front, to);
        am.sends("nested", egress, &nested(behind_core1(0x51)));
        am.goes_on("nested", egress, egress, &nested(behind_core1(0x51)));
        am.drops("nested, another one", &inner(am.returned(egress, egress), behind_core1(0x52)), CHANGED);
        let with_list = |last: Ipv6Addr| {
            move |front: PacketBuilder| {
                let header = Ipv6Repr { hop_limit: 9, ..Ipv6Repr::new(HEADEND, behind_core1(0x51)) };
                udp(front.inner_ipv6(header).srh(SrhRepr::new(&[behind_core1(0x51), last])))
            }
        };
        am.sends("nested, with a list", egress, &with_list(behind_core1(0x52)));
        am.goes_on("nested, with a list", egress, egress, &with_list(behind_core1(0x52)));
        am.drops("nested, with another list", &with_list(STRANGER)(am.returned(egress, egress)), CHANGED);
        let two = |last: Ipv6Addr| {
            move |front: PacketBuilder| udp(front.srh(SrhRepr::new(&[SERVER, last]).with_segments_left(1)))
        };
        am.sends("two routing headers", SERVER, &two(behind_core1(0x52)));
        am.goes_on("two routing headers", SERVER, SERVER, &two(behind_core1(0x52)));
        am.drops("two routing headers, another list", &two(STRANGER)(am.returned(SERVER, SERVER)), CHANGED);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn caching_puts_no_header_on_a_packet_to_a_sid() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let am = Masquerading { node: &node, sid: END_AM_NAT, port: "mask1" };
    am.sends("out", SERVER, &udp);
    let bare = |destination| arriving("mask1").ipv6(Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(CLIENT, destination) });
    let counter = ["returned fc00:0:1:82::/64"];
    let mut list = am.list(SERVER).with_segments_left(1);
    list.segments[0] = ELSEWHERE;
    let expected = udp(am.headers(leaving("core1"), behind_core1(0xa), 59, list));
    node.forwards("to where it likes", "mask1", &udp(bare(ELSEWHERE)), &expected, &counter);
    for (case, frame, outcome) in [
        ("to a SID", udp(bare(STRANGER)), FROM_FUNCTION),
        ("to a SID, with an inner packet", inner(bare(STRANGER), SERVER), FROM_FUNCTION),
        ("to a SID of this node", inner(bare(local(END_DT46)), SERVER), FROM_FUNCTION),
        ("an inner packet to a SID", inner(bare(SERVER), STRANGER), FROM_FUNCTION),
        ("the same behind options", inner(options(bare(SERVER)), STRANGER), FROM_FUNCTION),
        ("a list in a first fragment", udp(second(fragment(bare(SERVER), 0, true))), FROM_FUNCTION),
        ("a list behind options", udp(second(options(bare(SERVER)))), CHANGED),
    ] {
        am.drops(case, &frame, outcome);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn what_a_function_sends_of_its_own_leads_to_no_sid() {
    let network = Network::new();
    let route = |text: &str| text.replace("from_function: mask0}", "from_function: mask0, own_traffic: route}");
    let node = Golden::load(&network, &route(&configuration(DOMAIN)));
    let to = |destination| arriving("mask0").ipv6(Ipv6Repr::new(CLIENT, destination));
    let ours = segue_testkit::fixture::port_ipv6("mask0");
    node.passes("plain", "mask0", &udp(to(SERVER)), &udp(to(SERVER)), "passed_not_for_segue", &[]);
    for (case, frame) in [
        ("to a SID", udp(to(STRANGER))),
        ("a list in a first fragment", udp(second(fragment(to(SERVER), 0, true)))),
        ("a list in a first fragment, for this node", udp(second(fragment(to(ours), 0, true)))),
        ("a list in a first fragment, behind options", udp(second(options(fragment(to(ours), 0, true))))),
        ("an inner packet to a SID", inner(to(SERVER), STRANGER)),
    ] {
        node.drops(case, "mask0", &frame, FROM_FUNCTION);
    }
    node.finish();
}

const PERMISSIONS: [&str; 5] = ["nothing", "insert_next", "insert", "replace", "replace_all"];

fn aware(may_change: &str, more: &str) -> String {
    configuration(DOMAIN).replace("may_change: insert_next", &format!("may_change: {may_change}{more}"))
}

/// A packet on its way through an SR-aware function.
#[derive(Clone)]
struct Steered {
    ip: Ipv6Repr,
    srh: SrhRepr,
    inner: Ipv6Repr,
    port: u16,
}

fn tlv(tlv_type: u8, octet: u8) -> TlvRepr {
    TlvRepr::Unknown { tlv_type, value: vec![octet; 6] }
}

impl Steered {
    /// As it comes back from a function that does End and nothing else: one segment was visited before, two are left behind it.
    fn advanced() -> Self {
        let list = [behind_core1(0x99), local(END_AN), behind_core1(0xa), behind_core1(0xb)];
        let hmac = TlvRepr::Hmac { d_and_reserved: 0, key_id: 9, hmac: vec![5; 32] };
        Self {
            ip: Ipv6Repr {
                hop_limit: 63,
                traffic_class: 0x28,
                flow_label: 0xabcde,
                ..Ipv6Repr::new(HEADEND, behind_core1(0xa))
            },
            srh: SrhRepr::new(&list).with_segments_left(1).with_tlv(tlv(0x7d, 3)).with_tlv(hmac),
            inner: Ipv6Repr { hop_limit: 33, ..Ipv6Repr::new(CLIENT, SERVER) },
            port: 7,
        }
    }

    fn build(&self, front: PacketBuilder) -> PacketBuilder {
        let packet = front.ipv6(self.ip).srh(self.srh.clone()).inner_ipv6(self.inner);
        packet.udp(UdpRepr::new(self.port, 2)).payload(b"aware")
    }

    /// Sends the packet to the function, so that its flow is known.
    fn send(node: &Golden<'_>) {
        let mut out = Self::advanced();
        out.srh.segments_left = 2;
        out.ip.destination = local(END_AN);
        let expected = out.build(leaving("aware0"));
        out.ip.hop_limit = 64;
        let frame = out.build(arriving("core0"));
        node.leaves("out", "core0", &frame.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:91::/64"]);
    }

    fn goes_on(&self, case: &str, node: &Golden<'_>) {
        let mut expected = self.clone();
        expected.ip.hop_limit -= 1;
        let (frame, expected) = (self.build(arriving("aware0")), expected.build(leaving("core1")));
        node.forwards(case, "aware0", &frame, &expected, &["returned fc00:0:1:91::/64"]);
    }

    fn is_dropped(&self, case: &str, node: &Golden<'_>, outcome: &str) {
        node.drops(case, "aware0", &self.build(arriving("aware0")), outcome);
    }
}

type Change = fn(&mut Steered);

/// Fields that no permission for the list covers, with the word of `may_rewrite` that does.
const FIELDS: [(&str, Change, &str); 20] = [
    ("hop limit, one more", |back| back.ip.hop_limit = 64, ""),
    ("hop limit, the most", |back| back.ip.hop_limit = 255, ""),
    ("flow label", |back| back.ip.flow_label ^= 1, "addresses"),
    ("no flow label", |back| back.ip.flow_label = 0, "addresses"),
    ("DSCP", |back| back.ip.traffic_class = 0xb8, "traffic_class"),
    ("source", |back| back.ip.source = NODE, ""),
    ("flags", |back| back.srh.flags = 0x20, ""),
    ("tag", |back| back.srh.tag = 5, ""),
    ("the segment visited", |back| back.srh.segments[3] = behind_core1(0x98), ""),
    ("its own segment", |back| back.srh.segments[2] = behind_core1(0x98), ""),
    ("no segment visited", |back| back.srh.segments.truncate(2), ""),
    ("one segment visited less", |back| _ = back.srh.segments.remove(3), ""),
    ("one segment visited more", |back| back.srh.segments.push(behind_core1(0x97)), ""),
    ("the segments visited, exchanged", |back| back.srh.segments.swap(2, 3), ""),
    ("a TLV's value", |back| back.srh.tlvs[0] = tlv(0x7d, 4), "tlvs"),
    ("a TLV's type", |back| back.srh.tlvs[0] = tlv(0x7c, 3), "tlvs"),
    ("the HMAC", |back| back.srh.tlvs[1] = TlvRepr::Hmac { d_and_reserved: 0, key_id: 9, hmac: vec![6; 32] }, "tlvs"),
    ("a TLV less", |back| _ = back.srh.tlvs.remove(0), "tlvs"),
    ("no TLVs", |back| back.srh.tlvs.clear(), "tlvs"),
    ("a TLV more", |back| back.srh.tlvs.push(tlv(0x7b, 1)), "tlvs"),
];

#[test]
#[ignore = "needs root"]
fn no_permission_for_the_list_covers_another_field() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    for level in PERMISSIONS {
        for (allowed, more) in [
            ("", ""),
            ("traffic_class", ", may_rewrite: [traffic_class]"),
            ("tlvs", ", may_rewrite: [tlvs]"),
            ("addresses", ", may_rewrite: [addresses]"),
        ] {
            node.apply(&aware(level, more));
            Steered::send(&node);
            Steered::advanced().goes_on("unchanged", &node);
            for (field, change, covered) in FIELDS {
                let mut back = Steered::advanced();
                change(&mut back);
                let case = format!("{field}, with {level}{more}");
                if covered == allowed && !covered.is_empty() {
                    back.goes_on(&case, &node);
                } else {
                    back.is_dropped(&case, &node, CHANGED);
                }
            }
            for (hop_limit, ecn) in [(62, 0), (2, 0), (63, 3), (63, 1)] {
                let mut back = Steered::advanced();
                (back.ip.hop_limit, back.ip.traffic_class) = (hop_limit, 0x28 | ecn);
                back.goes_on("a smaller hop limit, or a congestion mark", &node);
            }
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn packets_of_one_flow_may_differ_in_what_is_compared() {
    let network = Network::new();
    let node = Golden::load(&network, &aware("nothing", ""));
    let with = |hop_limit: u8, traffic_class: u8| {
        let mut packet = Steered::advanced();
        (packet.ip.hop_limit, packet.ip.traffic_class) = (hop_limit, traffic_class);
        packet
    };
    for (hop_limit, traffic_class) in [(64, 0x28), (61, 0xb8)] {
        let mut out = with(hop_limit, traffic_class);
        (out.srh.segments_left, out.ip.destination) = (2, local(END_AN));
        assert!(node.send("core0", &out.build(arriving("core0"))).moved.contains_key("core0 to_function"));
    }
    // Both are in the function at once.
    with(63, 0x28).goes_on("the first", &node);
    with(60, 0xb8).goes_on("the second", &node);
    with(64, 0x28).is_dropped("more than either", &node, CHANGED);
    with(60, 0x50).is_dropped("neither", &node, CHANGED);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn functions_send_no_packet_in_a_circle() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let list = |rest: &[Ipv6Addr]| {
        let mut back = Steered::advanced();
        back.ip.destination = rest[0];
        back.srh.segments.splice(..2, rest.iter().rev().copied());
        back.srh.segments_left = u8::try_from(rest.len()).expect("few") - 1;
        back
    };
    let (a, b, own) = (behind_core1(0xa), behind_core1(0xb), local(END_AN));
    for level in PERMISSIONS {
        node.apply(&aware(level, ""));
        Steered::send(&node);
        for (case, rest) in [
            ("itself next", vec![own, a, b]),
            ("a local segment, then itself", vec![local(END), own, a, b]),
            ("a segment elsewhere, then itself", vec![behind_core1(7), own, a, b]),
            ("itself later", vec![a, own, b]),
            ("itself with an argument", vec![local_with_argument(END_AN, 9), a, b]),
            ("itself in place of the next", vec![own, b]),
            ("itself at the end", vec![a, own]),
        ] {
            list(&rest).is_dropped(&format!("{case}, with {level}"), &node, CHANGED);
        }
    }
    // Two functions could send it to each other: each visit stays in the list, so the list grows until it does not fit.
    let mut long = Steered::advanced();
    let visited: Vec<Ipv6Addr> = (0..8).map(|number| behind_core1(0x90 + number)).collect();
    long.srh = SrhRepr::new(&[&[b, a, own], visited.as_slice()].concat()).with_segments_left(2);
    long.srh.segments[..3].copy_from_slice(&[b, a, own]);
    (long.ip.destination, long.ip.hop_limit) = (own, 64);
    node.drops("a list that cannot be remembered", "core0", &long.build(arriving("core0")), "drop_header_unfit");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn translated_addresses_pass_where_the_operator_says_so() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let changes: [(&str, Change); 3] = [
        ("inner source", |back| back.inner.source = ELSEWHERE),
        ("inner destination", |back| back.inner.destination = ELSEWHERE),
        ("inner port", |back| back.port = 99),
    ];
    for level in PERMISSIONS {
        node.apply(&aware(level, ""));
        Steered::send(&node);
        for (case, change) in changes {
            let mut back = Steered::advanced();
            change(&mut back);
            back.is_dropped(case, &node, "drop_unknown_flow");
        }
        node.apply(&aware(level, ", may_rewrite: [addresses]"));
        Steered::send(&node);
        for (case, change) in changes {
            let mut back = Steered::advanced();
            change(&mut back);
            back.goes_on(case, &node);
            back.ip.hop_limit -= 1;
            back.goes_on(&format!("{case}, by a function that is a hop"), &node);
            // All else is compared as ever.
            let others: [(&str, Change); 7] = [
                ("hop limit", |back| back.ip.hop_limit = 64),
                ("DSCP", |back| back.ip.traffic_class = 0),
                ("the tunnel's source", |back| back.ip.source = NODE),
                ("a segment", |back| back.srh.segments[0] = behind_core1(0xc)),
                ("a segment more", |back| back.srh.segments.insert(1, behind_core1(0xc))),
                ("the segment visited", |back| back.srh.segments[3] = behind_core1(0xc)),
                ("a TLV", |back| back.srh.tlvs[0] = tlv(0x7d, 4)),
            ];
            for (other, alter) in others {
                let mut worse = back.clone();
                alter(&mut worse);
                worse.srh.segments_left = u8::try_from(worse.srh.segments.len()).expect("few") - 3;
                worse.is_dropped(&format!("{case} and {other}, with {level}"), &node, "drop_unknown_flow");
            }
        }
        let mut back = Steered::advanced();
        back.inner.destination = STRANGER;
        back.is_dropped("inner destination, a SID", &node, CHANGED);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn an_aware_function_hides_nothing_behind_the_list() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    for level in PERMISSIONS {
        node.apply(&aware(level, ", may_rewrite: [addresses]"));
        let srh = SrhRepr::new(&[local(END_AN), behind_core1(0xa), SERVER]);
        for (case, tail) in TAILS {
            let headers = |front: PacketBuilder, to, hop_limit, srh: SrhRepr| {
                tail(front.ipv6(Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, to) }).srh(srh))
            };
            let out = headers(arriving("core0"), local(END_AN), 64, srh.clone());
            let expected = headers(leaving("aware0"), local(END_AN), 63, srh.clone());
            node.leaves(case, "core0", &out.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:91::/64"]);
            let one = srh.clone().with_segments_left(1);
            let back = headers(arriving("aware0"), behind_core1(0xa), 60, one.clone());
            let expected = headers(leaving("core1"), behind_core1(0xa), 59, one);
            node.forwards(case, "aware0", &back, &expected, &["returned fc00:0:1:91::/64"]);
        }
        let back = |last| {
            let mut srh = srh.clone().with_segments_left(1);
            srh.segments[0] = last;
            arriving("aware0").ipv6(Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(CLIENT, behind_core1(0xa)) }).srh(srh)
        };
        for (case, frame) in [
            ("a second list behind options", udp(second(options(back(SERVER))))),
            ("a second list in a first fragment", udp(second(fragment(back(SERVER), 0, true)))),
            ("an inner packet to a SID, behind options", inner(options(back(SERVER)), STRANGER)),
            ("an inner packet to a SID, in a fragment", inner(fragment(back(SERVER), 0, false), STRANGER)),
        ] {
            node.drops(case, "aware0", &frame, CHANGED);
        }
        let frame = inner(options(back(STRANGER)), SERVER);
        node.drops("a SID in place of the user's destination", "aware0", &frame, "drop_unknown_flow");
        // IPv4 leads to no SID.
        let four = |front: PacketBuilder, to, hop_limit, srh: SrhRepr| {
            let header = Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, to) };
            udp(front.ipv6(header).srh(srh).inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)))
        };
        let list = SrhRepr::new(&[local(END_AN), behind_core1(0xa), behind_core1(0xb)]);
        let out = four(arriving("core0"), local(END_AN), 64, list.clone());
        let expected = four(leaving("aware0"), local(END_AN), 63, list.clone());
        node.leaves("IPv4", "core0", &out.build(), &expected.build(), TO_FUNCTION, &["sid fc00:0:1:91::/64"]);
        let one = list.with_segments_left(1);
        let back = four(arriving("aware0"), behind_core1(0xa), 60, one.clone());
        let expected = four(leaving("core1"), behind_core1(0xa), 59, one);
        node.forwards("IPv4", "aware0", &back, &expected, &["returned fc00:0:1:91::/64"]);
    }
    node.finish();
}
