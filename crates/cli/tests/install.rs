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
    other_programs(&built);
    let output = install();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| fs::read_to_string(to.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(read("usr/share/man/man1/segue.1").contains(".TH segue 1"));
    assert!(read("usr/share/man/man1/segue-apply.1").contains("if\\-revision"));
    assert!(read("usr/share/man/man1/segue-firewall-explain.1").contains("segments"));
    let there: [PathBuf; 8] = [
        "usr/bin/segue-bench",
        "usr/bin/segue-service",
        "usr/share/man/man1/segue-service.1",
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

/// Stands for programs of other packages: what they say is theirs.
fn other_programs(built: &Path) {
    for program in ["segued", "segue-bench", "segue-service"] {
        let file = built.join(program);
        fs::write(&file, format!("#!/bin/sh\ntouch \"$2/{program}.1\"\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Builds the Debian package of these programs.
fn package(directory: &Path) -> PathBuf {
    let built = directory.join("built");
    fs::create_dir(&built).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_segue"), built.join("segue")).unwrap();
    other_programs(&built);
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb");
    let path = run(Command::new(recipe).arg(directory).env("BUILT", &built).env("COMPRESSION", "gzip:1"));
    PathBuf::from(path.trim_end())
}

#[test]
fn a_debian_package_has_all_that_policy_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let package = package(directory.path());
    let name = package.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(concat!("segue_", env!("CARGO_PKG_VERSION"), "_")) && name.ends_with(".deb"), "{name}");
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for (mode, path) in [
        ("-rwxr-xr-x root/root", "./usr/bin/segue"),
        ("-rwxr-xr-x root/root", "./usr/bin/segued"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/segued.service"),
        ("-rw-r--r-- root/root", "./usr/share/segue/schema/node-state.json"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/segue-doctor.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/segue"),
        ("-rw-r--r-- root/root", "./usr/share/doc/segue/copyright"),
        ("-rw-r--r-- root/root", "./usr/share/doc/segue/changelog.gz"),
        ("-rw-r--r-- root/root", "./etc/iproute2/rt_protos.d/segue.conf"),
    ] {
        let found = contents.lines().any(|line| line.starts_with(mode) && line.ends_with(&format!(" {path}")));
        assert!(found, "{mode} {path}: {contents}");
    }
    let strange = contents.lines().find(|line| !line.contains(" root/root ") || line.contains("rwxrwx"));
    assert_eq!(strange, None, "everything is root's, and nobody else writes");
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).trim_end().to_owned();
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
    assert!(field("Description").lines().all(|line| line.len() <= 80), "{}", field("Description"));
    // Unpacked, it works.
    let to = directory.path().join("to");
    run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&to));
    let said = run(Command::new(to.join("usr/bin/segue")).arg("--version"));
    assert!(said.starts_with(concat!("segue ", env!("CARGO_PKG_VERSION"))), "{said}");
    let scripts = directory.path().join("control");
    run(Command::new("dpkg-deb").arg("--control").arg(&package).arg(&scripts));
    for script in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh").arg("-n").arg(scripts.join(script)));
    }
    run(Command::new("md5sum").arg("--check").arg("--quiet").arg(scripts.join("md5sums")).current_dir(&to));
}

#[test]
#[ignore = "needs root"]
fn a_debian_package_is_installed_upgraded_and_purged() {
    let directory = tempfile::tempdir().unwrap();
    let package = package(directory.path());
    let root = directory.path().join("root");
    for part in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    // There is no other package in that root, and no program for its scripts.
    let dpkg = |arguments: &[&str]| {
        let options = ["--force-depends", "--force-script-chrootless", "--root"];
        run(Command::new("dpkg").args(options).arg(&root).args(arguments))
    };
    let file = package.to_str().unwrap();
    let status = || dpkg(&["--status", "segue"]);
    for _ in 0..2 {
        // The second time it is an upgrade.
        dpkg(&["--install", file]);
        assert!(status().contains("Status: install ok installed"), "{}", status());
    }
    assert_eq!(dpkg(&["--verify", "segue"]), "", "every file is as it was packed");
    let said = run(Command::new(root.join("usr/bin/segue")).arg("--version"));
    assert!(said.starts_with("segue "), "{said}");
    dpkg(&["--purge", "segue"]);
    assert!(!root.join("usr/bin/segue").exists() && !root.join("etc/iproute2/rt_protos.d/segue.conf").exists());
}
