//! `up` dies by SIGKILL at some moment; `down` still removes everything.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{File, assert_nothing_left, need_root, topology_file, unique};
use segue_lab::names::Roots;
use segue_lab::progress::Progress;
use segue_lab::{down, list, up};

/// Names the topology file to the program that is to die.
const VICTIM: &str = "SEGUE_LAB_TEST_VICTIM";

fn topology(name: &str) -> File {
    let mut text = format!("name: {name}\nnodes:\n");
    // Two agents are enough, and most of the time of `up` is theirs.
    for node in 1..=6 {
        let dataplane = if node <= 2 { "segue" } else { "plain" };
        text.push_str(&format!("  n{node}: {{ dataplane: {dataplane} }}\n"));
    }
    text.push_str("links:\n");
    for node in 1..6 {
        text.push_str(&format!("  - between: [n{node}, n{}]\n", node + 1));
    }
    text.push_str("functions:\n  f: { node: n1, namespace: { nftables: \"table inet t { counter c { }; }\", commands: [\"sleep 300 >/dev/null 2>&1 &\"] } }\n");
    text.push_str("  s: { node: n2, service: { name: forward } }\n  w: { node: n1, service: { name: tun } }\n");
    text.push_str(
        "hosts: { h1: { node: n1 }, h2: { node: n2 } }\nchains: { c: { from: h1, to: h2, via: [f, s, w] } }\n",
    );
    // Longer than any of this takes.
    text.push_str(
        "traffic: { t: { from: h1, to: h2, seconds: 3000 }, p: { from: h2, to: h1, protocol: icmp, seconds: 3000 } }\n",
    );
    text.push_str("captures: { l: { at: n1--n2 }, c: { at: $chain.c, file: other.pcapng } }\n");
    topology_file(&text)
}

/// Not a test by itself: brings the topology up that the environment names. `dies_at_any_moment` runs it and kills it.
#[test]
#[ignore = "needs root"]
fn victim() {
    let Some(file) = std::env::var_os(VICTIM) else { return };
    let loaded = up::load(file.as_ref()).unwrap();
    up::up(&Roots::default(), &loaded, &Progress::silent()).unwrap();
}

fn start(file: &File) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--ignored", "--nocapture"])
        .env(VICTIM, &file.path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "needs root"]
fn dies_at_any_moment() {
    need_root();
    let roots = Roots::default();
    // How long a whole `up` takes here and now gives the moments to die at.
    let name = unique("die");
    let file = topology(&name);
    let begun = Instant::now();
    assert!(start(&file).wait().unwrap().success());
    // Not longer than that: on a busy machine the first one may have been slow by chance.
    let whole = begun.elapsed().min(Duration::from_secs(10));
    assert_eq!(list::status(&roots, &name).unwrap().condition, list::Condition::Up);
    down::down(&roots, &name).unwrap();
    assert_nothing_left(&roots, &name);
    let mut half_way = 0;
    for part in 1..=6 {
        let mut victim = start(&file);
        std::thread::sleep(whole * part / 7);
        victim.kill().unwrap();
        victim.wait().unwrap();
        // A program that `up` had just started may live for a moment and make something yet.
        std::thread::sleep(Duration::from_millis(50));
        let removed = down::down(&roots, &name).unwrap_or_else(|error| panic!("killed at {part}/7: {error}"));
        half_way += usize::from(!removed.nothing());
        assert_nothing_left(&roots, &name);
    }
    // Once all is up, and what the lab has started is at work, too.
    assert!(start(&file).wait().unwrap().success());
    let accounts = segue_lab::traffic::accounts(&roots, &name).unwrap();
    assert!(accounts.len() == 2 && accounts.iter().all(|account| !account.state.is_final()), "{accounts:?}");
    let processes: Vec<u32> = accounts.iter().map(|account| account.process).collect();
    assert!(
        down::down(&roots, &name).unwrap().processes >= 8,
        "agents, services with what starts them, traffic, captures"
    );
    assert_nothing_left(&roots, &name);
    for process in processes {
        // Whoever was its parent may not have looked yet.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "traffic goes on: {stat}");
    }
    assert!(half_way >= 3, "`up` was hardly ever caught in the middle: {half_way} of 6");
    println!("whole `up` {whole:?}; caught in the middle {half_way} times of 6");
}
