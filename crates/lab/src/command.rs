//! Running other programs, on the host or inside a namespace.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::error::{LabError, Result};
use crate::netns;

/// How a program is asked for, and how its failure is told.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    program: &'a str,
    arguments: Vec<String>,
    namespace: Option<&'a str>,
    input: Option<String>,
    remedy: &'a str,
}

impl<'a> Run<'a> {
    /// A program with its arguments.
    pub fn new<I, S>(program: &'a str, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self {
            program,
            arguments: arguments.into_iter().map(Into::into).collect(),
            namespace: None,
            input: None,
            remedy: "the message above says what the program did not accept",
        }
    }

    /// Inside this network namespace.
    #[must_use]
    pub fn inside(mut self, namespace: &'a str) -> Self {
        self.namespace = Some(namespace);
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
    pub fn remedy(mut self, remedy: &'a str) -> Self {
        self.remedy = remedy;
        self
    }

    /// Runs it to its end, whatever its status.
    ///
    /// # Errors
    /// If it cannot be started or the namespace cannot be entered.
    pub fn output(&self) -> Result<Output> {
        match self.namespace {
            Some(namespace) => netns::inside(namespace, || self.output_here())?,
            None => self.output_here(),
        }
    }

    /// Runs it, and returns its standard output.
    ///
    /// # Errors
    /// Also if its status is not 0.
    pub fn text(&self) -> Result<String> {
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let mut said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if said.is_empty() {
            said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        }
        Err(LabError::Command {
            place: self.namespace.unwrap_or("host").to_owned(),
            command: self.line(),
            status: output.status.to_string(),
            output: said,
            remedy: self.remedy.to_owned(),
        })
    }

    /// The command line, for messages.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = self.program.to_owned();
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(argument);
        }
        line
    }

    fn output_here(&self) -> Result<Output> {
        let start_error = |source| LabError::Start {
            program: self.program.to_owned(),
            cause: source,
            remedy: install_hint(self.program),
        };
        let mut child = Command::new(self.program)
            .args(&self.arguments)
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start_error)?;
        // The lab's inputs are batches for `ip` and `nft`, which read everything before they write much; a program that
        // ends early closes the pipe, and its status tells why.
        if let (Some(text), Some(mut pipe)) = (&self.input, child.stdin.take()) {
            let _ = pipe.write_all(text.as_bytes());
        }
        child.wait_with_output().map_err(start_error)
    }
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

/// Whether a program can be found.
#[must_use]
pub fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
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
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(Run::new("cat", [""; 0]).input("hello".into()).text().unwrap(), "hello");
    }
}
