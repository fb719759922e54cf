//! Files of `ipset save`, line by line.

use std::collections::{HashMap, HashSet};

use super::error::{ErrorKind, Origin, RuleError, RuleErrors};
use super::head::Family;
use super::lexer::{self, Word};
use super::matches;
use super::names;
use super::refused;
use super::sets::{Entry, EntryValue, IpSet, Part, SetFile, SetType};
use super::values;

/// Of marks and priorities of entries.
const MARKS: &str =
    "leave it out if no rule looks at marks; else keep those rules in a kernel firewall in front of this one";

/// Reads a file as `ipset save` writes it. `file` is only for the errors.
///
/// # Errors
///
/// All that is wrong, and all that cannot be honoured, in the order of lines: types that are not known, and entries with a timeout
/// that would run out, because sets here do not change by themselves.
pub fn parse_sets(source: &str, file: &str) -> Result<SetFile, RuleErrors> {
    let mut parser = Parser::default();
    let mut errors = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let result = lexer::split(line, number, false).and_then(|words| parser.line(&words));
        errors.extend(result.err());
    }
    parser.check_lists(&mut errors);
    RuleErrors::check(file, errors)?;
    Ok(SetFile { sets: parser.sets })
}

#[derive(Default)]
struct Parser {
    sets: Vec<IpSet>,
    index: HashMap<String, usize>,
    /// Of each set: its members, to find doubles; how many it may have; whether members run out by default.
    known: Vec<Known>,
    /// Sets whose creation was refused: their entries are no errors of their own.
    refused: HashSet<String>,
}

#[derive(Default)]
struct Known {
    members: HashSet<Vec<EntryValue>>,
    maximum: Option<u64>,
    timeout: u64,
}

