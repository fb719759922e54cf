//! Connection tracking of inner flows, answers with RST, and fragments, on real packets at a SID with a firewall.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::golden::Golden;
use segue_testkit::node::{Verdict, clock};
use segue_wire::{FragmentRepr, Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const FIREWALL: u16 = 0xa1;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;

fn with_rules(ipv6: &[&str], more: &str) -> String {
    let text = format!("*filter\\n:INPUT ACCEPT [0:0]\\n:FORWARD DROP [0:0]\\n{}\\nCOMMIT\\n", ipv6.join("\\n"));
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {{file: v6, text: \"{text}\"}}{more}}}\n");
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1)
}

const STATES: [&str; 4] = [
    "-A FORWARD -m conntrack --ctstate INVALID -j DROP",
    "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
    "-A FORWARD -m state --state RELATED -j ACCEPT",
    "-A FORWARD -s fd00:0:a0::/64 -m state --state NEW -j ACCEPT",
];
const INVALID: usize = 0;
const ESTABLISHED: usize = 1;
const RELATED: usize = 2;
const NEW: usize = 3;

fn steered() -> PacketBuilder {
    let srh = SrhRepr::new(&[local(FIREWALL), behind_core1(0xa), behind_core1(0xb)]);
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(FIREWALL))).srh(srh)
}

/// From the client to the server, or back.
fn ip(forward: bool) -> Ipv6Repr {
    if forward { Ipv6Repr::new(CLIENT, SERVER) } else { Ipv6Repr::new(SERVER, CLIENT) }
}

fn tcp(forward: bool, client_port: u16, flags: u8) -> PacketBuilder {
    let (from, to) = if forward { (client_port, 80) } else { (80, client_port) };
    steered().inner_ipv6(ip(forward)).tcp(TcpRepr::new(from, to, flags))
}

fn udp(forward: bool, client_port: u16) -> PacketBuilder {
    let (from, to) = if forward { (client_port, 53) } else { (53, client_port) };
    steered().inner_ipv6(ip(forward)).udp(UdpRepr::new(from, to)).payload(b"question or answer")
}

/// Sends, and says which rule was the last that counted it; None: the policy, which drops.
fn state(node: &Golden<'_>, packet: &PacketBuilder) -> Option<usize> {
    let count =
        || -> Vec<u64> { node.node().firewall_counters()[0].rules.iter().map(|rule| rule.counter.packets).collect() };
    let before = count();
    let found = node.send("core0", packet);
    let moved = before.iter().zip(count()).position(|(before, after)| after != *before);
    let passed = found.verdict == Verdict::Redirect;
    assert_eq!(passed, moved.is_some_and(|rule| rule != INVALID), "{:?}", found.moved);
    moved
}

