//! Traces in broken networks: each names the station that is to blame, and the reason; and what a simulation is certain of is what happens.
//!
//! The networks differ from a whole one by one thing each. They share a lab, which the last of the tests takes down; a test that fails leaves
//! none to the next.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};

use segue_api::client::{Client, Condition};
use segue_lab::trace::event::{Trace, Verdict};
use segue_lab::trace::{TraceArguments, text::text, trace};
use segue_model::node::{Behaviour, NodeState, Sid, SteeringVerdict};
use segue_testkit::mutation::Random;

use crate::common::TestLab;
use crate::common::group::Group;

const TOPOLOGY: &str = "
nodes: { edge1: {}, nfv1: {}, edge2: {}, far: { dataplane: plain } }
hosts: { client: { node: edge1 }, server: { node: edge2 }, island: { node: far } }
links:
  - { between: [edge1, nfv1] }
  - { between: [nfv1, edge2] }
  - { between: [edge2, far], impaired: { loss_percent: 100 } }
functions:
  mid: { node: nfv1 }
  rules: { node: nfv1, netfilter: { nftables: 'table inet t { chain forward { type filter hook forward priority 0; udp dport 99 drop; }; }' } }
  wall:
    node: nfv1
    firewall:
      ipv6:
        file: rules.v6
        text: |
          *filter
          :FORWARD ACCEPT [0:0]
          -A FORWARD -p tcp --dport 23 -j DROP
          -A FORWARD -p tcp --dport 25 -j REJECT
          COMMIT
chains:
  plain: { from: client, to: server, via: [mid], match: { protocol: udp, destination_ports: ['1000-65535'] } }
  filtered: { from: client, to: server, via: [rules], match: { protocol: udp, destination_ports: ['1-999'] } }
  walled: { from: client, to: server, via: [wall], match: { protocol: tcp } }
";

/// Verdict, station and reason.
type Expected<'a> = (Verdict, &'a str, &'a str);

struct Broken {
    lab: TestLab,
    /// Something was broken in it, and repaired.
    touched: Cell<bool>,
    /// It is not made whole again.
    spoilt: Cell<bool>,
}

/// Whether the simulation can know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Simulated {
    /// It is certain of the same.
    Same,
    /// It must not be certain of anything else.
    Unless,
}

use Simulated::{Same, Unless};

