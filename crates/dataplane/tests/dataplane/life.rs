//! The flag of failed functions: in the right entries, whatever else is applied. Needs root.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use ipnet::Ipv6Net;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_abi as abi;
use segue_abi::zerocopy::FromBytes;
use segue_dataplane::{Dataplane, Life, TestRun};
use serde_json::{Value, json};

fn sid(number: u32) -> Ipv6Net {
    format!("fc00:1:{number:x}::/48").parse().expect("a prefix")
}

/// A node with these SIDs, and so many steering rules that the rest is another configuration.
fn with(sids: impl Iterator<Item = u32>, rules: u32) -> Value {
    let mut state = state();
    state["sids"] = sids.map(|number| json!({"sid": sid(number), "behaviour": "End"})).collect();
    state["steering"] = (0..rules)
        .map(|rule| json!({"name": format!("r{rule}"), "destination": format!("10.{}.{}.0/24", rule / 256, rule % 256), "policy": "to-2"}))
        .collect();
    state
}

fn open(pins: &Path) -> Dataplane {
    Dataplane::open_or_load(pins, options()).expect("a data plane")
}

/// SIDs whose entry in the map has the flag.
fn flagged(dataplane: &Dataplane) -> BTreeSet<Ipv6Net> {
    let entries = dataplane.map("sid_entries").expect("sid_entries");
    let flags = |index: u32| {
        let bytes = entries.lookup(&index.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry");
        u32::from(abi::Sid::read_from_bytes(&bytes).expect("a SID").flags)
    };
    let compiled = &dataplane.applied().expect("a configuration").sids;
    compiled.iter().filter(|sid| flags(sid.index) & abi::SEGUE_SID_DOWN != 0).map(|sid| sid.prefix).collect()
}

fn control(dataplane: &Dataplane) -> abi::Control {
    let bytes = dataplane.map("control").expect("control").lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("a read");
    abi::Control::read_from_bytes(&bytes.expect("an entry")).expect("a control entry")
}

#[test]
#[ignore = "needs root"]
fn the_flag_is_set_in_place_and_survives_every_apply() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with(1..4, 1));
        let life = dataplane.life().clone();
        let before = control(&dataplane);
        assert_eq!(life.set([sid(1), sid(3)], true).expect("a write"), 2);
        assert_eq!(life.set([sid(3)], true).expect("nothing to do"), 0);
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(1), sid(3)]));
        let after = control(&dataplane);
        let narrow_changes = before.narrow_changes + 1;
        assert_eq!(after, abi::Control { narrow_changes, ..before }, "no new generation, and what is cached stays");

        // Other rules, the same SIDs: they keep their indices. Then other SIDs, too.
        apply(&mut dataplane, &with(1..4, 2));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(1), sid(3)]));
        apply(&mut dataplane, &with(2..6, 2));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]), "1 is not there");
        assert_eq!(life.down(), BTreeSet::from([sid(3)]), "and forgotten");
        apply(&mut dataplane, &with(1..6, 2));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]), "1 is a new one");

        // A SID that changes gets another index.
        let mut other = with(1..6, 2);
        other["sids"][2]["flavours"] = json!(["PSP"]);
        apply(&mut dataplane, &other);
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]));

        assert_eq!(life.set([sid(3)], false).expect("a write"), 1);
        assert_eq!(flagged(&dataplane), BTreeSet::new());
    });
}

#[test]
#[ignore = "needs root"]
fn larger_tables_and_the_next_agent_know_the_dead() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with(1..4, 1));
        let life = dataplane.life().clone();
        life.set([sid(2)], true).expect("a write");
        let warnings = apply(&mut dataplane, &with(1..4, 400)).warnings;
        assert!(warnings.iter().any(|warning| warning.contains("larger tables")), "{warnings:?}");
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(2)]));
        // The same handle reaches the new tables.
        life.set([sid(3)], true).expect("a write");
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(2), sid(3)]));

        drop(dataplane);
        let mut dataplane = open(pins);
        assert_eq!(dataplane.life().down(), BTreeSet::from([sid(2), sid(3)]));
        // A handle that outlives it takes over.
        let kept = Life::default();
        dataplane.share_life(&kept);
        kept.set([sid(2)], false).expect("a write");
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]));
        apply(&mut dataplane, &with(1..5, 1));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]));
    });
}

