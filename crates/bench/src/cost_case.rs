//! The behaviours whose cost is measured: one node that has them all, and a frame for each.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use crate::error::Result;
use crate::firewall_rules::{self, Compared, Last};
use crate::frame::{self, Packet, Steering};
use crate::topology::{
    GENERATOR_MAC, HEADEND, IN_MAC, INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4,
    LAST_SID, NEXT_SID, OUT_ADDRESS, SINK_ADDRESS, SINK_IPV4, SINK_MAC, Topology, mac,
};

/// `XDP_DROP`.
pub const DROP: u32 = 1;
/// `XDP_PASS`.
pub const PASS: u32 = 2;
/// `XDP_REDIRECT`.
pub const REDIRECT: u32 = 4;

/// Octets of the inner packet in every case.
const INNER: usize = 112;
const TTL: u8 = 64;

/// One behaviour.
#[derive(Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: &'static str,
    /// The port on which the frame comes in.
    pub ingress: &'static str,
    /// The frame.
    pub frame: Vec<u8>,
    /// Octets behind its Ethernet header that the program may change.
    pub headers: usize,
    /// The XDP verdict that proves that the work was done.
    pub verdict: u32,
    /// What is measured.
    pub program: Program,
    /// TSC cycles that the project has set itself as a limit.
    pub limit: Option<f64>,
    /// The case whose frame goes through once before, so that a proxy has something to put back.
    pub before: Option<Box<Case>>,
    /// The program leaves XDP metadata in front of the frame.
    pub metadata: bool,
    /// So many connections in turn, a power of two, by the source port at the beginning of this word of eight octets behind
    /// the Ethernet header.
    pub connections: Option<(u32, u32)>,
}

/// A function's way out and back, reported together: the sum of two cases.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Its name in reports.
    pub name: &'static str,
    /// The names of its cases.
    pub cases: [&'static str; 2],
    /// TSC cycles that the project has set itself as a limit.
    pub limit: Option<f64>,
}

/// All pairs.
pub const PAIRS: [Pair; 5] = [
    Pair { name: "End.AS out and back", cases: ["End.AS to the function", "End.AS from the function"], limit: None },
    Pair {
        name: "End.AD out and back",
        cases: ["End.AD to the function", "End.AD from the function"],
        limit: Some(150.0),
    },
    Pair {
        name: "End.AD by flow out and back",
        cases: ["End.AD by flow to the function", "End.AD by flow from the function"],
        limit: None,
    },
    Pair {
        name: "End.AM out and back",
        cases: ["End.AM to the function", "End.AM from the function"],
        limit: Some(120.0),
    },
    Pair {
        name: "End.AM with three segments out and back",
        cases: ["End.AM with three segments to the function", "End.AM with three segments from the function"],
        limit: None,
    },
];

/// The program that a case measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Segue's; every run must be counted as this outcome.
    Segue(&'static str),
    /// A reference in bpf/bench/cost.bpf.c, of this name.
    Reference(&'static str),
}

/// Ports beside `in` and `out`, with their roles.
const PORTS: [(&str, &str); 12] = [
    ("access", "access"),
    ("l2", "access"),
    ("l2-red", "access"),
    ("wire", "access"),
    ("function", "service"),
    ("fn-ad", "service"),
    ("fn-flow", "service"),
    ("fn-am", "service"),
    ("fn-exact", "service"),
    ("fn-label", "service"),
    ("filter", "core"),
    ("filter-512", "core"),
];

/// Adds the ports that only these cases need, all with the MAC address that the frames are for. Their other ends are in the
/// sink's namespace.
///
/// # Errors
/// If `ip` fails.
pub fn add_ports(topology: &Topology) -> Result<()> {
    for (index, (port, _)) in PORTS.iter().enumerate() {
        let sink = topology.sink.name();
        topology
            .node
            .ip(&format!("link add {port} address {} type veth peer name p{index} netns {sink}", mac(IN_MAC)))?;
        topology.node.ip(&format!("link set {port} up"))?;
        topology.sink.ip(&format!("link set p{index} up"))?;
    }
    topology.add_loop()
}

/// SID of the node with function `function`.
fn sid(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 0, 1, function, 0, 0, 0, 0)
}

