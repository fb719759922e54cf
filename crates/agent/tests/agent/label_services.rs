//! Packet services behind labels with a real agent: each gets packets with the rest of the stack, and what it makes of them goes on by that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use segue_host::namespace;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::layer::protocol;
use segue_wire::mpls::MplsEntry;
use segue_wire::tcp::control;
use segue_wire::{FragmentRepr, Ipv6Repr, MacAddress, PacketBuilder, TcpRepr, UdpRepr};
use serde_json::{Value, json};

use crate::support::{Agent, Network};

const PATIENCE: Duration = Duration::from_secs(20);
const FORWARD: u32 = 15_051;
const COUNTER: u32 = 15_052;
const TCP_BULK: u32 = 15_053;
const REFRAGMENT: u32 = 15_054;
const TUN: u32 = 15_055;
const NEXT: u32 = 16_009;
const OUT: u32 = 16_010;
/// Behind all of them: what the next node knows, and an entropy label.
const REST: [u32; 4] = [NEXT, 70_000, 7, 90_000];

fn state(functions: &Value) -> String {
    let label = |(index, name): (usize, &String)| {
        let mut proxy = json!({"function": name});
        if name == "whole" {
            proxy["may_rewrite"] = json!(["addresses"]);
        }
        json!({"label": FORWARD + index as u32, "behaviour": "sr_aware", "proxy": proxy})
    };
    // In the order of their names.
    let mut labels: Vec<_> = functions.as_object().unwrap().keys().enumerate().map(label).collect();
    labels.push(json!({"label": NEXT, "behaviour": "swap", "out": OUT, "next_hop": "2001:db8:2::2", "port": "east"}));
    json!({
        "node": "ls", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "west", "role": "core"}, {"name": "east", "role": "core"}],
        "mpls": {"srgb": ["16000-16999"], "srlb": ["15000-15999"]},
        "functions": functions, "labels": labels,
    })
    .to_string()
}

fn all() -> Value {
    json!({
        "a": {"service": {"name": "forward", "workers": 2}},
        "count": {"service": {"name": "counter"}},
        // Not the 5 ms of itself: on a busy machine ten segments do not come within them.
        "merge": {"service": {"name": "tcp-bulk", "config": {"longest_delay_ms": 500}}},
        "whole": {"service": {"name": "refragment"}},
        "x": {"service": {"name": "tun", "config": {"mode": "inline"}}},
    })
}

/// The namespace that the agent makes for a service.
fn home(network: &Network, name: &str) -> String {
    let (_, inode) = namespace::identity(network.node.name()).unwrap();
    format!("segue-{name}-{inode:x}")
}

/// What a service says of itself.
fn status(network: &Network, name: &str) -> Option<Value> {
    let mut stream = UnixStream::connect(format!("/run/segue/services/{}.socket", home(network, name))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"status").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn labelled(front: PacketBuilder, labels: &[u32], first_ttl: u8) -> PacketBuilder {
    let entry = |(index, label): (usize, &u32)| MplsEntry {
        label: *label,
        time_to_live: if index == 0 { first_ttl } else { 9 },
        ..MplsEntry::default()
    };
    front.mpls(&labels.iter().enumerate().map(entry).collect::<Vec<_>>())
}

fn sent(through: &[u32]) -> PacketBuilder {
    let front = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]));
    labelled(front, &[through, &REST].concat(), 9)
}

fn received() -> PacketBuilder {
    let front = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 2, 1]), MacAddress([2, 0, 0, 0, 2, 2]));
    labelled(front, &[&[OUT], &REST[1..]].concat(), 8)
}

fn addresses() -> Ipv6Repr {
    Ipv6Repr { hop_limit: 33, ..Ipv6Repr::new("2001:db8:a::2".parse().unwrap(), "2001:db8:b::2".parse().unwrap()) }
}

fn udp(front: PacketBuilder, port: u16) -> PacketBuilder {
    front.inner_ipv6(addresses()).udp(UdpRepr::new(40_000, port)).payload(b"behind labels")
}

fn tcp(front: PacketBuilder, number: u32, payload: &[u8]) -> PacketBuilder {
    let repr = TcpRepr {
        sequence_number: number,
        window: 500,
        acknowledgment_number: 1,
        ..TcpRepr::new(40_000, 80, control::ACK)
    };
    front.inner_ipv6(addresses()).tcp(repr).payload(payload)
}

struct Site<'a> {
    agent: &'a Agent<'a>,
    left: PacketSocket,
    right: PacketSocket,
}

