//! The examples with a firewall: real TCP, UDP and ping, IPv4 and IPv6. What the rules allow passes, what they refuse is refused as they
//! say, answers come back, and the counter of every rule says how many packets hit it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::TestLab;
use segue_lab::demo::hops::{Counters, way};
use segue_lab::demo::traffic::{self, End};
use segue_lab::state::Kind;
use segue_lab::{agent, list, netns};
use serde_json::Value;

/// An answer is waited for so long, if need be.
const SOON: Duration = Duration::from_secs(20);
/// Longer than anything usually takes that is not dropped.
const NEVER: Duration = Duration::from_millis(700);

/// Every 40th segment that comes, and every 50th that goes, is lost.
const LOSSES: &str = "table inet losses {
  chain in { type filter hook input priority 0; meta l4proto tcp numgen inc mod 40 == 0 counter drop; }
  chain out { type filter hook output priority 0; meta l4proto tcp numgen inc mod 50 == 0 counter drop; }
}";

fn end(lab: &TestLab, host: &str) -> End {
    let addresses = lab.addresses(host).iter().map(|text| text.parse().unwrap()).collect();
    End { name: host.into(), namespace: lab.namespace(host), addresses }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// What a rule of a firewall has counted; `words` tell it from all others. `IPv6 policy` is the policy.
fn counted(lab: &TestLab, node: &str, words: &[&str]) -> u64 {
    let firewalls = agent::get(&lab.paths().socket(node), node, agent::FIREWALLS).unwrap();
    let rows = ["rules", "policies"].into_iter().flat_map(|key| firewalls[0][key].as_array().unwrap().clone());
    let found: Vec<Value> =
        rows.filter(|row| words.iter().all(|word| row["name"].as_str().unwrap().contains(word))).collect();
    assert_eq!(found.len(), 1, "{words:?} names one rule of {firewalls:#}");
    found[0]["packets"].as_u64().unwrap()
}

/// The outcome of a connection on which an octet goes there and back, if it comes to that.
fn tcp(from: &End, to: &End, there: IpAddr, port: u16, patience: Duration) -> Result<(), ErrorKind> {
    let address = SocketAddr::new(there, port);
    let listener = netns::inside(&to.namespace, || TcpListener::bind(address)).unwrap().unwrap();
    let client = netns::inside(&from.namespace, || TcpStream::connect_timeout(&address, patience)).unwrap();
    let mut client = client.map_err(|error| error.kind())?;
    let (mut server, _) = listener.accept().unwrap();
    let mut octet = [0];
    client.set_read_timeout(Some(SOON)).unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut octet).unwrap();
    server.write_all(&octet).unwrap();
    client.read_exact(&mut octet).unwrap();
    assert_eq!(&octet, b"x");
    Ok(())
}

