//! Chains between the same two hosts that differ by nothing but the DSCP, or the flow label, of their packets.

use crate::common::TestLab;
use segue_lab::demo::hops::Counters;
use segue_lab::exec;

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
    lab.down();
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
