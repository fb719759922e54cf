//! Fragments in a firewall that tracks connections: they follow their datagram's first one, within bounds of memory, and never
//! past an overlap.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr};
use std::net::{Ipv4Addr, Ipv6Addr};

const SID: &str = "sid fc00:0:1:a1::/64";
const SYN: u8 = 2;

/// The usual rules of a client's firewall: what it begins and what answers.
const USUAL: [&str; 2] =
    ["-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-A FORWARD -i core0 -j ACCEPT"];

/// What it shows, and its fragments.
type Case<'a, T> = (&'a str, &'a [T]);

/// Two firewalls with the same rules behind `:FORWARD DROP`: one at fc00:0:1:a1::/64 and on acc0, one at fc00:0:1:a2::/64.
fn with_rules(ipv6: &[&str], ipv4: &[&str]) -> String {
    let file = |name: &str, rules: &[&str]| {
        let text = format!("*filter\\n:FORWARD DROP [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
        format!("{{file: {name}, text: \"{text}\"}}")
    };
    let both = format!("ipv6: {}, ipv4: {}", file("v6", ipv6), file("v4", ipv4));
    let firewalls = format!("firewalls:\n  - {{name: fw, {both}}}\n  - {{name: other, {both}}}\n");
    let sids = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n  \
                - {sid: 'fc00:0:1:a2::/64', behaviour: End.AN, firewall: other}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n{sids}"), 1).replacen(
        "{name: acc0, role: access}",
        "{name: acc0, role: access, firewall: fw}",
        1,
    )
}

fn steered(sid: u16) -> PacketBuilder {
    let srh = SrhRepr::new(&[local(sid), behind_core1(0xa), behind_core1(0xb)]);
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(sid))).srh(srh)
}

fn advanced() -> PacketBuilder {
    let srh = SrhRepr::new(&[local(0xa1), behind_core1(0xa), behind_core1(0xb)]).with_segments_left(1);
    leaving("core1").ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) }).srh(srh)
}

/// A datagram, whose octets are `payload` behind the IP header, in fragments.
#[derive(Clone)]
struct Datagram {
    family: u8,
    /// Number of the client, so that there are many.
    client: u16,
    /// From the client to the server.
    forward: bool,
    protocol: u8,
    identification: u16,
    payload: Vec<u8>,
}

impl Datagram {
    /// UDP with ports 4000 and 53, 100 octets of data.
    fn new(family: u8, forward: bool) -> Self {
        let (source, destination) = if forward { (4000_u16, 53_u16) } else { (53, 4000) };
        let header = [source, destination, 108, 0].map(u16::to_be_bytes).concat();
        let payload = [header, (0..100).collect()].concat();
        Self { family, client: 2, forward, protocol: 17, identification: 7, payload }
    }

    fn addresses4(&self) -> (Ipv4Addr, Ipv4Addr) {
        let client = Ipv4Addr::from(CLIENT4.to_bits() & !0xffff | u32::from(self.client));
        if self.forward { (client, SERVER4) } else { (SERVER4, client) }
    }

    fn addresses6(&self) -> (Ipv6Addr, Ipv6Addr) {
        let client = Ipv6Addr::from(CLIENT.to_bits() & !0xffff | u128::from(self.client));
        if self.forward { (client, SERVER) } else { (SERVER, client) }
    }

    /// Octets `from` to `to`, behind `front`; `more`: not the last fragment.
    fn part_of(&self, front: PacketBuilder, from: usize, to: usize, more: bool) -> PacketBuilder {
        let octets: Vec<u8> = (from..to).map(|at| self.payload.get(at).copied().unwrap_or_default()).collect();
        let (fragment_offset, more_fragments) = (from as u16, more);
        if self.family == 4 {
            let (source, destination) = self.addresses4();
            let (protocol, identification) = (self.protocol, self.identification);
            let ip = Ipv4Repr {
                protocol,
                fragment_offset,
                more_fragments,
                identification,
                ..Ipv4Repr::new(source, destination)
            };
            return front.ipv4(ip).payload(&octets);
        }
        let (source, destination) = self.addresses6();
        let (next_header, identification) = (self.protocol, self.identification.into());
        let fragment = FragmentRepr { next_header, fragment_offset, more_fragments, identification };
        front.ipv6(Ipv6Repr::new(source, destination)).fragment(fragment).payload(&octets)
    }

