//! The exact proxy (End.AD with `memory: packet`) with a real agent: one function, any number of chains, each packet with the
//! header that it came with, whatever the function does to it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{Agent, Network};
use segue_testkit::command::sh;
use segue_testkit::netns::{End, Netns};
use segue_testkit::object;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};

const PATIENCE: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(200);

const STATE: &str = "
node: exact
source_address: 'fc00:0:1::1'
locator: 'fc00:0:1::/48'
domain: {sid_blocks: ['fc00::/32']}
ports:
  # By XDP, whose metadata lead through the TC program to the function; on socket buffers: testkit's golden tests and links.
  - {name: west, role: core, mode: xdp}
  - {name: east, role: core, mode: xdp}
  - {name: fw0, role: service}
  - {name: fe0, role: service}
  - {name: fw1, role: service}
  - {name: fe1, role: service}
sids:
  - {sid: 'fc00:0:1:9::/64', behaviour: End}
  - sid: 'fc00:0:1:1::/64'
    behaviour: End.AD
    next_hop_mac: '02:00:00:00:03:02'
    proxy: {inner: [IPv4, IPv6], to_function: fw0, from_function: fe0, memory: packet, OWN}
  - sid: 'fc00:0:1:2::/64'
    behaviour: End.AD
    next_hop_mac: '02:00:00:00:05:02'
    proxy: {inner: [IPv4, IPv6], to_function: fw1, from_function: fe1, memory: packet}
policies:
  - {name: own, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:2:aaaa::', 'fc00:0:2:bbbb::']}]}
steering:
  - {destination: 10.9.0.0/16, policy: own}
";

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const PUBLISHED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// A router with its links: packets come in by `west` and leave by `east`.
fn function(network: &Network, number: u8) -> Netns {
    let function = Netns::new();
    let mac = |link: u8, end: u8| format!("02:00:00:00:{:02x}:{end:02x}", 3 + 2 * number + link);
    let (west, east) = ([mac(0, 1), mac(0, 2)], [mac(1, 1), mac(1, 2)]);
    for (node, name, macs) in [(format!("fw{number}"), "west", &west), (format!("fe{number}"), "east", &east)] {
        veth(
            End { netns: &network.node, name: &node, mac: &macs[0] },
            End { netns: &function, name, mac: &macs[1] },
            1500,
        );
    }
    function.script(&format!(
        "ip address add 10.77.0.2/24 dev east
         ip neigh add 10.77.0.1 lladdr {0} nud permanent dev east
         ip route add default via 10.77.0.1
         ip neigh add fe80::1 lladdr {0} nud permanent dev east
         ip -6 route add default via fe80::1 dev east",
        east[0]
    ));
    for setting in ["ipv4.conf.west.rp_filter=0", "ipv4.conf.east.rp_filter=0"] {
        function.sysctl(setting);
    }
    function
}

struct Lab<'a> {
    network: &'a Network,
    agent: Agent<'a>,
    left: PacketSocket,
    right: PacketSocket,
}

impl<'a> Lab<'a> {
    fn new(network: &'a Network, own: &str) -> Self {
        network.node.script(
            "ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east
             ip neigh replace 2001:db8:1::2 lladdr 02:00:00:00:01:02 nud permanent dev west
             ip address add 192.168.1.1/24 dev west
             ip neigh replace 192.168.1.2 lladdr 02:00:00:00:01:02 nud permanent dev west
             ip route add 10.1.0.0/16 via 192.168.1.2",
        );
        let agent = Agent::start(network);
        let own = if own.is_empty() { "own_traffic: route".to_owned() } else { own.to_owned() };
        agent.apply(&STATE.replace("OWN", &own));
        let (left, right) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
        Self { network, agent, left, right }
    }

    fn counted(&self, port: &str, outcome: &str) -> u64 {
        self.counter(port, outcome, "packets")
    }

    fn octets(&self, port: &str, outcome: &str) -> u64 {
        self.counter(port, outcome, "bytes")
    }

    fn counter(&self, port: &str, outcome: &str, what: &str) -> u64 {
        let outcomes = self.agent.get("/v1/outcomes");
        let rows = outcomes.as_array().unwrap().iter();
        let rows = rows.filter(|row| row["port"] == port && row["outcome"] == outcome);
        rows.map(|row| row["counter"][what].as_u64().unwrap()).sum()
    }