/// Life and apply at the same time: no state of the one is lost in the other, and `control` is never set back.
#[test]
#[ignore = "needs root"]
fn setting_it_while_another_thread_applies_loses_nothing() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with(1..40, 1));
        let life = dataplane.life().clone();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut rounds = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let number = 1 + rounds % 39;
                    life.set([sid(number)], (rounds / 39).is_multiple_of(2)).expect("a write");
                    rounds += 1;
                }
                rounds
            });
            for round in 0..30 {
                let generation = control(&dataplane).generation;
                assert_eq!(
                    apply(&mut dataplane, &with(1..40, 1 + round % 2)).generation,
                    control(&dataplane).generation
                );
                assert!(control(&dataplane).generation >= generation);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(watching.join().expect("no panic") > 100);
        });
        assert_eq!(flagged(&dataplane), life.down());
        let all: BTreeSet<Ipv6Net> = (1..40).map(sid).collect();
        life.set(all.iter().copied(), true).expect("writes");
        assert_eq!(flagged(&dataplane), all);
    });
}

/// The packet to fc00:1:1::, with another segment in its place in the list: it comes to that SID as a backup.
fn as_backup() -> Vec<u8> {
    let mut frame = packet();
    // Segment List[1], behind the outer header, the SRH's eight octets and Segment List[0]: fc00:3:1::.
    frame[14 + 40 + 8 + 16 + 3] = 3;
    frame
}

#[test]
#[ignore = "needs root"]
fn what_came_as_to_a_backup_is_not_rerouted_again() {
    const DROPPED: u32 = 1;
    const REDIRECTED: u32 = 4;
    isolated(|pins| {
        let mut dataplane = open(pins);
        let mut state = state();
        state["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "p2", "role": "service" }]);
        let proxied = |number: u32, memory: &str, backup: &str| {
            let proxy = json!({ "inner": ["IPv6"], "memory": memory, "to_function": "p2", "from_function": "p2",
                "on_failure": "reroute", "backup": backup, "watch": {} });
            json!({ "sid": sid(number), "behaviour": "End.AD", "next_hop_mac": "02:00:00:00:00:07", "proxy": proxy })
        };
        let run = |dataplane: &mut Dataplane, frame: &[u8]| {
            dataplane.test_run(&TestRun::once(frame, ifindex("p1"))).expect("a run")
        };
        for memory in ["interface", "flow"] {
            state["sids"] = json!([proxied(1, memory, "fc00:2:2::")]);
            apply(&mut dataplane, &state);
            dataplane.life().clone().set([sid(1)], true).expect("a write");
            let rerouted = run(&mut dataplane, &packet());
            assert_eq!(rerouted.verdict, REDIRECTED, "{memory}");
            assert_eq!(rerouted.frame[14 + 24..14 + 30], [0xfc, 0, 0, 2, 0, 2], "{memory}: to the backup");
            assert_eq!(run(&mut dataplane, &as_backup()).verdict, DROPPED, "{memory}: no further");
        }
        // Each other's backup, on one node.
        state["sids"] = json!([proxied(1, "flow", "fc00:1:2::"), proxied(2, "flow", "fc00:1:1::")]);
        apply(&mut dataplane, &state);
        dataplane.life().clone().set([sid(1), sid(2)], true).expect("a write");
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(1), sid(2)]));
        assert_eq!(run(&mut dataplane, &packet()).verdict, DROPPED, "both are down");
        let counters = dataplane.counters().expect("counters");
        let port = counters.ports.iter().find(|port| port.ifindex == ifindex("p1")).expect("p1");
        let outcomes: Vec<(&str, u64)> =
            port.outcomes.iter().map(|(name, counter)| (&**name, counter.packets)).collect();
        assert_eq!(outcomes, [("drop_function_down", 3), ("forwarded", 2)], "counted as what they are, once each");
    });
}

#[test]
#[ignore = "needs root"]
fn functions_that_die_at_once_are_one_change() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with(1..51, 1));
        let before = control(&dataplane);
        let changed = dataplane.life().set_all((1..51).map(|number| (sid(number), true))).expect("a write");
        assert_eq!((changed.len(), flagged(&dataplane).len()), (50, 50));
        let narrow_changes = before.narrow_changes + 1;
        assert_eq!(control(&dataplane), abi::Control { narrow_changes, ..before }, "however many they are");
        assert_eq!(dataplane.life().set_all([]).expect("nothing to do"), []);
        assert_eq!(control(&dataplane).narrow_changes, narrow_changes);
    });
}