#[test]
#[ignore = "needs root"]
fn tcp_connections() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ""));
    let steps = [
        ("an answer to nothing", false, SYN | ACK, Some(INVALID)),
        ("nobody may begin from there", false, SYN, None),
        ("the beginning", true, SYN, Some(NEW)),
        ("once more", true, SYN, Some(NEW)),
        ("an ACK too early", true, ACK, Some(INVALID)),
        ("its answer", false, SYN | ACK, Some(ESTABLISHED)),
        ("agreed", true, ACK, Some(ESTABLISHED)),
        ("data", false, ACK, Some(ESTABLISHED)),
        ("no flags at all", true, 0, Some(INVALID)),
        ("the client ends", true, FIN | ACK, Some(ESTABLISHED)),
        ("acknowledged", false, ACK, Some(ESTABLISHED)),
        ("the server ends", false, FIN | ACK, Some(ESTABLISHED)),
        ("acknowledged", true, ACK, Some(ESTABLISHED)),
        ("the port again", true, SYN, Some(NEW)),
        ("reset", false, RST, Some(ESTABLISHED)),
    ];
    for (case, forward, flags, wanted) in steps {
        assert_eq!(state(&node, &tcp(forward, 4000, flags)), wanted, "{case}");
    }
    assert_eq!(state(&node, &tcp(true, 4001, ACK)), Some(NEW), "picked up in the middle, as netfilter does by default");
    assert_eq!(state(&node, &tcp(true, 4002, RST)), Some(INVALID), "a reset of nothing");
    // tshark warns of resets, and of questions that are no DNS.
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn udp_icmp_and_related() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ""));
    assert_eq!(state(&node, &udp(false, 5000)), None, "not begun by the client: the policy");
    assert_eq!(state(&node, &udp(true, 5000)), Some(NEW));
    assert_eq!(state(&node, &udp(true, 5000)), Some(NEW), "not answered yet");
    assert_eq!(state(&node, &udp(false, 5000)), Some(ESTABLISHED));
    assert_eq!(state(&node, &udp(true, 5000)), Some(ESTABLISHED));
    let echo = |forward, reply| {
        let (identifier, sequence_number, data) = (7, 1, Vec::new());
        let message = match reply {
            false => Icmpv6Repr::EchoRequest { identifier, sequence_number, data },
            true => Icmpv6Repr::EchoReply { identifier, sequence_number, data },
        };
        steered().inner_ipv6(ip(forward)).icmpv6(message)
    };
    assert_eq!(state(&node, &echo(false, true)), Some(INVALID), "a reply to nothing");
    assert_eq!(state(&node, &echo(true, false)), Some(NEW));
    assert_eq!(state(&node, &echo(false, true)), Some(ESTABLISHED));
    let about = |port| {
        let quoted =
            PacketBuilder::new().ipv6(ip(true)).udp(UdpRepr::new(port, 53)).payload(b"question or answer").build();
        steered().inner_ipv6(ip(false)).icmpv6(Icmpv6Repr::DestinationUnreachable { code: 4, packet: quoted })
    };
    assert_eq!(state(&node, &about(5000)), Some(RELATED));
    assert_eq!(state(&node, &about(5001)), Some(INVALID), "about a flow that nobody knows");
    // tshark warns of resets, and of questions that are no DNS.
    node.finish_with_faults();
}

/// In how many seconds, rounded, connections are forgotten.
fn alive(node: &Golden<'_>) -> Vec<u64> {
    let now = clock();
    let expires = node.node().connections().into_iter().map(|(_, entry)| entry.connection.expires);
    expires.filter(|expires| *expires > now).map(|expires| (expires - now + 500_000_000) / 1_000_000_000).collect()
}

/// The same of the only connection.
fn lifetime(node: &Golden<'_>) -> u64 {
    let alive = alive(node);
    assert_eq!(alive.len(), 1, "one connection: {alive:?}");
    alive[0]
}

/// All connections are as if their time had come.
fn expire(node: &Golden<'_>) {
    node.node().change_connections(|entry| entry.connection.expires = 1);
}

/// A segment without data from the client, or from the server, with these numbers.
fn segment(forward: bool, client_port: u16, flags: u8, numbers: (u32, u32), window: u16) -> PacketBuilder {
    with_data(forward, client_port, flags, numbers, window, 0)
}

fn with_data(
    forward: bool,
    client_port: u16,
    flags: u8,
    (sequence_number, acknowledgment_number): (u32, u32),
    window: u16,
    length: usize,
) -> PacketBuilder {
    let (from, to) = if forward { (client_port, 80) } else { (80, client_port) };
    let options = if flags & SYN != 0 { vec![2, 4, 5, 0xa0, 4, 2, 1, 1, 1, 3, 3, 2] } else { Vec::new() };
    let header = TcpRepr { sequence_number, acknowledgment_number, window, options, ..TcpRepr::new(from, to, flags) };
    steered().inner_ipv6(ip(forward)).tcp(header).payload(&vec![0; length])
}

/// Numbers of both sides of the connection below, whose octets are counted from the SYNs: they pass 2^32 and 2^31.
fn client(octet: u32) -> u32 {
    0xffff_ff00_u32.wrapping_add(octet)
}

fn server(octet: u32) -> u32 {
    0x7fff_ff00_u32.wrapping_add(octet)
}

/// A connection of the client's with a window of 1000, scaled by 2 behind the SYNs.
fn agree(node: &Golden<'_>, port: u16) {
    for (forward, flags, numbers, wanted) in [
        (true, SYN, (client(0), 0), NEW),
        (false, SYN | ACK, (server(0), client(1)), ESTABLISHED),
        (true, ACK, (client(1), server(1)), ESTABLISHED),
    ] {
        assert_eq!(state(node, &segment(forward, port, flags, numbers, 1000)), Some(wanted));
    }
}

