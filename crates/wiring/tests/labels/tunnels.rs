//! Labels in UDP where the network between two nodes knows none. That packets of any topology get where they should is in `mixed.rs`.

use segue_model::label::LabelBehaviour;
use segue_model::udp::UdpTunnel;
use segue_wiring::{LabPlan, load_plan};

use crate::mixed::{Packet, line, mixed};
use crate::{Seed, state};

/// Tunnels between those of the nodes that have labels, each pair once. A weight of 0: none is written.
pub fn text(seed: &Seed, kinds: &[usize], tunnels: &[(usize, usize, u32)]) -> String {
    let mut kept: Vec<[usize; 2]> = Vec::new();
    let mut text = String::new();
    for (a, b, weight) in tunnels {
        let ends = [a % seed.nodes, b % seed.nodes];
        let [a, b] = ends;
        if a == b || ends.iter().any(|end| kinds[*end] == 0) || kept.contains(&ends) || kept.contains(&[b, a]) {
            continue;
        }
        kept.push(ends);
        let weight = if *weight == 0 { String::new() } else { format!(", weight: {weight}, zero_checksum: true") };
        text.push_str(&format!("  - {{ between: [n{a}, n{b}]{weight} }}\n"));
    }
    if text.is_empty() { text } else { format!("udp_tunnels:\n{text}") }
}

/// n0 - n1 = n2 = n3 - n4: n2 forwards IPv6, and knows neither labels nor SIDs.
fn islands(tunnel: &str) -> String {
    let kinds = [1, 1, 0, 1, 1];
    let text = mixed(&line(&kinds, &[], &[]), &kinds, "sr-mpls");
    text.replace("sr_dataplane: srv6", "sr_dataplane: srv6, dataplane: plain") + tunnel
}

fn refused(text: &str) -> String {
    load_plan(text, "x").expect_err("it cannot be planned").to_string()
}

/// In transit by the node in front of the network, where the label of the last node stays on; and on the last hop, where it comes off.
#[test]
fn labels_cross_a_network_without_labels_in_udp() {
    let text = islands("udp_tunnels: [{ between: [n3, n1] }]\n");
    let text = text.replace("between: [n2, n3],", "between: [n2, n3], mtu: 1500,");
    let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
    let mut packet = Packet::new(&plan, "n0", 0);
    packet.walk("c0-forward");
    assert_eq!((packet.way.as_slice(), packet.in_udp), (&["n0", "n1", "n2", "n3", "n4"].map(String::from)[..], 1));
    let label = |node: &str, label: u32| {
        let found = state(&plan, node).labels.iter().find(|one| one.label == label);
        let found = found.unwrap_or_else(|| panic!("{node} knows {label}")).clone();
        assert!(
            found.udp.is_none() || (found.next_hop, &found.port, found.paths.len()) == (None, &None, 0),
            "{found:?}"
        );
        (found.behaviour, found.udp)
    };
    let to = |address: &str| {
        Some(UdpTunnel { destination: address.parse().unwrap(), mtu: Some(1500), zero_checksum: false })
    };
    // The id of n4 is 5.
    assert_eq!(label("n1", 16_005), (LabelBehaviour::Swap, to("fc00:5ea:4::1")));
    assert_eq!(label("n1", 16_004), (LabelBehaviour::Pop, to("fc00:5ea:4::1")));
    assert_eq!(label("n3", 16_001), (LabelBehaviour::Swap, to("fc00:5ea:2::1")));
    assert_eq!(label("n0", 16_005), (LabelBehaviour::Swap, None));
    let endpoints =
        |node: &str| state(&plan, node).udp_endpoints().iter().map(|one| one.address.to_string()).collect::<Vec<_>>();
    assert_eq!(
        [endpoints("n0"), endpoints("n1"), endpoints("n3")],
        [vec![], vec!["fc00:5ea:2::1".to_owned()], vec!["fc00:5ea:4::1".to_owned()]]
    );
    // Hosts of all nodes are kept from the addresses that take labels.
    let closed = |plan: &LabPlan, node: &str| {
        let prefixes = state(plan, node).domain.infrastructure_prefixes.clone();
        prefixes
            .iter()
            .any(|prefix| prefix.contains(&plan.nodes["n1"].loopback) && prefix.contains(&plan.nodes["n3"].loopback))
    };
    assert!(["n0", "n1", "n3", "n4"].iter().all(|node| closed(&plan, node)));
    let last = plan.explain().iter().find(|step| step.policy == "c0-forward" && step.step == 1).expect("the egress");
    assert_eq!(last.path, ["n0", "n1", "n2", "n3", "n4"], "the network between, too");
    assert!(last.why.ends_with("shortest path n0 > n1 > n3 > n4 (distance 4); in UDP along n1 > n2 > n3, which is no way of labels (RFC 7510), with 48 octets more"), "{}", last.why);
}

