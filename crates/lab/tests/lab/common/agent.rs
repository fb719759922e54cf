//! An agent in one of testkit's namespaces, with files of its own.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use segue_api::http;
use segue_lab::agent;
use segue_testkit::agent::files;
use segue_testkit::netns::Netns;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent. It takes down all that it made when it is dropped.
pub struct Agent<'a> {
    netns: &'a Netns,
    child: Child,
    directory: tempfile::TempDir,
}

impl<'a> Agent<'a> {
    /// Starts one in `netns` and applies `state`.
    pub fn start(netns: &'a Netns, state: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = OpenOptions::new().create(true).append(true).open(directory.path().join("log")).unwrap();
        let child = segued()
            .args(["--netns", netns.name()])
            .args(files(directory.path()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut agent = Self { netns, child, directory };
        let end = Instant::now() + PATIENCE;
        while http::request(&agent.socket(), "GET", "/v1/version", None, PATIENCE).is_err() {
            let ended = agent.child.try_wait().unwrap();
            assert!(ended.is_none(), "segued ended ({ended:?}):\n{}", agent.log());
            assert!(Instant::now() < end, "segued does not answer:\n{}", agent.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        agent.apply(state);
        agent
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Applies a state that must be taken without a warning.
    pub fn apply(&self, state: &str) {
        let answer = http::request(&self.socket(), "PUT", "/v1/state", Some(state), PATIENCE).unwrap();
        let status = answer.status;
        let body = answer.text().unwrap();
        assert_eq!(status, 200, "{body}\n{}", self.log());
        let report: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(report["warnings"], Value::Array(Vec::new()), "{body}");
    }

    pub fn get(&self, path: &str) -> Value {
        agent::get(&self.socket(), self.netns.name(), path).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Whether it is among SIDs and labels.
    pub fn has_sid(&self, sid: &str) -> bool {
        self.get("/v1/sids").as_array().unwrap().iter().any(|one| one["sid"] == sid)
    }

    fn sid(&self, sid: &str) -> Value {
        let sids = self.get("/v1/sids");
        let found = sids.as_array().unwrap().iter().find(|one| one["sid"] == sid);
        found.unwrap_or_else(|| panic!("no SID {sid}: {sids}")).clone()
    }

    /// Packets that arrived for a SID, and those that its proxy's function gave back.
    pub fn packets(&self, sid: &str) -> (u64, u64) {
        let report = self.sid(sid);
        (report["counter"]["packets"].as_u64().unwrap(), report["returned"]["packets"].as_u64().unwrap_or(0))
    }

    /// What the agent says of the kernel's route for a SID.
    pub fn kernel_route(&self, sid: &str) -> String {
        self.sid(sid)["kernel_route"].as_str().unwrap().to_owned()
    }

    /// Packets that ended in this way, all ports together.
    pub fn outcome(&self, name: &str) -> u64 {
        let report = self.get("/v1/counters");
        let rows = report["outcomes"].as_array().unwrap().iter().filter(|row| row["outcome"] == name);
        rows.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum()
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the agent in {}:\n{}", self.netns.name(), self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.netns.output(segued().arg("clean").args(files(self.directory.path())));
        // The agent mounts it above the pins.
        let _ = nix::mount::umount(&self.directory.path().join("bpf"));
    }
}

fn segued() -> Command {
    Command::new(agent::program().unwrap_or_else(|error| panic!("{error}")))
}
