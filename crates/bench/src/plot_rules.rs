//! SVGs of rates over numbers of rules, one curve for each engine: the form of the SERA paper's figures 6 to 9.

use std::path::Path;

use plotters::prelude::*;

use crate::error::Result;
use crate::plot::{self, COLOURS, Drawn};
use crate::stats::Summary;

/// Rates of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// Numbers of rules, with the packets per second.
    pub points: Vec<(usize, Summary)>,
}

/// Draws the curves with their spreads.
///
/// # Errors
/// If there is nothing to draw or the file cannot be written.
pub fn rules(path: &Path, title: &str, what: &str, curves: &[Curve]) -> Result<()> {
    let some = curves.iter().any(|curve| !curve.points.is_empty());
    plot::save(path, some.then(|| svg(title, what, curves)))
}

fn svg(title: &str, what: &str, curves: &[Curve]) -> std::result::Result<String, String> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let highest = points().map(|(_, rate)| rate.max * 1e-6).fold(0.0, f64::max);
    let most = points().map(|(count, _)| *count as f64).fold(2.0, f64::max);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, plot::SIZE).into_drawing_area();
        let draw = || -> Drawn {
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(title, ("sans-serif", 18))
                .margin(14)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d((0.9..most * 1.1).log_scale().base(2.0), 0.0..highest * 1.1)?;
            chart
                .configure_mesh()
                .x_labels(16)
                .x_desc(what)
                .y_desc("million packets/s")
                .x_label_formatter(&|count| format!("{count:.0}"))
                .light_line_style(TRANSPARENT)
                .draw()?;
            for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
                let at = |(count, rate): &(usize, Summary)| (*count as f64, rate.median * 1e-6);
                chart
                    .draw_series(LineSeries::new(curve.points.iter().map(at), colour.stroke_width(2)))?
                    .label(curve.name.as_str())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
                chart.draw_series(curve.points.iter().map(|point| Circle::new(at(point), 3, colour.filled())))?;
                chart.draw_series(curve.points.iter().map(|(count, rate)| {
                    let x = *count as f64;
                    PathElement::new([(x, rate.min * 1e-6), (x, rate.max * 1e-6)], *colour)
                }))?;
            }
            chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
            area.present()
        };
        draw().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_named_and_nothing_is_no_drawing() {
        let rate = Summary { median: 2e6, min: 1e6, max: 3e6 };
        let curve = |name: &str| Curve { name: name.into(), points: vec![(1, rate), (512, rate), (10_000, rate)] };
        let svg = svg("firewall", "rules", &[curve("segue"), curve("nft")]).unwrap();
        for text in ["segue", "nft", "512", "million packets/s"] {
            assert!(svg.contains(text), "{text}");
        }
        let nowhere = std::env::temp_dir().join(format!("sg-bench-rules-{}", std::process::id()));
        assert!(rules(&nowhere, "", "", &[]).is_err());
        assert!(!nowhere.exists());
    }
}
