//! Running `ip`, `ethtool` and the like.

use std::process::Command;

use crate::error::{Error, Result};

/// Runs a program and returns its standard output.
///
/// # Errors
/// [`Error::Command`] with its standard error if it does not start or does not exit with 0.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let failed = |message: String| Error::Command { command: format!("{program} {}", arguments.join(" ")), message };
    let output = Command::new(program).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
