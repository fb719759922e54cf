//! The fields of a packet that a rule can test, and where each lies in the key.

/// A field of the packet. Unless its name says "outer", it is the packet that the rules act on: the inner one of an encapsulated
/// packet, else the packet itself.
///
/// Values are numbers as one writes them (host byte order): an address is the number whose most significant octet is the first one
/// on the wire, so a prefix is a range.
///
/// A packet may lack a field: a fragment that is not the first has no ports, an IPv4 packet no flow label. **No test matches a field
/// that is absent, negated or not**; this is what iptables does for `-p tcp ! --dport 80` and a later fragment, and for every
/// option of `-m srh` and a packet without an SRH. Which fields are always present is said at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// 4 or 6; 0 for what is no IP packet. 8 bit, always present.
    Family,
    /// 32 bit; absent unless the packet is IPv4.
    SourceIpv4,
    /// 32 bit; absent unless the packet is IPv4.
    DestinationIpv4,
    /// 128 bit; absent unless the packet is IPv6.
    SourceIpv6,
    /// 128 bit; absent unless the packet is IPv6. With an SRH: the destination in the IPv6 header.
    DestinationIpv6,
    /// IPv4 Protocol, or the first IPv6 Next Header that is no extension header, 8 bit. Of a later fragment: what its Fragment header
    /// names (ip6tables does the same). Absent where the extension headers do not end well.
    Protocol,
    /// TCP, UDP, UDP-Lite, SCTP and DCCP, 16 bit; absent for others and in later fragments.
    SourcePort,
    /// As [`Field::SourcePort`].
    DestinationPort,
    /// Octet 13 of the TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128. Absent without a whole TCP header.
    TcpFlags,
    /// Bit k: an option of kind k (0 to 63) is there. 64 bit; absent as [`Field::TcpFlags`]. Test it with [`crate::Test::AnyBit`].
    TcpOptions,
    /// ICMP or ICMPv6 type, 8 bit (the protocol says which); absent for others and in later fragments.
    IcmpType,
    /// ICMP or ICMPv6 code, 8 bit, as [`Field::IcmpType`].
    IcmpCode,
    /// Fragment offset in units of 8 octets, 13 bit. IPv4: always present (`-f` is 1 to 8191). IPv6: absent without Fragment header.
    FragmentOffset,
    /// 1: more fragments follow. 1 bit, present as [`Field::FragmentOffset`].
    FragmentMore,
    /// 1: IPv4's Don't Fragment. 1 bit; absent in IPv6.
    FragmentDont,
    /// The reserved fields of an IPv6 Fragment header, or IPv4's reserved flag: 1 if any bit is set. 1 bit, present as the offset.
    FragmentReserved,
    /// Identification, 32 bit (IPv4: 16), present as [`Field::FragmentOffset`].
    FragmentIdentification,
    /// IPv4 TOS or IPv6 Traffic Class, 8 bit; present in every IP packet.
    TrafficClass,
    /// The upper 6 bits of [`Field::TrafficClass`].
    Dscp,
    /// The lower 2 bits of [`Field::TrafficClass`].
    Ecn,
    /// TTL or Hop Limit, 8 bit; present in every IP packet.
    HopLimit,
    /// 20 bit; absent unless IPv6.
    FlowLabel,
    /// Octets of the whole layer 3 packet, its own header included, 32 bit; present in every IP packet.
    Length,
    /// Index of the interface that the packet came in by, 32 bit; 0 for none. Always present.
    Ingress,
    /// Index of the interface that it leaves by, 32 bit; 0 for none. Always present.
    Egress,
    /// The firewall mark, 32 bit; 0 at first. Always present. Changes while the rules run ([`crate::Action::Mark`]).
    Mark,
    /// State of the connection: one bit of [`state`]. 8 bit; absent where there is no connection tracking. Test it with
    /// [`crate::Test::AnyBit`].
    ConnectionState,
    /// 0: the packet goes from the side that began the connection, 1: it comes back. 1 bit; absent where there is no connection
    /// (INVALID, UNTRACKED).
    ConnectionDirection,
    /// Source MAC address of the frame, 48 bit; absent where the packet did not come in an Ethernet frame.
    SourceMac,
    /// 1: there is an SRH, else 0. 1 bit, always present.
    SrhPresent,
    /// Next Header of the SRH, 8 bit. This and all that follow up to the last SID: absent without SRH.
    SrhNextHeader,
    /// Hdr Ext Len of the SRH: 8 octets each, not counting the first; 8 bit.
    SrhLength,
    /// Segments Left, 8 bit.
    SrhSegmentsLeft,
    /// Last Entry, 8 bit.
    SrhLastEntry,
    /// Tag, 16 bit.
    SrhTag,
    /// The segment before the active one: Segment List\[Segments Left + 1\], 128 bit; absent where there is none.
    PreviousSid,
    /// The segment behind the active one: Segment List\[Segments Left - 1\], 128 bit; absent where there is none.
    NextSid,
    /// The last segment of the path: Segment List\[0\], 128 bit.
    LastSid,
    /// The local SID that the packet was found to be for, 128 bit; absent where it came by no SID.
    ActiveSid,
    /// Type of the packet's first Routing header, 8 bit. This and the next two: absent without one (IPv4: always).
    RoutingType,
    /// Its Segments Left, 8 bit.
    RoutingSegmentsLeft,
    /// Its Hdr Ext Len: 8 octets each, not counting the first; 8 bit.
    RoutingLength,
    /// 4 or 6: the outer packet's; 0 where the packet is not encapsulated. 8 bit, always present.
    OuterFamily,
    /// Source of the outer IPv6 header, 128 bit; absent where the packet is not encapsulated.
    OuterSource,
    /// Destination of the outer IPv6 header, 128 bit; absent where the packet is not encapsulated.
    OuterDestination,
    /// How many label stack entries are behind the one that the packet came by, 8 bit. This and all that follow: absent where it came
    /// by no label of this node. A packet that did has no SRH.
    LabelEntries,
    /// Label of an entry, 20 bit (RFC 3032). This and the next three: absent where there is no such entry.
    Label(Entry),
    /// Traffic Class of an entry (RFC 5462), 3 bit.
    LabelClass(Entry),
    /// Bottom of stack of an entry, 1 bit.
    LabelBottom(Entry),
    /// TTL of an entry, 8 bit.
    LabelTtl(Entry),
}

