//! The examples carry traffic as their comments promise: every chain of each, both ways, IPv4 and IPv6, with every station's
//! counter telling the same number of packets.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{TestLab, repository};
use segue_lab::demo::hops::Counters;
use segue_lab::demo::traffic::{self, End, Flow};
use segue_lab::{agent, netns};
use segue_model::label::LabelBehaviour;
use segue_model::topology::Endpoint;
use segue_plan::{Approach, Direction, Explanation, StepAction};

/// UDP flows of each family; each sends one datagram and gets one back.
const FLOWS: u64 = 64;

/// What is sent through a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file over HTTP, TCP port 80.
    Web,
    /// Pings both ways, and TCP to a port other than 80.
    PingAndTcp,
    /// Datagrams of many flows, there and back.
    Udp,
}

pub fn example(name: &str) -> TestLab {
    TestLab::example(name)
}

fn end(lab: &TestLab, host: &str) -> End {
    let addresses = lab.addresses(host).iter().map(|text| text.parse().unwrap()).collect();
    End { name: host.into(), namespace: lab.namespace(host), addresses }
}

fn send(kind: Kind, from: &End, to: &End) {
    match kind {
        Kind::Web => {
            let directory = tempfile::tempdir().unwrap();
            let web = traffic::serve(to, &directory.path().join("www"), 2 << 20).unwrap();
            for address in &to.addresses {
                let got = traffic::download(from, *address, &directory.path().join("got")).unwrap();
                assert_eq!(got.digest, web.digest, "{address}");
            }
        }
        Kind::PingAndTcp => {
            for (here, there) in traffic::pairs(from, to) {
                for (from, address) in [(from, there), (to, here)] {
                    let echo = traffic::ping(from, address, 5).unwrap();
                    assert_eq!((echo.sent, echo.received), (5, 5), "{} to {address}", from.name);
                }
                let throughput = traffic::iperf(from, to, there, Flow::Tcp, 1).unwrap();
                assert!(throughput.bits_per_second > 1e6, "{there}: {throughput:?}");
            }
        }
        Kind::Udp => traffic::pairs(from, to).into_iter().for_each(|(_, there)| datagrams(from, to, there)),
    }
}

