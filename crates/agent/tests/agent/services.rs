//! Packet services that the agent starts: they work, outlive it, take another configuration, and harm nobody when they die.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_host::{namespace, polling};
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::{Value, json};

use crate::support::{Agent, Network, traffic::under_traffic};

/// By way of the service.
const SERVICE: &str = "fc00:0:1:50::";
/// By way of nothing.
const PLAIN: &str = "fc00:0:1:e::";

fn state(service: &Value) -> String {
    json!({
        "node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "core"}],
        "functions": {"relay": {"service": service, "watch": {"hold_ms": 0}}},
        "sids": [
            {"sid": SERVICE, "behaviour": "End.AN", "proxy": {"function": "relay", "on_failure": "bypass"}},
            {"sid": PLAIN, "behaviour": "End"},
        ],
    })
    .to_string()
}

fn without() -> String {
    json!({"node": "n1", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]}}).to_string()
}

/// The namespace that the agent makes for the service.
fn home(network: &Network) -> String {
    let (_, inode) = namespace::identity(network.node.name()).unwrap();
    format!("segue-relay-{inode:x}")
}

fn file(network: &Network, ending: &str) -> PathBuf {
    PathBuf::from(format!("/run/segue/services/{}.{ending}", home(network)))
}

/// What the service says of itself, if it answers.
fn status(network: &Network) -> Option<Value> {
    let mut stream = UnixStream::connect(file(network, "socket")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"status").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn is_up(agent: &Agent<'_>) -> bool {
    agent.get("/v1/functions")[0]["state"] == "up"
}

/// Whether a packet to the SID comes out behind the node, one segment further.
fn passes(network: &Network, sid: &str) -> bool {
    let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
    let path = [sid.parse().unwrap(), "fc00:0:2:1::".parse().unwrap()];
    let frame = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
        .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
        .srh(SrhRepr::new(&path))
        .udp(UdpRepr::new(3000, 4000))
        .payload(b"does it pass")
        .build();
    sender.send(&frame);
    receiver.receive_where(Duration::from_millis(200), |bytes| bytes.ends_with(b"does it pass")).is_some()
}

fn wait_for_service(network: &Network, agent: &Agent<'_>) {
    agent.eventually("packets by way of the service", |agent| {
        is_up(agent)
            && passes(network, SERVICE)
            && status(network).is_some_and(|status| status["total"]["received"] != 0)
    });
}

#[test]
#[ignore = "needs root"]
fn a_service_works_outlives_the_agent_and_takes_another_configuration() {
    let network = Network::new();
    let mut agent = Agent::start(&network);
    agent.apply(&state(&json!({"name": "counter", "config": {"top": 10}, "limits": {"memory_mib": 256}})));
    wait_for_service(&network, &agent);
    let first = status(&network).unwrap();
    assert_eq!((&first["name"], &first["service"]), (&"relay".into(), &"counter".into()));
    assert_eq!(
        (&first["confinement"]["capabilities"], &first["confinement"]["system_calls"]),
        (&json!([]), &true.into())
    );
    let deferral = namespace::inside(network.node.name(), || polling::deferral("fnw-relay"));
    assert_eq!(deferral.unwrap().unwrap(), polling::OF_SERVICES);
    // Another configuration takes over without a lost packet; the agent's end is nothing to the service.
    let sent = under_traffic(&network, SERVICE, || {
        agent.apply(&state(&json!({"name": "counter", "config": {"top": 5}, "limits": {"memory_mib": 256}})));
        agent.kill();
        agent.restart(&[]);
    });
    let second = status(&network).unwrap();
    assert_eq!((&second["pid"], &second["reloads"]), (&first["pid"], &1.into()));
    assert_eq!(second["configuration"]["top"], 5);
    assert!(sent > 0 && is_up(&agent));
    // Nothing is forwarded beside it.
    let forwarding =
        segue_host::namespace::inside(&home(&network), || segue_host::sysctl::get("net/ipv6/conf/all/forwarding"));
    assert_eq!(forwarding.unwrap().unwrap().as_deref(), Some("0"));

    // What is wrong is told by key, and changes nothing.
    let wrong = state(&json!({"name": "counter", "config": {"top": 0}, "limits": {"memory_mib": 256}}));
    let (code, body) = agent.ask("PUT", "/v1/state", Some(&wrong));
    assert!(code >= 400 && body.contains("functions.relay.service") && body.contains("config.top"), "{code}: {body}");
    assert_eq!(status(&network).unwrap()["pid"], first["pid"]);
    assert!(passes(&network, SERVICE));
    let checksums = || network.node.sh("ethtool -k fnw-relay").contains("tx-checksum-ip-generic: on");
    assert!(!checksums(), "{}", network.node.sh("ethtool -k fnw-relay"));
    let wrong = state(&json!({"name": "compress", "merged": true}));
    let (code, body) = agent.ask("PUT", "/v1/state", Some(&wrong));
    assert!(code >= 400 && body.contains("takes each packet by itself"), "{code}: {body}");
    assert!(!checksums(), "{}", network.node.sh("ethtool -k fnw-relay"));

    // One that takes segments merged has a link with its offloads.
    agent.apply(&state(&json!({"name": "forward", "merged": true})));
    wait_for_service(&network, &agent);
    assert!(checksums());
    let third = status(&network).unwrap();
    assert_eq!((&third["service"], &third["workers"][0]["lost"]), (&"forward".into(), &0.into()), "{third:#}");
    let before = third["total"]["onward"].as_u64().unwrap();
    assert!(passes(&network, SERVICE));
    assert!(status(&network).unwrap()["total"]["onward"].as_u64().unwrap() > before);

    // Taken out, nothing of it is left.
    agent.apply(&without());
    assert_eq!(namespace::identity(&home(&network)), None);
    for ending in ["json", "socket", "log", "trial"] {
        assert!(!file(&network, ending).exists(), "{ending}");
    }
    assert!(!network.node.sh("ip -o link").contains("fnw-relay"));
}

/// Killed again and again as soon as it works, it costs other traffic no packet; its own passes by it meanwhile, and by way of it afterwards.
#[test]
#[ignore = "needs root"]
fn a_service_that_dies_again_and_again_stops_nothing_else() {
    let network = Network::new();
    let agent = Agent::start(&network);
    agent.apply(&state(&json!({"name": "forward"})));
    wait_for_service(&network, &agent);
    let mut killed = std::collections::BTreeSet::new();
    under_traffic(&network, PLAIN, || {
        while killed.len() < 3 {
            if let Some(pid) = status(&network).and_then(|status| status["pid"].as_i64()) {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
                killed.insert(pid);
                agent.eventually("it is seen to be down", |agent| !is_up(agent));
                // `on_failure: bypass`: its packets go on without it.
                assert!((0..20).any(|_| passes(&network, SERVICE)), "{}", agent.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    wait_for_service(&network, &agent);

    // Its supervisor too: then the agent starts both.
    let identities = std::collections::HashSet::from([namespace::identity(&home(&network)).unwrap()]);
    for (pid, _) in segue_host::process::inside(&identities) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    wait_for_service(&network, &agent);
    assert!(!killed.contains(&status(&network).unwrap()["pid"].as_i64().unwrap()));
}
