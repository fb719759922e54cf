//! Traces and pings for people.

use std::fmt::Write;

use super::echo::Kind;
use super::event::{Simulation, Trace, Verdict};
use super::ping::Echoes;

/// What the simulation says, then station by station what was seen, then what became of it.
#[must_use]
pub fn text(trace: &Trace) -> String {
    let flow = &trace.flow;
    let chain = trace.chain.as_ref().map(|chain| format!(", chain {chain}")).unwrap_or_default();
    let mut text = format!(
        "{} > {}, protocol {}, ports {} > {}, {} octets{chain}\n",
        flow.source, flow.destination, flow.protocol, flow.source_port, flow.destination_port, flow.length
    );
    if let Some(simulation) = &trace.simulation {
        simulated(&mut text, simulation);
    }
    // Nothing was sent.
    let only_simulated = trace.hops.is_empty() && trace.simulation.as_ref().is_some_and(|one| one.text == trace.text);
    if !only_simulated {
        seen(&mut text, trace);
    }
    for blind in &trace.blind {
        let _ = writeln!(text, "  not seen: {blind}");
    }
    text
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered => "Delivered",
        Verdict::NotByTheChain => "Not by the chain",
        Verdict::Leaked => "Leaked",
        Verdict::Vanished => "Vanished",
        Verdict::NotSent => "Not sent",
        Verdict::Left => "Left",
        Verdict::NotKnown => "Not known",
    }
}

fn way(came_in: Option<&String>, left_by: Option<&String>) -> String {
    match (came_in, left_by) {
        (Some(came_in), Some(left_by)) => format!("{came_in} > {left_by}"),
        (Some(came_in), None) => format!("{came_in} >"),
        (None, Some(left_by)) => format!("> {left_by}"),
        (None, None) => String::new(),
    }
}

fn simulated(text: &mut String, simulation: &Simulation) {
    let _ = writeln!(text, "Simulated, from configurations and routing tables:");
    for (number, hop) in (1..).zip(&simulation.hops) {
        let way = way(hop.came_in.as_ref(), hop.left_by.as_ref());
        let _ =
            writeln!(text, "{number:3}. {:15} {way:31} {}", hop.station, hop.outcome.as_deref().unwrap_or_default());
        for step in hop.steps.iter().filter(|step| step.what != "port") {
            let counted = step.packets.map(|packets| format!(" ({packets} packets so far)")).unwrap_or_default();
            let name = if step.name.is_empty() { String::new() } else { format!("{}: ", step.name) };
            let _ = writeln!(text, "       {:9} {name}{}{counted}", step.what, step.detail);
        }
        let _ = writeln!(text, "     {}", hop.headers);
    }
    let _ = writeln!(text, "{}: {}", verdict(simulation.verdict), simulation.text);
    for assumed in &simulation.assumed {
        let _ = writeln!(text, "  if {assumed}");
    }
}

fn seen(text: &mut String, trace: &Trace) {
    if trace.simulation.is_some() {
        let _ = writeln!(text, "Sent, and seen:");
    }
    for (number, hop) in (1..).zip(&trace.hops) {
        let way = way(hop.came_in.as_ref(), hop.left_by.as_ref());
        let kernel = if hop.by_kernel && hop.came_in.is_some() { " (by its kernel)" } else { "" };
        let _ = writeln!(text, "{number:3}. {:15} {way:31} +{:.0} us{kernel}", hop.station, hop.delay_us);
        let _ = writeln!(text, "     {}", hop.headers);
    }
    for error in &trace.errors {
        let _ = writeln!(text, "  error: {error}");
    }
    let _ = writeln!(text, "{}: {}", verdict(trace.verdict), trace.text);
    for look in &trace.look_at {
        let _ = writeln!(text, "  look at: {look}");
    }
    if let Some(differs) = &trace.differs {
        let _ = writeln!(text, "  differs: {differs}");
    }
}

/// What came of a ping or a traceroute.
#[must_use]
pub fn echoes(echoes: &Echoes) -> String {
    let by: Vec<String> = echoes.segments.iter().map(ToString::to_string).collect();
    let by = if by.is_empty() { String::new() } else { format!(" by way of <{}>", by.join(", ")) };
    let mut text = format!("{} from {}{by}\n", echoes.target, echoes.source);
    let mut silent = echoes.silent.iter().copied().peekable();
    let none = |text: &mut String, hops: u8| {
        let _ = writeln!(text, "{hops:3}  nobody answered");
    };
    for answer in &echoes.answers {
        while let Some(hops) = silent.next_if(|hops| *hops < answer.hop_limit) {
            none(&mut text, hops);
        }
        let name = answer.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let says = match (answer.kind, answer.code) {
            (Kind::EchoReply, _) => "echo reply".to_owned(),
            (Kind::TimeExceeded, _) => "time exceeded".to_owned(),
            (Kind::Unreachable, code) => format!("destination unreachable, code {code}"),
            (Kind::TooBig, _) => "packet too big".to_owned(),
            (Kind::ParameterProblem, 4) => "parameter problem: the SID takes no echo request".to_owned(),
            (Kind::ParameterProblem, code) => format!("parameter problem, code {code}"),
        };
        let at = match (answer.active_segment, answer.segments_left) {
            (Some(segment), Some(left)) => format!(", on its way to {segment}, Segments Left {left}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "{:3}  {}{name}  {:.0} us  {says}{at}", answer.hop_limit, answer.from, answer.time_us);
    }
    for hops in silent {
        none(&mut text, hops);
    }
    for copy in &echoes.copies {
        let (seconds, rest) = (copy.time / 1_000_000_000, copy.time % 1_000_000_000);
        let direction = match copy.direction {
            super::event::Direction::In => "in by",
            super::event::Direction::Out => "out by",
        };
        let _ =
            writeln!(text, "  O-flag: {seconds}.{rest:09} {} {direction} {}: {}", copy.node, copy.port, copy.headers);
    }
    let replies = echoes.answers.iter().filter(|answer| answer.kind == Kind::EchoReply).count();
    let _ = writeln!(text, "{} sent, {replies} answered", echoes.sent);
    for blind in &echoes.blind {
        let _ = writeln!(text, "  not seen: {blind}");
    }
    text
}
