//! Labels, and lists of them.

use segue_abi as abi;
use segue_model::service_label::label_key;
use serde_json::{Value, json};

use super::{Case, flags, octets};
use crate::compile::CompileError;

fn labels(labels: Value) -> Case {
    Case::with(json!({ "labels": labels }))
}

#[test]
fn labels_lie_beside_sids() {
    let mut case = labels(json!([
        { "label": 16002, "behaviour": "swap", "out": 17, "next_hop": "fd00:2::2", "port": "core0" },
        { "label": 16001, "behaviour": "explicit_null", "next_hop": "10.0.2.9" },
        { "label": 15100, "behaviour": "table", "table": 100 },
        { "label": 15200, "behaviour": "next_hop", "next_hop": "10.0.2.9" },
    ]));
    case.state["sids"] = json!([{ "sid": "fc00:1:1::", "behaviour": "End" }]);
    case.state["mpls"] = json!({ "ttl": "uniform" });
    let first = case.compiled();
    let values: Vec<u32> = first.labels.iter().map(|label| label.label).collect();
    assert_eq!(values, [0, 2, 15100, 15200, 16001, 16002], "explicit null comes with the first label");
    let [ipv4, ipv6, table, hop, null, swap] = &first.labels[..] else { panic!("six labels") };
    assert_eq!([ipv4.entry.inner, ipv6.entry.inner, hop.entry.inner].map(flags), [1, 2, 1]);
    assert_eq!((flags(table.entry.behaviour), table.entry.table), (abi::SEGUE_LABEL_TABLE, 100));
    assert_eq!(null.entry.next_hop_ipv4, u32::from_ne_bytes([10, 0, 2, 9]));
    assert_eq!(flags(null.entry.flags), abi::SEGUE_SID_EXPLICIT_NULL);
    assert_eq!((swap.entry.out_label, swap.entry.oif, swap.entry.next_hop), (17, 2, octets("fd00:2::2")));
    let taken = abi::SEGUE_CONFIG_LABELS | abi::SEGUE_CONFIG_TTL_UNIFORM;
    assert_eq!(first.ports[0].entry.config_flags & taken, taken);
    let mut indices: Vec<u32> = first.labels.iter().map(|label| label.index).collect();
    indices.extend(first.sids.iter().map(|sid| sid.index));
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), 7, "no label has the index of a SID");

    assert!(first.same_as(&case.after(Some(&first)).expect("the same again")));
    case.state["labels"][0]["out"] = json!(18);
    let second = case.after(Some(&first)).expect("a change");
    let now = &second.labels[5];
    assert_ne!(now.index, swap.index, "packets of the old generation see what they saw");
    assert_eq!(now.entry.counter, swap.entry.counter, "it counts on");
    assert_eq!(second.labels[..5], first.labels[..5]);
}

#[test]
fn paths_of_a_label_lie_beside_it_and_count_as_it() {
    let mut case = labels(json!([
        { "label": 16002, "behaviour": "swap", "paths": [
            { "next_hop": "fd00:2::2", "port": "core0" }, { "next_hop": "10.0.2.9", "out": 3 }, { "next_hop": "fd00:2::4", "out": 17 } ] },
        { "label": 16003, "behaviour": "pop", "next_hop": "fd00:2::2" },
    ]));
    let first = case.compiled();
    let by_path = |path: u32| 16002 | path << abi::SEGUE_LABEL_PATH_SHIFT;
    let values: Vec<u32> = first.labels.iter().map(|label| label.label).collect();
    assert_eq!(values, [0, 2, 16002, 16003, by_path(1), by_path(2)]);
    let [_, _, one, other, two, three] = &first.labels[..] else { panic!("six labels") };
    assert_eq!([one, other, two, three].map(|label| label.entry.table), [3, 0, 0, 0]);
    let behaviours = [one, two, three].map(|label| flags(label.entry.behaviour));
    assert_eq!(behaviours, [abi::SEGUE_LABEL_SWAP, abi::SEGUE_LABEL_POP, abi::SEGUE_LABEL_SWAP]);
    assert_eq!((one.entry.out_label, three.entry.out_label), (16002, 17));
    assert_eq!((one.entry.oif, two.entry.next_hop_ipv4), (2, u32::from_ne_bytes([10, 0, 2, 9])));
    let counters = [one, two, three].map(|label| label.entry.counter);
    assert!(counters.iter().all(|counter| *counter == counters[0]) && counters[0] != other.entry.counter);
    let mut rows = first.all_counter_rows();
    rows.dedup();
    assert_eq!(rows, first.all_counter_rows(), "each row once");

    // One path less: the first says so, and the others stay what they are.
    case.state["labels"][0]["paths"].as_array_mut().expect("paths").pop();
    let second = case.after(Some(&first)).expect("a change");
    assert_eq!(second.labels[2].entry.table, 2);
    assert_ne!(second.labels[2].index, one.index, "packets of the old generation see what they saw");
    assert_eq!((second.labels.len(), &second.labels[4]), (5, two));
    assert_eq!(second.labels[2].entry.counter, one.entry.counter, "it counts on");
}

