//! Counts as IPFIX messages (RFC 7011), by UDP: octets and packets since the last export of each flow, SID, and segment list or stack of
//! labels.
//!
//! Information elements are IANA's; those of SRv6 are of RFC 9487, the list of segments is a `basicList` (RFC 6313). Templates come with
//! every export, so that a collector that starts later waits one interval. Nothing is sent again: that a message was lost shows in the sequence numbers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use segue_wire::mpls::ENTRY_LENGTH;
use segue_wire::{FiveTuple, MplsEntry};

/// Octets of a message header.
const HEADER: usize = 16;
/// Octets of a set's header.
const SET: usize = 4;
/// Set identifier of templates, and of options templates.
const TEMPLATES: u16 = 2;
const OPTIONS: u16 = 3;

/// Our templates, whose identifiers are those of their data sets.
const FLOW_IPV6: u16 = 256;
const FLOW_IPV4: u16 = 257;
const SID: u16 = 258;
const LIST: u16 = 259;
const SAMPLING: u16 = 260;
const STACK: u16 = 261;

/// Information elements: number and length.
type Element = (u16, u16);
const OCTETS: Element = (1, 8);
const PACKETS: Element = (2, 8);
const PROTOCOL: Element = (4, 1);
const SOURCE_PORT: Element = (7, 2);
const SOURCE_IPV4: Element = (8, 4);
const DESTINATION_PORT: Element = (11, 2);
const DESTINATION_IPV4: Element = (12, 4);
const SOURCE_IPV6: Element = (27, 16);
const DESTINATION_IPV6: Element = (28, 16);
const EXPORTED_MESSAGES: Element = (41, 8);
const OBSERVATION_DOMAIN: Element = (149, 4);
const START: Element = (152, 8);
const END: Element = (153, 8);
const SAMPLED: Element = (305, 4);
const NOT_SAMPLED: Element = (306, 4);
/// `mplsLabelStackSection` (RFC 5477).
const LABEL_STACK: Element = (316, VARIABLE);
const SEGMENT: Element = (494, 16);
const ACTIVE_SEGMENT: Element = (495, 16);
const SEGMENT_LIST: Element = (496, VARIABLE);
/// The length in a template of what says its own.
const VARIABLE: u16 = 65_535;
/// `basicList`: all of these, in this order (RFC 6313 section 4.4.1).
const ORDERED: u8 = 4;

const TAIL: [Element; 4] = [OCTETS, PACKETS, START, END];

/// What is counted in one record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delta {
    /// Octets since the last export.
    pub octets: u64,
    /// Packets since then.
    pub packets: u64,
}

impl Delta {
    /// What is more than in another one.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { octets: self.octets.saturating_sub(other.octets), packets: self.packets.saturating_sub(other.packets) }
    }
}

/// A record to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A flow.
    Flow(FiveTuple, Delta),
    /// Packets to a SID.
    Sid(Ipv6Addr, Delta),
    /// Packets with a segment list, in the order of visits.
    List(Vec<Ipv6Addr>, Delta),
    /// Packets with a stack of labels, in the order of visits.
    Stack(Vec<u32>, Delta),
}

/// The time of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// When it begins, milliseconds since 1970.
    pub start: u64,
    /// When it ends.
    pub end: u64,
}

/// Makes messages.
#[derive(Debug)]
pub struct Encoder {
    /// The observation domain.
    domain: u32,
    /// Octets of a message at most.
    largest: usize,
    one_in: u32,
    /// Data records so far.
    sequence: u32,
    messages: u64,
}

impl Encoder {
    /// For an observation domain, with messages of so many octets at most (no less than 512).
    #[must_use]
    pub fn new(domain: u32, largest: usize, one_in: u32) -> Self {
        Self { domain, largest: largest.clamp(512, 65_507), one_in, sequence: 0, messages: 0 }
    }

    /// The messages of one export: templates, how packets were sampled, records.
    pub fn export(&mut self, records: &[Record], interval: Interval) -> Vec<Vec<u8>> {
        let mut writer =
            Writer { encoder: self, interval, done: Vec::new(), message: Vec::new(), set: None, records: 0 };
        writer.set(TEMPLATES, &templates());
        writer.set(OPTIONS, &options_template());
        let mut sampling = Vec::new();
        sampling.extend(writer.encoder.domain.to_be_bytes());
        sampling.extend(1u32.to_be_bytes());
        sampling.extend(writer.encoder.one_in.saturating_sub(1).to_be_bytes());
        sampling.extend(writer.encoder.messages.to_be_bytes());
        writer.record(SAMPLING, &sampling);
        for record in records {
            let (template, octets) = encoded(record, interval);
            writer.record(template, &octets);
        }
        writer.finish()
    }
}

struct Writer<'a> {
    encoder: &'a mut Encoder,
    interval: Interval,
    done: Vec<Vec<u8>>,
    message: Vec<u8>,
    /// The set that is open: its template, and where it begins.
    set: Option<(u16, usize)>,
    /// Data records in this message.
    records: u32,
}