/// One datagram of each flow to the other end, and one back.
fn datagrams(from: &End, to: &End, address: std::net::IpAddr) {
    let bind = |host: &End, address| {
        let socket = netns::inside(&host.namespace, || UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        socket
    };
    let server = bind(to, SocketAddr::new(address, 7000));
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut bytes = [0; 64];
    for flow in 0..FLOWS {
        let client = bind(from, any.parse().unwrap());
        client.send_to(&flow.to_be_bytes(), (address, 7000)).unwrap();
        let (length, peer) = server.recv_from(&mut bytes).unwrap_or_else(|error| panic!("flow {flow} there: {error}"));
        server.send_to(&bytes[..length], peer).unwrap();
        let length = client.recv(&mut bytes).unwrap_or_else(|error| panic!("flow {flow} back: {error}"));
        assert_eq!(bytes[..length], flow.to_be_bytes());
    }
}

/// Packets at each station of each way of a chain, in order; the key is direction and policy. Stations without an agent (the
/// kernel's) count nothing and are left out.
pub type Stations = BTreeMap<(Direction, String), Vec<(String, u64)>>;

/// Functions that several chains share are no station of one chain: see [`shared`].
fn stations(lab: &TestLab, chain: &str) -> Stations {
    let plan = &lab.loaded.plan;
    let counters = Counters::read(&lab.paths(), plan).unwrap_or_else(|error| panic!("{error}"));
    let mut found = Stations::new();
    let has_agent = |step: &&Explanation| plan.nodes[&step.node].state.is_some();
    for step in plan.explain().iter().filter(|step| step.chain == chain).filter(has_agent) {
        let way = found.entry((step.direction, step.policy.clone())).or_default();
        match &step.action {
            StepAction::Headend { .. } | StepAction::Push { .. } => {
                let count = counters.of_policy(&step.node, &step.policy).unwrap();
                way.push((format!("headend {}", step.node), count.packets));
            }
            StepAction::Segment { sid, function, .. } => {
                // An egress SID serves all chains of its node: it has no count of one chain.
                let (arrived, returned) = counters.of_sid(&step.node, *sid).unwrap();
                if let Some(function) = function.as_ref().filter(|function| !is_shared(lab, function)) {
                    way.push((format!("to {function}"), arrived.packets));
                    way.push((format!("from {function}"), returned.unwrap().packets));
                }
            }
            StepAction::Label { labels, function, .. } => {
                if let Some(function) = function.as_ref().filter(|function| !is_shared(lab, function)) {
                    let (arrived, returned) = counters.of_label(&step.node, *labels.last().unwrap()).unwrap();
                    way.push((format!("to {function}"), arrived.packets));
                    way.push((format!("from {function}"), returned.unwrap().packets));
                }
            }
        }
    }
    found
}

pub fn approach(lab: &TestLab, function: &str) -> Approach {
    segue_wiring::approach(&lab.loaded.topology, function).unwrap().0
}

fn is_shared(lab: &TestLab, function: &str) -> bool {
    approach(lab, function).is_shared()
}

/// The SID that a segment of the plan belongs to, without its argument, or the label; and whether a function stands behind it.
fn shared_sid(lab: &TestLab, step: &Explanation) -> Option<(String, bool)> {
    let is_own = |function: &Option<String>| function.as_ref().is_some_and(|function| !is_shared(lab, function));
    match &step.action {
        StepAction::Segment { sid, function, .. } if !is_own(function) => {
            let state = lab.loaded.plan.nodes[&step.node].state.as_ref()?;
            let found = state.sids.iter().find(|one| one.sid.contains(sid))?;
            Some((found.sid.to_string(), function.is_some()))
        }
        // The label of a waypoint is off when packets get there.
        StepAction::Label { behaviour: LabelBehaviour::Node, .. } => None,
        StepAction::Label { labels, function, .. } if !is_own(function) => {
            Some((format!("label {}", labels.last()?), function.is_some()))
        }
        _ => None,
    }
}

/// Packets at all SIDs and labels that several chains may share, by SID or label; those back from a function beside those to it.
fn shared(lab: &TestLab) -> BTreeMap<String, u64> {
    let plan = &lab.loaded.plan;
    let counters = Counters::read(&lab.paths(), plan).unwrap_or_else(|error| panic!("{error}"));
    let mut found = BTreeMap::new();
    for step in plan.explain() {
        let Some((name, is_function)) = shared_sid(lab, step) else { continue };
        let counted = match &step.action {
            StepAction::Segment { sid, .. } => counters.of_sid(&step.node, *sid),
            StepAction::Label { labels, .. } => counters.of_label(&step.node, *labels.last().unwrap()),
            _ => None,
        };
        let Some((arrived, returned)) = counted else { continue };
        if is_function {
            found.insert(format!("{name} back"), returned.unwrap().packets);
        }
        found.insert(name, arrived.packets);
    }
    found
}

/// Sends traffic through one chain and checks what every station counted; other chains see nothing of it.
pub fn chain_carries(lab: &TestLab, chain: &str, kind: Kind) -> Stations {
    let definition = &lab.loaded.topology.chains[chain];
    let (Endpoint::Host(from), Endpoint::Host(to)) = (&definition.from, &definition.to) else {
        panic!("{chain} is between hosts");
    };
    let (from, to) = (end(lab, from), end(lab, to));
    let all = || -> Vec<(String, Stations)> {
        lab.loaded.topology.chains.keys().map(|name| (name.clone(), stations(lab, name))).collect()
    };
    // What is on TAP has no kernel that counts.
    let functions = lab.loaded.plan.functions.iter().filter(|(_, function)| function.has_namespace());
    let functions: Vec<_> = functions.map(|(name, _)| (name.clone(), forwarded(lab, name))).collect();
    let (before, shared_before, lost_before) = quiet(|| (all(), shared(lab), lost(lab)));
    send(kind, &from, &to);
    // The last packets of TCP may still be on their way.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (after, shared_after) = (all(), shared(lab));
        // Read last: what a station has not seen because it was lost is among the lost.
        let lost = lost(lab) - lost_before;
        let found = check(lab, chain, &before, &after, (&shared_before, &shared_after), lost);
        match found {
            Ok(moved) => {
                for (name, counts) in functions {
                    let visited = definition.via.contains(&name);
                    let now = forwarded(lab, &name);
                    // What keeps its steering header is IPv6, whatever is in it.
                    let outer = matches!(approach(lab, &name), Approach::Masquerading | Approach::Aware);
                    for (family, (was, is)) in ["IPv4", "IPv6"].iter().zip(counts.iter().zip(now)) {
                        let expected = visited && !(outer && *family == "IPv4");
                        assert_eq!(is > *was, expected, "{chain}: {name} forwarded {family}: {was}, then {is}");
                    }
                }
                return moved;
            }
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Err(what) => panic!("{what}"),
        }
    }
}

