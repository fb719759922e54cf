//! The counters for Prometheus.

mod format;
mod names;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode as encode_text},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

pub use format::Format;
pub use names::Names;

use segue_api::function::FunctionReport;
use segue_api::report::{Counter, MemoryReport, Report};

/// What the last line of a scrape is (OpenMetrics).
const END: &str = "# EOF\n";

/// What there is few of, as a collector: the counters live in the data plane, not here.
#[derive(Debug)]
pub struct Few {
    /// Ports, outcomes and ICMP messages.
    pub report: Report,
    /// What proxies remember, once for all SIDs that share it.
    pub memories: Vec<MemoryReport>,
    /// Functions that are watched.
    pub functions: Vec<FunctionReport>,
    /// Labels that are learned, if any are to be.
    pub learned: Option<LearnedLabels>,
}

/// How many labels are learned.
#[derive(Debug, Clone, Copy)]
pub struct LearnedLabels {
    /// The node does what they say.
    pub done: usize,
    /// It does not.
    pub refused: usize,
    /// Their source can be followed.
    pub followed: bool,
}

/// Labels and value of one row.
type Row<'a, const N: usize> = ([(&'static str, &'a str); N], u64);

/// A scrape as OpenMetrics text. `many` adds what there is much of.
pub fn encode(few: Few, many: impl FnOnce(&mut String)) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(few));
    let mut text = String::new();
    encode_text(&mut text, &registry)?;
    let end = text.strip_suffix(END).ok_or(fmt::Error)?.len();
    text.truncate(end);
    many(&mut text);
    text.push_str(END);
    Ok(text)
}

fn counters<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    rows: impl Iterator<Item = Row<'a, N>>,
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in rows {
        ConstCounter::new(value).encode(family.encode_family(&Labels(&labels))?)?;
    }
    Ok(())
}

fn gauges<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl Iterator<Item = Row<'a, N>>,
) -> fmt::Result {
    let kind = ConstGauge::new(0i64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        ConstGauge::new(value).encode(family.encode_family(&Labels(&labels))?)?;
    }
    Ok(())
}

/// Two families: packets, and their layer 3 octets.
fn traffic<'a, const N: usize, I: Iterator<Item = ([(&'static str, &'a str); N], Counter)>>(
    encoder: &mut DescriptorEncoder<'_>,
    [packets, bytes, help]: [&str; 3],
    rows: impl Fn() -> I,
) -> fmt::Result {
    counters(encoder, (packets, help, None), rows().map(|(labels, counter)| (labels, counter.packets)))?;
    let octets = rows().map(|(labels, counter)| (labels, counter.bytes));
    counters(encoder, (bytes, &format!("{help}: layer 3 octets"), Some(&Unit::Bytes)), octets)
}

impl Few {
    fn traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let report = &self.report;
        let node = ("node", report.node.as_str());
        let names = ["segue_packets", "segue_traffic", "What became of packets that came in"];
        traffic(encoder, names, || {
            report.outcomes.iter().map(|row| {
                ([node, ("port", row.port.as_str()), ("outcome", &row.outcome), ("kind", &row.kind)], row.counter)
            })
        })
    }

    fn functions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let node = ("node", self.report.node.as_str());
        let help = "Failures and recoveries of the function behind a SID";
        let rows = self.functions.iter().map(|row| ([node, ("sid", row.sid.as_str())], row.changes));
        counters(encoder, ("segue_function_changes", help, None), rows)?;
        let probes = self.functions.iter().filter_map(|row| Some((row.sid.as_str(), row.probe.as_ref()?)));
        let rows = probes.flat_map(|(sid, probe)| {
            [("answered", probe.answered), ("failed", probe.failed)]
                .map(|(result, count)| ([node, ("sid", sid), ("result", result)], count))
        });
        counters(encoder, ("segue_function_probes", "Probes of the function behind a SID", None), rows)
    }
}

/// What happened to what is remembered: the name that SIDs share, the event, how often.
fn events(memory: &MemoryReport) -> impl Iterator<Item = (&str, &'static str, u64)> {
    let all = [
        ("renewed", memory.renewed),
        ("created", memory.created),
        ("removed", memory.removed),
        ("evicted", memory.evicted),
        ("unknown", memory.unknown),
        ("conflict", memory.conflicts),
        ("overwritten", memory.overwritten),
    ];
    all.into_iter().map(|(event, count)| (memory.shared.as_str(), event, count))
}

