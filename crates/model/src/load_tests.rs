use super::*;

fn errors(source: &str) -> String {
    load_topology(source, "lab.yaml").expect_err("wrong on purpose").to_string()
}

#[test]
fn unknown_keys_name_the_closest_known_one() {
    assert_eq!(
        errors("name: x\nnodes:\n  a:\n    idd: 3\n"),
        "lab.yaml:4:5: nodes.a.idd: the key \"idd\" is not known here; did you mean \"id\"? (known: id, locator, loopback, dataplane)"
    );
}

#[test]
fn a_hundred_thousand_steering_rules_are_read() {
    let rules: String = (0..100_000_u32)
        .map(|number| format!("  - {{destination: \"2001:db8:{:x}:{:x}::/64\", protocol: udp, source_ports: [1], destination_ports: [2], policy: p}}\n", number >> 16, number & 0xffff))
        .collect();
    let source =
        format!("node: n\nsource_address: fc00::1\npolicies: [{{name: p, segment_lists: []}}]\nsteering:\n{rules}");
    let state = load_node_state(&source, "node.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(state.steering.len(), 100_000);
}
