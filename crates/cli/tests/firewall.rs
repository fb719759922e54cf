//! `segue firewall` against a running agent: a lab of one node, real traffic, every subcommand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_testkit::command::{output, printed, run};
use serde_json::Value;

const TOPOLOGY: &str = "
nodes: { router: {} }
hosts: { client: { node: router, firewall: fw }, server: { node: router } }
functions: { fw: { node: router, firewall: { ipv4: rules.v4 } } }
";

const RULES: &str = "*filter
:FORWARD DROP [0:0]
:pings - [0:0]
-A FORWARD -s 192.0.2.0/24 -m comment --comment \"nobody has this\" -j DROP
-A FORWARD -p icmp -m icmp --icmp-type 8 -g pings
-A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT
-A pings -m length --length 500:65535 -j REJECT --reject-with icmp-admin-prohibited
-A pings -j ACCEPT
COMMIT
";

/// A lab that goes down with the test.
struct Lab {
    name: String,
    directory: tempfile::TempDir,
}

impl Lab {
    fn up() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let name = format!("fwcli{:x}", std::process::id());
        let lab = Self { name: name.clone(), directory };
        fs::write(lab.path("rules.v4"), RULES).unwrap();
        fs::write(lab.path("lab.yaml"), format!("name: {name}{TOPOLOGY}")).unwrap();
        run(segue(&["lab", "up"]).arg(lab.path("lab.yaml")));
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        segue(&[&["--lab", &self.name], arguments].concat())
    }

    /// What a command prints that must succeed.
    fn segue(&self, arguments: &[&str]) -> String {
        run(&mut self.command(arguments))
    }

    /// What a command says that must fail.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = output(&mut self.command(arguments));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", printed(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Whether the server answers an echo request of so many octets.
    fn ping(&self, octets: u32) -> bool {
        let command =
            ["lab", "exec", &self.name, "client", "--", "ping", "-c1", "-W1", "-s", &octets.to_string(), "10.0.2.2"];
        output(&mut segue(&command)).status.success()
    }

    fn rules(&self) -> Vec<(String, u64)> {
        let shown: Value = serde_json::from_str(&self.segue(&["firewall", "show", "fw", "-o", "json"])).unwrap();
        let rows = ["rules", "policies"].into_iter().flat_map(|key| shown[0][key].as_array().unwrap().clone());
        rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["packets"].as_u64().unwrap())).collect()
    }

    fn packets(&self, words: &str) -> u64 {
        self.rules().into_iter().find(|(name, _)| name.contains(words)).unwrap_or_else(|| panic!("{words}")).1
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = segue(&["lab", "down", &self.name]).output();
    }
}

