use std::io::Write;

use segue_model::node::Sid;
use serde_json::json;

use super::{
    fake::{Fake, interface},
    *,
};
use crate::kernel::RouteTarget;

fn state(value: serde_json::Value) -> NodeState {
    serde_json::from_value(value).unwrap()
}

/// Two states that differ in everything that the kernel is told: routes come, go and change, keys come, go and change,
/// sysctls of a port come and go.
fn states(secrets: &[tempfile::NamedTempFile]) -> [NodeState; 2] {
    let path = |position: usize| secrets[position].path().to_str().unwrap();
    let before = state(json!({
        "node": "n", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [
            {"name": "a", "role": "core"}, {"name": "b", "role": "access", "accept_hmac": true},
            {"name": "a.1", "role": "access", "vlan": {"on": "a", "id": 1}},
        ],
        "hmac_keys": [
            {"id": 1, "algorithm": "sha256", "secret_file": path(0)},
            {"id": 2, "algorithm": "sha256", "secret_file": path(0)},
        ],
        "sids": [
            {"sid": "fc00:0:1:1::", "behaviour": "End"},
            {"sid": "fc00:0:1:2::", "behaviour": "End.DT46"},
            {"sid": "fc00:0:1:3::", "behaviour": "End"},
        ],
    }));
    let after = state(json!({
        "node": "n", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [
            {"name": "a", "role": "core"}, {"name": "c", "role": "access", "accept_hmac": true},
            {"name": "a.2", "role": "access", "accept_hmac": true, "vlan": {"on": "a", "id": 2}},
        ],
        "hmac_keys": [
            {"id": 2, "algorithm": "sha256", "secret_file": path(1)},
            {"id": 3, "algorithm": "sha1", "secret_file": path(1)},
        ],
        "sids": [
            {"sid": "fc00:0:1:1::", "behaviour": "End.DT46"},
            {"sid": "fc00:0:1:2::", "behaviour": "End.DT6"},
            {"sid": "fc00:0:1:4::", "behaviour": "End.T"},
        ],
    }));
    [before, after]
}

fn secrets() -> Vec<tempfile::NamedTempFile> {
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{text}").unwrap();
        file
    };
    vec![file("one"), file("two")]
}

fn seg6local(target: &RouteTarget) -> bool {
    matches!(target, RouteTarget::Seg6Local { .. })
}

#[test]
fn applying_sets_routes_sysctls_keys_and_data_plane() {
    let secrets = secrets();
    let [before, after] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    agent.apply(&after).unwrap();
    let world = fake.world();
    let routes: Vec<_> = world.routes.iter().map(|(prefix, target)| (prefix.to_string(), target.to_string())).collect();
    let expected = [
        ("fc00:0:1:1::/128", "blackhole"),
        ("fc00:0:1:2::/128", "seg6local End.DT6 table 254"),
        ("fc00:0:1:4::/128", "seg6local End.T table 254"),
    ];
    assert_eq!(routes, expected.map(|(prefix, target)| (prefix.to_owned(), target.to_owned())));
    assert_eq!(world.sysctls["net/ipv6/conf/all/forwarding"], "1");
    assert_eq!(world.sysctls["net/ipv6/conf/c/seg6_require_hmac"], "1");
    assert_eq!(world.sysctls["net/ipv6/conf/b/seg6_require_hmac"], "0", "b takes no HMAC any more");
    let keys: Vec<_> = world.keys.values().map(|key| (key.id, key.algorithm, key.secret.as_slice())).collect();
    assert_eq!(keys, [(2, 2, &b"two"[..]), (3, 1, &b"two"[..])]);
    assert_eq!(world.plane.as_ref(), Some(&after));
    assert_eq!(agent.state(), Some(&after));
    assert_eq!(world.vlans.keys().collect::<Vec<_>>(), ["a.2"], "that of a port that has gone goes");
}

