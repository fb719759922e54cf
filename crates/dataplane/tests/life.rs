//! The flag of dead functions: in the right entries, whatever else is applied. Needs root.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use ipnet::Ipv6Net;
use libbpf_rs::{MapCore, MapFlags};
use segue_abi as abi;
use segue_abi::zerocopy::FromBytes;
use segue_dataplane::{Dataplane, Life};
use serde_json::{Value, json};
use support::*;

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
    compiled.iter().filter(|sid| flags(sid.index) & abi::SEGUE_SID_DEAD != 0).map(|sid| sid.prefix).collect()
}

fn control(dataplane: &Dataplane) -> abi::Control {
    let bytes = dataplane.map("control").expect("control").lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("a read");
    abi::Control::read_from_bytes(&bytes.expect("an entry")).expect("a control entry")
}

#[test]
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
        assert_eq!(after.generation, before.generation, "no new generation");
        assert_eq!(after.cache_generation, before.cache_generation + 1, "caches know");

        // Other rules, the same SIDs: they keep their indices. Then other SIDs, too.
        apply(&mut dataplane, &with(1..4, 2));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(1), sid(3)]));
        apply(&mut dataplane, &with(2..6, 2));
        assert_eq!(flagged(&dataplane), BTreeSet::from([sid(3)]), "1 is not there");
        assert_eq!(life.dead(), BTreeSet::from([sid(3)]), "and forgotten");
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
        assert_eq!(dataplane.life().dead(), BTreeSet::from([sid(2), sid(3)]));
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
fn setting_it_while_another_thread_applies_loses_nothing() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with(1..40, 1));
        let life = dataplane.life().clone();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut rounds = 0_u32;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
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
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(watching.join().expect("no panic") > 100);
        });
        assert_eq!(flagged(&dataplane), life.dead());
        let all: BTreeSet<Ipv6Net> = (1..40).map(sid).collect();
        life.set(all.iter().copied(), true).expect("writes");
        assert_eq!(flagged(&dataplane), all);
    });
}
