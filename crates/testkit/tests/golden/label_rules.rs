//! Rules about labels: what of a stack they see, and what becomes of it (`-m mpls`, `-j MPLS`).

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
/// Rules that look at each label.
const FIREWALL: u32 = 15_040;
/// Rules that do not, in advanced mode, with connections.
const DEEP: u32 = 15_041;
const WIRE: u32 = 15_042;
/// Another node's.
const FAR: u32 = 70_000;
const FARTHER: u32 = 70_001;
/// RFC 6790 section 3, and an entropy label.
const INDICATOR: u32 = 7;
const ENTROPY: u32 = 99_999;

const LABELS: &str = "
labels:
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 15040, behaviour: firewall, firewall: fw}
  - {label: 15041, behaviour: firewall, firewall: deep}
  - {label: 15042, behaviour: pseudowire, port: acc1}
";

/// Ports of rules that act on the stack.
const SKIP: u16 = 1;
const LAST: u16 = 2;
const NEXT: u16 = 3;
const SEG6: u16 = 4;
const SKIP_TWO: u16 = 6;
const LAST_TWO: u16 = 7;
/// The port of the rule that has the first of [`MATCHES`].
const FIRST: u16 = 1000;

/// Label, TTL, TC.
type Entry = (u32, u8, u8);