    fn counters(&self) -> String {
        let outcomes = self.agent.get("/v1/outcomes");
        let rows = outcomes.as_array().unwrap().iter();
        rows.map(|row| format!("{} {} {}\n", row["port"], row["outcome"], row["counter"]["packets"])).collect()
    }

    fn passes(&self, case: &str, sent: &PacketBuilder, expected: &PacketBuilder) {
        self.right.drain();
        self.left.send(&sent.build());
        let found = self.right.receive_where(PATIENCE, is_steered);
        let found = found.unwrap_or_else(|| panic!("{case}: nothing comes out\n{}", self.counters()));
        let expected = expected.build();
        let at = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(found, expected, "{case}: they part at {at:?}");
    }

    /// What a function sends by `east` is counted as `outcome` by the node's port, and nothing of it reaches a neighbour.
    fn refuses(&self, case: &str, from: &PacketSocket, frame: &[u8], outcome: &str) {
        let before = self.counted("fe0", outcome);
        self.right.drain();
        self.left.drain();
        from.send(frame);
        assert_eq!(self.right.receive_where(SILENCE, is_steered), None, "{case}");
        assert_eq!(self.counted("fe0", outcome), before + 1, "{case}\n{}", self.counters());
    }
}

fn is_steered(frame: &[u8]) -> bool {
    frame.len() > 40 && frame[12..14] == [0x86, 0xdd] && frame[20] == 43 && frame[38..40] == [0xfc, 0]
}

fn path(function: u16, chain: u16) -> [Ipv6Addr; 3] {
    [
        Ipv6Addr::new(0xfc00, 0, 1, function, 0, 0, 0, 0),
        Ipv6Addr::new(0xfc00, 0, 2, chain, 0, 0, 0, 0),
        address("fc00:0:2:ffff::"),
    ]
}

fn outer(chain: u16, hop_limit: u8, destination: Ipv6Addr) -> Ipv6Repr {
    Ipv6Repr { hop_limit, flow_label: u32::from(chain), ..Ipv6Repr::new(address("2001:db8:1::2"), destination) }
}

fn sent(path: &[Ipv6Addr; 3], chain: u16) -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
        .ipv6(outer(chain, 60, path[0]))
        .srh(SrhRepr::new(path))
}

fn arrived(path: &[Ipv6Addr; 3], chain: u16, hop_limit: u8, left: u8) -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]))
        .ipv6(outer(chain, hop_limit, path[2 - usize::from(left)]))
        .srh(SrhRepr::new(path).with_segments_left(left))
}

fn udp(packet: PacketBuilder, ttl: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), text: &[u8]) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: ttl, ..Ipv4Repr::new(from.0, to.0) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(from.1, to.1)).payload(text)
}

fn six(packet: PacketBuilder, hop_limit: u8) -> PacketBuilder {
    let repr =
        Ipv6Repr { hop_limit, flow_label: 9, ..Ipv6Repr::new(address("2001:db8:a::2"), address("2001:db8:b::2")) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(b"six")
}

#[test]
#[ignore = "needs root"]
fn one_function_in_many_chains_and_segments_of_the_same_node() {
    let network = Network::new();
    let _functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "");
    // The function and the node are a hop each for the inner packet.
    for chain in [1, 2, 3] {
        let path = path(1, chain);
        lab.passes("IPv6", &six(sent(&path, chain), 64), &six(arrived(&path, chain, 59, 1), 62));
        let four = |packet, ttl| udp(packet, ttl, (CLIENT, 1), (SERVER, 2), b"four");
        lab.passes("IPv4", &four(sent(&path, chain), 64), &four(arrived(&path, chain, 59, 1), 62));
    }
    // The next segment is this node's: End.
    let mut own = path(1, 5);
    own[1] = address("fc00:0:1:9::");
    lab.passes("then End here", &six(sent(&own, 5), 64), &six(arrived(&own, 5, 58, 0), 62));
    // The same kind of proxy again, with another function; then once more the first.
    own[1] = address("fc00:0:1:2::");
    lab.passes("two functions", &six(sent(&own, 6), 64), &six(arrived(&own, 6, 58, 0), 60));
    own[1] = address("fc00:0:1:1::");
    lab.passes("the same one twice", &six(sent(&own, 7), 64), &six(arrived(&own, 7, 58, 0), 60));
}

