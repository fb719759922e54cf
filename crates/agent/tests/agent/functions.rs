//! Functions as objects of a node: attached when they come, again when they have been made anew, and undone when they are taken out.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_host::tap::Tap;
use segue_host::{Namespace, Run};
use segue_testkit::netns::Netns;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::{Value, json};

use crate::support::{Agent, Network};

/// By way of the function from west to east, and from east to west.
const FORWARD: &str = "fc00:0:1:f1::";
const REVERSE: &str = "fc00:0:1:f2::";

/// Settings of a namespace that are not those of a link.
const SETTINGS: &str = "sysctl net.ipv4.ip_forward net.ipv4.conf.all.rp_filter net.ipv4.conf.all.accept_local net.ipv4.conf.default.forwarding \
    net.ipv6.conf.all.forwarding net.ipv6.conf.default.forwarding net.ipv6.conf.lo.forwarding net.ipv6.conf.all.accept_ra";

/// A node with one function and a SID for each of its directions; `place` is where it is.
fn state(place: Value) -> String {
    state_by(place, &json!({"behaviour": "End.AS", "proxy": {"inner": ["IPv4", "IPv6"], "segments": ["fc00:0:2:1::"]}}))
}

/// The same with SIDs of this behaviour.
fn state_by(place: Value, how: &Value) -> String {
    let mut function = json!({"watch": {"hold_ms": 0, "probe": {"kind": "icmp", "through": true, "interval_ms": 100}}});
    function.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
    let sid = |sid: &str, direction: &str| {
        let mut sid =
            json!({"sid": sid, "behaviour": how["behaviour"], "proxy": {"function": "fw", "direction": direction}});
        let more = how["proxy"].as_object().unwrap().clone();
        sid["proxy"].as_object_mut().unwrap().extend(more);
        sid
    };
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "core"}],
        "functions": {"fw": function},
        "sids": [
            sid(FORWARD, "forward"),
            sid(REVERSE, "reverse"),
        ],
    })
    .to_string()
}

fn without_function() -> String {
    let mut state: Value = serde_json::from_str(&state(json!({"netns": "x"}))).unwrap();
    let keys = state.as_object_mut().unwrap();
    keys.remove("functions");
    keys.remove("sids");
    state.to_string()
}

/// Sends one encapsulated packet to each SID, and says which came out behind the node with its inner packet whole.
fn passes(network: &Network, limit: Duration) -> Vec<(&'static str, u8)> {
    let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
    let mut passed = Vec::new();
    for sid in [FORWARD, REVERSE] {
        for family in [4, 6] {
            let path = [sid.parse().unwrap(), "fc00:0:2:1::".parse().unwrap()];
            let outer = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
                .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
                .srh(SrhRepr::new(&path));
            let inner = match family {
                4 => outer.ipv4(Ipv4Repr::new("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap())),
                _ => outer.ipv6(Ipv6Repr::new("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap())),
            };
            let text = format!("by way of {sid} {family}");
            sender.send(&inner.udp(UdpRepr::new(1000, 2000)).payload(text.as_bytes()).build());
            if receiver.receive_where(limit, |bytes| bytes.ends_with(text.as_bytes())).is_some() {
                passed.push((sid, family));
            }
        }
    }
    passed
}

const ALL: [(&str, u8); 4] = [(FORWARD, 4), (FORWARD, 6), (REVERSE, 4), (REVERSE, 6)];

/// All proxies that a function on a node can have.
fn behaviours() -> [Value; 5] {
    let both = ["IPv4", "IPv6"];
    [
        json!({"behaviour": "End.AS", "proxy": {"inner": both, "segments": ["fc00:0:2:1::"]}}),
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "interface"}}),
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "flow"}}),
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "packet"}}),
        json!({"behaviour": "End.AM", "proxy": {}}),
    ]
}

fn wait_for_traffic(network: &Network, agent: &Agent<'_>) {
    agent.eventually("traffic by way of the function, in both directions", |_| {
        passes(network, Duration::from_millis(200)) == ALL
    });
}

