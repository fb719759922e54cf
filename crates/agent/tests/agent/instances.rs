//! Several instances of one function behind one SID, or one label: each flow is at one of them, in both directions, and stays there while that lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use segue_host::{Namespace, Run};
use segue_model::instances::instance_sid;
use segue_model::service_label::{label_instance_key, sid_or_label};
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::{Value, json};

use crate::support::{Agent, Network};

const FORWARD: &str = "fc00:0:1:f1::";
const REVERSE: &str = "fc00:0:1:f2::";
const LAST: &str = "fc00:0:2:1::";
const CLIENT: &str = "2001:db8:a::1";
const SERVER: &str = "2001:db8:b::1";

/// Namespaces of instances, by name; they go with the value.
struct Namespaces(BTreeMap<&'static str, String>);

impl Namespaces {
    fn new(names: &[&'static str]) -> Self {
        let name = |name: &&'static str| (*name, format!("sg-t-in{}{name}", std::process::id()));
        let all = Self(names.iter().map(name).collect());
        all.0.values().for_each(|name| {
            Namespace::make(name).unwrap();
            Run::new("ip", ["link", "set", "lo", "up"]).inside(name).text().unwrap();
        });
        all
    }

    fn remove(&self, name: &str) {
        Namespace::open(&self.0[name]).unwrap().remove().unwrap();
    }

    fn links(&self, name: &str) -> String {
        Run::new("ip", ["-o", "link"]).inside(&self.0[name]).text().unwrap()
    }

    /// A node whose function has these instances.
    fn state(&self, instances: &[&str], more: &Value, how: &Value) -> String {
        let instances: serde_json::Map<String, Value> =
            instances.iter().map(|name| ((*name).to_owned(), json!({"netns": self.0[name]}))).collect();
        let mut function = json!({"instances": instances,
            "watch": {"hold_ms": 0, "probe": {"kind": "icmp", "through": true, "interval_ms": 100}}});
        function.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sid = |sid: &str, direction: &str| {
            let mut sid =
                json!({"sid": sid, "behaviour": how["behaviour"], "proxy": {"function": "fw", "direction": direction}});
            sid["proxy"].as_object_mut().unwrap().extend(how["proxy"].as_object().unwrap().clone());
            sid
        };
        json!({
            "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
            "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "core"}],
            "functions": {"fw": function},
            "sids": [sid(FORWARD, "forward"), sid(REVERSE, "reverse")],
        })
        .to_string()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.0.values() {
            if let Ok(Some(namespace)) = Namespace::find(name) {
                let _ = namespace.remove();
            }
        }
    }
}

fn statically() -> Value {
    json!({"behaviour": "End.AS", "proxy": {"inner": ["IPv4", "IPv6"], "segments": [LAST]}})
}

/// What is sent by way of a SID.
#[derive(Clone, Copy, Debug)]
enum What {
    /// From the client's port.
    Forward(u16),
    /// To it.
    Back(u16),
    /// The same over IPv4.
    Forward4(u16),
    Back4(u16),
    /// The server's error about a packet from the client's port.
    Error(u16),
}

impl What {
    fn sid(self) -> &'static str {
        if matches!(self, Self::Forward(_) | Self::Forward4(_)) { FORWARD } else { REVERSE }
    }

    fn frame(self, text: &str) -> Vec<u8> {
        let path = [self.sid().parse().unwrap(), LAST.parse().unwrap()];
        let outer = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
            .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
            .srh(SrhRepr::new(&path));
        let (client, server) = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let (client4, server4) = ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
        let there = outer.clone().ipv6(Ipv6Repr::new(client, server));
        let (back, back4) =
            (outer.clone().ipv6(Ipv6Repr::new(server, client)), outer.clone().ipv4(Ipv4Repr::new(server4, client4)));
        match self {
            Self::Forward(port) => there.udp(UdpRepr::new(port, 53)).payload(text.as_bytes()).build(),
            Self::Back(port) => back.udp(UdpRepr::new(53, port)).payload(text.as_bytes()).build(),
            Self::Forward4(port) => {
                outer.ipv4(Ipv4Repr::new(client4, server4)).udp(UdpRepr::new(port, 53)).payload(text.as_bytes()).build()
            }
            Self::Back4(port) => back4.udp(UdpRepr::new(53, port)).payload(text.as_bytes()).build(),
            Self::Error(port) => {
                let cause = PacketBuilder::new()
                    .ipv6(Ipv6Repr::new(client, server))
                    .udp(UdpRepr::new(port, 53))
                    .payload(text.as_bytes())
                    .build();
                back.icmpv6(Icmpv6Repr::DestinationUnreachable { code: 4, packet: cause }).build()
            }
        }
    }
}

struct Bench<'a> {
    network: &'a Network,
    agent: &'a Agent<'a>,
    sender: PacketSocket,
    receiver: PacketSocket,
}

