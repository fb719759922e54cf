use super::*;
use crate::schema;
use crate::topology::{Function, Interfaces, RunsIn};

fn errors(source: &str) -> String {
    load_topology(source, "lab.yaml").expect_err("wrong on purpose").to_string()
}

#[test]
fn unknown_keys_name_the_closest_known_one() {
    assert_eq!(
        errors("name: x\nnodes:\n  a:\n    idd: 3\n"),
        "lab.yaml:4:5: nodes.a.idd: the key \"idd\" is not known here; did you mean \"id\"? (known: id, locator, loopback, srlb, entropy_labels, sr_dataplane, dataplane)"
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

fn function(keys: &str) -> Result<Function, Errors> {
    let source = format!("name: x\nnodes: {{a: {{}}}}\nfunctions: {{f: {{node: a{keys}}}}}\n");
    load_topology(&source, "lab.yaml").map(|topology| topology.functions["f"].clone())
}

#[test]
fn a_function_is_of_the_kind_that_is_written() {
    for (keys, kind) in [
        ("", "namespace"),
        (", namespace: {}", "namespace"),
        (", netfilter: {}", "netfilter"),
        (", tap: {}", "tap"),
        // No value is no keys, not no kind.
        (", tap: ", "tap"),
        (", netfilter: ~", "netfilter"),
        (", firewall: {ipv6: rules.v6}", "firewall"),
    ] {
        let function = function(keys).unwrap_or_else(|errors| panic!("{keys}: {errors}"));
        assert_eq!(function.runs_in.kind().key(), kind, "{keys}");
    }
}

#[test]
fn what_is_inside_a_kind_is_the_functions() {
    let namespace =
        function(", namespace: {nftables: f.nft, sysctls: {net.a: '1'}, commands: [c], interfaces: one}").unwrap();
    assert_eq!((namespace.nftables(), namespace.commands()), (Some("f.nft"), &["c".to_owned()][..]));
    assert_eq!((namespace.sysctls().count(), namespace.interfaces()), (1, Interfaces::One));
    let netfilter = function(", netfilter: {nftables: f.nft, sysctls: {net.a: '1'}, commands: [c]}").unwrap();
    assert_eq!((netfilter.nftables(), netfilter.commands().len(), netfilter.sysctls().count()), (Some("f.nft"), 1, 1));
    let tap = function(", tap: {program: p, interfaces: one}").unwrap();
    assert_eq!((tap.program(), tap.interfaces(), tap.nftables()), (Some("p"), Interfaces::One, None));
    assert!(
        matches!(function(", firewall: {ipv6: r}").unwrap().runs_in, RunsIn::Firewall(rules) if rules.ipv6.is_some())
    );
}

#[test]
fn a_function_that_is_written_again_is_the_same() {
    for keys in [
        "",
        ", namespace: {nftables: f.nft, sysctls: {net.a: '1'}, commands: [c], interfaces: one}, proxy: exact, inner: [IPv4]",
        ", netfilter: {}, watch: {}, on_failure: bypass",
        ", tap: {program: p}, capabilities: {rewrites_flows: true, kernel_path: false}, aware: true, may_change: insert, may_rewrite: [tlvs]",
        ", firewall: {ipv6: r, mode: advanced}",
    ] {
        let function = function(keys).unwrap_or_else(|errors| panic!("{keys}: {errors}"));
        let text = serde_json::to_string(&function).expect("JSON");
        assert_eq!(serde_json::from_str::<Function>(&text).expect("the same"), function, "{text}");
    }
    assert_eq!(serde_json::to_string(&function("").unwrap()).expect("JSON"), r#"{"node":"a","inner":["IPv4","IPv6"]}"#);
}

/// Whether the schema allows these kinds of a function together.
fn schema_allows(kinds: &[&str]) -> bool {
    fn holds(part: &serde_json::Value, kinds: &[&str]) -> bool {
        let has = |key: &serde_json::Value| kinds.contains(&key.as_str().expect("a key"));
        let (key, value) = part.as_object().and_then(|part| part.iter().next()).expect("one condition");
        match key.as_str() {
            "required" => value.as_array().expect("keys").iter().all(has),
            "not" => !holds(value, kinds),
            "anyOf" => value.as_array().expect("conditions").iter().any(|part| holds(part, kinds)),
            other => panic!("{other}"),
        }
    }
    let function = &schema::topology()["$defs"]["Function"];
    assert!(kinds.iter().all(|kind| function["properties"].get(kind).is_some()), "{function:#}");
    function["oneOf"].as_array().expect("alternatives").iter().filter(|part| holds(part, kinds)).count() == 1
}

#[test]
fn schema_and_parser_agree_on_kinds() {
    let values = [("namespace", "{}"), ("netfilter", "{}"), ("tap", "{}"), ("firewall", "{ipv6: rules.v6}")];
    for set in 0..1_u32 << values.len() {
        let chosen: Vec<_> =
            values.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, pair)| *pair).collect();
        let keys: String = chosen.iter().map(|(kind, value)| format!(", {kind}: {value}")).collect();
        let kinds: Vec<&str> = chosen.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(function(&keys).is_ok(), kinds.len() <= 1, "{keys}");
        assert_eq!(schema_allows(&kinds), kinds.len() <= 1, "{keys}");
    }
}
