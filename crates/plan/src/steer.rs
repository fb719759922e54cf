//! What headends do: SR policies and steering rules; on kernel nodes what is put on by destination.

use ipnet::IpNet;

use segue_model::node::{HeadendMode, Policy, SegmentList, SteeringRule, TrafficClass, TtlModel};
use segue_model::owner::{AddressFamily, Direction};

use crate::chain::{Course, Part};
use crate::plan::{Encap, KernelEntry};
use crate::planner::Planner;
use crate::segment::Segment;

/// Before the rules of chains, which have none.
const HAIRPIN_PRIORITY: i32 = 1;

impl Planner<'_> {
    /// The policy of a part, and what leads traffic into it: at the headend classification, behind a hairpin its port. A binding label names
    /// its policy.
    pub(crate) fn headend(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        mode: HeadendMode,
        list: SegmentList,
    ) {
        let (_, to) = course.ends(direction);
        let name = course.policy(direction, part.number);
        let loopback = self.inventory.nodes[to.node].loopback;
        // Of the chain, which has one headend.
        let color = course.definition.color.filter(|_| part.number == 0);
        let policy = Policy {
            name: name.clone(),
            color,
            // RFC 9256 section 2.1 wants color and endpoint unique on a headend: two families cannot both have them.
            endpoint: color.filter(|_| !course.split).map(|_| loopback.into()),
            binding_sid: None,
            mode,
            source_address: None,
            segment_lists: vec![list],
            traffic_class: TrafficClass::Copy,
            hop_limit: 64,
            ttl: TtlModel::Pipe,
            entropy_label: false,
            pseudowire: self.control_word(course).filter(|_| part.by_labels),
            mss_clamp: None,
            owner: Some(course.owner(direction)),
        };
        let clash = self.nodes[part.from].policies.iter().find(|other| {
            policy.endpoint.is_some() && (other.color, other.endpoint) == (policy.color, policy.endpoint)
        });
        if let Some(clash) = clash {
            let message = format!(
                "its policy {name:?} and {:?} have the same color and endpoint on {}",
                clash.name,
                self.node_name(part.from)
            );
            self.error(&course.key.at("color"), message, "choose another color (RFC 9256 section 2.1)");
        }
        let rules = match (part.number, part.by_labels) {
            (0, _) if course.has_frames() => self.frames_in(course, direction, part.from, &name),
            (0, _) => classified(course, direction, &name),
            (_, true) => self.hairpin_rules(part, &name),
            (_, false) => Vec::new(),
        };
        if self.steer(course, part.from, &name, rules) {
            self.nodes[part.from].policies.push(policy);
        }
    }

    /// All that comes by the hairpin, of whatever family, before whatever rules of the node could take it.
    fn hairpin_rules(&self, part: &Part, policy: &str) -> Vec<SteeringRule> {
        let Some(hairpin) = self.hairpin(part.from, policy) else { return Vec::new() };
        let rule = |family: AddressFamily| SteeringRule {
            ingress: Some(hairpin.port.clone()),
            priority: HAIRPIN_PRIORITY,
            ..rule_to(family.all_addresses(), policy)
        };
        [AddressFamily::Ipv4, AddressFamily::Ipv6].map(rule).into()
    }

    /// Adds rules to a node. False: others take their traffic already.
    fn steer(&mut self, course: &Course<'_>, node: usize, name: &str, rules: Vec<SteeringRule>) -> bool {
        let several = rules.len() > 1;
        for (position, mut rule) in rules.into_iter().enumerate() {
            let taken = self.nodes[node].steering.iter().find(|other| same_traffic(other, &rule));
            if let Some(other) = taken {
                let message = format!(
                    "policy {:?} takes the same traffic from {} to {} already",
                    other.policy.as_deref().unwrap_or_default(),
                    rule.source.map_or_else(String::new, |source| source.to_string()),
                    rule.destination
                );
                self.error(&course.key, message, "tell the chains apart by their ends or by `match`");
                return false;
            }
            rule.name = Some(if several { format!("{name}-{}", position + 1) } else { name.to_owned() });
            self.nodes[node].steering.push(rule);
        }
        true
    }

    /// The kernel encapsulates by route, that is by destination alone.
    pub(crate) fn kernel_headend(&mut self, course: &Course<'_>, direction: Direction, segments: &[Segment]) {
        let (from, to) = course.ends(direction);
        let node = self.node_name(from.node);
        if !course.definition.matching.is_any() {
            let message = format!(
                "{node} forwards with the kernel's own data plane, which chooses by destination alone ({direction})"
            );
            self.error(&course.key.at("match"), message, "remove `match`, or give the node `dataplane: segue`");
            return;
        }
        let Some(first) = segments.first() else { return };
        if first.node == from.node {
            let message =
                format!("{node} would encapsulate towards itself, which the kernel does not do ({direction})");
            self.error(&course.key.at("via"), message, "give the node `dataplane: segue`, or remove its waypoint");
            return;
        }
        for destination in course.prefixes(to) {
            let entries = &self.nodes[from.node].kernel;
            let clash = entries.iter().any(|entry| segue_model::check::overlap(&entry.destination, destination));
            if clash {
                let message = format!(
                    "another chain from {node} goes to {destination} too, and the kernel chooses by destination alone"
                );
                self.error(
                    &course.key,
                    message,
                    "choose ends that do not overlap, or give the node `dataplane: segue`",
                );
                return;
            }
            let entry = KernelEntry {
                destination: *destination,
                encap: Encap::Seg6 {
                    reduced: course.definition.mode == HeadendMode::HEncapsRed,
                    segments: segments.iter().map(|segment| segment.sid).collect(),
                },
                towards: Some(self.node_name(first.node).to_owned()),
                reason: format!("chain {} {direction}: the kernel is the headend", course.chain),
            };
            self.nodes[from.node].kernel.push(entry);
        }
    }
}