    /// The same part, the last one if it reaches the end.
    fn part(&self, from: usize, to: usize) -> PacketBuilder {
        self.part_of(steered(0xa1), from, to, to < self.payload.len())
    }

    fn whole(&self) -> PacketBuilder {
        if self.family == 4 {
            let (source, destination) = self.addresses4();
            return steered(0xa1)
                .ipv4(Ipv4Repr { protocol: self.protocol, ..Ipv4Repr::new(source, destination) })
                .payload(&self.payload);
        }
        let (source, destination) = self.addresses6();
        let ip = Ipv6Repr { next_header: self.protocol, ..Ipv6Repr::new(source, destination) };
        steered(0xa1).ipv6(ip).payload(&self.payload)
    }
}

/// The outcome of a packet that comes in by core0: forwarded, or why it was dropped.
fn outcome(node: &Golden<'_>, packet: &PacketBuilder) -> String {
    let found = node.node().send("core0", &packet.build());
    let names: Vec<&str> = found.moved.keys().filter_map(|name| name.strip_prefix("core0 ")).collect();
    assert_eq!(names.len(), 1, "one outcome: {:?}", found.moved);
    assert_eq!(found.verdict == Verdict::Redirect, names[0] == "forwarded", "{:?}", found.moved);
    names[0].to_owned()
}

fn expect(node: &Golden<'_>, case: &str, packets: &[(PacketBuilder, &str)]) {
    for (number, (packet, wanted)) in packets.iter().enumerate() {
        assert_eq!(outcome(node, packet), *wanted, "{case}, packet {number}");
    }
}

const PASSES: &str = "forwarded";
const EARLY: &str = "drop_fragment_early";
const OVERLAP: &str = "drop_fragment_overlap";
const DUPLICATE: &str = "drop_fragment_duplicate";
const NO_ROOM: &str = "drop_fragment_no_room";
const BAD_LENGTH: &str = "drop_bad_length";

/// Answers in fragments died under the usual rules: the later ones were UNTRACKED.
#[test]
#[ignore = "needs root"]
fn answers_in_fragments_pass_with_their_connection() {
    let network = Network::new();
    let rules =
        ["-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT", "-A FORWARD -p udp -m udp --dport 53 -j ACCEPT"];
    let node = Golden::load(&network, &with_rules(&rules, &rules));
    for family in [4, 6] {
        let (question, answer) = (Datagram::new(family, true), Datagram::new(family, false));
        expect(&node, "an answer to nothing", &[(answer.part(0, 48), "drop_firewall"), (answer.part(48, 108), EARLY)]);
        assert_eq!(outcome(&node, &question.whole()), PASSES);
        for (from, to) in [(0, 48), (48, 96), (96, 108)] {
            let advanced = answer.part_of(advanced(), from, to, to < 108);
            node.forwards("an answer in fragments", "core0", &answer.part(from, to), &advanced, &[SID]);
        }
        let again = Datagram { identification: 8, ..question };
        expect(&node, "a question in fragments", &[(again.part(0, 8), PASSES), (again.part(8, 108), PASSES)]);
    }
    let counted = node.node().firewall_counters();
    let fw = counted.iter().find(|firewall| firewall.name == "fw").expect("fw");
    let rules: Vec<u64> = fw.rules.iter().map(|rule| rule.counter.packets).collect();
    assert_eq!(rules, [2, 1, 2, 1], "a datagram counts once: {counted:?}");
    node.finish_with_faults();
}

/// The verdict is that of the first fragment, whoever sends later ones, and wherever they come in.
#[test]
#[ignore = "needs root"]
fn fragments_follow_their_first_one() {
    let network = Network::new();
    let rules = ["-A FORWARD -m conntrack --ctstate INVALID -j DROP", "-A FORWARD -p udp -m udp --dport 53 -j ACCEPT"];
    let node = Golden::load(&network, &with_rules(&rules, &rules));
    for family in [4, 6] {
        let one = Datagram::new(family, true);
        let elsewhere = |datagram: &Datagram| datagram.part_of(steered(0xa2), 48, 96, true);
        expect(
            &node,
            "strangers",
            &[
                (one.part(48, 96), EARLY),
                (one.part(0, 48), PASSES),
                (Datagram { identification: 8, ..one.clone() }.part(48, 96), EARLY),
                (Datagram { client: 3, ..one.clone() }.part(48, 96), EARLY),
                (Datagram { forward: false, ..one.clone() }.part(48, 96), EARLY),
                (elsewhere(&one), EARLY),
                (Datagram { protocol: 6, ..one.clone() }.part(48, 96), if family == 4 { EARLY } else { PASSES }),
            ],
        );
        let port = one.part_of(arriving("acc0"), 96, 108, false);
        node.passes("the same firewall, on a port", "acc0", &port, &port, "passed_not_for_segue", &[]);
        let refused = Datagram { payload: segment(80), protocol: 6, identification: 9, ..one.clone() };
        expect(&node, "refused", &[(refused.part(0, 48), "drop_firewall"), (refused.part(48, 80), EARLY)]);
        let complete = Datagram { identification: 10, ..one };
        let all = [(0, 56), (56, 80), (80, 108)].map(|(from, to)| (complete.part(from, to), PASSES));
        expect(
            &node,
            "the identification is used again",
            &[&all[..], &all[..], &[(complete.part(56, 80), EARLY)]].concat(),
        );
    }
    node.finish_with_faults();
}

