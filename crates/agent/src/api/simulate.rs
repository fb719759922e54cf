//! POST /v1/simulate: what would become of a packet. POST /v1/inject: one that really goes in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::{Json, extract::State};
use ipnet::Ipv6Net;
use segue_api::simulation::{
    InjectReport, LABEL, SimulatedEgress, SimulatedStep, SimulatedVisit, SimulationReport, SimulationRequest,
    hexadecimal, label_stack, octets,
};
use segue_dataplane::{Compiled, Fib, FibAnswer, FibQuestion, FibVerdict, Interfaces, PathMtu, Reader};
use segue_model::node::NodeState;
use segue_model::service_label::{key_label, named_key, sid_or_label};
use segue_simulation::{Arrival, ByKernel, Egress, Kernel, Simulated, View};

use super::Context;
use crate::{
    apply::kernel_failure,
    background,
    kernel::Kernel as _,
    node::Node,
    plane::DataPlane as _,
    problem::{ErrorBody, Failure, Fault, Problem},
    xdp,
};

/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// The Ethertype of label stacks.
const MPLS: [u8; 2] = [0x88, 0x47];
/// More than any link of Segue's carries.
const LONGEST: usize = 65_535;

/// What is taken from the node at one instant.
struct Taken {
    state: Arc<NodeState>,
    reader: Reader,
    fib: Fib,
    links: Interfaces,
    down: std::collections::BTreeSet<Ipv6Net>,
    path_mtus: Vec<PathMtu>,
}

/// The kernel of this node. A question that it cannot be asked is one that it does not answer.
struct Asked<'a>(&'a Fib);

impl Kernel for Asked<'_> {
    fn fib(&mut self, question: &FibQuestion) -> FibAnswer {
        self.0.ask(question).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            FibAnswer {
                verdict: FibVerdict::Kernel("it could not be asked; see the agent's log"),
                ifindex: 0,
                next_hop: question.destination,
                mtu: 0,
                source_mac: [0; 6],
                destination_mac: [0; 6],
            }
        })
    }
}

/// Says what the node would do with a packet that comes in by a port: from its configuration and the kernel's tables; nothing is sent or counted.
#[utoipa::path(post, path = "/v1/simulate", request_body = SimulationRequest, responses(
    (status = 200, description = "What would become of it", body = SimulationReport),
    (status = 400, description = "No such port, or no packet", body = ErrorBody)))]
pub async fn simulate(State(context): State<Context>, body: String) -> Result<Json<SimulationReport>, Failure> {
    let request = parse(&body)?;
    let report = background::apart(&context.node, take, move |taken| report(&taken, &request));
    Ok(Json(report.await?))
}

/// Puts a packet in, as if it had come by a port: it is counted, and what comes of it really happens. Ports on XDP only.
#[utoipa::path(post, path = "/v1/inject", request_body = SimulationRequest, responses(
    (status = 200, description = "It went in", body = InjectReport),
    (status = 400, description = "No such port, or no packet", body = ErrorBody),
    (status = 409, description = "The kernel refused", body = ErrorBody)))]
pub async fn inject(State(context): State<Context>, body: String) -> Result<Json<InjectReport>, Failure> {
    let request = parse(&body)?;
    let put = context.node.call(move |node| {
        let plane = node.plane.dataplane_mut().ok_or_else(nothing_applied)?;
        let port = plane.applied().and_then(|compiled| compiled.port(&request.port));
        let port = port.ok_or_else(|| no_port(&request.port))?.entry;
        let frame = frame(&request, port.mac)?;
        let put = plane.inject(&frame, port.ifindex);
        if !put.map_err(|error| Failure::one(Fault::Kernel, xdp::problem(&error)))? {
            let message =
                format!("functions on the kernel's path return packets by {}: none can be put in there", request.port);
            let remedy = "put it in at the port by which it comes to the node, or simulate it";
            return Err(Failure::one(Fault::Request, Problem::new("port", message, remedy)));
        }
        Ok(InjectReport { port: request.port, length: frame.len() })
    });
    Ok(Json(put.await?))
}

fn parse(body: &str) -> Result<SimulationRequest, Failure> {
    serde_json::from_str(body).map_err(|error| {
        let remedy = "give `port`, and `packet` or `frame` in hexadecimal";
        Failure::one(Fault::Request, Problem::new("request body", error.to_string(), remedy))
    })
}

