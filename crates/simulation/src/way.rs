//! From an address to the link that leads there, and what stands against it. Twin of `bpf/lib/forward`.

use std::net::{IpAddr, Ipv6Addr};

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{FibQuestion, FibVerdict};

use crate::octets::{ETHERNET, change, lower_hops, number, put};
use crate::{Egress, End, Found, Packet, because, ended};

/// `enum adjacency_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Link,
    Sid,
    NoNeighbour,
    Blackhole,
    Unreachable,
    Outside,
}

/// `struct adjacency`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adjacency {
    pub kind: Kind,
    /// Octets that fit; 0 if it is no link.
    pub fits: usize,
    pub ifindex: u32,
    /// The frame's header.
    pub ethernet: [u8; ETHERNET],
    pub next_hop: Option<IpAddr>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Routing table; 0: by the kernel's rules.
    pub table: u32,
    /// Link; 0: any.
    pub oif: u32,
    /// An access port is no way for it.
    pub inside: bool,
    /// What picks the ECMP bucket.
    pub flow: u32,
}

/// `struct sending`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sending {
    /// The next hop is given, not routed.
    pub next_hop: bool,
    pub table: u32,
    /// It may be for a SID of this node, whatever the table.
    pub to_sid: bool,
}

impl Adjacency {
    /// `hops_used()`: the hop limit counts this node once.
    pub fn uses_hop(&self) -> bool {
        matches!(self.kind, Kind::Link | Kind::Sid)
    }

    pub fn fits(&self, length: usize) -> bool {
        length <= self.fits
    }

    /// `adjacency_refusal()`.
    pub fn refusal(&self, sending: Sending) -> Option<Outcome> {
        let kind = self.kind;
        Some(match kind {
            Kind::Link => Outcome::DropTooBig,
            Kind::Outside => Outcome::DropSrLeaves,
            _ if sending.next_hop => match kind {
                Kind::NoNeighbour => Outcome::PassedNoNeighbour,
                _ => Outcome::DropLinkDown,
            },
            Kind::Blackhole => Outcome::DropRouteBlackhole,
            Kind::Unreachable => Outcome::DropNoRoute,
            _ if sending.table != 0 && !(sending.to_sid && kind == Kind::Sid) => match kind {
                Kind::NoNeighbour => Outcome::DropNoNeighbour,
                _ => Outcome::DropNoRoute,
            },
            _ => return None,
        })
    }
}

impl Packet<'_, '_> {
    /// `adjacency_find()`.
    pub(crate) fn adjacency(&mut self, towards: IpAddr, wanted: Wanted) -> Adjacency {
        let mut found = Adjacency { kind: Kind::Kernel, fits: 0, ifindex: 0, ethernet: [0; ETHERNET], next_hop: None };
        if let IpAddr::V6(address) = towards
            && self.sid(address).is_some()
        {
            self.note("route", towards.to_string(), "a SID of this node: it goes on here", &[]);
            return Adjacency { kind: Kind::Sid, ..found };
        }
        let bucket = wanted.flow & u32::from(self.port.entry.flow_buckets_mask);
        let question = FibQuestion {
            source: Ipv6Addr::from(self.config().address),
            destination: towards,
            bucket,
            ifindex: if wanted.oif != 0 { wanted.oif } else { self.port.entry.ifindex },
            is_output: wanted.oif != 0,
            table: wanted.table,
        };
        let answer = self.kernel.fib(&question);
        found.ifindex = answer.ifindex;
        let leads_outside = |ifindex: u32| {
            let mut ports = self.view.compiled.ports.iter();
            ports.any(|port| port.entry.ifindex == ifindex && u32::from(port.entry.role) == abi::SEGUE_ROLE_ACCESS)
        };
        let outside = wanted.inside && leads_outside(answer.ifindex);
        found.kind = match answer.verdict {
            FibVerdict::Link | FibVerdict::NoNeighbour if outside => Kind::Outside,
            FibVerdict::Link => Kind::Link,
            FibVerdict::NoNeighbour => Kind::NoNeighbour,
            FibVerdict::Blackhole => Kind::Blackhole,
            FibVerdict::Unreachable => Kind::Unreachable,
            FibVerdict::Kernel(_) => Kind::Kernel,
        };
        if found.kind == Kind::Link {
            found.fits = if answer.mtu == 0 { 65_535 } else { answer.mtu as usize };
            found.ethernet[..6].copy_from_slice(&answer.destination_mac);
            found.ethernet[6..12].copy_from_slice(&answer.source_mac);
            let ethertype = if towards.is_ipv4() { number::TYPE_IPV4 } else { number::TYPE_IPV6 };
            found.ethernet[12..].copy_from_slice(&ethertype.to_be_bytes());
        }
        if matches!(found.kind, Kind::Link | Kind::NoNeighbour | Kind::Outside) {
            found.next_hop = Some(answer.next_hop);
        }
        self.note_route(towards, wanted, &found, answer.verdict);
        found
    }

