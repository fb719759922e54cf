//! The lookup structure as lines of 64 octets: what `bpf/include/abi/classifier.h` describes, written here and nowhere else.

use std::collections::HashMap;

use crate::compile::error::CompileError;
use crate::compile::tree::{THRESHOLDS, Tree, WINDOW_BITS, WINDOW_STEP, Window};
use crate::field::{Depth, Entry, Field};
use crate::key::Presence;
use crate::normal::{Check, Normal};
use crate::program::{Action, Condition, Mpls, Program, Reject, Rule, Seg6, Verdict};

/// Octets of a line.
pub const LINE: usize = 64;
/// 32-bit words of a line.
const LINE_WORDS: usize = LINE / 4;
/// Lines of a chain: one for each family.
const CHAIN_LINES: usize = 3;
/// `SEGUE_CLASSIFIER_VERSION`.
const VERSION: u32 = 2;
/// Words of a rule's line.
const RULE_ARGUMENT: usize = 14;
const RULE_DETAIL: usize = 15;
/// `SEGUE_MPLS_COUNT_SHIFT`.
const MPLS_COUNT_SHIFT: u32 = 3;
/// `SEGUE_CLASSIFIER_CHECKS_MAX`.
const CHECKS_MAX: usize = 65_000;
/// Half of the lines that targets of 28 bits reach: there is room for a second image.
const LINES_MAX: usize = 1 << 24;

/// `SEGUE_SLOT_TARGET_BITS` and so on.
pub(crate) const TARGET_BITS: u32 = 28;
pub(crate) const FIRST_SHIFT: u32 = 46;
/// `first` of a slot without rules.
pub(crate) const FIRST_NONE: u32 = (1 << 18) - 1;

/// Trees of a chain and family; `SEGUE_CLASSIFIER_TREES`.
pub(crate) const TREES_MAX: usize = 4;
/// `SEGUE_CLASSIFIER_ENTRIES`: rules of a group.
pub(crate) const ENTRIES: usize = 4;
/// 32-bit words of a group: lowest and highest values, and lines.
pub(crate) const GROUP_WORDS: usize = 8;
/// The highest bit of an octet, which keeps a borrow from the next one.
const TOP: u8 = 1 << WINDOW_BITS;

pub(crate) const CHECK_MATCH: u16 = 0xffff;
pub(crate) const CHECK_FAIL: u16 = 0xfffe;
pub(crate) const CHECK_WORDS: usize = 8;

pub(crate) mod kind {
    pub const LEAF: u32 = 0;
    pub const LONG: u32 = 1;
    pub const CUT: u32 = 2;
    pub const SPLIT: u32 = 3;
}

pub(crate) mod flag {
    pub const SOURCE_PORT: u8 = 1;
    pub const DESTINATION_PORT: u8 = 2;
    pub const PROTOCOL: u8 = 4;
    pub const FAMILY: u8 = 8;
    pub const EXTENSIONS: u8 = 16;
}

/// `enum segue_classifier_action`, of what fits no other enumeration.
mod action {
    pub const NONE: u8 = 0;
    pub const ACCEPT: u8 = 1;
    pub const DROP: u8 = 2;
    pub const REJECT: u8 = 3;
    pub const LOG: u8 = 4;
    pub const NFLOG: u8 = 5;
    pub const MARK: u8 = 6;
    pub const JUMP: u8 = 7;
    pub const GOTO: u8 = 8;
    pub const RETURN: u8 = 9;
    pub const SEG6: u8 = 10;
    pub const POLICY: u8 = 11;
    pub const CONTINUE: u8 = 12;
}

/// What a word of the image names, relative to the image's first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Line,
    Slot,
}

/// A compiled program. Positions in it are relative until [`Image::emit`].
#[derive(Debug, Clone)]
pub struct Image {
    words: Vec<u32>,
    relocations: Vec<(u32, Unit)>,
    rules: usize,
    chain_rules: Vec<usize>,
}

impl Image {
    /// Lines that it takes.
    pub fn lines(&self) -> usize {
        self.words.len() / LINE_WORDS
    }

    /// Octets that it takes.
    pub fn octets(&self) -> usize {
        self.words.len() * 4
    }

    /// Which 32-bit words of a key some rule looks at: bit w for word w.
    pub fn key_words(&self) -> u64 {
        let word = |at| u64::from(self.words.get(at).copied().unwrap_or(0));
        word(6) | word(7) << 32
    }

    /// Rules of all chains.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Line that names a chain (`segue_classifier_root`), for an image at `base`.
    pub fn chain_line(&self, chain: usize, base: u32) -> u32 {
        base + (1 + CHAIN_LINES * chain) as u32
    }

