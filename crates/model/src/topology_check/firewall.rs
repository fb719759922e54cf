//! Functions that are firewalls in their nodes' data planes, and who names them.

use super::Check;
use crate::error::KeyPath;
use crate::firewall::Firewall;
use crate::node_check::firewall_values;
use crate::topology::{Capabilities, Chain, Function, Host, ProxyChoice};

impl Check<'_> {
    /// A firewall is a part of its node: nothing that needs a namespace, a link or a proxy goes with it.
    pub(super) fn firewall(&mut self, name: &str, function: &Function, firewall: &Firewall, key: &KeyPath) {
        let given = [
            ("aware", function.aware),
            ("capabilities", function.capabilities != Capabilities::default()),
            ("proxy", function.proxy != ProxyChoice::Auto),
            ("may_change", function.may_change.is_some()),
            ("may_rewrite", !function.may_rewrite.is_empty()),
            ("on_failure", function.on_failure.is_some()),
            ("backup", function.backup.is_some()),
            ("watch", function.watch.is_some()),
        ];
        for (other, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let message = format!("a firewall is in the data plane of its node: it has nothing for the key {other:?}");
            self.report.error(&key.at(other), message, "remove the key, or `firewall`");
        }
        let key = key.at("firewall");
        if !firewall.name.is_empty() {
            let message = "a firewall in a topology is called as its function";
            self.report.error(&key.at("name"), message, "remove the key");
        }
        firewall_values(firewall, name, &key, &mut self.report);
    }

    pub(super) fn host_firewall(&mut self, host: &Host, name: &str, key: &KeyPath) {
        match self.topology.functions.get(name) {
            Some(function) if function.firewall().is_none() => {
                let message = format!("the function {name:?} is no firewall of its node");
                self.report.error(key, message, "name one with the key `firewall`");
            }
            Some(function) if function.node != host.node => {
                let message =
                    format!("the firewall {name:?} is on node {:?}, the host at {:?}", function.node, host.node);
                self.report.error(
                    key,
                    message,
                    "name a firewall of the host's node: it filters where the host is connected",
                );
            }
            Some(_) => {}
            None => {
                let message = format!("there is no function {name:?}");
                self.report.error(key, message, "add it to `functions`, with the key `firewall`, or correct the name");
            }
        }
    }

    /// A mark is seen by functions in netfilter, and is an argument for firewalls.
    pub(super) fn mark(&mut self, mark: u16, chain: &Chain, key: &KeyPath) {
        let visited = || chain.via.iter().filter_map(|name| Some((name, self.topology.functions.get(name)?)));
        if !visited().any(|(_, function)| function.is_netfilter() || function.firewall().is_some()) {
            let message = "no function that the chain visits sees a mark";
            let remedy = "remove the key, or visit a function with `netfilter` or `firewall`";
            return self.report.error(key, message, remedy);
        }
        let bits = |function: &Function| function.firewall().map(|firewall| u32::from(firewall.argument_length));
        let narrow =
            visited().find(|(_, function)| bits(function).is_some_and(|bits| u32::from(mark) >> bits.min(31) != 0));
        if let Some((name, function)) = narrow {
            let bits = bits(function).unwrap_or_default();
            let message =
                format!("{mark} does not fit into the {bits} bits that the firewall {name:?} takes for an argument");
            self.report.error(key, message, "choose a smaller one, or a larger `argument_length`");
        }
    }
}
