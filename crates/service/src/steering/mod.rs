//! The steering header in front of an inner packet, of either kind: that of SRv6, or a stack of labels.
//!
//! A service asks for what both have. Only one that reads segments, or labels, needs to know which kind it is.

mod labels;
mod srv6;

use std::net::Ipv6Addr;

use schemars::JsonSchema;
use segue_wire::layer::protocol;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;

pub use labels::Labels;
pub use srv6::Srv6;

/// Kinds of steering headers. All packets of a service have the same one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SteeringKind {
    /// An outer IPv6 header with an SRH (RFC 8754): the service is behind a SID.
    #[default]
    Srv6,
    /// A stack of labels (RFC 3032): the service is behind a label.
    SrMpls,
}

impl SteeringKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Srv6, Self::SrMpls];

    /// The Ethertype of packets with such a header.
    #[must_use]
    pub fn ethertype(self) -> u16 {
        match self {
            Self::Srv6 => segue_wire::ethertype::IPV6,
            Self::SrMpls => segue_wire::ethertype::MPLS,
        }
    }

    /// Where an IP header is by which the flow of a packet can be told: the outer one, or what is behind the labels. Empty if there is none.
    #[must_use]
    pub fn of_flow(self, octets: &[u8]) -> &[u8] {
        match self {
            Self::Srv6 => octets,
            Self::SrMpls => labels::length(octets).ok().and_then(|length| octets.get(length..)).unwrap_or_default(),
        }
    }

    /// Whether what is behind such a header can be told to be something else.
    pub(crate) fn announces(self) -> bool {
        self == Self::Srv6
    }
}

/// Where things are in a packet, in octets from its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    Srv6(srv6::Places),
    Labels(labels::Places),
}

impl Places {
    /// Finds them, and how long the packet says that it is. `octets` may be followed by others, and be fewer than that.
    pub(crate) fn find(kind: SteeringKind, octets: &[u8], is_cut: bool) -> Result<(Self, usize), Reason> {
        match kind {
            SteeringKind::Srv6 => srv6::parse(octets, is_cut).map(|(places, total)| (Self::Srv6(places), total)),
            SteeringKind::SrMpls => labels::parse(octets, is_cut).map(|(places, total)| (Self::Labels(places), total)),
        }
    }

    pub(crate) fn kind(&self) -> SteeringKind {
        match self {
            Self::Srv6(_) => SteeringKind::Srv6,
            Self::Labels(_) => SteeringKind::SrMpls,
        }
    }

    /// The first octet behind the steering header.
    pub(crate) fn inner(&self) -> usize {
        match self {
            Self::Srv6(places) => places.inner,
            Self::Labels(places) => places.inner,
        }
    }

    /// The protocol number of what is there.
    pub(crate) fn protocol(&self, packet: &[u8]) -> u8 {
        match self {
            Self::Srv6(places) => packet.get(places.announced_at).copied().unwrap_or(protocol::NO_NEXT_HEADER),
            Self::Labels(places) => places.protocol,
        }
    }

    /// Writes what is behind the steering header, and how long the packet is.
    pub(crate) fn announce(&self, packet: &mut [u8], number: u8) {
        match self {
            Self::Srv6(places) => {
                if let Some(octet) = packet.get_mut(places.announced_at) {
                    *octet = number;
                }
                srv6::set_length(packet);
            }
            // A stack says neither.
            Self::Labels(_) => {}
        }
    }

    /// Octets of the largest packet that such a header can be in front of.
    pub(crate) fn largest(&self) -> usize {
        match self {
            Self::Srv6(_) => srv6::LARGEST,
            Self::Labels(places) => places.inner + srv6::LARGEST,
        }
    }

    /// One segment further. Nothing is changed if that cannot be.
    pub(crate) fn advance(&self, packet: &mut [u8]) -> Result<(), Reason> {
        match self {
            Self::Srv6(places) => srv6::advance(packet, places),
            // The node has taken the service's own label off, and sees to the TTL of the next one when it has the packet back.
            Self::Labels(_) => Ok(()),
        }
    }

    pub(crate) fn steering<'a>(&self, packet: &'a [u8]) -> Steering<'a> {
        let octets = packet.get(..self.inner()).unwrap_or_default();
        match self {
            Self::Srv6(places) => Steering::Srv6(Srv6::new(octets, places)),
            Self::Labels(_) => Steering::SrMpls(Labels::new(octets)),
        }
    }
}

/// A steering header, as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Steering<'a> {
    /// An outer IPv6 header with its extension headers.
    Srv6(Srv6<'a>),
    /// A stack of labels: what was behind the service's own one.
    SrMpls(Labels<'a>),
}

impl<'a> Steering<'a> {
    /// All its octets.
    #[must_use]
    pub fn octets(&self) -> &'a [u8] {
        match self {
            Self::Srv6(header) => header.octets(),
            Self::SrMpls(labels) => labels.octets(),
        }
    }

    /// SRv6: the segment at which the packet is, for a service its own SID with the argument. Of a stack of labels it has gone, when the service gets it.
    #[must_use]
    pub fn active(&self) -> Option<Ipv6Addr> {
        match self {
            Self::Srv6(header) => Some(header.destination()),
            Self::SrMpls(_) => None,
        }
    }

    /// What leads packets the same way: equal for two packets exactly if they have the same rest of their segment list, from the active one on,
    /// the same source, and the same traffic class. Of labels: the same ones with the same TC, but for entropy labels, which tell flows of one way apart.
    /// Not a header: only to compare.
    #[must_use]
    pub fn remaining(&self) -> Vec<u8> {
        match self {
            Self::Srv6(header) => header.remaining(),
            Self::SrMpls(labels) => labels.remaining(),
        }
    }

    /// Whether another one is the same in all but the length of what is behind it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Srv6(one), Self::Srv6(other)) => one.is_same(other),
            (Self::SrMpls(one), Self::SrMpls(other)) => one == other,
            _ => false,
        }
    }
}
