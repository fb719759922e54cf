//! Every eBPF program loads on the oldest supported kernel, Debian 12's 6.1 (in QEMU), and on the running one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use segue_testkit::command::{output, printed};
use segue_testkit::{object, vm};

const BPFTOOL: &str = "/usr/sbin/bpftool";
const LOADED: &str = "segue-verifier: all loaded";

/// All of them: the data plane's as they are in the programs, the others compiled now.
fn objects() -> &'static [PathBuf] {
    static OBJECTS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verifier");
        std::fs::create_dir_all(&directory).expect("the directory for objects");
        let embedded = [("segue.bpf.c", segue_dataplane::OBJECT), ("segue_skb.bpf.c", segue_dataplane::SKB_OBJECT)];
        let object = |source: &PathBuf| match embedded.iter().find(|(name, _)| source.ends_with(name)) {
            Some((name, octets)) => {
                let object = directory.join(name).with_extension("o");
                std::fs::write(&object, octets).expect("the object is written");
                object
            }
            None => object::compile(source, &directory),
        };
        object::sources().iter().map(object).collect()
    })
}

#[test]
#[ignore = "needs root"]
fn every_program_loads_on_the_running_kernel() {
    let bpf = tempfile::tempdir().expect("a directory");
    segue_testkit::command::run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(bpf.path()));
    let mut refused = Vec::new();
    for (index, object) in objects().iter().enumerate() {
        let pins = bpf.path().join(index.to_string());
        let loaded = output(Command::new(BPFTOOL).args(["prog", "loadall"]).arg(object).arg(&pins));
        let programs = std::fs::read_dir(&pins).map_or(0, |entries| entries.flatten().count());
        if !loaded.status.success() || programs == 0 {
            refused.push(format!("{}: {} programs\n{}", object.display(), programs, printed(&loaded)));
        }
    }
    segue_testkit::command::run(Command::new("umount").arg(bpf.path()));
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
#[ignore = "needs root"] // not for itself: it is long, and belongs with those that run one after the other
fn every_program_loads_on_the_kernel_of_debian_12() {
    let kernel = vm::debian_12_kernel(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|error| panic!("{error}"));
    let objects = objects();
    let mut script = String::from("echo kernel $(uname -r); sysctl -q kernel.printk=1; failed=0\n");
    for (index, _) in objects.iter().enumerate() {
        script += &format!(
            "if {BPFTOOL} prog loadall /objects/{index}.o /bpf/{index}; then echo loaded {index}: $(ls /bpf/{index}); \
             else echo refused {index}; failed=1; fi\n"
        );
    }
    script += &format!("[ $failed = 0 ] && echo {LOADED}\n");
    let mut archive = vm::initramfs(&[BPFTOOL], &script);
    for (index, object) in objects.iter().enumerate() {
        archive.file(&format!("/objects/{index}.o"), false, &std::fs::read(object).expect("the object"));
    }
    let console = vm::boot(&kernel, archive, Duration::from_secs(300)).unwrap_or_else(|error| panic!("{error}"));
    assert!(console.contains("kernel 6.1."), "not the kernel of Debian 12:\n{console}");
    assert!(console.contains(LOADED), "objects {objects:?}\n{console}");
}
