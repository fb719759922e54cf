//! The last label comes off. Twin of `bpf/lib/labels/deliver.h`.

use segue_abi as abi;
use segue_abi::Outcome;

use crate::endpoint::Outer;
use crate::inner::Inner;
use crate::label::LabelFound;
use crate::octets::{ETHERNET, OFFSET_MASK, number, set_hops};
use crate::stack::{ENTRY, SPECIAL, label_of};
use crate::way::{Adjacency, Kind, Sending, Wanted};
use crate::{End, Found, Packet, because, ended};

/// What is behind a stack, as [`Packet::admit`] takes it: a label says nothing of ECN.
pub(crate) fn behind_stack(frame: &[u8], at: usize, is_ipv4: bool) -> Outer {
    let protocol = if is_ipv4 { number::IPV4 } else { number::IPV6 };
    Outer { offset: at, limit: frame.len(), protocol, ecn: 0, fragment: false, srh: None }
}

/// The kind of inner packet, as entries name those that they take.
pub(crate) fn kind_of(is_ipv4: bool) -> u32 {
    if is_ipv4 { abi::SEGUE_INNER_IPV4 } else { abi::SEGUE_INNER_IPV6 }
}

pub(crate) fn ethertype_of(is_ipv4: bool) -> u16 {
    if is_ipv4 { number::TYPE_IPV4 } else { number::TYPE_IPV6 }
}

impl Packet<'_, '_> {
    /// `label_deliver()`: the label is at the bottom of the stack.
    pub(crate) fn label_deliver(&mut self, found: &LabelFound<'_>) -> Found<Box<End>> {
        let entry = &found.label.entry;
        let at = (found.at() + ENTRY) & OFFSET_MASK;
        let Some(first) = self.frame.get(at) else { return Err(ended(Outcome::DropTruncated)) };
        let is_ipv4 = match first >> 4 {
            4 => true,
            6 => false,
            _ => return Err(ended(Outcome::DropLabelNotIp)),
        };
        // What a function takes says nothing about what passes it by.
        if u32::from(entry.inner) & kind_of(is_ipv4) == 0 && found.behaviour() < abi::SEGUE_LABEL_STATIC {
            let special = label_of(found.word) < SPECIAL;
            return Err(ended(if special { Outcome::DropLabelReserved } else { Outcome::DropInnerType }));
        }
        let (inner, _) = self.admit(entry, &behind_stack(&self.frame, at, is_ipv4))?;
        let stays = self.stays_inside(entry, &inner, at)?;
        let is_given = matches!(found.behaviour(), abi::SEGUE_LABEL_POP | abi::SEGUE_LABEL_NEXT_HOP);
        let adjacency = self.label_way(entry, &inner, is_given, stays);
        let uniform = self.ttl_is_uniform();
        let hops = if uniform { found.ttl } else { inner.hop_limit };
        // One hop before the end of a node label: this hop is the label's.
        let is_labels_own = found.behaviour() == abi::SEGUE_LABEL_POP && !uniform;
        let lowered = u8::from(!is_labels_own && adjacency.uses_hop());
        if hops <= lowered && adjacency.kind != Kind::Kernel {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let table = if is_given { 1 } else { entry.table };
        self.obstacle(&adjacency, inner.length, Sending { table, ..Sending::default() })?;
        self.expose(at, inner.length);
        // What the kernel gets may have no hops left.
        set_hops(&mut self.frame, ETHERNET, is_ipv4, hops.wrapping_sub(lowered));
        match is_given {
            true => Ok(self.leave_as(&adjacency, ethertype_of(is_ipv4))),
            false => self.leave(&adjacency, ethertype_of(is_ipv4)),
        }
    }

    /// `label_way()`.
    fn label_way(&mut self, entry: &abi::Sid, inner: &Inner, is_given: bool, stays: bool) -> Adjacency {
        if is_given {
            return self.label_adjacency(entry, stays);
        }
        let wanted = Wanted { table: entry.table, oif: 0, inside: stays, flow: inner.bucket() };
        self.adjacency(inner.destination, wanted)
    }

    /// `label_onward()`: the function is not to see the packet.
    pub(crate) fn label_onward(&mut self, found: &LabelFound<'_>) -> Found<Box<End>> {
        if found.is_bottom() {
            return self.label_deliver(found);
        }
        self.labels_off(found.off + ENTRY);
        self.hand_ttl_on(found.ttl)?;
        self.stage()?;
        self.labels()
    }

    /// `back_deliver()`: nothing is left of the stack, and the packet goes by its destination.
    pub(crate) fn back_deliver(&mut self, flow: &crate::flow::Flow, table: u32) -> Found<Box<End>> {
        let to_sid = flow.destination6().is_some_and(|address| self.in_sid_block(address));
        if flow.sr_seen || to_sid {
            return Err(because(Outcome::DropFromFunction, "it may not choose a path by segments"));
        }
        let Some(destination) = flow.destination else { return Err(ended(Outcome::DropNoRoute)) };
        let adjacency = self.adjacency(destination, Wanted { table, flow: flow.hash, ..Wanted::default() });
        self.obstacle(&adjacency, flow.length, Sending { table, ..Sending::default() })?;
        if adjacency.uses_hop() {
            crate::octets::lower_hops(&mut self.frame, ETHERNET, flow.is_ipv4());
        }
        self.leave(&adjacency, ethertype_of(flow.is_ipv4()))
    }
}
