//! A real agent on a real kernel.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use crate::support::{Agent, Network, traffic::under_traffic};
use segue_abi as abi;
use segue_abi::zerocopy::{FromBytes, IntoBytes};
use segue_api::{
    client::{Client, Condition, Error},
    http,
};
use segue_host::{Run, idle};
use segue_model::node::{NodeState, SegmentList};
use segue_testkit::{command::sh, tables::content};
use serde_json::Value;

/// End, of both states.
const SID: &str = "fc00:0:1:1::";

const STATE: &str = r#"
node: n1
source_address: "fc00:0:1::1"
locator: "fc00:0:1::/48"
domain: {sid_blocks: ["fc00::/32"]}
ports:
  - {name: west, role: core}
  - {name: east, role: core}
sids:
  - {sid: "fc00:0:1:1::/64", behaviour: End}
  - {sid: "fc00:0:1:2::", behaviour: End, flavours: [PSP]}
  - {sid: "fc00:0:1:3::", behaviour: End.X, next_hop: "2001:db8:2::2"}
  - {sid: "fc00:0:1:4::", behaviour: End.T, table: 254}
  - {sid: "fc00:0:1:5::", behaviour: End.DX2, port: east}
  - {sid: "fc00:0:1:6::", behaviour: End.DX4, next_hop: 192.0.2.1}
  - {sid: "fc00:0:1:7::", behaviour: End.DX6, next_hop: "2001:db8:2::2"}
  - {sid: "fc00:0:1:8::", behaviour: End.DT4}
  - {sid: "fc00:0:1:9::", behaviour: End.DT6}
  - {sid: "fc00:0:1:a::", behaviour: End.DT46}
  - {sid: "fc00:0:1:b::", behaviour: End.B6.Encaps, policy: p}
  - {sid: "fc00:0:1:c::", behaviour: End.X, flavours: [PSP], next_hop: "2001:db8:2::2"}
policies:
  - {name: p, mode: H.Encaps, binding_sid: "fc00:0:1:d::", segment_lists: [{segments: ["fc00:0:2:1::", "fc00:0:3:1::"]}]}
"#;

const ROUTES: [&str; 13] = [
    "fc00:0:1:1::/64 encap seg6local action End",
    "fc00:0:1:2:: encap seg6local action End flavors psp",
    "fc00:0:1:3:: encap seg6local action End.X nh6 2001:db8:2::2",
    "fc00:0:1:4:: encap seg6local action End.T table main",
    "fc00:0:1:5:: encap seg6local action End.DX2 oif east",
    "fc00:0:1:6:: encap seg6local action End.DX4 nh4 192.0.2.1",
    "fc00:0:1:7:: encap seg6local action End.DX6 nh6 2001:db8:2::2",
    "blackhole fc00:0:1:8::",
    "fc00:0:1:9:: encap seg6local action End.DT6 table main",
    "blackhole fc00:0:1:a::",
    "fc00:0:1:b:: encap seg6local action End.B6.Encaps segs 2 [ fc00:0:2:1:: fc00:0:3:1:: ]",
    "blackhole fc00:0:1:c::",
    "fc00:0:1:d:: encap seg6local action End.B6.Encaps segs 2 [ fc00:0:2:1:: fc00:0:3:1:: ]",
];

/// Only End, and one more SID than needed.
const SMALL: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports: [{name: west, role: core}, {name: east, role: core}]
sids: [{sid: "fc00:0:1:1::/64", behaviour: End}, {sid: "fc00:0:1:e::", behaviour: End.DT46}]
"#;

