//! Programs that tests start.

use std::process::{Command, Output};

/// Runs a program to its end and returns what it printed on standard output.
///
/// # Panics
///
/// When it cannot be started or does not exit with status 0; the message holds all that it printed.
pub fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?} failed: {}\n{}", output.status, printed(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `program argument argument ...`, split at blanks; otherwise as [`run`].
pub fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    run(Command::new(words.next().expect("a program's name")).args(words))
}

/// Runs a program to its end, whatever its exit status.
///
/// # Panics
///
/// When it cannot be started.
pub fn output(command: &mut Command) -> Output {
    segue_host::command::output(command, None)
        .unwrap_or_else(|error| panic!("{}", error.remedied("./x test installs what the tests need")))
}

/// Both streams of a finished program, for messages.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