#[test]
#[ignore = "needs root"]
fn what_a_function_may_not_send() {
    let network = Network::new();
    let functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "own_traffic: steer");
    let evil = PacketSocket::open(&functions[0], "east");
    let frame = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 4, 2]), MacAddress([2, 0, 0, 0, 4, 1]));
    let packet = |to: &str| frame().ipv6(Ipv6Repr::new(address("2001:db8:77::1"), address(to))).udp(UdpRepr::new(1, 2));
    lab.refuses("to a SID", &evil, &packet("fc00:0:2:1::").payload(b"x").build(), "drop_from_function");
    let segments = path(1, 2);
    let srh =
        frame().ipv6(Ipv6Repr::new(address("2001:db8:77::1"), address("2001:db8:b::2"))).srh(SrhRepr::new(&segments));
    lab.refuses("with an SRH", &evil, &srh.udp(UdpRepr::new(1, 2)).build(), "drop_from_function");
    let four = || udp(frame(), 64, (CLIENT, 1), (SERVER, 2), b"own");
    lab.refuses("a wrong checksum", &evil, &four().with_bytes(24, &[0, 0]).build(), "drop_bad_checksum");
    lab.refuses("a length that lies", &evil, &four().with_bytes(16, &[0xff, 0xff]).build(), "drop_bad_length");
    lab.refuses("another version", &evil, &four().with_bytes(14, &[0x65]).build(), "drop_bad_version");
    let short = four().build();
    lab.refuses("half a header", &evil, &short[..30], "drop_truncated");
    // What it makes itself is steered as from outside.
    lab.right.drain();
    evil.send(&udp(frame(), 64, (CLIENT, 1), (Ipv4Addr::new(10, 9, 0, 1), 2), b"own").build());
    let found = lab.right.receive_where(PATIENCE, is_steered).unwrap_or_else(|| panic!("{}", lab.counters()));
    assert_eq!(found[38..54], address("fc00:0:2:aaaa::").octets());
    assert_eq!(found[22..38], address("fc00:0:1::1").octets());
    assert!(found.ends_with(b"own"));
    // References that it makes up: it never gets the header of a chain that its packets were not in.
    let (mine, others) = (path(1, 0x111), path(2, 0x222));
    lab.passes("a chain through it", &six(sent(&mine, 1), 64), &six(arrived(&mine, 1, 59, 1), 62));
    lab.passes("a chain through the other", &six(sent(&others, 2), 64), &six(arrived(&others, 2, 59, 1), 62));
    let known = references(&lab);
    assert_eq!(known.len(), 2, "one header of each chain: {known:x?}");
    let directory = tempfile::tempdir().unwrap();
    // The true ones, and what differs from them in one bit.
    let wrong =
        known.iter().flat_map(|(hash, index)| [(hash ^ 1 << 20, *index), (*hash, index ^ 8), (*hash, index ^ 0x100)]);
    let all: String =
        known.iter().copied().chain(wrong).map(|(hash, index)| format!("{{{hash:#x}, {index:#x}}},")).collect();
    let program = with_header(directory.path(), "forge.bpf.c", "references.h", &format!("#define REFERENCES {all}"));
    functions[0].sh("tc qdisc add dev east clsact");
    functions[0].sh(&format!("tc filter add dev east egress bpf da obj {} sec tc", program.display()));
    lab.right.drain();
    for _ in 0..64 {
        // Through the device's queue, so that the program sees it: a packet socket's frames pass it too.
        evil.send(&six(frame(), 64).build());
    }
    let mut own = 0;
    while let Some(found) = lab.right.receive_where(SILENCE, is_steered) {
        assert_eq!(found[38..54], mine[1].octets(), "the header of another proxy's chain");
        own += 1;
    }
    let forgotten = lab.counted("fe0", "drop_header_forgotten");
    assert_eq!((own, forgotten), (8, 56), "one reference in eight is of a chain through it\n{}", lab.counters());
}

