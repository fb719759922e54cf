//! Chains between the same two hosts that differ by nothing but the DSCP, or the flow label, of their packets.

use crate::common::TestLab;
use segue_host::Run;
use segue_lab::attach::attach;
use segue_lab::demo::hops::Counters;
use segue_lab::exec;
use segue_lab::gather::{End, Wanted, gather};
use segue_wiring::Labels;

const PINGS: u64 = 5;

fn topology(chains: &str) -> String {
    format!(
        "nodes: {{ edge1: {{}}, nfv1: {{}}, edge2: {{}} }}
hosts: {{ client: {{ node: edge1 }}, server: {{ node: edge2 }} }}
links: [{{ between: [edge1, nfv1] }}, {{ between: [nfv1, edge2] }}]
functions: {{ first: {{ node: nfv1 }}, second: {{ node: nfv1 }} }}
chains:
{chains}"
    )
}

/// Packets that each policy has taken.
fn taken(lab: &TestLab, policies: &[(&str, &str)]) -> Vec<u64> {
    let counters = Counters::read(&lab.paths(), &lab.loaded.plan).unwrap_or_else(|error| panic!("{error}"));
    policies.iter().map(|(node, policy)| counters.of_policy(node, policy).unwrap().packets).collect()
}

/// Pings, and checks that each policy took as many packets as it should have.
fn ping(lab: &TestLab, options: &str, address: &str, policies: &[(&str, &str)], expected: &[u64]) {
    let before = taken(lab, policies);
    let output = lab.sh("client", &format!("ping -n -c {PINGS} -i 0.05 -W 10 {options} {address}"));
    assert!(output.contains(&format!("{PINGS} received")), "{output}");
    let now: Vec<u64> = taken(lab, policies).iter().zip(&before).map(|(now, before)| now - before).collect();
    assert_eq!(now, expected, "{options} {address}: {policies:?}");
}