#[test]
fn a_vlan_is_made_again_when_it_or_its_device_comes_back() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    let names = |name: &str| BTreeSet::from([name.to_owned()]);
    fake.lock().links.0.remove("a.1");
    assert_eq!(agent.follow_links(&names("a.1")).unwrap(), LinksFollowed::Changed);
    assert!(fake.lock().links.get("a.1").is_some());
    agent.reconcile().unwrap();
    // It goes with its device, and nobody tells of it when that comes.
    fake.lock().links.0.remove("a.1");
    let device = fake.lock().links.0.remove("a").unwrap();
    agent.follow_links(&names("a")).unwrap();
    agent.reconcile().unwrap();
    assert!(fake.lock().links.get("a.1").is_none());
    fake.lock().links.0.insert("a".to_owned(), device);
    assert_eq!(agent.follow_links(&names("a")).unwrap(), LinksFollowed::Changed);
    assert!(fake.lock().links.get("a.1").is_some());
}

#[test]
fn a_vlan_of_a_device_that_is_missing_is_refused_with_its_key() {
    let fake = Fake::new(&["a"]);
    let wanted = state(json!({
        "node": "n", "source_address": "fc00:0:1::1",
        "ports": [{"name": "z.1", "role": "core", "vlan": {"on": "z", "id": 1}}],
    }));
    let failure = fake.agent().apply(&wanted).unwrap_err();
    assert_eq!(failure.problems[0].key, "ports[0].vlan.on");
}

#[test]
fn applying_twice_changes_nothing_but_the_record() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    let (world, changes) = (fake.world(), fake.lock().changes);
    let report = agent.apply(&before).unwrap();
    assert_eq!(report.changes, []);
    assert_eq!(fake.world(), world);
    assert_eq!(fake.lock().changes - changes, 2, "only the data plane was asked and the record written");
}

/// The heart of it: whichever change fails, everything is as it was.
#[test]
fn a_failure_of_any_step_leaves_everything_as_it_was() {
    let secrets = secrets();
    let [before, after] = states(&secrets);
    for first in [None, Some(&before)] {
        let mut steps = std::collections::BTreeSet::new();
        let mut number = 0;
        loop {
            let fake = Fake::new(&["a", "b", "c"]);
            let mut agent = fake.agent();
            if let Some(first) = first {
                agent.apply(first).unwrap();
            }
            let world = fake.world();
            fake.lock().changes = 0;
            fake.lock().fail_at = Some(number);
            let Err(failure) = agent.apply(&after) else { break };
            assert_eq!(fake.world(), world, "after failure {number} ({failure})");
            assert_eq!(failure.problems.len(), 1, "nothing could not be restored: {failure}");
            assert_eq!(agent.state(), first);
            let message = &failure.problems[0].message;
            steps.insert(message.split('`').nth(1).unwrap_or_default().to_owned());
            // And it is no dead end.
            fake.lock().fail_at = None;
            agent.apply(&after).unwrap();
            number += 1;
        }
        let expected = ["HMAC keys", "VLANs", "boundary", "data plane", "kernel routes", "save", "sysctls"];
        assert_eq!(steps.into_iter().collect::<Vec<_>>(), expected, "every step was made to fail");
    }
}

#[test]
fn an_invalid_state_is_refused_before_anything_is_touched() {
    let fake = Fake::new(&["a"]);
    let bad = state(json!({
        "node": "n", "source_address": "fc00:0:1::1",
        "ports": [{"name": "a", "role": "core"}, {"name": "a", "role": "core"}],
    }));
    let failure = fake.agent().apply(&bad).unwrap_err();
    assert_eq!(failure.fault, Fault::Request);
    assert_eq!(fake.lock().changes, 0);
}

#[test]
fn a_missing_interface_is_named_with_those_that_exist() {
    let fake = Fake::new(&["a"]);
    let bad = state(json!({"node": "n", "source_address": "fc00:0:1::1", "ports": [{"name": "b", "role": "core"}]}));
    let failure = fake.agent().apply(&bad).unwrap_err();
    assert_eq!(failure.fault, Fault::Kernel);
    assert_eq!(failure.problems[0].key, "ports[0].name");
    assert!(failure.problems[0].remedy.ends_with("there are: a"), "{failure}");
    assert_eq!(fake.lock().changes, 0);
}

