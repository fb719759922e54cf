//! Walks an image as `bpf/lib/classifier/rules.h` does, octet for octet: so the structure is tested without a kernel.

use crate::compile::tree::{WINDOW_BITS, WINDOW_STEP};
use crate::image::{
    CHECK_FAIL, CHECK_MATCH, CHECK_WORDS, ENTRIES, FIRST_NONE, FIRST_SHIFT, GROUP_WORDS, Image, LINE, TARGET_BITS,
    TREES_MAX, flag, kind,
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

    /// The bits of a key that it names, as a number.
    fn bits(self, key: &Key) -> u32 {
        key.word(self.a()) >> self.b() & ((1 << self.c()) - 1)
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
            while slot.kind() >= kind::CUT && slot.first() <= bound {
                effort.nodes += 1;
                let child = if slot.kind() == kind::CUT {
                    slot.target() + slot.bits(key) as usize
                } else {
                    let value = key.word(slot.a());
                    let thresholds = (0..16).map(|index| self.word(2 * slot.target() + index));
                    touch(2 * slot.target());
                    slot.target() + 8 + thresholds.filter(|threshold| *threshold < value).count()
                };
                touch(2 * child);
                slot = Slot(self.wide(2 * child));
            }
            if slot.first() > bound {
                continue;
            }
            if let Some(line) = self.leaf(slot, key, after, best, touch, effort) {
                best = line;
                bound = (line - rules) >> shift;
            }
        }
        if best == u32::MAX { 0 } else { best }
    }

    /// The first rule of a leaf that matches and lies behind `after` and before `best`.
    fn leaf(
        &self,
        slot: Slot,
        key: &Key,
        after: u32,
        best: u32,
        touch: &mut impl FnMut(usize),
        effort: &mut Effort,
    ) -> Option<u32> {
        let windows = [(slot.a(), slot.b()), (slot.c() as usize, (slot.target() as u32 & 3) * WINDOW_STEP)];
        let values = windows.map(|(word, shift)| key.word(word) >> shift & ((1 << WINDOW_BITS) - 1));
        let mut group = 2 * (slot.target() & !3);
        loop {
            touch(group);
            for place in 0..ENTRIES {
                let number = |word: usize| self.word(group + word) >> (8 * place) & ((1 << WINDOW_BITS) - 1);
                let passes = (0..2).all(|window| (number(window)..=number(2 + window)).contains(&values[window]));
                let line = self.word(group + 4 + place);
                if !passes || line <= after {
                    continue;
                }
                if line >= best {
                    return None;
                }
                effort.rules += 1;
                touch(line as usize * LINE_WORDS);
                if self.rule_matches(line, key) {
                    return Some(line);
                }
            }
            if slot.kind() != kind::LONG || self.word(group + GROUP_WORDS - 1) == 0 {
                return None;
            }
            group += GROUP_WORDS;
        }
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
