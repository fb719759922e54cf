//! 100,000 SIDs and as many policies: they are applied, and each has its counters. Prints what a scrape costs; asserts what is told, not
//! how fast.

#[allow(dead_code)] // made for more than this
mod support;

use std::{
    fs,
    time::{Duration, Instant},
};

use segue_lab::http;
use serde_json::{Value, json};
use support::{Agent, Network};

const MANY: u32 = 100_000;

fn many() -> String {
    let sid = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        json!({"sid": format!("fc00:0:1{a:02x}:{b:02x}{c:02x}::/64"), "behaviour": "End"})
    };
    let policy = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        json!({"name": format!("p{number}"), "segment_lists": [{"segments": [format!("fc00:0:2{a:02x}:{b:02x}{c:02x}::")]}]})
    };
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "access"}, {"name": "east", "role": "core"}],
        "sids": (0..MANY).map(sid).collect::<Vec<Value>>(),
        "policies": (0..MANY).map(policy).collect::<Vec<Value>>(),
    })
    .to_string()
}

/// Processor time of the agent so far, in ticks of 10 ms.
fn ticks(agent: &Agent<'_>) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", agent.process())).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn ask(agent: &Agent<'_>, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
    let answer = http::request(&agent.socket(), method, path, body, Duration::from_secs(600)).unwrap();
    (answer.status, answer.text().unwrap())
}

#[test]
#[ignore = "needs root"]
fn a_hundred_thousand_sids_and_policies_are_counted() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let begun = Instant::now();
    let taken = ask(&agent, "PUT", "/v1/state", Some(&many()));
    assert_eq!(taken.0, 200, "{}", taken.1);
    println!("applied in {:?}", begun.elapsed());
    // What follows an apply is over when the node has answered twice.
    ask(&agent, "GET", "/v1/version", None);
    for _ in 0..3 {
        let (before, begun) = (ticks(&agent), Instant::now());
        let (status, text) = ask(&agent, "GET", "/metrics", None);
        println!("a scrape: {} ms of processor time, {:?}", 10 * (ticks(&agent) - before), begun.elapsed());
        assert_eq!(status, 200);
        let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        for family in ["segue_sid_packets_total{", "segue_policy_packets_total{", "segue_policy_traffic_bytes_total{"] {
            assert_eq!(rows(family), MANY as usize, "{family}");
        }
    }
}