/// IPv4 and IPv6 packets that a function forwarded, as its own kernel counts them.
fn forwarded(lab: &TestLab, function: &str) -> [u64; 2] {
    let text = lab.sh(function, "nstat -asz IpForwDatagrams Ip6OutForwDatagrams");
    ["IpForwDatagrams", "Ip6OutForwDatagrams"].map(|name| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

/// What is counted, of one moment: stations are asked one after the other, and what a host sends by itself meanwhile one of them has seen and the
/// next one asked has not.
fn quiet<T: PartialEq>(count: impl Fn() -> T) -> T {
    let mut last = count();
    for _ in 0..100 {
        let now = count();
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// Packets that the interfaces of all nodes and functions count as dropped: a queue was full, as happens on a machine with more to
/// do than processors. The two ends of a link may both count the same packet.
fn lost(lab: &TestLab) -> u64 {
    let functions = lab.loaded.plan.functions.iter().filter(|(_, function)| function.has_namespace());
    let spaces = lab.loaded.plan.nodes.keys().chain(functions.map(|(name, _)| name));
    let of_space = |name: &String| -> u64 {
        let links: serde_json::Value = serde_json::from_str(&lab.sh(name, "ip -j -s link")).unwrap();
        let links = links.as_array().unwrap().iter();
        links
            .map(|link| ["rx", "tx"].map(|way| link["stats64"][way]["dropped"].as_u64().unwrap()).iter().sum::<u64>())
            .sum()
    };
    spaces.map(of_space).sum()
}

/// Every station saw what the one before it saw, less at most what was lost on the way: all stations together miss no more than
/// the interfaces have counted.
fn check(
    lab: &TestLab,
    chain: &str,
    before: &[(String, Stations)],
    after: &[(String, Stations)],
    shared: (&BTreeMap<String, u64>, &BTreeMap<String, u64>),
    lost: u64,
) -> Result<Stations, String> {
    let mut moved = Stations::new();
    let mut missing = 0;
    for ((name, before), (_, after)) in before.iter().zip(after) {
        for (way, counts) in after {
            let grown: Vec<(String, u64)> =
                counts.iter().zip(&before[way]).map(|(now, was)| (now.0.clone(), now.1 - was.1)).collect();
            let first = grown.first().map_or(0, |station| station.1);
            if name != chain && grown.iter().any(|station| station.1 != 0) {
                return Err(format!("{chain}'s traffic was seen by {name}: {way:?} {grown:?}"));
            }
            if name == chain {
                if first == 0 && !grown.is_empty() || grown.windows(2).any(|pair| pair[0].1 < pair[1].1) {
                    return Err(format!("{chain} {way:?}: the stations disagree: {grown:?}"));
                }
                missing += first - grown.last().map_or(0, |station| station.1);
                moved.insert(way.clone(), grown);
            }
        }
    }
    if missing > lost {
        return Err(format!("{chain}: {missing} packets are missing, {lost} were lost: {moved:?}"));
    }
    // Waypoints and egress: each SID saw what the ways over it sent.
    let mut expected = BTreeMap::<String, u64>::new();
    for step in lab.loaded.plan.explain().iter().filter(|step| step.chain == chain) {
        let way = &moved.get(&(step.direction, step.policy.clone()));
        if let (Some((sid, is_function)), Some(station)) = (shared_sid(lab, step), way.and_then(|way| way.first())) {
            if is_function {
                *expected.entry(format!("{sid} back")).or_default() += station.1;
            }
            *expected.entry(sid).or_default() += station.1;
        }
    }
    for (sid, now) in shared.1 {
        let (grown, expected) = (now - shared.0[sid], expected.get(sid).copied().unwrap_or(0));
        if grown > expected || grown + lost < expected {
            return Err(format!("{chain}: {sid} saw {grown} packets, not {expected}; {lost} were lost"));
        }
    }
    Ok(moved)
}

/// Packets that came in by a port and left by another.
fn forwarded_from(lab: &TestLab, node: &str, port: &str) -> u64 {
    let ports = agent::get(&lab.paths().socket(node), node, "/v1/ports").unwrap();
    let found = ports.as_array().unwrap().iter().find(|one| one["name"] == port).unwrap();
    found["forwarded"]["packets"].as_u64().unwrap()
}

/// A named counter of a function's rules that has counted something.
fn counted(lab: &TestLab, function: &str, table: &str, counter: &str) {
    let text = lab.sh(function, &format!("nft list counter {table} {counter}"));
    assert!(text.contains("packets ") && !text.contains("packets 0 "), "{text}");
}

/// No node dropped anything, whatever the reason.
pub fn nothing_dropped(lab: &TestLab) {
    assert_eq!(dropped(lab), Vec::<String>::new());
}

/// What all nodes have dropped so far, by port and reason.
pub fn dropped(lab: &TestLab) -> Vec<String> {
    let agents = lab.record.nodes.iter().filter(|node| node.socket.is_some());
    let of_node = |node: &str| {
        let drops = agent::get(&lab.paths().socket(node), node, "/v1/drops").unwrap();
        let text = |drop: &serde_json::Value| {
            format!("{node} {} {} {}", drop["port"], drop["reason"], drop["counter"]["packets"])
        };
        drops.as_array().unwrap().iter().map(text).collect::<Vec<_>>()
    };
    agents.flat_map(|node| of_node(&node.name)).collect()
}

#[test]
#[ignore = "needs root"]
fn ring_ecmp() {
    flows_take_both_ways_around(example("ring-ecmp"));
}

/// The same with labels in place of SIDs.
#[test]
#[ignore = "needs root"]
fn ring_ecmp_by_labels() {
    let text = std::fs::read_to_string(repository("examples/ring-ecmp.yaml")).unwrap();
    let text = text.replacen("name: ring-ecmp\n", "domain: {dataplane: sr-mpls, entropy_labels: true}\n", 1);
    flows_take_both_ways_around(TestLab::up("rin", &text));
}

fn flows_take_both_ways_around(lab: TestLab) {
    chain_carries(&lab, "web", Kind::Web);
    chain_carries(&lab, "rest", Kind::PingAndTcp);
    let ways = || [("north", "west"), ("south", "west"), ("east", "west")].map(|(n, p)| forwarded_from(&lab, n, p));
    let before = ways();
    for counts in chain_carries(&lab, "spread", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    let now = ways();
    let [north, south, direct] = [0, 1, 2].map(|way| now[way] - before[way]);
    assert_eq!((north + south, direct), (2 * FLOWS, 0), "all by the equal ways, none by the long link");
    // 128 fair coins show a side fewer than 24 times once in 10^13.
    assert!(north.min(south) >= 24, "spread over both: {north} by north, {south} by south");
    nothing_dropped(&lab);
    lab.down();
}

/// Labels steer what SIDs would: by a waypoint that is not on the shortest path, and by that one.
#[test]
#[ignore = "needs root"]
fn labels() {
    let lab = example("labels");
    let count = || {
        let counters = Counters::read(&lab.paths(), &lab.loaded.plan).unwrap_or_else(|error| panic!("{error}"));
        // The way there at each node, the table at its end, and the waypoint's own label.
        [("north", 16_003), ("south", 16_003), ("far", 16_003), ("east", 30_300), ("south", 16_004)]
            .map(|(node, label)| counters.of_label(node, label).unwrap_or_else(|| panic!("{node}: {label}")).0.packets)
    };
    let (before, lost_before) = (count(), lost(&lab));
    let web = chain_carries(&lab, "web", Kind::Web)[&(Direction::Forward, "web-forward".to_owned())][0].1;
    let moved = |before: [u64; 5]| {
        let now = count();
        std::array::from_fn(|at| now[at] - before[at])
    };
    let [north, south, far, east, own] = moved(before);
    assert_eq!(north, 0);
    all_but_the_lost([web, south, far, east], lost(&lab) - lost_before);
    // Labels of the node itself come off on the way to the one that says where to go, which counts.
    assert_eq!(own, 0);
    let (before, lost_before) = (count(), lost(&lab));
    let rest = chain_carries(&lab, "rest", Kind::PingAndTcp)[&(Direction::Forward, "rest-forward".to_owned())][0].1;
    let [north, south, far, east, _] = moved(before);
    assert_eq!([south, far], [0, 0]);
    all_but_the_lost([rest, north, east], lost(&lab) - lost_before);
    nothing_dropped(&lab);
    lab.down();
}

/// What each station of a way has counted: all that the one before has, but for what links say that they have lost between them, as the
/// queue of a veth does of a burst.
fn all_but_the_lost<const STATIONS: usize>(counted: [u64; STATIONS], lost: u64) {
    let missing = counted[0].checked_sub(counted[STATIONS - 1]);
    assert!(counted.is_sorted_by(|one, next| one >= next), "{counted:?}");
    assert!(missing <= Some(lost), "{counted:?}, {lost} lost by links");
}

/// Functions of every kind behind labels, on the kernel's path and off it: pings, and TCP with its checksums and segments.
#[test]
#[ignore = "needs root"]
fn functions_behind_labels() {
    let lab = TestLab::up(
        "lfn",
        "
domain: { dataplane: sr-mpls, entropy_labels: true }
nodes: { west: {}, nfv: {}, east: {} }
hosts: { left: { node: west }, right: { node: east } }
links: [{ between: [west, nfv] }, { between: [nfv, east] }]
functions:
  filter: { node: nfv, netfilter: {} }
  scan: { node: nfv }
  meter: { node: nfv }
chains:
  web: { from: left, to: right, match: { protocol: tcp, destination_ports: [80, 8080] }, via: [filter, scan, meter] }
  rest: { from: left, to: right, via: [scan] }
",
    );
    assert_eq!([approach(&lab, "scan"), approach(&lab, "meter")], [Approach::Exact, Approach::Static]);
    chain_carries(&lab, "web", Kind::Web);
    chain_carries(&lab, "rest", Kind::PingAndTcp);
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn kernel_interop() {
    let lab = example("kernel-interop");
    let moved = chain_carries(&lab, "filtered", Kind::PingAndTcp);
    assert_eq!(moved.len(), 4, "two families, two directions: {moved:?}");
    let seen = lab.sh("filter", "nft list counter inet filter seen");
    assert!(!seen.contains("packets 0 "), "{seen}");
    // The kernel's side is the kernel's: routes, and no XDP program.
    assert!(lab.sh("exit", "ip route; ip -6 route").contains("encap seg6 mode encap"), "the kernel is the ingress");
    let sids = lab.sh("exit", "ip -6 route");
    assert!(sids.contains("End.DX4") && sids.contains("End.DT6"), "the kernel is the egress: {sids}");
    for node in ["transit", "exit"] {
        assert!(!lab.sh(node, "ip -d link").contains("xdp"), "{node}");
    }
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn ten_nodes() {
    let lab = example("ten-nodes");
    for counts in chain_carries(&lab, "limited", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    chain_carries(&lab, "scanned", Kind::PingAndTcp);
    chain_carries(&lab, "low", Kind::PingAndTcp);
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn proxy_static() {
    let lab = example("proxy-static");
    chain_carries(&lab, "filtered", Kind::Web);
    counted(&lab, "filter", "inet filter", "passed");
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn proxy_dynamic() {
    let lab = example("proxy-dynamic");
    chain_carries(&lab, "metered", Kind::Web);
    for counts in chain_carries(&lab, "metered", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn proxy_flow() {
    let lab = example("proxy-flow");
    chain_carries(&lab, "web", Kind::Web);
    chain_carries(&lab, "rest", Kind::Udp);
    chain_carries(&lab, "rest", Kind::PingAndTcp);
    let sids = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/sids").unwrap();
    let memory = |sid: &&serde_json::Value| sid["memory"]["present"].as_u64().is_some_and(|flows| flows >= 2 * FLOWS);
    assert_eq!(sids.as_array().unwrap().iter().filter(memory).count(), 2, "each way remembers its flows: {sids}");
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn masquerading() {
    let lab = example("masquerading");
    chain_carries(&lab, "web", Kind::Web);
    chain_carries(&lab, "rest", Kind::Udp);
    counted(&lab, "inspector", "ip6 inspection", "steered");
    nothing_dropped(&lab);
    lab.down();
}

/// Connects from one host to a port of the other, where something listens on port 80; the octet comes back.
fn connects(from: &End, to: &End, port: u16) {
    use std::io::{Read, Write};
    for (_, there) in traffic::pairs(from, to) {
        let listener = netns::inside(&to.namespace, || std::net::TcpListener::bind((there, 80))).unwrap().unwrap();
        let address = SocketAddr::new(there, port);
        let client =
            netns::inside(&from.namespace, || std::net::TcpStream::connect_timeout(&address, Duration::from_secs(3)));
        let mut client = client.unwrap().unwrap_or_else(|error| panic!("{address}: {error}"));
        client.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        let mut octet = [0];
        server.read_exact(&mut octet).unwrap();
        server.write_all(&octet).unwrap();
        client.read_exact(&mut octet).unwrap_or_else(|error| panic!("{address}: {error}"));
        assert_eq!(&octet, b"x");
    }
}

#[test]
#[ignore = "needs root"]
fn proxy_exact() {
    let lab = example("proxy-exact");
    chain_carries(&lab, "web", Kind::Web);
    for counts in chain_carries(&lab, "twice", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    connects(&end(&lab, "client"), &end(&lab, "server"), 8080);
    counted(&lab, "balancer", "inet balancing", "seen");
    nothing_dropped(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn netfilter() {
    let lab = example("netfilter");
    chain_carries(&lab, "web", Kind::Web);
    for counts in chain_carries(&lab, "rest", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    counted(&lab, "firewall", "inet firewall", "web");
    counted(&lab, "firewall", "inet firewall", "rest");
    for (_, there) in traffic::pairs(&end(&lab, "client"), &end(&lab, "server")) {
        let address = SocketAddr::new(there, 23);
        let refused = netns::inside(&lab.namespace("client"), || {
            std::net::TcpStream::connect_timeout(&address, Duration::from_secs(3))
        });
        let kind = refused.unwrap().map(drop).map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionRefused), "{address}: the RST of REJECT reaches the client");
    }
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn aware() {
    let lab = example("aware");
    chain_carries(&lab, "web", Kind::Web);
    chain_carries(&lab, "rest", Kind::Udp);
    counted(&lab, "aware", "ip6 seen", "steered");
    nothing_dropped(&lab);
    lab.down();
}

/// Whether a function forwarded IPv4 and IPv6 packets while datagrams went both ways.
fn carried(lab: &TestLab, functions: [&str; 2]) -> [[bool; 2]; 2] {
    let before = functions.map(|function| forwarded(lab, function));
    send(Kind::Udp, &end(lab, "client"), &end(lab, "server"));
    let after = functions.map(|function| forwarded(lab, function));
    [0, 1].map(|function| [0, 1].map(|family| after[function][family] > before[function][family]))
}

#[test]
#[ignore = "needs root"]
fn backup() {
    let lab = example("backup");
    for counts in chain_carries(&lab, "metered", Kind::Udp).values() {
        assert_eq!(counts[0].1, 2 * FLOWS, "{counts:?}");
    }
    let functions = ["meter", "spare"];
    assert_eq!(carried(&lab, functions), [[true; 2], [false; 2]], "the spare has nothing to do");
    nothing_dropped(&lab);

    lab.sh("meter", "ip link set dev west down");
    let deadline = Instant::now() + Duration::from_secs(60);
    let down = || {
        let functions = agent::get(&lab.paths().socket("nfv1"), "nfv1", "/v1/functions").unwrap();
        let states: Vec<_> = functions.as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
        assert_eq!(states.len(), 2, "one SID for each way: {functions}");
        states.iter().all(|state| state == "down")
    };
    while !down() {
        assert!(Instant::now() < deadline, "nobody saw the function go down");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(carried(&lab, functions), [[false; 2], [true; 2]], "the spare has all");
    lab.down();
}
