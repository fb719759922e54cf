//! A packet with labels (RFC 3031, RFC 8660). Twin of `bpf/lib/labels/port.h`, `walk.h` and `leave.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::CompiledLabel;
use segue_model::node::LabelBehaviour;
use segue_model::service_label::label_key;

use crate::octets::{ETHERNET, number, put};
use crate::stack::{
    self, BOTTOM, CLASS_AND_BOTTOM, ENTRY, NULL_IPV4, NULL_IPV6, SPECIAL, entry, is_ipv6_inside, label_of,
};
use crate::way::{Adjacency, Sending, Wanted};
use crate::{End, Found, Packet, ended};

/// Labels of the node itself in a row.
const OWN_MAX: usize = 8;

/// What stands against sending labels, of which the kernel knows nothing: what no link takes goes nowhere.
pub(crate) const BY_LINK: Sending = Sending { next_hop: false, table: 1, to_sid: false };

/// `struct label_found`.
#[derive(Debug, Clone)]
pub(crate) struct LabelFound<'a> {
    /// Octets of the labels in front of it, which come off.
    pub off: usize,
    /// Its entry in host byte order.
    pub word: u32,
    /// The TTL that it came with, or in uniform mode those in front of it.
    pub ttl: u8,
    /// What the node does with it.
    pub label: &'a CompiledLabel,
    /// The node's own ones in front of it.
    pub own: Vec<u32>,
}

impl LabelFound<'_> {
    pub fn is_bottom(&self) -> bool {
        self.word & BOTTOM != 0
    }

    pub fn behaviour(&self) -> u32 {
        u32::from(self.label.entry.behaviour)
    }

    /// Offset of its entry.
    pub fn at(&self) -> usize {
        ETHERNET + self.off
    }
}

