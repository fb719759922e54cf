//! Hosts as they are, with segmentation, receive and checksum offload, and a chain between them on socket buffers: TCP arrives octet for
//! octet, and its segments stay together all the way.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use segue_dataplane::Hook;
use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::wiring::Wiring;

const PORT: u16 = 5201;
const OCTETS: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// A client and a server at a node with both ends of the domain, and a node between with a function.
struct Chain {
    client: Netns,
    server: Netns,
    edge: Netns,
    middle: Netns,
    function: Netns,
}

impl Chain {
    fn new() -> Self {
        let [client, server, edge, middle, function] = std::array::from_fn(|_| Netns::new());
        let chain = Self { client, server, edge, middle, function };
        let mut wiring = Wiring::default();
        let links: [(&Netns, &str, &Netns, &str, u32); 6] = [
            (&chain.client, "to-edge", &chain.edge, "acc0", 1500),
            (&chain.server, "to-edge", &chain.edge, "acc1", 1500),
            (&chain.edge, "core0", &chain.middle, "core0", 2000),
            (&chain.edge, "core1", &chain.middle, "core1", 2000),
            (&chain.middle, "fun0", &chain.function, "in0", 1500),
            (&chain.middle, "fun1", &chain.function, "out0", 1500),
        ];
        for (number, (left, left_name, right, right_name, mtu)) in (1_u8..).zip(links) {
            let mac = |side: u8| format!("02:00:00:00:{side:02x}:{number:02x}");
            let (near, far) = (mac(1), mac(2));
            wiring.veth(
                End { netns: left, name: left_name, mac: &near },
                End { netns: right, name: right_name, mac: &far },
                mtu,
            );
            for (netns, name, own, neighbour, last, other) in
                [(left, left_name, 1, &far, 1, 2), (right, right_name, 2, &near, 2, 1)]
            {
                let _ = own;
                wiring.ip(netns, &format!("address add fd00:{number}::{last}/64 dev {name} nodad"));
                wiring.ip(netns, &format!("address add 10.{number}.0.{last}/24 dev {name}"));
                wiring.ip(
                    netns,
                    &format!("neigh add fd00:{number}::{other} lladdr {neighbour} nud permanent dev {name}"),
                );
                wiring
                    .ip(netns, &format!("neigh add 10.{number}.0.{other} lladdr {neighbour} nud permanent dev {name}"));
            }
        }
        wiring.ip(&chain.client, "route add default via fd00:1::2\nroute add default via 10.1.0.2");
        wiring.ip(&chain.server, "route add default via fd00:2::2\nroute add default via 10.2.0.2");
        wiring.ip(&chain.edge, "address add fd00:ee::1/128 dev lo\nroute add fc00:0:2::/48 via fd00:3::2");
        wiring.ip(&chain.middle, "address add fd00:ee::2/128 dev lo\nroute add fc00:0:1::/48 via fd00:4::1");
        wiring.ip(
            &chain.function,
            "route add fd00:2::/64 via fd00:6::1\nroute add 10.2.0.0/24 via 10.6.0.1\nroute add fd00:1::/64 via fd00:5::1\n\
             route add 10.1.0.0/24 via 10.5.0.1",
        );
        wiring.lay();
        for (left, left_name, right, right_name, _) in links {
            // As they are on every host; the kit's wiring has them off.
            left.sh(&format!("ethtool -K {left_name} tx on sg on tso on gso on gro off"));
            right.sh(&format!("ethtool -K {right_name} tx on sg on tso on gso on gro off"));
        }
        for netns in [&chain.function, &chain.edge, &chain.middle] {
            netns.sysctl("ipv6.conf.all.forwarding=1");
            netns.sysctl("ipv4.conf.all.forwarding=1");
        }
        chain
    }