/// The addresses in the CPUs' copies of SIDs' entries, with their epochs.
fn copies(pins: &Path) -> BTreeSet<(Ipv6Addr, u64)> {
    let sets = std::fs::read_dir(pins).expect("pins").flatten().map(|entry| entry.path());
    let builds = sets.filter(|set| set.is_dir()).flat_map(|set| std::fs::read_dir(set).expect("a set").flatten());
    let maps: Vec<MapHandle> =
        builds.filter_map(|build| MapHandle::from_pinned_path(build.path().join("sids_cached")).ok()).collect();
    assert_eq!(maps.len(), 1, "one build's");
    let of =
        |entry: u32| maps[0].lookup_percpu(&entry.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry");
    let all = (0..maps[0].max_entries()).flat_map(of);
    let copies = all.map(|copy| abi::SidCached::read_from_bytes(&copy).expect("a copy"));
    copies.filter(|copy| copy.epoch != 0).map(|copy| (copy.address.into(), copy.epoch)).collect()
}

/// Three SIDs with functions, each of which a packet is sent to; what becomes of them.
struct Functions<'a> {
    pins: &'a Path,
    dataplane: Dataplane,
}

impl<'a> Functions<'a> {
    fn new(pins: &'a Path) -> Self {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &Self::state(1));
        Self { pins, dataplane }
    }

    fn state(rules: u32) -> Value {
        let mut state = with(0..0, rules);
        state["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "p2", "role": "service" }]);
        let function = |number: u32| {
            let proxy =
                json!({ "inner": ["IPv6"], "memory": "flow", "to_function": "p2", "from_function": "p2", "watch": {} });
            json!({ "sid": sid(number), "behaviour": "End.AD", "next_hop_mac": "02:00:00:00:00:07", "proxy": proxy })
        };
        state["sids"] = (1..4).map(function).collect();
        state
    }

    /// To an address that this SID covers. Whether it is forwarded.
    fn reaches(&mut self, number: u8, last: u8) -> bool {
        let mut frame = packet();
        // In the destination address, and in Segment List[1].
        for at in [14 + 24, 14 + 40 + 8 + 16] {
            frame[at + 5] = number;
            frame[at + 15] = last;
        }
        let output = self.dataplane.test_run(&TestRun::once(&frame, ifindex("p1"))).expect("a run");
        output.verdict == 4
    }

    fn is_remembered(&self, number: u8) -> BTreeSet<(Ipv6Addr, u64)> {
        copies(self.pins).into_iter().filter(|(address, _)| address.octets()[5] == number).collect()
    }
}

#[test]
#[ignore = "needs root"]
fn a_death_costs_what_is_remembered_of_its_sid() {
    isolated(|pins| {
        let mut functions = Functions::new(pins);
        for round in 0..3 {
            for (number, last) in [(1, 0), (1, 9), (2, 0), (3, 0)] {
                assert!(functions.reaches(number, last), "round {round}, SID {number}");
            }
            let others = [2, 3].map(|number| functions.is_remembered(number));
            assert!(!functions.is_remembered(1).is_empty() && others.iter().all(|copies| !copies.is_empty()));
            let before = control(&functions.dataplane);
            let life = functions.dataplane.life().clone();
            life.set([sid(1)], true).expect("a write");
            assert!(functions.is_remembered(1).is_empty(), "all that it covers");
            assert_eq!([2, 3].map(|number| functions.is_remembered(number)), others, "and no other");
            assert_eq!(control(&functions.dataplane).cache_generation, before.cache_generation);
            assert!(!functions.reaches(1, 0) && !functions.reaches(1, 9) && functions.reaches(2, 0), "round {round}");
            life.set([sid(1)], false).expect("a write");
            assert!(functions.reaches(1, 0) && functions.reaches(1, 9), "round {round}");
            match round {
                // The next agent; then larger tables, whose programs remember by themselves.
                0 => {
                    drop(functions);
                    functions = Functions::new(pins);
                }
                _ => drop(apply(&mut functions.dataplane, &Functions::state(400))),
            }
        }
    });
}

/// Two SIDs are looked up anew all the time while a function goes down and comes back.
#[test]
#[ignore = "needs root"]
fn what_is_looked_up_while_a_function_dies_is_not_believed() {
    isolated(|pins| {
        let mut functions = Functions::new(pins);
        let life = functions.dataplane.life().clone();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let toggling = scope.spawn(|| {
                let mut changes = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    life.set([sid(1), sid(2)], changes.is_multiple_of(2)).expect("a write");
                    changes += 1;
                }
                changes
            });
            for round in 0..2000_u32 {
                functions.reaches(1, round as u8);
                functions.reaches(2, (round >> 8) as u8);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(toggling.join().expect("no panic") > 100);
        });
        for down in [true, false, true] {
            life.set([sid(1), sid(2)], down).expect("a write");
            for last in [0, 1, 100, 255] {
                assert_eq!((functions.reaches(1, last), functions.reaches(2, last)), (!down, !down), "{last}");
            }
        }
    });
}
