//! Every key of the YAML form, and what it is in iptables' form.

use segue_iptables::{Family, parse_rules, parse_yaml};

/// The rule that a YAML rule becomes, as iptables-save writes it.
fn printed(family: Family, rule: &str) -> Result<String, String> {
    let name = if family == Family::Ipv4 { "ipv4" } else { "ipv6" };
    let source = format!("family: {name}\nchains:\n  FORWARD:\n    rules:\n      - {rule}\n  user:\n    rules: []\n");
    let rules = parse_yaml(&source, "yaml").map_err(|errors| errors.to_string())?;
    let chain = rules.filter().and_then(|table| table.chain("FORWARD")).ok_or("no chain")?;
    let text = chain.rules.iter().map(|rule| chain.rule_text(rule).replacen("-A FORWARD", "", 1)).collect::<Vec<_>>();
    Ok(text.join("|").trim().to_owned())
}

fn table(family: Family, cases: &[(&str, &str)]) {
    for (rule, wanted) in cases {
        assert_eq!(printed(family, rule), Ok((*wanted).to_owned()), "{rule}");
    }
}

#[test]
fn matches() {
    table(
        Family::Ipv4,
        &[
            ("{}", ""),
            ("{match: {source: 10.0.0.0/8, destination: 192.0.2.1}}", "-s 10.0.0.0/8 -d 192.0.2.1/32"),
            ("{none_of: {source: 10.0.0.0/8, destination: 192.0.2.1}}", "! -s 10.0.0.0/8 ! -d 192.0.2.1/32"),
            ("{match: {source: [10.0.0.1, 10.0.0.2]}}", "-s 10.0.0.1/32| -s 10.0.0.2/32"),
            ("{match: {in_interface: eth0, out_interface: wg+}}", "-i eth0 -o wg+"),
            ("{none_of: {in_interface: eth0, out_interface: wg+}}", "! -i eth0 ! -o wg+"),
            ("{match: {protocol: 17}}", "-p udp"),
            ("{none_of: {protocol: tcp}}", "! -p tcp"),
            ("{match: {later_fragment: true}}", "-f"),
            ("{none_of: {later_fragment: true}}", "! -f"),
            ("{match: {protocol: tcp, source_ports: 1024-65535}}", "-p tcp -m multiport --sports 1024:65535"),
            ("{match: {protocol: tcp, ports: [http, 90-99]}}", "-p tcp -m multiport --ports 80,90:99"),
            (
                "{match: {protocol: tcp}, none_of: {destination_ports: 80, ports: 5}}",
                "-p tcp -m multiport ! --dports 80 -m multiport ! --ports 5",
            ),
            ("{match: {protocol: tcp}, none_of: {syn: true}}", "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"),
            (
                "{match: {protocol: tcp, tcp_flags: {of: [SYN, ACK], set: ACK}, tcp_option: 8}}",
                "-p tcp -m tcp --tcp-flags SYN,ACK ACK -m tcp --tcp-option 8",
            ),
            ("{match: {protocol: icmp, icmp: 3/4}}", "-p icmp -m icmp --icmp-type 3/4"),
            ("{match: {protocol: icmp}, none_of: {icmp: ping}}", "-p icmp -m icmp ! --icmp-type 8"),
            (
                "{match: {source_range: 10.0.0.1-10.0.0.9}, none_of: {destination_range: 10.0.1.0-10.0.1.5}}",
                "-m iprange --src-range 10.0.0.1-10.0.0.9 -m iprange ! --dst-range 10.0.1.0-10.0.1.5",
            ),
            (
                "{match: {state: new}, none_of: {mark: 0x10/0xf0}}",
                "-m conntrack --ctstate NEW -m mark ! --mark 0x10/0xf0",
            ),
            ("{match: {length: 0-100}, none_of: {length: 64}}", "-m length --length 0:100 -m length ! --length 64"),
            (
                "{match: {dscp: 0x2e, tos: 0x10/0x3f}, none_of: {dscp: af41}}",
                "-m tos --tos 0x10/0x3f -m dscp --dscp 0x2e -m dscp ! --dscp 0x22",
            ),
            ("{match: {hop_limit: 64}}", "-m ttl --ttl-eq 64"),
            ("{match: {hop_limit_below: 5, hop_limit_above: 1}}", "-m ttl --ttl-lt 5 -m ttl --ttl-gt 1"),
            ("{match: {source_mac: 00:11:22:33:44:55}}", "-m mac --mac-source 00:11:22:33:44:55"),
            (
                "{match: {destination_type: [local, multicast]}, none_of: {source_type: broadcast}}",
                "-m addrtype --dst-type LOCAL,MULTICAST -m addrtype ! --src-type BROADCAST",
            ),
            (
                "{match: {sets: [{name: a, sides: [src, dst]}]}, none_of: {sets: [{name: b, sides: dst}]}}",
                "-m set --match-set a src,dst -m set ! --match-set b dst",
            ),
        ],
    );
    table(
        Family::Ipv6,
        &[
            ("{match: {fragment: {}}}", "-m frag"),
            (
                "{match: {fragment: {id: 5-9, reserved_zero: true, first: true, more: false}}}",
                "-m frag --fragid 5:9 --fragres --fragfirst --fraglast",
            ),
            ("{none_of: {fragment: {id: 5}}}", "-m frag ! --fragid 5"),
            ("{match: {srh: {}}}", "-m srh"),
            ("{none_of: {hop_limit: 255}}", "-m hl ! --hl-eq 255"),
            ("{match: {mpls: [{}]}}", "-m mpls"),
            (
                "{match: {mpls: [{label: 16000-16999, traffic_class: 5, bottom: 0, ttl: 2-9}, {depth: any, label: 7}, {entries: 1-9}]}}",
                "-m mpls --mpls-depth 1 --mpls-label 16000:16999 --mpls-tc 5 --mpls-bos 0 --mpls-ttl 2:9 \
                 -m mpls --mpls-depth any --mpls-label 7 -m mpls --mpls-entries 1:9",
            ),
            (
                "{none_of: {mpls: [{depth: 2, label: 5, ttl: 1}, {depth: any, label: 7, traffic_class: 1}, {entries: 1}]}}",
                "-m mpls --mpls-depth 2 ! --mpls-label 5 -m mpls --mpls-depth 2 ! --mpls-ttl 1 \
                 -m mpls ! --mpls-depth any --mpls-label 7 -m mpls ! --mpls-depth any --mpls-tc 1 -m mpls ! --mpls-entries 1",
            ),
            ("{match: {protocol: ipv6-icmp, icmp: echo-reply}}", "-p ipv6-icmp -m icmp6 --icmpv6-type 129"),
        ],
    );
    for (key, option, value) in [
        ("inner_source", "--inner-src", "fc00::/64"),
        ("inner_destination", "--inner-dst", "fc00::/64"),
        ("next_header", "--srh-next-hdr", "41"),
        ("length", "--srh-hdr-len-eq", "4"),
        ("length_above", "--srh-hdr-len-gt", "4"),
        ("length_below", "--srh-hdr-len-lt", "4"),
        ("segments_left", "--srh-segs-left-eq", "1"),
        ("segments_left_above", "--srh-segs-left-gt", "1"),
        ("segments_left_below", "--srh-segs-left-lt", "1"),
        ("last_entry", "--srh-last-entry-eq", "1"),
        ("last_entry_above", "--srh-last-entry-gt", "1"),
        ("last_entry_below", "--srh-last-entry-lt", "1"),
        ("tag", "--srh-tag", "7"),
        ("previous_sid", "--srh-psid", "fc00:1::1/128"),
        ("next_sid", "--srh-nsid", "fc00:1::1/128"),
        ("last_sid", "--srh-lsid", "fc00:1::1/128"),
    ] {
        table(
            Family::Ipv6,
            &[
                (&format!("{{match: {{srh: {{{key}: \"{value}\"}}}}}}"), &format!("-m srh {option} {value}")),
                (&format!("{{none_of: {{srh: {{{key}: \"{value}\"}}}}}}"), &format!("-m srh ! {option} {value}")),
            ],
        );
    }
}

