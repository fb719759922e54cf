//! `firewall explain`: a packet's way through the rules that the node has.

use std::collections::HashMap;

use anyhow::Result;
use segue_classifier::{
    Action, Extension, Field, Key, Program,
    explain::{FieldValue, StepResult, explain},
    field::{Depth, Entry},
    interpreter::{End, condition_holds},
    program::{Recent, RecentAction},
};
use segue_firewall::{Source, sets::SetChains};
use segue_iptables::{Family, NodeInterface, Surroundings};
use segue_model::{
    firewall::{Firewall, FirewallMode},
    node::NodeState,
};

use super::firewall_packet;
use crate::args::PacketArgs;

/// So many rules are shown whether they were hit or not.
const FEW: usize = 20;

/// The way of packets through the rules of a firewall, as text.
pub fn run(state: &NodeState, firewall: &Firewall, packet: &PacketArgs) -> Result<String> {
    let interfaces = firewall_packet::interfaces(state, packet).into_iter().zip(1..);
    let interfaces = interfaces.map(|(name, index)| NodeInterface { name, index }).collect();
    let surroundings = Surroundings { interfaces, ..Surroundings::default() };
    let mut rules = Source::parse(firewall)?.lower(&surroundings)?;
    let sets = SetChains::append(&mut rules.lowered.program);
    let connections = rules.program().looks_at_connections();
    let mut text = String::new();
    for asked in firewall_packet::asked(state, &firewall.name, packet)? {
        let key = match asked.key {
            Ok(key) => key,
            Err(fault) => {
                text.push_str(&format!("{}: {fault}\n", asked.name));
                continue;
            }
        };
        if !asked.name.is_empty() {
            text.push_str(&format!("{}: {}\n", asked.name, summary(&key)));
        }
        for note in asked.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        if key.get(Field::LabelEntries).is_some_and(|entries| entries > Depth::MAX.get().into())
            && rules.program().looks_at_any_label()
        {
            text.push_str("rules look at every label, and there are more than they see: dropped as drop_label_depth\n");
            continue;
        }
        // In advanced mode the outermost header says which rules a packet meets.
        let steered = firewall.mode == FirewallMode::Advanced && key.get(Field::OuterFamily) == Some(6);
        let family = if key.get(Field::Family) == Some(4) && !steered { Family::Ipv4 } else { Family::Ipv6 };
        let way = |base: usize, key: &Key| {
            let file = rules.file(family).unwrap_or_default();
            way(rules.program(), &sets, (base, file), key, packet)
        };
        match rules.base(family) {
            None => {
                text.push_str(&format!("firewall {} has no rules for {family}: the packet passes\n", firewall.name))
            }
            Some(base) if !connections => text.push_str(&way(base, &key)),
            Some(base) => match key.datagram() {
                Some(datagram) => {
                    if datagram != key {
                        text.push_str("note: with rules on connections, a first fragment is judged as its datagram\n");
                    }
                    text.push_str(&way(base, &datagram));
                }
                None => text.push_str(
                    "with rules on connections, no rule sees a later fragment: it passes if its first fragment has passed before it, \
                     else it is dropped\n",
                ),
            },
        }
    }
    Ok(text)
}

/// What a packet is.
fn summary(key: &Key) -> String {
    let field = |field: Field| key.get(field).map(|value| FieldValue(field, value).to_string());
    let either = |first: Field, second: Field| field(first).or_else(|| field(second)).unwrap_or_default();
    let mut text = format!(
        "{} to {}, protocol {}",
        either(Field::SourceIpv6, Field::SourceIpv4),
        either(Field::DestinationIpv6, Field::DestinationIpv4),
        field(Field::Protocol).unwrap_or_default()
    );
    for (what, value) in [
        (", ports ", Field::SourcePort),
        (" to ", Field::DestinationPort),
        (", ICMP type ", Field::IcmpType),
        (" code ", Field::IcmpCode),
        (", fragment offset ", Field::FragmentOffset),
        (", tag ", Field::SrhTag),
        (", Segments Left ", Field::SrhSegmentsLeft),
        (", at SID ", Field::ActiveSid),
        (", at label ", Field::Label(Entry::Own)),
        (", labels behind it ", Field::LabelEntries),
    ] {
        if let Some(value) = field(value) {
            text.push_str(&format!("{what}{value}"));
        }
    }
    text
}

