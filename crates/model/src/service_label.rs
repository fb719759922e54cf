//! Labels with a function behind them, as what is asked of all functions sees them: as SIDs, with keys in place of addresses.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::label::{LAST_LABEL, Label, LabelBehaviour};
use crate::node::{Behaviour, NodeState, Sid};

/// Where labels with a function behind them stand among SIDs, so that all that is known of functions is known by one key: in the
/// discard-only block (RFC 6666), whose addresses no packet may have.
const AS_SIDS: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64);

/// The key of a label among those of SIDs.
pub fn label_key(label: u32) -> Ipv6Net {
    Ipv6Net::from(Ipv6Addr::from_bits(AS_SIDS.addr().to_bits() | u128::from(label)))
}

/// The label whose key this is.
pub fn key_label(key: &Ipv6Net) -> Option<u32> {
    let number = key.addr().to_bits() ^ AS_SIDS.addr().to_bits();
    (AS_SIDS.contains(key) && number <= u128::from(LAST_LABEL)).then_some(number as u32)
}

/// A SID, or the label that stands in its place, as operators write them.
pub fn sid_or_label(key: &Ipv6Net) -> String {
    match key_label(key) {
        Some(label) => format!("label {label}"),
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
            Self::Firewall => Some(Behaviour::EndAn),
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

    /// The name of its behaviour, or of its label's.
    pub fn behaviour_name(&self) -> &'static str {
        match (self.label(), self.behaviour) {
            (Some(_), Behaviour::EndAs) => LabelBehaviour::StaticProxy.name(),
            (Some(_), Behaviour::EndAd) => LabelBehaviour::DynamicProxy.name(),
            (Some(_), Behaviour::EndAnNf) => LabelBehaviour::Netfilter.name(),
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
    /// The labels with a function behind them, as SIDs with keys in place of addresses; those of virtual machines name ports and
    /// link-layer addresses. What is asked of all functions is asked of [`NodeState::sids`] and of these.
    pub fn services(&self) -> Vec<Sid> {
        let mut services: Vec<Sid> = self.labels.iter().filter_map(Label::service).collect();
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
    use crate::label::FIRST_LABEL;

    #[test]
    fn keys_tell_labels_from_sids() {
        for label in [FIRST_LABEL, 15_010, LAST_LABEL] {
            assert_eq!(key_label(&label_key(label)), Some(label));
            assert_eq!(sid_or_label(&label_key(label)), format!("label {label}"));
        }
        for other in ["100::10:0", "100:0:0:1::10", "fc00::10", "100::/64"] {
            let other: Ipv6Net = other.parse().unwrap_or_else(|_| Ipv6Net::from(other.parse::<Ipv6Addr>().unwrap()));
            let label = key_label(&other);
            assert!(label.is_none() || other.prefix_len() != 128, "{other} is no label's: {label:?}");
        }
    }
}
