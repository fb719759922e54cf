//! Copies of packets on chosen ports: AF_PACKET sees nothing of what XDP redirects.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

use libbpf_rs::{MapHandle, PerfBuffer, PerfBufferBuilder};
use segue_abi::{self as abi, Outcome};
use zerocopy::FromBytes;

use super::Dataplane;
use crate::Error;
use crate::compiled::CompiledPort;

/// Pages of the ring of each CPU.
const PAGES: usize = 256;

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// In by the port.
    Received,
    /// Out by the port.
    Sent,
}

/// A copy of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Nanoseconds since boot (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// The port.
    pub ifindex: u32,
    /// Which way.
    pub direction: Direction,
    /// Sent packets: what became of it.
    pub outcome: Option<Outcome>,
    /// Octets of the frame.
    pub length: u32,
    /// The frame from its Ethernet header, perhaps cut.
    pub bytes: Vec<u8>,
}

/// Where captured packets come from. It can go to another thread, which opens it there.
#[derive(Debug)]
pub struct CaptureSource(MapHandle);

/// Reads captured packets. There is one reader at a time: a second one takes the packets from the first.
pub struct CaptureReader {
    ring: PerfBuffer<'static>,
    packets: mpsc::Receiver<CapturedPacket>,
    lost: mpsc::Receiver<u64>,
}

impl fmt::Debug for CaptureReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureReader").finish_non_exhaustive()
    }
}

impl CaptureSource {
    /// Opens the rings.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn open(self) -> Result<CaptureReader, Error> {
        let (sender, packets) = mpsc::channel();
        let (lost_sender, lost) = mpsc::channel();
        let ring = PerfBufferBuilder::new(&self.0)
            .pages(PAGES)
            .sample_cb(move |_cpu, sample: &[u8]| {
                if let Some(packet) = parse(sample) {
                    // The receiver lives as long as the ring.
                    let _ = sender.send(packet);
                }
            })
            .lost_cb(move |_cpu, count| {
                let _ = lost_sender.send(count);
            })
            .build()
            .map_err(|source| Error::Capture { source })?;
        Ok(CaptureReader { ring, packets, lost })
    }
}

impl CaptureReader {
    /// Waits at most `timeout` for packets and returns what has come, by time.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn read(&mut self, timeout: Duration) -> Result<Vec<CapturedPacket>, Error> {
        match self.ring.poll(timeout) {
            Err(source) if source.kind() != libbpf_rs::ErrorKind::Interrupted => return Err(Error::Capture { source }),
            _ => {}
        }
        let mut packets: Vec<CapturedPacket> = self.packets.try_iter().collect();
        // Each CPU has a ring of its own.
        packets.sort_by_key(|packet| packet.time_ns);
        Ok(packets)
    }

    /// Packets that did not fit the rings since the last call.
    pub fn lost(&mut self) -> u64 {
        self.lost.try_iter().sum()
    }
}

fn parse(sample: &[u8]) -> Option<CapturedPacket> {
    let (head, bytes) = abi::Capture::read_from_prefix(sample).ok()?;
    let direction = if head.direction == 0 { Direction::Received } else { Direction::Sent };
    // The kernel rounds samples up.
    let bytes = bytes.get(..head.captured as usize)?.to_vec();
    let outcome = Outcome::from_number(head.outcome).filter(|_| direction == Direction::Sent);
    Some(CapturedPacket { time_ns: head.time, ifindex: head.ifindex, direction, outcome, length: head.length, bytes })
}

impl Dataplane {
    /// Starts or stops copying the packets of a port. It lasts until it is stopped, also across an apply or a restart.
    ///
    /// # Errors
    /// [`Error::PortUnknown`]; [`Error::Map`].
    pub fn set_capture(&mut self, port: &str, on: bool) -> Result<(), Error> {
        self.set_captures(&[port], on)
    }

    /// As [`Dataplane::set_capture`] for several ports.
    ///
    /// # Errors
    /// [`Error::PortUnknown`]: nothing was done. [`Error::Map`]: some may be copied.
    pub fn set_captures(&mut self, ports: &[impl AsRef<str>], on: bool) -> Result<(), Error> {
        let active = self.active.clone();
        let compiled = active.as_ref().map(|record| &record.compiled);
        let known = compiled.map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        let by_name: HashMap<&str, &CompiledPort> = known.iter().map(|port| (port.name.as_str(), port)).collect();
        let unknown = ports.iter().map(AsRef::as_ref).find(|port| !by_name.contains_key(port));
        if let Some(name) = unknown.filter(|_| on) {
            return Err(Error::PortUnknown { name: name.to_owned() });
        }
        let flag = abi::SEGUE_PORT_CAPTURE as u8;
        let mut changed = false;
        for name in ports.iter().map(AsRef::as_ref) {
            let differs = if on { self.captured.insert(name.to_owned()) } else { self.captured.remove(name) };
            // An apply may have taken the port away; it must not be captured when it comes back.
            let (Some(port), true) = (by_name.get(name), differs) else { continue };
            let slot = port.slot(self.generation());
            let mut entry: abi::Port = self.maps.read_array("ports", slot)?;
            entry.flags = if on { entry.flags | flag } else { entry.flags & !flag };
            self.maps.write("ports", &slot, &entry)?;
            changed = true;
        }
        if !changed {
            return Ok(());
        }
        let captures = known.iter().filter(|port| self.captured.contains(&port.name)).count() as u32;
        self.life.control(&self.maps, |control| control.captures = captures)
    }

    /// Where the copies come from.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn capture_source(&self) -> Result<CaptureSource, Error> {
        let handle = MapHandle::try_from(self.maps.get("captures")?).map_err(|source| Error::Capture { source })?;
        Ok(CaptureSource(handle))
    }

    /// The ports with the flag set in the active generation.
    pub(super) fn read_captured(&self) -> Result<BTreeSet<String>, Error> {
        let mut captured = BTreeSet::new();
        let Some(active) = self.applied() else { return Ok(captured) };
        for port in &active.ports {
            let entry: abi::Port = self.maps.read_array("ports", port.slot(active.generation))?;
            if u32::from(entry.flags) & abi::SEGUE_PORT_CAPTURE != 0 {
                captured.insert(port.name.clone());
            }
        }
        Ok(captured)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn sample_is_cut_to_what_was_captured() {
        let head = abi::Capture { time: 5, ifindex: 3, length: 90, captured: 4, direction: 1, outcome: 1 };
        let sample = [head.as_bytes(), &[1, 2, 3, 4, 0, 0, 0, 0]].concat();
        let packet = parse(&sample).expect("a packet");
        assert_eq!(packet.bytes, [1, 2, 3, 4]);
        assert_eq!((packet.direction, packet.outcome), (Direction::Sent, Some(Outcome::ToFunction)));
        assert_eq!(parse(&sample[..10]), None);
        assert_eq!(parse(&sample[..26]), None);
    }
}
