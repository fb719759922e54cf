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

/// One row of a family.
type Row = (Vec<(&'static str, String)>, u64);

/// The report as OpenMetrics text.
pub fn encode(report: &Report, functions: &[FunctionReport]) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(report.clone(), functions.to_vec())));
    let mut text = String::new();
    encode_text(&mut text, &registry)?;
    Ok(text)
}

impl Collected {
    /// Rows with the node's name as their first label.
    fn rows<T>(
        &self,
        items: &[T],
        labels: impl Fn(&T) -> Vec<(&'static str, String)>,
        value: impl Fn(&T) -> u64,
    ) -> Vec<Row> {
        let node = || ("node", self.0.node.clone());
        items.iter().map(|item| ([vec![node()], labels(item)].concat(), value(item))).collect()
    }

    fn families(&self) -> Vec<(&'static str, &'static str, Option<Unit>, Vec<Row>)> {
        let report = &self.0;
        let mut families = Vec::new();
        let mut pair = |packets, bytes, about: [&'static str; 2], rows: &dyn Fn(fn(Counter) -> u64) -> Vec<Row>| {
            families.push((packets, about[0], None, rows(|counter| counter.packets)));
            families.push((bytes, about[1], Some(Unit::Bytes), rows(|counter| counter.bytes)));
        };
        let outcomes = |get: fn(Counter) -> u64| {
            self.rows(
                &report.outcomes,
                |row| vec![("port", row.port.clone()), ("outcome", row.outcome.clone()), ("kind", row.kind.clone())],
                move |row| get(row.counter),
            )
        };
        pair(
            "segue_packets",
            "segue_traffic",
            ["What became of packets that came in", "Their layer 3 octets"],
            &outcomes,
        );
        let sids = |get: fn(Counter) -> u64| {
            self.rows(
                &report.sids,
                |row| vec![("sid", row.sid.clone()), ("behaviour", row.behaviour.clone())],
                move |row| get(row.counter),
            )
        };
        pair("segue_sid_packets", "segue_sid_traffic", ["Packets for a local SID", "Their layer 3 octets"], &sids);
        let policies = |get: fn(Counter) -> u64| {
            self.rows(&report.policies, |row| vec![("policy", row.name.clone())], move |row| get(row.counter))
        };
        pair(
            "segue_policy_packets",
            "segue_policy_traffic",
            ["Packets put into an SR policy", "Their layer 3 octets"],
            &policies,
        );
        let steering = |get: fn(Counter) -> u64| {
            self.rows(&report.steering, |row| vec![("rule", row.name.clone())], move |row| get(row.counter))
        };
        pair(
            "segue_steering_packets",
            "segue_steering_traffic",
            ["Packets that a steering rule matched", "Their layer 3 octets"],
            &steering,
        );
        let returned: Vec<_> = report.sids.iter().filter_map(|sid| Some((sid.sid.clone(), sid.returned?))).collect();
        let returned =
            |get: fn(Counter) -> u64| self.rows(&returned, |row| vec![("sid", row.0.clone())], move |row| get(row.1));
        pair(
            "segue_proxy_returned_packets",
            "segue_proxy_returned_traffic",
            ["Packets that came back from the function behind a proxy SID", "Their layer 3 octets"],
            &returned,
        );
        let memories: Vec<_> = self.memories().into_iter().flat_map(events).collect();
        let memories =
            self.rows(&memories, |row| vec![("shared", row.0.clone()), ("event", row.1.to_owned())], |row| row.2);
        families.push((
            "segue_proxy_memory",
            "What became of the steering headers that proxies remember",
            None,
            memories,
        ));
        let icmp = self.rows(&report.icmp.rows(), |row| vec![("type", row.0.to_owned())], |row| row.1);
        let sid = |function: &FunctionReport| vec![("sid", function.sid.clone())];
        let changes = self.rows(&self.1, sid, |function| function.changes);
        families.push(("segue_function_changes", "Deaths and recoveries of the function behind a SID", None, changes));
        let probes = self.1.iter().filter_map(|function| Some((function.sid.clone(), function.probe.as_ref()?)));
        let probes: Vec<_> = probes
            .flat_map(|(sid, probe)| [(sid.clone(), "answered", probe.answered), (sid, "failed", probe.failed)])
            .collect();
        let labels = |row: &(String, &str, u64)| vec![("sid", row.0.clone()), ("result", row.1.to_owned())];
        let probes = self.rows(&probes, labels, |row| row.2);
        families.push(("segue_function_probes", "Probes of the function behind a SID", None, probes));
        families.push(("segue_icmp", "ICMP messages that the data plane made or held back", None, icmp));
        families
    }
}

impl Collected {
    /// What proxies remember, once for all SIDs that share it.
    fn memories(&self) -> Vec<&MemoryReport> {
        let mut memories: Vec<_> = self.0.sids.iter().filter_map(|sid| sid.memory.as_ref()).collect();
        memories.sort_by(|a, b| a.shared.cmp(&b.shared));
        memories.dedup_by(|a, b| a.shared == b.shared);
        memories
    }
}

/// What happened to what is remembered: the name that SIDs share, the event, how often.
fn events(memory: &MemoryReport) -> Vec<(String, &'static str, u64)> {
    let all = [
        ("renewed", memory.renewed),
        ("created", memory.created),
        ("removed", memory.removed),
        ("evicted", memory.evicted),
        ("unknown", memory.unknown),
        ("conflict", memory.conflicts),
        ("overwritten", memory.overwritten),
    ];
    all.into_iter().map(|(event, count)| (memory.shared.clone(), event, count)).collect()
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for (name, help, unit, rows) in self.families() {
            let kind = ConstCounter::new(0u64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for (labels, value) in rows {
                ConstCounter::new(value).encode(family.encode_family(&Labels(labels))?)?;
            }
        }
        let up = self.rows(&self.0.ports, |port| vec![("port", port.name.clone())], |port| u64::from(port.up));
        let kind = ConstGauge::new(0i64).metric_type();
        let mut family = encoder.encode_descriptor("segue_port_up", "Whether a port's interface is up", None, kind)?;
        for (labels, value) in up {
            ConstGauge::new(i64::from(value == 1)).encode(family.encode_family(&Labels(labels))?)?;
        }
        let alive = self.rows(
            &self.1,
            |function| vec![("sid", function.sid.clone()), ("on_failure", function.on_failure.clone())],
            |function| u64::from(function.state == "alive"),
        );
        let help = "Whether the function behind a SID is alive";
        let mut family = encoder.encode_descriptor("segue_function_alive", help, None, kind)?;
        for (labels, value) in alive {
            ConstGauge::new(i64::from(value == 1)).encode(family.encode_family(&Labels(labels))?)?;
        }
        let flows =
            self.rows(&self.memories(), |memory| vec![("shared", memory.shared.clone())], |memory| memory.present);
        let help = "Flows that proxies remember now";
        let mut family = encoder.encode_descriptor("segue_proxy_flows", help, None, kind)?;
        for (labels, value) in flows {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(family.encode_family(&Labels(labels))?)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        for (name, value) in &self.0 {
            (*name, value.as_str()).encode(encoder.encode_label())?;
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
        let text = encode(&report, &[]).unwrap();
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
        let text = encode(&Report { node: "n".into(), sids, ..Report::default() }, &[]).unwrap();
        assert_eq!(text.matches(r#"segue_proxy_flows{node="n",shared="fw-e flow"} 3"#).count(), 1, "{text}");
        let evicted = r#"segue_proxy_memory_total{node="n",shared="fw-e flow",event="evicted"} 7"#;
        assert_eq!(text.matches(evicted).count(), 1, "{text}");
        assert!(
            text.contains(r#"segue_proxy_memory_total{node="n",shared="nat packet",event="conflict"} 0"#),
            "{text}"
        );
    }
}
