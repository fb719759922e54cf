//! The scenario `an-nf`: netfilter on inner packets, by Segue's End.AN.NF, beside the kernel's plain End and its End.DT6 (inner IPv4:
//! End.DX4) with H.Encaps.
//!
//! Packet sizes and rules are those of "Integrating Netfilter into SRv6 Routing Infrastructure of Linux as an SR-Aware Network Function" (Sawada and others),
//! section IV. Its frames carry a VLAN tag; ours do not and are four octets shorter for the same packet.

use std::net::Ipv6Addr;

use segue_host::Run;
use segue_model::wiring::Wiring;
use serde_json::json;

use crate::contest::{self, Effort, mpps, target};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::frame::{self, ETHERNET, Packet, Steering};
use crate::function::{Function, Links, Vnf};
use crate::lane::Lane;
use crate::netns::Namespace;
use crate::proxy;
use crate::report::{Peer, Report};
use crate::scenario::Arrival;
use crate::segue::Node;
use crate::topology::{
    HEADEND, INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4, LAST_SID, MTU_MAX, NEXT_SID,
    OUT_ADDRESS, OUT_MAC, SID, SINK_ADDRESS, SINK_MAC, Shape, Topology,
};
use crate::traffic::{Latency, Settings, Traffic};

const TTL: u8 = 64;
const STEERING: usize = 40 + 8 + 32;
/// Octets by which a frame of the paper is longer: its VLAN tag.
const TAG: usize = 4;
/// Frame sizes of the paper: 126 + 174 n.
pub const SIZES: [usize; 9] = [126, 300, 474, 648, 822, 996, 1170, 1344, 1518];
/// Numbers of rules.
pub const RULES: [usize; 4] = [0, 1, 8, 128];
/// Netfilter's hook that has the rules.
const FORWARD: &str = "forward";
/// The one of a kernel whose `seg6` routes have hooks.
const POSTROUTING: &str = "postrouting";
/// Packets per second while latency is measured.
const LATENCY_RATE: f64 = 10_000.0;

/// Where the rules stand, on the forward hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chains {
    /// In the hook's own chain.
    Base,
    /// In a regular chain that the hook's jumps to.
    Regular,
}

/// What is measured at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Inner IPv4; else IPv6.
    pub ipv4: bool,
    /// Octets of the frame as the paper counts them.
    pub size: usize,
    /// nft rules, none of which holds.
    pub rules: usize,
    /// Where they stand.
    pub chains: Chains,
    /// The rules hold and drop everything: for tests that netfilter sees the packets.
    pub blocked: bool,
}

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Segue's End.AN.NF.
    Segue,
    /// The kernel's End.
    End,
    /// The kernel's End.DT6 (inner IPv4: End.DX4) and a seg6 route. The route takes packets as they come in, so netfilter's
    /// forward hook never sees them, but only the new outer packet; its postrouting hook does if [`tunnels_have_hooks`].
    DtAndEncaps,
    /// The kernel's End.DX6 into a namespace, whose netfilter sees the inner packet, and a seg6 route behind it. Inner IPv6.
    ThroughNamespace,
}

impl Side {
    fn peer(self) -> (&'static str, f64) {
        match self {
            Self::Segue => ("segue", 1.0),
            Self::End => ("kernel End", 1.0),
            Self::DtAndEncaps => ("kernel End.DT and H.Encaps", 1.5),
            Self::ThroughNamespace => ("kernel End.DX6, netfilter, H.Encaps", 1.5),
        }
    }
}

