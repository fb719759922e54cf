//! `counter`.

use segue_service::Driver;
use segue_service::driver::{NEXT, SID, srv6, srv6_around};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

fn driver(configuration: &str) -> Driver {
    let prepared = segue_services::find("counter").unwrap().prepare(configuration, "x");
    let prepared = prepared.unwrap_or_else(|errors| panic!("{errors}"));
    Driver::prepared(prepared.as_ref(), 1)
}

fn udp6(port: u16, length: usize) -> Vec<u8> {
    let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let ports = UdpRepr { source_port: port, destination_port: 53 };
    srv6(&PacketBuilder::new().ipv6(addresses).udp(ports).payload(&vec![0; length]).build())
}

fn udp4(port: u16, length: usize) -> Vec<u8> {
    let addresses = Ipv4Repr {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        ..Ipv4Repr::default()
    };
    let ports = UdpRepr { source_port: port, destination_port: 53 };
    srv6(&PacketBuilder::new().ipv4(addresses).udp(ports).payload(&vec![0; length]).build())
}

#[test]
fn sids_lists_and_flows_are_counted_by_octets_on_the_wire() {
    let mut driver = driver("");
    // Cut, as they come: what is counted is what was on the wire.
    driver.receive_cut(&[udp6(1, 1000), udp6(1, 2000), udp4(7, 500), srv6_around(59, &[])], 256);
    assert_eq!(driver.sent(), []);
    let report = driver.report(0);
    let octets = [1128, 2128, 608, 80];
    let all: u64 = octets.iter().sum();
    assert_eq!(report["sids"], serde_json::json!([{ "sid": SID, "packets": 4, "octets": all }]));
    let list = &report["segment_lists"][0];
    assert_eq!((&list["segments"], &list["octets"]), (&serde_json::json!([SID, NEXT]), &all.into()));
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert_eq!(
        flows[0],
        serde_json::json!({
            "source": "fd00::1", "destination": "fd00::2", "protocol": 17, "source_port": 1, "destination_port": 53,
            "packets": 2, "octets": 3256, "error_octets": 0,
        })
    );
    assert_eq!((&flows[1]["source"], &flows[1]["octets"]), (&"192.0.2.1".into(), &608.into()));
    assert_eq!(driver.counters().metrics["without_flow_packets"], 1);
    driver.stop();
}

#[test]
fn memory_is_bounded() {
    let mut driver = driver("{flows: 8, sids: 2, segment_lists: 4, top: 8}");
    for number in 0..2000u16 {
        let mut packet = udp6(number, 100);
        packet[39] = (number % 5) as u8;
        driver.receive(&[packet, udp6(9999, 1000)]);
    }
    let report = driver.report(0);
    assert_eq!((report["sids"].as_array().unwrap().len(), report["flows"].as_array().unwrap().len()), (2, 8));
    let heaviest = &report["flows"][0];
    assert_eq!(heaviest["source_port"], 9999);
    let (octets, error) = (heaviest["octets"].as_u64().unwrap(), heaviest["error_octets"].as_u64().unwrap());
    assert!(octets >= 2000 * 1128 && octets - error <= 2000 * 1128, "{heaviest}");
    let counters = driver.counters();
    assert!(counters.metrics["forgotten_flows"] > 1000);
    assert_eq!(counters.metrics["uncounted_sid_packets"], 2000 / 5 * 3);
}

#[test]
fn bounds_of_the_configuration_are_said() {
    let kind = segue_services::find("counter").unwrap();
    let said = kind.prepare("one_in: 0\nflows: 0\n", "file").err().unwrap().to_string();
    assert_eq!(
        said,
        "file:1:9: one_in: 0 is not possible; write a number from 1 to 1000000\n\
         file:2:8: flows: 0 is not possible; write a number from 1 to 1000000"
    );
}

