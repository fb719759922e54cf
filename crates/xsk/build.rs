//! Compiles the programs of a service's interface, which the crate embeds.

fn main() {
    if let Err(error) = segue_bpf_build::objects(&["service.bpf.c"]) {
        panic!("{error}");
    }
}
