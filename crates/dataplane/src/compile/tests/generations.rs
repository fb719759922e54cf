//! What keeps its place from one generation to the next, and what must not.

use serde_json::{Value, json};

use super::{Case, base};
use crate::compile::CompileError;
use crate::compiled::Compiled;
use crate::facts::{Capacity, Table};

/// Every index that the two generations share has the same content in both.
fn assert_no_index_changes(old: &Compiled, new: &Compiled) {
    for sid in &new.sids {
        let same = old.sids.iter().find(|other| other.index == sid.index);
        assert!(same.is_none_or(|other| other.entry == sid.entry), "SID index {}", sid.index);
    }
    for policy in &new.policies {
        let same = old.policies.iter().find(|other| other.index == policy.index);
        assert!(same.is_none_or(|other| other.entry == policy.entry), "policy index {}", policy.index);
        for list in &policy.lists {
            let same = old.policies.iter().flat_map(|policy| &policy.lists).find(|other| other.index == list.index);
            assert!(same.is_none_or(|other| other.entry == list.entry), "list index {}", list.index);
        }
    }
    let (before, after) = (&old.steering, &new.steering);
    let apart = before.chain == 0 || after.chain == 0 || before.half != after.half;
    assert!(before == after || apart, "packets of the old generation walk the half that would be written");
}

#[test]
fn what_stays_the_same_keeps_its_indices() {
    let mut case = Case::with(json!({
        "policies": [
            { "name": "a", "segment_lists": [{ "segments": ["fc00:2::1"] }] },
            { "name": "b", "segment_lists": [{ "segments": ["fc00:3::1"] }, { "segments": ["fc00:4::1"] }] }
        ],
        "sids": [{ "sid": "fc00:1:1::", "behaviour": "End" }, { "sid": "fc00:1:2::", "behaviour": "End" }],
        "steering": [
            { "name": "x", "destination": "10.1.0.0/16", "policy": "a" },
            { "name": "y", "destination": "10.2.0.0/16", "policy": "b" }
        ]
    }));
    let first = case.compiled();
    let second = case.after(Some(&first)).expect("the same again");
    assert!(first.same_as(&second));
    assert_eq!(second.generation, 2);

    case.state["policies"][0]["hop_limit"] = json!(9);
    case.state["sids"][0]["flavours"] = json!(["PSP"]);
    let third = case.after(Some(&first)).expect("a change");
    assert!(!first.same_as(&third));
    assert_no_index_changes(&first, &third);
    assert_eq!(first.policy("b"), third.policy("b"));
    let index = |compiled: &Compiled, name: &str| compiled.policy(name).expect("a policy").index;
    assert_ne!(index(&first, "a"), index(&third, "a"));
    let counter = |compiled: &Compiled| {
        let policy = compiled.policy("a").expect("a");
        (policy.lists[0].entry.counter, compiled.sids[0].entry.counter, compiled.steering_counters["x"])
    };
    assert_eq!(counter(&first), counter(&third), "counters follow names, not content");
    assert_eq!((first.steering.half, third.steering.half), (0, 1), "a rule names another index of a");
    case.state["sids"] = json!([]);
    let fourth = case.after(Some(&third)).expect("a change");
    assert_eq!(third.steering, fourth.steering, "steering has not changed, so its image stays where it is");
    assert_eq!(fourth.config.steering, fourth.steering.chain);
    case.state["steering"] = json!([]);
    assert_eq!(case.after(Some(&fourth)).expect("no rules").config.steering, 0);
}

#[test]
fn list_of_the_same_segments_twice_has_two_counters() {
    let mut case = Case::with(json!({ "policies": [{ "name": "a", "segment_lists": [
        { "segments": ["fc00:2::1"] }, { "segments": ["fc00:2::1"], "weight": 2 }
    ] }] }));
    let first = case.compiled();
    let rows =
        |compiled: &Compiled| compiled.policies[0].lists.iter().map(|list| list.entry.counter).collect::<Vec<_>>();
    assert_ne!(rows(&first)[0], rows(&first)[1]);
    case.state["policies"][0]["segment_lists"][0]["weight"] = json!(5);
    assert_eq!(rows(&first), rows(&case.after(Some(&first)).expect("a change")));
}

