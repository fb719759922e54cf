//! From a worker's packets to its interface: what puts link-layer headers on, and says which frames have left.

use segue_host::tun::Tun;
use segue_service::{Packet, Reason, Sink, SteeringKind, Way};
use segue_xsk::interface::{Interface, RawSocket};
use segue_xsk::{LINK_LENGTH, Transmitter};

/// The two ends of the link to the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) own: [u8; 6],
    pub(crate) node: Option<[u8; 6]>,
    pub(crate) mtu: usize,
    pub(crate) steering: SteeringKind,
}

impl Link {
    pub(crate) fn new(interface: &Interface, node: Option<[u8; 6]>, steering: SteeringKind) -> Self {
        Self { own: interface.mac, node, mtu: interface.mtu, steering }
    }

    /// The node's address is that of who sends.
    pub(crate) fn learn(&mut self, frame: &[u8]) {
        if let Some(source) = frame.get(6..12).and_then(|octets| octets.try_into().ok()) {
            self.node = Some(source);
        }
    }

    pub(crate) fn header(&self) -> Result<[u8; LINK_LENGTH], Reason> {
        // Who has received nothing does not know where to send to.
        let node = self.node.ok_or(Reason::NotDelivered)?;
        let mut header = [0; LINK_LENGTH];
        header[..6].copy_from_slice(&node);
        header[6..12].copy_from_slice(&self.own);
        header[12..].copy_from_slice(&self.steering.ethertype().to_be_bytes());
        Ok(header)
    }

    pub(crate) fn fits(&self, packet: &Packet<'_>) -> Result<(), Reason> {
        if packet.longest() > self.mtu { Err(Reason::TooBig) } else { Ok(()) }
    }
}

/// Gives a packet to the kernel of the namespace.
pub(crate) fn deliver(kernel: Option<&Tun>, packet: &Packet<'_>) -> Result<(), Reason> {
    let device = kernel.ok_or(Reason::NotDelivered)?;
    device.send(packet.octets()).map_err(|_| Reason::NotDelivered)
}

/// Packets of one batch, on AF_XDP.
pub(crate) struct Frames<'a, 'b> {
    pub(crate) link: Link,
    pub(crate) kernel: Option<&'a Tun>,
    pub(crate) transmitter: &'a mut Transmitter<'b>,
    /// Of each packet of the batch: the frame that it came in.
    pub(crate) frames: &'a [Option<u32>],
    /// Of each packet of the batch: whether that frame is on its way out.
    pub(crate) sent: &'a mut [bool],
}

impl Frames<'_, '_> {
    fn copy(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        let header = self.link.header()?;
        if self.transmitter.send_copy(&header, packet.octets()) { Ok(()) } else { Err(Reason::OutputFull) }
    }
}

impl Sink for Frames<'_, '_> {
    fn received(&mut self, index: usize, packet: &mut Packet<'_>, way: Way) -> Result<(), Reason> {
        if way == Way::Kernel {
            return deliver(self.kernel, packet);
        }
        self.link.fits(packet)?;
        let header = self.link.header()?;
        let frame = self.frames.get(index).copied().flatten().zip(packet.range_in_frame());
        let Some((frame, range)) = frame.filter(|(_, range)| range.start >= LINK_LENGTH) else {
            return self.copy(packet);
        };
        if let Some(place) = packet.in_front_mut(LINK_LENGTH) {
            place.copy_from_slice(&header);
        }
        if !self.transmitter.send_frame(frame, range.start - LINK_LENGTH..range.end) {
            return Err(Reason::OutputFull);
        }
        self.sent[index] = true;
        Ok(())
    }

    fn own(&mut self, packet: &Packet<'_>, way: Way) -> Result<(), Reason> {
        if way == Way::Kernel {
            return deliver(self.kernel, packet);
        }
        self.link.fits(packet)?;
        self.copy(packet)
    }
}

/// What an asynchronous service sends.
pub(crate) struct Raw<'a> {
    pub(crate) link: Link,
    pub(crate) kernel: Option<&'a Tun>,
    pub(crate) socket: &'a RawSocket,
}

impl Sink for Raw<'_> {
    fn received(&mut self, _: usize, _: &mut Packet<'_>, _: Way) -> Result<(), Reason> {
        // The packet has gone on long since: the engine does not ask for this.
        Err(Reason::NotDelivered)
    }

    fn own(&mut self, packet: &Packet<'_>, way: Way) -> Result<(), Reason> {
        if way == Way::Kernel {
            return deliver(self.kernel, packet);
        }
        self.link.fits(packet)?;
        let frame = [&self.link.header()?, packet.octets()].concat();
        self.socket.send(&frame).map_err(|_| Reason::OutputFull)
    }
}