/// A TCP segment of so many octets.
fn segment(length: usize) -> Vec<u8> {
    let mut octets = vec![0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, SYN, 4, 0, 0, 0, 0, 0];
    octets.resize(length, 1);
    octets
}

/// RFC 5722 section 4; what is there twice may be there once (RFC 8200 section 4.5).
#[test]
#[ignore = "needs root"]
fn a90_overlaps_end_the_datagram() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&USUAL, &USUAL));
    let mut identification = 0;
    for family in [4, 6] {
        // Octets from, to; the last ones reach 108.
        let cases: [Case<'_, (usize, usize, &str)>; 9] = [
            ("eight octets too early", &[(0, 48, PASSES), (40, 80, OVERLAP), (80, 108, OVERLAP)]),
            ("the first one again, shorter", &[(0, 48, PASSES), (0, 40, DUPLICATE), (48, 108, PASSES)]),
            ("the first one again, longer", &[(0, 48, PASSES), (0, 56, OVERLAP), (48, 108, OVERLAP)]),
            ("around one", &[(0, 24, PASSES), (48, 72, PASSES), (24, 80, OVERLAP), (0, 24, OVERLAP)]),
            (
                "all twice",
                &[(0, 48, PASSES), (0, 48, DUPLICATE), (48, 96, PASSES), (48, 96, DUPLICATE), (96, 108, PASSES)],
            ),
            ("the last one twice", &[(0, 48, PASSES), (96, 108, PASSES), (96, 108, DUPLICATE), (48, 96, PASSES)]),
            ("backwards", &[(0, 24, PASSES), (96, 108, PASSES), (72, 96, PASSES), (24, 72, PASSES), (24, 72, EARLY)]),
            (
                "evens, then odds",
                &[
                    (0, 8, PASSES),
                    (16, 24, PASSES),
                    (32, 40, PASSES),
                    (96, 108, PASSES),
                    (8, 16, PASSES),
                    (40, 96, PASSES),
                    (24, 32, PASSES),
                    (24, 32, EARLY),
                ],
            ),
            (
                "more holes than are remembered",
                &[
                    (0, 8, PASSES),
                    (16, 24, PASSES),
                    (32, 40, PASSES),
                    (48, 56, PASSES),
                    (64, 72, PASSES),
                    (80, 88, PASSES),
                    (96, 104, PASSES),
                    (112, 120, PASSES),
                    (128, 136, NO_ROOM),
                    (8, 16, OVERLAP),
                ],
            ),
        ];
        for (case, parts) in cases {
            identification += 1;
            let datagram = Datagram { identification, ..Datagram::new(family, true) };
            let part = |from, to| datagram.part_of(steered(0xa1), from, to, to != 108);
            let packets: Vec<_> = parts.iter().map(|(from, to, wanted)| (part(*from, *to), *wanted)).collect();
            expect(&node, &format!("IPv{family}, {case}"), &packets);
        }
    }
    node.finish_with_faults();
}