/// What `tshark` reads of the messages that a collector has got: a line for each data record, `FIELD=VALUE ..`.
fn read_by_tshark(messages: &[Vec<u8>]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ipfix.pcap");
    let frames: Vec<Vec<u8>> = messages
        .iter()
        .map(|message| {
            let addresses = Ipv6Repr::new("fd00::a".parse().unwrap(), "fd00::b".parse().unwrap());
            let packet = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv6(addresses);
            packet.udp(UdpRepr::new(40_000, 4739)).payload(message).build()
        })
        .collect();
    // A classic capture file of Ethernet frames: its header, then each frame behind its own.
    let mut octets = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        octets.extend(word.to_le_bytes());
    }
    for frame in &frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            octets.extend(word.to_le_bytes());
        }
        octets.extend_from_slice(frame);
    }
    std::fs::write(&file, octets).unwrap();
    let mut tshark = std::process::Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-d", "udp.port==4739,cflow", "-O", "cflow", "-V"]);
    let output = tshark.output().expect("tshark is installed (`./x test` does)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Counts come to a collector as IPFIX that Wireshark reads: what has come since the last export, nothing twice.
#[test]
fn counts_are_exported_as_ipfix() {
    let collector = std::net::UdpSocket::bind("[::1]:0").unwrap();
    collector.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let port = collector.local_addr().unwrap().port();
    let mut driver =
        driver(&format!("ipfix: {{collector: \"[::1]:{port}\", interval_s: 10, domain: 77}}\none_in: 4\n"));
    let take = || {
        let mut buffer = [0; 65_536];
        std::iter::from_fn(|| collector.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()))
            .collect::<Vec<_>>()
    };
    driver.receive(&[udp6(1001, 1000), udp6(1001, 1000), udp4(1002, 500)]);
    driver.advance(std::time::Duration::from_secs(9));
    assert_eq!(take(), Vec::<Vec<u8>>::new(), "not before it is due");
    driver.advance(std::time::Duration::from_secs(1));
    let mut messages = take();
    let first = read_by_tshark(&messages);
    for line in [
        "Version: 10",
        "Observation Domain Id: 77",
        "SrcAddr: fd00::1",
        "DstAddr: fd00::2",
        "SrcPort: 1001",
        "DstPort: 53",
        "Protocol: UDP (17)",
        "SrcAddr: 192.0.2.1",
        "SrcPort: 1002",
        // Two of 1128 octets, one of 608, and all three to the SID and with the list.
        "Octets: 2256",
        "Octets: 608",
        "Octets: 2864",
        "Packets: 2",
        "Packets: 3",
        "Sampling Packet Space: 3",
    ] {
        assert!(first.contains(line), "{line} is not in\n{first}");
    }
    for wrong in ["Malformed", "Unknown template", "No template found", "Expert Info"] {
        assert!(!first.contains(wrong), "{wrong} is in\n{first}");
    }
    // The second time only what is new.
    driver.receive(&[udp6(1001, 100)]);
    driver.advance(std::time::Duration::from_secs(10));
    messages = take();
    let second = read_by_tshark(&messages);
    assert!(second.contains("Octets: 228") && !second.contains("Octets: 2256"), "{second}");
    assert!(!second.contains("SrcPort: 1002"), "{second}");
    assert!(driver.counters().metrics["ipfix_messages"] >= 2);
    driver.stop();
    // What has come since the last export is told before all is forgotten.
    assert!(!take().is_empty());
}

/// A collector that is not there costs its messages, and nothing else.
#[test]
fn a_collector_that_is_gone_stops_nothing() {
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut driver = driver(&format!("ipfix: {{collector: \"{gone}\", interval_s: 1}}\n"));
    for _ in 0..5 {
        driver.receive(&[udp6(1, 1000)]);
        driver.advance(std::time::Duration::from_secs(1));
    }
    let metrics = driver.counters().metrics;
    assert!(metrics["ipfix_messages"] + metrics["ipfix_failed_messages"] >= 5, "{metrics:?}");
    assert_eq!(driver.counters().onward, 5);
    driver.stop();
    let wrong = |text: &str| segue_services::find("counter").unwrap().prepare(text, "x").err().unwrap().to_string();
    let said = wrong("ipfix: {collector: \"[::1]:4739\", interval_s: 0}\n");
    assert!(said.contains("ipfix.interval_s") && said.contains("write a number from 1 to 3600"), "{said}");
    assert!(wrong("ipfix: {collector: nowhere}\n").contains("ipfix.collector"));
}
