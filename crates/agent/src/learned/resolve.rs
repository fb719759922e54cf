//! From what a source says to what an operator would write in `labels`. Pure: nothing is asked.

use std::collections::HashMap;
use std::net::IpAddr;

use segue_model::check;
use segue_model::label::{FIRST_LABEL, IMPLICIT_NULL, LABELS_MAX, PATHS_MAX};
use segue_model::node::{Label, LabelBehaviour, LabelPath, NodeState, PortRole};

use super::{Row, Table, Way};

/// Explicit null of IPv4 and IPv6 (RFC 3032 section 2.1), which every node with labels takes itself.
const EXPLICIT_NULLS: [u32; 2] = [0, 2];
/// What the kernel names where packets are the node's own.
const LOOPBACK: &str = "lo";

/// Ways that are told of a label.
const WAYS_SHOWN: usize = 4;

/// What was learned and is not done, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The label.
    pub label: u32,
    /// Nothing of it is done.
    pub wholly: bool,
    /// Why.
    pub reason: String,
    /// What to do.
    pub remedy: &'static str,
}

/// What a table means to a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    /// Labels beside those that are configured, in ascending order.
    pub labels: Vec<Label>,
    /// The rest, in ascending order.
    pub refused: Vec<Refused>,
}

/// What becomes of the label on one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Pop,
    Null,
    Swap(u32),
}

/// One way, as this node could go it.
enum Step {
    /// To the node itself.
    Own,
    Via(Out, IpAddr, Option<String>),
}

/// Why it is refused, and what to do.
type Refusal = (String, &'static str);

/// What `table` means to the node that is to be as `state` says. `state` has no learned labels.
pub fn resolve(state: &NodeState, table: &Table) -> Resolved {
    let node = Node::new(state);
    let mut resolved = Resolved::default();
    for (label, row) in table {
        if EXPLICIT_NULLS.contains(label) {
            continue;
        }
        let mut refuse = |wholly: bool, (reason, remedy): Refusal| {
            resolved.refused.push(Refused { label: *label, wholly, reason, remedy });
        };
        match node.label(*label, row, &mut refuse) {
            Ok(label) => resolved.labels.push(label),
            Err(refusal) => refuse(true, refusal),
        }
    }
    resolved
}

/// A node as it is configured.
struct Node<'a> {
    state: &'a NodeState,
    labels: HashMap<u32, &'a Label>,
    ports: HashMap<&'a str, PortRole>,
}

impl<'a> Node<'a> {
    fn new(state: &'a NodeState) -> Self {
        Self {
            state,
            labels: state.labels.iter().map(|label| (label.label, label)).collect(),
            ports: state.ports.iter().map(|port| (port.name.as_str(), port.role)).collect(),
        }
    }

    /// `refuse` is told of ways that are left out.
    fn label(&self, number: u32, row: &Row, refuse: &mut impl FnMut(bool, Refusal)) -> Result<Label, Refusal> {
        if number < FIRST_LABEL {
            return Err((format!("{number} is a special-purpose label (RFC 7274)"), "look who hands it out"));
        }
        if let Some(own) = self.labels.get(&number) {
            let learned = shown(row);
            let reason =
                format!("configured as {}, and learned{learned}: what is configured holds", own.behaviour.name());
            return Err((reason, "remove one of both: the label in `labels`, or what hands it out"));
        }
        let (mut ways, mut last) = (Vec::new(), None);
        for way in &row.ways {
            match self.step(way) {
                Ok(step) => ways.push(step),
                Err(refusal) => {
                    if let Some(before) = last.replace(refusal) {
                        refuse(false, before);
                    }
                }
            }
        }
        match (ways.is_empty(), last) {
            (true, Some(refusal)) => return Err(refusal),
            (true, None) => return Err(("there is no way".to_owned(), "look at what hands it out")),
            (false, Some(refusal)) => refuse(false, refusal),
            (false, None) => {}
        }
        let mut label = self.made(number, ways, refuse)?;
        label.comment = Some(format!("learned{}", by(row)));
        Ok(label)
    }

