//! The scenarios `service-forward` and `service-counter`: a service in user space on AF_XDP, or on copies, beside the kernel's plain End (in its place
//! behind the node, and in place of the node), beside the same path without the service, and beside what a user could write instead.
//!
//! ```text
//!   generator ── in [node] out ── sink          processor of the measurement: all but the service's thread
//!                   │ fn
//!                 port [function]               segue-service, on another processor; or the kernel's End
//! ```

use std::net::Ipv6Addr;
use std::time::Duration;

use segue_host::polling;
use serde_json::json;

use crate::contest::{self, Effort, Tally, mpps, target};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::frame::{self, ETHERNET, Packet, Steering};
use crate::function::Function;
use crate::lane::Lane;
use crate::netns::Namespace;
use crate::relay;
use crate::report::{Peer, Report};
use crate::scenario::Arrival;
use crate::segue::Node;
use crate::service_process::{Process, Program};
use crate::topology::{
    self, HEADEND, INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4, MTU_MAX, NEXT_SID,
    OUT_ADDRESS, OUT_MAC, SID, SINK_MAC, Topology, gro, mac,
};
use crate::traffic::{Settings, Traffic};

const HOP_LIMIT: u8 = 64;
/// The node's port to the function, and the function's to the node.
const LINK: [(&str, [u8; 6]); 2] = [("fn", [2, 0x5e, 0x67, 0, 1, 1]), ("port", [2, 0x5e, 0x67, 0, 1, 2])];

/// Who does End.
#[derive(Debug, Clone, PartialEq)]
enum Side {
    /// A service, behind a node of Segue.
    Service(Shape),
    /// The kernel in the service's place.
    KernelBehind,
    /// The kernel in place of the node.
    Kernel,
    /// A relay in the service's place.
    Relay(relay::Kind),
}

/// A service, and how it runs.
#[derive(Debug, Clone, PartialEq)]
struct Shape {
    /// For reports.
    name: &'static str,
    service: String,
    /// The program that runs it; `segue-service` if not given.
    program: Option<Program>,
    config: serde_json::Value,
    workers: u32,
    ring_size: u32,
    /// Microseconds that it looks for packets before it sleeps.
    spin: u32,
    /// `defer_times` and `defer_time` of its file.
    defer: (u32, u32),
    /// Whether the node waits for more of its packets, as agent and lab have it.
    node_waits: bool,
}

impl Shape {
    fn forward(name: &'static str) -> Self {
        let config = json!({});
        Self {
            name,
            service: "forward".into(),
            program: None,
            config,
            workers: 1,
            ring_size: 2048,
            spin: 0,
            defer: (0, 0),
            node_waits: true,
        }
    }

    fn counter(name: &'static str, one_in: u32) -> Self {
        let config = json!({ "one_in": one_in, "snap_length": 65_575 });
        Self { service: "counter".into(), config, ..Self::forward(name) }
    }
}

impl Shape {
    fn start(&self, namespace: &Namespace, pinned: &Pinned, name: &str) -> Result<Process> {
        let cpu = other_cpu(pinned);
        let document = json!({
            "service": self.service, "config": self.config, "name": name, "interface": LINK[1].0,
            "workers": self.workers, "ring_size": self.ring_size, "spin": self.spin,
            "defer_times": self.defer.0, "defer_time": self.defer.1,
        });
        let program = self.program.clone().map_or_else(Program::own, Ok)?;
        Process::start(&program, namespace, &document, Some(&cpu.to_string()), name)
    }
}

impl Side {
    fn name(&self) -> &'static str {
        match self {
            Self::Service(shape) => shape.name,
            Self::KernelBehind => "kernel End in the service's place",
            Self::Kernel => "kernel End in the node's place",
            Self::Relay(relay::Kind::Packet) => "relay on AF_PACKET",
            Self::Relay(relay::Kind::Tun) => "relay on TUN",
            Self::Relay(relay::Kind::Queue) => "relay on NFQUEUE",
        }
    }

    /// Times that the hop limit is lowered.
    fn hops(&self) -> u8 {
        match self {
            // To the function, in it, and back from it.
            Self::Service(_) | Self::KernelBehind | Self::Relay(relay::Kind::Packet | relay::Kind::Queue) => 3,
            Self::Relay(relay::Kind::Tun) => 4,
            Self::Kernel => 1,
        }
    }
}