/// The outcome of a datagram that is sent back.
fn udp(from: &End, to: &End, there: IpAddr, port: u16, patience: Duration) -> Result<(), ErrorKind> {
    let bind = |end: &End, address: SocketAddr| {
        let socket = netns::inside(&end.namespace, || UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket
    };
    let server = bind(to, SocketAddr::new(there, port));
    let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = bind(from, any.parse().unwrap());
    // Connected, so that ICMP errors are told.
    client.connect((there, port)).unwrap();
    client.send(b"there").unwrap();
    let mut bytes = [0; 8];
    let end = Instant::now() + patience;
    loop {
        // Either may have something first: the server the datagram, or the client an ICMP error.
        if let Ok((length, peer)) = server.recv_from(&mut bytes) {
            server.send_to(&bytes[..length], peer).unwrap();
        }
        match client.recv(&mut bytes) {
            Ok(length) => {
                assert_eq!(&bytes[..length], b"there");
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {}
            Err(error) => return Err(error.kind()),
        }
    }
}

/// Nobody told the sender anything.
fn dropped(outcome: Result<(), ErrorKind>) {
    assert!(matches!(outcome, Err(ErrorKind::TimedOut | ErrorKind::WouldBlock)), "{outcome:?}");
}

/// A packet of each family crosses each link both ways, so that nobody waits for a neighbour, and no SYN is sent twice.
fn neighbours(from: &End, to: &End) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for (_, there) in traffic::pairs(from, to) {
        while traffic::ping(from, there, 1).unwrap().received == 0 {
            assert!(Instant::now() < deadline, "{} does not reach {there}", from.name);
        }
    }
}

/// How many more packets each of the rules has counted than before.
fn moved<const N: usize>(lab: &TestLab, node: &str, rules: [&[&str]; N], what: impl FnOnce()) -> [u64; N] {
    let before = rules.map(|words| counted(lab, node, words));
    what();
    let after = rules.map(|words| counted(lab, node, words));
    std::array::from_fn(|index| after[index] - before[index])
}

#[test]
#[ignore = "needs root"]
fn firewall() {
    let lab = TestLab::example("firewall");
    let (client, server, guest) = (end(&lab, "client"), end(&lab, "server"), end(&lab, "guest"));
    neighbours(&client, &server);
    for (_, there) in traffic::pairs(&client, &server) {
        let of = family(there);
        let moved = |words: &[&str], what: &mut dyn FnMut()| {
            let words: Vec<&str> = words.iter().copied().chain([of]).collect();
            moved(&lab, "nfv", [&words], what)[0]
        };
        let known = ["RELATED,ESTABLISHED"];
        // Allowed: the first packet by its own rule, all others because the connection is known.
        let mut ok = || assert_eq!(tcp(&client, &server, there, 8080, SOON), Ok(()));
        assert_eq!(moved(&["multiport"], &mut ok), 1, "{of}: one SYN");
        assert!(moved(&known, &mut ok) >= 6, "{of}: the rest of it, both ways");
        assert_eq!(moved(&["--dport 7000"], &mut || assert_eq!(udp(&client, &server, there, 7000, SOON), Ok(()))), 1);
        let answered = moved(&known, &mut || assert_eq!(udp(&client, &server, there, 7000, SOON), Ok(())));
        assert_eq!(answered, 1, "{of}: the answer");
        let pings = moved(&["-m limit"], &mut || {
            let echo = traffic::ping(&client, there, 3).unwrap();
            assert_eq!((echo.sent, echo.received), (3, 3));
        });
        // One connection, which its answer makes known.
        assert_eq!(pings, 1, "{of}: the first request");
        // Refused: the client is told.
        let refused = Err(ErrorKind::ConnectionRefused);
        let resets = moved(&["tcp-reset"], &mut || assert_eq!(tcp(&client, &server, there, 25, SOON), refused));
        assert_eq!(resets, 1, "{of}");
        let logged = moved(&["NFLOG"], &mut || assert_eq!(tcp(&client, &server, there, 23, SOON), refused));
        assert_eq!(logged, 1, "{of}: telnet is recorded, and goes on to the REJECT");
        let errors = moved(&["port-unreach"], &mut || assert_eq!(udp(&client, &server, there, 53, SOON), refused));
        assert_eq!(errors, 1, "{of}");
        // Dropped: nobody is told. The policy, as no rule says anything about what the server begins.
        let begun = moved(&["policy"], &mut || {
            let (_, back) = traffic::pairs(&server, &client).into_iter().find(|(_, to)| family(*to) == of).unwrap();
            dropped(tcp(&server, &client, back, 80, NEVER));
            assert_eq!(traffic::ping(&server, back, 1).unwrap().received, 0);
        });
        assert_eq!(begun, 2, "{of}: a SYN and an echo request");
        // The guest: by source address.
        assert_eq!(moved(&["guests"], &mut || assert_eq!(tcp(&guest, &server, there, 80, SOON), Ok(()))), 1);
        let network = if there.is_ipv4() { "-s 10.0.3.0/24 -j DROP" } else { "-s 2001:db8:3::/64 -j DROP" };
        let count = moved(&[network], &mut || {
            dropped(tcp(&guest, &server, there, 8080, NEVER));
            dropped(udp(&guest, &server, there, 7000, NEVER));
            assert_eq!(traffic::ping(&guest, there, 1).unwrap().received, 0);
        });
        assert_eq!(count, 3, "{of}");
    }
    // A file of some size, so that segments fill the links.
    let directory = tempfile::tempdir().unwrap();
    let web = traffic::serve(&server, &directory.path().join("www"), 2 << 20).unwrap();
    let download = || {
        for address in &server.addresses {
            let got = traffic::download(&client, *address, &directory.path().join("got")).unwrap();
            assert_eq!(got.digest, web.digest, "{address}");
        }
    };
    let wrong = [&["IPv4", "INVALID"][..], &["IPv6", "INVALID"], &["IPv4 policy"], &["IPv6 policy"]];
    assert_eq!(moved(&lab, "nfv", wrong, download), [0; 4], "no segment is outside of its window");
    // Segments are lost before the firewall and behind it, and sent again.
    for host in ["client", "server"] {
        lab.sh(host, &format!("nft '{LOSSES}'"));
    }
    assert_eq!(moved(&lab, "nfv", wrong, download), [0; 4], "nor after losses");
    shown(&lab);
    lab.down();
}

/// The firewall is where it is: in lists, plans and drops, and in no namespace of its own.
fn shown(lab: &TestLab) {
    let status = list::status(&lab.roots, &lab.name).unwrap();
    let firewall = status.nodes.iter().find(|node| node.name == "fw").unwrap();
    assert_eq!((firewall.kind, firewall.up, firewall.namespace.as_str()), ("firewall", true, &*lab.namespace("nfv")));
    assert!(!netns::exists(&lab.namespace("fw")));
    assert_eq!(lab.record.namespaces(), 6);
    assert_eq!(lab.record.node("fw").unwrap().kind, Kind::Firewall);
    // A command in the firewall is one in its node.
    assert!(lab.try_sh("nfv", "ip link show edge1"));
    let counters = Counters::read(&lab.paths(), &lab.loaded.plan).unwrap();
    let forward: Vec<_> =
        lab.loaded.plan.explain().iter().filter(|step| step.policy == "clients-forward").cloned().collect();
    let hops = way(&forward, &counters).hops;
    let rules: Vec<_> = hops.iter().filter(|hop| hop.node == "fw").collect();
    assert!(rules.iter().any(|hop| hop.what.starts_with("rule IPv6 -A services") && hop.packets > 0), "{rules:?}");
    assert!(!hops.iter().any(|hop| hop.what.starts_with("back from")), "{hops:?}");
    let sids = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/sids").unwrap();
    assert!(sids.as_array().unwrap().iter().any(|sid| sid["to"] == "firewall fw"), "{sids}");
    let drops = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/drops").unwrap();
    let reasons: Vec<_> = drops.as_array().unwrap().iter().map(|drop| drop["reason"].as_str().unwrap()).collect();
    assert!(reasons.iter().all(|reason| ["drop_firewall", "drop_firewall_rejected"].contains(reason)), "{drops}");
}

/// Packets that the function behind the gate has seen: pings, datagrams, segments of TCP.
fn scanned(lab: &TestLab) -> [u64; 3] {
    ["pings", "datagrams", "streams"].map(|name| {
        let counters = Counters::read(&lab.paths(), &lab.loaded.plan).unwrap();
        counters.of_function("scanner", name).unwrap().packets
    })
}

#[test]
#[ignore = "needs root"]
fn firewall_labels() {
    let lab = TestLab::example("firewall-labels");
    let (client, server) = (end(&lab, "client"), end(&lab, "server"));
    neighbours(&client, &server);
    for (_, there) in traffic::pairs(&client, &server) {
        let of = family(there);
        let steered = |words: &str, what: &dyn Fn()| moved(&lab, "nfv", [&[words, of][..]], what)[0];
        let before = scanned(&lab);
        let count = steered("skip-next", &|| assert_eq!(traffic::ping(&client, there, 3).unwrap().received, 3));
        assert_eq!((count, scanned(&lab)), (3, before), "{of}: past the scanner, and back by it");
        let count = steered("go-last", &|| assert_eq!(udp(&client, &server, there, 7000, SOON), Ok(())));
        assert_eq!((count, scanned(&lab)), (1, before), "{of}");
        let count = steered("go-next", &|| assert_eq!(tcp(&client, &server, there, 8000, SOON), Ok(())));
        let now = scanned(&lab);
        assert!(count >= 4 && now[2] >= before[2] + 4 && now[..2] == before[..2], "{of}: {count}, {before:?}, {now:?}");
        let refused = || assert_eq!(tcp(&client, &server, there, 23, SOON), Err(ErrorKind::ConnectionRefused));
        assert_eq!(steered("tcp-reset", &refused), 1, "{of}");
        assert_eq!(counted(&lab, "nfv", &["policy", of]), 0, "all came with one of the two stacks");
    }
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn firewall_srh() {
    let lab = TestLab::example("firewall-srh");
    let (client, server) = (end(&lab, "client"), end(&lab, "server"));
    neighbours(&client, &server);
    let scanned = || scanned(&lab);
    for (_, there) in traffic::pairs(&client, &server) {
        let of = family(there);
        let steered = |words: &[&str], what: &dyn Fn()| moved(&lab, "nfv", [words], what)[0];
        // Pings go past the scanner, to the last segment; their answers come by it.
        let protocol = if there.is_ipv4() { "-p icmp " } else { "--inner-dst" };
        let before = scanned();
        let count =
            steered(&[protocol, "go-last"], &|| assert_eq!(traffic::ping(&client, there, 3).unwrap().received, 3));
        assert_eq!((count, scanned()), (3, before), "{of}");
        // UDP by its chain's mark: past the scanner.
        let count = steered(&["eval-args"], &|| assert_eq!(udp(&client, &server, there, 7000, SOON), Ok(())));
        assert_eq!((count, scanned()), (1, before), "{of}");
        // TCP by the scanner.
        let count = steered(&["go-next"], &|| assert_eq!(tcp(&client, &server, there, 8000, SOON), Ok(())));
        assert!(count >= 4, "{of}: SYN, ACKs, an octet, FIN: {count}");
        let now = scanned();
        assert!(now[2] >= before[2] + 4 && now[..2] == before[..2], "{of}: {before:?}, then {now:?}");
        let count = steered(&["tcp-reset"], &|| {
            assert_eq!(tcp(&client, &server, there, 23, SOON), Err(ErrorKind::ConnectionRefused));
        });
        assert_eq!(count, 1, "{of}");
    }
    assert_eq!(counted(&lab, "nfv", &["! -s fc00:5ea::/32"]), 0, "all came from a node of the domain");
    assert_eq!(counted(&lab, "nfv", &["IPv6 policy"]), 0);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn firewall_plain() {
    let lab = TestLab::example("firewall-plain");
    let (client, server) = (end(&lab, "client"), end(&lab, "server"));
    neighbours(&client, &server);
    for (_, there) in traffic::pairs(&client, &server) {
        let of = family(there);
        let count = |words: &[&str], what: &dyn Fn()| {
            let words: Vec<&str> = words.iter().copied().chain([of]).collect();
            moved(&lab, "router", [&words], what)[0]
        };
        let refused = Err(ErrorKind::ConnectionRefused);
        assert_eq!(count(&["--dport 80"], &|| assert_eq!(tcp(&client, &server, there, 80, SOON), Ok(()))), 1);
        assert!(count(&["ESTABLISHED"], &|| assert_eq!(tcp(&client, &server, there, 80, SOON), Ok(()))) >= 6);
        assert_eq!(count(&["--dport 7000"], &|| assert_eq!(udp(&client, &server, there, 7000, SOON), Ok(()))), 1);
        let echo = if there.is_ipv4() { "--icmp-type 8" } else { "--icmpv6-type 128" };
        assert_eq!(count(&[echo], &|| assert_eq!(traffic::ping(&client, there, 2).unwrap().received, 2)), 1);
        assert_eq!(count(&["tcp-reset"], &|| assert_eq!(tcp(&client, &server, there, 81, SOON), refused)), 1);
        assert_eq!(count(&["port-unreach"], &|| assert_eq!(udp(&client, &server, there, 53, SOON), refused)), 1);
        let back = if there.is_ipv4() { client.addresses[0] } else { client.addresses[1] };
        assert_eq!(count(&["policy"], &|| assert_eq!(traffic::ping(&server, back, 1).unwrap().received, 0)), 1);
        assert_eq!(count(&["tcp-reset"], &|| assert_eq!(tcp(&server, &client, back, 80, SOON), refused)), 1);
    }
    assert!(
        !lab.sh("router", "ip -6 route").contains("seg6local action End.AN"),
        "no Segment Routing: no firewall SID"
    );
    lab.down();
}
