//! `segued`: see `segued --help`.
#![forbid(unsafe_code)]

use std::{io::IsTerminal, path::Path, process::ExitCode};

use clap::{CommandFactory, Parser};
use segue_agent::{
    options::{Command, Options},
    server,
};
use segue_host::Namespace;

/// Writes man pages, for the package recipe.
fn pages(directory: &Path) -> ExitCode {
    match clap_mangen::generate_to(Options::command(), directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segued: {}: {error}; give a directory that can be written", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Command::Man { directory }) = &options.command {
        return pages(directory);
    }
    let filter = match tracing_subscriber::EnvFilter::try_new(&options.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("segued: --log {}: {error}; give a level such as `info`", options.log);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Before anything starts a thread: threads stay in the namespace in which they were made.
    let enter = |name| Namespace::open(name)?.enter_for_good();
    let entered = options.netns.as_deref().map_or(Ok(()), enter).map_err(anyhow::Error::from);
    match entered.and_then(|()| server::run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segued: {error:#}");
            ExitCode::FAILURE
        }
    }
}
