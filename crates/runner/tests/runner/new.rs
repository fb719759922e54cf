//! `segue service new`: what it makes builds, passes its own tests, and runs on AF_XDP as any service.
//!
//! Its library with its tests is a module of this program (build.rs), so each run builds and tests that. The crate as it lies in its own directory is
//! built with SEGUE_LONG: a minute, since cargo builds what it depends on again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use segue_service::driver::srv6;

use crate::site::{PROGRAM, Site, expected, frame};

/// With its own tests.
mod library {
    include!(concat!(env!("OUT_DIR"), "/new_service.rs"));
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn new(name: &str, directory: &Path, segue: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("new").arg(name).arg("--in").arg(directory).arg("--segue").arg(segue);
    command.output().unwrap()
}

/// The profile of the workspace's own crates and of others', so that what this test program was built of is not built again.
fn cargo(root: &Path, target: &Path, word: &str) -> Command {
    let own =
        ["segue-model", "segue-runner", "segue-xsk", "segue-host", "segue-api", "segue-bpf-build", "segue-commit"];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(word).arg("--offline").current_dir(root).env("CARGO_TARGET_DIR", target);
    let set = |command: &mut Command, key: String, value: &str| {
        command.arg("--config").arg(format!("profile.dev.{key}={value}"));
    };
    set(&mut command, "debug".into(), "\"line-tables-only\"");
    set(&mut command, "package.\"*\".opt-level".into(), "1");
    set(&mut command, "package.\"*\".debug".into(), "false");
    for name in own {
        set(&mut command, format!("package.{name}.opt-level"), "0");
        set(&mut command, format!("package.{name}.debug"), "\"line-tables-only\"");
    }
    for name in ["segue-wire", "segue-service", "segue-services"] {
        set(&mut command, format!("package.{name}.debug"), "\"line-tables-only\"");
    }
    command
}

#[test]
#[ignore = "needs root"]
fn a_new_service_builds_passes_its_tests_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let output = new("short-only", directory.path(), &workspace());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = directory.path().join("short-only");
    let files = ["Cargo.toml", "Cargo.lock", "src/lib.rs", "src/main.rs", "service.yaml"];
    for file in files {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for place in ["@NAME@", "@TYPE@", "@CRATE@", "@SEGUE@"] {
            assert!(!text.contains(place), "{file} has a place that nothing was put into:\n{text}");
        }
    }
    if std::env::var_os("SEGUE_LONG").is_none() {
        eprintln!("the crate is not built as it lies there, only its library with this program; SEGUE_LONG=1 does");
        return;
    }
    // Where this program lies: DIRECTORY/debug/deps.
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    let said = cargo(&root, target, "test").output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{text}");
    for test in ["large_packets_are_dropped", "a_wrong_configuration_is_told_with_its_line"] {
        assert!(text.contains(&format!("test tests::{test} ... ok")), "{text}");
    }
    assert!(!text.contains("warning"), "{text}");
    assert!(cargo(&root, target, "build").status().unwrap().success());

    let mut site = Site::new(1500, 1);
    site.program(target.join("debug/short-only").display().to_string());
    site.start("service: short-only\nconfig: {largest: 100}\n");
    let [short, long] = [100, 101].map(|length| frame(&srv6(&vec![0x60; length])));
    for frame in [&short, &long, &short] {
        site.port.send(frame);
    }
    assert_eq!(site.returned(2), [expected(&short), expected(&short)]);
    let total = site.status()["total"].clone();
    assert_eq!((&total["onward"], &total["dropped_received"]["refused"]), (&2.into(), &1.into()), "{total:#}");
    site.stop();
}

#[test]
fn what_cannot_be_made_is_told_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("taken")).unwrap();
    for (name, segue, expected) in [
        ("Upper", workspace(), "cannot name a service"),
        ("a--b", workspace(), "cannot name a service"),
        ("match", workspace(), "cannot name a service"),
        ("../out", workspace(), "cannot name a service"),
        ("taken", workspace(), "is there already"),
        ("fine", directory.path().to_owned(), "name a checkout of it with --segue"),
    ] {
        let output = new(name, directory.path(), &segue);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{name}: {said}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
