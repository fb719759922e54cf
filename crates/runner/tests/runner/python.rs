//! Services in Python (`python/`) are programs like any other: on AF_XDP, confined, reloaded, started again when they die.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_service::driver::srv6;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wait::wait_for;
use tempfile::TempDir;

use crate::site::{Site, expected, frame};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A program that runs this script with the Python that has the module; it is there as long as the directory.
fn program(directory: &TempDir, script: &Path) -> String {
    let python = root().join("target/python-binding/bin/python");
    assert!(python.exists(), "{} is missing: `./x python` makes it", python.display());
    let path = directory.path().join("program");
    std::fs::write(&path, format!("#!/bin/sh\nexec {} {} \"$@\"\n", python.display(), script.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn example(name: &str) -> PathBuf {
    root().join("python/examples").join(name)
}

#[test]
#[ignore = "needs root"]
fn a_service_in_python_is_run_confined_and_reloaded_as_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut site = Site::new(1500, 1);
    site.program(program(&directory, &example("gentle.py")));
    let text = |largest: u32| format!("service: gentle\nconfig: {{largest: {largest}, pause_ms: 3600000}}\n");
    site.start(&text(100));
    let [short, long] = [100, 101].map(|length| frame(&srv6(&vec![0x60; length])));
    for frame in [&short, &long, &long, &short] {
        site.port.send(frame);
    }
    // The first one after a pause goes on.
    assert_eq!(site.returned(3), [expected(&short), expected(&long), expected(&short)]);
    let status = site.status();
    let total = &status["total"];
    assert_eq!((&total["onward"], &total["dropped_received"]["refused"]), (&3.into(), &1.into()), "{total:#}");
    assert_eq!(total["metrics"]["refused_octets"], 101, "{total:#}");
    let confinement = &status["confinement"];
    assert_eq!((&confinement["system_calls"], &confinement["capabilities"]), (&true.into(), &serde_json::json!([])));
    // What the class refuses changes nothing.
    site.write("service: gentle\nconfig: {largest: many}\n");
    let refused = segue_runner::control::ask(&site.socket(), "reload").unwrap_err().to_string();
    assert!(refused.contains("2:19: config.largest: \"many\" is of another kind than integer"), "{refused}");
    site.write(&text(101));
    site.ask("reload").expect("the service answers");
    for _ in 0..3 {
        site.port.send(&long);
    }
    assert_eq!(site.returned(3), [expected(&long), expected(&long), expected(&long)]);
    site.stop();
}

/// Its interpreter is not what has to be started again, but the script with it.
#[test]
#[ignore = "needs root"]
fn a_service_in_python_that_dies_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut site = Site::new(1500, 1);
    site.program(program(&directory, &example("noop.py")));
    site.start_with("service: noop\n", &["--restart"]);
    let sent = frame(&srv6(&[0x60; 100]));
    for _ in 0..2 {
        site.port.send(&sent);
        assert_eq!(site.returned(1), [expected(&sent)]);
        let pid = site.status()["pid"].as_i64().unwrap() as i32;
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        wait_for("another process", Duration::from_secs(20), || {
            // It may die while it answers.
            let status = segue_runner::control::ask(&site.socket(), "status").ok()??;
            (status["pid"].as_i64() != Some(pid.into())).then_some(())
        });
        site.port = PacketSocket::open(&site.node, "node");
    }
    site.stop();
}

/// An exception costs its packet. So the service still says what failed, with lines of a file that it reads behind its confinement.
#[test]
#[ignore = "needs root"]
fn an_exception_costs_one_packet_and_the_service_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("fails.py");
    let text = "from segue_service import Service, Verdict, run\n\
         class Fails(Service):\n    def packet(self, packet, context):\n        if len(packet.inner) > 100:\n            \
         raise RuntimeError('too long for me')\n        return Verdict.ONWARD\nrun(Fails)\n";
    std::fs::write(&script, text).unwrap();
    let mut site = Site::new(1500, 1);
    site.program(program(&directory, &script));
    site.start("service: fails\n");
    let [short, long] = [100, 101].map(|length| frame(&srv6(&vec![0x60; length])));
    for frame in [&long, &short, &long, &short] {
        site.port.send(frame);
    }
    assert_eq!(site.returned(2), [expected(&short), expected(&short)]);
    let total = site.status()["total"].clone();
    assert_eq!((&total["onward"], &total["dropped_received"]["service_failed"]), (&2.into(), &2.into()), "{total:#}");
    // By a signal, as by hand.
    kill(Pid::from_raw(site.child().id() as i32), Signal::SIGINT).unwrap();
    assert!(site.child().wait().unwrap().success());
}
