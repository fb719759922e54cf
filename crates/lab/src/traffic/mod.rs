//! Traffic sources of a lab: numbered packets from one host to another, and an account of what arrived.
//!
//! Each source is a process of its own in the namespace of the host that sends, so that whoever clears the lab's namespaces ends it. It has the
//! sockets of both ends: the kernel lets a process have sockets in several namespaces. It writes its account into the lab's directory, where
//! `segue lab traffic` reads it.

mod account;
mod message;
mod run;
mod way;

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use segue_host::Run;
use segue_model::error::{Errors, KeyPath, Report};
use segue_model::topology::{Family, Topology, Traffic, TrafficProtocol};
use segue_wiring::LabPlan;
use serde::{Deserialize, Serialize};

pub use account::{Account, Delay, State};
pub use run::run;

use crate::error::{LabError, Result};
use crate::list::columns;
use crate::names::{LabPaths, Roots};
use crate::state::{self, LabRecord};
use crate::{netns, parallel, read};

/// How long a source may take to open its sockets.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// How often accounts are read while somebody waits.
const LOOK: Duration = Duration::from_millis(100);

/// What a source's process has to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Who sends.
    pub from: String,
    /// For whom.
    pub to: String,
    /// Namespace of who sends.
    pub from_namespace: String,
    /// Namespace of whom it is for.
    pub to_namespace: String,
    /// How.
    pub protocol: TrafficProtocol,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub port: u16,
    /// Source port; any if none.
    pub source_port: Option<u16>,
    /// Packets a second.
    pub rate: f64,
    /// How many packets; no end by number if none.
    pub count: Option<u64>,
    /// For how long; no end by time if none.
    pub seconds: Option<f64>,
    /// Octets of a payload.
    pub size: u32,
    /// Milliseconds before the first packet.
    pub delay_ms: u32,
}

impl Source {
    fn family(&self) -> Family {
        if self.destination.is_ipv4() { Family::IPv4 } else { Family::IPv6 }
    }
}

/// Checks the sources of a topology against the addresses of its hosts.
///
/// # Errors
/// All that is wrong, by key; the caller knows the lines.
pub fn check(topology: &Topology, plan: &LabPlan) -> std::result::Result<(), Errors> {
    let mut report = Report::default();
    for (name, traffic) in &topology.traffic {
        if let Err((key, what)) = addresses(traffic, plan) {
            let key = KeyPath::root().at("traffic").at(name).at(key);
            report.error(&key, what, "write the other `family:`, or give both hosts addresses of it");
        }
    }
    report.finish()
}

/// Both addresses; or which key is wrong, and why.
fn addresses(traffic: &Traffic, plan: &LabPlan) -> std::result::Result<[IpAddr; 2], (&'static str, String)> {
    let of = |host: &str, family: Family| -> Option<IpAddr> {
        let host = plan.hosts.get(host)?;
        match family {
            Family::IPv4 => host.ipv4().map(IpAddr::from),
            Family::IPv6 => host.ipv6().map(IpAddr::from),
        }
    };
    let both = |family| Some([of(&traffic.from, family)?, of(&traffic.to, family)?]);
    match traffic.family {
        Some(family) => both(family).ok_or_else(|| {
            let without = if of(&traffic.from, family).is_none() { &traffic.from } else { &traffic.to };
            ("family", format!("the host {without} has no {family:?} address"))
        }),
        None => both(Family::IPv6).or_else(|| both(Family::IPv4)).ok_or_else(|| {
            ("to", format!("the hosts {} and {} have no addresses of the same family", traffic.from, traffic.to))
        }),
    }
}

/// The sources of a lab.
#[must_use]
pub fn sources(paths: &LabPaths, topology: &Topology, plan: &LabPlan) -> Vec<Source> {
    let source = |(name, traffic): (&String, &Traffic)| {
        let [source, destination] = addresses(traffic, plan).ok()?;
        Some(Source {
            name: name.clone(),
            from: traffic.from.clone(),
            to: traffic.to.clone(),
            from_namespace: paths.namespace(&traffic.from),
            to_namespace: paths.namespace(&traffic.to),
            protocol: traffic.protocol,
            source,
            destination,
            port: traffic.port(),
            source_port: traffic.source_port,
            rate: traffic.rate,
            count: traffic.count,
            seconds: traffic.seconds,
            size: traffic.size,
            delay_ms: traffic.delay_ms,
        })
    };
    topology.traffic.iter().filter_map(source).collect()
}

fn source_file(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "source.json")
}

fn account_file(paths: &LabPaths, name: &str) -> PathBuf {
    paths.file(name, "traffic.json")
}

/// Starts the sources, and waits until each has its sockets.
///
/// # Errors
/// If one does not come up, with what it said.
pub fn start(program: &Path, paths: &LabPaths, sources: &[Source]) -> Result<()> {
    parallel::each(sources, |source| {
        state::write_file(&source_file(paths, &source.name), &state::json(source))?;
        let log = paths.file(&source.name, "traffic.log");
        let arguments = ["lab", "source", &paths.lab, &source.name];
        let mut child = Run::new(program, arguments).inside(&source.from_namespace).daemon(&log)?;
        wait_ready(paths, source, &mut child, &log)
    })?;
    Ok(())
}

