//! LOG and NFLOG: lines as the kernel writes them, to the agent's log; and packets, to a pcapng file for each group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use segue_dataplane::{Dataplane, LogReader, LogRecord, LogRule, Reader};

use crate::actor::Handle;
use crate::node::Node;
use crate::problem::{Failure, Fault};
use crate::xdp;
use segue_api::pcap::pcapng;

/// How often a new configuration is looked for.
const REFRESH: Duration = Duration::from_secs(1);
/// Lines of LOG a second; the rest is counted.
const LINES_PER_SECOND: u32 = 200;
/// Octets of a pcapng file, then no more is written to it.
const FILE_MAX: u64 = 256 << 20;

/// IPv6 extension headers: protocol numbers.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
/// As many as the data plane looks at.
const EXTENSIONS_MAX: usize = 8;

/// What records mean, as of one generation.
struct Meaning {
    generation: u32,
    rules: BTreeMap<u32, LogRule>,
    links: BTreeMap<u32, String>,
    reader: LogReader,
}

/// Starts the thread that reads records. pcapng files are `nflog-GROUP.pcapng` in `directory`.
///
/// # Errors
/// A thread that cannot be started.
pub fn spawn(node: Handle<Node>, directory: PathBuf) -> io::Result<()> {
    std::thread::Builder::new().name("firewall-log".into()).spawn(move || follow(&node, directory)).map(drop)
}

fn follow(node: &Handle<Node>, directory: PathBuf) {
    let mut writer = Writer::new(directory);
    let mut meaning: Option<Meaning> = None;
    loop {
        let known = meaning.as_ref().map(|meaning| meaning.generation);
        // The agent's worker is gone: so is the agent.
        match node.call_blocking(move |node| refresh(node, known)) {
            Ok(Some(new)) => meaning = new.open(),
            Ok(None) => {}
            Err(failure) if failure.fault == Fault::Agent => return,
            Err(failure) => tracing::warn!("logs of firewalls: {failure}"),
        }
        let until = Instant::now() + REFRESH;
        let Some(meaning) = meaning.as_mut().filter(|meaning| !meaning.rules.is_empty()) else {
            std::thread::sleep(REFRESH);
            continue;
        };
        writer.begin_second();
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match meaning.reader.read(left) {
                Ok(records) => records.iter().for_each(|record| writer.write(record, meaning)),
                Err(error) => {
                    tracing::warn!("logs of firewalls: {error}");
                    std::thread::sleep(REFRESH);
                }
            }
        }
        writer.end_second(meaning.reader.lost());
    }
}

/// A new generation's meaning, but for the reader, which belongs to the thread.
struct Fresh {
    generation: u32,
    counters: Reader,
    links: BTreeMap<u32, String>,
    source: segue_dataplane::LogSource,
}

impl Fresh {
    fn open(self) -> Option<Meaning> {
        let Self { generation, counters, links, source } = self;
        // Not by the node's thread: it takes reading the rule files.
        let rules = counters.firewall_log_rules();
        match source.open() {
            Ok(reader) => Some(Meaning { generation, rules, links, reader }),
            Err(error) => {
                tracing::warn!("logs of firewalls: {error}");
                None
            }
        }
    }
}

fn refresh(node: &mut Node, known: Option<u32>) -> Result<Option<Fresh>, Failure> {
    let Some(plane) = node.plane.dataplane() else { return Ok(None) };
    let generation = plane.applied().map_or(0, |compiled| compiled.generation);
    if known == Some(generation) || generation == 0 {
        return Ok(None);
    }
    let failed = |error| Failure::one(Fault::Kernel, xdp::problem(&error));
    Ok(Some(Fresh {
        generation,
        counters: plane.reader(),
        links: links(plane),
        source: plane.firewall_log_source().map_err(failed)?,
    }))
}

fn links(plane: &Dataplane) -> BTreeMap<u32, String> {
    let ports = plane.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
    ports.iter().map(|port| (port.entry.ifindex, port.name.clone())).collect()
}

struct Writer {
    directory: PathBuf,
    files: BTreeMap<u16, Option<(File, u64)>>,
    lines: u32,
    suppressed: u64,
    full: BTreeSet<u16>,
}

impl Writer {
    fn new(directory: PathBuf) -> Self {
        Self { directory, files: BTreeMap::new(), lines: 0, suppressed: 0, full: BTreeSet::new() }
    }

    fn begin_second(&mut self) {
        self.lines = 0;
    }

    fn end_second(&mut self, lost: u64) {
        let lost = lost + std::mem::take(&mut self.suppressed);
        if lost > 0 {
            tracing::warn!(lost, "log records of firewalls were not written: too many at once");
        }
    }

