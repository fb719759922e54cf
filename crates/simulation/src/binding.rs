//! Binding labels (RFC 8402 section 5), End.BM (RFC 8986 section 4.15) and End.DTM. Twin of `bpf/lib/labels/binding.h`, and of
//! `end_bm()` and `end_dtm()`.

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{CompiledList, CompiledSid};

use crate::endpoint::Outer;
use crate::flow::Flow;
use crate::label::{BY_LINK, LabelFound};
use crate::label_end::{behind_stack, ethertype_of};
use crate::octets::{ETHERNET, OFFSET_MASK, number, octet, outer_flow, put, set_hops};
use crate::stack::{self, BOTTOM, CLASS, ENTRY, entry, store};
use crate::way::{Sending, Wanted};
use crate::wrap::{Advance, Payload};
use crate::{End, Found, Packet, ended};

impl<'a> Packet<'a, '_> {
    /// `labels_binding()`.
    pub(crate) fn label_binding(&mut self, found: &LabelFound<'a>) -> Found<Box<End>> {
        self.stage()?;
        if found.ttl <= 1 {
            return Err(ended(Outcome::DropLabelTtl));
        }
        let flow = stack::flow(&self.frame);
        let list = self.policy_list(found.label.entry.policy, flow).ok_or_else(|| ended(Outcome::DropPolicyInvalid))?;
        if u32::from(list.entry.flags) & abi::SEGUE_LIST_UDP != 0 {
            return self.label_udp(found, Some(list));
        }
        match u32::from(list.entry.mode) {
            abi::SEGUE_PUSH => self.binding_labels(found, list, flow),
            _ => self.binding_sids(found, list, flow),
        }
    }

    /// `binding_labels()`: a list of labels in place of the one that was found.
    fn binding_labels(&mut self, found: &LabelFound<'a>, list: &'a CompiledList, flow: u32) -> Found<Box<End>> {
        let flags = u32::from(list.entry.flags);
        let (off, on) = (found.off + ENTRY, usize::from(list.entry.header_length));
        let class = self.binding_class(found, &list.entry)?;
        let is_local = flags & abi::SEGUE_LIST_LOCAL != 0;
        let way = (!is_local).then(|| self.list_way(list, flow));
        if let Some(adjacency) = &way {
            self.obstacle(adjacency, self.frame.len() - ETHERNET - off + on, BY_LINK)?;
        }
        let fill = class | u32::from(found.ttl - u8::from(!is_local));
        let mut labels = list.entry.header[..on].to_vec();
        for at in (0..on).step_by(ENTRY) {
            let keeps = if at + ENTRY == on && !found.is_bottom() { !BOTTOM } else { !0 };
            let word = entry(&labels, at).unwrap_or_default() | fill;
            store(&mut labels, at, word & keeps);
        }
        if flags & abi::SEGUE_LIST_ENTROPY != 0 {
            stack::renew_entropy(&mut labels, flow);
        }
        self.frame.splice(ETHERNET..ETHERNET + off, labels);
        match way {
            Some(adjacency) => Ok(self.labels_leave(&adjacency)),
            None => self.labels_here(),
        }
    }

    /// `binding_payload()`: what is to be wrapped, and the hop limit that a packet goes on with.
    fn binding_payload(&self, found: &LabelFound<'a>, flow: u32) -> Found<(Payload, u8)> {
        let at = (found.at() + ENTRY) & OFFSET_MASK;
        let payload = Payload {
            length: self.frame.len() - at,
            flow,
            protocol: number::MPLS,
            traffic_class: ((found.word & CLASS) >> 9 << 5) as u8,
            ..Payload::default()
        };
        if !found.is_bottom() {
            return Ok((payload, 0));
        }
        let first = entry(&self.frame, at).ok_or_else(|| ended(Outcome::DropTruncated))?;
        let is_ipv4 = match first >> 28 {
            4 => true,
            6 => false,
            _ => return Err(ended(Outcome::DropLabelNotIp)),
        };
        let (inner, _) = self.admit(&found.label.entry, &behind_stack(&self.frame, at, is_ipv4))?;
        self.stays_inside(&found.label.entry, &inner, at)?;
        let hops = if self.ttl_is_uniform() { found.ttl } else { inner.hop_limit };
        if hops <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let payload = Payload {
            length: inner.length,
            protocol: if is_ipv4 { number::IPV4 } else { number::IPV6 },
            traffic_class: (first >> if is_ipv4 { 16 } else { 20 }) as u8,
            flow_label: if is_ipv4 { 0 } else { first & 0xf_ffff },
            ..payload
        };
        Ok((payload, hops))
    }

    /// `binding_sids()`: a list of SIDs in front of what is behind the label.
    fn binding_sids(&mut self, found: &LabelFound<'a>, list: &'a CompiledList, flow: u32) -> Found<Box<End>> {
        if self.is_marked(found.word) {
            self.mark_behind(found.at() + ENTRY, found.is_bottom())?;
        }
        let (payload, hops) = self.binding_payload(found, flow)?;
        let entry = &list.entry;
        let wanted = Wanted { oif: entry.oif, inside: true, flow, ..Wanted::default() };
        let adjacency = self.adjacency(std::net::Ipv6Addr::from(entry.first).into(), wanted);
        self.obstacle(&adjacency, payload.length + usize::from(entry.header_length), Sending::default())?;
        self.expose((found.at() + ENTRY) & OFFSET_MASK, payload.length);
        if payload.protocol == number::MPLS {
            self.hand_ttl_on(found.ttl - 1).map_err(|_| ended(Outcome::DropAdjust))?;
            put(&mut self.frame, 12, &number::TYPE_MPLS.to_be_bytes());
        } else {
            let is_ipv4 = payload.protocol == number::IPV4;
            set_hops(&mut self.frame, ETHERNET, is_ipv4, hops - 1);
            put(&mut self.frame, 12, &ethertype_of(is_ipv4).to_be_bytes());
        }
        self.wrap_on(list, &payload, &adjacency)
    }

    /// `end_bm()`.
    pub(crate) fn end_bm(&mut self, sid: &'a CompiledSid, limit: usize, advance: &Advance) -> Found<Box<End>> {
        let hash = outer_flow(&self.frame, ETHERNET);
        self.stage()?;
        let list = self.policy_list(sid.entry.policy, hash).ok_or_else(|| ended(Outcome::DropPolicyInvalid))?;
        let is_local = u32::from(list.entry.flags) & abi::SEGUE_LIST_LOCAL != 0;
        self.stage()?;
        let flow = Flow {
            hash,
            family: 6,
            length: limit - ETHERNET,
            hop_limit: octet(&self.frame, ETHERNET + 7),
            traffic_class: (entry(&self.frame, ETHERNET).unwrap_or_default() >> 20) as u8,
            ..Flow::default()
        };
        if u32::from(list.entry.flags) & abi::SEGUE_LIST_UDP != 0 {
            self.advance(advance);
            return self.push_udp(&flow, list);
        }
        let way = (!is_local).then(|| self.list_way(list, hash));
        if let Some(adjacency) = &way {
            self.obstacle(adjacency, flow.length + usize::from(list.entry.header_length), BY_LINK)?;
        }
        self.advance(advance);
        self.push_on(list, &flow, way)
    }

    /// `end_dtm()`: what is in the packet goes on by its labels.
    pub(crate) fn end_dtm(&mut self, outer: &Outer) -> Found<Box<End>> {
        self.stage()?;
        self.frame.truncate(outer.limit);
        self.labels_off((outer.offset & OFFSET_MASK) - ETHERNET);
        if self.has_label_ecn() && outer.ecn == 3 {
            self.settle_labels(ETHERNET, true, 1)?;
        }
        self.labels_here()
    }
}
