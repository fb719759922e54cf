//! IPv6 extension headers (RFC 8200 section 4; authentication header of RFC 4302) and a bounded walk over them.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |  Next Header  |  Hdr Ext Len  |  hop-by-hop, destination:     |
//! +---------------+---------------+  options                      +
//! |                                                               |
//! +---------------------------------------------------------------+
//!
//! +---------------+---------------+---------------+---------------+
//! |  Next Header  |  Hdr Ext Len  | Routing Type  | Segments Left |
//! +---------------+---------------+---------------+---------------+
//! |                      type-specific data                       |
//! +---------------------------------------------------------------+
//!
//! +---------------+---------------+-------------------------+---+-+
//! |  Next Header  |   Reserved    |     Fragment Offset     |Res|M|
//! +---------------+---------------+-------------------------+---+-+
//! |                         Identification                        |
//! +---------------------------------------------------------------+
//! ```

mod repr;

pub use repr::{FragmentRepr, HeaderOption, OptionIter, OptionsRepr, RoutingRepr};

use crate::error::{Error, Result};
use crate::field::{array_at, range, u8_at};
use crate::ipv6::{self, Ipv6Packet};
use crate::layer::{LayerKind, protocol};
use crate::srh::ROUTING_TYPE_SRH;

/// Offset of the Next Header field in every extension header.
pub const NEXT_HEADER: usize = 0;
/// Offset of the Hdr Ext Len field; the authentication header's Payload Len is at the same place.
pub const HDR_EXT_LEN: usize = 1;
/// Offset of the Routing Type field in a routing header.
pub const ROUTING_TYPE: usize = 2;
/// Offset of the Segments Left field in a routing header.
pub const SEGMENTS_LEFT: usize = 3;
/// Length of a fragment header, and the shortest length of every other one, in octets.
pub const MIN_HEADER_LENGTH: usize = 8;

/// Most extension headers that a walk follows.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Shortest authentication header: the fields in front of the integrity check value.
const MIN_AUTHENTICATION_LENGTH: usize = 12;

/// Place and kind of one extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeader {
    /// What it is. [`LayerKind::Srh`] for a routing header of type 4.
    pub kind: LayerKind,
    /// Octets from the first octet of the IPv6 header to this one.
    pub offset: usize,
    /// Octets of the header.
    pub length: usize,
    /// Protocol number of what follows.
    pub next_header: u8,
    /// Offset of the Next Header octet that announced this header: what PSP has to change when it removes the header,
    /// and where a Parameter Problem with code 1 points.
    pub announced_at: usize,
    /// Routing Type and Segments Left, if this is a routing header of whatever type.
    pub routing: Option<(u8, u8)>,
}

impl ExtensionHeader {
    const NONE: Self = Self {
        kind: LayerKind::Payload,
        offset: 0,
        length: 0,
        next_header: protocol::NO_NEXT_HEADER,
        announced_at: 0,
        routing: None,
    };

    /// Offset of the first octet behind the header.
    pub fn end(&self) -> usize {
        self.offset + self.length
    }
}

/// The extension headers of one IPv6 packet, in order, and what follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderChain {
    headers: [ExtensionHeader; MAX_EXTENSION_HEADERS],
    count: usize,
    upper_layer: u8,
    upper_layer_offset: usize,
    announced_at: usize,
    fragment: Option<FragmentRepr>,
}

