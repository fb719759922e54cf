//! `segued`: see `segued --help`.
#![forbid(unsafe_code)]

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use segue_agent::{options::Options, server};
use segue_host::Namespace;

fn main() -> ExitCode {
    let options = Options::parse();
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
