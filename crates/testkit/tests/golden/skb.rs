//! The same node on socket buffers: the tests of this program once more, with ports on the TC hook.

use std::process::Command;

use segue_testkit::command::{output, printed};
use segue_testkit::node::{HOOK, on_socket_buffers};

/// Those that are about the programs of XDP alone: their map of stages.
const ABOUT_XDP: [&str; 1] = ["generations::a_packet_meets_one_generation_in_all_its_stages"];

#[test]
#[ignore = "needs root"]
fn every_golden_packet_on_socket_buffers() {
    if on_socket_buffers() {
        return; // it is the other run that this one has started
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env(HOOK, "skb").args(["--ignored", "--test-threads=1"]);
    command.args(ABOUT_XDP.iter().flat_map(|name| ["--skip", *name]));
    let run = output(&mut command);
    let said = printed(&run);
    let result = said.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or("no result");
    assert!(run.status.success(), "{said}");
    assert!(result.contains("ok. 1") && result.contains(" 0 failed"), "all of them have run: {result}");
}
