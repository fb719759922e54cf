//! FRR advertises SIDs over BGP, because every SID is a route of the node that hosts it; another FRR learns them and Segue steers
//! traffic to them. docs/using/routing-protocols.md has the same configuration.
//!
//! ```text
//!                      nfv4 (AS 65004)
//!                        │
//! client ── head ── transit ── tail ── server      client and server are packet sockets
//!          (65001)   (65002)  (65003)
//!                        │
//!                      nfv5 (AS 65005)
//! ```

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use crate::common::agent::Agent;
use segue_testkit::frr::Frr;
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wait::wait_for;
use segue_testkit::wiring::veth;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

/// BGP sessions come up within a second or two, unless the machine is very busy.
const CONVERGES_WITHIN: Duration = Duration::from_secs(60);
const ARRIVES_WITHIN: Duration = Duration::from_millis(300);

const HEAD: u8 = 1;
const TRANSIT: u8 = 2;
const TAIL: u8 = 3;

/// Node N has the address fd00::N, the locator fc00:0:N::/48 and the AS 65000 + N. Its link to the transit node is called `core` at
/// its own end and `nN` at the other; the addresses there are fd00:0:cN::2 and fd00:0:cN::1.
struct Network {
    /// Client and server.
    outside: Netns,
    nodes: Vec<(u8, Netns)>,
}

impl Network {
    fn new(functions: &[u8]) -> Self {
        crate::common::need_root();
        let outside = Netns::new();
        outside.script("sysctl -q net.ipv6.conf.all.disable_ipv6=1\nsysctl -q net.ipv6.conf.default.disable_ipv6=1");
        let numbers = [HEAD, TRANSIT, TAIL].iter().chain(functions);
        let network = Self { outside, nodes: numbers.map(|number| (*number, Netns::new())).collect() };
        for (number, node) in &network.nodes {
            node.sh(&format!("ip -6 address add fd00::{number}/128 dev lo"));
            if *number == TRANSIT {
                continue;
            }
            let (transit, name) = (network.node(TRANSIT), format!("n{number}"));
            veth(
                End { netns: node, name: "core", mac: &format!("02:00:00:00:{number:02x}:02") },
                End { netns: transit, name: &name, mac: &format!("02:00:00:00:{number:02x}:01") },
                2000,
            );
            node.sh(&format!("ip -6 address add fd00:0:c{number}::2/64 dev core nodad"));
            transit.sh(&format!("ip -6 address add fd00:0:c{number}::1/64 dev {name} nodad"));
        }
        network.connect_outside();
        network
    }

    fn connect_outside(&self) {
        for (node, name, number) in [(HEAD, "client", 0xa0), (TAIL, "server", 0xb0)] {
            veth(
                End { netns: self.node(node), name: "access", mac: &format!("02:00:00:00:{number:02x}:01") },
                End { netns: &self.outside, name, mac: &format!("02:00:00:00:{number:02x}:02") },
                1500,
            );
        }
        self.node(TAIL).script(
            "ip -6 address add 2001:db8:ffff::1/64 dev access nodad
             ip -6 neigh add 2001:db8:ffff::2 lladdr 02:00:00:00:b0:02 nud permanent dev access
             ip -6 route add 2001:db8::/32 via 2001:db8:ffff::2",
        );
    }

    fn node(&self, number: u8) -> &Netns {
        &self.nodes.iter().find(|(own, _)| *own == number).unwrap_or_else(|| panic!("no node {number}")).1
    }

    /// FRR on every node: eBGP with the transit node, which has a session with each.
    fn start_frr(&self) -> Vec<(u8, Frr)> {
        let start = |number: u8| {
            let neighbours: Vec<(String, u8)> = match number {
                TRANSIT => {
                    let others = self.nodes.iter().map(|(other, _)| *other).filter(|other| *other != TRANSIT);
                    others.map(|other| (format!("fd00:0:c{other}::2"), other)).collect()
                }
                _ => vec![(format!("fd00:0:c{number}::1"), TRANSIT)],
            };
            (number, Frr::start(self.node(number), &bgpd_configuration(number, &neighbours)))
        };
        self.nodes.iter().map(|(number, _)| start(*number)).collect()
    }

    /// The route to exactly this prefix in a node's kernel that BGP put there: what leads on, as `ip` shows it.
    fn bgp_route(&self, number: u8, prefix: &str) -> Option<String> {
        let table = self.node(number).sh("ip -6 route show proto bgp");
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(prefix))?;
        Some(line.to_owned())
    }
}

