//! The SVG of a [`Figure`]: clusters of bars with their spreads, or lines. What the thesis has is hollow or thin.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::Result;
use crate::figure::{Figure, Form, Series};
use crate::plot::{self, COLOURS, Drawn};
use crate::stats::Summary;

/// Draws a figure.
///
/// # Errors
/// If there is nothing to draw or the file cannot be written.
pub fn figure(path: &Path, figure: &Figure) -> Result<()> {
    let some = figure.series.iter().any(|series| series.values.iter().any(Option::is_some));
    plot::save(path, some.then(|| svg(figure)))
}

/// Room for a legend beside the bars.
const SIZE: (u32, u32) = (1000, 480);

fn svg(figure: &Figure) -> std::result::Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area, figure).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, figure: &Figure) -> Drawn {
    area.fill(&WHITE)?;
    let values = || figure.series.iter().flat_map(|series| series.values.iter().flatten());
    let highest = values().map(|value| value.max).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let lowest = values().map(|value| value.min).fold(0.0, f64::min);
    let count = figure.places.len();
    let place = |at: &f64| {
        let index = at.round();
        let is_one = index >= 0.0 && (at - index).abs() < 1e-6;
        is_one.then(|| figure.places.get(index as usize)).flatten().cloned().unwrap_or_default()
    };
    // The legend is beside the chart: bars may be anywhere in it.
    let (chart, legend) = area.split_horizontally(740);
    let mut chart = ChartBuilder::on(&chart)
        .caption(&figure.title, ("sans-serif", 15))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..count as f64 - 0.5, lowest * 1.1..highest * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * count + 1)
        .x_label_formatter(&place)
        .x_desc(figure.over.as_str())
        .y_desc(figure.unit.as_str())
        .light_line_style(TRANSPARENT)
        .draw()?;
    // A bar is as wide as leaves a fifth of the place free.
    let width = 0.8 / figure.series.len().max(1) as f64;
    for (number, series) in figure.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let present = series.values.iter().enumerate().filter_map(|(at, value)| Some((at as f64, (*value)?)));
        if figure.form == Form::Lines {
            let points: Vec<_> = present.map(|(at, value)| (at, value.median)).collect();
            let stroke = if series.thesis { 1 } else { 2 };
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(stroke)))?;
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, style(series, colour))))?;
            continue;
        }
        for (at, value) in present {
            let left = at - 0.4 + number as f64 * width;
            let Summary { median, min, max } = value;
            let bar = Rectangle::new([(left, 0.0), (left + 0.9 * width, median)], style(series, colour));
            chart.draw_series([bar])?;
            if min < max {
                let middle = left + 0.45 * width;
                chart.draw_series([PathElement::new([(middle, min), (middle, max)], BLACK)])?;
            }
        }
    }
    draw_legend(&legend, figure)?;
    area.present()
}

fn style(series: &Series, colour: RGBColor) -> ShapeStyle {
    if series.thesis { colour.stroke_width(1) } else { colour.filled() }
}

fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, figure: &Figure) -> Drawn {
    for (number, series) in figure.series.iter().enumerate() {
        let (colour, top) = (COLOURS[number % COLOURS.len()], 40 + 22 * number as i32);
        area.draw(&Rectangle::new([(4, top), (18, top + 12)], style(series, colour)))?;
        area.draw(&Text::new(series.name.as_str(), (26, top), ("sans-serif", 13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_every_place_and_series_and_nothing_is_no_drawing() {
        let mut drawn = Figure::new("bulk/path", "as figure 50", "path MTU", &["1500", "9000"], "Mbit/s");
        drawn.measured("goodput", vec![Some(Summary { median: 2.0, min: 1.0, max: 3.0 }), None]);
        drawn.thesis("its own", &[Some(1.5), Some(1.6)]);
        for form in [Form::Bars, Form::Lines] {
            let svg = svg(&Figure { form, ..drawn.clone() }).unwrap();
            for text in ["1500", "9000", "goodput", "thesis: its own", "path MTU", "Mbit/s", "as figure 50"] {
                assert!(svg.contains(text), "{text}");
            }
        }
        let nowhere = std::env::temp_dir().join(format!("sg-bench-figure-{}", std::process::id()));
        assert!(figure(&nowhere, &Figure::new("n", "t", "o", &["p"], "u")).is_err());
        assert!(!nowhere.exists());
    }
}
