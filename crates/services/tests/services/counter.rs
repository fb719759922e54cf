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
