//! What firewalls remember of connections: how much, for whom, and what gives way to what. States are firewall/state.rs'.
//!
//! One long file: all of it is about the same tables, with the same packets.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use segue_dataplane::{Dataplane, Options, TestRun};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::node::{Node, Verdict, clock};
use segue_testkit::wait::wait_for;
use segue_wire::{FragmentRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Of every segment, not scaled.
const WINDOW: u32 = 60_000;
/// `XDP_REDIRECT`.
const REDIRECT: u32 = 4;

/// SIDs of two tenants' firewalls.
const ONE: u16 = 0xa1;
const OTHER: u16 = 0xa2;

/// What is known passes; only SYNs, questions and requests of the client's side begin.
const RULES: &str = "*filter\\n:FORWARD DROP [0:0]\\n-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\\n\
    -A FORWARD -p tcp -m tcp --syn -m conntrack --ctstate NEW -j ACCEPT\\n\
    -A FORWARD ! -p tcp -m conntrack --ctstate NEW -j ACCEPT\\nCOMMIT\\n";

fn document(conntrack: &str) -> String {
    let firewall = |name: &str| {
        let rules = format!("ipv6: {{file: v6, text: \"{RULES}\"}}, ipv4: {{file: v4, text: \"{RULES}\"}}");
        format!("  - {{name: {name}, {rules}, conntrack: {{{conntrack}}}}}\n")
    };
    let sids = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: one}\n  - {sid: 'fc00:0:1:a2::/64', behaviour: End.AN, firewall: other}\n";
    let firewalls = format!("firewalls:\n{}{}", firewall("one"), firewall("other"));
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n{sids}"), 1)
}

fn steered(sid: u16) -> PacketBuilder {
    let srh = SrhRepr::new(&[local(sid), behind_core1(0xa), behind_core1(0xb)]);
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(sid))).srh(srh)
}

/// From the client to the server, or back.
fn ip(forward: bool) -> Ipv6Repr {
    if forward { Ipv6Repr::new(CLIENT, SERVER) } else { Ipv6Repr::new(SERVER, CLIENT) }
}

/// A segment of the connection with this number, of side 0 or back.
fn header(sid: u16, number: u32, forward: bool, flags: u8, numbers: (u32, u32), options: Vec<u8>) -> PacketBuilder {
    let (client, server) = (1024 + (number % 60_000) as u16, 80 + (number / 60_000) as u16);
    let (from, to) = if forward { (client, server) } else { (server, client) };
    let header = TcpRepr {
        sequence_number: numbers.0,
        acknowledgment_number: numbers.1,
        window: WINDOW as u16,
        options,
        ..TcpRepr::new(from, to, flags)
    };
    steered(sid).inner_ipv6(ip(forward)).tcp(header)
}

fn segment(sid: u16, number: u32, forward: bool, flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    header(sid, number, forward, flags, numbers, Vec::new()).build()
}

fn with_data(number: u32, forward: bool, numbers: (u32, u32), length: usize) -> Vec<u8> {
    header(ONE, number, forward, ACK, numbers, Vec::new()).payload(&vec![0; length]).build()
}

/// Sends the packets one after the other: how many passed.
fn passed(node: &Node<'_>, packets: &[Vec<u8>]) -> usize {
    node.run_many(|runner| packets.iter().filter(|packet| runner.run("core0", packet).0 == Verdict::Redirect).count())
}

/// Shakes hands: whether all of it passed.
fn agree(node: &Node<'_>, sid: u16, number: u32) -> bool {
    let numbers = [(true, SYN, (1000, 0)), (false, SYN | ACK, (5000, 1001)), (true, ACK, (1001, 5001))];
    let packets: Vec<Vec<u8>> =
        numbers.iter().map(|(forward, flags, numbers)| segment(sid, number, *forward, *flags, *numbers)).collect();
    passed(node, &packets) == packets.len()
}

/// Whether a packet of an agreed connection passes, from both sides.
fn known(node: &Node<'_>, sid: u16, number: u32) -> bool {
    let packets = [segment(sid, number, true, ACK, (1001, 5001)), segment(sid, number, false, ACK, (5001, 1001))];
    passed(node, &packets) == 2
}