    fn step(&self, way: &Way) -> Result<Step, Refusal> {
        let out = out(&way.out)?;
        let next_hop = match (way.next_hop, way.interface.as_deref()) {
            (None, Some(LOOPBACK)) if out == Out::Pop => return Ok(Step::Own),
            (None, Some(name)) => {
                let reason = format!("it leads to {name} without a neighbour's address");
                return Err((reason, "give the link addresses, or configure the label in `labels`"));
            }
            (None, None) => return Err(("it leads nowhere".to_owned(), "look at what hands it out")),
            (Some(next_hop), _) => next_hop,
        };
        let problem = match next_hop {
            IpAddr::V4(address) => check::ipv4_problem(address),
            IpAddr::V6(address) if address.is_unicast_link_local() && way.interface.is_none() => {
                Some("is an address that every link has")
            }
            IpAddr::V6(address) if address.is_unicast_link_local() => None,
            IpAddr::V6(address) => check::ipv6_problem(address),
        };
        if let Some(problem) = problem {
            return Err((format!("its next hop {next_hop} {problem}"), "look at what hands it out"));
        }
        match way.interface.as_deref().map(|name| (name, self.ports.get(name))) {
            None | Some((_, Some(PortRole::Core))) => {}
            Some((name, None)) => {
                let reason = format!("it leads to {next_hop} by {name}, which is no port of this node");
                return Err((reason, "add the interface to `ports` with `role: core`"));
            }
            Some((name, Some(_))) => {
                let reason = format!("it leads to {next_hop} by {name}, which is no core port: no labels leave there");
                return Err((reason, "let the routing protocol run on core ports only"));
            }
        }
        Ok(Step::Via(out, next_hop, way.interface.clone()))
    }

    /// The label with its ways, of which there is at least one.
    fn made(&self, number: u32, steps: Vec<Step>, refuse: &mut impl FnMut(bool, Refusal)) -> Result<Label, Refusal> {
        let mut label = empty(number);
        let mut ways: Vec<(Out, IpAddr, Option<String>)> = Vec::new();
        let mut is_own = false;
        for step in steps {
            match step {
                Step::Own => is_own = true,
                Step::Via(out, next_hop, port) => {
                    // One more than are used is enough to know.
                    let is_new =
                        ways.len() <= PATHS_MAX && !ways.iter().any(|(_, other, on)| (*other, on) == (next_hop, &port));
                    if is_new {
                        ways.push((out, next_hop, port));
                    }
                }
            }
        }
        if is_own {
            if !ways.is_empty() {
                let reason = "one of its ways ends here, and another leads on".to_owned();
                return Err((reason, "look who else hands it out"));
            }
            return Ok(label);
        }
        if ways.len() > PATHS_MAX {
            let reason = format!("it has more ways than the {PATHS_MAX} that are used");
            refuse(false, (reason, "let the routing protocol have fewer (`maximum-paths`)"));
            ways.truncate(PATHS_MAX);
        }
        let all = |wanted: Out| ways.iter().all(|(out, ..)| *out == wanted);
        label.behaviour = if all(Out::Pop) {
            self.popped(number)
        } else if all(Out::Null) {
            LabelBehaviour::ExplicitNull
        } else if ways.iter().any(|(out, ..)| *out == Out::Null) {
            let reason = "some of its ways have explicit null, and others have not".to_owned();
            return Err((reason, "let its node ask for explicit null on all links, or on none"));
        } else {
            LabelBehaviour::Swap
        };
        // That of the first, which others need not repeat.
        label.out = ways.iter().find_map(|(out, ..)| match out {
            Out::Swap(out) => Some(*out),
            Out::Pop | Out::Null => None,
        });
        let differing = |out: Out| match out {
            Out::Swap(out) => Some(out).filter(|_| label.out != Some(out)),
            Out::Pop | Out::Null => label.out.map(|_| IMPLICIT_NULL),
        };
        let mut paths: Vec<LabelPath> =
            ways.into_iter().map(|(out, next_hop, port)| LabelPath { next_hop, port, out: differing(out) }).collect();
        match &mut paths[..] {
            [path] => (label.next_hop, label.port) = (Some(path.next_hop), path.port.take()),
            _ => label.paths = paths,
        }
        Ok(label)
    }

