//! Scenarios of services in a short form: every place does its work, every octet arrives, and every figure has what it is drawn from. No rate is
//! asserted.

use std::time::Duration;

use segue_bench::figure::Figure;
use segue_bench::services::chain::Chain;
use segue_bench::services::{Extent, bulk, compress, forward, refragment, tun};

/// One round of one place; figures with this in their names.
fn short(figures: &str) -> Extent<'_> {
    let time = Duration::from_millis(50);
    Extent { figures, places: 1, rounds: 1, run: time, warm_up: time, volume: 256 << 10 }
}

/// Each series of what was measured has a value above zero at each place, but for those that may be zero.
fn assert_measured(figure: &Figure) {
    assert!(!figure.places.is_empty() && !figure.notes.is_empty(), "{figure}");
    for series in figure.series.iter().filter(|series| !series.thesis) {
        assert_eq!(series.values.len(), figure.places.len(), "{figure}");
        for value in &series.values {
            let value = value.unwrap_or_else(|| panic!("{} has no value: {figure}", series.name));
            assert!(value.median > 0.0 || figure.unit.starts_with('%'), "{}: {figure}", series.name);
        }
    }
}

#[test]
fn services_by_themselves_save_what_is_asked_for_and_lose_nothing() {
    let mut figures = Vec::new();
    let mut tell = |figure: Figure| {
        assert_measured(&figure);
        figures.push(figure);
        Ok(())
    };
    for name in ["compress/saved", "compress/ratios", "compress/rate-encrypted"] {
        compress::run(&short(name), &mut tell).unwrap();
    }
    refragment::run(&Extent { places: 2, ..short("") }, &mut tell).unwrap();
    let [saved, ratios, rate, fragments, whole] = &figures[..] else { panic!("{figures:?}") };
    for (algorithm, least) in [("lz4", 55.0), ("deflate", 62.0)] {
        let found = saved.at(algorithm, "XML").unwrap();
        assert!(found >= least, "{algorithm}: {found}");
    }
    for algorithm in ["lz4", "lzo", "deflate", "zstd", "zstd with a dictionary"] {
        assert!(saved.at(algorithm, "encrypted").unwrap() >= 0.0, "{saved}");
        assert!(rate.at(&format!("{algorithm}, back"), "2").unwrap() > 0.0, "{rate}");
    }
    assert_eq!(saved.at("thesis: lz4", "XML"), Some(55.57));
    // None grows, and all of what is encrypted stays as it is.
    assert_eq!((ratios.at("encrypted", "0.9"), ratios.at("encrypted", "1.0")), (Some(0.0), Some(100.0)));
    assert!(fragments.at("IPv6", "shuffled, 5 % lost").unwrap() > 0.0);
    for place in ["shuffled, 1 % lost", "shuffled, 5 % lost"] {
        assert_eq!((whole.at("IPv4", place), whole.at("IPv6", place)), (Some(100.0), Some(100.0)), "{whole}");
    }
}

#[test]
#[ignore = "needs root"]
fn tcp_goes_through_each_service_and_every_octet_arrives() {
    let chain = Chain::open(2, true).unwrap();
    let mut figures = Vec::new();
    let mut tell = |figure: Figure| {
        assert_measured(&figure);
        figures.push(figure);
        Ok(())
    };
    forward::run(&chain, &short("service-tcp/services"), &mut tell).unwrap();
    compress::goodput(&chain, &short("compress/goodput"), &mut tell).unwrap();
    bulk::bulk(&chain, &short("bulk/delay"), &mut tell).unwrap();
    bulk::tcp_bulk(&chain, &short("tcp-bulk/clients"), &mut tell).unwrap();
    tun::run(&chain, &short("tun/programs"), &mut tell).unwrap();
    let names: Vec<_> = figures.iter().map(|figure| figure.name.as_str()).collect();
    let wanted = [
        "service-tcp/services",
        "compress/goodput",
        "bulk/delay-rate",
        "bulk/delay-gone",
        "tcp-bulk/clients-rate",
        "tcp-bulk/clients-gone",
        "tun/programs",
    ];
    assert_eq!(names, wanted);
    // Segments are inside others, of one service by itself and of a pair.
    for (figure, series, place) in [(3, "1 connection", "20"), (5, "2 threads", "8")] {
        let gone = figures[figure].at(series, place).unwrap();
        assert!((30.0..100.0).contains(&gone), "{}", figures[figure]);
    }
    let directory = tempfile::tempdir().unwrap();
    for figure in &figures {
        let file = directory.path().join("figure.svg");
        segue_bench::plot_figure::figure(&file, figure).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().contains(&figure.over));
    }
}
