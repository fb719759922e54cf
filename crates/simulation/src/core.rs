//! In by a core port: to a SID of this node, on through the domain, or for the kernel. Twin of `bpf/lib/core/port.h`, `frame.h`, `transit.h`.

use segue_abi as abi;
use segue_abi::Outcome;

use crate::headers::option_refused;
use crate::octets::{ETHERNET, IPV6, forwardable, half, ipv6, link_local, lower_hops, number, octet, outer_flow};
use crate::way::{Kind, Wanted};
use crate::{End, Found, Packet, because, ended};

const TAGS_MAX: usize = 8;

impl Packet<'_, '_> {
    /// `core_port()`.
    pub(crate) fn core_port(&mut self) -> Box<End> {
        match self.core() {
            Ok(end) | Err(end) => end,
        }
    }

    fn core(&mut self) -> Found<Box<End>> {
        if !self.fills_frame() {
            if self.frame.len() < ETHERNET {
                return Err(ended(Outcome::DropTruncated));
            }
            if self.has_labels() {
                self.stage()?;
                return self.labels();
            }
            let takes_ipv4 = self.port.entry.config_flags & abi::SEGUE_CONFIG_UDP_IPV4 != 0;
            if takes_ipv4 && !self.again && half(&self.frame, 12) == number::TYPE_IPV4 {
                return self.udp_in();
            }
            if !self.again {
                self.core_odd()?;
            } else if half(&self.frame, 12) != number::TYPE_IPV6 {
                return Err(ended(Outcome::PassedNotForSegue));
            }
            self.core_trim()?;
        }
        self.core_ipv6()
    }

    /// A frame for the stage of labels.
    fn has_labels(&self) -> bool {
        let takes = self.port.entry.config_flags & abi::SEGUE_CONFIG_LABELS != 0;
        takes && !self.again && half(&self.frame, 12) == number::TYPE_MPLS
    }

    /// `core_fast()`: a frame for this port with an IPv6 packet that fills it.
    fn fills_frame(&self) -> bool {
        self.frame.len() >= ETHERNET + IPV6
            && usize::from(half(&self.frame, ETHERNET + 4)) == self.frame.len() - ETHERNET - IPV6
            && half(&self.frame, 12) == number::TYPE_IPV6
            && (self.again || !self.is_foreign())
    }

    /// `core_odd()`.
    fn core_odd(&mut self) -> Found<()> {
        let (foreign, ethertype) = (self.is_foreign(), half(&self.frame, 12));
        if foreign && !self.is_to_group() {
            let outcome = match ethertype {
                number::TYPE_IPV6 => Outcome::PassedOtherHost,
                _ => Outcome::PassedNotForSegue,
            };
            return Err(because(outcome, "the frame is for another link-layer address"));
        }
        if ethertype != number::TYPE_IPV6 {
            self.remove_priority_tags()?;
        }
        if !foreign {
            return Ok(());
        }
        if self.frame.len() < ETHERNET + IPV6 {
            return Err(ended(Outcome::DropTruncated));
        }
        let destination = ipv6(&self.frame, ETHERNET + 24);
        if self.in_sid_block(destination) || self.sid(destination).is_some() {
            return Err(ended(Outcome::DropGroupFrame));
        }
        Err(ended(Outcome::PassedNotForSegue))
    }

    /// `priority_tags_remove()`.
    fn remove_priority_tags(&mut self) -> Found<()> {
        let mut at = 12;
        let mut count = 0;
        let passed = || ended(Outcome::PassedNotForSegue);
        for _ in 0..=TAGS_MAX {
            if at + 2 > self.frame.len() {
                return Err(passed());
            }
            if !number::TYPE_TAG.contains(&half(&self.frame, at)) {
                break;
            }
            if at + 4 > self.frame.len() || half(&self.frame, at + 2) & 0x0fff != 0 {
                return Err(passed());
            }
            at += 4;
            count += 1;
        }
        if count > TAGS_MAX {
            return Err(ended(Outcome::DropRecirculation));
        }
        if count == 0 || half(&self.frame, at) != number::TYPE_IPV6 {
            return Err(passed());
        }
        self.frame.drain(12..at);
        Ok(())
    }