    /// Line of a rule, for an image at `base`.
    pub fn rule_line(&self, chain: usize, rule: usize, base: u32) -> u32 {
        base + (self.first_rule() + self.rule_number(chain, rule)) as u32
    }

    /// Number of a rule among those of all chains: its row in counters.
    pub fn rule_number(&self, chain: usize, rule: usize) -> usize {
        self.chain_rules[chain] + rule
    }

    fn first_rule(&self) -> usize {
        1 + CHAIN_LINES * (self.chain_rules.len() - 1)
    }

    /// As [`Image::emit`], in one piece, with other arguments and details in the rules' lines: those of `results`, by the
    /// rules' numbers.
    pub fn emit_with(&self, base: u32, results: &[[u32; 2]]) -> Vec<u8> {
        let mut octets = self.emit(base).into_flattened();
        let rules = octets.chunks_exact_mut(LINE).skip(self.first_rule());
        for (line, [argument, detail]) in rules.zip(results) {
            line[4 * RULE_ARGUMENT..][..4].copy_from_slice(&argument.to_le_bytes());
            line[4 * RULE_DETAIL..][..4].copy_from_slice(&detail.to_le_bytes());
        }
        octets
    }

    /// The lines, as they are to lie from line `base` on of the whole array.
    pub fn emit(&self, base: u32) -> Vec<[u8; LINE]> {
        let mut words = self.words.clone();
        for (position, unit) in &self.relocations {
            let word = &mut words[*position as usize];
            *word = word.wrapping_add(match unit {
                Unit::Line => base,
                Unit::Slot => base.wrapping_mul(8),
            });
        }
        let line = |words: &[u32]| {
            let mut line = [0; LINE];
            for (octets, word) in line.chunks_exact_mut(4).zip(words) {
                octets.copy_from_slice(&word.to_le_bytes());
            }
            line
        };
        words.chunks_exact(LINE_WORDS).map(line).collect()
    }
}

/// Target, and kind, a, b and c of a slot.
type LeafSlot = (usize, [u32; 4]);

/// How far rule numbers of a chain are shifted to fit `first` of a slot.
fn first_shift(rules: usize) -> u32 {
    (0..).find(|shift| rules >> shift < FIRST_NONE as usize).unwrap_or(0)
}

/// Puts an image together.
pub(crate) struct Layout<'a> {
    program: &'a Program,
    image: Image,
    /// Where lists of rules lie already, by the list.
    leaves: HashMap<(Vec<u32>, [Window; 2]), LeafSlot>,
    key_words: u64,
}

impl<'a> Layout<'a> {
    pub fn new(program: &'a Program) -> Self {
        let mut chain_rules = vec![0];
        for chain in &program.chains {
            chain_rules.push(chain_rules[chain_rules.len() - 1] + chain.rules.len());
        }
        let rules = chain_rules[program.chains.len()];
        let lines = 1 + CHAIN_LINES * program.chains.len() + rules;
        let image = Image { words: vec![0; lines * LINE_WORDS], relocations: Vec::new(), rules, chain_rules };
        let mut layout = Self { program, image, leaves: HashMap::new(), key_words: 0 };
        layout.chains();
        layout
    }

    fn put(&mut self, at: usize, words: &[u32]) {
        self.image.words[at..at + words.len()].copy_from_slice(words);
    }

    fn relocate(&mut self, at: usize, unit: Unit) {
        self.image.relocations.push((at as u32, unit));
    }

    /// The next free word, at a multiple of `words`.
    fn align(&mut self, words: usize) -> usize {
        let at = self.image.words.len().next_multiple_of(words);
        self.image.words.resize(at, 0);
        at
    }

    fn root(chain: usize, family: usize) -> usize {
        (1 + CHAIN_LINES * chain + family) * LINE_WORDS
    }

    /// Everything of the roots but the trees.
    fn chains(&mut self) {
        for (index, chain) in self.program.chains.iter().enumerate() {
            let policy = match chain.policy {
                None => action::NONE,
                Some(Verdict::Accept) => action::ACCEPT,
                Some(Verdict::Drop) => action::DROP,
            };
            let first = self.image.rule_line(index, 0, 0);
            let image_first = self.image.first_rule() as u32;
            for family in 0..CHAIN_LINES {
                let at = Self::root(index, family);
                let rest = u32::from(policy) | first_shift(chain.rules.len()) << 8;
                self.put(at + 8, &[image_first, first, chain.rules.len() as u32, rest]);
                self.relocate(at + 8, Unit::Line);
                self.relocate(at + 9, Unit::Line);
            }
        }
    }

