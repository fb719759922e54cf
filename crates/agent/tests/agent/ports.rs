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
    for (port, reason) in [(&ports[0], "veth is a virtual device"), (&ports[1], "as configured")] {
        assert_eq!((port["mode"].as_str(), port["xdp"].as_str()), (Some("xdp"), Some("native")), "{port}");
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

    network.right.sh("ethtool -K n gro off");
    let ports = agent.get("/v1/ports");
    let problems = ports[1]["problems"].as_array().unwrap();
    assert_eq!((problems.len(), &problems[0]["key"]), (1, &"port east".into()));
    assert!(problems[0]["message"].as_str().unwrap().contains("its far end has neither XDP nor GRO"), "{ports}");
    assert!(problems[0]["remedy"].as_str().unwrap().contains("`ethtool -K FAR-END gro on`"), "{ports}");
    assert!(ports[0].get("problems").is_none(), "{ports}");

    // It is said at once, and that it is over, without anybody asking.
    let message = "port east: frames that XDP redirects into it are lost";
    agent.eventually("a warning", |agent| agent.log().matches(message).count() == 1);
    network.right.sh("ethtool -K n gro on");
    agent.eventually("the all-clear", |agent| agent.log().contains(&format!("no longer so: {message}")));
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
                assert_eq!(port["xdp"], if mode == "xdp" { "native" } else { "none" }, "{port}");
            }
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    assert_eq!(agent.get("/v1/sids")[0]["counter"]["packets"].as_u64(), Some(sent));
    assert_eq!(agent.get("/v1/drops"), serde_json::json!([]));
}
