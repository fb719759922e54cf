//! `bench` and `service`: other programs, `segue-bench` and `segue-service`, so that this one links neither libbpf nor what draws plots.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Error, Result, anyhow};

/// Becomes the program; returns only if it cannot.
pub fn become_one(command: &str, name: &str, args: &[OsString], first: &[&str]) -> Result<u8> {
    let here = env::current_exe().context("where this program is")?;
    let path = env::var_os("PATH").unwrap_or_default();
    let program = find(name, &here, &path).ok_or_else(|| missing(name, &here))?;
    // What it calls itself in its help.
    let error = Command::new(&program).arg0(format!("segue {command}")).args(first).args(args).exec();
    Err(Error::new(error).context(format!("{} cannot be run", program.display())))
}

/// Beside this program, so that both are of one build; else wherever it is installed.
fn find(name: &str, here: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let beside = here.parent().map(Path::to_path_buf);
    let mut places = beside.into_iter().chain(env::split_paths(path)).map(|directory| directory.join(name));
    places.find(|file| file.is_file())
}

fn missing(name: &str, here: &Path) -> Error {
    // The package that has the program is called otherwise for one of them.
    let package = if name == "segue-service" { "segue-runner" } else { name };
    let directory = here.parent().unwrap_or(Path::new(".")).display();
    let missing = io::Error::from(io::ErrorKind::NotFound);
    anyhow!(
        "{name}: {missing}: it is neither in {directory} nor in PATH; build it with `cargo build --release -p {package}`, \
         or install it beside segue"
    )
}