#[test]
fn lists_of_labels_are_as_they_lie_in_a_packet() {
    let policy = |changes: Value| {
        let mut policy = json!({ "name": "a", "mode": "PUSH", "segment_lists":
            [{ "labels": [16001, 1048575, 0], "next_hop": "10.0.2.9", "port": "core0" }] });
        for (key, value) in changes.as_object().expect("an object") {
            policy[key] = value.clone();
        }
        Case::with(json!({ "policies": [policy] })).compiled().policies[0].lists[0].clone()
    };
    let list = policy(json!({}));
    assert_eq!(list.labels, [16001, 1_048_575, 0]);
    let header = [0x03, 0xe8, 0x10, 0, 0xff, 0xff, 0xf0, 0, 0, 0, 0x01, 0];
    assert_eq!((list.entry.header_length, list.entry.segments), (12, 3));
    assert_eq!(list.entry.header[..12], header);
    assert_eq!((&list.entry.first[8..12], list.entry.way, list.entry.oif), (&[10, 0, 2, 9][..], 1 << 31, 2));
    assert_eq!((list.entry.ttl, flags(list.entry.flags)), (64, abi::SEGUE_LIST_TRAFFIC_CLASS_COPY));
    let uniform = policy(json!({ "ttl": "uniform", "traffic_class": { "dscp": 46 } }));
    assert_eq!((flags(uniform.entry.flags), uniform.entry.traffic_class), (abi::SEGUE_LIST_TTL_UNIFORM, 184));
}

/// A label with a function has one entry, which is found as those of SIDs are: by liveness, memories and return ports.
#[test]
fn functions_behind_labels_are_known_as_those_behind_sids() {
    let mut case = labels(json!([
        { "label": 16002, "behaviour": "swap", "next_hop": "fd00:2::2" },
        { "label": 15010, "behaviour": "static_proxy", "next_hop_mac": "02:00:00:00:00:07", "table": 100, "proxy":
            { "inner": ["IPv4"], "to_function": "to-fw", "from_function": "to-fw", "labels": [16002, 70000] } },
        { "label": 15020, "behaviour": "dynamic_proxy", "next_hop_mac": "02:00:00:00:00:07", "proxy":
            { "inner": ["IPv4", "IPv6"], "to_function": "to-fw", "from_function": "from-fw", "on_failure": "reroute",
              "backup_label": 16002, "watch": {} } },
    ]));
    let first = case.compiled();
    assert_eq!(first.sids.iter().map(|sid| sid.prefix).collect::<Vec<_>>(), [label_key(15010), label_key(15020)]);
    let [_, _, fixed, dynamic, _] = &first.labels[..] else { panic!("five labels") };
    for (label, sid) in [fixed, dynamic].into_iter().zip(&first.sids) {
        assert_eq!((label.index, label.entry), (sid.index, sid.entry));
        assert_eq!(flags(label.entry.kind), abi::SEGUE_HEADER_MPLS);
    }
    assert_eq!((flags(fixed.entry.behaviour), fixed.entry.table), (abi::SEGUE_LABEL_STATIC, 100));
    let policy = first.policy("static_proxy 15010").expect("what goes back on");
    let list = &policy.lists[0];
    assert_eq!((policy.index, &list.labels[..]), (fixed.entry.policy, &[16002, 70000][..]));
    assert_eq!(list.entry.header[..8], [0x03, 0xe8, 0x20, 0, 0x11, 0x17, 0x01, 0]);
    assert_eq!((flags(dynamic.entry.behaviour), dynamic.entry.out_label), (abi::SEGUE_LABEL_DYNAMIC, 16002));
    assert_eq!(flags(dynamic.entry.failure), abi::SEGUE_FAILURE_REROUTE);
    assert_eq!(first.scopes.keys().collect::<Vec<_>>(), ["from-fw labels interface"], "not that of a SID");
    assert_eq!(first.port("from-fw").expect("the port").entry.proxy, dynamic.index);
    assert!(first.same_as(&case.after(Some(&first)).expect("the same again")));
    // Without a rest there is no list.
    case.state["labels"][1]["proxy"]["labels"] = json!([]);
    let second = case.after(Some(&first)).expect("a change");
    assert_eq!(second.labels[2].entry.policy, abi::SEGUE_NONE);
    assert_ne!(second.labels[2].index, fixed.index);
    assert_eq!(second.labels[2].entry.counter, fixed.entry.counter, "it counts on");
    assert_eq!(second.labels[3], *dynamic);
}