/// What the function sends with tags of VLAN 0, which the kernel ignores, however many there are.
#[test]
#[ignore = "needs root"]
fn priority_tags_hide_nothing_from_the_tc_programs() {
    let network = Network::new();
    let functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "own_traffic: steer");
    let evil = PacketSocket::open(&functions[0], "east");
    let frame = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 4, 2]), MacAddress([2, 0, 0, 0, 4, 1]));
    let packet = |to: &str| frame().ipv6(Ipv6Repr::new(address("2001:db8:77::1"), address(to)));
    let to_sid = packet("fc00:0:2:1::").udp(UdpRepr::new(1, 2)).payload(b"x").build();
    let with_srh = packet("2001:db8:b::2").srh(SrhRepr::new(&path(1, 2))).udp(UdpRepr::new(1, 2)).build();
    let steered = udp(frame(), 64, (CLIENT, 1), (Ipv4Addr::new(10, 9, 0, 1), 2), b"own").build();
    let (customer, service) = (0x8100_u16, 0x88a8_u16);
    for tags in [
        &[(customer, 0_u16)][..],
        &[(service, 0)],
        &[(customer, 0), (customer, 0)],
        &[(customer, 0xe000), (service, 0)],
        &[(service, 0), (customer, 0)],
        &[(service, 0), (service, 0), (customer, 0), (customer, 0)],
    ] {
        let tagged = |frame: &[u8]| {
            let mut frame = frame.to_vec();
            frame.splice(12..12, tags.iter().flat_map(|(kind, tag)| [kind.to_be_bytes(), tag.to_be_bytes()].concat()));
            frame
        };
        lab.refuses(&format!("to a SID, {tags:x?}"), &evil, &tagged(&to_sid), "drop_from_function");
        lab.refuses(&format!("with an SRH, {tags:x?}"), &evil, &tagged(&with_srh), "drop_from_function");
        lab.right.drain();
        evil.send(&tagged(&steered));
        let found = lab.right.receive_where(PATIENCE, is_steered);
        let found = found.unwrap_or_else(|| panic!("{tags:x?}\n{}", lab.counters()));
        assert_eq!(found[38..54], address("fc00:0:2:aaaa::").octets(), "steered as if there were no tags");
        assert!(found.ends_with(b"own"));
    }
    let mut many = to_sid.clone();
    many.splice(12..12, [0x81, 0, 0, 0].repeat(40));
    lab.refuses("more tags than anybody needs", &evil, &many, "drop_recirculation");
}

/// References that the headers in the store answer to, as packets carry them: skb->hash and skb->tc_index.
fn references(lab: &Lab<'_>) -> Vec<(u32, u32)> {
    let id = |slot: u32| u64::from_le_bytes(entry(lab, "stash", slot)[..8].try_into().unwrap());
    // The first slots are taken first.
    let ids = (0..8).map(id).filter(|id| *id != 0);
    ids.map(|id| (id as u32, 0x5800 | (id >> 29) as u32 & 0xf8 | (id >> 53) as u32 & 0x700)).collect()
}