fn nothing_applied() -> Failure {
    Failure::one(Fault::Request, Problem::new("state", "nothing was applied yet", "apply a configuration"))
}

fn no_port(name: &str) -> Failure {
    let message = format!("there is no port `{name}`");
    Failure::one(Fault::Request, Problem::new("port", message, "see `segue get ports`"))
}

fn take(node: &mut Node) -> Result<Taken, Failure> {
    let links = node.kernel.links().map_err(|error| kernel_failure("interfaces", &error))?;
    let down = node.plane.down();
    let state = node.shared_state().ok_or_else(nothing_applied)?;
    let plane = node.plane.dataplane().ok_or_else(nothing_applied)?;
    let fib = plane.fib().map_err(|error| Failure::one(Fault::Kernel, xdp::problem(&error)))?;
    Ok(Taken { state, reader: plane.reader(), fib, links, down, path_mtus: plane.path_mtus(Instant::now()) })
}

/// The frame that is asked about. `mac`: the port's own address.
fn frame(request: &SimulationRequest, mac: [u8; 6]) -> Result<Vec<u8>, Failure> {
    let wrong = |what: &str, problem: String| {
        Failure::one(Fault::Request, Problem::new(what, problem, "give the octets of one packet in hexadecimal"))
    };
    let frame = match (&request.packet, &request.frame) {
        (Some(packet), None) => {
            let packet = octets(packet).map_err(|problem| wrong("packet", problem))?;
            let ethertype = match packet.first().map(|octet| octet >> 4) {
                Some(_) if request.labelled => MPLS,
                Some(4) => [0x08, 0x00],
                Some(6) => [0x86, 0xdd],
                _ => return Err(wrong("packet", "it begins with no IPv4 and no IPv6 header".to_owned())),
            };
            [&mac[..], &[2, 0, 0, 0, 0, 0], &ethertype, &packet].concat()
        }
        (None, Some(frame)) => octets(frame).map_err(|problem| wrong("frame", problem))?,
        _ => return Err(wrong("packet", "give either `packet` or `frame`".to_owned())),
    };
    match frame.len() {
        ETHERNET..=LONGEST => Ok(frame),
        length => Err(wrong("frame", format!("it has {length} octets; 14 to {LONGEST} are possible"))),
    }
}

fn report(taken: &Taken, request: &SimulationRequest) -> Result<SimulationReport, Failure> {
    let compiled = taken.reader.applied().ok_or_else(nothing_applied)?;
    let port = compiled.port(&request.port).ok_or_else(|| no_port(&request.port))?;
    let frame = frame(request, port.entry.mac)?;
    let remembered = request.remembered.as_deref().map(remembered).transpose()?;
    let Taken { state, links, down, path_mtus, .. } = taken;
    let view = View { compiled, state, interfaces: links, down, path_mtus };
    let simulated =
        segue_simulation::simulate(view, &mut Asked(&taken.fib), &request.port, &Arrival { frame, remembered });
    let simulated = simulated.map_err(|_| no_port(&request.port))?;
    let mut rows: Vec<u32> = simulated.steps.iter().flat_map(|step| step.counters.iter().copied()).collect();
    rows.sort_unstable();
    rows.dedup();
    let sums = taken.reader.counted(&rows).map_err(|error| Failure::one(Fault::Kernel, xdp::problem(&error)))?;
    let counted = rows.iter().map(|row| (*row, sums.counter(*row).packets)).collect();
    Ok(told(taken, compiled, &request.port, simulated, &counted))
}

/// The SID, or the key of the label, whose proxy remembers.
fn remembered(by: &str) -> Result<Ipv6Net, Failure> {
    let key = match by.strip_prefix(LABEL) {
        Some(label) => named_key(label).ok_or_else(|| format!("{label:?} is no label")),
        None => by.parse().map_err(|error: ipnet::AddrParseError| error.to_string()),
    };
    key.map_err(|error| {
        let remedy = "give the prefix of a SID, or `label` with its number";
        Failure::one(Fault::Request, Problem::new("remembered", error, remedy))
    })
}

