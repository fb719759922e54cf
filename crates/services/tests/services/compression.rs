//! `compress` and `decompress`: there and back, ratios, and what must not be taken.

use segue_service::driver::{srv6, srv6_around};
use segue_service::{Driver, Reason, Snapshot};
use segue_services::compression::{Algorithm, Decoder, Dictionary, Encoder};
use segue_services::corpus::{self, Random, Sender};
use segue_wire::layer::protocol;
use segue_wire::{IpCompRepr, Ipv6Packet, parse_ip_packet};
use std::path::Path;

/// Octets of each sort that ratios are measured with.
const VOLUME: usize = 1 << 20;

/// Packets of 1,500 octets before they are steered, as in the thesis's measurement.
const FULL: Sender = Sender { segment: 1448, ..Sender::IPV4 };

/// XML of Debian's packages iso-codes, shared-mime-info, xkb-data and libwireshark-data.
const SYSTEM_FILES: &[(&str, &str)] = &[
    ("iso_639-3.xml", "/usr/share/xml/iso-codes/iso_639-3.xml"),
    ("freedesktop.org.xml", "/usr/share/mime/packages/freedesktop.org.xml"),
    ("evdev.xml", "/usr/share/X11/xkb/rules/evdev.xml"),
    ("TGPP.xml", "/usr/share/wireshark/diameter/TGPP.xml"),
];

fn driver(service: &str, configuration: &str) -> Driver {
    let prepared = segue_services::find(service).unwrap().prepare(configuration, "test.yaml");
    Driver::prepared(&*prepared.unwrap_or_else(|error| panic!("{configuration}: {error}")), 1)
}

/// Packets through `compress` and `decompress`: what came out of the first, of the second, and the first's counters.
fn there_and_back(compress: &str, decompress: &str, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Snapshot) {
    let (mut there, mut back) = (driver("compress", compress), driver("decompress", decompress));
    there.receive(packets);
    let compressed: Vec<_> = there.sent().into_iter().map(|sent| sent.octets).collect();
    // The segment list of the tests ends behind the first service; the second gets the packets as if it were on the list before.
    let again: Vec<_> =
        compressed.iter().zip(packets).map(|(packet, original)| with_steering_of(original, packet)).collect();
    back.receive(&again);
    let restored = back.sent().into_iter().map(|sent| sent.octets).collect();
    let counters = there.counters();
    there.stop();
    back.stop();
    (compressed, restored, counters)
}

/// `packet` with destination, hop limit and segments left as `original` has them.
fn with_steering_of(original: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[7] = original[7];
    packet[24..40].copy_from_slice(&original[24..40]);
    packet[43] = original[43];
    packet
}

fn advanced(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut driver = driver("forward", "");
    driver.receive(packets);
    driver.sent().into_iter().map(|sent| sent.octets).collect()
}

fn saved(counters: &Snapshot) -> f64 {
    1.0 - counters.out_octets as f64 / counters.received_octets as f64
}

fn train(directory: &Path, seed: u64) -> String {
    let samples: Vec<_> = FULL.inner(&corpus::xml(4 * VOLUME, seed));
    let dictionary = Dictionary::train(&samples, 64 << 10).unwrap();
    let path = directory.join("xml.dictionary");
    std::fs::write(&path, dictionary.octets()).unwrap();
    path.display().to_string()
}