/// A map's value, as root may read it.
fn entry(lab: &Lab<'_>, map: &str, key: u32) -> Vec<u8> {
    let sets = std::fs::read_dir(lab.agent.pins()).unwrap().map(|set| set.unwrap().path());
    let set = sets.filter(|path| path.join(map).exists()).max().expect("maps");
    let key: Vec<String> = key.to_ne_bytes().iter().map(ToString::to_string).collect();
    let found = sh(&format!("bpftool -j map lookup pinned {} key {}", set.join(map).display(), key.join(" ")));
    let octets = found[found.find("\"value\":[").expect("a value") + 9..].split(']').next().unwrap();
    let octets = octets.split('"').filter_map(|word| word.strip_prefix("0x"));
    octets.map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

/// A program of `bpf/test/` with what the test tells it.
fn with_header(directory: &std::path::Path, program: &str, header: &str, text: &str) -> std::path::PathBuf {
    let source = directory.join(program);
    std::fs::copy(object::repository().join("bpf/test").join(program), &source).unwrap();
    std::fs::write(directory.join(header), text).unwrap();
    object::compile(&source, directory)
}

fn ifindex(netns: &Netns, name: &str) -> String {
    let link = netns.sh(&format!("ip -o link show dev {name}"));
    link.split(':').next().unwrap().to_owned()
}

/// The word that metadata begin with. abi: behind six others of 32 bits.
fn secret(lab: &Lab<'_>) -> u64 {
    u64::from_le_bytes(entry(lab, "control", 0)[24..32].try_into().unwrap())
}

/// A neighbour in a namespace of the same machine sends packets with metadata in front, as the node's XDP program writes them
/// for its TC program: those of a packet on its way to a function, and those of a message of the data plane's own. They are taken
/// for the node's own only by who knows the node's secret.
#[test]
#[ignore = "needs root"]
fn metadata_of_a_neighbour_are_nobodys() {
    let network = Network::new();
    let _functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "");
    let feeder = Netns::new();
    veth(
        End { netns: &feeder, name: "out", mac: "02:00:00:00:99:01" },
        End { netns: &network.left, name: "in", mac: "02:00:00:00:99:02" },
        1500,
    );
    network.left.sh("tc qdisc add dev in clsact");
    let socket = PacketSocket::open(&feeder, "out");
    let (oif, onwards) = (ifindex(&network.node, "east"), ifindex(&network.left, "n"));
    let frame = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
    let frame = udp(frame, 64, (CLIENT, 1), (Ipv4Addr::new(10, 66, 0, 1), 2), b"forged").build();
    let forged = |found: &[u8]| found.ends_with(b"forged");
    let comes_out = |kind: &str, metadata: &str, magic: u64, limit| {
        let directory = tempfile::tempdir().unwrap();
        let metadata = format!("#define METADATA {{.magic = {magic:#x}ULL, {metadata}, .oif = {oif}}}");
        let text = format!("#define KIND {kind}\n{metadata}\n#define ONWARDS {onwards}\n");
        let program = with_header(directory.path(), "metadata.bpf.c", "metadata.h", &text);
        network.left.sh(&format!("ip link set dev in xdp obj {} sec xdp", program.display()));
        let replace = "tc filter replace dev in ingress pref 1 handle 1 bpf da obj";
        network.left.sh(&format!("{replace} {} sec tc", program.display()));
        lab.right.drain();
        socket.send(&frame);
        let found = lab.right.receive_where(limit, forged).is_some();
        network.left.sh("ip link set dev in xdp off");
        found
    };
    let next_hop = address("2001:db8:2::2").octets().map(|octet| octet.to_string()).join(",");
    let by_neighbour = format!(".family = 10, .next_hop = {{{next_hop}}}");
    for (kind, metadata, magic) in [
        ("segue_function_metadata", ".stash = 0x10000", secret(&lab)),
        ("segue_answer_metadata", ".family = 0", !secret(&lab)),
        ("segue_answer_metadata", &*by_neighbour, !secret(&lab)),
    ] {
        for guess in [0, 1, u64::MAX, magic ^ 1, magic ^ 1 << 32, magic >> 32, magic << 32, u64::from(magic as u32)] {
            let before = lab.counted("west", "passed_not_for_segue");
            assert!(!comes_out(kind, metadata, guess, SILENCE), "{kind} {metadata} {guess:#x}");
            assert!(lab.counted("west", "passed_not_for_segue") > before, "it has come in\n{}", lab.counters());
        }
        let survive = "metadata do survive the way to the node, so that the guesses were tried";
        assert!(comes_out(kind, metadata, magic, PATIENCE), "{kind} {metadata}: {survive}");
    }
}

/// Metadata stay in the buffer when a packet leaves, and whoever it comes to on the same machine can read them: the secret is not
/// in them any more.
#[test]
#[ignore = "needs root"]
fn metadata_tell_nobody_the_secret() {
    let network = Network::new();
    let functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "");
    let listener = Netns::new();
    let path = path(1, 1);
    let exceeded = |hops| Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(address("2001:db8:1::2"), path[0]) };
    let expired = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
    let expired = six(expired.ipv6(exceeded(1)).srh(SrhRepr::new(&path)), 64);
    for (number, case, netns, interface, sent) in [
        (1, "an ICMP error", &network.left, "n", expired),
        (2, "a packet in a function", &functions[0], "west", six(self::sent(&path, 1), 64)),
    ] {
        let (out, to) = (format!("out{number}"), format!("to{number}"));
        veth(
            End { netns, name: &out, mac: &format!("02:00:00:00:9{number}:01") },
            End { netns: &listener, name: &to, mac: &format!("02:00:00:00:9{number}:02") },
            1500,
        );
        let directory = tempfile::tempdir().unwrap();
        let text = format!("#define METADATA {{.magic = 1}}\n#define ONWARDS {}\n", ifindex(netns, &out));
        let program = with_header(directory.path(), "metadata.bpf.c", "metadata.h", &text);
        netns.script(&format!(
            "tc qdisc add dev {interface} clsact
             tc filter add dev {interface} ingress bpf da obj {} sec classifier",
            program.display()
        ));
        let told = PacketSocket::open(&listener, &to);
        lab.left.send(&sent.build());
        let packet = |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame.ends_with(b"six");
        let found = told.receive_where(PATIENCE, packet).unwrap_or_else(|| panic!("{case}\n{}", lab.counters()));
        let found = u64::from_le_bytes(found[..8].try_into().unwrap());
        let strangers = [secret(&lab), !secret(&lab)];
        assert!(!strangers.contains(&found), "{case}: {found:#x}");
        println!("{case}: {found:#x}");
    }
}

