//! Labels that are learned, as part of what is made of the state.

use std::sync::Arc;

use segue_model::node::{Learn, NodeState};

use super::Agent;
use crate::{
    kernel::Kernel,
    learned::{Learned, Table},
    plane::DataPlane,
    problem::{Failure, Problem},
    store::Store,
};

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// What is learned from the source that a state names, as that state would have it: what is known, if it names the same as the state that
    /// is applied, else what is read now.
    pub(super) fn learned_for(&mut self, state: &NodeState) -> Option<Learned> {
        let from = state.learn()?;
        let known = self.learned.as_ref().filter(|known| known.from.same_source(from));
        let learned = match known {
            Some(known) => known.with_limits(from),
            None => Learned::new(from, self.kernel.learned(from)),
        };
        Some(learned.resolved(state))
    }

    /// What is learned.
    pub fn learning(&self) -> Option<&Learned> {
        self.learned.as_ref()
    }

    /// What is wrong with it, for who applies a state.
    pub(super) fn doubts_of_labels(learned: Option<&Learned>) -> Vec<String> {
        let Some(learned) = learned else { return Vec::new() };
        let refused = learned.refused.first().map(|first| {
            let count = learned.refused.len();
            format!(
                "{}: {count} of what is learned is not done, such as label {}: {}; `segue doctor` has all",
                learned.from.key(),
                first.label,
                first.reason
            )
        });
        learned.problem.iter().map(ToString::to_string).chain(refused).collect()
    }

    /// The source says this now, or cannot be followed. `is_over`: it could not for so long that what it said does not hold any more.
    ///
    /// # Errors
    /// Those of [`Agent::reconcile`]: then all is as it was.
    pub fn learn_labels(&mut self, from: &Learn, read: Result<Table, Problem>, is_over: bool) -> Result<(), Failure> {
        let Some(stated) = self.shared_state() else { return Ok(()) };
        let Some(known) = self.learned.as_ref().filter(|known| known.from == *from) else { return Ok(()) };
        let mut next = known.clone();
        match read {
            Ok(table) => {
                next.problem = None;
                if *next.table != table {
                    next.table = Arc::new(table);
                }
            }
            Err(problem) => {
                next.problem = Some(problem);
                if is_over {
                    next.table = Arc::default();
                }
            }
        }
        next.tell(known);
        if Arc::ptr_eq(&next.table, &known.table) {
            self.learned = Some(next);
            return Ok(());
        }
        let next = next.resolved(&stated);
        let same = next.labels == known.labels;
        tracing::info!(
            labels = next.labels.len(),
            refused = next.refused.len(),
            "labels are learned from {}",
            from.key()
        );
        let before = self.learned.replace(next);
        if same {
            return Ok(());
        }
        self.write_out();
        let Err(failure) = self.reconcile() else { return Ok(()) };
        // Whatever stands in the way of these labels must not stand in the way of all else.
        self.learned = before.map(|before| Learned { problem: failure.problems.first().cloned(), ..before });
        self.write_out();
        if let Err(failure) = self.reconcile() {
            tracing::warn!("labels as before: {failure}");
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::super::fake::{Fake, FakeAgent};
    use super::*;
    use crate::learned::{Row, Way};

    fn state(file: &Path) -> NodeState {
        serde_json::from_value(json!({
            "node": "n", "source_address": "fc00::1", "ports": [{"name": "a", "role": "core"}],
            "mpls": {"learn": {"file": file, "max_labels": 2}},
            "labels": [{"label": 16001, "behaviour": "node"}],
        }))
        .unwrap()
    }

    fn text(label: u32) -> String {
        json!({label.to_string(): {"inLabel": label, "nexthops": [{"outLabel": 3, "nexthop": "10.0.0.1", "interface": "a"}]}})
            .to_string()
    }

    fn table(labels: &[u32]) -> Table {
        let way = Way { next_hop: Some([10, 0, 0, 1].into()), interface: Some("a".to_owned()), ..Way::default() };
        labels.iter().map(|label| (*label, Row { by: "isis".to_owned(), ways: vec![way.clone()] })).collect()
    }

    /// Labels that the data plane has.
    fn labels(fake: &Fake) -> Vec<u32> {
        fake.world().plane.unwrap().labels.iter().map(|label| label.label).collect()
    }

    fn from(agent: &FakeAgent) -> Learn {
        agent.state().unwrap().learn().unwrap().clone()
    }

    #[test]
    fn what_is_learned_is_applied_and_not_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("labels.json");
        fs::write(&file, text(16030)).unwrap();
        let fake = Fake::new(&["a"]);
        let mut agent = fake.agent();
        let report = agent.apply(&state(&file)).unwrap();
        assert_eq!(labels(&fake), [16001, 16030]);
        assert!(!report.warnings.iter().any(|warning| warning.contains("mpls.learn")), "{report:?}");
        assert_eq!(fake.world().record.unwrap().state.labels.len(), 1);
        assert_eq!(agent.apply(&state(&file)).unwrap().changes, [], "what is learned is no change of the state");

        agent.learn_labels(&from(&agent), Ok(table(&[16040, 16001])), false).unwrap();
        assert_eq!(labels(&fake), [16001, 16040], "what is configured holds");
        assert_eq!(agent.learning().unwrap().refused[0].label, 16001);
        // The same again costs nothing; nor does what is about a source that is not followed any more.
        let changes = fake.lock().changes;
        agent.learn_labels(&from(&agent), Ok(table(&[16040, 16001])), false).unwrap();
        let other = Learn { hold_time: Some(1), ..from(&agent) };
        agent.learn_labels(&other, Ok(table(&[16050])), false).unwrap();
        assert_eq!(fake.lock().changes, changes);

        // A source that fails, for a while and for too long.
        let problem = Problem::new("mpls.learn.file", "gone", "bring it back");
        agent.learn_labels(&from(&agent), Err(problem.clone()), false).unwrap();
        assert_eq!((labels(&fake), &agent.learning().unwrap().problem), (vec![16001, 16040], &Some(problem.clone())));
        let again = agent.apply(&state(&file)).unwrap();
        assert!(again.warnings.iter().any(|warning| warning.contains("gone")), "{again:?}");
        assert_eq!(labels(&fake), [16001, 16040], "an apply of the same source goes on with what is known");
        agent.learn_labels(&from(&agent), Err(problem), true).unwrap();
        assert_eq!(labels(&fake), [16001]);

        // A restart reads it again, and a state without a source has none.
        agent = fake.agent();
        agent.reconcile().unwrap();
        assert_eq!(labels(&fake), [16001, 16030]);
        let mut without = state(&file);
        without.mpls = None;
        agent.apply(&without).unwrap();
        assert_eq!((labels(&fake), agent.learning().is_none()), (vec![16001], true));
    }

    #[test]
    fn labels_that_the_data_plane_refuses_change_nothing() {
        let fake = Fake::new(&["a"]);
        let mut agent = fake.agent();
        agent.apply(&state(Path::new("/there/is/none"))).unwrap();
        agent.learn_labels(&from(&agent), Ok(table(&[16040])), false).unwrap();
        let before = fake.world();
        let next = fake.lock().changes;
        fake.lock().fail_at = Some(next);
        agent.learn_labels(&from(&agent), Ok(table(&[16050])), false).unwrap_err();
        assert_eq!(fake.world(), before);
        assert!(agent.learning().unwrap().problem.is_some());
        fake.lock().fail_at = None;
        agent.learn_labels(&from(&agent), Ok(table(&[16050])), false).unwrap();
        assert_eq!((labels(&fake), &agent.learning().unwrap().problem), (vec![16001, 16050], &None));
    }

    #[test]
    fn a_state_that_takes_less_forgets_what_is_too_much() {
        let fake = Fake::new(&["a"]);
        let mut agent = fake.agent();
        let mut state = state(Path::new("/there/is/none"));
        agent.apply(&state).unwrap();
        agent.learn_labels(&from(&agent), Ok(table(&[16040, 16041])), false).unwrap();
        state.mpls.as_mut().unwrap().learn.as_mut().unwrap().max_labels = Some(1);
        let report = agent.apply(&state).unwrap();
        assert!(report.warnings.iter().any(|warning| warning.contains("2 labels")), "{report:?}");
        assert_eq!(labels(&fake), [16001]);
    }
}
