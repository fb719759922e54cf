//! TCP of real hosts through services on AF_XDP: what arrives is what was sent, also while services are reloaded and one is killed. The kernel's
//! own seg6 puts packets into the chain and takes them out.
//!
//! ```text
//!  client ── node ── server        kernel: H.Encaps at the client, End.DT6 at the server, routes to SIDs between
//!           /  |  \
//!    services, each in a namespace, packets in and out by one link
//! ```

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_runner::control;
use segue_testkit::netns::Netns;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::site::PROGRAM;

/// Octets of a transfer: enough for several reloads, and with SEGUE_LONG a gigabyte.
fn octets() -> u64 {
    if std::env::var_os("SEGUE_LONG").is_some() { 1_000_000_000 } else { 50_000_000 }
}

const PATIENCE: Duration = Duration::from_secs(20);

struct Hop {
    /// Held for as long as the service runs.
    _namespace: Netns,
    child: Child,
    socket: PathBuf,
}

struct Chain {
    client: Netns,
    server: Netns,
    hops: Vec<Hop>,
    node: Netns,
    _files: TempDir,
}

fn sid(number: usize) -> String {
    format!("fc00:5e9:{number:x}:100::")
}

const LAST: &str = "fc00:5e9:46:100::";
const CLIENT: &str = "2001:db8:1::2";
const SERVER: &str = "2001:db8:2::2";

/// A link from the node, with permanent neighbours: `fe80::1` is the node, `fe80::2` the other end. `offloads`: those that it has by itself.
fn link(node: &Netns, near: &str, other: &Netns, far: &str, number: usize, offloads: bool) {
    let [mine, theirs] = [1, 2].map(|side| format!("02:00:00:00:{number:02x}:{side:02x}"));
    node.sh(&format!(
        "ip link add name {near} mtu 9000 address {mine} type veth peer name {far} netns {} mtu 9000 address {theirs}",
        other.name()
    ));
    node.sh(&format!("ip link set dev {near} up"));
    other.sh(&format!("ip link set dev {far} up"));
    // XDP takes packets as they are, without checksums that were left to the link.
    if !offloads {
        node.sh(&format!("ethtool -K {near} tx off"));
    }
    node.sh(&format!("ip -6 neighbour replace fe80::2 lladdr {theirs} dev {near} nud permanent"));
    other.sh(&format!("ip -6 neighbour replace fe80::1 lladdr {mine} dev {far} nud permanent"));
}

