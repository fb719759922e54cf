//! The agent is killed with SIGKILL at every moment of its life, and started again, while packets pass through a headend, an
//! endpoint and a decapsulating SID: none is lost, none comes twice, and what is configured is one whole state.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::Network;
use segue_api::http;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
/// Between two packets of a flow; there are three flows.
const PACE: Duration = Duration::from_millis(1);

const STATE: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports:
  # One on each hook.
  - {name: west, role: access, mode: xdp}
  - {name: east, role: core}
sids:
  - {sid: "fc00:0:1:1::/64", behaviour: End}
  - {sid: "fc00:0:1:6::/64", behaviour: End.DX6, next_hop: "2001:db8:1::2"}
policies:
  - {name: p, mode: H.Encaps.Red, segment_lists: [{segments: ["fc00:0:2:1::", "fc00:0:2:2::"]}]}
steering:
  - {destination: "2001:db8:77::/48", policy: p}
"#;

/// The same for all packets of the test, and much more beside: SIDs, lists and rules get other places in all tables.
fn larger_state() -> String {
    let sids: String =
        (0x100..0x140).map(|sid| format!("  - {{sid: \"fc00:0:1:{sid:x}::/64\", behaviour: End}}\n")).collect();
    let policies: String = (0..30)
        .map(|number| format!("  - {{name: a{number}, segment_lists: [{{segments: [\"fc00:0:2:{number:x}::\"]}}]}}\n"))
        .collect();
    let rules: String = (0..30)
        .map(|number| format!("  - {{destination: \"2001:db8:{:x}::/48\", policy: a{number}}}\n", 0x1000 + number))
        .collect();
    STATE
        .replace("sids:\n", &format!("sids:\n{sids}"))
        .replace("policies:\n", &format!("policies:\n{policies}"))
        .replace("steering:\n", &format!("steering:\n{rules}"))
}

/// An agent that is started without waiting for it.
struct Victim<'a> {
    network: &'a Network,
    directory: tempfile::TempDir,
    child: Option<Child>,
}

impl<'a> Victim<'a> {
    fn new(network: &'a Network) -> Self {
        Self { network, directory: tempfile::tempdir().unwrap(), child: None }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segued"));
        command.args(["--netns", self.network.node.name()]);
        for (option, name) in [("--socket", "socket"), ("--pin-dir", "bpf/node"), ("--state-dir", "state")] {
            command.arg(option).arg(self.directory.path().join(name));
        }
        command
    }

    fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        let child = self.command().stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        self.child = Some(child.unwrap());
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn wait_until_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.ask("GET", "/v1/version", None).is_none_or(|(status, _)| status != 200) {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none() && Instant::now() < end, "segued does not answer, {ended:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Option<(u16, String)> {
        let answer = http::request(&self.directory.path().join("socket"), method, path, body, PATIENCE).ok()?;
        Some((answer.status, answer.text().ok()?))
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None).unwrap_or_else(|| panic!("no answer:\n{}", self.log()));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn apply(&self, state: &str) {
        let (status, body) =
            self.ask("PUT", "/v1/state", Some(state)).unwrap_or_else(|| panic!("no answer:\n{}", self.log()));
        assert_eq!(status, 200, "{body}\n{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Ok(output) = self.command().arg("clean").output()
            && !output.status.success()
        {
            eprintln!("segued clean: {}", String::from_utf8_lossy(&output.stderr));
        }
        let _ = nix::mount::umount(&self.directory.path().join("bpf"));
    }
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Packet `number` of a flow: 0 from the west into the policy, 1 from the east through End, 2 from the east to End.DX6.
fn packet(flow: u8, number: u32) -> Vec<u8> {
    let west = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
    let east = || PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 2]), MacAddress([2, 0, 0, 0, 2, 1]));
    let (inside, outside) = (address("2001:db8:2::2"), address("2001:db8:1::2"));
    let packet = match flow {
        0 => west().ipv6(Ipv6Repr::new(outside, address("2001:db8:77::1"))),
        1 => {
            let path = ["fc00:0:1:1::", "fc00:0:2:1::"].map(address);
            east().ipv6(Ipv6Repr::new(inside, path[0])).srh(SrhRepr::new(&path))
        }
        _ => east().ipv6(Ipv6Repr::new(inside, address("fc00:0:1:6::"))).ipv6(Ipv6Repr::new(inside, outside)),
    };
    let mut payload = *b"count me\0\0\0\0\0";
    payload[8] = flow;
    payload[9..].copy_from_slice(&number.to_be_bytes());
    packet.udp(UdpRepr::new(1000, 2000)).payload(&payload).build()
}

fn flow_and_number(frame: &[u8]) -> Option<(u8, u32)> {
    let (_, end) = frame.split_at_checked(frame.len().checked_sub(13)?)?;
    let rest = end.strip_prefix(b"count me")?;
    Some((rest[0], u32::from_be_bytes(rest[1..].try_into().ok()?)))
}

fn count(socket: &PacketSocket, stop: &AtomicBool) -> BTreeMap<(u8, u32), u32> {
    let mut counts = BTreeMap::new();
    loop {
        let last = stop.load(Relaxed);
        // Nothing else counts: neighbour discovery goes on for ever.
        let limit = Duration::from_millis(if last { 500 } else { 50 });
        match socket.receive_where(limit, |frame| flow_and_number(frame).is_some()) {
            Some(frame) => *counts.entry(flow_and_number(&frame).expect("it was asked for")).or_default() += 1,
            None if last => return counts,
            None => {}
        }
    }
}

