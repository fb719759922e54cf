//! Files as they come from ufw, firewalld, docker, libvirt, LXD, kube-proxy and shorewall load as they are.

use std::path::PathBuf;

use segue_iptables::{
    ErrorKind, Family, Mode, Reading, RuleSet, SetFile, Surroundings, Warning, parse_rules, parse_rules_for,
};

/// Each for both families.
const PROGRAMS: [&str; 7] = ["docker", "firewalld", "kube-proxy", "libvirt", "lxd", "shorewall", "ufw"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/stock").join(name)
}

fn files() -> impl Iterator<Item = (String, Family, String)> {
    PROGRAMS.iter().flat_map(|program| {
        [("v4", Family::Ipv4), ("v6", Family::Ipv6)].map(|(ending, family)| {
            let name = format!("{program}.{ending}");
            let text = std::fs::read_to_string(path(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, family, text)
        })
    })
}

const SKIP: Reading<'_> = Reading { hook: Some("FORWARD"), skip: true };

fn load(text: &str, name: &str, family: Family, reading: Reading<'_>) -> (RuleSet, Vec<Warning>) {
    let (rules, mut warnings) =
        parse_rules_for(text, name, family, reading).unwrap_or_else(|errors| panic!("{errors}"));
    let around = Surroundings::default();
    let lowered = rules.lower(&SetFile::default(), &around, Mode::Basic, name);
    let lowered = lowered.unwrap_or_else(|errors| panic!("{errors}"));
    segue_classifier::compile::compile(&lowered.program).unwrap_or_else(|error| panic!("{name}: {error}"));
    warnings.extend(lowered.warnings.into_iter().filter(|warning| !warning.message.contains("there is no interface")));
    warnings.sort_by_key(|warning| warning.position);
    (rules, warnings)
}

/// What is said about each, as published beside them. `SEGUE_UPDATE=1` writes it anew.
#[test]
fn stock_files_load_when_other_tables_are_skipped() {
    let mut said = String::new();
    for (name, family, text) in files() {
        let (rules, warnings) = load(&text, &name, family, SKIP);
        let table = rules.filter().expect("the table filter");
        let count: usize = table.chains.iter().map(|chain| chain.rules.len()).sum();
        let run: usize = table.chains.iter().filter(|chain| !chain.unreached).map(|chain| chain.rules.len()).sum();
        assert!(run > 0 && rules.tables.len() == 1, "{name}");
        // Nothing of the table was lost.
        let filter = text.split("*filter\n").nth(1).and_then(|rest| rest.split("COMMIT\n").next()).expect("*filter");
        assert_eq!(filter.lines().filter(|line| line.starts_with("-A")).count(), count, "{name}");
        said.push_str(&format!("{name}: {count} rules, {run} of them behind FORWARD\n"));
        for Warning { position, message } in warnings {
            said.push_str(&format!("  line {}: {message}\n", position.line));
        }
    }
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::write(path("warnings"), &said).expect("written");
    }
    let published = std::fs::read_to_string(path("warnings")).expect("published warnings");
    assert_eq!(said, published);
}

#[test]
fn what_iptables_save_writes_of_the_table_filter_alone_loads_without_leave() {
    for (name, family, text) in files() {
        let filter = text.split("*filter\n").nth(1).and_then(|rest| rest.split("COMMIT\n").next()).expect("*filter");
        let text = format!("*filter\n{filter}COMMIT\n");
        load(&text, &name, family, Reading { hook: Some("FORWARD"), skip: false });
        load(&text, &name, family, Reading::default());
    }
}

#[test]
fn other_tables_are_refused_without_leave_and_the_remedy_names_what_would_be_lost() {
    let mut refused = Vec::new();
    for (name, family, text) in files() {
        let Err(errors) = parse_rules(&text, &name, family) else { continue };
        for error in &errors.errors {
            assert_eq!(error.kind, ErrorKind::Table, "{errors}");
            assert!(error.remedy.contains(&format!("{}-save -t filter", family.program())), "{error}");
        }
        refused.push(name);
    }
    // ufw has no other table, and those of some others have no rules.
    let wanted = [
        "docker.v4",
        "docker.v6",
        "firewalld.v4",
        "firewalld.v6",
        "kube-proxy.v4",
        "kube-proxy.v6",
        "libvirt.v4",
        "libvirt.v6",
        "lxd.v4",
        "lxd.v6",
        "shorewall.v4",
        "shorewall.v6",
    ];
    assert_eq!(refused, wanted);
    let error =
        parse_rules("*raw\n-A PREROUTING -j DROP\nCOMMIT\n*filter\nCOMMIT\n", "file", Family::Ipv4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "file:2:4: `PREROUTING`: the table raw has a rule (1) that cannot be honoured: connections are tracked by \
         configuration, not by rules; take what `iptables-save -t filter` writes, or skip other tables; rules of it that \
         drop packets (line 2) have to be written into *filter then"
    );
}

