//! Hosts, functions and nodes with whatever offloads they like: TCP, UDP and datagrams that the kernel or the link is to cut out of larger
//! ones (UDP_SEGMENT) arrive octet for octet through every kind of function, in both directions and families, and nothing is dropped.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, UdpGsoSegment};
use segue_api::http;
use segue_host::device::{DeviceSocket, OffloadSocket};
use segue_host::namespace::inside;
use segue_lab::agent;
use segue_testkit::is_long;
use segue_wiring::LinkKind;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::TestLab;

const PATIENCE: Duration = Duration::from_secs(10);
/// Octets in each direction by TCP: several buffers of many segments.
const OCTETS: usize = 400_000;
/// Octets of a datagram: what the hosts' MTU lets pass in both families.
const DATAGRAM: usize = 1400;
/// Octets of the segments that a buffer of [`BUFFER`] is cut into; the last one is shorter.
const SEGMENT: usize = 1200;
const BUFFER: usize = 20 * SEGMENT + 333;
/// Datagrams, or buffers of many, in each direction.
const DATAGRAMS: usize = 40;
const BUFFERS: usize = 4;
/// More than all of these take, and what the kernel counts for each.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Each a chain for TCP and one for UDP.
const KINDS: [(&str, &str); 7] = [
    ("static", "proxy: static"),
    ("flow", "proxy: dynamic-flow"),
    ("exact", "proxy: exact"),
    ("masq", "proxy: masquerading"),
    (
        "nf",
        "netfilter: { nftables: 'table inet f { chain f { type filter hook forward priority 0; ct state new,established accept; drop; }; }' }",
    ),
    ("fw", "firewall: { ipv4: offloads.v4, ipv6: offloads.v4 }"),
    ("service", "service: { name: counter }"),
];
/// No behaviour of labels does what End.AM does.
const WITHOUT_LABELS: [&str; 1] = ["masq"];
const RULES: &str = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\nCOMMIT\n";

/// One of the sixteen settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting(usize);

impl Setting {
    const COUNT: usize = 16;

    fn tx(self) -> bool {
        self.0 & 1 != 0
    }

    fn tso(self) -> bool {
        self.0 & 2 != 0
    }

    fn gso(self) -> bool {
        self.0 & 4 != 0
    }

    fn gro(self) -> bool {
        self.0 & 8 != 0
    }

    /// Gives it to interfaces of a namespace.
    fn give(self, namespace: &str, names: &[String]) {
        let set = || {
            let devices = DeviceSocket::open().unwrap().all().unwrap();
            let mut socket = OffloadSocket::open().unwrap();
            for name in names {
                let index = devices.get(name).unwrap_or_else(|| panic!("{namespace} has no {name}")).index;
                for (feature, on) in [
                    ("tx-checksum-ip-generic", self.tx()),
                    ("tx-tcp-segmentation", self.tso()),
                    ("tx-tcp6-segmentation", self.tso()),
                    ("tx-udp-segmentation", self.tso()),
                    ("tx-generic-segmentation", self.gso()),
                    ("rx-gro", self.gro()),
                ] {
                    socket.set(index, feature, on).unwrap();
                }
                let now = socket.of(index).unwrap();
                let is = (now.tx_checksum(), now.tcp_segmentation(), now.gro());
                // A link that makes no checksums cuts nothing either.
                assert_eq!(
                    is,
                    (self.tx(), self.tso() && self.tx(), self.gro()),
                    "{self} on {namespace} {name}: {now:?}"
                );
            }
        };
        inside(namespace, set).unwrap();
    }
}

/// Whether interfaces of a namespace put received segments together.
fn merge(namespace: &str, names: &[String], on: bool) {
    let set = || {
        let devices = DeviceSocket::open().unwrap().all().unwrap();
        let mut socket = OffloadSocket::open().unwrap();
        names.iter().for_each(|name| socket.set(devices[name].index, "rx-gro", on).unwrap());
    };
    inside(namespace, set).unwrap();
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let names = [("tx", self.tx()), ("tso", self.tso()), ("gso", self.gso()), ("gro", self.gro())];
        let on: Vec<&str> = names.into_iter().filter_map(|(name, on)| on.then_some(name)).collect();
        f.write_str(&if on.is_empty() { "none".to_owned() } else { on.join("+") })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    Segmented,
}