#[test]
fn port_keeps_its_row_when_others_go() {
    let mut case = Case::new(base());
    let first = case.compiled();
    case.state["ports"] = json!([{ "name": "from-fw", "role": "service" }, { "name": "access0", "role": "access" }]);
    let second = case.after(Some(&first)).expect("fewer ports");
    let row = |compiled: &Compiled, name: &str| compiled.port(name).expect("a port").entry.index;
    assert_eq!(row(&first, "from-fw"), row(&second, "from-fw"));
    assert_eq!(row(&first, "access0"), row(&second, "access0"));
}

#[test]
fn full_table_is_refused_however_often_one_applies() {
    let sids = |first: u32, count: u32| -> Vec<Value> {
        (first..first + count).map(|n| json!({ "sid": format!("fc00:1:{n:x}::"), "behaviour": "End" })).collect()
    };
    let mut case = Case::with(json!({ "sids": sids(1, 8) }));
    let mut active = case.compiled();
    for round in 1..20 {
        case.state["sids"] = json!(sids(round * 8, 8));
        let next = case.after(Some(&active)).expect("all other SIDs fit beside the old ones");
        assert_no_index_changes(&active, &next);
        assert!(next.counter_rows().all(|row| row < case.capacity.counters()));
        active = next;
    }
    case.state["sids"] = json!(sids(1, 9));
    let error = case.error();
    assert!(matches!(&error, CompileError::TableFull { table: Table::Sids, capacity: 8, .. }), "{error}");
    // More than there are counters, too.
    case.state["sids"] = json!(sids(1, case.capacity.counters()));
    let error = case.error();
    let wanted = case.capacity.counters();
    assert!(
        matches!(&error, CompileError::TableFull { table: Table::Sids, needed, .. } if *needed == wanted),
        "{error}"
    );
}

/// Their number says nothing of how many SIDs they need.
#[test]
fn tables_grow_with_counters() {
    let mut capacity = Capacity { sids: 8, ..Capacity::default() };
    let before = capacity.counters();
    assert!(capacity.grow(Table::Counters, before + 1));
    assert_eq!(capacity, Capacity { sids: 16, ..Capacity::default() });
    assert!(capacity.counters() > before);
}

#[test]
fn a_port_on_socket_buffers_has_no_xdp_and_takes_no_frames() {
    let mut case = Case::new(base());
    case.interfaces.0.get_mut("core0").expect("core0").hook = crate::facts::Hook::Skb;
    let compiled = case.compiled();
    let hooks = |compiled: &Compiled, name: &str| {
        let port = compiled.ports.iter().find(|port| port.name == name).expect("the port");
        (port.xdp, port.skb)
    };
    assert_eq!(hooks(&compiled, "core0"), (false, true));
    assert_eq!(hooks(&compiled, "access0"), (true, false));
    case.state["policies"].as_array_mut().expect("policies").push(json!({
        "name": "frames", "mode": "H.Encaps.L2", "segment_lists": [{ "segments": ["fc00:2::1"] }]
    }));
    case.state["ports"][1]["l2_policy"] = json!("frames");
    case.compiled();
    case.interfaces.0.get_mut("access0").expect("access0").hook = crate::facts::Hook::Skb;
    assert_eq!(hooks(&case.compiled(), "access0"), (false, true));
    case.state["firewalls"] =
        json!([{ "name": "f", "ipv6": { "file": "v6", "text": "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n" } }]);
    case.state["ports"][1]["firewall"] = json!("f");
    assert_eq!(hooks(&case.compiled(), "access0"), (false, true));
}
