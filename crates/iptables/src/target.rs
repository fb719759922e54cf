//! Targets: their options, how they print.

use std::fmt::Write;

use super::error::{ErrorKind, RuleError};
use super::lexer::{self, Word};
use super::matches::{Given, Spec, flag, plain};
use super::names;
use super::syntax::{Family, Head, Nflog, Not, Target};
use super::values;
use segue_classifier::program::{Log, MPLS_COUNT_MAX, Mpls, Reject, Seg6};

/// Actions of SEG6 and their names; SERA's paper writes them with `seg6-` in front.
const SEG6_ACTIONS: [(&str, Seg6); 4] = [
    ("go-next", Seg6::GoNext),
    ("skip-next", Seg6::SkipNext),
    ("go-last", Seg6::GoLast),
    ("eval-args", Seg6::EvalArgs),
];

/// Actions of MPLS.
const MPLS_ACTIONS: [Mpls; 3] = [Mpls::GoNext, Mpls::SkipNext(1), Mpls::GoLast(1)];

fn mpls_name(action: Mpls) -> &'static str {
    match action {
        Mpls::GoNext => "go-next",
        Mpls::SkipNext(_) => "skip-next",
        Mpls::GoLast(_) => "go-last",
    }
}

/// Its options behind `dashes`.
fn save_mpls(action: Mpls, out: &mut String, dashes: &str) {
    let _ = write!(out, " {dashes}mpls-action {}", mpls_name(action));
    if let Mpls::SkipNext(count) | Mpls::GoLast(count) = action
        && count != 1
    {
        let _ = write!(out, " {dashes}mpls-count {count}");
    }
}

/// Name of an action of SEG6.
pub(super) fn seg6_name(action: Seg6) -> &'static str {
    SEG6_ACTIONS.iter().find(|(_, known)| *known == action).map_or("go-next", |(name, _)| name)
}

impl Target {
    /// A target with its defaults. None: not one that is honoured; perhaps a chain.
    pub(super) fn new(name: &str, family: Family) -> Option<Self> {
        Some(match name {
            "ACCEPT" => Self::Accept,
            "DROP" => Self::Drop,
            "RETURN" => Self::Return,
            "REJECT" => Self::Reject(match family {
                Family::Ipv4 => Reject::IcmpPortUnreachable,
                Family::Ipv6 => Reject::Icmp6PortUnreachable,
            }),
            "LOG" => Self::Log(Log { level: 4, ..Log::default() }),
            "NFLOG" => Self::Nflog(Nflog::default()),
            "MARK" => Self::Mark { value: 0, mask: 0 },
            "SEG6" => Self::Seg6(Seg6::GoNext),
            "MPLS" => Self::Mpls(Mpls::GoNext),
            _ => return None,
        })
    }

    /// The name behind `-j` or `-g`.
    pub fn name(&self) -> &str {
        match self {
            Self::Count => "",
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
            Self::Return => "RETURN",
            Self::Jump(chain) | Self::Goto(chain) => chain,
            Self::Reject(_) => "REJECT",
            Self::Log(_) => "LOG",
            Self::Nflog(_) => "NFLOG",
            Self::Mark { .. } => "MARK",
            Self::Seg6(_) => "SEG6",
            Self::Mpls(_) => "MPLS",
        }
    }

