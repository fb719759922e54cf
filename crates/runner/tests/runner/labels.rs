//! Services behind a label, on a veth: what comes back, who gets it, and what is told of what cannot be.

use std::time::Duration;

use segue_service::driver::{labels, labels_around};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};
use serde_json::{Value, json};

use crate::site::Site;

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47], packet].concat()
}

/// What must come back: the same with the addresses swapped.
fn expected(sent: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &sent[12..]].concat()
}

fn udp(port: u16, length: usize) -> Vec<u8> {
    let builder = if port.is_multiple_of(2) {
        PacketBuilder::new().ipv6(Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()))
    } else {
        PacketBuilder::new().ipv4(Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()))
    };
    builder.udp(UdpRepr::new(port, 53)).payload(&vec![7; length]).build()
}

fn stack(count: u32) -> Vec<MplsEntry> {
    (0..count).map(|label| MplsEntry { label: 16_000 + label, time_to_live: 9, ..MplsEntry::default() }).collect()
}

fn come_back(site: &Site, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().for_each(|frame| site.port.send(frame));
    let mut back = Vec::new();
    while back.len() < frames.len() {
        match site.port.receive_where(Duration::from_secs(2), |frame| {
            frame[12..14] == [0x88, 0x47] && frame[..6] == [2, 0, 0, 0, 0, 1]
        }) {
            Some(frame) => back.push(frame),
            None => break,
        }
    }
    assert_eq!(back.len(), frames.len(), "{:#}", site.status());
    back
}

/// Bad ones, that have one end each: (of XDP, as malformed).
fn bad() -> [Vec<u8>; 6] {
    let inner = udp(2, 30);
    let indicator = MplsEntry { label: 7, time_to_live: 9, ..MplsEntry::default() };
    [
        frame(&labels_around(&stack(33), &inner)),
        frame(&[0, 1, 0, 9].repeat(20)),
        frame(&[&labels_around(&stack(2), &[])[..3], &[0; 60]].concat()),
        frame(&labels_around(&[stack(1), vec![indicator]].concat(), &inner)),
        frame(&labels_around(&stack(1), &inner[..inner.len() - 1])),
        frame(&labels_around(&stack(1), &[0; 60])),
    ]
}

#[test]
#[ignore = "needs root"]
fn packets_with_labels_come_back_with_the_same_ones() {
    let mut site = Site::new(9000, 1);
    site.start("service: forward\nsteering: sr-mpls\nworkers: 2\nring_size: 256\n");
    for length in [20, 300, 1400, 8800] {
        let frames: Vec<_> = (0..100u16)
            .map(|port| frame(&labels_around(&stack(1 + u32::from(port) % 32), &udp(port, length))))
            .collect();
        // Large ones take several frames of a ring each.
        let mut back: Vec<_> = frames.chunks(10).flat_map(|chunk| come_back(&site, chunk)).collect();
        let mut wanted: Vec<_> = frames.iter().map(|frame| expected(frame)).collect();
        back.sort();
        wanted.sort();
        assert!(back == wanted, "{length}");
    }
    // Each of 16 flows has one worker, whatever its labels, and keeps its order.
    let frames: Vec<_> = (0..160u16)
        .map(|number| frame(&labels_around(&stack(1 + u32::from(number) / 16), &udp(number % 16, 20))))
        .collect();
    let back = come_back(&site, &frames);
    for port in 0..16u16 {
        let labels = |frame: &&Vec<u8>| frame[frame.len() - 28..frame.len() - 26] == port.to_be_bytes();
        let lengths: Vec<_> = back.iter().filter(labels).map(Vec::len).collect();
        assert!(lengths.len() == 10 && lengths.is_sorted(), "flow {port}: {lengths:?}");
    }
    let status = site.status();
    assert_eq!((&status["total"]["received"], &status["total"]["onward"]), (&json!(560), &json!(560)));
    assert_eq!(status["steering"], "sr-mpls");
    let workers: Vec<_> = status["workers"].as_array().unwrap().iter().map(|worker| &worker["received"]).collect();
    assert!(workers.iter().all(|received| **received != 0), "{workers:?}");
    // A stack without an end goes nowhere, what is behind a good one and is no packet neither. SRv6 is not for it.
    bad().iter().for_each(|frame| site.port.send(frame));
    site.port.send(&crate::site::frame(&segue_service::driver::srv6(&udp(2, 30))));
    come_back(&site, &frames[..1]);
    // They are another worker's, which takes its time.
    let status = site.status_where(|status| status["total"]["received"] == 564);
    assert_eq!(status["total"]["dropped_received"], json!({"malformed": 2, "unsupported_protocol": 1}), "{status:#}");
    assert_eq!((&status["xdp"]["invalid"], &status["xdp"]["to_service"]), (&json!(3), &json!(564)), "{status:#}");
    assert!(status["xdp"]["to_kernel"].as_u64() >= Some(1));

    // What cannot be is told by key, and changes nothing.
    for (text, said) in [
        ("service: forward\nworkers: 2\nring_size: 256\n", "steering has changed"),
        (
            "service: compress\nsteering: sr-mpls\n",
            "service: the service compress cannot be behind a label: it needs a header that says",
        ),
        ("service: debulk\nsteering: sr-mpls\n", "let a SID lead to it"),
        (
            "service: forward\nsteering: sr-mpls\nmerged: true\n",
            "merged: the kernel does not cut up merged packets behind labels",
        ),
        ("service: forward\nsteering: mpls\n", "steering"),
    ] {
        site.write(text);
        let error = segue_runner::control::ask(&site.socket(), "reload").unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    come_back(&site, &frames[..1]);
    site.stop();
}

#[test]
#[ignore = "needs root"]
fn copies_of_packets_with_labels_are_counted_and_the_packets_go_on() {
    let mut site = Site::new(9000, 1);
    site.start("service: counter\nsteering: sr-mpls\nconfig: {snap_length: 65575}\n");
    let frames: Vec<_> =
        [10, 150, 1000, 1900, 3000, 8800].iter().map(|length| frame(&labels(&udp(4, *length)))).collect();
    for _ in 0..20 {
        let back = come_back(&site, &frames);
        assert!(back.iter().zip(&frames).all(|(back, sent)| *back == expected(sent)));
    }
    bad()[..3].iter().for_each(|frame| site.port.send(frame));
    let octets = 20 * frames.iter().map(|frame| frame.len() - 14).sum::<usize>();
    let status = segue_testkit::wait::wait_for("all copies", Duration::from_secs(10), || {
        let status = site.status();
        (status["total"]["received"] == 120 && status["xdp"]["invalid"] == 3).then_some(status)
    });
    let report: &Value = &status["workers"][0]["report"];
    assert_eq!(
        report["segment_lists"],
        json!([{"labels": [16_003, 16_046], "packets": 120, "octets": octets, "error_octets": 0}])
    );
    assert_eq!((&report["flows"][0]["octets"], &report["sids"]), (&json!(octets), &json!([])));
    site.stop();
}