/// `up` or `down` of each SID's function; both have the same.
fn life(agent: &Agent<'_>) -> String {
    let functions = agent.get("/v1/functions");
    let states: Vec<&str> = functions.as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states.len(), 2, "{functions}");
    assert_eq!(states[0], states[1], "both directions live and die together: {functions}");
    states[0].to_owned()
}

/// A namespace with a name, as an operator makes it: its loopback is down. It goes with the value.
struct Named(String);

impl Named {
    fn make(&self) {
        Namespace::make(&self.0).unwrap();
    }

    fn remove(&self) {
        Namespace::open(&self.0).unwrap().remove().unwrap();
    }

    fn sh(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        Run::new(words[0], &words[1..]).inside(&self.0).text().unwrap()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Ok(Some(namespace)) = Namespace::find(&self.0) {
            let _ = namespace.remove();
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_function_in_a_namespace_is_attached_whenever_it_comes_and_undone_without_a_trace() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    let named = Named(format!("sg-t-fn{}", std::process::id()));
    // It is not there yet: the state is applied all the same, and its SIDs are down.
    agent.apply(&state(json!({"netns": named.0})));
    agent.eventually("a function that is not there", |agent| life(agent) == "down");
    assert_eq!(passes(&network, Duration::from_millis(50)), []);
    named.make();
    let before = named.sh(SETTINGS);
    agent.eventually("a function that has come", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    let probe = &agent.get("/v1/functions")[0]["probe"];
    assert_eq!(probe["kind"], "icmp through", "{probe}");
    // It answers, and lets nothing pass: a probe that goes through it sees that.
    named.sh("ip rule add priority 1 iif east blackhole");
    named.sh("ip -6 rule add priority 1 iif east blackhole");
    agent.eventually("a function that passes one direction only", |agent| life(agent) == "down");
    named.sh("ip rule del priority 1");
    named.sh("ip -6 rule del priority 1");
    agent.eventually("a function that passes both again", |agent| life(agent) == "up");
    // Made anew: it is plumbed again.
    named.remove();
    agent.eventually("a function that has gone", |agent| life(agent) == "down");
    named.make();
    agent.eventually("a function that was made anew", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    // Taken out: nothing of it stays, here or there.
    agent.apply(&without_function());
    let links = network.node.sh("ip -o link");
    assert!(["fnw-fw", "fne-fw", "fpw-fw", "fpe-fw"].iter().all(|name| !links.contains(name)), "{links}");
    assert!(!named.sh("ip -o link").contains("west"));
    for line in ["ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"] {
        let left = named.sh(line);
        assert!(!left.contains("830") && !left.contains("fe80::1") && !left.contains("169.254"), "{line}: {left}");
    }
    assert_eq!(named.sh(SETTINGS), before);
}

#[test]
#[ignore = "needs root"]
fn a_function_has_any_proxy() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    let named = Named(format!("sg-t-fp{}", std::process::id()));
    named.make();
    for how in behaviours() {
        agent.apply(&state_by(json!({"netns": named.0}), &how));
        agent.eventually(&format!("{how}"), |agent| life(agent) == "up");
        wait_for_traffic(&network, &agent);
    }
}

/// A machine with two links, by the names of the node's ends, which sends what comes by one out by the other. It asks for its gateways, and
/// has link-layer addresses that nobody was told.
fn machine(network: &Network, ends: [&str; 2]) -> Netns {
    let machine = Netns::new();
    for (end, name) in ends.into_iter().zip(["w", "e"]) {
        network.node.sh(&format!("ip link add {end} type veth peer name {name} netns {}", machine.name()));
        machine.sh(&format!("ip link set {name} up"));
        // As a NIC has it.
        machine.sh(&format!("ethtool -K {name} gro on"));
    }
    machine.script(
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0
         sysctl -qw net.ipv4.conf.w.rp_filter=0 net.ipv4.conf.e.rp_filter=0
         ip route add default via 169.254.0.1 dev e onlink table 101
         ip route add default via 169.254.0.1 dev w onlink table 102
         ip -6 route add default via fe80::1 dev e table 101
         ip -6 route add default via fe80::1 dev w table 102
         ip rule add iif w lookup 101
         ip rule add iif e lookup 102
         ip -6 rule add iif w lookup 101
         ip -6 rule add iif e lookup 102
         ip address add 192.0.2.201/32 dev w
         ip address add 192.0.2.202/32 dev e",
    );
    machine
}

#[test]
#[ignore = "needs root"]
fn a_machine_behind_devices_is_learnt_and_the_devices_are_given_back() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    let place = json!({"vm": {"west": {"interface": "vnet0"}, "east": {"interface": "vnet1"}}});
    // Its devices are not there yet.
    agent.apply(&state(place.clone()));
    assert_eq!(passes(&network, Duration::from_millis(50)), []);
    let _machine = machine(&network, ["vnet0", "vnet1"]);
    let before = |name: &str| network.node.sh(&format!("ip -o address show dev {name} scope global"));
    agent.eventually("a machine that has come", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    assert!(before("vnet0").is_empty() || before("vnet0").contains("100:0:0:1"), "{}", before("vnet0"));
    for how in behaviours() {
        agent.apply(&state_by(place.clone(), &how));
        agent.eventually(&format!("{how}"), |agent| life(agent) == "up");
        wait_for_traffic(&network, &agent);
    }
    // Another machine comes, with other addresses.
    network.node.sh("ip link del vnet0");
    network.node.sh("ip link del vnet1");
    agent.eventually("a machine that has gone", |agent| life(agent) == "down");
    let _another = machine(&network, ["vnet0", "vnet1"]);
    agent.eventually("another machine", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    agent.apply(&without_function());
    for name in ["vnet0", "vnet1"] {
        let left = network.node.sh(&format!("ip -d address show dev {name}"));
        assert!(!left.contains("169.254") && !left.contains("100:0:0:1") && !left.contains("alias"), "{left}");
    }
}

#[test]
#[ignore = "needs root"]
fn tap_devices_for_a_machine_are_made_and_removed() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    agent.apply(&state(json!({"vm": {}})));
    assert_eq!(life(&agent), "down", "nobody has opened them");
    let open = |name: &str| network.node.enter(|| Tap::open(name).unwrap());
    let (west, east) = (open("fnw-fw"), open("fne-fw"));
    // Whatever it says tells where it is. What it says before anybody listens is lost, and so it says it again until something comes.
    let told = |tap: &Tap, last: u8| drop(tap.send(&frame_from([0x52, 0x54, 0, 0, 0, last])));
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let relay = std::thread::spawn(move || {
        let end = std::time::Instant::now() + Duration::from_secs(15);
        let mut frames = 0_u32;
        while std::time::Instant::now() < end && frames < 400 && !is_over.load(Ordering::Relaxed) {
            if frames == 0 {
                told(&west, 1);
                told(&east, 2);
            }
            for (from, to, own) in [(&west, &east, 1_u8), (&east, &west, 2)] {
                while let Ok(Some(frame)) = from.receive(Duration::from_millis(5)) {
                    told(from, own);
                    // What is for the machine goes on as it is, but for the addresses of the link.
                    if frame[..6] == [0x52, 0x54, 0, 0, 0, own] {
                        let mut on = frame.clone();
                        on[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
                        on[6..12].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 3 - own]);
                        let _ = to.send(&on);
                        frames += 1;
                    }
                }
            }
        }
        frames
    });
    agent.eventually("a machine on TAP devices", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    agent.apply(&without_function());
    let links = network.node.sh("ip -o link");
    assert!(!links.contains("fnw-fw") && !links.contains("fne-fw"), "{links}");
    // Devices that are gone give an error at once, again and again.
    over.store(true, Ordering::Relaxed);
    let _ = relay.join();
}

/// A frame to everybody, which is of no protocol.
fn frame_from(mac: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 0);
    frame
}

#[test]
#[ignore = "needs root"]
fn a_link_that_is_somebody_elses_is_refused_and_nothing_is_changed() {
    let network = Network::new();
    let agent = Agent::start(&network);
    // Nor is there what no card of this machine has.
    let card = |device: &str| {
        state(
            json!({"netns": "sg-t-x", "vf": {"device": device, "by": "east", "west": {"vlan": 101}, "east": {"vlan": 102}}}),
        )
    };
    for (device, says) in [("nothing", "there is no interface `nothing` here"), ("west", "no network card with SR-IOV")]
    {
        for path in ["/v1/state?dry_run=true", "/v1/state"] {
            let (status, body) = agent.ask("PUT", path, Some(&card(device)));
            assert_eq!(status, 409, "{body}");
            assert!(body.contains("functions.fw.vf.device") && body.contains(says), "{body}");
        }
    }
    network.node.run(Command::new("ip").args(["link", "add", "fnw-fw", "type", "veth", "peer", "name", "other"]));
    let (status, body) = agent.ask("PUT", "/v1/state", Some(&state(json!({"netns": "sg-t-there-is-none"}))));
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("fnw-fw") && body.contains("give the function another name"), "{body}");
    assert!(!network.node.sh("ip -o link").contains("fne-fw"));
    assert_eq!(network.routes(), [""; 0]);
}

/// A container of one program, which podman runs with files of its own; the agent finds that podman by its `PATH`.
struct Container {
    directory: tempfile::TempDir,
}

impl Container {
    const NAME: &'static str = "segue-fw";

