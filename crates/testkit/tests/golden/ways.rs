//! The way to a next hop as it is remembered: for whom, over which of several equal paths, and until when.

use std::collections::BTreeSet;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, macs};
use segue_testkit::golden::Golden;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

/// By End to a SID behind core1, in a flow of its own for each label.
fn labelled(label: u32) -> PacketBuilder {
    let outer = Ipv6Repr { flow_label: label, ..Ipv6Repr::new(HEADEND, local(END)) };
    let srh = SrhRepr::new(&[local(END), behind_core1(0xa)]);
    let inner = Ipv6Repr::new(CLIENT, SERVER);
    arriving("core0").ipv6(outer).srh(srh).inner_ipv6(inner).udp(UdpRepr::new(40_000, 40_001)).payload(b"one of many")
}

/// By End.DT4 to a network that table 100 knows, from another host for each number.
fn from_host(number: u8) -> PacketBuilder {
    let outer = Ipv6Repr::new(HEADEND, local(END_DT4));
    let inner = Ipv4Repr::new([10, 1, 0, number].into(), IN_TABLE4);
    arriving("core0").ipv6(outer).inner_ipv4(inner).udp(UdpRepr::new(40_000, 40_001)).payload(b"one of many")
}

/// The link-layer addresses that these packets leave for.
fn receivers(node: &Golden<'_>, packets: impl Iterator<Item = PacketBuilder>) -> BTreeSet<[u8; 6]> {
    packets.map(|packet| receiver(node, "core0", &packet)).collect()
}

fn receiver(node: &Golden<'_>, port: &str, packet: &PacketBuilder) -> [u8; 6] {
    let found = node.send(port, &packet.clone().with_bytes(0, &macs(port).0.0));
    assert!(found.moved.contains_key(&format!("{port} forwarded")), "{:?}", found.moved);
    found.frame[..6].try_into().expect("six octets")
}

/// The neighbour at the other end of one of the node's links.
fn far(link: &str) -> [u8; 6] {
    macs(link).1.0
}

#[test]
#[ignore = "needs root"]
fn flows_use_all_equal_paths_whatever_the_kernel_hashes() {
    let network = Network::new();
    network.node.script(
        "ip -6 route replace fc00:0:2::/48 nexthop via fd00:0:c1::2 nexthop via fd00:0:c2::2
         ip -4 route replace table 100 10.9.0.0/16 nexthop via 10.2.0.2 nexthop via 10.1.0.2",
    );
    let node = Golden::load(&network, &configuration(DOMAIN));
    // 3: what `fib_multipath_hash_fields` says; 0x10 is the source port.
    for (policy, fields) in [(0, 7), (1, 7), (2, 7), (3, 0x17)] {
        for family in ["ipv6", "ipv4"] {
            network.node.sysctl(&format!("{family}.fib_multipath_hash_fields={fields}"));
            network.node.sysctl(&format!("{family}.fib_multipath_hash_policy={policy}"));
        }
        node.node().forget_routes();
        let both = BTreeSet::from([far("core1"), far("core2")]);
        assert_eq!(receivers(&node, (0..64).map(labelled)), both, "IPv6, policy {policy}");
        let both = BTreeSet::from([far("acc0"), far("acc1")]);
        assert_eq!(receivers(&node, (2..66).map(from_host)), both, "IPv4, policy {policy}");
        for label in 0..16 {
            let before = receiver(&node, "core0", &labelled(label));
            node.node().forget_routes();
            assert_eq!(receiver(&node, "core0", &labelled(label)), before, "a flow keeps its path, policy {policy}");
        }
    }
    node.finish();
}

/// As a VRF does it too, by one rule for all of them; not every kernel that tests run on has VRFs.
#[test]
#[ignore = "needs root"]
fn a_port_with_routes_of_its_own_shares_no_way_with_the_others() {
    let network = Network::new();
    network.node.script(
        "ip -6 rule add iif core0 table 10
         ip -6 route add table 10 fc00:0:2::/48 via fd00:0:c0::2",
    );
    let node = Golden::load(&network, &configuration(DOMAIN));
    for _ in 0..20 {
        assert_eq!(receiver(&node, "core2", &labelled(7)), far("core1"), "the main table");
        assert_eq!(receiver(&node, "core0", &labelled(7)), far("core0"), "the table of the rule");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_neighbour_that_changes_is_asked_for_again_and_no_other() {
    // What is remembered belongs to a CPU, and threads inherit this.
    let mut cpus = CpuSet::new();
    cpus.set(0).expect("there is a first CPU");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("it may be chosen");
    let network = Network::new();
    let lasting = "adjacency_lifetime_ms: 60000, icmp_errors_per_second";
    let node = Golden::load(&network, &configuration(DOMAIN).replacen("icmp_errors_per_second", lasting, 1));
    let steered = |port: u16| {
        let ip = Ipv6Repr::new(CLIENT, "fd00:0:e0::5".parse().expect("an address"));
        arriving("acc0").ipv6(ip).udp(UdpRepr::new(port, 40_001)).payload(b"steered")
    };
    let both = |what: &str, expected: [u8; 6]| {
        assert_eq!(receiver(&node, "core0", &labelled(7)), expected, "End: {what}");
        assert_eq!(receiver(&node, "acc0", &steered(7)), expected, "H.Encaps: {what}");
    };
    let forget = |link: &str, address: &str| {
        let address = address.parse().expect("an address");
        node.node().forget_neighbours(&[(network.node.ifindex(link), address)]);
    };
    both("as it is", far("core1"));
    network.node.sh("ip neigh replace fd00:0:c1::2 lladdr 02:00:00:00:00:99 nud permanent dev core1");
    both("remembered", far("core1"));
    forget("core2", "fd00:0:c2::2");
    forget("acc0", "10.1.0.2");
    both("something happened on other links", far("core1"));
    forget("core1", "fd00:0:c1::3");
    both("to another neighbour of the link", far("core1"));
    forget("core1", "fd00:0:c1::2");
    both("it has another address", [2, 0, 0, 0, 0, 0x99]);
    node.finish();
}
