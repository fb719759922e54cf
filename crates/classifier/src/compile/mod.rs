//! From a program to its image: rules become intervals, chains become trees.

pub(crate) mod error;
pub(crate) mod forest;
mod items;
pub(crate) mod tree;

pub use self::error::CompileError;
use crate::analysis::{Oddity, PAIRS_MAX, never_hit};
use crate::image::{Image, Layout};
use crate::normal::normalise;
use crate::program::Program;

/// Compiles a program.
///
/// # Errors
///
/// When the program is not valid, or too large.
pub fn compile(program: &Program) -> Result<Image, CompileError> {
    program.check()?;
    let mut layout = Layout::new(program);
    let mut pairs = PAIRS_MAX;
    for (index, chain) in program.chains.iter().enumerate() {
        let normal = chain.rules.iter().map(normalise).collect::<Vec<_>>();
        for (number, (rule, form)) in chain.rules.iter().zip(&normal).enumerate() {
            layout.rule(index, number, rule, form.as_ref())?;
        }
        let mut live = vec![true; chain.rules.len()];
        for (number, oddity) in never_hit(chain, &normal, &mut pairs) {
            live[number] = matches!(oddity, Oddity::NotCompared(_));
        }
        for family in 0..3 {
            // Rules that packets of this family can hit, by their number in the chain.
            let members = normal.iter().enumerate().filter(|(number, _)| live[*number]).filter_map(|(number, form)| {
                let rule = &chain.rules[number];
                let ends = rule.action.leaves_chain() && rule.extensions.is_empty();
                form.as_ref().filter(|form| form.families >> family & 1 != 0).map(|form| (number as u32, (form, ends)))
            });
            let (numbers, forms): (Vec<_>, Vec<_>) = members.unzip();
            let forest = forest::grow(&forms);
            layout.forest(index, family, &numbers, &forest);
        }
    }
    layout.finish()
}
