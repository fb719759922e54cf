//! `tcp`, `udp`, `sctp`, `multiport`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, missing, negatable, range_text, save_not, save_option};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Not};
use crate::lexer::Word;
use crate::names::{self, TCP_FLAGS};
use crate::refused::NARROWER;
use crate::values;

/// A range of ports, both ends included.
pub type PortRange = (u16, u16);

const SPORT: Spec = negatable(&["--sport", "--source-port"]);
const DPORT: Spec = negatable(&["--dport", "--destination-port"]);

/// That a match needs `-p` with its own protocol.
pub(super) fn needs_protocol(head: &Head, protocol: u8, name: &str) -> Result<(), Complaint> {
    match head.protocol {
        Some(Not { negated: false, value }) if value == protocol => Ok(()),
        _ => Err(missing(format!("this match is for protocol {name} only"), format!("put -p {name} in front of it"))),
    }
}

fn list_ports(out: &mut String, name: &str, ports: &Option<Not<PortRange>>) {
    if let Some(ports) = ports {
        let plural = if ports.value.0 == ports.value.1 { "" } else { "s" };
        let _ = write!(out, " {name}{plural}:{}{}", ports.mark(), range_text(&ports.value));
    }
}

/// `--tcp-flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags {
    /// Flags that are looked at.
    pub mask: u8,
    /// Those of them that must be set.
    pub set: u8,
}

impl TcpFlags {
    /// `--syn`.
    pub const SYN: Self = Self { mask: 0x17, set: 0x02 };
}

/// `-m tcp`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tcp {
    /// `--sport`.
    pub source: Option<Not<PortRange>>,
    /// `--dport`.
    pub destination: Option<Not<PortRange>>,
    /// `--tcp-option`: a TCP option of this kind is there.
    pub option: Option<Not<u8>>,
    /// `--tcp-flags`, `--syn`.
    pub flags: Option<Not<TcpFlags>>,
}

fn tcp_flags(word: &Word<'_>) -> Result<u8, RuleError> {
    let mut flags = 0;
    for name in word.text.split(',') {
        flags |= match name.to_ascii_uppercase().as_str() {
            "ALL" => 0x3f,
            "NONE" => 0,
            upper => TCP_FLAGS.iter().find(|(known, _)| *known == upper).map(|(_, bit)| *bit).ok_or_else(|| {
                let remedy = "write a list of FIN, SYN, RST, PSH, ACK and URG, or ALL or NONE";
                RuleError::value(&word.part(name), "no TCP flag", remedy)
            })?,
        };
    }
    Ok(flags)
}

fn tcp_flags_text(flags: u8) -> String {
    if flags == 0 {
        return "NONE".to_owned();
    }
    let set = TCP_FLAGS.iter().filter(|(_, bit)| flags & bit != 0).map(|(name, _)| *name);
    set.collect::<Vec<_>>().join(",")
}

impl Extension for Tcp {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                SPORT,
                DPORT,
                Spec { names: &["--tcp-flags"], values: 2, negatable: true },
                Spec { names: &["--syn"], values: 0, negatable: true },
                negatable(&["--tcp-option"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        match (given.name, given.values) {
            ("--sport", _) => given.put(&mut self.source, values::port_range(given.value())?),
            ("--dport", _) => given.put(&mut self.destination, values::port_range(given.value())?),
            ("--tcp-flags", [mask, set, ..]) => {
                let flags = TcpFlags { mask: tcp_flags(mask)?, set: tcp_flags(set)? };
                given.put(&mut self.flags, flags)
            }
            ("--syn", _) => given.put(&mut self.flags, TcpFlags::SYN),
            _ => given.put(&mut self.option, tcp_option(given.value())?),
        }
    }

    fn finish(&mut self, head: &Head) -> Result<(), Complaint> {
        needs_protocol(head, 6, "tcp")
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--sport", &self.source, range_text);
        save_not(out, "--dport", &self.destination, range_text);
        save_not(out, "--tcp-option", &self.option, u8::to_string);
        save_not(out, "--tcp-flags", &self.flags, |flags| {
            format!("{} {}", tcp_flags_text(flags.mask), tcp_flags_text(flags.set))
        });
    }

    fn list(&self, out: &mut String) {
        out.push_str(" tcp");
        list_ports(out, "spt", &self.source);
        list_ports(out, "dpt", &self.destination);
        if let Some(option) = &self.option {
            let _ = write!(out, " option={}{}", option.mark(), option.value);
        }
        if let Some(flags) = &self.flags {
            let _ = write!(out, " flags:{}0x{:02X}/0x{:02X}", flags.mark(), flags.value.mask, flags.value.set);
        }
    }
}

/// Kinds 1 to 63 can be looked for: the data plane keeps a bit for each.
fn tcp_option(word: &Word<'_>) -> Result<u8, RuleError> {
    match values::number_in(word, 1, 255)? as u8 {
        kind @ 1..64 => Ok(kind),
        _ => Err(RuleError::at(
            word,
            ErrorKind::NotHonoured,
            "TCP options of a kind above 63 are not looked for",
            NARROWER,
        )),
    }
}

/// `-m udp` and `-m sctp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// `udp` or `sctp`.
    protocol: &'static str,
    /// `--sport`.
    pub source: Option<Not<PortRange>>,
    /// `--dport`.
    pub destination: Option<Not<PortRange>>,
}

