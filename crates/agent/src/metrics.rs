//! The counters for Prometheus.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode as encode_text},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use crate::liveness::FunctionReport;
use crate::report::{Counter, MemoryReport, Report};

/// Media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A report as a collector: the counters live in the data plane, not here.
#[derive(Debug)]
struct Collected(Report, Vec<FunctionReport>);

/// Labels and value of one row.
type Row<'a, const N: usize> = ([(&'static str, &'a str); N], u64);

/// The report as OpenMetrics text. What it is made of is not copied: there may be 400,000 rows.
pub fn encode(report: Report, functions: Vec<FunctionReport>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(report, functions)));
    let mut text = String::new();
    encode_text(&mut text, &registry)?;
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
    counters(encoder, (bytes, "Their layer 3 octets", Some(&Unit::Bytes)), octets)
}

impl Collected {
    fn traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let report = &self.0;
        let node = ("node", report.node.as_str());
        let names = ["segue_packets", "segue_traffic", "What became of packets that came in"];
        traffic(encoder, names, || {
            report.outcomes.iter().map(|row| {
                ([node, ("port", row.port.as_str()), ("outcome", &row.outcome), ("kind", &row.kind)], row.counter)
            })
        })?;
        let names = ["segue_sid_packets", "segue_sid_traffic", "Packets for a local SID"];
        traffic(encoder, names, || {
            report
                .sids
                .iter()
                .map(|row| ([node, ("sid", row.sid.as_str()), ("behaviour", &row.behaviour)], row.counter))
        })?;
        let names = ["segue_policy_packets", "segue_policy_traffic", "Packets put into an SR policy"];
        traffic(encoder, names, || {
            report.policies.iter().map(|row| ([node, ("policy", row.name.as_str())], row.counter))
        })?;
        let names = ["segue_steering_packets", "segue_steering_traffic", "Packets that a steering rule matched"];
        traffic(encoder, names, || {
            report.steering.iter().map(|row| ([node, ("rule", row.name.as_str())], row.counter))
        })?;
        let help = "Packets that came back from the function behind a proxy SID";
        let names = ["segue_proxy_returned_packets", "segue_proxy_returned_traffic", help];
        traffic(encoder, names, || {
            report.sids.iter().filter_map(|row| Some(([node, ("sid", row.sid.as_str())], row.returned?)))
        })
    }

    fn functions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let node = ("node", self.0.node.as_str());
        let help = "Deaths and recoveries of the function behind a SID";
        let rows = self.1.iter().map(|row| ([node, ("sid", row.sid.as_str())], row.changes));
        counters(encoder, ("segue_function_changes", help, None), rows)?;
        let probes = self.1.iter().filter_map(|row| Some((row.sid.as_str(), row.probe.as_ref()?)));
        let rows = probes.flat_map(|(sid, probe)| {
            [("answered", probe.answered), ("failed", probe.failed)]
                .map(|(result, count)| ([node, ("sid", sid), ("result", result)], count))
        });
        counters(encoder, ("segue_function_probes", "Probes of the function behind a SID", None), rows)
    }

    /// What proxies remember, once for all SIDs that share it.
    fn memories(&self) -> Vec<&MemoryReport> {
        let mut memories: Vec<_> = self.0.sids.iter().filter_map(|sid| sid.memory.as_ref()).collect();
        memories.sort_by(|a, b| a.shared.cmp(&b.shared));
        memories.dedup_by(|a, b| a.shared == b.shared);
        memories
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

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        let report = &self.0;
        let node = ("node", report.node.as_str());
        self.traffic(encoder)?;
        let memories = self.memories();
        let help = "What became of the steering headers that proxies remember";
        let rows = memories.iter().flat_map(|memory| events(memory));
        let rows = rows.map(|(shared, event, count)| ([node, ("shared", shared), ("event", event)], count));
        counters(encoder, ("segue_proxy_memory", help, None), rows)?;
        self.functions(encoder)?;
        let rows = report.icmp.rows().into_iter().map(|(kind, count)| ([node, ("type", kind)], count));
        counters(encoder, ("segue_icmp", "ICMP messages that the data plane made or held back", None), rows)?;
        let rows = report.ports.iter().map(|port| ([node, ("port", port.name.as_str())], u64::from(port.up)));
        gauges(encoder, ("segue_port_up", "Whether a port's interface is up"), rows)?;
        let rows = self.1.iter().map(|function| {
            let labels = [node, ("sid", function.sid.as_str()), ("on_failure", &function.on_failure)];
            (labels, u64::from(function.state == "alive"))
        });
        gauges(encoder, ("segue_function_alive", "Whether the function behind a SID is alive"), rows)?;
        let rows = memories.iter().map(|memory| ([node, ("shared", memory.shared.as_str())], memory.present));
        gauges(encoder, ("segue_proxy_flows", "Flows that proxies remember now"), rows)
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
    use crate::report::SidReport;

    #[test]
    fn counters_carry_node_and_name_and_labels_are_escaped() {
        let sid = SidReport {
            sid: "fc00:1::/64".into(),
            behaviour: "End".into(),
            flavours: Vec::new(),
            to: String::new(),
            kernel_route: "seg6local End".into(),
            counter: Counter { packets: 3, bytes: 300 },
            returned: None,
            memory: None,
            comment: None,
        };
        let report = Report { node: "a\"b".into(), sids: vec![sid], ..Report::default() };
        let text = encode(report, Vec::new()).unwrap();
        let labels = r#"{node="a\"b",sid="fc00:1::/64",behaviour="End"}"#;
        assert!(text.contains(&format!("segue_sid_packets_total{labels} 3\n")), "{text}");
        assert!(text.contains(&format!("segue_sid_traffic_bytes_total{labels} 300\n")), "{text}");
        assert!(text.contains("# TYPE segue_sid_packets counter\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn what_several_sids_share_is_told_once() {
        let memory = |shared: &str, present| MemoryReport {
            shared: shared.into(),
            present,
            evicted: 7,
            ..MemoryReport::default()
        };
        let sid = |sid: &str, memory| {
            serde_json::json!({ "sid": sid, "behaviour": "End.AD", "kernel_route": "blackhole",
            "counter": {"packets": 0, "bytes": 0}, "memory": memory })
        };
        let sids =
            [sid("a", memory("fw-e flow", 3)), sid("b", memory("nat packet", 0)), sid("c", memory("fw-e flow", 3))];
        let sids = sids.into_iter().map(|sid| serde_json::from_value(sid).unwrap()).collect();
        let text = encode(Report { node: "n".into(), sids, ..Report::default() }, Vec::new()).unwrap();
        assert_eq!(text.matches(r#"segue_proxy_flows{node="n",shared="fw-e flow"} 3"#).count(), 1, "{text}");
        let evicted = r#"segue_proxy_memory_total{node="n",shared="fw-e flow",event="evicted"} 7"#;
        assert_eq!(text.matches(evicted).count(), 1, "{text}");
        assert!(
            text.contains(r#"segue_proxy_memory_total{node="n",shared="nat packet",event="conflict"} 0"#),
            "{text}"
        );
    }
}