    fn new() -> Self {
        let container = Self { directory: tempfile::tempdir().unwrap() };
        let path = container.directory.path().display();
        let programs = container.directory.path().join("programs");
        let root = container.directory.path().join("root/bin");
        std::fs::create_dir_all(&programs).unwrap();
        std::fs::create_dir_all(&root).unwrap();
        // CI's machine takes no others than these.
        let script = format!(
            "#!/bin/sh\nexec /usr/bin/podman --runtime runc --root {path}/storage --runroot {path}/run --storage-driver vfs \
             --cgroup-manager cgroupfs --events-backend none \"$@\"\n"
        );
        std::fs::write(programs.join("podman"), script).unwrap();
        Run::new("chmod", ["755", &format!("{path}/programs/podman")]).text().unwrap();
        std::fs::copy("/usr/bin/busybox", root.join("busybox")).unwrap();
        Run::new("tar", ["-C", &format!("{path}/root"), "-cf", &format!("{path}/image.tar"), "."]).text().unwrap();
        container.podman(&["import", &format!("{path}/image.tar"), "segue-function"]);
        container
    }

    /// For the agent's environment.
    fn path(&self) -> &'static str {
        let before = std::env::var("PATH").unwrap_or_default();
        format!("{}/programs:{before}", self.directory.path().display()).leak()
    }