fn alive(node: &Node<'_>, table: u32) -> usize {
    let now = clock();
    node.connections().iter().filter(|(of, entry)| *of == table && entry.connection.expires > now).count()
}

fn counted(node: &Node<'_>, outcome: &str) -> u64 {
    node.counters().get(&format!("core0 {outcome}")).map_or(0, |counter| counter.0)
}

#[test]
#[ignore = "needs root"]
fn a_table_holds_what_was_asked_for_and_is_nobody_elses() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 4096"));
    let others: Vec<u32> = (0..500).filter(|number| agree(&node, OTHER, *number)).collect();
    assert_eq!(others.len(), 500);
    let agreed: Vec<u32> = (0..9000).filter(|number| agree(&node, ONE, *number)).collect();
    let tables: Vec<u32> = node.compiled().firewalls.iter().map(|firewall| firewall.entry.table).collect();
    assert!(tables[0] != tables[1], "{tables:?}");
    let full = alive(&node, tables[0]);
    assert!(full <= 4096, "{full} connections in a table for 4096");
    assert!(agreed.len() > 3900, "{} of 9000 connections were agreed upon in a table for 4096", agreed.len());
    assert_eq!(agreed.len(), full, "each agreed connection is remembered, and nothing else");
    assert_eq!(counted(&node, "drop_connections_full"), 9000 - agreed.len() as u64, "the SYNs of the others");
    assert!(agreed.iter().all(|number| known(&node, ONE, *number)), "a connection gave way to others");
    assert!(others.iter().all(|number| known(&node, OTHER, *number)), "a neighbour's connection gave way");
    assert_eq!(alive(&node, tables[1]), 500);
    // Closed ones give way.
    for number in &agreed[..100] {
        assert_eq!(passed(&node, &[segment(ONE, *number, true, RST, (1001, 0))]), 1);
    }
    let again = (10_000..13_000).filter(|number| agree(&node, ONE, *number)).count();
    assert!((50..=100).contains(&again), "{again} new connections in the place of 100 closed ones");
}

#[test]
#[ignore = "needs root"]
fn floods_of_questions_and_of_pings_push_out_no_connection() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 512"));
    assert!((0..200).all(|number| agree(&node, ONE, number)));
    let dns = |forward, port: u16| {
        let (from, to) = if forward { (port, 53) } else { (53, port) };
        steered(ONE).inner_ipv6(ip(forward)).udp(UdpRepr::new(from, to)).payload(b"a name").build()
    };
    let echo = |identifier| {
        let message = Icmpv6Repr::EchoRequest { identifier, sequence_number: 1, data: Vec::new() };
        steered(ONE).inner_ipv6(ip(true)).icmpv6(message).build()
    };
    for port in 2000..5000 {
        assert_eq!(passed(&node, &[dns(true, port), dns(false, port)]), 2, "question {port} and its answer");
        assert_eq!(passed(&node, &[echo(port)]), 1);
    }
    assert!((0..200).all(|number| known(&node, ONE, number)), "a connection gave way to questions");
    assert_eq!(counted(&node, "drop_connections_full"), 0);
}

/// Made-up sources whose SYNs an open port answers: half-agreed connections give way to each other, and take no agreed one's place.
#[test]
#[ignore = "needs root"]
fn a_flood_of_answered_syns_pushes_out_no_connection() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 512"));
    assert!((0..200).all(|number| agree(&node, ONE, number) && agree(&node, OTHER, number)));
    let half =
        |number| [segment(ONE, number, true, SYN, (1000, 0)), segment(ONE, number, false, SYN | ACK, (5000, 1001))];
    let flood: Vec<Vec<u8>> = (1000..9000).flat_map(half).collect();
    assert_eq!(passed(&node, &flood), flood.len(), "each finds a place, and its answer is known");
    assert!((0..200).all(|number| known(&node, ONE, number)), "a connection gave way to half-agreed ones");
    assert!((0..200).all(|number| known(&node, OTHER, number)), "a neighbour's connection gave way");
    assert_eq!(counted(&node, "drop_connections_full"), 0);
    assert!(agree(&node, ONE, 20_000), "a handshake finds a place behind them");
}

