//! Congestion marks in TC (RFC 5129). Twin of `bpf/lib/labels/ecn.h` and `carry.h`.

use segue_abi as abi;
use segue_abi::Outcome;

use crate::label::LabelFound;
use crate::octets::{ETHERNET, OFFSET_MASK, octet, set_ecn};
use crate::stack::{self, BOTTOM, CLASS, ENTRY, class_in_entry, entry, store};
use crate::udp::IMPLICIT_NULL;
use crate::{Found, Packet, because, ended};

/// RFC 3168 section 5.
const CE: u8 = 3;
/// Entries that are looked at.
const ENTRIES: usize = 2 * abi::SEGUE_LABELS_MAX as usize + 1;

/// `enum mark_goes`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    Nowhere,
    Stays,
    Behind,
    Function,
    Refused,
}

fn goes(entry: &abi::Sid, is_bottom: bool) -> Goes {
    match u32::from(entry.behaviour) {
        abi::SEGUE_LABEL_SWAP | abi::SEGUE_LABEL_BINDING => Goes::Stays,
        abi::SEGUE_LABEL_UDP if entry.out_label == IMPLICIT_NULL && !is_bottom => Goes::Behind,
        abi::SEGUE_LABEL_UDP => Goes::Stays,
        abi::SEGUE_LABEL_POP | abi::SEGUE_LABEL_FIREWALL => Goes::Behind,
        abi::SEGUE_LABEL_NODE | abi::SEGUE_LABEL_TABLE | abi::SEGUE_LABEL_NEXT_HOP if is_bottom => Goes::Behind,
        abi::SEGUE_LABEL_STATIC | abi::SEGUE_LABEL_DYNAMIC | abi::SEGUE_LABEL_INSTANCES | abi::SEGUE_LABEL_AWARE => {
            Goes::Function
        }
        abi::SEGUE_LABEL_PSEUDOWIRE => Goes::Refused,
        _ => Goes::Nowhere,
    }
}

impl<'a> Packet<'a, '_> {
    /// `labels_have_ecn()`.
    pub(crate) fn has_label_ecn(&self) -> bool {
        self.port.entry.config_flags & abi::SEGUE_CONFIG_LABEL_ECN != 0
    }

    /// `class_of()`: as in an entry in host byte order.
    fn class_of(&self, word: u32, marked: bool) -> u32 {
        let known = self.config().label_classes >> (4 * (word >> 9 & 7));
        if (known >> 3 & 1 != 0) == marked { word & CLASS } else { (known & 7) << 9 }
    }

    /// `class_is_mark()`, where there are some.
    pub(crate) fn is_marked(&self, word: u32) -> bool {
        self.has_label_ecn() && self.class_of(word, false) != word & CLASS
    }

    /// `class_fill()`.
    pub(crate) fn class_fill(&self, traffic_class: u8) -> u32 {
        let class = class_in_entry(traffic_class);
        if self.has_label_ecn() { self.class_of(class, traffic_class & 3 == CE) } else { class }
    }

    /// `binding_class()` and `binding_unmarkable()`: TC of a list in place of the label.
    pub(crate) fn binding_class(&self, found: &LabelFound<'_>, list: &abi::SegmentList) -> Found<u32> {
        if u32::from(list.flags) & abi::SEGUE_LIST_TRAFFIC_CLASS_COPY != 0 {
            return Ok(found.word & CLASS);
        }
        let is_marked = self.is_marked(found.word);
        let class = self.class_fill(list.traffic_class | if is_marked { CE } else { 0 });
        if is_marked && !self.is_marked(class) {
            return Err(because(Outcome::DropEcnNotCapable, "the policy's TC cannot be marked"));
        }
        Ok(class)
    }

    /// `labels_marked()`.
    pub(crate) fn are_marked(&self, upto: usize) -> bool {
        let mut at = ETHERNET;
        for _ in 0..ENTRIES {
            let Some(word) = entry(&self.frame, at).filter(|_| at < upto) else { break };
            if self.is_marked(word) {
                return true;
            }
            if word & BOTTOM != 0 {
                break;
            }
            at += ENTRY;
        }
        false
    }

    /// `labels_settle()`.
    pub(crate) fn settle_labels(&mut self, mut at: usize, marked: bool, most: usize) -> Found<()> {
        let mut found = Ok(());
        for number in 0..most.min(ENTRIES) {
            let Some(word) = entry(&self.frame, at) else { break };
            let class = self.class_of(word, marked);
            if number == 0 && marked && class == self.class_of(class, false) {
                found = Err(because(Outcome::DropEcnNotCapable, "the next label cannot be marked"));
            }
            store(&mut self.frame, at, word & !CLASS | class);
            if word & BOTTOM != 0 {
                break;
            }
            at += ENTRY;
        }
        found
    }

    /// `inside_mark()`.
    fn mark_inside(&mut self, at: usize) -> Found<()> {
        let at = at & OFFSET_MASK;
        let (family, second) = (octet(&self.frame, at) >> 4, octet(&self.frame, at + 1));
        if at + 20 > self.frame.len() || !matches!(family, 4 | 6) {
            return Ok(());
        }
        let ecn = if family == 4 { second & 3 } else { second >> 4 & 3 };
        if ecn == 0 {
            return Err(ended(Outcome::DropEcnNotCapable));
        }
        set_ecn(&mut self.frame, at, family == 4, CE);
        Ok(())
    }

    /// `label_mark_behind()`.
    pub(crate) fn mark_behind(&mut self, at: usize, is_bottom: bool) -> Found<()> {
        if is_bottom { self.mark_inside(at) } else { self.settle_labels(at, true, 1) }
    }

    /// `labels_mark()`.
    pub(crate) fn mark_labels(&mut self, ecn: u8) {
        if self.has_label_ecn() && ecn & 3 == CE {
            // What has no mark tells of congestion by the packet behind it.
            let _ = self.settle_labels(ETHERNET, true, usize::MAX);
        }
    }

    /// `mark_carry()`.
    pub(crate) fn carry_mark(&mut self, found: &mut LabelFound<'a>) -> Found<()> {
        let (at, mut is_bottom) = (found.at(), found.is_bottom());
        let mut goes = goes(&found.label.entry, is_bottom);
        if goes == Goes::Function && self.is_frame_behind(at) {
            goes = Goes::Behind;
        }
        let mut upto = at + ENTRY;
        if found.behaviour() == abi::SEGUE_LABEL_FIREWALL
            && !is_bottom
            && let Some(is_last) = stack::entropy_at(&self.frame, upto)
        {
            upto += 2 * ENTRY;
            is_bottom = is_last;
        }
        let most = if matches!(goes, Goes::Function | Goes::Refused) { usize::MAX } else { upto };
        if goes == Goes::Nowhere || !self.are_marked(most) {
            return Ok(());
        }
        self.note("ecn", "congestion", "a label that comes off, or is swapped, is marked", &[]);
        match goes {
            Goes::Stays => {
                self.settle_labels(at, true, 1)?;
                found.word = found.word & !CLASS | self.class_of(found.word, true);
                Ok(())
            }
            Goes::Behind => self.mark_behind(upto, is_bottom),
            Goes::Function => {
                found.word = found.word & !CLASS | self.class_of(found.word, false);
                let Ok((inside, _)) = stack::end_of_stack(&self.frame, at) else { return Ok(()) };
                self.mark_inside(inside)?;
                self.settle_labels(at, false, usize::MAX)
            }
            Goes::Nowhere | Goes::Refused => Err(because(Outcome::DropEcnNotCapable, "a frame cannot be told")),
        }
    }
}
