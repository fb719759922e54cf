//! Whole files: tables, chains and rules, line by line.

use std::collections::HashMap;

use super::check;
use super::error::{ErrorKind, Origin, RuleError, RuleErrors};
use super::foreign::Foreign;
use super::lexer::{self, Word};
use super::lower::Warning;
use super::reach;
use super::refused;
use super::rule;
use super::syntax::{Chain, Counters, Family, Policy, RuleSet, Table};
use super::values;

/// Longest name of a chain, as in iptables.
pub(super) const CHAIN_NAME_MAX: usize = 28;

/// Reads a file as `iptables-save` (or `ip6tables-save`) writes it, with or without `-c`; or what `iptables -S` prints. `file` is
/// only for the errors.
///
/// # Errors
///
/// All that is wrong, and all that cannot be honoured, in the order of lines.
pub fn parse_rules(source: &str, file: &str, family: Family) -> Result<RuleSet, RuleErrors> {
    parse_rules_for(source, file, family, Reading::default()).map(|(rules, _)| rules)
}

/// As [`parse_rules`], for one hook and with what may be skipped; and what the operator should know about what was.
///
/// # Errors
///
/// As [`parse_rules`], without what [`Reading`] turns into warnings.
pub fn parse_rules_for(
    source: &str,
    file: &str,
    family: Family,
    reading: Reading<'_>,
) -> Result<(RuleSet, Vec<Warning>), RuleErrors> {
    let mut parser = Parser::new(family, reading);
    for (index, line) in source.lines().enumerate() {
        parser.line = u32::try_from(index + 1).unwrap_or(u32::MAX);
        parser.read_line(line);
    }
    parser.end();
    parser.finish(file)
}

/// How a file is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading<'a> {
    /// The built-in chain that packets enter by. What cannot be honoured in chains that it does not lead to is a warning. None:
    /// every chain counts.
    pub hook: Option<&'a str>,
    /// Tables other than `filter` are skipped, and so are rules that cannot be honoured, where the others let no more packets pass
    /// without them: those that accept, and those that decide nothing. Each is a warning.
    pub skip: bool,
}

/// A table that is being read.
struct Open {
    table: Table,
    /// Index of each chain by name.
    chains: HashMap<String, usize>,
    /// Begun by `*NAME`, so it ends with COMMIT.
    named: Option<RuleError>,
    /// Not honoured: rules are only counted.
    foreign: Option<Foreign>,
    /// Rules with errors, and the chain of each.
    faulty: Vec<(String, rule::Faulty)>,
}

/// The state behind the lines that were read; the YAML form uses it, too.
pub(super) struct Parser<'r> {
    family: Family,
    reading: Reading<'r>,
    warnings: Vec<Warning>,
    tables: Vec<Table>,
    open: Option<Open>,
    errors: Vec<RuleError>,
    line: u32,
}

/// Built-in chains of a table. None: no such table.
fn built_in(table: &str) -> Option<&'static [&'static str]> {
    Some(match table {
        "filter" | "security" => &["INPUT", "FORWARD", "OUTPUT"],
        "mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        "raw" => &["PREROUTING", "OUTPUT"],
        _ => return None,
    })
}

impl<'r> Parser<'r> {
    fn new(family: Family, reading: Reading<'r>) -> Self {
        let (tables, errors, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Self { family, reading, tables, open: None, errors, warnings, line: 0 }
    }

    /// With the table `filter` open and no lines to come.
    pub(super) fn of_filter(family: Family, reading: Reading<'r>) -> Self {
        let mut parser = Self::new(family, reading);
        parser.start("filter", None);
        parser
    }

    /// A chain with its policy, or a user chain without. The built-in ones are there; they need no policy.
    pub(super) fn declare_chain(&mut self, name: &Word<'_>, policy: Option<&'static str>) {
        let family = self.family;
        let Some(open) = &mut self.open else { return };
        let built_in =
            open.chains.get(name.text.as_ref()).is_some_and(|chain| open.table.chains[*chain].policy.is_some());
        let result = match policy {
            Some(policy) => {
                let word = Word { text: policy.into(), position: name.position, quoted: false };
                open.set_policy(name, &word, Counters::default())
            }
            None if built_in => Ok(()),
            None => open.create(name, family),
        };
        self.errors.extend(result.err());
    }

    /// A rule at the end of a chain that was declared.
    pub(super) fn add_rule(&mut self, chain: &Word<'_>, words: &[Word<'_>]) {
        if self.open.as_ref().is_some_and(|open| open.chains.contains_key(chain.text.as_ref())) {
            let result = self.rule(chain, words, None, Counters::default());
            self.errors.extend(result.err());
        }
    }

