//! What the interoperation tests share: real frames into one interface, and what plain receivers see of them at others.

use std::time::{Duration, Instant};

use segue_testkit::fixture::{LINKS, Network, address::*};
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

/// How long a frame may take from one end to the other. It takes microseconds unless the machine is very busy.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);
/// How long to watch for what must not come. Forwarding happens inside the sender's own system call.
const QUIET_FOR: Duration = Duration::from_millis(60);

/// Packet sockets at plain receivers, by names. What XDP redirects is seen there, and nowhere before.
pub struct Receivers(Vec<(String, PacketSocket)>);

impl Receivers {
    /// The far ends of all of the node's links, by the names of the near ends.
    pub fn around(network: &Network) -> Self {
        Self::at(&LINKS.map(|link| (link.name, &network.world, format!("{}-far", link.name))))
    }

    /// Interfaces of any namespaces, each with the name that it gets here.
    pub fn at(places: &[(&str, &Netns, String)]) -> Self {
        Self(
            places
                .iter()
                .map(|(name, netns, interface)| ((*name).to_owned(), PacketSocket::open(netns, interface)))
                .collect(),
        )
    }

    /// The socket of this name.
    pub fn socket(&self, name: &str) -> &PacketSocket {
        &self.0.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no receiver {name}")).1
    }

    /// Sends `frame` from the socket `from`, and returns where the one frame arrives that comes of it, and the frame.
    ///
    /// # Panics
    ///
    /// When none comes, or more than one.
    pub fn send(&self, case: &str, from: &str, frame: &[u8]) -> (String, Vec<u8>) {
        self.drain();
        self.socket(from).send(frame);
        let mut found = self.collect(ARRIVES_WITHIN, 1);
        found.extend(self.collect(Duration::ZERO, usize::MAX));
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found.len(), 1, "{case}: frames arrive at {names:?}");
        found.remove(0)
    }

    /// Sends `frame`; nothing may come of it.
    pub fn swallowed(&self, case: &str, from: &str, frame: &[u8]) {
        self.drain();
        self.socket(from).send(frame);
        let found = self.collect(QUIET_FOR, 1);
        assert!(found.is_empty(), "{case}: {found:02x?}");
    }

    /// Sends `frame`, which arrives at `to` exactly as `expected`.
    pub fn arrives(&self, case: &str, from: &str, frame: &PacketBuilder, to: &str, expected: &PacketBuilder) {
        let (at, found) = self.send(case, from, &frame.build());
        assert_eq!(at, to, "{case}: where it arrives; {}", segue_wire::summary(&found));
        same(case, &found, &expected.build());
    }

    /// Throws away what has arrived so far.
    pub fn drain(&self) {
        self.0.iter().for_each(|(_, socket)| socket.drain());
    }

    fn collect(&self, limit: Duration, enough: usize) -> Vec<(String, Vec<u8>)> {
        let end = Instant::now() + limit;
        let mut found = Vec::new();
        loop {
            for (name, socket) in &self.0 {
                while let Some(frame) = socket.receive(Duration::ZERO) {
                    if !is_chatter(&frame) {
                        found.push((name.clone(), frame));
                    }
                }
            }
            if found.len() >= enough || Instant::now() >= end {
                return found;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Neighbour discovery, multicast listener reports and ARP, which kernels send of their own accord.
fn is_chatter(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x86, 0xdd]) => {
            let (source, destination) = (frame.get(22..24), frame.get(38));
            source.is_none_or(|octets| octets == [0xfe, 0x80]) || destination == Some(&0xff)
        }
        Some([0x08, 0x06]) => true,
        _ => false,
    }
}

/// # Panics
///
/// When the frames differ; the message shows both, and where they part.
pub fn same(case: &str, found: &[u8], expected: &[u8]) {
    if found != expected {
        let at = found
            .iter()
            .zip(expected)
            .position(|(left, right)| left != right)
            .unwrap_or(found.len().min(expected.len()));
        let hexadecimal = |frame: &[u8]| frame.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        panic!(
            "{case}: they part at octet {at}\nfound    {} octets {}\n         {}\nexpected {} octets {}\n         {}",
            found.len(),
            hexadecimal(found),
            segue_wire::summary(found),
            expected.len(),
            hexadecimal(expected),
            segue_wire::summary(expected)
        );
    }
}

/// Two namespaces joined by a link with its number in all addresses: `fd00:0:NN::1` and `10.NN.0.1` with the MAC address
/// `02:00:00:01:NN:01` at the left end, 2 in place of the last 1 at the right one; they know each other as neighbours.
pub fn link(left: (&Netns, &str), right: (&Netns, &str), number: u8, mtu: u32) {
    let mac = |side: u8| format!("02:00:00:01:{number:02x}:{side:02x}");
    veth(End { netns: left.0, name: left.1, mac: &mac(1) }, End { netns: right.0, name: right.1, mac: &mac(2) }, mtu);
    for ((netns, name), own, other) in [(left, 1, 2), (right, 2, 1)] {
        join(netns, name, &format!("fd00:0:{number:x}::{own}"), &format!("10.{number}.0.{own}"), &mac(other), other);
    }
}

/// The MAC addresses of [`link`]: left, right.
pub fn link_macs(number: u8) -> ([u8; 6], [u8; 6]) {
    ([2, 0, 0, 1, number, 1], [2, 0, 0, 1, number, 2])
}

fn join(netns: &Netns, name: &str, ipv6: &str, ipv4: &str, neighbour_mac: &str, neighbour: u8) {
    // The fixture's world only receives: it has no addresses.
    if netns.sh(&format!("cat /proc/sys/net/ipv6/conf/{name}/disable_ipv6")).trim() == "1" {
        return;
    }
    let other = |address: &str| format!("{}{neighbour}", &address[..address.len() - 1]);
    netns.script(&format!(
        "ip -6 address add {ipv6}/64 dev {name}
         ip -4 address add {ipv4}/24 dev {name}
         ip -6 neigh add {} lladdr {neighbour_mac} nud permanent dev {name}
         ip -4 neigh add {} lladdr {neighbour_mac} nud permanent dev {name}",
        other(ipv6),
        other(ipv4)
    ));
}

/// Takes the far end of one of the fixture's links from the world into `netns`, as a node of its own there: with the
/// neighbour's addresses, and the fixture's node as its neighbour.
pub fn take(network: &Network, name: &str, netns: &Netns) {
    let link = LINKS.iter().find(|link| link.name == name).expect("a link of the fixture");
    let far = format!("{name}-far");
    network.world.sh(&format!("ip link set {far} netns {}", netns.name()));
    netns.sh(&format!("ip link set {far} up"));
    for (family, address) in [("-6", link.ipv6), ("-4", link.ipv4)] {
        if let Some((near, length)) = address.split_once('/') {
            let own = format!("{}2", &near[..near.len() - 1]);
            netns.script(&format!(
                "ip {family} address add {own}/{length} dev {far}
                 ip neigh add {near} lladdr 02:00:00:00:00:{:02x} nud permanent dev {far}",
                link.number
            ));
        }
    }
}

/// An IPv6 packet of a customer.
pub fn six(packet: PacketBuilder, destination: std::net::Ipv6Addr, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0x5_4321, ..Ipv6Repr::new(CLIENT, destination) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"a payload of odd length")
}

/// An IPv4 packet of a customer.
pub fn four(packet: PacketBuilder, destination: std::net::Ipv4Addr, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, identification: 0x1234, ..Ipv4Repr::new(CLIENT4, destination) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"a payload of odd length")
}
