//! Labels lead to some nodes, SIDs to others: what the planner asks for and gives where a chain crosses.

use serde_json::json;

use segue_model::topology::{Dataplane, SrDataplane};
use segue_plan::inventory::Hairpin;
use segue_plan::{Crossing, Encap, Inventory, crossings};

use crate::common::{errors, inventory, planned};

/// edge1, by labels - mid1, by both - mid2 - edge2, by SIDs.
fn mixed() -> Inventory {
    let mut inventory = inventory(&[]);
    for name in ["mid1", "mid2", "edge2"] {
        inventory.nodes[name].sids = true;
    }
    for name in ["mid2", "edge2"] {
        inventory.nodes[name].labels = None;
    }
    inventory
}

fn answered() -> Inventory {
    let mut inventory = mixed();
    let hairpin = Hairpin { policy: "web-reverse-part2".to_owned(), table: 7, port: "back".to_owned() };
    inventory.nodes["mid1"].hairpins.push(hairpin);
    inventory
}

#[test]
fn a_binding_label_leads_to_sids_and_a_hairpin_to_labels() {
    let asked = Crossing { node: "mid1".to_owned(), chain: "web".to_owned(), policy: "web-reverse-part2".to_owned() };
    assert_eq!(crossings(&mixed()).unwrap(), std::slice::from_ref(&asked));
    assert_eq!(crossings(&answered()).unwrap(), [asked]);
    let plan = planned(&answered());
    let border = &plan.nodes["mid1"];
    let labels = serde_json::to_value(border.labels.iter().map(|entry| &entry.label).collect::<Vec<_>>()).unwrap();
    let owner = |direction: &str| json!({"chain": "web", "direction": direction});
    let binding = json!({
        "label": 30_201, "behaviour": "binding", "policy": "web-forward-part2", "comment": "on by SIDs: policy web-forward-part2",
        "owner": owner("forward"),
    });
    assert!(labels.as_array().unwrap().contains(&binding), "{labels:#}");
    let sids = serde_json::to_value(&border.sids).unwrap();
    let crossing = json!({
        "sid": "fc00:5e9:2:100::", "behaviour": "End.DT46", "table": 7, "comment": "on by labels: policy web-reverse-part2",
        "owner": owner("reverse"),
    });
    assert!(sids.as_array().unwrap().contains(&crossing), "{sids:#}");
    let rule = |number: u8, family: &str| {
        json!({
            "name": format!("web-reverse-part2-{number}"), "destination": family, "ingress": "back", "priority": 1,
            "policy": "web-reverse-part2",
        })
    };
    let steering = serde_json::to_value(&border.steering).unwrap();
    assert_eq!(steering, json!([rule(1, "0.0.0.0/0"), rule(2, "::/0")]), "and none for the binding label");
    let lists = |node: &str| {
        let policies = plan.nodes[node].policies.iter();
        let list = |one: &segue_model::node::Policy| {
            let list = &one.segment_lists[0];
            (
                one.name.clone(),
                one.mode.name(),
                list.labels.clone(),
                list.segments.iter().map(ToString::to_string).collect(),
            )
        };
        policies.map(list).collect::<Vec<(String, &str, Vec<u32>, Vec<String>)>>()
    };
    let policy = |name: &str, mode, labels: &[u32], segments: &[&str]| {
        (name.to_owned(), mode, labels.to_vec(), segments.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(lists("edge1"), [policy("web-forward", "PUSH", &[16_002, 30_201], &[])]);
    assert_eq!(lists("edge2"), [policy("web-reverse", "H.Encaps.Red", &[], &["fc00:5e9:2:100::"])]);
    let [out, back] = &lists("mid1")[..] else { panic!("{:?}", lists("mid1")) };
    assert_eq!(*out, policy("web-forward-part2", "H.Encaps.Red", &[], &["fc00:5e9:4:46::"]));
    assert_eq!(*back, policy("web-reverse-part2", "PUSH", &[16_001, 30_100], &[]));
    // No label leads over a node that has none, and nobody knows that of one behind it.
    assert!(plan.nodes["mid2"].labels.is_empty() && plan.nodes["edge1"].sids.is_empty());
    let known: Vec<u32> = plan.nodes["edge1"].labels.iter().map(|entry| entry.label.label).collect();
    assert_eq!(known, [16_001, 16_002, 16_005, 30_100]);
    let steps: Vec<_> =
        plan.explanations.iter().map(|step| (step.policy.as_str(), step.step, step.node.as_str())).collect();
    let forward = [
        ("web-forward", 0, "edge1"),
        ("web-forward", 1, "mid1"),
        ("web-forward-part2", 2, "mid1"),
        ("web-forward-part2", 3, "edge2"),
    ];
    assert_eq!(steps[..4], forward);
}

/// What has labels is Segue's; the kernel's own data plane may be where SIDs lead.
#[test]
fn a_kernel_may_be_at_the_end_of_the_sids() {
    let mut inventory = answered();
    inventory.nodes["edge2"].dataplane = Dataplane::Kernel;
    let plan = planned(&inventory);
    let border = plan.nodes["mid1"].policies.iter().find(|one| one.name == "web-forward-part2").expect("the policy");
    assert_eq!(border.segment_lists[0].segments, ["fc00:5e9:4:4::".parse::<std::net::Ipv6Addr>().unwrap()]);
    let encap =
        plan.nodes["edge2"].kernel.iter().find(|entry| matches!(entry.encap, Encap::Seg6 { .. })).expect("a headend");
    assert_eq!(encap.towards.as_deref(), Some("mid1"));
}

#[test]
fn crossings_without_an_answer_or_a_border_are_refused() {
    let text = errors(&mixed());
    let wanted = "nodes.mid1.hairpins: nothing leads back into \"mid1\" for the policy web-reverse-part2, where labels lead on from SIDs; add a \
                  hairpin for this policy";
    assert!(text.contains(wanted), "{text}");
    let mut twice = answered();
    twice.nodes["mid1"].hairpins.push(Hairpin { policy: "other".to_owned(), table: 8, port: "back".to_owned() });
    let text = errors(&twice);
    assert!(
        text.contains("nodes.mid1.hairpins[1]: it has the policy, the table or the port of one before it; give each"),
        "{text}"
    );
    let mut apart = mixed();
    apart.nodes["mid1"].sids = false;
    let text = errors(&apart);
    assert!(text.contains("chains.web.via: no way leads from edge1, by labels, to edge2, by SIDs (forward)"), "{text}");
    apart.nodes["mid1"].labels = None;
    let text = errors(&apart);
    assert!(text.contains("nodes.mid1: the node \"mid1\" has no labels, and no SIDs lead to it"), "{text}");
}

/// With both at both ends nothing is crossed, and the inventory's own kind leads.
#[test]
fn what_both_lead_to_goes_by_the_inventorys_own_kind() {
    let mut inventory = inventory(&[]);
    inventory.nodes.values_mut().for_each(|node| node.sids = true);
    let first = |inventory: &Inventory| planned(inventory).nodes["edge1"].policies[0].mode.name();
    assert_eq!(first(&inventory), "PUSH");
    inventory.dataplane = SrDataplane::Srv6;
    assert_eq!((first(&inventory), crossings(&inventory).unwrap()), ("H.Encaps.Red", vec![]));
}
