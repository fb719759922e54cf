//! Firewalls of a real agent: replaced, switched off and on, refused, logged, adopted; under traffic, of which no packet is lost.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Agent, Network, traffic::under_traffic};
use segue_testkit::{command::sh, is_long, packet_socket::PacketSocket};
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};
use serde_json::{Value, json};

/// The SID with the firewall.
const SID: &str = "fc00:0:1:f1::";
const SOON: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_millis(200);

/// The rule that lets the traffic of [`under_traffic`] pass.
const PASS: &str = "-A FORWARD -s 2001:db8:1::/64 -p udp -m udp --dport 2000 -j ACCEPT";

/// So many rules that nothing hits, then these.
fn rules(idle: u32, last: &[&str]) -> String {
    let idle = (0..idle)
        .map(|number| format!("-A FORWARD -s fd00:{number:x}::/32 -p tcp -m tcp --dport {} -j DROP\n", 1 + number));
    let last: String = last.iter().map(|rule| format!("{rule}\n")).collect();
    format!("*filter\n:FORWARD DROP [0:0]\n{}{last}COMMIT\n", idle.collect::<String>())
}

/// A node with one firewall, whose keys are `more` besides its IPv6 rules.
fn state(rules: &str, more: Value) -> String {
    let mut firewall = json!({"name": "fw", "ipv6": {"file": "rules.v6", "text": rules}});
    firewall.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "core"}],
        "firewalls": [firewall],
        "sids": [{"sid": format!("{SID}/64"), "behaviour": "End.AN", "firewall": "fw"}],
    })
    .to_string()
}

fn firewall(agent: &Agent<'_>) -> Value {
    agent.get("/v1/firewalls")[0].clone()
}

/// Packets of the rule whose text ends so.
fn packets(agent: &Agent<'_>, rule: &str) -> u64 {
    let firewall = firewall(agent);
    let rows = ["rules", "policies"].into_iter().flat_map(|key| firewall[key].as_array().unwrap());
    let found: Vec<_> = rows.filter(|row| row["name"].as_str().unwrap().ends_with(rule)).collect();
    assert_eq!(found.len(), 1, "{rule}: {firewall:#}");
    found[0]["packets"].as_u64().unwrap()
}

/// A packet to the SID, and whether it comes out on the other side.
struct Probe {
    sender: PacketSocket,
    receiver: PacketSocket,
}

impl Probe {
    fn new(network: &Network) -> Self {
        Self { sender: PacketSocket::open(&network.left, "n"), receiver: PacketSocket::open(&network.right, "n") }
    }

    fn frame(port: u16, tcp: bool) -> Vec<u8> {
        let path = [SID.parse().unwrap(), "fc00:0:2:1::".parse().unwrap()];
        let packet = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
            .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
            .srh(SrhRepr::new(&path));
        if tcp {
            packet.tcp(TcpRepr::new(1000, port, 2)).build()
        } else {
            packet.udp(UdpRepr::new(1000, port)).payload(b"probe").build()
        }
    }

    fn passes(&self, port: u16, tcp: bool, limit: Duration) -> bool {
        self.receiver.drain();
        let frame = Self::frame(port, tcp);
        self.sender.send(&frame);
        self.receiver.receive_where(limit, |bytes| bytes.len() == frame.len() && bytes[60..] == frame[60..]).is_some()
    }

    /// UDP to this port passes; asked again while neighbours are looked for.
    fn find_way(&self, port: u16) {
        assert!((0..40).any(|_| self.passes(port, false, Duration::from_millis(100))), "no way through the node");
    }
}

#[test]
#[ignore = "needs root"]
fn rules_are_replaced_and_switched_under_traffic() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let on = |idle| state(&rules(idle, &[PASS]), json!({}));
    agent.apply(&on(5));
    let mut while_off = 0;
    let sent = under_traffic(&network, SID, || {
        for round in 0..8 {
            agent.apply(&on(10 + 7 * (round % 3)));
            thread::sleep(Duration::from_millis(50));
        }
        // A file that cannot be honoured changes nothing.
        let bad = rules(3, &[PASS, "-A FORWARD -m string --string x --algo bm -j DROP"]);
        let (status, body) = agent.ask("PUT", "/v1/state", Some(&state(&bad, json!({}))));
        assert_eq!(status, 400, "{body}");
        // Off: everything passes uncounted.
        let before = packets(&agent, PASS);
        assert!(before > 0);
        agent.apply(&state(&rules(17, &[PASS]), json!({"basic": false})));
        let begun = packets(&agent, PASS);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(packets(&agent, PASS), begun, "nothing is counted while it is off");
        while_off = begun;
        agent.apply(&on(17));
    });
    let counted = packets(&agent, PASS);
    assert!(counted > while_off, "it counts again");
    assert!(counted < sent, "what passed while it was off is not counted: {counted} of {sent}");
    assert_eq!(packets(&agent, "policy of FORWARD"), 0);
    assert_eq!(agent.get("/v1/drops"), json!([]));
}

