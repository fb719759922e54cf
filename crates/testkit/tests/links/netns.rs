//! The testkit's own namespaces and sockets.

use std::time::Duration;

use segue_testkit::command::sh;
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;

#[test]
#[ignore = "needs root"]
fn frames_cross_a_veth_pair_unchanged() {
    let (left, right) = (Netns::new(), Netns::new());
    veth(
        End { netns: &left, name: "v0", mac: "02:00:00:00:00:01" },
        End { netns: &right, name: "v1", mac: "02:00:00:00:00:02" },
        9000,
    );
    let (sender, receiver) = (PacketSocket::open(&left, "v0"), PacketSocket::open(&right, "v1"));
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(8000, 0xa5);
    // A busy kernel takes its time until a link that has come up takes frames.
    let received = (0..20).find_map(|_| {
        sender.send(&frame);
        receiver.receive_where(Duration::from_millis(500), |frame| frame[12..14] == [0x88, 0xb5])
    });
    assert!(received.as_ref() == Some(&frame), "the frame arrives as it was sent");
    assert_eq!(sender.receive_where(Duration::from_millis(50), |frame| frame[12..14] == [0x88, 0xb5]), None);
}

#[test]
#[ignore = "needs root"]
#[allow(clippy::zombie_processes)] // the namespace ends it
fn a_panic_leaves_no_namespace_behind() {
    let name = std::panic::catch_unwind(|| {
        let netns = Netns::new();
        let _ended_with_the_namespace = netns.spawn(std::process::Command::new("sleep").arg("600"));
        std::panic::panic_any(netns.name().to_owned());
    })
    .expect_err("it panics");
    let name = name.downcast::<String>().expect("the name");
    assert!(!sh("ip netns list").split_whitespace().any(|word| word == *name), "{name} is still there");
}

/// Duplicate address detection holds the address back for a second here; elsewhere a busy kernel does.
#[test]
#[ignore = "needs root"]
fn interfaces_are_waited_for_until_they_can_be_reached() {
    let (left, right) = (Netns::new(), Netns::new());
    left.script("sysctl -qw net.ipv6.conf.all.accept_dad=1 net.ipv6.conf.default.accept_dad=1");
    // As `ip` leaves it: what lays a network otherwise waits itself.
    left.sh(&format!("ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 netns {}", right.name()));
    right.sh("ip link set dev v1 up");
    left.sh("ip link set dev v0 up");
    // Nobody is behind the first, and the second is to have no such address.
    left.script(
        "ip tuntap add name t0 mode tap
        ip link set t0 up
        ip link add d0 type veth peer name d1
        ip link set d1 up
        sysctl -qw net.ipv6.conf.d0.addr_gen_mode=1
        ip link set d0 up",
    );
    let tentative = || left.sh("ip -6 addr show dev v0 tentative");
    assert!(tentative().contains("fe80::ff:fe00:1"), "{}", tentative());
    segue_host::ready::wait(left.name(), &["v0", "t0", "d0"]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tentative(), "");
}
