//! `forward` on a veth: what comes back, in which order, and what is counted.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_service::driver::srv6;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};
use segue_xsk::{Options, Socket};

use crate::site::{Site, expected, frame};

const TEXT: &str = "service: forward\n";
const MERGED: &str = "service: forward\nmerged: true\n";

fn numbered(count: u32, length: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let mut inner = vec![0x5a; length];
            inner[..4].copy_from_slice(&number.to_be_bytes());
            frame(&srv6(&inner))
        })
        .collect()
}

/// Frames of all queues are where they belong, and nothing went wrong with one.
fn assert_frames(status: &serde_json::Value, count: u64) {
    let workers = status["workers"].as_array().unwrap();
    for socket in workers.iter().flat_map(|worker| worker["sockets"].as_array().unwrap()) {
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
    let (mut site, status) = come_back(&format!("{TEXT}ring_size: 256\n"));
    assert_frames(&status, 768);
    site.stop();
}

/// By packet sockets.
#[test]
#[ignore = "needs root"]
fn packets_that_may_be_merged_come_back_one_segment_further_and_in_order() {
    let (mut site, status) = come_back(MERGED);
    assert_eq!(status["workers"][0]["lost"], 0, "{status:#}");
    // A link that goes and comes is no reason to end.
    site.far.sh("ip link set dev port down");
    assert_eq!(site.status()["pid"], status["pid"]);
    std::thread::sleep(Duration::from_millis(300));
    site.far.sh("ip link set dev port up");
    segue_testkit::wait::wait_for("packets", Duration::from_secs(10), || {
        site.port.send(&numbered(1, 100)[0]);
        (!site.returned(1).is_empty()).then_some(())
    });
    assert_eq!(site.status()["pid"], status["pid"]);
    site.stop();
}

/// A site that runs what `text` says, after packets of all sizes have come back from it; and its status.
fn come_back(text: &str) -> (Site, serde_json::Value) {
    let mut site = Site::new(9000, 1);
    site.start(text);
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
    (site, status)
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
        (MERGED, "merged has changed"),
        ("service: compress\nmerged: true\n", "takes each packet by itself"),
        ("service: forward\nmerged: true\nbusy_poll: 50\n", "it is of AF_XDP sockets"),
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
    for text in [TEXT, MERGED] {
        left_to_the_kernel(text);
    }
}

fn left_to_the_kernel(text: &str) {
    let mut site = Site::new(1500, 1);
    site.start(text);
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

/// Packets of so many flows, numbered within each, one flow after the other.
fn flows(count: u16, packets: u32) -> Vec<(u16, Vec<u8>)> {
    let inner = |flow: u16, number: u32| {
        let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let ports = UdpRepr { source_port: 1000 + flow, destination_port: 53 };
        PacketBuilder::new().ipv6(addresses).udp(ports).payload(&number.to_be_bytes()).build()
    };
    let all = (0..packets).flat_map(|number| (0..count).map(move |flow| (flow, number)));
    all.map(|(flow, number)| (flow, frame(&srv6(&inner(flow, number))))).collect()
}

/// The flow of a frame that [`flows`] has made, and its number there.
fn told(frame: &[u8]) -> (u16, u32) {
    let at = frame.len() - 12;
    let port = u16::from_be_bytes(frame[at..at + 2].try_into().unwrap());
    (port - 1000, u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap()))
}

/// Binds the calling thread to a processor.
fn bind(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    nix::sched::sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Two workers on one queue: each flow has one of them, and leaves in order, also if its packets come from two processors in turn.
#[test]
#[ignore = "needs root"]
fn two_workers_keep_every_flow_in_order() {
    assert_frames(&in_order("service: forward\nworkers: 2\n"), 4 * 2048);
    in_order("service: forward\nworkers: 2\nmerged: true\n");
}

fn in_order(text: &str) -> serde_json::Value {
    const FLOWS: u16 = 16;
    const PACKETS: u32 = 400;
    let mut site = Site::new(1500, 1);
    site.start(text);
    let frames = flows(FLOWS, PACKETS);
    let mut next = [0; FLOWS as usize];
    // As many at a time as the test's own socket holds.
    for (round, chunk) in frames.chunks(200).enumerate() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind(round % 2);
                chunk.iter().for_each(|(_, frame)| site.port.send(frame));
            });
        });
        let back = site.returned(chunk.len());
        assert_eq!(back.len(), chunk.len(), "{:#}", site.status());
        for frame in &back {
            let (flow, number) = told(frame);
            assert_eq!(number, next[usize::from(flow)], "flow {flow} is out of order");
            next[usize::from(flow)] += 1;
        }
    }
    assert_eq!(next, [PACKETS; FLOWS as usize]);
    let status = site.status();
    let received: Vec<_> =
        status["workers"].as_array().unwrap().iter().map(|worker| worker["received"].as_u64().unwrap()).collect();
    assert_eq!(received.iter().sum::<u64>(), u64::from(FLOWS) * u64::from(PACKETS));
    assert!(received.iter().all(|count| *count > 0 && count % u64::from(PACKETS) == 0), "{received:?}");
    site.stop();
    status
}