    /// The server gets all that the client sends, by a connection in each direction of the chain.
    fn carries(&self, to: IpAddr) {
        let address = SocketAddr::new(to, PORT);
        let sent: Vec<u8> =
            (0..OCTETS).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[2]).collect();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let received = std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                self.server.enter(move || {
                    let listener = TcpListener::bind(address).expect("a listener");
                    ready.send(()).expect("the client");
                    let (mut stream, _) = listener.accept().expect("a connection");
                    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                    let mut received = Vec::with_capacity(OCTETS);
                    stream.read_to_end(&mut received).expect("all octets");
                    received
                })
            });
            is_ready.recv().expect("the server listens");
            self.client.enter(|| {
                let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
                stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
                stream.write_all(&sent).expect("all octets are sent");
            });
            server.join().expect("the server")
        });
        assert!(received == sent, "{} octets of {OCTETS} arrived, or others", received.len());
    }

    /// Buffers that an interface has received.
    fn buffers(&self, netns: &Netns, interface: &str) -> u64 {
        let said = netns.sh(&format!("ip -stats -json link show dev {interface}"));
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        said[0]["stats64"]["rx"]["packets"].as_u64().expect("a number")
    }
}

fn edge() -> &'static str {
    "node: edge\nsource_address: 'fd00:ee::1'\nsource_address_ipv4: 192.0.2.1\nlocator: 'fc00:0:1::/48'\n\
     domain: {sid_blocks: ['fc00::/16']}\n\
     ports: [{name: acc0, role: access}, {name: acc1, role: access}, {name: core0, role: core}, {name: core1, role: core}]\n\
     sids: [{sid: 'fc00:0:1:46::/64', behaviour: End.DT46}]\n\
     policies:\n  - {name: there, mode: H.Encaps, segment_lists: [{segments: ['fc00:0:2:1::', 'fc00:0:2:61::', 'fc00:0:1:46::']}]}\n  \
     - {name: back, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:2:1::', 'fc00:0:1:46::']}]}\n\
     steering:\n  - {name: there6, destination: 'fd00:2::/64', policy: there}\n  - {name: there4, destination: 10.2.0.0/24, policy: there}\n  \
     - {name: back6, destination: 'fd00:1::/64', policy: back}\n  - {name: back4, destination: 10.1.0.0/24, policy: back}\n"
}

fn middle() -> &'static str {
    "node: middle\nsource_address: 'fd00:ee::2'\nsource_address_ipv4: 192.0.2.2\nlocator: 'fc00:0:2::/48'\n\
     domain: {sid_blocks: ['fc00::/16']}\n\
     ports: [{name: core0, role: core}, {name: core1, role: core}, {name: fun0, role: service}, {name: fun1, role: service}]\n\
     sids:\n  - {sid: 'fc00:0:2:1::/64', behaviour: End}\n  - sid: 'fc00:0:2:61::/64'\n    behaviour: End.AS\n    \
     next_hop_mac: '02:00:00:00:02:05'\n    \
     proxy: {inner: [IPv4, IPv6], to_function: fun0, from_function: fun1, segments: ['fc00:0:1:46::']}\n"
}

#[test]
#[ignore = "needs root"]
fn tcp_through_a_chain_on_socket_buffers_stays_whole() {
    let chain = Chain::new();
    let edge_node = Node::load_on(&chain.edge, edge(), Hook::Skb);
    let middle_node = Node::load_on(&chain.middle, middle(), Hook::Skb);
    for to in ["fd00:2::1", "10.2.0.1"] {
        let before = middle_node.counters();
        let buffers = chain.buffers(&chain.middle, "core0");
        chain.carries(to.parse().expect("an address"));
        let buffers = chain.buffers(&chain.middle, "core0") - buffers;
        let after = middle_node.counters();
        let sid = "sid fc00:0:2:61::/64";
        let segments = after[sid].0 - before.get(sid).map_or(0, |(packets, _)| *packets);
        let least = OCTETS as u64 / 1448;
        assert!(segments >= least, "{to}: {segments} segments counted, {least} are the least");
        assert!(buffers * 10 < segments, "{to}: {segments} segments in {buffers} buffers");
        for (node, counters) in [("edge", edge_node.counters()), ("middle", middle_node.counters())] {
            let dropped: Vec<_> = counters.iter().filter(|(name, _)| name.contains(" drop_")).collect();
            assert!(dropped.is_empty(), "{to}, {node}: {dropped:?}");
        }
    }
}