    fn write(&mut self, record: &LogRecord, meaning: &Meaning) {
        // A rule of a generation that has gone meanwhile.
        let Some(rule) = meaning.rules.get(&record.rule) else { return };
        let ingress = meaning.links.get(&record.ingress).map_or("", String::as_str);
        match rule.group {
            None if self.lines >= LINES_PER_SECOND => self.suppressed += 1,
            None => {
                self.lines += 1;
                tracing::info!(target: "firewall", firewall = rule.firewall, "{}{}", rule.prefix, line(record, ingress));
            }
            Some(group) => self.packet(group, record, &rule.prefix),
        }
    }

    fn packet(&mut self, group: u16, record: &LogRecord, prefix: &str) {
        let path = self.directory.join(format!("nflog-{group}.pcapng"));
        let file = self.files.entry(group).or_insert_with(|| {
            let begun = File::create(&path).and_then(|mut file| {
                file.write_all(&pcapng::section())?;
                file.write_all(&pcapng::interface("nflog"))?;
                Ok((file, 0))
            });
            begun.map_err(|error| tracing::warn!("{}: {error}", path.display())).ok()
        });
        let Some((file, written)) = file else { return };
        let time = wall_clock(record.time_ns);
        let block = pcapng::packet(0, time, &record.bytes, record.length, pcapng::Direction::Inbound, prefix);
        if *written + block.len() as u64 > FILE_MAX {
            self.suppressed += 1;
            if self.full.insert(group) {
                tracing::warn!("{}: full; move it away and restart segued", path.display());
            }
            return;
        }
        match file.write_all(&block) {
            Ok(()) => *written += block.len() as u64,
            Err(_) => self.suppressed += 1,
        }
    }
}

/// Nanoseconds since 1970 of a time of CLOCK_MONOTONIC.
fn wall_clock(monotonic: u64) -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    wall.saturating_sub(now.saturating_sub(monotonic))
}

/// A packet as the kernel's LOG target writes it.
fn line(record: &LogRecord, ingress: &str) -> String {
    let mut out = format!("IN={ingress} OUT= ");
    let mac: Vec<String> = record.bytes.iter().take(14).map(|octet| format!("{octet:02x}")).collect();
    let _ = write!(out, "MAC={} ", mac.join(":"));
    let packet = record.bytes.get(record.offset..).unwrap_or_default();
    let _ = match record.family {
        4 => ipv4(packet, &mut out),
        _ => ipv6(packet, &mut out),
    };
    if record.mark != 0 {
        let _ = write!(out, "MARK=0x{:x} ", record.mark);
    }
    out.truncate(out.trim_end().len());
    out
}

fn number(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

fn ipv4(packet: &[u8], out: &mut String) -> Option<()> {
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let tos = packet.get(1)?;
    let _ = write!(out, "SRC={} DST={} LEN={} ", address(12)?, address(16)?, number(packet, 2)?);
    let _ =
        write!(out, "TOS=0x{:02X} PREC=0x{:02X} TTL={} ID={} ", tos & 0x1e, tos & 0xe0, packet[8], number(packet, 4)?);
    let fragment = number(packet, 6)?;
    for (bit, name) in [(0x8000, "CE "), (0x4000, "DF "), (0x2000, "MF ")] {
        if fragment & bit != 0 {
            out.push_str(name);
        }
    }
    if fragment & 0x1fff != 0 {
        let _ = write!(out, "FRAG:{} PROTO={} ", fragment & 0x1fff, packet[9]);
        return None;
    }
    upper(packet[9], packet.get(usize::from(packet[0] & 15) * 4..)?, out)
}

fn ipv6(packet: &[u8], out: &mut String) -> Option<()> {
    let address = |at: usize| {
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?);
        Some(address.segments().map(|segment| format!("{segment:04x}")).join(":"))
    };
    let word = u32::from_be_bytes(packet.get(..4)?.try_into().ok()?);
    let _ = write!(out, "SRC={} DST={} LEN={} ", address(8)?, address(24)?, 40 + u32::from(number(packet, 4)?));
    let _ = write!(out, "TC={} HOPLIMIT={} FLOWLBL={} ", word >> 20 & 0xff, packet[7], word & 0xf_ffff);
    let (mut protocol, mut at) = (packet[6], 40);
    // As the kernel's, which goes by all of them to what the packet carries.
    for _ in 0..EXTENSIONS_MAX {
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 * (usize::from(*packet.get(at + 1)?) + 1),
            AUTHENTICATION => 4 * (usize::from(*packet.get(at + 1)?) + 2),
            FRAGMENT => {
                let place = number(packet, at + 2)?;
                let more = if place & 1 != 0 { "INCOMPLETE " } else { "" };
                let id = u32::from_be_bytes(packet.get(at + 4..at + 8)?.try_into().ok()?);
                let _ = write!(out, "FRAG:{} {more}ID:{id:08x} ", place & 0xfff8);
                if place & 0xfff8 != 0 {
                    let _ = write!(out, "PROTO={} ", packet.get(at)?);
                    return None;
                }
                8
            }
            _ => break,
        };
        protocol = *packet.get(at)?;
        at += length;
    }
    upper(protocol, packet.get(at..)?, out)
}

