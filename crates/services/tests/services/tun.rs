//! `tun`: copies, inline, and steering headers that must not be mixed up. A device of the test stands for the kernel's.

use segue_service::driver::{SID, labels_around, srv6, srv6_around};
use segue_service::{Driver, Reason, SteeringKind};
use segue_services::tun::{Configuration, Device, Mode, with_device};
use segue_wire::layer::protocol;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Packet, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was given, and what will come back.
#[derive(Default)]
struct Ends {
    given: Vec<Vec<u8>>,
    back: VecDeque<Vec<u8>>,
    is_gone: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Ends>>);

impl Fake {
    fn given(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap().given)
    }

    fn give_back(&self, packets: &[Vec<u8>]) {
        self.0.lock().unwrap().back.extend(packets.iter().cloned());
    }
}

impl Device for Fake {
    fn send(&self, packet: &[u8]) -> io::Result<()> {
        let mut ends = self.0.lock().unwrap();
        if ends.is_gone {
            return Err(io::Error::other("down"));
        }
        ends.given.push(packet.to_vec());
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let packet = self.0.lock().unwrap().back.pop_front();
        Ok(packet.map(|packet| {
            buffer[..packet.len()].copy_from_slice(&packet);
            packet.len()
        }))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn driver(configuration: &Configuration) -> (Driver, Fake) {
    let fake = Fake::default();
    let prepared = segue_services::find("tun").unwrap().prepare("", "x").unwrap();
    let service = with_device(configuration, Box::new(fake.clone()));
    let mode = match configuration.mode {
        Mode::Copy => segue_service::Mode::Asynchronous,
        Mode::Inline => segue_service::Mode::Synchronous,
    };
    (Driver::with(vec![service], mode, 9000, prepared.metrics()), fake)
}

fn inline() -> Configuration {
    Configuration { mode: Mode::Inline, ..Configuration::default() }
}

fn udp(port: u16, hops: u8) -> Vec<u8> {
    let header = Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()) };
    PacketBuilder::new().ipv4(header).udp(UdpRepr::new(port, 53)).payload(&[port as u8; 30]).build()
}

/// A packet on the way that ends at `last`.
fn on_way(last: u16, inner: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let path = [address(SID), Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, last)];
    let srh = SrhRepr { next_header: protocol::IPV4, ..SrhRepr::new(&path) };
    PacketBuilder::new().ipv6(Ipv6Repr::new(address("fc00:5e9:1::1"), path[0])).srh(srh).payload(inner).build()
}

#[test]
fn copies_are_inner_packets_and_nothing_is_sent() {
    let (mut driver, fake) = driver(&Configuration::default());
    let ipv6 = PacketBuilder::new().ipv6(Ipv6Repr::default()).udp(UdpRepr::new(1, 2)).build();
    driver.receive(&[srv6(&udp(1, 64)), srv6(&ipv6), srv6_around(protocol::ETHERNET, &[3; 60])]);
    assert_eq!(fake.given(), [udp(1, 64), ipv6]);
    assert_eq!(driver.counters().dropped(Reason::UnsupportedProtocol), 1);
    fake.give_back(&[udp(1, 64)]);
    driver.readable(0);
    fake.0.lock().unwrap().is_gone = true;
    driver.receive(&[srv6(&udp(1, 64))]);
    let counters = driver.counters();
    assert_eq!((counters.dropped(Reason::ProgramGone), counters.metrics["unknown_return_packets"]), (1, 1));
    assert!(driver.sent().is_empty());
    driver.stop();
}

