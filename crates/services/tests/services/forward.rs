//! `forward`.

use segue_service::Driver;
use segue_service::driver::srv6;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

#[test]
fn packets_go_on_as_they_are_but_for_the_segment() {
    let prepared = segue_services::find("forward").unwrap().prepare("", "x").unwrap();
    let mut driver = Driver::prepared(prepared.as_ref(), 2);
    let packets: Vec<_> = (0..100u8).map(|number| srv6(&[number; 100])).collect();
    driver.receive(&packets);
    let mut sent = driver.sent();
    sent.sort_by_key(|sent| sent.octets[80]);
    assert_eq!(sent.len(), 100);
    for (sent, packet) in sent.iter().zip(&packets) {
        assert_eq!(sent.octets[80..], packet[80..]);
        assert_eq!((sent.octets[43], sent.octets[7]), (0, 63));
    }
    driver.stop();
}

/// Which workers of two sent packets of 16 flows that take one way.
fn workers_of(service: &str) -> std::collections::BTreeSet<usize> {
    let prepared = segue_services::find(service).unwrap().prepare("", "test").unwrap();
    let mut driver = Driver::prepared(prepared.as_ref(), 2);
    let packet = |flow: u16| {
        let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let ports = UdpRepr { source_port: flow, destination_port: 53 };
        srv6(&PacketBuilder::new().ipv6(addresses).udp(ports).payload(&[7; 100]).build())
    };
    driver.receive(&(0..16).map(packet).collect::<Vec<_>>());
    let sent = driver.sent();
    assert_eq!(sent.len(), 16);
    driver.stop();
    sent.into_iter().map(|sent| sent.worker).collect()
}

/// Flows are spread over workers, but not before services to which packets of one flow come in more than one form.
#[test]
fn flows_are_spread_where_each_packet_shows_its_flow() {
    assert_eq!(workers_of("forward").len(), 2);
    for service in ["debulk", "decompress"] {
        assert_eq!(workers_of(service).len(), 1, "{service}");
    }
}