    /// What a label is called that comes off towards a neighbour: packets see no difference.
    fn popped(&self, number: u32) -> LabelBehaviour {
        let Some(mpls) = &self.state.mpls else { return LabelBehaviour::Pop };
        let within = |ranges: &[segue_model::range::NumberRange]| {
            ranges.iter().any(|range| (range.low()..=range.high()).contains(&number))
        };
        let is_global = if mpls.srgb.is_empty() { !within(&mpls.srlb) } else { within(&mpls.srgb) };
        if is_global { LabelBehaviour::Pop } else { LabelBehaviour::Adjacency }
    }
}

/// What stands in the label's place.
fn out(stack: &[u32]) -> Result<Out, Refusal> {
    match *stack {
        [] | [IMPLICIT_NULL] => Ok(Out::Pop),
        [label] if EXPLICIT_NULLS.contains(&label) => Ok(Out::Null),
        [label] if label >= FIRST_LABEL => Ok(Out::Swap(label)),
        [label] => Err((format!("it becomes {label}, a special-purpose label (RFC 7274)"), "look who hands it out")),
        _ => {
            let reason = format!("{} labels would stand in its place", stack.len());
            let remedy = "configure it with `behaviour: binding`, for a policy with these labels";
            Err((reason, if stack.len() > LABELS_MAX { "look who hands it out" } else { remedy }))
        }
    }
}

fn by(row: &Row) -> String {
    if row.by.is_empty() { String::new() } else { format!(": {}", row.by) }
}