    /// `core_trim()`: what lies behind a packet for this domain is off.
    fn core_trim(&mut self) -> Found<()> {
        if self.frame.len() < ETHERNET + IPV6 {
            return Err(ended(Outcome::DropTruncated));
        }
        if octet(&self.frame, ETHERNET) >> 4 != 6 {
            return Err(ended(Outcome::DropBadVersion));
        }
        let limit = ETHERNET + IPV6 + usize::from(half(&self.frame, ETHERNET + 4));
        if limit > self.frame.len() {
            return Err(ended(Outcome::DropBadLength));
        }
        let destination = ipv6(&self.frame, ETHERNET + 24);
        let to_sid = self.sid(destination).is_some();
        if limit == self.frame.len() || (!to_sid && !self.in_sid_block(destination)) {
            return Ok(());
        }
        let offset = ETHERNET + IPV6;
        if limit == offset && octet(&self.frame, ETHERNET + 6) == number::HOP_BY_HOP {
            // Perhaps a jumbogram.
            if !to_sid {
                return Err(ended(Outcome::PassedRoute));
            }
            let length = (usize::from(octet(&self.frame, offset + 1)) + 1) * 8;
            return Err(ended(option_refused(&self.frame, offset, length).unwrap_or(Outcome::DropBadLength)));
        }
        self.frame.truncate(limit);
        Ok(())
    }

    /// `core_ipv6()`.
    fn core_ipv6(&mut self) -> Found<Box<End>> {
        if self.frame.len() < ETHERNET + IPV6 {
            return Err(ended(Outcome::DropTruncated));
        }
        let destination = ipv6(&self.frame, ETHERNET + 24);
        if octet(&self.frame, ETHERNET) >> 4 != 6 {
            return Err(ended(Outcome::DropBadVersion));
        }
        let limit = ETHERNET + IPV6 + usize::from(half(&self.frame, ETHERNET + 4));
        let source = ipv6(&self.frame, ETHERNET + 8);
        let Some(sid) = self.sid(destination) else {
            let takes_ipv6 = self.port.entry.config_flags & abi::SEGUE_CONFIG_UDP_IPV6 != 0;
            if takes_ipv6 && !self.again && octet(&self.frame, ETHERNET + 6) == number::UDP {
                return self.udp_in();
            }
            return self.relay_or_transit(limit);
        };
        if !forwardable(source) || source == destination {
            let reason = if link_local(source) { "a link-local source is not forwarded" } else { "" };
            return Err(because(Outcome::DropBadSource, reason));
        }
        let config = self.config();
        let checks = self.port.entry.config_flags & abi::SEGUE_CONFIG_CHECK_SOURCE != 0;
        if checks && !self.again && !crate::within(&config.source_prefixes, config.source_prefixes_count, source) {
            return Err(ended(Outcome::DropSourceOutsideDomain));
        }
        self.endpoint(sid, limit)
    }

    fn relay_or_transit(&mut self, limit: usize) -> Found<Box<End>> {
        let destination = ipv6(&self.frame, ETHERNET + 24);
        let about_own = octet(&self.frame, ETHERNET + 6) == number::ICMPV6
            && destination.octets() == self.config().address
            && self.frame.len() >= ETHERNET + IPV6 + 8 + IPV6
            && matches!(octet(&self.frame, ETHERNET + IPV6), 1..=3);
        if about_own {
            self.stage()?;
            self.assume("an ICMPv6 error about a packet that this node wrapped is sent on to the inner source");
            return Ok(ended(Outcome::IcmpRelayed));
        }
        self.transit(limit)
    }

    /// `transit()`.
    fn transit(&mut self, limit: usize) -> Found<Box<End>> {
        let (source, destination) = (ipv6(&self.frame, ETHERNET + 8), ipv6(&self.frame, ETHERNET + 24));
        if !self.in_sid_block(destination) {
            return Err(because(Outcome::PassedNotForSegue, "it is to no SID: it is the kernel's"));
        }
        if !forwardable(source) {
            return Err(ended(Outcome::DropBadSource));
        }
        let own = self.view.state.locator.is_some_and(|locator| locator.contains(&destination));
        let detail = if own { "no SID of this node, though it lies in its locator" } else { "a SID of another node" };
        self.note("sid", destination.to_string(), detail, &[]);
        if octet(&self.frame, ETHERNET + 7) <= 1 {
            return Err(because(
                Outcome::PassedRoute,
                "its hop limit is at its end, which the kernel tells the source",
            ));
        }
        let flow = outer_flow(&self.frame, ETHERNET);
        let adjacency = self.adjacency(destination.into(), Wanted { inside: true, flow, ..Wanted::default() });
        if !adjacency.fits(limit - ETHERNET) {
            return Err(match adjacency.kind {
                Kind::Outside => ended(Outcome::DropSrLeaves),
                Kind::Link => {
                    because(Outcome::PassedRoute, format!("{} octets where {} fit", limit - ETHERNET, adjacency.fits))
                }
                _ => ended(Outcome::PassedRoute),
            });
        }
        lower_hops(&mut self.frame, ETHERNET, false);
        self.leave(&adjacency, number::TYPE_IPV6)
    }
}
