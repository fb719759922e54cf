//! The boundary on interfaces that are no ports: nothing that comes in by them reaches a SID, of this node or of another, at
//! no moment of the agent's life and of a port's.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::support::{Agent, Network};
use segue_testkit::is_long;
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Icmpv6Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};

const STATE: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports:
  - {name: west, role: access}
  - {name: east, role: core}
sids:
  - {sid: "fc00:0:1:1::/64", behaviour: End}
  - {sid: "fc00:0:1:6::/64", behaviour: End.DX6, next_hop: "2001:db8:1::2"}
"#;

const NODE_SIDE: MacAddress = MacAddress([2, 0, 0, 0, 3, 1]);
const SIDE: MacAddress = MacAddress([2, 0, 0, 0, 3, 2]);
const MARK: &[u8] = b"from a stranger";

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// `left` -- `node` -- `right`, and `side` at the node's interface `mgmt`, which is no port.
struct Site {
    network: Network,
    side: Netns,
}

impl Site {
    fn new() -> Self {
        let site = Self { network: Network::new(), side: Netns::new() };
        site.connect_side("mgmt", 3);
        site.neighbours();
        site
    }

    fn connect_side(&self, name: &str, number: u8) {
        let (near, far) = (format!("02:00:00:00:{number:02x}:01"), format!("02:00:00:00:{number:02x}:02"));
        veth(
            End { netns: &self.network.node, name, mac: &near },
            End { netns: &self.side, name: &format!("{name}-far"), mac: &far },
            1500,
        );
        self.network.node.sh(&format!("ip address add 2001:db8:{number}::1/64 dev {name} nodad"));
    }

    /// No packet has to wait for a neighbour.
    fn neighbours(&self) {
        self.network.node.script(
            "ip neigh replace 2001:db8:1::2 lladdr 02:00:00:00:01:02 nud permanent dev west
             ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east",
        );
    }

    /// Deletes `west` and makes it anew.
    fn remake_west(&self) {
        self.network.node.sh("ip link del west");
        self.network.connect_left();
        self.neighbours();
    }
}

/// What strangers would send: to a SID of the node that goes on through the core, to one that ends at the host behind `west`,
/// and to a SID of another node; in frames from `from` to `to`.
fn strange(from: MacAddress, to: MacAddress) -> [Vec<u8>; 3] {
    let source = address("fc00:0:1::1");
    let frame = || PacketBuilder::ethernet(from, to);
    let path = ["fc00:0:1:1::", "fc00:0:2:1::"].map(address);
    let inner = |frame: PacketBuilder| frame.ipv6(Ipv6Repr::new(source, address("2001:db8:1::2")));
    [
        inner(frame().ipv6(Ipv6Repr::new(source, path[0])).srh(SrhRepr::new(&path))),
        inner(frame().ipv6(Ipv6Repr::new(source, address("fc00:0:1:6::")))),
        inner(frame().ipv6(Ipv6Repr::new(source, path[1]))),
    ]
    .map(|frame| frame.udp(UdpRepr::new(1000, 2000)).payload(MARK).build())
}

fn is_strange(frame: &[u8]) -> bool {
    frame.ends_with(MARK)
}

/// Waits until no program is on `west`.
fn without_program(site: &Site) {
    let there = || site.network.node.sh("ip link show dev west").contains("xdp");
    segue_testkit::wait::wait_for("no program on west", Duration::from_secs(5), || (!there()).then_some(()));
}

/// Sends `frames` once, and returns how many of them get to the left and the right within some time.
fn arrive(site: &Site, socket: &PacketSocket, frames: &[Vec<u8>]) -> usize {
    let ends = [PacketSocket::open(&site.network.left, "n"), PacketSocket::open(&site.network.right, "n")];
    frames.iter().for_each(|frame| socket.send(frame));
    let mut count = 0;
    for end in ends {
        while count < frames.len() && end.receive_where(Duration::from_millis(300), is_strange).is_some() {
            count += 1;
        }
    }
    count
}

/// How often each thing is done under a flood.
fn rounds() -> usize {
    if is_long() { 100 } else { 30 }
}

/// The same for what takes seconds.
fn slow_rounds() -> usize {
    if is_long() { 100 } else { 4 }
}

