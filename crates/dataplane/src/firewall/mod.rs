//! Firewalls: what their rules become, and what their map entries say afterwards.

pub(crate) mod rules;
mod sets;
mod table;

pub use table::{FirewallCounters, FirewallListing, RuleCounters};