#[test]
fn a_secret_that_can_not_be_used_is_refused() {
    let mut long = tempfile::NamedTempFile::new().unwrap();
    long.write_all(&[b'x'; 65]).unwrap();
    for path in ["/nonexistent", long.path().to_str().unwrap()] {
        let fake = Fake::new(&["a"]);
        let bad = state(json!({"node": "n", "source_address": "fc00:0:1::1",
            "hmac_keys": [{"id": 1, "algorithm": "sha1", "secret_file": path}]}));
        let failure = fake.agent().apply(&bad).unwrap_err();
        assert_eq!(failure.fault, Fault::Request, "{failure}");
        assert_eq!(fake.lock().changes, 0);
    }
}

#[test]
fn a_route_of_somebody_else_is_not_replaced() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    fake.lock().foreign.push("fc00:0:1:3::/128".parse().unwrap());
    let world = fake.world();
    let failure = fake.agent().apply(&before).unwrap_err();
    assert!(failure.problems[0].message.contains("kernel routes"), "{failure}");
    assert_eq!(fake.world(), world);
}

#[test]
fn a_kernel_without_seg6local_gets_blackholes_and_says_so() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    fake.lock().no_seg6local = true;
    let address = before.source_address.to_string() + "/128";
    fake.lock().links.0.get_mut("a").unwrap().addresses.push(address.parse().unwrap());
    let mut agent = fake.agent();
    let report = agent.apply(&before).unwrap();
    assert_eq!(report.warnings.len(), 2, "{:?}", report.warnings);
    assert!(fake.world().routes.values().all(|target| *target == RouteTarget::Blackhole));
    assert_eq!(fake.world().routes.len(), 3);
}

#[test]
fn a_dry_run_touches_nothing() {
    let secrets = secrets();
    let [before, after] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    let changes = fake.lock().changes;
    let wanted = agent.diff(&after).unwrap();
    let report = agent.check(&after, wanted).unwrap();
    assert!(report.dry_run && !report.changes.is_empty());
    assert_eq!(fake.lock().changes, changes);
}

#[test]
fn routes_follow_the_link_that_they_name() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    // The core port goes, and the kernel takes the routes with it.
    fake.lock().links.0.remove("a");
    fake.lock().world.routes.retain(|_, target| !seg6local(target));
    agent.reconcile().unwrap();
    let devices: Vec<_> = fake.world().routes.into_values().filter(seg6local).collect();
    assert_eq!(devices.len(), 2);
    let access = fake.lock().links.get("b").unwrap().ifindex;
    assert!(devices.iter().all(|target| matches!(target, RouteTarget::Seg6Local { device, .. } if *device == access)));
    assert_eq!(fake.lock().bumps, 0, "the kernel's notifications tell what ways it is about");
    // It comes back under another number.
    fake.lock().links.0.insert("a".to_owned(), interface(99));
    agent.reconcile().unwrap();
    let back = fake.world().routes.into_values().filter(seg6local).collect::<Vec<_>>();
    assert!(back.iter().all(|target| matches!(target, RouteTarget::Seg6Local { device: 99, .. })));
}