/// What strangers have sent so far.
#[derive(Default)]
struct Flood {
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Flood {
    /// Sends by an interface of `netns`, which may come and go.
    fn send(&self, netns: &Netns, interface: &str, frames: &[Vec<u8>]) {
        while !self.stop.load(Relaxed) {
            let Some(socket) = PacketSocket::try_open(netns, interface) else { continue };
            while !self.stop.load(Relaxed) && frames.iter().all(|frame| socket.try_send(frame)) {
                self.sent.fetch_add(frames.len() as u64, Relaxed);
                thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Packets of strangers that arrive at an interface, which may come and go, until the flood has ended.
    fn arrive(&self, netns: &Netns, interface: &str) -> Vec<Vec<u8>> {
        let (mut through, mut socket) = (Vec::new(), None::<PacketSocket>);
        loop {
            let last = self.stop.load(Relaxed);
            let limit = Duration::from_millis(if last { 300 } else { 20 });
            match socket.as_ref().and_then(|socket| socket.receive_where(limit, is_strange)) {
                Some(frame) => through.push(frame),
                None if last => return through,
                None => {
                    // It may have been made anew: the next socket is open before this one is read to its end.
                    let next = PacketSocket::try_open(netns, interface);
                    let rest = || socket.as_ref()?.receive_where(Duration::ZERO, is_strange);
                    through.extend(std::iter::from_fn(rest));
                    socket = next;
                }
            }
        }
    }

    /// Does something many times; each time is met by some packets.
    fn rounds(&self, each: impl FnMut(usize)) {
        self.times(rounds(), each);
    }

    fn times(&self, rounds: usize, mut each: impl FnMut(usize)) {
        for round in 0..rounds {
            let before = self.sent.load(Relaxed);
            each(round);
            while self.sent.load(Relaxed) < before + 10 {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

/// Runs `body` while strangers flood, and panics if a single packet of theirs gets through: by `mgmt`, and by `west`, whatever
/// happens to it, there also in frames from the address that is in those of no card.
fn flooded(site: &Site, body: impl FnOnce(&Flood)) {
    let flood = Flood::default();
    let by_side = strange(SIDE, NODE_SIDE);
    let west = MacAddress([2, 0, 0, 0, 1, 1]);
    let by_west = [MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([0; 6])].map(|from| strange(from, west)).concat();
    let through = thread::scope(|scope| {
        scope.spawn(|| flood.send(&site.side, "mgmt-far", &by_side));
        scope.spawn(|| flood.send(&site.network.left, "n", &by_west));
        let watching = [&site.network.left, &site.network.right].map(|netns| scope.spawn(|| flood.arrive(netns, "n")));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&flood)));
        flood.stop.store(true, Relaxed);
        let through = watching.map(|thread| thread.join().unwrap()).concat();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        through
    });
    let sent = flood.sent.load(Relaxed);
    let some: Vec<_> = through.iter().take(3).map(|frame| format!("{frame:02x?}")).collect();
    assert!(through.is_empty(), "{} of {sent} packets of strangers got through:\n{}", through.len(), some.join("\n"));
    println!("{sent} packets of strangers, none got through");
}

#[test]
#[ignore = "needs root"]
fn an_interface_that_is_no_port_reaches_no_sid() {
    let site = Site::new();
    let agent = Agent::start(&site.network);
    let report = agent.apply(STATE);
    assert_eq!(report["outside"], serde_json::json!(["mgmt"]), "{report}");
    let side = PacketSocket::open(&site.side, "mgmt-far");
    let frames = strange(SIDE, NODE_SIDE);
    assert_eq!(arrive(&site, &side, &frames), 0);
    let table = site.network.node.sh("nft list table ip6 segue");
    assert!(table.contains("counter packets 3 bytes"), "{table}");

    // The operator's word opens it: the packets are such that the kernel takes them where they are to go.
    let trusted = STATE.replace("sid_blocks:", "trusted_interfaces: [mgmt], sid_blocks:");
    let report = agent.apply(&trusted);
    assert!(report.get("outside").is_none(), "{report}");
    assert_eq!(arrive(&site, &side, &frames), 3);
    agent.apply(STATE);
    assert_eq!(arrive(&site, &side, &frames), 0);

    // One that appears later.
    site.connect_side("later", 4);
    let later = PacketSocket::open(&site.side, "later-far");
    let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, 4, end]));
    assert_eq!(arrive(&site, &later, &strange(far, near)), 0);
    // The node itself still reaches other nodes' SIDs, and its own are routes of the main table.
    let counted = || site.network.node.sh("nft list table ip6 segue");
    let before = counted();
    let ends = PacketSocket::open(&site.network.right, "n");
    site.network.node.output(Command::new("ping").args(["-6", "-c", "1", "-W", "1", "fc00:0:2:1::"]));
    let echo = |frame: &[u8]| frame.get(38..54) == Some(&address("fc00:0:2:1::").octets()[..]);
    assert!(ends.receive_where(Duration::from_secs(2), echo).is_some(), "what the node sends itself");
    assert_eq!(counted(), before);
    assert!(site.network.routes().iter().any(|route| route.starts_with("fc00:0:1:1::/64")));
}

#[test]
#[ignore = "needs root"]
fn what_the_data_plane_gives_to_the_kernel_is_let_in() {
    let site = Site::new();
    let agent = Agent::start(&site.network);
    agent.apply(&format!(
        "{STATE}policies:\n  - {{name: p, segment_lists: [{{segments: [\"fc00:0:2:1::\"]}}]}}\nsteering:\n  \
         - {{destination: \"2001:db8:77::/48\", policy: p}}\n"
    ));
    // The kernel has to ask for the neighbour, with the packet in its steering header: to a SID, in by an access port. Nobody
    // answers, for the agent asks too, after an apply and now and then, and would have the answer before the packet comes; and
    // the kernel does not give up.
    site.network.node.sysctl("ipv6.neigh.east.mcast_solicit=1000000");
    site.network.right.sh("ip address del 2001:db8:2::2/64 dev n");
    site.network.node.sh("ip neigh del 2001:db8:2::2 dev east");
    let west = PacketSocket::open(&site.network.left, "n");
    let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, 1, end]));
    let packet = PacketBuilder::ethernet(far, near)
        .ipv6(Ipv6Repr::new(address("2001:db8:1::2"), address("2001:db8:77::1")))
        .udp(UdpRepr::new(1000, 2000))
        .payload(MARK);
    let inside = PacketSocket::open(&site.network.right, "n");
    west.send(&packet.build());
    agent.eventually("it goes through the kernel", |agent| {
        let outcomes = agent.ask("GET", "/metrics", None).1;
        let passed = |line: &&str| line.contains("port=\"west\"") && line.contains("passed_no_neighbour");
        outcomes.lines().filter(passed).any(|line| line.ends_with(" 1"))
    });
    site.neighbours();
    let found = inside.receive_where(Duration::from_secs(5), is_strange).expect("the steered packet");
    assert_eq!(found[38..54], address("fc00:0:2:1::").octets());
}

