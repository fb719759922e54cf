//! To a function behind a proxy, and back. Twin of `bpf/lib/service` and of what `bpf/lib/proxy` does with a packet by itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{CompiledSid, PathMtu, PathMtuOf};
use segue_model::service_label::{key_label, sid_or_label};

use crate::endpoint::Outer;
use crate::headers;
use crate::octets::{
    ETHERNET, IPV6, OFFSET_MASK, SRH, change, forwardable, half, ipv6, link_local, lower_hops, number, octet,
    outer_flow, put, set_ecn,
};
use crate::way::{Kind, Sending, Wanted};
use crate::wrap::{Advance, Payload};
use crate::{Egress, End, Found, Packet, because, ended};

/// A function that has the packet now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// The SID of its proxy, or the key of its label ([`segue_model::service_label`]).
    pub sid: Ipv6Net,
    /// The interface by which it comes back; none where the data plane has no port for that.
    pub back_by: Option<String>,
    /// The frame with its steering header, as it came to the SID or label: for a proxy that remembers it.
    pub steered: Option<Vec<u8>>,
}

/// How a SID or label with a function is named.
pub(crate) fn named(key: &Ipv6Net) -> String {
    key_label(key).map_or_else(|| key.to_string(), |_| sid_or_label(key))
}

/// The most octets of a header that is remembered.
const HEADROOM: usize = abi::SEGUE_HEADROOM_MAX as usize;

