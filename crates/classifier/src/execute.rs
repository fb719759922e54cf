//! Walks an image as `bpf/lib/classifier.h` does, octet for octet: so the structure is tested without a kernel.

use crate::compile::forest::TREES_MAX;
use crate::image::{
    CHECK_FAIL, CHECK_MATCH, CHECK_WORDS, FIRST_NONE, FIRST_SHIFT, Image, LINE, TARGET_BITS, flag, kind,
};
use crate::key::{Key, word};

/// 32-bit words of a line.
const LINE_WORDS: usize = LINE / 4;

/// What a walk touched: for measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Inner nodes.
    pub nodes: usize,
    /// Rules compared.
    pub rules: usize,
    /// Distinct lines read, from the root line to the last rule's.
    pub lines: usize,
}

/// A slot, see the header.
#[derive(Clone, Copy)]
struct Slot(u64);

impl Slot {
    fn target(self) -> usize {
        (self.0 & ((1 << TARGET_BITS) - 1)) as usize
    }

    fn kind(self) -> u32 {
        (self.0 >> TARGET_BITS) as u32 & 3
    }

    fn a(self) -> usize {
        (self.0 >> 30) as usize & 0x3f
    }

    fn b(self) -> u32 {
        (self.0 >> 36) as u32 & 0x1f
    }

    fn c(self) -> u32 {
        (self.0 >> 41) as u32 & 0x1f
    }

    fn first(self) -> u32 {
        (self.0 >> FIRST_SHIFT) as u32
    }
}

/// An image as it lies in the data plane's array.
#[derive(Debug, Clone)]
pub struct Memory {
    words: Vec<u32>,
}

impl Memory {
    /// An array of lines that begins with an image at line `base`.
    pub fn new(image: &Image, base: u32) -> Self {
        let mut words = vec![0; base as usize * LINE_WORDS];
        for line in image.emit(base) {
            words.extend(line.chunks_exact(4).map(|octets| u32::from_le_bytes(octets.try_into().unwrap_or_default())));
        }
        Self { words }
    }

    fn word(&self, at: usize) -> u32 {
        self.words.get(at).copied().unwrap_or(0)
    }

    fn wide(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 1)) << 32
    }

    /// Line of the first rule of the chain named by line `chain` that matches and lies behind line `after` (0: any); 0 if none does.
    pub fn classify(&self, chain: u32, key: &Key, after: u32) -> u32 {
        self.walk(chain, key, after, &mut |_| {}, &mut Effort::default())
    }

    /// The same, and what it took.
    pub fn measure(&self, chain: u32, key: &Key, after: u32) -> (u32, Effort) {
        let (mut effort, mut lines) = (Effort::default(), std::collections::BTreeSet::new());
        let mut touch = |word: usize| {
            lines.insert(word / LINE_WORDS);
        };
        let found = self.walk(chain, key, after, &mut touch, &mut effort);
        effort.lines = lines.len();
        (found, effort)
    }

    fn walk(&self, chain: u32, key: &Key, after: u32, touch: &mut impl FnMut(usize), effort: &mut Effort) -> u32 {
        let family = match key.word(word::FAMILY) {
            4 => 0,
            6 => 1,
            _ => 2,
        };
        let root = (chain as usize + family) * LINE_WORDS;
        touch(root);
        let (rules, shift) = (self.word(root + 9), self.word(root + 11) >> 8 & 0x1f);
        let trees = (self.word(root + 11) >> 16 & 0xff) as usize;
        let (mut best, mut bound) = (u32::MAX, FIRST_NONE - 1);
        for tree in 0..trees.min(TREES_MAX) {
            let mut slot = Slot(self.wide(root + 2 * tree));
            while slot.first() <= bound {
                let value = key.word(slot.a());
                slot = match slot.kind() {
                    kind::CUT => {
                        let child = value >> slot.b() & ((1 << slot.c()) - 1);
                        effort.nodes += 1;
                        touch(2 * (slot.target() + child as usize));
                        Slot(self.wide(2 * (slot.target() + child as usize)))
                    }
                    kind::SPLIT => {
                        let thresholds = (0..16).map(|index| self.word(2 * slot.target() + index));
                        let child = slot.target() + 8 + thresholds.filter(|threshold| *threshold < value).count();
                        effort.nodes += 1;
                        touch(2 * slot.target());
                        touch(2 * child);
                        Slot(self.wide(2 * child))
                    }
                    _ => break,
                };
            }
            if slot.first() > bound {
                continue;
            }
            let (first, count) = match (slot.kind(), slot.c()) {
                (kind::LONG, _) => (2 * slot.target() + 1, self.word(2 * slot.target())),
                (_, count) => (2 * slot.target(), count),
            };
            for index in 0..count as usize {
                let line = if slot.kind() == kind::LEAF && count == 1 {
                    slot.target() as u32
                } else {
                    self.word(first + index)
                };
                touch(first + index);
                if line >= best {
                    break;
                }
                if line > after {
                    effort.rules += 1;
                    touch(line as usize * LINE_WORDS);
                    if self.rule_matches(line, key) {
                        best = line;
                        bound = (line - rules) >> shift;
                        break;
                    }
                }
            }
        }
        if best == u32::MAX { 0 } else { best }
    }

    fn rule_matches(&self, line: u32, key: &Key) -> bool {
        let at = line as usize * LINE_WORDS;
        let octet = |word: usize, index: usize| self.word(at + word) >> (8 * index) & 0xff;
        for half in 0..4 {
            let differs = self.wide(at + 2 * half) ^ key.words[half];
            if differs >> octet(8, half) >> octet(9, half) != 0 {
                return false;
            }
        }
        let flags = octet(12, 2) as u8;
        let has = |flag: u8| flags & flag != 0;
        let port = |range: u32, port: u32| (range & 0xffff..=range >> 16).contains(&port);
        if has(flag::SOURCE_PORT) && !port(self.word(at + 10), key.word(word::SOURCE_PORT))
            || has(flag::DESTINATION_PORT) && !port(self.word(at + 11), key.word(word::DESTINATION_PORT))
            || has(flag::PROTOCOL) && octet(12, 0) != key.word(word::PROTOCOL)
            || has(flag::FAMILY) && octet(12, 1) != key.word(word::FAMILY)
        {
            return false;
        }
        match self.word(at + 13) {
            0 => true,
            checks => self.checks_hold(checks, key),
        }
    }

    fn checks_hold(&self, line: u32, key: &Key) -> bool {
        let mut number = 0_u16;
        loop {
            let at = line as usize * LINE_WORDS + usize::from(number) * CHECK_WORDS;
            let first = self.word(at);
            let word = key.words.get((first & 0xff) as usize).copied().unwrap_or(0);
            let inside = (word & self.wide(at + 2)).wrapping_sub(self.wide(at + 4)) <= self.wide(at + 6);
            let next = if inside != (first >> 8 & 1 != 0) { (first >> 16) as u16 } else { self.word(at + 1) as u16 };
            match next {
                CHECK_MATCH => return true,
                CHECK_FAIL => return false,
                // Numbers only grow: this ends.
                _ if next <= number => return false,
                _ => number = next,
            }
        }
    }
}