/// The verifier looks at all programs each time that tables of other sizes take over.
#[test]
#[ignore = "needs root"]
fn programs_are_loaded_once_for_what_the_first_configuration_remembers() {
    const REMEMBERS: &str = r#"
node: n1
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
ports: [{name: west, role: core}, {name: east, role: core}, {name: to, role: service}]
sids:
  - sid: "fc00:0:1:1::"
    behaviour: End.AD
    next_hop_mac: "02:00:00:01:01:01"
    proxy: {inner: [IPv6], memory: flow, to_function: to, from_function: to}
"#;
    let network = Network::new();
    let _function = network.function();
    let mut agent = Agent::start(&network);
    let config = agent.state_dir().join("first.yaml");
    fs::write(&config, REMEMBERS).unwrap();
    let config = ["--config", config.to_str().unwrap()];
    // What is pinned goes on with what it has counted, and only its tables grow.
    assert_eq!(agent.map_sets(), ["maps-1"]);
    agent.terminate();
    agent.restart(&config);
    assert_eq!(agent.map_sets(), ["maps-2"], "{}", agent.log());
    agent.terminate();
    // Nothing is pinned: the configuration is known before anything is loaded; and so is what was applied before.
    for arguments in [config.as_slice(), &[]] {
        assert!(agent.clean().status.success());
        if arguments.is_empty() {
            agent.restart(&config);
            agent.terminate();
            fs::remove_dir_all(agent.pins()).unwrap();
        }
        agent.restart(arguments);
        assert_eq!(agent.get("/v1/sids").as_array().unwrap().len(), 1);
        assert_eq!(agent.map_sets(), ["maps-1"], "{}", agent.log());
        agent.terminate();
    }
    // Nothing is there: nothing is loaded in order to remove it.
    assert!(agent.clean().status.success());
    assert!(agent.clean().status.success() && !agent.pins().exists());
}

/// Tests leave their data planes to each other, to spare the verifier (crates/host/src/idle.rs): nothing may be left in one that a
/// later test could take for its own. Where nothing is left to others, as by a plain `cargo test`, both are new.
#[test]
#[ignore = "needs root"]
fn a_data_plane_that_another_agent_has_left_is_as_a_new_one() {
    // Those of other tests, which might have other sizes, or be taken meanwhile, are elsewhere.
    let directory = idle::directory().map(|all| all.with_file_name("idle-here"));
    let variable: String = directory.iter().map(|path| path.display().to_string()).collect();
    let environment = [(idle::VARIABLE, &*variable.leak())];
    let is_left = directory.is_some();
    let network = Network::new();
    let tables = |agent: &Agent| {
        let mut tables = content(&agent.pins());
        // Each agent signs what it gives to the kernel with a word of its own.
        let control = tables.get_mut("control").and_then(|rows| rows.values_mut().next()).expect("control");
        let mut word = abi::Control::read_from_bytes(control).expect("a control entry");
        word.signature = Default::default();
        control.copy_from_slice(word.as_bytes());
        tables
    };
    let idle = || directory.iter().flat_map(fs::read_dir).flatten().count();
    let new = {
        let agent = Agent::start_in(&network, &[(idle::VARIABLE, "")]);
        tables(&agent)
    };
    let mut agent = Agent::start_in(&network, &environment);
    agent.apply(STATE);
    under_traffic(&network, SID, || {});
    agent.apply(SMALL);
    under_traffic(&network, SID, || {});
    let used = tables(&agent);
    let differs = |name: &str| used.get(name) != new.get(name);
    for name in ["control", "sids", "sid_entries", "counters", "outcomes", "ports", "sids_cached", "adjacencies"] {
        assert!(differs(name), "{name} is of no use here");
    }
    agent.terminate();
    assert!(agent.clean().status.success());
    let left = idle();
    assert_eq!(left > 0, is_left);
    let agent = Agent::start_in(&network, &environment);
    assert!(!is_left || idle() < left, "it was taken");
    let taken = tables(&agent);
    for (name, rows) in &taken {
        // Programs that the new one has not loaded yet.
        let none = BTreeMap::new();
        assert_eq!(rows, new.get(name).unwrap_or(&none), "{name}");
    }
    assert!(new.keys().all(|name| taken.contains_key(name)));
    drop(agent);
    directory.iter().for_each(|path| fs::remove_dir_all(path).unwrap());
}

/// Who is at the far end of a port takes its link down and up.
#[test]
#[ignore = "needs root"]
fn a_configuration_that_cannot_be_applied_leaves_nothing_pinned() {
    let network = Network::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), SMALL.replace("west", "nowhere")).unwrap();
    let config = ["--config", file.path().to_str().unwrap()];
    let mut agent = Agent::new(&network);
    assert!(agent.fails(&config).contains("there is no interface `nowhere` here"));
    assert!(agent.pinned().is_empty(), "{:?}", agent.pinned());
    assert_eq!(network.routes(), [""; 0]);
    // What was pinned before is somebody's: it goes on.
    agent.restart(&[]);
    agent.apply(SMALL);
    agent.kill();
    let (pinned, routes) = (agent.pinned(), network.routes());
    assert!(!pinned.is_empty() && !routes.is_empty());
    agent.fails(&config);
    assert_eq!((agent.pinned(), network.routes()), (pinned, routes));
}

