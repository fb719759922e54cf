//! What the package recipe installs, and what the program does without an agent.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_version_says_what_was_built() {
    let output = Command::new(env!("CARGO_BIN_EXE_segue")).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(concat!("segue ", env!("CARGO_PKG_VERSION"))), "{said}");
    if cfg!(debug_assertions) && option_env!("SEGUE_COMMIT").is_none() {
        assert!(said.ends_with(" (development build)\n"), "{said}");
    }
}

#[test]
fn a_topology_is_planned_from_standard_input() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ring-ecmp.yaml");
    let plan = |from: &str, input: fs::File| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_segue")).args(["lab", "plan", from]).stdin(input).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let from_file = plan(file.to_str().unwrap(), fs::File::open("/dev/null").unwrap());
    assert!(from_file.0.contains("H.Encaps") && from_file.1.is_empty(), "{from_file:?}");
    assert_eq!(plan("-", fs::File::open(&file).unwrap()), from_file);
    let wrong = tempfile::NamedTempFile::new().unwrap();
    fs::write(wrong.path(), "name: x\nnodez: {}\n").unwrap();
    let (printed, said) = plan("-", fs::File::open(wrong.path()).unwrap());
    assert!(printed.is_empty() && said.contains("stdin:2:"), "{said}");
}

#[test]
fn programs_pages_and_completions_are_installed() {
    let directory = tempfile::tempdir().unwrap();
    let (built, to) = (directory.path().join("built"), directory.path().join("to"));
    fs::create_dir(&built).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_segue"), built.join("segue")).unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/install");
    let install = || Command::new(&recipe).env("DESTDIR", &to).env("BUILT", &built).output().unwrap();
    let output = install();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("segued is not there; build it first"), "{said}");
    // Of other packages: what they say is theirs.
    for program in ["segued", "segue-bench"] {
        let file = built.join(program);
        fs::write(&file, format!("#!/bin/sh\ntouch \"$2/{program}.1\"\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = install();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| fs::read_to_string(to.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(read("usr/share/man/man1/segue.1").contains(".TH segue 1"));
    assert!(read("usr/share/man/man1/segue-apply.1").contains("if\\-revision"));
    assert!(read("usr/share/man/man1/segue-firewall-explain.1").contains("segments"));
    let there: [PathBuf; 6] = [
        "usr/bin/segue-bench",
        "usr/share/man/man1/segued.1",
        "usr/share/man/man1/segue-bench.1",
        "usr/lib/systemd/system/segued.service",
        "usr/share/doc/segue/using/agent.md",
        "etc/iproute2/rt_protos.d/segue.conf",
    ]
    .map(|path| to.join(path));
    assert!(there.iter().all(|file| file.is_file()), "{there:?}");
    assert!(read("usr/share/bash-completion/completions/segue").contains("_segue()"));
    assert!(read("usr/share/zsh/site-functions/_segue").starts_with("#compdef segue"));
    assert!(read("usr/share/fish/vendor_completions.d/segue.fish").contains("complete -c segue"));
}
