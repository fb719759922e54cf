//! The SVG of `connector`: success ratio and CPU use over the offered rate.

use std::path::Path;

use plotters::prelude::*;

use crate::connector::{Found, Point};
use crate::error::Result;
use crate::plot::{self, COLOURS, Drawn};

/// Draws all runs of all proxies: S above, U with the fitted lines below.
///
/// # Errors
/// If there is nothing to draw or the file cannot be written.
pub fn connector(path: &Path, all: &[Found]) -> Result<()> {
    plot::save(path, (!all.is_empty()).then(|| svg(all)))
}

fn svg(all: &[Found]) -> std::result::Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (800, 820)).into_drawing_area();
        let draw = || -> Drawn {
            area.fill(&WHITE)?;
            let (above, below) = area.split_vertically(400);
            half(&above, all, "success ratio S", |point| 100.0 * point.success, false)?;
            half(&below, all, "CPU use U", |point| 100.0 * point.cpu, true)?;
            area.present()
        };
        draw().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn half(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    all: &[Found],
    title: &str,
    pick: fn(&Point) -> f64,
    lines: bool,
) -> Drawn {
    let runs = || all.iter().flat_map(|found| &found.points);
    let highest = runs().map(|point| point.rate / 1e3).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..highest * 1.05, 0.0..105.0)?;
    chart
        .configure_mesh()
        .x_desc("offered rate R, thousand packets/s")
        .y_desc("%")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (found, colour) in all.iter().zip(COLOURS.iter().cycle()) {
        chart
            .draw_series(
                found.points.iter().map(|point| Circle::new((point.rate / 1e3, pick(point)), 2, colour.filled())),
            )?
            .label(found.scenario.trim_start_matches("connector/"))
            .legend(move |(x, y)| Circle::new((x + 9, y), 3, colour.filled()));
        if let (true, Some(line)) = (lines, &found.line) {
            let at = |rate: f64| (rate / 1e3, 100.0 * (line.slope.value * rate + line.intercept.value));
            let end = ((1.0 - line.intercept.value) / line.slope.value).min(highest * 1e3);
            chart.draw_series(LineSeries::new([at(0.0), at(end)], *colour))?;
        }
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regression::fit;

    #[test]
    fn both_halves_are_drawn_with_every_name() {
        let points: Vec<Point> =
            (1..6).map(|at| Point { rate: 1e5 * f64::from(at), success: 1.0, cpu: 0.1 * f64::from(at) }).collect();
        let line = fit(&points.iter().map(|point| (point.rate, point.cpu)).collect::<Vec<_>>());
        let found = |name: &str| Found {
            scenario: format!("connector/{name}"),
            points: points.clone(),
            line,
            slope_ratio: None,
            capacity: 5e5,
            notes: Vec::new(),
        };
        let svg = svg(&[found("sr-aware"), found("proxy-ad")]).unwrap();
        for text in ["success ratio S", "CPU use U", "sr-aware", "proxy-ad"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
