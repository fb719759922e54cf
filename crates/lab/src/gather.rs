//! A capture at several places at once, into one pcapng file: each interface of each node is an interface of the file, and each packet has its direction.

use std::io::{BufReader, IsTerminal, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use segue_api::capture::{CaptureRequest, Format};
use segue_wire::mpls::LabelStack;
use segue_wire::packet::parse_as_far_as_possible;
use segue_wire::{LayerKind, protocol};
use segue_wiring::{LABEL, LabPlan, Labels};

use crate::blocks::{Blocks, Packet};
use crate::capture::{self, CaptureArguments, open};
use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::read;
use crate::recording;
pub use crate::recording::End;
use crate::seen::{Inner, Seen, dissect};
use crate::state::LabRecord;

/// The label in front of an entropy label.
const ENTROPY_INDICATOR: u32 = 7;
/// What may be in front of a stack of labels, which may be in UDP.
const IN_FRONT: [LayerKind; 5] =
    [LayerKind::Ethernet, LayerKind::Vlan, LayerKind::Ipv6, LayerKind::Ipv4, LayerKind::Udp];
/// As good as for ever.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// Which packets, and where they are looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Segue nodes, with the ports of each; all if there is none.
    pub places: Vec<(String, Vec<String>)>,
    /// Which of the packets there.
    pub filter: Filter,
}

/// Which packets.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// All.
    All,
    /// Those to a SID, or with it in their segment list.
    Sid(Ipv6Addr),
    /// Those with a label in their stack.
    Label(u32),
    /// Those with what is left of a chain's stack of labels, and those between its ends without a steering header.
    Stack {
        /// First to last.
        labels: Vec<u32>,
        /// Addresses of both ends, where they are hosts.
        ends: [Vec<IpAddr>; 2],
    },
    /// Those with the segment list of a chain, and those between its ends without a steering header.
    Chain {
        /// In the order of traversal.
        segments: Vec<Ipv6Addr>,
        /// Addresses of both ends, where they are hosts.
        ends: [Vec<IpAddr>; 2],
    },
}

impl Wanted {
    /// What a word names: a link `edge1--nfv1`, a SID by its label, or a chain by its label. None if it is something else, such as a node.
    ///
    /// # Errors
    /// A link or label that does not exist.
    pub fn of(word: &str, plan: &LabPlan, labels: &Labels) -> Result<Option<Self>> {
        if let Some((a, b)) = word.split_once("--") {
            return Self::link(a.trim_start_matches(LABEL), b.trim_start_matches(LABEL), plan).map(Some);
        }
        let Some(name) = word.strip_prefix(LABEL) else { return Ok(None) };
        if plan.nodes.contains_key(name) || plan.hosts.contains_key(name) || plan.functions.contains_key(name) {
            return Ok(None);
        }
        let label = labels.find(word)?;
        let segments: Vec<Ipv6Addr> = label.value.split(',').filter_map(|sid| sid.parse().ok()).collect();
        let stack: Vec<u32> = label.value.split(',').filter_map(|label| label.parse().ok()).collect();
        match name.split_once('.') {
            Some(("chain", rest)) => {
                let chain = rest.split('.').next().unwrap_or_default();
                let mut nodes: Vec<String> = Vec::new();
                for step in plan.explain().iter().filter(|step| step.chain == chain) {
                    nodes.extend(
                        step.path
                            .iter()
                            .chain([&step.node])
                            .filter(|node| !nodes.contains(node))
                            .cloned()
                            .collect::<Vec<_>>(),
                    );
                    nodes.dedup();
                }
                let places = nodes.into_iter().map(|node| (node, Vec::new())).collect();
                let ends = ends(plan, chain, rest.contains(".reverse"));
                let filter = match stack.is_empty() {
                    true => Filter::Chain { segments, ends },
                    false => Filter::Stack { labels: stack, ends },
                };
                Ok(Some(Self { places, filter }))
            }
            Some((node, _)) if plan.nodes.contains_key(node) => {
                let filter = match (segments.as_slice(), stack.as_slice()) {
                    ([sid], _) => Filter::Sid(*sid),
                    (_, [label]) => Filter::Label(*label),
                    _ => return Ok(None),
                };
                Ok(Some(Self { places: vec![(node.to_owned(), Vec::new())], filter }))
            }
            _ => Ok(None),
        }
    }