fn wait_ready(paths: &LabPaths, source: &Source, child: &mut Child, log: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        if account_file(paths, &source.name).exists() {
            return Ok(());
        }
        let ended = child.try_wait().ok().flatten().map(|status| format!("it ended ({status})"));
        let late = (begun.elapsed() > OPEN_WITHIN).then(|| format!("not ready within {} s", OPEN_WITHIN.as_secs()));
        if let Some(what) = ended.or(late) {
            let said = fs::read_to_string(log).unwrap_or_default().trim().to_owned();
            return Err(LabError::Traffic { source_name: source.name.clone(), what, said });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The accounts of a lab that is up, in the order of its file.
///
/// # Errors
/// If there is no such lab.
pub fn accounts(roots: &Roots, lab: &str) -> Result<Vec<Account>> {
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    let (topology, _) = read::of_lab(&paths, &record)?;
    let read = |name: &String| -> Option<Account> {
        let account = || serde_json::from_str(&fs::read_to_string(account_file(&paths, name)).ok()?).ok();
        let first: Account = account()?;
        if first.state.is_final() || is_alive(&paths, &first) {
            return Some(first);
        }
        // It may have finished between the two looks.
        let last: Account = account()?;
        Some(if last.state.is_final() { last } else { Account { state: State::Dead, ..last } })
    };
    Ok(topology.traffic.keys().filter_map(read).collect())
}

fn is_alive(paths: &LabPaths, account: &Account) -> bool {
    let Some(identity) = netns::identity(&paths.namespace(&account.from)) else { return false };
    let all = netns::processes(&HashSet::from([identity]));
    all.iter().any(|(pid, _)| u32::try_from(pid.as_raw()) == Ok(account.process))
}

/// The accounts once all sources have ended.
///
/// # Errors
/// As [`accounts`].
pub fn wait(roots: &Roots, lab: &str) -> Result<Vec<Account>> {
    loop {
        let accounts = accounts(roots, lab)?;
        if accounts.iter().all(|account| account.state.is_final()) {
            return Ok(accounts);
        }
        std::thread::sleep(LOOK);
    }
}

/// A table for people.
#[must_use]
pub fn table(accounts: &[Account]) -> String {
    let head = [
        "NAME",
        "FROM",
        "TO",
        "PROTOCOL",
        "STATE",
        "SENT",
        "RECEIVED",
        "LOST",
        "DUPLICATED",
        "REORDERED",
        "CORRUPTED",
        "DELAY MS",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let mut whys = String::new();
    for account in accounts {
        let delay = |delay: Delay| format!("{}.{:03}", delay.mean / 1000, delay.mean % 1000);
        rows.push([
            account.name.clone(),
            account.from.clone(),
            account.to.clone(),
            format!("{}/{:?}", account.protocol.name(), account.family),
            account.state.name().to_owned(),
            account.sent.to_string(),
            account.received.to_string(),
            account.lost.to_string(),
            account.duplicated.to_string(),
            account.reordered.to_string(),
            account.corrupted.to_string(),
            account.delay_us.map(delay).unwrap_or_default(),
        ]);
        if let Some(why) = &account.why {
            whys += &format!("{}: {why}\n", account.name);
        }
    }
    columns(&rows) + &whys
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "
name: x
nodes: { a: {}, b: {} }
hosts: { client: { node: a }, server: { node: b }, old: { node: b, addresses: [10.9.0.2/24] } }
links: [{ between: [a, b] }]
";

    fn planned(traffic: &str) -> (Topology, LabPlan) {
        let text = format!("{TOPOLOGY}traffic: {traffic}\n");
        segue_wiring::load_plan(&text, "t").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn a_source_is_of_the_family_that_both_hosts_have() {
        let (topology, plan) =
            planned("{ six: { from: client, to: server, count: 1 }, four: { from: $client, to: old, count: 1 } }");
        check(&topology, &plan).unwrap();
        let paths = LabPaths::new(&Roots::default(), "x").unwrap();
        let sources = sources(&paths, &topology, &plan);
        assert_eq!(sources.iter().map(Source::family).collect::<Vec<_>>(), [Family::IPv6, Family::IPv4]);
        assert_eq!((sources[0].port, sources[0].rate, sources[0].size), (9, 100.0, 100));
        assert_eq!(sources[0].to_namespace, "sg-x-server");
    }

    #[test]
    fn a_family_that_a_host_does_not_have_is_an_error() {
        let (topology, plan) = planned("{ one: { from: client, to: old, count: 1, family: IPv6 } }");
        let errors = check(&topology, &plan).unwrap_err().to_string();
        assert!(errors.contains("traffic.one.family: the host old has no IPv6 address"), "{errors}");
    }

    #[test]
    fn a_table_shows_each_source_and_why_one_failed() {
        let account = Account { state: State::Failed, why: Some("no connection".into()), sent: 12, ..account::empty() };
        let text = table(&[account]);
        assert!(text.lines().nth(1).unwrap().contains("udp/IPv6") && text.ends_with("web: no connection\n"), "{text}");
    }
}
