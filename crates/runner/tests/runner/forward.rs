//! `forward` on a veth: what comes back, in which order, and what is counted.

use segue_service::driver::{NEXT, srv6};

use crate::site::{Site, frame};

const TEXT: &str = "service: forward\n";

/// What must come back for a frame that was sent: addresses swapped, one segment further.
fn expected(sent: &[u8]) -> Vec<u8> {
    let mut frame = sent.to_vec();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[14 + 7] -= 1;
    frame[14 + 24..14 + 40].copy_from_slice(&NEXT.parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame[14 + 43] = 0;
    frame
}

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
