//! Random rule sets and random packets, behind SIDs and behind labels: the data plane's verdict and every rule's counter are the
//! interpreter's.

use segue_classifier::interpreter::{End, run};
use segue_classifier::program::Mpls;
use segue_classifier::random::Random;
use segue_classifier::{Field, Key};
use segue_iptables::{Family, Mode, Reading, SetFile, Surroundings, parse_rules_for};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv6Repr, SrhRepr, TcpRepr, UdpRepr};

const RULE_SETS: usize = 12;
const PACKETS: usize = 300;
/// Whose packets have labels behind their own, from this one on.
const LABEL: u32 = 16_100;
const LABELS: u32 = 4;
const FIREWALL: u32 = 15_100;
const CHAINS: [&str; 3] = ["one", "two", "three"];

/// A packet in small ranges, so that rules are hit.
struct Packet {
    source: u16,
    destination: u16,
    tcp: bool,
    ports: (u16, u16),
    flags: u8,
    /// Label stack entries from the firewall's own on; none: it comes by a SID.
    labels: Vec<MplsEntry>,
}

fn host(net: u16, host: u16) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::new(0xfd00, 0, net, 0, 0, 0, 0, host)
}

impl Packet {
    fn random(random: &mut Random) -> Self {
        Self {
            source: 1 + random.below(6) as u16,
            destination: 1 + random.below(6) as u16,
            tcp: random.below(2) == 0,
            ports: (1 + random.below(8) as u16, 1 + random.below(8) as u16),
            flags: random.below(64) as u8,
            labels: if random.below(2) == 0 { Vec::new() } else { labels(random) },
        }
    }

    /// Segments behind the firewall's label.
    fn behind(&self) -> usize {
        self.labels.len().saturating_sub(1)
    }

    fn frame(&self) -> Vec<u8> {
        let srh = SrhRepr::new(&[local(0xa1), behind_core1(0xa), behind_core1(0xb)]);
        let outer = match self.labels.is_empty() {
            true => arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0xa1))).srh(srh),
            false => arriving("core0").mpls(&self.labels),
        };
        let inner = outer.inner_ipv6(Ipv6Repr::new(host(0xa0, self.source), host(0xa1, self.destination)));
        match self.tcp {
            true => inner.tcp(TcpRepr::new(self.ports.0, self.ports.1, self.flags)).build(),
            false => inner.udp(UdpRepr::new(self.ports.0, self.ports.1)).payload(b"12345678").build(),
        }
    }

    fn key(&self) -> Key {
        let mut key = Key::new()
            .with(Field::SourceIpv6, host(0xa0, self.source).to_bits())
            .with(Field::DestinationIpv6, host(0xa1, self.destination).to_bits())
            .with(Field::Protocol, if self.tcp { 6 } else { 17 })
            .with(Field::SourcePort, self.ports.0.into())
            .with(Field::DestinationPort, self.ports.1.into())
            .with(Field::Length, 40 + if self.tcp { 20 } else { 16 });
        if self.tcp {
            key.set(Field::TcpFlags, self.flags.into());
        }
        let entry = |(place, entry): (usize, &MplsEntry)| {
            let bottom = u32::from(place + 1 == self.labels.len());
            entry.label << 12 | u32::from(entry.traffic_class) << 9 | bottom << 8 | u32::from(entry.time_to_live)
        };
        key.set_labels(&self.labels.iter().enumerate().map(entry).collect::<Vec<_>>());
        key
    }
}

/// A stack to the firewall's label and on by others that the node has; sometimes more of them than rules see.
fn labels(random: &mut Random) -> Vec<MplsEntry> {
    let behind = if random.below(8) == 0 { 15 + random.below(5) } else { 1 + random.below(4) };
    let mut entry = |label| MplsEntry {
        label,
        traffic_class: random.below(3) as u8,
        time_to_live: 3 + random.below(4) as u8,
        ..MplsEntry::default()
    };
    let mut stack = vec![entry(FIREWALL)];
    for _ in 0..behind {
        let entry = entry(LABEL);
        stack.push(entry);
    }
    for entry in &mut stack[1..] {
        entry.label += random.below(LABELS as usize) as u32;
    }
    stack
}

