//! Generates the Rust side of `bpf/include/abi`: `segue.rs` from segue.h by bindgen, `outcome.rs` from outcomes.def.

use std::path::PathBuf;
use std::{env, fs};

#[path = "build/outcomes.rs"]
mod outcomes;

fn main() {
    let [abi] = segue_bpf_build::watch(["include/abi"]).unwrap_or_else(|error| panic!("{error}"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let header = abi.join("segue.h");
    let firewall = abi.join("firewall.h");
    let definitions = abi.join("outcomes.def");
    println!("cargo:rerun-if-changed=build/outcomes.rs");

    bindgen::Builder::default()
        .header(header.display().to_string())
        .header(firewall.display().to_string())
        .clang_arg("-DSEGUE_BINDGEN")
        .allowlist_file(r".*/abi/(segue|firewall)\.h")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(false)
        .derive_eq(true)
        .derive_hash(true)
        .layout_tests(true)
        .sort_semantically(false)
        .rust_target(bindgen::RustTarget::stable(88, 0).expect("a Rust version that bindgen knows"))
        .parse_callbacks(Box::new(Names))
        .generate()
        .expect("bpf/include/abi/segue.h must be plain C that libclang parses")
        .write_to_file(out.join("segue.rs"))
        .expect("OUT_DIR is writable");

    let text = fs::read_to_string(&definitions).expect("bpf/include/abi/outcomes.def must be readable");
    let parsed = match outcomes::parse(&text) {
        Ok(parsed) => parsed,
        Err(error) => panic!("bpf/include/abi/outcomes.def, {error}"),
    };
    fs::write(out.join("outcome.rs"), outcomes::generate(&parsed)).expect("OUT_DIR is writable");
}

/// Type names as Rust writes them (`segue_sid_key` is `SidKey`, `__be32` is `Be32`), and byte conversion that is safe because zerocopy's
/// derive macros refuse a structure with padding.
#[derive(Debug)]
struct Names;

impl bindgen::callbacks::ParseCallbacks for Names {
    fn item_name(&self, item: bindgen::callbacks::ItemInfo<'_>) -> Option<String> {
        let rest = item.name.strip_prefix("segue_").or_else(|| item.name.strip_prefix("__"))?;
        Some(rest.split('_').map(capitalised).collect())
    }

    fn add_derives(&self, info: &bindgen::callbacks::DeriveInfo<'_>) -> Vec<String> {
        if info.kind != bindgen::callbacks::TypeKind::Struct {
            return Vec::new();
        }
        ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"].map(|name| format!("zerocopy::{name}")).to_vec()
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
