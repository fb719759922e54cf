//! A packet in a service's hands.

use std::num::NonZeroU16;
use std::ops::Range;

use segue_wire::FiveTuple;

use crate::flow::{FlowKey, five_tuple};
use crate::reason::Reason;
use crate::steering::{Places, Steering, SteeringKind};
use crate::time::Time;
use crate::verdict::Verdict;

/// Octets kept free in front of a packet in a buffer of its own.
const HEADROOM: usize = 128;

/// What cannot be behind a steering header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Too many octets; the packet would have so many.
    #[error("{0} octets do not fit into one packet")]
    TooLong(usize),
    /// Another protocol than the one that is there, behind labels.
    #[error("protocol {number} in place of {of}: labels do not say what is behind them")]
    NotAnnounced {
        /// Its number.
        number: u8,
        /// The number of what is there.
        of: u8,
    },
}

/// What is left to the kernel to do with a packet when it leaves this host, as `virtio_net_hdr` says it (virtio 1.2 section 5.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// What kind of segments these are (`VIRTIO_NET_HDR_GSO_*`); 0: it is one packet.
    pub kind: u8,
    /// Where the transport header of the inner packet begins, octets from the outer IP header on; its checksum is of the pseudo header only, yet.
    pub transport: u16,
    /// Where the checksum is, octets from there on: 16 with TCP, 6 with UDP.
    pub checksum: u16,
}

impl Offload {
    /// Where TCP has its checksum.
    const OF_TCP: u16 = 16;

    /// Octets of a packet of `octets` up to the end of the transport header.
    #[must_use]
    pub fn header_length(&self, octets: &[u8]) -> usize {
        let start = usize::from(self.transport);
        if self.checksum == Self::OF_TCP {
            start + octets.get(start + 12).map_or(20, |offset| usize::from(offset >> 4) * 4)
        } else {
            start + usize::from(self.checksum) + 2
        }
    }
}

enum Storage<'a> {
    /// A frame that somebody else owns, for the length of one batch.
    Frame(&'a mut [u8]),
    Own(Vec<u8>),
}

/// A packet from its steering header on, which has been found: from the outer IP header, or the first label.
///
/// It lies in a frame of the device's memory as long as it fits there, and moves to a buffer of its own when it outgrows it. A service that keeps a
/// packet beyond its batch keeps [`Packet::to_owned`], so that frames are never short because a service holds them.
pub struct Packet<'a> {
    storage: Storage<'a>,
    range: Range<usize>,
    places: Places,
    wire_length: usize,
    segment_size: Option<NonZeroU16>,
    offload: Option<Offload>,
    arrived: Time,
    verdict: Option<Verdict>,
}

impl<'a> Packet<'a> {
    /// A packet in a frame: `range` holds it, the octets around it are headroom and tailroom. `wire_length`: octets that it had before it was
    /// cut; those of `range` if it was not.
    ///
    /// # Errors
    /// Why it is no packet for a service.
    pub fn in_frame(
        kind: SteeringKind,
        frame: &'a mut [u8],
        range: Range<usize>,
        wire_length: usize,
        arrived: Time,
    ) -> Result<Self, Reason> {
        Self::new(kind, Storage::Frame(frame), range, wire_length, arrived)
    }

    fn new(
        kind: SteeringKind,
        storage: Storage<'a>,
        range: Range<usize>,
        wire_length: usize,
        arrived: Time,
    ) -> Result<Self, Reason> {
        let buffer: &[u8] = match &storage {
            Storage::Frame(frame) => frame,
            Storage::Own(buffer) => buffer,
        };
        let octets = buffer.get(range.clone()).ok_or(Reason::Malformed)?;
        let is_cut = wire_length > octets.len();
        let (places, total) = Places::find(kind, octets, is_cut)?;
        if total > wire_length.max(octets.len()) {
            return Err(Reason::Malformed);
        }
        // What the device has added behind the packet is no part of it.
        let end = range.end.min(range.start + total);
        Ok(Self {
            storage,
            range: range.start..end,
            places,
            wire_length: total,
            segment_size: None,
            offload: None,
            arrived,
            verdict: None,
        })
    }

    fn buffer(&self) -> &[u8] {
        match &self.storage {
            Storage::Frame(frame) => frame,
            Storage::Own(buffer) => buffer,
        }
    }

