//! SVG plots.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::report::Report;
use crate::stats::Summary;

const OURS: RGBColor = RGBColor(0x00, 0x6d, 0x77);
const PEER: RGBColor = RGBColor(0xc8, 0x55, 0x3d);
const LIMIT: RGBColor = RGBColor(0x8d, 0x8d, 0x8d);
pub(crate) const SIZE: (u32, u32) = (800, 480);

/// Of drawings with many curves.
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0x40, 0x40, 0x40),
    RGBColor(0x8d, 0x8d, 0x8d),
    RGBColor(0xe9, 0xa0, 0x3b),
    RGBColor(0x00, 0x6d, 0x77),
    RGBColor(0xc8, 0x55, 0x3d),
    RGBColor(0x5f, 0x4b, 0x8b),
    RGBColor(0x3a, 0x7d, 0x44),
];

pub(crate) type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws rates over packet sizes: Segue, the peer and the bare redirect, with their spreads.
///
/// # Errors
/// If there is nothing to draw or the file cannot be written.
pub fn rates(path: &Path, title: &str, reports: &[Report]) -> Result<()> {
    save(path, (!reports.is_empty()).then(|| rates_svg(title, reports)))
}

/// Draws one bar for each behaviour of `cost`.
///
/// # Errors
/// As [`rates`].
pub fn costs(path: &Path, title: &str, reports: &[Report]) -> Result<()> {
    save(path, (!reports.is_empty()).then(|| costs_svg(title, reports)))
}

/// Draws two bars for each report: Segue and its peer.
///
/// # Errors
/// As [`rates`].
pub fn pairs(path: &Path, title: &str, reports: &[Report]) -> Result<()> {
    save(path, (!reports.is_empty()).then(|| pairs_svg(title, reports)))
}

pub(crate) fn save(path: &Path, drawn: Option<std::result::Result<String, String>>) -> Result<()> {
    let failed = |message: String| Error::Plot { path: path.display().to_string(), message };
    let svg = drawn.ok_or_else(|| failed("there is nothing to draw".into()))?.map_err(&failed)?;
    std::fs::write(path, svg).map_err(|error| failed(error.to_string()))
}