    fn link(a: &str, b: &str, plan: &LabPlan) -> Result<Self> {
        let mut places: Vec<(String, Vec<String>)> = Vec::new();
        let joins = |ends: &[(&str, &segue_wiring::Interface); 2]| [(a, b), (b, a)].contains(&(ends[0].0, ends[1].0));
        for (name, interface) in plan.links().into_iter().filter(joins).flatten() {
            match places.iter_mut().find(|(node, _)| node == name) {
                Some((_, ports)) => ports.push(interface.name.clone()),
                None => places.push((name.to_owned(), vec![interface.name.clone()])),
            }
        }
        if places.is_empty() {
            let (what, remedy) =
                (format!("there is no link between {a} and {b}"), "name its two ends, as in `segue lab plan`");
            return Err(LabError::Exchange { place: "segue lab capture".into(), what, remedy: remedy.into() });
        }
        Ok(Self { places, filter: Filter::All })
    }
}

/// Addresses of a chain's ends, in the direction that is meant: those that its policies steer between are its hosts'.
fn ends(plan: &LabPlan, chain: &str, reverse: bool) -> [Vec<IpAddr>; 2] {
    let name = |ends: &str| -> Vec<IpAddr> {
        plan.hosts
            .get(ends)
            .map(|host| host.interface.addresses.iter().map(ipnet::IpNet::addr).collect())
            .unwrap_or_default()
    };
    let steps = || plan.explain().iter().filter(|step| step.chain == chain);
    let at = |forward: bool| {
        steps().find(|step| (step.direction == segue_plan::Direction::Forward) == forward && step.step == 0)
    };
    let host_of = |forward: bool| at(forward).map(|step| hosts_at(plan, &step.node, name)).unwrap_or_default();
    let both = [host_of(true), host_of(false)];
    let [from, to] = both;
    if reverse { [to, from] } else { [from, to] }
}

fn hosts_at(plan: &LabPlan, node: &str, addresses: impl Fn(&str) -> Vec<IpAddr>) -> Vec<IpAddr> {
    plan.hosts.iter().filter(|(_, host)| host.node == node).flat_map(|(name, _)| addresses(name)).collect()
}

impl Filter {
    /// Whether a frame is wanted.
    #[must_use]
    pub fn takes(&self, frame: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Sid(sid) => {
                steering(frame).is_some_and(|(destination, segments)| destination == *sid || segments.contains(sid))
            }
            Self::Label(label) => stack(frame).contains(label),
            Self::Stack { labels, ends } => match stack(frame).as_slice() {
                [] => steering(frame).is_none() && between(frame, ends),
                left => labels.ends_with(left),
            },
            Self::Chain { segments, ends } => match steering(frame) {
                // The last segment needs no SRH: what is inside has to tell, if it is no frame, whose SIDs are of one chain.
                Some((destination, list)) if list.is_empty() => {
                    segments.last() == Some(&destination) && (is_around_frame(frame) || between(frame, ends))
                }
                Some((destination, list)) => {
                    let reduced = segments.get(1..).unwrap_or_default();
                    segments.contains(&destination) && (list == *segments || list.as_slice() == reduced)
                }
                None => between(frame, ends),
            },
        }
    }
}

/// Whether the innermost packet goes from one end to the other.
fn between(frame: &[u8], ends: &[Vec<IpAddr>; 2]) -> bool {
    let (layers, _) = parse_as_far_as_possible(frame);
    let found = layers.five_tuple();
    found.is_some_and(|found| ends[0].contains(&found.source) && ends[1].contains(&found.destination))
}

/// Whether what is in the outer header is a frame.
fn is_around_frame(frame: &[u8]) -> bool {
    matches!(dissect(frame), Seen::Bare(inner) if inner.protocol == protocol::ETHERNET)
}

/// The labels of a frame, first to last, without an entropy label (RFC 6790), of which no chain knows.
fn stack(frame: &[u8]) -> Vec<u32> {
    let (layers, _) = parse_as_far_as_possible(frame);
    let behind = layers.as_slice().iter().find(|layer| !IN_FRONT.contains(&layer.kind));
    let labels = behind.filter(|layer| layer.kind == LayerKind::Mpls).map(|layer| layer.bytes(frame));
    let Some(Ok(stack)) = labels.map(LabelStack::new_checked) else { return Vec::new() };
    stack.entries().map(|entry| entry.label).take_while(|label| *label != ENTROPY_INDICATOR).collect()
}

