//! `get` and `drops`.

use anyhow::Result;
use segue_api::function::{FunctionReport, LinkReport, VirtualFunctionReport, VirtualFunctionsReport};
use segue_api::report::{
    ChainPart, ChainReport, DropReport, MemoryReport, OutcomeReport, PathMtuReport, PolicyReport, PortReport,
    SidReport, SteeringReport,
};
use segue_model::node::{NodeState, Owner};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    args::{Global, Output, What},
    output::{self, Column},
    target::{self, Target},
};

/// Something that `get` shows.
trait Listed: DeserializeOwned + Serialize {
    const PATH: &'static str;
    const COLUMNS: &'static [Column];
    /// What is said instead of an empty table.
    const NONE: &'static str;
    /// One object may need several rows.
    fn rows(&self) -> Vec<Vec<String>>;

    /// What is wrong with it, in lines below the table.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Shows a list, of one node or of all nodes of a lab.
pub fn get(global: &Global, what: What) -> Result<()> {
    match what {
        What::Sids => list::<SidReport>(global),
        What::Policies => list::<PolicyReport>(global),
        What::Chains => list::<ChainReport>(global),
        What::Functions => list::<FunctionReport>(global),
        What::Ports => list::<PortReport>(global),
        What::Steering => list::<SteeringReport>(global),
        What::PathMtus => list::<PathMtuReport>(global),
        What::Drops => list::<DropReport>(global),
        What::Outcomes => list::<OutcomeReport>(global),
        What::State => state(global),
        What::Revision => revision(global),
    }
}

/// An element with its node's name in front, when several nodes are shown.
fn with_node(target: &Target, value: Value) -> Value {
    match (&target.node, value) {
        (Some(node), Value::Object(object)) => {
            let mut named = serde_json::Map::from_iter([("node".to_owned(), Value::from(node.clone()))]);
            named.extend(object);
            Value::Object(named)
        }
        (_, value) => value,
    }
}

fn list<T: Listed>(global: &Global) -> Result<()> {
    let mut found: Vec<(Target, Vec<T>)> = Vec::new();
    for target in target::all(global)? {
        let items = target.client().get(T::PATH)?;
        found.push((target, items));
    }
    if global.output != Output::Table {
        let mut all = Vec::new();
        for (target, items) in &found {
            for item in items {
                all.push(with_node(target, serde_json::to_value(item)?));
            }
        }
        return output::structured(&all, global.output);
    }
    let several = found.len() > 1;
    let columns: Vec<_> =
        several.then_some(Column::Text("NODE")).into_iter().chain(T::COLUMNS.iter().copied()).collect();
    let mut rows = Vec::new();
    for (target, items) in &found {
        for row in items.iter().flat_map(Listed::rows) {
            let node = several.then(|| target.node.clone().unwrap_or_default());
            rows.push(node.into_iter().chain(row).collect());
        }
    }
    if rows.is_empty() {
        return output::print(&format!("{}\n", T::NONE));
    }
    output::print(&output::table(&columns, rows))?;
    for (target, items) in &found {
        let node = target.node.as_ref().filter(|_| several).map(|node| format!("{node}: ")).unwrap_or_default();
        for problem in items.iter().flat_map(Listed::problems) {
            output::print(&format!("! {node}{problem}\n"))?;
        }
    }
    Ok(())
}

/// Shows what was applied: one node's state as it can be applied again, or a list of those of all nodes of a lab.
fn state(global: &Global) -> Result<()> {
    // What was written as YAML is read best as YAML.
    let output = if global.output == Output::Table { Output::Yaml } else { global.output };
    let mut states: Vec<NodeState> = Vec::new();
    for target in target::all(global)? {
        states.push(target.client().get("/v1/state")?);
    }
    match states.as_slice() {
        [state] => output::structured(state, output),
        several => output::structured(several, output),
    }
}

/// Says which states were applied: one node's revision alone, or those of all nodes of a lab.
fn revision(global: &Global) -> Result<()> {
    let mut revisions = Vec::new();
    for target in target::all(global)? {
        let (_, revision) = target.client().state()?;
        revisions.push((target, revision.to_string()));
    }
    if global.output != Output::Table {
        let all: Vec<_> =
            revisions.iter().map(|(target, text)| with_node(target, serde_json::json!({"revision": text}))).collect();
        return output::structured(&all, global.output);
    }
    match revisions.as_slice() {
        [(_, one)] => output::print(&format!("{one}\n")),
        several => {
            let rows = several.iter().map(|(target, text)| vec![target.to_string(), text.clone()]);
            output::print(&output::table(&[Column::Text("NODE"), Column::Text("REVISION")], rows))
        }
    }
}

impl Listed for SidReport {
    const PATH: &'static str = "/v1/sids";
    const COLUMNS: &'static [Column] = &[
        Column::Text("SID"),
        Column::Text("BEHAVIOUR"),
        Column::Text("TO"),
        Column::Number("PACKETS"),
        Column::Number("BYTES"),
        Column::Number("RETURNED"),
        Column::Text("REMEMBERS"),
        Column::Text("KERNEL ROUTE"),
        Column::Text("COMMENT"),
    ];
    const NONE: &'static str = "no SIDs";