fn bgpd_configuration(number: u8, neighbours: &[(String, u8)]) -> String {
    let mut text = format!(
        "router bgp {as_number}
 bgp router-id 192.0.2.{number}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
",
        as_number = 65_000 + u32::from(number)
    );
    for (address, other) in neighbours {
        text += &format!(
            " neighbor {address} remote-as {}\n neighbor {address} timers connect 1\n",
            65_000 + u32::from(*other)
        );
    }
    text +=
        &format!(" address-family ipv6 unicast\n  network fd00::{number}/128\n  redistribute kernel route-map SIDS\n");
    for (address, _) in neighbours {
        text += &format!("  neighbor {address} activate\n");
    }
    text += &format!(
        " exit-address-family
exit
!
ipv6 prefix-list SIDS seq 5 permit fc00:0:{number}::/48 ge 48
ipv6 prefix-list SIDS seq 10 permit fc00:0:a::/48 ge 48
!
route-map SIDS permit 10
 match ipv6 address prefix-list SIDS
exit
"
    );
    text
}

fn frr(daemons: &[(u8, Frr)], number: u8) -> &Frr {
    &daemons.iter().find(|(own, _)| *own == number).expect("one on each node").1
}

/// State of a Segue node, with what follows the ports.
fn state(number: u8, ports: &str, rest: &str) -> String {
    format!(
        "node: n{number}\nsource_address: 'fd00::{number}'\nlocator: 'fc00:0:{number}::/48'\n\
         domain: {{sid_blocks: ['fc00::/32']}}\nports: [{{name: core, role: core}}{ports}]\n{rest}"
    )
}

const ACCESS: &str = ", {name: access, role: access}";

/// The head steers 2001:db8:N::/48 into the list at position N of `lists`, counted from 1.
fn head(lists: &[&str]) -> String {
    let (mut policies, mut steering) = (String::new(), String::new());
    for (number, list) in (1..).zip(lists) {
        policies += &format!("  - {{name: p{number}, mode: H.Encaps, segment_lists: [{{segments: [{list}]}}]}}\n");
        steering += &format!("  - {{name: s{number}, destination: '2001:db8:{number}::/48', policy: p{number}}}\n");
    }
    state(HEAD, ACCESS, &format!("policies:\n{policies}steering:\n{steering}"))
}

fn tail() -> String {
    state(TAIL, ACCESS, "sids: [{sid: 'fc00:0:3:46::/64', behaviour: End.DT46}]")
}

/// Traffic from the client to the server.
struct Traffic {
    client: PacketSocket,
    server: PacketSocket,
}

impl Traffic {
    fn new(network: &Network) -> Self {
        Self {
            client: PacketSocket::open(&network.outside, "client"),
            server: PacketSocket::open(&network.outside, "server"),
        }
    }

    /// Sends one packet to 2001:db8:CHAIN::9, and returns what of it reaches the server, without its Ethernet header.
    fn send(&self, chain: u16, mark: u32) -> Option<Vec<u8>> {
        self.server.drain();
        self.client.send(&packet(
            PacketBuilder::ethernet([2, 0, 0, 0, 0xa0, 2], [2, 0, 0, 0, 0xa0, 1]),
            chain,
            mark,
            64,
        ));
        let found = self.server.receive_where(ARRIVES_WITHIN, |frame| frame.ends_with(&payload(mark)))?;
        Some(found[14..].to_vec())
    }

    /// Sends until one arrives, and asserts that it arrived as it was sent but for the hop limit; it was lowered by `hops`.
    fn reaches(&self, chain: u16, hops: u8) {
        let mut mark = 0;
        let found = wait_for(&format!("traffic of chain {chain}"), CONVERGES_WITHIN, || {
            mark += 1;
            self.send(chain, mark)
        });
        assert_eq!(found, packet(PacketBuilder::new(), chain, mark, 64 - hops), "chain {chain}");
    }

    /// Nothing of this chain arrives any more.
    fn reaches_no_more(&self, chain: u16) {
        for mark in 0..3 {
            assert_eq!(self.send(chain, mark), None, "chain {chain}");
        }
    }
}

fn payload(mark: u32) -> Vec<u8> {
    [b"bgp test".as_slice(), &mark.to_be_bytes()].concat()
}