#[test]
#[ignore = "needs root"]
fn a_link_that_goes_down_and_up_makes_no_configuration() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(
        r#"{"node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
            "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "access"}],
            "sids": [{"sid": "fc00:0:1:1::", "behaviour": "End"}]}"#,
    );
    // What follows the start is over.
    let pause = || std::thread::sleep(std::time::Duration::from_millis(1500));
    pause();
    let seen = || (agent.get("/v1/counters")["generation"].clone(), network.node.sh("ip -6 route show proto 83"));
    let (generation, routes) = seen();
    assert!(routes.contains("dev west"), "{routes}");
    for up in [false, true, false] {
        network.left.sh(&format!("ip link set dev n {}", if up { "up" } else { "down" }));
        agent.eventually("the port", |agent| agent.get("/v1/ports")[0]["up"] == up);
        // Longer than from one time that ports are reconciled to the next.
        pause();
        let (now, routes) = seen();
        assert_eq!(now, generation, "no other configuration");
        assert!(routes.contains("dev west"), "the kernel keeps it: {routes}");
    }
}

/// RFC 9110 section 13.1: who read a state before somebody else changed it does not undo that.
#[test]
#[ignore = "needs root"]
fn a_change_of_a_state_that_is_no_longer_there_is_refused() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    let patience = Duration::from_secs(60);
    let ask = |agent: &Agent, method: &str, body: Option<&str>, tag: Option<&str>| {
        let answer =
            http::request_if(&agent.socket(), method, "/v1/state", body, tag.map(|tag| ("If-Match", tag)), patience)
                .unwrap();
        let tag = answer.entity_tag.clone();
        (answer.status, tag, answer.text().unwrap())
    };
    assert_eq!(ask(&agent, "PUT", Some(SMALL), Some("*")).0, 412, "nothing was applied yet");
    agent.apply(STATE);
    let (status, read, _) = ask(&agent, "GET", None, None);
    assert_eq!(status, 200);
    agent.apply(SMALL);
    let (status, _, body) = ask(&agent, "PUT", Some(STATE), read.as_deref());
    assert!(status == 412 && body.contains("get the state again"), "{status} {body}");
    assert_eq!(agent.get("/v1/sids").as_array().unwrap().len(), 2, "nothing was changed");
    // An equal state has an equal revision, whoever applied it and whenever.
    let (_, small, _) = ask(&agent, "GET", None, None);
    assert_ne!(small, read);
    agent.terminate();
    agent.restart(&[]);
    assert_eq!(ask(&agent, "GET", None, None).1, small);
    assert_eq!(ask(&agent, "PUT", Some(STATE), small.as_deref()).0, 200);
    assert_eq!(ask(&agent, "GET", None, None).1, read);
    assert_eq!(ask(&agent, "PUT", Some(STATE), Some("no tag")).0, 400);
}

#[test]
#[ignore = "needs root"]
fn two_who_change_the_state_at_once_lose_nothing() {
    const CHANGES: usize = 8;
    let network = Network::new();
    let agent = Agent::start(&network);
    let client = Client::new(agent.socket());
    let first: NodeState = segue_model::load::load_node_state(SMALL, "test").unwrap();
    client.apply(&first, &Condition::Nothing, false).unwrap();
    let late = client.apply(&first, &Condition::Nothing, false).unwrap_err();
    assert!(matches!(late, Error::Refused { status: 412, .. }), "{late}");
    // Each adds policies of its own to what it reads.
    let writer = |who: &'static str| {
        let client = client.clone();
        move || {
            for number in 0..CHANGES {
                let add = |state: &mut NodeState| {
                    let segments = vec!["fc00:0:2::1".parse().unwrap()];
                    let lists = vec![SegmentList::of_sids(1, segments)];
                    let policy = serde_json::json!({"name": format!("{who}{number}"), "segment_lists": lists});
                    state.policies.push(serde_json::from_value(policy).unwrap());
                    Ok::<_, Error>(())
                };
                client.change(add).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(writer("a"));
        scope.spawn(writer("b"));
    });
    let (state, revision) = client.state().unwrap();
    let mut names: Vec<_> = state.policies.iter().map(|policy| policy.name.clone()).collect();
    names.sort();
    let wanted: Vec<_> = ["a", "b"].iter().flat_map(|who| (0..CHANGES).map(move |n| format!("{who}{n}"))).collect();
    assert_eq!(names, wanted);
    // Without a condition the last one wins, whatever was there.
    client.apply(&first, &Condition::Always, false).unwrap();
    let late = client.apply(&state, &Condition::Is(revision), false).unwrap_err();
    assert!(matches!(late, Error::Refused { status: 412, .. }), "{late}");
    assert_eq!(client.state().unwrap().0, first);
}

