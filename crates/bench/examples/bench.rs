//! `segue bench` by itself, for work on the harness.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: segue_bench::cli::Args,
}

fn main() -> ExitCode {
    match segue_bench::cli::run(&Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
