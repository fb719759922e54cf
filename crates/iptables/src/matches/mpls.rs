//! `mpls`: the label stack (RFC 3032) that a packet came with to a label of this node. Not in iptables; its terms are those of tc's
//! flower.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, missing, negatable, range_text, save_not};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Not};
use crate::values;
use segue_classifier::field::{Depth, Entry};

/// Which entry of the stack the other options are about.
pub type MplsDepth = Entry;

/// `-m mpls`. Without options: the packet came by a label of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mpls {
    /// `--mpls-entries`: first and last number of entries behind the firewall's own.
    pub entries: Option<Not<(u8, u8)>>,
    /// `--mpls-depth`; None: the first one behind the firewall's own.
    pub depth: Option<Not<MplsDepth>>,
    /// `--mpls-label`: first and last.
    pub label: Option<Not<(u32, u32)>>,
    /// `--mpls-tc`.
    pub class: Option<Not<u8>>,
    /// `--mpls-bos`: bottom of stack.
    pub bottom: Option<Not<u8>>,
    /// `--mpls-ttl`: first and last.
    pub ttl: Option<Not<(u8, u8)>>,
}

const FIRST: Entry = Entry::At(Depth::new(1).unwrap());

fn depth_text(depth: &MplsDepth) -> String {
    match depth {
        Entry::Own => "0".to_owned(),
        Entry::At(depth) => depth.get().to_string(),
        Entry::Last => "last".to_owned(),
        Entry::Any => "any".to_owned(),
    }
}

impl Mpls {
    /// The entry that the other options are about.
    pub fn entry(&self) -> MplsDepth {
        self.depth.map_or(FIRST, |depth| depth.value)
    }

    /// Whether there is an option about an entry.
    pub(crate) fn is_of_entry(&self) -> bool {
        self.depth.is_some() || self.tests().iter().any(|test| test.is_some())
    }

    /// Of those of an entry, which `!` each has in front of it.
    fn tests(&self) -> [Option<bool>; 4] {
        let Self { label, class, bottom, ttl, .. } = self;
        [
            label.map(|test| test.negated),
            class.map(|test| test.negated),
            bottom.map(|test| test.negated),
            ttl.map(|test| test.negated),
        ]
    }
}

fn depth(given: &Given<'_, '_>) -> Result<MplsDepth, RuleError> {
    let word = given.value();
    let entry = match word.text.as_ref() {
        "any" => Entry::Any,
        "last" => Entry::Last,
        text => match values::number(text).and_then(|number| u8::try_from(number).ok()) {
            Some(0) => Entry::Own,
            number => number.and_then(Depth::new).map(Entry::At).ok_or_else(|| {
                let remedy = "give 0 for the firewall's own label, 1 to 16 for those behind it, any, or last";
                RuleError::value(word, "no depth in a label stack that is looked at", remedy)
            })?,
        },
    };
    if given.negated && entry != Entry::Any {
        let remedy = "put the ! in front of --mpls-label and so on; with any it says that no entry is such a one";
        return Err(RuleError::at(given.word, ErrorKind::Value, "a depth is not compared with anything", remedy));
    }
    Ok(entry)
}

/// `first[:last]`, in this order.
fn range(given: &Given<'_, '_>, most: u64) -> Result<(u32, u32), RuleError> {
    let (first, last) = values::range(given.value(), most)?;
    if first > last {
        let remedy = format!("write {last}:{first}");
        return Err(RuleError::value(given.value(), "the range's first number is greater than its last", remedy));
    }
    Ok((first as u32, last as u32))
}

impl Extension for Mpls {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--mpls-entries"]),
                negatable(&["--mpls-depth"]),
                negatable(&["--mpls-label"]),
                negatable(&["--mpls-tc"]),
                negatable(&["--mpls-bos"]),
                negatable(&["--mpls-ttl"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let octets = |(first, last): (u32, u32)| (first as u8, last as u8);
        match given.name {
            "--mpls-entries" => given.put(&mut self.entries, octets(range(given, 255)?)),
            "--mpls-depth" => given.put(&mut self.depth, depth(given)?),
            "--mpls-label" => given.put(&mut self.label, range(given, (1 << 20) - 1)?),
            "--mpls-tc" => given.put(&mut self.class, values::number_in(word, 0, 7)? as u8),
            "--mpls-bos" => given.put(&mut self.bottom, values::number_in(word, 0, 1)? as u8),
            _ => given.put(&mut self.ttl, octets(range(given, 255)?)),
        }
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        if self.entry() != Entry::Any {
            return Ok(());
        }
        // What holds for some entry is told by one number: two would not have to be of the same entry.
        let given = self.tests();
        let conflict = |reason: &str, remedy: &str| Err((ErrorKind::Conflict, reason.to_owned(), remedy.to_owned()));
        match given.iter().flatten().count() {
            0 => Err(missing(
                "--mpls-depth any without what an entry must have",
                "add --mpls-label, --mpls-tc or --mpls-ttl",
            )),
            _ if self.bottom.is_some() => {
                conflict("every stack has one bottom", "leave --mpls-bos out, or name a depth")
            }
            1 if given.contains(&Some(true)) => conflict(
                "`any` with a negated option would hold for nearly every stack: some entry is another one",
                "write ! --mpls-depth any, and the option without !: then no entry is such a one",
            ),
            1 => Ok(()),
            _ => conflict(
                "`any` with more than one of --mpls-label, --mpls-tc and --mpls-ttl",
                "write -m mpls once for each (they need not be of one entry then), or name a depth",
            ),
        }
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--mpls-entries", &self.entries, range_text);
        if self.is_of_entry() {
            let depth = self.depth.unwrap_or(Not { negated: false, value: FIRST });
            save_not(out, "--mpls-depth", &Some(depth), depth_text);
        }
        save_not(out, "--mpls-label", &self.label, range_text);
        save_not(out, "--mpls-tc", &self.class, u8::to_string);
        save_not(out, "--mpls-bos", &self.bottom, u8::to_string);
        save_not(out, "--mpls-ttl", &self.ttl, range_text);
    }

    fn list(&self, out: &mut String) {
        out.push_str(" mpls");
        let mut put = |name: &str, text: Option<(&'static str, String)>| {
            if let Some((mark, text)) = text {
                let _ = write!(out, " {name}:{mark}{text}");
            }
        };
        put("entries", self.entries.map(|test| (test.mark(), range_text(&test.value))));
        let depth = self.depth.map_or(("", depth_text(&FIRST)), |depth| (depth.mark(), depth_text(&depth.value)));
        put("depth", self.is_of_entry().then_some(depth));
        put("label", self.label.map(|test| (test.mark(), range_text(&test.value))));
        put("tc", self.class.map(|test| (test.mark(), test.value.to_string())));
        put("bos", self.bottom.map(|test| (test.mark(), test.value.to_string())));
        put("ttl", self.ttl.map(|test| (test.mark(), range_text(&test.value))));
    }
}
