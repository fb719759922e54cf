//! Two routers between the same two links: one with the kernel's iptables, one with Segue's firewall on its ports. What becomes of a
//! frame is what leaves, on either link, before the router answers a request that was sent behind it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_testkit::netns::{End, Netns, parse_mac};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;

use super::packets::Family;

/// Packets and octets of each rule, by chain.
pub type Counted = BTreeMap<String, Vec<(u64, u64)>>;

/// Link-layer addresses of each link: the router's, the neighbour's.
const MACS: [[&str; 2]; 2] = [["02:00:00:00:01:01", "02:00:00:00:01:02"], ["02:00:00:00:02:01", "02:00:00:00:02:02"]];
/// The router's addresses and its neighbours'.
const OWN: [[u8; 4]; 2] = [[192, 0, 2, 1], [198, 51, 100, 1]];
const NEIGHBOURS: [[u8; 4]; 2] = [[192, 0, 2, 254], [198, 51, 100, 254]];

/// Networks behind eth1; all others are behind eth0.
const BEHIND: [&str; 11] = [
    "172.17.0.0/16",
    "192.168.123.0/24",
    "10.158.7.0/24",
    "10.96.0.0/12",
    "10.244.0.0/16",
    "2001:db8:d::/64",
    "2001:db8:ca2::/48",
    "fd42:8fcf:afe9:1a26::/64",
    "fd00:10::/32",
    "203.0.113.0/24",
    "2001:db8:80::/48",
];

/// What leaves the router because of a frame, without the Ethernet header: on the link that it came by, and on the other one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Result {
    pub back: Vec<Vec<u8>>,
    pub on: Vec<Vec<u8>>,
}

/// A namespace that forwards between eth0 and eth1, and the far ends of both.
pub struct Router {
    pub netns: Netns,
    _world: Netns,
    links: [PacketSocket; 2],
    /// ARP requests that were sent.
    asked: Cell<usize>,
}

impl Router {
    pub fn new() -> Self {
        let (netns, world) = (Netns::new(), Netns::new());
        world.script("sysctl -q net.ipv6.conf.default.disable_ipv6=1\nsysctl -q net.ipv6.conf.all.disable_ipv6=1");
        for setting in [
            "ipv4.icmp_ratelimit=0",
            "ipv4.icmp_msgs_per_sec=1000000",
            "ipv4.icmp_msgs_burst=1000000",
            "ipv6.icmp.ratelimit=0",
            "ipv4.conf.all.send_redirects=0",
            "ipv4.conf.default.send_redirects=0",
            "ipv6.conf.default.forwarding=1",
        ] {
            netns.sysctl(setting);
        }
        let mut batch = String::new();
        for side in 0..2 {
            let (near, far) = (format!("eth{side}"), format!("world{side}"));
            veth(
                End { netns: &netns, name: &near, mac: MACS[side][0] },
                End { netns: &world, name: &far, mac: MACS[side][1] },
                1500,
            );
            let [a, b, c, d] = OWN[side];
            let [e, f, g, h] = NEIGHBOURS[side];
            let (net, mac) = (side + 1, MACS[side][1]);
            batch += &format!(
                "address add {a}.{b}.{c}.{d}/24 dev {near}\naddress add 2001:db8:{net}::1/64 dev {near} nodad\n\
                 neigh add {e}.{f}.{g}.{h} lladdr {mac} nud permanent dev {near}\n\
                 neigh add 2001:db8:{net}::fe lladdr {mac} nud permanent dev {near}\n"
            );
            for host in 2..=5 {
                batch += &format!(
                    "neigh add {a}.{b}.{c}.{host} lladdr {mac} nud permanent dev {near}\n\
                     neigh add 2001:db8:{net}::{host} lladdr {mac} nud permanent dev {near}\n"
                );
            }
        }
        batch += "route add default via 192.0.2.254\nroute add default via 2001:db8:1::fe\n";
        for net in BEHIND {
            let via =
                if net.contains(':') { "route add {} via 2001:db8:2::fe" } else { "route add {} via 198.51.100.254" };
            batch += &(via.replace("{}", net) + "\n");
        }
        netns.enter(|| feed(Command::new("ip").args(["-batch", "-"]), &batch));
        let links = ["world0", "world1"].map(|name| PacketSocket::open(&world, name));
        let router = Self { netns, _world: world, links, asked: Cell::new(0) };
        router.settle();
        router
    }

    /// What the router says by itself at its beginning is gone.
    fn settle(&self) {
        for side in [0, 1] {
            self.answered(side);
            self.links[side].drain();
        }
    }

    /// Waits until the router has answered an ARP request, and returns what came before the answer.
    fn answered(&self, side: usize) -> Vec<Vec<u8>> {
        let mut before = Vec::new();
        // A second time: what a port's program sends back by itself leaves a little later than what the stack sends.
        for _ in 0..2 {
            // Each is asked by another address, so that an answer tells which request it is to.
            let asker = 100 + (self.asked.get() % 100) as u8;
            self.asked.set(self.asked.get() + 1);
            let own = parse_mac(MACS[side][1]);
            let asked_by = [OWN[side][0], OWN[side][1], OWN[side][2], asker];
            let mut request = [&[0xff; 6][..], &own, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &own, &asked_by].concat();
            request.extend([&[0; 6][..], &OWN[side]].concat());
            request.resize(60, 0);
            let end = Instant::now() + Duration::from_secs(60);
            self.links[side].send(&request);
            loop {
                // A link that has just come up may lose one.
                let Some(frame) = self.links[side].receive(Duration::from_secs(1)) else {
                    assert!(Instant::now() < end, "no answer to ARP requests");
                    self.links[side].send(&request);
                    continue;
                };
                match frame[12..14] {
                    [8, 6] if frame[20..22] == [0, 2] && frame[38..42] == asked_by => break,
                    [8, 6] => {}
                    _ => before.push(frame),
                }
            }
        }
        before
    }

