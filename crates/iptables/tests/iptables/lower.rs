//! What the rules of a file mean: packets through the program that they become.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use segue_classifier::field::state;
use segue_classifier::program::{Dimension, HashLimitKey, Mpls, Reject, Seg6, SetValue, Side};
use segue_classifier::{Action, Extension, Field, Key, Program, Verdict, interpreter};
use segue_iptables::{
    Family, Lowered, Mode, NodeInterface, RuleErrors, SetFile, Surroundings, parse_rules, parse_sets, parse_yaml,
};

fn surroundings() -> Surroundings {
    let interface = |name: &str, index| NodeInterface { name: name.to_owned(), index };
    Surroundings {
        interfaces: vec![interface("lo", 1), interface("eth0", 2), interface("eth1", 3), interface("wg0", 4)],
        addresses: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6("2001:db8::1".parse().expect("address"))],
        broadcasts: vec![Ipv4Addr::new(10, 0, 0, 255)],
        anycasts: vec!["2001:db8:1::".parse().expect("address")],
    }
}

fn lower_as(family: Family, rules: &str, sets: &str, mode: Mode) -> Result<Lowered, RuleErrors> {
    let sets = parse_sets(sets, "sets")?;
    let source = if rules.contains("*filter") { rules.to_owned() } else { format!("*filter\n{rules}\nCOMMIT\n") };
    parse_rules(&source, "rules", family)?.lower(&sets, &surroundings(), mode, "rules")
}

fn lower(family: Family, rules: &str) -> Program {
    lower_as(family, rules, "", Mode::Basic).unwrap_or_else(|errors| panic!("{errors}")).program
}

