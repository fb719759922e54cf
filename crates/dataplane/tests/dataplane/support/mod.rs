//! A place for tests with root that vanishes by itself: each test runs in a thread with a network and a mount namespace of
//! its own, and the BPF file system is mounted inside the latter. Nothing of it outlives the thread.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use segue_dataplane::{Capabilities, Capacity, Dataplane, Interfaces, MissingInterface, Options};
use segue_host::bpffs;
use segue_model::node::NodeState;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::{Value, json};

/// Runs a test in namespaces of its own, with the veth pairs p1-h1 and p2-h2.
pub fn isolated(test: impl FnOnce(&Path) + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces: these tests need root");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
        // Hides the real directory in this thread only.
        mount(Some("tmpfs"), "/mnt", Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
        let bpf = PathBuf::from("/mnt/bpf");
        bpffs::ensure(&bpf).expect("a BPF file system");
        bpffs::ensure(&bpf).expect("nothing to do the second time");
        for port in 1..=2 {
            ip(&format!("link add p{port} type veth peer name h{port}"));
            // The peer must not send anything of its own accord: the tests count every packet.
            std::fs::write(format!("/proc/sys/net/ipv6/conf/h{port}/disable_ipv6"), "1").expect("no IPv6 on the peer");
            // No address appears some time after the others.
            std::fs::write(format!("/proc/sys/net/ipv6/conf/p{port}/addr_gen_mode"), "1")
                .expect("no link-local address");
            ip(&format!("link set p{port} up"));
            ip(&format!("link set h{port} up"));
            takes_redirected(&format!("h{port}"), true);
            ip(&format!("address add fd00:{port}::1/64 dev p{port} nodad"));
            ip(&format!("neighbour add fd00:{port}::2 lladdr 02:00:00:00:00:0{port} dev p{port}"));
        }
        ip("link set lo up");
        // Of this thread's network namespace. The FIB lookup of XDP says no without it.
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("forwarding");
        ip("route add fc00:2::/32 via fd00:2::2");
        test(&bpf.join("node"));
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the namespace of this thread.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether XDP can redirect to this end of a veth pair.
pub fn takes_redirected(end: &str, does: bool) {
    let arguments = ["-K", end, "gro", if does { "on" } else { "off" }];
    let output = Command::new("ethtool").args(arguments).output().expect("ethtool is installed");
    assert!(output.status.success(), "ethtool {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn options() -> Options {
    let capacity = Capacity {
        sids: 64,
        policies: 64,
        segment_lists: 64,
        steering_rules: 256,
        steering: 1 << 16,
        ports: 16,
        ..Capacity::default()
    };
    Options { capacity, capabilities: Capabilities::detect() }
}

/// A node with two core ports and the SID fc00:1:1::/48.
pub fn state() -> Value {
    json!({
        "node": "n1",
        "source_address": "fc00:1::1",
        "domain": { "sid_blocks": ["fc00::/16"] },
        "ports": [{ "name": "p1", "role": "core" }, { "name": "p2", "role": "core" }],
        "sids": [{ "sid": "fc00:1:1::/48", "behaviour": "End" }],
        "policies": [{ "name": "to-2", "mode": "H.Encaps", "segment_lists": [{ "segments": ["fc00:2:1::", "fc00:2:2::"] }] }],
        "steering": [{ "name": "web", "destination": "10.2.0.0/16", "protocol": "tcp", "destination_ports": [80], "policy": "to-2" }]
    })
}

pub fn node(state: &Value) -> NodeState {
    serde_json::from_value(state.clone()).expect("a node state")
}

pub fn interfaces() -> Interfaces {
    Interfaces::query().expect("the kernel lists interfaces")
}

pub fn ifindex(name: &str) -> u32 {
    interfaces().get(name).expect("an interface of the test").ifindex
}

pub fn apply(dataplane: &mut Dataplane, state: &Value) -> segue_dataplane::Applied {
    dataplane.apply(&node(state), &interfaces(), MissingInterface::Refuse).expect("an apply that works")
}

/// An SRv6 packet to fc00:1:1::, next segment fc00:2:1::, as it comes in by p1.
pub fn packet() -> Vec<u8> {
    let path = ["fc00:1:1::".parse().expect("an address"), "fc00:2:1::".parse().expect("an address")];
    let inner = Ipv6Repr::new("fd00:a::1".parse().expect("an address"), "fd00:b::1".parse().expect("an address"));
    let mac = interfaces().get("p1").expect("p1").mac;
    PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], mac)
        .ipv6(Ipv6Repr::new("fc00:9::1".parse().expect("an address"), path[0]))
        .srh(SrhRepr::new(&path))
        .inner_ipv6(inner)
        .udp(UdpRepr::new(40_000, 53))
        .payload(b"query")
        .build()
}

/// What a host sends to 10.2.3.4, as it comes in by p1.
pub fn plain_packet() -> Vec<u8> {
    let mac = interfaces().get("p1").expect("p1").mac;
    PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], mac)
        .ipv4(Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 3, 4].into()))
        .udp(UdpRepr::new(40_000, 53))
        .payload(b"query")
        .build()
}
