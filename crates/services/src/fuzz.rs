//! Bodies of the fuzz targets of services, and a driver that runs them over pseudo-random inputs in a plain test.
//!
//! A body takes octets as a script: which configuration, which packets with which faults, and how time goes by. It panics when a promise is
//! broken: the engine under it asserts after every step that each packet is accounted for, and stopping asserts that nothing is held. What leaves
//! must be a packet. `fuzz/fuzz_targets` hands each body to libFuzzer.

use crate::compression::{Algorithm, Encoder};
use crate::tun::{Configuration, Device, Mode, TunKind, with_device};
use segue_service::driver::{labels_around, srv6, srv6_around};
use segue_service::{Driver, Kind, Packet, Prepared, SteeringKind, Time};
use segue_wire::layer::protocol;
use segue_wire::mpls::MplsEntry;
use segue_wire::tcp::control;
use segue_wire::{
    AggfragRepr, FragmentRepr, IpCompRepr, Ipv4Repr, Ipv6Packet, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A target with its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its service.
pub const TARGETS: &[Target] = &[
    ("bulk", bulk),
    ("compress", compress),
    ("counter", counter),
    ("debulk", debulk),
    ("decompress", decompress),
    ("forward", forward),
    ("refragment", refragment),
    ("tcp_bulk", tcp_bulk),
    ("tun", tun),
];

/// Packets of a script at most: enough to fill any table, and few enough to run many scripts.
const MOST_STEPS: usize = 200;

/// The service `compress` under broken packets.
pub fn compress(data: &[u8]) {
    const TEXTS: &[&str] =
        &["algorithm: lz4", "algorithm: lzo\nlongest_pause: 0", "algorithm: deflate", "algorithm: zstd\nsmallest: 0"];
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("compress", TEXTS));
    run_script(&ALL, data);
}

/// The service `counter` under broken packets.
pub fn counter(data: &[u8]) {
    const TEXTS: &[&str] = &["", "flows: 3\nsids: 1\nsegment_lists: 1\ntop: 2"];
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("counter", TEXTS));
    run_script(&ALL, data);
}

/// The service `forward` under broken packets.
pub fn forward(data: &[u8]) {
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("forward", &[""]));
    run_script(&ALL, data);
}

/// The service `decompress` under broken packets.
pub fn decompress(data: &[u8]) {
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("decompress", &["", "largest: 300"]));
    run_script(&ALL, data);
}

/// The service `bulk` under broken packets.
pub fn bulk(data: &[u8]) {
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> =
        LazyLock::new(|| prepare("bulk", &["", "path_mtu: 1280\nmost_open: 1", "longest_delay_ms: 1"]));
    run_script(&ALL, data);
}

/// The service `debulk` under broken packets.
pub fn debulk(data: &[u8]) {
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("debulk", &[""]));
    run_script(&ALL, data);
}

/// The service `refragment` under broken packets.
pub fn refragment(data: &[u8]) {
    const TEXTS: &[&str] = &[
        "",
        "output: fragments\nmtu: 1280",
        "timeout_ipv6_s: 1\ntimeout_ipv4_s: 1\nmemory: 131072\nmemory_of_source: 131072",
    ];
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("refragment", TEXTS));
    run_script(&ALL, data);
}

/// The service `tcp-bulk` under broken packets.
pub fn tcp_bulk(data: &[u8]) {
    const TEXTS: &[&str] =
        &["", "mode: queue", "mode: queue\nlargest: 1280\nmost_connections: 2", "largest: 1280\nlongest_delay_ms: 1"];
    static ALL: LazyLock<Vec<Arc<dyn Prepared>>> = LazyLock::new(|| prepare("tcp-bulk", TEXTS));
    run_script(&ALL, data);
}