#[test]
#[ignore = "needs root"]
fn infrastructure_is_closed_where_the_operator_says_so() {
    let site = Site::new();
    site.network.node.sh("ip address add fd00:5ea::1/128 dev lo");
    site.side.script(
        "ip address add 2001:db8:3::2/64 dev mgmt-far nodad
         ip -6 route add default via 2001:db8:3::1",
    );
    let agent = Agent::start(&site.network);
    let ping = || site.side.output(Command::new("ping").args(["-6", "-c", "1", "-W", "1", "fd00:5ea::1"]));
    let pings = || ping().status.success();
    agent.apply(STATE);
    assert!(pings(), "without the key");
    agent.apply(&STATE.replace("sid_blocks:", "infrastructure_prefixes: ['fd00:5ea::/32'], sid_blocks:"));
    assert!(!pings(), "with it");
    agent.apply(STATE);
    assert!(pings(), "without it again");
}

#[test]
#[ignore = "needs root"]
fn nothing_gets_through_while_the_agent_starts_and_applies() {
    let site = Site::new();
    // Before the first apply nothing is promised; this node does not even forward then.
    site.network.node.sh("sysctl -qw net.ipv6.conf.all.forwarding=0");
    let agent = Agent::start(&site.network);
    let larger = STATE.replace("sids:\n", "sids:\n  - {sid: \"fc00:0:1:9::/64\", behaviour: End}\n");
    let smaller = STATE.replace("  - {name: west, role: access}\n", "");
    let smaller = smaller.replace("[\"fc00::/32\"]", "[\"fc00:0::/31\"]");
    assert!(smaller.contains("/31") && !smaller.contains("west"));
    flooded(&site, |flood| {
        agent.apply(STATE);
        flood.rounds(|round| {
            agent.apply(if round % 2 == 0 { &larger } else { &smaller });
        });
    });
}

