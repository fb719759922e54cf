//! `rt`: the first Routing header of an IPv6 packet.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, negatable, plain, range_text, save_not};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Not};
use crate::refused::NARROWER;
use crate::values;

/// `-m rt`. Without options: there is a Routing header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rt {
    /// `--rt-type`.
    pub kind: Option<Not<u8>>,
    /// `--rt-segsleft`: first and last.
    pub segments_left: Option<Not<(u32, u32)>>,
    /// `--rt-len`: octets of the whole header.
    pub length: Option<Not<u32>>,
}

impl Extension for Rt {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--rt-type"]),
                negatable(&["--rt-segsleft"]),
                negatable(&["--rt-len"]),
                flag(&["--rt-0-res"]),
                plain(&["--rt-0-addrs"]),
                flag(&["--rt-0-not-strict"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let most = u64::from(u32::MAX);
        match given.name {
            "--rt-type" => given.put(&mut self.kind, values::octet(word)?),
            "--rt-segsleft" => {
                let (first, last) = values::range(word, most)?;
                given.put(&mut self.segments_left, (first as u32, last as u32))
            }
            "--rt-len" => given.put(&mut self.length, values::number_in(word, 0, most)? as u32),
            _ => {
                let reason = "the content of Routing headers of type 0, which RFC 5095 has abolished, is not looked at";
                Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER))
            }
        }
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        Ok(())
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--rt-type", &self.kind, u8::to_string);
        save_not(out, "--rt-segsleft", &self.segments_left, range_text);
        save_not(out, "--rt-len", &self.length, u32::to_string);
    }

    fn list(&self, out: &mut String) {
        out.push_str(" rt");
        if let Some(kind) = &self.kind {
            let _ = write!(out, " type:{}{}", kind.mark(), kind.value);
        }
        if let Some(left) = &self.segments_left {
            // iptables has no blank and an s more for a range.
            let name = if left.value.0 == left.value.1 { "segsleft" } else { "segslefts" };
            let _ = write!(out, " {name}:{}{}", left.mark(), range_text(&left.value));
        }
        if let Some(length) = &self.length {
            let _ = write!(out, " length:{}{}", length.mark(), length.value);
        }
    }
}