/// Beginnings that gave way leave a trace: their answers are known, and nobody else's.
#[test]
#[ignore = "needs root"]
fn what_gave_way_in_a_flood_is_known_by_its_answer() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 64, beginnings: 100000"));
    let syn = |number| segment(ONE, number, true, SYN, (1000, 0));
    let answer = |number, acknowledged| segment(ONE, number, false, SYN | ACK, (5000, acknowledged));
    let question = |forward, port: u16| {
        let (from, to) = if forward { (port, 53) } else { (53, port) };
        steered(ONE).inner_ipv6(ip(forward)).udp(UdpRepr::new(from, to)).payload(b"a name").build()
    };
    assert_eq!(passed(&node, &[syn(1), syn(2), syn(3), question(true, 9000)]), 4);
    let flood: Vec<Vec<u8>> = (1000..11_000).map(syn).collect();
    assert_eq!(passed(&node, &flood), flood.len());
    assert_eq!(passed(&node, &[answer(1, 1002)]), 0, "it acknowledges what the SYN did not say");
    assert_eq!(passed(&node, &[answer(20_000, 1001)]), 0, "it answers nothing");
    assert_eq!(passed(&node, &[segment(ONE, 1, false, ACK, (5000, 1001))]), 0, "it is no answer");
    assert_eq!(passed(&node, &[answer(1, 1001), segment(ONE, 1, true, ACK, (1001, 5001))]), 2);
    assert!(known(&node, ONE, 1));
    assert_eq!(passed(&node, &[segment(ONE, 2, false, RST | ACK, (0, 1001))]), 1, "refused");
    assert_eq!(passed(&node, &[question(false, 9000)]), 1);
    assert_eq!(passed(&node, &[question(true, 9000)]), 1);
    // The window of the SYN holds: 60,000 octets, not scaled.
    let data = |octet: u32| segment(ONE, 1, false, ACK, (5001 + octet, 1001));
    assert_eq!(passed(&node, &[data(200_000)]), 0);
    assert_eq!(passed(&node, &[data(60_000)]), 1);
}

