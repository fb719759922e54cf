//! `doctor`.

use anyhow::Result;
use segue_api::doctor::{Check, DoctorReport, Finding};
use serde_json::{Value, json};

use crate::{
    args::{Global, Output},
    output,
    target::{self, Target},
};

/// Has one node examined, or all nodes of a lab; exit status 1 if something is wrong.
pub fn doctor(global: &Global, all: bool) -> Result<u8> {
    let mut found: Vec<(Target, DoctorReport)> = Vec::new();
    for target in target::all(global)? {
        let report = target.client().get("/v1/doctor")?;
        found.push((target, report));
    }
    let status = u8::from(found.iter().any(|(_, report)| report.is_wrong()));
    if global.output == Output::Table {
        output::print(&found.iter().map(|(target, report)| text(target, report, all)).collect::<String>())?;
    } else {
        let listed = |(_, report): &(Target, DoctorReport)| -> Vec<Value> {
            report.checks.iter().map(|check| named(&report.node, check)).collect()
        };
        output::structured(&found.iter().flat_map(listed).collect::<Vec<_>>(), global.output)?;
    }
    Ok(status)
}

fn named(node: &str, check: &Check) -> Value {
    let Check { check, about, result, reason, remedy } = check;
    json!({"node": node, "check": check, "about": about, "result": result, "reason": reason, "remedy": remedy})
}

/// What is wrong comes first; a remedy has a line of its own, so that it can be copied.
fn text(target: &Target, report: &DoctorReport, all: bool) -> String {
    let count = |finding| report.checks.iter().filter(|check| check.result == finding).count();
    let [wrong, notes, well] = [Finding::Wrong, Finding::Note, Finding::Ok].map(count);
    let name = if report.node.is_empty() { target.to_string() } else { report.node.clone() };
    let mut text = format!("{name}: {wrong} wrong, {notes} notes, {well} ok\n");
    for finding in [Finding::Wrong, Finding::Note, Finding::Ok] {
        for check in report.checks.iter().filter(|check| check.result == finding) {
            if finding == Finding::Ok && !all {
                continue;
            }
            let Check { check, about, reason, remedy, .. } = check;
            text.push_str(&format!("  {:<5}  {check} {about}: {reason}\n", finding.to_string()));
            if !remedy.is_empty() {
                text.push_str(&format!("         do: {remedy}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_first_with_what_to_do() {
        let checks = vec![
            Check::ok("sid", "sids", "all well"),
            Check::note("mtu", "p", "tight", ""),
            Check::wrong("table", "sids[0]", "none", "add one"),
        ];
        let report = DoctorReport { node: "n".into(), checks };
        let target = Target { node: None, socket: "/s".into() };
        let wanted =
            "n: 1 wrong, 1 notes, 1 ok\n  wrong  table sids[0]: none\n         do: add one\n  note   mtu p: tight\n";
        assert_eq!(text(&target, &report, false), wanted);
        assert_eq!(text(&target, &report, true), format!("{wanted}  ok     sid sids: all well\n"));
    }
}
