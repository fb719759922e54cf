//! The result of a measurement: for people, and as JSON for programs (design, section 6).

use std::fmt;

use serde::Serialize;

use crate::stats::Summary;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the scenario; those of `cost` are `cost/<behaviour>`.
    pub scenario: String,
    /// Of `ours` and `peer`.
    pub unit: String,
    /// Segue.
    pub ours: Summary,
    /// What it is compared with; null for `cost`.
    pub peer: Option<Peer>,
    /// Median of `ours` by median of `peer`.
    pub ratio: Option<f64>,
    /// Packets that Segue did not deliver, in all of its timed and paced runs.
    pub packets_lost: u64,
    /// How it was measured, what else was found, targets reached and missed.
    pub notes: Vec<String>,
    /// Octets of the inner packet, for plots.
    #[serde(skip)]
    pub size: usize,
    /// The bare redirect, for plots.
    #[serde(skip)]
    pub limit: Option<Summary>,
}

/// The other side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peer {
    /// Its name on the command line.
    pub name: String,
    /// Its figures.
    #[serde(flatten)]
    pub rate: Summary,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, unit) = match self.unit.as_str() {
            "packets/s" => (1e-6, "Mpps"),
            "bit/s" => (1e-9, "Gbit/s"),
            other => (1.0, other),
        };
        let mut line = |name: &str, summary: &Summary| {
            let Summary { median, min, max } = summary.scaled(factor);
            writeln!(f, "  {name:<12} {median:>9.3} {unit}  ({min:.3} to {max:.3})")
        };
        line("segue", &self.ours)?;
        if let Some(peer) = &self.peer {
            line(&peer.name, &peer.rate)?;
        }
        if let Some(ratio) = self.ratio {
            writeln!(f, "  {:<12} {ratio:>9.2}", "ratio")?;
        }
        writeln!(f, "  {:<12} {:>9}", "lost", self.packets_lost)?;
        for note in &self.notes {
            writeln!(f, "  - {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report() -> Report {
        let ours = Summary { median: 4e6, min: 3e6, max: 5e6 };
        let peer = Summary { median: 1e6, min: 0.5e6, max: 2e6 };
        Report {
            scenario: "end".into(),
            unit: "packets/s".into(),
            ours,
            peer: Some(Peer { name: "kernel".into(), rate: peer }),
            ratio: Some(4.0),
            packets_lost: 0,
            notes: vec!["a note".into()],
            size: 112,
            limit: Some(ours),
        }
    }

    #[test]
    fn json_has_exactly_the_fields_of_the_contract() {
        let value = serde_json::to_value(report()).unwrap();
        assert_eq!(
            value,
            json!({
                "scenario": "end",
                "unit": "packets/s",
                "ours": {"median": 4e6, "min": 3e6, "max": 5e6},
                "peer": {"name": "kernel", "median": 1e6, "min": 0.5e6, "max": 2e6},
                "ratio": 4.0,
                "packets_lost": 0,
                "notes": ["a note"],
            })
        );
    }

    #[test]
    fn cost_has_no_peer_and_no_ratio_but_the_same_fields() {
        let value = serde_json::to_value(Report { peer: None, ratio: None, ..report() }).unwrap();
        assert_eq!((&value["peer"], &value["ratio"]), (&Value::Null, &Value::Null));
        assert_eq!(value.as_object().unwrap().len(), 7);
    }

    #[test]
    fn people_read_millions_of_packets() {
        let text = report().to_string();
        assert!(text.contains("segue            4.000 Mpps  (3.000 to 5.000)"), "{text}");
        assert!(text.contains("kernel           1.000 Mpps  (0.500 to 2.000)"), "{text}");
        assert!(text.contains("- a note"), "{text}");
    }
}
