//! A packet to a SID of this node (RFC 8986 section 4). Twin of `bpf/lib/core/endpoint.h`, `advance.h`, `decapsulation.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::CompiledSid;
use segue_model::node::Behaviour;

use crate::headers::{self, Found as Boundary};
use crate::inner::{self, Inner};
use crate::octets::{
    ETHERNET, IPV6, OFFSET_MASK, SRH, ecn_after_tunnel, forwardable, half, ipv6, lower_hops, number, octet, outer_flow,
    put, set_ecn,
};
use crate::way::{Kind, Sending, Wanted};
use crate::wrap::{Advance, Payload};
use crate::{Egress, End, Found, Packet, because, ended};

/// `struct outer`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outer {
    /// Of what follows its headers.
    pub offset: usize,
    /// End of the packet.
    pub limit: usize,
    pub protocol: u8,
    pub ecn: u8,
    pub fragment: bool,
    /// Of an SRH with segments left.
    pub srh: Option<usize>,
}

impl<'a> Packet<'a, '_> {
    fn flag(sid: &CompiledSid, flag: u32) -> bool {
        u32::from(sid.entry.flags) & flag != 0
    }

    fn flavour(sid: &CompiledSid, flavour: u32) -> bool {
        u32::from(sid.entry.flavours) & flavour != 0
    }

    /// Whether the function behind a SID is down.
    pub(crate) fn is_down(&self, sid: &CompiledSid) -> bool {
        self.view.down.contains(&sid.prefix)
    }

    fn note_sid(&mut self, sid: &CompiledSid) {
        let state = self.view.state;
        let configured = state.sids.iter().find(|known| known.sid == sid.prefix);
        let detail = match (configured, &sid.binding_of) {
            (Some(known), _) => {
                let flavours: Vec<&str> = known.flavours.iter().map(|flavour| flavour.name()).collect();
                let with = if flavours.is_empty() { String::new() } else { format!(" with {}", flavours.join(", ")) };
                let comment = known.comment.as_ref().map(|comment| format!(", {comment}")).unwrap_or_default();
                format!("{}{with}{comment}", known.behaviour.name())
            }
            (None, Some(policy)) => format!("binding SID of policy {policy}"),
            (None, None) => String::new(),
        };
        let detail = if self.is_down(sid) { format!("{detail}; its function is down") } else { detail };
        self.note("sid", sid.prefix.to_string(), detail, &[sid.entry.counter]);
    }

    /// `endpoint()`. `limit`: end of the packet by its Payload Length.
    pub(crate) fn endpoint(&mut self, sid: &'a CompiledSid, limit: usize) -> Found<Box<End>> {
        self.note_sid(sid);
        let offset = ETHERNET + IPV6;
        let next = octet(&self.frame, ETHERNET + 6);
        let ecn = (octet(&self.frame, ETHERNET + 1) >> 4) & 3;
        let mut outer = Outer { offset: 0, limit, protocol: 0, ecn, fragment: false, srh: None };
        let srh_there = next == number::ROUTING
            && offset + SRH <= self.frame.len()
            && octet(&self.frame, offset + 2) == number::TYPE_SRH;
        if srh_there && offset + 8 <= limit && octet(&self.frame, offset + 3) != 0 {
            return self.segment(sid, &mut outer, offset, ETHERNET + 6);
        }
        if matches!(next, number::IPV4 | number::IPV6 | number::ETHERNET) {
            (outer.offset, outer.protocol) = (offset, next);
            return self.upper_layer(sid, &outer);
        }
        let length = (usize::from(octet(&self.frame, offset + 1)) + 1) * 8;
        let inside = octet(&self.frame, offset);
        if srh_there && offset + length <= limit && self.takes_inner(sid, inside) {
            (outer.offset, outer.protocol) = (offset + length, inside);
            return self.upper_layer(sid, &outer);
        }
        let found = headers::walk(&self.frame, ETHERNET + 6, offset, limit);
        if let Some(error) = found.error {
            return Err(ended(error));
        }
        if found.options
            && let Some(refused) = headers::options_refused(&self.frame, limit)
        {
            return Err(ended(refused));
        }
        match found.srh {
            None => {
                (outer.offset, outer.protocol, outer.fragment) = (found.upper, found.protocol, found.fragment);
                self.upper_layer(sid, &outer)
            }
            Some(srh) => self.segment(sid, &mut outer, srh & OFFSET_MASK, found.previous),
        }
    }

    /// `segment_advance()`: an SRH with segments left.
    fn segment(&mut self, sid: &'a CompiledSid, outer: &mut Outer, srh: usize, previous: usize) -> Found<Box<End>> {
        let behaviour = u32::from(sid.entry.behaviour);
        if srh + SRH > self.frame.len() {
            return Err(ended(Outcome::DropTruncated));
        }
        let length = (usize::from(octet(&self.frame, srh + 1)) + 1) * 8;
        if srh + length > outer.limit {
            return Err(ended(Outcome::DropBadLength));
        }
        if decapsulates(behaviour) {
            return Err(because(Outcome::DropSegmentsLeft, "segments are left at a SID that must be the last"));
        }
        let (last_entry, left) = (octet(&self.frame, srh + 4), octet(&self.frame, srh + 3));
        if octet(&self.frame, ETHERNET + 7) <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let most = i32::from(octet(&self.frame, srh + 1) / 2) - 1;
        if i32::from(last_entry) > most || u16::from(left) > u16::from(last_entry) + 1 {
            return Err(ended(Outcome::DropSegmentsLeft));
        }
        let advance = self.advance_to(srh, previous, left.wrapping_sub(1))?;
        self.hand_on(sid)?;
        if sid.entry.firewall != 0 {
            return self.firewall_segment(sid, outer, advance);
        }
        match behaviour {
            abi::SEGUE_END | abi::SEGUE_END_X | abi::SEGUE_END_T => self.end_forward(sid, outer.limit, &advance),
            abi::SEGUE_END_AS | abi::SEGUE_END_AD | abi::SEGUE_END_AM | abi::SEGUE_END_AN | abi::SEGUE_END_AN_NF => {
                self.proxy(sid, outer, &advance)
            }
            abi::SEGUE_END_B6_ENCAPS | abi::SEGUE_END_B6_ENCAPS_RED => self.end_b6(sid, outer.limit, advance),
            abi::SEGUE_END_BM => self.end_bm(sid, outer.limit, &advance),
            abi::SEGUE_END_INSTANCES => self.instance(sid),
            _ => Err(ended(Outcome::DropBehaviour)),
        }
    }

    /// The stage of firewalls, or that of proxies that do more than the simplest.
    fn hand_on(&mut self, sid: &CompiledSid) -> Found<()> {
        let elsewhere =
            sid.entry.memory >= abi::SEGUE_MEMORY_FLOW as u8 || u32::from(sid.entry.behaviour) == abi::SEGUE_END_AN;
        if sid.entry.firewall != 0 || elsewhere { self.stage() } else { Ok(()) }
    }

    /// `advance_to()`.
    pub(crate) fn advance_to(&self, srh: usize, previous: usize, left: u8) -> Found<Advance> {
        let segment = srh + SRH + usize::from(left) * 16;
        if segment + 16 > self.frame.len() {
            return Err(ended(Outcome::DropMultiBufferHeader));
        }
        let next = ipv6(&self.frame, segment);
        if !forwardable(next) {
            return Err(ended(Outcome::DropBadNextSegment));
        }
        Ok(Advance { next, header: srh, previous, left })
    }

    /// `takes_inner()`.
    pub(crate) fn takes_inner(&self, sid: &CompiledSid, protocol: u8) -> bool {
        let ip = matches!(protocol, number::IPV4 | number::IPV6);
        match u32::from(sid.entry.behaviour) {
            abi::SEGUE_END_DX2 => protocol == number::ETHERNET,
            abi::SEGUE_END_DX4 | abi::SEGUE_END_DT4 => protocol == number::IPV4,
            abi::SEGUE_END_DX6 | abi::SEGUE_END_DT6 => protocol == number::IPV6,
            abi::SEGUE_END_DT46 => ip,
            abi::SEGUE_END_DTM => protocol == number::MPLS,
            abi::SEGUE_END | abi::SEGUE_END_T => Self::flavour(sid, abi::SEGUE_USD) && ip,
            abi::SEGUE_END_X => Self::flavour(sid, abi::SEGUE_USD) && protocol == number::IPV6,
            abi::SEGUE_END_AS | abi::SEGUE_END_AD | abi::SEGUE_END_AN_NF => {
                let kind = match protocol {
                    number::IPV4 => abi::SEGUE_INNER_IPV4,
                    number::IPV6 => abi::SEGUE_INNER_IPV6,
                    number::ETHERNET => abi::SEGUE_INNER_ETHERNET,
                    _ => 0,
                };
                u32::from(sid.entry.inner) & kind != 0
            }
            _ => false,
        }
    }

    /// `upper_layer()`: no segments are left.
    fn upper_layer(&mut self, sid: &'a CompiledSid, outer: &Outer) -> Found<Box<End>> {
        let behaviour = u32::from(sid.entry.behaviour);
        let needs_next =
            matches!(behaviour, abi::SEGUE_END_AD | abi::SEGUE_END_AM | abi::SEGUE_END_AN | abi::SEGUE_END_AN_NF);
        if self.takes_inner(sid, outer.protocol) && !needs_next {
            if self.is_down(sid) {
                return self.dead_last(sid, outer);
            }
            if behaviour == abi::SEGUE_END_AS {
                return self.give(sid, outer, None);
            }
            return self.decapsulate(sid, outer);
        }
        if outer.protocol == number::ICMPV6 && Self::flag(sid, abi::SEGUE_SID_ALLOW_ICMPV6) && !outer.fragment {
            let offset = outer.offset & OFFSET_MASK;
            if offset + 8 > self.frame.len() || outer.offset + 8 > outer.limit {
                return Err(ended(Outcome::DropTruncated));
            }
            if octet(&self.frame, offset) != 128 {
                return Err(ended(Outcome::PassedUpperLayer));
            }
            self.assume("the echo request is answered: there is a way back, and the rate limit has room");
            return Ok(ended(Outcome::EchoAnswered));
        }
        let reason = format!("{} takes no protocol {} as its last segment", name(behaviour), outer.protocol);
        Err(because(Outcome::DropUpperLayer, reason))
    }

    /// One of several instances of a function: the one that the flow was at before, which is not known here; else one by its hash.
    fn instance(&mut self, sid: &'a CompiledSid) -> Found<Box<End>> {
        self.stage()?;
        let flow = outer_flow(&self.frame, ETHERNET);
        let list = self.policy_list(sid.entry.policy, flow).ok_or_else(|| ended(Outcome::DropFunctionDown))?;
        let Some(instance) = list.segments.first() else { return Err(ended(Outcome::DropFunctionDown)) };
        self.assume(format!("of the instances of the function, the flow is at {instance}"));
        put(&mut self.frame, ETHERNET + 24, &instance.octets());
        self.stage()?;
        self.again = true;
        Ok(self.core_port())
    }

    /// `end_b6()`.
    fn end_b6(&mut self, sid: &'a CompiledSid, limit: usize, advance: Advance) -> Found<Box<End>> {
        let flow = outer_flow(&self.frame, ETHERNET);
        let at = ETHERNET;
        let first = [
            octet(&self.frame, at),
            octet(&self.frame, at + 1),
            octet(&self.frame, at + 2),
            octet(&self.frame, at + 3),
        ];
        let first = u32::from_be_bytes(first);
        let list = self.policy_list(sid.entry.policy, flow).ok_or_else(|| ended(Outcome::DropPolicyInvalid))?;
        let payload = Payload {
            length: limit - ETHERNET,
            flow,
            protocol: number::IPV6,
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            decrement: true,
            advance: Some(advance),
        };
        self.encapsulate(list, &payload, None)
    }

    /// `end_forward()`.
    pub(crate) fn end_forward(&mut self, sid: &CompiledSid, limit: usize, advance: &Advance) -> Found<Box<End>> {
        let mut length = limit - ETHERNET;
        let srh_length = (usize::from(octet(&self.frame, advance.header + 1)) + 1) * 8;
        let remove = advance.left == 0 && Self::flavour(sid, abi::SEGUE_PSP);
        let mut inside = true;
        if remove {
            let behind = octet(&self.frame, advance.header);
            let place = (behind, advance.header + srh_length);
            // Only an SRH matters here.
            inside =
                headers::is_suspect(behind) && headers::boundary(&self.frame, place, limit, |_| false) == Boundary::Sr;
        }
        let is_end_x = u32::from(sid.entry.behaviour) == abi::SEGUE_END_X;
        let towards = if is_end_x { Ipv6Addr::from(sid.entry.next_hop) } else { advance.next };
        let wanted =
            Wanted { table: sid.entry.table, oif: sid.entry.oif, inside, flow: outer_flow(&self.frame, ETHERNET) };
        let adjacency = self.adjacency(towards.into(), wanted);
        if remove {
            length = length.saturating_sub(srh_length);
        }
        let sending = Sending { next_hop: is_end_x, table: sid.entry.table, to_sid: true };
        self.obstacle(&adjacency, length, sending)?;
        if adjacency.uses_hop() {
            lower_hops(&mut self.frame, ETHERNET, false);
        }
        self.advance(advance);
        if remove {
            self.remove_srh(advance, srh_length)?;
        }
        self.leave(&adjacency, number::TYPE_IPV6)
    }

    /// `srh_remove()`.
    fn remove_srh(&mut self, advance: &Advance, length: usize) -> Found<()> {
        let (at, previous) = (advance.header & OFFSET_MASK, advance.previous & OFFSET_MASK);
        if at + length > self.frame.len() {
            return Err(ended(Outcome::DropAdjust));
        }
        let next = octet(&self.frame, at);
        put(&mut self.frame, previous, &[next]);
        let payload = half(&self.frame, ETHERNET + 4).wrapping_sub(length as u16);
        put(&mut self.frame, ETHERNET + 4, &payload.to_be_bytes());
        self.frame.drain(at..at + length);
        Ok(())
    }

    /// `inner_admit()`: the inner packet, and what its ECN field becomes.
    pub(crate) fn admit(&self, entry: &abi::Sid, outer: &Outer) -> Found<(Inner, u8)> {
        let at = outer.offset & OFFSET_MASK;
        let read = if outer.protocol == number::IPV4 { inner::read_ipv4 } else { inner::read_ipv6 };
        let inner = read(&self.frame, at, outer.limit).map_err(ended)?;
        let to_sid = inner.destination6().is_some_and(|address| self.in_sid_block(address));
        if to_sid && !allows_inner_sid(entry) {
            return Err(ended(Outcome::DropInnerToSid));
        }
        let ecn = ecn_after_tunnel(inner.ecn, outer.ecn).ok_or_else(|| ended(Outcome::DropEcnNotCapable))?;
        Ok((inner, ecn))
    }

    /// `expose()`: what lies in front of the inner packet is off, but for room for an Ethernet header, and what lies behind.
    pub(crate) fn expose(&mut self, offset: usize, length: usize) {
        self.frame.truncate(offset + length);
        self.frame.drain(ETHERNET..offset.max(ETHERNET));
    }

    /// Whether an inner packet, at the offset `at`, must not leave the domain.
    pub(crate) fn stays_inside(&self, entry: &abi::Sid, inner: &Inner, at: usize) -> Found<bool> {
        if inner.is_ipv4() || !headers::is_suspect(inner.next_header) {
            return Ok(false);
        }
        let closed = |address| self.in_sid_block(address) || self.in_infrastructure(address);
        match headers::boundary(&self.frame, (inner.next_header, at + IPV6), at + inner.length, closed) {
            Boundary::Error if !allows_inner_sid(entry) => Err(ended(Outcome::DropErrorFromOutside)),
            Boundary::Sr => Ok(true),
            _ => Ok(false),
        }
    }

    /// `end_decapsulate()`.
    fn decapsulate(&mut self, sid: &'a CompiledSid, outer: &Outer) -> Found<Box<End>> {
        let entry = &sid.entry;
        if outer.fragment {
            return Err(ended(Outcome::DropFragmentAtDecapsulation));
        }
        if outer.protocol == number::ETHERNET {
            return self.decapsulate_ethernet(sid, outer, Outcome::Forwarded);
        }
        if outer.protocol == number::MPLS {
            return self.end_dtm(outer);
        }
        let behaviour = u32::from(entry.behaviour);
        let next_hop = match behaviour {
            abi::SEGUE_END_DX6 | abi::SEGUE_END_X if outer.protocol == number::IPV6 => {
                Some(IpAddr::from(Ipv6Addr::from(entry.next_hop)))
            }
            abi::SEGUE_END_DX4 => Some(Ipv4Addr::from(entry.next_hop_ipv4.to_ne_bytes()).into()),
            _ => None,
        };
        let oif = if next_hop.is_some() { entry.oif } else { 0 };
        let (inner, ecn) = self.admit(&sid.entry, outer)?;
        let (at, is_ipv4) = (outer.offset & OFFSET_MASK, inner.is_ipv4());
        let stays = self.stays_inside(entry, &inner, at)?;
        let given = next_hop.filter(|address| !address.is_unspecified());
        let wanted = Wanted { table: entry.table, oif, inside: stays, flow: inner.bucket() };
        let adjacency = self.adjacency(given.unwrap_or(inner.destination), wanted);
        if inner.hop_limit <= 1 && adjacency.kind != Kind::Kernel {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        let sending = Sending { next_hop: given.is_some(), table: entry.table, to_sid: false };
        self.obstacle(&adjacency, inner.length, sending)?;
        self.expose(at, inner.length);
        if adjacency.uses_hop() {
            lower_hops(&mut self.frame, ETHERNET, is_ipv4);
        }
        if ecn != inner.ecn {
            set_ecn(&mut self.frame, ETHERNET, is_ipv4, ecn);
        }
        self.leave(&adjacency, if is_ipv4 { number::TYPE_IPV4 } else { number::TYPE_IPV6 })
    }

    /// `decapsulate_ethernet()`.
    pub(crate) fn decapsulate_ethernet(
        &mut self,
        sid: &CompiledSid,
        outer: &Outer,
        outcome: Outcome,
    ) -> Found<Box<End>> {
        self.expose_frame(sid.entry.oif, outer.offset, outer.limit, outcome)
    }

    /// The inner frame, from an offset to another, out of an interface as it is: `frame_obstacle()`, and what is behind it.
    pub(crate) fn expose_frame(&mut self, oif: u32, offset: usize, limit: usize, outcome: Outcome) -> Found<Box<End>> {
        if offset + ETHERNET > limit {
            return Err(ended(Outcome::DropTruncated));
        }
        let egress = self.view.compiled.ports.iter().find(|port| port.entry.ifindex == oif);
        let up = egress.filter(|port| self.view.interfaces.get(&port.name).is_some_and(|interface| interface.up));
        let Some(egress) = up else { return Err(ended(Outcome::DropLinkDown)) };
        if limit - offset > egress.entry.mtu as usize + ETHERNET + 4 {
            return Err(ended(Outcome::DropTooBig));
        }
        self.frame.truncate(limit);
        self.frame.drain(..offset & OFFSET_MASK);
        let mut end = ended(outcome);
        end.egress = Some(Egress { ifindex: oif, next_hop: None });
        Ok(end)
    }
}

