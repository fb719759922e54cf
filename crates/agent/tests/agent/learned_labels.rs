//! Labels that an agent learns from a file of FRR's words: forwarded by, followed, held, and never in the way of those that are configured.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use segue_testkit::packet_socket::PacketSocket;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, UdpRepr};
use serde_json::Value;

use crate::support::{Agent, Network};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a packet that should not come.
const SILENCE: Duration = Duration::from_millis(300);

/// FILE has the labels; ROLE is that of the port to the left.
const STATE: &str = "
node: ll
source_address: 'fc00:0:1::1'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: west, role: ROLE}
  - {name: east, role: core}
mpls: {srgb: ['16000-26999'], srlb: ['15000-15999'], learn: {file: 'FILE', max_labels: 10100, hold_time: 1}}
labels:
  - {label: 16001, behaviour: node}
  - {label: 16009, behaviour: swap, out: 17009, next_hop: '2001:db8:2::2', port: east}
";
/// A list without a next hop begins with a label that is learned.
const HEADEND: &str = "
policies:
  - {name: there, mode: PUSH, segment_lists: [{labels: [16030, 15100]}]}
steering:
  - {destination: '2001:db8:b::/48', policy: there}
";

/// FRR's words for labels that lead to the right: label, what stands in its place, and the interface.
fn frr(rows: &[(u32, u32, &str)]) -> String {
    let mut text = "{\n".to_owned();
    for (position, (label, out, interface)) in rows.iter().enumerate() {
        let comma = if position == 0 { "" } else { ",\n" };
        write!(
            text,
            "{comma}\"{label}\":{{\"inLabel\":{label},\"installed\":true,\"nexthops\":[{{\"type\":\"SR (IS-IS)\",\"outLabel\":{out},\
             \"outLabelStack\":[{out}],\"distance\":150,\"installed\":true,\"nexthop\":\"2001:db8:2::2\",\
             \"interface\":\"{interface}\"}}]}}"
        )
        .unwrap();
    }
    text + "\n}\n"
}

/// As whoever writes it should.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, path).unwrap();
}

fn packet(front: PacketBuilder, labels: &[(u32, u8)], hop_limit: u8) -> Vec<u8> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        ..MplsEntry::default()
    };
    let (client, server) = ("2001:db8:a::2".parse().unwrap(), "2001:db8:b::2".parse().unwrap());
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(client, server) };
    let labels: Vec<MplsEntry> = labels.iter().map(entry).collect();
    let front = if labels.is_empty() { front.ipv6(repr) } else { front.mpls(&labels).inner_ipv6(repr) };
    front.udp(UdpRepr::new(40_000, 5)).payload(b"behind labels").build()
}

fn sent() -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
}

fn received() -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]))
}

struct Lab<'a> {
    agent: Agent<'a>,
    left: PacketSocket,
    right: PacketSocket,
}

impl Lab<'_> {
    /// What comes out of what is put in with these labels, if it does so in this time.
    fn becomes(&self, labels: &[(u32, u8)], within: Duration) -> Option<Vec<u8>> {
        self.right.drain();
        self.left.send(&packet(sent(), labels, 64));
        self.right.receive_where(within, |frame| frame.ends_with(b"behind labels"))
    }

    fn passes(&self, case: &str, labels: &[(u32, u8)], after: &[(u32, u8)], hop_limit: u8) {
        let found = self.becomes(labels, PATIENCE);
        let found = found.unwrap_or_else(|| panic!("{case}: nothing comes out\n{}", self.agent.get("/v1/outcomes")));
        assert_eq!(found, packet(received(), after, hop_limit), "{case}");
    }

    fn row(&self, label: &str) -> Option<Value> {
        let sids = self.agent.get("/v1/sids");
        sids.as_array().unwrap().iter().find(|row| row["sid"] == label).cloned()
    }

    /// What the doctor says of these, with what it came to.
    fn told(&self, about: &str) -> String {
        let report = self.agent.get("/v1/doctor");
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["check"] == "labels" && check["about"] == about);
        let check = check.unwrap_or_else(|| panic!("nothing about {about}: {report}"));
        format!("{}: {}", check["result"].as_str().unwrap(), check["reason"].as_str().unwrap())
    }
}

