//! Neighbours that only the agent asks for: the kernel never gets a packet that is to go to them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, UdpRepr};

use crate::support::{Agent, Network};

/// Before it the agent has no other reason to ask for neighbours: from one round of asking, of which one is right behind an apply, to the next
/// are 15 s.
const NEXT_ROUND: Duration = Duration::from_secs(12);

const HOP: &str = "2001:db8:2::2";

const PUSH: &str = "
node: edge
source_address: 'fd00:0:1::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: west, role: access}
  - {name: east, role: core}
mpls: {srgb: ['16000-16999'], srlb: ['15000-15999']}
policies:
  - {name: there, mode: PUSH, segment_lists: [{labels: [16003], next_hop: '2001:db8:2::2', port: east}]}
steering:
  - {destination: 'fd00:0:b3::/64', policy: there}
";

const TABLE: &str = "
node: edge
source_address: 'fd00:0:1::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: west, role: core}
  - {name: east, role: access}
sids:
  - {sid: 'fc00:0:1:6::', behaviour: End.DT46, table: 100}
";

/// It forgets those that it has not used itself when the machine has many, and all of a link that goes down.
#[test]
#[ignore = "needs root"]
fn next_hops_that_the_kernel_forgets_are_asked_for_again() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(PUSH);
    // All of it between two rounds.
    let end = Instant::now() + NEXT_ROUND;
    let neighbour = || network.node.sh(&format!("ip neigh show {HOP} dev east"));
    let known = |when: &str| {
        while !neighbour().contains("lladdr") {
            assert!(Instant::now() < end, "not asked for {when}: {}", network.node.sh("ip neigh"));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    known("by an apply");
    network.node.sh("ip neigh flush dev east");
    known("when it is forgotten");
    network.right.sh("ip link set dev n down");
    agent.eventually("the port is down", |agent| agent.get("/v1/ports")[1]["up"] == false);
    // Asked for at once, in vain: what is asked still when the link comes up would be answered.
    agent.eventually("the kernel has given up", |_| neighbour().contains("FAILED"));
    network.right.script(&format!("ip link set dev n up\nip address add {HOP}/64 dev n nodad"));
    known("when its link comes up");
}

/// Hosts and gateways that only a table of its own leads to, and that have never said anything.
#[test]
#[ignore = "needs root"]
fn who_is_in_a_table_of_its_own_is_asked_for_when_packets_need_it() {
    let network = Network::new();
    network.node.script(
        "ip -6 route add 2001:db8:9::/64 dev east table 100
         ip -4 route add 10.9.0.0/16 via 192.0.2.9 dev east onlink table 100
         ip -4 address add 192.0.2.1/32 dev east",
    );
    network.right.script(
        "ip -6 address add 2001:db8:9::2/64 dev n nodad
         ip -4 address add 192.0.2.9/24 dev n",
    );
    let agent = Agent::start(&network);
    agent.apply(TABLE);
    let west = PacketSocket::open(&network.left, "n");
    let east = PacketSocket::open(&network.right, "n");
    let [near, far] = [1, 2].map(|end| MacAddress([2, 0, 0, 0, 1, end]));
    let outer = Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), "fc00:0:1:6::".parse().unwrap());
    let outer = PacketBuilder::ethernet(far, near).ipv6(outer);
    let host: Ipv6Addr = "2001:db8:9::2".parse().unwrap();
    let inner = outer.clone().inner_ipv6(Ipv6Repr::new("2001:db8:77::1".parse().unwrap(), host));
    arrives(&agent, &west, &east, &inner.udp(UdpRepr::new(1000, 2000)).payload(b"to a host").build(), 0x86dd);
    let inner = outer.inner_ipv4(Ipv4Repr::new(Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 9, 1, 2)));
    arrives(&agent, &west, &east, &inner.udp(UdpRepr::new(1000, 2000)).payload(b"by a gateway").build(), 0x0800);
}

/// The packet comes out by and by, and those before were counted as what they are.
fn arrives(agent: &Agent<'_>, west: &PacketSocket, east: &PacketSocket, frame: &[u8], ethertype: u16) {
    let end = Instant::now() + NEXT_ROUND;
    let payload = &frame[frame.len() - 9..];
    let is_it = |found: &[u8]| found[12..14] == ethertype.to_be_bytes() && found.ends_with(payload);
    loop {
        west.send(frame);
        if east.receive_where(Duration::from_millis(100), is_it).is_some() {
            break;
        }
        assert!(Instant::now() < end, "nothing arrives:\n{}", agent.get("/v1/outcomes"));
    }
    let metrics = agent.ask("GET", "/metrics", None).1;
    let counted = |line: &str| line.contains("\"drop_no_neighbour\"") && !line.ends_with(" 0");
    assert!(metrics.lines().any(counted), "{metrics}");
}
