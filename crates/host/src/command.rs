//! Running other programs, on the host or inside a network namespace.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use crate::{HostError, Result, namespace};

/// How a program is asked for, and how its failure is told.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    program: OsString,
    arguments: Vec<OsString>,
    namespace: Option<&'a str>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    input: Option<String>,
    remedy: Option<Cow<'static, str>>,
}

impl<'a> Run<'a> {
    /// A program with its arguments.
    pub fn new<I, S>(program: impl AsRef<OsStr>, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Self {
            program: program.as_ref().to_owned(),
            arguments: arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect(),
            namespace: None,
            environment: Vec::new(),
            directory: None,
            input: None,
            remedy: None,
        }
    }

    /// Inside this network namespace.
    #[must_use]
    pub fn inside(mut self, namespace: &'a str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// With these variables besides those of this process.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// In this directory rather than that of this process.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// With this text as standard input.
    #[must_use]
    pub fn input(mut self, text: String) -> Self {
        self.input = Some(text);
        self
    }

    /// What to do when it fails.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Runs it to its end, whatever its status.
    ///
    /// # Errors
    /// If it cannot be started or the namespace cannot be entered.
    pub fn output(&self) -> Result<Output> {
        self.here(|| output(&mut self.command(), self.input.as_deref()))?
    }

    /// Runs it, and returns its standard output.
    ///
    /// # Errors
    /// Also if its status is not 0.
    pub fn text(&self) -> Result<String> {
        successful(&self.output()?, self.namespace, || self.line()).map_err(|error| match &self.remedy {
            Some(remedy) => error.remedied(remedy.clone()),
            None => error,
        })
    }

    /// Runs it to its end with this process's standard input and outputs.
    ///
    /// # Errors
    /// As [`Run::output`].
    pub fn status(&self) -> Result<ExitStatus> {
        self.here(|| self.command().status().map_err(|cause| self.start_error(cause)))?
    }

    /// Starts it with an empty standard input and with what `streams` makes of the outputs, and does not wait.
    ///
    /// # Errors
    /// As [`Run::output`].
    pub fn spawn(&self, streams: impl FnOnce(&mut Command) + Send) -> Result<Child> {
        self.here(|| {
            let mut command = self.command();
            streams(command.stdin(Stdio::null()));
            command.spawn().map_err(|cause| self.start_error(cause))
        })?
    }

    /// Starts it and lets it go: in a process group of its own, so that it outlives this program and a Ctrl-C, with all that it says
    /// in a file. It is inside its namespace from its first instruction, so that whoever clears the namespace finds it whatever happens
    /// to this program.
    ///
    /// # Errors
    /// As [`Run::output`]; or the file cannot be written.
    pub fn daemon(&self, log: &Path) -> Result<Child> {
        let failed =
            |cause| HostError::io("write", log, "check that you are root and that the file system has space")(cause);
        let output = File::create(log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        self.spawn(|command| {
            command.stdout(output).stderr(errors).process_group(0);
        })
    }

    /// The command line, for messages.
    #[must_use]
    pub fn line(&self) -> String {
        line(&self.command())
    }

    fn here<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.namespace {
            Some(namespace) => namespace::inside(namespace, work),
            None => Ok(work()),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    fn start_error(&self, cause: io::Error) -> HostError {
        start_error(&self.program, cause)
    }
}

/// Runs a program to its end, whatever its status.
///
/// # Errors
/// If it cannot be started.
pub fn output(command: &mut Command, input: Option<&str>) -> Result<Output> {
    let Some(text) = input else {
        return command.output().map_err(|cause| start_error(command.get_program(), cause));
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|cause| start_error(command.get_program(), cause))?;
    // Inputs are batches for `ip` and rules for `nft` and the like, which read everything before they write much; a program that
    // ends early closes the pipe, and its status tells why.
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(text.as_bytes());
    }
    child.wait_with_output().map_err(|cause| start_error(command.get_program(), cause))
}

/// The standard output of a finished program.
///
/// # Errors
/// [`HostError::Command`] with what it said if its status is not 0. `line` is its command line.
pub fn successful(output: &Output, namespace: Option<&str>, line: impl FnOnce() -> String) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.is_empty() {
        said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    Err(HostError::Command {
        place: namespace.unwrap_or("host").to_owned(),
        command: line(),
        status: output.status.to_string().into(),
        output: said,
        remedy: "the message above says what the program did not accept".into(),
    })
}

/// A command line as people write it.
#[must_use]
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn start_error(program: &OsStr, cause: io::Error) -> HostError {
    let program = program.to_string_lossy().into_owned();
    let remedy = install_hint(&program).into();
    HostError::Start { program, cause, remedy }
}

/// Which Debian package holds a program.
#[must_use]
pub fn install_hint(program: &str) -> String {
    let package = match program {
        "ip" | "tc" | "ss" => "iproute2",
        "nft" => "nftables",
        "ping" => "iputils-ping",
        other => other,
    };
    format!("apt-get install {package}")
}

/// A program of `$PATH`.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// That these programs can be found, before something is begun that needs them.
///
/// # Errors
/// [`HostError::Start`] for the first that cannot.
pub fn need(programs: &[&str]) -> Result<()> {
    match programs.iter().find(|program| find(program).is_none()) {
        Some(program) => Err(start_error(OsStr::new(program), io::ErrorKind::NotFound.into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_says_what_and_why() {
        let error = Run::new("sh", ["-c", "echo no good >&2; exit 3"])
            .remedy("try something else")
            .text()
            .unwrap_err()
            .to_string();
        assert!(error.contains("no good") && error.contains('3') && error.contains("try something else"), "{error}");
    }

    #[test]
    fn missing_program_names_its_package() {
        let error = Run::new("nft-does-not-exist", ["x"]).text().unwrap_err().to_string();
        assert!(error.contains("apt-get install nft-does-not-exist"), "{error}");
        assert!(install_hint("nft").ends_with("nftables"));
        assert!(matches!(need(&["sh", "nft-does-not-exist"]), Err(HostError::Start { .. })));
        need(&["sh"]).unwrap();
    }

    #[test]
    fn input_environment_and_directory_reach_the_program() {
        assert_eq!(Run::new("cat", [""; 0]).input("hello".into()).text().unwrap(), "hello");
        let run = Run::new("sh", ["-c", "echo $SAID; pwd"]).environment([("SAID".to_owned(), "so".to_owned())]);
        assert_eq!(run.directory(Path::new("/")).text().unwrap(), "so\n/\n");
    }

    #[test]
    fn a_daemon_writes_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut child = Run::new("sh", ["-c", "echo out; echo error >&2"]).daemon(&log).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(log).unwrap(), "out\nerror\n");
    }
}
