//! SR-MPLS with real agents: an ingress that pushes labels, a node on the way, an egress; and the way back. The node on the way knows no
//! route to either host.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use segue_testkit::netns::{End, Netns};
use segue_testkit::wiring::Wiring;

use crate::support::{Agent, Network};

const PATIENCE: Duration = Duration::from_secs(30);

/// Ingress of one direction and egress of the other; NUMBER is its own label's last digit, OTHER that of the node at the other end.
const EDGE: &str = "
node: edgeNUMBER
source_address: 'fd00:0:NUMBER::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: host, role: access}
  - {name: core, role: core}
mpls: {srgb: ['16000-16999'], srlb: ['15000-15999']}
labels:
  - {label: 1600NUMBER, behaviour: node}
  - {label: 15100, behaviour: table, comment: hosts}
policies:
  - name: there
    mode: PUSH
    segment_lists: [{labels: [1600OTHER, 15100], next_hop: 'HOP', port: core}]
steering:
  - {destination: 'fd00:0:bOTHER::/64', policy: there}
  - {destination: 10.OTHER.0.0/16, policy: there}
";

/// The node on the way: one direction is swapped, of the other the label comes off here.
const TRANSIT: &str = "
node: transit
source_address: 'fd00:0:2::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: to1, role: core}
  - {name: to3, role: core}
mpls: {srgb: ['16000-16999'], srlb: ['15000-15999']}
labels:
  - {label: 16001, behaviour: pop, next_hop: 'fd00:0:12::1', port: to1}
  - {label: 16003, behaviour: swap, next_hop: 'fd00:0:32::1', port: to3}
";

fn edge(number: u8, other: u8) -> String {
    // A next hop of each family.
    let hop = if number == 1 { "fd00:0:12::2" } else { "10.32.0.2" };
    EDGE.replace("NUMBER", &number.to_string()).replace("OTHER", &other.to_string()).replace("HOP", hop)
}

fn a_node() -> Network {
    Network { left: Netns::new(), node: Netns::new(), right: Netns::new() }
}

/// Packets that a SID or label of this node has counted.
fn counted(agent: &Agent<'_>, label: &str) -> u64 {
    let sids = agent.get("/v1/sids");
    let row = sids.as_array().unwrap().iter().find(|row| row["sid"] == label);
    row.unwrap_or_else(|| panic!("{label} is not shown: {sids}"))["counter"]["packets"].as_u64().unwrap()
}

/// Sends octets there, and as many back.
fn transfer(client: &Netns, server: &Netns, address: IpAddr) {
    const OCTETS: usize = 300_000;
    let listener = server.enter(|| TcpListener::bind(SocketAddr::new(address, 5001)).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut received = vec![0; OCTETS];
            stream.read_exact(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let mut stream =
            client.enter(|| TcpStream::connect_timeout(&SocketAddr::new(address, 5001), PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..OCTETS).map(|number| (number % 251) as u8).collect();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; OCTETS];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "other octets came back");
    });
}

#[test]
#[ignore = "needs root"]
fn hosts_talk_over_labels() {
    let (first, second, third) = (a_node(), a_node(), a_node());
    let (client, server) = (&first.left, &third.right);
    let mut wiring = Wiring::default();
    let ends = [
        (client, "n", &first.node, "host", 1500),
        (&first.node, "core", &second.node, "to1", 1600),
        (&third.node, "core", &second.node, "to3", 1600),
        (server, "n", &third.node, "host", 1500),
    ];
    for (number, (left, left_name, right, right_name, mtu)) in (1_u8..).zip(ends) {
        wiring.veth(
            End { netns: left, name: left_name, mac: &format!("02:00:00:00:{number:02x}:01") },
            End { netns: right, name: right_name, mac: &format!("02:00:00:00:{number:02x}:02") },
            mtu,
        );
    }
    for (host, edge, number) in [(client, &first.node, 1), (server, &third.node, 3)] {
        wiring.ip(
            host,
            &format!(
                "address add fd00:0:b{number}::2/64 dev n nodad
                 address add 10.{number}.0.2/24 dev n
                 route add default via fd00:0:b{number}::1
                 route add default via 10.{number}.0.1"
            ),
        );
        wiring.ip(
            edge,
            &format!(
                "address add fd00:0:b{number}::1/64 dev host nodad
                 address add 10.{number}.0.1/24 dev host
                 address add fd00:0:{number}2::1/64 dev core nodad"
            ),
        );
    }
    wiring.ip(
        &second.node,
        "address add fd00:0:12::2/64 dev to1 nodad
         address add fd00:0:32::2/64 dev to3 nodad
         address add 10.32.0.2/24 dev to3",
    );
    wiring.ip(&third.node, "address add 10.32.0.1/24 dev core");
    wiring.lay();
    for netns in [&first.node, &third.node] {
        netns.sysctl("ipv4.ip_forward=1");
        netns.sysctl("ipv6.conf.all.forwarding=1");
    }
    let agents = [&first, &second, &third].map(Agent::start);
    agents[0].apply(&edge(1, 3));
    agents[1].apply(TRANSIT);
    agents[2].apply(&edge(3, 1));

    // The first ones may find that a neighbour is not known yet: the agents ask.
    client.sh("ping -c 1 -w 15 -i 0.2 fd00:0:b3::2");
    client.sh("ping -c 1 -w 15 -i 0.2 10.3.0.2");
    let before = counted(&agents[1], "label 16003");
    client.sh("ping -c 5 -i 0.1 -w 20 fd00:0:b3::2");
    client.sh("ping -c 5 -i 0.1 -w 20 10.3.0.2");
    assert!(counted(&agents[1], "label 16003") >= before + 10, "echo requests on the way");
    assert!(counted(&agents[2], "label 15100") >= 10, "echo requests at the end");
    assert!(counted(&agents[1], "label 16001") >= 10, "echo replies on the way");
    assert!(counted(&agents[0], "label 15100") >= 10, "echo replies at the end");
    transfer(client, server, "fd00:0:b3::2".parse().unwrap());
    transfer(client, server, Ipv4Addr::new(10, 3, 0, 2).into());

    // What is shown.
    let policies = agents[0].get("/v1/policies");
    assert_eq!(policies[0]["mode"], "PUSH", "{policies}");
    assert_eq!(policies[0]["segment_lists"][0]["segments"], serde_json::json!(["16003", "15100"]), "{policies}");
    let sids = agents[1].get("/v1/sids");
    assert_eq!(sids[1]["behaviour"], "swap", "{sids}");
    assert_eq!(sids[1]["to"], "as 16003 fd00:0:32::1 port to3", "{sids}");

    short_packets_that_expire_are_answered(client, &agents[2]);
}

/// With the stack that they came with (RFC 4950), for which there is hardly any room behind them: XDP gets buffers that are as large as hosts
/// made them.
fn short_packets_that_expire_are_answered(client: &Netns, egress: &Agent<'_>) {
    let sent = || egress.get("/v1/counters")["icmp"]["time_exceeded"].as_u64().unwrap();
    let before = sent();
    let socket = client.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_ttl(2).unwrap();
    let lengths = [0, 1, 18, 64, 99, 200, 1000];
    for length in lengths {
        socket.send_to(&vec![0; length], "10.3.0.2:9").unwrap();
    }
    egress.eventually("an error for each", |_| sent() == before + lengths.len() as u64);
}