#[test]
#[ignore = "needs root"]
fn every_sid_has_a_kernel_route_and_clean_leaves_nothing() {
    let network = Network::new();
    network.node.sysctl("ipv4.ip_forward=0");
    network.node.sh("ip address add fc00:0:1::1/128 dev lo");
    let mut agent = Agent::start(&network);
    let report = agent.apply(STATE);
    assert_eq!(report["warnings"], Value::Array(Vec::new()));
    assert_eq!(network.routes(), ROUTES);
    let sids = agent.get("/v1/sids");
    assert_eq!(sids[0]["kernel_route"], "seg6local End");
    assert_eq!(sids[7]["kernel_route"], "blackhole");
    // What somebody makes of a route is told at once, and so is what he makes of it next.
    for (route, told) in [
        ("blackhole fc00:0:1:1::/64", "blackhole"),
        ("fc00:0:1:1::/64 encap seg6local action End dev east", "seg6local End"),
    ] {
        network.node.sh(&format!("ip -6 route replace {route} proto 83 metric 1"));
        assert_eq!(agent.get("/v1/sids")[0]["kernel_route"], told);
    }
    assert!(agent.get("/v1/ports").as_array().unwrap().iter().all(|port| port["mode"] == "skb"));
    let forward = || network.node.sh("cat /proc/sys/net/ipv4/ip_forward").trim().to_owned();
    assert_eq!(forward(), "1");
    // A route that somebody removes comes back.
    network.node.sh("ip -6 route del fc00:0:1:8::");
    agent.eventually("the route", |_| network.routes() == ROUTES);
    // What is no longer configured goes.
    agent.apply(SMALL);
    assert_eq!(network.routes(), [ROUTES[0], "blackhole fc00:0:1:e::"]);
    // Not while it runs.
    assert!(!agent.clean().status.success());
    agent.terminate();
    assert_eq!(network.routes().len(), 2, "SIGTERM leaves the data plane running");
    let cleaned = agent.clean();
    assert!(cleaned.status.success(), "{}", String::from_utf8_lossy(&cleaned.stderr));
    assert_eq!(network.routes().len(), 0);
    assert!(!agent.pins().exists());
    assert!(!network.node.sh("ip link show west").contains("xdp"));
    assert_eq!(forward(), "0");
}