/// What is beside the first side.
struct Beside {
    side: Side,
    /// The share of its rate that the issue wants.
    required: Option<f64>,
}

fn beside(side: Side, required: impl Into<Option<f64>>) -> Beside {
    Beside { side, required: required.into() }
}

/// Which comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Course {
    /// Beside the kernel's End
    Kernel,
    /// Beside relays on AF_PACKET, TUN and NFQUEUE
    Relays,
    /// By workers, ring size, and how it waits; by processor: `service-tcp`
    Shapes,
    /// Beside the first service of another program (`--program`), such as one in Python
    Program,
    /// The services compress and tcp-bulk on packets that they can do nothing with: IPv4 with an encrypted payload
    Encrypted,
}

impl Course {
    fn forward(self, program: Option<&str>) -> Result<(Side, Vec<Beside>)> {
        let shape = Shape::forward;
        let ours = Side::Service(shape("forward"));
        let others = match self {
            Self::Kernel => vec![beside(Side::KernelBehind, 0.7), beside(Side::Kernel, None)],
            Self::Relays => vec![
                beside(Side::Relay(relay::Kind::Queue), 3.0),
                beside(Side::Relay(relay::Kind::Tun), 2.0),
                beside(Side::Relay(relay::Kind::Packet), None),
            ],
            // What they reach of `forward` is the ratio's inverse.
            Self::Encrypted => {
                let of = |name, service: &str, config| {
                    Side::Service(Shape { service: service.into(), config, ..shape(name) })
                };
                let compress = |algorithm: &str| json!({ "algorithm": algorithm });
                let others = vec![
                    of("compress, lz4", "compress", compress("lz4")),
                    of("compress, lzo", "compress", compress("lzo")),
                    of("compress, deflate", "compress", compress("deflate")),
                    of("compress, zstd", "compress", compress("zstd")),
                    of("refragment", "refragment", json!({})),
                ];
                others.into_iter().map(|side| beside(side, None)).collect()
            }
            Self::Program => {
                let program = Program::of(program.unwrap_or_default())?;
                let service = program.first_service()?;
                vec![beside(Side::Service(Shape { service, program: Some(program), ..shape("another program") }), None)]
            }
            Self::Shapes => [
                Shape { workers: 2, ..shape("two workers") },
                Shape { ring_size: 256, ..shape("rings of 256") },
                Shape { ring_size: 8192, ..shape("rings of 8192") },
                Shape { spin: 1000, ..shape("spinning") },
                Shape { defer: (2, 200), ..shape("deferred by 200 us") },
                Shape { defer: (10, 50), ..shape("deferred by 50 us") },
                Shape { node_waits: false, ..shape("a node that takes packets one by one") },
            ]
            .into_iter()
            .map(|shape| beside(Side::Service(shape), None))
            .collect(),
        };
        Ok((ours, others))
    }

    fn counter() -> Vec<(Side, Vec<Beside>)> {
        // One copy in a million packets: the same way of the packets, without the service.
        let without = || Side::Service(Shape::counter("the path without copies", 1_000_000));
        vec![
            (
                Side::Service(Shape::counter("counter, all copied whole", 1)),
                vec![beside(without(), 0.7), beside(Side::KernelBehind, None)],
            ),
            (Side::Service(Shape::counter("counter, 1 in 100 copied", 100)), vec![beside(without(), 0.95)]),
        ]
    }
}

/// A processor beside that of the measurement.
fn other_cpu(pinned: &Pinned) -> usize {
    if pinned.cpu == 0 { 1 } else { pinned.cpu - 1 }
}

/// What is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inner {
    /// IPv6, with a payload that is like itself.
    Plain,
    /// IPv4, with one that is like nothing.
    Encrypted,
}

fn steered(inner: Inner, octets: usize, left: usize, hop_limit: u8, destination: Ipv6Addr) -> Packet {
    let inner = match inner {
        Inner::Plain => frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, HOP_LIMIT, octets),
        Inner::Encrypted => {
            let (source, destination) = (INNER_SOURCE_IPV4, INNER_DESTINATION_IPV4);
            frame::encrypted(frame::udp_over_ipv4(source, destination, HOP_LIMIT, octets))
        }
    };
    let segments = [SID, NEXT_SID];
    let steering = Steering { source: HEADEND, segments: &segments, left, hop_limit, reduced: false };
    debug_assert_eq!(segments[1 - left], destination);
    frame::encapsulated(inner, &steering)
}