/// Destination of the outer header and segment list, of a packet with a steering header.
fn steering(frame: &[u8]) -> Option<(Ipv6Addr, Vec<Ipv6Addr>)> {
    match dissect(frame) {
        Seen::Enveloped(envelope, _) | Seen::SrhOnly(envelope) => {
            Some((envelope.destination, envelope.srh.map(|srh| srh.segments).unwrap_or_default()))
        }
        Seen::Bare(Inner { destination: IpAddr::V6(destination), protocol: protocol::ETHERNET, .. }) => {
            Some((destination, Vec::new()))
        }
        Seen::Bare(_) | Seen::Other | Seen::Malformed(_) => None,
    }
}

/// `lab capture`: of a link, a SID or a chain here; of a node, host or function as [`capture::capture`] does it.
///
/// # Errors
/// If the lab or the place does not exist, or the capture cannot be started.
pub fn run(roots: &Roots, arguments: &CaptureArguments) -> Result<u8> {
    let paths = LabPaths::new(roots, &arguments.lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: arguments.lab.clone() })?;
    let several = arguments.node.contains("--") || arguments.node.starts_with(LABEL);
    let wanted = match several.then(|| read::of_lab(&paths, &record)).transpose()? {
        Some((_, plan)) => Wanted::of(&arguments.node, &plan, &Labels::of(&plan))?,
        None => None,
    };
    let Some(wanted) = wanted else { return capture::capture(roots, arguments) };
    if let Some(port) = &arguments.port {
        let what = format!("{} is no node, so it has no interface {port}", arguments.node);
        let remedy = "leave the interface out, or name a node".to_owned();
        return Err(LabError::Exchange { place: "segue lab capture".into(), what, remedy });
    }
    let end = End { count: arguments.count, seconds: arguments.seconds, ..End::default() };
    let path = arguments.write.as_deref().unwrap_or(Path::new("tcpdump"));
    let count = match arguments.write.as_deref() {
        Some(file) if file != Path::new(capture::STDOUT) => {
            let made = std::fs::File::create(file);
            gather(&record, &wanted, end, &mut made.map_err(LabError::io("write", file, "choose another file"))?, path)?
        }
        Some(_) => {
            if std::io::stdout().is_terminal() {
                let cause = std::io::Error::other("packets in pcapng are not for people");
                let remedy = "give -w a file, or pipe it: ... -w - | tshark -r -";
                return Err(LabError::io("write", "the terminal", remedy)(cause));
            }
            gather(&record, &wanted, end, &mut std::io::stdout(), path)?
        }
        None => {
            let mut viewer = capture::viewer()?;
            let Some(mut input) = viewer.stdin.take() else { return Ok(1) };
            let count = gather(&record, &wanted, end, &mut input, path)?;
            drop(input);
            let _ = viewer.wait();
            count
        }
    };
    eprintln!("{count} packets");
    Ok(0)
}

/// Captures until the end, and writes one pcapng file. Returns how many packets it has.
///
/// # Errors
/// If none of the places has a data plane, an agent refuses, or the file cannot be written.
pub fn gather(record: &LabRecord, wanted: &Wanted, end: End, sink: &mut dyn Write, path: &Path) -> Result<u64> {
    let (sender, packets) = channel::<(String, Packet)>();
    let mut streams: Vec<UnixStream> = Vec::new();
    let mut threads = Vec::new();
    for (node, ports) in &wanted.places {
        // Hosts, functions and nodes of other kinds have no data plane of Segue.
        let Some(socket) = record.nodes.iter().find(|one| one.name == *node).and_then(|one| one.socket.as_ref()) else {
            continue;
        };
        let request = CaptureRequest { ports: ports.clone(), format: Format::Pcapng, ..CaptureRequest::default() };
        let answer = open(node, socket, &request, FOR_EVER)?;
        let broken = || LabError::io("read capture from", socket, "see whether the agent lives");
        streams.push(answer.body.get_ref().try_clone().map_err(broken())?);
        let mut blocks: Blocks<BufReader<UnixStream>> = Blocks::open(answer.body).map_err(broken())?;
        let (to, node, filter) = (sender.clone(), node.clone(), wanted.filter.clone());
        threads.push(std::thread::spawn(move || {
            while let Ok(Some(packet)) = blocks.next_packet() {
                if filter.takes(&packet.frame) && to.send((node.clone(), packet)).is_err() {
                    return;
                }
            }
        }));
    }
    drop(sender);
    if streams.is_empty() {
        let what = "none of the places has a data plane of Segue".to_owned();
        let remedy = "capture at a node, host or function by its name: that is tcpdump's".to_owned();
        return Err(LabError::Exchange { place: "segue lab capture".into(), what, remedy });
    }
    let written =
        recording::write(&packets, end, sink).map_err(LabError::io("write", path, "choose a place with space"));
    for stream in &streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
    threads.into_iter().for_each(|thread| {
        let _ = thread.join();
    });
    written
}

