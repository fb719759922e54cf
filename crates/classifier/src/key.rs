//! What is known of one packet: `struct segue_classifier_key` of `bpf/include/abi/classifier.h`, which says what each word holds.

use crate::field::{Depth, Entry, Field};

/// 64-bit words of a key.
pub const KEY_WORDS: usize = 32;

/// Value of a 32-bit word whose field the packet lacks. No field that can be absent reaches it.
pub const ABSENT: u32 = u32::MAX;

/// Bits of the word [`word::PRESENT`].
pub mod present {
    /// There is an SRH.
    pub const SRH: u32 = 1;
    /// The SRH holds a segment before the active one.
    pub const PREVIOUS_SID: u32 = 2;
    /// The SRH holds a segment behind the active one.
    pub const NEXT_SID: u32 = 4;
    /// The packet came by a local SID.
    pub const ACTIVE_SID: u32 = 8;
    /// The packet came by a label of this node.
    pub const LABELS: u32 = 16;
    /// There is an entry right behind that label; shifted left, the next ones.
    pub const LABEL: u32 = 1 << 8;
    /// Where the number of entries behind that label begins: the highest octet.
    pub const LABELS_SHIFT: u32 = 24;
}

/// Positions in the key, in 32-bit words: word `w` is the lower half of 64-bit word `w / 2` if `w` is even, else the upper one.
pub mod word {
    #![allow(missing_docs)]
    pub const SOURCE: usize = 0;
    pub const DESTINATION: usize = 4;
    pub const SOURCE_PORT: usize = 8;
    pub const DESTINATION_PORT: usize = 9;
    pub const PROTOCOL: usize = 10;
    pub const FAMILY: usize = 11;
    pub const CONNECTION_STATE: usize = 12;
    pub const INGRESS: usize = 13;
    pub const TCP_FLAGS: usize = 14;
    pub const ICMP: usize = 15;
    pub const EGRESS: usize = 16;
    pub const MARK: usize = 17;
    pub const TRAFFIC_CLASS: usize = 18;
    pub const HOP_LIMIT: usize = 19;
    pub const FLOW_LABEL: usize = 20;
    pub const LENGTH: usize = 21;
    pub const FRAGMENT_OFFSET: usize = 22;
    pub const FRAGMENT_FLAGS: usize = 23;
    pub const FRAGMENT_IDENTIFICATION: usize = 24;
    pub const PRESENT: usize = 25;
    pub const SOURCE_MAC: usize = 26;
    pub const TCP_OPTIONS: usize = 28;
    pub const SRH_NEXT_HEADER: usize = 30;
    pub const SRH_LENGTH: usize = 31;
    pub const SRH_SEGMENTS_LEFT: usize = 32;
    pub const SRH_LAST_ENTRY: usize = 33;
    pub const SRH_TAG: usize = 34;
    pub const OUTER_FAMILY: usize = 35;
    pub const ACTIVE_SID: usize = 36;
    pub const PREVIOUS_SID: usize = 40;
    pub const NEXT_SID: usize = 44;
    pub const LAST_SID: usize = 48;
    pub const OUTER_SOURCE: usize = 52;
    pub const OUTER_DESTINATION: usize = 56;
    pub const CONNECTION_DIRECTION: usize = 60;
    pub const ROUTING: usize = 61;
    /// The entries behind the label that a packet came by, where others have SIDs.
    pub const LABELS: usize = ACTIVE_SID;
    pub const LABEL_OWN: usize = 62;
    pub const LABEL_LAST: usize = 63;
}

/// Bits of the word [`word::FRAGMENT_FLAGS`].
const FRAGMENT_MORE: u32 = 0;
const FRAGMENT_DONT: u32 = 1;
const FRAGMENT_RESERVED: u32 = 2;

/// Where a field lies in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Its first 32-bit word. Even for fields of more than 32 bits; those of 128 bits have the upper 64 bits first.
    pub word: usize,
    /// Bit of the word that holds the field's lowest bit.
    pub shift: u32,
    /// When the field is there.
    pub presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Always,
    /// While the word (the upper word of a field of more than 32 bits) is not above this.
    UpTo(u32),
    /// While another word has these bits at this value.
    Where {
        word: usize,
        mask: u32,
        value: u32,
    },
    /// While another word is not above this.
    WhereUpTo {
        word: usize,
        last: u32,
    },
}

