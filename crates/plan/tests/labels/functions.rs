//! Functions behind labels: which label each has, what goes back on, and what no label can do.

use serde_json::{Value, json};

use segue_model::proxy::{MayChange, MayRewrite, OnFailure, Watch};
use segue_model::topology::{Capabilities, FunctionKind, Interfaces, ProxyChoice};
use segue_plan::inventory::Function;
use segue_plan::{Direction, Inventory, Plan, StepAction};

use crate::common::{attach, chain, errors, function, inventory, planned, range};

/// The line edge1 - mid1 - mid2 - edge2 with functions, and a chain.
fn with(functions: &[(&str, Function)], via: &[&str]) -> Inventory {
    let mut inventory = inventory(via);
    inventory.functions.extend(functions.iter().map(|(name, function)| ((*name).to_owned(), function.clone())));
    inventory
}

fn attached(functions: &[(&str, Function)], via: &[&str]) -> Inventory {
    let mut inventory = with(functions, via);
    attach(&mut inventory);
    inventory
}

/// A plan's labels that lead to functions of a node, as documents have them.
fn labels(plan: &Plan, node: &str) -> Value {
    let entries = plan.nodes[node].labels.iter().filter(|entry| entry.label.behaviour.of_sid().is_some());
    serde_json::to_value(entries.map(|entry| &entry.label).collect::<Vec<_>>()).unwrap()
}

/// The stack of a policy, and the neighbour that it goes to.
/// The labels of a policy, and the neighbour that takes the first; "": it is the node's own.
fn stack<'a>(plan: &'a Plan, node: &str, policy: &str) -> (&'a [u32], &'a str) {
    let found = plan.nodes[node].policies.iter().find(|one| one.name == policy).expect("the policy");
    (&found.segment_lists[0].labels, plan.nodes[node].towards.get(policy).map_or("", String::as_str))
}

fn kind(function: Function, kind: FunctionKind) -> Function {
    Function { kind, ..function }
}

fn aware(node: &str) -> Function {
    Function { aware: true, ..kind(function(node), FunctionKind::Tap) }
}

fn proxy(node: &str, proxy: ProxyChoice) -> Function {
    Function { proxy, ..function(node) }
}

#[test]
fn a_static_proxy_puts_on_what_is_behind_its_label() {
    let plan = planned(&attached(
        &[("a", function("mid1")), ("b", function("mid1")), ("c", function("mid2"))],
        &["a", "b", "node:side", "c"],
    ));
    // Node 2, its functions, node 5, node 3, its function, node 4, its table.
    let forward = [16_002, 30_201, 30_202, 16_005, 16_003, 30_301, 16_004, 30_400];
    assert_eq!(stack(&plan, "edge1", "web-forward"), (&forward[..], "mid1"));
    let reverse = [16_003, 30_302, 16_005, 16_002, 30_203, 30_204, 16_001, 30_100];
    assert_eq!(stack(&plan, "edge2", "web-reverse"), (&reverse[..], "mid2"));
    let label = |label: u32, address: &str, [to, from]: [&str; 2], rest: &[u32], name: &str, direction: &str| {
        json!({
            "label": label,
            "behaviour": "static_proxy",
            "next_hop_mac": address,
            "proxy": {"inner": ["IPv4"], "to_function": to, "from_function": from, "labels": rest, "other_types": "drop"},
            "comment": format!("function {name}"),
            "owner": {"chain": "web", "direction": direction},
        })
    };
    assert_eq!(
        labels(&plan, "mid1"),
        json!([
            label(30_201, "02:00:00:00:01:01", ["a0-w", "a0-e"], &forward[2..], "a", "forward"),
            label(30_202, "02:00:00:00:02:01", ["b0-w", "b0-e"], &forward[3..], "b", "forward"),
            label(30_203, "02:00:00:00:02:02", ["b0-e", "b0-w"], &reverse[5..], "b", "reverse"),
            label(30_204, "02:00:00:00:01:02", ["a0-e", "a0-w"], &reverse[6..], "a", "reverse"),
        ])
    );
    let steps = plan.explanations.iter().filter(|step| step.policy == "web-forward");
    let steps: Vec<_> = steps.map(|step| (step.node.as_str(), &step.action, step.why.as_str())).collect();
    let (node, action, why) = steps[2];
    let StepAction::Label { labels, function, .. } = action else { panic!("{action:?}") };
    assert_eq!((node, labels.as_slice(), function.as_deref()), ("mid1", &[30_202][..], Some("b")));
    assert!(why.contains("puts the remaining labels back on") && why.contains("one chain visits it"), "{why}");
    assert!(plan.nodes.values().all(|node| node.sids.is_empty()), "no SIDs");
}