impl Point {
    /// Those of the paper: sizes without rules, rules at the smallest size, for both families.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut points = Vec::new();
        for ipv4 in [true, false] {
            // The smallest IPv6 packet with UDP and the harness's four octets has 52: the second size.
            let sizes = if ipv4 { &SIZES[..] } else { &SIZES[1..] };
            points.extend(sizes.iter().map(|size| Self {
                ipv4,
                size: *size,
                rules: 0,
                chains: Chains::Base,
                blocked: false,
            }));
            for chains in [Chains::Base, Chains::Regular] {
                let rules = RULES.iter().filter(|rules| **rules > 0);
                points.extend(rules.map(|rules| Self { ipv4, size: sizes[0], rules: *rules, chains, blocked: false }));
            }
        }
        points
    }

    /// Family, size and rules in words.
    #[must_use]
    pub fn name(&self) -> String {
        let family = if self.ipv4 { "IPv4" } else { "IPv6" };
        let chains = match self.chains {
            Chains::Base => "base",
            Chains::Regular => "regular",
        };
        match self.rules {
            0 => format!("{family}, {} octets", self.size),
            rules => format!("{family}, {} octets, {rules} rules in a {chains} chain", self.size),
        }
    }

    /// Octets of the inner packet: at least as many as the harness needs.
    fn octets(&self) -> usize {
        let smallest = if self.ipv4 { 32 } else { 52 };
        (self.size - TAG - ETHERNET - STEERING).max(smallest)
    }

    fn inner(&self) -> Packet {
        if self.ipv4 {
            frame::udp_over_ipv4(INNER_SOURCE_IPV4, INNER_DESTINATION_IPV4, TTL, self.octets())
        } else {
            frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, TTL, self.octets())
        }
    }

    fn steered(&self, source: Ipv6Addr, segments: [Ipv6Addr; 2], left: usize, hop_limit: u8) -> Packet {
        let steering = Steering { source, segments: &segments, left, hop_limit, reduced: false };
        frame::encapsulated(self.inner(), &steering)
    }

    fn sent(&self, side: Side) -> Packet {
        match side {
            // End.DT wants no segments left.
            Side::DtAndEncaps | Side::ThroughNamespace => self.steered(HEADEND, [NEXT_SID, SID], 0, TTL),
            Side::Segue | Side::End => self.steered(HEADEND, [SID, NEXT_SID], 1, TTL),
        }
    }

    fn arrival(&self, side: Side) -> Arrival {
        let packet = match side {
            Side::DtAndEncaps | Side::ThroughNamespace => self.steered(OUT_ADDRESS, [NEXT_SID, LAST_SID], 1, TTL),
            Side::Segue | Side::End => self.steered(HEADEND, [SID, NEXT_SID], 0, TTL - 1),
        };
        let frame = packet.frame(SINK_MAC, OUT_MAC);
        let mut mask = vec![0xff; frame.len()];
        let (port, balance) = (ETHERNET + packet.port, ETHERNET + packet.balance);
        mask[port..port + 2].fill(0);
        mask[balance..balance + 2].fill(0);
        if matches!(side, Side::DtAndEncaps | Side::ThroughNamespace) {
            // A pushed header's flow label and hop limit, and the inner hop limit: a router is a hop.
            mask[ETHERNET + 1] = 0xf0;
            mask[ETHERNET + 2..ETHERNET + 4].fill(0);
            mask[ETHERNET + 7] = 0;
            let inner = ETHERNET + STEERING;
            if self.ipv4 {
                mask[inner + 8] = 0;
                mask[inner + 10..inner + 12].fill(0);
            } else {
                mask[inner + 7] = 0;
            }
        }
        Arrival { frame, mask, port, balance, chains: [0; 2] }
    }

    /// The rules as nft reads them, on one of netfilter's hooks: none of them holds, so that each packet meets all of them.
    fn ruleset(&self, hook: &str) -> String {
        let rule = match (self.ipv4, self.blocked) {
            (true, false) => "ip saddr 198.18.0.0/15 drop".to_owned(),
            (false, false) => "ip6 saddr 2001:db8:ffff::/48 drop".to_owned(),
            (true, true) => format!("ip saddr {INNER_SOURCE_IPV4} drop"),
            (false, true) => format!("ip6 saddr {INNER_SOURCE} drop"),
        };
        let rules = vec![rule.as_str(); self.rules].join("\n");
        let hook = format!("type filter hook {hook} priority filter; policy accept;");
        match self.chains {
            Chains::Base => format!("table inet bench {{ chain base {{ {hook}\n{rules}\n}}\n}}\n"),
            Chains::Regular => {
                format!("table inet bench {{ chain many {{\n{rules}\n}}\nchain base {{ {hook}\njump many\n}}\n}}\n")
            }
        }
    }

    fn lay_rules(&self, namespace: &Namespace, hook: &str) -> Result<()> {
        if self.rules == 0 {
            return Ok(());
        }
        Run::new("nft", ["-f", "-"]).inside(namespace.name()).input(self.ruleset(hook)).text()?;
        Ok(())
    }
}

/// Whether netfilter's hooks see what goes through `seg6` routes (the sysctl `net.netfilter.nf_hooks_lwtunnel`). It is the whole
/// machine's and cannot be set back, so a bench leaves that to the operator.
fn tunnels_have_hooks() -> Result<bool> {
    let path = "/proc/sys/net/netfilter/nf_hooks_lwtunnel";
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim() == "1"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::file(path)(error)),
    }
}