impl Collector for Few {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        let Self { report, memories, functions, learned } = self;
        let node = ("node", report.node.as_str());
        self.traffic(encoder)?;
        let help = "What became of the steering headers that proxies remember";
        let rows = memories.iter().flat_map(events);
        let rows = rows.map(|(shared, event, count)| ([node, ("shared", shared), ("event", event)], count));
        counters(encoder, ("segue_proxy_memory", help, None), rows)?;
        self.functions(encoder)?;
        let rows = report.icmp.rows().into_iter().map(|(kind, count)| ([node, ("type", kind)], count));
        counters(encoder, ("segue_icmp", "ICMP messages that the data plane made or held back", None), rows)?;
        let rows = report.ports.iter().map(|port| ([node, ("port", port.name.as_str())], u64::from(port.up)));
        gauges(encoder, ("segue_port_up", "Whether a port's interface is up"), rows)?;
        let rows = functions.iter().map(|function| {
            let labels = [node, ("sid", function.sid.as_str()), ("on_failure", &function.on_failure)];
            (labels, u64::from(function.state == "up"))
        });
        gauges(encoder, ("segue_function_up", "Whether the function behind a SID is up"), rows)?;
        let rows = memories.iter().map(|memory| ([node, ("shared", memory.shared.as_str())], memory.present));
        gauges(encoder, ("segue_proxy_flows", "Flows that proxies remember now"), rows)?;
        let Some(learned) = learned else { return Ok(()) };
        let rows = [("done", learned.done), ("refused", learned.refused)];
        let rows = rows.into_iter().map(|(result, count)| ([node, ("result", result)], count as u64));
        gauges(encoder, ("segue_learned_labels", "Labels that are learned from a routing protocol"), rows)?;
        let followed = std::iter::once(([node], u64::from(learned.followed)));
        gauges(encoder, ("segue_learned_labels_source_up", "Whether the source of labels can be followed"), followed)
    }
}

#[derive(Debug)]
struct Labels<'a>(&'a [(&'static str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        for label in self.0 {
            label.encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_api::report::OutcomeReport;

    /// Traffic as the library writes it.
    #[derive(Debug)]
    struct ByLibrary<const N: usize>([&'static str; 3], [([&'static str; 2], Counter); N]);

    impl<const N: usize> Collector for ByLibrary<N> {
        fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
            traffic(&mut encoder, self.0, || {
                self.1.iter().map(|([node, sid], counter)| ([("node", *node), ("sid", *sid)], *counter))
            })
        }
    }

    pub fn by_library<const N: usize>(names: [&'static str; 3], rows: [([&'static str; 2], Counter); N]) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ByLibrary(names, rows)));
        let mut text = String::new();
        encode_text(&mut text, &registry).unwrap();
        text
    }

    fn few(report: Report, memories: Vec<MemoryReport>) -> Few {
        Few { report, memories, functions: Vec::new(), learned: None }
    }

    #[test]
    fn counters_carry_node_and_name_and_labels_are_escaped() {
        let outcome = OutcomeReport {
            port: "west".into(),
            outcome: "end".into(),
            kind: "forwarded".into(),
            text: String::new(),
            counter: Counter { packets: 3, bytes: 300 },
        };
        let report = Report { node: "a\"b".into(), outcomes: vec![outcome], ..Report::default() };
        let text = encode(few(report, Vec::new()), |text| text.push_str("many\n")).unwrap();
        let labels = r#"{node="a\"b",port="west",outcome="end",kind="forwarded"}"#;
        assert!(text.contains(&format!("segue_packets_total{labels} 3\n")), "{text}");
        assert!(text.contains(&format!("segue_traffic_bytes_total{labels} 300\n")), "{text}");
        assert!(text.contains("# TYPE segue_packets counter\n"), "{text}");
        assert!(text.ends_with("\nmany\n# EOF\n"), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1, "{text}");
    }

    #[test]
    fn what_is_remembered_is_told_by_what_shares_it() {
        let memory = |shared: &str, present| MemoryReport {
            shared: shared.into(),
            present,
            evicted: 7,
            ..MemoryReport::default()
        };
        let report = Report { node: "n".into(), ..Report::default() };
        let memories = vec![memory("fw-e flow", 3), memory("nat packet", 0)];
        let text = encode(few(report, memories), |_| {}).unwrap();
        assert_eq!(text.matches(r#"segue_proxy_flows{node="n",shared="fw-e flow"} 3"#).count(), 1, "{text}");
        let evicted = r#"segue_proxy_memory_total{node="n",shared="fw-e flow",event="evicted"} 7"#;
        assert_eq!(text.matches(evicted).count(), 1, "{text}");
        assert!(
            text.contains(r#"segue_proxy_memory_total{node="n",shared="nat packet",event="conflict"} 0"#),
            "{text}"
        );
    }
}