/// Label of the node with function `function`.
fn label(function: u32) -> u32 {
    30_000 + function
}

/// A label of another node.
const NEXT_LABEL: u32 = 17_000;

/// Inner destination that is steered into the policy of number `policy`.
fn destination(policy: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xb, policy, 0, 0, 0, 1)
}

fn destination_ipv4(policy: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, policy)
}

/// The link-layer address of every function.
const FUNCTION_MAC: &str = "02:5e:67:00:00:05";

/// An End.AD SID whose function is behind `port`.
fn dynamic(function: u16, port: &str, memory: &str) -> Value {
    json!({"sid": sid(function), "behaviour": "End.AD", "next_hop_mac": FUNCTION_MAC, "proxy": {
        "inner": ["IPv4", "IPv6"], "to_function": port, "from_function": port, "memory": memory,
    }})
}

/// A firewall of so many rules, the last of which drops what goes to [`INNER_DESTINATION`]; all else meets the policy.
fn firewall(name: &str, mode: &str, count: usize) -> Value {
    let compared = if mode == "advanced" { Compared::ENCAPSULATED_AT_ANY_SID } else { Compared::Two };
    let text = firewall_rules::save(count, compared, Last::Drop);
    json!({"name": name, "mode": mode, "ipv6": {"file": "rules.v6", "text": text}})
}

/// One rule that looks at connections, for a connection that nobody answers.
const STATE_RULES: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\nCOMMIT\n";

/// The same packet with an ACK of TCP in place of the UDP header. The data plane does not look at its checksum.
fn acknowledgment(mut packet: Packet) -> Packet {
    packet.octets[6] = 6;
    packet.octets[44..60].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
    packet
}

