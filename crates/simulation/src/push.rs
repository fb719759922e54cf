//! PUSH (RFC 8660 section 2.7): a packet into a policy whose list is a stack of labels. Twin of `bpf/lib/labels/push.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::CompiledList;

use crate::flow::Flow;
use crate::label::BY_LINK;
use crate::octets::{ETHERNET, lower_hops, number, octet, put};
use crate::stack::{self, ENTRY, entry, store};
use crate::way::{Adjacency, Wanted};
use crate::{End, Found, Packet, ended};

/// In the word for the way of a list: its next hop is an IPv4 address.
const WAY_IPV4: u32 = 1 << 31;

impl<'a> Packet<'a, '_> {
    /// `access_push()` and `labels_push()`.
    pub(crate) fn push(&mut self, flow: &Flow, list: &'a CompiledList) -> Found<Box<End>> {
        let is_local = u32::from(list.entry.flags) & abi::SEGUE_LIST_LOCAL != 0;
        let goes_in_udp = u32::from(list.entry.flags) & abi::SEGUE_LIST_UDP != 0;
        // The way is found with the verdict, before anything else is looked at, but for a list that begins here.
        let way = (!is_local && !goes_in_udp).then(|| self.list_way(list, flow.hash));
        if flow.hop_limit <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        self.make_even(flow);
        self.clamp(flow, list);
        if goes_in_udp {
            self.stage()?;
            return self.push_udp(flow, list);
        }
        if let Some(adjacency) = &way {
            self.obstacle(adjacency, flow.length + usize::from(list.entry.header_length), BY_LINK)?;
        } else {
            self.stage()?;
        }
        self.push_on(list, flow, way)
    }

    /// `push_on()`: by a way that the packet fits, or where there is none on by its labels here.
    pub(crate) fn push_on(&mut self, list: &CompiledList, flow: &Flow, way: Option<Adjacency>) -> Found<Box<End>> {
        self.put_labels_on(list, flow);
        match way {
            Some(adjacency) => Ok(self.labels_leave(&adjacency)),
            None => self.labels_here(),
        }
    }

    /// `list_adjacency()`: the way to the next hop of a list of labels.
    pub(crate) fn list_way(&mut self, list: &CompiledList, flow: u32) -> Adjacency {
        let first = list.entry.first;
        let towards: IpAddr = match list.entry.way & WAY_IPV4 {
            0 => Ipv6Addr::from(first).into(),
            // In the low word, as the data plane has IPv4 addresses.
            _ => Ipv4Addr::new(first[8], first[9], first[10], first[11]).into(),
        };
        self.adjacency(towards, Wanted { oif: list.entry.oif, inside: true, flow, ..Wanted::default() })
    }

    /// Its octets: lowers the TTL or hop limit of the packet right behind the Ethernet header, and puts the labels on.
    pub(crate) fn put_labels_on(&mut self, list: &CompiledList, flow: &Flow) {
        lower_hops(&mut self.frame, ETHERNET, flow.is_ipv4());
        let hops = octet(&self.frame, if flow.is_ipv4() { ETHERNET + 8 } else { ETHERNET + 7 });
        let labels = self.filled(list, flow.traffic_class, hops, flow.hash);
        self.frame.splice(ETHERNET..ETHERNET, labels);
        put(&mut self.frame, 12, &number::TYPE_MPLS.to_be_bytes());
    }

    /// `labels_write()`: the entries of a list in front of a packet of this class, hop limit and flow.
    pub(crate) fn filled(&self, list: &CompiledList, traffic_class: u8, hops: u8, flow: u32) -> Vec<u8> {
        let flags = u32::from(list.entry.flags);
        let copies = flags & abi::SEGUE_LIST_TRAFFIC_CLASS_COPY != 0;
        let class = if copies { traffic_class } else { list.entry.traffic_class | traffic_class & 3 };
        let ttl = if flags & abi::SEGUE_LIST_TTL_UNIFORM != 0 { hops } else { list.entry.ttl };
        let fill = self.class_fill(class) | u32::from(ttl);
        let mut labels = list.entry.header[..usize::from(list.entry.header_length)].to_vec();
        for at in (0..labels.len()).step_by(ENTRY) {
            let word = entry(&labels, at).unwrap_or_default();
            store(&mut labels, at, word | fill);
        }
        if flags & abi::SEGUE_LIST_ENTROPY != 0 {
            stack::renew_entropy(&mut labels, flow);
        }
        labels
    }
}
