//! `/v1/doctor`: looks at the node for what loses packets, or will, and says what to do.
//!
//! # Promise
//!
//! Nothing is changed by looking, but that neighbours are asked for. What can be known without a packet and costs little is told by
//! every apply too ([`fitness::warnings`]). A check that cannot be made is a note that says so, never a silent success.
//!
//! # Data structures
//!
//! A [`Check`] is one thing that was looked at: what, which one, the result, why, what to do. [`fitness`] compares a desired state with facts
//! and knows no kernel; [`machine`] looks at the kernel; [`peers`] at the far ends of ports.
//!
//! # What it is not
//!
//! It sends no traffic (probes of functions do, all the time, and it tells what came of them), knows no other node, and repairs nothing.

mod labels;
mod machine;
mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_api::doctor::{Check, DoctorReport};
use segue_api::function::FunctionReport;
use segue_api::report::PortReport;
use segue_dataplane::{Dataplane, Interfaces};
use segue_model::node::NodeState;

use crate::actor::Handle;
use crate::apply::kernel_failure;
use crate::background;
use crate::fitness;
use crate::functions::virtual_report;
use crate::kernel::{Kernel as _, KernelError, Way, plan};
use crate::learned::Learned;
use crate::liveness;
use crate::node::Node;
use crate::observe::{self, Parts, SharedRoutes};
use crate::problem::Failure;

/// Next hops that are asked for; there may be 100,000.
const NEXT_HOPS_MAX: usize = 512;
/// A neighbour that has not answered by then does not: the kernel asks three times, a second apart.
const PATIENCE: Duration = Duration::from_millis(3500);
const POLL: Duration = Duration::from_millis(100);

type Neighbour = (u32, IpAddr);

/// What is taken from the node at one instant.
struct Taken {
    state: Option<Arc<NodeState>>,
    links: Interfaces,
    tables: BTreeSet<u32>,
    ways: BTreeMap<IpAddr, Way>,
    /// As [`crate::kernel::LinuxKernel::neighbours_answer`] says.
    neighbours: BTreeMap<Neighbour, Option<bool>>,
    learned: Option<Learned>,
    checks: Vec<Check>,
}

/// Looks at the node. Takes a few seconds if neighbours do not answer.
///
/// # Errors
/// A kernel that does not tell what its interfaces are.
pub async fn examine(node: &Handle<Node>, liveness: &liveness::Handle) -> Result<DoctorReport, Failure> {
    let mut taken = node.call(take).await?;
    let begun = Instant::now();
    while taken.neighbours.values().any(Option::is_none) && begun.elapsed() < PATIENCE {
        tokio::time::sleep(POLL).await;
        let wanted: BTreeSet<Neighbour> = taken.neighbours.keys().copied().collect();
        taken.neighbours = node.call(move |node| neighbours(node, &wanted)).await?;
    }
    let ports = background::apart(node, observe::snapshot, |taken| {
        let parts = Parts { ports: true, devices: true, ..Parts::default() };
        let names = taken.names(None);
        taken.tell(parts, names.as_deref(), &SharedRoutes::default(), |told| Ok(told.ports.to_vec()))
    });
    let ports = ports.await?;
    let functions = liveness.report().await;
    background::aside(move || report(&taken, &ports, &functions)).await
}

fn take(node: &mut Node) -> Result<Taken, Failure> {
    let state = node.made();
    let links = node.kernel.links().map_err(|error| kernel_failure("interfaces", &error))?;
    let mut checks = vec![machine::boundary(node.kernel.has_boundary(), state.is_some())];
    checks.push(pins(node));
    let learned = node.learning().cloned();
    let Some(wanted) = &state else {
        let (tables, ways, neighbours) = Default::default();
        return Ok(Taken { state, links, tables, ways, neighbours, learned, checks });
    };
    let failed = |error: KernelError| kernel_failure("tables", &error);
    let tables = node.kernel.known_tables(&fitness::named_tables(wanted)).map_err(failed)?;
    let hops = plan::next_hops(wanted);
    let ways: BTreeMap<IpAddr, Way> =
        hops.iter().take(NEXT_HOPS_MAX).map(|hop| (*hop, node.kernel.way(*hop))).collect();
    let asked = ways.values().filter_map(|way| match way {
        Way::Via(link, neighbour) => Some((*link, *neighbour)),
        Way::None | Way::Own => None,
    });
    let neighbours = neighbours(node, &asked.collect())?;
    Ok(Taken { state, links, tables, ways, neighbours, learned, checks })
}