/// Sets up a lane.
///
/// # Errors
/// If any of it cannot be set up; nothing stays behind.
pub fn open(point: &Point, side: Side, flows: u32) -> Result<Lane> {
    let name = match side {
        Side::Segue => "nf-segue",
        Side::End => "nf-end",
        Side::DtAndEncaps => "nf-dt",
        Side::ThroughNamespace => "nf-dx",
    };
    let shape = Shape { queues: 1, mtu: MTU_MAX };
    let topology = Topology::build_shaped(name, shape)?;
    let settings = Settings { flows, ..Settings::default() };
    let traffic = Traffic::start(&topology, &point.sent(side), &point.arrival(side), settings)?;
    let what = format!("an-nf, {}, {}", point.name(), side.peer().0);
    if side == Side::ThroughNamespace {
        let function = Links::build(&topology, name, shape)?.start(Vnf::Forward, &traffic)?;
        point.lay_rules(&function.namespace, FORWARD)?;
        proxy::kernel(&topology)?;
        return Ok(Lane::through(function, None, traffic, topology, what));
    }
    let (namespace, node) = match side {
        Side::Segue => {
            let namespace = Namespace::create("nf")?;
            let wiring = Wiring::of(namespace.name());
            wire(&topology.node, &namespace, &wiring)?;
            topology.add_loop()?;
            point.lay_rules(&namespace, FORWARD)?;
            let state = json!({
                "node": "bench",
                "source_address": OUT_ADDRESS,
                "ports": [{"name": "in", "role": "core"}, {"name": "out", "role": "core"}],
                "sids": [{"sid": SID, "behaviour": "End.AN.NF", "netfilter": {"namespace": namespace.name()}}],
            });
            let node = Node::start(&topology.node, state)?;
            (namespace, Some(node))
        }
        Side::End | Side::DtAndEncaps | Side::ThroughNamespace => {
            topology.node.ip_all(kernel_commands(point, side))?;
            topology.enable_gro()?;
            if side == Side::DtAndEncaps {
                point.lay_rules(&topology.node, if tunnels_have_hooks()? { POSTROUTING } else { FORWARD })?;
            }
            (Namespace::create(&format!("{name}-none"))?, None)
        }
    };
    Ok(Lane::through(Function::only(namespace), node, traffic, topology, what))
}

fn kernel_commands(point: &Point, side: Side) -> Vec<String> {
    if side == Side::End {
        return vec![format!("-6 route add {SID}/128 encap seg6local action End dev out")];
    }
    let tunnel = format!("sr tunsrc set {OUT_ADDRESS}");
    let encapsulation = format!("encap seg6 mode encap segs {NEXT_SID},{LAST_SID}");
    if point.ipv4 {
        // End.DT4 needs a VRF device, which this kernel may lack. End.DX4 to the inner destination looks it up in the same way.
        return vec![
            tunnel,
            format!("-6 route add {SID}/128 encap seg6local action End.DX4 nh4 {INNER_DESTINATION_IPV4} dev out"),
            format!("-4 route add {INNER_DESTINATION_IPV4}/32 {encapsulation} dev out"),
        ];
    }
    vec![
        tunnel,
        format!("-6 route add {SID}/128 encap seg6local action End.DT6 table 254 dev out"),
        format!("-6 route add {INNER_DESTINATION}/128 {encapsulation} via {SINK_ADDRESS} dev out"),
    ]
}

