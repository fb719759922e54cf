//! `bench`: another program, `segue-bench`, so that this one links neither libbpf nor what draws plots.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Error, Result, anyhow};

const PROGRAM: &str = "segue-bench";

/// Becomes the program; returns only if it cannot.
pub fn bench(args: &[OsString], json: bool) -> Result<u8> {
    let here = env::current_exe().context("where this program is")?;
    let program = find(&here, env::var_os("PATH").as_deref().unwrap_or_default()).ok_or_else(|| missing(&here))?;
    // What it calls itself in its help.
    let error = Command::new(&program).arg0("segue bench").args(json.then_some("--json")).args(args).exec();
    Err(Error::new(error).context(format!("{} cannot be run", program.display())))
}

/// Beside this program, so that both are of one build; else wherever it is installed.
fn find(here: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let beside = here.parent().map(Path::to_path_buf);
    let mut places = beside.into_iter().chain(env::split_paths(path)).map(|directory| directory.join(PROGRAM));
    places.find(|file| file.is_file())
}

fn missing(here: &Path) -> Error {
    let directory = here.parent().unwrap_or(Path::new(".")).display();
    let missing = io::Error::from(io::ErrorKind::NotFound);
    anyhow!(
        "{PROGRAM}: {missing}: it is neither in {directory} nor in PATH; build it with `cargo build --release -p {PROGRAM}`, \
         or install it beside segue"
    )
}