/// With two queues as well: a flow has the same worker by whichever queue its packets come.
#[test]
#[ignore = "needs root"]
fn a_flow_has_one_worker_on_all_queues() {
    const FLOWS: u16 = 8;
    const PACKETS: u32 = 100;
    let mut site = Site::new(1500, 2);
    site.start("service: forward\nworkers: 2\n");
    let mut back = Vec::new();
    for (round, chunk) in flows(FLOWS, PACKETS).chunks(100).enumerate() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind(round % 2);
                chunk.iter().for_each(|(_, frame)| site.port.send(frame));
            });
        });
        back.extend(site.returned(chunk.len()));
    }
    let mut told: Vec<_> = back.iter().map(|frame| told(frame)).collect();
    told.sort_unstable();
    let all: Vec<_> = (0..FLOWS).flat_map(|flow| (0..PACKETS).map(move |number| (flow, number))).collect();
    assert_eq!(told, all, "{:#}", site.status());
    let status = site.status();
    for worker in status["workers"].as_array().unwrap() {
        assert_eq!(worker["sockets"].as_array().unwrap().len(), 2);
        assert_eq!(worker["received"].as_u64().unwrap() % u64::from(PACKETS), 0, "{status:#}");
    }
    assert_frames(&status, 4 * 2048);
    site.stop();
}

/// What a service may do once it runs: nothing that needs a capability, and few system calls, in all of its threads.
#[test]
#[ignore = "needs root"]
fn it_gives_up_what_it_does_not_need() {
    let mut site = Site::new(1500, 1);
    site.start("service: forward\nworkers: 2\nlimits: {memory_mib: 256, processor_percent: 50}\n");
    let status = site.status();
    let confinement = &status["confinement"];
    assert_eq!((&confinement["capabilities"], &confinement["system_calls"]), (&serde_json::json!([]), &true.into()));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", status["pid"])).unwrap();
    let mut threads = 0;
    for task in tasks {
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        threads += 1;
    }
    assert_eq!(threads, 3);
    // Where the host has control groups, it is in one; where not, it says so.
    match confinement["control_group"].as_str() {
        Some(group) => {
            let inside = std::fs::read_to_string(format!("{group}/cgroup.procs")).unwrap();
            assert_eq!(inside.trim(), status["pid"].to_string());
            site.stop();
            assert!(!std::path::Path::new(group).exists(), "{group} is left");
            return;
        }
        None => assert!(confinement["missing"][0].as_str().unwrap().contains("limits of memory"), "{confinement:#}"),
    }
    site.stop();
}

/// The supervisor starts it again, and its interface is down meanwhile.
#[test]
#[ignore = "needs root"]
fn one_that_dies_is_started_again() {
    for text in [TEXT, MERGED] {
        dies(text);
    }
}

fn dies(text: &str) {
    let mut site = Site::new(1500, 1);
    site.start_with(text, &["--restart"]);
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

/// The kernel itself lets go of one some time after its last socket was closed.
#[test]
#[ignore = "needs root"]
fn a_queue_that_somebody_lets_go_of_is_waited_for() {
    let site = Site::new(1500, 1);
    site.far.enter(|| {
        let open = || Socket::open("port", 0, 1, Options::default());
        let held = open().unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            drop(held);
        });
        let held = open().expect("it is let go");
        holder.join().unwrap();
        let refused = open().err().expect("one has it").to_string();
        assert!(refused.contains("bind to queue 0 of port") && refused.contains("end the other program"), "{refused}");
        drop(held);
    });
}