impl<'a> Bench<'a> {
    fn new(network: &'a Network, agent: &'a Agent<'a>) -> Self {
        let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
        Self { network, agent, sender, receiver }
    }

    /// Packets of each instance's SID in this direction, of those that there are.
    fn counts(&self, sid: &str) -> BTreeMap<String, u64> {
        let all = self.agent.get("/v1/sids");
        let of_name = |name: &&str| {
            let wanted = instance_sid(sid.parse::<std::net::Ipv6Addr>().unwrap().into(), name).to_string();
            let found = all.as_array().unwrap().iter().find(|row| row["sid"] == wanted.as_str())?;
            Some(((*name).to_owned(), found["counter"]["packets"].as_u64().unwrap()))
        };
        ["a", "b", "c"].iter().filter_map(of_name).collect()
    }

    /// Sends it; the instance that it went through, if it came out again.
    fn through(&self, what: What) -> Option<String> {
        let before = self.counts(what.sid());
        let text = format!("{what:?} is what this says");
        self.sender.send(&what.frame(&text));
        self.receiver.receive_where(Duration::from_millis(300), |bytes| {
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })?;
        let after = self.counts(what.sid());
        let moved: Vec<_> = after.into_iter().filter(|(name, count)| before.get(name).unwrap_or(&0) < count).collect();
        assert_eq!(
            moved.len(),
            1,
            "{what:?} went through one instance: {moved:?}\n{}",
            self.network.node.sh("ip -6 route")
        );
        Some(moved[0].0.clone())
    }

    fn all_through(&self, flows: impl Iterator<Item = What>) -> Vec<String> {
        flows
            .map(|what| self.through(what).unwrap_or_else(|| panic!("{what:?} was lost: {}", self.agent.log())))
            .collect()
    }

    fn wait_for(&self, instances: &[&str]) {
        let wanted: BTreeSet<&str> = instances.iter().copied().collect();
        self.agent.eventually("all instances are up", |agent| {
            let functions = agent.get("/v1/functions");
            // Before the first answer nothing speaks against it.
            let proven = |row: &&Value| row["probe"]["answered"].as_u64() > Some(0);
            let up = functions.as_array().unwrap().iter().filter(|row| row["state"] == "up").filter(proven);
            up.filter_map(|row| row["instance"]["name"].as_str()).collect::<BTreeSet<_>>() == wanted
        });
    }
}

const FLOWS: std::ops::Range<u16> = 1000..1032;

#[test]
#[ignore = "needs root"]
fn flows_stay_at_their_instance_while_others_come_and_go() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    let spaces = Namespaces::new(&["a", "b", "c"]);
    let bench = Bench::new(&network, &agent);
    let how = statically();
    let quick = json!({"flow_timeout": 2, "drain_timeout": 60});
    let long = json!({"drain_timeout": 60});
    agent.apply(&spaces.state(&["a", "b"], &long, &how));
    bench.wait_for(&["a", "b"]);
    // Spread, and both directions alike, of both families; errors about a flow are the flow's.
    let first = bench.all_through(FLOWS.map(What::Forward));
    for name in ["a", "b"] {
        let share = first.iter().filter(|at| *at == name).count();
        assert!(share >= FLOWS.len() / 5, "{name} has {share} flows of {}", FLOWS.len());
    }
    assert_eq!(bench.all_through(FLOWS.map(What::Back)), first);
    assert_eq!(bench.all_through(FLOWS.map(What::Error)), first);
    let fourth = bench.all_through((1000..1006).map(What::Back4));
    assert_eq!(bench.all_through((1000..1006).map(What::Forward4)), fourth);
    let flows: u64 = agent
        .get("/v1/functions")
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["instance"]["flows"].as_u64().unwrap())
        .sum();
    assert_eq!(flows, 2 * (FLOWS.len() as u64 + 6), "each is told with both SIDs");
    // One more: what is known stays where it is, and new flows go there too.
    agent.apply(&spaces.state(&["a", "b", "c"], &long, &how));
    bench.wait_for(&["a", "b", "c"]);
    assert_eq!(bench.all_through(FLOWS.map(What::Forward)), first);
    let second = bench.all_through((2000..2032).map(What::Forward));
    assert!(second.iter().any(|at| at == "c"), "{second:?}");
    // One dies: its flows go elsewhere at once, the others stay.
    spaces.remove("b");
    bench.wait_for(&["a", "c"]);
    let third = bench.all_through(FLOWS.map(What::Forward));
    for (before, after) in first.iter().zip(&third) {
        assert!(if before == "b" { after != "b" } else { after == before }, "{first:?}\n{third:?}");
    }
    // One is taken out: it keeps its flows, gets no new ones, and goes when it has none.
    agent.apply(&spaces.state(&["c"], &long, &how));
    assert_eq!(bench.all_through(FLOWS.map(What::Back)), third);
    let fresh = bench.all_through((3000..3016).map(What::Forward));
    assert!(fresh.iter().all(|at| at == "c"), "{fresh:?}");
    let functions = agent.get("/v1/functions");
    let leaving = functions.as_array().unwrap().iter().find(|row| row["instance"]["name"] == "a").unwrap();
    assert_eq!(leaving["instance"]["takes_new_flows"], false, "{functions}");
    assert!(leaving["instance"]["flows"].as_u64() > Some(0), "{functions}");
    assert!(spaces.links("a").contains("west"));
    agent.apply(&spaces.state(&["c"], &quick, &how));
    agent.eventually("the one that was taken out goes", |_| !spaces.links("a").contains("west"));
    let moved = bench.all_through(FLOWS.map(What::Forward));
    assert!(moved.iter().all(|at| at == "c"), "{moved:?}");
    assert_eq!(agent.get("/v1/functions").as_array().unwrap().len(), 2);
}