/// An entry of the label stack that a packet came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entry {
    /// That of the label of this node which led the packet here.
    Own,
    /// One behind that, by its place.
    At(Depth),
    /// The bottom of the stack, if it is behind that.
    Last,
    /// All behind that. **A test holds if it does for one of them**, and fails if it does for none, which is then what its negation
    /// asks.
    Any,
}

/// Place of a label stack entry: 1 is right behind the label that the packet came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Depth(u8);

impl Depth {
    /// The deepest that is looked at (`SEGUE_CLASSIFIER_LABELS`).
    pub const MAX: Self = Self(16);

    /// None: 0, or deeper than is looked at.
    pub const fn new(depth: u8) -> Option<Self> {
        if depth >= 1 && depth <= Self::MAX.0 { Some(Self(depth)) } else { None }
    }

    /// As a number, from 1.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Each of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::MAX.0).map(Self)
    }
}

/// Bits of [`Field::ConnectionState`], as the kernel's `XT_STATE_*` and netfilter's `XT_CONNTRACK_STATE_*`.
pub mod state {
    /// The packet belongs to no connection that can be.
    pub const INVALID: u8 = 1;
    /// Packets went both ways.
    pub const ESTABLISHED: u8 = 2;
    /// A new connection or an ICMP error that belongs to another.
    pub const RELATED: u8 = 4;
    /// The first packets, one way.
    pub const NEW: u8 = 8;
    /// Not tracked on purpose.
    pub const UNTRACKED: u8 = 64;
}

impl Field {
    /// Width in bits; a value is below 2^width.
    pub const fn width(self) -> u32 {
        use Field::*;
        match self {
            FragmentMore | FragmentDont | FragmentReserved | SrhPresent | ConnectionDirection | LabelBottom(_) => 1,
            Ecn => 2,
            LabelClass(_) => 3,
            Dscp => 6,
            Family | Protocol | TcpFlags | IcmpType | IcmpCode | TrafficClass | HopLimit | ConnectionState
            | SrhNextHeader | SrhLength | SrhSegmentsLeft | SrhLastEntry | RoutingType | RoutingSegmentsLeft
            | RoutingLength | OuterFamily | LabelEntries | LabelTtl(_) => 8,
            FragmentOffset => 13,
            SourcePort | DestinationPort | SrhTag => 16,
            FlowLabel | Label(_) => 20,
            SourceIpv4 | DestinationIpv4 | FragmentIdentification | Length | Ingress | Egress | Mark => 32,
            SourceMac => 48,
            TcpOptions => 64,
            SourceIpv6 | DestinationIpv6 | PreviousSid | NextSid | LastSid | ActiveSid | OuterSource
            | OuterDestination => 128,
        }
    }

    /// Whether only a packet with an SRH has it.
    pub const fn is_of_srh(self) -> bool {
        use Field::*;
        matches!(
            self,
            SrhPresent
                | SrhNextHeader
                | SrhLength
                | SrhSegmentsLeft
                | SrhLastEntry
                | SrhTag
                | PreviousSid
                | NextSid
                | LastSid
        )
    }

    /// Whether only a packet that came by a label has it.
    pub const fn is_of_labels(self) -> bool {
        self.entry().is_some() || matches!(self, Self::LabelEntries)
    }

    /// The entry of a label stack that it is of.
    pub const fn entry(self) -> Option<Entry> {
        match self {
            Self::Label(entry) | Self::LabelClass(entry) | Self::LabelBottom(entry) | Self::LabelTtl(entry) => {
                Some(entry)
            }
            _ => None,
        }
    }

    /// The same of another entry; a field that is of none is what it is.
    #[must_use]
    pub const fn of_entry(self, entry: Entry) -> Self {
        match self {
            Self::Label(_) => Self::Label(entry),
            Self::LabelClass(_) => Self::LabelClass(entry),
            Self::LabelBottom(_) => Self::LabelBottom(entry),
            Self::LabelTtl(_) => Self::LabelTtl(entry),
            other => other,
        }
    }

    /// Whether it stands for one field of each entry of a stack, of which some must pass a test.
    pub const fn is_any(self) -> bool {
        matches!(self.entry(), Some(Entry::Any))
    }

    /// The greatest value.
    pub const fn max(self) -> u128 {
        u128::MAX >> (128 - self.width())
    }
}
