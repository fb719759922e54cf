//! Functions on TAP devices: a program in user space with real traffic, and devices that are left to the operator.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::TestLab;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_lab::demo::hops::Counters;
use segue_lab::{agent, functions, netns};

const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_millis(300);
const DATAGRAMS: u64 = 100;

fn bound(lab: &TestLab, host: &str, address: SocketAddr) -> UdpSocket {
    let socket = netns::inside(&lab.namespace(host), || UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams there and back, each answered before the next one goes.
fn datagrams(lab: &TestLab) {
    for address in lab.addresses("server") {
        let address: IpAddr = address.parse().unwrap();
        let server = bound(lab, "server", SocketAddr::new(address, 7000));
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = bound(lab, "client", any.parse().unwrap());
        let mut bytes = [0; 2000];
        for number in 0..DATAGRAMS {
            let mut text = vec![0; 8 + number as usize * 12];
            text[..8].copy_from_slice(&number.to_be_bytes());
            client.send_to(&text, (address, 7000)).unwrap();
            let (length, peer) = server.recv_from(&mut bytes).unwrap_or_else(|error| panic!("{number} there: {error}"));
            assert_eq!(bytes[..length], text);
            server.send_to(&bytes[..length], peer).unwrap();
            let length = client.recv(&mut bytes).unwrap_or_else(|error| panic!("{number} back: {error}"));
            assert_eq!(bytes[..length], text);
        }
    }
}

/// Packets to the function and back from it, at the two SIDs of its node: west to east, and east to west.
fn counted(lab: &TestLab) -> [[u64; 2]; 2] {
    let report = agent::get(&lab.paths().socket("nfv"), "nfv", agent::REPORT).unwrap();
    let sids = report["sids"].as_array().unwrap().iter().filter(|sid| !sid["returned"].is_null());
    let packets = |sid: &serde_json::Value| ["counter", "returned"].map(|key| sid[key]["packets"].as_u64().unwrap());
    let found: Vec<_> = sids.map(packets).collect();
    found.try_into().unwrap_or_else(|_| panic!("two SIDs: {report}"))
}

/// The process at the other end of the function's TAP devices.
fn behind(lab: &TestLab) -> Pid {
    let namespace = netns::identity(&lab.namespace("nfv")).unwrap();
    let agent = lab.record.node("nfv").unwrap().agent.unwrap();
    let all = netns::processes(&[namespace].into());
    let mut others = all.into_iter().map(|(pid, _)| pid).filter(|pid| pid.as_raw() != agent);
    let one = others.next().expect("the program lives");
    assert_eq!(others.next(), None, "one program");
    one
}

#[test]
#[ignore = "needs root"]
fn a_program_in_user_space_is_a_function() {
    let lab = TestLab::example("tap");
    let before = counted(&lab);
    datagrams(&lab);
    let after = counted(&lab);
    let each = 2 * DATAGRAMS;
    for way in 0..2 {
        for at in 0..2 {
            assert_eq!(after[way][at] - before[way][at], each, "{before:?}, then {after:?}");
        }
    }
    for address in lab.addresses("server") {
        let telnet = SocketAddr::new(address.parse().unwrap(), 23);
        let refused =
            netns::inside(&lab.namespace("client"), || TcpStream::connect_timeout(&telnet, Duration::from_secs(2)));
        assert!(refused.unwrap().is_err(), "telnet does not get through");
    }
    // It tells what it has done when it ends, and nothing else has come by.
    let said = ended(&lab, "filter", "telnet: ");
    assert!(said.contains(&format!("west to east: {each}\neast to west: {each}\ntelnet: ")), "{said}");
    let telnet: u64 = said.trim_end().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(telnet >= 2, "{said}");
    lab.down();
}

/// Ends the program behind the devices: what it has said.
fn ended(lab: &TestLab, function: &str, last: &str) -> String {
    let (pid, log) = (behind(lab), lab.paths().file(function, "log"));
    kill(pid, Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(&log).unwrap();
        if said.contains(last) {
            return said;
        }
        assert!(Instant::now() < deadline, "it does not end: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// It gets frames of MPLS without its own label, acts on what is behind them, and its packets go on to the next function or the egress.
#[test]
#[ignore = "needs root"]
fn a_program_that_sees_the_label_stack_is_a_function() {
    let lab = TestLab::example("aware-labels");
    datagrams(&lab);
    for address in lab.addresses("server") {
        for (port, passes) in [(80, true), (23, false)] {
            let there = SocketAddr::new(address.parse().unwrap(), port);
            let listener =
                netns::inside(&lab.namespace("server"), || std::net::TcpListener::bind(there)).unwrap().unwrap();
            let connect = || TcpStream::connect_timeout(&there, Duration::from_secs(2)).is_ok();
            assert_eq!(netns::inside(&lab.namespace("client"), connect).unwrap(), passes, "{there}");
            drop(listener);
        }
    }
    let stack = |policy: &str| {
        let states = lab.loaded.plan.nodes.values().filter_map(|node| node.state.as_ref());
        let found = states.flat_map(|state| &state.policies).find(|one| one.name == policy).unwrap();
        found.segment_lists[0].labels.clone()
    };
    let counted = Counters::read(&lab.paths(), &lab.loaded.plan).unwrap_or_else(|error| panic!("{error}"));
    let counters = [stack("rest-forward")[1], stack("rest-reverse")[1]].map(|own| {
        let (to, from) = counted.of_label("nfv", own).expect("the function's label");
        [to.packets, from.expect("what came back").packets]
    });
    assert!(counters.iter().all(|[to, from]| *from >= 2 * DATAGRAMS && to >= from), "{counters:?}");
    let said = ended(&lab, "meter", "end\n");
    let written = |side: &str, stack: &[u32]| {
        let labels = stack.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let begin = format!("{side} <{labels}>: ");
        said.lines()
            .find_map(|line| line.strip_prefix(&begin)?.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{begin}: {said}"))
    };
    // `rest`: its own label is the second one, behind that of its node. `web`: the filter's is left in front of the others.
    let [there, back] = [written("west", &stack("rest-forward")[2..]), written("east", &stack("rest-reverse")[2..])];
    assert!(there >= 2 * DATAGRAMS + 2 && back >= 2 * DATAGRAMS, "two tries of telnet beside it: {said}");
    assert!(written("west", &stack("web-forward")[2..]) >= 4, "two handshakes: {said}");
    // Back the filter is first, so that the stack is that of `rest`.
    assert_eq!(stack("web-reverse")[3..], stack("rest-reverse")[2..]);
    assert_eq!(said.lines().count(), 4, "no stack but these: {said}");
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn devices_without_a_program_wait_for_one() {
    let text = std::fs::read_to_string(crate::common::repository("examples/tap.yaml")).unwrap();
    let text = text.replace("name: tap\n", "").replace("tap: { program: exec python3 tap.py }", "tap: {}");
    let lab = TestLab::up("tap", &text);
    let (client, server): (IpAddr, SocketAddr) =
        (lab.addresses("client")[0].parse().unwrap(), format!("{}:7000", lab.addresses("server")[0]).parse().unwrap());
    let receiver = bound(&lab, "server", server);
    receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let sender = bound(&lab, "client", SocketAddr::new(client, 0));
    let mut bytes = [0; 16];
    sender.send_to(b"nobody", server).unwrap();
    assert!(receiver.recv_from(&mut bytes).is_err(), "nobody has opened the devices");
    let drops = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/drops").unwrap();
    assert!(drops.to_string().contains("drop_link_down"), "{drops}");

    // By hand, as an operator would: the environment is what `program` would have had.
    let functions = functions::all(&lab.paths(), &lab.loaded).unwrap();
    let variables = segue_function::environment(functions.iter().find(|function| function.name == "filter").unwrap());
    assert_eq!(variables.len(), 6, "{variables:?}");
    let mut run = Command::new("python3");
    run.arg(crate::common::repository("examples/tap.py")).envs(variables).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = netns::inside(&lab.namespace("nfv"), || run.spawn()).unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        sender.send_to(b"somebody", server).unwrap();
        if let Ok((length, _)) = receiver.recv_from(&mut bytes) {
            assert_eq!(&bytes[..length], b"somebody");
            break;
        }
        assert!(Instant::now() < deadline, "the node does not see that the devices are open");
    }
    // Gone again: the devices stay, and packets are refused.
    child.kill().unwrap();
    child.wait().unwrap();
    let before = link_down(&lab);
    let deadline = Instant::now() + PATIENCE;
    while link_down(&lab) == before {
        assert!(Instant::now() < deadline, "the node does not see that the devices are closed");
        sender.send_to(b"nobody", server).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    lab.down();
}

fn link_down(lab: &TestLab) -> u64 {
    let drops = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/drops").unwrap();
    let rows = drops.as_array().unwrap().iter().filter(|row| row["reason"] == "drop_link_down");
    rows.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum()
}

/// Two chains share it, and no proxy that shares interfaces serves it: each chain has a pair of devices.
#[test]
#[ignore = "needs root"]
fn a_program_that_rewrites_flows_has_devices_for_each_chain() {
    let text = std::fs::read_to_string(crate::common::repository("examples/tap.yaml")).unwrap();
    // One program for each pair, the second under the names of the first.
    let second = ["SEGUE_TAP", "SEGUE_MAC", "SEGUE_NODE_MAC"]
        .into_iter()
        .flat_map(|name| ["WEST", "EAST"].map(|side| format!("{name}_{side}=${name}_{side}2 ")))
        .collect::<String>();
    let python = format!("python3 {}", crate::common::repository("examples/tap.py").display());
    let wanted =
        format!("tap: {{ program: '{second}{python} & exec {python}' }}\n    capabilities: {{ rewrites_flows: true }}");
    let text = text.replace("name: tap\n", "").replace("tap: { program: exec python3 tap.py }", &wanted);
    let lab = TestLab::up("tap-nat", &text);
    datagrams(&lab);
    let report = agent::get(&lab.paths().socket("nfv"), "nfv", agent::REPORT).unwrap();
    let sids = report["sids"].as_array().unwrap().iter().filter(|sid| !sid["returned"].is_null());
    let counts: Vec<_> = sids
        .map(|sid| {
            let packets = ["counter", "returned"].map(|key| sid[key]["packets"].as_u64().unwrap());
            (sid["owner"]["chain"].as_str().unwrap(), sid["behaviour"].as_str().unwrap(), packets)
        })
        .collect();
    let each = 2 * DATAGRAMS;
    let wanted: Vec<_> =
        [("web", 0), ("web", 0), ("rest", each), ("rest", each)].map(|(chain, n)| (chain, "End.AS", [n, n])).into();
    assert_eq!(counts.len(), 4, "{report}");
    assert!(wanted.iter().all(|one| counts.contains(one)), "{counts:?}");
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn a_program_that_does_not_open_its_devices_fails_the_lab() {
    crate::common::need_root();
    let text = std::fs::read_to_string(crate::common::repository("examples/tap.yaml")).unwrap();
    let name = crate::common::unique("tap");
    let text = text.replace("name: tap\n", &format!("name: {name}\n"));
    let file = crate::common::topology_file(&text.replace("exec python3 tap.py", "echo it goes wrong; exit 3"));
    let loaded = segue_lab::up::load(&file.path).unwrap();
    let roots = segue_lab::names::Roots::default();
    let error = segue_lab::up::up(&roots, &loaded, &segue_lab::progress::Progress::silent()).unwrap_err().to_string();
    for part in ["function filter", "exit status: 3", "filter-w", "it goes wrong", "do: fix the program"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    crate::common::assert_nothing_left(&roots, &name);
}
