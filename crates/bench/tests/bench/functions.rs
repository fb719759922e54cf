//! The scenarios through functions: right octets, the right chain's header on two processors, mistakes that are seen.

use std::time::Duration;

use segue_bench::an_nf::{self, Chains, Point};
use segue_bench::contest::Effort;
use segue_bench::error::Error;
use segue_bench::function::Vnf;
use segue_bench::proxy::{self, Course, Proxy, Side};
use segue_bench::topology::Shape;
use segue_bench::{connector, cpu, wrong_header};

use crate::{first, is_long};

/// Some hundred times the pages that the generator has, so that every page comes back often.
const RECYCLED: u32 = 40_000;

fn course(vnf: Vnf, chains: u32) -> Course {
    Course { vnf, octets: 112, chains, flows: 16, same_flow: false, small_tables: false, shape: Shape::default() }
}

#[test]
#[ignore = "needs root"]
fn every_proxy_delivers_every_octet_through_every_function() {
    let _pinned = cpu::pin(None, false).unwrap();
    for proxy in Proxy::ALL.into_iter().chain([Proxy::Aware]) {
        for vnf in proxy.functions() {
            for chains in [1, 100] {
                if chains == 1 || proxy.chains().len() > 1 {
                    let mut lane = proxy::open(Side::Segue(proxy), &course(*vnf, chains), "test").unwrap();
                    assert_eq!(lane.verify(RECYCLED).unwrap().lost(), 0, "{}", lane.what());
                }
            }
        }
    }
    for vnf in [Vnf::Forward, Vnf::Reflect] {
        let mut lane = proxy::open(Side::Kernel, &course(vnf, 1), "test").unwrap();
        assert_eq!(lane.verify(RECYCLED).unwrap().lost(), 0, "{}", lane.what());
    }
}

#[test]
#[ignore = "needs root"]
fn no_packet_comes_back_with_another_chains_header() {
    let packets = if is_long() { 1_000_000 } else { 400_000 };
    for proxy in wrong_header::MEMORIES {
        let every = Duration::from_millis(50);
        let found = wrong_header::run(proxy, wrong_header::CHAINS, packets, None, every).unwrap();
        let changes = found.changes;
        assert!(changes.upgrades > 0 && changes.growths > 0 && changes.applies > 0, "{found}");
        found.verdict().unwrap();
        assert_eq!((found.wrong, found.other), (0, 0), "{found}");
        assert_eq!(found.seen + found.lost, found.sent, "{found}");
        assert!(found.seen > found.sent / 2, "{found}");
        assert!(found.by_processor.iter().all(|sent| *sent == packets / 2), "{found}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_wrong_header_is_seen() {
    // A memory by interface serves one chain: with two processors and a hundred chains it must fail, as soon as both really
    // run at the same time, which a busy machine may put off.
    let run = || wrong_header::run(Proxy::ProxyAd, 100, 100_000, None, Duration::ZERO).unwrap();
    let found = (0..20).map(|_| run()).find(|found| found.wrong > 0).expect("no wrong header in 20 runs");
    assert!(matches!(found.verdict(), Err(Error::NotDone { .. })));
}

#[test]
#[ignore = "needs root"]
fn an_nf_delivers_every_octet_and_measures_latency() {
    let pinned = cpu::pin(None, false).unwrap();
    let effort = Effort {
        rounds: 1,
        run: Duration::from_millis(20),
        paced: Duration::from_millis(50),
        flows: 16,
        first: first(),
    };
    for point in [
        Point { ipv4: true, size: 126, rules: 0, chains: Chains::Base, blocked: false },
        Point { ipv4: true, size: 126, rules: 8, chains: Chains::Regular, blocked: false },
        Point { ipv4: false, size: 1518, rules: 1, chains: Chains::Base, blocked: false },
    ] {
        let reports = an_nf::run(&point, &effort, &pinned).unwrap();
        assert!(reports.iter().all(|report| report.ours.median > 0.0 && report.ratio.is_some()), "{point:?}");
        assert!(reports[0].notes.iter().any(|note| note.starts_with("latency at 10000")), "{:?}", reports[0].notes);
    }
}

#[test]
#[ignore = "needs root"]
fn an_nf_packets_meet_every_rule() {
    let _pinned = cpu::pin(None, false).unwrap();
    for (side, ipv4, chains) in [
        (an_nf::Side::Segue, true, Chains::Base),
        (an_nf::Side::Segue, true, Chains::Regular),
        (an_nf::Side::Segue, false, Chains::Base),
        (an_nf::Side::ThroughNamespace, false, Chains::Base),
    ] {
        let point = Point { ipv4, size: 300, rules: 8, chains, blocked: true };
        let lane = an_nf::open(&point, side, 16).unwrap();
        let Err(Error::NotDone { reason, .. }) = lane.saturate(1_000) else { panic!("{side:?} {point:?} passes") };
        assert!(reason.starts_with("of 1000 frames that were sent 0 "), "{side:?} {point:?}: {reason}");
    }
}

#[test]
#[ignore = "needs root"]
fn the_connector_finds_a_rate_and_a_use_for_every_proxy() {
    let pinned = cpu::pin(None, false).unwrap();
    let run = Duration::from_millis(if is_long() { 50 } else { 20 });
    let effort = Effort { rounds: 1, run, paced: run, flows: 16, first: first() };
    let all = connector::run(112, &effort, &pinned).unwrap();
    assert_eq!(all.len(), 7);
    for found in all {
        assert_eq!(found.points.len(), 13, "{found}");
        // A use is a difference of two times: on a machine with other work it may even come out below zero.
        assert!(found.points.iter().all(|point| point.rate > 0.0 && point.success > 0.0 && point.cpu < 1.0), "{found}");
        assert!(found.capacity > 0.0, "{found}");
    }
}
