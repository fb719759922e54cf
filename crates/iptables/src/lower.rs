//! From the syntax tree to the rule model ([`Program`]).

mod conditions;
mod members;
mod mpls;

use std::collections::HashMap;
use std::net::IpAddr;

use super::error::{ErrorKind, Origin, Position, RuleError, RuleErrors};
use super::matches::Match;
use super::sets::SetFile;
use super::syntax::{Chain, Family, Policy, Rule, RuleSet, Target};
use segue_classifier::program::{self, Action, Condition, Extension, Program, Verdict};

/// Which addresses `-s` and `-d` mean where a packet is encapsulated; SERA's two modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Those of the inner packet: rules written for plain traffic work on steered traffic as they are.
    #[default]
    Basic,
    /// Those of the outermost IPv6 header; `--inner-src` and `--inner-dst` are those of the inner packet. All other matches but
    /// those of `srh` are about the inner packet in both modes.
    Advanced,
}

/// An interface of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInterface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
}

/// What the node has that rules name: lower anew when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// For `-i`, `-o` and hash:net,iface.
    pub interfaces: Vec<NodeInterface>,
    /// Addresses of the node, for `addrtype` LOCAL. Loopback addresses need not be there.
    pub addresses: Vec<IpAddr>,
    /// Broadcast addresses of its IPv4 networks, for `addrtype` BROADCAST; 255.255.255.255 need not be there.
    pub broadcasts: Vec<std::net::Ipv4Addr>,
    /// First addresses of its IPv6 networks of at most 126 bits, for `addrtype` ANYCAST.
    pub anycasts: Vec<std::net::Ipv6Addr>,
}

impl Surroundings {
    /// Indexes of the interfaces of that name, or whose names begin so.
    fn indexes<'s>(&'s self, name: &'s str, wildcard: bool) -> impl Iterator<Item = u32> + 's {
        let fits = move |known: &str| if wildcard { known.starts_with(name) } else { known == name };
        self.interfaces.iter().filter(move |interface| fits(&interface.name)).map(|interface| interface.index)
    }
}

/// Something that is no error, but perhaps not what was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub position: Position,
    /// What.
    pub message: String,
}

/// A program and what its rules were made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lowered {
    /// The rules. Its chains are those of the table `filter`, in the same order.
    pub program: Program,
    /// For each chain and each of its rules in the program: which rule of the file it was made from. Most often they are the same;
    /// a positive `multiport --ports` needs two.
    pub origins: Vec<Vec<usize>>,
    /// What may not be meant.
    pub warnings: Vec<Warning>,
}

impl Lowered {
    /// Appends a program of the other family, so that one program has the chains of both. Returns the index of its first chain.
    ///
    /// A packet enters the base chain of its own family.
    pub fn append(&mut self, other: Self) -> usize {
        let (chains, sets) = (self.program.chains.len(), self.program.sets.len());
        for mut chain in other.program.chains {
            for rule in &mut chain.rules {
                match &mut rule.action {
                    Action::Jump(target) | Action::Goto(target) => *target += chains,
                    _ => {}
                }
                for extension in &mut rule.extensions {
                    if let Extension::Set { set, .. } = extension {
                        *set += sets;
                    }
                }
            }
            self.program.chains.push(chain);
        }
        self.program.sets.extend(other.program.sets);
        self.origins.extend(other.origins);
        self.warnings.extend(other.warnings);
        chains
    }
}

impl RuleSet {
    /// Makes the program of the table `filter`. `file` is only for the errors.
    ///
    /// An IPv4 file makes rules about IPv4 packets, but a rule without conditions holds for every packet: give IPv6 packets to the
    /// chains of an ip6tables file.
    ///
    /// # Errors
    ///
    /// Sets that are not there or do not fit, and what cannot be run together.
    pub fn lower(
        &self,
        sets: &SetFile,
        surroundings: &Surroundings,
        mode: Mode,
        file: &str,
    ) -> Result<Lowered, RuleErrors> {
        let chains = self.filter().map(|table| table.chains.as_slice()).unwrap_or_default();
        let mut lowering = Lowering {
            family: self.family,
            mode,
            files: sets,
            surroundings,
            chains: chains.iter().enumerate().map(|(index, chain)| (chain.name.as_str(), index)).collect(),
            sets: HashMap::new(),
            recents: HashMap::new(),
            lowered: Lowered::default(),
            errors: Vec::new(),
        };
        for chain in chains {
            lowering.chain(chain);
        }
        RuleErrors::check(file, lowering.errors)?;
        lowering.lowered.program.check().map_err(|error| {
            let position = Position { line: error.line.unwrap_or(1), column: 1 };
            let remedy = "see docs/using/firewall-rules.md for the limits";
            let error = RuleError::about(position, error.chain, ErrorKind::Chain, error.reason.to_string(), remedy);
            RuleErrors { file: file.to_owned(), errors: vec![error] }
        })?;
        Ok(lowering.lowered)
    }
}

