//! Label stacks in front of packets, as a firewall behind a label gets them.

use super::{ETHERNET, Fault, IPV4, IPV6, u16_at, u32_at};

const MPLS: u16 = 0x8847;
/// Of a label stack entry.
const BOTTOM_OF_STACK: u32 = 0x100;
/// Entries that the data plane keeps beside a packet, the firewall's own among them.
const LABELS_MAX: usize = 32;

/// A frame of which the labels are taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlabelled {
    /// Label stack entries, from the first to the bottom.
    pub stack: Vec<u32>,
    /// The frame without them.
    pub frame: Vec<u8>,
}

/// A frame with labels as a firewall behind the first of them gets it. None: it has no labels.
///
/// # Errors
/// What keeps the packet from a firewall.
pub fn without_labels(frame: &[u8]) -> Result<Option<Unlabelled>, Fault> {
    if frame.len() < ETHERNET || u16_at(frame, 12) != MPLS {
        return Ok(None);
    }
    let mut stack = Vec::new();
    let mut at = ETHERNET;
    loop {
        if frame.len() < at + 5 {
            return Err(Fault::LabelBottom);
        }
        let entry = u32_at(frame, at);
        at += 4;
        stack.push(entry);
        if entry & BOTTOM_OF_STACK != 0 {
            break;
        }
        if stack.len() > LABELS_MAX {
            return Err(Fault::LabelDepth);
        }
    }
    let ethertype = match frame[at] >> 4 {
        4 => IPV4,
        6 => IPV6,
        _ => return Err(Fault::LabelNotIp),
    };
    let frame = [&frame[..12], &ethertype.to_be_bytes(), &frame[at..]].concat();
    Ok(Some(Unlabelled { stack, frame }))
}