fn arrival(inner: Inner, octets: usize, side: &Side) -> Arrival {
    let packet = steered(inner, octets, 0, HOP_LIMIT - side.hops(), NEXT_SID);
    let frame = packet.frame(SINK_MAC, OUT_MAC);
    let mut mask = vec![0xff; frame.len()];
    let (port, balance) = (ETHERNET + packet.port, ETHERNET + packet.balance);
    mask[port..port + 2].fill(0);
    mask[balance..balance + 2].fill(0);
    Arrival { frame, mask, port, balance, chains: [0; 2] }
}

/// What works beside the lane; it ends when dropped.
enum Worker {
    Service(Process),
    #[expect(dead_code, reason = "held for what dropping it undoes")]
    Relay(relay::Relay),
    None,
}

fn open(
    (inner, octets): (Inner, usize),
    side: &Side,
    name: &str,
    flows: u32,
    pinned: &Pinned,
) -> Result<(Lane, Worker)> {
    let topology = Topology::build_shaped(name, topology::Shape { queues: 1, mtu: MTU_MAX })?;
    let settings = Settings { flows, ..Settings::default() };
    let sent = steered(inner, octets, 1, HOP_LIMIT, SID);
    let traffic = Traffic::start(&topology, &sent, &arrival(inner, octets, side), settings)?;
    let what = format!("service-forward with {octets} inner octets, {}", side.name());
    let namespace = Namespace::create(&format!("{name}-fn"))?;
    if *side == Side::Kernel {
        topology.node.ip(&format!("-6 route add {SID}/128 encap seg6local action End dev out"))?;
        topology.enable_gro()?;
        return Ok((Lane::through(Function::only(namespace), None, traffic, topology, what), Worker::None));
    }
    // The same link for all; only a service may have another.
    attach(&topology, &namespace, !matches!(side, Side::Service(Shape { node_waits: false, .. })))?;
    let worker = if let Side::Service(shape) = side {
        Worker::Service(shape.start(&namespace, pinned, name)?)
    } else {
        namespace.sysctl("ipv6/conf/all/forwarding", "1")?;
        let [(_, node), (port, _)] = LINK;
        for interface in ["all", port] {
            namespace.sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")?;
        }
        namespace.ip_all([
            format!("-6 neighbour add fe80::1 lladdr {} dev {port} nud permanent", mac(node)),
            format!("-6 route add default via fe80::1 dev {port}"),
        ])?;
        if matches!(side, Side::KernelBehind | Side::Relay(relay::Kind::Queue)) {
            namespace.ip(&format!("-6 route add {SID}/128 encap seg6local action End dev {port}"))?;
        }
        // It does all of it: the kernel shall not forward as well.
        if matches!(side, Side::Relay(relay::Kind::Packet)) {
            namespace.sysctl("ipv6/conf/all/forwarding", "0")?;
        }
        gro(&namespace, port)?;
        match side {
            Side::Relay(kind) => Worker::Relay(relay::Relay::start(*kind, &namespace, other_cpu(pinned))?),
            _ => Worker::None,
        }
    };
    let state = json!({
        "node": "bench",
        "source_address": OUT_ADDRESS,
        "ports": [
            {"name": "in", "role": "core"}, {"name": "out", "role": "core"}, {"name": LINK[0].0, "role": "service"},
        ],
        "sids": [{
            "sid": SID, "behaviour": "End.AN", "next_hop_mac": mac(LINK[1].1),
            "proxy": {"to_function": LINK[0].0, "from_function": LINK[0].0},
        }],
    });
    let node = Node::start(&topology.node, state)?;
    Ok((Lane::through(Function::only(namespace), Some(node), traffic, topology, what), worker))
}

/// A lane through `forward` as agents run it, with inner packets of so many octets.
///
/// # Errors
/// If it cannot be set up.
pub(crate) fn forwarding(octets: usize, flows: u32, pinned: &Pinned) -> Result<(Lane, Process)> {
    match open((Inner::Plain, octets), &Side::Service(Shape::forward("forward")), "soak", flows, pinned)? {
        (lane, Worker::Service(relay)) => Ok((lane, relay)),
        _ => Err(Error::Usage("a service was not started".into())),
    }
}

