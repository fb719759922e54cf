//! Traffic and captures that a topology's file brings up, and that go with the lab.

use std::process::Command;

use segue_lab::traffic::{self, Account, State};
use segue_lab::{capture, down};

use crate::common::TestLab;

fn account<'a>(accounts: &'a [Account], name: &str) -> &'a Account {
    accounts.iter().find(|account| account.name == name).unwrap_or_else(|| panic!("{name}: {accounts:?}"))
}

/// Packets of each protocol arrive through the chain, each counted; what a function drops is lost; captures have what passed.
#[test]
#[ignore = "needs root"]
fn an_example_sends_counts_and_captures() {
    let lab = TestLab::example("traffic");
    let files = lab.loaded.file.parent().unwrap().to_owned();
    let accounts = traffic::wait(&lab.roots, &lab.name).unwrap();
    for (name, sent) in [("voice", 100), ("file", 400), ("pings", 40)] {
        let found = account(&accounts, name);
        assert!(found.is_flawless() && found.sent == sent && found.delay_us.is_some(), "{found:?}");
    }
    let refused = account(&accounts, "refused");
    assert_eq!((refused.state, refused.sent, refused.received, refused.lost), (State::Done, 20, 0, 20), "{refused:?}");
    let text = traffic::table(&accounts);
    assert!(text.lines().count() == 5 && text.contains("udp/IPv6") && text.contains("tcp/IPv4"), "{text}");
    // The command says the same, and that not all is well.
    let segue = || {
        let mut command = Command::new(segue_lab::agent::segue().unwrap());
        command.args(["lab", "traffic", &lab.name]);
        command
    };
    let said = segue().args(["-o", "json"]).output().unwrap();
    let told: Vec<Account> = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((said.status.code(), told), (Some(0), accounts));
    assert_eq!(segue().args(["--wait", "--strict"]).output().unwrap().status.code(), Some(1));

    // It has ended by itself; the other one is written until the lab goes.
    let ended = capture::read(&files.join("traffic-function.pcapng")).unwrap();
    assert_eq!(ended.len(), 50);
    let removed = down::down(&lab.roots, &lab.name).unwrap();
    assert!(removed.processes > 0);
    let way = capture::read(&files.join("traffic-way.pcapng")).unwrap();
    // Each twice: where it leaves, and where it comes in. Answers of TCP and of pings too.
    assert!(way.len() > 2 * (100 + 400 + 2 * 40 + 20), "{}", way.len());
    assert!(way.iter().all(|frame| frame.len() <= 128));
    assert!(way.iter().any(|frame| frame.len() == 128));
    lab.down();
}

/// A source that nobody can be sent to, and one that is ended before its time, are told as what they are.
#[test]
#[ignore = "needs root"]
fn sources_that_fail_say_so() {
    let lab = TestLab::up(
        "traf",
        "nodes: { a: { dataplane: plain } }
hosts: { ha: { node: a }, hb: { node: a } }
traffic:
  long: { from: ha, to: hb, seconds: 3000, rate: 10 }
  closed: { from: ha, to: hb, protocol: tcp, port: 81, source_port: 4000, count: 5, delay_ms: 1500 }
",
    );
    // Nobody gets in any more.
    lab.sh("hb", "nft 'table inet shut { chain input { type filter hook input priority 0; tcp dport 81 reject with tcp reset; }; }'");
    let running = traffic::accounts(&lab.roots, &lab.name).unwrap();
    let long = account(&running, "long");
    assert!(!long.state.is_final(), "{long:?}");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(long.process).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let accounts = traffic::wait(&lab.roots, &lab.name).unwrap();
    assert_eq!(account(&accounts, "long").state, State::Dead);
    let closed = account(&accounts, "closed");
    let why = closed.why.as_deref().unwrap_or_default();
    assert!(closed.state == State::Failed && why.contains("no connection: ") && why.contains("refused"), "{closed:?}");
    lab.down();
}

/// What the planner cannot know is refused at its line before anything is made.
#[test]
fn what_cannot_be_sent_or_captured_is_told_with_its_line() {
    let text = std::fs::read_to_string(crate::common::repository("examples/traffic.yaml")).unwrap();
    for (from, to, expected) in [
        (
            "at: edge1--nfv,",
            "at: edge1--edge2,",
            "captures.way.at: segue lab capture: there is no link between edge1 and edge2; name a link of the topology",
        ),
        ("at: $nfv.filter,", "at: $nfv.filtre,", "captures.function.at: "),
        ("at: $nfv.filter,", "at: $nfv,", "captures.function.at: $nfv is no link, SID or chain"),
        ("client: { node: edge1 }", "client: { node: edge1, addresses: [10.9.0.1/24] }", "traffic.voice"),
        ("family: IPv4, size: 1200", "family: IPv5, size: 1200", "traffic.file.family"),
    ] {
        let file = crate::common::topology_file(&text.replace(from, to));
        let error = segue_lab::up::load(&file.path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected) || expected == "traffic.voice", "{to}: {error}");
        assert_eq!(error.is_empty(), expected == "traffic.voice", "IPv4 is what both have: {error}");
    }
}