#[test]
fn a_link_that_somebody_takes_down_costs_what_leads_there_and_no_more() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    let (world, changes) = (fake.world(), fake.lock().changes);
    let turn = |agent: &mut super::fake::FakeAgent, link: &str, up| {
        fake.lock().links.0.get_mut(link).unwrap().up = up;
        agent.follow_links(&[link.to_owned()].into()).unwrap()
    };
    assert_eq!(turn(&mut agent, "c", false), LinksFollowed::Strange, "no port");
    // The first core port, whose name is in the routes: the kernel keeps them while the link has no carrier.
    let ignore = "net/ipv6/conf/a/ignore_routes_with_linkdown";
    fake.lock().world.sysctls.insert(ignore.to_owned(), "0".to_owned());
    for up in [false, true, false, true] {
        assert_eq!(turn(&mut agent, "a", up), LinksFollowed::Followed);
    }
    let seen = |fake: &Fake| {
        let inner = fake.lock();
        (inner.changes - changes, inner.followed, inner.bumps)
    };
    assert_eq!(seen(&fake), (4, 4, 0));
    assert_eq!(turn(&mut agent, "a", true), LinksFollowed::Followed, "nothing happened");
    assert_eq!(fake.lock().followed, 4);
    fake.lock().world.sysctls.remove(ignore);
    assert_eq!(fake.world(), world, "no route, no sysctl, no configuration");
    assert_eq!(
        turn(&mut agent, "a", false),
        LinksFollowed::Changed,
        "where the kernel does not keep them they need another"
    );
    fake.lock().links.0.get_mut("a").unwrap().up = true;
    fake.lock().links.0.get_mut("b").unwrap().mtu = 1400;
    assert_eq!(turn(&mut agent, "b", true), LinksFollowed::Changed, "more than that has changed");
    agent.reconcile().unwrap();
    assert_eq!(turn(&mut agent, "b", false), LinksFollowed::Followed);
    // What failed is not taken for done.
    let changes = fake.lock().changes;
    fake.lock().fail_at = Some(changes);
    fake.lock().links.0.get_mut("b").unwrap().up = true;
    agent.follow_links(&["b".to_owned()].into()).unwrap_err();
    assert_eq!(turn(&mut agent, "b", true), LinksFollowed::Changed);
}

#[test]
fn without_any_link_up_the_sids_still_have_routes() {
    let secrets = secrets();
    let [before, _] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    fake.lock().links.0.values_mut().for_each(|link| link.up = false);
    agent.reconcile().unwrap();
    assert!(fake.world().routes.values().all(|target| *target == RouteTarget::Blackhole));
    assert_eq!(fake.world().routes.len(), 3);
}

#[test]
fn cleaning_leaves_the_world_as_segue_found_it() {
    let secrets = secrets();
    let [before, after] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    let world = fake.world();
    let mut agent = fake.agent();
    agent.apply(&before).unwrap();
    agent.apply(&after).unwrap();
    // After a restart, too.
    fake.agent().clean().unwrap();
    assert_eq!(fake.world(), world);
}

#[test]
fn a_restart_takes_over_what_was_applied() {
    let secrets = secrets();
    let [before, after] = states(&secrets);
    let fake = Fake::new(&["a", "b", "c"]);
    fake.agent().apply(&before).unwrap();
    let mut restarted = fake.agent();
    assert_eq!(restarted.state(), Some(&before));
    restarted.apply(&after).unwrap();
    assert!(!fake.world().routes.contains_key(&"fc00:0:1:3::/128".parse().unwrap()), "the stale route is gone");
}

/// A function with a SID that withdraws, and one that does not.
fn functions() -> NodeState {
    let sid = |sid: &str, on_failure: &str| {
        json!({"sid": sid, "behaviour": "End.AD", "next_hop": "192.0.2.2", "proxy": {"inner": ["IPv4"], "memory": "flow",
            "to_function": "b", "from_function": "c", "on_failure": on_failure, "watch": {}}})
    };
    state(json!({
        "node": "n", "source_address": "fc00:0:1::1", "domain": {"sid_blocks": ["fc00::/32"]},
        "ports": [{"name": "a", "role": "core"}, {"name": "b", "role": "service"}, {"name": "c", "role": "service"}],
        "sids": [sid("fc00:0:1:1::", "withdraw"), sid("fc00:0:1:2::", "drop")],
    }))
}

