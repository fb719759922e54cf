//! Labs without Segue's data plane: everything but the agents.

use crate::common::{TestLab, assert_nothing_left, need_root, topology_file, unique};
use segue_host::HostError;
use segue_lab::names::{LabPaths, Roots};
use segue_lab::progress::Progress;
use segue_lab::{LabError, capture, cli, down, exec, list, netns, up};

const KERNEL: &str = "
nodes:
  a: { dataplane: kernel }
  t: { dataplane: kernel }
  b: { dataplane: kernel }
hosts:
  h1: { node: a }
  h2: { node: b }
links:
  - between: [a, t]
  - between: [t, b]
chains:
  c: { from: h1, to: h2, via: [\"node:t\"] }
";

#[test]
#[ignore = "needs root"]
fn kernel_nodes_carry_a_chain() {
    let lab = TestLab::up("ker", KERNEL);
    let [_, v6] = lab.addresses("h2");
    assert!(lab.try_sh("h1", &format!("ping -n -c 3 -i 0.1 -w 5 {v6}")), "no answer from {v6}");
    // The chain, not plain routing, carried it: the kernel's route for the host says so.
    let route = lab.sh("a", &format!("ip -6 route get {v6}"));
    assert!(route.contains("seg6"), "{route}");
    // Interface numbers count from 2, whatever else the machine has.
    let links = lab.sh("t", "ip -o link show | cut -d: -f1 | tr '\\n' ' '");
    assert_eq!(links.trim(), "1 2 3");
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn list_exec_and_capture() {
    let lab = TestLab::up("lst", KERNEL);
    let status = list::status(&lab.roots, &lab.name).unwrap();
    assert_eq!(status.condition, list::Condition::Up, "{status:?}");
    assert_eq!(status.nodes.len(), 5);
    assert!(list::list(&lab.roots).iter().any(|one| one.lab == lab.name));
    let run = |words: &[&str]| {
        exec::exec(&lab.roots, &lab.name, "h1", &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(run(&["sh", "-c", "exit 42"]).unwrap(), 42);
    assert_eq!(run(&["sh", "-c", "test $(ls /sys/class/net | wc -l) -ne 2"]).unwrap(), 0, "/sys is left alone");
    assert!(matches!(run(&["no-such-program"]), Err(LabError::Host(HostError::Start { .. }))));
    let error = exec::exec(&lab.roots, &lab.name, "h9", &["true".into()]).unwrap_err().to_string();
    assert!(error.contains("h9") && error.contains("h1, h2"), "{error}");
    assert!(matches!(exec::exec(&lab.roots, "no-such-lab", "h1", &["true".into()]), Err(LabError::NoSuchLab { .. })));
    captures_with_tcpdump(&lab);
    lab.down();
}

fn captures_with_tcpdump(lab: &TestLab) {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("h2.pcap");
    let port = lab.record.node("h2").unwrap().ports[0].clone();
    let arguments = cli::CaptureArguments {
        lab: lab.name.clone(),
        node: "h2".into(),
        port: Some(port),
        write: Some(path.clone()),
        count: Some(2),
        seconds: Some(20),
    };
    let [_, v6] = lab.addresses("h2");
    std::thread::scope(|scope| {
        let ping = scope.spawn(|| lab.try_sh("h1", &format!("ping -n -c 30 -i 0.1 {v6}")));
        assert_eq!(capture::capture(&lab.roots, &arguments).unwrap(), 0);
        assert!(ping.join().unwrap());
    });
    assert_eq!(segue_lab::capture::read(&path).unwrap().len(), 2);
    let wrong = cli::CaptureArguments { port: Some("eth99".into()), ..arguments };
    assert!(matches!(capture::capture(&lab.roots, &wrong), Err(LabError::NoSuchPort { .. })));
}

#[test]
#[ignore = "needs root"]
fn up_twice_is_refused_and_down_twice_is_not() {
    let lab = TestLab::up("two", KERNEL);
    let again = up::up(&lab.roots, &lab.loaded, &Progress::silent());
    assert!(matches!(again, Err(LabError::AlreadyUp { .. })), "{again:?}");
    assert_eq!(
        list::status(&lab.roots, &lab.name).unwrap().condition,
        list::Condition::Up,
        "the first one was not harmed"
    );
    let removed = down::down(&lab.roots, &lab.name).unwrap();
    assert_eq!(removed.namespaces, 5);
    assert!(down::down(&lab.roots, &lab.name).unwrap().nothing());
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn a_failed_up_leaves_nothing() {
    need_root();
    let name = unique("bad");
    let text = format!(
        "name: {name}\nnodes: {{ a: {{}} }}\nfunctions:\n  f:\n    node: a\n    namespace:\n      nftables: \"table inet t {{ no such thing }}\"\n"
    );
    let file = topology_file(&text);
    let loaded = up::load(&file.path).unwrap_or_else(|error| panic!("{error}"));
    let error = up::up(&Roots::default(), &loaded, &Progress::silent()).unwrap_err().to_string();
    assert!(error.contains("nft") && error.contains(&format!("sg-{name}-f")) && error.contains("do:"), "{error}");
    assert_nothing_left(&Roots::default(), &name);
}

#[test]
#[ignore = "needs root"]
fn a_missing_ruleset_is_told_before_anything_is_made() {
    need_root();
    let name = unique("mis");
    let text = format!(
        "name: {name}\nnodes: {{ a: {{}} }}\nfunctions:\n  f: {{ node: a, namespace: {{ nftables: not-there.nft }} }}\n"
    );
    let file = topology_file(&text);
    let loaded = up::load(&file.path).unwrap_or_else(|error| panic!("{error}"));
    let error = up::up(&Roots::default(), &loaded, &Progress::silent()).unwrap_err().to_string();
    assert!(error.contains("not-there.nft"), "{error}");
    let paths = LabPaths::new(&Roots::default(), &name).unwrap();
    assert!(!paths.directory.exists());
    assert_nothing_left(&Roots::default(), &name);
}

#[test]
#[ignore = "needs root"]
fn down_works_from_the_names_alone_and_spares_others() {
    let lab = TestLab::up("nam", KERNEL);
    // A lab whose name begins with this one's, up to the hyphen: its namespaces begin like this one's, too.
    let roots = Roots::default();
    let other = format!("{}-x", lab.name);
    let file = topology_file(&format!("name: {other}\n{KERNEL}"));
    let loaded = up::load(&file.path).unwrap_or_else(|error| panic!("{error}"));
    up::up(&roots, &loaded, &Progress::silent()).unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_dir_all(lab.paths().directory).unwrap();
    let status = list::status(&roots, &lab.name).unwrap();
    assert_eq!((status.condition, status.nodes.len()), (list::Condition::Leftover, 5));
    let mut sleeper = netns::inside(&lab.namespace("h1"), || std::process::Command::new("sleep").arg("600").spawn())
        .unwrap()
        .unwrap();
    let removed = down::down(&roots, &lab.name).unwrap();
    assert_eq!((removed.namespaces, removed.processes), (5, 1));
    assert!(!sleeper.wait().unwrap().success(), "it was ended");
    assert_eq!(list::status(&roots, &other).unwrap().condition, list::Condition::Up);
    // Not even its records tell the other lab apart now, only the marks on the namespaces.
    std::fs::remove_dir_all(LabPaths::new(&roots, &other).unwrap().directory).unwrap();
    assert!(down::down(&roots, &lab.name).unwrap().nothing());
    assert_eq!(down::down(&roots, &other).unwrap().namespaces, 5);
    assert_nothing_left(&roots, &other);
    lab.down();
}