    /// Closes the table.
    pub(super) fn finish(mut self, file: &str) -> Result<(RuleSet, Vec<Warning>), RuleErrors> {
        self.close();
        RuleErrors::check(file, self.errors)?;
        self.warnings.sort_by_key(|warning| warning.position);
        Ok((RuleSet { family: self.family, tables: self.tables }, self.warnings))
    }

    fn read_line(&mut self, line: &str) {
        let words = match lexer::words(line, self.line) {
            Ok(words) => words,
            Err(error) => return self.errors.push(error),
        };
        let [first, rest @ ..] = &words[..] else { return };
        let result = match first.text.chars().next() {
            Some('#') if !first.quoted => Ok(()),
            Some('*') if !first.quoted => self.begin(first, rest),
            Some(':') if !first.quoted => self.declare(first, rest),
            _ if first.is("COMMIT") => self.commit(first, rest),
            _ => self.command(&words),
        };
        if let Err(error) = result {
            self.errors.push(error);
        }
    }

    /// `*TABLE`.
    fn begin(&mut self, word: &Word<'_>, rest: &[Word<'_>]) -> Result<(), RuleError> {
        self.close_unfinished();
        let name = word.text[1..].to_owned();
        let known = built_in(&name).is_some();
        let twice = self.tables.iter().any(|table| table.name == name);
        let remedy = "put it at the end of the table";
        let unfinished = RuleError::at(word, ErrorKind::Syntax, "this table has no COMMIT", remedy);
        self.start(&name, Some(unfinished));
        no_more(rest)?;
        if !known {
            let remedy = "write *filter; others are mangle, nat, raw and security";
            return Err(RuleError::at(word, ErrorKind::Table, "no table of this name", remedy));
        }
        if twice {
            return Err(RuleError::at(word, ErrorKind::Table, "this table was there before", "make one of the two"));
        }
        Ok(())
    }

    fn start(&mut self, name: &str, named: Option<RuleError>) -> &mut Open {
        let mut open = Open {
            table: Table { name: name.to_owned(), chains: Vec::new() },
            chains: HashMap::new(),
            named,
            foreign: (name != "filter").then(Foreign::default),
            faulty: Vec::new(),
        };
        for chain in built_in(name).unwrap_or_default() {
            open.add(Chain { name: (*chain).to_owned(), policy: Some(Policy::Accept), ..Chain::default() });
        }
        self.open.insert(open)
    }

    /// The open table; of the form of `iptables -S`, which names none, `filter`.
    fn table(&mut self, word: &Word<'_>) -> Result<&mut Open, RuleError> {
        if self.open.is_none() {
            if !self.tables.is_empty() {
                let remedy = "put it between *TABLE and COMMIT";
                return Err(RuleError::at(word, ErrorKind::Syntax, "this line is in no table", remedy));
            }
            self.start("filter", None);
        }
        self.open.as_mut().ok_or_else(|| RuleError::at(word, ErrorKind::Syntax, "no table", "begin with *filter"))
    }

    /// `:CHAIN POLICY [packets:octets]`.
    fn declare(&mut self, word: &Word<'_>, rest: &[Word<'_>]) -> Result<(), RuleError> {
        let family = self.family;
        let name = word.part(&word.text[1..]);
        let (policy, rest) = match rest {
            [policy, rest @ ..] => (policy, rest),
            [] => {
                let remedy = "write :CHAIN ACCEPT, :CHAIN DROP, or :CHAIN - for a user chain";
                return Err(RuleError::at(word, ErrorKind::Missing, "the policy is missing", remedy));
            }
        };
        let counters = match rest {
            [counters, rest @ ..] => {
                no_more(rest)?;
                counters_of(counters)?
            }
            [] => Counters::default(),
        };
        let open = self.table(word)?;
        if policy.is("-") {
            return open.create(&name, family);
        }
        open.set_policy(&name, policy, counters)
    }

    fn commit(&mut self, word: &Word<'_>, rest: &[Word<'_>]) -> Result<(), RuleError> {
        no_more(rest)?;
        if self.open.as_ref().is_none_or(|open| open.named.is_none()) {
            let reason = "a COMMIT without a table";
            return Err(RuleError::at(word, ErrorKind::Syntax, reason, "remove it, or put *filter at the beginning"));
        }
        self.close();
        Ok(())
    }

    /// `[packets:octets] -A CHAIN ...` and the other commands.
    fn command(&mut self, words: &[Word<'_>]) -> Result<(), RuleError> {
        let [first, rest @ ..] = words else { return Ok(()) };
        if !first.quoted && first.text.starts_with('[') {
            let counters = counters_of(first)?;
            let Some((command, rest)) = rest.split_first() else {
                let remedy = "put the rule behind them";
                return Err(RuleError::at(first, ErrorKind::Syntax, "counters without a rule", remedy));
            };
            return self.run(command, rest, counters);
        }
        self.run(first, rest, Counters::default())
    }

    fn run(&mut self, command: &Word<'_>, rest: &[Word<'_>], counters: Counters) -> Result<(), RuleError> {
        let family = self.family;
        match (command.text.as_ref(), rest) {
            ("-A" | "--append" | "-I" | "--insert" | "-N" | "--new-chain" | "-P" | "--policy", []) => {
                let remedy = "put the name of a chain behind it";
                Err(RuleError::at(command, ErrorKind::Missing, "the chain is missing", remedy))
            }
            ("-A" | "--append", [chain, rest @ ..]) => self.rule(chain, rest, None, counters),
            ("-I" | "--insert", [chain, number, rest @ ..]) if values::number(&number.text).is_some() => {
                let place = values::number_in(number, 1, u64::from(u32::MAX))? as usize;
                self.rule(chain, rest, Some((number, place)), counters)
            }
            ("-I" | "--insert", [chain, rest @ ..]) => self.rule(chain, rest, Some((command, 1)), counters),
            ("-N" | "--new-chain", [chain, rest @ ..]) => {
                no_more(rest)?;
                self.table(command)?.create(chain, family)
            }
            ("-P" | "--policy", [chain, policy, rest @ ..]) => {
                // `iptables -v -S` puts the counters behind -c.
                let counters = match rest {
                    [option, packets, octets] if option.is("-c") => Counters {
                        packets: values::number_in(packets, 0, u64::MAX)?,
                        octets: values::number_in(octets, 0, u64::MAX)?,
                    },
                    rest => {
                        no_more(rest)?;
                        Counters::default()
                    }
                };
                self.table(command)?.set_policy(chain, policy, counters)
            }
            ("-P" | "--policy", _) => {
                Err(RuleError::at(command, ErrorKind::Missing, "the policy is missing", "put ACCEPT or DROP behind it"))
            }
            (name, _) if name.starts_with('-') => {
                let reason = "a file says what the rules are, not how to change them";
                let remedy = "load it with iptables-restore once, and take what iptables-save prints";
                Err(RuleError::at(command, ErrorKind::Syntax, reason, remedy))
            }
            _ => {
                let remedy = "lines are *TABLE, :CHAIN POLICY, -A CHAIN RULE, COMMIT and comments behind #";
                Err(RuleError::at(command, ErrorKind::Syntax, "this is no line of a rule file", remedy))
            }
        }
    }

    /// A rule for a chain, at the end or in front of the rule with that number.
    fn rule(
        &mut self,
        chain: &Word<'_>,
        rest: &[Word<'_>],
        place: Option<(&Word<'_>, usize)>,
        counters: Counters,
    ) -> Result<(), RuleError> {
        let family = self.family;
        let open = self.table(chain)?;
        if let Some(foreign) = &mut open.foreign {
            foreign.add(chain, rest);
            return Ok(());
        }
        let found = open.chains.get(chain.text.as_ref()).copied();
        let mut rules = match rule::rules(family, &chain.text, chain, rest, counters) {
            Ok(rules) => rules,
            Err(faulty) => {
                open.faulty.push((chain.text.to_string(), faulty));
                Vec::new()
            }
        };
        let Some(index) = found else {
            let reason = "there is no such chain";
            let remedy = format!("declare it in front of its first rule: :{} - [0:0]", chain.text);
            return Err(RuleError::at(chain, ErrorKind::Chain, reason, remedy));
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        let there = &mut open.table.chains[index].rules;
        match place {
            None => there.append(&mut rules),
            Some((_, number)) if number <= there.len() + 1 => {
                there.splice(number - 1..number - 1, rules);
            }
            Some((word, _)) => {
                let reason = format!("{} has only {} rules yet", chain.text, there.len());
                return Err(RuleError::value(word, reason, format!("give at most {}", there.len() + 1)));
            }
        }
        Ok(())
    }

    fn close_unfinished(&mut self) {
        if let Some(error) = self.open.as_mut().and_then(|open| open.named.take()) {
            self.errors.push(error);
        }
        self.close();
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if let Some(foreign) = &open.foreign {
            if self.reading.skip {
                self.warnings.extend(foreign.warnings(&open.table));
                return;
            }
            self.errors.extend(foreign.refusal(&open.table, self.family));
        } else if let Some(hook) = self.reading.hook {
            reach::mark(&mut open.table, &open.chains, hook, &open.faulty);
        }
        for (chain, faulty) in open.faulty {
            let unreached = open.chains.get(&chain).is_some_and(|index| open.table.chains[*index].unreached);
            self.judge(&chain, faulty, unreached);
        }
        check::chains(&open.table, &open.chains, &mut self.errors);
        self.tables.push(open.table);
    }

    /// Errors of a rule, or warnings where it may be left out.
    fn judge(&mut self, chain: &str, faulty: rule::Faulty, unreached: bool) {
        let all = |kinds: &[ErrorKind]| faulty.errors.iter().all(|error| kinds.contains(&error.kind));
        let unknown = all(&[ErrorKind::NotHonoured, ErrorKind::UnknownOption]);
        let skipped = self.reading.skip && all(&[ErrorKind::NotHonoured]) && refused::may_be_skipped(&faulty.target);
        let why = match (unreached && unknown, skipped) {
            (true, _) => format!("{} does not lead to {chain}", self.reading.hook.unwrap_or_default()),
            (_, true) if faulty.target == "ACCEPT" => "what it accepts meets the rules behind it".to_owned(),
            (_, true) => "it decides about no packet".to_owned(),
            _ => return self.errors.extend(faulty.errors),
        };
        self.warnings.extend(faulty.errors.into_iter().map(|error| Warning {
            position: error.position,
            message: format!("this rule is left out ({why}): `{}`: {}", error.word, error.reason),
        }));
    }

    fn end(&mut self) {
        self.close_unfinished();
        if self.tables.is_empty() && self.errors.is_empty() {
            let place = super::error::Position { line: 1, column: 1 };
            if let Some(skipped) = self.warnings.first() {
                let reason = "all tables of this file are skipped, and none is *filter";
                let remedy = "add it, as `iptables-save -t filter` writes it";
                return self.errors.push(RuleError::about(skipped.position, "", ErrorKind::Table, reason, remedy));
            }
            let remedy = "write a table from *filter to COMMIT, as iptables-save does";
            self.errors.push(RuleError::about(place, "", ErrorKind::Syntax, "there are no rules in this file", remedy));
        }
    }
}

impl Open {
    fn add(&mut self, chain: Chain) {
        self.chains.insert(chain.name.clone(), self.table.chains.len());
        self.table.chains.push(chain);
    }

    /// A new user chain.
    fn create(&mut self, name: &Word<'_>, family: Family) -> Result<(), RuleError> {
        let bad = |reason: String, remedy: &str| Err(RuleError::at(name, ErrorKind::Chain, reason, remedy));
        let text = name.text.as_ref();
        if let Some(known) = self.chains.get(text) {
            return match self.table.chains[*known].policy {
                Some(_) => bad("a built-in chain needs a policy".to_owned(), "write ACCEPT or DROP instead of -"),
                None => bad("there is a chain of this name already".to_owned(), "remove one of the declarations"),
            };
        }
        if text.is_empty() || text.len() > CHAIN_NAME_MAX {
            let reason = format!("the name of a chain has {} octets", text.len());
            return bad(reason, &format!("{} takes 1 to {CHAIN_NAME_MAX}", family.program()));
        }
        if text.starts_with(['-', '!']) || text.contains(char::is_whitespace) {
            return bad("the name of a chain begins with - or !, or has a blank".to_owned(), "take another name");
        }
        if refused::is_target(text) {
            return bad("a chain with the name of a target could not be jumped to".to_owned(), "take another name");
        }
        self.add(Chain { name: text.to_owned(), origin: Origin(name.position), ..Chain::default() });
        Ok(())
    }

    fn set_policy(&mut self, name: &Word<'_>, policy: &Word<'_>, counters: Counters) -> Result<(), RuleError> {
        let policy_value = match policy.text.as_ref() {
            "ACCEPT" => Policy::Accept,
            "DROP" => Policy::Drop,
            _ => {
                return Err(RuleError::at(policy, ErrorKind::Value, "no policy", "write ACCEPT or DROP"));
            }
        };
        let chain = self.chains.get(name.text.as_ref()).map(|index| &mut self.table.chains[*index]);
        let Some(chain) = chain.filter(|chain| chain.policy.is_some()) else {
            let reason = format!("not a built-in chain of {}, so it can have no policy", self.table.name);
            let remedy = "write - instead, and a rule without match at the end of the chain";
            return Err(RuleError::at(name, ErrorKind::Chain, reason, remedy));
        };
        chain.policy = Some(policy_value);
        chain.counters = counters;
        chain.origin = Origin(name.position);
        Ok(())
    }
}

fn no_more(rest: &[Word<'_>]) -> Result<(), RuleError> {
    match rest {
        [] => Ok(()),
        [word, ..] => Err(RuleError::at(word, ErrorKind::Syntax, "a word too many on this line", "remove it")),
    }
}

/// `[packets:octets]`.
fn counters_of(word: &Word<'_>) -> Result<Counters, RuleError> {
    let numbers = word.text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let numbers = numbers.and_then(|numbers| numbers.split_once(':'));
    let decimal = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    numbers
        .and_then(|(packets, octets)| Some(Counters { packets: decimal(packets)?, octets: decimal(octets)? }))
        .ok_or_else(|| RuleError::at(word, ErrorKind::Syntax, "no counters", "write [packets:octets]"))
}