    fn note_route(&mut self, towards: IpAddr, wanted: Wanted, found: &Adjacency, verdict: FibVerdict) {
        let link = || self.view.interfaces.name(found.ifindex).map_or_else(|| found.ifindex.to_string(), str::to_owned);
        let via = found.next_hop.filter(|hop| *hop != towards).map_or(String::new(), |hop| format!(" via {hop}"));
        let mut detail = match found.kind {
            Kind::Link => format!("out by {}{via}, MTU {}", link(), found.fits),
            Kind::NoNeighbour => format!("out by {}{via}, where nobody is known yet", link()),
            Kind::Outside => format!("out by {}, which leads out of the domain", link()),
            Kind::Blackhole => "the route says blackhole or prohibit".to_owned(),
            Kind::Unreachable => "the route says unreachable".to_owned(),
            Kind::Sid | Kind::Kernel => match verdict {
                FibVerdict::Kernel(text) => format!("the kernel's: {text}"),
                _ => "the kernel's".to_owned(),
            },
        };
        if wanted.table != 0 {
            detail.push_str(&format!(" (table {})", wanted.table));
        }
        self.note("route", towards.to_string(), detail, &[]);
    }

    /// `obstacle()`, for a packet that does not fit: it ends, or goes on to the kernel or to a SID of this node.
    pub(crate) fn obstacle(&self, adjacency: &Adjacency, length: usize, sending: Sending) -> Found<()> {
        if adjacency.fits(length) {
            return Ok(());
        }
        match adjacency.refusal(sending) {
            None => Ok(()),
            Some(Outcome::DropTooBig) => {
                let reason = format!("{length} octets where {} fit", adjacency.fits);
                Err(self.towards(because(Outcome::DropTooBig, reason), adjacency))
            }
            Some(outcome) => Err(self.towards(ended(outcome), adjacency)),
        }
    }

    pub(crate) fn towards(&self, mut end: Box<End>, adjacency: &Adjacency) -> Box<End> {
        if adjacency.ifindex != 0 && adjacency.next_hop.is_some() {
            end.egress = Some(Egress { ifindex: adjacency.ifindex, next_hop: adjacency.next_hop });
        }
        end
    }

    /// `leave()`: the frame is complete but for its Ethernet header.
    pub(crate) fn leave(&mut self, adjacency: &Adjacency, ethertype: u16) -> Found<Box<End>> {
        if adjacency.kind == Kind::Link {
            put(&mut self.frame, 0, &adjacency.ethernet);
            return Ok(self.towards(ended(Outcome::Forwarded), adjacency));
        }
        let mac = self.port.entry.mac;
        put(&mut self.frame, 0, &mac);
        put(&mut self.frame, 6, &[0; 6]);
        put(&mut self.frame, 12, &ethertype.to_be_bytes());
        if adjacency.kind == Kind::Sid {
            self.stage()?;
            self.again = true;
            return Ok(self.core_port());
        }
        let outcome = match adjacency.kind {
            Kind::NoNeighbour => Outcome::PassedNoNeighbour,
            _ => Outcome::PassedRoute,
        };
        Ok(self.towards(ended(outcome), adjacency))
    }

    /// An IPv6 packet that goes on to `next` as it is: `way_on()` and `leave_on()`.
    pub(crate) fn go_on(&mut self, next: Ipv6Addr, length: usize, flow: u32) -> Found<Box<End>> {
        let adjacency = self.adjacency(next.into(), Wanted { inside: true, flow, ..Wanted::default() });
        self.obstacle(&adjacency, length, Sending::default())?;
        if adjacency.uses_hop() {
            lower_hops(&mut self.frame, ETHERNET, false);
        }
        put(&mut self.frame, ETHERNET + 24, &next.octets());
        self.leave(&adjacency, number::TYPE_IPV6)
    }

    /// Raises the outer hop limit that the kernel will lower.
    pub(crate) fn raise_for_kernel(&mut self, adjacency: &Adjacency) {
        if !adjacency.uses_hop() {
            change(&mut self.frame, ETHERNET + 7, |limit| if limit == 255 { limit } else { limit + 1 });
        }
    }
}