/// A packet's way through the rules of a file, from the chain `base` on.
fn way(program: &Program, sets: &SetChains, (base, file): (usize, &str), key: &Key, packet: &PacketArgs) -> String {
    let mut listed = Listed::new(&packet.recent);
    let way = explain(program, base, key, |_, _, extension, key| holds(program, sets, extension, key, &mut listed));
    let mut text = String::new();
    let (mut shown, mut hidden) = (0, 0);
    for step in &way.steps {
        let chain = &program.chains[step.chain];
        let rule = &chain.rules[step.rule];
        let missed = rule.conditions.iter().filter(|condition| !condition_holds(condition, key)).count();
        let near = missed <= 1 && rule.conditions.len() > 1 && shown < FEW;
        let is_condition = matches!(step.result, StepResult::Condition { .. });
        if !packet.all && way.steps.len() > FEW && is_condition && !near {
            hidden += 1;
            continue;
        }
        shown += usize::from(is_condition);
        let line = rule.line.map(|line| format!(" ({file}:{line})")).unwrap_or_default();
        text.push_str(&format!("{} {}{line}: {}\n    ", chain.name, step.rule + 1, rule.text));
        text.push_str(&match &step.result {
            StepResult::Hit => "hit\n".to_owned(),
            StepResult::Extension(index) => {
                format!("not hit: {} does not hold\n", describe(program, &rule.extensions[*index]))
            }
            StepResult::Condition { index, value } => {
                let condition = &rule.conditions[*index];
                let others = if missed > 1 { format!(" ({} more do not hold)", missed - 1) } else { String::new() };
                match value {
                    None if condition.field.is_any() && key.get(Field::LabelEntries).is_some() => {
                        format!(
                            "not hit: {condition}, but {} is{others}\n",
                            if condition.negated { "one" } else { "none" }
                        )
                    }
                    Some(value) => {
                        format!("not hit: {condition}, but it is {}{others}\n", FieldValue(condition.field, *value))
                    }
                    None => format!("not hit: {condition}, but the packet has no such field{others}\n"),
                }
            }
        });
    }
    if hidden > 0 {
        text.push_str(&format!("{hidden} more rules are not hit; --all shows them\n"));
    }
    let end = match way.walk.end {
        End::Accept => "the packet passes".to_owned(),
        End::Drop => "the packet is dropped".to_owned(),
        End::Reject(kind) => format!("the packet is rejected: {kind:?}"),
        End::Seg6(action) => format!("SEG6 {action:?}"),
        End::Mpls(action) => format!("MPLS {action:?}"),
        End::Steps => "the packet is dropped: it hits too many rules".to_owned(),
        other => format!("{other:?}"),
    };
    // A rule that ends the packet's way is the last that it is compared with.
    let decided = way.steps.last().filter(|step| step.result == StepResult::Hit).is_some_and(|step| {
        let action = &program.chains[step.chain].rules[step.rule].action;
        matches!(action, Action::Accept | Action::Drop | Action::Reject(_) | Action::Seg6(_) | Action::Mpls(_))
    });
    text.push_str(&format!("{end}{}\n", if decided { "" } else { ", by the policy" }));
    text
}

/// Lists of `-m recent` by name, and the packets of each that were noted of the address that is asked about. All are taken to be
/// recent enough.
struct Listed(HashMap<String, u32>);

impl Listed {
    fn new(given: &[(String, u32)]) -> Self {
        Self(given.iter().cloned().collect())
    }

    /// What the data plane does (`bpf/lib/firewall/limit.h`).
    fn holds(&mut self, recent: &Recent) -> bool {
        let noted = self.0.entry(recent.name.clone()).or_default();
        let found = match recent.action {
            RecentAction::Set => true,
            RecentAction::Check | RecentAction::Update => *noted > 0 && *noted >= recent.hits,
            RecentAction::Remove => std::mem::take(noted) > 0,
        };
        let holds = found != recent.negated;
        // An address that is in no list is put into one by `--set` alone.
        if recent.action == RecentAction::Set || recent.action == RecentAction::Update && holds && *noted > 0 {
            *noted += 1;
        }
        holds
    }
}

/// Limits are taken to have a token.
fn holds(program: &Program, sets: &SetChains, extension: &Extension, key: &Key, listed: &mut Listed) -> bool {
    match extension {
        Extension::Recent(recent) => listed.holds(recent),
        Extension::Limit(_) => true,
        Extension::HashLimit(limit) => !limit.above,
        Extension::Set { set, sides, negated } => sets.contain(program, *set, sides, key) != *negated,
    }
}

