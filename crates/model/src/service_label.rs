//! Labels with a function behind them, as what is asked of all functions sees them: as SIDs, with keys in place of addresses.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::instances::{instance_name, instance_number, instance_sid};
use crate::label::{FIRST_LABEL, LAST_LABEL, Label, LabelBehaviour};
use crate::node::{Behaviour, NodeState, Sid};

/// Where labels with a function behind them stand among SIDs, so that all that is known of functions is known by one key: in the
/// discard-only block (RFC 6666), whose addresses no packet may have.
const AS_SIDS: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64);

/// The key of a label among those of SIDs.
pub fn label_key(label: u32) -> Ipv6Net {
    Ipv6Net::from(Ipv6Addr::from_bits(AS_SIDS.addr().to_bits() | u128::from(label)))
}

/// The key of one of several instances of a label's function, by the instance's name.
pub fn label_instance_key(label: u32, instance: &str) -> Ipv6Net {
    numbered_key(label, instance_number(instance))
}

/// The label stands where it is found in no key of a label alone: [`FIRST_LABEL`] is not 0.
fn numbered_key(label: u32, number: u32) -> Ipv6Net {
    let bits = u128::from(label) << 32 | u128::from(number);
    Ipv6Net::from(Ipv6Addr::from_bits(AS_SIDS.addr().to_bits() | bits))
}

/// The label and the instance's number of a key, 0 for the label itself.
fn label_and_instance(key: &Ipv6Net) -> Option<(u32, u32)> {
    let bits = key.addr().to_bits() ^ AS_SIDS.addr().to_bits();
    let (label, number) = ((bits >> 32) as u32, bits as u32);
    match label {
        _ if !AS_SIDS.contains(key) => None,
        0 => (number <= LAST_LABEL).then_some((number, 0)),
        FIRST_LABEL..=LAST_LABEL if number != 0 => Some((label, number)),
        _ => None,
    }
}

/// The label whose key this is, or that of one of the instances of its function.
pub fn key_label(key: &Ipv6Net) -> Option<u32> {
    label_and_instance(key).map(|(label, _)| label)
}

/// The number of the instance whose key this is; 0 if it is none's.
pub fn key_instance(key: &Ipv6Net) -> u32 {
    label_and_instance(key).map_or(0, |(_, number)| number)
}

/// The key of a label, or of one of its instances, as [`sid_or_label`] writes it behind `label `.
pub fn named_key(name: &str) -> Option<Ipv6Net> {
    let (label, number) = match name.split_once('/') {
        Some((label, number)) => (label, u32::from_str_radix(number, 16).ok().filter(|number| *number != 0)?),
        None => (name, 0),
    };
    let label: u32 = label.parse().ok().filter(|label| *label <= LAST_LABEL)?;
    match number {
        0 => Some(label_key(label)),
        _ => (label >= FIRST_LABEL).then(|| numbered_key(label, number)),
    }
}

/// A SID, or the label that stands in its place, as operators write them; behind a label the number of an instance as it ends its SID.
pub fn sid_or_label(key: &Ipv6Net) -> String {
    match label_and_instance(key) {
        Some((label, 0)) => format!("label {label}"),
        Some((label, number)) => format!("label {label}/{number:x}"),
        None if key.prefix_len() == 128 => key.addr().to_string(),
        None => key.to_string(),
    }
}

/// Whether a SID lies where labels stand.
pub(crate) fn is_kept_for_labels(sid: &Ipv6Net) -> bool {
    AS_SIDS.contains(sid)
}

impl LabelBehaviour {
    /// Whether a function is behind such a label: the behaviour that a SID with the same function has.
    pub fn of_sid(self) -> Option<Behaviour> {
        match self {
            Self::StaticProxy => Some(Behaviour::EndAs),
            Self::DynamicProxy => Some(Behaviour::EndAd),
            Self::Netfilter => Some(Behaviour::EndAnNf),
            Self::Firewall | Self::SrAware => Some(Behaviour::EndAn),
            _ => None,
        }
    }
}

impl Label {
    /// The SID that has the same function behind it, with the label's key in place of its address. `None`: there is no function.
    pub fn service(&self) -> Option<Sid> {
        Some(Sid {
            sid: label_key(self.label),
            behaviour: self.behaviour.of_sid()?,
            flavours: Vec::new(),
            next_hop: self.next_hop,
            next_hop_mac: self.next_hop_mac,
            port: self.port.clone(),
            table: self.table,
            policy: None,
            proxy: self.proxy.clone(),
            firewall: self.firewall.clone(),
            netfilter: self.netfilter.clone(),
            argument_length: 0,
            answer_echo: false,
            allow_inner_sid: false,
            outside_locator: true,
            comment: self.comment.clone(),
            owner: self.owner.clone(),
        })
    }
}

impl Sid {
    /// The label that stands here in place of a SID.
    pub fn label(&self) -> Option<u32> {
        key_label(&self.sid)
    }

    /// The SID of one of several instances of its function, or what stands in place of one behind a label.
    pub(crate) fn member(&self, instance: &str) -> Ipv6Addr {
        match self.label() {
            Some(label) => label_instance_key(label, instance).addr(),
            None => instance_sid(self.sid, instance),
        }
    }

