//! Services one behind the other, as in a chain: what comes out is what went in.

use segue_service::{Driver, FlowKey};
use segue_services::corpus::{Random, Sender, xml};
use segue_wire::{Ipv6Packet, Ipv6Repr, LayerKind, PacketBuilder, SrhRepr, TcpSegment, parse_ip_packet};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Octets of each stream.
const VOLUME: usize = 2 << 20;
/// Packets that come at a time.
const BATCH: usize = 64;

/// A steering header with a segment for each of `count` services and one behind them.
fn steered(count: u16, inner: &[u8]) -> Vec<u8> {
    let path: Vec<_> = (1..=count + 1).map(|index| Ipv6Addr::new(0xfc00, 0, 0, index, 0, 0, 0, 0)).collect();
    let next_header = if inner[0] >> 4 == 4 { 4 } else { 41 };
    let outer = Ipv6Repr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), path[0]);
    PacketBuilder::new().ipv6(outer).srh(SrhRepr { next_header, ..SrhRepr::new(&path) }).payload(inner).build()
}

/// Runs batches through services in turn, a millisecond apart.
fn through(services: &[(&str, &str)], packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut batches: Vec<Vec<Vec<u8>>> = packets.chunks(BATCH).map(<[Vec<u8>]>::to_vec).collect();
    for (name, configuration) in services {
        let prepared = segue_services::find(name).unwrap().prepare(configuration, name).unwrap();
        let mut driver = Driver::prepared(&*prepared, 1);
        let mut out = Vec::new();
        for batch in &batches {
            driver.receive(batch);
            driver.advance(Duration::from_millis(1));
            out.push(driver.sent().into_iter().map(|sent| sent.octets).collect());
        }
        driver.stop();
        out.push(driver.sent().into_iter().map(|sent| sent.octets).collect());
        let counters = driver.counters();
        assert!(counters.dropped_received.is_empty() && counters.dropped_taken.is_empty(), "{name}: {counters:?}");
        batches = out;
    }
    batches.concat()
}

/// Hash and packets of each stream, put together from segments in the order in which they came.
fn streams(packets: &[Vec<u8>]) -> BTreeMap<FlowKey, ([u8; 32], usize, usize)> {
    let mut streams: BTreeMap<FlowKey, (Sha256, usize, usize)> = BTreeMap::new();
    for packet in packets {
        let inner = &packet[40 + (usize::from(packet[41]) + 1) * 8..];
        assert_eq!(Ipv6Packet::new_checked(packet.as_slice()).unwrap().total_length(), packet.len());
        let layers = parse_ip_packet(inner).unwrap();
        let segment = TcpSegment::new_checked(layers.last(LayerKind::Tcp).unwrap().bytes(inner)).unwrap();
        let (hash, octets, packets) = streams.entry(FlowKey::of(inner)).or_default();
        assert_eq!(segment.sequence_number() as usize, *octets, "in order, without a gap");
        hash.update(segment.payload());
        *octets += segment.payload().len();
        *packets += 1;
    }
    streams
        .into_iter()
        .map(|(flow, (hash, octets, packets))| (flow, (hash.finalize().into(), octets, packets)))
        .collect()
}

/// Two streams of text and two that do not shrink, of IPv4 and IPv6, mixed.
fn traffic(services: u16) -> Vec<Vec<u8>> {
    let senders = [
        (Sender { port: 1, segment: 700, ..Sender::IPV4 }, xml(VOLUME, 1)),
        (Sender { port: 2, segment: 333, ..Sender::IPV6 }, xml(VOLUME, 2)),
        (Sender { port: 3, segment: 1200, ..Sender::IPV4 }, Random::new(3).bytes(VOLUME)),
        (Sender { port: 4, segment: 90, ..Sender::IPV6 }, Random::new(4).bytes(VOLUME / 8)),
    ];
    let mut waiting: Vec<_> = senders.iter().map(|(sender, stream)| sender.inner(stream).into_iter()).collect();
    let mut random = Random::new(9);
    let mut packets = Vec::new();
    while !waiting.is_empty() {
        let index = random.below(waiting.len());
        match waiting[index].next() {
            Some(inner) => packets.push(steered(services, &inner)),
            None => drop(waiting.swap_remove(index)),
        }
    }
    packets
}

fn hashes(packets: &[Vec<u8>]) -> Vec<([u8; 32], usize)> {
    streams(packets).into_values().map(|(hash, octets, _)| (hash, octets)).collect()
}

#[test]
fn bulk_compress_decompress_debulk() {
    for algorithm in ["lz4", "lzo", "deflate", "zstd"] {
        let compress = format!("algorithm: {algorithm}");
        let services =
            [("bulk", "path_mtu: 4000"), ("compress", compress.as_str()), ("decompress", ""), ("debulk", "")];
        let packets = traffic(4);
        let arrived = through(&services, &packets);
        assert_eq!(arrived.len(), packets.len(), "each packet is there again");
        assert_eq!(hashes(&arrived), hashes(&packets), "{algorithm}");
    }
}

#[test]
fn compress_bulk_debulk_decompress() {
    let packets = traffic(4);
    let arrived = through(&[("compress", ""), ("bulk", ""), ("debulk", ""), ("decompress", "")], &packets);
    assert_eq!(arrived.len(), packets.len());
    assert_eq!(hashes(&arrived), hashes(&packets), "packets that shrank do not overtake those that did not");
}

#[test]
fn tcp_bulk_in_front_of_all() {
    let services = [
        ("tcp-bulk", "mode: queue\nlargest: 8000"),
        ("compress", ""),
        ("bulk", "path_mtu: 8500"),
        ("debulk", ""),
        ("decompress", ""),
    ];
    let packets = traffic(5);
    let arrived = through(&services, &packets);
    assert!(arrived.len() * 4 < packets.len(), "{} of {}", arrived.len(), packets.len());
    assert_eq!(hashes(&arrived), hashes(&packets));
}
