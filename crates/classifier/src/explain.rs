//! Which rules a packet was compared with on its way through a program, and why those that it did not match did not.

use std::cell::RefCell;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::field::{Entry, Field};
use crate::interpreter::{Walk, classify, condition_holds, run_with};
use crate::key::Key;
use crate::program::{Condition, Extension, Program, Test};

/// A packet's way through a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Every rule that it was compared with, in order.
    pub steps: Vec<Step>,
    /// Which were hit, and how it ended.
    pub walk: Walk,
}

/// One rule that the packet was compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The chain.
    pub chain: usize,
    /// The rule's index there.
    pub rule: usize,
    /// What came of it.
    pub result: StepResult,
}

/// What came of comparing a packet with a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepResult {
    /// It was hit.
    Hit,
    /// This condition of the rule (its index) is the first that did not hold.
    Condition {
        /// Index in [`crate::Rule::conditions`].
        index: usize,
        /// The packet's value of the field; None: it has no such field.
        value: Option<u128>,
    },
    /// All conditions held, but this extension did not (index in [`crate::Rule::extensions`]).
    Extension(usize),
}

/// Explains a packet's way. `extension` as for [`crate::interpreter::run`].
pub fn explain(
    program: &Program,
    chain: usize,
    key: &Key,
    mut extension: impl FnMut(usize, usize, &Extension, &Key) -> bool,
) -> Explanation {
    let steps = RefCell::new(Vec::new());
    let first_match = |chain: usize, key: &Key, after: Option<usize>| {
        let found = classify(program, chain, key, after);
        let rules = program.chains.get(chain).map_or(&[][..], |chain| &chain.rules);
        let compared = after.map_or(0, |after| after + 1)..found.unwrap_or(rules.len());
        let mut steps = steps.borrow_mut();
        for (rule, conditions) in compared.map(|rule| (rule, &rules[rule].conditions)) {
            let failing = conditions.iter().position(|condition| !condition_holds(condition, key));
            if let Some(index) = failing {
                let field = conditions[index].field;
                let value = if field.is_any() { None } else { key.get(field) };
                steps.push(Step { chain, rule, result: StepResult::Condition { index, value } });
            }
        }
        steps.extend(found.map(|rule| Step { chain, rule, result: StepResult::Hit }));
        found
    };
    let ask = |chain: usize, rule: usize, each: &Extension, key: &Key| {
        let holds = extension(chain, rule, each, key);
        if !holds && let Some(step) = steps.borrow_mut().last_mut() {
            let extensions = &program.chains[chain].rules[rule].extensions;
            let index = extensions.iter().position(|other| std::ptr::eq(other, each)).unwrap_or_default();
            step.result = StepResult::Extension(index);
        }
        holds
    };
    let walk = run_with(program, chain, key, ask, first_match);
    Explanation { steps: steps.into_inner(), walk }
}

impl fmt::Display for Condition {
    /// As one would say it: `DestinationPort not in 80, 443-445`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: u128| FieldValue(self.field, value);
        let not = if self.negated { "not " } else { "" };
        write!(out, "{} ", FieldName(self.field))?;
        match &self.test {
            Test::Masked { value: wanted, mask } if *mask == self.field.max() => write!(out, "{not}{}", value(*wanted)),
            Test::Masked { value: wanted, mask } => write!(out, "{not}{}/{}", value(*wanted), value(*mask)),
            Test::AnyBit(mask) => write!(out, "{not}any of {mask:#x}"),
            Test::Ranges(ranges) => {
                write!(out, "{not}in ")?;
                for (index, (first, last)) in ranges.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    match first == last {
                        true => write!(out, "{comma}{}", value(*first))?,
                        false => write!(out, "{comma}{}-{}", value(*first), value(*last))?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// A field as one says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldName(pub Field);

impl fmt::Display for FieldName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            Field::Label(_) => "label",
            Field::LabelClass(_) => "TC",
            Field::LabelBottom(_) => "bottom of stack",
            Field::LabelTtl(_) => "TTL",
            field => return write!(out, "{field:?}"),
        };
        match self.0.entry() {
            Some(Entry::At(depth)) => write!(out, "{what} at depth {}", depth.get()),
            Some(Entry::Own) => write!(out, "{what} at depth 0"),
            Some(Entry::Last) => write!(out, "{what} of the last entry"),
            _ => write!(out, "{what} at any depth"),
        }
    }
}

/// A field's value as one writes it: addresses as addresses, MAC addresses with colons, bits as hexadecimal numbers, else a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldValue(pub Field, pub u128);

impl fmt::Display for FieldValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(field, value) = *self;
        match field {
            Field::SourceIpv4 | Field::DestinationIpv4 => Ipv4Addr::from(value as u32).fmt(out),
            _ if field.width() == 128 => Ipv6Addr::from(value).fmt(out),
            Field::SourceMac => {
                let octets = (value as u64).to_be_bytes();
                let [_, _, a, b, c, d, e, f] = octets;
                write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
            }
            Field::Mark | Field::TcpFlags | Field::TcpOptions | Field::ConnectionState => write!(out, "{value:#x}"),
            _ => write!(out, "{value}"),
        }
    }
}
