//! Tells the crate where libbpf's C headers are, so that tests can compile eBPF without a package for them.

fn main() {
    let include = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    println!("cargo::rustc-env=SEGUE_LIBBPF_INCLUDE={include}");
    println!("cargo::rerun-if-changed=build.rs");
}