impl Transport {
    /// There and back; the error says what arrived instead.
    fn carry(self, lab: &TestLab, at: SocketAddr, seed: u64) -> Result<(), String> {
        match self {
            Self::Tcp => tcp(lab, at, seed),
            Self::Udp => udp(lab, at, seed, false),
            Self::Segmented => udp(lab, at, seed, true),
        }
    }
}

/// What leads packets through the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steering {
    Sids,
    Labels,
}

impl Steering {
    /// The functions that it can lead through, and how they are written, with their numbers.
    fn kinds(self) -> impl Iterator<Item = (usize, (&'static str, &'static str))> {
        KINDS.into_iter().enumerate().filter(move |(_, (kind, _))| self == Self::Sids || !WITHOUT_LABELS.contains(kind))
    }
}

fn topology(steering: Steering) -> String {
    let (mut functions, mut chains) = (String::new(), String::new());
    for (number, (kind, how)) in steering.kinds() {
        // A static proxy has one chain between the same hosts.
        let function = |transport: &str| if kind == "static" { format!("static-{transport}") } else { kind.to_owned() };
        for transport in ["tcp", "udp"] {
            let (function, port) = (function(transport), port(number));
            let line = format!("  {function}: {{ node: nfv, {how} }}\n");
            if !functions.contains(&line) {
                functions += &line;
            }
            chains += &format!(
                "  {kind}-{transport}: {{ from: client, to: server, match: {{ protocol: {transport}, destination_ports: [{port}] }}, via: [{function}] }}\n"
            );
        }
    }
    let domain = match steering {
        Steering::Sids => "",
        Steering::Labels => "domain: { dataplane: sr-mpls }\n",
    };
    format!(
        "{domain}nodes: {{ edge1: {{}}, nfv: {{}}, edge2: {{}} }}\nhosts: {{ client: {{ node: edge1 }}, server: {{ node: edge2 }} }}\n\
         links: [{{ between: [edge1, nfv] }}, {{ between: [nfv, edge2] }}]\nfunctions:\n{functions}chains:\n{chains}"
    )
}

fn port(kind: usize) -> u16 {
    7000 + u16::try_from(kind).unwrap()
}

/// Octets that are others for each seed.
fn octets(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

/// Sends all there, and all back again as what has arrived says. The error says what arrived instead.
fn tcp(lab: &TestLab, at: SocketAddr, seed: u64) -> Result<(), String> {
    let listener = inside(&lab.namespace("server"), || TcpListener::bind(at)).unwrap().unwrap();
    let client = inside(&lab.namespace("client"), || TcpStream::connect_timeout(&at, PATIENCE)).unwrap();
    let client = client.map_err(|error| format!("no connection: {error}"))?;
    let (server, _) = listener.accept().unwrap();
    for (mut from, mut to, seed) in
        [(&client, &server, seed), (&server, &client, seed + 1)].map(|(from, to, seed)| (from, to, seed))
    {
        let sent = octets(seed, OCTETS);
        from.set_write_timeout(Some(PATIENCE)).unwrap();
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; OCTETS];
        let arrived = std::thread::scope(|scope| {
            // What does not arrive is seen there.
            scope.spawn(|| from.write_all(&sent));
            to.read_exact(&mut received)
        });
        arrived.map_err(|error| format!("not all octets: {error}"))?;
        if Sha256::digest(&received) != Sha256::digest(&sent) {
            return Err("other octets than were sent".into());
        }
    }
    Ok(())
}

