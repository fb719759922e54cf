//! eBPF objects for tests.

use std::path::{Path, PathBuf};

use segue_bpf_build::Clang;

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/testkit lies in the repository").to_owned()
}

/// All eBPF programs of the repository: `*.bpf.c` anywhere below `bpf/`.
///
/// # Panics
///
/// When the directory cannot be read or holds none.
pub fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![repository().join("bpf")];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.to_string_lossy().ends_with(".bpf.c") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no *.bpf.c below bpf/");
    found.sort();
    found
}

/// Compiles one eBPF program into `directory` and returns the object's path.
///
/// # Panics
///
/// When clang refuses it; the message holds what clang says.
pub fn compile(source: &Path, directory: &Path) -> PathBuf {
    let name = source.file_name().expect("a file").to_string_lossy().replace(".bpf.c", ".bpf.o");
    // Each caller has its own file: tests that run side by side would read each other's half-written objects.
    let object = directory.join(name);
    let clang = Clang::new(&repository(), Path::new(env!("SEGUE_LIBBPF_INCLUDE")));
    if let Err(error) = clang.and_then(|clang| clang.compile(source, &object)) {
        panic!("{error}");
    }
    object
}