#[cfg(test)]
mod tests {
    use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

    use super::*;

    const TOPOLOGY: &str = "
name: x
nodes: { edge1: {}, nfv1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, nfv1] }, { between: [nfv1, edge2] }]
functions: { fw: { node: nfv1 }, other: { node: nfv1 } }
chains:
  web: { from: client, to: server, via: [fw], match: { protocol: tcp } }
  mail: { from: client, to: server, via: [other], match: { protocol: udp } }
";

    fn wanted(word: &str) -> Result<Option<Wanted>> {
        let plan = segue_wiring::load_plan(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}")).1;
        Wanted::of(word, &plan, &Labels::of(&plan))
    }

    fn steered(list: &[&str], at: usize) -> Vec<u8> {
        let list: Vec<Ipv6Addr> = list.iter().map(|sid| sid.parse().unwrap()).collect();
        let source: Ipv6Addr = "fc00:5ea:1::1".parse().unwrap();
        let left = u8::try_from(list.len() - 1 - at).unwrap();
        PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6(Ipv6Repr::new(source, list[at]))
            .srh(SrhRepr::reduced(&list).with_segments_left(left))
            .inner_ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), "2001:db8:2::2".parse().unwrap()))
            .udp(UdpRepr::new(1, 2))
            .build()
    }

    #[test]
    fn labels_of_stacks_are_filters_too() {
        let plan = segue_wiring::load_plan(&TOPOLOGY.replacen("\n", "\ndomain: { dataplane: sr-mpls }\n", 1), "x");
        let (_, plan) = plan.unwrap_or_else(|errors| panic!("{errors}"));
        let labels = Labels::of(&plan);
        let wanted = |word: &str| Wanted::of(word, &plan, &labels).unwrap().unwrap();
        let frame = |stack: &[u32], to: &str| {
            let entry =
                |label: &u32| segue_wire::mpls::MplsEntry { label: *label, time_to_live: 9, ..Default::default() };
            let front = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let stack: Vec<_> = stack.iter().map(entry).collect();
            let front = if stack.is_empty() { front } else { front.mpls(&stack) };
            let inner = Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), to.parse().unwrap());
            if stack.is_empty() { front.ipv6(inner) } else { front.inner_ipv6(inner) }.udp(UdpRepr::new(1, 2)).build()
        };
        let own: u32 = labels.find("$nfv1.fw").unwrap().value.parse().unwrap();
        let at = wanted("$nfv1.fw");
        assert_eq!((&at.places[..], &at.filter), (&[("nfv1".to_owned(), Vec::new())][..], &Filter::Label(own)));
        let there = "2001:db8:2::2";
        assert!(at.filter.takes(&frame(&[16_002, own, 3000], there)) && !at.filter.takes(&frame(&[16_002], there)));
        let Filter::Stack { labels: stack, .. } = wanted("$chain.web").filter else { panic!("a stack") };
        let takes = |stack: &[u32], to: &str| wanted("$chain.web").filter.takes(&frame(stack, to));
        for from in 0..stack.len() {
            assert!(takes(&stack[from..], there), "{from} are off");
            assert!(takes(&[&stack[from..], &[7, 99_000]].concat(), there), "an entropy label is no part of it");
        }
        assert!(!takes(&[17], there) && takes(&[], there) && !takes(&[], "2001:db8:3::2"));
        // In UDP they are the same.
        let in_udp = |stack: &[u32], port: u16| {
            let labelled = frame(stack, there);
            PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(Ipv6Repr::new("fc00:5ea:1::1".parse().unwrap(), "fc00:5ea:3::1".parse().unwrap()))
                .udp(UdpRepr::new(50_000, port))
                .payload(&labelled[14..])
                .build()
        };
        let wanted = wanted("$chain.web").filter;
        assert!(wanted.takes(&in_udp(&stack, 6635)) && !wanted.takes(&in_udp(&stack, 6634)));
        assert!(!wanted.takes(&in_udp(&[17], 6635)));
    }

    #[test]
    fn frames_in_ipv6_are_told_by_their_sid() {
        let topology = TOPOLOGY.split_once("functions").map_or(TOPOLOGY, |(before, _)| before);
        let chains = "chains: { wire: { from: client, to: server, via: [], ethernet: {} } }\n";
        let (_, plan) =
            segue_wiring::load_plan(&format!("{topology}{chains}"), "x").unwrap_or_else(|errors| panic!("{errors}"));
        let filter = Wanted::of("$chain.wire", &plan, &Labels::of(&plan)).unwrap().unwrap().filter;
        let frame = |sid: &str| {
            PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(Ipv6Repr::new("fc00:5ea:1::1".parse().unwrap(), sid.parse().unwrap()))
                .inner_ethernet([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4])
                .payload(&[0x88, 0xb5, 1, 2, 3])
                .build()
        };
        assert!(filter.takes(&frame("fc00:5e9:3:100::")) && !filter.takes(&frame("fc00:5e9:3:101::")));
    }

    #[test]
    fn links_sids_and_chains_are_places_with_filters() {
        let link = wanted("edge1--nfv1").unwrap().unwrap();
        assert_eq!(
            link.places,
            [("edge1".to_owned(), vec!["nfv1".to_owned()]), ("nfv1".to_owned(), vec!["edge1".to_owned()])]
        );
        let access = wanted("$client--$edge1").unwrap().unwrap();
        assert_eq!(access.places.len(), 2);
        assert_eq!(wanted("$nfv1").unwrap(), None);
        assert!(wanted("edge1--edge2").unwrap_err().to_string().contains("no link between edge1 and edge2"));
        assert!(wanted("$chain.wbe").unwrap_err().to_string().contains("did you mean $chain.web"));
        let sid = wanted("$nfv1.fw").unwrap().unwrap();
        assert_eq!(sid.places, [("nfv1".to_owned(), Vec::new())]);
        let (fw, other, out) = ("fc00:5e9:2:100::", "fc00:5e9:2:102::", "fc00:5e9:3:46::");
        assert!(sid.filter.takes(&steered(&[fw, out], 0)) && !sid.filter.takes(&steered(&[other, out], 0)));
        let chain = wanted("$chain.web").unwrap().unwrap();
        assert!(chain.places.iter().map(|(node, _)| node.as_str()).eq(["edge1", "nfv1", "edge2"]));
        assert!(chain.filter.takes(&steered(&[fw, out], 0)) && chain.filter.takes(&steered(&[fw, out], 1)));
        assert!(!chain.filter.takes(&steered(&[other, out], 0)));
        // Without an SRH, the last segment and what is inside.
        let last = |to: &str| {
            PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(Ipv6Repr::new("fc00:5ea:2::1".parse().unwrap(), out.parse().unwrap()))
                .inner_ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), to.parse().unwrap()))
                .udp(UdpRepr::new(1, 2))
                .build()
        };
        assert!(chain.filter.takes(&last("2001:db8:2::2")) && !chain.filter.takes(&last("2001:db8:3::2")));
        let bare = |from: &str, to: &str| {
            PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(Ipv6Repr::new(from.parse().unwrap(), to.parse().unwrap()))
                .udp(UdpRepr::new(1, 2))
                .build()
        };
        assert!(chain.filter.takes(&bare("2001:db8:1::2", "2001:db8:2::2")));
        assert!(!chain.filter.takes(&bare("2001:db8:2::2", "2001:db8:1::2")));
    }
}
