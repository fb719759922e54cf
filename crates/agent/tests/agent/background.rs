//! What takes long to compile is compiled in the background: the API answers meanwhile, applies stay in order, and the agent can end.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use crate::support::{Agent, Network};
use segue_testkit::{is_long, wait::wait_for};
use serde_json::{Value, json};

/// Enough for many answers in between; in a long run as many as the data plane is made for.
fn many() -> u32 {
    if is_long() { 100_000 } else { 20_000 }
}

/// Answers that come while many rules are compiled: far fewer than there are, far more than an API that waits gives.
const MEANWHILE: u32 = 5;

/// A node that steers what is sent to so many prefixes; `stem` tells sets of rules apart.
fn state(rules: u32, stem: u8) -> String {
    let steering: Vec<Value> = (0..rules)
        .map(|number| {
            let [_, a, b, c] = number.to_be_bytes();
            let destination = format!("2001:db8:{stem:x}{a:02x}:{b:x}{c:02x}::/64");
            let port = 1 + number % 60_000;
            json!({"name": format!("r{number}"), "destination": destination, "protocol": "udp", "destination_ports": [port], "policy": "p"})
        })
        .collect();
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "access"}, {"name": "east", "role": "core"}],
        "policies": [{"name": "p", "segment_lists": [{"segments": ["fc00:0:2:1::"]}]}],
        "steering": steering,
    })
    .to_string()
}

/// A PUT of a state whose answer is read later. All of it has been handed over when this returns.
fn put(agent: &Agent<'_>, state: &str) -> UnixStream {
    let mut stream = UnixStream::connect(agent.socket()).unwrap();
    let head = format!(
        "PUT /v1/state HTTP/1.1\r\nHost: segued\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        state.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(state.as_bytes()).unwrap();
    stream
}

/// Status line and the rest.
fn answer(mut stream: UnixStream) -> (String, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (line, rest) = text.split_once("\r\n").unwrap();
    (line.to_owned(), rest.to_owned())
}

/// Applies a state, however long it takes.
fn apply(agent: &Agent<'_>, state: &str) {
    let (line, body) = answer(put(agent, state));
    assert!(line.contains("200"), "{line}: {body:.500}");
}

fn generation(body: &str) -> u64 {
    let body = body.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<Value>(body.trim()).unwrap_or_else(|error| panic!("{error}: {body}"))["generation"]
        .as_u64()
        .unwrap()
}

fn rules(agent: &Agent<'_>) -> usize {
    agent.get("/v1/state")["steering"].as_array().map_or(0, Vec::len)
}

#[test]
#[ignore = "needs root"]
fn many_descriptors_do_not_keep_the_api_waiting() {
    let network = Network::new();
    let agent = Agent::start(&network);
    // Larger tables take over here, and the API waits while their programs are loaded.
    apply(&agent, &state(many(), 1));
    let more = state(many(), 2);
    let answers = agent.answers_while(|| apply(&agent, &more));
    assert_eq!(rules(&agent), many() as usize);
    assert!(answers >= MEANWHILE, "{answers} answers");
}

#[test]
#[ignore = "needs root"]
fn applies_are_done_in_the_order_in_which_they_came() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(&state(1, 1));
    // The first one takes long to compile, the second one nothing.
    let first = put(&agent, &state(many() / 2, 2));
    thread::sleep(Duration::from_millis(500)); // the last of it is read
    let second = put(&agent, &state(3, 3));
    let [first, second] = [first, second].map(|stream| {
        let (line, body) = answer(stream);
        assert!(line.contains("200"), "{line}: {body:.500}");
        generation(&body)
    });
    assert!(first < second, "{first} {second}");
    assert_eq!(rules(&agent), 3);
}

/// Scrapes that stop being read half-way, and ones that nobody reads at all: an apply and a withdrawal are done before any of them ends.
#[test]
#[ignore = "needs root"]
fn scrapes_that_nobody_reads_hold_up_neither_an_apply_nor_a_withdrawal() {
    let many = if is_long() { 20_000 } else { 8_000 };
    const READERS: usize = 10;
    let network = Network::new();
    let function = network.function();
    let agent = Agent::start(&network);
    let state = |policies: u32| {
        let mut sids: Vec<Value> =
            (0..many).map(|number| json!({"sid": format!("fc00:0:1:{number:x}::/64"), "behaviour": "End"})).collect();
        sids.push(json!({"sid": "fc00:0:3:1::", "behaviour": "End.AM", "next_hop_mac": "02:00:00:01:01:01",
            "proxy": {"to_function": "to", "from_function": "to", "on_failure": "withdraw", "watch": {"hold_ms": 0}}}));
        let policy = |number| json!({"name": format!("p{number}"), "segment_lists": [{"segments": ["fc00:0:2:1::"]}]});
        json!({
            "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
            "ports": [{"name": "west", "role": "access"}, {"name": "east", "role": "core"}, {"name": "to", "role": "service"}],
            "sids": sids, "policies": (0..policies).map(policy).collect::<Vec<_>>(),
        })
        .to_string()
    };
    let there = || network.node.sh("ip -6 route show fc00:0:3:1::").contains("fc00:0:3:1::");
    let until = |what, condition: &dyn Fn() -> bool| {
        wait_for(what, Duration::from_secs(60), || condition().then_some(()));
    };
    apply(&agent, &state(1));
    until("a route", &there);
    let ask = |read: usize| {
        let mut stream = UnixStream::connect(agent.socket()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: segued\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n").unwrap();
        let mut first = vec![0; read];
        stream.read_exact(&mut first).unwrap();
        (stream, first)
    };
    // Half of them have begun to be answered, and there is far more than the socket holds; the others may be made meanwhile.
    let stalled: Vec<_> = (0..READERS).map(|number| ask(if number % 2 == 0 { 1000 } else { 0 })).collect();
    apply(&agent, &state(2));
    function.sh("ip link set dev n down");
    until("a withdrawal", &|| !there());
    function.sh("ip link set dev n up");
    until("its return", &there);
    apply(&agent, &state(3));
    // Nobody has read on until here.
    for (mut stream, mut text) in stalled {
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text:.300}");
        assert!(text.ends_with("# EOF\n"), "it is whole");
        let rows = text.lines().filter(|line| line.starts_with("segue_sid_packets_total{")).count();
        assert_eq!(rows, many as usize + 1);
    }
}

#[test]
#[ignore = "needs root"]
fn the_agent_ends_while_it_compiles() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    agent.apply(&state(2, 1));
    let before = agent.get("/v1/counters")["generation"].clone();
    let stream = put(&agent, &state(many(), 2));
    thread::sleep(Duration::from_secs(1)); // the last of it is read
    agent.terminate();
    let (line, body) = answer(stream);
    assert!(
        line.contains("500") && body.contains("told to end"),
        "it does not wait for the compilation: {line} {body:.500}"
    );
    agent.restart(&[]);
    assert_eq!(rules(&agent), 2, "nothing was changed");
    assert_eq!(agent.get("/v1/counters")["generation"], before);
    agent.apply(&state(3, 3));
}