#[test]
fn inline_packets_go_on_behind_the_header_that_their_flow_came_with() {
    let (mut driver, fake) = driver(&inline());
    driver.receive(&[on_way(1, &udp(1, 64)), on_way(2, &udp(2, 64))]);
    assert!(driver.sent().is_empty(), "the program has them");
    // It lets them through in another order, with changes that a program may make, and one twice.
    assert_eq!(fake.given(), [udp(1, 64), udp(2, 64)]);
    fake.give_back(&[udp(2, 63), udp(1, 64), udp(1, 64)]);
    driver.readable(0);
    let sent: Vec<_> = driver.sent().into_iter().map(|sent| sent.octets).collect();
    let last = |packet: &[u8]| Ipv6Packet::new_checked(packet).unwrap().destination().segments()[7];
    assert_eq!(sent.iter().map(|packet| last(packet)).collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!(sent[0][80..], udp(2, 63));
    assert_eq!(Ipv6Packet::new_checked(sent[0].as_slice()).unwrap().total_length(), sent[0].len());
    driver.stop();
}

#[test]
fn inline_no_flow_gets_the_header_of_another() {
    let (mut driver, fake) = driver(&inline());
    driver.receive(&[on_way(1, &udp(1, 64))]);
    // The same flow on another way: on the device it could not be told from the first.
    driver.receive(&[on_way(2, &udp(1, 64))]);
    assert_eq!(driver.counters().dropped(Reason::Refused), 1);
    // Of a flow that nobody gave, in the other direction, no packet at all, a fragment.
    let mut fragment = udp(1, 64);
    fragment[6] = 0x20;
    segue_wire::Ipv4Packet::new_checked(&mut fragment).unwrap().fill_checksum();
    fake.give_back(&[udp(9, 64), vec![0; 40], vec![], fragment.clone()]);
    driver.readable(0);
    assert!(driver.sent().is_empty());
    assert_eq!(driver.counters().metrics["unknown_return_packets"], 4);
    driver.receive(&[on_way(1, &fragment), srv6_around(protocol::ETHERNET, &[3; 60])]);
    assert_eq!(driver.counters().dropped(Reason::UnsupportedProtocol), 2);
    driver.stop();
}

#[test]
fn inline_a_flow_may_change_its_way_after_a_pause_and_is_forgotten() {
    let (mut driver, fake) = driver(&Configuration { flow_timeout_s: 10, ..inline() });
    driver.receive(&[on_way(1, &udp(1, 64))]);
    driver.advance(Duration::from_secs(9));
    fake.give_back(&[udp(1, 64)]);
    driver.readable(0);
    assert_eq!(driver.sent().len(), 1);
    driver.advance(Duration::from_secs(9));
    assert_eq!(driver.counters().metrics["remembered_flows"], 1, "it was used nine seconds ago");
    driver.advance(Duration::from_secs(9));
    assert_eq!(driver.counters().metrics["remembered_flows"], 0);
    fake.give_back(&[udp(1, 64)]);
    driver.readable(0);
    assert!(driver.sent().is_empty());
    driver.receive(&[on_way(2, &udp(1, 64))]);
    fake.give_back(&[udp(1, 64)]);
    driver.readable(0);
    assert_eq!(driver.sent().len(), 1);
    driver.stop();
}

#[test]
fn inline_the_header_of_the_last_packet_counts() {
    let (mut driver, fake) = driver(&inline());
    let mut later = on_way(1, &udp(1, 64));
    (later[1], later[7]) = (later[1] | 0x30, 40);
    driver.receive(&[on_way(1, &udp(1, 64)), later]);
    fake.give_back(&[udp(1, 64)]);
    driver.readable(0);
    let sent = driver.sent().remove(0).octets;
    assert_eq!((sent[1] & 0x30, sent[7]), (0x30, 39), "ECN and hop limit");
    driver.stop();
}

#[test]
fn inline_flows_are_bounded() {
    let (mut driver, _) = driver(&Configuration { most_flows: 100, ..inline() });
    for port in 0..1000 {
        driver.receive(&[srv6(&udp(port, 64))]);
    }
    let counters = driver.counters();
    assert_eq!((counters.metrics["remembered_flows"], counters.dropped(Reason::MemoryLimit)), (100, 900));
    driver.stop();
}

#[test]
fn wrong_configurations_say_what_to_do() {
    for (configuration, expected) in [
        ("device: a/b", "use 1 to 15 letters"),
        ("device: sixteen-letters-", "use 1 to 15 letters"),
        ("snap_length: 5", "use 128 or more"),
        ("one_in: 0", "use 1 for all"),
        ("most_flows: 0", "use 1 or more"),
        ("flow_timeout_s: 0", "use 1 to 3600"),
    ] {
        let error =
            segue_services::find("tun").unwrap().prepare(configuration, "test.yaml").err().expect(configuration);
        assert!(error.to_string().contains(expected), "{configuration}: {error}");
    }
}

/// A namespace, the real device, and programs that know nothing of Segment Routing.
mod device {
    use super::*;
    use segue_host::Temporary;
    use std::process::{Child, Command, Stdio};

    /// Sends by the interface what it receives there, as an inline program does.
    const RELAY: &str = "
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
print('ready', flush=True)
while True:
    data, address = s.recvfrom(65535)
    if address[2] != socket.PACKET_OUTGOING:
        s.send(data)
";

    fn start(namespace: &Temporary, command: &mut Command) -> Child {
        let started = namespace.inside(|| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
        started.unwrap().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Waits for a line of the program's with this word.
    fn wait_for_line(from: &mut dyn io::Read, word: &str) -> String {
        let mut text = String::new();
        let mut octet = [0];
        while !text.lines().any(|line| line.contains(word)) {
            assert_eq!(from.read(&mut octet).unwrap(), 1, "it ended: {text}");
            text.push(octet[0].into());
        }
        text
    }

    fn service(namespace: &Temporary, configuration: &Configuration) -> Driver {
        let device =
            namespace.inside(|| segue_host::tun::Tun::open("tun0")).unwrap().unwrap_or_else(|error| panic!("{error}"));
        let service = with_device(configuration, Box::new(device));
        let prepared = segue_services::find("tun").unwrap().prepare("", "x").unwrap();
        let mode = if configuration.mode == Mode::Copy {
            segue_service::Mode::Asynchronous
        } else {
            segue_service::Mode::Synchronous
        };
        Driver::with(vec![service], mode, 9000, prepared.metrics())
    }

    #[test]
    #[ignore = "needs root"]
    fn tcpdump_sees_the_inner_packets() {
        let namespace = Temporary::make("sg-tun-", "copy").unwrap();
        let mut driver = service(&namespace, &Configuration::default());
        let mut program =
            start(&namespace, Command::new("tcpdump").args(["-n", "-l", "-c", "20", "-i", "tun0", "udp"]));
        wait_for_line(program.stderr.as_mut().unwrap(), "listening on tun0");
        let packets: Vec<_> = (1..=20).map(|port| srv6(&udp(port, 64))).collect();
        driver.receive(&packets);
        let output = program.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        for port in 1..=20 {
            assert!(text.contains(&format!("IP 10.1.0.2.{port} > 10.2.0.2.53:")), "{text}");
        }
        driver.stop();
    }

    /// A question for the address of www.example.org, written by hand.
    const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01";

    #[test]
    #[ignore = "needs root"]
    fn ndpi_finds_the_protocol() {
        let namespace = Temporary::make("sg-tun-", "ndpi").unwrap();
        let mut driver = service(&namespace, &Configuration::default());
        let mut program = start(&namespace, Command::new("ndpiReader").args(["-i", "tun0", "-s", "2"]));
        // It does not say when it has opened the device; after two seconds it ends, and then says what it saw.
        while program.try_wait().unwrap().is_none() {
            let header = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
            let inner = PacketBuilder::new().ipv4(header).udp(UdpRepr::new(4000, 53)).payload(QUESTION).build();
            driver.receive(&[srv6(&inner)]);
            driver.sent();
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = program.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        let found = text.lines().find(|line| line.trim_start().starts_with("DNS"));
        assert!(found.is_some_and(|line| line.contains("packets")), "{ended:?}");
        driver.stop();
    }

    #[test]
    #[ignore = "needs root"]
    fn a_program_that_relays_is_inline() {
        let namespace = Temporary::make("sg-tun-", "inline").unwrap();
        let mut driver = service(&namespace, &inline());
        let mut program = start(&namespace, Command::new("python3").args(["-c", RELAY, "tun0"]));
        wait_for_line(program.stdout.as_mut().unwrap(), "ready");
        let packets: Vec<_> = (1..=200).map(|port| on_way(port % 7, &udp(port, 64))).collect();
        let mut sent = Vec::new();
        for batch in packets.chunks(20) {
            driver.receive(batch);
            let end = std::time::Instant::now() + Duration::from_secs(5);
            let expected = sent.len() + batch.len();
            while sent.len() < expected && std::time::Instant::now() < end {
                driver.readable(0);
                sent.extend(driver.sent().into_iter().map(|sent| sent.octets));
                std::thread::yield_now();
            }
        }
        let mut forward = Driver::prepared(&*segue_services::find("forward").unwrap().prepare("", "x").unwrap(), 1);
        forward.receive(&packets);
        let expected: Vec<_> = forward.sent().into_iter().map(|sent| sent.octets).collect();
        assert_eq!(sent, expected, "all, in order, each behind its own header");
        assert_eq!(driver.counters().metrics["unknown_return_packets"], 0, "the kernel says nothing of its own");
        driver.stop();
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

/// Behind a label: each flow gets its own stack back, the last one that it came with; one that is on two ways is refused.
#[test]
fn what_comes_back_has_the_labels_of_its_flow() {
    let (driver, fake) = driver(&inline());
    let mut driver = driver.steered_by(SteeringKind::SrMpls);
    let stack = |labels: &[u32], time_to_live: u8| -> Vec<MplsEntry> {
        labels.iter().map(|label| MplsEntry { label: *label, time_to_live, ..MplsEntry::default() }).collect()
    };
    let (one, other) = (stack(&[16_001, 7, 90_001], 9), stack(&[16_002], 9));
    driver.receive(&[labels_around(&one, &udp(1, 64)), labels_around(&other, &udp(2, 64))]);
    assert_eq!(fake.given(), [udp(1, 64), udp(2, 64)]);
    fake.give_back(&[udp(2, 60), udp(1, 60), udp(3, 60)]);
    driver.readable(0);
    let found: Vec<_> = driver.sent().into_iter().map(|sent| sent.octets).collect();
    assert_eq!(found, [labels_around(&other, &udp(2, 60)), labels_around(&one, &udp(1, 60))]);
    // The same way with another TTL and entropy label, and another way.
    let newer = stack(&[16_001, 7, 90_002], 8);
    driver.receive(&[labels_around(&newer, &udp(1, 64)), labels_around(&other, &udp(1, 64))]);
    fake.give_back(&[udp(1, 60)]);
    driver.readable(0);
    assert_eq!(driver.sent()[0].octets, labels_around(&newer, &udp(1, 60)));
    assert_eq!(driver.counters().dropped(Reason::Refused), 1);
    driver.stop();
}