fn text_of(draw: impl FnOnce(Area<'_>) -> std::result::Result<(), String>) -> std::result::Result<String, String> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    Ok(svg)
}

/// A scale that holds all values, with room at both ends.
fn scale(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let room = ((high - low) * 0.05).max(1.0);
    low - room..high + room
}

fn series(reports: &[Report], pick: impl Fn(&Report) -> Option<Summary>) -> Vec<(f64, Summary)> {
    reports.iter().filter_map(|report| Some((report.size as f64, pick(report)?.scaled(1e-6)))).collect()
}

fn rates_svg(title: &str, reports: &[Report]) -> std::result::Result<String, String> {
    let peer = reports.iter().find_map(|report| report.peer.as_ref()).map_or("peer", |peer| peer.name.as_str());
    let all = [
        ("segue", OURS, series(reports, |report| Some(report.ours))),
        (peer, PEER, series(reports, |report| report.peer.as_ref().map(|peer| peer.rate))),
        ("bare redirect", LIMIT, series(reports, |report| report.limit)),
    ];
    let highest = all.iter().flat_map(|(_, _, points)| points).map(|(_, rate)| rate.max).fold(0.0, f64::max);
    text_of(|area| {
        let draw = || -> Drawn {
            area.fill(&WHITE)?;
            let sizes = scale(reports.iter().map(|report| report.size as f64));
            let mut chart = ChartBuilder::on(&area)
                .caption(title, ("sans-serif", 18))
                .margin(14)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d(sizes, 0.0..highest * 1.1)?;
            chart
                .configure_mesh()
                .x_desc("octets of the inner packet")
                .y_desc("million packets/s")
                .x_label_formatter(&|size| format!("{size:.0}"))
                .light_line_style(TRANSPARENT)
                .draw()?;
            for (name, colour, points) in &all {
                chart
                    .draw_series(LineSeries::new(
                        points.iter().map(|(size, rate)| (*size, rate.median)),
                        colour.stroke_width(2),
                    ))?
                    .label(*name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
                chart.draw_series(
                    points.iter().map(|(size, rate)| Circle::new((*size, rate.median), 3, colour.filled())),
                )?;
                chart.draw_series(
                    points.iter().map(|(size, rate)| PathElement::new([(*size, rate.min), (*size, rate.max)], *colour)),
                )?;
            }
            chart.configure_series_labels().background_style(WHITE).border_style(LIMIT).draw()?;
            area.present()
        };
        draw().map_err(|error| error.to_string())
    })
}

fn costs_svg(title: &str, reports: &[Report]) -> std::result::Result<String, String> {
    let names: Vec<&str> = reports.iter().map(|report| report.scenario.trim_start_matches("cost/")).collect();
    let highest = reports.iter().map(|report| report.ours.max).fold(0.0, f64::max);
    let name = |row: &f64| {
        let index = row.round();
        let name = (index >= 0.0).then(|| names.get(index as usize)).flatten();
        name.copied().unwrap_or_default().to_owned()
    };
    text_of(|area| {
        let draw = || -> Drawn {
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(title, ("sans-serif", 18))
                .margin(14)
                .x_label_area_size(40)
                .y_label_area_size(170)
                .build_cartesian_2d(0.0..highest * 1.05, reports.len() as f64 - 0.5..-0.5)?;
            chart
                .configure_mesh()
                .disable_y_mesh()
                .y_labels(2 * reports.len())
                .y_label_formatter(&name)
                .x_desc(reports.first().map_or("", |report| report.unit.as_str()))
                .light_line_style(TRANSPARENT)
                .draw()?;
            chart.draw_series(reports.iter().enumerate().map(|(row, report)| {
                let row = row as f64;
                Rectangle::new([(0.0, row - 0.35), (report.ours.median, row + 0.35)], OURS.filled())
            }))?;
            area.present()
        };
        draw().map_err(|error| error.to_string())
    })
}

fn pairs_svg(title: &str, reports: &[Report]) -> std::result::Result<String, String> {
    let peer = |report: &Report| report.peer.as_ref().map_or(0.0, |peer| peer.rate.median * 1e-6);
    let highest = reports.iter().map(|report| (report.ours.max * 1e-6).max(peer(report))).fold(0.0, f64::max);
    let name = |row: &f64| {
        let index = row.round();
        let report = (index >= 0.0).then(|| reports.get(index as usize)).flatten();
        report.map(|report| report.scenario.clone()).unwrap_or_default()
    };
    let height = 120 + 40 * reports.len() as u32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        let draw = || -> Drawn {
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(format!("{title}: Segue above, its peer below"), ("sans-serif", 18))
                .margin(14)
                .x_label_area_size(40)
                .y_label_area_size(320)
                .build_cartesian_2d(0.0..highest * 1.05, reports.len() as f64 - 0.5..-0.5)?;
            chart
                .configure_mesh()
                .disable_y_mesh()
                .y_labels(2 * reports.len())
                .y_label_formatter(&name)
                .x_desc("million packets/s")
                .light_line_style(TRANSPARENT)
                .draw()?;
            chart.draw_series(reports.iter().enumerate().flat_map(|(row, report)| {
                let row = row as f64;
                [
                    Rectangle::new([(0.0, row - 0.35), (report.ours.median * 1e-6, row)], OURS.filled()),
                    Rectangle::new([(0.0, row), (peer(report), row + 0.35)], PEER.filled()),
                ]
            }))?;
            area.present()
        };
        draw().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Peer;

    fn report(scenario: &str, size: usize, limit: bool) -> Report {
        let ours = Summary { median: 4e6, min: 3e6, max: 5e6 };
        Report {
            scenario: scenario.into(),
            unit: "packets/s".into(),
            ours,
            peer: limit.then(|| Peer { name: "a<b&c".into(), rate: ours }),
            ratio: limit.then_some(1.0),
            packets_lost: 0,
            notes: Vec::new(),
            size,
            limit: limit.then_some(ours),
        }
    }

    /// Every element that is opened is closed, in order, and text is escaped.
    fn assert_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for part in svg.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag ends");
            assert!(!text.contains('>'), "a bare > in {text}");
            for entity in text.split('&').skip(1) {
                assert!(entity.split_once(';').is_some_and(|(name, _)| name.len() < 8), "a bare & in {text}");
            }
            if tag.starts_with(['?', '!']) || tag.ends_with('/') {
                continue;
            }
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name.trim()), "closed in order"),
                None => open.push(tag.split_whitespace().next().unwrap()),
            }
        }
        assert_eq!(open, Vec::<&str>::new(), "all closed");
        assert!(svg.contains("<svg") && svg.contains("</svg>"));
    }

    #[test]
    fn rates_over_sizes_are_well_formed_and_name_all_three() {
        let reports: Vec<Report> = [64, 512, 1400].iter().map(|size| report("end", *size, true)).collect();
        let svg = rates_svg("end & <others>", &reports).unwrap();
        assert_well_formed(&svg);
        for name in ["segue", "bare redirect", "a&lt;b&amp;c"] {
            assert!(svg.contains(name), "{name} is in the legend");
        }
    }

    #[test]
    fn one_size_is_enough() {
        assert_well_formed(&rates_svg("end", &[report("end", 112, true)]).unwrap());
    }

    #[test]
    fn costs_are_well_formed_and_name_each_behaviour() {
        let svg = costs_svg("cost", &[report("cost/End", 0, false), report("cost/H.Encaps", 0, false)]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains("End") && svg.contains("H.Encaps"));
    }

    #[test]
    fn pairs_are_well_formed_and_name_each_report() {
        let svg = pairs_svg("a & b", &[report("one", 1, true), report("two", 1, false)]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains("one") && svg.contains("two"));
    }

    #[test]
    fn nothing_to_draw_is_an_error_and_writes_no_file() {
        let directory = std::env::temp_dir().join(format!("sg-bench-plot-{}", std::process::id()));
        let error = rates(&directory, "end", &[]).unwrap_err();
        assert!(error.to_string().contains("nothing to draw"), "{error}");
        assert!(!directory.exists());
    }
}
