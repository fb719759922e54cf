//! The scenario `service-forward`: the service that lets every packet go on, in user space on AF_XDP, beside the kernel's plain End: in its place
//! behind the node, and in place of the node.
//!
//! ```text
//!   generator ── in [node] out ── sink          processor of the measurement: all but the service's thread
//!                   │ fn
//!                 port [function]               segue-service, on another processor; or the kernel's End
//! ```

use std::io::{Read, Write};
use std::net::Ipv6Addr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use segue_host::command;
use serde_json::json;

use crate::contest::{self, Effort, mpps, target};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::frame::{self, ETHERNET, Packet, Steering};
use crate::function::Function;
use crate::lane::Lane;
use crate::netns::Namespace;
use crate::report::{Peer, Report};
use crate::scenario::Arrival;
use crate::segue::Node;
use crate::topology::{
    HEADEND, INNER_DESTINATION, INNER_SOURCE, MTU_MAX, NEXT_SID, OUT_ADDRESS, OUT_MAC, SID, SINK_MAC, Shape, Topology,
    gro, mac,
};
use crate::traffic::{Settings, Traffic};

const HOP_LIMIT: u8 = 64;
/// The node's port to the function, and the function's to the node.
const LINK: [(&str, [u8; 6]); 2] = [("fn", [2, 0x5e, 0x67, 0, 1, 1]), ("port", [2, 0x5e, 0x67, 0, 1, 2])];
/// What the issue wants: the share of the kernel's rate.
const REQUIRED: f64 = 0.7;
/// How long the service may take to start.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Who does End.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The service, behind a node of Segue.
    Service,
    /// The kernel in the service's place.
    KernelBehind,
    /// The kernel in place of the node.
    Kernel,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::KernelBehind => "kernel End in the service's place",
            Self::Kernel => "kernel End in the node's place",
        }
    }

    /// Times that the hop limit is lowered.
    fn hops(self) -> u8 {
        match self {
            // To the function, in it, and back from it.
            Self::Service | Self::KernelBehind => 3,
            Self::Kernel => 1,
        }
    }
}

