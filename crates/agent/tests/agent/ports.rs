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