    fn rows(&self) -> Vec<Vec<String>> {
        let words: Vec<_> = std::iter::once(&self.behaviour).chain(&self.flavours).map(String::as_str).collect();
        let behaviour = words.join(" ");
        vec![vec![
            self.sid.clone(),
            behaviour,
            self.to.clone(),
            self.counter.packets.to_string(),
            self.counter.bytes.to_string(),
            self.returned.map(|counter| counter.packets.to_string()).unwrap_or_default(),
            self.memory.as_ref().map(remembers).unwrap_or_default(),
            self.kernel_route.clone(),
            owned(self.owner.as_ref(), self.comment.as_deref()),
        ]]
    }
}

/// Whom it was made for, and the comment.
fn owned(owner: Option<&Owner>, comment: Option<&str>) -> String {
    owner.map(Owner::to_string).into_iter().chain(comment.map(str::to_owned)).collect::<Vec<_>>().join(", ")
}

/// What a proxy remembers, in a few words; what is 0 and should be is left out.
fn remembers(memory: &MemoryReport) -> String {
    let mut parts = Vec::new();
    if memory.shared.ends_with(" flow") {
        parts.push(format!("{} flows", memory.present));
    }
    let rare = [
        ("evicted", memory.evicted),
        ("unknown", memory.unknown),
        ("conflicts", memory.conflicts),
        ("overwritten", memory.overwritten),
    ];
    parts.push(format!("{} renewed", memory.renewed));
    parts.extend(rare.iter().filter(|(_, count)| *count != 0).map(|(what, count)| format!("{count} {what}")));
    parts.join(", ")
}

impl Listed for PolicyReport {
    const PATH: &'static str = "/v1/policies";
    const COLUMNS: &'static [Column] = &[
        Column::Text("POLICY"),
        Column::Text("MODE"),
        Column::Text("COLOR"),
        Column::Text("BINDING SID"),
        Column::Number("WEIGHT"),
        Column::Text("SEGMENTS"),
        Column::Number("PACKETS"),
        Column::Number("BYTES"),
    ];
    const NONE: &'static str = "no policies";

    fn rows(&self) -> Vec<Vec<String>> {
        let head = |first: bool| {
            let text = |value: Option<String>| if first { value.unwrap_or_default() } else { String::new() };
            vec![
                text(Some(self.name.clone())),
                text(Some(self.mode.clone())),
                text(self.color.map(|color| color.to_string())),
                text(self.binding_sid.clone()),
            ]
        };
        if self.segment_lists.is_empty() {
            let counter = self.counter;
            let tail =
                vec![String::new(), "none: drops".to_owned(), counter.packets.to_string(), counter.bytes.to_string()];
            return vec![[head(true), tail].concat()];
        }
        let lists = self.segment_lists.iter().enumerate();
        lists
            .map(|(position, list)| {
                let tail = vec![
                    list.weight.to_string(),
                    list.segments.join(", "),
                    list.counter.packets.to_string(),
                    list.counter.bytes.to_string(),
                ];
                [head(position == 0), tail].concat()
            })
            .collect()
    }
}

impl Listed for ChainReport {
    const PATH: &'static str = "/v1/chains";
    const COLUMNS: &'static [Column] = &[
        Column::Text("CHAIN"),
        Column::Text("WHAT"),
        Column::Text("NAME"),
        Column::Text("DETAIL"),
        Column::Number("PACKETS"),
        Column::Number("BYTES"),
    ];
    const NONE: &'static str = "no chains";

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |part: &ChainPart| {
            vec![
                self.name.clone(),
                part.what.clone(),
                part.name.clone(),
                part.detail.clone(),
                part.counter.packets.to_string(),
                part.counter.bytes.to_string(),
            ]
        };
        self.parts.iter().map(row).collect()
    }
}

/// Which virtual functions of a card are behind the links, in this order.
fn cards(vf: &VirtualFunctionsReport) -> String {
    let number = |one: &VirtualFunctionReport| one.number.map_or_else(|| "none".to_owned(), |one| one.to_string());
    let (west, east) = (&vf.west, &vf.east);
    let away = if west.attached && east.attached { "" } else { ", not attached" };
    format!(
        " (west: VF {} of {}, VLAN {}; east: VF {}, VLAN {}{away})",
        number(west),
        vf.device,
        west.vlan,
        number(east),
        east.vlan
    )
}

