//! Paths that turn out to be narrow (RFC 2473 section 7.1): who sends what does not fit is told where he knows the packet.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use segue_dataplane::{Dataplane, Interfaces, Options, PathMtuOf};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, port_ipv6};
use segue_testkit::golden::Golden;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

const SECOND: Duration = Duration::from_secs(1);
/// A limit holds for ten minutes.
const LATER: Duration = Duration::from_secs(602);

/// An IPv6 packet of so many octets from the client.
fn six(packet: PacketBuilder, to: Ipv6Addr, octets: usize) -> PacketBuilder {
    let repr = Ipv6Repr { flow_label: 5, ..Ipv6Repr::new(CLIENT, to) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 48])
}

fn steered(policy: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, policy, 0, 0, 0, 0, 7)
}

/// A node of the domain says that a packet with these outer headers does not fit a link of so many octets.
fn told(outer: PacketBuilder, source: Ipv6Addr, mtu: u32) -> PacketBuilder {
    let packet = Icmpv6Repr::quote(&six(outer, steered(0xe0), 1400).build()).to_vec();
    let router = "fd00:0:77::1".parse().expect("an address");
    arriving("core1").ipv6(Ipv6Repr::new(router, source)).icmpv6(Icmpv6Repr::PacketTooBig { mtu, packet })
}

/// What does not fit is refused with this MTU, one octet less goes on.
fn fits(node: &Golden<'_>, case: &str, policy: u16, octets: usize) {
    let goes = |octets| node.send("acc0", &six(arriving("acc0"), steered(policy), octets)).moved;
    assert!(goes(octets).contains_key("acc0 forwarded"), "{case}: {:?}", goes(octets));
    let frame = six(arriving("acc0"), steered(policy), octets + 1).build();
    let packet = Icmpv6Repr::quote(&frame[14..]).to_vec();
    let message = Icmpv6Repr::PacketTooBig { mtu: octets as u32, packet };
    let reply = leaving("acc0").ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT)).icmpv6(message);
    node.answers_counted(case, "acc0", &frame, &reply, &["drop_too_big"], "too_big");
}

