//! Many SIDs and as many policies: they are applied, each has its counters, and what is asked, changed and withdrawn is right. Prints
//! what each costs in processor time of the agent; asserts what is told, not how fast. 600 of them; 100,000 in a long run
//! (`SEGUE_LONG`), with pauses that are long enough to measure in; `SEGUE_SCALE` is another number.

use std::{
    net::Ipv6Addr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Agent, Network};
use nix::{time::clock_getcpuclockid, unistd::Pid};
use segue_api::http;
use segue_testkit::{
    is_long,
    netns::{End, Netns},
    packet_socket::PacketSocket,
    wiring::veth,
};
use segue_wire::PseudoHeader;
use serde_json::{Value, json};

/// Functions that go down at once.
fn functions() -> u32 {
    if is_long() { 1000 } else { 300 }
}

fn many() -> u32 {
    let usual = if is_long() { 100_000 } else { 600 };
    std::env::var("SEGUE_SCALE").map_or(usual, |number| number.parse().unwrap())
}

/// As long as what goes on in it is measured for.
fn pause(seconds: u64) {
    thread::sleep(if is_long() { Duration::from_secs(seconds) } else { Duration::from_secs(1) });
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
    let mut sids: Vec<Value> = (0..number).map(sid).chain((0..functions()).map(function)).collect();
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

/// Waits until the agent does nothing: what follows an apply is over. Not for long where nobody reads what things cost: with others at
/// work beside it the agent may never seem to rest.
fn rests(agent: &Agent<'_>) {
    let end = Instant::now() + if is_long() { Duration::from_secs(120) } else { Duration::from_secs(1) };
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

fn put(agent: &Agent<'_>, state: &str) {
    let (status, body) = ask(agent, "PUT", "/v1/state", Some(state));
    assert_eq!(status, 200, "{body:.2000}\n{}", agent.log());
}

fn until(condition: impl Fn() -> bool) {
    segue_testkit::wait::wait_for("it", Duration::from_secs(120), || {
        let is_so = condition();
        // What is asked starts programs, and some of it takes ten seconds; how long exactly is read in a long run.
        if !is_so && !is_long() {
            thread::sleep(Duration::from_millis(100));
        }
        is_so.then_some(())
    });
}

fn withdrawn(network: &Network) -> bool {
    network.routes().iter().all(|route| !route.contains("fc00:0:3:"))
}

/// Senders of a flood; less than the kernel's table of neighbours takes.
const SENDERS: u8 = 200;

/// Frames from many neighbours, each of whom has another link-layer address each time, as fast as they go; how many there were.
fn flood(network: &Network, stop: &AtomicBool, frame: fn(u64, [u8; 6], u8) -> Vec<u8>) -> u64 {
    let socket = PacketSocket::open(&network.left, "n");
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let [.., a, b, c, d] = sent.to_be_bytes();
        socket.send(&frame(sent / u64::from(SENDERS), [2, 1, a, b, c, d], (sent % u64::from(SENDERS)) as u8));
        sent += 1;
    }
    sent
}

/// An ARP request for the node.
fn arp(_round: u64, mac: [u8; 6], sender: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 1, 1];
    frame.extend(mac);
    // RFC 826: Ethernet, IPv4, a request.
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend([192, 0, 2, 2 + sender]);
    frame.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
    frame
}

/// A neighbour advertisement to the node, which overrides what it knows; in the first round a solicitation, by which the node gets to know
/// the sender (RFC 4861 sections 4.3 and 4.4).
fn advertisement(round: u64, mac: [u8; 6], sender: u8) -> Vec<u8> {
    let node: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let source = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, sender.into());
    let solicits = round.is_multiple_of(1024);
    // Type, code, checksum; the flag to override; the target; the option with the link-layer address.
    let mut message = if solicits { vec![135, 0, 0, 0, 0, 0, 0, 0] } else { vec![136, 0, 0, 0, 0x20, 0, 0, 0] };
    message.extend(if solicits { node } else { source }.octets());
    message.extend([if solicits { 1_u8 } else { 2 }, 1]);
    message.extend(mac);
    let pseudo_header = PseudoHeader::V6 { source, destination: node, next_header: 58 };
    let checksum = pseudo_header.checksum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 1, 1];
    frame.extend(mac);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    frame.extend(source.octets());
    frame.extend(node.octets());
    frame.extend(message);
    frame
}

