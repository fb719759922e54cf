//! The two forms of a scrape, and which one is wanted: that of OpenMetrics, in which it is made, and Prometheus's own, older one,
//! which whoever does not ask for OpenMetrics expects.

/// Form of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Text,
}

impl Format {
    /// What the header field Accept asks for (RFC 9110 section 12.5.1); without one, or if it takes both alike, the older form,
    /// which everything reads.
    pub fn accepted<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut open_metrics, mut text) = (0, None);
        for range in fields.into_iter().flat_map(|field| field.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let weight = weight.map_or(1000, thousandths);
            match kind.as_str() {
                "application/openmetrics-text" => open_metrics = weight.max(open_metrics),
                // More specific than the other two.
                "text/plain" => text = Some(weight),
                "text/*" | "*/*" => text = text.or(Some(0)),
                _ => {}
            }
        }
        if open_metrics > text.unwrap_or(0) { Self::OpenMetrics } else { Self::Text }
    }

    /// The header field Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A scrape of OpenMetrics in this form.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => text(&open_metrics),
        }
    }
}

/// A weight of 0 to 1 with at most three digits, in thousandths; 0 if it is none.
fn thousandths(weight: &str) -> u32 {
    weight
        .trim()
        .parse::<f32>()
        .ok()
        .filter(|weight| (0.0..=1.0).contains(weight))
        .map_or(0, |weight| (weight * 1000.0) as u32)
}

/// Families of counters are called as their samples are, and units and the end are not told.
fn text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 4096);
    // HELP comes before TYPE.
    let mut help = None;
    for line in open_metrics.split_inclusive('\n') {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            continue;
        };
        let mut words = comment.trim_end().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), Some(words)) => help = Some((name, words)),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                    text.push_str(&format!("# HELP {name}{suffix} {words}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            // UNIT, EOF.
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        for (accept, wanted) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html", Format::Text),
            ("text/plain;version=0.0.4", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.7", Format::Text),
            ("application/openmetrics-text;q=0, */*", Format::Text),
            ("Application/OpenMetrics-Text;q=0.1,*/*;q=0.1", Format::OpenMetrics),
            ("application/openmetrics-text;q=nonsense", Format::Text),
        ] {
            assert_eq!(Format::accepted([accept]), wanted, "{accept}");
        }
        assert_eq!(Format::accepted([]), Format::Text);
        assert_eq!(Format::accepted(["text/html", "application/openmetrics-text"]), Format::OpenMetrics);
    }

    #[test]
    fn families_of_counters_are_called_as_their_samples() {
        let open_metrics = "# HELP a_packets Packets of a.\n# TYPE a_packets counter\na_packets_total{n=\"# TYPE x\"} 1\n\
            # HELP a_bytes Octets of a.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 2\n\
            # HELP b Whether b.\n# TYPE b gauge\nb 1\n# EOF\n";
        let wanted = "# HELP a_packets_total Packets of a.\n# TYPE a_packets_total counter\na_packets_total{n=\"# TYPE x\"} 1\n\
            # HELP a_bytes_total Octets of a.\n# TYPE a_bytes_total counter\na_bytes_total 2\n\
            # HELP b Whether b.\n# TYPE b gauge\nb 1\n";
        assert_eq!(Format::Text.of(open_metrics.to_owned()), wanted);
        assert_eq!(Format::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}
