//! What rules mean, against the kernel's netfilter: packets of many kinds are sent in a network namespace of its own past every rule
//! of `options.*`, each without its target, and the rules that counted them are those whose conditions hold here. Needs root, and
//! the commands `ip`, `iptables-legacy`, `ip6tables-legacy`.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto, setsockopt, socket,
    sockopt,
};
use segue_classifier::{Field, Key, interpreter};
use segue_iptables::{Family, Match, Mode, NodeInterface, RuleSet, SetFile, Surroundings, Target, parse_rules};

const MARK: u32 = 5;

fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("input");
    let output = child.wait_with_output().expect("output");
    assert!(output.status.success(), "{program} {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A packet: its octets, and the same as fields.
struct Packet {
    octets: Vec<u8>,
    key: Key,
}

/// Layer 4 of a packet: protocol, octets, fields.
type Upper = (u8, Vec<u8>, Vec<(Field, u128)>);

fn udp(source: u16, destination: u16, payload: usize) -> Upper {
    let mut octets =
        [source.to_be_bytes(), destination.to_be_bytes(), ((8 + payload) as u16).to_be_bytes(), [0, 0]].concat();
    octets.resize(8 + payload, 0);
    (17, octets, vec![(Field::SourcePort, source.into()), (Field::DestinationPort, destination.into())])
}

/// `options`: kinds 2 (MSS) and 8 (timestamps) are made as they are; others have two octets.
fn tcp(source: u16, destination: u16, flags: u8, options: &[u8]) -> Upper {
    let mut tail = Vec::new();
    let mut kinds = 0;
    for kind in options {
        let length = match kind {
            2 => 4,
            8 => 10,
            _ => 2,
        };
        tail.extend([*kind, length]);
        tail.resize(tail.len() + usize::from(length) - 2, 0);
        kinds |= 1 << kind;
    }
    while tail.len() % 4 != 0 {
        tail.push(1);
        kinds |= 1 << 1;
    }
    let mut octets = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    octets.extend([0; 8]);
    octets.extend([((20 + tail.len()) / 4 * 16) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    octets.extend(&tail);
    let fields = vec![
        (Field::SourcePort, source.into()),
        (Field::DestinationPort, destination.into()),
        (Field::TcpFlags, flags.into()),
        (Field::TcpOptions, kinds),
    ];
    (6, octets, fields)
}

fn sctp(source: u16, destination: u16) -> Upper {
    let octets = [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 8], &[0, 3, 0, 4]].concat();
    (132, octets, vec![(Field::SourcePort, source.into()), (Field::DestinationPort, destination.into())])
}

fn icmp(protocol: u8, kind: u8, code: u8) -> Upper {
    let octets = [&[kind, code, 0, 0][..], &[0; 12]].concat();
    (protocol, octets, vec![(Field::IcmpType, kind.into()), (Field::IcmpCode, code.into())])
}

fn other(protocol: u8, payload: usize) -> Upper {
    (protocol, vec![0; payload], Vec::new())
}

fn finish(octets: Vec<u8>, fields: &[(Field, u128)]) -> Packet {
    let mut key = Key::new();
    for (field, value) in fields {
        key.set(*field, *value);
    }
    key.set(Field::Length, octets.len() as u128);
    key.set(Field::Mark, MARK.into());
    key.set(Field::Egress, 1);
    Packet { octets, key }
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, tos: u8, ttl: u8, offset: u16, upper: &Upper) -> Packet {
    let (protocol, payload, fields) = upper;
    let mut octets = vec![0x45, tos];
    octets.extend(((20 + payload.len()) as u16).to_be_bytes());
    octets.extend([0, 9]);
    octets.extend(offset.to_be_bytes());
    octets.extend([ttl, *protocol, 0, 0]);
    octets.extend(source.octets());
    octets.extend(destination.octets());
    octets.extend(payload);
    let mut all = vec![
        (Field::SourceIpv4, source.to_bits().into()),
        (Field::DestinationIpv4, destination.to_bits().into()),
        (Field::Protocol, (*protocol).into()),
        (Field::TrafficClass, tos.into()),
        (Field::HopLimit, ttl.into()),
        (Field::FragmentOffset, offset.into()),
        (Field::FragmentMore, 0),
        (Field::FragmentIdentification, 9),
    ];
    if offset == 0 {
        all.extend(fields);
    }
    finish(octets, &all)
}

/// A Routing header of type 4. Not a reduced one: the kernel's match knows none.
struct Srh {
    left: u8,
    tag: u16,
    /// In the order of the header: the last segment of the path first.
    list: Vec<Ipv6Addr>,
}

/// Offset, whether more follow, identification, reserved bits.
type Fragment = (u16, bool, u32, bool);

fn ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    class: u8,
    hops: u8,
    srh: Option<&Srh>,
    fragment: Option<Fragment>,
    upper: &Upper,
) -> Packet {
    let (protocol, payload, fields) = upper;
    let mut all = vec![
        (Field::SourceIpv6, source.to_bits()),
        (Field::DestinationIpv6, destination.to_bits()),
        (Field::Protocol, (*protocol).into()),
        (Field::TrafficClass, class.into()),
        (Field::HopLimit, hops.into()),
    ];
    let mut next = *protocol;
    let mut rest = payload.clone();
    let mut later = false;
    if let Some((offset, more, identification, reserved)) = fragment {
        let mut header = vec![next, u8::from(reserved)];
        header.extend((offset << 3 | u16::from(more)).to_be_bytes());
        header.extend(identification.to_be_bytes());
        rest = [header, rest].concat();
        next = 44;
        later = offset > 0;
        all.extend([
            (Field::FragmentOffset, offset.into()),
            (Field::FragmentMore, more.into()),
            (Field::FragmentIdentification, identification.into()),
            (Field::FragmentReserved, reserved.into()),
        ]);
    }
    if let Some(Srh { left, tag, list }) = srh {
        let mut header = vec![next, (list.len() * 2) as u8, 4, *left, (list.len() - 1) as u8, 0];
        header.extend(tag.to_be_bytes());
        list.iter().for_each(|segment| header.extend(segment.octets()));
        rest = [header, rest].concat();
        all.extend([
            (Field::SrhPresent, 1),
            (Field::SrhNextHeader, next.into()),
            (Field::SrhLength, (list.len() * 2) as u128),
            (Field::SrhSegmentsLeft, (*left).into()),
            (Field::SrhLastEntry, (list.len() - 1) as u128),
            (Field::SrhTag, (*tag).into()),
            (Field::LastSid, list[0].to_bits()),
            (Field::RoutingType, 4),
            (Field::RoutingSegmentsLeft, (*left).into()),
            (Field::RoutingLength, (list.len() * 2) as u128),
        ]);
        let left = usize::from(*left);
        all.extend(list.get(left + 1).map(|sid| (Field::PreviousSid, sid.to_bits())));
        all.extend(left.checked_sub(1).and_then(|next| list.get(next)).map(|sid| (Field::NextSid, sid.to_bits())));
        next = 43;
    }
    if !later {
        all.extend(fields);
    }
    let mut octets = vec![0x60 | class >> 4, class << 4, 0, 0];
    octets.extend((rest.len() as u16).to_be_bytes());
    octets.extend([next, hops]);
    octets.extend(source.octets());
    octets.extend(destination.octets());
    octets.extend(rest);
    finish(octets, &all)
}

fn packets_v4() -> Vec<Packet> {
    let (local, second) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
    let sources = [
        local,
        Ipv4Addr::new(10, 9, 9, 5),
        Ipv4Addr::new(10, 0, 0, 5),
        Ipv4Addr::new(1, 2, 3, 5),
        Ipv4Addr::new(224, 1, 1, 1),
    ];
    let mut uppers = vec![
        udp(53, 2, 72),
        udp(53, 80, 73),
        udp(80, 443, 172),
        udp(8080, 8081, 173),
        udp(9, 53, 0),
        tcp(1, 80, 0x02, &[2, 8]),
        tcp(1024, 1024, 0x12, &[2]),
        tcp(1025, 443, 0x00, &[]),
        tcp(1000, 8000, 0x10, &[8]),
        tcp(70, 8080, 0x29, &[30]),
        tcp(70, 65535, 0xc2, &[]),
        sctp(53, 2),
        sctp(53, 9),
    ];
    for (kind, code) in [(8, 0), (3, 4), (3, 3), (77, 3), (77, 4), (0, 0), (255, 1)] {
        uppers.push(icmp(1, kind, code));
    }
    uppers.extend([47, 50, 58, 112, 200].map(|protocol| other(protocol, 80)));
    let mut packets = Vec::new();
    for (index, upper) in uppers.iter().enumerate() {
        let tos = [0, 0x28, 0xb8, 0x10, 0x07, 0x90][index % 6];
        let ttl = [64, 63, 65, 255, 1][index % 5];
        packets.push(ipv4(sources[index % sources.len()], second, tos, ttl, 0, upper));
        packets.push(ipv4(local, local, 0, 64, 0, upper));
    }
    packets.push(ipv4(local, second, 0, 64, 185, &udp(53, 2, 72)));
    packets.push(ipv4(local, second, 0, 64, 2, &tcp(1, 80, 0x02, &[2, 8])));
    packets.push(ipv4(local, second, 0, 64, 185, &icmp(1, 8, 0)));
    packets
}

fn packets_v6() -> Vec<Packet> {
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("address");
    let local = Ipv6Addr::LOCALHOST;
    let sources =
        ["2001:db8::1", "2001:db8::5", "2001:db8:7::1", "2001:0:7::1", "::ffff:1.2.3.4", "ff02::1"].map(address);
    let uppers = [
        udp(53, 2, 72),
        tcp(9, 80, 0x02, &[2]),
        icmp(58, 128, 0),
        icmp(58, 1, 4),
        icmp(58, 133, 0),
        icmp(58, 145, 7),
        other(50, 60),
        other(59, 0),
        other(135, 8),
    ];
    let list = ["fc00:3::9", "fc00:2::1", "fc00:1::5", "fc00:1::6", "fc00:4::1"].map(address);
    let srh = |left, tag, list: &[Ipv6Addr]| Srh { left, tag, list: list.to_vec() };
    let headers = [
        None,
        Some(srh(0, 0, &list[..1])),
        Some(srh(1, 0x0707, &list[..2])),
        Some(srh(1, 0, &list[..3])),
        Some(srh(2, 0, &list[..3])),
        Some(srh(2, 0x0707, &list[..4])),
        Some(srh(2, 0, &list)),
        Some(srh(4, 0, &list)),
        Some(srh(1, 0, &[address("fc00:9::1"), list[0], list[2]])),
    ];
    let mut packets = Vec::new();
    for (index, upper) in uppers.iter().enumerate() {
        for (number, srh) in headers.iter().enumerate() {
            let class = [0, 0x88, 0x10, 0xb8][(index + number) % 4];
            let hops = [64, 63, 65, 255][(index + number) % 4];
            packets.push(ipv6(
                sources[(index + number) % sources.len()],
                local,
                class,
                hops,
                srh.as_ref(),
                None,
                upper,
            ));
        }
    }
    for fragment in
        [(0, true, 5, false), (0, false, 6, false), (3, true, 10, true), (3, false, 11, false), (185, false, 5, false)]
    {
        packets.push(ipv6(local, local, 0, 64, None, Some(fragment), &udp(53, 2, 72)));
        packets.push(ipv6(local, local, 0, 64, headers[3].as_ref(), Some(fragment), &tcp(9, 80, 0x02, &[2])));
    }
    packets
}

/// The rules of `options.*` in one chain, without targets; without those whose conditions have a state of their own.
fn rules(family: Family, name: &str, extra: &[&str]) -> RuleSet {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables").join(name);
    let source = std::fs::read_to_string(&path).expect(name);
    let options = parse_rules(&source, name, family).unwrap_or_else(|errors| panic!("{errors}"));
    let forward = options.filter().and_then(|table| table.chain("FORWARD")).expect("FORWARD");
    let mut text =
        format!("*filter\n:OUTPUT ACCEPT [0:0]\n:tested - [0:0]\n-A OUTPUT -m mark --mark {MARK} -j tested\n");
    for rule in &forward.rules {
        // Connection tracking would put fragments together before they get to the rules; OUTPUT takes no -m mac.
        let stateful = |test: &Match| {
            matches!(
                test,
                Match::Limit(_)
                    | Match::HashLimit(_)
                    | Match::Recent(_)
                    | Match::Set(_)
                    | Match::State(_)
                    | Match::Conntrack(_)
                    | Match::Mac(_)
            )
        };
        if rule.matches.iter().any(|matched| stateful(&matched.test)) {
            continue;
        }
        let mut rule = rule.clone();
        rule.target = Target::Count;
        text.push_str(&forward.rule_text(&rule).replacen("FORWARD", "tested", 1));
        text.push('\n');
    }
    for rule in extra {
        text.push_str(&format!("-A tested {rule}\n"));
    }
    text.push_str("COMMIT\n");
    parse_rules(&text, name, family).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Sends the packets and compares, rule by rule. Returns how often a rule matched, and how often it did not.
fn compare(family: Family, rules: &RuleSet, packets: &[Packet]) -> (usize, usize) {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of this thread");
    run("ip", &["link", "set", "lo", "up"], "");
    let program = match family {
        Family::Ipv4 => "iptables-legacy",
        Family::Ipv6 => "ip6tables-legacy",
    };
    run(&format!("{program}-restore"), &[], &rules.save(false));
    let address_family = if family == Family::Ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let sender = socket(address_family, SockType::Raw, SockFlag::empty(), SockProtocol::Raw).expect("raw socket");
    setsockopt(&sender, sockopt::Mark, &MARK).expect("mark");

    let surroundings =
        Surroundings { interfaces: vec![NodeInterface { name: "lo".to_owned(), index: 1 }], ..Surroundings::default() };
    let lowered = rules.lower(&SetFile::default(), &surroundings, Mode::Basic, "rules").expect("program");
    let chain = lowered.program.chain("tested").expect("chain");
    let (mut hits, mut misses) = (0, 0);
    for (number, packet) in packets.iter().enumerate() {
        run(program, &["-Z", "tested"], "");
        let sent = match family {
            Family::Ipv4 => {
                sendto(sender.as_raw_fd(), &packet.octets, &SockaddrIn::new(127, 0, 0, 2, 0), MsgFlags::empty())
            }
            Family::Ipv6 => {
                let to = SockaddrIn6::from(std::net::SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0));
                sendto(sender.as_raw_fd(), &packet.octets, &to, MsgFlags::empty())
            }
        };
        assert_eq!(sent, Ok(packet.octets.len()), "packet {number}");
        let saved = run(&format!("{program}-save"), &["-c", "-t", "filter"], "");
        let counted = parse_rules(&saved, "saved", family).unwrap_or_else(|errors| panic!("{errors}"));
        let real = counted.filter().and_then(|table| table.chain("tested")).expect("tested");
        let mut ours = vec![0; real.rules.len()];
        for (rule, origin) in lowered.program.chains[chain].rules.iter().zip(&lowered.origins[chain]) {
            ours[*origin] += u64::from(interpreter::matches(rule, &packet.key));
        }
        for (rule, ours) in real.rules.iter().zip(ours) {
            assert_eq!(
                ours,
                rule.counters.packets,
                "packet {number}: {:02x?}: {}",
                packet.octets,
                real.rule_text(rule)
            );
            *if ours > 0 { &mut hits } else { &mut misses } += 1;
        }
        assert!(real.rules.iter().any(|rule| rule.counters.packets > 0), "packet {number} did not get there");
    }
    (hits, misses)
}

#[test]
#[ignore = "needs root"]
fn rules_hold_for_the_packets_that_iptables_counts() {
    let extra = [
        "-p tcp -m multiport --ports 80,443",
        "-p tcp -m multiport ! --ports 80,443",
        "-p udp -m multiport ! --dports 53,80",
        "-p icmp -m icmp ! --icmp-type 3/4",
        "-p icmp -m icmp ! --icmp-type 8",
        "-p tcp -m tcp ! --syn",
        "-p tcp -m tcp",
        "-p udp -m udp",
        "-p tcp -m tcp ! --tcp-option 8",
        "-m mark --mark 5/6",
        "-m mark --mark 4/6",
        "-m tos ! --tos 0x28",
        "-m addrtype --src-type LOCAL --dst-type LOCAL",
        "-m addrtype ! --src-type MULTICAST,LOCAL",
        "-m length --length 100:",
        "-m iprange ! --src-range 10.0.0.0-10.255.255.255",
        "! -o lo",
        "-o lo",
        "-o l+",
        "! -i lo",
        "-i lo",
    ];
    let (hits, misses) = compare(Family::Ipv4, &rules(Family::Ipv4, "options.v4", &extra), &packets_v4());
    println!("IPv4: {hits} matches and {misses} others are the same");
    assert!(hits > 1_000 && misses > 1_000);
}

#[test]
#[ignore = "needs root"]
fn rules_hold_for_the_packets_that_ip6tables_counts() {
    let extra = [
        "-p ipv6-icmp -m icmp6 ! --icmpv6-type 1/4",
        "-p udp -m udp",
        "-p udp -m udp ! --dport 2",
        "-p tcp -m multiport --ports 80",
        "-m frag --fragres",
        "-m frag --fragfirst",
        "-m frag --fragmore",
        "-m frag ! --fragid 5",
        "-m srh --srh-next-hdr 17",
        "-m srh --srh-last-entry-gt 1",
        "-m srh ! --srh-last-entry-gt 1",
        "-m srh --srh-segs-left-lt 2",
        "-m srh ! --srh-segs-left-lt 2",
        "-m srh --srh-segs-left-eq 2",
        "-m srh --srh-hdr-len-eq 6",
        "-m srh ! --srh-hdr-len-lt 6",
        "-m srh --srh-tag 1799",
        "-m srh ! --srh-tag 0",
        "-m srh --srh-psid fc00:1::/64",
        "-m srh ! --srh-psid fc00:1::/64",
        "-m srh --srh-psid ::/0",
        "-m srh --srh-nsid fc00:2::1",
        "-m srh ! --srh-nsid fc00:2::1",
        "-m srh --srh-nsid ::/0",
        "-m srh --srh-lsid fc00:3::/64",
        "-m srh ! --srh-lsid fc00:3::/64",
        "! -p udp",
        "-m length --length 100:200",
        "-m addrtype ! --src-type MULTICAST",
    ];
    let (hits, misses) = compare(Family::Ipv6, &rules(Family::Ipv6, "options.v6", &extra), &packets_v6());
    println!("IPv6: {hits} matches and {misses} others are the same");
    assert!(hits > 1_000 && misses > 1_000);
}
