//! `segue bench` by itself: for work on the harness, and for its own tests.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "segue-bench")]
struct Command {
    #[command(flatten)]
    args: segue_bench::cli::Args,
}

fn main() -> ExitCode {
    match segue_bench::cli::run(&Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
