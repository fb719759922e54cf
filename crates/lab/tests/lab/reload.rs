//! Debugging and reloading packet services of a lab, under traffic that counts each packet.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use segue_lab::names::Roots;
use segue_lab::traffic::Account;
use segue_lab::{agent, down};

use crate::common::{assert_nothing_left, need_root, topology_file, unique};

fn topology(name: &str, delay_ms: u32) -> String {
    format!(
        "name: {name}
nodes: {{ a: {{}}, b: {{}} }}
hosts: {{ client: {{ node: a }}, server: {{ node: b }} }}
links: [{{ between: [a, b] }}]
functions:
  relay: {{ node: a, service: {{ name: forward }} }}
  collect: {{ node: a, service: {{ name: bulk, config: {{ longest_delay_ms: {delay_ms} }} }} }}
  apart: {{ node: b, service: {{ name: debulk }} }}
  count: {{ node: b, service: {{ name: counter }} }}
  watch: {{ node: b, service: {{ name: tun }} }}
  filter: {{ node: b }}
chains:
  through: {{ from: client, to: server, via: [relay, collect, apart, count, watch, filter], reverse: false }}
traffic:
  steady: {{ from: client, to: server, rate: 1000, seconds: 12, size: 200 }}
"
    )
}

/// A lab that is brought up by commands, with a program of services of its own.
struct Lab {
    name: String,
    program: std::path::PathBuf,
}

impl Lab {
    fn segue(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(agent::segue().unwrap());
        command.arg("lab").args(arguments).env("SEGUE_SERVICE", &self.program).output().unwrap()
    }