impl Field {
    /// What no other field has: where it lies in the key. The first octet is less than 64.
    pub const fn identity(self) -> [u8; 4] {
        let Layout { word, shift, .. } = self.layout();
        [word as u8, shift as u8, self.width() as u8, self.is_any() as u8]
    }

    pub(crate) const fn layout(self) -> Layout {
        use Presence::*;
        const fn at(word: usize, shift: u32, presence: Presence) -> Layout {
            Layout { word, shift, presence }
        }
        const fn family(value: u32) -> Presence {
            Where { word: word::FAMILY, mask: u32::MAX, value }
        }
        const fn flag(bit: u32) -> Presence {
            Where { word: word::PRESENT, mask: bit, value: bit }
        }
        const OUTER: Presence = Where { word: word::OUTER_FAMILY, mask: u32::MAX, value: 6 };
        const fn of_entry(entry: Entry, shift: u32) -> Layout {
            match entry {
                Entry::Own => at(word::LABEL_OWN, shift, flag(present::LABELS)),
                Entry::At(depth) => {
                    let index = depth.get() - 1;
                    at(word::LABELS + index as usize, shift, flag(present::LABEL << index))
                }
                Entry::Last => at(word::LABEL_LAST, shift, flag(present::LABEL)),
                // The first of them stands for all where one has to: [`Field::is_any`].
                Entry::Any => at(word::LABELS, shift, flag(present::LABEL)),
            }
        }
        const FRAGMENT: Presence = WhereUpTo { word: word::FRAGMENT_OFFSET, last: 0x1fff };
        match self {
            Self::Family => at(word::FAMILY, 0, Always),
            Self::SourceIpv4 => at(word::SOURCE, 0, family(4)),
            Self::DestinationIpv4 => at(word::DESTINATION, 0, family(4)),
            Self::SourceIpv6 => at(word::SOURCE, 0, family(6)),
            Self::DestinationIpv6 => at(word::DESTINATION, 0, family(6)),
            Self::Protocol => at(word::PROTOCOL, 0, UpTo(0xff)),
            Self::SourcePort => at(word::SOURCE_PORT, 0, UpTo(0xffff)),
            Self::DestinationPort => at(word::DESTINATION_PORT, 0, UpTo(0xffff)),
            Self::TcpFlags => at(word::TCP_FLAGS, 0, UpTo(0xff)),
            Self::TcpOptions => at(word::TCP_OPTIONS, 0, WhereUpTo { word: word::TCP_FLAGS, last: 0xff }),
            Self::IcmpType => at(word::ICMP, 8, UpTo(0xffff)),
            Self::IcmpCode => at(word::ICMP, 0, UpTo(0xffff)),
            Self::FragmentOffset => at(word::FRAGMENT_OFFSET, 0, UpTo(0x1fff)),
            Self::FragmentMore => at(word::FRAGMENT_FLAGS, FRAGMENT_MORE, FRAGMENT),
            Self::FragmentDont => at(word::FRAGMENT_FLAGS, FRAGMENT_DONT, family(4)),
            Self::FragmentReserved => at(word::FRAGMENT_FLAGS, FRAGMENT_RESERVED, FRAGMENT),
            Self::FragmentIdentification => at(word::FRAGMENT_IDENTIFICATION, 0, FRAGMENT),
            Self::TrafficClass => at(word::TRAFFIC_CLASS, 0, UpTo(0xff)),
            Self::Dscp => at(word::TRAFFIC_CLASS, 2, UpTo(0xff)),
            Self::Ecn => at(word::TRAFFIC_CLASS, 0, UpTo(0xff)),
            Self::HopLimit => at(word::HOP_LIMIT, 0, UpTo(0xff)),
            Self::FlowLabel => at(word::FLOW_LABEL, 0, UpTo(0xf_ffff)),
            Self::Length => at(word::LENGTH, 0, UpTo(ABSENT - 1)),
            Self::Ingress => at(word::INGRESS, 0, Always),
            Self::Egress => at(word::EGRESS, 0, Always),
            Self::Mark => at(word::MARK, 0, Always),
            Self::ConnectionState => at(word::CONNECTION_STATE, 0, UpTo(0xff)),
            Self::ConnectionDirection => at(word::CONNECTION_DIRECTION, 0, UpTo(1)),
            Self::SourceMac => at(word::SOURCE_MAC, 0, UpTo(0xffff)),
            Self::SrhPresent => at(word::PRESENT, 0, Always),
            Self::SrhNextHeader => at(word::SRH_NEXT_HEADER, 0, UpTo(0xff)),
            Self::SrhLength => at(word::SRH_LENGTH, 0, UpTo(0xff)),
            Self::SrhSegmentsLeft => at(word::SRH_SEGMENTS_LEFT, 0, UpTo(0xff)),
            Self::SrhLastEntry => at(word::SRH_LAST_ENTRY, 0, UpTo(0xff)),
            Self::SrhTag => at(word::SRH_TAG, 0, UpTo(0xffff)),
            Self::PreviousSid => at(word::PREVIOUS_SID, 0, flag(present::PREVIOUS_SID)),
            Self::NextSid => at(word::NEXT_SID, 0, flag(present::NEXT_SID)),
            Self::LastSid => at(word::LAST_SID, 0, flag(present::SRH)),
            Self::ActiveSid => at(word::ACTIVE_SID, 0, flag(present::ACTIVE_SID)),
            Self::RoutingType => at(word::ROUTING, 16, UpTo(0xff_ffff)),
            Self::RoutingSegmentsLeft => at(word::ROUTING, 8, UpTo(0xff_ffff)),
            Self::RoutingLength => at(word::ROUTING, 0, UpTo(0xff_ffff)),
            Self::OuterFamily => at(word::OUTER_FAMILY, 0, Always),
            Self::OuterSource => at(word::OUTER_SOURCE, 0, OUTER),
            Self::OuterDestination => at(word::OUTER_DESTINATION, 0, OUTER),
            Self::LabelEntries => at(word::PRESENT, present::LABELS_SHIFT, flag(present::LABELS)),
            Self::Label(entry) => of_entry(entry, 12),
            Self::LabelClass(entry) => of_entry(entry, 9),
            Self::LabelBottom(entry) => of_entry(entry, 8),
            Self::LabelTtl(entry) => of_entry(entry, 0),
        }
    }
}