#[test]
#[ignore = "needs root"]
fn nothing_gets_through_while_the_agent_ends_and_is_upgraded() {
    let site = Site::new();
    let mut agent = Agent::start(&site.network);
    agent.apply(STATE);
    flooded(&site, |flood| {
        flood.rounds(|_| {
            agent.kill();
            agent.restart(&[]);
        });
        flood.rounds(|_| {
            agent.terminate();
            agent.restart(&[]);
        });
        let origin = |agent: &Agent<'_>| agent.log().lines().rfind(|line| line.contains("origin=")).map(str::to_owned);
        // The verifier takes its time for each.
        flood.times(slow_rounds(), |round| {
            agent.terminate();
            // What another build has left: other programs, or maps of another layout.
            let sets = fs::read_dir(agent.pins()).unwrap().map(|entry| entry.unwrap().path());
            let set = sets.filter(|set| set.join("sids").exists()).max_by_key(|set| number_of(set)).unwrap();
            let expected = if round % 2 == 0 {
                let programs = fs::read_dir(&set).unwrap().map(|entry| entry.unwrap().path());
                let mut programs = programs.filter(|path| path.display().to_string().contains("/programs-"));
                fs::rename(programs.next().unwrap(), set.join("programs-0123456789abcdef")).unwrap();
                "ProgramReplaced"
            } else {
                fs::remove_file(set.join("returns")).unwrap();
                "Replacing"
            };
            agent.restart(&[]);
            let origin = origin(&agent).unwrap_or_default();
            assert!(origin.contains(expected), "{origin}");
        });
    });
}

/// N of `maps-N`.
fn number_of(set: &Path) -> Option<u32> {
    set.file_name()?.to_str()?.strip_prefix("maps-")?.parse().ok()
}

#[test]
#[ignore = "needs root"]
fn a_port_that_is_made_anew_is_outside_until_the_data_plane_is_on_it() {
    let site = Site::new();
    let mut agent = Agent::start(&site.network);
    agent.apply(STATE);
    flooded(&site, |flood| {
        flood.rounds(|_| {
            site.remake_west();
            thread::sleep(Duration::from_millis(20));
        });
        flood.rounds(|_| {
            site.network.node.script(
                "ip link set west down
                 ip link set west up
                 ip address replace 2001:db8:1::1/64 dev west nodad",
            );
            site.neighbours();
        });
    });
    // Somebody takes the program off a link that stays a port: what comes in by it has not been judged, and cannot look so.
    agent.kill();
    let links = fs::read_dir(agent.pins()).unwrap().map(|entry| entry.unwrap().path());
    let links = links.filter(|path| path.display().to_string().contains("/filter-")).collect::<Vec<_>>();
    assert_eq!(links.len(), 2, "both ports are on socket buffers");
    links.iter().for_each(|link| fs::remove_dir_all(link).unwrap());
    without_program(&site);
    let west = PacketSocket::open(&site.network.left, "n");
    let near = MacAddress([2, 0, 0, 0, 1, 1]);
    for far in [[2, 0, 0, 0, 1, 2], [0; 6], [2, 0, 0, 0, 1, 1]] {
        assert_eq!(arrive(&site, &west, &strange(MacAddress(far), near)), 0, "{far:02x?}");
    }
    agent.restart(&[]);
    // Without an agent too; and then it forwards again.
    agent.kill();
    site.remake_west();
    let west = PacketSocket::open(&site.network.left, "n");
    let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, 1, end]));
    assert_eq!(arrive(&site, &west, &strange(far, near)), 0);
    agent.restart(&[]);
    agent.eventually("west is a port again", |agent| agent.get("/v1/ports")[0]["mode"] == "skb");
    let inside = PacketSocket::open(&site.network.right, "n");
    let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, 2, end]));
    let [_, to_left, _] = strange(far, near);
    assert_eq!(arrive(&site, &inside, &[to_left]), 1, "from inside, to the host behind west");
}