/// Who handed a label out, and where it leads, in words.
fn shown(row: &Row) -> String {
    let way = |way: &Way| {
        let out: Vec<String> = way.out.iter().map(ToString::to_string).collect();
        let next_hop = way.next_hop.map(|next_hop| format!(" {next_hop}")).unwrap_or_default();
        let interface = way.interface.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let out = if out.is_empty() { IMPLICIT_NULL.to_string() } else { out.join("/") };
        format!("as {out}{next_hop}{interface}")
    };
    let mut ways: Vec<String> = row.ways.iter().take(WAYS_SHOWN).map(way).collect();
    if row.ways.len() > WAYS_SHOWN {
        ways.push("others".to_owned());
    }
    format!(
        " ({})",
        [row.by.clone(), ways.join(", ")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    )
}

/// A label of the node itself.
fn empty(label: u32) -> Label {
    Label {
        label,
        behaviour: LabelBehaviour::Node,
        out: None,
        next_hop: None,
        next_hop_mac: None,
        port: None,
        control_word: None,
        paths: Vec::new(),
        udp: None,
        table: None,
        proxy: None,
        netfilter: None,
        policy: None,
        firewall: None,
        comment: None,
        owner: None,
        learned: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeState {
        serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "ports": [{"name": "a", "role": "core"}, {"name": "b", "role": "core"}, {"name": "c", "role": "access"}],
            "mpls": {"srgb": ["16000-16999"], "srlb": ["15000-15999"], "learn": {"kernel": true}},
            "labels": [{"label": 16009, "behaviour": "swap", "next_hop": "10.0.0.9", "port": "a"}],
        }))
        .unwrap()
    }

    /// `OUT[/OUT] [NEXT-HOP] [INTERFACE]`, several behind commas.
    fn row(ways: &str) -> Row {
        let way = |text: &str| {
            let mut way = Way::default();
            for word in text.split_whitespace() {
                if let Ok(address) = word.parse() {
                    way.next_hop = Some(address);
                } else if word.starts_with(|first: char| first.is_ascii_digit()) {
                    way.out = word.split('/').map(|out| out.parse().unwrap()).collect();
                } else {
                    way.interface = Some(word.to_owned());
                }
            }
            way
        };
        let ways = ways.split(',').filter(|text| !text.trim().is_empty()).map(way).collect();
        Row { by: "isis".to_owned(), ways }
    }

    #[test]
    fn each_kind_of_row_is_a_label_that_an_operator_could_write() {
        let rows = [
            (16001, "lo", r#"{"behaviour": "node"}"#),
            (16002, "3 lo", r#"{"behaviour": "node"}"#),
            (16003, "16003 10.0.0.1", r#"{"behaviour": "swap", "out": 16003, "next_hop": "10.0.0.1"}"#),
            (16004, "17 fe80::1 a", r#"{"behaviour": "swap", "out": 17, "next_hop": "fe80::1", "port": "a"}"#),
            (16005, "3 10.0.0.1 a", r#"{"behaviour": "pop", "next_hop": "10.0.0.1", "port": "a"}"#),
            (16006, "0 10.0.0.1 a", r#"{"behaviour": "explicit_null", "next_hop": "10.0.0.1", "port": "a"}"#),
            (
                16007,
                "16007 10.0.0.1 a, 3 10.0.0.2 b",
                r#"{"behaviour": "swap", "out": 16007, "paths": [{"next_hop": "10.0.0.1", "port": "a"},
                    {"next_hop": "10.0.0.2", "port": "b", "out": 3}]}"#,
            ),
            (
                16008,
                "10.0.0.1 a, 3 10.0.0.2 b, 10.0.0.1 a",
                r#"{"behaviour": "pop", "paths": [{"next_hop": "10.0.0.1", "port": "a"}, {"next_hop": "10.0.0.2", "port": "b"}]}"#,
            ),
            (15001, "10.0.0.1 a", r#"{"behaviour": "adjacency", "next_hop": "10.0.0.1", "port": "a"}"#),
            (20000, "10.0.0.1", r#"{"behaviour": "adjacency", "next_hop": "10.0.0.1"}"#),
        ];
        let table: Table = rows.iter().map(|(label, ways, _)| (*label, row(ways))).chain([(0, row("lo"))]).collect();
        let mut resolved = resolve(&node(), &table);
        assert_eq!(resolved.refused, []);
        for (number, ways, expected) in rows {
            let at = resolved.labels.iter().position(|label| label.label == number).unwrap();
            let mut written: serde_json::Value = serde_json::from_str(expected).unwrap();
            written["label"] = number.into();
            written["comment"] = "learned: isis".into();
            written["learned"] = true.into();
            assert_eq!(resolved.labels.remove(at), serde_json::from_value(written).unwrap(), "{number} {ways}");
        }
        assert_eq!(resolved.labels, [], "explicit null needs no entry");
    }

    #[test]
    fn what_a_node_cannot_do_is_told() {
        let rows = [
            (5, "10.0.0.1 a", "special-purpose"),
            (
                16009,
                "16009 10.0.0.1 b",
                "configured as swap, and learned (isis: as 16009 10.0.0.1 b): what is configured",
            ),
            (16010, "", "no way"),
            (16011, "10.0.0.1 eth9", "by eth9, which is no port"),
            (16012, "10.0.0.1 c", "by c, which is no core port"),
            (16013, "16013 a", "without a neighbour's address"),
            (16014, "16013 lo", "without a neighbour's address"),
            (16015, "fe80::1", "every link has"),
            (16016, "224.0.0.1 a", "its next hop 224.0.0.1"),
            (16017, "::1 a", "its next hop ::1"),
            (16018, "16018/15001 10.0.0.1 a", "2 labels would stand"),
            (16019, "7 10.0.0.1 a", "a special-purpose label"),
            (16020, "lo, 16020 10.0.0.1 a", "another leads on"),
            (16021, "0 10.0.0.1 a, 16021 10.0.0.2 b", "explicit null, and others"),
            (16022, "3", "leads nowhere"),
        ];
        let table: Table = rows.iter().map(|(label, ways, _)| (*label, row(ways))).collect();
        let resolved = resolve(&node(), &table);
        assert_eq!(resolved.labels, []);
        assert_eq!(resolved.refused.len(), rows.len());
        for ((label, ways, reason), refused) in rows.into_iter().zip(&resolved.refused) {
            assert_eq!((refused.label, refused.wholly), (label, true), "{ways}");
            assert!(refused.reason.contains(reason), "{ways}: {}", refused.reason);
        }
    }

    #[test]
    fn ways_that_cannot_be_gone_leave_the_others() {
        let many: Vec<String> = (1..=17).map(|last| format!("16002 10.0.0.{last} a")).collect();
        let ways =
            [(16001, row("16001 10.0.0.1 a, 16001 10.0.0.2 eth9, 16001 10.0.0.3 c")), (16002, row(&many.join(",")))];
        let resolved = resolve(&node(), &ways.into());
        assert_eq!(resolved.labels[0].next_hop, Some([10, 0, 0, 1].into()));
        assert_eq!(resolved.labels[1].paths.len(), PATHS_MAX);
        let refused: Vec<_> = resolved.refused.iter().map(|refused| (refused.label, refused.wholly)).collect();
        assert_eq!(refused, [(16001, false), (16001, false), (16002, false)]);
    }
}
