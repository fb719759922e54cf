//! Rule files: what is read is what is written, and both are what iptables itself makes of the same file.

use std::path::PathBuf;

use proptest::prelude::*;
use segue_iptables::{Counters, Family, ListOptions, RuleSet, parse_rules};

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn family(name: &str) -> Family {
    if name.ends_with("v4") { Family::Ipv4 } else { Family::Ipv6 }
}

fn parse(source: &str, name: &str) -> RuleSet {
    parse_rules(source, name, family(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Without comments and, unless the file has them, counters.
fn written(source: &str) -> String {
    source.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

const FILES: [&str; 8] =
    ["server.v4", "ufw.v4", "fail2ban.v4", "docker.v4", "router.v4", "host.v6", "options.saved.v4", "options.saved.v6"];

#[test]
fn files_of_iptables_save_are_written_back_octet_by_octet() {
    for name in FILES {
        let source = data(name);
        let rules = parse(&source, name);
        assert_eq!(rules.save(name == "server.v4"), written(&source), "{name}");
    }
}

#[test]
fn what_is_written_reads_as_the_same() {
    for name in FILES.into_iter().chain(["chain.v6", "rules.v6", "options.v4", "options.v6"]) {
        let rules = parse(&data(name), name);
        assert!(parse(&rules.save(true), name) == rules, "{name}");
        // -S has neither table nor counters.
        let mut bare = rules.clone();
        for table in &mut bare.tables {
            for chain in &mut table.chains {
                chain.counters = Counters::default();
                chain.rules.iter_mut().for_each(|rule| rule.counters = Counters::default());
            }
        }
        bare.tables.retain(|table| table.name == "filter");
        let filter = rules.filter().expect("filter");
        assert!(parse(&filter.list_rules(), name) == bare, "{name} -S");
    }
}

/// `options.saved.*` and `options.list.*` are what iptables-legacy 1.8.9 made of `options.*`.
#[test]
fn options_are_saved_and_listed_as_iptables_does() {
    for version in ["v4", "v6"] {
        let name = format!("options.{version}");
        let rules = parse(&data(&name), &name);
        assert_eq!(rules.save(false), data(&format!("options.saved.{version}")));
        let options = ListOptions { verbose: true, exact: true, line_numbers: true };
        assert_eq!(rules.list_saved(options), data(&format!("options.list.{version}")));
    }
}

/// One rule in, what is printed for it out.
fn one(family: Family, rule: &str) -> Result<String, String> {
    let source = format!("*filter\n:user - [0:0]\n-A FORWARD {rule}\nCOMMIT\n");
    let rules = parse_rules(&source, "rule", family).map_err(|errors| errors.to_string())?;
    let filter = rules.filter().expect("filter");
    let chain = filter.chain("FORWARD").expect("FORWARD");
    let lines = chain.rules.iter().map(|rule| chain.rule_text(rule).replacen("-A FORWARD", "", 1));
    Ok(lines.collect::<Vec<_>>().join("\n").trim_start().to_owned())
}

#[test]
fn every_option_of_srh_in_both_spellings_with_and_without_negation() {
    let prefix = "fc00:7::/64";
    let options = [
        ("--inner-src", &["--inner-src"][..], prefix),
        ("--inner-dst", &["--inner-dst"], prefix),
        ("--srh-next-hdr", &["--srh-next-hdr"], "41"),
        ("--srh-hdr-len-eq", &["--srh-hdr-len-eq", "--srh-len-eq"], "4"),
        ("--srh-hdr-len-gt", &["--srh-hdr-len-gt", "--srh-len-gt"], "4"),
        ("--srh-hdr-len-lt", &["--srh-hdr-len-lt", "--srh-len-lt"], "4"),
        ("--srh-segs-left-eq", &["--srh-segs-left-eq", "--srh-segs-eq"], "255"),
        ("--srh-segs-left-gt", &["--srh-segs-left-gt", "--srh-segs-gt"], "0"),
        ("--srh-segs-left-lt", &["--srh-segs-left-lt", "--srh-segs-lt"], "1"),
        ("--srh-last-entry-eq", &["--srh-last-entry-eq", "--srh-last-eq"], "4"),
        ("--srh-last-entry-gt", &["--srh-last-entry-gt", "--srh-last-gt"], "4"),
        ("--srh-last-entry-lt", &["--srh-last-entry-lt", "--srh-last-lt"], "4"),
        ("--srh-tag", &["--srh-tag"], "65535"),
        ("--srh-psid", &["--srh-psid"], prefix),
        ("--srh-nsid", &["--srh-nsid"], prefix),
        ("--srh-lsid", &["--srh-lsid"], prefix),
    ];
    assert_eq!(options.len(), 16, "SERA's fifteen, and lsid");
    for (canonical, spellings, value) in options {
        for spelling in spellings {
            for not in ["", "! "] {
                let printed = one(Family::Ipv6, &format!("-m srh {not}{spelling} {value} -j DROP"));
                assert_eq!(printed, Ok(format!("-m srh {not}{canonical} {value} -j DROP")));
            }
        }
    }
}

/// Not in iptables: the printed form is in the order of the options' table, and always says which entry it is about.
#[test]
fn every_option_of_mpls_in_files_of_both_families() {
    let of_entry = ["--mpls-label 16002", "--mpls-label 16002:16009", "--mpls-tc 7", "--mpls-bos 1", "--mpls-ttl 0:9"];
    for family in [Family::Ipv4, Family::Ipv6] {
        for not in ["", "! "] {
            for option in of_entry {
                let printed = one(family, &format!("-m mpls {not}{option} -j DROP"));
                assert_eq!(printed, Ok(format!("-m mpls --mpls-depth 1 {not}{option} -j DROP")));
                for depth in ["0", "1", "16", "last"] {
                    let rule = format!("-m mpls --mpls-depth {depth} {not}{option} -j DROP");
                    assert_eq!(one(family, &rule), Ok(rule));
                }
            }
            let entries = format!("-m mpls {not}--mpls-entries 2:31 -j DROP");
            assert_eq!(one(family, &entries), Ok(entries));
        }
        for (rule, printed) in [
            ("-m mpls", "-m mpls"),
            ("-m mpls --mpls-depth 0x3", "-m mpls --mpls-depth 3"),
            ("-m mpls --mpls-label :15", "-m mpls --mpls-depth 1 --mpls-label 0:15"),
            ("-m mpls --mpls-label 16:", "-m mpls --mpls-depth 1 --mpls-label 16:1048575"),
            (
                "-m mpls --mpls-ttl 1: ! --mpls-tc 3 --mpls-label 5 --mpls-depth 2 --mpls-entries 3",
                "-m mpls --mpls-entries 3 --mpls-depth 2 --mpls-label 5 ! --mpls-tc 3 --mpls-ttl 1:255",
            ),
            ("-m mpls ! --mpls-depth any --mpls-label 5", "-m mpls ! --mpls-depth any --mpls-label 5"),
            ("-m mpls --mpls-depth any --mpls-tc 5", "-m mpls --mpls-depth any --mpls-tc 5"),
            ("-j MPLS", "-j MPLS --mpls-action go-next"),
            ("-j MPLS --mpls-action skip-next", "-j MPLS --mpls-action skip-next"),
            ("-j MPLS --mpls-action go-last --mpls-count 1", "-j MPLS --mpls-action go-last"),
            ("-j MPLS --mpls-action go-last --mpls-count 31", "-j MPLS --mpls-action go-last --mpls-count 31"),
            ("-j MPLS --mpls-action skip-next --mpls-count 2", "-j MPLS --mpls-action skip-next --mpls-count 2"),
        ] {
            assert_eq!(one(family, rule), Ok(printed.to_owned()));
        }
    }
}

#[test]
fn actions_of_seg6_in_both_spellings() {
    for action in ["go-next", "skip-next", "go-last", "eval-args"] {
        for spelling in [action.to_owned(), format!("seg6-{action}")] {
            let printed = one(Family::Ipv6, &format!("-j SEG6 --seg6-action {spelling}"));
            assert_eq!(printed, Ok(format!("-j SEG6 --seg6-action {action}")));
        }
    }
    assert_eq!(one(Family::Ipv6, "-j SEG6"), Ok("-j SEG6 --seg6-action go-next".to_owned()), "SERA's default");
}

/// Names of every table, and forms that iptables takes but does not write.
#[test]
fn other_spellings() {
    let v4 = [
        ("--source 10.1/16 --dst 10.0.0.1", "-s 10.1.0.0/16 -d 10.0.0.1/32"),
        ("--src=10.0.0.1 --in-interface lo --out-interface e+", "-s 10.0.0.1/32 -i lo -o e+"),
        ("-s 10.0.0.9/255.255.0.0", "-s 10.0.0.0/16"),
        ("-s 0.0.0.0/0 -d 0/0 -i + -p all", ""),
        ("-p TCP --syn --destination-port http", "-p tcp -m tcp --dport 80 --tcp-flags FIN,SYN,RST,ACK SYN"),
        ("-p udp --sport :1023 --dport 1024:", "-p udp -m udp --sport 0:1023 --dport 1024:65535"),
        ("-p 17 -m udp", "-p udp -m udp"),
        ("-p icmp --icmp-type ping", "-p icmp -m icmp --icmp-type 8"),
        ("-p icmp --icmp-type fragmentation-needed", "-p icmp -m icmp --icmp-type 3/4"),
        ("-p icmp ! --icmp-type 5/1", "-p icmp -m icmp ! --icmp-type 5/1"),
        ("-p tcp -m multiport --source-ports ssh,https", "-p tcp -m multiport --sports 22,443"),
        ("-p udp -m multiport ! --ports 1:2", "-p udp -m multiport ! --ports 1:2"),
        ("-m state ! --state new", "-m state ! --state NEW"),
        ("-m mark --mark 010/0xF0", "-m mark --mark 0x8/0xf0"),
        ("-m limit --limit 90/hour --limit-burst 5", "-m limit --limit 90/hour"),
        ("-m limit --limit 1/day", "-m limit --limit 1/day"),
        ("-m limit --limit 4801/minute", "-m limit --limit 80/sec"),
        ("-m dscp --dscp-class af43", "-m dscp --dscp 0x26"),
        ("-m dscp --dscp-class CS7", "-m dscp --dscp 0x38"),
        ("-m tos --tos maximize-throughput", "-m tos --tos 0x08/0x3f"),
        ("-m mac --mac-source 0:1:2:A:B:C", "-m mac --mac-source 00:01:02:0a:0b:0c"),
        (
            "-m set --match-set a src,dst -m set ! --match-set b dst",
            "-m set --match-set a src,dst -m set ! --match-set b dst",
        ),
        ("-m comment --comment \"-j DROP # no\"", "-m comment --comment \"-j DROP # no\""),
        ("-m comment --comment ! -j DROP", "refused"),
        ("-j REJECT --reject-with host-unreach", "-j REJECT --reject-with icmp-host-unreachable"),
        ("-j LOG --log-level notice --log-prefix \"a \\\" b\"", "-j LOG --log-prefix \"a \\\" b\" --log-level 5"),
        ("-j MARK --set-mark 1/2", "-j MARK --set-xmark 0x1/0x3"),
        ("-j NFLOG --nflog-group 65535", "-j NFLOG --nflog-group 65535"),
        ("--goto user", "-g user"),
        ("--jump user -s 10.0.0.1", "-s 10.0.0.1/32 -j user"),
        (
            "-s 10.0.0.1,10.0.1.0/24 -d 10.0.0.3,10.0.0.4 -j DROP",
            "-s 10.0.0.1/32 -d 10.0.0.3/32 -j DROP\n-A FORWARD -s 10.0.0.1/32 -d 10.0.0.4/32 -j DROP\n\
             -A FORWARD -s 10.0.1.0/24 -d 10.0.0.3/32 -j DROP\n-A FORWARD -s 10.0.1.0/24 -d 10.0.0.4/32 -j DROP",
        ),
    ];
    for (rule, wanted) in v4 {
        let printed = one(Family::Ipv4, rule).map(|text| text.replace("\n ", "\n-A FORWARD "));
        match wanted {
            "refused" => assert!(printed.is_err(), "{rule}"),
            wanted => assert_eq!(printed, Ok(wanted.to_owned()), "{rule}"),
        }
    }
    let v6 = [
        ("-p icmpv6 --icmpv6-type echo-reply", "-p ipv6-icmp -m icmp6 --icmpv6-type 129"),
        ("-p ipv6-icmp -m icmpv6 ! --icmpv6-type 1/3", "-p ipv6-icmp -m icmp6 ! --icmpv6-type 1/3"),
        ("-s 2001:DB8::5/32 ! -d ::1", "-s 2001:db8::/32 ! -d ::1/128"),
        ("-m hl --hl 3", "-m hl --hl-eq 3"),
        ("-m frag --fragid 9", "-m frag --fragid 9"),
        ("-j REJECT --reject-with no-route", "-j REJECT --reject-with icmp6-no-route"),
        ("-m srh --srh-next-hdr tcp", "-m srh --srh-next-hdr 6"),
    ];
    for (rule, wanted) in v6 {
        assert_eq!(one(Family::Ipv6, rule), Ok(wanted.to_owned()), "{rule}");
    }
}

#[test]
fn commands_that_make_a_file_by_hand() {
    let source = "\
        # as iptables -S prints, and what people add\n\
        -P INPUT DROP -c 5 300\n\
        -N web\n\
        -A INPUT -p tcp -c 7 420 -j web\n\
        -I INPUT -i lo -j ACCEPT\n\
        --insert INPUT 3 -j RETURN\n\
        \t\n\
        -A web -j DROP\r\n";
    let rules = parse_rules(source, "hand", Family::Ipv4).unwrap_or_else(|errors| panic!("{errors}"));
    let wanted = "*filter\n:INPUT DROP [5:300]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:web - [0:0]\n\
        [0:0] -A INPUT -i lo -j ACCEPT\n[7:420] -A INPUT -p tcp -j web\n[0:0] -A INPUT -j RETURN\n[0:0] -A web -j DROP\nCOMMIT\n";
    assert_eq!(rules.save(true), wanted);
}

/// Widths and units as iptables has them.
#[test]
fn counters_in_the_listing() {
    let source = "*filter\n:INPUT DROP [99999:100000]\n:user - [0:0]\n[123456:9999499] -A INPUT -j user\n\
        [9999500:12345678901] -A INPUT -g user\n[12345678901234:18446744073709551615] -A INPUT\nCOMMIT\n";
    let rules = parse_rules(source, "counters", Family::Ipv4).unwrap_or_else(|errors| panic!("{errors}"));
    let listed = rules.list_saved(ListOptions { verbose: true, ..ListOptions::default() });
    let lines = listed.lines().collect::<Vec<_>>();
    assert_eq!(lines[0], "Chain INPUT (policy DROP 99999 packets, 100K bytes)");
    assert_eq!(lines[1], " pkts bytes target     prot opt in     out     source               destination         ");
    assert_eq!(lines[2], " 123K 9999K user       0    --  *      *       0.0.0.0/0            0.0.0.0/0           ");
    assert_eq!(
        lines[3],
        "  10M   12G user       0    --  *      *       0.0.0.0/0            0.0.0.0/0           [goto] "
    );
    assert!(lines[4].starts_with("  12T 18446744T "), "{}", lines[4]);
    assert!(listed.ends_with("Chain user (2 references)\n pkts bytes target     prot opt in     out     source               destination         \n"));
    let short = rules.list_saved(ListOptions::default());
    assert!(short.starts_with("Chain INPUT (policy DROP)\ntarget     prot opt source               destination         \nuser       0    --  0.0.0.0/0            0.0.0.0/0           \n"));
}

#[test]
fn ten_thousand_lines_in_well_under_a_tenth_of_a_second() {
    let mut source = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n".to_owned();
    for index in 0..10_000 {
        source.push_str(&format!(
            "[0:0] -A FORWARD -s 10.{}.{}.0/24 -d 192.0.2.{}/32 -i eth0 -p tcp -m tcp --dport {} -m comment --comment \"rule {index}\" -j ACCEPT\n",
            index >> 8,
            index & 255,
            index % 250,
            index % 65_536,
        ));
    }
    source.push_str("COMMIT\n");
    let start = std::time::Instant::now();
    let rules = parse_rules(&source, "large", Family::Ipv4).unwrap_or_else(|errors| panic!("{errors}"));
    let took = start.elapsed();
    assert_eq!(rules.filter().expect("filter").chain("FORWARD").expect("FORWARD").rules.len(), 10_000);
    println!("10,000 lines: {took:?}");
    // Twenty times what it takes here, for slow machines that run other tests besides.
    assert!(took.as_millis() < 1_000, "{took:?}");
}

/// Parts of rules, each valid in IPv6 rules with `-p tcp`.
fn part() -> impl Strategy<Value = String> {
    let not = prop_oneof![Just(""), Just("! ")];
    let port = prop_oneof![
        any::<u16>().prop_map(|port| port.to_string()),
        (0..100_u16, 100..9_000_u16).prop_map(|(a, b)| format!("{a}:{b}"))
    ];
    let unit = prop_oneof![Just("sec"), Just("min"), Just("hour"), Just("day")];
    prop_oneof![
        (not.clone(), port.clone()).prop_map(|(not, port)| format!("-m tcp {not}--dport {port}")),
        (not.clone(), port.clone(), port).prop_map(|(not, a, b)| format!("-m multiport {not}--ports {a},{b}")),
        (1..=10_000_u32, unit.clone(), 1..=10_000_u32)
            .prop_map(|(rate, unit, burst)| format!("-m limit --limit {rate}/{unit} --limit-burst {burst}")),
        (1..=1_000_000_u32, unit, any::<bool>()).prop_map(|(rate, unit, above)| {
            format!(
                "-m hashlimit --hashlimit-{} {rate}/{unit} --hashlimit-mode dstip --hashlimit-name x",
                if above { "above" } else { "upto" }
            )
        }),
        (not.clone(), any::<u128>(), 0..=128_u8).prop_map(|(not, sid, length)| {
            format!("-m srh {not}--srh-nsid {}/{length}", std::net::Ipv6Addr::from_bits(sid))
        }),
        (not.clone(), any::<u8>(), any::<u8>())
            .prop_map(|(not, value, mask)| format!("-m tos {not}--tos {value:#x}/{mask:#x}")),
        (not.clone(), any::<u32>(), any::<u32>())
            .prop_map(|(not, value, mask)| format!("-m mark {not}--mark {value}/{mask}")),
        (not.clone(), any::<u32>()).prop_map(|(not, id)| format!("-m frag {not}--fragid {id} --fragfirst")),
        any::<bool>().prop_map(|reply| {
            format!("-m conntrack --ctstate NEW --ctdir {}", if reply { "REPLY" } else { "ORIGINAL" })
        }),
        (not, 1..64_u8).prop_map(|(not, bits)| {
            let names =
                [("INVALID", 1), ("NEW", 2), ("RELATED", 4), ("ESTABLISHED", 8), ("UNTRACKED", 16), ("NEW", 32)];
            let set = names.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect::<Vec<_>>();
            format!("-m conntrack {not}--ctstate {}", set.join(","))
        }),
        "[ -~é]{0,40}"
            .prop_map(|text| format!("-m comment --comment \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_made_at_random_read_back_as_written(
        source in any::<u128>(), length in 0..=128_u8, parts in prop::collection::vec(part(), 0..6), target in 0..6_usize,
    ) {
        let source = std::net::Ipv6Addr::from_bits(source);
        let target = ["", "-j ACCEPT", "-g user", "-j REJECT --reject-with tcp-reset", "-j MARK --or-mark 9", "-j LOG --log-prefix \"' \\\"\""][target];
        let text = format!("*filter\n:user - [0:0]\n-A FORWARD -s {source}/{length} -p tcp {} {target}\nCOMMIT\n", parts.join(" "));
        let rules = parse_rules(&text, "random", Family::Ipv6).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let saved = rules.save(true);
        let again = parse_rules(&saved, "saved", Family::Ipv6).unwrap_or_else(|errors| panic!("{errors}\n{saved}"));
        prop_assert_eq!(again.save(true), saved.as_str());
        prop_assert!(again == rules, "{}", saved);
    }
}