/// The links and settings that the agent makes for an End.AN.NF SID (crates/agent/src/netfilter), by `ip`.
fn wire(node: &Namespace, namespace: &Namespace, wiring: &Wiring) -> Result<()> {
    let Wiring { node_west, node_east, node_west_mac, node_east_mac, west_mac, east_mac, .. } = wiring;
    let inside = namespace.name();
    for interface in ["all", "default"] {
        namespace.sysctl(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        namespace.sysctl(&format!("ipv4/conf/{interface}/send_redirects"), "0")?;
    }
    namespace.sysctl("ipv6/conf/default/accept_dad", "0")?;
    namespace.sysctl("ipv6/conf/default/accept_ra", "0")?;
    namespace.sysctl("ipv6/conf/default/router_solicitations", "0")?;
    namespace.sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
    namespace.sysctl("ipv6/conf/all/forwarding", "1")?;
    namespace.sysctl("ipv4/ip_forward", "1")?;
    node.ip_all([
        format!(
            "link add {node_west} address {node_west_mac} mtu {MTU_MAX} type veth peer name west address {west_mac} mtu {MTU_MAX} netns {inside}"
        ),
        format!(
            "link add {node_east} address {node_east_mac} mtu {MTU_MAX} type veth peer name east0 mtu {MTU_MAX} netns {inside}"
        ),
        format!("link set {node_west} up"),
        format!("link set {node_east} up"),
        format!(
            "link add link {node_east} name east address {east_mac} mtu {MTU_MAX} netns {inside} type macvlan mode private"
        ),
    ])?;
    namespace.ip_all([
        "link set east0 up".to_owned(),
        "link set west up".into(),
        "link set east up".into(),
        format!("-4 neighbour add 169.254.0.1 lladdr {node_east_mac} dev east nud permanent"),
        format!("-6 neighbour add fe80::1 lladdr {node_east_mac} dev east nud permanent"),
        "-4 address add 192.0.0.8/32 dev lo".into(),
        "-4 route add default via 169.254.0.1 dev east onlink".into(),
        "-6 route add default via fe80::1 dev east".into(),
    ])?;
    Ok(())
}

/// Measures one point: a report for each peer.
///
/// # Errors
/// If a lane cannot be set up, or delivers a wrong frame.
pub fn run(point: &Point, effort: &Effort, pinned: &Pinned) -> Result<Vec<Report>> {
    let mut lanes = Vec::new();
    let sides = [Side::Segue, Side::End, Side::DtAndEncaps, Side::ThroughNamespace];
    let sides = if point.ipv4 { &sides[..3] } else { &sides[..] };
    for side in sides {
        let mut lane = open(point, *side, effort.flows)?;
        lane.verify(effort.first.verified)?;
        lanes.push(lane);
    }
    let tallies = contest::alternate(&mut lanes, effort)?;
    let mut latencies = Vec::new();
    for lane in &mut lanes {
        latencies.push(lane.latency(LATENCY_RATE, effort.run.max(effort.first.latency))?);
    }
    let (Some(ours), Some(latency)) = (tallies.first(), latencies.first()) else {
        return Err(Error::Usage("a lane was not measured".into()));
    };
    let hooks = if tunnels_have_hooks()? {
        "nf_hooks_lwtunnel is 1: the rules of End.DT and H.Encaps are on its postrouting hook, which sees the inner packet"
    } else {
        "nf_hooks_lwtunnel is 0: End.DT and H.Encaps show netfilter only the new outer packet"
    };
    let report = |index: usize| {
        let (name, required) = sides[index].peer();
        let (theirs, their_latency) = (&tallies[index], &latencies[index]);
        let ratio = ours.rate.median / theirs.rate.median;
        Report {
            scenario: format!("an-nf/{}/{name}", point.name()),
            unit: "packets/s".into(),
            ours: ours.rate,
            peer: Some(Peer { name: name.into(), rate: theirs.rate }),
            ratio: Some(ratio),
            packets_lost: ours.lost + ours.paced.lost(),
            notes: vec![
                target(&format!("ratio to {name}"), ratio, required),
                format!("segue {}, {name} {}", mpps(&ours.rate), mpps(&theirs.rate)),
                format!("latency at {LATENCY_RATE} packets/s: segue {}, {name} {}", text(latency), text(their_latency)),
                format!(
                    "inner packet of {} octets, {} rules that do not hold; frames of {} octets without tag",
                    point.octets(),
                    point.rules,
                    ETHERNET + STEERING + point.octets()
                ),
                format!(
                    "lost when saturated: {} of {} and {} of {}; paced at 0.4 of the own rate: {} and {}",
                    ours.lost,
                    ours.sent,
                    theirs.lost,
                    theirs.sent,
                    ours.paced.lost(),
                    theirs.paced.lost()
                ),
                hooks.into(),
                contest::conditions(effort, pinned),
            ],
            size: point.size,
            limit: None,
        }
    };
    // The kernel's End does not show inner packets to netfilter; it has no rules.
    Ok((1..sides.len()).map(report).collect())
}

fn text(latency: &Latency) -> String {
    format!("{:.2} us (99 of 100 below {:.2} us)", latency.median / 1e3, latency.p99 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_those_of_the_issue() {
        let points = Point::all();
        assert_eq!(points.len(), 9 + 6 + 8 + 6);
        assert!(points.iter().all(|point| point.inner().octets.len() == point.octets()));
        assert_eq!(points[8].sent(Side::Segue).octets.len(), 1500);
    }

    #[test]
    fn rulesets_have_as_many_rules_as_they_say() {
        for chains in [Chains::Base, Chains::Regular] {
            let point = Point { ipv4: true, size: 126, rules: 8, chains, blocked: false };
            assert_eq!(point.ruleset(FORWARD).matches("drop").count(), 8);
        }
    }
}