/// A match, and stacks behind the firewall's own label, with whether it holds.
type Case = (&'static str, &'static [(&'static [Entry], bool)]);

const ONE: &[Entry] = &[(SWAP, 20, 3)];
const TWO: &[Entry] = &[(SWAP, 20, 3), (FAR, 30, 5)];
const PAIR: &[Entry] = &[(SWAP, 20, 3), (INDICATOR, 0, 0), (ENTROPY, 0, 0)];
const NONE: &[Entry] = &[];

/// The firewall's own entry has TTL 9 and TC 3.
const MATCHES: &[Case] = &[
    ("-m mpls", &[(ONE, true), (NONE, true)]),
    ("-m mpls --mpls-label 16002", &[(ONE, true), (TWO, true), (NONE, false)]),
    ("-m mpls ! --mpls-label 16002", &[(ONE, false), (NONE, false), (&[(SWAP, 2, 0)], false)]),
    ("-m mpls ! --mpls-label 16003", &[(ONE, true), (NONE, false)]),
    ("-m mpls --mpls-depth 2 --mpls-label 70000:70009", &[(ONE, false), (TWO, true), (PAIR, false)]),
    ("-m mpls --mpls-depth 2 ! --mpls-label 70001:70009", &[(ONE, false), (TWO, true)]),
    ("-m mpls --mpls-depth 0 --mpls-label 15040 --mpls-ttl 9 --mpls-tc 3", &[(ONE, true), (NONE, true)]),
    ("-m mpls --mpls-depth 0 --mpls-bos 1", &[(ONE, false), (NONE, true)]),
    ("-m mpls --mpls-bos 0", &[(ONE, false), (TWO, true), (NONE, false)]),
    ("-m mpls --mpls-tc 3", &[(ONE, true), (&[(SWAP, 20, 2)], false)]),
    ("-m mpls ! --mpls-tc 3", &[(ONE, false), (&[(SWAP, 20, 2)], true)]),
    ("-m mpls --mpls-ttl :20", &[(ONE, true), (&[(SWAP, 21, 3)], false)]),
    ("-m mpls --mpls-depth 2 --mpls-ttl 30:255", &[(TWO, true), (ONE, false), (PAIR, false)]),
    ("-m mpls --mpls-depth any --mpls-label 70000", &[(TWO, true), (ONE, false), (NONE, false)]),
    ("-m mpls ! --mpls-depth any --mpls-label 70000", &[(TWO, false), (ONE, true), (NONE, true)]),
    ("-m mpls --mpls-depth any --mpls-tc 5", &[(TWO, true), (ONE, false)]),
    ("-m mpls --mpls-depth any --mpls-label 7", &[(PAIR, true), (TWO, false)]),
    ("-m mpls --mpls-depth last --mpls-label 99999", &[(PAIR, true), (TWO, false), (NONE, false)]),
    ("-m mpls --mpls-depth last --mpls-label 16002", &[(ONE, true), (TWO, false)]),
    ("-m mpls --mpls-depth 3", &[(PAIR, true), (TWO, false)]),
    ("-m mpls --mpls-entries 2:3", &[(PAIR, true), (TWO, true), (ONE, false), (NONE, false)]),
    ("-m mpls --mpls-entries 0", &[(NONE, true), (ONE, false)]),
    ("-m mpls ! --mpls-entries 1", &[(NONE, true), (ONE, false), (TWO, true)]),
    ("-m mpls --mpls-label 16002 -m mpls --mpls-depth 2 --mpls-label 70000 --mpls-tc 5", &[(TWO, true), (ONE, false)]),
    (
        "-m mpls --mpls-depth any --mpls-label 16002 -m mpls --mpls-depth any --mpls-label 70000",
        &[(TWO, true), (ONE, false), (&[(FAR, 2, 0)], false)],
    ),
];

/// Rules of one family's file.
fn rules(policy: &str, lines: impl IntoIterator<Item = String>) -> String {
    let lines: String = lines.into_iter().map(|line| format!("-A FORWARD {line}\\n")).collect();
    format!("\"*filter\\n:INPUT ACCEPT\\n:FORWARD {policy}\\n:OUTPUT ACCEPT\\n{lines}COMMIT\\n\"")
}

fn configured(mpls: &str) -> String {
    let both = |six: bool| {
        let of_port = |port: u16, rule: &str| format!("-p udp --dport {port} {rule}");
        let cases =
            (FIRST..).zip(MATCHES).map(move |(port, (matched, _))| of_port(port, &format!("{matched} -j DROP")));
        let actions = [
            (SKIP, "skip-next"),
            (LAST, "go-last"),
            (NEXT, "go-next"),
            (SKIP_TWO, "skip-next --mpls-count 2"),
            (LAST_TWO, "go-last --mpls-count 2"),
        ];
        let actions = actions.map(|(port, action)| of_port(port, &format!("-j MPLS --mpls-action {action}")));
        let seg6 = six.then(|| [of_port(SEG6, "-j SEG6 --seg6-action skip-next"), of_port(SEG6 + 1, "-m srh -j DROP")]);
        rules("ACCEPT", cases.chain(actions).chain(seg6.into_iter().flatten()).collect::<Vec<_>>())
    };
    let deep = || {
        let connections = "-m conntrack --ctstate ESTABLISHED -j ACCEPT";
        let skip = "-m mpls --mpls-label 70000 -m conntrack --ctstate NEW -j MPLS --mpls-action skip-next";
        let sixteenth = "-m mpls --mpls-depth 16 --mpls-label 70016 --mpls-entries 17: -j ACCEPT";
        let last = "-p udp --dport 2 -j MPLS --mpls-action go-last";
        rules("DROP", [connections, skip, last, sixteenth].map(str::to_owned))
    };
    let firewall = |name: &str, mode: &str, six: &str, four: &str| {
        format!(
            "  - {{name: {name}, mode: {mode}, ipv6: {{file: v6, text: {six}}}, ipv4: {{file: v4, text: {four}}}}}\n"
        )
    };
    let firewalls = format!(
        "firewalls:\n{}{}",
        firewall("fw", "basic", &both(true), &both(false)),
        firewall("deep", "advanced", &deep(), &deep())
    );
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    let text = configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n{sid}"), 1);
    format!("{text}mpls: {{{mpls}}}{LABELS}")
}

fn stack(packet: PacketBuilder, entries: &[Entry]) -> PacketBuilder {
    let entry = |(label, time_to_live, traffic_class): &Entry| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: *traffic_class,
        ..MplsEntry::default()
    };
    if entries.is_empty() { packet } else { packet.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Six,
    Four,
}

const KINDS: [Kind; 2] = [Kind::Six, Kind::Four];

fn inside(packet: PacketBuilder, kind: Kind, port: u16) -> PacketBuilder {
    let packet = match kind {
        Kind::Six => packet.inner_ipv6(Ipv6Repr { hop_limit: 7, ..Ipv6Repr::new(CLIENT, SERVER) }),
        Kind::Four => packet.inner_ipv4(Ipv4Repr { time_to_live: 7, ..Ipv4Repr::new(CLIENT4, SERVER4) }),
    };
    packet.udp(UdpRepr::new(40_000, port)).payload(b"through rules about labels")
}

fn sent(own: u32, entries: &[Entry], kind: Kind, port: u16) -> PacketBuilder {
    inside(stack(arriving("core0"), &[&[(own, 9, 3)], entries].concat()), kind, port)
}

fn passes(node: &Golden<'_>, case: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
    let found = node.send("core0", frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
    assert_eq!(found.frame, expected.build(), "{case}: {:?}", found.moved);
    assert_eq!(found.moved.get("core0 forwarded").map(|(packets, _)| *packets), Some(1), "{case}: {:?}", found.moved);
}

fn dropped(node: &Golden<'_>, case: &str, frame: &PacketBuilder, outcome: &str) {
    let found = node.send("core0", frame);
    assert_eq!(found.verdict, Verdict::Drop, "{case}: {:?}", found.moved);
    let count = found.moved.get(&format!("core0 {outcome}")).map(|(packets, _)| *packets);
    assert_eq!(count, Some(1), "{case}: {outcome}: {:?}", found.moved);
}

#[test]
#[ignore = "needs root"]
fn a88_rules_match_labels_by_place_and_value() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("ttl: pipe"));
    for (port, (matched, cases)) in (FIRST..).zip(MATCHES) {
        for ((entries, holds), kind) in cases.iter().zip(KINDS.into_iter().cycle()) {
            let found = node.send("core0", &sent(FIREWALL, entries, kind, port));
            let wanted = if *holds { "core0 drop_firewall" } else { "core0 forwarded" };
            let unknown = *holds != found.moved.contains_key("core0 drop_firewall");
            // What passes goes on by a label that this node may not know: that is not the rules' doing.
            assert!(!unknown, "{matched} and {entries:?}, {kind:?}: {wanted}: {:?}", found.moved);
        }
    }
    // As many entries as rules see, and one more: a rule looks at each, and must see each.
    let many =
        |count: u32| -> Vec<Entry> { [(SWAP, 20, 3)].into_iter().chain((1..count).map(|n| (FAR + n, 5, 0))).collect() };
    let port = FIRST + MATCHES.iter().position(|(matched, _)| matched.ends_with("any --mpls-tc 5")).unwrap() as u16;
    let mut sixteen = many(16);
    passes(
        &node,
        "sixteen",
        &sent(FIREWALL, &sixteen, Kind::Six, port),
        &inside(stack(leaving("core1"), &[&[(SWAP_TO, 19, 3)], &sixteen[1..]].concat()), Kind::Six, port),
    );
    sixteen[15].2 = 5;
    dropped(&node, "the sixteenth", &sent(FIREWALL, &sixteen, Kind::Four, port), "drop_firewall");
    for count in [17, 31] {
        dropped(&node, "more than are seen", &sent(FIREWALL, &many(count), Kind::Six, port), "drop_label_depth");
    }
    dropped(&node, "more than are kept", &sent(FIREWALL, &many(32), Kind::Six, port), "drop_header_unfit");
    // Where no rule looks at each, deeper ones are what they are.
    let mut deep = many(31);
    let seen = sent(DEEP, &deep, Kind::Six, 9);
    dropped(&node, "the sixteenth is another", &seen, "drop_firewall");
    deep[15].0 = 70_016;
    let after = [&[(SWAP_TO, 19, 3)], &deep[1..]].concat();
    let left = inside(stack(leaving("core1"), &after), Kind::Six, 9);
    passes(&node, "the sixteenth of 31", &sent(DEEP, &deep, Kind::Six, 9), &left);
    // Stacks that end nowhere.
    let whole = sent(FIREWALL, TWO, Kind::Six, FIRST).build();
    for octets in [14 + 4, 14 + 7, 14 + 8, 14 + 12] {
        let found = node.node().send("core0", &whole[..octets]);
        assert!(found.moved.contains_key("core0 drop_label_bottom"), "{octets}: {:?}", found.moved);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a88_labels_are_skipped() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("ttl: pipe"));
    let (far, farther, swap, left) = ((FAR, 5, 1), (FARTHER, 6, 2), (SWAP, 20, 3), (SWAP_TO, 19, 3));
    let (indicator, entropy) = ((INDICATOR, 4, 0), (ENTROPY, 0, 0));
    let behind = (FAR, 30, 4);
    let many = |count: u32| -> Vec<Entry> { (1..count).map(|n| (FAR + n, 5, 0)).chain([swap]).collect() };
    let long = many(16);
    let cases: &[(&str, u16, &[Entry], &[Entry])] = &[
        ("one", SKIP, &[far, swap], &[left]),
        ("one of more", SKIP, &[far, swap, behind], &[left, behind]),
        ("one whose entropy label goes with it", SKIP, &[far, indicator, entropy, swap], &[left]),
        (
            "one behind the firewall's own entropy label",
            SKIP,
            &[indicator, entropy, far, swap, behind],
            &[left, behind],
        ),
        (
            "one, and the entropy label behind stays",
            SKIP,
            &[far, swap, indicator, entropy],
            &[left, indicator, entropy],
        ),
        ("to the last", LAST, &[far, farther, behind, swap], &[left]),
        ("to the last with its entropy label", LAST, &[far, swap, indicator, entropy], &[left, indicator, entropy]),
        ("to the last of many", LAST, &long, &[left]),
        ("to the last, which is the next", LAST, &[swap], &[left]),
        ("two", SKIP_TWO, &[far, farther, swap, behind], &[left, behind]),
        (
            "two, each with an entropy label",
            SKIP_TWO,
            &[far, indicator, entropy, farther, indicator, entropy, swap],
            &[left],
        ),
        ("to the last two", LAST_TWO, &[far, farther, farther, swap, behind], &[left, behind]),
        (
            "to the last two, of which one has an entropy label",
            LAST_TWO,
            &[far, swap, indicator, entropy, behind],
            &[left, indicator, entropy, behind],
        ),
        ("to the last two of two", LAST_TWO, &[swap, behind], &[left, behind]),
        ("to the last two of one", LAST_TWO, &[swap], &[left]),
        ("to the next", NEXT, &[swap, behind], &[left, behind]),
        ("twice", SKIP, &[far, (FIREWALL, 3, 0), farther, swap], &[left]),
    ];
    for (case, port, entries, after) in cases {
        for kind in KINDS {
            let expected = inside(stack(leaving("core1"), after), kind, *port);
            passes(&node, case, &sent(FIREWALL, entries, kind, *port), &expected);
        }
    }
    let frame = sent(FIREWALL, &[swap, behind], Kind::Six, SEG6);
    let expected = inside(stack(leaving("core1"), &[left, behind]), Kind::Six, SEG6);
    passes(&node, "SEG6 is about SRHs", &frame, &expected);
    let frame = sent(DEEP, &many(31), Kind::Four, LAST);
    passes(&node, "of as many as are kept", &frame, &inside(stack(leaving("core1"), &[left]), Kind::Four, LAST));
    let last = |port| {
        let six = Ipv6Repr { hop_limit: 6, ..Ipv6Repr::new(CLIENT, SERVER) };
        leaving("acc1").inner_ipv6(six).udp(UdpRepr::new(40_000, port)).payload(b"through rules about labels")
    };
    passes(&node, "nothing is behind, to the last", &sent(FIREWALL, &[], Kind::Six, LAST), &last(LAST));
    let own_entropy = sent(FIREWALL, &[indicator, entropy], Kind::Six, LAST);
    passes(&node, "but an entropy label", &own_entropy, &last(LAST));
    // Nothing may be left that the packet goes on by.
    let ends: [&[Entry]; 4] = [&[], &[swap], &[indicator, entropy], &[swap, indicator, entropy]];
    for entries in ends {
        for kind in KINDS {
            let case = format!("{entries:?}, {kind:?}");
            dropped(&node, &case, &sent(FIREWALL, entries, kind, SKIP), "drop_label_bottom");
        }
    }
    for entries in [&[swap][..], &[far, swap], &[far, farther, indicator, entropy]] {
        dropped(
            &node,
            &format!("two of {entries:?}"),
            &sent(FIREWALL, entries, Kind::Four, SKIP_TWO),
            "drop_label_bottom",
        );
    }
    // What is behind is not what the rules have judged, or nobody's.
    dropped(&node, "a pseudowire", &sent(FIREWALL, &[far, (WIRE, 9, 0)], Kind::Six, SKIP), "drop_inner_type");
    dropped(&node, "unknown", &sent(FIREWALL, &[swap, far], Kind::Six, SKIP), "drop_label_unknown");
    let half = [swap, far, (INDICATOR, 9, 0)];
    dropped(&node, "half an entropy label", &sent(FIREWALL, &half, Kind::Six, LAST), "drop_label_reserved");
    node.finish();

    let node = Golden::load(&network, &configured("ttl: uniform, ecn: [{class: 0, marked: 1}]"));
    let frame = sent(FIREWALL, &[(FAR, 5, 0), (SWAP, 20, 0)], Kind::Six, SKIP);
    let expected = inside(stack(leaving("core1"), &[(SWAP_TO, 8, 0)]), Kind::Six, SKIP);
    passes(&node, "one TTL for all", &frame, &expected);
    // A mark of what is skipped is not lost (RFC 5129), nor where it cannot be told.
    let marked = sent(FIREWALL, &[(FAR, 5, 1), (FARTHER, 5, 0), (SWAP, 20, 0)], Kind::Six, LAST);
    let expected = inside(stack(leaving("core1"), &[(SWAP_TO, 8, 1)]), Kind::Six, LAST);
    passes(&node, "a mark", &marked, &expected);
    let untold = sent(FIREWALL, &[(FAR, 5, 1), (SWAP, 20, 3)], Kind::Six, SKIP);
    dropped(&node, "a mark that cannot be told", &untold, "drop_ecn_not_capable");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a88_labels_and_segments_are_told_apart() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("ttl: pipe"));
    // At a SID no packet came by a label, whatever it is asked about them, and MPLS is as ACCEPT.
    let at_sid = |port: u16, sid, hop_limit, left| {
        let path = [local(0xa1), behind_core1(0xa), behind_core1(0xb)];
        let srh = SrhRepr::new(&path).with_segments_left(left);
        let packet = if left == 2 { arriving("core0") } else { leaving("core1") };
        let outer = packet.ipv6(Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, sid) }).srh(srh);
        outer.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, port))
    };
    let ports = (FIRST..).take(MATCHES.len()).chain([SKIP, LAST, NEXT]);
    for port in ports {
        let frame = at_sid(port, local(0xa1), 64, 2);
        passes(&node, &format!("at a SID, {port}"), &frame, &at_sid(port, behind_core1(0xa), 63, 1));
    }
    // Behind labels no packet has an SRH that rules see.
    let srh = SrhRepr::new(&[behind_core1(0xa), SERVER]).with_segments_left(0);
    let behind = |packet: PacketBuilder, labels: &[Entry]| {
        let packet = stack(packet, labels).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).srh(srh.clone());
        packet.udp(UdpRepr::new(40_000, SEG6 + 1))
    };
    let frame = behind(arriving("core0"), &[(FIREWALL, 9, 3), (SWAP, 20, 3)]);
    passes(&node, "an SRH behind labels", &frame, &behind(leaving("core1"), &[(SWAP_TO, 19, 3)]));
    // With connections: what begins one, what belongs to it, and datagrams in fragments.
    let tcp = |packet: PacketBuilder, entries: &[Entry], flags: u8| {
        let (repr, ports) = match flags {
            0x12 => (Ipv6Repr::new(SERVER, CLIENT), (80, 1000)),
            _ => (Ipv6Repr::new(CLIENT, SERVER), (1000, 80)),
        };
        stack(packet, entries).inner_ipv6(repr).tcp(TcpRepr::new(ports.0, ports.1, flags))
    };
    let (skipped, plain) = ([(DEEP, 9, 3), (FAR, 5, 0), (SWAP, 20, 3)], [(DEEP, 9, 3), (SWAP, 20, 3)]);
    dropped(&node, "nobody's", &tcp(arriving("core0"), &plain, 2), "drop_firewall");
    let after = [(SWAP_TO, 19, 3)];
    passes(&node, "SYN", &tcp(arriving("core0"), &skipped, 2), &tcp(leaving("core1"), &after, 2));
    passes(&node, "its answer", &tcp(arriving("core0"), &plain, 0x12), &tcp(leaving("core1"), &after, 0x12));
    let fragment = |packet: PacketBuilder, entries: &[Entry], offset: u16, more: bool| {
        let header = FragmentRepr {
            fragment_offset: offset,
            more_fragments: more,
            identification: 77,
            ..FragmentRepr::default()
        };
        let packet = stack(packet, entries).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).fragment(header);
        if offset == 0 { packet.udp(UdpRepr::new(1, 2)).payload(&[7; 16]) } else { packet.udp(UdpRepr::new(7, 7)) }
    };
    let pass = |case: &str, offset, more| {
        let frame = fragment(arriving("core0"), &skipped, offset, more);
        passes(&node, case, &frame, &fragment(leaving("core1"), &after, offset, more));
    };
    pass("a first fragment", 0, true);
    pass("a later one goes as the first", 24, false);
    node.finish();
}