/// Half-agreed connections that gave way leave a trace as well: the client's next segment is known by both of its numbers, and the
/// connection is the one that it would have been, to the octet.
#[test]
#[ignore = "needs root"]
fn half_a_handshake_that_gave_way_goes_on_as_if_it_had_not() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 64, beginnings: 100000"));
    let with_options = |sid, number, forward, flags, numbers, scale| {
        // SACK permitted; No-Operation, Window Scale.
        header(sid, number, forward, flags, numbers, vec![4, 2, 1, 1, 1, 3, 3, scale]).build()
    };
    let syn = |sid, number| with_options(sid, number, true, SYN, (1000, 0), 7);
    let answer = |sid, number| with_options(sid, number, false, SYN | ACK, (5000, 1001), 3);
    let end = |sid, number| segment(sid, number, true, ACK, (1001, 5001));
    let of = |sid: u16| node.compiled().firewalls[usize::from(sid - ONE)].entry.table;
    let state = |sid: u16, number: u32| {
        let port = 1024 + number;
        let entries = node.connections();
        let ports = |entry: &segue_abi::ConnectionEntry| [entry.key.ports >> 16, entry.key.ports & 0xffff];
        let mut found = entries.iter().filter(|(table, entry)| *table == of(sid) && ports(entry).contains(&port));
        found.next().map(|(_, entry)| {
            let at = |side: usize| {
                let segue_abi::TcpSide { end, limit, window, acknowledged } = entry.connection.side[side];
                (end, limit, window, acknowledged)
            };
            let c = entry.connection;
            let last = (c.last_sequence, c.last_acknowledgment, c.last_end, c.last_window, c.last_event, c.last_side);
            (c.state, c.flags, c.forward, [at(0), at(1)], c.scale, c.side_flags, last, c.repeats, c.last_flags)
        })
    };
    let flood = |from: u32| {
        let half =
            |number| [segment(ONE, number, true, SYN, (1000, 0)), segment(ONE, number, false, SYN | ACK, (5000, 1001))];
        let flood: Vec<Vec<u8>> = (from..from + 2000).flat_map(half).collect();
        assert_eq!(passed(&node, &flood), flood.len());
    };
    let both = |packet: &dyn Fn(u16) -> Vec<u8>| assert_eq!(passed(&node, &[packet(ONE), packet(OTHER)]), 2);
    (1..9).for_each(|number| both(&|sid| syn(sid, number)));
    flood(1000);
    for number in 1..9 {
        both(&|sid| answer(sid, number));
        assert_eq!(state(ONE, number), state(OTHER, number), "known by the SYN/ACK");
    }
    flood(3000);
    assert!((1..9).all(|number| state(ONE, number).is_none() && state(OTHER, number).is_some()), "all gave way");
    let refused = |number, forward, flags, numbers| {
        assert_eq!(passed(&node, &[segment(ONE, number, forward, flags, numbers)]), 0, "{flags:x} {numbers:?}");
    };
    refused(1, true, ACK, (1001, 5002));
    refused(1, true, ACK, (1002, 5001));
    refused(1, true, ACK, (1000, 5000));
    refused(1, false, ACK, (5001, 1001)); // no answer, and not from who began
    refused(9, true, ACK, (1001, 5001)); // no beginning
    for number in [1, 2] {
        // With data at once, or after a SYN/ACK that had to come again.
        if number == 2 {
            both(&|sid| answer(sid, number));
        }
        both(&|sid| end(sid, number));
        let known = state(ONE, number);
        assert!(known.is_some());
        assert_eq!(known, state(OTHER, number), "connection {number}");
    }
    both(&|sid| segment(sid, 6, false, RST | ACK, (5001, 1001)));
    for number in 3..6 {
        both(&|sid| match number {
            3 => header(sid, number, true, ACK, (1001, 5001), Vec::new()).payload(&[0; 100]).build(),
            4 => segment(sid, number, true, FIN | ACK, (1001, 5001)),
            _ => segment(sid, number, true, RST | ACK, (1001, 5001)),
        });
        let ends = |sid| state(sid, number).map(|state| (state.0, state.2));
        assert!(ends(ONE).is_some());
        assert_eq!(ends(ONE), ends(OTHER), "connection {number}");
    }
    // Both windows hold, first that of the SYN/ACK, then those that are scaled. A little more passes as well, as in netfilter.
    let data = |octet: u32| segment(ONE, 1, true, ACK, (1001 + octet, 5001));
    let back = |octet: u32| segment(ONE, 1, false, ACK, (5001 + octet, 1001));
    let passes = |packet| passed(&node, &[packet]) == 1;
    assert!(!passes(data(2 * WINDOW + 10)) && passes(data(WINDOW)));
    assert!(!passes(back((WINDOW << 8) + 10)) && passes(back(0)));
    assert!(!passes(data((WINDOW << 4) + 10)) && passes(data(WINDOW << 3)));
    assert!(passes(back(WINDOW << 7)));
}

