//! `segue trace`, `ping` and `traceroute`: packets from captures, nodes as they are deployed (agents that are named by a file, of which nobody has a
//! topology), SIDs of Segue and of the kernel.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use segue_api::client::Client;
use segue_model::node::{NodeState, PortMode};
use segue_testkit::command::{output, printed, run};
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::Value;

/// `ker` is a node of the kernel's own seg6.
const TOPOLOGY: &str = "
nodes: { edge1: {}, ker: { dataplane: kernel }, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, ker] }, { between: [ker, edge2] }, { between: [edge1, edge2] }]
chains:
  by-kernel: { from: client, to: server, via: ['node:ker'], match: { protocol: tcp } }
  direct: { from: client, to: server, via: [], match: { protocol: udp } }
";

/// A lab that goes down with the test.
struct Lab {
    name: String,
    directory: tempfile::TempDir,
}

impl Lab {
    fn up() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let lab = Self { name: format!("trccli{:x}", std::process::id()), directory };
        fs::write(lab.path("lab.yaml"), format!("name: {}{TOPOLOGY}", lab.name)).unwrap();
        run(segue(&["lab", "up"]).arg(lab.path("lab.yaml")));
        // Packets are put in on both hooks: the other node's ports are on socket buffers.
        let on_xdp = |state: &mut NodeState| {
            state.ports.iter_mut().for_each(|port| port.mode = PortMode::Xdp);
            Ok::<(), segue_api::client::Error>(())
        };
        Client::new(lab.socket("edge1")).change(on_xdp).unwrap_or_else(|error| panic!("{error}"));
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn segue(&self, arguments: &[&str]) -> Output {
        output(&mut segue(&[&["--lab", &self.name], arguments].concat()))
    }

    /// What a command prints as JSON, with its exit status.
    fn json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        json(&self.segue(&[arguments, &["-o", "json"]].concat()))
    }

    fn labels(&self) -> Value {
        json(&output(&mut segue(&["lab", "labels", &self.name, "-o", "json"]))).0
    }

    fn label(&self, label: &str) -> String {
        let all = self.labels();
        let found = all.as_array().unwrap().iter().find(|one| one["label"] == label);
        found.unwrap_or_else(|| panic!("{label}: {all}"))["value"].as_str().unwrap().to_owned()
    }

    fn record(&self) -> Value {
        let path = format!("/run/segue/lab/{}/lab.json", self.name);
        serde_json::from_str(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))).unwrap()
    }

    fn node(&self, name: &str) -> Value {
        let record = self.record();
        record["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
    }

    fn socket(&self, name: &str) -> String {
        self.node(name)["socket"].as_str().unwrap().to_owned()
    }

    /// Both nodes as they would be named where they are deployed: one by its socket, one by a program that connects.
    fn nodes(&self) -> String {
        let text = format!(
            "nodes:\n  edge1: {{socket: {}}}\n  edge2: {{connect: ['{}', --socket, {}, stdio]}}\n",
            self.socket("edge1"),
            env!("CARGO_BIN_EXE_segue"),
            self.socket("edge2")
        );
        fs::write(self.path("nodes.yaml"), text).unwrap();
        self.path("nodes.yaml").display().to_string()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = output(&mut segue(&["lab", "down", &self.name]));
        if !down.status.success() {
            eprintln!("{}", printed(&down));
        }
    }
}

fn segue(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.args(arguments);
    command
}

fn json(output: &Output) -> (Value, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {}", printed(output)));
    (value, output.status.code())
}

