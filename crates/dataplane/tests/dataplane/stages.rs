//! What not every node needs is loaded with the first configuration that needs it.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_abi as abi;
use segue_dataplane::Dataplane;
use serde_json::json;

use crate::support::{apply, isolated, options, state};

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
    const OF_FUNCTIONS: [abi::Stage; 3] = [abi::SEGUE_STAGE_SERVICE, abi::SEGUE_STAGE_PROXY, abi::SEGUE_STAGE_INSERTED];
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
        // What is loaded stays: another generation may still be under way in it.
        apply(&mut dataplane, &state());
        assert!(OF_FUNCTIONS.iter().all(|stage| is_loaded(pins, *stage)));
    });
}