#[test]
fn one_label_serves_all_chains_for_each_way_through_what_they_share() {
    let single = Function { interfaces: Interfaces::One, ..proxy("mid1", ProxyChoice::DynamicFlow) };
    let functions = [
        ("both", function("mid1")),
        ("single", single),
        ("nf", kind(function("mid1"), FunctionKind::Netfilter)),
        ("fw", kind(function("mid2"), FunctionKind::Firewall)),
    ];
    let mut inventory = with(&functions, &["both", "single", "nf", "fw", "both"]);
    let mut mail = chain(&["both", "fw"]);
    mail.matching = serde_json::from_value(json!({"protocol": "tcp", "destination_ports": [25]})).unwrap();
    inventory.chains.insert("mail".to_owned(), mail);
    attach(&mut inventory);
    let plan = planned(&inventory);
    let way = |name: &str| plan.functions[name].labels.iter().map(|(way, label)| (*way, *label)).collect::<Vec<_>>();
    assert_eq!(way("both"), [(Direction::Forward, 30_201), (Direction::Reverse, 30_204)]);
    assert_eq!(way("single"), [(Direction::Forward, 30_202)]);
    assert_eq!((way("nf"), way("fw")), (vec![(Direction::Forward, 30_203)], vec![(Direction::Forward, 30_301)]));
    let web = [16_002, 30_201, 30_202, 30_203, 16_003, 30_301, 16_002, 30_201, 16_004, 30_400];
    assert_eq!(stack(&plan, "edge1", "web-forward").0, web);
    assert_eq!(stack(&plan, "edge1", "mail-forward").0, [16_002, 30_201, 16_003, 30_301, 16_004, 30_400]);
    assert_eq!(stack(&plan, "edge2", "mail-reverse").0, [16_003, 30_301, 16_002, 30_204, 16_001, 30_100]);
    let shared = |label: u32, address: &str, [to, from]: [&str; 2], memory: &str, comment: &str| {
        json!({
            "label": label,
            "behaviour": "dynamic_proxy",
            "next_hop_mac": address,
            "proxy": {
                "inner": ["IPv4", "IPv6"], "to_function": to, "from_function": from, "memory": memory, "other_types": "drop"
            },
            "comment": comment,
        })
    };
    assert_eq!(
        labels(&plan, "mid1"),
        json!([
            shared(30_201, "02:00:00:00:01:01", ["both0-w", "both0-e"], "packet", "function both, all chains, west to east"),
            shared(30_202, "02:00:00:00:02:01", ["single0-w", "single0-w"], "flow", "function single, all chains"),
            {
                "label": 30_203,
                "behaviour": "netfilter",
                "netfilter": {"namespace": "nf"},
                "comment": "function nf, all chains",
            },
            shared(30_204, "02:00:00:00:01:02", ["both0-e", "both0-w"], "packet", "function both, all chains, east to west"),
        ])
    );
    let firewall = json!({
        "label": 30_301, "behaviour": "firewall", "firewall": "fw", "comment": "function fw, all chains"
    });
    assert_eq!(labels(&plan, "mid2"), json!([firewall]));
}

fn rerouted(function: Function, backup: &str) -> Function {
    let (backup, watch) = (Some(backup.to_owned()), Some(Watch::default()));
    Function { on_failure: OnFailure::Reroute, backup, watch, ..function }
}

