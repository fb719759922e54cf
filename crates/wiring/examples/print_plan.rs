//! Prints the plan of a topology as JSON: `cargo run -p segue-wiring --example print_plan -- FILE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: print_plan FILE");
        return ExitCode::from(2);
    };
    let planned = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}")).and_then(|source| {
        let (_, plan) = segue_wiring::load_plan(&source, &file).map_err(|errors| errors.to_string())?;
        serde_json::to_string_pretty(&plan).map_err(|error| error.to_string())
    });
    match planned {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