impl Writer<'_> {
    /// A set of its own.
    fn set(&mut self, identifier: u16, content: &[u8]) {
        self.room(SET + content.len());
        self.open(identifier);
        self.message.extend_from_slice(content);
        self.close();
    }

    fn record(&mut self, template: u16, octets: &[u8]) {
        let is_open = self.set.is_some_and(|(open, _)| open == template);
        self.room(octets.len() + if is_open { 0 } else { SET });
        if self.set.is_none_or(|(open, _)| open != template) {
            self.close();
            self.open(template);
        }
        self.message.extend_from_slice(octets);
        self.records += 1;
    }

    /// Ends the message if so many octets do not fit.
    fn room(&mut self, octets: usize) {
        if self.message.len() + octets > self.encoder.largest {
            self.end();
        }
        if self.message.is_empty() {
            self.message.resize(HEADER, 0);
        }
    }

    fn open(&mut self, identifier: u16) {
        self.set = Some((identifier, self.message.len()));
        self.message.extend(identifier.to_be_bytes());
        self.message.extend([0; 2]);
    }

    fn close(&mut self) {
        if let Some((_, at)) = self.set.take() {
            let length = u16::try_from(self.message.len() - at).unwrap_or(u16::MAX);
            self.message[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn end(&mut self) {
        self.close();
        if self.message.len() <= HEADER {
            return;
        }
        let length = u16::try_from(self.message.len()).unwrap_or(u16::MAX);
        let seconds = u32::try_from(self.interval.end / 1000).unwrap_or(u32::MAX);
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&10u16.to_be_bytes());
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..8].copy_from_slice(&seconds.to_be_bytes());
        header[8..12].copy_from_slice(&self.encoder.sequence.to_be_bytes());
        header[12..].copy_from_slice(&self.encoder.domain.to_be_bytes());
        self.message[..HEADER].copy_from_slice(&header);
        self.encoder.sequence = self.encoder.sequence.wrapping_add(self.records);
        self.encoder.messages += 1;
        self.records = 0;
        self.done.push(std::mem::take(&mut self.message));
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        self.end();
        self.done
    }
}

fn template(identifier: u16, elements: &[Element]) -> Vec<u8> {
    let mut octets = Vec::new();
    octets.extend(identifier.to_be_bytes());
    octets.extend(u16::try_from(elements.len()).unwrap_or(0).to_be_bytes());
    for (number, length) in elements {
        octets.extend(number.to_be_bytes());
        octets.extend(length.to_be_bytes());
    }
    octets
}

fn templates() -> Vec<u8> {
    let with_tail = |keys: &[Element]| [keys, &TAIL].concat();
    [
        template(FLOW_IPV6, &with_tail(&[SOURCE_IPV6, DESTINATION_IPV6, SOURCE_PORT, DESTINATION_PORT, PROTOCOL])),
        template(FLOW_IPV4, &with_tail(&[SOURCE_IPV4, DESTINATION_IPV4, SOURCE_PORT, DESTINATION_PORT, PROTOCOL])),
        template(SID, &with_tail(&[ACTIVE_SEGMENT])),
        template(LIST, &with_tail(&[SEGMENT_LIST])),
        template(STACK, &with_tail(&[LABEL_STACK])),
    ]
    .concat()
}

fn options_template() -> Vec<u8> {
    let mut octets = template(SAMPLING, &[OBSERVATION_DOMAIN, SAMPLED, NOT_SAMPLED, EXPORTED_MESSAGES]);
    // Behind the number of fields: how many of them are the scope.
    octets.splice(4..4, 1u16.to_be_bytes());
    octets
}

fn encoded(record: &Record, interval: Interval) -> (u16, Vec<u8>) {
    let mut octets = Vec::new();
    let (template, delta) = match record {
        Record::Flow(tuple, delta) => {
            let template = match (tuple.source, tuple.destination) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    octets.extend(source.octets());
                    octets.extend(destination.octets());
                    FLOW_IPV4
                }
                (source, destination) => {
                    for address in [source, destination] {
                        octets.extend(match address {
                            IpAddr::V6(address) => address.octets(),
                            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                        });
                    }
                    FLOW_IPV6
                }
            };
            let (source, destination) = tuple.ports.unwrap_or_default();
            octets.extend(source.to_be_bytes());
            octets.extend(destination.to_be_bytes());
            octets.push(tuple.protocol);
            (template, delta)
        }
        Record::Sid(sid, delta) => {
            octets.extend(sid.octets());
            (SID, delta)
        }
        Record::List(segments, delta) => {
            let length = 5 + segments.len() * 16;
            // The long form of a length, which holds any (RFC 7011 section 7).
            octets.push(255);
            octets.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            octets.push(ORDERED);
            octets.extend(SEGMENT.0.to_be_bytes());
            octets.extend(SEGMENT.1.to_be_bytes());
            segments.iter().for_each(|segment| octets.extend(segment.octets()));
            (LIST, delta)
        }
        Record::Stack(labels, delta) => {
            octets.push(255);
            octets.extend(u16::try_from(labels.len() * ENTRY_LENGTH).unwrap_or(u16::MAX).to_be_bytes());
            for (index, label) in labels.iter().enumerate() {
                // TC and TTL are each packet's own, and 0 here.
                let bottom_of_stack = index + 1 == labels.len();
                let entry = MplsEntry { label: *label, bottom_of_stack, ..MplsEntry::default() };
                octets.extend(entry.to_bytes().unwrap_or_default());
            }
            (STACK, delta)
        }
    };
    for value in [delta.octets, delta.packets, interval.start, interval.end] {
        octets.extend(value.to_be_bytes());
    }
    (template, octets)
}

