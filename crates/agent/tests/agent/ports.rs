//! What the agent says of its ports' interfaces.

use std::time::Duration;

use crate::support::{Agent, Network, traffic::under_traffic};

const STATE: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports: [{name: west, role: core}, {name: east, role: core, mode: xdp}]
"#;

#[test]
#[ignore = "needs root"]
fn a_port_says_its_mode_its_device_and_what_loses_packets() {
    let network = Network::new();
    let agent = Agent::start(&network);
    network.right.sh("ethtool -K n gro on");
    network.left.sh("ethtool -K n gro on");
    agent.apply(STATE);
    let ports = agent.get("/v1/ports");
    let expected = [("skb", "tcx", "veth is a virtual device"), ("xdp", "xdp-native", "as configured")];
    for (port, (mode, hook, reason)) in [&ports[0], &ports[1]].into_iter().zip(expected) {
        assert_eq!((port["mode"].as_str(), port["hook"].as_str()), (Some(mode), Some(hook)), "{port}");
        assert!(port["mode_reason"].as_str().unwrap().starts_with(reason), "{port}");
        let device = &port["device"];
        assert_eq!((&device["kind"], &device["peer_elsewhere"]), (&"veth".into(), &true.into()), "{port}");
        assert_eq!(
            (&device["takes_redirected"], &port["problems"]),
            (&true.into(), &serde_json::Value::Null),
            "{port}"
        );
        assert_eq!(device["offloads"]["tx_checksum"], false, "the network switched it off: {port}");
    }
    // Only who asks for ports is told of devices: others ask often.
    assert!(agent.get("/v1/counters")["ports"][0].get("device").is_none());

    // What it cannot take any more is sent by the network stack, so nothing is wrong.
    network.right.sh("ethtool -K n gro off");
    agent.eventually("news of the far end", |agent| {
        agent.get("/v1/ports")[1]["device"]["takes_redirected"] == serde_json::json!(false)
    });
    assert!(agent.get("/v1/ports")[1].get("problems").is_none());
}