#[test]
#[ignore = "needs root"]
fn instances_have_any_proxy_and_the_sid_says_what_happens_without() {
    let network = Network::new();
    network.right.sh("ip -6 route add fc00:0:2::/48 dev n");
    let agent = Agent::start(&network);
    let spaces = Namespaces::new(&["a", "b"]);
    let bench = Bench::new(&network, &agent);
    let both = ["IPv4", "IPv6"];
    for how in [
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "interface"}}),
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "flow"}}),
        json!({"behaviour": "End.AD", "proxy": {"inner": both, "memory": "packet"}}),
        json!({"behaviour": "End.AM", "proxy": {"on_failure": "bypass"}}),
    ] {
        agent.apply(&spaces.state(&["a", "b"], &json!({"flow_timeout": 1}), &how));
        bench.wait_for(&["a", "b"]);
        let there = bench.all_through((1000..1016).map(What::Forward));
        assert!(there.iter().any(|at| at == "a") && there.iter().any(|at| at == "b"), "{how}: {there:?}");
        assert_eq!(bench.all_through((1000..1016).map(What::Back)), there, "{how}");
    }
    // By addresses alone, all between two hosts is at one.
    agent.apply(&spaces.state(&["a", "b"], &json!({"tell_flows_by": "addresses"}), &statically()));
    bench.wait_for(&["a", "b"]);
    let there: BTreeSet<String> = bench.all_through((1000..1016).map(What::Forward)).into_iter().collect();
    assert_eq!(there.len(), 1, "{there:?}");
    // Without any: dropped, or on without it.
    spaces.remove("a");
    spaces.remove("b");
    agent.eventually("none is up", |agent| {
        agent.get("/v1/functions").as_array().unwrap().iter().all(|row| row["state"] == "down")
    });
    let sent = |what: What| {
        let text = format!("{what:?} is what this says");
        bench.sender.send(&what.frame(&text));
        let ends = |bytes: &[u8]| bytes.ends_with(text.as_bytes());
        bench.receiver.receive_where(Duration::from_millis(300), ends).is_some()
    };
    assert!(!sent(What::Forward(1000)));
    let mut bypass = statically();
    bypass["proxy"]["on_failure"] = json!("bypass");
    agent.apply(&spaces.state(&["a", "b"], &json!({}), &bypass));
    assert!(sent(What::Forward(1000)) && sent(What::Back(1000)), "{}", agent.log());
    let mut reroute = statically();
    reroute["proxy"]["on_failure"] = json!("reroute");
    reroute["proxy"]["backup"] = json!("fc00:0:2:2::");
    agent.apply(&spaces.state(&["a", "b"], &json!({}), &reroute));
    assert!(sent(What::Forward(1000)), "{}", agent.log());
}

const THERE: u32 = 15_001;
const BACK: u32 = 15_002;
const NEXT: u32 = 16_009;

/// A node where labels lead to the function, in both directions.
fn with_labels(spaces: &Namespaces, instances: &[&str], more: &Value) -> String {
    let mut state: Value = serde_json::from_str(&spaces.state(instances, more, &statically())).unwrap();
    state["sids"] = json!([]);
    state["mpls"] = json!({"srgb": ["16000-16999"], "srlb": ["15000-15999"]});
    state["labels"] = json!([
        {"label": NEXT, "behaviour": "swap", "out": 16_010, "next_hop": "2001:db8:2::2", "port": "east"},
        {"label": THERE, "behaviour": "dynamic_proxy",
            "proxy": {"function": "fw", "inner": ["IPv4", "IPv6"], "memory": "flow"}},
        {"label": BACK, "behaviour": "static_proxy",
            "proxy": {"function": "fw", "direction": "reverse", "inner": ["IPv4", "IPv6"], "labels": [NEXT]}},
    ]);
    state.to_string()
}

