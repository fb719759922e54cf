//! A packet service at work in a namespace of the bench: `segue-service`, or another program that runs services.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use segue_host::command;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::netns::Namespace;

/// How long a service may take to start, and to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A program that runs services, with its arguments before `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(Vec<String>);

impl Program {
    /// `segue-service`: as `SEGUE_SERVICE` says, beside this program, or in PATH.
    ///
    /// # Errors
    /// If it is in none of these places.
    pub fn own() -> Result<Self> {
        let own = std::env::current_exe().ok();
        let beside = own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(|path| path.join("segue-service"));
        let named = std::env::var_os("SEGUE_SERVICE").map(PathBuf::from);
        let mut places = named.into_iter().chain(beside).chain(command::find("segue-service"));
        let missing = "segue-service is neither beside segue-bench nor in PATH: build it with `cargo build --release -p segue-runner`";
        let program = places.find(|path| path.is_file()).ok_or_else(|| Error::Usage(missing.into()))?;
        Ok(Self(vec![program.display().to_string()]))
    }

    /// One of somebody else's: words separated by spaces.
    ///
    /// # Errors
    /// If there is no word.
    pub fn of(words: &str) -> Result<Self> {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(Error::Usage("--program: give a program, and what it is started with".into()));
        }
        Ok(Self(words))
    }

    /// The name of the first service that it can run.
    ///
    /// # Errors
    /// If it does not say one.
    pub fn first_service(&self) -> Result<String> {
        let words = self.0.iter().map(String::as_str);
        let name = words.clone().next().unwrap_or_default();
        let run = segue_host::Run::new(name, words.skip(1).chain(["kinds", "-o", "json"]));
        let text = run.text()?;
        let kinds: Value = serde_json::from_str(&text).unwrap_or_default();
        kinds[0]["name"].as_str().map(str::to_owned).ok_or_else(|| Error::Answer {
            command: format!("{} kinds -o json", self.0.join(" ")),
            message: "it names no service".into(),
        })
    }
}

/// A service at work; it ends when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    files: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

impl Process {
    /// Starts what `document` says (docs/using/services.md, "By hand"), and waits until it takes packets. `cpus`: processors for it, as
    /// taskset takes them; those of this thread if not given. `name` keeps several apart.
    ///
    /// # Errors
    /// If it cannot be started, or does not answer in time.
    pub fn start(
        program: &Program,
        namespace: &Namespace,
        document: &Value,
        cpus: Option<&str>,
        name: &str,
    ) -> Result<Self> {
        let files = std::env::temp_dir().join(format!("segue-bench-{}-{name}", std::process::id()));
        let failed = || Error::file(&files.display().to_string());
        std::fs::create_dir_all(&files).map_err(failed())?;
        let file = files.join("service.json");
        std::fs::write(&file, document.to_string()).map_err(failed())?;
        let socket = files.join("service.socket");
        let _inside = namespace.enter()?;
        // With no other priority than the kernel's own threads: on the processor of one that
        // goes before them, ksoftirqd gets no turn, and packets wait.
        let bound = cpus.map(|cpus| ["taskset", "--cpu-list", cpus]);
        let mut words = bound.iter().flatten().copied().chain(program.0.iter().map(String::as_str));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg("run").arg(&file).arg("--socket").arg(&socket);
        let child = command.stdin(Stdio::null()).spawn().map_err(failed())?;
        let mut process = Self { child, files: files.clone() };
        let end = Instant::now() + READY_WITHIN;
        while !answers(&socket) {
            if process.child.try_wait().map_err(failed())?.is_some() || Instant::now() > end {
                return Err(Error::Usage(format!("the service {name} has not started; it has said why")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// What the service says of itself.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self) -> Result<Value> {
        let socket = self.files.join("service.socket");
        let ask = || -> std::io::Result<Value> {
            let mut stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(READY_WITHIN))?;
            stream.write_all(b"status")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        ask().map_err(Error::file(&socket.display().to_string()))
    }

    /// KiB of memory that it has.
    ///
    /// # Errors
    /// If it has ended.
    pub fn memory(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
        Ok(kib.unwrap_or_default())
    }
}

/// Whether the service says how it is: then it takes packets.
fn answers(socket: &Path) -> bool {
    let ask = || -> std::io::Result<usize> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        stream.write_all(b"status")?;
        stream.read(&mut [0])
    };
    ask().is_ok_and(|octets| octets == 1)
}