/// Each port alone and both together, also one on XDP and one on socket buffers: what comes in by the one leaves by the other.
#[test]
#[ignore = "needs root"]
fn ports_change_between_xdp_and_socket_buffers_without_a_lost_packet() {
    const SID: &str = "fc00:0:1:1::";
    let network = Network::new();
    let agent = Agent::start(&network);
    network.right.sh("ethtool -K n gro on");
    let state = |west: &str, east: &str| {
        format!(
            "node: n1\nsource_address: 'fc00:0:1::1'\ndomain: {{sid_blocks: ['fc00::/32']}}\n\
             ports: [{{name: west, role: core, mode: {west}}}, {{name: east, role: core, mode: {east}}}]\n\
             sids: [{{sid: '{SID}', behaviour: End}}]"
        )
    };
    agent.apply(&state("xdp", "xdp"));
    let sent = under_traffic(&network, SID, || {
        for (west, east) in [("skb", "xdp"), ("skb", "skb"), ("xdp", "skb"), ("xdp", "xdp"), ("skb", "skb")] {
            agent.apply(&state(west, east));
            let ports = agent.get("/v1/ports");
            for (port, mode) in [(&ports[0], west), (&ports[1], east)] {
                assert_eq!(port["mode"], mode, "{port}");
                assert_eq!(port["hook"], if mode == "xdp" { "xdp-native" } else { "tcx" }, "{port}");
            }
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    assert_eq!(agent.get("/v1/sids")[0]["counter"]["packets"].as_u64(), Some(sent));
    assert_eq!(agent.get("/v1/drops"), serde_json::json!([]));
}

/// A node with labels, whose ports are veths: the host's is on socket buffers, and beside it is the pair that makes single packets of what the
/// host leaves to its link, as long as it is needed, whoever removes it and whoever turns something on.
#[test]
#[ignore = "needs root"]
fn the_pair_in_front_of_labels_is_there_while_a_port_needs_it() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    let state = |west: &str, more: &str| {
        format!(
            "node: n1\nsource_address: 'fc00:0:1::1'\n\
             ports: [{{name: west, role: access, mode: {west}}}, {{name: east, role: core}}]\n{more}"
        )
    };
    let labels = "policies: [{name: p, mode: PUSH, segment_lists: [{labels: [16001], next_hop: '2001:db8:2::2'}]}]\n\
                  steering: [{name: s, destination: 'fd00:2::/64', policy: p}]";
    let links = || network.node.sh("ip -br link");
    // Counts what is on of the near end's, then whether the far end merges.
    let offloads = || {
        let near = network.node.sh("ethtool -k segue-cut0");
        let works = ["tx-checksumming: on", "scatter-gather: on", "tx-tcp6-segmentation: on"];
        let far = network.node.sh("ethtool -k segue-cut1");
        (works.iter().filter(|work| near.contains(**work)).count(), far.contains("generic-receive-offload: on"))
    };
    agent.apply(&state("auto", ""));
    assert!(!links().contains("segue-cut"), "without labels: {}", links());
    let report = agent.apply(&state("auto", labels));
    assert!(!report["outside"].to_string().contains("segue-cut"), "{report}");
    let ports = agent.get("/v1/ports");
    let modes = [&ports[0], &ports[1]].map(|port| (port["mode"].as_str().unwrap(), port["hook"].as_str().unwrap()));
    assert_eq!(modes, [("skb", "tcx"), ("xdp", "xdp-native")]);
    assert_eq!(offloads(), (0, false));
    assert!(!network.node.sh("ip -6 address show").contains("segue-cut"), "nothing is said over it");

    // Whoever is at it; and the agent that has made it may go.
    let number = network.node.ifindex("segue-cut0");
    agent.kill();
    agent.restart(&[]);
    assert_eq!(network.node.ifindex("segue-cut0"), number, "it is adopted");
    network.node.sh("ethtool -K segue-cut0 tx on sg on tso on");
    network.node.sh("ip link set segue-cut0 down");
    agent.eventually("it is up again, and leaves nothing to its far end", |_| {
        offloads() == (0, false) && links().lines().any(|line| line.starts_with("segue-cut0") && line.contains(",UP"))
    });
    let generation = agent.get("/v1/counters")["generation"].clone();
    network.node.sh("ip link del segue-cut0");
    agent.eventually("it is made again", |_| links().contains("segue-cut0"));
    agent.eventually("and packets go by it", |agent| agent.get("/v1/counters")["generation"] != generation);
    assert_eq!(offloads(), (0, false));

    agent.apply(&state("xdp", labels));
    assert!(!links().contains("segue-cut"), "no port needs it: {}", links());
    // A device that has no XDP is on socket buffers all the same; and frames that go into IPv6 need the pair without any label.
    network.node.sh("ip link add name br type bridge");
    network.node.sh("ip link set dev br up");
    let bridge = "node: n1\nsource_address: 'fc00:0:1::1'\n\
         ports: [{name: br, role: access, mode: xdp, l2_policy: w}, {name: east, role: core}]\n\
         policies: [{name: w, mode: H.Encaps.L2, segment_lists: [{segments: ['fc00:0:2::2']}]}]";
    for _ in 0..2 {
        agent.apply(bridge);
        assert_eq!(offloads(), (0, false));
        let ports = agent.get("/v1/ports");
        assert_eq!([&ports[0]["mode"], &ports[0]["hook"]], ["skb", "tcx"], "{ports}");
    }
    agent.apply(&bridge.replace("mode: xdp, l2_policy: w", "mode: xdp"));
    assert!(!links().contains("segue-cut"), "no port needs it: {}", links());
    agent.apply(&state("skb", labels));
    assert_eq!(offloads(), (0, false));
    agent.terminate();
    assert!(agent.clean().status.success());
    assert!(!links().contains("segue-cut"), "{}", links());
}

/// XDP redirects into none of these: a veth whose far end has neither XDP nor GRO, a bridge, a macvlan device. What is to leave by them
/// goes through the network stack, and nothing is lost.
#[test]
#[ignore = "needs root"]
fn what_takes_no_frames_from_xdp_gets_every_packet() {
    const SID: &str = "fc00:0:1:1::";
    let network = Network::new();
    network.right.sh("ethtool -K n gro off");
    network.left.sh("ethtool -K n gro on");
    let agent = Agent::start(&network);
    let state = |ports: &str| {
        format!(
            "node: n1\nsource_address: 'fc00:0:1::1'\ndomain: {{sid_blocks: ['fc00::/32']}}\n\
             ports: [{{name: west, role: core, mode: xdp}}{ports}]\n\
             sids: [{{sid: '{SID}', behaviour: End}}]"
        )
    };
    agent.apply(&state(", {name: east, role: core, mode: xdp}"));
    let all_pass = |what: &str| {
        let before = agent.get("/v1/sids")[0]["counter"]["packets"].as_u64().unwrap();
        let sent = under_traffic(&network, SID, || ());
        let after = agent.get("/v1/sids")[0]["counter"]["packets"].as_u64().unwrap();
        assert_eq!(after - before, sent, "{what}");
        assert_eq!(agent.get("/v1/drops"), serde_json::json!([]), "{what}");
        let device = agent.get("/v1/ports")[0]["device"].clone();
        assert_eq!(device["dropped_received"], 0, "{what}: refused after the redirect");
    };
    all_pass("a veth whose far end polls nothing");
    // And back again: by XDP, as soon as the agent has heard of it.
    network.right.sh("ethtool -K n gro on");
    let takes = |agent: &Agent| agent.get("/v1/ports")[1]["device"]["takes_redirected"] == serde_json::json!(true);
    agent.eventually("news of the far end", takes);
    all_pass("the same with GRO");
    agent.apply(&state(""));
    let address = "ip -6 address del 2001:db8:2::1/64 dev east";
    network.node.script(&format!(
        "{address}
         ip link add br0 type bridge
         ip link set br0 address 02:00:00:00:02:01
         ip link set east master br0
         ip link set br0 up
         ip address add 2001:db8:2::1/64 dev br0 nodad
         ip -6 route replace fc00:0:2::/48 via 2001:db8:2::2"
    ));
    all_pass("a bridge");
    network.node.script(
        "ip link del br0
         ip link add link east name mac0 type macvlan mode bridge
         ip link set mac0 up
         ip address add 2001:db8:2::1/64 dev mac0 nodad
         ip -6 route replace fc00:0:2::/48 via 2001:db8:2::2",
    );
    all_pass("a macvlan device");
}

/// The network stack could run XDP on a bridge, and would lose what XDP cannot redirect: it is on socket buffers, whatever is configured.
#[test]
#[ignore = "needs root"]
fn a_device_without_xdp_gets_none() {
    const SID: &str = "fc00:0:1:1::";
    let network = Network::new();
    network.right.sh("ethtool -K n gro off");
    network.node.script(
        "ip link set west name slave
         ip link add name west address 02:00:00:00:01:01 type bridge
         ip link set slave master west
         ip link set slave up
         ip link set west up",
    );
    network.node.sh("ip address replace 2001:db8:1::1/64 dev west nodad");
    let agent = Agent::start(&network);
    agent.apply(&format!(
        "node: n1\nsource_address: 'fc00:0:1::1'\ndomain: {{sid_blocks: ['fc00::/32']}}\n\
         ports: [{{name: west, role: core, mode: xdp}}, {{name: east, role: core}}]\nsids: [{{sid: '{SID}', behaviour: End}}]"
    ));
    let port = &agent.get("/v1/ports")[0];
    assert_eq!((&port["hook"], &port["mode_reason"]), (&"tcx".into(), &"`mode: xdp`, but bridge has no XDP".into()));
    under_traffic(&network, SID, || {});
}
