//! Functions that go down and come back: with a real agent, real functions and real packets.

use std::{
    collections::BTreeMap,
    net::Ipv6Addr,
    time::{Duration, Instant},
};

use crate::support::{Agent, Network};
use segue_testkit::{
    netns::{End, Netns},
    packet_socket::PacketSocket,
    wiring::veth,
};
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::Value;

const NEXT: &str = "fc00:0:2:d::";
const BACKUP: &str = "fc00:0:2:e::";
/// What the inner packets start with.
const TTL: u8 = 64;

/// A namespace that forwards: `in` faces the node's port `to`, `out` its port `from`.
struct Function {
    netns: Netns,
}

impl Function {
    fn new(network: &Network) -> Self {
        let function = Self { netns: Netns::new() };
        function.connect(network);
        function
    }

    /// Makes the links, also again.
    fn connect(&self, network: &Network) {
        for (port, end, number) in [("to", "in", 1), ("from", "out", 2)] {
            let macs = [format!("02:00:00:01:00:0{number}"), format!("02:00:00:01:01:0{number}")];
            veth(
                End { netns: &network.node, name: port, mac: &macs[0] },
                End { netns: &self.netns, name: end, mac: &macs[1] },
                1500,
            );
            network.node.script(&format!(
                "ip address add 192.0.{number}.1/24 dev {port}
                 ip address add 2001:db8:f{number}::1/64 dev {port} nodad"
            ));
            self.netns.script(&format!(
                "ip address add 192.0.{number}.2/24 dev {end}
                 ip address add 2001:db8:f{number}::2/64 dev {end} nodad"
            ));
        }
        self.netns.script(
            "ip route add default via 192.0.2.1
             ip -6 route add default via 2001:db8:f2::1",
        );
    }

    /// Its interfaces stay up, but nothing passes.
    fn break_it(&self) {
        self.netns.script(
            "nft add table inet broken
             nft add chain inet broken forward { type filter hook forward priority 0; policy drop; }",
        );
    }

    fn repair(&self) {
        self.netns.sh("nft delete table inet broken");
    }
}

/// A node state with these SIDs in front of the function.
fn state(sids: &[String]) -> String {
    format!(
        r#"
node: n1
source_address: "fc00:0:1::1"
locator: "fc00:0:1::/48"
domain: {{sid_blocks: ["fc00::/32"]}}
ports:
  - {{name: west, role: core}}
  - {{name: east, role: core}}
  - {{name: to, role: service}}
  - {{name: from, role: service}}
sids:
{}
"#,
        sids.join("\n")
    )
}

fn sid(number: u32, next_hop: &str, rest: &str) -> String {
    format!(
        "  - {{sid: 'fc00:0:1:{number:x}::', behaviour: End.AD, next_hop: '{next_hop}', proxy: {{inner: [IPv4], \
         memory: flow, to_function: to, from_function: from, {rest}}}}}"
    )
}

/// drop, bypass, withdraw and reroute, all in front of the same function.
fn all_actions(watch: &str) -> String {
    let sids = ["drop", "bypass", "withdraw", "reroute"].iter().zip(1..).map(|(action, number)| {
        let backup = if *action == "reroute" { format!(", backup: '{BACKUP}'") } else { String::new() };
        sid(number, "192.0.1.2", &format!("on_failure: {action}{backup}, watch: {watch}"))
    });
    state(&sids.collect::<Vec<_>>())
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Function,
    Bypass,
    Backup,
}

const WELL: [Option<Way>; 4] = [Some(Way::Function); 4];
const SICK: [Option<Way>; 4] = [None, Some(Way::Bypass), None, Some(Way::Backup)];

/// Packets from `left` through the node to `right`.
struct Traffic {
    sender: PacketSocket,
    receiver: PacketSocket,
    number: u32,
}

impl Traffic {
    fn new(network: &Network) -> Self {
        let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
        Self { sender, receiver, number: 0 }
    }

