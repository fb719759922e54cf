//! Network functions in user space: a thread that takes frames from a wire and gives back what its program makes of each.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use segue_wire::{Ipv6Packet, PacketBuilder, Srh, SrhRepr};

use crate::packet_socket::PacketSocket;
use crate::tap::Tap;

/// How often a function looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
const ETHERNET: usize = 14;
const IPV6: usize = 40;

/// What frames come in and go out by.
pub trait Wire: Send + Sync {
    /// Sends a frame.
    fn send(&self, frame: &[u8]);
    /// The next frame, if one comes within `limit`.
    fn receive(&self, limit: Duration) -> Option<Vec<u8>>;
}

impl Wire for PacketSocket {
    fn send(&self, frame: &[u8]) {
        self.send(frame);
    }
    fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        self.receive(limit)
    }
}

impl Wire for Tap {
    fn send(&self, frame: &[u8]) {
        self.send(frame);
    }
    fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        self.receive(limit)
    }
}

/// A running function. It ends with the value.
#[derive(Debug)]
pub struct Vnf {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Vnf {
    /// Whatever comes in by `input` (IPv4 and IPv6 only, no neighbour discovery) goes through `program`, and what that returns
    /// leaves by `output`, frame after frame.
    pub fn start(
        input: Arc<dyn Wire>,
        output: Arc<dyn Wire>,
        mut program: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, record) = (stop.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Some(frame) = input.receive(LOOK) else { continue };
                if is_chatter(&frame) {
                    continue;
                }
                record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(frame.clone());
                for frame in program(&frame) {
                    output.send(&frame);
                }
            }
        });
        Self { stop, seen, thread: Some(thread) }
    }

    /// All frames that came in since the last call.
    pub fn seen(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Drop for Vnf {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("a function's thread panicked: its message is above");
        }
    }
}

/// Neighbour discovery, multicast listener reports and ARP, which kernels send of their own accord.
pub fn is_chatter(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x86, 0xdd]) => {
            let (source, destination) = (frame.get(22..24), frame.get(38));
            source.is_none_or(|octets| octets == [0xfe, 0x80]) || destination == Some(&0xff)
        }
        Some([0x08, 0x00]) => false,
        _ => true,
    }
}

/// The frame on its way back: its link-layer addresses are exchanged.
pub fn turned(mut frame: Vec<u8>) -> Vec<u8> {
    let (destination, rest) = frame.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
    frame
}

/// The frame with these link-layer addresses: from, to.
pub fn addressed(mut frame: Vec<u8>, source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame
}

/// A frame whose IPv6 header is followed by an SRH, taken apart: what a function that knows Segment Routing works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steered {
    /// The Ethernet header.
    pub ethernet: Vec<u8>,
    /// The IPv6 header. Its Payload Length is set anew by [`Steered::frame`].
    pub ipv6: Vec<u8>,
    /// The segment routing header.
    pub srh: SrhRepr,
    /// What follows.
    pub rest: Vec<u8>,
}

impl Steered {
    /// Takes a frame apart; `None` if it is another one.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
        let ip = Ipv6Packet::new_checked(packet).ok()?;
        if ethernet[12..] != [0x86, 0xdd] || ip.next_header() != segue_wire::protocol::ROUTING {
            return None;
        }
        let srh = Srh::new_checked(ip.payload()).ok()?;
        let rest = srh.payload().to_vec();
        let srh = SrhRepr::parse(&srh).ok()?;
        Some(Self { ethernet: ethernet.to_vec(), ipv6: packet[..IPV6].to_vec(), srh, rest })
    }

    /// Puts it together again.
    ///
    /// # Panics
    ///
    /// When the SRH cannot be written: no segment, or more than it holds.
    pub fn frame(&self) -> Vec<u8> {
        let srh = PacketBuilder::new().srh(self.srh.clone()).payload(&self.rest).build();
        let mut frame = [self.ethernet.as_slice(), &self.ipv6, &srh].concat();
        frame[ETHERNET + IPV6] = self.srh.next_header;
        let length = u16::try_from(srh.len()).expect("a packet");
        frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
        frame
    }

    /// The segments that are still to visit behind the active one, in the order of visiting.
    pub fn remaining(&self) -> Vec<Ipv6Addr> {
        let left = usize::from(self.srh.segments_left).min(self.srh.segments.len());
        self.srh.segments[..left].iter().rev().copied().collect()
    }

    /// Replaces them.
    pub fn set_remaining(&mut self, remaining: &[Ipv6Addr]) {
        let left = usize::from(self.srh.segments_left).min(self.srh.segments.len());
        self.srh.segments.splice(..left, remaining.iter().rev().copied());
        self.srh.segments_left = u8::try_from(remaining.len()).expect("not so many segments");
    }

    /// What End does (RFC 8986 section 4.1): on to the next segment. The hop limit stays.
    ///
    /// # Panics
    ///
    /// When no segment is left.
    pub fn advance(&mut self) {
        self.srh.segments_left -= 1;
        let next = self.srh.segments[usize::from(self.srh.segments_left)];
        self.ipv6[24..40].copy_from_slice(&next.octets());
    }
}
