//! The options of one rule, from words to [`Rule`]s.

use super::error::{ErrorKind, Origin, RuleError};
use super::lexer::Word;
use super::matches::{Given, Match, Spec};
use super::refused;
use super::syntax::{Counters, Family, Matched, Network, Not, Rule, Target};
use super::values;

/// Options of every rule.
const HEAD: &[Spec] = &[
    Spec { names: &["-s", "--source", "--src"], values: 1, negatable: true },
    Spec { names: &["-d", "--destination", "--dst"], values: 1, negatable: true },
    Spec { names: &["-i", "--in-interface"], values: 1, negatable: true },
    Spec { names: &["-o", "--out-interface"], values: 1, negatable: true },
    Spec { names: &["-p", "--protocol", "--proto"], values: 1, negatable: true },
    Spec { names: &["-f", "--fragment"], values: 0, negatable: true },
    Spec { names: &["-m", "--match"], values: 1, negatable: false },
    Spec { names: &["-j", "--jump"], values: 1, negatable: false },
    Spec { names: &["-g", "--goto"], values: 1, negatable: false },
    Spec { names: &["-c", "--set-counters"], values: 2, negatable: false },
];

/// Longest list behind `-s` or `-d`: two of them make a rule for each pair.
const LIST_MAX: usize = 256;

fn find(specs: &'static [Spec], name: &str) -> Option<&'static Spec> {
    specs.iter().find(|spec| spec.names.contains(&name))
}

/// Whose option it is.
enum Owner {
    Head,
    Match(usize),
    Target,
}

/// A rule while its words are read.
pub(super) struct Builder<'w, 'a> {
    family: Family,
    chain: &'w str,
    words: &'w [Word<'a>],
    at: usize,
    rule: Rule,
    /// Of `-s` and `-d`: they may be lists, of which each member makes a rule of its own.
    sources: Vec<Network>,
    destinations: Vec<Network>,
    /// Options of the target that were there.
    target_options: Vec<&'static str>,
    target_word: Option<&'w Word<'a>>,
    /// Something unknown or refused was named; its options are unknown too, and no errors of their own.
    skipping: bool,
    /// Matches of which an option was bad: what they miss is no error of its own.
    failed: Vec<usize>,
    errors: &'w mut Vec<RuleError>,
}

/// A rule with errors.
pub(super) struct Faulty {
    /// At least one.
    pub errors: Vec<RuleError>,
    /// The name behind `-j` or `-g`, be it honoured or not; empty: none.
    pub target: String,
}

