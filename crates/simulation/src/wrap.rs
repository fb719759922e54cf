//! Puts a steering header on. Twin of `bpf/lib/access/encapsulation.h`.

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{CompiledList, CompiledPolicy, PathMtu, PathMtuOf};

use crate::octets::{ETHERNET, IPV6, SRH, change, half, ipv6, lower_hops, number, octet, put};
use crate::way::{Adjacency, Kind, Sending, Wanted};
use crate::{End, Found, Packet, because, ended};

/// `struct payload`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Payload {
    pub length: usize,
    pub flow: u32,
    pub protocol: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    /// Its hop limit or TTL is lowered.
    pub decrement: bool,
    /// End.B6.*: the inner packet goes on to this segment; SRH, next segment, segments left.
    pub advance: Option<Advance>,
}

/// `struct advance`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Advance {
    pub next: std::net::Ipv6Addr,
    /// Offset of the SRH.
    pub header: usize,
    /// Offset of the octet that names it.
    pub previous: usize,
    pub left: u8,
}

impl Packet<'_, '_> {
    /// `advance_write()`.
    pub(crate) fn advance(&mut self, advance: &Advance) {
        change(&mut self.frame, advance.header + 3, |_| advance.left);
        put(&mut self.frame, ETHERNET + 24, &advance.next.octets());
    }

    /// `encapsulate()`. The way is found here unless it is known.
    pub(crate) fn encapsulate(
        &mut self,
        list: &CompiledList,
        payload: &Payload,
        way: Option<Adjacency>,
    ) -> Found<Box<End>> {
        let entry = &list.entry;
        let push = usize::from(entry.header_length);
        let wanted = Wanted { oif: entry.oif, inside: true, flow: payload.flow, ..Wanted::default() };
        let first = std::net::Ipv6Addr::from(entry.first);
        let adjacency = way.unwrap_or_else(|| self.adjacency(first.into(), wanted));
        self.list_obstacle(list, &adjacency, payload.length + push)?;
        if payload.decrement {
            lower_hops(&mut self.frame, ETHERNET, payload.protocol == number::IPV4);
        }
        if let Some(advance) = &payload.advance {
            self.advance(advance);
        }
        self.wrap_on(list, payload, &adjacency)
    }

    /// `list_obstacle()`: of a packet with its headers.
    fn list_obstacle(&self, list: &CompiledList, adjacency: &Adjacency, length: usize) -> Found<()> {
        let has = |policy: &CompiledPolicy, position: usize| {
            policy.lists.get(position).is_some_and(|one| one.index == list.index)
        };
        let is_its = |limit: &&PathMtu| match &limit.of {
            PathMtuOf::List(name, position) => {
                self.view.compiled.policies.iter().any(|policy| policy.name == *name && has(policy, *position))
            }
            PathMtuOf::Function(_) => false,
        };
        match self.view.path_mtus.iter().find(is_its).map(|limit| usize::from(limit.mtu)) {
            Some(mtu) if length > mtu && !(adjacency.kind == Kind::Link && adjacency.fits < mtu) => {
                let reason = format!("{length} octets where {mtu} fit the path, as a node of it has told");
                Err(self.towards(because(Outcome::DropTooBig, reason), adjacency))
            }
            _ => self.obstacle(adjacency, length, Sending::default()),
        }
    }

    /// `encapsulation_write()`, and what is behind it: the list's header goes on in front.
    pub(crate) fn wrap_on(&mut self, list: &CompiledList, payload: &Payload, adjacency: &Adjacency) -> Found<Box<End>> {
        let entry = &list.entry;
        let push = usize::from(entry.header_length);
        let mut header = entry.header[..push].to_vec();
        let flags = u32::from(entry.flags);
        let mut traffic_class = payload.traffic_class;
        if flags & abi::SEGUE_LIST_TRAFFIC_CLASS_COPY == 0 {
            traffic_class = entry.traffic_class | (traffic_class & 3);
        }
        let copied = flags & abi::SEGUE_LIST_FLOW_LABEL_COPY != 0 && payload.flow_label != 0;
        let label = if copied { payload.flow_label } else { payload.flow & 0xf_ffff };
        let first = 6 << 28 | u32::from(traffic_class) << 20 | label.max(1);
        put(&mut header, 0, &first.to_be_bytes());
        put(&mut header, 4, &((push - IPV6 + payload.length) as u16).to_be_bytes());
        let naming = if flags & abi::SEGUE_LIST_HAS_SRH != 0 { IPV6 } else { 6 };
        put(&mut header, naming, &[payload.protocol]);
        let at = if payload.protocol == number::ETHERNET { 0 } else { ETHERNET };
        let room = if at == 0 { ETHERNET } else { 0 };
        let header = [&vec![0; room][..], &header].concat();
        self.frame.splice(at..at, header);
        self.raise_for_kernel(adjacency);
        self.leave(adjacency, number::TYPE_IPV6)
    }

    /// `insert()`: H.Insert.
    pub(crate) fn insert(&mut self, list: &CompiledList, payload: &Payload, adjacency: &Adjacency) -> Found<Box<End>> {
        let entry = &list.entry;
        let push = usize::from(entry.header_length);
        if payload.protocol != number::IPV6 {
            return Err(ended(Outcome::DropInnerType));
        }
        self.list_obstacle(list, adjacency, payload.length + push)?;
        if octet(&self.frame, ETHERNET + 6) == number::HOP_BY_HOP {
            return Err(ended(Outcome::DropInnerType));
        }
        let mut srh = entry.header[..push].to_vec();
        let next = octet(&self.frame, ETHERNET + 6);
        put(&mut srh, 0, &[next]);
        put(&mut srh, SRH, &ipv6(&self.frame, ETHERNET + 24).octets());
        self.frame.splice(ETHERNET + IPV6..ETHERNET + IPV6, srh);
        put(&mut self.frame, ETHERNET + 6, &[number::ROUTING]);
        let length = half(&self.frame, ETHERNET + 4).wrapping_add(push as u16);
        put(&mut self.frame, ETHERNET + 4, &length.to_be_bytes());
        if adjacency.uses_hop() {
            lower_hops(&mut self.frame, ETHERNET, false);
        }
        let first = entry.first;
        put(&mut self.frame, ETHERNET + 24, &first);
        self.leave(adjacency, number::TYPE_IPV6)
    }
}
