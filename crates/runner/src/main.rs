//! `segue-service`: see `segue service --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    segue_runner::program(segue_services::ALL)
}