/// The far end of an interface that is no port takes it down and up; how often.
fn flaps(far: &Netns, stop: &AtomicBool) -> u64 {
    let mut flaps = 0;
    while !stop.load(Ordering::Relaxed) {
        far.sh("ip link set dev n down");
        far.sh("ip link set dev n up");
        flaps += 1;
    }
    flaps
}

fn delay(what: &str, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    println!("{what}: {:.2?}", begun.elapsed());
}

/// What others than the operator can do: a link that goes down and up, neighbours that change, scrapes. None makes a configuration,
/// and what has to be done meanwhile is done.
fn outsiders(network: &Network, function: &Netns, agent: &Agent<'_>, many: u32) {
    rests(agent);
    let before = number(agent);
    let used_before = used(agent);
    for _ in 0..if is_long() { 5 } else { 2 } {
        network.left.sh("ip link set dev n down");
        thread::sleep(Duration::from_millis(500));
        network.left.sh("ip link set dev n up");
        thread::sleep(Duration::from_millis(500));
    }
    println!("a port's link down and up: {:.0} ms of processor time", 1e3 * (used(agent) - used_before).as_secs_f64());
    let next = state(many, "USD");
    delay("an apply right behind it", || put(agent, &next));
    assert_eq!(number(agent), before + 1, "one configuration, by the apply");
    let change = |what: &str, flavour: &str| {
        let next = state(many, flavour);
        delay(&format!("apply {what}"), || put(agent, &next));
        delay(&format!("withdrawal of all functions {what}"), || {
            function.sh("ip link set dev n down");
            until(|| withdrawn(network));
        });
        function.sh("ip link set dev n up");
        until(|| network.routes().iter().filter(|route| route.contains("fc00:0:3:")).count() == functions() as usize);
        rests(agent);
    };
    rests(agent);
    change("with nothing else", "PSP");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut scrapes = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(ask(agent, "GET", "/metrics", None).0, 200);
                scrapes += 1;
            }
            scrapes
        });
        let next = state(many, "USD");
        delay("apply while one scrape follows the other", || put(agent, &next));
        delay("withdrawal while one scrape follows the other", || {
            function.sh("ip link set dev n down");
            until(|| withdrawn(network));
        });
        stop.store(true, Ordering::Relaxed);
        println!("{} scrapes", scraping.join().unwrap());
    });
    function.sh("ip link set dev n up");
    until(|| network.routes().iter().filter(|route| route.contains("fc00:0:3:")).count() == functions() as usize);
    rests(agent);
    let other = Netns::new();
    veth(
        End { netns: &network.node, name: "other", mac: "02:00:00:02:00:01" },
        End { netns: &other, name: "n", mac: "02:00:00:02:01:01" },
        1500,
    );
    network.node.sh("ip address add 2001:db8:d::1/64 dev other nodad");
    meanwhile(network, function, agent, ("ARP requests", &state(many, "PSP")), |stop| flood(network, stop, arp));
    let moved = || network.node.sh("ip -6 neighbour show 2001:db8:1::1:7 dev west");
    meanwhile(network, function, agent, ("neighbour advertisements", &state(many, "USD")), |stop| {
        let sent = thread::scope(|scope| {
            let flooding = scope.spawn(|| flood(network, stop, advertisement));
            thread::sleep(Duration::from_secs(1));
            let before = moved();
            thread::sleep(Duration::from_secs(1));
            assert!(before.contains("lladdr 02:01:") && before != moved(), "they are believed: {before}");
            flooding.join().unwrap()
        });
        let known = network.node.sh("ip -6 neighbour show dev west").matches("2001:db8:1::1:").count();
        assert_eq!(known, usize::from(SENDERS));
        sent
    });
    let next = state(many, "PSP");
    meanwhile(network, function, agent, ("link changes of no port", &next), |stop| flaps(&other, stop));
}

