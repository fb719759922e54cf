//! What firewalls have counted, and the writing of their map entries.

use segue_abi as abi;
use segue_firewall::{FamilyRules, Source};
use segue_iptables::{Counters, ListOptions, Surroundings};
use segue_model::firewall::Firewall;
use serde::Serialize;

use std::collections::{BTreeSet, HashSet};

use super::connections;
use crate::Error;
use crate::compile::firewall::image_octets;
use crate::compiled::{Compiled, CompiledFirewall};
use crate::dataplane::{Counter, Dataplane, Reader};
use crate::maps::{Sums, ascending};

/// Counters of one rule, or of a chain's policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleCounters {
    /// Family and text of the rule; or `IPv6 policy of FORWARD`; or `set NAME SIDES #NUMBER`, which counts nothing.
    pub name: String,
    /// Line of the rule's file.
    pub line: Option<u32>,
    /// What was counted.
    pub counter: Counter,
}

/// Counters of one firewall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirewallCounters {
    /// Its name.
    pub name: String,
    /// Its rules in the order of their files, IPv4 first.
    pub rules: Vec<RuleCounters>,
    /// Policies of the base chains.
    pub policies: Vec<RuleCounters>,
}

/// A firewall's rules with counters, as iptables prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirewallListing {
    /// As `iptables -L -n -v --line-numbers`, IPv4 first.
    pub listing: String,
    /// As `iptables-save -c`.
    pub save: String,
}

impl Reader {
    /// What the rules of all firewalls have counted.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn firewall_counters(&self) -> Result<Vec<FirewallCounters>, Error> {
        let firewalls = self.applied().map(|compiled| compiled.firewalls.as_slice()).unwrap_or_default();
        let rows = ascending(firewalls.iter().flat_map(CompiledFirewall::counter_rows));
        let counted = self.sums("firewall_counters", &rows)?;
        Ok(firewalls.iter().map(|firewall| counters_of(firewall, &counted)).collect())
    }
}

fn counters_of(firewall: &CompiledFirewall, counted: &Sums) -> FirewallCounters {
    // Members of sets are no rules of the operator's.
    let rules = firewall.rules.iter().filter(|rule| !rule.name.starts_with("set "));
    let rules = rules.map(|rule| RuleCounters {
        name: rule.name.clone(),
        line: rule.line,
        counter: counted.counter(rule.entry.counter),
    });
    let policies = firewall.policies.iter();
    let policies =
        policies.map(|(name, row)| RuleCounters { name: name.clone(), line: None, counter: counted.counter(*row) });
    FirewallCounters { name: firewall.name.clone(), rules: rules.collect(), policies: policies.collect() }
}

impl Dataplane {
    /// As [`Reader::firewall_counters`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn firewall_counters(&self) -> Result<Vec<FirewallCounters>, Error> {
        self.reader().firewall_counters()
    }

    /// Everything of a generation's firewalls, where no packet looks yet. What the active generation has too stays untouched.
    pub(crate) fn write_firewalls(&self, compiled: &Compiled) -> Result<(), Error> {
        let active = self.applied().map(|active| active.firewalls.as_slice()).unwrap_or_default();
        let there: HashSet<(u32, &str)> = active.iter().map(|other| (other.index, other.source.as_str())).collect();
        let new: Vec<&CompiledFirewall> = compiled
            .firewalls
            .iter()
            .filter(|firewall| !there.contains(&(firewall.index, firewall.source.as_str())))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let old: BTreeSet<u32> = active.iter().flat_map(CompiledFirewall::counter_rows).collect();
        let old_limits: BTreeSet<u32> = active.iter().flat_map(|firewall| firewall.limits.values().copied()).collect();
        for row in new.iter().flat_map(|firewall| firewall.counter_rows()).filter(|row| !old.contains(row)) {
            self.maps().clear_percpu("firewall_counters", row)?;
        }
        for row in new.iter().flat_map(|firewall| firewall.limits.values()).filter(|row| !old_limits.contains(row)) {
            self.maps().write("firewall_limits", row, &0_u64)?;
        }
        // What an earlier firewall of this number has let begin is nothing to this one.
        let scopes: BTreeSet<u32> = active.iter().map(|firewall| firewall.entry.scope).collect();
        for scope in new.iter().map(|firewall| firewall.entry.scope).filter(|scope| !scopes.contains(scope)) {
            for set in 0..abi::SEGUE_FRAGMENT_SETS {
                self.maps().delete("firewall_fragments", &abi::FragmentSetKey { scope, set })?;
            }
            let cursor = abi::RecentPlaceKey { scope, place: abi::SEGUE_RECENT_CURSOR };
            // Without a cursor it has noted nothing.
            if self.maps().read::<_, abi::FirewallBucket>("firewall_recent_places", &cursor)?.is_some() {
                for place in (0..abi::SEGUE_RECENT_EACH).chain([abi::SEGUE_RECENT_CURSOR]) {
                    self.maps().delete("firewall_recent_places", &abi::RecentPlaceKey { scope, place })?;
                }
            }
        }
        let image = |firewall: &&CompiledFirewall| {
            let rules = firewall.image.as_ref()?;
            Some((firewall.first_line, image_octets(&rules.image, firewall.first_line)))
        };
        self.maps().write_lines("classifier", new.iter().filter_map(image))?;
        let tables = connections::slots(active);
        let limits = connections::limits(active);
        for firewall in new {
            for (row, extension) in (firewall.first_extension..).zip(&firewall.extensions) {
                self.maps().write("firewall_extensions", &row, extension)?;
            }
            for (row, rule) in (firewall.entry.first_rule..).zip(&firewall.rules) {
                self.maps().write("firewall_rules", &row, &rule.entry)?;
            }
            self.make_table(firewall, &tables)?;
            self.make_hashlimits(firewall, &limits)?;
            self.maps().write("firewalls", &firewall.index, &firewall.entry)?;
        }
        Ok(())
    }
}

/// The rules of a firewall as iptables prints them, with what they have counted. It reads the rule files: it may take a while for
/// large ones. None if they cannot be read.
pub fn firewall_listing(state: &Firewall, counters: &FirewallCounters) -> Option<FirewallListing> {
    // They were read when they were applied; which interfaces there are changes neither their order nor their number.
    let source = Source::parse(state).ok()?;
    let lowered = source.lower(&Surroundings::default()).ok()?.lowered;
    let mut counted = counters.rules.iter();
    let mut origins = lowered.origins.iter();
    let mut found = FirewallListing { listing: String::new(), save: String::new() };
    for FamilyRules { mut rules, .. } in source.into_families() {
        let family = rules.family.to_string();
        for table in rules.tables.iter_mut().filter(|table| table.name == "filter") {
            for chain in &mut table.chains {
                let policy = format!("{family} policy of {}", chain.name);
                let policy = counters.policies.iter().find(|counter| counter.name == policy);
                chain.counters = policy.map(|policy| saved(policy.counter)).unwrap_or_default();
                chain.rules.iter_mut().for_each(|rule| rule.counters = saved(Counter::default()));
                for (origin, counter) in origins.next().into_iter().flatten().zip(&mut counted) {
                    if let Some(rule) = chain.rules.get_mut(*origin) {
                        rule.counters.packets += counter.counter.packets;
                        rule.counters.octets += counter.counter.bytes;
                    }
                }
            }
        }
        let options = ListOptions { verbose: true, exact: false, line_numbers: true };
        found.listing.push_str(&rules.list_saved(options));
        found.save.push_str(&rules.save(true));
    }
    Some(found)
}

fn saved(counter: Counter) -> Counters {
    Counters { packets: counter.packets, octets: counter.bytes }
}
