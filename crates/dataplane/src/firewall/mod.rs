//! Firewalls: what their rules become, and what their map entries say afterwards.

pub(crate) mod connections;
mod log;
pub(crate) mod rules;
mod table;

pub use log::{LogReader, LogRecord, LogRule, LogSource};
pub use table::{FirewallCounters, FirewallListing, RuleCounters, firewall_listing};