    pub(super) fn options(&self) -> &'static [Spec] {
        match self {
            Self::Reject(_) => const { &[plain(&["--reject-with"])] },
            Self::Log(_) => {
                const {
                    &[
                        plain(&["--log-prefix"]),
                        plain(&["--log-level"]),
                        flag(&["--log-tcp-sequence"]),
                        flag(&["--log-tcp-options"]),
                        flag(&["--log-ip-options"]),
                        flag(&["--log-uid"]),
                        flag(&["--log-macdecode"]),
                    ]
                }
            }
            Self::Nflog(_) => {
                const {
                    &[
                        plain(&["--nflog-prefix"]),
                        plain(&["--nflog-group"]),
                        plain(&["--nflog-size"]),
                        plain(&["--nflog-range"]),
                        plain(&["--nflog-threshold"]),
                    ]
                }
            }
            Self::Mark { .. } => {
                const {
                    &[
                        plain(&["--set-xmark"]),
                        plain(&["--set-mark"]),
                        plain(&["--and-mark"]),
                        plain(&["--or-mark"]),
                        plain(&["--xor-mark"]),
                    ]
                }
            }
            Self::Seg6(_) => {
                const {
                    &[
                        plain(&["--seg6-action"]),
                        plain(&["--seg6-bsid", "--bsid", "--seg6-bsid-tbl", "--seg6-nh", "--seg6-tbl"]),
                    ]
                }
            }
            Self::Mpls(_) => const { &[plain(&["--mpls-action"]), plain(&["--mpls-count"])] },
            _ => &[],
        }
    }

    pub(super) fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        match self {
            Self::Reject(reject) => *reject = reject_with(word, given.family)?,
            Self::Log(log) => take_log(log, given)?,
            Self::Nflog(nflog) => take_nflog(nflog, given)?,
            Self::Mark { value, mask } => (*value, *mask) = mark(given)?,
            Self::Seg6(action) => *action = seg6_action(given)?,
            Self::Mpls(action) => *action = mpls_action(*action, given)?,
            _ => {}
        }
        Ok(())
    }

    /// What is missing: reason and remedy. `given`: names of the options that were there.
    pub(super) fn finish(&self, head: &Head, given: &[&'static str]) -> Result<(), (String, String)> {
        match self {
            Self::Reject(Reject::TcpReset) if !matches!(head.protocol, Some(Not { negated: false, value: 6 })) => {
                Err((
                    "tcp-reset answers TCP segments only".to_owned(),
                    "put -p tcp in front of it, or take another type".to_owned(),
                ))
            }
            Self::Mark { .. } if given.is_empty() => {
                Err(("MARK without a mark".to_owned(), "add --set-mark VALUE[/MASK]".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// ` -j NAME` and its options, as iptables-save writes them; nothing for a rule that only counts.
    pub(super) fn save(&self, out: &mut String) {
        match self {
            Self::Count => return,
            Self::Goto(_) => out.push_str(" -g "),
            _ => out.push_str(" -j "),
        }
        lexer::quote_blank(self.name(), out);
        match self {
            Self::Reject(reject) => {
                let _ = write!(out, " --reject-with {}", names::reject_name(*reject));
            }
            Self::Log(log) => save_log(log, out),
            Self::Nflog(nflog) => save_nflog(nflog, out, "--"),
            Self::Mark { value, mask } => {
                let _ = write!(out, " --set-xmark {value:#x}/{mask:#x}");
            }
            Self::Seg6(action) => {
                let _ = write!(out, " --seg6-action {}", seg6_name(*action));
            }
            Self::Mpls(action) => {
                save_mpls(*action, out, "--");
            }
            _ => {}
        }
    }

    /// As `iptables -L -n` writes the target's options, with a blank in front.
    pub(super) fn list(&self, out: &mut String) {
        match self {
            Self::Reject(reject) => {
                let _ = write!(out, " reject-with {}", names::reject_name(*reject));
            }
            Self::Log(log) => {
                let flags = [log.tcp_sequence, log.tcp_options, log.ip_options, log.uid, false, log.mac_decode];
                let flags = flags.iter().enumerate().fold(0, |bits, (bit, set)| bits | u32::from(*set) << bit);
                let _ = write!(out, " LOG flags {flags} level {}", log.level);
                if !log.prefix.is_empty() {
                    let _ = write!(out, " prefix \"{}\"", log.prefix);
                }
            }
            Self::Nflog(nflog) => save_nflog(nflog, out, ""),
            Self::Mark { value, mask } => list_mark(*value, *mask, out),
            Self::Seg6(action) => {
                let _ = write!(out, " seg6-action {}", seg6_name(*action));
            }
            Self::Mpls(action) => {
                save_mpls(*action, out, "");
            }
            _ => {}
        }
    }
}

fn reject_with(word: &Word<'_>, family: Family) -> Result<Reject, RuleError> {
    names::reject(family, &word.text).ok_or_else(|| {
        let reason = format!("no type of REJECT of {}", family.program());
        RuleError::value(word, reason, format!("use one of {}", names::reject_names(family)))
    })
}

fn take_log(log: &mut Log, given: &Given<'_, '_>) -> Result<(), RuleError> {
    let word = given.value();
    match given.name {
        "--log-prefix" => log.prefix = values::text(word, 29)?,
        "--log-level" => {
            log.level = match names::log_level(&word.text) {
                Some(level) => level,
                None => values::number(&word.text).filter(|level| *level < 8).ok_or_else(|| {
                    RuleError::value(
                        word,
                        "no log level",
                        "give 0 to 7, or emerg, alert, crit, err, warning, notice, info or debug",
                    )
                })? as u8,
            };
        }
        "--log-tcp-sequence" => log.tcp_sequence = true,
        "--log-tcp-options" => log.tcp_options = true,
        "--log-ip-options" => log.ip_options = true,
        "--log-uid" => log.uid = true,
        _ => log.mac_decode = true,
    }
    Ok(())
}

fn save_log(log: &Log, out: &mut String) {
    if !log.prefix.is_empty() {
        out.push_str(" --log-prefix ");
        lexer::quote(&log.prefix, out);
    }
    if log.level != 4 {
        let _ = write!(out, " --log-level {}", log.level);
    }
    for (set, option) in [
        (log.tcp_sequence, " --log-tcp-sequence"),
        (log.tcp_options, " --log-tcp-options"),
        (log.ip_options, " --log-ip-options"),
        (log.uid, " --log-uid"),
        (log.mac_decode, " --log-macdecode"),
    ] {
        if set {
            out.push_str(option);
        }
    }
}

fn take_nflog(nflog: &mut Nflog, given: &Given<'_, '_>) -> Result<(), RuleError> {
    let word = given.value();
    match given.name {
        "--nflog-prefix" => nflog.common.prefix = values::text(word, 63)?,
        "--nflog-group" => nflog.common.group = values::number_in(word, 0, u64::from(u16::MAX))? as u16,
        "--nflog-size" => nflog.common.size = Some(values::number_in(word, 0, u64::from(u32::MAX))? as u32),
        "--nflog-range" => nflog.range = values::number_in(word, 0, u64::from(u32::MAX))? as u32,
        _ => nflog.common.threshold = values::number_in(word, 0, u64::from(u16::MAX))? as u16,
    }
    Ok(())
}

fn save_nflog(nflog: &Nflog, out: &mut String, dashes: &str) {
    if !nflog.common.prefix.is_empty() {
        let _ = write!(out, " {dashes}nflog-prefix ");
        lexer::quote(&nflog.common.prefix, out);
    }
    if nflog.common.group != 0 {
        let _ = write!(out, " {dashes}nflog-group {}", nflog.common.group);
    }
    // iptables writes the size if there is one, else the range.
    match nflog.common.size {
        Some(size) => {
            let _ = write!(out, " {dashes}nflog-size {size}");
        }
        None if nflog.range != 0 => {
            let _ = write!(out, " {dashes}nflog-range {}", nflog.range);
        }
        None => {}
    }
    if nflog.common.threshold != 0 {
        let _ = write!(out, " {dashes}nflog-threshold {}", nflog.common.threshold);
    }
}

/// All forms of MARK are `mark & !mask ^ value`.
fn mark(given: &Given<'_, '_>) -> Result<(u32, u32), RuleError> {
    let word = given.value();
    let bits = || values::number_in(word, 0, u64::from(u32::MAX)).map(|bits| bits as u32);
    Ok(match given.name {
        "--and-mark" => (0, !bits()?),
        "--or-mark" => bits().map(|bits| (bits, bits))?,
        "--xor-mark" => (bits()?, 0),
        name => {
            let (value, mask) = values::value_and_mask(word)?;
            let mask = mask.unwrap_or(u32::MAX);
            (value, if name == "--set-mark" { value | mask } else { mask })
        }
    })
}

fn list_mark(value: u32, mask: u32, out: &mut String) {
    let _ = match (value, mask) {
        (0, mask) => write!(out, " MARK and {:#x}", !mask),
        (value, mask) if value == mask => write!(out, " MARK or {value:#x}"),
        (value, 0) => write!(out, " MARK xor {value:#x}"),
        (value, u32::MAX) => write!(out, " MARK set {value:#x}"),
        (value, mask) => write!(out, " MARK xset {value:#x}/{mask:#x}"),
    };
}

/// The number is that of the action in front of it.
fn mpls_action(before: Mpls, given: &Given<'_, '_>) -> Result<Mpls, RuleError> {
    let word = given.value();
    let known = |name: &str| MPLS_ACTIONS.into_iter().find(|action| mpls_name(*action) == name);
    match given.name {
        "--mpls-action" => known(&word.text).ok_or_else(|| {
            let remedy = "use go-next, skip-next or go-last; a label has no argument that could name an action";
            RuleError::value(word, "no action of MPLS", remedy)
        }),
        _ => {
            let count = values::number_in(word, 1, u64::from(MPLS_COUNT_MAX))? as u8;
            match before {
                Mpls::SkipNext(_) => Ok(Mpls::SkipNext(count)),
                Mpls::GoLast(_) => Ok(Mpls::GoLast(count)),
                Mpls::GoNext => {
                    let remedy = "put --mpls-action skip-next or go-last in front of it, or leave it out";
                    Err(RuleError::at(given.word, ErrorKind::Conflict, "go-next is about one label", remedy))
                }
            }
        }
    }
}

fn seg6_action(given: &Given<'_, '_>) -> Result<Seg6, RuleError> {
    let word = given.value();
    if given.name != "--seg6-action" {
        let reason = "binding SIDs, tables and next hops belong to the node's SIDs, not to a rule";
        return Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, "leave it out; see `sids` of the node"));
    }
    let name = word.text.strip_prefix("seg6-").unwrap_or(&word.text);
    SEG6_ACTIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, action)| *action)
        .ok_or_else(|| RuleError::value(word, "no action of SEG6", "use go-next, skip-next, go-last or eval-args"))
}
