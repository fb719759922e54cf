//! The rules of one firewall: read, and made into one program.

use std::collections::BTreeSet;
use std::ops::Range;

use segue_classifier::Program;
use segue_iptables::{
    Family, Lowered, Mode, NodeInterface, Reading, RuleSet, SetFile, Surroundings, Warning, parse_rules_for,
    parse_sets, parse_yaml_for,
};
use segue_model::firewall::{Firewall, FirewallMode, RuleFile, Unsupported};

use crate::Error;

/// What the rule files of a firewall say, whatever node they are for.
#[derive(Debug, Clone)]
pub struct Source {
    /// That for IPv4 first; at most one of each family.
    families: Vec<FamilyRules>,
    sets: SetFile,
    mode: Mode,
    hook: String,
}

/// The rules for one family.
#[derive(Debug, Clone)]
pub struct FamilyRules {
    /// As the file has them.
    pub rules: RuleSet,
    /// What was left out, where the firewall says `unsupported: skip`.
    pub skipped: Vec<Warning>,
    /// What the file is called in messages.
    pub file: String,
}

/// The program of a firewall on one node.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The chains of both families, those of IPv4 first, and what they were made from.
    pub lowered: Lowered,
    /// The chains of the IPv6 rules.
    pub ipv6: Range<usize>,
    /// The chain that IPv4 and that IPv6 packets enter by; None: there are no rules for the family, and its packets pass.
    base: [Option<usize>; 2],
    /// What the files for IPv4 and for IPv6 are called.
    files: [Option<String>; 2],
}

const fn position(family: Family) -> usize {
    match family {
        Family::Ipv4 => 0,
        Family::Ipv6 => 1,
    }
}

impl Source {
    /// Reads the texts of a firewall's files.
    ///
    /// # Errors
    /// A path without its text, all that is wrong with a file, and files that do not go together.
    pub fn parse(firewall: &Firewall) -> Result<Self, Error> {
        let mut sets = SetFile::default();
        for file in &firewall.sets {
            let more = parse_sets(text(file)?, file.name())?;
            if let Some(twice) = more.sets.iter().find(|set| sets.set(&set.name).is_some()) {
                return Err(Error::TwoSets { file: file.name().to_owned(), set: twice.name.clone() });
            }
            sets.sets.extend(more.sets);
        }
        let mode = match firewall.mode {
            FirewallMode::Basic => Mode::Basic,
            FirewallMode::Advanced => Mode::Advanced,
        };
        Ok(Self { families: families(firewall)?, sets, mode, hook: firewall.hook.clone() })
    }

    /// The rules of each family, those for IPv4 first.
    pub fn families(&self) -> &[FamilyRules] {
        &self.families
    }

    /// The rules of each family, those for IPv4 first, to change what they have counted.
    pub fn into_families(self) -> Vec<FamilyRules> {
        self.families
    }

    /// A node that has the interfaces that the rules name and nothing else: for a look at rules away from their node.
    pub fn named_interfaces(&self) -> Surroundings {
        let tables = self.families.iter().flat_map(|family| &family.rules.tables);
        let rules = tables.flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        let named = rules.flat_map(|rule| [&rule.head.in_interface, &rule.head.out_interface]).flatten();
        let names: BTreeSet<&str> = named.map(|interface| interface.value.name.as_str()).collect();
        let interfaces = names.into_iter().zip(1..).map(|(name, index)| NodeInterface { name: name.to_owned(), index });
        Surroundings { interfaces: interfaces.collect(), ..Surroundings::default() }
    }

    /// A program for the rules of each family alone.
    ///
    /// # Errors
    /// What cannot be run, file by file.
    pub fn lower_each(&self, surroundings: &Surroundings) -> Result<Vec<(&FamilyRules, Lowered)>, Error> {
        let mut all = Vec::with_capacity(self.families.len());
        for family in &self.families {
            let mut lowered = family.rules.lower(&self.sets, surroundings, self.mode, &family.file)?;
            lowered.warnings.splice(..0, family.skipped.iter().cloned());
            all.push((family, lowered));
        }
        Ok(all)
    }

    /// One program with the chains of both families.
    ///
    /// # Errors
    /// What cannot be run, file by file; a file without the built-in chain that packets enter by.
    pub fn lower(&self, surroundings: &Surroundings) -> Result<Rules, Error> {
        let mut all = Rules::default();
        for (family, lowered) in self.lower_each(surroundings)? {
            let mut chains = lowered.program.chains.iter();
            let hook = chains.position(|chain| chain.name == self.hook && chain.policy.is_some());
            let missing = || Error::NoHook { file: family.file.clone(), hook: self.hook.clone() };
            let hook = hook.ok_or_else(missing)?;
            let first = all.lowered.append(lowered);
            let position = position(family.rules.family);
            all.base[position] = Some(first + hook);
            all.files[position] = Some(family.file.clone());
            let end = all.lowered.program.chains.len();
            all.ipv6 = if family.rules.family == Family::Ipv6 { first..end } else { end..end };
        }
        Ok(all)
    }
}

