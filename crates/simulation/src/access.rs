//! In by an access port: the boundary, then steering. Twin of `bpf/lib/access/port.h` and `steering.h`.

use segue_abi as abi;
use segue_abi::Outcome;
use segue_classifier::interpreter::classify;
use segue_classifier::program::Action;
use segue_classifier::{Field, Key};
use segue_dataplane::{CompiledList, CompiledPolicy, compile::steering_rules};

use crate::flow::Flow;
use crate::headers::{self, Found as Boundary};
use crate::octets::{ETHERNET, IPV6, SRH, half, link_local, number, octet};
use crate::way::Wanted;
use crate::wrap::Payload;
use crate::{End, Found, Packet, because, ended};

/// What steering says of a flow.
enum Steered<'a> {
    Ends(Box<End>),
    Into(&'a CompiledList),
}

impl<'a> Packet<'a, '_> {
    /// `access_port()`.
    pub(crate) fn access_port(&mut self) -> Found<Box<End>> {
        let flow = self.flow();
        if u32::from(self.port.entry.flags) & abi::SEGUE_PORT_L2 != 0 {
            return self.access_l2(&flow);
        }
        if flow.foreign {
            let ip = flow.family != 0 || flow.outcome.is_some();
            return Err(ended(if ip { Outcome::PassedOtherHost } else { Outcome::PassedNotForSegue }));
        }
        if let Some(outcome) = flow.outcome {
            return Err(ended(outcome));
        }
        if flow.family == 0 {
            let labelled = half(&self.frame, 12) == number::TYPE_MPLS;
            if labelled && self.port.entry.config_flags & abi::SEGUE_CONFIG_LABELS != 0 {
                return Err(ended(Outcome::DropLabelsFromOutside));
            }
            if self.remove_priority_tag() {
                self.stage()?;
                return self.access_port();
            }
            return Err(ended(Outcome::PassedNotForSegue));
        }
        self.closed(&flow)?;
        if flow.group {
            if let Some(address) = flow.destination6() {
                if self.in_sid_block(address) {
                    return Err(ended(Outcome::DropSidFromOutside));
                }
                if self.in_infrastructure(address) {
                    return Err(ended(Outcome::DropInfrastructureFromOutside));
                }
            }
            return Err(because(Outcome::PassedNotForSegue, "in a frame to a group"));
        }
        match self.steer(&flow)? {
            Steered::Ends(end) => Err(end),
            Steered::Into(list) => self.headend(&flow, list),
        }
    }

    fn access_l2(&mut self, flow: &Flow) -> Found<Box<End>> {
        let list = self.policy_list(self.port.entry.policy, flow.hash);
        let list = list.ok_or_else(|| ended(Outcome::DropPolicyInvalid))?;
        if u32::from(list.entry.mode) == abi::SEGUE_PUSH {
            return self.frame_to_labels(list, flow.hash);
        }
        let payload =
            Payload { length: self.frame.len(), flow: flow.hash, protocol: number::ETHERNET, ..Payload::default() };
        self.encapsulate(list, &payload, None)
    }

    /// The boundary (RFC 8754 section 5.1).
    fn closed(&mut self, flow: &Flow) -> Found<()> {
        if flow.sr_seen {
            let hmac = u32::from(self.port.entry.flags) & abi::SEGUE_PORT_HMAC != 0
                && flow.srh.is_some_and(|srh| self.has_hmac(srh))
                && flow.destination6().is_some_and(|address| self.sid(address).is_some());
            if hmac {
                // The data plane's signature, which only the kernel's rules know.
                crate::octets::put(&mut self.frame, 6, &[0; 6]);
            }
            return Err(ended(if hmac { Outcome::PassedHmac } else { Outcome::DropSrFromOutside }));
        }
        let suspect = flow.fragment || matches!(flow.protocol, number::ICMPV6 | number::ROUTING);
        if flow.family != 6 || !suspect {
            return Ok(());
        }
        let closed = |address| self.in_sid_block(address) || self.in_infrastructure(address);
        let place = (octet(&self.frame, ETHERNET + 6), ETHERNET + IPV6);
        match headers::boundary(&self.frame, place, ETHERNET + flow.length, closed) {
            Boundary::Nothing => Ok(()),
            Boundary::Sr => Err(ended(Outcome::DropSrFromOutside)),
            Boundary::Error => Err(ended(Outcome::DropErrorFromOutside)),
        }
    }

    /// `srh_has_hmac()`: where Linux looks for it.
    fn has_hmac(&self, srh: usize) -> bool {
        const TLV: usize = 40;
        let length = (usize::from(octet(&self.frame, srh + 1)) + 1) * 8;
        if octet(&self.frame, srh + 5) & 8 == 0 || length < SRH + 16 + TLV {
            return false;
        }
        let tlv = (srh + length - TLV) & crate::octets::OFFSET_MASK;
        octet(&self.frame, tlv) == 5 && octet(&self.frame, tlv + 1) == 38
    }

    /// The list that a flow takes in a policy: `policy_list()`.
    pub(crate) fn policy_list(&mut self, index: u32, flow: u32) -> Option<&'a CompiledList> {
        let policy: &'a CompiledPolicy = self.view.compiled.policies.iter().find(|policy| policy.index == index)?;
        let entry = &policy.entry;
        let chosen = usize::from(entry.bucket[flow as usize % abi::SEGUE_POLICY_BUCKETS as usize] & 15);
        let list = (entry.lists > 0).then(|| entry.list[chosen])?;
        let list = policy.lists.iter().find(|known| known.index == list)?;
        let position = policy.lists.iter().position(|known| known.index == list.index).unwrap_or_default();
        let of = if policy.lists.len() > 1 {
            format!("list {} of {} by the flow's hash: ", position + 1, policy.lists.len())
        } else {
            String::new()
        };
        let words = |labels: &[u32]| labels.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let segments: Vec<String> = list.segments.iter().map(ToString::to_string).collect();
        let steps = if list.labels.is_empty() {
            format!("<{}>", segments.join(", "))
        } else {
            format!("labels {}", words(&list.labels))
        };
        self.note("policy", policy.name.clone(), format!("{of}{steps}"), &[list.entry.counter]);
        Some(list)
    }

    /// `steering_verdict()`.
    fn steer(&mut self, flow: &Flow) -> Found<Steered<'a>> {
        // `flow_to_udp_endpoint()`.
        let is_udp = flow.protocol == number::UDP && flow.ports.is_some_and(|(_, to)| to == crate::udp::PORT);
        if is_udp && flow.destination.is_some_and(|address| self.udp_endpoint(address).is_some()) {
            return Ok(Steered::Ends(ended(Outcome::DropLabelsFromOutside)));
        }
        if let Some(outcome) = self.refused_addresses(flow) {
            let reason = match outcome {
                Outcome::DropBadSource
                    if flow.source.is_some_and(
                        |address| matches!(address, std::net::IpAddr::V6(address) if link_local(address)),
                    ) =>
                {
                    "a link-local source is not forwarded"
                }
                Outcome::PassedNotForSegue => "it is addressed to this node",
                _ => "",
            };
            return Ok(Steered::Ends(because(outcome, reason)));
        }
        if let Some(address) = flow.destination6() {
            if self.in_sid_block(address) {
                return Ok(Steered::Ends(ended(Outcome::DropSidFromOutside)));
            }
            if self.in_infrastructure(address) {
                return Ok(Steered::Ends(ended(Outcome::DropInfrastructureFromOutside)));
            }
        }
        let state = self.view.state;
        let rules = steering_rules(state, self.view.interfaces).unwrap_or_default();
        let key = key_of(flow, self.port.entry.ifindex);
        let Some(found) = classify(&rules.program, 0, &key, None) else {
            let many = state.steering.len();
            let detail = format!("none of {many} rules holds: it is the kernel's, unsteered");
            self.note("steering", "", detail, &[]);
            return Ok(Steered::Ends(because(Outcome::PassedNotForSegue, "no steering rule holds")));
        };
        let position = rules.positions[found];
        let rule = &state.steering[position];
        let name = segue_dataplane::compile::rule_name(rule, position);
        let counter = self.view.compiled.steering_counters.get(&name).copied().unwrap_or_default();
        let then = match &rule.policy {
            Some(policy) => format!("into policy {policy}"),
            None if rules.program.chains[0].rules[found].action == Action::Drop => "drop".to_owned(),
            None => "pass, unsteered".to_owned(),
        };
        self.note("steering", name, format!("{}: {then}", words(rule)), &[counter]);
        match rules.program.chains[0].rules[found].action {
            Action::Drop => Ok(Steered::Ends(ended(Outcome::DropSteeringRule))),
            Action::Policy(_) => {
                let policy = rule.policy.as_deref().and_then(|name| self.view.compiled.policy(name));
                let list = policy.and_then(|policy| self.policy_list(policy.index, flow.hash));
                let invalid = || Steered::Ends(ended(Outcome::DropPolicyInvalid));
                Ok(list.map_or_else(invalid, Steered::Into))
            }
            _ => Ok(Steered::Ends(because(Outcome::PassedNotForSegue, "the steering rule says pass"))),
        }
    }

    fn headend(&mut self, flow: &Flow, list: &'a CompiledList) -> Found<Box<End>> {
        if u32::from(list.entry.mode) == abi::SEGUE_PUSH {
            return self.push(flow, list);
        }
        // The way is found with the verdict, before anything else is looked at.
        let wanted = Wanted { oif: list.entry.oif, inside: true, flow: flow.hash, ..Wanted::default() };
        let first = std::net::Ipv6Addr::from(list.entry.first);
        let adjacency = self.adjacency(first.into(), wanted);
        if flow.hop_limit <= 1 {
            return Err(ended(Outcome::DropHopLimitExceeded));
        }
        self.make_even(flow);
        self.clamp(flow, list);
        let payload = Payload {
            length: flow.length,
            flow: flow.hash,
            protocol: if flow.is_ipv4() { number::IPV4 } else { number::IPV6 },
            traffic_class: flow.traffic_class,
            flow_label: flow.flow_label,
            decrement: true,
            ..Payload::default()
        };
        if u32::from(list.entry.mode) == abi::SEGUE_H_INSERT {
            return self.insert(list, &payload, &adjacency);
        }
        self.encapsulate(list, &payload, Some(adjacency))
    }
}

