//! Plans where labels steer packets: an inventory written by hand, and what must hold for any. Functions behind labels: `functions.rs`.

mod common;
mod crossing;
mod functions;
mod links;

use std::collections::BTreeMap;

use proptest::prelude::*;

use common::{attach, errors, function, inventory, link, node, planned, range};
use segue_model::label::{Label, LabelBehaviour};
use segue_model::node::{HeadendMode, Policy};
use segue_model::topology::{Dataplane, ProxyChoice};
use segue_plan::inventory::{Function, Reachability};
use segue_plan::{NodeLabels, Plan, StepAction, plan};

/// The labels of the one policy, and the neighbour that takes the first; "": it is the node's own.
fn stack<'a>(plan: &'a Plan, node: &str) -> (&'a [u32], &'a str) {
    let [policy]: &[Policy] = &plan.nodes[node].policies else { panic!("{:?}", plan.nodes[node].policies) };
    assert_eq!(policy.mode, HeadendMode::Push);
    (&policy.segment_lists[0].labels, plan.nodes[node].towards.get(&policy.name).map_or("", String::as_str))
}

#[test]
fn each_node_knows_the_labels_of_all_and_the_last_but_one_takes_them_off() {
    let plan = planned(&inventory(&[]));
    let of = |node: &str| -> Vec<(u32, LabelBehaviour, Option<&str>)> {
        let entries = plan.nodes[node].labels.iter();
        entries.map(|entry| (entry.label.label, entry.label.behaviour, entry.towards.as_deref())).collect()
    };
    assert_eq!(
        of("mid1"),
        [
            (16_001, LabelBehaviour::Pop, Some("edge1")),
            (16_002, LabelBehaviour::Node, None),
            (16_003, LabelBehaviour::Pop, Some("mid2")),
            (16_004, LabelBehaviour::Swap, Some("mid2")),
            (16_005, LabelBehaviour::Pop, Some("side")),
        ]
    );
    assert_eq!(of("edge2")[5..], [(30_400, LabelBehaviour::Table, None)]);
    assert!(plan.nodes.values().all(|node| node.sids.is_empty()), "no SIDs");
    let complete = |label: &Label| label.next_hop.is_none() && label.port.is_none() && label.comment.is_some();
    assert!(plan.nodes.values().flat_map(|node| &node.labels).all(|entry| complete(&entry.label)));
}

#[test]
fn a_stack_has_the_label_of_each_node_in_front_of_what_it_does() {
    let plan = planned(&inventory(&[]));
    assert_eq!(stack(&plan, "edge1"), (&[16_004, 30_400][..], "mid1"));
    assert_eq!(stack(&plan, "edge2"), (&[16_001, 30_100][..], "mid2"));
    let through_side = inventory(&["node:side", "node:side", "node:edge2"]);
    let plan = planned(&through_side);
    // It is at the side already, and the egress is a waypoint itself.
    assert_eq!(stack(&plan, "edge1"), (&[16_005, 16_004, 30_400][..], "mid1"));
    assert_eq!(stack(&plan, "edge2"), (&[16_005, 16_001, 30_100][..], "mid2"));
    let steps: Vec<_> = plan.explanations.iter().filter(|step| step.policy == "web-forward").collect();
    let labels = |step: usize| match &steps[step].action {
        StepAction::Push { labels, .. } | StepAction::Label { labels, .. } => labels.as_slice(),
        other => panic!("{other:?}"),
    };
    assert_eq!(labels(0), [16_005, 16_004, 30_400]);
    assert_eq!([labels(1), labels(2), labels(3), labels(4)], [&[16_005][..], &[], &[16_004], &[30_400]]);
    assert_eq!(steps[1].path, ["edge1", "mid1", "side"]);
    assert!(steps.iter().all(|step| !step.why.is_empty()));
}

#[test]
fn from_a_node_to_itself_its_own_label_is_the_first() {
    let mut same = inventory(&[]);
    same.customers["server"].node = "edge1".to_owned();
    same.chains["web"].reverse = false;
    let plan = planned(&same);
    assert_eq!(stack(&plan, "edge1"), (&[30_100][..], ""));
    let pushed = plan.explanations.iter().find(|step| matches!(step.action, StepAction::Push { .. })).expect("a push");
    assert!(matches!(pushed.action, StepAction::Push { towards: None, .. }), "{pushed:?}");
    same.chains["web"].via = vec!["node:mid1".to_owned()];
    assert_eq!(stack(&planned(&same), "edge1"), (&[16_002, 16_001, 30_100][..], "mid1"));
}