/// A92, A93, and ends that contradict each other.
#[test]
#[ignore = "needs root"]
fn what_fits_no_datagram() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&USUAL, &USUAL));
    let mut identification = 0;
    for family in [4, 6] {
        let cases: [Case<'_, (usize, usize, bool, &str)>; 8] = [
            ("an odd length", &[(0, 44, true, BAD_LENGTH), (0, 48, true, PASSES), (48, 53, true, BAD_LENGTH)]),
            ("nothing", &[(0, 48, true, PASSES), (48, 48, true, BAD_LENGTH), (48, 48, false, BAD_LENGTH)]),
            (
                "beyond 65,535",
                &[(0, 48, true, PASSES), (65_528, 65_535, false, PASSES), (65_528, 65_536, true, BAD_LENGTH)],
            ),
            ("an end behind the end", &[(0, 48, true, PASSES), (96, 108, false, PASSES), (112, 120, false, OVERLAP)]),
            ("octets behind the end", &[(0, 48, true, PASSES), (96, 108, false, PASSES), (112, 120, true, OVERLAP)]),
            ("an end in front of octets", &[(0, 48, true, PASSES), (96, 104, true, PASSES), (48, 60, false, OVERLAP)]),
            ("another end", &[(0, 48, true, PASSES), (96, 108, false, PASSES), (96, 107, false, OVERLAP)]),
            (
                "after that nothing",
                &[(0, 48, true, PASSES), (40, 48, false, OVERLAP), (48, 108, false, OVERLAP), (0, 48, true, OVERLAP)],
            ),
        ];
        for (case, parts) in cases {
            identification += 1;
            let datagram = Datagram { identification, ..Datagram::new(family, true) };
            let part = |from, to, more| datagram.part_of(steered(0xa1), from, to, more);
            let packets: Vec<_> =
                parts.iter().map(|(from, to, more, wanted)| (part(*from, *to, *more), *wanted)).collect();
            expect(&node, &format!("IPv{family}, {case}"), &packets);
        }
    }
    node.finish_with_faults();
}

/// Rules see the datagram: none is a fragment, as behind netfilter's reassembly. Where no rule looks at connections they do.
#[test]
#[ignore = "needs root"]
fn rules_see_datagrams() {
    let network = Network::new();
    let tracked = ["-A FORWARD -m conntrack --ctstate INVALID -j DROP"];
    let six = ["-A FORWARD -m frag --fragid 7 -j DROP", "-A FORWARD -p udp -m udp --dport 53 -j ACCEPT"];
    let four = ["-A FORWARD -f -j DROP", "-A FORWARD -p udp -j ACCEPT"];
    let mut node = Golden::load(&network, &with_rules(&[&tracked[..], &six].concat(), &[&tracked[..], &four].concat()));
    for family in [4, 6] {
        let datagram = Datagram::new(family, true);
        expect(&node, "put together", &[(datagram.part(0, 48), PASSES), (datagram.part(48, 108), PASSES)]);
    }
    let atomic = Datagram::new(6, true);
    expect(&node, "A95, an atomic fragment", &[(atomic.part(0, 108), PASSES), (atomic.part(0, 108), PASSES)]);
    node.apply(&with_rules(&six, &four));
    let (six, four) = (Datagram::new(6, true), Datagram::new(4, true));
    expect(
        &node,
        "each for itself",
        &[
            (six.part(0, 48), "drop_firewall"),
            (six.part(0, 108), "drop_firewall"),
            (four.part(48, 108), "drop_firewall"),
            (four.part(0, 48), PASSES),
        ],
    );
    // A family without rules: all passes, whatever the other family's rules look at.
    node.apply(
        &with_rules(&tracked, &[])
            .replace(", ipv4: {file: v4, text: \"*filter\\n:FORWARD DROP [0:0]\\n\\nCOMMIT\\n\"}", ""),
    );
    expect(&node, "no rules", &[(four.part(48, 108), PASSES), (four.part(0, 48), PASSES)]);
    let twice = steered(0xa1).ipv6(Ipv6Repr::new(CLIENT, SERVER)).fragment(FragmentRepr::default());
    let twice = twice.fragment(FragmentRepr::default()).tcp(TcpRepr::new(1, 2, SYN));
    expect(&node, "two Fragment headers", &[(twice, "drop_too_many_headers")]);
    node.finish_with_faults();
}

/// Map `firewall_fragments`: of each set, which datagrams (begun, state) are in it.
fn sets(node: &Golden<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    node.node().entries("firewall_fragments")
}