    /// The name of its behaviour, or of its label's.
    pub fn behaviour_name(&self) -> &'static str {
        match (self.label(), self.behaviour) {
            (Some(_), Behaviour::EndAs) => LabelBehaviour::StaticProxy.name(),
            (Some(_), Behaviour::EndAd) => LabelBehaviour::DynamicProxy.name(),
            (Some(_), Behaviour::EndAnNf) => LabelBehaviour::Netfilter.name(),
            (Some(_), Behaviour::EndAn) if self.firewall.is_none() => LabelBehaviour::SrAware.name(),
            (Some(_), Behaviour::EndAn) => LabelBehaviour::Firewall.name(),
            (_, behaviour) => behaviour.name(),
        }
    }

    /// The label in place of this one while its function is down, if packets are rerouted.
    pub fn backup_label(&self) -> Option<u32> {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.backup_label);
        of_proxy.or(self.netfilter.as_ref().and_then(|netfilter| netfilter.backup_label))
    }
}

impl NodeState {
    /// Whether a label leads to this function.
    pub fn is_behind_label(&self, function: &str) -> bool {
        let leads = |label: &Label| label.proxy.as_ref().and_then(|proxy| proxy.function.as_deref()) == Some(function);
        self.labels.iter().any(leads)
    }

    /// The labels with a function behind them, as SIDs with keys in place of addresses; those of virtual machines name ports and
    /// link-layer addresses. In a state that is written out, the instances of functions follow, as SIDs of their own. What is asked of
    /// all functions is asked of [`NodeState::sids`] and of these.
    pub fn services(&self) -> Vec<Sid> {
        let mut services: Vec<Sid> = self.labels.iter().filter_map(Label::service).collect();
        let mut several = Vec::new();
        for service in &mut services {
            let of = service.function().and_then(|name| Some((name, self.functions.get(name)?)));
            let written_out = |(name, function): &(&str, &crate::node::NodeFunction)| {
                function.instances.keys().any(|instance| self.functions.contains_key(&instance_name(name, instance)))
            };
            if of.as_ref().is_some_and(written_out) {
                several.extend(self.members(service));
                self.lead_to_members(service);
            }
        }
        services.extend(several);
        for service in &mut services {
            let found = service.function().and_then(|name| Some((name.to_owned(), self.functions.get(name)?)));
            if let Some((name, function)) = found {
                service.reach(&name, function);
            }
        }
        services
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::OnFailure;

    #[test]
    fn keys_tell_labels_from_sids() {
        for label in [FIRST_LABEL, 15_010, LAST_LABEL] {
            assert_eq!(key_label(&label_key(label)), Some(label));
            assert_eq!(sid_or_label(&label_key(label)), format!("label {label}"));
        }
        let key = label_instance_key(15_010, "a");
        assert_eq!((key_label(&key), key_instance(&key)), (Some(15_010), instance_number("a")));
        let name = sid_or_label(&key);
        assert_eq!(name, format!("label 15010/{:x}", instance_number("a")));
        assert_eq!(named_key(name.trim_start_matches("label ")), Some(key));
        assert_eq!(named_key("15010"), Some(label_key(15_010)));
        for broken in ["", "x", "1048576", "15010/", "15010/0", "15010/g", "15010/123456789", "3/1", "-1"] {
            assert_eq!(named_key(broken), None, "{broken}");
        }
        for other in
            ["100::10:0", "100:0:0:1::10", "fc00::10", "100::/64", "100::3aa2:0:0", "100::f:0:1", "100::10:0:0:1"]
        {
            let other: Ipv6Net = other.parse().unwrap_or_else(|_| Ipv6Net::from(other.parse::<Ipv6Addr>().unwrap()));
            let label = key_label(&other);
            assert!(label.is_none() || other.prefix_len() != 128, "{other} is no label's: {label:?}");
        }
    }

    #[test]
    fn instances_behind_labels_are_services_of_their_own() {
        let label = |number: u32, on_failure: &str| {
            let proxy = serde_json::json!({"function": "fw", "on_failure": on_failure, "backup_label": 15_030});
            serde_json::json!({"label": number, "behaviour": "dynamic_proxy", "proxy": proxy})
        };
        let state: NodeState = serde_json::from_value(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "functions": {"fw": {"instances": {"a": {"netns": "fw-a"}, "b": {"container": "fw-b", "drain": true}}}},
            "labels": [label(15_010, "reroute"), label(15_020, "bypass")],
        }))
        .unwrap();
        assert_eq!(state.services().len(), 2, "not written out: the agent does that");
        assert!(state.services().iter().all(|service| service.instances().is_none()));
        let state = state.written_out();
        let services = state.services();
        let keys: Vec<_> = services.iter().map(|service| service.sid).collect();
        let of = label_instance_key;
        let members = [of(15_010, "a"), of(15_010, "b"), of(15_020, "a"), of(15_020, "b")];
        assert_eq!((state.labels.len(), &keys[2..]), (2, &members[..]));
        assert_eq!(services[0].instances(), Some(&[members[0].addr()][..]), "b takes no new flows");
        assert_eq!((services[0].function_ports(), services[0].backup_label()), (None, Some(15_030)));
        assert_eq!(services[3].function_ports(), Some(("fnw-fw.b".to_owned(), "fne-fw.b".to_owned())));
        assert_eq!((services[3].on_failure(), services[3].backup_label()), (OnFailure::Drop, None));
        assert_eq!((services[5].on_failure(), services[5].label()), (OnFailure::Bypass, Some(15_020)));
        assert_eq!(state.written_out(), state);
    }
}