impl HeaderChain {
    /// Walks the extension headers of `packet`. Ends at the first protocol number that is no extension header (ESP and
    /// "no next header" included) and behind the fragment header of a fragment that is not the first one.
    ///
    /// Routing headers of unknown type are walked over, as a node on the way must;
    /// [`HeaderChain::check_routing_types`] is for the node that the packet is addressed to.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooLarge`], [`Error::LengthTooSmall`], [`Error::HopByHopMisplaced`],
    /// [`Error::IncompleteHeaderChain`], [`Error::TooManyHeaders`] above [`MAX_EXTENSION_HEADERS`]. Offsets count from
    /// the first octet of the IPv6 header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>) -> Result<Self> {
        match Self::walk(packet.packet()) {
            (chain, None) => Ok(chain),
            (_, Some(error)) => Err(error),
        }
    }

    /// The chain up to the first error in `packet`, an IPv6 packet without octets behind its payload.
    pub(crate) fn walk(packet: &[u8]) -> (Self, Option<Error>) {
        let mut chain = Self {
            headers: [ExtensionHeader::NONE; MAX_EXTENSION_HEADERS],
            count: 0,
            upper_layer: u8_at(packet, ipv6::NEXT_HEADER),
            upper_layer_offset: ipv6::HEADER_LENGTH,
            announced_at: ipv6::NEXT_HEADER,
            fragment: None,
        };
        while !chain.is_non_first_fragment() {
            match chain.step(packet) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return (chain, Some(chain.in_first_fragment(error))),
            }
        }
        (chain, None)
    }

    /// Takes the next header into the chain; false when there is none.
    fn step(&mut self, packet: &[u8]) -> Result<bool> {
        let offset = self.upper_layer_offset;
        let kind = match self.upper_layer {
            protocol::HOP_BY_HOP => LayerKind::HopByHopOptions,
            protocol::ROUTING => LayerKind::Routing,
            protocol::FRAGMENT => LayerKind::Fragment,
            protocol::AUTHENTICATION => LayerKind::Authentication,
            protocol::DESTINATION_OPTIONS => LayerKind::DestinationOptions,
            _ => return Ok(false),
        };
        if kind == LayerKind::HopByHopOptions && self.announced_at != ipv6::NEXT_HEADER {
            return Err(Error::HopByHopMisplaced { offset: self.announced_at });
        }
        let expected = MAX_EXTENSION_HEADERS;
        let place = self.headers.get_mut(self.count).ok_or(Error::TooManyHeaders { layer: kind, offset, expected })?;
        let rest = range(packet, offset, usize::MAX);
        let length = header_length(kind, rest).map_err(|error| error.shifted(offset))?;
        let is_routing = kind == LayerKind::Routing;
        let routing = is_routing.then(|| (u8_at(rest, ROUTING_TYPE), u8_at(rest, SEGMENTS_LEFT)));
        let kind = if routing.is_some_and(|(kind, _)| kind == ROUTING_TYPE_SRH) { LayerKind::Srh } else { kind };
        let next_header = u8_at(rest, NEXT_HEADER);
        *place = ExtensionHeader { kind, offset, length, next_header, announced_at: self.announced_at, routing };
        if kind == LayerKind::Fragment {
            self.fragment = Some(FragmentRepr::from_bytes(array_at(rest, 0)));
        }
        self.count += 1;
        self.upper_layer = next_header;
        self.announced_at = offset + NEXT_HEADER;
        self.upper_layer_offset = offset + length;
        Ok(true)
    }

    /// `error`, or the more telling one that it is inside a first fragment of several.
    pub(crate) fn in_first_fragment(&self, error: Error) -> Error {
        let first = self.fragment.is_some_and(|fragment| fragment.more_fragments && fragment.fragment_offset == 0);
        match error {
            Error::Truncated { layer, offset, .. } | Error::LengthTooLarge { layer, offset, .. } if first => {
                Error::IncompleteHeaderChain { layer, offset }
            }
            other => other,
        }
    }

    /// The extension headers in order.
    pub fn headers(&self) -> &[ExtensionHeader] {
        self.headers.get(..self.count).unwrap_or(&[])
    }

    /// The first SRH.
    pub fn srh(&self) -> Option<&ExtensionHeader> {
        self.headers().iter().find(|header| header.kind == LayerKind::Srh)
    }

    /// The fragment header nearest to the payload.
    pub fn fragment(&self) -> Option<FragmentRepr> {
        self.fragment
    }

    /// Whether the packet is a fragment other than the first: what follows the chain is not the start of a header.
    pub fn is_non_first_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.fragment_offset != 0)
    }

    /// Protocol number of what follows the chain. That of the fragmented packet when this is a fragment.
    pub fn upper_layer(&self) -> u8 {
        self.upper_layer
    }

    /// Octets from the first octet of the IPv6 header to what follows the chain.
    pub fn upper_layer_offset(&self) -> usize {
        self.upper_layer_offset
    }

    /// Offset of the Next Header octet that announces the upper layer.
    pub fn upper_layer_announced_at(&self) -> usize {
        self.announced_at
    }

    /// For the node that the packet is addressed to: every routing header of another type than 4 has no segments left
    /// (RFC 8200 section 4.4).
    ///
    /// # Errors
    /// [`Error::UnknownRoutingType`].
    pub fn check_routing_types(&self) -> Result<()> {
        for header in self.headers() {
            if let Some((found, segments_left)) = header.routing
                && found != ROUTING_TYPE_SRH
                && segments_left != 0
            {
                let offset = header.offset + ROUTING_TYPE;
                return Err(Error::UnknownRoutingType { offset, found, segments_left });
            }
        }
        Ok(())
    }
}

/// Length in octets of the extension header at the start of `bytes`, all of which must be there.
fn header_length(layer: LayerKind, bytes: &[u8]) -> Result<usize> {
    crate::error::require(layer, MIN_HEADER_LENGTH, bytes.len())?;
    let units = usize::from(u8_at(bytes, HDR_EXT_LEN));
    let (field, found) = match layer {
        LayerKind::Fragment => return Ok(MIN_HEADER_LENGTH),
        // Counts fours, without the first eight octets, unlike every other extension header.
        LayerKind::Authentication => ("Payload Len", (units + 2) * 4),
        _ => ("Hdr Ext Len", (units + 1) * 8),
    };
    let offset = HDR_EXT_LEN;
    if layer == LayerKind::Authentication && found < MIN_AUTHENTICATION_LENGTH {
        return Err(Error::LengthTooSmall { layer, field, offset, expected: MIN_AUTHENTICATION_LENGTH, found });
    }
    if found > bytes.len() {
        return Err(Error::LengthTooLarge { layer, field, offset, expected: bytes.len(), found });
    }
    Ok(found)
}
