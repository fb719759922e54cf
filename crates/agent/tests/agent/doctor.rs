//! `/v1/doctor`, and what of it every apply tells.

use serde_json::Value;

use crate::support::{Agent, Network};

/// Everything that was once accepted without a word, and was wrong.
const SICK: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports: [{name: west, role: core}, {name: east, role: core}]
sids:
  - {sid: "fc00:0:1:1::/64", behaviour: End}
  - {sid: "fc00:0:1:1::9", behaviour: End.DT46, table: 100}
  - {sid: "fc00:0:1:2::", behaviour: End.X, next_hop: "2001:db8:2::9"}
policies:
  - {name: p, mode: H.Encaps, segment_lists: [{segments: ["fc00:0:2::1", "fc00:0:3::1"]}]}
  - {name: q, segment_lists: [{segments: ["fc00:0:9::1"]}]}
"#;

/// What is wrong: check and what it is about.
fn wrong(agent: &Agent<'_>) -> Vec<String> {
    let report = agent.get("/v1/doctor");
    let checks = report["checks"].as_array().unwrap();
    let told = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    for check in checks {
        assert!(!told(check, "reason").is_empty(), "{check}");
        assert!(check["result"] != "wrong" || !told(check, "remedy").is_empty(), "{check}");
    }
    let wrong = checks.iter().filter(|check| check["result"] == "wrong");
    wrong.map(|check| format!("{} {}", told(check, "check"), told(check, "about"))).collect()
}

#[test]
#[ignore = "needs root"]
fn a_sick_node_is_told_what_ails_it_and_a_cured_one_nothing() {
    let network = Network::new();
    let agent = Agent::start(&network);
    assert_eq!(wrong(&agent), [""; 0], "nothing is applied yet");
    let (status, checked) = agent.ask("PUT", "/v1/state?dry_run=true", Some(SICK));
    assert_eq!(status, 200, "{checked}");
    let applied = agent.apply(SICK);
    let warnings: Vec<&str> = applied["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let starts = |text: &str| warnings.iter().filter(|warning| warning.starts_with(text)).count();
    for key in ["sids[1].table: ", "source_address: ", "sids[1].sid: "] {
        assert_eq!(starts(key), 1, "{warnings:#?}");
        assert!(checked.contains(key), "a dry run tells them too: {checked}");
    }
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    network.node.sh("ip link set east mtu 1300");
    let ails = wrong(&agent);
    let expected = [
        "address source_address",
        "sid sids[1].sid",
        "table sids[1].table",
        "neighbour 2001:db8:2::9",
        "neighbour fc00:0:9::1",
        "mtu policies[0].segment_lists[0]",
    ];
    let mut missing: Vec<_> = expected.iter().filter(|wanted| !ails.iter().any(|found| found == *wanted)).collect();
    missing.sort();
    assert!(missing.is_empty(), "{missing:?} in {ails:#?}");
    assert_eq!(ails.len(), expected.len(), "{ails:#?}");
    network.node.sysctl("ipv4.ip_forward=0");
    assert!(wrong(&agent).contains(&"sysctl net/ipv4/ip_forward".to_owned()));
    // Cured by the remedies.
    network.node.script(
        "ip link set east mtu 9000
         ip link set west mtu 9000
         sysctl -q -w net.ipv4.ip_forward=1
         ip address add fc00:0:1::1/128 dev lo
         ip route add 192.0.2.0/24 dev east table 100
         ip -6 route add fc00:0:9::/48 via 2001:db8:2::2",
    );
    network.right.sh("ip address add 2001:db8:2::9/64 dev n nodad");
    let cured = SICK.replace("fc00:0:1:1::9", "fc00:0:1:9::");
    assert_eq!(agent.apply(&cured)["warnings"], Value::Array(Vec::new()));
    agent.eventually("a node with nothing wrong", |agent| wrong(agent).is_empty());
}

/// A far end that leaves checksums to the link: everything looks well, and TCP hangs.
#[test]
#[ignore = "needs root"]
fn a_far_end_that_makes_no_checksums_is_seen() {
    let network = Network::new();
    network.node.sh("ip address add fc00:0:1::1/128 dev lo");
    let agent = Agent::start(&network);
    let state = |mode: &str| {
        format!(
            "{{node: n1, source_address: 'fc00:0:1::1', domain: {{sid_blocks: ['fc00::/32']}}, \
             ports: [{{name: west, role: access, mode: {mode}}}, {{name: east, role: core}}]}}"
        )
    };
    agent.apply(&state("xdp"));
    let of_west = |agent: &Agent<'_>| wrong(agent).into_iter().filter(|about| about == "port port west").count();
    network.left.sh("ethtool -K n tx on");
    assert_eq!(of_west(&agent), 1, "{:?}", wrong(&agent));
    network.left.sh("ethtool -K n tx off");
    agent.eventually("a far end that makes its checksums", |agent| of_west(agent) == 0);
}