fn upper(protocol: u8, octets: &[u8], out: &mut String) -> Option<()> {
    match protocol {
        6 => {
            let _ = write!(out, "PROTO=TCP SPT={} DPT={} ", number(octets, 0)?, number(octets, 2)?);
            let (reserved, flags) = (octets.get(12)? & 15, octets.get(13)?);
            let _ = write!(out, "WINDOW={} RES=0x{reserved:02x} ", number(octets, 14)?);
            let names = ["CWR ", "ECE ", "URG ", "ACK ", "PSH ", "RST ", "SYN ", "FIN "];
            names.iter().zip([7, 6, 5, 4, 3, 2, 1, 0]).filter(|(_, bit)| flags >> bit & 1 != 0).for_each(
                |(name, _)| {
                    out.push_str(name);
                },
            );
            let _ = write!(out, "URGP={} ", number(octets, 18)?);
        }
        17 | 136 => {
            let name = if protocol == 17 { "UDP" } else { "UDPLITE" };
            let _ = write!(out, "PROTO={name} SPT={} DPT={} ", number(octets, 0)?, number(octets, 2)?);
            let _ = write!(out, "LEN={} ", number(octets, 4)?);
        }
        1 | 58 => {
            let name = if protocol == 1 { "ICMP" } else { "ICMPv6" };
            let _ = write!(out, "PROTO={name} TYPE={} CODE={} ", octets.first()?, octets.get(1)?);
            if matches!((protocol, octets[0]), (1, 0 | 8) | (58, 128 | 129)) {
                let _ = write!(out, "ID={} SEQ={} ", number(octets, 4)?, number(octets, 6)?);
            }
        }
        other => {
            let _ = write!(out, "PROTO={other} ");
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

    use super::*;

    fn record(packet: PacketBuilder, family: u16, mark: u32) -> LogRecord {
        let bytes = packet.build();
        let length = bytes.len() as u32;
        LogRecord { time_ns: 0, rule: 1, ingress: 2, length, offset: 14, family, mark, bytes }
    }

    #[test]
    fn lines_are_the_kernels() {
        let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let six = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let packet = ethernet().ipv6(six).tcp(TcpRepr { window: 100, ..TcpRepr::new(4000, 80, 0x12) });
        assert_eq!(
            line(&record(packet, 6, 7), "eth0"),
            "IN=eth0 OUT= MAC=02:00:00:00:00:02:02:00:00:00:00:01:86:dd \
             SRC=fd00:0000:0000:0000:0000:0000:0000:0001 DST=fd00:0000:0000:0000:0000:0000:0000:0002 LEN=60 TC=0 HOPLIMIT=64 \
             FLOWLBL=0 PROTO=TCP SPT=4000 DPT=80 WINDOW=100 RES=0x00 ACK SYN URGP=0 MARK=0x7"
        );
        let path = ["fd00::2".parse().unwrap(), "fd00::3".parse().unwrap()];
        let steered = ethernet().ipv6(six).srh(SrhRepr::new(&path)).udp(UdpRepr::new(1, 53));
        let text = line(&record(steered, 6, 0), "eth0");
        assert!(text.ends_with("FLOWLBL=0 PROTO=UDP SPT=1 DPT=53 LEN=8"), "behind the SRH: {text}");
        let four = Ipv4Repr::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let text = line(&record(ethernet().ipv4(four).udp(UdpRepr::new(1, 53)), 4, 0), "eth0");
        assert!(text.contains("SRC=192.0.2.1 DST=192.0.2.2 LEN=28 TOS=0x00 PREC=0x00 TTL=64"), "{text}");
        assert!(text.ends_with("PROTO=UDP SPT=1 DPT=53 LEN=8"), "{text}");
    }

    #[test]
    fn a_cut_packet_is_a_short_line() {
        let mut record = record(PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).payload(&[0x60]), 6, 0);
        record.offset = 14;
        assert!(line(&record, "").starts_with("IN= OUT= MAC="));
    }
}