    /// Sends a packet to the SID of this number; returns the packet's own.
    fn send(&mut self, sid: u32) -> u32 {
        self.number += 1;
        let sid: Ipv6Addr = format!("fc00:0:1:{sid:x}::").parse().unwrap();
        let path = [sid, NEXT.parse().unwrap()];
        let mut inner = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        inner.time_to_live = TTL;
        let frame = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
            .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), sid))
            .srh(SrhRepr::new(&path))
            .inner_ipv4(inner)
            .udp(UdpRepr::new(1000 + sid.segments()[3], 2000))
            .payload(&self.number.to_be_bytes())
            .build();
        self.sender.send(&frame);
        self.number
    }

    /// The next packet of ours that arrives: its number and its way.
    fn receive(&self, limit: Duration) -> Option<(u32, Way)> {
        let ours = |frame: &[u8]| frame.len() == 14 + 40 + 40 + 20 + 8 + 4 && frame[14 + 6] == 43;
        let frame = self.receiver.receive_where(limit, ours)?;
        let destination: [u8; 16] = frame[14 + 24..14 + 40].try_into().unwrap();
        let destination = Ipv6Addr::from(destination);
        let way = match (destination == BACKUP.parse::<Ipv6Addr>().unwrap(), frame[14 + 80 + 8]) {
            (true, TTL) => Way::Backup,
            (false, TTL) => Way::Bypass,
            (false, ttl) if ttl < TTL => Way::Function,
            other => panic!("{destination}: {other:?}"),
        };
        let expected = if way == Way::Backup { BACKUP } else { NEXT };
        assert_eq!(destination, expected.parse::<Ipv6Addr>().unwrap());
        Some((u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap()), way))
    }

    /// What becomes of a packet to each of the SIDs 1 to 4, when nothing has come for a while; of `certain` that come for sure
    /// a busy machine may take its time.
    fn ways(&mut self, certain: usize) -> [Option<Way>; 4] {
        let sent: Vec<u32> = (1..=4).map(|sid| self.send(sid)).collect();
        let mut came = BTreeMap::new();
        let limit = |came: usize| Duration::from_millis(if came < certain { 2000 } else { 60 });
        while let Some((number, way)) = self.receive(limit(came.len())) {
            assert_eq!(came.insert(number, way), None, "a packet came twice");
        }
        std::array::from_fn(|position| came.get(&sent[position]).copied())
    }

    fn until(&mut self, agent: &Agent<'_>, wanted: [Option<Way>; 4]) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let ways = self.ways(0);
            if ways == wanted {
                return;
            }
            let functions = agent.ask("GET", "/v1/functions", None).1;
            assert!(Instant::now() < end, "{ways:?}, not {wanted:?}\n{functions}\n{}", agent.log());
        }
    }

    /// It is so, and stays so.
    fn always(&mut self, wanted: [Option<Way>; 4]) {
        for _ in 0..5 {
            assert_eq!(self.ways(wanted.iter().flatten().count()), wanted);
        }
    }
}

fn function_states(agent: &Agent<'_>) -> Vec<String> {
    let functions = agent.get("/v1/functions");
    functions.as_array().unwrap().iter().map(|function| function["state"].as_str().unwrap().to_owned()).collect()
}

fn all(state: &str, count: usize) -> Vec<String> {
    vec![state.to_owned(); count]
}

fn withdrawn(network: &Network) -> bool {
    !network.routes().iter().any(|route| route.contains("fc00:0:1:3::"))
}

const THROUGH: &str = "{probe: {kind: icmp, through: true}}";