/// `-m mpls`.
fn label_match(random: &mut Random) -> String {
    let not = |random: &mut Random| if random.below(4) == 0 { "! " } else { "" };
    let test = |random: &mut Random| match random.below(3) {
        0 => {
            let first = LABEL + random.below(LABELS as usize) as u32;
            format!("--mpls-label {first}:{}", first + random.below(2) as u32)
        }
        1 => format!("--mpls-tc {}", random.below(3)),
        _ => format!("--mpls-ttl {}:", 3 + random.below(4)),
    };
    match random.below(6) {
        0 => " -m mpls".to_owned(),
        1 => format!(" -m mpls {}--mpls-entries {}:{}", not(random), 1 + random.below(2), 2 + random.below(16)),
        2 => format!(" -m mpls {}--mpls-depth any {}", not(random), test(random)),
        3 => format!(" -m mpls --mpls-depth last {}{}", not(random), test(random)),
        4 => format!(" -m mpls {}--mpls-bos {} {}", not(random), random.below(2), test(random)),
        _ => {
            let depth = [0, 1, 2, 3, 16][random.below(5)];
            format!(" -m mpls --mpls-depth {depth} {}{}", not(random), test(random))
        }
    }
}

fn matches(random: &mut Random) -> String {
    let mut text = String::new();
    let not = |random: &mut Random| if random.below(4) == 0 { "! " } else { "" };
    if random.below(3) == 0 {
        let length = [128, 127, 126, 64][random.below(4)];
        text += &format!(" {}-s fd00:0:a0::{}/{length}", not(random), 1 + random.below(6));
    }
    if random.below(3) == 0 {
        text += &format!(" {}-d fd00:0:a1::{}/128", not(random), 1 + random.below(6));
    }
    if random.below(5) == 0 {
        text += &format!(" -m mark {}--mark {}/{}", not(random), random.below(4), 3);
    }
    if random.below(3) == 0 {
        text += &label_match(random);
    }
    match random.below(4) {
        0 => {
            let (protocol, port) = (["tcp", "udp"][random.below(2)], 1 + random.below(6));
            text += &format!(" -p {protocol} -m {protocol} {}--dport {port}:{}", not(random), port + random.below(3));
        }
        1 => {
            text +=
                &format!(" -p udp -m multiport {}--sports {},{}", not(random), 1 + random.below(8), 1 + random.below(8))
        }
        2 => text += &format!(" -p tcp -m tcp {}--tcp-flags SYN,ACK,FIN SYN", not(random)),
        _ => {}
    }
    text
}

/// Chains lead only to later ones, so that there are no loops.
fn rules(random: &mut Random) -> String {
    let mut lines = vec!["*filter".to_owned()];
    let policy = ["ACCEPT", "DROP"][random.below(2)];
    lines.push(format!(":FORWARD {policy} [0:0]"));
    lines.extend(CHAINS.iter().map(|chain| format!(":{chain} - [0:0]")));
    let count = 1 + random.below(3);
    let skip = format!("-p tcp -m tcp --dport 1:3 -j MPLS --mpls-action skip-next --mpls-count {count}");
    lines.push(format!("-A FORWARD{} {skip}", label_match(random)));
    for (index, chain) in ["FORWARD"].iter().chain(&CHAINS).enumerate() {
        for _ in 0..4 + random.below(12) {
            let later = CHAINS.get(index..).unwrap_or_default();
            let target = match random.below(13) {
                0 => "-j ACCEPT".to_owned(),
                1 => "-j DROP".to_owned(),
                2 => "-j RETURN".to_owned(),
                3 => format!("-j MARK --set-xmark {}/{}", random.below(4), random.below(4)),
                4 | 5 if !later.is_empty() => format!("-j {}", later[random.below(later.len())]),
                6 if !later.is_empty() => format!("-g {}", later[random.below(later.len())]),
                7 => String::new(),
                8..=10 => {
                    let count = 1 + random.below(3);
                    let counted = ["skip-next", "go-last"].map(|action| format!("{action} --mpls-count {count}"));
                    let [skip, last] = counted;
                    format!("-j MPLS --mpls-action {}", ["go-next".to_owned(), skip, last][random.below(3)])
                }
                11 => "-j LOG".to_owned(),
                _ => "-j MARK --or-mark 1".to_owned(),
            };
            lines.push(format!("-A {chain}{} {target}", matches(random)));
        }
    }
    lines.push("COMMIT".to_owned());
    lines.join("\n") + "\n"
}

