//! Compiles the data plane, which the crate embeds: the programs for XDP and those for the TC hook.

fn main() {
    if let Err(error) = segue_bpf_build::objects(&["segue.bpf.c", "segue_skb.bpf.c"]) {
        panic!("{error}");
    }
}
