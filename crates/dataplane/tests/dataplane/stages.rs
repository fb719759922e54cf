//! What not every node needs is loaded with the first configuration that needs it.

use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, query};
use segue_abi as abi;
use segue_dataplane::{Dataplane, Hook, MissingInterface};
use serde_json::{Value, json};

use crate::support::{apply, ifindex, interfaces, isolated, node, options, state};

/// Directories of pins below a data plane's, with this word in their names.
fn pinned(pins: &Path, word: &str) -> Vec<std::path::PathBuf> {
    let below = |directory: &Path| -> Vec<_> {
        std::fs::read_dir(directory).expect("pins").map(|entry| entry.expect("a pin").path()).collect()
    };
    let sets = below(pins).into_iter().filter(|path| path.to_string_lossy().contains("/maps-"));
    let all = sets.flat_map(|set| below(&set));
    all.filter(|path| path.is_dir() && path.to_string_lossy().contains(word)).collect()
}

fn is_loaded(pins: &Path, stage: abi::Stage) -> bool {
    let [programs] = &pinned(pins, "/programs-")[..] else { panic!("one build of the programs") };
    let stages = MapHandle::from_pinned_path(programs.join("stages")).expect("the map of stages");
    stages.lookup(&stage.to_ne_bytes(), MapFlags::ANY).expect("a read").is_some()
}

#[test]
#[ignore = "needs root"]
fn stages_of_functions_come_with_the_first_function() {
    const OF_FUNCTIONS: [abi::Stage; 2] = [abi::SEGUE_STAGE_SERVICE, abi::SEGUE_STAGE_PROXY];
    const OF_OTHERS: [abi::Stage; 3] = [abi::SEGUE_STAGE_ACCESS, abi::SEGUE_STAGE_INSTANCE, abi::SEGUE_STAGE_INSERTED];
    isolated(|pins| {
        let mut dataplane = Dataplane::open_or_load(pins, options()).expect("it loads");
        assert!(!is_loaded(pins, abi::SEGUE_STAGE_AGAIN), "no port is on XDP yet");
        apply(&mut dataplane, &state());
        assert!(is_loaded(pins, abi::SEGUE_STAGE_AGAIN), "every node with a port on XDP needs it");
        for stage in OF_FUNCTIONS {
            assert!(!is_loaded(pins, stage), "{stage}: there is no function");
        }
        assert!(pinned(pins, "/functions-").iter().all(|path| path.to_string_lossy().ends_with("-usual")));

        let mut with = state();
        with["ports"][1]["role"] = "service".into();
        let proxy = json!({ "inner": ["IPv4"], "memory": "flow", "to_function": "p2", "from_function": "p2" });
        let sid =
            json!({ "sid": "fc00:1:a::", "behaviour": "End.AD", "next_hop_mac": "02:00:00:00:00:07", "proxy": proxy });
        with["sids"].as_array_mut().expect("a list").push(sid);
        apply(&mut dataplane, &with);
        for stage in OF_FUNCTIONS {
            assert!(is_loaded(pins, stage), "{stage}: there is a function");
        }
        for stage in OF_OTHERS {
            assert!(!is_loaded(pins, stage), "{stage}: this function needs it not");
        }
        // What is loaded stays: another generation may still be under way in it.
        apply(&mut dataplane, &state());
        assert!(OF_FUNCTIONS.iter().all(|stage| is_loaded(pins, *stage)));
    });
}

/// By interface: how many instructions the verifier looked at in the program that it has on its ingress.
fn verified(pins: &Path) -> Vec<(u32, u32)> {
    let size = |id: u32| query::ProgInfoIter::default().find(|program| program.id == id).expect("it").verified_insns;
    let on = |port: u32| {
        // By its pin: the kernel lists the links of all network namespaces.
        let link = Link::open(pins.join(format!("filter-{port}/ingress"))).expect("a link");
        (port, size(link.info().expect("what it is").prog_id))
    };
    ["p1", "p2"].map(|port| on(ifindex(port))).into()
}

#[test]
#[ignore = "needs root"]
fn ports_on_socket_buffers_know_functions_once_there_is_one() {
    isolated(|pins| {
        let mut dataplane = Dataplane::open_or_load(pins, options()).expect("it loads");
        let apply = |dataplane: &mut Dataplane, state: &Value| {
            let mut interfaces = interfaces();
            for interface in interfaces.0.values_mut() {
                interface.hook = Hook::Skb;
            }
            dataplane.apply(&node(state), &interfaces, MissingInterface::Refuse).expect("an apply that works")
        };
        let plain = state();
        apply(&mut dataplane, &plain);
        let without = verified(pins);
        let [directory] = &pinned(pins, "/functions-")[..] else { panic!("one part is loaded") };
        assert!(directory.to_string_lossy().ends_with("-port-node"), "{directory:?}");

        // An access port first: programs that know it, and no function.
        let mut from_outside = plain.clone();
        from_outside["ports"][1]["role"] = "access".into();
        apply(&mut dataplane, &from_outside);
        let with_access = verified(pins);
        for (less, more) in without.iter().zip(&with_access) {
            assert!(less.1 < more.1, "{less:?}: so many instructions were looked at, now {more:?}");
        }
        assert!(matches!(&pinned(pins, "/functions-")[..], [one] if one.to_string_lossy().ends_with("-port-access")));

        let mut with = plain.clone();
        let proxy = json!({ "inner": ["IPv4"], "memory": "flow", "to_function": "p2", "from_function": "p2" });
        let sid =
            json!({ "sid": "fc00:1:a::", "behaviour": "End.AD", "next_hop_mac": "02:00:00:00:00:07", "proxy": proxy });
        with["ports"][1]["role"] = "service".into();
        with["sids"].as_array_mut().expect("a list").push(sid);
        apply(&mut dataplane, &with);
        let after = verified(pins);
        for (port, (less, more)) in without.iter().zip(&after).map(|(less, more)| (less.0, (less.1, more.1))) {
            assert!(2 * less < more, "interface {port}: {less} instructions were looked at, now {more}");
        }
        // What knew access ports knows them still: with functions it is the whole.
        let narrow = |path: &std::path::PathBuf| {
            ["-port-node", "-port-access", "-port-core"].iter().any(|end| path.to_string_lossy().ends_with(end))
        };
        let loaded = || pinned(pins, "/functions-").iter().any(narrow);
        assert!(!loaded(), "no port has it any more");

        // What is loaded stays, and is adopted.
        apply(&mut dataplane, &plain);
        assert_eq!(verified(pins), after);
        drop(dataplane);
        let mut dataplane = Dataplane::open_or_load(pins, options()).expect("it is adopted");
        apply(&mut dataplane, &plain);
        assert_eq!(verified(pins), after);
        assert!(!loaded());
    });
}
