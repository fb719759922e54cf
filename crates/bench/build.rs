//! Compiles the eBPF programs of the harness (bpf/bench) with clang, and that which asks the classifier (bpf/test).

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
    let compile = |from: &Path, name: &str| {
        compile(&from.join(format!("{name}.bpf.c")), &out.join(format!("{name}.bpf.o")), &libbpf)
    };
    compile(&directory, "traffic");
    compile(&directory, "cost");
    let test = directory.join("../test");
    for watched in ["../test/classifier.bpf.c", "../lib/base.h", "../lib/classifier.h", "../include"] {
        println!("cargo:rerun-if-changed={}", directory.join(watched).display());
    }
    compile(&test, "classifier");
}

fn compile(source: &Path, object: &Path, libbpf: &str) {
    let bpf = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../bpf");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Debian keeps asm/types.h in the directory of the architecture, which clang does not search for the BPF target.
    let multiarch = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo"));
    let status = Command::new(&clang)
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-Wall",
            "-Werror",
            "-isystem",
            libbpf,
            "-idirafter",
            &multiarch,
        ])
        .arg("-I")
        .arg(&bpf)
        .arg("-I")
        .arg(bpf.join("include"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("{clang} does not run: {error}; install the package clang"));
    assert!(status.success(), "{clang} failed on {}", source.display());
}