#[test]
#[ignore = "needs root"]
fn labels_from_a_file_are_forwarded_by_and_followed() {
    let network = Network::new();
    network.node.sh("ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("labels.json");
    let state = |role: &str| STATE.replace("FILE", &file.display().to_string()).replace("ROLE", role);
    let (left, right) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
    let mut lab = Lab { agent: Agent::start(&network), left, right };

    // Without the file there is a warning, and what is configured.
    let applied = lab.agent.apply(&state("core"));
    assert!(applied["warnings"].to_string().contains("mpls.learn.file: No such file"), "{applied}");
    lab.passes("configured", &[(16009, 9)], &[(17009, 8)], 64);
    assert_eq!(lab.becomes(&[(16030, 9)], SILENCE), None, "not learned yet");

    // It comes: a swap, a pop, one that is configured, one by an interface that is no port.
    let rows = [(16030, 16030, "east"), (15002, 3, "east"), (16009, 16009, "east"), (16050, 3, "lan0")];
    replace(&file, &frr(&rows));
    lab.agent.eventually("a label that is learned", |_| lab.row("label 16030").is_some());
    lab.passes("learned", &[(16030, 9)], &[(16030, 8)], 64);
    lab.passes("an adjacency", &[(15002, 9), (16040, 7)], &[(16040, 7)], 64);
    lab.passes("behind the node's own", &[(16001, 9), (16030, 9)], &[(16030, 8)], 64);
    lab.passes("configured still", &[(16009, 9)], &[(17009, 8)], 64);
    let row = lab.row("label 16030").unwrap();
    assert_eq!((&row["behaviour"], &row["comment"]), (&"swap".into(), &"learned: SR (IS-IS)".into()), "{row}");
    assert_eq!(lab.row("label 16050"), None);
    assert!(lab.told("label 16009").contains("configured as swap, and learned (SR (IS-IS): as 16009"));
    assert!(lab.told("label 16050").contains("wrong: it leads to 2001:db8:2::2 by lan0, which is no port"));
    let (_, metrics) = lab.agent.ask("GET", "/metrics", None);
    assert!(metrics.contains("segue_learned_labels{node=\"ll\",result=\"refused\"} 2\n"), "{metrics}");
    assert_eq!(lab.agent.get("/v1/state")["labels"].as_array().unwrap().len(), 2, "what was applied stays what it was");

    // Ten thousand more, of which one changes; what the others say stays, and with it what they counted.
    let counted = |label: &str| lab.row(label).unwrap()["counter"]["packets"].as_u64().unwrap();
    let before = counted("label 16030");
    let many = |out: u32| -> String {
        let others = (17_000..27_000).map(|label| (label, if label == 20_000 { out } else { label }, "east"));
        frr(&rows.iter().copied().chain(others).collect::<Vec<_>>())
    };
    for out in [20_001, 20_002] {
        replace(&file, &many(out));
        let begun = Instant::now();
        let to = format!("as {out} 2001:db8:2::2 port east");
        lab.agent.eventually("a change", |_| lab.row("label 20000").is_some_and(|row| row["to"] == to.as_str()));
        eprintln!("10,000 labels, {out}: {:?}", begun.elapsed());
        lab.passes("one of many", &[(20_000, 9)], &[(out, 8)], 64);
    }
    assert_eq!(counted("label 16030"), before);

    // Too many, then nonsense: nothing changes, and it is said why, with the line.
    let too_many: Vec<_> = (16_100..26_201).map(|label| (label, 3, "east")).collect();
    let file_name = file.display().to_string();
    for (text, reason) in [(frr(&too_many), "10101 labels"), ("{\n\"16030\": {\"inLabel\": 5}}\n".to_owned(), "line 2")]
    {
        replace(&file, &text);
        lab.agent.eventually(reason, |_| lab.told(&file_name).contains(reason));
        assert!(lab.told(&file_name).starts_with("wrong: "));
    }
    // The time that labels outlive their source ends once, with the last thing that it said well.
    lab.agent.eventually("the end of the hold time", |_| lab.row("label 16030").is_none());
    assert_eq!(lab.becomes(&[(16030, 9)], SILENCE), None);
    lab.passes("configured, whatever the file says", &[(16009, 9)], &[(17009, 8)], 64);

    // At a headend: the list has no next hop, which is learned with its first label.
    replace(&file, &frr(&rows));
    lab.agent.eventually("labels again", |_| lab.row("label 16030").is_some());
    lab.agent.apply(&(state("access") + HEADEND));
    lab.passes("pushed", &[], &[(16030, 63), (15100, 64)], 63);
    // A restart takes up what the file says.
    lab.agent.kill();
    lab.passes("without an agent", &[], &[(16030, 63), (15100, 64)], 63);
    lab.agent.restart(&[]);
    assert!(lab.row("label 16030").is_some());
    lab.passes("after a restart", &[], &[(16030, 63), (15100, 64)], 63);
    // It is withdrawn: nothing of it leaves, by whatever way.
    replace(&file, "{}\n");
    lab.agent.eventually("the withdrawal", |_| lab.row("label 16030").is_none());
    assert_eq!(lab.becomes(&[], SILENCE), None);
    let outcomes = lab.agent.get("/v1/outcomes");
    assert!(outcomes.to_string().contains("drop_label_unknown"), "{outcomes}");
}