/// Waits until an address is the namespace's own for packets that come in: the kernel makes its route in the background, where it may wait.
fn local(netns: &Netns, address: &str) {
    let end = Instant::now() + PATIENCE;
    while !netns.sh("ip -6 route show table local").contains(&format!("local {address} ")) {
        assert!(Instant::now() < end, "no packet to {address} is taken");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Chain {
    fn new(services: &[(&str, &str)]) -> Self {
        let (client, node, server) = (Netns::new(), Netns::new(), Netns::new());
        let files = tempfile::tempdir().unwrap();
        for netns in [&client, &node, &server] {
            netns.sh("sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0");
        }
        node.sh("sysctl -q -w net.ipv6.conf.all.forwarding=1");
        let offloads = services.iter().all(|(_, config)| config.contains("merged: true"));
        link(&node, "client", &client, "port", 0xc0, offloads);
        link(&node, "server", &server, "port", 0xd0, offloads);
        let start = |(number, service)| hop(&node, number, service, &files, offloads);
        let hops: Vec<_> = (1..).zip(services.iter().copied()).map(start).collect();
        let segments: Vec<_> = (1..=hops.len()).map(sid).chain([LAST.to_owned()]).collect();
        let segments = segments.join(",");
        for line in [
            &format!("ip -6 address add {CLIENT}/128 dev port nodad"),
            "ip -6 route add default via fe80::1 dev port",
            &format!("ip -6 route add {SERVER}/128 encap seg6 mode encap segs {segments} via fe80::1 dev port"),
            &format!("ip sr tunsrc set {CLIENT}"),
        ] {
            client.sh(line);
        }
        for line in [
            "sysctl -q -w net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.port.seg6_enabled=1 net.ipv6.conf.all.forwarding=1",
            &format!("ip -6 address add {SERVER}/128 dev port nodad"),
            &format!("ip -6 route add {LAST}/128 encap seg6local action End.DT6 table 255 dev port"),
            // Segments that a steering header fits in front of, in domains with links of 1500 octets.
            &format!("ip -6 route add {CLIENT}/128 via fe80::1 dev port advmss 1300"),
        ] {
            server.sh(line);
        }
        for line in [
            format!("ip -6 route add {CLIENT}/128 via fe80::2 dev client"),
            format!("ip -6 route add {SERVER}/128 via fe80::2 dev server"),
            format!("ip -6 route add {LAST}/128 via fe80::2 dev server"),
        ] {
            node.sh(&line);
        }
        for (netns, address) in [(&client, CLIENT), (&server, SERVER)] {
            local(netns, address);
        }
        Self { client, server, hops, node, _files: files }
    }

    fn status(&self, hop: usize) -> Value {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Ok(Some(status)) = control::ask(&self.hops[hop].socket, "status") {
                return status;
            }
            assert!(Instant::now() < end, "service {hop} does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends so many octets to the server, and returns the hashes of what was sent and of what arrived.
    fn transfer(&self, octets: u64) -> [Vec<u8>; 2] {
        let server = (SERVER.parse::<Ipv6Addr>().unwrap(), 7000).into();
        let listener = self.server.enter(|| TcpListener::bind::<SocketAddr>(server).unwrap());
        std::thread::scope(|scope| {
            let arrived = scope.spawn(|| {
                let mut stream = accepted(&listener);
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let (mut hash, mut buffer, mut count) = (Sha256::new(), vec![0; 1 << 16], 0);
                loop {
                    let length = stream.read(&mut buffer).unwrap_or_else(|error| panic!("after {count}: {error}"));
                    if length == 0 {
                        assert_eq!(count, octets);
                        return hash.finalize().to_vec();
                    }
                    count += length as u64;
                    hash.update(&buffer[..length]);
                }
            });
            let connected = self.client.enter(|| TcpStream::connect_timeout(&server, PATIENCE));
            let mut stream = connected.unwrap_or_else(|error| {
                let places = [("client", &self.client), ("node", &self.node), ("server", &self.server)];
                let seen = places.map(|(name, netns)| {
                    let told =
                        ["ip -6 address", "ip -6 route show table all", "nstat -a -s"].map(|line| netns.sh(line));
                    format!("{name}:\n{}", told.concat())
                });
                panic!("{error}\n{}", seen.concat())
            });
            stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut hash = Sha256::new();
            let (mut left, mut number) = (octets as usize, 0_u64);
            while left > 0 {
                // Text, each line another one.
                let line = |number: u64| format!("<page><id>{number}</id><title>{:x}</title></page>\n", number * 7919);
                let text: String = (0..500).map(|offset| line(number + offset)).collect();
                number += 500;
                let part = &text.as_bytes()[..text.len().min(left)];
                stream.write_all(part).unwrap();
                hash.update(part);
                left -= part.len();
            }
            drop(stream);
            [hash.finalize().to_vec(), arrived.join().unwrap()]
        })
    }

    /// The same while services are reloaded all the time, and one is killed once in the middle of it.
    fn transfer_disturbed(&self, octets: u64, killed: usize) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let disturb = scope.spawn(|| {
                let (mut reloads, mut dead) = (0, None);
                while !over.load(Ordering::Relaxed) {
                    for (index, hop) in self.hops.iter().enumerate() {
                        if dead.is_none() || index != killed {
                            // One that is being started again does not answer.
                            reloads +=
                                u32::from(control::ask(&hop.socket, "reload").is_ok_and(|answer| answer.is_some()));
                        }
                    }
                    if reloads >= 4 && dead.is_none() {
                        let pid = self.status(killed)["pid"].as_i64().unwrap();
                        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
                        dead = Some(pid);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                (reloads, dead)
            });
            let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.transfer(octets)));
            over.store(true, Ordering::Relaxed);
            let (reloads, dead) = disturb.join().unwrap();
            let [sent, arrived] = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert_eq!(sent, arrived);
            assert!(reloads >= 4, "{reloads}");
            assert_ne!(self.status(killed)["pid"].as_i64(), Some(dead.expect("one was killed")), "another process");
        });
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for hop in &mut self.hops {
            // The supervisor ends its service.
            let _ = kill(Pid::from_raw(hop.child.id() as i32), Signal::SIGTERM);
            let _ = hop.child.wait();
        }
    }
}

/// The connection, if it comes in time: nobody waits for ever for one that failed.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < end, "nobody has connected: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn hop(node: &Netns, number: usize, (service, config): (&str, &str), files: &TempDir, offloads: bool) -> Hop {
    let namespace = Netns::new();
    let near = format!("service{number}");
    link(node, &near, &namespace, "port", number, offloads);
    node.sh(&format!("ip -6 route add {}/128 via fe80::2 dev {near}", sid(number)));
    let file = files.path().join(format!("{number}.yaml"));
    std::fs::write(&file, format!("name: {service}-{number}\nservice: {service}\nconfig: {config}\nworkers: 2\n"))
        .unwrap();
    let socket = files.path().join(format!("{number}.socket"));
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(&file).arg("--socket").arg(&socket).arg("--restart").stderr(Stdio::inherit());
    let child = namespace.spawn(&mut command);
    let end = Instant::now() + Duration::from_secs(30);
    while !control::ask(&socket, "status").is_ok_and(|status| status.is_some()) {
        assert!(Instant::now() < end, "{service} does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    Hop { _namespace: namespace, child, socket }
}

fn total(status: &Value, key: &str) -> u64 {
    status["total"][key].as_u64().unwrap()
}

/// Packets of a service that have left.
fn left(status: &Value) -> u64 {
    total(status, "onward") + total(status, "own_out")
}

#[test]
#[ignore = "needs root"]
fn a_transfer_through_bulk_and_compression_arrives_whole() {
    let chain = Chain::new(&[("bulk", "{}"), ("compress", "{}"), ("decompress", "{}"), ("debulk", "{}")]);
    let [sent, arrived] = chain.transfer(octets());
    assert_eq!(sent, arrived);
    let [bulk, compress, decompress, debulk] = [0, 1, 2, 3].map(|hop| chain.status(hop));
    // Fewer packets between bulk and debulk, fewer octets between the compressions.
    assert!(left(&bulk) * 2 < total(&bulk, "received"), "{bulk:#}");
    assert!(total(&compress, "out_octets") * 10 < total(&compress, "received_octets") * 6, "{compress:#}");
    assert!(left(&debulk) > total(&decompress, "received") * 2, "{debulk:#}");
    chain.transfer_disturbed(octets(), 1);
}

#[test]
#[ignore = "needs root"]
fn a_transfer_through_tcp_bulk_arrives_whole() {
    for mode in ["buffer", "queue"] {
        let chain = Chain::new(&[("tcp-bulk", &format!("{{mode: {mode}}}"))]);
        let [sent, arrived] = chain.transfer(octets());
        assert_eq!(sent, arrived);
        let status = chain.status(0);
        assert!(left(&status) * 2 < total(&status, "received"), "{mode}: {status:#}");
        chain.transfer_disturbed(octets(), 0);
    }
}

/// Segments come as the hosts' offload has merged them: of TCP over IPv6, between hosts that cut nothing up themselves.
#[test]
#[ignore = "needs root"]
fn a_transfer_of_merged_segments_arrives_whole() {
    let chain = Chain::new(&[("forward", "{}\nmerged: true"), ("forward", "{}\nmerged: true")]);
    let [sent, arrived] = chain.transfer(octets());
    assert_eq!(sent, arrived);
    for hop in [0, 1] {
        let status = chain.status(hop);
        assert_eq!(left(&status), total(&status, "received"), "{status:#}");
        assert!(total(&status, "received_octets") > 10_000 * total(&status, "received"), "merged: {status:#}");
        assert_eq!(status["xdp"]["invalid"], 0, "{status:#}");
    }
    chain.transfer_disturbed(octets(), 1);
}