#[test]
#[ignore = "needs root"]
fn a_state_that_does_not_fit_changes_nothing() {
    let network = Network::new();
    // Somebody else's route, with the metric that nothing may win over.
    network.node.sh("ip -6 route add blackhole fc00:0:1:e:: metric 1");
    let agent = Agent::start(&network);
    agent.apply(STATE);
    let look = || (network.routes(), agent.get("/v1/state"), agent.get("/v1/counters")["generation"].clone());
    let before = look();
    let refused = |state: &str, status: u16, words: &[&str]| {
        let (found, body) = agent.ask("PUT", "/v1/state", Some(state));
        assert_eq!(found, status, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let problem = body["error"][0].to_string();
        assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
        assert!(!body["error"][0]["remedy"].as_str().unwrap().is_empty());
        assert_eq!(look(), before);
    };
    refused(&STATE.replace("behaviour: End.DT4}", "behaviour: End.DT4, nexthop: x}"), 400, &["nexthop", "\"line\""]);
    refused(&STATE.replace("policy: p}", "policy: q}"), 400, &["policy"]);
    refused(&SMALL.replace("name: west", "name: missing"), 409, &["ports[0].name", "missing", "there are: east"]);
    refused(SMALL, 409, &["fc00:0:1:e::", "kernel routes", "metric 1"]);
    // And the same without the obstacle is taken.
    network.node.sh("ip -6 route del fc00:0:1:e:: metric 1");
    let (status, _) = agent.ask("PUT", "/v1/state?dry_run=true", Some(SMALL));
    assert_eq!((status, look()), (200, before));
    agent.apply(SMALL);
    assert_eq!(network.routes().len(), 2);
}

#[test]
#[ignore = "needs root"]
fn killed_and_restarted_under_traffic_no_packet_is_lost() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    agent.apply(STATE);
    let end_packets = |agent: &Agent<'_>| agent.get("/v1/sids")[0]["counter"]["packets"].as_u64().unwrap();
    under_traffic(&network, SID, || {
        thread::sleep(Duration::from_millis(300));
        agent.kill();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(network.routes(), ROUTES, "the kernel goes on without the agent");
        agent.restart(&[]);
        assert!(agent.log().contains("Adopted"), "{}", agent.log());
        thread::sleep(Duration::from_millis(300));
        // Other configurations under traffic, and an end by SIGTERM.
        agent.apply(SMALL);
        agent.apply(STATE);
        thread::sleep(Duration::from_millis(300));
        agent.terminate();
        agent.restart(&[]);
    });
    assert_eq!(network.routes(), ROUTES);
    assert!(end_packets(&agent) > 1000, "counters survive: {}", end_packets(&agent));
    assert_eq!(agent.get("/v1/drops"), Value::Array(Vec::new()));
}

#[test]
#[ignore = "needs root"]
fn a_restart_with_another_configuration_removes_what_is_stale() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    agent.apply(STATE);
    agent.kill();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), SMALL).unwrap();
    agent.restart(&["--config", file.path().to_str().unwrap()]);
    assert_eq!(network.routes(), [ROUTES[0], "blackhole fc00:0:1:e::"]);
}

#[test]
#[ignore = "needs root"]
fn an_interface_that_comes_back_forwards_again() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(STATE);
    let port = |agent: &Agent<'_>, key: &str| agent.get("/v1/ports")[0][key].clone();
    network.node.sh("ip link set west mtu 1400");
    agent.eventually("the MTU", |agent| port(agent, "mtu") == 1400);
    network.node.sh("ip link del west");
    agent.eventually("the port's end", |agent| port(agent, "hook") == "none");
    // Links are reconciled once a second at most, and the MTU was just now.
    agent.eventually("routes moved to the other port", |_| network.routes() == ROUTES);
    network.connect_left();
    agent.eventually("the port", |agent| port(agent, "mode") == "skb" && port(agent, "up") == true);
    under_traffic(&network, SID, || thread::sleep(Duration::from_millis(600)));
}

#[test]
#[ignore = "needs root"]
fn hmac_keys_and_their_sysctls_come_and_go() {
    let network = Network::new();
    let agent = Agent::start(&network);
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "swordfish\n").unwrap();
    let path = secret.path().display();
    let keys = format!("hmac_keys: [{{id: 7, algorithm: sha256, secret_file: \"{path}\"}}]\n");
    let state = keys + &SMALL.replace("{name: west, role: core}", "{name: west, role: access, accept_hmac: true}");
    agent.apply(&state);
    let shown = network.node.sh("ip sr hmac show");
    assert!(shown.contains("hmac 7") && shown.contains("sha256") && shown.contains("swordfish"), "{shown}");
    let require = || network.node.sh("cat /proc/sys/net/ipv6/conf/west/seg6_require_hmac").trim().to_owned();
    assert_eq!(require(), "1");
    fs::write(secret.path(), "herring\n").unwrap();
    agent.apply(&state);
    assert!(network.node.sh("ip sr hmac show").contains("herring"));
    agent.apply(SMALL);
    assert_eq!(network.node.sh("ip sr hmac show").trim(), "");
    assert_eq!(require(), "0");
    assert!(!agent.log().contains("swordfish"), "a secret in the log");
}

