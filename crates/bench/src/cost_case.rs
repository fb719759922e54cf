//! The behaviours whose cost is measured: one node that has them all, and a frame for each.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use crate::error::Result;
use crate::frame::{self, Packet, Steering};
use crate::topology::{
    GENERATOR_MAC, HEADEND, IN_MAC, INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4,
    LAST_SID, NEXT_SID, OUT_ADDRESS, SINK_ADDRESS, SINK_IPV4, SINK_MAC, Topology,
};

/// `XDP_DROP`.
pub const DROP: u32 = 1;
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
    /// TSC clocks that the project has set itself as a limit.
    pub limit: Option<f64>,
}

/// The program that a case measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Segue's; every run must be counted as this outcome.
    Segue(&'static str),
    /// A reference in bpf/bench/cost.bpf.c, of this name.
    Reference(&'static str),
}

/// Ports beside `in` and `out`, with their roles.
const PORTS: [(&str, &str); 5] =
    [("access", "access"), ("l2", "access"), ("l2-red", "access"), ("function", "service"), ("wire", "access")];

/// Adds the ports that only these cases need. Their other ends are in the sink's namespace.
///
/// # Errors
/// If `ip` fails.
pub fn add_ports(topology: &Topology) -> Result<()> {
    for (index, (port, _)) in PORTS.iter().enumerate() {
        let sink = topology.sink.name();
        topology.node.ip(&format!("link add {port} type veth peer name p{index} netns {sink}"))?;
        topology.node.ip(&format!("link set {port} up"))?;
        topology.sink.ip(&format!("link set p{index} up"))?;
    }
    Ok(())
}

/// SID of the node with function `function`.
fn sid(function: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 0, 1, function, 0, 0, 0, 0)
}

/// Inner destination that is steered into the policy of number `policy`.
fn destination(policy: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xb, policy, 0, 0, 0, 1)
}

fn destination_ipv4(policy: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, policy)
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
    let policies: Vec<Value> =
        modes.iter().map(|(name, mode)| json!({"name": name, "mode": mode, "segment_lists": two})).collect();
    json!({
        "node": "cost",
        "source_address": OUT_ADDRESS,
        "ports": ports,
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
            {"sid": sid(13), "behaviour": "End.AS", "next_hop_mac": "02:5e:67:00:00:05", "proxy": {
                "inner": ["IPv4", "IPv6"], "to_function": "function", "from_function": "function",
                "segments": [NEXT_SID, LAST_SID],
            }},
        ],
        "policies": policies,
        "steering": [
            {"destination": format!("{}/128", destination(1)), "policy": "encaps"},
            {"destination": format!("{}/128", destination(2)), "policy": "encaps-red"},
            {"destination": format!("{}/128", destination(3)), "policy": "insert"},
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
    cases.extend(headends());
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
        Case { program: Program::Segue("to_function"), ..core("End.AS to the function", six(), 13, 1) },
        case("End.AS from the function", "function", &six()),
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