    fn podman(&self, arguments: &[&str]) -> String {
        let program = self.directory.path().join("programs/podman").display().to_string();
        Run::new(program, arguments).text().unwrap()
    }

    fn start(&self) {
        self.podman(&[
            "run",
            "--detach",
            "--name",
            Self::NAME,
            "--network",
            "none",
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1000:1000",
            "segue-function",
            "/bin/busybox",
            "sleep",
            "600",
        ]);
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let program = self.directory.path().join("programs/podman").display().to_string();
        let _ = Run::new(program, ["rm", "--force", "--time", "0", Self::NAME]).text();
    }
}

#[test]
#[ignore = "needs root"]
fn a_container_is_plumbed_again_after_each_restart() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let container = Container::new();
    let agent = Agent::start_in(&network, &[("PATH", container.path())]);
    agent.apply(&state(json!({"container": Container::NAME})));
    agent.eventually("a container that is not there", |agent| life(agent) == "down");
    container.start();
    agent.eventually("a container that has come", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    container.podman(&["restart", "--time", "0", Container::NAME]);
    agent.eventually("a container that was restarted", |agent| life(agent) == "up");
    wait_for_traffic(&network, &agent);
    let functions = agent.get("/v1/functions");
    assert!(functions[0]["changes"].as_u64() >= Some(2), "it was down meanwhile: {functions}");
    container.podman(&["rm", "--force", "--time", "0", Container::NAME]);
    agent.eventually("a container that has gone", |agent| life(agent) == "down");
    agent.apply(&without_function());
    assert!(!network.node.sh("ip -o link").contains("fnw-fw"));
}