#[test]
#[ignore = "needs root"]
fn a_capture_is_pcapng_and_ends_at_its_count() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(STATE);
    let file = tempfile::NamedTempFile::new().unwrap();
    under_traffic(&network, SID, || {
        let answer = |body: &str| {
            http::request(&agent.socket(), "POST", "/v1/capture", Some(body), Duration::from_secs(10)).unwrap()
        };
        let mut answer_of_first = answer(r#"{"ports": ["west", "east"], "count": 200}"#);
        let (status, body) = agent.ask("POST", "/v1/capture", Some("{}"));
        assert_eq!(status, 409, "one at a time: {body}");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut answer_of_first.body, &mut bytes).unwrap();
        fs::write(file.path(), bytes).unwrap();
        let (status, body) = agent.ask("POST", "/v1/capture", Some(r#"{"ports": ["zz"]}"#));
        assert_eq!(status, 400, "{body}");
        // The first one's end frees the place. JSON lines carry the headers in words.
        agent.eventually("another capture", |agent| {
            let (status, body) = agent.ask("POST", "/v1/capture", Some(r#"{"count": 1, "format": "json"}"#));
            status == 200 && body.lines().count() == 1 && body.contains("\"headers\"")
        });
        thread::sleep(Duration::from_millis(500));
    });
    let fields = sh(&format!(
        "tshark -r {} -T fields -e frame.interface_name -e frame.packet_flags_direction -e ipv6.routing.segleft",
        file.path().display()
    ));
    assert_eq!(fields.lines().count(), 200);

    let inbound = fields.lines().filter(|line| line.starts_with("west\t") && line.ends_with("\t1")).count();
    let outbound = fields.lines().filter(|line| line.starts_with("east\t") && line.ends_with("\t0")).count();
    assert!(inbound > 50 && outbound > 50, "in {inbound}, out {outbound}");
}

/// Prometheus's own checker has nothing to say about the older form, and who asks for OpenMetrics gets the same numbers in it.
fn scrapes_are_well_formed(agent: &Agent<'_>, text: &str) {
    let checked = Run::new("promtool", ["check", "metrics"]).input(text.to_owned()).text();
    assert_eq!(checked.unwrap(), "", "{text}");
    let accept = Some(("Accept", "application/openmetrics-text; version=1.0.0"));
    let answer = http::request_if(&agent.socket(), "GET", "/metrics", None, accept, Duration::from_secs(5)).unwrap();
    let other = answer.text().unwrap();
    assert!(other.ends_with("# EOF\n") && !text.contains("# EOF"), "{other}");
    let names = |text: &str| -> Vec<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(&other), names(text));
}

#[test]
#[ignore = "needs root"]
fn metrics_and_errors_of_the_api() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    assert_eq!(agent.ask("GET", "/v1/state", None).0, 404);
    assert_eq!(agent.ask("GET", "/v1/nonsense", None).0, 404);
    assert_eq!(agent.ask("DELETE", "/v1/state", None).0, 405);
    assert_eq!(agent.ask("PUT", "/v1/state?dryrun=1", Some(SMALL)).0, 400);
    assert_eq!(agent.get("/v1/sids"), Value::Array(Vec::new()));
    agent.apply(SMALL);
    under_traffic(&network, SID, || thread::sleep(Duration::from_millis(600)));
    let (status, text) = agent.ask("GET", "/metrics", None);
    assert_eq!(status, 200);
    let value = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}"));
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(value(r#"segue_sid_packets_total{node="n1",sid="fc00:0:1:1::/64",behaviour="End"}"#) > 1000);
    assert!(value(r#"segue_packets_total{node="n1",port="west",outcome="forwarded",kind="forwarded"}"#) > 1000);
    scrapes_are_well_formed(&agent, &text);
    // With --detach-on-exit the end takes all down.
    agent.terminate();
    agent.restart(&["--detach-on-exit", "--metrics-listen", "[::1]:9430"]);
    let over_tcp = network.node.sh("curl -s -g http://[::1]:9430/metrics");
    assert!(over_tcp.contains("segue_port_up{node=\"n1\",port=\"west\"} 1"), "{over_tcp}");
    assert!(network.node.sh("curl -s -g -o /dev/null -w %{http_code} http://[::1]:9430/v1/state").contains("404"));
    agent.terminate();
    assert_eq!(network.routes().len(), 0);
    assert!(!network.node.sh("ip link show west").contains("xdp"));
}
