//! Against iptables itself: the same file, loaded in a network namespace of its own, saved and listed. Needs root, and the commands
//! `unshare`, `iptables-legacy`, `ip6tables-legacy`, `iptables-nft`, `ip6tables-nft`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use segue_iptables::{Family, ListOptions, RuleSet, parse_rules};

/// What a shell prints in a network namespace that is gone with it; `source` is its input.
fn in_namespace(script: &str, source: &str) -> String {
    let mut child = Command::new("unshare")
        .args(["--net", "sh", "-e", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    child.stdin.take().expect("stdin").write_all(source.as_bytes()).expect("rules");
    let output = child.wait_with_output().expect("output");
    assert!(output.status.success(), "{script}: {}\n{}", output.status, source.lines().last().unwrap_or_default());
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const FILES: [&str; 7] = ["server.v4", "ufw.v4", "docker.v4", "router.v4", "host.v6", "options.v4", "options.v6"];

fn read(source: &str, name: &str) -> RuleSet {
    let family = if name.ends_with("v4") { Family::Ipv4 } else { Family::Ipv6 };
    parse_rules(source, name, family).unwrap_or_else(|errors| panic!("{errors}"))
}

fn program(name: &str, kind: &str) -> String {
    format!("{}-{kind}", if name.ends_with("v4") { "iptables" } else { "ip6tables" })
}

/// A file for one of the two variants: nft refuses to test for no address at all, and the kernel's nf_tables has no negated range of
/// ports and no --nflog-range, so iptables-nft prints other rules than it was given.
fn source_for(name: &str, kind: &str) -> String {
    let source = data(name);
    let different = |line: &&str| {
        kind == "legacy" || !["! -s ::/0", "! --sport :", "--nflog-range"].iter().any(|part| line.contains(part))
    };
    source.lines().filter(different).map(|line| format!("{line}\n")).collect()
}

/// Without comments, which have the date.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
#[ignore = "needs root"]
fn listings_are_those_of_iptables() {
    let options = [
        ("-v", ListOptions { verbose: true, ..ListOptions::default() }),
        ("-v -x", ListOptions { verbose: true, exact: true, ..ListOptions::default() }),
        ("-v -x --line-numbers", ListOptions { verbose: true, exact: true, line_numbers: true }),
        ("--line-numbers", ListOptions { line_numbers: true, ..ListOptions::default() }),
        ("", ListOptions::default()),
    ];
    let mut compared = 0;
    for name in FILES {
        for kind in ["legacy", "nft"] {
            let source = source_for(name, kind);
            let rules = read(&source, name);
            let program = program(name, kind);
            for (flags, options) in options {
                let script = format!("{program}-restore -c; {program} -L -n {flags}");
                let real = in_namespace(&script, &source);
                let ours = rules.list_saved(options);
                assert_eq!(ours.lines().count(), real.lines().count(), "{program} {name} {flags}");
                for (ours, real) in ours.lines().zip(real.lines()) {
                    assert_eq!(ours, real, "{program} {name} {flags}");
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} lines are the same");
    assert!(compared > 5_000);
}

#[test]
#[ignore = "needs root"]
fn files_saved_by_iptables_are_written_as_they_are() {
    for name in FILES {
        for kind in ["legacy", "nft"] {
            let program = program(name, kind);
            let saved =
                in_namespace(&format!("{program}-restore -c; {program}-save -c -t filter"), &source_for(name, kind));
            let rules = read(&saved, name);
            let ours = rules.save(true);
            assert_eq!(lines(&ours), lines(&saved), "{program} {name}");
            // And iptables takes what is written here.
            let again = in_namespace(&format!("{program}-restore -c; {program}-save -c -t filter"), &ours);
            assert_eq!(lines(&again), lines(&saved), "{program} {name}");
            // The form of iptables -S.
            let listed = in_namespace(&format!("{program}-restore -c; {program} -S"), &source_for(name, kind));
            assert_eq!(rules.filter().expect("filter").list_rules(), listed, "{program} {name}");
        }
    }
}

/// What is refused as wrong (and not as not honoured) iptables refuses, too, line by line; with the exceptions named here.
#[test]
#[ignore = "needs root"]
fn lines_that_are_wrong_are_wrong_for_iptables_too() {
    use segue_iptables::ErrorKind;
    let (mut compared, mut taken) = (0, Vec::new());
    for (name, family, program) in
        [("rules.v4", Family::Ipv4, "iptables-legacy"), ("rules.v6", Family::Ipv6, "ip6tables-legacy")]
    {
        for line in data(&format!("bad/{name}")).lines().filter(|line| line.starts_with("-A FORWARD")) {
            let file = format!("*filter\n:user - [0:0]\n{line}\nCOMMIT\n");
            let Err(errors) = parse_rules(&file, name, family) else { continue };
            if errors.errors.iter().any(|error| error.kind == ErrorKind::NotHonoured) {
                continue;
            }
            let script = format!("if {program}-restore 2>/dev/null; then echo taken; else echo refused; fi");
            compared += 1;
            if in_namespace(&script, &file) == "taken\n" {
                taken.push(line.to_owned());
            }
        }
    }
    // Rules that would match nothing, or something else than they say; and texts that iptables cuts.
    let expected = [
        "-A FORWARD ! -i + -j DROP",
        "-A FORWARD -j LOG --log-prefix \"a prefix of more than 29 octets\"",
        "-A FORWARD -m comment --comment \"no end",
        "-A FORWARD -m frag --fragid 9:5 -j DROP",
    ];
    assert_eq!(taken, expected);
    println!("{compared} lines are refused by both");
    assert!(compared > 60, "{compared}");
}
