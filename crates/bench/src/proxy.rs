//! The scenarios `proxy-*`: a chain through a function, by Segue's proxies and by the kernel's End.DX6 with a seg6 route.

use serde_json::{Value, json};

use crate::contest::{self, Effort, mpps};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::frame::{self, ETHERNET, Packet, Steering};
use crate::function::{FROM_FUNCTION, Function, Links, TO_FUNCTION, Vnf, WEST_MAC};
use crate::lane::Lane;
use crate::report::{Peer, Report};
use crate::scenario::Arrival;
use crate::segue::Node;
use crate::topology::{
    self, HEADEND, INNER_DESTINATION, INNER_SOURCE, LAST_SID, NEXT_SID, OUT_ADDRESS, OUT_MAC, SID, SINK_ADDRESS,
    SINK_MAC, Shape, Topology, mac,
};
use crate::traffic::{Settings, Traffic};

const TTL: u8 = 64;
/// Octets of IPv6 header and SRH with two segments.
const STEERING: usize = 40 + 8 + 32;
/// Where a chain has its number: in the last but one 32 bits of the segment behind the function. The segment is Segment List[0].
const CHAIN_IN_SEGMENT: usize = 8;
/// Offset of Segment List[0] behind the start of the outer header.
const FIRST_LISTED: usize = 48;
/// A router behind the function, for the kernel: a next hop on the link would cost it a route entry for each packet.
const KERNEL_NEXT_HOP: &str = "2001:db8:c::1";
/// The function's own address, for the kernel.
const KERNEL_GATEWAY: &str = "2001:db8:3::2";

/// How the steering header comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// End.AS
    ProxyAs,
    /// End.AD, by interface
    ProxyAd,
    /// End.AD, by flow
    ProxyAdFlow,
    /// End.AM
    ProxyAm,
    /// End.AD, by packet
    ProxyExact,
    /// An SR-aware function, which does End itself
    Aware,
}

/// Who does the proxy's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Segue.
    Segue(Proxy),
    /// End.DX6 to the function, and a seg6 route behind it: one header for all.
    Kernel,
}

impl Proxy {
    /// Those that have a scenario of their own.
    pub const ALL: [Self; 5] = [Self::ProxyAs, Self::ProxyAd, Self::ProxyAdFlow, Self::ProxyAm, Self::ProxyExact];

    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ProxyAs => "proxy-as",
            Self::ProxyAd => "proxy-ad",
            Self::ProxyAdFlow => "proxy-ad-flow",
            Self::ProxyAm => "proxy-am",
            Self::ProxyExact => "proxy-exact",
            Self::Aware => "sr-aware",
        }
    }

    /// Numbers of chains that are measured unless the user says otherwise. End.AS and End.AD by interface serve one chain for
    /// each return interface.
    #[must_use]
    pub fn chains(self) -> &'static [u32] {
        match self {
            Self::ProxyAs | Self::ProxyAd | Self::Aware => &[1],
            Self::ProxyAdFlow | Self::ProxyAm | Self::ProxyExact => &[1, 100, 10_000],
        }
    }

    /// Functions that it can serve: a packet's own memory goes with it through the kernel only.
    #[must_use]
    pub fn functions(self) -> &'static [Vnf] {
        match self {
            Self::ProxyExact | Self::Aware => &[Vnf::Forward],
            _ => &[Vnf::Forward, Vnf::Reflect],
        }
    }

    fn sid(self) -> Value {
        let mut proxy = json!({"to_function": TO_FUNCTION, "from_function": FROM_FUNCTION});
        let behaviour = match self {
            Self::ProxyAs => {
                proxy["segments"] = json!([NEXT_SID, LAST_SID]);
                proxy["reduced"] = json!(false);
                "End.AS"
            }
            Self::ProxyAd => "End.AD",
            Self::ProxyAdFlow => {
                proxy["memory"] = json!("flow");
                "End.AD"
            }
            Self::ProxyExact => {
                proxy["memory"] = json!("packet");
                "End.AD"
            }
            Self::ProxyAm => "End.AM",
            Self::Aware => "End.AN",
        };
        if !matches!(self, Self::ProxyAm | Self::Aware) {
            proxy["inner"] = json!(["IPv4", "IPv6"]);
        }
        json!({"sid": SID, "behaviour": behaviour, "next_hop_mac": mac(WEST_MAC), "proxy": proxy})
    }
}