    /// Sends frames of one side (their layer 3), and says what became of them.
    pub fn send(&self, side: usize, family: Family, packets: &[Vec<u8>]) -> Result {
        let ethertype = if family == Family::Ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        for packet in packets {
            let head = [parse_mac(MACS[side][0]), parse_mac(MACS[side][1])].concat();
            self.links[side].send(&[&head[..], &ethertype, packet].concat());
        }
        let back = self.answered(side);
        let mut on = Vec::new();
        while let Some(frame) = self.links[1 - side].receive(Duration::ZERO) {
            on.push(frame);
        }
        Result { back: strip(back), on: strip(on) }
    }

    /// What has come since: on a busy machine, what one processor forwards may be overtaken by what another answers. True if there was any.
    pub fn later(&self, side: usize, result: &mut Result) -> bool {
        let mut found = false;
        for (link, packets) in [(side, &mut result.back), (1 - side, &mut result.on)] {
            let mut frames = Vec::new();
            while let Some(frame) = self.links[link].receive(Duration::from_millis(300)) {
                frames.push(frame);
            }
            let mut more = strip(frames);
            found |= !more.is_empty();
            packets.append(&mut more);
            packets.sort();
        }
        found
    }
}

/// Layer 3 of frames, sorted.
fn strip(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let wanted = frames.into_iter().filter(|frame| !noise(frame));
    let mut packets: Vec<Vec<u8>> = wanted.map(|frame| whole(&frame[14..])).collect();
    packets.sort();
    packets
}

/// Runs a command with this on its standard input.
fn feed(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{command:?} refuses:\n{input}");
}

/// The packet without what pads its frame.
fn whole(packet: &[u8]) -> Vec<u8> {
    let length = match packet.first().map(|octet| octet >> 4) {
        Some(4) if packet.len() >= 4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        Some(6) if packet.len() >= 6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
        _ => packet.len(),
    };
    packet[..length.min(packet.len())].to_vec()
}

/// Multicast listeners, neighbour discovery of the router's own, ARP. Before it has a link-local address it reports listeners from ::.
fn noise(frame: &[u8]) -> bool {
    let ipv6 = frame[12..14] == [0x86, 0xdd] && frame.len() >= 54;
    let own = |source: &[u8], destination: &[u8]| {
        source[..2] == [0xfe, 0x80] || *source == [0; 16] && destination[..2] == [0xff, 0x02]
    };
    frame[12..14] == [8, 6] || ipv6 && own(&frame[22..38], &frame[38..54])
}

/// iptables' answer.
pub struct Kernel {
    pub router: Router,
    family: Family,
}

impl Kernel {
    /// A router with the rules of the table `filter`.
    pub fn new(family: Family, rules: &str) -> Self {
        let router = Router::new();
        let program = family.program();
        router.netns.enter(|| feed(&mut Command::new(format!("{program}-legacy-restore")), rules));
        Self { router, family }
    }

    pub fn counted(&self) -> Counted {
        let mut save = Command::new(format!("{}-legacy-save", self.family.program()));
        let text = self.router.netns.run(save.args(["-c", "-t", "filter"]));
        let mut counted = Counted::new();
        for line in text.lines().filter(|line| line.starts_with('[')) {
            let (counters, rule) = line[1..].split_once("] -A ").expect("counters and a rule");
            let (packets, octets) = counters.split_once(':').expect("packets and octets");
            let chain = rule.split(' ').next().expect("a chain").to_owned();
            let number = |text: &str| text.parse().expect("a number");
            counted.entry(chain).or_default().push((number(packets), number(octets)));
        }
        counted
    }
}

/// A node with the firewall on both of its ports.
pub fn segue<'r>(router: &'r Router, family: Family, rules: &str, skip: bool) -> Node<'r> {
    let plain = "node: fw\nsource_address: 2001:db8:1::1\nsource_address_ipv4: 192.0.2.1\n\
                 settings: {icmp_errors_per_second: 1000000, icmp_error_burst: 1000000}\n";
    let ports = |firewall: &str| {
        format!("ports: [{{name: eth0, role: access{firewall}}}, {{name: eth1, role: access{firewall}}}]\n")
    };
    let mut node = Node::load(&router.netns, &format!("{plain}{}", ports("")));
    let text = rules.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let skip = if skip { "skip" } else { "refuse" };
    let file = format!("{}: {{file: rules, text: \"{text}\"}}", family.key());
    let firewall = format!("firewalls:\n  - {{name: fw, {file}, unsupported: {skip}}}\n");
    node.apply(&format!("{plain}{}{firewall}", ports(", firewall: fw")));
    node
}

/// Rules of the file that are two inside are counted together.
pub fn counted(node: &Node<'_>) -> Counted {
    let mut counted = Counted::new();
    let mut last = None;
    for rule in &node.firewall_counters()[0].rules {
        let chain = rule.name.split(' ').nth(2).expect("IPv6 -A CHAIN").to_owned();
        let rules = counted.entry(chain).or_default();
        if last != rule.line {
            rules.push((0, 0));
        }
        last = rule.line;
        let sum = rules.last_mut().expect("a rule");
        *sum = (sum.0 + rule.counter.packets, sum.1 + rule.counter.bytes);
    }
    counted
}