    fn buffer_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Frame(frame) => frame,
            Storage::Own(buffer) => buffer,
        }
    }

    /// From the steering header on.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.buffer()[self.range.clone()]
    }

    /// The same, to change. Lengths and kinds of headers must stay as they are; what else changes is the service's to answer for.
    pub fn octets_mut(&mut self) -> &mut [u8] {
        let range = self.range.clone();
        &mut self.buffer_mut()[range]
    }

    /// Octets that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Never: a packet has headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Octets that the packet had on the wire, which are more than [`Packet::len`] if the copy was cut.
    #[must_use]
    pub fn wire_length(&self) -> usize {
        self.wire_length
    }

    /// Whether octets are missing at its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.wire_length > self.len()
    }

    /// Octets of payload in each segment, if this is several segments of one TCP or UDP flow merged into one packet (segmentation
    /// offload). None: it is one packet.
    #[must_use]
    pub fn segment_size(&self) -> Option<NonZeroU16> {
        self.segment_size
    }

    /// Says that this packet is to be cut into segments of so many octets on its way out, by who can.
    pub fn set_segment_size(&mut self, octets: Option<NonZeroU16>) {
        self.segment_size = octets;
    }

    /// What is left to the kernel to do with it. None: it is complete.
    #[must_use]
    pub fn offload(&self) -> Option<Offload> {
        self.offload
    }

    /// Says what is left to the kernel to do.
    pub fn set_offload(&mut self, offload: Option<Offload>) {
        self.offload = offload;
    }

    /// Octets of the largest packet that it is cut into on its way out: its own if it is not.
    #[must_use]
    pub fn longest(&self) -> usize {
        match (self.segment_size, self.offload) {
            (Some(size), Some(offload)) => {
                self.len().min(offload.header_length(self.octets()) + usize::from(size.get()))
            }
            _ => self.len(),
        }
    }

    /// When the batch came that it was in.
    #[must_use]
    pub fn arrived(&self) -> Time {
        self.arrived
    }

    /// Octets free in front of it, where it lies.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.range.start
    }

    /// Octets free behind it, where it lies.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.buffer().len() - self.range.end
    }

    /// The steering header as it arrived.
    #[must_use]
    pub fn steering(&self) -> Steering<'_> {
        self.places.steering(self.octets())
    }

    /// What kind of steering header it has.
    #[must_use]
    pub fn kind(&self) -> SteeringKind {
        self.places.kind()
    }

    /// What is behind the steering header: an inner packet, or an upper layer where the SRH was inserted.
    #[must_use]
    pub fn inner(&self) -> &[u8] {
        &self.octets()[self.places.inner()..]
    }

    /// The same, to change.
    pub fn inner_mut(&mut self) -> &mut [u8] {
        let at = self.places.inner();
        &mut self.octets_mut()[at..]
    }

    /// The protocol number of [`Packet::inner`]: [`segue_wire::layer::protocol`].
    #[must_use]
    pub fn inner_protocol(&self) -> u8 {
        self.places.protocol(self.octets())
    }

    /// Addresses, protocol and ports of the innermost IP packet behind the steering header. None: there is none.
    #[must_use]
    pub fn inner_five_tuple(&self) -> Option<FiveTuple> {
        match self.steering() {
            // What is behind an SRH that was inserted has no addresses of its own.
            Steering::Srv6(header) => five_tuple(self.octets()).filter(|tuple| tuple.source != header.source()),
            Steering::SrMpls(_) => five_tuple(self.inner()),
        }
    }

    /// Its flow: by the innermost addresses, protocol and ports.
    #[must_use]
    pub fn flow(&self) -> FlowKey {
        FlowKey::of(self.kind().of_flow(self.octets()))
    }

    /// Puts something else behind the steering header; `parts` one after the other. Lengths and the protocol are written.
    ///
    /// # Errors
    /// If that cannot be behind it; it is as it was then.
    pub fn replace_inner(&mut self, protocol: u8, parts: &[&[u8]]) -> Result<(), Unfit> {
        let places = self.places;
        let length = fits(&places, self.octets(), protocol, parts)?;
        if self.range.start + length > self.buffer().len() {
            let mut buffer = vec![0; HEADROOM + length];
            buffer[HEADROOM..HEADROOM + places.inner()].copy_from_slice(self.steering().octets());
            self.storage = Storage::Own(buffer);
            self.range.start = HEADROOM;
        }
        self.range.end = self.range.start + length;
        let mut at = places.inner();
        let octets = self.octets_mut();
        for part in parts {
            octets[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        places.announce(octets, protocol);
        self.wire_length = length;
        (self.segment_size, self.offload) = (None, None);
        Ok(())
    }

    /// Another packet with the same steering header and something else behind it; `parts` one after the other.
    ///
    /// # Errors
    /// If that cannot be behind it.
    pub fn behind_the_same(&self, protocol: u8, parts: &[&[u8]]) -> Result<Packet<'static>, Unfit> {
        let places = self.places;
        let length = fits(&places, self.octets(), protocol, parts)?;
        let mut buffer = Vec::with_capacity(HEADROOM + length);
        buffer.resize(HEADROOM, 0);
        buffer.extend_from_slice(self.steering().octets());
        for part in parts {
            buffer.extend_from_slice(part);
        }
        places.announce(&mut buffer[HEADROOM..], protocol);
        Ok(Packet {
            range: HEADROOM..buffer.len(),
            storage: Storage::Own(buffer),
            places,
            wire_length: length,
            segment_size: None,
            offload: None,
            arrived: self.arrived,
            verdict: None,
        })
    }

    /// A copy in a buffer of its own.
    #[must_use]
    pub fn to_owned(&self) -> Packet<'static> {
        let mut buffer = vec![0; HEADROOM + self.len()];
        buffer[HEADROOM..].copy_from_slice(self.octets());
        Packet {
            range: HEADROOM..buffer.len(),
            storage: Storage::Own(buffer),
            places: self.places,
            wire_length: self.wire_length,
            segment_size: self.segment_size,
            offload: self.offload,
            arrived: self.arrived,
            verdict: None,
        }
    }

    /// What becomes of it; for [`crate::Service::batch`]. The last decision counts.
    pub fn decide(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        // A service whose `batch` has left a packet out has failed on it.
        self.verdict.unwrap_or(Verdict::Drop(Reason::ServiceFailed))
    }

    /// Whether it still lies in the frame that it came in, and where.
    #[must_use]
    pub fn range_in_frame(&self) -> Option<Range<usize>> {
        matches!(self.storage, Storage::Frame(_)).then(|| self.range.clone())
    }

    /// The `octets` in front of it, where it lies, for the header of a link; none if there are fewer.
    pub fn in_front_mut(&mut self, octets: usize) -> Option<&mut [u8]> {
        let end = self.range.start;
        let start = end.checked_sub(octets)?;
        self.buffer_mut().get_mut(start..end)
    }

    pub(crate) fn advance(&mut self) -> Result<(), Reason> {
        let places = self.places;
        places.advance(self.octets_mut())
    }
}