/// The link between node and function.
fn attach(topology: &Topology, namespace: &Namespace, waits: bool) -> Result<()> {
    let [(near, near_mac), (far, far_mac)] = LINK.map(|(name, address)| (name, mac(address)));
    for setting in ["accept_dad", "accept_ra", "router_solicitations"] {
        namespace.sysctl(&format!("ipv6/conf/default/{setting}"), "0")?;
    }
    topology.node.ip(&format!(
        "link add {near} address {near_mac} mtu {MTU_MAX} type veth peer name {far} address {far_mac} mtu {MTU_MAX} netns {}",
        namespace.name()
    ))?;
    topology.node.ip(&format!("link set {near} up"))?;
    namespace.ip(&format!("link set {far} up"))?;
    if waits {
        let _inside = topology.node.enter()?;
        polling::defer(near, polling::OF_SERVICES)?;
    }
    Ok(())
}

/// Frames each second, and for how long, in which every octet is compared before anything is timed.
const VERIFIED: (f64, Duration) = (50_000.0, Duration::from_millis(500));

/// `service-forward` with inner packets of so many octets: a report for each peer. `program` is for [`Course::Program`].
///
/// # Errors
/// If a lane cannot be set up, or delivers a wrong frame.
pub fn forward(
    course: Course,
    program: Option<&str>,
    octets: usize,
    effort: &Effort,
    pinned: &Pinned,
) -> Result<Vec<Report>> {
    let (ours, others) = course.forward(program)?;
    let inner = if course == Course::Encrypted { Inner::Encrypted } else { Inner::Plain };
    run("service-forward", ours, others, (inner, octets), effort, pinned)
}

/// `service-counter`, the same way.
///
/// # Errors
/// As [`forward`].
pub fn counter(octets: usize, effort: &Effort, pinned: &Pinned) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for (ours, others) in Course::counter() {
        reports.extend(run("service-counter", ours, others, (Inner::Plain, octets), effort, pinned)?);
    }
    Ok(reports)
}

fn run(
    scenario: &str,
    first: Side,
    others: Vec<Beside>,
    packet: (Inner, usize),
    effort: &Effort,
    pinned: &Pinned,
) -> Result<Vec<Report>> {
    let (mut lanes, mut workers) = (Vec::new(), Vec::new());
    for (index, side) in std::iter::once(&first).chain(others.iter().map(|other| &other.side)).enumerate() {
        let (mut lane, worker) = open(packet, side, &format!("sv{index}"), effort.flows, pinned)?;
        let run = lane.pace_verified(VERIFIED.0, VERIFIED.1)?;
        if run.lost() > run.sent / 100 {
            return Err(lane.not_done(format!("{} of {} frames were lost{}", run.lost(), run.sent, lane.drops())));
        }
        lanes.push(lane);
        workers.push(worker);
    }
    let tallies = contest::alternate(&mut lanes, effort)?;
    drop(workers);
    let Some(ours) = tallies.first() else { return Err(Error::Usage("a lane was not measured".into())) };
    let report = |(theirs, Beside { side, required }): (&Tally, &Beside)| {
        let name = side.name();
        let ratio = ours.rate.median / theirs.rate.median;
        let targets = required.map(|required| target(&format!("ratio to {name}"), ratio, required));
        let notes = [
            format!("{} {}, {name} {}", first.name(), mpps(&ours.rate), mpps(&theirs.rate)),
            "threads of services and relays have a processor of their own; all else is on that of the measurement"
                .into(),
            format!(
                "lost when saturated: {} of {} and {} of {}; paced at 0.4 of the own rate: {} and {}",
                ours.lost,
                ours.sent,
                theirs.lost,
                theirs.sent,
                ours.paced.lost(),
                theirs.paced.lost()
            ),
            contest::conditions(effort, pinned),
        ];
        Report {
            scenario: format!("{scenario}/{name}"),
            unit: "packets/s".into(),
            ours: ours.rate,
            peer: Some(Peer { name: "peer".into(), rate: theirs.rate }),
            ratio: Some(ratio),
            packets_lost: ours.lost + ours.paced.lost(),
            notes: targets.into_iter().chain(notes).collect(),
            size: packet.1,
            limit: None,
        }
    };
    Ok(tallies.iter().skip(1).zip(&others).map(report).collect())
}
