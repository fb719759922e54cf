//! The packets that `firewall explain` is asked about: by fields, in hexadecimal, from capture files.

use std::io::Read;
use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail};
use segue_classifier::frame::{Arrival, Fault, Unlabelled, read, without_labels};
use segue_classifier::{Field, Key};
use segue_model::node::{NodeState, Sid};

use crate::args::{PacketArgs, StateArg};

/// A packet before the rules.
pub struct Asked {
    /// Where it is from: `packet 3`; empty for one given by its fields.
    pub name: String,
    /// What rules look at, or why they do not.
    pub key: Result<Key, Fault>,
    /// What else is to be said.
    pub notes: Vec<String>,
}

/// Numbers that stand for the node's interfaces while rules are explained.
pub fn interfaces(state: &NodeState, packet: &PacketArgs) -> Vec<String> {
    let mut names: Vec<String> = state.ports.iter().map(|port| port.name.clone()).collect();
    for name in packet.ingress.iter().chain(&packet.egress) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// All packets that are asked about.
pub fn asked(state: &NodeState, firewall: &str, packet: &PacketArgs) -> Result<Vec<Asked>> {
    let names = interfaces(state, packet);
    let index = |name: &Option<String>| {
        let position = name.as_ref().and_then(|name| names.iter().position(|known| known == name));
        position.map_or(0, |position| position as u32 + 1)
    };
    let (ingress, egress) = (index(&packet.ingress), index(&packet.egress));
    let prefixes = state.domain.sid_blocks.iter().chain(state.sids.iter().map(|sid| &sid.sid));
    // All SIDs of RFC 9602 lie in 5f00::/16.
    let segments: Vec<(u128, u8)> =
        prefixes.map(|prefix| (prefix.network().into(), prefix.prefix_len())).chain([(0x5f00 << 112, 16)]).collect();
    let of_frame = |name: String, frame: &[u8]| {
        let (labels, frame) = match without_labels(&with_ethernet(frame)) {
            Ok(None) => (Vec::new(), with_ethernet(frame)),
            Ok(Some(Unlabelled { stack, frame })) => (stack, frame),
            Err(fault) => return Asked { name, key: Err(fault), notes: Vec::new() },
        };
        let arrival = Arrival { ingress, sid: false, segments: &segments, labels: &labels };
        let mut asked = Asked { name, key: read(&frame, arrival), notes: Vec::new() };
        if let Ok(key) = &mut asked.key {
            asked.notes = match labels.first() {
                Some(own) => at_label(state, firewall, own >> 12),
                None => at_sid(state, firewall, key),
            };
            key.set(Field::Egress, egress.into());
            before_rules(key, packet);
        }
        asked
    };
    if let Some(text) = &packet.hex {
        let text = if text == "-" { std::io::read_to_string(std::io::stdin().lock())? } else { text.clone() };
        return Ok(vec![of_frame("the packet".to_owned(), &octets(&text)?)]);
    }
    if let Some(path) = &packet.pcap {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        file.with_context(|| format!("{}: give a file that can be read", path.display()))?;
        let frames = segue_api::pcap::frames(&bytes)
            .map_err(|reason| anyhow!("{}: {reason}; give a capture of Ethernet frames", path.display()))?;
        let count = frames.len();
        if let Some(number) = packet.number.filter(|number| !(1..=count).contains(number)) {
            bail!("{}: there is no packet {number}; the file has {count}", path.display());
        }
        let numbered = frames.iter().enumerate().map(|(index, frame)| (index + 1, frame));
        let chosen = numbered.filter(|(number, _)| packet.number.is_none_or(|wanted| wanted == *number));
        return Ok(chosen.map(|(number, frame)| of_frame(format!("packet {number}"), frame)).collect());
    }
    let mut key = by_fields(packet)?;
    key.set(Field::Ingress, ingress.into());
    key.set(Field::Egress, egress.into());
    let notes = match packet.labels.first() {
        Some(own) => {
            let mut stack: Vec<u32> = packet.labels.iter().map(|entry| entry.0).collect();
            stack.iter_mut().last().into_iter().for_each(|last| *last |= 0x100);
            key.set_labels(&stack);
            at_label(state, firewall, own.0 >> 12)
        }
        None if packet.segments.is_empty() => Vec::new(),
        None => at_sid(state, firewall, &mut key),
    };
    before_rules(&mut key, packet);
    Ok(vec![Asked { name: String::new(), key: Ok(key), notes }])
}

/// What is known beside the packet's octets.
fn before_rules(key: &mut Key, packet: &PacketArgs) {
    key.set(Field::Mark, packet.mark.into());
    let state = match packet.state {
        StateArg::Invalid => 1,
        StateArg::Established => 2,
        StateArg::Related => 4,
        StateArg::New => 8,
        StateArg::Untracked => 64,
    };
    key.set(Field::ConnectionState, state);
    if !matches!(packet.state, StateArg::Invalid | StateArg::Untracked) {
        key.set(Field::ConnectionDirection, packet.reply.into());
    }
}

/// The active SID, if the packet goes to one of this firewall; what to say if not.
fn at_sid(state: &NodeState, firewall: &str, key: &mut Key) -> Vec<String> {
    let Some(destination) = key.get(Field::OuterDestination) else { return Vec::new() };
    let address = std::net::Ipv6Addr::from_bits(destination);
    let mut sids: Vec<&Sid> = state.sids.iter().filter(|sid| sid.sid.contains(&address)).collect();
    sids.sort_by_key(|sid| sid.sid.prefix_len());
    match sids.last() {
        Some(sid) if sid.firewall.as_deref() == Some(firewall) => {
            key.set(Field::ActiveSid, destination);
            if key.get(Field::SrhSegmentsLeft).is_some_and(|left| left > 0) {
                return Vec::new();
            }
            vec![format!(
                "no segments are left behind {}: a firewall at a SID is not asked about such packets",
                sid.sid
            )]
        }
        Some(sid) => vec![format!("{} is a SID of this node without this firewall", sid.sid)],
        None => Vec::new(),
    }
}

/// What to say if the label is not one of this firewall.
fn at_label(state: &NodeState, firewall: &str, label: u32) -> Vec<String> {
    match state.labels.iter().find(|known| known.label == label) {
        Some(known) if known.firewall.as_deref() == Some(firewall) => Vec::new(),
        Some(_) => vec![format!("{label} is a label of this node without this firewall")],
        None => vec![format!("{label} is no label of this node; the rules are asked as if it were the firewall's")],
    }
}

fn by_fields(packet: &PacketArgs) -> Result<Key> {
    let mut key = Key::new();
    match (packet.source, packet.destination) {
        (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => {
            key.set(Field::SourceIpv4, source.to_bits().into());
            key.set(Field::DestinationIpv4, destination.to_bits().into());
            key.set(Field::FragmentOffset, 0);
        }
        (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => {
            key.set(Field::SourceIpv6, source.to_bits());
            key.set(Field::DestinationIpv6, destination.to_bits());
            key.set(Field::FlowLabel, 0);
            key.set(Field::OuterSource, source.to_bits());
            key.set(Field::OuterDestination, destination.to_bits());
        }
        _ => bail!("source and destination must be of one family"),
    }
    key.set(Field::Protocol, packet.protocol.0.into());
    key.set(Field::TrafficClass, 0);
    key.set(Field::Length, packet.length.into());
    key.set(Field::HopLimit, 64);
    for (field, port) in [(Field::SourcePort, packet.source_port), (Field::DestinationPort, packet.destination_port)] {
        if let Some(port) = port {
            key.set(field, port.into());
        }
    }
    match packet.protocol.0 {
        6 => key.set(Field::TcpFlags, packet.tcp_flags.into()),
        1 | 58 => {
            key.set(Field::IcmpType, packet.icmp_type.into());
            key.set(Field::IcmpCode, packet.icmp_code.into());
        }
        _ => {}
    }
    if !packet.segments.is_empty() {
        segments(&mut key, packet)?;
    }
    Ok(key)
}

/// The SRH, and the header that it is in.
fn segments(key: &mut Key, packet: &PacketArgs) -> Result<()> {
    let path = &packet.segments;
    let last = path.len() - 1;
    let left = packet.segments_left.map_or(last, usize::from);
    if path.len() > 127 || left > last {
        bail!("an SRH has at most 127 segments, and Segments Left is less than their number");
    }
    let ipv4 = matches!(packet.source, Some(IpAddr::V4(_)));
    let next_header = match packet.outer_source {
        Some(_) if ipv4 => 4,
        Some(_) => 41,
        None if ipv4 => bail!("an IPv4 packet has no SRH of its own; give --outer-source"),
        None => packet.protocol.0,
    };
    // The list is in reverse.
    let segment = |index: usize| path[last - index].to_bits();
    key.set(Field::SrhNextHeader, next_header.into());
    key.set(Field::SrhLength, 2 * path.len() as u128);
    key.set(Field::SrhSegmentsLeft, left as u128);
    key.set(Field::SrhLastEntry, last as u128);
    key.set(Field::SrhTag, packet.tag.into());
    key.set(Field::LastSid, segment(0));
    if left > 0 {
        key.set(Field::NextSid, segment(left - 1));
    }
    if left < last {
        key.set(Field::PreviousSid, segment(left + 1));
    }
    if let Some(source) = packet.outer_source {
        key.set(Field::OuterSource, source.to_bits());
    } else {
        key.set(Field::DestinationIpv6, segment(0));
    }
    key.set(Field::OuterDestination, segment(left));
    Ok(())
}

/// The octets of a hexadecimal dump: of tcpdump -x, tshark -x, xxd, hexdump -C, or without offsets.
fn octets(text: &str) -> Result<Vec<u8>> {
    let mut octets = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('|').next().unwrap_or_default().trim();
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let offset = first.strip_suffix(':').unwrap_or(first).trim_start_matches("0x");
        let is_hexadecimal = |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_hexdigit());
        let dump = is_hexadecimal(offset)
            && !rest.is_empty()
            && (first.ends_with(':') || rest.starts_with(' ') && offset.len() >= 4);
        // Behind two blanks the characters follow; hexdump has two blanks in the middle as well, but `|` before characters.
        let digits = match dump {
            true if text.contains('|') => rest,
            true => rest.trim_start().split("  ").next().unwrap_or_default(),
            false => line,
        };
        let digits: String = digits.chars().filter(|digit| !digit.is_whitespace() && *digit != ':').collect();
        // A line of tcpdump that tells what the packet is.
        if !dump && !is_hexadecimal(&digits) && text.contains("0x0000:") {
            continue;
        }
        if !digits.is_empty() && (!is_hexadecimal(&digits) || !digits.len().is_multiple_of(2)) {
            bail!("line {}: {digits:?} are no octets in hexadecimal; give two digits for each", index + 1);
        }
        let pairs = digits.as_bytes().chunks_exact(2).filter_map(|pair| std::str::from_utf8(pair).ok());
        octets.extend(pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()));
    }
    if octets.is_empty() { Err(anyhow!("there are no octets; give them in hexadecimal")) } else { Ok(octets) }
}