    /// A rule's line; without form it matches nothing and is in no tree.
    pub fn rule(
        &mut self,
        chain: usize,
        number: usize,
        rule: &Rule,
        form: Option<&Normal>,
    ) -> Result<(), CompileError> {
        let at = self.image.rule_line(chain, number, 0) as usize * LINE_WORDS;
        self.key_words |= rule.conditions.iter().map(words_of).fold(0, |all, words| all | words);
        let fast = form.map(|form| form.fast).unwrap_or_default();
        for (half, (value, length)) in fast.halves.iter().enumerate() {
            let ignored = 64 - length;
            self.put(at + 2 * half, &[*value as u32, (value >> 32) as u32]);
            self.put_octet(at + 8, half, ignored / 2);
            self.put_octet(at + 9, half, ignored - ignored / 2);
        }
        let ports =
            |range: Option<(u16, u16)>| range.map_or(0, |(first, last)| u32::from(first) | u32::from(last) << 16);
        let flags = [
            (fast.source_ports.is_some(), flag::SOURCE_PORT),
            (fast.destination_ports.is_some(), flag::DESTINATION_PORT),
            (fast.protocol.is_some(), flag::PROTOCOL),
            (fast.family.is_some(), flag::FAMILY),
            (!rule.extensions.is_empty(), flag::EXTENSIONS),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let (action, detail, argument) = self.action(at, &rule.action);
        let octets = [fast.protocol.unwrap_or(0), fast.family.unwrap_or(0), flags, action];
        let checks = match form {
            Some(form) if !form.clauses.is_empty() => self.checks(form).ok_or_else(|| CompileError::Checks {
                chain: self.program.chains[chain].name.clone(),
                line: rule.line,
                max: CHECKS_MAX,
            })?,
            _ => 0,
        };
        if checks != 0 {
            self.relocate(at + 13, Unit::Line);
        }
        let rest =
            [ports(fast.source_ports), ports(fast.destination_ports), u32::from_le_bytes(octets), checks, argument];
        self.put(at + 10, &rest);
        self.put(at + RULE_DETAIL, &[detail.into()]);
        Ok(())
    }

    fn put_octet(&mut self, at: usize, octet: usize, value: u8) {
        let shift = 8 * octet;
        self.image.words[at] = self.image.words[at] & !(0xff << shift) | u32::from(value) << shift;
    }

    /// Kind, detail and argument.
    fn action(&mut self, rule: usize, action: &Action) -> (u8, u8, u32) {
        match action {
            Action::Accept => (action::ACCEPT, 0, 0),
            Action::Drop => (action::DROP, 0, 0),
            Action::Reject(reject) => {
                let (detail, code) = reject_code(*reject);
                (action::REJECT, detail, code)
            }
            Action::Log(_) => (action::LOG, 0, 0),
            Action::Nflog(_) => (action::NFLOG, 0, 0),
            Action::Mark { value, mask } => {
                let at = self.align(LINE_WORDS);
                self.image.words.resize(at + LINE_WORDS, 0);
                self.put(at, &[*value, *mask]);
                self.relocate(rule + RULE_ARGUMENT, Unit::Line);
                (action::MARK, 0, (at / LINE_WORDS) as u32)
            }
            Action::Jump(chain) | Action::Goto(chain) => {
                self.relocate(rule + RULE_ARGUMENT, Unit::Line);
                let kind = if matches!(action, Action::Jump(_)) { action::JUMP } else { action::GOTO };
                (kind, 0, self.image.chain_line(*chain, 0))
            }
            Action::Return => (action::RETURN, 0, 0),
            Action::Seg6(operation) => {
                let detail = match operation {
                    Seg6::GoNext => 0,
                    Seg6::SkipNext => 1,
                    Seg6::GoLast => 2,
                    Seg6::EvalArgs => 3,
                };
                (action::SEG6, detail, 0)
            }
            Action::Mpls(operation) => {
                let detail = match operation {
                    Mpls::GoNext => 4,
                    Mpls::SkipNext(count) => 5 | count << MPLS_COUNT_SHIFT,
                    Mpls::GoLast(count) => 6 | count << MPLS_COUNT_SHIFT,
                };
                (action::SEG6, detail, 0)
            }
            Action::Policy(policy) => (action::POLICY, 0, *policy),
            Action::Continue => (action::CONTINUE, 0, 0),
        }
    }

    /// Writes a rule's checks and returns their line; None: too many.
    fn checks(&mut self, form: &Normal) -> Option<u32> {
        let lengths = form.clauses.iter().map(|clause| clause.iter().map(Vec::len).sum::<usize>()).collect::<Vec<_>>();
        if lengths.iter().sum::<usize>() > CHECKS_MAX {
            return None;
        }
        let at = self.align(LINE_WORDS);
        let mut number = 0;
        for (index, clause) in form.clauses.iter().enumerate() {
            let next_clause = number + lengths[index];
            let success = if index + 1 == form.clauses.len() { CHECK_MATCH } else { next_clause as u16 };
            for (position, alternative) in clause.iter().enumerate() {
                let next = number + alternative.len();
                let failure = if position + 1 == clause.len() { CHECK_FAIL } else { next as u16 };
                for (place, check) in alternative.iter().enumerate() {
                    let last = place + 1 == alternative.len();
                    self.check(check, if last { success } else { (number + 1) as u16 }, failure);
                    number += 1;
                }
            }
            // A clause without alternatives cannot come from a rule that some packet matches.
            debug_assert_eq!(number, next_clause);
        }
        self.align(LINE_WORDS);
        Some((at / LINE_WORDS) as u32)
    }

    fn check(&mut self, check: &Check, on_true: u16, on_false: u16) {
        let wide = |value: u64| [value as u32, (value >> 32) as u32];
        let first = check.word as u32 | u32::from(check.negated) << 8 | u32::from(on_true) << 16;
        let [mask, low, span] = [wide(check.mask), wide(check.low), wide(check.span)];
        self.image.words.extend([first, on_false.into()].into_iter().chain(mask).chain(low).chain(span));
    }

    /// A chain's trees for one family. `numbers`: the rules that the trees' items stand for.
    pub fn forest(&mut self, chain: usize, family: usize, numbers: &[u32], trees: &[Tree]) {
        let root = Self::root(chain, family);
        let first_line = self.image.rule_line(chain, 0, 0);
        let shift = first_shift(self.program.chains[chain].rules.len());
        self.put_octet(root + 11, 2, trees.len().min(TREES_MAX) as u8);
        let line = |item: u32| (first_line + numbers[item as usize], numbers[item as usize] >> shift);
        for (index, tree) in trees.iter().enumerate() {
            self.tree(root + 2 * index, tree, &line);
        }
    }

    /// Writes a tree, and the slot that names it. `line`: an item's line, and its number as slots hold it. Returns the least number.
    fn tree(&mut self, slot: usize, tree: &Tree, line: &impl Fn(u32) -> (u32, u32)) -> u32 {
        match tree {
            Tree::Leaf(items, windows) => {
                let first = items.first().map_or(FIRST_NONE, |item| line(*item).1);
                self.leaf(slot, items.iter().map(|item| line(*item).0).collect(), windows, first);
                first
            }
            Tree::Cut { word, shift, children, .. } => {
                self.key_words |= 1 << word;
                // Children that fill lines begin one.
                let at = self.align(if children.len() >= 8 { LINE_WORDS } else { 2 });
                self.image.words.resize(at + 2 * children.len(), 0);
                let first = self.children(at, children, line);
                self.slot(slot, at / 2, [kind::CUT, *word as u32, *shift, children.len().ilog2()], first);
                first
            }
            Tree::Split { word, thresholds, children, .. } => {
                self.key_words |= 1 << word;
                let at = self.align(LINE_WORDS);
                self.image.words.resize(at + LINE_WORDS + 2 * children.len(), 0);
                let mut filled = [u32::MAX; THRESHOLDS + 1];
                filled[..thresholds.len()].copy_from_slice(thresholds);
                self.put(at, &filled);
                let first = self.children(at + LINE_WORDS, children, line);
                self.slot(slot, at / 2, [kind::SPLIT, *word as u32, 0, 0], first);
                first
            }
        }
    }

    fn children(&mut self, at: usize, children: &[Tree], line: &impl Fn(u32) -> (u32, u32)) -> u32 {
        let place = |(index, child)| (at + 2 * index, child);
        let firsts = children.iter().enumerate().map(place).map(|(at, child)| self.tree(at, child, line));
        firsts.min().unwrap_or(FIRST_NONE)
    }

    fn slot(&mut self, slot: usize, target: usize, parts: [u32; 4], first: u32) {
        self.put_slot(slot, target as u32, parts, first);
        self.relocate(slot, Unit::Slot);
    }

    fn put_slot(&mut self, slot: usize, target: u32, [kind, a, b, c]: [u32; 4], first: u32) {
        let wide = u64::from(target)
            | u64::from(kind) << TARGET_BITS
            | u64::from(a) << 30
            | u64::from(b) << 36
            | u64::from(c) << 41
            | u64::from(first) << FIRST_SHIFT;
        self.put(slot, &[wide as u32, (wide >> 32) as u32]);
    }

    fn leaf(&mut self, slot: usize, lines: Vec<u32>, windows: &[Window; 2], first: u32) {
        let leaf = (lines, windows.clone());
        let (target, parts) = match self.leaves.get(&leaf) {
            Some(known) => *known,
            None => {
                let new = self.new_leaf(&leaf.0, windows);
                self.leaves.insert(leaf, new);
                new
            }
        };
        self.slot(slot, target, parts, first);
    }

    /// Writes a leaf's groups.
    fn new_leaf(&mut self, lines: &[u32], windows: &[Window; 2]) -> LeafSlot {
        let at = self.align(GROUP_WORDS);
        let range = |window: &Window, place: usize| match window.ranges.get(place) {
            _ if place >= lines.len() => (1, 0),
            None => (0, TOP - 1),
            Some(range) => *range,
        };
        let kind = if lines.len() > ENTRIES { kind::LONG } else { kind::LEAF };
        // The last place of a long leaf is free.
        let groups = if kind == kind::LONG { lines.len() / ENTRIES + 1 } else { 1 };
        for group in 0..groups {
            let places = [0, 1, 2, 3].map(|place| group * ENTRIES + place);
            let low = windows.each_ref().map(|window| places.map(|place| range(window, place).0));
            let high = windows.each_ref().map(|window| places.map(|place| range(window, place).1 | TOP));
            self.image.words.extend(low.into_iter().chain(high).map(u32::from_le_bytes));
            for place in places {
                if place < lines.len() {
                    self.relocate(self.image.words.len(), Unit::Line);
                }
                self.image.words.push(lines.get(place).copied().unwrap_or(0));
            }
        }
        for window in windows.iter().filter(|window| !window.ranges.is_empty()) {
            self.key_words |= 1 << window.word;
        }
        let [one, other] = windows;
        // A group begins at a multiple of four slots.
        let target = at / 2 + (other.shift / WINDOW_STEP) as usize;
        (target, [kind, one.word as u32, one.shift, other.word as u32])
    }

    /// Writes the header.
    pub fn finish(mut self) -> Result<Image, CompileError> {
        self.align(LINE_WORDS);
        let lines = self.image.lines();
        if lines > LINES_MAX {
            return Err(CompileError::Size { lines, max: LINES_MAX });
        }
        let (rules, chains) = (self.image.first_rule() as u32, self.program.chains.len() as u32);
        let (low, high) = (self.key_words as u32, (self.key_words >> 32) as u32);
        self.put(0, &[VERSION, lines as u32, rules, self.image.rules as u32, 1, chains, low, high]);
        self.relocate(2, Unit::Line);
        self.relocate(4, Unit::Line);
        Ok(self.image)
    }
}

/// Words of the key that a condition looks at.
fn words_of(condition: &Condition) -> u64 {
    if condition.field.is_any() {
        return Depth::all().fold(0, |words, depth| words | words_of_field(condition.field.of_entry(Entry::At(depth))));
    }
    words_of_field(condition.field)
}

fn words_of_field(field: Field) -> u64 {
    let layout = field.layout();
    let own = (0..field.width().div_ceil(32)).fold(0, |words, word| words | 1 << (layout.word as u32 + word));
    own | match layout.presence {
        Presence::Where { word, .. } | Presence::WhereUpTo { word, .. } => 1 << word,
        _ => 0,
    }
}

/// `enum segue_classifier_reject` and the ICMP code.
fn reject_code(reject: Reject) -> (u8, u32) {
    const ICMP: u8 = 1;
    const ICMP6: u8 = 2;
    match reject {
        Reject::TcpReset => (0, 0),
        Reject::IcmpNetUnreachable => (ICMP, 0),
        Reject::IcmpHostUnreachable => (ICMP, 1),
        Reject::IcmpProtoUnreachable => (ICMP, 2),
        Reject::IcmpPortUnreachable => (ICMP, 3),
        Reject::IcmpNetProhibited => (ICMP, 9),
        Reject::IcmpHostProhibited => (ICMP, 10),
        Reject::IcmpAdminProhibited => (ICMP, 13),
        Reject::Icmp6NoRoute => (ICMP6, 0),
        Reject::Icmp6AdmProhibited => (ICMP6, 1),
        Reject::Icmp6AddrUnreachable => (ICMP6, 3),
        Reject::Icmp6PortUnreachable => (ICMP6, 4),
        Reject::Icmp6PolicyFail => (ICMP6, 5),
        Reject::Icmp6RejectRoute => (ICMP6, 6),
    }
}