#[test]
#[ignore = "needs root"]
fn segments_outside_of_the_window() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ""));
    agree(&node, 7000);
    let steps = [
        ("all that the server has room for", true, ACK, (client(1), server(1)), 1000, ESTABLISHED),
        ("far more", true, ACK, (client(50_000), server(1)), 10, INVALID),
        ("acknowledges what nobody sent", false, ACK, (server(1), client(60_000)), 0, INVALID),
        ("acknowledges it all, and has room for 4000", false, ACK, (server(1), client(1001)), 0, ESTABLISHED),
        ("data behind a gap", true, ACK, (client(4000), server(1)), 1000, ESTABLISHED),
        ("what was lost", true, ACK, (client(1001), server(1)), 1000, ESTABLISHED),
        ("what was acknowledged long ago", true, ACK, (client(1), server(1)), 10, ESTABLISHED),
        ("an old ACK", false, ACK, (server(1), client(1)), 0, ESTABLISHED),
        ("a keepalive", true, ACK, (client(4999), server(1)), 0, ESTABLISHED),
        ("a FIN from elsewhere", false, FIN | ACK, (server(100_000), client(5000)), 0, INVALID),
        ("a SYN from elsewhere changes nothing", true, SYN, (client(900_000), 0), 0, ESTABLISHED),
        ("and the ACK that answers it", false, ACK, (server(1), client(5000)), 0, ESTABLISHED),
        ("a RST with a number that has been acknowledged", false, RST, (server(0), 0), 0, INVALID),
        ("data", false, ACK, (server(1), client(5000)), 500, ESTABLISHED),
        ("the RST that is meant", false, RST, (server(501), 0), 0, ESTABLISHED),
    ];
    for (case, forward, flags, numbers, length, wanted) in steps {
        let packet = with_data(forward, 7000, flags, numbers, 1000, length);
        assert_eq!(state(&node, &packet), Some(wanted), "{case}");
    }
    // SACK: the highest octet that is acknowledged counts.
    agree(&node, 7001);
    assert_eq!(state(&node, &with_data(true, 7001, ACK, (client(501), server(1)), 1000, 500)), Some(ESTABLISHED));
    for (edge, wanted) in [(client(1001), ESTABLISHED), (client(1002), INVALID)] {
        let mut options = vec![1, 1, 5, 10];
        options.extend(client(501).to_be_bytes());
        options.extend(edge.to_be_bytes());
        let (sequence_number, acknowledgment_number) = (server(1), client(1));
        let header =
            TcpRepr { sequence_number, acknowledgment_number, window: 1000, options, ..TcpRepr::new(80, 7001, ACK) };
        assert_eq!(state(&node, &steered().inner_ipv6(ip(false)).tcp(header)), Some(wanted), "{edge:x}");
    }
    // A zero window may be probed by one octet.
    agree(&node, 7002);
    for (case, forward, length, window, wanted) in [
        ("no room", false, 0, 0, ESTABLISHED),
        ("a probe", true, 1, 1000, ESTABLISHED),
        ("still none", false, 0, 0, ESTABLISHED),
        ("too much", true, 1400, 1000, ESTABLISHED),
    ] {
        let numbers = if forward { (client(1), server(1)) } else { (server(1), client(1)) };
        assert_eq!(state(&node, &with_data(forward, 7002, ACK, numbers, window, length)), Some(wanted), "{case}");
    }
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a_liberal_firewall_asks_for_no_window() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ", conntrack: {tcp_be_liberal: true}"));
    agree(&node, 7000);
    for (case, forward, flags, numbers, wanted) in [
        ("far more than there is room for", true, ACK, (client(50_000), server(1)), ESTABLISHED),
        ("acknowledges what nobody sent", false, ACK, (server(1), client(60_000)), ESTABLISHED),
        ("only a RST has to be right", false, RST, (server(0), 0), INVALID),
    ] {
        assert_eq!(state(&node, &segment(forward, 7000, flags, numbers, 1000)), Some(wanted), "{case}");
    }
    node.finish_with_faults();
}