impl Rules {
    /// The chain that packets of a family enter by. None: there are no rules for it, and its packets pass.
    pub fn base(&self, family: Family) -> Option<usize> {
        self.base[position(family)]
    }

    /// What the file with the rules for a family is called.
    pub fn file(&self, family: Family) -> Option<&str> {
        self.files[position(family)].as_deref()
    }

    /// All chains, and what their rules are.
    pub fn program(&self) -> &Program {
        &self.lowered.program
    }
}

fn families(firewall: &Firewall) -> Result<Vec<FamilyRules>, Error> {
    let reading = Reading { hook: Some(&firewall.hook), skip: firewall.unsupported == Unsupported::Skip };
    let mut found: Vec<FamilyRules> = Vec::new();
    let sources = [(&firewall.ipv4, Some(Family::Ipv4)), (&firewall.ipv6, Some(Family::Ipv6)), (&firewall.yaml, None)];
    for (file, family) in sources {
        let Some(file) = file else { continue };
        let (text, name) = (text(file)?, file.name());
        let (rules, skipped) = match family {
            Some(family) => parse_rules_for(text, name, family, reading)?,
            None => parse_yaml_for(text, name, reading)?,
        };
        if let Some(other) = found.iter().find(|other| other.rules.family == rules.family) {
            let family = rules.family;
            return Err(Error::TwoFiles { file: name.to_owned(), other: other.file.clone(), family });
        }
        found.push(FamilyRules { rules, skipped, file: name.to_owned() });
    }
    found.sort_by_key(|family| position(family.rules.family));
    Ok(found)
}

fn text(file: &RuleFile) -> Result<&str, Error> {
    file.text().ok_or_else(|| Error::NoText { file: file.name().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> RuleFile {
        RuleFile::Text { file: name.to_owned(), text: text.to_owned() }
    }

    const FORWARD: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j ACCEPT\nCOMMIT\n";

    #[test]
    fn both_families_are_one_program() {
        let both =
            Firewall { ipv4: Some(file("a.v4", FORWARD)), ipv6: Some(file("a.v6", FORWARD)), ..Firewall::default() };
        let source = Source::parse(&both).expect("rules");
        let rules = source.lower(&Surroundings::default()).expect("a program");
        assert_eq!((rules.base(Family::Ipv4), rules.base(Family::Ipv6), rules.ipv6.clone()), (Some(1), Some(4), 3..6));
        assert_eq!((rules.file(Family::Ipv4), rules.file(Family::Ipv6)), (Some("a.v4"), Some("a.v6")));
        let one = Firewall { ipv4: Some(file("a.v4", FORWARD)), ..Firewall::default() };
        let rules = Source::parse(&one).expect("rules").lower(&Surroundings::default()).expect("a program");
        assert_eq!((rules.base(Family::Ipv4), rules.base(Family::Ipv6), rules.ipv6.clone()), (Some(1), None, 3..3));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let sets = "create admins hash:ip family inet6\n";
        let told = |firewall: &Firewall| match Source::parse(firewall) {
            Err(error) => error.to_string(),
            Ok(source) => source.lower(&Surroundings::default()).expect_err("refused").to_string(),
        };
        let rules = Some(file("a.v6", FORWARD));
        let cases = [
            (
                Firewall { sets: vec![file("x", sets), file("y", sets)], ipv6: rules.clone(), ..Firewall::default() },
                "y: the set admins is in another file too; keep one",
            ),
            (
                Firewall {
                    yaml: Some(file("a.yaml", "family: ipv6\nchains: {FORWARD: {policy: drop}}\n")),
                    ipv6: rules.clone(),
                    ..Firewall::default()
                },
                "a.yaml and a.v6 are both rules for IPv6; keep one",
            ),
            (
                Firewall { hook: "NAT".to_owned(), ipv6: rules, ..Firewall::default() },
                "a.v6: the table filter has no chain NAT; add it, or change `hook`",
            ),
            (
                Firewall { ipv6: Some(RuleFile::Path("a.v6".to_owned())), ..Firewall::default() },
                "a.v6: the agent got the path but not the file; apply the document with `segue apply`",
            ),
        ];
        for (firewall, wanted) in cases {
            assert_eq!(told(&firewall), wanted);
        }
    }
}