#[test]
#[ignore = "needs root"]
fn a_function_that_stops_forwarding_is_found_out_and_each_sid_does_what_it_was_told() {
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    agent.apply(&all_actions(THROUGH));
    let mut traffic = Traffic::new(&network);
    traffic.until(&agent, WELL);
    traffic.always(WELL);
    let before = agent.get("/v1/functions");
    assert_eq!(before[0]["changes"], 0);

    let start = Instant::now();
    function.break_it();
    agent.eventually("the failure", |agent| function_states(agent) == all("down", 4));
    println!("from the broken function to its failure: {:?}", start.elapsed());
    traffic.always(SICK);
    assert!(withdrawn(&network), "{:?}", network.routes());
    let report = &agent.get("/v1/functions")[3];
    assert_eq!((&report["on_failure"], &report["backup"]), (&Value::from("reroute"), &Value::from(BACKUP)));
    assert!(report["reason"].as_str().unwrap().contains("3 probes in a row failed"), "{report}");
    assert!(report["probe"]["last"].as_str().unwrap().contains("no answer within 200 ms"), "{report}");
    let (_, metrics) = agent.ask("GET", "/metrics", None);
    assert!(metrics.contains(r#"segue_function_up{node="n1",sid="fc00:0:1:1::",on_failure="drop"} 0"#), "{metrics}");
    assert!(metrics.contains(r#"segue_function_changes_total{node="n1",sid="fc00:0:1:1::"} 1"#), "{metrics}");
    let drops = agent.get("/v1/drops");
    assert!(drops.to_string().contains("drop_function_down"), "{drops}");
    assert!(agent.log().contains("function down"), "{}", agent.log());

    // Another configuration in between: flags and route stay away.
    agent.apply(&all_actions(THROUGH).replace("sid_blocks", "source_prefixes: ['2001:db8::/32'], sid_blocks"));
    traffic.always(SICK);
    assert!(withdrawn(&network), "{:?}", network.routes());
    // A route that somebody adds with our number goes again.
    network.node.sh("ip -6 route add blackhole fc00:0:1:3:: metric 1 proto 83");
    agent.apply(&all_actions(THROUGH));
    assert!(withdrawn(&network), "{:?}", network.routes());

    let start = Instant::now();
    function.repair();
    agent.eventually("the recovery", |agent| function_states(agent) == all("up", 4));
    println!("from the repaired function to its recovery: {:?}", start.elapsed());
    traffic.until(&agent, WELL);
    traffic.always(WELL);
    agent.eventually("the route", |_| !withdrawn(&network));
    assert!(agent.log().contains("function up"), "{}", agent.log());
}

/// The exact proxy has no XDP program where packets come back; its function's MAC address is given.
#[test]
#[ignore = "needs root"]
fn a_function_of_the_exact_proxy_is_probed_through_too() {
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    let state = all_actions(THROUGH).replace("memory: flow", "memory: packet");
    agent.apply(&state.replace("next_hop: '192.0.1.2'", "next_hop_mac: '02:00:00:01:01:01'"));
    let mut traffic = Traffic::new(&network);
    traffic.until(&agent, WELL);
    function.break_it();
    agent.eventually("the failure", |agent| function_states(agent) == all("down", 4));
    traffic.always(SICK);
    function.repair();
    agent.eventually("the recovery", |agent| function_states(agent) == all("up", 4));
    traffic.until(&agent, WELL);
}

#[test]
#[ignore = "needs root"]
fn a_link_that_goes_down_or_away_is_death_at_once() {
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    agent.apply(&all_actions("{hold_ms: 100}"));
    let mut traffic = Traffic::new(&network);
    traffic.until(&agent, WELL);
    for (what, down, up) in [
        ("the function's end of IFACE-OUT", "ip link set in down", "ip link set in up"),
        ("the function's end of IFACE-IN", "ip link set out down", "ip link set out up"),
    ] {
        function.netns.sh(down);
        agent.eventually(what, |agent| function_states(agent) == all("down", 4));
        traffic.always(SICK);
        agent.eventually("the withdrawal", |_| withdrawn(&network));
        function.netns.sh(up);
        function.netns.script(
            "ip route replace default via 192.0.2.1
             ip -6 address replace 2001:db8:f1::2/64 dev in nodad",
        );
        agent.eventually("the recovery", |agent| function_states(agent) == all("up", 4));
        traffic.until(&agent, WELL);
    }
    // The interfaces go; the SIDs still know what to do.
    network.node.sh("ip link del to");
    agent.eventually("the failure", |agent| function_states(agent) == all("down", 4));
    let reason = agent.get("/v1/functions")[0]["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, "link down or gone: to");
    traffic.always(SICK);
    // Long after the agent has seen all that followed.
    std::thread::sleep(Duration::from_millis(300));
    traffic.always(SICK);
    network.node.sh("ip link del from");
    function.connect(&network);
    agent.eventually("the recovery", |agent| function_states(agent) == all("up", 4));
    traffic.until(&agent, WELL);
}

#[test]
#[ignore = "needs root"]
fn a_killed_agent_leaves_the_dead_dead_and_the_next_one_wants_proof() {
    let network = Network::new();
    let function = Function::new(&network);
    let mut agent = Agent::start(&network);
    agent.apply(&all_actions(THROUGH));
    let mut traffic = Traffic::new(&network);
    traffic.until(&agent, WELL);
    function.break_it();
    agent.eventually("the failure", |agent| function_states(agent) == all("down", 4));
    agent.eventually("the withdrawal", |_| withdrawn(&network));
    let since = agent.get("/v1/functions")[0]["since_ms"].clone();
    agent.kill();
    traffic.always(SICK);
    agent.restart(&[]);
    traffic.always(SICK);
    assert!(withdrawn(&network), "{:?}", network.routes());
    let report = &agent.get("/v1/functions")[0];
    assert_eq!((&report["state"], &report["changes"]), (&Value::from("down"), &Value::from(1)));
    assert_eq!(report["since_ms"], since, "since its failure, not since the agent's start");
    // It recovers while no agent looks.
    agent.terminate();
    assert!(agent.pins().exists());
    function.repair();
    traffic.always(SICK);
    agent.restart(&[]);
    agent.eventually("the recovery", |agent| function_states(agent) == all("up", 4));
    traffic.until(&agent, WELL);
    agent.eventually("the route", |_| !withdrawn(&network));
    assert_eq!(agent.get("/v1/functions")[0]["changes"], 2);
    // And goes down while no agent looks.
    agent.kill();
    function.break_it();
    agent.restart(&[]);
    agent.eventually("the failure", |agent| function_states(agent) == all("down", 4));
    traffic.until(&agent, SICK);
    // No longer watched: no longer down.
    agent.apply(&state(&[sid(1, "192.0.1.2", "hop_limit_margin: 9")]));
    assert_eq!(agent.get("/v1/functions"), Value::Array(Vec::new()));
    function.repair();
    let end = Instant::now() + Duration::from_secs(60);
    while traffic.ways(0)[0] != Some(Way::Function) {
        assert!(Instant::now() < end, "{}", agent.log());
    }
}

#[test]
#[ignore = "needs root"]
fn a_flapping_link_is_held_down() {
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    agent.apply(&all_actions("{hold_ms: 100}"));
    agent.eventually("life", |agent| function_states(agent) == all("up", 4));
    let start = Instant::now();
    let mut flaps = 0;
    while start.elapsed() < Duration::from_secs(5) || flaps <= 20 {
        function.netns.sh("ip link set in down");
        std::thread::sleep(Duration::from_millis(20));
        function.netns.sh("ip link set in up");
        std::thread::sleep(Duration::from_millis(20));
        flaps += 1;
    }
    let elapsed = start.elapsed();
    let report = agent.get("/v1/functions")[0].clone();
    let changes = report["changes"].as_u64().unwrap();
    println!("{flaps} flaps in {elapsed:?}: {changes} changes; hold time now {} ms", report["hold_ms"]);
    let bound = 2 * (elapsed.as_millis() as u64 / 1100 + 5);
    assert!(changes >= 2 && changes <= bound, "{changes} changes, at most {bound}");
    agent.eventually("the last recovery", |agent| {
        let hold = Duration::from_millis(report["hold_ms"].as_u64().unwrap());
        hold > Duration::from_secs(4) || function_states(agent) == all("up", 4)
    });
}

/// Every other kind of probe: answered, then not, then answered.
#[test]
#[ignore = "needs root"]
fn neighbours_echoes_and_connections_tell_life_and_death() {
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    let probes = [
        "{kind: neighbour}",
        "{kind: neighbour, target: '2001:db8:f1::2'}",
        "{kind: icmp}",
        "{kind: icmp, target: '2001:db8:f1::2'}",
        "{kind: tcp, port: 7777}",
        "{kind: tcp, port: 7777, target: '2001:db8:f1::2'}",
        "{kind: tcp, port: 443, through: true}",
        "{kind: icmp, through: true, target: '192.0.2.1'}",
    ];
    let listener = function.netns.enter(|| std::net::TcpListener::bind("[::]:7777").unwrap());
    let sids = probes.iter().zip(1..).map(|(probe, number)| {
        sid(number, "192.0.1.2", &format!("watch: {{link: false, hold_ms: 0, probe: {probe}}}"))
    });
    agent.apply(&state(&sids.collect::<Vec<_>>()));
    let answered = |agent: &Agent<'_>| -> Vec<bool> {
        let functions = agent.get("/v1/functions");
        functions.as_array().unwrap().iter().map(|function| function["probe"]["last"] == "answered").collect()
    };
    agent.eventually("answers to all", |agent| answered(agent) == [true; 8]);
    let down =
        |agent: &Agent<'_>| -> Vec<bool> { function_states(agent).iter().map(|state| state == "down").collect() };
    let (t, f) = (true, false);

    function.netns.script("sysctl -qw net.ipv4.conf.in.arp_ignore=8");
    agent.eventually("no ARP", |agent| down(agent)[0]);
    assert_eq!(down(&agent)[2..6], [f; 4], "everything else lives on");
    function.netns.script("sysctl -qw net.ipv4.conf.in.arp_ignore=0");
    agent.eventually("ARP", |agent| down(agent) == [f; 8]);

    function.netns.script("ip address del 2001:db8:f1::2/64 dev in");
    agent.eventually("no IPv6", |agent| down(agent) == [f, t, f, t, f, t, f, f]);
    function.netns.script("ip address add 2001:db8:f1::2/64 dev in nodad");
    agent.eventually("IPv6", |agent| down(agent) == [f; 8]);

    drop(listener);
    agent.eventually("no listener", |agent| down(agent) == [f, f, f, f, t, t, f, f]);
    assert!(agent.get("/v1/functions")[4]["reason"].as_str().unwrap().contains("refused"));
    let _listener = function.netns.enter(|| std::net::TcpListener::bind("[::]:7777").unwrap());
    agent.eventually("a listener", |agent| down(agent) == [f; 8]);

    function.break_it();
    agent.eventually("no forwarding", |agent| down(agent) == [f, f, f, f, f, f, t, t]);
    function.repair();
    agent.eventually("forwarding", |agent| down(agent) == [f; 8]);

    function.netns.script(
        "nft add table inet deaf
         nft add chain inet deaf input { type filter hook input priority 0; policy drop; }
         nft add rule inet deaf input icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
    );
    agent.eventually("silence", |agent| down(agent) == [f, f, t, t, t, t, f, f]);
}

/// Hundredths of a second that the agent has used, of user and system time. It is the only process in the namespace.
fn cpu_ticks(network: &Network) -> u64 {
    let pid = segue_testkit::command::sh(&format!("ip netns pids {}", network.node.name()));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Not a test of speed, which belongs to a quiet machine: that many probes at once all work, and what it costs.
#[test]
#[ignore = "needs root"]
fn a_thousand_functions_are_probed_by_one_thread() {
    const COUNT: u32 = 1000;
    let network = Network::new();
    let function = Function::new(&network);
    let agent = Agent::start(&network);
    // Each has its own target, so that nothing is shared.
    let addresses: Vec<String> = (0..COUNT)
        .map(|number| format!("address add 10.9.{}.{}/32 dev in\n", number / 250, 1 + number % 250))
        .collect();
    let batch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(batch.path(), addresses.concat()).unwrap();
    function.netns.sh(&format!("ip -batch {}", batch.path().display()));
    network.node.sh("ip route add 10.9.0.0/16 via 192.0.1.2 dev to");
    let sids = (0..COUNT).map(|number| {
        let target = format!("10.9.{}.{}", number / 250, 1 + number % 250);
        // Not down because the machine has been busy elsewhere for half a second.
        sid(0x1000 + number, "192.0.1.2", &format!("watch: {{probe: {{kind: icmp, target: {target}, fall: 10}}}}"))
    });
    agent.apply(&state(&sids.collect::<Vec<_>>()));
    let good = |agent: &Agent<'_>| {
        let functions = agent.get("/v1/functions");
        let functions = functions.as_array().unwrap();
        assert_eq!(functions.len(), COUNT as usize);
        functions.iter().filter(|function| function["probe"]["last"] == "answered").count()
    };
    agent.eventually("answers to all", |agent| good(agent) == COUNT as usize);
    let ticks = || cpu_ticks(&network);
    let (start, before) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_secs(3));
    let (elapsed, used) = (start.elapsed().as_secs_f64(), ticks() - before);
    println!("{COUNT} functions, 5 probes a second each: {:.1} % of a CPU", used as f64 / elapsed);
    assert!(function_states(&agent).iter().all(|state| state == "up"), "{}", agent.log());
    // A link event finds its way past all of them.
    let start = Instant::now();
    function.netns.sh("ip link set in down");
    agent.eventually("all down", |agent| function_states(agent) == all("down", COUNT as usize));
    println!("{COUNT} SIDs down {:?} after `ip link set down` began", start.elapsed());
}

/// `2026-11-21T23:32:19.123456`: microseconds of the day.
fn time_of_day(text: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1_000_000 + number(20..26)
}

/// What the kernel tells in a namespace, line by line with the time when it did.
struct KernelLog {
    process: std::process::Child,
    file: tempfile::NamedTempFile,
}

impl KernelLog {
    fn start(netns: &Netns, what: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = std::process::Command::new("ip");
        // Line by line, not when a buffer is full.
        command.args(["-oneline", "-tshort", "monitor", what]).env("TZ", "UTC").stdout(file.reopen().unwrap());
        Self { process: netns.spawn(&mut command), file }
    }

    /// The first line with all of these words: microseconds of the day.
    fn time(&self, words: &[&str]) -> i64 {
        let text = std::fs::read_to_string(self.file.path()).unwrap();
        let line = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
        time_of_day(&line.unwrap_or_else(|| panic!("no {words:?} in {text}"))[1..])
    }
}

impl Drop for KernelLog {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// When the log says that the function behind this port went down, microseconds of the day; it is written right after the data
/// plane.
fn time_of_death(log: &str, port: &str) -> Option<i64> {
    let name = format!("function=\"{port}/{port}\"");
    let line = log.lines().find(|line| line.contains("function down") && line.contains(&name))?;
    Some(time_of_day(line))
}

/// Times from an event to the action, of many functions; printed, because a busy machine proves nothing.
#[test]
#[ignore = "needs root"]
fn times_from_event_to_action() {
    use std::io::Write;
    const COUNT: usize = 40;
    let network = Network::new();
    let functions = Netns::new();
    let mut sids = Vec::new();
    let mut ports = Vec::new();
    for number in 0..2 * COUNT {
        let (port, end) = (format!("to{number}"), format!("fn{number}"));
        let macs = [format!("02:00:00:03:00:{number:02x}"), format!("02:00:00:03:01:{number:02x}")];
        veth(
            End { netns: &network.node, name: &port, mac: &macs[0] },
            End { netns: &functions, name: &end, mac: &macs[1] },
            1500,
        );
        network.node.sh(&format!("ip address add 10.8.{number}.1/24 dev {port}"));
        functions.sh(&format!("ip address add 10.8.{number}.2/24 dev {end}"));
        // Half of them are watched by link, half by probe.
        let watch = if number < COUNT { "{}" } else { "{link: false, probe: {kind: icmp}}" };
        sids.push(format!(
            "  - {{sid: 'fc00:0:1:{:x}::', behaviour: End.AD, next_hop: 10.8.{number}.2, proxy: {{inner: [IPv4], \
             to_function: {port}, from_function: {port}, on_failure: bypass, watch: {watch}}}}}",
            0x100 + number
        ));
        ports.push(format!("  - {{name: {port}, role: service}}"));
    }
    let agent = Agent::start(&network);
    let state =
        state(&sids).replace("  - {name: to, role: service}\n  - {name: from, role: service}", &ports.join("\n"));
    agent.apply(&state);
    let probed = |agent: &Agent<'_>| {
        let functions = agent.get("/v1/functions");
        functions.as_array().unwrap().iter().filter(|function| function["probe"]["last"] == "answered").count()
    };
    agent.eventually("answers to all", |agent| probed(agent) == COUNT);
    assert_eq!(function_states(&agent), all("up", 2 * COUNT));
    // One `ip` for all, so that its start is not measured.
    let mut ip = functions.enter(|| {
        let mut command = std::process::Command::new("ip");
        command.args(["-batch", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap()
    });
    let mut input = ip.stdin.take().unwrap();
    let links = KernelLog::start(&network.node, "link");
    let addresses = KernelLog::start(&functions, "address");
    // They must listen before anything happens.
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..2 * COUNT {
        let end = format!("fn{number}");
        let line = if number < COUNT {
            format!("link set {end} down\n")
        } else {
            format!("address del 10.8.{number}.2/24 dev {end}\n")
        };
        input.write_all(line.as_bytes()).unwrap();
        input.flush().unwrap();
        std::thread::sleep(Duration::from_millis(37));
    }
    drop(input);
    assert!(ip.wait().unwrap().success());
    agent.eventually("all down", |agent| function_states(agent) == all("down", 2 * COUNT));
    let log = agent.log();
    for (what, numbers) in [("link", 0..COUNT), ("probe", COUNT..2 * COUNT)] {
        let mut times: Vec<f64> = numbers
            .map(|number| {
                let event = match what {
                    "link" => links.time(&[&format!(" to{number}@"), "NO-CARRIER"]),
                    _ => addresses.time(&["Deleted", &format!(" fn{number} "), " inet "]),
                };
                (time_of_death(&log, &format!("to{number}")).unwrap() - event) as f64 / 1000.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{what}: of {COUNT} functions, milliseconds from the kernel's notification to the action: least {:.1}, median {:.1}, most {:.1}",
            times[0],
            times[COUNT / 2],
            times[COUNT - 1]
        );
    }
}
