//! Agents of a lab: one `segued` per node.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::http;
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
    let found = match std::env::var_os("SEGUED") {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        None => beside_this_program().or_else(in_path),
    };
    found.ok_or_else(|| LabError::Start {
        program: "segued".into(),
        cause: std::io::ErrorKind::NotFound.into(),
        remedy: "build it (`./x build`), or set SEGUED to its path".into(),
    })
}

fn beside_this_program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|directory| directory.join("segued")).find(|path| path.is_file())
}

fn in_path() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join("segued"))
        .find(|path| path.is_file())
}

/// Starts a node's agent in a process group of its own, so that it outlives this program and a Ctrl-C.
///
/// # Errors
/// If it cannot be started.
pub fn start(program: &Path, paths: &LabPaths, node: &str) -> Result<Child> {
    let log = paths.file(node, "log");
    let remedy = "check that you are root and that the file system has space";
    let output = File::create(&log).map_err(LabError::io("write", &log, remedy))?;
    let errors = output.try_clone().map_err(LabError::io("write", &log, remedy))?;
    let state = paths.directory.join(format!("{node}.state"));
    fs::create_dir_all(&state).map_err(LabError::io("make directory", &state, remedy))?;
    let child = Command::new(program)
        .args(["--netns", &paths.namespace(node)])
        .arg("--socket")
        .arg(paths.socket(node))
        .arg("--pin-dir")
        .arg(paths.pin_directory(node))
        .arg("--state-dir")
        .arg(state)
        .arg("--config")
        .arg(paths.file(node, "yaml"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(|source| LabError::Start {
            program: program.display().to_string(),
            cause: source,
            remedy: "check that the file can be executed".into(),
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
    let response =
        http::request(socket, "GET", target, None, ANSWER_WITHIN).map_err(|error| fail(error.to_string()))?;
    let status = response.status;
    let text = response.text().map_err(|error| fail(error.to_string()))?;
    if status != 200 {
        return Err(fail(format!("status {status}: {}", text.trim())));
    }
    serde_json::from_str(&text).map_err(|error| fail(format!("not JSON: {error}")))
}
