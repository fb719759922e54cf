//! Sets and the matches on them.

use super::super::head::{Family, Not};
use super::super::matches::{SetFlag, SetMatch};
use super::super::sets::{Entry, EntryValue, IpSet, Part};
use super::conditions::set_error;
use super::{Extension, Lowering, Origin, Parts, RuleError};
use segue_classifier::program::{Dimension, Set, SetEntry, SetValue, Side};

impl<'a> Lowering<'a> {
    pub(super) fn set(&mut self, set: &'a SetMatch, origin: Origin, parts: &mut Parts) -> Result<(), RuleError> {
        let Some(Not { negated, value: (name, flags) }) = &set.set else { return Ok(()) };
        let Some(found) = self.files.set(name) else {
            let remedy = "give the file of `ipset save` that creates it";
            return Err(set_error(origin, name, "there is no set of this name".to_owned(), remedy));
        };
        if let Some(family) = found.family.filter(|family| *family != self.family) {
            let reason = format!("a set of {family} addresses in {} rules", self.family);
            return Err(set_error(origin, name, reason, "use a set of the rules' own family"));
        }
        let index = match self.sets.get(name.as_str()) {
            Some(index) => *index,
            None => {
                let made = self.make(found, origin)?;
                let index = self.lowered.program.sets.len();
                self.lowered.program.sets.push(made);
                self.sets.insert(name, index);
                index
            }
        };
        let dimensions = &self.lowered.program.sets[index].dimensions;
        if flags.len() < dimensions.len() {
            let reason = format!("the set has {} dimensions, but {} sides are named", dimensions.len(), flags.len());
            return Err(set_error(origin, name, reason, "name src or dst for each dimension"));
        }
        // More sides than dimensions are ignored by the kernel, too.
        let flags = &flags[..dimensions.len()];
        let mac = dimensions
            .iter()
            .zip(flags)
            .find(|(dimension, flag)| matches!((dimension, flag), (Dimension::Mac, SetFlag::Destination)));
        if mac.is_some() {
            let reason = "the destination MAC address of a frame is that of this node, and not kept".to_owned();
            return Err(set_error(origin, name, reason, "write src for the MAC address"));
        }
        let sides = flags.iter().map(|flag| match flag {
            SetFlag::Source => Side::Source,
            SetFlag::Destination => Side::Destination,
        });
        parts.extensions.push(Extension::Set { set: index, sides: sides.collect(), negated: *negated });
        Ok(())
    }

    /// A set for the program; a list of sets becomes one set of all members.
    fn make(&mut self, set: &'a IpSet, origin: Origin) -> Result<Set, RuleError> {
        let members = match set.kind.parts {
            [Part::Set] => self.list_members(set, origin)?,
            _ => vec![set],
        };
        let parts = members.first().map_or(&[][..], |member| member.kind.parts);
        let mut made = Set {
            name: set.name.clone(),
            family: match members.iter().find_map(|member| member.family) {
                None => 0,
                Some(Family::Ipv4) => 4,
                Some(Family::Ipv6) => 6,
            },
            dimensions: Vec::new(),
            entries: Vec::new(),
        };
        for member in &members {
            for entry in &member.entries {
                self.entry(member, entry, &mut made.entries);
            }
        }
        made.dimensions = parts.iter().enumerate().map(|(index, part)| dimension(*part, index, &made)).collect();
        Ok(made)
    }

