//! Labels of OSPF's segment routing, as FRR hands them out, learned by an agent: docs/using/routing-protocols.md has the same configuration.
//!
//! ```text
//! r1 (FRR) ── r2 (FRR, Segue) ── r3 (FRR)
//! ```

use std::fs;
use std::path::Path;
use std::time::Duration;

use segue_testkit::frr::Frr;
use segue_testkit::netns::{End, Netns};
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wait::wait_for;
use segue_testkit::wiring::veth;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr};

use crate::common::agent::Agent;

/// OSPF needs some ten seconds, unless the machine is very busy.
const CONVERGES_WITHIN: Duration = Duration::from_secs(60);
const ARRIVES_WITHIN: Duration = Duration::from_millis(300);

/// Router N is 10.255.0.N, its node SID has the index N0. LINKS are its interfaces.
const OSPF: &str = "
LINKSrouter ospf
 ospf router-id 10.255.0.N
 network 10.0.0.0/8 area 0
 capability opaque
 mpls-te on
 mpls-te router-address 10.255.0.N
 router-info area
 segment-routing on
 segment-routing global-block 16000 23999
 segment-routing node-msd 8
 segment-routing prefix 10.255.0.N/32 index N0 no-php-flag
";
const LINK: &str = "interface NAME
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
!
";

const STATE: &str = "
node: r2
source_address: 'fd00::2'
domain: {sid_blocks: ['fc00::/32']}
ports:
  - {name: to1, role: core}
  - {name: to3, role: core}
mpls: {srgb: ['16000-23999'], srlb: ['15000-15999'], learn: {file: 'FILE'}}
";

fn frr(netns: &Netns, number: u8, links: &[&str]) -> Frr {
    let links: String = links.iter().map(|link| LINK.replace("NAME", link)).collect();
    Frr::start_ospf(netns, &OSPF.replace("LINKS", &links).replace('N', &number.to_string()))
}

fn packet(front: PacketBuilder, labels: &[(u32, u8)]) -> Vec<u8> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        ..MplsEntry::default()
    };
    let repr = Ipv6Repr::new("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap());
    let labels: Vec<MplsEntry> = labels.iter().map(entry).collect();
    front.mpls(&labels).inner_ipv6(repr).udp(UdpRepr::new(1000, 2000)).payload(b"learned labels").build()
}

/// What FRR of r2 says, written as an operator's service would. Whether it has the label.
fn export(frr: &Frr, file: &Path, label: &str) -> bool {
    let text = frr.vtysh("show mpls table json");
    fs::write(file.with_extension("new"), &text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
    let table: serde_json::Value = serde_json::from_str(&text).unwrap();
    table.get(label).is_some()
}

#[test]
#[ignore = "needs root"]
fn labels_of_ospf_are_learned_and_withdrawn() {
    crate::common::need_root();
    let [r1, r2, r3] = [(); 3].map(|()| Netns::new());
    for (edge, name, number) in [(&r1, "to1", 1_u8), (&r3, "to3", 3)] {
        veth(
            End { netns: edge, name: "n", mac: &format!("02:00:00:00:{number:02x}:01") },
            End { netns: &r2, name, mac: &format!("02:00:00:00:{number:02x}:02") },
            1600,
        );
        edge.sh(&format!("ip address add 10.0.{number}.1/24 dev n"));
        r2.sh(&format!("ip address add 10.0.{number}.2/24 dev {name}"));
    }
    for (number, netns) in [(1, &r1), (2, &r2), (3, &r3)] {
        netns.sh(&format!("ip address add 10.255.0.{number}/32 dev lo"));
    }
    r2.sh("ip address add fd00::2/128 dev lo");
    let daemons = [frr(&r1, 1, &["n"]), frr(&r2, 2, &["to1", "to3"]), frr(&r3, 3, &["n"])];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("labels.json");
    let learned = || ["16010", "16030"].iter().all(|label| export(&daemons[1], &file, label)).then_some(());
    wait_for("labels of both neighbours", CONVERGES_WITHIN, learned);

    // All that FRR says is understood: there is no warning.
    let agent = Agent::start(&r2, &STATE.replace("FILE", &file.display().to_string()));
    let (left, right) = (PacketSocket::open(&r1, "n"), PacketSocket::open(&r3, "n"));
    let becomes = |labels: &[(u32, u8)]| {
        right.drain();
        let front = PacketBuilder::ethernet([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);
        left.send(&packet(front, labels));
        right.receive_where(ARRIVES_WITHIN, |frame| frame.ends_with(b"learned labels"))
    };
    let received =
        |labels: &[(u32, u8)]| packet(PacketBuilder::ethernet([2, 0, 0, 0, 3, 2], [2, 0, 0, 0, 3, 1]), labels);
    // Until the neighbour is known.
    let found = wait_for("a packet to the node SID of r3", CONVERGES_WITHIN, || becomes(&[(16030, 9)]));
    assert_eq!(found, received(&[(16030, 8)]), "r3 takes its label itself: no-php-flag");
    assert_eq!(becomes(&[(16020, 9), (16030, 9)]), Some(received(&[(16030, 8)])), "behind r2's own");
    let adjacency = daemons[1].json("show mpls table json");
    let adjacency = adjacency
        .as_object()
        .unwrap()
        .iter()
        .find(|(label, lsp)| label.starts_with("15") && lsp["nexthops"][0]["nexthop"] == "10.0.3.1");
    let adjacency: u32 = adjacency.expect("an adjacency SID towards r3").0.parse().unwrap();
    assert_eq!(becomes(&[(adjacency, 9), (16030, 7)]), Some(received(&[(16030, 7)])), "by the adjacency");
    assert!(agent.packets("label 16030").0 >= 2);

    // The link goes down: OSPF withdraws the label, and so does the agent.
    r3.sh("ip link set dev n down");
    wait_for("the withdrawal by OSPF", CONVERGES_WITHIN, || (!export(&daemons[1], &file, "16030")).then_some(()));
    wait_for("the withdrawal by the agent", CONVERGES_WITHIN, || {
        (!agent.has_sid("label 16030") && agent.has_sid("label 16010")).then_some(())
    });
}