/// What has to be done while others disturb is done, and they make no configuration.
fn meanwhile(
    network: &Network,
    function: &Netns,
    agent: &Agent<'_>,
    (what, next): (&str, &str),
    disturb: impl Fn(&AtomicBool) -> u64 + Sync,
) {
    rests(agent);
    let configuration = number(agent);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&stop));
        let (before, begun) = (used(agent), Instant::now());
        pause(5);
        let share = (used(agent) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        println!("{what}: {:.1} % of a processor", 1e2 * share);
        assert_eq!(number(agent), configuration, "{what} make no configuration");
        delay(&format!("apply beside {what}"), || put(agent, next));
        assert_eq!(number(agent), configuration + 1, "one configuration, by the apply");
        delay(&format!("withdrawal beside {what}"), || {
            function.sh("ip link set dev n down");
            until(|| withdrawn(network));
        });
        stop.store(true, Ordering::Relaxed);
        println!("{} {what}", disturbing.join().unwrap());
    });
    function.sh("ip link set dev n up");
    until(|| network.routes().iter().filter(|route| route.contains("fc00:0:3:")).count() == functions() as usize);
}

/// Number of the configuration.
fn number(agent: &Agent<'_>) -> u64 {
    let (_, text) = ask(agent, "GET", "/v1/counters", None);
    serde_json::from_str::<Value>(&text).unwrap()["generation"].as_u64().unwrap()
}

#[test]
#[ignore = "needs root"]
fn many_sids_and_policies_are_counted_and_changed() {
    let network = Network::new();
    let function = network.function();
    network.node.sh("ip address add 2001:db8:f::1/64 dev to nodad");
    network.node.sh("ip address add 192.0.2.1/24 dev west");
    let agent = Agent::start(&network);
    let many = many();
    apply(&agent, "first apply", &state(many, "USD"));
    apply(&agent, "the same again", &state(many, "USD"));
    apply(&agent, "apply with one SID changed", &state(many, "PSP"));
    for _ in 0..3 {
        let (status, text) = costs(&agent, "GET /metrics", || ask(&agent, "GET", "/metrics", None));
        assert_eq!(status, 200);
        let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(rows("segue_sid_packets_total{"), (many + functions()) as usize);
        assert_eq!(rows("segue_sid_traffic_bytes_total{"), (many + functions()) as usize);
        for family in ["segue_policy_packets_total{", "segue_policy_traffic_bytes_total{"] {
            assert_eq!(rows(family), many as usize, "{family}");
        }
    }
    for (path, list, number) in [
        ("/v1/state", Some("sids"), many + functions()),
        ("/v1/sids", None, many + functions()),
        ("/v1/policies", None, many),
        ("/v1/counters", Some("policies"), many),
        ("/v1/ports", None, 3),
        ("/v1/functions", None, functions()),
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
    costs(&agent, "failure of all functions, to the last route", || {
        function.sh("ip link set dev n down");
        until(|| withdrawn(&network));
    });
    let missing = || ask(&agent, "GET", "/v1/sids", None).1.matches(r#""kernel_route":"missing""#).count();
    assert_eq!(missing(), functions() as usize, "what was read before the routes went is not told any more");
    costs(&agent, "their return", || {
        function.sh("ip link set dev n up");
        agent.eventually("return", |_| {
            network.routes().iter().filter(|route| route.contains("fc00:0:3:")).count() == functions() as usize
        });
    });
    assert_eq!(missing(), 0);
    outsiders(&network, &function, &agent, many);
    println!("at rest: {:.0} ms of processor time", {
        let before = used(&agent);
        pause(10);
        1e3 * (used(&agent) - before).as_secs_f64()
    });
    apply(&agent, "apply of nothing", &state(1, "USD"));
}
