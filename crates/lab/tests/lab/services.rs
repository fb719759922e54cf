//! Packet services in chains: packets pass through them, they count what passed, and one that dies is started again.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvfrom, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use segue_host::polling;
use segue_lab::demo::traffic;
use segue_lab::names::Roots;
use segue_lab::{agent, netns, reload, up};
use serde_json::Value;

use crate::common::{TestLab, repository};

const PATIENCE: Duration = Duration::from_secs(20);
const DATAGRAMS: u64 = 50;

fn bound(lab: &TestLab, host: &str, address: SocketAddr) -> UdpSocket {
    let socket = netns::inside(&lab.namespace(host), || UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams of each family, each answered before the next one goes: so many packets each way.
fn datagrams(lab: &TestLab) -> u64 {
    for address in lab.addresses("server") {
        let address: IpAddr = address.parse().unwrap();
        let server = bound(lab, "server", SocketAddr::new(address, 7000));
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = bound(lab, "client", any.parse().unwrap());
        let mut octets = [0; 2000];
        for number in 0..DATAGRAMS {
            let text = vec![number as u8; 8 + number as usize * 25];
            client.send_to(&text, (address, 7000)).unwrap();
            let (length, peer) =
                server.recv_from(&mut octets).unwrap_or_else(|error| panic!("{number} there: {error}: {}", told(lab)));
            assert_eq!(octets[..length], text);
            server.send_to(&octets[..length], peer).unwrap();
            let length = client.recv(&mut octets).unwrap_or_else(|error| panic!("{number} back: {error}"));
            assert_eq!(octets[..length], text);
        }
    }
    4 * DATAGRAMS
}

/// Waits until a datagram gets through: the first ones may meet a link that a node does not know to be up yet.
fn wait_way(lab: &TestLab) {
    for address in lab.addresses("server") {
        let address: IpAddr = address.parse().unwrap();
        let server = bound(lab, "server", SocketAddr::new(address, 7001));
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = bound(lab, "client", any.parse().unwrap());
        let end = Instant::now() + PATIENCE;
        for (from, to) in [(&client, &server), (&server, &client)] {
            to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let there = to.local_addr().unwrap().port();
            let host = if there == 7001 { "server" } else { "client" };
            let position = usize::from(address.is_ipv6());
            let there = SocketAddr::new(lab.addresses(host)[position].parse().unwrap(), there);
            while from.send_to(b"way", there).is_err() || to.recv_from(&mut [0; 16]).is_err() {
                assert!(Instant::now() < end, "no way to {host}: {}", told(lab));
            }
        }
    }
}

/// What became of packets at the function's node, for messages.
fn told(lab: &TestLab) -> String {
    let drops = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/drops").map(|drops| drops.to_string());
    let functions = lab.loaded.topology.functions.iter().filter(|(_, function)| function.service().is_some());
    let services = functions.map(|(name, _)| format!("{:#}", status(lab, name)));
    format!("{}\n{}", drops.unwrap_or_default(), services.collect::<String>())
}

/// What the service says, once it answers.
fn status(lab: &TestLab, function: &str) -> Value {
    let path = lab.paths().file(function, "socket");
    let end = Instant::now() + PATIENCE;
    loop {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&path)?;
            stream.write_all(b"status")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        if let Some(value) = ask().ok().and_then(|text| serde_json::from_str(&text).ok()) {
            return value;
        }
        assert!(Instant::now() < end, "the service does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the agent says that the function is up, or down.
fn wait_state(lab: &TestLab, wanted: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let functions = agent::get(&lab.paths().socket("nfv"), "nfv", "/v1/functions").unwrap();
        if functions.as_array().unwrap().iter().all(|function| function["state"] == wanted) {
            return;
        }
        assert!(Instant::now() < end, "not {wanted}: {functions}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_service(lab: &TestLab, function: &str) -> i32 {
    let pid = i32::try_from(status(lab, function)["pid"].as_u64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    pid
}

#[test]
#[ignore = "needs root"]
fn packets_wait_for_a_service_that_is_started_again_when_it_dies() {
    let lab = TestLab::example("service-forward");
    wait_way(&lab);
    let counted = || {
        let status = status(&lab, "relay");
        let report = agent::get(&lab.paths().socket("nfv"), "nfv", agent::REPORT).unwrap();
        let sid = report["sids"].as_array().unwrap().iter().find(|sid| sid["behaviour"] == "End.AN").cloned().unwrap();
        let node = ["counter", "returned"].map(|counter| sid[counter]["packets"].as_u64().unwrap());
        let service = ["received", "onward"].map(|counter| status["total"][counter].as_u64().unwrap());
        [node, service].concat()
    };
    let before = counted();
    let sent = datagrams(&lab);
    let gone: Vec<_> = counted().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(gone, [sent; 4], "to and from the function at the node, in and out at the service");
    let dead = kill_service(&lab, "relay");
    wait_state(&lab, "down");
    wait_state(&lab, "up");
    let second = status(&lab, "relay");
    assert_ne!(second["pid"].as_i64(), Some(dead.into()));
    wait_way(&lab);
    let before = counted();
    datagrams(&lab);
    let gone: Vec<_> = counted().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(gone, [sent; 4]);
    lab.down();
}

/// Octets of a transfer, more than any buffer on its way holds.
const TRANSFER: usize = 30_000_000;

/// TCP from the client to the server; all octets arrive.
fn transfer(lab: &TestLab, address: IpAddr) {
    let there = SocketAddr::new(address, 7002);
    let listener = netns::inside(&lab.namespace("server"), || TcpListener::bind(there)).unwrap().unwrap();
    let octets: Vec<u8> = (0..TRANSFER).map(|at| (at / 7) as u8).collect();
    std::thread::scope(|scope| {
        let arrived = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut arrived = Vec::with_capacity(TRANSFER);
            stream.read_to_end(&mut arrived).unwrap_or_else(|error| panic!("{error}: {}", told(lab)));
            arrived
        });
        let connect = || TcpStream::connect_timeout(&there, PATIENCE);
        let mut stream = netns::inside(&lab.namespace("client"), connect).unwrap().unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&octets).unwrap_or_else(|error| panic!("{error}: {}", told(lab)));
        drop(stream);
        assert!(arrived.join().unwrap() == octets, "other octets have arrived");
    });
}

/// Datagrams that a program hands over in one call (UDP_SEGMENT).
fn merged_datagrams(lab: &TestLab, address: IpAddr) {
    let server = bound(lab, "server", SocketAddr::new(address, 7003));
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = bound(lab, "client", any.parse().unwrap());
    setsockopt(&client, sockopt::UdpGsoSegment, &1000).unwrap();
    let octets: Vec<u8> = (0..20_u8).flat_map(|number| [number; 1000]).collect();
    client.send_to(&octets, (address, 7003)).unwrap();
    let mut datagram = [0; 2000];
    for number in 0..20 {
        let (length, _) =
            server.recv_from(&mut datagram).unwrap_or_else(|error| panic!("{number}: {error}: {}", told(lab)));
        assert_eq!(datagram[..length], [number; 1000]);
    }
}

/// From a host's segmentation offload to the other host nobody cuts segments up, and datagrams go as they are.
#[test]
#[ignore = "needs root"]
fn merged_segments_pass_a_service_whole() {
    let text = std::fs::read_to_string(repository("examples/service-forward.yaml")).unwrap();
    let text = text.replace("name: service-forward\n", "").replace("name: forward", "name: forward, merged: true");
    assert!(text.contains("merged: true"));
    let lab = TestLab::up("mrg", &text);
    wait_way(&lab);
    for address in lab.addresses("server") {
        let total = || {
            ["received", "received_octets", "onward"].map(|key| status(&lab, "relay")["total"][key].as_u64().unwrap())
        };
        let before = total();
        transfer(&lab, address.parse().unwrap());
        let [packets, octets, onward] = std::array::from_fn(|at| total()[at] - before[at]);
        assert!(octets as usize > TRANSFER, "{octets} octets of {address}");
        // Acknowledgements are counted, too.
        assert!(octets > 4000 * packets, "{packets} packets with {octets} octets to {address}");
        assert_eq!(onward, packets);
        let before = total();
        merged_datagrams(&lab, address.parse().unwrap());
        assert_eq!(total()[0] - before[0], 1, "datagrams of one call");
    }
    datagrams(&lab);
    lab.down();
}

/// Behind a label, which it sees the rest of the stack of, as behind a SID.
#[test]
#[ignore = "needs root"]
fn stacks_of_labels_are_counted_in_place_of_segment_lists() {
    let text = std::fs::read_to_string(repository("examples/service-counter.yaml")).unwrap();
    let text = text.replace("name: service-counter\n", "domain: {dataplane: sr-mpls}\n");
    let lab = TestLab::up("scl", &text);
    wait_way(&lab);
    datagrams(&lab);
    let status = status(&lab, "count");
    assert_eq!(status["steering"], "sr-mpls", "{status:#}");
    let stacks = status["workers"][0]["report"]["segment_lists"].as_array().unwrap().clone();
    // Both families of a direction have the same.
    assert_eq!(stacks.len(), 2, "{status:#}");
    assert!(stacks.iter().all(|stack| !stack["labels"].as_array().unwrap().is_empty()), "{stacks:#?}");
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn copies_are_counted_by_flow_and_packets_pass_a_service_that_is_dead() {
    let lab = TestLab::example("service-counter");
    wait_way(&lab);
    let sent = datagrams(&lab);
    let flows = |status: &Value| -> Vec<Value> {
        let all = status["workers"][0]["report"]["flows"].as_array().unwrap();
        let ours = |flow: &&Value| flow["source_port"] == 7000 || flow["destination_port"] == 7000;
        all.iter().filter(ours).cloned().collect()
    };
    let packets = |rows: &[Value]| rows.iter().map(|row| row["packets"].as_u64().unwrap()).sum::<u64>();
    let end = Instant::now() + PATIENCE;
    // Nobody waits for copies: they may be a little behind.
    let status = loop {
        let status = status(&lab, "count");
        if packets(&flows(&status)) == sent {
            break status;
        }
        assert!(Instant::now() < end, "{status:#}");
    };
    let flows = flows(&status);
    assert_eq!(flows.len(), 4, "two families, two directions: {flows:?}");
    assert!(flows.iter().all(|flow| flow["packets"] == DATAGRAMS && flow["protocol"] == 17), "{flows:?}");
    let report = &status["workers"][0]["report"];
    let received = status["total"]["received"].as_u64().unwrap();
    assert_eq!(status["xdp"]["copy_lost"], 0);
    for rows in ["sids", "segment_lists", "flows"] {
        assert_eq!(packets(report[rows].as_array().unwrap()), received, "{rows}: {report:#}");
    }

    kill_service(&lab, "count");
    wait_state(&lab, "down");
    // `on_failure: bypass`: packets pass while it is down.
    wait_way(&lab);
    wait_state(&lab, "up");
    wait_way(&lab);
    datagrams(&lab);
    lab.down();
}

/// What the topology says about a service and its link is so.
#[test]
#[ignore = "needs root"]
fn a_service_is_held_to_its_limits_and_the_node_waits_for_more_of_its_packets() {
    let lab = TestLab::up(
        "lim",
        "nodes: { nfv: {} }
hosts: { client: { node: nfv }, server: { node: nfv } }
functions:
  relay: { node: nfv, service: { name: forward, limits: { memory_mib: 64, processor_percent: 150 } } }
chains: { way: { from: client, to: server, via: [relay] } }
",
    );
    wait_way(&lab);
    datagrams(&lab);
    let group = status(&lab, "relay")["confinement"]["control_group"].as_str().map(str::to_owned);
    let group = std::path::PathBuf::from(group.expect("this host has control groups"));
    let limit = ["memory.limit_in_bytes", "memory.max"].map(|file| std::fs::read_to_string(group.join(file)));
    let limit = limit.into_iter().find_map(Result::ok).unwrap();
    assert_eq!(limit.trim(), (64 << 20).to_string());
    let link = &lab.loaded.plan.functions["relay"].interfaces[0].peer;
    let deferral = netns::inside(&lab.namespace("nfv"), || polling::deferral(&link.interface)).unwrap().unwrap();
    assert_eq!(deferral, polling::OF_SERVICES);
    lab.down();
}

/// A datagram of each family each way, larger than any link outside.
fn large_datagrams(lab: &TestLab) {
    for [from, to] in [["client", "server"], ["server", "client"]] {
        for address in lab.addresses(to) {
            let address: IpAddr = address.parse().unwrap();
            let there = bound(lab, to, SocketAddr::new(address, 7003));
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let here = bound(lab, from, any.parse().unwrap());
            let text = vec![7; 4000];
            here.send_to(&text, (address, 7003)).unwrap();
            let mut octets = [0; 5000];
            let length = there.recv(&mut octets).unwrap_or_else(|error| panic!("to {address}: {error}: {}", told(lab)));
            assert_eq!(octets[..length], text);
        }
    }
}

/// A file over HTTP each way, over IPv4 and IPv6.
fn files(lab: &TestLab) {
    let end = |name: &str| traffic::End {
        name: name.into(),
        namespace: lab.namespace(name),
        addresses: lab.addresses(name).iter().map(|text| text.parse().unwrap()).collect(),
    };
    let directory = tempfile::tempdir().unwrap();
    for [from, to] in [["client", "server"], ["server", "client"]] {
        let to = end(to);
        let web = traffic::serve(&to, &directory.path().join(&to.name), 1 << 20).unwrap();
        for address in &to.addresses {
            let got = traffic::download(&end(from), *address, &directory.path().join("got")).unwrap();
            assert_eq!(got.digest, web.digest, "{from}, {address}");
        }
    }
}

/// In the example of its own, between hosts that send datagrams of all sizes and files over TCP. A host whose own link is large does not know
/// yet that the other's is not: its first large datagram is for finding out.
fn does_its_work(example: &str, work: &[(&str, &str)]) {
    let lab = TestLab::example(example);
    wait_way(&lab);
    datagrams(&lab);
    if example != "tcp-bulk" {
        large_datagrams(&lab);
    }
    files(&lab);
    for (function, metric) in work {
        let total = &status(&lab, function)["total"];
        assert!(total["metrics"][*metric].as_u64() > Some(0), "{example}, {function}, {metric}: {total:#}");
        for dropped in ["dropped_received", "dropped_taken", "dropped_own"] {
            let drops = total[dropped].as_object().into_iter().flatten();
            assert_eq!(drops.filter(|(_, count)| count.as_u64() != Some(0)).count(), 0, "{function}: {total:#}");
        }
    }
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn compress_and_decompress_do_their_work_in_their_example() {
    let both = [("squeeze", "compressed_packets"), ("restore", "decompressed_packets")];
    let back = [("squeeze-back", "compressed_packets"), ("restore-back", "decompressed_packets")];
    does_its_work("compress", &[both, back].concat());
}

#[test]
#[ignore = "needs root"]
fn bulk_and_debulk_do_their_work_in_their_example() {
    let both = [("collect", "aggregated_packets"), ("apart", "delivered_packets")];
    let back = [("collect-back", "aggregated_packets"), ("apart-back", "delivered_packets")];
    does_its_work("bulk", &[both, back].concat());
}

#[test]
#[ignore = "needs root"]
fn tcp_bulk_does_its_work_in_its_example() {
    does_its_work("tcp-bulk", &[("merge", "merged_packets")]);
}

#[test]
#[ignore = "needs root"]
fn refragment_does_its_work_in_its_example() {
    let work = [("together", "reassembled_datagrams"), ("apart", "cut_packets")];
    does_its_work("refragment", &work);
}

#[test]
#[ignore = "needs root"]
fn tun_does_its_work_in_its_example() {
    does_its_work("tun", &[("watch", "given_packets")]);
}

/// With a service in Python, which Segue knows nothing of.
fn own_program(configuration: &str) -> String {
    let python = crate::common::repository("target/python-binding/bin/python");
    assert!(python.exists(), "{} is missing: `./x python` makes it", python.display());
    let script = crate::common::repository("python/examples/gentle.py");
    format!(
        "nodes: {{ nfv: {{}} }}
hosts: {{ client: {{ node: nfv }}, server: {{ node: nfv }} }}
functions:
  gentle:
    node: nfv
    service: {{ name: gentle, program: \"'{}' '{}'\", config: {configuration} }}
    watch: {{}}
chains: {{ way: {{ from: client, to: server, via: [gentle] }} }}
",
        python.display(),
        script.display()
    )
}

#[test]
#[ignore = "needs root"]
fn a_program_of_ones_own_is_a_service_of_a_chain() {
    let lab = TestLab::up("own", &own_program("{ largest: 1400, pause_ms: 3600000 }"));
    wait_way(&lab);
    let sent = datagrams(&lab);
    let before = status(&lab, "gentle");
    assert!(before["total"]["onward"].as_u64() >= Some(sent), "{before:#}");
    assert_eq!(before["confinement"]["system_calls"], true, "{before:#}");

    // Its program is started anew, and takes over what the old one has.
    let reloaded = reload::reload(&lab.roots, &lab.name, "gentle").unwrap();
    assert!(reloaded.program && reloaded.processes[0] != reloaded.processes[1], "{reloaded:?}");
    datagrams(&lab);

    kill_service(&lab, "gentle");
    wait_state(&lab, "down");
    wait_state(&lab, "up");
    wait_way(&lab);
    datagrams(&lab);
    lab.down();
}

/// What its program refuses is told before anything is started.
#[test]
#[ignore = "needs root"]
fn a_program_of_ones_own_says_what_is_wrong_with_its_configuration() {
    let name = crate::common::unique("bad");
    let text = format!("name: {name}\n{}", own_program("{ largest: many }"));
    let file = crate::common::topology_file(&text);
    let output =
        Command::new(agent::segue().unwrap()).args(["lab", "up"]).arg(&file.path).output().expect("segue is run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("config.largest: \"many\" is of another kind than integer"), "{said}");
    assert!(said.contains("functions.gentle.service"), "{said}");
    crate::common::assert_nothing_left(&Roots::default(), &name);
}

/// UDP port that the program behind the device does not let through.
const REFUSED: u16 = 7002;

/// A program at a device, which knows nothing of Segment Routing: what it reads there, but for packets to one port, it writes back as it is, until
/// it is told to stop. It says how many it has written.
fn writes_back(lab: &TestLab, function: &str, device: &'static str, stop: &AtomicBool) -> u64 {
    let open = || -> std::io::Result<OwnedFd> {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20))?;
        Ok(socket)
    };
    let program = || {
        let (fd, mut octets, mut written) = (open().unwrap(), vec![0; 1 << 16], 0);
        let index = nix::net::if_::if_nametoindex(device).unwrap() as usize;
        while !stop.load(Ordering::Relaxed) {
            let Ok((length, Some(from))) = recvfrom::<LinkAddr>(fd.as_raw_fd(), &mut octets) else { continue };
            // What it sends itself comes by as well, as going out.
            if from.ifindex() != index || from.pkttype() == libc::PACKET_OUTGOING {
                continue;
            }
            let packet = &octets[..length];
            let at = if packet[0] >> 4 == 4 { 20 } else { 40 };
            if packet.get(at + 2..at + 4) == Some(&REFUSED.to_be_bytes()) {
                continue;
            }
            sendto(fd.as_raw_fd(), packet, &from, MsgFlags::empty()).unwrap();
            written += 1;
        }
        written
    };
    netns::inside(&lab.namespace(function), program).unwrap()
}

#[test]
#[ignore = "needs root"]
fn what_a_program_writes_back_to_an_inline_tun_goes_on_in_the_chain() {
    let lab = TestLab::up(
        "inl",
        "nodes: { nfv: {} }
hosts: { client: { node: nfv }, server: { node: nfv } }
functions:
  inspect: { node: nfv, service: { name: tun, config: { mode: inline, device: back } } }
chains: { way: { from: client, to: server, via: [inspect] } }
",
    );
    let stop = AtomicBool::new(false);
    let arrives = |port: u16| {
        let address: IpAddr = lab.addresses("server")[0].parse().unwrap();
        let server = bound(&lab, "server", SocketAddr::new(address, port));
        server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let client = bound(&lab, "client", "0.0.0.0:0".parse().unwrap());
        client.send_to(b"one", (address, port)).unwrap();
        server.recv_from(&mut [0; 16]).is_ok()
    };
    let written = std::thread::scope(|scope| {
        let program = scope.spawn(|| writes_back(&lab, "inspect", "back", &stop));
        // It ends however this ends.
        let traffic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_way(&lab);
            let before = status(&lab, "inspect");
            let sent = datagrams(&lab);
            assert!(!arrives(REFUSED), "the program keeps it");
            let after = status(&lab, "inspect");
            let more = |key: &str| {
                let [after, before] = [&after, &before].map(|status| status["total"]["metrics"][key].as_u64().unwrap());
                after - before
            };
            assert_eq!((more("given_packets"), more("returned_packets")), (sent + 1, sent), "{after:#}");
        }));
        stop.store(true, Ordering::Relaxed);
        let written = program.join().unwrap();
        traffic.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written
    });
    assert!(written >= 4 * DATAGRAMS, "{written}");
    assert!(!arrives(7003), "nobody else writes back");
    lab.down();
}

#[test]
fn services_that_cannot_be_are_told_with_their_line() {
    let text = std::fs::read_to_string(crate::common::repository("examples/service-counter.yaml")).unwrap();
    for (from, to, expected) in [
        ("name: counter", "name: country", "there is no service \"country\"; write one of them: "),
        (
            "top: 10",
            "top: 0",
            "functions.count.service.config.top: 0 is not possible; write a number from 1 to 1000000",
        ),
        ("top: 10", "tops: 10", "the key \"tops\" is not known here; did you mean \"top\"?"),
        ("config:", "workers: 2\n      config:", "functions.count.service.workers: the service counter has one thread"),
        (
            "config:",
            "limits: {memory_mib: 4}\n      config:",
            "functions.count.service.limits.memory_mib: 4 is not possible",
        ),
        ("config:", "program: ''\n      config:", "functions.count.service.program: no program is named"),
        ("config:", "commands: [x]\n      config:", "it has nothing for the key \"commands\""),
        ("watch: {}", "watch: {}\n    proxy: exact", "no proxy stands in for such a function"),
    ] {
        let file = crate::common::topology_file(&text.replace(from, to));
        let error = up::load(&file.path).err().map(|error| error.to_string()).unwrap_or_default();
        let line = text.lines().position(|line| line.contains(from)).unwrap() + 1;
        let near = [line, line + 1].iter().any(|line| error.contains(&format!(".yaml:{line}:")));
        assert!(error.contains(expected) && near, "{to}: {error}");
    }
}