/// The node's desired state.
pub(crate) fn node_state(proxy: Proxy) -> Value {
    json!({
        "node": "bench",
        "source_address": OUT_ADDRESS,
        "ports": [
            {"name": "in", "role": "core"},
            {"name": "out", "role": "core"},
            {"name": TO_FUNCTION, "role": "service"},
            {"name": FROM_FUNCTION, "role": "service"},
        ],
        "sids": [proxy.sid()],
    })
}

/// One measurement's circumstances.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// The function.
    pub vnf: Vnf,
    /// Octets of the inner packet.
    pub octets: usize,
    /// Chains through the one function; more than one have a header each, told apart by the inner source port.
    pub chains: u32,
    /// Inner flows if there is one chain.
    pub flows: u32,
    /// All chains carry the same inner flow: only a memory by packet can tell them apart.
    pub same_flow: bool,
    /// The data plane's tables are small, so that they can grow often.
    pub small_tables: bool,
    /// Links.
    pub shape: Shape,
}

fn sent(course: &Course, side: Side) -> Packet {
    let mut inner = frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, TTL, course.octets);
    if course.same_flow {
        inner = frame::varying_payload(inner);
    }
    match side {
        Side::Segue(_) => steered(inner, [SID, NEXT_SID], 1, HEADEND),
        // End.DX6 wants no segments left.
        Side::Kernel => steered(inner, [NEXT_SID, SID], 0, HEADEND),
    }
}

fn steered(inner: Packet, segments: [std::net::Ipv6Addr; 2], left: usize, source: std::net::Ipv6Addr) -> Packet {
    frame::encapsulated(inner, &Steering { source, segments: &segments, left, hop_limit: TTL - 1, reduced: false })
}

fn arrival(course: &Course, side: Side) -> Arrival {
    let mut inner = frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, TTL, course.octets);
    if course.same_flow {
        inner = frame::varying_payload(inner);
    }
    let fixed = matches!(side, Side::Kernel | Side::Segue(Proxy::ProxyAs));
    let packet = if fixed {
        steered(inner, [NEXT_SID, LAST_SID], 1, OUT_ADDRESS)
    } else {
        steered(inner, [SID, NEXT_SID], 0, HEADEND)
    };
    let frame = packet.frame(SINK_MAC, OUT_MAC);
    let mut mask = vec![0xff; frame.len()];
    let (port, balance) = (ETHERNET + packet.port, ETHERNET + packet.balance);
    mask[port..port + 2].fill(0);
    mask[balance..balance + 2].fill(0);
    // What no standard fixes: flow label and hop limit of a header that was put on anew, and how many hops the function is
    // for the inner packet.
    mask[ETHERNET + 1] = 0xf0;
    mask[ETHERNET + 2..ETHERNET + 4].fill(0);
    mask[ETHERNET + 7] = 0;
    mask[ETHERNET + STEERING + 7] = 0;
    let mut chains = [0; 2];
    if course.chains > 1 && !fixed {
        chains = [ETHERNET + 24 + CHAIN_IN_SEGMENT, ETHERNET + FIRST_LISTED + CHAIN_IN_SEGMENT];
        for chain in chains {
            mask[chain..chain + 4].fill(0);
        }
    }
    Arrival { frame, mask, port, balance, chains }
}

/// Sets up a lane through a function.
///
/// # Errors
/// If any of it cannot be set up; nothing stays behind.
pub fn open(side: Side, course: &Course, name: &str) -> Result<Lane> {
    let topology = Topology::build_shaped(name, course.shape)?;
    let links = Links::build(&topology, name, course.shape)?;
    let settings = Settings {
        flows: if course.chains > 1 { course.chains } else { course.flows },
        chain: (course.chains > 1 && side != Side::Kernel).then_some(FIRST_LISTED + CHAIN_IN_SEGMENT),
        reflector_out: links.east,
        ..Settings::default()
    };
    let traffic = Traffic::start(&topology, &sent(course, side), &arrival(course, side), settings)?;
    let function = links.start(course.vnf, &traffic)?;
    let (who, node) = match side {
        Side::Segue(proxy) => {
            if proxy == Proxy::ProxyExact {
                topology.add_loop()?;
            }
            if proxy == Proxy::Aware {
                aware(&function)?;
            }
            let start = if course.small_tables { Node::start_small } else { Node::start };
            (proxy.name(), Some(start(&topology.node, node_state(proxy))?))
        }
        Side::Kernel => {
            kernel(&topology)?;
            ("kernel", None)
        }
    };
    let what = format!("{who}, {}, {} chains, {} inner octets", course.vnf.name(), course.chains, course.octets);
    Ok(Lane::through(function, node, traffic, topology, what))
}