    fn good(&self, arguments: &[&str]) -> String {
        let output = self.segue(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let log = std::fs::read_to_string(format!("/run/segue/lab/{}/relay.log", self.name)).unwrap_or_default();
        assert!(output.status.success(), "{arguments:?}: {said}\n{log}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn reload(&self, service: &str) -> (bool, i64, i64) {
        let text = self.good(&["reload", &self.name, service, "-o", "json"]);
        let done: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(done["seconds"].as_f64().unwrap() < 5.0, "{done}");
        (
            done["program"].as_bool().unwrap(),
            done["processes"][0].as_i64().unwrap(),
            done["processes"][1].as_i64().unwrap(),
        )
    }

    /// As if it had been built again: another file of the same name.
    fn build_again(&self) {
        let beside = self.program.with_extension("built");
        std::fs::copy(agent::segue_service().unwrap(), &beside).unwrap();
        std::fs::rename(&beside, &self.program).unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = down::down(&Roots::default(), &self.name);
    }
}

/// Stacks of a running service; then configurations and programs change under a thousand packets a second, and every packet arrives exactly once.
#[test]
#[ignore = "needs root"]
fn services_are_debugged_and_reloaded_without_a_lost_packet() {
    need_root();
    let name = unique("rel");
    let file = topology_file(&topology(&name, 5));
    let directory = file.path.parent().unwrap();
    let lab = Lab { name: name.clone(), program: directory.join("segue-service") };
    lab.build_again();
    lab.good(&["up", file.path.to_str().unwrap()]);

    // Another configuration: that of the file as it is now.
    std::fs::write(&file.path, topology(&name, 40)).unwrap();
    let (program, before, after) = lab.reload("collect");
    assert!(!program && before == after);
    assert_eq!(configuration(&name, "collect")["longest_delay_ms"], 40);
    // Another program.
    lab.build_again();
    for service in ["relay", "collect", "apart", "count"] {
        let (program, before, after) = lab.reload(service);
        assert!(program && before != after, "{service}");
        let exe = std::fs::read_link(format!("/proc/{after}/exe")).unwrap();
        assert_eq!(exe, lab.program.canonicalize().unwrap(), "{service}");
        let end = Instant::now() + Duration::from_secs(20);
        while lives(before) {
            assert!(Instant::now() < end, "{service}: the old one has not ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(configuration(&name, "collect")["longest_delay_ms"], 40);
    // Once more, from one that has taken over itself.
    lab.build_again();
    assert!(lab.reload("relay").0);

    // What cannot go over says so, and goes on: a device of its own, a file that is wrong, a program that is none.
    let said = |output: Output| String::from_utf8(output.stderr).unwrap();
    std::fs::write(&file.path, topology(&name, 0)).unwrap();
    assert!(said(lab.segue(&["reload", &name, "collect"])).contains("longest_delay_ms"));
    std::fs::write(&file.path, topology(&name, 40)).unwrap();
    let before = process(&name, "relay");
    std::fs::copy("/bin/true", lab.program.with_extension("other")).unwrap();
    std::fs::rename(lab.program.with_extension("other"), &lab.program).unwrap();
    let text = said(lab.segue(&["reload", &name, "relay"]));
    assert!(text.contains("the new program has ended") && text.contains("the old program goes on"), "{text}");
    assert_eq!(process(&name, "relay"), before);
    let text = said(lab.segue(&["reload", &name, "filter"]));
    assert!(text.contains("it is no packet service that runs"), "{text}");

    let accounts: Vec<Account> = serde_json::from_str(&lab.good(&["traffic", &name, "--wait", "-o", "json"])).unwrap();
    assert!(accounts[0].is_flawless() && accounts[0].sent == 12_000, "{accounts:?}\n{}", told(&name));

    // gdb stops it for a moment, and lets it go.
    let stacks = lab.good(&["gdb", &name, "relay", "--batch"]);
    let threads: Vec<&str> =
        stacks.lines().filter(|line| line.contains("Thread ") || line.contains("worker")).collect();
    assert!(stacks.contains("segue_runner::run::take_over") && stacks.contains("worker-0"), "{threads:#?}");
    assert_eq!(process(&name, "relay"), before);
    let text = said(lab.segue(&["gdb", &name, "filter", "--batch"]));
    assert!(text.contains("no process of it runs"), "{text}");
    let mut without = Command::new(agent::segue().unwrap());
    let output = without.args(["lab", "gdb", &name, "relay"]).env("PATH", directory).output().unwrap();
    assert!(said(output).contains("apt-get install gdb"));

    // One that has taken over is started again when it dies, as the first one was.
    lab.build_again();
    let dead = process(&name, "relay");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(dead as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while status(&name, "relay").is_none_or(|status| status["pid"] == dead) {
        assert!(Instant::now() < end, "it is not started again");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(lab);
    assert_nothing_left(&Roots::default(), &name);
}

/// What nodes, services and links have counted, for messages.
fn told(lab: &str) -> String {
    let paths = segue_lab::names::LabPaths::new(&Roots::default(), lab).unwrap();
    let links = |name: &str| {
        let output =
            Command::new("ip").args(["-n", &paths.namespace(name), "-s", "-s", "-j", "link"]).output().unwrap();
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let line = |link: &serde_json::Value| format!("{name} {}: {}\n", link["ifname"], link["stats64"]);
        all.as_array().into_iter().flatten().map(line).collect::<String>()
    };
    let drops = |node: &str| {
        let drops = agent::get(&paths.socket(node), node, "/v1/drops").map(|drops| drops.to_string());
        format!("{node}: {}\n", drops.unwrap_or_default())
    };
    let service = |name: &str| format!("{name}: {}\n", status(lab, name).unwrap_or_default());
    let services = ["relay", "collect", "apart", "count", "watch"];
    let nodes = ["a", "b", "client", "server", "filter"];
    let mut text: String = ["a", "b"].map(drops).concat();
    text.extend(services.map(service));
    text.extend(services.into_iter().chain(nodes).map(links));
    text
}

fn lives(process: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn status(lab: &str, service: &str) -> Option<serde_json::Value> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(format!("/run/segue/lab/{lab}/{service}.socket")).ok()?;
    stream.write_all(b"status").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn process(lab: &str, service: &str) -> i64 {
    status(lab, service).unwrap()["pid"].as_i64().unwrap()
}

fn configuration(lab: &str, service: &str) -> serde_json::Value {
    status(lab, service).unwrap()["configuration"].clone()
}
