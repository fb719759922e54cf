//! 100,000 SIDs and as many policies: they are applied, each has its counters, and what is asked, changed and withdrawn is right.
//! Prints what each costs in processor time of the agent; asserts what is told, not how fast. `SEGUE_SCALE` is another number.

#[allow(dead_code)] // made for more than this
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use nix::{time::clock_getcpuclockid, unistd::Pid};
use segue_lab::http;
use serde_json::{Value, json};
use support::{Agent, Network};

/// Functions that die at once.
const FUNCTIONS: u32 = 1000;

fn many() -> u32 {
    std::env::var("SEGUE_SCALE").map_or(100_000, |number| number.parse().unwrap())
}

/// As many SIDs and policies, and the SIDs of functions. `flavour`: of the first SID.
fn state(number: u32, flavour: &str) -> String {
    let sid = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        json!({"sid": format!("fc00:0:1{a:02x}:{b:02x}{c:02x}::/64"), "behaviour": "End"})
    };
    let function = |number: u32| {
        json!({"sid": format!("fc00:0:3:{number:x}::"), "behaviour": "End.AM", "next_hop": format!("2001:db8:f::{:x}", 16 + number),
            "proxy": {"to_function": "to", "from_function": "to", "on_failure": "withdraw", "watch": {}}})
    };
    let policy = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        json!({"name": format!("p{number}"), "segment_lists": [{"segments": [format!("fc00:0:2{a:02x}:{b:02x}{c:02x}::")]}]})
    };
    let mut sids: Vec<Value> = (0..number).map(sid).chain((0..FUNCTIONS).map(function)).collect();
    sids[0]["flavours"] = json!([flavour]);
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "access"}, {"name": "east", "role": "core"}, {"name": "to", "role": "service"}],
        "sids": sids,
        "policies": (0..number).map(policy).collect::<Vec<Value>>(),
    })
    .to_string()
}

/// Processor time of the agent so far: of all its threads, those that have ended too.
fn used(agent: &Agent<'_>) -> Duration {
    let process = Pid::from_raw(i32::try_from(agent.process()).unwrap());
    Duration::from(clock_getcpuclockid(process).unwrap().now().unwrap())
}

/// Runs `work` and prints what it costs.
fn costs<T>(agent: &Agent<'_>, what: &str, work: impl FnOnce() -> T) -> T {
    // What goes on by itself is not what it costs.
    rests(agent);
    let (before, begun) = (used(agent), Instant::now());
    let result = work();
    let elapsed = begun.elapsed();
    println!("{what}: {:.0} ms of processor time, {elapsed:.2?}", 1e3 * (used(agent) - before).as_secs_f64());
    result
}

/// Waits until the agent does nothing: what follows an apply is over.
fn rests(agent: &Agent<'_>) {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        let before = used(agent);
        thread::sleep(Duration::from_millis(300));
        if used(agent) - before < Duration::from_millis(3) {
            return;
        }
    }
}

fn ask(agent: &Agent<'_>, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
    let answer = http::request(&agent.socket(), method, path, body, Duration::from_secs(600)).unwrap();
    (answer.status, answer.text().unwrap())
}

fn apply(agent: &Agent<'_>, what: &str, state: &str) {
    let (status, body) = costs(agent, what, || ask(agent, "PUT", "/v1/state", Some(state)));
    assert_eq!(status, 200, "{body:.2000}\n{}", agent.log());
}

fn until(condition: impl Fn() -> bool) {
    segue_testkit::wait::wait_for("it", Duration::from_secs(120), || condition().then_some(()));
}

fn withdrawn(network: &Network) -> bool {
    network.routes().iter().all(|route| !route.contains("fc00:0:3:"))
}

#[test]
#[ignore = "needs root"]
fn a_hundred_thousand_sids_and_policies_are_counted_and_changed() {
    let network = Network::new();
    let function = network.function();
    network.node.sh("ip address add 2001:db8:f::1/64 dev to nodad");
    let agent = Agent::start(&network);
    let many = many();
    apply(&agent, "first apply", &state(many, "USD"));
    apply(&agent, "the same again", &state(many, "USD"));
    apply(&agent, "apply with one SID changed", &state(many, "PSP"));
    for _ in 0..3 {
        let (status, text) = costs(&agent, "GET /metrics", || ask(&agent, "GET", "/metrics", None));
        assert_eq!(status, 200);
        let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(rows("segue_sid_packets_total{"), (many + FUNCTIONS) as usize);
        assert_eq!(rows("segue_sid_traffic_bytes_total{"), (many + FUNCTIONS) as usize);
        for family in ["segue_policy_packets_total{", "segue_policy_traffic_bytes_total{"] {
            assert_eq!(rows(family), many as usize, "{family}");
        }
    }
    for (path, list, number) in [
        ("/v1/state", Some("sids"), many + FUNCTIONS),
        ("/v1/sids", None, many + FUNCTIONS),
        ("/v1/policies", None, many),
        ("/v1/counters", Some("policies"), many),
        ("/v1/ports", None, 3),
        ("/v1/functions", None, FUNCTIONS),
    ] {
        for _ in 0..2 {
            let (status, text) = costs(&agent, &format!("GET {path}"), || ask(&agent, "GET", path, None));
            assert_eq!(status, 200, "{path}");
            let value: Value = serde_json::from_str(&text).unwrap();
            let found = list.map_or(&value, |list| &value[list]).as_array().map(Vec::len);
            assert_eq!(found, Some(number as usize), "{path}");
        }
    }
    assert!(!withdrawn(&network));
    costs(&agent, "death of 1,000 functions, to the last route", || {
        function.sh("ip link set dev n down");
        until(|| withdrawn(&network));
    });
    costs(&agent, "their return", || {
        function.sh("ip link set dev n up");
        agent.eventually("return", |_| {
            network.routes().iter().filter(|route| route.contains("fc00:0:3:")).count() == FUNCTIONS as usize
        });
    });
    println!("10 s at rest: {:.0} ms of processor time", {
        let before = used(&agent);
        thread::sleep(Duration::from_secs(10));
        1e3 * (used(&agent) - before).as_secs_f64()
    });
    apply(&agent, "apply of nothing", &state(1, "USD"));
}