fn datagrams(host: &str, lab: &TestLab, at: SocketAddr) -> UdpSocket {
    let socket = inside(&lab.namespace(host), || UdpSocket::bind(at)).unwrap().unwrap();
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams there, then back, each with its number in front. With `segment` the sender leaves it to others to cut them out of buffers.
fn udp(lab: &TestLab, at: SocketAddr, seed: u64, segment: bool) -> Result<(), String> {
    let server = datagrams("server", lab, at);
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = datagrams("client", lab, any.parse().unwrap());
    client.connect(at).unwrap();
    let size = if segment { SEGMENT } else { DATAGRAM };
    let total = if segment { BUFFERS * BUFFER } else { DATAGRAMS * DATAGRAM };
    let mut peer = None;
    for (from, to, seed) in [(&client, &server, seed), (&server, &client, seed + 1)] {
        let sent = octets(seed, total);
        if segment {
            setsockopt(from, UdpGsoSegment, &i32::try_from(SEGMENT).unwrap()).unwrap();
        }
        let sent = number(sent, if segment { BUFFER } else { size }, size);
        for buffer in sent.chunks(if segment { BUFFER } else { size }) {
            let done = match peer {
                Some(peer) => from.send_to(buffer, peer),
                None => from.send(buffer),
            };
            assert_eq!(done.map_err(|error| format!("not sent: {error}"))?, buffer.len());
        }
        let expected = sent.chunks(if segment { BUFFER } else { size }).flat_map(|buffer| buffer.chunks(size)).count();
        let mut received = BTreeMap::new();
        while received.len() < expected {
            let mut octets = vec![0; 1 << 16];
            let (length, who) = to
                .recv_from(&mut octets)
                .map_err(|error| format!("{} of {expected} datagrams: {error}", received.len()))?;
            octets.truncate(length);
            let number = octets.get(..4).map(|octets| u32::from_be_bytes(octets.try_into().unwrap()));
            if number.is_none_or(|number| received.insert(number, octets).is_some()) {
                return Err("a datagram that was not sent, or twice".into());
            }
            peer = Some(who);
        }
        let received: Vec<u8> = received.into_values().flatten().collect();
        if Sha256::digest(&received) != Sha256::digest(&sent) {
            return Err("other octets than were sent".into());
        }
    }
    Ok(())
}

/// Puts their numbers in front of all datagrams.
fn number(mut octets: Vec<u8>, buffer: usize, size: usize) -> Vec<u8> {
    let all = octets.chunks_mut(buffer).flat_map(|buffer| buffer.chunks_mut(size));
    for (number, datagram) in (0_u32..).zip(all) {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
    }
    octets
}

/// What nodes dropped, by node, port and reason.
fn drops(lab: &TestLab) -> BTreeMap<String, u64> {
    ["edge1", "nfv", "edge2"].into_iter().flat_map(|node| drops_of(lab, node)).collect()
}

fn drops_of(lab: &TestLab, node: &str) -> BTreeMap<String, u64> {
    let answer = agent::get(&lab.paths().socket(node), node, "/v1/drops").unwrap();
    let row = |row: &Value| {
        let words = ["port", "reason"].map(|key| row[key].as_str().unwrap().to_owned());
        (format!("{node} {}", words.join(" ")), row["counter"]["packets"].as_u64().unwrap())
    };
    answer.as_array().unwrap().iter().map(row).collect()
}

fn since(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let count = |(key, packets): (&String, &u64)| (key.clone(), packets - before.get(key).unwrap_or(&0));
    now.iter().map(count).filter(|(_, packets)| *packets > 0).collect()
}

/// Every chain, in both families, by every transport.
fn transfers(lab: &TestLab, steering: Steering, setting: &str, seed: &mut u64, before: &BTreeMap<String, u64>) {
    for (number, (kind, _)) in steering.kinds() {
        for address in lab.addresses("server") {
            let at = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port(number));
            for transport in [Transport::Tcp, Transport::Udp, Transport::Segmented] {
                *seed += 2;
                transport.carry(lab, at, *seed).unwrap_or_else(|error| {
                    panic!("{setting}: {kind}, {transport:?}, {at}: {error}; dropped: {:?}", since(&drops(lab), before))
                });
            }
        }
    }
}

/// Waits until datagrams pass everywhere: the first ones may meet a neighbour that is not known yet.
fn wait_ways(lab: &TestLab, steering: Steering) {
    for (number, (kind, _)) in steering.kinds() {
        for address in lab.addresses("server") {
            let at = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port(number));
            let server = datagrams("server", lab, at);
            let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = datagrams("client", lab, any.parse().unwrap());
            for socket in [&server, &client] {
                socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            }
            let end = Instant::now() + PATIENCE;
            let there = || {
                client.send_to(b"way", at).ok()?;
                let (_, peer) = server.recv_from(&mut [0; 16]).ok()?;
                server.send_to(b"way", peer).ok()?;
                client.recv(&mut [0; 16]).ok()
            };
            while there().is_none() {
                assert!(Instant::now() < end, "no way through {kind}: {:?}", drops(lab));
            }
        }
    }
}