/// A headend at the network itself puts its stack into UDP; a link that joins both ends takes labels in no other way.
#[test]
fn a_headend_begins_in_udp_and_a_link_beside_it_takes_no_labels() {
    let kinds = [1, 1];
    let text = mixed(&line(&kinds, &[], &[]), &kinds, "sr-mpls")
        + "udp_tunnels: [{ between: [n0, n1], zero_checksum: true }]\n";
    let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
    for (node, other, policy) in [("n0", "n1", "c0-forward"), ("n1", "n0", "c0-reverse")] {
        let [policy_of_node] = &state(&plan, node).policies[..] else { panic!("one policy") };
        let [list] = &policy_of_node.segment_lists[..] else { panic!("one list") };
        let udp = list.udp.as_ref().expect("in UDP");
        assert_eq!(
            (udp.destination, udp.mtu, udp.zero_checksum),
            (plan.nodes[other].loopback.into(), Some(9000), true)
        );
        assert_eq!((list.next_hop, &list.port), (None, &None));
        let from = state(&plan, node).udp_endpoints()[0].zero_checksum_from.expect("of the other end");
        assert_eq!(from, ipnet::Ipv6Net::from(plan.nodes[other].loopback));
        let mut packet = Packet::new(&plan, node, 0);
        packet.walk(policy);
        assert_eq!((packet.here().as_str(), packet.in_udp), (other, 1));
    }
    let push = &plan.explain()[0];
    assert!(format!("{:?}", push.action).contains("n1 in UDP"), "{push:?}");
}

/// Of equally short ways those by links are taken, though the other one is a tunnel; a longer tunnel is none.
#[test]
fn links_come_before_udp() {
    let seed = Seed {
        nodes: 4,
        links: vec![(0, 1, 1), (1, 3, 1), (0, 2, 1), (2, 3, 1)],
        chains: vec![(0, 3, vec![])],
        ..Seed::default()
    };
    let kinds = [1, 1, 0, 1];
    for weight in ["", ", weight: 2", ", weight: 3"] {
        let text = mixed(&seed, &kinds, "sr-mpls") + &format!("udp_tunnels: [{{ between: [n0, n3]{weight} }}]\n");
        let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let [list] = &state(&plan, "n0").policies[0].segment_lists[..] else { panic!("one list") };
        assert!(list.udp.is_none() && list.next_hop.is_some(), "{list:?}");
    }
    let text = mixed(&seed, &kinds, "sr-mpls") + "udp_tunnels: [{ between: [n0, n3], weight: 1 }]\n";
    let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
    assert!(state(&plan, "n0").policies[0].segment_lists[0].udp.is_some());
}

#[test]
fn octets_of_udp_count() {
    // Two labels: 8, and 48 of IPv6 and UDP.
    let of = |mtu: u32| {
        islands("udp_tunnels: [{ between: [n1, n3] }]\n")
            .replace("between: [n2, n3],", &format!("between: [n2, n3], mtu: {mtu},"))
    };
    load_plan(&of(1336), "x").unwrap_or_else(|errors| panic!("{errors}"));
    let error = refused(&of(1335));
    let wanted = "the MTU of 1287 octets between n0 and n4, without the 48 that UDP takes, is too small (forward): a packet of 1280 octets, the least for IPv6, takes \
                  1288 with 2 labels; raise the links' MTU to 1336 or more";
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn what_is_no_tunnel_is_refused() {
    let error = refused(&islands(""));
    assert!(
        error.contains("over which labels lead; add the missing link") && error.contains("in UDP (`udp_tunnels`)"),
        "{error}"
    );
    for (tunnels, words) in [
        (
            "[{ between: [n1, n2] }]",
            "udp_tunnels[0].between[1]: no labels lead to \"n2\", which could go there in UDP; give it `sr_dataplane: sr-mpls`",
        ),
        ("[{ between: [n1, n9] }]", "udp_tunnels[0].between[1]: there is no node \"n9\""),
        ("[{ between: [n1, n1] }]", "udp_tunnels[0].between: labels in UDP lead from \"n1\" to itself"),
        (
            "[{ between: [n1, n3] }, { between: [n3, n1], weight: 2 }]",
            "udp_tunnels[1]: udp_tunnels[0] is between n3 and n1 too",
        ),
        ("[{ between: [n1, n3], weight: 0 }]", "udp_tunnels[0].weight: a weight of 0 is not possible"),
    ] {
        let error = refused(&islands(&format!("udp_tunnels: {tunnels}\n")));
        assert!(error.contains(words), "{words}\n{error}");
    }
    let apart = islands("udp_tunnels: [{ between: [n1, n3] }]\n").replace("{ between: [n1, n2], weight: 1 }, ", "");
    assert!(refused(&apart).contains("udp_tunnels[0]: no links lead from n1 to n3, over which UDP could go"));
}