#[test]
fn chains_have_an_entropy_label_where_the_last_node_takes_it_off() {
    let mut some = inventory(&[]);
    for (name, node) in &mut some.nodes {
        node.labels.as_mut().expect("labels").entropy = name != "edge1";
    }
    let plan = planned(&some);
    let entropy = |node: &str| plan.nodes[node].policies.iter().map(|policy| policy.entropy_label).collect::<Vec<_>>();
    // To edge2, and back to edge1, which knows no such labels.
    assert_eq!((entropy("edge1"), entropy("edge2")), (vec![true], vec![false]));
    let whys: Vec<bool> = plan.explanations.iter().map(|step| step.why.contains("an entropy label behind")).collect();
    assert_eq!(whys.iter().filter(|says_so| **says_so).count(), 1, "{:?}", plan.explanations);

    let many: Vec<String> = (0..29).map(|i| format!("node:{}", ["mid1", "mid2"][i % 2])).collect();
    let mut deep = inventory(&many.iter().map(String::as_str).collect::<Vec<_>>());
    planned(&deep);
    deep.nodes["edge2"].labels.as_mut().expect("labels").entropy = true;
    let text = errors(&deep);
    assert!(text.contains("31 labels and an entropy label") && text.contains("at most 30"), "{text}");
    let mut narrow = inventory(&[]);
    narrow.nodes["edge2"].labels.as_mut().expect("labels").entropy = true;
    if let Reachability::Links(links) = &mut narrow.reachability {
        links[1].mtu = 1295;
    }
    let text = errors(&narrow);
    assert!(text.contains("takes 1296 with 2 labels and an entropy label"), "{text}");
}

#[test]
fn what_no_stack_can_say_is_refused() {
    let many: Vec<String> = (0..31).map(|i| format!("node:{}", ["mid1", "mid2"][i % 2])).collect();
    let text = errors(&inventory(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(text.contains("33 labels") && text.contains("at most 32"), "{text}");

    let mut narrow = inventory(&[]);
    if let Reachability::Links(links) = &mut narrow.reachability {
        links[1].mtu = 1287;
    }
    let text = errors(&narrow);
    assert!(text.contains("MTU of 1287") && text.contains("takes 1288 with 2 labels"), "{text}");

    let mut routing = inventory(&[]);
    routing.reachability = Reachability::Routing;
    assert!(errors(&routing).contains("labels lead over links"));

    let mut kernel = inventory(&[]);
    kernel.nodes["mid1"].dataplane = Dataplane::Kernel;
    kernel.nodes["side"].labels = None;
    let text = errors(&kernel);
    assert!(text.contains("nodes.mid1.dataplane") && text.contains("the node \"side\" has no labels"), "{text}");
}

#[test]
fn labels_that_could_mean_two_things_are_refused_with_both_nodes() {
    for (labels, words) in [
        (NodeLabels { node: 16_001, block: range(40_000, 40_099), entropy: false }, "the node label 16001 too"),
        (
            NodeLabels { node: 16_009, block: range(30_050, 30_150), entropy: false },
            "30050-30150 overlaps with 30100-30199",
        ),
        (
            NodeLabels { node: 30_150, block: range(40_000, 40_099), entropy: false },
            "its node label 30150 lies in the block",
        ),
        (NodeLabels { node: 16_009, block: range(16_000, 16_001), entropy: false }, "has 16001, the label"),
    ] {
        let mut inventory = inventory(&[]);
        inventory.nodes["side"].labels = Some(labels);
        let text = errors(&inventory);
        assert!(text.contains("nodes.side") && text.contains("edge1") && text.contains(words), "{text}");
    }
    let mut own = inventory(&[]);
    own.nodes["side"].labels = Some(NodeLabels { node: 50_000, block: range(50_000, 50_099), entropy: false });
    assert!(errors(&own).contains("its node label 50000 lies in its own block"));
    own.nodes["side"].labels = Some(NodeLabels { node: 15, block: range(1_048_500, 1_048_599), entropy: false });
    assert!(errors(&own).contains("do not lie within 16-1048575"));
}

/// Numbers from so small a space that many collide.
fn any_labels() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    prop::collection::vec((16u32..120, 16u32..120, 0u32..12), 1..7)
}

/// Functions, each by its node, and whether chains share it.
fn any_functions() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((0usize..7, any::<bool>()), 0..4)
}