/// The chain's traffic, between the prefixes of its ends.
fn classified(course: &Course<'_>, direction: Direction, policy: &str) -> Vec<SteeringRule> {
    let (from, to) = course.ends(direction);
    let matching = course.matching(direction);
    let mut rules = Vec::new();
    for destination in course.prefixes(to) {
        let sources =
            course.prefixes(from).filter(|source| AddressFamily::of(source) == AddressFamily::of(destination));
        for source in sources {
            rules.push(SteeringRule {
                source: Some(*source),
                protocol: matching.protocol,
                source_ports: matching.source_ports.clone(),
                destination_ports: matching.destination_ports.clone(),
                dscp: matching.dscp.clone(),
                flow_labels: matching.flow_labels.clone(),
                ..rule_to(*destination, policy)
            });
        }
    }
    rules
}

/// A rule with nothing but what each has.
fn rule_to(destination: IpNet, policy: &str) -> SteeringRule {
    SteeringRule {
        name: None,
        destination,
        source: None,
        protocol: None,
        source_ports: Vec::new(),
        destination_ports: Vec::new(),
        ingress: None,
        source_range: None,
        destination_range: None,
        dscp: Vec::new(),
        flow_labels: Vec::new(),
        priority: 0,
        policy: Some(policy.to_owned()),
        action: None,
    }
}

/// Whether two rules take the same packets for all that their text says.
fn same_traffic(a: &SteeringRule, b: &SteeringRule) -> bool {
    let addresses = |rule: &SteeringRule| (rule.destination, rule.source, rule.protocol);
    let ports = |rule: &SteeringRule| (rule.source_ports.clone(), rule.destination_ports.clone());
    let values = |rule: &SteeringRule| (rule.dscp.clone(), rule.flow_labels.clone());
    a.ingress == b.ingress && addresses(a) == addresses(b) && ports(a) == ports(b) && values(a) == values(b)
}