#[test]
fn limits_comments_and_targets() {
    table(
        Family::Ipv4,
        &[
            ("{limit: {rate: 5/minute}}", "-m limit --limit 5/min"),
            (
                "{limit: {rate: 5/minute, burst: 9}, comment: it's, action: accept}",
                "-m limit --limit 5/min --limit-burst 9 -m comment --comment \"it\\'s\" -j ACCEPT",
            ),
            (
                "{hash_limit: {name: x, above: 9/hour, burst: 3, by: [dstip, srcip], source_prefix: 24, destination_prefix: 16, expire_ms: 5, entries_max: 7}}",
                "-m hashlimit --hashlimit-above 9/hour --hashlimit-burst 3 --hashlimit-mode srcip,dstip --hashlimit-name x \
             --hashlimit-htable-max 7 --hashlimit-htable-expire 5 --hashlimit-srcmask 24 --hashlimit-dstmask 16",
            ),
            ("{action: accept}", "-j ACCEPT"),
            ("{action: drop}", "-j DROP"),
            ("{action: return}", "-j RETURN"),
            ("{action: reject}", "-j REJECT --reject-with icmp-port-unreachable"),
            ("{action: count}", ""),
            ("{jump: user}", "-j user"),
            ("{goto: user}", "-g user"),
            ("{reject: icmp-host-prohibited}", "-j REJECT --reject-with icmp-host-prohibited"),
            ("{log: {}}", "-j LOG"),
            (
                "{log: {prefix: \"a b\", level: debug, tcp_sequence: true, ip_options: true}}",
                "-j LOG --log-prefix \"a b\" --log-level 7 --log-tcp-sequence --log-ip-options",
            ),
            ("{nflog: {}}", "-j NFLOG"),
            (
                "{nflog: {group: 1, prefix: x, size: 64, threshold: 2}}",
                "-j NFLOG --nflog-prefix x --nflog-group 1 --nflog-size 64 --nflog-threshold 2",
            ),
            ("{mark: 7}", "-j MARK --set-xmark 0x7/0xffffffff"),
        ],
    );
    for action in ["go-next", "skip-next", "go-last", "eval-args"] {
        table(Family::Ipv6, &[(&format!("{{seg6: {action}}}"), &format!("-j SEG6 --seg6-action {action}"))]);
    }
}

