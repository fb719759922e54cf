//! What the program says: without root, and without a service that runs.

use std::process::{Command, Output};

use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

use crate::site::PROGRAM;

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn checked(text: &str) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("service.yaml");
    std::fs::write(&file, text).unwrap();
    let output = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), said.replace(file.to_str().unwrap(), "FILE"))
}

#[test]
fn files_are_checked_with_line_key_and_remedy() {
    assert_eq!(checked("service: forward\nworkers: 2\ncpus: [0, 1]\n"), (true, String::new()));
    for (text, expected) in [
        ("service: nothing\n", "FILE:1:10: service: there is no service \"nothing\"; write one of them: "),
        ("service: forward\nworkers: 0\n", "FILE:2:10: workers: 0 workers are not possible"),
        ("service: forward\nring_size: 100\n", "FILE:2:12: ring_size: 100 is no size of a ring"),
        (
            "service: forward\nring_sizes: 1\n",
            "FILE:2:1: ring_sizes: the key \"ring_sizes\" is not known here; did you mean",
        ),
        ("service: forward\nconfig:\n  fast: true\n", "FILE:3:9: config.fast: the key \"fast\" is not known here"),
        ("service: forward\ncpus: [0, 1]\n", "FILE:2:1: cpus: 2 processors for 1 workers"),
        ("service: forward\nbusy_poll: 1001\n", "FILE:2:12: busy_poll: 1001 microseconds are too many"),
        ("service: forward\ninterface: a/b\n", "FILE:2:12: interface: \"a/b\" is no interface's name"),
        ("workers: 1\n", "the key \"service\" is missing; add `service:`"),
    ] {
        let (good, said) = checked(text);
        assert!(!good && said.contains(expected), "{text}\nsaid: {said}\nnot: {expected}");
    }
}

#[test]
fn kinds_schemas_and_lists_are_documents() {
    let output = run(&["kinds", "-o", "json"]);
    let kinds: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(kinds.as_array().unwrap().iter().any(|kind| kind["name"] == "forward"), "{kinds}");
    for arguments in [&["schema"][..], &["schema", "forward"]] {
        let schema: serde_json::Value = serde_json::from_slice(&run(arguments).stdout).unwrap();
        assert_eq!(schema["additionalProperties"], false, "{schema}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let output = run(&["list", "-o", "json", "--directory", path]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), serde_json::json!([]));
    let output = run(&["reload", "gone", "--directory", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("no service \"gone\" runs here"), "{said}");
}

/// A capture of steered packets makes a dictionary that `compress` takes; what is none, and too few packets, are told.
#[test]
fn a_dictionary_is_trained_on_a_capture() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let frames: Vec<Vec<u8>> = (0..2000_u32)
        .map(|number| {
            let text = format!(
                "GET /page/{number} HTTP/1.1\r\nHost: www.example.com\r\nAccept: text/html,{}\r\n\r\n",
                number * 7
            );
            let addresses = Ipv6Repr::new("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let packet = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv6(addresses);
            packet.udp(UdpRepr::new(1000, 80)).payload(text.as_bytes()).build()
        })
        .collect();
    std::fs::write(path("web.pcap"), segue_api::pcap::classic(&frames)).unwrap();
    let train = |capture: &str| {
        run(&["compress", "train", &path(capture), "--dictionary", &path("web.zdict"), "--size", "4096"])
    };
    let output = train("web.pcap");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("from 2000 packets of 2000 frames"), "{said}");
    let service = format!("service: compress\nconfig: {{ algorithm: zstd, dictionary: {} }}\n", path("web.zdict"));
    assert_eq!(checked(&service), (true, String::new()));

    std::fs::write(path("few.pcap"), segue_api::pcap::classic(&frames[..3])).unwrap();
    std::fs::write(path("none.pcap"), "no capture").unwrap();
    for (capture, expected) in
        [("few.pcap", "at least 8 packets"), ("none.pcap", "do: name a pcap or pcapng file"), ("gone", "cannot read")]
    {
        let output = train(capture);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(expected), "{capture}: {said}");
    }
}