fn document(text: &str) -> String {
    let text = text.replace('\n', "\\n");
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {{file: v6, text: \"{text}\"}}}}\n");
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    let text = configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1);
    let swap = |n| format!("  - {{label: {}, behaviour: swap, out: 99, next_hop: 'fd00:0:c1::2'}}\n", LABEL + n);
    let labels: String = (0..LABELS).map(swap).collect();
    format!("{text}labels:\n  - {{label: {FIREWALL}, behaviour: firewall, firewall: fw}}\n{labels}")
}

#[test]
#[ignore = "needs root"]
fn verdicts_and_counters_are_the_interpreters() {
    let network = Network::new();
    let mut node = Node::load(&network.node, &document("*filter\nCOMMIT\n"));
    let mut random = Random::new(20);
    let (mut accepted, mut dropped, mut unseen, mut skipped) = (0, 0, 0, 0);
    for number in 0..RULE_SETS {
        let text = rules(&mut random);
        // Without the chains that FORWARD does not lead to, as the node reads it.
        let (parsed, _) =
            parse_rules_for(&text, "random", Family::Ipv6, Reading { hook: Some("FORWARD"), skip: false })
                .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let lowered = parsed.lower(&SetFile::default(), &Surroundings::default(), Mode::Basic, "random");
        let program = lowered.unwrap_or_else(|errors| panic!("{errors}")).program;
        node.apply(&document(&text));
        let before: Vec<u64> = counters(&node).iter().map(|(packets, _)| *packets).collect();
        let packets: Vec<Packet> = (0..PACKETS).map(|_| Packet::random(&mut random)).collect();
        let verdicts: Vec<Verdict> =
            node.run_many(|runner| packets.iter().map(|packet| runner.run("core0", &packet.frame()).0).collect());
        let first: Vec<usize> = program
            .chains
            .iter()
            .scan(0, |sum, chain| {
                *sum += chain.rules.len();
                Some(*sum - chain.rules.len())
            })
            .collect();
        let mut wanted = vec![(0, 0); before.len()];
        let forward = program.chain("FORWARD").expect("FORWARD");
        for (packet, verdict) in packets.iter().zip(verdicts) {
            if packet.behind() > 16 && program.looks_at_any_label() {
                assert_eq!(verdict, Verdict::Drop, "rule set {number}: more labels than rules see\n{text}");
                unseen += 1;
                continue;
            }
            let walk = run(&program, forward, &packet.key(), |_, _, _, _| unreachable!("no extensions"));
            let length = if packet.tcp { 60 } else { 56 };
            for (chain, rule) in walk.hits {
                let count: &mut (u64, u64) = &mut wanted[first[chain] + rule];
                *count = (count.0 + 1, count.1 + length);
            }
            let passes = match walk.end {
                End::Mpls(Mpls::SkipNext(count)) if packet.behind() > 0 => {
                    skipped += 1;
                    packet.behind() > usize::from(count)
                }
                end => matches!(end, End::Accept | End::Mpls(_)),
            };
            accepted += usize::from(passes);
            dropped += usize::from(!passes);
            let expected = if passes { Verdict::Redirect } else { Verdict::Drop };
            assert_eq!(verdict, expected, "rule set {number}: {:?}\n{text}", packet.key());
        }
        // Counters of rules that the last set had too go on.
        let found: Vec<u64> =
            counters(&node).iter().zip(&before).map(|((packets, _), before)| packets - before).collect();
        assert_eq!(found, wanted.iter().map(|(packets, _)| *packets).collect::<Vec<_>>(), "rule set {number}\n{text}");
    }
    assert!(
        accepted > 300 && dropped > 300 && unseen > 50 && skipped > 50,
        "{accepted} accepted, {dropped} dropped, {unseen} with more labels than are seen, {skipped} were to skip one"
    );
}

fn counters(node: &Node<'_>) -> Vec<(u64, u64)> {
    let counters = node.firewall_counters();
    counters[0].rules.iter().map(|rule| (rule.counter.packets, rule.counter.bytes)).collect()
}
