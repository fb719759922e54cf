//! `top`: rates from two readings of the counters.

use std::{
    collections::HashMap,
    io::{self, IsTerminal},
    thread,
    time::Duration,
};

use anyhow::Result;
use segue_api::report::{Counter, Report};
use serde::Serialize;

use crate::{
    args::{Global, Output, TopArgs},
    output::{self, Column, short},
    target::{self, Target},
};

/// Cursor home, and clear to the end of the screen: less flicker than clearing first.
const HOME: &str = "\x1b[H";
const CLEAR_REST: &str = "\x1b[J";
const CLEAR: &str = "\x1b[2J";

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Rate {
    node: String,
    kind: &'static str,
    name: String,
    /// Beside the name: role, behaviour, mode.
    detail: String,
    packets_per_second: f64,
    bits_per_second: f64,
    /// Ports: packets dropped each second.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_per_second: Option<f64>,
    packets: u64,
}

/// What is counted, in one reading.
struct Counted {
    kind: &'static str,
    name: String,
    detail: String,
    counter: Counter,
    dropped: Option<u64>,
}

/// Shows rates until it is ended, or once.
pub fn top(global: &Global, args: &TopArgs) -> Result<()> {
    let targets = target::all(global)?;
    let screen = global.output == Output::Table && !args.once && io::stdout().is_terminal();
    if screen {
        output::print(CLEAR)?;
    }
    let mut before = read(&targets)?;
    loop {
        thread::sleep(Duration::from_secs_f64(args.interval));
        let after = read(&targets)?;
        let mut rows: Vec<Rate> = before.iter().zip(&after).flat_map(|(before, after)| rates(before, after)).collect();
        rows.retain(|row| args.all || row.packets_per_second > 0.0 || row.kind == "port");
        show(&rows, global.output, args.once, screen)?;
        if args.once {
            return Ok(());
        }
        before = after;
    }
}

fn read(targets: &[Target]) -> Result<Vec<Report>> {
    targets.iter().map(|target| Ok(target.client().get("/v1/counters")?)).collect()
}

fn show(rows: &[Rate], format: Output, once: bool, screen: bool) -> Result<()> {
    match format {
        Output::Table => {
            let text = table(rows);
            // Each line is cleared to its end, because the line before may have been longer.
            let lines = || text.lines().map(|line| format!("{line}\x1b[K\n")).collect::<String>();
            output::print(&if screen { format!("{HOME}{}{CLEAR_REST}", lines()) } else { text })
        }
        // A stream of JSON texts, one per line.
        Output::Json if !once => output::print(&format!("{}\n", serde_json::to_string(rows)?)),
        Output::Yaml if !once => {
            output::print("---\n")?;
            output::structured(rows, format)
        }
        format => output::structured(rows, format),
    }
}

fn table(rows: &[Rate]) -> String {
    let columns = [
        Column::Text("NODE"),
        Column::Text("KIND"),
        Column::Text("NAME"),
        Column::Text("DETAIL"),
        Column::Number("PACKETS/S"),
        Column::Number("BITS/S"),
        Column::Number("DROPS/S"),
        Column::Number("PACKETS"),
    ];
    let row = |row: &Rate| {
        vec![
            row.node.clone(),
            row.kind.to_owned(),
            row.name.clone(),
            row.detail.clone(),
            short(row.packets_per_second),
            short(row.bits_per_second),
            row.dropped_per_second.map(short).unwrap_or_default(),
            row.packets.to_string(),
        ]
    };
    output::table(&columns, rows.iter().map(row))
}

fn counted(report: &Report) -> Vec<Counted> {
    let ports = report.ports.iter().map(|port| Counted {
        kind: "port",
        name: port.name.clone(),
        detail: port.role.clone(),
        counter: [port.forwarded, port.passed, port.dropped].into_iter().sum(),
        dropped: Some(port.dropped.packets),
    });
    let sids = report.sids.iter().map(|sid| Counted {
        kind: "sid",
        name: sid.sid.clone(),
        detail: sid.behaviour.clone(),
        counter: sid.counter,
        dropped: None,
    });
    let policies = report.policies.iter().map(|policy| Counted {
        kind: "policy",
        name: policy.name.clone(),
        detail: policy.mode.clone(),
        counter: policy.counter,
        dropped: None,
    });
    ports.chain(sids).chain(policies).collect()
}

/// The rates between two readings. What was not there before, or was counted anew, starts from nothing.
fn rates(before: &Report, after: &Report) -> Vec<Rate> {
    let seconds = (after.time.saturating_sub(before.time)).max(1) as f64 / 1e9;
    let old = counted(before);
    // The first of each comes last.
    let old: HashMap<(&str, &str), &Counted> =
        old.iter().rev().map(|then| ((then.kind, then.name.as_str()), then)).collect();
    let row = |now: Counted| {
        let then = old.get(&(now.kind, now.name.as_str()));
        let packets = then.map_or(0, |then| then.counter.packets);
        let bytes = then.map_or(0, |then| then.counter.bytes);
        let dropped = then.and_then(|then| then.dropped).unwrap_or_default();
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rate {
            node: after.node.clone(),
            kind: now.kind,
            detail: now.detail,
            packets_per_second: per_second(now.counter.packets, packets),
            bits_per_second: 8.0 * per_second(now.counter.bytes, bytes),
            dropped_per_second: now.dropped.map(|now| per_second(now, dropped)),
            packets: now.counter.packets,
            name: now.name,
        }
    };
    counted(after).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(seconds: u64, packets: u64) -> Report {
        let sid = serde_json::json!({"sid": "fc00::/64", "behaviour": "End", "kernel_route": "",
            "counter": {"packets": packets, "bytes": packets * 100}});
        Report {
            node: "n".into(),
            time: seconds * 1_000_000_000,
            sids: vec![serde_json::from_value(sid).unwrap()],
            ..Report::default()
        }
    }

    #[test]
    fn a_rate_is_the_difference_by_the_agent_s_clock() {
        let rows = rates(&reading(10, 100), &reading(12, 300));
        assert_eq!(rows.len(), 1);
        assert!((rows[0].packets_per_second - 100.0).abs() < 1e-9);
        assert!((rows[0].bits_per_second - 80_000.0).abs() < 1e-6);
        assert_eq!(rows[0].packets, 300);
    }

    #[test]
    fn counters_that_begin_anew_do_not_run_backwards() {
        let rows = rates(&reading(10, 300), &reading(11, 5));
        assert_eq!(rows[0].packets_per_second, 0.0);
    }
}
