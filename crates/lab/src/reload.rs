//! `lab reload`: a packet service gets its configuration anew from the topology's file, and a new program if that was built since.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use segue_host::Run;
use serde::Serialize;

use crate::error::{LabError, Result};
use crate::names::{LabPaths, Roots};
use crate::state::{self, LabRecord};
use crate::{agent, labels, service, up};

/// How long another program may take to take over.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(30);

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reloaded {
    /// The function.
    pub function: String,
    /// Whether another program has taken over: it was built since the service was started.
    pub program: bool,
    /// Process number before, and now.
    pub processes: [i64; 2],
    /// How long it took, seconds.
    pub seconds: f64,
}

/// Reloads a packet service of a lab; no packet is lost.
///
/// # Errors
/// If there is no such lab or service, its configuration is wrong, or what runs cannot do it without being started again; then all is as it was.
pub fn reload(roots: &Roots, lab: &str, function: &str) -> Result<Reloaded> {
    let begun = Instant::now();
    let paths = LabPaths::new(roots, lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: lab.to_owned() })?;
    let node = labels::namespace(&paths, &record, function)?;
    let name = node.name.as_str();
    let fail = |what: &str, remedy: &str| LabError::Process {
        function: name.to_owned(),
        what: what.to_owned(),
        remedy: remedy.to_owned(),
    };
    let process = |status: &serde_json::Value| status["pid"].as_i64().unwrap_or_default();
    let Some(before) = service::ask(&paths, name, "status")?.map(|status| process(&status)) else {
        return Err(fail("it is no packet service that runs", "name one of `segue service list`"));
    };
    let loaded = up::load(&record.file)?;
    let Some(text) = service::document(&paths, &loaded, name) else {
        let remedy = "write it as it was, or bring the lab up again";
        return Err(fail("in the topology's file it is no packet service in a chain any more", remedy));
    };
    let own = loaded.topology.functions.get(name).and_then(|function| function.service()?.program.as_deref());
    let file = service::file(&paths, name);
    let old = fs::read_to_string(&file).map_err(LabError::io("read", &file, "bring the lab up again"))?;
    state::write_file(&file, &text)?;
    let checked = own.map_or(Ok(()), |own| service::check(own, &file, loaded.directory(), name));
    let done = checked.and_then(|()| match own.is_some() || is_other_program(before)? {
        false => service::ask(&paths, name, "reload").map(|_| false),
        true => {
            let line = format!("{} --take-over", service::command(&paths, name, own)?);
            let run = Run::new("sh", ["-c", &line]).inside(&node.namespace);
            let run = loaded.directory().into_iter().fold(run, Run::directory);
            take_over(&paths, name, run, before).map(|()| true)
        }
    });
    if done.is_err() {
        // It starts again as it runs.
        state::write_file(&file, &old)?;
    }
    let program = done?;
    let now = service::ask(&paths, name, "status")?.map_or(0, |status| process(&status));
    Ok(Reloaded {
        function: name.to_owned(),
        program,
        processes: [before, now],
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Whether the program is another file than the one that a process runs. Not asked of a program of one's own: what of it has changed cannot be
/// seen, as where an interpreter runs it.
fn is_other_program(process: i64) -> Result<bool> {
    let program = agent::segue_service()?;
    let remedy = "build it, or set SEGUE_SERVICE to its path";
    let of = |path: &std::path::Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let there = of(&program).map_err(LabError::io("look at", &program, remedy))?;
    let running = format!("/proc/{process}/exe");
    Ok(of(running.as_ref()).map_err(LabError::io("look at", &running, "see whether the service lives"))? != there)
}

/// Starts the new program beside the old one, to which the old one hands over; what supervised the old one ends with it.
fn take_over(paths: &LabPaths, name: &str, run: Run<'_>, before: i64) -> Result<()> {
    let log = paths.file(name, "log");
    let appended = || File::options().create(true).append(true).open(&log);
    let remedy = "check that the file system has space";
    let (output, errors) = (appended(), appended());
    let output = output.map_err(LabError::io("write", &log, remedy))?;
    let errors = errors.map_err(LabError::io("write", &log, remedy))?;
    let said_before = fs::metadata(&log).map_or(0, |found| found.len());
    let mut child = run.spawn(|command| {
        use std::os::unix::process::CommandExt;
        command.stdout(output).stderr(errors).process_group(0);
    })?;
    let begun = Instant::now();
    loop {
        let now = service::ask(paths, name, "status").ok().flatten().and_then(|status| status["pid"].as_i64());
        if now.is_some_and(|now| now != before) {
            return Ok(());
        }
        let ended = child.try_wait().ok().flatten().map(|status| format!("the new program has ended ({status})"));
        let late = begun.elapsed() > TAKES_OVER_WITHIN;
        let late = late.then(|| format!("it has not taken over within {} s", TAKES_OVER_WITHIN.as_secs()));
        if let Some(what) = ended.or(late) {
            let _ = child.kill();
            let log = fs::read(&log).unwrap_or_default();
            let said = log.get(usize::try_from(said_before).unwrap_or(0)..).unwrap_or_default();
            let said = String::from_utf8_lossy(said).trim().to_owned();
            let remedy = "the old program goes on; fix what the new one says, or bring the lab up again".to_owned();
            return Err(LabError::Process {
                function: name.to_owned(),
                what: format!("{what}; it said: {said}"),
                remedy,
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A line for people.
#[must_use]
pub fn line(done: &Reloaded) -> String {
    let [before, now] = done.processes;
    let what = match done.program {
        true => format!("another program has taken over, process {now} from {before}"),
        false => "the configuration of the topology's file has taken over".to_owned(),
    };
    format!("{}: {what}, in {:.2} s\n", done.function, done.seconds)
}
