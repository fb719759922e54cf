//! Chains of Ethernet frames: from the port of one host to that of the other, by SIDs or by labels.

use std::collections::HashSet;

use proptest::prelude::*;

use segue_model::label::{LabelBehaviour, Pseudowire};
use segue_model::node::{Behaviour, HeadendMode};
use segue_wiring::{LabPlan, load_plan};

use crate::mixed::{Packet, WAYS, is_possible, line, mixed, points};
use crate::{Seed, Stop, seed, state, text};

/// The seed's chains, over nodes alone, each host in one.
fn of_frames(seed: &Seed) -> Seed {
    let mut taken = HashSet::new();
    let mut kept = Seed { functions: Vec::new(), chains: Vec::new(), ..seed.clone() };
    for (from, to, via) in &seed.chains {
        if !taken.contains(from) && !taken.contains(to) {
            taken.extend([*from, *to]);
            let nodes = via.iter().filter(|stop| matches!(stop, Stop::Node(_))).copied();
            kept.chains.push((*from, *to, nodes.collect()));
        }
    }
    kept
}

fn frames(text: &str) -> String {
    text.replace(", via: [", ", ethernet: {}, via: [")
}

/// The host that a node's port leads to.
fn host(plan: &LabPlan, node: &str, port: &str) -> String {
    let interfaces = &plan.nodes[node].interfaces;
    interfaces.iter().find(|one| one.name == port).expect("the port is there").peer.namespace.clone()
}