impl Packet<'static> {
    /// A packet in a buffer of its own, from octets that begin with the steering header.
    ///
    /// # Errors
    /// Why it is no packet for a service.
    pub fn from_octets(kind: SteeringKind, octets: &[u8], arrived: Time) -> Result<Self, Reason> {
        let mut buffer = vec![0; HEADROOM + octets.len()];
        buffer[HEADROOM..].copy_from_slice(octets);
        let range = HEADROOM..buffer.len();
        Self::new(kind, Storage::Own(buffer), range, octets.len(), arrived)
    }

    /// A copy that was cut: `wire_length` octets were on the wire.
    ///
    /// # Errors
    /// As [`Packet::from_octets`].
    pub fn from_cut(kind: SteeringKind, octets: Vec<u8>, wire_length: usize, arrived: Time) -> Result<Self, Reason> {
        let range = 0..octets.len();
        Self::new(kind, Storage::Own(octets), range, wire_length, arrived)
    }
}

impl std::fmt::Debug for Packet<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Packet")
            .field("octets", &self.octets())
            .field("wire_length", &self.wire_length)
            .field("segment_size", &self.segment_size)
            .finish_non_exhaustive()
    }
}

/// Octets of a packet with the steering header of `packet` and these parts behind it.
fn fits(places: &Places, packet: &[u8], protocol: u8, parts: &[&[u8]]) -> Result<usize, Unfit> {
    let of = places.protocol(packet);
    if protocol != of && !places.kind().announces() {
        return Err(Unfit::NotAnnounced { number: protocol, of });
    }
    let length = places.inner() + parts.iter().map(|part| part.len()).sum::<usize>();
    if length > places.largest() { Err(Unfit::TooLong(length)) } else { Ok(length) }
}
