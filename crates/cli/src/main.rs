//! `segue`: see `segue --help`.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod output;
#[cfg(test)]
mod pages;
mod target;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::run(cli) {
        Ok(status) => ExitCode::from(status),
        // A reader such as `head` that has seen enough is no failure.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue: {error:#}");
            if error.is::<target::WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