/// How much of a segment is in later fragments is not known: it may fill the window.
#[test]
#[ignore = "needs root"]
fn what_answers_a_fragmented_segment_is_valid() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ""));
    agree(&node, 7000);
    let fragment = FragmentRepr { more_fragments: true, identification: 7, ..FragmentRepr::default() };
    let header = TcpRepr {
        sequence_number: client(1),
        acknowledgment_number: server(1),
        window: 1000,
        ..TcpRepr::new(7000, 80, ACK)
    };
    let first = steered().inner_ipv6(ip(true)).fragment(fragment).tcp(header).payload(&[0; 28]);
    assert_eq!(state(&node, &first), Some(ESTABLISHED));
    assert_eq!(state(&node, &segment(false, 7000, ACK, (server(1), client(1001)), 1000)), Some(ESTABLISHED));
    assert_eq!(state(&node, &segment(false, 7000, ACK, (server(1), client(1002)), 1000)), Some(INVALID));
    node.finish_with_faults();
}

/// Seconds that netfilter documents (nf_conntrack-sysctl).
#[test]
#[ignore = "needs root"]
fn lifetimes_are_netfilters_defaults() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ""));
    let expect = |case: &str, packet: &PacketBuilder, wanted, seconds| {
        assert_eq!(state(&node, packet), Some(wanted), "{case}");
        assert_eq!(lifetime(&node), seconds, "{case}");
    };
    for (case, forward, flags, numbers, wanted, seconds) in [
        ("SYN_SENT", true, SYN, (999, 0), NEW, 120),
        ("SYN_RECV", false, SYN | ACK, (4999, 1000), ESTABLISHED, 60),
        ("ESTABLISHED", true, ACK, (1000, 5000), ESTABLISHED, 432_000),
        ("once more", false, ACK, (5000, 1000), ESTABLISHED, 432_000),
        ("repeated", false, ACK, (5000, 1000), ESTABLISHED, 432_000),
        ("repeated again", false, ACK, (5000, 1000), ESTABLISHED, 432_000),
        ("repeated three times: nobody answers", false, ACK, (5000, 1000), ESTABLISHED, 300),
        ("an answer", true, ACK, (1000, 5000), ESTABLISHED, 432_000),
        ("FIN_WAIT", true, FIN | ACK, (1000, 5000), ESTABLISHED, 120),
        ("CLOSE_WAIT", false, ACK, (5000, 1001), ESTABLISHED, 60),
        ("LAST_ACK", false, FIN | ACK, (5000, 1001), ESTABLISHED, 30),
        ("TIME_WAIT", true, ACK, (1001, 5001), ESTABLISHED, 120),
    ] {
        expect(case, &segment(forward, 6000, flags, numbers, 1000), wanted, seconds);
    }
    expire(&node);
    for (case, forward, flags, numbers, window, wanted, seconds) in [
        ("picked up", true, ACK, (1000, 5000), 1000, NEW, 300),
        ("answered", false, ACK, (5000, 1000), 1000, ESTABLISHED, 300),
        ("by both", true, ACK, (1000, 5000), 1000, ESTABLISHED, 432_000),
        ("no room", false, ACK, (5000, 1000), 0, ESTABLISHED, 300),
    ] {
        expect(case, &segment(forward, 6003, flags, numbers, window), wanted, seconds);
    }
    expect("data", &with_data(false, 6003, ACK, (5000, 1000), 1000, 100), ESTABLISHED, 300);
    expect("acknowledged", &segment(true, 6003, ACK, (1000, 5100), 1000), ESTABLISHED, 432_000);
    expect("a RST that may be a guess", &segment(true, 6003, RST, (1500, 0), 0), ESTABLISHED, 10);
    expect("it was one", &segment(false, 6003, ACK, (5100, 1000), 1000), ESTABLISHED, 300);
    expect("CLOSE", &segment(true, 6003, RST, (1500, 0), 0), ESTABLISHED, 10);
    expire(&node);
    assert_eq!(state(&node, &tcp(false, 6000, ACK)), None, "forgotten: a beginning from there, the policy");
    expect("SYN_SENT", &tcp(true, 6001, SYN), NEW, 120);
    assert_eq!(state(&node, &tcp(false, 6001, RST | ACK)), Some(ESTABLISHED));
    assert_eq!(alive(&node), Vec::<u64>::new(), "refused at once: forgotten");
    expire(&node);
    expect("UDP", &udp(true, 6002), NEW, 30);
    expect("UDP, answered: no stream yet", &udp(false, 6002), ESTABLISHED, 30);
    expect("within its first two seconds", &udp(true, 6002), ESTABLISHED, 30);
    node.node().change_connections(|entry| entry.connection.created -= 2_100_000_000);
    expect("later, a stream", &udp(true, 6002), ESTABLISHED, 120);
    expire(&node);
    expect("UDP", &udp(true, 6004), NEW, 30);
    node.node().change_connections(|entry| entry.connection.created -= 2_100_000_000);
    expect("the first answer makes no stream, however late", &udp(false, 6004), ESTABLISHED, 30);
    expect("what follows it does", &udp(true, 6004), ESTABLISHED, 120);
    expire(&node);
    assert_eq!(state(&node, &udp(false, 6002)), None, "a beginning from there again: the policy");
    let echo = Icmpv6Repr::EchoRequest { identifier: 9, sequence_number: 1, data: Vec::new() };
    expect("ICMP", &steered().inner_ipv6(ip(true)).icmpv6(echo), NEW, 30);
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn a_flood_of_beginnings_evicts_no_connection() {
    let network = Network::new();
    let node = Golden::load(&network, &with_rules(&STATES, ", conntrack: {entries: 512, beginnings: 0}"));
    for (forward, flags) in [(true, SYN), (false, SYN | ACK), (true, ACK)] {
        state(&node, &tcp(forward, 9, flags)).expect("accepted");
    }
    let flood: Vec<Vec<u8>> = (10_000..20_000).map(|port| tcp(true, port, SYN).build()).collect();
    node.node().run_many(|runner| {
        for frame in &flood {
            assert_eq!(runner.run("core0", frame).0, Verdict::Redirect);
        }
    });
    assert_eq!(state(&node, &tcp(false, 9, ACK)), Some(ESTABLISHED), "still known");
    assert_eq!(state(&node, &tcp(false, 10_001, SYN | ACK)), Some(INVALID), "the flood's own beginnings are forgotten");
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn tcp_reset() {
    let network = Network::new();
    let rules = ["-A FORWARD -p tcp -j REJECT --reject-with tcp-reset", "-A FORWARD -j ACCEPT"];
    let node = Golden::load(&network, &with_rules(&rules, ""));
    let segment = TcpRepr { sequence_number: 1000, ..TcpRepr::new(4000, 80, SYN) };
    let found = node.send("core0", &steered().inner_ipv6(ip(true)).tcp(segment));
    assert_eq!(found.moved.get("icmp tcp_reset").map(|counter| counter.0), Some(1), "{:?}", found.moved);
    let expected = PacketBuilder::new()
        .ipv6(Ipv6Repr::new(SERVER, CLIENT))
        .tcp(TcpRepr { acknowledgment_number: 1001, ..TcpRepr::new(80, 4000, RST | ACK) })
        .build();
    assert_eq!(found.frame[14..], expected[..], "from the server to the client, acknowledging the SYN");
    let found = node.send("core0", &tcp(true, 4000, RST));
    assert_eq!(found.verdict, Verdict::Drop, "no answer to a reset: {:?}", found.moved);
    // tshark warns of resets, and of questions that are no DNS.
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn later_fragments_match_no_layer_4_rule() {
    let network = Network::new();
    // What would be the ports of a later fragment are 53 and 53.
    let rules = [
        "-A FORWARD -p udp -m udp --dport 53 -j DROP",
        "-A FORWARD -p udp -m udp ! --dport 53 -j DROP",
        "-A FORWARD -p udp -m frag --fragmore -j ACCEPT",
        "-A FORWARD -p udp -j ACCEPT",
    ];
    let node = Golden::load(&network, &with_rules(&rules, ""));
    let fragment = |offset: u16, more: bool| {
        let repr = FragmentRepr {
            fragment_offset: offset,
            more_fragments: more,
            identification: 77,
            ..FragmentRepr::default()
        };
        steered().inner_ipv6(ip(true)).fragment(repr)
    };
    let first = fragment(0, true).udp(UdpRepr::new(53, 53)).payload(&[0; 16]);
    assert_eq!(state(&node, &first), Some(0), "a first fragment has its ports");
    let count =
        || -> Vec<u64> { node.node().firewall_counters()[0].rules.iter().map(|rule| rule.counter.packets).collect() };
    for (more, hit) in [(true, 2), (false, 3)] {
        let before = count();
        node.node().send("core0", &fragment(24, more).udp(UdpRepr::new(53, 53)).payload(&[0; 16]).build());
        assert_eq!(count()[hit], before[hit] + 1, "{before:?} {:?}", count());
    }
    node.finish_with_faults();
}
