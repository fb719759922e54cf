//! The checks of the demo, in the order in which they are shown.

use segue_host::interrupt::{Interrupt, Second};
use segue_plan::{Explanation, StepAction};

use super::hops::{Counters, Flow, sockets, way};
use super::proof::{Expected, Recording, Tally, Tcpdump, second_opinion, tally};
use super::report::{Report, rate};
use super::traffic::{self, End, Flow as Sending, family, pairs};
use super::{Scene, function_of};
use crate::error::Result;

/// Octets of the file that is fetched over HTTP.
const FILE_OCTETS: u64 = 8 << 20;
/// Echo requests for each pair of addresses.
const PINGS: u32 = 5;
/// Duration of each iperf3 run, seconds.
const SECONDS: u32 = 2;
/// Named nftables counter that telnet must move.
const TELNET: &str = "telnet_dropped";

/// Some of the checks.
type Part = fn(&Scene<'_>, &mut Report);

/// Makes all of them.
pub(super) fn all(scene: &Scene<'_>, report: &mut Report) {
    let parts: [(&str, Part); 6] = [
        ("Traffic", pings),
        ("", http),
        ("", iperf),
        ("", telnet),
        ("Packets", packets),
        ("The chain, hop by hop", hop_by_hop),
    ];
    let interrupt = Interrupt::watch(Second::Ends);
    for (heading, part) in parts {
        if interrupt.requested() {
            return report.check("runs to its end", false, "interrupted");
        }
        if !heading.is_empty() {
            report.heading(heading);
        }
        part(scene, report);
        if !report.checks.iter().any(|check| check.passed && check.what.starts_with("ping")) {
            // Each further check would only wait for its time to run out. The counters say where packets ended.
            report.heading("Nothing gets through: where do packets end?");
            return hop_by_hop(scene, report);
        }
    }
}

fn both_ways<'a>(scene: &'a Scene<'_>) -> [(&'a End, &'a End); 2] {
    [(&scene.client, &scene.server), (&scene.server, &scene.client)]
}

fn pings(scene: &Scene<'_>, report: &mut Report) {
    for (from, to) in both_ways(scene) {
        for (_, address) in pairs(from, to) {
            let what = format!("ping {} -> {}, {}", from.name, to.name, family(address));
            report.result(&what, traffic::ping(from, address, PINGS), |echo| {
                let figures = format!("{} of {} answered, {:.2} ms", echo.received, echo.sent, echo.milliseconds);
                (echo.sent == PINGS && echo.received == PINGS, figures)
            });
        }
    }
}

fn http(scene: &Scene<'_>, report: &mut Report) {
    for (from, to) in both_ways(scene) {
        let web = traffic::serve(to, &scene.file(&format!("www-{}", to.name)), FILE_OCTETS);
        for (_, address) in pairs(from, to) {
            let what = format!("HTTP download {} -> {}, {}", to.name, from.name, family(address));
            let web = match &web {
                Ok(web) => web,
                Err(error) => {
                    report.check(what, false, error.to_string());
                    continue;
                }
            };
            report.result(&what, traffic::download(from, address, &scene.file("download")), |file| {
                let same = file.digest == web.digest;
                let digest = if same { "SHA-256 matches" } else { "SHA-256 differs" };
                let size = file.octets as f64 / f64::from(1 << 20);
                (same && file.octets == FILE_OCTETS, format!("{size:.1} MiB, {digest}, {}", rate(file.speed * 8.0)))
            });
        }
    }
}

