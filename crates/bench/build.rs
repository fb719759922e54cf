//! Compiles the eBPF programs of the harness (bpf/bench), and that which asks the classifier (bpf/test).

fn main() {
    segue_commit::emit();
    let sources = ["bench/traffic.bpf.c", "bench/cost.bpf.c", "test/classifier.bpf.c"];
    if let Err(error) = segue_bpf_build::objects(&sources) {
        panic!("{error}");
    }
}