fn address(text: &str) -> u128 {
    match text.parse().expect("address") {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

/// A packet with these fields; family, and so the fields of the addresses, from the source.
fn packet(source: &str, destination: &str, protocol: u8, fields: &[(Field, u128)]) -> Key {
    let v4 = source.contains('.');
    let mut key = Key::new();
    key.set(if v4 { Field::SourceIpv4 } else { Field::SourceIpv6 }, address(source));
    key.set(if v4 { Field::DestinationIpv4 } else { Field::DestinationIpv6 }, address(destination));
    key.set(Field::Protocol, u128::from(protocol));
    key.set(Field::TrafficClass, 0);
    key.set(Field::HopLimit, 64);
    key.set(Field::Length, 100);
    if v4 {
        key.set(Field::FragmentOffset, 0);
    }
    for (field, value) in fields {
        key.set(*field, *value);
    }
    key
}

/// A TCP segment (FLAGS SYN), UDP datagram or ICMP message over IPv4 with two numbers: ports, or type and code.
fn v4(protocol: u8, first: u128, second: u128) -> Key {
    let fields = match protocol {
        1 => vec![(Field::IcmpType, first), (Field::IcmpCode, second)],
        6 => vec![
            (Field::SourcePort, first),
            (Field::DestinationPort, second),
            (Field::TcpFlags, 2),
            (Field::TcpOptions, 1 << 2 | 1 << 8),
        ],
        _ => vec![(Field::SourcePort, first), (Field::DestinationPort, second)],
    };
    packet("10.1.0.1", "10.2.0.1", protocol, &fields)
}

fn v6(fields: &[(Field, u128)]) -> Key {
    let ports = [(Field::SourcePort, 1000), (Field::DestinationPort, 443), (Field::TcpFlags, 2)];
    packet("2001:db8:1::1", "2001:db8:2::1", 6, &ports.iter().chain(fields).copied().collect::<Vec<_>>())
}

/// Whether a rule that drops is hit by the packet, when all extensions hold.
fn hit(family: Family, rule: &str, key: &Key) -> bool {
    let program = lower(family, &format!("-A FORWARD {rule} -j DROP"));
    let forward = program.chain("FORWARD").expect("FORWARD");
    interpreter::run(&program, forward, key, |_, _, _, _| true).end == interpreter::End::Drop
}

fn table(family: Family, cases: &[(&str, Key, bool)]) {
    for (rule, key, wanted) in cases {
        assert_eq!(hit(family, rule, key), *wanted, "{family} {rule}");
    }
}

#[test]
fn addresses_protocols_and_ports() {
    let tcp = v4(6, 1000, 80);
    let udp = v4(17, 53, 1024);
    table(
        Family::Ipv4,
        &[
            ("", tcp, true),
            ("-s 10.1.0.0/16", tcp, true),
            ("! -s 10.1.0.0/16", tcp, false),
            ("-d 10.1.0.0/16", tcp, false),
            ("! -d 10.1.0.0/16", tcp, true),
            ("-s 10.9.0.1/255.0.255.255", tcp, true),
            ("-p tcp", tcp, true),
            ("! -p tcp", tcp, false),
            ("! -p tcp", udp, true),
            ("-p tcp --dport 80", tcp, true),
            ("-p tcp --dport 81:", tcp, false),
            ("-p tcp ! --dport 81:", tcp, true),
            ("-p tcp --sport :1000 --dport 80", tcp, true),
            ("-p udp --sport 53", udp, true),
            ("-p udp --sport 53", tcp, false),
            ("-p tcp --syn", tcp, true),
            ("-p tcp ! --syn", tcp, false),
            ("-p tcp --tcp-flags ALL NONE", tcp, false),
            ("-p tcp --tcp-flags SYN,ACK SYN", tcp, true),
            ("-p tcp --tcp-option 8", tcp, true),
            ("-p tcp --tcp-option 5", tcp, false),
            ("-p tcp ! --tcp-option 5", tcp, true),
            ("-p tcp -m multiport --dports 22,80,443", tcp, true),
            ("-p tcp -m multiport --dports 22,443:500", tcp, false),
            ("-p tcp -m multiport ! --dports 22,443:500", tcp, true),
            ("-p tcp -m multiport --sports 999:1001", tcp, true),
            ("-p tcp -m multiport --ports 80", tcp, true),
            ("-p tcp -m multiport --ports 1000", tcp, true),
            ("-p tcp -m multiport --ports 22,23", tcp, false),
            ("-p tcp -m multiport ! --ports 22,23", tcp, true),
            ("-p tcp -m multiport ! --ports 1000", tcp, false),
            ("-m iprange --src-range 10.0.255.0-10.1.0.1", tcp, true),
            ("-m iprange ! --dst-range 10.0.0.0-10.2.0.0", tcp, true),
            ("-m iprange --src-range 10.2.0.0-10.1.0.0", tcp, false),
        ],
    );
}

#[test]
fn later_fragments_match_no_rule_about_layer_4() {
    let later = packet("10.1.0.1", "10.2.0.1", 6, &[(Field::FragmentOffset, 100)]);
    table(
        Family::Ipv4,
        &[
            ("-f", later, true),
            ("! -f", later, false),
            ("! -f", v4(6, 1, 2), true),
            ("-f", v4(6, 1, 2), false),
            ("-p tcp", later, true),
            ("-p tcp -m tcp", later, false),
            ("-p tcp -m tcp", v4(6, 1, 2), true),
            ("-p tcp ! --dport 80", later, false),
            ("-p tcp -m multiport ! --ports 80", later, false),
            ("-p tcp ! --syn", later, false),
        ],
    );
    let later = packet("10.1.0.1", "10.2.0.1", 1, &[(Field::FragmentOffset, 100)]);
    table(
        Family::Ipv4,
        &[
            ("-p icmp --icmp-type any", later, false),
            ("-p icmp ! --icmp-type 8", later, false),
            ("-p icmp ! --icmp-type 3/4", later, false),
        ],
    );
}

#[test]
fn icmp_types_and_codes() {
    let (echo, too_big) = (v4(1, 8, 0), v4(1, 3, 4));
    table(
        Family::Ipv4,
        &[
            ("-p icmp --icmp-type any", echo, true),
            ("-p icmp ! --icmp-type any", echo, false),
            ("-p icmp --icmp-type 8", echo, true),
            ("-p icmp ! --icmp-type 8", echo, false),
            ("-p icmp --icmp-type 3", too_big, true),
            ("-p icmp --icmp-type 3/4", too_big, true),
            ("-p icmp --icmp-type 3/3", too_big, false),
            ("-p icmp ! --icmp-type 3/3", too_big, true),
            ("-p icmp ! --icmp-type 3/4", too_big, false),
            ("-p icmp ! --icmp-type 3/4", echo, true),
            ("-p icmp --icmp-type port-unreachable", v4(1, 3, 3), true),
        ],
    );
    let ns = packet("fe80::1", "ff02::1", 58, &[(Field::IcmpType, 135), (Field::IcmpCode, 0)]);
    table(
        Family::Ipv6,
        &[
            ("-p ipv6-icmp --icmpv6-type neighbour-solicitation", ns, true),
            ("-p ipv6-icmp ! --icmpv6-type 135/0", ns, false),
            ("-p ipv6-icmp ! --icmpv6-type 1", ns, true),
        ],
    );
}

#[test]
fn header_fields_marks_states_and_links() {
    let fields = [
        (Field::TrafficClass, 0xb8),
        (Field::Mark, 0x15),
        (Field::Ingress, 3),
        (Field::Egress, 2),
        (Field::ConnectionState, u128::from(state::ESTABLISHED)),
        (Field::ConnectionDirection, 1),
        (Field::SourceMac, 0x0011_22aa_bbcc),
        (Field::SourcePort, 9),
    ];
    let key = packet("10.1.0.1", "224.0.0.5", 17, &fields);
    let invalid = v4(6, 1, 2).with(Field::ConnectionState, u128::from(state::INVALID));
    table(
        Family::Ipv4,
        &[
            ("-m length --length 100", key, true),
            ("-m length ! --length 50:100", key, false),
            ("-m length --length 101:", key, false),
            ("-m dscp --dscp-class EF", key, true),
            ("-m dscp ! --dscp 0x2e", key, false),
            ("-m tos --tos 0xb0/0xf0", key, true),
            ("-m tos ! --tos 0xb8", key, false),
            ("-m ttl --ttl-eq 64", key, true),
            ("-m ttl ! --ttl-eq 64", key, false),
            ("-m ttl --ttl-lt 64", key, false),
            ("-m ttl --ttl-lt 65", key, true),
            ("-m ttl --ttl-lt 0", key, false),
            ("-m ttl --ttl-gt 63", key, true),
            ("-m ttl --ttl-gt 255", key, false),
            ("-m mark --mark 0x5/0xf", key, true),
            ("-m mark --mark 0x5", key, false),
            ("-m mark ! --mark 0x5", key, true),
            ("-m mark --mark 0x1f/0xf", key, false),
            ("-i eth1 -o eth0", key, true),
            ("! -i eth1", key, false),
            ("-i eth+", key, true),
            ("! -i wg+", key, true),
            ("-i absent0", key, false),
            ("! -i absent0", key, true),
            ("-m state --state RELATED,ESTABLISHED", key, true),
            ("-m conntrack ! --ctstate NEW,INVALID", key, true),
            ("-m conntrack --ctstate NEW", key, false),
            ("-m conntrack --ctdir REPLY", key, true),
            ("-m conntrack --ctdir original", key, false),
            ("-m conntrack --ctstate ESTABLISHED --ctdir REPLY", key, true),
            ("-m conntrack --ctdir ORIGINAL", v4(6, 1, 2), false),
            ("-m conntrack --ctdir ORIGINAL", invalid, false),
            ("-m conntrack --ctstate INVALID --ctdir ORIGINAL", invalid, true),
            ("-m conntrack ! --ctstate NEW --ctdir REPLY", invalid, true),
            ("-m conntrack --ctstate NEW --ctdir REPLY", invalid, false),
            ("-m conntrack --ctdir REPLY", v4(6, 1, 2), false),
            ("-m state --state NEW", v4(6, 1, 2), false),
            ("-m state ! --state NEW", v4(6, 1, 2), false),
            ("-m mac --mac-source 00:11:22:aa:bb:cc", key, true),
            ("-m mac ! --mac-source 00:11:22:aa:bb:cc", key, false),
            ("-m comment --comment any", key, true),
            ("-m addrtype --dst-type MULTICAST", key, true),
            ("-m addrtype ! --dst-type MULTICAST,BROADCAST", key, false),
            ("-m addrtype --src-type UNICAST", key, true),
            ("-m addrtype --dst-type UNICAST", key, false),
            ("-m addrtype ! --dst-type UNICAST", key, true),
            ("-m addrtype --dst-type UNICAST,MULTICAST", key, true),
            ("-m addrtype --dst-type LOCAL", packet("10.1.0.1", "10.0.0.1", 6, &[]), true),
            ("-m addrtype --dst-type LOCAL", packet("10.1.0.1", "127.9.9.9", 6, &[]), true),
            ("-m addrtype --dst-type UNICAST", packet("10.1.0.1", "10.0.0.1", 6, &[]), false),
            ("-m addrtype --dst-type BROADCAST", packet("10.1.0.1", "10.0.0.255", 6, &[]), true),
        ],
    );
    let local = packet("2001:db8::1", "2001:db8::2", 6, &[]);
    table(
        Family::Ipv6,
        &[
            ("-m addrtype --src-type LOCAL --dst-type UNICAST", local, true),
            ("-m addrtype --dst-type LOCAL", local, false),
            ("-m hl --hl-gt 63", local, true),
        ],
    );
}

#[test]
fn fragment_header() {
    let whole = packet("::1", "::2", 17, &[]);
    let first = packet(
        "::1",
        "::2",
        17,
        &[(Field::FragmentOffset, 0), (Field::FragmentMore, 1), (Field::FragmentIdentification, 7)],
    );
    let last = packet(
        "::1",
        "::2",
        17,
        &[(Field::FragmentOffset, 9), (Field::FragmentMore, 0), (Field::FragmentIdentification, 7)],
    );
    table(
        Family::Ipv6,
        &[
            ("-m frag", whole, false),
            ("-m frag", first, true),
            ("-m frag", last, true),
            ("-m frag --fragfirst", first, true),
            ("-m frag --fragfirst", last, false),
            ("-m frag --fragmore", first, true),
            ("-m frag --fraglast", first, false),
            ("-m frag --fraglast", last, true),
            ("-m frag --fraglast", whole, false),
            ("-m frag --fragid 5:7", last, true),
            ("-m frag ! --fragid 5:7", last, false),
            ("-m frag ! --fragid 5:7", whole, false),
            ("-m frag --fragres", last, true),
        ],
    );
}

#[test]
fn srh_options_match_and_a_packet_without_an_srh_matches_none() {
    let sid = |text: &str| address(text);
    let srh = v6(&[
        (Field::SrhPresent, 1),
        (Field::SrhNextHeader, 41),
        (Field::SrhLength, 4),
        (Field::SrhSegmentsLeft, 1),
        (Field::SrhLastEntry, 1),
        (Field::SrhTag, 7),
        (Field::NextSid, sid("fc00:3::d6")),
        (Field::LastSid, sid("fc00:3::d6")),
    ]);
    let plain = v6(&[]);
    let options = [
        ("", true),
        ("--srh-next-hdr 41", true),
        ("--srh-next-hdr 6", false),
        ("--srh-len-eq 4", true),
        ("--srh-len-gt 4", false),
        ("--srh-len-gt 3", true),
        ("--srh-len-lt 5", true),
        ("--srh-len-lt 4", false),
        ("--srh-segs-eq 1", true),
        ("--srh-segs-gt 0", true),
        ("--srh-segs-lt 1", false),
        ("--srh-last-eq 1", true),
        ("--srh-last-gt 1", false),
        ("--srh-last-lt 2", true),
        ("--srh-tag 7", true),
        ("--srh-tag 0x700", false),
        ("--srh-nsid fc00:3::/64", true),
        ("--srh-nsid fc00:4::/64", false),
        ("--srh-lsid fc00:3::d6", true),
    ];
    for (option, wanted) in options {
        let rule = format!("-m srh {option}");
        assert_eq!(hit(Family::Ipv6, &rule, &srh), wanted, "{option}");
        assert!(!hit(Family::Ipv6, &rule, &plain), "{option}");
        if !option.is_empty() {
            let negated = format!("-m srh ! {option}");
            assert_eq!(hit(Family::Ipv6, &negated, &srh), !wanted, "! {option}");
            assert!(!hit(Family::Ipv6, &negated, &plain), "! {option}");
        }
    }
    // There is no previous SID, so nothing about it matches.
    assert!(!hit(Family::Ipv6, "-m srh --srh-psid ::/0", &srh));
    assert!(!hit(Family::Ipv6, "-m srh ! --srh-psid fc00::/16", &srh));
}

/// SERA's section IV: basic mode means the inner addresses, advanced mode the outer ones beside `--inner-src`.
#[test]
fn modes_differ_in_what_source_and_destination_mean() {
    let mut key = v6(&[(Field::OuterSource, address("fc00:1::1")), (Field::OuterDestination, address("fc00:2::f1:0"))]);
    key.set(Field::OuterFamily, 6);
    let run = |rule: &str, mode| {
        let lowered = lower_as(Family::Ipv6, &format!("-A FORWARD {rule} -j DROP"), "", mode).expect("rules");
        let forward = lowered.program.chain("FORWARD").expect("FORWARD");
        interpreter::run(&lowered.program, forward, &key, |_, _, _, _| true).end == interpreter::End::Drop
    };
    for (rule, basic, advanced) in [
        ("-s 2001:db8:1::/48 -d 2001:db8:2::/48", true, false),
        ("-s fc00:1::/64 -d fc00:2::f1:0/112", false, true),
        ("! -s fc00:1::/64", true, false),
        ("-m srh --inner-src 2001:db8:1::/48 --inner-dst 2001:db8:2::/48", true, true),
        ("-s fc00:1::/64 -m srh ! --inner-src 2001:db8:1::/48", false, false),
        ("-s fc00:1::/64 -m srh ! --inner-dst 2001:db8:1::/48", false, true),
        ("-p tcp --dport 443", true, true),
        ("-m iprange --src-range 2001:db8:1::-2001:db8:1::ffff", true, true),
    ] {
        assert_eq!(run(rule, Mode::Basic), basic, "basic: {rule}");
        assert_eq!(run(rule, Mode::Advanced), advanced, "advanced: {rule}");
    }
}

#[test]
fn chains_targets_and_policies() {
    let rules = "\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:web - [0:0]
:deep - [0:0]
-A FORWARD -j MARK --set-mark 0x10/0xf0
-A FORWARD -p tcp --dport 80 -j web
-A FORWARD -p udp -j LOG --log-prefix \"udp \" --log-level info
-A FORWARD -p udp -j NFLOG --nflog-group 7 --nflog-size 64
-A FORWARD -p udp -g deep
-A FORWARD -p tcp --dport 25 -j REJECT --reject-with tcp-reset
-A FORWARD -m mark --mark 0x10/0xf0 -p tcp --dport 443 -j ACCEPT
-A web -s 10.1.0.0/16 -j RETURN
-A web -j ACCEPT
-A deep
-A deep -p udp --dport 53 -j ACCEPT
COMMIT
";
    let lowered = lower_as(Family::Ipv4, rules, "", Mode::Basic).expect("rules");
    let program = &lowered.program;
    assert_eq!(program.check(), Ok(()));
    let names = program.chains.iter().map(|chain| (chain.name.as_str(), chain.policy)).collect::<Vec<_>>();
    let (drop, accept) = (Some(Verdict::Drop), Some(Verdict::Accept));
    assert_eq!(names, [("INPUT", drop), ("FORWARD", drop), ("OUTPUT", accept), ("web", None), ("deep", None)]);
    let forward = &program.chains[1];
    assert_eq!(forward.rules[1].line, Some(8));
    assert_eq!(forward.rules[1].text, "-A FORWARD -p tcp -m tcp --dport 80 -j web");
    assert!(matches!(&forward.rules[2].action, Action::Log(log) if log.prefix == "udp " && log.level == 6));
    assert!(matches!(&forward.rules[3].action, Action::Nflog(nflog) if nflog.group == 7 && nflog.size == Some(64)));
    let run = |key: &Key| {
        let walk = interpreter::run(program, 1, key, |_, _, _, _| true);
        (walk.end, walk.hits, walk.mark)
    };
    use interpreter::End;
    // Back from web to the policy.
    assert_eq!(run(&v4(6, 1, 80)), (End::Drop, vec![(1, 0), (1, 1), (3, 0)], 0x10));
    // goto: the end of deep is the end of FORWARD.
    assert_eq!(run(&v4(17, 1, 5)), (End::Drop, vec![(1, 0), (1, 2), (1, 3), (1, 4), (4, 0)], 0x10));
    assert_eq!(run(&v4(17, 1, 53)).0, End::Accept);
    assert_eq!(run(&v4(6, 1, 25)).0, End::Reject(Reject::TcpReset));
    assert_eq!(run(&v4(6, 1, 443)).0, End::Accept);
}

#[test]
fn mpls_actions() {
    for (name, action) in
        [("go-next", Mpls::GoNext), ("skip-next", Mpls::SkipNext(1)), ("go-last --mpls-count 2", Mpls::GoLast(2))]
    {
        for family in [Family::Ipv4, Family::Ipv6] {
            let program = lower(family, &format!("-A FORWARD -j MPLS --mpls-action {name}"));
            assert_eq!(program.chains[1].rules[0].action, Action::Mpls(action));
        }
    }
}

/// What labels say, beside an SRH that rules do not see then; and nothing of it holds for packets that came by no label.
#[test]
fn mpls_options_match_the_stack_and_no_other_packet() {
    let entry = |label: u32, class: u32, ttl: u32| label << 12 | class << 9 | ttl;
    let mut plain = v6(&[(Field::SrhTag, 7), (Field::NextSid, address("fc00:3::d6")), (Field::LastSid, 1)]);
    let mut labelled = plain;
    labelled.set_labels(&[entry(15_040, 0, 9), entry(16_002, 3, 20), entry(7, 0, 0), entry(99, 5, 0) | 0x100]);
    plain.set_labels(&[]);
    for (rule, holds) in [
        ("-m mpls", true),
        ("-m srh", false),
        ("-m srh ! --srh-tag 9", false),
        ("-m srh --srh-nsid ::/0", false),
        ("-m mpls --mpls-label 16002 --mpls-tc 3 --mpls-ttl 20 --mpls-bos 0", true),
        ("-m mpls --mpls-label 16002 ! --mpls-tc 3", false),
        ("-m mpls --mpls-depth 0 --mpls-label 15040", true),
        ("-m mpls --mpls-depth 4 ! --mpls-label 1", false),
        ("-m mpls --mpls-depth last --mpls-label 99 --mpls-bos 1", true),
        ("-m mpls --mpls-depth any --mpls-label 7", true),
        ("-m mpls --mpls-depth any --mpls-label 15040", false),
        ("-m mpls ! --mpls-depth any --mpls-label 15040", true),
        ("-m mpls ! --mpls-depth any --mpls-ttl 20", false),
        ("-m mpls --mpls-entries 3", true),
        ("-m mpls ! --mpls-entries 3", false),
    ] {
        assert_eq!(hit(Family::Ipv6, rule, &labelled), holds, "{rule}");
        assert_eq!(hit(Family::Ipv6, rule, &plain), rule.contains("srh"), "{rule}, without labels");
    }
}

#[test]
fn seg6_actions() {
    for (name, action) in [
        ("go-next", Seg6::GoNext),
        ("skip-next", Seg6::SkipNext),
        ("go-last", Seg6::GoLast),
        ("eval-args", Seg6::EvalArgs),
    ] {
        let program = lower(Family::Ipv6, &format!("-A FORWARD -m srh -j SEG6 --seg6-action {name}"));
        assert_eq!(program.chains[1].rules[0].action, Action::Seg6(action));
    }
}

#[test]
fn either_port_makes_two_rules_of_which_one_is_hit() {
    let lowered = lower_as(
        Family::Ipv4,
        "-A FORWARD -p tcp\n-A FORWARD -p tcp -m multiport --ports 80,81 -m mark --mark 0\n-A FORWARD",
        "",
        Mode::Basic,
    )
    .expect("rules");
    assert_eq!(lowered.origins[1], [0, 1, 1, 2]);
    for (source, destination, rule) in [(80, 81, Some(1)), (80, 9, Some(1)), (9, 81, Some(2)), (9, 9, None)] {
        let walk = interpreter::run(&lowered.program, 1, &v4(6, source, destination), |_, _, _, _| true);
        let between = walk.hits.iter().map(|(_, rule)| *rule).filter(|rule| (1..3).contains(rule)).collect::<Vec<_>>();
        assert_eq!(between, rule.into_iter().collect::<Vec<_>>(), "{source} {destination}");
    }
    // Both take from one bucket: crates/dataplane/src/firewall/rules.rs.
    let lowered =
        lower_as(Family::Ipv4, "-A FORWARD -p tcp -m multiport --ports 80 -m limit --limit 1/s", "", Mode::Basic);
    assert_eq!(lowered.expect("rules").origins[1], [0, 0]);
}

#[test]
fn limits() {
    let rules = "\
-A FORWARD -m limit --limit 3/min --limit-burst 10 -j LOG
-A FORWARD -m limit -m tcp -p tcp
-A FORWARD -m hashlimit --hashlimit-above 2/sec --hashlimit-burst 9 --hashlimit-mode dstip,srcport --hashlimit-name x --hashlimit-dstmask 24 --hashlimit-htable-max 500 -j DROP";
    let lowered = lower_as(Family::Ipv4, rules, "", Mode::Basic).expect("rules");
    let extensions = lowered.program.chains[1].rules.iter().map(|rule| &rule.extensions[0]).collect::<Vec<_>>();
    assert!(matches!(extensions[0], Extension::Limit(limit) if limit.interval == 20_000_000_000 && limit.burst == 10));
    assert!(
        matches!(extensions[1], Extension::Limit(limit) if limit.interval == 1_200_000_000_000 && limit.burst == 5),
        "3 an hour"
    );
    let Extension::HashLimit(limit) = extensions[2] else { panic!("hashlimit") };
    assert_eq!(
        (limit.name.as_str(), limit.limit.interval, limit.limit.burst, limit.above),
        ("x", 500_000_000, 9, true)
    );
    assert_eq!(limit.mode, [HashLimitKey::SourcePort, HashLimitKey::Destination]);
    assert_eq!((limit.source_prefix, limit.destination_prefix, limit.expire, limit.entries_max), (32, 24, 1_000, 500));
    // iptables would take the token before it looks at the protocol's match.
    assert_eq!(lowered.warnings.len(), 1);
    assert!(lowered.warnings[0].message.contains("in front of tcp") && lowered.warnings[0].position.line == 3);
    for (protocol, warnings) in
        [("-p ipv6-frag", 1), ("! -p ipv6-frag", 0), ("-p esp", 0), ("-i absent0", 1), ("-i eth0", 0)]
    {
        let lowered = lower_as(Family::Ipv6, &format!("-A FORWARD {protocol}"), "", Mode::Basic).expect("rules");
        assert_eq!(lowered.warnings.len(), warnings, "{protocol}");
    }
}

const SETS: &str = "\
create hosts hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x41e79d21
add hosts 10.0.0.1
add hosts 10.0.0.4-10.0.0.9
create nets hash:net family inet6 counters comment
add nets 2001:db8::/32 packets 5 bytes 60 comment \"hello \\ world\"
add nets 2001:db8:1::/48 nomatch
create services hash:ip,port
add services 10.0.0.1,tcp:80
add services 10.0.0.1,udp:53-55
add services 10.0.0.1,icmp:echo-request
add services 10.0.0.1,gre:0
create ports bitmap:port range 1-1024
add ports 100-105
create lan bitmap:ip range 10.0.0.0/16 netmask 24
add lan 10.0.3.0
create triple hash:ip,port,net
add triple 10.0.0.1,8080,10.0.0.0/8
create faces hash:net,iface
add faces 10.0.0.0/8,eth0
add faces 0.0.0.0/0,eth wildcard
add faces 10.0.0.0/8,absent0
create macs hash:mac
add macs 00:11:22:33:44:55
create list list:set size 8
add list hosts
add list hosts6
create hosts6 hash:ip family inet6
add hosts6 2001:db8::5
create mixed list:set
add mixed hosts
add mixed services
";

#[test]
fn sets_are_read_and_written() {
    let sets = parse_sets(SETS, "sets").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(sets.sets.len(), 11);
    let saved = sets.save();
    assert_eq!(parse_sets(&saved, "saved").unwrap_or_else(|errors| panic!("{errors}\n{saved}")), sets);
    assert!(saved.contains("add services 10.0.0.1,icmp:echo-request\n"), "{saved}");
    assert!(saved.contains("add nets 2001:db8:1::/48 nomatch\n"), "{saved}");
    assert!(saved.contains("comment \"hello \\ world\"\n"), "{saved}");
}

/// `sets.saved.ipset` is what ipset 7.17 printed.
#[test]
fn files_of_ipset_save_are_written_back_octet_by_octet() {
    let source = data("sets.saved.ipset");
    let sets = parse_sets(&source, "sets.saved.ipset").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(sets.save(), source);
}

#[test]
fn sets_become_sets_of_the_program() {
    let rules = "\
-A FORWARD -m set --match-set hosts src
-A FORWARD -m set ! --match-set services dst,dst
-A FORWARD -m set --match-set hosts dst
-A FORWARD -m set --match-set ports dst
-A FORWARD -m set --match-set lan src,dst
-A FORWARD -m set --match-set triple src,dst,dst
-A FORWARD -m set --match-set faces src,src
-A FORWARD -m set --match-set macs src
-A FORWARD -m set --match-set list src";
    let lowered = lower_as(Family::Ipv4, rules, SETS, Mode::Basic).unwrap_or_else(|errors| panic!("{errors}"));
    let program = &lowered.program;
    assert_eq!(program.check(), Ok(()));
    let used = program.chains[1].rules.iter().map(|rule| match &rule.extensions[0] {
        Extension::Set { set, sides, negated } => (*set, sides.clone(), *negated),
        other => panic!("{other:?}"),
    });
    let used = used.collect::<Vec<_>>();
    assert_eq!(used[0], (0, vec![Side::Source], false));
    assert_eq!(used[1], (1, vec![Side::Destination; 2], true));
    assert_eq!(used[2], (0, vec![Side::Destination], false), "one set for both");
    assert_eq!(used[4].1, [Side::Source], "the kernel ignores sides beyond the dimensions");
    let set = |index: usize| (program.sets[index].family, program.sets[index].dimensions.as_slice());
    assert_eq!(set(0), (4, &[Dimension::Network][..]), "a range makes prefixes");
    assert_eq!(set(1), (4, &[Dimension::Address, Dimension::Port][..]));
    assert_eq!(set(2), (0, &[Dimension::PortAlone][..]));
    assert_eq!(set(3), (4, &[Dimension::Network][..]));
    assert_eq!(set(4), (4, &[Dimension::Address, Dimension::Port, Dimension::Network][..]));
    assert_eq!(set(5), (4, &[Dimension::Network, Dimension::Interface][..]));
    assert_eq!(set(6), (0, &[Dimension::Mac][..]));
    assert_eq!(set(7), (4, &[Dimension::Network][..]), "the IPv6 member is skipped");
    let prefix = |text: &str, length| SetValue::Prefix { address: address(text), length };
    let hosts = program.sets[0].entries.iter().map(|entry| entry.values[0]).collect::<Vec<_>>();
    assert_eq!(hosts, [prefix("10.0.0.1", 32), prefix("10.0.0.4", 30), prefix("10.0.0.8", 31)]);
    let services = program.sets[1].entries.iter().map(|entry| entry.values[1]).collect::<Vec<_>>();
    let ports = |protocol, first, last| SetValue::Ports { protocol: Some(protocol), first, last };
    assert_eq!(services, [ports(6, 80, 80), ports(17, 53, 55), ports(1, 0x800, 0x800), ports(47, 0, 0)]);
    assert_eq!(program.sets[3].entries[0].values, [prefix("10.0.3.0", 24)]);
    let faces = program.sets[5].entries.iter().map(|entry| entry.values[1]).collect::<Vec<_>>();
    assert_eq!(
        faces,
        [SetValue::Number(2), SetValue::Number(2), SetValue::Number(3)],
        "eth0; eth0 and eth1 as wildcard"
    );
    assert_eq!(program.sets[6].entries[0].values, [SetValue::Number(0x0011_2233_4455)]);
    assert_eq!(lowered.warnings.len(), 1, "absent0: {:?}", lowered.warnings);

    let v6 =
        lower_as(Family::Ipv6, "-A FORWARD -m set --match-set nets src", SETS, Mode::Basic).expect("rules").program;
    assert_eq!(v6.sets[0].entries.iter().map(|entry| entry.no_match).collect::<Vec<_>>(), [false, true]);
    for (rule, reason) in [
        ("--match-set nothing src", "no set of this name"),
        ("--match-set nets src", "IPv6 addresses in IPv4 rules"),
        ("--match-set services src", "2 dimensions"),
        ("--match-set macs dst", "MAC"),
        ("--match-set mixed src,src", "different types"),
    ] {
        let errors = lower_as(Family::Ipv4, &format!("-A FORWARD -m set {rule}"), SETS, Mode::Basic).expect_err(rule);
        assert!(errors.errors.len() == 1 && errors.errors[0].reason.contains(reason), "{errors}");
        assert_eq!((errors.errors[0].position.line, errors.errors[0].position.column), (2, 15), "{errors}");
    }
}

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn realistic_files_become_programs_with_a_rule_for_each_of_theirs() {
    let sets = parse_sets(&data("fail2ban.ipset"), "fail2ban.ipset").expect("sets");
    for name in ["server.v4", "ufw.v4", "fail2ban.v4", "docker.v4", "router.v4", "host.v6", "chain.v6"] {
        let family = if name.ends_with("v4") { Family::Ipv4 } else { Family::Ipv6 };
        let rules = parse_rules(&data(name), name, family).unwrap_or_else(|errors| panic!("{errors}"));
        let lowered =
            rules.lower(&sets, &surroundings(), Mode::Basic, name).unwrap_or_else(|errors| panic!("{errors}"));
        let filter = rules.filter().expect("filter");
        assert_eq!(lowered.program.chains.len(), filter.chains.len());
        for (chain, origins) in filter.chains.iter().zip(&lowered.origins) {
            assert_eq!(*origins, (0..chain.rules.len()).collect::<Vec<_>>(), "{name} {}", chain.name);
        }
    }
}

#[test]
fn programs_of_both_families_in_one() {
    let sets = SetFile::default();
    let first = parse_rules("*filter\n:a - [0:0]\n-A FORWARD -j a\nCOMMIT\n", "v4", Family::Ipv4).expect("v4");
    let second = parse_rules("*filter\n:b - [0:0]\n-A FORWARD -g b\nCOMMIT\n", "v6", Family::Ipv6).expect("v6");
    let mut both = first.lower(&sets, &surroundings(), Mode::Basic, "v4").expect("v4");
    let offset = both.append(second.lower(&sets, &surroundings(), Mode::Basic, "v6").expect("v6"));
    assert_eq!((offset, both.program.chains.len(), both.origins.len()), (4, 8, 8));
    assert_eq!(both.program.check(), Ok(()));
    assert_eq!(both.program.chains[1].rules[0].action, Action::Jump(3));
    assert_eq!(both.program.chains[5].rules[0].action, Action::Goto(7));
}

#[test]
fn yaml_says_the_same() {
    let wanted = parse_rules(&data("rules.v6"), "rules.v6", Family::Ipv6).unwrap_or_else(|errors| panic!("{errors}"));
    let found = parse_yaml(&data("rules.yaml"), "rules.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(found.save(false), wanted.save(false));
    assert!(found == wanted);
    let sets = parse_sets("create scanners hash:ip family inet6\n", "sets").expect("sets");
    let lowered =
        found.lower(&sets, &surroundings(), Mode::Basic, "rules.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    // The lines are the YAML file's.
    assert_eq!(
        lowered.program.chain("FORWARD").map(|chain| lowered.program.chains[chain].rules[0].line),
        Some(Some(7))
    );
}

#[test]
fn json_schema_of_the_yaml_form_knows_its_keys() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/firewall-rules.json");
    let schema = segue_iptables::schema();
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::write(&path, format!("{schema:#}\n")).expect("schema");
    }
    let published = std::fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
    assert_eq!(
        published.as_ref(),
        Some(&schema),
        "run SEGUE_UPDATE=1 cargo test -p segue-iptables --test iptables json_schema"
    );
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["$defs"]["SrhForm"]["properties"]["segments_left_above"].is_object(), "{schema:#}");
}

#[test]
fn ten_thousand_rules_become_a_program_quickly() {
    let mut source = "*filter\n".to_owned();
    for index in 0..10_000 {
        source.push_str(&format!(
            "-A FORWARD -s 10.{}.{}.0/24 -i eth+ -p tcp --dport {index} -j DROP\n",
            index >> 8,
            index & 255
        ));
    }
    source.push_str("COMMIT\n");
    let rules = parse_rules(&source, "large", Family::Ipv4).unwrap_or_else(|errors| panic!("{errors}"));
    let start = std::time::Instant::now();
    let lowered = rules.lower(&SetFile::default(), &surroundings(), Mode::Basic, "large").expect("program");
    println!("10,000 rules: {:?}", start.elapsed());
    assert_eq!(lowered.program.chains[1].rules.len(), 10_000);
    assert!(start.elapsed().as_millis() < 2_000, "{:?}", start.elapsed());
}