/// The interfaces of hosts, of functions, of nodes: namespace and names.
fn interfaces(lab: &TestLab) -> [Vec<(String, Vec<String>)>; 3] {
    let plan = &lab.loaded.plan;
    let hosts = plan.hosts.iter().map(|(name, host)| (lab.namespace(name), vec![host.interface.name.clone()]));
    let names = |interfaces: &[segue_wiring::Interface]| interfaces.iter().map(|one| one.name.clone()).collect();
    // The service's own interface is its program's, by XDP; so is the node's end of that link.
    let own = plan.functions.iter().filter(|(name, function)| function.has_namespace() && *name != "service");
    let own = own.map(|(name, function)| (lab.namespace(name), names(&function.interfaces)));
    let state = plan.nodes["nfv"].state.as_ref().unwrap();
    // Its other one is a macvlan device, which always has all of them.
    let netfilter = state.wirings().into_iter().map(|wiring| (lab.namespace(&wiring.namespace), vec!["west".into()]));
    let nodes = plan.nodes.iter().map(|(name, node)| {
        let others = node.interfaces.iter().filter(|one| one.peer.namespace != "service");
        (lab.namespace(name), others.map(|one| one.name.clone()).collect())
    });
    [hosts.collect(), own.chain(netfilter).collect(), nodes.collect()]
}

/// Applies a node's state with a change.
fn change(lab: &TestLab, node: &str, edit: impl Fn(&mut Value)) {
    let socket = lab.paths().socket(node);
    let mut state = agent::get(&socket, node, "/v1/state").unwrap();
    edit(&mut state);
    let answer = http::request(&socket, "PUT", "/v1/state", Some(&state.to_string()), agent::ANSWER_WITHIN).unwrap();
    let status = answer.status;
    assert_eq!(status, 200, "{node}: {}", answer.text().unwrap());
}

/// The hooks of a node's ports, by name.
fn hooks(lab: &TestLab, node: &str) -> BTreeMap<String, String> {
    let ports = agent::get(&lab.paths().socket(node), node, "/v1/ports").unwrap();
    let words = |port: &Value| ["name", "hook"].map(|key| port[key].as_str().unwrap().to_owned());
    ports.as_array().unwrap().iter().map(words).map(|[name, hook]| (name, hook)).collect()
}