impl Listed for FunctionReport {
    const PATH: &'static str = "/v1/functions";
    const COLUMNS: &'static [Column] = &[
        Column::Text("SID"),
        Column::Text("BEHAVIOUR"),
        Column::Text("FUNCTION"),
        Column::Text("INSTANCE"),
        Column::Text("STATE"),
        Column::Text("FOR"),
        Column::Number("CHANGES"),
        Column::Text("ON FAILURE"),
        Column::Text("LAST PROBE"),
        Column::Text("REASON"),
    ];
    const NONE: &'static str = "no functions are watched";

    fn rows(&self) -> Vec<Vec<String>> {
        let link = |link: &LinkReport| {
            if link.up { link.name.clone() } else { format!("{} (down)", link.name) }
        };
        let last = self.probe.as_ref().map(|probe| match probe.round_trip_us {
            Some(time) => format!("{} {} in {}.{:03} ms", probe.kind, probe.last, time / 1000, time % 1000),
            None => format!("{} {}", probe.kind, probe.last),
        });
        vec![vec![
            self.sid.clone(),
            self.behaviour.clone(),
            format!(
                "{}/{}{}",
                link(&self.to_function),
                link(&self.from_function),
                self.vf.as_ref().map(cards).unwrap_or_default()
            ),
            self.instance.as_ref().map_or_else(String::new, |instance| {
                let leaves = if instance.takes_new_flows { "" } else { ", drained" };
                format!("{} of {}: {} flows{leaves}", instance.name, instance.function, instance.flows)
            }),
            self.state.clone(),
            format!("{} s", self.for_ms / 1000),
            self.changes.to_string(),
            [Some(self.on_failure.clone()), self.backup.clone()].into_iter().flatten().collect::<Vec<_>>().join(" "),
            last.unwrap_or_default(),
            self.reason.clone(),
        ]]
    }
}

impl Listed for PortReport {
    const PATH: &'static str = "/v1/ports";
    const COLUMNS: &'static [Column] = &[
        Column::Text("PORT"),
        Column::Text("ROLE"),
        Column::Text("LINK"),
        Column::Text("MODE"),
        Column::Text("HOOK"),
        Column::Number("MTU"),
        Column::Text("MAC"),
        Column::Number("FORWARDED"),
        Column::Number("PASSED"),
        Column::Number("DROPPED"),
        Column::Number("BY DEVICE"),
        Column::Text("WHY THIS MODE"),
    ];
    const NONE: &'static str = "no ports";

    fn rows(&self) -> Vec<Vec<String>> {
        let link = match (self.ifindex, self.up) {
            (0, _) => "missing",
            (_, true) => "up",
            (_, false) => "down",
        };
        let by_device = self.device.as_ref().map(|device| device.dropped_received + device.dropped_sent);
        vec![vec![
            self.name.clone(),
            self.role.clone(),
            link.to_owned(),
            self.mode.clone(),
            self.hook.clone(),
            self.mtu.to_string(),
            self.mac.clone(),
            self.forwarded.packets.to_string(),
            self.passed.packets.to_string(),
            self.dropped.packets.to_string(),
            by_device.unwrap_or_default().to_string(),
            self.mode_reason.clone(),
        ]]
    }

    fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }
}

impl Listed for SteeringReport {
    const PATH: &'static str = "/v1/steering";
    const COLUMNS: &'static [Column] = &[
        Column::Text("RULE"),
        Column::Text("MATCH"),
        Column::Text("ACTION"),
        Column::Number("PACKETS"),
        Column::Number("BYTES"),
    ];
    const NONE: &'static str = "no steering rules";

    fn rows(&self) -> Vec<Vec<String>> {
        vec![vec![
            self.name.clone(),
            self.matches.clone(),
            self.action.clone(),
            self.counter.packets.to_string(),
            self.counter.bytes.to_string(),
        ]]
    }
}

impl Listed for PathMtuReport {
    const PATH: &'static str = "/v1/path-mtus";
    const COLUMNS: &'static [Column] =
        &[Column::Text("OF"), Column::Text("LIST"), Column::Number("MTU"), Column::Number("SECONDS LEFT")];
    const NONE: &'static str = "no path is known to be narrower than its first link";

    fn rows(&self) -> Vec<Vec<String>> {
        let of = self.policy.as_ref().map(|policy| format!("policy {policy}"));
        let sid = || self.sid.as_ref().map(|sid| format!("function of {sid}"));
        vec![vec![
            of.or_else(sid).unwrap_or_default(),
            self.list.map(|list| list.to_string()).unwrap_or_default(),
            self.mtu.to_string(),
            self.seconds_left.to_string(),
        ]]
    }
}

