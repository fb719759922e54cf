//! Rule files as netfilter's tools write them (`iptables-save`, `ip6tables-save`, `ipset save`), with SERA's options for the SRH;
//! and the same rules in YAML.
//!
//! [`parse_rules`] reads a file into a [`RuleSet`], which prints again as a file ([`RuleSet::save`]) and as the listing of
//! `iptables -L` ([`RuleSet::list`]), and becomes a [`segue_classifier::Program`] ([`RuleSet::lower`]). [`parse_sets`] reads the sets.
//!
//! A rule that cannot be honoured is an error with line, column, reason and remedy: never ignored.
//! docs/using/firewall-rules.md has every match and target.
#![forbid(unsafe_code)]

mod check;
mod error;
mod foreign;
mod head;
mod lexer;
mod list;
mod lower;
mod matches;
mod names;
mod parse;
mod parse_sets;
mod position;
mod print;
mod reach;
mod refused;
mod rule;
mod sets;
mod syntax;
mod target;
mod values;
mod word;
mod yaml;

pub use error::{ErrorKind, Origin, Position, RuleError, RuleErrors};
pub use list::ListOptions;
pub use lower::{Lowered, Mode, NodeInterface, Surroundings, Warning};
pub use matches::*;
pub use parse::{Reading, parse_rules, parse_rules_for};
pub use parse_sets::parse_sets;
pub use refused::{refused_matches, refused_targets};
pub use sets::{Entry, EntryValue, IpSet, Part, SetFile, SetType};
pub use syntax::*;
pub use yaml::{parse_yaml, parse_yaml_for, schema};