/// The fields of one packet, in the layout of `struct segue_classifier_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Key {
    /// The words; see the header for each.
    pub words: [u64; KEY_WORDS],
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl Key {
    /// The key of a packet without any field that can be absent.
    pub fn new() -> Self {
        let mut key = Self { words: [0; KEY_WORDS] };
        for word in [
            word::SOURCE_PORT,
            word::DESTINATION_PORT,
            word::PROTOCOL,
            word::CONNECTION_STATE,
            word::TCP_FLAGS,
            word::ICMP,
            word::TRAFFIC_CLASS,
            word::HOP_LIMIT,
            word::FLOW_LABEL,
            word::LENGTH,
            word::FRAGMENT_OFFSET,
            word::SOURCE_MAC + 1,
            word::SRH_NEXT_HEADER,
            word::SRH_LENGTH,
            word::SRH_SEGMENTS_LEFT,
            word::SRH_LAST_ENTRY,
            word::SRH_TAG,
            word::CONNECTION_DIRECTION,
            word::ROUTING,
        ] {
            key.set_word(word, ABSENT);
        }
        key
    }

    /// A 32-bit word. Words beyond the key are 0.
    pub fn word(&self, word: usize) -> u32 {
        self.words.get(word / 2).map_or(0, |pair| (pair >> (32 * (word % 2))) as u32)
    }

    /// Sets a 32-bit word; nothing happens beyond the key.
    pub fn set_word(&mut self, word: usize, value: u32) {
        if let Some(pair) = self.words.get_mut(word / 2) {
            let shift = 32 * (word % 2);
            *pair = *pair & !(0xffff_ffff << shift) | u64::from(value) << shift;
        }
    }

    /// What rules see of the packet where some rule looks at connections: not a fragment but its datagram, whose first fragment tells all
    /// that is asked (`bpf/lib/firewall/fragment.h`). None: a later fragment, which no rule sees.
    pub fn datagram(&self) -> Option<Self> {
        let mut key = *self;
        match self.get(Field::FragmentOffset) {
            None => {}
            Some(0) => {
                key.set(Field::FragmentMore, 0);
                key.set(Field::FragmentReserved, 0);
                if self.get(Field::Family) == Some(6) {
                    key.set_word(word::FRAGMENT_OFFSET, ABSENT);
                }
            }
            Some(_) => return None,
        }
        Some(key)
    }

    /// The packet came with these label stack entries, the first of which led it here: instead of any SRH. Deeper ones than are
    /// looked at count. Nothing happens without any.
    pub fn set_labels(&mut self, stack: &[u32]) {
        let Some((own, behind)) = stack.split_first() else { return };
        for word in
            [word::SRH_NEXT_HEADER, word::SRH_LENGTH, word::SRH_SEGMENTS_LEFT, word::SRH_LAST_ENTRY, word::SRH_TAG]
        {
            self.set_word(word, ABSENT);
        }
        let mut flags = present::LABELS | (behind.len() as u32) << present::LABELS_SHIFT;
        for (depth, entry) in Depth::all().zip(behind) {
            let index = depth.get() - 1;
            flags |= present::LABEL << index;
            self.set_word(word::LABELS + usize::from(index), *entry);
        }
        self.set_word(word::PRESENT, flags);
        self.set_word(word::LABEL_OWN, *own);
        self.set_word(word::LABEL_LAST, behind.last().copied().unwrap_or_default());
    }

    /// A field's value; None where the packet lacks it.
    pub fn get(&self, field: Field) -> Option<u128> {
        let Layout { word, shift, presence } = field.layout();
        let there = match presence {
            Presence::Always => true,
            Presence::UpTo(last) => self.word(if field.width() > 32 { word + 1 } else { word }) <= last,
            Presence::Where { word, mask, value } => self.word(word) & mask == value,
            Presence::WhereUpTo { word, last } => self.word(word) <= last,
        };
        there.then(|| match field.width() {
            128 => u128::from(self.words[word / 2]) << 64 | u128::from(self.words[word / 2 + 1]),
            33..=64 => u128::from(self.words[word / 2]),
            _ => u128::from(self.word(word) >> shift) & field.max(),
        })
    }

    /// Sets a field, and what says that it is there: the family for an address, the SRH for a SID in it. Bits beyond the field's width
    /// are dropped. A packet that changes its family loses its addresses. Fields that share a word (ICMP type and code, DSCP and ECN) appear together, the other one as 0.
    pub fn set(&mut self, field: Field, value: u128) {
        let value = value & field.max();
        let Layout { word, shift, presence } = field.layout();
        let family = match presence {
            Presence::Where { word: word::FAMILY, value, .. } => Some(value),
            _ if field == Field::Family => Some(value as u32),
            _ => None,
        };
        if family.is_some_and(|family| family != self.word(word::FAMILY)) {
            self.words[..4].fill(0); // addresses of the other family
        }
        match presence {
            Presence::Where { word, mask, value } => {
                let before = self.word(word);
                self.set_word(word, before & !mask | value);
            }
            Presence::WhereUpTo { word, .. } if self.get(field).is_none() => self.set_word(word, 0),
            _ => {}
        }
        match field.width() {
            128 => {
                self.words[word / 2] = (value >> 64) as u64;
                self.words[word / 2 + 1] = value as u64;
            }
            33..=64 => self.words[word / 2] = value as u64,
            _ => {
                let before = if self.get(field).is_some() { self.word(word) } else { 0 };
                let mask = (field.max() as u32) << shift;
                self.set_word(word, before & !mask | (value as u32) << shift);
            }
        }
        if matches!(
            field,
            Field::SrhNextHeader
                | Field::SrhLength
                | Field::SrhSegmentsLeft
                | Field::SrhLastEntry
                | Field::SrhTag
                | Field::PreviousSid
                | Field::NextSid
        ) {
            let before = self.word(word::PRESENT);
            self.set_word(word::PRESENT, before | present::SRH);
        }
    }

    /// The same with one more field: for tests and tools.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Self {
        self.set(field, value);
        self
    }
}
