//! A node's end of a link, and a service at the other.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use segue_runner::control;
use segue_service::driver::NEXT;
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wiring::veth;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_segue-service");

pub struct Site {
    pub node: Netns,
    pub far: Netns,
    pub port: PacketSocket,
    files: TempDir,
    program: String,
    child: Option<Child>,
}

pub const NODE: &str = "02:00:00:00:00:01";
pub const SERVICE: &str = "02:00:00:00:00:02";

impl Site {
    /// With a link of this MTU, and so many queues at the service's end.
    pub fn new(mtu: u32, queues: u32) -> Self {
        let (node, far) = (Netns::new(), Netns::new());
        if queues > 1 {
            let line = format!(
                "ip link add name node netns {} mtu {mtu} address {NODE} numrxqueues {queues} numtxqueues {queues} type veth \
                 peer name port netns {} mtu {mtu} address {SERVICE} numrxqueues {queues} numtxqueues {queues}",
                node.name(),
                far.name()
            );
            node.sh(&line);
            for (netns, name) in [(&node, "node"), (&far, "port")] {
                netns.sh(&format!("ethtool -K {name} gro on tx off"));
                netns.sh(&format!("ip link set dev {name} up"));
            }
        } else {
            veth(End { netns: &node, name: "node", mac: NODE }, End { netns: &far, name: "port", mac: SERVICE }, mtu);
        }
        // The kernel opens the way some time after the link is up; what is sent before is lost.
        segue_testkit::wait::wait_for("the link", Duration::from_secs(20), || {
            let is_open =
                |netns: &Netns, name: &str| !netns.sh(&format!("ip -o link show dev {name}")).contains("qdisc noop");
            (is_open(&node, "node") && is_open(&far, "port")).then_some(())
        });
        let port = PacketSocket::open(&node, "node");
        Self { node, far, port, files: tempfile::tempdir().unwrap(), program: PROGRAM.to_owned(), child: None }
    }

    /// Another program runs the service.
    pub fn program(&mut self, path: String) {
        self.program = path;
    }

    pub fn file(&self) -> PathBuf {
        self.files.path().join("service.yaml")
    }

    pub fn socket(&self) -> PathBuf {
        self.files.path().join("service.socket")
    }

    pub fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    /// Starts the service that a file with this text says, and waits until it answers.
    pub fn start(&mut self, text: &str) {
        self.start_with(text, &[]);
    }

    /// The same, with more arguments.
    pub fn start_with(&mut self, text: &str, arguments: &[&str]) {
        self.write(text);
        let mut command = Command::new(&self.program);
        command.arg("run").arg(self.file()).arg("--socket").arg(self.socket());
        command.args(arguments).stderr(Stdio::inherit());
        let mut child = self.far.spawn(&mut command);
        let end = Instant::now() + Duration::from_secs(30);
        while self.ask("status").is_none() {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the service has ended: {status}");
            }
            assert!(Instant::now() < end, "the service does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child = Some(child);
    }

    pub fn ask(&self, word: &str) -> Option<Value> {
        control::ask(Path::new(&self.socket()), word).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn status(&self) -> Value {
        self.ask("status").expect("the service answers")
    }

    /// The same as soon as it is so, or what it is after ten seconds.
    pub fn status_where(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let status = self.status();
            if wanted(&status) || Instant::now() > end {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was started")
    }

    /// Stops it, and asserts that it ends well.
    pub fn stop(&mut self) {
        self.ask("stop").expect("the service answers");
        let status = self.child().wait().unwrap();
        assert!(status.success(), "{status}");
        self.child = None;
    }

    /// Frames that come back with this ethertype, until `count` are there or none comes for a while.
    pub fn returned(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let wanted = |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame.get(20) == Some(&43);
            match self.port.receive_where(Duration::from_secs(2), wanted) {
                Some(frame) => frames.push(frame),
                None => break,
            }
        }
        frames
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A frame from the node to the service.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd], packet].concat()
}

/// What must come back for a frame that was sent: addresses swapped, one segment further.
pub fn expected(sent: &[u8]) -> Vec<u8> {
    let mut frame = sent.to_vec();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[14 + 7] -= 1;
    frame[14 + 24..14 + 40].copy_from_slice(&NEXT.parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame[14 + 43] = 0;
    frame
}
