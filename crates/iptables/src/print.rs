//! Back to text: as `iptables-save` and `iptables -S` write it.

use std::fmt::Write;

use super::lexer;
use super::names;
use super::syntax::{Chain, Counters, Interface, Network, Not, Rule, RuleSet, Table};

impl RuleSet {
    /// As `iptables-save` writes it, with counters as `-c` does; without its comments, which have dates.
    pub fn save(&self, counters: bool) -> String {
        let mut out = String::new();
        for table in &self.tables {
            table.save(counters, &mut out);
        }
        out
    }
}

impl Table {
    fn save(&self, counters: bool, out: &mut String) {
        let _ = writeln!(out, "*{}", self.name);
        for chain in &self.chains {
            let Counters { packets, octets } = chain.counters;
            let policy = chain.policy.map_or("-", |policy| policy.name());
            let _ = writeln!(out, ":{} {policy} [{packets}:{octets}]", chain.name);
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                if counters {
                    let _ = write!(out, "[{}:{}] ", rule.counters.packets, rule.counters.octets);
                }
                rule.save(&chain.name, out);
                out.push('\n');
            }
        }
        out.push_str("COMMIT\n");
    }

    /// As `iptables -S` prints it.
    pub fn list_rules(&self) -> String {
        let mut out = String::new();
        for chain in &self.chains {
            let _ = match chain.policy {
                Some(policy) => writeln!(out, "-P {} {}", chain.name, policy.name()),
                None => writeln!(out, "-N {}", chain.name),
            };
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                rule.save(&chain.name, &mut out);
                out.push('\n');
            }
        }
        out
    }
}

impl Chain {
    /// A rule of this chain as iptables-save writes it, without counters.
    pub fn rule_text(&self, rule: &Rule) -> String {
        let mut out = String::new();
        rule.save(&self.name, &mut out);
        out
    }
}

impl Rule {
    fn save(&self, chain: &str, out: &mut String) {
        let _ = write!(out, "-A {chain}");
        let head = &self.head;
        let network = |out: &mut String, option: &str, network: &Option<Not<Network>>| {
            if let Some(network) = network {
                let _ = write!(out, "{} {option} {}", bang(network.negated), network.value.save());
            }
        };
        let interface = |out: &mut String, option: &str, interface: &Option<Not<Interface>>| {
            if let Some(interface) = interface {
                let _ = write!(out, "{} {option} ", bang(interface.negated));
                lexer::quote_blank(&interface.value.text(), out);
            }
        };
        network(out, "-s", &head.source);
        network(out, "-d", &head.destination);
        interface(out, "-i", &head.in_interface);
        interface(out, "-o", &head.out_interface);
        if let Some(protocol) = &head.protocol {
            let _ = write!(out, "{} -p {}", bang(protocol.negated), protocol_text(protocol.value));
        }
        if let Some(fragment) = &head.fragment {
            let _ = write!(out, "{} -f", bang(fragment.negated));
        }
        for matched in &self.matches {
            let _ = write!(out, " -m {}", matched.test.name());
            matched.test.extension().save(out);
        }
        self.target.save(out);
    }
}

fn bang(negated: bool) -> &'static str {
    if negated { " !" } else { "" }
}

fn protocol_text(protocol: u8) -> String {
    names::protocol_name(protocol).map_or_else(|| protocol.to_string(), str::to_owned)
}

impl Interface {
    /// As it is written behind `-i`.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.name, if self.wildcard { "+" } else { "" })
    }
}