impl Bench<'_> {
    /// Packets of each instance's key behind a label, of those that there are.
    fn label_counts(&self, label: u32) -> BTreeMap<&'static str, u64> {
        let all = self.agent.get("/v1/sids");
        let of_name = |name: &&'static str| {
            let wanted = sid_or_label(&label_instance_key(label, name));
            let found = all.as_array().unwrap().iter().find(|row| row["sid"] == wanted.as_str())?;
            Some((*name, found["counter"]["packets"].as_u64().unwrap()))
        };
        ["a", "b", "c"].iter().filter_map(of_name).collect()
    }

    /// The instance that a packet of the client's flow goes through, in one of both directions; it comes out with the rest of its stack.
    fn through_label(&self, label: u32, port: u16) -> &'static str {
        let text = format!("{port} behind {label}");
        let entries = [label, NEXT].map(|label| MplsEntry { label, time_to_live: 9, ..MplsEntry::default() });
        let (client, server) = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let front =
            PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1])).mpls(&entries);
        let front = match label {
            THERE => front.inner_ipv6(Ipv6Repr::new(client, server)).udp(UdpRepr::new(port, 53)),
            _ => front.inner_ipv6(Ipv6Repr::new(server, client)).udp(UdpRepr::new(53, port)),
        };
        let before = self.label_counts(label);
        self.sender.send(&front.payload(text.as_bytes()).build());
        let ends = |bytes: &[u8]| bytes.ends_with(text.as_bytes());
        let found = self.receiver.receive_where(Duration::from_secs(5), ends);
        let found = found.unwrap_or_else(|| panic!("{text} was lost: {}", self.agent.get("/v1/outcomes")));
        assert_eq!(found[12..14], [0x88, 0x47], "{text}: it has labels again");
        assert_eq!(u32::from_be_bytes(found[14..18].try_into().unwrap()) >> 12, 16_010, "{text}");
        let after = self.label_counts(label);
        let moved: Vec<_> = after.into_iter().filter(|(name, count)| before.get(name).unwrap_or(&0) < count).collect();
        assert_eq!(moved.len(), 1, "{text} went through one instance: {moved:?}");
        moved[0].0
    }

    fn all_through_label(&self, label: u32, ports: std::ops::Range<u16>) -> Vec<&'static str> {
        ports.map(|port| self.through_label(label, port)).collect()
    }
}

#[test]
#[ignore = "needs root"]
fn flows_behind_labels_stay_at_their_instance() {
    let network = Network::new();
    network.node.sh("ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east");
    let agent = Agent::start(&network);
    let spaces = Namespaces::new(&["a", "b", "c"]);
    let bench = Bench::new(&network, &agent);
    let long = json!({"drain_timeout": 60});
    agent.apply(&with_labels(&spaces, &["a", "b"], &long));
    bench.wait_for(&["a", "b"]);
    let first = bench.all_through_label(THERE, 1000..1016);
    assert!(first.contains(&"a") && first.contains(&"b"), "{first:?}");
    assert_eq!(bench.all_through_label(BACK, 1000..1016), first);
    let functions = agent.get("/v1/functions");
    let rows = functions.as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["instance"]["flows"].as_u64().unwrap()).sum::<u64>(), 2 * 16, "{functions}");
    // One more, then one dies, then one is taken out: it keeps its flows, and goes when it has none.
    agent.apply(&with_labels(&spaces, &["a", "b", "c"], &long));
    bench.wait_for(&["a", "b", "c"]);
    assert_eq!(bench.all_through_label(THERE, 1000..1016), first);
    spaces.remove("b");
    bench.wait_for(&["a", "c"]);
    let second = bench.all_through_label(THERE, 1000..1016);
    for (before, after) in first.iter().zip(&second) {
        assert!(if *before == "b" { *after != "b" } else { after == before }, "{first:?}\n{second:?}");
    }
    agent.apply(&with_labels(&spaces, &["c"], &long));
    assert_eq!(bench.all_through_label(BACK, 1000..1016), second);
    let fresh = bench.all_through_label(THERE, 3000..3006);
    assert!(fresh.iter().all(|at| *at == "c"), "{fresh:?}");
    let functions = agent.get("/v1/functions");
    let leaving = functions.as_array().unwrap().iter().find(|row| row["instance"]["name"] == "a").unwrap();
    assert_eq!(leaving["instance"]["takes_new_flows"], false, "{functions}");
    assert!(spaces.links("a").contains("west"));
    agent.apply(&with_labels(&spaces, &["c"], &json!({"flow_timeout": 1, "drain_timeout": 60})));
    agent.eventually("the one that was taken out goes", |_| !spaces.links("a").contains("west"));
    assert!(bench.all_through_label(THERE, 1000..1004).iter().all(|at| *at == "c"));
}
