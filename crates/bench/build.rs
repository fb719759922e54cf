//! Compiles the eBPF programs of the harness (bpf/bench) with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let directory = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../bpf/bench");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers lie");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", directory.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    for name in ["traffic", "cost"] {
        compile(&directory.join(format!("{name}.bpf.c")), &out.join(format!("{name}.bpf.o")), &libbpf);
    }
}

fn compile(source: &Path, object: &Path, libbpf: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Debian keeps asm/types.h in the directory of the architecture, which clang does not search for the BPF target.
    let multiarch = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo"));
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", libbpf, "-I", &multiarch,
        ])
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("{clang} does not run: {error}; install the package clang"));
    assert!(status.success(), "{clang} failed on {}", source.display());
}
