//! `icmp` and `icmp6`.

use std::fmt::Write;

use super::ports::needs_protocol;
use super::{Complaint, Extension, Given, Spec, missing, negatable, save_option};
use crate::error::RuleError;
use crate::head::{Family, Head, Not};
use crate::lexer::Word;
use crate::names;
use crate::values;

/// A type with a range of codes. Of IPv4, type 255 is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpType {
    /// Type.
    pub kind: u8,
    /// First code.
    pub first: u8,
    /// Last code.
    pub last: u8,
}

/// `-m icmp` or `-m icmp6`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Icmp {
    /// Which of the two.
    pub family: Family,
    /// `--icmp-type` or `--icmpv6-type`.
    pub kind: Option<Not<IcmpType>>,
}

impl Icmp {
    pub(super) const fn new(family: Family) -> Self {
        Self { family, kind: None }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "icmp",
            Family::Ipv6 => "icmp6",
        }
    }

    fn option(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "--icmp-type",
            Family::Ipv6 => "--icmpv6-type",
        }
    }

    /// Whether every type and code passes.
    pub(crate) fn is_any(&self) -> bool {
        self.family == Family::Ipv4 && self.kind.is_none_or(|kind| kind.value.kind == 255)
    }
}

fn icmp_type(word: &Word<'_>, family: Family) -> Result<IcmpType, RuleError> {
    if let Some((_, kind, first, last)) = names::icmp(family, &word.text) {
        return Ok(IcmpType { kind, first, last });
    }
    let (kind, code) = match word.text.split_once('/') {
        None => (word.text.as_ref(), None),
        Some((kind, code)) => (kind, Some(code)),
    };
    if values::number(kind).is_none() {
        let remedy = match family {
            Family::Ipv6 if word.text == "any" => "leave the option out: -p ipv6-icmp alone is every type",
            _ => "write the type as number[/code]",
        };
        return Err(RuleError::value(word, "no type of this name is known", remedy));
    }
    let kind = values::octet(&word.part(kind))?;
    let (first, last) = match code {
        None => (0, 255),
        Some(code) => values::octet(&word.part(code)).map(|code| (code, code))?,
    };
    Ok(IcmpType { kind, first, last })
}

impl Extension for Icmp {
    fn options(&self) -> &'static [Spec] {
        match self.family {
            Family::Ipv4 => const { &[negatable(&["--icmp-type"])] },
            Family::Ipv6 => const { &[negatable(&["--icmpv6-type"])] },
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let kind = icmp_type(given.value(), self.family)?;
        given.put(&mut self.kind, kind)
    }

    fn finish(&mut self, head: &Head) -> Result<(), Complaint> {
        match self.family {
            Family::Ipv4 => needs_protocol(head, 1, "icmp")?,
            Family::Ipv6 => needs_protocol(head, 58, "ipv6-icmp")?,
        }
        if self.kind.is_none() {
            return Err(missing(format!("{} without a type", self.name()), format!("add {} TYPE", self.option())));
        }
        Ok(())
    }

    fn save(&self, out: &mut String) {
        let Some(Not { negated, value: IcmpType { kind, first, last } }) = self.kind else { return };
        let text = match () {
            () if self.is_any() => "any".to_owned(),
            () if first == last => format!("{kind}/{first}"),
            () => kind.to_string(),
        };
        save_option(out, self.option(), negated, &text);
    }

    fn list(&self, out: &mut String) {
        let Some(Not { negated, value: IcmpType { kind, first, last } }) = self.kind else { return };
        let name = if self.family == Family::Ipv4 { "icmp" } else { "ipv6-icmp" };
        let _ = write!(out, " {name}{}type {kind}", if negated { " !" } else { "" });
        if first == last {
            let _ = write!(out, " code {first}");
        }
    }
}