fn packet(front: PacketBuilder, chain: u16, mark: u32, hop_limit: u8) -> Vec<u8> {
    let source = "2001:db8:a::1".parse().unwrap();
    let destination = Ipv6Addr::new(0x2001, 0xdb8, chain, 0, 0, 0, 0, 9);
    let header = Ipv6Repr { hop_limit, flow_label: 0x1_0000 + u32::from(chain), ..Ipv6Repr::new(source, destination) };
    front.ipv6(header).udp(UdpRepr::new(1000, 2000)).payload(&payload(mark)).build()
}

/// A namespace that forwards what comes in by `west` to `east`, both on `node`, where they are called `fun-w` and `fun-e`.
fn forwarding_function(node: &Netns) -> Netns {
    let function = Netns::new();
    for (name, far, number) in [("fun-w", "west", 0xf0_u8), ("fun-e", "east", 0xf1)] {
        veth(
            End { netns: node, name, mac: &format!("02:00:00:00:{number:02x}:01") },
            End { netns: &function, name: far, mac: &format!("02:00:00:00:{number:02x}:02") },
            1500,
        );
    }
    function.script(
        "ip -6 address add fd00:0:f1::2/64 dev east nodad
         ip -6 neigh add fd00:0:f1::1 lladdr 02:00:00:00:f1:01 nud permanent dev east
         ip -6 route add default via fd00:0:f1::1 dev east",
    );
    function
}

#[test]
#[ignore = "needs root"]
fn sids_of_end_and_a_proxy_are_learnt_used_and_withdrawn() {
    const END: &str = "fc00:0:4:1::/64";
    const PROXY: &str = "fc00:0:4:2::/64";
    let network = Network::new(&[4]);
    let _function = forwarding_function(network.node(4));
    let daemons = network.start_frr();
    let sids = |wanted: &[&str]| {
        let all = [
            (END, "  - {sid: 'fc00:0:4:1::/64', behaviour: End}\n"),
            (
                PROXY,
                "  - sid: 'fc00:0:4:2::/64'\n    behaviour: End.AS\n    next_hop_mac: '02:00:00:00:f0:02'\n    \
                 proxy: {inner: [IPv6], to_function: fun-w, from_function: fun-e, segments: ['fc00:0:3:46::']}\n",
            ),
        ];
        let chosen: String = all.iter().filter(|(sid, _)| wanted.contains(sid)).map(|(_, text)| *text).collect();
        state(4, ", {name: fun-w, role: service}, {name: fun-e, role: service}", &format!("sids:\n{chosen}"))
    };
    let _head = Agent::start(
        network.node(HEAD),
        &head(&["'fc00:0:4:1::', 'fc00:0:3:46::'", "'fc00:0:4:2::', 'fc00:0:3:46::'"]),
    );
    let tail = Agent::start(network.node(TAIL), &tail());
    let traffic = Traffic::new(&network);
    // Nobody has told the head of node 4's SIDs yet.
    wait_for("the egress SID at the head", CONVERGES_WITHIN, || network.bgp_route(HEAD, "fc00:0:3:46::/64"));
    traffic.reaches_no_more(1);
    assert_eq!(network.bgp_route(HEAD, END), None);

    let nfv = Agent::start(network.node(4), &sids(&[END, PROXY]));
    assert_eq!((nfv.kernel_route(END).as_str(), nfv.kernel_route(PROXY).as_str()), ("seg6local End", "blackhole"));
    for sid in [END, PROXY] {
        let route = wait_for(sid, CONVERGES_WITHIN, || network.bgp_route(HEAD, sid));
        assert!(route.contains("dev core"), "{route}");
        assert_eq!(frr(&daemons, HEAD).best_path(sid).as_deref(), Some("65002 65004"), "{sid}");
    }
    // The headend and the egress each lower the inner hop limit; so does the function.
    traffic.reaches(1, 2);
    traffic.reaches(2, 3 + 1);
    assert!(nfv.packets(END).0 > 0);
    let (to_function, back) = nfv.packets(PROXY);
    assert!(to_function > 0 && back > 0, "{to_function} to the function, {back} back");

    // What goes from the node goes from the others' tables, and nothing else does.
    nfv.apply(&sids(&[END]));
    wait_for("the withdrawal", CONVERGES_WITHIN, || network.bgp_route(HEAD, PROXY).is_none().then_some(()));
    assert_eq!(frr(&daemons, TRANSIT).best_path(PROXY), None);
    assert!(network.bgp_route(HEAD, END).is_some());
    traffic.reaches_no_more(2);
    traffic.reaches(1, 2);
    assert_eq!(tail.outcome("drop_hop_limit_exceeded"), 0);
}

