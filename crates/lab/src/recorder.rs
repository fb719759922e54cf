//! The captures of a topology: one process of the lab, which writes all of them.
//!
//! An agent has one capture at a time, so one process asks each agent once, and gives every packet to all captures that want it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use segue_api::capture::{CaptureRequest, Format};
use segue_host::Run;
use segue_host::interrupt::{Interrupt, Second};
use segue_model::error::{Errors, KeyPath, Report};
use segue_model::topology::{Capture, Topology};
use segue_wiring::{LabPlan, Labels};
use serde::{Deserialize, Serialize};

use crate::blocks::{Blocks, Packet};
use crate::capture::open;
use crate::daemon;
use crate::error::{LabError, Result};
use crate::gather::Wanted;
use crate::loaded::Loaded;
use crate::names::LabPaths;
use crate::read;
use crate::recording::{self, End};
use crate::state::{self, LabRecord};

/// As good as for ever.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long it may take until all agents capture.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether all captures have ended.
const LOOK: Duration = Duration::from_millis(50);

/// A capture of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// What the topology says.
    pub capture: Capture,
}

/// Checks that what is to be captured exists, and passes a Segue node.
///
/// # Errors
/// All that is wrong, by key; the caller knows the lines.
pub fn check(topology: &Topology, plan: &LabPlan) -> std::result::Result<(), Errors> {
    let mut report = Report::default();
    for (name, capture) in &topology.captures {
        let key = KeyPath::root().at("captures").at(name).at("at");
        match Wanted::of(&capture.at, plan, &Labels::of(plan)) {
            Ok(Some(wanted)) => {
                let seen = |node: &String| plan.nodes.get(node).is_some_and(|node| node.state.is_some());
                if !wanted.places.iter().any(|(node, _)| seen(node)) {
                    let message = format!("no node with Segue's data plane sees what passes at {}", capture.at);
                    report.error(&key, message, "name another link, SID or chain");
                }
            }
            Ok(None) => {
                let message = format!("{} is no link, SID or chain", capture.at);
                report.error(&key, message, "write `A--B`, `$NODE.FUNCTION` or `$chain.NAME`");
            }
            Err(error) => {
                let said = error.to_string();
                let said = said.split("\n  do: ").next().unwrap_or_default().trim_end_matches('.');
                report.error(&key, said, "name a link of the topology, or a label that `segue lab labels` lists");
            }
        }
    }
    report.finish()
}

/// The captures of a topology. Their files lie beside it, or in the working directory if it came from standard input.
#[must_use]
pub fn captures(loaded: &Loaded) -> Vec<Recorded> {
    let file = fs::canonicalize(&loaded.file).unwrap_or_else(|_| loaded.file.clone());
    let beside = file.parent().filter(|_| file.is_absolute()).map(Path::to_owned);
    let directory = beside.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let recorded = |(name, capture): (&String, &Capture)| Recorded {
        name: name.clone(),
        file: directory.join(capture.file(name)),
        capture: capture.clone(),
    };
    loaded.topology.captures.iter().map(recorded).collect()
}

fn file(paths: &LabPaths) -> PathBuf {
    paths.directory.join("recorder.json")
}

/// Says that all agents capture.
fn ready(paths: &LabPaths) -> PathBuf {
    paths.directory.join("recorder.ready")
}

/// Starts the process in the namespace of one of the lab's nodes, so that whoever clears the lab's namespaces ends it, and waits until all
/// agents capture.
///
/// # Errors
/// If it does not come up, with what it said.
pub fn start(program: &Path, paths: &LabPaths, captures: &[Recorded]) -> Result<()> {
    let record = LabRecord::read(paths).ok_or_else(|| LabError::NoSuchLab { lab: paths.lab.clone() })?;
    let Some(node) = record.nodes.iter().find(|node| node.socket.is_some()) else { return Ok(()) };
    state::write_file(&file(paths), &state::json(&captures))?;
    let log = paths.directory.join("recorder.log");
    let mut child = Run::new(program, ["lab", "record", &paths.lab]).inside(&node.namespace).daemon(&log)?;
    daemon::wait_ready(&ready(paths), "they", &mut child, &log, OPEN_WITHIN)
        .map_err(|(what, said)| LabError::Captures { what, said })
}

