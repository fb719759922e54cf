//! What a program means: the plainest possible execution, against which every other one is tested.

use crate::field::{Depth, Entry, Field};
use crate::key::Key;
use crate::program::{Action, Condition, DEPTH_MAX, Extension, Mpls, Program, Reject, Rule, Seg6, Verdict};

/// Rules that one packet may hit. A packet that would hit more is dropped: only a program with very many rules that log, mark or jump
/// gets there, see [`crate::analysis`].
pub const STEPS_MAX: usize = 256;

/// How a packet's way through a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject(Reject),
    /// Its segment list changes.
    Seg6(Seg6),
    /// Its label stack changes.
    Mpls(Mpls),
    /// It is steered into this policy.
    Policy(u32),
    /// Nothing decided: the end of a chain without policy. Steering leaves such packets alone.
    None,
    /// More than [`STEPS_MAX`] rules: dropped.
    Steps,
}

/// What happened to one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// How it ended.
    pub end: End,
    /// Every rule that was hit, in order: chain and rule. Each of them counts the packet.
    pub hits: Vec<(usize, usize)>,
    /// The mark afterwards.
    pub mark: u32,
}

/// Whether a condition holds. An absent field: never.
pub fn condition_holds(condition: &Condition, key: &Key) -> bool {
    let holds = |field: Field| key.get(field).map(|value| condition.test.holds(value));
    if condition.field.is_any() {
        let some = Depth::all().any(|depth| holds(condition.field.of_entry(Entry::At(depth))) == Some(true));
        return key.get(Field::LabelEntries).is_some() && some != condition.negated;
    }
    holds(condition.field).is_some_and(|holds| holds != condition.negated)
}

/// Whether all conditions of a rule hold. Its extensions are not looked at.
pub fn matches(rule: &Rule, key: &Key) -> bool {
    rule.conditions.iter().all(|condition| condition_holds(condition, key))
}

/// The first rule of a chain behind `after` (None: from the first on) whose conditions hold: the primitive that is compiled.
pub fn classify(program: &Program, chain: usize, key: &Key, after: Option<usize>) -> Option<usize> {
    let first = after.map_or(0, |after| after + 1);
    let rules = program.chains.get(chain)?.rules.get(first..)?;
    rules.iter().position(|rule| matches(rule, key)).map(|position| first + position)
}

/// Runs a packet through a program from the beginning of a chain.
///
/// `extension` evaluates conditions with a state (chain, rule, which of the rule's extensions); it is asked in iptables' order.
/// The program must have passed [`Program::check`]; if not, calls that are too deep end as [`End::Steps`].
pub fn run(
    program: &Program,
    chain: usize,
    key: &Key,
    extension: impl FnMut(usize, usize, &Extension, &Key) -> bool,
) -> Walk {
    run_with(program, chain, key, extension, |chain, key, after| classify(program, chain, key, after))
}

/// As [`run`], with another way to find the first match of a chain.
pub fn run_with(
    program: &Program,
    chain: usize,
    key: &Key,
    mut extension: impl FnMut(usize, usize, &Extension, &Key) -> bool,
    mut classify: impl FnMut(usize, &Key, Option<usize>) -> Option<usize>,
) -> Walk {
    let mut key = *key;
    let mut hits = Vec::new();
    // The chains that called the current one, with the rule that did.
    let mut callers: Vec<(usize, usize)> = Vec::new();
    let mut at = (chain, None);
    let end = loop {
        let found = classify(at.0, &key, at.1);
        let rule = found.and_then(|index| program.chains[at.0].rules.get(index).map(|rule| (index, rule)));
        let Some((index, rule)) = rule else {
            // The end of the chain.
            match callers.pop() {
                Some((chain, rule)) => at = (chain, Some(rule)),
                None => break policy(program, chain),
            }
            continue;
        };
        at.1 = Some(index);
        if !rule.extensions.iter().all(|each| extension(at.0, index, each, &key)) {
            continue;
        }
        if hits.len() == STEPS_MAX {
            break End::Steps;
        }
        hits.push((at.0, index));
        match &rule.action {
            Action::Accept => break End::Accept,
            Action::Drop => break End::Drop,
            Action::Reject(kind) => break End::Reject(*kind),
            Action::Seg6(action) => break End::Seg6(*action),
            Action::Mpls(action) => break End::Mpls(*action),
            Action::Policy(policy) => break End::Policy(*policy),
            Action::Log(_) | Action::Nflog(_) | Action::Continue => {}
            Action::Mark { value, mask } => {
                let mark = key.get(Field::Mark).unwrap_or_default() as u32;
                key.set(Field::Mark, (mark & !mask ^ value).into());
            }
            Action::Jump(target) => {
                if callers.len() + 1 == DEPTH_MAX {
                    break End::Steps;
                }
                callers.push((at.0, index));
                at = (*target, None);
            }
            Action::Goto(target) => at = (*target, None),
            Action::Return => match callers.pop() {
                Some((chain, rule)) => at = (chain, Some(rule)),
                None => break policy(program, chain),
            },
        }
    };
    Walk { end, hits, mark: key.get(Field::Mark).unwrap_or_default() as u32 }
}

/// The policy of the chain that the packet entered by: also after a goto from it, as in iptables.
fn policy(program: &Program, chain: usize) -> End {
    match program.chains.get(chain).and_then(|chain| chain.policy) {
        Some(Verdict::Accept) => End::Accept,
        Some(Verdict::Drop) => End::Drop,
        None => End::None,
    }
}
