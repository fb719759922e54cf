//! The firewall on real packets: as the function of a SID (encapsulated and inserted SRHs) and alone on a port, with rules from
//! ip6tables-save and iptables-save.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

const FIREWALL: u16 = 0xa1;
const SID: &str = "sid fc00:0:1:a1::/64";

/// A configuration with firewall `fw` at SID `fc00:0:1:a1::/64` and on port acc0; the rules stand behind `:FORWARD ACCEPT`.
fn with_rules(ipv6: &[&str], ipv4: &[&str], more: &str) -> String {
    let file = |name: &str, rules: &[&str]| {
        let text = format!("*filter\\n:INPUT ACCEPT [0:0]\\n:FORWARD ACCEPT [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
        format!("{{file: {name}, text: \"{text}\"}}")
    };
    let firewall =
        format!("firewalls:\n  - {{name: fw, ipv6: {}, ipv4: {}{more}}}\n", file("v6", ipv6), file("v4", ipv4));
    configuration(DOMAIN)
        .replacen(
            "sids:\n",
            &format!("{firewall}sids:\n  - {{sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}}\n"),
            1,
        )
        .replacen("{name: acc0, role: access}", "{name: acc0, role: access, firewall: fw}", 1)
}

fn outer() -> Ipv6Repr {
    Ipv6Repr::new(HEADEND, local(FIREWALL))
}

fn srh() -> SrhRepr {
    SrhRepr::new(&[local(FIREWALL), behind_core1(0xa), behind_core1(0xb)])
}

fn six(packet: PacketBuilder, port: u16) -> PacketBuilder {
    packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, port)).payload(b"through the firewall")
}

fn four(packet: PacketBuilder, port: u16) -> PacketBuilder {
    packet.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(40_000, port)).payload(b"through the firewall")
}

/// In by core0 with an SRH, and how it leaves by core1 when it passes.
fn steered() -> PacketBuilder {
    arriving("core0").ipv6(outer()).srh(srh())
}

fn advanced(next: u16, left: u8) -> PacketBuilder {
    let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(next)) };
    leaving("core1").ipv6(outer).srh(srh().with_segments_left(left))
}

#[test]
#[ignore = "needs root"]
fn basic_encapsulated() {
    let network = Network::new();
    let ipv6 =
        ["-A FORWARD -d fd00:0:a1::/64 -p udp -m udp --dport 53 -j DROP", "-A FORWARD -s fd00:0:a0::2/128 -j ACCEPT"];
    let ipv4 = ["-A FORWARD -p udp -m multiport --dports 53,5353 -j DROP"];
    let node = Golden::load(&network, &with_rules(&ipv6, &ipv4, ""));
    node.drops("IPv6 to port 53", "core0", &six(steered(), 53), "drop_firewall");
    node.forwards("IPv6 to port 54", "core0", &six(steered(), 54), &six(advanced(0xa, 1), 54), &[SID]);
    node.drops("IPv4 to port 5353", "core0", &four(steered(), 5353), "drop_firewall");
    node.forwards("IPv4 to port 54", "core0", &four(steered(), 54), &four(advanced(0xa, 1), 54), &[SID]);
    let counted = node.node().firewall_counters();
    let rules: Vec<_> = counted[0].rules.iter().map(|rule| (rule.counter.packets, rule.counter.bytes)).collect();
    // IPv4 first: 20 + 8 + 20 octets; IPv6: 40 + 8 + 20.
    assert_eq!(rules, [(1, 48), (1, 68), (1, 68)], "{counted:?}");
    let policies: Vec<_> = counted[0].policies.iter().map(|policy| policy.counter.packets).collect();
    assert_eq!(policies.iter().sum::<u64>(), 1, "IPv4 to port 54 meets the policy: {counted:?}");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn basic_inserted_and_plain() {
    let network = Network::new();
    let ipv6 = ["-A FORWARD -d fd00:0:a1::/64 -p udp -m udp --dport 53 -j DROP"];
    let ipv4 = ["-A FORWARD -d 10.2.0.0/16 -p udp -m udp --dport 53 -j DROP"];
    let node = Golden::load(&network, &with_rules(&ipv6, &ipv4, ""));
    let list = [local(FIREWALL), behind_core1(0xa), SERVER];
    let srh = || SrhRepr::new(&list);
    let inserted = |port: u16| {
        arriving("core0")
            .ipv6(Ipv6Repr::new(CLIENT, local(FIREWALL)))
            .srh(srh())
            .udp(UdpRepr::new(40_000, port))
            .payload(b"inserted")
    };
    let onwards = |port: u16| {
        leaving("core1")
            .ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(CLIENT, behind_core1(0xa)) })
            .srh(srh().with_segments_left(1))
            .udp(UdpRepr::new(40_000, port))
            .payload(b"inserted")
    };
    node.drops("the original destination is Segment List[0]", "core0", &inserted(53), "drop_firewall");
    node.forwards("another port", "core0", &inserted(54), &onwards(54), &[SID]);
    let plain = |port| six(arriving("acc0"), port);
    node.drops("plain IPv6 in by a port", "acc0", &plain(53), "drop_firewall");
    node.passes("plain IPv6 that passes", "acc0", &plain(54), &plain(54), "passed_not_for_segue", &[]);
    let plain = |port| four(arriving("acc0"), port);
    node.drops("plain IPv4 in by a port", "acc0", &plain(53), "drop_firewall");
    node.passes("plain IPv4 that passes", "acc0", &plain(54), &plain(54), "passed_not_for_segue", &[]);
    node.finish();
}