/// `segue-service` at work; it ends when dropped.
struct Relay {
    child: Child,
    files: PathBuf,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

impl Relay {
    fn start(namespace: &Namespace, pinned: &Pinned) -> Result<Self> {
        let own = std::env::current_exe().ok();
        let beside = own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(|path| path.join("segue-service"));
        let named = std::env::var_os("SEGUE_SERVICE").map(PathBuf::from);
        let mut places = named.into_iter().chain(beside).chain(command::find("segue-service"));
        let missing = "segue-service is neither beside segue-bench nor in PATH: build it with `cargo build --release -p segue-runner`";
        let program = places.find(|path| path.is_file()).ok_or_else(|| Error::Usage(missing.into()))?;
        let files = std::env::temp_dir().join(format!("segue-bench-{}-service", std::process::id()));
        let failed = || Error::file(&files.display().to_string());
        std::fs::create_dir_all(&files).map_err(failed())?;
        let cpu = if pinned.cpu == 0 { 1 } else { pinned.cpu - 1 };
        let file = files.join("service.json");
        let text = json!({ "service": "forward", "interface": LINK[1].0, "cpus": [cpu] });
        std::fs::write(&file, text.to_string()).map_err(failed())?;
        let socket = files.join("service.socket");
        let _inside = namespace.enter()?;
        // It would inherit the processor of the measurement.
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &cpu.to_string()]).arg(program).arg("run").arg(&file).arg("--socket").arg(&socket);
        let child = command.stdin(Stdio::null()).spawn().map_err(failed())?;
        let mut relay = Self { child, files: files.clone() };
        let end = Instant::now() + READY_WITHIN;
        while !answers(&socket) {
            if relay.child.try_wait().map_err(failed())?.is_some() || Instant::now() > end {
                return Err(Error::Usage("segue-service has not started; it has said why".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(relay)
    }
}

/// Whether the service says how it is: then it takes packets.
fn answers(socket: &std::path::Path) -> bool {
    let ask = || -> std::io::Result<usize> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        stream.write_all(b"status")?;
        stream.read(&mut [0])
    };
    ask().is_ok_and(|octets| octets == 1)
}

fn steered(octets: usize, left: usize, hop_limit: u8, destination: Ipv6Addr) -> Packet {
    let inner = frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, HOP_LIMIT, octets);
    let segments = [SID, NEXT_SID];
    let steering = Steering { source: HEADEND, segments: &segments, left, hop_limit, reduced: false };
    debug_assert_eq!(segments[1 - left], destination);
    frame::encapsulated(inner, &steering)
}

fn arrival(octets: usize, side: Side) -> Arrival {
    let packet = steered(octets, 0, HOP_LIMIT - side.hops(), NEXT_SID);
    let frame = packet.frame(SINK_MAC, OUT_MAC);
    let mut mask = vec![0xff; frame.len()];
    let (port, balance) = (ETHERNET + packet.port, ETHERNET + packet.balance);
    mask[port..port + 2].fill(0);
    mask[balance..balance + 2].fill(0);
    Arrival { frame, mask, port, balance, chains: [0; 2] }
}

fn open(octets: usize, side: Side, flows: u32, pinned: &Pinned) -> Result<(Lane, Option<Relay>)> {
    let name = match side {
        Side::Service => "sv-segue",
        Side::KernelBehind => "sv-behind",
        Side::Kernel => "sv-kernel",
    };
    let topology = Topology::build_shaped(name, Shape { queues: 1, mtu: MTU_MAX })?;
    let settings = Settings { flows, ..Settings::default() };
    let sent = steered(octets, 1, HOP_LIMIT, SID);
    let traffic = Traffic::start(&topology, &sent, &arrival(octets, side), settings)?;
    let what = format!("service-forward with {octets} inner octets, {}", side.name());
    let namespace = Namespace::create(&format!("{name}-fn"))?;
    if side == Side::Kernel {
        topology.node.ip(&format!("-6 route add {SID}/128 encap seg6local action End dev out"))?;
        topology.enable_gro()?;
        return Ok((Lane::through(Function::only(namespace), None, traffic, topology, what), None));
    }
    attach(&topology, &namespace)?;
    let relay = if side == Side::Service {
        Some(Relay::start(&namespace, pinned)?)
    } else {
        namespace.sysctl("ipv6/conf/all/forwarding", "1")?;
        let [(_, node), (port, _)] = LINK;
        for interface in ["all", port] {
            namespace.sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")?;
        }
        for command in [
            format!("-6 neighbour add fe80::1 lladdr {} dev {port} nud permanent", mac(node)),
            format!("-6 route add default via fe80::1 dev {port}"),
            format!("-6 route add {SID}/128 encap seg6local action End dev {port}"),
        ] {
            namespace.ip(&command)?;
        }
        gro(&namespace, port)?;
        None
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
    Ok((Lane::through(Function::only(namespace), Some(node), traffic, topology, what), relay))
}

/// The link between node and function.
fn attach(topology: &Topology, namespace: &Namespace) -> Result<()> {
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
    Ok(())
}

/// Measures with inner packets of so many octets: a report for each peer.
///
/// # Errors
/// If a lane cannot be set up, or delivers a wrong frame.
pub fn run(octets: usize, effort: &Effort, pinned: &Pinned) -> Result<Vec<Report>> {
    let sides = [Side::Service, Side::KernelBehind, Side::Kernel];
    let (mut lanes, mut relays) = (Vec::new(), Vec::new());
    for side in sides {
        let (mut lane, relay) = open(octets, side, effort.flows, pinned)?;
        lane.verify(contest::VERIFIED)?;
        lanes.push(lane);
        relays.extend(relay);
    }
    let tallies = contest::alternate(&mut lanes, effort)?;
    drop(relays);
    let Some(ours) = tallies.first() else { return Err(Error::Usage("a lane was not measured".into())) };
    let report = |index: usize| {
        let (name, theirs) = (sides[index].name(), &tallies[index]);
        let ratio = ours.rate.median / theirs.rate.median;
        Report {
            scenario: format!("service-forward/{name}"),
            unit: "packets/s".into(),
            ours: ours.rate,
            peer: Some(Peer { name: "kernel".into(), rate: theirs.rate }),
            ratio: Some(ratio),
            packets_lost: ours.lost + ours.paced.lost(),
            notes: vec![
                target(&format!("ratio to {name}"), ratio, REQUIRED),
                format!("service {}, {name} {}", mpps(&ours.rate), mpps(&theirs.rate)),
                "the service's thread has a processor of its own; all else is on that of the measurement".into(),
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
            ],
            size: octets,
            limit: None,
        }
    };
    Ok((1..sides.len()).map(report).collect())
}