/// Sends messages to a collector, and waits for nothing.
#[derive(Debug)]
pub(super) struct Exporter {
    encoder: Encoder,
    collector: SocketAddr,
    /// None: it could not be reached yet.
    socket: Option<UdpSocket>,
}

impl Exporter {
    pub(super) fn new(encoder: Encoder, collector: SocketAddr) -> Self {
        Self { encoder, collector, socket: None }
    }

    /// Sends all. Returns how many messages left, and how many did not.
    pub(super) fn export(&mut self, records: &[Record], interval: Interval) -> (u64, u64) {
        if self.socket.is_none() {
            self.socket = self.connected().ok();
        }
        let (mut sent, mut failed) = (0, 0);
        for message in self.encoder.export(records, interval) {
            match self.socket.as_ref().map(|socket| socket.send(&message)) {
                // The last one was refused: a collector that was not there may be there now.
                Some(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    match self.socket.as_ref().is_some_and(|socket| socket.send(&message).is_ok()) {
                        true => sent += 1,
                        false => failed += 1,
                    }
                }
                Some(Ok(_)) => sent += 1,
                _ => failed += 1,
            }
        }
        if failed > 0 {
            self.socket = None;
        }
        (sent, failed)
    }

    fn connected(&self) -> std::io::Result<UdpSocket> {
        let any: SocketAddr = match self.collector {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.collector)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Record {
        let tuple = FiveTuple {
            source: "fd00::1".parse().unwrap(),
            destination: "fd00::2".parse().unwrap(),
            protocol: 17,
            ports: Some((port, 53)),
        };
        Record::Flow(tuple, Delta { octets: 100, packets: 1 })
    }

    /// Sets of a message: identifier and content.
    fn sets(message: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let word = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
        let (mut at, mut found) = (HEADER, Vec::new());
        while at < message.len() {
            let length = word(at + 2);
            found.push((word(at) as u16, message[at + SET..at + length].to_vec()));
            at += length;
        }
        assert_eq!((at, word(2)), (message.len(), message.len()));
        found
    }

    #[test]
    fn a_stack_of_labels_is_one_element_of_its_own_length() {
        let record = Record::Stack(vec![16_001, 16_046], Delta { octets: 300, packets: 2 });
        let messages = Encoder::new(7, 512, 1).export(&[record], Interval { start: 1, end: 2 });
        let sets = sets(&messages[0]);
        let stack: Vec<_> =
            sets.iter().filter(|(identifier, _)| *identifier == STACK).map(|(_, content)| content).collect();
        // 255 and the length in two octets (RFC 7011 section 7); then entries, of which the last has the S bit.
        let entries = [255, 0, 8, 0x03, 0xe8, 0x10, 0, 0x03, 0xea, 0xe1, 0];
        let rest = [300u64, 2, 1, 2].map(u64::to_be_bytes).concat();
        assert_eq!(stack, [&[&entries[..], &rest].concat()]);
        let template = template(STACK, &[(316, VARIABLE), OCTETS, PACKETS, START, END]);
        assert!(sets[0].1.windows(template.len()).any(|part| part == template), "the collector knows it");
    }

    #[test]
    fn messages_fit_and_their_sequence_counts_data_records() {
        let mut encoder = Encoder::new(7, 512, 10);
        let records: Vec<_> = (0..20).map(flow).collect();
        let interval = Interval { start: 1_000, end: 11_999 };
        let mut expected = 0u32;
        for _ in 0..3 {
            let messages = encoder.export(&records, interval);
            let mut found = 0;
            for message in &messages {
                assert!(message.len() <= 512, "{}", message.len());
                assert_eq!(message[..2], [0, 10]);
                assert_eq!(message[4..8], 11u32.to_be_bytes());
                assert_eq!(message[8..12], expected.to_be_bytes());
                assert_eq!(message[12..16], 7u32.to_be_bytes());
                let data = sets(message).into_iter().filter(|(identifier, _)| *identifier >= 256);
                for (identifier, content) in data {
                    let length = if identifier == SAMPLING { 20 } else { 69 };
                    assert_eq!(content.len() % length, 0);
                    expected += (content.len() / length) as u32;
                    found += content.len() / length;
                }
            }
            assert_eq!(found, 21, "all flows, and how packets were sampled");
            assert_eq!(sets(&messages[0])[0].0, TEMPLATES, "a collector that starts later knows them");
        }
    }
}
