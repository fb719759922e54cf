//! Ethernet frames behind labels (RFC 4448). Twin of `bpf/lib/labels/pseudowire.h`, and of `labels_frame_behind()`.

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::CompiledList;

use crate::label::{BY_LINK, LabelFound};
use crate::octets::{ETHERNET, octet};
use crate::stack::{self, BOTTOM, ENTRY, entry, label_of};
use crate::{End, Found, Packet, ended};

/// Octets of a control word (RFC 4385 section 3).
const CONTROL_WORD: usize = 4;

/// Most labels that are looked at.
const LABELS_MAX: usize = abi::SEGUE_LABELS_MAX as usize;

impl<'a> Packet<'a, '_> {
    /// `access_wire()` and `labels_frame()`: a frame of an access port into a pseudowire.
    pub(crate) fn frame_to_labels(&mut self, list: &'a CompiledList, flow: u32) -> Found<Box<End>> {
        self.stage()?;
        let behind = match u32::from(list.entry.pseudowire) {
            abi::SEGUE_PSEUDOWIRE_NONE => return Err(ended(Outcome::DropPolicyInvalid)),
            abi::SEGUE_PSEUDOWIRE_CONTROL_WORD => CONTROL_WORD,
            _ => 0,
        };
        let mut front = vec![0; ETHERNET];
        front.extend(self.filled(list, 0, list.entry.ttl, flow));
        front.resize(front.len() + behind, 0);
        let is_local = u32::from(list.entry.flags) & abi::SEGUE_LIST_LOCAL != 0;
        let way = (!is_local).then(|| self.list_way(list, flow));
        if let Some(adjacency) = &way {
            self.obstacle(adjacency, front.len() - ETHERNET + self.frame.len(), BY_LINK)?;
        }
        self.frame.splice(..0, front);
        match way {
            Some(adjacency) => Ok(self.labels_leave(&adjacency)),
            None => self.labels_here(),
        }
    }

    /// `labels_wire()`: a frame out of a pseudowire.
    pub(crate) fn label_to_wire(&mut self, mut found: LabelFound<'a>) -> Found<Box<End>> {
        self.stage()?;
        self.entropy_off(&mut found);
        if !found.is_bottom() {
            return Err(ended(Outcome::DropLabelBottom));
        }
        let label = &found.label.entry;
        let mut at = found.at() + ENTRY;
        if u32::from(label.flags) & abi::SEGUE_SID_CONTROL_WORD != 0 {
            if at + CONTROL_WORD > self.frame.len() {
                return Err(ended(Outcome::DropTruncated));
            }
            match octet(&self.frame, at) >> 4 {
                0 => at += CONTROL_WORD,
                1 => return Err(ended(Outcome::DropAssociatedChannel)),
                _ => return Err(ended(Outcome::DropControlWord)),
            }
        }
        let limit = self.frame.len();
        self.expose_frame(label.oif, at, limit, Outcome::Forwarded)
    }

    /// `labels_frame_behind()`: whether it is known here that a frame is behind the stack of which an entry lies at the offset.
    pub(crate) fn is_frame_behind(&self, mut at: usize) -> bool {
        for _ in 0..=LABELS_MAX {
            let Some(word) = entry(&self.frame, at) else { return false };
            if let Some(is_last) = stack::entropy_at(&self.frame, at) {
                if is_last {
                    return false;
                }
                at += 2 * ENTRY;
                continue;
            }
            let Some(label) = self.label(label_of(word)) else { return false };
            match u32::from(label.entry.behaviour) {
                abi::SEGUE_LABEL_PSEUDOWIRE => return true,
                abi::SEGUE_LABEL_NODE
                | abi::SEGUE_LABEL_STATIC
                | abi::SEGUE_LABEL_DYNAMIC
                | abi::SEGUE_LABEL_FIREWALL
                | abi::SEGUE_LABEL_INSTANCES
                | abi::SEGUE_LABEL_AWARE
                    if word & BOTTOM == 0 => {}
                _ => return false,
            }
            at += ENTRY;
        }
        false
    }
}