impl Packet<'_, '_> {
    /// `mss_clamp()`: a segment that opens a connection has an MSS that fits the policy. Its options are not read here.
    pub(crate) fn clamp(&mut self, flow: &Flow, list: &CompiledList) {
        const SYN: u8 = 2;
        if list.entry.clamp == 0 || flow.protocol != number::TCP || flow.fragment {
            return;
        }
        let length = if flow.is_ipv4() { usize::from(octet(&self.frame, ETHERNET) & 15) * 4 } else { IPV6 };
        let at = ETHERNET + length;
        let has_options = octet(&self.frame, at + 12) >> 4 > 5;
        if octet(&self.frame, at + 13) & SYN != 0 && has_options {
            self.assume(format!("its MSS is one for packets of {} octets at most", list.entry.clamp));
        }
    }
}

/// `steering_key_fill()`.
fn key_of(flow: &Flow, ingress: u32) -> Key {
    use std::net::IpAddr;
    let mut key = Key::new();
    match (flow.source, flow.destination) {
        (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => {
            key.set(Field::SourceIpv4, source.to_bits().into());
            key.set(Field::DestinationIpv4, destination.to_bits().into());
        }
        (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => {
            key.set(Field::SourceIpv6, source.to_bits());
            key.set(Field::DestinationIpv6, destination.to_bits());
            key.set(Field::FlowLabel, flow.flow_label.into());
        }
        _ => {}
    }
    if let Some((source, destination)) = flow.ports {
        key.set(Field::SourcePort, source.into());
        key.set(Field::DestinationPort, destination.into());
    }
    key.set(Field::Protocol, flow.protocol.into());
    key.set(Field::Ingress, ingress.into());
    key.set(Field::TrafficClass, flow.traffic_class.into());
    key
}

/// What a rule matches, in words.
fn words(rule: &segue_model::node::SteeringRule) -> String {
    let mut words = vec![format!("to {}", rule.destination)];
    words.extend(rule.source.map(|source| format!("from {source}")));
    words.extend(rule.source_range.map(|range| format!("from {range}")));
    words.extend(rule.destination_range.map(|range| format!("to {range}")));
    words.extend(rule.protocol.map(|protocol| format!("protocol {}", protocol.0)));
    let list = |values: Vec<String>| values.join(", ");
    let mut ranges = |what: &str, values: Vec<String>| {
        if !values.is_empty() {
            words.push(format!("{what} {}", list(values)));
        }
    };
    ranges("source port", rule.source_ports.iter().map(ToString::to_string).collect());
    ranges("destination port", rule.destination_ports.iter().map(ToString::to_string).collect());
    ranges("DSCP", rule.dscp.iter().map(ToString::to_string).collect());
    ranges("flow label", rule.flow_labels.iter().map(ToString::to_string).collect());
    words.extend(rule.ingress.as_ref().map(|port| format!("in by {port}")));
    words.join(", ")
}
