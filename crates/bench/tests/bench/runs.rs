//! The harness on the kernel: right octets, no loss below saturation, nothing left behind. Never how fast: machines differ.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_bench::contest::{self, Effort};
use segue_bench::error::Error;
use segue_bench::firewall::{self, Filter, Form};
use segue_bench::firewall_rules::Last;
use segue_bench::hosts::{self, Kind};
use segue_bench::lane::Lane;
use segue_bench::scenario::{Engine, Napi, Redirect, Scenario};
use segue_bench::{conntrack_flood, cost, cpu, lookup_case};
use segue_model::node::PortMode;

use crate::{first, is_long};

const BARE: Engine = Engine::Bare(Redirect::Ifindex);
const KERNEL: Engine = Engine::Kernel(Napi::Gro);
/// Some hundred times the pages that the generator has, so that every page comes back often.
const RECYCLED: u32 = 60_000;

fn delivers(scenario: Scenario, engine: Engine) {
    let mut lane = Lane::open(scenario, 112, engine, 16).unwrap();
    let run = lane.verify(RECYCLED).unwrap();
    assert_eq!((run.sent, run.received), (u64::from(RECYCLED), u64::from(RECYCLED)), "{scenario:?} {engine:?}");
    let paced = lane.pace_verified(50_000.0, Duration::from_millis(100)).unwrap();
    assert!(paced.sent > 1000, "{paced:?}");
    assert_eq!(paced.lost(), 0, "{scenario:?} {engine:?} at 50,000 packets/s{}", lane.drops());
}