/// The other tools' ways to lose the table: all rules at once, the table by its name.
fn tampered(owned: bool) {
    let site = Site::new();
    let environment: &[_] = if owned { &[] } else { &[("SEGUE_WITHOUT_TABLE_OWNER", "1")] };
    let mut agent = Agent::start_in(&site.network, environment);
    agent.apply(STATE);
    let side = PacketSocket::open(&site.side, "mgmt-far");
    let frames = strange(SIDE, NODE_SIDE);
    let there = || site.network.node.sh("nft list tables").contains("table ip6 segue");
    assert!(there());
    for command in ["nft flush ruleset", "nft delete table ip6 segue", "nft flush table ip6 segue"] {
        // An owned table is refused to others, which is as good.
        site.network.node.output(Command::new("nft").args(command.split(' ').skip(1)));
        agent.eventually(command, |_| {
            there() && site.network.node.sh("nft list table ip6 segue").contains("counter packets")
        });
        assert_eq!(arrive(&site, &side, &frames), 0, "after {command}");
    }
    if owned {
        flooded(&site, |flood| {
            flood.rounds(|_| {
                site.network.node.sh("nft flush ruleset");
            });
        });
    }
    // What another agent left is taken over, and goes with `segued clean`.
    agent.kill();
    assert!(there());
    agent.restart(&[]);
    agent.apply(&STATE.replace("fc00:0:1:6::/64", "fc00:0:1:7::/64"));
    agent.terminate();
    assert!(there());
    assert!(agent.clean().status.success());
    assert!(!there());
}

#[test]
#[ignore = "needs root"]
fn a_table_that_somebody_flushes_is_put_back() {
    tampered(false);
}

#[test]
#[ignore = "needs root"]
fn a_table_with_an_owner_is_not_flushed_at_all() {
    tampered(true);
}

/// A Packet Too Big from `from` to the node's address on the core, about an echo request to another node's SID: the kernel
/// believes it without a look at who sends it.
fn forged(source: MacAddress, destination: MacAddress, from: &str) -> Vec<u8> {
    let echo = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data: vec![0; 64] };
    let packet = PacketBuilder::new()
        .ipv6(Ipv6Repr::new(address("2001:db8:2::1"), address("fc00:0:2:1::")))
        .icmpv6(echo)
        .build();
    PacketBuilder::ethernet(source, destination)
        .ipv6(Ipv6Repr::new(address(from), address("2001:db8:2::1")))
        .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1300, packet })
        .build()
}

#[test]
#[ignore = "needs root"]
fn a_forged_packet_too_big_shrinks_no_path() {
    let site = Site::new();
    let agent = Agent::start(&site.network);
    agent.apply(STATE);
    let shrunk = || site.network.node.sh("ip -6 route get fc00:0:2:1::").contains("mtu 1300");
    // Each is followed by an echo request, whose answer says that the kernel has seen both.
    let send = |netns: &Netns, interface: &str, number: u8, from: &str| {
        let socket = PacketSocket::open(netns, interface);
        let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, number, end]));
        socket.send(&forged(far, near, from));
        let echo = Icmpv6Repr::EchoRequest { identifier: 7, sequence_number: 7, data: b"seen?".to_vec() };
        let own = format!("2001:db8:{number}::1");
        let frame = PacketBuilder::ethernet(far, near).ipv6(Ipv6Repr::new(address(from), address(&own))).icmpv6(echo);
        socket.send(&frame.build());
        let answer = |frame: &[u8]| frame.get(54) == Some(&129) && frame.ends_with(b"seen?");
        assert!(socket.receive_where(Duration::from_secs(5), answer).is_some(), "no echo reply by {interface}");
    };
    site.network.node.sh("ip neigh replace 2001:db8:3::2 lladdr 02:00:00:00:03:02 nud permanent dev mgmt");
    assert!(!shrunk());
    send(&site.network.left, "n", 1, "2001:db8:1::2");
    assert!(!shrunk(), "from an access port");
    send(&site.side, "mgmt-far", 3, "2001:db8:3::2");
    assert!(!shrunk(), "from an interface that is no port");
    // The kernel would believe it, and does so where it comes from inside the domain.
    send(&site.network.right, "n", 2, "2001:db8:2::2");
    assert!(shrunk(), "from a core port");
}
