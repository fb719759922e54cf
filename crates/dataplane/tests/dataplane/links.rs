//! Links that go down and come up again: in place, and only what leads there. Needs root.

use std::path::Path;

use crate::support::*;
use libbpf_rs::{MapCore, MapFlags};
use segue_abi as abi;
use segue_abi::zerocopy::FromBytes;
use segue_dataplane::{Dataplane, Interfaces};
use serde_json::{Value, json};

fn open(pins: &Path) -> Dataplane {
    Dataplane::open_or_load(pins, options()).expect("a data plane")
}

/// A SID without a function beside one whose function is behind h1.
fn with_function() -> Value {
    let mut state = state();
    state["ports"].as_array_mut().expect("ports").push(json!({"name": "h1", "role": "service"}));
    state["sids"].as_array_mut().expect("SIDs").push(json!({
        "sid": "fc00:1:9::", "behaviour": "End.AM", "next_hop_mac": "02:00:00:00:00:09",
        "proxy": {"to_function": "h1", "from_function": "h1"},
    }));
    state
}

/// Those that there are, with this one as it is said.
fn turned(name: &str, up: bool) -> Interfaces {
    let mut links = interfaces();
    links.0.get_mut(name).expect("an interface of the test").up = up;
    links
}

fn raw(dataplane: &Dataplane, map: &str, key: u32) -> Vec<u8> {
    let map = dataplane.map(map).expect("a map");
    map.lookup(&key.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry")
}

fn control(dataplane: &Dataplane) -> abi::Control {
    abi::Control::read_from_bytes(&raw(dataplane, "control", 0)).expect("a control entry")
}

/// Whether packets find the port up.
fn up(dataplane: &Dataplane, name: &str) -> bool {
    let applied = dataplane.applied().expect("a configuration");
    let slot = applied.port(name).expect("a port").slot(applied.generation);
    let entry = abi::Port::read_from_bytes(&raw(dataplane, "ports", slot)).expect("a port's entry");
    u32::from(entry.flags) & abi::SEGUE_PORT_UP != 0
}

/// What packets to a function find: the MTU towards it, and whether it is down.
fn function(dataplane: &Dataplane) -> (u16, bool) {
    let applied = dataplane.applied().expect("a configuration");
    let sid = applied.sid(&"fc00:1:9::/128".parse().expect("a prefix")).expect("the SID");
    let entry = abi::Sid::read_from_bytes(&raw(dataplane, "sid_entries", sid.index)).expect("a SID's entry");
    (entry.function_mtu, u32::from(entry.flags) & abi::SEGUE_SID_DOWN != 0)
}

#[test]
#[ignore = "needs root"]
fn a_port_s_link_costs_its_entry() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with_function());
        let before = control(&dataplane);
        for is_up in [false, true, false] {
            assert!(dataplane.follow_links(&turned("p2", is_up)).expect("a write"));
            assert_eq!((up(&dataplane, "p1"), up(&dataplane, "p2")), (true, is_up));
        }
        assert_eq!(control(&dataplane), before, "no generation, and nothing that is cached is dropped");
        assert_eq!(function(&dataplane), (1500, false));
        // What it was when it was compiled is not what it is.
        let applied = apply(&mut dataplane, &with_function());
        assert!(!applied.changed && up(&dataplane, "p2"), "{applied:?}");
    });
}

#[test]
#[ignore = "needs root"]
fn a_function_s_link_costs_what_leads_to_it_and_outlives_the_agent() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with_function());
        let sid = "fc00:1:9::/128".parse().expect("a prefix");
        dataplane.life().set([sid], true).expect("a write");
        let before = control(&dataplane);
        assert!(dataplane.follow_links(&turned("h1", false)).expect("a write"));
        assert_eq!(function(&dataplane), (0, true), "it stays down");
        let after = control(&dataplane);
        let narrow_changes = before.narrow_changes + 1;
        assert_eq!(
            after,
            abi::Control { narrow_changes, ..before },
            "copies of this SID are forgotten, and nothing else"
        );
        dataplane.life().set([sid], false).expect("a write");
        assert_eq!(function(&dataplane), (0, false), "up, but the link is down still");
        // Larger tables, and another agent: neither takes what was compiled for what is.
        drop(dataplane);
        let mut dataplane = open(pins);
        dataplane.life().set([sid], true).expect("a write");
        assert_eq!(function(&dataplane), (0, true));
        let mut larger = with_function();
        larger["sids"].as_array_mut().expect("SIDs").extend(
            (0..100).map(|number| json!({"sid": format!("fc00:1:{:x}::/48", 0x100 + number), "behaviour": "End"})),
        );
        let down = turned("h1", false);
        dataplane.apply(&node(&larger), &down, segue_dataplane::MissingInterface::Refuse).expect("an apply");
        assert_eq!((function(&dataplane), up(&dataplane, "h1")), ((0, true), false));
        assert!(dataplane.follow_links(&interfaces()).expect("a write"));
        assert_eq!((function(&dataplane), up(&dataplane, "h1")), ((1500, true), true));
    });
}