/// netfilter keys on type and code, lets only the inverse type be the reply, and only requests begin.
#[test]
#[ignore = "needs root"]
fn icmp_queries_are_connections_of_their_own_type() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 512"));
    let v6 = |forward: bool, message_type, code| {
        let body = vec![0, 7, 0, 1];
        steered(ONE).inner_ipv6(ip(forward)).icmpv6(Icmpv6Repr::Other { message_type, code, body }).build()
    };
    let v4 = |forward: bool, message_type, code| {
        let (client, server) = (std::net::Ipv4Addr::new(10, 0, 0, 1), std::net::Ipv4Addr::new(10, 0, 1, 1));
        let ip = if forward { Ipv4Repr::new(client, server) } else { Ipv4Repr::new(server, client) };
        let body = vec![0, 7, 0, 1];
        steered(ONE).inner_ipv4(ip).icmpv4(Icmpv4Repr::Other { message_type, code, body }).build()
    };
    let passes = |packet: Vec<u8>| passed(&node, &[packet]) == 1;
    for (request, reply) in [(128, 129), (139, 140)] {
        assert!(!passes(v6(false, reply, 0)), "{reply}: a reply to nothing");
        assert!(passes(v6(true, request, 0)));
        assert!(!passes(v6(true, reply, 0)), "{reply}: not from who asked");
        assert!(!passes(v6(false, reply, 1)), "{reply}: another code");
        assert!(passes(v6(false, reply, 0)));
    }
    for (request, reply) in [(8, 0), (13, 14), (15, 16), (17, 18)] {
        assert!(!passes(v4(false, reply, 0)), "{reply}: a reply to nothing");
        assert!(passes(v4(true, request, 0)));
        assert!(!passes(v4(true, reply, 0)), "{reply}: not from who asked");
        assert!(!passes(v4(false, reply, 1)), "{reply}: another code");
        assert!(passes(v4(false, reply, 0)));
    }
    let before = node.connections().len();
    assert!(passes(v4(false, 8, 0)), "the other side's request is its own connection");
    assert_eq!(node.connections().len(), before + 1);
    for kind in [9, 10, 30, 42] {
        assert!(!passes(v4(true, kind, 0)), "type {kind} is INVALID");
    }
    for kind in [137, 138, 144, 200] {
        assert!(!passes(v6(true, kind, 0)), "type {kind} is INVALID");
    }
}

/// nf_conntrack_inet_error(): an error goes to whoever sent the packet that it quotes.
#[test]
#[ignore = "needs root"]
fn an_error_to_somebody_else_is_not_related() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 512"));
    let question = |ip: Ipv6Repr| PacketBuilder::new().ipv6(ip).udp(UdpRepr::new(5000, 53)).payload(b"a name");
    let begin = steered(ONE).inner_ipv6(ip(true)).udp(UdpRepr::new(5000, 53)).payload(b"a name").build();
    assert_eq!(passed(&node, &[begin]), 1);
    let router = std::net::Ipv6Addr::new(0xfd00, 0, 0xff, 0, 0, 0, 0, 1);
    let error = |to: std::net::Ipv6Addr, quoted: Vec<u8>| {
        let message = Icmpv6Repr::DestinationUnreachable { code: 4, packet: quoted };
        passed(&node, &[steered(ONE).inner_ipv6(Ipv6Repr::new(router, to)).icmpv6(message).build()]) == 1
    };
    let quoted = question(ip(true)).build();
    assert!(error(CLIENT, quoted.clone()), "from anywhere, to the client");
    assert!(!error(SERVER, quoted.clone()), "to the server");
    assert!(!error(router, quoted), "to anybody");
    assert!(!error(SERVER, question(ip(false)).build()), "about a packet that nobody sent");
    // Octets that look like the ports of a later fragment say nothing, whatever Fragment header the error has itself.
    let quoted = |offset| {
        let header = FragmentRepr { fragment_offset: offset, identification: 7, ..FragmentRepr::default() };
        PacketBuilder::new().ipv6(ip(true)).fragment(header).udp(UdpRepr::new(5000, 53)).payload(b"a name").build()
    };
    let in_a_fragment = |packet: Vec<u8>| {
        let message = Icmpv6Repr::DestinationUnreachable { code: 4, packet };
        let inner = steered(ONE).inner_ipv6(Ipv6Repr::new(router, CLIENT)).fragment(FragmentRepr::default());
        passed(&node, &[inner.icmpv6(message).build()]) == 1
    };
    assert!(error(CLIENT, quoted(0)) && in_a_fragment(quoted(0)), "about an atomic fragment");
    assert!(!error(CLIENT, quoted(8)), "about a later fragment");
    assert!(!in_a_fragment(quoted(8)), "the same in an atomic fragment");
    // An echo request is quoted by its request's type.
    let echo = |message_type| Icmpv6Repr::Other { message_type, code: 0, body: vec![0, 7, 0, 1] };
    assert_eq!(passed(&node, &[steered(ONE).inner_ipv6(ip(true)).icmpv6(echo(128)).build()]), 1);
    let quoted = |kind| PacketBuilder::new().ipv6(ip(true)).icmpv6(echo(kind)).build();
    assert!(error(CLIENT, quoted(128)));
    assert!(!error(CLIENT, quoted(129)), "a reply that the client did not send");
    assert!(!error(CLIENT, quoted(139)));
}