/// What a label of a plan stands for, told apart by who says so.
fn meaning(node: &str, label: &Label, labels: &[NodeLabels]) -> String {
    match label.behaviour {
        LabelBehaviour::Table => format!("table of {node}"),
        LabelBehaviour::StaticProxy | LabelBehaviour::DynamicProxy => format!("{:?} of {node}", label.comment),
        _ => format!("node {:?}", labels.iter().position(|labels| labels.node == label.label)),
    }
}

proptest! {
    /// Two nodes never share a label that means different things: either the plan is refused, and the error names both, or each label has one
    /// meaning wherever it is known.
    #[test]
    fn a_label_means_one_thing_or_the_plan_is_refused(
        numbers in any_labels(),
        ends in (0usize..7, 0usize..7),
        functions in any_functions(),
    ) {
        let count = numbers.len();
        let names: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
        let labels: Vec<NodeLabels> = numbers
            .iter()
            .map(|(node, low, more)| NodeLabels { node: *node, block: range(*low, low + more), entropy: false })
            .collect();
        let nodes = (1u32..).zip(&names).zip(&labels).map(|((number, name), labels)| (name.clone(), node(number, *labels)));
        let mut inventory = inventory(&[]);
        inventory.nodes = nodes.collect();
        inventory.reachability = Reachability::Links((1..count).map(|i| link(&names[i - 1], &names[i])).collect());
        inventory.customers["client"].node.clone_from(&names[ends.0 % count]);
        inventory.customers["server"].node.clone_from(&names[ends.1 % count]);
        for (number, (at, is_shared)) in functions.iter().enumerate() {
            let proxy = if *is_shared { ProxyChoice::Exact } else { ProxyChoice::Static };
            inventory.functions.insert(format!("f{number}"), Function { proxy, ..function(&names[at % count]) });
        }
        inventory.chains["web"].via = (0..functions.len()).map(|number| format!("f{number}")).collect();
        // All that a node's labels stand for, told apart by who says so.
        let mut meanings: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (position, labels) in labels.iter().enumerate() {
            meanings.entry(labels.node).or_default().push(position);
            for label in labels.block.low()..=labels.block.high() {
                meanings.entry(label).or_default().push(position);
            }
        }
        let clash = meanings.values().find(|who| who.len() > 1);
        // A label for each direction, behind that of the table.
        let is_used_up = inventory.chains.values().any(|chain| {
            let on = |node: &String| chain.via.iter().filter(|name| inventory.functions[*name].node == *node).count();
            names.iter().zip(&numbers).any(|(node, (_, _, more))| 2 * on(node) > *more as usize)
        });
        if clash.is_none() {
            attach(&mut inventory);
        }
        match (plan(&inventory), clash) {
            (Err(errors), Some(who)) => {
                let text = errors.to_string();
                for node in who {
                    prop_assert!(text.contains(&names[*node]), "{text} does not name {}", names[*node]);
                }
            }
            (Err(errors), None) if is_used_up => {
                prop_assert!(errors.to_string().contains("has no labels left for functions"), "{errors}");
            }
            (Ok(plan), None) if !is_used_up => {
                let mut known: BTreeMap<u32, String> = BTreeMap::new();
                for (name, planned) in &plan.nodes {
                    let mut own = planned.labels.iter().map(|entry| entry.label.label).collect::<Vec<_>>();
                    own.sort_unstable();
                    prop_assert!(own.windows(2).all(|pair| pair[0] != pair[1]), "{name} has a label twice: {own:?}");
                    for entry in &planned.labels {
                        let meaning = meaning(name, &entry.label, &labels);
                        let before = known.entry(entry.label.label).or_insert_with(|| meaning.clone());
                        prop_assert_eq!(&*before, &meaning);
                    }
                }
            }
            (planned, clash) => prop_assert!(false, "{planned:?} with {clash:?}"),
        }
    }
}