/// One encoder and one decoder for thousands of packets, most of which do not shrink, or have no room, or are cut.
#[test]
fn what_did_not_shrink_leaves_nothing_behind() {
    let mut random = Random::new(7);
    // The service with the zlib of before ended here: its worker panicked.
    let mut driver = driver("compress", "algorithm: deflate\nlongest_pause: 0");
    for _ in 0..30 {
        let packets: Vec<_> = (0..64)
            .map(|_| {
                let length = 1 + random.below(3000);
                srv6_around(protocol::ETHERNET, &random.bytes(length))
            })
            .collect();
        driver.receive(&packets);
        assert_eq!(
            driver.sent().iter().map(|sent| sent.octets.len()).collect::<Vec<_>>(),
            packets.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
    driver.stop();
    for algorithm in Algorithm::ALL {
        let levels = algorithm.levels().map_or(vec![None], |levels| levels.map(Some).collect());
        for level in levels.into_iter().filter(|level| level.is_none_or(|level| level <= 9)) {
            let mut encoder = Encoder::new(algorithm, level, None).unwrap();
            let mut decoder = Decoder::new(65_535, &[]).unwrap();
            let cpi = encoder.cpi();
            for round in 0..300 {
                let length = match round % 50 {
                    0 => 65_535,
                    _ => 1 + random.below(9000),
                };
                let shrinks = random.below(8) == 0;
                let mut input = if shrinks { random.bytes(20).repeat(length / 20 + 1) } else { random.bytes(length) };
                input.truncate(length);
                let limit = if random.below(4) == 0 { random.below(length) } else { length };
                let output = encoder.encode(&input, limit).map(<[u8]>::to_vec);
                if shrinks && length > 200 && limit == length {
                    assert!(output.is_some(), "{algorithm:?} {level:?}: {length} octets");
                }
                let Some(output) = output else { continue };
                assert!(output.len() < limit);
                assert!(decoder.decode(cpi, &output[..output.len() / 2]) != Ok(&input[..]));
                assert_eq!(decoder.decode(cpi, &output), Ok(&input[..]), "{algorithm:?} {level:?}");
            }
        }
    }
}

#[test]
fn every_algorithm_gives_back_what_it_got() {
    for algorithm in Algorithm::ALL {
        for sender in [Sender::IPV4, Sender::IPV6] {
            let mut packets = sender.steered(&corpus::xml(100_000, 1));
            packets.extend(sender.steered(&Random::new(2).bytes(50_000)));
            packets.push(srv6_around(protocol::ETHERNET, &[7; 200]));
            packets.push(srv6_around(protocol::NO_NEXT_HEADER, &[]));
            let (compressed, restored, counters) =
                there_and_back(&format!("algorithm: {}\nlongest_pause: 0", algorithm.name()), "", &packets);
            assert_eq!(restored, advanced(&packets), "{algorithm:?}");
            assert!(counters.metrics["compressed_packets"] >= 75, "{algorithm:?}: {counters:?}");
            for (after, before) in compressed.iter().zip(&packets) {
                assert!(after.len() <= before.len(), "a packet never grows");
                assert!(parse_ip_packet(after).is_ok());
            }
        }
    }
}

#[test]
fn ratios() {
    let directory = tempfile::tempdir().unwrap();
    let dictionary = train(directory.path(), 77);
    let mut sorts = vec![
        ("XML", corpus::xml(VOLUME, 5)),
        ("HTTP, bodies compressed", corpus::http(VOLUME, 6)),
        ("encrypted", Random::new(8).bytes(VOLUME)),
    ];
    // Files that others wrote, where they are: tshark brings the last one. They are shown beside, and bounds hold for the text above.
    for (name, path) in SYSTEM_FILES {
        sorts.extend(std::fs::read(path).ok().map(|stream| (*name, stream)));
    }
    let configurations = [
        ("lz4", "algorithm: lz4".to_owned()),
        ("lzo", "algorithm: lzo".to_owned()),
        ("deflate", "algorithm: deflate".to_owned()),
        ("zstd", "algorithm: zstd".to_owned()),
        ("zstd, dictionary", format!("algorithm: zstd\ndictionary: {dictionary}")),
    ];
    println!(
        "| octets saved of whole packets, steering header included | {} |",
        sorts.iter().map(|sort| sort.0).collect::<Vec<_>>().join(" | ")
    );
    for (name, configuration) in &configurations {
        let mut row = Vec::new();
        for (sort, stream) in &sorts {
            let packets = FULL.steered(stream);
            let back = format!("dictionaries: [{dictionary}]");
            let (_, restored, counters) = there_and_back(configuration, &back, &packets);
            assert_eq!(restored, advanced(&packets), "{name}, {sort}");
            let saved = saved(&counters);
            row.push(format!("{:.1} %", saved * 100.0));
            let least = match (*sort, *name) {
                ("XML", "lz4" | "lzo") => 0.55,
                ("XML", "deflate" | "zstd") => 0.62,
                ("XML", "zstd, dictionary") => 0.70,
                _ => 0.0,
            };
            assert!(saved >= least, "{name} saves {saved:.4} of {sort}, {least} are asked for");
            if *sort == "encrypted" {
                assert!(counters.out_octets <= counters.received_octets, "{name}: not one octet more");
                // Headers are in the dictionary: with it even these packets shrink by a little.
                let tried = counters.metrics["not_smaller_packets"] as f64 / counters.received as f64;
                assert!(tried < 0.03, "{name} tries {tried:.3} of packets that never shrink");
            }
        }
        println!("| {name} | {} |", row.join(" | "));
    }
}

#[test]
fn a_flow_that_does_not_shrink_does_not_stop_another() {
    let random = Sender { port: 1, ..Sender::IPV4 }.steered(&Random::new(3).bytes(400_000));
    let text = Sender { port: 2, ..Sender::IPV4 }.steered(&corpus::xml(400_000, 4));
    let packets: Vec<_> = random.into_iter().zip(text).flat_map(|(a, b)| [a, b]).collect();
    let (_, _, counters) = there_and_back("", "", &packets);
    assert_eq!(counters.metrics["compressed_packets"], packets.len() as u64 / 2, "all of the text");
    assert!(counters.metrics["not_smaller_packets"] < 12, "{counters:?}");
}

/// Of an encrypted packet a few octets of its headers go. With lzo each one was tried for them, at a sixth of the rate.
#[test]
fn a_flow_of_which_headers_shrink_only_is_not_tried_each_time() {
    let mut packets = Sender::IPV4.steered(&Random::new(3).bytes(1340 * 300));
    for packet in &mut packets {
        // Room for a few octets to go: the end of the payload.
        let end = packet.len();
        packet[end - 24..].fill(0);
    }
    for algorithm in Algorithm::ALL {
        let configuration = format!("algorithm: {}", algorithm.name());
        let (_, _, counters) = there_and_back(&configuration, "", &packets);
        let tried = counters.metrics["compressed_packets"] + counters.metrics["not_smaller_packets"];
        assert!(tried < 30, "{configuration}: {counters:?}");
    }
}

#[test]
fn a_flow_that_shrinks_again_is_noticed() {
    let mut packets = Sender::IPV4.steered(&Random::new(3).bytes(1340 * 300));
    packets.extend(Sender::IPV4.steered(&corpus::xml(1340 * 200, 4)));
    let (_, _, counters) = there_and_back("longest_pause: 15", "", &packets);
    assert!(counters.metrics["compressed_packets"] >= 200 - 16, "{counters:?}");
}

#[test]
fn what_is_compressed_is_not_compressed_again() {
    let packets = Sender::IPV4.steered(&corpus::xml(20_000, 1));
    let (once, _, _) = there_and_back("algorithm: lz4", "", &packets);
    let again: Vec<_> =
        once.iter().zip(&packets).map(|(packet, original)| with_steering_of(original, packet)).collect();
    let (twice, _, counters) = there_and_back("algorithm: deflate", "", &again);
    assert_eq!(counters.metrics["not_compressible_packets"], packets.len() as u64);
    assert_eq!(twice, once);
}

/// What `decompress` says of one compressed payload.
fn refused(next_header: u8, cpi: u16, octets: &[u8], configuration: &str) -> Vec<Reason> {
    let mut header = vec![0; 4];
    IpCompRepr { next_header, cpi }.emit(&mut header).unwrap();
    let mut driver = driver("decompress", configuration);
    driver.receive(&[srv6_around(protocol::IPCOMP, &[&header, octets].concat())]);
    let sent = driver.sent().len();
    let reasons: Vec<_> = driver.counters().dropped_received.keys().copied().collect();
    assert_eq!(sent + reasons.len(), 1, "one end");
    driver.stop();
    reasons
}

#[test]
fn what_cannot_be_decompressed_is_dropped_with_its_reason() {
    let zeros = vec![0; 60_000];
    let bomb = lz4_flex::block::compress(&zeros);
    let ethernet = protocol::ETHERNET;
    let lz4 = Algorithm::Lz4.cpi();
    assert_eq!(refused(ethernet, lz4, &bomb, ""), []);
    assert_eq!(refused(ethernet, lz4, &bomb, "largest: 59999"), [Reason::DecompressionLimit]);
    assert_eq!(refused(ethernet, lz4, &bomb[..bomb.len() - 3], ""), [Reason::CorruptCompression]);
    assert_eq!(refused(ethernet, 3, &bomb, ""), [Reason::UnknownCompression]);
    assert_eq!(refused(ethernet, 65_000, &bomb, ""), [Reason::UnknownDictionary]);
    // Decompresses well, but not to the IPv4 packet that it is announced as.
    assert_eq!(refused(protocol::IPV4, lz4, &bomb, ""), [Reason::CorruptCompression]);
    let mut driver = driver("decompress", "");
    driver.receive(&[srv6_around(protocol::IPCOMP, &[1, 2])]);
    assert_eq!(driver.counters().dropped(Reason::Malformed), 1);
}

#[test]
fn deflate_is_that_of_the_rfc() {
    // "abc" as one stored block (RFC 1951 section 3.2.4), written by hand.
    let block = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
    let mut header = vec![0; 4];
    IpCompRepr { next_header: protocol::ETHERNET, cpi: 2 }.emit(&mut header).unwrap();
    let mut driver = driver("decompress", "");
    driver.receive(&[srv6_around(protocol::IPCOMP, &[&header[..], &block].concat())]);
    let sent = driver.sent().remove(0).octets;
    assert_eq!(&sent[sent.len() - 3..], b"abc");
    assert_eq!(usize::from(Ipv6Packet::new_checked(&sent).unwrap().payload_length()) + 40, sent.len());
}

#[test]
fn wrong_configurations_say_what_to_do() {
    for (service, configuration, expected) in [
        ("compress", "algorithm: lz4\nlevel: 3", "lz4 has one level only"),
        ("compress", "algorithm: zstd\nlevel: 30", "use 1 (fast) to 19 (small)"),
        ("compress", "dictionary: /x", "lz4 takes no dictionary"),
        ("compress", "algorithm: gzip", "test.yaml:1"),
        ("compress", "speed: 3", "test.yaml:1"),
        ("decompress", "largest: 0", "every packet would be dropped"),
    ] {
        let error =
            segue_services::find(service).unwrap().prepare(configuration, "test.yaml").err().expect(configuration);
        assert!(error.to_string().contains(expected), "{configuration}: {error}");
    }
    let prepared = segue_services::find("compress").unwrap();
    let prepared = prepared.prepare("algorithm: zstd\ndictionary: /nowhere/x", "test.yaml").unwrap();
    let error = prepared.build(segue_service::Worker::ONLY).err().unwrap().to_string();
    assert!(error.contains("/nowhere/x") && error.contains("segue service compress train"), "{error}");
    let _ = srv6(&[]);
}
