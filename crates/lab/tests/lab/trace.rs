//! Live traces in broken networks: each names the station that is to blame, and the reason.

use segue_api::client::{Client, Condition};
use segue_lab::trace::event::{Trace, Verdict};
use segue_lab::trace::{TraceArguments, text::text, trace};
use segue_model::node::{Behaviour, NodeState, SteeringVerdict};

use crate::common::TestLab;

const TOPOLOGY: &str = "
nodes: { edge1: {}, nfv1: {}, edge2: {}, far: { dataplane: plain } }
hosts: { client: { node: edge1 }, server: { node: edge2 }, island: { node: far } }
links:
  - { between: [edge1, nfv1] }
  - { between: [nfv1, edge2] }
  - { between: [edge2, far], impaired: { loss_percent: 100 } }
functions:
  mid: { node: nfv1 }
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
  plain: { from: client, to: server, via: [mid], match: { protocol: udp } }
  walled: { from: client, to: server, via: [wall], match: { protocol: tcp } }
";

/// Verdict, station and reason.
type Expected<'a> = (Verdict, &'a str, &'a str);

struct Broken {
    lab: TestLab,
}

impl Broken {
    fn trace(&self, arguments: &TraceArguments) -> Trace {
        trace(&self.lab.roots, &self.lab.name, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What broke takes a moment to be known everywhere (caches of routes and neighbours), so it is looked at a few times.
    #[track_caller]
    fn expect(&self, case: &str, arguments: &TraceArguments, (verdict, station, reason): Expected<'_>) -> Trace {
        let fits = |trace: &Trace| {
            (trace.verdict, trace.station.as_str(), trace.reason.as_str()) == (verdict, station, reason)
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
            "{case}: expected {verdict:?} at {station}, {reason}, and it is {:?} at {}, {}:\n{}",
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
        case: &str,
        node: &str,
        [breaks, repairs]: [&str; 2],
        arguments: &TraceArguments,
        expected: Expected<'_>,
    ) -> Trace {
        self.lab.sh(node, breaks);
        let trace = self.expect(case, arguments, expected);
        self.lab.sh(node, repairs);
        trace
    }

    /// The same with a change of a node's desired state.
    #[track_caller]
    fn state(&self, case: &str, node: &str, breaks: impl FnOnce(&mut NodeState), expected: Expected<'_>) {
        let client = Client::new(self.lab.paths().socket(node));
        let (whole, _) = client.state().unwrap();
        let mut broken = whole.clone();
        breaks(&mut broken);
        client.apply(&broken, &Condition::Always, false).unwrap_or_else(|error| panic!("{case}: {error}"));
        self.expect(case, &TraceArguments::of_chain("plain"), expected);
        client.apply(&whole, &Condition::Always, false).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
}

fn plain() -> TraceArguments {
    TraceArguments::of_chain("plain")
}

fn tcp(port: u16) -> TraceArguments {
    TraceArguments { destination_port: Some(port), ..TraceArguments::of_chain("walled") }
}

/// Twenty networks and more that differ from a whole one by one thing each; the whole one comes first and last.
#[test]
#[ignore = "needs root"]
fn the_right_station_and_reason() {
    use Verdict::{Delivered, NotByTheChain, NotSent, Vanished};
    let broken = Broken { lab: TestLab::up("trc", TOPOLOGY) };
    let whole = broken.expect("all is well", &plain(), (Delivered, "server", "arrived"));
    let stations: Vec<&str> = whole.hops.iter().map(|hop| hop.station.as_str()).collect();
    assert_eq!(stations, ["client", "edge1", "nfv1", "mid", "nfv1", "edge2", "server"], "{}", text(&whole));
    assert!(whole.hops.iter().skip(1).all(|hop| hop.delay_us > 0.0 && hop.delay_us < 5e6), "{}", text(&whole));
    let back = TraceArguments { reverse: true, ipv4: true, ..plain() };
    broken.expect("the other direction, IPv4", &back, (Delivered, "client", "arrived"));
    broken.expect("the other chain", &tcp(80), (Delivered, "server", "arrived"));

    let route = "fc00:5e9:2::/48";
    let there = broken.lab.sh("edge1", &format!("ip -6 route show {route}"));
    let again = format!("ip -6 route replace {}", there.trim());
    let without = format!("ip -6 route del {route}");
    broken.command("no route", "edge1", [&without, &again], &plain(), (Vanished, "edge1", "passed_route"));
    let hole = format!("ip -6 route replace blackhole {route}");
    let filled = format!("ip -6 route del blackhole {route}; {again}");
    broken.command(
        "a route into a black hole",
        "edge1",
        [&hole, &filled],
        &plain(),
        (Vanished, "edge1", "drop_route_blackhole"),
    );
    broken.command(
        "a function's interface is down",
        "mid",
        ["ip link set west down", "ip link set west up && sleep 0.3"],
        &plain(),
        (Vanished, "nfv1", "drop_link_down"),
    );
    let forwarding = ["sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl -qw net.ipv6.conf.all.forwarding=1"];
    broken.command("a function that does not forward", "mid", forwarding, &plain(), (Vanished, "mid", "function"));
    let rules = [
        "nft 'add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c counter drop'",
        "nft delete table inet t",
    ];
    let dropped = broken.command("a function that drops", "mid", rules, &plain(), (Vanished, "mid", "function"));
    assert!(dropped.text.contains("(drop) +1"), "the rule that dropped it is named: {}", dropped.text);
    let long = TraceArguments { length: 1450, ..plain() };
    broken.command(
        "a link that is too narrow",
        "edge1",
        ["ip link set nfv1 mtu 1400", "ip link set nfv1 mtu 9000"],
        &long,
        (Vanished, "edge1", "drop_too_big"),
    );
    let address = broken.lab.addresses("server")[1].clone();
    let moved = [
        format!("ip addr del {address}/64 dev edge2"),
        format!("ip addr add {address}/64 dev edge2 nodad; ip -6 route replace default via 2001:db8:2::1"),
    ];
    broken.lab.sh("edge2", "ip -6 neigh flush dev server");
    broken.command(
        "nobody has the address",
        "server",
        [&moved[0], &moved[1]],
        &plain(),
        (Vanished, "edge2", "passed_no_neighbour"),
    );
    broken.command(
        "a host without a route",
        "client",
        ["ip -6 route del default", "ip -6 route add default via 2001:db8:1::1"],
        &plain(),
        (NotSent, "client", "not_sent"),
    );

    let sid = "$nfv1.mid";
    broken.expect(
        "a SID from outside",
        &TraceArguments::between("client", sid),
        (Vanished, "edge1", "drop_sid_from_outside"),
    );
    let last = TraceArguments { hop_limit: 1, ..plain() };
    let expired = broken.expect("a hop limit of 1", &last, (Vanished, "edge1", "drop_hop_limit_exceeded"));
    assert!(
        expired
            .errors
            .iter()
            .any(|error| error.contains("2001:db8:1::1 > 2001:db8:1::2") || error.contains("fc00:5ea:1::1 > ")),
        "{:?}",
        expired.errors
    );
    broken.expect("a firewall's rule drops", &tcp(23), (Vanished, "nfv1", "drop_firewall"));
    broken.expect("a firewall's rule rejects", &tcp(25), (Vanished, "nfv1", "drop_firewall_rejected"));
    broken.expect(
        "a link that loses all",
        &TraceArguments::between("server", "$island"),
        (Vanished, "edge2 - far", "link_impaired"),
    );

    let is_function = |behaviour: Behaviour| matches!(behaviour, Behaviour::EndAs);
    broken.state(
        "no SID for the function",
        "nfv1",
        |state| state.sids.retain(|sid| !is_function(sid.behaviour)),
        (Vanished, "nfv1", "no_sid"),
    );
    broken.state(
        "no SID at the egress",
        "edge2",
        |state| state.sids.retain(|sid| sid.behaviour != Behaviour::EndDt46),
        (Vanished, "edge2", "no_sid"),
    );
    broken.state(
        "nothing is steered",
        "edge1",
        |state| state.steering.clear(),
        (NotByTheChain, "edge1", "not_steered"),
    );
    let drops = |state: &mut NodeState| {
        for rule in &mut state.steering {
            (rule.policy, rule.action) = (None, Some(SteeringVerdict::Drop));
        }
    };
    broken.state("a steering rule that drops", "edge1", drops, (Vanished, "edge1", "drop_steering_rule"));
    let stale = |state: &mut NodeState| {
        for policy in &mut state.policies {
            policy.segment_lists[0].segments[0] = "fc00:5e9:99:1::".parse().unwrap();
        }
    };
    broken.state("a segment list to a node that is gone", "edge1", stale, (Vanished, "edge1", "passed_route"));
    let skips = |state: &mut NodeState| {
        for policy in &mut state.policies {
            policy.segment_lists[0].segments.remove(0);
        }
    };
    broken.state("a segment list without the function", "edge1", skips, (NotByTheChain, "mid", "not_visited"));

    broken.command(
        "a link between nodes is down",
        "nfv1",
        ["ip link set edge1 down", "ip link set edge1 up"],
        &plain(),
        (Vanished, "edge1", "link_down"),
    );
    broken.lab.down();
}