#[test]
#[ignore = "needs root"]
fn counters_stay_exact_from_one_rule_set_to_the_next() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let replace = |idle| drop(agent.apply(&state(&rules(idle, &[PASS]), json!({}))));
    replace(1);
    let sent = under_traffic(&network, SID, || {
        for round in 0..12 {
            replace(2 + 9 * (round % 4));
            thread::sleep(Duration::from_millis(40));
        }
    });
    assert_eq!(packets(&agent, PASS), sent, "each packet hit the rule once, whichever rule set it met");
}

#[test]
#[ignore = "needs root"]
fn a_firewall_comes_and_goes_under_traffic() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let with: Value = serde_json::from_str(&state(&rules(3, &[PASS]), json!({}))).unwrap();
    let mut without = with.clone();
    without["firewalls"] = json!([]);
    without["sids"] = json!([{"sid": format!("{SID}/64"), "behaviour": "End"}]);
    agent.apply(&without.to_string());
    // The programs of firewalls are loaded for the first of them only.
    let sent = under_traffic(&network, SID, || {
        thread::sleep(Duration::from_millis(100));
        for _ in 0..3 {
            agent.apply(&with.to_string());
            thread::sleep(Duration::from_millis(100));
            assert!(packets(&agent, PASS) > 0);
            agent.apply(&without.to_string());
        }
    });
    assert!(sent > 0);
    assert_eq!(agent.get("/v1/drops"), json!([]));
}

#[test]
#[ignore = "needs root"]
fn a_refused_rule_file_names_its_place_and_changes_nothing() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(&state(&rules(2, &[PASS]), json!({})));
    let probe = Probe::new(&network);
    probe.find_way(2000);
    let look = || (agent.get("/v1/state"), firewall(&agent), agent.get("/v1/counters")["generation"].clone());
    let before = look();
    // The mistake is that of who wrote the file, and is told with its place, whether it is to be applied or only checked.
    let refused = |text: &str, more: Value, words: &[&str]| {
        for path in ["/v1/state", "/v1/state?dry_run=true"] {
            let (status, body) = agent.ask("PUT", path, Some(&state(text, more.clone())));
            assert_eq!(status, 400, "{body}");
            let answer: Value = serde_json::from_str(&body).unwrap();
            let problem = &answer["error"][0];
            assert_eq!((&problem["file"], &problem["line"]), (&json!("rules.v6"), &json!(6)), "{body}");
            assert_eq!(problem["key"], "firewalls[0].ipv6", "{body}");
            assert!(
                problem["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty() && !remedy.contains("log")),
                "{body}"
            );
            assert!(words.iter().all(|word| body.contains(word)), "{words:?}: {body}");
            assert_eq!(look(), before);
        }
    };
    let with = |rule: &str| rules(2, &[PASS, rule]);
    refused(&with("-A FORWARD -m string --string x --algo bm -j DROP"), json!({}), &["column 15", "payload"]);
    refused(&with("-A FORWARD -j DNAT --to-destination 2001:db8::1"), json!({}), &["DNAT", "translation"]);
    refused(&with("-A FORWARD -s nonsense -j DROP"), json!({}), &["column 15", "nonsense"]);
    refused(&with("-A FORWARD -m set --match-set missing src -j DROP"), json!({}), &["missing"]);
    assert!(probe.passes(2000, false, SOON) && !probe.passes(2001, false, SILENCE), "the old rules filter on");
}

#[test]
#[ignore = "needs root"]
fn log_and_nflog_are_written_as_the_kernel_and_tshark_have_them() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let logging = [
        "-A FORWARD -p tcp -m tcp --dport 22 -j LOG --log-prefix \"ssh: \"",
        "-A FORWARD -p tcp -m tcp --dport 23 -j NFLOG --nflog-prefix \"telnet: \" --nflog-group 7",
        PASS,
    ];
    agent.apply(&state(&rules(1, &logging), json!({})));
    let probe = Probe::new(&network);
    probe.find_way(2000);
    let line =
        "ssh: IN=west OUT= MAC=02:00:00:00:01:01:02:00:00:00:01:02:86:dd SRC=2001:0db8:0001:0000:0000:0000:0000:0002";
    // The reader looks for new rules each second.
    agent.eventually("a line of LOG", |agent| {
        assert!(!probe.passes(22, true, Duration::from_millis(1)));
        agent.log().contains(line)
    });
    let log = agent.log();
    let line = log.lines().find(|text| text.contains(line)).unwrap();
    assert!(line.contains("SPT=1000 DPT=22") && line.contains(" SYN "), "{line}");
    assert!(line.contains("firewall=\"fw\""), "{line}");
    let before = packets(&agent, logging[1]);
    (0..5).for_each(|_| assert!(!probe.passes(23, true, Duration::from_millis(1))));
    assert_eq!(packets(&agent, logging[1]) - before, 5);
    let file = agent.state_dir().join("nflog-7.pcapng");
    let fields = "-T fields -E separator=| -e frame.comment -e ipv6.src -e tcp.dstport -e ipv6.routing.segleft";
    let read = || sh(&format!("tshark -r {} {fields}", file.display()));
    agent.eventually("five packets", |_| file.exists() && read().lines().count() == 5);
    for line in read().lines() {
        assert_eq!(line, "telnet: |2001:db8:1::2|23|1", "the prefix, and the packet with its steering header");
    }
    assert_eq!(
        packets(&agent, "policy of FORWARD"),
        packets(&agent, logging[0]) + 5,
        "LOG and NFLOG go on to the policy"
    );
}

