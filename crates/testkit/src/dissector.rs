//! Wireshark's dissectors as a second reader of frames, in one `sharkd` for each test program: starting a tshark takes longer than most
//! tests whose frames it reads.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// What must be in no frame. 0x600000 is the severity "warning"; above it lies "error".
const FAULTS: &str = "_ws.malformed || _ws.expert.severity >= 0x600000 || _ws.unreassembled";

/// The one of this program; it ends with it, when its standard input does.
static SHARED: Mutex<Option<Dissector>> = Mutex::new(None);

#[derive(Debug)]
struct Dissector {
    _process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    files: u32,
}

/// Asserts that all frames are dissected without anything malformed or worth a warning, checksums included.
///
/// # Panics
///
/// When they are not, or there is no `sharkd`.
pub fn no_warnings(frames: &[Vec<u8>]) {
    if frames.is_empty() {
        return;
    }
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().expect("a file");
    std::fs::write(file.path(), segue_api::pcap::classic(frames)).expect("a capture file");
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let dissector = shared.get_or_insert_with(Dissector::start);
    dissector.ask("load", &json!({"file": file.path()}));
    let listed = dissector.ask("frames", &json!({}));
    assert_eq!(numbers(&listed).len(), frames.len(), "frames that sharkd has read");
    // What a filter's text has found in one file, sharkd says of the next one too: so no two have the same text.
    dissector.files += 1;
    let filter = format!("({FAULTS}) && frame.number < {}", 1_000_000 + dissector.files);
    let faults = numbers(&dissector.ask("frames", &json!({"filter": filter})));
    if let Some(first) = faults.first() {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(file.path()).args(["-V", "-Y", &format!("frame.number == {first}")]);
        let detail = crate::command::run(&mut tshark);
        panic!("Wireshark warns about frames {faults:?}; the first:\n{detail}");
    }
}

fn numbers(frames: &Value) -> Vec<u64> {
    let rows = frames.as_array().unwrap_or_else(|| panic!("no list of frames: {frames}"));
    rows.iter().map(|row| row["num"].as_u64().expect("a frame's number")).collect()
}

impl Dissector {
    fn start() -> Self {
        // In a network namespace of its own: it outlives those of tests.
        let mut process = Command::new("unshare")
            .args(["--net", "sharkd", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare, of util-linux, and sharkd, which ./x test installs with tshark");
        let requests = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut started = Self { _process: process, requests, answers, files: 0 };
        for protocol in ["ip", "udp", "tcp"] {
            let name = format!("{protocol}.check_checksum");
            started.ask("setconf", &json!({"name": name, "value": "TRUE"}));
        }
        started
    }

    /// The result of a request (JSON-RPC 2.0, one in a line).
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        writeln!(self.requests, "{request}").expect("sharkd is there");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer of sharkd");
        assert!(!answer.is_empty(), "sharkd has ended, or is not installed: ./x test installs it with tshark");
        let mut answer: Value =
            serde_json::from_str(&answer).unwrap_or_else(|_| panic!("sharkd says {answer:?} to {request}"));
        assert!(answer.get("error").is_none(), "sharkd says {answer} to {request}");
        answer["result"].take()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::panic::catch_unwind;

    use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

    use super::no_warnings;

    /// Needs no network of its own, but root, for the namespace of the dissector.
    #[test]
    #[ignore = "needs root"]
    fn faults_are_seen_and_told_from_those_of_the_last_frames() {
        let (from, to) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
        let packet = PacketBuilder::ethernet([2; 6], [4; 6]).ipv6(Ipv6Repr::new(from, to));
        let sound = packet.udp(UdpRepr::new(1000, 2000)).payload(b"some octets").build();
        let mut changed = sound.clone();
        *changed.last_mut().expect("octets") ^= 1;
        no_warnings(&[sound.clone(), sound.clone()]);
        let fault = catch_unwind(|| no_warnings(&[sound.clone(), changed])).expect_err("a wrong checksum is no fault");
        let text = fault.downcast_ref::<String>().expect("a message");
        assert!(text.starts_with("Wireshark warns about frames [2]"), "{text}");
        no_warnings(&[sound]);
    }
}