/// The node's desired state.
#[must_use]
pub fn node_state() -> Value {
    let mut ports = vec![json!({"name": "in", "role": "core"}), json!({"name": "out", "role": "core"})];
    for (name, role) in PORTS {
        let mut port = json!({"name": name, "role": role});
        if name.starts_with("l2") {
            port["l2_policy"] = json!(name);
        }
        if name.starts_with("filter") {
            port["firewall"] = json!(if name == "filter" { "basic" } else { "512" });
        }
        ports.push(port);
    }
    let two = json!([{"segments": [NEXT_SID, LAST_SID]}]);
    let modes = [
        ("encaps", "H.Encaps"),
        ("encaps-red", "H.Encaps.Red"),
        ("l2", "H.Encaps.L2"),
        ("l2-red", "H.Encaps.L2.Red"),
        ("insert", "H.Insert"),
    ];
    let mut policies: Vec<Value> =
        modes.iter().map(|(name, mode)| json!({"name": name, "mode": mode, "segment_lists": two})).collect();
    for (name, count) in [("push", 2), ("push-10", 10)] {
        let labels: Vec<u32> = (0..count).map(|position| NEXT_LABEL + position).collect();
        let list = json!([{"labels": labels, "next_hop": SINK_ADDRESS}]);
        policies.push(json!({"name": name, "mode": "PUSH", "segment_lists": list}));
    }
    json!({
        "node": "cost",
        "source_address": OUT_ADDRESS,
        "ports": ports,
        "firewalls": [
            firewall("basic", "basic", 1), firewall("advanced", "advanced", 1), firewall("512", "basic", 512),
            {"name": "state", "ipv6": {"file": "state.v6", "text": STATE_RULES}},
        ],
        "sids": [
            {"sid": sid(1), "behaviour": "End"},
            {"sid": sid(2), "behaviour": "End", "flavours": ["PSP"]},
            {"sid": sid(3), "behaviour": "End.X", "next_hop": SINK_ADDRESS},
            {"sid": sid(4), "behaviour": "End.T", "table": 254},
            {"sid": sid(5), "behaviour": "End.DX2", "port": "wire"},
            {"sid": sid(6), "behaviour": "End.DX4", "next_hop": SINK_IPV4},
            {"sid": sid(7), "behaviour": "End.DX6", "next_hop": SINK_ADDRESS},
            {"sid": sid(8), "behaviour": "End.DT4"},
            {"sid": sid(9), "behaviour": "End.DT6"},
            {"sid": sid(10), "behaviour": "End.DT46"},
            {"sid": sid(11), "behaviour": "End.B6.Encaps", "policy": "encaps"},
            {"sid": sid(12), "behaviour": "End.B6.Encaps.Red", "policy": "encaps-red"},
            {"sid": sid(13), "behaviour": "End.AS", "next_hop_mac": FUNCTION_MAC, "proxy": {
                "inner": ["IPv4", "IPv6"], "to_function": "function", "from_function": "function",
                "segments": [NEXT_SID, LAST_SID],
            }},
            dynamic(14, "fn-ad", "interface"),
            dynamic(15, "fn-flow", "flow"),
            dynamic(16, "fn-exact", "packet"),
            {"sid": sid(17), "behaviour": "End.AM", "next_hop_mac": FUNCTION_MAC, "proxy": {
                "to_function": "fn-am", "from_function": "fn-am",
            }},
            {"sid": sid(18), "behaviour": "End.AN", "firewall": "basic"},
            {"sid": sid(19), "behaviour": "End.AN", "firewall": "advanced"},
            {"sid": sid(20), "behaviour": "End.AN", "firewall": "state"},
        ],
        "labels": [
            {"label": label(1), "behaviour": "swap", "out": NEXT_LABEL, "next_hop": SINK_ADDRESS},
            {"label": label(2), "behaviour": "pop", "next_hop": SINK_ADDRESS},
            {"label": label(3), "behaviour": "table", "table": 254},
            {"label": label(4), "behaviour": "dynamic_proxy", "next_hop_mac": FUNCTION_MAC, "proxy": {
                "inner": ["IPv4", "IPv6"], "to_function": "fn-label", "from_function": "fn-label", "memory": "interface",
            }},
            {"label": label(5), "behaviour": "firewall", "firewall": "basic"},
            {"label": label(6), "behaviour": "firewall", "firewall": "state"},
        ],
        "policies": policies,
        "steering": [
            {"destination": format!("{}/128", destination(1)), "policy": "encaps"},
            {"destination": format!("{}/128", destination(2)), "policy": "encaps-red"},
            {"destination": format!("{}/128", destination(3)), "policy": "insert"},
            {"destination": format!("{}/128", destination(4)), "policy": "push"},
            {"destination": format!("{}/128", destination(5)), "policy": "push-10"},
            {"destination": format!("{}/32", destination_ipv4(1)), "policy": "encaps"},
            {"destination": format!("{}/32", destination_ipv4(2)), "policy": "encaps-red"},
        ],
    })
}

fn inner_ipv6(destination: Ipv6Addr) -> Packet {
    frame::udp_over_ipv6(INNER_SOURCE, destination, TTL, INNER)
}

fn inner_ipv4(destination: Ipv4Addr) -> Packet {
    frame::udp_over_ipv4(INNER_SOURCE_IPV4, destination, TTL, INNER)
}

/// An inner Ethernet frame as the payload of a steered packet.
fn inner_frame() -> Packet {
    let inner = inner_ipv6(INNER_DESTINATION);
    let octets = inner.frame(SINK_MAC, GENERATOR_MAC);
    let shift = octets.len() - inner.octets.len();
    Packet { octets, headers: inner.headers + shift, ..inner }
}

fn case(name: &'static str, ingress: &'static str, packet: &Packet) -> Case {
    Case {
        name,
        ingress,
        frame: packet.frame(IN_MAC, GENERATOR_MAC),
        headers: packet.headers,
        verdict: REDIRECT,
        program: Program::Segue("forwarded"),
        limit: None,
        before: None,
        metadata: false,
        connections: None,
    }
}