fn describe(program: &Program, extension: &Extension) -> String {
    match extension {
        Extension::Recent(recent) => {
            format!("recent {} (--recent {0}=PACKETS says how many of the address were noted)", recent.name)
        }
        Extension::Limit(_) => "the limit".to_owned(),
        Extension::HashLimit(limit) => format!("hashlimit {}", limit.name),
        Extension::Set { set, negated, .. } => {
            format!("{}set {}", if *negated { "not in " } else { "in " }, program.sets[*set].name)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        packet: PacketArgs,
    }

    fn state(mode: &str, rules: &str) -> NodeState {
        let file = |name: &str| format!("{{file: {name}, text: \"*filter\\n:FORWARD DROP [0:0]\\n{rules}COMMIT\\n\"}}");
        let yaml = format!(
            "node: n\nsource_address: fd00::1\nlocator: 'fc00:0:1::/48'\ndomain: {{sid_blocks: ['fc00::/16']}}\n\
             ports: [{{name: core0, role: core}}]\nfirewalls: [{{name: fw, mode: {mode}, ipv6: {}}}]\n\
             sids: [{{sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}}]\n\
             labels: [{{label: 15010, behaviour: firewall, firewall: fw}}]\n",
            file("rules.v6")
        );
        segue_model::load::load_node_state(&yaml, "node.yaml").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn explained(state: &NodeState, words: &[&str]) -> String {
        let line = Line::try_parse_from(["x"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}"));
        run(state, &state.firewalls[0], &line.packet).unwrap()
    }

    const RULES: &str = "-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT\\n-A FORWARD -s fd00::/64 -j ACCEPT\\n";

    /// The rules of a stateful firewall see no fragments: docs/using/firewall.md, "Fragments".
    #[test]
    fn fragments_are_judged_as_the_data_plane_does() {
        let fragments = "-A FORWARD -m frag --fragid 0:9 -j ACCEPT\\n";
        let connections = "-A FORWARD -m conntrack --ctstate INVALID -j DROP\\n";
        // A UDP datagram in two fragments from fd00::1 to fd01::2, as frames.
        let head = "02000000000102000000000286dd";
        let addresses = "fd000000000000000000000000000001fd010000000000000000000000000002";
        let first = format!("{head}6000000000102c40{addresses}110000010000000507d000350020abcd");
        let later = format!("{head}6000000000102c40{addresses}11000008000000050102030405060708");
        for (rules, packet, words) in [
            (fragments.to_owned(), &first, "hit\nthe packet passes"),
            (fragments.to_owned(), &later, "hit\nthe packet passes"),
            (connections.to_owned() + fragments, &first, "judged as its datagram\n"),
            (connections.to_owned() + fragments, &first, "the packet is dropped, by the policy\n"),
            (connections.to_owned() + fragments, &later, "no rule sees a later fragment"),
        ] {
            let text = explained(&state("basic", &rules), &["--ingress", "core0", "--hex", packet]);
            assert!(text.contains(words), "{rules}: {words}: {text}");
        }
    }

    #[test]
    fn says_why_rules_are_not_hit() {
        let state = state("basic", RULES);
        let to = ["--destination", "fd01::2", "--source"];
        let tcp = ["fd00::1", "--protocol", "tcp", "--destination-port", "23"];
        let text = explained(&state, &[&to[..], &tcp].concat());
        assert!(text.contains("FORWARD 1 (rules.v6:3)") && text.contains("but it is 23"), "{text}");
        assert!(text.contains("FORWARD 2 (rules.v6:4)") && text.ends_with("hit\nthe packet passes\n"), "{text}");
        let text = explained(&state, &[&to[..], &["fd05::1"]].concat());
        assert!(text.ends_with("the packet is dropped, by the policy\n"), "{text}");
    }

    #[test]
    fn of_many_rules_those_that_hardly_miss_are_shown() {
        let rule =
            |port: u16, net: u16| format!("-A FORWARD -s fd00:{net:x}::/32 -p udp -m udp --dport {port} -j ACCEPT\\n");
        let rules: String = (1..=60).map(|port| rule(port, if port == 30 { 7 } else { 9 })).collect();
        let state = state("basic", &rules);
        let words = ["--source", "fd00:7::1", "--destination", "fd01::2", "--destination-port", "99"];
        let text = explained(&state, &words);
        assert!(text.contains("FORWARD 30 (rules.v6:32)") && !text.contains("FORWARD 29 "), "{text}");
        assert!(text.contains("59 more rules are not hit; --all shows them\n"), "{text}");
        let text = explained(&state, &[&words[..], &["--all"]].concat());
        assert!(text.contains("FORWARD 29 ") && text.contains("(1 more do not hold)"), "{text}");
    }

    /// Inner IPv6 from fd00::5 to fd01::2, UDP 1 to 53, behind an SRH with tag 7 at the firewall's SID; the outer source is fd00:9::1.
    const STEERED: &str = "02000000000102000000000286dd\
        60000000006c2b40fd000009000000000000000000000001fc000000000100a10000000000000000\
        2904040101000007fc000000000200000000000000000000fc000000000100a10000000000000000\
        6000000000081140fd000000000000000000000000000005fd010000000000000000000000000002\
        0001003500080000";

    const SRH_RULES: &str = "-A FORWARD -i core0 -m srh --srh-tag 8 -j DROP\\n-A FORWARD -s fd00:9::/32 -m srh --srh-tag 7 \
        --srh-segs-eq 1 --srh-lsid fc00:0:2::/48 --inner-dst fd01::2 -j SEG6 --seg6-action seg6-go-last\\n";

    #[test]
    fn octets_of_a_steered_packet() {
        // Payload Length is 40 octets of SRH, 48 of the inner packet.
        let frame = STEERED.replace("60000000006c2b40", "6000000000582b40");
        let state = state("advanced", SRH_RULES);
        let text = explained(&state, &["--hex", &frame, "--ingress", "core0"]);
        assert!(text.starts_with("the packet: fd00::5 to fd01::2, protocol 17, ports 1 to 53, tag 7, Segments Left 1, at SID fc00:0:1:a1::\n"), "{text}");
        assert!(text.contains("SrhTag 8, but it is 7") && text.ends_with("hit\nSEG6 GoLast\n"), "{text}");
        let text = explained(&state, &["--hex", STEERED]);
        assert!(text.contains("dropped as drop_bad_length"), "{text}");
    }

    #[test]
    fn the_same_by_fields() {
        let state = state("advanced", SRH_RULES);
        let words = [
            "--source",
            "fd00::5",
            "--destination",
            "fd01::2",
            "--destination-port",
            "53",
            "--tag",
            "7",
            "--segments",
            "fc00:0:1:a1::,fc00:0:2::",
            "--outer-source",
            "fd00:9::1",
        ];
        let text = explained(&state, &words);
        assert!(text.contains("Ingress in 1") && text.ends_with("hit\nSEG6 GoLast\n"), "{text}");
    }

    /// UDP 1 to 53 from fd00::5 to fd01::2 behind the labels 15010 of the firewall, 16002 with TC 3, and 70000.
    const LABELLED: &str = "020000000001020000000002884703aa204003e8264011170140\
        6000000000081140fd000000000000000000000000000005fd010000000000000000000000000002\
        0001003500080000";

    #[test]
    fn a_packet_with_labels_by_octets_and_by_fields() {
        let rules = "-A FORWARD -m mpls --mpls-depth any --mpls-label 99 -j DROP\\n\
            -A FORWARD -m srh -j DROP\\n-A FORWARD -m mpls --mpls-label 16002 --mpls-tc 3 -j MPLS --mpls-action skip-next\\n";
        let state = state("advanced", rules);
        let by_octets = explained(&state, &["--hex", LABELLED]);
        let heading =
            "the packet: fd00::5 to fd01::2, protocol 17, ports 1 to 53, at label 15010, labels behind it 2\n";
        assert!(by_octets.starts_with(heading), "{by_octets}");
        let ports =
            ["--source", "fd00::5", "--destination", "fd01::2", "--source-port", "1", "--destination-port", "53"];
        let by_fields = explained(&state, &[&ports[..], &["--labels", "15010,16002/3,70000"]].concat());
        for text in [&by_octets, &by_fields] {
            assert!(text.contains("not hit: label at any depth in 99, but none is\n"), "{text}");
            assert!(text.contains("not hit: SrhPresent 1, but it is 0\n"), "{text}");
            assert!(text.ends_with("hit\nMPLS SkipNext(1)\n") && !text.contains("note:"), "{text}");
        }
        let many = format!("15010{}", ",16002".repeat(17));
        let text = explained(&state, &[&ports[..], &["--labels", &many]].concat());
        assert!(text.ends_with("dropped as drop_label_depth\n"), "{text}");
        let text = explained(&state, &[&ports[..], &["--labels", "15011,16002/2/9"]].concat());
        assert!(
            text.contains("note: 15011 is no label of this node") && text.contains("TC at depth 1 3, but it is 2"),
            "{text}"
        );
        let text = explained(&state, &["--hex", &LABELLED[..46]]);
        assert!(text.contains("dropped as drop_label_bottom"), "{text}");
    }

    #[test]
    fn interfaces_by_name() {
        let state = state("basic", "-A FORWARD -i core0 -o eth9 -j ACCEPT\\n");
        let words = ["--source", "fd00::5", "--destination", "fd01::2", "--ingress", "core0", "--egress"];
        assert!(explained(&state, &[&words[..], &["eth9"]].concat()).ends_with("hit\nthe packet passes\n"));
        assert!(explained(&state, &[&words[..], &["core0"]].concat()).ends_with("is dropped, by the policy\n"));
    }

    /// Every kind of member, as the data plane finds it: it is asked the same chain.
    #[test]
    fn members_of_sets() {
        let sets = "create nets hash:net family inet6\nadd nets fd00::/16\nadd nets fd00:7::/32 nomatch\n\
            create pairs hash:net,iface family inet6\nadd pairs fd00::/64,core0\n\
            create pings hash:ip,port family inet6\nadd pings fd01::2,icmpv6:128/0\n";
        let rules = |set: &str, sides: &str| {
            let rule = format!("-A FORWARD -m set --match-set {set} {sides} -j ACCEPT\\n");
            let mut state = state("basic", &rule);
            state.firewalls[0].sets =
                vec![segue_model::firewall::RuleFile::Text { file: "sets".to_owned(), text: sets.to_owned() }];
            state
        };
        let from = |source: &'static str| ["--destination", "fd01::2", "--source", source];
        let ping = ["--protocol", "58", "--icmp-type", "128"];
        for (set, sides, words, passes) in [
            ("nets", "src", vec![], true),
            ("pairs", "src,src", vec!["--ingress", "core0"], true),
            ("pairs", "src,src", vec!["--ingress", "eth9"], false),
            ("pings", "dst,dst", ping.to_vec(), true),
            ("pings", "dst,dst", vec!["--protocol", "58", "--icmp-type", "129"], false),
        ] {
            let text = explained(&rules(set, sides), &[&from("fd00::5")[..], &words].concat());
            let end = if passes { "the packet passes\n" } else { "the packet is dropped, by the policy\n" };
            assert!(text.ends_with(end), "{set} {words:?}: {text}");
        }
        let text = explained(&rules("nets", "src"), &from("fd00:7::5"));
        assert!(text.contains("in set nets does not hold"), "{text}");
    }

    #[test]
    fn packets_of_a_capture() {
        use segue_api::pcap::pcapng;

        let octets = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let frame = octets(&STEERED.replace("60000000006c2b40", "6000000000582b40"));
        let mut arp = frame.clone();
        arp[13] = 0x06;
        arp[12] = 0x08;
        let mut bytes = pcapng::section();
        bytes.extend(pcapng::interface("core0"));
        for frame in [&arp, &frame] {
            let direction = pcapng::Direction::Inbound;
            bytes.extend(pcapng::packet(0, 1, frame, frame.len() as u32, direction, ""));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let path = file.path().to_str().unwrap();
        let state = state("advanced", SRH_RULES);
        let text = explained(&state, &["--pcap", path]);
        assert!(
            text.starts_with("packet 1: it is neither IPv4 nor IPv6") && text.contains("\npacket 2: fd00::5"),
            "{text}"
        );
        let text = explained(&state, &["--pcap", path, "--number", "2"]);
        assert!(text.starts_with("packet 2: fd00::5") && text.ends_with("SEG6 GoLast\n"), "{text}");
        let line = Line::parse_from(["x", "--pcap", path, "--number", "3"]);
        let error = run(&state, &state.firewalls[0], &line.packet).unwrap_err().to_string();
        assert!(error.ends_with("there is no packet 3; the file has 2"), "{error}");
    }
}