fn prepare(service: &str, texts: &[&str]) -> Vec<Arc<dyn Prepared>> {
    let service = crate::find(service).expect("it is in the list");
    texts.iter().map(|text| service.prepare(text, "fuzz").unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

/// Octets as a source of decisions.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

/// The service `tun`, inline, with a program that returns every packet with one octet changed.
pub fn tun(data: &[u8]) {
    let configuration =
        Configuration { mode: Mode::Inline, most_flows: 4, flow_timeout_s: 1, ..Configuration::default() };
    let service = with_device(&configuration, Box::new(Loop::default()));
    let driver = Driver::with(vec![service], segue_service::Mode::Synchronous, 9000, TunKind::METRICS);
    let mut choices = Choices(data);
    let steering = SteeringKind::ALL[choices.next() % 2];
    run_steps(driver, steering, choices);
}

/// What is given comes back, a little different.
#[derive(Default)]
struct Loop(RefCell<VecDeque<Vec<u8>>>);

impl Device for Loop {
    fn send(&self, packet: &[u8]) -> io::Result<()> {
        let mut packet = packet.to_vec();
        let place = packet.iter().fold(0, |sum, octet| sum + usize::from(*octet)) % packet.len().max(1);
        if let Some(octet) = packet.get_mut(place) {
            *octet ^= 1;
        }
        self.0.borrow_mut().push_back(packet);
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(packet) = self.0.borrow_mut().pop_front() else { return Ok(None) };
        let length = packet.len().min(buffer.len());
        buffer[..length].copy_from_slice(&packet[..length]);
        Ok(Some(length))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn run_script(configurations: &[Arc<dyn Prepared>], data: &[u8]) {
    let mut choices = Choices(data);
    let choice = choices.next();
    let prepared = &configurations[choice / 2 % configurations.len()];
    let workers = if prepared.many_workers() { 1 + choice % 2 } else { 1 };
    let steering =
        if choice >= 128 && prepared.refuses_labels().is_none() { SteeringKind::SrMpls } else { SteeringKind::Srv6 };
    run_steps(Driver::prepared(&**prepared, workers), steering, choices);
}

fn run_steps(driver: Driver, steering: SteeringKind, mut choices: Choices<'_>) {
    let mut driver = driver.steered_by(steering);
    let seeds = match steering {
        SteeringKind::Srv6 => &*SEEDS,
        SteeringKind::SrMpls => &*LABELLED,
    };
    let mut batch = Vec::new();
    for _ in 0..MOST_STEPS {
        if choices.0.is_empty() {
            break;
        }
        match choices.next() {
            step @ 0..16 => {
                driver.receive(&std::mem::take(&mut batch));
                driver.readable(0);
                driver.advance(Duration::from_millis(1 << step));
            }
            step @ 16..32 => {
                driver.receive(&std::mem::take(&mut batch));
                driver.set_frame_length(if step % 2 == 0 { 2048 } else { 4096 });
            }
            choice => batch.push(broken(&seeds[choice % seeds.len()], &mut choices)),
        }
    }
    driver.receive(&batch);
    driver.stop();
    for sent in driver.sent() {
        let length = match steering {
            SteeringKind::Srv6 => Ipv6Packet::new_checked(&sent.octets).map(|packet| packet.total_length()).ok(),
            SteeringKind::SrMpls => {
                Packet::from_octets(steering, &sent.octets, Time::START).map(|packet| packet.len()).ok()
            }
        };
        // Labels do not say how long a packet is: octets that a program behind `tun` has put behind one come off at the node.
        let is_whole = length.is_some_and(|length| match steering {
            SteeringKind::Srv6 => length == sent.octets.len(),
            SteeringKind::SrMpls => length <= sent.octets.len(),
        });
        assert!(is_whole, "what leaves is a packet, and with SRv6 nothing is behind it: {length:?}");
    }
}

/// `seed` with up to three octets changed, and perhaps its end cut off.
fn broken(seed: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut packet = seed.to_vec();
    let faults = choices.next();
    for _ in 0..faults % 4 {
        let place = (choices.next() << 8 | choices.next()) % packet.len();
        packet[place] = choices.next() as u8;
    }
    if faults & 0xf0 == 0xf0 {
        packet.truncate((choices.next() << 8 | choices.next()) % packet.len());
    }
    packet
}

const HERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2);
const THERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2);

/// Inner packets.
fn inner() -> Vec<Vec<u8>> {
    let mut inner = Vec::new();
    for index in 0..8_u32 {
        inner.push(segment(false, index, if index == 7 { control::ACK | control::PSH } else { control::ACK }));
        inner.push(segment(true, index, if index == 6 { control::ACK | control::FIN } else { control::ACK }));
    }
    inner.extend(fragments());
    inner.push(PacketBuilder::new().ipv4(Ipv4Repr::default()).udp(UdpRepr::new(5, 6)).payload(&[7; 90]).build());
    inner
}

/// The same behind labels, and stacks that are none.
static LABELLED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let entry = |label: u32| MplsEntry { label, time_to_live: 64, ..MplsEntry::default() };
    let stack = |labels: &[u32]| -> Vec<_> { labels.iter().map(|label| entry(*label)).collect() };
    let inner = inner();
    let mut seeds: Vec<_> = inner.iter().map(|packet| labels_around(&stack(&[16_001, 16_002]), packet)).collect();
    let long: Vec<u32> = (100..133).collect();
    for labels in [&[16_001][..], &[16_001, 7, 90_000], &[7, 7, 16_002, 0], &[16_001, 7], &long[..32], &long] {
        seeds.push(labels_around(&stack(labels), &inner[0]));
    }
    seeds.push([0, 1, 0x40, 9].repeat(40));
    seeds.push(labels_around(&stack(&[16_001]), &[2; 120]));
    seeds
});

