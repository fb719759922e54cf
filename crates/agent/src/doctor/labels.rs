//! Labels that are learned: whether their source can be followed, and what of it is not done.

use segue_api::doctor::Check;

use crate::learned::Learned;

/// Labels that are told one by one; there may be 100,000.
const TOLD: usize = 50;

/// What is to be said of the source.
pub fn learned(learned: &Learned) -> Vec<Check> {
    let source = learned.from.file.clone().unwrap_or_else(|| "the kernel's MPLS routes".to_owned());
    let count = learned.labels.len();
    let mut checks = vec![match &learned.problem {
        None => Check::ok("labels", source, format!("{count} are learned from there")),
        Some(problem) => {
            let line = problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let reason = format!("{line}{}; {count} that were learned before hold", problem.message);
            Check::wrong("labels", source, reason, problem.remedy.clone())
        }
    }];
    checks.extend(learned.refused.iter().take(TOLD).map(|refused| {
        let make = if refused.wholly { Check::wrong } else { Check::note };
        make("labels", format!("label {}", refused.label), refused.reason.clone(), refused.remedy.to_owned())
    }));
    if let Some(more) = learned.refused.len().checked_sub(TOLD).filter(|more| *more > 0) {
        let reason = format!("{more} more are not done, or not all of them");
        checks.push(Check::note("labels", "others", reason, "put those above right first"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use segue_api::doctor::Finding;
    use segue_model::node::Learn;

    use super::*;
    use crate::learned::{Row, Table};
    use crate::problem::Problem;

    #[test]
    fn what_is_not_done_is_told_but_not_without_end() {
        let state = serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1"})).unwrap();
        let from = Learn { kernel: true, file: None, max_labels: None, hold_time: None };
        let table: Table = (16..76).map(|label| (label, Row::default())).collect();
        let known = Learned::new(&from, Ok(table)).resolved(&state);
        let checks = learned(&known);
        assert_eq!(checks.len(), 1 + TOLD + 1);
        assert_eq!(
            (checks[0].result, checks[1].result, checks[51].result),
            (Finding::Ok, Finding::Wrong, Finding::Note)
        );
        assert!(checks[51].reason.starts_with("10 more"), "{:?}", checks[51]);
        let problem = Problem { line: Some(7), ..Problem::new("mpls.learn.file", "bad", "mend it") };
        let checks = learned(&Learned::new(&from, Err(problem)));
        assert_eq!(checks[0].reason, "line 7: bad; 0 that were learned before hold");
    }
}
