//! Names of the layers of a packet.

use core::fmt;

/// One kind of header, or the payload behind the last header that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerKind {
    /// Ethernet II header.
    Ethernet,
    /// IEEE 802.1Q tag.
    Vlan,
    /// MPLS label stack.
    Mpls,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// IPv6 hop-by-hop options header.
    HopByHopOptions,
    /// IPv6 destination options header.
    DestinationOptions,
    /// IPv6 routing header of a type other than 4.
    Routing,
    /// Segment routing header: routing header of type 4.
    Srh,
    /// IPv6 fragment header.
    Fragment,
    /// IP authentication header.
    Authentication,
    /// IP payload compression header (RFC 3173).
    IpComp,
    /// AGGFRAG payload (RFC 9347).
    Aggfrag,
    /// UDP header.
    Udp,
    /// TCP header.
    Tcp,
    /// ICMP for IPv4.
    Icmpv4,
    /// ICMP for IPv6.
    Icmpv6,
    /// Everything else.
    Payload,
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ethernet => "Ethernet",
            Self::Vlan => "802.1Q tag",
            Self::Mpls => "MPLS label stack",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::HopByHopOptions => "hop-by-hop options header",
            Self::DestinationOptions => "destination options header",
            Self::Routing => "routing header",
            Self::Srh => "SRH",
            Self::Fragment => "fragment header",
            Self::Authentication => "authentication header",
            Self::IpComp => "IPComp",
            Self::Aggfrag => "AGGFRAG",
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Icmpv4 => "ICMPv4",
            Self::Icmpv6 => "ICMPv6",
            Self::Payload => "payload",
        })
    }
}

/// Ethertypes (IEEE 802 Numbers registry).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// MPLS with a downstream-assigned label (RFC 3032 section 5, RFC 5332).
    pub const MPLS: u16 = 0x8847;
    /// MPLS with an upstream-assigned label (RFC 5332).
    pub const MPLS_UPSTREAM: u16 = 0x8848;
}

/// Protocol numbers of the IPv4 Protocol and IPv6 Next Header fields (IANA Protocol Numbers registry).
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMPV4: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header.
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// IP payload compression (RFC 3173).
    pub const IPCOMP: u8 = 108;
    /// MPLS in IP (RFC 4023).
    pub const MPLS: u8 = 137;
    /// Ethernet (RFC 8986 section 10.1).
    pub const ETHERNET: u8 = 143;
    /// AGGFRAG payload (RFC 9347 section 7.1).
    pub const AGGFRAG: u8 = 144;
}