impl Site<'_> {
    fn send(&self, frames: &[Vec<u8>]) {
        self.right.drain();
        frames.iter().for_each(|frame| self.left.send(frame));
    }

    fn arrives(&self, case: &str, expected: &[u8]) {
        let found = self.right.receive_where(PATIENCE, |frame| frame[12..14] == [0x88, 0x47]);
        let found = found.unwrap_or_else(|| panic!("{case}: nothing comes out\n{}", self.agent.get("/v1/outcomes")));
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
#[ignore = "needs root"]
fn services_behind_labels() {
    let network = Network::new();
    network.node.sh("ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east");
    let agent = Agent::start(&network);
    agent.apply(&state(&all()));
    let site = Site {
        agent: &agent,
        left: PacketSocket::open(&network.left, "n"),
        right: PacketSocket::open(&network.right, "n"),
    };
    let every = [FORWARD, COUNTER, TCP_BULK, REFRAGMENT, TUN];
    let runs = |name: &str| status(&network, name).is_some();
    agent.eventually("services run, and the node sees it", |agent| {
        let functions = agent.get("/v1/functions");
        let is_up =
            functions.as_array().is_some_and(|all| all.len() == 5 && all.iter().all(|one| one["state"] == "up"));
        // Nor is one of its links still down for the data plane, which learns of it a moment after it is made.
        let ports = agent.get("/v1/ports");
        let are_up = ports.as_array().is_some_and(|all| all.iter().all(|port| port["up"] == true));
        is_up && are_up && ["a", "count", "merge", "whole", "x"].into_iter().all(runs)
    });
    for (index, through) in every[..4].iter().map(|label| vec![*label]).chain([every[..4].to_vec()]).enumerate() {
        site.send(&[udp(sent(&through), index as u16).build()]);
        site.arrives(&format!("{through:?}"), &udp(received(), index as u16).build());
    }
    // A program that knows nothing of labels has packets for a while.
    let program = PacketSocket::open_in(&home(&network, "x"), "segue-tun");
    site.send(&[udp(sent(&every), 9).build()]);
    let given = program
        .receive_where(PATIENCE, |packet| packet.ends_with(b"behind labels"))
        .unwrap_or_else(|| panic!("{}\n{:#}", agent.get("/v1/outcomes"), status(&network, "x").unwrap_or_default()));
    assert_eq!(given, udp(PacketBuilder::new(), 9).build());
    program.send(&given);
    site.arrives("through a program", &udp(received(), 9).build());
    // Segments of a TCP connection become one, of the same flow; fragments a packet of a flow that nobody sent there.
    let stream: Vec<u8> = (0..250u8).cycle().take(950).collect();
    let segments: Vec<_> = stream
        .chunks(100)
        .enumerate()
        .map(|(index, chunk)| tcp(sent(&every[..3]), index as u32 * 100, chunk).build())
        .collect();
    site.send(&segments);
    site.arrives("ten segments", &tcp(received(), 0, &stream).build());
    let whole = PacketBuilder::new().ipv6(addresses()).udp(UdpRepr::new(5, 6)).payload(&stream).build();
    let fragment = |from: usize, to: usize| {
        let header = FragmentRepr {
            next_header: protocol::UDP,
            fragment_offset: from as u16,
            more_fragments: to < whole.len() - 40,
            identification: 9,
        };
        sent(&[FORWARD, REFRAGMENT])
            .inner_ipv6(addresses())
            .fragment(header)
            .payload(&whole[40 + from..40 + to])
            .build()
    };
    site.send(&[fragment(480, whole.len() - 40), fragment(0, 480)]);
    site.arrives("two fragments", &received().inner_ipv6(addresses()).udp(UdpRepr::new(5, 6)).payload(&stream).build());
    let report = |name: &str| status(&network, name).unwrap();
    agent.eventually("copies are counted", |_| report("count")["total"]["received"] == 13);
    let count = report("count");
    let lists = count["workers"][0]["report"]["segment_lists"].as_array().unwrap();
    assert!(
        lists.iter().any(|list| list["labels"] == json!([TCP_BULK, NEXT, 70_000]) && list["packets"] == 10),
        "{lists:?}"
    );
    let merged = report("merge");
    assert_eq!((&merged["total"]["received"], &merged["total"]["own_out"]), (&json!(13), &json!(1)), "{merged:#}");
    let counters = agent.get("/v1/sids");
    let returned = |label: u32| {
        let row = counters.as_array().unwrap().iter().find(|row| row["sid"] == format!("label {label}")).cloned();
        row.map_or(Value::Null, |row| row["returned"]["packets"].clone())
    };
    assert_eq!(
        (returned(FORWARD), returned(TCP_BULK), returned(REFRAGMENT)),
        (json!(15), json!(4), json!(4)),
        "{counters}"
    );

    // What cannot be behind a label is told when it is applied, and changes nothing.
    let mut wrong = all();
    wrong["merge"] = json!({"service": {"name": "compress"}});
    let (code, body) = agent.ask("PUT", "/v1/state", Some(&state(&wrong)));
    assert!(
        code >= 400 && body.contains("functions.merge.service") && body.contains("cannot be behind a label"),
        "{code}: {body}"
    );
    let mut both: Value = serde_json::from_str(&state(&all())).unwrap();
    both["sids"] = json!([{"sid": "fc00:0:1:50::", "behaviour": "End.AN", "proxy": {"function": "merge"}}]);
    let (code, body) = agent.ask("PUT", "/v1/state", Some(&both.to_string()));
    assert!(code >= 400 && body.contains("function merge") && body.contains("SIDs and labels"), "{code}: {body}");
    site.send(&[udp(sent(&every[..4]), 77).build()]);
    site.arrives("as before", &udp(received(), 77).build());
}
