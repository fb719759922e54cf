//! A worker's packets by a packet socket: those that segmentation offload has merged come whole, and leave so.

use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};

use segue_host::tun::Tun;
use segue_service::{Engine, Offload, Packet, Reason, Sink, SteeringKind, Time, Way};
use segue_xsk::LINK_LENGTH;
use segue_xsk::merged::{MergedSocket, VIRTIO_LENGTH, VirtioHeader};

use crate::ports::{Link, deliver};

/// Packets of one batch at most: each may have 64 KiB, which should stay in the cache of a processor.
const BATCH: usize = 16;
/// Octets of the largest frame, with its virtio header.
const LARGEST: usize = VIRTIO_LENGTH + LINK_LENGTH + 40 + 65_535;

/// Where packets come from.
pub(crate) struct MergedSource {
    socket: MergedSocket,
    buffers: Vec<Vec<u8>>,
    lost: u64,
}

impl MergedSource {
    pub(crate) fn new(socket: MergedSocket) -> Self {
        Self { socket, buffers: vec![vec![0; LARGEST]; BATCH], lost: 0 }
    }

    /// Packets that the socket had no room for.
    pub(crate) fn lost(&mut self) -> u64 {
        self.lost += u64::from(self.socket.lost());
        self.lost
    }

    pub(crate) fn sink<'a>(&'a self, link: Link, kernel: Option<&'a Tun>) -> Whole<'a> {
        Whole { link, kernel, socket: &self.socket }
    }

    /// One batch. Returns how many packets there were.
    pub(crate) fn run(
        &mut self,
        engine: &mut Engine,
        link: &mut Link,
        kernel: Option<&Tun>,
        now: Time,
    ) -> Result<usize, String> {
        let mut packets = Vec::with_capacity(BATCH);
        let mut count = 0;
        for buffer in &mut self.buffers {
            let received = self.socket.receive(buffer);
            let Some(length) = received.map_err(|error| format!("the interface does not receive: {error}"))? else {
                break;
            };
            count += 1;
            let frame = buffer.get(VIRTIO_LENGTH..length).unwrap_or_default();
            link.learn(frame);
            let length = frame.len().saturating_sub(LINK_LENGTH);
            match read(buffer, length, now) {
                Ok(packet) => packets.push(packet),
                Err(reason) => engine.refuse(reason, length),
            }
        }
        if !packets.is_empty() {
            engine.batch(now, &mut packets, &mut Whole { link: *link, kernel, socket: &self.socket });
        }
        Ok(count)
    }
}

impl AsFd for MergedSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The packet of so many octets behind both headers of a frame.
fn read(buffer: &mut [u8], length: usize, now: Time) -> Result<Packet<'_>, Reason> {
    const START: usize = VIRTIO_LENGTH + LINK_LENGTH;
    let header = VirtioHeader::read(buffer).ok_or(Reason::Malformed)?;
    let mut packet = Packet::in_frame(SteeringKind::Srv6, buffer, START..START + length, length, now)?;
    if header.flags & VirtioHeader::NEEDS_CHECKSUM != 0 {
        let transport = header.checksum_start.checked_sub(LINK_LENGTH as u16).ok_or(Reason::Malformed)?;
        let checksum = header.checksum_offset;
        packet.set_offload(Some(Offload { kind: header.kind, transport, checksum }));
        packet.set_segment_size(NonZeroU16::new(header.segment_size).filter(|_| header.kind != 0));
    } else if header.kind != 0 {
        // Nobody could cut it up again.
        return Err(Reason::Malformed);
    }
    Ok(packet)
}

/// The virtio header of a frame with this packet.
fn header_of(packet: &Packet<'_>) -> Result<VirtioHeader, Reason> {
    let Some(offload) = packet.offload() else { return Ok(VirtioHeader::default()) };
    let number = |octets: usize| u16::try_from(octets).map_err(|_| Reason::TooBig);
    let size = packet.segment_size().map_or(0, NonZeroU16::get);
    Ok(VirtioHeader {
        flags: VirtioHeader::NEEDS_CHECKSUM,
        kind: if size > 0 { offload.kind } else { 0 },
        header_length: number(LINK_LENGTH + offload.header_length(packet.octets()))?,
        segment_size: size,
        checksum_start: number(LINK_LENGTH + usize::from(offload.transport))?,
        checksum_offset: offload.checksum,
    })
}

/// By a packet socket.
pub(crate) struct Whole<'a> {
    link: Link,
    kernel: Option<&'a Tun>,
    socket: &'a MergedSocket,
}

impl Sink for Whole<'_> {
    fn received(&mut self, _: usize, packet: &mut Packet<'_>, way: Way) -> Result<(), Reason> {
        self.own(packet, way)
    }

    fn own(&mut self, packet: &Packet<'_>, way: Way) -> Result<(), Reason> {
        if way == Way::Kernel {
            return deliver(self.kernel, packet);
        }
        self.link.fits(packet)?;
        let sent = self.socket.send(&header_of(packet)?, &self.link.header()?, packet.octets());
        sent.map_err(|_| Reason::OutputFull)
    }
}