    fn list_members(&self, list: &'a IpSet, origin: Origin) -> Result<Vec<&'a IpSet>, RuleError> {
        let named = list.entries.iter().filter_map(|entry| match &entry.values[..] {
            [EntryValue::Set(name)] => self.files.set(name),
            _ => None,
        });
        // The kernel skips members of the other family.
        let members = named.filter(|set| set.family.is_none_or(|family| family == self.family)).collect::<Vec<_>>();
        let reason = match members.first() {
            None => Some("the list has no members of this family"),
            Some(first) if members.iter().any(|member| member.kind.parts != first.kind.parts) => {
                Some("its members are of different types")
            }
            Some(_) if members.iter().any(|member| member.entries.iter().any(|entry| entry.no_match)) => {
                Some("one of its members has entries with nomatch, which would count for the others, too")
            }
            Some(_) => None,
        };
        match reason {
            Some(reason) => {
                let remedy = "name the members in rules of their own";
                Err(set_error(origin, &list.name, reason.to_owned(), remedy))
            }
            None => Ok(members),
        }
    }

    /// An entry may become several: ranges as prefixes, wildcards as interfaces.
    fn entry(&mut self, set: &IpSet, entry: &Entry, entries: &mut Vec<SetEntry>) {
        let mut made = vec![Vec::new()];
        for value in &entry.values {
            let values = self.values(set, value);
            if values.is_empty() {
                let message = format!("set {}: no interface of this name now; the entry fits nothing", set.name);
                self.warn(entry.origin, message);
            }
            made = made
                .into_iter()
                .flat_map(|before: Vec<SetValue>| {
                    values.iter().map(move |value| before.iter().copied().chain([*value]).collect())
                })
                .collect();
        }
        entries.extend(made.into_iter().map(|values| SetEntry { values, no_match: entry.no_match }));
    }

    fn values(&self, set: &IpSet, value: &EntryValue) -> Vec<SetValue> {
        let family = set.family.unwrap_or(self.family);
        let cut = |address: u128, length: u8| {
            let length = set.netmask.map_or(length, |netmask| netmask.min(length));
            SetValue::Prefix { address: address & family.mask(length), length }
        };
        match value {
            EntryValue::Prefix { address, length } => vec![cut(*address, *length)],
            EntryValue::Addresses { first, last } => {
                prefixes(*first, *last, family).into_iter().map(|(address, length)| cut(address, length)).collect()
            }
            EntryValue::Ports { protocol, first, last } => {
                vec![SetValue::Ports { protocol: *protocol, first: *first, last: *last }]
            }
            EntryValue::Mac(address) => vec![SetValue::Number(*address)],
            EntryValue::Mark(mark) => vec![SetValue::Number(u64::from(*mark))],
            EntryValue::Interface { name, wildcard } => {
                self.surroundings.indexes(name, *wildcard).map(|index| SetValue::Number(u64::from(index))).collect()
            }
            EntryValue::Set(_) => Vec::new(),
        }
    }
}

/// Addresses of which one is a prefix make the dimension one of networks.
fn dimension(part: Part, index: usize, set: &Set) -> Dimension {
    let bits = if set.family == 4 { 32 } else { 128 };
    let whole = |entry: &SetEntry| matches!(entry.values[index], SetValue::Prefix { length, .. } if length == bits);
    match part {
        Part::Ip if set.entries.iter().all(whole) => Dimension::Address,
        Part::Ip | Part::Net => Dimension::Network,
        Part::Port => Dimension::Port,
        Part::PortAlone => Dimension::PortAlone,
        Part::Mac => Dimension::Mac,
        Part::Mark => Dimension::Mark,
        Part::Interface | Part::Set => Dimension::Interface,
    }
}

/// The fewest prefixes that hold exactly the addresses from first to last.
fn prefixes(first: u128, last: u128, family: Family) -> Vec<(u128, u8)> {
    let bits = u32::from(family.bits());
    let mut found = Vec::new();
    let mut next = Some(first);
    while let Some(address) = next.filter(|address| *address <= last) {
        // As many free bits as the address is aligned to, but not beyond the last one.
        let aligned = address.trailing_zeros().min(bits);
        let room = last - address;
        let fits = if room == u128::MAX { 128 } else { (room + 1).ilog2() };
        let free = aligned.min(fits);
        found.push((address, (bits - free) as u8));
        next = 1_u128.checked_shl(free).and_then(|size| address.checked_add(size));
    }
    found
}