fn read(rules: &str, reading: Reading<'_>) -> Result<(RuleSet, Vec<Warning>), String> {
    parse_rules_for(&format!("*filter\n:user - [0:0]\n:other - [0:0]\n{rules}COMMIT\n"), "file", Family::Ipv4, reading)
        .map_err(|errors| errors.to_string())
}

/// A rule may be skipped only if no packet passes without it that would not pass with it.
#[test]
fn only_rules_that_let_packets_pass_or_decide_nothing_are_skipped() {
    let refusing = Reading { hook: Some("FORWARD"), skip: false };
    for (target, may_be_skipped) in [
        ("-j ACCEPT", true),
        ("", true),
        ("-j LOG", true),
        ("-j NFLOG --nflog-group 5", true),
        ("-j TRACE", true),
        ("-j TCPMSS --clamp-mss-to-pmtu", true),
        ("-j DROP", false),
        ("-j REJECT", false),
        ("-j RETURN", false),
        ("-j MARK --set-mark 1", false),
        ("-j CONNMARK --restore-mark", false),
        ("-j NFQUEUE --queue-num 1", false),
        ("-j SET --add-set banned src", false),
        ("-j user", false),
        ("-g user", false),
    ] {
        let rule = format!("-A FORWARD -m statistic --mode random --probability 0.5 {target}\n");
        assert!(read(&rule, refusing).is_err(), "{rule}");
        match read(&rule, SKIP) {
            Ok((rules, warnings)) => {
                assert!(may_be_skipped, "{rule}");
                assert!(rules.filter().is_some_and(|table| table.chains.iter().all(|chain| chain.rules.is_empty())));
                assert!(warnings.iter().any(|warning| warning.position.line == 4), "{warnings:?}");
            }
            Err(error) => assert!(!may_be_skipped, "{rule}{error}"),
        }
    }
    // What is wrong with a rule that would be skipped is wrong still.
    for wrong in ["-m statistic -s x -j ACCEPT", "-m statistics -j ACCEPT", "-m statistic -j ACCEPT -j DROP"] {
        assert!(read(&format!("-A FORWARD {wrong}\n"), SKIP).is_err(), "{wrong}");
    }
}

#[test]
fn chains_that_the_hook_does_not_lead_to_stop_no_load() {
    let rules = "-A INPUT -m owner --uid-owner 5 -j DROP\n-A INPUT -j other\n-A other -m nonesuch --x 5 -j NONESUCH\n\
        -A FORWARD -j ACCEPT\n-A user -m set --match-set nowhere src -j DROP\n";
    assert!(read(rules, Reading::default()).is_err());
    let forward = Reading { hook: Some("FORWARD"), skip: false };
    let (parsed, warnings) = read(rules, forward).unwrap();
    let lines = warnings.iter().map(|warning| warning.position.line).collect::<Vec<_>>();
    assert_eq!(lines, [4, 6], "{warnings:?}");
    let lowered = parsed.lower(&SetFile::default(), &Surroundings::default(), Mode::Basic, "file").unwrap();
    assert_eq!(lowered.program.chains.iter().map(|chain| chain.rules.len()).sum::<usize>(), 1);
    // The same words stop it where the hook leads.
    let input = Reading { hook: Some("INPUT"), skip: false };
    let errors = read(rules, input).unwrap_err();
    assert_eq!(errors.lines().count(), 2, "{errors}");
    // A rule with an error leads where it says.
    let rules = "-A FORWARD -m owner --uid-owner 5 -j user\n-A user -m owner --uid-owner 5 -j DROP\n";
    assert_eq!(read(rules, forward).unwrap_err().lines().count(), 2);
    // What is no rule at all is wrong anywhere.
    for wrong in ["-A INPUT -s x", "-A INPUT -p tcp --dport 99999", "-A INPUT -j nowhere", "-A nowhere -j DROP"] {
        assert!(read(&format!("{wrong}\n"), forward).is_err(), "{wrong}");
    }
}

#[test]
fn states_of_address_translation_never_hold() {
    use segue_classifier::{Field, Key, interpreter::matches};
    let rules = "*filter\n-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n-A FORWARD -m conntrack ! --ctstate ESTABLISHED,DNAT \
        -j DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED,SNAT -j ACCEPT\nCOMMIT\n";
    let parsed = parse_rules(rules, "file", Family::Ipv6).unwrap();
    assert!(parsed.save(false).contains("! --ctstate ESTABLISHED,DNAT -j DROP"));
    let lowered = parsed.lower(&SetFile::default(), &Surroundings::default(), Mode::Basic, "file").unwrap();
    assert_eq!(lowered.warnings.len(), 3, "{:?}", lowered.warnings);
    for state in [1, 2, 4, 8, 64] {
        let key = Key::new().with(Field::ConnectionState, state);
        let hits = lowered.program.chains.iter().flat_map(|chain| &chain.rules).map(|rule| matches(rule, &key));
        assert_eq!(hits.collect::<Vec<_>>(), [false, state != 2, state == 2]);
    }
}
