//! To a function behind a label, and back. Twin of `bpf/lib/labels/function.h`, `firewall.h` and `back.h`.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_abi::Outcome;
use segue_classifier::interpreter::End as Verdict;
use segue_classifier::program::Mpls;
use segue_dataplane::CompiledSid;
use segue_model::service_label::{key_label, sid_or_label};

use crate::inner::Inner;
use crate::label::LabelFound;
use crate::label_end::{behind_stack, ethertype_of, kind_of};
use crate::octets::{ETHERNET, half, link_local, lower_hops, number, octet, put, set_hops};
use crate::stack::{self, BOTTOM, CLASS_AND_BOTTOM, ENTRY, NULL_IPV4, NULL_IPV6, end_of_stack};
use crate::{End, Found, Packet, because, ended};

/// The most octets of a stack that is kept beside its packet.
const KEPT_MAX: usize = abi::SEGUE_LABELS_MAX as usize * ENTRY;

impl<'a> Packet<'a, '_> {
    /// `label_function()`: a label that leads to a function, wherever in a stack it is.
    pub(crate) fn label_function(&mut self, found: &LabelFound<'a>) -> Found<Box<End>> {
        let service = self.view.compiled.sids.iter().find(|sid| sid.index == found.label.index);
        let Some(sid) = service else { return Err(ended(Outcome::DropLabelUnknown)) };
        let entry = &sid.entry;
        if self.is_down(sid) {
            return self.label_failed(found);
        }
        if self.is_frame_behind(found.at()) {
            return self.label_other_type(sid, found);
        }
        let (inside, is_ipv4) = end_of_stack(&self.frame, found.at()).map_err(ended)?;
        if u32::from(entry.inner) & kind_of(is_ipv4) == 0 {
            return self.label_other_type(sid, found);
        }
        let (inner, _) = self.admit(entry, &behind_stack(&self.frame, inside, is_ipv4))?;
        if found.behaviour() == abi::SEGUE_LABEL_FIREWALL {
            return self.label_to_firewall(sid, found, inside, &inner);
        }
        let memory = u32::from(entry.memory);
        if memory == abi::SEGUE_MEMORY_PACKET
            && let IpAddr::V6(source) = inner.source
            && link_local(source)
        {
            return Err(because(Outcome::DropBadInner, "the function's kernel forwards no link-local source"));
        }
        let mac = self.function_link(sid, inner.length)?;
        if memory == abi::SEGUE_MEMORY_FLOW {
            self.assume("the flow is remembered: there is room for it");
        }
        let steered = (memory != 0).then(|| self.frame.clone());
        self.expose(inside, inner.length);
        if found.is_bottom() && self.ttl_is_uniform() {
            set_hops(&mut self.frame, ETHERNET, is_ipv4, found.ttl);
        }
        let keeps = u32::from(entry.proxy_flags) & abi::SEGUE_PROXY_KEEP_HOP_LIMIT != 0;
        if memory == abi::SEGUE_MEMORY_PACKET && keeps && inner.hop_limit < 2 {
            set_hops(&mut self.frame, ETHERNET, is_ipv4, 2);
        }
        Ok(self.deliver(sid, mac, ethertype_of(is_ipv4), steered))
    }

    /// `labels_instance()`: one of several instances of a function. Where the flow was before is not known here; else one by its hash.
    pub(crate) fn label_instance(&mut self, mut found: LabelFound<'a>) -> Found<Box<End>> {
        self.stage()?;
        self.entropy_off(&mut found);
        if !self.is_frame_behind(found.at()) {
            end_of_stack(&self.frame, found.at()).map_err(ended)?;
        }
        let policy = found.label.entry.policy;
        let first = self.policy_list(policy, stack::flow(&self.frame));
        let all = self.view.compiled.policies.iter().filter(|known| known.index == policy);
        let lists = first.into_iter().chain(all.flat_map(|policy| &policy.lists));
        let mut keys = lists.filter_map(|list| list.segments.first()).map(|key| Ipv6Net::from(*key));
        let Some(member) = keys.find(|key| !self.view.down.contains(key)).and_then(|key| self.member(key)) else {
            return self.label_failed(&found);
        };
        self.assume(format!("of the instances of the function, the flow is at {}", sid_or_label(&member.prefix)));
        let mut labels = self.view.compiled.labels.iter();
        found.label =
            labels.find(|label| label.index == member.index).ok_or_else(|| ended(Outcome::DropFunctionDown))?;
        self.label_function(&found)
    }

    /// `labels_aware()`: to a function that sees the rest of the stack.
    pub(crate) fn label_to_aware(&mut self, mut found: LabelFound<'a>) -> Found<Box<End>> {
        self.stage()?;
        self.entropy_off(&mut found);
        let service = self.view.compiled.sids.iter().find(|sid| sid.index == found.label.index);
        let Some(sid) = service else { return Err(ended(Outcome::DropLabelUnknown)) };
        if self.is_down(sid) {
            return self.label_failed(&found);
        }
        if self.is_frame_behind(found.at()) {
            return Err(ended(Outcome::DropInnerType));
        }
        let (inside, is_ipv4) = end_of_stack(&self.frame, found.at()).map_err(ended)?;
        let (inner, _) = self.admit(&sid.entry, &behind_stack(&self.frame, inside, is_ipv4))?;
        let at = found.at() + ENTRY;
        let mac = self.function_link(sid, inside - at + inner.length)?;
        self.assume("the flow is remembered: there is room for it");
        let steered = self.frame.clone();
        self.frame.truncate(inside + inner.length);
        let ethertype = self.take_label_off(&found, inside, is_ipv4)?;
        Ok(self.deliver(sid, mac, ethertype, Some(steered)))
    }

    /// The label comes off, with those in front of it, and hands its TTL on. What is left is of the ethertype.
    fn take_label_off(&mut self, found: &LabelFound<'a>, inside: usize, is_ipv4: bool) -> Found<u16> {
        let at = found.at() + ENTRY;
        self.labels_off(at - ETHERNET);
        if at < inside {
            self.hand_ttl_on(found.ttl)?;
            return Ok(number::TYPE_MPLS);
        }
        if self.ttl_is_uniform() {
            set_hops(&mut self.frame, ETHERNET, is_ipv4, found.ttl);
        }
        Ok(ethertype_of(is_ipv4))
    }

    /// Back from such a function, which has given back the rest of the stack as it got it.
    fn restore_aware(&mut self, sid: &'a CompiledSid, inside: usize, is_ipv4: bool) -> Found<Box<End>> {
        let mut found = self.labels_walk()?;
        self.entropy_off(&mut found);
        let ethertype = self.take_label_off(&found, inside, is_ipv4)?;
        put(&mut self.frame, 12, &ethertype.to_be_bytes());
        self.stage()?;
        if ethertype == number::TYPE_MPLS {
            let at = inside - (found.at() + ENTRY - ETHERNET);
            let class = octet(&self.frame, at + 1) >> if is_ipv4 { 0 } else { 4 };
            self.mark_labels(class);
            return self.labels_here();
        }
        let flow = self.back_from_function()?;
        if flow.hop_limit <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        self.back_deliver(&flow, sid.entry.table)
    }

    fn member(&self, key: Ipv6Net) -> Option<&'a CompiledSid> {
        self.view.compiled.sids.iter().find(|sid| sid.prefix == key)
    }

    /// `label_other_type()`: what is behind the stack is of a kind that the function does not take.
    fn label_other_type(&mut self, sid: &CompiledSid, found: &LabelFound<'a>) -> Found<Box<End>> {
        if u32::from(sid.entry.flags) & abi::SEGUE_SID_BYPASS_OTHER_TYPE != 0 {
            return self.label_onward(found);
        }
        Err(ended(Outcome::DropInnerType))
    }

    /// `label_failed()`.
    fn label_failed(&mut self, found: &LabelFound<'a>) -> Found<Box<End>> {
        let entry = &found.label.entry;
        match u32::from(entry.failure) {
            abi::SEGUE_FAILURE_BYPASS => self.label_onward(found),
            abi::SEGUE_FAILURE_REROUTE => {
                let detail = format!("down: label {} in its place", entry.out_label);
                self.note("function", format!("label {}", found.label.label), detail, &[]);
                let word = entry.out_label << 12 | found.word & CLASS_AND_BOTTOM | u32::from(found.ttl);
                stack::store(&mut self.frame, found.at(), word);
                self.stage()?;
                self.labels()
            }
            _ => Err(ended(Outcome::DropFunctionDown)),
        }
    }

    /// `label_to_firewall()` and `labels_firewall()`: the node's own firewall looks at the packet behind its stack, which is taken off
    /// here meanwhile.
    fn label_to_firewall(
        &mut self,
        sid: &CompiledSid,
        found: &LabelFound<'a>,
        inside: usize,
        inner: &Inner,
    ) -> Found<Box<End>> {
        let mut kept = self.frame[found.at()..inside].to_vec();
        if kept.len() > KEPT_MAX {
            return Err(ended(Outcome::DropHeaderUnfit));
        }
        put(&mut kept, ENTRY - 1, &[found.ttl]);
        let mut cut = 0;
        self.expose(inside, inner.length);
        put(&mut self.frame, 12, &ethertype_of(inner.is_ipv4()).to_be_bytes());
        self.stage()?;
        let Some(firewall) = self.firewall(sid.entry.firewall) else { return Err(ended(Outcome::DropBehaviour)) };
        if firewall.entry.flags & abi::SEGUE_FIREWALL_OFF != 0 {
            self.note("firewall", firewall.name.clone(), "switched off: every packet passes", &[]);
        } else {
            let labels: Vec<u32> = (0..kept.len()).step_by(ENTRY).filter_map(|at| stack::entry(&kept, at)).collect();
            match self.judge(firewall, false, &labels)? {
                Verdict::Accept | Verdict::Seg6(_) => {}
                Verdict::Mpls(operation) => cut = labels_skipped(&kept, operation)?,
                Verdict::Reject(_) => return Err(ended(Outcome::DropFirewallRejected)),
                _ => return Err(ended(Outcome::DropFirewall)),
            }
        }
        self.frame.splice(ETHERNET..ETHERNET, kept);
        put(&mut self.frame, 12, &number::TYPE_MPLS.to_be_bytes());
        if cut > 0 {
            self.labels_skip(cut)?;
        }
        self.stage()?;
        let mut found = self.labels_walk()?;
        self.entropy_off(&mut found);
        self.label_onward(&found)
    }

    /// `labels_skip()`: the entries behind the first one come off.
    fn labels_skip(&mut self, cut: usize) -> Found<()> {
        let behind = ETHERNET + ENTRY + cut;
        if self.has_label_ecn() && self.are_marked(behind) {
            self.mark_behind(behind, false)?;
        }
        self.frame.drain(ETHERNET + ENTRY..behind);
        match self.is_frame_behind(ETHERNET) {
            true => Err(because(Outcome::DropInnerType, "what rules judged as a packet would become a frame")),
            false => Ok(()),
        }
    }

    /// `labels_back()` of a static proxy, or of one of which it is not known what it remembers.
    pub(crate) fn back_to_labels(&mut self, sid: &'a CompiledSid) -> Found<Box<End>> {
        if u32::from(sid.entry.behaviour) == abi::SEGUE_LABEL_AWARE {
            self.assume("with which stack the flow was sent to the function is not known here");
            return Ok(ended(Outcome::DropUnknownFlow));
        }
        if half(&self.frame, 12) == number::TYPE_MPLS {
            return Err(because(Outcome::DropFromFunction, "labels are not the function's to choose"));
        }
        let flow = self.flow();
        if flow.family == 0 && flow.outcome.is_none() && self.remove_priority_tag() {
            self.stage()?;
            return self.back_to_labels(sid);
        }
        let flow = self.back_from_function()?;
        let entry = &sid.entry;
        if u32::from(entry.inner) & kind_of(flow.is_ipv4()) == 0 {
            return Err(ended(Outcome::DropInnerType));
        }
        if flow.hop_limit <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        if u32::from(entry.behaviour) != abi::SEGUE_LABEL_STATIC {
            self.assume("what the proxy remembers is not known here");
            return Ok(ended(Outcome::DropProxyEmpty));
        }
        self.note_back(sid);
        if entry.policy == abi::SEGUE_NONE {
            return self.back_deliver(&flow, entry.table);
        }
        let list = self.policy_list(entry.policy, flow.hash).ok_or_else(|| ended(Outcome::DropProxyEmpty))?;
        self.put_labels_on(list, &flow);
        self.labels_here()
    }

    fn note_back(&mut self, sid: &CompiledSid) {
        let label = key_label(&sid.prefix).unwrap_or_default();
        self.note("label", label.to_string(), "back from its function", &[sid.entry.counter_return]);
    }

    /// Back from the function of a proxy that remembers: the frame is the packet as it came to the label, and goes on by the rest of its stack.
    pub(crate) fn restore_labels(&mut self, key: Ipv6Net) -> Found<Box<End>> {
        let Some(sid) = self.view.compiled.sids.iter().find(|sid| sid.prefix == key) else {
            return Err(ended(Outcome::DropProxyEmpty));
        };
        self.assume("the function gives the packet back as it got it");
        self.note_back(sid);
        let mut found = self.labels_walk()?;
        self.entropy_off(&mut found);
        let (inside, is_ipv4) = end_of_stack(&self.frame, found.at()).map_err(ended)?;
        if u32::from(sid.entry.behaviour) == abi::SEGUE_LABEL_AWARE {
            return self.restore_aware(sid, inside, is_ipv4);
        }
        let mut rest = self.frame[found.at() + ENTRY..inside].to_vec();
        let (inner, _) = self.admit(&sid.entry, &behind_stack(&self.frame, inside, is_ipv4))?;
        self.expose(inside, inner.length);
        put(&mut self.frame, 12, &ethertype_of(is_ipv4).to_be_bytes());
        let uniform = self.ttl_is_uniform();
        if rest.is_empty() && uniform {
            set_hops(&mut self.frame, ETHERNET, is_ipv4, found.ttl);
        }
        let flow = self.back_from_function()?;
        let keeps = u32::from(sid.entry.proxy_flags) & abi::SEGUE_PROXY_KEEP_HOP_LIMIT != 0;
        if flow.hop_limit <= 1 && !keeps {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let by_kernel = u32::from(sid.entry.memory) == abi::SEGUE_MEMORY_PACKET;
        if rest.is_empty() && !by_kernel {
            return self.back_deliver(&flow, sid.entry.table);
        }
        if !keeps && !rest.is_empty() {
            lower_hops(&mut self.frame, ETHERNET, is_ipv4);
        }
        if rest.is_empty() {
            // `function_labels()`: explicit null says that it goes by its destination, and lowers the hop limit.
            let hops = octet(&self.frame, if is_ipv4 { ETHERNET + 8 } else { ETHERNET + 7 });
            let null = if is_ipv4 { NULL_IPV4 } else { NULL_IPV6 };
            let entry = null << 12 | BOTTOM | u32::from(hops);
            self.frame.splice(ETHERNET..ETHERNET, entry.to_be_bytes());
            return self.labels_here();
        }
        if !by_kernel {
            stack::renew_entropy(&mut rest, flow.hash);
        }
        self.frame.splice(ETHERNET..ETHERNET, rest);
        self.mark_labels(flow.traffic_class);
        self.hand_ttl_on(found.ttl)?;
        self.labels_here()
    }
}

/// `labels_skipped()`: octets of the entries behind the firewall's own that the packet does not go on by.
fn labels_skipped(kept: &[u8], operation: Mpls) -> Found<usize> {
    let mut segments = Vec::new();
    let mut at = ENTRY;
    while at < kept.len() {
        if kept.len() > at + ENTRY && stack::entry(kept, at).map(stack::label_of) == Some(stack::ENTROPY_INDICATOR) {
            at += 2 * ENTRY;
            continue;
        }
        segments.push(at - ENTRY);
        at += ENTRY;
    }
    match operation {
        Mpls::GoNext => Ok(0),
        Mpls::SkipNext(count) => {
            let nothing = || because(Outcome::DropLabelBottom, "nothing would be left of the stack to go on by");
            segments.get(usize::from(count)).copied().ok_or_else(nothing)
        }
        Mpls::GoLast(count) => match segments.len().checked_sub(count.into()) {
            None | Some(0) => Ok(0),
            Some(first) => Ok(segments[first]),
        },
    }
}