fn iperf(scene: &Scene<'_>, report: &mut Report) {
    let (from, to) = (&scene.client, &scene.server);
    for (_, address) in pairs(from, to) {
        for (flow, arrow) in [(Sending::Tcp, "->"), (Sending::TcpReverse, "<-")] {
            let what = format!("iperf3 TCP {} {arrow} {}, {}", from.name, to.name, family(address));
            report.result(&what, traffic::iperf(from, to, address, flow, SECONDS), |throughput| {
                let figures = format!("{}, {} sent again", rate(throughput.bits_per_second), throughput.lost);
                (throughput.bits_per_second > 1e6, figures)
            });
        }
        let what = format!("iperf3 UDP {} -> {}, {}", from.name, to.name, family(address));
        report.result(&what, traffic::iperf(from, to, address, Sending::Udp(50), 1), |sent| {
            let lost = sent.lost_on_the_way();
            let busy = match sent.overrun {
                0 => String::new(),
                overrun => format!(" ({overrun} found the receiver busy)"),
            };
            let figures = format!("{}, {lost} of {} lost on the way{busy}", rate(sent.bits_per_second), sent.datagrams);
            (lost == 0 && sent.datagrams > 0, figures)
        });
    }
}

fn telnet(scene: &Scene<'_>, report: &mut Report) {
    let (from, to) = (&scene.client, &scene.server);
    let dropped = || -> Result<u64> {
        let counters = Counters::read(scene.paths, scene.plan)?;
        Ok(scene
            .functions()
            .iter()
            .filter_map(|name| counters.of_function(name, TELNET))
            .map(|count| count.packets)
            .sum())
    };
    for (_, address) in pairs(from, to) {
        let what = format!("telnet {} -> {} is refused, {}", from.name, to.name, family(address));
        let tried = || -> Result<(traffic::Telnet, u64)> {
            let before = dropped()?;
            Ok((traffic::telnet(from, to, address)?, dropped()? - before))
        };
        report.result(&what, tried(), |(telnet, dropped)| {
            let figures = format!("{}; the function dropped {dropped} packets", telnet.said);
            (telnet.server_listens && !telnet.connected && dropped > 0, figures)
        });
    }
}

/// One direction of the chain: its steps, and who talks.
struct Side<'a> {
    steps: &'a [Explanation],
    expected: Expected,
    name: String,
}

fn sides<'a>(scene: &'a Scene<'_>) -> Vec<Side<'a>> {
    let side = |steps: &'a [Explanation], from: &End, to: &End| {
        let expected = Expected::of(steps, &from.addresses, &to.addresses)?;
        Some(Side { steps, expected, name: format!("{} -> {}", from.name, to.name) })
    };
    let both = [side(&scene.forward, &scene.client, &scene.server), side(&scene.reverse, &scene.server, &scene.client)];
    both.into_iter().flatten().collect()
}

fn packets(scene: &Scene<'_>, report: &mut Report) {
    if let Err(error) = record_packets(scene, report) {
        report.check("packets are captured", false, error.to_string());
    }
}

/// Records everywhere at once while pings go, then looks at what was recorded.
fn record_packets(scene: &Scene<'_>, report: &mut Report) -> Result<()> {
    let mut recordings = Vec::new();
    for (node, socket) in sockets(scene.paths, scene.plan) {
        let file = scene.file(&format!("{node}.pcapng"));
        recordings.push((node.clone(), Recording::start(&node, &socket, None, file)?));
    }
    let mut dumps = Vec::new();
    for name in scene.functions() {
        for interface in &scene.plan.functions[&name].interfaces {
            let file = scene.file(&format!("{name}-{}.pcap", interface.name));
            dumps.push((name.clone(), Tcpdump::start(&scene.paths.namespace(&name), &interface.name, file)?));
        }
    }
    let mut answered = 0;
    for (from, to) in both_ways(scene) {
        for (_, address) in pairs(from, to) {
            answered += traffic::ping(from, address, PINGS)?.received;
        }
    }
    let mut on_nodes = Vec::new();
    for (node, recording) in recordings {
        on_nodes.push((node, recording.stop()?));
    }
    let mut in_functions = Vec::new();
    for (name, dump) in dumps {
        in_functions.push((name, dump.stop()?));
    }
    for side in sides(scene) {
        srh_was_there(scene, &side, &on_nodes, answered, report);
        functions_saw_none(scene, &side, &in_functions, answered, report);
    }
    Ok(())
}