fn segue(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.args(arguments);
    command
}

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
#[ignore = "needs root"]
fn every_subcommand_works_on_a_running_agent() {
    let lab = Lab::up();
    // Show.
    while !lab.ping(56) {}
    let before = lab.packets("-A pings -j ACCEPT");
    assert!(lab.ping(56) && !lab.ping(600));
    assert_eq!(lab.packets("-A pings -j ACCEPT"), before + 1);
    assert_eq!(lab.packets("REJECT"), 1);
    let table = lab.segue(&["firewall", "show"]);
    assert!(table.starts_with("firewall fw (basic mode, on)\n"), "{table}");
    let row = table.lines().find(|line| line.contains("REJECT")).unwrap();
    assert!(row.split_whitespace().take(2).eq(["1", "628"]) && row.ends_with("(line 7)"), "{row}");
    let shown: Value = serde_json::from_str(&lab.segue(&["firewall", "show", "fw", "-o", "json"])).unwrap();
    let rejects =
        shown[0]["rules"].as_array().unwrap().iter().find(|rule| rule["name"].as_str().unwrap().contains("REJECT"));
    assert_eq!((&rejects.unwrap()["file"], &rejects.unwrap()["line"]), (&"rules.v4".into(), &7.into()), "{shown}");
    assert_eq!(shown[0]["policies"][0]["file"], "rules.v4", "{shown}");
    let never = |text: &str| text.lines().filter(|line| line.ends_with("never hit")).count();
    assert_eq!(never(&table), 3, "two rules and the policy: {table}");
    let table = lab.segue(&["firewall", "show", "fw", "--never-hit"]);
    assert_eq!((never(&table), table.lines().count()), (3, 5), "{table}");
    let listing = lab.segue(&["firewall", "show", "fw", "--form", "iptables"]);
    assert!(listing.contains("Chain FORWARD (policy DROP 0 packets, 0 bytes)"), "{listing}");
    assert!(listing.lines().any(|line| line.trim().starts_with("1        1   628 REJECT")), "{listing}");
    let saved = lab.segue(&["firewall", "show", "fw", "--form", "save"]);
    assert!(saved.contains("[1:628] -A pings -m length --length 500:65535 -j REJECT"), "{saved}");
    assert!(lab.refused(&["firewall", "show", "nobody"]).contains("there is no firewall \"nobody\""));
    // What is saved is a file of rules.
    let saved = write(&lab.path("saved.v4"), &saved);
    assert_eq!(
        lab.segue(&["firewall", "check", "--ipv4", &saved]),
        format!("{saved}: 5 rules in 2 chains can be loaded\n")
    );
    let bad = write(&lab.path("bad.v4"), &RULES.replace("-g pings", "-g pongs"));
    assert!(lab.refused(&["firewall", "check", "--ipv4", &bad]).contains("bad.v4:5:"));
    // Explain.
    let packet = ["--source", "10.0.1.2", "--destination", "10.0.2.2", "--protocol", "icmp", "--icmp-type", "8"];
    let text = lab.segue(&[&["firewall", "explain", "fw", "--length", "600"], &packet[..]].concat());
    for words in ["rules.v4:4", "rules.v4:7", "the packet is rejected"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Off and on.
    assert_eq!(lab.segue(&["firewall", "off", "fw"]), "firewall fw is off: every packet passes\n");
    assert!(lab.ping(600), "it passes");
    assert!(lab.segue(&["firewall", "show"]).contains("off: every packet passes"));
    assert_eq!(lab.packets("REJECT"), 1, "and is not counted");
    assert_eq!(lab.segue(&["firewall", "on", "fw"]), "firewall fw is on\n");
    assert!(!lab.ping(600));
    assert_eq!(lab.packets("REJECT"), 2, "the counter goes on");
    assert!(lab.refused(&["firewall", "off", "nobody"]).contains("nobody"));
    refused_rules(&lab);
}

/// Another document with the state of the node, whose rules lie in a file beside it.
fn refused_rules(lab: &Lab) {
    let mut state: Value = serde_json::from_str(&lab.segue(&["get", "state", "-o", "json"])).unwrap();
    state["firewalls"][0]["ipv4"] = "new.v4".into();
    let document = write(&lab.path("state.json"), &state.to_string());
    let apply = ["apply", document.as_str()];
    assert!(lab.refused(&apply).contains("firewall fw: "), "the file is not there yet");
    write(&lab.path("new.v4"), &RULES.replace("-m length --length 500:65535", "-m string --string x --algo bm"));
    let said = lab.refused(&apply);
    assert!(said.contains("new.v4:7: firewalls[0].ipv4: column 13: `string`") && said.contains("payload"), "{said}");
    assert!(!lab.ping(600) && lab.packets("REJECT") == 3, "the old rules are there, with their counters");
    write(&lab.path("new.v4"), &RULES.replace("500:65535", "1000:65535"));
    let said = lab.segue(&apply);
    assert!(said.contains("applied as generation"), "{said}");
    assert!(lab.ping(600) && lab.packets("REJECT") == 0, "another rule begins at 0");
    assert!(lab.packets("-A pings -j ACCEPT") > 2, "the same rule goes on");
}