fn neighbours(node: &mut Node, wanted: &BTreeSet<Neighbour>) -> Result<BTreeMap<Neighbour, Option<bool>>, Failure> {
    let found = node.kernel.neighbours_answer(wanted);
    found.map_err(|error| kernel_failure("neighbours", &KernelError::netlink("list neighbours", error)))
}

fn pins(node: &Node) -> Check {
    let directory = node.plane.pin_dir();
    let about = directory.display().to_string();
    if Dataplane::is_pinned(directory) {
        return Check::ok("pins", about, "programs, links and maps are pinned: forwarding does not need segued");
    }
    let reason = "nothing is pinned here: forwarding would end with segued";
    Check::wrong("pins", about, reason, "apply a configuration; if that does not help, restart segued")
}

fn report(taken: &Taken, ports: &[PortReport], functions: &[FunctionReport]) -> DoctorReport {
    let mut checks = machine::kernel();
    checks.extend(machine::neighbour_tables());
    checks.extend(taken.checks.iter().cloned());
    let Some(state) = &taken.state else {
        checks.push(Check::note("state", "node", "nothing is applied yet", "`segue apply FILE`"));
        return DoctorReport { node: String::new(), checks };
    };
    checks.extend(machine::sysctls(state));
    checks.extend(fitness::ports(state, &taken.links));
    checks.extend(
        ports
            .iter()
            .flat_map(|port| &port.problems)
            .map(|problem| Check::wrong("port", problem.key.clone(), problem.message.clone(), problem.remedy.clone())),
    );
    checks.extend(peers::checksums(ports));
    checks.extend(fitness::addresses(state, &taken.links));
    checks.extend(fitness::sids(state));
    checks.extend(taken.learned.iter().flat_map(labels::learned));
    checks.extend(fitness::tables(state, &taken.tables));
    checks.extend(ways(state, taken));
    checks.extend(fitness::mtu(state, &taken.links, &egress(taken)));
    checks.extend(functions.iter().map(function));
    checks.extend(virtual_report::checks(state));
    checks.extend(fitness::unwatched(state));
    DoctorReport { node: state.node.clone(), checks }
}

/// The link by which packets to each first segment leave.
fn egress(taken: &Taken) -> fitness::Egress {
    let by_number: BTreeMap<u32, (&String, u32)> =
        taken.links.0.iter().map(|(name, link)| (link.ifindex, (name, link.mtu))).collect();
    let leads = taken.ways.iter().filter_map(|(hop, way)| match (hop, way) {
        (IpAddr::V6(hop), Way::Via(link, _)) => {
            let (name, mtu) = by_number.get(link)?;
            Some((*hop, ((*name).clone(), *mtu)))
        }
        _ => None,
    });
    leads.collect()
}

/// Whether there is a way to each next hop, and whether the neighbour there answers.
fn ways(state: &NodeState, taken: &Taken) -> Vec<Check> {
    let own = |hop: &IpAddr| match hop {
        IpAddr::V6(hop) => state.sids.iter().any(|sid| sid.sid.contains(hop)),
        IpAddr::V4(_) => false,
    };
    let mut checks = Vec::new();
    for (hop, way) in taken.ways.iter().filter(|(hop, _)| !own(hop)) {
        let name = |link: u32| taken.links.name(link).map_or_else(|| link.to_string(), str::to_owned);
        checks.push(match way {
            Way::Own => Check::ok("neighbour", hop.to_string(), "an address of this node"),
            Way::None => {
                let reason = "the main routing table has no way there";
                let remedy = format!("`ip route add {hop} via GATEWAY`, or let a routing protocol bring the route");
                Check::wrong("neighbour", hop.to_string(), reason, remedy)
            }
            Way::Via(link, neighbour) => match taken.neighbours.get(&(*link, *neighbour)) {
                Some(Some(true)) => {
                    Check::ok("neighbour", hop.to_string(), format!("{neighbour} on {} answers", name(*link)))
                }
                _ => {
                    let reason = format!("the way leads to {neighbour} on {}, who does not answer", name(*link));
                    let remedy = "look whether it is up, on this link, and has this address (`ip neighbour`, `ping`)";
                    Check::wrong("neighbour", hop.to_string(), reason, remedy)
                }
            },
        });
    }
    checks
}

fn function(function: &FunctionReport) -> Check {
    let about = function.sid.clone();
    if function.state == "up" {
        let probe = function.probe.as_ref().map(|probe| format!(", {} probe {}", probe.kind, probe.last));
        return Check::ok("function", about, format!("up{}", probe.unwrap_or_default()));
    }
    let remedy = format!(
        "look at the function behind {} and {} (`segue get functions`); it is taken up again by itself",
        function.to_function.name, function.from_function.name
    );
    Check::wrong("function", about, format!("down: {}", function.reason), remedy)
}