/// The function is a segment of its own: the kernel does End.
fn aware(function: &Function) -> Result<()> {
    function.namespace.ip(&format!("-6 route add {SID}/128 encap seg6local action End dev east")).map(drop)
}

/// The kernel takes the header off to the function and puts another one on behind it.
pub(crate) fn kernel(topology: &Topology) -> Result<()> {
    topology.node.ip_all([
        "address add 2001:db8:3::1/64 dev fn-west".to_owned(),
        format!("neighbour add {KERNEL_GATEWAY} lladdr {} dev fn-west nud permanent", mac(WEST_MAC)),
        format!("-6 route add 2001:db8:c::/48 via {KERNEL_GATEWAY} dev fn-west"),
        format!("-6 route add {SID}/128 encap seg6local action End.DX6 nh6 {KERNEL_NEXT_HOP} dev fn-west"),
        format!("sr tunsrc set {OUT_ADDRESS}"),
        format!(
            "-6 route add {INNER_DESTINATION}/128 encap seg6 mode encap segs {NEXT_SID},{LAST_SID} via {SINK_ADDRESS} dev out"
        ),
    ])?;
    topology.enable_gro()?;
    topology::gro(&topology.node, FROM_FUNCTION)
}

/// Measures one proxy beside the kernel.
///
/// # Errors
/// If a lane cannot be set up, or delivers a wrong frame.
pub fn run(proxy: Proxy, course: &Course, effort: &Effort, pinned: &Pinned) -> Result<Report> {
    if course.chains > 1 && !proxy.chains().contains(&10_000) {
        return Err(Error::Usage(format!(
            "{} serves one chain for each return interface: --chains {} cannot be measured",
            proxy.name(),
            course.chains
        )));
    }
    let mut lanes = vec![open(Side::Segue(proxy), course, "segue-proxy")?, open(Side::Kernel, course, "kernel-proxy")?];
    for lane in &mut lanes {
        lane.verify(effort.first.verified)?;
    }
    let tallies = contest::alternate(&mut lanes, effort)?;
    let [ours, theirs] = tallies.as_slice() else { return Err(Error::Usage("a lane was not measured".into())) };
    let mut notes = vec![format!(
        "{}; inner packet {} octets, frames of {} octets; {} chains, {} inner flows",
        course.vnf.name(),
        course.octets,
        ETHERNET + STEERING + course.octets,
        course.chains,
        if course.chains > 1 { course.chains } else { course.flows }
    )];
    notes.push(
        "kernel: End.DX6 to the function, then one seg6 route, which is one header for all chains; GRO on at all ports"
            .into(),
    );
    if !proxy.chains().contains(&10_000) {
        notes.push("one chain for each return interface".into());
    }
    for (name, tally) in [(proxy.name(), ours), ("kernel", theirs)] {
        notes.push(format!(
            "{name}: {} of {} frames lost when saturated; {} of {} lost at {:.3} Mpps, every octet of the rest verified{}",
            tally.lost,
            tally.sent,
            tally.paced.lost(),
            tally.paced.sent,
            tally.paced.rate / 1e6,
            if tally.lost + tally.paced.lost() > 0 { tally.drops.as_str() } else { "" }
        ));
    }
    notes.push(contest::conditions(effort, pinned));
    notes.push(format!("segue {}, kernel {}", mpps(&ours.rate), mpps(&theirs.rate)));
    Ok(Report {
        scenario: format!("{}/{}/{} chains", proxy.name(), course.vnf.name(), course.chains),
        unit: "packets/s".into(),
        ours: ours.rate,
        peer: Some(Peer { name: "kernel".into(), rate: theirs.rate }),
        ratio: Some(ours.rate.median / theirs.rate.median),
        packets_lost: ours.lost + ours.paced.lost(),
        notes,
        size: course.octets,
        limit: None,
    })
}
