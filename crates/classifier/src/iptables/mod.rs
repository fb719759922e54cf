//! Rule files as netfilter's tools write them (`iptables-save`, `ip6tables-save`, `ipset save`), with SERA's options for the SRH;
//! and the same rules in YAML.
//!
//! [`parse_rules`] reads a file into a [`RuleSet`], which prints again as a file ([`RuleSet::save`]) and as the listing of
//! `iptables -L` ([`RuleSet::list`]).
//!
//! A rule that can not be honoured is an error with line, column, reason and remedy: never ignored. docs/firewall-rules.md has
//! every match and target.

mod check;
mod error;
mod lexer;
mod list;
mod matches;
mod names;
mod parse;
mod print;
mod refused;
mod rule;
mod syntax;
mod target;
mod values;

pub use error::{ErrorKind, Origin, Position, RuleError, RuleErrors};
pub use list::ListOptions;
pub use matches::*;
pub use parse::parse_rules;
pub use refused::{refused_matches, refused_targets};
pub use syntax::*;
