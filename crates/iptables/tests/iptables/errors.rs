//! What is refused, with its place, the reason and what to do. Written anew with
//! `SEGUE_UPDATE=1 cargo test -p segue-iptables --test iptables errors_of`; then read the difference.

use std::path::PathBuf;

use segue_iptables::{
    ErrorKind, Family, Position, RuleErrors, parse_rules, parse_sets, parse_yaml, refused_matches, refused_targets,
};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables/bad").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn same_as_published(name: &str, errors: &RuleErrors) {
    let published = path(&format!("{name}.errors"));
    let text = format!("{errors}\n");
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::write(&published, &text).expect("written");
    }
    let wanted = std::fs::read_to_string(&published).expect("published errors");
    for (found, wanted) in text.lines().zip(wanted.lines()) {
        assert_eq!(found, wanted);
    }
    assert_eq!(text.lines().count(), wanted.lines().count(), "{name}");
}

/// Every line of a bad file that is bad says so: `good` lines do not.
fn lines_without_error(source: &str, errors: &RuleErrors) -> Vec<String> {
    let bad = errors.errors.iter().map(|error| error.position.line as usize).collect::<Vec<_>>();
    let lines = source.lines().enumerate().filter(|(index, _)| !bad.contains(&(index + 1)));
    lines.map(|(_, line)| line.to_owned()).collect()
}

#[test]
fn errors_of_rules() {
    for (name, family) in [("rules.v4", Family::Ipv4), ("rules.v6", Family::Ipv6)] {
        let source = read(name);
        let errors = parse_rules(&source, name, family).expect_err("errors");
        same_as_published(name, &errors);
        for error in &errors.errors {
            assert!(error.position.line > 0 && error.position.column > 0, "{error}");
            assert!(!error.reason.is_empty() && !error.remedy.is_empty(), "{error}");
            // The word is where the error says it is.
            let line = source.lines().nth(error.position.line as usize - 1).expect("line");
            let from = line.chars().skip(error.position.column as usize - 1).collect::<String>();
            let there =
                from.trim_start_matches(['"', '*', ':']).starts_with(error.word.trim_start_matches(['"', '*', ':']));
            assert!(there, "{error}: {from}");
        }
        // Jumps are about the later of the two, and these are fine in themselves.
        let fine = lines_without_error(&source, &errors);
        let fine = fine.iter().filter(|line| line.starts_with("-A")).collect::<Vec<_>>();
        let jumps = fine.iter().filter(|line| line.contains("-j c") || line.contains("-j loop-b"));
        // The second rule of mangle: one error for the table.
        assert_eq!(fine.len(), jumps.count() + usize::from(family == Family::Ipv4), "{fine:?}");
    }
}

#[test]
fn errors_of_sets() {
    let source = read("sets.ipset");
    let errors = parse_sets(&source, "sets.ipset").expect_err("errors");
    same_as_published("sets.ipset", &errors);
}

#[test]
fn every_match_and_target_that_is_not_honoured_is_refused_and_never_ignored() {
    let (mut matches, mut targets) = (0, 0);
    for family in [Family::Ipv4, Family::Ipv6] {
        for name in refused_matches() {
            let source = format!("*filter\n-A FORWARD -m {name} ! --some-option 5 -j DROP\nCOMMIT\n");
            let errors = parse_rules(&source, "file", family).expect_err(name).errors;
            assert_eq!(errors.len(), 1, "{name}: {errors:?}");
            assert_eq!((errors[0].kind, errors[0].word.as_str()), (ErrorKind::NotHonoured, name));
            assert_eq!(errors[0].position, Position { line: 2, column: 15 });
            matches += 1;
        }
        for name in refused_targets() {
            let source = format!("*filter\n-A FORWARD -j {name} --some-option 5\nCOMMIT\n");
            let errors = parse_rules(&source, "file", family).expect_err(name).errors;
            assert_eq!(errors.len(), 1, "{name}: {errors:?}");
            assert_eq!((errors[0].kind, errors[0].word.as_str()), (ErrorKind::NotHonoured, name));
            targets += 1;
        }
    }
    assert!(matches > 60 && targets > 60, "{matches} {targets}");
}