#[test]
fn a_label_of_the_same_node_stands_in_for_a_failed_function() {
    let functions = [
        ("own", rerouted(function("mid1"), "spare")),
        ("spare", rerouted(proxy("mid1", ProxyChoice::Exact), "last")),
        ("last", kind(function("mid1"), FunctionKind::Firewall)),
    ];
    let plan = planned(&attached(&functions, &["own"]));
    let all = labels(&plan, "mid1");
    let backups: Vec<(u64, Option<u64>)> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|label| (label["label"].as_u64().unwrap(), label["proxy"]["backup_label"].as_u64()))
        .collect();
    // Forward 201 by way of 202 to 203, and reverse 204 by way of 205 to the same firewall.
    let [spare, again] = [(30_202, Some(30_203)), (30_205, Some(30_203))];
    assert_eq!(backups, [(30_203, None), spare, (30_201, Some(30_202)), again, (30_204, Some(30_205))]);
}

/// What sees the stack is shared by all chains, with a label for each way through.
#[test]
fn a_function_that_sees_the_stack_has_a_label_for_each_way_through() {
    let functions = [("seer", aware("mid1")), ("own", function("mid1"))];
    let mut inventory = with(&functions, &["seer", "own"]);
    let mut mail = chain(&["seer"]);
    mail.matching = serde_json::from_value(json!({"protocol": "tcp", "destination_ports": [25]})).unwrap();
    inventory.chains.insert("mail".to_owned(), mail);
    attach(&mut inventory);
    let plan = planned(&inventory);
    assert_eq!(stack(&plan, "edge1", "web-forward").0, [16_002, 30_201, 30_202, 16_004, 30_400]);
    assert_eq!(stack(&plan, "edge1", "mail-forward").0, [16_002, 30_201, 16_004, 30_400]);
    assert_eq!(stack(&plan, "edge2", "mail-reverse").0, [16_002, 30_204, 16_001, 30_100]);
    let seer = |label: u32, address: &str, [to, from]: [&str; 2], comment: &str| {
        json!({
            "label": label,
            "behaviour": "sr_aware",
            "next_hop_mac": address,
            "proxy": {"to_function": to, "from_function": from, "other_types": "drop"},
            "comment": comment,
        })
    };
    let all = labels(&plan, "mid1");
    assert_eq!(
        all[0],
        seer(30_201, "02:00:00:00:02:01", ["seer0-w", "seer0-e"], "function seer, all chains, west to east")
    );
    assert_eq!(
        all[2],
        seer(30_204, "02:00:00:00:02:02", ["seer0-e", "seer0-w"], "function seer, all chains, east to west")
    );
}

#[test]
fn what_no_label_does_is_refused_with_function_kind_and_remedy() {
    for (function, words) in [
        (
            proxy("mid1", ProxyChoice::Masquerading),
            "functions.f.proxy: the function \"f\" has a masquerading proxy, which shows it packets with their segment routing \
             header: packets with labels have none; write one of them: static, dynamic, dynamic-flow, exact; or let SIDs lead",
        ),
        (
            Function { aware: true, ..function("mid1") },
            "functions.f.aware: the function \"f\" is SR-aware, and gets packets with their labels, which the kernel of its namespace does \
             not forward; write `tap` with a program that does, or remove the key",
        ),
        (
            Function { may_change: Some(MayChange::Insert), ..aware("mid1") },
            "functions.f.may_change: the function \"f\" may change segment lists, and a stack of labels goes on as",
        ),
        (
            Function { may_rewrite: vec![MayRewrite::TrafficClass], ..aware("mid1") },
            "functions.f.may_rewrite: the function \"f\" may rewrite what labels do not have",
        ),
        (
            Function {
                capabilities: Capabilities { rewrites_flows: true, ..Capabilities::default() },
                ..aware("mid1")
            },
            "functions.f.capabilities.rewrites_flows: the function has `rewrites_flows: true`: ",
        ),
        (
            Function { interfaces: Interfaces::One, ..aware("mid1") },
            "chains.web.via[1]: the chain visits \"f\" twice, and its proxy could not tell the two visits apart",
        ),
        (
            rerouted(function("mid1"), "away"),
            "functions.f.backup: \"away\" is on node \"side\", and one label in place of that of \"f\" leads to functions of node \
             \"mid1\" only; name a function of node \"mid1\"",
        ),
        (
            rerouted(proxy("mid1", ProxyChoice::Exact), "back"),
            "functions.f.backup: the backups of \"f\" lead round in a circle",
        ),
        // Masquerading would do for SIDs.
        (
            Function {
                capabilities: Capabilities { kernel_path: Some(false), ..Capabilities::default() },
                ..proxy("mid1", ProxyChoice::DynamicFlow)
            },
            "chains.web.via[1]: the chain visits \"f\" twice, and its proxy could not tell the two visits apart; add a second function: \
             this one is not on the kernel's path",
        ),
    ] {
        let twice =
            function.proxy == ProxyChoice::DynamicFlow || (function.aware && function.interfaces == Interfaces::One);
        let others =
            [("away", proxy("side", ProxyChoice::Exact)), ("back", rerouted(proxy("mid1", ProxyChoice::Exact), "f"))];
        let mut inventory = with(&others, if twice { &["f", "f"] } else { &["f"] });
        inventory.functions.insert("f".to_owned(), function);
        let text = errors(&inventory);
        assert!(text.contains(words), "{words}\n{text}");
    }
}