/// The function is a router: it says so when an inner packet has no hop left, and what it says is its own traffic.
#[test]
#[ignore = "needs root"]
fn the_time_exceeded_of_a_function_goes_where_its_own_traffic_goes() {
    let network = Network::new();
    let function = function(&network, 0);
    let other = self::function(&network, 1);
    function.script(
        "ip address add 2001:db8:77::2/64 dev east nodad
         sysctl -qw net.ipv4.icmp_ratelimit=0
         sysctl -qw net.ipv6.icmp.ratelimit=0",
    );
    network.node.script(
        "ip route add 10.9.0.0/16 via 192.0.2.1 dev west onlink
         ip neigh replace 192.0.2.1 lladdr 02:00:00:00:01:02 nud permanent dev west
         ip -6 route add 2001:db8:a::/48 via 2001:db8:1::2",
    );
    let lab = Lab::new(&network, "own_traffic: route");
    let path = path(1, 1);
    // The steering rule of STATE is for this source.
    let source = Ipv4Addr::new(10, 9, 0, 2);
    let four = |ttl| udp(sent(&path, 1), ttl, (source, 1), (SERVER, 2), b"four").build();
    let inner = udp(PacketBuilder::new(), 1, (source, 1), (SERVER, 2), b"four").build();
    let exceeded4 = |at: usize| {
        move |frame: &[u8]| frame.len() > at + 28 && frame[at + 9] == 1 && frame[at + 20] == 11 && frame[at] == 0x45
    };
    lab.left.drain();
    lab.left.send(&four(1));
    let found = lab.left.receive_where(PATIENCE, exceeded4(14)).unwrap_or_else(|| panic!("{}", lab.counters()));
    assert_eq!(found[30..34], source.octets(), "routed to the inner source, without a steering header");
    assert_eq!(found[42..42 + inner.len()], inner, "about the packet as it came");
    lab.left.send(&six(sent(&path, 1), 1).build());
    let exceeded6 =
        |frame: &[u8]| frame.len() > 62 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == 3;
    let found = lab.left.receive_where(PATIENCE, exceeded6).unwrap_or_else(|| panic!("{}", lab.counters()));
    assert_eq!(found[38..54], address("2001:db8:a::2").octets());

    lab.agent.apply(&STATE.replace("OWN", "own_traffic: steer"));
    lab.right.drain();
    lab.left.send(&four(1));
    let found = lab.right.receive_where(PATIENCE, is_steered).unwrap_or_else(|| panic!("{}", lab.counters()));
    assert_eq!(found[38..54], address("fc00:0:2:aaaa::").octets(), "by the rule for its destination");
    assert!(exceeded4(found.len() - 20 - 8 - inner.len())(&found), "{found:?}");

    lab.agent.apply(&STATE.replace("OWN", "own_traffic: drop"));
    let before = lab.counted("fe0", "drop_from_function");
    lab.right.drain();
    lab.left.drain();
    lab.left.send(&four(1));
    assert_eq!(lab.left.receive_where(SILENCE, exceeded4(14)), None);
    assert_eq!(lab.right.receive_where(SILENCE, is_steered), None);
    assert_eq!(lab.counted("fe0", "drop_from_function"), before + 1, "{}", lab.counters());

    // Hop limit 2: the function takes one, and the node is the one that refuses.
    // It does so without a word (docs/using/proxies.md).
    let before = lab.counted("fe0", "drop_hop_limit_exceeded");
    lab.left.send(&four(2));
    assert_eq!(lab.right.receive_where(SILENCE, is_steered), None);
    assert_eq!(lab.counted("fe0", "drop_hop_limit_exceeded"), before + 1, "{}", lab.counters());
    drop(other);
}

