//! Agents of a lab: one `segued` per node.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use segue_api::{client::Client, http};
use segue_host::{HostError, Run, command};

use crate::error::{LabError, Result};
use crate::names::LabPaths;

/// How long an agent may take to answer; generous, because a hundred of them may load their programs on two cores.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How long an agent may take to answer one request.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Finds the agent's program: `$SEGUED`, else `segued` beside the running program or one directory above (where cargo
/// puts it for test programs), else in `$PATH`.
///
/// # Errors
/// If there is none.
pub fn program() -> Result<PathBuf> {
    find("segued", "SEGUED")
}

/// Finds `segue` itself, which is another program than this one where the lab is a library of a test: `$SEGUE`, else as [`program`].
///
/// # Errors
/// If there is none.
pub fn segue() -> Result<PathBuf> {
    find("segue", "SEGUE")
}

/// Finds `segue-service`: `$SEGUE_SERVICE`, else as [`program`].
///
/// # Errors
/// If there is none.
pub fn segue_service() -> Result<PathBuf> {
    find("segue-service", "SEGUE_SERVICE")
}

fn find(name: &'static str, variable: &'static str) -> Result<PathBuf> {
    let found = match std::env::var_os(variable) {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        None => beside_this_program(name).or_else(|| command::find(name)),
    };
    let missing = || HostError::Start {
        program: name.into(),
        cause: std::io::ErrorKind::NotFound.into(),
        remedy: format!("build it (`./x build`), or set {variable} to its path").into(),
    };
    Ok(found.ok_or_else(missing)?)
}

fn beside_this_program(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Starts a node's agent in its namespace, in a process group of its own.
///
/// # Errors
/// If it cannot be started.
pub fn start(program: &Path, paths: &LabPaths, node: &str) -> Result<Child> {
    let remedy = "check that you are root and that the file system has space";
    let state = paths.directory.join(format!("{node}.state"));
    fs::create_dir_all(&state).map_err(LabError::io("make directory", &state, remedy))?;
    let namespace = paths.namespace(node);
    let (socket, pins, config) = (paths.socket(node), paths.pin_directory(node), paths.file(node, "yaml"));
    let options = [("--socket", &socket), ("--pin-dir", &pins), ("--state-dir", &state), ("--config", &config)];
    let arguments = [OsStr::new("--netns"), OsStr::new(&namespace)]
        .into_iter()
        .chain(options.into_iter().flat_map(|(option, path)| [OsStr::new(option), path.as_os_str()]));
    let child = Run::new(program, arguments).inside(&namespace).daemon(&paths.file(node, "log"));
    let child = child.map_err(|error| match error {
        HostError::Start { .. } => error.remedied("check that the file can be executed"),
        other => other,
    })?;
    let pid = paths.file(node, "pid");
    fs::write(&pid, format!("{}\n", child.id())).map_err(LabError::io("write", &pid, remedy))?;
    Ok(child)
}

/// Waits until an agent answers.
///
/// # Errors
/// If it ends or does not answer in time, with the end of its log.
pub fn wait_ready(paths: &LabPaths, node: &str, child: &mut Child) -> Result<()> {
    let socket = paths.socket(node);
    let begun = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        if socket.exists()
            && matches!(http::request(&socket, "GET", "/v1/version", None, ANSWER_WITHIN), Ok(r) if r.status == 200)
        {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(not_ready(paths, node, format!("it ended ({status})")));
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(not_ready(paths, node, format!("no answer within {} s", READY_WITHIN.as_secs())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

fn not_ready(paths: &LabPaths, node: &str, what: String) -> LabError {
    let log = fs::read_to_string(paths.file(node, "log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(12)..].join("\n    ");
    let what = if end.is_empty() { what } else { format!("{what}; the end of its log:\n    {end}") };
    LabError::Agent {
        node: node.to_owned(),
        what,
        remedy: "fix what the log names, then bring the lab up again".into(),
    }
}

/// Where an agent tells all of its counters at one moment.
pub const REPORT: &str = "/v1/counters";

/// Where an agent tells what its firewalls have counted.
pub const FIREWALLS: &str = "/v1/firewalls";

/// Asks an agent for JSON.
///
/// # Errors
/// If it does not answer, or refuses.
pub fn get(socket: &Path, node: &str, target: &str) -> Result<serde_json::Value> {
    let fail = |what: String| LabError::Agent {
        node: node.to_owned(),
        what: format!("GET {target}: {what}"),
        remedy: format!("look at its log beside {}; `segue lab list` shows whether it lives", socket.display()),
    };
    let client = Client::new(socket).with_patience(ANSWER_WITHIN);
    client.get(target).map_err(|error| fail(error.to_string()))
}
