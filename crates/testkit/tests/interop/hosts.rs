//! Segue and the kernel's own seg6 as each other's neighbours: hosts at both ends talk through them, both ways; and an HMAC that the
//! kernel verifies. Single packets, octet for octet, are compared in `compare.rs`.

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use segue_testkit::netns::{End, Netns};
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use segue_wire::srh::HmacVariant;
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

const WAIT: Duration = Duration::from_secs(2);

/// Five namespaces in a row: client, first, second, third node, server. Links have 2001:db8:LINK::/64 and 10.0.LINK.0/24, the left
/// end 1 and the right end 2. Node N has the locator fc00:N::/32 and the address fd00::N.
struct Row {
    namespaces: Vec<Netns>,
}

const SERVER: &str = "2001:db8:3::2";
const SERVER4: &str = "10.0.3.2";

impl Row {
    fn new() -> Self {
        let namespaces: Vec<Netns> = (0..5).map(|_| Netns::new()).collect();
        for link in 0..4_u8 {
            let (left, right) = (&namespaces[usize::from(link)], &namespaces[usize::from(link) + 1]);
            veth(
                End { netns: left, name: "right", mac: &format!("02:00:00:00:{link:02x}:01") },
                End { netns: right, name: "left", mac: &format!("02:00:00:00:{link:02x}:02") },
                2000,
            );
            for (netns, interface, host) in [(left, "right", 1), (right, "left", 2)] {
                netns.sh(&format!("ip address add 2001:db8:{link}::{host}/64 dev {interface} nodad"));
                netns.sh(&format!("ip address add 10.0.{link}.{host}/24 dev {interface}"));
            }
        }
        let row = Self { namespaces };
        row.routes();
        row
    }

    fn routes(&self) {
        for (position, netns) in self.namespaces.iter().enumerate() {
            for link in 0..4 {
                // A link that is not one's own lies to the left or to the right.
                let route = |direction: &str, via6: String, via4: String| {
                    netns.sh(&format!("ip -6 route add 2001:db8:{link}::/64 via {via6} dev {direction}"));
                    netns.sh(&format!("ip -4 route add 10.0.{link}.0/24 via {via4} dev {direction}"));
                };
                if link + 1 < position {
                    let last = position - 1;
                    route("left", format!("2001:db8:{last}::1"), format!("10.0.{last}.1"));
                } else if link > position {
                    route("right", format!("2001:db8:{position}::2"), format!("10.0.{position}.2"));
                }
            }
            for node in 1..4 {
                for prefix in [format!("fc00:{node}::/32"), format!("fd00::{node}/128")] {
                    if node < position {
                        netns.sh(&format!("ip -6 route add {prefix} via 2001:db8:{}::1 dev left", position - 1));
                    } else if node > position {
                        netns.sh(&format!("ip -6 route add {prefix} via 2001:db8:{position}::2 dev right"));
                    }
                }
            }
            if (1..4).contains(&position) {
                netns.sh(&format!("ip -6 address add fd00::{position}/128 dev lo"));
                netns.sh(&format!("ip sr tunsrc set fd00::{position}"));
            }
        }
    }

    fn client(&self) -> &Netns {
        &self.namespaces[0]
    }

    fn node(&self, number: usize) -> &Netns {
        &self.namespaces[number]
    }

    /// Echo requests from client to server, all of which must be answered.
    fn traffic(&self, server: &str) {
        let family = if server.contains(':') { "-6" } else { "-4" };
        // The first packets resolve neighbours.
        let ping = |count: &str| {
            let mut command = Command::new("ping");
            self.client().output(command.args([family, "-n", "-c", count, "-i", "0.02", "-W", "2", server]))
        };
        ping("3");
        let output = ping("50");
        let text = segue_testkit::command::printed(&output);
        assert!(text.contains("50 received"), "{text}");
    }
}

/// Desired state of a Segue node in the row.
fn segue(position: usize, roles: [&str; 2], rest: &str) -> String {
    format!(
        "node: n{position}\nsource_address: 'fd00::{position}'\nlocator: 'fc00:{position}::/32'\n\
         domain: {{sid_blocks: ['fc00::/16']}}\n\
         ports: [{{name: left, role: {}}}, {{name: right, role: {}}}]\n{rest}",
        roles[0], roles[1]
    )
}

fn packets(node: &Node<'_>, counter: &str) -> u64 {
    node.counters().get(counter).map_or(0, |(packets, _)| *packets)
}