#[test]
#[ignore = "needs root"]
fn a_firewall_filters_on_while_its_agent_is_away() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    let wanted = state(&rules(300, &[PASS]), json!({"conntrack": {"entries": 1000}}));
    agent.apply(&wanted);
    let probe = Probe::new(&network);
    probe.find_way(2000);
    let before = packets(&agent, PASS);
    agent.kill();
    assert!(probe.passes(2000, false, SOON) && !probe.passes(2001, false, SILENCE));
    agent.restart(&[]);
    assert_eq!((packets(&agent, PASS), packets(&agent, "policy of FORWARD")), (before + 1, 1));
    assert_eq!(firewall(&agent)["rules"].as_array().unwrap().len(), 301);
    // And it can be replaced by an agent that has not compiled it.
    agent.apply(&state(&rules(2, &[PASS]), json!({})));
    assert!(probe.passes(2000, false, SOON) && !probe.passes(2001, false, SILENCE));
    assert_eq!(packets(&agent, PASS), before + 2);
}

#[test]
#[ignore = "needs root"]
fn many_rules_do_not_keep_the_api_waiting() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(&state(&rules(1, &[PASS]), json!({})));
    // So many for the first time: larger tables take over, and the API waits while their programs are loaded.
    agent.apply(&state(&rules(10_001, &[PASS]), json!({})));
    let many = state(&rules(10_000, &[PASS]), json!({}));
    let begun = Instant::now();
    let answers = agent.answers_while(|| {
        let report = agent.apply(&many);
        assert!(!report["warnings"].to_string().contains("larger tables"), "there is room for two of them");
    });
    let took = begun.elapsed();
    // The switch needs no compilation.
    let begun = Instant::now();
    agent.apply(&state(&rules(10_000, &[PASS]), json!({"basic": false})));
    let switched = begun.elapsed();
    eprintln!("applied in {took:?}, switched off in {switched:?}");
    assert_eq!(firewall(&agent)["rules"].as_array().unwrap().len(), 10_001);
    // Far fewer than there are, far more than an API that waits gives.
    assert!(answers >= 5, "{answers} answers while {took:?} were spent");
    let probe = Probe::new(&network);
    probe.find_way(2001);
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const B_PASSES: &str = "-A FORWARD -p udp -m udp --dport 2001 -j ACCEPT";
const B_DROPS: &str = "-A FORWARD -p udp -m udp --dport 2001 -j DROP";

/// 10,000 rules that nothing hits, others in each version, and among them two about flow B, of which the first one decides.
fn version(number: usize) -> String {
    let about_b = if number.is_multiple_of(2) { [B_PASSES, B_DROPS] } else { [B_DROPS, B_PASSES] };
    let idle = |from: u32| {
        (from..from + 5000)
            .map(|rule| {
                format!("-A FORWARD -s fd00:{rule:x}::/32 -p tcp -m tcp --dport {} -j DROP\n", 1 + rule + number as u32)
            })
            .collect::<String>()
    };
    let [first, last] = [0, 5000].map(idle);
    format!("*filter\n:FORWARD DROP [0:0]\n{first}{}\n{}\n{PASS}\n{last}COMMIT\n", about_b[0], about_b[1])
}