#[test]
fn what_no_check_has_seen_is_refused() {
    let refused = [
        labels(json!([{ "label": 16, "behaviour": "pop" }])),
        labels(json!([{ "label": 1 << 20, "behaviour": "node" }])),
        labels(json!([{ "label": 16, "behaviour": "swap", "out": 1 << 20, "next_hop": "fd00:2::2" }])),
        Case::with(json!({ "policies": [{ "name": "a", "mode": "PUSH", "segment_lists": [{ "labels": [16] }] }] })),
    ];
    for case in refused {
        assert!(matches!(case.error(), CompileError::Invalid { .. }), "{}", case.error());
    }
    let twice = json!([{ "label": 16, "behaviour": "node" }, { "label": 16, "behaviour": "table" }]);
    assert!(matches!(labels(twice).error(), CompileError::Duplicate { .. }));
    let without =
        json!([{ "name": "a", "mode": "PUSH", "segment_lists": [{ "labels": [], "next_hop": "fd00:2::2" }] }]);
    assert!(matches!(Case::with(json!({ "policies": without })).error(), CompileError::Segments { max: 32, .. }));
}

/// A packet has labels or an SRH as its steering header: rules about the other one never match.
#[test]
fn rules_about_packets_that_meet_another_firewall_are_told() {
    let text = |rules: &str| format!("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j DROP\n{rules}COMMIT\n");
    let about_srh =
        ["-A FORWARD -m srh --srh-tag 5 -j DROP\n", "-A FORWARD -p udp -j SEG6 --seg6-action seg6-go-last\n"];
    let about_labels =
        ["-A FORWARD -m mpls --mpls-label 16002 -j DROP\n", "-A FORWARD -p udp -j MPLS --mpls-action go-last\n"];
    let told = |places: &[&str], rules: &str| {
        let mut state = json!({ "firewalls": [{ "name": "fw", "mode": "advanced", "ipv6": { "file": "v6", "text": text(rules) } }] });
        for place in places {
            let (key, value) = match *place {
                "label" => ("labels", json!({ "label": 15010, "behaviour": "firewall", "firewall": "fw" })),
                _ => ("sids", json!({ "sid": "fc00:1:a::", "behaviour": "End.AN", "firewall": "fw" })),
            };
            state[key] = json!([value]);
        }
        Case::with(state).compiled().warnings
    };
    for (rules, wrong, right) in [(about_srh, "label", "sid"), (about_labels, "sid", "label")] {
        for rule in rules {
            let warnings = told(&[wrong], rule);
            assert!(
                matches!(&warnings[..], [one] if one.starts_with("firewall fw: line 4: no packet matches a rule with ")),
                "{rule}{warnings:?}"
            );
            for places in [&[right][..], &["sid", "label"], &[]] {
                assert_eq!(told(places, rule), Vec::<String>::new(), "{rule}{places:?}");
            }
        }
    }
}