/// The packets that reached the first segment's node carried the planned segment list.
fn srh_was_there(
    scene: &Scene<'_>,
    side: &Side<'_>,
    on_nodes: &[(String, Vec<Vec<u8>>)],
    answered: u32,
    report: &mut Report,
) {
    let Some(node) =
        side.steps.iter().find(|step| matches!(step.action, StepAction::Segment { .. })).map(|step| &step.node)
    else {
        return;
    };
    let what = format!("SRH on every packet at {node}, {}", side.name);
    let Some((_, frames)) = on_nodes.iter().find(|(name, _)| name == node) else {
        return report.check(what, false, format!("{node} has no agent that could capture"));
    };
    let found = tally(frames, &side.expected);
    let list: Vec<String> = side.expected.segments.iter().map(ToString::to_string).collect();
    let figures = match found.otherwise.first() {
        Some(other) => format!("{} as planned, but also: {other}", found.as_expected),
        None => format!("{} packets with <{}>", found.as_expected, list.join(", ")),
    };
    // Each answered request took one packet of each direction.
    report.check(what, found.otherwise.is_empty() && found.as_expected >= answered as usize, figures);
    let file = scene.file(&format!("{node}.pcapng"));
    let seen = match second_opinion(&file, side.expected.segments[0]) {
        Ok(None) => return report.say("  - tshark is not installed: no second opinion\n"),
        Ok(Some(seen)) => Ok(seen),
        Err(error) => Err(error),
    };
    report.result(&format!("tshark sees the same at {node}, {}", side.name), seen, |(with_srh, malformed)| {
        let same = with_srh == found.as_expected && malformed == 0;
        (same, format!("{with_srh} packets with an SRH to {}, {malformed} malformed", side.expected.segments[0]))
    });
}

/// The functions met the bare packets only.
fn functions_saw_none(
    scene: &Scene<'_>,
    side: &Side<'_>,
    in_functions: &[(String, Vec<Vec<u8>>)],
    answered: u32,
    report: &mut Report,
) {
    let apart = scene.functions();
    for function in side.steps.iter().filter_map(function_of).filter(|function| apart.contains(*function)) {
        let mut found = Tally::default();
        for (_, frames) in in_functions.iter().filter(|(name, _)| name == function) {
            let one = tally(frames, &side.expected);
            found.segment_routing += one.segment_routing;
            found.bare += one.bare;
            found.otherwise.extend(one.otherwise);
        }
        let passed = found.segment_routing == 0 && found.otherwise.is_empty() && found.bare >= answered as usize;
        let figures = match found.otherwise.first() {
            Some(other) => other.clone(),
            None => format!("{} bare packets, {} with SRH or envelope", found.bare, found.segment_routing),
        };
        report.check(format!("{function} saw none of it, {}", side.name), passed, figures);
    }
}

fn hop_by_hop(scene: &Scene<'_>, report: &mut Report) {
    let counters = match Counters::read(scene.paths, scene.plan) {
        Ok(counters) => counters,
        Err(error) => return report.check("counters are read", false, error.to_string()),
    };
    for side in sides(scene) {
        report.way(way(side.steps, &counters));
    }
    report.say(
        "  (nft counters count both directions, and segments that the function's interface merged as one packet.)\n\n",
    );
    for side in sides(scene) {
        let what = format!("stations count the same, {}", side.name);
        report.result(&what, Flow::of(side.steps, &counters).ok_or("a station has no counter"), |flow| {
            let figures = format!(
                "{} in, {} lost, {} kept by functions",
                flow.headend,
                flow.lost_between_stations(),
                flow.kept_by_functions()
            );
            // The checks before have seen every ping and datagram arrive. TCP fills the links: on a busy machine a veth's
            // ring overflows now and then, which TCP expects.
            (flow.headend > 0 && flow.lost_between_stations() <= flow.headend / 1000, figures)
        });
    }
    for function in scene.functions() {
        if let Some(count) = counters.of_function(&function, "routing_header") {
            let figures = format!("{} packets", count.packets);
            report.check(format!("{function} counted no routing header"), count.packets == 0, figures);
        }
    }
}
