//! The same rules and the same packets in the kernel's ip6tables and in Segue: every rule counts the same packets and octets.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use segue_classifier::random::Random;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

/// Packets and octets of each rule, by chain.
type Counted = BTreeMap<String, Vec<(u64, u64)>>;

const HOSTS: u16 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const RST: u8 = 4;

fn host(net: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, net, 0, 0, 0, 0, host)
}

/// An upper layer on a packet's way from the hosts of fd00:0:a0::/64 to those of fd00:0:a1::/64, or back.
struct Packet {
    forward: bool,
    ends: (u16, u16),
    upper: Box<dyn Fn(PacketBuilder) -> PacketBuilder>,
}

impl Packet {
    fn ip(&self) -> Ipv6Repr {
        let (here, there) = (host(0xa0, self.ends.0), host(0xa1, self.ends.1));
        if self.forward { Ipv6Repr::new(here, there) } else { Ipv6Repr::new(there, here) }
    }

    fn tcp(forward: bool, ends: (u16, u16), (near, far): (u16, u16), flags: u8) -> Self {
        let (from, to) = if forward { (near, far) } else { (far, near) };
        Self { forward, ends, upper: Box::new(move |packet| packet.tcp(TcpRepr::new(from, to, flags))) }
    }

    fn udp(forward: bool, ends: (u16, u16), (near, far): (u16, u16)) -> Self {
        let (from, to) = if forward { (near, far) } else { (far, near) };
        Self { forward, ends, upper: Box::new(move |packet| packet.udp(UdpRepr::new(from, to)).payload(b"12345678")) }
    }

    fn icmp(forward: bool, message: Icmpv6Repr) -> Self {
        Self { forward, ends: (1, 1), upper: Box::new(move |packet| packet.icmpv6(message.clone())) }
    }
}

/// A router with ip6tables between two links.
struct Kernel {
    router: Netns,
    _world: Netns,
    /// Frames into the router: from the near hosts, and from the far ones.
    links: [PacketSocket; 2],
}

const MACS: [&str; 4] = ["02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:02:01", "02:00:00:00:02:02"];

impl Kernel {
    fn new() -> Self {
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
            for host in 1..=HOSTS {
                let mac = MACS[2 * index + 1];
                router.sh(&format!("ip neigh add fd00:0:{net}::{host} lladdr {mac} nud permanent dev {near}"));
            }
        }
        router.sh("sysctl -q net.ipv6.conf.all.forwarding=1");
        let links = ["worlda0", "worlda1"].map(|name| PacketSocket::open(&world, name));
        Self { router, _world: world, links }
    }

    fn load(&self, rules: &str) {
        self.router.enter(|| {
            let mut restore =
                Command::new("ip6tables-restore").stdin(Stdio::piped()).spawn().expect("ip6tables-restore starts");
            restore.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("it reads");
            assert!(restore.wait().expect("it ends").success(), "ip6tables-restore refuses:\n{rules}");
        });
    }

    fn send(&self, packet: &Packet) {
        let side = usize::from(!packet.forward);
        let mac = |text: &str| segue_testkit::netns::parse_mac(text);
        let frame = PacketBuilder::ethernet(mac(MACS[2 * side + 1]), mac(MACS[2 * side])).ipv6(packet.ip());
        self.links[side].send(&(packet.upper)(frame).build());
    }

    fn counted(&self) -> Counted {
        let text = self.router.run(Command::new("ip6tables-save").arg("-c"));
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

fn document(rules: &str) -> String {
    let text = rules.replace('\n', "\\n");
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {{file: v6, text: \"{text}\"}}}}\n");
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1)
}

fn steered(packet: &Packet) -> Vec<u8> {
    let srh = SrhRepr::new(&[local(0xa1), behind_core1(0xa), behind_core1(0xb)]);
    let outer = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0xa1))).srh(srh);
    (packet.upper)(outer.inner_ipv6(packet.ip())).build()
}

fn counted(node: &Node<'_>) -> Counted {
    let mut counted = Counted::new();
    let mut last = None;
    for rule in &node.firewall_counters()[0].rules {
        let chain = rule.name.split(' ').nth(2).expect("IPv6 -A CHAIN").to_owned();
        let rules = counted.entry(chain).or_default();
        // Some rules are two inside; a packet hits one of them at most.
        if last != rule.line {
            rules.push((0, 0));
        }
        last = rule.line;
        let sum = rules.last_mut().expect("a rule");
        *sum = (sum.0 + rule.counter.packets, sum.1 + rule.counter.bytes);
    }
    counted
}

