//! A figure of several series over the same places: what scenarios of services find, in the form in which the thesis "SFC with SR" shows its own, with
//! its values as series of their own.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::stats::Summary;

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A cluster of bars at each place.
    #[default]
    Bars,
    /// A line for each series.
    Lines,
}

/// Values of one thing at each place of a figure; None where there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// One for each place.
    pub values: Vec<Option<Summary>>,
    /// Whether it was printed by the thesis, or computed from what it printed, and not measured here.
    pub thesis: bool,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Scenario and subject, for file names and lists: `tcp-bulk/buffer-size`.
    pub name: String,
    /// What it shows, and which figure of the thesis has its form.
    pub title: String,
    /// How it is drawn.
    pub form: Form,
    /// What the places are.
    pub over: String,
    /// The places, from left to right.
    pub places: Vec<String>,
    /// Of all values.
    pub unit: String,
    /// What was found at the places.
    pub series: Vec<Series>,
    /// How it was measured, targets reached and missed.
    pub notes: Vec<String>,
}

/// One value without a spread.
#[must_use]
pub fn exactly(value: f64) -> Summary {
    Summary { median: value, min: value, max: value }
}

impl Figure {
    /// Without series and notes.
    #[must_use]
    pub fn new(name: &str, title: &str, over: &str, places: &[&str], unit: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            form: Form::Bars,
            over: over.into(),
            places: places.iter().map(|place| (*place).to_owned()).collect(),
            unit: unit.into(),
            series: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds what was measured.
    pub fn measured(&mut self, name: &str, values: Vec<Option<Summary>>) {
        self.series.push(Series { name: name.into(), values, thesis: false });
    }

    /// Adds what the thesis has, one value for each place.
    pub fn thesis(&mut self, name: &str, values: &[Option<f64>]) {
        let values = values.iter().map(|value| value.map(exactly)).collect();
        self.series.push(Series { name: format!("thesis: {name}"), values, thesis: true });
    }

    /// The median of a series at a place.
    #[must_use]
    pub fn at(&self, series: &str, place: &str) -> Option<f64> {
        let place = self.places.iter().position(|name| name == place)?;
        let series = self.series.iter().find(|found| found.name == series)?;
        series.values.get(place).copied().flatten().map(|value| value.median)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, title, over, places, unit, series, notes, .. } = self;
        writeln!(f, "{name}: {title}; {unit} by {over}")?;
        let width = places.iter().map(String::len).max().unwrap_or(0).max(over.len());
        let mut header = format!("  {over:<width$}");
        for one in series {
            let _ = write!(header, "  {}", one.name);
        }
        writeln!(f, "{header}")?;
        for (index, place) in places.iter().enumerate() {
            let mut line = format!("  {place:<width$}");
            for one in series {
                let width = one.name.len();
                let text = match one.values.get(index).copied().flatten() {
                    Some(Summary { median, min, max }) if min < max => format!("{median:.3} ({min:.3} to {max:.3})"),
                    Some(Summary { median, .. }) => format!("{median:.3}"),
                    None => "-".into(),
                };
                let _ = write!(line, "  {text:>width$}");
            }
            writeln!(f, "{line}")?;
        }
        for note in notes {
            writeln!(f, "  - {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_by_people_and_programs() {
        let mut figure = Figure::new("compress/saved", "octets saved", "algorithm", &["lz4", "lzo"], "%");
        figure.measured("XML", vec![Some(Summary { median: 55.9, min: 55.0, max: 56.0 }), None]);
        figure.thesis("XML", &[Some(55.57), Some(55.53)]);
        assert_eq!((figure.at("XML", "lz4"), figure.at("XML", "lzo")), (Some(55.9), None));
        assert_eq!(figure.at("thesis: XML", "lzo"), Some(55.53));
        let text = figure.to_string();
        assert!(text.contains("55.900 (55.000 to 56.000)") && text.contains("55.530") && text.contains('-'), "{text}");
        let value = serde_json::to_value(&figure).unwrap();
        assert_eq!((&value["series"][1]["thesis"], &value["form"]), (&true.into(), &"bars".into()));
    }
}
