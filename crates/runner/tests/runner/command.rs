//! What the program says: without root, and without a service that runs.

use std::process::{Command, Output};

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
