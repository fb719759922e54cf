//! `segue service new`: a crate with a service that builds, with its tests, and with a program that runs it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What is written, where.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("Cargo.toml.in")),
    ("src/lib.rs", include_str!("lib.rs.in")),
    ("src/main.rs", include_str!("main.rs.in")),
    ("service.yaml", include_str!("service.yaml.in")),
];

/// Makes the crate `name` in a directory of this name below `directory`, on the sources of Segue in `segue`. Returns where it is.
///
/// # Errors
/// If the name cannot be a crate's; if something of this name is there, or there are no sources; nothing is left then but what could not be written.
pub(crate) fn make(name: &str, directory: &Path, segue: Option<&Path>) -> Result<PathBuf> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(letters)
        && !name.ends_with('-')
        && !name.contains("--")
        && name.len() <= 40;
    // What Rust has as a word cannot be a crate's name; these are those that a service could be called by.
    if !is_name
        || ["match", "move", "loop", "test", "type", "static", "self", "super", "crate", "core", "std"].contains(&name)
    {
        let message = format!(
            "{name:?} cannot name a service: write up to 40 lower-case letters, digits and hyphens, beginning with a letter, and no word of Rust's"
        );
        return Err(Error::Usage(message));
    }
    let sources = match segue {
        Some(path) => path.to_owned(),
        None => found().ok_or_else(|| {
            Error::Usage("there are no sources of Segue above this directory; name them with --segue".into())
        })?,
    };
    if !is_sources(&sources) {
        return Err(Error::Usage(format!(
            "{} has no sources of Segue: name a checkout of it with --segue",
            sources.display()
        )));
    }
    let failed = |path: &Path| Error::file("make", path, "give a directory that can be written with --in");
    let sources = fs::canonicalize(&sources).map_err(failed(&sources))?;
    let root = directory.join(name);
    if root.exists() {
        return Err(Error::Usage(format!("{} is there already: choose another name, or remove it", root.display())));
    }
    let words: Vec<_> = name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    for (file, text) in FILES {
        let path = root.join(file);
        let text = text
            .replace("@NAME@", name)
            .replace("@TYPE@", &words.concat())
            .replace("@CRATE@", &name.replace('-', "_"))
            .replace("@SEGUE@", &sources.display().to_string());
        let parent = path.parent().unwrap_or(&root);
        fs::create_dir_all(parent).map_err(failed(parent))?;
        fs::write(&path, text).map_err(failed(&path))?;
    }
    // The same versions of everything as Segue has: they are there, and they were tried.
    let lock = root.join("Cargo.lock");
    fs::copy(sources.join("Cargo.lock"), &lock).map_err(failed(&lock))?;
    Ok(root)
}

fn is_sources(path: &Path) -> bool {
    path.join("crates/service/Cargo.toml").is_file() && path.join("Cargo.lock").is_file()
}

/// The checkout that the current directory lies in.
fn found() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|path| is_sources(path)).map(Path::to_owned)
}