#[test]
#[ignore = "needs root"]
fn kernel_headend_and_segue_endpoints() {
    let row = Row::new();
    let second = Node::load(
        row.node(2),
        &segue(
            2,
            ["core", "core"],
            "sids: [{sid: 'fc00:2:1::/48', behaviour: End}, {sid: 'fc00:2:2::/48', behaviour: End, flavours: [PSP]}]",
        ),
    );
    let third = Node::load(
        row.node(3),
        &segue(
            3,
            ["core", "access"],
            "sids:\n  - {sid: 'fc00:3:46::/48', behaviour: End.DT46}\n  - {sid: 'fc00:3:6::/48', behaviour: End.DX6, next_hop: '2001:db8:3::2'}\n  \
             - {sid: 'fc00:3:4::/48', behaviour: End.DX4, next_hop: 10.0.3.2}\n  - {sid: 'fc00:3:1::/48', behaviour: End, flavours: [PSP, USD]}",
        ),
    );
    for (mode, last, counter) in [
        ("encap", "fc00:3:46::", "sid fc00:3:46::/48"),
        ("encap.red", "fc00:3:46::", "sid fc00:3:46::/48"),
        ("encap", "fc00:3:6::", "sid fc00:3:6::/48"),
        ("encap.red", "fc00:3:1::", "sid fc00:3:1::/48"),
        ("inline", "fc00:3:1::", "sid fc00:3:1::/48"),
    ] {
        row.node(1).sh(&format!(
            "ip -6 route replace {SERVER}/128 encap seg6 mode {mode} segs fc00:2:1::,{last} via 2001:db8:1::2 dev right"
        ));
        let before = (packets(&second, "sid fc00:2:1::/48"), packets(&third, counter));
        row.traffic(SERVER);
        let after = (packets(&second, "sid fc00:2:1::/48"), packets(&third, counter));
        assert!(after.0 >= before.0 + 50, "{mode} {last}: End took {} packets", after.0 - before.0);
        assert!(after.1 >= before.1 + 50, "{mode} {last}: {counter} took {} packets", after.1 - before.1);
    }
    for (last, counter) in [("fc00:3:46::", "sid fc00:3:46::/48"), ("fc00:3:4::", "sid fc00:3:4::/48")] {
        row.node(1).sh(&format!(
            "ip -4 route replace {SERVER4}/32 encap seg6 mode encap segs fc00:2:2::,{last} via inet6 2001:db8:1::2 dev right"
        ));
        let before = packets(&third, counter);
        row.traffic(SERVER4);
        assert!(packets(&third, counter) >= before + 50, "IPv4, {last}");
    }
}

#[test]
#[ignore = "needs root"]
fn segue_headend_and_kernel_endpoints() {
    for mode in ["H.Encaps", "H.Encaps.Red"] {
        for (last, action, to) in [
            ("fc00:3:6::", "End.DX6 nh6 2001:db8:3::2", SERVER),
            ("fc00:3:60::", "End.DT6 table main", SERVER),
            ("fc00:3:4::", "End.DX4 nh4 10.0.3.2", SERVER4),
        ] {
            let row = Row::new();
            row.node(2).sh("ip -6 route add fc00:2:1::/48 encap seg6local action End dev left");
            row.node(3).sh(&format!("ip -6 route add {last}/48 encap seg6local action {action} dev left"));
            let policy = format!(
                "policies: [{{name: p, mode: {mode}, segment_lists: [{{segments: ['fc00:2:1::', '{last}']}}]}}]\n\
                 steering: [{{name: r, destination: '{to}', policy: p}}]"
            );
            let policy =
                policy.replace(&format!("'{to}'"), &format!("'{to}/{}'", if to.contains(':') { 128 } else { 32 }));
            let node = Node::load(row.node(1), &segue(1, ["access", "core"], &policy));
            row.traffic(to);
            assert!(packets(&node, "list p/0") >= 50, "{mode} {action}: {:?}", node.counters());
        }
    }
}

/// One router between two packet sockets.
struct Router {
    node: Netns,
    /// Holds the far ends.
    _far: Netns,
    left: PacketSocket,
    right: PacketSocket,
}

const NEAR_LEFT: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
const FAR_LEFT: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