impl<'a> Packet<'a, '_> {
    /// RFC 3443's uniform model.
    pub(crate) fn ttl_is_uniform(&self) -> bool {
        self.port.entry.config_flags & abi::SEGUE_CONFIG_TTL_UNIFORM != 0
    }

    /// `label_find()`, and with a path's number above the label's bits `label_path_find()`.
    pub(crate) fn label(&self, key: u32) -> Option<&'a CompiledLabel> {
        let labels = &self.view.compiled.labels;
        labels.binary_search_by_key(&(key, 0), CompiledLabel::key).ok().map(|at| &labels[at])
    }

    /// `labels_port()`: the stage of labels.
    pub(crate) fn labels(&mut self) -> Found<Box<End>> {
        if self.is_to_group() {
            return Err(ended(Outcome::DropGroupFrame));
        }
        if self.is_foreign() {
            return Err(ended(Outcome::PassedNotForSegue));
        }
        if self.has_label_ecn() {
            self.stage()?;
        }
        let found = self.labels_walk()?;
        for own in &found.own {
            let detail = match *own {
                stack::ENTROPY_INDICATOR => "it comes off, with the entropy label",
                _ => "this node's own: it comes off",
            };
            self.note("label", own.to_string(), detail, &[]);
        }
        self.note_label(&found);
        self.label_obey(found)
    }

    /// `labels_walk()`: from the top of the stack to the first label that leads on.
    pub(crate) fn labels_walk(&self) -> Found<LabelFound<'a>> {
        let (mut ttl, mut off, mut own, mut last) = (0, 0, Vec::new(), None);
        for place in 0..OWN_MAX {
            let word = entry(&self.frame, ETHERNET + off).ok_or_else(|| ended(Outcome::DropLabelBottom))?;
            let number = label_of(word);
            if place == 0 || !self.ttl_is_uniform() {
                ttl = word as u8;
            }
            if let Some(is_last) = stack::entropy_at(&self.frame, ETHERNET + off) {
                off += ENTRY;
                own.push(number);
                if is_last {
                    let label = last.or_else(|| self.entropy_last(ETHERNET + off));
                    let label = label.ok_or_else(|| ended(Outcome::DropLabelBottom))?;
                    return match ttl {
                        0 => Err(ended(Outcome::DropLabelTtl)),
                        _ => Ok(LabelFound { off, word: word | BOTTOM, ttl, label, own }),
                    };
                }
                off += ENTRY;
                continue;
            }
            let Some(label) = self.label(number) else {
                let outcome = if number < SPECIAL { Outcome::DropLabelReserved } else { Outcome::DropLabelUnknown };
                return Err(crate::because(outcome, format!("label {number}")));
            };
            if ttl == 0 {
                return Err(ended(Outcome::DropLabelTtl));
            }
            if u32::from(label.entry.behaviour) == abi::SEGUE_LABEL_NODE && word & BOTTOM == 0 {
                own.push(number);
                last = Some(label);
                off += ENTRY;
                continue;
            }
            return Ok(LabelFound { off, word, ttl, label, own });
        }
        Err(ended(Outcome::DropLabelDepth))
    }

    /// `entropy_last()`: explicit null of the family that is behind the entropy label at the offset.
    fn entropy_last(&self, at: usize) -> Option<&'a CompiledLabel> {
        let first = self.frame.get(at + ENTRY)?;
        self.label(if first >> 4 == 6 { NULL_IPV6 } else { NULL_IPV4 })
    }

    /// `entropy_off()`: an entropy label right behind a label that ends here comes off with that one.
    pub(crate) fn entropy_off(&self, found: &mut LabelFound<'a>) {
        if found.is_bottom() {
            return;
        }
        if let Some(is_last) = stack::entropy_at(&self.frame, found.at() + ENTRY) {
            found.off += 2 * ENTRY;
            found.word |= if is_last { BOTTOM } else { 0 };
        }
    }

    fn note_label(&mut self, found: &LabelFound<'_>) {
        let number = found.label.label;
        let configured = self.view.state.labels.iter().find(|label| label.label == number);
        let mut detail = match configured {
            Some(label) => label.behaviour.name().to_owned(),
            None => "explicit null".to_owned(),
        };
        if let Some(label) = configured {
            if label.behaviour == LabelBehaviour::Swap && label.paths.is_empty() {
                detail.push_str(&format!(", out {}", found.label.entry.out_label));
            }
            if let Some(udp) = &label.udp {
                detail.push_str(&format!(", in UDP to {}", udp.destination));
            }
            if let Some(comment) = &label.comment {
                detail.push_str(&format!(", {comment}"));
            }
        }
        if self.view.down.contains(&label_key(number)) {
            detail.push_str("; its function is down");
        }
        self.note("label", number.to_string(), detail, &[found.label.entry.counter]);
    }

    /// `label_obey()`.
    fn label_obey(&mut self, mut found: LabelFound<'a>) -> Found<Box<End>> {
        let leads_on = matches!(found.behaviour(), abi::SEGUE_LABEL_SWAP | abi::SEGUE_LABEL_POP);
        if leads_on && found.label.entry.table != 0 {
            self.take_path(&mut found)?;
        }
        if matches!(
            found.behaviour(),
            abi::SEGUE_LABEL_TABLE | abi::SEGUE_LABEL_NEXT_HOP | abi::SEGUE_LABEL_STATIC | abi::SEGUE_LABEL_DYNAMIC
        ) {
            self.entropy_off(&mut found);
        }
        if self.has_label_ecn() {
            self.carry_mark(&mut found)?;
        }
        match found.behaviour() {
            abi::SEGUE_LABEL_SWAP | abi::SEGUE_LABEL_POP if found.ttl <= 1 => Err(ended(Outcome::DropLabelTtl)),
            abi::SEGUE_LABEL_SWAP => self.label_swap(&found),
            abi::SEGUE_LABEL_POP if found.is_bottom() => self.label_deliver(&found),
            abi::SEGUE_LABEL_POP => self.label_pop(&found),
            abi::SEGUE_LABEL_STATIC | abi::SEGUE_LABEL_DYNAMIC | abi::SEGUE_LABEL_FIREWALL => {
                self.label_function(&found)
            }
            abi::SEGUE_LABEL_NODE | abi::SEGUE_LABEL_TABLE | abi::SEGUE_LABEL_NEXT_HOP if found.is_bottom() => {
                self.label_deliver(&found)
            }
            abi::SEGUE_LABEL_NODE | abi::SEGUE_LABEL_TABLE | abi::SEGUE_LABEL_NEXT_HOP => {
                Err(ended(Outcome::DropLabelBottom))
            }
            abi::SEGUE_LABEL_BINDING => self.label_binding(&found),
            abi::SEGUE_LABEL_INSTANCES => self.label_instance(found),
            abi::SEGUE_LABEL_AWARE => self.label_to_aware(found),
            abi::SEGUE_LABEL_PSEUDOWIRE => self.label_to_wire(found),
            abi::SEGUE_LABEL_UDP => self.label_udp(&found, None),
            _ => Err(ended(Outcome::DropBehaviour)),
        }
    }

    /// `label_path()`.
    fn take_path(&self, found: &mut LabelFound<'a>) -> Found<()> {
        let paths = found.label.entry.table;
        let path = stack::path(&self.frame, &self.port.entry.mac, paths);
        let key = label_of(found.word) | path << abi::SEGUE_LABEL_PATH_SHIFT;
        found.label = self.label(key).ok_or_else(|| ended(Outcome::DropLabelUnknown))?;
        Ok(())
    }

    /// `label_out()`.
    fn label_out(&self, found: &LabelFound<'_>) -> u32 {
        let entry = &found.label.entry;
        if u32::from(entry.flags) & abi::SEGUE_SID_EXPLICIT_NULL == 0 {
            return entry.out_label;
        }
        if found.is_bottom() && is_ipv6_inside(&self.frame, found.at()) { NULL_IPV6 } else { NULL_IPV4 }
    }

    /// `label_swap()`.
    fn label_swap(&mut self, found: &LabelFound<'_>) -> Found<Box<End>> {
        let adjacency = self.label_adjacency(&found.label.entry, true);
        let out = self.label_out(found);
        self.obstacle(&adjacency, self.frame.len() - ETHERNET - found.off, BY_LINK)?;
        self.labels_off(found.off);
        let word = out << 12 | found.word & CLASS_AND_BOTTOM | u32::from(found.ttl - 1);
        stack::store(&mut self.frame, ETHERNET, word);
        Ok(self.labels_leave(&adjacency))
    }

    /// `label_pop()`.
    fn label_pop(&mut self, found: &LabelFound<'_>) -> Found<Box<End>> {
        let adjacency = self.label_adjacency(&found.label.entry, true);
        let off = found.off + ENTRY;
        self.obstacle(&adjacency, self.frame.len() - ETHERNET - off, BY_LINK)?;
        self.labels_off(off);
        self.hand_ttl_on(found.ttl - 1)?;
        Ok(self.labels_leave(&adjacency))
    }

    /// The TTL of a label that has come off goes on with the next one, in uniform mode. There must be one.
    pub(crate) fn hand_ttl_on(&mut self, ttl: u8) -> Found<()> {
        if self.frame.len() < ETHERNET + ENTRY {
            return Err(ended(Outcome::DropLabelBottom));
        }
        if self.ttl_is_uniform() {
            put(&mut self.frame, ETHERNET + ENTRY - 1, &[ttl]);
        }
        Ok(())
    }

    /// `label_adjacency()`: the way to a label's next hop.
    pub(crate) fn label_adjacency(&mut self, entry: &abi::Sid, inside: bool) -> Adjacency {
        let towards: IpAddr = match entry.next_hop_ipv4 {
            0 => Ipv6Addr::from(entry.next_hop).into(),
            address => Ipv4Addr::from(address.to_ne_bytes()).into(),
        };
        self.adjacency(towards, Wanted { oif: entry.oif, inside, ..Wanted::default() })
    }

    /// `labels_off()`: so many octets behind the Ethernet header.
    pub(crate) fn labels_off(&mut self, octets: usize) {
        let end = (ETHERNET + octets).min(self.frame.len());
        self.frame.drain(ETHERNET.min(end)..end);
    }

    /// `labels_leave()`: the frame is complete but for its Ethernet header.
    pub(crate) fn labels_leave(&mut self, adjacency: &Adjacency) -> Box<End> {
        self.leave_as(adjacency, number::TYPE_MPLS)
    }

    /// By an adjacency that is a link, whose family need not be that of what is sent.
    pub(crate) fn leave_as(&mut self, adjacency: &Adjacency, ethertype: u16) -> Box<End> {
        put(&mut self.frame, 0, &adjacency.ethernet);
        put(&mut self.frame, 12, &ethertype.to_be_bytes());
        self.towards(ended(Outcome::Forwarded), adjacency)
    }

    /// `labels_here()`: a packet whose labels are on goes where these lead, as one that comes in by a core port.
    pub(crate) fn labels_here(&mut self) -> Found<Box<End>> {
        let mac = self.port.entry.mac;
        put(&mut self.frame, 0, &mac);
        put(&mut self.frame, 12, &number::TYPE_MPLS.to_be_bytes());
        self.stage()?;
        self.labels()
    }
}