fn allows_inner_sid(entry: &abi::Sid) -> bool {
    u32::from(entry.flags) & abi::SEGUE_SID_ALLOW_INNER_SID != 0
}

/// `behaviour_decapsulates()`.
fn decapsulates(behaviour: u32) -> bool {
    matches!(
        behaviour,
        abi::SEGUE_END_DX2
            | abi::SEGUE_END_DX4
            | abi::SEGUE_END_DX6
            | abi::SEGUE_END_DT4
            | abi::SEGUE_END_DT6
            | abi::SEGUE_END_DT46
            | abi::SEGUE_END_DTM
    )
}

/// The standards' name of a behaviour.
pub(crate) fn name(behaviour: u32) -> &'static str {
    let behaviour = match behaviour {
        abi::SEGUE_END => Behaviour::End,
        abi::SEGUE_END_X => Behaviour::EndX,
        abi::SEGUE_END_T => Behaviour::EndT,
        abi::SEGUE_END_DX2 => Behaviour::EndDx2,
        abi::SEGUE_END_DX4 => Behaviour::EndDx4,
        abi::SEGUE_END_DX6 => Behaviour::EndDx6,
        abi::SEGUE_END_DT4 => Behaviour::EndDt4,
        abi::SEGUE_END_DT6 => Behaviour::EndDt6,
        abi::SEGUE_END_DT46 => Behaviour::EndDt46,
        abi::SEGUE_END_B6_ENCAPS => Behaviour::EndB6Encaps,
        abi::SEGUE_END_B6_ENCAPS_RED => Behaviour::EndB6EncapsRed,
        abi::SEGUE_END_BM => Behaviour::EndBm,
        abi::SEGUE_END_DTM => Behaviour::EndDtm,
        abi::SEGUE_END_AS => Behaviour::EndAs,
        abi::SEGUE_END_AD => Behaviour::EndAd,
        abi::SEGUE_END_AM => Behaviour::EndAm,
        abi::SEGUE_END_AN => Behaviour::EndAn,
        abi::SEGUE_END_AN_NF => Behaviour::EndAnNf,
        _ => return "the behaviour",
    };
    behaviour.name()
}