fn stations(hops: &Value) -> Vec<&str> {
    hops.as_array().unwrap().iter().map(|hop| hop["station"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs root"]
fn packets_nodes_and_sids() {
    let lab = Lab::up();
    captures(&lab);
    deployed(&lab);
    nonsense(&lab);
    pings(&lab);
    chains(&lab);
    a_node_that_dies(&lab);
}

fn captures(lab: &Lab) {
    let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let address = |label: &str| lab.label(label).parse().unwrap();
    let (client, server) = (address("$client"), address("$server"));
    let plain = ethernet().ipv6(Ipv6Repr::new(client, server)).udp(UdpRepr::new(7, 5001)).payload(&[1; 300]).build();
    let sid = address("$edge2.end-dt46");
    let steered = ethernet()
        .ipv6(Ipv6Repr::new(client, sid))
        .srh(SrhRepr::new(&[sid]))
        .inner_ipv6(Ipv6Repr::new(client, server))
        .udp(UdpRepr::new(7, 8))
        .build();
    let file = lab.path("some.pcap").display().to_string();
    fs::write(&file, segue_api::pcap::classic(&[plain, steered, vec![0; 60]])).unwrap();
    let traced = |arguments: &[&str]| lab.json(&[&["trace", "--pcap", &file][..], arguments].concat());
    let (trace, status) = traced(&["--number", "1"]);
    assert_eq!((&trace["verdict"], status), (&Value::from("delivered"), Some(0)), "{trace}");
    assert_eq!((&trace["flow"]["destination_port"], &trace["flow"]["length"]), (&5001.into(), &348.into()), "{trace}");
    assert_eq!(stations(&trace["hops"]), ["client", "edge1", "edge2", "server"]);
    let rules: Vec<&Value> = trace["simulation"]["hops"][0]["steps"].as_array().unwrap().iter().collect();
    assert!(rules.iter().any(|step| step["what"] == "steering"), "{rules:?}");
    // From its source on the wire it is from outside, at a core port it is not.
    let (trace, status) = traced(&["--number", "2", "--simulate", "--ingress", "edge1:client"]);
    assert_eq!((&trace["reason"], status), (&Value::from("drop_sr_from_outside"), Some(1)), "{trace}");
    let (trace, status) = traced(&["--number", "2", "--simulate", "--ingress", "edge2:edge1"]);
    assert_eq!(trace["reason"], "drop_source_outside_domain", "{trace}");
    assert_eq!((&trace["simulation"]["certain"], status), (&Value::from(true), Some(1)));
    for (arguments, words) in [
        (vec!["--number", "2"], "give --simulate"),
        (vec!["--number", "3", "--simulate"], "no IP packet"),
        (vec!["--number", "9", "--simulate"], "the file has 3"),
        (vec!["--number", "1", "--ingress", "edge1:nothing"], "choose one of: "),
        (vec!["--number", "1", "--ingress", "nobody:x"], "there is no node"),
    ] {
        let refused = lab.segue(&[&["trace", "--pcap", &file][..], &arguments].concat());
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(printed(&refused).contains(words), "{arguments:?}: {}", printed(&refused));
    }
}

fn deployed(lab: &Lab) {
    let nodes = lab.nodes();
    let (client, server) = (lab.label("$client"), lab.label("$server"));
    let flow = ["--source", &client, "--to", &server];
    let trace = |arguments: &[&str]| json(&output(&mut segue(&[&["trace", "-o", "json"][..], arguments].concat())));
    let both = ["--nodes", &nodes, "--ingress", "edge1:client"];
    let (found, status) = trace(&[&both[..], &flow].concat());
    // It leaves the nodes that are known, to a host, which says that nobody listens on the port: an answer.
    assert_eq!((&found["verdict"], status), (&"delivered".into(), Some(0)), "{found}");
    assert_eq!(found["simulation"]["verdict"], "left", "{found}");
    assert_eq!(stations(&found["hops"]), ["edge1", "edge2"], "{found}");
    assert_eq!(stations(&found["simulation"]["hops"]), ["edge1", "edge2"], "who is there is known by its address");
    assert!(found["hops"][1]["headers"].as_str().unwrap().starts_with(&format!("{client} > {server}")), "{found}");
    assert!(found.get("differs").is_none(), "{found}");
    // The chain's packet from the steering rule, which names the port.
    let chain = ["--nodes", &nodes, "direct", "--simulate", "--ingress", "edge1:client"];
    let (found, _) = trace(&chain);
    assert_eq!((&found["verdict"], &found["flow"]["protocol"]), (&"left".into(), &17.into()), "{found}");
    // One node alone, at its socket.
    let socket = lab.socket("edge1");
    let alone = ["--socket", &socket, "--ingress", "client"];
    let (found, status) = trace(&[&alone[..], &flow].concat());
    assert!(found["verdict"] == "delivered" || found["verdict"] == "left", "{found}");
    assert_eq!((&found["simulation"]["station"], status), (&"edge1".into(), Some(0)), "{found}");
    let (found, status) = trace(&[&alone[..], &flow, &["--hop-limit", "1"]].concat());
    let end = (&found["verdict"], &found["reason"], status);
    assert_eq!(end, (&"vanished".into(), &"drop_hop_limit_exceeded".into(), Some(1)), "{found}");
    assert!(found.get("differs").is_none(), "{found}");
    let printed_text = printed(&output(&mut segue(&[&["trace"][..], &alone, &flow].concat())));
    assert!(
        printed_text.contains("steering") && printed_text.contains("Left: it leaves edge1 by edge2"),
        "{printed_text}"
    );
    for (arguments, words) in [
        (vec!["--nodes", &nodes, "--ingress", "client", "--to", &server, "--source", &client], "names no node"),
        (vec!["--nodes", &nodes, "nobody", "--ingress", "edge1:client"], "leads into a chain"),
        (vec!["--socket", &socket, "--ingress", "nothing", "--to", &server, "--source", &client], "choose one of: "),
        (
            vec!["--socket", "/nonexistent", "--ingress", "client", "--to", &server, "--source", &client],
            "no such socket",
        ),
    ] {
        let refused = output(&mut segue(&[&["trace"][..], &arguments].concat()));
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(printed(&refused).contains(words), "{arguments:?}: {}", printed(&refused));
    }
}

/// What is no packet, and no port, is refused, and the agent goes on.
fn nonsense(lab: &Lab) {
    let socket = PathBuf::from(lab.socket("edge1"));
    let ask = |path: &str, body: &str| {
        let patience = std::time::Duration::from_secs(10);
        let answer = segue_api::http::request(&socket, "POST", path, Some(body), patience).unwrap();
        (answer.status, answer.text().unwrap())
    };
    let long = format!(r#"{{"port": "client", "packet": "60{}"}}"#, "00".repeat(70_000));
    for body in [
        "",
        "{}",
        "[]",
        r#"{"port": "client"}"#,
        r#"{"port": "client", "packet": "6"}"#,
        r#"{"port": "client", "packet": "zz"}"#,
        r#"{"port": "client", "packet": ""}"#,
        r#"{"port": "client", "packet": "70"}"#,
        r#"{"port": "client", "packet": "60", "frame": "60"}"#,
        r#"{"port": "client", "frame": "00"}"#,
        r#"{"port": "nobody", "packet": "60"}"#,
        r#"{"port": "client", "packet": "60", "remembered": "x"}"#,
        r#"{"port": "client", "packet": "60", "more": 1}"#,
        &long,
    ] {
        for path in ["/v1/simulate", "/v1/inject"] {
            // Which header a proxy would remember is nothing that is put in.
            if path == "/v1/inject" && body.contains("remembered") {
                continue;
            }
            let (status, text) = ask(path, body);
            let start: String = body.chars().take(60).collect();
            assert!(status == 400 && text.contains("remedy"), "{path} {start}: {status} {text}");
        }
    }
    // A packet that is cut off is one, and is dropped for that.
    let (status, text) = ask("/v1/simulate", r#"{"port": "client", "packet": "60"}"#);
    assert!(status == 200 && text.contains("drop_truncated"), "{text}");
    let (status, text) = ask("/v1/inject", r#"{"port": "client", "packet": "60"}"#);
    assert!(status == 200 || status == 409, "the kernel may refuse so short a frame: {text}");
    assert_eq!(lab.json(&["--node", "edge1", "version"]).1, Some(0));
}

fn pings(lab: &Lab) {
    let ping = |arguments: &[&str]| lab.json(&[&["--node", "edge1"][..], arguments].concat());
    let kinds = |echoes: &Value| -> Vec<String> {
        echoes["answers"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    };
    // Nodes, and SIDs of Segue.
    let (echoes, status) = ping(&["ping", "edge2", "--count", "2"]);
    assert_eq!((kinds(&echoes), status), (vec!["echo_reply".to_owned(); 2], Some(0)), "{echoes}");
    let (echoes, status) = ping(&["ping", "$edge2.end-dt46", "--count", "1"]);
    assert_eq!((kinds(&echoes), status), (vec!["echo_reply".to_owned()], Some(0)), "{echoes}");
    // By way of the kernel's own SID, whose node does the same for the route.
    let end = lab.labels().as_array().unwrap().iter().find_map(|one| {
        let label = one["label"].as_str().unwrap();
        (label.starts_with("$ker.end") && one["kind"] == "sid").then(|| label.to_owned())
    });
    let end = end.unwrap_or_else(|| panic!("{}", lab.labels()));
    let (echoes, status) = ping(&["ping", "$edge2.end-dt46", "--segments", &end, "--count", "2", "--oam"]);
    assert_eq!((kinds(&echoes), status), (vec!["echo_reply".to_owned(); 2], Some(0)), "{echoes}");
    let copies = echoes["copies"].as_array().unwrap();
    assert!(copies.iter().any(|copy| copy["node"] == "edge2" && copy["direction"] == "in"), "{echoes}");
    let (route, status) = ping(&["traceroute", "$edge2.end-dt46", "--segments", &end]);
    assert_eq!(
        (kinds(&route), status),
        (vec!["time_exceeded".to_owned(), "echo_reply".to_owned()], Some(0)),
        "{route}"
    );
    let first = &route["answers"][0];
    // The kernel lowers the hop limit behind the segment, so that the list is one further.
    assert_eq!((&first["name"], &first["segments_left"]), (&"ker".into(), &0.into()), "{route}");
    // The kernel's SID is the last one: its node answers.
    let (echoes, status) = ping(&["ping", "ker", "--count", "1"]);
    assert_eq!((kinds(&echoes), status), (vec!["echo_reply".to_owned()], Some(0)), "{echoes}");
    // Nobody, and what nobody has.
    let (echoes, status) = ping(&["ping", "fc00:5e9:3:77::", "--count", "1", "--timeout", "0.3"]);
    assert_eq!((&echoes["reached"], status), (&false.into(), Some(1)), "{echoes}");
    let refused = lab.segue(&["--node", "edge1", "ping", "$nobody"]);
    assert!(printed(&refused).contains("is not known"), "{}", printed(&refused));
    let text = printed(&lab.segue(&["--node", "edge1", "traceroute", "edge2"]));
    assert!(text.contains("(edge2)") && text.contains("echo reply"), "{text}");
}

fn chains(lab: &Lab) {
    // What the kernel's seg6 does is not simulated, and the trace says so; what is sent arrives.
    let (trace, status) = lab.json(&["trace", "by-kernel"]);
    assert_eq!((&trace["verdict"], status), (&"delivered".into(), Some(0)), "{trace}");
    assert_eq!(trace["simulation"]["verdict"], "not_known", "{trace}");
    assert_eq!(trace["simulation"]["station"], "ker", "{trace}");
}

/// The data plane goes on; only nobody is there who could be asked or watched.
fn a_node_that_dies(lab: &Lab) {
    let agent = lab.node("edge2")["agent"].as_i64().unwrap();
    run(Command::new("kill").args(["-KILL", &agent.to_string()]));
    let (trace, status) = lab.json(&["trace", "direct"]);
    assert_eq!((&trace["verdict"], status), (&"delivered".into(), Some(0)), "{trace}");
    assert_eq!(trace["simulation"]["reason"], "not_asked", "{trace}");
    assert!(trace["blind"][0].as_str().unwrap().starts_with("edge2: "), "{trace}");
    let nodes = lab.nodes();
    let (client, server) = (lab.label("$client"), lab.label("$server"));
    let arguments =
        ["trace", "--nodes", &nodes, "--ingress", "edge1:client", "--source", &client, "--to", &server, "-o", "json"];
    let (trace, _) = json(&output(&mut segue(&arguments)));
    assert_eq!(
        (&trace["simulation"]["station"], &trace["simulation"]["verdict"]),
        (&"edge1".into(), &"left".into()),
        "{trace}"
    );
    assert!(trace["blind"].to_string().contains("edge2: "), "{trace}");
}
