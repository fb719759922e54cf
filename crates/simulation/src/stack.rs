//! Label stacks (RFC 3032 section 2.1) in a frame. Twin of `bpf/lib/labels/entry.h` and `paths.h`.

use segue_abi as abi;
use segue_abi::Outcome;

use crate::flow::{Flow, read_ipv4, read_ipv6};
use crate::octets::{ETHERNET, OFFSET_MASK, octet, put};

/// Octets of an entry.
pub(crate) const ENTRY: usize = 4;
/// The bottom of the stack, in an entry in host byte order.
pub(crate) const BOTTOM: u32 = 0x100;
/// TC and S of an entry in host byte order.
pub(crate) const CLASS_AND_BOTTOM: u32 = 0xf00;
/// Lower labels have special purposes (RFC 7274).
pub(crate) const SPECIAL: u32 = 16;
/// Explicit null of IPv4 and IPv6 (RFC 3032 section 2.1).
pub(crate) const NULL_IPV4: u32 = 0;
pub(crate) const NULL_IPV6: u32 = 2;
/// What says that an entropy label is next (RFC 6790 section 3).
pub(crate) const ENTROPY_INDICATOR: u32 = 7;
/// TC of an entry in host byte order.
pub(crate) const CLASS: u32 = 0xe00;

const LABELS_MAX: usize = abi::SEGUE_LABELS_MAX as usize;
/// `FLOW_MIX`.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The label of an entry in host byte order.
pub(crate) fn label_of(word: u32) -> u32 {
    word >> 12
}

/// The entry at an offset in host byte order, if it lies in the frame.
pub(crate) fn entry(frame: &[u8], at: usize) -> Option<u32> {
    let octets = frame.get(at..at + ENTRY)?;
    Some(octets.iter().fold(0, |word, octet| word << 8 | u32::from(*octet)))
}

/// `entropy_at()`: whether an entropy label with its indicator lies at the offset, and if so whether nothing is behind it.
pub(crate) fn entropy_at(frame: &[u8], at: usize) -> Option<bool> {
    let (indicator, label) = (entry(frame, at)?, entry(frame, at + ENTRY)?);
    (label_of(indicator) == ENTROPY_INDICATOR && indicator & BOTTOM == 0).then_some(label & BOTTOM != 0)
}

/// `entropy_entry()`: the entry of a flow's entropy label, but for TC and the bottom of the stack.
fn entropy_entry(flow: u32) -> u32 {
    let label = (u64::from(flow).wrapping_mul(MIX) >> 44) as u32;
    (if label < SPECIAL { label | SPECIAL } else { label }) << 12
}

/// The entropy labels of a stack are those of the flow: `labels_write()` and `labels_copy()`.
pub(crate) fn renew_entropy(labels: &mut [u8], flow: u32) {
    let mut is_behind = false;
    for at in (0..labels.len()).step_by(ENTRY) {
        let word = entry(labels, at).unwrap_or_default();
        if is_behind {
            store(labels, at, entropy_entry(flow) | word & CLASS_AND_BOTTOM);
        }
        is_behind = label_of(word) == ENTROPY_INDICATOR;
    }
}

/// `entry_store()`.
pub(crate) fn store(frame: &mut [u8], at: usize, word: u32) {
    put(frame, at, &word.to_be_bytes());
}

/// `class_in_entry()`: TC of a packet's traffic class, in host byte order (RFC 3270 section 2.6).
pub(crate) fn class_in_entry(traffic_class: u8) -> u32 {
    u32::from(traffic_class >> 5) << 9
}

/// `labels_inside()`: whether an IPv6 packet is behind the stack of which an entry lies at the offset.
pub(crate) fn is_ipv6_inside(frame: &[u8], mut at: usize) -> bool {
    for _ in 0..=2 * LABELS_MAX {
        at &= OFFSET_MASK;
        if at + ENTRY + 1 > frame.len() {
            return false;
        }
        let bottom = octet(frame, at + 2) & 1 != 0;
        at += ENTRY;
        if bottom {
            return octet(frame, at) >> 4 == 6;
        }
    }
    false
}

/// `labels_end()`: the offset of the packet behind the stack of which an entry lies at the offset, and whether it is IPv4.
pub(crate) fn end_of_stack(frame: &[u8], mut at: usize) -> Result<(usize, bool), Outcome> {
    for _ in 0..=LABELS_MAX {
        at &= OFFSET_MASK;
        if at + ENTRY + 1 > frame.len() {
            return Err(Outcome::DropLabelBottom);
        }
        let bottom = octet(frame, at + 2) & 1 != 0;
        at += ENTRY;
        if bottom {
            return match octet(frame, at) >> 4 {
                4 => Ok((at, true)),
                6 => Ok((at, false)),
                _ => Err(Outcome::DropLabelNotIp),
            };
        }
    }
    Err(Outcome::DropLabelDepth)
}

/// `label_path()`: the number of the path that a packet takes of so many. `mac`: of the port that it came by.
pub(crate) fn path(frame: &[u8], mac: &[u8; 6], paths: u32) -> u32 {
    let port = u32::from_le_bytes([mac[2], mac[3], mac[4], mac[5]]);
    let mixed = (u64::from(flow(frame)) ^ u64::from(port) << 16).wrapping_mul(MIX);
    (((mixed >> 32) * u64::from(paths)) >> 32) as u32
}

/// `labels_flow()`: the hash of a labelled packet's flow.
pub(crate) fn flow(frame: &[u8]) -> u32 {
    let (mut at, mut word, mut entropy, mut mixed) = (ETHERNET, 0, false, 0_u64);
    for _ in 0..=2 * LABELS_MAX {
        if word & BOTTOM != 0 {
            break;
        }
        at &= OFFSET_MASK;
        let Some(next) = entry(frame, at) else { break };
        at += ENTRY;
        word = next;
        let label = label_of(word);
        if entropy {
            return (u64::from(label).wrapping_mul(MIX) >> 32) as u32;
        }
        entropy = label == ENTROPY_INDICATOR;
        mixed = (mixed ^ u64::from(label)).wrapping_mul(MIX);
    }
    let labels = (mixed >> 32) as u32;
    if word & BOTTOM == 0 {
        return labels;
    }
    let at = at & OFFSET_MASK;
    let flow = match octet(frame, at) >> 4 {
        4 => read_ipv4(frame, at, Flow::default()),
        6 => read_ipv6(frame, at, Flow::default()),
        _ => return labels,
    };
    if flow.outcome.is_some() { labels } else { flow.hash }
}