/// What is in a tunnel that is none of Segue's is its ends' business: it is forwarded by its own header, and rules judge that.
#[test]
#[ignore = "needs root"]
fn a_tunnel_is_not_what_is_in_it() {
    let network = Network::new();
    let allowed = ["-A FORWARD -d fd00:0:a1::2 -p udp -j ACCEPT", "-A FORWARD -j DROP"];
    let mut node = Golden::load(&network, &with_rules(&allowed, &[], ""));
    let plain = || six(arriving("acc0"), 54);
    let within = |destination| arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
    node.passes("what the rules allow", "acc0", &plain(), &plain(), "passed_not_for_segue", &[]);
    for (case, tunnel) in [("IPv6", six(within(HEADEND), 54)), ("IPv4", four(within(HEADEND), 54))] {
        node.drops(&format!("{case} in a tunnel to somebody else"), "acc0", &tunnel, "drop_firewall");
    }
    // To a SID it is steered, although nobody may do so by this port.
    node.drops("to a SID", "acc0", &six(within(behind_core1(1)), 54), "drop_sid_from_outside");
    let hidden = within(local(1)).inner_ipv6(Ipv6Repr::new(CLIENT, HEADEND)).udp(UdpRepr::new(1, 2));
    node.drops("to a SID of this node, with what is not allowed", "acc0", &hidden, "drop_firewall");

    node.apply(&with_rules(&["-A FORWARD -p 41 -j DROP", "-A FORWARD -p 4 -j DROP"], &[], ""));
    for (case, tunnel) in [("IPv6", six(within(HEADEND), 54)), ("IPv4", four(within(HEADEND), 54))] {
        node.drops(&format!("{case} in any tunnel"), "acc0", &tunnel, "drop_firewall");
    }
    node.passes("and without one", "acc0", &plain(), &plain(), "passed_not_for_segue", &[]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn switched_off_and_on() {
    let network = Network::new();
    let rules = ["-A FORWARD -j DROP"];
    let mut node = Golden::load(&network, &with_rules(&rules, &rules, ", basic: false"));
    node.forwards("off", "core0", &six(steered(), 77), &six(advanced(0xa, 1), 77), &[SID]);
    node.apply(&with_rules(&rules, &rules, ""));
    node.drops("on", "core0", &six(steered(), 77), "drop_firewall");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn chains_marks_limits_and_sets() {
    let network = Network::new();
    let sets = ", sets: [{file: sets, text: \"create bad hash:net family inet6\\nadd bad fd00:0:a0::/48\\nadd bad fd00:0:a0::/64 nomatch\\n\"}]";
    let ipv6 = [
        ":web - [0:0]",
        ":all - [0:0]",
        "-A FORWARD -p udp --dport 80 -j web",
        "-A FORWARD -p udp --dport 81 -m limit --limit 1/hour --limit-burst 2 -j DROP",
        "-A FORWARD -p udp --dport 82 -m set --match-set bad src -j DROP",
        "-A FORWARD -p udp --dport 83 -m set ! --match-set bad src -j DROP",
        "-A FORWARD -p udp --dport 84 -g all",
        "-A FORWARD -p udp -m multiport --dports 84,99 -j DROP",
        "-A FORWARD -p udp --dport 85 -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 1 --hashlimit-mode srcip --hashlimit-name h -j DROP",
        "-A web -j MARK --set-mark 0x7",
        "-A web -m mark --mark 0x7 -j RETURN",
        "-A web -j DROP",
        "-A all -j MARK --set-xmark 0x1/0x0",
    ];
    let node = Golden::load(&network, &with_rules(&ipv6, &[], sets));
    let passes = |case: &str, port: u16| {
        node.forwards(case, "core0", &six(steered(), port), &six(advanced(0xa, 1), port), &[SID]);
    };
    let drops = |case: &str, port: u16| node.drops(case, "core0", &six(steered(), port), "drop_firewall");
    passes("mark, return, policy", 80);
    drops("first token", 81);
    drops("second token", 81);
    passes("no token left", 81);
    passes("in the set only by nomatch: not in it", 82);
    drops("not in the set", 83);
    passes("goto: the end of the chain is that of FORWARD", 84);
    drops("first token of the source", 85);
    passes("no token left for the source", 85);
    let other = |packet: PacketBuilder| {
        packet
            .inner_ipv6(Ipv6Repr::new("fd00:0:a0:1::9".parse().expect("an address"), SERVER))
            .udp(UdpRepr::new(1, 82))
            .payload(b"in the set")
    };
    node.drops("in the set", "core0", &other(steered()), "drop_firewall");
    node.finish();
}

/// `-o` is the interface of the route to the next segment, or to a plain packet's destination.
#[test]
#[ignore = "needs root"]
fn outgoing_interfaces() {
    let network = Network::new();
    let rules = [
        "-A FORWARD -i core0 -o core1 -p udp --dport 1 -j DROP",
        "-A FORWARD ! -o core1 -p udp --dport 2 -j DROP",
        "-A FORWARD -o acc+ -p udp --dport 3 -j DROP",
        "-A FORWARD -i acc0 ! -o core+ -p udp --dport 4 -j DROP",
    ];
    let node = Golden::load(&network, &with_rules(&rules, &rules, ""));
    let path = |next| SrhRepr::new(&[local(FIREWALL), next, behind_core1(0xb)]);
    let to = |next, port| six(arriving("core0").ipv6(outer()).srh(path(next)), port);
    let from = |link, next, port| {
        let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, next) };
        six(leaving(link).ipv6(outer).srh(path(next).with_segments_left(1)), port)
    };
    let (one, two) = (behind_core1(0xa), behind_core2(0xa));
    node.drops("the next segment is behind core1", "core0", &to(one, 1), "drop_firewall");
    node.forwards("the next segment is behind core2", "core0", &to(two, 1), &from("core2", two, 1), &[SID]);
    node.forwards("negated, behind core1", "core0", &to(one, 2), &from("core1", one, 2), &[SID]);
    node.drops("negated, behind core2", "core0", &to(two, 2), "drop_firewall");
    node.forwards("the inner destination does not count", "core0", &to(one, 3), &from("core1", one, 3), &[SID]);
    for packet in [six, four] {
        let plain = |port| packet(arriving("acc0"), port);
        node.drops("plain, to another access port", "acc0", &plain(3), "drop_firewall");
        node.drops("plain, not to a core port", "acc0", &plain(4), "drop_firewall");
        node.passes("plain, not from core0", "acc0", &plain(1), &plain(1), "passed_not_for_segue", &[]);
    }
    let plain = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, HEADEND)).udp(UdpRepr::new(40_000, 4));
    node.passes("plain, to a core port", "acc0", &plain, &plain, "passed_not_for_segue", &[]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn rejected() {
    let network = Network::new();
    let ipv6 = ["-A FORWARD -p udp --dport 53 -j REJECT --reject-with icmp6-adm-prohibited"];
    let ipv4 = ["-A FORWARD -p udp --dport 53 -j REJECT"];
    let node = Golden::load(&network, &with_rules(&ipv6, &ipv4, ""));
    for (packet, kind) in [(six(steered(), 53), (1_u8, 1_u8)), (four(steered(), 53), (3, 3))] {
        let found = node.send("core0", &packet);
        assert!(matches!(found.verdict, Verdict::Redirect | Verdict::Transmit), "{:?}", found.moved);
        assert_eq!(
            found.moved.get("core0 drop_firewall_rejected").map(|counter| counter.0),
            Some(1),
            "{:?}",
            found.moved
        );
        assert_eq!(found.moved.get("icmp unreachable").map(|counter| counter.0), Some(1), "{:?}", found.moved);
        let upper = if found.frame[12] == 0x86 { 14 + 40 } else { 14 + 20 };
        assert_eq!((found.frame[upper], found.frame[upper + 1]), kind);
        let destination = if upper == 54 { CLIENT.octets().to_vec() } else { CLIENT4.octets().to_vec() };
        assert_eq!(found.frame[upper - destination.len()..upper], destination, "told to the inner source");
    }
    node.finish();
}

/// In advanced mode IPv4 packets meet the rules for IPv6; what they are told is ICMP's, as by nftables' `icmpx`.
#[test]
#[ignore = "needs root"]
fn rejected_ipv4_by_rules_for_ipv6() {
    const REASONS: [(&str, u8); 7] = [
        ("icmp6-no-route", 0),
        ("icmp6-adm-prohibited", 13),
        ("icmp6-addr-unreachable", 1),
        ("icmp6-port-unreachable", 3),
        ("icmp6-policy-fail", 13),
        ("icmp6-reject-route", 13),
        ("", 3),
    ];
    let network = Network::new();
    let rule = |(port, (reason, _)): (usize, &(&str, u8))| {
        let with = if reason.is_empty() { String::new() } else { format!(" --reject-with {reason}") };
        format!("-A FORWARD -p udp --dport {port} -j REJECT{with}")
    };
    let rules: Vec<String> = REASONS.iter().enumerate().map(rule).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let node = Golden::load(&network, &with_rules(&rules, &[], ", mode: advanced"));
    for (port, (reason, code)) in (0_u16..).zip(REASONS) {
        let found = node.send("core0", &four(steered(), port));
        assert_eq!(found.moved.get("icmp unreachable").map(|counter| counter.0), Some(1), "{:?}", found.moved);
        assert_eq!(found.frame[12..14], [8, 0], "{reason}: IPv4");
        assert_eq!(found.frame[34..36], [3, code], "{reason}");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn advanced_seg6_actions() {
    let network = Network::new();
    let ipv6 = [
        "-A FORWARD -s fd00:0:9::/48 -m srh --srh-tag 1 -j SEG6 --seg6-action seg6-go-next",
        "-A FORWARD -m srh --srh-tag 2 --inner-dst fd00:0:a1::2/128 -j SEG6 --seg6-action seg6-skip-next",
        "-A FORWARD -m srh --srh-tag 3 ! --srh-segs-eq 1 -j SEG6 --seg6-action seg6-go-last",
        "-A FORWARD -m srh --srh-tag 4 --srh-nsid fc00:0:2:a::/64 -j SEG6 --seg6-action seg6-eval-args",
        "-A FORWARD -j DROP",
    ];
    let node = Golden::load(&network, &with_rules(&ipv6, &[], ", mode: advanced"));
    let list = [local(FIREWALL), behind_core1(0xa), behind_core1(0xb), behind_core1(0xc)];
    let tagged = |tag| SrhRepr { tag, ..SrhRepr::new(&list) };
    let to = |tag, sid| six(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, sid)).srh(tagged(tag)), 1);
    let from = |tag, next, left| {
        let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(next)) };
        six(leaving("core1").ipv6(outer).srh(tagged(tag).with_segments_left(left)), 1)
    };
    node.forwards("go-next", "core0", &to(1, local(FIREWALL)), &from(1, 0xa, 2), &[SID]);
    node.forwards("skip-next", "core0", &to(2, local(FIREWALL)), &from(2, 0xb, 1), &[SID]);
    node.forwards("go-last", "core0", &to(3, local(FIREWALL)), &from(3, 0xc, 0), &[SID]);
    let argument = |value: u16| {
        let mut octets = local(FIREWALL).octets();
        octets[8..10].copy_from_slice(&value.to_be_bytes());
        std::net::Ipv6Addr::from(octets)
    };
    for (value, next, left) in [(0, 0xa, 2), (1, 0xb, 1), (2, 0xc, 0)] {
        node.forwards("eval-args", "core0", &to(4, argument(value)), &from(4, next, left), &[SID]);
    }
    let found = node.send("core0", &to(4, argument(9)));
    assert_eq!(found.moved.get("icmp parameter_problem").map(|counter| counter.0), Some(1), "{:?}", found.moved);
    assert_eq!(found.frame[54..56], [4, 0], "Parameter Problem, code 0");
    assert_eq!(found.frame[58..62], [0, 0, 0, 24], "points at the active SID, the destination address");
    node.drops("no rule", "core0", &to(5, local(FIREWALL)), "drop_firewall");
    node.finish();
}
