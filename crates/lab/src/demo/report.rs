//! What a demo found out, for people and for programs.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What was checked.
    pub what: String,
    /// Whether it is as it should be.
    pub passed: bool,
    /// The figures.
    pub figures: String,
}

/// One station of a chain's traffic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    /// Node or function.
    pub node: String,
    /// What happens there: a behaviour, or a function's counter.
    pub what: String,
    /// SID, segment list or nothing.
    pub sid: String,
    /// Packets so far.
    pub packets: u64,
    /// Octets so far.
    pub octets: u64,
}

/// One direction of a chain, station by station.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    /// The chain.
    pub chain: String,
    /// `forward` or `reverse`.
    pub direction: String,
    /// Its stations in order.
    pub hops: Vec<Hop>,
}

/// Everything.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Name of the lab.
    pub lab: String,
    /// Checks in the order in which they were made.
    pub checks: Vec<Check>,
    /// The chain with its counters.
    pub ways: Vec<Way>,
    #[serde(skip)]
    live: bool,
}

impl Report {
    /// An empty report; `live` prints each check as it is made.
    #[must_use]
    pub fn new(lab: &str, live: bool) -> Self {
        Self { lab: lab.to_owned(), live, ..Self::default() }
    }

    /// Whether everything was as it should be.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }

    /// A heading, for people.
    pub fn heading(&self, text: &str) {
        self.say(&format!("\n{text}\n"));
    }

    /// Takes a check in.
    pub fn check(&mut self, what: impl Into<String>, passed: bool, figures: impl Into<String>) {
        let check = Check { what: what.into(), passed, figures: figures.into() };
        self.say(&line(&check));
        self.checks.push(check);
    }

    /// Takes a check in whose figures could not be had, as failed.
    pub fn result<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        result: Result<T, E>,
        judge: impl FnOnce(T) -> (bool, String),
    ) {
        match result {
            Ok(value) => {
                let (passed, figures) = judge(value);
                self.check(what, passed, figures);
            }
            Err(error) => self.check(what, false, error.to_string()),
        }
    }

    /// Takes one direction of a chain in.
    pub fn way(&mut self, way: Way) {
        self.say(&way_text(&way));
        self.ways.push(way);
    }

    /// The last line.
    #[must_use]
    pub fn verdict(&self, time: Duration) -> String {
        let failed = self.checks.iter().filter(|check| !check.passed).count();
        let time = time.as_secs_f64();
        match failed {
            0 => format!("\nAll {} checks passed in {time:.0} s.\n", self.checks.len()),
            _ => format!("\n{failed} of {} checks differed ({time:.0} s).\n", self.checks.len()),
        }
    }

    /// Prints, if it is live.
    pub fn say(&self, text: &str) {
        if self.live {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }
}

fn line(check: &Check) -> String {
    let sign = if check.passed { '✔' } else { '✘' };
    format!("  {sign} {:46} {}\n", check.what, check.figures.replace('\n', "\n      "))
}

fn way_text(way: &Way) -> String {
    let mut rows = vec![["".to_owned(), "AT".into(), "WHAT".into(), "SID".into(), "PACKETS".into(), "BYTES".into()]];
    for hop in &way.hops {
        rows.push([
            String::new(),
            hop.node.clone(),
            hop.what.clone(),
            hop.sid.clone(),
            format!("{:>10}", hop.packets),
            format!("{:>12}", hop.octets),
        ]);
    }
    format!("\nChain {}, {}:\n{}", way.chain, way.direction, crate::list::columns(&rows))
}

/// A rate for people.
#[must_use]
pub fn rate(bits_per_second: f64) -> String {
    match bits_per_second {
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate => format!("{:.0} Mbit/s", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_report() {
        let mut report = Report::new("x", false);
        report.check("a", true, "1 of 1");
        assert!(report.passed() && report.verdict(Duration::from_secs(1)).contains("All 1 checks passed"));
        report.result("b", Err::<(), _>("no server"), |()| (true, String::new()));
        assert!(!report.passed() && report.verdict(Duration::from_secs(1)).contains("1 of 2 checks differed"));
        assert!(line(&report.checks[1]).contains('✘') && line(&report.checks[1]).contains("no server"));
    }

    #[test]
    fn rates() {
        assert_eq!(rate(2.5e9), "2.50 Gbit/s");
        assert_eq!(rate(12e6), "12 Mbit/s");
    }
}