/// A packet to `sid`, with `left` of two segments left.
fn steered(inner: Packet, sid: Ipv6Addr, left: usize) -> Packet {
    let segments = if left == 0 { [NEXT_SID, sid] } else { [sid, NEXT_SID] };
    let steering = Steering { source: HEADEND, segments: &segments, left, hop_limit: TTL, reduced: false };
    if inner.octets.len() == INNER {
        frame::encapsulated(inner, &steering)
    } else {
        frame::encapsulated_frame(inner, &steering)
    }
}

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    let any = inner_ipv6(INNER_DESTINATION);
    let reference = |name, program| Case { program: Program::Reference(program), ..case(name, "in", &any) };
    let mut cases = vec![
        reference("reference: bpf_redirect", "redirect"),
        reference("reference: head moved, bpf_redirect", "move_and_redirect"),
    ];
    cases.extend(endpoints());
    cases.extend(proxies());
    cases.extend(headends());
    cases.extend(labels());
    cases.extend(firewalls());
    let outside = steered(inner_ipv6(INNER_DESTINATION), sid(1), 1);
    cases.push(Case {
        verdict: DROP,
        program: Program::Segue("drop_sr_from_outside"),
        ..case("drop (SRH from outside)", "access", &outside)
    });
    cases
}

fn endpoints() -> Vec<Case> {
    let six = || inner_ipv6(INNER_DESTINATION);
    let four = || inner_ipv4(INNER_DESTINATION_IPV4);
    let core = |name, inner, function, left| case(name, "in", &steered(inner, sid(function), left));
    vec![
        Case { limit: Some(70.0), ..core("End", six(), 1, 1) },
        core("End with PSP", six(), 2, 1),
        core("End.X", six(), 3, 1),
        core("End.T", six(), 4, 1),
        core("End.DX2", inner_frame(), 5, 0),
        core("End.DX4", four(), 6, 0),
        core("End.DX6", six(), 7, 0),
        core("End.DT4", four(), 8, 0),
        core("End.DT6", six(), 9, 0),
        core("End.DT46", six(), 10, 0),
        core("End.B6.Encaps", six(), 11, 1),
        core("End.B6.Encaps.Red", six(), 12, 1),
    ]
}

/// Proxies, out to the function and back from it.
fn proxies() -> Vec<Case> {
    let six = || inner_ipv6(INNER_DESTINATION);
    let four = || inner_ipv4(INNER_DESTINATION_IPV4);
    let out = |name, packet: &Packet| Case { program: Program::Segue("to_function"), ..case(name, "in", packet) };
    let to = |name, inner: Packet, function| out(name, &steered(inner, sid(function), 1));
    let back =
        |name, port, packet: &Packet, before: Case| Case { before: Some(Box::new(before)), ..case(name, port, packet) };
    let masked = |three, back| masquerade(six(), sid(17), three, back);
    vec![
        to("End.AS to the function", six(), 13),
        case("End.AS from the function", "function", &six()),
        to("End.AD to the function", six(), 14),
        back("End.AD from the function", "fn-ad", &six(), to("", six(), 14)),
        to("End.AD to the function, IPv4", four(), 14),
        back("End.AD from the function, IPv4", "fn-ad", &four(), to("", four(), 14)),
        to("End.AD by flow to the function", six(), 15),
        back("End.AD by flow from the function", "fn-flow", &six(), to("", six(), 15)),
        // Into the function's kernel, which gives it back to a program of the TC hook: not measured here.
        Case { verdict: PASS, metadata: true, ..to("End.AD by packet to the function", six(), 16) },
        out("End.AM to the function", &masked(false, false)),
        back("End.AM from the function", "fn-am", &masked(false, true), out("", &masked(false, false))),
        out("End.AM with three segments to the function", &masked(true, false)),
        back(
            "End.AM with three segments from the function",
            "fn-am",
            &masked(true, true),
            out("", &masked(true, false)),
        ),
    ]
}

/// A packet to `sid` and on to one or two more segments; `back`: as the function gets and returns it, with the last segment as its
/// destination (draft-ietf-spring-sr-service-programming section 6.3).
fn masquerade(inner: Packet, sid: Ipv6Addr, three: bool, back: bool) -> Packet {
    let all = [sid, NEXT_SID, LAST_SID];
    let segments = if three { &all[..] } else { &all[..2] };
    let left = segments.len() - 1 - usize::from(back);
    let mut packet =
        frame::encapsulated(inner, &Steering { source: HEADEND, segments, left, hop_limit: TTL, reduced: false });
    if back {
        packet.octets[24..40].copy_from_slice(&segments[segments.len() - 1].octets());
    }
    packet
}

