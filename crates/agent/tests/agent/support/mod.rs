//! A node between two neighbours, with a real agent.

pub mod traffic;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use segue_api::http;
use segue_testkit::{
    agent::{files, pins},
    command::sh,
    netns::{End, Netns},
    wiring::{Wiring, veth},
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// `left` -- `node` -- `right`; the node's interfaces are `west` and `east`.
pub struct Network {
    pub left: Netns,
    pub node: Netns,
    pub right: Netns,
}

impl Network {
    pub fn new() -> Self {
        let network = Self { left: Netns::new(), node: Netns::new(), right: Netns::new() };
        let mut wiring = Wiring::default();
        network.left_link(&mut wiring);
        wiring.veth(
            End { netns: &network.node, name: "east", mac: "02:00:00:00:02:01" },
            End { netns: &network.right, name: "n", mac: "02:00:00:00:02:02" },
            1500,
        );
        wiring.ip(
            &network.node,
            "address add 2001:db8:2::1/64 dev east nodad
             route add fc00:0:2::/48 via 2001:db8:2::2",
        );
        wiring.ip(&network.right, "address add 2001:db8:2::2/64 dev n nodad");
        wiring.lay();
        network
    }

    /// Makes the link to the left again.
    pub fn connect_left(&self) {
        let mut wiring = Wiring::default();
        self.left_link(&mut wiring);
        wiring.lay();
    }

    fn left_link(&self, wiring: &mut Wiring) {
        wiring.veth(
            End { netns: &self.node, name: "west", mac: "02:00:00:00:01:01" },
            End { netns: &self.left, name: "n", mac: "02:00:00:00:01:02" },
            1500,
        );
        wiring.ip(&self.node, "address add 2001:db8:1::1/64 dev west nodad");
        wiring.ip(&self.left, "address add 2001:db8:1::2/64 dev n nodad");
    }

    /// A function's namespace: the node's `to` leads to its `n`, 02:00:00:01:01:01.
    pub fn function(&self) -> Netns {
        let function = Netns::new();
        veth(
            End { netns: &self.node, name: "to", mac: "02:00:00:01:00:01" },
            End { netns: &function, name: "n", mac: "02:00:00:01:01:01" },
            1500,
        );
        function
    }

    /// What the kernel has of Segue's routes, one per line: prefix and what it does.
    pub fn routes(&self) -> Vec<String> {
        let text = self.node.sh("ip -6 route show proto 83");
        let shown = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let end = words.iter().position(|word| *word == "dev").unwrap_or(words.len());
            words[..end].join(" ")
        };
        text.lines().map(shown).collect()
    }
}

/// A running agent with files of its own. Nothing of it stays.
pub struct Agent<'a> {
    network: &'a Network,
    child: Child,
    directory: tempfile::TempDir,
    environment: Vec<(&'static str, &'static str)>,
}

/// Where the program is.
fn segued() -> Command {
    Command::new(env!("CARGO_BIN_EXE_segued"))
}

impl<'a> Agent<'a> {
    /// Starts one and waits until it answers.
    pub fn start(network: &'a Network) -> Self {
        Self::start_in(network, &[])
    }

    /// The same with these variables in its environment, also whenever it is started again.
    pub fn start_in(network: &'a Network, environment: &[(&'static str, &'static str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = spawn(network, &directory, &[], environment);
        let mut agent = Self { network, child, directory, environment: environment.to_vec() };
        agent.wait_until_ready();
        agent
    }

    /// One that is not started yet.
    pub fn new(network: &'a Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("true").spawn().unwrap();
        Self { network, child, directory, environment: Vec::new() }
    }

    /// Starts it with arguments with which it must end by itself, and fail; what it logged.
    pub fn fails(&mut self, arguments: &[&str]) -> String {
        let before = self.log().len();
        self.child = spawn(self.network, &self.directory, arguments, &self.environment);
        assert!(!self.child.wait().unwrap().success(), "{}", self.log());
        self.log().split_off(before)
    }

    /// Names of what is pinned.
    pub fn pinned(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pins()).into_iter().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Starts it again, after it has ended.
    pub fn restart(&mut self, arguments: &[&str]) {
        self.child = spawn(self.network, &self.directory, arguments, &self.environment);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        while http::request(&self.socket(), "GET", "/v1/version", None, PATIENCE).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("segued ended ({status}):\n{}", self.log());
            }
            assert!(Instant::now() < end, "segued does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL, or SIGTERM with a wait for the end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(&mut self) {
        sh(&format!("kill -TERM {}", self.child.id()));
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }

    /// Runs `segued clean` with the same files.
    pub fn clean(&self) -> std::process::Output {
        let mut command = segued();
        command.arg("clean").args(files(self.directory.path())).envs(self.environment.iter().copied());
        self.network.node.output(&mut command)
    }

    /// Number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn pins(&self) -> PathBuf {
        pins(self.directory.path())
    }

    /// Names of the sets of maps that are pinned.
    pub fn map_sets(&self) -> Vec<String> {
        let names = fs::read_dir(self.pins()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("maps-")).collect()
    }

    /// Where it keeps its record and what firewalls write.
    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Status and body.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
        let answer = http::request(&self.socket(), method, path, body, PATIENCE).unwrap();
        (answer.status, answer.text().unwrap())
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Applies a state that must be taken.
    pub fn apply(&self, state: &str) -> Value {
        let (status, body) = self.ask("PUT", "/v1/state", Some(state));
        assert_eq!(status, 200, "{body}\n{}", self.log());
        serde_json::from_str(&body).unwrap()
    }

    /// How many answers the API gives while `work` is done on another thread.
    pub fn answers_while(&self, work: impl FnOnce() + Send) -> u32 {
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let working = scope.spawn(work);
            let (mut longest, mut answers) = (Duration::ZERO, 0);
            while !working.is_finished() {
                let asked = Instant::now();
                self.get("/v1/version");
                longest = longest.max(asked.elapsed());
                answers += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            eprintln!("{answers} answers in {:?}, the longest after {longest:?}", begun.elapsed());
            answers
        })
    }

    /// Waits until the node is as it should be.
    pub fn eventually(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < end, "{what} does not come true:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.clean();
        // The agent mounts it above the pins.
        let _ = nix::mount::umount(&self.directory.path().join("bpf"));
    }
}

fn spawn(
    network: &Network,
    directory: &tempfile::TempDir,
    arguments: &[&str],
    environment: &[(&'static str, &'static str)],
) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.path().join("log")).unwrap();
    segued()
        .args(["--netns", network.node.name()])
        .args(files(directory.path()))
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