/// Nothing is lost when a table gets another size, nor by applies before and after.
#[test]
#[ignore = "needs root"]
fn connections_go_on_in_a_table_of_another_size() {
    let network = Network::new();
    let mut node = Node::load(&network.node, &document("entries: 1024"));
    assert!((0..500).all(|number| agree(&node, ONE, number) && agree(&node, OTHER, number)));
    for entries in [8192, 1024, 2048] {
        node.apply(&document(&format!("entries: {entries}")));
        for number in 0..500 {
            assert!(known(&node, ONE, number), "connection {number} with {entries} entries");
        }
        // The neighbour's connections lie still: they have to move without a packet of theirs.
    }
    assert!((0..500).all(|number| known(&node, OTHER, number)), "what was idle for three applies");
}

/// A lock that another CPU holds is waited for, then the packet is dropped and the lock is still its holder's; one that was forgotten is
/// taken over and given back.
#[test]
#[ignore = "needs root"]
fn only_its_holder_frees_a_lock() {
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 16"));
    assert!(agree(&node, ONE, 1));
    let mut held = 0;
    // Times are 20 bits, the future is half of them: of these two, one is long ago, and one is yet to come.
    for word in [0x0000_0005, 0x8000_0005] {
        node.change_buckets(|_, bucket| bucket.lock = word);
        let before = counted(&node, "drop_connection_busy");
        let passes = passed(&node, &[segment(ONE, 1, true, ACK, (1001, 5001))]) == 1;
        assert_eq!(counted(&node, "drop_connection_busy") - before, u64::from(!passes));
        let mut locks = Vec::new();
        node.change_buckets(|_, bucket| locks.push(bucket.lock));
        let free = locks.iter().filter(|lock| **lock == 0).count();
        assert_eq!(free, usize::from(passes), "{word:x}: {locks:x?}");
        held += u32::from(!passes);
    }
    assert_eq!(held, 1, "one of the two holders may still be at work");
    node.change_buckets(|_, bucket| bucket.lock = 0);
    assert!(known(&node, ONE, 1));
}

/// Two CPUs, each with one side's segments of the same connection, as fast as they can: every one is inside the window, and no bound is
/// lost.
#[test]
#[ignore = "needs root"]
fn two_cpus_on_one_connection() {
    const ROUNDS: u32 = 30_000;
    const DATA: u32 = 100;
    let network = Network::new();
    let node = Node::load(&network.node, &document("entries: 64"));
    assert!(agree(&node, ONE, 1));
    let ingress = node.compiled().port("core0").expect("a port").entry.ifindex;
    let pins = node.pin_directory();
    // How far each side has sent, and what it has acknowledged: known to the other once the data plane has seen it.
    let sent = [AtomicU32::new(1001), AtomicU32::new(5001)];
    let acknowledged = [AtomicU32::new(5001), AtomicU32::new(1001)];
    let side = |from: usize| {
        let options = Options { capacity: node.capacity(), ..Options::default() };
        let mut dataplane = Dataplane::open_or_load(&pins, options).unwrap_or_else(|error| panic!("{error}"));
        let mut lost = 0;
        for _ in 0..ROUNDS {
            let (begin, answer) = (sent[from].load(Ordering::SeqCst), sent[1 - from].load(Ordering::SeqCst));
            let room = begin.wrapping_sub(acknowledged[1 - from].load(Ordering::SeqCst)) + DATA <= WINDOW;
            let mut frame = segment(ONE, 1, from == 0, ACK, (begin, answer));
            if room {
                frame = with_data(1, from == 0, (begin, answer), DATA as usize);
            }
            let run = TestRun::once(&frame, ingress);
            let output = dataplane.test_run(&run).unwrap_or_else(|error| panic!("{error}"));
            lost += u32::from(output.verdict != REDIRECT);
            sent[from].fetch_add(if room { DATA } else { 0 }, Ordering::SeqCst);
            acknowledged[from].store(answer, Ordering::SeqCst);
        }
        lost
    };
    let lost = std::thread::scope(|scope| {
        let other = scope.spawn(|| network.node.enter(|| side(1)));
        network.node.enter(|| side(0)) + other.join().expect("the other CPU")
    });
    assert_eq!(lost, 0, "segments that were not ESTABLISHED");
    let entries = node.connections();
    assert_eq!(entries.len(), 1);
    let connection = entries[0].1.connection;
    for side in 0..2 {
        assert_eq!(connection.side[side].end, sent[side].load(Ordering::SeqCst), "what side {side} has sent");
        let last = acknowledged[side].load(Ordering::SeqCst);
        assert_eq!(connection.side[side].acknowledged, last, "what side {side} has acknowledged");
    }
    node.change_buckets(|_, bucket| assert_eq!(bucket.lock, 0, "nobody holds it any more"));
}