/// A function that makes IPv6 packets of IPv4 ones. The kernel's helper for that forgets what the header is found by, so that
/// the packet is dropped, unless the function keeps it.
#[test]
#[ignore = "needs root"]
fn translation_to_the_other_family_loses_the_header_or_keeps_the_right_one() {
    let network = Network::new();
    let functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "");
    let directory = tempfile::tempdir().unwrap();
    let program = object::compile(&object::repository().join("bpf/test/translate.bpf.c"), directory.path());
    functions[0].sh("tc qdisc add dev east clsact");
    let translate = |section: &str| {
        let replace = "tc filter replace dev east egress pref 1 handle 1 bpf da obj";
        functions[0].sh(&format!("{replace} {} sec {section}", program.display()));
    };
    let four = |chain| udp(sent(&path(1, chain), chain), 64, (CLIENT, 4000), (SERVER, 53), b"translated");
    lab.right.drain();
    translate("tc");
    let before = lab.counted("fe0", "drop_header_forgotten");
    for chain in 1..=20 {
        lab.left.send(&four(chain).build());
    }
    assert_eq!(lab.right.receive_where(SILENCE, is_steered), None);
    assert_eq!(lab.counted("fe0", "drop_header_forgotten"), before + 20, "{}", lab.counters());
    // What was IPv6 already is not translated.
    lab.passes("IPv6", &six(sent(&path(1, 1), 1), 64), &six(arrived(&path(1, 1), 1, 59, 1), 62));

    // Section of the program that puts the hash back.
    translate("classifier");
    for chain in 1..=20 {
        let mapped = |address: Ipv4Addr| {
            let [a, b, c, d] = address.octets();
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        };
        let repr = Ipv6Repr { hop_limit: 62, ..Ipv6Repr::new(mapped(CLIENT), mapped(SERVER)) };
        let expected = arrived(&path(1, chain), chain, 59, 1).inner_ipv6(repr).udp(UdpRepr::new(4000, 53));
        let expected = expected.payload(b"translated");
        // The test's translator leaves the transport checksum alone.
        let at = 14 + 40 + 56 + 40 + 6;
        let was = four(chain).build();
        let checksum = &was[14 + 40 + 56 + 20 + 6..][..2];
        lab.passes("translated", &four(chain), &expected.with_bytes(at, checksum));
    }
}

#[test]
#[ignore = "needs root"]
fn no_wrong_header_on_two_cores_with_translation_while_the_agent_dies() {
    const CHAINS: u16 = 2000;
    const PACKETS: u64 = 200_000;
    const WINDOW: u64 = 256;
    let network = Network::new();
    let functions = [function(&network, 0), function(&network, 1)];
    functions[0].sh("nft add table ip t");
    functions[0].sh("nft add chain ip t pre { type nat hook prerouting priority -100 ; }");
    functions[0].sh("nft add chain ip t post { type nat hook postrouting priority 100 ; }");
    functions[0].sh(&format!("nft add rule ip t pre ip daddr {PUBLISHED} dnat to {SERVER}"));
    functions[0].sh(&format!("nft add rule ip t post ip saddr 10.1.0.0/16 snat to {OUTSIDE}"));
    let mut lab = Lab::new(&network, "");
    // All chains carry the same inner flow.
    let frames: Vec<(Vec<u8>, Vec<u8>)> = (0..CHAINS)
        .map(|chain| {
            let path = path(1, chain);
            let number = chain.to_be_bytes();
            let came = udp(sent(&path, chain), 64, (CLIENT, 4000), (PUBLISHED, 53), &number);
            let left = udp(arrived(&path, chain, 59, 1), 62, (OUTSIDE, 4000), (SERVER, 53), &number);
            (came.build(), left.build())
        })
        .collect();
    // One packet first: two processors that begin the same connection at once make netfilter drop one of the two.
    lab.left.send(&frames[0].0);
    assert!(lab.right.receive_where(PATIENCE, is_steered).is_some(), "{}", lab.counters());
    let (out, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let sockets = [PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.left, "n")];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (core, socket) in sockets.iter().enumerate() {
            let (out, back, frames) = (&out, &back, &frames);
            scope.spawn(move || {
                let mut cpus = nix::sched::CpuSet::new();
                cpus.set(core).unwrap();
                nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
                let mut chain = core * 77;
                loop {
                    let number = out.fetch_add(1, Relaxed);
                    if number >= PACKETS {
                        return;
                    }
                    while number > back.load(Relaxed) + WINDOW {
                        assert!(begun.elapsed() < Duration::from_secs(120), "it does not get on");
                        std::thread::yield_now();
                    }
                    socket.send(&frames[chain % frames.len()].0);
                    chain += 7;
                }
            });
        }
        let killer = scope.spawn(|| {
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(700));
                lab.agent.kill();
                std::thread::sleep(Duration::from_millis(300));
                lab.agent.restart(&[]);
            }
        });
        let mut received = 0;
        while received < PACKETS {
            let found = lab.right.receive_where(PATIENCE, is_steered);
            let Some(found) = found else { panic!("{received} of {PACKETS} came") };
            let chain = u16::from_be_bytes([found[found.len() - 2], found[found.len() - 1]]);
            assert!(found == frames[usize::from(chain)].1, "chain {chain} came as {found:?}");
            received += 1;
            back.store(received, Relaxed);
        }
        killer.join().unwrap();
    });
    println!("{PACKETS} packets of {CHAINS} chains in {:?}", begun.elapsed());
    assert_eq!(lab.counted("fe0", "forwarded"), PACKETS + 1, "{}", lab.counters());
}