/// Well-formed steered packets that faults are put into.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let inner = inner();
    let mut seeds: Vec<_> = inner.iter().map(|packet| srv6(packet)).collect();
    seeds.push(srv6_around(protocol::ETHERNET, &[2; 120]));
    let blocks = PacketBuilder::new().aggfrag(AggfragRepr::default()).payload(&inner[..6].concat()).build();
    seeds.push(srv6_around(protocol::AGGFRAG, &blocks));
    let blocks = PacketBuilder::new()
        .aggfrag(AggfragRepr { block_offset: 9 })
        .payload(&[&[1; 9], &*inner[0], &[0; 20]].concat())
        .build();
    seeds.push(srv6_around(protocol::AGGFRAG, &blocks));
    for algorithm in Algorithm::ALL {
        let mut encoder = Encoder::new(algorithm, None, None).expect("it has its default level");
        let mut compressed = vec![0; 4];
        let header = IpCompRepr { next_header: protocol::IPV4, cpi: encoder.cpi() };
        header.emit(&mut compressed).expect("four octets are enough");
        compressed.extend_from_slice(encoder.encode(&inner[0], inner[0].len()).expect("it repeats itself"));
        seeds.push(srv6_around(protocol::IPCOMP, &compressed));
    }
    seeds
});

/// The segment with this number of a TCP connection.
fn segment(ipv6: bool, index: u32, control_bits: u8) -> Vec<u8> {
    let tcp = TcpRepr {
        sequence_number: (u32::MAX - 150).wrapping_add(index * 100),
        acknowledgment_number: 9,
        window: 500,
        options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        ..TcpRepr::new(1000, 80, control_bits)
    };
    let builder = if ipv6 {
        PacketBuilder::new().ipv6(Ipv6Repr::new(HERE, THERE))
    } else {
        let header = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        PacketBuilder::new().ipv4(Ipv4Repr { identification: index as u16, dont_fragment: true, ..header })
    };
    builder.tcp(tcp).payload(&[index as u8; 100]).build()
}

/// Three fragments of a UDP datagram each of IPv4 and IPv6, and an atomic one.
fn fragments() -> Vec<Vec<u8>> {
    let datagram =
        PacketBuilder::new().ipv6(Ipv6Repr::new(HERE, THERE)).udp(UdpRepr::new(7, 8)).payload(&[5; 100]).build();
    let data = datagram.get(40..).unwrap_or(&[]);
    let mut fragments = Vec::new();
    for (index, piece) in data.chunks(48).enumerate() {
        let (fragment_offset, more_fragments) = (index as u16 * 48, index < 2);
        let header = FragmentRepr { next_header: protocol::UDP, fragment_offset, more_fragments, identification: 3 };
        fragments.push(PacketBuilder::new().ipv6(Ipv6Repr::new(HERE, THERE)).fragment(header).payload(piece).build());
        let header = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        let header = Ipv4Repr { protocol: protocol::UDP, fragment_offset, more_fragments, identification: 3, ..header };
        fragments.push(PacketBuilder::new().ipv4(header).payload(piece).build());
    }
    let header = FragmentRepr { next_header: protocol::UDP, identification: 4, ..FragmentRepr::default() };
    fragments.push(PacketBuilder::new().ipv6(Ipv6Repr::new(HERE, THERE)).fragment(header).payload(data).build());
    fragments
}

/// Runs `target` over `count` pseudo-random scripts that follow from `seed` (not 0).
pub fn run(target: fn(&[u8]), seed: u64, count: usize) {
    let mut state = seed.max(1);
    let mut next = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    };
    for _ in 0..count {
        let script: Vec<u8> = (0..next() % 600).map(|_| next() as u8).collect();
        target(&script);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_target_fails_on_pseudo_random_scripts() {
        for (name, target) in TARGETS {
            println!("{name}");
            run(*target, 0x5e60e, 300);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn nothing_breaks_a_service(script in prop::collection::vec(any::<u8>(), 0..500)) {
            for (_, target) in TARGETS {
                target(&script);
            }
        }
    }
}
