//! `srh`: the Segment Routing Header (RFC 8754), with the options of ip6tables and those that SERA has besides.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, negatable, save_not};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Network, Not};
use crate::values;

/// How a number in the SRH is compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// `-eq`.
    pub equal: Option<Not<u8>>,
    /// `-gt`.
    pub greater: Option<Not<u8>>,
    /// `-lt`.
    pub less: Option<Not<u8>>,
}

impl Compared {
    fn each(&self) -> [(&'static str, &Option<Not<u8>>); 3] {
        [("eq", &self.equal), ("gt", &self.greater), ("lt", &self.less)]
    }

    fn put(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let place = match &given.name[given.name.len() - 2..] {
            "eq" => &mut self.equal,
            "gt" => &mut self.greater,
            _ => &mut self.less,
        };
        given.put(place, values::octet(given.value())?)
    }
}

/// `-m srh`. Without options: there is an SRH.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Srh {
    /// `--inner-src` (SERA): source of the inner packet.
    pub inner_source: Option<Not<Network>>,
    /// `--inner-dst` (SERA): destination of the inner packet.
    pub inner_destination: Option<Not<Network>>,
    /// `--srh-next-hdr`.
    pub next_header: Option<Not<u8>>,
    /// `--srh-hdr-len-eq` and so on; SERA: `--srh-len-eq`.
    pub length: Compared,
    /// `--srh-segs-left-eq` and so on; SERA: `--srh-segs-eq`.
    pub segments_left: Compared,
    /// `--srh-last-entry-eq` and so on; SERA: `--srh-last-eq`.
    pub last_entry: Compared,
    /// `--srh-tag`.
    pub tag: Option<Not<u16>>,
    /// `--srh-psid`: the SID before the active one.
    pub previous_sid: Option<Not<Network>>,
    /// `--srh-nsid`: the SID behind the active one.
    pub next_sid: Option<Not<Network>>,
    /// `--srh-lsid`: the last SID of the path.
    pub last_sid: Option<Not<Network>>,
}

impl Srh {
    fn compared(&self) -> [(&'static str, &Compared); 3] {
        [("hdr-len", &self.length), ("segs-left", &self.segments_left), ("last-entry", &self.last_entry)]
    }

    fn inner(&self) -> [(&'static str, &Option<Not<Network>>); 2] {
        [("inner-src", &self.inner_source), ("inner-dst", &self.inner_destination)]
    }

    fn sids(&self) -> [(&'static str, &Option<Not<Network>>); 3] {
        [("psid", &self.previous_sid), ("nsid", &self.next_sid), ("lsid", &self.last_sid)]
    }
}

impl Extension for Srh {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--inner-src", "--srh-inner-src"]),
                negatable(&["--inner-dst", "--srh-inner-dst"]),
                negatable(&["--srh-next-hdr"]),
                negatable(&["--srh-hdr-len-eq", "--srh-len-eq"]),
                negatable(&["--srh-hdr-len-gt", "--srh-len-gt"]),
                negatable(&["--srh-hdr-len-lt", "--srh-len-lt"]),
                negatable(&["--srh-segs-left-eq", "--srh-segs-eq"]),
                negatable(&["--srh-segs-left-gt", "--srh-segs-gt"]),
                negatable(&["--srh-segs-left-lt", "--srh-segs-lt"]),
                negatable(&["--srh-last-entry-eq", "--srh-last-eq"]),
                negatable(&["--srh-last-entry-gt", "--srh-last-gt"]),
                negatable(&["--srh-last-entry-lt", "--srh-last-lt"]),
                negatable(&["--srh-tag"]),
                negatable(&["--srh-psid"]),
                negatable(&["--srh-nsid"]),
                negatable(&["--srh-lsid"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let place = match given.name {
            "--inner-src" => &mut self.inner_source,
            "--inner-dst" => &mut self.inner_destination,
            "--srh-psid" => &mut self.previous_sid,
            "--srh-nsid" => &mut self.next_sid,
            "--srh-lsid" => &mut self.last_sid,
            "--srh-next-hdr" => {
                let protocol = values::protocol(word)?;
                return given.put(&mut self.next_header, protocol);
            }
            "--srh-tag" => return given.put(&mut self.tag, values::number_in(word, 0, u64::from(u16::MAX))? as u16),
            name if name.starts_with("--srh-hdr-len") => return self.length.put(given),
            name if name.starts_with("--srh-segs-left") => return self.segments_left.put(given),
            _ => return self.last_entry.put(given),
        };
        given.put(place, values::network(word, given.family)?)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        // ip6tables takes these, but keeps one number for all three: all would be compared with the last one.
        for (name, compared) in self.compared() {
            if compared.each().iter().filter(|(_, test)| test.is_some()).count() > 1 {
                let reason = format!("--srh-{name} is compared twice; ip6tables would use the last number for both");
                return Err((ErrorKind::Conflict, reason, "write -m srh once for each".to_owned()));
            }
        }
        Ok(())
    }

    fn save(&self, out: &mut String) {
        for (name, network) in self.inner() {
            save_not(out, &format!("--{name}"), network, Network::save);
        }
        save_not(out, "--srh-next-hdr", &self.next_header, u8::to_string);
        for (name, compared) in self.compared() {
            for (suffix, test) in compared.each() {
                save_not(out, &format!("--srh-{name}-{suffix}"), test, u8::to_string);
            }
        }
        save_not(out, "--srh-tag", &self.tag, u16::to_string);
        for (name, sid) in self.sids() {
            save_not(out, &format!("--srh-{name}"), sid, Network::save);
        }
    }

    fn list(&self, out: &mut String) {
        out.push_str(" srh");
        let network = |out: &mut String, name: &str, network: &Option<Not<Network>>| {
            if let Some(network) = network {
                let _ = write!(out, " {name} {} {}", network.mark(), network.value.save());
            }
        };
        self.inner().iter().for_each(|(name, value)| network(out, name, value));
        if let Some(next) = &self.next_header {
            let _ = write!(out, " next-hdr:{}{}", next.mark(), next.value);
        }
        for (name, compared) in self.compared() {
            for (suffix, test) in compared.each() {
                if let Some(test) = test {
                    let _ = write!(out, " {name}-{suffix}:{}{}", test.mark(), test.value);
                }
            }
        }
        if let Some(tag) = &self.tag {
            let _ = write!(out, " tag:{}{}", tag.mark(), tag.value);
        }
        self.sids().iter().for_each(|(name, value)| network(out, name, value));
    }
}