impl Broken {
    fn trace(&self, arguments: &TraceArguments) -> Trace {
        trace(&self.lab.roots, &self.lab.name, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What broke takes a moment to be known everywhere (caches of routes and neighbours), so it is looked at a few times.
    #[track_caller]
    fn expect(
        &self,
        arguments: &TraceArguments,
        (verdict, station, reason): Expected<'_>,
        simulated: Simulated,
    ) -> Trace {
        let fits = |trace: &Trace| {
            let simulation = trace.simulation.as_ref().unwrap();
            let same = (simulation.verdict, simulation.station.as_str(), simulation.reason.as_str())
                == (verdict, station, reason)
                && simulation.certain;
            (trace.verdict, trace.station.as_str(), trace.reason.as_str()) == (verdict, station, reason)
                && trace.differs.is_none()
                && (same || simulated == Unless)
        };
        let mut last = self.trace(arguments);
        for _ in 0..4 {
            if fits(&last) {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
            last = self.trace(arguments);
        }
        panic!(
            "expected {verdict:?} at {station}, {reason}, and it is {:?} at {}, {}:\n{}",
            last.verdict,
            last.station,
            last.reason,
            text(&last)
        );
    }

    /// Breaks something with a command, traces, and repairs it.
    #[track_caller]
    fn command(
        &self,
        node: &str,
        [breaks, repairs]: [&str; 2],
        arguments: &TraceArguments,
        expected: Expected<'_>,
        simulated: Simulated,
    ) -> Trace {
        self.touched.set(true);
        self.lab.sh(node, breaks);
        let trace = self.expect(arguments, expected, simulated);
        self.lab.sh(node, repairs);
        trace
    }

    /// The same with a change of a node's desired state.
    #[track_caller]
    fn state(
        &self,
        node: &str,
        breaks: impl FnOnce(&mut NodeState),
        arguments: &TraceArguments,
        expected: Expected<'_>,
        simulated: Simulated,
    ) -> Trace {
        self.touched.set(true);
        let client = Client::new(self.lab.paths().socket(node));
        let (whole, _) = client.state().unwrap();
        let mut broken = whole.clone();
        breaks(&mut broken);
        client.apply(&broken, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
        let trace = self.expect(arguments, expected, simulated);
        client.apply(&whole, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
        trace
    }
}

fn plain() -> TraceArguments {
    TraceArguments::of_chain("plain")
}

fn tcp(port: u16) -> TraceArguments {
    TraceArguments { destination_port: Some(port), ..TraceArguments::of_chain("walled") }
}

static LAB: Mutex<Option<Broken>> = Mutex::new(None);

/// Gives a test the lab, which is whole again when the test has ended well.
fn in_lab(case: impl FnOnce(&Broken)) {
    let mut lab = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let is_last = GROUP.is_last();
    let made = || Broken { lab: TestLab::up("trc", TOPOLOGY), touched: Cell::new(false), spoilt: Cell::new(false) };
    let broken = lab.take().unwrap_or_else(made);
    // Whoever panics drops it.
    case(&broken);
    if broken.touched.replace(false) && !broken.spoilt.get() {
        broken.expect(&plain(), (Verdict::Delivered, "server", "arrived"), Unless);
    }
    if is_last || broken.spoilt.get() {
        broken.lab.down();
    } else {
        *lab = Some(broken);
    }
}

/// One test for each broken network.
macro_rules! broken {
    ($($(#[$about:meta])* fn $name:ident($broken:ident) $body:block)*) => {
        static GROUP: Group =
            Group { names: &[$(concat!("trace::", stringify!($name))),*], begun: AtomicUsize::new(0) };
        $(
            $(#[$about])*
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                in_lab(|$broken| $body);
            }
        )*
    };
}

const ROUTE: &str = "fc00:5e9:2::/48";

/// How a node gets its route to nfv1's locator back.
fn again(broken: &Broken, node: &str) -> String {
    format!("ip -6 route replace {}", broken.lab.sh(node, &format!("ip -6 route show {ROUTE}")).trim())
}

/// How an interface of the function goes down, and comes up with the routes that it had.
fn link_down(broken: &Broken) -> [String; 2] {
    let file = |family: &str| broken.lab.paths().file("mid", family).display().to_string();
    let (v4, v6) = (file("v4"), file("v6"));
    [
        format!("ip -4 route save table all > {v4}; ip -6 route save table all > {v6}; ip link set west down"),
        format!(
            "ip link set west up && sleep 0.3; {{ ip route restore < {v4}; ip route restore < {v6}; }} 2>/dev/null || true"
        ),
    ]
}

fn is(behaviour: Behaviour) -> impl Fn(&Sid) -> bool {
    move |sid| sid.behaviour == behaviour
}

fn proxy(state: &mut NodeState) -> &mut Sid {
    state.sids.iter_mut().find(|sid| is(Behaviour::EndAs)(sid)).unwrap()
}

/// Whether simulation and live trace say the same, certain or not.
fn ends_alike(trace: &Trace) -> bool {
    let simulation = trace.simulation.as_ref().unwrap();
    trace.differs.is_none()
        && (simulation.verdict, &simulation.station, &simulation.reason)
            == (trace.verdict, &trace.station, &trace.reason)
}

/// Changes the states of edge1 and nfv1 in a way or two.
fn disturb(random: &mut Random, [edge1, nfv1]: &mut [NodeState; 2]) {
    for _ in 0..1 + random.below(2) {
        match random.below(6) {
            0 => edge1.steering.retain(|rule| rule.protocol != Some(segue_model::value::Protocol(17))),
            1 => {
                let mut rule = edge1.steering[0].clone();
                (rule.name, rule.policy, rule.priority) =
                    (Some(format!("by-chance-{}", edge1.steering.len())), None, 9);
                rule.destination_ports = vec!["1000-2999".parse().unwrap()];
                rule.protocol = Some(segue_model::value::Protocol(17));
                rule.action = Some(if random.below(2) == 0 { SteeringVerdict::Drop } else { SteeringVerdict::Pass });
                edge1.steering.push(rule);
            }
            2 => {
                // Two lists, of which one leaves out the function: the flow's hash decides.
                for policy in edge1.policies.iter_mut().filter(|policy| policy.segment_lists[0].segments.len() > 1) {
                    let mut short = policy.segment_lists[0].clone();
                    short.segments.remove(0);
                    short.weight = 1 + random.below(3) as u32;
                    policy.segment_lists.push(short);
                }
            }
            3 => nfv1.sids.retain(|sid| sid.behaviour != Behaviour::EndAs),
            4 => edge1.policies.iter_mut().for_each(|policy| policy.hop_limit = 1),
            _ => edge1.steering.retain(|rule| rule.destination_ports.is_empty()),
        }
    }
}

/// Some flow between the hosts.
fn by_chance(random: &mut Random) -> TraceArguments {
    let tcp = random.below(3) == 0;
    let port = *random.pick(if tcp { &[23, 25, 80, 443] } else { &[1000, 1001, 2999, 3000, 33_434, 50_000] });
    // What is disturbed is what the client meets.
    let from = if random.below(5) == 0 { "server" } else { "client" };
    let to = if from == "client" { "server" } else { "client" };
    TraceArguments {
        ipv4: random.below(3) == 0,
        protocol: Some(segue_model::value::Protocol(if tcp { 6 } else { 17 })),
        source_port: Some(20_000 + random.below(20_000) as u16),
        destination_port: Some(port),
        dscp: Some(random.below(64) as u8),
        // `mid` lowers it too, so that it must not end there.
        hop_limit: *random.pick(&[1, 8, 64, 64, 64, 64]),
        length: *random.pick(&[0, 0, 0, 500, 1500, 1501]),
        ..TraceArguments::between(from, to)
    }
}

use Verdict::{Delivered, NotByTheChain, NotSent, Vanished};

broken! {
    fn nothing_is_broken(broken) {
        let whole = broken.expect(&plain(), (Delivered, "server", "arrived"), Unless);
        let stations: Vec<&str> = whole.hops.iter().map(|hop| hop.station.as_str()).collect();
        assert_eq!(stations, ["client", "edge1", "nfv1", "mid", "nfv1", "edge2", "server"], "{}", text(&whole));
        assert!(whole.hops.iter().skip(1).all(|hop| hop.delay_us > 0.0 && hop.delay_us < 5e6), "{}", text(&whole));
        let simulation = whole.simulation.as_ref().unwrap();
        let simulated: Vec<&str> = simulation.hops.iter().map(|hop| hop.station.as_str()).collect();
        assert_eq!(simulated, stations[1..], "the same way");
        let steps: Vec<&str> = simulation.hops.iter().flat_map(|hop| &hop.steps).map(|step| step.what.as_str()).collect();
        for what in ["steering", "policy", "sid", "function", "route"] {
            assert!(steps.contains(&what), "{what}: {}", text(&whole));
        }
        let counts = simulation.hops.iter().flat_map(|hop| &hop.steps).filter(|step| step.what == "steering");
        assert!(counts.flat_map(|step| step.packets).count() == 1, "the rule's counter is shown");
        let back = TraceArguments { reverse: true, ipv4: true, ..plain() };
        broken.expect(&back, (Delivered, "client", "arrived"), Unless);
        // Through the node's own firewall there is nobody whose doings are not known.
        broken.expect(&tcp(80), (Delivered, "server", "arrived"), Same);
        broken.expect(&TraceArguments::of_chain("filtered"), (Delivered, "server", "arrived"), Unless);
    }

    fn no_route(broken) {
        let without = format!("ip -6 route del {ROUTE}");
        let again = again(broken, "edge1");
        broken.command("edge1", [&without, &again], &plain(), (Vanished, "edge1", "passed_route"), Same);
    }

    fn a_route_into_a_black_hole(broken) {
        let again = again(broken, "edge1");
        let hole = format!("ip -6 route replace blackhole {ROUTE}");
        let filled = format!("ip -6 route del blackhole {ROUTE}; {again}");
        broken.command("edge1", [&hole, &filled], &plain(), (Vanished, "edge1", "drop_route_blackhole"), Same);
    }

    fn a_route_out_of_the_domain(broken) {
        let again = again(broken, "edge1");
        let wrong = format!("ip -6 route replace {ROUTE} via 2001:db8:1::2 dev client");
        broken.command("edge1", [&wrong, &again], &plain(), (Vanished, "edge1", "drop_sr_leaves"), Same);
    }

    fn a_functions_interface_is_down(broken) {
        let link = link_down(broken);
        broken.command("mid", [&link[0], &link[1]], &plain(), (Vanished, "nfv1", "drop_link_down"), Same);
    }

    /// As the agent finds out by watching its link.
    fn a_dead_function(broken) {
        let link = link_down(broken);
        broken.lab.sh("mid", &link[0]);
        let watched = |state: &mut NodeState| {
            for sid in state.sids.iter_mut().filter(|sid| sid.behaviour == Behaviour::EndAs) {
                sid.proxy.as_mut().unwrap().watch = Some(segue_model::node::Watch::default());
            }
        };
        broken.state("nfv1", watched, &plain(), (Vanished, "nfv1", "drop_function_down"), Same);
        broken.lab.sh("mid", &link[1]);
    }

    fn a_function_that_does_not_forward(broken) {
        let forwarding = ["sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl -qw net.ipv6.conf.all.forwarding=1"];
        broken.command("mid", forwarding, &plain(), (Vanished, "mid", "function"), Unless);
    }

    fn a_function_that_eats(broken) {
        let rules = [
            "nft 'add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c counter drop'",
            "nft delete table inet t",
        ];
        let dropped = broken.command("mid", rules, &plain(), (Vanished, "mid", "function"), Unless);
        assert!(dropped.text.contains("(drop) +1"), "the rule that dropped it is named: {}", dropped.text);
    }

    fn a_function_that_mangles(broken) {
        let rules = [
            "nft 'add table ip6 t; add chain ip6 t c { type filter hook forward priority 0; }; add rule ip6 t c ip6 daddr set 2001:db8:77::7'",
            "nft delete table ip6 t",
        ];
        let changed = broken.command("mid", rules, &plain(), (Vanished, "mid", "function_changed"), Unless);
        assert!(changed.text.contains("became 2001:db8:1::2 > 2001:db8:77::7"), "{}", changed.text);
    }

    fn a_netfilter_function_that_drops(broken) {
        let dropped = TraceArguments { destination_port: Some(99), ..TraceArguments::of_chain("filtered") };
        // On socket buffers it is handed over without a link that could be heard: then the node is named.
        let found = broken.trace(&dropped);
        assert_eq!((found.verdict, found.reason.as_str()), (Vanished, "function"), "{}", text(&found));
        assert!(["nfv1", "rules"].contains(&found.station.as_str()) && found.differs.is_none(), "{}", text(&found));
    }

    fn a_link_that_is_too_narrow(broken) {
        let long = TraceArguments { length: 1450, ..plain() };
        let mtu = ["ip link set nfv1 mtu 1400", "ip link set nfv1 mtu 9000"];
        broken.command("edge1", mtu, &long, (Vanished, "edge1", "drop_too_big"), Same);
    }

    fn nobody_has_the_address(broken) {
        let address = broken.lab.addresses("server")[1].clone();
        let moved = [
            format!("ip addr del {address}/64 dev edge2"),
            format!("ip addr add {address}/64 dev edge2 nodad; ip -6 route replace default via 2001:db8:2::1"),
        ];
        broken.lab.sh("edge2", "ip -6 neigh flush dev server");
        broken.command("server", [&moved[0], &moved[1]], &plain(), (Vanished, "edge2", "passed_no_neighbour"), Unless);
    }

    fn a_host_without_a_route(broken) {
        let route = ["ip -6 route del default", "ip -6 route add default via 2001:db8:1::1"];
        broken.command("client", route, &plain(), (NotSent, "client", "not_sent"), Same);
    }

    fn a_sid_from_outside(broken) {
        let outside = TraceArguments::between("client", "$nfv1.mid");
        broken.expect(&outside, (Vanished, "edge1", "drop_sid_from_outside"), Same);
    }

    fn an_srh_from_outside(broken) {
        let steered = TraceArguments {
            segments: vec!["fc00:5e9:2:100::".parse().unwrap()],
            ..TraceArguments::between("client", "server")
        };
        broken.expect(&steered, (Vanished, "edge1", "drop_sr_from_outside"), Same);
    }

    /// The port takes SRHs with an HMAC, and this one has none.
    fn an_srh_without_hmac(broken) {
        let steered = TraceArguments {
            segments: vec!["fc00:5e9:1:46::".parse().unwrap()],
            ..TraceArguments::between("client", "server")
        };
        let accepts = |state: &mut NodeState| {
            state.ports.iter_mut().find(|port| port.name == "client").unwrap().accept_hmac = true;
        };
        broken.state("edge1", accepts, &steered, (Vanished, "edge1", "drop_sr_from_outside"), Same);
    }

    fn a_source_that_is_none(broken) {
        let martian = TraceArguments {
            ingress: Some("edge1:client".into()),
            source: Some("ff02::1".parse().unwrap()),
            ..TraceArguments { from: None, ..TraceArguments::between("client", "server") }
        };
        broken.expect(&martian, (Vanished, "edge1", "drop_bad_source"), Same);
    }

    fn a_hop_limit_at_its_end(broken) {
        let last = TraceArguments { hop_limit: 1, ..plain() };
        let expired = broken.expect(&last, (Vanished, "edge1", "drop_hop_limit_exceeded"), Same);
        let from_edge1 =
            |error: &String| error.contains("2001:db8:1::1 > 2001:db8:1::2") || error.contains("fc00:5ea:1::1 > ");
        assert!(expired.errors.iter().any(from_edge1), "{:?}", expired.errors);
    }

    fn a_firewall_drops(broken) {
        broken.expect(&tcp(23), (Vanished, "nfv1", "drop_firewall"), Same);
    }

    fn a_firewall_rejects(broken) {
        broken.expect(&tcp(25), (Vanished, "nfv1", "drop_firewall_rejected"), Same);
    }

    /// Its table has room for 16 connections, which established ones have.
    fn a_firewall_whose_table_is_full(broken) {
        let full = |state: &mut NodeState| {
            let firewall = &mut state.firewalls[0];
            firewall.conntrack.entries = 16;
            let file = firewall.ipv6.as_mut().unwrap();
            let text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n";
            *file = segue_model::firewall::RuleFile::Text { file: "rules.v6".into(), text: text.into() };
        };
        let client = Client::new(broken.lab.paths().socket("nfv1"));
        let (whole, _) = client.state().unwrap();
        broken.touched.set(true);
        let mut broken_state = whole.clone();
        full(&mut broken_state);
        client.apply(&broken_state, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
        let server = broken.lab.addresses("server")[1].clone();
        let listen = "import socket,time\ns=socket.create_server(('::',7777),family=socket.AF_INET6,backlog=64)\nprint('ready',flush=True)\ntime.sleep(20)";
        let connect = format!(
            "import socket,time\nk=[]\ntry:\n for i in range(40): k.append(socket.create_connection(('{server}',7777),0.5)); k[-1].send(b'x')\nexcept OSError: pass\nprint('ready',flush=True)\ntime.sleep(20)"
        );
        let spawn = |node: &str, program: &str| {
            let mut command = std::process::Command::new("ip");
            command.args(["netns", "exec", &broken.lab.namespace(node), "python3", "-c", program]);
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let ready = |mut end: std::process::Child| {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(end.stdout.take().unwrap()), &mut line).unwrap();
            assert_eq!(line, "ready\n");
            end
        };
        let mut ends = [("server", listen), ("client", &connect)].map(|(node, program)| ready(spawn(node, program)));
        let trace = broken.trace(&tcp(7777));
        for end in &mut ends {
            end.kill().unwrap();
            end.wait().unwrap();
        }
        client.apply(&whole, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
        let found = (trace.verdict, trace.station.as_str(), trace.reason.as_str());
        assert_eq!(found, (Vanished, "nfv1", "drop_connections_full"), "{}", text(&trace));
        assert!(trace.differs.is_none() && !trace.simulation.as_ref().unwrap().certain, "{}", text(&trace));
    }

    fn a_link_that_loses_all(broken) {
        let lost = TraceArguments::between("server", "$island");
        broken.expect(&lost, (Vanished, "edge2 - far", "link_impaired"), Same);
    }

    fn a_missing_sid_of_a_function(broken) {
        let without = |state: &mut NodeState| state.sids.retain(|sid| !is(Behaviour::EndAs)(sid));
        broken.state("nfv1", without, &plain(), (Vanished, "nfv1", "no_sid"), Same);
    }

    fn a_missing_sid_at_the_egress(broken) {
        let without = |state: &mut NodeState| state.sids.retain(|sid| !is(Behaviour::EndDt46)(sid));
        broken.state("edge2", without, &plain(), (Vanished, "edge2", "no_sid"), Unless);
    }

    fn a_table_that_does_not_exist(broken) {
        let other = |state: &mut NodeState| {
            state.sids.iter_mut().filter(|sid| is(Behaviour::EndDt46)(sid)).for_each(|sid| sid.table = Some(77));
        };
        broken.state("edge2", other, &tcp(80), (Vanished, "edge2", "drop_no_route"), Same);
    }

    /// Packets come back by an interface that no proxy has packets back from.
    fn a_wrong_return_interface(broken) {
        let wrong = |state: &mut NodeState| {
            let out = proxy(state).proxy.as_ref().unwrap().to_function.clone();
            // The proxies of the other direction and family return by it, and go.
            let kept = proxy(state).sid;
            state.sids.retain(|sid| sid.behaviour != Behaviour::EndAs || sid.sid == kept);
            proxy(state).proxy.as_mut().unwrap().from_function = out;
        };
        broken.state("nfv1", wrong, &plain(), (Vanished, "nfv1", "drop_proxy_empty"), Unless);
    }

    fn nothing_is_steered(broken) {
        broken.state("edge1", |state| state.steering.clear(), &plain(), (NotByTheChain, "edge1", "not_steered"), Unless);
    }

    fn a_steering_rule_that_drops(broken) {
        let drops = |state: &mut NodeState| {
            for rule in &mut state.steering {
                (rule.policy, rule.action) = (None, Some(SteeringVerdict::Drop));
            }
        };
        broken.state("edge1", drops, &plain(), (Vanished, "edge1", "drop_steering_rule"), Same);
    }

    fn a_policy_without_a_list(broken) {
        let empty = |state: &mut NodeState| state.policies.iter_mut().for_each(|policy| policy.segment_lists.clear());
        broken.state("edge1", empty, &plain(), (Vanished, "edge1", "drop_policy_invalid"), Same);
    }

    fn a_segment_list_to_a_node_that_is_gone(broken) {
        let stale = |state: &mut NodeState| {
            for policy in &mut state.policies {
                policy.segment_lists[0].segments[0] = "fc00:5e9:99:1::".parse().unwrap();
            }
        };
        broken.state("edge1", stale, &plain(), (Vanished, "edge1", "passed_route"), Same);
    }

    fn a_segment_list_without_the_function(broken) {
        let skips = |state: &mut NodeState| {
            for policy in state.policies.iter_mut().filter(|policy| policy.segment_lists[0].segments.len() > 1) {
                policy.segment_lists[0].segments.remove(0);
            }
        };
        broken.state("edge1", skips, &plain(), (NotByTheChain, "mid", "not_visited"), Unless);
    }

    /// Flows and configurations by chance: how the simulation says that they end is how they end. `mid` gives back what it gets, so that it is right even
    /// where it cannot be certain.
    fn simulated_and_sent_are_the_same(broken) {
        let mut random = Random::new(7);
        broken.touched.set(true);
        let cases = if std::env::var_os("SEGUE_LONG").is_some() { 300 } else { 21 };
        let agents = ["edge1", "nfv1"].map(|node| Client::new(broken.lab.paths().socket(node)));
        let whole = agents.each_ref().map(|agent| agent.state().unwrap().0);
        let (mut ends, mut certain) = (BTreeSet::new(), 0);
        for case in 0..cases {
            // Some flows by each configuration.
            if case % 3 == 0 {
                let mut states = whole.clone();
                disturb(&mut random, &mut states);
                for (agent, state) in agents.iter().zip(&states) {
                    agent.apply(state, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
                }
            }
            let arguments = by_chance(&mut random);
            let mut last = broken.trace(&arguments);
            // A neighbour that was not known yet is known then.
            if !ends_alike(&last) {
                last = broken.trace(&arguments);
            }
            assert!(ends_alike(&last), "case {case}: {arguments:?}\n{}", text(&last));
            certain += usize::from(last.simulation.as_ref().unwrap().certain);
            ends.insert(last.reason);
        }
        for (agent, state) in agents.iter().zip(&whole) {
            agent.apply(state, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
        }
        assert!(ends.len() > 4 && certain > cases / 4, "{certain} of {cases} were certain; they end so: {ends:?}");
    }

    /// The last by its name: routes and addresses that go with a link do not come back with it.
    fn the_link_between_nodes_is_down(broken) {
        broken.lab.sh("nfv1", "ip link set edge1 down");
        broken.expect(&plain(), (Vanished, "edge1", "link_down"), Unless);
        broken.spoilt.set(true);
    }
}
