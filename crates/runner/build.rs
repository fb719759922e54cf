//! The version with the commit; and what `segue service new` writes, as a module of the tests.

use std::path::Path;
use std::{env, fs};

/// Of `src/new`: the library of a new crate.
const LIBRARY: &str = "src/new/lib.rs.in";

fn main() {
    segue_commit::emit();
    println!("cargo::rerun-if-changed={LIBRARY}");
    let text = fs::read_to_string(LIBRARY).unwrap_or_else(|error| panic!("{LIBRARY}: {error}"));
    // What is only at the head of a crate.
    let is_of_crate = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
    let lines: Vec<&str> = text.lines().skip_while(|line| is_of_crate(line)).collect();
    let text = lines.join("\n").replace("@NAME@", "short-only").replace("@TYPE@", "ShortOnly");
    let directory = env::var_os("OUT_DIR").unwrap_or_else(|| panic!("cargo sets OUT_DIR"));
    let file = Path::new(&directory).join("new_service.rs");
    fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
