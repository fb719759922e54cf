//! `segue-service`: see `segue service --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use segue_runner::Error;
use segue_runner::cli::{self, Command};

fn main() -> ExitCode {
    match cli::main(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-service: {error}");
            if matches!(error, Error::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