/// Runs `body` while packets pass; afterwards, every one of them must have come exactly once.
fn under_traffic<'a>(network: &Network, victim: &mut Victim<'a>, body: impl FnOnce(&mut Victim<'a>)) {
    let (west, east) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
    let stop = AtomicBool::new(false);
    let (sent, mut counts) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut number = 0;
            let mut due = Instant::now();
            while !stop.load(Relaxed) {
                west.send(&packet(0, number));
                east.send(&packet(1, number));
                east.send(&packet(2, number));
                number += 1;
                // What a busy machine made late is not made up for by a burst.
                due = (due + PACE).max(Instant::now());
                thread::sleep(due.saturating_duration_since(Instant::now()).max(PACE / 4));
            }
            number
        });
        let receiving = [scope.spawn(|| count(&west, &stop)), scope.spawn(|| count(&east, &stop))];
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(victim)));
        stop.store(true, Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        let counts: Vec<_> = receiving.into_iter().map(|thread| thread.join().unwrap()).collect();
        (sending.join().unwrap(), counts.into_iter().flatten().collect::<BTreeMap<_, _>>())
    });
    assert!(sent > 300, "only {sent} packets of each flow were sent");
    let mut wrong = Vec::new();
    for flow in 0..3 {
        wrong.extend((0..sent).filter_map(|number| {
            let times = counts.remove(&(flow, number)).unwrap_or(0);
            (times != 1).then_some((flow, number, times))
        }));
    }
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "of {sent} in each flow, {} did not come once: {shown:?}\n{}", wrong.len(), victim.log());
    println!("{sent} packets in each of 3 flows, none lost");
}

/// Number of the XDP program on a port.
fn program(network: &Network, port: &str) -> u64 {
    let text = network.node.sh(&format!("ip -j -d link show dev {port}"));
    let link: Value = serde_json::from_str(&text).unwrap();
    link[0]["xdp"]["prog"]["id"].as_u64().unwrap_or_else(|| panic!("no program: {text}"))
}

fn network() -> Network {
    let network = Network::new();
    // Neighbours are known from the start: no packet has to wait for one.
    network.node.script(
        "ip neigh replace 2001:db8:1::2 lladdr 02:00:00:00:01:02 nud permanent dev west
         ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east",
    );
    network
}

#[test]
#[ignore = "needs root"]
fn killed_at_any_moment_of_its_start() {
    let network = network();
    let mut victim = Victim::new(&network);
    victim.start();
    victim.wait_until_ready();
    victim.apply(STATE);
    let on_xdp = program(&network, "west");
    under_traffic(&network, &mut victim, |victim| {
        for milliseconds in [0, 2, 5, 10, 20, 40, 80, 160] {
            victim.kill();
            thread::sleep(Duration::from_millis(30));
            victim.start();
            thread::sleep(Duration::from_millis(milliseconds));
        }
        victim.wait_until_ready();
        thread::sleep(Duration::from_secs(1));
    });
    assert!(victim.log().contains("Adopted"), "{}", victim.log());
    assert_eq!(program(&network, "west"), on_xdp, "the same program, adopted");
    assert_eq!(victim.get("/v1/drops"), Value::Array(Vec::new()));
}

#[test]
#[ignore = "needs root"]
fn states_change_under_traffic() {
    let network = network();
    let mut victim = Victim::new(&network);
    victim.start();
    victim.wait_until_ready();
    victim.apply(STATE);
    let larger = larger_state();
    under_traffic(&network, &mut victim, |victim| {
        for _ in 0..5 {
            victim.apply(&larger);
            victim.apply(STATE);
        }
        thread::sleep(Duration::from_secs(1));
    });
    assert_eq!(victim.get("/v1/drops"), Value::Array(Vec::new()));
}

#[test]
#[ignore = "needs root"]
fn killed_at_any_moment_of_an_apply() {
    let network = network();
    let mut victim = Victim::new(&network);
    victim.start();
    victim.wait_until_ready();
    victim.apply(STATE);
    let states = [larger_state(), STATE.to_owned()];
    let routes = || network.node.sh("ip -6 route show proto 83").lines().count();
    // How long an apply takes here gives the moments.
    let begun = Instant::now();
    victim.apply(&states[0]);
    let whole = begun.elapsed();
    let most = routes();
    victim.apply(&states[1]);
    let least = routes();
    assert_eq!((most, least), (66, 2));
    let mut interrupted = 0;
    under_traffic(&network, &mut victim, |victim| {
        for part in 0..10_u32 {
            let state = &states[usize::from(part % 2 == 1)];
            let answered = thread::scope(|scope| {
                let request = scope.spawn(|| victim.ask("PUT", "/v1/state", Some(state)).is_some());
                thread::sleep(whole * part / 8);
                let id = victim.child.as_ref().map(Child::id).expect("it runs");
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(id as i32), nix::sys::signal::Signal::SIGKILL)
                    .unwrap();
                request.join().unwrap()
            });
            interrupted += usize::from(!answered);
            victim.child.take().expect("it ran").wait().unwrap();
            victim.start();
            victim.wait_until_ready();
            // One whole state or the other: what the agent says, and what the kernel has.
            let sids = victim.get("/v1/sids").as_array().unwrap().len();
            assert!([most, least].contains(&sids), "killed at {part}/8: {sids} SIDs");
            assert_eq!(routes(), sids, "killed at {part}/8: kernel routes");
        }
    });
    assert!(interrupted >= 2, "an apply was hardly ever caught: {interrupted} of 10, {whole:?} each");
    assert_eq!(victim.get("/v1/drops"), Value::Array(Vec::new()));
}
