//! `counter` on a veth: packets go on without waiting, copies come.

use std::time::{Duration, Instant};

use segue_service::driver::srv6;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

use crate::site::{Site, expected, frame};

fn udp(port: u16, length: usize) -> Vec<u8> {
    let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let ports = UdpRepr { source_port: port, destination_port: 53 };
    frame(&srv6(&PacketBuilder::new().ipv6(addresses).udp(ports).payload(&vec![7; length]).build()))
}

#[test]
#[ignore = "needs root"]
fn packets_go_on_and_copies_of_all_sizes_are_counted() {
    let mut site = Site::new(9000, 1);
    site.start("service: counter\nconfig: {snap_length: 65575}\n");
    // One of each class of records, and one of several pages.
    let lengths = [10, 150, 1000, 1900, 3000, 8800];
    for round in 0..50u16 {
        for length in lengths {
            site.port.send(&udp(length as u16, length));
        }
        let back = site.returned(lengths.len());
        for (back, length) in back.iter().zip(lengths) {
            assert_eq!(back, &expected(&udp(length as u16, length)), "round {round}");
        }
        assert_eq!(back.len(), lengths.len(), "round {round}");
    }
    let end = Instant::now() + Duration::from_secs(10);
    let status = loop {
        let status = site.status();
        if status["total"]["received"] == 300 {
            break status;
        }
        assert!(Instant::now() < end, "{status:#}");
    };
    let flows = status["workers"][0]["report"]["flows"].as_array().unwrap().clone();
    assert_eq!(flows.len(), lengths.len());
    for flow in &flows {
        let length = flow["source_port"].as_u64().unwrap();
        assert_eq!((flow["packets"].as_u64(), flow["octets"].as_u64()), (Some(50), Some(50 * (length + 128))));
    }
    assert_eq!(status["total"]["dropped_received"], serde_json::json!({}));
    site.stop();
}

#[test]
#[ignore = "needs root"]
fn one_packet_in_so_many_is_copied() {
    let mut site = Site::new(1500, 1);
    site.start("service: counter\nconfig: {one_in: 10}\n");
    for _ in 0..20 {
        (0..100).for_each(|_| site.port.send(&udp(1, 100)));
        assert_eq!(site.returned(100).len(), 100);
    }
    std::thread::sleep(Duration::from_millis(50));
    let status = site.status();
    let copied = status["xdp"]["to_service"].as_u64().unwrap();
    assert_eq!(copied + status["xdp"]["not_sampled"].as_u64().unwrap(), 2000);
    assert!((100..300).contains(&copied), "200 are expected: {copied}");
    assert_eq!(status["total"]["received"], copied);
    site.stop();
}
