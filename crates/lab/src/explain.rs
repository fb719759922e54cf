//! `lab plan`: what the planner makes of a topology, for people.

use std::fmt::{Debug, Write};

use segue_plan::{Explanation, StepAction};
use segue_wiring::{LabNode, LabPlan};
use serde::Serialize;

use crate::list::columns;

/// The plan as text: nodes first, then each chain's way with the reason of every step.
#[must_use]
pub fn text(plan: &LabPlan) -> String {
    let mut text = format!("lab {}\n\n", plan.name);
    // What leads to nodes: locators with SIDs, labels, or both.
    let any = |leads: fn(&LabNode) -> bool| plan.nodes.values().any(leads);
    let (by_labels, by_sids) = (any(|node| node.labels.is_some()), any(|node| node.sids));
    let steered = match (by_labels, by_sids) {
        (false, _) => "LOCATOR",
        (true, false) => "LABELS",
        (true, true) => "LOCATOR, LABELS",
    };
    let mut rows = vec![["NODE".to_owned(), "DATA PLANE".into(), "LOOPBACK".into(), steered.into(), "PORTS".into()]];
    for (name, node) in &plan.nodes {
        let ports: Vec<&str> = node.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let locator = node.sids.then(|| node.locator.to_string());
        let labels = node.labels.map(|labels| format!("{} {}", labels.node, labels.block));
        let leads: Vec<String> = locator.into_iter().chain(labels).collect();
        rows.push([name.clone(), word(&node.dataplane), node.loopback.to_string(), leads.join(", "), ports.join(" ")]);
    }
    text.push_str(&columns(&rows));
    text.push('\n');
    let mut rows = vec![["HOST".to_owned(), "NODE".into(), "ADDRESSES".into(), "MTU".into()]];
    for (name, host) in &plan.hosts {
        let addresses: Vec<String> = host.interface.addresses.iter().map(ToString::to_string).collect();
        rows.push([name.clone(), host.node.clone(), addresses.join(" "), host.interface.mtu.to_string()]);
    }
    text.push_str(&columns(&rows));
    if !plan.functions.is_empty() {
        text.push('\n');
        let mut rows = vec![["FUNCTION".to_owned(), "NODE".into(), "BY".into()]];
        for (name, function) in &plan.functions {
            rows.push([name.clone(), function.node.clone(), function.approach.clone()]);
        }
        text.push_str(&columns(&rows));
    }
    for steps in plan.explain().chunk_by(|one, next| (&one.chain, one.direction) == (&next.chain, next.direction)) {
        text.push('\n');
        text.push_str(&way(steps));
    }
    text
}

/// One direction of one chain.
fn way(steps: &[Explanation]) -> String {
    let Some(first) = steps.first() else { return String::new() };
    let mut text = format!("chain {}, {}: SR policy {}\n", first.chain, first.direction, first.policy);
    for step in steps {
        let what = match &step.action {
            StepAction::Headend { mode, segments } => {
                let segments: Vec<String> = segments.iter().map(ToString::to_string).collect();
                format!("{} <{}>", word(mode), segments.join(", "))
            }
            StepAction::Push { labels, towards: Some(towards) } => format!("PUSH {} to {towards}", stack(labels)),
            StepAction::Push { labels, towards: None } => format!("PUSH {}, the first of them its own", stack(labels)),
            StepAction::Label { labels, behaviour, function } => {
                let function = function.as_ref().map(|name| format!(" -> function {name}")).unwrap_or_default();
                format!("{} {}{function}", stack(labels), word(behaviour))
            }
            StepAction::Segment { sid, behaviour, function } => {
                let function = function.as_ref().map(|name| format!(" -> function {name}")).unwrap_or_default();
                format!("{sid} {}{function}", word(behaviour))
            }
        };
        let policy = match (&step.action, step.step) {
            (StepAction::Headend { .. } | StepAction::Push { .. }, 1..) => format!(", SR policy {}", step.policy),
            _ => String::new(),
        };
        let _ = writeln!(text, "  {}. {}: {what}{policy}", step.step, step.node);
        if step.path.len() > 1 {
            let _ = writeln!(text, "     by  {}", step.path.join(" - "));
        }
        let _ = writeln!(text, "     why {}", step.why);
    }
    text
}

/// Labels in the order in which they are looked at.
pub(crate) fn stack(labels: &[u32]) -> String {
    let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
    format!("<{}>", labels.join(", "))
}

/// The name that a value has in files.
pub(crate) fn word<T: Serialize + Debug>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{value:?}"),
    }
}
