//! Pseudowires over real links, on XDP and on socket buffers, where a VLAN tag lies beside the frame; and tshark reads them.

use std::process::Command;

use crate::receivers::Receivers;
use segue_dataplane::Hook;
use segue_testkit::command::run;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::node::Node;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv6Repr, PacketBuilder, UdpRepr, VlanRepr};

const WITH: u32 = 15_400;
const WITHOUT: u32 = 15_401;

const POLICIES: &str = "policies:
  - {name: with, mode: PUSH, pseudowire: {}, segment_lists: [{labels: [15400], next_hop: 'fd00:0:c1::2'}]}
  - {name: without, mode: PUSH, pseudowire: {control_word: false}, segment_lists: [{labels: [15401], next_hop: 'fd00:0:c1::2'}]}
";
const LABELS: &str = "labels:
  - {label: 15400, behaviour: pseudowire, port: wire0}
  - {label: 15401, behaviour: pseudowire, port: wire0, control_word: false}
";

fn configured(policy: &str) -> String {
    let text = configuration(DOMAIN).replacen("policies:\n", POLICIES, 1).replacen(
        "l2_policy: l2}",
        &format!("l2_policy: {policy}}}"),
        1,
    );
    text + LABELS
}

/// Of a customer: the numbers of the service VLAN and the VLAN that it has tags of, as tshark shows them, and the frame.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let front = || PacketBuilder::ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]);
    let inside = |front: PacketBuilder, octets: usize| {
        front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets]).build()
    };
    let tag = |vlan_id, priority| VlanRepr { priority, vlan_id, ethertype: 0x86dd, ..VlanRepr::default() };
    vec![
        ("\t", inside(front(), 0)),
        ("\t", inside(front(), 1452)),
        ("\t7", inside(front().vlan_repr(tag(7, 5)), 10)),
        ("\t0", inside(front().vlan_repr(tag(0, 5)), 10)),
        ("7\t8", inside(front().vlan(7).vlan_repr(tag(8, 0)), 10)),
        ("0\t8", inside(front().vlan(0).vlan_repr(tag(8, 0)), 10)),
    ]
}

#[test]
#[ignore = "needs root"]
fn frames_with_their_tags_go_through_pseudowires() {
    let mut seen = Vec::new();
    for hook in [Hook::Xdp, Hook::Skb] {
        for (policy, label, control) in [("with", WITH, &[0; 4][..]), ("without", WITHOUT, &[])] {
            let network = Network::new();
            let _node = Node::load_on(&network.node, &configured(policy), hook);
            let receivers = Receivers::around(&network);
            for (tags, frame) in frames() {
                let case = format!("{hook:?}, {policy} control word, tags {tags:?}, {} octets", frame.len());
                let stack = [MplsEntry { label, time_to_live: 64, ..MplsEntry::default() }];
                let payload = [control, &frame].concat();
                let (at, found) = receivers.send(&case, "wire0", &frame);
                assert_eq!(at, "core1", "{case}");
                assert_eq!(found, leaving("core1").mpls(&stack).payload(&payload).build(), "{case}");
                seen.push((tags, label, found));
                let inside = arriving("core0").mpls(&stack).payload(&payload).build();
                let (at, found) = receivers.send(&case, "core0", &inside);
                assert_eq!((at.as_str(), found), ("wire0", frame), "{case}");
            }
        }
    }
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().expect("a file");
    let frames: Vec<Vec<u8>> = seen.iter().map(|(.., frame)| frame.clone()).collect();
    std::fs::write(file.path(), segue_api::pcap::classic(&frames)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file.path());
    tshark.args(["-d", "mpls.label==15400,pwethcw", "-d", "mpls.label==15401,pwethnocw", "-T", "fields"]);
    let fields =
        ["eth.src", "ieee8021ad.id", "vlan.id", "mpls.label", "ipv6.dst", "udp.checksum.status", "_ws.malformed"];
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let lines = run(tshark.args(["-o", "udp.check_checksum:TRUE"]));
    let expected: Vec<String> = seen
        .iter()
        .map(|(tags, label, frame)| {
            let outer: Vec<String> = frame[6..12].iter().map(|octet| format!("{octet:02x}")).collect();
            format!("{},02:0c:00:00:00:01\t{tags}\t{label}\t{SERVER}\t1\t", outer.join(":"))
        })
        .collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}