/// A91: 60 s for IPv6, 30 s for IPv4.
#[test]
#[ignore = "needs root"]
fn a91_datagrams_are_forgotten() {
    /// Octets of a set's lock, of a datagram, and in front of `begun` in one.
    const LOCK: usize = 8;
    const DATAGRAM: usize = 88;
    const BEGUN: usize = 40;
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&USUAL, &USUAL));
    let older = |seconds: u64| {
        for (key, mut value) in sets(&node) {
            for datagram in value[LOCK..].chunks_exact_mut(DATAGRAM) {
                let begun = u64::from_ne_bytes(datagram[BEGUN..BEGUN + 8].try_into().expect("eight octets"));
                let begun = begun.wrapping_sub(seconds * 1_000_000_000).to_ne_bytes();
                datagram[BEGUN..BEGUN + 8].copy_from_slice(&begun);
            }
            node.node().set_entry("firewall_fragments", &key, &value);
        }
    };
    let (four, six) = (Datagram::new(4, true), Datagram::new(6, true));
    expect(&node, "begun", &[(four.part(0, 48), PASSES), (six.part(0, 48), PASSES)]);
    older(31);
    expect(&node, "after 31 s", &[(four.part(48, 96), EARLY), (six.part(48, 96), PASSES)]);
    older(30);
    expect(&node, "after 61 s", &[(four.part(96, 108), EARLY), (six.part(96, 108), EARLY)]);
    expect(&node, "anew", &[(six.part(0, 48), PASSES), (six.part(48, 96), PASSES)]);
    node.finish_with_faults();
}

/// A99: memory is bounded, and nobody pushes out what belongs to another firewall or source.
#[test]
#[ignore = "needs root"]
fn a99_a_flood_of_first_fragments() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&USUAL, &USUAL));
    let victims: Vec<Datagram> = [4, 6].map(|family| Datagram::new(family, true)).to_vec();
    let other = Datagram { identification: 99, ..Datagram::new(6, true) };
    for victim in &victims {
        assert_eq!(outcome(&node, &victim.part(0, 48)), PASSES);
    }
    assert_eq!(outcome(&node, &other.part_of(steered(0xa2), 0, 48, true)), PASSES);
    // Whether its sets are those of the victims is chance; it has half of the places in them at most.
    let flood = |clients: std::ops::Range<u16>, each: u16| {
        let frames: Vec<Vec<u8>> = clients
            .flat_map(|client| (0..each).map(move |identification| (client, identification)))
            .map(|(client, identification)| {
                Datagram { client, identification, ..Datagram::new(6, true) }.part(0, 48).build()
            })
            .collect();
        node.node().run_many(|runner| frames.iter().map(|frame| runner.run("core0", frame).0).collect::<Vec<_>>())
    };
    let verdicts = flood(100..101, 500);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Redirect), "its own oldest gives way");
    for victim in &victims {
        assert_eq!(outcome(&node, &victim.part(48, 96)), PASSES, "of another source");
    }
    let verdicts = flood(200..1000, 4);
    assert!(verdicts.contains(&Verdict::Drop), "no room for all");
    assert_eq!(outcome(&node, &other.part_of(steered(0xa2), 48, 96, true)), PASSES, "of another firewall");
    let sets = sets(&node);
    let mut scopes: Vec<&[u8]> = sets.iter().map(|(key, _)| &key[..4]).collect();
    scopes.sort_unstable();
    scopes.dedup();
    assert!(scopes.len() == 2 && sets.len() <= 65, "64 sets for each firewall at most: {}", sets.len());
    node.finish_with_faults();
}

/// Numbers of firewalls are used again; what has begun in one does not go on in another.
#[test]
#[ignore = "needs root"]
fn another_firewall_knows_nothing_of_it() {
    let network = Network::new();
    let document = with_rules(&USUAL, &USUAL);
    let renamed = |number: u8| {
        let document = document.replace("name: fw,", &format!("name: fw{number},"));
        let document = document.replace("name: other,", &format!("name: other{number},"));
        document
            .replace("firewall: fw", &format!("firewall: fw{number}"))
            .replace("firewall: other", &format!("firewall: other{number}"))
    };
    let mut node = Golden::load(&network, &document);
    let datagram = Datagram::new(6, true);
    expect(&node, "begun", &[(datagram.part(0, 24), PASSES), (datagram.part(24, 48), PASSES)]);
    node.apply(&with_rules(&[USUAL[0], USUAL[1], USUAL[1]], &USUAL));
    expect(&node, "with other rules", &[(datagram.part(48, 72), PASSES)]);
    for number in 0..6 {
        node.apply(&renamed(number));
        expect(&node, "another firewall", &[(datagram.part(72, 96), EARLY)]);
    }
    node.finish_with_faults();
}