/// A rule in the making.
#[derive(Default)]
struct Parts {
    /// Conditions of the rule; more than one list: the rule holds if one of them does, and at most one does.
    branches: Vec<Vec<Condition>>,
    extensions: Vec<Extension>,
}

impl Parts {
    fn push(&mut self, condition: Condition) {
        for branch in &mut self.branches {
            branch.push(condition.clone());
        }
    }
}

struct Lowering<'a> {
    family: Family,
    mode: Mode,
    files: &'a SetFile,
    surroundings: &'a Surroundings,
    chains: HashMap<&'a str, usize>,
    /// Sets of the program by name.
    sets: HashMap<&'a str, usize>,
    /// Masks of the lists of `-m recent` by name.
    recents: HashMap<&'a str, u128>,
    lowered: Lowered,
    errors: Vec<RuleError>,
}

impl<'a> Lowering<'a> {
    fn chain(&mut self, chain: &'a Chain) {
        let mut made = program::Chain {
            name: chain.name.clone(),
            rules: Vec::with_capacity(chain.rules.len()),
            policy: chain.policy.map(|policy| match policy {
                Policy::Accept => Verdict::Accept,
                Policy::Drop => Verdict::Drop,
            }),
        };
        let mut origins = Vec::with_capacity(chain.rules.len());
        let rules = if chain.unreached { &[] } else { chain.rules.as_slice() };
        for (index, rule) in rules.iter().enumerate() {
            match self.rule(chain, rule) {
                Ok(rules) => {
                    origins.resize(origins.len() + rules.len(), index);
                    made.rules.extend(rules);
                }
                Err(error) => self.errors.push(error),
            }
        }
        self.lowered.program.chains.push(made);
        self.lowered.origins.push(origins);
    }

    fn rule(&mut self, chain: &Chain, rule: &'a Rule) -> Result<Vec<program::Rule>, RuleError> {
        let mut parts = Parts { branches: vec![Vec::new()], extensions: Vec::new() };
        self.head(&rule.head, rule.origin, &mut parts);
        for (index, matched) in rule.matches.iter().enumerate() {
            self.test(&matched.test, matched.origin, &mut parts)?;
            self.warn_of_limit(rule, index);
        }
        let action = self.action(rule)?;
        let text = chain.rule_text(rule);
        let line = Some(rule.origin.0.line).filter(|line| *line > 0);
        let rules = parts.branches.into_iter().map(|conditions| program::Rule {
            conditions,
            extensions: parts.extensions.clone(),
            action: action.clone(),
            line,
            text: text.clone(),
        });
        Ok(rules.collect())
    }

    /// iptables takes a token as soon as it gets to the limit, here all conditions come first.
    fn warn_of_limit(&mut self, rule: &Rule, index: usize) {
        let is_limit = matches!(rule.matches[index].test, Match::Limit(_) | Match::HashLimit(_));
        let notes = matches!(rule.matches[index].test, Match::Recent(_));
        let behind = rule.matches[index + 1..].iter().find(|matched| !matches!(matched.test, Match::Comment(_)));
        if let Some(behind) = behind.filter(|_| notes) {
            let message = format!(
                "recent in front of {}: only packets that match all of the rule are noted, iptables would note one before \
                 it tests {0}",
                behind.test.name()
            );
            self.lowered.warnings.push(Warning { position: rule.matches[index].origin.0, message });
        }
        if let Some(behind) = behind.filter(|_| is_limit) {
            let message = format!(
                "a limit in front of {}: only packets that match all of the rule take a token, iptables would take one \
                 before it tests {0}",
                behind.test.name()
            );
            self.lowered.warnings.push(Warning { position: rule.matches[index].origin.0, message });
        }
    }

    fn action(&self, rule: &Rule) -> Result<Action, RuleError> {
        let chain = |name: &str| {
            self.chains.get(name).copied().ok_or_else(|| {
                let place = rule.target_origin.0;
                RuleError::about(place, name, ErrorKind::Chain, "there is no chain of this name", "declare it")
            })
        };
        Ok(match &rule.target {
            Target::Count => Action::Continue,
            Target::Accept => Action::Accept,
            Target::Drop => Action::Drop,
            Target::Return => Action::Return,
            Target::Jump(name) => Action::Jump(chain(name)?),
            Target::Goto(name) => Action::Goto(chain(name)?),
            Target::Reject(reject) => Action::Reject(*reject),
            Target::Log(log) => Action::Log(log.clone()),
            Target::Nflog(nflog) => Action::Nflog(nflog.common.clone()),
            Target::Mark { value, mask } => Action::Mark { value: *value, mask: *mask },
            Target::Seg6(action) => Action::Seg6(*action),
            Target::Mpls(action) => Action::Mpls(*action),
        })
    }

    fn warn(&mut self, origin: Origin, message: String) {
        self.lowered.warnings.push(Warning { position: origin.0, message });
    }
}