/// They see the stack as they see a segment routing header, and rewrite addresses where their work does.
#[test]
fn labels_lead_to_packet_services() {
    let service = |rewrites_flows| Function {
        aware: true,
        capabilities: Capabilities { rewrites_flows, ..Capabilities::default() },
        ..kind(function("mid1"), FunctionKind::Service)
    };
    for (rewrites_flows, may_rewrite) in [(false, Value::Null), (true, json!(["addresses"]))] {
        let plan = planned(&attached(&[("count", service(rewrites_flows))], &["count"]));
        let labels = labels(&plan, "mid1");
        assert_eq!(labels.as_array().unwrap().len(), 2, "there and back: {labels:#}");
        for label in labels.as_array().unwrap() {
            assert_eq!((&label["behaviour"], &label["proxy"]["may_rewrite"]), (&json!("sr_aware"), &may_rewrite));
        }
    }
}

#[test]
fn marks_and_more_functions_than_labels_are_refused() {
    let mut marked = with(&[("nf", kind(function("mid1"), FunctionKind::Netfilter))], &["nf"]);
    marked.chains["web"].mark = Some(7);
    let text = errors(&marked);
    assert!(text.contains("chains.web.mark: a mark is the argument of a SID, and a label has none"), "{text}");

    let mut narrow = attached(&[("a", function("mid1")), ("b", function("mid1"))], &["a", "b"]);
    narrow.nodes["mid1"].labels.as_mut().unwrap().block = range(30_200, 30_204);
    assert_eq!(stack(&planned(&narrow), "edge2", "web-reverse").0, [16_002, 30_203, 30_204, 16_001, 30_100]);
    narrow.nodes["mid1"].labels.as_mut().unwrap().block = range(30_200, 30_203);
    let text = errors(&narrow);
    assert!(
        text.contains("chains.web.via: node mid1 has no labels left for functions: its block 30200-30203 is used up; give the node"),
        "{text}"
    );
}

/// Where packets come in, a function's label may be the first: no neighbour takes it.
#[test]
fn a_function_where_packets_come_in_may_be_the_first() {
    let functions = [("f", function("edge2"))];
    let plan = planned(&attached(&functions, &["f"]));
    assert_eq!(stack(&plan, "edge1", "web-forward"), (&[16_004, 30_401, 30_400][..], "mid1"));
    assert_eq!(stack(&plan, "edge2", "web-reverse"), (&[30_402, 16_001, 30_100][..], ""));
    let plan = planned(&attached(&functions, &["f", "node:mid2"]));
    assert_eq!(stack(&plan, "edge1", "web-forward").0, [16_004, 30_401, 16_003, 16_004, 30_400]);
    assert_eq!(stack(&plan, "edge2", "web-reverse").0, [16_003, 16_004, 30_402, 16_001, 30_100]);
}
