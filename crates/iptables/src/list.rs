//! The listing of `iptables -L -n`, with counters.

use std::fmt::Write;

use super::syntax::{Chain, Counters, Family, Head, Not, Rule, RuleSet, Table, Target};

/// Options of a listing: those of `iptables -L -n`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `-v`: counters and interfaces.
    pub verbose: bool,
    /// `-x`: counters in full, instead of in K, M, G and T.
    pub exact: bool,
    /// `--line-numbers`.
    pub line_numbers: bool,
}

impl RuleSet {
    /// What `iptables -L -n` prints for the table `filter`; `counters` says what each rule counted (chain, rule: indexes), and
    /// with None as rule what the chain's policy counted.
    pub fn list(&self, options: ListOptions, counters: impl Fn(usize, Option<usize>) -> Counters) -> String {
        let mut out = String::new();
        let Some(table) = self.filter() else { return out };
        for (index, chain) in table.chains.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            table.list_header(chain, counters(index, None), options, &mut out);
            for (number, rule) in chain.rules.iter().enumerate() {
                rule.list(self.family, number + 1, counters(index, Some(number)), options, &mut out);
            }
        }
        out
    }

    /// [`RuleSet::list`] with the counters of the file.
    pub fn list_saved(&self, options: ListOptions) -> String {
        self.list(options, |chain, rule| {
            let chain = self.filter().and_then(|table| table.chains.get(chain));
            let counters = match rule {
                Some(rule) => chain.and_then(|chain| chain.rules.get(rule)).map(|rule| rule.counters),
                None => chain.map(|chain| chain.counters),
            };
            counters.unwrap_or_default()
        })
    }
}

impl Table {
    fn list_header(&self, chain: &Chain, counters: Counters, options: ListOptions, out: &mut String) {
        let _ = write!(out, "Chain {} (", chain.name);
        let _ = match chain.policy {
            None => write!(out, "{} references", self.references(&chain.name)),
            Some(policy) => write!(out, "policy {}", policy.name()),
        };
        if chain.policy.is_some() && options.verbose {
            out.push(' ');
            number(counters.packets, options.exact, 0, out);
            out.push_str("packets, ");
            number(counters.octets, options.exact, 0, out);
            out.push_str("bytes");
        }
        out.push_str(")\n");
        if options.line_numbers {
            out.push_str("num  ");
        }
        if options.verbose {
            out.push_str(if options.exact { "    pkts      bytes " } else { " pkts bytes " });
        }
        out.push_str("target     prot opt");
        if options.verbose {
            out.push_str(" in     out    ");
        }
        out.push_str(" source               destination         \n");
    }
}

/// A counter and a blank, right in `width` columns; unless exact, from 100,000 on in thousands, and so on.
fn number(value: u64, exact: bool, width: usize, out: &mut String) {
    let round = |value: u64| (value / 1_000).saturating_add(u64::from(value % 1_000 >= 500));
    if exact || value <= 99_999 {
        let _ = write!(out, "{value:width$} ");
        return;
    }
    let mut value = round(value);
    for unit in ['K', 'M', 'G'] {
        if value <= 9_999 {
            let width = width.saturating_sub(1);
            let _ = write!(out, "{value:width$}{unit} ");
            return;
        }
        value = round(value);
    }
    let width = width.saturating_sub(1);
    let _ = write!(out, "{value:width$}T ");
}

/// Left in `width` octets; iptables counts octets, not characters.
fn padded(text: &str, width: usize, out: &mut String) {
    out.push_str(text);
    (text.len()..width).for_each(|_| out.push(' '));
}

impl Rule {
    fn list(&self, family: Family, line: usize, counters: Counters, options: ListOptions, out: &mut String) {
        if options.line_numbers {
            let _ = write!(out, "{line:<4} ");
        }
        if options.verbose {
            let width = if options.exact { 8 } else { 5 };
            number(counters.packets, options.exact, width, out);
            number(counters.octets, options.exact, width, out);
        }
        padded(self.target.name(), 9, out);
        out.push(' ');
        self.head.list(family, options, out);
        if matches!(self.target, Target::Goto(_)) {
            out.push_str("[goto] ");
        }
        for matched in &self.matches {
            matched.test.extension().list(out);
        }
        self.target.list(out);
        out.push('\n');
    }
}

impl Head {
    fn list(&self, family: Family, options: ListOptions, out: &mut String) {
        let mark = |negated: bool| if negated { '!' } else { ' ' };
        let protocol = self.protocol.unwrap_or(Not { negated: false, value: 0 });
        let _ = write!(out, "{}{:<4} ", mark(protocol.negated), protocol.value);
        out.push_str(match self.fragment {
            None => "--",
            Some(Not { negated: false, .. }) => "-f",
            Some(Not { negated: true, .. }) => "!f",
        });
        out.push(' ');
        if options.verbose {
            for (interface, before) in [(&self.in_interface, " "), (&self.out_interface, "")] {
                let text = interface.as_ref().map_or_else(
                    || "*".to_owned(),
                    |interface| format!("{}{}", interface.mark(), interface.value.text()),
                );
                out.push_str(before);
                padded(&text, 6, out);
                out.push(' ');
            }
        }
        let any = if family == Family::Ipv4 { "0.0.0.0/0" } else { "::/0" };
        for network in [&self.source, &self.destination] {
            let text = network.as_ref().map_or_else(|| any.to_owned(), |network| network.value.list());
            out.push(mark(network.is_some_and(|network| network.negated)));
            padded(&text, 19, out);
            out.push(' ');
        }
    }
}
