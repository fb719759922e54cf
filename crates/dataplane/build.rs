//! Compiles the data plane, which the crate embeds: the programs for XDP and those for the TC hook.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: [&str; 2] = ["segue.bpf.c", "segue_skb.bpf.c"];

fn main() {
    // Relative to the crate, so that a target directory that serves two checkouts does not mix them up.
    for watched in ["include", "lib"].iter().chain(&SOURCES) {
        println!("cargo:rerun-if-changed=../../bpf/{watched}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    SOURCES.into_iter().for_each(compile);
}

fn compile(source: &str) {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is set by cargo or a dependency"));
    let repository = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let repository = fs::canonicalize(&repository).expect("the crate lies in the repository");
    let bpf = repository.join("bpf");
    let object = PathBuf::from(variable("OUT_DIR")).join(Path::new(source).with_extension("o"));

    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(&clang);
    command
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3"])
        // The build id must not depend on where the repository lies.
        .arg(format!("-ffile-prefix-map={}=.", repository.display()))
        .arg("-I")
        .arg(bpf.join("include"))
        .arg("-I")
        .arg(&bpf)
        // libbpf's headers for eBPF programs, from the libbpf that is linked.
        .arg("-I")
        .arg(variable("DEP_BPF_INCLUDE"))
        // asm/types.h of Debian's multiarch directory, which clang does not search for the target bpf.
        .arg(format!("-I/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH")))
        .arg("-c")
        .arg(bpf.join(source))
        .arg("-o")
        .arg(&object);
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{clang} compiles the data plane and can not be started: {error}"));
    assert!(status.success(), "{clang} does not compile bpf/{source}; its messages are above");
}
