//! A trace for people.

use std::fmt::Write;

use super::event::{Trace, Verdict};

/// Station by station, then what became of it.
#[must_use]
pub fn text(trace: &Trace) -> String {
    let flow = &trace.flow;
    let chain = trace.chain.as_ref().map(|chain| format!(", chain {chain}")).unwrap_or_default();
    let mut text = format!(
        "{} > {}, protocol {}, ports {} > {}, {} octets{chain}\n",
        flow.source, flow.destination, flow.protocol, flow.source_port, flow.destination_port, flow.length
    );
    for (number, hop) in (1..).zip(&trace.hops) {
        let way = match (&hop.came_in, &hop.left_by) {
            (Some(came_in), Some(left_by)) => format!("{came_in} > {left_by}"),
            (Some(came_in), None) => format!("{came_in} >"),
            (None, Some(left_by)) => format!("> {left_by}"),
            (None, None) => String::new(),
        };
        let kernel = if hop.by_kernel && hop.came_in.is_some() { " (by its kernel)" } else { "" };
        let _ = writeln!(text, "{number:3}. {:15} {way:31} +{:.0} us{kernel}", hop.station, hop.delay_us);
        let _ = writeln!(text, "     {}", hop.headers);
    }
    for error in &trace.errors {
        let _ = writeln!(text, "  error: {error}");
    }
    let verdict = match trace.verdict {
        Verdict::Delivered => "Delivered",
        Verdict::NotByTheChain => "Not by the chain",
        Verdict::Leaked => "Leaked",
        Verdict::Vanished => "Vanished",
        Verdict::NotSent => "Not sent",
    };
    let _ = writeln!(text, "{verdict}: {}", trace.text);
    for look in &trace.look_at {
        let _ = writeln!(text, "  look at: {look}");
    }
    for blind in &trace.blind {
        let _ = writeln!(text, "  not seen: {blind}");
    }
    text
}