/// Reads the options behind `-A CHAIN`.
pub(super) fn rules(
    family: Family,
    chain: &str,
    start: &Word<'_>,
    words: &[Word<'_>],
    counters: Counters,
) -> Result<Vec<Rule>, Faulty> {
    let mut errors = Vec::new();
    let mut builder = Builder {
        family,
        chain,
        words,
        at: 0,
        rule: Rule { counters, origin: Origin(start.position), ..Rule::default() },
        sources: Vec::new(),
        destinations: Vec::new(),
        target_options: Vec::new(),
        target_word: None,
        skipping: false,
        failed: Vec::new(),
        errors: &mut errors,
    };
    builder.read();
    builder.finish(start);
    let target = builder.target_word.map(|word| word.text.rsplit('=').next().unwrap_or_default().to_owned());
    let built = builder.expand();
    if errors.is_empty() { Ok(built) } else { Err(Faulty { errors, target: target.unwrap_or_default() }) }
}

impl<'w, 'a> Builder<'w, 'a> {
    fn read(&mut self) {
        while self.at < self.words.len() {
            if let Err(error) = self.option() {
                self.errors.push(error);
            }
        }
    }

    /// Reads `[!] --option [values]`.
    fn option(&mut self) -> Result<(), RuleError> {
        let mut negation = None;
        while let Some(word) = self.words.get(self.at).filter(|word| word.is("!")) {
            self.at += 1;
            if negation.replace(word).is_some() {
                return Err(RuleError::at(word, ErrorKind::Syntax, "a second negation", "leave one ! or none"));
            }
        }
        let Some(word) = self.words.get(self.at) else {
            let Some(word) = negation else { return Ok(()) };
            return Err(RuleError::at(word, ErrorKind::Syntax, "a negation of nothing", "put an option behind it"));
        };
        self.at += 1;
        if !word.is_option() {
            if self.skipping {
                return Ok(());
            }
            let remedy = "put the option that it belongs to in front of it, or quotes around a text with blanks";
            return Err(RuleError::at(word, ErrorKind::Syntax, "a word that belongs to no option", remedy));
        }
        // getopt takes --option=value too.
        let (name, value) = match word.text.split_once('=').filter(|_| word.text.starts_with("--")) {
            Some((name, value)) => (name, Some(word.part(value))),
            None => (word.text.as_ref(), None),
        };
        let Some((spec, owner)) = self.resolve(name) else { return self.unknown(word, name) };
        if matches!(owner, Owner::Head) {
            self.skipping = false;
        }
        if let Some(negation) = negation.filter(|_| !spec.negatable) {
            self.at = (self.at + spec.values).min(self.words.len());
            // Errors of what depends on it would only repeat this one.
            match owner {
                Owner::Match(index) => self.failed.push(index),
                Owner::Head if spec.names[0] == "-m" => self.skipping = true,
                _ => {}
            }
            let reason = format!("{name} cannot be negated");
            return Err(RuleError::at(negation, ErrorKind::Conflict, reason, "remove the !"));
        }
        let joined;
        let values: &[Word<'_>] = match value {
            Some(value) if spec.values == 1 => {
                joined = [value];
                &joined
            }
            Some(_) => {
                let reason = format!("{name} takes {} values, not one behind =", spec.values);
                return Err(RuleError::at(word, ErrorKind::Syntax, reason, "put blanks between them"));
            }
            None => self.values(word, spec)?,
        };
        let given = Given { name: spec.names[0], negated: negation.is_some(), word, values, family: self.family };
        match owner {
            Owner::Head => self.take_head(&given),
            Owner::Match(index) => {
                let taken = self.rule.matches[index].test.extension_mut().take(&given);
                if taken.is_err() {
                    self.failed.push(index);
                }
                taken
            }
            Owner::Target => self.take_target(&given),
        }
    }

    /// The values behind an option.
    fn values(&mut self, word: &Word<'_>, spec: &Spec) -> Result<&'w [Word<'a>], RuleError> {
        let words = self.words;
        let values = &words[self.at..(self.at + spec.values).min(words.len())];
        if values.len() < spec.values {
            self.at = words.len();
            let remedy = format!("put {} behind it", if spec.values == 1 { "a value" } else { "two values" });
            return Err(RuleError::at(word, ErrorKind::Missing, "its value is missing", remedy));
        }
        if let Some(old) = values.iter().find(|value| value.is("!")) {
            self.at = (self.at + spec.values + 1).min(words.len());
            let remedy = format!("write ! {} VALUE", word.text);
            return Err(RuleError::at(old, ErrorKind::Syntax, "a negation between an option and its value", remedy));
        }
        self.at += spec.values;
        Ok(values)
    }

    /// Who knows an option: the rule, the latest match that has it, the target, or a match that the protocol brings along.
    fn resolve(&mut self, name: &str) -> Option<(&'static Spec, Owner)> {
        if let Some(spec) = find(HEAD, name) {
            return Some((spec, Owner::Head));
        }
        for (index, matched) in self.rule.matches.iter().enumerate().rev() {
            if let Some(spec) = find(matched.test.extension().options(), name) {
                return Some((spec, Owner::Match(index)));
            }
        }
        if let Some(spec) = find(self.rule.target.options(), name) {
            return Some((spec, Owner::Target));
        }
        // `-p tcp --dport 80` without -m tcp.
        let protocol = self.rule.head.protocol.filter(|protocol| !protocol.negated)?;
        let brought = Match::of_protocol(protocol.value, self.family)?;
        if self.rule.matches.iter().any(|matched| matched.test.name() == brought.name()) {
            return None;
        }
        let spec = find(brought.extension().options(), name)?;
        self.rule.matches.push(Matched { test: brought, origin: self.rule.origin });
        Some((spec, Owner::Match(self.rule.matches.len() - 1)))
    }

    fn unknown(&mut self, word: &Word<'_>, name: &str) -> Result<(), RuleError> {
        // Words up to the next option are its values.
        while self.words.get(self.at).is_some_and(|word| !word.is_option() && !word.is("!")) {
            self.at += 1;
        }
        if self.skipping {
            return Ok(());
        }
        let remedy = match (name, refused::match_with_option(name)) {
            ("-t" | "--table", _) => "the table is named by the line *TABLE; remove it".to_owned(),
            (_, Some(bringer)) => format!("put {bringer} in front of it"),
            _ => "correct it, or name the match that it belongs to with -m".to_owned(),
        };
        Err(RuleError::at(word, ErrorKind::UnknownOption, "this option is not known here", remedy))
    }

    fn take_head(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let head = &mut self.rule.head;
        match given.name {
            "-s" => networks(given, &mut head.source, &mut self.sources),
            "-d" => networks(given, &mut head.destination, &mut self.destinations),
            "-i" | "-o" => {
                let incoming = given.name == "-i";
                let place = if incoming { &mut head.in_interface } else { &mut head.out_interface };
                let Some(interface) = values::interface(word)? else {
                    // Every interface; the kernel would take ! + for every interface, too.
                    return if given.negated { Err(nothing(word, "interface")) } else { Ok(()) };
                };
                given.put(place, interface)?;
                wrong_chain(given.word, incoming, self.chain)
            }
            "-p" => match values::protocol(word)? {
                0 if given.negated => Err(nothing(word, "protocol")),
                0 => Ok(()),
                protocol => given.put(&mut head.protocol, protocol),
            },
            "-f" if self.family == Family::Ipv6 => {
                let reason = "-f is for IPv4 only";
                Err(RuleError::at(given.word, ErrorKind::Value, reason, "use -m frag"))
            }
            "-f" => given.put(&mut head.fragment, ()),
            "-m" => self.take_match(word),
            "-c" => {
                let number = |word: &Word<'_>| values::number_in(word, 0, u64::MAX);
                if let [packets, octets] = given.values {
                    self.rule.counters = Counters { packets: number(packets)?, octets: number(octets)? };
                }
                Ok(())
            }
            _ => self.name_target(given),
        }
    }

    fn take_match(&mut self, word: &Word<'_>) -> Result<(), RuleError> {
        if let Some(test) = Match::new(&word.text, self.family) {
            self.rule.matches.push(Matched { test, origin: Origin(word.position) });
            return Ok(());
        }
        self.skipping = true;
        Err(match refused::match_reason(&word.text, self.family) {
            Some((reason, remedy)) => RuleError::at(word, ErrorKind::NotHonoured, reason, remedy),
            None => RuleError::at(word, ErrorKind::UnknownOption, "no match of this name", "correct the name"),
        })
    }

    fn name_target(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let name = word.text.as_ref();
        if self.target_word.is_some() {
            let reason = "a second target";
            return Err(RuleError::at(given.word, ErrorKind::Conflict, reason, "write two rules"));
        }
        self.rule.target_origin = Origin(word.position);
        // The words live longer than this call; the one of --jump=NAME does not.
        self.target_word = self.words.get(self.at.saturating_sub(1));
        let target = Target::new(name, self.family);
        match (given.name, target) {
            ("-j", Some(Target::Seg6(_))) if self.family == Family::Ipv4 => {
                let reason = "SEG6 acts on the segment list of an IPv6 packet";
                let remedy = "put the rule into a file for ip6tables; of a label stack, write MPLS";
                Err(RuleError::at(word, ErrorKind::NotHonoured, reason, remedy))
            }
            ("-j", Some(target)) => {
                self.rule.target = target;
                Ok(())
            }
            ("-g", Some(_)) => {
                let reason = "goto needs a chain, this is a target";
                Err(RuleError::at(word, ErrorKind::Chain, reason, format!("write -j {name}")))
            }
            (option, None) => {
                if let Some((reason, remedy)) = refused::target_reason(name) {
                    self.skipping = true;
                    return Err(RuleError::at(word, ErrorKind::NotHonoured, reason, remedy));
                }
                let goto = option == "-g";
                self.rule.target = if goto { Target::Goto(name.to_owned()) } else { Target::Jump(name.to_owned()) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_target(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let twice = self.target_options.contains(&given.name);
        let second_mark = matches!(self.rule.target, Target::Mark { .. }) && !self.target_options.is_empty();
        if twice || second_mark {
            let reason = if twice { "given before" } else { "MARK does one thing only" };
            return Err(RuleError::at(given.word, ErrorKind::Conflict, reason, "remove one, or write two rules"));
        }
        self.target_options.push(given.name);
        self.rule.target.take(given)
    }

    /// Checks what can be seen only at the end.
    fn finish(&mut self, start: &Word<'_>) {
        for (index, matched) in self.rule.matches.iter_mut().enumerate() {
            if self.failed.contains(&index) {
                continue;
            }
            if let Err((kind, reason, remedy)) = matched.test.extension_mut().finish(&self.rule.head) {
                let place = matched.origin.0;
                self.errors.push(RuleError::about(place, matched.test.name(), kind, reason, remedy));
            }
        }
        if let Err((reason, remedy)) = self.rule.target.finish(&self.rule.head, &self.target_options) {
            let word = self.target_word.unwrap_or(start);
            self.errors.push(RuleError::at(word, ErrorKind::Missing, reason, remedy));
        }
    }

    /// One rule for each source and destination, as iptables makes them.
    fn expand(self) -> Vec<Rule> {
        if self.sources.len() <= 1 && self.destinations.len() <= 1 {
            return vec![self.rule];
        }
        let each = |list: &[Network], single: Option<Not<Network>>| match list {
            [] => vec![single],
            list => list.iter().map(|value| Some(Not { negated: false, value: *value }).filter(kept)).collect(),
        };
        let mut rules = Vec::new();
        for source in each(&self.sources, self.rule.head.source) {
            for destination in each(&self.destinations, self.rule.head.destination) {
                let mut rule = self.rule.clone();
                (rule.head.source, rule.head.destination) = (source, destination);
                rules.push(rule);
            }
        }
        rules
    }
}

/// Every address is no test, unless negated.
fn kept(network: &Not<Network>) -> bool {
    network.negated || !network.value.is_any()
}

fn networks(given: &Given<'_, '_>, place: &mut Option<Not<Network>>, list: &mut Vec<Network>) -> Result<(), RuleError> {
    let word = given.value();
    if place.is_some() || !list.is_empty() {
        return Err(RuleError::at(given.word, ErrorKind::Conflict, "given before", "write one list, or two rules"));
    }
    let networks = word.text.split(',').map(|part| values::network(&word.part(part), given.family));
    let networks = networks.collect::<Result<Vec<_>, _>>()?;
    if let [network] = networks[..] {
        *place = Some(given.not(network.masked())).filter(kept);
        return Ok(());
    }
    if given.negated {
        let reason =
            "a list cannot be negated: its members become rules of their own, and every packet would match one";
        return Err(RuleError::at(word, ErrorKind::Conflict, reason, "use a set"));
    }
    if networks.len() > LIST_MAX {
        let reason = format!("a list of {} addresses", networks.len());
        return Err(RuleError::value(word, reason, format!("give at most {LIST_MAX}, or use a set")));
    }
    *list = networks.into_iter().map(Network::masked).collect();
    Ok(())
}

fn nothing(word: &Word<'_>, what: &str) -> RuleError {
    let reason = format!("there is no other {what}, so the rule would match nothing");
    RuleError::value(word, reason, "remove the rule")
}

/// Packets that come in to the node itself have no way out yet, and so on.
fn wrong_chain(word: &Word<'_>, incoming: bool, chain: &str) -> Result<(), RuleError> {
    let wrong = match chain {
        "INPUT" | "PREROUTING" => !incoming,
        "OUTPUT" | "POSTROUTING" => incoming,
        _ => false,
    };
    if wrong {
        let reason = format!("packets in {chain} have no such interface");
        return Err(RuleError::at(word, ErrorKind::Conflict, reason, "remove it"));
    }
    Ok(())
}
