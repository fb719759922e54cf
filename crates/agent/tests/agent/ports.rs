//! What the agent says of its ports' interfaces.

use crate::support::{Agent, Network};

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
    let (status, body) = agent.ask("PUT", "/v1/state", Some(&STATE.replace("mode: xdp", "mode: skb")));
    assert!(
        status == 400 && body.contains("ports[1].mode") && body.contains("write `mode: xdp` or auto"),
        "{status} {body}"
    );
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