/// A capture that is under way: which packets it takes, and where they go.
#[derive(Clone)]
struct Taker {
    wanted: Arc<Wanted>,
    to: Sender<(String, Packet)>,
}

impl Taker {
    fn takes(&self, node: &str, packet: &Packet) -> bool {
        let here = |(place, ports): &(String, Vec<String>)| {
            place == node && (ports.is_empty() || ports.contains(&packet.port))
        };
        self.wanted.places.iter().any(here) && self.wanted.filter.takes(&packet.frame)
    }
}

/// The process itself: captures until every capture has ended, or it is told to.
///
/// # Errors
/// If the lab has no captures, an agent refuses, or a file cannot be written.
pub fn run(paths: &LabPaths) -> Result<()> {
    let path = file(paths);
    let remedy = "bring the lab up: `segue lab up` starts its captures";
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path, remedy))?;
    let captures: Vec<Recorded> =
        serde_json::from_str(&text).map_err(|error| LabError::io("read", &path, remedy)(error.into()))?;
    let record = LabRecord::read(paths).ok_or_else(|| LabError::NoSuchLab { lab: paths.lab.clone() })?;
    let (_, plan) = read::of_lab(paths, &record)?;
    let labels = Labels::of(&plan);
    let interrupt = Interrupt::watch(Second::Ends);
    let (mut takers, mut writers) = (Vec::new(), Vec::new());
    for Recorded { file, capture, .. } in captures {
        let Some(wanted) = Wanted::of(&capture.at, &plan, &labels)? else { continue };
        let made = File::create(&file).map_err(LabError::io("write", &file, "write another `file:` in the topology"));
        let mut made = made?;
        let (to, packets) = channel();
        takers.push(Taker { wanted: Arc::new(wanted), to });
        let end = End {
            count: capture.count,
            seconds: capture.seconds,
            octets: Some(u64::from(capture.megabytes) * 1_000_000),
            snap_length: capture.snap_length.map(|octets| octets as usize),
        };
        writers.push(std::thread::spawn(move || {
            let written = recording::write(&packets, end, &mut made).and_then(|count| made.flush().map(|()| count));
            match written {
                Ok(count) => eprintln!("{}: {count} packets", file.display()),
                Err(error) => eprintln!("{}: {error}", file.display()),
            }
        }));
    }
    let streams = ask(&record, takers)?;
    state::write_file(&ready(paths), "")?;
    while !interrupt.requested() && writers.iter().any(|writer| !writer.is_finished()) {
        std::thread::sleep(LOOK);
    }
    for stream in streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
    writers.into_iter().for_each(|writer| {
        let _ = writer.join();
    });
    Ok(())
}

/// Makes each agent that sees something of it capture, and has threads give packets to whoever takes them.
fn ask(record: &LabRecord, takers: Vec<Taker>) -> Result<Vec<UnixStream>> {
    let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let places = takers.iter().flat_map(|taker| &taker.wanted.places);
    let mut all_ports = std::collections::BTreeSet::new();
    for (node, wanted) in places {
        if wanted.is_empty() {
            all_ports.insert(node.clone());
        }
        ports.entry(node.clone()).or_default().extend(wanted.iter().cloned());
    }
    let mut streams = Vec::new();
    for (node, mut ports) in ports {
        let Some(socket) = record.nodes.iter().find(|one| one.name == node).and_then(|one| one.socket.as_ref()) else {
            continue;
        };
        ports.sort();
        ports.dedup();
        if all_ports.contains(&node) {
            ports.clear();
        }
        let request = CaptureRequest { ports, format: Format::Pcapng, ..CaptureRequest::default() };
        let answer = open(&node, socket, &request, FOR_EVER)?;
        let broken = || LabError::io("read capture from", socket, "see whether the agent lives");
        streams.push(answer.body.get_ref().try_clone().map_err(broken())?);
        let mut blocks: Blocks<BufReader<UnixStream>> = Blocks::open(answer.body).map_err(broken())?;
        let mut takers: Vec<Taker> = takers.clone();
        std::thread::spawn(move || {
            while let Ok(Some(packet)) = blocks.next_packet() {
                // One that has ended takes no more.
                takers.retain(|taker| {
                    !taker.takes(&node, &packet) || taker.to.send((node.clone(), packet.clone())).is_ok()
                });
            }
        });
    }
    Ok(streams)
}
