//! A rule of the YAML form as the words of the same rule for iptables: both forms have one meaning and one set of checks.

use std::borrow::Cow;

use super::super::error::Position;
use super::super::head::Family;
use super::super::lexer::Word;
use super::super::values;
use super::form::{
    ActionForm, FragmentForm, HashLimitForm, LimitForm, LogForm, MatchForm, MplsForm, NflogForm, RuleForm, SrhForm,
};
use super::scalar::{Scalar, Scalars, position};

/// Words of a rule, in the making.
pub(super) struct Words<'f> {
    words: Vec<Word<'f>>,
    family: Family,
    /// Of the rule.
    place: Position,
    /// Options get a `!`.
    negated: bool,
}

impl<'f> Words<'f> {
    /// The words of a rule behind `-A CHAIN`.
    pub(super) fn of(rule: &'f RuleForm, place: Position, family: Family) -> Vec<Word<'f>> {
        let mut words = Self { words: Vec::new(), family, place, negated: false };
        words.matches(&rule.all_of);
        words.negated = true;
        words.matches(&rule.none_of);
        words.negated = false;
        words.limits(rule.limit.as_ref(), rule.hash_limit.as_ref());
        if let Some(comment) = &rule.comment {
            words.extension("comment", "--comment", comment);
        }
        words.target(rule);
        words.words
    }

    fn plain(&mut self, text: &'static str, place: Position) {
        self.words.push(Word { text: Cow::Borrowed(text), position: place, quoted: false });
    }

    /// `[!] --option`.
    fn option(&mut self, option: &'static str, place: Position) {
        if self.negated {
            self.plain("!", place);
        }
        self.plain(option, place);
    }

    fn value(&mut self, option: &'static str, value: Word<'f>) {
        self.option(option, value.position);
        self.words.push(value);
    }

    fn scalar(&mut self, option: &'static str, value: &'f Option<Scalar>) {
        if let Some(value) = value {
            self.value(option, value.word());
        }
    }

    /// `-m NAME --option VALUE`.
    fn extension(&mut self, name: &'static str, option: &'static str, value: &'f Scalar) {
        self.load(name, value.position());
        self.value(option, value.word());
    }

    fn load(&mut self, name: &'static str, place: Position) {
        self.plain("-m", place);
        self.plain(name, place);
    }

    fn extensions(&mut self, options: &[(&'static str, &'static str, &'f Option<Scalar>)]) {
        for (name, option, value) in options {
            if let Some(value) = value {
                self.extension(name, option, value);
            }
        }
    }

    fn lists(&mut self, options: &[(&'static str, &'static str, &'f Option<Scalars>, bool)]) {
        for (name, option, values, colons) in options {
            if let Some(values) = values {
                let word = values.word(*colons);
                self.load(name, word.position);
                self.value(option, word);
            }
        }
    }

    fn matches(&mut self, form: &'f MatchForm) {
        for (option, values) in [("-s", &form.source), ("-d", &form.destination)] {
            if let Some(values) = values {
                self.value(option, values.word(false));
            }
        }
        self.scalar("-i", &form.in_interface);
        self.scalar("-o", &form.out_interface);
        self.scalar("-p", &form.protocol);
        if form.later_fragment {
            self.option("-f", self.place);
        }
        self.lists(&[
            ("multiport", "--sports", &form.source_ports, true),
            ("multiport", "--dports", &form.destination_ports, true),
            ("multiport", "--ports", &form.ports, true),
        ]);
        self.tcp(form);
        let (icmp, icmp_type) = match self.family {
            Family::Ipv4 => ("icmp", "--icmp-type"),
            Family::Ipv6 => ("icmp6", "--icmpv6-type"),
        };
        let hop_limit = match self.family {
            Family::Ipv4 => ["ttl", "--ttl-eq", "--ttl-lt", "--ttl-gt"],
            Family::Ipv6 => ["hl", "--hl-eq", "--hl-lt", "--hl-gt"],
        };
        self.extensions(&[
            (icmp, icmp_type, &form.icmp),
            ("iprange", "--src-range", &form.source_range),
            ("iprange", "--dst-range", &form.destination_range),
            ("mark", "--mark", &form.mark),
            ("tos", "--tos", &form.tos),
            (hop_limit[0], hop_limit[1], &form.hop_limit),
            (hop_limit[0], hop_limit[2], &form.hop_limit_below),
            (hop_limit[0], hop_limit[3], &form.hop_limit_above),
            ("mac", "--mac-source", &form.source_mac),
            ("conntrack", "--ctdir", &form.direction),
        ]);
        self.lists(&[
            ("conntrack", "--ctstate", &form.state, false),
            ("addrtype", "--src-type", &form.source_type, false),
            ("addrtype", "--dst-type", &form.destination_type, false),
        ]);
        if let Some(length) = &form.length {
            self.load("length", length.position());
            self.value("--length", range(length));
        }
        if let Some(dscp) = &form.dscp {
            let numeric = values::number(dscp.text()).is_some();
            self.extension("dscp", if numeric { "--dscp" } else { "--dscp-class" }, dscp);
        }
        for set in &form.sets {
            self.load("set", set.name.position());
            self.value("--match-set", set.name.word());
            self.words.push(set.sides.word(false));
        }
        if let Some(fragment) = &form.fragment {
            self.fragment(fragment);
        }
        if let Some(srh) = &form.srh {
            self.srh(srh);
        }
        for entry in &form.mpls {
            self.mpls(entry);
        }
    }

    fn tcp(&mut self, form: &'f MatchForm) {
        if form.syn {
            self.load("tcp", self.place);
            self.option("--syn", self.place);
        }
        if let Some(flags) = &form.tcp_flags {
            let of = flags.of.word(false);
            self.load("tcp", of.position);
            self.value("--tcp-flags", of);
            self.words.push(flags.set.word(false));
        }
        self.extensions(&[("tcp", "--tcp-option", &form.tcp_option)]);
    }

    fn fragment(&mut self, form: &'f FragmentForm) {
        self.load("frag", self.place);
        if let Some(id) = &form.id {
            self.value("--fragid", range(id));
        }
        for (set, option) in [
            (form.reserved_zero, "--fragres"),
            (form.first, "--fragfirst"),
            (form.more == Some(true), "--fragmore"),
            (form.more == Some(false), "--fraglast"),
        ] {
            if set {
                self.option(option, self.place);
            }
        }
    }

    /// A match of its own for each key: a number may be compared twice.
    fn srh(&mut self, form: &'f SrhForm) {
        let before = self.words.len();
        self.extensions(&[
            ("srh", "--inner-src", &form.inner_source),
            ("srh", "--inner-dst", &form.inner_destination),
            ("srh", "--srh-next-hdr", &form.next_header),
            ("srh", "--srh-hdr-len-eq", &form.length),
            ("srh", "--srh-hdr-len-gt", &form.length_above),
            ("srh", "--srh-hdr-len-lt", &form.length_below),
            ("srh", "--srh-segs-left-eq", &form.segments_left),
            ("srh", "--srh-segs-left-gt", &form.segments_left_above),
            ("srh", "--srh-segs-left-lt", &form.segments_left_below),
            ("srh", "--srh-last-entry-eq", &form.last_entry),
            ("srh", "--srh-last-entry-gt", &form.last_entry_above),
            ("srh", "--srh-last-entry-lt", &form.last_entry_below),
            ("srh", "--srh-tag", &form.tag),
            ("srh", "--srh-psid", &form.previous_sid),
            ("srh", "--srh-nsid", &form.next_sid),
            ("srh", "--srh-lsid", &form.last_sid),
        ]);
        if self.words.len() == before {
            if self.negated {
                // "No SRH" cannot be said to iptables; the parser's error tells.
                self.plain("!", self.place);
            }
            self.load("srh", self.place);
        }
    }

    /// One match for all that an entry must have; what it must not have, key by key. The depth is what is looked at, and not a
    /// condition, but for `any`: then no entry must be such a one.
    fn mpls(&mut self, form: &'f MplsForm) {
        let keys = [
            ("--mpls-label", &form.label),
            ("--mpls-tc", &form.traffic_class),
            ("--mpls-bos", &form.bottom),
            ("--mpls-ttl", &form.ttl),
            ("--mpls-entries", &form.entries),
        ];
        let given: Vec<_> = keys.into_iter().filter_map(|(option, value)| Some((option, value.as_ref()?))).collect();
        let none_of = std::mem::take(&mut self.negated);
        let is_any = form.depth.as_ref().is_some_and(|depth| depth.text() == "any");
        for keys in given.chunks(if none_of { 1 } else { keys.len() }) {
            self.load("mpls", keys[0].1.position());
            self.mpls_depth(form, none_of && is_any);
            for (option, value) in keys {
                self.negated = none_of && !is_any;
                self.value(option, range(value));
                self.negated = false;
            }
        }
        if given.is_empty() {
            if none_of {
                // "No labels", or no entry at a depth, cannot be said; the parser's error tells.
                self.plain("!", self.place);
            }
            self.load("mpls", self.place);
            self.mpls_depth(form, false);
        }
        self.negated = none_of;
    }

    fn mpls_depth(&mut self, form: &'f MplsForm, negated: bool) {
        if let Some(depth) = &form.depth {
            self.negated = negated;
            self.value("--mpls-depth", depth.word());
            self.negated = false;
        }
    }

    fn limits(&mut self, limit: Option<&'f LimitForm>, hash_limit: Option<&'f HashLimitForm>) {
        if let Some(limit) = limit {
            self.extension("limit", "--limit", &limit.rate);
            self.scalar("--limit-burst", &limit.burst);
        }
        if let Some(limit) = hash_limit {
            self.extension("hashlimit", "--hashlimit-name", &limit.name);
            self.scalar("--hashlimit-upto", &limit.up_to);
            self.scalar("--hashlimit-above", &limit.above);
            self.scalar("--hashlimit-burst", &limit.burst);
            if let Some(by) = &limit.by {
                self.value("--hashlimit-mode", by.word(false));
            }
            self.scalar("--hashlimit-srcmask", &limit.source_prefix);
            self.scalar("--hashlimit-dstmask", &limit.destination_prefix);
            self.scalar("--hashlimit-htable-expire", &limit.expire_ms);
            self.scalar("--hashlimit-htable-max", &limit.entries_max);
        }
    }

    /// Every target that is named: the parser refuses a second one.
    fn target(&mut self, rule: &'f RuleForm) {
        if let Some(action) = &rule.action {
            let name = match action.value {
                ActionForm::Accept => Some("ACCEPT"),
                ActionForm::Drop => Some("DROP"),
                ActionForm::Return => Some("RETURN"),
                ActionForm::Reject => Some("REJECT"),
                ActionForm::Count => None,
            };
            if let Some(name) = name {
                self.jump(name, position(action.referenced));
            }
        }
        self.scalar("-j", &rule.jump);
        self.scalar("-g", &rule.goto);
        for (name, option, value) in [
            ("REJECT", "--reject-with", &rule.reject),
            ("MARK", "--set-mark", &rule.mark),
            ("SEG6", "--seg6-action", &rule.seg6),
            ("MPLS", "--mpls-action", &rule.mpls),
        ] {
            if let Some(value) = value {
                self.jump(name, value.position());
                self.value(option, value.word());
            }
        }
        self.scalar("--mpls-count", &rule.mpls_count);
        if let Some(log) = &rule.log {
            self.jump("LOG", position(log.referenced));
            self.log(&log.value, position(log.referenced));
        }
        if let Some(nflog) = &rule.nflog {
            self.jump("NFLOG", position(nflog.referenced));
            let NflogForm { group, prefix, size, threshold } = &nflog.value;
            self.scalar("--nflog-group", group);
            self.scalar("--nflog-prefix", prefix);
            self.scalar("--nflog-size", size);
            self.scalar("--nflog-threshold", threshold);
        }
    }

    fn jump(&mut self, name: &'static str, place: Position) {
        self.plain("-j", place);
        self.plain(name, place);
    }

    fn log(&mut self, log: &'f LogForm, place: Position) {
        self.scalar("--log-prefix", &log.prefix);
        self.scalar("--log-level", &log.level);
        for (set, option) in [
            (log.tcp_sequence, "--log-tcp-sequence"),
            (log.tcp_options, "--log-tcp-options"),
            (log.ip_options, "--log-ip-options"),
        ] {
            if set {
                self.option(option, place);
            }
        }
    }
}

/// `first-last` of the YAML form is `first:last` in iptables.
fn range(value: &Scalar) -> Word<'static> {
    Word { text: Cow::Owned(value.text().replace('-', ":")), position: value.position(), quoted: true }
}
