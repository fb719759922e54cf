//! Labels with a function behind them: what each kind needs and does not take, where the rest of a stack leads.

use std::collections::{HashMap, HashSet};

use crate::error::KeyPath;
use crate::label::{LABELS_MAX, Label, LabelBehaviour};
use crate::node::{InnerType, Memory, OnFailure, Proxy, Sid};

use super::Check;

impl Check<'_> {
    /// `service`: the same as a SID.
    pub(super) fn service_label(&mut self, label: &Label, service: &Sid, key: &KeyPath) {
        use LabelBehaviour::{Firewall, Netfilter};
        let name = label.behaviour.name();
        let is_proxy = !matches!(label.behaviour, Netfilter | Firewall);
        // Of these the end of a stack is explicit null, which is of the main table.
        let has_table = service.memory() != Some(Memory::Packet);
        // Whether it is given, may be and must be.
        let given = [
            ("out", label.out.is_some(), false, false),
            ("port", label.port.is_some(), false, false),
            ("control_word", label.control_word.is_some(), false, false),
            ("table", label.table.is_some(), has_table, false),
            ("next_hop", label.next_hop.is_some(), is_proxy, false),
            ("next_hop_mac", label.next_hop_mac.is_some(), is_proxy, false),
            ("paths", !label.paths.is_empty(), false, false),
            ("udp", label.udp.is_some(), false, false),
            ("proxy", label.proxy.is_some(), is_proxy, is_proxy),
            ("netfilter", label.netfilter.is_some(), label.behaviour == Netfilter, label.behaviour == Netfilter),
            ("firewall", label.firewall.is_some(), label.behaviour == Firewall, label.behaviour == Firewall),
        ];
        for (parameter, is_given, may, must) in given {
            if is_given && !may {
                let message = format!("the behaviour {name} does not take the key {parameter:?}");
                self.error(&key.at(parameter), message, "remove it, or change the behaviour");
            } else if must && !is_given {
                let message = format!("the behaviour {name} needs the key {parameter:?}");
                self.error(key, message, format!("add `{parameter}:`"));
            }
        }
        if label.table == Some(0) {
            let remedy = "choose 1 or more, or remove the key for the main table (254)";
            self.error(&key.at("table"), "there is no routing table 0", remedy);
        }
        if let Some(firewall) = &label.firewall {
            self.firewall(firewall, &key.at("firewall"));
        }
        if let Some(netfilter) = &label.netfilter {
            self.netfilter(service, netfilter, &key.at("netfilter"));
        }
        if let Some(proxy) = label.proxy.as_ref().filter(|_| is_proxy) {
            self.sid_next_hop(service, key);
            self.proxy(service, proxy, &key.at("proxy"));
            self.label_proxy(label, proxy, &key.at("proxy"));
        }
    }

    /// What proxies behind labels do not take, and where a static one leads.
    fn label_proxy(&mut self, label: &Label, proxy: &Proxy, key: &KeyPath) {
        if proxy.inner.contains(&InnerType::Ethernet) {
            let message = "no label says that Ethernet frames are behind it";
            self.error(&key.at("inner"), message, "write IPv4 and IPv6, or one of the two");
        }
        let function = proxy.function.as_ref().and_then(|name| self.state.functions.get(name));
        let is_service = function.is_some_and(|function| function.service.is_some());
        if is_service && label.behaviour != LabelBehaviour::SrAware {
            let name = proxy.function.as_deref().unwrap_or_default();
            let message = format!("{name:?} is a packet service, which gets packets with their labels");
            self.error(&key.at("function"), message, "write `behaviour: sr_aware`, or name another function");
        }
        let labels = key.at("labels");
        if proxy.labels.len() > LABELS_MAX {
            let message = format!("{} labels are too many", proxy.labels.len());
            self.error(&labels, message, format!("keep at most {LABELS_MAX}"));
        }
        for (position, value) in proxy.labels.iter().enumerate() {
            self.label_value(*value, &labels.at(position));
        }
        let Some(first) = proxy.labels.first() else { return };
        if *first == label.label {
            let message = "the first label is this one: packets would visit the function again and again";
            self.error(&labels.at(0), message, "begin with the label that follows this one");
        } else {
            self.own_label(*first, &labels.at(0));
            self.ends_here(None, &proxy.labels, &labels);
        }
    }

    /// What comes back from a function goes on by a label that this node knows.
    fn own_label(&mut self, label: u32, key: &KeyPath) {
        if !self.state.labels.iter().any(|own| own.label == label) {
            let message = format!("this node does not know the label {label}, and packets would go nowhere");
            self.error(key, message, "add it to `labels`, or name one that is there");
        }
    }

    /// `on_failure: reroute` of a label.
    pub(super) fn backup_label(&mut self, service: &Sid, key: &KeyPath) {
        let Some(backup) = service.backup_label() else {
            let message = "packets of a failed function have nowhere to go";
            return self.error(
                &key.at("on_failure"),
                message,
                "add `backup_label:` with a label of this node, such as another instance's",
            );
        };
        let key = key.at("backup_label");
        self.own_label(backup, &key);
        self.ends_here(None, &[backup], &key);
        if self.leads_in_a_circle(backup) {
            let message = format!("from the label {backup} backups lead in a circle, should all these functions fail");
            self.error(&key, message, "let the last of them drop, or lead to another node");
        }
    }

    fn leads_in_a_circle(&self, from: u32) -> bool {
        let next = |label: &Label| {
            let service = label.service()?;
            (service.on_failure() == OnFailure::Reroute).then(|| service.backup_label()).flatten()
        };
        let backups: HashMap<u32, u32> =
            self.state.labels.iter().filter_map(|label| Some((label.label, next(label)?))).collect();
        let (mut seen, mut at) = (HashSet::new(), Some(from));
        while let Some(label) = at {
            if !seen.insert(label) {
                return true;
            }
            at = backups.get(&label).copied();
        }
        false
    }
}