/// The policy that all frames of a host go into, where no router answers it.
fn policy_of(plan: &LabPlan, node: &str, from: &str) -> String {
    let ports = state(plan, node).ports.iter().filter(|port| host(plan, node, &port.name) == from);
    let [port] = &ports.collect::<Vec<_>>()[..] else { panic!("one port leads to {from}") };
    let interface = plan.nodes[node].interfaces.iter().find(|one| one.name == port.name).expect("it is there");
    assert!(interface.addresses.is_empty() && plan.hosts[from].routes.is_empty(), "the other host is on the link");
    port.l2_policy.clone().expect("a policy of frames")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_one_host_come_out_at_the_other(
        seed in seed(),
        kinds in prop::collection::vec(0usize..3, 8),
        domain in 0usize..2,
    ) {
        let seed = of_frames(&seed);
        let text = frames(&mixed(&seed, &kinds, WAYS[domain]));
        let topology = segue_model::load::load_topology(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let possible = |crossing| seed.chains.iter().all(|(from, to, via)| {
            let back: Vec<Stop> = via.iter().rev().copied().collect();
            is_possible(&topology, *from, &points(&topology, via, *to), crossing)
                && is_possible(&topology, *to, &points(&topology, &back, *from), crossing)
        });
        let plan = match load_plan(&text, "x") {
            Ok((_, plan)) => plan,
            Err(errors) => {
                let errors = errors.to_string();
                prop_assert!(!possible(false), "{text}\n{errors}");
                prop_assert!(!possible(true) || errors.contains("would cross between SIDs and labels"), "{text}\n{errors}");
                return Ok(());
            }
        };
        prop_assert!(possible(false), "what it found is no way: {text}");
        let mut ends = HashSet::new();
        for (number, (one, other, _)) in seed.chains.iter().enumerate() {
            for (direction, from, to) in [("forward", one, other), ("reverse", other, one)] {
                let name = policy_of(&plan, &format!("n{from}"), &format!("h{from}"));
                prop_assert_eq!(&name, &format!("c{number}-{direction}"));
                let mut packet = Packet::new(&plan, &format!("n{from}"), 0);
                let [policy] = &packet.walk(&name)[..] else { panic!("one part") };
                prop_assert!(policy.carries_frames());
                let (node, out) = (packet.here(), packet.out.expect("a port"));
                prop_assert_eq!(&node, &format!("n{to}"));
                prop_assert_eq!(host(&plan, &node, &out), format!("h{to}"));
                let list = &policy.segment_lists[0];
                prop_assert!(ends.insert((list.segments.last().copied(), list.labels.last().copied())), "each port has its own");
            }
        }
        prop_assert!(plan.nodes.values().all(|node| node.state.as_ref().expect("Segue").steering.is_empty()));
    }
}

#[test]
fn by_labels_it_is_a_pseudowire_with_a_control_word_unless_that_is_not_wanted() {
    let topology = text(&line(&[1, 1, 1], &[], &[Stop::Node(1)]));
    for (key, wanted, words) in [
        ("ethernet: {}", true, "a control word is in front of each"),
        ("ethernet: {control_word: false}", false, "no control word is in front of them"),
    ] {
        let (_, plan) =
            load_plan(&frames(&topology).replace("ethernet: {}", key), "x").unwrap_or_else(|errors| panic!("{errors}"));
        for (node, labels) in [("n0", [16_002, 16_003, 30_301]), ("n2", [16_002, 16_001, 30_101])] {
            let [policy] = &state(&plan, node).policies[..] else { panic!("one policy") };
            assert_eq!(
                (policy.mode, policy.pseudowire),
                (HeadendMode::Push, Some(Pseudowire { control_word: wanted }))
            );
            assert_eq!(policy.segment_lists[0].labels, labels);
        }
        let mut labels = state(&plan, "n2").labels.iter();
        let label = labels.find(|label| label.behaviour == LabelBehaviour::Pseudowire).expect("its end");
        assert_eq!((label.label, label.port.as_deref(), label.control_word), (30_301, Some("h2"), Some(wanted)));
        let steps: Vec<_> = plan.explain().iter().filter(|step| step.policy == "c0-forward").collect();
        assert!(
            steps[0].why.contains("all frames that come in by the port h0 of n0, from h0, go to h2"),
            "{}",
            steps[0].why
        );
        assert!(
            steps[2].why.contains("sends frames out of the port h2") && steps[2].why.contains(words),
            "{}",
            steps[2].why
        );
    }
}

#[test]
fn by_sids_it_is_h_encaps_l2_and_end_dx2() {
    let topology = frames(&mixed(&line(&[0, 0, 0], &[], &[Stop::Node(1)]), &[0, 0, 0], "srv6"));
    for (key, mode) in [("", HeadendMode::HEncapsL2Red), ("mode: H.Encaps, ", HeadendMode::HEncapsL2)] {
        let text = topology.replace("ethernet", &format!("{key}ethernet"));
        let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let [policy] = &state(&plan, "n0").policies[..] else { panic!("one policy") };
        assert_eq!((policy.mode, policy.pseudowire), (mode, None));
        let list: Vec<String> = policy.segment_lists[0].segments.iter().map(ToString::to_string).collect();
        assert_eq!(list, ["fc00:5e9:2:1::", "fc00:5e9:3:100::"]);
        let sid = state(&plan, "n2").sids.iter().find(|sid| sid.behaviour == Behaviour::EndDx2).expect("its end");
        assert_eq!((sid.sid.addr().to_string().as_str(), sid.port.as_deref()), ("fc00:5e9:3:100::", Some("h2")));
    }
}

/// Both hosts have addresses of one network, which is nowhere in the domain.
#[test]
fn hosts_of_one_link_are_in_one_network() {
    let topology = frames(&text(&line(&[1, 1], &[], &[])));
    let (_, plan) = load_plan(&topology, "x").unwrap_or_else(|errors| panic!("{errors}"));
    let addresses =
        |host: &str| plan.hosts[host].interface.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(addresses("h0"), ["10.0.1.2/24", "2001:db8:1::2/64"]);
    assert_eq!(addresses("h1"), ["10.0.1.3/24", "2001:db8:1::3/64"]);
    let mut routes = plan.nodes.values().flat_map(|node| &node.routes);
    assert!(routes.all(|route| !route.reason.contains("host")), "no route leads to them");

    let given = |addresses: [&str; 2]| {
        let hosts = ["h0: { node: n0", "h1: { node: n1"].into_iter().zip(addresses);
        let text = hosts
            .fold(topology.clone(), |text, (host, given)| text.replace(host, &format!("{host}, addresses: [{given}]")));
        load_plan(&text, "x").map(|_| ()).map_err(|errors| errors.to_string())
    };
    assert_eq!(given(["10.9.0.1/24", "10.9.0.2/24"]), Ok(()));
    assert!(
        given(["10.9.0.1/24", "10.9.1.1/24"]).is_err_and(
            |error| error.contains("chains.c0: its two hosts are on one link, and have no network in common")
        )
    );
    assert!(given(["10.9.0.1/24", "10.9.0.1/24"]).is_err_and(|error| error.contains("hosts.h1: host \"h0\", on the same link, has the address 10.9.0.1 too")));
}

#[test]
fn what_frames_cannot_have_is_refused() {
    let kinds = [1, 1, 1];
    let topology = frames(&mixed(&line(&kinds, &[(1, 0)], &[Stop::Node(1)]), &kinds, "sr-mpls"));
    let cases = [
        (
            "via: [",
            "via: [f0, ",
            "chains.c0.via[0]: the chain carries Ethernet frames, and \"f0\" would get IP packets; remove it",
        ),
        ("ethernet", "match: { protocol: tcp }, ethernet", "chains.c0.match: nothing in frames is matched"),
        ("ethernet", "mark: 3, ethernet", "chains.c0.mark: no function that the chain visits sees a mark"),
        (
            "from: h0",
            "from: { node: n0, prefixes: [10.0.1.0/24] }",
            "chains.c0.from: frames come from the port of a host",
        ),
        ("from: h0", "from: [10.0.1.0/24]", "chains.c0.from: frames come from the port of a host"),
        (
            "h0: { node: n0 }",
            "h0: { node: n0, mtu: 1600 }",
            "chains.c0: h0 sends packets of up to 1600 octets, and the link to h2 takes 1500",
        ),
        (
            "chains: { ",
            "chains: { other: { from: h1, to: h2, via: [] }, ",
            "chains.c0.to: all frames of \"h2\" go into this chain, and the chain \"other\" ends at it too",
        ),
        (
            "between: [n1, n2],",
            "between: [n1, n2], mtu: 1529,",
            "the MTU of 1529 octets between n1 and n2 is too small (forward): a frame of 1514 octets, the largest that h0 sends without a VLAN tag, takes \
             1530 with 3 labels and a control word; raise the links' MTU to 1530 or more",
        ),
        (
            "links: [",
            "udp_tunnels: [{ between: [n1, n2] }]\nlinks: [",
            "chains.c0.ethernet: Ethernet frames do not go in UDP, as labels do between n1 and n2 (forward)",
        ),
        (
            "n1: { sr_dataplane: sr-mpls }, n2: { sr_dataplane: sr-mpls }",
            "n1: { sr_dataplane: both }, n2: { sr_dataplane: srv6 }",
            "chains.c0.ethernet: the chain would cross between SIDs and labels at n1 (forward), where only IP packets are steered anew",
        ),
    ];
    load_plan(&topology, "x").unwrap_or_else(|errors| panic!("{errors}"));
    for (from, to, words) in cases {
        let changed = topology.replacen(from, to, 1);
        assert_ne!(changed, topology, "{from}");
        let error = load_plan(&changed, "x").expect_err(words).to_string();
        assert!(error.contains(words), "{words}\n{error}");
    }
    let by_sids = topology.replace("sr-mpls", "srv6").replace("ethernet: {}", "ethernet: {control_word: true}");
    let error = load_plan(&by_sids, "x").expect_err("no labels").to_string();
    assert!(error.contains("chains.c0.ethernet.control_word: SIDs lead this chain"), "{error}");
    assert_eq!(error.matches("control_word").count(), 1, "once: {error}");
    let kernel = by_sids
        .replace("ethernet: {control_word: true}", "ethernet: {}")
        .replace("n0: { sr_dataplane: srv6", "n0: { dataplane: kernel");
    let error = load_plan(&kernel, "x").expect_err("the kernel").to_string();
    assert!(
        error.contains("chains.c0.from: the kernel's data plane on \"n0\" gets no frames from ports here"),
        "{error}"
    );
}
