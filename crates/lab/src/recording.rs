//! Packets of several places into one pcapng file, in the order of time, up to some limit.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use segue_api::pcap::pcapng;
use segue_host::interrupt::{Interrupt, Second};

use crate::blocks::Packet;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// How long a packet is held for those of other nodes that were earlier.
const HOLD: Duration = Duration::from_millis(200);

/// When a capture ends, beside Ctrl-C; and how much of each packet is kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct End {
    /// After so many packets.
    pub count: Option<u64>,
    /// After so many seconds.
    pub seconds: Option<u64>,
    /// Before the file has more octets.
    pub octets: Option<u64>,
    /// Octets of each packet that are kept at most.
    pub snap_length: Option<usize>,
}

/// Writes packets as they come into one pcapng file, until the end, or nobody sends any more. Returns how many.
///
/// # Errors
/// If they cannot be written. A reader that goes away is no error.
pub(crate) fn write(packets: &Receiver<(String, Packet)>, end: End, sink: &mut dyn Write) -> std::io::Result<u64> {
    let interrupt = Interrupt::watch(Second::Ends);
    let begun = Instant::now();
    let mut interfaces: Vec<String> = Vec::new();
    let mut count = 0;
    let mut sink = Counted { sink, octets: 0, most: end.octets, snap_length: end.snap_length };
    sink.put(&pcapng::section())?;
    let over = |count, sink: &Counted<'_>| {
        interrupt.requested()
            || end.count.is_some_and(|most| count >= most)
            || sink.full()
            || end.seconds.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds))
    };
    // In the order of time, whichever agent is quicker to tell.
    let mut held: BTreeMap<(u64, u64), (Instant, String, Packet)> = BTreeMap::new();
    let mut arrived = 0;
    let mut open = true;
    while !over(count, &sink) && (open || !held.is_empty()) {
        match packets.recv_timeout(LOOK) {
            Ok((node, packet)) => {
                held.insert((packet.time, arrived), (Instant::now(), node, packet));
                arrived += 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        while !over(count, &sink) && held.first_entry().is_some_and(|first| !open || first.get().0.elapsed() >= HOLD) {
            let Some((_, (_, node, packet))) = held.pop_first() else { break };
            match put(&node, &packet, &mut interfaces, &mut sink) {
                // A reader that went away ends it.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(count),
                other => other?,
            }
            count += 1;
        }
    }
    // What came before the end is part of it.
    for (_, node, packet) in held.into_values() {
        if end.count.is_some_and(|most| count >= most) || sink.full() {
            break;
        }
        match put(&node, &packet, &mut interfaces, &mut sink) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(count),
            other => other?,
        }
        count += 1;
    }
    Ok(count)
}

/// The file, and how much of it there is.
struct Counted<'a> {
    sink: &'a mut dyn Write,
    octets: u64,
    most: Option<u64>,
    snap_length: Option<usize>,
}

impl Counted<'_> {
    fn put(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.octets += octets.len() as u64;
        self.sink.write_all(octets)?;
        self.sink.flush()
    }

    /// Whether the largest packet might not fit any more.
    fn full(&self) -> bool {
        const LARGEST: u64 = 10_000;
        self.most.is_some_and(|most| self.octets + LARGEST > most)
    }
}

/// Writes a packet, and its interface's description if it is the first one there.
fn put(node: &str, packet: &Packet, interfaces: &mut Vec<String>, sink: &mut Counted<'_>) -> std::io::Result<()> {
    let name = format!("{node}:{}", packet.port);
    let number = match interfaces.iter().position(|known| *known == name) {
        Some(number) => number,
        None => {
            sink.put(&pcapng::interface(&name))?;
            interfaces.push(name);
            interfaces.len() - 1
        }
    };
    let direction = if packet.outbound { pcapng::Direction::Outbound } else { pcapng::Direction::Inbound };
    let number = u32::try_from(number).unwrap_or_default();
    let length = u32::try_from(packet.frame.len()).unwrap_or_default();
    let kept = packet.frame.len().min(sink.snap_length.unwrap_or(usize::MAX));
    sink.put(&pcapng::packet(number, packet.time, &packet.frame[..kept], length, direction, ""))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn packets_are_written_in_the_order_of_time_as_many_as_asked_for() {
        let (sender, packets) = channel();
        for (node, time) in [("b", 3), ("a", 1), ("b", 4), ("a", 2)] {
            let packet =
                Packet { port: "p".into(), outbound: false, time, frame: vec![u8::try_from(time).unwrap(); 20] };
            sender.send((node.to_owned(), packet)).unwrap();
        }
        drop(sender);
        let mut file = Vec::new();
        assert_eq!(write(&packets, End { count: Some(3), ..End::default() }, &mut file).unwrap(), 3);
        let first: Vec<u8> = segue_api::pcap::frames(&file).unwrap().iter().map(|frame| frame[0]).collect();
        assert_eq!(first, [1, 2, 3]);
    }

    fn three_packets() -> Receiver<(String, Packet)> {
        let (sender, packets) = channel();
        for time in 1..=3 {
            let packet = Packet { port: "p".into(), outbound: false, time, frame: vec![7; 5000] };
            sender.send(("a".to_owned(), packet)).unwrap();
        }
        packets
    }

    #[test]
    fn a_file_has_limits_and_packets_are_cut() {
        let mut file = Vec::new();
        let end = End { octets: Some(18_000), ..End::default() };
        assert_eq!(write(&three_packets(), end, &mut file).unwrap(), 2);
        assert!(file.len() < 18_000, "{}", file.len());
        let mut file = Vec::new();
        assert_eq!(write(&three_packets(), End { snap_length: Some(64), ..End::default() }, &mut file).unwrap(), 3);
        let frames = segue_api::pcap::frames(&file).unwrap();
        assert!(frames.iter().all(|frame| *frame == [7; 64]), "{frames:?}");
        // Its own length is told all the same.
        assert!(file.windows(4).any(|octets| octets == 5000u32.to_le_bytes()));
    }
}
