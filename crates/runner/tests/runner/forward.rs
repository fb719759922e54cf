//! `forward` on a veth: what comes back, in which order, and what is counted.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_service::driver::srv6;

use crate::site::{Site, expected, frame};

const TEXT: &str = "service: forward\n";

fn numbered(count: u32, length: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let mut inner = vec![0x5a; length];
            inner[..4].copy_from_slice(&number.to_be_bytes());
            frame(&srv6(&inner))
        })
        .collect()
}

/// Frames of all sockets are where they belong, and nothing went wrong with one.
fn assert_frames(status: &serde_json::Value, count: u64) {
    for worker in status["workers"].as_array().unwrap() {
        let socket = &worker["socket"];
        let places = ["frames_free", "frames_to_receive", "frames_in_batch", "frames_to_transmit"];
        let sum: u64 = places.iter().map(|place| socket[place].as_u64().unwrap()).sum();
        assert_eq!(
            (sum, socket["frames_in_batch"].as_u64(), socket["frame_faults"].as_u64()),
            (count, Some(0), Some(0))
        );
    }
}

#[test]
#[ignore = "needs root"]
fn packets_come_back_one_segment_further_and_in_order() {
    let mut site = Site::new(9000, 1);
    site.start(&format!("{TEXT}ring_size: 256\n"));
    // More than there are frames: each is used several times.
    for round in 0..8 {
        let frames = numbered(250, 100);
        frames.iter().for_each(|frame| site.port.send(frame));
        let back = site.returned(frames.len());
        assert_eq!(back.len(), frames.len(), "round {round}: {:#}", site.status());
        for (back, sent) in back.iter().zip(&frames) {
            assert_eq!(back, &expected(sent));
        }
    }
    // Several frames each.
    let jumbo = numbered(100, 8900);
    for chunk in jumbo.chunks(10) {
        chunk.iter().for_each(|frame| site.port.send(frame));
        let back = site.returned(chunk.len());
        assert_eq!(back.len(), chunk.len(), "{:#}", site.status());
        assert!(back.iter().zip(chunk).all(|(back, sent)| *back == expected(sent)));
    }
    let status = site.status();
    assert_eq!(status["total"]["received"], 2100);
    assert_eq!(status["total"]["onward"], 2100);
    assert_eq!(status["xdp"]["to_service"], 2100);
    assert_frames(&status, 768);
    site.stop();
}

/// Packets come all the time while the file is read again and again: none is lost.
#[test]
#[ignore = "needs root"]
fn a_reload_loses_no_packet_and_a_wrong_file_changes_nothing() {
    let mut site = Site::new(1500, 1);
    site.start(TEXT);
    let frames = numbered(500, 100);
    for round in 0..10 {
        for frame in &frames {
            site.port.send(frame);
        }
        match round % 2 {
            0 => drop(site.ask("reload")),
            _ => kill(Pid::from_raw(site.child().id() as i32), Signal::SIGHUP).unwrap(),
        }
        let back = site.returned(frames.len());
        assert_eq!(back.len(), frames.len(), "round {round}: {:#}", site.status());
        assert!(back.iter().zip(&frames).all(|(back, sent)| *back == expected(sent)));
    }
    assert_eq!(site.status()["reloads"], 10);
    for (text, said) in [
        ("service: forward\nring_size: 100\n", "is no size of a ring"),
        ("service: forward\nring_size: 4096\n", "ring_size has changed"),
        ("service: counter\n", "service has changed"),
    ] {
        site.write(text);
        let error = segue_runner::control::ask(&site.socket(), "reload").unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    site.port.send(&frames[0]);
    assert_eq!(site.returned(1).len(), 1);
    assert_eq!(site.status()["reloads"], 10);
    site.stop();
}

/// What is no steered packet is the kernel's; what is broken has one end.
#[test]
#[ignore = "needs root"]
fn other_packets_are_left_to_the_kernel() {
    let mut site = Site::new(1500, 1);
    site.start(TEXT);
    let whole = numbered(1, 100).remove(0);
    let with = |at: usize, octet: u8| {
        let mut frame = whole.clone();
        frame[at] = octet;
        frame
    };
    // No SRH, another routing header, no segment left, hop limit of one, IPv4.
    for frame in [with(20, 41), with(56, 3), with(57, 0), with(21, 1), with(13, 0)] {
        site.port.send(&frame);
    }
    // Segments Left beyond the list, a list beyond the header, a length beyond the packet.
    for frame in [with(57, 9), with(58, 9), with(19, 255)] {
        site.port.send(&frame);
    }
    site.port.send(&whole);
    assert_eq!(site.returned(2), [expected(&whole)]);
    let status = site.status();
    assert_eq!((&status["total"]["received"], &status["xdp"]["to_service"]), (&4.into(), &4.into()), "{status:#}");
    assert_eq!(status["total"]["dropped_received"], serde_json::json!({ "malformed": 3 }));
    assert!(status["xdp"]["to_kernel"].as_u64() >= Some(5));
    site.stop();
}

/// Two workers with a queue each: both are served, and packets of one queue stay in order.
#[test]
#[ignore = "needs root"]
fn two_workers_have_a_queue_each() {
    let mut site = Site::new(1500, 2);
    site.start("service: forward\nworkers: 2\n");
    let frames = numbered(400, 100);
    frames.iter().for_each(|frame| site.port.send(frame));
    let mut back = site.returned(frames.len());
    assert_eq!(back.len(), frames.len(), "{:#}", site.status());
    back.sort();
    let mut wanted: Vec<_> = frames.iter().map(|frame| expected(frame)).collect();
    wanted.sort();
    assert_eq!(back, wanted);
    let status = site.status();
    assert_eq!(status["workers"].as_array().unwrap().len(), 2);
    assert_eq!(status["total"]["onward"], 400);
    assert_frames(&status, 3 * 2048);
    site.stop();
}

/// The supervisor starts it again, and its interface is down meanwhile.
#[test]
#[ignore = "needs root"]
fn one_that_dies_is_started_again() {
    let mut site = Site::new(1500, 1);
    site.start_with(TEXT, &["--restart"]);
    let frames = numbered(10, 100);
    for round in 0..2 {
        frames.iter().for_each(|frame| site.port.send(frame));
        assert_eq!(site.returned(frames.len()).len(), frames.len(), "round {round}");
        let pid = site.status()["pid"].as_i64().unwrap() as i32;
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        segue_testkit::wait::wait_for("another process", Duration::from_secs(20), || {
            // It may die while it answers.
            let status = segue_runner::control::ask(&site.socket(), "status").ok()??;
            (status["pid"].as_i64() != Some(pid.into())).then_some(())
        });
        site.port = segue_testkit::packet_socket::PacketSocket::open(&site.node, "node");
    }
    site.stop();
}