#[test]
fn tables() {
    let data = |name: &str| std::fs::read_to_string(path(&format!("../{name}"))).expect(name);
    let errors = parse_rules(&data("docker-nat.v4"), "docker-nat.v4", Family::Ipv4).expect_err("nat");
    assert_eq!(errors.errors.len(), 1, "{errors}");
    let error = &errors.errors[0];
    assert_eq!((error.kind, error.position), (ErrorKind::Table, Position { line: 7, column: 4 }));
    assert!(error.reason.contains("nat has rules (4)"), "{error}");
    for empty in ["*nat\n:PREROUTING ACCEPT [1:2]\n:own - [0:0]\nCOMMIT\n*filter\nCOMMIT\n", "*filter\nCOMMIT\n# end"] {
        parse_rules(empty, "empty", Family::Ipv4).unwrap_or_else(|errors| panic!("{errors}"));
    }
    for (source, kind) in
        [("", ErrorKind::Syntax), ("# nothing\n", ErrorKind::Syntax), ("*filter\n", ErrorKind::Syntax)]
    {
        let errors = parse_rules(source, "file", Family::Ipv6).expect_err("no rules");
        assert_eq!(errors.errors.len(), 1);
        assert_eq!(errors.errors[0].kind, kind);
    }
}

#[test]
fn an_error_reads_as_one_line_with_file_place_word_reason_and_remedy() {
    let errors = parse_rules("*filter\n-A FORWARD -m string --string x -j DROP\nCOMMIT\n", "fw", Family::Ipv4)
        .expect_err("string");
    assert_eq!(
        errors.to_string(),
        "fw:2:15: `string`: the match string is not honoured: rules do not look into the payload; leave the rule out \
         if it accepts; if it drops or rejects, leave the match out with all its options, and it drops more; any other \
         rule belongs into a kernel firewall in front of this one"
    );
}

#[test]
fn errors_of_yaml_name_the_line() {
    let rule = |rule: &str| format!("family: ipv6\nchains:\n  FORWARD:\n    rules:\n      - {rule}\n");
    let cases = [
        (rule("{match: {colour: red}}"), 5, "colour", "not known"),
        (rule("{match: {source: 10.0.0.1}}"), 5, "10.0.0.1", "IPv4 address"),
        (rule("{match: {destination_ports: 80}}"), 5, "multiport", "protocol with ports"),
        (rule("{match: {protocol: tcp}, action: drop, jump: web}"), 5, "-j", "second target"),
        (rule("{jump: web}"), 5, "web", "no chain"),
        (rule("{action: fly}"), 5, "fly", "not a value"),
        (rule("{reject: tcp-reset}"), 5, "REJECT", "TCP segments only"),
        (rule("{none_of: {srh: {}}}"), 5, "!", "cannot be negated"),
        (rule("{none_of: {mpls: [{}]}}"), 5, "!", "cannot be negated"),
        (rule("{none_of: {mpls: [{depth: 2}]}}"), 5, "!", "cannot be negated"),
        (rule("{match: {mpls: [{depth: any, label: 5, ttl: 1}]}}"), 5, "mpls", "more than one"),
        (rule("{mpls: eval-args}"), 5, "eval-args", "no action of MPLS"),
        (rule("{none_of: {hop_limit_below: 5}}"), 5, "!", "cannot be negated"),
        ("family: ipv5\nchains: {}\n".to_owned(), 1, "ipv5", "not a value"),
        ("chains: {}\n".to_owned(), 1, "family", "missing"),
        ("family: ipv4\nchains:\n  web: {policy: drop}\n".to_owned(), 3, "web", "not a built-in chain"),
        ("family: ipv4\nchains:\n  LOG: {}\n".to_owned(), 3, "LOG", "name of a target"),
        ("family: ipv4\nchains:\n  a: {}\n  a: {}\n".to_owned(), 4, "a", "twice"),
        ("family: [\n".to_owned(), 0, "", ""),
    ];
    for (source, line, word, reason) in cases {
        let errors = parse_yaml(&source, "file").expect_err(&source);
        let error = &errors.errors[0];
        assert!(line == 0 || error.position.line == line, "{source}{errors}");
        assert!(error.word == word && error.reason.contains(reason), "{source}{errors}");
        assert_eq!(errors.errors.len(), 1, "{errors}");
    }
    let two = "family: ipv4\nchains:\n  FORWARD:\n    rules:\n      - match: {source: x}\n      - match:\n          length: 99999\n";
    let errors = parse_yaml(two, "file").expect_err("two").errors;
    let places = errors.iter().map(|error| (error.position.line, error.position.column)).collect::<Vec<_>>();
    assert_eq!(places, [(5, 25), (7, 19)], "all of them");
}

#[test]
fn the_documentation_has_every_match_and_target_that_is_refused() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/using/firewall-rules.md");
    let text = std::fs::read_to_string(path).expect("docs/using/firewall-rules.md");
    let section = |title: &str| {
        let rest = text.split(title).nth(1).expect("section");
        rest.split("\n## ").next().expect("section").to_owned()
    };
    let (matches, targets) = (section("### Refused matches"), section("### Refused targets"));
    for name in refused_matches() {
        assert!(matches.contains(&format!("`{name}`")), "{name}");
    }
    for name in refused_targets() {
        assert!(targets.contains(&format!("`{name}`")), "{name}");
    }
}
