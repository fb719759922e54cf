//! `segue bench` is another program, and `segue` links nothing of what only that needs.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

/// A directory with `segue` alone in it.
fn installed() -> tempfile::TempDir {
    // Beside the program that cargo built, where a hard link is possible.
    let built = Path::new(env!("CARGO_BIN_EXE_segue"));
    let directory = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
    fs::hard_link(built, directory.path().join("segue")).unwrap();
    directory
}

fn script(directory: &Path, says: &str) {
    let file = directory.join("segue-bench");
    fs::write(&file, format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn segue(directory: &Path, path: &Path, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(directory.join("segue")).args(args).env("PATH", path).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[test]
fn bench_is_the_program_beside_it_or_in_path() {
    let (here, elsewhere) = (installed(), tempfile::tempdir().unwrap());
    let run = |args: &[&str]| segue(here.path(), elsewhere.path(), args);

    let (status, said) = run(&["bench", "end"]);
    assert_eq!(status, Some(1), "{said}");
    let remedy = "cargo build --release -p segue-bench";
    assert!(said.contains(here.path().to_str().unwrap()) && said.contains(remedy), "{said}");

    script(elsewhere.path(), "in-path");
    let words = ["bench", "end", "--sizes", "64,128", "--svg", "x.svg"];
    assert_eq!(run(&words), (Some(7), "in-path end --sizes 64,128 --svg x.svg\n".to_owned()));

    script(here.path(), "beside");
    assert_eq!(run(&["bench", "--help"]), (Some(7), "beside --help\n".to_owned()));
    assert_eq!(run(&["bench", "-h"]), (Some(7), "beside -h\n".to_owned()));
    assert_eq!(run(&["-o", "json", "bench", "cost"]), (Some(7), "beside --json cost\n".to_owned()));
    assert_eq!(run(&["bench", "cost", "-o", "json"]), (Some(7), "beside cost -o json\n".to_owned()));
    assert_eq!(run(&["bench"]), (Some(7), "beside\n".to_owned()), "that it needs a scenario, it says itself");
}

#[test]
fn the_command_line_is_light() {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let tree = ["tree", "--offline", "--locked", "-p", "segue-cli", "-e", "normal", "--prefix", "none", "-f", "{p}"];
    let answer = Command::new(cargo).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let text = String::from_utf8(answer.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"segue-api"), "{names:?}");
    for heavy in [
        "libbpf-sys",
        "libbpf-rs",
        "axum",
        "plotters",
        "tokio",
        "utoipa",
        "segue-agent",
        "segue-bench",
        "segue-dataplane",
    ] {
        assert!(!names.contains(&heavy), "segue-cli links {heavy}");
    }
}