#[test]
#[ignore = "needs root"]
fn chains_that_differ_by_the_dscp_alone() {
    let chains = "  voice: { from: client, to: server, via: [first], match: { dscp: [46] } }
  bulk: { from: client, to: server, via: [second], match: { dscp: [\"8-15\"] } }
";
    let lab = TestLab::up("dsc", &topology(chains));
    let policies =
        [("edge1", "voice-forward"), ("edge2", "voice-reverse"), ("edge1", "bulk-forward"), ("edge2", "bulk-reverse")];
    for address in lab.addresses("server") {
        // An echo reply has the traffic class of its request. The lowest two bits are ECN.
        ping(&lab, "-Q 0xb8", &address, &policies, &[PINGS, PINGS, 0, 0]);
        ping(&lab, "-Q 0x20", &address, &policies, &[0, 0, PINGS, PINGS]);
        ping(&lab, "-Q 0x3d", &address, &policies, &[0, 0, PINGS, PINGS]);
        ping(&lab, "-Q 0x40", &address, &policies, &[0; 4]);
        ping(&lab, "", &address, &policies, &[0; 4]);
    }
    labels_work_in_commands(&lab);
    a_chain_is_captured_at_all_of_its_nodes(&lab);
    tmux_has_a_pane_for_each_namespace(lab);
}

/// What `exec` runs has the values of labels in their places.
fn labels_work_in_commands(lab: &TestLab) {
    let run = |node: &str, line: &[&str]| {
        let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        exec::exec(&lab.roots, &lab.name, node, &line)
    };
    assert_eq!(run("$client", &["ping", "-q", "-c1", "-W5", "$server"]).unwrap(), 0);
    let sid = "fc00:5e9:2:100::";
    let line = format!(
        "test $nfv1.first.voice = {sid} && test \"$$HOME\" = \"{}\"",
        std::env::var("HOME").unwrap_or_default()
    );
    assert_eq!(run("$nfv1", &["sh", "-c", &line]).unwrap(), 0, "{line}");
    let error = run("client", &["ping", "$sevrer"]).unwrap_err().to_string();
    assert!(error.contains("did you mean $server"), "{error}");
    let error = run("$nfv2", &["true"]).unwrap_err().to_string();
    assert!(error.contains("did you mean $nfv1"), "{error}");
}

#[test]
#[ignore = "needs root"]
fn chains_that_differ_by_the_flow_label_alone() {
    let chains = "  one: { from: client, to: server, via: [first], match: { flow_labels: [\"0x100-0x1ff\"] } }
  two: { from: client, to: server, via: [second], match: { flow_labels: [0x54321] } }
";
    let lab = TestLab::up("lbl", &topology(chains));
    // Echo replies with the label of their requests.
    lab.sh("server", "sysctl -qw net.ipv6.flowlabel_reflect=4");
    let policies =
        [("edge1", "one-forward"), ("edge2", "one-reverse"), ("edge1", "two-forward"), ("edge2", "two-reverse")];
    let [ipv4, ipv6] = lab.addresses("server");
    ping(&lab, "-F 0x100", &ipv6, &policies, &[PINGS, PINGS, 0, 0]);
    ping(&lab, "-F 0x1ff", &ipv6, &policies, &[PINGS, PINGS, 0, 0]);
    ping(&lab, "-F 0x54321", &ipv6, &policies, &[0, 0, PINGS, PINGS]);
    ping(&lab, "-F 0x200", &ipv6, &policies, &[0; 4]);
    ping(&lab, "", &ipv4, &policies, &[0; 4]);
    lab.down();
}

/// One pcapng file with the packets of one chain only, one direction, and an interface for each node and port.
fn a_chain_is_captured_at_all_of_its_nodes(lab: &TestLab) {
    let plan = &lab.loaded.plan;
    let wanted = Wanted::of("$chain.voice", plan, &Labels::of(plan)).unwrap().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    // In and out at edge1, nfv1 twice and edge2, for each of three requests.
    let end = End { count: Some(3 * 8), seconds: Some(30), ..End::default() };
    let address = lab.addresses("server")[1].clone();
    std::thread::scope(|scope| {
        let capture = scope.spawn(|| gather(&lab.record, &wanted, end, &mut file.as_file(), file.path()).unwrap());
        // It begins with the section header, when all agents capture.
        wait_until(|| file.as_file().metadata().unwrap().len() > 0);
        let output = lab.sh("client", &format!("ping -n -c 3 -i 0.05 -W 10 -Q 0xb8 {address}"));
        assert!(output.contains("3 received"), "{output}");
        assert_eq!(capture.join().unwrap(), 3 * 8);
    });
    let bytes = std::fs::read(file.path()).unwrap();
    assert_eq!(segue_api::pcap::frames(&bytes).unwrap().len(), 3 * 8);
    for name in ["edge1:client", "edge1:nfv1", "nfv1:edge1", "nfv1:edge2", "edge2:nfv1", "edge2:server"] {
        assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()), "no interface {name}");
    }
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < 30, "it has not begun");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The session ends with the lab.
fn tmux_has_a_pane_for_each_namespace(lab: TestLab) {
    attach(&lab.roots, &lab.name, true).unwrap_or_else(|error| panic!("{error}"));
    let server = format!("segue-{}", lab.name);
    let tmux = |words: &[&str]| Run::new("tmux", [&["-L", &server], words].concat()).output().unwrap();
    let panes = tmux(&["list-panes", "-a", "-F", "#{pane_title}"]);
    let panes = String::from_utf8(panes.stdout).unwrap();
    let mut titles: Vec<&str> = panes.lines().collect();
    titles.sort_unstable();
    assert_eq!(titles, ["client", "edge1", "edge2", "first", "nfv1", "second", "server"]);
    lab.down();
    wait_until(|| !tmux(&["has-session"]).status.success());
}