/// Two CPUs with the same ACK, in the kernel and without a pause, so that they meet: each repetition is counted by adding one to what the
/// other CPU may be adding to. Without the lock some are lost.
#[test]
#[ignore = "needs root"]
fn two_cpus_lose_no_repetition() {
    const REPEAT: u32 = 1_000_000;
    let network = Network::new();
    let document = document("entries: 64").replacen("{name: acc0,", "{name: acc0, firewall: one,", 1);
    let node = Node::load(&network.node, &document);
    let plain = |forward, flags, numbers: (u32, u32)| {
        let (from, to) = if forward { (1000, 80) } else { (80, 1000) };
        let (sequence_number, acknowledgment_number) = numbers;
        let header =
            TcpRepr { sequence_number, acknowledgment_number, window: WINDOW as u16, ..TcpRepr::new(from, to, flags) };
        arriving("acc0").ipv6(ip(forward)).tcp(header).build()
    };
    let ack = plain(true, ACK, (1001, 5001));
    node.run_many(|runner| {
        for packet in [&plain(true, SYN, (1000, 0)), &plain(false, SYN | ACK, (5000, 1001)), &ack] {
            assert_ne!(runner.run("acc0", packet).0, Verdict::Drop);
        }
    });
    let repeats = || u32::from(node.connections()[0].1.connection.repeats);
    assert_eq!((node.connections().len(), repeats()), (1, 0));
    let ingress = node.compiled().port("acc0").expect("a port").entry.ifindex;
    let pins = node.pin_directory();
    let begin = std::sync::Barrier::new(2);
    let side = || {
        let options = Options { capacity: node.capacity(), ..Options::default() };
        let mut dataplane = Dataplane::open_or_load(&pins, options).unwrap_or_else(|error| panic!("{error}"));
        begin.wait();
        let run = TestRun { repeat: REPEAT, ..TestRun::once(&ack, ingress) };
        let output = dataplane.test_run(&run).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(output.frame, ack, "it goes on as it came, so each run sees the same");
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| network.node.enter(side));
        network.node.enter(side);
        other.join().expect("the other CPU");
    });
    // Where a virtual processor slept with the lock, the packet was dropped, and counted nothing.
    let busy = node.counters().get("acc0 drop_connection_busy").map_or(0, |counter| counter.0) as u32;
    assert!(busy < REPEAT, "{busy} packets found no lock");
    assert_eq!(repeats(), (2 * REPEAT - busy) % 256, "repetitions, mod 256");
}