fn told(
    taken: &Taken,
    _compiled: &Compiled,
    port: &str,
    simulated: Simulated,
    counted: &BTreeMap<u32, u64>,
) -> SimulationReport {
    let Simulated { steps, end, frame, assumed, by_kernel } = simulated;
    let mut steps: Vec<SimulatedStep> = steps
        .into_iter()
        .map(|step| SimulatedStep {
            what: step.what.to_owned(),
            name: step.name,
            detail: step.detail,
            packets: step.counters.first().and_then(|row| counted.get(row)).copied(),
        })
        .collect();
    let name = |ifindex: u32| taken.links.name(ifindex).map_or_else(|| ifindex.to_string(), str::to_owned);
    let egress = |egress: Egress, frame: &[u8]| {
        let mac = frame.get(..6).filter(|mac| mac.iter().any(|octet| *octet != 0));
        let mac = mac.map(|mac| mac.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"));
        SimulatedEgress { port: name(egress.ifindex), next_hop: egress.next_hop.map(|hop| hop.to_string()), mac }
    };
    let is_forwarded = end.outcome.kind() == segue_abi::OutcomeKind::Forwarded;
    let mut reason = end.reason;
    let mut out = end.egress.filter(|_| is_forwarded).map(|way| egress(way, &frame));
    let mut after = frame;
    let mut kernel = |detail: String| {
        steps.push(SimulatedStep { what: "kernel".to_owned(), name: String::new(), detail, packets: None });
    };
    let by_kernel = match by_kernel {
        None => false,
        Some(ByKernel::Own) => {
            kernel("it is for the node itself".to_owned());
            true
        }
        Some(ByKernel::No(why)) => {
            kernel(format!("it does not send it on: {why}"));
            reason = if reason.is_empty() { why } else { format!("{reason}; {why}") };
            false
        }
        Some(ByKernel::Forwards(way, frame)) => {
            after = frame;
            let way = egress(way, &after);
            let hop = way.next_hop.as_deref().unwrap_or_default();
            kernel(format!("it sends it out by {} to {hop}, unless rules of its own say otherwise", way.port));
            out = Some(way);
            true
        }
    };
    let is_labelled = after.get(12..ETHERNET) == Some(&MPLS);
    SimulationReport {
        node: taken.state.node.clone(),
        port: port.to_owned(),
        steps,
        outcome: end.outcome.name().to_owned(),
        kind: end.outcome.kind().name().to_owned(),
        text: end.outcome.text().to_owned(),
        reason,
        certain: end.certain,
        assumed,
        egress: out,
        by_kernel,
        function: end.visit.map(|visit| SimulatedVisit {
            sid: key_label(&visit.sid).map_or_else(|| visit.sid.to_string(), |_| sid_or_label(&visit.sid)),
            back_by: visit.back_by,
            steered: visit.steered.map(|frame| hexadecimal(frame.get(ETHERNET..).unwrap_or_default())),
        }),
        labels: if is_labelled { label_stack(after.get(ETHERNET..).unwrap_or_default()) } else { Vec::new() },
        packet: hexadecimal(after.get(ETHERNET..).unwrap_or_default()),
        headers: segue_wire::Snapshot::new(&after, after.len()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use segue_model::service_label::{label_instance_key, label_key};

    use super::*;

    #[test]
    fn packets_with_labels_come_in_frames_of_labels() {
        // Label 500,000 begins with four bits that are of no IP version.
        let packet = "7a1200400000014045";
        let request =
            |labelled| SimulationRequest { packet: Some(packet.to_owned()), labelled, ..SimulationRequest::default() };
        let labelled = frame(&request(true), [2; 6]).expect("a frame");
        assert_eq!(labelled[..14], [2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0x88, 0x47]);
        assert!(frame(&request(false), [2; 6]).is_err(), "it begins with no IP header");
    }

    #[test]
    fn proxies_that_remember_are_sids_or_labels() {
        assert_eq!(remembered("label 15020").expect("a label"), label_key(15_020));
        let instance = label_instance_key(15_020, "a");
        assert_eq!(remembered(&sid_or_label(&instance)).expect("an instance"), instance);
        assert_eq!(remembered("fc00::/48").expect("a SID"), "fc00::/48".parse().expect("a prefix"));
        for wrong in ["label", "label x", "label 1048576", "15020", ""] {
            assert!(remembered(wrong).is_err(), "{wrong}");
        }
    }
}