#[test]
#[ignore = "needs root"]
fn ten_thousand_rules_are_replaced_without_losing_a_packet_or_mixing_the_versions() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let replace = |number| drop(agent.apply(&state(&version(number), json!({}))));
    replace(0);
    let probe = Probe::new(&network);
    probe.find_way(2001);
    let before = [B_PASSES, B_DROPS].map(|rule| packets(&agent, rule));
    let stop = AtomicBool::new(false);
    // Flow A passes in all versions, and of flow B each packet is either passed or dropped by a rule about it.
    let (mut sent_b, mut arrived_b) = (0_u64, 0_u64);
    let sent_a = under_traffic(&network, SID, || {
        let receiver = PacketSocket::open(&network.right, "n");
        let frame = Probe::frame(2001, false);
        let is_b = |bytes: &[u8]| bytes.len() == frame.len() && bytes[60..] == frame[60..];
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sender = PacketSocket::open(&network.left, "n");
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sender.send(&frame);
                    sent += 1;
                    thread::sleep(Duration::from_micros(500));
                }
                sent
            });
            let receiving = scope.spawn(|| {
                let mut arrived = 0;
                loop {
                    let ended = stop.load(Ordering::Relaxed);
                    match receiver.receive_where(Duration::from_secs(1), is_b) {
                        Some(_) => arrived += 1,
                        // All were sent before that second began.
                        None if ended => break arrived,
                        None => {}
                    }
                }
            });
            {
                // Also when an apply fails.
                let _stop = StopAtEnd(&stop);
                for number in 1..=if is_long() { 5 } else { 3 } {
                    replace(number);
                    thread::sleep(Duration::from_millis(100));
                }
            }
            (sent_b, arrived_b) = (sending.join().unwrap(), receiving.join().unwrap());
        });
    });
    let [passed, dropped] = [B_PASSES, B_DROPS].map(|rule| packets(&agent, rule));
    let (passed, dropped) = (passed - before[0], dropped - before[1]);
    eprintln!("flow A: {sent_a} packets, all passed; flow B: {sent_b} packets, {passed} passed, {dropped} dropped");
    assert_eq!((passed, passed + dropped), (arrived_b, sent_b), "each packet of flow B met one version's rule");
    assert!(passed > 0 && dropped > 0, "both versions were met");
    assert_eq!(packets(&agent, PASS), sent_a);
    assert_eq!(packets(&agent, "policy of FORWARD"), 0, "no packet fell through");
}

const NEW: &str = "-A FORWARD -p udp -m udp --dport 2002 -m state --state NEW -j ACCEPT";
const ESTABLISHED: &str = "-A FORWARD -m state --state ESTABLISHED -j ACCEPT";

/// The answer to a probe of port 2002, through the firewall the other way.
fn answer() -> Vec<u8> {
    let path = [SID.parse().unwrap(), "2001:db8:1::2".parse().unwrap()];
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 2]), MacAddress([2, 0, 0, 0, 2, 1]))
        .ipv6(Ipv6Repr::new("fc00:0:2:1::".parse().unwrap(), path[0]))
        .srh(SrhRepr::new(&path))
        .udp(UdpRepr::new(2002, 1000))
        .payload(b"answer")
        .build()
}

#[test]
#[ignore = "needs root"]
fn tables_grow_under_traffic_and_neither_counters_nor_connections_are_lost() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    agent.apply(&state(&rules(1, &[NEW, ESTABLISHED, PASS]), json!({"conntrack": {"entries": 1000}})));
    let probe = Probe::new(&network);
    probe.find_way(2000);
    assert!(probe.passes(2002, false, SOON), "a connection begins");
    let (sender, receiver) = (PacketSocket::open(&network.right, "n"), PacketSocket::open(&network.left, "n"));
    let frame = answer();
    let answered = (0..40).any(|_| {
        sender.send(&frame);
        receiver.receive_where(Duration::from_millis(100), |bytes| bytes.ends_with(b"answer")).is_some()
    });
    assert!(answered, "no way back through the node");
    let before = [PASS, ESTABLISHED].map(|rule| packets(&agent, rule));
    assert!(before[1] > 0);
    // New connections are not accepted any more.
    let larger = state(&rules(3000, &[ESTABLISHED, PASS]), json!({"conntrack": {"entries": 70_000}}));
    let sent = under_traffic(&network, SID, || {
        thread::sleep(Duration::from_millis(100));
        let report = agent.apply(&larger);
        assert!(report["warnings"].to_string().contains("larger tables"), "{report}");
        thread::sleep(Duration::from_millis(100));
    });
    assert_eq!(packets(&agent, PASS) - before[0], sent, "each packet is counted once");
    assert!(!probe.passes(2003, false, SILENCE), "a new connection");
    assert!(probe.passes(2002, false, SOON), "the connection is known in the larger table");
    assert_eq!(packets(&agent, ESTABLISHED), before[1] + 1);
    // The next agent knows what the smaller tables had counted.
    let counted = [PASS, ESTABLISHED].map(|rule| packets(&agent, rule));
    agent.kill();
    agent.restart(&[]);
    assert_eq!([PASS, ESTABLISHED].map(|rule| packets(&agent, rule)), counted);
    agent.apply(&state(&rules(3001, &[ESTABLISHED, PASS]), json!({"conntrack": {"entries": 70_000}})));
    assert_eq!([PASS, ESTABLISHED].map(|rule| packets(&agent, rule)), counted);
}