/// State of a node whose netfilter namespaces serve these SIDs, each with 16 bits of argument behind /64.
fn netfilter_state(number: u8, sids: &[(&str, &Netns)]) -> String {
    let sids: String = sids
        .iter()
        .map(|(sid, namespace)| {
            format!(
                "  - {{sid: '{sid}', behaviour: End.AN.NF, argument_length: 16, outside_locator: true, netfilter: {{namespace: {}}}}}\n",
                namespace.name()
            )
        })
        .collect();
    state(number, "", &format!("sids:\n{sids}"))
}

/// A namespace whose forward hook counts packets with mark 0x1234, and drops those with mark 0x5678.
fn filter() -> Netns {
    let namespace = Netns::new();
    namespace.script(
        "nft add table inet filter
         nft add counter inet filter marked
         nft add chain inet filter forward { type filter hook forward priority 0 ; }
         nft add rule inet filter forward meta mark 0x1234 counter name marked
         nft add rule inet filter forward meta mark 0x5678 counter drop",
    );
    namespace
}

/// Packets that the forward hook saw with mark 0x1234.
fn marked(namespace: &Netns) -> u64 {
    let text = namespace.sh("nft list counter inet filter marked");
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
#[ignore = "needs root"]
fn an_end_an_nf_sid_with_an_argument_is_learnt_used_and_withdrawn() {
    const SID: &str = "fc00:0:4:f::/64";
    let network = Network::new(&[4]);
    let filter = filter();
    let daemons = network.start_frr();
    let lists = ["'fc00:0:4:f:1234::', 'fc00:0:3:46::'", "'fc00:0:4:f:5678::', 'fc00:0:3:46::'"];
    let _head = Agent::start(network.node(HEAD), &head(&lists));
    let _tail = Agent::start(network.node(TAIL), &tail());
    let traffic = Traffic::new(&network);
    wait_for("the egress SID at the head", CONVERGES_WITHIN, || network.bgp_route(HEAD, "fc00:0:3:46::/64"));
    assert_eq!(network.bgp_route(HEAD, SID), None);
    traffic.reaches_no_more(1);

    let nfv = Agent::start(network.node(4), &netfilter_state(4, &[(SID, &filter)]));
    let routes = network.node(4).sh("ip -6 route show proto 83");
    assert!(routes.lines().any(|line| line.contains(SID)), "{routes}");
    // LOC:FUNCT and nothing longer: all arguments are one route.
    let route = wait_for("the SID at the head", CONVERGES_WITHIN, || network.bgp_route(HEAD, SID));
    assert!(route.contains("dev core"), "{route}");
    assert_eq!(frr(&daemons, HEAD).best_path(SID).as_deref(), Some("65002 65004"));
    let used = network.node(HEAD).sh("ip -6 route get fc00:0:4:f:1234::");
    assert!(used.contains("dev core") && used.contains("proto bgp"), "{used}");

    // Netfilter saw the inner packet with its argument as the mark, and took no hop of it.
    traffic.reaches(1, 2);
    assert!(marked(&filter) > 0);
    traffic.reaches_no_more(2);
    let dropped = filter.sh("nft list chain inet filter forward");
    assert!(!dropped.contains("0x00005678 counter packets 0 "), "netfilter dropped the others: {dropped}");
    let (to_function, back) = nfv.packets(SID);
    assert!(to_function > back && back > 0, "{to_function} to the function, {back} back");

    nfv.apply(&netfilter_state(4, &[]));
    wait_for("the withdrawal", CONVERGES_WITHIN, || network.bgp_route(HEAD, SID).is_none().then_some(()));
    assert_eq!(frr(&daemons, TRANSIT).best_path(SID), None);
    traffic.reaches_no_more(1);
}

#[test]
#[ignore = "needs root"]
fn two_instances_of_one_sid_replace_each_other() {
    const SID: &str = "fc00:0:a:f::/64";
    let network = Network::new(&[4, 5]);
    let filters = [filter(), filter()];
    let daemons = network.start_frr();
    let _head = Agent::start(network.node(HEAD), &head(&["'fc00:0:a:f:1234::', 'fc00:0:3:46::'"]));
    let _tail = Agent::start(network.node(TAIL), &tail());
    let instances: Vec<Agent<'_>> = [4, 5]
        .iter()
        .zip(&filters)
        .map(|(number, filter)| Agent::start(network.node(*number), &netfilter_state(*number, &[(SID, filter)])))
        .collect();
    let traffic = Traffic::new(&network);
    let path = || frr(&daemons, HEAD).best_path(SID);
    traffic.reaches(1, 2);
    // BGP has chosen one; when its route goes, the other takes over, and back.
    let first = usize::from(path().as_deref() == Some("65002 65005"));
    for serving in [first, 1 - first, first] {
        let own = [4, 5][serving];
        wait_for("the path to the other instance", CONVERGES_WITHIN, || {
            (path()? == format!("65002 {}", 65_000 + u32::from(own))).then_some(())
        });
        let before = [marked(&filters[0]), marked(&filters[1])];
        traffic.reaches(1, 2);
        let after = [marked(&filters[0]), marked(&filters[1])];
        assert!(after[serving] > before[serving], "instance {serving}: {before:?}, then {after:?}");
        // The other one is there again before this one goes.
        let other = 1 - serving;
        instances[other].apply(&netfilter_state([4, 5][other], &[(SID, &filters[other])]));
        let neighbour = [4, 5][other];
        wait_for("the other's route at the transit node", CONVERGES_WITHIN, || {
            let table = frr(&daemons, TRANSIT).json("show bgp ipv6 unicast json");
            let paths = table["routes"].get(SID)?.as_array()?.clone();
            paths.iter().any(|path| path["path"] == format!("{}", 65_000 + neighbour)).then_some(())
        });
        instances[serving].apply(&netfilter_state(own, &[]));
    }
}

#[test]
#[ignore = "needs root"]
fn a_dead_instance_is_withdrawn_and_the_other_one_serves() {
    const SID: &str = "fc00:0:a:f::/64";
    let network = Network::new(&[4, 5]);
    let functions = [4, 5].map(|number| forwarding_function(network.node(number)));
    let daemons = network.start_frr();
    let _head = Agent::start(network.node(HEAD), &head(&["'fc00:0:a:f::', 'fc00:0:3:46::'"]));
    let _tail = Agent::start(network.node(TAIL), &tail());
    let sid = format!(
        "sids:\n  - sid: '{SID}'\n    behaviour: End.AD\n    outside_locator: true\n    next_hop_mac: '02:00:00:00:f0:02'\n    \
         proxy: {{inner: [IPv6], memory: packet, to_function: fun-w, from_function: fun-e, on_failure: withdraw, \
         watch: {{link: true, hold_ms: 0}}}}\n"
    );
    let ports = ", {name: fun-w, role: service}, {name: fun-e, role: service}";
    let instances = [4, 5].map(|number| Agent::start(network.node(number), &state(number, ports, &sid)));
    let traffic = Traffic::new(&network);
    let own_route = |number: u8| network.node(number).sh("ip -6 route show proto 83").contains(SID);
    let at_transit = |number: u8| {
        let table = frr(&daemons, TRANSIT).json("show bgp ipv6 unicast json");
        let paths = table["routes"].get(SID).and_then(|paths| paths.as_array().cloned()).unwrap_or_default();
        paths.iter().any(|path| path["path"] == format!("{}", 65_000 + u32::from(number)))
    };
    for number in [4, 5] {
        wait_for("both routes", CONVERGES_WITHIN, || at_transit(number).then_some(()));
    }
    // The function and its proxy are a hop each.
    traffic.reaches(1, 4);
    let serving = usize::from(frr(&daemons, HEAD).best_path(SID).as_deref() == Some("65002 65005"));
    let (fails, lives) = ([4_u8, 5][serving], [4_u8, 5][1 - serving]);
    let before = instances[1 - serving].packets(SID);

    let failed = Instant::now();
    functions[serving].sh("ip link set dev west down");
    wait_for("the failed one's route to go", CONVERGES_WITHIN, || (!own_route(fails)).then_some(()));
    let withdrawn = failed.elapsed();
    traffic.reaches(1, 4);
    println!("route gone after {withdrawn:?}, traffic through the other instance after {:?}", failed.elapsed());
    let after = instances[1 - serving].packets(SID);
    assert!(after.0 > before.0 && after.1 > before.1, "the other instance serves: {before:?}, then {after:?}");
    assert_eq!(frr(&daemons, HEAD).best_path(SID), Some(format!("65002 {}", 65_000 + u32::from(lives))));

    functions[serving].sh("ip link set dev west up");
    wait_for("it to come back", CONVERGES_WITHIN, || (own_route(fails) && at_transit(fails)).then_some(()));
    traffic.reaches(1, 4);
}