#[test]
#[ignore = "needs root"]
fn a_node_further_on_narrows_the_list_that_it_tells_of() {
    let network = Network::new();
    network.node.sh("ip link set core1 mtu 1500");
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let begun = Instant::now();
    let list = [behind_core1(0xa), behind_core1(0xb), behind_core1(0xc)];
    let outer = |to| PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, to));
    // What is told before anybody looks is no older than the data plane.
    let early = told(outer(list[0]).srh(SrhRepr::new(&list)), NODE, 1410);
    assert!(node.send("core1", &early).moved.contains_key("core1 icmp_relayed"));
    node.node().follow_path_mtus(begun);
    fits(&node, "full, told before the first look", 0xe0, 1314);
    node.node().follow_path_mtus(begun + LATER);
    let begun = begun + LATER;
    // Headers of 96 octets, of 80, and of 64 to a first segment of this node, behind which is the link.
    let usual = [("full", 0xe0, 1404), ("reduced", 0xe1, 1420), ("local", 0xea, 1436)];
    for (case, policy, octets) in usual {
        if case != "local" {
            fits(&node, case, policy, octets);
        }
    }
    let relayed = |frame: &PacketBuilder| {
        let moved = node.send("core1", frame).moved;
        assert!(moved.contains_key("core1 icmp_relayed"), "{moved:?}");
    };
    relayed(&told(outer(list[0]).srh(SrhRepr::new(&list)), NODE, 1400));
    // At its last segment the packet has none left; the SRH tells of which list it is all the same.
    let [first, last] = [local(END), behind_core1(0xb)];
    relayed(&told(outer(last).srh(SrhRepr::reduced(&[first, last]).with_segments_left(0)), NODE, 1390));
    // Nobody else's packets, and not those of another list with the same end.
    let foreign =
        told(PacketBuilder::new().ipv6(Ipv6Repr::new(HEADEND, list[0])).srh(SrhRepr::reduced(&list)), NODE, 1300);
    assert!(node.send("core1", &foreign).moved.contains_key("core1 passed_route"));
    relayed(&told(outer(list[0]).srh(SrhRepr::reduced(&[list[0], list[2], list[2]])), NODE, 1300));
    node.node().follow_path_mtus(begun + SECOND);
    fits(&node, "full, told", 0xe0, 1304);
    fits(&node, "reduced, of which nobody has told", 0xe1, 1420);
    fits(&node, "local, told", 0xea, 1326);
    // What was told last but is more counts no less; nothing makes a path narrower than IPv6 allows.
    relayed(&told(outer(list[0]).srh(SrhRepr::new(&list)), NODE, 1420));
    relayed(&told(outer(list[0]).srh(SrhRepr::reduced(&list)), NODE, 1281));
    node.node().follow_path_mtus(begun + 2 * SECOND);
    fits(&node, "full, told more", 0xe0, 1304);
    // Another generation begins without, until the next look.
    node.apply(&configuration(DOMAIN).replace("hop_limit: 33", "hop_limit: 34"));
    node.node().follow_path_mtus(begun + 3 * SECOND);
    fits(&node, "full, in another generation", 0xe0, 1304);
    node.node().follow_path_mtus(begun + LATER + 2 * SECOND);
    fits(&node, "full, ten minutes later", 0xe0, 1404);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn what_does_not_fit_behind_a_function_does_not_go_in() {
    let network = Network::new();
    network.node.sh("ip link set core1 mtu 1450");
    let node = Golden::load(&network, &configuration(DOMAIN));
    let begun = Instant::now();
    node.node().follow_path_mtus(begun);
    let path = [local(END_AS), behind_core1(0xa), behind_core1(0xb)];
    let start = || arriving("core0").ipv6(Ipv6Repr::new(HEADEND, path[0])).srh(SrhRepr::new(&path));
    let goes_in = |case: &str, octets: usize| {
        let moved = node.send("core0", &six(start(), SERVER, octets)).moved;
        assert!(moved.contains_key("core0 to_function"), "{case}: {moved:?}");
    };
    let refused = |case: &str, octets: usize, fits: u32| {
        let frame = six(start(), SERVER, octets);
        let packet = Icmpv6Repr::quote(&frame.build()[14..]).to_vec();
        // IPv6 header, and an SRH with three segments.
        let message = Icmpv6Repr::PacketTooBig { mtu: fits + 40 + 8 + 48, packet };
        let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message);
        node.answers(case, "core0", &frame, "drop_too_big", "too_big", &reply);
    };
    goes_in("the function's link", 1500);
    refused("more than the function's link", 1501, 1500);
    // The way out takes 1450 octets, of which 80 are the header.
    assert!(node.send("fun1", &six(arriving("fun1"), SERVER, 1370)).moved.contains_key("fun1 forwarded"));
    assert!(node.send("fun1", &six(arriving("fun1"), SERVER, 1371)).moved.contains_key("fun1 drop_too_big"));
    goes_in("nobody has looked yet", 1500);
    node.node().follow_path_mtus(begun + SECOND);
    goes_in("fits the way out", 1370);
    refused("does not fit the way out", 1371, 1370);
    // A node further on says of what the proxy puts on that it is narrower yet.
    let list = [path[1], path[2]];
    let outer = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, list[0])).srh(SrhRepr::new(&list));
    assert!(node.send("core1", &told(outer, NODE, 1400)).moved.contains_key("core1 icmp_relayed"));
    node.node().follow_path_mtus(begun + 2 * SECOND);
    goes_in("fits the path", 1320);
    refused("does not fit the path", 1321, 1320);
    node.node().follow_path_mtus(begun + LATER + 2 * SECOND);
    goes_in("ten minutes later", 1500);
    refused("more than the function's link, as ever", 1501, 1500);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn the_next_agent_goes_on_with_what_is_in_the_maps() {
    let network = Network::new();
    network.node.sh("ip link set core1 mtu 1500");
    let node = Golden::load(&network, &configuration(DOMAIN));
    let begun = Instant::now();
    let list = [behind_core1(0xa), behind_core1(0xb), behind_core1(0xc)];
    let outer = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, list[0])).srh(SrhRepr::new(&list));
    assert!(node.send("core1", &told(outer, NODE, 1400)).moved.contains_key("core1 icmp_relayed"));
    node.node().follow_path_mtus(begun);
    fits(&node, "told", 0xe0, 1304);
    let (pins, capacity) = (node.node().pin_directory(), node.node().capacity());
    network.node.enter(|| {
        let options = Options { capacity, ..Options::default() };
        let mut next = Dataplane::open_or_load(&pins, options).expect("the same data plane");
        let interfaces = Interfaces::query().expect("interfaces");
        next.follow_path_mtus(&interfaces, begun + SECOND).expect("the map path_mtus");
        let known = next.path_mtus(begun + SECOND);
        assert!(known.iter().any(|limit| limit.of == PathMtuOf::List("full".to_owned(), 0) && limit.mtu == 1400));
        next.follow_path_mtus(&interfaces, begun + LATER).expect("the map path_mtus");
        assert_eq!(next.path_mtus(begun + LATER), []);
    });
    fits(&node, "ten minutes later", 0xe0, 1404);
    node.finish();
}
