//! `segue-bench`: what `segue bench` runs.

use std::{path::Path, process::ExitCode};

use clap::{CommandFactory, Parser, ValueEnum};
use segue_bench::error::Error;

#[derive(Parser)]
#[command(name = "segue-bench", version = env!("SEGUE_VERSION"))]
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

/// Writes the man page, for the package recipe.
fn pages(directory: &Path) -> ExitCode {
    match clap_mangen::generate_to(Command::command(), directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-bench: {}: {error}; give a directory that can be written", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    // Not an option: it needs none of what a measurement needs.
    if let [flag, directory] = std::env::args_os().skip(1).collect::<Vec<_>>().as_slice()
        && flag == "--man"
    {
        return pages(directory.as_ref());
    }
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