impl Router {
    fn new() -> Self {
        let (node, far) = (Netns::new(), Netns::new());
        far.script("sysctl -q net.ipv6.conf.all.disable_ipv6=1\nsysctl -q net.ipv6.conf.default.disable_ipv6=1");
        for (name, number) in [("left", 0x10), ("right", 0x20)] {
            veth(
                End { netns: &node, name, mac: &format!("02:00:00:00:00:{number:02x}") },
                End { netns: &far, name: &format!("far-{name}"), mac: &format!("02:00:00:00:00:{:02x}", number + 1) },
                3000,
            );
        }
        node.script(
            "ip -6 address add 2001:db8:1::1/64 dev left nodad
             ip -6 address add 2001:db8:2::1/64 dev right nodad
             ip neigh add 2001:db8:2::2 lladdr 02:00:00:00:00:21 nud permanent dev right
             ip -6 route add fc00:2::/32 via 2001:db8:2::2 dev right",
        );
        let (left, right) = (PacketSocket::open(&far, "far-left"), PacketSocket::open(&far, "far-right"));
        Self { node, _far: far, left, right }
    }

    /// Sends a frame in from the left; what comes out to the right.
    fn pass(&self, frame: &[u8]) -> Option<Vec<u8>> {
        self.right.drain();
        self.left.send(frame);
        self.right.receive_where(WAIT, |frame| frame.ends_with(MARK))
    }
}

/// The end of every packet here, to tell them from the kernel's own.
const MARK: &[u8] = b"interoperation";

fn sid(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, 1, function, 0, 0, 0, 0, 0)
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

fn arriving(destination: Ipv6Addr) -> PacketBuilder {
    let repr = Ipv6Repr { traffic_class: 0x44, flow_label: 0x1_2345, ..Ipv6Repr::new(address("fd00::9"), destination) };
    PacketBuilder::ethernet(FAR_LEFT, NEAR_LEFT).ipv6(repr)
}

fn six(packet: PacketBuilder) -> PacketBuilder {
    let repr = Ipv6Repr { flow_label: 0x777, ..Ipv6Repr::new(address("2001:db8:1::2"), address("2001:db8:99::9")) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(MARK)
}

#[test]
#[ignore = "needs root"]
fn an_hmac_that_the_kernel_verifies_lets_a_packet_in() {
    let router = Router::new();
    let key = b"an interoperation key";
    router.node.enter(|| {
        use std::io::Write;
        let mut ip = Command::new("ip")
            .args(["sr", "hmac", "set", "7", "sha256"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("ip starts");
        ip.stdin.take().expect("stdin").write_all(&[key.as_slice(), b"\n"].concat()).expect("the key");
        assert!(ip.wait().expect("ip ends").success(), "ip sr hmac set");
    });
    router.node.sh("ip -6 route add fc00:1:1::/48 encap seg6local action End dev left");
    for interface in ["all", "left"] {
        router.node.sysctl(&format!("ipv6.conf.{interface}.seg6_require_hmac=1"));
    }
    let yaml = segue(1, ["access, accept_hmac: true", "core"], "sids: [{sid: 'fc00:1:1::/48', behaviour: End}]");
    let node = Node::load(&router.node, &yaml);
    let source = address("fd00::9");
    let path = [sid(1), address("fc00:2:1::")];
    let frame = |srh: SrhRepr| six(arriving(sid(1)).srh(srh)).build();
    let valid = SrhRepr::new(&path).with_hmac(HmacVariant::Linux, source, 7, key);
    let passed = router.pass(&frame(valid.clone())).expect("a valid HMAC lets the packet in");
    assert_eq!(passed[14 + 24..14 + 40], path[1].octets(), "the kernel did what End does");
    for (case, srh) in [
        ("a wrong digest", SrhRepr::new(&path).with_hmac(HmacVariant::Linux, source, 7, b"another key")),
        ("an unknown key", SrhRepr::new(&path).with_hmac(HmacVariant::Linux, source, 8, key)),
        ("no HMAC", SrhRepr::new(&path)),
        ("the flag without the TLV", SrhRepr::new(&path).with_flags(8)),
        (
            "a digest by the RFC's text, which Linux does not compute",
            SrhRepr::new(&path).with_hmac(HmacVariant::Rfc8754, source, 7, key),
        ),
    ] {
        router.right.drain();
        router.left.send(&frame(srh));
        let out = router.right.receive_where(Duration::from_millis(300), |frame| frame.ends_with(MARK));
        assert_eq!(out, None, "{case}");
    }
    assert_eq!(packets(&node, "left passed_hmac"), 3, "{:?}", node.counters());
    assert_eq!(packets(&node, "left drop_sr_from_outside"), 3, "{:?}", node.counters());
}