/// A value cannot become an option or a negation.
#[test]
fn values_stay_values() {
    table(
        Family::Ipv4,
        &[
            ("{comment: \"-j ACCEPT\"}", "-m comment --comment \"-j ACCEPT\""),
            ("{comment: \"!\"}", "-m comment --comment \"!\""),
        ],
    );
    for rule in ["{match: {source: \"!\"}}", "{match: {source: \"10.0.0.1 -j ACCEPT\"}}", "{jump: \"-j\"}"] {
        assert!(printed(Family::Ipv4, rule).is_err(), "{rule}");
    }
}

#[test]
fn what_is_printed_reads_as_the_same_rules() {
    let source = "family: ipv4\nchains:\n  INPUT: {policy: drop}\n  FORWARD:\n    rules:\n      - {match: {protocol: udp, ports: [1, 2]}, goto: 'a chain'}\n";
    assert!(parse_yaml(source, "yaml").is_err(), "no such chain, and a blank in its name");
    let source = source.replace("'a chain'", "a-chain") + "  a-chain: {}\n";
    let rules = parse_yaml(&source, "yaml").unwrap_or_else(|errors| panic!("{errors}"));
    assert!(parse_rules(&rules.save(true), "saved", Family::Ipv4).as_ref() == Ok(&rules));
}
