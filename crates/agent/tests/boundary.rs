//! The boundary on interfaces that are no ports: nothing that comes in by them reaches a SID, of this node or of another.

#[allow(dead_code)] // made for more than this
mod support;

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use segue_testkit::netns::{End, Netns, veth};
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Icmpv6Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use support::{Agent, Network};

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