impl Parser {
    fn line(&mut self, words: &[Word<'_>]) -> Result<(), RuleError> {
        let [command, rest @ ..] = words else { return Ok(()) };
        match (command.text.as_ref(), rest) {
            (text, _) if text.starts_with('#') => Ok(()),
            ("COMMIT", []) => Ok(()),
            ("create" | "-N", [name, kind, options @ ..]) => {
                let result = self.create(name, kind, options);
                if result.is_err() {
                    self.refused.insert(name.text.to_string());
                }
                result
            }
            ("add" | "-A", [name, value, options @ ..]) => self.add(name, value, options),
            ("create" | "add" | "-N" | "-A", _) => {
                let remedy = "write create NAME TYPE OPTIONS, or add NAME ENTRY OPTIONS";
                Err(RuleError::at(command, ErrorKind::Missing, "something is missing on this line", remedy))
            }
            _ => {
                let reason = "lines of a set file are create and add";
                Err(RuleError::at(command, ErrorKind::Syntax, reason, "take what `ipset save` prints"))
            }
        }
    }

    fn create(&mut self, name: &Word<'_>, kind: &Word<'_>, options: &[Word<'_>]) -> Result<(), RuleError> {
        let Some(&kind_found) = SetType::ALL.iter().find(|known| known.name == kind.text) else {
            let types = SetType::ALL.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            let remedy = format!("{}; honoured are {types}", refused::WHOLE_SET);
            return Err(RuleError::at(kind, ErrorKind::NotHonoured, "no type of sets that is honoured", remedy));
        };
        if self.index.contains_key(name.text.as_ref()) {
            return Err(RuleError::at(name, ErrorKind::Set, "a set of this name is there already", "remove one"));
        }
        if name.text.is_empty() || name.text.len() > 31 {
            return Err(RuleError::at(name, ErrorKind::Set, "the name of a set has 1 to 31 octets", "take another"));
        }
        let mut set = IpSet {
            name: name.text.to_string(),
            kind: kind_found,
            family: kind_found.has_addresses().then_some(Family::Ipv4),
            netmask: None,
            options: Vec::new(),
            range: None,
            entries: Vec::new(),
            origin: Origin(name.position),
        };
        let mut known = Known::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            create_option(&mut set, &mut known, option, &mut options)?;
        }
        if !set.kind.is_hash() && set.range.is_none() && !set.kind.parts.contains(&Part::Set) {
            return Err(RuleError::at(kind, ErrorKind::Missing, "a bitmap needs a range", "add range FIRST-LAST"));
        }
        self.index.insert(set.name.clone(), self.sets.len());
        self.sets.push(set);
        self.known.push(known);
        Ok(())
    }

    fn add(&mut self, name: &Word<'_>, value: &Word<'_>, options: &[Word<'_>]) -> Result<(), RuleError> {
        let Some(&index) = self.index.get(name.text.as_ref()) else {
            if self.refused.contains(name.text.as_ref()) {
                return Ok(());
            }
            let remedy = "put its create in front of its first add";
            return Err(RuleError::at(name, ErrorKind::Set, "there is no set of this name", remedy));
        };
        let (set, known) = (&mut self.sets[index], &mut self.known[index]);
        let mut entry =
            Entry { values: values_of(set, value)?, no_match: false, comment: None, origin: Origin(value.position) };
        let mut timeout = known.timeout;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            entry_option(&mut entry, &mut timeout, option, &mut options)?;
        }
        if timeout > 0 {
            let reason = format!("this entry would run out in {timeout} s, and sets here do not change by themselves");
            let remedy = "leave it out if being in the set lets packets pass, write `timeout 0` if it has them dropped";
            return Err(RuleError::at(value, ErrorKind::NotHonoured, reason, remedy));
        }
        if entry.no_match && !set.kind.parts.contains(&Part::Net) {
            let reason = format!("{} has no nomatch", set.kind.name);
            return Err(RuleError::at(value, ErrorKind::Set, reason, "use a type with net"));
        }
        if !known.members.insert(entry.values.clone()) {
            return Err(RuleError::at(
                value,
                ErrorKind::Set,
                "the set has this entry already",
                "remove one of the two",
            ));
        }
        set.entries.push(entry);
        match known.maximum {
            Some(maximum) if set.entries.len() as u64 > maximum => {
                let reason = format!("the set is full: maxelem is {maximum}");
                Err(RuleError::at(value, ErrorKind::Set, reason, "raise maxelem"))
            }
            _ => Ok(()),
        }
    }

    /// Members of list:set must be sets that are no lists.
    fn check_lists(&self, errors: &mut Vec<RuleError>) {
        for set in &self.sets {
            for entry in &set.entries {
                let [EntryValue::Set(name)] = &entry.values[..] else { continue };
                let member = self.index.get(name).map(|index| &self.sets[*index]);
                let (reason, remedy) = match member {
                    Some(member) if member.kind.parts.contains(&Part::Set) => {
                        ("a list of sets cannot have a list as member", "add the members of that list")
                    }
                    Some(_) => continue,
                    None if self.refused.contains(name) => continue,
                    None => ("there is no set of this name", "create it, or remove this line"),
                };
                errors.push(RuleError::about(entry.origin.0, name, ErrorKind::Set, reason, remedy));
            }
        }
    }
}

fn value_behind<'w, 'a>(
    option: &Word<'_>,
    options: &mut std::slice::Iter<'w, Word<'a>>,
) -> Result<&'w Word<'a>, RuleError> {
    options
        .next()
        .ok_or_else(|| RuleError::at(option, ErrorKind::Missing, "its value is missing", "put a value behind it"))
}

fn create_option(
    set: &mut IpSet,
    known: &mut Known,
    option: &Word<'_>,
    options: &mut std::slice::Iter<'_, Word<'_>>,
) -> Result<(), RuleError> {
    let name = option.text.as_ref();
    match name {
        "counters" | "comment" | "forceadd" | "-exist" => {
            set.options.push((name.to_owned(), None));
            return Ok(());
        }
        "skbinfo" => {
            let reason = "marks and priorities of a set's entries are not applied to packets";
            return Err(RuleError::at(option, ErrorKind::NotHonoured, reason, MARKS));
        }
        _ => {}
    }
    let value = value_behind(option, options)?;
    match name {
        "family" => {
            set.family = match value.text.as_ref() {
                "inet" | "ipv4" => set.family.map(|_| Family::Ipv4),
                "inet6" | "ipv6" => set.family.map(|_| Family::Ipv6),
                _ => return Err(RuleError::value(value, "no family", "write inet or inet6")),
            };
        }
        "hashsize" | "bucketsize" | "initval" | "size" => {
            values::number_in(value, 0, u64::from(u32::MAX))?;
            set.options.push((name.to_owned(), Some(value.text.to_string())));
        }
        "maxelem" => {
            known.maximum = Some(values::number_in(value, 0, u64::from(u32::MAX))?);
            set.options.push((name.to_owned(), Some(value.text.to_string())));
        }
        "timeout" => {
            known.timeout = values::number_in(value, 0, u64::from(u32::MAX))?;
            set.options.push((name.to_owned(), Some(value.text.to_string())));
        }
        "netmask" => {
            let bits = set.family.map_or(32, Family::bits);
            set.netmask = Some(values::number_in(value, 1, u64::from(bits))? as u8);
            set.options.push((name.to_owned(), Some(value.text.to_string())));
        }
        "range" => set.range = Some(range_of(set, value)?),
        "markmask" if values::number(&value.text) == Some(u64::from(u32::MAX)) => {}
        "markmask" | "bitmask" => {
            let reason = "values are compared whole or by prefix";
            return Err(RuleError::at(option, ErrorKind::NotHonoured, reason, refused::WHOLE_SET));
        }
        _ => {
            let remedy =
                "known are family, hashsize, maxelem, netmask, timeout, counters, comment, range, size, forceadd";
            return Err(RuleError::at(option, ErrorKind::UnknownOption, "no option of create", remedy));
        }
    }
    Ok(())
}

/// `first-last` or a prefix, of addresses or ports.
fn range_of(set: &IpSet, word: &Word<'_>) -> Result<(u128, u128), RuleError> {
    let (first, last) = match set.family {
        None => port_range(word).map(|(first, last)| (u128::from(first), u128::from(last)))?,
        Some(family) => match addresses(word, family)? {
            EntryValue::Addresses { first, last } => (first, last),
            EntryValue::Prefix { address, length } => {
                (address, address | family.mask(family.bits()) & !family.mask(length))
            }
            _ => return Err(RuleError::value(word, "no range of addresses", "write FIRST-LAST or a prefix")),
        },
    };
    Ok((first, last))
}

fn entry_option(
    entry: &mut Entry,
    timeout: &mut u64,
    option: &Word<'_>,
    options: &mut std::slice::Iter<'_, Word<'_>>,
) -> Result<(), RuleError> {
    match option.text.as_ref() {
        "nomatch" => entry.no_match = true,
        "-exist" => {}
        "wildcard" => {
            for value in &mut entry.values {
                if let EntryValue::Interface { wildcard, .. } = value {
                    *wildcard = true;
                }
            }
        }
        "timeout" => *timeout = values::number_in(value_behind(option, options)?, 0, u64::from(u32::MAX))?,
        "packets" | "bytes" => {
            // What was counted before; sets here do not count.
            values::number_in(value_behind(option, options)?, 0, u64::MAX)?;
        }
        "comment" => entry.comment = Some(values::text(value_behind(option, options)?, 255)?),
        "skbmark" | "skbprio" | "skbqueue" => {
            let reason = "marks and priorities of a set's entries are not applied to packets";
            return Err(RuleError::at(option, ErrorKind::NotHonoured, reason, MARKS));
        }
        _ => {
            let remedy = "known are nomatch, wildcard, comment, timeout, packets and bytes";
            return Err(RuleError::at(option, ErrorKind::UnknownOption, "no option of add", remedy));
        }
    }
    Ok(())
}

fn values_of(set: &IpSet, word: &Word<'_>) -> Result<Vec<EntryValue>, RuleError> {
    let parts = word.text.split(',').collect::<Vec<_>>();
    if parts.len() != set.kind.parts.len() {
        let reason = format!("{} parts, but {} has {}", parts.len(), set.kind.name, set.kind.parts.len());
        return Err(RuleError::at(word, ErrorKind::Set, reason, "separate them with commas, without blanks"));
    }
    let family = set.family.unwrap_or(Family::Ipv4);
    let values = set.kind.parts.iter().zip(parts).map(|(part, text)| value_of(*part, &word.part(text), family));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    for value in &values {
        check_range(set, value, word, family)?;
    }
    Ok(values)
}

/// Members of a bitmap lie in its range; addresses of a set with netmask are cut.
fn check_range(set: &IpSet, value: &EntryValue, word: &Word<'_>, family: Family) -> Result<(), RuleError> {
    let (first, last) = match *value {
        EntryValue::Prefix { address, length } => {
            (address, address | family.mask(family.bits()) & !family.mask(length))
        }
        EntryValue::Addresses { first, last } => (first, last),
        EntryValue::Ports { protocol: None, first, last } => (u128::from(first), u128::from(last)),
        _ => return Ok(()),
    };
    match set.range {
        Some((lowest, highest)) if first < lowest || last > highest => {
            Err(RuleError::at(word, ErrorKind::Set, "outside the range of the set", "change the range of its create"))
        }
        _ => Ok(()),
    }
}

fn value_of(part: Part, word: &Word<'_>, family: Family) -> Result<EntryValue, RuleError> {
    match part {
        Part::Ip | Part::Net => addresses(word, family),
        Part::Port => port(word),
        Part::PortAlone => port_range(word).map(|(first, last)| EntryValue::Ports { protocol: None, first, last }),
        Part::Mac => matches::mac(word).map(EntryValue::Mac),
        Part::Mark => values::number_in(word, 0, u64::from(u32::MAX)).map(|mark| EntryValue::Mark(mark as u32)),
        Part::Interface if word.text.starts_with("physdev:") => Err(RuleError::at(
            word,
            ErrorKind::NotHonoured,
            "there is no bridge between the ports of this data plane",
            refused::ENTRY,
        )),
        Part::Interface => match values::interface(word)? {
            Some(interface) => Ok(EntryValue::Interface { name: interface.name, wildcard: interface.wildcard }),
            None => Err(RuleError::value(word, "every interface", "leave the interface out: use hash:net")),
        },
        Part::Set => Ok(EntryValue::Set(word.text.to_string())),
    }
}

/// An address, a prefix or `first-last`.
fn addresses(word: &Word<'_>, family: Family) -> Result<EntryValue, RuleError> {
    if let Some((first, last)) = word.text.split_once('-') {
        let first = values::address(&word.part(first), family)?;
        let last = values::address(&word.part(last), family)?;
        if first > last {
            return Err(RuleError::value(word, "the range's first address is greater than its last", "swap them"));
        }
        return Ok(EntryValue::Addresses { first, last });
    }
    let network = values::network(word, family)?;
    match network.length() {
        Some(length) => Ok(EntryValue::Prefix { address: network.address & network.mask, length }),
        None => Err(RuleError::value(word, "a mask with holes", "write a prefix")),
    }
}

/// `[protocol:]port[-port]`; of ICMP a name or `type/code`.
fn port(word: &Word<'_>) -> Result<EntryValue, RuleError> {
    let Some((name, port)) = word.text.split_once(':') else {
        let (first, last) = port_range(word)?;
        return Ok(EntryValue::Ports { protocol: Some(6), first, last });
    };
    let protocol = values::protocol(&word.part(name))?;
    let port = word.part(port);
    let (first, last) = match protocol {
        1 | 58 => {
            let family = if protocol == 1 { Family::Ipv4 } else { Family::Ipv6 };
            let value = icmp(&port, family)?;
            (value, value)
        }
        6 | 17 | 33 | 132 | 136 => port_range(&port)?,
        _ => {
            if port.text != "0" {
                return Err(RuleError::value(&port, "this protocol has no ports", format!("write {name}:0")));
            }
            (0, 0)
        }
    };
    Ok(EntryValue::Ports { protocol: Some(protocol), first, last })
}

/// Type and code as one number. A name without code has code 0, as in ipset.
fn icmp(word: &Word<'_>, family: Family) -> Result<u16, RuleError> {
    let (kind, code) = match names::icmp(family, &word.text) {
        Some((_, kind, first, _)) => (kind, first),
        None => match word.text.split_once('/') {
            Some((kind, code)) => (values::octet(&word.part(kind))?, values::octet(&word.part(code))?),
            None => return Err(RuleError::value(word, "no type of ICMP", "write its name or type/code")),
        },
    };
    Ok(u16::from(kind) << 8 | u16::from(code))
}

/// `first[-last]`.
fn port_range(word: &Word<'_>) -> Result<(u16, u16), RuleError> {
    if names::service(&word.text).is_some() {
        return values::port(word).map(|port| (port, port));
    }
    let (first, last) = match word.text.split_once('-') {
        None => values::port(word).map(|port| (port, port))?,
        Some((first, last)) => (values::port(&word.part(first))?, values::port(&word.part(last))?),
    };
    if first > last {
        return Err(RuleError::value(word, "the range's first port is greater than its last", "swap them"));
    }
    Ok((first, last))
}