impl<'a> Packet<'a, '_> {
    /// `end_proxy()`.
    pub(crate) fn proxy(&mut self, sid: &'a CompiledSid, outer: &mut Outer, advance: &Advance) -> Found<Box<End>> {
        let behaviour = u32::from(sid.entry.behaviour);
        let bypass = u32::from(sid.entry.flags) & abi::SEGUE_SID_BYPASS_OTHER_TYPE != 0;
        if self.is_down(sid) {
            match u32::from(sid.entry.failure) {
                abi::SEGUE_FAILURE_BYPASS => return self.end_forward(sid, outer.limit, advance),
                abi::SEGUE_FAILURE_REROUTE => {
                    let reduced = advance.left >= octet(&self.frame, advance.header + 4);
                    let active = advance.header + SRH + (usize::from(advance.left) + 1) * 16;
                    if reduced || !self.was_rerouted(active) {
                        return self.reroute(sid, outer.limit);
                    }
                }
                _ => {}
            }
            return Err(ended(Outcome::DropFunctionDown));
        }
        let length = (usize::from(octet(&self.frame, advance.header + 1)) + 1) * 8;
        outer.srh = Some(advance.header);
        outer.protocol = octet(&self.frame, advance.header);
        outer.offset = advance.header + length;
        outer.fragment = false;
        match behaviour {
            abi::SEGUE_END_AM => return self.masquerade(sid, outer, advance),
            abi::SEGUE_END_AN => return self.give_aware(sid, outer),
            _ => {}
        }
        if !self.takes_inner(sid, outer.protocol) {
            let found = headers::walk(&self.frame, advance.header, outer.offset, outer.limit);
            if let Some(error) = found.error.filter(|error| *error != Outcome::DropRoutingType) {
                return Err(ended(error));
            }
            (outer.protocol, outer.offset) = (found.protocol, found.upper);
            if found.fragment {
                return Err(ended(Outcome::DropFragmentAtDecapsulation));
            }
            if !self.takes_inner(sid, outer.protocol) {
                if behaviour == abi::SEGUE_END_AN_NF && !found.sr_seen && outer.protocol != number::ETHERNET {
                    return self.inserted(sid, outer);
                }
                if bypass {
                    return self.end_forward(sid, outer.limit, advance);
                }
                return Err(ended(Outcome::DropInnerType));
            }
        }
        self.give(sid, outer, Some(*advance))
    }

    /// `function_rerouted()`: the active segment of the list is another than the destination.
    fn was_rerouted(&self, active: usize) -> bool {
        active + 16 <= self.frame.len() && ipv6(&self.frame, active) != ipv6(&self.frame, ETHERNET + 24)
    }

    /// `function_reroute()`.
    fn reroute(&mut self, sid: &CompiledSid, limit: usize) -> Found<Box<End>> {
        if octet(&self.frame, ETHERNET + 7) <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let backup = Ipv6Addr::from(sid.entry.backup);
        self.note("function", sid.prefix.to_string(), format!("down: the packet goes to the backup {backup}"), &[]);
        let flow = outer_flow(&self.frame, ETHERNET);
        self.go_on(backup, limit - ETHERNET, flow)
    }

    /// `function_dead_last()`.
    pub(crate) fn dead_last(&mut self, sid: &CompiledSid, outer: &Outer) -> Found<Box<End>> {
        let has_srh = octet(&self.frame, ETHERNET + 6) == number::ROUTING;
        let rerouted = has_srh && self.was_rerouted(ETHERNET + IPV6 + SRH);
        if u32::from(sid.entry.failure) == abi::SEGUE_FAILURE_REROUTE && !rerouted {
            return self.reroute(sid, outer.limit);
        }
        Err(ended(Outcome::DropFunctionDown))
    }

    /// `function_obstacle()`: the link to the function takes a packet of so many octets; the function's link-layer address.
    pub(crate) fn function_link(&mut self, sid: &CompiledSid, length: usize) -> Found<[u8; 6]> {
        let entry = &sid.entry;
        // What the link is now: entries follow it in place, and what they were compiled from does not.
        let name = self.view.interfaces.name(entry.oif).map(str::to_owned);
        let link = name.as_ref().and_then(|name| self.view.interfaces.get(name)).filter(|link| link.up);
        let Some(mtu) = link.map(|link| link.mtu.min(65_535) as usize) else {
            let name = name.unwrap_or_else(|| "the function's link".to_owned());
            return Err(because(Outcome::DropLinkDown, format!("{name} is down")));
        };
        let mac = if u32::from(entry.flags) & abi::SEGUE_SID_NEXT_HOP_MAC != 0 {
            entry.mac
        } else {
            let wanted = Wanted { oif: entry.oif, ..Wanted::default() };
            let next_hop: IpAddr = match entry.next_hop_ipv4 {
                0 => Ipv6Addr::from(entry.next_hop).into(),
                address => Ipv4Addr::from(address.to_ne_bytes()).into(),
            };
            let adjacency = self.adjacency(next_hop, wanted);
            if adjacency.kind != Kind::Link {
                return Err(because(Outcome::DropNoNeighbour, format!("{next_hop} does not answer")));
            }
            let mut mac = [0; 6];
            mac.copy_from_slice(&adjacency.ethernet[..6]);
            mac
        };
        let limit = |limit: &&PathMtu| limit.of == PathMtuOf::Function(sid.prefix);
        let behind = self.view.path_mtus.iter().find(limit).map_or(mtu, |limit| usize::from(limit.mtu));
        if length > mtu.min(behind) {
            let where_to = if behind < mtu { "the path behind the function" } else { "the function's link" };
            let reason = format!("{length} octets where {} fit {where_to}", mtu.min(behind));
            return Err(because(Outcome::DropTooBig, reason));
        }
        Ok(mac)
    }

    /// `function_deliver()`.
    pub(crate) fn deliver(
        &mut self,
        sid: &CompiledSid,
        mac: [u8; 6],
        ethertype: u16,
        steered: Option<Vec<u8>>,
    ) -> Box<End> {
        put(&mut self.frame, 0, &mac);
        put(&mut self.frame, 6, &sid.entry.source_mac);
        put(&mut self.frame, 12, &ethertype.to_be_bytes());
        self.handed(sid, steered)
    }

    fn handed(&mut self, sid: &CompiledSid, steered: Option<Vec<u8>>) -> Box<End> {
        let index = sid.index;
        let scope = sid.entry.scope;
        let returns = |port: &&segue_dataplane::CompiledPort| {
            let first = self.view.compiled.sids.iter().find(|other| other.index == port.entry.proxy);
            u32::from(port.entry.role) == abi::SEGUE_ROLE_SERVICE
                && (port.entry.proxy == index || (scope != 0 && first.is_some_and(|first| first.entry.scope == scope)))
        };
        let back_by = self.view.compiled.ports.iter().find(returns).map(|port| port.name.clone());
        let name = self.view.interfaces.name(sid.entry.oif).unwrap_or("its link").to_owned();
        self.note("function", named(&sid.prefix), format!("handed to the function by {name}"), &[]);
        let mut end = ended(Outcome::ToFunction);
        end.egress = Some(Egress { ifindex: sid.entry.oif, next_hop: None });
        end.visit = Some(Visit { sid: sid.prefix, back_by, steered });
        end
    }

    /// A header that a proxy can remember: `srv6_prepare()`.
    fn rememberable(&self, length: usize, left: u8) -> Found<()> {
        let fits = length <= HEADROOM && length.is_multiple_of(8) && length >= IPV6 + SRH + 16 && left <= 15;
        if fits { Ok(()) } else { Err(ended(Outcome::DropHeaderUnfit)) }
    }

    /// `proxy_to_function()`.
    pub(crate) fn give(&mut self, sid: &'a CompiledSid, outer: &Outer, advance: Option<Advance>) -> Found<Box<End>> {
        if outer.fragment {
            return Err(ended(Outcome::DropFragmentAtDecapsulation));
        }
        let memory = u32::from(sid.entry.memory);
        let steered = (memory != 0).then(|| self.frame.clone());
        let left = advance.map_or(0, |advance| advance.left);
        if outer.protocol == number::ETHERNET {
            if memory != 0 {
                self.rememberable(outer.offset - ETHERNET, left)?;
            }
            let mut end = self.decapsulate_ethernet(sid, outer, Outcome::ToFunction)?;
            end.visit = self.handed(sid, steered).visit;
            return Ok(end);
        }
        let (inner, ecn) = self.admit(&sid.entry, outer)?;
        let mac = self.function_link(sid, inner.length)?;
        if memory != 0 {
            self.rememberable(outer.offset - ETHERNET, left)?;
        }
        if memory == abi::SEGUE_MEMORY_FLOW {
            self.assume("the flow is remembered: there is room for it");
        }
        if memory == abi::SEGUE_MEMORY_PACKET {
            if let IpAddr::V6(source) = inner.source
                && link_local(source)
            {
                return Err(ended(Outcome::DropBadInner));
            }
            if let Some(advance) = advance {
                self.onward(advance.next, outer.limit - ETHERNET)?;
            }
        }
        let (at, is_ipv4) = (outer.offset & OFFSET_MASK, inner.is_ipv4());
        self.expose(at, inner.length);
        if ecn != inner.ecn {
            set_ecn(&mut self.frame, ETHERNET, is_ipv4, ecn);
        }
        let keeps = u32::from(sid.entry.proxy_flags) & abi::SEGUE_PROXY_KEEP_HOP_LIMIT != 0;
        if memory == abi::SEGUE_MEMORY_PACKET && inner.hop_limit < 2 && keeps {
            // The kernel would not forward it; written as the data plane does, whose checksum follows.
            for _ in inner.hop_limit..2 {
                if is_ipv4 {
                    self.assume("the hop limit is raised for the function's kernel");
                } else {
                    change(&mut self.frame, ETHERNET + 7, |limit| limit + 1);
                }
            }
        }
        Ok(self.deliver(sid, mac, if is_ipv4 { number::TYPE_IPV4 } else { number::TYPE_IPV6 }, steered))
    }

    /// `onward_obstacle()`: what would not fit behind the function is refused in front of it.
    fn onward(&mut self, next: Ipv6Addr, length: usize) -> Found<()> {
        if length <= 1280 {
            return Ok(());
        }
        let adjacency = self.adjacency(next.into(), Wanted { inside: true, ..Wanted::default() });
        if adjacency.kind == Kind::Link { self.obstacle(&adjacency, length, Sending::default()) } else { Ok(()) }
    }

    /// `masquerade()`.
    fn masquerade(&mut self, sid: &CompiledSid, outer: &Outer, advance: &Advance) -> Found<Box<End>> {
        let (srh, simple) = (advance.header, ETHERNET + IPV6);
        let length = (usize::from(octet(&self.frame, srh + 1)) + 1) * 8;
        if srh != simple || simple + SRH + 16 > self.frame.len() {
            return Err(ended(Outcome::DropHeaderUnfit));
        }
        let last = ipv6(&self.frame, simple + SRH);
        if !forwardable(last) {
            return Err(ended(Outcome::DropBadNextSegment));
        }
        let mac = self.function_link(sid, outer.limit - ETHERNET)?;
        self.rememberable(IPV6 + length, 0)?;
        if !matches!(octet(&self.frame, srh), number::TCP | number::UDP) {
            self.assume("what is behind the SRH does not lead on, or is remembered");
        }
        let steered = self.frame.clone();
        lower_hops(&mut self.frame, ETHERNET, false);
        change(&mut self.frame, srh + 3, |_| advance.left);
        put(&mut self.frame, ETHERNET + 24, &last.octets());
        Ok(self.deliver(sid, mac, number::TYPE_IPV6, Some(steered)))
    }

    /// `aware_to_function()`.
    fn give_aware(&mut self, sid: &CompiledSid, outer: &Outer) -> Found<Box<End>> {
        if outer.srh != Some(ETHERNET + IPV6) {
            return Err(ended(Outcome::DropHeaderUnfit));
        }
        let mac = self.function_link(sid, outer.limit - ETHERNET)?;
        self.assume("the flow is remembered: there is room for it");
        let steered = self.frame.clone();
        lower_hops(&mut self.frame, ETHERNET, false);
        Ok(self.deliver(sid, mac, number::TYPE_IPV6, Some(steered)))
    }

    /// `proxy_inserted()`: the SRH was inserted into the packet's own header.
    fn inserted(&mut self, sid: &CompiledSid, outer: &Outer) -> Found<Box<End>> {
        self.stage()?;
        let simple = ETHERNET + IPV6;
        let last = ipv6(&self.frame, simple + SRH);
        if outer.srh != Some(simple) {
            return Err(ended(Outcome::DropHeaderUnfit));
        }
        if !forwardable(last) {
            return Err(ended(Outcome::DropBadNextSegment));
        }
        if self.in_sid_block(last) {
            return Err(ended(Outcome::DropInnerToSid));
        }
        if link_local(ipv6(&self.frame, ETHERNET + 8)) {
            return Err(ended(Outcome::DropBadInner));
        }
        let length = (usize::from(octet(&self.frame, simple + 1)) + 1) * 8;
        let mac = self.function_link(sid, outer.limit - ETHERNET - length)?;
        self.assume("the header fits the proxy's memory");
        let steered = self.frame.clone();
        put(&mut self.frame, ETHERNET + 24, &last.octets());
        lower_hops(&mut self.frame, ETHERNET, false);
        Ok(self.deliver(sid, mac, number::TYPE_IPV6, Some(steered)))
    }

    /// `service_port()`: back from a function.
    pub(crate) fn service_port(&mut self, remembered: Option<Ipv6Net>) -> Found<Box<End>> {
        let proxy = self.port.entry.proxy;
        let sid = self.view.compiled.sids.iter().find(|sid| sid.index == proxy);
        if let Some(prefix) = remembered {
            return match key_label(&prefix) {
                Some(_) => self.restore_labels(prefix),
                None => self.restore(prefix),
            };
        }
        match sid {
            Some(sid) if u32::from(sid.entry.kind) == abi::SEGUE_HEADER_MPLS => self.back_to_labels(sid),
            Some(sid) if u32::from(sid.entry.behaviour) == abi::SEGUE_END_AS => self.back_to_static(sid),
            Some(_) => {
                self.assume("what the proxy remembers is not known here");
                Ok(ended(Outcome::DropProxyEmpty))
            }
            None => {
                self.back_from_function()?;
                Err(ended(Outcome::DropProxyEmpty))
            }
        }
    }

    /// `function_admit()` and what `proxy_from_function()` asks besides; none: it went around again.
    pub(crate) fn back_from_function(&mut self) -> Found<crate::flow::Flow> {
        let flow = self.flow();
        if let Some(outcome) = flow.outcome {
            return Err(ended(outcome));
        }
        self.make_even(&flow);
        if flow.family == 0 && self.remove_priority_tag() {
            self.stage()?;
            return self.back_from_function();
        }
        if flow.family == 0 {
            return Err(ended(Outcome::PassedNotForSegue));
        }
        let hides = flow.family == 6 && flow.fragment;
        if hides {
            self.assume("the fragment hides no SRH");
        }
        if flow.group {
            let to_sid = flow.destination6().is_some_and(|address| self.in_sid_block(address));
            let outcome = if flow.sr_seen || to_sid { Outcome::DropFromFunction } else { Outcome::PassedNotForSegue };
            return Err(ended(outcome));
        }
        match self.refused_addresses(&flow) {
            Some(Outcome::PassedNotForSegue) if flow.sr_seen => Err(ended(Outcome::DropFromFunction)),
            Some(outcome) => Err(ended(outcome)),
            None => Ok(flow),
        }
    }

    /// `proxy_from_function()` of End.AS.
    fn back_to_static(&mut self, sid: &'a CompiledSid) -> Found<Box<End>> {
        let ethernet = u32::from(sid.entry.inner) & abi::SEGUE_INNER_ETHERNET != 0;
        let (group, foreign) = (self.is_to_group(), self.is_foreign());
        let flow;
        let payload = if ethernet && !group && foreign {
            flow = self.flow();
            Payload { length: self.frame.len(), protocol: number::ETHERNET, ..Payload::default() }
        } else {
            flow = self.back_from_function()?;
            if ethernet {
                return Err(ended(Outcome::DropFromFunction));
            }
            let kind = if flow.is_ipv4() { abi::SEGUE_INNER_IPV4 } else { abi::SEGUE_INNER_IPV6 };
            if u32::from(sid.entry.inner) & kind == 0 {
                return Err(ended(Outcome::DropInnerType));
            }
            if flow.hop_limit <= 1 {
                return Err(ended(Outcome::DropHopLimitExceeded));
            }
            Payload {
                length: flow.length,
                protocol: if flow.is_ipv4() { number::IPV4 } else { number::IPV6 },
                traffic_class: flow.traffic_class,
                flow_label: flow.flow_label,
                decrement: true,
                ..Payload::default()
            }
        };
        let payload = Payload { flow: flow.hash, ..payload };
        self.note("sid", sid.prefix.to_string(), "back from its function", &[sid.entry.counter_return]);
        let list = self.policy_list(sid.entry.policy, flow.hash).ok_or_else(|| ended(Outcome::DropProxyEmpty))?;
        self.encapsulate(list, &payload, None)
    }

    /// Back from the function of a proxy that remembers: the frame is the packet as it came to the SID, and goes on to its next segment.
    fn restore(&mut self, prefix: Ipv6Net) -> Found<Box<End>> {
        let Some(sid) = self.view.compiled.sids.iter().find(|sid| sid.prefix == prefix) else {
            return Err(ended(Outcome::DropProxyEmpty));
        };
        self.assume("the function gives the packet back as it got it");
        self.note("sid", prefix.to_string(), "back from its function", &[sid.entry.counter_return]);
        let limit = ETHERNET + IPV6 + usize::from(half(&self.frame, ETHERNET + 4));
        let found = headers::walk(&self.frame, ETHERNET + 6, ETHERNET + IPV6, limit);
        let srh = found.srh.ok_or_else(|| ended(Outcome::DropProxyEmpty))?;
        let left = octet(&self.frame, srh + 3).wrapping_sub(1);
        let advance = self.advance_to(srh, found.previous, left)?;
        self.advance(&advance);
        let flow = outer_flow(&self.frame, ETHERNET);
        self.go_on(advance.next, limit.min(self.frame.len()) - ETHERNET, flow)
    }
}
