//! What an inventory of any source says of frames and tunnels: ports of customers, and addresses of both ends.

use segue_model::label::LabelBehaviour;
use segue_model::node::{Behaviour, HeadendMode};
use segue_model::topology::{Ethernet, LabelTunnel, SrDataplane};
use segue_plan::Inventory;
use segue_plan::inventory::Reachability;

use crate::common::{errors, inventory, planned};

fn frames(via: &[&str]) -> Inventory {
    let mut inventory = inventory(via);
    inventory.chains["web"].ethernet = Some(Ethernet::default());
    inventory.customers["server"].port = Some("wan".to_owned());
    inventory
}

fn tunnel(a: &str, b: &str) -> LabelTunnel {
    LabelTunnel { between: [a.to_owned(), b.to_owned()], weight: None, zero_checksum: a == "side" || b == "side" }
}

#[test]
fn frames_go_from_port_to_port() {
    let plan = planned(&frames(&["node:side"]));
    let (edge1, edge2) = (&plan.nodes["edge1"], &plan.nodes["edge2"]);
    assert_eq!([&edge1.frames["access"], &edge2.frames["wan"]], ["web-forward", "web-reverse"]);
    assert_eq!((edge1.frames.len(), edge1.steering.len(), edge2.frames.len()), (1, 0, 1));
    assert!(edge1.policies[0].pseudowire.is_some_and(|wire| wire.control_word));
    assert_eq!(edge1.policies[0].segment_lists[0].labels, [16_005, 16_004, 30_401]);
    let last = &edge2.labels.last().expect("labels").label;
    assert_eq!((last.behaviour, last.label, last.port.as_deref()), (LabelBehaviour::Pseudowire, 30_401, Some("wan")));
    assert_eq!(last.owner.as_ref().map(|owner| owner.chain.as_str()), Some("web"));
    let mut unknown = frames(&[]);
    unknown.customers["client"].port = None;
    let text = errors(&unknown);
    assert!(text.contains("customers.client.port: nothing says which port of \"edge1\" leads to \"client\""), "{text}");
    // As large as what the customer sends, though 1280 octets would fit: 14, two labels and the word are in front.
    let mut narrow = frames(&[]);
    let Reachability::Links(links) = &mut narrow.reachability else { panic!("links") };
    links[1].mtu = 1425;
    let text = errors(&narrow);
    assert!(
        text.contains("a frame of 1414 octets, the largest that client sends")
            && text.contains("takes 1426 with 2 labels and a control word"),
        "{text}"
    );
}

#[test]
fn frames_go_by_sids_wherever_routing_leads_these() {
    let mut by_sids = frames(&[]);
    (by_sids.reachability, by_sids.dataplane) = (Reachability::Routing, SrDataplane::Srv6);
    for node in by_sids.nodes.values_mut() {
        (node.sids, node.labels) = (true, None);
    }
    let plan = planned(&by_sids);
    assert_eq!(plan.nodes["edge1"].policies[0].mode, HeadendMode::HEncapsL2Red);
    let egress = plan.nodes["edge2"].sids.last().expect("SIDs");
    assert_eq!((egress.behaviour, egress.port.as_deref()), (Behaviour::EndDx2, Some("wan")));
    assert!(plan.nodes.values().all(|node| node.udp_endpoints.is_empty()));
}

#[test]
fn each_end_of_a_tunnel_takes_labels_at_its_loopback_address() {
    let mut some = inventory(&[]);
    some.tunnels = vec![tunnel("mid1", "mid2"), tunnel("mid1", "side"), tunnel("side", "edge2")];
    let plan = planned(&some);
    let endpoints = |node: &str| -> Vec<(String, Option<String>)> {
        let all = plan.nodes[node].udp_endpoints.iter();
        all.map(|one| (one.address.to_string(), one.zero_checksum_from.map(|prefix| prefix.to_string()))).collect()
    };
    let of = |address: &str, from: Option<&str>| vec![(address.to_owned(), from.map(str::to_owned))];
    assert_eq!(endpoints("edge1"), []);
    assert_eq!(endpoints("mid1"), of("fc00:5ea:2::1", Some("fc00:5ea:5::1/128")));
    assert_eq!(endpoints("mid2"), of("fc00:5ea:3::1", None));
    // From mid1 and edge2, which are 2 and 4.
    assert_eq!(endpoints("side"), of("fc00:5ea:5::1", Some("fc00:5ea::/45")));
    let entry = |node: &str, label: u32| {
        let entry = plan.nodes[node].labels.iter().find(|entry| entry.label.label == label).expect("it is known");
        let destination = entry.label.udp.as_ref().map(|udp| udp.destination.to_string());
        (entry.label.behaviour, entry.towards.clone(), destination)
    };
    let at = |address: &str| Some(address.to_owned());
    assert_eq!(entry("mid1", 16_003), (LabelBehaviour::Pop, None, at("fc00:5ea:3::1")));
    assert_eq!(entry("mid1", 16_004), (LabelBehaviour::Swap, None, at("fc00:5ea:3::1")));
    assert_eq!(entry("mid2", 16_004), (LabelBehaviour::Pop, Some("edge2".to_owned()), None));
    // As long as by mid2 and mid1, which begins by a link.
    assert_eq!(entry("edge2", 16_005), (LabelBehaviour::Swap, Some("mid2".to_owned()), None));
    assert!(plan.nodes["edge1"].towards.contains_key("web-forward"), "its own link takes labels");
}