#[test]
#[ignore = "needs root"]
fn every_scenario_delivers_every_octet_of_recycled_frames() {
    let _pinned = cpu::pin(None, false).unwrap();
    for scenario in Scenario::value_variants() {
        delivers(*scenario, Engine::Segue);
        delivers(*scenario, Engine::SegueSkb);
        if !scenario.is_by_labels() {
            delivers(*scenario, KERNEL);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn every_engine_delivers_every_octet_of_recycled_frames() {
    let _pinned = cpu::pin(None, false).unwrap();
    for engine in [Engine::Kernel(Napi::Xdp), BARE, Engine::Bare(Redirect::Map)] {
        delivers(Scenario::End, engine);
    }
}

#[test]
#[ignore = "needs root"]
fn smallest_odd_and_largest_packets_are_verified_to_the_last_octet() {
    let _pinned = cpu::pin(None, false).unwrap();
    for (octets, scenario) in [
        (64, Scenario::End),
        (64, Scenario::HEncapsV4),
        (71, Scenario::EndDx4),
        (1399, Scenario::End),
        (1400, Scenario::HEncaps),
    ] {
        let mut lane = Lane::open(scenario, octets, Engine::Segue, 64).unwrap();
        assert_eq!(lane.verify(5_000).unwrap().lost(), 0);
    }
}

#[test]
#[ignore = "needs root"]
fn one_wrong_octet_anywhere_in_a_frame_is_found_and_named() {
    let _pinned = cpu::pin(None, false).unwrap();
    // Who forwards does not matter: the data plane takes seconds to load.
    for offset in [0, 21, 100, 197, 199, 205] {
        let mut arrival = Scenario::End.arrival(112, BARE).unwrap();
        assert_eq!(arrival.frame.len(), 206);
        arrival.frame[offset] ^= 1;
        let mut lane = Lane::open_expecting(Scenario::End, 112, BARE, 1, &arrival).unwrap();
        let Err(Error::NotDone { reason, .. }) = lane.verify(1_000) else { panic!("octet {offset} is not compared") };
        assert!(reason.starts_with("1000 of 1000 frames differ"), "octet {offset}: {reason}");
    }
}

#[test]
#[ignore = "needs root"]
fn frames_of_another_length_are_no_success() {
    let _pinned = cpu::pin(None, false).unwrap();
    let arrival = Scenario::End.arrival(128, BARE).unwrap();
    let lane = Lane::open_expecting(Scenario::End, 112, BARE, 1, &arrival).unwrap();
    let error = lane.saturate(1_000).unwrap_err().to_string();
    assert!(error.contains("of 1000 frames that were sent 0 of the expected length arrived"), "{error}");
}

#[test]
#[ignore = "needs root"]
fn an_engine_that_does_something_else_has_no_rate() {
    let _pinned = cpu::pin(None, false).unwrap();
    // A bare redirect does not lower the hop limit.
    let arrival = Scenario::End.arrival(112, Engine::Segue).unwrap();
    let mut lane = Lane::open_expecting(Scenario::End, 112, BARE, 64, &arrival).unwrap();
    let error = lane.verify(1_000).unwrap_err().to_string();
    assert!(error.contains("1000 of 1000 frames differ"), "{error}");
}

#[test]
#[ignore = "needs root"]
fn a_comparison_reports_both_sides_and_leaves_nothing_behind() {
    let pinned = cpu::pin(None, false).unwrap();
    let effort = Effort {
        rounds: 3,
        run: Duration::from_millis(20),
        paced: Duration::from_millis(50),
        flows: 16,
        first: first(),
    };
    let report = contest::run(Scenario::End, 112, [Engine::Segue, KERNEL], &effort, &pinned).unwrap();
    for summary in [report.ours, report.peer.as_ref().unwrap().rate, report.limit.unwrap()] {
        assert!(0.0 < summary.min && summary.min <= summary.median && summary.median <= summary.max, "{summary:?}");
    }
    assert_eq!(report.peer.as_ref().unwrap().name, "kernel");
    assert_eq!(report.ratio, Some(report.ours.median / report.peer.unwrap().rate.median));
    assert!(report.notes.iter().any(|note| note.starts_with("target ")), "{:?}", report.notes);
    nothing_left_behind();
}

/// Offloads as hosts have them; in XDP mode, where the lab takes them away, as XDP needs them.
#[test]
#[ignore = "needs root"]
fn hosts_get_every_octet_through_three_nodes_by_each_engine() {
    let run = Duration::from_millis(100);
    let xdp = hosts::Engine::Segue(PortMode::Xdp);
    let open = |name, engine| hosts::Row::open(name, engine, None).unwrap();
    let mut rows = [open("ours", xdp), open("kernel", hosts::Engine::Kernel)];
    for (kind, peer) in [(Kind::Tcp, hosts::Engine::Kernel), (Kind::UdpGso, hosts::Engine::Plain)] {
        if peer == hosts::Engine::Plain {
            rows[1] = open("plain", peer);
        }
        let report =
            hosts::compare(&hosts::Course { kind, ours: xdp, peer, through: None, rounds: 2, run }, &rows).unwrap();
        let theirs = report.peer.as_ref().unwrap();
        assert!(report.ours.min > 0.0 && theirs.rate.min > 0.0, "{report}");
        assert_eq!((report.unit.as_str(), theirs.name.as_str()), ("bit/s", peer.name()));
        // What the scenario is about: nothing comes, and nobody counts it.
        assert!(
            report.notes.iter().any(|note| note.contains("as it is by itself: 0.000 Gbit/s, 0 packets")),
            "{report}"
        );
    }
    drop(rows);
    nothing_left_behind();
}

#[test]
#[ignore = "needs root"]
fn hosts_get_every_octet_through_a_function() {
    let (ours, peer) = (hosts::Engine::Segue(PortMode::Skb), hosts::Engine::Kernel);
    for through in [hosts::Through::Static, hosts::Through::Exact] {
        let run = Duration::from_millis(100);
        let course = hosts::Course { kind: Kind::Tcp, ours, peer, through: Some(through), rounds: 1, run };
        let report = hosts::run(&course).unwrap();
        assert!(report.ours.min > 0.0 && report.peer.as_ref().unwrap().rate.min > 0.0, "{report}");
        assert!(report.notes.iter().any(|note| note.contains(through.name())), "{report}");
    }
    nothing_left_behind();
}

#[test]
#[ignore = "needs root"]
fn a_panic_leaves_nothing_behind() {
    let panicked = std::panic::catch_unwind(|| {
        let _lane = Lane::open(Scenario::HEncaps, 64, Engine::Segue, 1).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    nothing_left_behind();
}

#[test]
#[ignore = "needs root"]
fn cost_measures_every_behaviour_or_fails() {
    let pinned = cpu::pin(None, true).unwrap();
    let effort = if is_long() {
        cost::Effort { rounds: 3, packets: 1 << 17 }
    } else {
        cost::Effort { rounds: 2, packets: 1 << 15 }
    };
    let reports = cost::run("", effort, &pinned, |_| {}).unwrap();
    assert_eq!(reports.len(), segue_bench::cost_case::all().len() + segue_bench::cost_case::PAIRS.len());
    // That every packet was counted under its outcome is what `cost::run` itself insists on.
    for report in &reports {
        assert_eq!((report.unit.as_str(), report.packets_lost), ("cycles/packet", 0));
        assert!(report.scenario.starts_with("cost/"), "{}", report.scenario);
    }
    nothing_left_behind();
}

#[test]
#[ignore = "needs root"]
fn firewalls_of_every_form_filter_every_packet_whatever_the_number_of_rules() {
    let pinned = cpu::pin(None, false).unwrap();
    let effort = Effort { rounds: 2, run: Duration::from_millis(5), paced: Duration::ZERO, flows: 16, first: first() };
    for (form, last) in [(Form::Plain, Last::Drop), (Form::BasicInsert, Last::Accept)] {
        let course = firewall::Course { form, last, octets: 112, rules: vec![1, 40] };
        let mut told = 0;
        let found = firewall::run(&course, &effort, &pinned, |_| told += 1).unwrap();
        // Plain packets are measured beside ip6tables, nft and one rule, the others beside plain packets too.
        let peers = if form == Form::Plain { 3 } else { 4 };
        assert_eq!((found.reports.len(), told), (2 * peers, 2 * peers), "{form:?}");
        assert_eq!(found.curves.len(), 1 + peers);
        for report in &found.reports {
            assert!(report.ours.min > 0.0 && report.peer.as_ref().unwrap().rate.min > 0.0, "{report}");
            assert_eq!(report.packets_lost, 0, "{report}");
        }
    }
    // The others have the same peers: ours alone.
    for form in Form::ALL.into_iter().filter(|form| *form != Form::Plain) {
        let course = firewall::Course { form, last: Last::Drop, octets: 112, rules: Vec::new() };
        let mut filter = Filter::open(firewall::Engine::Segue(form), &course, 16).unwrap();
        for count in [1, 40] {
            filter.lay(count).unwrap();
            let run = filter.run(5_000).unwrap();
            assert_eq!((run.sent, run.done), (5_000, 5_000), "{form:?}, {count} rules");
        }
    }
    nothing_left_behind();
}

#[test]
#[ignore = "needs root"]
fn rules_that_hold_too_early_are_no_measurement() {
    let _pinned = cpu::pin(None, false).unwrap();
    let course = firewall::Course { form: Form::Plain, last: Last::Drop, octets: 112, rules: Vec::new() };
    let mut filter = Filter::open(firewall::Engine::Ip6tables, &course, 1).unwrap();
    filter.lay(2).unwrap();
    {
        let _inside = filter.namespace().enter().unwrap();
        let early = Command::new("ip6tables-legacy").args(["-I", "FORWARD", "-j", "DROP"]).status().unwrap();
        assert!(early.success());
    }
    let error = filter.run(1000).unwrap_err().to_string();
    assert!(error.contains("no packet met the last of 2 rules"), "{error}");
}

#[test]
#[ignore = "needs root"]
fn lookups_find_rules_and_report_what_compiling_took() {
    let pinned = cpu::pin(None, true).unwrap();
    let reports = lookup_case::run("lookup, 512", 2, &pinned, |_| {}).unwrap();
    assert_eq!(reports.len(), 4);
    for report in &reports {
        assert!(report.ours.min > 0.0 && report.ours.max >= report.ours.median, "{report}");
        assert!(report.notes.iter().any(|note| note.starts_with("compiled in ")), "{report}");
        assert!(report.notes.iter().any(|note| note.starts_with("a walk: 1.")), "{report}");
    }
}

#[test]
#[ignore = "needs root"]
fn an_interrupted_run_fails_and_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_segue-bench"))
            .args(["end", "--seconds", "0.2", "--rounds", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while left_of(run.id()).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the run does not set anything up");
            std::thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(run.id() as i32), signal).unwrap();
        let process = run.id();
        let status = run.wait().unwrap();
        let mut message = String::new();
        run.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert_eq!(status.code(), Some(1), "{message}");
        assert!(message.contains("interrupted"), "{message}");
        assert_eq!(left_of(process), Vec::<String>::new());
    }
}

/// Tests of this file run one after the other, so no name of this process may be there.
fn nothing_left_behind() {
    assert_eq!(left_of(std::process::id()), Vec::<String>::new());
}

/// Namespaces and pins of a run.
fn left_of(process: u32) -> Vec<String> {
    let prefix = format!("sg-bench-{process}-");
    let entries =
        ["/run/netns", "/run/segue/bpf"].into_iter().flat_map(|path| std::fs::read_dir(path).into_iter().flatten());
    let names = entries.flatten().map(|entry| entry.path().display().to_string());
    names.filter(|name| name.contains(&prefix)).collect()
}

/// Far more than the table and its traces of beginnings hold within a round trip would be lost without them.
#[test]
#[ignore = "needs root"]
fn handshakes_and_connections_survive_a_flood() {
    for kind in conntrack_flood::Kind::ALL {
        let found = conntrack_flood::run(kind, Duration::from_secs(if is_long() { 2 } else { 1 }), 300_000).unwrap();
        found.verdict().unwrap_or_else(|error| panic!("{error}; {found}"));
        assert!(found.honest.iter().all(|honest| honest.connections == 1000), "{found}");
    }
}
