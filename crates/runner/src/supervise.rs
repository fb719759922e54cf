//! Starts a service again when it dies.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_host::Run;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, Result};
use crate::running::Running;

/// How long to wait before it is started again: at first, and at most. Twice as long each time.
const WAIT: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// What has lived for so long is not dying again and again.
const FORGIVEN: Duration = Duration::from_secs(10);
/// How long it may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the service in a process of its own, and starts it again when that dies, until this one is told to stop. While it is dead, its
/// interface is down. `words`: what starts this program; its process's own file if there are none.
///
/// # Errors
/// If it cannot be started at all, or ends before it has taken a packet.
pub(crate) fn run(file: &Path, running: &Running, socket: &Path, take_over: bool, words: &[OsString]) -> Result<()> {
    // Now: once a new program was built, the file of this one has no name any more.
    let own = std::env::current_exe().map_err(Error::file("find the program of", file, "call it by its path"))?;
    let own = [own.into_os_string()];
    let words = if words.is_empty() { &own[..] } else { words };
    let failed = || Error::file("start", file, "allow more processes (`ulimit -u`)");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(failed())?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed())?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed())?;
        let mut wait = WAIT[0];
        let mut has_run = false;
        loop {
            link(&running.interface, "up");
            let begun = Instant::now();
            let takes_over = take_over && !has_run;
            let mut child = start(words, file, socket, takes_over).map_err(failed())?;
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status.map_err(failed())?,
                    _ = terminate.recv() => return end(child, running.name()).await.map_err(failed()),
                    _ = interrupt.recv() => return end(child, running.name()).await.map_err(failed()),
                    _ = hangup.recv() => tell(&child, Signal::SIGHUP),
                }
            };
            crate::cgroup::remove(running.name());
            if status.success() {
                return Ok(());
            }
            // What was killed has left its socket; what could not start has taken it away.
            // One that could not take over has left the old one alone, which still answers.
            let old_lives = takes_over && crate::control::ask(socket, "status").is_ok_and(|status| status.is_some());
            has_run |= socket.exists() && !old_lives;
            if !has_run {
                // It has said why.
                return Err(Error::Usage(format!("{} has not started ({status})", running.name())));
            }
            link(&running.interface, "down");
            wait = if begun.elapsed() >= FORGIVEN { WAIT[0] } else { wait };
            eprintln!(
                "segue-service: {} has died ({status}); started again in {} ms",
                running.name(),
                wait.as_millis()
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
            }
            wait = (2 * wait).min(WAIT[1]);
        }
    })
}

fn start(words: &[OsString], file: &Path, socket: &Path, take_over: bool) -> std::io::Result<Child> {
    let (program, before) = words.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(before).arg("run").arg(file).arg("--socket").arg(socket).args(take_over.then_some("--take-over"));
    command.kill_on_drop(true).spawn()
}

/// What cannot be set is told by what comes of it: packets do not come, or the node does not see that it is down.
fn link(interface: &str, state: &str) {
    if let Err(error) = Run::new("ip", ["link", "set", "dev", interface, state]).text() {
        eprintln!("segue-service: {error}");
    }
}

fn tell(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

async fn end(mut child: Child, name: &str) -> std::io::Result<()> {
    tell(&child, Signal::SIGTERM);
    let ended = match tokio::time::timeout(PATIENCE, child.wait()).await {
        Ok(status) => status.map(drop),
        Err(_) => child.kill().await,
    };
    crate::cgroup::remove(name);
    ended
}
