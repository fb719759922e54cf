//! What can be seen only when all chains of a table are known: jumps that lead nowhere, or in circles.

use std::collections::HashMap;

use super::error::{ErrorKind, RuleError};
use super::syntax::{Rule, Table, Target};
use segue_classifier::program::DEPTH_MAX;

/// Adds what is wrong with jumps and gotos. `index`: of each chain by name.
pub(super) fn chains(table: &Table, index: &HashMap<String, usize>, errors: &mut Vec<RuleError>) {
    for rule in table.chains.iter().flat_map(|chain| &chain.rules) {
        let (Target::Jump(name) | Target::Goto(name)) = &rule.target else { continue };
        match index.get(name).map(|target| &table.chains[*target]) {
            None => {
                let reason = "there is no target and no chain of this name";
                errors.push(error(rule, name, reason.to_owned(), &format!("correct it, or declare :{name} - [0:0]")));
            }
            Some(chain) if chain.policy.is_some() => {
                let reason = "a built-in chain cannot be jumped to".to_owned();
                errors.push(error(rule, name, reason, "put its rules into a user chain, and jump to that from both"));
            }
            Some(_) => {}
        }
    }
    let mut graph = Graph { table, index, depth: vec![Depth::Unknown; table.chains.len()], path: Vec::new(), errors };
    for chain in (0..table.chains.len()).filter(|chain| !table.chains[*chain].unreached) {
        graph.visit(chain);
    }
}

fn error(rule: &Rule, name: &str, reason: String, remedy: &str) -> RuleError {
    RuleError::about(rule.target_origin.0, name, ErrorKind::Chain, reason, remedy)
}

/// What is known of the chains below a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Unknown,
    /// Being visited: a jump to it is a loop.
    Open,
    /// Chains that a packet is in at once at most, it included.
    Known(usize),
}

struct Graph<'t, 'e> {
    table: &'t Table,
    index: &'t HashMap<String, usize>,
    depth: Vec<Depth>,
    /// Chains that led here.
    path: Vec<usize>,
    errors: &'e mut Vec<RuleError>,
}

impl Graph<'_, '_> {
    fn visit(&mut self, chain: usize) -> usize {
        match self.depth[chain] {
            Depth::Known(depth) => return depth,
            Depth::Open => return 0,
            Depth::Unknown => {}
        }
        // A path through more chains than this is refused; the recursion ends here, too.
        if self.path.len() > 64 {
            return DEPTH_MAX + 1;
        }
        self.depth[chain] = Depth::Open;
        self.path.push(chain);
        let mut deepest = 1;
        let table = self.table;
        for rule in &table.chains[chain].rules {
            let (Target::Jump(name) | Target::Goto(name)) = &rule.target else { continue };
            let Some(&target) = self.index.get(name).filter(|target| table.chains[**target].policy.is_none()) else {
                continue;
            };
            if self.depth[target] == Depth::Open {
                let start = self.path.iter().position(|visited| *visited == target).unwrap_or(0);
                let names = self.path[start..].iter().map(|chain| table.chains[*chain].name.as_str());
                let circle = names.chain([name.as_str()]).collect::<Vec<_>>().join(" -> ");
                let reason = format!("a loop: {circle}");
                self.errors.push(error(rule, name, reason, "remove one of these jumps"));
                continue;
            }
            let below = self.visit(target);
            let depth = below + usize::from(matches!(rule.target, Target::Jump(_)));
            if depth > DEPTH_MAX {
                let reason = format!("from here chains lead to chains more than {DEPTH_MAX} deep");
                self.errors.push(error(rule, name, reason, "put the rules of some of them into one chain"));
                // One error for this path: those who jump to this chain are not to blame.
                continue;
            }
            deepest = deepest.max(depth);
        }
        self.path.pop();
        self.depth[chain] = Depth::Known(deepest);
        deepest
    }
}
