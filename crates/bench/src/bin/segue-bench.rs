//! `segue-bench`: what `segue bench` runs.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use segue_bench::error::Error;

#[derive(Parser)]
#[command(name = "segue-bench", version)]
struct Command {
    #[command(flatten)]
    args: segue_bench::cli::Args,
    /// As `segue` has it: `-o json` is `--json`
    #[arg(short = 'o', long = "format", value_enum, default_value = "table", hide = true)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
}

fn main() -> ExitCode {
    let Command { mut args, format } = Command::parse();
    args.json |= format == Format::Json;
    match segue_bench::cli::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-bench: {error}");
            if matches!(error, Error::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