/// The kernel as headend and egress, real TCP: segments are merged on the way in (GRO), and each comes out with its header.
#[test]
#[ignore = "needs root"]
fn tcp_in_bulk_through_the_function() {
    const OCTETS: usize = 16 << 20;
    let network = Network::new();
    let _functions = [function(&network, 0), function(&network, 1)];
    let lab = Lab::new(&network, "");
    let (client, server) = (address("2001:db8:a::2"), address("2001:db8:b::2"));
    network.left.script(&format!(
        "ip address add {client}/128 dev lo nodad
         ip neigh replace 2001:db8:1::1 lladdr 02:00:00:00:01:01 nud permanent dev n
         ip -6 route add fc00::/32 via 2001:db8:1::1
         ip sr tunsrc set 2001:db8:1::2
         ip -6 route add {server}/128 encap seg6 mode encap segs fc00:0:1:1::,fc00:0:2:6:: via 2001:db8:1::1 mtu 1400 src {client}"
    ));
    network.right.script(&format!(
        "ip address add {server}/128 dev lo nodad
         ip neigh replace 2001:db8:2::1 lladdr 02:00:00:00:02:01 nud permanent dev n
         ip -6 route add fc00:0:2:6::/64 encap seg6local action End.DT6 table 255 dev n
         ip -6 route add default via 2001:db8:2::1"
    ));
    for end in [&network.left, &network.right] {
        for name in ["all", "n"] {
            end.sysctl(&format!("ipv6.conf.{name}.seg6_enabled=1"));
        }
    }
    network.node.sh(&format!("ip -6 route add {client}/128 via 2001:db8:1::2"));
    let listener = network.right.enter(|| TcpListener::bind((server, 5000)).unwrap());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut octets, mut buffer) = (0, vec![0; 1 << 16]);
            loop {
                let read = stream
                    .read(&mut buffer)
                    .unwrap_or_else(|error| panic!("{error} after {octets} octets\n{}", lab.counters()));
                for (at, octet) in buffer[..read].iter().enumerate() {
                    assert_eq!(usize::from(*octet), (octets + at) % 251, "octet {}", octets + at);
                }
                octets += read;
                if read == 0 {
                    return octets;
                }
            }
        });
        network.left.enter(|| {
            let mut stream = TcpStream::connect_timeout(&(server, 5000).into(), PATIENCE)
                .unwrap_or_else(|error| panic!("{error}\n{}", lab.counters()));
            let text: Vec<u8> = (0..251 * 256).map(|octet| (octet % 251) as u8).collect();
            let mut octets = 0;
            while octets < OCTETS {
                stream.write_all(&text).unwrap();
                octets += text.len();
            }
        });
        assert!(receiver.join().unwrap() >= OCTETS);
    });
    // Segments are counted as packets, and the octets of the buffers that they lie in: a merged one has its headers once.
    const ENVELOPE: u64 = 40 + 8 + 2 * 16;
    const HEADERS: u64 = 40 + 20 + 12;
    let (entered, left) = (lab.counted("west", "to_function"), lab.counted("fe0", "forwarded"));
    let (octets_in, octets_out) = (lab.octets("west", "to_function"), lab.octets("fe0", "forwarded"));
    println!(
        "{OCTETS} octets in {:?}; {entered} packets in, {left} out, {octets_in} and {octets_out} octets",
        begun.elapsed()
    );
    assert!(left <= entered, "{left} of {entered} segments came out");
    let saved = (octets_in - entered * ENVELOPE).saturating_sub(octets_out);
    assert!(
        saved > left / 2 * HEADERS,
        "hardly any was merged: the test does not see what it is for; {saved} octets of headers less"
    );
    assert_eq!(lab.counted("fe0", "drop_too_big") + lab.counted("fe0", "drop_adjust"), 0, "{}", lab.counters());
    let _ = (lab.network, sh("true"));
}