impl Listed for DropReport {
    const PATH: &'static str = "/v1/drops";
    const COLUMNS: &'static [Column] = &[
        Column::Text("PORT"),
        Column::Text("REASON"),
        Column::Number("PACKETS"),
        Column::Text("AGO"),
        Column::Text("LAST SUCH PACKET"),
    ];
    const NONE: &'static str = "no drops";

    fn rows(&self) -> Vec<Vec<String>> {
        let last = self.last.as_ref();
        vec![vec![
            self.port.clone(),
            self.reason.clone(),
            self.counter.packets.to_string(),
            last.map(|last| format!("{} s", last.seconds_ago)).unwrap_or_default(),
            last.map(|last| last.headers.clone()).unwrap_or_default(),
        ]]
    }
}

impl Listed for OutcomeReport {
    const PATH: &'static str = "/v1/outcomes";
    const COLUMNS: &'static [Column] = &[
        Column::Text("PORT"),
        Column::Text("OUTCOME"),
        Column::Number("PACKETS"),
        Column::Number("BYTES"),
        Column::Text("MEANING"),
    ];
    const NONE: &'static str = "no packets yet";

    fn rows(&self) -> Vec<Vec<String>> {
        vec![vec![
            self.port.clone(),
            self.outcome.clone(),
            self.counter.packets.to_string(),
            self.counter.bytes.to_string(),
            self.text.clone(),
        ]]
    }
}

#[cfg(test)]
mod tests {
    use segue_api::report::{Counter, SegmentListReport};

    use super::*;

    #[test]
    fn every_row_fits_its_columns() {
        fn check<T: Listed>(value: serde_json::Value) {
            let item: T = serde_json::from_value(value).unwrap();
            let rows = item.rows();
            assert!(!rows.is_empty());
            assert!(rows.iter().all(|row| row.len() == T::COLUMNS.len()), "{}", T::PATH);
        }
        let counter = serde_json::json!({"packets": 1, "bytes": 2});
        check::<SidReport>(
            serde_json::json!({"sid": "a", "behaviour": "End", "kernel_route": "x", "counter": counter}),
        );
        check::<ChainReport>(serde_json::json!({"name": "c", "parts":
            [{"what": "policy", "name": "p", "detail": "", "counter": counter}]}));
        check::<FunctionReport>(serde_json::json!({"sid": "a", "behaviour": "End.AS", "state": "down", "reason": "r",
            "to_function": {"name": "t", "up": false}, "from_function": {"name": "f", "up": true}, "since_ms": 1,
            "for_ms": 2, "changes": 3, "on_failure": "drop", "hold_ms": 1000,
            "probe": {"kind": "icmp", "last": "answered", "round_trip_us": 1234, "answered": 1, "failed": 0}}));
        check::<PathMtuReport>(serde_json::json!({"policy": "p", "list": 0, "mtu": 1400, "seconds_left": 599}));
        check::<PathMtuReport>(serde_json::json!({"sid": "a", "mtu": 1400, "seconds_left": 599}));
        check::<PortReport>(serde_json::json!({"name": "p", "role": "core", "ifindex": 1, "up": true, "mtu": 1500,
            "mac": "", "hook": "xdp-native", "mode": "xdp", "mode_reason": "r", "forwarded": counter, "passed": counter, "dropped": counter}));
        check::<SteeringReport>(serde_json::json!({"name": "r", "match": "m", "action": "a", "counter": counter}));
        check::<DropReport>(serde_json::json!({"port": "p", "reason": "r", "text": "t", "counter": counter}));
        check::<OutcomeReport>(
            serde_json::json!({"port": "p", "outcome": "o", "kind": "k", "text": "t", "counter": counter}),
        );
    }

    #[test]
    fn a_policy_has_a_row_for_each_list() {
        let list = |weight| SegmentListReport { weight, segments: vec!["fc00::1".into()], counter: Counter::default() };
        let mut policy = PolicyReport {
            name: "p".into(),
            color: Some(7),
            endpoint: None,
            binding_sid: None,
            mode: "H.Encaps.Red".into(),
            counter: Counter::default(),
            segment_lists: vec![list(1), list(2)],
            owner: None,
        };
        let rows = policy.rows();
        assert!(rows.iter().all(|row| row.len() == PolicyReport::COLUMNS.len()));
        assert_eq!((rows[0][0].as_str(), rows[1][0].as_str()), ("p", ""));
        policy.segment_lists.clear();
        assert_eq!(policy.rows()[0][5], "none: drops");
    }

    #[test]
    fn the_node_comes_first() {
        let target = Target { node: Some("n1".into()), socket: "/x".into() };
        let value = with_node(&target, serde_json::json!({"a": 1}));
        assert_eq!(value, serde_json::json!({"node": "n1", "a": 1}));
    }
}