impl Ports {
    pub(super) const fn new(protocol: &'static str) -> Self {
        Self { protocol, source: None, destination: None }
    }
}

impl Extension for Ports {
    fn options(&self) -> &'static [Spec] {
        match self.protocol {
            "sctp" => const { &[SPORT, DPORT, Spec { names: &["--chunk-types"], values: 2, negatable: true }] },
            _ => const { &[SPORT, DPORT] },
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        match given.name {
            "--sport" => given.put(&mut self.source, values::port_range(given.value())?),
            "--dport" => given.put(&mut self.destination, values::port_range(given.value())?),
            _ => {
                let reason = "chunks of SCTP are not looked at: a packet may have any number of them";
                Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER))
            }
        }
    }

    fn finish(&mut self, head: &Head) -> Result<(), Complaint> {
        needs_protocol(head, names::protocol(self.protocol).unwrap_or_default(), self.protocol)
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--sport", &self.source, range_text);
        save_not(out, "--dport", &self.destination, range_text);
    }

    fn list(&self, out: &mut String) {
        let _ = write!(out, " {}", self.protocol);
        list_ports(out, "spt", &self.source);
        list_ports(out, "dpt", &self.destination);
    }
}

/// Which ports a `multiport` looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiportSide {
    /// `--sports`.
    Source,
    /// `--dports`.
    Destination,
    /// `--ports`: one of them or both.
    Either,
}

impl MultiportSide {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "sports",
            Self::Destination => "dports",
            Self::Either => "ports",
        }
    }
}

/// `-m multiport`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Multiport {
    /// The ports: at most 15, of which a range counts two.
    pub ports: Option<Not<(MultiportSide, Vec<PortRange>)>>,
}

impl Multiport {
    fn text(ports: &[PortRange]) -> String {
        ports.iter().map(range_text).collect::<Vec<_>>().join(",")
    }
}

impl Extension for Multiport {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--sports", "--source-ports"]),
                negatable(&["--dports", "--destination-ports"]),
                negatable(&["--ports"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let side = match given.name {
            "--sports" => MultiportSide::Source,
            "--dports" => MultiportSide::Destination,
            _ => MultiportSide::Either,
        };
        let word = given.value();
        let ports = word.text.split(',').map(|part| match part {
            "" => Err(RuleError::value(word, "a port is missing in the list", "remove one comma")),
            part => values::port_range(&word.part(part)),
        });
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        let slots = word.text.split([',', ':']).count();
        if slots > 15 {
            let reason = format!("{slots} ports, of which a range counts two; there may be 15");
            return Err(RuleError::value(word, reason, "write several rules, or use a set of type bitmap:port"));
        }
        given.put(&mut self.ports, (side, ports))
    }

    fn finish(&mut self, head: &Head) -> Result<(), Complaint> {
        if self.ports.is_none() {
            return Err(missing("multiport without ports", "add --sports, --dports or --ports"));
        }
        match head.protocol {
            Some(Not { negated: false, value: 6 | 17 | 33 | 132 | 136 }) => Ok(()),
            _ => Err(missing(
                "multiport needs a protocol with ports",
                "put -p tcp, udp, udplite, sctp or dccp in front of it",
            )),
        }
    }

    fn save(&self, out: &mut String) {
        if let Some(Not { negated, value: (side, ports) }) = &self.ports {
            save_option(out, &format!("--{}", side.name()), *negated, &Self::text(ports));
        }
    }

    fn list(&self, out: &mut String) {
        if let Some(Not { negated, value: (side, ports) }) = &self.ports {
            let mark = if *negated { " !" } else { "" };
            let _ = write!(out, " multiport {} {mark}{}", side.name(), Self::text(ports));
        }
    }
}
