//! Firewalls, on a port or at a SID. Twin of `bpf/lib/firewall/filter.h`; the rules are asked by the classifier's own interpreter.

use std::cell::RefCell;

use segue_abi as abi;
use segue_abi::Outcome;
use segue_classifier::explain::explain;
use segue_classifier::field::Depth;
use segue_classifier::frame::{Arrival, Fault, read};
use segue_classifier::interpreter::End as Verdict;
use segue_classifier::program::{Extension, Seg6};
use segue_classifier::{Field, Key};
use segue_dataplane::{CompiledFirewall, CompiledSid, FibQuestion, FibVerdict};
use segue_firewall::sets::SetChains;
use segue_iptables::Family;
use segue_model::firewall::FirewallMode;

use crate::endpoint::Outer;
use crate::octets::{ETHERNET, half, ipv6, number};
use crate::wrap::Advance;
use crate::{End, Found, Packet, because, ended};

impl<'a> Packet<'a, '_> {
    pub(crate) fn firewall(&self, index: u32) -> Option<&'a CompiledFirewall> {
        self.view.compiled.firewalls.iter().find(|firewall| firewall.index == index)
    }

    /// `firewall_port()`: all that comes in by the port meets its firewall first.
    pub(crate) fn firewall_port(&mut self) -> Found<()> {
        self.stage()?;
        let Some(firewall) = self.firewall(self.port.entry.firewall) else { return Err(ended(Outcome::DropBehaviour)) };
        if self.frame.len() < ETHERNET {
            return Err(ended(Outcome::DropTruncated));
        }
        let is_l2 = u32::from(self.port.entry.flags) & abi::SEGUE_PORT_L2 != 0;
        let off = firewall.entry.flags & abi::SEGUE_FIREWALL_OFF != 0;
        let foreign = !is_l2 && self.is_foreign() && !self.is_to_group();
        let mut tags = Vec::new();
        if !matches!(half(&self.frame, 12), number::TYPE_IPV4 | number::TYPE_IPV6) {
            if !is_l2 {
                if self.remove_priority_tag() {
                    return self.firewall_port();
                }
                return self.stage();
            }
            if !off {
                while number::TYPE_TAG.contains(&half(&self.frame, 12)) && self.frame.len() >= ETHERNET + 4 {
                    tags.extend(self.frame.drain(12..16));
                }
            }
            if tags.is_empty() || !matches!(half(&self.frame, 12), number::TYPE_IPV4 | number::TYPE_IPV6) {
                self.frame.splice(12..12, tags);
                return self.stage();
            }
            self.assume("a firewall on a layer-2 port reads as many VLAN tags as there are");
        }
        if off {
            self.note("firewall", firewall.name.clone(), "switched off: every packet passes", &[]);
        } else {
            if foreign {
                return Err(ended(Outcome::DropOtherHost));
            }
            match self.judge(firewall, false, &[])? {
                Verdict::Accept | Verdict::Seg6(_) | Verdict::Mpls(_) => {}
                Verdict::Reject(_) if tags.is_empty() => return Err(ended(Outcome::DropFirewallRejected)),
                _ => return Err(ended(Outcome::DropFirewall)),
            }
        }
        self.frame.splice(12..12, tags);
        self.stage()
    }

    /// `firewall_segment()`: at a SID whose function is the node's own firewall.
    pub(crate) fn firewall_segment(
        &mut self,
        sid: &'a CompiledSid,
        outer: &Outer,
        advance: Advance,
    ) -> Found<Box<End>> {
        let Some(firewall) = self.firewall(sid.entry.firewall) else { return Err(ended(Outcome::DropBehaviour)) };
        let mut action = Seg6::GoNext;
        if firewall.entry.flags & abi::SEGUE_FIREWALL_OFF != 0 {
            self.note("firewall", firewall.name.clone(), "switched off: every packet passes", &[]);
        } else {
            match self.judge(firewall, true, &[])? {
                Verdict::Accept | Verdict::Mpls(_) => {}
                Verdict::Seg6(asked) => action = asked,
                Verdict::Reject(_) => return Err(ended(Outcome::DropFirewallRejected)),
                _ => return Err(ended(Outcome::DropFirewall)),
            }
        }
        if action == Seg6::EvalArgs {
            let address = ipv6(&self.frame, ETHERNET + 24);
            let argument = argument(sid, firewall.entry.argument_length, address.to_bits());
            action = match argument {
                // enum segue_classifier_seg6
                0 => Seg6::GoNext,
                1 => Seg6::SkipNext,
                2 => Seg6::GoLast,
                _ => return Err(because(Outcome::DropFirewall, "the SID's argument is no action")),
            };
        }
        let left = match action {
            Seg6::GoLast => 0,
            Seg6::SkipNext if advance.left == 0 => return Err(ended(Outcome::DropSegmentsLeft)),
            Seg6::SkipNext => advance.left - 1,
            _ => advance.left,
        };
        let advance = self.advance_to(advance.header, advance.previous, left)?;
        self.end_forward(sid, outer.limit, &advance)
    }

    /// `firewall_filter()`: what the rules say. `labels`: the stack that the packet came with, from the firewall's label on.
    pub(crate) fn judge(&mut self, firewall: &CompiledFirewall, at_sid: bool, labels: &[u32]) -> Found<Verdict> {
        let configured = self.view.state.firewalls.iter().find(|known| known.name == firewall.name);
        let Some(configured) = configured else { return Err(ended(Outcome::DropBehaviour)) };
        let config = self.config();
        let blocks = config.sid_blocks.iter().take(config.sid_blocks_count as usize).map(|block| {
            let word = |words: [u64; 2]| u128::from(words[0].swap_bytes()) << 64 | u128::from(words[1].swap_bytes());
            (word(block.address), word(block.mask).leading_ones() as u8)
        });
        let sids = self.sids().map(|sid| (sid.prefix.network().to_bits(), sid.prefix.prefix_len()));
        let segments: Vec<(u128, u8)> = blocks.chain(sids).collect();
        let arrival = Arrival { ingress: self.port.entry.ifindex, sid: at_sid, segments: &segments, labels };
        let mut key = match read(&self.frame, arrival) {
            Ok(key) => key,
            Err(Fault::NotIp) => return Ok(Verdict::Accept),
            Err(fault) => {
                let outcome = fault.outcome().and_then(Outcome::from_name).unwrap_or(Outcome::DropTruncated);
                return Err(because(outcome, fault.to_string()));
            }
        };
        let mut rules = match segue_dataplane::compile::firewall_rules(configured, self.view.interfaces) {
            Ok(rules) => rules,
            Err(problem) => {
                self.assume(format!("the rules of firewall {} cannot be read here: {problem}", firewall.name));
                return Ok(Verdict::Accept);
            }
        };
        if key.get(Field::LabelEntries).is_some_and(|entries| entries > Depth::MAX.get().into())
            && rules.program().looks_at_any_label()
        {
            return Err(because(
                Outcome::DropLabelDepth,
                "rules look at every label, and there are more than they see",
            ));
        }
        let sets = SetChains::append(&mut rules.lowered.program);
        let steered = configured.mode == FirewallMode::Advanced && key.get(Field::OuterFamily) == Some(6);
        let family = if key.get(Field::Family) == Some(4) && !steered { Family::Ipv4 } else { Family::Ipv6 };
        let name = firewall.name.clone();
        let Some(base) = rules.base(family) else {
            self.note("firewall", name, format!("no rules for {family}: it passes"), &[]);
            return Ok(Verdict::Accept);
        };
        if rules.program().looks_at_connections() {
            let Some(datagram) = key.datagram() else {
                self.assume("a later fragment passes only behind its first one");
                return Ok(Verdict::Accept);
            };
            key = datagram;
            key.set(Field::ConnectionState, 8);
            key.set(Field::ConnectionDirection, 0);
            self.assume("for the firewall, the packet is the first of its connection, there is room for it, and its checksums are right");
        }
        self.egress(&mut key, at_sid);
        let limits = RefCell::new(Vec::new());
        let program = rules.program();
        let way = explain(program, base, &key, |_, _, extension, key| match extension {
            Extension::Set { set, sides, negated } => sets.contain(program, *set, sides, key) != *negated,
            Extension::Recent(recent) => {
                limits.borrow_mut().push(format!("no list of `recent` has its address ({})", recent.name));
                (recent.action == segue_classifier::program::RecentAction::Set) != recent.negated
            }
            Extension::Limit(_) => {
                limits.borrow_mut().push("limits have a token for it".to_owned());
                true
            }
            Extension::HashLimit(limit) => {
                limits.borrow_mut().push("limits have a token for it".to_owned());
                !limit.above
            }
        });
        for limit in limits.into_inner() {
            self.assume(limit);
        }
        let file = rules.file(family).unwrap_or_default();
        for (chain, rule) in &way.walk.hits {
            let hit = &program.chains[*chain].rules[*rule];
            let line = hit.line.map(|line| format!("{file}:{line}: ")).unwrap_or_default();
            self.note("firewall", name.clone(), format!("{line}{}", hit.text), &[]);
        }
        let says = match way.walk.end {
            Verdict::Accept => "passes".to_owned(),
            Verdict::Drop => "drops".to_owned(),
            Verdict::Reject(kind) => format!("rejects ({kind:?})"),
            Verdict::Seg6(action) => format!("SEG6 {action:?}"),
            Verdict::Mpls(action) => format!("MPLS {action:?}"),
            other => format!("{other:?}"),
        };
        self.note("firewall", name, says, &[]);
        Ok(way.walk.end)
    }

    /// `firewall_egress()`: for `-o`, the interface that the kernel's route leads to.
    fn egress(&mut self, key: &mut Key, at_sid: bool) {
        use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
        let destination: IpAddr = match (key.get(Field::OuterFamily), key.get(Field::DestinationIpv4)) {
            (Some(6), _) => {
                let field = if at_sid { Field::NextSid } else { Field::OuterDestination };
                Ipv6Addr::from_bits(key.get(field).unwrap_or_default()).into()
            }
            (_, Some(address)) => Ipv4Addr::from_bits(address as u32).into(),
            _ => return,
        };
        let source = key.get(Field::OuterSource).map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits);
        let question = FibQuestion {
            source,
            destination,
            bucket: 0,
            ifindex: self.port.entry.ifindex,
            is_output: false,
            table: 0,
        };
        let answer = self.kernel.fib(&question);
        if matches!(answer.verdict, FibVerdict::Link | FibVerdict::NoNeighbour) {
            key.set(Field::Egress, answer.ifindex.into());
        }
    }
}

/// `sid_argument()`.
fn argument(sid: &CompiledSid, length: u8, address: u128) -> u32 {
    let end = u32::from(sid.prefix.prefix_len()) + u32::from(length);
    if length == 0 || length > 32 || end > 128 {
        return 0;
    }
    let bits = address.checked_shr(128 - end).unwrap_or_default() as u32;
    bits & (u32::MAX >> (32 - u32::from(length)))
}