/// Sends all packets through both; what Segue counted before is subtracted.
fn compare(case: &str, node: &mut Node<'_>, kernel: &Kernel, rules: &str, packets: &[Packet]) {
    kernel.load(rules);
    node.apply(&document(rules));
    let before = counted(node);
    for packet in packets {
        kernel.send(packet);
        let frame = steered(packet);
        node.run_many(|runner| runner.run("core0", &frame));
    }
    let mut segue = counted(node);
    for (chain, rules) in &mut segue {
        for (counter, before) in rules.iter_mut().zip(&before[chain]) {
            *counter = (counter.0 - before.0, counter.1 - before.1);
        }
    }
    // The kernel may not have forwarded the last ones yet.
    for _ in 0..20 {
        if kernel.counted() == segue {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(segue, kernel.counted(), "{case}: Segue, then the kernel, with\n{rules}");
}

fn random_packet(random: &mut Random) -> Packet {
    let ends = (1 + random.below(6) as u16, 1 + random.below(6) as u16);
    let ports = (1 + random.below(8) as u16, 1 + random.below(8) as u16);
    match random.below(2) {
        0 => Packet::tcp(true, ends, ports, random.below(64) as u8),
        _ => Packet::udp(true, ends, ports),
    }
}

const STATELESS: [&str; 3] = [
    ":FORWARD ACCEPT [0:0]
:web - [0:0]
:deep - [0:0]
-A FORWARD -p tcp -m tcp --dport 3:5 -j web
-A FORWARD -p udp -m udp ! --sport 2 -g deep
-A FORWARD -s fd00:0:a0::4/126 -j DROP
-A FORWARD ! -d fd00:0:a1::2/127 -m multiport -p udp --dports 1,3:4,8 -j ACCEPT
-A FORWARD -m length --length 60
-A web -p tcp -m tcp --tcp-flags SYN,ACK,FIN SYN -j MARK --set-xmark 0x5/0xff
-A web -m mark --mark 0x5/0xf -j deep
-A web -p tcp -m tcp --tcp-flags RST RST -j RETURN
-A web -m iprange --src-range fd00:0:a0::1-fd00:0:a0::3 -j DROP
-A deep -m hl --hl-gt 10
-A deep -m mark ! --mark 0x5 -j RETURN
-A deep -p tcp -j DROP
",
    ":FORWARD DROP [0:0]
-A FORWARD ! -s fd00:0:a0::/126 -j ACCEPT
-A FORWARD -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,PSH,ACK,URG SYN,ACK
-A FORWARD ! -p udp -j ACCEPT
-A FORWARD -m dscp --dscp 0x00 -m udp -p udp --sport 5: -j ACCEPT
-A FORWARD -p udp -m multiport ! --ports 4,6
",
    ":FORWARD ACCEPT [0:0]
:a - [0:0]
:b - [0:0]
:c - [0:0]
-A FORWARD -g a
-A FORWARD -j DROP
-A a -p tcp -j b
-A a -p udp -j c
-A a -m mark --mark 0x1/0x1
-A b -p tcp -m tcp --sport 1:4 -j c
-A b -j MARK --set-xmark 0x1/0x1
-A c -s fd00:0:a0::3/128 -j RETURN
-A c -j MARK --set-xmark 0x3/0x0
-A c -m mark --mark 0x2/0x2 -d fd00:0:a1::1/128 -j DROP
",
];

#[test]
#[ignore = "needs root"]
fn stateless_rules_count_what_ip6tables_counts() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut node = Node::load(&network.node, &configuration(DOMAIN));
    let mut random = Random::new(30);
    for (number, rules) in STATELESS.iter().enumerate() {
        let packets: Vec<Packet> = (0..200).map(|_| random_packet(&mut random)).collect();
        let rules = format!("*filter\n{rules}COMMIT\n");
        compare(&format!("rule set {number}"), &mut node, &kernel, &rules, &packets);
    }
}

const STATES: &str = "*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate NEW
-A FORWARD -m conntrack --ctstate ESTABLISHED
-A FORWARD -m conntrack --ctstate RELATED
-A FORWARD -m state --state INVALID
-A FORWARD -m conntrack --ctdir ORIGINAL
-A FORWARD -m conntrack --ctdir REPLY
-A FORWARD -m conntrack --ctstate RELATED --ctdir REPLY
-A FORWARD -m conntrack ! --ctstate ESTABLISHED --ctdir ORIGINAL
COMMIT
";

#[test]
#[ignore = "needs root"]
fn connection_states_are_netfilters() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut node = Node::load(&network.node, &configuration(DOMAIN));
    // One side or the other, and its flags.
    let exchanges: [(&str, &[(bool, u8)]); 9] = [
        (
            "usual",
            &[
                (true, SYN),
                (false, SYN | ACK),
                (true, ACK),
                (false, ACK),
                (true, FIN | ACK),
                (false, ACK),
                (false, FIN | ACK),
                (true, ACK),
            ],
        ),
        ("answer to nothing", &[(true, SYN | ACK), (true, ACK), (false, ACK)]),
        ("SYN again and again", &[(true, SYN), (true, SYN), (false, SYN | ACK), (false, SYN | ACK), (true, ACK)]),
        ("ACK too early", &[(true, SYN), (true, ACK), (false, SYN | ACK), (true, ACK)]),
        ("in the middle", &[(true, ACK), (false, ACK), (true, FIN | ACK), (false, FIN | ACK), (true, ACK)]),
        ("refused", &[(true, SYN), (false, RST | ACK)]),
        ("reset later", &[(true, SYN), (false, SYN | ACK), (true, ACK), (true, RST), (false, ACK)]),
        ("no flags", &[(true, 0), (true, SYN), (true, 0), (false, SYN | ACK)]),
        ("both at once", &[(true, SYN), (false, SYN), (true, SYN | ACK), (false, SYN | ACK), (true, ACK)]),
    ];
    for (port, (case, exchange)) in (100..).zip(exchanges) {
        let packets: Vec<Packet> =
            exchange.iter().map(|(forward, flags)| Packet::tcp(*forward, (1, 1), (port, 80), *flags)).collect();
        compare(case, &mut node, &kernel, STATES, &packets);
    }
    let echo = |reply: bool, identifier| {
        let (sequence_number, data) = (1, vec![0; 8]);
        match reply {
            false => Icmpv6Repr::EchoRequest { identifier, sequence_number, data },
            true => Icmpv6Repr::EchoReply { identifier, sequence_number, data },
        }
    };
    let about = |port| {
        let quoted = PacketBuilder::new().ipv6(Ipv6Repr::new(host(0xa0, 1), host(0xa1, 1)));
        let packet = quoted.udp(UdpRepr::new(port, 53)).payload(b"12345678").build();
        Icmpv6Repr::DestinationUnreachable { code: 4, packet }
    };
    let about_reply = |port| {
        let quoted = PacketBuilder::new().ipv6(Ipv6Repr::new(host(0xa1, 1), host(0xa0, 1)));
        let packet = quoted.udp(UdpRepr::new(53, port)).payload(b"12345678").build();
        Icmpv6Repr::DestinationUnreachable { code: 4, packet }
    };
    let packets = [
        Packet::udp(true, (1, 1), (500, 53)),
        Packet::udp(true, (1, 1), (500, 53)),
        Packet::udp(false, (1, 1), (500, 53)),
        Packet::udp(true, (1, 1), (500, 53)),
        Packet::icmp(false, echo(true, 7)),
        Packet::icmp(true, echo(false, 7)),
        Packet::icmp(true, echo(false, 7)),
        Packet::icmp(false, echo(true, 7)),
        Packet::icmp(false, echo(true, 8)),
        Packet::icmp(false, about(500)),
        Packet::icmp(false, about(501)),
        Packet::udp(false, (1, 1), (502, 53)),
        Packet::udp(true, (1, 1), (502, 53)),
        Packet::icmp(false, about(502)),
        Packet::icmp(true, about_reply(502)),
        Packet::icmp(true, about_reply(500)),
    ];
    compare("UDP and ICMP", &mut node, &kernel, STATES, &packets);
}
