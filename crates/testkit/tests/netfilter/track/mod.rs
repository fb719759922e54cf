//! The kernel's connection tracking and Segue's, side by side: a packet's state and direction in both.

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr};

pub const NEAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xa0, 0, 0, 0, 0, 1);
pub const FAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xa1, 0, 0, 0, 0, 1);
const MACS: [&str; 4] = ["02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:02:01", "02:00:00:00:02:02"];

/// The kernel writes what it thinks of a packet into its Traffic Class: an index of [`STATES`].
const MARKS: &str = "table ip6 track {
  chain forward {
    type filter hook forward priority 0;
    ct state invalid ip6 dscp set 1
    ct state new ip6 dscp set 2
    ct state established ct direction original ip6 dscp set 3
    ct state established ct direction reply ip6 dscp set 4
    ct state related ct direction original ip6 dscp set 5
    ct state related ct direction reply ip6 dscp set 6
  }
}";

/// The same in Segue's rules, in the same order.
const RULES: &str = "*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j ACCEPT
-A FORWARD -m conntrack --ctstate NEW -j ACCEPT
-A FORWARD -m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -j ACCEPT
-A FORWARD -m conntrack --ctstate ESTABLISHED --ctdir REPLY -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED --ctdir ORIGINAL -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED --ctdir REPLY -j ACCEPT
COMMIT
";
pub const STATES: [&str; 7] =
    ["nothing", "INVALID", "NEW", "ESTABLISHED", "ESTABLISHED, reply", "RELATED", "RELATED, reply"];

/// A router with the kernel's connection tracking between two links.
pub struct Kernel {
    pub router: Netns,
    _world: Netns,
    links: [PacketSocket; 2],
}

impl Kernel {
    pub fn new() -> Self {
        let (router, world) = (Netns::new(), Netns::new());
        world.script("sysctl -q net.ipv6.conf.default.disable_ipv6=1\nsysctl -q net.ipv6.conf.all.disable_ipv6=1");
        for (index, net) in ["a0", "a1"].iter().enumerate() {
            let (near, far) = (format!("router{net}"), format!("world{net}"));
            veth(
                End { netns: &router, name: &near, mac: MACS[2 * index] },
                End { netns: &world, name: &far, mac: MACS[2 * index + 1] },
                1500,
            );
            router.sh(&format!("ip -6 address add fd00:0:{net}::ff/64 dev {near} nodad"));
            let mac = MACS[2 * index + 1];
            router.sh(&format!("ip neigh add fd00:0:{net}::1 lladdr {mac} nud permanent dev {near}"));
        }
        router.sh("sysctl -q net.ipv6.conf.all.forwarding=1");
        router.run(Command::new("nft").arg(MARKS));
        let links = ["worlda0", "worlda1"].map(|name| PacketSocket::open(&world, name));
        Self { router, _world: world, links }
    }

    /// All that it knows, a line each.
    pub fn connections(&self) -> String {
        let table = self.router.enter(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack"));
        table.expect("the table of connections")
    }

    /// What a packet from one side is: an index of [`STATES`]. `is_it` knows it again behind the router.
    pub fn judge(&self, near: bool, build: impl Fn(PacketBuilder) -> Vec<u8>, is_it: impl Fn(&[u8]) -> bool) -> usize {
        let side = usize::from(!near);
        let mac = |text: &str| segue_testkit::netns::parse_mac(text);
        let ethernet = PacketBuilder::ethernet(mac(MACS[2 * side + 1]), mac(MACS[2 * side]));
        self.links[side].send(&build(ethernet));
        let there = self.links[1 - side].receive_where(Duration::from_secs(60), is_it);
        let frame = there.expect("the router forwards whatever it thinks of it");
        let class = (u16::from_be_bytes([frame[14], frame[15]]) >> 4) as u8;
        usize::from(class >> 2)
    }
}

/// Segue's firewall, and what it has counted.
pub struct Segue<'a> {
    pub node: Node<'a>,
    counted: Vec<u64>,
}

impl<'a> Segue<'a> {
    pub fn new(network: &'a Network, conntrack: &str) -> Self {
        let text = RULES.replace('\n', "\\n");
        let firewall =
            format!("firewalls:\n  - {{name: fw, ipv6: {{file: v6, text: \"{text}\"}}, conntrack: {{{conntrack}}}}}\n");
        let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
        let document = configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1);
        let node = Node::load(&network.node, &document);
        Self { node, counted: vec![0; 6] }
    }

    /// What a packet is: an index of [`STATES`].
    pub fn judge(&mut self, build: impl Fn(PacketBuilder) -> Vec<u8>) -> usize {
        let srh = SrhRepr::new(&[local(0xa1), behind_core1(0xa), behind_core1(0xb)]);
        let outer = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0xa1))).srh(srh);
        self.node.run("core0", &build(outer));
        let counters = self.node.firewall_counters();
        let now: Vec<u64> = counters[0].rules.iter().map(|rule| rule.counter.packets).collect();
        let found = now.iter().zip(&self.counted).position(|(now, before)| now != before);
        self.counted = now;
        found.map_or(0, |rule| rule + 1)
    }
}