/// The firewall with one rule and with 512, the last of which drops, and with a packet that meets the policy.
fn firewalls() -> Vec<Case> {
    let (dropped, passed) = (|| inner_ipv6(INNER_DESTINATION), || inner_ipv6(destination(9)));
    let drops = |name, port, packet: &Packet| Case {
        verdict: DROP,
        program: Program::Segue("drop_firewall"),
        ..case(name, port, packet)
    };
    let inserted = frame::inserted(dropped(), &[sid(18)], 1);
    // What passes is at its next label in the same node, where a packet at a SID is at End.
    let at = |name, label_, inner| case(name, "in", &behind(inner, &[label_, label(1)]));
    // Four times as many as a CPU keeps verdicts of.
    let many = |name, inner| {
        let packet = steered(inner, sid(20), 1);
        Case { connections: Some((4096, packet.port as u32 / 8)), ..case(name, "in", &packet) }
    };
    vec![
        drops("firewall on a port, dropped", "filter", &dropped()),
        drops("firewall on a port, 512 rules, dropped", "filter-512", &dropped()),
        drops("firewall at a SID, dropped", "in", &steered(dropped(), sid(18), 1)),
        drops("firewall at a SID, inserted SRH, dropped", "in", &inserted),
        drops("firewall at a SID, advanced, dropped", "in", &steered(dropped(), sid(19), 1)),
        case("firewall at a SID, passed", "in", &steered(passed(), sid(18), 1)),
        case("firewall at a SID, connection of UDP, passed", "in", &steered(passed(), sid(20), 1)),
        case("firewall at a SID, connection of TCP, passed", "in", &steered(acknowledgment(passed()), sid(20), 1)),
        drops("firewall at a label, dropped", "in", &behind(dropped(), &[label(5), label(1)])),
        at("firewall at a label, passed", label(5), passed()),
        at("firewall at a label, connection of UDP, passed", label(6), passed()),
        at("firewall at a label, connection of TCP, passed", label(6), acknowledgment(passed())),
        many("firewall at a SID, 4,096 connections of UDP, passed", passed()),
        many("firewall at a SID, 4,096 connections of TCP, passed", acknowledgment(passed())),
    ]
}

fn behind(inner: Packet, stack: &[u32]) -> Packet {
    let entries: Vec<(u32, u8)> = stack.iter().map(|label| (*label, TTL)).collect();
    frame::labelled(inner, &entries)
}

/// Label stacks: on, on the way, off, and through a function.
fn labels() -> Vec<Case> {
    let six = || inner_ipv6(INNER_DESTINATION);
    let core = |name, stack: &[u32]| case(name, "in", &behind(six(), stack));
    let to = |name| Case { program: Program::Segue("to_function"), ..core(name, &[label(4), label(1)]) };
    vec![
        case("PUSH of 2 labels", "access", &inner_ipv6(destination(4))),
        case("PUSH of 10 labels", "access", &inner_ipv6(destination(5))),
        core("label swapped", &[label(1), NEXT_LABEL]),
        core("label popped", &[label(2), NEXT_LABEL]),
        core("last label popped, by a table", &[label(3)]),
        to("label of a dynamic proxy, to the function"),
        Case {
            before: Some(Box::new(to(""))),
            ..case("label of a dynamic proxy, from the function", "fn-label", &six())
        },
    ]
}

fn headends() -> Vec<Case> {
    let six = |policy| inner_ipv6(destination(policy));
    let four = |policy| inner_ipv4(destination_ipv4(policy));
    vec![
        Case { limit: Some(100.0), ..case("H.Encaps", "access", &six(1)) },
        case("H.Encaps of IPv4", "access", &four(1)),
        case("H.Encaps.Red", "access", &six(2)),
        case("H.Encaps.Red of IPv4", "access", &four(2)),
        case("H.Encaps.L2", "l2", &six(1)),
        case("H.Encaps.L2.Red", "l2-red", &six(1)),
        case("H.Insert", "access", &six(3)),
    ]
}
