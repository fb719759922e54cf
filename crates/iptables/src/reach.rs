//! Which chains of a table packets can get to from one hook.

use std::collections::HashMap;

use super::rule::Faulty;
use super::syntax::{Table, Target};

/// Marks the chains that `hook` does not lead to; none if there is no such chain. Rules with errors lead where they say, too.
pub(super) fn mark(table: &mut Table, index: &HashMap<String, usize>, hook: &str, faulty: &[(String, Faulty)]) {
    let Some(&start) = index.get(hook) else { return };
    let mut reached = vec![false; table.chains.len()];
    let mut open = vec![start];
    while let Some(chain) = open.pop() {
        if std::mem::replace(&mut reached[chain], true) {
            continue;
        }
        let there = &table.chains[chain];
        let jumps = there.rules.iter().filter_map(|rule| match &rule.target {
            Target::Jump(name) | Target::Goto(name) => Some(name),
            _ => None,
        });
        let wrong = faulty.iter().filter(|(name, _)| *name == there.name).map(|(_, faulty)| &faulty.target);
        open.extend(jumps.chain(wrong).filter_map(|name| index.get(name)));
    }
    for (chain, reached) in table.chains.iter_mut().zip(reached) {
        chain.unreached = !reached;
    }
}