/// An IP packet without a frame gets one: tcpdump -x leaves it out.
fn with_ethernet(packet: &[u8]) -> Vec<u8> {
    let known = [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x88, 0xa8], [0x88, 0x47]];
    let framed = packet.get(12..14).is_some_and(|ethertype| known.iter().any(|known| known == ethertype));
    let ethertype = match packet.first().map_or(0, |octet| octet >> 4) {
        4 if !framed => [0x08, 0x00],
        6 if !framed => [0x86, 0xdd],
        _ => return packet.to_vec(),
    };
    [&[0; 12][..], &ethertype, packet].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_all_usual_dumps() {
        let wanted = [
            0x60, 0x00, 0x12, 0xab, 0xfd, 0x00, 0x41, 0x42, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a,
        ];
        for text in [
            "600012abfd0041420102030405060708090a",
            "60 00 12 ab fd 00 41 42\n01 02 03 04 05 06 07 08 09 0a\n",
            "60:00:12:ab:fd:00:41:42:01:02:03:04:05:06:07:08:09:0a",
            "10:00:00.1 IP6 fd00::1 > fd00::2: UDP\n\t0x0000:  6000 12ab fd00 4142 0102 0304 0506 0708  `.....AB........\n\t0x0010:  090a                                     ab\n",
            "0000  60 00 12 ab fd 00 41 42 01 02 03 04 05 06 07 08   `.....AB........\n0010  09 0a                                             ab\n",
            "00000000: 6000 12ab fd00 4142 0102 0304 0506 0708  `.....AB........\n00000010: 090a                                     ab\n",
            "00000000  60 00 12 ab fd 00 41 42  01 02 03 04 05 06 07 08  |`.....AB........|\n00000010  09 0a                                             |..|\n",
        ] {
            assert_eq!(octets(text).unwrap(), wanted, "{text}");
        }
        for text in ["", "6", "hello", "60 0"] {
            assert!(octets(text).is_err(), "{text}");
        }
    }

    #[test]
    fn packets_without_frame_get_one() {
        assert_eq!(with_ethernet(&[0x60, 1, 2])[12..], [0x86, 0xdd, 0x60, 1, 2]);
        assert_eq!(with_ethernet(&[0x45, 1, 2])[12..], [0x08, 0x00, 0x45, 1, 2]);
        let frame = [[0x60; 12].as_slice(), &[0x86, 0xdd, 0x60]].concat();
        assert_eq!(with_ethernet(&frame), frame);
    }
}