/// A hashlimit's table holds as many buckets as it may: made-up sources push out none, and take none from another rule.
#[test]
#[ignore = "needs root"]
fn made_up_sources_push_out_no_bucket() {
    let rule = |port: u16, name: &str, more: &str| {
        format!(
            "-A FORWARD -p udp --dport {port} -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 1 --hashlimit-mode srcip \
             --hashlimit-name {name} --hashlimit-htable-max 10 {more} -j ACCEPT\\n"
        )
    };
    let rules = [rule(1, "long", ""), rule(2, "other", ""), rule(3, "short", "--hashlimit-htable-expire 1")].concat();
    let text = format!("*filter\\n:FORWARD DROP [0:0]\\n{rules}COMMIT\\n");
    let firewall = format!("firewalls:\n  - {{name: one, ipv6: {{file: v6, text: \"{text}\"}}}}\n");
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: one}\n";
    let network = Network::new();
    let document = configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1);
    let mut node = Node::load(&network.node, &document);
    let passes = |node: &Node<'_>, source: u16, port: u16| {
        let source = std::net::Ipv6Addr::new(0xfd00, 0, 0xee, 0, 0, 0, 0, source);
        let packet = steered(ONE).inner_ipv6(Ipv6Repr::new(source, SERVER)).udp(UdpRepr::new(1, port)).payload(b"x");
        passed(node, &[packet.build()]) == 1
    };
    assert!((0..10).all(|source| passes(&node, source, 1)), "a token each");
    assert!((10..1000).all(|source| !passes(&node, source, 1)), "no room");
    assert_eq!(counted(&node, "drop_hashlimit_full"), 990);
    assert!((0..10).all(|source| !passes(&node, source, 1)), "their buckets are known, and empty");
    assert_eq!(counted(&node, "drop_firewall"), 10);
    assert!((0..10).all(|source| passes(&node, source, 2)), "another table has room");
    // Idle buckets are forgotten, once in a second where there is no room.
    assert!((0..10).all(|source| passes(&node, source, 3)));
    let mut source = 10;
    wait_for("room for a new source", Duration::from_secs(60), || {
        source += 1;
        passes(&node, source, 3).then_some(())
    });
    // They go on with the rules.
    node.apply(&document.replacen("[0:0]", "[0:0]\\n-A FORWARD -p tcp -j ACCEPT", 1));
    assert!((0..10).all(|source| !passes(&node, source, 1)), "still known, and empty");
}

/// Addresses that rules have noted (`-m recent`) are a firewall's own: so many, and no other's give way to them.
#[test]
#[ignore = "needs root"]
fn noted_addresses_give_way_to_those_of_no_other_firewall() {
    let rules = "*filter\\n:FORWARD DROP [0:0]\\n-A FORWARD -p udp -m recent --set --name seen --rsource -j ACCEPT\\n\
                 -A FORWARD -p tcp -m recent --rcheck --name seen --rsource -j ACCEPT\\nCOMMIT\\n";
    let firewall = |name| format!("  - {{name: {name}, ipv6: {{file: v6, text: \"{rules}\"}}}}\n");
    let sids = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: one}\n  - {sid: 'fc00:0:1:a2::/64', behaviour: End.AN, firewall: other}\n";
    let firewalls = format!("firewalls:\n{}{}", firewall("one"), firewall("other"));
    let network = Network::new();
    let document = configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n{sids}"), 1);
    let node = Node::load(&network.node, &document);
    let from = |number: u32| std::net::Ipv6Addr::new(0xfd00, 0, 0xee, 0, 0, 0, (number >> 16) as u16, number as u16);
    let note = |sid, number| {
        let packet = steered(sid).inner_ipv6(Ipv6Repr::new(from(number), SERVER)).udp(UdpRepr::new(1, 2));
        packet.payload(b"x").build()
    };
    let noted = |sid, number| {
        let packet = steered(sid).inner_ipv6(Ipv6Repr::new(from(number), SERVER)).tcp(TcpRepr::new(1, 2, SYN));
        passed(&node, &[packet.build()]) == 1
    };
    assert_eq!(passed(&node, &[note(OTHER, 0), note(ONE, 0)]), 2);
    let flood: Vec<Vec<u8>> = (1..20_000).map(|number| note(ONE, number)).collect();
    assert_eq!(passed(&node, &flood), flood.len());
    assert!(noted(OTHER, 0), "a neighbour's address gave way");
    assert!(!noted(OTHER, 1), "a list is its firewall's own");
    let each = segue_abi::SEGUE_RECENT_EACH;
    assert!((20_000 - each..20_000).all(|number| noted(ONE, number)), "the last ones of its own");
    assert!((0..20_000 - each).all(|number| !noted(ONE, number)), "and no more");
}