#[test]
fn the_route_of_a_dead_function_stays_away_until_it_lives() {
    let state = functions();
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&state).unwrap();
    let routes = || fake.world().routes.keys().map(ToString::to_string).collect::<Vec<_>>();
    let (both, one) = (["fc00:0:1:1::/128", "fc00:0:1:2::/128"], ["fc00:0:1:2::/128"]);
    assert_eq!(routes(), both);
    fake.lock().down = ["fc00:0:1:1::/128", "fc00:0:1:2::/128"].map(|sid| sid.parse().unwrap()).into();
    agent.follow_life(None).unwrap();
    assert_eq!(routes(), one);
    agent.apply(&state).unwrap();
    assert_eq!(routes(), one, "not by an apply");
    agent.reconcile().unwrap();
    assert_eq!(routes(), one, "not by following the kernel");
    fake.agent().reconcile().unwrap();
    assert_eq!(routes(), one, "not by the next agent");
    fake.lock().down.clear();
    agent.follow_life(None).unwrap();
    assert_eq!(routes(), both);
}

#[test]
fn functions_that_die_at_once_are_one_batch_of_routes() {
    let mut state = functions();
    let one = state.sids[0].clone();
    let sids: Vec<ipnet::Ipv6Net> =
        (1..=1000).map(|number| format!("fc00:0:1:{number:x}::/64").parse().unwrap()).collect();
    state.sids = sids.iter().map(|sid| Sid { sid: *sid, ..one.clone() }).collect();
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    agent.apply(&state).unwrap();
    let most = sids[1..].iter().copied().collect();
    fake.lock().down = sids[1..].iter().copied().collect();
    agent.follow_life(Some(&most)).unwrap();
    assert_eq!((fake.world().routes.len(), fake.lock().batches), (1, 1));
    fake.lock().down.clear();
    agent.follow_life(Some(&most)).unwrap();
    assert_eq!((fake.world().routes.len(), fake.lock().batches), (1000, 2));
}

#[test]
fn what_is_in_a_namespace_is_looked_at_when_its_links_change_or_its_function_dies() {
    let mut state = functions();
    let netfilter = |sid: &str, namespace: &str| {
        let sid = json!({"sid": sid, "behaviour": "End.AN.NF", "netfilter": {"namespace": namespace, "watch": {}}});
        serde_json::from_value::<Sid>(sid).unwrap()
    };
    state.sids.extend([netfilter("fc00:0:1:3::", "one"), netfilter("fc00:0:1:4::", "two")]);
    let west = |namespace: &str| segue_model::wiring::Wiring::of(namespace).node_west;
    let names = ["a", "b", "c", &west("one"), &west("two")].map(str::to_owned);
    let fake = Fake::new(&names.each_ref().map(String::as_str));
    let mut agent = fake.agent();
    agent.apply(&state).unwrap();
    let made = || std::mem::take(&mut fake.lock().made);
    assert_eq!(made(), [None], "all");
    for name in ["a", "b"] {
        agent.follow_links(&[name.to_owned()].into()).unwrap();
    }
    assert_eq!(made(), [], "links that lead elsewhere");
    agent.follow_links(&[west("two")].into()).unwrap();
    let two = [Some(["two".to_owned()].into())];
    assert_eq!(made(), two);
    let sids = |sids: &[&str]| sids.iter().map(|sid| format!("{sid}/128").parse().unwrap()).collect();
    agent.repair_functions(&sids(&["fc00:0:1:1::"])).unwrap();
    assert_eq!(made(), [], "it has no namespace");
    agent.repair_functions(&sids(&["fc00:0:1:1::", "fc00:0:1:4::"])).unwrap();
    assert_eq!(made(), two);
}

#[test]
fn an_observer_hears_of_what_is_applied_and_of_interfaces() {
    let state = functions();
    let fake = Fake::new(&["a", "b", "c"]);
    let mut agent = fake.agent();
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = heard.clone();
    agent.observe(Box::new(move |state, links| hears.lock().unwrap().push((state.sids.len(), links.0.len())))).unwrap();
    agent.apply(&state).unwrap();
    fake.lock().links.0.remove("c");
    agent.reconcile().unwrap();
    fake.lock().fail_at = Some(0);
    fake.lock().changes = 0;
    assert!(agent.apply(&NodeState { sids: Vec::new(), ..state }).is_err());
    assert_eq!(*heard.lock().unwrap(), [(2, 3), (2, 2)], "nothing of what was refused");
}