/// Links between nodes on XDP, as network cards are: checksums are complete on them. Hosts and functions stay on socket buffers.
fn core_on_xdp(lab: &TestLab) {
    for (name, node) in &lab.loaded.plan.nodes {
        let core = node.interfaces.iter().filter(|one| one.link == LinkKind::Core);
        let core: Vec<String> = core.map(|one| one.name.clone()).collect();
        Setting(0).give(&lab.namespace(name), &core);
        change(lab, name, |state| {
            for port in state["ports"].as_array_mut().unwrap() {
                if port["role"] == "core" {
                    port["mode"] = "xdp".into();
                }
            }
        });
        for (port, hook) in hooks(lab, name) {
            let expected = if core.contains(&port) { "xdp-native" } else { "tcx" };
            assert_eq!(hook, expected, "{name} {port}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn all_octets_arrive_whatever_is_left_to_links() {
    let lab = TestLab::up_with("off", &topology(Steering::Sids), &[("offloads.v4", RULES)]);
    wait_ways(&lab, Steering::Sids);
    let before = drops(&lab);
    let places = interfaces(&lab);
    let mut seed = 1;
    transfers(&lab, Steering::Sids, "as they come", &mut seed, &before);
    // In a long run each of the three has all sixteen; else every third one, each offload on and off among them. Seldom all three have the same.
    for round in (0..Setting::COUNT).step_by(if is_long() { 1 } else { 3 }) {
        let settings = [round, (round * 5 + 3) % Setting::COUNT, (round * 11 + 6) % Setting::COUNT].map(Setting);
        for (setting, place) in settings.iter().zip(&places) {
            for (namespace, names) in place {
                setting.give(namespace, names);
            }
        }
        let [hosts, functions, nodes] = settings;
        let shown = format!("hosts {hosts}, functions {functions}, nodes {nodes}");
        transfers(&lab, Steering::Sids, &shown, &mut seed, &before);
    }
    assert_eq!(since(&drops(&lab), &before), BTreeMap::new(), "dropped");

    core_on_xdp(&lab);
    for (namespace, names) in places[0].iter().chain(&places[1]) {
        Setting(7).give(namespace, names);
    }
    wait_ways(&lab, Steering::Sids);
    let before = drops(&lab);
    transfers(&lab, Steering::Sids, "links between nodes on XDP", &mut seed, &before);
    assert_eq!(since(&drops(&lab), &before), BTreeMap::new(), "dropped on mixed nodes");
    lab.down();
}

/// The same by labels. Hosts and functions are on socket buffers, links between nodes on XDP: the headend, and the node behind functions, have
/// the kernel make single packets with checksums before they get their labels, of whatever hosts and functions have left to their links.
#[test]
#[ignore = "needs root"]
fn all_octets_arrive_by_labels_whatever_is_left_to_links() {
    let by = Steering::Labels;
    let lab = TestLab::up_with("offl", &topology(by), &[("offloads.v4", RULES)]);
    for (node, others) in [("edge1", 1), ("nfv", 7), ("edge2", 1)] {
        let hooks = hooks(&lab, node);
        let on = |hook: &str| hooks.values().filter(|found| *found == hook).count();
        assert!(on("tcx") >= others && on("xdp-native") >= 1, "{node}: {hooks:?}");
    }
    wait_ways(&lab, by);
    let before = drops(&lab);
    let [hosts, functions, nodes] = interfaces(&lab);
    let mut seed = 1;
    transfers(&lab, by, "as they come", &mut seed, &before);
    for round in if is_long() { vec![0, 5, 7, 10, 13, 15] } else { vec![7, 10] } {
        for (namespace, names) in hosts.iter().chain(&functions) {
            Setting(round).give(namespace, names);
        }
        // Segments that nodes put together in front of a function come apart behind it.
        for (namespace, names) in &nodes {
            merge(namespace, names, !Setting(round).gro());
        }
        transfers(&lab, by, &Setting(round).to_string(), &mut seed, &before);
    }
    assert_eq!(since(&drops(&lab), &before), BTreeMap::new(), "dropped");
    lab.down();
}

const WIRE: &str = "
nodes: { edge1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, edge2] }]
";

/// Hosts on one link that is carried over two nodes: frames go in from socket buffers, with all offloads that hosts have, and come out on such.
#[test]
#[ignore = "needs root"]
fn frames_are_carried_between_hosts_with_their_offloads() {
    let lab = TestLab::up("dx2", WIRE);
    let sides = [("edge1", "client", 1, 2), ("edge2", "server", 2, 1)];
    for (node, host, here, there) in sides {
        change(&lab, node, |state| {
            let sid = json!({"sid": format!("fc00:5e9:{here}:2::"), "behaviour": "End.DX2", "port": host});
            state["sids"].as_array_mut().unwrap().push(sid);
            let lists = json!([{"segments": [format!("fc00:5e9:{there}:2::")]}]);
            let wire = json!({"name": "wire", "mode": "H.Encaps.L2.Red", "segment_lists": lists});
            match state["policies"].as_array_mut() {
                Some(policies) => policies.push(wire),
                None => state["policies"] = json!([wire]),
            }
            for port in state["ports"].as_array_mut().unwrap() {
                if port["name"] == host {
                    port["l2_policy"] = "wire".into();
                }
            }
        });
        let hooks = hooks(&lab, node);
        let other = if node == "edge1" { "edge2" } else { "edge1" };
        assert_eq!((hooks[host].as_str(), hooks[other].as_str()), ("tcx", "tcx"), "{node}");
        lab.sh(host, &format!("ip address add 10.99.0.{here}/24 dev {node}"));
        lab.sh(host, &format!("ip address add fd99::{here}/64 dev {node} nodad"));
    }
    let before = ["edge1", "edge2"].map(|node| drops_of(&lab, node));
    let mut seed = 1;
    for setting in [None, Some(0), Some(7), Some(10), Some(15)].map(|setting| setting.map(Setting)) {
        if let Some(setting) = setting {
            sides.iter().for_each(|(node, host, ..)| setting.give(&lab.namespace(host), &[(*node).to_owned()]));
        }
        for address in ["10.99.0.2", "fd99::2"] {
            let at = SocketAddr::new(address.parse().unwrap(), port(0));
            for transport in [Transport::Tcp, Transport::Udp, Transport::Segmented] {
                seed += 2;
                transport.carry(&lab, at, seed).unwrap_or_else(|error| {
                    let now = ["edge1", "edge2"].map(|node| drops_of(&lab, node));
                    panic!("{setting:?}, {transport:?}, {at}: {error}; dropped before {before:?}, now {now:?}")
                });
            }
        }
    }
    let after = ["edge1", "edge2"].map(|node| drops_of(&lab, node));
    assert_eq!(before, after, "dropped");
    let sids = agent::get(&lab.paths().socket("edge2"), "edge2", "/v1/sids").unwrap();
    let wire = sids.as_array().unwrap().iter().find(|sid| sid["behaviour"] == "End.DX2").unwrap();
    assert!(wire["counter"]["packets"].as_u64() > Some(500), "{wire}");
    lab.down();
}
